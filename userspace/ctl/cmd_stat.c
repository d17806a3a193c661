/* SPDX-License-Identifier: BSD-2-Clause */
/* `show stat`, `clear counters`, `show sess`, `show l4`. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ctl/cmd_rows.h"
#include "ctl/metrics.h"
#include "ctl/stat_cols.h"

struct stat_output {
	FILE *out;
	enum {
		FORM_CSV,
		FORM_TYPED,
		FORM_JSON
	} form;
	unsigned n;
};

static int stat_output_row(void *ctx, const struct stat_row *row)
{
	struct stat_output *o = ctx;

	switch (o->form) {
	case FORM_CSV:
		stat_csv_row(o->out, row);
		break;
	case FORM_TYPED:
		stat_typed_row(o->out, row);
		break;
	case FORM_JSON:
		stat_json_row(o->out, row, o->n == 0);
		break;
	}
	o->n++;
	return 0;
}

static bool is_integer(const char *s)
{
	int64_t v;

	return s && str_to_i64(str_from_cstr(s), &v) == 0;
}

int cmd_show_stat(struct cmd *c)
{
	struct stat_filter f = { .iid = -1, .sid = -1, .types = ~0u };
	struct stat_output o = { .out = c->out };
	const char *word;
	unsigned i = 0;

	/* "{iid|name} type sid": three arguments when the second is a number. */
	if (cmd_arg(c, 2) && is_integer(cmd_arg(c, 1)) && is_integer(cmd_arg(c, 2))) {
		if (is_integer(cmd_arg(c, 0)))
			f.iid = (int)strtol(cmd_arg(c, 0), NULL, 10);
		else
			f.proxy = cmd_arg(c, 0);
		if (f.iid == 0)
			f.iid = -1;
		if (f.proxy && !conf_find_proxy(c->ctl->current->conf, str_from_cstr(f.proxy),
						CONF_CAP_FRONTEND | CONF_CAP_BACKEND)) {
			cmd_say(c, "No such proxy.");
			return 0;
		}
		f.types = (unsigned)strtol(cmd_arg(c, 1), NULL, 10);
		f.sid = (int)strtol(cmd_arg(c, 2), NULL, 10);
		i = 3;
	}
	for (; (word = cmd_arg(c, i)); i++) {
		if (strcmp(word, "typed") == 0)
			o.form = FORM_TYPED;
		else if (strcmp(word, "json") == 0)
			o.form = FORM_JSON;
		else if (strcmp(word, "up") == 0)
			f.up_only = true;
		else if (strcmp(word, "no-maint") == 0)
			f.no_maint = true;
	}
	if (o.form == FORM_CSV)
		stat_csv_header(c->out);
	else if (o.form == FORM_JSON)
		putc('[', c->out);
	(void)stat_each_row(c->ctl, &f, stat_output_row, &o);
	if (o.form == FORM_JSON)
		fputs("]\n", c->out);
	return 0;
}

int cmd_clear_counters(struct cmd *c)
{
	metrics_clear_maxima(c->ctl->metrics);
	return 0;
}

int cmd_clear_counters_all(struct cmd *c)
{
	metrics_clear_maxima(c->ctl->metrics);
	if (metrics_clear_counters(c->ctl->metrics) != 0)
		cmd_say(c, "Out of memory.");
	return 0;
}

int cmd_clear_counters_server(struct cmd *c)
{
	struct server *s = cmd_find_server(c, cmd_arg(c, 0), NULL);

	if (s && metrics_clear_backend_row(c->ctl->metrics, &s->stats) == 0)
		cmd_tell(c, "Server counters cleared.");
	else if (s)
		cmd_say(c, "Out of memory.");
	return 0;
}
