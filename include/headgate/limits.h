/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maxima with the memory they cost, and the constants the loader writes into .rodata before the
 * verifier sees the program (branches on them disappear).
 */
#ifndef HEADGATE_LIMITS_H
#define HEADGATE_LIMITS_H

#include <headgate/base.h>

#define HG_MAX_BACKENDS 32768 /* ids 1..32767: 15 bits in a slot word; 64 B each = 2 MiB */
#define HG_MAX_SERVICES 16384 /* ids 0..16383 */
/* Service table: open addressing, two generations; 2 x 32768 x 64 B = 4 MiB at most. */
#define HG_SERVICE_BUCKETS_MAX 32768
#define HG_SERVICE_PROBES \
	8 /* longest probe sequence; the writer grows the table rather than exceed it */
/* Maglev slots are kept in blocks of one cache line. */
#define HG_SLOTS_PER_BLOCK 16
#define HG_MAX_CPUS	   256

/*
 * Load-time constants, `.rodata` of xdp_lb, symbol `ro` (skel->rodata->ro). The maps must be sized
 * to match: `services` 2 x (service_mask + 1), `xdp_services` max_services x n_cpus, `backends`
 * max_backends, `xdp_backends` max_backends x n_cpus, `xdp_verdicts` n_cpus. A lookup beyond a map's
 * end is a named drop or an uncounted packet, never an access.
 */
struct hg_rodata {
	__u32 n_cpus; /* possible CPUs: stride of the per-CPU counter arrays */
	__u32 service_mask; /* buckets of one generation of the service table, minus 1 */
	__u32 hash_seed; /* per fleet, the same on every edge host */
	__u32 max_services; /* ids of the counter arrays */
	__u32 max_backends;
	__u32 role; /* enum hg_role */
	__u32 has_steer; /* spread L7 packets over CPUs (cpumap) */
	__u32 pad;
};
HG_ASSERT_LAYOUT(struct hg_rodata, 32);

enum hg_role {
	HG_ROLE_EDGE = 0, /* xdp_lb */
	HG_ROLE_BACKEND = 1, /* xdp_decap */
};

/*
 * Key and value of map `decap_addrs` (xdp_decap): the host's addresses to which tunnels may be
 * addressed; IPv4 is ::ffff:a.b.c.d. Written at any time; a miss means "not our tunnel".
 */
struct hg_decap_key {
	__be32 addr[4];
};
HG_ASSERT_LAYOUT(struct hg_decap_key, 16);

enum hg_decap_flags {
	HG_DECAP_IPIP = 1 << 0, /* protocols 4 and 41 */
	HG_DECAP_GUE = 1 << 1, /* UDP port 6080, variants 0 and 1 */
};

struct hg_decap_addr {
	__u32 flags; /* enum hg_decap_flags: what is accepted */
	__u32 pad;
};
HG_ASSERT_LAYOUT(struct hg_decap_addr, 8);

#define HG_GUE_PORT	   6080 /* IANA; draft-ietf-intarea-gue */
#define HG_MAX_DECAP_ADDRS 256

/* The one element of map `meta`. */
struct hg_meta {
	__u32 abi; /* HG_ABI_VERSION */
	__u32 role;
	__u64 started_ns; /* CLOCK_REALTIME of the load */
	struct hg_rodata ro; /* what the running program was loaded with */
	char version[16];
};
HG_ASSERT_LAYOUT(struct hg_meta, 64);

enum hg_control_flags {
	HG_CTL_ANY_PORT = 1 << 0,
};

/* The one element of map `control`: words that userspace changes while packets flow. */
struct hg_control {
	__u32 service_generation; /* 0 or 1: which half of `services` is read */
	/*
	 * Per generation: HG_CTL_ANY_PORT when that half holds a key with port 0. Without it the
	 * program looks only once. Set it before flipping service_generation.
	 */
	__u32 generation_flags[2]; /* enum hg_control_flags */
	__u32 pad[13];
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_control, 64);

#endif
