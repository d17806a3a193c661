/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Listening sockets on their way from an old process to a new one: a line of text that says what a
 * socket is, and its descriptors beside it (SCM_RIGHTS). Both processes then hold the same queue of
 * waiting connections, so that the old one's end costs none. Control thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/net_priv.h"

unsigned listen_n_own(const struct listen_socket *ls)
{
	return ls->is_shared ? 1 : ls->n_fds;
}

void listen_describe(const struct listen_socket *ls, FILE *out)
{
	/* Names of interfaces have no '/': an older process takes it for one that no line names. */
	fprintf(out, "%d %u %d %d %s%s%s %s\n", (int)ls->ep.kind, listen_n_own(ls), ls->transparent,
		ls->v6only, ls->netns ? ls->netns : "", ls->netns ? "/" : "",
		ls->interface ? ls->interface : "-", ls->text);
}

/* "kind count transparent v6only [namespace/]interface address", the address up to the end of the line. */
static int parse(struct str line, struct listen_socket *ls, unsigned *ret_n, struct str *ret_dev,
		 struct str *ret_text)
{
	uint64_t kind, n, transparent, v6only;

	if (str_to_u64(str_cut(&line, ' '), &kind) != 0 ||
	    str_to_u64(str_cut(&line, ' '), &n) != 0 ||
	    str_to_u64(str_cut(&line, ' '), &transparent) != 0 ||
	    str_to_u64(str_cut(&line, ' '), &v6only) != 0)
		return -EBADMSG;
	*ret_dev = str_cut(&line, ' ');
	*ret_text = line;
	if (n == 0 || n > UINT16_MAX || kind > ENDPOINT_FD || !ret_dev->len || !line.len)
		return -EBADMSG;
	ls->ep.kind = (enum endpoint_kind)kind;
	ls->is_shared = kind != ENDPOINT_IP;
	ls->transparent = transparent;
	ls->v6only = v6only;
	*ret_n = (unsigned)n;
	return ls->is_shared && n != 1 ? -EBADMSG : 0;
}

int listen_receive(struct str line, const int *fds, unsigned n_given, unsigned n_workers,
		   struct listen_socket **ret_ls, struct err *err)
{
	struct listen_socket *ls = mem_zalloc(sizeof(*ls));
	socklen_t len = sizeof(ls->ep.addr);
	struct str dev, text, netns = STR_NULL;
	unsigned n;
	int r;

	if (!ls)
		return err_set(err, -ENOMEM, "out of memory");
	list_init(&ls->link);
	ls->steer_map = -1;
	r = parse(line, ls, &n, &dev, &text);
	if (r == 0 && n > n_given)
		r = -EBADMSG;
	if (r) {
		mem_free(ls);
		return err_set(err, r, "the old process said what is not a listener: '" STR_FMT "'",
			       STR_ARG(line));
	}
	/* Fewer of us would leave sockets with connections that nobody takes; more: some without a socket. */
	if (!ls->is_shared && n != n_workers) {
		mem_free(ls);
		return err_set(err, -EINVAL,
			       "the old process listens with %u workers, this one has %u: "
			       "connections that wait would be lost (set nbthread %u, change it "
			       "with a restart)",
			       n, n_workers, n);
	}
	if (str_find_char(dev, '/') != SIZE_MAX)
		netns = str_cut(&dev, '/');
	ls->text = mem_strdup(text);
	ls->netns = netns.p ? mem_strdup(netns) : NULL;
	ls->interface = str_is_eq(dev, STR("-")) ? NULL : mem_strdup(dev);
	ls->fds = mem_alloc(n_workers * sizeof(*ls->fds));
	if (!ls->text || !ls->fds || (!ls->interface && !str_is_eq(dev, STR("-"))) ||
	    (netns.p && !ls->netns)) {
		mem_free(ls->netns);
		mem_free(ls->text);
		mem_free(ls->interface);
		mem_free(ls->fds);
		mem_free(ls);
		return err_set(err, -ENOMEM, "out of memory");
	}
	ls->n_fds = n_workers;
	for (unsigned i = 0; i < n_workers; i++)
		ls->fds[i] = fds[ls->is_shared ? 0 : i];
	if (ls->ep.kind == ENDPOINT_IP)
		(void)getsockname(fds[0], &ls->ep.addr.sa, &len);
	ls->users = 1;
	ls->is_received = true;
	*ret_ls = ls;
	return 0;
}

void listen_keep_received(struct list *sockets)
{
	struct list *pos, *next;

	list_for_each_safe(pos, next, sockets) {
		struct listen_socket *ls = list_entry(pos, struct listen_socket, link);
		struct stat st;

		if (!ls->is_received)
			continue;
		/* From now on it is ours to remove. */
		if (ls->ep.kind == ENDPOINT_UNIX && lstat(ls->text, &st) == 0 &&
		    S_ISSOCK(st.st_mode)) {
			ls->path_dev = st.st_dev;
			ls->path_ino = st.st_ino;
		}
		listen_drop_received(ls);
	}
}

void listen_drop_received(struct listen_socket *ls)
{
	if (!ls->is_received)
		return;
	ls->is_received = false;
	listen_close(ls);
}

void listen_give_up_paths(struct list *sockets)
{
	struct list *pos;

	list_for_each(pos, sockets)
		list_entry(pos, struct listen_socket, link)->path_ino = 0;
}
