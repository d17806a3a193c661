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
#include <stdio.h>
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
	/* Told by conn_close() before it is gone, whoever calls it; NULL: nobody. */
	void (*on_free)(struct conn *c);
	void *owner;
	const char *
		doing; /* what it is about, for people: "TLS handshake", "idle", "reading the request" */
	uint8_t state; /* enum conn_state */
	uint8_t error; /* enum conn_error */
	bool is_server_side; /* accepted by us */
	bool can_read, can_write;
	bool peer_closed; /* RDHUP or HUP seen: recv will find the end */
	bool is_broken; /* reset or error seen */
	bool closes_hard; /* option nolinger: every close is a reset */
	uint16_t uses; /* requests that went over it */
	void *tls; /* transport's own */
	struct addr peer, local; /* as the rules see them: PROXY header and set-src change them */
	const struct conf_bind
		*bind; /* accepted: by which line, of the snapshot that accepted it */
	struct list link; /* owner's lists (idle pools) */
	/* What it was opened with beyond an address, as one number (0: nothing): who may use it after us. The
	 * chain is the pool's, of those that are idle and have one. */
	uint64_t pool_key;
	struct conn *key_next, **key_prev;
	uint64_t since_ns; /* loop clock: opened, or idle since */
	/* Private to net/. The socket's own readiness: can_read and can_write add what TLS holds. */
	bool raw_read, raw_write;
	bool is_unix;
	bool is_early; /* dialled with fast open: the first bytes are what asks for the connection */
	bool expects_proxy; /* a PROXY header has to come first */
	struct conn_setup *setup; /* PROXY header still to be sent */
	struct conn_tlvs *tlvs; /* of the PROXY header that was received; NULL: none */
};

#define NET_KEY_BUCKETS 1024 /* a power of two */

/* Per-worker state of this module. */
struct net_worker {
	struct loop *loop;
	struct pool conns;
	unsigned index; /* worker number */
	uint64_t n_open;
	struct tls_io *tls_io; /* buffers of TLS, made when first needed */
	/* TLS connections of both kinds, on all workers; NULL: not counted. on_tls_end: one is gone. */
	_Atomic uint32_t *n_tls;
	void (*on_tls_end)(struct net_worker *nw);
	struct conn *by_key[NET_KEY_BUCKETS]; /* the pool's: idle ones with a pool_key, latest first */
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
	uint32_t mark; /* SO_MARK; 0: none */
	uint16_t mss; /* TCP segments of at most so many bytes; 0: as the path allows */
	bool nodelay, keepalive, fastopen;
	const struct conf_socket *sock; /* of the server line; NULL: none */
	const int *netns; /* descriptor of the network namespace; NULL: the process's */
	const struct conf_keepalive *ka; /* with keepalive; NULL: as the system says */
	uint32_t rcvbuf, sndbuf; /* bytes; 0: the kernel's choice */
	struct tls_client *tls;
	struct str sni; /* empty: none */
	struct str alpn; /* instead of what the server line says, as in RFC 7301 3.1; empty: that */
	/* PROXY protocol header to send first, whole (from proxy_header_write()); copied. */
	struct str proxy_header;
};
/* A network namespace by its name in /run/netns, for dial_opts: the caller closes it. Control. */
HG_WUR int netns_open(const char *name, int *ret_fd, struct err *err);
/* Does the kernel have a congestion control of that name, for us? 0, or -errno with those it has. Control. */
HG_WUR int net_check_congestion(const char *name, struct err *err);
HG_WUR int conn_dial(struct net_worker *nw, const struct dial_opts *o, struct conn **ret_conn);

/* What the kernel measured (tcp(7), TCP_INFO), times in us. -ENOENT: not TCP, or closed. A system call. */
HG_WUR int conn_tcp_fact(const struct conn *c, enum subject_tcp_fact f, int64_t *ret);

/* Facts about TLS for rules and logs; -ENOENT when it is not TLS or not known. Text is in `arena` or constant. */

bool conn_is_tls(const struct conn *c);
HG_WUR int conn_tls_field(const struct conn *c, enum subject_tls_field f, struct arena *arena,
			  struct sample *ret);
