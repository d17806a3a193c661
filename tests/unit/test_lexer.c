/* SPDX-License-Identifier: BSD-2-Clause */
/* links: conf expr http base */
/* Lines into words: quotes, escapes, variables, comments, and the column of every byte. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "conf/conf_priv.h"

static struct str env(void *ctx, struct str name)
{
	static const char *const vars[][2] = { { "A", "one" },	{ "B", "two words" },
					       { "EMPTY", "" }, { "_x1", "under" },
					       { "Q", "a\"b" }, { "SP", "  x   y " } };

	for (size_t i = 0; i < ARRAY_SIZE(vars); i++) {
		if (str_is_eq(name, str_from_cstr(vars[i][0])))
			return str_from_cstr(vars[i][1]);
	}
	return STR_NULL;
}

struct fixture {
	struct arena text, arena;
	struct lexer lx;
	struct line line;
	unsigned column;
	struct err err;
};

static void open_fixture(struct fixture *f)
{
	memset(f, 0, sizeof(*f));
	arena_init(&f->text, 4096);
	arena_init(&f->arena, 4096);
	f->lx = (struct lexer){ .text_arena = &f->text, .arena = &f->arena, .getenv = env };
}

static void close_fixture(struct fixture *f)
{
	lexer_free(&f->lx);
	arena_free(&f->text);
	arena_free(&f->arena);
}

/* Words joined by '|', so that one string says it all. */
static void check_words(const char *in, const char *want)
{
	struct fixture f;
	char got[512] = "";

	open_fixture(&f);
	if (lex_line(&f.lx, str_from_cstr(in), &f.line, &f.column, &f.err)) {
		print_error("%s: column %u: %s\n", in, f.column, f.err.text);
		fail();
	}
	for (unsigned i = 0; i < f.line.n; i++) {
		assert_int_equal(strlen(f.line.words[i].p), f.line.words[i].len);
		snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", i ? "|" : "",
			 f.line.words[i].p);
	}
	assert_string_equal(got, want);
	close_fixture(&f);
}

static void check_error(const char *in, unsigned column, const char *part)
{
	struct fixture f;

	open_fixture(&f);
	assert_int_equal(lex_line(&f.lx, str_from_cstr(in), &f.line, &f.column, &f.err), -EINVAL);
	assert_int_equal(f.column, column);
	if (!strstr(f.err.text, part))
		assert_string_equal(f.err.text, part);
	close_fixture(&f);
}

static void test_words(void **state)
{
	check_words("", "");
	check_words(" \t ", "");
	check_words("a b", "a|b");
	check_words("\t a\t\tb  ", "a|b");
	check_words("a b # c d", "a|b");
	check_words("a#b", "a");
	check_words("# a", "");
	check_words("a b\r", "a|b");
	check_words("a \"\" b", "a||b");
	check_words("a '' b", "a||b");
}

static void test_quotes(void **state)
{
	check_words("a \"b c\" d", "a|b c|d");
	check_words("a 'b c' d", "a|b c|d");
	check_words("a b\" c \"d", "a|b c d");
	check_words("'a # b'", "a # b");
	check_words("\"a # b\"", "a # b");
	check_words("'$A \\n \"'", "$A \\n \"");
	check_words("\"it's\"", "it's");
	check_error("a \"b", 3, "missing closing '\"'");
	check_error("a 'b\"", 3, "missing closing \"'\"");
}

static void test_escapes(void **state)
{
	check_words("a\\ b", "a b");
	check_words("a\\#b", "a#b");
	check_words("\\\"a\\'", "\"a'");
	check_words("a\\\\b", "a\\b");
	check_words("\\x41\\x7a", "Az");
	check_words("a\\tb\\rc\\nd", "a\tb\rc\nd");
	check_words("\"a\\\"b\\$A\"", "a\"b$A");
	check_words("\\.php$", "\\.php$"); /* regular expressions need no doubling */
	check_words("\"\\.php\"", "\\.php");
	check_words("a\\$A", "a\\$A");
	check_error("ab \\x4", 4, "two hexadecimal digits");
	check_error("\\xg0", 1, "two hexadecimal digits");
	check_error("a \\x00", 3, "NUL");
	check_error("a\\", 2, "backslash at the end");
}

