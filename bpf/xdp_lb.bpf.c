/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The balancer: one packet's life, in order. Runs on the receive queues of the edge host in front of
 * its TCP/IP stack. Stages return false when they have given the verdict. In the steady path the only
 * helper called is one bpf_xdp_adjust_head(); lookups in arrays are inlined by the kernel.
 */
#include "bpf/report.h"
#include "bpf/parse.h"
#include "bpf/stage_service.h"
#include "bpf/stage_guard.h"
#include "bpf/stage_local.h"
#include "bpf/stage_select.h"
#include "bpf/stage_fragment.h"
#include "bpf/stage_icmp.h"
#include "bpf/stage_forward.h"
#include "bpf/stage_nat.h"
#include "bpf/nat_quick.h"
#include "bpf/nat_later.h"
#include "bpf/nat_icmp.h"
#include "bpf/reset.h"
#include "bpf/steer.h"

INLINE int lb_icmp_family(struct pkt *p, bool v6)
{
	bool forward;

	p->tap = capture_word();
	if (!stage_icmp(p, v6, &forward))
		return NOT_HANDLED;
	if (forward)
		stage_forward(p, v6, false);
	return report(p);
}

/* ICMP: what stage icmp knows; NOT_HANDLED: a packet like any other, and untouched. */
GLOBAL int lb_icmp(struct xdp_md *ctx)
{
	struct pkt p = { .ctx = ctx };
	enum family family = parse_any(&p);

	if (p.odd & (ODD_DEFECT | ODD_FRAGMENT))
		return NOT_HANDLED;
	if (family == FAMILY_V4 && p.proto == IPPROTO_ICMP)
		return lb_icmp_family(&p, false);
	if (family == FAMILY_V6 && p.proto == IPPROTO_ICMPV6)
		return lb_icmp_family(&p, true);
	return NOT_HANDLED;
}

/* Nobody's by the tables; but a later fragment to an address that only services use is not the kernel's. */
INLINE void lb_unclaimed(struct pkt *p, bool v6)
{
	struct hg_service_key k = { .proto = v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP };
	struct hg_service *row;
	__be32 src[4];

	if (!(p->odd & ODD_LATER))
		return;
	read_addrs(p, v6, src, k.addr);
	row = service_get(&k, false, true);
	if (!row || !(row->flags & HG_SVC_NOT_LOCAL))
		return;
	p->svc = row;
	pkt_drop(p, HG_DROP_FRAGMENT);
}

/* Later fragments find the service by their first one, too: its limits are theirs. */
INLINE u64 lb_odd_nat(struct pkt *p, bool v6)
{
	u64 what = nat_what(p, v6, p->svc->id);

	if (p->odd & ODD_LATER)
		return what | NAT_LATER;
	if (p->odd & ODD_FRAGMENT)
		fragment_store(fragment_hash(p, v6), 0, p->dport);
	return what;
}

INLINE int lb_end(struct pkt *p, bool v6)
{
	int action = report(p);

	return wants_reset(p) ? reset_reply(p->ctx, reset_at(p, v6)) : action;
}

INLINE u64 lb_odd_family(struct pkt *p, bool v6)
{
	fragment_follow(p, v6);
	if (!stage_service(p, v6)) {
		if (nat_may_be_back(p, v6, false))
			return nat_what(p, v6, 0) | NAT_TO_CLIENT;
		if (nat_may_be_back(p, v6, true))
			return nat_what(p, v6, 0) | NAT_TO_CLIENT | NAT_LATER;
		lb_unclaimed(p, v6);
	} else if ((p->is_judged || stage_guard_odd(p, v6)) && stage_local(p, v6)) {
		if (p->svc->mode == HG_MODE_NAT)
			return lb_odd_nat(p, v6);
		if (fragment_select(p, v6))
			stage_forward(p, v6, false);
	}
	if (p->verdict == VERDICT_SYN)
		return syn_what(p, v6);
	return lb_end(p, v6);
}

/*
 * The same life for packets with tags, options, extension headers, fragments, other protocols and faults.
 * An XDP action; or, with NAT_MARK or SYN_MARK, what nat_packet() or syn_packet() has to do, for which there is
 * no stack left here. `is_judged`: a SYN that syn_packet() leaves to its backend, from the start again.
 */
