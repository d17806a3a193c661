/* SPDX-License-Identifier: BSD-2-Clause */
/* links: http base */
/* HTTP/1 heads: bytes to fields, framing, flags or the error; by every scanner, whole and cut short. */
#include "h1_test.h"

#define HOST "Host: a\r\n"

struct good_case {
	const char *in;
	uint8_t framing;
	uint16_t flags;
	uint64_t length;
	const char *path, *host;
};

static const struct good_case good_requests[] = {
	{ "GET / HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_BODY_NONE, HTTP_MSG_KEEP_ALIVE, 0, "/", "a" },
	{ "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_BODY_NONE, HTTP_MSG_KEEP_ALIVE, 0, "/",
	  "a" },
	{ "GET /x?y=z HTTP/1.1\r\nHOST:a.b:80\r\n\r\n", HTTP_BODY_NONE, HTTP_MSG_KEEP_ALIVE, 0,
	  "/x?y=z", "a.b:80" },
	{ "GET / HTTP/1.7\r\nHost:\t [::1]:8080 \t\r\nA:\r\n\r\n", HTTP_BODY_NONE,
	  HTTP_MSG_KEEP_ALIVE, 0, "/", "[::1]:8080" },
	{ "GET / HTTP/1.1\r\nHost:\r\n\r\n", HTTP_BODY_NONE, HTTP_MSG_KEEP_ALIVE, 0, "/", "" },
	{ "GET / HTTP/1.0\r\n\r\n", HTTP_BODY_NONE, 0, 0, "/", NULL },
	{ "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", HTTP_BODY_NONE, HTTP_MSG_KEEP_ALIVE,
	  0, "/", NULL },
	{ "GET / HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n", HTTP_BODY_NONE, 0, 0, "/", "a" },
	{ "GET / HTTP/1.1\r\n" HOST "Connection: keep-alive\r\nConnection: x ,, CLOSE\r\n\r\n",
	  HTTP_BODY_NONE, 0, 0, "/", "a" },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551615\r\n\r\n",
	  HTTP_BODY_LENGTH, HTTP_MSG_KEEP_ALIVE, UINT64_MAX, "/", "a" },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", HTTP_BODY_LENGTH,
	  HTTP_MSG_KEEP_ALIVE, 0, "/", "a" },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n", HTTP_BODY_CHUNKED,
	  HTTP_MSG_KEEP_ALIVE, 0, "/", "a" },
	{ "PUT / HTTP/1.1\r\n" HOST "Expect: 100-Continue\r\nContent-Length: 3\r\n\r\n",
	  HTTP_BODY_LENGTH, HTTP_MSG_KEEP_ALIVE | HTTP_MSG_EXPECT_100, 3, "/", "a" },
	{ "PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", HTTP_BODY_LENGTH,
	  0, 3, "/", NULL },
	{ "GET /ws HTTP/1.1\r\n" HOST
	  "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n",
	  HTTP_BODY_NONE, HTTP_MSG_KEEP_ALIVE | HTTP_MSG_UPGRADE, 0, "/ws", "a" },
	{ "GET / HTTP/1.1\r\n" HOST "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
	  HTTP_BODY_NONE, HTTP_MSG_KEEP_ALIVE, 0, "/", "a" },
	{ "GET / HTTP/1.1\r\n" HOST "Upgrade: websocket\r\n\r\n", HTTP_BODY_NONE,
	  HTTP_MSG_KEEP_ALIVE, 0, "/", "a" },
	{ "POST / HTTP/1.1\r\n" HOST
	  "Connection: upgrade\r\nUpgrade: x\r\nContent-Length: 4\r\n\r\n",
	  HTTP_BODY_LENGTH, HTTP_MSG_KEEP_ALIVE, 4, "/", "a" },
	{ "GET http://a/b?c HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_BODY_NONE, HTTP_MSG_KEEP_ALIVE, 0,
	  "/b?c", "a" },
	{ "GET HTTP://A:80 HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_BODY_NONE, HTTP_MSG_KEEP_ALIVE, 0,
	  "/", "A:80" },
	{ "GET https://a?q HTTP/1.1\r\nHost: a:443\r\n\r\n", HTTP_BODY_NONE, HTTP_MSG_KEEP_ALIVE, 0,
	  "/?q", "a" },
	{ "OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_BODY_NONE, HTTP_MSG_KEEP_ALIVE, 0,
	  "*", "a" },
	{ "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_BODY_NONE, HTTP_MSG_KEEP_ALIVE, 0, "*",
	  "a" },
	{ "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_BODY_NONE, HTTP_MSG_KEEP_ALIVE, 0, "",
	  "a:443" },
	{ "M-SEARCH /\"<>\\^`{|} HTTP/1.1\r\nHost: a\r\nX: \t\x80\xff!\r\n\r\n", HTTP_BODY_NONE,
	  HTTP_MSG_KEEP_ALIVE, 0, "/\"<>\\^`{|}", "a" },
};

