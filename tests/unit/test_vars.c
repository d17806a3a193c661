/* SPDX-License-Identifier: BSD-2-Clause */
/* Variables: names, scopes, memory. links: expr http base */
#include <pthread.h>

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
	assert_int_equal(subject_var_set(&f.s, VAR_TXN, 1, &n), 0);
	assert_non_null(subject_var_get(&f.s, VAR_TXN, 1));
	assert_null(subject_var_get(&f.s, VAR_REQ, 1));
	f.s.sess_arena = NULL;
	assert_int_equal(subject_var_set(&f.s, VAR_SESS, 1, &n), 0);
	assert_null(subject_var_get(&f.s, VAR_SESS, 1));
	fixture_free(&f);
}

static uint32_t proc_id(const char *name)
{
	enum var_scope scope;
	uint32_t id;

	assert_int_equal(vars_intern(str_from_cstr(name), &scope, &id, NULL), 0);
	assert_int_equal(scope, VAR_PROC);
	return id;
}

static void test_process(void **state)
{
	static char big[VARS_PROC_TEXT_MAX + 1];
	struct sample n = { .type = SAMPLE_SINT, .sint = -5 }, v;
	struct sample s = { .type = SAMPLE_STR, .str = STR("a text of some length") };
	uint32_t id = proc_id("proc.shared"), other = proc_id("proc.other");
	struct fixture f, g;

	fixture_init(&f);
	fixture_init(&g);
	assert_null(subject_var_get(&f.s, VAR_PROC, id));
	assert_int_equal(subject_var_set(&f.s, VAR_PROC, id, &n), 0);
	assert_int_equal(subject_var_get(&g.s, VAR_PROC, id)->sint, -5);
	assert_null(subject_var_get(&g.s, VAR_PROC, other));
	assert_int_equal(subject_var_set(&g.s, VAR_PROC, id, &s), 0);
	assert_true(str_is_eq(subject_var_get(&f.s, VAR_PROC, id)->str, s.str));
	v = (struct sample){ .type = SAMPLE_ADDR, .addr = f.src };
	assert_int_equal(vars_proc_set(id, &v), 0);
	assert_int_equal(vars_proc_get(id, &f.run, &v), 0);
	assert_true(addr_is_eq(&v.addr, &f.src));
	s.str = str_make(big, sizeof(big));
	assert_int_equal(vars_proc_set(id, &s), -EMSGSIZE);
	s.str.len--;
	assert_int_equal(vars_proc_set(id, &s), 0);
	assert_int_equal(subject_var_get(&f.s, VAR_PROC, id)->str.len, VARS_PROC_TEXT_MAX);
	subject_var_unset(&f.s, VAR_PROC, id);
	assert_null(subject_var_get(&g.s, VAR_PROC, id));
	fixture_free(&f);
	fixture_free(&g);
}

/* Writers of texts whose bytes are all the same: a reader never sees two of them mixed. */
static void *write_texts(void *arg)
{
	char text[600];
	struct sample s = { .type = SAMPLE_STR };

	for (unsigned i = 0; i < 20000; i++) {
		size_t n = 1 + (i * 7) % sizeof(text);

		memset(text, 'a' + (int)(i % 26), n);
		s.str = str_make(text, n);
		assert_int_equal(vars_proc_set(*(uint32_t *)arg, &s), 0);
	}
	return NULL;
}

static void test_process_threads(void **state)
{
	struct sample first = { .type = SAMPLE_STR, .str = STR("a") };
	uint32_t id = proc_id("proc.busy");
	unsigned n_seen = 0;
	pthread_t t[2];
	struct arena a;

	arena_init(&a, 4096);
	/* So that the reader sees something, however late the writers begin. */
	assert_int_equal(vars_proc_set(id, &first), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, write_texts, &id), 0);
	for (unsigned i = 0; i < 20000; i++) {
		struct sample v;

		if (vars_proc_get(id, &a, &v))
			continue;
		n_seen++;
		assert_true(v.str.len > 0);
		for (size_t k = 1; k < v.str.len; k++)
			assert_int_equal(v.str.p[k], v.str.p[0]);
		arena_reset(&a);
	}
	for (unsigned i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	assert_true(n_seen > 0);
	arena_free(&a);
}

/* What the variable was before (NULL: never made; "-": made and unset), conditions, is it set to 5. */
static void test_conditions(void **state)
{
	static const struct {
		const char *old, *conds;
		bool is_set;
	} rows[] = {
		{ NULL, "ifexists", false },   { "-", "ifexists", true },
		{ NULL, "ifnotexists", true }, { "-", "ifnotexists", false },
		{ NULL, "ifset", false },      { "-", "ifset", false },
		{ "x", "ifset", true },	       { "-", "ifnotset", true },
		{ "x", "ifnotset", false },    { "", "ifempty", true },
		{ "x", "ifempty", false },     { NULL, "ifnotempty", false },
		{ "x", "ifnotempty", true },   { "7", "ifgt", true },
		{ "5", "ifgt", false },	       { "3", "iflt", true },
		{ "7", "iflt", false },	       { "x", "iflt", false },
		{ "7", "ifset,ifgt", true },   { "7", "ifset,iflt", false },
	};
	struct sample five = { .type = SAMPLE_SINT, .sint = 5 };
	struct err err;
	uint8_t conds;

	for (unsigned i = 0; i < ARRAY_SIZE(rows) * 2; i++) {
		const char *old = rows[i / 2].old;
		enum var_scope scope = i & 1 ? VAR_PROC : VAR_TXN;
		const struct sample *now;
		struct fixture f;
		char name[32];
		uint32_t id;

		fixture_init(&f);
		snprintf(name, sizeof(name), "proc.cond%u", i);
		id = proc_id(name);
		if (old) {
			struct sample v = { .type = SAMPLE_STR, .str = str_from_cstr(old) };

			if (old[0] >= '0' && old[0] <= '9')
				v = (struct sample){ .type = SAMPLE_SINT, .sint = old[0] - '0' };
			assert_int_equal(subject_var_set(&f.s, scope, id, &v), 0);
			if (old[0] == '-')
				subject_var_unset(&f.s, scope, id);
		}
		assert_int_equal(var_cond_parse(str_from_cstr(rows[i / 2].conds), &conds, &err), 0);
		assert_int_equal(subject_var_set_if(&f.s, scope, id, conds, &five), 0);
		now = subject_var_get(&f.s, scope, id);
		if ((now && now->type == SAMPLE_SINT && now->sint == 5 &&
		     !(old && old[0] == '5')) != rows[i / 2].is_set)
			fail_msg("'%s' with %s", old ? old : "(none)", rows[i / 2].conds);
		fixture_free(&f);
	}
	assert_int_equal(var_cond_parse(STR("ifexist"), &conds, &err), -EINVAL);
	assert_non_null(strstr(err.text, "did you mean 'ifexists'"));
	assert_int_equal(var_cond_parse(STR("ifset,"), &conds, &err), -EINVAL);
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
		cmocka_unit_test(test_names),		cmocka_unit_test(test_values),
		cmocka_unit_test(test_scopes),		cmocka_unit_test(test_process),
		cmocka_unit_test(test_process_threads), cmocka_unit_test(test_conditions),
		cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
