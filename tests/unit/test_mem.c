/* SPDX-License-Identifier: BSD-2-Clause */
/* Arenas, pools, failure injection. links: base */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static void injected_failures(void **state)
{
	void *p;

	mem_fail_at(2);
	p = mem_alloc(8);
	assert_non_null(p);
	assert_null(mem_zalloc(8));
	p = mem_realloc(p, 100);
	assert_non_null(p);
	assert_int_equal(mem_alloc_count(), 3);
	mem_fail_at(1);
	/* A failed realloc leaves the old block alone. */
	assert_null(mem_realloc(p, 1000));
	mem_free(p);
	mem_fail_at(0);
	p = mem_strdup(STR("abc"));
	assert_string_equal(p, "abc");
	mem_free(p);
	p = mem_strdup(STR_NULL);
	assert_string_equal(p, "");
	mem_free(p);
	mem_free(NULL);
}

static void arena_steady_state_allocates_nothing(void **state)
{
	struct arena a;

	arena_init(&a, 1000);
	assert_int_equal(arena_size(&a), 0);
	arena_reset(&a);
	for (int round = 0; round < 3; round++) {
		char *first = arena_alloc(&a, 1), *second = arena_alloc(&a, 0);
		struct str t;

		assert_true(first != second);
		assert_int_equal((uintptr_t)first % 16, 0);
		assert_int_equal((uintptr_t)second % 16, 0);
		t = arena_printf(&a, "%s-%d", "x", round);
		assert_int_equal(t.len, 3);
		assert_int_equal(t.p[3], '\0');
		assert_string_equal(arena_strdup(&a, STR("hello")), "hello");
		if (round == 0)
			mem_fail_at(0);
		else
			assert_int_equal(mem_alloc_count(), 0);
		arena_reset(&a);
	}
	arena_free(&a);
	assert_int_equal(arena_size(&a), 0);
}

/* Random sizes, all distinct and intact, over many resets. */
static void arena_keeps_objects_apart(void **state)
{
	static struct {
		unsigned char *p;
		size_t n;
	} objs[200];
	struct arena a;

	srand(3);
	arena_init(&a, 512);
	for (int round = 0; round < 50; round++) {
		for (unsigned i = 0; i < 200; i++) {
			size_t n = (size_t)rand() % (rand() % 8 ? 64 : 2000);

			objs[i].p = rand() % 2 ? arena_alloc(&a, n) : arena_zalloc(&a, n);
			objs[i].n = n;
			assert_non_null(objs[i].p);
			memset(objs[i].p, (int)i, n);
		}
		for (unsigned i = 0; i < 200; i++) {
			for (size_t k = 0; k < objs[i].n; k++)
				assert_int_equal(objs[i].p[k], i & 0xff);
		}
		arena_reset(&a);
		assert_true(arena_size(&a) <= 2048 + 16);
	}
	arena_free(&a);
}

/* Chunks grow, an allocation larger than any has its own, and all of it is writable. */
static void arena_of_mappings(void **state)
{
	struct arena a;
	size_t total = 0;
	char *big;

	arena_init_mapped(&a, 65536);
	for (int i = 0; i < 30000; i++) {
		size_t n = 1 + (size_t)i % 500;
		char *p = arena_alloc(&a, n);

		assert_non_null(p);
		assert_int_equal((uintptr_t)p % 16, 0);
		memset(p, i, n);
		total += n;
	}
	assert_true(arena_size(&a) >= total && arena_size(&a) < 2 * total);
	big = arena_alloc(&a, 5000000);
	assert_non_null(big);
	memset(big, 1, 5000000);
	arena_reset(&a);
	assert_true(arena_size(&a) < 70000);
	assert_string_equal(arena_strdup(&a, STR("again")), "again");
	arena_free(&a);
	assert_int_equal(arena_size(&a), 0);
	mem_fail_at(1);
	assert_null(arena_alloc(&a, 8));
	mem_fail_at(0);
	assert_null(arena_alloc(&a, SIZE_MAX / 2));
	assert_null(arena_alloc(&a, SIZE_MAX - 20));
	arena_free(&a);
}

static void arena_failures(void **state)
{
	struct arena a;
	struct str t;

	arena_init(&a, 64);
	mem_fail_at(1);
	assert_null(arena_alloc(&a, 8));
	mem_fail_at(1);
	t = arena_printf(&a, "abc");
	assert_null(t.p);
	mem_fail_at(1);
	assert_null(arena_str(&a, STR("abc")).p);
	mem_fail_at(0);
	assert_null(arena_str(&a, STR_NULL).p);
	assert_non_null(arena_str(&a, STR("")).p);
	assert_null(arena_alloc(&a, SIZE_MAX));
	assert_null(arena_alloc(&a, SIZE_MAX - 20));
	/* A text longer than what is left of the chunk. */
	t = arena_printf(&a, "%0100d", 5);
	assert_int_equal(t.len, 100);
	assert_int_equal(t.p[99], '5');
	t = arena_printf(&a, "%s", "");
	assert_non_null(t.p);
	assert_int_equal(t.len, 0);
	arena_free(&a);
	arena_free(&a);
}

static void pool_reuses(void **state)
{
	struct pool p;
	void *a, *b, *c;

	pool_init(&p, "test", 3, 2);
	assert_true(p.size >= sizeof(void *));
	a = pool_get(&p);
	b = pool_get(&p);
	c = pool_get(&p);
	assert_true(a && b && c && a != b && b != c && a != c);
	assert_int_equal(p.n_used, 3);
	pool_put(&p, a);
	pool_put(&p, b);
	pool_put(&p, c); /* beyond max_free: back to the system */
	pool_put(&p, NULL);
	assert_int_equal(p.n_free, 2);
	assert_int_equal(p.n_used, 0);
	mem_fail_at(1);
	assert_ptr_equal(pool_get(&p), b);
	assert_ptr_equal(pool_get(&p), a);
	assert_null(pool_get(&p));
	mem_fail_at(0);
	assert_int_equal(p.n_used, 2);
	pool_put(&p, a);
	pool_put(&p, b);
	pool_trim(&p);
	assert_int_equal(p.n_free, 0);
	assert_null(p.free);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(injected_failures),
		cmocka_unit_test(arena_steady_state_allocates_nothing),
		cmocka_unit_test(arena_keeps_objects_apart),
		cmocka_unit_test(arena_of_mappings),
		cmocka_unit_test(arena_failures),
		cmocka_unit_test(pool_reuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
