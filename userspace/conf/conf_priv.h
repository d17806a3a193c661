/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the configuration parser share: lines, findings, keyword tables, the parser's state.
 * One parser lives for one conf_load(), on the control thread. Two arenas: `conf->arena` keeps what
 * the result points to (all words of all lines among it), `parser.arena` is freed when loading ends
 * (lines, columns, findings).
 */
#ifndef CONF_CONF_PRIV_H
#define CONF_CONF_PRIV_H

#include "conf/conf.h"

#define CONF_MAX_WORDS	   2048
#define CONF_MAX_LINE	   (1u << 20) /* bytes of one line, also after expansion */
#define CONF_MAX_FILE	   (64u << 20)
#define CONF_MAX_FINDINGS  1000
#define CONF_MAX_NESTED_IF 64
#define CONF_MAX_TEMPLATE  10000 /* servers of one server-template */
/* HTTP/2 is offered in ALPN and accepted in `proto` once the codec is there. */
#define CONF_HAS_H2	    true

/* --- names.c ----------------------------------------------------------------------------------- */

struct conf_names {
	struct arena *arena;
	struct names_slot *slots;
	unsigned mask, n; /* mask + 1 slots, 0 before the first name */
};

HG_WUR struct conf_names *names_new(struct arena *arena);
HG_WUR int names_add(struct conf_names *t, struct str key, void *value); /* 0, -EEXIST, -ENOMEM */
void *names_find(const struct conf_names *t, struct str key); /* NULL: not there */

/* Keeps the nearest of the candidates that are offered to it. */
struct nearest {
	struct str wanted, best;
	unsigned distance;
};
void nearest_init(struct nearest *n, struct str wanted);
void nearest_offer(struct nearest *n, struct str candidate);
void nearest_offer_names(struct nearest *n, const struct conf_names *t);
/* ", did you mean 'x'?" or "" when nothing is near. */
const char *nearest_hint(const struct nearest *n, char out[96]);

/* --- lexer.c ----------------------------------------------------------------------------------- */

struct line {
	struct conf_pos pos; /* of the first word */
	struct str *words; /* each with a NUL behind it, in the configuration's arena */
	uint32_t *columns; /* of each word */
	const char *text; /* what all words lie in */
	uint32_t *map; /* column of each byte of `text` */
	unsigned n;
	unsigned at; /* the next word to read */
	unsigned kw, kw_n; /* words of the keyword, for messages */
	bool is_negated; /* "no …" */
};

struct lexer {
	struct arena *text_arena, *arena;
	/* Value of an environment variable, p NULL when not set. */
	struct str (*getenv)(void *ctx, struct str name);
	void *ctx;
	char *out;
	uint32_t *map;
	size_t n_out, cap_out;
	uint32_t *starts, *columns;
	unsigned n_words, cap_words;
};

void lexer_free(struct lexer *lx);
/*
 * Splits `raw` (without its newline) into ret->words; ret->pos.line and .file are the caller's.
 * 0, -EINVAL with `err` and *ret_column, or -ENOMEM.
 */
HG_WUR int lex_line(struct lexer *lx, struct str raw, struct line *ret, unsigned *ret_column,
		    struct err *err);
/* Expands $NAME and ${NAME} as in an address. p NULL: out of memory, or `err` is filled. */
struct str lex_expand(struct lexer *lx, struct str text, struct err *err);

/* --- cond.c ------------------------------------------------------------------------------------ */

struct cond_env {
	struct str (*getenv)(void *ctx, struct str name);
	void *ctx;
};
/* 1, 0, or -EINVAL with `err` and the offset of what was wrong. */
int cond_text_eval(const struct cond_env *env, struct str text, size_t *ret_error_at,
		   struct err *err);

/* --- keyword tables ---------------------------------------------------------------------------- */

