/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Snapshots (protocol: snapshot.h). The hub belongs to the control thread, each view to its worker; the
 * only word both touch is `current`. A worker that slept through several publications finds those it
 * never adopted through `older` and gives them back too: they live until it has.
 */
#include "ev/snapshot.h"

#include <errno.h>
#include <string.h>

void snapshot_hub_init(struct snapshot_hub *h, unsigned n_workers)
{
	memset(h, 0, sizeof(*h));
	atomic_init(&h->current, NULL);
	h->n_workers = n_workers;
}

static void release(struct snapshot_hub *h, struct snapshot *s)
{
	h->alive[s->slot] = NULL;
	if (atomic_load_explicit(&h->current, memory_order_relaxed) == s)
		atomic_store_explicit(&h->current, NULL, memory_order_release);
	if (s->destroy)
		s->destroy(s);
}

int snapshot_publish(struct snapshot_hub *h, struct snapshot *s)
{
	struct snapshot *older = atomic_load_explicit(&h->current, memory_order_relaxed);
	unsigned slot = 0;

	while (slot < SNAPSHOT_GENERATIONS && h->alive[slot])
		slot++;
	if (slot == SNAPSHOT_GENERATIONS)
		return -EBUSY;
	s->generation = ++h->last_generation;
	s->slot = slot;
	s->waiting = h->n_workers;
	s->older = older;
	h->alive[slot] = s;
	atomic_store_explicit(&h->current, s, memory_order_release);
	/* Without workers nobody will ever say "done". */
	if (h->n_workers == 0 && older)
		release(h, older);
	return 0;
}

void snapshot_retire_done(struct snapshot_hub *h, struct snapshot *s)
{
	BUG_ON(s->waiting == 0 || h->alive[s->slot] != s);
	if (--s->waiting == 0)
		release(h, s);
}

unsigned snapshot_list(struct snapshot_hub *h, struct snapshot *ret[SNAPSHOT_GENERATIONS])
{
	unsigned n = 0;

	for (unsigned i = 0; i < SNAPSHOT_GENERATIONS; i++) {
		unsigned at = n;

		if (!h->alive[i])
			continue;
		/* Slots are reused in any order; the list is by generation. */
		for (; at > 0 && ret[at - 1]->generation > h->alive[i]->generation; at--)
			ret[at] = ret[at - 1];
		ret[at] = h->alive[i];
		n++;
	}
	return n;
}

void snapshot_view_init(struct snapshot_view *v, struct snapshot_hub *h,
			void (*on_done)(struct snapshot_view *v, struct snapshot *s))
{
	memset(v, 0, sizeof(*v));
	v->hub = h;
	v->on_done = on_done;
}

/* This worker takes no new pins on `s`. */
static void retire(struct snapshot_view *v, struct snapshot *s)
{
	BUG_ON(v->gen[s->slot].snap != s);
	if (v->gen[s->slot].pins) {
		v->gen[s->slot].is_retired = true;
		return;
	}
	/* Before the call: control may free `s` and give its slot to another as soon as it knows. */
	v->gen[s->slot].snap = NULL;
	v->on_done(v, s);
}

void snapshot_adopt(struct snapshot_view *v)
{
	struct snapshot *s = atomic_load_explicit(&v->hub->current, memory_order_acquire);
	struct snapshot *old = v->current, *skipped;

	if (!s || s == old)
		return;
	BUG_ON(v->gen[s->slot].snap);
	v->gen[s->slot].snap = s;
	v->gen[s->slot].pins = 0;
	v->gen[s->slot].is_retired = false;
	v->current = s;
	for (skipped = s->older; skipped && skipped != old;) {
		struct snapshot *older = skipped->older;

		v->on_done(v, skipped);
		skipped = older;
	}
	if (old)
		retire(v, old);
}

void snapshot_leave(struct snapshot_view *v)
{
	struct snapshot *s;

	snapshot_adopt(v);
	s = v->current;
	v->current = NULL;
	if (s)
		retire(v, s);
}

struct snapshot *snapshot_pin(struct snapshot_view *v)
{
	struct snapshot *s = v->current;

	BUG_ON(!s);
	v->gen[s->slot].pins++;
	return s;
}

void snapshot_pin_again(struct snapshot_view *v, struct snapshot *s)
{
	BUG_ON(v->gen[s->slot].snap != s || v->gen[s->slot].pins == 0);
	v->gen[s->slot].pins++;
}

void snapshot_unpin(struct snapshot_view *v, struct snapshot *s)
{
	BUG_ON(v->gen[s->slot].snap != s || v->gen[s->slot].pins == 0);
	if (--v->gen[s->slot].pins || !v->gen[s->slot].is_retired)
		return;
	v->gen[s->slot].is_retired = false;
	v->gen[s->slot].snap = NULL;
	v->on_done(v, s);
}