static void check_good(const struct good_case *c, const struct http_msg *m)
{
	assert_int_equal(m->framing, c->framing);
	assert_int_equal(m->flags, c->flags);
	assert_true(m->content_length == c->length);
	assert_str(m->path, c->path);
	if (c->host)
		assert_str(http_msg_host(m), c->host);
	else
		assert_null(http_msg_host(m).p);
}

static void test_good_requests(void **state)
{
	for (unsigned i = 0; i < ARRAY_SIZE(good_requests); i++) {
		const struct good_case *c = &good_requests[i];
		size_t len = strlen(c->in);
		enum http_error error;
		struct fixture f;
		char *copy;

		fixture_begin(&f, 8);
		/* With bytes of the next message behind it: they are not looked at. */
		copy = exact_copy(c->in, len + 1);
		if (read_request(&f.msg, str_make(copy, len + 1), 0, &error) != (int)len)
			fail_msg("refused: %s: %s", c->in, http_error_text(error));
		check_good(c, &f.msg);
		free(copy);
		for (size_t n = 0; n < len; n++) {
			copy = exact_copy(c->in, n);
			if (read_request(&f.msg, str_make(copy, n), 0, &error))
				fail_msg("%zu bytes of %s: %s", n, c->in, http_error_text(error));
			free(copy);
		}
		fixture_end(&f);
	}
}

struct bad_case {
	const char *in;
	enum http_error error;
	bool is_allowed; /* with H1_ALLOW_VIOLATIONS */
};

