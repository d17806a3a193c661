/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The RST that answers a packet of a source which is denied but shall know it: made of the packet itself and
 * smaller than it was, to where it came from (RFC 9293 3.10.7.1). Its socket is not asked: whoever has none knows nothing else.
 */
#ifndef HG_BPF_RESET_H
#define HG_BPF_RESET_H

#include "bpf/capture.h"
#include "bpf/csum.h"
#include "bpf/stage_icmp.h"

#define TCP_FIN 1u
#define TCP_SYN 2u
#define TCP_RST 4u
#define TCP_ACK 16u

/* What reset_reply() is told of a packet. */
#define RESET_V6      (1u << 16)
#define RESET_TYPE(a) ((a) & 31)

/* Sequence numbers and flags of the answer. False: there is none, it was an RST, or its lengths do not agree. */
INLINE bool reset_numbers(u32a *tcp, u32 len)
{
	u32 flags = ((const u8 *)tcp)[13], head = (((const u8 *)tcp)[12] >> 4) * 4, seq, ack;

	if (flags & TCP_RST || head < sizeof(struct tcphdr) || len < head)
		return false;
	if (flags & TCP_ACK) {
		seq = tcp[2];
		ack = 0;
		flags = TCP_RST;
	} else {
		seq = 0;
		ack = __builtin_bswap32(tcp[1]) + len - head + !!(flags & TCP_SYN) + !!(flags & TCP_FIN);
		ack = __builtin_bswap32(ack);
		flags = TCP_RST | TCP_ACK;
	}
	tcp[0] = tcp[0] << 16 | tcp[0] >> 16; /* ports */
	tcp[1] = seq;
	tcp[2] = ack;
	tcp[3] = hg_be32(5u << 28 | flags << 16); /* no options, no window */
	tcp[4] = 0;
	return true;
}

/* One's complement sum of `n` words. */
INLINE u32 sum_words(const u32a *w, u32 n)
{
	u32 sum = 0, i;

#pragma clang loop unroll(full)
	for (i = 0; i < n; i++)
		sum = csum_add32(sum, w[i]);
	return sum;
}

INLINE bool reset_v4(void *l3, void *end)
{
	u32a *w = l3, *tcp = w + 5;
	u32 sum;

	if ((void *)(tcp + 5) > end || *(const u8 *)l3 != 0x45 ||
	    ((u16a *)l3)[3] & hg_be16(0x3fff) || !reset_numbers(tcp, __builtin_bswap16(((u16a *)l3)[1]) - 20u))
		return false;
	swap_addrs(l3, false);
	w[0] = hg_be32(0x45000000 + 40);
	w[1] = hg_be32(0x4000);
	w[2] = hg_be16(HG_OUTER_TTL << 8 | IPPROTO_TCP);
	((u16a *)l3)[5] = ~csum_fold(sum_words(w, 5));
	sum = sum_words(w + 3, 2) + sum_words(tcp, 5) + hg_be16(IPPROTO_TCP) + hg_be16(20);
	((u16a *)tcp)[8] = ~csum_fold(sum);
	return true;
}

INLINE bool reset_v6(void *l3, void *end)
{
	u32a *w = l3, *tcp = w + 10;
	u32 sum;

	if ((void *)(tcp + 5) > end || ((const u8 *)l3)[6] != IPPROTO_TCP ||
	    !reset_numbers(tcp, __builtin_bswap16(((u16a *)l3)[2])))
		return false;
	swap_addrs(l3, true);
	w[0] = hg_be32(6u << 28);
	w[1] = hg_be32(20u << 16 | IPPROTO_TCP << 8 | HG_OUTER_TTL);
	sum = sum_words(w + 2, 8) + sum_words(tcp, 5) + hg_be16(IPPROTO_TCP) + hg_be16(20);
	((u16a *)tcp)[8] = ~csum_fold(sum);
	return true;
}

/* The packet was counted as dropped. An XDP action: XDP_TX with the answer, else XDP_DROP. */
GLOBAL int reset_reply(struct xdp_md *ctx, u32 at)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u32 type_off = RESET_TYPE(at), len;
	void *l3 = data + type_off + 2;

	if (data + sizeof(struct ethhdr) > end)
		return XDP_DROP;
	if (at & RESET_V6) {
		if (!reset_v6(l3, end))
			return XDP_DROP;
		len = type_off + 2 + sizeof(struct ipv6hdr) + sizeof(struct tcphdr);
	} else {
		if (!reset_v4(l3, end))
			return XDP_DROP;
		len = type_off + 2 + sizeof(struct iphdr) + sizeof(struct tcphdr);
	}
	swap_macs(data);
	if (bpf_xdp_adjust_tail(ctx, (int)len - (int)frame_len(ctx)))
		return XDP_DROP;
	count_event(HG_EVENT_RESET_SENT);
	return XDP_TX;
}

/* The end of a packet that asks for it; p->proto is TCP and nothing of it is odd but its tags. */
INLINE bool wants_reset(const struct pkt *p)
{
	return unlikely(p->drop == HG_DROP_DENIED_RESET) && p->proto == IPPROTO_TCP &&
	       !(p->odd & (ODD_DEFECT | ODD_FRAGMENT | ODD_NO_PORTS));
}

INLINE u32 reset_at(const struct pkt *p, bool v6)
{
	return (p->type_off & 31) | (v6 ? RESET_V6 : 0);
}

#endif
