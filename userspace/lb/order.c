/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * In which order servers of different weights take turns: computed once per table, so that picking is
 * one atomic add and one read. Two orders, both those of HAProxy: `roundrobin` spreads the turns of a
 * heavy server evenly, the map (static-rr, map-based hashing) favours earlier lines. Control thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "lb/lb_priv.h"

/* --- roundrobin ---------------------------------------------------------------------------------- */

/*
 * A server of weight w out of W wants a turn every W/w places. Those due are served by place, then by
 * who has used up less of its fraction; where nobody is due, the heaviest that had no turn yet starts
 * its sequence.
 */
struct turn {
	uint32_t entry;
	uint32_t due; /* place */
	uint32_t fraction; /* 0 .. weight-1: what the division of `due` left */
	uint32_t left; /* turns in this cycle */
};

static bool turn_is_before(const struct lb_entry *e, const struct turn *a, const struct turn *b)
{
	int64_t fa, fb;

	if (a->due != b->due)
		return a->due < b->due;
	fa = (int64_t)a->fraction - e[a->entry].weight;
	fb = (int64_t)b->fraction - e[b->entry].weight;
	return fa != fb ? fa < fb : a->entry < b->entry;
}

static void heap_push(const struct lb_entry *e, struct turn *heap, unsigned n, struct turn t)
{
	unsigned i = n;

	while (i > 0 && turn_is_before(e, &t, &heap[(i - 1) / 2])) {
		heap[i] = heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap[i] = t;
}

/* Takes the first off a heap of n > 0. */
static struct turn heap_pop(const struct lb_entry *e, struct turn *heap, unsigned n)
{
	struct turn top = heap[0], last = heap[n - 1];
	unsigned i = 0, child;

	for (n--; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && turn_is_before(e, &heap[child + 1], &heap[child]))
			child++;
		if (!turn_is_before(e, &heap[child], &last))
			break;
		heap[i] = heap[child];
	}
	heap[i] = last;
	return top;
}

static int compare_heaviest(const void *pa, const void *pb)
{
	const struct turn *a = pa, *b = pb;

	/* `left` is the weight here */
	if (a->left != b->left)
		return a->left > b->left ? -1 : 1;
	return a->entry < b->entry ? -1 : a->entry > b->entry;
}

int lb_order_smooth(const struct lb_entry *e, unsigned n, uint32_t total, uint32_t *places)
{
	struct turn *fresh = mem_alloc(2 * n * sizeof(*fresh)), *heap = fresh + n;
	unsigned n_fresh = 0, n_heap = 0;

	if (!fresh)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		fresh[i] = (struct turn){ .entry = i, .left = e[i].weight };
	qsort(fresh, n, sizeof(*fresh), compare_heaviest);
	for (uint32_t pos = 0; pos < total; pos++) {
		bool is_hole = !n_heap || heap[0].due > pos;
		struct turn t;

		if (is_hole && n_fresh < n) {
			t = fresh[n_fresh++];
			t.due = pos;
		} else {
			t = heap_pop(e, heap, n_heap--);
		}
		places[pos] = t.entry;
		t.due += total / e[t.entry].weight;
		t.fraction += total % e[t.entry].weight;
		if (t.fraction >= e[t.entry].weight) {
			t.fraction -= e[t.entry].weight;
			t.due++;
		}
		if (--t.left)
			heap_push(e, heap, n_heap++, t);
	}
	mem_free(fresh);
	return 0;
}

/* --- map ----------------------------------------------------------------------------------------- */

/*
 * Place t (from 1) goes to the first server whose credit floor(w*t/W) - turns taken is highest. A
 * tournament tree over the credits finds it in log n, and the places where a credit grows are known
 * beforehand: W of them in all, so the whole costs W log n instead of W n.
 */
struct credits {
	unsigned n_leaves; /* power of two */
	int32_t *tree; /* [1 .. 2 * n_leaves) */
	uint32_t *next; /* [entry]: chain of those whose credit grows at the same place */
	uint32_t *head; /* [place]: 1 + first of the chain, 0: none */
	uint32_t *grown; /* [entry]: how often it grew */
};

static void credit_add(struct credits *c, unsigned entry, int32_t delta)
{
	unsigned i = c->n_leaves + entry;

	c->tree[i] += delta;
	for (i /= 2; i; i /= 2) {
		int32_t a = c->tree[2 * i], b = c->tree[2 * i + 1];

		c->tree[i] = a > b ? a : b;
	}
}

/* The first with the highest credit. */
static unsigned credit_best(const struct credits *c)
{
	unsigned i = 1;

	while (i < c->n_leaves)
		i = c->tree[2 * i] == c->tree[i] ? 2 * i : 2 * i + 1;
	return i - c->n_leaves;
}

/* Notes the next place where the credit of `entry` grows: the smallest t with w*t >= k*W. */
static void credit_schedule(struct credits *c, const struct lb_entry *e, unsigned entry,
			    uint32_t total)
{
	uint64_t k = c->grown[entry] + 1ull;
	uint64_t t = (k * total + e[entry].weight - 1) / e[entry].weight;

	if (t > total)
		return;
	c->next[entry] = c->head[t];
	c->head[t] = entry + 1;
}

static int credits_init(struct credits *c, const struct lb_entry *e, unsigned n, uint32_t total)
{
	unsigned leaves = 1;
	uint32_t *words;

	while (leaves < n)
		leaves *= 2;
	words = mem_zalloc((2ull * leaves + 2ull * n + total + 1ull) * sizeof(*words));
	if (!words)
		return -ENOMEM;
	c->n_leaves = leaves;
	c->tree = (int32_t *)words;
	c->next = words + 2 * leaves;
	c->grown = c->next + n;
	c->head = c->grown + n;
	for (unsigned i = n; i < leaves; i++)
		credit_add(c, i, -2); /* nobody there: below the lowest credit, -1 */
	for (unsigned i = 0; i < n; i++)
		credit_schedule(c, e, i, total);
	return 0;
}

int lb_order_map(const struct lb_entry *e, unsigned n, uint32_t total, uint32_t *places)
{
	struct credits c;
	int rc = credits_init(&c, e, n, total);

	if (rc != 0)
		return rc;
	for (uint32_t t = 1; t <= total; t++) {
		unsigned best;
		uint32_t i, next;

		for (i = c.head[t]; i; i = next) {
			next = c.next[i - 1];
			credit_add(&c, i - 1, 1);
			c.grown[i - 1]++;
			credit_schedule(&c, e, i - 1, total);
		}
		best = credit_best(&c);
		places[t - 1] = best;
		credit_add(&c, best, -1);
	}
	mem_free(c.tree);
	return 0;
}
