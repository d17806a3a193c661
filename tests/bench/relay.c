/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The yardstick: the least a proxy can do. `relay LISTENPORT TARGETPORT` accepts on 127.0.0.1, opens one
 * connection to the target per client, and copies what arrives on one to the other: no parsing, one
 * recv and one send per message, edge-triggered epoll, one thread. What the kernel does not take at
 * once is kept and sent when it can be; meanwhile the other side is not read.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUF 16384

struct end {
	int fd;
	bool can_read, can_write, read_closed, is_dead;
	struct pair *pair;
	unsigned len, off; /* bytes read here that the other end has not taken */
	char buf[BUF];
};

struct pair {
	struct end a, b;
	struct pair *next_dead;
};

static int ep, target_port;
static struct pair *dead; /* freed after the batch */

static void pair_close(struct pair *p)
{
	if (p->a.is_dead)
		return;
	p->a.is_dead = p->b.is_dead = true;
	close(p->a.fd);
	close(p->b.fd);
	p->next_dead = dead;
	dead = p;
}

/* Moves what there is from `s` to `d`. */
static void pump(struct end *s, struct end *d)
{
	for (;;) {
		ssize_t n;

		if (s->len == 0) {
			if (!s->can_read || s->read_closed)
				return;
			n = recv(s->fd, s->buf, BUF, 0);
			if (n == 0) {
				s->read_closed = true;
				shutdown(d->fd, SHUT_WR);
				if (d->read_closed)
					pair_close(s->pair);
				return;
			}
			if (n < 0) {
				s->can_read = false;
				if (errno != EAGAIN)
					pair_close(s->pair);
				return;
			}
			/* A short read: drained, an edge will tell of more. */
			s->can_read = n == BUF;
			s->len = (unsigned)n;
			s->off = 0;
		}
		if (!d->can_write)
			return;
		n = send(d->fd, s->buf + s->off, s->len, MSG_NOSIGNAL);
		if (n < 0) {
			d->can_write = false;
			if (errno != EAGAIN)
				pair_close(s->pair);
			return;
		}
		s->off += (unsigned)n;
		s->len -= (unsigned)n;
		if (s->len)
			d->can_write = false;
	}
}

static void watch(struct end *e)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
				  .data.ptr = e };

	epoll_ctl(ep, EPOLL_CTL_ADD, e->fd, &ev);
}

static void accept_all(int lfd)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)target_port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd, one = 1;

	while ((fd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		struct pair *p = calloc(1, sizeof(*p));
		int s = p ? socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0) : -1;

		if (s < 0 ||
		    (connect(s, (struct sockaddr *)&to, sizeof(to)) && errno != EINPROGRESS)) {
			if (s >= 0)
				close(s);
			close(fd);
			free(p);
			continue;
		}
		setsockopt(s, SOL_TCP, TCP_NODELAY, &one, sizeof(one));
		setsockopt(fd, SOL_TCP, TCP_NODELAY, &one, sizeof(one));
		p->a.fd = fd;
		p->b.fd = s;
		p->a.pair = p->b.pair = p;
		p->a.can_read = p->a.can_write = true;
		watch(&p->a);
		watch(&p->b);
		pump(&p->a, &p->b);
	}
}

static void handle(struct end *e, uint32_t events)
{
	struct pair *p = e->pair;
	struct end *o = e == &p->a ? &p->b : &p->a;

	if (e->is_dead)
		return;
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		e->can_read = true;
	if (events & EPOLLOUT)
		e->can_write = true;
	if (events & EPOLLERR) {
		pair_close(p);
		return;
	}
	if (e->can_read)
		pump(e, o);
	if (!p->a.is_dead && e->can_write && (o->len || o->can_read))
		pump(o, e);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL }, batch[256];
	int lfd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

	if (argc != 3) {
		fprintf(stderr, "usage: relay LISTENPORT TARGETPORT\n");
		return 2;
	}
	at.sin_port = htons((uint16_t)atoi(argv[1]));
	target_port = atoi(argv[2]);
	setsockopt(lfd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(lfd, (struct sockaddr *)&at, sizeof(at)) || listen(lfd, 4096)) {
		perror("relay: listen");
		return 1;
	}
	ep = epoll_create1(0);
	epoll_ctl(ep, EPOLL_CTL_ADD, lfd, &ev);
	for (;;) {
		int n = epoll_wait(ep, batch, 256, -1);

		for (int i = 0; i < n; i++) {
			if (batch[i].data.ptr)
				handle(batch[i].data.ptr, batch[i].events);
			else
				accept_all(lfd);
		}
		while (dead) {
			struct pair *p = dead;

			dead = p->next_dead;
			free(p);
		}
	}
}
