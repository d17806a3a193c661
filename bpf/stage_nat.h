/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage nat: full NAT in both directions. A client's packet goes to the backend with an address and a port
 * of this host as its source, so that the answer comes back here whatever the backend's routes are; the
 * answer goes to where the client's packets come from, as if the service had sent it. Sums are corrected by
 * the difference that was worked out when the connection began (RFC 1624). Fragments: nat_fragment.h.
 */
#ifndef HG_BPF_STAGE_NAT_H
#define HG_BPF_STAGE_NAT_H

#include "bpf/nat_begin.h"
#include "bpf/nat_fragment.h"
#include "bpf/report.h"
#include "bpf/stage_forward.h"

/* --- counting ----------------------------------------------------------------------------------------- */

INLINE u32 nat_capture_out(const struct pkt *p, u32 ifindex)
{
	if (p->verdict == HG_VERDICT_REDIRECT)
		return ifindex;
	return p->verdict == HG_VERDICT_DROP ? 0 : p->ctx->ingress_ifindex;
}

/* In front of what rewrites. */
INLINE void nat_capture_in(struct pkt *p, const struct hg_nat_conn *c)
{
	if (unlikely(p->tap))
		p->tap = capture_packet(p->ctx,
					CAP_SERVICE(c->service) | CAP_BACKEND(c->backend) |
						CAP_VERDICT(HG_VERDICT_COUNT),
					p->tap, 0);
}

/* The same as report() with the rows of `service` and `backend`, 0: none; `ifindex`: where the packet goes if it goes. */
INLINE int nat_report(const struct pkt *p, u32 backend, u32 service, bool back, u32 ifindex)
{
	u32 cpu = bpf_get_smp_processor_id(), row = service * ro.n_cpus + cpu;
	bool sent = p->verdict == HG_VERDICT_TX || p->verdict == HG_VERDICT_REDIRECT;
	struct hg_service_counters *s = bpf_map_lookup_elem(&xdp_services, &row);
	struct hg_backend_counters *b;

	count_verdict(cpu, p->verdict, p->drop);
	if (s) {
		s->packets += !back;
		s->bytes += back ? 0 : p->l3_len;
		s->syns += !back && p->syn;
		s->forwarded += sent && !back;
		s->returned += sent && back;
		if (unlikely(p->verdict == HG_VERDICT_DROP))
			count_dropped(s, p->drop);
		s->answered += p->verdict == HG_VERDICT_REPLY;
	}
	if (backend && sent) {
		row = backend * ro.n_cpus + cpu;
		b = bpf_map_lookup_elem(&xdp_backends, &row);
		if (b && back) {
			b->rsp_packets++;
			b->rsp_bytes += p->l3_len;
		} else if (b) {
			b->packets++;
			b->bytes += p->l3_len;
			b->syns += p->syn;
		}
	}
	if (!p->plain && unlikely(p->tap))
		capture_packet(p->ctx,
			       CAP_SERVICE(service) | CAP_BACKEND(backend) |
				       CAP_VERDICT(p->verdict) | CAP_DROP(p->drop),
			       p->tap, nat_capture_out(p, ifindex));
	switch (p->verdict) {
	case HG_VERDICT_TX:
	case HG_VERDICT_REPLY:
		return XDP_TX;
	case HG_VERDICT_REDIRECT:
		return XDP_REDIRECT; /* nat_send() has told the kernel where to */
	case HG_VERDICT_DROP:
		record_drop(p->ctx, service, p->drop);
		return XDP_DROP;
	default:
		return XDP_PASS;
	}
}

/* As send() of stage forward. */
INLINE void nat_send(struct pkt *p, u32 ifindex)
{
	if (ifindex == p->ctx->ingress_ifindex)
		p->verdict = HG_VERDICT_TX;
	else if (bpf_redirect_map(&xdp_ports, ifindex, 0) == XDP_REDIRECT)
		p->verdict = HG_VERDICT_REDIRECT;
	else
		pkt_drop(p, HG_DROP_NO_REDIRECT);
}

/* Dropped for its length, or answered (RFC 1191, 4443) when that may be. */
INLINE void nat_too_big(struct pkt *p, u32 mtu)
{
	pkt_drop(p, HG_DROP_TOO_BIG);
	if (reply_too_big(p->ctx, mtu)) {
		p->drop = HG_DROP_NONE;
		p->verdict = HG_VERDICT_REPLY;
	}
}

/* --- rewriting ---------------------------------------------------------------------------------------- */

INLINE u16 csum_shift(u16 check, u32 delta)
{
	return (u16)~csum_fold((u32)(u16)~check + delta);
}