static const struct bad_case bad_requests[] = {
	{ "\n", HTTP_ERR_BARE_LF, false },
	{ "\rG", HTTP_ERR_BARE_CR, false },
	{ "\r\n\r\n\r\nGET / HTTP/1.1\r\n", HTTP_ERR_BAD_START_LINE, false },
	{ " GET / HTTP/1.1\r\n", HTTP_ERR_BAD_METHOD, false },
	{ "G(T / HTTP/1.1\r\n", HTTP_ERR_BAD_METHOD, false },
	{ "GET /\r\n", HTTP_ERR_BAD_START_LINE, false },
	{ "GET / HTTP/1.1 \r\n", HTTP_ERR_BAD_START_LINE, false },
	{ "GET / HTTP/1.1\n", HTTP_ERR_BARE_LF, false },
	{ "GET / HTTP/1.1\rx", HTTP_ERR_BARE_CR, false },
	{ "GET / http/1.1\r\n", HTTP_ERR_BAD_START_LINE, false },
	{ "GET / HTTP/11\r\n", HTTP_ERR_BAD_START_LINE, false },
	{ "GET / HTTP/1.x", HTTP_ERR_BAD_START_LINE, false },
	{ "GET / HTTP/2.0\r\n", HTTP_ERR_BAD_VERSION, false },
	{ "GET / HTTP/0.9\r\n", HTTP_ERR_BAD_VERSION, false },
	{ "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HTTP_ERR_BAD_VERSION, false },
	{ "GET  / HTTP/1.1\r\n", HTTP_ERR_BAD_TARGET, false },
	{ "GET /a\tb HTTP/1.1\r\n", HTTP_ERR_BAD_TARGET, false },
	{ "GET /a\x7f HTTP/1.1\r\n", HTTP_ERR_BAD_TARGET, false },
	{ "GET /\x80 HTTP/1.1\r\n" HOST "\r\n", HTTP_ERR_BAD_TARGET, true },
	{ "GET /a#b HTTP/1.1\r\n" HOST "\r\n", HTTP_ERR_BAD_TARGET, true },
	{ "GET a HTTP/1.1\r\n", HTTP_ERR_BAD_TARGET, false },
	{ "GET * HTTP/1.1\r\n", HTTP_ERR_BAD_TARGET, false },
	{ "GET http:///a HTTP/1.1\r\n", HTTP_ERR_BAD_TARGET, false },
	{ "GET http://u@a/ HTTP/1.1\r\n", HTTP_ERR_BAD_TARGET, false },
	{ "GET http://a:99999/ HTTP/1.1\r\n", HTTP_ERR_BAD_TARGET, false },
	{ "CONNECT a HTTP/1.1\r\n", HTTP_ERR_BAD_TARGET, false },
	{ "CONNECT /a:1 HTTP/1.1\r\n", HTTP_ERR_BAD_TARGET, false },
	{ "GET / HTTP/1.1\r\nHost : a\r\n\r\n", HTTP_ERR_BAD_FIELD_NAME, false },
	{ "GET / HTTP/1.1\r\nHost\r\n\r\n", HTTP_ERR_BAD_FIELD_NAME, false },
	{ "GET / HTTP/1.1\r\n: a\r\n\r\n", HTTP_ERR_BAD_FIELD_NAME, false },
	{ "GET / HTTP/1.1\r\nA(: a\r\n" HOST "\r\n", HTTP_ERR_BAD_FIELD_NAME, true },
	{ "GET / HTTP/1.1\r\nA\x80: a\r\n" HOST "\r\n", HTTP_ERR_BAD_FIELD_NAME, true },
	{ "GET / HTTP/1.1\r\nA: a\x01\r\n\r\n", HTTP_ERR_BAD_FIELD_VALUE, false },
	{ "GET / HTTP/1.1\r\nA: a\x7f\r\n\r\n", HTTP_ERR_BAD_FIELD_VALUE, false },
	{ "GET / HTTP/1.1\r\nA: a\n\r\n", HTTP_ERR_BARE_LF, false },
	{ "GET / HTTP/1.1\r\nA: a\rb\r\n\r\n", HTTP_ERR_BARE_CR, false },
	{ "GET / HTTP/1.1\r\nA: a\r\n\rb", HTTP_ERR_BARE_CR, false },
	{ "GET / HTTP/1.1\r\nA: a\r\n\n", HTTP_ERR_BARE_LF, false },
	{ "GET / HTTP/1.1\r\nA: a\r\n b\r\n\r\n", HTTP_ERR_OBS_FOLD, false },
	{ "GET / HTTP/1.1\r\n\tA: a\r\n\r\n", HTTP_ERR_OBS_FOLD, false },
	{ "GET / HTTP/1.1\r\n\r\n", HTTP_ERR_NO_HOST, false },
	{ "GET http://a/ HTTP/1.1\r\n\r\n", HTTP_ERR_NO_HOST, false },
	{ "GET / HTTP/1.1\r\n" HOST HOST "\r\n", HTTP_ERR_BAD_HOST, false },
	{ "GET / HTTP/1.0\r\n" HOST HOST "\r\n", HTTP_ERR_BAD_HOST, false },
	{ "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", HTTP_ERR_BAD_HOST, false },
	{ "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", HTTP_ERR_BAD_HOST, false },
	{ "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", HTTP_ERR_BAD_HOST, false },
	{ "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", HTTP_ERR_BAD_HOST, false },
	{ "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", HTTP_ERR_BAD_HOST, false },
	{ "GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", HTTP_ERR_BAD_HOST, false },
	{ "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", HTTP_ERR_BAD_HOST, false },
	{ "GET / HTTP/1.1\r\nHost: []\r\n\r\n", HTTP_ERR_BAD_HOST, false },
	{ "GET / HTTP/1.1\r\nHost: a%4\r\n\r\n", HTTP_ERR_BAD_HOST, false },
	{ "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", HTTP_ERR_BAD_HOST, true },
	{ "GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_ERR_BAD_HOST, true },
	{ "GET https://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_ERR_BAD_HOST, true },
	{ "CONNECT a:8443 HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_ERR_BAD_HOST, true },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: \r\n\r\n", HTTP_ERR_BAD_LENGTH, false },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\n", HTTP_ERR_BAD_LENGTH, false },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n", HTTP_ERR_BAD_LENGTH, false },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 0x5\r\n\r\n", HTTP_ERR_BAD_LENGTH, false },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 5 5\r\n\r\n", HTTP_ERR_BAD_LENGTH, false },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\t\r\n\r\n", HTTP_ERR_BAD_LENGTH, true },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551616\r\n\r\n",
	  HTTP_ERR_BAD_LENGTH, false },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n\r\n", HTTP_ERR_BAD_LENGTH, true },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
	  HTTP_ERR_LENGTH_CONFLICT, true },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
	  HTTP_ERR_LENGTH_CONFLICT, false },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
	  HTTP_ERR_LENGTH_CONFLICT, false },
	{ "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 5\r\n\r\n", HTTP_ERR_BAD_LENGTH,
	  false },
	{ "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nTransfer-Encoding: chunked\r\n\r\n",
	  HTTP_ERR_BAD_LENGTH, false },
	{ "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP_ERR_TRANSFER_ENCODING_1_0,
	  false },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n",
	  HTTP_ERR_BAD_TRANSFER_ENCODING, false },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, chunked\r\n\r\n",
	  HTTP_ERR_BAD_TRANSFER_ENCODING, false },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n",
	  HTTP_ERR_BAD_TRANSFER_ENCODING, false },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: \"chunked\"\r\n\r\n",
	  HTTP_ERR_BAD_TRANSFER_ENCODING, false },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding:\r\n\r\n", HTTP_ERR_BAD_TRANSFER_ENCODING,
	  false },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked \r\n\r\n",
	  HTTP_ERR_BAD_TRANSFER_ENCODING, false },
	{ "POST / HTTP/1.1\r\n" HOST
	  "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
	  HTTP_ERR_BAD_TRANSFER_ENCODING, false },
	{ "PUT / HTTP/1.1\r\n" HOST "Expect: a-miracle\r\n\r\n", HTTP_ERR_BAD_EXPECT, false },
	{ "GET / HTTP/1.1\r\n" HOST "1:\r\n2:\r\n3:\r\n4:\r\n5:\r\n6:\r\n7:\r\n8:\r\n\r\n",
	  HTTP_ERR_TOO_MANY_FIELDS, false },
};

