/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage icmp. Errors that a service's packets met on their way to the client come back to the service
 * address; they belong to the backend that sent those packets, which is the one that the client's packets
 * go to: the flow is read from the packet that the error quotes, turned round. Routers need to quote only
 * 8 bytes of transport header (RFC 792), so the ports are all that is asked for. Echo requests to an address
 * with an address row are answered. Odd packets only.
 */
#ifndef HG_BPF_STAGE_ICMP_H
#define HG_BPF_STAGE_ICMP_H

#include "bpf/csum.h"
#include "bpf/stage_guard.h"
#include "bpf/stage_select.h"

#define ICMP_LEN 8 /* of the fixed part, in both versions */

enum icmp_kind {
	ICMP_OTHER,
	ICMP_KIND_ERROR,
	ICMP_KIND_ECHO,
	ICMP_KIND_LINK /* neighbour discovery and its like: for the kernel, always */
};

INLINE enum icmp_kind icmp_kind(u32 type, u32 code, bool v6)
{
	if (v6) {
		if (type == ICMPV6_ECHO_REQUEST)
			return code ? ICMP_OTHER : ICMP_KIND_ECHO;
		if (type >= ICMPV6_DEST_UNREACH && type <= ICMPV6_PARAMPROB)
			return ICMP_KIND_ERROR;
		return type >= 130 && type <= 153 ? ICMP_KIND_LINK : ICMP_OTHER;
	}
	if (type == ICMP_ECHO)
		return code ? ICMP_OTHER : ICMP_KIND_ECHO;
	if (type == ICMP_DEST_UNREACH || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETERPROB)
		return ICMP_KIND_ERROR;
	return ICMP_OTHER;
}

/* The quoted flow as its client sends it. */
struct quoted {
	struct hg_flow_key flow;
	bool has_ports;
};

INLINE void quoted_ports(struct quoted *q, const void *l4, const void *end)
{
	q->has_ports = (q->flow.proto == IPPROTO_TCP || q->flow.proto == IPPROTO_UDP) &&
		       l4 + 4 <= end;
	if (!q->has_ports)
		return;
	q->flow.sport = ((const u16a *)l4)[1];
	q->flow.dport = ((const u16a *)l4)[0];
}

/* False: no packet from the address that the error was sent to. */
INLINE bool read_quoted_v4(struct quoted *q, const struct pkt *p, void *inner, void *end)
{
	const struct iphdr *outer = p->l3, *ip = inner;
	u32 hlen;

	if (inner + sizeof(*ip) > end || ip->version != 4 || ip->saddr != outer->daddr)
		return false;
	hlen = (*(const u8 *)inner & 0x0f) * 4;
	if (hlen < sizeof(*ip))
		return false;
	q->flow.src[2] = q->flow.dst[2] = V4_MAPPED;
	q->flow.src[3] = ip->daddr;
	q->flow.dst[3] = ip->saddr;
	q->flow.proto = ip->protocol;
	if (!(ip->frag_off & IP_OFFSET))
		quoted_ports(q, inner + hlen, end);
	return true;
}

INLINE bool read_quoted_v6(struct quoted *q, const struct pkt *p, void *inner, void *end)
{
	const u64a *outer_dst = p->l3 + 24, *inner_src = inner + 8;
	const struct ipv6hdr *ip = inner;
	struct parsed s = {};
	u32 off;

	if (inner + sizeof(*ip) > end || ip->version != 6 || inner_src[0] != outer_dst[0] ||
	    inner_src[1] != outer_dst[1])
		return false;
	__builtin_memcpy(q->flow.dst, inner + 8, 16);
	__builtin_memcpy(q->flow.src, inner + 24, 16);
	s.proto = ip->nexthdr;
	off = walk_ext_headers(&s, inner, end);
	q->flow.proto = s.proto;
	if (off && off < MAX_L4_OFF)
		quoted_ports(q, inner + off, end);
	return true;
}

