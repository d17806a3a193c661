/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Accepting, on the worker. The listening descriptor is level-triggered: what is left in the
 * backlog is reported again, and a paused listener is simply not registered. The socket belongs to
 * the control thread's listen_socket, connections go to the owner.
 */
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "net/net_priv.h"

#define DEFAULT_BUDGET 64
#define RETRY_NS       100000000ull /* after a shortage of descriptors or memory */

/* A shortage: the connection waits in the backlog, and the loop must not spin over it. */
static void wait_and_retry(struct listener *l)
{
	l->n_errors++;
	loop_del_fd(l->nw->loop, &l->ev);
	timer_start(l->nw->loop, &l->retry, RETRY_NS);
}

static void set_peer(struct conn *c, const struct sockaddr_storage *ss)
{
	if (ss->ss_family == AF_INET || ss->ss_family == AF_INET6)
		memcpy(&c->peer, ss, sizeof(c->peer));
	else
		c->peer.sa.sa_family = AF_UNIX;
}

/* A socket bound to one address needs no question; a wildcard, redirected or inherited one does. */
static void set_local(struct conn *c, const struct conf_bind *b)
{
	if (c->is_unix)
		c->local.sa.sa_family = AF_UNIX;
	else if (b && b->ep.kind == ENDPOINT_IP && !addr_is_any(&b->ep.addr) && !b->transparent)
		c->local = b->ep.addr;
	else
		conn_local_addr(c);
}

/* `fd` is consumed. 0, or -errno: out of memory or of epoll watches. */
static int hand_over(struct listener *l, int fd, const struct sockaddr_storage *ss)
{
	struct conn *c = conn_new(l->nw);
	struct tls_server *srv;
	int r;

	if (!c) {
		close(fd);
		return -ENOMEM;
	}
	set_peer(c, ss);
	c->is_server_side = true;
	c->bind = l->bind;
	c->is_unix = c->peer.sa.sa_family == AF_UNIX;
	if (c->is_unix)
		c->ops = &unix_ops;
	c->state = CONN_OPEN;
	c->doing = "accepted";
	c->raw_read = c->raw_write = true;
	c->can_read = c->can_write = true;
	r = conn_register(c, fd);
	if (r)
		return r;
	set_local(c, l->bind);
	srv = l->tls ? atomic_load_explicit(l->tls, memory_order_acquire) : NULL;
	if (srv) {
		r = tls_start_server(c, srv);
		if (r) {
			conn_close(c, true);
			return r;
		}
	}
	if (l->bind && l->bind->accept_proxy)
		conn_expect_proxy(c);
	l->on_accept(l, c);
	return 0;
}

/* 0: accepted one; -EAGAIN: none; -ECONNABORTED: one that had gone; other: shortage. */
static int accept_one(struct listener *l)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	int fd;

	ss.ss_family = AF_UNSPEC;
	fd = accept4(l->ev.fd, (struct sockaddr *)&ss, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0)
		return hand_over(l, fd, &ss);
	switch (errno) {
	case EAGAIN:
		return -EAGAIN;
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
		return -errno;
	default:
		/* accept(2): pending network errors of the new socket are reported here; try the next. */
		return errno == EBADF || errno == EINVAL || errno == ENOTSOCK ? -errno
									      : -ECONNABORTED;
	}
}

/*
 * Up to `burst` accepts. It doubles while the backlog outlasts it and falls back to what was there: with
 * one connection at a time, no call is spent on hearing EAGAIN, and a rush is taken in batches.
 */
static void listener_on_event(struct ev_fd *ev, uint32_t events)
{
	struct listener *l = container_of(ev, struct listener, ev);
	unsigned n = 0;
	int r = 0;

	(void)events;
	while (n < l->burst) {
		if (l->may_accept && !l->may_accept(l)) {
			listener_pause(l);
			return;
		}
		r = accept_one(l);
		if (r && r != -ECONNABORTED)
			break;
		n++;
		/* The owner may have paused or stopped it in on_accept. */
		if (l->ev.fd < 0)
			return;
	}
	if (r && r != -EAGAIN && r != -ECONNABORTED) {
		if (l->ev.fd >= 0)
			wait_and_retry(l);
		return;
	}
	if (r == -EAGAIN)
		l->burst = n ? n : 1;
	else if (l->burst < l->budget)
		l->burst = l->burst * 2 < l->budget ? l->burst * 2 : l->budget;
}

static int listener_register(struct listener *l)
{
	return loop_add_fd(l->nw->loop, &l->ev, l->fd, LOOP_LEVEL);
}

static void listener_on_retry(struct timer *t)
{
	struct listener *l = container_of(t, struct listener, retry);

	if (!l->is_paused && listener_register(l))
		timer_start(l->nw->loop, &l->retry, RETRY_NS);
}

int listener_start(struct listener *l, int fd)
{
	l->fd = fd;
	l->ev.fd = -1;
	l->ev.on_event = listener_on_event;
	l->is_paused = false;
	l->burst = 1;
	if (l->budget == 0)
		l->budget = DEFAULT_BUDGET;
	timer_init(&l->retry, listener_on_retry);
	return listener_register(l);
}

void listener_stop(struct listener *l)
{
	timer_stop(l->nw->loop, &l->retry);
	loop_del_fd(l->nw->loop, &l->ev);
	l->is_paused = true;
}

void listener_pause(struct listener *l)
{
	listener_stop(l);
}

void listener_resume(struct listener *l)
{
	if (!l->is_paused)
		return;
	l->is_paused = false;
	if (listener_register(l))
		timer_start(l->nw->loop, &l->retry, RETRY_NS);
}
