/* SPDX-License-Identifier: BSD-2-Clause */
/* `http-check expect` and `tcp-check expect`: what a good answer is. Control thread. */
#include <errno.h>

#include "conf/conf_priv.h"

static int parse_status_list(struct parser *ps, struct line *l, struct proxy_build *b,
			     struct conf_expect *e)
{
	struct str w, rest;
	unsigned n = 1;
	int r = line_want(ps, l, "status codes such as 200,301-308", &w);

	if (r)
		return r;
	for (size_t i = 0; i < w.len; i++)
		n += w.p[i] == ',';
	e->status = arena_zalloc(&ps->conf->arena, n * sizeof(*e->status));
	if (!e->status)
		return -ENOMEM;
	for (rest = w; rest.p;) {
		struct str item = str_cut(&rest, ',');
		uint64_t lo = 0, hi;
		int bad = str_to_u64(str_cut(&item, '-'), &lo);

		hi = lo;
		if (item.p)
			bad |= str_to_u64(item, &hi);
		if (bad || lo < 100 || hi > 999 || hi < lo)
			return conf_fail(ps, l, l->at - 1,
					 "'status' expects codes such as 200,301-308 instead "
					 "of '" STR_FMT "'",
					 STR_ARG(str_sub(w, 0, 64)));
		e->status[e->n_status].lo = (uint16_t)lo;
		e->status[e->n_status++].hi = (uint16_t)hi;
	}
	return 0;
}

static int parse_text(struct parser *ps, struct line *l, struct proxy_build *b,
		      struct conf_expect *e)
{
	struct str text;
	void *re; /* the check compiles its own: here it has to be one */
	int r = e->what == EXPECT_BINARY ? arg_binary(ps, l, &text)
					 : line_want(ps, l, "a text or regular expression", &text);

	if (r == 0 &&
	    (e->what == EXPECT_RSTATUS || e->what == EXPECT_RSTRING || e->what == EXPECT_RBINARY))
		r = compile_regex(ps, b, l, &re);
	if (r)
		return r;
	e->text = (char *)text.p;
	e->text_len = text.len;
	return 0;
}

/* name|name-lf [-m <method>] <name> [value|value-lf [-m <method>] <value>] */
static int parse_match(struct parser *ps, struct line *l, struct proxy_build *b, bool is_fmt,
		       struct conf_check_text *m)
{
	static const struct keyword_value methods[] = {
		VALUE("str", CHECK_MATCH_STR), VALUE("beg", CHECK_MATCH_BEG),
		VALUE("end", CHECK_MATCH_END), VALUE("sub", CHECK_MATCH_SUB),
		VALUE("reg", CHECK_MATCH_REG), VALUES_END
	};
	void *re; /* see parse_text() */
	int r = 0;

	if (line_accept(l, "-m"))
		r = arg_value(ps, l, methods, &m->how);
	if (r == 0 && is_fmt && m->how == CHECK_MATCH_REG)
		return conf_fail(ps, l, l->at - 1,
				 "a regular expression cannot come from a format");
	if (r == 0 && is_fmt)
		return compile_format(ps, b, l, PLACE_CHECK, &m->fmt);
	if (r == 0)
		r = line_want(ps, l, "a text", &m->text);
	if (r == 0 && m->how == CHECK_MATCH_REG)
		r = compile_regex(ps, b, l, &re);
	return r;
}

static int parse_header(struct parser *ps, struct line *l, struct proxy_build *b,
			struct conf_expect *e)
{
	bool is_fmt = line_accept(l, "name-lf");
	int r;

	if (!is_fmt && !line_accept(l, "name"))
		return conf_fail(
			ps, l, l->at,
			"'%s' expects 'name [-m str|beg|end|sub|reg] <name>', then perhaps "
			"'value' in the same form",
			e->what == EXPECT_HDR ? "hdr" : "fhdr");
	r = parse_match(ps, l, b, is_fmt, &e->name);
	is_fmt = r == 0 && line_accept(l, "value-lf");
	if (r == 0 && (is_fmt || line_accept(l, "value"))) {
		e->has_value = true;
		r = parse_match(ps, l, b, is_fmt, &e->value);
	}
	return r;
}

static int parse_text_fmt(struct parser *ps, struct line *l, struct proxy_build *b,
			  struct conf_expect *e)
{
	return compile_format(ps, b, l, PLACE_CHECK, &e->fmt);
}

