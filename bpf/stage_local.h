/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage local: a service of this host's L7 tier is counted and goes to the kernel's TCP as it is,
 * fragments and faulty packets too: the kernel judges and reassembles. For all others this is where
 * the faults that parsing found are turned into drops.
 */
#ifndef HG_BPF_STAGE_LOCAL_H
#define HG_BPF_STAGE_LOCAL_H

#include "bpf/stage_syn.h"

INLINE bool stage_local(struct pkt *p)
{
	if (p->svc->mode == HG_MODE_LOCAL)
		return pkt_end(p, syn_asks(p) ? VERDICT_SYN : HG_VERDICT_PASS_LOCAL);
	if (likely(!(p->odd & ODD_DEFECT)))
		return true;
	return pkt_drop(p, p->odd & ODD_DEFECT);
}

#endif
