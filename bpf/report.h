/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage report: the only code that touches counters, and the one place where a verdict becomes a
 * return code. Rows belong to a CPU, so plain additions are enough.
 */
#ifndef HG_BPF_REPORT_H
#define HG_BPF_REPORT_H

#include "bpf/capture.h"
#include "bpf/maps.h"
#include "bpf/maps_common.h"

#define HG_BIT(n) (1ull << ((n) & 63))

INLINE void count_dropped(struct hg_service_counters *c, u8 drop)
{
	c->dropped++;
	if (HG_BIT(drop) & (HG_BIT(HG_DROP_DENIED) | HG_BIT(HG_DROP_NOT_ALLOWED) |
			    HG_BIT(HG_DROP_DENIED_RESET)))
		c->denied++;
	else if (HG_BIT(drop) & (HG_BIT(HG_DROP_SOURCE_PACKETS) | HG_BIT(HG_DROP_SOURCE_SYNS) |
				 HG_BIT(HG_DROP_SOURCE_CONNS) | HG_BIT(HG_DROP_SERVICE_SYNS)))
		c->limited++;
}

INLINE void count_service(const struct pkt *p, u32 cpu)
{
	u32 row = p->svc->id * ro.n_cpus + cpu;
	struct hg_service_counters *c = bpf_map_lookup_elem(&xdp_services, &row);

	if (unlikely(!c))
		return;
	c->packets++;
	c->bytes += p->l3_len;
	if (unlikely(p->syn))
		c->syns++;
	if (p->verdict == HG_VERDICT_DROP)
		count_dropped(c, p->drop);
	else if (p->verdict == HG_VERDICT_PASS_LOCAL)
		c->local++;
	else if (unlikely(p->verdict == HG_VERDICT_REPLY))
		c->answered++;
	else
		c->forwarded++;
}

INLINE void count_backend(const struct pkt *p, u32 cpu)
{
	u32 row = p->be->id * ro.n_cpus + cpu;
	struct hg_backend_counters *c = bpf_map_lookup_elem(&xdp_backends, &row);

	if (unlikely(!c))
		return;
	c->packets++;
	c->bytes += p->l3_len;
	if (unlikely(p->syn))
		c->syns++;
}

/* What report() comes to for the packet that all of this is for; there, every question is one more instruction. */
INLINE int report_sent(struct pkt *p)
{
	u32 cpu = bpf_get_smp_processor_id();

	p->verdict = HG_VERDICT_TX;
	count_verdict(cpu, HG_VERDICT_TX, HG_DROP_NONE);
	count_service(p, cpu);
	count_backend(p, cpu);
	return XDP_TX;
}

INLINE int report(const struct pkt *p)
{
	u32 cpu = bpf_get_smp_processor_id();

	count_verdict(cpu, p->verdict, p->drop);
	if (p->svc) {
		count_service(p, cpu);
		if (!p->plain && p->tap)
			capture_after(p);
		if (unlikely(p->verdict == HG_VERDICT_DROP))
			record_drop(p->ctx, p->svc->id, p->drop);
	}
	if (p->verdict == HG_VERDICT_TX || p->verdict == HG_VERDICT_REDIRECT)
		count_backend(p, cpu);

	switch (p->verdict) {
	case HG_VERDICT_TX:
	case HG_VERDICT_REPLY:
		return XDP_TX;
	case HG_VERDICT_REDIRECT:
		return XDP_REDIRECT; /* stage forward has told the kernel where to */
	case HG_VERDICT_DROP:
		return XDP_DROP;
	default:
		return XDP_PASS;
	}
}

#endif
