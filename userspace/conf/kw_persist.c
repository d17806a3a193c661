/* SPDX-License-Identifier: BSD-2-Clause */
/* Persistence beyond the cookie itself: when it is forced or ignored, and where dynamic cookies get their values. */
#include <errno.h>

#include "conf/conf_priv.h"

/* force-persist, ignore-persist if|unless <condition> */
static int parse_persist_rule(struct parser *ps, struct line *l, void *obj,
			      const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct conf_persist_rule *r = arena_zalloc(&ps->conf->arena, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	if (!line_has(l))
		return conf_fail(ps, l, l->n,
				 "'" STR_FMT "' expects 'if' or 'unless' and a condition",
				 STR_ARG(kw->name));
	r->is_force = kw->min;
	r->text = line_join(ps, l, 0);
	rc = r->text ? compile_condition(ps, b, l, PLACE_REQ | PLACE_CONTENT, &r->cond) : -ENOMEM;
	if (rc == 0)
		list_push_back(&b->px.persist_rules, &r->link);
	return rc;
}

static int parse_keep_alive_queue(struct parser *ps, struct line *l, void *obj,
				  const struct keyword *kw)
{
	struct conf_proxy *px = &((struct proxy_build *)obj)->px;
	uint64_t v;
	int rc;

	px->has_max_ka_queue = false;
	if (line_accept(l, "-1"))
		return 0;
	rc = arg_u64(ps, l, 0, INT32_MAX, &v);
	if (rc)
		return rc;
	px->has_max_ka_queue = true;
	px->max_ka_queue = (uint32_t)v;
	return 0;
}

/* One connection at most is a client's own, whatever the number. */
static int parse_session_conns(struct parser *ps, struct line *l, void *obj,
			       const struct keyword *kw)
{
	uint64_t v;
	int rc = arg_u64(ps, l, 0, INT32_MAX, &v);

	if (rc == 0)
		((struct proxy_build *)obj)->px.keeps_no_srv_conns = v == 0;
	return rc;
}

/* A name as RFC 9110 5.1 wants it. */
static int parse_name_header(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_proxy *px = &((struct proxy_build *)obj)->px;
	struct str name = line_peek(l);
	int rc = arg_string(ps, l, "the name of a header", &px->name_header);

	for (size_t i = 0; rc == 0 && i < name.len; i++) {
		char c = str_lower_char(name.p[i]);

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
		      (c && strchr("!#$%&'*+-.^_`|~", c))))
			rc = conf_fail_off(
				ps, l, l->at - 1, i,
				"this character is not permitted in the name of a header");
	}
	return rc;
}

#define AT(field) .offset = offsetof(struct conf_proxy, field)
static const struct keyword rows[] = {
	{ NAME("force-persist"), SEC_LB, ARG_FUNC, KW_LATE, .parse = parse_persist_rule, .min = 1,
	  .grade = '2', .args = "if|unless <condition>",
	  .help = "such requests go to the server they ask for even when it is down or in "
		  "maintenance" },
	{ NAME("ignore-persist"), SEC_LB, ARG_FUNC, KW_LATE, .parse = parse_persist_rule,
	  .grade = '2', .args = "if|unless <condition>",
	  .help = "the cookie of such requests is not looked at" },
	{ NAME("dynamic-cookie-key"), SEC_DLB, ARG_STRING, AT(dynamic_cookie_key), .grade = '2',
	  .args = "<secret>",
	  .help = "what 'cookie … dynamic' makes values of, with the servers' addresses" },
	{ NAME("http-send-name-header"), SEC_DLB, ARG_FUNC, .parse = parse_name_header,
	  .grade = '2', .args = "<header>",
	  .help = "every request tells the name of the server it goes to" },
	{ NAME("max-keep-alive-queue"), SEC_DLB, ARG_FUNC, .parse = parse_keep_alive_queue,
	  .grade = '2', .args = "<number>|-1", .def = "-1",
	  .help = "with 'option prefer-last-server': a longer queue there, and another server is "
		  "taken" },
	{ NAME("max-session-srv-conns"), SEC_DFL, ARG_FUNC, .parse = parse_session_conns,
	  .grade = '2', .args = "<number>", .def = "5",
	  .help = "server connections that a client keeps for itself; 0: none, else one" },
};
#undef AT
const struct keyword_table conf_kw_persist = KEYWORDS("keyword", rows);

int finalize_persist(struct parser *ps, struct proxy_build *b)
{
	const struct conf_proxy *px = &b->px;

	if (px->cookie.name && px->cookie.dynamic && !px->dynamic_cookie_key)
		return conf_warn(
			ps, b->line, 0,
			"the cookie of %s '%s' is dynamic, but there is no "
			"'dynamic-cookie-key': servers without a cookie of their own get none",
			b->kind, px->name);
	return 0;
}
