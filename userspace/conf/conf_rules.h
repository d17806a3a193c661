/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rules as the configuration keeps them: actions, answers of our own, redirects. Part of conf/conf.h, which
 * includes it behind what it needs; nobody else does.
 */
#ifndef CONF_CONF_RULES_H
#define CONF_CONF_RULES_H

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
	X(XDP_DROP, "xdp-drop") X(XDP_RESET, "xdp-reset") X(WAIT_FOR_BODY, "wait-for-body") X(DISABLE_L7_RETRY, "disable-l7-retry") \
	X(SET_MARK, "set-mark") X(SET_TOS, "set-tos") \
	X(PAUSE, "pause") X(SET_PRIORITY_CLASS, "set-priority-class") X(SET_PRIORITY_OFFSET, "set-priority-offset") \
	X(EDIT_PATTERN, "add-acl") X(SET_RETRIES, "set-retries") \
	X(CLOSE, "close") X(SET_BANDWIDTH_LIMIT, "set-bandwidth-limit") \
	X(STRICT_MODE, "strict-mode") X(EARLY_HINT, "early-hint")

enum conf_action_kind {
#define X(name, text) ACTION_##name,
	CONF_ACTIONS(X)
#undef X
	ACTION_COUNT
};

enum conf_reply_kind {
	REPLY_OWN, /* made of `headers`, `content_type` and `body`; empty without */
	REPLY_DEFAULT, /* what the section says about `status`: errorfiles, http-error, or the text built in */
	REPLY_FILE, /* `file` and `file_body` */
	REPLY_SILENT, /* an empty file: the connection is closed without a word */
	REPLY_SECTION, /* of an `http-errors` section; after loading: it has none, see `otherwise` */
};
struct conf_reply { /* deny, return, tarpit, errorfile, http-error, monitor-uri */
	uint8_t kind; /* enum conf_reply_kind */
	uint16_t status;
	char *content_type;
	struct logfmt *body; /* NULL: none */
	struct list headers; /* conf_reply_header */
	struct http_msg *file; /* head of an answer that was read from a file; fields without framing */
	struct str file_body;
	const struct conf_reply *otherwise; /* REPLY_SECTION: what stood there before; NULL: built in */
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
	bool drop_query, keep_query, append_slash, ignore_empty;
	char *set_cookie; /* whole value of Set-Cookie */
	struct logfmt *cookie_fmt; /* set-cookie-fmt: the same as a format */
};

/* add-acl, del-acl, set-map, del-map */
enum conf_pattern_kind { PATTERN_ADD, PATTERN_DEL, PATTERN_SET };
struct conf_pattern_edit {
	uint8_t kind;
	bool is_map;
	struct str file;
	struct logfmt *key, *value; /* value: PATTERN_SET only */
};

struct conf_ban { /* xdp-drop, xdp-reset */
	bool is_told; /* xdp-reset: its TCP gets an RST for every packet */
	uint64_t ttl_ns; /* 0: until it is lifted */
	uint8_t bits[2]; /* of the prefix, by family: IPv4, IPv6 */
};

struct conf_bwlim { /* filter bwlim-in, bwlim-out */
	struct list link;
	struct conf_pos pos;
	char *name;
	bool is_in; /* of what the client sends */
	uint64_t limit; /* bytes in each `period_ms` */
	uint32_t period_ms;
	uint32_t min_size; /* bytes that go at a time */
	struct expr *key; /* shared by streams with the same key; NULL: each stream has its own */
	char *table_name; /* NULL: the section's */
	struct conf_stick_table *table;
};
struct conf_bwlim_use { /* set-bandwidth-limit */
	char *name;
	const struct conf_bwlim *filter;
	uint64_t limit; /* 0: the filter's, or `limit_expr` */
	uint32_t period_ms; /* the same */
	struct expr *limit_expr, *period_expr;
};
/* A longer period is this long. */
#define BWLIM_PERIOD_MAX_MS (24u * 86400 * 1000)

struct conf_rule {
	struct list link;
	struct conf_pos pos;
	uint8_t action; /* enum conf_action_kind */
	struct cond *cond; /* NULL: always */
	char *name; /* header, variable, table, realm, service … */
	struct http_header_name header; /* set-header, add-header */
	struct logfmt *fmt; /* value */
	struct expr *expr; /* set-var, track-sc key, capture sample */
	char *regex; /* replace-*: pattern; compiled form in `re` */
	void *re; /* struct regex */
	uint8_t match; /* del-header -m: enum conf_match */
	uint8_t var_scope, var_conds; /* set-var(name,cond): see var_cond_parse() */
	uint32_t var_id;
	uint32_t index; /* sc index, capture id, gpc index */
	uint32_t number; /* … wait-for-body: at-least */
	uint64_t wait_ns; /* wait-for-body, pause */
	struct conf_reply *reply;
	struct conf_redirect *redirect;
	struct conf_stick_table *table; /* track-sc */
	struct conf_pattern_edit *pattern;
	struct conf_ban *ban; /* xdp-drop, xdp-reset */
	struct conf_bwlim_use *bwlim; /* set-bandwidth-limit */
	uint32_t counter; /* sc-inc-gpc(idx,sc), sc-set-gpt(idx,sc): idx; `index` is sc */
	char *text; /* the line as understood, words joined by one space */
	bool is_inherited; /* of the defaults section */
};
/* A longer pause is this long. */
#define PAUSE_MAX_MS INT32_MAX

enum conf_match { MATCH_STR, MATCH_BEG, MATCH_END, MATCH_SUB, MATCH_REG };

#endif
