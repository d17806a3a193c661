/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The action of a rule: one row each, with the rule sets that allow it and a function for what follows.
 * Control thread; what is compiled lives in the configuration's arena.
 */
#include <errno.h>
#include <stdio.h>

#include "conf/kw_action_priv.h"

struct action {
	struct str name;
	uint8_t kind; /* enum conf_action_kind */
	uint8_t sets; /* bit per enum conf_ruleset */
	bool has_arg; /* "name(arg)" */
	bool is_pending;
	char grade;
	action_fn *parse;
	const char *args, *help;
};

#define BIT(set) (1u << RULES_##set)
#define TCP_REQ	 (BIT(TCP_CONNECTION) | BIT(TCP_SESSION) | BIT(TCP_CONTENT))
#define TCP_ANY	 (TCP_REQ | BIT(TCP_RESPONSE))
#define REQ	 BIT(HTTP_REQUEST)
#define RSP	 BIT(HTTP_RESPONSE)
#define AFTER	 BIT(HTTP_AFTER_RESPONSE)
#define HTTP	 (REQ | RSP | AFTER)

static int parse_none(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return 0;
}

static int parse_answer(struct parser *ps, struct line *l, struct action_ctx *c)
{
	struct conf_reply *r = arena_zalloc(&ps->conf->arena, sizeof(*r));
	int ret;

	if (!r)
		return -ENOMEM;
	list_init(&r->headers);
	c->rule->reply = r;
	/* Without a word more: the section's own text, but `return` says nothing. */
	if (c->rule->action != ACTION_RETURN &&
	    (!line_has(l) || str_is_eq(line_peek(l), STR("if")) ||
	     str_is_eq(line_peek(l), STR("unless"))))
		r->kind = REPLY_DEFAULT;
	ret = parse_reply(ps, c->b, l, c->place, r);
	if (ret == 0 && !r->status)
		r->status = c->rule->action == ACTION_RETURN   ? 200
			    : c->rule->action == ACTION_TARPIT ? 500
			    : c->set == RULES_HTTP_RESPONSE    ? 502
							       : 403;
	return ret ? ret : reply_check(ps, l, r);
}

static int parse_redirect_action(struct parser *ps, struct line *l, struct action_ctx *c)
{
	c->rule->redirect = arena_zalloc(&ps->conf->arena, sizeof(*c->rule->redirect));
	if (!c->rule->redirect)
		return -ENOMEM;
	return parse_redirect(ps, c->b, l, c->place, c->rule->redirect);
}

static int parse_auth(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return line_accept(l, "realm") ? arg_string(ps, l, "a realm", &c->rule->name) : 0;
}

static int want_header(struct parser *ps, struct line *l, char **ret)
{
	int r = arg_string(ps, l, "the name of a header", ret);

	for (const char *p = r ? "" : *ret; *p; p++) {
		if (*p <= ' ' || *p == ':' || *p == 127)
			return conf_fail(ps, l, l->at - 1, "'%.64s' cannot be the name of a header",
					 *ret);
	}
	return r;
}

static int parse_header_fmt(struct parser *ps, struct line *l, struct action_ctx *c)
{
	int r = want_header(ps, l, &c->rule->name);
	struct str name = str_from_cstr(r ? "" : c->rule->name);

	c->rule->header = (struct http_header_name){ name, http_field_id(name) };
	return r ? r : compile_format(ps, c->b, l, c->place, &c->rule->fmt);
}

static int parse_del_header(struct parser *ps, struct line *l, struct action_ctx *c)
{
	static const struct keyword_value matches[] = {
		VALUE("str", MATCH_STR), VALUE("beg", MATCH_BEG), VALUE("end", MATCH_END),
		VALUE("sub", MATCH_SUB), VALUE("reg", MATCH_REG), VALUES_END
	};
	int r = arg_string(ps, l, "the name of a header", &c->rule->name);

	if (r || !line_accept(l, "-m"))
		return r;
	r = arg_value(ps, l, matches, &c->rule->match);
	if (r || c->rule->match != MATCH_REG)
		return r;
	c->rule->regex = c->rule->name;
	l->at -= 2; /* whose word the compiler looks at */
	r = compile_regex(ps, c->b, l, &c->rule->re);
	l->at += 2;
	return r;
}

