/* SPDX-License-Identifier: BSD-2-Clause */
/* Variables: names, scopes, memory. links: expr http base */
#include "unit/expr_subject.h"

static void test_names(void **state)
{
	enum var_scope scope;
	uint32_t a, b;
	struct err err;
	char name[40];

	assert_int_equal(vars_intern(STR("txn.a"), &scope, &a, &err), 0);
	assert_int_equal(scope, VAR_TXN);
	assert_int_equal(vars_intern(STR("sess.a"), &scope, &b, &err), 0);
	assert_int_equal(scope, VAR_SESS);
	assert_int_equal(a, b);
	assert_int_equal(vars_intern(STR("check.x.y"), &scope, &b, &err), 0);
	assert_int_not_equal(a, b);
	assert_int_equal(vars_intern(STR("foo.a"), &scope, &b, &err), -EINVAL);
	assert_int_equal(vars_intern(STR("txn"), &scope, &b, &err), -EINVAL);
	assert_int_equal(vars_intern(STR("txn."), &scope, &b, &err), -EINVAL);
	assert_int_equal(vars_intern(STR("txn.a-b"), &scope, &b, &err), -EINVAL);
	assert_int_equal(vars_intern(STR(""), &scope, &b, &err), -EINVAL);
	for (unsigned i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "req.many%u", i);
		assert_int_equal(vars_intern(str_from_cstr(name), &scope, &b, &err), 0);
	}
	for (unsigned i = 0; i < 500; i++) {
		uint32_t again;

		snprintf(name, sizeof(name), "res.many%u", i);
		assert_int_equal(vars_intern(str_from_cstr(name), &scope, &again, &err), 0);
		assert_int_equal(again, b - 499 + i);
	}
}

static void test_values(void **state)
{
	struct vars *v;
	struct arena a;
	struct sample s = { .type = SAMPLE_STR }, n = { .type = SAMPLE_SINT, .sint = 5 };
	char text[32];
	size_t size;

	arena_init(&a, 1000);
	vars_init(&v);
	assert_null(vars_get(v, 3));
	vars_unset(v, 3);
	for (uint32_t id = 0; id < 40; id++) {
		s.str = str_make(text, (size_t)snprintf(text, sizeof(text), "value %u", id));
		assert_int_equal(vars_set(&v, &a, id, &s), 0);
	}
	for (uint32_t id = 0; id < 40; id++) {
		snprintf(text, sizeof(text), "value %u", id);
		assert_true(str_is_eq(vars_get(v, id)->str, str_from_cstr(text)));
	}
	/* The value itself, and an own part of it, as the new value. */
	s = *vars_get(v, 10);
	s.str = str_from(s.str, 2);
	assert_int_equal(vars_set(&v, &a, 10, &s), 0);
	assert_true(str_is_eq(vars_get(v, 10)->str, STR("lue 10")));
	assert_int_equal(vars_set(&v, &a, 10, &n), 0);
	assert_int_equal(vars_get(v, 10)->sint, 5);
	vars_unset(v, 10);
	assert_null(vars_get(v, 10));
	/* Setting again and again takes no further memory. */
	s.str = STR("0123456789");
	assert_int_equal(vars_set(&v, &a, 10, &s), 0);
	size = arena_size(&a);
	for (unsigned i = 0; i < 10000; i++) {
		assert_int_equal(vars_set(&v, &a, 10, &s), 0);
		assert_int_equal(vars_set(&v, &a, 10, &n), 0);
	}
	assert_int_equal(arena_size(&a), size);
	arena_free(&a);
}

static void test_scopes(void **state)
{
	struct fixture f;
	struct sample n = { .type = SAMPLE_SINT, .sint = 5 };

	fixture_init(&f);
	assert_int_equal(subject_var_set(&f.s, VAR_PROC, 1, &n), -EPERM);
	assert_int_equal(subject_var_set(&f.s, VAR_TXN, 1, &n), 0);
	assert_non_null(subject_var_get(&f.s, VAR_TXN, 1));
	assert_null(subject_var_get(&f.s, VAR_REQ, 1));
	f.s.sess_arena = NULL;
	assert_int_equal(subject_var_set(&f.s, VAR_SESS, 1, &n), 0);
	assert_null(subject_var_get(&f.s, VAR_SESS, 1));
	fixture_free(&f);
}

static void test_out_of_memory(void **state)
{
	bool done = false;

	for (uint64_t n = 1; !done; n++) {
		struct vars *v;
		struct arena a;
		struct sample s = { .type = SAMPLE_STR, .str = STR("some text") };
		int r = 0;

		arena_init(&a, 16);
		vars_init(&v);
		mem_fail_at(n);
		for (uint32_t id = 0; r == 0 && id < 12; id++)
			r = vars_set(&v, &a, id, &s);
		done = mem_alloc_count() < n;
		mem_fail_at(0);
		assert_true(r == 0 || r == -ENOMEM);
		assert_int_equal(done, r == 0);
		arena_free(&a);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_scopes),
		cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
