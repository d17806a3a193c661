/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is said instead of the built-in error texts: errorfile, errorloc, http-error, errorfiles, and the
 * `http-errors` sections that they draw from. A section may stand behind its use, so that who answers
 * what is settled by finalize_errors(). Control thread, configuration's arena.
 */
#include <errno.h>

#include "conf/kw_action_priv.h"

static const uint16_t codes[CONF_ERROR_CODES] = { 200, 400, 401, 403, 404, 405, 407, 408, 410,
						  413, 422, 425, 429, 500, 501, 502, 503, 504 };

int conf_error_index(unsigned status)
{
	for (int i = 0; i < CONF_ERROR_CODES; i++) {
		if (codes[i] == status)
			return i;
	}
	return -1;
}

static int want_code(struct parser *ps, struct line *l, int *ret_index)
{
	uint64_t status;
	int r = arg_u64(ps, l, 200, 599, &status);

	if (r)
		return r;
	*ret_index = conf_error_index((unsigned)status);
	if (*ret_index >= 0)
		return 0;
	return conf_fail(ps, l, l->at - 1,
			 "there is no errorfile for status %u (200, 400, 401, 403, "
			 "404, 405, 407, 408, 410, 413, 422, 425, 429, 500, 501, 502, 503, 504)",
			 (unsigned)status);
}

static struct conf_reply *reply_new(struct parser *ps, uint16_t status)
{
	struct conf_reply *r = arena_zalloc(&ps->conf->arena, sizeof(*r));

	if (!r)
		return NULL;
	r->status = status;
	list_init(&r->headers);
	return r;
}

/* --- files ------------------------------------------------------------------------------------- */

/* Editors write LF; HTTP wants CRLF (RFC 9112 2.2) in the head. The body stays as it is. */
static char *head_with_crlf(struct parser *ps, struct str text, size_t *ret_len)
{
	char *out = arena_alloc(&ps->conf->arena, text.len * 2);
	size_t n = 0, i = 0, line = 0;

	if (!out)
		return NULL;
	for (; i < text.len; i++) {
		if (text.p[i] == '\n' && (i == 0 || text.p[i - 1] != '\r'))
			out[n++] = '\r';
		out[n++] = text.p[i];
		if (text.p[i] != '\n')
			continue;
		if (n - line == 2) { /* the empty line */
			i++;
			break;
		}
		line = n;
	}
	if (i < text.len)
		memcpy(out + n, text.p + i, text.len - i);
	*ret_len = n + text.len - i;
	return out;
}

/* The file's text taken apart; what frames it is made anew by whoever sends it. */
static int read_answer(struct parser *ps, struct line *l, struct str text, struct conf_reply *r)
{
	const char *path = l->words[l->at - 1].p;
	struct h1_head head = { 0 };
	struct http_msg *m = arena_zalloc(&ps->conf->arena, sizeof(*m));
	size_t len;
	char *p;
	int n;

	if (!m || http_msg_init(m, &ps->conf->arena, 101))
		return -ENOMEM;
	if (!str_is_prefix(text, STR("HTTP/1.")))
		return conf_fail(ps, l, l->at - 1, "'%.256s' does not begin with 'HTTP/1.'", path);
	p = head_with_crlf(ps, text, &len);
	if (!p)
		return -ENOMEM;
	n = h1_read_response(&head, str_make(p, len), m, HTTP_METHOD_GET);
	if (n == 0)
		return conf_fail(ps, l, l->at - 1, "'%.256s' has no empty line behind its header",
				 path);
	if (n < 0)
		return conf_fail(ps, l, l->at - 1, "'%.256s' is no HTTP answer: %s", path,
				 http_error_text((enum http_error)head.error));
	r->file_body = str_make(p + n, len - (size_t)n);
	if (m->status < 200 || m->framing == HTTP_BODY_CHUNKED)
		return conf_fail(ps, l, l->at - 1,
				 "'%.256s' must be a final answer without Transfer-Encoding", path);
	n = 0;
	if (m->framing == HTTP_BODY_LENGTH && m->content_length != r->file_body.len)
		n = conf_warn(ps, l, l->at - 1,
			      "Content-Length of '%.256s' is %llu, but its body has %zu bytes: the "
			      "answer will say so",
			      path, (unsigned long long)m->content_length, r->file_body.len);
	r->file = m;
	r->kind = REPLY_FILE;
	return n;
}

