/* SPDX-License-Identifier: BSD-2-Clause */
/* What keywords share beyond conf_priv.h: filters, actions, names of files. Control thread. */
#ifndef CONF_KW_ACTION_PRIV_H
#define CONF_KW_ACTION_PRIV_H

#include "conf/conf_priv.h"

/* What an action is parsed for. */
struct action_ctx {
	struct proxy_build *b;
	struct conf_rule *rule;
	enum conf_ruleset set;
	unsigned place;
	struct str arg; /* "x" of "set-var(x)"; p NULL: no parentheses */
};
/* kw_action_stream.c: what follows the name; 0 or an error that was reported */
typedef int action_fn(struct parser *ps, struct line *l, struct action_ctx *c);
extern action_fn action_log_level, action_timeout, action_wait_for_body, action_pause,
	action_expect_proxy, action_use_service, action_mark, action_nice, action_retries;
/* track-sc<number> <expression> [table <name>] */
HG_WUR int parse_track_sc(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
			  struct str number, struct conf_rule *rule);
/*
 * What follows sc-inc-gpc0(sc) and its kin. `arg`: what stood in parentheses; `counter`: the number in
 * the action's name, or negative when it is the first argument.
 */
enum sc_change { SC_INC, SC_ADD_OR_SET };
HG_WUR int parse_sc_change(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
			   struct str arg, int counter, enum sc_change change,
			   struct conf_rule *rule);
/* An expression names a table: it is looked up at the end (finalize_stick()). */
HG_WUR int stick_note_use(struct parser *ps, const struct proxy_build *b, struct line *l,
			  struct table_op *op);
/* Row `i` of the table of actions, NULL behind the last. */
const struct conf_keyword_doc *action_doc(unsigned i, struct conf_keyword_doc *doc,
					  char sections[160]);
/* Warns when this kind of rule stands behind one that runs later. */
HG_WUR int rule_order_check(struct parser *ps, struct proxy_build *b, const struct line *l,
			    unsigned rank);
enum rule_rank {
	RANK_NONE,
	RANK_TCP_CONNECTION,
	RANK_TCP_SESSION,
	RANK_TCP_CONTENT,
	RANK_HTTP_REQUEST,
	RANK_REDIRECT,
	RANK_USE_BACKEND,
	RANK_USE_SERVER,
};

/* kw_filter.c: set-bandwidth-limit; and when all sections are known: filters and tables */
extern action_fn action_bandwidth;
HG_WUR int finalize_filters(struct parser *ps, struct proxy_build *b);
void dump_filters(FILE *f, const struct conf_proxy *px);

extern action_fn action_strict_mode; /* kw_action_stream.c */

/* finalize_stick.c: by name, or the section's own (NULL); what is missing is reported. 0, -EINVAL, -ENOMEM. */
HG_WUR int find_stick_table(struct parser *ps, const struct conf_proxy *px, const struct conf_pos *pos,
			    const char *name, struct conf_stick_table **ret);

/* kw_crt_store.c: its own base of certificates or keys; NULL: none */
const char *crt_store_base(const struct conf_crt_store *cs, bool of_keys);

/* path.c */
enum default_path { DEFAULT_PATH_CURRENT, DEFAULT_PATH_CONFIG, DEFAULT_PATH_PARENT, DEFAULT_PATH_ORIGIN };
enum path_kind { /* kw->min of rows of ARG_STRING that name a file or directory */
	PATH_FILE = 1,
	PATH_CRT, /* under crt-base, when that is set */
	PATH_KEY, /* of a crt-store: under key-base */
	PATH_CA, /* under ca-base */
};
keyword_parse_fn parse_default_path;
/* As default-path of the line that is read says: `path` itself, or a longer one of the configuration's arena. NULL: no memory. */
char *conf_path(struct parser *ps, enum path_kind kind, const char *path);
HG_WUR int arg_path(struct parser *ps, struct line *l, const char *what, enum path_kind kind, char **ret);
/* conf_read_file() of such a path. */
HG_WUR int conf_read_path(struct parser *ps, struct arena *arena, const char *path, struct str *ret_text,
			  struct err *err);

#endif