/* [<header>] <regex> <format> */
static int parse_replace(struct parser *ps, struct line *l, struct action_ctx *c)
{
	bool has_header = c->rule->action == ACTION_REPLACE_HEADER ||
			  c->rule->action == ACTION_REPLACE_VALUE;
	int r = has_header ? want_header(ps, l, &c->rule->name) : 0;

	if (r == 0)
		r = arg_string(ps, l, "a regular expression", &c->rule->regex);
	if (r == 0)
		r = compile_regex(ps, c->b, l, &c->rule->re);
	return r ? r : compile_format(ps, c->b, l, c->place, &c->rule->fmt);
}

static int parse_fmt(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return compile_format(ps, c->b, l, c->place, &c->rule->fmt);
}

static int parse_sample(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return compile_expr(ps, c->b, l, c->place, &c->rule->expr);
}

static int parse_status(struct parser *ps, struct line *l, struct action_ctx *c)
{
	uint64_t v;
	int r = arg_u64(ps, l, 100, 999, &v);

	if (r)
		return r;
	c->rule->number = (uint32_t)v;
	return line_accept(l, "reason") ? arg_string(ps, l, "a reason", &c->rule->name) : 0;
}

static int parse_var(struct parser *ps, struct line *l, struct action_ctx *c)
{
	struct str name = c->arg, cond = c->arg;
	enum var_scope scope;
	struct err err;
	int r;

	name = str_cut(&cond, ',');
	if (cond.p && c->rule->action == ACTION_UNSET_VAR)
		return conf_fail(ps, l, l->at - 1, "'unset-var(…)' takes the name only");
	if (cond.p && var_cond_parse(cond, &c->rule->var_conds, &err))
		return conf_fail_off(ps, l, l->at - 1, (size_t)(cond.p - l->words[l->at - 1].p),
				     "%s", err.text);
	r = vars_intern(name, &scope, &c->rule->var_id, &err);
	if (r == -ENOMEM)
		return r;
	if (r)
		return conf_fail_off(ps, l, l->at - 1, (size_t)(name.p - l->words[l->at - 1].p),
				     "%s", err.text);
	c->rule->var_scope = (uint8_t)scope;
	if ((c->set == RULES_TCP_CONNECTION || c->set == RULES_TCP_SESSION) && scope != VAR_SESS &&
	    scope != VAR_PROC)
		return conf_fail(ps, l, l->at - 1,
				 "only variables 'sess.…' and 'proc.…' exist before a request");
	if (c->rule->action == ACTION_UNSET_VAR)
		return 0;
	return c->rule->action == ACTION_SET_VAR ? parse_sample(ps, l, c) : parse_fmt(ps, l, c);
}

/* capture <sample> len <n>: a further field of the log line */
static int parse_capture_action(struct parser *ps, struct line *l, struct action_ctx *c)
{
	struct conf_capture *cap;
	uint64_t len;
	int r = parse_sample(ps, l, c);

	if (r)
		return r;
	/* A slot that `declare capture` made, in a frontend that is known only at run time. */
	if (line_accept(l, "id")) {
		r = arg_u64(ps, l, 0, 1000, &len);
		c->rule->index = (uint32_t)len;
		return r;
	}
	if (!line_accept(l, "len"))
		return conf_fail(ps, l, l->at, "'capture' expects 'len <number>' or 'id <number>'");
	if (c->b->section & (SEC_BACKEND | SEC_DEFAULTS))
		return conf_fail(ps, l, l->at - 1, "'capture … len' is only allowed in frontends");
	r = arg_u64(ps, l, 1, 65535, &len);
	if (r)
		return r;
	cap = capture_new(ps, &c->b->px, STR_NULL, (uint32_t)len, c->set == RULES_HTTP_RESPONSE);
	if (!cap)
		return -ENOMEM;
	c->rule->index = cap->index;
	c->rule->number = (uint32_t)len;
	return 0;
}

