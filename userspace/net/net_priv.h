/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of net/ share: the plain socket below TLS ("raw"), and the hooks between
 * connections, TLS and certificates. Included by nobody else.
 */
#ifndef NET_NET_PRIV_H
#define NET_NET_PRIV_H

#include "net/net.h"

/* A PROXY header on its way out. */
struct conn_setup {
	size_t len, sent;
	char bytes[];
};

/* --- conn.c --- */

/* From the worker's pool: zeroed, fd not registered, state CLOSED. NULL: out of memory. */
struct conn *conn_new(struct net_worker *nw);
/* Registers `fd`; on failure the descriptor and the conn are gone. */
HG_WUR int conn_register(struct conn *c, int fd);
/* Remembers the first reason; returns `err` (negative). */
int conn_fail(struct conn *c, enum conn_error why, int err);
/* CONNECTING and the PROXY headers: 0 done, -EAGAIN, other -errno. State HANDSHAKE afterwards. */
HG_WUR int raw_advance(struct conn *c);

/* --- tcp.c: the socket itself; keep raw_read and raw_write --- */

extern const struct conn_ops tcp_ops, unix_ops;
ssize_t raw_recv(struct conn *c, void *mem, size_t size);
ssize_t raw_sendv(struct conn *c, const struct iovec *iov, int n, bool more);

/* --- tls.c --- */

extern const struct conn_ops tls_ops;
/* Turns a clear connection into a TLS one; the handshake is driven by conn_advance(). 0 or -ENOMEM. */
HG_WUR int tls_start_server(struct conn *c, struct tls_server *srv);
HG_WUR int tls_start_client(struct conn *c, struct tls_client *cli, struct str sni,
			    struct str alpn);
/* The socket takes bytes again: what TLS still holds goes first. */
void tls_on_writable(struct conn *c);
bool tls_is_reusable(struct conn *c);
void tls_io_free(struct net_worker *nw);

/* Text into a NUL-terminated buffer, cut to fit; returns the length. */
size_t str_to_cstr(struct str s, char *out, size_t size);

/* tcp.c: buffers of the kernel, then TCP keep-alive with its times. 0 or -errno. */
HG_WUR int tcp_set_buffers(int fd, uint32_t rcvbuf, uint32_t sndbuf);
HG_WUR int tcp_set_keepalive(int fd, const struct conf_keepalive *ka);

/* --- netns.c: a stream socket, in the namespace of a descriptor (NULL: the process's); -errno --- */

HG_WUR int netns_socket(const int *netns, int family);
/* This thread, until netns_leave(). 0 or -errno. */
HG_WUR int netns_enter(int fd);
void netns_leave(void);
/* tcp-ut and cc. 0 or -errno. */
HG_WUR int tcp_set_socket(int fd, const struct conf_socket *s);

#endif
