/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of a server (struct hg_live_server) or a service (hg_live) now, and how many there may be: one atomic word each. */
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

/*
 * The same for a server, which the workers count at, too. Who is refused leaves the word alone: else a flood of those
 * would keep the workers from a place that comes free.
 */
INLINE bool server_begin(struct hg_live_server *l)
{
	u64 before;
	u32 limit;

	if (!l)
		return true;
	limit = READ_ONCE(l->limit);
	if (limit && hg_live_all(READ_ONCE(l->word)) >= limit)
		return false;
	before = __sync_fetch_and_add(&l->word, HG_LIVE_XDP);
	if (!limit || hg_live_all(before) < limit)
		return true;
	__sync_fetch_and_add(&l->word, -HG_LIVE_XDP);
	return false;
}

INLINE void server_end(struct hg_live_server *l)
{
	if (l)
		__sync_fetch_and_add(&l->word, -HG_LIVE_XDP);
}

#endif
