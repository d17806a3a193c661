/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The configuration as a value: text in, immutable `struct conf` out. Built by the control thread in
 * one arena, read by every thread, freed as a whole. After conf_load() returned nothing writes it:
 * what changes at run time (server state, weight, counters) lives in lb/.
 *
 * Times are nanoseconds, 0 = not set (no limit), unless a field says otherwise. Strings live in the
 * configuration's arena.
 */
#ifndef CONF_CONF_H
#define CONF_CONF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/addr.h"
#include "base/err.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "conf/conf_stick.h"
#include "conf/conf_tls.h"
#include "expr/expr.h"
#include "http/compress.h"
#include "http/http.h"

struct conf_names; /* hash table of names, see conf_priv.h */

/* Where something was written. */
struct conf_pos {
	const char *file;
	unsigned line, column; /* from 1 */
};

#include "conf/conf_check.h" /* part of this header, and too long for it */
#include "conf/conf_crt.h" /* the same */
#include "conf/conf_resolvers.h" /* the same */
#include "conf/conf_link.h"
#include "conf/conf_ring.h"
#include "conf/conf_xdp.h"
#include "conf/conf_global.h"

/* --- proxies ----------------------------------------------------------------------------------- */

enum conf_mode { CONF_MODE_TCP, CONF_MODE_HTTP, CONF_MODE_L4 };

enum conf_caps { /* what a section is */
	CONF_CAP_FRONTEND = 1 << 0,
	CONF_CAP_BACKEND = 1 << 1, /* listen: both */
	CONF_CAP_DEFAULTS = 1 << 2,
};

/* `option X`. One bit each; see also opt_no (explicitly negated) for inheritance. */
#define CONF_OPTIONS(X)                                                                  \
	X(HTTPLOG, "httplog") X(TCPLOG, "tcplog") X(HTTPSLOG, "httpslog")                \
	X(DONTLOGNULL, "dontlognull") X(DONTLOG_NORMAL, "dontlog-normal")                \
	X(LOG_SEPARATE_ERRORS, "log-separate-errors") X(LOGASAP, "logasap")              \
	X(LOG_HEALTH_CHECKS, "log-health-checks") X(FORWARDFOR, "forwardfor")            \
	X(ORIGINALTO, "originalto") X(REDISPATCH, "redispatch")                          \
	X(HTTP_SERVER_CLOSE, "http-server-close") X(HTTPCLOSE, "httpclose")              \
	X(HTTP_KEEP_ALIVE, "http-keep-alive") X(HTTP_BUFFER_REQUEST, "http-buffer-request") \
	X(ABORTONCLOSE, "abortonclose") X(ALLBACKUPS, "allbackups") X(TCPKA, "tcpka")    \
	X(CLITCPKA, "clitcpka") X(SRVTCPKA, "srvtcpka") X(CONTSTATS, "contstats")        \
	X(SOCKET_STATS, "socket-stats") X(NOLINGER, "nolinger")                          \
	X(HTTP_IGNORE_PROBES, "http-ignore-probes")                                      \
	X(PREFER_LAST_SERVER, "prefer-last-server") X(TRANSPARENT, "transparent")        \
	X(PERSIST, "persist") X(CHECKCACHE, "checkcache") X(HTTP_NO_DELAY, "http-no-delay") \
	X(HTTP_PRETEND_KEEPALIVE, "http-pretend-keepalive")                              \
	X(HTTP_USE_PROXY_HEADER, "http-use-proxy-header")                                \
	X(IDLE_CLOSE_ON_RESPONSE, "idle-close-on-response")                              \
	X(ACCEPT_UNSAFE_REQUEST, "accept-unsafe-violations-in-http-request")             \
	X(ACCEPT_UNSAFE_RESPONSE, "accept-unsafe-violations-in-http-response")           \
	X(DISABLE_H2_UPGRADE, "disable-h2-upgrade") X(INDEPENDENT_STREAMS, "independent-streams") \
	X(TCP_SMART_ACCEPT, "tcp-smart-accept") X(TCP_SMART_CONNECT, "tcp-smart-connect") \
	X(SPLICE_AUTO, "splice-auto") X(SPLICE_REQUEST, "splice-request")                \
	X(SPLICE_RESPONSE, "splice-response") X(FORWARDED, "forwarded") \
	X(DROP_REQUEST_TRAILERS, "http-drop-request-trailers")                           \
	X(DROP_RESPONSE_TRAILERS, "http-drop-response-trailers")                         \
	X(CASE_ADJUST_CLIENT, "h1-case-adjust-bogus-client")                             \
	X(CASE_ADJUST_SERVER, "h1-case-adjust-bogus-server")

