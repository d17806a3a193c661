/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packet-too-big (RFC 4443 3.2) and fragmentation-needed (RFC 1191 4) to the client of a packet that does
 * not fit with its tunnel header. IPv4 packets that may be fragmented too: a router would fragment them, we
 * do not, and a sender that is told (hosts believe it without DF as well) sends smaller fragments instead of
 * into a hole. Called by stage forward, outside the common path; sums by helper, since speed does not matter
 * at the rate these are sent.
 */
#ifndef HG_BPF_TOO_BIG_H
#define HG_BPF_TOO_BIG_H

#include "bpf/csum.h"
#include "bpf/maps.h"
#include "bpf/maps_common.h"
#include "bpf/parse_slow.h"

/* As much as fits in 576 bytes (RFC 1812 4.3.2.3) and in 1,280 (RFC 4443 3.2 (c)). */
#define QUOTE_V4      (576 - 28)
#define QUOTE_V6      (1280 - 48)
#define MIN_MTU_V6    1280
#define ICMP_MTU_ROOM 8
#define SUM_MAX	      512 /* of one call of bpf_csum_diff(): its stack */

/* MACs and tags of the frame, turned round, to its new beginning `moved` bytes before the old. */
INLINE bool copy_link_back(void *data, void *end, u32 moved, u32 type_off)
{
	u16a *to = data;
	const u16a *from = data + moved;
	u32 i;

	if ((void *)from + 2 * ETH_ALEN + MAX_VLAN_TAGS * VLAN_TAG_LEN > end)
		return false;
#pragma clang loop unroll(full)
	for (i = 0; i < ETH_ALEN / 2; i++) {
		to[i] = from[i + ETH_ALEN / 2];
		to[i + ETH_ALEN / 2] = from[i];
	}
	if (type_off > 2 * ETH_ALEN)
		*(u32a *)(to + ETH_ALEN) = *(const u32a *)(from + ETH_ALEN);
	if (type_off > 2 * ETH_ALEN + VLAN_TAG_LEN)
		*(u32a *)(to + ETH_ALEN + 2) = *(const u32a *)(from + ETH_ALEN + 2);
	return true;
}

/* Cuts the packet, of one page or several, to `quote` bytes and makes `room` in front; false: not possible. */
INLINE bool make_room(struct xdp_md *ctx, const struct parsed *s, u32 quote, u32 room)
{
	int have = (int)bpf_xdp_get_buff_len(ctx), want = (int)(s->type_off + 2 + quote);

	return have >= want && !bpf_xdp_adjust_tail(ctx, want - have) &&
	       !bpf_xdp_adjust_head(ctx, -(int)room);
}

INLINE bool too_big_v4(struct xdp_md *ctx, const struct parsed *s, u32 mtu)
{
	u32 type_off = s->type_off & 31, sum;
	struct icmp_head *icmp;
	struct iphdr *ip;
	void *data, *end;
	u32a *w;

	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ip = data + type_off + 2;
	if ((void *)(ip + 1) > end || ip->frag_off & IP_OFFSET || s->l3_len < QUOTE_V4 ||
	    !make_room(ctx, s, QUOTE_V4, sizeof(*ip) + ICMP_MTU_ROOM))
		return false;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ip = data + type_off + 2;
	icmp = (void *)(ip + 1);
	if (!copy_link_back(data, end, sizeof(*ip) + ICMP_MTU_ROOM, type_off) ||
	    (void *)icmp + ICMP_MTU_ROOM + QUOTE_V4 > end)
		return false;
	*(u16a *)(data + type_off) = hg_be16(ETH_P_IP);
	w = (void *)ip;
	w[0] = hg_be32(0x45000000 + sizeof(*ip) + ICMP_MTU_ROOM + QUOTE_V4);
	w[1] = hg_be32(0x4000);
	w[2] = hg_be16(HG_OUTER_TTL << 8 | IPPROTO_ICMP);
	w[3] = w[(sizeof(*ip) + ICMP_MTU_ROOM) / 4 + 4]; /* the quoted packet's destination */
	w[4] = w[(sizeof(*ip) + ICMP_MTU_ROOM) / 4 + 3];
	ip->check = ~csum_fold(bpf_csum_diff(NULL, 0, (__be32 *)ip, sizeof(*ip), 0));
	*(u32a *)icmp = hg_be32(ICMP_DEST_UNREACH << 24 | ICMP_FRAG_NEEDED << 16);
	*((u32a *)icmp + 1) = hg_be32(mtu & 0xffff);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)icmp, SUM_MAX, 0);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)((void *)icmp + SUM_MAX),
			    ICMP_MTU_ROOM + QUOTE_V4 - SUM_MAX, sum);
	icmp->sum = ~csum_fold(sum);
	return true;
}

