/* SPDX-License-Identifier: BSD-2-Clause */
/* links: http base */
/* Content codings: what clients ask for, which responses may be coded, the bytes, running out of memory. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include <zlib.h>

#include "http/compress.h"

static struct arena arena;

static struct http_msg message(bool is_response)
{
	struct http_msg m;

	assert_int_equal(http_msg_init(&m, &arena, 32), 0);
	m.major = m.minor = 1;
	m.method = HTTP_METHOD_GET;
	if (is_response) {
		m.flags = HTTP_MSG_RESPONSE;
		m.status = 200;
		m.framing = HTTP_BODY_LENGTH;
		m.content_length = 1000;
	}
	return m;
}

static void add(struct http_msg *m, const char *name, const char *value)
{
	assert_int_equal(http_msg_add(m, str_from_cstr(name), str_from_cstr(value)), 0);
}

static void test_choose(void **state)
{
	static const struct {
		const char *accept, *more, *agent;
		enum http_coding want;
	} rows[] = {
		{ NULL, NULL, NULL, HTTP_CODING_NONE },
		{ "", NULL, NULL, HTTP_CODING_NONE },
		{ "gzip", NULL, NULL, HTTP_CODING_GZIP },
		{ "GZip", NULL, NULL, HTTP_CODING_GZIP },
		{ "gzipx", NULL, NULL, HTTP_CODING_NONE },
		{ "deflate", NULL, NULL, HTTP_CODING_DEFLATE },
		{ "gzip, deflate", NULL, NULL, HTTP_CODING_GZIP },
		{ "deflate, gzip", NULL, NULL, HTTP_CODING_DEFLATE },
		{ "br, deflate;q=0.5, gzip;q=0.8", NULL, NULL, HTTP_CODING_GZIP },
		{ "deflate ; x=1 ; q=0.9, gzip;q=0.899", NULL, NULL, HTTP_CODING_DEFLATE },
		{ "gzip;q=0", NULL, NULL, HTTP_CODING_NONE },
		{ "gzip;q=0.000", NULL, NULL, HTTP_CODING_NONE },
		{ "gzip;q=0.001", NULL, NULL, HTTP_CODING_GZIP },
		{ "gzip;q=x", NULL, NULL, HTTP_CODING_GZIP },
		{ "gzip;q=9", NULL, NULL, HTTP_CODING_GZIP },
		{ "*", NULL, NULL, HTTP_CODING_DEFLATE }, /* the last one offered, as HAProxy */
		{ "*;q=0", NULL, NULL, HTTP_CODING_NONE },
		{ "identity", NULL, NULL, HTTP_CODING_NONE },
		{ "deflate;q=0.1", "gzip;q=0.2", NULL, HTTP_CODING_GZIP },
		{ "gzip", NULL, "Mozilla/5.0 (X11)", HTTP_CODING_GZIP },
		{ "gzip", NULL, "Mozilla/4.0", HTTP_CODING_NONE },
		{ "gzip", NULL, "Mozilla/4.0 (compatible; MSIE 5.5; Windows NT 5.0)",
		  HTTP_CODING_NONE },
		{ "gzip", NULL, "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)",
		  HTTP_CODING_NONE },
		{ "gzip", NULL, "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)",
		  HTTP_CODING_GZIP },
		{ "gzip", NULL, "Mozilla/4.0 (compatible; MSIE 7.0; Windows NT 5.1)",
		  HTTP_CODING_GZIP },
	};
	static const uint8_t offered[] = { HTTP_CODING_GZIP, HTTP_CODING_DEFLATE };
	static const uint8_t identity[] = { HTTP_CODING_IDENTITY, HTTP_CODING_RAW_DEFLATE };
	struct http_msg m;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		m = message(false);
		if (rows[i].accept)
			add(&m, "Accept-Encoding", rows[i].accept);
		if (rows[i].more)
			add(&m, "Accept-Encoding", rows[i].more);
		if (rows[i].agent)
			add(&m, "User-Agent", rows[i].agent);
		if (http_choose_coding(&m, offered, 2) != rows[i].want)
			fail_msg("row %zu '%s': %s", i, rows[i].accept,
				 http_coding_name(http_choose_coding(&m, offered, 2)));
	}
	m = message(false);
	assert_int_equal(http_choose_coding(&m, identity, 2), HTTP_CODING_IDENTITY);
	add(&m, "Accept-Encoding", "deflate");
	assert_int_equal(http_choose_coding(&m, identity, 2), HTTP_CODING_RAW_DEFLATE);
	assert_int_equal(http_coding_from_name(STR("raw-deflate")), HTTP_CODING_RAW_DEFLATE);
	assert_int_equal(http_coding_from_name(STR("br")), HTTP_CODING_NONE);
}

