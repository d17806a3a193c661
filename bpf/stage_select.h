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
#include "bpf/syn_check.h"

#define SVC_SELECT_MORE (HG_SVC_TRACK_ON | HG_SVC_QUIC_CID)

INLINE void hash_flow(struct pkt *p, bool v6)
{
	struct hg_flow_key k = { .sport = p->sport, .dport = p->dport, .proto = p->proto };

	if (p->svc->flags & HG_SVC_NO_PORT_HASH)
		k.sport = k.dport = 0;
	read_addrs(p, v6, k.src, k.dst);
	p->hash = hg_flow_hash(&k, ro.hash_seed);
}

GLOBAL u32 syn_may_begin(u32 service); /* stage_syn.h */

/* A SYN, or what brings a cookie back that was sent instead of forwarding the SYN. */
INLINE bool select_begins(const struct pkt *p, bool v6)
{
	if (p->syn)
		return true;
	if (likely(!(p->svc->flags & HG_SVC_SYN_COOKIES)) || p->proto != IPPROTO_TCP ||
	    p->odd & (ODD_FRAGMENT | ODD_NO_PORTS))
		return false;
	return syn_may_begin(p->svc->id) &&
	       brings_cookie(p->ctx, SYN_AT(p->type_off + 2, p->l4_off, v6));
}

/* What FLOW_COUNT needs to know of this packet; 0: flows of the service are not counted. */
INLINE u32 select_count(const struct pkt *p, bool begins)
{
	u32 how = FLOW_COUNT | (begins ? FLOW_ADMIT : 0);

	if (p->odd & ODD_NO_PORTS || !hg_service_counts(p->svc->flags))
		return 0;
	if (p->proto == IPPROTO_UDP) /* has no other beginning than its first datagram */
		return FLOW_COUNT | FLOW_ADMIT;
	return p->syn ? how : how | flow_ends(p->ctx, p->type_off + 2 + p->l4_off);
}

/* Backend id where the slot's current owner is not the whole answer, or FLOW_REFUSED; `how`: FLOW_PEEK or 0. */
INLINE u32 select_more(struct pkt *p, u32 word, u32 how, bool v6)
{
	u32 flags = p->svc->flags, ret;
	bool begins = how & FLOW_PEEK ? p->syn : select_begins(p, v6);

	if (begins)
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
		how |= FLOW_TRACK | (how & FLOW_PEEK ? 0 : select_count(p, begins));
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
INLINE bool select_slot(struct pkt *p, u32 how, bool v6)
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
		id = select_more(p, word, how, v6);
		if (id == FLOW_REFUSED)
			return pkt_drop(p, HG_DROP_MAXCONN);
	}
	return take_backend(p, id);
}

/* Before a SYN is answered in its name: is there a backend for it? */
GLOBAL u32 slot_has_owner(u64 hash, u32 block, u32 n)
{
	u32 slot = n ? hg_flow_slot(hash, n) : 0, key = block + slot / HG_SLOTS_PER_BLOCK;
	const struct hg_slot_block *b = bpf_map_lookup_elem(&slots, &key);

	return n && b && HG_SLOT_CURRENT(READ_ONCE(b->slot[slot % HG_SLOTS_PER_BLOCK]));
}

INLINE bool has_backend(struct pkt *p, bool v6)
{
	hash_flow(p, v6);
	return slot_has_owner(p->hash, p->svc->slots_block, p->svc->slots);
}

INLINE bool stage_select(struct pkt *p, bool v6)
{
	hash_flow(p, v6);
	return select_slot(p, 0, v6);
}

#endif
