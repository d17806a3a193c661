/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Health checks of a backend: option httpchk, http-check, tcp-check. A script that a section writes
 * itself takes the place of the inherited one. Control thread.
 */
#include <errno.h>

#include "conf/conf_priv.h"

static struct conf_check *check_of(void *obj)
{
	return &((struct proxy_build *)obj)->px.check;
}

/* option httpchk [[<method>] <uri> [<version>[\r\nHeader: …]]] */
int parse_httpchk(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_check *c = check_of(obj);
	struct str version;
	size_t cut;

	if (l->is_negated) {
		c->type = CHECK_TCP;
		return 0;
	}
	c->type = CHECK_HTTP;
	c->method = c->uri = c->version = NULL;
	c->headers = STR_NULL;
	if (l->n - l->at >= 2)
		c->method = (char *)l->words[l->at++].p;
	if (line_has(l))
		c->uri = (char *)l->words[l->at++].p;
	if (!line_has(l))
		return 0;
	version = l->words[l->at++];
	if (line_has(l)) {
		c->host = (char *)l->words[l->at++].p;
	}
	cut = str_find(version, STR("\r\n"));
	if (cut != SIZE_MAX) { /* the old way to add headers */
		struct str h = arena_printf(&ps->conf->arena, STR_FMT "\r\n",
					    STR_ARG(str_from(version, cut + 2)));

		if (!h.p)
			return -ENOMEM;
		c->headers = h;
		version = str_sub(version, 0, cut);
	}
	if (!str_is_prefix(version, STR("HTTP/")))
		return conf_fail(ps, l, l->kw + l->kw_n + 2,
				 "'option httpchk' expects a version such as "
				 "HTTP/1.1 instead of '" STR_FMT "'",
				 STR_ARG(str_sub(version, 0, 64)));
	c->version = arena_strdup(&ps->conf->arena, version);
	return c->version ? 0 : -ENOMEM;
}

static struct conf_check_step *new_step(struct parser *ps, void *obj, const struct line *l)
{
	struct proxy_build *b = obj;
	struct conf_check_step *s = arena_zalloc(&ps->conf->arena, sizeof(*s));

	if (!s)
		return NULL;
	if (!b->has_own_steps) {
		list_init(&b->px.check.steps);
		b->has_own_steps = true;
	}
	s->pos = l->pos;
	s->expect.min_recv = -1;
	return s;
}

/* --- expect ------------------------------------------------------------------------------------ */

static int parse_status_list(struct parser *ps, struct line *l, struct conf_expect *e)
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

/* Hexadecimal digits into bytes. */
static int parse_binary(struct parser *ps, struct line *l, struct str *ret)
{
	struct str w;
	char *out;
	int r = line_want(ps, l, "hexadecimal digits", &w);

	if (r)
		return r;
	out = arena_alloc(&ps->conf->arena, w.len / 2 + 1);
	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < w.len; i++) {
		char c = str_lower_char(w.p[i]);
		int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (d < 0 || w.len % 2)
			return conf_fail_off(ps, l, l->at - 1, i,
					     "expects pairs of hexadecimal digits");
		out[i / 2] = (char)(i % 2 ? (out[i / 2] | d) : d << 4);
	}
	*ret = str_make(out, w.len / 2);
	return 0;
}

static const struct expect_kind {
	const char *name;
	uint8_t what;
	bool is_http, is_tcp;
} expect_kinds[] = {
	{ "status", EXPECT_STATUS, true, false }, { "rstatus", EXPECT_RSTATUS, true, false },
	{ "string", EXPECT_STRING, true, true },  { "rstring", EXPECT_RSTRING, true, true },
	{ "binary", EXPECT_BINARY, false, true }, { "rbinary", EXPECT_RBINARY, false, true },
};

static int parse_expect_value(struct parser *ps, struct line *l, struct conf_expect *e)
{
	struct str text;
	int r;

	if (e->what == EXPECT_STATUS)
		return parse_status_list(ps, l, e);
	r = e->what == EXPECT_BINARY ? parse_binary(ps, l, &text)
				     : line_want(ps, l, "a text or regular expression", &text);
	if (r)
		return r;
	e->text = (char *)text.p;
	e->text_len = text.len;
	return 0;
}

