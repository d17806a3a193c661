/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The HTTP/2 adapter: two sessions of ours talk to each other through buffers, and a hostile client made of
 * raw frames talks to a server session. links: http base
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "http/h2.h"

#define SECOND 1000000000ull
#define MAX_X  256

struct peer;

/* One exchange, of either end. */
struct x {
	struct h2_stream h2;
	struct peer *p;
	struct arena arena;
	struct http_msg m, trailers_of;
	struct str protocol;
	enum http_error error;
	int read_result;
	char body[300000];
	size_t n_body, unread;
	bool is_end, is_closed, has_trailers, holds; /* holds: gives no window back */
	unsigned n_heads;
};

struct peer {
	struct h2_session *h2;
	struct x *x[MAX_X];
	unsigned n_x;
	bool refuses, holds;
	int32_t goaway_id;
	uint32_t goaway_error;
	unsigned n_windows;
	struct buf out;
	char mem[400000];
};

static struct x *x_new(struct peer *p)
{
	struct x *x = calloc(1, sizeof(*x));

	assert_true(p->n_x < MAX_X);
	p->x[p->n_x++] = x;
	x->p = p;
	x->holds = p->holds;
	arena_init(&x->arena, 4096);
	return x;
}

static struct h2_stream *on_request(void *owner, bool is_end)
{
	struct peer *p = owner;
	struct x *x;

	if (p->refuses || p->n_x == MAX_X)
		return NULL;
	x = x_new(p);
	x->read_result = http_msg_init(&x->m, &x->arena, 20);
	if (!x->read_result)
		x->read_result = h2_read_request(p->h2, &x->m, is_end, &x->protocol, &x->error);
	x->is_end = is_end;
	return &x->h2;
}

static void on_response(struct h2_stream *s, bool is_end)
{
	struct x *x = container_of(s, struct x, h2);

	x->n_heads++;
	x->is_end = is_end;
	x->read_result = http_msg_init(&x->m, &x->arena, 20);
	if (!x->read_result)
		x->read_result = h2_read_response(x->p->h2, &x->m, is_end, HTTP_METHOD_GET,
						  &x->error);
}

static int on_data(struct h2_stream *s, struct str data)
{
	struct x *x = container_of(s, struct x, h2);

	if (data.len > sizeof(x->body) - x->n_body)
		return -ENOBUFS;
	memcpy(x->body + x->n_body, data.p, data.len);
	x->n_body += data.len;
	x->unread += data.len;
	return 0;
}

static void on_trailers(struct h2_stream *s)
{
	struct x *x = container_of(s, struct x, h2);

	x->has_trailers = h2_read_trailers(x->p->h2, &x->m) == 0;
}

static void on_end(struct h2_stream *s)
{
	container_of(s, struct x, h2)->is_end = true;
}

static void on_close(struct h2_stream *s)
{
	container_of(s, struct x, h2)->is_closed = true;
}

static void on_window(void *owner, struct h2_stream *s)
{
	((struct peer *)owner)->n_windows++;
}

static void on_goaway(void *owner, int32_t last_id, uint32_t error)
{
	struct peer *p = owner;

	p->goaway_id = last_id;
	p->goaway_error = error;
}

static const struct h2_ops ops = {
	on_request, on_response, on_data, on_trailers, on_end, on_close, on_window, on_goaway,
};

static const struct h2_limits limits = { .max_head = 8192,
					 .max_fields = 20,
					 .allow_connect_protocol = true };
static struct peer server, client;
static uint64_t now;

static void peer_reset(struct peer *p)
{
	h2_free(p->h2);
	for (unsigned i = 0; i < p->n_x; i++) {
		arena_free(&p->x[i]->arena);
		free(p->x[i]);
	}
	memset(p, 0, offsetof(struct peer, mem));
	buf_init(&p->out, p->mem, sizeof(p->mem));
}

static int setup(void **state)
{
	now = SECOND;
	peer_reset(&server);
	peer_reset(&client);
	assert_int_equal(h2_server_new(&ops, &server, &limits, now, &server.h2), 0);
	assert_int_equal(h2_client_new(&ops, &client, &limits, now, &client.h2), 0);
	return 0;
}

