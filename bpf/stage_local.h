/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage local: a service of this host's L7 tier is counted and goes to the kernel's TCP as it is,
 * fragments and faulty packets too: the kernel judges and reassembles. For all others this is where
 * the faults that parsing found are turned into drops, and where SYNs that a cookie may answer turn off.
 */
#ifndef HG_BPF_STAGE_LOCAL_H
#define HG_BPF_STAGE_LOCAL_H

#include "bpf/stage_select.h"
#include "bpf/stage_syn.h"

INLINE bool stage_local(struct pkt *p, bool v6)
{
	if (p->svc->mode == HG_MODE_LOCAL)
		return pkt_end(p, syn_asks(p) ? VERDICT_SYN : HG_VERDICT_PASS_LOCAL);
	if (unlikely(p->odd & ODD_DEFECT))
		return pkt_drop(p, p->odd & ODD_DEFECT);
	if (likely(!(p->svc->flags & HG_SVC_SYN_COOKIES && p->syn)) || p->is_judged ||
	    !syn_asks(p) || !has_backend(p, v6))
		return true;
	return pkt_end(p, VERDICT_SYN);
}

#endif