static int parse_track(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return parse_track_sc(ps, c->b, l, c->place, c->arg, c->rule);
}

static int parse_pattern(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return parse_pattern_edit(ps, c->b, l, c->place, c->arg, c->rule);
}

static int parse_xdp_drop(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return parse_ban(ps, l, c->rule, false);
}

static int parse_xdp_reset(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return parse_ban(ps, l, c->rule, true);
}

static int parse_inc_gpc0(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return parse_sc_change(ps, c->b, l, c->place, c->arg, 0, SC_INC, c->rule);
}

static int parse_inc_gpc1(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return parse_sc_change(ps, c->b, l, c->place, c->arg, 1, SC_INC, c->rule);
}

static int parse_inc_gpc(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return parse_sc_change(ps, c->b, l, c->place, c->arg, -1, SC_INC, c->rule);
}

static int parse_add_or_set(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return parse_sc_change(ps, c->b, l, c->place, c->arg, -1, SC_ADD_OR_SET, c->rule);
}

static int parse_set_gpt0(struct parser *ps, struct line *l, struct action_ctx *c)
{
	return parse_sc_change(ps, c->b, l, c->place, c->arg, 0, SC_ADD_OR_SET, c->rule);
}

#define ACTION(text, k, in, p, ...) { NAME(text), ACTION_##k, in, .parse = p, __VA_ARGS__ }

