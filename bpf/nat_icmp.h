/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ICMP errors about NAT connections. The packet that an error quotes is one that we sent: from the edge's
 * address to a backend, or from the service's to a client. Error and quote are put back into the other side's
 * terms, and the error goes there, so that path MTU discovery and refused ports work through NAT. Its source
 * becomes our address on that side, because a router's may have no route there. The quoted packet's own
 * sums are corrected as far as they are quoted.
 */
#ifndef HG_BPF_NAT_ICMP_H
#define HG_BPF_NAT_ICMP_H

#include "bpf/stage_icmp.h"
#include "bpf/stage_nat.h"

/* Stores a word that the ICMP sum covers; the difference goes into `sum`. */
INLINE u32 put16(u32 sum, u16a *at, u16 new)
{
	sum += (u16) ~*at + new;
	*at = new;
	return sum;
}

INLINE u32 put_addr(u32 sum, void *at, const __be32 *new, bool v6)
{
	const u16a *w = (const void *)new;
	u16a *to = at;
	u32 i;

	if (!v6)
		w += 6;
	/* One by one: all at once they would not fit on the stack. */
#pragma clang loop unroll(disable)
	for (i = 0; i < (v6 ? 8 : 2); i++)
		sum = put16(sum, to + i, w[i]);
	return sum;
}

/*
 * The quoted transport header, of which only the ports are sure to be there. `size`: of it in the message; the frame
 * may have bytes behind that.
 */
INLINE u32 put_quoted_l4(u32 sum, void *l4, void *end, u32 size, const struct hg_nat_conn *c,
			 bool back)
{
	u16 delta = back ? ~c->l4_delta : c->l4_delta;
	u16a *w = l4, *check = l4 + (c->proto == IPPROTO_TCP ? 16 : 6);

	if ((void *)(w + 2) > end || size < 4)
		return sum;
	/* The quote runs the other way: what we sent, as its receiver or its sender knows it. */
	sum = put16(sum, w, back ? c->client_port : c->backend_port);
	sum = put16(sum, w + 1, back ? c->vip_port : c->edge_port);
	if ((void *)(check + 1) > end || size < (c->proto == IPPROTO_TCP ? 18 : 8) || (c->proto == IPPROTO_UDP && !*check))
		return sum;
	return put16(sum, check, csum_shift(*check, delta));
}

/* Everything from the IP header on; `back`: towards the client. False: not the frame it was. */
INLINE bool icmp_translate(struct pkt *p, const struct hg_nat_conn *c, u32 quote_l4, bool v6,
			   bool back)
{
	const struct hg_nat_addrs *a = nat_addrs_of(c);
	const __be32 *to, *from;
	void *end = (void *)(long)p->ctx->data_end;
	struct icmp_head *icmp = p->l3 + p->l4_off;
	void *quote = (void *)icmp + ICMP_LEN;
	struct iphdr *ip = p->l3, *ip_in = quote;
	u32 sum = 0, ip_sum;

	if (!a || quote + (v6 ? sizeof(struct ipv6hdr) : sizeof(*ip)) > end)
		return false;
	to = a->addr[back ? HG_NAT_CLIENT : HG_NAT_BACKEND];
	from = a->addr[back ? HG_NAT_VIP : HG_NAT_EDGE];
	sum = put_addr(sum, quote + (v6 ? 8 : 12), to, v6);
	sum = put_addr(sum, quote + (v6 ? 24 : 16), from, v6);
	if (!v6)
		sum = put16(sum, &ip_in->check,
			    csum_shift(ip_in->check, back ? (u16)~c->ip_delta : c->ip_delta));
	sum = put_quoted_l4(sum, quote + quote_l4, end, p->l3_len - p->l4_off - ICMP_LEN - quote_l4,
			    c, back);
	ip_sum = put_addr(0, p->l3 + (v6 ? 8 : 12), from, v6);
	ip_sum = put_addr(ip_sum, p->l3 + (v6 ? 24 : 16), to, v6);
	if (v6)
		sum += ip_sum; /* the pseudo header's addresses */
	else
		ip->check = csum_shift(ip->check, ip_sum);
	icmp->sum = csum_shift(icmp->sum, csum_fold(sum));
	return true;
}

/* The quoted packet's transport from its IP header on; 0: not one of ours. */
INLINE u32 quote_l4_off(void *quote, void *end, bool v6)
{
	if (quote + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > end)
		return 0;
	return v6 ? sizeof(struct ipv6hdr) : (*(const u8 *)quote & 0x0fu) * 4;
}

/* Row of the connection that is quoted, and which way the error goes. NAT_NONE: none. */
INLINE u32 quoted_row(struct quoted *q, bool *ret_back)
{
	u32 row = nat_find(&q->flow, false);

	*ret_back = row == NAT_NONE;
	return row != NAT_NONE ? row : nat_find(&q->flow, true);
}

