/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Services: what a packet is for. Map `services` is an array of buckets in two generations; the
 * writer fills the idle half and flips `control.service_generation`, so that a reader never sees a
 * half-written table. A bucket is found by hg_service_hash() and linear probing; an empty bucket
 * (mode HG_MODE_EMPTY) ends the search. Bucket of probe i in generation g:
 * g * (service_mask + 1) + ((hg_service_hash(key) + i) & service_mask), i < HG_SERVICE_PROBES.
 *
 * Look-up order: addr:port:proto; then, only with HG_CTL_ANY_PORT in `control`, addr:0:proto and
 * addr:0:0. Packets without ports (other protocols; later fragments whose first one was not seen) know
 * only the last two. An address row, addr:0:ICMP or addr:0:ICMPv6 with mode HG_MODE_ADDR, says that the
 * address is a service's; it does not need HG_CTL_ANY_PORT.
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
	X(NAT, "nat", "full NAT, both directions")                  \
	X(ADDR, "addr", "no service: the address has some, its echo requests are answered")

enum hg_mode {
#define X(name, text, help) HG_MODE_##name,
	HG_SERVICE_MODES(X)
#undef X
	HG_MODE_COUNT
};

enum hg_service_flags {
	HG_SVC_ANY_PORT = 1 << 0, /* the key's port is 0; `control` must say HG_CTL_ANY_PORT */
	/*
	 * Affinity source: ports do not take part in the hash. Wanted for services on any port that a
	 * client uses several ports of; packets without ports are hashed so in any case.
	 */
	HG_SVC_NO_PORT_HASH = 1 << 1,
	HG_SVC_NO_AFFINITY =
		1 << 2, /* affinity none: always the current owner, nothing remembered */
	HG_SVC_TRACK_ON = 1 << 3, /* every flow is looked up and remembered, moved slot or not */
	HG_SVC_QUIC_CID = 1 << 4, /* UDP: short headers by server id, see cid_offset */
	/*
	 * On an address row: this host has no use of its own for the address (not configured here, no
	 * service of the L7 tier on it), so a later fragment that cannot be assigned is dropped by name
	 * and not left to the kernel.
	 */
	HG_SVC_NOT_LOCAL = 1 << 5,
	HG_SVC_SYN_COOKIES = 1 << 6, /* not local, and the backends' agents take SYN cookies, see syn.h */
	HG_SVC_GUARDED = 1 << 7, /* has limits or an allow list of its own, see guard.h */
};

struct hg_service {
	struct hg_service_key key; /* 20 */
	__u8 mode; /* enum hg_mode */
	__u8 flags; /* enum hg_service_flags */
	__u8 cid_offset; /* QUIC: of the server id in the connection id; 1 behind the draft's first octet */
	__u8 cid_len; /* QUIC: bytes of the server id, 1 to HG_QUIC_ID_MAX, most significant first */
	__u32 id; /* index of the counters, stable while the service exists */
	__u32 slots_block; /* first block of the Maglev table in map `slots` */
	__u32 slots; /* M, slots in the table; 0: no backend */
	__u32 quic_block; /* QUIC: first block of the service's server ids in map `quic_ids` */
	__u32 quic_ids; /* QUIC: how many; server id n is word n from that block on, 0 there: unknown */
	__u32 pad[5];
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_service, 64);

/* One cache line of a Maglev table: [tracked:1][base backend:15][current backend:16]. */
struct hg_slot_block {
	__u32 slot[HG_SLOTS_PER_BLOCK];
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_slot_block, 64);

/*
 * Backends by the server ids in connection ids (draft-ietf-quic-load-balancers, plaintext): the value
 * of the id is the index, so writers give ids out densely. Backend id 0: unknown, by flow.
 */
#define HG_QUIC_IDS_PER_BLOCK 32
#define HG_QUIC_ID_MAX	      4
#define HG_QUIC_OFFSET_MAX    16 /* connection ids are at most 20 bytes long (RFC 9000 17.2) */
struct hg_quic_block {
	__u16 backend[HG_QUIC_IDS_PER_BLOCK];
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_quic_block, 64);

/* `track on`, and every entry of `flows` is one connection: those count (HG_WORD_COUNTED). */
static inline __attribute__((always_inline)) int hg_service_counts(__u32 flags)
{
	return (flags & (HG_SVC_TRACK_ON | HG_SVC_NO_PORT_HASH | HG_SVC_NO_AFFINITY |
			 HG_SVC_QUIC_CID)) == HG_SVC_TRACK_ON;
}

#define HG_SLOT_TRACKED		    0x80000000u
#define HG_SLOT_CURRENT(w)	    ((w) & 0xffffu)
#define HG_SLOT_BASE(w)		    (((w) >> 16) & 0x7fffu)
#define HG_SLOT_MAKE(base, current) (((__u32)(base) << 16) | (__u32)(current))

static inline __attribute__((always_inline)) __u32 hg_service_hash(const struct hg_service_key *k)
{
	__u64 hi = (__u64)k->addr[0] << 32 | k->addr[1];
	__u64 lo = (__u64)k->addr[2] << 32 | k->addr[3];
	__u64 l4 = (__u64)k->port << 8 | k->proto;

	return (__u32)hg_mix64(hi ^ (l4 << 16), lo);
}

#endif
