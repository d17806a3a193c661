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
#include "expr/expr.h"
#include "http/http.h"

struct conf_names; /* hash table of names, see conf_priv.h */

/* Where something was written. */
struct conf_pos {
	const char *file;
	unsigned line, column; /* from 1 */
};

/* --- global ------------------------------------------------------------------------------------ */

struct conf_stats_socket {
	struct list link;
	struct conf_pos pos;
	struct endpoint ep;
	char *text; /* as written */
	uint8_t level; /* enum conf_level */
	bool expose_fd;
	int mode; /* permission bits, -1: default */
	int uid, gid; /* -1: unchanged */
};
enum conf_level { CONF_LEVEL_USER, CONF_LEVEL_OPERATOR, CONF_LEVEL_ADMIN };

enum conf_xdp_mode { CONF_XDP_AUTO, CONF_XDP_NATIVE, CONF_XDP_GENERIC };
struct conf_xdp_interface {
	struct list link;
	struct conf_pos pos;
	char *name;
	uint8_t mode; /* enum conf_xdp_mode */
	bool is_exclusive;
};

struct conf_logs { /* a list of `log` lines, resolved */
	struct log_target *targets;
	unsigned n;
};

/* TLS settings that global, bind and server share. Strings NULL: not set. */
struct conf_tls {
	char *ciphers, *ciphersuites, *curves, *sigalgs;
	char *alpn; /* wire format: length-prefixed names; alpn_len 0: none */
	size_t alpn_len;
	bool has_alpn; /* written, perhaps empty (no-alpn) */
	char *ca_file, *crl_file, *ca_verify_file;
	uint8_t verify; /* enum conf_verify */
	uint16_t min_version, max_version; /* 0x0303 …, 0: library default */
	bool no_tickets, prefer_client_ciphers, strict_sni;
};
enum conf_verify { CONF_VERIFY_UNSET, CONF_VERIFY_NONE, CONF_VERIFY_OPTIONAL, CONF_VERIFY_REQUIRED };

struct conf_cpu_map { /* cpu-map [auto:]<thread-set> <cpu-set>… */
	int cpu_of_thread[256]; /* -1: any; set when cpu-map gives one cpu */
	bool is_set;
};

struct conf_global {
	bool is_daemon, is_master_worker;
	char *pidfile, *chroot, *user, *group, *node, *description, *localpeer;
	int uid, gid; /* -1: not set */
	unsigned nbthread; /* 0: one per usable core */
	struct conf_cpu_map cpu_map;
	uint32_t maxconn; /* 0: from the descriptor limit */
	uint32_t maxconnrate, maxsessrate, maxsslconn, maxsslrate;
	uint32_t ulimit_n;
	struct conf_logs logs;
	char *log_tag, *log_send_hostname;
	struct list stats_sockets; /* conf_stats_socket */
	uint64_t stats_timeout;
	char *ca_base, *crt_base;
	struct conf_tls bind_tls, server_tls; /* ssl-default-bind-*, ssl-default-server-* */
	uint32_t dh_param, ssl_cachesize;
	uint64_t ssl_lifetime;
	uint32_t bufsize, maxrewrite, maxhdr, maxaccept; /* tune.*: 16384, 1024, 101, 64 when unset */
	uint32_t stick_counters; /* tune.stick-counters, 3: track-sc0 … track-sc2 */
	uint64_t hard_stop_after, grace;
	uint32_t spread_checks; /* percent */
	uint64_t max_spread_checks;
	char *server_state_file, *server_state_base;
	/* Headgate's own */
	struct list xdp_interfaces; /* conf_xdp_interface */
	uint64_t xdp_hash_seed;
	char *xdp_bpffs; /* where bpffs is, NULL: /sys/fs/bpf */
};

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
	X(SPLICE_RESPONSE, "splice-response") X(FORWARDED, "forwarded")

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
};
enum conf_hash_type { HASH_MAP_BASED, HASH_CONSISTENT };
enum conf_hash_func { HASH_SDBM, HASH_DJB2, HASH_WT6, HASH_CRC32, HASH_NONE };

