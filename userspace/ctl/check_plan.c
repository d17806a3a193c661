/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From `option httpchk`, `http-check` and `tcp-check` to a list of steps that a run walks through.
 * Built once per configuration on the control thread; memory in the plans' arena, texts stay the
 * configuration's.
 */
#include <errno.h>

#include "ctl/health_priv.h"

/* What `option httpchk` expects without `http-check expect`. */
static const struct conf_expect *default_expect(struct arena *a)
{
	struct conf_expect *e = arena_zalloc(a, sizeof(*e));

	if (!e)
		return NULL;
	e->status = arena_zalloc(a, sizeof(*e->status));
	if (!e->status)
		return NULL;
	e->what = EXPECT_STATUS;
	e->status[0].lo = 200;
	e->status[0].hi = 399;
	e->n_status = 1;
	e->min_recv = -1;
	return e;
}

/* The array has room: plan_prog() counted. */
struct check_step *check_add_step(struct check_prog *p, enum check_op op)
{
	struct check_step *s = &p->steps[p->n_steps++];

	BUG_ON(p->n_steps > p->cap_steps);
	s->op = (uint8_t)op;
	return s;
}

static bool is_regex(const struct conf_expect *e)
{
	return e->what == EXPECT_RSTATUS || e->what == EXPECT_RSTRING || e->what == EXPECT_RBINARY;
}

static int fill_regex(struct check_plans *p, struct str text, bool icase,
		      const struct conf_pos *pos, const struct regex **ret, struct err *err)
{
	struct expr_env env = { .arena = &p->arena, .place = PLACE_CHECK, .owned = &p->owned };
	struct regex *re;
	int r = regex_compile(&env, text, icase, &re, err);

	if (r == -ENOMEM)
		return err_set(err, r, "out of memory");
	if (r)
		return err_prefix(err, r, "%s:%u:%u: error", pos->file, pos->line, pos->column);
	*ret = re;
	return 0;
}

static int fill_expect(struct check_plans *p, struct check_step *s, const struct conf_expect *e,
		       const struct conf_pos *pos, struct err *err)
{
	bool is_field = e->what == EXPECT_HDR || e->what == EXPECT_FHDR;
	int r = 0;

	s->expect = e;
	if (is_regex(e))
		r = fill_regex(p, str_make(e->text, e->text_len), false, pos, &s->re, err);
	if (is_field && e->name.how == CHECK_MATCH_REG)
		r = fill_regex(p, e->name.text, true, pos, &s->re, err);
	if (r == 0 && is_field && e->has_value && e->value.how == CHECK_MATCH_REG)
		r = fill_regex(p, e->value.text, false, pos, &s->re_value, err);
	return r;
}

/* Everything before the server's state in `bytes`, the rest in `tail`. */
static int add_request(struct check_plans *p, struct check_prog *prog,
		       const struct conf_check_request *rq, const struct conf_check_step *cs,
		       struct err *err)
{
	struct check_step *s = check_add_step(prog, CHECK_OP_SEND);
	int r = 0;

	s->conf = cs;
	s->method =
		(uint8_t)http_method_from_text(str_from_cstr(rq->method ? rq->method : "OPTIONS"));
	if (check_has_formats(rq))
		s->request = rq;
	else
		r = check_request(NULL, &p->arena, rq, str_from_cstr(rq->uri ? rq->uri : "/"),
				  rq->body, &s->bytes, &s->tail);
	return r ? err_set(err, r, "out of memory") : 0;
}

/* Where a script of an HTTP check stands: the section's own request comes before what is expected first. */
struct http_script {
	struct check_plans *p;
	struct check_prog *prog;
	const struct conf_check *c;
	bool is_connected, has_sent, expects; /* something of the answer */
};

static int http_first_request(struct http_script *h, struct err *err)
{
	if (h->has_sent)
		return 0;
	if (!h->is_connected)
		check_add_step(h->prog, CHECK_OP_CONNECT);
	h->is_connected = h->has_sent = true;
	return add_request(h->p, h->prog, &h->c->request, NULL, err);
}

static int http_step(struct http_script *h, const struct conf_check_step *cs, struct err *err)
{
	struct check_step *s;
	int r = 0;

	switch (cs->kind) {
	case STEP_CONNECT:
		if (h->is_connected)
			r = http_first_request(h, err);
		h->is_connected = true;
		check_add_step(h->prog, CHECK_OP_CONNECT)->conf = cs;
		return r;
	case STEP_SEND:
		r = http_first_request(h, err);
		h->expects = false;
		return r ? r : add_request(h->p, h->prog, cs->request, cs, err);
	case STEP_EXPECT:
		r = http_first_request(h, err);
		if (r)
			return r;
		h->expects = true;
		s = check_add_step(h->prog, CHECK_OP_EXPECT);
		s->conf = cs;
		return fill_expect(h->p, s, &cs->expect, &cs->pos, err);
	case STEP_SET_VAR:
	case STEP_UNSET_VAR:
		check_add_step(h->prog, CHECK_OP_VAR)->conf = cs;
		return 0;
	case STEP_COMMENT:
		break;
	}
	return 0;
}