static const struct action actions[] = {
	ACTION("accept", ACCEPT, TCP_ANY, parse_none, .grade = '1',
	       .help = "no further rules of this set"),
	ACTION("reject", REJECT, TCP_ANY | REQ, parse_none, .grade = '1',
	       .help = "closes the connection"),
	ACTION("close", CLOSE, BIT(TCP_RESPONSE), parse_none, .grade = '1',
	       .help = "ends the server's connection; what it has said goes to the client"),
	ACTION("allow", ALLOW, HTTP, parse_none, .grade = '1',
	       .help = "no further rules of this set"),
	ACTION("deny", DENY, REQ | RSP, parse_answer, .grade = '1',
	       .args = "[deny_status <n>] [content-type <t> string|lf-string|file|lf-file <x>] "
		       "[hdr <n> <v>]",
	       .help = "answers 403 (502 for a response)"),
	ACTION("tarpit", TARPIT, REQ, parse_answer, .grade = '1', .args = "[deny_status <n>]",
	       .help = "answers 500, after a while"),
	ACTION("return", RETURN, REQ | RSP, parse_answer, .grade = '1',
	       .args = "[status <n>] [content-type <t> string|lf-string|file|lf-file <x>] [hdr <n> "
		       "<v>]",
	       .help = "answers itself"),
	ACTION("redirect", REDIRECT, REQ | RSP, parse_redirect_action, .grade = '1',
	       .args = "location|prefix|scheme <to> [code <n>] [drop-query] [append-slash]",
	       .help = "sends the client elsewhere"),
	ACTION("auth", AUTH, REQ, parse_auth, .grade = '1', .args = "[realm <r>]",
	       .help = "answers 401"),
	ACTION("silent-drop", SILENT_DROP, TCP_ANY | REQ | RSP, parse_none, .grade = '1',
	       .help = "forgets the connection without telling the client"),
	ACTION("xdp-drop", XDP_DROP, BIT(TCP_CONNECTION) | BIT(TCP_CONTENT) | REQ, parse_xdp_drop,
	       .grade = '1', .args = "[for <time>] [prefix <bits>[,<bits>]]",
	       .help = "silent-drop, and the client's packets are dropped in XDP from then on"),
	ACTION("xdp-reset", XDP_RESET, BIT(TCP_CONNECTION) | BIT(TCP_CONTENT) | REQ,
	       parse_xdp_reset, .grade = '1', .args = "[for <time>] [prefix <bits>[,<bits>]]",
	       .help = "resets the connection; from then on XDP drops the client's packets and "
		       "answers with RST"),
	ACTION("set-header", SET_HEADER, HTTP, parse_header_fmt, .grade = '1',
	       .args = "<name> <format>", .help = "replaces a header"),
	ACTION("add-header", ADD_HEADER, HTTP, parse_header_fmt, .grade = '1',
	       .args = "<name> <format>", .help = "adds a header"),
	ACTION("del-header", DEL_HEADER, HTTP, parse_del_header, .grade = '1',
	       .args = "<name> [-m str|beg|end|sub|reg]", .help = "removes headers"),
	ACTION("replace-header", REPLACE_HEADER, HTTP, parse_replace, .grade = '1',
	       .args = "<name> <regex> <format>", .help = "rewrites whole values of a header"),
	ACTION("replace-value", REPLACE_VALUE, HTTP, parse_replace, .grade = '1',
	       .args = "<name> <regex> <format>", .help = "rewrites items of a header's list"),
	ACTION("set-path", SET_PATH, REQ, parse_fmt, .grade = '1', .args = "<format>",
	       .help = "the path"),
	ACTION("set-pathq", SET_PATHQ, REQ, parse_fmt, .grade = '1', .args = "<format>",
	       .help = "path and query"),
	ACTION("set-query", SET_QUERY, REQ, parse_fmt, .grade = '1', .args = "<format>",
	       .help = "the query"),
	ACTION("set-uri", SET_URI, REQ, parse_fmt, .grade = '1', .args = "<format>",
	       .help = "the whole target"),
	ACTION("set-method", SET_METHOD, REQ, parse_fmt, .grade = '1', .args = "<format>",
	       .help = "the method"),
	ACTION("replace-path", REPLACE_PATH, REQ, parse_replace, .grade = '1',
	       .args = "<regex> <format>", .help = "rewrites the path"),
	ACTION("replace-pathq", REPLACE_PATHQ, REQ, parse_replace, .grade = '1',
	       .args = "<regex> <format>", .help = "rewrites path and query"),
	ACTION("replace-uri", REPLACE_URI, REQ, parse_replace, .grade = '1',
	       .args = "<regex> <format>", .help = "rewrites the whole target"),
	ACTION("set-status", SET_STATUS, RSP | AFTER, parse_status, .grade = '1',
	       .args = "<status> [reason <text>]", .help = "the status"),
	ACTION("set-var", SET_VAR, TCP_ANY | HTTP, parse_var, .has_arg = true, .grade = '1',
	       .args = "(<scope>.<name>[,<condition>...]) <expression>", .help = "a variable"),
	ACTION("set-var-fmt", SET_VAR_FMT, TCP_ANY | HTTP, parse_var, .has_arg = true, .grade = '2',
	       .args = "(<scope>.<name>[,<condition>...]) <format>", .help = "a variable"),
	ACTION("unset-var", UNSET_VAR, TCP_ANY | HTTP, parse_var, .has_arg = true, .grade = '1',
	       .args = "(<scope>.<name>)", .help = "forgets a variable"),
	ACTION("capture", CAPTURE, BIT(TCP_CONTENT) | REQ | RSP, parse_capture_action, .grade = '1',
	       .args = "<expression> len <n>", .help = "a further field of the log line"),
	ACTION("set-src", SET_SRC, BIT(TCP_CONTENT) | REQ, parse_sample, .grade = '1',
	       .args = "<expression>", .help = "the client's address"),
	ACTION("set-src-port", SET_SRC_PORT, BIT(TCP_CONTENT) | REQ, parse_sample, .grade = '1',
	       .args = "<expression>", .help = "the client's port"),
	ACTION("set-dst", SET_DST, BIT(TCP_CONTENT) | REQ, parse_sample, .grade = '1',
	       .args = "<expression>", .help = "the destination's address"),
	ACTION("set-dst-port", SET_DST_PORT, BIT(TCP_CONTENT) | REQ, parse_sample, .grade = '1',
	       .args = "<expression>", .help = "the destination's port"),
	ACTION("set-log-level", SET_LOG_LEVEL, BIT(TCP_CONTENT) | BIT(TCP_RESPONSE) | HTTP,
	       action_log_level, .grade = '2', .args = "<level>|silent",
	       .help = "severity of the log line"),
	ACTION("set-timeout", SET_TIMEOUT, REQ | RSP, action_timeout, .grade = '2',
	       .args = "server|tunnel|client <time>|<expression>",
	       .help = "a timeout of this stream"),
	ACTION("set-mark", SET_MARK, TCP_ANY | REQ | RSP, action_mark, .grade = '2',
	       .args = "<mark>", .help = "mark of the packets to the client (SO_MARK)"),
	ACTION("set-fc-mark", SET_MARK, TCP_ANY | REQ | RSP, action_mark, .grade = '2',
	       .args = "<mark>|<expression>", .help = "the same"),
	ACTION("set-tos", SET_TOS, TCP_ANY | REQ | RSP, action_mark, .grade = '2', .args = "<tos>",
	       .help = "TOS or traffic class of the packets to the client"),
	ACTION("set-fc-tos", SET_TOS, TCP_ANY | REQ | RSP, action_mark, .grade = '2',
	       .args = "<tos>|<expression>", .help = "the same"),
	ACTION("set-nice", SET_NICE, BIT(TCP_CONTENT) | BIT(TCP_RESPONSE) | REQ | RSP, action_nice,
	       .grade = '2', .args = "<-1024 to 1024>", .help = "accepted, without effect"),
	ACTION("wait-for-body", WAIT_FOR_BODY, REQ | RSP, action_wait_for_body, .grade = '2',
	       .args = "time <time> [at-least <size>]",
	       .help = "until the body is whole, so long, or the buffer full: rules see it then"),
	ACTION("pause", PAUSE, REQ | RSP, action_pause, .grade = '2', .args = "<time>|<expression>",
	       .help = "goes on only after so many milliseconds"),
	ACTION("strict-mode", STRICT_MODE, HTTP, action_strict_mode, .grade = '2', .args = "on|off",
	       .help = "on (at the list's beginning): a rewrite that fails is answered by 500; "
		       "off: it is counted only"),
	ACTION("early-hint", EARLY_HINT, REQ, parse_header_fmt, .grade = '2',
	       .args = "<header> <format>",
	       .help = "a field of a 103 for the client; such rules in a row make one"),
	ACTION("set-bandwidth-limit", SET_BANDWIDTH_LIMIT,
	       BIT(TCP_CONTENT) | BIT(TCP_RESPONSE) | REQ | RSP, action_bandwidth, .grade = '2',
	       .args = "<filter> [limit <size>|<expression>] [period <time>|<expression>]",
	       .help = "from here on a filter of this section holds for the stream's body"),
	ACTION("set-priority-class", SET_PRIORITY_CLASS, BIT(TCP_CONTENT) | REQ, parse_sample,
	       .grade = '2', .args = "<expression>",
	       .help = "rank in the queues of servers and backend, -2047 to 2047; the lowest goes "
		       "first"),
	ACTION("set-priority-offset", SET_PRIORITY_OFFSET, BIT(TCP_CONTENT) | REQ, parse_sample,
	       .grade = '2', .args = "<expression>",
	       .help = "the same within a class: as if it had come so many ms later (earlier: "
		       "below 0)"),
	ACTION("disable-l7-retry", DISABLE_L7_RETRY, REQ, parse_none, .grade = '2',
	       .help = "this request is sent once, whatever retry-on says"),
	ACTION("set-retries", SET_RETRIES, BIT(TCP_CONTENT) | REQ, action_retries, .grade = '2',
	       .args = "<number>|<expression>", .help = "instead of what 'retries' says"),
	ACTION("use-service", USE_SERVICE, REQ, action_use_service, .grade = '1',
	       .args = "prometheus-exporter", .help = "answers with the metrics"),
	ACTION("track-sc", TRACK_SC, TCP_REQ | REQ | RSP, parse_track, .grade = '1',
	       .args = "<number> <expression> [table <name>]",
	       .help = "counts this connection or request in a stick table (track-sc0 …)"),
	ACTION("sc-inc-gpc0", SC_INC_GPC, TCP_ANY | HTTP, parse_inc_gpc0, .has_arg = true,
	       .grade = '1', .args = "(<sc>)", .help = "counter 0 of what track-sc<sc> tracks"),
	ACTION("sc-inc-gpc1", SC_INC_GPC, TCP_ANY | HTTP, parse_inc_gpc1, .has_arg = true,
	       .grade = '1', .args = "(<sc>)", .help = "counter 1 of what track-sc<sc> tracks"),
	ACTION("sc-inc-gpc", SC_INC_GPC, TCP_ANY | HTTP, parse_inc_gpc, .has_arg = true,
	       .grade = '2', .args = "(<idx>,<sc>)", .help = "counter <idx>"),
	ACTION("sc-add-gpc", SC_INC_GPC, TCP_ANY | HTTP, parse_add_or_set, .has_arg = true,
	       .grade = '2', .args = "(<idx>,<sc>) <number>|<expression>",
	       .help = "adds to counter <idx>"),
	ACTION("sc-set-gpt0", SC_SET_GPT, TCP_ANY | HTTP, parse_set_gpt0, .has_arg = true,
	       .grade = '1', .args = "(<sc>) <number>|<expression>",
	       .help = "tag 0 of what track-sc<sc> tracks"),
	ACTION("sc-set-gpt", SC_SET_GPT, TCP_ANY | HTTP, parse_add_or_set, .has_arg = true,
	       .grade = '2', .args = "(<idx>,<sc>) <number>|<expression>", .help = "tag <idx>"),
	ACTION("add-acl", EDIT_PATTERN, HTTP, parse_pattern, .has_arg = true, .grade = '2',
	       .args = "(<file>) <format>", .help = "adds a pattern to a list"),
	ACTION("del-acl", EDIT_PATTERN, HTTP, parse_pattern, .has_arg = true, .grade = '2',
	       .args = "(<file>) <format>", .help = "removes it"),
	ACTION("set-map", EDIT_PATTERN, HTTP, parse_pattern, .has_arg = true, .grade = '2',
	       .args = "(<file>) <key format> <value format>",
	       .help = "sets the value of a key in a map, which is added when it is not there"),
	ACTION("del-map", EDIT_PATTERN, HTTP, parse_pattern, .has_arg = true, .grade = '2',
	       .args = "(<file>) <key format>", .help = "removes a key"),
	ACTION("expect-proxy", EXPECT_PROXY, BIT(TCP_CONNECTION), action_expect_proxy, .grade = '1',
	       .args = "layer4", .help = "the connection begins with a PROXY header"),
};

