/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The general parser: up to two VLAN tags, IPv4 options, IPv6 extension headers, fragments, other
 * protocols, and everything malformed. A function of its own, so that the registers and the time of
 * well-formed packets are not spent on it, and the verifier sees its loop once.
 */
#ifndef HG_BPF_PARSE_SLOW_H
#define HG_BPF_PARSE_SLOW_H

#include "bpf/pkt.h"

#define IP_MF_OR_OFFSET hg_be16(0x3fff)
#define IP_OFFSET	hg_be16(0x1fff)
#define MAX_EXT_HEADERS 6
#define MAX_EXT_BYTES	1024
#define MAX_L4_OFF \
	(2 * MAX_EXT_BYTES + 2048) /* the walk stops behind MAX_EXT_BYTES and one header more */

enum parsed_found {
	PARSED_NO_IP = 0,
	PARSED_CUT_SHORT, /* no whole IP header: nobody can claim it */
	PARSED_IP,
};

struct parsed {
	u32 type_off; /* as in struct pkt */
	u32 l3_len;
	u32 l4_off, frag_id; /* as in struct pkt */
	__be16 sport, dport;
	u8 proto;
	u8 odd;
	u8 v6;
	u8 syn;
	u8 found; /* enum parsed_found */
	u8 pad[3];
};

struct ext_header {
	u8 next;
	u8 len;
	__be16 frag_off; /* of a fragment header: offset in the upper 13 bits, last bit: more */
	__be32 frag_id;
};

INLINE bool is_vlan(__be16 type)
{
	return type == hg_be16(ETH_P_8021Q) || type == hg_be16(ETH_P_8021AD);
}

/* Of the TCP flags SYN and ACK, SYN alone. */
INLINE bool tcp_is_syn(const void *l4)
{
	return (((const u8 *)l4)[13] & 0x12) == 0x02;
}

INLINE void set_defect(struct parsed *s)
{
	s->odd = (s->odd & ~ODD_DEFECT) | HG_DROP_BAD_HEADER;
}

/*
 * The source of the packet at `l3` is one host. Nobody else may be sent an answer (RFC 1122 3.2.2, RFC 4443 2.4
 * (e.6)): it cannot have asked.
 */
INLINE bool source_is_host(const void *l3, bool v6)
{
	const u64a *src6 = l3 + 8;
	u32 first = *(const u8 *)(l3 + (v6 ? 8 : 12));

	if (v6)
		return first != 0xff && (src6[0] || src6[1]);
	return first && first != 127 && first < 224;
}

/* Sets type_off; the type found there, 0 when the frame ends before. */
INLINE __be16 slow_ethernet(struct parsed *s, void *data, void *end)
{
	__be16 type;
	u32 off = sizeof(struct ethhdr);
	int i;

	if (data + sizeof(struct ethhdr) > end)
		return 0;
	type = *(u16a *)(data + 2 * ETH_ALEN);
#pragma clang loop unroll(full)
	for (i = 0; i < MAX_VLAN_TAGS; i++) {
		if (!is_vlan(type))
			break;
		if (data + off + VLAN_TAG_LEN > end)
			return 0;
		type = *(u16a *)(data + off + 2);
		off += VLAN_TAG_LEN;
	}
	s->type_off = off - 2;
	return type;
}

/*
 * A length field that promises more than the frame has is never believed. Of a frame in several pages only
 * the first lies between data and data_end (`have` bytes of it from the IP header on).
 */
INLINE void check_length(struct xdp_md *ctx, struct parsed *s, u32 have, u32 header_len)
{
	if (unlikely(s->l3_len > have))
		have = (u32)bpf_xdp_get_buff_len(ctx) - (s->type_off + 2);
	if (s->l3_len <= have && s->l3_len >= header_len)
		return;
	set_defect(s);
	s->l3_len = have;
}

/*
 * Ports and flags of TCP and UDP at `l4`, `l4_off` from the IP header. Four bytes are enough to be
 * looked up; a service takes the packet only with a whole header, in the frame and by its own length.
 */
