/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Expressions of the configuration language: sample fetches and converters, ACL conditions, log-format
 * templates. Compiled once, by the control thread, into a snapshot's arena; evaluated on workers
 * without locks and without allocation beyond the stream's arena.
 *
 * An expression sees the world only through `struct subject`, which the proxy fills; this module
 * knows neither connections nor servers nor configuration.
 */
#ifndef EXPR_EXPR_H
#define EXPR_EXPR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/http.h"

/* --- samples ----------------------------------------------------------------------------------- */

enum sample_type {
	SAMPLE_BOOL,
	SAMPLE_SINT,
	SAMPLE_ADDR, /* IPv4 or IPv6 */
	SAMPLE_STR,
	SAMPLE_BIN,
	SAMPLE_METH, /* printed and matched as string */
};

struct sample {
	uint8_t type; /* enum sample_type */
	bool is_const; /* str/bin points to memory that outlives the stream or must not be written */
	union {
		int64_t sint; /* BOOL, SINT */
		struct addr addr;
		struct str str; /* STR, BIN, METH: in the subject's message, its arena, or constant */
	};
};

/* Implicit conversion as the language defines it. 0 or -EINVAL (no such conversion), -ENOMEM. */
HG_WUR int sample_cast(struct sample *s, enum sample_type to, struct arena *arena);

/* --- the subject ------------------------------------------------------------------------------- */

enum var_scope { VAR_PROC, VAR_SESS, VAR_TXN, VAR_REQ, VAR_RES, VAR_CHECK, VAR_SCOPE_COUNT };

struct vars; /* one scope's variables; see vars_*() */

/* One connection as expressions see it. Pointers may be NULL when unknown. */
struct subject_conn {
	const struct addr *src, *dst;
	bool is_tls;
	bool has_proxy_header; /* a PROXY header was received */
	uint8_t http_major; /* 1, 2; 0: not HTTP */
	int32_t err; /* why the connection failed; 0: it did not */
	const char *err_text; /* the same in words */
	void *handle; /* for the ops below */
};

/* Facts that cost something or that only the proxy knows. Any member may be NULL: no value. */
struct subject;
enum subject_tls_field {
	TLS_SNI, TLS_ALPN, TLS_VERSION, TLS_CIPHER, TLS_IS_RESUMED, TLS_HAS_CLIENT_CERT, TLS_VERIFY_RESULT,
	TLS_CLIENT_CERT_USED, TLS_CURVE,
	TLS_ERROR, TLS_CA_ERROR, TLS_ALG_KEYSIZE, TLS_USE_KEYSIZE, TLS_CLIENT_VERIFY_DEPTH,
	TLS_CLIENT_ERR, /* verification error of the client certificate itself (depth 0), 0: none */
	TLS_ERROR_TEXT, /* TLS_ERROR in libcrypto's words */
	/* What the client offered; the first four are as in its message (net/tls_capture.c). */
	TLS_HELLO_CIPHERS, TLS_HELLO_EXTENSIONS, TLS_HELLO_GROUPS, TLS_HELLO_FORMATS,
	TLS_HELLO_CIPHER_NAMES, TLS_HELLO_CIPHER_NAMES_PLAIN, /* the second without GREASE */
	TLS_HELLO_CIPHER_HASH, TLS_HELLO_VERSION,
	TLS_CLIENT_RANDOM, TLS_SERVER_RANDOM, TLS_SESSION_KEY,
	TLS_SECRET_CLIENT_EARLY, TLS_SECRET_CLIENT_HANDSHAKE, TLS_SECRET_SERVER_HANDSHAKE, TLS_SECRET_CLIENT,
	TLS_SECRET_SERVER, TLS_SECRET_EXPORTER, TLS_SECRET_EARLY_EXPORTER,
	TLS_CLIENT_CERT = 0x40, /* and above: a field of a certificate, added to whose it is */
	TLS_SERVER_CERT = 0x60,
};
enum subject_cert_field {
	CERT_DER, CERT_CHAIN_DER, CERT_S_DN, CERT_I_DN, CERT_SERIAL, CERT_SHA1, CERT_NOTBEFORE,
	CERT_NOTAFTER, CERT_KEY_ALG, CERT_SIG_ALG, CERT_VERSION, CERT_SAN,
	CERT_S_CN, CERT_KEY_NAME, /* "RSA2048": what PROXY headers say */
	CERT_FIELD_MASK = 0x1f, /* of a subject_tls_field */
};
enum subject_tcp_fact {
	TCP_RTT, TCP_RTTVAR, TCP_UNACKED, TCP_SACKED, TCP_LOST, TCP_RETRANS, TCP_REORDERING, TCP_FACT_COUNT,
};
enum subject_count {
	COUNT_FE_CONN, COUNT_BE_CONN, COUNT_SRV_CONN, COUNT_NBSRV, COUNT_SRV_IS_UP, COUNT_QUEUE,
	COUNT_SRV_QUEUE, COUNT_AVG_QUEUE, COUNT_CONNSLOTS, COUNT_FE_REQ_RATE, COUNT_FE_SESS_RATE,
	COUNT_BE_SESS_RATE, COUNT_SRV_SESS_RATE, COUNT_BE_CONN_FREE, COUNT_ACT_CONN, COUNT_STOPPING,
	COUNT_BE_WEIGHT, COUNT_SRV_WEIGHT, COUNT_DST_CONN, COUNT_SRV_IWEIGHT, COUNT_SRV_CONN_FREE,
	COUNT_FE_EXISTS,
};