static const char *const pending[] = {
	"use-service", "set-bc-mark", "set-bc-tos", "wait-for-handshake", "do-resolve*", NULL,
};
static const char *const refused[] = {
	"normalize-uri",   "cache-use",	      "cache-store",	 "send-spoe-group",
	"lua.*",	   "do-log",	      "switch-mode",	 "attach-srv",
	"set-headers-bin", "add-headers-bin", "del-headers-bin", NULL,
};

static const char *const set_names[RULES_COUNT] = {
	[RULES_TCP_CONNECTION] = "tcp-request connection",
	[RULES_TCP_SESSION] = "tcp-request session",
	[RULES_TCP_CONTENT] = "tcp-request content",
	[RULES_TCP_RESPONSE] = "tcp-response content",
	[RULES_HTTP_REQUEST] = "http-request",
	[RULES_HTTP_RESPONSE] = "http-response",
	[RULES_HTTP_AFTER_RESPONSE] = "http-after-response",
};

static int fail_action(struct parser *ps, struct line *l, enum conf_ruleset set, struct str name,
		       const struct action *elsewhere)
{
	struct nearest near;
	char hint[96];

	name = str_sub(name, 0, 64);
	if (elsewhere && elsewhere->is_pending)
		return conf_fail(ps, l, l->at - 1, "'" STR_FMT "' is not supported by this version",
				 STR_ARG(name));
	if (elsewhere)
		return conf_fail(ps, l, l->at - 1, "'" STR_FMT "' is not possible in '%s'",
				 STR_ARG(name), set_names[set]);
	if (name_pattern_has(pending, name))
		return conf_fail(ps, l, l->at - 1, "'" STR_FMT "' is not supported by this version",
				 STR_ARG(name));
	if (name_pattern_has(refused, name))
		return conf_fail(ps, l, l->at - 1,
				 "'" STR_FMT "' is known by HAProxy but not supported by Headgate",
				 STR_ARG(name));
	nearest_init(&near, name);
	for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
		if ((actions[i].sets & (1u << set)) && !actions[i].is_pending)
			nearest_offer(&near, actions[i].name);
	}
	return conf_fail(ps, l, l->at - 1, "unknown action '" STR_FMT "' in '%s'%s", STR_ARG(name),
			 set_names[set], nearest_hint(&near, hint));
}

