/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transports. A `struct conn` is a TCP, Unix or TLS connection behind one vtable: nobody above asks
 * "is it TLS?". A connection belongs to the worker that accepted or dialled it, for ever.
 *
 * Readiness is edge-triggered: conn->can_read / can_write say what the next recv/sendv may find.
 * They are set by events and cleared by the operations themselves when the kernel said "would block"
 * or gave less than asked (a short read means: drained, so no second recv is needed).
 */
#ifndef NET_NET_H
#define NET_NET_H

#include <openssl/types.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/addr.h"
#include "base/err.h"
#include "base/list.h"
#include "base/mem.h"
#include "conf/conf.h"
#include "ev/loop.h"

/* --- connections ------------------------------------------------------------------------------- */

struct conn;
struct net_worker;

enum conn_state {
	CONN_CONNECTING, /* TCP connect in progress */
	CONN_HANDSHAKE, /* TLS or PROXY header */
	CONN_OPEN,
	CONN_CLOSED,
};
const char *conn_state_name(enum conn_state s);

/* Why a connection failed; for logs, fc_err and retry decisions. */
#define CONN_ERRORS(X)                                                                           \
	X(NONE, "no error")                                                                      \
	X(REFUSED, "connection refused")                                                         \
	X(RESET, "connection reset") X(UNREACHABLE, "no route to the peer") X(TIMEOUT,           \
									      "timed out")       \
		X(NO_PORTS, "out of local ports or descriptors") X(SYSTEM, "system error")       \
			X(TLS_PROTOCOL, "TLS: peer does not speak TLS or broke the protocol") X( \
				TLS_NO_CERT, "TLS: no certificate for the name asked for")       \
				X(TLS_VERIFY, "TLS: the peer's certificate was refused") X(      \
					TLS_ALPN, "TLS: no common application protocol")         \
					X(TLS_CLOSED, "TLS: closed during the handshake") X(     \
						TLS_OTHER, "TLS: handshake failed")              \
						X(PROXY_HEADER, "malformed PROXY protocol header")

enum conn_error {
#define X(name, text) CONN_ERR_##name,
	CONN_ERRORS(X)
#undef X
};
const char *conn_error_text(enum conn_error e);
/* What an errno (positive or negative) of connect, recv or send means; also for what conn_dial() returns. */
enum conn_error conn_error_from_errno(int err);

struct conn_ops {
	const char *name; /* "tcp", "unix", "tls" */
	/* > 0 bytes; 0 end of stream (clean); -EAGAIN; other -errno: broken (conn->error says more). */
	ssize_t (*recv)(struct conn *c, void *mem, size_t size);
	/* Bytes taken (>= 0, may be short); -EAGAIN; other -errno: broken. `more`: more will follow at once (MSG_MORE). */
	ssize_t (*sendv)(struct conn *c, const struct iovec *iov, int n, bool more);
	/* Drives CONNECTING and HANDSHAKE: 0 open, -EAGAIN, other -errno: failed. */
	int (*advance)(struct conn *c);
	/* Half-close: FIN, close_notify. Best effort. */
	void (*shut_write)(struct conn *c);
	/* Gives memory that an idle connection does not need back (TLS buffers). */
	void (*idle)(struct conn *c);
	/* Frees the transport's part; not the conn. */
	void (*free)(struct conn *c);
	/* Last words before an orderly close (close_notify); NULL: none. */
	void (*bye)(struct conn *c);
};

struct conn {
	struct ev_fd ev;
	const struct conn_ops *ops;
	struct net_worker *nw;
	/* Set by the owner. Called for every event after can_read/can_write were updated; in CONNECTING and
	 * HANDSHAKE too, where the owner calls conn_advance(). The owner may conn_close() in it. */
	void (*on_event)(struct conn *c);
	void *owner;
	const char *
		doing; /* what it is about, for people: "TLS handshake", "idle", "reading the request" */
	uint8_t state; /* enum conn_state */
	uint8_t error; /* enum conn_error */
	bool is_server_side; /* accepted by us */
	bool can_read, can_write;
	bool peer_closed; /* RDHUP or HUP seen: recv will find the end */
	bool is_broken; /* reset or error seen */
	uint16_t uses; /* requests that went over it */
	void *tls; /* transport's own */
	struct addr peer, local; /* as the rules see them: PROXY header and set-src change them */
	const struct conf_bind
		*bind; /* accepted: by which line, of the snapshot that accepted it */
	struct list link; /* owner's lists (idle pools) */
	uint64_t since_ns; /* loop clock: opened, or idle since */
	/* Private to net/. The socket's own readiness: can_read and can_write add what TLS holds. */
	bool raw_read, raw_write;
	bool is_unix;
	bool expects_proxy; /* a PROXY header has to come first */
	struct conn_setup *setup; /* PROXY header still to be sent */
};