int parse_reply_file(struct parser *ps, struct line *l, struct conf_reply *r)
{
	struct str path, text;
	struct err err;
	int ret = line_want(ps, l, "a file", &path);

	if (ret)
		return ret;
	ret = conf_read_path(ps, &ps->arena, path.p, &text, &err);
	if (ret == -ENOMEM)
		return ret;
	if (ret)
		return conf_fail(ps, l, l->at - 1, "%s", err.text);
	if (text.len)
		return read_answer(ps, l, text, r);
	r->kind = REPLY_SILENT; /* /dev/null */
	return 0;
}

/* --- sections ---------------------------------------------------------------------------------- */

static struct conf_errors *errors_get(struct parser *ps, struct str name,
				      const struct conf_pos *pos)
{
	struct conf_errors *e = names_find(ps->errors_names, name);

	if (e)
		return e;
	e = arena_zalloc(&ps->arena, sizeof(*e));
	if (!e)
		return NULL;
	e->name = arena_strdup(&ps->arena, name);
	e->pos = *pos;
	list_push_back(&ps->errors, &e->link);
	if (!e->name || names_add(ps->errors_names, str_from_cstr(e->name), e))
		return NULL;
	return e;
}

int errors_open(struct parser *ps, struct line *l)
{
	struct conf_errors *e;
	struct str name;
	int r = section_want_name(ps, l, &name);

	if (r)
		return r;
	e = errors_get(ps, name, &l->pos);
	if (!e)
		return -ENOMEM;
	ps->http_errors = e;
	if (e->is_defined)
		return conf_fail(ps, l, 1,
				 "http-errors '" STR_FMT "' has the same name as the one in %s:%u",
				 STR_ARG(str_sub(name, 0, 64)), e->pos.file, e->pos.line);
	e->is_defined = true;
	e->pos = l->pos;
	return 0;
}

static int note_use(struct parser *ps, struct line *l, struct str name, struct conf_reply *r,
		    bool is_required)
{
	struct errors_use *u = arena_zalloc(&ps->arena, sizeof(*u));
	struct conf_pos pos = l->pos;

	if (!u)
		return -ENOMEM;
	pos.column = line_column(l, l->kw, 0);
	u->errors = errors_get(ps, name, &pos);
	u->reply = r;
	u->pos = pos;
	u->is_required = is_required;
	r->kind = REPLY_SECTION;
	if (!u->errors)
		return -ENOMEM;
	list_push_back(&ps->errors_uses, &u->link);
	return 0;
}

int parse_reply_section(struct parser *ps, struct line *l, struct conf_reply *r)
{
	struct str name;
	int ret = line_want(ps, l, "the name of an http-errors section", &name);

	return ret ? ret : note_use(ps, l, name, r, true);
}

static int missing_section(struct parser *ps, const struct conf_errors *e)
{
	struct nearest near;
	struct list *p;
	char hint[96];

	nearest_init(&near, str_from_cstr(e->name));
	list_for_each(p, &ps->errors) {
		const struct conf_errors *other = list_entry(p, struct conf_errors, link);

		if (other->is_defined)
			nearest_offer(&near, str_from_cstr(other->name));
	}
	return conf_fail_pos(ps, &e->pos,
			     "there is no section 'http-errors %.64s': add one with 'errorfile' "
			     "lines%s",
			     e->name, nearest_hint(&near, hint));
}

int finalize_errors(struct parser *ps)
{
	struct list *p;
	int r = 0;

	list_for_each(p, &ps->errors) {
		const struct conf_errors *e = list_entry(p, struct conf_errors, link);

		if (!e->is_defined && r != -ENOMEM)
			r = missing_section(ps, e);
	}
	list_for_each(p, &ps->errors_uses) {
		const struct errors_use *u = list_entry(p, struct errors_use, link);
		int i = conf_error_index(u->reply->status);
		const struct conf_reply *found = i >= 0 ? u->errors->replies[i] : NULL;

		if (found) {
			u->reply->kind = found->kind;
			u->reply->file = found->file;
			u->reply->file_body = found->file_body;
		} else if (u->is_required && u->errors->is_defined && r != -ENOMEM) {
			r = conf_fail_pos(ps, &u->pos,
					  "section 'http-errors %.64s' has no errorfile for status "
					  "%u",
					  u->errors->name, u->reply->status);
		}
	}
	return r == -ENOMEM ? r : 0;
}

/* --- keywords ---------------------------------------------------------------------------------- */

static int parse_errorfile(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_reply **to = ps->http_errors ? ps->http_errors->replies
						 : ((struct proxy_build *)obj)->px.errors;
	struct conf_reply *reply;
	int i, r = want_code(ps, l, &i);

	if (r)
		return r;
	reply = reply_new(ps, codes[i]);
	if (!reply)
		return -ENOMEM;
	r = parse_reply_file(ps, l, reply);
	to[i] = reply;
	return r;
}

