/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Services: what a packet is for. Map `services` is an array of buckets in two generations; the
 * writer fills the idle half and flips `control.service_generation`, so that a reader never sees a
 * half-written table. A bucket is found by hg_service_hash() and linear probing; an empty bucket
 * (mode HG_MODE_EMPTY) ends the search. Bucket of probe i in generation g:
 * g * (service_mask + 1) + ((hg_service_hash(key) + i) & service_mask), i < HG_SERVICE_PROBES.
 *
 * Look-up order: addr:port:proto; then, only with HG_CTL_ANY_PORT in `control`, addr:0:proto and
 * addr:0:0. Packets without ports (later fragments, other protocols) know only the last two.
 */
#ifndef HEADGATE_SERVICE_H
#define HEADGATE_SERVICE_H

#include <headgate/base.h>
#include <headgate/limits.h>

/* Addresses are always 16 bytes in network order; IPv4 is ::ffff:a.b.c.d. */
struct hg_service_key {
	__be32 addr[4];
	__be16 port; /* 0: any port */
	__u8 proto; /* IPPROTO_TCP, IPPROTO_UDP; 0: any protocol (with port 0) */
	__u8 pad;
};
HG_ASSERT_LAYOUT(struct hg_service_key, 20);

/* How packets of the service travel on. */
#define HG_SERVICE_MODES(X)                                         \
	X(EMPTY, "empty", "the bucket is free")                     \
	X(LOCAL, "local", "terminated on this host by the L7 tier") \
	X(IPIP, "ipip", "IP in IP to the backend")                  \
	X(GUE, "gue", "generic UDP encapsulation to the backend")   \
	X(L2, "l2", "direct routing: destination MAC rewritten")    \
	X(NAT, "nat", "full NAT, both directions")

enum hg_mode {
#define X(name, text, help) HG_MODE_##name,
	HG_SERVICE_MODES(X)
#undef X
	HG_MODE_COUNT
};

enum hg_service_flags {
	HG_SVC_ANY_PORT = 1 << 0, /* the key's port is 0; `control` must say HG_CTL_ANY_PORT */
	HG_SVC_NO_PORT_HASH = 1 << 1, /* affinity source: ports do not take part in the hash */
};

struct hg_service {
	struct hg_service_key key; /* 20 */
	__u8 mode; /* enum hg_mode */
	__u8 flags;
	__u16 pad0;
	__u32 id; /* index of the counters, stable while the service exists */
	__u32 slots_block; /* first block of the Maglev table in map `slots` */
	__u32 slots; /* M, slots in the table; 0: no backend */
	__u32 pad[7];
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_service, 64);

/* One cache line of a Maglev table: [tracked:1][base backend:15][current backend:16]. */
struct hg_slot_block {
	__u32 slot[HG_SLOTS_PER_BLOCK];
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_slot_block, 64);

#define HG_SLOT_TRACKED		    0x80000000u
#define HG_SLOT_CURRENT(w)	    ((w) & 0xffffu)
#define HG_SLOT_BASE(w)		    (((w) >> 16) & 0x7fffu)
#define HG_SLOT_MAKE(base, current) (((__u32)(base) << 16) | (__u32)(current))

/* 64-bit mixer: two multiplications, no table; the same in kernel and userspace. */
static inline __attribute__((always_inline)) __u64 hg_mix64(__u64 a, __u64 b)
{
	__u64 h = (a ^ 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;

	h ^= (h >> 32) ^ b;
	h *= 0xc4ceb9fe1a85ec53ull;
	return h ^ (h >> 29);
}

static inline __attribute__((always_inline)) __u32 hg_service_hash(const struct hg_service_key *k)
{
	__u64 hi = (__u64)k->addr[0] << 32 | k->addr[1];
	__u64 lo = (__u64)k->addr[2] << 32 | k->addr[3];
	__u64 l4 = (__u64)k->port << 8 | k->proto;

	return (__u32)hg_mix64(hi ^ (l4 << 16), lo);
}

#endif
