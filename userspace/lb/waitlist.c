/* SPDX-License-Identifier: BSD-2-Clause */
#include "lb/lb_priv.h"

static unsigned class_rank(const struct queue_entry *q)
{
	return (unsigned)(q->prio_class + PRIO_CLASS_MAX); /* 12 bits */
}

/* Class and due date, without who came first. */
static int compare(const struct queue_entry *a, const struct queue_entry *b)
{
	if (a->prio_class != b->prio_class)
		return a->prio_class < b->prio_class ? -1 : 1;
	return a->place.due < b->place.due ? -1 : a->place.due > b->place.due;
}

/* Both of one list. */
static bool is_less(const struct queue_entry *a, const struct queue_entry *b)
{
	int c = compare(a, b);

	return c ? c < 0 : a->place.number < b->place.number;
}

/* --- pairing heap -------------------------------------------------------------------------------- */

/* Of two roots the lesser one, the other its first child. Either may be NULL. */
static struct queue_entry *meld(struct queue_entry *a, struct queue_entry *b)
{
	struct queue_entry *root, *sub;

	if (!a || !b)
		return a ? a : b;
	root = is_less(a, b) ? a : b;
	sub = root == a ? b : a;
	sub->place.prev = root;
	sub->place.next = root->place.child;
	if (sub->place.next)
		sub->place.next->place.prev = sub;
	root->place.child = sub;
	root->place.next = root->place.prev = NULL;
	return root;
}

/* A row of siblings to one heap: in pairs on the way there, all of them on the way back. */
static struct queue_entry *meld_row(struct queue_entry *row)
{
	struct queue_entry *pairs = NULL, *root = NULL;

	while (row) {
		struct queue_entry *a = row, *b = row->place.next, *pair;

		row = b ? b->place.next : NULL;
		a->place.next = NULL;
		if (b)
			b->place.next = NULL;
		pair = meld(a, b);
		pair->place.next = pairs;
		pairs = pair;
	}
	while (pairs) {
		struct queue_entry *pair = pairs;

		pairs = pair->place.next;
		pair->place.next = NULL;
		root = meld(root, pair);
	}
	if (root)
		root->place.prev = NULL;
	return root;
}

static void heap_remove(struct waitlist *l, struct queue_entry *q)
{
	struct wait_place *p = &q->place;

	if (q == l->heap) {
		l->heap = meld_row(p->child);
		return;
	}
	if (p->prev->place.child == q)
		p->prev->place.child = p->next;
	else
		p->prev->place.next = p->next;
	if (p->next)
		p->next->place.prev = p->prev;
	l->heap = meld(l->heap, meld_row(p->child));
}

/* --- the whole ----------------------------------------------------------------------------------- */

void waitlist_init(struct waitlist *l)
{
	list_init(&l->in_order);
	l->heap = NULL;
	l->n = 0;
	l->n_ever = 0;
	atomic_store_explicit(&l->urgency, UINT64_MAX, memory_order_relaxed);
}

struct queue_entry *waitlist_first(const struct waitlist *l)
{
	struct queue_entry *q;

	if (list_is_empty(&l->in_order))
		return l->heap;
	q = list_entry(l->in_order.next, struct queue_entry, link);
	return l->heap && is_less(l->heap, q) ? l->heap : q;
}

bool waitlist_is_before(const struct queue_entry *a, const struct queue_entry *b)
{
	int c = compare(a, b);

	return c ? c < 0 : a->since_ns <= b->since_ns;
}

static void publish(struct waitlist *l)
{
	const struct queue_entry *q = waitlist_first(l);

	atomic_store_explicit(&l->urgency,
			      q ? (uint64_t)class_rank(q) << 52 | q->place.due : UINT64_MAX,
			      memory_order_relaxed);
}

void waitlist_add(struct waitlist *l, struct queue_entry *q)
{
	/* Never below zero: the offset is at least -PRIO_OFFSET_MS_MAX. 52 bits last for a century. */
	int64_t offset_ns = ((int64_t)q->prio_offset + PRIO_OFFSET_MS_MAX) * 1000000;

	q->place = (struct wait_place){ .in = l,
					.due = (q->since_ns + (uint64_t)offset_ns) >> 10,
					.number = l->n_ever++ };
	list_init(&q->link);
	if (list_is_empty(&l->in_order) ||
	    compare(list_entry(l->in_order.prev, struct queue_entry, link), q) <= 0)
		list_push_back(&l->in_order, &q->link);
	else
		l->heap = meld(l->heap, q);
	l->n++;
	publish(l);
}

void waitlist_remove(struct waitlist *l, struct queue_entry *q)
{
	BUG_ON(q->place.in != l);
	if (list_is_empty(&q->link))
		heap_remove(l, q);
	else
		list_del(&q->link);
	q->place = (struct wait_place){ .in = NULL };
	l->n--;
	publish(l);
}