static int find_action(struct parser *ps, struct line *l, struct action_ctx *c,
		       const struct action **ret)
{
	const struct action *elsewhere = NULL;
	struct str word, name;
	size_t open;
	int r = line_want(ps, l, "an action", &word);

	if (r)
		return r;
	open = str_find_char(word, '(');
	name = open == SIZE_MAX ? word : str_sub(word, 0, open);
	/* The number is part of the word. */
	if (str_is_prefix(name, STR("track-sc")) && name.len > 8) {
		c->arg = str_from(name, 8);
		name.len = 8;
	}
	for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
		const struct action *a = &actions[i];

		if (!str_is_eq(a->name, name))
			continue;
		if (a->is_pending || !(a->sets & (1u << c->set))) {
			elsewhere = a;
			continue;
		}
		if (a->has_arg != (open != SIZE_MAX) || (a->has_arg && word.p[word.len - 1] != ')'))
			return conf_fail(ps, l, l->at - 1,
					 a->has_arg ? "'" STR_FMT "' expects '(…)'"
						    : "'" STR_FMT "' takes nothing in parentheses",
					 STR_ARG(a->name));
		if (a->has_arg)
			c->arg = str_sub(word, open + 1, word.len - open - 2);
		*ret = a;
		return 0;
	}
	return fail_action(ps, l, c->set, name, elsewhere);
}