struct conf_balance_params {
	uint8_t algo; /* enum conf_balance */
	uint8_t hash_type, hash_func;
	bool has_avalanche;
	uint16_t hash_balance_factor; /* percent, 0: off */
	uint16_t random_draws; /* 2 */
	uint32_t uri_len, uri_depth;
	bool uri_whole, uri_path_only;
	char *name; /* header or parameter */
	bool hdr_use_domain_only;
	uint32_t url_param_check_post;
	struct expr *hash_expr;
};

struct conf_cookie {
	char *name; /* NULL: none */
	bool insert, prefix, rewrite, indirect, nocache, postonly, preserve, httponly, secure, dynamic;
	char *domain, *attr; /* attr: "; SameSite=Lax" … ready to append */
	uint64_t maxidle, maxlife;
};

enum conf_http_reuse { REUSE_NEVER, REUSE_SAFE, REUSE_AGGRESSIVE, REUSE_ALWAYS };

enum conf_check_type { CHECK_TCP, CHECK_HTTP, CHECK_SSL_HELLO, CHECK_SMTP, CHECK_MYSQL, CHECK_PGSQL, CHECK_REDIS,
		       CHECK_TCP_SCRIPT };

enum conf_expect_what { EXPECT_STATUS, EXPECT_RSTATUS, EXPECT_STRING, EXPECT_RSTRING, EXPECT_BINARY, EXPECT_RBINARY,
			EXPECT_HDR, EXPECT_FHDR };
struct conf_expect {
	uint8_t what; /* enum conf_expect_what */
	bool negate;
	char *text; /* string or regular expression */
	size_t text_len;
	struct { uint16_t lo, hi; } *status; /* EXPECT_STATUS */
	unsigned n_status;
	int32_t min_recv; /* -1: none */
};
struct conf_check_step { /* one line of a check script, in order */
	struct list link;
	struct conf_pos pos;
	enum { STEP_CONNECT, STEP_SEND, STEP_EXPECT, STEP_COMMENT } kind;
	struct conf_expect expect;
	struct str send; /* bytes to send, whole (HTTP: request line, fields and body) */
	uint16_t port; /* connect: 0 = the server's check port */
	bool ssl, send_proxy, linger;
	char *sni, *alpn, *comment;
};
struct conf_check { /* of a proxy */
	uint8_t type; /* enum conf_check_type */
	char *method, *uri, *version, *host; /* option httpchk */
	struct str headers; /* http-check send hdr: "Name: value\r\n"… */
	struct str body;
	struct list steps; /* conf_check_step; for CHECK_HTTP only expects, none = 2xx and 3xx pass */
	bool disable_on_404, send_state;
	char *user; /* mysql-check, pgsql-check */
};

/*
 * What a stick table may keep for each key, in the order in which `show table` prints it. A value is one
 * number, a rate a sliding count over a period; arrays have a length of their own.
 */
enum conf_stick_type { STICK_IP, STICK_IPV6, STICK_INTEGER, STICK_STRING, STICK_BINARY };
#define CONF_STICK_DATA(X)                                                               \
	X(SERVER_ID, "server_id", VALUE) X(GPT0, "gpt0", VALUE) X(GPC0, "gpc0", VALUE)   \
	X(GPC0_RATE, "gpc0_rate", RATE) X(CONN_CNT, "conn_cnt", VALUE)                   \
	X(CONN_RATE, "conn_rate", RATE) X(CONN_CUR, "conn_cur", VALUE)                   \
	X(SESS_CNT, "sess_cnt", VALUE) X(SESS_RATE, "sess_rate", RATE)                   \
	X(HTTP_REQ_CNT, "http_req_cnt", VALUE) X(HTTP_REQ_RATE, "http_req_rate", RATE)   \
	X(HTTP_ERR_CNT, "http_err_cnt", VALUE) X(HTTP_ERR_RATE, "http_err_rate", RATE)   \
	X(BYTES_IN_CNT, "bytes_in_cnt", VALUE) X(BYTES_IN_RATE, "bytes_in_rate", RATE)   \
	X(BYTES_OUT_CNT, "bytes_out_cnt", VALUE) X(BYTES_OUT_RATE, "bytes_out_rate", RATE) \
	X(GPC1, "gpc1", VALUE) X(GPC1_RATE, "gpc1_rate", RATE)                           \
	X(HTTP_FAIL_CNT, "http_fail_cnt", VALUE) X(HTTP_FAIL_RATE, "http_fail_rate", RATE) \
	X(GPT, "gpt", VALUES) X(GPC, "gpc", VALUES) X(GPC_RATE, "gpc_rate", RATES)
