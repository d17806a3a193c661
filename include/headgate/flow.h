/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flows: the one hash by which a connection finds its slot, used by XDP, by steering and by
 * userspace (which answers "where would this flow go").
 */
#ifndef HEADGATE_FLOW_H
#define HEADGATE_FLOW_H

#include <headgate/base.h>
#include <headgate/service.h>

struct hg_flow_key {
	__be32 src[4];
	__be32 dst[4];
	__be16 sport;
	__be16 dport;
	__u8 proto;
	__u8 pad[3];
};
HG_ASSERT_LAYOUT(struct hg_flow_key, 40);

/* 64 bits; the upper half picks the slot, the lower half is tunnel entropy. */
static inline __attribute__((always_inline)) __u64 hg_flow_hash(const struct hg_flow_key *k,
								__u32 seed)
{
	__u64 s1 = (__u64)k->src[0] << 32 | k->src[1];
	__u64 s2 = (__u64)k->src[2] << 32 | k->src[3];
	__u64 d1 = (__u64)k->dst[0] << 32 | k->dst[1];
	__u64 d2 = (__u64)k->dst[2] << 32 | k->dst[3];
	__u64 l4 = (__u64)k->sport << 32 | (__u64)k->dport << 8 | k->proto;

	return hg_mix64(hg_mix64(s1 ^ (d1 << 1) ^ seed, s2 ^ l4), d2 ^ (l4 << 7));
}

/* Multiply-shift range reduction: slot index in [0, slots). */
static inline __attribute__((always_inline)) __u32 hg_flow_slot(__u64 hash, __u32 slots)
{
	return (__u32)(((hash >> 32) * slots) >> 32);
}

#endif
