/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Agent checks: a program on the server says one line of words about it: a weight, a limit, up or down,
 * ready, drain or maint. An agent that cannot be reached, or talks nonsense, says nothing: only its "down" takes a
 * server out. A server with checks as well is up when both think so. Control thread.
 */
#include <errno.h>

#include "ctl/health_priv.h"

/* --- the line --------------------------------------------------------------------------------------- */

static bool is_end_of_line(char c)
{
	return c == '\r' || c == '\n';
}

static size_t line_length(struct str in)
{
	size_t n = 0;

	while (n < in.len && !is_end_of_line(in.p[n]))
		n++;
	return n;
}

static enum check_verdict judge_agent(struct str in, bool is_last, struct check_result *res)
{
	if (line_length(in) < in.len) {
		check_desc(res, CHECK_STATUS_CHECKED, "%s", "");
		return CHECK_DECIDED;
	}
	if (!is_last)
		return CHECK_MORE;
	check_desc(res, CHECK_STATUS_L7RSP, "Ignoring incomplete line from agent");
	return CHECK_MISMATCH;
}

static struct check_step agent_steps[] = {
	{ .op = CHECK_OP_CONNECT },
	{ .op = CHECK_OP_SEND }, /* the target's text */
	{ .op = CHECK_OP_EXPECT, .judge = judge_agent },
};
static const struct check_prog agent_prog = { .kind = CHECK_KIND_PRESET,
					      .steps = agent_steps,
					      .n_steps = ARRAY_SIZE(agent_steps) };

/* What one line asks for; the last word of a kind counts. */
struct agent_words {
	struct str health; /* as written; len 0: none */
	bool is_up;
	bool has_admin, has_percent, has_maxconn;
	unsigned set, clear; /* enum server_admin bits */
	uint64_t percent, maxconn;
	struct str unknown, comment;
};

static const struct agent_health_word {
	struct str word;
	bool is_up;
} health_words[] = {
	{ { "up", 2 }, true },
	{ { "down", 4 }, false },
	{ { "stopped", 7 }, false },
	{ { "fail", 4 }, false },
};

static const struct agent_admin_word {
	struct str word;
	unsigned set, clear;
} admin_words[] = {
	{ { "ready", 5 }, 0, SERVER_FORCED_MAINT | SERVER_CONFIG_MAINT | SERVER_FORCED_DRAIN },
	{ { "drain", 5 }, SERVER_FORCED_DRAIN, SERVER_FORCED_MAINT | SERVER_CONFIG_MAINT },
	{ { "maint", 5 }, SERVER_FORCED_MAINT, SERVER_FORCED_DRAIN },
};

