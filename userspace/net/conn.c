/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What all connections have in common: life and death, events to flags, the steps before the
 * transport proper (TCP connect, PROXY headers). Worker's thread. A conn lives in its worker's pool from
 * conn_new() to conn_close().
 */
#include <errno.h>
#include <unistd.h>

#include "net/net_priv.h"

/* A v2 header with TLVs may be long; nobody honest sends more than this. */
#define PROXY_PEEK_MAX 4096
/* Bytes thrown away at close so that the kernel sends FIN, not RST: see drain(). */
#define DRAIN_MAX   65536
#define DRAIN_TIMES 4

const char *conn_state_name(enum conn_state s)
{
	static const char *const names[] = {
		[CONN_CONNECTING] = "CONNECTING",
		[CONN_HANDSHAKE] = "HANDSHAKE",
		[CONN_OPEN] = "OPEN",
		[CONN_CLOSED] = "CLOSED",
	};

	return (size_t)s < ARRAY_SIZE(names) ? names[s] : "?";
}

const char *conn_error_text(enum conn_error e)
{
	static const char *const texts[] = {
#define X(name, text) [CONN_ERR_##name] = text,
		CONN_ERRORS(X)
#undef X
	};

	return (size_t)e < ARRAY_SIZE(texts) ? texts[e] : "?";
}

enum conn_error conn_error_from_errno(int err)
{
	switch (err < 0 ? -err : err) {
	case 0:
		return CONN_ERR_NONE;
	case ECONNREFUSED:
	case ENOENT: /* no such Unix socket */
		return CONN_ERR_REFUSED;
	case ECONNRESET:
	case EPIPE:
	case ECONNABORTED:
		return CONN_ERR_RESET;
	case ENETUNREACH:
	case EHOSTUNREACH:
	case ENETDOWN:
	case EHOSTDOWN:
	case ENONET:
	case EPROTO: /* ICMP protocol unreachable and parameter problem */
	case ENOPROTOOPT:
	case EACCES: /* a firewall's reject */
	case EPERM:
		return CONN_ERR_UNREACHABLE;
	case ETIMEDOUT:
		return CONN_ERR_TIMEOUT;
	case EADDRNOTAVAIL: /* no free local port */
	case EADDRINUSE:
	case EAGAIN: /* Unix socket: the backlog is full */
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
		return CONN_ERR_NO_PORTS;
	default:
		return CONN_ERR_SYSTEM;
	}
}

int conn_fail(struct conn *c, enum conn_error why, int err)
{
	if (c->error == CONN_ERR_NONE)
		c->error = (uint8_t)why;
	c->is_broken = true;
	return err;
}

void net_worker_init(struct net_worker *nw, struct loop *l, unsigned index)
{
	*nw = (struct net_worker){ .loop = l, .index = index };
	pool_init(&nw->conns, "conn", sizeof(struct conn), 1024);
}

void net_worker_fini(struct net_worker *nw)
{
	BUG_ON(nw->n_open);
	tls_io_free(nw);
	pool_trim(&nw->conns);
}

static void conn_on_event(struct ev_fd *ev, uint32_t events)
{
	struct conn *c = container_of(ev, struct conn, ev);

	if (events & (EPOLLRDHUP | EPOLLHUP))
		c->peer_closed = true;
	if (events & EPOLLERR)
		c->is_broken = true;
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		c->raw_read = true;
		c->can_read = true;
	}
	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) {
		c->raw_write = true;
		if (c->tls)
			tls_on_writable(c);
		c->can_write = c->raw_write;
	}
	if (c->on_event)
		c->on_event(c);
}

struct conn *conn_new(struct net_worker *nw)
{
	struct conn *c = pool_get(&nw->conns);

	if (!c)
		return NULL;
	memset(c, 0, sizeof(*c));
	c->ev.fd = -1;
	c->ev.on_event = conn_on_event;
	c->ops = &tcp_ops;
	c->nw = nw;
	c->state = CONN_CLOSED;
	c->doing = "new";
	c->since_ns = loop_now(nw->loop);
	list_init(&c->link);
	nw->n_open++;
	return c;
}