static int plan_http(struct check_plans *p, struct check_prog *prog, const struct conf_check *c,
		     struct err *err)
{
	struct http_script h = { .p = p, .prog = prog, .c = c };
	struct check_step *s;
	struct list *l;
	int r = 0;

	prog->kind = CHECK_KIND_HTTP;
	prog->sends_state = c->send_state;
	list_for_each(l, &c->steps) {
		if (r == 0)
			r = http_step(&h, list_entry(l, struct conf_check_step, link), err);
	}
	if (r == 0)
		r = http_first_request(&h, err);
	if (r || h.expects)
		return r;
	s = check_add_step(prog, CHECK_OP_EXPECT);
	s->expect = default_expect(&p->arena);
	return s->expect ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int plan_script_step(struct check_plans *p, struct check_prog *prog,
			    const struct conf_check_step *cs, unsigned number, struct err *err)
{
	struct check_step *s;

	switch (cs->kind) {
	case STEP_COMMENT:
		return 0;
	case STEP_CONNECT:
		s = check_add_step(prog, CHECK_OP_CONNECT);
		break;
	case STEP_SEND:
		s = check_add_step(prog, CHECK_OP_SEND);
		s->bytes = cs->send;
		break;
	case STEP_SET_VAR:
	case STEP_UNSET_VAR:
		s = check_add_step(prog, CHECK_OP_VAR);
		break;
	default:
		s = check_add_step(prog, CHECK_OP_EXPECT);
		break;
	}
	s->conf = cs;
	s->number = number;
	return cs->kind == STEP_EXPECT ? fill_expect(p, s, &cs->expect, &cs->pos, err) : 0;
}

/* A script that does not begin with `connect` gets one before its first step. */
static int plan_script(struct check_plans *p, struct check_prog *prog, const struct conf_check *c,
		       struct err *err)
{
	bool is_connected = false;
	unsigned number = 0;
	struct list *l;

	prog->kind = CHECK_KIND_SCRIPT;
	list_for_each(l, &c->steps) {
		const struct conf_check_step *cs = list_entry(l, struct conf_check_step, link);
		int r;

		if (!is_connected && cs->kind != STEP_COMMENT && cs->kind != STEP_SET_VAR &&
		    cs->kind != STEP_UNSET_VAR) {
			if (cs->kind != STEP_CONNECT)
				check_add_step(prog, CHECK_OP_CONNECT);
			is_connected = true;
		}
		r = plan_script_step(p, prog, cs, ++number, err);
		if (r)
			return r;
	}
	if (!is_connected)
		check_add_step(prog, CHECK_OP_CONNECT);
	return 0;
}

static int plan_prog(struct check_plans *p, const struct conf_proxy *px, struct err *err)
{
	const struct conf_check *c = &px->check;
	struct check_prog *prog = arena_zalloc(&p->arena, sizeof(*prog));
	struct list *l;

	if (!prog)
		return err_set(err, -ENOMEM, "out of memory");
	prog->cap_steps = CHECK_KIND_STEPS; /* also: connect, request, default expectation */
	list_for_each(l, &c->steps)
		prog->cap_steps++;
	prog->steps = arena_zalloc(&p->arena, prog->cap_steps * sizeof(prog->steps[0]));
	if (!prog->steps)
		return err_set(err, -ENOMEM, "out of memory");
	p->progs[px->index] = prog;
	switch (c->type) {
	case CHECK_TCP:
		prog->kind = CHECK_KIND_TCP;
		check_add_step(prog, CHECK_OP_CONNECT);
		return 0;
	case CHECK_HTTP:
		return plan_http(p, prog, c, err);
	case CHECK_TCP_SCRIPT:
		return plan_script(p, prog, c, err);
	default:
		return check_plan_kind(&p->arena, prog, c) ? err_set(err, -ENOMEM, "out of memory")
							   : 0;
	}
}

static bool has_checked_server(const struct conf_proxy *px)
{
	struct list *l;

	list_for_each(l, &px->servers)
		if (list_entry(l, struct conf_server, link)->has_check)
			return true;
	return false;
}

int check_plans_build(struct check_plans *p, const struct conf *conf, struct err *err)
{
	struct list *l;
	int r = 0;

	*p = (struct check_plans){ .owned = NULL };
	arena_init(&p->arena, 4096);
	p->progs = arena_zalloc(&p->arena, (conf->n_proxies + 1) * sizeof(p->progs[0]));
	if (!p->progs)
		r = err_set(err, -ENOMEM, "out of memory");
	list_for_each(l, &conf->proxies) {
		const struct conf_proxy *px = list_entry(l, struct conf_proxy, link);

		if (r == 0 && !px->is_disabled && has_checked_server(px))
			r = plan_prog(p, px, err);
	}
	if (r)
		check_plans_free(p);
	return r;
}

int check_plans_add(struct check_plans *p, const struct conf_proxy *px, struct err *err)
{
	return p->progs[px->index] ? 0 : plan_prog(p, px, err);
}

void check_plans_free(struct check_plans *p)
{
	expr_owned_free(&p->owned);
	arena_free(&p->arena);
	p->progs = NULL;
}
