/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages between master and worker process (master.h), and the worker's side of them. Control thread. */
#include "ctl/master.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ctl/admin_priv.h"

union fd_control {
	char bytes[CMSG_SPACE(HANDOVER_BATCH * sizeof(int))];
	struct cmsghdr align;
};

int link_send(int fd, const char *text, size_t len, const int *fds, unsigned n_fds, bool waits)
{
	union fd_control control = { 0 };
	struct iovec iov = { .iov_base = (void *)text, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n_fds) {
		struct cmsghdr *c;

		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL | (waits ? 0 : MSG_DONTWAIT)) < 0 ? -errno : 0;
}

int link_receive(int fd, struct link_message *lm)
{
	union fd_control control;
	struct iovec iov = { .iov_base = lm->text, .iov_len = LINK_TEXT_MAX };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.bytes,
			    .msg_controllen = sizeof(control.bytes) };
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c;

	lm->n_fds = 0;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		lm->n_fds = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(lm->fds, CMSG_DATA(c), lm->n_fds * sizeof(int));
	}
	if (n == 0)
		return -EPIPE;
	lm->len = (size_t)n;
	lm->text[n] = '\0';
	return 1;
}

/* --- the worker's side ------------------------------------------------------------------------------- */

static void worker_take_connection(struct ctl *ctl, const struct link_message *lm)
{
	struct admin_socket as = { .admin = ctl->admin, .exposes_fd = true };

	if (lm->len < 2 || lm->n_fds != 1) {
		for (unsigned i = 0; i < lm->n_fds; i++)
			close(lm->fds[i]);
		return;
	}
	as.level = (enum conf_level)(lm->text[1] - '0');
	if (admin_client_open(&as, lm->fds[0]) != 0)
		close(lm->fds[0]);
}

static void worker_on_link(struct ev_fd *ev, uint32_t events)
{
	struct ctl *ctl = container_of(ev, struct ctl, master_link);
	struct link_message lm;
	int rc;

	while ((rc = link_receive(ev->fd, &lm)) > 0)
		worker_take_connection(ctl, &lm);
	if (rc < 0) /* the master has gone, and soon its signal comes */
		worker_link_close(ctl);
}

int worker_link_open(struct ctl *ctl, int fd)
{
	struct timeval limit = { .tv_sec = 2 }; /* a master that is stopped must not stop us */
	int rc;

	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	ctl->master_link.on_event = worker_on_link;
	rc = loop_add_fd(ctl->loop, &ctl->master_link, fd, LOOP_LEVEL);
	if (rc != 0)
		close(fd);
	return rc;
}

void worker_link_close(struct ctl *ctl)
{
	int fd = ctl->master_link.fd;

	if (fd < 0)
		return;
	loop_del_fd(ctl->loop, &ctl->master_link);
	close(fd);
	ctl->master_link.fd = -1;
}

static int tell_socket(struct ctl *ctl, const struct listen_socket *ls)
{
	unsigned n = listen_n_own(ls), sent = 0;
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	int rc = 0;

	if (!out)
		return -ENOMEM;
	putc('L', out);
	listen_describe(ls, out);
	fclose(out);
	if (len > LINK_TEXT_MAX)
		rc = -EMSGSIZE;
	for (; rc == 0 && sent < n; sent += HANDOVER_BATCH)
		rc = link_send(ctl->master_link.fd, sent ? "F" : text, sent ? 1 : len,
			       ls->fds + sent,
			       n - sent < HANDOVER_BATCH ? n - sent : HANDOVER_BATCH, true);
	free(text); /* lint: libc memory, open_memstream's */
	return rc;
}

void worker_link_sockets(struct ctl *ctl)
{
	const struct proxy_snapshot *snap = ctl->current;
	int rc;

	if (ctl->master_link.fd < 0)
		return;
	rc = link_send(ctl->master_link.fd, "B", 1, NULL, 0, true);
	for (unsigned i = 0; rc == 0 && i < snap->n_binds; i++)
		if (snap->binds[i].socket->fds[0] >= 0) /* not shut */
			rc = tell_socket(ctl, snap->binds[i].socket);
	if (rc == 0)
		rc = link_send(ctl->master_link.fd, "E", 1, NULL, 0, true);
	if (rc != 0)
		log_msg(LOG_LVL_ERR,
			"the master cannot be told which sockets listen: %s; new addresses would "
			"not "
			"outlive a crash",
			strerror(-rc));
}

void worker_link_reloaded(struct ctl *ctl, bool is_ok)
{
	if (ctl->master_link.fd >= 0 &&
	    link_send(ctl->master_link.fd, is_ok ? "R" : "X", 1, NULL, 0, true) != 0)
		log_msg(LOG_LVL_ERR, "the master cannot be told about the reload");
}
