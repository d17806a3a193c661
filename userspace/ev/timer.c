/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Timer wheel of a loop (data structure: loop_priv.h). Starting and stopping are O(1). A running
 * timer that is moved further away only gets its new tick written: it stays where it is and is put in its
 * right place when that slot comes up. Timeouts that are re-armed with every byte thus cost one store.
 */
#include "ev/loop_priv.h"

void wheel_init(struct wheel *w, uint64_t tick)
{
	w->cur = tick;
	w->levels = 0;
	for (unsigned l = 0; l < WHEEL_LEVELS; l++) {
		w->used[l] = 0;
		for (unsigned s = 0; s < WHEEL_SLOTS; s++)
			list_init(&w->slots[l][s]);
	}
}

/* `t` is on no list and expires after `cur`. */
static void wheel_insert(struct wheel *w, struct timer *t)
{
	unsigned highest = 63 - (unsigned)__builtin_clzll(t->expires ^ w->cur);
	unsigned level = highest / WHEEL_BITS;
	unsigned slot = (unsigned)(t->expires >> (level * WHEEL_BITS)) % WHEEL_SLOTS;

	list_push_back(&w->slots[level][slot], &t->link);
	w->used[level] |= 1ull << slot;
	w->levels |= 1ull << level;
}

static void wheel_clear(struct wheel *w, unsigned level, unsigned slot)
{
	w->used[level] &= ~(1ull << slot);
	if (w->used[level] == 0)
		w->levels &= ~(1ull << level);
}

/* The next occupied slot and the tick at which it begins; false when the wheel is empty. */
static bool wheel_find(struct wheel *w, unsigned *ret_level, unsigned *ret_slot, uint64_t *ret_tick)
{
	while (w->levels) {
		unsigned level = (unsigned)__builtin_ctzll(w->levels);
		unsigned slot = (unsigned)__builtin_ctzll(w->used[level]);
		unsigned shift = level * WHEEL_BITS;

		if (list_is_empty(&w->slots[level][slot])) {
			wheel_clear(w, level, slot);
			continue;
		}
		*ret_level = level;
		*ret_slot = slot;
		*ret_tick = (w->cur >> shift >> WHEEL_BITS << WHEEL_BITS | slot) << shift;
		return true;
	}
	return false;
}

uint64_t wheel_next(struct wheel *w)
{
	unsigned level, slot;
	uint64_t tick;

	return wheel_find(w, &level, &slot, &tick) ? tick : UINT64_MAX;
}

/* The timer may be gone when its handler returns. */
static void run_measured(struct profile *p, struct timer *t)
{
	uintptr_t fn = (uintptr_t)t->on_expire;
	uint64_t due = t->expires * LOOP_TICK_NS, begin = loop_clock_ns();

	t->on_expire(t);
	profile_add(p, fn, begin > due ? begin - due : 0, loop_clock_ns() - begin);
}

/* Everything on `due`: runs it, or puts it where it belongs when its tick is still to come. */
static unsigned run_due(struct wheel *w, struct list *due, struct profile *p)
{
	struct list *link;
	unsigned n = 0;

	/* One at a time from the front: a handler may stop or restart the timers behind its own. */
	while ((link = list_pop_front(due))) {
		struct timer *t = list_entry(link, struct timer, link);

		if (t->expires > w->cur) {
			wheel_insert(w, t);
			continue;
		}
		n++;
		if (unlikely(p->is_on))
			run_measured(p, t);
		else
			t->on_expire(t);
	}
	return n;
}

unsigned wheel_advance(struct wheel *w, uint64_t tick, struct profile *p)
{
	unsigned level, slot, n = 0;
	uint64_t at;

	while (wheel_find(w, &level, &slot, &at) && at <= tick) {
		struct list due = LIST_INIT(due);

		list_splice_back(&due, &w->slots[level][slot]);
		wheel_clear(w, level, slot);
		w->cur = at;
		n += run_due(w, &due, p);
	}
	/* No occupied slot begins before `tick`, so every one still lies ahead of the new `cur`. */
	if (tick > w->cur)
		w->cur = tick;
	return n;
}

void timer_init(struct timer *t, void (*on_expire)(struct timer *t))
{
	list_init(&t->link);
	t->expires = 0;
	t->on_expire = on_expire;
}

void timer_start(struct loop *l, struct timer *t, uint64_t delay_ns)
{
	uint64_t at, tick;

	if (__builtin_add_overflow(l->clock.now, delay_ns, &at))
		at = UINT64_MAX;
	/* Rounded up: never early. */
	tick = at / LOOP_TICK_NS + (at % LOOP_TICK_NS != 0);
	if (tick <= l->wheel.cur)
		tick = l->wheel.cur + 1;
	if (timer_is_running(t)) {
		if (tick >= t->expires) {
			t->expires = tick;
			return;
		}
		list_del(&t->link);
	}
	t->expires = tick;
	wheel_insert(&l->wheel, t);
}

void timer_stop(struct loop *l, struct timer *t)
{
	list_del(&t->link);
}

uint64_t timer_left_ns(const struct loop *l, const struct timer *t)
{
	uint64_t at;

	if (!timer_is_running(t))
		return 0;
	if (__builtin_mul_overflow(t->expires, LOOP_TICK_NS, &at))
		at = UINT64_MAX;
	return at > l->clock.now ? at - l->clock.now : 0;
}
