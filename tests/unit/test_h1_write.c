/* SPDX-License-Identifier: BSD-2-Clause */
/* links: http base */
/* HTTP/1 writer: what goes out for what came in, after edits, into every size of buffer. */
#include "h1_test.h"

static char out_mem[4096];

static void read_it(struct fixture *f, struct str in, bool is_response, enum http_method method)
{
	struct h1_head h = { 0 };
	int n;

	n = is_response ? h1_read_response(&h, in, &f->msg, method)
			: h1_read_request(&h, in, &f->msg);
	if (n != (int)in.len)
		fail_msg(STR_FMT ": %s", STR_ARG(in), http_error_text((enum http_error)h.error));
}

static struct str write_it(struct fixture *f, bool is_response, enum h1_connection conn)
{
	static struct buf out;

	buf_init(&out, out_mem, sizeof(out_mem));
	assert_int_equal(is_response ? h1_write_response(&out, &f->msg, conn)
				     : h1_write_request(&out, &f->msg, conn),
			 0);
	return buf_str(&out);
}

struct write_case {
	const char *in, *out;
	enum h1_connection conn;
	enum http_method method; /* response to */
	bool is_response;
};

static const struct write_case cases[] = {
	{ "GET /a HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n",
	  "GET /a HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n", H1_CONN_NONE, 0, false },
	{ "GET /a HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nKeep-Alive: "
	  "3\r\nProxy-Connection: x\r\nB: c\r\n"
	  "\r\n",
	  "GET /a HTTP/1.1\r\nHost: h\r\nB: c\r\nConnection: close\r\n\r\n", H1_CONN_CLOSE, 0,
	  false },
	{ "\r\nGET /a HTTP/1.4\r\nhost:h\r\nA: \r\nB:  c \t\r\n\r\n",
	  "GET /a HTTP/1.1\r\nhost: h\r\nA: \r\nB: c\r\nConnection: keep-alive\r\n\r\n",
	  H1_CONN_KEEP_ALIVE, 0, false },
	{ "GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\n\r\n", H1_CONN_NONE, 0, false },
	{ "GET http://h:80/x HTTP/1.1\r\nHost: h\r\n\r\n", "GET /x HTTP/1.1\r\nHost: h\r\n\r\n",
	  H1_CONN_NONE, 0, false },
	{ "GET http://h?x HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?x HTTP/1.1\r\nHost: h\r\n\r\n",
	  H1_CONN_NONE, 0, false },
	{ "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n", "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n",
	  H1_CONN_NONE, 0, false },
	{ "POST / HTTP/1.1\r\nContent-Length: 007\r\nHost: h\r\n\r\n",
	  "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n\r\n", H1_CONN_NONE, 0, false },
	{ "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551615\r\n\r\n",
	  "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551615\r\n\r\n",
	  H1_CONN_NONE, 0, false },
	{ "POST / HTTP/1.1\r\nHost: h\r\ntransfer-encoding: CHUNKED\r\nTrailer: x\r\n\r\n",
	  "POST / HTTP/1.1\r\nHost: h\r\nTrailer: x\r\nTransfer-Encoding: chunked\r\n\r\n",
	  H1_CONN_NONE, 0, false },
	{ "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
	  "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
	  H1_CONN_UPGRADE, 0, false },
	{ "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
	  "GET / HTTP/1.1\r\nHost: h\r\n\r\n", H1_CONN_NONE, 0, false },
	{ "GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\n\r\n",
	  "GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: keep-alive, TE\r\n\r\n",
	  H1_CONN_KEEP_ALIVE, 0, false },
	{ "HTTP/1.1 200 Fine\r\nA: b\r\nContent-Length: 2\r\nC: d\r\n\r\n",
	  "HTTP/1.1 200 Fine\r\nA: b\r\nC: d\r\nContent-Length: 2\r\n\r\n", H1_CONN_NONE,
	  HTTP_METHOD_GET, true },
	{ "HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", H1_CONN_CLOSE,
	  HTTP_METHOD_GET, true },
	{ "HTTP/1.1 404\r\n\r\n", "HTTP/1.1 404 Not Found\r\n\r\n", H1_CONN_NONE, HTTP_METHOD_GET,
	  true },
	{ "HTTP/1.1 200 \r\n\r\n", "HTTP/1.1 200 \r\n\r\n", H1_CONN_NONE, HTTP_METHOD_GET, true },
	{ "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
	  "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", H1_CONN_NONE, HTTP_METHOD_HEAD, true },
	{ "HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\n", "HTTP/1.1 204 No\r\n\r\n", H1_CONN_NONE,
	  HTTP_METHOD_GET, true },
	{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n",
	  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", H1_CONN_NONE, HTTP_METHOD_GET,
	  true },
};

