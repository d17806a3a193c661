/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Steering: where packets for this host's L7 tier go through the kernel's TCP, and which worker's listening socket
 * gets a new connection. Packets: the CPU that received one hands it to another (a CPU map); a flow always
 * goes to the same one while the list is the same.
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

/* --- new connections (bpf/sk_steer.bpf.c) ---------------------------------------------------------------------- */

enum hg_sk_mode {
	HG_SK_OFF, /* by the kernel's hash */
	HG_SK_CPU, /* to the worker pinned to the CPU that takes the SYN, unless that has too many */
	HG_SK_LEAST, /* to the worker with the fewest connections */
};

#define HG_SK_WORKERS 256
#define HG_SK_LOOKS \
	16 /* workers compared for one connection: with more of them, so many from a random one on */
#define HG_SK_SLACK \
	8 /* a worker has too many: a quarter and so many more than the least loaded one */
#define HG_SK_SHIFT \
	26 /* window in which what was given may not be accepted yet: 2^26 ns, 67 ms, and the one before */

/* Workers pinned to a CPU: `n` of hg_sk_steer.order from `first` on; 0: none. */
struct hg_sk_cpu {
	__u16 first, n;
};

/* The one element of map `sk_steer`. Writer: control thread, before the program is attached or `mode` last. */
struct hg_sk_steer {
	__u32 mode; /* enum hg_sk_mode */
	__u32 n_workers;
	__u32 pad[14];
	struct hg_sk_cpu cpu[HG_STEER_MAX];
	__u16 order[HG_SK_WORKERS]; /* workers, those of one CPU beside each other */
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_sk_steer, 1600);

/* Map `sk_workers`, row = worker: SYNs given to it. Writer: the program. */
struct hg_sk_worker {
	__u64 by_cpu; /* because it is the CPU's own */
	__u64 by_load; /* because it has the fewest */
	__u64 migrated; /* from a socket that was closed with connections in it */
	/* By plain stores: two CPUs in the same moment may lose one. */
	__u32 window; /* number of the window that `given` is of */
	__u32 given, given_before; /* in it, and in the one before */
	__u32 pad[7];
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_sk_worker, 64);

#endif
