/* SPDX-License-Identifier: BSD-2-Clause */
/* What the keywords of filters and actions share beyond conf_priv.h. Control thread. */
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

#endif
