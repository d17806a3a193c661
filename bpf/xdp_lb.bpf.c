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
#include "bpf/stage_forward.h"

/* One copy per address family: what is constant in a family costs nothing in its copy. */
INLINE int lb_family(struct pkt *p, bool v6)
{
	if (stage_service(p, v6) && stage_local(p) && stage_select(p, v6))
		stage_forward(p, v6);
	return report(p);
}

/*
 * The same life for packets with tags, options, extension headers, fragments and faults. Not inlined:
 * the well-formed ones keep the registers, and their frame offsets are constants.
 */
__attribute__((noinline)) int lb_odd_packet(struct xdp_md *ctx)
{
	struct pkt p = { .ctx = ctx };
	enum family family = parse_any(&p);

	if (family == FAMILY_V4)
		return lb_family(&p, false);
	if (family == FAMILY_V6)
		return lb_family(&p, true);
	return report(&p);
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
