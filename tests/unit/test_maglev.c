/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The invariants of Maglev tables, and figures to hold against the paper's.
 * links: lb base
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/prime.h"
#include "lb/maglev.h"

#define M	 65537
#define MAX_SIZE 655373
#define MAX_N	 5000

static struct maglev_backend be[MAX_N];
static uint16_t table[MAX_SIZE], other[MAX_SIZE];
static unsigned share[65536];

static uint64_t rnd_state = 42;

static uint64_t rnd(void)
{
	uint64_t z = (rnd_state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Keys as consecutive as addresses of one rack. */
static void make(unsigned n, uint32_t weight)
{
	for (unsigned i = 0; i < n; i++)
		be[i] = (struct maglev_backend){ .key = 0x0a000000u + i,
						 .weight = weight,
						 .id = i + 1 };
}

static void shuffle(unsigned n)
{
	for (unsigned i = n - 1; i > 0; i--) {
		unsigned j = (unsigned)(rnd() % (i + 1));
		struct maglev_backend t = be[i];

		be[i] = be[j];
		be[j] = t;
	}
}

static void count(uint32_t size)
{
	memset(share, 0, sizeof(share));
	for (uint32_t i = 0; i < size; i++)
		share[table[i]]++;
}

static void test_equal_shares(void **state)
{
	static const struct {
		unsigned n;
		uint32_t size;
	} rows[] = { { 1, 4093 }, { 2, 4093 },	    { 3, 4093 },    { 10, M }, { 100, M },
		     { 1000, M }, { 1000, 655373 }, { 4093, 4093 }, { 7, 7 },  { 2, 3 } };

	for (unsigned r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		unsigned lo = UINT32_MAX, hi = 0;

		make(rows[r].n, r % 2 ? 1 : 77);
		assert_int_equal(maglev_fill(be, rows[r].n, table, rows[r].size), 0);
		count(rows[r].size);
		assert_int_equal(share[0], 0);
		for (unsigned i = 1; i <= rows[r].n; i++) {
			lo = share[i] < lo ? share[i] : lo;
			hi = share[i] > hi ? share[i] : hi;
		}
		print_message("n %u, M %u: %u to %u slots\n", rows[r].n, rows[r].size, lo, hi);
		assert_true(hi - lo <= 1);
	}
}

static void test_order_does_not_matter(void **state)
{
	for (int weighted = 0; weighted <= 1; weighted++) {
		make(300, 1);
		for (unsigned i = 0; weighted && i < 300; i++)
			be[i].weight = (uint32_t)(rnd() % 256);
		assert_int_equal(maglev_fill(be, 300, table, M), 0);
		for (int round = 0; round < 5; round++) {
			shuffle(300);
			assert_int_equal(maglev_fill(be, 300, other, M), 0);
			assert_memory_equal(table, other, M * sizeof(table[0]));
		}
	}
}

/* Slots, in percent of all, that had a surviving owner and got another one. */
static double moved(uint32_t size, uint16_t first_gone, uint16_t last_gone)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < size; i++)
		if (table[i] != other[i] && (table[i] < first_gone || table[i] > last_gone))
			n++;
	return 100.0 * n / size;
}

static double remove_some(unsigned n, unsigned gone, uint32_t size, bool by_weight)
{
	make(n, 10);
	assert_int_equal(maglev_fill(be, n, table, size), 0);
	if (by_weight)
		for (unsigned i = n - gone; i < n; i++)
			be[i].weight = 0;
	assert_int_equal(maglev_fill(be, by_weight ? n : n - gone, other, size), 0);
	for (uint32_t i = 0; i < size; i++)
		assert_true(other[i] >= 1 && other[i] <= n - gone);
	return moved(size, (uint16_t)(n - gone + 1), (uint16_t)n);
}

static void test_disruption(void **state)
{
	double one_of_100 = remove_some(100, 1, M, false);

	print_message("remove 1 of 100 at M %u: %.2f %% of the others' slots move\n", M,
		      one_of_100);
	assert_true(one_of_100 <= 1.0);
	assert_true(remove_some(100, 1, M, true) == one_of_100);
	print_message("remove 1 of 10: %.2f %%\n", remove_some(10, 1, M, false));
	print_message("remove 1 of 1000: %.2f %%, 10: %.2f %%, 100: %.2f %%\n",
		      remove_some(1000, 1, M, false), remove_some(1000, 10, M, false),
		      remove_some(1000, 100, M, false));
	assert_true(remove_some(10, 1, M, false) <= 1.0);
	assert_true(remove_some(1000, 1, M, false) <= 1.5);
	assert_true(remove_some(1000, 100, M, false) <= 6.0);
}