static bool take_word(struct agent_words *a, struct str w)
{
	const struct str maxconn = STR("maxconn:");

	for (size_t i = 0; i < ARRAY_SIZE(health_words); i++) {
		if (str_is_case_eq(w, health_words[i].word)) {
			a->health = w;
			a->is_up = health_words[i].is_up;
			return true;
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(admin_words); i++) {
		if (str_is_case_eq(w, admin_words[i].word)) {
			a->has_admin = true;
			a->set = admin_words[i].set;
			a->clear = admin_words[i].clear;
			return true;
		}
	}
	if (w.p[w.len - 1] == '%' && str_to_u64(str_sub(w, 0, w.len - 1), &a->percent) == 0 &&
	    a->percent <= 25600)
		return a->has_percent = true;
	if (w.len > maxconn.len && str_is_case_eq(str_sub(w, 0, maxconn.len), maxconn) &&
	    str_to_u64(str_from(w, maxconn.len), &a->maxconn) == 0 && a->maxconn <= UINT32_MAX)
		return a->has_maxconn = true;
	return false;
}

static void read_words(struct str line, struct agent_words *a)
{
	*a = (struct agent_words){ .is_up = false };
	while (line.len) {
		size_t n = 0;

		if (*line.p == '#') {
			a->comment = str_from(line, line.len > 1 && line.p[1] == ' ' ? 2 : 1);
			return;
		}
		while (n < line.len && !strchr(" \t,", line.p[n]))
			n++;
		if (n && !take_word(a, str_sub(line, 0, n)))
			a->unknown = str_sub(line, 0, n);
		line = str_from(line, n ? n : 1);
	}
}

/* --- what follows from it ------------------------------------------------------------------------------- */

static void apply_settings(struct watch *w, const struct agent_words *a, struct check_result *res)
{
	struct lb_registry *r = &w->h->ctl->registry;
	struct server *s = w->srv;
	unsigned admin = atomic_load(&s->admin);
	bool is_changed = false;
	struct err err;

	if (a->has_admin && ((admin | a->set) & ~a->clear) != admin) {
		server_set_admin(r, s, a->set, a->clear);
		health_admin_changed(w->h, s);
		is_changed = true;
	}
	if (a->has_percent) {
		uint64_t weight = (uint64_t)atomic_load(&s->iweight) * a->percent / 100;

		weight = weight > 256 ? 256 : weight;
		if (weight != atomic_load(&s->uweight)) {
			if (server_set_weight(r, s, (uint32_t)weight, &err))
				check_desc(res, res->status, "agent warns : %s", err.text);
			is_changed = true;
		}
	}
	if (a->has_maxconn && a->maxconn != atomic_load(&s->maxconn)) {
		server_set_maxconn(r, s, (uint32_t)a->maxconn);
		is_changed = true;
	}
	if (is_changed)
		ctl_server_changed(w->h->ctl, s);
}

bool health_agent_holds(const struct watch *w)
{
	return w->srv->agent.is_enabled && !w->srv->agent.health;
}

static void apply_health(struct watch *w, bool is_up)
{
	struct server *s = w->srv;
	bool was_up = s->agent.health;

	s->agent.health = is_up;
	if (!is_up) {
		s->agent.n_failed += was_up;
		health_want(w, SERVER_STOPPED, CAUSE_AGENT);
	} else if (!w->prog || !s->check.is_enabled || s->check.health >= watch_rise(w)) {
		health_want(w, SERVER_RUNNING, CAUSE_AGENT);
	}
}

static void agent_take_line(struct watch *w, struct str line, struct check_result *res)
{
	struct agent_words a;

	read_words(line, &a);
	if (a.unknown.len)
		check_desc(res, CHECK_STATUS_L7RSP, "agent reports an unknown word : " STR_FMT,
			   STR_ARG(str_sub(a.unknown, 0, 40)));
	if (a.health.len)
		check_desc(res, a.is_up ? CHECK_STATUS_L7OK : CHECK_STATUS_L7STS,
			   "via agent : " STR_FMT "%s" STR_FMT "%s", STR_ARG(a.health),
			   a.comment.len ? " (" : "", STR_ARG(a.comment), a.comment.len ? ")" : "");
	apply_settings(w, &a, res);
}

/* --- runs ------------------------------------------------------------------------------------------------- */

static uint64_t agent_inter(const struct watch *w)
{
	uint64_t inter = watch_conf(w)->agent_inter;

	return inter ? inter : w->inter;
}

static void agent_on_connected(struct check_run *r)
{
}

static void agent_on_done(struct check_run *r, const struct check_result *res)
{
	struct watch *w = r->owner;
	struct health *h = w->h;
	struct server_health *c = &w->srv->agent;
	struct check_result mine = *res;
	uint8_t status_before = c->status;

	loop_update_clock(h->ctl->loop);
	c->duration_ms = (uint32_t)((loop_now(h->ctl->loop) - r->began_ns) / 1000000u);
	if (res->status == CHECK_STATUS_CHECKED)
		agent_take_line(w, str_make(r->in, line_length(str_make(r->in, r->in_len))), &mine);
	w->agent_run = NULL;
	c->is_running = false;
	pool_put(&h->runs, r);
	c->status = (uint8_t)mine.status;
	c->code = mine.code;
	memcpy(c->desc, mine.desc, sizeof(c->desc));
	if (mine.status == CHECK_STATUS_L7OK || mine.status == CHECK_STATUS_L7STS)
		apply_health(w, mine.status == CHECK_STATUS_L7OK);
	if (status_before != c->status && w->hb->px->options & CONF_OPT(LOG_HEALTH_CHECKS))
		health_log_agent(w);
	timer_stop(h->ctl->loop, &w->agent_timer);
	if (c->is_enabled)
		timer_start(h->ctl->loop, &w->agent_timer, agent_inter(w));
}

static bool agent_target(const struct watch *w, struct check_target *t)
{
	const struct conf_server *cs = watch_conf(w);
	const struct conf_proxy *px = w->hb->px;

	memset(t, 0, sizeof(*t));
	if (!watch_place_addr(w, &w->agent_at.now, &t->to))
		return false;
	check_target_from(t, conf_outgoing_of(px, cs));
	t->send = str_from_cstr(w->agent_text ? w->agent_text : cs->agent_send);
	return true;
}

static void agent_begin(struct watch *w)
{
	struct health *h = w->h;
	struct check_run *r = pool_get(&h->runs);

	/* The timer is the limit of the run, or the next attempt. */
	timer_start(h->ctl->loop, &w->agent_timer, agent_inter(w));
	if (!r || !agent_target(w, &r->target)) {
		if (r)
			pool_put(&h->runs, r);
		return;
	}
	r->prog = &agent_prog;
	r->nw = &h->nw;
	r->owner = w;
	r->on_connected = agent_on_connected;
	r->done = agent_on_done;
	r->began_ns = loop_now(h->ctl->loop);
	w->agent_run = r;
	w->srv->agent.is_running = true;
	if (check_run_start(r) == 0)
		return;
	w->agent_run = NULL;
	w->srv->agent.is_running = false;
	pool_put(&h->runs, r);
}

void health_agent_on_timer(struct timer *t)
{
	struct watch *w = container_of(t, struct watch, agent_timer);

	if (w->agent_run)
		check_run_timeout(w->agent_run);
	else if (w->srv->agent.is_enabled)
		agent_begin(w);
}

void health_agent_stop(struct watch *w)
{
	timer_stop(w->h->ctl->loop, &w->agent_timer);
	if (!w->agent_run)
		return;
	check_run_cancel(w->agent_run);
	pool_put(&w->h->runs, w->agent_run);
	w->agent_run = NULL;
	w->srv->agent.is_running = false;
}

void health_agent_resume(struct watch *w)
{
	if (w->srv->agent.is_enabled)
		timer_start(w->h->ctl->loop, &w->agent_timer, 0);
}

void health_agent_configure(struct watch *w)
{
	struct server_health *c = &w->srv->agent;
	bool has = watch_conf(w)->has_agent;

	health_agent_stop(w);
	if (has && !w->has_agent) {
		c->is_enabled = true;
		c->health = 1;
		c->status = CHECK_STATUS_INI;
	}
	if (!has)
		c->is_enabled = false;
	w->has_agent = has;
	health_agent_resume(w);
}

/* --- the runtime API ------------------------------------------------------------------------------------ */

void health_agent_set_enabled(struct health *h, struct server *s, bool on)
{
	struct watch *w = health_find(h, s);

	if (!w || !w->has_agent || s->agent.is_enabled == on)
		return;
	s->agent.is_enabled = on;
	if (on)
		timer_start(h->ctl->loop, &w->agent_timer, 0);
	else
		health_agent_stop(w);
}

void health_agent_force(struct health *h, struct server *s, bool up)
{
	struct watch *w = health_find(h, s);

	if (!w || !s->agent.is_enabled)
		return;
	s->agent.health = up;
	if (!up || !s->check.is_enabled || s->check.health >= watch_rise(w))
		health_want(w, up ? SERVER_RUNNING : SERVER_STOPPED, CAUSE_CLI);
	health_flush(h);
}
