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

	if (s)
		cmd_say(c, metrics_clear_backend_row(c->ctl->metrics, &s->stats) == 0
				   ? "Server counters cleared."
				   : "Out of memory.");
	return 0;
}

/* --- show sess: collected from the workers, answered when the last one has reported ------------------ */

struct sess_query {
	struct admin_client *client;
	FILE *out;
	char *text;
	size_t len;
	unsigned waiting;
	bool is_long;
	uint64_t id; /* 0: all */
};

static void sess_line(FILE *out, const struct stream_info *i)
{
	fprintf(out,
		"0x%" PRIx64 ": proto=%s src=%s fe=%s be=%s srv=%s ts=00 epoch=0 age=%" PRIu64
		"s calls=%" PRIu64 " rate=0 cpu=0 lat=0 phase=%s doing=\"%s\" worker=%u "
		"s0=[%s,fd=%d] s1=[%s,fd=%d] in=%" PRIu64 " out=%" PRIu64 " exp=%ums\n",
		i->id, i->proto, i->src, i->frontend, i->backend[0] ? i->backend : "<NONE>",
		i->server[0] ? i->server : "<none>", i->age_ns / 1000000000u, i->calls, i->phase,
		i->doing, i->worker, i->front_state, i->front_fd, i->back_state, i->back_fd,
		i->bytes_in, i->bytes_out, i->expires_ms);
}

static void sess_block(FILE *out, const struct stream_info *i)
{
	sess_line(out, i);
	fprintf(out, "  request=\"%s\"\n  idle=%" PRIu64 "ms phase=%s (%s)\n", i->method_and_target,
		i->idle_ns / 1000000u, i->phase, i->doing);
}

static void sess_collected(void *ctx, struct stream_info *infos, unsigned n)
{
	struct sess_query *q = ctx;

	for (unsigned i = 0; i < n; i++) {
		if (q->id && infos[i].id != q->id)
			continue;
		if (q->is_long)
			sess_block(q->out, &infos[i]);
		else
			sess_line(q->out, &infos[i]);
	}
	mem_free(infos);
	if (--q->waiting)
		return;
	fclose(q->out);
	admin_finish(q->client, q->text, q->len);
	free(q->text); /* lint: libc memory, open_memstream's */
	mem_free(q);
}

int cmd_show_sess(struct cmd *c)
{
	const char *what = cmd_arg(c, 0);
	struct sess_query *q = mem_zalloc(sizeof(*q));

	if (!q || !(q->out = open_memstream(&q->text, &q->len))) {
		mem_free(q);
		cmd_say(c, "Out of memory.");
		return 0;
	}
	q->client = c->client;
	if (what && strcmp(what, "all") == 0)
		q->is_long = true;
	else if (what) {
		q->id = strtoull(what, NULL, 16);
		q->is_long = true;
	}
	q->waiting = 1; /* ourselves, until every worker has been asked */
	for (unsigned i = 0; i < c->ctl->n_workers; i++) {
		q->waiting++;
		if (worker_list_streams(c->ctl->workers[i], q, sess_collected) != 0)
			q->waiting--;
	}
	if (q->waiting > 1) {
		q->waiting--;
		return CMD_PENDING;
	}
	fclose(q->out);
	free(q->text); /* lint: libc memory, open_memstream's */
	mem_free(q);
	cmd_say(c, "Out of memory.");
	return 0;
}
