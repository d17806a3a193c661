/* SPDX-License-Identifier: BSD-2-Clause */
/* links: http base */
/* Messages: names, lists, edits and their limits, hop-by-hop fields, running out of memory. */
#include "h1_test.h"

static void test_names(void **state)
{
	static const struct str none[] = { { "", 0 },
					   { "x", 1 },
					   { "hos", 3 },
					   { "hosts", 5 },
					   { "content_length", 14 },
					   { "hos\x14", 4 },
					   { "keep\x0d"
					     "alive",
					     10 },
					   { "x-forwarded-for-x-forwarded-for", 31 } };

	for (unsigned id = 1; id < HTTP_FIELD_COUNT; id++) {
		struct str name = http_field_name((enum http_field_id)id);
		char upper[64];

		assert_true(name.len > 0 && name.len < sizeof(upper));
		assert_int_equal(http_field_id(name), id);
		assert_int_equal(http_token_field_id(name.p, name.len), id);
		for (size_t i = 0; i < name.len; i++)
			upper[i] = (char)(name.p[i] >= 'a' && name.p[i] <= 'z' ? name.p[i] - 32
									       : name.p[i]);
		assert_int_equal(http_field_id(str_make(upper, name.len)), id);
		for (size_t i = 0; i < name.len; i++) { /* one wrong byte anywhere */
			memcpy(upper, name.p, name.len);
			upper[i] = upper[i] == 'q' ? 'r' : 'q';
			assert_int_equal(http_field_id(str_make(upper, name.len)),
					 HTTP_FIELD_OTHER);
		}
	}
	for (unsigned i = 0; i < ARRAY_SIZE(none); i++)
		assert_int_equal(http_field_id(none[i]), HTTP_FIELD_OTHER);
	assert_int_equal(http_field_name(HTTP_FIELD_COUNT).len, 0);
}

static void test_methods_and_errors(void **state)
{
	for (unsigned m = 1; m <= HTTP_METHOD_PATCH; m++)
		assert_int_equal(http_method_from_text(http_method_text((enum http_method)m)), m);
	assert_int_equal(http_method_from_text(STR("get")), HTTP_METHOD_OTHER);
	assert_int_equal(http_method_from_text(STR("")), HTTP_METHOD_OTHER);
	assert_str(http_status_reason(200), "OK");
	assert_str(http_status_reason(503), "Service Unavailable");
	assert_str(http_status_reason(299), "");
	assert_int_equal(http_error_status(HTTP_ERR_TOO_LARGE), 431);
	assert_int_equal(http_error_status(HTTP_ERR_BAD_VERSION), 505);
	assert_int_equal(http_error_status(HTTP_ERR_BAD_EXPECT), 417);
	assert_string_equal(http_error_text(HTTP_ERR_NO_HOST), "HTTP/1.1 request without Host");
	assert_int_equal(http_error_status(HTTP_ERR_COUNT), 500);
}

