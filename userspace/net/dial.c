/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Outgoing connections: socket, options, connect, registration. Never blocks. Worker's thread (and the
 * control thread, for health checks, with a net_worker of its own).
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <unistd.h>

#include "net/net_priv.h"

static int set_on(int fd, int level, int opt)
{
	const int on = 1;

	return setsockopt(fd, level, opt, &on, sizeof(on)) < 0 ? -errno : 0;
}

static int set_transparent(int fd, int family)
{
	return family == AF_INET6 ? set_on(fd, SOL_IPV6, IPV6_TRANSPARENT)
				  : set_on(fd, SOL_IP, IP_TRANSPARENT);
}

/* The source address, port left to connect() so that one port serves many destinations (ip(7)). */
static int bind_source(int fd, const struct dial_opts *o)
{
	int r = 0;

	if (o->transparent)
		r = set_transparent(fd, o->from->sa.sa_family);
	if (r == 0 && addr_port(o->from) == 0)
		r = set_on(fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT);
	if (r == 0 && addr_port(o->from) != 0)
		r = set_on(fd, SOL_SOCKET, SO_REUSEADDR);
	if (r == 0 && bind(fd, &o->from->sa, addr_len(o->from)) < 0)
		r = -errno;
	return r;
}

static int set_mark(int fd, const struct dial_opts *o)
{
	const int mss = o->mss;

	if (o->mark && setsockopt(fd, SOL_SOCKET, SO_MARK, &o->mark, sizeof(o->mark)) < 0)
		return -errno;
	if (o->mss && setsockopt(fd, SOL_TCP, TCP_MAXSEG, &mss, sizeof(mss)) < 0)
		return -errno;
	return 0;
}

static int set_tcp_options(int fd, const struct dial_opts *o)
{
	/* Always: bytes are gathered above, waiting here only adds delay. */
	int r = set_on(fd, SOL_TCP, TCP_NODELAY);

	if (r == 0)
		r = set_mark(fd, o);
	if (r == 0 && o->keepalive)
		r = tcp_set_keepalive(fd, o->ka);
	if (r == 0)
		r = tcp_set_buffers(fd, o->rcvbuf, o->sndbuf);
	if (r == 0 && o->sock)
		r = tcp_set_socket(fd, o->sock);
	if (r == 0 && o->fastopen)
		r = set_on(fd, SOL_TCP, TCP_FASTOPEN_CONNECT);
	if (r == 0 && o->interface &&
	    setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, o->interface,
		       (socklen_t)strlen(o->interface) + 1) < 0)
		r = -errno;
	if (r == 0 && o->from && o->from->sa.sa_family != AF_UNSPEC)
		r = bind_source(fd, o);
	return r;
}

/* A path that begins with '@' is an abstract name. */
static int unix_address(const char *path, struct sockaddr_un *ret, socklen_t *ret_len)
{
	size_t len = strlen(path);

	if (len == 0 || len >= sizeof(ret->sun_path))
		return -ENAMETOOLONG;
	memset(ret, 0, sizeof(*ret));
	ret->sun_family = AF_UNIX;
	memcpy(ret->sun_path, path, len);
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
	if (path[0] == '@') {
		ret->sun_path[0] = '\0';
		(*ret_len)--;
	}
	return 0;
}

/* A socket that is connecting (1) or connected (0), or -errno. */
static int open_socket(const struct dial_opts *o, int *ret_fd)
{
	struct sockaddr_un un;
	const struct sockaddr *sa;
	socklen_t len;
	int fd, r;

	if (o->unix_path) {
		r = unix_address(o->unix_path, &un, &len);
		if (r)
			return r;
		sa = (const struct sockaddr *)&un;
	} else {
		sa = &o->to->sa;
		len = addr_len(o->to);
	}
	fd = netns_socket(o->netns, sa->sa_family);
	if (fd < 0)
		return fd;
	r = o->unix_path ? 0 : set_tcp_options(fd, o);
	if (r == 0 && connect(fd, sa, len) < 0)
		r = errno == EINPROGRESS ? 1 : -errno;
	if (r < 0) {
		close(fd);
		return r;
	}
	*ret_fd = fd;
	return r;
}

static int attach_layers(struct conn *c, const struct dial_opts *o)
{
	if (o->proxy_header.len) {
		c->setup = mem_alloc(sizeof(*c->setup) + o->proxy_header.len);
		if (!c->setup)
			return -ENOMEM;
		c->setup->len = o->proxy_header.len;
		c->setup->sent = 0;
		memcpy(c->setup->bytes, o->proxy_header.p, o->proxy_header.len);
	}
	return o->tls ? tls_start_client(c, o->tls, o->sni, o->alpn) : 0;
}

int conn_dial(struct net_worker *nw, const struct dial_opts *o, struct conn **ret_conn)
{
	struct conn *c = conn_new(nw);
	int fd = -1, r;

	if (!c)
		return -ENOMEM;
	if (o->unix_path) {
		c->is_unix = true;
		c->ops = &unix_ops;
		c->peer.sa.sa_family = AF_UNIX;
	} else {
		c->peer = *o->to;
	}
	c->doing = "connecting";
	r = attach_layers(c, o);
	if (r == 0)
		r = open_socket(o, &fd);
	if (r < 0) {
		/* No descriptor yet: nothing but memory to give back. */
		conn_close(c, false);
		return r;
	}
	c->state = CONN_CONNECTING;
	if (r == 0) {
		/* With fast open nothing was sent yet, and nobody asked (tcp(7), TCP_FASTOPEN_CONNECT). */
		c->is_early = o->fastopen;
		c->raw_write = c->can_write = true;
		c->state = c->setup || c->tls ? CONN_HANDSHAKE : CONN_OPEN;
	}
	/* After connect(): an unconnected socket reports a hang-up at once. */
	r = conn_register(c, fd);
	if (r == 0)
		*ret_conn = c;
	return r;
}
