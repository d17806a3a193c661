/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * links: http base llhttp
 * HTTP/1 against llhttp in strict mode: what our reader accepts, llhttp accepts, and it finds the same body
 * and the same end. Ours may refuse more. First byte as in fuzz_h1.c, but violations are never allowed.
 *
 * Where llhttp is narrower by design, the message is given to it in other words: methods that it does not
 * know become GET, minor versions above 1 become 1, chunk extensions with more than one parameter or with a
 * backslash go (llhttp 8 wants two semicolons behind a value, and has no quoted-pair). In responses with both
 * Content-Length and Transfer-Encoding, and in those to HEAD and with 1xx, 204, 304 it is told to do as RFC 9112 6.3
 * says.
 */
#include <stdio.h>
#include <stdlib.h>

#include <llhttp.h>

#include "http/http.h"

struct peer {
	llhttp_t parser; /* first: callbacks cast back */
	bool skip_body, is_tunnel;
	bool is_head_done, is_done;
	char *body;
	size_t n_body;
};

static int on_headers_complete(llhttp_t *parser)
{
	struct peer *p = (struct peer *)parser;

	p->is_head_done = true;
	if (p->is_tunnel)
		return 2;
	return p->skip_body ? 1 : 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t len)
{
	struct peer *p = (struct peer *)parser;

	memcpy(p->body + p->n_body, at, len);
	p->n_body += len;
	return 0;
}

static int on_message_complete(llhttp_t *parser)
{
	((struct peer *)parser)->is_done = true;
	return HPE_PAUSED;
}

/* What our reader made of the input, and the same input in words that llhttp knows. */
struct reading {
	enum h1_body_event last;
	char *body, *words;
	size_t n_body, n_words;
	size_t end; /* of the message, in `words` */
};

static void add_words(struct reading *r, struct str s)
{
	if (s.len)
		memcpy(r->words + r->n_words, s.p, s.len);
	r->n_words += s.len;
}

static void add_head(struct reading *r, const struct http_msg *m, struct str head, bool is_response)
{
	size_t before = (size_t)(m->start_line.p - head.p), at;

	add_words(r, str_sub(head, 0, before));
	at = before;
	if (!is_response && m->method == HTTP_METHOD_OTHER) {
		add_words(r, STR("GET"));
		at += m->method_text.len;
	}
	add_words(r, str_from(head, at));
	if (m->minor > 1)
		r->words[r->n_words - head.len + before +
			 (is_response ? 7 : m->start_line.len - 1)] = '1';
}

/* Bytes between two pieces of data: the CRLF of a chunk, a size line, perhaps trailers. */
static void add_overhead(struct reading *r, struct str s)
{
	size_t begin = s.len > 1 && s.p[0] == '\r' ? 2 : 0;
	size_t len = str_find_char(str_from(s, begin), '\r');
	struct str line = str_sub(s, begin, len);
	size_t semicolon = str_find_char(line, ';');
	struct str ext = semicolon == SIZE_MAX ? STR("") : str_from(line, semicolon + 1);

	if (str_find_char(ext, ';') == SIZE_MAX && str_find_char(ext, '\\') == SIZE_MAX) {
		add_words(r, s);
		return;
	}
	add_words(r, str_sub(s, 0, begin + semicolon));
	if (len != SIZE_MAX) /* else the line goes on: nothing follows */
		add_words(r, str_from(s, begin + len));
}

static void read_body(struct reading *r, struct http_msg *m, struct str in)
{
	struct h1_body b;
	struct str data;
	size_t used;

	h1_body_init(&b, m);
	do {
		r->last = h1_body_next(&b, m, in, &used, &data);
		if (r->last == H1_BODY_ERROR)
			break;
		add_overhead(r, str_sub(in, 0, used - data.len));
		add_words(r, data);
		if (data.len)
			memcpy(r->body + r->n_body, data.p, data.len);
		r->n_body += data.len;
		in = str_from(in, used);
	} while (r->last == H1_BODY_DATA);
	r->end = r->n_words;
	/* The rest, unless it is a beginning that might have to be reworded. */
	if (r->last == H1_BODY_END)
		add_words(r, in);
}

static void fail(const char *what, const struct peer *p)
{
	fprintf(stderr, "differs from llhttp: %s (%s: %s)\n", what,
		llhttp_errno_name(llhttp_get_errno(&p->parser)),
		llhttp_get_error_reason(&p->parser));
	abort();
}

static void compare(struct peer *p, const struct reading *r, const struct http_msg *m)
{
	llhttp_errno_t e = llhttp_execute(&p->parser, r->words, r->n_words);
	const char *at = llhttp_get_error_pos(&p->parser);

	if (!p->is_head_done)
		fail("head", p);
	if (e != HPE_OK && e != HPE_PAUSED && e != HPE_PAUSED_UPGRADE && r->last != H1_BODY_ERROR)
		fail("body", p);
	if (m->framing == HTTP_BODY_TUNNEL)
		return;
	if (p->n_body < r->n_body || memcmp(p->body, r->body, r->n_body) != 0)
		fail("body bytes", p);
	if (r->last == H1_BODY_END) {
		if (!p->is_done || p->n_body != r->n_body)
			fail("not complete", p);
		if ((size_t)(at - r->words) != r->end)
			fail("end of the message", p);
	} else if (r->last == H1_BODY_MORE && p->is_done) {
		fail("complete too early", p);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum http_method methods[] = { HTTP_METHOD_GET, HTTP_METHOD_HEAD,
						    HTTP_METHOD_CONNECT, HTTP_METHOD_POST };
	static char bodies[2][8192], words[8192];
	struct peer p = { .body = bodies[0] };
	struct reading r = { .body = bodies[1], .words = words };
	llhttp_settings_t settings;
	struct h1_head h = { 0 };
	bool is_response;
	struct arena arena;
	struct http_msg m;
	struct str in;
	int ret;

	if (!size || size > 4096)
		return 0;
	is_response = data[0] & 1;
	in = str_make((const char *)data + 1, size - 1);
	arena_init(&arena, 16384);
	if (http_msg_init(&m, &arena, 64))
		abort();
	ret = is_response ? h1_read_response(&h, in, &m, methods[data[0] >> 2 & 3])
			  : h1_read_request(&h, in, &m);
	if (ret > 0) {
		add_head(&r, &m, str_sub(in, 0, (size_t)ret), is_response);
		read_body(&r, &m, str_from(in, (size_t)ret));
		llhttp_settings_init(&settings);
		settings.on_headers_complete = on_headers_complete;
		settings.on_body = on_body;
		settings.on_message_complete = on_message_complete;
		llhttp_init(&p.parser, is_response ? HTTP_RESPONSE : HTTP_REQUEST, &settings);
		if (is_response)
			llhttp_set_lenient_chunked_length(&p.parser, 1);
		p.skip_body = is_response && m.framing == HTTP_BODY_NONE;
		p.is_tunnel = m.framing == HTTP_BODY_TUNNEL;
		compare(&p, &r, &m);
	}
	arena_free(&arena);
	return 0;
}