static void test_bad_requests(void **state)
{
	for (unsigned i = 0; i < ARRAY_SIZE(bad_requests); i++) {
		const struct bad_case *c = &bad_requests[i];
		size_t len = strlen(c->in);
		char *copy = exact_copy(c->in, len);
		struct str in = str_make(copy, len);
		enum http_error error;
		struct fixture f;
		int n;

		fixture_begin(&f, 8);
		n = read_request(&f.msg, in, 0, &error);
		if (n >= 0 || error != c->error)
			fail_msg("%s: %d, %s", c->in, n, http_error_text(error));
		n = read_request(&f.msg, in, H1_ALLOW_VIOLATIONS, &error);
		if ((n > 0) != c->is_allowed)
			fail_msg("allowing violations: %s: %d, %s", c->in, n,
				 http_error_text(error));
		fixture_end(&f);
		free(copy);
	}
}

/* Every control byte at every place of a head: never accepted but for HT in a value. */
static void test_control_bytes(void **state)
{
	static const char head[] = "GET /index.html HTTP/1.1\r\nHost: example.com\r\n"
				   "X-Long: 0123456789abcdefghijklmnopqrstuvwxyz0123456789\r\n\r\n";
	const size_t len = sizeof(head) - 1;
	enum http_error error;
	struct fixture f;
	char copy[sizeof(head)];

	fixture_begin(&f, 8);
	for (size_t at = 0; at < len; at++) {
		for (unsigned c = 0; c < 0x21; c++) {
			int n;

			memcpy(copy, head, len);
			copy[at] = (char)(c == 0x20 ? 0x7f : c);
			if (copy[at] == head[at] || copy[at] == '\t')
				continue;
			n = read_request(&f.msg, str_make(copy, len), 0, &error);
			if (n > 0)
				fail_msg("byte %u at %zu accepted", c, at);
		}
	}
	fixture_end(&f);
}

