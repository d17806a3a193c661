/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flows: the one hash by which a connection finds its slot, used by XDP, by steering and by
 * userspace (which answers "where would this flow go"), and the lines in which flows and first fragments
 * are remembered.
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

/*
 * Five remembered flows (map `flows`) or datagrams (map `fragments`) in a cache line. Entry i is word[i] with
 * meta[i]. A word is written in one store, so a reader never joins one flow's fingerprint with another's
 * backend; 0: free. An entry's line is hg_line_of(hash) or, when that is full, its neighbour.
 *
 * Writer: the program, on any CPU, by compare and swap: of two CPUs that write one entry at once one
 * wins and the other flow stays unknown. Userspace may clear a word or its HG_WORD_COUNTED likewise.
 */
#define HG_LINE_WAYS 5
struct hg_line {
	__u64 word[HG_LINE_WAYS]; /* upper 48 bits of the hash, HG_WORD_COUNTED, backend id in the lower 15 */
	__u32 meta[HG_LINE_WAYS];
	__u32 pad; /* zero */
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_line, 64);

/*
 * The flow is a connection that counts in `live_backends`: `track on`. Whoever takes the bit away, or the word, by
 * compare and swap takes one from the count, so it is exact.
 */
#define HG_WORD_COUNTED	       0x8000u
#define HG_WORD_MAKE(hash, id) (((hash) & ~0xffffull) | (__u64)(id))
#define HG_WORD_BACKEND(w)     ((__u32)((w) & 0x7fff))
/* The slot of a remembered flow is hg_flow_slot(word, slots): the upper half is the hash's. */

/* meta of a flow: [class:2][service id:14][tick:16]; of a fragment: [port as it lies:16][tick:16]. */
#define HG_META_MAKE(class, service, tick) \
	((__u32)(class) << 30 | ((__u32)(service) & 0x3fff) << 16 | ((tick) & 0xffff))
#define HG_META_CLASS(m)   ((m) >> 30)
#define HG_META_SERVICE(m) (((m) >> 16) & 0x3fff)
#define HG_META_TICK(m)	   ((m) & 0xffff)
#define HG_META_PORT(m)	   ((__be16)((m) >> 16))

/* How sure we are of a flow. A packet makes room for its flow only among those of its own class or less. */
enum hg_flow_class {
	HG_FLOW_LEARNT = 0, /* one packet that was no SYN; with `track on` also a connection that was closed */
	HG_FLOW_SYN = 1, /* a SYN */
	HG_FLOW_CONFIRMED = 2, /* more packets came; yields only when idle */
};

/* With `track on`: seconds of silence after which what the client did not confirm no longer counts, and what it closed is forgotten. */
#define HG_FLOW_SYN_S	 30
#define HG_FLOW_CLOSED_S 60

static inline __attribute__((always_inline)) __u32 hg_line_of(__u64 hash, __u32 mask)
{
	return (__u32)hash & mask;
}

#define HG_LINE_NEIGHBOUR(line) ((line) ^ 1)

/*
 * What fragments of a datagram have in common, hashed like a flow; `proto` 0 for IPv6, where it is not part
 * of a datagram's identity (RFC 8200 4.5).
 */
static inline __attribute__((always_inline)) __u64 hg_fragment_hash(const __be32 *src,
								    const __be32 *dst, __u32 id,
								    __u8 proto, __u32 seed)
{
	struct hg_flow_key k = { .sport = (__be16)(id >> 16), .dport = (__be16)id, .proto = proto };
	int i;

	for (i = 0; i < 4; i++) {
		k.src[i] = src[i];
		k.dst[i] = dst[i];
	}
	return hg_flow_hash(&k, seed);
}

#endif
