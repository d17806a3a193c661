/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lines with conditions: rule sets, use_backend, use-server, redirect, acl. All are read when their
 * section ends, because the mode and the ACLs of the section decide about them.
 */
#include <errno.h>

#include "conf/conf_priv.h"
#include "conf/kw_action_priv.h"

int rule_order_check(struct parser *ps, struct proxy_build *b, const struct line *l, unsigned rank)
{
	static const char *const names[] = {
		[RANK_TCP_CONNECTION] = "tcp-request connection",
		[RANK_TCP_SESSION] = "tcp-request session",
		[RANK_TCP_CONTENT] = "tcp-request content",
		[RANK_HTTP_REQUEST] = "http-request",
		[RANK_REDIRECT] = "redirect",
		[RANK_USE_BACKEND] = "use_backend",
		[RANK_USE_SERVER] = "use-server",
	};

	if (rank < b->rank && b->rank < ARRAY_SIZE(names))
		return conf_warn(ps, l, 0,
				 "this '%s' rule stands behind a '%s' rule, but runs before it",
				 names[rank], names[b->rank]);
	b->rank = (uint8_t)rank;
	return 0;
}

static int check_section(struct parser *ps, struct proxy_build *b, const struct line *l)
{
	if ((b->section & SEC_DEFAULTS) && !b->is_named)
		return conf_fail(ps, l, 0,
				 "'" STR_FMT
				 "' rules are only allowed in a defaults section that has "
				 "a name",
				 STR_ARG(l->words[0]));
	return 0;
}

/* http-request, http-response, http-after-response and the parts of tcp-request. */
static int parse_ruleset(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const uint8_t ranks[RULES_COUNT] = { [RULES_TCP_CONNECTION] = RANK_TCP_CONNECTION,
						    [RULES_TCP_SESSION] = RANK_TCP_SESSION,
						    [RULES_TCP_CONTENT] = RANK_TCP_CONTENT,
						    [RULES_HTTP_REQUEST] = RANK_HTTP_REQUEST };
	enum conf_ruleset set = (enum conf_ruleset)kw->min;
	struct proxy_build *b = obj;
	int r = check_section(ps, b, l);

	if (r == 0 && ranks[set])
		r = rule_order_check(ps, b, l, ranks[set]);
	return r ? r : parse_action(ps, b, l, set, &b->px.rules[set]);
}

static int parse_inspect_delay(struct parser *ps, struct line *l, void *obj,
			       const struct keyword *kw)
{
	return arg_time(ps, l, 1000000, (uint64_t *)((char *)obj + kw->offset));
}

/* What use_backend and use-server share: a name, fixed or a format, and a condition. */
struct use_target {
	struct conf_pos *pos;
	char **text;
	struct logfmt **name; /* stays NULL when the name is fixed */
	struct cond **cond;
};

static int parse_use(struct parser *ps, struct proxy_build *b, struct line *l, unsigned rank,
		     const char *what, const struct use_target *t)
{
	unsigned place = PLACE_REQ | PLACE_CONTENT;
	struct str name;
	int r = rule_order_check(ps, b, l, rank);

	if (r == 0)
		r = line_want(ps, l, what, &name);
	if (r)
		return r;
	*t->pos = l->pos;
	t->pos->column = line_column(l, l->at - 1, 0);
	*t->text = (char *)name.p;
	if (str_find(name, STR("%[")) != SIZE_MAX)
		r = compile_text(ps, b, l, l->at - 1, name, place, t->name);
	return r ? r : compile_condition(ps, b, l, place, t->cond);
}

static int parse_use_backend(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct conf_use_backend *u = arena_zalloc(&ps->conf->arena, sizeof(*u));
	int r;

	if (!u)
		return -ENOMEM;
	r = parse_use(ps, b, l, RANK_USE_BACKEND, "the name of a backend",
		      &(struct use_target){ &u->pos, &u->text, &u->name, &u->cond });
	if (r == 0)
		list_push_back(&b->px.use_backends, &u->link);
	return r;
}