static int teardown(void **state)
{
	peer_reset(&server);
	peer_reset(&client);
	return 0;
}

/* Gives back the windows of what arrived. */
static void give_back(struct peer *p)
{
	for (unsigned i = 0; i < p->n_x; i++) {
		struct x *x = p->x[i];

		if (x->unread && !x->holds) {
			h2_stream_consumed(&x->h2, x->unread);
			x->unread = 0;
		}
	}
}

static bool move(struct peer *from, struct peer *to)
{
	int r = h2_produce(from->h2, &from->out);
	struct str s = buf_str(&from->out);

	assert_true(r == 0 || r == -ENOBUFS || r == -EPROTO);
	if (!s.len)
		return false;
	r = h2_receive(to->h2, s, now);
	assert_true(r == 0 || r == -EPROTO);
	buf_clear(&from->out);
	give_back(to);
	return true;
}

/* Until both have nothing more to say. */
static void talk(void)
{
	for (int i = 0; i < 100; i++)
		if (!move(&client, &server) & !move(&server, &client))
			return;
	fail_msg("they never stop talking");
}

static struct str get_field(const struct http_msg *m, const char *name)
{
	struct http_field *f = http_msg_find_name(m, str_from_cstr(name), 0);

	return f ? f->value : STR_NULL;
}

#define assert_str(s, lit) assert_true(str_is_eq(s, STR(lit)))

static void read_h1(struct http_msg *m, struct arena *a, const char *text, bool is_response)
{
	struct h1_head head = { 0 };
	int r;

	assert_int_equal(http_msg_init(m, a, 20), 0);
	r = is_response ? h1_read_response(&head, str_from_cstr(text), m, HTTP_METHOD_GET)
			: h1_read_request(&head, str_from_cstr(text), m);
	assert_true(r > 0);
}

/* A request of ours; the server's exchange is server.x[n]. */
static struct x *request(const char *text, const char *body, bool is_end)
{
	struct x *x = x_new(&client);
	struct str s = str_from_cstr(body);

	read_h1(&x->m, &x->arena, text, false);
	assert_int_equal(
		h2_stream_request(client.h2, &x->h2, &x->m, STR("https"), STR(""), body || !is_end),
		0);
	assert_int_equal(h2_stream_write(&x->h2, &client.out, &s, body ? 1 : 0, is_end, NULL),
			 s.len);
	talk();
	return x;
}

static void respond(struct x *x, const char *text, const char *body)
{
	struct http_msg m;
	struct str s = str_from_cstr(body);

	read_h1(&m, &x->arena, text, true);
	assert_int_equal(h2_stream_respond(&x->h2, &m, body), 0);
	assert_int_equal(
		h2_stream_write(&x->h2, &server.out, &s, body ? 1 : 0, m.status >= 200, NULL),
		s.len);
}