/* What the proxy knows about a stream, or about the client connection before there is one. */
enum subject_fact {
	FACT_CUR_CLIENT_TIMEOUT, FACT_CUR_CONNECT_TIMEOUT, FACT_CUR_QUEUE_TIMEOUT, FACT_CUR_SERVER_TIMEOUT,
	FACT_CUR_TARPIT_TIMEOUT, FACT_CUR_TUNNEL_TIMEOUT, /* in force now; ms, 0: none */
	FACT_FE_CLIENT_TIMEOUT, FACT_BE_CONNECT_TIMEOUT, FACT_BE_QUEUE_TIMEOUT, FACT_BE_SERVER_TIMEOUT,
	FACT_BE_TARPIT_TIMEOUT, FACT_BE_TUNNEL_TIMEOUT, /* as configured; the same */
	FACT_LAST_RULE_FILE, FACT_LAST_RULE_LINE,
	FACT_IS_ERROR, FACT_IS_FORWARDED, FACT_IS_SERVICE, /* as `when` asks */
	FACT_BC_REUSED, FACT_IS_REDISPATCHED, FACT_FE_DEFAULT_BACKEND,
	FACT_ACCEPT_WALL_US, FACT_REQUEST_WALL_US,
};

/* What a stick-table expression wants; compiled from src_*, sc*_*, table_*. */
enum table_counter {
	TABLE_CONN_CNT, TABLE_CONN_CUR, TABLE_CONN_RATE, TABLE_SESS_CNT, TABLE_SESS_RATE,
	TABLE_HTTP_REQ_CNT, TABLE_HTTP_REQ_RATE, TABLE_HTTP_ERR_CNT, TABLE_HTTP_ERR_RATE,
	TABLE_HTTP_FAIL_CNT, TABLE_HTTP_FAIL_RATE, TABLE_KBYTES_IN, TABLE_KBYTES_OUT, /* KiB */
	TABLE_BYTES_IN_RATE, TABLE_BYTES_OUT_RATE, TABLE_GPC, TABLE_GPC_RATE, TABLE_GPT,
	TABLE_SERVER_ID,
	TABLE_IS_TRACKED, TABLE_TRACKERS, /* is there an entry; streams that track it */
	TABLE_EXPIRE, TABLE_IDLE, /* ms left, ms since the last use */
	TABLE_SIZE_AVL, TABLE_SIZE_USED, /* of the whole table, no key */
};
enum table_access { TABLE_GET, TABLE_INC, TABLE_CLEAR }; /* INC returns the new, CLEAR the old value */
enum kernel_fact { KERNEL_CONNS, KERNEL_SYN_RATE, KERNEL_DROPPED }; /* of the address that packets come from */
enum table_key {
	TABLE_KEY_SAMPLE, /* `key` of subject_ops.table: the source address or the converter's input */
	TABLE_KEY_TRACKED, /* the entry that `sc` tracks; `key` is NULL */
	TABLE_KEY_NONE,
};
struct table_op {
	struct str table; /* empty: the current proxy's, or the one that `sc` tracks */
	uint8_t counter, access, key; /* the enums above */
	uint8_t sc; /* TABLE_KEY_TRACKED: track-sc<n> */
	uint32_t index; /* of TABLE_GPC, TABLE_GPC_RATE, TABLE_GPT: gpc0 is 0, gpc1 is 1 */
	void *ref; /* the owner of the tables may keep its own pointer here (see expr_env.use_table) */
};