struct str conn_alpn(const struct conn *c); /* empty: none */
struct str conn_sni(const struct conn *c);
/* A field of the PROXY header, with those inside PP2_TYPE_SSL. In the connection's memory; -ENOENT. */
HG_WUR int conn_proxy_tlv(const struct conn *c, uint8_t type, struct str *ret);

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
	char *interface, *netns; /* NULL: any; the process's */
	bool transparent, v6only;
	unsigned n_fds;
	int *fds; /* one per worker; shared ones repeat the same fd */
	bool is_shared;
	bool is_received; /* of another process, not claimed yet: one of the users */
	_Atomic uint32_t n_conns; /* accepted and open, all workers: `bind … maxconn` */
	unsigned users; /* binds of live configurations, control thread */
	uint64_t path_dev, path_ino; /* the Unix socket we made: only that one is unlinked */
	/* Which worker gets a connection, control's business: a new socket may be in a group that has a choice already. */
	enum { LISTEN_STEERING_UNKNOWN, LISTEN_UNSTEERED, LISTEN_STEERED } steering;
	int steer_map; /* array that `fds` are being put into, -1: none, or all are in */
	unsigned n_steered; /* in it */
};
void listen_end_steering(struct listen_socket *ls); /* closes steer_map */

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

/*
 * listen_pass.c: binary upgrade, control thread. The old process describes each socket in a line and sends its
 * listen_n_own() descriptors; the new one makes the same of both: `fds` are taken on success, the result has one
 * user of its own (is_received) until the new process runs (keep: also removes Unix paths at the end) or
 * gives up (drop). The old one then leaves the paths alone.
 */
unsigned listen_n_own(const struct listen_socket *ls);
void listen_describe(const struct listen_socket *ls, FILE *out);
HG_WUR int listen_receive(struct str line, const int *fds, unsigned n_given, unsigned n_workers,
			  struct listen_socket **ret_ls, struct err *err);
void listen_keep_received(struct list *sockets);
void listen_drop_received(struct listen_socket *ls);
void listen_give_up_paths(struct list *sockets);

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
	/* Where the bind's TLS stands, which control may replace; NULL, and NULL in it: clear. */
	struct tls_server *_Atomic const *tls;
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
/*
 * What the configuration says about where certificates are, and all that stand in a crt-store. `conf` lives as long as
 * the store. The message names the line where there is one.
 */
HG_WUR int cert_store_configure(struct cert_store *s, const struct conf *conf, struct err *err);
void cert_store_free(struct cert_store *s); /* with its tls_servers and tls_clients */
/* Where warnings (expired certificate) go while it is built; default: log_msg(). */
void cert_store_on_warning(struct cert_store *s, void (*warn)(void *ctx, const char *text),
			   void *ctx);
/* From now on disk is not looked at any more (certificates at run time, below). */
void cert_store_freeze(struct cert_store *s);
struct tls_server; /* what a `bind … ssl` line needs: contexts by name, default, ALPN */
HG_WUR int tls_server_new(struct cert_store *s, const struct conf_bind *b,
			  const struct conf_global *g, struct tls_server **ret_tls,
			  struct err *err);
struct tls_client; /* what a `server … ssl` line needs; sessions are cached per worker */
HG_WUR int tls_client_new(struct cert_store *s, const struct conf_server *srv,
			  const struct conf_global *g, struct tls_client **ret_tls,
			  struct err *err);
void net_tls_global_init(void); /* once, before threads */
/* Gives OpenSSL memory of ours (tls_mem.c). Before anything uses OpenSSL, reading a configuration included. */
void net_tls_memory_init(void);
/* Frees what waits for OpenSSL on the calling thread: for one that has ended a burst of work. Takes as long as the list is. */
void net_tls_memory_trim(void);

/*
 * Out of its store, which still has to be alive: the caller has the reference that tls_*_release() gives back
 * when no worker can be reading the pointer any more. Control thread.
 */
void tls_server_retire(struct tls_server *s);
void tls_server_release(void *s);
void tls_client_retire(struct tls_client *cli);
void tls_client_release(void *cli);

/*
 * Files at run time: a frozen store is changed, then everything that was built from it is built again. All on the
 * control thread; messages are those of the runtime API.
 */
