/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maps that the balancer and the agent both have, each in its own instance, and the row of the
 * current CPU.
 */
#ifndef HG_BPF_MAPS_COMMON_H
#define HG_BPF_MAPS_COMMON_H

#include "bpf/pkt.h"

/* Verdicts and drop reasons, row = cpu. Writer: this program; a missing row leaves it uncounted. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_verdict_counters);
} xdp_verdicts SEC(".maps");

/* One row, written by the loader once: what is loaded here, for the next daemon that finds the pins. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_meta);
} meta SEC(".maps");

INLINE void count_verdict(u32 cpu, u32 verdict, u32 drop)
{
	struct hg_verdict_counters *c = bpf_map_lookup_elem(&xdp_verdicts, &cpu);

	if (unlikely(!c))
		return;
	c->verdict[verdict & 7]++;
	if (unlikely(drop))
		c->drop[drop & 31]++;
}

INLINE void count_event(enum hg_event event)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct hg_verdict_counters *c = bpf_map_lookup_elem(&xdp_verdicts, &cpu);

	if (c)
		c->event[event & 31]++;
}

#endif
