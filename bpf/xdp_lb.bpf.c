/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The balancer: one packet's life, in order. Runs on the receive queues of the edge host in front of
 * its TCP/IP stack. Stages return false when they have given the verdict. In the steady path the only
 * helper called is one bpf_xdp_adjust_head(); lookups in arrays are inlined by the kernel.
 */
#include "bpf/report.h"
#include "bpf/parse.h"
#include "bpf/stage_service.h"
#include "bpf/stage_local.h"
#include "bpf/stage_select.h"
#include "bpf/stage_fragment.h"
#include "bpf/stage_icmp.h"
#include "bpf/stage_forward.h"

/* One copy per address family: what is constant in a family costs nothing in its copy. */
INLINE int lb_family(struct pkt *p, bool v6)
{
	if (stage_service(p, v6) && stage_local(p) && stage_select(p, v6))
		stage_forward(p, v6);
	return report(p);
}

#define NOT_HANDLED (-1)

INLINE int lb_icmp_family(struct pkt *p, bool v6)
{
	bool forward;

	if (!stage_icmp(p, v6, &forward))
		return NOT_HANDLED;
	if (forward)
		stage_forward(p, v6);
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

INLINE int lb_odd_family(struct pkt *p, bool v6)
{
	fragment_follow(p, v6);
	if (!stage_service(p, v6))
		lb_unclaimed(p, v6);
	else if (stage_local(p) && fragment_select(p, v6))
		stage_forward(p, v6);
	return report(p);
}

/* The same life for packets with tags, options, extension headers, fragments, other protocols and faults. */
GLOBAL int lb_general(struct xdp_md *ctx)
{
	struct pkt p = { .ctx = ctx };
	enum family family = parse_any(&p);

	if (family == FAMILY_V4)
		return lb_odd_family(&p, false);
	if (family == FAMILY_V6)
		return lb_odd_family(&p, true);
	return report(&p);
}

/* Not inlined: well-formed packets keep the registers, and their frame offsets are constants. */
GLOBAL int lb_odd_packet(struct xdp_md *ctx)
{
	struct parsed s = {};
	int action = NOT_HANDLED;

	parse_slow(ctx, &s);
	if (s.proto == IPPROTO_ICMP || s.proto == IPPROTO_ICMPV6)
		action = lb_icmp(ctx);
	return action == NOT_HANDLED ? lb_general(ctx) : action;
}

INLINE int lb_packet(struct xdp_md *ctx)
{
	struct pkt p = { .ctx = ctx };
	enum family family = parse_fast(&p);

	if (likely(family == FAMILY_V4))
		return lb_family(&p, false);
	if (likely(family == FAMILY_V6))
		return lb_family(&p, true);
	return lb_odd_packet(ctx);
}

SEC("xdp")
int xdp_lb(struct xdp_md *ctx)
{
	return lb_packet(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