enum conf_option_bit {
#define X(name, text) CONF_OPT_BIT_##name,
	CONF_OPTIONS(X)
#undef X
	CONF_OPT_COUNT
};
#define CONF_OPT(name) (1ull << CONF_OPT_BIT_##name)

enum conf_balance {
	BALANCE_ROUNDROBIN, BALANCE_STATIC_RR, BALANCE_LEASTCONN, BALANCE_FIRST, BALANCE_SOURCE, BALANCE_URI,
	BALANCE_URL_PARAM, BALANCE_HDR, BALANCE_RANDOM, BALANCE_HASH, BALANCE_MAGLEV, BALANCE_PEAK_EWMA,
	BALANCE_RDP_COOKIE,
};
enum conf_hash_type { HASH_MAP_BASED, HASH_CONSISTENT };
/* When the server of a hash is full: wait for it; another; wait, but another when its queue is full, too. */
enum conf_hash_affinity { HASH_AFFINITY_ALWAYS, HASH_AFFINITY_MAXCONN, HASH_AFFINITY_MAXQUEUE };
enum conf_hash_func { HASH_SDBM, HASH_DJB2, HASH_WT6, HASH_CRC32, HASH_NONE };

struct conf_balance_params {
	uint8_t algo; /* enum conf_balance */
	uint8_t hash_type, hash_func;
	bool has_avalanche;
	uint8_t hash_affinity; /* enum conf_hash_affinity */
	uint16_t hash_balance_factor; /* percent, 0: off */
	uint16_t random_draws; /* 2 */
	uint32_t uri_len, uri_depth;
	bool uri_whole, uri_path_only;
	char *name; /* header or parameter */
	bool hdr_use_domain_only;
	bool check_post; /* url_param: also in the body */
	struct expr *hash_expr; /* of hash and rdp-cookie */
};

struct conf_persist_rule { /* force-persist, ignore-persist: the first whose condition holds */
	struct list link;
	bool is_force;
	struct cond *cond;
	char *text;
};
struct conf_cookie {
	char *name; /* NULL: none */
	bool insert, prefix, rewrite, indirect, nocache, postonly, preserve, httponly, secure, dynamic;
	char *domain, *attr; /* attr: "; SameSite=Lax" … ready to append */
	uint64_t maxidle, maxlife;
};

enum conf_state_load { STATE_LOAD_NONE, STATE_LOAD_LOCAL, STATE_LOAD_GLOBAL };
enum conf_http_reuse { REUSE_NEVER, REUSE_SAFE, REUSE_AGGRESSIVE, REUSE_ALWAYS };

struct conf_stick_table {
	struct list link; /* conf.stick_tables */
	struct conf_pos pos;
	struct conf_proxy *proxy;
	char *name; /* the proxy's */
	uint8_t type; /* enum conf_stick_type */
	uint32_t key_len; /* string: the longest; others: exactly */
	uint32_t size;
	uint64_t expire; /* 0: entries stay until the table is full */
	bool nopurge;
	struct conf_stick_store {
		uint32_t n; /* 0: not stored; 1, or the length of an array */
		uint64_t period; /* of a rate */
	} store[STICK_DATA_COUNT];
	/*
	 * The table itself, of lb/. The one field that is written after loading: once, while the snapshot is
	 * being built, before a worker sees it. NULL in a configuration that is only checked.
	 */
	struct stick_table *rt;
};
struct conf_stick_rule { /* stick on|match|store-request|store-response */
	struct list link;
	struct conf_pos pos;
	bool is_match, is_store, is_response;
	struct expr *expr;
	struct cond *cond;
	char *table_name; /* NULL: the section's own */
	struct conf_stick_table *table;
	char *text;
};

