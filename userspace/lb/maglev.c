/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maglev tables (Eisenbud et al., NSDI 2016, 3.4). Every backend walks its own permutation of the
 * slots, given by its key alone, and takes the next free one whenever it has a turn. Turns go round by
 * weight: turn k of a backend of weight w falls at time (2k + 1) / w, so that equal weights alternate
 * as in the paper and others interleave evenly. Each backend stops at its quota, the proportional
 * share rounded by largest remainder, which keeps every share within one slot of the exact one.
 */
#include "lb/maglev.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/prime.h"

struct walker {
	uint64_t key;
	uint64_t remainder; /* of the share; how much rounding down took away */
	uint32_t weight;
	uint32_t quota; /* slots */
	uint32_t pos, skip; /* permutation: next slot to try, stride */
	uint16_t id;
};

static const uint32_t sizes[] = { 4093, 8191, 16381, 32749, 65537, 131071, 655373 };

uint32_t maglev_table_size(unsigned n_backends)
{
	for (size_t i = 0; i < ARRAY_SIZE(sizes) - 1; i++)
		if (sizes[i] / 100 >= n_backends)
			return sizes[i];
	return sizes[ARRAY_SIZE(sizes) - 1];
}

/* SplitMix64's finaliser: keys may be as regular as consecutive addresses. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static int cmp_key(const void *a, const void *b)
{
	const struct walker *x = a, *y = b;

	return (x->key > y->key) - (x->key < y->key);
}

/* Largest remainder first; equal remainders (equal weights) in order of key. */
static int cmp_remainder(const void *a, const void *b)
{
	const struct walker *x = *(const struct walker *const *)a;
	const struct walker *y = *(const struct walker *const *)b;

	if (x->remainder != y->remainder)
		return x->remainder < y->remainder ? 1 : -1;
	return cmp_key(x, y);
}

/* Quotas that add up to `size`. `order` is scratch of n pointers. */
static void set_quotas(struct walker *w, unsigned n, struct walker **order, uint32_t size)
{
	uint64_t total = 0, given = 0;

	for (unsigned i = 0; i < n; i++)
		total += w[i].weight;
	for (unsigned i = 0; i < n; i++) {
		uint64_t share = (uint64_t)size * w[i].weight;

		w[i].quota = (uint32_t)(share / total);
		w[i].remainder = share % total;
		given += w[i].quota;
		order[i] = &w[i];
	}
	qsort(order, n, sizeof(*order), cmp_remainder);
	for (unsigned i = 0; given < size; i++, given++)
		order[i]->quota++;
}

static void take_slot(struct walker *w, uint16_t *table, uint32_t size)
{
	uint32_t pos = w->pos;

	while (table[pos]) {
		pos += w->skip;
		if (pos >= size)
			pos -= size;
	}
	table[pos] = w->id;
	w->pos = pos;
}

static void fill_equal(struct walker *w, unsigned n, uint16_t *table, uint32_t size)
{
	uint32_t left = n ? size : 0;

	while (left)
		for (unsigned i = 0; i < n && left; i++, left--)
			take_slot(&w[i], table, size);
}

/* --- turns in order of time ------------------------------------------------------------------------------ */

/*
 * A turn: its time as a fixed-point number, and below that the index of its walker. Walkers are sorted by key, so the
 * order of these numbers is the order of the turns: by time, and at one time by key.
 */
typedef unsigned __int128 turn;

#define TURN_WALKER_BITS 16
#define TURN_WALKER(t)	 ((unsigned)((t) & ((1u << TURN_WALKER_BITS) - 1)))

static turn turn_time(const struct walker *w, uint32_t k, unsigned fraction)
{
	turn t = (turn)(2 * (uint64_t)k + 1) << fraction;

	return t >> 64 ? t / w->weight : (uint64_t)t / w->weight;
}

/*
 * Bits behind the point that tell all times apart: two that differ do so by at least 1 / (w1 * w2), which is more
 * than 2^-2b for weights of b bits. At most 64, behind at most 21 + 1.
 */
static unsigned fraction_bits(const struct walker *w, unsigned n)
{
	uint32_t all = 0;

	for (unsigned i = 0; i < n; i++)
		all |= w[i].weight;
	return 2 * (32 - (unsigned)__builtin_clz(all));
}

/* All turns of each walker, in order of walkers; returns the highest. */
static turn make_turns(const struct walker *w, unsigned n, turn *turns)
{
	unsigned fraction = fraction_bits(w, n);
	turn highest = 0;

	for (unsigned i = 0; i < n; i++) {
		for (uint32_t k = 0; k < w[i].quota; k++)
			*turns++ = turn_time(&w[i], k, fraction) << TURN_WALKER_BITS | i;
		if (w[i].quota && turns[-1] > highest)
			highest = turns[-1];
	}
	return highest;
}

