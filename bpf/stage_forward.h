/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage forward: IP in IP (RFC 2003, 2473, 4213) to the backend's address, any family inside any
 * other; GUE, the same with a UDP header between; or the frame to the backend's MAC as it is. The next
 * hop says which VLAN tag the frame leaves with (retag.h), the outer header takes DSCP and ECN of the inner one (RFC 6040 normal mode), the
 * inner TTL falls by one as on any router, so that a loop ends. IP in IP is inlined; the others are a
 * function, so that they cost it nothing. Frames with tags, before or after, are that function's too.
 */
#ifndef HG_BPF_STAGE_FORWARD_H
#define HG_BPF_STAGE_FORWARD_H

#include "bpf/capture.h"
#include "bpf/csum.h"
#include "bpf/maps.h"
#include "bpf/retag.h"
#include "bpf/too_big.h"

/*
 * VLAN tags are copied from the old head, which still lies `outer_len` behind the new one: before the
 * outer header is written over it.
 */
INLINE void copy_tags(struct pkt *p, void *data, void *end, u32 outer_len)
{
	u32a *tags = data + 2 * ETH_ALEN;
	const u32a *old = data + outer_len + 2 * ETH_ALEN;

	if ((void *)(old + MAX_VLAN_TAGS) > end)
		return;
	tags[0] = old[0];
	if (p->type_off > 2 * ETH_ALEN + VLAN_TAG_LEN)
		tags[1] = old[1];
}

/* Not by struct ethhdr: it is packed, and the compiler would write byte by byte. */
INLINE void write_macs(void *data, const union hg_neigh *neigh, const u8 *src_mac)
{
	*(u32a *)data = *(const u32a *)neigh->mac;
	*(u16a *)(data + 4) = *(const u16a *)(neigh->mac + 4);
	*(u32a *)(data + 6) = *(const u32a *)src_mac;
	*(u16a *)(data + 10) = *(const u16a *)(src_mac + 4);
}

/* `extra`: bytes between the outer IP header and the inner packet. */
INLINE void write_outer_ipv4(struct pkt *p, void *l3, u32 proto, u32 tos, u32 extra)
{
	u32 len = hg_be16(p->l3_len + sizeof(struct iphdr) + extra);
	u32 entropy = (u32)p->hash & p->be->entropy_mask;
	u32 sum = p->be->csum_base + len + hg_be16(tos) + hg_be16(proto);
	u32a *w = l3;

	sum = csum_fold(csum_add32(sum, entropy));
	/* Whole words: the compiler would turn field stores into as many single instructions. */
	w[0] = hg_be16(0x4500 | tos) | len << 16;
	w[1] = hg_be32(HG_OUTER_FRAG_OFF);
	w[2] = hg_be16(HG_OUTER_TTL << 8 | proto) | (u32)(u16)~sum << 16;
	w[3] = p->be->outer_src[3] | entropy;
	w[4] = p->be->addr[3];
}

INLINE void write_outer_ipv6(struct pkt *p, void *l3, u32 proto, u32 tos, u32 extra)
{
	u32a *w = l3;
	u64a *dst = l3 + 8;
	const u64a *src = (const u64a *)p->be->outer_src, *to = (const u64a *)p->be->addr;

	w[0] = hg_be32(6u << 28 | tos << 20 | ((u32)p->hash & 0xfffff));
	w[1] = hg_be16(p->l3_len + extra) | (u32)hg_be16(proto << 8 | HG_OUTER_TTL) << 16;
	dst[0] = src[0];
	dst[1] = src[1];
	w[5] |= (u32)p->hash & p->be->entropy_mask;
	dst[2] = to[0];
	dst[3] = to[1];
}

/* TTL minus one in the inner header; false when that leaves nothing. */
INLINE bool age(void *l3, bool v6)
{
	struct ipv6hdr *ip6 = l3;
	struct iphdr *ip = l3;

	if (v6) {
		if (unlikely(ip6->hop_limit <= 1))
			return false;
		ip6->hop_limit--;
		return true;
	}
	if (unlikely(ip->ttl <= 1))
		return false;
	csum_ttl_dec(ip);
	return true;
}

/* The packet does not fit where `mtu` bytes do; stage_forward() tells the sender. Always false. */
INLINE bool too_big(struct pkt *p, u32 mtu)
{
	p->fits = mtu;
	return pkt_drop(p, HG_DROP_TOO_BIG);
}

