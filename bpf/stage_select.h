/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage select: flow hash, Maglev slot, backend. No state per flow: all hosts with the same tables
 * and seed give the same answer. `base` and the tracked bit of a slot are not consulted: writers
 * leave the bit clear.
 */
#ifndef HG_BPF_STAGE_SELECT_H
#define HG_BPF_STAGE_SELECT_H

#include "bpf/maps.h"

INLINE bool stage_select(struct pkt *p, bool v6)
{
	struct hg_flow_key k = { .sport = p->sport, .dport = p->dport, .proto = p->proto };
	struct hg_slot_block *block;
	u32 slot, key, id;

	if (p->svc->flags & HG_SVC_NO_PORT_HASH)
		k.sport = k.dport = 0;
	read_addrs(p, v6, k.src, k.dst);
	p->hash = hg_flow_hash(&k, ro.hash_seed);
	/* M = 0 gives slot 0 of a table that is not ours. */
	if (unlikely(!p->svc->slots))
		return pkt_drop(p, HG_DROP_NO_BACKEND);
	slot = hg_flow_slot(p->hash, p->svc->slots);
	key = p->svc->slots_block + slot / HG_SLOTS_PER_BLOCK;
	block = bpf_map_lookup_elem(&slots, &key);
	if (unlikely(!block))
		return pkt_drop(p, HG_DROP_INTERNAL);
	id = HG_SLOT_CURRENT(READ_ONCE(block->slot[slot % HG_SLOTS_PER_BLOCK]));
	if (unlikely(!id))
		return pkt_drop(p, HG_DROP_NO_BACKEND);
	p->be = bpf_map_lookup_elem(&backends, &id);
	if (unlikely(!p->be || !(p->be->flags & HG_BE_VALID))) {
		p->be = NULL;
		return pkt_drop(p, HG_DROP_BAD_BACKEND);
	}
	return true;
}

#endif
