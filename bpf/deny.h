/* SPDX-License-Identifier: BSD-2-Clause */
/* Denied prefixes: who is asked, in which order. What the maps hold and why: headgate/guard.h. */
#ifndef HG_BPF_DENY_H
#define HG_BPF_DENY_H

#include <headgate/guard.h>

#include "bpf/maps.h"

/* All denied prefixes. Writers: control thread, tools. Miss: not denied. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, HG_DENY_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct hg_deny4_key);
	__type(value, struct hg_deny);
} deny4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, HG_DENY_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct hg_deny6_key);
	__type(value, struct hg_deny);
} deny6 SEC(".maps");

/* Where it is worth to ask. Writers: as above, by atomic additions. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_DENY_LINES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_deny_cells);
} deny_cells SEC(".maps");

/* Most of them once more. Writers: as above. Miss: not denied, where the cell has no more of them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_DENY_INDEX_MIN);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_deny_line);
} deny_index SEC(".maps");

/* The clock is read only for what is in the trie and has an end. */
INLINE bool deny_holds(const struct hg_deny *d)
{
	return !d->expires_ns || bpf_ktime_get_coarse_ns() < d->expires_ns;
}

/*
 * The longest prefix decides; one whose time is over hides no shorter one. `bits` is that of the key. A drop
 * reason, HG_DROP_NONE: not denied.
 */
INLINE u32 deny_search(void *trie, void *key, u32 *bits)
{
	const struct hg_deny *d;
	u32 i;

#pragma clang loop unroll(disable)
	for (i = 0; i < HG_DENY_NESTED; i++) {
		d = bpf_map_lookup_elem(trie, key);
		if (!d)
			return HG_DROP_NONE;
		if (deny_holds(d))
			return d->flags & HG_DENY_RESETS ? HG_DROP_DENIED_RESET : HG_DROP_DENIED;
		if (!d->bits)
			return HG_DROP_NONE;
		*bits = d->bits - 1;
	}
	return HG_DROP_NONE;
}

/* Not inlined: rare, and costly anyway. */
GLOBAL u32 deny4_has(u32 addr)
{
	struct hg_deny4_key k = { .bits = 32, .addr = addr };

	return deny_search(&deny4, &k, &k.bits);
}

GLOBAL u32 deny6_has(u64 hi, u64 lo)
{
	struct hg_deny6_key k = { .bits = 128 };

	k.addr[0] = (u32)hi;
	k.addr[1] = (u32)(hi >> 32);
	k.addr[2] = (u32)lo;
	k.addr[3] = (u32)(lo >> 32);
	return deny_search(&deny6, &k, &k.bits);
}

/*
 * A source is two words as they lie in the packet: both halves of an IPv6 address; of IPv4 `lo` is the address.
 * First 32 bits in host order:
 */
INLINE u32 source_first(u64 hi, u64 lo, bool v6)
{
	return __builtin_bswap32(v6 ? (u32)hi : (u32)lo);
}

/*
 * The word of a prefix, 0: not in the index. Without branches in a line: which word it is nobody can guess. Two copies
 * of a prefix, while two writers meet, are as good as one.
 */
INLINE u64 deny_in_line(const struct hg_deny_line *line, u64 prefix)
{
	u64 found = 0, w, other;
	u32 way;

#pragma clang loop unroll(full)
	for (way = 0; way < HG_DENY_WAYS; way++) {
		w = READ_ONCE(line->word[way]);
		other = (w ^ prefix) >> 23;
		asm volatile("" : "+r"(other)); /* else clang sees through it and branches */
		found |= w & -((other - 1) >> 63);
	}
	return found;
}

/* In its line, nearly always; else in those of the neighbourhood where prefixes of that line live. */
INLINE u64 deny_word(u64 prefix, u32 hash)
{
	const struct hg_deny_line *line;
	u64 found = 0, where = 1;
	u32 step, row;

#pragma clang loop unroll(disable)
	for (step = 0; step < HG_DENY_DOORS && where; step++, where >>= 8) {
		if (!(where & 0xff))
			continue;
		row = (hash & ro.deny_mask) ^ step;
		line = bpf_map_lookup_elem(&deny_index, &row);
		if (unlikely(!line))
			break;
		found |= deny_in_line(line, prefix);
		if (!step)
			where = found ? 0 : READ_ONCE(line->next_door);
	}
	return found;
}

#define DENY_ASK 0xffu /* the trie knows */

/* What a word says. */
INLINE u32 deny_answer(u64 word)
{
	u64 until = word & HG_DENY_UNTIL;

	if (unlikely(until && until <= bpf_ktime_get_coarse_ns() >> HG_DENY_UNTIL_UNIT))
		return DENY_ASK;
	return word & HG_DENY_RST ? HG_DROP_DENIED_RESET : HG_DROP_DENIED;
}

/*
 * What the index says of an address, in host order: a drop reason, or HG_DROP_NONE, or DENY_ASK. The longest prefix
 * decides. One copy per family, for there is little stack left; not inlined, for they are long.
 */
INLINE u32 deny_indexed(u64 hi, u64 lo, bool v6)
{
	u32 zero = 0, found = 0, i, n; /* found: [length:24][answer:8] */
	const struct hg_control *c = bpf_map_lookup_elem(&control, &zero);
	struct hg_deny_place at;
	u64 word;

	if (unlikely(!c))
		return HG_DROP_NONE;
#pragma clang loop unroll(disable)
	for (i = 0; i < HG_DENY_LENGTHS; i++) {
		asm volatile("" : "+r"(c)); /* else clang keeps two pointers into it, and there is no stack for both */
		n = READ_ONCE(c->deny_lengths[v6][i]);
		if (!(n & HG_DENY_PREFIXES) || n >> HG_DENY_LENGTH <= found >> 8)
			continue;
		at = hg_deny_place(hi, lo, v6, n >> HG_DENY_LENGTH,
				   READ_ONCE(c->source_seed));
		word = deny_word(at.prefix, at.line);
		if (word)
			found = n >> HG_DENY_LENGTH << 8 | deny_answer(word);
	}
	return found & 0xff;
}

GLOBAL u32 deny4_indexed(u32 addr)
{
	return deny_indexed(0, addr, false);
}

GLOBAL u32 deny6_indexed(u64 hi, u64 lo)
{
	return deny_indexed(hi, lo, true);
}

INLINE u32 is_denied(u64 hi, u64 lo, bool v6)
{
	u32 cell = hg_deny_cell(source_first(hi, lo, v6), v6), row = cell / HG_DENY_LINE, n, drop;
	const struct hg_deny_cells *c = bpf_map_lookup_elem(&deny_cells, &row);

	if (unlikely(!c))
		return HG_DROP_NONE;
	n = READ_ONCE(c->n[cell % HG_DENY_LINE]);
	if (likely(!n))
		return HG_DROP_NONE;
	drop = unlikely(n & HG_DENY_REST) ? DENY_ASK
	       : v6			  ? deny6_indexed(__builtin_bswap64(hi), __builtin_bswap64(lo))
					  : deny4_indexed(__builtin_bswap32((u32)lo));
	if (likely(drop != DENY_ASK))
		return drop;
	return v6 ? deny6_has(hi, lo) : deny4_has((u32)lo);
}

#endif