/* errorfiles <section> [<status>...] */
static int parse_errorfiles(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_reply **to = ((struct proxy_build *)obj)->px.errors;
	bool is_wanted[CONF_ERROR_CODES] = { false }, has_codes;
	struct str name;
	int i, r = line_want(ps, l, "the name of an http-errors section", &name);

	has_codes = line_has(l);
	while (r == 0 && line_has(l)) {
		r = want_code(ps, l, &i);
		if (r == 0)
			is_wanted[i] = true;
	}
	for (i = 0; i < CONF_ERROR_CODES && r == 0; i++) {
		struct conf_reply *reply;

		if (has_codes && !is_wanted[i])
			continue;
		reply = reply_new(ps, codes[i]);
		if (!reply)
			return -ENOMEM;
		reply->otherwise = to[i];
		to[i] = reply;
		r = note_use(ps, l, name, reply, has_codes);
	}
	return r;
}

/* errorloc[302|303] <status> <url>: kw->min is what the redirect says. */
static int parse_errorloc(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct conf_reply_header *h = arena_zalloc(&ps->conf->arena, sizeof(*h));
	struct conf_reply_header *c = arena_zalloc(&ps->conf->arena, sizeof(*c));
	struct conf_reply *reply = reply_new(ps, (uint16_t)kw->min);
	struct str url, text;
	int i, r;

	if (!h || !c || !reply)
		return -ENOMEM;
	r = want_code(ps, l, &i);
	if (r == 0)
		r = line_want(ps, l, "a URL", &url);
	if (r == 0)
		r = escape_percent(ps, url, &text);
	if (r == 0)
		r = compile_text(ps, b, l, l->at - 1, text, PLACE_REQ, &h->value);
	if (r == 0)
		r = compile_text(ps, b, l, l->at - 1, STR("no-cache"), PLACE_REQ, &c->value);
	if (r)
		return r;
	h->name = (char *)"location";
	c->name = (char *)"cache-control";
	list_push_back(&reply->headers, &h->link);
	list_push_back(&reply->headers, &c->link);
	b->px.errors[i] = reply;
	return 0;
}

static int parse_http_error(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct conf_reply *reply = reply_new(ps, 0);
	int i, r;

	if (!reply)
		return -ENOMEM;
	r = parse_reply(ps, b, l, PLACE_REQ, reply);
	if (r)
		return r;
	if (!reply->status)
		return conf_fail(ps, l, l->n, "'http-error' expects 'status <number>'");
	i = conf_error_index(reply->status);
	if (i < 0)
		return conf_fail(ps, l, l->kw, "there is no error page for status %u",
				 reply->status);
	r = reply_check(ps, l, reply);
	/* The section's own is what stood there before. */
	if (reply->kind != REPLY_DEFAULT)
		b->px.errors[i] = reply;
	return r;
}

#define REPLY_ARGS                                                                               \
	"status <n> [content-type <t>] [errorfile <file>|errorfiles <section>|string|lf-string|" \
	"file|lf-file <x>] [hdr <n> <v>]..."

static const struct keyword rows[] = {
	{ NAME("errorfile"), SEC_DFLB | SEC_HTTP_ERRORS, ARG_FUNC, .parse = parse_errorfile,
	  .grade = '1', .args = "<status> <file>",
	  .help = "whole HTTP answer instead of the built-in one" },
	{ NAME("errorfiles"), SEC_DFLB, ARG_FUNC, .parse = parse_errorfiles, .grade = '2',
	  .args = "<section> [<status>...]", .help = "the errorfiles of an http-errors section" },
	{ NAME("errorloc"), SEC_DFLB, ARG_FUNC, .parse = parse_errorloc, .min = 302, .grade = '2',
	  .args = "<status> <url>", .help = "redirect (302) instead of an error" },
	{ NAME("errorloc302"), SEC_DFLB, ARG_FUNC, .parse = parse_errorloc, .min = 302,
	  .grade = '2', .args = "<status> <url>", .help = "redirect (302) instead of an error" },
	{ NAME("errorloc303"), SEC_DFLB, ARG_FUNC, .parse = parse_errorloc, .min = 303,
	  .grade = '2', .args = "<status> <url>",
	  .help = "redirect (303: by GET) instead of an error" },
	{ NAME("http-error"), SEC_DFLB, ARG_FUNC, .parse = parse_http_error, .grade = '2',
	  .args = REPLY_ARGS, .help = "error answer made of a format" },
};
const struct keyword_table conf_kw_errors = KEYWORDS("keyword", rows);