enum section_bits {
	SEC_GLOBAL = 1 << 0,
	SEC_DEFAULTS = 1 << 1,
	SEC_FRONTEND = 1 << 2,
	SEC_LISTEN = 1 << 3,
	SEC_BACKEND = 1 << 4,
	SEC_USERLIST = 1 << 5,
	SEC_BIND = 1 << 6, /* option of a bind line */
	SEC_STATS_SOCKET = 1 << 7, /* option of a `stats socket` line */
	SEC_SERVER = 1 << 8, /* option of a server line */
	SEC_DEFAULT_SERVER = 1 << 9,
	SEC_HTTP_ERRORS = 1 << 10,
	SEC_RESOLVERS = 1 << 11,
	SEC_RING = 1 << 12,
	SEC_CRT_STORE = 1 << 13,
	SEC_LOAD = 1 << 14, /* option of a load line in a crt-store */
};
#define SEC_DFLB (SEC_DEFAULTS | SEC_FRONTEND | SEC_LISTEN | SEC_BACKEND)
#define SEC_DFL	 (SEC_DEFAULTS | SEC_FRONTEND | SEC_LISTEN)
#define SEC_DLB	 (SEC_DEFAULTS | SEC_LISTEN | SEC_BACKEND)
#define SEC_FLB	 (SEC_FRONTEND | SEC_LISTEN | SEC_BACKEND)
#define SEC_FL	 (SEC_FRONTEND | SEC_LISTEN)
#define SEC_LB	 (SEC_LISTEN | SEC_BACKEND)
#define SEC_SRV	 (SEC_SERVER | SEC_DEFAULT_SERVER)

enum arg_type { /* what follows the keyword, and what is at `offset` of the object */
	ARG_FLAG, /* nothing; bool */
	ARG_UINT, /* a number min..max; uint32_t */
	ARG_U16, /* the same; uint16_t */
	ARG_INT, /* the same; int */
	ARG_SIZE, /* bytes with k, m, g; uint32_t */
	ARG_TIME, /* duration, milliseconds by default; uint64_t ns */
	ARG_TIME_S, /* duration, seconds by default */
	ARG_STRING, /* one word; char * */
	ARG_REST, /* all words, joined; char * */
	ARG_ENUM, /* one of `values`; uint8_t */
	ARG_FUNC, /* parse() */
	ARG_SUB, /* a keyword of table `sub` */
	ARG_NOOP, /* accepted for compatibility, whatever follows */
};

enum keyword_flags {
	KW_NO = 1 << 0, /* "no X" is allowed (options of a line: "no-X") */
	KW_LATE = 1 << 1, /* parsed at the end of its section, when mode and names are known */
	KW_PENDING = 1 << 2, /* understood, but nothing acts on it yet: refused */
	KW_EMPTY_OK = 1 << 3, /* ARG_STRING may be "" */
	KW_ONE_WORD = 1 << 4, /* ARG_NOOP that takes exactly one word of a line's options */
	KW_CALL = 1 << 5, /* ARG_FUNC written as "name(argument)", one word: see call_argument() */
};

struct keyword_value {
	struct str name;
	uint8_t value;
};

struct parser;
struct keyword;
struct keyword_table;
typedef int keyword_parse_fn(struct parser *ps, struct line *l, void *obj,
			     const struct keyword *kw);

struct keyword {
	struct str name;
	uint16_t sections; /* enum section_bits */
	uint8_t type; /* enum arg_type */
	uint8_t flags;
	char grade;
	uint32_t offset;
	uint64_t min, max;
	const struct keyword_value *values; /* name.p NULL at the end */
	keyword_parse_fn *parse;
	const struct keyword_table *sub;
	const char *args, *def, *help;
};

/* A keyword that HAProxy once had, and what to write instead. */
struct keyword_removed {
	const char *name, *instead;
};

struct keyword_table {
	const char *what; /* "keyword", "bind option", … */
	const struct keyword *rows;
	unsigned n;
	/* Names only; a '*' at the end matches the rest. NULL at the end. */
	const char *const *noop, *const *pending, *const *refused;
	const struct keyword_removed *removed;
};

#define NAME(lit)	       { lit, sizeof(lit) - 1 }
#define VALUE(lit, v)	       { NAME(lit), v }
#define VALUES_END	       { { NULL, 0 }, 0 }
#define NUMBER(lo, hi)	       .min = (lo), .max = (hi)
#define KEYWORDS(text, r, ...) { .what = text, .rows = r, .n = ARRAY_SIZE(r), __VA_ARGS__ }

