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
	uint32_t quota, taken; /* slots */
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
	w->taken++;
}

static void fill_equal(struct walker *w, unsigned n, uint16_t *table, uint32_t size)
{
	uint32_t left = size;

	while (left)
		for (unsigned i = 0; i < n && left; i++, left--)
			take_slot(&w[i], table, size);
}

/* Whether x's next turn comes before y's: (2k + 1) / w compared without division. */
static bool earlier(const struct walker *x, const struct walker *y)
{
	uint64_t tx = (2ull * x->taken + 1) * y->weight, ty = (2ull * y->taken + 1) * x->weight;

	return tx != ty ? tx < ty : x->key < y->key;
}

static void sift_down(struct walker **heap, unsigned n, unsigned i)
{
	struct walker *w = heap[i];

	for (;;) {
		unsigned child = 2 * i + 1;

		if (child >= n)
			break;
		if (child + 1 < n && earlier(heap[child + 1], heap[child]))
			child++;
		if (!earlier(heap[child], w))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = w;
}

static void fill_weighted(struct walker *w, unsigned n, struct walker **heap, uint16_t *table,
			  uint32_t size)
{
	unsigned live = 0;

	for (unsigned i = 0; i < n; i++)
		if (w[i].quota)
			heap[live++] = &w[i];
	for (unsigned i = live; i-- > 0;)
		sift_down(heap, live, i);
	while (live) {
		take_slot(heap[0], table, size);
		if (heap[0]->taken == heap[0]->quota)
			heap[0] = heap[--live];
		if (live)
			sift_down(heap, live, 0);
	}
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

int maglev_fill(const struct maglev_backend *backends, unsigned n, uint16_t *table, uint32_t size)
{
	struct walker **scratch;
	struct walker *w;
	int used = 0;

	if (size < 3 || n > UINT16_MAX)
		return -EINVAL;
	w = mem_alloc((n + 1) * sizeof(*w));
	scratch = mem_alloc((n + 1) * sizeof(*scratch));
	if (!w || !scratch) {
		used = -ENOMEM;
		goto out;
	}
	used = make_walkers(backends, n, w, size);
	if (used < 0)
		goto out;
	memset(table, 0, size * sizeof(*table));
	if (used && weights_equal(w, (unsigned)used)) {
		fill_equal(w, (unsigned)used, table, size);
	} else if (used) {
		set_quotas(w, (unsigned)used, scratch, size);
		fill_weighted(w, (unsigned)used, scratch, table, size);
	}
out:
	mem_free(w);
	mem_free(scratch);
	return used < 0 ? used : 0;
}
