/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checksums without helpers: a call of bpf_csum_diff() costs more than the sum. All sums are one's
 * complement sums of 16-bit words in memory order (RFC 1071 2.B), so nothing is swapped.
 */
#ifndef HG_BPF_CSUM_H
#define HG_BPF_CSUM_H

#include "bpf/pkt.h"

INLINE u32 csum_add32(u32 sum, u32 word)
{
	return sum + (word & 0xffff) + (word >> 16);
}

/* Folds with end-around carry; enough for sums below 2^20 or so, as all of ours are. */
INLINE u16 csum_fold(u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (u16)((sum & 0xffff) + (sum >> 16));
}

/* The checksum after one of the words it covers has changed (RFC 1624 eqn. 3). */
INLINE u16 csum_replace(u16 check, u16 old, u16 new)
{
	return (u16)~csum_fold((u32)(u16)~check + (u16)~old + new);
}

/*
 * TTL minus one: the word (ttl << 8 | proto) falls by 0x0100, so the complement in the header rises
 * by it (RFC 1624 eqn. 3 for this case; the carry goes round).
 */
INLINE void csum_ttl_dec(struct iphdr *ip)
{
	u32 sum = (u32)ip->check + hg_be16(0x0100);

	ip->check = (u16)(sum + (sum >= 0xffff));
	ip->ttl--;
}

#endif