int parse_action(struct parser *ps, struct proxy_build *b, struct line *l, enum conf_ruleset set,
		 struct list *to)
{
	struct conf_rule *rule = arena_zalloc(&ps->conf->arena, sizeof(*rule));
	struct action_ctx c = { .b = b, .rule = rule, .set = set, .place = ruleset_place(set) };
	const struct action *a = NULL;
	int r;

	if (!rule)
		return -ENOMEM;
	rule->pos = l->pos;
	rule->text = line_join(ps, l, 0);
	if (!rule->text)
		return -ENOMEM;
	r = find_action(ps, l, &c, &a);
	if (r)
		return r;
	l->kw = l->at - 1;
	l->kw_n = 1;
	rule->action = a->kind;
	r = a->parse(ps, l, &c);
	if (r == 0)
		r = compile_condition(ps, b, l, c.place, &rule->cond);
	if (r == 0)
		list_push_back(to, &rule->link);
	return r;
}

const struct conf_keyword_doc *action_doc(unsigned i, struct conf_keyword_doc *doc,
					  char sections[160])
{
	const struct action *a = &actions[i];
	size_t len = 0;

	if (i >= ARRAY_SIZE(actions))
		return NULL;
	sections[0] = '\0';
	for (unsigned s = 0; s < RULES_COUNT; s++) {
		if (a->sets & (1u << s) && len < 150)
			len += (size_t)snprintf(sections + len, 160 - len, "%s%s", len ? ", " : "",
						set_names[s]);
	}
	*doc = (struct conf_keyword_doc){ .name = a->name.p,
					  .sections = sections,
					  .args = a->args,
					  .help = a->help,
					  .grade = a->is_pending ? '2' : '1' };
	return doc;
}