enum tls_file_kind { TLS_CERT, TLS_CA, TLS_CRL, TLS_FILE_KINDS };
struct tls_change; /* a transaction about one file */
HG_WUR int cert_store_new_file(struct cert_store *s, enum tls_file_kind kind, const char *path,
			       struct err *err);
/* -EBUSY: in use; -ENOENT. */
HG_WUR int cert_store_del_file(struct cert_store *s, enum tls_file_kind kind, const char *path,
			       struct err *err);
/*
 * Reads a payload into *change (NULL: a new one is made), in place of what the file holds or (adds) behind it. `name`:
 * of a file, of a certificate also with .key or .ocsp behind.
 */
HG_WUR int tls_change_stage(struct cert_store *s, enum tls_file_kind kind,
			    struct tls_change **change, const char *name, struct str payload,
			    bool adds, struct err *err);
const char *tls_change_path(const struct tls_change *ch);
/* Into the store, and out of it again when building failed. */
HG_WUR int tls_change_apply(struct cert_store *s, struct tls_change *ch, struct err *err);
void tls_change_revert(struct cert_store *s, struct tls_change *ch);
void tls_change_free(struct tls_change *ch); /* NULL is ignored */
/* A file that contexts are built from. Paths as the store has them; lists: crt-lists. */
enum tls_used_kind { TLS_USED_CERT, TLS_USED_CA, TLS_USED_CRL, TLS_USED_LIST };
bool tls_server_uses(const struct tls_server *s, enum tls_used_kind kind, const char *path);
bool tls_client_uses(const struct tls_client *cli, enum tls_used_kind kind, const char *path);
/* Which files are in use: those of all servers and clients of the store; of others tls_client_mark() tells. */
void cert_store_recount(struct cert_store *s);
void tls_client_mark(struct cert_store *s, const struct tls_client *cli);
/* The text before is the caller's, to restore or mem_free() it. */
HG_WUR int cert_store_list_add(struct cert_store *s, const char *path, struct str line,
			       char **ret_old, struct err *err);
/* `number`: of the line, 0: the only one that names `cert`. */
HG_WUR int cert_store_list_del(struct cert_store *s, const char *path, struct str cert,
			       unsigned number, char **ret_old, struct err *err);
HG_WUR int cert_store_list_restore(struct cert_store *s, const char *path, char *text);
/* Walks; non-zero from `fn` stops the walk and is returned. */
int cert_store_each_list(const struct cert_store *s,
			 int (*fn)(void *ctx, const char *path, const char *text), void *ctx);
/* By name, all of a kind. */
struct tls_file_facts {
	const char *path;
	bool is_empty, has_ocsp;
	unsigned n_certs;
};
int cert_store_each_file(const struct cert_store *s, enum tls_file_kind kind,
			 int (*fn)(void *ctx, const struct tls_file_facts *f), void *ctx);
unsigned tls_change_n_certs(const struct tls_change *ch);
/*
 * "Filename: …" and the other lines of `show ssl cert|ca-file|crl-file <path>`; of a change when it is given.
 * `number`: of the only certificate or list of a CA or CRL file that is shown, 0: all. -ENOENT.
 */
int cert_store_describe(const struct cert_store *s, enum tls_file_kind kind,
			const struct tls_change *ch, const char *path, unsigned number, FILE *out);
/* The same of a part that has a name of its own: "FILE.ocsp", "FILE.issuer". -ENOENT. */
int cert_store_describe_part(const struct cert_store *s, const struct tls_change *ch,
			     const char *name, FILE *out);
/*
 * `show ssl ocsp-response`: all; and one, by the certificate's name or its id, as text or base64. -ENOENT: no such
 * certificate, or none stapled.
 */
void cert_store_list_ocsp(const struct cert_store *s, FILE *out);
int cert_store_describe_ocsp(const struct cert_store *s, const char *name, bool is_base64,
			     FILE *out);
/*
 * `set ssl ocsp-response`: a response in base64 to the certificates that it is about. What was there before is given to
 * `retire`: workers may still be reading it, later ocsp_response_free() frees it. -ENOENT: about none of ours; -EINVAL,
 * -ETIME, -ENOMEM.
 */
HG_WUR int cert_store_set_ocsp(struct cert_store *s, struct str base64,
			       void (*retire)(void *ctx, void *old), void *ctx, struct err *err);