/* A `userlist`; the memory is the configuration's. */
struct expr_user {
	struct str name;
	struct str password; /* plain, or crypt(3)'s form; p NULL: nobody can log in with it */
	bool is_plain;
	const struct str *groups;
	unsigned n_groups;
};
struct expr_userlist {
	struct str name;
	const struct expr_user *users;
	unsigned n_users;
};
/* The user whose password this is, or NULL. crypt(3) may take milliseconds. Any thread. */
const struct expr_user *expr_userlist_check(const struct expr_userlist *list, struct str name,
					    struct str password);
struct subject_ops {
	/* 0 and *ret filled; -ENOENT: no value. `is_back`: the server connection. */
	int (*tls)(const struct subject *s, bool is_back, enum subject_tls_field f, struct sample *ret);
	/* `name`: backend, or backend/server, or empty for the current one. */
	int (*count)(const struct subject *s, enum subject_count c, struct str name, int64_t *ret);
	int (*table)(const struct subject *s, const struct table_op *op, const struct sample *key,
		     struct sample *ret);
	int (*fact)(const struct subject *s, enum subject_fact f, struct sample *ret);
	/* Fields of the client's PROXY header, by type. */
	int (*proxy_tlv)(const struct subject *s, uint8_t type, struct str *ret);
	/* Into a declared slot of the frontend's captures. 0, -ENOENT: there is none; or -ENOMEM. */
	int (*capture)(const struct subject *s, bool is_rsp, unsigned slot, struct str value);
	/* What the kernel measured, of TCP only; times in us. A system call. */
	int (*tcp)(const struct subject *s, bool is_back, enum subject_tcp_fact f, int64_t *ret);
	/* What is here of the body; p NULL: nothing. */
	struct str (*body)(const struct subject *s, bool is_rsp);
	/* What the kernel tier has seen of the client; -ENOENT: there is none, or the client is behind a proxy. */
	int (*kernel)(const struct subject *s, enum kernel_fact f, int64_t *ret);
};

/*
 * Fields of a log line that are not expressions: the %tags. The times are durations in ns, as they are
 * logged: handshake %Th, idle %Ti, request %TR (first byte to end of head), queue %Tw, connect %Tc,
 * response %Tr, data %Td, total %Tt (from accept), active %Ta (total without idle); -1: not reached.
 */
struct subject_log {
	uint64_t accept_wall_ns; /* %t %ts %T */
	int64_t t_handshake, t_idle, t_request, t_queue, t_connect, t_response, t_data, t_total, t_active;
	uint64_t bytes_from_client, bytes_to_client;
	int32_t status; /* -1: HTTP without an answer */
	char term[4]; /* the four characters of %tsc */
	uint32_t actconn, feconn, beconn, srv_conn, retries, srv_queue, backend_queue;
	bool is_redispatched, is_tls, is_asap;
	struct str frontend, backend, server; /* server may be "<NOSRV>" */
	struct str client_cookie, server_cookie; /* captured; p NULL: "-" */
	struct str unique_id;
	const struct str *req_captures, *rsp_captures;
	unsigned n_req_captures, n_rsp_captures;
	struct addr bind_src; /* %bi %bp */
	struct addr server_addr; /* %si %sp */
	struct str start_line; /* %r; p NULL: <BADREQ> */
	uint32_t request_counter; /* %rt */
};

