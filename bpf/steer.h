/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Behind the stages: packets that pass to the L7 tier go to the CPU that their flow belongs to. Only plain ones:
 * what has tags, options or extension headers, and fragments, stay where they came in.
 */
#ifndef HG_BPF_STEER_H
#define HG_BPF_STEER_H

#include <headgate/steer.h>

#include "bpf/pkt.h"

/* Writer: control thread. A CPU that is not in it takes nothing: the packet stays. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} steer_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_steer);
} steer SEC(".maps");

/* Of the flow; 0: nothing is steered. The packet is still as it came. */
INLINE u32 steer_hash(const struct pkt *p, bool v6)
{
	u64 ports = (u64)p->sport << 16 | p->dport;
	const struct hg_steer *s;
	const u64a *w = p->l3;
	u32 zero = 0;

	s = bpf_map_lookup_elem(&steer, &zero);
	if (likely(!s || !READ_ONCE(s->n)))
		return 0;
	if (v6)
		return (u32)hg_mix64(w[1] ^ w[3], w[2] ^ w[4] ^ ports) | 1;
	return (u32)hg_mix64(*(const u64a *)(p->l3 + 12), ports) | 1;
}

GLOBAL int steer_to(u32 hash)
{
	u32 zero = 0;
	const struct hg_steer *s = bpf_map_lookup_elem(&steer, &zero);
	u64 i;

	if (!s)
		return XDP_PASS;
	i = (u64)hash * READ_ONCE(s->n) >> 32;
	return bpf_redirect_map(&steer_cpus, s->cpu[i & (HG_STEER_MAX - 1)], XDP_PASS);
}

#endif
