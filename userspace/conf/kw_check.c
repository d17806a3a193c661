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
	struct conf_check_request *rq = &c->request;
	struct str version;
	size_t cut;

	if (l->is_negated) {
		c->type = CHECK_TCP;
		return 0;
	}
	c->type = CHECK_HTTP;
	rq->method = rq->uri = rq->version = NULL;
	rq->headers = STR_NULL;
	rq->fields = NULL;
	if (l->n - l->at >= 2)
		rq->method = (char *)l->words[l->at++].p;
	if (line_has(l))
		rq->uri = (char *)l->words[l->at++].p;
	if (!line_has(l))
		return 0;
	version = l->words[l->at++];
	if (line_has(l)) {
		rq->host = (char *)l->words[l->at++].p;
	}
	cut = str_find(version, STR("\r\n"));
	if (cut != SIZE_MAX) { /* the old way to add headers */
		struct str h = arena_printf(&ps->conf->arena, STR_FMT "\r\n",
					    STR_ARG(str_from(version, cut + 2)));

		if (!h.p)
			return -ENOMEM;
		rq->headers = h;
		version = str_sub(version, 0, cut);
	}
	if (!str_is_prefix(version, STR("HTTP/")))
		return conf_fail(ps, l, l->kw + l->kw_n + 2,
				 "'option httpchk' expects a version such as "
				 "HTTP/1.1 instead of '" STR_FMT "'",
				 STR_ARG(str_sub(version, 0, 64)));
	rq->version = arena_strdup(&ps->conf->arena, version);
	return rq->version ? 0 : -ENOMEM;
}

struct conf_check_step *check_new_step(struct parser *ps, void *obj, const struct line *l)
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

/* --- http-check -------------------------------------------------------------------------------- */

/*
 * connect, send, expect, and again: an answer ends its connection. Without a connect there is one request, and
 * its send may stand anywhere.
 */
int http_check_order(struct parser *ps, struct line *l, struct proxy_build *b,
		     enum http_check_last now)
{
	enum http_check_last last = (enum http_check_last)b->http_check_last;
	bool is_plain = !b->has_own_request && now == HTTP_CHECK_SEND;

	b->http_check_last = (uint8_t)now;
	if (now == HTTP_CHECK_CONNECT && last != HTTP_CHECK_NOTHING && last != HTTP_CHECK_EXPECT)
		return conf_fail(
			ps, l, l->kw,
			"expected 'http-check expect' before another 'http-check connect'");
	if (now == HTTP_CHECK_EXPECT && last == HTTP_CHECK_CONNECT)
		return conf_fail(ps, l, l->kw,
				 "expected 'http-check send' behind 'http-check connect'");
	if (now == HTTP_CHECK_SEND && !is_plain && last != HTTP_CHECK_CONNECT)
		return conf_fail(ps, l, l->kw,
				 "expected 'http-check connect' before another 'http-check send'");
	return 0;
}

static int add_header(struct parser *ps, struct line *l, void *obj, struct conf_check_header ***at)
{
	struct conf_check_header *h = arena_zalloc(&ps->conf->arena, sizeof(*h));
	struct str name, value;
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
	if (!h)
		return -ENOMEM;
	if (str_find_char(value, '%') != SIZE_MAX) {
		l->at--;
		r = compile_format(ps, obj, l, PLACE_CHECK, &h->fmt);
	}
	h->name = name;
	h->value = value;
	**at = h;
	*at = &h->next;
	return r;
}

static int parse_request(struct parser *ps, struct line *l, void *obj,
			 struct conf_check_request *rq)
{
	struct conf_check_header *first = NULL, **last = &first;
	char *comment;
	int r = 0;

