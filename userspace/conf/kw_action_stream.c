/* SPDX-License-Identifier: BSD-2-Clause */
/* Actions that concern the stream and not its messages: times, log level, who answers. Rows in kw_action.c. */
#include <errno.h>
#include <stdlib.h>

#include "conf/kw_action_priv.h"

#define MS 1000000ull

int action_log_level(struct parser *ps, struct line *l, struct action_ctx *c)
{
	struct str w;
	int r = line_want(ps, l, "a level such as info, or 'silent'", &w), level;

	if (r)
		return r;
	level = str_is_eq(w, STR("silent")) ? 8 : log_level_from_name(w);
	if (level < 0)
		return conf_fail(ps, l, l->at - 1,
				 "'set-log-level' expects a level such as info, or 'silent'");
	c->rule->number = (uint32_t)level;
	return 0;
}

int action_timeout(struct parser *ps, struct line *l, struct action_ctx *c)
{
	static const struct keyword_value which[] = { VALUE("server", 0), VALUE("tunnel", 1),
						      VALUE("client", 2), VALUES_END };
	uint8_t v;
	uint64_t ns;
	int r = arg_value(ps, l, which, &v);

	if (r)
		return r;
	c->rule->name = (char *)which[v].name.p;
	if (str_to_duration(line_peek(l), 1000000, &ns))
		return compile_expr(ps, c->b, l, c->place, &c->rule->expr);
	l->at++;
	if (ns / 1000000 == 0 || ns / 1000000 > UINT32_MAX)
		return conf_fail(ps, l, l->at - 1, "'set-timeout' expects a time from 1ms to 49d");
	c->rule->number = (uint32_t)(ns / 1000000);
	return 0;
}

/* wait-for-body time <time> [at-least <size>] */
int action_wait_for_body(struct parser *ps, struct line *l, struct action_ctx *c)
{
	uint64_t size = 0;
	int r;

	if (!line_accept(l, "time"))
		return conf_fail(ps, l, l->at, "'wait-for-body' expects 'time <time>'");
	r = arg_time(ps, l, MS, &c->rule->wait_ns);
	if (r == 0 && line_accept(l, "at-least"))
		r = arg_size(ps, l, &size);
	c->rule->number = size > UINT32_MAX ? UINT32_MAX : (uint32_t)size;
	return r;
}

/* pause <time>|<expression>: milliseconds */
int action_pause(struct parser *ps, struct line *l, struct action_ctx *c)
{
	uint64_t ns;

	if (!line_has(l) || str_to_duration(line_peek(l), MS, &ns))
		return compile_expr(ps, c->b, l, c->place, &c->rule->expr);
	if (ns > PAUSE_MAX_MS * MS)
		return conf_fail(ps, l, l->at, "'pause' expects a time of at most 24d");
	l->at++;
	c->rule->wait_ns = ns;
	return 0;
}

int action_strict_mode(struct parser *ps, struct line *l, struct action_ctx *c)
{
	static const struct keyword_value values[] = { VALUE("on", 1), VALUE("off", 0),
						       VALUES_END };
	uint8_t v;
	int r = arg_value(ps, l, values, &v);

	if (r == 0)
		c->rule->number = v;
	return r;
}

int action_expect_proxy(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return line_accept(l, "layer4")
		       ? 0
		       : conf_fail(ps, l, l->at, "'expect-proxy' expects 'layer4'");
}

int action_use_service(struct parser *ps, struct line *l, struct action_ctx *c)
{
	if (!line_accept(l, "prometheus-exporter"))
		return conf_fail(ps, l, l->at, "'use-service' knows 'prometheus-exporter'");
	c->rule->name = (char *)"prometheus-exporter";
	return 0;
}

/* A number, decimal or in hexadecimal; set-fc-*: or an expression. */
int action_mark(struct parser *ps, struct line *l, struct action_ctx *c)
{
	bool may_be_expr = str_find(l->words[l->at - 1], STR("-fc-")) != SIZE_MAX;
	unsigned long long max = c->rule->action == ACTION_SET_TOS ? 255 : UINT32_MAX, v = 0;
	struct str w = line_peek(l);
	bool is_number = w.len && w.p[0] >= '0' && w.p[0] <= '9';
	char *end;

	if (!is_number && may_be_expr && line_has(l))
		return compile_expr(ps, c->b, l, c->place, &c->rule->expr);
	errno = 0;
	if (is_number)
		v = strtoull(w.p, &end, 0);
	if (!is_number || errno || end != w.p + w.len || v > max)
		return conf_fail(ps, l, l->at, "expected a number from 0 to %llu, such as 0x10",
				 max);
	l->at++;
	c->rule->number = (uint32_t)v;
	return 0;
}

/* set-retries <number>|<expression>, within the bounds of `retries` */
int action_retries(struct parser *ps, struct line *l, struct action_ctx *c)
{
	struct str w = line_peek(l);
	uint64_t v;
	int r;

	if (!w.len || w.p[0] < '0' || w.p[0] > '9')
		return compile_expr(ps, c->b, l, c->place, &c->rule->expr);
	r = arg_u64(ps, l, 0, CONF_MAX_RETRIES, &v);
	c->rule->number = (uint32_t)v;
	return r;
}

/* Streams of a worker take turns: there is nothing to be nice with. */
int action_nice(struct parser *ps, struct line *l, struct action_ctx *c)
{
	struct str w = line_peek(l);
	bool is_negative = w.len && w.p[0] == '-';
	uint64_t v;

	if (str_to_u64(str_from(w, is_negative), &v) || v > 1024)
		return conf_fail(ps, l, l->at, "'set-nice' expects a number from -1024 to 1024");
	l->at++;
	return 0;
}
