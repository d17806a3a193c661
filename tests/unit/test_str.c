/* SPDX-License-Identifier: BSD-2-Clause */
/* Slices, numbers, error texts. links: base */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"

static struct str s(const char *text)
{
	return str_from_cstr(text);
}

static void compare(void **state)
{
	assert_true(str_is_eq(s("abc"), STR("abc")));
	assert_false(str_is_eq(s("abc"), s("abd")));
	assert_false(str_is_eq(s("abc"), s("abcd")));
	assert_true(str_is_eq(STR_NULL, STR("")));
	assert_true(str_is_case_eq(STR_NULL, STR("")));
	assert_true(str_is_prefix(s("abc"), s("ab")));
	assert_true(str_is_prefix(s("abc"), STR_NULL));
	assert_false(str_is_prefix(s("ab"), s("abc")));
	assert_true(str_is_case_prefix(s("Content-Length"), s("cOnTeNt-")));
	assert_true(str_is_suffix(s("a.cfg"), s(".cfg")));
	assert_false(str_is_suffix(s("cfg"), s(".cfg")));
	assert_int_equal(str_cmp(s("a"), s("a")), 0);
	assert_true(str_cmp(s("a"), s("ab")) < 0);
	assert_true(str_cmp(s("b"), s("ab")) > 0);
	assert_true(str_cmp(s("\xff"), s("a")) > 0);
	assert_true(str_case_cmp(s("ABC"), s("abd")) < 0);
	assert_int_equal(str_case_cmp(s("ABC"), s("abc")), 0);
	assert_true(str_case_cmp(s("abc"), s("AB")) > 0);
}

/* Every byte pair at every position and length against the obvious loop. */
static void case_folding_is_ascii_only(void **state)
{
	char a[24], b[24];

	srand(1);
	for (unsigned len = 1; len <= 20; len++) {
		for (unsigned i = 0; i < len; i++)
			a[i] = (char)rand();
		for (unsigned pos = 0; pos < len; pos++) {
			for (unsigned c = 0; c < 256 * 256; c += 1 + (unsigned)rand() % 7) {
				bool want;

				memcpy(b, a, len);
				a[pos] = (char)(c >> 8);
				b[pos] = (char)c;
				want = str_lower_char(a[pos]) == str_lower_char(b[pos]);
				if (str_is_case_eq(str_make(a, len), str_make(b, len)) != want)
					fail_msg("len %u pos %u %04x", len, pos, c);
			}
		}
	}
}

static void find_and_slice(void **state)
{
	struct str rest;

	assert_int_equal(str_find_char(s("abc"), 'c'), 2);
	assert_true(str_find_char(s("abc"), 'x') == SIZE_MAX);
	assert_true(str_find_char(STR_NULL, 'x') == SIZE_MAX);
	assert_int_equal(str_find_any(s("abc&d;e"), s("&;")), 3);
	assert_int_equal(str_find_any(s("abc;d&e"), s("&;")), 3);
	assert_int_equal(str_find_any(s("a?b"), s("?")), 1);
	assert_true(str_find_any(s("abc"), s("&;")) == SIZE_MAX);
	assert_true(str_find_any(s("abc"), STR_NULL) == SIZE_MAX);
	assert_int_equal(str_find(s("hello"), s("ll")), 2);
	assert_int_equal(str_find(s("hello"), STR_NULL), 0);
	assert_true(str_find(s("he"), s("hello")) == SIZE_MAX);
	assert_int_equal(str_case_find(s("xxHeLLoWorldxx"), s("helloworld")), 2);
	assert_true(str_case_find(s("abc"), s("bd")) == SIZE_MAX);
	assert_true(str_is_eq(str_sub(s("hello"), 1, 3), s("ell")));
	assert_int_equal(str_sub(s("hello"), 9, 3).len, 0);
	assert_true(str_is_eq(str_sub(s("hello"), 3, SIZE_MAX), s("lo")));
	assert_true(str_is_eq(str_trim(s(" \t a b\r\n ")), s("a b")));
	assert_int_equal(str_trim(s("   ")).len, 0);
	rest = s("a,,b");
	assert_true(str_is_eq(str_cut(&rest, ','), s("a")));
	assert_true(str_is_eq(str_cut(&rest, ','), s("")));
	assert_non_null(rest.p);
	assert_true(str_is_eq(str_cut(&rest, ','), s("b")));
	assert_null(rest.p);
	rest = s("a,");
	str_cut(&rest, ',');
	assert_non_null(rest.p);
	assert_int_equal(str_cut(&rest, ',').len, 0);
	assert_null(rest.p);
}

static void integers(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint64_t v;
	} u[] = {
		{ "0", 0, 0 },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "18446744073709551616", -ERANGE, 0 },
		{ "99999999999999999999999", -ERANGE, 0 },
		{ "", -EINVAL, 0 },
		{ "-1", -EINVAL, 0 },
		{ "1x", -EINVAL, 0 },
		{ "99999999999999999999999x", -EINVAL, 0 },
		{ " 1", -EINVAL, 0 },
		{ "007", 0, 7 },
	};
	int64_t i;

	for (size_t k = 0; k < ARRAY_SIZE(u); k++) {
		uint64_t v = 77;

		if (str_to_u64(s(u[k].text), &v) != u[k].r || v != (u[k].r ? 77 : u[k].v))
			fail_msg("'%s'", u[k].text);
	}
	assert_int_equal(str_to_i64(s("-9223372036854775808"), &i), 0);
	assert_true(i == INT64_MIN);
	assert_int_equal(str_to_i64(s("9223372036854775807"), &i), 0);
	assert_true(i == INT64_MAX);
	assert_int_equal(str_to_i64(s("9223372036854775808"), &i), -ERANGE);
	assert_int_equal(str_to_i64(s("-9223372036854775809"), &i), -ERANGE);
	assert_int_equal(str_to_i64(s("+5"), &i), 0);
	assert_true(i == 5);
	assert_int_equal(str_to_i64(s("-"), &i), -EINVAL);
	assert_int_equal(str_to_i64(s("+-5"), &i), -EINVAL);
}

