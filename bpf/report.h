/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage report: the only code that touches counters, and the one place where a verdict becomes a
 * return code. Rows belong to a CPU, so plain additions are enough.
 */
#ifndef HG_BPF_REPORT_H
#define HG_BPF_REPORT_H

#include "bpf/maps.h"
#include "bpf/maps_common.h"

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
		c->dropped++;
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

INLINE int report(const struct pkt *p)
{
	u32 cpu = bpf_get_smp_processor_id();

	count_verdict(cpu, p->verdict, p->drop);
	if (p->svc)
		count_service(p, cpu);
	if (p->verdict == HG_VERDICT_TX || p->verdict == HG_VERDICT_REDIRECT)
		count_backend(p, cpu);

	switch (p->verdict) {
	case HG_VERDICT_TX:
	case HG_VERDICT_REPLY:
		return XDP_TX;
	case HG_VERDICT_REDIRECT:
		return bpf_redirect(p->be->ifindex, 0);
	case HG_VERDICT_DROP:
		return XDP_DROP;
	default:
		return XDP_PASS;
	}
}

#endif
