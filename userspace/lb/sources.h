/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel tier knows of a client, read from its mapped maps. Any thread; no system call. */
#ifndef LB_SOURCES_H
#define LB_SOURCES_H

#include <headgate/limits.h>
#include <headgate/live.h>
#include <stdint.h>

#include "base/addr.h"

/* The maps live as long as the process. All NULL: there is no kernel tier. */
struct source_view {
	const struct hg_control *control;
	const struct hg_live_line *live;
	const struct hg_seen_line *seen;
	uint32_t hz, tick_shift; /* of the program's clock */
};

enum source_fact {
	SOURCE_CONNS, /* connections to services of the L7 tier now */
	SOURCE_SYN_RATE, /* per second, in the present tick or the one before, whichever had more */
	SOURCE_DROPPED, /* packets that the guard dropped since it has been watching */
};
/* 0, or -ENOENT: no kernel tier, no IP address. `now_ns`: CLOCK_MONOTONIC. */
int source_ask(const struct source_view *v, const struct addr *a, uint64_t now_ns, enum source_fact f,
	       int64_t *ret);

#endif