static int parse_use_server(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct conf_use_server *u = arena_zalloc(&ps->conf->arena, sizeof(*u));
	int r;

	if (!u)
		return -ENOMEM;
	r = parse_use(ps, b, l, RANK_USE_SERVER, "the name of a server",
		      &(struct use_target){ &u->pos, &u->text, &u->name, &u->cond });
	if (r == 0)
		list_push_back(&b->px.use_servers, &u->link);
	return r;
}

/* The old form: such rules run behind all of http-request. */
static int parse_redirect_line(struct parser *ps, struct line *l, void *obj,
			       const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct conf_rule *rule = arena_zalloc(&ps->conf->arena, sizeof(*rule));
	int r;

	if (!rule)
		return -ENOMEM;
	rule->redirect = arena_zalloc(&ps->conf->arena, sizeof(*rule->redirect));
	rule->text = line_join(ps, l, 0);
	if (!rule->redirect || !rule->text)
		return -ENOMEM;
	rule->pos = l->pos;
	rule->action = ACTION_REDIRECT;
	r = rule_order_check(ps, b, l, RANK_REDIRECT);
	if (r == 0)
		r = parse_redirect(ps, b, l, PLACE_REQ, rule->redirect);
	if (r == 0)
		r = compile_condition(ps, b, l, PLACE_REQ, &rule->cond);
	if (r == 0)
		list_push_back(&b->redirects, &rule->link);
	return r;
}

/* --- capture ----------------------------------------------------------------------------------- */

struct conf_capture *capture_new(struct parser *ps, struct conf_proxy *px, struct str name,
				 uint32_t len, bool is_response)
{
	struct conf_capture *c = arena_zalloc(&ps->conf->arena, sizeof(*c));

	if (!c)
		return NULL;
	c->name = (char *)name.p;
	c->len = len;
	c->is_response = is_response;
	c->index = is_response ? px->n_rsp_captures++ : px->n_req_captures++;
	list_push_back(&px->captures, &c->link);
	return c;
}

static int want_len(struct parser *ps, struct line *l, uint64_t *ret)
{
	if (!line_accept(l, "len"))
		return conf_fail(ps, l, l->at, "'capture' expects 'len <number>'");
	return arg_u64(ps, l, 1, 65535, ret);
}

/* capture request|response header <name> len <n>, capture cookie <name> len <n> */
int parse_capture(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_proxy *px = &((struct proxy_build *)obj)->px;
	bool is_response = false;
	uint64_t len = 0;
	struct str name;
	int r;

	if (line_accept(l, "cookie")) {
		r = arg_string(ps, l, "the name of a cookie", &px->capture_cookie);
		if (r == 0)
			r = want_len(ps, l, &len);
		px->capture_cookie_len = (uint32_t)len;
		return r;
	}
	if (line_accept(l, "response"))
		is_response = true;
	else if (!line_accept(l, "request"))
		return conf_fail(ps, l, l->at, "'capture' expects request, response or cookie");
	if (!line_accept(l, "header"))
		return conf_fail(ps, l, l->at, "'capture %s' expects 'header <name> len <number>'",
				 is_response ? "response" : "request");
	r = line_want(ps, l, "the name of a header", &name);
	if (r == 0)
		r = want_len(ps, l, &len);
	if (r)
		return r;
	return capture_new(ps, px, name, (uint32_t)len, is_response) ? 0 : -ENOMEM;
}

/* declare capture request|response len <n>: a slot that rules fill by its number, from 0 */
static int parse_declare(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	bool is_response = false;
	uint64_t len;
	int r;

	if (!line_accept(l, "capture"))
		return conf_fail(ps, l, l->at, "'declare' expects 'capture'");
	if (line_accept(l, "response"))
		is_response = true;
	else if (!line_accept(l, "request"))
		return conf_fail(ps, l, l->at, "'declare capture' expects request or response");
	r = want_len(ps, l, &len);
	if (r)
		return r;
	return capture_new(ps, &((struct proxy_build *)obj)->px, STR_NULL, (uint32_t)len,
			   is_response)
		       ? 0
		       : -ENOMEM;
}

/* --- tables ------------------------------------------------------------------------------------ */

#define RULES_ARGS "<action> [<argument>...] [if|unless <condition>]"