/* Per-worker state of this module. */
struct net_worker {
	struct loop *loop;
	struct pool conns;
	unsigned index; /* worker number */
	uint64_t n_open;
	struct tls_io *tls_io; /* buffers of TLS, made when first needed */
};
void net_worker_init(struct net_worker *nw, struct loop *l, unsigned index);
void net_worker_fini(struct net_worker *nw);

/* Inline front doors: the flags are kept here. */
static inline ssize_t conn_recv(struct conn *c, void *mem, size_t size)
{
	return c->ops->recv(c, mem, size);
}
static inline ssize_t conn_sendv(struct conn *c, const struct iovec *iov, int n, bool more)
{
	return c->ops->sendv(c, iov, n, more);
}
static inline int conn_advance(struct conn *c)
{
	return c->state == CONN_OPEN ? 0 : c->ops->advance(c);
}
/*
 * Wraps a connected stream socket, which becomes the connection's (on failure too: it is closed). State OPEN,
 * clear. For accepted descriptors that no listener made, and for tests.
 */
HG_WUR int conn_adopt(struct net_worker *nw, int fd, struct conn **ret_conn);
/* A PROXY header must come before anything else: OPEN becomes HANDSHAKE. Before the first recv only. */
void conn_expect_proxy(struct conn *c);
/* `local`, asked from the kernel when not known yet (dialled connections: one system call, once). */
const struct addr *conn_local_addr(struct conn *c);
void conn_shut_write(struct conn *c);
void conn_idle(struct conn *c);
/* Closes and frees; never calls on_event again. `reset`: RST instead of FIN (linger 0). NULL is ignored. */
void conn_close(struct conn *c, bool reset);
/* Anything unexpected on an idle connection (data, end, error)? One MSG_PEEK, only when an event said so. */
bool conn_is_reusable(struct conn *c);

/* Outgoing. `tls` NULL: clear. The connection is returned CONNECTING (or further); on_event follows. */
struct dial_opts {
	const struct addr *to; /* or */
	const char *unix_path;
	const struct addr *from; /* family 0 or NULL: kernel's choice */
	bool transparent; /* IP_TRANSPARENT for `from` */
	const char *interface;
	bool nodelay, keepalive, fastopen;
	struct tls_client *tls;
	struct str sni; /* empty: none */
	/* PROXY protocol header to send first, whole (from proxy_header_write()); copied. */
	struct str proxy_header;
};
HG_WUR int conn_dial(struct net_worker *nw, const struct dial_opts *o, struct conn **ret_conn);

/* Facts about TLS for rules and logs; -ENOENT when it is not TLS or not known. Text is in `arena` or constant. */

bool conn_is_tls(const struct conn *c);
HG_WUR int conn_tls_field(const struct conn *c, enum subject_tls_field f, struct arena *arena,
			  struct sample *ret);
struct str conn_alpn(const struct conn *c); /* empty: none */
struct str conn_sni(const struct conn *c);

/* --- listeners --------------------------------------------------------------------------------- */

/*
 * A listening address. Opened by the control thread (one socket per worker with SO_REUSEPORT, or one
 * shared for Unix and inherited descriptors), accepted from by the workers. Survives reloads: a
 * new configuration that names the same address takes the sockets over (listen_set_find).
 */
struct listen_socket {
	struct list link;
	struct endpoint ep;
	char *text; /* "0.0.0.0:80" */
	char *interface;
	bool transparent, v6only;
	unsigned n_fds;
	int *fds; /* one per worker; shared ones repeat the same fd */
	bool is_shared;
	unsigned users; /* binds of live configurations, control thread */
	uint64_t path_dev, path_ino; /* the Unix socket we made: only that one is unlinked */
};

