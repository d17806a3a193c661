/* SPDX-License-Identifier: BSD-2-Clause */
/* What loop.c and timer.c share: the loop itself and its timer wheel. Included by nobody else. */
#ifndef EV_LOOP_PRIV_H
#define EV_LOOP_PRIV_H

#include "ev/loop.h"

/*
 * Timer wheel: WHEEL_LEVELS wheels of 64 slots; a slot of level n spans 64^n ticks. A timer sits on
 * the level of the highest 6-bit digit in which its tick differs from `cur`, in the slot of that
 * digit. So every occupied slot lies ahead of `cur`, and whatever is on a lower level is due before
 * everything on a higher one: the next slot to look at is two find-first-set instructions away.
 *
 * Eight levels are 48 bits of ticks; a uint64_t of nanoseconds has fewer than 2^45.
 */
#define WHEEL_BITS   6
#define WHEEL_SLOTS  (1u << WHEEL_BITS)
#define WHEEL_LEVELS 8

struct wheel {
	uint64_t cur; /* everything up to this tick has run */
	uint64_t levels; /* bit n: level n has a bit set below */
	uint64_t used
		[WHEEL_LEVELS]; /* bit n: slot n may be occupied; stale bits are cleared lazily */
	struct list slots[WHEEL_LEVELS][WHEEL_SLOTS];
};

#define LOOP_BATCH 256

struct loop {
	struct loop_clock clock;
	uint64_t awake_since; /* ns, end of the last epoll_wait */
	int epoll_fd;
	bool is_stopping;
	unsigned n_batch;
	struct list deferred;
	struct list hooks;
	struct arena scratch;
	struct loop_stats stats;
	struct wheel wheel;
	struct profile profile;
	struct epoll_event batch[LOOP_BATCH];
};

void wheel_init(struct wheel *w, uint64_t tick);
/* First tick at which something may be due, or UINT64_MAX. May be too early, never too late. */
uint64_t wheel_next(struct wheel *w);
/* Runs what is due up to `tick`, measured where `p` is on; returns how many. */
unsigned wheel_advance(struct wheel *w, uint64_t tick, struct profile *p);
uint64_t loop_clock_ns(void); /* CLOCK_MONOTONIC, read now */

#endif