/* Rules: what a line of them is, and the answers that are made here. */
#include "conf/conf_rules.h" /* part of this header, and too long for it */

struct conf_use_backend {
	struct list link;
	struct conf_pos pos;
	struct cond *cond;
	struct conf_proxy *backend; /* NULL: dynamic */
	struct logfmt *name; /* dynamic */
	char *text;
};
struct conf_use_server {
	struct list link;
	struct conf_pos pos;
	struct cond *cond;
	struct conf_server *server;
	struct logfmt *name;
	char *text;
};

struct conf_bind {
	struct list link;
	struct conf_proxy *proxy;
	struct conf_pos pos;
	struct endpoint ep; /* one address; a line with several, or a port range, gives several binds */
	char *text, *name; /* name: "sock-1" … unless given */
	unsigned id;
	bool is_ssl;
	struct conf_tls tls;
	char **crts; /* files or directories, absolute or as crt-base makes them */
	unsigned n_crts;
	char *crt_list, *default_crt, *ticket_keys;
	uint16_t mss; /* 0: as the path allows */
	bool accept_proxy, transparent, v4v6, v6only, defer_accept, tfo;
	char *interface;
	char *guid; /* "<guid-prefix>-0" …; NULL: none */
	unsigned n_guids; /* while it is read */
	struct conf_socket sock;
	uint32_t maxconn, backlog;
	int mode, uid, gid; /* unix sockets; -1: unset */
	uint8_t level;
	enum { BIND_PROTO_AUTO, BIND_PROTO_H1, BIND_PROTO_H2 } proto;
};

enum conf_on_error { ON_ERROR_FAIL_CHECK, ON_ERROR_FASTINTER, ON_ERROR_SUDDEN_DEATH, ON_ERROR_MARK_DOWN };

enum conf_ws { WS_AUTO, WS_H1, WS_H2 };

struct conf_outgoing { /* `source` */
	struct addr addr; /* family 0: not set, the kernel's choice */
	bool is_client, is_client_port; /* usesrc clientip, client: transparent */
	char *interface; /* NULL: any */
};