/*
 * 0 or -errno with `err` ("cannot bind to :80: address already in use"). `old` (may be NULL): sockets that may
 * be taken over; one of them is returned with one user more, and stays on that list. A new one has one user and is
 * on no list. Control thread.
 */
HG_WUR int listen_open(const struct conf_bind *b, unsigned n_workers, struct list *old,
		       struct listen_socket **ret_ls, struct err *err);
/* One user less. The last one closes all sockets, unlinks a Unix path it made, takes it off its list. NULL is ignored. */
/*
 * A port that anybody listens on is an error, even when SO_REUSEPORT would let us in; unless an older
 * process is being replaced (-sf, -st, -x). Control thread, before listen_open().
 */
void listen_share_with_others(bool on);
void listen_close(struct listen_socket *ls);
/*
 * Closes the sockets at once, whoever still names the object; nobody takes it over any more. Control
 * thread, when no worker listens on it.
 */
void listen_shut(struct listen_socket *ls);

/* Worker's side of one bind. */
struct listener {
	struct ev_fd ev;
	struct net_worker *nw;
	const struct conf_bind *bind;
	void *owner;
	/* A new connection in state HANDSHAKE or OPEN; the callee owns it. */
	void (*on_accept)(struct listener *l, struct conn *c);
	/* Asked before each accept(): false = leave it in the backlog and pause (listener_resume() later). */
	bool (*may_accept)(struct listener *l);
	struct tls_server *tls; /* NULL: clear */
	bool is_paused;
	unsigned budget; /* accepts per event, tune.maxaccept */
	struct timer retry; /* descriptor or memory shortage: accepting resumes by itself */
	uint64_t n_errors;
	unsigned burst; /* private: accepts tried per event, grows under load */
	int fd; /* the listening socket, also while ev is not registered */
};
/*
 * The caller zeroes the listener and sets nw, bind, owner, on_accept, may_accept (NULL: always), tls and budget
 * (0: 64) before. The connection comes optimistic (can_read, can_write): advance or read at once.
 */
HG_WUR int listener_start(struct listener *l, int fd);
void listener_stop(struct listener *l); /* does not close the socket */
void listener_pause(struct listener *l);
void listener_resume(struct listener *l);

/* --- TLS --------------------------------------------------------------------------------------- */

/*
 * Certificates and contexts of one snapshot. Built by the control thread, read by workers, freed with
 * the snapshot. Files already loaded by `previous` with the same identity (path, mtime, size) are shared.
 */
struct cert_store;
HG_WUR int cert_store_new(struct cert_store *previous, struct cert_store **ret_store,
			  struct err *err);
void cert_store_free(struct cert_store *s); /* with its tls_servers and tls_clients */
/* Where warnings (expired certificate) go while it is built; default: log_msg(). */
void cert_store_on_warning(struct cert_store *s, void (*warn)(void *ctx, const char *text),
			   void *ctx);
struct tls_server; /* what a `bind … ssl` line needs: contexts by name, default, ALPN */
HG_WUR int tls_server_new(struct cert_store *s, const struct conf_bind *b,
			  const struct conf_global *g, struct tls_server **ret_tls,
			  struct err *err);
struct tls_client; /* what a `server … ssl` line needs; sessions are cached per worker */
HG_WUR int tls_client_new(struct cert_store *s, const struct conf_server *srv,
			  const struct conf_global *g, struct tls_client **ret_tls,
			  struct err *err);
void net_tls_global_init(void); /* once, before threads */

/* --- PROXY protocol ---------------------------------------------------------------------------- */

/*
 * Reads a v1 or v2 header at the start of `in`. > 0: its length, addresses in *ret_src and *ret_dst (family
 * 0 for LOCAL/UNKNOWN); 0: incomplete; -EBADMSG.
 */
HG_WUR int proxy_header_read(struct str in, struct addr *ret_src, struct addr *ret_dst);
/* Writes version 1 or 2 into out (at least 108 bytes); returns the length. */
size_t proxy_header_write(unsigned version, const struct addr *src, const struct addr *dst,
			  char *out);

#endif
