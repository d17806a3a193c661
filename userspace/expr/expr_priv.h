/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of expr/ share: the tables of fetches and converters, their arguments, pattern sets,
 * regular expressions, small writers. Compiling happens on the control thread with memory of the
 * snapshot's arena; everything that takes a `struct eval` runs on workers.
 */
#ifndef EXPR_EXPR_PRIV_H
#define EXPR_EXPR_PRIV_H

#include <errno.h>
#include <stdio.h>
#include <sys/types.h>

#include "expr/expr.h"

/* --- evaluation -------------------------------------------------------------------------------- */

/*
 * One evaluation. An ACL looks at every value of a multi-valued fetch (list items of a field, all
 * cookies of a name): it sets is_iterating and calls again while the fetch sets has_more; the fetch
 * keeps its place in it[].
 */
struct eval {
	const struct subject *s;
	struct arena *arena;
	bool is_iterating, has_more;
	bool may_change; /* the value is only that of the bytes seen so far */
	uint32_t it[2];
	const struct regex *matched; /* by the last lookup in regular expressions that found something */
};

#define TYPE_ANY  0xff /* input: taken as it is; output: only known at run time */
#define TYPE_SAME 0xfe /* output of a converter: the type of its input */

#define PLACES_ANY \
	(PLACE_CONN | PLACE_CONTENT | PLACE_REQ | PLACE_RSP | PLACE_LOG | PLACE_CHECK | PLACE_INIT)
#define PLACES_CONN    (PLACE_CONN | PLACE_CONTENT | PLACE_REQ | PLACE_RSP | PLACE_LOG | PLACE_CHECK)
#define PLACES_CONTENT (PLACE_CONTENT | PLACE_REQ | PLACE_RSP)
#define PLACES_REQ     (PLACE_CONTENT | PLACE_REQ | PLACE_RSP | PLACE_LOG)
#define PLACES_RSP     (PLACE_RSP | PLACE_LOG | PLACE_CHECK)

/* --- arguments --------------------------------------------------------------------------------- */

enum arg_type {
	ARG_NONE, /* optional and not given, or given empty */
	ARG_STR,
	ARG_INT,
	ARG_VAR,
	ARG_ADDR, /* a netmask */
	ARG_PTR, /* what the entry's check function made of it */
};

struct expr_arg {
	uint8_t type; /* enum arg_type */
	uint8_t scope; /* ARG_VAR: enum var_scope */
	uint32_t at; /* offset in the expression's text */
	struct str str; /* the text of every argument, unquoted, NUL-terminated */
	union {
		int64_t num;
		uint32_t var;
		struct addr addr;
		void *ptr;
	};
};

#define EXPR_ARGS_MAX 10

/*
 * The `sig` of a table row, one letter per argument, those behind '[' optional:
 *   s text   i integer   t time (ms)   m IPv4 netmask   n IPv6 prefix length   v variable
 *   x integer or variable
 */
struct fn_check {
	struct expr_env *env;
	const char *name;
	unsigned kw; /* of the row */
	unsigned n_args;
	struct expr_arg *args;
	size_t error_at; /* may be moved by the check */
};
typedef int (*check_fn)(struct fn_check *c, struct err *err);
typedef int (*fetch_fn)(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *ret);
typedef int (*conv_fn)(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *smp);

struct fetch_def {
	struct expr_doc doc;
	const char *sig;
	uint8_t out; /* enum sample_type or TYPE_ANY */
	unsigned kw;
	fetch_fn fn;
	check_fn check; /* may be NULL */
};

struct conv_def {
	struct expr_doc doc;
	const char *sig;
	uint8_t in, out;
	unsigned kw;
	conv_fn fn;
	check_fn check;
};

/*
 * Rows of the tables, types by the last part of their names (BOOL, SINT, ADDR, STR, BIN, METH, ANY, SAME):
 *   F(name, args, sig, out, places, kw, fn, check, help)   C(name, args, sig, in, out, kw, fn, check, help)
 */
