/* SPDX-License-Identifier: BSD-2-Clause */
/* links: http base */
/* HTTP/1 bodies: data, end, refusals and trailers, the input cut at every place. */
#include "h1_test.h"

struct result {
	enum h1_body_event last;
	enum http_error error;
	size_t used, n_data;
	char data[8192];
};

/* Gives the first `cut` bytes, then the rest; what was not used comes again. */
static void read_body(struct result *r, struct h1_body *b, struct http_msg *m, struct str in,
		      size_t cut)
{
	size_t given = cut;

	memset(r, 0, sizeof(*r));
	h1_body_init(b, m);
	for (;;) {
		char *copy = exact_copy(in.p + r->used, given - r->used);
		struct str data;
		size_t used;

		r->last = h1_body_next(b, m, str_make(copy, given - r->used), &used, &data);
		assert_true(used <= given - r->used);
		assert_true(r->n_data + data.len < sizeof(r->data));
		if (data.len)
			memcpy(r->data + r->n_data, data.p, data.len);
		r->n_data += data.len;
		r->used += used;
		free(copy);
		if (r->last == H1_BODY_DATA) {
			assert_true(data.len > 0);
			continue;
		}
		if (r->last != H1_BODY_MORE || given == in.len)
			break;
		given = in.len;
	}
	r->error = (enum http_error)b->error;
}

struct body_case {
	uint8_t framing;
	uint64_t length;
	const char *in, *data, *rest; /* rest NULL: not complete */
	enum http_error error;
	const char *trailers; /* "name=value;" of each */
};

#define CHUNKED HTTP_BODY_CHUNKED, 0
static const struct body_case cases[] = {
	{ HTTP_BODY_NONE, 0, "next", "", "next", 0, "" },
	{ HTTP_BODY_LENGTH, 0, "next", "", "next", 0, "" },
	{ HTTP_BODY_LENGTH, 5, "hellonext", "hello", "next", 0, "" },
	{ HTTP_BODY_LENGTH, 5, "hell", "hell", NULL, 0, "" },
	{ HTTP_BODY_CLOSE, 0, "everything", "everything", NULL, 0, "" },
	{ HTTP_BODY_TUNNEL, 0, "everything", "everything", NULL, 0, "" },
	{ CHUNKED, "0\r\n\r\nnext", "", "next", 0, "" },
	{ CHUNKED, "5\r\nhello\r\n0\r\n\r\nnext", "hello", "next", 0, "" },
	{ CHUNKED, "1\r\na\r\nA\r\n0123456789\r\n1\r\nb\r\n000\r\n\r\n", "a0123456789b", "", 0,
	  "" },
	{ CHUNKED, "0000000000000001\r\na\r\n0\r\n\r\n", "a", "", 0, "" },
	{ CHUNKED, "1;a\r\na\r\n1;a=b;c=\"d;\\\"\xff\t\";e\r\nb\r\n0;x\r\n\r\n", "ab", "", 0, "" },
	{ CHUNKED, "1\r\na\r\n0\r\nX-Sum: 1 \t\r\nx-y:\r\n\r\nnext", "a", "next", 0,
	  "X-Sum=1;x-y=;" },
	{ CHUNKED, "5\r\nhel", "hel", NULL, 0, "" },
	{ CHUNKED, "1\r\na\r\n0\r\nX-Sum: ", "a", NULL, 0, "" },
	{ CHUNKED, "\r\n", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "g\r\n", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "-1\r\n", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "0x1\r\n", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, " 1\r\na\r\n", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "1 \r\na\r\n", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "1\na\r\n", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "1\rxa", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "1\r\nab\r\n", "a", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "1\r\na\n0\r\n\r\n", "a", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "1\r\na\r0\r\n\r\n", "a", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "10000000000000000\r\n", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "00000000000000001\r\n", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "1;\r\na", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "1;a \r\na", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "1;a=\r\na", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "1;a=\"b\"c\r\na", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "1;a=\"\r\n\"\r\na", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "1;a\n\r\na", "", NULL, HTTP_ERR_BAD_CHUNK, "" },
	{ CHUNKED, "0\r\n\n", "", NULL, HTTP_ERR_BAD_TRAILER, "" },
	{ CHUNKED, "0\r\nA: b\n\r\n", "", NULL, HTTP_ERR_BAD_TRAILER, "" },
	{ CHUNKED, "0\r\nA\r\n\r\n", "", NULL, HTTP_ERR_BAD_TRAILER, "" },
	{ CHUNKED, "0\r\nA : b\r\n\r\n", "", NULL, HTTP_ERR_BAD_TRAILER, "" },
	{ CHUNKED, "0\r\nA: b\rc\r\n\r\n", "", NULL, HTTP_ERR_BAD_TRAILER, "" },
	{ CHUNKED, "0\r\nContent-Length: 1\r\n\r\n", "", NULL, HTTP_ERR_BAD_TRAILER, "" },
	{ CHUNKED, "0\r\ntransfer-encoding: chunked\r\n\r\n", "", NULL, HTTP_ERR_BAD_TRAILER, "" },
	{ CHUNKED, "0\r\nHOST: a\r\n\r\n", "", NULL, HTTP_ERR_BAD_TRAILER, "" },
	{ CHUNKED, "0\r\nAuthorization: a\r\n\r\n", "", NULL, HTTP_ERR_BAD_TRAILER, "" },
	{ CHUNKED, "0\r\nSet-Cookie: a\r\n\r\n", "", NULL, HTTP_ERR_BAD_TRAILER, "" },
	{ CHUNKED, "0\r\nX-Forwarded-For: a\r\n\r\n", "", NULL, HTTP_ERR_BAD_TRAILER, "" },
	{ CHUNKED, "0\r\nRange: a\r\n\r\n", "", NULL, HTTP_ERR_BAD_TRAILER, "" },
};