GLOBAL u64 lb_general(struct xdp_md *ctx, u32 is_judged)
{
	struct pkt p = { .ctx = ctx, .is_judged = is_judged };
	enum family family = parse_any(&p);

	if (family == FAMILY_V4)
		return lb_odd_family(&p, false);
	if (family == FAMILY_V6)
		return lb_odd_family(&p, true);
	return report(&p);
}

GLOBAL u32 is_icmp(struct xdp_md *ctx)
{
	struct parsed s = {};

	parse_slow(ctx, &s);
	return s.proto == IPPROTO_ICMP || s.proto == IPPROTO_ICMPV6;
}

/*
 * What syn_packet() says, or the backend's packet. Should the service become another one's in this moment, NAT's or the L7
 * tier's, the SYN is lost, and comes again.
 */
INLINE int lb_syn(struct xdp_md *ctx, u64 what)
{
	int action = syn_packet(ctx, what);
	u64 ret;

	if (action != NOT_HANDLED)
		return action;
	ret = lb_general(ctx, true);
	return ret & (NAT_MARK | SYN_MARK) ? XDP_DROP : (int)ret;
}

/*
 * Not inlined: well-formed packets keep the registers, and their frame offsets are constants. Nothing large lives
 * here, under the longest chains of calls: Linux 6.1 counts 32 bytes even for an empty frame, and 512 in all.
 */
GLOBAL int lb_odd_packet(struct xdp_md *ctx)
{
	int action = NOT_HANDLED;
	u64 ret;

	if (is_icmp(ctx)) {
		action = nat_icmp(ctx);
		if (action == NOT_HANDLED)
			action = lb_icmp(ctx);
	}
	if (action != NOT_HANDLED)
		return action;
	ret = lb_general(ctx, false);
	if (!(ret & NAT_MARK))
		return ret & SYN_MARK ? lb_syn(ctx, ret) : (int)ret;
	if (ret & NAT_LATER)
		return nat_later(ctx, ret);
	if (ret & NAT_FRAGMENT)
		nat_fragment_note(ctx);
	return nat_packet(ctx, ret);
}

/* A packet for the L7 tier, whose CPU is another one perhaps; or a SYN for a backend. */
INLINE int lb_local(struct pkt *p, bool v6)
{
	u32 hash = steer_hash(p, v6);
	int action = p->verdict == VERDICT_SYN ? lb_syn(p->ctx, syn_what(p, v6)) : report(p);

	return unlikely(hash) && action == XDP_PASS ? steer_to(hash) : action;
}

/* One copy per address family: what is constant in a family costs nothing in its copy. */
INLINE int lb_family(struct pkt *p, bool v6)
{
	int action;

	if (unlikely(!stage_service(p, v6))) {
		if (unlikely(p->verdict == VERDICT_AGAIN))
			return lb_odd_packet(p->ctx);
		if (nat_may_be_back(p, v6, false)) {
			action = v6 ? NOT_HANDLED : nat_quick_back(p);
			return action != NOT_HANDLED
				       ? action
				       : nat_packet(p->ctx, nat_what(p, v6, 0) | NAT_TO_CLIENT);
		}
	} else if (stage_guard(p, v6)) {
		if (!stage_local(p, v6)) /* no plain packet has a fault */
			return lb_local(p, v6);
		if (p->svc->mode == HG_MODE_NAT) {
			action = v6 ? NOT_HANDLED : nat_quick_out(p);
			return action != NOT_HANDLED
				       ? action
				       : nat_packet(p->ctx, nat_what(p, v6, p->svc->id));
		}
		if (stage_select(p, v6))
			stage_forward(p, v6, true);
		if (likely(p->verdict == HG_VERDICT_TX))
			return report_sent(p);
	}
	return lb_end(p, v6);
}

INLINE int lb_packet(struct xdp_md *ctx)
{
	struct pkt p = { .ctx = ctx, .plain = true };
	enum family family = parse_fast(&p);

	if (likely(family == FAMILY_V4))
		return lb_family(&p, false);
	if (likely(family == FAMILY_V6))
		return lb_family(&p, true);
	return lb_odd_packet(ctx);
}

SEC("xdp.frags")
int xdp_lb(struct xdp_md *ctx)
{
	return lb_packet(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