static void test_may_encode(void **state)
{
	static const struct {
		const char *name, *value;
		int status, framing, method, major, minor;
		uint64_t length;
		bool want;
	} rows[] = {
#define ROW(n, v, ...)		      { n, v, 200, HTTP_BODY_LENGTH, HTTP_METHOD_GET, 1, 1, 1000, __VA_ARGS__ }
#define MSG(s, f, me, ma, mi, len, w) { NULL, NULL, s, f, me, ma, mi, len, w }
		ROW("Content-Type", "text/plain", true),
		ROW("Content-Type", "TEXT/html; charset=utf-8", true),
		ROW("Content-Type", "image/png", false),
		ROW("Content-Type", "multipart/byteranges", false),
		ROW("ETag", "\"a\"", true),
		ROW("ETag", "W/\"a\"", true),
		ROW("ETag", "a", false),
		ROW("ETag", "\"a\"b\"", false),
		ROW("ETag", "\"", false),
		ROW("Content-Encoding", "br", false),
		ROW("Cache-Control", "public, no-transform", false),
		ROW("Cache-Control", "no-cache", true),
		MSG(200, HTTP_BODY_CHUNKED, HTTP_METHOD_GET, 1, 1, 0, true),
		MSG(200, HTTP_BODY_CLOSE, HTTP_METHOD_GET, 1, 1, 0, false),
		MSG(200, HTTP_BODY_NONE, HTTP_METHOD_GET, 1, 1, 0, false),
		MSG(200, HTTP_BODY_LENGTH, HTTP_METHOD_GET, 1, 1, 0, false),
		MSG(200, HTTP_BODY_LENGTH, HTTP_METHOD_GET, 1, 1, 99, false),
		MSG(200, HTTP_BODY_LENGTH, HTTP_METHOD_GET, 1, 1, 100, true),
		MSG(200, HTTP_BODY_LENGTH, HTTP_METHOD_HEAD, 1, 1, 1000, false),
		MSG(200, HTTP_BODY_LENGTH, HTTP_METHOD_POST, 1, 1, 1000, true),
		MSG(200, HTTP_BODY_LENGTH, HTTP_METHOD_GET, 1, 0, 1000, false),
		MSG(200, HTTP_BODY_LENGTH, HTTP_METHOD_GET, 2, 0, 1000, true),
		MSG(203, HTTP_BODY_LENGTH, HTTP_METHOD_GET, 1, 1, 1000, true),
		MSG(204, HTTP_BODY_LENGTH, HTTP_METHOD_GET, 1, 1, 1000, false),
		MSG(206, HTTP_BODY_LENGTH, HTTP_METHOD_GET, 1, 1, 1000, false),
		MSG(404, HTTP_BODY_LENGTH, HTTP_METHOD_GET, 1, 1, 1000, false),
	};
	const struct str types[] = { STR("application/json"), STR("text/") };
	const struct http_coding_rules rules = { types, 2, 100 }, any = { NULL, 0, 0 };
	struct http_msg req, rsp;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		req = message(false);
		rsp = message(true);
		req.method = (uint8_t)rows[i].method;
		req.major = (uint8_t)rows[i].major;
		req.minor = (uint8_t)rows[i].minor;
		rsp.status = (uint16_t)rows[i].status;
		rsp.content_length = rows[i].length;
		if (rows[i].name)
			add(&rsp, rows[i].name, rows[i].value);
		if (!http_msg_has(&rsp, HTTP_FIELD_CONTENT_TYPE))
			add(&rsp, "Content-Type", "text/css");
		if (http_may_encode(&req, &rsp, (enum http_framing)rows[i].framing, &rules) !=
		    rows[i].want)
			fail_msg("row %zu %s: %s", i, rows[i].name ? rows[i].name : "",
				 rows[i].value ? rows[i].value : "");
	}
	req = message(false);
	rsp = message(true);
	assert_false(http_may_encode(&req, &rsp, HTTP_BODY_LENGTH, &rules)); /* no type */
	assert_true(http_may_encode(&req, &rsp, HTTP_BODY_LENGTH, &any));
	rsp.minor = 0;
	assert_false(http_may_encode(&req, &rsp, HTTP_BODY_LENGTH, &any));
	rsp.minor = 1;
	add(&rsp, "ETag", "\"a\"");
	add(&rsp, "ETag", "\"a\"");
	assert_false(http_may_encode(&req, &rsp, HTTP_BODY_LENGTH, &any));
}