struct conf_server {
	struct list link;
	struct conf_proxy *proxy;
	struct conf_pos pos;
	char *name;
	unsigned id; /* svid, from 1 in order of declaration */
	struct endpoint ep;
	char *text; /* address as written */
	int32_t port_offset; /* ":+100", ":-100": ep.port is 0, as without a port: the one the client asked for, plus this */
	uint16_t shared_port; /* ep.port is 0: the one of all binds of the section, which checks ask; 0: there is none */
	struct conf_resolve resolve; /* how a name becomes an address */
	bool is_disabled, is_backup, has_check, has_agent, has_agent_addr;
	bool check_via_tunnel; /* mode l4: to the service address, as the traffic goes */
	uint32_t weight; /* 0..256, default 1 */
	uint32_t maxconn, minconn, maxqueue;
	uint64_t inter, fastinter, downinter; /* 2 s; 0 = same as inter */
	uint32_t rise, fall; /* 2, 3 */
	struct endpoint check_ep; /* check addr/port; kind IP with family 0: same as the server's */
	bool has_check_addr;
	uint16_t check_port; /* 0: the server's */
	bool check_ssl, check_send_proxy;
	bool needs_tls; /* `ssl`, `check-ssl`, or a script with `connect ssl`: settings of TLS are complete */
	char *check_sni;
	uint8_t check_proto; /* SERVER_PROTO_*; AUTO: the server's */
	struct str check_alpn; /* length-prefixed names; empty: the server's */
	enum { INIT_STATE_UP, INIT_STATE_FULLY_UP, INIT_STATE_DOWN, INIT_STATE_FULLY_DOWN } init_state; /* with checks */
	char *cookie;
	bool is_non_stick; /* stick rules do not remember it */
	bool has_full_handshakes; /* TLS sessions are not resumed */
	uint64_t slowstart;
	char *track; /* as written: [backend/]server */
	struct conf_server *track_server; /* resolved */
	enum { OBSERVE_NONE, OBSERVE_L4, OBSERVE_L7 } observe;
	uint32_t error_limit; /* 10 */
	uint8_t on_error; /* enum conf_on_error */
	bool on_marked_down_shutdown, on_marked_up_shutdown_backup;
	bool is_ssl;
	struct conf_tls tls;
	char *crt, *verifyhost;
	struct expr *sni;
	struct expr *auto_sni; /* sni-auto: what `sni` becomes when there is none */
	bool has_auto_check_sni;
	uint8_t send_proxy; /* 0, 1, 2 */
	uint8_t pp_options; /* enum conf_pp_option */
	const struct conf_pp_tlv *pp_tlvs; /* the last one first */
	struct conf_socket sock;
	struct expr *pool_name; /* pool-conn-name: of idle connections, instead of `sni`; NULL: not set */
	uint8_t hash_key; /* enum conf_hash_key */
	char *guid; /* NULL: none */
	bool tfo; /* TCP fast open, where a request may be sent again */
	uint32_t pool_max_conn; /* UINT32_MAX: no limit */
	uint64_t pool_purge_delay; /* 5 s */
	uint32_t max_reuse;
	enum { SERVER_PROTO_AUTO, SERVER_PROTO_H1, SERVER_PROTO_H2 } proto;
	uint8_t ws; /* enum conf_ws: how WebSockets are asked for */
	struct conf_outgoing source; /* conf_outgoing_of() */
	char *redir, *agent_send;
	struct endpoint agent_ep;
	uint16_t agent_port;
	uint64_t agent_inter;
	bool has_quic_id;
	uint16_t quic_id; /* of the server in connection ids it gives out */
	uint32_t pos_in_backend; /* 0, 1, … */
};

enum conf_forward { FORWARD_NONE, FORWARD_IPIP, FORWARD_GUE, FORWARD_L2, FORWARD_NAT };
enum conf_affinity { AFFINITY_FLOW, AFFINITY_SOURCE, AFFINITY_NONE, AFFINITY_QUIC_CID };
enum conf_track { CONF_TRACK_AUTO, CONF_TRACK_ON, CONF_TRACK_OFF };
#define CONF_QUIC_ID_MAX 65535

/* `nat`: what the edge sends from, towards the servers of a section with `forward nat`. */
#define CONF_NAT_SOURCES 7
struct conf_nat {
	struct addr sources[CONF_NAT_SOURCES]; /* none: the address of the route to the server */
	unsigned n_sources;
	uint16_t port_first, port_last; /* 0: the default range */
	bool is_logged; /* a line when a connection begins, one when it ends */
};

struct conf_capture {
	struct list link;
	char *name;
	uint32_t len;
	bool is_response;
	unsigned index;
};

struct conf_timeouts {
	uint64_t client, server, connect, http_request, http_keep_alive, queue, check, tunnel, client_fin,
		server_fin, tarpit, client_hs, http_body;
};

/* What a client must at least send or take while the proxy waits for it: so much within each `after`. */
enum conf_min_rate_of { MIN_RATE_REQUEST, MIN_RATE_RESPONSE };
struct conf_min_rate {
	uint64_t bytes_per_s; /* 0: no limit */
	uint64_t after_ns;
};

struct conf_stats_auth { /* one `stats auth user:password` */
	struct list link;
	char *user, *password;
};
struct conf_stats_scope { /* one `stats scope` */
	struct list link;
	char *name; /* "." is the section itself */
};
struct conf_stats_page {
	bool is_enabled;
	char *uri, *realm; /* "/haproxy?stats" */
	struct list auths; /* conf_stats_auth */
	struct list scopes; /* conf_stats_scope; none: every section */
	struct list rules; /* conf_rule: `stats http-request`; allow, deny, auth */
	uint64_t refresh;
	bool hide_version, show_legends, show_node;
	char *desc, *node; /* node NULL: global's, or the host's name */
	struct cond *admin_if;
	bool has_admin;
};

