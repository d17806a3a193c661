/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage parse. parse_fast() is for packets as they should be: Ethernet, IPv4 or IPv6 without options,
 * TCP or UDP, lengths that agree. parse_any() knows the rest. Nothing is dropped here: whose packet it
 * is is not known yet, and what is not ours passes whatever its shape.
 */
#ifndef HG_BPF_PARSE_H
#define HG_BPF_PARSE_H

#include "bpf/parse_slow.h"

enum family {
	FAMILY_NONE,
	FAMILY_V4,
	FAMILY_V6
};

/* `l4`, `l4_off` from the IP header, has 20 bytes in the frame. False: not so simple. */
INLINE bool parse_l4_fast(struct pkt *p, const void *l4, u32 l4_off)
{
	if (likely(p->proto == IPPROTO_TCP)) {
		if (unlikely(p->l3_len < l4_off + sizeof(struct tcphdr)))
			return false;
		p->syn = tcp_is_syn(l4);
	} else if (p->proto != IPPROTO_UDP || p->l3_len < l4_off + sizeof(struct udphdr)) {
		return false;
	}
	p->l4_off = l4_off;
	p->sport = ((const u16a *)l4)[0];
	p->dport = ((const u16a *)l4)[1];
	return true;
}

/*
 * Lengths are compared as numbers, not by adding to the packet pointer: older verifiers
 * (6.1) lose the bounds of a swapped 16-bit value and refuse the addition.
 */
INLINE bool parse_ipv4_fast(struct pkt *p, void *end)
{
	const struct iphdr *ip = p->l3;

	/* Even the smallest Ethernet frame carries 46 bytes, so UDP is held to TCP's length too. */
	if (unlikely(p->l3 + sizeof(*ip) + sizeof(struct tcphdr) > end))
		return false;
	if (unlikely(*(const u8 *)ip != 0x45 || ip->frag_off & IP_MF_OR_OFFSET))
		return false;
	p->l3_len = __builtin_bswap16(ip->tot_len);
	if (unlikely(p->l3_len > (u32)(end - p->l3)))
		return false;
	p->proto = ip->protocol;
	return parse_l4_fast(p, ip + 1, sizeof(*ip));
}

INLINE bool parse_ipv6_fast(struct pkt *p, void *end)
{
	const struct ipv6hdr *ip = p->l3;

	if (unlikely(p->l3 + sizeof(*ip) + sizeof(struct tcphdr) > end))
		return false;
	if (unlikely((*(const u8 *)ip & 0xf0) != 0x60))
		return false;
	p->l3_len = __builtin_bswap16(ip->payload_len) + sizeof(*ip);
	if (unlikely(p->l3_len > (u32)(end - p->l3)))
		return false;
	p->proto = ip->nexthdr;
	return parse_l4_fast(p, ip + 1, sizeof(*ip));
}

/* A packet of the plain sort; FAMILY_NONE: look closer, `p` is as it was but for its fields of parsing. */
INLINE enum family parse_fast(struct pkt *p)
{
	void *data = (void *)(long)p->ctx->data, *end = (void *)(long)p->ctx->data_end;
	__be16 type;

	if (unlikely(data + sizeof(struct ethhdr) > end))
		return FAMILY_NONE;
	type = *(u16a *)(data + 2 * ETH_ALEN);
	p->l3 = data + sizeof(struct ethhdr);
	p->type_off = 2 * ETH_ALEN;
	if (likely(type == hg_be16(ETH_P_IP)))
		return parse_ipv4_fast(p, end) ? FAMILY_V4 : FAMILY_NONE;
	if (type == hg_be16(ETH_P_IPV6))
		return parse_ipv6_fast(p, end) ? FAMILY_V6 : FAMILY_NONE;
	return FAMILY_NONE;
}

/* Any packet; FAMILY_NONE: the verdict is given. */
INLINE enum family parse_any(struct pkt *p)
{
	struct parsed s = {};
	void *end;

	parse_slow(p->ctx, &s);
	p->verdict = HG_VERDICT_PASS_NOT_IP;
	if (s.found == PARSED_NO_IP)
		return FAMILY_NONE;
	p->verdict = HG_VERDICT_PASS_NOT_OURS;
	p->type_off = s.type_off & 31;
	p->l3 = (void *)(long)p->ctx->data + p->type_off + 2;
	end = (void *)(long)p->ctx->data_end;
	if (s.found == PARSED_CUT_SHORT ||
	    p->l3 + (s.v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > end)
		return FAMILY_NONE;
	p->l3_len = s.l3_len;
	p->l4_off = s.l4_off;
	p->frag_id = s.frag_id;
	p->proto = s.proto;
	p->sport = s.sport;
	p->dport = s.dport;
	p->odd = s.odd;
	p->syn = s.syn;
	return s.v6 ? FAMILY_V6 : FAMILY_V4;
}

#endif
