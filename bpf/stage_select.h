/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage select: flow hash, Maglev slot, backend. As long as the slot has not moved there is no state per
 * flow: all hosts with the same tables and seed give the same answer.
 */
#ifndef HG_BPF_STAGE_SELECT_H
#define HG_BPF_STAGE_SELECT_H

#include "bpf/stage_flow.h"
#include "bpf/stage_quic.h"
#include "bpf/stage_service.h"

#define SVC_SELECT_MORE (HG_SVC_TRACK_ON | HG_SVC_QUIC_CID)

INLINE void hash_flow(struct pkt *p, bool v6)
{
	struct hg_flow_key k = { .sport = p->sport, .dport = p->dport, .proto = p->proto };

	if (p->svc->flags & HG_SVC_NO_PORT_HASH)
		k.sport = k.dport = 0;
	read_addrs(p, v6, k.src, k.dst);
	p->hash = hg_flow_hash(&k, ro.hash_seed);
}

/* What FLOW_COUNT needs to know of this packet; 0: flows of the service are not counted. */
INLINE u32 select_count(const struct pkt *p)
{
	if (p->odd & ODD_NO_PORTS || !hg_service_counts(p->svc->flags))
		return 0;
	if (p->proto == IPPROTO_UDP || p->syn) /* UDP has no other beginning than its first datagram */
		return FLOW_COUNT | FLOW_ADMIT;
	return FLOW_COUNT | flow_ends(p->ctx, p->type_off + 2 + p->l4_off);
}

/* Backend id where the slot's current owner is not the whole answer, or FLOW_REFUSED; `how`: FLOW_PEEK or 0. */
INLINE u32 select_more(struct pkt *p, u32 word, u32 how)
{
	u32 flags = p->svc->flags, ret;

	if (p->syn)
		how |= FLOW_NEW;
	if (flags & HG_SVC_QUIC_CID && p->proto == IPPROTO_UDP && !how &&
	    !(p->odd & ODD_NO_PORTS)) {
		ret = quic_route(p->ctx, p->type_off + 2 + p->l4_off + sizeof(struct udphdr),
				 p->svc->cid_offset | (u32)p->svc->cid_len << 8, p->svc->quic_block,
				 p->svc->quic_ids);
		if (ret & 0xffff)
			return ret & 0xffff;
		if (ret == QUIC_NEW)
			how |= FLOW_NEW;
	}
	if (flags & HG_SVC_TRACK_ON)
		how |= FLOW_TRACK | (how & FLOW_PEEK ? 0 : select_count(p));
	if (flags & HG_SVC_NO_AFFINITY || !(how & FLOW_TRACK || word & HG_SLOT_TRACKED))
		return HG_SLOT_CURRENT(word);
	ret = flow_select(p->hash, word, how | FLOW_SVC(p->svc->id));
	p->alt = FLOW_ALT(ret);
	return ret & 0xffff;
}

INLINE bool take_backend(struct pkt *p, u32 id)
{
	if (unlikely(!id))
		return pkt_drop(p, HG_DROP_NO_BACKEND);
	p->be = bpf_map_lookup_elem(&backends, &id);
	if (unlikely(!p->be || !(p->be->flags & HG_BE_VALID))) {
		p->be = NULL;
		return pkt_drop(p, HG_DROP_BAD_BACKEND);
	}
	return true;
}

/* From p->hash on. */
INLINE bool select_slot(struct pkt *p, u32 how)
{
	struct hg_slot_block *block;
	u32 slot, key, word, id;

	/* M = 0 gives slot 0 of a table that is not ours. */
	if (unlikely(!p->svc->slots))
		return pkt_drop(p, HG_DROP_NO_BACKEND);
	slot = hg_flow_slot(p->hash, p->svc->slots);
	key = p->svc->slots_block + slot / HG_SLOTS_PER_BLOCK;
	block = bpf_map_lookup_elem(&slots, &key);
	if (unlikely(!block))
		return pkt_drop(p, HG_DROP_INTERNAL);
	word = READ_ONCE(block->slot[slot % HG_SLOTS_PER_BLOCK]);
	id = HG_SLOT_CURRENT(word);
	if (unlikely(word & HG_SLOT_TRACKED || p->svc->flags & SVC_SELECT_MORE)) {
		id = select_more(p, word, how);
		if (id == FLOW_REFUSED)
			return pkt_drop(p, HG_DROP_MAXCONN);
	}
	return take_backend(p, id);
}

INLINE bool stage_select(struct pkt *p, bool v6)
{
	hash_flow(p, v6);
	return select_slot(p, 0);
}

#endif
