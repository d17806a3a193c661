/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fragments through NAT: the first one has the ports, goes like any packet and leaves its connection's row behind, by
 * the addresses and the id that all of its datagram have; later ones get the addresses of that row. There are no ports
 * in them to change, and no sum but that of the IPv4 header: the transport's sum is in the first one.
 */
#ifndef HG_BPF_NAT_FRAGMENT_H
#define HG_BPF_NAT_FRAGMENT_H

#include "bpf/fragment_line.h"
#include "bpf/nat_table.h"

INLINE struct hg_cpu *nat_this_cpu(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&xdp_cpus, &cpu);
}

/* Before a first fragment is rewritten: its datagram, for nat_fragment_learn() on the same CPU. */
GLOBAL u32 nat_fragment_note(struct xdp_md *ctx)
{
	struct pkt p = { .ctx = ctx };
	enum family family = parse_any(&p);
	struct hg_cpu *mine = nat_this_cpu();

	if (!mine)
		return 0;
	if (family == FAMILY_V4)
		mine->nat_fragment = fragment_hash(&p, false);
	else if (family == FAMILY_V6)
		mine->nat_fragment = fragment_hash(&p, true);
	return 0;
}

/* Words as in `nat_lines`: 40 bits of hash, row + 1. */
GLOBAL u32 nat_fragment_learn(u32 row)
{
	u32 now = tick_now(), way, index;
	struct hg_cpu *mine = nat_this_cpu();
	struct hg_line *l;
	u64 hash;

	if (!mine)
		return 0;
	hash = mine->nat_fragment;
	index = hg_line_of(hash, ro.fragment_mask);
	l = bpf_map_lookup_elem(&nat_fragments, &index);
	if (!l)
		return 0;
	way = fragment_way(l, hash, HG_NAT_ROW_BITS, now);
	if (way >= HG_LINE_WAYS)
		return 0;
	l->meta[way] = now & 0xffff;
	*(volatile u64 *)&l->word[way] = HG_NAT_WORD(hash, row);
	count_event(HG_EVENT_FRAG_FIRST);
	return 0;
}

/* Row of the datagram's connection; NAT_NONE: not known, or too long ago. */
GLOBAL u32 nat_fragment_find(u64 hash)
{
	u32 index = hg_line_of(hash, ro.fragment_mask), meta;
	struct hg_line *l = bpf_map_lookup_elem(&nat_fragments, &index);
	u64 word;

	if (!l || !fragment_known(l, hash, HG_NAT_ROW_BITS, &word, &meta))
		return NAT_NONE;
	return ((u32)word & ((1u << HG_NAT_ROW_BITS) - 1)) - 1;
}

#endif