/* Every byte in a name and in a value, at places in all parts of a scanner's step. */
static void test_every_byte(void **state)
{
	static const char name[] =
		"GET / HTTP/1.1\r\nHost: h\r\nX-0123456789abcdefghijklmnopqrstuvwxyzX: y\r\n\r\n";
	static const char value[] =
		"GET / HTTP/1.1\r\nHost: h\r\nX: 0123456789abcdefghijklmnopqrstuvwxyz!\r\n\r\n";
	enum http_error error;
	struct fixture f;
	char copy[128];

	fixture_begin(&f, 8);
	for (unsigned c = 0; c < 256; c++) {
		for (unsigned at = 30; at < 60; at++) {
			int n;

			memcpy(copy, name, sizeof(name));
			copy[at] = (char)c;
			n = read_request(&f.msg, str_make(copy, sizeof(name) - 1), 0, &error);
			if (c != ':' && (n > 0) != http_is((char)c, HTTP_CHAR_TOKEN))
				fail_msg("byte %#x at %u of a name: %d", c, at, n);
			memcpy(copy, value, sizeof(value));
			copy[at] = (char)c;
			n = read_request(&f.msg, str_make(copy, sizeof(value) - 1), 0, &error);
			if ((n > 0) != ((c >= ' ' && c != 0x7f) || c == '\t'))
				fail_msg("byte %#x at %u of a value: %d", c, at, n);
		}
	}
	fixture_end(&f);
}

/* Names and values of all lengths: every line end falls on every place of a scanner's step. */
static void test_every_length(void **state)
{
	static const char fill[] =
		"abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789"
		"abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789";
	enum http_error error;
	struct fixture f;
	char text[512];

	fixture_begin(&f, 8);
	for (int name = 1; name < 80; name++) {
		for (int value = 0; value < 140; value++) {
			int len = sprintf(
				text, "GET / HTTP/1.1\r\nHost: h\r\n%.*s: %.*s\r\nB: %.*s\r\n\r\n",
				name, fill, value, fill, name, fill);
			char *copy = exact_copy(text, (size_t)len);

			assert_int_equal(
				read_request(&f.msg, str_make(copy, (size_t)len), 0, &error), len);
			assert_int_equal(f.msg.n_fields, 3);
			assert_int_equal(f.msg.fields[1].name.len, name);
			assert_int_equal(f.msg.fields[1].value.len, value);
			assert_true(value == 0 || f.msg.fields[1].value.p[0] == 'a');
			assert_str(f.msg.fields[2].name, "B");
			assert_int_equal(f.msg.fields[2].value.len, name);
			free(copy);
		}
	}
	fixture_end(&f);
}

struct response_case {
	const char *in;
	enum http_method method;
	enum http_error error; /* or */
	uint8_t framing;
	uint16_t flags;
	uint64_t length;
};

#define KEEP HTTP_MSG_KEEP_ALIVE
static const struct response_case responses[] = {
	{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", HTTP_METHOD_GET, 0, HTTP_BODY_LENGTH,
	  KEEP, 5 },
	{ "HTTP/1.1 200 OK\r\n\r\n", HTTP_METHOD_GET, 0, HTTP_BODY_CLOSE, 0, 0 },
	{ "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP_METHOD_GET, 0,
	  HTTP_BODY_CHUNKED, KEEP, 0 },
	{ "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\nContent-Length: 7\r\n\r\n",
	  HTTP_METHOD_GET, 0, HTTP_BODY_CHUNKED, 0, 0 },
	{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", HTTP_METHOD_HEAD, 0, HTTP_BODY_NONE,
	  KEEP | HTTP_MSG_LENGTH_ONLY, 5 },
	{ "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", HTTP_METHOD_GET, 0,
	  HTTP_BODY_NONE, KEEP | HTTP_MSG_LENGTH_ONLY, 5 },
	{ "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", HTTP_METHOD_GET, 0,
	  HTTP_BODY_NONE, KEEP, 0 },
	{ "HTTP/1.1 100 Continue\r\n\r\n", HTTP_METHOD_POST, 0, HTTP_BODY_NONE, KEEP, 0 },
	{ "HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", HTTP_METHOD_GET, 0,
	  HTTP_BODY_TUNNEL, HTTP_MSG_UPGRADE, 0 },
	{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", HTTP_METHOD_CONNECT, 0, HTTP_BODY_TUNNEL,
	  0, 0 },
	{ "HTTP/1.1 403 No\r\nContent-Length: 5\r\n\r\n", HTTP_METHOD_CONNECT, 0, HTTP_BODY_LENGTH,
	  KEEP, 5 },
	{ "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", HTTP_METHOD_GET, 0, HTTP_BODY_LENGTH, 0,
	  5 },
	{ "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", HTTP_METHOD_GET, 0, HTTP_BODY_CLOSE,
	  0, 0 },
	{ "HTTP/1.1 200 \xc3\xa9\t!\r\nContent-Length: 5\r\n\r\n", HTTP_METHOD_GET, 0,
	  HTTP_BODY_LENGTH, KEEP, 5 },
	{ "\r\nHTTP/1.1 200 OK\r\n\r\n", HTTP_METHOD_GET, HTTP_ERR_BAD_START_LINE, 0, 0, 0 },
	{ "HTTP/1.1 20 OK\r\n\r\n", HTTP_METHOD_GET, HTTP_ERR_BAD_START_LINE, 0, 0, 0 },
	{ "HTTP/1.1 2000\r\n\r\n", HTTP_METHOD_GET, HTTP_ERR_BAD_START_LINE, 0, 0, 0 },
	{ "HTTP/1.1 099 OK\r\n\r\n", HTTP_METHOD_GET, HTTP_ERR_BAD_START_LINE, 0, 0, 0 },
	{ "HTTP/1.1  200 OK\r\n\r\n", HTTP_METHOD_GET, HTTP_ERR_BAD_START_LINE, 0, 0, 0 },
	{ "HTTP/1.1 200 O\x01K\r\n\r\n", HTTP_METHOD_GET, HTTP_ERR_BAD_START_LINE, 0, 0, 0 },
	{ "HTTP/1.1 200 OK\n\r\n", HTTP_METHOD_GET, HTTP_ERR_BARE_LF, 0, 0, 0 },
	{ "HTTP/2.0 200 OK\r\n\r\n", HTTP_METHOD_GET, HTTP_ERR_BAD_VERSION, 0, 0, 0 },
	{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", HTTP_METHOD_GET,
	  HTTP_ERR_LENGTH_CONFLICT, 0, 0, 0 },
	{ "HTTP/1.1 200 OK\r\nContent-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n",
	  HTTP_METHOD_GET, HTTP_ERR_BAD_LENGTH, 0, 0, 0 },
	{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n", HTTP_METHOD_GET,
	  HTTP_ERR_BAD_TRANSFER_ENCODING, 0, 0, 0 },
	{ "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP_METHOD_GET,
	  HTTP_ERR_TRANSFER_ENCODING_1_0, 0, 0, 0 },
	{ "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", HTTP_METHOD_GET, HTTP_ERR_OBS_FOLD, 0, 0, 0 },
};