/* `retry-on`: failures of a server after which a request may be sent again. */
enum conf_retry {
	RETRY_CONN_FAILURE = 1 << 0,
	RETRY_EMPTY_RESPONSE = 1 << 1,
	RETRY_JUNK_RESPONSE = 1 << 2,
	RETRY_RESPONSE_TIMEOUT = 1 << 3,
	RETRY_FIRST_STATUS = 1 << 4, /* further bits: one status each, conf_retry_status_bit() */
};
#define RETRY_STATUS(i) ((uint32_t)RETRY_FIRST_STATUS << (i))
#define RETRY_ALL_ERRORS                                                                     \
	(RETRY_CONN_FAILURE | RETRY_EMPTY_RESPONSE | RETRY_JUNK_RESPONSE | RETRY_RESPONSE_TIMEOUT | \
	 RETRY_STATUS(7) | RETRY_STATUS(9) | RETRY_STATUS(10) | RETRY_STATUS(11)) /* 500 502 503 504 */
/* 0: no status that `retry-on` knows. */
uint32_t conf_retry_status_bit(unsigned status);

struct conf_addr_header { /* option forwardfor, originalto */
	char *name;
	struct addr_prefix except;
	bool has_except, if_none;
};
/* option forwarded: a port behind its node. */
enum conf_forwarded_part {
	FORWARDED_PROTO, FORWARDED_HOST, FORWARDED_BY, FORWARDED_BY_PORT, FORWARDED_FOR, FORWARDED_FOR_PORT,
	FORWARDED_PARTS,
};
struct conf_forwarded {
	bool has[FORWARDED_PARTS];
	struct expr *expr[FORWARDED_PARTS]; /* NULL: the connection's own */
};
enum conf_restrict { RESTRICT_PRESERVE, RESTRICT_DELETE, RESTRICT_REJECT };

struct conf_compression {
	uint8_t algos[HTTP_CODING_COUNT], n_algos; /* enum http_coding, in the order of the file; 0: off */
	bool is_offload;
	struct str *types;
	unsigned n_types; /* 0: every type */
	uint64_t min_size; /* bytes */
	uint8_t direction; /* enum conf_compress_direction; 0: not said */
	/* the same of requests */
	uint8_t req_algo; /* enum http_coding; 0: off */
	struct str *req_types;
	unsigned n_req_types;
	uint64_t req_min_size;
};
enum conf_compress_direction { COMPRESS_RESPONSE = 1, COMPRESS_REQUEST, COMPRESS_BOTH };

