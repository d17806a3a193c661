/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits per second (contract: lb.h). One word holds a second, what happened in it and in the one before; whoever is
 * first in a new second moves it on. Threads whose clock is a little behind count in the newest second.
 */
#include "lb/lb.h"

#define SECOND	   1000000000ull
#define COUNT_BITS 24 /* of each second; limits above 16 million are as good as none */
#define COUNT_MAX  ((1u << COUNT_BITS) - 1)

struct window {
	uint16_t second; /* of the clock, cut off */
	uint32_t now, before; /* events in it, and in the one before */
};

static struct window unpack(uint64_t word)
{
	return (struct window){ .second = (uint16_t)(word >> (2 * COUNT_BITS)),
				.before = (uint32_t)(word >> COUNT_BITS) & COUNT_MAX,
				.now = (uint32_t)word & COUNT_MAX };
}

static uint64_t pack(const struct window *w)
{
	return (uint64_t)w->second << (2 * COUNT_BITS) | (uint64_t)w->before << COUNT_BITS | w->now;
}

/* The window as of `now_ns`. */
static struct window window_at(uint64_t word, uint64_t now_ns)
{
	struct window w = unpack(word);
	uint16_t second = (uint16_t)(now_ns / SECOND);
	int16_t ahead = (int16_t)(second - w.second);

	if (ahead == -1 || ahead == 0)
		return w;
	return (struct window){ .second = second, .before = ahead == 1 ? w.now : 0 };
}

bool rate_gate_is_open(const struct rate_gate *g, uint64_t now_ns, uint64_t *ret_wait_ns)
{
	uint64_t limit = atomic_load_explicit(&g->limit, memory_order_relaxed);
	uint64_t into = now_ns % SECOND, left = SECOND - into, open_at;
	struct window w;

	if (likely(!limit))
		return true;
	w = window_at(atomic_load_explicit(&g->word, memory_order_relaxed), now_ns);
	if (w.second != (uint16_t)(now_ns / SECOND)) /* our clock is behind */
		into = 0, left = SECOND;
	if (w.now + w.before * left / SECOND < limit)
		return true;
	if (!ret_wait_ns)
		return false;
	/* When enough of the second before is out of the window; this second's own only when it is that. */
	open_at = w.now < limit ? SECOND - (limit - w.now) * SECOND / w.before
				: SECOND + SECOND / limit;
	*ret_wait_ns = open_at > into ? open_at - into : 0;
	/* No finer than loops look at their clocks. */
	if (*ret_wait_ns < SECOND / 1000)
		*ret_wait_ns = SECOND / 1000;
	return false;
}

void rate_gate_count(struct rate_gate *g, uint64_t now_ns)
{
	uint64_t old, new;
	struct window w;

	if (likely(!atomic_load_explicit(&g->limit, memory_order_relaxed)))
		return;
	old = atomic_load_explicit(&g->word, memory_order_relaxed);
	do {
		w = window_at(old, now_ns);
		w.now += w.now < COUNT_MAX;
		new = pack(&w);
	} while (!atomic_compare_exchange_weak_explicit(&g->word, &old, new, memory_order_relaxed,
							memory_order_relaxed));
}

void rate_gate_apply(struct rate_gate *g, uint32_t limit)
{
	if (g->applied != limit)
		atomic_store(&g->limit, limit);
	g->applied = limit;
}
