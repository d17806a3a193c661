/* SPDX-License-Identifier: BSD-2-Clause */
/* What the configuration loader found, as people read it: FILE:LINE:COLUMN: error: TEXT. */
#ifndef CTL_FINDINGS_H
#define CTL_FINDINGS_H

#include <stdbool.h>
#include <stdio.h>

#include "conf/conf.h"
#include "ctl/ctl.h"

struct lb_registry;
struct server_states;

struct findings {
	FILE *out; /* NULL: counted only */
	bool is_quiet; /* errors only */
	const struct lb_registry *running; /* whose servers may keep their addresses; NULL: none */
	struct server_states *states; /* read when nothing runs yet; the caller's to free */
	unsigned n_errors, n_warnings;
};

/* A conf_report_fn; ctx is a struct findings. */
void findings_report(void *ctx, enum conf_severity sev, const struct conf_pos *pos,
		     const char *text);

/*
 * Loads what the command line names and reports to f->out. 0, or -EINVAL also for warnings under -dW;
 * then *ret_conf is NULL.
 */
HG_WUR int findings_load(const struct ctl_options *o, struct findings *f, struct conf **ret_conf);

#endif