static const struct expect_kind {
	const char *name;
	uint8_t what;
	bool is_http, is_tcp;
	int (*parse)(struct parser *ps, struct line *l, struct proxy_build *b,
		     struct conf_expect *e);
} expect_kinds[] = {
	{ "status", EXPECT_STATUS, true, false, parse_status_list },
	{ "rstatus", EXPECT_RSTATUS, true, false, parse_text },
	{ "string", EXPECT_STRING, true, true, parse_text },
	{ "string-lf", EXPECT_STRING, true, true, parse_text_fmt },
	{ "rstring", EXPECT_RSTRING, true, true, parse_text },
	{ "binary", EXPECT_BINARY, false, true, parse_text },
	{ "binary-lf", EXPECT_BINARY, false, true, parse_text_fmt },
	{ "rbinary", EXPECT_RBINARY, false, true, parse_text },
	{ "hdr", EXPECT_HDR, true, false, parse_header },
	{ "fhdr", EXPECT_FHDR, true, false, parse_header },
};

/* What is in front of the kind. 1: it was an option; 0: it was not. */
static int parse_expect_option(struct parser *ps, struct line *l, void *obj,
			       struct conf_check_step *s)
{
	static const struct keyword_value good[] = { VALUE("L7OK", CHECK_SAYS_L7OK),
						     VALUE("L7OKC", CHECK_SAYS_L7OKC),
						     VALUE("L6OK", CHECK_SAYS_L6OK),
						     VALUE("L4OK", CHECK_SAYS_L4OK), VALUES_END };
	static const struct keyword_value bad[] = {
		VALUE("L7RSP", CHECK_SAYS_L7RSP), VALUE("L7STS", CHECK_SAYS_L7STS),
		VALUE("L7OKC", CHECK_SAYS_L7OKC), VALUE("L6RSP", CHECK_SAYS_L6RSP),
		VALUE("L4CON", CHECK_SAYS_L4CON), VALUES_END
	};
	static const struct keyword_value late[] = { VALUE("L7TOUT", CHECK_SAYS_L7TOUT),
						     VALUE("L6TOUT", CHECK_SAYS_L6TOUT),
						     VALUE("L4TOUT", CHECK_SAYS_L4TOUT),
						     VALUES_END };
	struct conf_expect *e = &s->expect;
	uint64_t v;
	int r;

	if (line_accept(l, "!")) {
		e->negate = true;
		return 1;
	}
	if (line_accept(l, "min-recv")) {
		r = arg_u64(ps, l, 0, INT32_MAX, &v);
		e->min_recv = r ? -1 : (int32_t)v;
	} else if (line_accept(l, "comment")) {
		r = arg_string(ps, l, "a text", &s->comment);
	} else if (line_accept(l, "ok-status")) {
		r = arg_value(ps, l, good, &e->ok_says);
	} else if (line_accept(l, "error-status")) {
		r = arg_value(ps, l, bad, &e->error_says);
	} else if (line_accept(l, "tout-status")) {
		r = arg_value(ps, l, late, &e->tout_says);
	} else if (line_accept(l, "status-code")) {
		r = compile_expr(ps, obj, l, PLACE_CHECK, &e->status_code);
	} else if (line_accept(l, "on-success")) {
		r = compile_format(ps, obj, l, PLACE_CHECK, &e->on_success);
	} else if (line_accept(l, "on-error")) {
		r = compile_format(ps, obj, l, PLACE_CHECK, &e->on_error);
	} else {
		return 0;
	}
	return r ? r : 1;
}

int parse_expect(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const char *const pending[] = { "custom", NULL };
	struct conf_check_step *s = check_new_step(ps, obj, l);
	bool is_http = kw->min;
	int r = 1;

	if (!s)
		return -ENOMEM;
	s->kind = STEP_EXPECT;
	if (is_http)
		r = http_check_order(ps, l, obj, HTTP_CHECK_EXPECT);
	if (r < 0)
		return r;
	r = 1;
	while (r > 0)
		r = parse_expect_option(ps, l, obj, s);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(expect_kinds); i++) {
		const struct expect_kind *k = &expect_kinds[i];

		if (!(is_http ? k->is_http : k->is_tcp) || !line_accept(l, k->name))
			continue;
		s->expect.what = k->what;
		r = k->parse(ps, l, obj, &s->expect);
		if (r == 0 && line_accept(l, "comment"))
			r = arg_string(ps, l, "a text", &s->comment);
		if (r == 0)
			list_push_back(&((struct proxy_build *)obj)->px.check.steps, &s->link);
		return r;
	}
	if (r)
		return r;
	if (name_pattern_has(pending, line_peek(l)))
		return conf_fail(ps, l, l->at,
				 "'expect " STR_FMT "' is not supported by this version",
				 STR_ARG(line_peek(l)));
	return conf_fail(ps, l, l->at,
			 is_http ? "'http-check expect' expects status, rstatus, string, rstring, "
				   "string-lf, hdr or fhdr"
				 : "'tcp-check expect' expects string, string-lf, rstring, binary, "
				   "binary-lf or rbinary");
}