enum conf_stick_data {
#define X(name, text, kind) STICK_DATA_##name,
	CONF_STICK_DATA(X)
#undef X
	STICK_DATA_COUNT
};
enum conf_stick_kind { STICK_KIND_VALUE, STICK_KIND_RATE, STICK_KIND_VALUES, STICK_KIND_RATES };
#define CONF_STICK_KEY_MAX	1024 /* bytes of a key */
#define CONF_STICK_ARRAY_MAX	100
#define CONF_STICK_COUNTERS_MAX 12 /* tune.stick-counters */
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

/* One `http-request`, `http-response`, `tcp-request` … line. */
enum conf_ruleset {
	RULES_TCP_CONNECTION, RULES_TCP_SESSION, RULES_TCP_CONTENT, RULES_TCP_RESPONSE, RULES_HTTP_REQUEST,
	RULES_HTTP_RESPONSE, RULES_HTTP_AFTER_RESPONSE, RULES_COUNT,
};
#define CONF_ACTIONS(X)                                                                  \
	X(ACCEPT, "accept") X(ALLOW, "allow") X(DENY, "deny") X(REJECT, "reject")        \
	X(TARPIT, "tarpit") X(SILENT_DROP, "silent-drop") X(RETURN, "return")            \
	X(REDIRECT, "redirect") X(AUTH, "auth") X(SET_HEADER, "set-header")              \
	X(ADD_HEADER, "add-header") X(DEL_HEADER, "del-header")                          \
	X(REPLACE_HEADER, "replace-header") X(REPLACE_VALUE, "replace-value")            \
	X(SET_PATH, "set-path") X(SET_PATHQ, "set-pathq") X(SET_QUERY, "set-query")      \
	X(SET_URI, "set-uri") X(SET_METHOD, "set-method") X(REPLACE_PATH, "replace-path") \
	X(REPLACE_PATHQ, "replace-pathq") X(REPLACE_URI, "replace-uri")                  \
	X(SET_STATUS, "set-status") X(SET_VAR, "set-var") X(SET_VAR_FMT, "set-var-fmt")  \
	X(UNSET_VAR, "unset-var") X(SET_SRC, "set-src") X(SET_SRC_PORT, "set-src-port")  \
	X(SET_DST, "set-dst") X(SET_DST_PORT, "set-dst-port") X(CAPTURE, "capture")      \
	X(TRACK_SC, "track-sc") X(SC_INC_GPC, "sc-inc-gpc") X(SC_SET_GPT, "sc-set-gpt")  \
	X(SET_LOG_LEVEL, "set-log-level") X(USE_SERVICE, "use-service")                  \
	X(EXPECT_PROXY, "expect-proxy") X(SET_NICE, "set-nice") X(SET_TIMEOUT, "set-timeout") \
	X(XDP_DROP, "xdp-drop") X(WAIT_FOR_BODY, "wait-for-body")

enum conf_action_kind {
#define X(name, text) ACTION_##name,
	CONF_ACTIONS(X)
#undef X
	ACTION_COUNT
};

struct conf_reply { /* deny, return, tarpit, errorfile, http-error, monitor-uri */
	uint16_t status;
	char *content_type;
	struct logfmt *body; /* NULL: the status's own text */
	struct str raw; /* errorfile: a whole HTTP answer, sent as it is; p NULL: none */
	struct list headers; /* conf_reply_header */
};
struct conf_reply_header {
	struct list link;
	char *name;
	struct logfmt *value;
};