struct subject {
	struct arena *arena; /* results live here */
	const struct http_msg *req, *rsp; /* NULL: not there (yet) */
	struct str req_body, rsp_body; /* as far as buffered; not used when ops->body is there */
	struct str payload; /* TCP content rules: bytes seen so far */
	bool is_payload_final; /* no more will come, or the inspection time is over */
	struct subject_conn front, back;
	uint64_t wall_ns; /* CLOCK_REALTIME */
	struct str frontend_name, backend_name, server_name;
	uint32_t frontend_id, backend_id, server_id, listener_id;
	struct str listener_name;
	struct vars *vars[VAR_SCOPE_COUNT];
	const struct subject_log *log; /* may be NULL outside log lines; captures are found here too */
	const struct subject_ops *ops;
	void *owner; /* the stream, for the ops */
	struct arena *sess_arena; /* memory of VAR_SESS; NULL: set-var(sess.x) sets nothing */
	const struct addr *src, *dst; /* after set-src and set-dst; NULL: those of `front` */
	bool is_first_request; /* of its connection */
	bool is_stopping; /* the process is */
	uint16_t thread_id; /* worker, from 0 */
	int16_t prio_class; /* in the queues */
	int32_t prio_offset; /* ms */
	uint64_t start_wall_ns; /* of the process */
};

/* Variables. Names are interned at compile time: numbers, never strings, at run time. */
void vars_init(struct vars **v);
HG_WUR int vars_set(struct vars **v, struct arena *arena, uint32_t id, const struct sample *s); /* copies */
const struct sample *vars_get(const struct vars *v, uint32_t id); /* NULL: not set */
void vars_unset(struct vars *v, uint32_t id);
/*
 * The same on a subject; the right arena is chosen by the scope. The converters set-var and unset-var
 * use them and write to subject->vars[], so a subject lives as long as its variables, or its owner
 * copies vars[] back after evaluating. VAR_PROC is shared by all threads; -EMSGSIZE: longer than it can be.
 */
HG_WUR int subject_var_set(struct subject *s, enum var_scope scope, uint32_t id,
			   const struct sample *value);
const struct sample *subject_var_get(const struct subject *s, enum var_scope scope, uint32_t id);
void subject_var_unset(struct subject *s, enum var_scope scope, uint32_t id);
/* "ifexists,ifgt": conditions on the variable as it is, all of which must hold. 0 or -EINVAL. */
HG_WUR int var_cond_parse(struct str text, uint8_t *ret_conds, struct err *err);
/* 0: set, or not because a condition did not hold. */
HG_WUR int subject_var_set_if(struct subject *s, enum var_scope scope, uint32_t id, uint8_t conds,
			      const struct sample *value);
/* Variables of the process without a subject. Any thread, but for names: vars_intern(). -ENOENT: not set. */
#define VARS_PROC_TEXT_MAX 1024
HG_WUR int vars_proc_set(uint32_t id, const struct sample *s);
HG_WUR int vars_proc_get(uint32_t id, struct arena *arena, struct sample *ret);
void vars_proc_unset(uint32_t id);
/* "txn.name" → scope and id. Control thread. 0, -EINVAL, -ENOMEM. */
HG_WUR int vars_intern(struct str name, enum var_scope *ret_scope, uint32_t *ret_id, struct err *err);

/* --- compiling --------------------------------------------------------------------------------- */

struct expr;
struct cond;
struct logfmt;
struct acl_set; /* the named ACLs of one proxy (and its defaults) */

/* Where an expression stands: decides which fetches make sense; a misfit is an error that says so. */
enum expr_place {
	PLACE_CONN = 1 << 0, /* tcp-request connection/session */
	PLACE_CONTENT = 1 << 1, /* tcp-request content */
	PLACE_REQ = 1 << 2, /* HTTP request rules */
	PLACE_RSP = 1 << 3, /* HTTP response rules */
	PLACE_LOG = 1 << 4,
	PLACE_CHECK = 1 << 5,
	PLACE_INIT = 1 << 6, /* while parsing: environment, integers */
};