static void test_exchange(void **state)
{
	struct x *c = request("GET /a?b=c HTTP/1.1\r\nHost: h.example\r\nX-Mixed: Case\r\n"
			      "Cookie: a=1\r\nConnection: keep-alive\r\nKeep-Alive: 1\r\n\r\n",
			      NULL, true);
	struct x *s = server.x[0];

	assert_int_equal(s->read_result, 0);
	assert_int_equal(s->m.major, 2);
	assert_int_equal(s->m.method, HTTP_METHOD_GET);
	assert_str(s->m.path, "/a?b=c");
	assert_str(s->m.scheme, "https");
	assert_str(s->m.authority, "h.example");
	assert_str(s->m.start_line, "GET https://h.example/a?b=c HTTP/2.0");
	assert_str(s->m.target, "https://h.example/a?b=c");
	assert_str(get_field(&s->m, "host"), "h.example");
	assert_str(get_field(&s->m, "x-mixed"), "Case");
	assert_null(get_field(&s->m, "connection").p);
	assert_null(get_field(&s->m, "keep-alive").p);
	assert_int_equal(s->m.framing, HTTP_BODY_NONE);
	assert_true(s->is_end);
	respond(s, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", NULL);
	talk();
	assert_int_equal(c->m.status, 103);
	respond(s, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: k=v\r\n\r\n", "hello");
	talk();
	assert_int_equal(c->read_result, 0);
	assert_int_equal(c->m.status, 200);
	assert_int_equal(c->n_heads, 2);
	assert_int_equal(c->m.framing, HTTP_BODY_LENGTH);
	assert_int_equal(c->m.content_length, 5);
	assert_str(get_field(&c->m, "set-cookie"), "k=v");
	assert_memory_equal(c->body, "hello", 5);
	assert_true(c->is_end && c->is_closed && s->is_closed);
	assert_int_equal(c->h2.error, H2_NO_ERROR);
	assert_false(h2_is_over(server.h2));
}

static void test_bodies(void **state)
{
	struct x *c = request("POST /u HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n", "data",
			      true);
	struct x *s = server.x[0];

	assert_int_equal(s->m.framing, HTTP_BODY_LENGTH);
	assert_int_equal(s->m.content_length, 4);
	assert_memory_equal(s->body, "data", 4);
	assert_true(s->is_end);
	respond(s, "HTTP/1.1 204 No Content\r\n\r\n", NULL);
	talk();
	assert_int_equal(c->m.status, 204);
	assert_true(c->is_end);
	/* Without a length; and an empty one that servers want to know about. */
	request("PUT /u HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", "abc", true);
	assert_int_equal(server.x[1]->m.framing, HTTP_BODY_CHUNKED);
	request("POST /u HTTP/1.1\r\nHost: h\r\n\r\n", NULL, true);
	assert_int_equal(server.x[2]->m.framing, HTTP_BODY_LENGTH);
	assert_int_equal(server.x[2]->m.content_length, 0);
}

static void test_trailers(void **state)
{
	struct http_field t[2] = { { .name = STR("X-Sum"), .value = STR("1") },
				   { .name = STR("Content-Length"), .value = STR("7") } };
	struct http_msg m;
	struct str body = STR("abc");
	struct x *c = request("GET / HTTP/1.1\r\nHost: h\r\n\r\n", NULL, true), *s = server.x[0];

	read_h1(&m, &s->arena, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true);
	m.trailers = t;
	m.n_trailers = 2;
	m.flags |= HTTP_MSG_HAS_TRAILERS;
	assert_int_equal(h2_stream_respond(&s->h2, &m, true), 0);
	assert_int_equal(h2_stream_write(&s->h2, &server.out, &body, 1, true, &m), 3);
	assert_true(s->h2.out_ended);
	talk();
	assert_true(c->has_trailers && c->is_end);
	/* What may not be a trailer was left out. */
	assert_int_equal(c->m.n_trailers, 1);
	assert_str(c->m.trailers[0].name, "x-sum");
	assert_str(c->m.trailers[0].value, "1");
}

/* Nothing is sent beyond what the receiver gave back, and everything arrives once it does. */
static void test_flow_control(void **state)
{
	static char big[200000];
	struct str body = str_make(big, sizeof(big));
	struct http_msg m;
	struct x *c, *s;
	size_t sent = 0;

	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i * 7 + i / 1000);
	client.holds = true;
	c = request("GET / HTTP/1.1\r\nHost: h\r\n\r\n", NULL, true);
	s = server.x[0];
	read_h1(&m, &s->arena, "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n", true);
	assert_int_equal(h2_stream_respond(&s->h2, &m, true), 0);
	for (int i = 0; i < 3; i++) {
		struct str rest = str_from(body, sent);
		ssize_t n = h2_stream_write(&s->h2, &server.out, &rest, 1, true, NULL);

		assert_true(n >= 0);
		sent += (size_t)n;
		talk();
	}
	assert_int_equal(sent, H2_STREAM_WINDOW);
	assert_int_equal(c->n_body, H2_STREAM_WINDOW);
	assert_false(h2_stream_has_window(&s->h2));
	c->holds = false;
	give_back(&client);
	talk();
	assert_true(server.n_windows > 0);
	assert_true(h2_stream_has_window(&s->h2));
	for (int i = 0; i < 20 && !s->h2.out_ended; i++) {
		struct str rest = str_from(body, sent);
		ssize_t n = h2_stream_write(&s->h2, &server.out, &rest, rest.len != 0, true, NULL);

		assert_true(n >= 0);
		sent += (size_t)n;
		talk();
	}
	assert_int_equal(c->n_body, sizeof(big));
	assert_memory_equal(c->body, big, sizeof(big));
	assert_true(c->is_end && c->is_closed);
}

/* A full buffer stops production between frames; nothing is lost. */
static void test_small_buffer(void **state)
{
	static char big[60000], small[H2_PRODUCE_ROOM + 100];
	struct str body = str_make(big, sizeof(big));
	struct http_msg m;
	struct x *c = request("GET / HTTP/1.1\r\nHost: h\r\n\r\n", NULL, true), *s = server.x[0];
	struct buf out;
	size_t sent = 0;

	buf_init(&out, small, sizeof(small));
	read_h1(&m, &s->arena, "HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", true);
	assert_int_equal(h2_stream_respond(&s->h2, &m, true), 0);
	for (int i = 0; i < 20 && !s->h2.out_ended; i++) {
		struct str rest = str_from(body, sent);
		ssize_t n = h2_stream_write(&s->h2, &out, &rest, 1, true, NULL);

		assert_true(n >= 0 && n <= 16384);
		sent += (size_t)n;
		assert_int_equal(h2_receive(client.h2, buf_str(&out), now), 0);
		buf_clear(&out);
	}
	assert_int_equal(c->n_body, sizeof(big));
	assert_true(c->is_end);
}

static void test_leave(void **state)
{
	struct x *c = request("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n", "part",
			      false);
	struct x *s = server.x[0];

	/* The answer is complete, the request is not: no error. */
	respond(s, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "ok");
	h2_stream_leave(&s->h2, H2_INTERNAL_ERROR, s->unread);
	talk();
	assert_true(c->is_closed && c->is_end);
	assert_int_equal(c->h2.error, H2_NO_ERROR);
	assert_int_equal(h2_stream_write(&c->h2, &client.out, NULL, 0, true, NULL), -EPIPE);
	/* And in the middle of an answer. */
	c = request("GET / HTTP/1.1\r\nHost: h\r\n\r\n", NULL, true);
	respond(server.x[1], "HTTP/1.1 103 Early Hints\r\n\r\n", NULL);
	h2_stream_leave(&server.x[1]->h2, H2_INTERNAL_ERROR, 0);
	talk();
	assert_true(c->is_closed);
	assert_int_equal(c->h2.error, H2_INTERNAL_ERROR);
	/* The client gives up. */
	c = request("GET / HTTP/1.1\r\nHost: h\r\n\r\n", NULL, true);
	h2_stream_leave(&c->h2, H2_CANCEL, 0);
	talk();
	assert_true(server.x[2]->is_closed);
	assert_int_equal(server.x[2]->h2.error, H2_CANCEL);
}

static void test_goaway(void **state)
{
	struct x *c = request("GET / HTTP/1.1\r\nHost: h\r\n\r\n", NULL, true), *late;

	assert_int_equal(h2_shutdown_notice(server.h2), 0);
	talk();
	assert_int_equal(client.goaway_id, INT32_MAX);
	assert_false(h2_can_open(client.h2));
	assert_int_equal(h2_goaway(server.h2, H2_NO_ERROR), 0);
	talk();
	assert_int_equal(client.goaway_id, c->h2.id);
	late = x_new(&client);
	read_h1(&late->m, &late->arena, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", false);
	assert_int_equal(
		h2_stream_request(client.h2, &late->h2, &late->m, STR("http"), STR(""), false),
		-EAGAIN);
	/* What was under way comes to its end. */
	assert_false(h2_is_over(server.h2));
	respond(server.x[0], "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "ok");
	talk();
	assert_true(c->is_end);
	assert_true(h2_is_over(server.h2));
}

static void test_refused(void **state)
{
	struct x *c;

	server.refuses = true;
	c = request("GET / HTTP/1.1\r\nHost: h\r\n\r\n", NULL, true);
	assert_true(c->is_closed);
	assert_int_equal(c->h2.error, H2_REFUSED_STREAM);
}

/* --- raw frames ---------------------------------------------------------------------------------- */

static char raw[600000];
static size_t n_raw;

static void frame(unsigned type, unsigned flags, uint32_t id, struct str payload)
{
	char *p = raw + n_raw;

	assert_true(n_raw + 9 + payload.len <= sizeof(raw));
	p[0] = (char)(payload.len >> 16);
	p[1] = (char)(payload.len >> 8);
	p[2] = (char)payload.len;
	p[3] = (char)type;
	p[4] = (char)flags;
	put_be32(p + 5, id);
	if (payload.len)
		memcpy(p + 9, payload.p, payload.len);
	n_raw += 9 + payload.len;
}

/* Literal fields without indexing, no Huffman: "name\nvalue\n" pairs. */
static struct str hpack(char *out, const char *text)
{
	size_t n = 0;

	while (*text) {
		size_t len = strcspn(text, "\n");

		out[n++] = 0;
		out[n++] = (char)len;
		memcpy(out + n, text, len);
		n += len;
		text += len + 1;
		len = strcspn(text, "\n");
		assert_true(len < 127);
		out[n++] = (char)len;
		memcpy(out + n, text, len);
		n += len;
		text += len + 1;
	}
	return str_make(out, n);
}

#define GET ":method\nGET\n:scheme\nhttp\n:path\n/\n:authority\nh\n"

static void headers(uint32_t id, unsigned flags, const char *text)
{
	char block[4096];

	frame(1, flags, id, hpack(block, text));
}

static void raw_begin(void)
{
	n_raw = 0;
	memcpy(raw, H2_PREFACE, H2_PREFACE_LEN);
	n_raw = H2_PREFACE_LEN;
	frame(4, 0, 0, STR(""));
}

/* What the server said: the first frame of `type` on `id`; its 32 bits of payload at `at`, or -1. */
static int64_t said(unsigned type, uint32_t id, size_t at)
{
	struct str s = buf_str(&server.out);

	while (s.len >= 9) {
		size_t len = (size_t)(uint8_t)s.p[0] << 16 | (size_t)(uint8_t)s.p[1] << 8 |
			     (uint8_t)s.p[2];

		if ((uint8_t)s.p[3] == type && get_be32(s.p + 5) == id)
			return len >= at + 4 ? get_be32(s.p + 9 + at) : 0;
		s = str_from(s, 9 + len);
	}
	return -1;
}

static int raw_send(void)
{
	int r = h2_receive(server.h2, str_make(raw, n_raw), now);
	int p = h2_produce(server.h2, &server.out);

	n_raw = 0;
	assert_true(p == 0 || p == -EPROTO || p == -ENOBUFS);
	return r;
}

/* Refused by a reset of the stream with PROTOCOL_ERROR, or told to the owner as `error`. */
static void check_head(const char *text, int error)
{
	setup(NULL);
	raw_begin();
	headers(1, 5, text);
	assert_int_equal(raw_send(), 0);
	if (error < 0) {
		assert_int_equal(server.n_x, 0);
		assert_int_equal(said(3, 1, 0), H2_PROTOCOL_ERROR);
		return;
	}
	assert_int_equal(server.n_x, 1);
	assert_int_equal(server.x[0]->error, error);
	assert_int_equal(server.x[0]->read_result, error ? -EBADMSG : 0);
}

static void test_strict_heads(void **state)
{
	check_head(GET, 0);
	/* RFC 9113 8.3 */
	check_head(":method\nGET\n:scheme\nhttp\n:authority\nh\n", -1);
	check_head(":method\nGET\n:path\n/\n:authority\nh\n", -1);
	check_head(":scheme\nhttp\n:path\n/\n", -1);
	check_head(GET ":path\n/b\n", -1);
	check_head(GET ":odd\nx\n", -1);
	check_head(GET ":status\n200\n", -1);
	check_head("x\ny\n" GET, -1);
	check_head(GET "x\ny\n:path\n/\n", -1);
	check_head(":method\nGET\n:scheme\nhttp\n:path\n\n:authority\nh\n", -1);
	/* 8.2: capitals, connection-specific fields */
	check_head(GET "X-Upper\ny\n", -1);
	check_head(GET "connection\nclose\n", -1);
	check_head(GET "transfer-encoding\nchunked\n", -1);
	check_head(GET "keep-alive\n1\n", -1);
	check_head(GET "upgrade\nx\n", -1);
	check_head(GET "proxy-connection\nx\n", -1);
	check_head(GET "te\ngzip\n", -1);
	check_head(GET "te\ntrailers\n", 0);
	/* lengths */
	check_head(GET "content-length\n5\n", -1);
	check_head(GET "content-length\n+0\n", -1);
	check_head(GET "content-length\n0\ncontent-length\n0\n", -1);
	check_head(GET "content-length\n0\n", 0);
	/* What nghttp2 lets pass and HTTP/1's reader does not. */
	check_head(GET "x\na\rb\n", HTTP_ERR_BAD_FIELD_VALUE);
	check_head(GET "x\na\177b\n", HTTP_ERR_BAD_FIELD_VALUE);
	check_head(GET "host\nother\n", HTTP_ERR_BAD_HOST);
	check_head(GET "host\nh:80\n", 0);
	check_head(GET "host\nh\nhost\nh\n", -1);
	check_head(":method\nGET\n:scheme\nhttp\n:path\n/\n:authority\nu@h\n", HTTP_ERR_BAD_TARGET);
	check_head(":method\nGET\n:scheme\nhttp\n:path\n/\n:authority\nh:99999\n",
		   HTTP_ERR_BAD_TARGET);
	check_head(":method\nGET\n:scheme\nhttp\n:path\n/a#b\n:authority\nh\n",
		   HTTP_ERR_BAD_TARGET);
	check_head(":method\nGET\n:scheme\nhttp\n:path\n/\303\n:authority\nh\n",
		   HTTP_ERR_BAD_TARGET);
	check_head(":method\nCONNECT\n:authority\nh:443\n", 0);
	check_head(":method\nCONNECT\n:authority\nh\n", HTTP_ERR_BAD_TARGET);
	check_head(":method\nOPTIONS\n:scheme\nhttp\n:path\n*\n:authority\nh\n", 0);
	check_head(":method\nGET\n:scheme\nhttp\n:path\n*\n:authority\nh\n", -1);
}

static void test_websocket_and_cookies(void **state)
{
	check_head(":method\nCONNECT\n:protocol\nwebsocket\n:scheme\nhttps\n:path\n/ws\n"
		   ":authority\nh\nsec-websocket-version\n13\n",
		   0);
	assert_str(server.x[0]->protocol, "websocket");
	assert_str(server.x[0]->m.path, "/ws");
	assert_int_equal(server.x[0]->m.framing, HTTP_BODY_NONE);
	check_head(GET "cookie\na=1\nx\ny\ncookie\nb=2\ncookie\nc=3\n", 0);
	assert_str(get_field(&server.x[0]->m, "cookie"), "a=1; b=2; c=3");
	assert_null(http_msg_find(&server.x[0]->m, HTTP_FIELD_COOKIE, 4));
}

static void test_limits(void **state)
{
	char text[3000] = GET;

	/* More fields than allowed. */
	for (int i = 0; i < 22; i++)
		strcat(text, "n\nv\n");
	check_head(text, HTTP_ERR_TOO_MANY_FIELDS);
	/* A list that is too large, in one literal field. */
	setup(NULL);
	raw_begin();
	{
		static char block[12000];
		struct str b = hpack(block, GET);
		size_t n = b.len;

		block[n++] = 0;
		block[n++] = 1;
		block[n++] = 'x';
		block[n++] = 127; /* 127 + 9000 - 127 in 7-bit groups */
		for (unsigned v = 9000 - 127;; v >>= 7) {
			block[n++] = (char)(v >= 128 ? (v & 127) | 128 : v);
			if (v < 128)
				break;
		}
		memset(block + n, 'a', 9000);
		frame(1, 5, 1, str_make(block, n + 9000));
	}
	assert_int_equal(raw_send(), 0);
	assert_int_equal(server.x[0]->error, HTTP_ERR_TOO_LARGE);
	assert_int_equal(http_error_status(HTTP_ERR_TOO_LARGE), 431);
}

static void check_calm(enum h2_abuse kind)
{
	int r = raw_send();

	assert_int_equal(r, -EPROTO);
	assert_int_equal(h2_abuse(server.h2), kind);
	assert_int_equal(said(7, 0, 4), H2_CALM);
	assert_true(h2_is_over(server.h2));
}

static void test_floods(void **state)
{
	char bytes[8] = { 0 };

	for (unsigned i = 0; i < 210; i++) { /* rapid reset */
		if (!i)
			raw_begin();
		headers(1 + 2 * i, 5, GET);
		frame(3, 0, 1 + 2 * i, str_make("\0\0\0\10", 4));
	}
	check_calm(H2_ABUSE_RESET);
	setup(NULL);
	raw_begin();
	for (unsigned i = 0; i < 40; i++)
		frame(4, 0, 0, STR(""));
	check_calm(H2_ABUSE_CONTROL);
	setup(NULL);
	raw_begin();
	for (unsigned i = 0; i < 220; i++)
		frame(6, 0, 0, str_make(bytes, 8));
	check_calm(H2_ABUSE_PING);
	setup(NULL);
	raw_begin();
	headers(1, 4, ":method\nPOST\n:scheme\nhttp\n:path\n/\n:authority\nh\n");
	for (unsigned i = 0; i < 80; i++)
		frame(0, 0, 1, STR(""));
	check_calm(H2_ABUSE_EMPTY);
	setup(NULL);
	raw_begin();
	headers(1, 4, ":method\nPOST\n:scheme\nhttp\n:path\n/\n:authority\nh\n");
	for (unsigned i = 0; i < 80; i++) /* nothing but padding */
		frame(0, 8, 1, str_make("\3\0\0\0", 4));
	check_calm(H2_ABUSE_EMPTY);
	setup(NULL);
	raw_begin();
	headers(1, 1, GET);
	for (unsigned i = 0; i < 40; i++)
		frame(9, 0, 1, STR("\0\1n\1v"));
	check_calm(H2_ABUSE_CONTINUATION);
	setup(NULL);
	raw_begin();
	for (unsigned i = 0; i < 5000; i++)
		frame(8, 0, 0, str_make("\0\0\0\1", 4));
	check_calm(H2_ABUSE_WINDOW);
	setup(NULL);
	raw_begin();
	for (unsigned i = 0; i < 1100; i++)
		frame(2, 0, 1, str_make("\0\0\0\3\1", 5));
	check_calm(H2_ABUSE_PRIORITY);
}

/* One large field in the dynamic table, then one byte each time. */
static void test_header_bomb(void **state)
{
	static char block[8000];
	size_t n;

	raw_begin();
	n = hpack(block, GET).len;
	block[n++] = 0x40; /* literal with indexing */
	block[n++] = 1;
	block[n++] = 'x';
	block[n++] = 127;
	block[n++] = (char)(((3000 - 127) & 127) | 128);
	block[n++] = (3000 - 127) >> 7;
	memset(block + n, 'a', 3000);
	n += 3000;
	memset(block + n, 0xbe, 3000); /* index 62 */
	frame(1, 5, 1, str_make(block, n + 3000));
	check_calm(H2_ABUSE_HEADERS);
	assert_int_equal(server.n_x, 0);
}

/* Honest peers do all of it, slowly. */
static void test_budgets_refill(void **state)
{
	raw_begin();
	for (unsigned i = 0; i < 600; i++) {
		frame(6, 0, 0, str_make("12345678", 8));
		assert_int_equal(raw_send(), 0);
		buf_clear(&server.out);
		now += SECOND / 5;
	}
	assert_int_equal(h2_abuse(server.h2), H2_ABUSE_NONE);
}

static void test_closed_streams(void **state)
{
	raw_begin();
	headers(5, 5, GET);
	headers(3, 5, GET);
	raw_send();
	assert_int_equal(said(7, 0, 4), H2_STREAM_CLOSED);
	/* What we reset may still be on its way. */
	setup(NULL);
	server.refuses = true;
	raw_begin();
	headers(1, 4, ":method\nPOST\n:scheme\nhttp\n:path\n/\n:authority\nh\n");
	assert_int_equal(raw_send(), 0);
	assert_int_equal(said(3, 1, 0), H2_REFUSED_STREAM);
	frame(0, 1, 1, STR("late"));
	assert_int_equal(raw_send(), 0);
	assert_int_equal(said(7, 0, 4), -1);
}

static void test_bad_preface(void **state)
{
	assert_int_equal(h2_receive(server.h2, STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), now),
			 -EPROTO);
	assert_true(h2_is_over(server.h2));
	assert_int_equal(h2_receive(server.h2, STR("x"), now), -EPROTO);
}

/* Window beyond 2^31-1, bytes beyond the window. */
static void test_window_violations(void **state)
{
	static char data[16384];

	raw_begin();
	frame(8, 0, 0, str_make("\177\377\377\377", 4));
	raw_send();
	assert_int_equal(said(7, 0, 4), 3);
	setup(NULL);
	server.holds = true;
	raw_begin();
	headers(1, 4, ":method\nPOST\n:scheme\nhttp\n:path\n/\n:authority\nh\n");
	for (int i = 0; i < 5; i++)
		frame(0, 0, 1, str_make(data, sizeof(data)));
	raw_send();
	assert_true(said(7, 0, 4) == 3 || said(3, 1, 0) == 3);
	/* Bounded; nghttp2 may let the frame that crosses the line pass. */
	assert_true(server.x[0]->n_body <= H2_STREAM_WINDOW + sizeof(data));
}

/* --- memory -------------------------------------------------------------------------------------- */

static int exchange_or_fail(void)
{
	struct str body = STR("some body");
	struct http_msg m;
	struct h1_head head = { 0 };
	int r;

	peer_reset(&server);
	r = h2_server_new(&ops, &server, &limits, now, &server.h2);
	if (r)
		return r;
	raw_begin();
	headers(1, 4,
		":method\nPOST\n:scheme\nhttp\n:path\n/\n:authority\nh\ncookie\na\ncookie\nb\n");
	frame(0, 0, 1, STR("data"));
	headers(1, 5, "x-trailer\nv\n");
	r = h2_receive(server.h2, str_make(raw, n_raw), now);
	if (r)
		return r;
	if (!server.n_x || server.x[0]->read_result || !server.x[0]->has_trailers)
		return -ENOMEM;
	r = http_msg_init(&m, &server.x[0]->arena, 20);
	if (r)
		return r;
	r = h1_read_response(&head, STR("HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 9\r\n\r\n"),
			     &m, HTTP_METHOD_GET);
	assert_true(r > 0);
	r = h2_stream_respond(&server.x[0]->h2, &m, true);
	if (r)
		return r;
	r = (int)h2_stream_write(&server.x[0]->h2, &server.out, &body, 1, true, NULL);
	return r < 0 ? r : 0;
}

static void test_out_of_memory(void **state)
{
	unsigned n;

	for (n = 1;; n++) {
		int r;

		mem_fail_at(n);
		r = exchange_or_fail();
		if (mem_alloc_count() < n) {
			mem_fail_at(0);
			assert_int_equal(r, 0);
			break;
		}
		mem_fail_at(0);
	}
	assert_true(n > 20);
	/* And once more, whole. */
	assert_int_equal(exchange_or_fail(), 0);
	assert_int_equal(server.x[0]->n_body, 4);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_exchange),
		T(test_bodies),
		T(test_trailers),
		T(test_flow_control),
		T(test_small_buffer),
		T(test_leave),
		T(test_goaway),
		T(test_refused),
		T(test_strict_heads),
		T(test_websocket_and_cookies),
		T(test_limits),
		T(test_floods),
		T(test_header_bomb),
		T(test_budgets_refill),
		T(test_closed_streams),
		T(test_bad_preface),
		T(test_window_violations),
		T(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