static const struct keyword tcp_request_rows[] = {
	{ NAME("connection"), SEC_DFL, ARG_FUNC, KW_LATE, .parse = parse_ruleset,
	  .min = RULES_TCP_CONNECTION, .grade = '1', .args = RULES_ARGS,
	  .help = "right after accept" },
	{ NAME("session"), SEC_DFL, ARG_FUNC, KW_LATE, .parse = parse_ruleset,
	  .min = RULES_TCP_SESSION, .grade = '1', .args = RULES_ARGS,
	  .help = "after PROXY header and TLS handshake" },
	{ NAME("content"), SEC_DFLB, ARG_FUNC, KW_LATE, .parse = parse_ruleset,
	  .min = RULES_TCP_CONTENT, .grade = '1', .args = RULES_ARGS,
	  .help = "when data is there" },
	{ NAME("inspect-delay"), SEC_DFLB, ARG_FUNC,
	  .offset = offsetof(struct conf_proxy, inspect_delay), .parse = parse_inspect_delay,
	  .grade = '1', .args = "<time>", .help = "how long content rules may wait for data" },
};
static const struct keyword_table tcp_request_table = KEYWORDS("tcp-request keyword",
							       tcp_request_rows);

static const struct keyword tcp_response_rows[] = {
	{ NAME("content"), SEC_DLB, ARG_FUNC, KW_LATE, .parse = parse_ruleset,
	  .min = RULES_TCP_RESPONSE, .grade = '1', .args = RULES_ARGS,
	  .help = "when the server has answered" },
	{ NAME("inspect-delay"), SEC_DLB, ARG_FUNC,
	  .offset = offsetof(struct conf_proxy, rsp_inspect_delay), .parse = parse_inspect_delay,
	  .grade = '1', .args = "<time>", .help = "how long such rules may wait for data" },
};
static const struct keyword_table tcp_response_table = KEYWORDS("tcp-response keyword",
								tcp_response_rows);

static const struct keyword rows[] = {
	{ NAME("acl"), SEC_DFLB, ARG_FUNC, KW_LATE, .parse = compile_acl, .grade = '1',
	  .args = "<name> <expression> [<flags>] [<operator>] [<value>...]",
	  .help = "a named condition" },
	{ NAME("http-request"), SEC_DFLB, ARG_FUNC, KW_LATE, .parse = parse_ruleset,
	  .min = RULES_HTTP_REQUEST, .grade = '1', .args = RULES_ARGS, .help = "on every request" },
	{ NAME("http-response"), SEC_DFLB, ARG_FUNC, KW_LATE, .parse = parse_ruleset,
	  .min = RULES_HTTP_RESPONSE, .grade = '1', .args = RULES_ARGS,
	  .help = "on every answer of a server" },
	{ NAME("http-after-response"), SEC_DFLB, ARG_FUNC, KW_LATE, .parse = parse_ruleset,
	  .min = RULES_HTTP_AFTER_RESPONSE, .grade = '1', .args = RULES_ARGS,
	  .help = "on every answer, also our own" },
	{ NAME("tcp-request"), SEC_DFLB, ARG_SUB, .sub = &tcp_request_table, .grade = '1',
	  .help = "rules on connections" },
	{ NAME("tcp-response"), SEC_DLB, ARG_SUB, .sub = &tcp_response_table, .grade = '1',
	  .help = "rules on answers" },
	{ NAME("declare"), SEC_FL, ARG_FUNC, .parse = parse_declare, .grade = '2',
	  .args = "capture request|response len <n>", .help = "room for 'capture ... id'" },
	{ NAME("use_backend"), SEC_FL, ARG_FUNC, KW_LATE, .parse = parse_use_backend, .grade = '1',
	  .args = "<backend> [if|unless <condition>]", .help = "which backend" },
	{ NAME("use-server"), SEC_LB, ARG_FUNC, KW_LATE, .parse = parse_use_server, .grade = '1',
	  .args = "<server> [if|unless <condition>]", .help = "which server" },
	{ NAME("redirect"), SEC_FLB, ARG_FUNC, KW_LATE, .parse = parse_redirect_line, .grade = '1',
	  .args = "location|prefix|scheme <to> [code <n>] [...] [if|unless <condition>]",
	  .help = "old form of http-request redirect; runs behind all of them" },
};
const struct keyword_table conf_kw_rules = KEYWORDS("keyword", rows);