#define CONF_ERROR_CODES 18
#define CONF_MAX_RETRIES 100
struct conf_keepalive { /* TCP keep-alive; 0: as the system says */
	uint32_t count, idle_s, interval_s;
};
struct conf_proxy {
	struct list link;
	struct conf *conf;
	struct conf_pos pos;
	char *name;
	unsigned id; /* iid */
	unsigned index; /* 0, 1, … among all proxies of this configuration: rows of run-time arrays */
	uint8_t caps, mode; /* enum conf_caps, enum conf_mode */
	bool is_disabled;
	uint64_t options, options_no; /* CONF_OPT(); set, and explicitly negated */
	struct conf_timeouts timeout;
	struct conf_keepalive ka_client, ka_server;
	struct conf_min_rate min_rate[2]; /* by enum conf_min_rate_of */
	uint32_t maxconn, fullconn, backlog, rate_limit_sessions;
	uint32_t retries; /* 3 */
	uint32_t retry_on; /* enum conf_retry bits */
	int32_t redispatch_interval; /* -1: last retry */
	struct conf_logs logs;
	bool has_log;
	char *log_tag;
	struct logfmt *log_format, *error_log_format; /* log_format NULL: none (connect log) */
	struct logfmt *log_format_sd; /* structured data of rfc5424 targets; NULL: none */
	char *log_format_text;
	char *guid; /* NULL: none */
	/* frontend side */
	struct list binds; /* conf_bind */
	struct list use_backends; /* conf_use_backend */
	struct conf_proxy *default_backend; /* NULL: itself when listen, else 503 */
	char *default_backend_name;
	struct list captures;
	unsigned n_req_captures, n_rsp_captures;
	char *capture_cookie;
	uint32_t capture_cookie_len;
	struct logfmt *unique_id_format;
	char *unique_id_header;
	char *monitor_uri;
	struct list monitor_fail; /* conf_rule, cond only */
	/* both */
	struct acl_set *acls;
	struct list rules[RULES_COUNT]; /* conf_rule */
	struct list bwlims; /* conf_bwlim */
	struct conf_stick_table *stick_table; /* NULL: none */
	struct conf_stick_table *tracks_src; /* a rule on requests tracks `src` there; NULL: none does */
	uint64_t inspect_delay, rsp_inspect_delay; /* of tcp-request, tcp-response content */
	struct conf_addr_header forwardfor, originalto;
	struct conf_forwarded forwarded;
	uint8_t restrict_names; /* enum conf_restrict */
	struct conf_reply *errors[CONF_ERROR_CODES]; /* by conf_error_index(); NULL: built in */
	struct conf_stats_page stats;
	struct conf_compression compression;
	/* backend side */
	struct list servers; /* conf_server */
	unsigned n_servers;
	struct conf_balance_params balance;
	struct conf_cookie cookie;
	struct list persist_rules; /* conf_persist_rule */
	char *dynamic_cookie_key, *name_header; /* NULL: none */
	uint32_t max_ka_queue;
	bool has_max_ka_queue, keeps_no_srv_conns; /* max-session-srv-conns 0 */
	struct conf_check check;
	struct list use_servers;
	struct list stick_rules; /* conf_stick_rule */
	struct expr *rdp_cookie; /* persist rdp-cookie; NULL: no */
	struct conf_names *server_ids; /* with stick rules: conf_server by id, see conf_server_by_id() */
	uint8_t http_reuse; /* enum conf_http_reuse */
	uint8_t state_load; /* enum conf_state_load */
	char *state_file; /* of servers, with STATE_LOAD_LOCAL; NULL or "": the section's name */
	struct conf_outgoing source; /* of connections to servers that have none of their own */
	/* mode l4 */
	uint8_t forward, affinity, track; /* enum conf_forward, conf_affinity, conf_track */
	uint8_t quic_offset, quic_length; /* bytes: server id in connection ids */
	uint64_t learn_window, drain_timeout; /* whole seconds; 1 h, 0: none */
	uint32_t maglev_table_size; /* 0: by itself */
	struct conf_nat nat;
	struct conf_guard guard;
	char *description;
	/* Its defaults section as it was, for conf_explain(): plain values only; NULL: none. */
	const struct conf_proxy *defaults;
	struct conf_names *server_names; /* conf_server by name; see conf_find_server() */
};

/* Where connections to a server come from: its own `source`, or its section's. No server: NULL. */
static inline const struct conf_outgoing *conf_outgoing_of(const struct conf_proxy *be, const struct conf_server *cs)
{
	return cs && cs->source.addr.sa.sa_family ? &cs->source : &be->source;
}

/* --- userlists --------------------------------------------------------------------------------- */

struct conf_userlist {
	struct list link;
	struct conf_pos pos; /* of the section, or of the first use */
	struct expr_userlist list; /* what http_auth() compares with */
	bool is_defined;
};