struct expr_env {
	struct arena *arena; /* of the snapshot */
	unsigned place; /* enum expr_place bits */
	bool is_http; /* the proxy's mode */
	struct acl_set *acls; /* for conditions; may be NULL */
	/* Pattern files (-f, map()): text → contents, memory in `arena`. NULL: plain file access. */
	int (*read_file)(struct expr_env *env, struct str path, struct str *ret_text,
			 struct err *err);
	/*
	 * `http_auth(name)`: the list, which may still be empty and be filled later in the same snapshot;
	 * NULL with `err` when that name can never be. A NULL function: there are no userlists.
	 */
	const struct expr_userlist *(*find_userlist)(struct expr_env *env, struct str name,
						     struct err *err);
	/* A stick-table expression was compiled: remember it, check it later, set op->ref. May be NULL. */
	int (*use_table)(struct expr_env *env, struct table_op *op, struct err *err);
	/* A fetch of the kernel tier was compiled. NULL: nobody minds. */
	int (*use_kernel)(struct expr_env *env, const char *name, enum kernel_fact f);
	struct pat_refs *refs; /* files and patterns that the runtime API may change; NULL: nobody will */
	const char *file; /* of the line, for `show map` */
	uint32_t line;
	/* env(name): the environment as the configuration sees it; p NULL: not set. NULL: the process's. */
	struct str (*getenv)(struct expr_env *env, struct str name);
	/* Machine code of regular expressions lives outside the arena: see expr_owned_free(). */
	struct expr_owned **owned;
	/* Problems that are not errors (unused value, odd place), one line each. May be NULL. */
	void (*warn)(struct expr_env *env, const char *text);
	void *owner;
};

/*
 * What compiled expressions hold outside the arena. Start with a NULL pointer, give its address as
 * expr_env.owned, free together with the arena. Without it regular expressions stay until the process
 * ends (each distinct one once). Control thread.
 */
struct expr_owned;
void expr_owned_free(struct expr_owned **owned);

/* All compile functions: 0, -EINVAL with `err` and *ret_error_at (offset in the text), or -ENOMEM. */
HG_WUR int expr_compile(struct expr_env *env, struct str text, struct expr **ret_expr,
			size_t *ret_error_at, struct err *err);
HG_WUR int logfmt_compile(struct expr_env *env, struct str text, struct logfmt **ret_fmt,
			  size_t *ret_error_at, struct err *err);
/* What was compiled: the type it gives (SAMPLE_STR when only known at run time) and its text. */
enum sample_type expr_type(const struct expr *e);
struct str expr_text(const struct expr *e);
struct acl_set *acl_set_new(struct arena *arena, const struct acl_set *inherited);
/* The set's own ACLs, not inherited ones; false at the end. A use is a condition that names it. */
struct acl_use {
	struct str name;
	const char *file; /* of its first line */
	uint32_t line;
	bool is_used;
};
bool acl_set_use(const struct acl_set *set, unsigned i, struct acl_use *ret);
struct str acl_set_name(const struct acl_set *set, unsigned i); /* `i` from 0; p NULL at the end */
/* words: what follows `acl <name>`. *ret_error_at is a word index. */
HG_WUR int acl_add(struct acl_set *set, struct expr_env *env, struct str name,
		   const struct str *words, unsigned n, unsigned *ret_error_at, struct err *err);
/* words: what follows `if` or `unless` (the caller passes `negate` for unless). */
HG_WUR int cond_compile(struct expr_env *env, const struct str *words, unsigned n, bool negate,
			struct cond **ret_cond, unsigned *ret_error_at, struct err *err);
/* Names of all fetches and converters, for "did you mean" and the generated docs; `i` from 0, NULL at the end. */
struct expr_doc { const char *name, *args, *type, *help; unsigned places; };
const struct expr_doc *expr_fetch_doc(unsigned i);
const struct expr_doc *expr_conv_doc(unsigned i);
const char *sample_type_name(enum sample_type t); /* "bool", "integer", "address", … */

/* --- lists of patterns at run time (control thread) --------------------------------------------- */

/*
 * The pattern files, maps and patterns of ACLs of one configuration. Changes are collected by
 * pat_ref_add() and so on, and become visible to workers together, by pat_ref_publish().
 */
