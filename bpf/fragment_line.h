/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lines of datagrams: a first fragment leaves a word behind, later ones find it. Words have the datagram's hash above
 * `low` bits, which are the caller's. Times are of the line's `meta`, lower half.
 */
#ifndef HG_BPF_FRAGMENT_LINE_H
#define HG_BPF_FRAGMENT_LINE_H

#include "bpf/parse.h"

INLINE u64 fragment_hash(const struct pkt *p, bool v6)
{
	__be32 src[4], dst[4];

	read_addrs(p, v6, src, dst);
	return hg_fragment_hash(src, dst, p->frag_id, v6 ? 0 : p->proto, ro.hash_seed);
}

INLINE bool fragment_same(u64 word, u64 hash, u32 low)
{
	return !((word ^ hash) >> low);
}

/* Which way of its line a datagram takes: its own, a free one, or that of the oldest, which gives way. */
INLINE u32 fragment_way(const struct hg_line *l, u64 hash, u32 low, u32 now)
{
	u32 best = 0, way = 0, i, y;

#pragma clang loop unroll(disable)
	for (i = 0; i < HG_LINE_WAYS; i++) {
		y = 1 + tick_age(l->meta[i], now);
		if (!l->word[i])
			y = 0x20000;
		if (fragment_same(l->word[i], hash, low))
			y = 0x40000;
		if (y > best) {
			best = y;
			way = i;
		}
	}
	return way;
}

/* False: not known, or too long ago. */
INLINE bool fragment_known(const struct hg_line *l, u64 hash, u32 low, u64 *ret_word, u32 *ret_meta)
{
	u32 i;

#pragma clang loop unroll(disable)
	for (i = 0; i < HG_LINE_WAYS; i++) {
		*ret_word = READ_ONCE(l->word[i]);
		*ret_meta = READ_ONCE(l->meta[i]);
		if (*ret_word && fragment_same(*ret_word, hash, low) &&
		    tick_age(*ret_meta, tick_now()) <= ro.fragment_ticks)
			return true;
	}
	return false;
}

#endif