static void test_variables(void **state)
{
	check_words("$A ${A}", "$A|${A}"); /* only within weak quotes */
	check_words("\"$A\" \"${A}\" \"x${A}y$A.z\"", "one|one|xoneyone.z");
	check_words("\"$B\"", "two words");
	check_words("\"${B[*]}\"", "two|words");
	check_words("a \"${SP[*]}\" b", "a|x|y|b");
	check_words("\"x${B[*]}y\"", "xtwo|wordsy");
	check_words("a \"${EMPTY[*]}\" b", "a|b");
	check_words("a \"$EMPTY\" b", "a||b");
	check_words("a \"$NOTSET\" b", "a||b");
	check_words("\"${NOTSET-default value}\"", "default value");
	check_words("\"${NOTSET-}\"", "");
	check_words("\"${A-no}\"", "one");
	check_words("\"${EMPTY-no}\"", "");
	check_words("\"${NOTSET[*]-a b}\"", "a|b");
	check_words("\"$_x1\"", "under");
	check_words("\"$Q\"", "a\"b"); /* what a variable holds is not looked at again */
	check_error("a \"$\"", 4, "name of an environment variable");
	check_error("a \"x$1\"", 5, "name of an environment variable");
	check_error("\"${A\"", 2, "unexpected character");
	check_error("\"${A", 2, "expects '}'");
	check_error("\"${A+x}\"", 2, "unexpected character");
}

static void test_columns(void **state)
{
	struct fixture f;

	open_fixture(&f);
	assert_int_equal(lex_line(&f.lx, STR("  ab \"$A\"x c\\x41d"), &f.line, &f.column, &f.err),
			 0);
	assert_int_equal(f.line.n, 3);
	assert_int_equal(f.line.pos.column, 3);
	assert_int_equal(line_column(&f.line, 0, 1), 4);
	assert_int_equal(line_column(&f.line, 1, 0), 6); /* the quote */
	assert_int_equal(line_column(&f.line, 1, 1),
			 7); /* within the variable: where it is written */
	assert_int_equal(line_column(&f.line, 1, 3), 10);
	assert_int_equal(line_column(&f.line, 2, 1), 13);
	assert_int_equal(line_column(&f.line, 2, 2), 17);
	assert_int_equal(line_column(&f.line, 3, 0), 18); /* behind the last word */
	close_fixture(&f);
}

static void test_expand(void **state)
{
	struct fixture f;

	open_fixture(&f);
	assert_true(str_is_eq(lex_expand(&f.lx, STR(":80"), &f.err), STR(":80")));
	assert_true(str_is_eq(lex_expand(&f.lx, STR("fd@${A}"), &f.err), STR("fd@one")));
	assert_true(str_is_eq(lex_expand(&f.lx, STR("$A:80"), &f.err), STR("one:80")));
	assert_true(str_is_eq(lex_expand(&f.lx, STR("$NOTSET"), &f.err), STR("")));
	assert_null(lex_expand(&f.lx, STR("fd@${A"), &f.err).p);
	assert_null(lex_expand(&f.lx, STR("${B[*]}"), &f.err).p);
	close_fixture(&f);
}

static void test_limits(void **state)
{
	struct fixture f;
	size_t n = 2 * (CONF_MAX_WORDS + 1);
	char *text = malloc(CONF_MAX_LINE + 2);

	assert_non_null(text);
	open_fixture(&f);
	for (size_t i = 0; i < n; i++)
		text[i] = i % 2 ? ' ' : 'a';
	assert_int_equal(lex_line(&f.lx, str_make(text, n), &f.line, &f.column, &f.err), -EINVAL);
	assert_int_equal(f.column, 2 * CONF_MAX_WORDS + 1);
	assert_int_equal(lex_line(&f.lx, str_make(text, n - 2), &f.line, &f.column, &f.err), 0);
	assert_int_equal(f.line.n, CONF_MAX_WORDS);
	memset(text, 'a', CONF_MAX_LINE + 1);
	assert_int_equal(
		lex_line(&f.lx, str_make(text, CONF_MAX_LINE + 1), &f.line, &f.column, &f.err),
		-EINVAL);
	assert_int_equal(lex_line(&f.lx, str_make(text, CONF_MAX_LINE), &f.line, &f.column, &f.err),
			 0);
	assert_int_equal(lex_line(&f.lx, str_make("a\0b", 3), &f.line, &f.column, &f.err), -EINVAL);
	close_fixture(&f);
	free(text);
}

static void test_no_memory(void **state)
{
	unsigned failed = 0;

	for (unsigned n = 1;; n++) {
		struct fixture f;
		int r;

		open_fixture(&f);
		mem_fail_at(n);
		r = lex_line(&f.lx, STR("a \"${B[*]}\" c"), &f.line, &f.column, &f.err);
		mem_fail_at(0);
		close_fixture(&f);
		if (r == 0)
			break;
		assert_int_equal(r, -ENOMEM);
		failed++;
	}
	assert_true(failed >= 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),	cmocka_unit_test(test_quotes),
		cmocka_unit_test(test_escapes), cmocka_unit_test(test_variables),
		cmocka_unit_test(test_columns), cmocka_unit_test(test_expand),
		cmocka_unit_test(test_limits),	cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
