/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TCP and Unix stream sockets: one recv or send per call and the rules of edge-triggered readiness.
 * Worker's thread; no memory of their own.
 *
 * raw_read is cleared when nothing more can be there: the kernel said so (EAGAIN), or gave less than
 * asked. The second only holds while no end is in sight: after RDHUP, HUP or an error no further
 * edge will come, so the flag stays until recv has returned the end.
 */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "net/net_priv.h"

ssize_t raw_recv(struct conn *c, void *mem, size_t size)
{
	ssize_t n;

	/* 0 would look like the end. */
	if (size == 0)
		return -EAGAIN;
	do {
		n = recv(c->ev.fd, mem, size, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n > 0) {
		/* A Unix socket also stops short at passed descriptors (unix(7)): only EAGAIN counts there. */
		if ((size_t)n < size && !c->peer_closed && !c->is_broken && !c->is_unix)
			c->raw_read = false;
		return n;
	}
	if (n == 0) {
		c->peer_closed = true;
		return 0;
	}
	if (errno == EAGAIN) {
		/* Even with RDHUP pending: recv returns the end, not EAGAIN, once it is there. */
		c->raw_read = false;
		return -EAGAIN;
	}
	return conn_fail(c, conn_error_from_errno(errno), -errno);
}

/* The bytes of the vector in *ret_total. */
static ssize_t send_vector(struct conn *c, const struct iovec *iov, int n, int flags,
			   size_t *ret_total)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov };

	if (n > IOV_MAX) {
		n = IOV_MAX;
		flags |= MSG_MORE;
	}
	for (int i = 0; i < n; i++)
		*ret_total += iov[i].iov_len;
	if (*ret_total == 0)
		return 0;
	msg.msg_iovlen = (size_t)n;
	return sendmsg(c->ev.fd, &msg, flags);
}

ssize_t raw_sendv(struct conn *c, const struct iovec *iov, int n, bool more)
{
	int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
	size_t total;
	ssize_t r;

	do {
		total = n == 1 ? iov[0].iov_len : 0;
		r = total ? send(c->ev.fd, iov[0].iov_base, total, flags)
			  : send_vector(c, iov, n, flags, &total);
	} while (r < 0 && errno == EINTR);
	if (r >= 0) {
		if ((size_t)r < total)
			c->raw_write = false;
		return r;
	}
	/* Fast open whose cookie the kernel has lost since: a plain handshake is under way. */
	if (errno == EAGAIN || (errno == EINPROGRESS && c->is_early)) {
		c->raw_write = false;
		return -EAGAIN;
	}
	return conn_fail(c, conn_error_from_errno(errno), -errno);
}

static ssize_t tcp_recv(struct conn *c, void *mem, size_t size)
{
	ssize_t n = raw_recv(c, mem, size);

	c->can_read = c->raw_read;
	return n;
}

static ssize_t tcp_sendv(struct conn *c, const struct iovec *iov, int n, bool more)
{
	ssize_t r = raw_sendv(c, iov, n, more);

	c->can_write = c->raw_write;
	return r;
}

static int tcp_advance(struct conn *c)
{
	int r = raw_advance(c);

	if (r)
		return r;
	c->state = CONN_OPEN;
	c->doing = "open";
	return 0;
}

static void tcp_shut_write(struct conn *c)
{
	shutdown(c->ev.fd, SHUT_WR);
}

static void tcp_nothing(struct conn *c)
{
	(void)c;
}

const struct conn_ops tcp_ops = {
	.name = "tcp",
	.recv = tcp_recv,
	.sendv = tcp_sendv,
	.advance = tcp_advance,
	.shut_write = tcp_shut_write,
	.idle = tcp_nothing,
	.free = tcp_nothing,
};

const struct conn_ops unix_ops = {
	.name = "unix",
	.recv = tcp_recv,
	.sendv = tcp_sendv,
	.advance = tcp_advance,
	.shut_write = tcp_shut_write,
	.idle = tcp_nothing,
	.free = tcp_nothing,
};

int conn_tcp_fact(const struct conn *c, enum subject_tcp_fact f, int64_t *ret)
{
	struct tcp_info i = { 0 };
	socklen_t len = sizeof(i);

	if (c->ev.fd < 0 || getsockopt(c->ev.fd, IPPROTO_TCP, TCP_INFO, &i, &len))
		return -ENOENT;
	const uint32_t facts[TCP_FACT_COUNT] = {
		[TCP_RTT] = i.tcpi_rtt,
		[TCP_RTTVAR] = i.tcpi_rttvar,
		[TCP_UNACKED] = i.tcpi_unacked,
		[TCP_SACKED] = i.tcpi_sacked,
		[TCP_LOST] = i.tcpi_lost,
		[TCP_RETRANS] = i.tcpi_retrans,
		[TCP_REORDERING] = i.tcpi_reordering,
	};

	*ret = facts[f];
	return 0;
}

/* --- options ------------------------------------------------------------------------------------ */

static int set_positive(int fd, int level, int opt, uint32_t value)
{
	const int v = (int)value;

	return value && setsockopt(fd, level, opt, &v, sizeof(v)) < 0 ? -errno : 0;
}

int tcp_set_buffers(int fd, uint32_t rcvbuf, uint32_t sndbuf)
{
	int r = set_positive(fd, SOL_SOCKET, SO_RCVBUF, rcvbuf);

	return r ? r : set_positive(fd, SOL_SOCKET, SO_SNDBUF, sndbuf);
}

int tcp_set_keepalive(int fd, const struct conf_keepalive *ka)
{
	int r = set_positive(fd, SOL_SOCKET, SO_KEEPALIVE, 1);

	if (r == 0 && ka)
		r = set_positive(fd, SOL_TCP, TCP_KEEPCNT, ka->count);
	if (r == 0 && ka)
		r = set_positive(fd, SOL_TCP, TCP_KEEPIDLE, ka->idle_s);
	if (r == 0 && ka)
		r = set_positive(fd, SOL_TCP, TCP_KEEPINTVL, ka->interval_s);
	return r;
}
