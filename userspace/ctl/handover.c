/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The old process's side of a binary upgrade: listening sockets and the datapath's lock go to the new
 * process over the runtime socket (take_over.c asks). Until it says that it runs, all can be taken back: when
 * its connection ends before, we go on as if nothing had been. Control thread.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ctl/admin_priv.h"
#include "ctl/handover.h"

/* One message: `n` descriptors, at most HANDOVER_BATCH, beside one byte. */
static int send_fds(int sock, const int *fds, unsigned n)
{
	union {
		char bytes[CMSG_SPACE(HANDOVER_BATCH * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)"#", .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.bytes,
			    .msg_controllen = CMSG_SPACE(n * sizeof(int)) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	return sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : -errno;
}

static bool may_hand_over(struct cmd *c)
{
	if (!c->client || !c->client->exposes_fd) {
		cmd_say(c, "Permission denied: the socket needs 'expose-fd listeners'.");
		return false;
	}
	if (c->ctl->phase != CTL_RUNNING) {
		cmd_say(c, "This process is stopping.");
		return false;
	}
	return true;
}

static unsigned collect(struct ctl *ctl, unsigned from, int fds[HANDOVER_BATCH])
{
	struct list *pos;
	unsigned at = 0, n = 0;

	list_for_each(pos, &ctl->listen_sockets) {
		const struct listen_socket *ls = list_entry(pos, struct listen_socket, link);

		for (unsigned i = 0; i < listen_n_own(ls) && n < HANDOVER_BATCH; i++, at++)
			if (at >= from)
				fds[n++] = ls->fds[i];
	}
	return n;
}

/* Without an argument: what there is. With one: descriptors from that number on. */
int cmd_getsocks(struct cmd *c)
{
	const char *from_text = cmd_arg(c, 0), *generation_text = cmd_arg(c, 1);
	uint64_t from = 0, generation = 0, now = c->ctl->current->snap.generation;
	int fds[HANDOVER_BATCH], rc;
	struct list *pos;
	unsigned n;

	if (!may_hand_over(c))
		return 0;
	if (!from_text) {
		fprintf(c->out, "listeners %llu\n", (unsigned long long)now);
		list_for_each(pos, &c->ctl->listen_sockets)
			listen_describe(list_entry(pos, struct listen_socket, link), c->out);
		return 0;
	}
	if (str_to_u64(str_from_cstr(from_text), &from) != 0 || from > UINT32_MAX ||
	    !generation_text || str_to_u64(str_from_cstr(generation_text), &generation) != 0 ||
	    generation != now) {
		cmd_say(c, "The configuration has changed.");
		return 0;
	}
	n = collect(c->ctl, (unsigned)from, fds);
	rc = n ? send_fds(c->client->ev.fd, fds, n) : -ENOENT;
	if (rc != 0)
		cmd_say(c, "Cannot send descriptors: %s.", strerror(-rc));
	return 0;
}

int cmd_getlock(struct cmd *c)
{
	struct ctl *ctl = c->ctl;
	int fd = ctl->dp ? dp_lock_fd(ctl->dp) : -1, rc;

	if (!may_hand_over(c))
		return 0;
	if (ctl->taker && ctl->taker != c->client) {
		cmd_say(c, "Another process is taking over.");
		return 0;
	}
	if (fd < 0) {
		cmd_data(c, "none");
		return 0;
	}
	rc = send_fds(c->client->ev.fd, &fd, 1);
	if (rc != 0) {
		cmd_say(c, "Cannot send descriptors: %s.", strerror(-rc));
		return 0;
	}
	/* From here on the tables are the other's to write: no news of neighbours, no moved slots of ours. */
	ctl->taker = c->client;
	loop_del_fd(ctl->loop, &ctl->netlink);
	timer_stop(ctl->loop, &ctl->netlink_again);
	timer_stop(ctl->loop, &ctl->dp_work);
	return 0;
}

int cmd_taken(struct cmd *c)
{
	struct ctl *ctl = c->ctl;

	if (!may_hand_over(c))
		return 0;
	listen_give_up_paths(&ctl->listen_sockets);
	if (ctl->taker == c->client) {
		ctl->taker = NULL;
		ctl->is_handed_over = true;
	}
	/* The service goes on: that we stop is no news for its manager. */
	if (ctl->notify_fd >= 0)
		close(ctl->notify_fd);
	ctl->notify_fd = -1;
	log_msg(LOG_LVL_NOTICE, "a new process has taken over the listening sockets%s",
		ctl->is_handed_over ? " and the datapath" : "");
	return 0;
}

void handover_client_gone(struct ctl *ctl, const struct admin_client *ac)
{
	struct err err = { "" };

	if (ctl->taker != ac)
		return;
	ctl->taker = NULL;
	if (ctl->phase != CTL_RUNNING || !ctl->dp)
		return;
	log_msg(LOG_LVL_WARNING, "the process that was taking over has gone: going on");
	if (!dp_has_kernel_tier(ctl->dp))
		return;
	if (start_attach(ctl, ctl->current->conf, &err) != 0)
		log_msg(LOG_LVL_ALERT, "%s", err.text);
	if (loop_add_fd(ctl->loop, &ctl->netlink, dp_netlink_fd(ctl->dp), LOOP_LEVEL) != 0)
		log_msg(LOG_LVL_ALERT, "cannot watch neighbours any more");
	loop_defer(ctl->loop, &ctl->dp_sync);
}
