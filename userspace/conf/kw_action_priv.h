/* SPDX-License-Identifier: BSD-2-Clause */
/* What keywords share beyond conf_priv.h: filters, actions, names of files. Control thread. */
#ifndef CONF_KW_ACTION_PRIV_H
#define CONF_KW_ACTION_PRIV_H

#include "conf/conf_priv.h"

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
