/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of a backend or a service now, and how many there may be: one atomic word each (struct hg_live). */
#ifndef HG_BPF_CONN_COUNT_H
#define HG_BPF_CONN_COUNT_H

#include "bpf/maps_nat.h"

/* False: that would be one more than allowed. */
INLINE bool live_begin(struct hg_live *l)
{
	u32 limit, before;

	if (!l)
		return true;
	limit = READ_ONCE(l->limit);
	before = __sync_fetch_and_add(&l->conns, 1);
	if (!limit || before < limit)
		return true;
	__sync_fetch_and_add(&l->conns, -1);
	return false;
}

INLINE void live_end(struct hg_live *l)
{
	if (l)
		__sync_fetch_and_add(&l->conns, -1);
}

#endif