struct pat_refs;
struct pat_ref;
struct pat_ref_info {
	struct str name, about; /* file, or empty; who uses it */
	unsigned id, n;
	uint32_t curr, next; /* versions */
	bool is_map, is_acl;
};
struct pat_lookup {
	const char *match;
	bool icase, is_tree, is_found;
	struct str key, value;
};
/* Frees what workers may still read: calls `call` when they cannot any more. */
struct pat_defer {
	void (*later)(void *ctx, void (*call)(void *arg), void *arg);
	void *ctx;
};
typedef void pat_entry_fn(void *ctx, const void *id, struct str key, struct str value);
typedef void pat_lookup_fn(void *ctx, const struct pat_lookup *found);
struct pat_refs *pat_refs_new(struct arena *arena);
void pat_refs_number(struct pat_refs *refs); /* when all is compiled */
void pat_refs_free(struct pat_refs *refs); /* what is outside the arena; no worker reads any more */
struct pat_ref *pat_ref_next(const struct pat_refs *refs, const struct pat_ref *prev); /* NULL: the first, the end */
struct pat_ref *pat_ref_find(const struct pat_refs *refs, struct str name, bool is_map); /* file or "#id" */
struct pat_ref_info pat_ref_info(const struct pat_ref *ref);
void pat_ref_each(const struct pat_ref *ref, uint32_t version, pat_entry_fn *fn, void *ctx);
/* What traffic would get for `key`, once per kind of user. */
void pat_ref_lookup(const struct pat_ref *ref, struct str key, pat_lookup_fn *fn, void *ctx);
/* 0, -EINVAL or -ENOMEM with `err`. */
HG_WUR int pat_ref_add(struct pat_ref *ref, uint32_t version, struct str key, struct str value,
		       struct err *err);
HG_WUR int pat_ref_del(struct pat_ref *ref, struct str key); /* how many; "#0x…": one of them */
HG_WUR int pat_ref_set(struct pat_ref *ref, struct str key, struct str value, struct err *err);
bool pat_ref_has(struct pat_ref *ref, struct str key); /* this very text */
void pat_ref_clear(struct pat_ref *ref, uint32_t version);
uint32_t pat_ref_prepare(struct pat_ref *ref);
HG_WUR int pat_ref_commit(struct pat_ref *ref, uint32_t version, struct err *err);
/* 0, or -ENOMEM: nothing became visible. */
HG_WUR int pat_ref_publish(struct pat_ref *ref, const struct pat_defer *d, struct err *err);

/* --- evaluating -------------------------------------------------------------------------------- */

/* 0 and *ret; -ENOENT: no value; -EAGAIN: more payload may decide; -ENOMEM. */
HG_WUR int expr_eval(const struct expr *e, const struct subject *s, struct sample *ret);
/* The same as text (cast to string); no value: empty. */
struct str expr_eval_str(const struct expr *e, const struct subject *s);
/* Sec-WebSocket-Accept for a Sec-WebSocket-Key (RFC 6455 4.2.2); not NUL-terminated. */
#define EXPR_WEBSOCKET_ACCEPT 28
void expr_websocket_accept(struct str key, char out[EXPR_WEBSOCKET_ACCEPT]);
/* 1 true, 0 false, -EAGAIN. A NULL condition is true. */
HG_WUR int cond_eval(const struct cond *c, const struct subject *s);
/* Appends to `out` (truncating); returns the bytes appended. */
size_t logfmt_eval(const struct logfmt *f, const struct subject *s, char *out, size_t size);
/* The text of a format that is always the same, as old as the format; p NULL: it is not. */
struct str logfmt_text(const struct logfmt *f);
/* The whole into the subject's arena; p NULL: out of memory. */
struct str logfmt_eval_str(const struct logfmt *f, const struct subject *s);

/*
 * Regular expressions for rules that rewrite text (replace-header …). Compiled by the control thread,
 * matched on workers: pairs of offsets of the first match at or after `from`, \0 first; returns the number
 * of pairs, 0: no match.
 */
struct regex;
HG_WUR int regex_compile(struct expr_env *env, struct str pattern, bool icase, struct regex **ret,
			 struct err *err);
#define REGEX_PAIRS 10
unsigned regex_find(const struct regex *re, struct str subject, size_t from,
		    size_t ret_pairs[REGEX_PAIRS * 2]);

/* HAProxy's default formats, without the surrounding quotes. */
extern const char *const logfmt_httplog, *const logfmt_tcplog, *const logfmt_httpslog, *const logfmt_clf;

#endif
