/* SPDX-License-Identifier: BSD-2-Clause */
/* The guard of one service: who may use it, how fast connections may begin, how many there may be. */
#ifndef HG_BPF_GUARD_SERVICE_H
#define HG_BPF_GUARD_SERVICE_H

#include <headgate/guard.h>

#include "bpf/maps.h"
#include "bpf/maps_nat.h"

/* Limits by service id. Writers: control thread; this program the time of the next SYN. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_service_guard);
} service_guard SEC(".maps");

/* Prefixes that may use a service. Writer: control thread. Miss: not allowed. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, HG_ALLOW_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct hg_allow4_key);
	__type(value, __u32);
} allow4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, HG_ALLOW_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct hg_allow6_key);
	__type(value, __u32);
} allow6 SEC(".maps");

/* Functions of their own: the key of a trie needs room on the stack, and those who call have little. */
GLOBAL u32 allow4_has(u32 addr, u32 service)
{
	struct hg_allow4_key k = { .bits = 64,
				   .service = __builtin_bswap32(service),
				   .addr = addr };

	return bpf_map_lookup_elem(&allow4, &k) != NULL;
}

GLOBAL u32 allow6_has(u64 hi, u64 lo, u32 service)
{
	struct hg_allow6_key k = { .bits = 160, .service = __builtin_bswap32(service) };

	k.addr[0] = (u32)hi;
	k.addr[1] = (u32)(hi >> 32);
	k.addr[2] = (u32)lo;
	k.addr[3] = (u32)(lo >> 32);
	return bpf_map_lookup_elem(&allow6, &k) != NULL;
}

/* One SYN, by the same rule as a source's. Two CPUs at once may let one too many through. */
INLINE bool service_takes_syn(struct hg_service_guard *g)
{
	u64 window = READ_ONCE(g->window), step = READ_ONCE(g->step);
	u64 now = bpf_jiffies64() << HG_LIMIT_FRACTION, due = READ_ONCE(g->due);

	if (!step)
		return true;
	if (due < now || due > now + window + step) /* nothing used, or by another limit */
		due = now;
	if (due - now > window)
		return false;
	*(volatile u64 *)&g->due = due + step;
	return true;
}

/* Why a packet is not wanted at this service; the source as in source_first(), `what` of GUARD_*. */
GLOBAL u32 guard_service(u64 hi, u64 lo, u32 what, u32 id)
{
	struct hg_service_guard *g = bpf_map_lookup_elem(&service_guard, &id);
	const struct hg_live *live;
	u32 flags;

	if (!g)
		return HG_DROP_NONE;
	flags = READ_ONCE(g->flags);
	if (flags & HG_GUARD_ALLOW &&
	    !(what & GUARD_V6 ? allow6_has(hi, lo, id) : allow4_has((u32)lo, id)))
		return HG_DROP_NOT_ALLOWED;
	if (!(what & GUARD_SYN))
		return HG_DROP_NONE;
	live = bpf_map_lookup_elem(&live_services, &id);
	/* Below 0 for a moment while larger maps take over, see live.c. */
	if (flags & HG_GUARD_CONNS && live && (__s32)READ_ONCE(live->conns) >= (__s32)live->limit)
		return HG_DROP_MAXCONN;
	return service_takes_syn(g) ? HG_DROP_NONE : HG_DROP_SERVICE_SYNS;
}

#endif
