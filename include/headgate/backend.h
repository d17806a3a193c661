/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Backends: where a packet goes. Map `backends` is an array by id; id 0 is never valid, so an empty
 * slot is a counted drop and not traffic to backend 0. All but `neigh` and HG_BE_ALIVE is written once,
 * before a slot names the id; a changed address is a new id. An id is given to another backend only when
 * no slot, no connection id and no entry of `flows` and `fragments` names it any more.
 */
#ifndef HEADGATE_BACKEND_H
#define HEADGATE_BACKEND_H

#include <headgate/base.h>

enum hg_backend_flags {
	HG_BE_VALID = 1 << 0,
	HG_BE_OUTER_V6 = 1 << 1, /* the tunnel runs over IPv6 */
	HG_BE_ALIVE = 1 << 2, /* by the health checks; remembered flows stay with the living only */
};

/* Next hop and its VLAN in one aligned word, so that a reader sees old or new, never half. */
union hg_neigh {
	struct {
		__u8 mac[6];
		__u16 state; /* HG_NEIGH_OK and what goes with it, the VLAN id above HG_NEIGH_VLAN_SHIFT */
	};
	__u64 word;
};

enum hg_neigh_state {
	HG_NEIGH_NONE = 0, /* not resolved: drop, named */
	HG_NEIGH_OK = 1 << 0, /* alone: frames leave without a tag, whatever they came with */
	HG_NEIGH_KEEP_TAGS = 1 << 1, /* frames keep the tags they came with, up to two */
	HG_NEIGH_TAG_AD = 1 << 2, /* the tag is one of 802.1ad (0x88a8), else of 802.1Q */
};
/* VLAN id, 1 to 4094, of the one tag that frames leave with; 0: none, or HG_NEIGH_KEEP_TAGS. */
#define HG_NEIGH_VLAN_SHIFT   4
#define HG_NEIGH_TAGGED(vlan) ((__u16)(HG_NEIGH_OK | (vlan) << HG_NEIGH_VLAN_SHIFT))

#define HG_BE_USABLE (HG_BE_VALID | HG_BE_ALIVE)

/*
 * Call hg_backend_seal() on a copy after filling in everything else and before storing it.
 */
struct hg_backend {
	__be32 addr[4]; /* ::ffff:a.b.c.d for IPv4; destination of the tunnel */
	__be32 outer_src[4]; /* tunnel source, same family; bits of entropy_mask zero (sealed) */
	union hg_neigh neigh; /* written at any time */
	__u32 ifindex; /* egress; must be set before neigh says HG_NEIGH_OK */
	__u16 mtu; /* of the egress path, bytes at layer 3 */
	__u8 flags; /* enum hg_backend_flags */
	__u8 pad0;
	__u8 src_mac[6]; /* of the egress interface */
	__u16 csum_base; /* sealed: partial sum of the constant words of the outer IPv4 header */
	/*
	 * Bits of the last word of outer_src (network order) that the program fills from the flow
	 * hash, so that receivers that hash addresses spread tunnels over their queues; 0: none.
	 * An outer IPv6 header carries entropy in its flow label anyway (RFC 6438).
	 */
	__be32 entropy_mask;
	__u16 id; /* its own index */
	__be16 port; /* NAT: where the server listens, read when a connection begins; 0: the service's port */
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_backend, 64);

/* The outer IPv4 header: TTL 64; DF and id 0, an atomic datagram (RFC 6864 4.1). */
#define HG_OUTER_TTL	  64
#define HG_OUTER_FRAG_OFF 0x4000

/*
 * Derived fields: clears the entropy bits of outer_src and sets csum_base to the one's complement
 * sum, folded to 16 bits and in the byte order of memory, of the outer IPv4 header with tos, total
 * length, protocol, checksum and entropy bits zero. The program adds those and complements.
 */
static inline void hg_backend_seal(struct hg_backend *b)
{
	__u32 sum = hg_be16(0x4500) + hg_be16(HG_OUTER_FRAG_OFF) + hg_be16(HG_OUTER_TTL << 8);

	b->outer_src[3] &= ~b->entropy_mask;
	sum += (b->outer_src[3] & 0xffff) + (b->outer_src[3] >> 16);
	sum += (b->addr[3] & 0xffff) + (b->addr[3] >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	b->csum_base = (__u16)((sum & 0xffff) + (sum >> 16));
}

#endif
