/* SPDX-License-Identifier: BSD-2-Clause */
/* links: conf expr http base */
/* The condition language of `.if` and -cc. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "conf/conf.h"

static void check_value(const char *text, int want)
{
	struct err err = { "" };
	int r = conf_eval_condition(str_from_cstr(text), &err);

	if (r != want)
		print_error("'%s' gives %d: %s\n", text, r, err.text);
	assert_int_equal(r, want);
}

static void check_error(const char *text, const char *part)
{
	struct err err = { "" };

	assert_int_equal(conf_eval_condition(str_from_cstr(text), &err), -EINVAL);
	if (!strstr(err.text, part))
		assert_string_equal(err.text, part);
}

static void test_grammar(void **state)
{
	check_value("", 0);
	check_value("  ", 0);
	check_value("0", 0);
	check_value("1", 1);
	check_value("-1", 1);
	check_value("!0", 1);
	check_value("!!1", 1);
	check_value("! 1", 0);
	check_value("1 && 1", 1);
	check_value("1&&0", 0);
	check_value("0||1", 1);
	check_value("1 || 1 && 0", 1); /* AND binds tighter */
	check_value("(1 || 1) && 0", 0);
	check_value("!(0 || 0)", 1);
	check_error("1 &&", "expects a number");
	check_error("1 & 1", "unexpected text");
	check_error("(1", "missing ')'");
	check_error("1)", "unexpected text");
	check_error("1 2", "unexpected text");
	check_error("foo", "unknown predicate");
	check_error("0 && foo(1)", "unknown predicate");
}

static void test_predicates(void **state)
{
	setenv("HG_TEST_SET", "x", 1);
	unsetenv("HG_TEST_UNSET");
	check_value("defined(HG_TEST_SET)", 1);
	check_value("defined(HG_TEST_UNSET)", 0);
	check_value("feature(OPENSSL)", 1);
	check_value("feature(LUA) || feature(QUIC)", 0);
	check_value("streq(a,a)", 1);
	check_value("streq( \"a b\" , 'a b' )", 1);
	check_value("streq(a,b)", 0);
	check_value("strneq(a,b)", 1);
	check_value("strstr(abc,bc)", 1);
	check_value("strstr(abc,x)", 0);
	check_value("streq(,)", 1);
	check_value("enabled(POLL)", 1);
	check_value("ssllib_name_startswith(OpenSSL)", 1);
	check_error("streq(a)", "expects 2 arguments");
	check_error("streq(a,b,c)", "expects ')'");
	check_error("defined", "expects '('");
	check_error("defined(", "expects ')'");
	check_error("streq(\"a", "missing closing quote");
	check_error("enabled(NOSUCH)", "unknown option");
	check_error("definde(X)", "did you mean 'defined'");
}

static void test_versions(void **state)
{
	check_value("version_atleast(2.4)", 1);
	check_value("version_atleast(3.5)", 1);
	check_value("version_atleast(3.5-dev3)", 1);
	check_value("version_atleast(3.5.0)", 1);
	check_value("version_atleast(3.5.1)", 0);
	check_value("version_atleast(3.10)", 0);
	check_value("version_atleast(10.0)", 0);
	check_value("version_before(3.6-dev0)", 1);
	check_value("version_before(3.5)", 0);
	check_error("version_atleast(x)", "expects a version");
	conf_set_tls_library("OpenSSL 3.0.15 3 Sep 2024");
	check_value("openssl_version_atleast(1.1.1)", 1);
	check_value("openssl_version_atleast(3.0.15)", 1);
	check_value("openssl_version_before(3.1.0)", 1);
	check_value("openssl_version_atleast(3.1)", 0);
}

static void test_depth(void **state)
{
	char text[301];

	memset(text, '!', 300);
	text[300] = '\0';
	check_error(text, "nested too deeply");
	memset(text, '(', 300);
	check_error(text, "nested too deeply");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grammar),
		cmocka_unit_test(test_predicates),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_depth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