enum conf_redirect_kind { REDIRECT_LOCATION, REDIRECT_PREFIX, REDIRECT_SCHEME };
struct conf_redirect {
	uint8_t kind;
	uint16_t code; /* 302 */
	struct logfmt *to;
	bool drop_query, append_slash, ignore_empty;
	char *set_cookie; /* whole value of Set-Cookie */
};

struct conf_rule {
	struct list link;
	struct conf_pos pos;
	uint8_t action; /* enum conf_action_kind */
	struct cond *cond; /* NULL: always */
	char *name; /* header, variable, table, realm, service … */
	struct logfmt *fmt; /* value */
	struct expr *expr; /* set-var, track-sc key, capture sample */
	char *regex; /* replace-*: pattern; compiled form in `re` */
	void *re; /* struct regex */
	uint8_t match; /* del-header -m: enum conf_match */
	uint8_t var_scope;
	uint32_t var_id;
	uint32_t index; /* sc index, capture id, gpc index */
	uint32_t number;
	struct conf_reply *reply;
	struct conf_redirect *redirect;
	struct conf_stick_table *table; /* track-sc */
	uint32_t counter; /* sc-inc-gpc(idx,sc), sc-set-gpt(idx,sc): idx; `index` is sc */
	char *text; /* the line as understood, words joined by one space */
};
enum conf_match { MATCH_STR, MATCH_BEG, MATCH_END, MATCH_SUB, MATCH_REG };

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
	char *crt_list, *default_crt;
	bool accept_proxy, transparent, v4v6, v6only, defer_accept, tfo;
	char *interface;
	uint32_t maxconn, backlog;
	int mode, uid, gid; /* unix sockets; -1: unset */
	uint8_t level;
	enum { BIND_PROTO_AUTO, BIND_PROTO_H1, BIND_PROTO_H2 } proto;
};

enum conf_on_error { ON_ERROR_FAIL_CHECK, ON_ERROR_FASTINTER, ON_ERROR_SUDDEN_DEATH, ON_ERROR_MARK_DOWN };

struct conf_server {
	struct list link;
	struct conf_proxy *proxy;
	struct conf_pos pos;
	char *name;
	unsigned id; /* svid, from 1 in order of declaration */
	struct endpoint ep;
	char *text; /* address as written */
	bool is_disabled, is_backup, has_check, has_agent;
	uint32_t weight; /* 0..256, default 1 */
	uint32_t maxconn, minconn, maxqueue;
	uint64_t inter, fastinter, downinter; /* 2 s; 0 = same as inter */
	uint32_t rise, fall; /* 2, 3 */
	struct endpoint check_ep; /* check addr/port; kind IP with family 0: same as the server's */
	bool has_check_addr;
	uint16_t check_port; /* 0: the server's */
	bool check_ssl, check_send_proxy;
	char *check_sni, *check_alpn;
	char *cookie;
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
	uint8_t send_proxy; /* 0, 1, 2 */
	uint32_t pool_max_conn; /* UINT32_MAX: no limit */
	uint64_t pool_purge_delay; /* 5 s */
	uint32_t max_reuse;
	enum { SERVER_PROTO_AUTO, SERVER_PROTO_H1, SERVER_PROTO_H2 } proto;
	char *redir, *agent_send;
	struct endpoint agent_ep;
	uint16_t agent_port;
	uint64_t agent_inter;
	uint32_t pos_in_backend; /* 0, 1, … */
};

enum conf_forward { FORWARD_NONE, FORWARD_IPIP, FORWARD_GUE, FORWARD_L2, FORWARD_NAT };
enum conf_affinity { AFFINITY_FLOW, AFFINITY_SOURCE, AFFINITY_NONE, AFFINITY_QUIC_CID };

struct conf_capture {
	struct list link;
	char *name;
	uint32_t len;
	bool is_response;
	unsigned index;
};

struct conf_timeouts {
	uint64_t client, server, connect, http_request, http_keep_alive, queue, check, tunnel, client_fin,
		server_fin, tarpit, client_hs;
};