static void check_trailers(const struct http_msg *m, const char *expected)
{
	char text[512];
	size_t n = 0;

	for (unsigned i = 0; i < m->n_trailers; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, STR_FMT "=" STR_FMT ";",
				      STR_ARG(m->trailers[i].name), STR_ARG(m->trailers[i].value));
	assert_str(str_make(text, n), expected);
	assert_int_equal(!!(m->flags & HTTP_MSG_HAS_TRAILERS), n > 0);
}

static void check_case(const struct body_case *c, struct http_msg *m, size_t cut)
{
	static struct result r;
	size_t len = strlen(c->in);
	struct h1_body b;
	bool is_open = c->framing == HTTP_BODY_CLOSE || c->framing == HTTP_BODY_TUNNEL;

	http_msg_reset(m);
	m->framing = c->framing;
	m->content_length = c->length;
	read_body(&r, &b, m, str_make(c->in, len), cut);
	if (r.error != c->error)
		fail_msg("%s cut at %zu: %s", c->in, cut, http_error_text(r.error));
	assert_str(str_make(r.data, r.n_data), c->data);
	if (c->error) {
		assert_int_equal(r.last, H1_BODY_ERROR);
		assert_false(h1_body_eof(&b));
		return;
	}
	assert_int_equal(r.last, c->rest ? H1_BODY_END : H1_BODY_MORE);
	assert_int_equal(h1_body_eof(&b), c->rest || is_open);
	if (c->rest)
		assert_str(str_make(c->in + r.used, len - r.used), c->rest);
	check_trailers(m, c->trailers);
}

static void test_cases(void **state)
{
	struct fixture f;

	fixture_begin(&f, 8);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
		for (size_t cut = 0; cut <= strlen(cases[i].in); cut++)
			check_case(&cases[i], &f.msg, cut);
	fixture_end(&f);
}

/* What is over stays over. */
static void test_after_the_end(void **state)
{
	struct h1_body b;
	struct fixture f;
	struct str data;
	size_t used;

	fixture_begin(&f, 8);
	f.msg.framing = HTTP_BODY_CHUNKED;
	h1_body_init(&b, &f.msg);
	assert_int_equal(h1_body_next(&b, &f.msg, STR("0\r\n\r\n"), &used, &data), H1_BODY_END);
	assert_int_equal(h1_body_next(&b, &f.msg, STR("x"), &used, &data), H1_BODY_END);
	assert_int_equal(used, 0);
	h1_body_init(&b, &f.msg);
	assert_int_equal(h1_body_next(&b, &f.msg, STR("x"), &used, &data), H1_BODY_ERROR);
	assert_int_equal(h1_body_next(&b, &f.msg, STR("0\r\n\r\n"), &used, &data), H1_BODY_ERROR);
	fixture_end(&f);
}