static void check_proportional(unsigned n, uint32_t size)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < n; i++)
		total += be[i].weight;
	assert_int_equal(maglev_fill(be, n, table, size), 0);
	count(size);
	for (unsigned i = 0; i < n; i++) {
		uint64_t exact = (uint64_t)size * be[i].weight;
		uint64_t got = (uint64_t)share[be[i].id] * total;

		assert_true(got <= exact + total && got + total >= exact);
		if (!be[i].weight)
			assert_int_equal(share[be[i].id], 0);
	}
}

static void test_weights(void **state)
{
	for (int round = 0; round < 20; round++) {
		unsigned n = (unsigned)(rnd() % 500 + 1);

		make(n, 0);
		for (unsigned i = 0; i < n; i++)
			be[i].weight = (uint32_t)(rnd() % 257);
		be[0].weight = 1;
		check_proportional(n, M);
	}
	/* Extremes: the whole range of the field, and shares below one slot. */
	make(3, 1);
	be[0].weight = UINT32_MAX;
	be[1].weight = UINT32_MAX;
	check_proportional(3, 4093);
	make(1000, 1);
	be[999].weight = 1000000;
	check_proportional(1000, 655373);
	make(2, 1);
	be[1].weight = 2;
	check_proportional(2, 3);
}

/* A small change of one weight leaves nearly all other slots where they were. */
static void test_weight_change(void **state)
{
	unsigned changed = 0;

	make(100, 100);
	be[50].weight = 99;
	assert_int_equal(maglev_fill(be, 100, table, M), 0);
	be[50].weight = 90;
	assert_int_equal(maglev_fill(be, 100, other, M), 0);
	for (uint32_t i = 0; i < M; i++)
		changed += table[i] != other[i];
	print_message("weight 99 to 90 for one of 100: %.2f %% of slots move\n",
		      100.0 * changed / M);
	assert_true(changed < M * 3 / 100);
}

/* FNV-1a of the table. */
static uint64_t digest(uint32_t size)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (uint32_t i = 0; i < size; i++)
		h = (h ^ table[i]) * 0x100000001b3ull;
	return h;
}

/* Hosts of a fleet may run different versions: the same backends give the same table in all of them. */
static void test_same_as_ever(void **state)
{
	static const struct {
		unsigned n;
		uint32_t size, step, modulo,
			least; /* weight of backend i: least + i * step % modulo */
		uint64_t digest;
	} rows[] = {
		{ 100, M, 0, 1, 1, 0xc6f55d420e6ccb80ull },
		{ 1000, M, 1, 100, 1, 0x8d699788ab21da62ull },
		{ 1000, M, 200, 400, 100, 0xa90c1427d58ebe2full }, /* turns that fall together */
		{ 250, 16381, 97, 257, 0, 0x8e4285a0cf87df4aull },
		{ 3, 4093, 0x7fffffff, 0xfffffffe, 1, 0x46c76ba4a4da2845ull },
		{ 5000, 4096 + 4093, 1, 2, 1000000, 0x55a95ec148705b4eull },
	};

	for (unsigned r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		make(rows[r].n, 0);
		for (unsigned i = 0; i < rows[r].n; i++)
			be[i].weight = rows[r].least +
				       (uint32_t)((uint64_t)i * rows[r].step % rows[r].modulo);
		shuffle(rows[r].n);
		assert_int_equal(maglev_fill(be, rows[r].n, table, rows[r].size), 0);
		assert_true(digest(rows[r].size) == rows[r].digest);
	}
}

static void test_empty(void **state)
{
	memset(table, 0xff, sizeof(table));
	assert_int_equal(maglev_fill(be, 0, table, 4093), 0);
	count(4093);
	assert_int_equal(share[0], 4093);
	make(5, 0);
	memset(table, 0xff, sizeof(table));
	assert_int_equal(maglev_fill(be, 5, table, 4093), 0);
	count(4093);
	assert_int_equal(share[0], 4093);
}

/* Sizes that are not prime, as tables that have grown are: the same guarantees. */
static void test_composite_sizes(void **state)
{
	static const uint32_t sizes[] = { 4, 12, 252, 4096, 8186, 3 * 4093, 30030, 65536 };

	for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		unsigned n = sizes[s] < 100 ? 3 : 100, quota = sizes[s] / n;

		make(n, 1);
		assert_int_equal(maglev_fill(be, n, table, sizes[s]), 0);
		count(sizes[s]);
		assert_int_equal(share[0], 0);
		for (unsigned i = 0; i < n; i++)
			assert_in_range(share[be[i].id], quota, quota + 1);
	}
}

