/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage fragment: the first fragment of a datagram has the ports, so it finds service and backend as any
 * packet does, and leaves both behind for the later ones. A later one that comes first finds nothing: it is
 * not kept back (there is nowhere to keep it), and the sender's retransmission or the next datagram makes
 * it good. Odd packets only: no well-formed one comes here.
 */
#ifndef HG_BPF_STAGE_FRAGMENT_H
#define HG_BPF_STAGE_FRAGMENT_H

#include "bpf/fragment_line.h"
#include "bpf/stage_select.h"

/* Words have the backend id below the hash, `meta` the port above the time. */
GLOBAL u32 fragment_store(u64 hash, u32 id, u32 port)
{
	u32 index = hg_line_of(hash, ro.fragment_mask), now = tick_now(), way;
	struct hg_line *l = bpf_map_lookup_elem(&fragments, &index);

	if (!l)
		return 0;
	way = fragment_way(l, hash, 16, now);
	if (way >= HG_LINE_WAYS)
		return 0;
	l->meta[way] = port << 16 | now;
	*(volatile u64 *)&l->word[way] = HG_WORD_MAKE(hash, id);
	count_event(HG_EVENT_FRAG_FIRST);
	return 0;
}

/* Port as it lies in the upper half, backend id in the lower; 0: not known, or too long ago. */
GLOBAL u32 fragment_find(u64 hash)
{
	u32 index = hg_line_of(hash, ro.fragment_mask), meta;
	struct hg_line *l = bpf_map_lookup_elem(&fragments, &index);
	u64 word;

	if (!l || !fragment_known(l, hash, 16, &word, &meta))
		return 0;
	return (meta & 0xffff0000) | HG_WORD_BACKEND(word);
}

/* Before the service is looked up: gives a later fragment the port of its first one. */
INLINE void fragment_follow(struct pkt *p, bool v6)
{
	u32 found;

	if (!(p->odd & ODD_LATER))
		return;
	found = fragment_find(fragment_hash(p, v6));
	if (!found)
		return;
	p->known_be = found & 0xffff;
	p->dport = found >> 16;
	/* Port 0 is a first fragment without ports; with it, ICMP would find an address row. */
	if (p->dport)
		p->odd &= ~ODD_NO_PORTS;
}

/* Instead of stage_select() for a packet that may be a fragment. */
INLINE bool fragment_select(struct pkt *p, bool v6)
{
	bool later = p->odd & ODD_LATER;

	if (later && p->known_be) {
		hash_flow(
			p,
			v6); /* entropy of the tunnel; the source port is unknown and counts as 0 */
		count_event(HG_EVENT_FRAG_FOLLOWED);
		return take_backend(p, p->known_be);
	}
	/* Where ports do not count, the hash alone finds the first one's backend. */
	if (later && (p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP) &&
	    !(p->svc->flags & HG_SVC_NO_PORT_HASH))
		return pkt_drop(p, HG_DROP_FRAGMENT);
	if (!stage_select(p, v6))
		return false;
	if (p->odd & ODD_FRAGMENT && !later)
		fragment_store(fragment_hash(p, v6), p->be->id, p->dport);
	return true;
}

#endif
