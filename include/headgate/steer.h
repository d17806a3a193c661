/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Steering: where packets for this host's L7 tier go through the kernel's TCP. The CPU that received one hands
 * it to another (a CPU map); a flow always goes to the same one while the list is the same.
 */
#ifndef HEADGATE_STEER_H
#define HEADGATE_STEER_H

#include <headgate/base.h>

#define HG_STEER_MAX   256 /* CPUs in the list */
#define HG_STEER_QUEUE 2048 /* packets on their way to a CPU */

/* The one element of map `steer`. Writer: control thread, `n` last; the CPUs are in map `steer_cpus` before. */
struct hg_steer {
	__u32 n; /* 0: packets stay on the CPU that received them */
	__u32 pad[15];
	__u32 cpu[HG_STEER_MAX];
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_steer, 1088);

#endif