static void sizes_and_durations(void **state)
{
	const uint64_t ms = 1000000;
	static const struct {
		const char *text;
		int r;
		uint64_t v;
	} sizes[] = {
		{ "16384", 0, 16384 },
		{ "16k", 0, 16384 },
		{ "2M", 0, 2097152 },
		{ "1g", 0, 1073741824 },
		{ "17179869183g", 0, 17179869183ull << 30 },
		{ "17179869184g", -ERANGE, 0 },
		{ "1t", -EINVAL, 0 },
		{ "1kb", -EINVAL, 0 },
		{ "k", -EINVAL, 0 },
		{ "", -EINVAL, 0 },
		{ "-1k", -EINVAL, 0 },
	}, times[] = {
		{ "4000", 0, 4000 * ms },
		{ "60s", 0, 60000 * ms },
		{ "10000ms", 0, 10000 * ms },
		{ "7us", 0, 7000 },
		{ "2m", 0, 120000 * ms },
		{ "1h", 0, 3600000 * ms },
		{ "24d", 0, 24 * 86400000ull * ms },
		{ "0", 0, 0 },
		{ "213504d", -ERANGE, 0 },
		{ "18446744073709551616us", -ERANGE, 0 },
		{ "1w", -EINVAL, 0 },
		{ "1 s", -EINVAL, 0 },
		{ "1.5s", -EINVAL, 0 },
		{ "s", -EINVAL, 0 },
		{ "1S", -EINVAL, 0 },
	};
	uint64_t v;

	for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
		v = 77;
		if (str_to_size(s(sizes[k].text), &v) != sizes[k].r ||
		    v != (sizes[k].r ? 77 : sizes[k].v))
			fail_msg("size '%s'", sizes[k].text);
	}
	for (size_t k = 0; k < ARRAY_SIZE(times); k++) {
		v = 77;
		if (str_to_duration(s(times[k].text), ms, &v) != times[k].r ||
		    v != (times[k].r ? 77 : times[k].v))
			fail_msg("duration '%s'", times[k].text);
	}
	assert_int_equal(str_to_duration(s("3"), 1000 * ms, &v), 0);
	assert_true(v == 3000 * ms);
}

static void distance(void **state)
{
	char a[200], b[200];

	assert_int_equal(str_distance(s(""), s("")), 0);
	assert_int_equal(str_distance(s("bind"), s("BIND")), 0);
	assert_int_equal(str_distance(s("bnid"), s("bind")), 1);
	assert_int_equal(str_distance(s("sever"), s("server")), 1);
	assert_int_equal(str_distance(s("kitten"), s("sitting")), 3);
	assert_int_equal(str_distance(s(""), s("abc")), 3);
	assert_int_equal(str_distance(s("abc"), s("")), 3);
	memset(a, 'a', sizeof(a));
	memset(b, 'b', sizeof(b));
	assert_int_equal(str_distance(str_make(a, 200), str_make(b, 200)), 64);
}

static void hash_is_stable(void **state)
{
	char text[64];
	uint64_t seen[3 * 64];
	size_t n = 0;

	/* Lengths around the word size, zero bytes included, must not collide. */
	memset(text, 0, sizeof(text));
	for (unsigned fill = 0; fill < 3; fill++) {
		memset(text, (int)fill, sizeof(text));
		for (size_t len = 1; len <= 64; len++)
			seen[n++] = str_hash(str_make(text, len), 0);
	}
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < i; j++)
			assert_true(seen[i] != seen[j]);
	}
	assert_true(str_hash(s("abc"), 1) != str_hash(s("abc"), 2));
	assert_true(str_hash(STR_NULL, 0) == str_hash(STR(""), 0));
	/* Other hosts and releases must agree. */
	assert_int_equal(str_hash(s("backend/server1"), 0), 0x3347d64a8aa0e6e2ull);
	assert_int_equal(str_hash(s("app"), 7), 0x8d1df9101d1bf8bfull);
}

static void error_texts(void **state)
{
	struct err e = { "" };
	char big[1000];

	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	assert_int_equal(err_set(&e, -EINVAL, "port %d", 5), -EINVAL);
	assert_string_equal(e.text, "port 5");
	assert_int_equal(err_prefix(&e, -EIO, "line %d", 7), -EIO);
	assert_string_equal(e.text, "line 7: port 5");
	assert_int_equal(err_set(NULL, -1, "x"), -1);
	assert_int_equal(err_prefix(NULL, -1, "x"), -1);
	err_set(&e, 0, "%s", big);
	assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
	err_prefix(&e, 0, "ctx");
	assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
	assert_memory_equal(e.text, "ctx: xxx", 8);
	err_prefix(&e, 0, "%s", big);
	assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(compare),
		cmocka_unit_test(case_folding_is_ascii_only),
		cmocka_unit_test(find_and_slice),
		cmocka_unit_test(integers),
		cmocka_unit_test(sizes_and_durations),
		cmocka_unit_test(distance),
		cmocka_unit_test(hash_is_stable),
		cmocka_unit_test(error_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