static void conn_release(struct conn *c)
{
	c->ops->free(c);
	mem_free(c->setup);
	mem_free(c->tlvs);
	list_del(&c->link);
	c->nw->n_open--;
	pool_put(&c->nw->conns, c);
}

int conn_register(struct conn *c, int fd)
{
	int r = loop_add_fd(c->nw->loop, &c->ev, fd, 0);

	if (r) {
		close(fd);
		conn_release(c);
	}
	return r;
}

int conn_adopt(struct net_worker *nw, int fd, struct conn **ret_conn)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	struct conn *c = conn_new(nw);
	int r;

	if (!c) {
		close(fd);
		return -ENOMEM;
	}
	if (getpeername(fd, (struct sockaddr *)&ss, &len) == 0) {
		if (ss.ss_family == AF_INET || ss.ss_family == AF_INET6)
			memcpy(&c->peer, &ss, sizeof(c->peer));
		else
			c->peer.sa.sa_family = ss.ss_family;
	}
	if (c->peer.sa.sa_family == AF_UNIX) {
		c->is_unix = true;
		c->ops = &unix_ops;
	}
	c->state = CONN_OPEN;
	c->raw_read = c->raw_write = true;
	c->can_read = c->can_write = true;
	c->is_server_side = true;
	r = conn_register(c, fd);
	if (r == 0)
		*ret_conn = c;
	return r;
}

void conn_expect_proxy(struct conn *c)
{
	c->expects_proxy = true;
	if (c->state == CONN_OPEN)
		c->state = CONN_HANDSHAKE;
	c->doing = "PROXY header";
}

const struct addr *conn_local_addr(struct conn *c)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (c->local.sa.sa_family != AF_UNSPEC || c->ev.fd < 0)
		return &c->local;
	if (getsockname(c->ev.fd, (struct sockaddr *)&ss, &len) < 0)
		return &c->local;
	if (ss.ss_family == AF_INET || ss.ss_family == AF_INET6)
		memcpy(&c->local, &ss, sizeof(c->local));
	else
		c->local.sa.sa_family = ss.ss_family;
	return &c->local;
}

void conn_shut_write(struct conn *c)
{
	if (c->state == CONN_OPEN && !c->is_broken)
		c->ops->shut_write(c);
}

void conn_idle(struct conn *c)
{
	c->ops->idle(c);
	c->since_ns = loop_now(c->nw->loop);
}

/*
 * close() with unread bytes in the receive queue sends RST, and the peer may then lose the end of
 * our answer (RFC 1122 4.2.2.13). What is there already is thrown away; a peer that keeps sending gets its RST.
 */
static void drain(struct conn *c)
{
	for (int i = 0; i < DRAIN_TIMES; i++) {
		/* MSG_TRUNC: TCP discards without copying (tcp(7)). Unix sockets do not send RST. */
		ssize_t n = recv(c->ev.fd, NULL, DRAIN_MAX, MSG_TRUNC | MSG_DONTWAIT);

		if (n < DRAIN_MAX)
			return;
	}
}

