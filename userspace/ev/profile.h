/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the functions that a loop calls cost: calls, time in them, time they waited for their turn. The loop's
 * thread writes, any thread reads (each number by itself) and chooses the mode. Off, a call pays one
 * predicted branch; on, two readings of the clock.
 */
#ifndef EV_PROFILE_H
#define EV_PROFILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define PROFILE_ROWS 128 /* a power of two; the daemon has some forty handlers */

enum profile_mode {
	PROFILE_AUTO, /* on while an iteration takes a millisecond and more, on average over 1,024 */
	PROFILE_OFF,
	PROFILE_ON,
};

struct profile_row {
	_Atomic uintptr_t fn; /* 0: free, and so are those behind it in its row of probes */
	_Atomic uint64_t calls, busy_ns, wait_ns;
};

struct profile {
	_Atomic uint8_t mode; /* enum profile_mode */
	_Atomic uint32_t wanted_epoch; /* another one than `epoch`: begin anew */
	uint32_t epoch; /* the loop's */
	bool is_on; /* the loop's */
	uint64_t iterations, busy_ns; /* of the loop, when they were looked at last */
	_Atomic uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC: what the rows are about; 0: nothing yet */
	struct profile_row rows[PROFILE_ROWS];
};

/* Any thread. Everything that was counted goes. */
void profile_set(struct profile *p, enum profile_mode mode);

/* The loop's thread: once per iteration, with its own totals; a call that waited and lasted so long. */
void profile_tick(struct profile *p, uint64_t now_ns, uint64_t iterations, uint64_t busy_ns);
void profile_add(struct profile *p, uintptr_t fn, uint64_t wait_ns, uint64_t busy_ns);

#endif
