/* SPDX-License-Identifier: BSD-2-Clause */
/* Prints what the configuration loader found; used by start-up, -c and reload alike. */
#include "ctl/findings.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/resolve.h"
#include "ctl/server_state.h"

void findings_report(void *ctx, enum conf_severity sev, const struct conf_pos *pos,
		     const char *text)
{
	static const char *const names[] = { "note", "warning", "error" };
	struct findings *f = ctx;

	f->n_errors += sev == CONF_ERROR;
	f->n_warnings += sev == CONF_WARNING;
	if (!f->out || (f->is_quiet && sev != CONF_ERROR))
		return;
	if (pos && pos->file && pos->line)
		fprintf(f->out, "%s:%u:%u: %s: %s\n", pos->file, pos->line, pos->column, names[sev],
			text);
	else if (pos && pos->file)
		fprintf(f->out, "%s: %s: %s\n", pos->file, names[sev], text);
	else
		fprintf(f->out, "headgated: %s: %s\n", names[sev], text);
}

int findings_load(const struct ctl_options *o, struct findings *f, struct conf **ret_conf)
{
	struct conf_source src = {
		.paths = o->files,
		.n_paths = o->n_files,
		.report = findings_report,
		.report_ctx = f,
		.localpeer = o->localpeer,
		.is_master_worker = o->is_master,
	};
	int rc = conf_load(&src, ret_conf);

	if (rc == -ENOMEM)
		findings_report(f, CONF_ERROR, NULL,
				"out of memory while reading the configuration");
	if (rc == 0 && !f->running &&
	    server_states_load(*ret_conf, findings_report, f, &f->states) != 0) {
		findings_report(f, CONF_ERROR, NULL, "out of memory while reading server states");
		conf_free(*ret_conf);
		rc = -ENOMEM;
	}
	if (rc == 0 && resolve_servers(*ret_conf, f->running, f->states, findings_report, f) != 0) {
		conf_free(*ret_conf);
		rc = -EINVAL;
	}
	if (rc == 0 && o->warnings_are_errors && f->n_warnings) {
		findings_report(f, CONF_ERROR, NULL,
				"there were warnings, and -dW makes them errors");
		conf_free(*ret_conf);
		rc = -EINVAL;
	}
	if (rc != 0) {
		*ret_conf = NULL;
		if (f->out && f->n_errors)
			fprintf(f->out, "headgated: %u error%s, %u warning%s\n", f->n_errors,
				f->n_errors == 1 ? "" : "s", f->n_warnings,
				f->n_warnings == 1 ? "" : "s");
	}
	return rc;
}