struct conf_stats_auth { /* one `stats auth user:password` */
	struct list link;
	char *user, *password;
};
struct conf_stats_page {
	bool is_enabled;
	char *uri, *realm; /* "/haproxy?stats" */
	struct list auths; /* conf_stats_auth */
	uint64_t refresh;
	bool hide_version, show_legends, show_node;
	char *desc, *node; /* node NULL: global's, or the host's name */
	struct cond *admin_if;
	bool has_admin;
};

#define CONF_ERROR_CODES 18
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
	uint32_t maxconn, fullconn, backlog, rate_limit_sessions;
	uint32_t retries; /* 3 */
	int32_t redispatch_interval; /* -1: last retry */
	struct conf_logs logs;
	bool has_log;
	char *log_tag;
	struct logfmt *log_format, *error_log_format; /* log_format NULL: none (connect log) */
	char *log_format_text;
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
	struct conf_stick_table *stick_table; /* NULL: none */
	uint64_t inspect_delay;
	char *forwardfor_header; /* "X-Forwarded-For" */
	struct addr_prefix forwardfor_except;
	bool has_forwardfor_except, forwardfor_if_none;
	struct conf_reply *errors[CONF_ERROR_CODES]; /* by conf_error_index(); NULL: built in */
	struct conf_stats_page stats;
	/* backend side */
	struct list servers; /* conf_server */
	unsigned n_servers;
	struct conf_balance_params balance;
	struct conf_cookie cookie;
	struct conf_check check;
	struct list use_servers;
	struct list stick_rules; /* conf_stick_rule */
	struct conf_names *server_ids; /* with stick rules: conf_server by id, see conf_server_by_id() */
	uint8_t http_reuse; /* enum conf_http_reuse */
	struct addr source; /* family 0: the kernel's choice */
	bool source_client; /* usesrc client/clientip: transparent */
	bool source_client_port;
	char *source_interface;
	/* mode l4 */
	uint8_t forward, affinity; /* enum conf_forward, conf_affinity */
	uint32_t maglev_table_size; /* 0: by itself */
	char *description;
	struct conf_names *server_names; /* conf_server by name; see conf_find_server() */
};

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
	unsigned n_warnings;
	struct conf_names *frontends, *backends; /* conf_proxy by name; see conf_find_proxy() */
	struct expr_owned *expr_owned; /* what compiled expressions hold outside the arena */
};

/* Index in conf_proxy.errors of a status that may have an errorfile, or -1. */
int conf_error_index(unsigned status);

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
void conf_free(struct conf *c); /* NULL is ignored */

/* -cc: 1 true, 0 false, -EINVAL with `err`. */
int conf_eval_condition(struct str text, struct err *err);
/* What openssl_version_*() and ssllib_name_startswith() compare with, "OpenSSL 3.0.15 …". A string that stays; start-up. */
void conf_set_tls_library(const char *name_and_version);

/* Canonical text of everything that was understood, one fact per line; for tests and `check --explain`. */
void conf_dump(const struct conf *c, FILE *out);

struct conf_proxy *conf_find_proxy(const struct conf *c, struct str name, unsigned caps);
struct conf_server *conf_find_server(const struct conf_proxy *px, struct str name);
struct conf_server *conf_server_by_id(const struct conf_proxy *px, unsigned id); /* of sections with stick rules */
struct conf_stick_table *conf_find_stick_table(const struct conf *c, struct str name);
/* "gpc0_rate"; and what it is. */
struct str conf_stick_data_name(enum conf_stick_data d);
enum conf_stick_kind conf_stick_data_kind(enum conf_stick_data d);
const char *conf_stick_type_name(enum conf_stick_type t); /* "ip" */

/* The keyword tables, for the generated docs and "did you mean". NULL at the end. */
struct conf_keyword_doc {
	const char *name, *sections, *args, *default_value, *help;
	char grade; /* '1', '2', '3' (refused with a message), 'n' (documented no-op) */
};
const struct conf_keyword_doc *conf_keyword_doc(unsigned i);

#endif