static int parse_expect(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const char *const pending[] = { "hdr",	     "fhdr",	     "custom",
					       "ok-status",  "error-status", "tout-status",
					       "on-success", "on-error",     "status-code",
					       "string-lf",  "binary-lf",    NULL };
	struct conf_check_step *s = new_step(ps, obj, l);
	bool is_http = kw->min;
	uint64_t v;
	int r = 0;

	if (!s)
		return -ENOMEM;
	s->kind = STEP_EXPECT;
	while (r == 0) {
		if (line_accept(l, "!")) {
			s->expect.negate = true;
		} else if (line_accept(l, "min-recv")) {
			r = arg_u64(ps, l, 0, INT32_MAX, &v);
			s->expect.min_recv = r ? -1 : (int32_t)v;
		} else if (line_accept(l, "comment")) {
			r = arg_string(ps, l, "a text", &s->comment);
		} else {
			break;
		}
	}
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(expect_kinds); i++) {
		const struct expect_kind *k = &expect_kinds[i];

		if (!(is_http ? k->is_http : k->is_tcp) || !line_accept(l, k->name))
			continue;
		s->expect.what = k->what;
		r = parse_expect_value(ps, l, &s->expect);
		if (r == 0 && line_accept(l, "comment"))
			r = arg_string(ps, l, "a text", &s->comment);
		if (r == 0)
			list_push_back(&check_of(obj)->steps, &s->link);
		return r;
	}
	if (r)
		return r;
	if (name_pattern_has(pending, line_peek(l)))
		return conf_fail(ps, l, l->at,
				 "'expect " STR_FMT "' is not supported by this version",
				 STR_ARG(line_peek(l)));
	return conf_fail(ps, l, l->at,
			 is_http ? "'http-check expect' expects status, rstatus, string or rstring"
				 : "'tcp-check expect' expects string, rstring, binary or rbinary");
}

/* --- http-check -------------------------------------------------------------------------------- */

static int add_header(struct parser *ps, struct line *l, struct str *headers)
{
	struct str name, value, all;
	int r = line_want(ps, l, "a header's name and value", &name);

	if (r == 0)
		r = line_want(ps, l, "the header's value", &value);
	if (r)
		return r;
	for (size_t i = 0; i < name.len + value.len; i++) {
		unsigned char c = (unsigned char)(i < name.len ? name.p[i] : value.p[i - name.len]);

		if ((c < ' ' && c != '\t') || c == 127 || (i < name.len && (c == ' ' || c == ':')))
			return conf_fail(ps, l, i < name.len ? l->at - 2 : l->at - 1,
					 "a header cannot hold this character");
	}
	if (!name.len)
		return conf_fail(ps, l, l->at - 2, "empty name of a header");
	all = arena_printf(&ps->conf->arena, STR_FMT STR_FMT ": " STR_FMT "\r\n", STR_ARG(*headers),
			   STR_ARG(name), STR_ARG(value));
	*headers = all;
	return all.p ? 0 : -ENOMEM;
}

static int parse_send(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const char *const pending[] = { "uri-lf", "body-lf", NULL };
	struct conf_check *c = check_of(obj);
	struct str headers = STR("");
	char *comment;
	int r = 0;

	while (r == 0 && line_has(l)) {
		if (line_accept(l, "meth"))
			r = arg_string(ps, l, "a method", &c->method);
		else if (line_accept(l, "uri"))
			r = arg_string(ps, l, "a URI", &c->uri);
		else if (line_accept(l, "ver"))
			r = arg_string(ps, l, "a version such as HTTP/1.1", &c->version);
		else if (line_accept(l, "hdr"))
			r = add_header(ps, l, &headers);
		else if (line_accept(l, "body"))
			r = line_want(ps, l, "a text", &c->body);
		else if (line_accept(l, "comment"))
			r = arg_string(ps, l, "a text", &comment);
		else if (name_pattern_has(pending, line_peek(l)))
			r = conf_fail(ps, l, l->at,
				      "'" STR_FMT "' is not supported by this version",
				      STR_ARG(line_peek(l)));
		else
			r = conf_fail(ps, l, l->at,
				      "'http-check send' expects meth, uri, ver, hdr or body "
				      "instead of '" STR_FMT "'",
				      STR_ARG(str_sub(line_peek(l), 0, 64)));
	}
	if (headers.len)
		c->headers = headers;
	return r;
}

static int parse_check_flag(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	*(bool *)((char *)obj + kw->offset) = true;
	return 0;
}

static int parse_comment(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_check_step *s;
	char *text;
	int r = arg_string(ps, l, "a text", &text);

	if (r || kw->min) /* an HTTP check has no script */
		return r;
	s = new_step(ps, obj, l);
	if (!s)
		return -ENOMEM;
	s->kind = STEP_COMMENT;
	s->comment = text;
	list_push_back(&check_of(obj)->steps, &s->link);
	return 0;
}

/* --- tcp-check --------------------------------------------------------------------------------- */