static void test_cases(void **state)
{
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct write_case *c = &cases[i];
		size_t len = strlen(c->in);
		char *copy = exact_copy(c->in, len);
		struct fixture f;

		fixture_begin(&f, 8);
		read_it(&f, str_make(copy, len), c->is_response, c->method);
		assert_str(write_it(&f, c->is_response, c->conn), c->out);
		fixture_end(&f);
		free(copy);
	}
}

static const char edited[] = "GET /old HTTP/1.1\r\nA: 1\r\nHost: h\r\nB: 2\r\nC: 3\r\nD: 4\r\n\r\n";

/* Edits cut the runs that are copied as received; exchanged slices are noticed. */
static void test_edits(void **state)
{
	char copy[sizeof(edited)];
	struct fixture f;

	memcpy(copy, edited, sizeof(edited));
	fixture_begin(&f, 8);
	read_it(&f, str_make(copy, sizeof(edited) - 1), false, 0);
	http_msg_del(&f.msg, STR("b"));
	assert_int_equal(http_msg_set(&f.msg, STR("c"), STR(" three ")), 0);
	assert_int_equal(http_msg_add(&f.msg, STR("X-Forwarded-For"), STR("10.0.0.1")), 0);
	assert_str(write_it(&f, false, H1_CONN_NONE),
		   "GET /old HTTP/1.1\r\nA: 1\r\nHost: h\r\nc: three\r\n"
		   "D: 4\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n");
	f.msg.path = STR("/new");
	f.msg.fields[0].value = STR("one");
	f.msg.fields[5 - 1].name = STR("dd");
	assert_str(write_it(&f, false, H1_CONN_NONE),
		   "GET /new HTTP/1.1\r\nA: one\r\nHost: h\r\nc: three\r\n"
		   "dd: 4\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n");
	fixture_end(&f);
}

static void test_edited_response(void **state)
{
	struct str in = STR("HTTP/1.1 200 OK\r\nA: bc\r\n\r\n");
	struct fixture f;

	fixture_begin(&f, 8);
	read_it(&f, in, true, HTTP_METHOD_GET);
	/* Shortened behind: the address of the value is the same. */
	f.msg.fields[0].value = str_sub(f.msg.fields[0].value, 0, 1);
	assert_str(write_it(&f, true, H1_CONN_NONE), "HTTP/1.1 200 OK\r\nA: b\r\n\r\n");
	f.msg.fields[0].value.len = 2;
	f.msg.status = 201;
	f.msg.reason = STR_NULL;
	f.msg.fields[0].value = str_sub(f.msg.fields[0].value, 1, 1);
	f.msg.framing = HTTP_BODY_CHUNKED;
	assert_str(write_it(&f, true, H1_CONN_NONE),
		   "HTTP/1.1 201 Created\r\nA: c\r\nTransfer-Encoding: chunked\r\n\r\n");
	f.msg.fields[0].value = str_sub(f.msg.fields[0].value, 0, 0);
	assert_str(write_it(&f, true, H1_CONN_NONE),
		   "HTTP/1.1 201 Created\r\nA: \r\nTransfer-Encoding: chunked\r\n\r\n");
	fixture_end(&f);
}