INLINE bool too_big_v6(struct xdp_md *ctx, const struct parsed *s, u32 mtu)
{
	const u32 len = ICMP_MTU_ROOM + QUOTE_V6;
	u32 type_off = s->type_off & 31, sum;
	struct icmp_head *icmp;
	struct ipv6hdr *ip;
	void *data, *end;
	u64a *to, *from;
	u32a *w;

	/* No sender has to go below; a tunnel that cannot carry as much is a fault (RFC 8200 5). */
	if (mtu < MIN_MTU_V6)
		mtu = MIN_MTU_V6;
	if (s->l3_len <= mtu || !make_room(ctx, s, QUOTE_V6, sizeof(*ip) + ICMP_MTU_ROOM))
		return false;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ip = data + type_off + 2;
	icmp = (void *)(ip + 1);
	if (!copy_link_back(data, end, sizeof(*ip) + ICMP_MTU_ROOM, type_off) ||
	    (void *)icmp + len > end)
		return false;
	*(u16a *)(data + type_off) = hg_be16(ETH_P_IPV6);
	w = (void *)ip;
	w[0] = hg_be32(6u << 28);
	w[1] = hg_be32(len << 16 | IPPROTO_ICMPV6 << 8 | HG_OUTER_TTL);
	to = (void *)ip + 8;
	from = (void *)icmp + ICMP_MTU_ROOM + 8;
	to[0] = from[2];
	to[1] = from[3];
	to[2] = from[0];
	to[3] = from[1];
	w = (void *)icmp;
	w[0] = hg_be32(ICMPV6_PKT_TOOBIG << 24);
	w[1] = hg_be32(mtu);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)to, 32, hg_be16(len) + hg_be16(IPPROTO_ICMPV6));
	sum = bpf_csum_diff(NULL, 0, (__be32 *)icmp, SUM_MAX, sum);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)((void *)icmp + SUM_MAX), SUM_MAX, sum);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)((void *)icmp + 2 * SUM_MAX), len - 2 * SUM_MAX,
			    sum);
	icmp->sum = ~csum_fold(sum);
	return true;
}

/* 1: the frame is now the message, to go back the way the packet came. 0: nothing to tell. */
GLOBAL int reply_too_big(struct xdp_md *ctx, u32 mtu)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *l3;
	u32 cpu = bpf_get_smp_processor_id();
	struct hg_cpu *c = bpf_map_lookup_elem(&xdp_cpus, &cpu);
	struct parsed s = {};
	bool sent;

	parse_slow(ctx, &s);
	/* Never about ICMP, which may be an error itself (RFC 1122 3.2.2, RFC 4443 2.4 (e)). */
	if (s.found != PARSED_IP || s.proto == IPPROTO_ICMP || s.proto == IPPROTO_ICMPV6)
		return 0;
	l3 = data + (s.type_off & 31) + 2;
	if (l3 + sizeof(struct ipv6hdr) > end || !source_is_host(l3, s.v6))
		return 0;
	if (!c || !bucket_take(&c->icmp, ro.icmp_per_jiffy)) {
		count_event(HG_EVENT_TOO_BIG_LIMITED);
		return 0;
	}
	sent = s.v6 ? too_big_v6(ctx, &s, mtu) : too_big_v4(ctx, &s, mtu);
	if (sent)
		count_event(HG_EVENT_TOO_BIG_SENT);
	return sent;
}

#endif