/* Where nat_icmp_send() finds what it is about, in one number. */
#define QUOTE_OFF(n) ((n) & 0x3f)
#define QUOTE_BACK   0x100u
#define QUOTE_DROP(n) ((n) >> 16) /* enum hg_drop: the sender is not wanted */

INLINE int icmp_send_family(struct pkt *p, const struct hg_nat_conn *c, u32 quote_l4, bool v6,
			    bool back)
{
	u32 id = c->backend, ifindex = c->ifindex;
	struct hg_backend *be = bpf_map_lookup_elem(&backends, &id);
	union hg_neigh neigh = { .word = READ_ONCE(c->client.word) };
	union hg_neigh own = { .word = READ_ONCE(c->own.word) };

	if (!be || p->drop != HG_DROP_INTERNAL)
		return nat_report(p, 0, c->service, back, 0);
	nat_capture_in(p, c);
	if (!back) {
		ifindex = be->ifindex;
		neigh.word = READ_ONCE(be->neigh.word);
		__builtin_memcpy(own.mac, be->src_mac, 6);
	}
	if (!back && !(neigh.state & HG_NEIGH_OK)) {
		pkt_drop(p, HG_DROP_NO_NEIGHBOUR);
	} else if (!age(p->l3, v6)) {
		pkt_drop(p, HG_DROP_TTL);
	} else if (icmp_translate(p, c, quote_l4, v6, back) && nat_link(p, &neigh, own.mac)) {
		p->drop = HG_DROP_NONE;
		nat_send(p, ifindex);
		count_event(HG_EVENT_ICMP_ERROR);
	}
	return nat_report(p, c->backend, c->service, back, ifindex);
}

/* The error of `what` is about the connection in `row`. */
GLOBAL int nat_icmp_send(struct xdp_md *ctx, u64 what, u32 row, u32 quote)
{
	struct hg_nat_conn *c = bpf_map_lookup_elem(&nat_conns, &row);
	struct pkt p = { .ctx = ctx };
	void *l4;

	pkt_drop(&p, QUOTE_DROP(quote) ? QUOTE_DROP(quote) : HG_DROP_INTERNAL);
	p.l4_off = NAT_L4_OFF(what);
	if (!c)
		return XDP_DROP;
	if (what & NAT_V6)
		return nat_read(&p, what, true, &l4)
			       ? icmp_send_family(&p, c, QUOTE_OFF(quote), true, quote & QUOTE_BACK)
			       : nat_report(&p, 0, c->service, false, 0);
	return nat_read(&p, what, false, &l4)
		       ? icmp_send_family(&p, c, QUOTE_OFF(quote), false, quote & QUOTE_BACK)
		       : nat_report(&p, 0, c->service, false, 0);
}

INLINE int nat_icmp_family(struct pkt *p, bool v6)
{
	void *end = (void *)(long)p->ctx->data_end, *quote;
	struct quoted q = {};
	const u8 *icmp;
	bool back, ok;
	u32 row, off;

	if (p->l4_off >= MAX_L4_OFF || p->l3_len < p->l4_off + ICMP_LEN)
		return NOT_HANDLED;
	icmp = p->l3 + p->l4_off;
	quote = p->l3 + p->l4_off + ICMP_LEN;
	if ((void *)(icmp + ICMP_LEN) > end || icmp_kind(icmp[0], icmp[1], v6) != ICMP_KIND_ERROR)
		return NOT_HANDLED;
	ok = v6 ? read_quoted_v6(&q, p, quote, end) : read_quoted_v4(&q, p, quote, end);
	off = quote_l4_off(quote, end, v6);
	if (!ok || !q.has_ports || !off || p->l3_len < p->l4_off + ICMP_LEN + off)
		return NOT_HANDLED;
	/* Behind extension headers we would not find the ports again; we never send such packets on. */
	if (v6 && ((const struct ipv6hdr *)quote)->nexthdr != q.flow.proto)
		return NOT_HANDLED;
	row = quoted_row(&q, &back);
	if (row == NAT_NONE)
		return NOT_HANDLED;
	/* Only what is sent to a service's address is the guard's; here, because nat_icmp_send() has no stack for it. */
	off |= back ? QUOTE_BACK : guard_apart(p->ctx, p->type_off, v6 ? GUARD_V6 : 0) << 16;
	return nat_icmp_send(p->ctx, nat_what(p, v6, 0), row, off);
}

/* An ICMP error about a NAT connection: verdict and all. Any other: NOT_HANDLED, and untouched. */
GLOBAL int nat_icmp(struct xdp_md *ctx)
{
	struct pkt p = { .ctx = ctx };
	enum family family = parse_any(&p);

	p.tap = capture_word();
	if (p.odd & (ODD_DEFECT | ODD_FRAGMENT))
		return NOT_HANDLED;
	if (family == FAMILY_V4 && p.proto == IPPROTO_ICMP)
		return nat_icmp_family(&p, false);
	if (family == FAMILY_V6 && p.proto == IPPROTO_ICMPV6)
		return nat_icmp_family(&p, true);
	return NOT_HANDLED;
}

#endif
