/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers that are made here: `return`, `deny`, `tarpit` with their arguments, `redirect`.
 * Constant bodies become formats with every '%' doubled, so that the workers know one kind.
 */
#include <errno.h>

#include "conf/kw_action_priv.h"

int escape_percent(struct parser *ps, struct str text, struct str *ret)
{
	char *out = arena_alloc(&ps->conf->arena, text.len * 2 + 1);
	size_t n = 0;

	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < text.len; i++) {
		out[n++] = text.p[i];
		if (text.p[i] == '%')
			out[n++] = '%';
	}
	*ret = str_make(out, n);
	return 0;
}

static int read_body(struct parser *ps, struct line *l, struct str *ret)
{
	struct str path;
	struct err err;
	int r = line_want(ps, l, "a file", &path);

	if (r)
		return r;
	r = conf_read_path(ps, &ps->conf->arena, path.p, ret, &err);
	if (r == -ENOMEM)
		return r;
	return r ? conf_fail(ps, l, l->at - 1, "%s", err.text) : 0;
}

/* string, lf-string, file, lf-file. */
static int parse_body(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
		      struct conf_reply *r)
{
	struct str kind = l->words[l->at++], text;
	bool is_format = str_is_prefix(kind, STR("lf-"));
	unsigned word = l->at;
	int ret = str_is_suffix(kind, STR("file")) ? read_body(ps, l, &text)
						   : line_want(ps, l, "a text", &text);

	r->kind = REPLY_OWN;
	if (ret == 0 && !is_format)
		ret = escape_percent(ps, text, &text);
	return ret ? ret : compile_text(ps, b, l, word, text, place, &r->body);
}

static int parse_reply_header(struct parser *ps, struct proxy_build *b, struct line *l,
			      unsigned place, struct conf_reply *r)
{
	struct conf_reply_header *h = arena_zalloc(&ps->conf->arena, sizeof(*h));
	int ret;

	if (!h)
		return -ENOMEM;
	ret = arg_string(ps, l, "a header's name and value", &h->name);
	if (ret == 0)
		ret = compile_format(ps, b, l, place, &h->value);
	if (ret == 0)
		list_push_back(&r->headers, &h->link);
	return ret;
}

static bool at_condition(const struct line *l)
{
	struct str w = line_peek(l);

	return !line_has(l) || str_is_eq(w, STR("if")) || str_is_eq(w, STR("unless"));
}

int parse_reply(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
		struct conf_reply *r)
{
	static const char *const bodies[] = { "string", "lf-string", "file", "lf-file", NULL };
	uint64_t v;
	int ret = 0;

	while (ret == 0 && !at_condition(l)) {
		struct str w = line_peek(l);

		if (line_accept(l, "status") || line_accept(l, "deny_status")) {
			/* The old name says: with the section's own text. */
			if (str_is_eq(w, STR("deny_status")) && !r->body)
				r->kind = REPLY_DEFAULT;
			ret = arg_u64(ps, l, 200, 599, &v);
			r->status = ret ? 0 : (uint16_t)v;
		} else if (line_accept(l, "content-type")) {
			ret = arg_string(ps, l, "a media type", &r->content_type);
		} else if (line_accept(l, "hdr")) {
			ret = parse_reply_header(ps, b, l, place, r);
		} else if (line_accept(l, "errorfile")) {
			ret = parse_reply_file(ps, l, r);
		} else if (line_accept(l, "errorfiles")) {
			ret = parse_reply_section(ps, l, r);
		} else if (line_accept(l, "default-errorfiles")) {
			r->kind = REPLY_DEFAULT;
		} else if (name_pattern_has(bodies, w)) {
			ret = parse_body(ps, b, l, place, r);
		} else {
			ret = conf_fail(ps, l, l->at,
					"expects status, content-type, string, lf-string, file, "
					"lf-file, errorfile, errorfiles, default-errorfiles, hdr, "
					"'if' or 'unless' instead of '" STR_FMT "'",
					STR_ARG(str_sub(w, 0, 64)));
		}
	}
	return ret;
}

int reply_check(struct parser *ps, struct line *l, const struct conf_reply *r)
{
	if (r->kind == REPLY_OWN && r->body && !r->content_type)
		return conf_fail(ps, l, l->at, "a body needs 'content-type'");
	if (r->kind == REPLY_DEFAULT && conf_error_index(r->status) < 0)
		return conf_fail(ps, l, l->at,
				 "status %u has no text of its own: give a body with "
				 "'content-type' and 'string'",
				 r->status);
	if (r->kind != REPLY_OWN && (r->content_type || !list_is_empty(&r->headers)))
		return conf_warn(ps, l, l->kw,
				 "'hdr' and 'content-type' mean nothing here: the answer is that "
				 "of an error file");
	return 0;
}

static int check_redirect_code(struct parser *ps, struct line *l, struct conf_redirect *r)
{
	uint64_t v;
	int ret = arg_u64(ps, l, 301, 308, &v);

	if (ret)
		return ret;
	r->code = (uint16_t)v;
	if (v == 301 || v == 302 || v == 303 || v == 307 || v == 308)
		return 0;
	return conf_fail(ps, l, l->at - 1, "'code' expects 301, 302, 303, 307 or 308");
}

int parse_redirect(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
		   struct conf_redirect *r)
{
	static const char *const kinds[] = { "location", "prefix", "scheme" };
	char *text;
	int ret = 0;

	r->code = 302;
	while (ret == 0 && !at_condition(l)) {
		unsigned k = 0;

		while (k < ARRAY_SIZE(kinds) && !line_accept(l, kinds[k]))
			k++;
		if (k < ARRAY_SIZE(kinds)) {
			r->kind = (uint8_t)k;
			ret = compile_format(ps, b, l, place, &r->to);
		} else if (line_accept(l, "code")) {
			ret = check_redirect_code(ps, l, r);
		} else if (line_accept(l, "drop-query")) {
			r->drop_query = true;
		} else if (line_accept(l, "keep-query")) {
			r->keep_query = true;
		} else if (line_accept(l, "set-cookie-fmt")) {
			ret = compile_format(ps, b, l, place, &r->cookie_fmt);
		} else if (line_accept(l, "append-slash")) {
			r->append_slash = true;
		} else if (line_accept(l, "ignore-empty")) {
			r->ignore_empty = true;
		} else if (line_accept(l, "set-cookie") || line_accept(l, "clear-cookie")) {
			bool is_clear = str_is_eq(l->words[l->at - 1], STR("clear-cookie"));

			ret = arg_string(ps, l, "a cookie", &text);
			if (ret == 0)
				r->set_cookie = (char *)arena_printf(&ps->conf->arena,
								     "%s; path=/;%s", text,
								     is_clear ? " Max-Age=0;" : "")
							.p;
			if (ret == 0 && !r->set_cookie)
				ret = -ENOMEM;
		} else {
			ret = conf_fail(ps, l, l->at,
					"'redirect' expects location, prefix, scheme, code, "
					"drop-query, keep-query, append-slash, set-cookie-fmt, "
					"ignore-empty, set-cookie, "
					"clear-cookie, 'if' "
					"or 'unless' instead of '" STR_FMT "'",
					STR_ARG(str_sub(line_peek(l), 0, 64)));
		}
	}
	if (ret == 0 && !r->to)
		ret = conf_fail(ps, l, l->at,
				"'redirect' expects location, prefix or scheme and where to");
	return ret;
}