/* All or nothing, at every size; consumed bytes make room. */
static void test_room(void **state)
{
	size_t len = sizeof(edited) - 1;
	struct fixture f;
	struct buf out;

	fixture_begin(&f, 8);
	read_it(&f, STR(edited), false, 0);
	for (uint32_t cap = 0; cap < len; cap++) {
		char *mem = exact_copy(edited, cap);

		buf_init(&out, mem, cap);
		assert_int_equal(h1_write_request(&out, &f.msg, H1_CONN_NONE), -ENOBUFS);
		assert_int_equal(buf_len(&out), 0);
		free(mem);
	}
	buf_init(&out, out_mem, (uint32_t)len + 2);
	assert_true(buf_put(&out, STR("abcdef")));
	buf_consume(&out, 4);
	assert_int_equal(h1_write_request(&out, &f.msg, H1_CONN_NONE), 0);
	assert_int_equal(buf_len(&out), len + 2);
	assert_memory_equal(buf_data(&out), "efGET", 5);
	assert_int_equal(h1_write_request(&out, &f.msg, H1_CONN_NONE), -ENOBUFS);
	assert_int_equal(buf_len(&out), len + 2);
	fixture_end(&f);
}

/* A message that never was HTTP/1 bytes. */
static void test_made_message(void **state)
{
	struct fixture f;

	fixture_begin(&f, 2);
	f.msg.method = HTTP_METHOD_GET;
	f.msg.method_text = http_method_text(HTTP_METHOD_GET);
	f.msg.path = STR("/check");
	f.msg.major = 2;
	assert_int_equal(http_msg_add(&f.msg, STR("host"), STR("h")), 0);
	assert_str(write_it(&f, false, H1_CONN_CLOSE),
		   "GET /check HTTP/1.1\r\nhost: h\r\nConnection: close\r\n\r\n");
	http_msg_reset(&f.msg);
	f.msg.status = 503;
	f.msg.framing = HTTP_BODY_LENGTH;
	assert_str(write_it(&f, true, H1_CONN_NONE),
		   "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
	fixture_end(&f);
}

static void test_chunks(void **state)
{
	static const struct {
		uint64_t size;
		bool is_first;
		const char *out;
	} sizes[] = {
		{ 0, true, "0\r\n" },
		{ 1, false, "\r\n1\r\n" },
		{ 15, true, "f\r\n" },
		{ 16, true, "10\r\n" },
		{ 500, true, "1f4\r\n" },
		{ UINT64_MAX, false, "\r\nffffffffffffffff\r\n" },
		{ UINT64_C(1) << 60, true, "1000000000000000\r\n" },
	};
	struct http_field trailers[] = {
		{ .name = STR("X"), .value = STR("1") },
		{ .name = STR("Y"), .value = STR("2"), .is_removed = true }
	};
	struct http_msg m = { .trailers = trailers, .n_trailers = 2 };
	struct buf out;

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		char text[20];

		assert_str(
			str_make(text, h1_write_chunk_size(text, sizes[i].size, sizes[i].is_first)),
			sizes[i].out);
	}
	buf_init(&out, out_mem, sizeof(out_mem));
	assert_int_equal(h1_write_last_chunk(&out, &m, true), 0);
	assert_str(buf_str(&out), "0\r\n\r\n");
	buf_clear(&out);
	m.flags = HTTP_MSG_HAS_TRAILERS;
	assert_int_equal(h1_write_last_chunk(&out, &m, false), 0);
	assert_str(buf_str(&out), "\r\n0\r\nX: 1\r\n\r\n");
	buf_init(&out, out_mem, 12);
	assert_int_equal(h1_write_last_chunk(&out, &m, false), -ENOBUFS);
	assert_int_equal(buf_len(&out), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),		cmocka_unit_test(test_edits),
		cmocka_unit_test(test_edited_response), cmocka_unit_test(test_room),
		cmocka_unit_test(test_made_message),	cmocka_unit_test(test_chunks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