void ocsp_response_free(void *old);
/* `show ssl sni`: a row for each name and certificate of a bind line. -ENOMEM. */
struct tls_sni_view {
	FILE *out;
	const char *where; /* the first column */
	bool only_expired; /* those that are not valid any more at... */
	int64_t expired_at; /* seconds since 1970 */
};
int tls_server_list_names(const struct tls_server *s, const struct tls_sni_view *v);

/*
 * Session ticket keys. `old` is what workers may still be reading: ticket_keys_free() it when each of them has passed
 * a loop iteration. Control thread.
 */
void ticket_keys_free(void *old); /* NULL is ignored */
/* Replaces the oldest of our own keys when the newest is older than lifetime_ns. *ret_old NULL: not yet. */
HG_WUR int cert_store_rotate_tickets(struct cert_store *s, uint64_t now_ns, uint64_t lifetime_ns,
				     void **ret_old);
/* `set ssl tls-key`: `id` is the number (also "#n") or the name of a tls-ticket-keys file. -ENOENT, -EINVAL, -ENOMEM. */
HG_WUR int cert_store_push_ticket_key(struct cert_store *s, struct str id, struct str key,
				      void **ret_old, struct err *err);
/* Keys of one file, or with an empty id of all, oldest first. -ENOENT: no such file. */
int cert_store_each_ticket_key(struct cert_store *s, struct str id,
			       void (*fn)(void *ctx, unsigned id, const char *file, unsigned index,
					  const char *base64),
			       void *ctx);

/* --- PROXY protocol ---------------------------------------------------------------------------- */

/*
 * Reads a v1 or v2 header at the start of `in`. > 0: its length, addresses in *ret_src and *ret_dst (family
 * 0 for LOCAL/UNKNOWN); 0: incomplete; -EBADMSG.
 */
HG_WUR int proxy_header_read(struct str in, struct addr *ret_src, struct addr *ret_dst);
/* The fields of a header that proxy_header_read() has accepted; empty: none. */
struct str proxy_header_tlvs(struct str header);
/* The first field of a type among them; those of PP2_TYPE_SSL (2.2.6) too. False: there is none. */
bool proxy_tlv_find(struct str tlvs, uint8_t type, struct str *ret);
/* Writes version 1 or 2 into out (at least 108 bytes); returns the length. */
size_t proxy_header_write(unsigned version, const struct addr *src, const struct addr *dst,
			  char *out);

/* Fields of version 2 (2.2.1 to 2.2.7 of its specification). */
enum proxy_tlv_type {
	PROXY_TLV_ALPN = 0x01,
	PROXY_TLV_AUTHORITY = 0x02,
	PROXY_TLV_CRC32C = 0x03,
	PROXY_TLV_UNIQUE_ID = 0x05,
	PROXY_TLV_SSL = 0x20,
	PROXY_TLV_SSL_VERSION = 0x21, /* this and those below stand inside PROXY_TLV_SSL */
	PROXY_TLV_SSL_CN = 0x22,
	PROXY_TLV_SSL_CIPHER = 0x23,
	PROXY_TLV_SSL_SIG_ALG = 0x24,
	PROXY_TLV_SSL_KEY_ALG = 0x25,
};
enum proxy_ssl_client { PROXY_CLIENT_SSL = 1, PROXY_CLIENT_CERT_CONN = 2, PROXY_CLIENT_CERT_SESS = 4 };
struct proxy_tlv {
	uint8_t type;
	struct str value; /* 65,535 bytes at most */
};
struct proxy_extra {
	const struct proxy_tlv *tlvs;
	unsigned n_tlvs;
	bool has_ssl, has_crc32c;
	uint8_t ssl_client; /* enum proxy_ssl_client */
	uint32_t ssl_verify; /* 0: the client showed a certificate, and it was good */
	const struct proxy_tlv *ssl_tlvs;
	unsigned n_ssl_tlvs;
};
/* Bytes that suffice for a header of version 2 with these fields. */
size_t proxy_header_bound(const struct proxy_extra *x);
/* Writes it into out (proxy_header_bound() bytes). Its length, or -E2BIG: a header cannot hold so much. */
HG_WUR int proxy_header_write_more(const struct addr *src, const struct addr *dst,
				   const struct proxy_extra *x, char *out);

#endif
