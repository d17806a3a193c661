/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Agent on backends: takes the outer header off tunnels (IP in IP; GUE variants 0 and 1,
 * draft-ietf-intarea-gue) that are addressed to one of the addresses in `decap_addrs`, and hands the
 * inner packet to the kernel, in the frame and with the VLAN tags it came in. Everything else passes
 * untouched. A tunnel for us whose inner packet is no IP packet is a named drop. Outer UDP checksums
 * are not verified: the inner packet has its own. What belongs to no socket here may go on to the backend
 * that the tunnel names as alternative (second_chance.h).
 */
#include "bpf/csum.h"
#include "bpf/maps_common.h"
#include "bpf/parse_slow.h"
#include "bpf/second_chance.h"

#define GUE_CONTROL 0x20
#define GUE_HLEN    0x1f
#define ECN	    0x03
#define MAX_REMOVED 2048

/* Addresses of this host that tunnels may be sent to. Writer: control thread. Miss: not our tunnel. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HG_MAX_DECAP_ADDRS);
	__type(key, struct hg_decap_key);
	__type(value, struct hg_decap_addr);
} decap_addrs SEC(".maps");

/* The GUE header at `l4` + 8; false: not one that carries IP. */
INLINE bool read_gue(struct tunnel *t, void *l4, void *end)
{
	const struct udphdr *udp = l4;
	const u8 *gue = l4 + sizeof(*udp);

	if ((void *)(gue + 4) > end || udp->dest != hg_be16(HG_GUE_PORT))
		return false;
	t->inner += sizeof(*udp);
	if (gue[0] >> 6 == 1) { /* variant 1: an IP header at once; 4 and 6 both begin with 01 */
		t->inner_v6 = gue[0] >> 4 == 6;
		return true;
	}
	if (gue[0] >> 6 || gue[0] & GUE_CONTROL)
		return false;
	read_alternative(t, gue, end, t->inner, (gue[0] & GUE_HLEN) * 4);
	t->inner += HG_GUE_LEN + (gue[0] & GUE_HLEN) * 4;
	t->inner_v6 = gue[1] == IPPROTO_IPV6;
	return gue[1] == IPPROTO_IPIP || gue[1] == IPPROTO_IPV6;
}

/* Fills `t` and the key; t->kind stays 0 for what is no whole tunnel packet. */
INLINE void read_outer(struct tunnel *t, struct hg_decap_key *key, void *l3, void *end, __be16 type)
{
	const struct ipv6hdr *ip6 = l3;
	const struct iphdr *ip = l3;
	u32 off;

	if (type == hg_be16(ETH_P_IP)) {
		if ((void *)(ip + 1) > end || ip->version != 4)
			return;
		off = (*(const u8 *)ip & 0x0f) * 4;
		t->outer.l3_len = __builtin_bswap16(ip->tot_len);
		t->outer.proto = ip->protocol;
		t->tos = ip->tos;
		key->addr[0] = key->addr[1] = 0;
		key->addr[2] = V4_MAPPED;
		key->addr[3] = ip->daddr;
		if (off < sizeof(*ip) || ip->frag_off & IP_MF_OR_OFFSET)
			return;
	} else if (type == hg_be16(ETH_P_IPV6)) {
		if ((void *)(ip6 + 1) > end || ip6->version != 6)
			return;
		t->outer_v6 = true;
		t->outer.l3_len = __builtin_bswap16(ip6->payload_len) + sizeof(*ip6);
		t->outer.proto = ip6->nexthdr;
		t->tos = (u8)(__builtin_bswap16(*(const u16a *)l3) >> 4);
		__builtin_memcpy(key->addr, (const u32a *)l3 + 6, 16);
		off = walk_ext_headers(&t->outer, l3, end);
		if (!off || off > MAX_REMOVED || t->outer.odd & ODD_FRAGMENT)
			return;
	} else {
		return;
	}
	t->inner = off;
	if (t->outer.proto == IPPROTO_IPIP || t->outer.proto == IPPROTO_IPV6) {
		t->inner_v6 = t->outer.proto == IPPROTO_IPV6;
		t->kind = HG_DECAP_IPIP;
	} else if (t->outer.proto == IPPROTO_UDP && read_gue(t, l3 + off, end)) {
		t->kind = HG_DECAP_GUE;
	}
}

/* Congestion met by the outer packet is congestion met by the inner one (RFC 6040, 4.2). */
INLINE void carry_ecn(void *inner, bool v6, u8 outer_tos)
{
	struct iphdr *ip = inner;
	u16a *w = inner;
	u8 ecn;

	if (likely((outer_tos & ECN) != ECN))
		return;
	if (v6) {
		if (*w & hg_be16(ECN << 4))
			*w |= hg_be16(ECN << 4);
		return;
	}
	ecn = ip->tos & ECN;
	if (!ecn)
		return;
	ip->tos |= ECN;
	ip->check = ~csum_fold((u16)~ip->check + hg_be16(ECN - ecn));
}

