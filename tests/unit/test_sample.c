/* SPDX-License-Identifier: BSD-2-Clause */
/* Samples: conversions between types and their limits. links: expr http base */
#include "unit/expr_subject.h"

#include "expr/expr_priv.h"

static void test_integers(void **state)
{
	static const struct {
		int64_t v;
		const char *text;
	} cases[] = {
		{ 0, "0" },
		{ 7, "7" },
		{ 10, "10" },
		{ 99, "99" },
		{ 100, "100" },
		{ -1, "-1" },
		{ 123456789, "123456789" },
		{ INT64_MAX, "9223372036854775807" },
		{ INT64_MIN, "-9223372036854775808" },
	};
	char out[NUM_TEXT_MAX], want[NUM_TEXT_MAX];
	uint64_t v = 1;

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t n = fmt_i64(out, cases[i].v);

		assert_true(str_is_eq(str_make(out, n), str_from_cstr(cases[i].text)));
		assert_true(str_leading_int(str_make(out, n)) == cases[i].v);
	}
	for (unsigned i = 0; i < 1000; i++) {
		v = v * 6364136223846793005ull + 1442695040888963407ull;
		snprintf(want, sizeof(want), "%llu", (unsigned long long)(v >> (i & 63)));
		assert_true(
			str_is_eq(str_make(out, fmt_u64(out, v >> (i & 63))), str_from_cstr(want)));
	}
	assert_true(str_leading_int(STR("99999999999999999999")) == INT64_MAX);
	assert_true(str_leading_int(STR("-99999999999999999999")) == INT64_MIN);
	assert_int_equal(str_leading_int(STR("12ab")), 12);
	assert_int_equal(str_leading_int(STR("+3")), 3);
	assert_int_equal(str_leading_int(STR("")), 0);
	assert_int_equal(str_leading_int(STR("-")), 0);
}

static void test_casts(void **state)
{
	struct arena a;
	struct sample s;

	arena_init(&a, 1000);
	sample_set_int(&s, -5);
	assert_int_equal(sample_cast(&s, SAMPLE_STR, &a), 0);
	assert_true(str_is_eq(s.str, STR("-5")));
	assert_int_equal(sample_cast(&s, SAMPLE_SINT, &a), 0);
	assert_int_equal(s.sint, -5);
	assert_int_equal(sample_cast(&s, SAMPLE_BOOL, &a), 0);
	assert_int_equal(s.sint, 1);
	assert_int_equal(sample_cast(&s, SAMPLE_ADDR, &a), -EINVAL);
	assert_int_equal(s.type, SAMPLE_BOOL); /* unchanged after a failure */
	sample_set_str(&s, SAMPLE_STR, STR("2001:db8::7"));
	assert_int_equal(sample_cast(&s, SAMPLE_ADDR, &a), 0);
	assert_int_equal(sample_cast(&s, SAMPLE_SINT, &a), -EINVAL);
	assert_int_equal(sample_cast(&s, SAMPLE_STR, &a), 0);
	assert_true(str_is_eq(s.str, STR("2001:db8::7")));
	sample_set_str(&s, SAMPLE_STR, STR("10.0.0.1"));
	assert_int_equal(sample_cast(&s, SAMPLE_ADDR, &a), 0);
	assert_int_equal(sample_cast(&s, SAMPLE_SINT, &a), 0);
	assert_int_equal(s.sint, 0x0a000001);
	assert_int_equal(sample_cast(&s, SAMPLE_ADDR, &a), 0);
	assert_int_equal(sample_cast(&s, SAMPLE_BIN, &a), 0);
	assert_true(str_is_eq(s.str, STR("\x0a\0\0\x01")));
	assert_int_equal(sample_cast(&s, SAMPLE_SINT, &a), -EINVAL);
	sample_set_str(&s, SAMPLE_STR, STR("bad"));
	assert_int_equal(sample_cast(&s, SAMPLE_ADDR, &a), -EINVAL);
	sample_set_str(&s, SAMPLE_STR, STR(""));
	assert_int_equal(sample_cast(&s, SAMPLE_SINT, &a), -EINVAL);
	sample_set_int(&s, 258);
	assert_int_equal(sample_cast(&s, SAMPLE_BIN, &a), 0);
	assert_true(str_is_eq(s.str, STR("\0\0\0\0\0\0\1\2")));
	s.type = 77;
	assert_int_equal(sample_cast(&s, SAMPLE_STR, &a), -EINVAL);
	sample_set_int(&s, 1);
	assert_int_equal(sample_cast(&s, (enum sample_type)99, &a), -EINVAL);
	arena_free(&a);
}

static void test_names(void **state)
{
	assert_string_equal(sample_type_name(SAMPLE_SINT), "integer");
	assert_string_equal(sample_type_name((enum sample_type)TYPE_ANY), "any");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_integers),
		cmocka_unit_test(test_casts),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