/*
 * Moves the head and writes outer IP header, MACs and tags; `outer_v6` and `v6` are constants of the
 * four cases. `proto` is the outer header's; its payload has `extra` bytes before the packet.
 */
INLINE bool encapsulate(struct pkt *p, union hg_neigh neigh, u32 proto, u32 extra, bool v6,
			bool outer_v6)
{
	u32 outer_len = (outer_v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) + extra, tos;
	void *data, *end, *type;

	if (unlikely(p->l3_len + outer_len > p->be->mtu))
		return too_big(p, p->be->mtu - outer_len);
	tos = v6 ? (u8)(__builtin_bswap16(*(u16a *)p->l3) >> 4) : ((u8 *)p->l3)[1];
	if (unlikely(!age(p->l3, v6)))
		return pkt_drop(p, HG_DROP_TTL);
	if (unlikely(bpf_xdp_adjust_head(p->ctx, -(int)outer_len)))
		return pkt_drop(p, HG_DROP_NO_HEADROOM);
	data = (void *)(long)p->ctx->data;
	end = (void *)(long)p->ctx->data_end;
	type = data + p->type_off;
	/* Never so: the inner packet alone is longer. For the verifier. */
	if (unlikely(data + sizeof(struct ethhdr) > end || type + 2 + outer_len > end))
		return pkt_drop(p, HG_DROP_INTERNAL);
	if (unlikely(p->type_off != NO_TAG))
		copy_tags(p, data, end, outer_len);
	write_macs(data, &neigh, p->be->src_mac);
	*(u16a *)type = outer_v6 ? hg_be16(ETH_P_IPV6) : hg_be16(ETH_P_IP);
	if (outer_v6)
		write_outer_ipv6(p, type + 2, proto, tos, extra);
	else
		write_outer_ipv4(p, type + 2, proto, tos, extra);
	return true;
}

INLINE bool forward_ipip(struct pkt *p, union hg_neigh neigh, bool v6)
{
	u32 proto = v6 ? IPPROTO_IPV6 : IPPROTO_IPIP;

	if (p->be->flags & HG_BE_OUTER_V6)
		return encapsulate(p, neigh, proto, 0, v6, true);
	return encapsulate(p, neigh, proto, 0, v6, false);
}

#include "bpf/forward_other.h"

/*
 * Out of the interface it came from, or to the device that the backend is behind. A device that is not in
 * the map would lose the frame without a word: drivers say nothing about frames they refuse.
 */
INLINE void send(struct pkt *p)
{
	if (likely(p->be->ifindex == p->ctx->ingress_ifindex))
		p->verdict = HG_VERDICT_TX;
	else if (bpf_redirect_map(&xdp_ports, p->be->ifindex, 0) == XDP_REDIRECT)
		p->verdict = HG_VERDICT_REDIRECT;
	else
		pkt_drop(p, HG_DROP_NO_REDIRECT);
}

/* The methods of well-formed packets, without a call; what is rare in them is left to the function. */
INLINE bool forward_plain(struct pkt *p, union hg_neigh neigh, bool v6)
{
	if (unlikely(neigh.state != HG_NEIGH_OK))
		return forward_other(p, v6);
	switch (p->svc->mode) {
	case HG_MODE_L2:
		return forward_l2(p, neigh, v6);
	case HG_MODE_GUE:
		if (unlikely(p->alt || p->be->flags & HG_BE_OUTER_V6))
			break;
		return forward_gue(p, neigh, v6, false, NULL, 0);
	}
	return forward_other(p, v6);
}

/* `plain`: a constant, for the path of well-formed packets, which have no tag. */
INLINE void stage_forward(struct pkt *p, bool v6, bool plain)
{
	union hg_neigh neigh = { .word = READ_ONCE(p->be->neigh.word) };
	bool sent;

	capture_before(p);
	if (likely(p->svc->mode == HG_MODE_IPIP && neigh.state == HG_NEIGH_OK &&
		   p->type_off == NO_TAG))
		sent = forward_ipip(p, neigh, v6);
	else
		sent = plain ? forward_plain(p, neigh, v6) : forward_other(p, v6);
	if (unlikely(!sent)) {
		if (p->drop == HG_DROP_TOO_BIG && reply_too_big(p->ctx, p->fits)) {
			p->drop = HG_DROP_NONE;
			p->verdict = HG_VERDICT_REPLY;
		}
		return;
	}
	send(p);
}

#endif