extern const struct keyword_table conf_kw_global, conf_kw_global_tls, conf_kw_env, conf_kw_xdp,
	conf_kw_vars, conf_kw_h2, conf_kw_guard;
extern const struct keyword_table conf_kw_proxy, conf_kw_timeout, conf_kw_rate_limit, conf_kw_option, conf_kw_stats;
extern const struct keyword_table conf_kw_l4, conf_kw_nat, conf_kw_balance, conf_kw_check, conf_kw_rules, conf_kw_log;
extern const struct keyword_table conf_kw_bind, conf_kw_server, conf_kw_tls, conf_kw_tls_bind;
extern const struct keyword_table conf_kw_userlist, conf_kw_stick, conf_kw_errors, conf_kw_compression,
	conf_kw_resolvers, conf_kw_server_resolve, conf_kw_ring, conf_kw_crt_store, conf_kw_crt_load, conf_kw_crt_files,
	conf_kw_persist, conf_kw_server_link, conf_kw_bind_link, conf_kw_socket, conf_kw_socket_global, conf_kw_case, conf_kw_filter;

/* `source`: into the struct conf_outgoing at the row's offset (kw_socket.c). */
int conf_parse_source(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
#define CONF_SOURCE_ARGS "<address> [usesrc client|clientip] [interface <name>]"

/* Tables that are searched together, each with the object its rows write to. */
struct scope {
	const struct keyword_table *table;
	void *obj;
};

/* --- the parser -------------------------------------------------------------------------------- */

struct late_line {
	struct list link;
	struct line *line;
	const struct keyword *kw;
	unsigned at;
};

struct format_text { /* a log-format to be compiled when the section's mode is final */
	char *text;
	struct line *line; /* where; NULL: built in */
	unsigned word;
};

/* A proxy while it is built; `px` is what remains. Also every `defaults` section. */
/* dump.c: one row as text; are both values the same and not the language's zero. */
void conf_dump_row(FILE *f, const char *prefix, const struct keyword *kw, const void *obj);
void conf_dump_socket(FILE *f, const struct conf_socket *s); /* kw_link.c */
void conf_dump_server_link(FILE *f, const struct conf_server *s);
bool conf_row_is_same(const struct keyword *kw, const void *a, const void *b);
const char *conf_option_name(unsigned bit); /* "httplog" */

/* What the section's last http-check line but variables and comments was. */
enum http_check_last { HTTP_CHECK_NOTHING, HTTP_CHECK_CONNECT, HTTP_CHECK_SEND, HTTP_CHECK_EXPECT };

struct proxy_build {
	struct conf_proxy px; /* first: rows of the tables use offsets into it */
	struct list link; /* parser.builds */
	struct line *line; /* where the section began */
	const char *kind; /* "frontend" … */
	uint16_t section; /* enum section_bits */
	bool is_named; /* defaults sections */
	bool has_balance; /* written in this section, not inherited */
	bool has_log_global;
	bool has_own_steps; /* http-check/tcp-check lines that are not inherited */
	bool has_own_request; /* the first http-check send */
	uint8_t http_check_last; /* enum http_check_last */
	const struct conf_proxy *frozen; /* copy for those that inherit from this, made at the first */
	struct conf_server default_server;
	struct list late; /* late_line */
	struct list redirects; /* conf_rule: `redirect` runs after http-request */
	uint8_t rank; /* the latest kind of rule seen, for warnings about the order */
	struct format_text log_format, error_log_format, log_format_sd, unique_id;
	struct line *default_backend;
};

struct server_build { /* a server and where its line is */
	struct conf_server srv; /* first */
	struct line *line;
};

struct if_level {
	struct conf_pos pos;
	bool is_active; /* this branch is read */
	bool is_done; /* an earlier branch was, or the whole block is skipped */
	bool has_else;
};

struct finding {
	struct conf_pos pos;
	unsigned file_no, no;
	enum conf_severity sev;
	const char *text;
};

struct stick_use { /* an expression that looks into a stick table */
	struct list link;
	struct table_op *op;
	const struct proxy_build *b;
	struct line *line;
};

struct conf_errors { /* an `http-errors` section */
	struct list link;
	struct conf_pos pos; /* of the section, or of its first use */
	char *name;
	bool is_defined;
	struct conf_reply *replies[CONF_ERROR_CODES]; /* by conf_error_index(); NULL: none */
};

struct errors_use { /* a reply that is one of a section's */
	struct list link;
	struct conf_errors *errors;
	struct conf_reply *reply;
	struct conf_pos pos;
	bool is_required; /* the section has to have this status */
};

struct env_var {
	struct list link;
	struct str name, value; /* value.p NULL: unset */
};

struct parser {
	struct conf *conf;
	const struct conf_source *src;
	struct arena arena;
	struct lexer lexer;
	struct list env; /* env_var: what setenv & co. said, newest first */
	bool is_env_reset; /* resetenv: only env_keep and `env` are visible */
	struct str *env_keep;
	unsigned n_env_keep;
	struct finding *findings;
	unsigned n_findings, cap_findings, n_errors, n_warnings;
	bool is_flooded; /* more than CONF_MAX_FINDINGS */
	bool is_zero_warning;
	bool is_out_of_memory; /* found where it could not be returned */
	/* where we are */
	const char *file;
	unsigned file_no, line_no;
	struct if_level ifs[CONF_MAX_NESTED_IF];
	unsigned n_ifs, n_outer_ifs; /* of this file and those that include it; of those only */
	unsigned n_included; /* files, so far */
	uint8_t default_path; /* enum default_path */
	const char *path_origin; /* of DEFAULT_PATH_ORIGIN */
	const char *main_file; /* the one that is read, not what it includes; NULL: a text */
	struct include *include; /* the line that includes this file, NULL: none */
	/* the section */
	uint16_t section; /* enum section_bits, 0: none yet, or one that is skipped */
	bool is_skipping; /* the rest of a section that was refused */
	const char *section_name;
	struct proxy_build *px;
	struct conf_userlist *userlist;
	/* what there is */
	struct conf_names *guids; /* each once in all files; NULL: none yet */
	struct list builds; /* proxy_build, all but defaults */
	struct list all_defaults;
	struct proxy_build *defaults; /* the latest, NULL before */
	struct conf_names *defaults_names, *userlist_names;
	struct conf_names *stick_names; /* conf_stick_table */
	struct list stick_uses; /* stick_use */
	struct list pattern_edits; /* pattern_edit_use */
	struct list guards; /* guard_use */
	struct conf_names *errors_names; /* conf_errors */
	struct list errors; /* conf_errors */
	struct list errors_uses; /* errors_use */
	struct conf_errors *http_errors; /* the section that is read */
	struct conf_names *resolvers_names; /* conf_resolvers */
	struct conf_resolvers *resolvers; /* the section that is read */
	struct conf_names *ring_names; /* conf_ring */
	struct conf_ring *ring; /* the section that is read */
	struct conf_names *crt_names; /* conf_crt, of all crt-stores */
	struct list crt_stores; /* conf_crt_store */
	struct conf_crt_store *crt_store; /* the section that is read */
};

/* kw_crt_store.c. check_crt_name(): "@…" has to be in one of them. */
HG_WUR int crt_store_open(struct parser *ps, struct line *l);
HG_WUR int finalize_crt_stores(struct parser *ps);
HG_WUR int check_crt_name(struct parser *ps, const struct conf_pos *pos, const char *crt);

/* kw_pattern.c: add-acl and its kin; the word just read names which. And when all is known: do the files exist. */
HG_WUR int parse_pattern_edit(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
			      struct str file, struct conf_rule *rule);
HG_WUR int finalize_patterns(struct parser *ps);
/* kw_guard.c: `xdp deny-file`, what follows `xdp-drop`; and when all is known: is there an interface. */
HG_WUR int guard_note_use(struct parser *ps, struct line *l, unsigned word, const char *what);
HG_WUR int parse_deny_file(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
HG_WUR int parse_guard(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
HG_WUR int parse_ban(struct parser *ps, struct line *l, struct conf_rule *rule, bool is_told);
void dump_guard(FILE *f, const struct conf_global *g);
HG_WUR int parse_section_guard(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
HG_WUR int parse_allow(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
HG_WUR int parse_allow_file(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
void dump_section_guard(FILE *f, const struct conf_guard *g);
/* kw_steer.c */
HG_WUR int parse_steer(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
void dump_steer(FILE *f, const struct conf_global *g);
HG_WUR int parse_sk_steer(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
HG_WUR int finalize_guard(struct parser *ps);
/* kw_syn.c */
int guard_read_rate(struct parser *ps, struct line *l, uint32_t *ret); /* kw_guard.c */
int parse_syn_cookies(struct parser *ps, struct line *l, struct conf_xdp_syn *syn);
int parse_section_cookies(struct parser *ps, struct line *l, struct conf_guard *g);
int finalize_syn_cookies(struct parser *ps);
void dump_syn_cookies(FILE *f, const struct conf_xdp_syn *syn);
/* include.c: `include <pattern>`. 0, -EINVAL (said) or -ENOMEM. */
HG_WUR int include_line(struct parser *ps, struct line *l);
/* parser.c: the lines of one file, within whatever section is open. */
HG_WUR int parser_lines(struct parser *ps, struct str text);

/* report.c. Functions that return int return -EINVAL, or -ENOMEM when not even the report could be kept. */
int conf_fail(struct parser *ps, const struct line *l, unsigned word, const char *fmt, ...)
	HG_PRINTF(4, 5);
int conf_fail_off(struct parser *ps, const struct line *l, unsigned word, size_t off,
		  const char *fmt, ...) HG_PRINTF(5, 6);
int conf_fail_pos(struct parser *ps, const struct conf_pos *pos, const char *fmt, ...)
	HG_PRINTF(3, 4);
int conf_warn(struct parser *ps, const struct line *l, unsigned word, const char *fmt, ...)
	HG_PRINTF(4, 5); /* 0 or -ENOMEM */
int report_at(struct parser *ps, enum conf_severity sev, const struct conf_pos *pos,
	      const char *text);
void report_flush(struct parser *ps); /* sorts and hands everything to the caller's function */
unsigned line_column(const struct line *l, unsigned word, size_t off);

/* args.c: reading the words of a line. 0, or what conf_fail() returned. */
static inline bool line_has(const struct line *l)
{
	return l->at < l->n;
}
static inline struct str line_peek(const struct line *l)
{
	return l->at < l->n ? l->words[l->at] : STR_NULL;
}
/* Is the next word `word`? Then it is taken. */
bool line_accept(struct line *l, const char *word);
HG_WUR int line_want(struct parser *ps, struct line *l, const char *what, struct str *ret);
HG_WUR int line_want_end(struct parser *ps, struct line *l);
HG_WUR int arg_u64(struct parser *ps, struct line *l, uint64_t min, uint64_t max, uint64_t *ret);
HG_WUR int arg_time(struct parser *ps, struct line *l, uint64_t unit, uint64_t *ret);
HG_WUR int arg_size(struct parser *ps, struct line *l, uint64_t *ret);
HG_WUR int arg_value(struct parser *ps, struct line *l, const struct keyword_value *values,
		     uint8_t *ret);
HG_WUR int arg_string(struct parser *ps, struct line *l, const char *what, char **ret);
HG_WUR int arg_endpoint(struct parser *ps, struct line *l, struct endpoint *ret);
HG_WUR int arg_user(struct parser *ps, struct line *l, int *ret_uid);
HG_WUR int arg_group(struct parser *ps, struct line *l, int *ret_gid);
char *line_join(struct parser *ps, const struct line *l,
		unsigned from); /* conf arena; NULL: no memory */
HG_WUR int keyword_apply(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);

/* parser.c */
/* Finds words[at] in the scopes and applies it; `at` is behind the keyword and its arguments then. */
HG_WUR int keyword_dispatch(struct parser *ps, struct line *l, uint16_t section,
			    const struct scope *scopes, unsigned n);
/* All remaining words as options out of the scopes. */
HG_WUR int keyword_options(struct parser *ps, struct line *l, uint16_t section,
			   const struct scope *scopes, unsigned n);
HG_WUR int parser_text(struct parser *ps, struct str text);
/* source.c: the two ends of a load; the second frees the parser, whatever `r` says of what was between. */
HG_WUR int parser_init(struct parser *ps, const struct conf_source *src);
HG_WUR int parser_end(struct parser *ps, int r, struct conf **ret_conf);
HG_WUR int parser_end_section(struct parser *ps);
const char *section_list(uint16_t sections, char out[96]);
/* Of a word found by a row with KW_CALL: what stands in its parentheses. */
struct str call_argument(struct str word);
bool name_pattern_has(const char *const *list, struct str name);

/* directive.c: .if and its kin. */
HG_WUR int directive_line(struct parser *ps, struct line *l);
bool directive_is_active(const struct parser *ps);
HG_WUR int directive_end_of_file(struct parser *ps);

/* env.c */
struct str parser_getenv(void *parser, struct str name);
HG_WUR int parser_setenv(struct parser *ps, struct str name, struct str value);

/* proxy_build.c */
HG_WUR int proxy_open(struct parser *ps, struct line *l, uint16_t section);
/* "userlist NAME": the one word of a section's line. On failure the section is skipped up to the next. */
HG_WUR int section_want_name(struct parser *ps, struct line *l, struct str *ret_name);
HG_WUR int userlist_open(struct parser *ps, struct line *l);
/* Letters, digits and "-_.:", as HAProxy allows in names of sections, servers and ACLs. */
HG_WUR int line_want_name(struct parser *ps, struct line *l, struct str *ret);
void conf_server_init(struct conf_server *s);

/* Compiling with expr, reporting its errors at the right column. `word` is where the text stands. */
HG_WUR int compile_expr(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
			struct expr **ret); /* takes one word */
HG_WUR int compile_expr_text(struct parser *ps, struct proxy_build *b, struct line *l,
			     struct str text, unsigned place, struct expr **ret);
HG_WUR int compile_format(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
			  struct logfmt **ret); /* takes one word */
HG_WUR int compile_text(struct parser *ps, struct proxy_build *b, struct line *l, unsigned word,
			struct str text, unsigned place, struct logfmt **ret);
/* "if …" or "unless …" up to the end of the line, or nothing (*ret NULL). */
HG_WUR int compile_condition(struct parser *ps, struct proxy_build *b, struct line *l,
			     unsigned place, struct cond **ret);
HG_WUR int compile_regex(struct parser *ps, struct proxy_build *b, struct line *l, void **ret);
HG_WUR int compile_acl(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
unsigned ruleset_place(enum conf_ruleset set);

/* kw_*.c: helpers that others use */
HG_WUR int parse_reply(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
		       struct conf_reply *r);
/* What an argument-less answer, or one with a status only, says. */
HG_WUR int reply_check(struct parser *ps, struct line *l, const struct conf_reply *r);
HG_WUR int parse_redirect(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
			  struct conf_redirect *r);
/* kw_expect.c, kw_check.c */
HG_WUR int parse_expect(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
struct conf_check_step *check_new_step(struct parser *ps, void *obj, const struct line *l); /* NULL: no memory */
HG_WUR int http_check_order(struct parser *ps, struct line *l, struct proxy_build *b,
			    enum http_check_last now);
int arg_binary(struct parser *ps, struct line *l, struct str *ret); /* hexadecimal digits */
HG_WUR int arg_server_proto(struct parser *ps, struct line *l, uint8_t *ret); /* kw_server.c: SERVER_PROTO_* */
HG_WUR int arg_alpn(struct parser *ps, struct line *l, struct str *ret); /* kw_tls.c: length-prefixed names */
HG_WUR int parse_check_kind(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
HG_WUR int parse_min_rate(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
HG_WUR int parse_retry_on(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
HG_WUR int parse_action(struct parser *ps, struct proxy_build *b, struct line *l,
			enum conf_ruleset set, struct list *to);
HG_WUR int parse_bind_line(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
/* kw_l4.c: `quic-id` of a server line. */
int parse_quic_id(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
enum server_line { SERVER_LINE, SERVER_LINE_DEFAULT, SERVER_LINE_TEMPLATE }; /* keyword.min */
HG_WUR int parse_server_line(struct parser *ps, struct line *l, void *obj,
			     const struct keyword *kw);
HG_WUR int parse_stats_socket(struct parser *ps, struct line *l, void *obj,
			      const struct keyword *kw);
extern const struct keyword_value conf_log_formats[]; /* kw_log.c: enum log_format */
/* The address of a log server, its name looked up; the endpoint is the last word. */
HG_WUR int log_server_addr(struct parser *ps, struct line *l, const struct endpoint *ep, int socktype,
			   struct addr *ret);
HG_WUR int parse_log_line(struct parser *ps, struct line *l, struct conf_logs *logs);
HG_WUR int parse_httpchk(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
HG_WUR int parse_capture(struct parser *ps, struct line *l, void *obj, const struct keyword *kw);
struct conf_capture *capture_new(struct parser *ps, struct conf_proxy *px, struct str name,
				 uint32_t len, bool is_response);
keyword_parse_fn parse_forwardfor, parse_originalto, parse_forwarded; /* kw_forward.c */
/* Every '%' doubled: a text that is no format as one. */
HG_WUR int escape_percent(struct parser *ps, struct str text, struct str *ret);
/* kw_errors.c: a file's answer into `r`; the next word is its name. */
HG_WUR int parse_reply_file(struct parser *ps, struct line *l, struct conf_reply *r);
/* The next word names an `http-errors` section; which one it is turns out at the end. */
HG_WUR int parse_reply_section(struct parser *ps, struct line *l, struct conf_reply *r);
HG_WUR int errors_open(struct parser *ps, struct line *l);
HG_WUR int finalize_errors(struct parser *ps);
/* kw_resolvers.c */
HG_WUR int resolvers_open(struct parser *ps, struct line *l);
void dump_resolve(FILE *f, const struct conf_resolve *r); /* what a server line says */
void dump_resolvers(FILE *f, const struct conf *c);
HG_WUR int finalize_resolvers(struct parser *ps);
HG_WUR int finalize_server_name(struct parser *ps, struct conf_server *s, struct line *l);
keyword_parse_fn parse_unix_bind; /* kw_bind.c */
HG_WUR int parse_guid(struct parser *ps, struct line *l, void *obj, const struct keyword *kw); /* kw_link.c */
/* The next listener of a line with `guid-prefix`; model->guid is the prefix. */
HG_WUR int guid_of_bind(struct parser *ps, struct line *l, struct conf_bind *model, struct conf_bind *b);
HG_WUR int finalize_server_link(struct parser *ps, struct conf_server *s, struct line *l); /* kw_link.c */
HG_WUR int finalize_unix_bind(struct parser *ps, struct conf_bind *b); /* kw_socket.c */
void dump_sockets(FILE *f, const struct conf_proxy *px);
HG_WUR int finalize_persist(struct parser *ps, struct proxy_build *b); /* kw_persist.c */
/* kw_ring.c */
HG_WUR int ring_open(struct parser *ps, struct line *l);
HG_WUR int parse_log_ring(struct parser *ps, struct line *l, struct log_target *t); /* takes "ring@<name>" */
HG_WUR int finalize_rings(struct parser *ps);
void dump_rings(FILE *f, const struct conf *c);

/* finalize*.c */
HG_WUR int conf_finalize(struct parser *ps);
HG_WUR int finalize_servers(struct parser *ps, struct proxy_build *b);
HG_WUR int finalize_binds(struct parser *ps, struct proxy_build *b);
HG_WUR int finalize_moved(struct parser *ps, struct proxy_build *b);
HG_WUR int finalize_l4(struct parser *ps, struct proxy_build *b);
HG_WUR int finalize_formats(struct parser *ps, struct proxy_build *b);
HG_WUR int finalize_duplicates(struct parser *ps);
HG_WUR int finalize_tracks(struct parser *ps);
HG_WUR int finalize_stick(struct parser *ps);
/* Automatic and written numbers share one space; `taken` holds pointers to them. */
HG_WUR int assign_id(struct parser *ps, struct conf_names *taken, unsigned *id, unsigned *next);
HG_WUR int claim_id(struct parser *ps, struct conf_names *taken, const unsigned *id,
		    const struct conf_pos *pos, const char *what);
/* "base/path", or `path` when it is absolute or special; NULL: no path, or out of memory. */
char *under_base(struct parser *ps, const char *base, char *path);
HG_WUR int merge_tls(struct parser *ps, struct conf_tls *t, const struct conf_tls *def);

#endif