	while (r == 0 && line_has(l)) {
		if (line_accept(l, "meth"))
			r = arg_string(ps, l, "a method", &rq->method);
		else if (line_accept(l, "uri"))
			r = arg_string(ps, l, "a URI", &rq->uri);
		else if (line_accept(l, "uri-lf"))
			r = compile_format(ps, obj, l, PLACE_CHECK, &rq->uri_fmt);
		else if (line_accept(l, "body-lf"))
			r = compile_format(ps, obj, l, PLACE_CHECK, &rq->body_fmt);
		else if (line_accept(l, "ver"))
			r = arg_string(ps, l, "a version such as HTTP/1.1", &rq->version);
		else if (line_accept(l, "hdr"))
			r = add_header(ps, l, obj, &last);
		else if (line_accept(l, "body"))
			r = line_want(ps, l, "a text", &rq->body);
		else if (line_accept(l, "comment"))
			r = arg_string(ps, l, "a text", &comment);
		else
			r = conf_fail(
				ps, l, l->at,
				"'http-check send' expects meth, uri, uri-lf, ver, hdr, body or "
				"body-lf "
				"instead of '" STR_FMT "'",
				STR_ARG(str_sub(line_peek(l), 0, 64)));
	}
	if (first)
		rq->fields = first;
	return r;
}

/* The first one adds to what `option httpchk` says; the others stand for themselves, at their place. */
static int parse_send(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct conf_check_step *s;
	int r = http_check_order(ps, l, b, HTTP_CHECK_SEND);

	if (r)
		return r;
	if (!b->has_own_request) {
		b->has_own_request = true;
		return parse_request(ps, l, obj, &b->px.check.request);
	}
	s = check_new_step(ps, obj, l);
	if (!s)
		return -ENOMEM;
	s->kind = STEP_SEND;
	s->request = arena_zalloc(&ps->conf->arena, sizeof(*s->request));
	if (!s->request)
		return -ENOMEM;
	r = parse_request(ps, l, obj, s->request);
	if (r == 0)
		list_push_back(&b->px.check.steps, &s->link);
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

	if (r)
		return r;
	s = check_new_step(ps, obj, l);
	if (!s)
		return -ENOMEM;
	s->kind = STEP_COMMENT;
	s->comment = text;
	list_push_back(&check_of(obj)->steps, &s->link);
	return 0;
}

/* Hexadecimal digits into bytes. */
int arg_binary(struct parser *ps, struct line *l, struct str *ret)
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

/* --- tcp-check --------------------------------------------------------------------------------- */

static int parse_connect_port(struct parser *ps, struct line *l, void *obj,
			      struct conf_check_step *s)
{
	struct str w = line_peek(l);
	uint64_t port;
	int r;

	if (w.len && !(w.p[0] >= '0' && w.p[0] <= '9'))
		return compile_expr(ps, obj, l, PLACE_CHECK, &s->port_expr);
	r = arg_u64(ps, l, 1, 65535, &port);
	s->port = r ? s->port : (uint16_t)port;
	return r;
}

static int parse_connect_option(struct parser *ps, struct line *l, void *obj,
				struct conf_check_step *s, const char *of)
{
	struct endpoint ep;
	int r;

	if (line_accept(l, "port"))
		return parse_connect_port(ps, l, obj, s);
	if (line_accept(l, "addr")) {
		r = arg_endpoint(ps, l, &ep);
		if (r == 0 && ep.kind != ENDPOINT_IP)
			r = conf_fail(ps, l, l->at - 1, "'addr' expects an IP address");
		if (r == 0) {
			s->addr = ep.addr;
			s->port = ep.port ? ep.port : s->port;
		}
		return r;
	}
	if (line_accept(l, "ssl"))
		return s->ssl = true, 0;
	if (line_accept(l, "send-proxy"))
		return s->send_proxy = true, 0;
	if (line_accept(l, "linger"))
		return s->linger = true, 0;
	if (line_accept(l, "default"))
		return 0;
	if (line_accept(l, "sni"))
		return arg_string(ps, l, "a name", &s->sni);
	if (line_accept(l, "alpn"))
		return arg_alpn(ps, l, &s->alpn);
	if (line_accept(l, "proto"))
		return arg_server_proto(ps, l, &s->proto);
	if (line_accept(l, "comment"))
		return arg_string(ps, l, "a text", &s->comment);
	return conf_fail(ps, l, l->at,
			 "'%s connect' expects default, port, addr, ssl, sni, alpn, proto, "
			 "send-proxy, linger or comment instead of '" STR_FMT "'",
			 of, STR_ARG(str_sub(line_peek(l), 0, 64)));
}

