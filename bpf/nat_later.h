/* SPDX-License-Identifier: BSD-2-Clause */
/* Later fragments of NAT's datagrams, see nat_fragment.h: in both directions, verdict and all. */
#ifndef HG_BPF_NAT_LATER_H
#define HG_BPF_NAT_LATER_H

#include "bpf/stage_nat.h"

/* Does the packet have the addresses that these two of the connection have? */
INLINE bool nat_later_is(const struct hg_nat_conn *c, const struct pkt *p, bool v6, u32 src,
			 u32 dst)
{
	const struct hg_nat_addrs *a;
	const u32a *w = p->l3;

	if (c->proto != p->proto || c->v6 != v6 ||
	    HG_NAT_STATE(READ_ONCE(c->life)) <= HG_NAT_CLAIMED)
		return false;
	if (!v6)
		return c->last[src] == w[3] && c->last[dst] == w[4];
	a = nat_addrs_of(c);
	return a && addr_is((const __be32 *)(w + 2), a->addr[src]) &&
	       addr_is((const __be32 *)(w + 6), a->addr[dst]);
}

INLINE bool nat_later_rewrite(struct pkt *p, const struct hg_nat_conn *c, bool v6, bool back)
{
	struct iphdr *ip = p->l3;

	if (!nat_write_addrs(p->l3, c, v6, back ? HG_NAT_VIP : HG_NAT_EDGE,
			     back ? HG_NAT_CLIENT : HG_NAT_BACKEND))
		return pkt_drop(p, HG_DROP_INTERNAL);
	if (!v6)
		ip->check = csum_shift(ip->check, back ? (u16)~c->ip_delta : c->ip_delta);
	return true;
}

/* Where it goes, and how long it may be there; false: nowhere. */
INLINE bool nat_later_way(struct pkt *p, const struct hg_nat_conn *c, bool back,
			  union hg_neigh *neigh, union hg_neigh *own, u32 *ret_ifindex)
{
	u32 id = c->backend;
	struct hg_backend *be;

	*ret_ifindex = c->ifindex;
	if (back) {
		neigh->word = READ_ONCE(c->client.word);
		own->word = READ_ONCE(c->own.word);
		return !nat_mtu_back(p, c->ifindex) || pkt_drop(p, HG_DROP_TOO_BIG);
	}
	be = bpf_map_lookup_elem(&backends, &id);
	if (!be)
		return pkt_drop(p, HG_DROP_INTERNAL);
	*ret_ifindex = be->ifindex;
	neigh->word = READ_ONCE(be->neigh.word);
	__builtin_memcpy(own->mac, be->src_mac, sizeof(own->mac));
	if (!(neigh->state & HG_NEIGH_OK))
		return pkt_drop(p, HG_DROP_NO_NEIGHBOUR);
	return p->l3_len <= be->mtu || pkt_drop(p, HG_DROP_TOO_BIG);
}

INLINE int nat_later_family(struct pkt *p, u64 what, bool v6)
{
	u32 row = nat_fragment_find(fragment_hash(p, v6)), ifindex = 0;
	struct hg_nat_conn *c = bpf_map_lookup_elem(&nat_conns, &row);
	union hg_neigh neigh, own = { .word = 0 };
	bool back = what & NAT_TO_CLIENT;

	if (!c || !(back ? nat_later_is(c, p, v6, HG_NAT_BACKEND, HG_NAT_EDGE)
			 : nat_later_is(c, p, v6, HG_NAT_CLIENT, HG_NAT_VIP))) {
		if (back) {
			pkt_end(p, HG_VERDICT_PASS_NOT_OURS);
			return report(p);
		}
		pkt_drop(p, HG_DROP_FRAGMENT);
		return nat_report(p, 0, NAT_SERVICE(what), false, 0);
	}
	count_event(HG_EVENT_FRAG_FOLLOWED);
	nat_capture_in(p, c);
	if (nat_later_way(p, c, back, &neigh, &own, &ifindex)) {
		if (!age(p->l3, v6)) {
			pkt_drop(p, HG_DROP_TTL);
		} else if (nat_later_rewrite(p, c, v6, back) && nat_link(p, &neigh, own.mac)) {
			nat_send(p, ifindex);
		}
	}
	return nat_report(p, c->backend, c->service, back, ifindex);
}

/* A later fragment for a NAT service, or with NAT_TO_CLIENT perhaps of one. */
GLOBAL int nat_later(struct xdp_md *ctx, u64 what)
{
	struct pkt p = { .ctx = ctx };
	enum family family = parse_any(&p);

	p.tap = what & NAT_TAP ? TAP_ASK : 0;
	if (family == FAMILY_V4)
		return nat_later_family(&p, what, false);
	if (family == FAMILY_V6)
		return nat_later_family(&p, what, true);
	return report(&p);
}

#endif