static void test_requests(void **state)
{
	static const struct str types[] = { { "text/", 5 } };
	const struct http_coding_rules rules = { .types = types, .n_types = 1, .min_size = 10 };
	struct http_msg m = message(false);

	m.framing = HTTP_BODY_LENGTH;
	m.content_length = 10;
	assert_false(http_may_encode_request(&m, &rules)); /* no type */
	assert_int_equal(http_msg_add(&m, STR("Content-Type"), STR("text/plain")), 0);
	assert_true(http_may_encode_request(&m, &rules));
	m.content_length = 9;
	assert_false(http_may_encode_request(&m, &rules));
	m.framing = HTTP_BODY_CHUNKED;
	assert_true(http_may_encode_request(&m, &rules));
	m.minor = 0;
	assert_false(http_may_encode_request(&m, &rules));
	m.minor = 1;
	assert_int_equal(http_set_request_coding(&m, HTTP_CODING_DEFLATE), 0);
	assert_int_equal(m.framing, HTTP_BODY_CHUNKED);
	assert_true(http_msg_list_has(&m, HTTP_FIELD_CONTENT_ENCODING, STR("deflate")));
	assert_false(http_may_encode_request(&m, &rules)); /* once is enough */
	m.framing = HTTP_BODY_NONE;
	assert_false(http_may_encode_request(&m, &rules));
	arena_reset(&arena);
}

static void test_set_coding(void **state)
{
	struct http_msg m = message(true);

	add(&m, "ETag", "\"a\"");
	add(&m, "Vary", "Cookie");
	assert_int_equal(http_set_coding(&m, HTTP_CODING_RAW_DEFLATE), 0);
	assert_int_equal(m.framing, HTTP_BODY_CHUNKED);
	assert_true(str_is_eq(http_msg_find(&m, HTTP_FIELD_ETAG, 0)->value, STR("W/\"a\"")));
	assert_true(http_msg_list_has(&m, HTTP_FIELD_VARY, STR("accept-encoding")));
	assert_true(http_msg_list_has(&m, HTTP_FIELD_VARY, STR("cookie")));
	assert_true(http_msg_list_has(&m, HTTP_FIELD_CONTENT_ENCODING, STR("deflate")));
	m = message(true);
	assert_int_equal(http_set_coding(&m, HTTP_CODING_IDENTITY), 0);
	assert_false(http_msg_has(&m, HTTP_FIELD_CONTENT_ENCODING));
}

/* --- bytes ------------------------------------------------------------------------------------- */

#define SIZE 300000

