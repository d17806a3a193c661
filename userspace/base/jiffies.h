/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clock of our BPF programs. The kernel derives jiffies from CLOCK_MONOTONIC (tick_do_update_jiffies64()) and
 * lets them begin five minutes before they would wrap in 32 bits. Some are lost while it boots, so what the program
 * stamps may be a little younger than this clock. Any thread.
 */
#ifndef BASE_JIFFIES_H
#define BASE_JIFFIES_H

#include <stdint.h>
#include <time.h>

/* How many there are in a second: the coarse clock moves once per jiffy, so its resolution tells. */
static inline uint32_t jiffies_hz(void)
{
	struct timespec res = { .tv_nsec = 4000000 };

	(void)clock_getres(CLOCK_MONOTONIC_COARSE, &res);
	return (uint32_t)(1000000000 / (res.tv_nsec > 0 ? res.tv_nsec : 4000000));
}

static inline uint64_t jiffies_of(uint64_t mono_ns, uint32_t hz)
{
	return (uint32_t)(-300 * (int)hz) + mono_ns / (1000000000u / hz);
}

/* Jiffies >> shift, 16 bits: the stamp of a table's entry. */
static inline uint32_t tick_of(uint64_t mono_ns, uint32_t hz, uint32_t shift)
{
	return (uint32_t)(jiffies_of(mono_ns, hz) >> shift) & 0xffff;
}

#endif