static void test_lists(void **state)
{
	static const struct {
		const char *list, *items; /* each item and '|' */
	} cases[] = {
		{ "", "" },
		{ " , ,\t,", "" },
		{ "a", "a|" },
		{ " a , b\t,c", "a|b|c|" },
		{ "a=\"x,y\", b", "a=\"x,y\"|b|" },
		{ "\"a\\\",b\",c", "\"a\\\",b\"|c|" },
		{ "\"open, b", "\"open, b|" },
		{ "\"\\", "\"\\|" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct str list = str_from_cstr(cases[i].list), item;
		char text[64];
		size_t n = 0;

		while (http_list_next(&list, &item))
			n += (size_t)snprintf(text + n, sizeof(text) - n, STR_FMT "|",
					      STR_ARG(item));
		assert_str(str_make(text, n), cases[i].items);
	}
	assert_true(http_list_has(STR("a, Upgrade ,b"), STR("upgrade")));
	assert_false(http_list_has(STR("a, upgraded"), STR("upgrade")));
}

/* "name: value;" of each live field */
static void assert_fields(const struct http_msg *m, const char *expected)
{
	char text[1024];
	size_t n = 0;

	for (unsigned i = 0; i < m->n_fields; i++)
		if (!m->fields[i].is_removed)
			n += (size_t)snprintf(text + n, sizeof(text) - n, STR_FMT ": " STR_FMT ";",
					      STR_ARG(m->fields[i].name),
					      STR_ARG(m->fields[i].value));
	assert_str(str_make(text, n), expected);
}

static void test_edits(void **state)
{
	struct fixture f;

	fixture_begin(&f, 4);
	assert_int_equal(http_msg_add(&f.msg, STR("Cookie"), STR(" a=b\t")), 0);
	assert_int_equal(http_msg_add(&f.msg, STR("X-A"), STR("")), 0);
	assert_int_equal(http_msg_add(&f.msg, STR("cookie"), STR("c=d")), 0);
	assert_fields(&f.msg, "Cookie: a=b;X-A: ;cookie: c=d;");
	assert_true(http_msg_list_has(&f.msg, HTTP_FIELD_COOKIE, STR("C=D")));
	assert_int_equal(http_msg_set(&f.msg, STR("COOKIE"), STR("e")), 0);
	assert_fields(&f.msg, "COOKIE: e;X-A: ;");
	assert_int_equal(http_msg_set(&f.msg, STR("Vary"), STR("x")), 0);
	assert_fields(&f.msg, "COOKIE: e;X-A: ;Vary: x;");
	http_msg_del(&f.msg, STR("cookie"));
	assert_false(http_msg_has(&f.msg, HTTP_FIELD_COOKIE));
	assert_int_equal(http_msg_add(&f.msg, STR("cookie"), STR("again")), 0);
	assert_str(http_msg_find(&f.msg, HTTP_FIELD_COOKIE, 0)->value, "again");
	http_msg_del_field(&f.msg, http_msg_find_name(&f.msg, STR("x-a"), 0));
	assert_fields(&f.msg, "Vary: x;cookie: again;");
	assert_int_equal(http_msg_add(&f.msg, STR(""), STR("x")), -EINVAL);
	assert_int_equal(http_msg_add(&f.msg, STR("a b"), STR("x")), -EINVAL);
	assert_int_equal(http_msg_add(&f.msg, STR("a:"), STR("x")), -EINVAL);
	assert_int_equal(http_msg_add(&f.msg, STR("a"), STR("x\r\ny: z")), -EINVAL);
	assert_int_equal(http_msg_set(&f.msg, STR("vary"), STR("x\ny")), -EINVAL);
	assert_int_equal(http_msg_add(&f.msg, STR("a"), str_make("\0", 1)), -EINVAL);
	assert_fields(&f.msg, "Vary: x;cookie: again;");
	http_msg_reset(&f.msg);
	assert_fields(&f.msg, "");
	assert_false(http_msg_has(&f.msg, HTTP_FIELD_VARY));
	fixture_end(&f);
}

/* What rules do: names and constant values are those of the configuration, not copied. */
static void test_named(void **state)
{
	const struct http_header_name vary = { STR("Vary"), HTTP_FIELD_VARY },
				      own = { STR("X-Own"), HTTP_FIELD_OTHER };
	const struct str fixed = STR("fixed");
	char text[] = "gone soon";
	struct fixture f;

	fixture_begin(&f, 4);
	assert_int_equal(http_msg_add_named(&f.msg, &vary, fixed, true), 0);
	assert_ptr_equal(http_msg_find_named(&f.msg, &vary, 0)->value.p, fixed.p);
	assert_int_equal(http_msg_set_named(&f.msg, &own, str_from_cstr(text), false), 0);
	memset(text, 'x', sizeof(text) - 1);
	assert_fields(&f.msg, "Vary: fixed;X-Own: gone soon;");
	assert_int_equal(http_msg_add_named(&f.msg, &own, STR(" second "), true), 0);
	assert_int_equal(http_msg_set_named(&f.msg, &own, STR("one"), true), 0);
	assert_fields(&f.msg, "Vary: fixed;X-Own: one;");
	assert_int_equal(http_msg_set_named(&f.msg, &vary, STR("a\nb"), true), -EINVAL);
	assert_null(http_msg_find_named(&f.msg, &own, 2));
	fixture_end(&f);
}

static void test_limits(void **state)
{
	struct http_msg m = { 0 };
	struct arena arena;

	arena_init(&arena, 4096);
	assert_int_equal(http_msg_init(&m, &arena, 0), -EINVAL);
	assert_int_equal(http_msg_init(&m, &arena, UINT16_MAX), -EINVAL);
	assert_int_equal(http_msg_init(&m, &arena, 3), 0);
	for (unsigned i = 0; i < 3 + HTTP_MAX_EDITS; i++)
		assert_int_equal(http_msg_add(&m, STR("a"), STR("b")), 0);
	assert_int_equal(http_msg_add(&m, STR("a"), STR("b")), -ENOSPC);
	assert_int_equal(m.n_fields, 3 + HTTP_MAX_EDITS);
	m.arena = NULL;
	assert_int_equal(http_msg_set(&m, STR("a"), STR("b")), -ENOMEM);
	arena_free(&arena);
}

static void test_no_memory(void **state)
{
	bool is_done = false;

	for (unsigned n = 1; !is_done && n < 20; n++) {
		struct http_msg m = { 0 };
		struct arena arena;
		int err;

		arena_init(&arena, 16);
		mem_fail_at(n);
		err = http_msg_init(&m, &arena, 1);
		while (!err && m.n_fields < 3)
			err = http_msg_add(&m, STR("a-name-that-does-not-fit-beside-others"),
					   STR("a value that does not fit beside others either"));
		is_done = mem_alloc_count() < n;
		mem_fail_at(0);
		assert_int_equal(err, is_done ? 0 : -ENOMEM);
		assert_true(!is_done || n > 4);
		arena_free(&arena);
	}
	assert_true(is_done);
}

struct strip_case {
	const char *in, *out;
	bool keep_upgrade;
};

static const struct strip_case strip_cases[] = {
	{ "Connection: keep-alive\r\nKeep-Alive: 3\r\nProxy-Connection: x\r\nA: b\r\n",
	  "Host: h;A: b;", false },
	{ "Connection: close, X-A\r\nX-A: 1\r\nx-a: 2\r\nX-B: 3\r\nConnection: x-c\r\nX-C: 4\r\n",
	  "Host: h;X-B: 3;", false },
	{ "Connection: Upgrade\r\nUpgrade: websocket\r\n", "Host: h;", false },
	{ "Connection: Upgrade\r\nUpgrade: websocket\r\n", "Host: h;Upgrade: websocket;", true },
	{ "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n",
	  "Host: h;", false },
	{ "TE: gzip, trailers\r\nConnection: TE\r\n", "Host: h;TE: trailers;", false },
	{ "TE: gzip\r\nConnection: TE\r\n", "Host: h;", false },
	{ "Connection: Host, close\r\n", "Host: h;", false },
	{ "Connection: \x80,\"a,b\", ()\r\nA: b\r\n", "Host: h;A: b;", false },
};

static void test_strip(void **state)
{
	for (unsigned i = 0; i < ARRAY_SIZE(strip_cases); i++) {
		enum http_error error;
		struct fixture f;
		char head[512];

		fixture_begin(&f, 16);
		snprintf(head, sizeof(head), "GET / HTTP/1.1\r\nHost: h\r\n%s\r\n",
			 strip_cases[i].in);
		assert_true(read_request(&f.msg, str_from_cstr(head), 0, &error) > 0);
		http_msg_strip_hop_by_hop(&f.msg, strip_cases[i].keep_upgrade);
		assert_fields(&f.msg, strip_cases[i].out);
		fixture_end(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),	  cmocka_unit_test(test_methods_and_errors),
		cmocka_unit_test(test_lists),	  cmocka_unit_test(test_edits),
		cmocka_unit_test(test_named),	  cmocka_unit_test(test_limits),
		cmocka_unit_test(test_no_memory), cmocka_unit_test(test_strip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