static int parse_connect(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct conf_check_step *s = check_new_step(ps, obj, l);
	bool is_http = kw->min;
	int r = 0;

	if (!s)
		return -ENOMEM;
	s->kind = STEP_CONNECT;
	if (is_http)
		r = http_check_order(ps, l, b, HTTP_CHECK_CONNECT);
	while (r == 0 && line_has(l))
		r = parse_connect_option(ps, l, obj, s, is_http ? "http-check" : "tcp-check");
	if (r == 0)
		list_push_back(&b->px.check.steps, &s->link);
	return r;
}

enum {
	SEND_TEXT,
	SEND_BINARY,
	SEND_FORMAT,
	SEND_BINARY_FORMAT
};

static int parse_tcp_send(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_check_step *s = check_new_step(ps, obj, l);
	int r;

	if (!s)
		return -ENOMEM;
	s->kind = STEP_SEND;
	s->is_send_hex = kw->min == SEND_BINARY_FORMAT;
	if (kw->min == SEND_FORMAT || kw->min == SEND_BINARY_FORMAT)
		r = compile_format(ps, obj, l, PLACE_CHECK, &s->send_fmt);
	else if (kw->min == SEND_BINARY)
		r = arg_binary(ps, l, &s->send);
	else
		r = line_want(ps, l, "a text", &s->send);
	if (r == 0 && line_accept(l, "comment"))
		r = arg_string(ps, l, "a text", &s->comment);
	if (r == 0)
		list_push_back(&check_of(obj)->steps, &s->link);
	return r;
}

/* --- variables --------------------------------------------------------------------------------- */

enum {
	VAR_EXPR,
	VAR_FORMAT,
	VAR_UNSET
};

/* set-var(name[,cond…]) <expr>, set-var-fmt(…) <format>, unset-var(name) */
static int parse_var(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct str cond = call_argument(l->words[l->at - 1]), name = str_cut(&cond, ',');
	struct conf_check_step *s = check_new_step(ps, obj, l);
	enum var_scope scope = VAR_CHECK;
	struct err err;
	int r;

	if (!s)
		return -ENOMEM;
	r = vars_intern(name, &scope, &s->var_id, &err);
	if (r == 0 && cond.p && kw->min != VAR_UNSET)
		r = var_cond_parse(cond, &s->var_conds, &err);
	if (r)
		return r == -ENOMEM ? r : conf_fail(ps, l, l->at - 1, "%s", err.text);
	if (scope != VAR_CHECK && scope != VAR_SESS && scope != VAR_PROC)
		return conf_fail(ps, l, l->at - 1,
				 "a check knows variables 'check.…', 'sess.…' and 'proc.…'");
	if (cond.p && kw->min == VAR_UNSET)
		return conf_fail(ps, l, l->at - 1, "'unset-var(…)' takes the name only");
	s->kind = kw->min == VAR_UNSET ? STEP_UNSET_VAR : STEP_SET_VAR;
	s->var_scope = (uint8_t)scope;
	if (kw->min == VAR_EXPR)
		r = compile_expr(ps, obj, l, PLACE_CHECK, &s->value);
	if (kw->min == VAR_FORMAT)
		r = compile_format(ps, obj, l, PLACE_CHECK, &s->value_fmt);
	if (r == 0)
		list_push_back(&check_of(obj)->steps, &s->link);
	return r;
}

#define VAR_ROWS                                                                                   \
	{ NAME("set-var"),                                                                         \
	  SEC_DLB,                                                                                 \
	  ARG_FUNC,                                                                                \
	  KW_CALL,                                                                                 \
	  .parse = parse_var,                                                                      \
	  .min = VAR_EXPR,                                                                         \
	  .grade = '2',                                                                            \
	  .args = "(<name>[,<condition>...]) <expression>",                                        \
	  .help = "keeps a value for later steps" },                                               \
		{ NAME("set-var-fmt"),                                                             \
		  SEC_DLB,                                                                         \
		  ARG_FUNC,                                                                        \
		  KW_CALL,                                                                         \
		  .parse = parse_var,                                                              \
		  .min = VAR_FORMAT,                                                               \
		  .grade = '2',                                                                    \
		  .args = "(<name>[,<condition>...]) <format>",                                    \
		  .help = "the same from a text with %[expressions] in it" },                      \
		{ NAME("unset-var"),	       SEC_DLB,		 ARG_FUNC,     KW_CALL,            \
		  .parse = parse_var,	       .min = VAR_UNSET, .grade = '2', .args = "(<name>)", \
		  .help = "forgets a variable" }