/* A reader that knows nothing of our code; returns the bytes it made of them, and whether that was the end. */
static size_t decode(enum http_coding c, const char *in, size_t n, char *out, size_t size,
		     bool *ret_is_end)
{
	z_stream z = { 0 };
	int r, bits = c == HTTP_CODING_GZIP ? 31 : c == HTTP_CODING_DEFLATE ? 15 : -15;

	assert_int_equal(inflateInit2(&z, bits), Z_OK);
	z.next_in = (Bytef *)(uintptr_t)in;
	z.avail_in = (uInt)n;
	z.next_out = (Bytef *)out;
	z.avail_out = (uInt)size;
	r = inflate(&z, Z_SYNC_FLUSH);
	assert_true(r == Z_OK || r == Z_STREAM_END || r == Z_BUF_ERROR);
	*ret_is_end = r == Z_STREAM_END && z.avail_in == 0;
	inflateEnd(&z);
	return size - z.avail_out;
}

/* In pieces and through rooms of all sizes; after each flush the reader has everything. */
static void test_round_trip(void **state)
{
	static const enum http_coding all[] = { HTTP_CODING_GZIP, HTTP_CODING_DEFLATE,
						HTTP_CODING_RAW_DEFLATE };
	char *text = malloc(SIZE), *coded = malloc(2 * SIZE), *plain = malloc(SIZE);
	unsigned seed = 1;

	for (size_t i = 0; i < SIZE; i++)
		text[i] = i < SIZE / 2 ? "headgate "[i % 9] : (char)rand_r(&seed);
	for (unsigned k = 0; k < 3; k++) {
		struct http_encoder *e;

		assert_int_equal(http_encoder_new(all[k], 1 + k * 4, &e), 0);
		for (unsigned round = 0; round < 6; round++) {
			size_t at = 0, len = 0;
			bool is_end;

			while (at < SIZE || round == 0) {
				size_t piece = 1 + (size_t)rand_r(&seed) % (round ? 70000 : SIZE);
				struct str in;
				enum http_encode how;
				bool done;

				if (piece > SIZE - at)
					piece = SIZE - at;
				in = str_make(text + at, piece);
				at += piece;
				how = at == SIZE	  ? HTTP_ENCODE_END
				      : rand_r(&seed) % 2 ? HTTP_ENCODE_FLUSH
							  : HTTP_ENCODE_MORE;
				do {
					size_t room = 7 + (size_t)rand_r(&seed) % 5000, n;

					done = http_encode(e, &in, coded + len, room, &n, how);
					assert_true(n <= room);
					len += n;
					assert_true(len < 2 * SIZE - 6000);
				} while (!done);
				assert_int_equal(in.len, 0);
				if (how == HTTP_ENCODE_MORE)
					continue;
				assert_int_equal(decode(all[k], coded, len, plain, SIZE, &is_end),
						 at);
				assert_int_equal(is_end, how == HTTP_ENCODE_END);
				assert_memory_equal(plain, text, at);
				if (how == HTTP_ENCODE_END)
					break;
			}
			http_encoder_reset(e);
		}
		http_encoder_free(e);
	}
	free(text);
	free(coded);
	free(plain);
}

static void test_out_of_memory(void **state)
{
	for (uint64_t n = 1;; n++) {
		struct http_encoder *e = NULL;
		int r;

		mem_fail_at(n);
		r = http_encoder_new(HTTP_CODING_GZIP, 1, &e);
		if (r == 0) {
			assert_true(mem_alloc_count() < n && n > 3);
			mem_fail_at(0);
			http_encoder_free(e);
			return;
		}
		assert_int_equal(r, -ENOMEM);
		assert_null(e);
	}
}

static int setup(void **state)
{
	arena_init(&arena, 16384);
	return 0;
}

static int teardown(void **state)
{
	arena_free(&arena);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_choose),	   cmocka_unit_test(test_may_encode),
		cmocka_unit_test(test_requests),   cmocka_unit_test(test_set_coding),
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
