/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands about streams. The workers own those: each is asked by mail, and the last answer ends the command. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ctl/cmd_rows.h"

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

/* --- shutdown session: every worker is asked, one of them may have it -------------------------------- */

struct kill_query {
	struct admin_client *client;
	unsigned waiting;
	bool is_found;
};

static void kill_answered(void *ctx, bool is_found)
{
	const struct str missing = STR("No such session (use 'show sess').\n");
	struct kill_query *q = ctx;

	q->is_found |= is_found;
	if (--q->waiting)
		return;
	admin_finish(q->client, missing.p, q->is_found ? 0 : missing.len);
	mem_free(q);
}

int cmd_shutdown_session(struct cmd *c)
{
	const char *text = cmd_arg(c, 0);
	char *end = NULL;
	uint64_t id = text ? strtoull(text, &end, 16) : 0;
	struct kill_query *q;

	if (!id || *end) {
		cmd_say(c, "Session pointer expected (use 'show sess').");
		return 0;
	}
	q = mem_zalloc(sizeof(*q));
	if (!q) {
		cmd_say(c, "Out of memory.");
		return 0;
	}
	q->client = c->client;
	/* Answers are mails to this thread: none comes before we return. */
	for (unsigned i = 0; i < c->ctl->n_workers; i++)
		q->waiting += worker_kill_stream(c->ctl->workers[i], id, q, kill_answered) == 0;
	if (q->waiting)
		return CMD_PENDING;
	mem_free(q);
	cmd_say(c, "Out of memory.");
	return 0;
}

int cmd_shutdown_sessions_server(struct cmd *c)
{
	struct server *s = cmd_find_server(c, cmd_arg(c, 0), NULL);

	for (unsigned i = 0; s && i < c->ctl->n_workers; i++)
		worker_shutdown_server(c->ctl->workers[i], s, 'K');
	return 0;
}