/* `from`, `to`: which of the row's addresses the packet has from now on. */
INLINE bool nat_write_addrs(void *l3, const struct hg_nat_conn *c, bool v6, u32 from, u32 to)
{
	const struct hg_nat_addrs *a;
	u32a *w = l3;

	if (v6) {
		a = nat_addrs_of(c);
		if (!a)
			return false;
		__builtin_memcpy(w + 2, a->addr[from], 16);
		__builtin_memcpy(w + 6, a->addr[to], 16);
		return true;
	}
	w[3] = c->last[from];
	w[4] = c->last[to];
	return true;
}

/* Addresses, ports, sums; false: the sum is not in the frame, which nat_read_flags() has excluded. */
INLINE bool nat_rewrite(struct pkt *p, void *l4, const struct hg_nat_conn *c, bool v6, bool back)
{
	u16 l4_delta = back ? ~c->l4_delta : c->l4_delta,
	    ip_delta = back ? ~c->ip_delta : c->ip_delta;
	struct iphdr *ip = p->l3;
	u16a *w = l4, *check;

	if (unlikely(!nat_write_addrs(p->l3, c, v6, back ? HG_NAT_VIP : HG_NAT_EDGE,
				      back ? HG_NAT_CLIENT : HG_NAT_BACKEND)))
		return pkt_drop(p, HG_DROP_INTERNAL);
	if (!v6)
		ip->check = csum_shift(ip->check, ip_delta);
	w[0] = back ? c->vip_port : c->edge_port;
	w[1] = back ? c->client_port : c->backend_port;
	check = l4 + (p->proto == IPPROTO_TCP ? 16 : 6);
	asm volatile("" : "+r"(check)); /* the verifier wants to see it checked */
	if (unlikely((void *)(check + 1) > (void *)(long)p->ctx->data_end))
		return pkt_drop(p, HG_DROP_INTERNAL);
	if (p->proto == IPPROTO_UDP && !*check) /* the sender made none */
		return true;
	*check = csum_shift(*check, l4_delta);
	if (p->proto == IPPROTO_UDP && !*check)
		*check = 0xffff;
	return true;
}

/* MACs and tags, last of all: the head may move. False: no room for a tag. */
INLINE bool nat_link(struct pkt *p, const union hg_neigh *to, const u8 *from)
{
	void *data = frame_start(p->ctx);

	if (unlikely(!data))
		return pkt_drop(p, HG_DROP_INTERNAL);
	write_macs(data, to, from);
	if (unlikely(to->state != HG_NEIGH_OK || p->type_off != NO_TAG) &&
	    !retag(p->ctx, p->type_off, to->state))
		return pkt_drop(p, HG_DROP_NO_HEADROOM);
	return true;
}

/* The steady path: an open connection that was renewed not long ago, no flag that changes anything. */
INLINE bool nat_alive(const struct hg_nat_conn *c, u32 row, u32 flags, bool udp)
{
	u32 life = READ_ONCE(c->life), state;

	if (likely(HG_NAT_STATE(life) == (udp ? HG_NAT_UDP : HG_NAT_OPEN) &&
		   tick_age(life, tick_now()) * 8 <= c->idle_ticks &&
		   !(flags & (NAT_FIN | NAT_SYN | NAT_RST))))
		return true;
	state = nat_step(row, flags);
	if (state & NAT_MOVED)
		nat_ticket_follow(row);
	return state != HG_NAT_FREE;
}

/* Is the packet of this connection, sent by the one and to the other? `ports`: theirs, side by side. */
INLINE bool nat_is(const struct hg_nat_conn *c, const struct pkt *p, bool v6, const __be16 *ports,
		   enum hg_nat_who from, enum hg_nat_who to)
{
	const struct hg_nat_addrs *addrs;
	const u32a *w = p->l3;
	const u64a *a = (const u64a *)(w + 2), *b;

	if (*(const u32 *)ports != (p->sport | (u32)p->dport << 16) || c->proto != p->proto ||
	    c->v6 != v6)
		return false;
	if (!v6)
		return c->last[from] == w[3] && c->last[to] == w[4];
	addrs = nat_addrs_of(c);
	if (!addrs)
		return false;
	b = (const u64a *)addrs->addr[from];
	if (a[0] != b[0] || a[1] != b[1])
		return false;
	b = (const u64a *)addrs->addr[to];
	return a[2] == b[0] && a[3] == b[1];
}

INLINE bool nat_is_client(const struct hg_nat_conn *c, const struct pkt *p, bool v6)
{
	return nat_is(c, p, v6, &c->client_port, HG_NAT_CLIENT, HG_NAT_VIP);
}

INLINE bool nat_is_backend(const struct hg_nat_conn *c, const struct pkt *p, bool v6)
{
	return nat_is(c, p, v6, &c->backend_port, HG_NAT_BACKEND, HG_NAT_EDGE);
}