#define DIGIT_BITS 11

/* A pass of a radix sort: from `in` to `out` by the digit at `shift`, what is equal there in the order it has. */
static void sort_digit(const turn *in, turn *out, uint32_t n, unsigned shift)
{
	uint32_t at[1u << DIGIT_BITS] = { 0 }, sum = 0, count;

	for (uint32_t i = 0; i < n; i++)
		at[(uint32_t)(in[i] >> shift) & (ARRAY_SIZE(at) - 1)]++;
	for (size_t d = 0; d < ARRAY_SIZE(at); d++) {
		count = at[d];
		at[d] = sum;
		sum += count;
	}
	for (uint32_t i = 0; i < n; i++)
		out[at[(uint32_t)(in[i] >> shift) & (ARRAY_SIZE(at) - 1)]++] = in[i];
}

/* By time; `turns` has twice as many places. Returns the half that has the result. */
static const turn *sort_turns(turn *turns, uint32_t n, turn highest)
{
	turn *from = turns, *to = turns + n, *t;

	/* They come in the order of walkers, so only times need to be looked at. */
	for (unsigned shift = TURN_WALKER_BITS; highest >> shift; shift += DIGIT_BITS) {
		sort_digit(from, to, n, shift);
		t = from;
		from = to;
		to = t;
	}
	return from;
}

/* Quotas add up to `size`, so there are as many turns. */
static void fill_weighted(struct walker *w, unsigned n, turn *turns, uint16_t *table, uint32_t size)
{
	const turn *sorted = sort_turns(turns, size, make_turns(w, n, turns));

	for (uint32_t i = 0; i < size; i++)
		take_slot(&w[TURN_WALKER(sorted[i])], table, size);
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
	while (b) {
		uint32_t r = a % b;

		a = b;
		b = r;
	}
	return a;
}

/* A stride that meets every slot: with a prime size each from 1 does, with others the next that has no factor in common. */
static uint32_t skip_of(uint64_t key, uint32_t size, bool is_prime)
{
	uint32_t skip = (uint32_t)(mix(~key) % (size - 1) + 1);

	while (!is_prime && gcd(size, skip) != 1)
		skip = skip % (size - 1) + 1;
	return skip;
}

/* Copies the backends that take part, sorted by key. Their number, or -EINVAL. */
static int make_walkers(const struct maglev_backend *backends, unsigned n, struct walker *w,
			uint32_t size)
{
	bool is_prime = u32_is_prime(size);
	unsigned used = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!backends[i].weight)
			continue;
		if (!backends[i].id)
			return -EINVAL;
		w[used++] = (struct walker){
			.key = backends[i].key,
			.weight = backends[i].weight,
			.id = backends[i].id,
			.pos = (uint32_t)(mix(backends[i].key) % size),
			.skip = skip_of(backends[i].key, size, is_prime),
		};
	}
	if (used > size)
		return -EINVAL;
	qsort(w, used, sizeof(*w), cmp_key);
	for (unsigned i = 1; i < used; i++)
		if (w[i].key == w[i - 1].key)
			return -EINVAL;
	return (int)used;
}

static bool weights_equal(const struct walker *w, unsigned n)
{
	for (unsigned i = 1; i < n; i++)
		if (w[i].weight != w[0].weight)
			return false;
	return true;
}

/* 0, or -ENOMEM, which leaves the table untouched. */
static int fill_by_weight(struct walker *w, unsigned n, uint16_t *table, uint32_t size)
{
	struct walker **order = mem_alloc(n * sizeof(*order));
	turn *turns = mem_alloc(2 * (size_t)size * sizeof(*turns));
	bool ok = order && turns;

	if (ok) {
		set_quotas(w, n, order, size);
		memset(table, 0, size * sizeof(*table));
		fill_weighted(w, n, turns, table, size);
	}
	mem_free(order);
	mem_free(turns);
	return ok ? 0 : -ENOMEM;
}

int maglev_fill(const struct maglev_backend *backends, unsigned n, uint16_t *table, uint32_t size)
{
	struct walker *w;
	int rc, used;

	if (size < 3 || n > UINT16_MAX)
		return -EINVAL;
	w = mem_alloc((n + 1) * sizeof(*w));
	if (!w)
		return -ENOMEM;
	rc = used = make_walkers(backends, n, w, size);
	if (used > 0 && !weights_equal(w, (unsigned)used)) {
		rc = fill_by_weight(w, (unsigned)used, table, size);
	} else if (used >= 0) {
		memset(table, 0, size * sizeof(*table));
		fill_equal(w, (unsigned)used, table, size);
		rc = 0;
	}
	mem_free(w);
	return rc;
}
