/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The new process's side of a binary upgrade (handover.h). Before any thread exists; every answer is waited
 * for, with a time limit: an old process that hangs fails the start, and nothing has happened.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/handover.h"

#define ANSWER_MAX  (4u << 20)
#define ANSWER_WAIT 10 /* s */
#define PROMPT	    "\n> "

static void drop_fds(struct take_over *t)
{
	for (unsigned i = 0; i < t->n_fds; i++)
		close(t->fds[i]);
	t->n_fds = 0;
}

static int keep_fds(struct take_over *t, struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int *grown;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		grown = mem_realloc(t->fds, (t->n_fds + n) * sizeof(int));
		if (!grown) {
			for (size_t i = 0; i < n; i++) {
				int fd;

				memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
				close(fd);
			}
			return -ENOMEM;
		}
		t->fds = grown;
		memcpy(t->fds + t->n_fds, CMSG_DATA(c), n * sizeof(int));
		t->n_fds += (unsigned)n;
	}
	return m->msg_flags & MSG_CTRUNC ? -EMFILE : 0;
}

static int receive(struct take_over *t, char *at, size_t room)
{
	union {
		char bytes[CMSG_SPACE(HANDOVER_BATCH * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = at, .iov_len = room };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.bytes,
			    .msg_controllen = sizeof(control.bytes) };
	ssize_t n = recvmsg(t->fd, &m, MSG_CMSG_CLOEXEC);
	int rc;

	if (n < 0)
		return errno == EINTR ? 0 : errno == EAGAIN ? -ETIMEDOUT : -errno;
	rc = keep_fds(t, &m);
	return rc ? rc : n ? (int)n : -ECONNRESET;
}

/* Asks, and waits for the prompt. The answer without it is in t->buf. */
static int ask(struct take_over *t, const char *line, struct err *err)
{
	size_t have = 0, cap = 0;
	int n = 0;

	if (send(t->fd, line, strlen(line), MSG_NOSIGNAL) != (ssize_t)strlen(line))
		return err_set(err, -errno, "-x: cannot ask the old process: %m");
	for (;;) {
		if (have + 4096 > cap) {
			char *p = cap < ANSWER_MAX ? mem_realloc(t->buf, cap * 2 + 8192) : NULL;

			if (!p)
				return err_set(err, -ENOMEM, "-x: the answer is too large");
			t->buf = p;
			cap = cap * 2 + 8192;
		}
		n = receive(t, t->buf + have, 4095);
		if (n < 0)
			return err_set(err, n, "-x: no answer of the old process: %s",
				       strerror(-n));
		have += (size_t)n;
		t->buf[have] = '\0';
		if (have >= 3 && memcmp(t->buf + have - 3, PROMPT, 3) == 0)
			break;
	}
	for (have -= 3; have && t->buf[have - 1] == '\n'; have--)
		;
	t->buf[have] = '\0';
	return 0;
}

static int dial(struct take_over *t, const char *path, struct err *err)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	if (strncmp(path, "unix@", 5) == 0)
		path += 5;
	if (strlen(path) >= sizeof(un.sun_path))
		return err_set(err, -ENAMETOOLONG, "-x %s: the path is too long", path);
	memcpy(un.sun_path, path, strlen(path) + 1);
	t->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (t->fd < 0 || connect(t->fd, (struct sockaddr *)&un, sizeof(un)) != 0)
		return err_set(err, -errno,
			       "-x %s: %m (the stats socket of the process to replace?)", path);
	return 0;
}

/* All of them before any is used: a line of text belongs to the next so many. */
static int fetch_fds(struct take_over *t, struct str lines, const char *generation, struct err *err)
{
	unsigned want = 0;

	for (struct str line; lines.len;) {
		uint64_t n = 0;

		line = str_cut(&lines, '\n');
		(void)str_cut(&line, ' ');
		if (str_to_u64(str_cut(&line, ' '), &n) != 0 || n > UINT16_MAX)
			return err_set(err, -EBADMSG, "-x: not an answer of Headgate");
		want += (unsigned)n;
	}
	while (t->n_fds < want) {
		unsigned before = t->n_fds;
		char line[64];
		int rc;

		snprintf(line, sizeof(line), "_getsocks %u %s\n", before, generation);
		rc = ask(t, line, err);
		if (rc == 0 && t->n_fds == before)
			rc = err_set(err, -EBADMSG, "-x: the old process said: %s", t->buf);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int make_sockets(struct take_over *t, struct str lines, unsigned n_workers,
			struct list *sockets, struct err *err)
{
	unsigned used = 0;
	int rc = 0;

	while (rc == 0 && lines.len) {
		struct str line = str_cut(&lines, '\n');
		struct listen_socket *ls;

		rc = listen_receive(line, t->fds + used, t->n_fds - used, n_workers, &ls, err);
		if (rc != 0)
			break;
		list_push_back(sockets, &ls->link);
		used += listen_n_own(ls);
	}
	/* Those that found an owner are no longer ours to close. */
	if (used) {
		memmove(t->fds, t->fds + used, (t->n_fds - used) * sizeof(int));
		t->n_fds -= used;
	}
	drop_fds(t);
	return rc;
}

int take_over_sockets(struct take_over *t, const char *path, unsigned n_workers,
		      struct list *sockets, struct err *err)
{
	int rc = dial(t, path, err);

	return rc ? rc : take_over_ask(t, n_workers, sockets, err);
}

int take_over_ask(struct take_over *t, unsigned n_workers, struct list *sockets, struct err *err)
{
	struct timeval wait = { .tv_sec = ANSWER_WAIT };
	char generation[24], *list = NULL;
	struct str lines, head;
	int rc;

	(void)setsockopt(t->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	(void)setsockopt(t->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	rc = ask(t, "prompt\n", err);
	if (rc == 0)
		rc = ask(t, "set timeout cli 1h\n", err);
	if (rc == 0)
		rc = ask(t, "_getsocks\n", err);
	if (rc != 0)
		return rc;
	list = mem_strdup(str_from_cstr(t->buf));
	if (!list)
		return err_set(err, -ENOMEM, "out of memory");
	lines = str_from_cstr(list);
	head = str_cut(&lines, '\n');
	if (!str_is_eq(str_cut(&head, ' '), STR("listeners")) || !head.len ||
	    head.len >= sizeof(generation)) {
		rc = err_set(err, -EPROTO, "-x: the old process said: %s", t->buf);
	} else {
		memcpy(generation, head.p, head.len);
		generation[head.len] = '\0';
		rc = fetch_fds(t, lines, generation, err);
	}
	if (rc == 0)
		rc = make_sockets(t, lines, n_workers, sockets, err);
	mem_free(list);
	return rc;
}

int take_over_lock(struct take_over *t, struct err *err)
{
	int rc = ask(t, "_getlock\n", err), fd;

	if (rc != 0)
		return rc;
	if (t->n_fds != 1) {
		drop_fds(t);
		return strcmp(t->buf, "none") == 0
			       ? 0
			       : err_set(err, -EPROTO, "-x: the old process said: %s", t->buf);
	}
	fd = t->fds[0];
	t->n_fds = 0;
	return fd;
}

void take_over_done(struct take_over *t)
{
	struct err err = { "" };

	if (t->fd >= 0 && ask(t, "_taken\n", &err) != 0)
		log_msg(LOG_LVL_WARNING, "%s", err.text);
}

void take_over_close(struct take_over *t)
{
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	drop_fds(t);
	mem_free(t->fds);
	mem_free(t->buf);
	t->fds = NULL;
	t->buf = NULL;
}
