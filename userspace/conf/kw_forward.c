/* SPDX-License-Identifier: BSD-2-Clause */
/* What servers are told about the client's connection: forwardfor, originalto, forwarded. Control thread. */
#include <errno.h>

#include "conf/conf_priv.h"

static int parse_switch(struct line *l, struct conf_proxy *px, uint64_t bit)
{
	if (l->is_negated) {
		px->options &= ~bit;
		px->options_no |= bit;
		return 0;
	}
	px->options |= bit;
	px->options_no &= ~bit;
	return 0;
}

/* [except <net>] [header <name>] and, when `has_if_none`, [if-none] */
static int parse_addr_header(struct parser *ps, struct line *l, struct conf_addr_header *h,
			     bool has_if_none)
{
	struct str w;
	int r = 0;

	while (r == 0 && line_has(l)) {
		if (has_if_none && line_accept(l, "if-none")) {
			h->if_none = true;
		} else if (line_accept(l, "header")) {
			r = arg_string(ps, l, "the name of a header", &h->name);
		} else if (line_accept(l, "except")) {
			r = line_want(ps, l, "a network such as 10.0.0.0/8", &w);
			if (r == 0 && addr_prefix_parse(w, &h->except))
				r = conf_fail(ps, l, l->at - 1,
					      "'except' expects a network such as 10.0.0.0/8 "
					      "instead of '" STR_FMT "'",
					      STR_ARG(str_sub(w, 0, 64)));
			h->has_except = true;
		} else {
			r = conf_fail(ps, l, l->at,
				      "'option " STR_FMT "' expects 'except', 'header'%s instead "
				      "of '" STR_FMT "'",
				      STR_ARG(l->words[l->kw + 1]),
				      has_if_none ? " or 'if-none'" : "",
				      STR_ARG(str_sub(line_peek(l), 0, 64)));
		}
	}
	return r;
}

int parse_forwardfor(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_proxy *px = &((struct proxy_build *)obj)->px;
	bool is_off = l->is_negated;
	int r = parse_switch(l, px, kw->min);

	px->forwardfor = (struct conf_addr_header){ .name = (char *)"X-Forwarded-For" };
	return r || is_off ? r : parse_addr_header(ps, l, &px->forwardfor, true);
}

int parse_originalto(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_proxy *px = &((struct proxy_build *)obj)->px;
	bool is_off = l->is_negated;
	int r = parse_switch(l, px, kw->min);

	px->originalto = (struct conf_addr_header){ .name = (char *)"X-Original-To" };
	return r || is_off ? r : parse_addr_header(ps, l, &px->originalto, false);
}

/* option forwarded [proto] [host] [by] [by_port] [for] [for_port], each also as <name>-expr <expression> */
int parse_forwarded(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const char *const names[FORWARDED_PARTS] = { "proto",   "host", "by",
							    "by_port", "for",  "for_port" };
	struct proxy_build *b = obj;
	struct conf_forwarded *f = &b->px.forwarded;
	bool is_off = l->is_negated, is_bare = !line_has(l);
	int r = parse_switch(l, &b->px, kw->min);

	*f = (struct conf_forwarded){ 0 };
	if (is_off)
		return r;
	if (is_bare)
		f->has[FORWARDED_PROTO] = f->has[FORWARDED_FOR] = true;
	while (r == 0 && line_has(l)) {
		struct str w = line_peek(l), name = w;
		unsigned i = 0;

		if (str_is_suffix(w, STR("-expr")))
			name.len -= 5;
		while (i < FORWARDED_PARTS && !str_is_eq(name, str_from_cstr(names[i])))
			i++;
		if (i == FORWARDED_PARTS || (i == FORWARDED_PROTO && name.len != w.len))
			return conf_fail(ps, l, l->at,
					 "'option forwarded' expects proto, host, by, by_port, "
					 "for, for_port, or one of the last five with '-expr' and "
					 "an expression, instead of '" STR_FMT "'",
					 STR_ARG(str_sub(w, 0, 64)));
		l->at++;
		f->has[i] = true;
		if (name.len != w.len)
			r = compile_expr(ps, b, l, PLACE_REQ, &f->expr[i]);
	}
	if (r == 0 && ((f->has[FORWARDED_BY_PORT] && !f->has[FORWARDED_BY]) ||
		       (f->has[FORWARDED_FOR_PORT] && !f->has[FORWARDED_FOR])))
		r = conf_fail(ps, l, l->kw, "a port of 'option forwarded' needs 'by' or 'for'");
	return r;
}