struct conf {
	struct arena arena;
	struct conf_global global;
	struct list proxies; /* conf_proxy, in order of declaration; without defaults sections */
	unsigned n_proxies;
	bool has_listener; /* any bind, or a peers section …: exit status 2 of -c when not */
	struct list userlists; /* conf_userlist */
	struct list stick_tables; /* conf_stick_table */
	struct list resolvers; /* conf_resolvers */
	struct list rings; /* conf_ring */
	struct list crts; /* conf_crt, of all crt-stores */
	struct pat_refs *pat_refs; /* maps and ACLs that the runtime API may change */
	unsigned n_warnings;
	struct conf_names *frontends, *backends; /* conf_proxy by name; see conf_find_proxy() */
	char **namespaces; /* that server lines name, each once */
	unsigned n_namespaces;
	struct expr_owned *expr_owned; /* what compiled expressions hold outside the arena */
};

/* Index in conf_proxy.errors of a status that may have an errorfile, or -1. */
int conf_error_index(unsigned status);

/* A file's contents in `arena`. 0, -errno with `err`. */
HG_WUR int conf_read_file(struct arena *arena, const char *path, struct str *ret_text,
			  struct err *err);

/* --- loading ----------------------------------------------------------------------------------- */

enum conf_severity { CONF_NOTICE, CONF_WARNING, CONF_ERROR };

/* One finding; `text` ends without newline. Everything about a file is reported, not only the first. */
typedef void conf_report_fn(void *ctx, enum conf_severity sev, const struct conf_pos *pos,
			    const char *text);

struct conf_source {
	const char *const *paths; /* files or directories (their *.cfg, sorted) */
	unsigned n_paths;
	conf_report_fn *report;
	void *report_ctx;
	const char *localpeer; /* -L */
	bool is_master_worker; /* HAPROXY_MWORKER */
};

/*
 * Parses and cross-checks. 0 and *ret_conf (free it with conf_free()), -EINVAL (errors were
 * reported), -ENOMEM. Reads files; blocks. Control thread, before or beside running workers.
 */
HG_WUR int conf_load(const struct conf_source *src, struct conf **ret_conf);
/* The same from memory, one "file". For tests and fuzzing. */
HG_WUR int conf_load_text(struct str text, const char *name, const struct conf_source *src,
			  struct conf **ret_conf);
/*
 * A server line beside the configuration `of` that runs, for its section `px`: words from the name on. *ret_conf holds it
 * and nothing else; *ret_srv->id is the line's, or 1. Findings go to `src`. 0, -EINVAL, -ENOMEM. Control.
 */
HG_WUR int conf_load_server(const struct conf *of, const struct conf_proxy *px, const char *const *words,
			    unsigned n, const struct conf_source *src, struct conf **ret_conf,
			    struct conf_server **ret_srv);
void conf_free(struct conf *c); /* NULL is ignored */

/* -cc: 1 true, 0 false, -EINVAL with `err`. */
int conf_eval_condition(struct str text, struct err *err);
/* What openssl_version_*() and ssllib_name_startswith() compare with, "OpenSSL 3.0.15 …". A string that stays; start-up. */
void conf_set_tls_library(const char *name_and_version);

/* Canonical text of everything that was understood, one fact per line; for tests and `check --explain`. */
void conf_dump(const struct conf *c, FILE *out);
/* What it comes to: order of rules, inherited values, what nobody uses, tiers. */
void conf_explain(const struct conf *c, bool is_json, FILE *out);

struct conf_proxy *conf_find_proxy(const struct conf *c, struct str name, unsigned caps);
/* Gives variables of the process the values of the global section. Control thread. */
void conf_set_proc_vars(const struct conf *c, uint64_t wall_ns);
struct conf_server *conf_find_server(const struct conf_proxy *px, struct str name);
struct conf_server *conf_server_by_id(const struct conf_proxy *px, unsigned id); /* of sections with stick rules */
struct conf_stick_table *conf_find_stick_table(const struct conf *c, struct str name);

/* The keyword tables, for the generated docs and "did you mean". NULL at the end. */
struct conf_keyword_doc {
	const char *name, *sections, *args, *default_value, *help;
	char grade; /* '1', '2', '3' (refused with a message), 'n' (documented no-op) */
};
const struct conf_keyword_doc *conf_keyword_doc(unsigned i);
/* Does conf_load_server() take it on the line? */
bool conf_is_option_of_added(const struct conf_keyword_doc *d);

#endif