static enum http_error read_all(struct http_msg *m, const char *p, size_t n)
{
	static struct result r;
	struct h1_body b;

	m->framing = HTTP_BODY_CHUNKED;
	m->n_trailers = 0;
	read_body(&r, &b, m, str_make(p, n), n);
	return r.error;
}

static void test_limits(void **state)
{
	static char in[1 << 20];
	struct fixture f;
	size_t n;

	fixture_begin(&f, 8);
	/* One endless extension. */
	n = (size_t)sprintf(in, "1;");
	memset(in + n, 'a', 600);
	assert_int_equal(read_all(&f.msg, in, n + 600), HTTP_ERR_BAD_CHUNK);
	/* Many long ones with one byte of data each, and the same with as much data. */
	n = 0;
	for (unsigned i = 0; i < 64; i++)
		n += (size_t)sprintf(in + n, "1;%0400d\r\nx\r\n", 0);
	assert_int_equal(read_all(&f.msg, in, n), HTTP_ERR_BAD_CHUNK);
	n = 0;
	for (unsigned i = 0; i < 10; i++)
		n += (size_t)sprintf(in + n, "190;%0400d\r\n%0400d\r\n", 0, 0);
	assert_int_equal(read_all(&f.msg, in, n), HTTP_ERR_NONE);
	/* Trailers: too many, too long, endless. */
	n = (size_t)sprintf(in, "0\r\n");
	for (unsigned i = 0; i < H1_TRAILER_FIELDS_MAX; i++)
		n += (size_t)sprintf(in + n, "X-%u: y\r\n", i);
	assert_int_equal(read_all(&f.msg, in, n), HTTP_ERR_NONE);
	assert_int_equal(f.msg.n_trailers, H1_TRAILER_FIELDS_MAX);
	n += (size_t)sprintf(in + n, "X: y\r\n");
	assert_int_equal(read_all(&f.msg, in, n), HTTP_ERR_BAD_TRAILER);
	n = (size_t)sprintf(in, "0\r\n");
	for (unsigned i = 0; i < 10; i++)
		n += (size_t)sprintf(in + n, "X: %01000d\r\n", 0);
	assert_int_equal(read_all(&f.msg, in, n), HTTP_ERR_BAD_TRAILER);
	n = (size_t)sprintf(in, "0\r\nX: %09000d", 0);
	assert_int_equal(read_all(&f.msg, in, n), HTTP_ERR_BAD_TRAILER);
	fixture_end(&f);
}

static void test_no_memory(void **state)
{
	struct str in = STR("0\r\nA: b\r\nC: d\r\n\r\n");
	bool is_done = false;

	for (unsigned n = 1; !is_done && n < 20; n++) {
		struct fixture f;
		enum http_error error;

		fixture_begin(&f, 8);
		/* Small chunks of their own, so that each arena allocation is one of memory. */
		f.arena.chunk_size = 16;
		while (f.arena.end - f.arena.pos >= 16)
			assert_non_null(arena_alloc(&f.arena, 16));
		mem_fail_at(n);
		error = read_all(&f.msg, in.p, in.len);
		is_done = mem_alloc_count() < n;
		mem_fail_at(0);
		assert_int_equal(error, is_done ? HTTP_ERR_NONE : HTTP_ERR_NO_MEMORY);
		assert_true(!is_done || n > 1);
		fixture_end(&f);
	}
	assert_true(is_done);
}

/* Without an arena trailers are checked and dropped. */
static void test_no_arena(void **state)
{
	struct http_msg m = { 0 };

	assert_int_equal(read_all(&m, "0\r\nA: b\r\n\r\n", 11), HTTP_ERR_NONE);
	assert_int_equal(m.n_trailers, 0);
	assert_int_equal(read_all(&m, "0\r\nHost: b\r\n\r\n", 14), HTTP_ERR_BAD_TRAILER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),	 cmocka_unit_test(test_after_the_end),
		cmocka_unit_test(test_limits),	 cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_no_arena),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