void conn_close(struct conn *c, bool reset)
{
	const struct linger hard = { .l_onoff = 1, .l_linger = 0 };

	if (!c)
		return;
	if (c->on_free)
		c->on_free(c);
	c->on_event = NULL;
	if (reset || c->closes_hard) {
		setsockopt(c->ev.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	} else {
		if (c->ops->bye && c->state == CONN_OPEN && !c->is_broken)
			c->ops->bye(c);
		if (c->raw_read && !c->is_unix && !c->is_broken && c->state != CONN_CONNECTING)
			drain(c);
	}
	c->state = CONN_CLOSED;
	loop_close_fd(c->nw->loop, &c->ev);
	conn_release(c);
}

bool conn_is_reusable(struct conn *c)
{
	char byte;
	ssize_t n;

	if (c->state != CONN_OPEN || c->peer_closed || c->is_broken || c->expects_proxy)
		return false;
	if (!c->can_read)
		return true;
	if (c->tls)
		return tls_is_reusable(c);
	do {
		n = recv(c->ev.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n >= 0 || errno != EAGAIN)
		return false;
	c->raw_read = c->can_read = false;
	return true;
}

/* --- before the transport --- */

static int finish_connect(struct conn *c)
{
	int err = 0;
	socklen_t len = sizeof(err);

	if (!c->raw_write)
		return -EAGAIN;
	/* Writable and neither error nor hang-up: connected, no need to ask (connect(2)). */
	if (!c->is_broken && !c->peer_closed)
		return 0;
	if (getsockopt(c->ev.fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		err = errno;
	/* The error may have been taken by an earlier call; a broken connection stays broken. */
	if (err == 0 && c->is_broken)
		err = ECONNRESET;
	return err ? conn_fail(c, conn_error_from_errno(err), -err) : 0;
}

static int send_proxy_header(struct conn *c)
{
	struct conn_setup *s = c->setup;

	while (s->sent < s->len) {
		struct iovec iov = { s->bytes + s->sent, s->len - s->sent };
		ssize_t n = raw_sendv(c, &iov, 1, false);

		if (n < 0)
			return (int)n;
		s->sent += (size_t)n;
		if (n == 0)
			return -EAGAIN;
	}
	mem_free(s);
	c->setup = NULL;
	return 0;
}

struct conn_tlvs {
	uint16_t len;
	char bytes[];
};

static int keep_tlvs(struct conn *c, struct str tlvs)
{
	if (!tlvs.len)
		return 0;
	c->tlvs = mem_alloc(sizeof(*c->tlvs) + tlvs.len);
	if (!c->tlvs)
		return -ENOMEM;
	c->tlvs->len = (uint16_t)tlvs.len;
	memcpy(c->tlvs->bytes, tlvs.p, tlvs.len);
	return 0;
}

int conn_proxy_tlv(const struct conn *c, uint8_t type, struct str *ret)
{
	if (!c->tlvs || !proxy_tlv_find(str_make(c->tlvs->bytes, c->tlvs->len), type, ret))
		return -ENOENT;
	return 0;
}

/*
 * The header is peeked at and then taken with its exact length, so that what follows (a TLS
 * ClientHello) stays in the socket.
 */
static int read_proxy_header(struct conn *c)
{
	char mem[PROXY_PEEK_MAX];
	struct addr src, dst;
	ssize_t n;
	int len;

	if (!c->raw_read)
		return -EAGAIN;
	do {
		n = recv(c->ev.fd, mem, sizeof(mem), MSG_PEEK | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN)
		return conn_fail(c, conn_error_from_errno(errno), -errno);
	if (n < 0) {
		c->raw_read = c->can_read = false;
		return -EAGAIN;
	}
	len = n ? proxy_header_read(str_make(mem, (size_t)n), &src, &dst) : 0;
	if (len < 0 || (len == 0 && (n == 0 || n == sizeof(mem) || c->peer_closed)))
		return conn_fail(c, CONN_ERR_PROXY_HEADER, -EBADMSG);
	if (len == 0) {
		/* More bytes are a new edge. */
		c->raw_read = c->can_read = false;
		return -EAGAIN;
	}
	if (recv(c->ev.fd, mem, (size_t)len, MSG_DONTWAIT) != len)
		return conn_fail(c, CONN_ERR_SYSTEM, -EIO);
	if (n == len && !c->peer_closed && !c->is_broken)
		c->raw_read = c->can_read = false;
	if (src.sa.sa_family != AF_UNSPEC) {
		c->peer = src;
		c->local = dst;
	}
	if (keep_tlvs(c, proxy_header_tlvs(str_make(mem, (size_t)len))))
		return conn_fail(c, CONN_ERR_SYSTEM, -ENOMEM);
	c->expects_proxy = false;
	return 0;
}

int raw_advance(struct conn *c)
{
	int r = 0;

	if (c->state == CONN_CONNECTING) {
		r = finish_connect(c);
		if (r)
			return r;
		c->state = CONN_HANDSHAKE;
	}
	if (c->setup)
		r = send_proxy_header(c);
	if (r == 0 && c->expects_proxy)
		r = read_proxy_header(c);
	return r;
}