static void check_response(const struct response_case *c, struct fixture *f)
{
	size_t len = strlen(c->in);
	struct h1_head h = { 0 };
	int n = h1_read_response(&h, str_make(c->in, len), &f->msg, c->method);

	if (h.error != c->error || (n < 0) != (c->error != HTTP_ERR_NONE))
		fail_msg("%s: %d, %s", c->in, n, http_error_text((enum http_error)h.error));
	if (n < 0)
		return;
	assert_int_equal(n, len);
	if (f->msg.framing != c->framing || f->msg.flags != (c->flags | HTTP_MSG_RESPONSE) ||
	    f->msg.content_length != c->length)
		fail_msg("%s: framing %u flags %x", c->in, f->msg.framing, f->msg.flags);
	for (size_t cut = 0; cut < len; cut++) {
		char *copy = exact_copy(c->in, cut);

		h = (struct h1_head){ 0 };
		n = h1_read_response(&h, str_make(copy, cut), &f->msg, c->method);
		if (n)
			fail_msg("%zu bytes of %s: %d", cut, c->in, n);
		free(copy);
	}
}

static void test_responses(void **state)
{
	for (unsigned i = 0; i < ARRAY_SIZE(responses); i++) {
		struct fixture f;

		fixture_begin(&f, 8);
		check_response(&responses[i], &f);
		fixture_end(&f);
	}
}

static void test_fields(void **state)
{
	static const char head[] =
		"POST /p?q HTTP/1.1\r\nhost: h\r\nX-A:  one \t\r\nx-a:two\r\nCOOKIE: c=1\r\n\r\n";
	enum http_error error;
	struct http_field *a;
	struct fixture f;

	fixture_begin(&f, 8);
	assert_int_equal(read_request(&f.msg, STR(head), 0, &error), sizeof(head) - 1);
	assert_int_equal(f.msg.method, HTTP_METHOD_POST);
	assert_str(f.msg.method_text, "POST");
	assert_str(f.msg.target, "/p?q");
	assert_str(f.msg.start_line, "POST /p?q HTTP/1.1");
	assert_int_equal(f.msg.n_fields, 4);
	a = http_msg_find_name(&f.msg, STR("X-a"), 0);
	assert_non_null(a);
	assert_str(a->value, "one");
	a = http_msg_find_name(&f.msg, STR("X-a"), (unsigned)(a - f.msg.fields) + 1);
	assert_non_null(a);
	assert_str(a->value, "two");
	assert_null(http_msg_find_name(&f.msg, STR("X-a"), (unsigned)(a - f.msg.fields) + 1));
	assert_str(http_msg_find(&f.msg, HTTP_FIELD_COOKIE, 0)->value, "c=1");
	assert_false(http_msg_has(&f.msg, HTTP_FIELD_REFERER));
	fixture_end(&f);
}