static int parse_connect(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_check_step *s = new_step(ps, obj, l);
	uint64_t port;
	int r = 0;

	if (!s)
		return -ENOMEM;
	s->kind = STEP_CONNECT;
	while (r == 0 && line_has(l)) {
		if (line_accept(l, "port")) {
			r = arg_u64(ps, l, 1, 65535, &port);
			s->port = r ? 0 : (uint16_t)port;
		} else if (line_accept(l, "ssl")) {
			s->ssl = true;
		} else if (line_accept(l, "send-proxy")) {
			s->send_proxy = true;
		} else if (line_accept(l, "linger")) {
			s->linger = true;
		} else if (line_accept(l, "sni")) {
			r = arg_string(ps, l, "a name", &s->sni);
		} else if (line_accept(l, "comment")) {
			r = arg_string(ps, l, "a text", &s->comment);
		} else if (!line_accept(l, "default")) {
			r = conf_fail(
				ps, l, l->at,
				"'tcp-check connect' expects default, port, ssl, sni, "
				"send-proxy, linger or comment (other options are not supported by "
				"this version) instead of '" STR_FMT "'",
				STR_ARG(str_sub(line_peek(l), 0, 64)));
		}
	}
	if (r == 0)
		list_push_back(&check_of(obj)->steps, &s->link);
	return r;
}

static int parse_tcp_send(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_check_step *s = new_step(ps, obj, l);
	int r;

	if (!s)
		return -ENOMEM;
	s->kind = STEP_SEND;
	r = kw->min ? parse_binary(ps, l, &s->send) : line_want(ps, l, "a text", &s->send);
	if (r == 0 && line_accept(l, "comment"))
		r = arg_string(ps, l, "a text", &s->comment);
	if (r == 0)
		list_push_back(&check_of(obj)->steps, &s->link);
	return r;
}

#define CHECK_AT(field) .offset = offsetof(struct conf_proxy, check.field)

static const struct keyword http_rows[] = {
	{ NAME("send"), SEC_DLB, ARG_FUNC, .parse = parse_send, .grade = '1',
	  .args = "[meth <m>] [uri <u>] [ver <v>] [hdr <name> <value>]... [body <text>]",
	  .help = "the request" },
	{ NAME("expect"), SEC_DLB, ARG_FUNC, .parse = parse_expect, .min = 1, .grade = '1',
	  .args = "[!] status|rstatus|string|rstring <value>", .def = "status 200-399",
	  .help = "what a good answer is" },
	{ NAME("disable-on-404"), SEC_DLB, ARG_FUNC, CHECK_AT(disable_on_404),
	  .parse = parse_check_flag, .grade = '1', .help = "404 means: no new sessions" },
	{ NAME("send-state"), SEC_DLB, ARG_FUNC, CHECK_AT(send_state), .parse = parse_check_flag,
	  .grade = '2', .help = "tells the server its state" },
	{ NAME("comment"), SEC_DLB, ARG_FUNC, .parse = parse_comment, .min = 1, .grade = '2',
	  .args = "<text>", .help = "for people" },
};
static const char *const http_pending[] = { "connect", "set-var", "set-var-fmt", "unset-var",
					    NULL };
static const struct keyword_table http_table = KEYWORDS("http-check keyword", http_rows,
							.pending = http_pending);

static const struct keyword tcp_rows[] = {
	{ NAME("connect"), SEC_DLB, ARG_FUNC, .parse = parse_connect, .grade = '2',
	  .args = "[default] [port <n>] [ssl] [sni <name>] [send-proxy] [linger]",
	  .help = "opens a connection" },
	{ NAME("send"), SEC_DLB, ARG_FUNC, .parse = parse_tcp_send, .grade = '2', .args = "<text>",
	  .help = "sends a text" },
	{ NAME("send-binary"), SEC_DLB, ARG_FUNC, .parse = parse_tcp_send, .min = 1, .grade = '2',
	  .args = "<hex>", .help = "sends bytes" },
	{ NAME("expect"), SEC_DLB, ARG_FUNC, .parse = parse_expect, .grade = '2',
	  .args = "[!] string|rstring|binary|rbinary <value>", .help = "waits for an answer" },
	{ NAME("comment"), SEC_DLB, ARG_FUNC, .parse = parse_comment, .grade = '2',
	  .args = "<text>", .help = "for people" },
};
static const char *const tcp_pending[] = { "send-lf",	  "send-binary-lf", "set-var",
					   "set-var-fmt", "unset-var",	    NULL };
static const struct keyword_table tcp_table = KEYWORDS("tcp-check keyword", tcp_rows,
						       .pending = tcp_pending);

static const struct keyword rows[] = {
	{ NAME("http-check"), SEC_DLB, ARG_SUB, .sub = &http_table, .grade = '1',
	  .help = "details of option httpchk" },
	{ NAME("tcp-check"), SEC_DLB, ARG_SUB, .sub = &tcp_table, .grade = '2',
	  .help = "script of option tcp-check" },
};
const struct keyword_table conf_kw_check = KEYWORDS("keyword", rows);