/* True: the verdict is given, or the backend chosen (then go on to forward). */
INLINE bool icmp_error(struct pkt *p, bool v6, bool *forward)
{
	void *inner = p->l3 + p->l4_off + ICMP_LEN, *end = (void *)(long)p->ctx->data_end;
	struct hg_service_key k = {};
	struct quoted q = {};

	if (!(v6 ? read_quoted_v6(&q, p, inner, end) : read_quoted_v4(&q, p, inner, end)))
		return false;
	__builtin_memcpy(k.addr, q.flow.dst, 16);
	k.port = q.flow.dport;
	k.proto = q.flow.proto;
	p->svc = service_get(&k, q.has_ports, false);
	if (!p->svc)
		return false;
	if (!stage_guard_icmp(p, v6))
		return true;
	if (p->svc->mode == HG_MODE_LOCAL) {
		p->verdict = HG_VERDICT_PASS_LOCAL;
		return true;
	}
	if (p->svc->mode == HG_MODE_NAT) { /* nat_icmp() did not know the connection */
		pkt_drop(p, HG_DROP_NAT_UNKNOWN);
		return true;
	}
	if (p->svc->flags & HG_SVC_NO_PORT_HASH)
		q.flow.sport = q.flow.dport = 0;
	p->hash = hg_flow_hash(&q.flow, ro.hash_seed);
	*forward = select_slot(p, FLOW_PEEK, v6);
	if (*forward)
		count_event(HG_EVENT_ICMP_ERROR);
	return true;
}

INLINE void swap_macs(void *data)
{
	u32a *w = data;
	u32 a = w[0], b = w[1], c = w[2]; /* dst 0-3, dst 4-5 and src 0-1, src 2-5 */

	w[0] = b >> 16 | c << 16;
	w[1] = c >> 16 | a << 16;
	w[2] = a >> 16 | b << 16;
}

INLINE void swap_addrs(void *l3, bool v6)
{
	u64a *w6 = l3 + 8;
	u32a *w4 = l3 + 12;
	u64 a, b;

	if (v6) {
		a = w6[0];
		b = w6[1];
		w6[0] = w6[2];
		w6[1] = w6[3];
		w6[2] = a;
		w6[3] = b;
		return;
	}
	a = w4[0];
	w4[0] = w4[1];
	w4[1] = (u32)a;
}

/* In place. Sums that were wrong stay wrong, so a damaged request is not answered as a good one. */
INLINE void echo_reply(struct pkt *p, bool v6)
{
	void *data = (void *)(long)p->ctx->data, *end = (void *)(long)p->ctx->data_end;
	struct icmp_head *icmp = p->l3 + p->l4_off;
	struct iphdr *ip = p->l3;
	u16 old;

	if (data + 2 * ETH_ALEN > end || (void *)(icmp + 1) > end) {
		pkt_drop(p, HG_DROP_INTERNAL);
		return;
	}
	if (!source_is_host(p->l3, v6)) {
		pkt_drop(p, HG_DROP_BAD_HEADER);
		return;
	}
	swap_macs(data);
	swap_addrs(p->l3, v6);
	if (v6) {
		((struct ipv6hdr *)p->l3)->hop_limit = HG_OUTER_TTL;
	} else {
		old = *(u16a *)(p->l3 + 8);
		ip->ttl = HG_OUTER_TTL;
		ip->check = csum_replace(ip->check, old, *(u16a *)(p->l3 + 8));
	}
	old = *(u16a *)icmp;
	icmp->type = v6 ? ICMPV6_ECHO_REPLY : ICMP_ECHOREPLY;
	icmp->sum = csum_replace(icmp->sum, old, *(u16a *)icmp);
	/* Both zeros verify, but over a message of nothing but zeros this one alone does. */
	if (!icmp->sum)
		icmp->sum = 0xffff;
	p->verdict = HG_VERDICT_REPLY;
	count_event(HG_EVENT_ECHO);
}

/* True: handled here, p->verdict or (with *forward) p->be is set. False: a packet like any other. */
INLINE bool stage_icmp(struct pkt *p, bool v6, bool *forward)
{
	struct hg_service_key k = { .proto = v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP };
	void *end = (void *)(long)p->ctx->data_end;
	const u8 *icmp;
	__be32 src[4];

	*forward = false;
	if (p->l4_off >= MAX_L4_OFF || p->l3_len < p->l4_off + ICMP_LEN)
		return false;
	icmp = p->l3 + p->l4_off;
	if ((void *)(icmp + ICMP_LEN) > end)
		return false;
	switch (icmp_kind(icmp[0], icmp[1], v6)) {
	case ICMP_KIND_ERROR:
		return icmp_error(p, v6, forward);
	case ICMP_KIND_LINK:
		p->verdict = HG_VERDICT_PASS_NOT_OURS;
		return true;
	case ICMP_KIND_ECHO:
		read_addrs(p, v6, src, k.addr);
		p->svc = service_get(&k, false, true);
		if (!p->svc)
			return false;
		if (stage_guard_icmp(p, v6))
			echo_reply(p, v6);
		return true;
	default:
		return false;
	}
}

#endif