INLINE void slow_l4(struct parsed *s, void *l4, void *end, u32 l4_off)
{
	u32 need;

	if (s->proto == IPPROTO_TCP)
		need = sizeof(struct tcphdr);
	else if (s->proto == IPPROTO_UDP)
		need = sizeof(struct udphdr);
	else
		return;
	if (s->l3_len < l4_off + need)
		set_defect(s);
	if (l4 + 4 > end) {
		set_defect(s);
		return;
	}
	s->sport = ((u16a *)l4)[0];
	s->dport = ((u16a *)l4)[1];
	s->odd &= ~ODD_NO_PORTS;
	if (s->proto == IPPROTO_TCP && l4 + sizeof(struct tcphdr) <= end)
		s->syn = tcp_is_syn(l4);
}

INLINE void slow_ipv4(struct xdp_md *ctx, struct parsed *s, void *l3, void *end)
{
	const struct iphdr *ip = l3;
	u32 hlen = (*(const u8 *)l3 & 0x0f) * 4;

	s->proto = ip->protocol;
	s->l3_len = __builtin_bswap16(ip->tot_len);
	check_length(ctx, s, end - l3, hlen);
	if (hlen < sizeof(*ip) || ip->version != 4) {
		set_defect(s);
		return;
	}
	s->l4_off = hlen;
	if (ip->frag_off & IP_MF_OR_OFFSET) {
		s->odd |= ODD_FRAGMENT;
		s->frag_id = ip->id;
		if (ip->frag_off & IP_OFFSET) {
			s->odd |= ODD_LATER;
			return;
		}
	}
	slow_l4(s, l3 + hlen, end, hlen);
}

/* Walks the extension headers; the offset of the transport from `l3`, 0 when there is none. */
INLINE u32 walk_ext_headers(struct parsed *s, void *l3, void *end)
{
	u32 off = sizeof(struct ipv6hdr), next = s->proto;
	struct ext_header *h;
	int i;

#pragma clang loop unroll(disable)
	for (i = 0; i < MAX_EXT_HEADERS; i++) {
		s->proto = next;
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS &&
		    next != IPPROTO_FRAGMENT && next != IPPROTO_AH)
			return off;
		if (off > MAX_EXT_BYTES)
			break;
		h = l3 + off;
		if ((void *)(h + 1) > end)
			break;
		next = h->next;
		if (s->proto == IPPROTO_FRAGMENT) {
			/* Offset 0 and no more to come: whole, handled as such (RFC 6946). */
			if (h->frag_off & hg_be16(0xfff9))
				s->odd |= ODD_FRAGMENT;
			s->frag_id = h->frag_id;
			off += sizeof(*h);
			if (h->frag_off & hg_be16(0xfff8)) {
				s->odd |= ODD_LATER;
				s->proto = next;
				return 0;
			}
		} else if (s->proto == IPPROTO_AH) {
			off += (h->len + 2) * 4;
		} else {
			off += (h->len + 1) * 8;
		}
	}
	set_defect(s);
	return 0;
}

INLINE void slow_ipv6(struct xdp_md *ctx, struct parsed *s, void *l3, void *end)
{
	const struct ipv6hdr *ip = l3;
	u32 off;

	s->v6 = 1;
	s->proto = ip->nexthdr;
	s->l3_len = __builtin_bswap16(ip->payload_len) + sizeof(*ip);
	check_length(ctx, s, end - l3, sizeof(*ip));
	if (ip->version != 6) {
		set_defect(s);
		return;
	}
	off = walk_ext_headers(s, l3, end);
	if (off && off < MAX_L4_OFF) {
		s->l4_off = off;
		slow_l4(s, l3 + off, end, off);
	}
}

/* Fills `s`, which the caller has cleared (older verifiers want it initialised). */
GLOBAL int parse_slow(struct xdp_md *ctx, struct parsed *s)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__be16 type;
	void *l3;

	if (!s)
		return 0;
	__builtin_memset(s, 0, sizeof(*s));
	s->odd = ODD_NO_PORTS;
	type = slow_ethernet(s, data, end);
	l3 = data + s->type_off + 2;
	s->found = PARSED_CUT_SHORT;
	if (type == hg_be16(ETH_P_IP)) {
		if (l3 + sizeof(struct iphdr) > end)
			return 0;
		slow_ipv4(ctx, s, l3, end);
	} else if (type == hg_be16(ETH_P_IPV6)) {
		if (l3 + sizeof(struct ipv6hdr) > end)
			return 0;
		slow_ipv6(ctx, s, l3, end);
	} else {
		s->found = PARSED_NO_IP;
		return 0;
	}
	s->found = PARSED_IP;
	return 0;
}

#endif
