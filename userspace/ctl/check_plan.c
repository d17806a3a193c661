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
static struct check_step *add_step(struct check_prog *p, enum check_op op)
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

static int fill_expect(struct check_plans *p, struct check_step *s, const struct conf_expect *e,
		       const struct conf_pos *pos, struct err *err)
{
	struct expr_env env = { .arena = &p->arena, .place = PLACE_CHECK, .owned = &p->owned };
	struct regex *re;
	int r;

	s->expect = e;
	if (!is_regex(e))
		return 0;
	r = regex_compile(&env, str_make(e->text, e->text_len), false, &re, err);
	if (r == -ENOMEM)
		return err_set(err, r, "out of memory");
	if (r)
		return err_prefix(err, r, "%s:%u:%u: error", pos->file, pos->line, pos->column);
	s->re = re;
	return 0;
}

static const char *text_or(const char *text, const char *otherwise)
{
	return text ? text : otherwise;
}

/* The request: everything before the server's state in `bytes`, the rest in `tail`. */
static int fill_request(struct check_plans *p, struct check_prog *prog, struct check_step *s,
			const struct conf_check *c)
{
	const char *method = text_or(c->method, "OPTIONS"), *host = c->host;
	char length[48] = "";

	if (c->body.len)
		snprintf(length, sizeof(length), "Content-Length: %zu\r\n", c->body.len);
	s->bytes = arena_printf(&p->arena, "%s %s %s\r\n%s%s%s" STR_FMT "%sConnection: close\r\n",
				method, text_or(c->uri, "/"), text_or(c->version, "HTTP/1.0"),
				host ? "Host: " : "", text_or(host, ""), host ? "\r\n" : "",
				STR_ARG(c->headers), length);
	prog->tail = arena_printf(&p->arena, "\r\n" STR_FMT, STR_ARG(c->body));
	if (!s->bytes.p || !prog->tail.p)
		return -ENOMEM;
	prog->method = (uint8_t)http_method_from_text(str_from_cstr(method));
	prog->sends_state = c->send_state;
	return 0;
}

static int plan_http(struct check_plans *p, struct check_prog *prog, const struct conf_check *c,
		     struct err *err)
{
	struct check_step *s;
	struct list *l;
	int r;

	prog->kind = CHECK_KIND_HTTP;
	add_step(prog, CHECK_OP_CONNECT);
	if (fill_request(p, prog, add_step(prog, CHECK_OP_SEND), c))
		return err_set(err, -ENOMEM, "out of memory");
	list_for_each(l, &c->steps) {
		const struct conf_check_step *cs = list_entry(l, struct conf_check_step, link);

		if (cs->kind != STEP_EXPECT)
			continue;
		s = add_step(prog, CHECK_OP_EXPECT);
		s->conf = cs;
		r = fill_expect(p, s, &cs->expect, &cs->pos, err);
		if (r)
			return r;
	}
	if (prog->n_steps > 2)
		return 0;
	s = add_step(prog, CHECK_OP_EXPECT);
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
		s = add_step(prog, CHECK_OP_CONNECT);
		break;
	case STEP_SEND:
		s = add_step(prog, CHECK_OP_SEND);
		s->bytes = cs->send;
		break;
	default:
		s = add_step(prog, CHECK_OP_EXPECT);
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

		if (!is_connected && cs->kind != STEP_COMMENT) {
			if (cs->kind != STEP_CONNECT)
				add_step(prog, CHECK_OP_CONNECT);
			is_connected = true;
		}
		r = plan_script_step(p, prog, cs, ++number, err);
		if (r)
			return r;
	}
	if (!is_connected)
		add_step(prog, CHECK_OP_CONNECT);
	return 0;
}

static int plan_prog(struct check_plans *p, const struct conf_proxy *px, struct err *err)
{
	const struct conf_check *c = &px->check;
	struct check_prog *prog = arena_zalloc(&p->arena, sizeof(*prog));
	struct list *l;

	if (!prog)
		return err_set(err, -ENOMEM, "out of memory");
	prog->cap_steps = 3; /* connect, request, default expectation */
	list_for_each(l, &c->steps)
		prog->cap_steps++;
	prog->steps = arena_zalloc(&p->arena, prog->cap_steps * sizeof(prog->steps[0]));
	if (!prog->steps)
		return err_set(err, -ENOMEM, "out of memory");
	p->progs[px->index] = prog;
	switch (c->type) {
	case CHECK_TCP:
		prog->kind = CHECK_KIND_TCP;
		add_step(prog, CHECK_OP_CONNECT);
		return 0;
	case CHECK_HTTP:
		return plan_http(p, prog, c, err);
	case CHECK_TCP_SCRIPT:
		return plan_script(p, prog, c, err);
	default:
		return err_set(err, -EINVAL, "%s: this kind of health check is not supported",
			       px->name);
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

void check_plans_free(struct check_plans *p)
{
	expr_owned_free(&p->owned);
	arena_free(&p->arena);
	p->progs = NULL;
}