/* A head byte by byte: the same message in the end; an early error is found before the head is complete. */
static void test_trickle(void **state)
{
	static const char head[] = "GET /a HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n";
	struct h1_head h = { 0 };
	struct fixture f;
	char bad[4096];
	size_t n;
	int r = 0;

	fixture_begin(&f, 8);
	for (n = 1; n < sizeof(head) - 1; n++)
		assert_int_equal(h1_read_request(&h, str_make(head, n), &f.msg), 0);
	assert_int_equal(h1_read_request(&h, str_make(head, n), &f.msg), n);
	assert_int_equal(f.msg.n_fields, 2);

	memset(bad, 'x', sizeof(bad));
	memcpy(bad, "GET / HTTP/1.1\r\nA b", 19);
	h = (struct h1_head){ 0 };
	for (n = 1; n < sizeof(bad) && r == 0; n++)
		r = h1_read_request(&h, str_make(bad, n), &f.msg);
	assert_true(r < 0 && n < 64);
	assert_int_equal(h.error, HTTP_ERR_BAD_FIELD_NAME);
	assert_int_equal(h.error_at, 17);
	fixture_end(&f);
}

static void test_max_bytes(void **state)
{
	struct h1_head h = { .max_bytes = 27 };
	struct str in = STR("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
	struct fixture f;

	fixture_begin(&f, 8);
	assert_int_equal(h1_read_request(&h, in, &f.msg), in.len);
	h = (struct h1_head){ .max_bytes = 26 };
	assert_true(h1_read_request(&h, in, &f.msg) < 0);
	assert_int_equal(h.error, HTTP_ERR_TOO_LARGE);
	h = (struct h1_head){ .max_bytes = 20 };
	assert_int_equal(h1_read_request(&h, str_sub(in, 0, 19), &f.msg), 0);
	assert_true(h1_read_request(&h, str_sub(in, 0, 20), &f.msg) < 0);
	assert_int_equal(h.error, HTTP_ERR_TOO_LARGE);
	fixture_end(&f);
}

/* "http://host?query" needs a byte that is not there: the only allocation of the reader. */
static void test_no_memory(void **state)
{
	struct str in = STR("GET http://h?q HTTP/1.1\r\nHost: h\r\n\r\n");
	enum http_error error;
	struct arena arena;
	struct http_msg m;

	arena_init(&arena, 256);
	mem_fail_at(1);
	assert_true(http_msg_init(&m, &arena, 101) < 0);
	mem_fail_at(0);
	assert_int_equal(http_msg_init(&m, &arena, 101), 0);
	while (arena.end - arena.pos >= 16)
		assert_non_null(arena_alloc(&arena, 16));
	mem_fail_at(1);
	assert_true(read_request(&m, in, 0, &error) < 0);
	mem_fail_at(0);
	assert_int_equal(error, HTTP_ERR_NO_MEMORY);
	m.arena = NULL;
	assert_true(read_request(&m, in, 0, &error) < 0);
	assert_int_equal(error, HTTP_ERR_BAD_TARGET);
	arena_free(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_requests), cmocka_unit_test(test_bad_requests),
		cmocka_unit_test(test_control_bytes), cmocka_unit_test(test_every_byte),
		cmocka_unit_test(test_every_length),  cmocka_unit_test(test_responses),
		cmocka_unit_test(test_fields),	      cmocka_unit_test(test_trickle),
		cmocka_unit_test(test_max_bytes),     cmocka_unit_test(test_no_memory),
	};
	int failed = 0;

	for (const struct h1_scanner **s = h1_scanners; *s; s++) {
		const struct h1_scanner *best = h1_scanners[0];

		h1_scanners[0] = *s;
		printf("scanner %s\n", (*s)->name);
		failed += cmocka_run_group_tests(tests, NULL, NULL);
		if (s != h1_scanners)
			h1_scanners[0] = best;
	}
	return failed;
}
