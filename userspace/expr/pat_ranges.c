/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranges of integers and network prefixes: overlapping ranges are cut into disjoint ones, each with
 * its winner, so that a lookup is one binary search however large the file. Keys are 128 bits wide:
 * addresses in mapped form, or integers moved to start at 0. Built once, in the snapshot's arena.
 */
#include "expr/expr_priv.h"

#include <stdlib.h>

struct pat_ranges {
	unsigned n;
	unsigned __int128 *starts; /* ascending; each range ends where the next begins */
	int32_t *winner; /* index of the entry, or -1 */
};

static int cmp_lo(const void *a, const void *b)
{
	const struct pat_range *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static int cmp_u128(const void *a, const void *b)
{
	const unsigned __int128 *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Is a better than b: lower rank, then earlier. */
static bool is_better(const struct pat_range *a, const struct pat_range *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->index < b->index;
}

static void heap_push(const struct pat_range **h, unsigned *n, const struct pat_range *r)
{
	unsigned i = (*n)++;

	while (i && is_better(r, h[(i - 1) / 2])) {
		h[i] = h[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	h[i] = r;
}

static void heap_pop(const struct pat_range **h, unsigned *n)
{
	const struct pat_range *last = h[--*n];
	unsigned i = 0;

	for (unsigned k = 1; k < *n; k = 2 * i + 1) {
		if (k + 1 < *n && is_better(h[k + 1], h[k]))
			k++;
		if (!is_better(h[k], last))
			break;
		h[i] = h[k];
		i = k;
	}
	h[i] = last;
}

/* All places where the winner may change: sorted, without duplicates. */
static unsigned collect_bounds(const struct pat_range *r, unsigned n, unsigned __int128 *b)
{
	unsigned m = 0, k = 0;

	for (unsigned i = 0; i < n; i++) {
		b[m++] = r[i].lo;
		if (r[i].hi + 1 != 0)
			b[m++] = r[i].hi + 1;
	}
	qsort(b, m, sizeof(*b), cmp_u128);
	for (unsigned i = 0; i < m; i++) {
		if (k == 0 || b[k - 1] != b[i])
			b[k++] = b[i];
	}
	return k;
}

static void sweep(struct pat_ranges *p, const struct pat_range *sorted, unsigned n,
		  const struct pat_range **heap)
{
	unsigned n_heap = 0, next = 0;

	for (unsigned i = 0; i < p->n; i++) {
		while (next < n && sorted[next].lo == p->starts[i])
			heap_push(heap, &n_heap, &sorted[next++]);
		while (n_heap && heap[0]->hi < p->starts[i])
			heap_pop(heap, &n_heap);
		p->winner[i] = n_heap ? (int32_t)heap[0]->index : -1;
	}
}

int pat_ranges_build(struct arena *arena, const struct pat_range *r, unsigned n,
		     struct pat_ranges **ret)
{
	struct pat_ranges *p = arena_zalloc(arena, sizeof(*p));
	struct pat_range *sorted = mem_alloc((n + 1) * sizeof(*sorted));
	const struct pat_range **heap = mem_alloc((n + 1) * sizeof(*heap));
	int err = -ENOMEM;

	if (!p || !sorted || !heap)
		goto out;
	p->starts = arena_alloc(arena, (2 * (size_t)n + 1) * sizeof(*p->starts));
	p->winner = arena_alloc(arena, (2 * (size_t)n + 1) * sizeof(*p->winner));
	if (!p->starts || !p->winner)
		goto out;
	if (n)
		memcpy(sorted, r, n * sizeof(*r));
	qsort(sorted, n, sizeof(*sorted), cmp_lo);
	p->n = collect_bounds(sorted, n, p->starts);
	sweep(p, sorted, n, heap);
	*ret = p;
	err = 0;
out:
	mem_free(sorted);
	mem_free(heap);
	return err;
}

int pat_ranges_find(const struct pat_ranges *p, unsigned __int128 key)
{
	unsigned lo = 0, hi = p->n;

	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if (p->starts[mid] <= key)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && p->winner[lo - 1] >= 0 ? p->winner[lo - 1] : -ENOENT;
}