static void test_bad_arguments(void **state)
{
	make(10, 1);
	assert_int_equal(maglev_fill(be, 10, table, 0), -EINVAL);
	assert_int_equal(maglev_fill(be, 1, table, 1), -EINVAL);
	assert_int_equal(maglev_fill(be, 1, table, 2), -EINVAL);
	assert_int_equal(maglev_fill(be, 10, table, 7), -EINVAL);
	assert_int_equal(maglev_fill(be, 65536, table, M), -EINVAL);
	be[3].key = be[7].key;
	assert_int_equal(maglev_fill(be, 10, table, 4093), -EINVAL);
	be[3].weight = 0; /* takes no part, so it cannot clash */
	assert_int_equal(maglev_fill(be, 10, table, 4093), 0);
	be[5].id = 0;
	assert_int_equal(maglev_fill(be, 10, table, 4093), -EINVAL);
}

static void test_sizes(void **state)
{
	static const struct {
		unsigned n;
		uint32_t size;
	} rows[] = { { 0, 4093 },      { 1, 4093 },	 { 40, 4093 },	   { 41, 8191 },
		     { 81, 8191 },     { 82, 16381 },	 { 163, 16381 },   { 164, 32749 },
		     { 327, 32749 },   { 328, 65537 },	 { 655, 65537 },   { 656, 131071 },
		     { 1310, 131071 }, { 1311, 655373 }, { 6553, 655373 }, { 32767, 655373 } };

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(maglev_table_size(rows[i].n), rows[i].size);
		assert_true(u32_is_prime(rows[i].size));
	}
	assert_false(u32_is_prime(0));
	assert_false(u32_is_prime(1));
	assert_true(u32_is_prime(2));
	assert_true(u32_is_prime(3));
	assert_false(u32_is_prime(4));
	assert_false(u32_is_prime(9));
	assert_false(u32_is_prime(65536));
	assert_false(u32_is_prime(65533 * 13u));
	assert_false(u32_is_prime(4294967295u));
	assert_true(u32_is_prime(4294967291u));
}

static void test_no_memory(void **state)
{
	for (int weighted = 0; weighted <= 1; weighted++) {
		int rc = -ENOMEM;

		make(100, 1);
		be[7].weight += (uint32_t)weighted;
		memset(table, 0x5a, sizeof(table));
		for (uint64_t n = 1; rc == -ENOMEM; n++) {
			assert_true(n < 10);
			assert_int_equal(table[0], 0x5a5a); /* untouched by failed calls */
			mem_fail_at(n);
			rc = maglev_fill(be, 100, table, 4093);
			mem_fail_at(0);
		}
		assert_int_equal(rc, 0);
		count(4093);
		assert_int_equal(share[0], 0);
	}
}

static double fill_ms(unsigned n, uint32_t size)
{
	double best = 1e9;

	for (int i = 0; i < 5; i++) {
		struct timespec a, b;
		double ms;

		clock_gettime(CLOCK_MONOTONIC, &a);
		assert_int_equal(maglev_fill(be, n, table, size), 0);
		clock_gettime(CLOCK_MONOTONIC, &b);
		ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
		best = ms < best ? ms : best;
	}
	return best;
}

/* The bounds are loose: machines are noisy, sanitizers slow. The figures are what to look at. */
static void test_build_time(void **state)
{
	double equal, weighted;

	make(1000, 1);
	equal = fill_ms(1000, M);
	print_message("1000 backends: M %u %.2f ms, M 655373 %.2f ms\n", M, equal,
		      fill_ms(1000, 655373));
	for (unsigned i = 0; i < 1000; i++)
		be[i].weight = i % 256 + 1;
	weighted = fill_ms(1000, M);
	print_message("with 256 weights: M %u %.2f ms\n", M, weighted);
	assert_true(equal < 50);
	assert_true(weighted < 250);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal_shares),  cmocka_unit_test(test_order_does_not_matter),
		cmocka_unit_test(test_disruption),    cmocka_unit_test(test_weights),
		cmocka_unit_test(test_weight_change), cmocka_unit_test(test_same_as_ever),
		cmocka_unit_test(test_empty),	      cmocka_unit_test(test_bad_arguments),
		cmocka_unit_test(test_sizes),	      cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_build_time),    cmocka_unit_test(test_composite_sizes),
	};

	return cmocka_run_group_tests_name("maglev", tests, NULL, NULL);
}