/* --- towards the backend ------------------------------------------------------------------------------ */

/* May a packet that belongs to no living connection begin one? */
INLINE bool nat_may_begin(const struct pkt *p)
{
	return p->proto == IPPROTO_UDP || p->syn;
}

/* The packet's connection; NULL: it has none that lives. */
INLINE struct hg_nat_conn *nat_conn_of(struct pkt *p, u64 what, u32 flags, bool v6)
{
	struct hg_flow_key k = { .sport = p->sport, .dport = p->dport, .proto = p->proto };
	struct hg_nat_conn *c;
	u32 row, life;

	read_addrs(p, v6, k.src, k.dst);
	row = nat_row_of(hg_flow_hash(&k, ro.hash_seed));
	c = bpf_map_lookup_elem(&nat_conns, &row);
	if (likely(c && nat_is_client(c, p, v6))) {
		life = READ_ONCE(c->life);
		if (unlikely(p->syn && (HG_NAT_STATE(life) == HG_NAT_CLOSED ||
					HG_NAT_STATE(life) == HG_NAT_RESET)))
			nat_end(row, life); /* the client uses its port again */
		else if (likely(nat_alive(c, row, flags, p->proto == IPPROTO_UDP))) {
			if (unlikely(what & NAT_FRAGMENT))
				nat_fragment_learn(row);
			return c;
		} else if (HG_NAT_STATE(life) > HG_NAT_CLAIMED)
			nat_end(row, life);
	}
	return NULL;
}

INLINE int nat_out_family(struct xdp_md *ctx, u64 what, bool v6)
{
	u32 service = NAT_SERVICE(what);
	struct pkt p = { .ctx = ctx };
	struct hg_nat_conn *c;
	union hg_neigh neigh, from, own;
	struct hg_backend *be;
	u32 flags, id;
	void *l4;

	pkt_drop(&p, HG_DROP_BAD_HEADER);
	if (!nat_read(&p, what, v6, &l4) || !frame_macs(&p, &from, &own) ||
	    !nat_read_flags(&p, l4, NAT_PROTO(what), &flags))
		return nat_report(&p, 0, service, false, 0);
	c = nat_conn_of(&p, what, flags, v6);
	if (unlikely(!c)) {
		if (nat_may_begin(&p))
			return NOT_HANDLED;
		pkt_drop(&p, HG_DROP_NAT_UNKNOWN);
		return nat_report(&p, 0, service, false, 0);
	}
	if (unlikely(c->client.word != from.word || c->ifindex != ctx->ingress_ifindex)) {
		nat_learn_link(c, ctx, from.word, own.word);
		nat_ticket_relink(c->row);
	}
	nat_capture_in(&p, c);
	id = c->backend;
	be = bpf_map_lookup_elem(&backends, &id);
	if (unlikely(!be)) {
		pkt_drop(&p, HG_DROP_INTERNAL);
		return nat_report(&p, c->backend, service, false, 0);
	}
	neigh.word = READ_ONCE(be->neigh.word);
	if (unlikely(!(neigh.state & HG_NEIGH_OK))) {
		pkt_drop(&p, HG_DROP_NO_NEIGHBOUR);
	} else if (unlikely(p.l3_len > be->mtu)) {
		nat_too_big(&p, be->mtu);
	} else if (unlikely(!age(p.l3, v6))) {
		pkt_drop(&p, HG_DROP_TTL);
	} else {
		p.drop = HG_DROP_NONE;
		if (nat_rewrite(&p, l4, c, v6, false) && nat_link(&p, &neigh, be->src_mac))
			nat_send(&p, be->ifindex);
	}
	return nat_report(&p, c->backend, service, false, be->ifindex);
}

/* A packet for a NAT service, verdict and all; NOT_HANDLED: a connection would begin, see nat_packet(). */
GLOBAL int nat_out(struct xdp_md *ctx, u64 what)
{
	return what & NAT_V6 ? nat_out_family(ctx, what, true) : nat_out_family(ctx, what, false);
}

/* After nat_open(), or nat_admit(), said `why` not, or 0. */
GLOBAL int nat_started(struct xdp_md *ctx, u64 what, u32 why)
{
	struct pkt p = { .ctx = ctx, .l3_len = NAT_L3_LEN(what) };
	int action;

	if (!why) {
		action = nat_out(ctx, what);
		if (action != NOT_HANDLED)
			return action;
		why = HG_DROP_INTERNAL;
	}
	p.tap = what & NAT_TAP ? TAP_ASK : 0;
	p.syn = NAT_PROTO(what) == IPPROTO_TCP;
	pkt_drop(&p, why);
	return nat_report(&p, 0, NAT_SERVICE(what), false, 0);
}