/* The inner packet is whole, and inside the outer one by both length fields. */
INLINE bool inner_is_sound(const struct tunnel *t, void *inner, void *end)
{
	const struct ipv6hdr *ip6 = inner;
	const struct iphdr *ip = inner;
	u32 len;

	if (t->inner_v6) {
		if ((void *)(ip6 + 1) > end || ip6->version != 6)
			return false;
		len = __builtin_bswap16(ip6->payload_len) + sizeof(*ip6);
	} else {
		if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
			return false;
		len = __builtin_bswap16(ip->tot_len);
		if (len < ip->ihl * 4)
			return false;
	}
	return t->inner + len <= t->outer.l3_len;
}

/* Moves MACs and tags over the outer header; false: the frame could not be shortened. */
INLINE bool strip(struct xdp_md *ctx, const struct tunnel *t)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u32 words[(2 * ETH_ALEN + MAX_VLAN_TAGS * VLAN_TAG_LEN) / 4];
	u32 type_off = t->outer.type_off & 31;
	u32a *w = data;

	if (data + sizeof(words) > end)
		return false;
	words[0] = w[0];
	words[1] = w[1];
	words[2] = w[2];
	words[3] = w[3];
	words[4] = w[4];
	if (bpf_xdp_adjust_head(ctx, t->inner))
		return false;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	w = data;
	if (data + sizeof(words) + 2 > end || data + type_off + 2 > end)
		return false;
	w[0] = words[0];
	w[1] = words[1];
	w[2] = words[2];
	if (type_off > 2 * ETH_ALEN)
		w[3] = words[3];
	if (type_off > 2 * ETH_ALEN + VLAN_TAG_LEN)
		w[4] = words[4];
	*(u16a *)(data + type_off) = t->inner_v6 ? hg_be16(ETH_P_IPV6) : hg_be16(ETH_P_IP);
	return true;
}

/* Whether the packet has gone on to the alternative; `t` and the inner packet are sound. */
INLINE bool second_chance(struct xdp_md *ctx, const struct tunnel *t, void *l3, void *inner,
			  void *end)
{
	u32 off = (t->outer.type_off + 2 + t->inner) & 0xfff;

	if (t->inner_v6 ? !unknown_v6(ctx, inner, end, off) : !unknown_v4(ctx, inner, end, off)) {
		count_event(HG_EVENT_SECOND_KNOWN);
		return false;
	}
	if (!readdress(t, l3, end))
		return false;
	count_event(HG_EVENT_SECOND_CHANCE);
	return true;
}

/* Verdict; sets `drop` with HG_VERDICT_DROP, `ifindex` with HG_VERDICT_REDIRECT. */
INLINE enum hg_verdict decap(struct xdp_md *ctx, enum hg_drop *drop, u32 *ifindex)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *l3, *inner;
	struct hg_decap_addr *addr;
	struct hg_decap_key key = {};
	struct tunnel t = {};
	__be16 type;
	u32 have;

	type = slow_ethernet(&t.outer, data, end);
	if (type != hg_be16(ETH_P_IP) && type != hg_be16(ETH_P_IPV6))
		return HG_VERDICT_PASS_NOT_IP;
	l3 = data + t.outer.type_off + 2;
	read_outer(&t, &key, l3, end, type);
	if (!t.kind)
		return HG_VERDICT_PASS_NOT_OURS;
	addr = bpf_map_lookup_elem(&decap_addrs, &key);
	if (!addr || !(addr->flags & t.kind))
		return HG_VERDICT_PASS_NOT_OURS;
	*drop = HG_DROP_BAD_HEADER;
	if (t.inner > MAX_REMOVED + 256)
		return HG_VERDICT_DROP;
	inner = l3 + t.inner;
	have = (u32)(end - l3);
	if (unlikely(t.outer.l3_len > have)) /* a frame in several pages, or one that lies */
		have = (u32)bpf_xdp_get_buff_len(ctx) - (t.outer.type_off + 2);
	if (t.outer.l3_len > have || !inner_is_sound(&t, inner, end))
		return HG_VERDICT_DROP;
	if (unlikely(t.alt && addr->flags & HG_DECAP_SECOND_CHANCE) &&
	    second_chance(ctx, &t, l3, inner, end)) {
		*drop = HG_DROP_INTERNAL; /* counted with a drop only */
		return send_on(ctx, &t, l3, ifindex);
	}
	carry_ecn(inner, t.inner_v6, t.tos);
	if (!strip(ctx, &t)) {
		*drop = HG_DROP_INTERNAL;
		return HG_VERDICT_DROP;
	}
	*drop = HG_DROP_NONE;
	return HG_VERDICT_DECAP;
}

SEC("xdp.frags")
int xdp_decap(struct xdp_md *ctx)
{
	enum hg_drop drop = HG_DROP_NONE;
	u32 ifindex = 0;
	enum hg_verdict verdict = decap(ctx, &drop, &ifindex);

	count_verdict(bpf_get_smp_processor_id(), verdict,
		      verdict == HG_VERDICT_DROP ? drop : HG_DROP_NONE);
	switch (verdict) {
	case HG_VERDICT_DROP:
		return XDP_DROP;
	case HG_VERDICT_TX:
		return XDP_TX;
	case HG_VERDICT_REDIRECT:
		return bpf_redirect(ifindex, 0);
	default:
		return XDP_PASS;
	}
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