#define F(n, a, sg, o, pl, k, f, ch, h) { { n, a, TNAME_##o, h, pl }, sg, TNUM_##o, k, f, ch }
#define C(n, a, sg, i, o, k, f, ch, h) \
	{ { n, a, TNAME_##i " -> " TNAME_##o, h, PLACES_ANY }, sg, TNUM_##i, TNUM_##o, k, f, ch }
#define TNAME_BOOL "boolean"
#define TNAME_SINT "integer"
#define TNAME_ADDR "address"
#define TNAME_STR  "string"
#define TNAME_BIN  "binary"
#define TNAME_METH "method"
#define TNAME_ANY  "any"
#define TNAME_SAME "same"
#define TNUM_BOOL  SAMPLE_BOOL
#define TNUM_SINT  SAMPLE_SINT
#define TNUM_ADDR  SAMPLE_ADDR
#define TNUM_STR   SAMPLE_STR
#define TNUM_BIN   SAMPLE_BIN
#define TNUM_METH  SAMPLE_METH
#define TNUM_ANY   TYPE_ANY
#define TNUM_SAME  TYPE_SAME

struct fetch_table {
	const struct fetch_def *defs;
	unsigned n;
};
struct conv_table {
	const struct conv_def *defs;
	unsigned n;
};
extern const struct fetch_table fetch_conn_table, fetch_http_table, fetch_field_table,
	fetch_internal_table, fetch_tls_table, fetch_payload_table, fetch_stick_table,
	fetch_stream_table, fetch_rdp_table;
extern const struct conv_table conv_text_table, conv_num_table, conv_code_table, conv_hash_table,
	conv_misc_table, conv_map_table, conv_stick_table, conv_web_table,
	conv_json_table, conv_sign_table, conv_forwarded_table, conv_stream_table;

const struct fetch_def *fetch_find(struct str name);
const struct conv_def *conv_find(struct str name);

/* These ACLs are part of others now: no line may be added to them. acl.c */
void acl_set_seal(struct acl_set *set, const struct str *names, unsigned n);

/* --- compiling --------------------------------------------------------------------------------- */

struct conv_step {
	const struct conv_def *def;
	struct expr_arg *args;
};

struct expr {
	const struct fetch_def *fetch;
	struct expr_arg *args;
	struct conv_step *convs;
	unsigned n_convs;
	uint8_t out; /* enum sample_type or TYPE_ANY */
	struct str text;
};

/*
 * Compiles the expression at the start of `text` and stops at the first byte that cannot belong to
 * it: *ret_used. `fetch` (may be NULL) replaces the lookup of the first name: `hdr_beg` is `hdr`.
 */
HG_WUR int expr_compile_prefix(struct expr_env *env, struct str text, const struct fetch_def *fetch,
			       struct expr **ret_expr, size_t *ret_used, size_t *ret_error_at,
			       struct err *err);
HG_WUR int expr_run(struct eval *ev, const struct expr *e, struct sample *ret);
struct str expr_name_at(struct str text); /* the leading bytes that can be a name */

/* "(a,b)" at the start of text; *ret_used 0 when there is no parenthesis. */
HG_WUR int args_parse(struct expr_env *env, const char *what, const char *name, const char *sig,
		      struct str text, struct expr_arg **ret_args, unsigned *ret_n,
		      size_t *ret_used, size_t *ret_error_at, struct err *err);
HG_WUR int arg_parse_var(struct expr_arg *a, struct err *err);

/* The nearest of `n` names gathered by calls of near_add(); "" or ", did you mean 'x'?" */
struct near {
	struct str want, best;
	unsigned distance;
};
void near_add(struct near *n, struct str name);
const char *near_text(const struct near *n, char *out, size_t size);

/* --- samples ----------------------------------------------------------------------------------- */

#define NUM_TEXT_MAX 24
size_t fmt_u64(char *out, uint64_t v); /* no NUL; at most 20 */
size_t fmt_i64(char *out, int64_t v);

static inline void sample_set_int(struct sample *s, int64_t v)
{
	s->type = SAMPLE_SINT;
	s->is_const = false;
	s->sint = v;
}

static inline void sample_set_bool(struct sample *s, bool v)
{
	s->type = SAMPLE_BOOL;
	s->is_const = false;
	s->sint = v;
}

static inline void sample_set_str(struct sample *s, enum sample_type type, struct str v)
{
	s->type = (uint8_t)type;
	s->is_const = true;
	s->str = v;
}

bool sample_is_castable(unsigned from, unsigned to);
/* Leading integer of a text, saturating; no digits: 0. */
int64_t str_leading_int(struct str s);
/* The integer an argument of kind x stands for: -ENOENT when its variable is not set. */
HG_WUR int arg_int(const struct eval *ev, const struct expr_arg *a, int64_t *ret);
/* Room in the arena of this evaluation; NULL: out of memory. */
static inline char *eval_alloc(struct eval *ev, size_t n)
{
	return arena_alloc(ev->arena, n ? n : 1);
}

/*
 * `drop(thing)` is called when the configuration is freed; without env->owned never. -ENOMEM: it is still
 * the caller's. Control thread.
 */
HG_WUR int expr_own(struct expr_env *env, void *thing, void (*drop)(void *thing));

/* --- regular expressions ----------------------------------------------------------------------- */

struct regex;
HG_WUR int regex_compile(struct expr_env *env, struct str pattern, bool icase, struct regex **ret,
			 struct err *err);
bool regex_is_match(const struct regex *re, struct str subject);
/* Pairs of offsets of the first match at or after `from`; returns the number of pairs, 0: none. */
#define REGEX_PAIRS 10
unsigned regex_find(const struct regex *re, struct str subject, size_t from,
		    size_t ret_pairs[REGEX_PAIRS * 2]);

/* --- pattern sets ------------------------------------------------------------------------------ */

enum match {
	MATCH_FOUND,
	MATCH_BOOL,
	MATCH_INT,
	MATCH_IP,
	MATCH_BIN,
	MATCH_LEN,
	MATCH_STR,
	MATCH_BEG,
	MATCH_SUB,
	MATCH_DIR,
	MATCH_DOM,
	MATCH_END,
	MATCH_REG,
	MATCH_REGM, /* the same; map_regm fills the value in from the match */
	MATCH_COUNT,
};
const char *match_name(enum match m);
int match_from_name(struct str name); /* enum match or -1 */
unsigned match_input(enum match m); /* enum sample_type the sample is cast to, or TYPE_ANY */

enum int_op {
	OP_EQ,
	OP_GE,
	OP_GT,
	OP_LE,
	OP_LT
};
struct pat_entry {
	struct str text;
	uint8_t op; /* enum int_op, MATCH_INT and MATCH_LEN */
	uint32_t line; /* of a file, from 1; 0: from the command line */
};

struct patset;
/* *ret_bad: index of the entry that is wrong. The texts must live as long as the set. */
HG_WUR int patset_build(struct expr_env *env, enum match m, bool icase, const struct pat_entry *e,
			unsigned n, struct patset **ret, unsigned *ret_bad, struct err *err);
/* Index of the entry that matches (the first or most specific one), -ENOENT, -ENOMEM. */
int patset_find(const struct patset *p, struct eval *ev, struct sample *smp);

/* Engines of patset.c; see there. */
struct pat_ranges;
struct pat_tree;
struct pat_hash;
struct pat_range {
	unsigned __int128 lo, hi;
	uint32_t rank; /* among ranges that overlap the lowest rank wins */
	uint32_t index;
};
HG_WUR int pat_ranges_build(struct arena *arena, const struct pat_range *r, unsigned n,
			    struct pat_ranges **ret);
int pat_ranges_find(const struct pat_ranges *p, unsigned __int128 key);
HG_WUR int pat_hash_build(struct arena *arena, const struct str *keys, unsigned n,
			  struct pat_hash **ret);
int pat_hash_find(const struct pat_hash *p, struct str key);
HG_WUR int pat_tree_build(struct arena *arena, const struct str *keys, unsigned n,
			  struct pat_tree **ret);
enum tree_want {
	TREE_LONGEST,
	TREE_FIRST
};
/* The key that is a prefix of s: the longest one, or the one that was given first. */
int pat_tree_prefix(const struct pat_tree *p, struct str s, enum tree_want want);
int pat_tree_sub(const struct pat_tree *p, struct str s); /* anywhere in s; the one given first */
int pat_tree_word(const struct pat_tree *p, struct str s, const char *delims); /* whole words */

unsigned patset_weight(const struct patset *p, struct str key); /* of two that match the heavier one counts */

/* --- lists that can change: pat_ref.c, pat_view.c ---------------------------------------------- */

/* What a map gives; the text is read when it is asked for. */
enum pat_out {
	PAT_OUT_STR,
	PAT_OUT_INT,
	PAT_OUT_IP
};
/* Where the patterns of an ACL or a map come from: a file, or words of the configuration. */
struct pat_source {
	struct str file; /* p NULL: `entries` */
	const struct pat_entry *entries;
	unsigned n;
	bool is_map, is_acl;
	const char *fetch; /* for people: what the ACL looks at */
	uint32_t id; /* -u, or UINT32_MAX */
};
struct pat_user;
struct pat_elem;
/* Control. *ret_bad: which of `entries` is wrong; unchanged when it is a line of a file (`err` names it). */
HG_WUR int pat_user_new(struct expr_env *env, const struct pat_source *src, enum match match,
			bool icase, enum pat_out out, struct pat_user **ret, unsigned *ret_bad,
			struct err *err);
/* 0, -ENOENT or -ENOMEM. The entry is valid until the evaluation ends. Any thread. */
int pat_user_find(const struct pat_user *u, struct eval *ev, struct sample *smp,
		  const struct pat_elem **ret);

/* Lines of a pattern file or map: entries, and for maps the values behind the first blank. */
struct pat_file {
	struct pat_entry *entries;
	struct str *values; /* NULL for ACL files */
	unsigned n;
};
HG_WUR int pat_file_read(struct expr_env *env, struct str path, bool is_map, struct pat_file *ret,
			 struct err *err);

HG_WUR int vars_proc_make(uint32_t id, struct err *err); /* control thread */
bool vars_proc_exists(uint32_t id);

/* --- shared by fetches and converters ---------------------------------------------------------- */

struct str param_next(struct str *query, struct str seps, struct str *ret_value); /* "a=1&b=2" */
bool url_find_param(struct str query, struct str seps, struct str name, struct str *ret_value);
int field_token_addr(struct str v,
		     struct addr *ret); /* as in X-Forwarded-For: with or without port */
uint32_t hash_sdbm(struct str s);
uint32_t hash_djb2(struct str s);
uint32_t hash_wt6(struct str s);
uint32_t hash_crc32(struct str s);
uint32_t hash_avalanche(uint32_t h);
ssize_t b64_decode(struct str in, char *out,
		   bool is_url); /* bytes, or -EINVAL; out: 3/4 of in + 3 */
/* A file of the configuration, "opt@" and "virt@" understood. -EINVAL with `err` or -ENOMEM. */
HG_WUR int pat_file_text(struct expr_env *env, struct str path, struct str *ret, struct err *err);
ssize_t url_decode(struct str in, char *out, bool plus_is_space); /* out: in.len */
struct str host_without_port(struct str host);
int date_http(uint64_t sec, char out[32]); /* "Thu, 01 Jan 1970 00:00:00 GMT" */
int64_t now_wall_s(const struct subject *s);

#endif