/* --- towards the client ------------------------------------------------------------------------------- */

/*
 * Only when it leaves by another interface than it came by, and is longer than what every link carries.
 * The kernel would drop such a frame behind our back.
 */
INLINE u32 nat_mtu_back(struct pkt *p, u32 ifindex)
{
	u32 mtu = p->l3_len;

	if (likely(p->l3_len <= MIN_MTU_V6 || ifindex == p->ctx->ingress_ifindex))
		return 0;
	return bpf_check_mtu(p->ctx, ifindex, &mtu, 0, 0) == BPF_MTU_CHK_RET_FRAG_NEEDED ? mtu : 0;
}

INLINE int nat_back_family(struct xdp_md *ctx, u64 what, bool v6)
{
	struct hg_flow_key k = { .proto = NAT_PROTO(what) };
	struct pkt p = { .ctx = ctx };
	struct hg_nat_conn *c;
	union hg_neigh neigh, own;
	u32 flags, row, mtu;
	void *l4;

	pkt_end(&p, HG_VERDICT_PASS_NOT_OURS);
	if (!nat_read(&p, what, v6, &l4))
		return report(&p);
	p.proto = k.proto;
	k.sport = p.sport;
	read_addrs(&p, v6, k.src, k.dst);
	row = hg_nat_row(hg_nat_base(&k, ro.hash_seed), __builtin_bswap16(p.dport), ro.nat_mask);
	c = bpf_map_lookup_elem(&nat_conns, &row);
	if (unlikely(!c || !nat_is_backend(c, &p, v6) || !nat_read_flags(&p, l4, k.proto, &flags) ||
		     !nat_alive(c, row, flags | NAT_BACK, k.proto == IPPROTO_UDP)))
		return report(&p); /* the kernel answers with RST, as for any stray packet */
	if (unlikely(what & NAT_FRAGMENT))
		nat_fragment_learn(row);
	nat_capture_in(&p, c);
	mtu = nat_mtu_back(&p, c->ifindex);
	if (unlikely(mtu)) {
		nat_too_big(&p, mtu);
	} else if (unlikely(!age(p.l3, v6))) {
		pkt_drop(&p, HG_DROP_TTL);
	} else {
		neigh.word = READ_ONCE(c->client.word);
		own.word = READ_ONCE(c->own.word);
		if (nat_rewrite(&p, l4, c, v6, true) && nat_link(&p, &neigh, own.mac))
			nat_send(&p, c->ifindex);
	}
	return nat_report(&p, c->backend, c->service, true, c->ifindex);
}

/* A packet that may be a backend's answer: verdict and all, PASS_NOT_OURS when it is none. */
GLOBAL int nat_back(struct xdp_md *ctx, u64 what)
{
	return what & NAT_V6 ? nat_back_family(ctx, what, true) : nat_back_family(ctx, what, false);
}

/* Any packet that nat_what() describes. One call after the other: the stack is for all of a chain. */
INLINE int nat_packet(struct xdp_md *ctx, u64 what)
{
	int action = what & NAT_TO_CLIENT ? nat_back(ctx, what) : nat_out(ctx, what);
	u32 id, why;

	if (likely(action != NOT_HANDLED))
		return action;
	id = nat_admit(ctx, what);
	why = id >> 16;
	if (!why) {
		why = nat_open(ctx, what, id);
		nat_settle(what, id, why);
	}
	/* What the compiler knows of its answers the verifier does not: no bound may be left out. */
	asm volatile("" : "+r"(why));
	return nat_started(ctx, what, why);
}

/*
 * Worth nat_back()? For the packets that are nobody's, so it is two comparisons. `later`, a constant: for later
 * fragments, which have no port to be looked at.
 */
INLINE bool nat_may_be_back(const struct pkt *p, bool v6, bool later)
{
	u32 zero = 0;
	struct hg_nat_control *n = bpf_map_lookup_elem(&nat_control, &zero);
	const u32a *w = p->l3;

	if (p->verdict != HG_VERDICT_PASS_NOT_OURS || !n)
		return false;
	if (later && (!(p->odd & ODD_LATER) || p->odd & ODD_DEFECT))
		return false;
	if (!later && (p->odd & (ODD_NO_PORTS | ODD_DEFECT) ||
		       __builtin_bswap16(p->dport) - n->port_first >= n->n_ports))
		return false;
	return READ_ONCE(n->edges) >>
		       hg_nat_edge_bit(v6 ? w[6] ^ w[7] ^ w[8] ^ w[9] : V4_MAPPED ^ w[4]) &
	       1;
}

#endif