#define CONNECT_ARGS                                                                           \
	"[default] [port <n>|<expression>] [addr <ip>] [ssl] [sni <name>] [alpn <protocols>] " \
	"[proto h1] "                                                                          \
	"[send-proxy] [linger]"
#define CHECK_AT(field) .offset = offsetof(struct conf_proxy, check.field)

static const struct keyword http_rows[] = {
	{ NAME("connect"), SEC_DLB, ARG_FUNC, .parse = parse_connect, .min = 1, .grade = '2',
	  .args = CONNECT_ARGS, .help = "how the connection is opened" },
	{ NAME("send"), SEC_DLB, ARG_FUNC, .parse = parse_send, .grade = '1',
	  .args = "[meth <m>] [uri <u>|uri-lf <format>] [ver <v>] [hdr <name> <format>]... [body "
		  "<text>|body-lf <format>]",
	  .help = "the request" },
	{ NAME("expect"), SEC_DLB, ARG_FUNC, .parse = parse_expect, .min = 1, .grade = '1',
	  .args = "[<options>] [!] status|rstatus|string|string-lf|rstring <value> | hdr|fhdr "
		  "name|name-lf <name> "
		  "[value|value-lf <value>]",
	  .def = "status 200-399", .help = "what a good answer is" },
	{ NAME("disable-on-404"), SEC_DLB, ARG_FUNC, CHECK_AT(disable_on_404),
	  .parse = parse_check_flag, .grade = '1', .help = "404 means: no new sessions" },
	{ NAME("send-state"), SEC_DLB, ARG_FUNC, CHECK_AT(send_state), .parse = parse_check_flag,
	  .grade = '2', .help = "tells the server its state" },
	{ NAME("comment"), SEC_DLB, ARG_FUNC, .parse = parse_comment, .grade = '2',
	  .args = "<text>", .help = "for people" },
	VAR_ROWS,
};
static const struct keyword_table http_table = KEYWORDS("http-check keyword", http_rows);

static const struct keyword tcp_rows[] = {
	{ NAME("connect"), SEC_DLB, ARG_FUNC, .parse = parse_connect, .grade = '2',
	  .args = CONNECT_ARGS, .help = "opens a connection" },
	{ NAME("send"), SEC_DLB, ARG_FUNC, .parse = parse_tcp_send, .grade = '2', .args = "<text>",
	  .help = "sends a text" },
	{ NAME("send-binary"), SEC_DLB, ARG_FUNC, .parse = parse_tcp_send, .min = SEND_BINARY,
	  .grade = '2', .args = "<hex>", .help = "sends bytes" },
	{ NAME("send-lf"), SEC_DLB, ARG_FUNC, .parse = parse_tcp_send, .min = SEND_FORMAT,
	  .grade = '2', .args = "<format>", .help = "sends a text with %[expressions] in it" },
	{ NAME("send-binary-lf"), SEC_DLB, ARG_FUNC, .parse = parse_tcp_send,
	  .min = SEND_BINARY_FORMAT, .grade = '2', .args = "<format>",
	  .help = "sends the bytes whose hexadecimal digits the format gives" },
	{ NAME("expect"), SEC_DLB, ARG_FUNC, .parse = parse_expect, .grade = '2',
	  .args = "[<options>] [!] string|string-lf|rstring|binary|binary-lf|rbinary <value>",
	  .help = "waits for an answer" },
	{ NAME("comment"), SEC_DLB, ARG_FUNC, .parse = parse_comment, .grade = '2',
	  .args = "<text>", .help = "for people" },
	VAR_ROWS,
};
static const struct keyword_table tcp_table = KEYWORDS("tcp-check keyword", tcp_rows);

static const struct keyword rows[] = {
	{ NAME("http-check"), SEC_DLB, ARG_SUB, .sub = &http_table, .grade = '1',
	  .help = "details of option httpchk" },
	{ NAME("tcp-check"), SEC_DLB, ARG_SUB, .sub = &tcp_table, .grade = '2',
	  .help = "script of option tcp-check" },
};
const struct keyword_table conf_kw_check = KEYWORDS("keyword", rows);
