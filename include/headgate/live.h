/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections now, by source: how many of this host's TCP connections to services of the L7 tier a client
 * has. The kernel counts (bpf/live_conns.bpf.c), when a handshake completes and when it forgets the socket, so a
 * connection is given back however it ends: closed, reset, timed out, its process killed. xdp_lb compares.
 *
 * A source, an address of IPv4 or a network of 64 bits of IPv6, is known by its seeded hash. Its words lie in two
 * lines beside each other, that of its hash and the neighbour. A word: [upper 44 bits of the hash][count:20]; at count
 * 0 it is anybody's. Who adds to a word that is the source's own looks at what it was: still the source's, or
 * it is taken back. Who takes a free one does so by compare and swap. A connection remembers its word and is part of its
 * count, so nobody takes the word away meanwhile, and its end is one atomic subtraction. Two CPUs may give a source
 * two words: the sum counts.
 */
#ifndef HEADGATE_LIVE_H
#define HEADGATE_LIVE_H

#include <headgate/base.h>
#include <headgate/service.h>

#define HG_LIVE_WAYS 8
#define HG_LIVE_LINES \
	32768 /* 2 MiB; with 130,000 sources it is half full, and 1 of 10^4 finds no room */
#define HG_LIVE_COUNT_BITS 20
#define HG_LIVE_COUNT	   ((1ull << HG_LIVE_COUNT_BITS) - 1)
#define HG_LIVE_TAG(hash)  ((hash) & ~HG_LIVE_COUNT)
/* A word is given no more than this: the rest is for those who take back what they added to it by mistake. */
#define HG_LIVE_COUNT_MAX (HG_LIVE_COUNT - 4096)

struct hg_live_line {
	__u64 word[HG_LIVE_WAYS];
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_live_line, 64);

static inline __attribute__((always_inline)) __u32 hg_live_row(__u64 hash)
{
	return (__u32)hash & (HG_LIVE_LINES - 1);
}
#define HG_LIVE_NEIGHBOUR(row) ((row) ^ 1)

/*
 * The source's hash, the same for everybody who keeps something by source. Two words as they lie in the packet: both
 * halves of an IPv6 address; of IPv4 `lo` is the address.
 */
static inline __attribute__((always_inline)) __u64 hg_source_hash(__u64 hi, __u64 lo, int v6,
								  __u64 seed)
{
	return v6 ? hg_mix64(hi ^ seed, 6) : hg_mix64(lo ^ seed, 4);
}

/* What a counted connection remembers (map `live_marks`, the socket's own storage). */
struct hg_live_mark {
	__u32 row; /* of `live_sources` */
	__u16 way; /* HG_LIVE_WAYS: no room was left, not counted there */
	__u16 service; /* id */
	__u32 is_counted;
	__u32 pad;
};
HG_ASSERT_LAYOUT(struct hg_live_mark, 16);

/* --- what else was seen of a source ------------------------------------------------------------------ */

/*
 * Map `source_seen`, written only while hg_control.watch says that a rule asks: SYNs of the present tick of the
 * program's clock and of the one before, packets that the guard dropped. Four sources to a line; who finds
 * none of its own takes the one that was silent the longest.
 */
#define HG_SEEN_WAYS	  4
#define HG_SEEN_LINES	  16384 /* 1 MiB, 65536 sources */
#define HG_SEEN_TAG(hash) ((__u32)((hash) >> 32) | 1)
struct hg_seen {
	__u32 tag; /* 0: free */
	__u32 dropped;
	__u16 tick; /* of the last SYN or drop */
	__u16 syns, before; /* in that tick, in the one before; no more than 65535 */
	__u16 pad;
};
HG_ASSERT_LAYOUT(struct hg_seen, 16);

struct hg_seen_line {
	struct hg_seen source[HG_SEEN_WAYS];
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_seen_line, 64);

#endif
