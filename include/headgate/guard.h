/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What keeps unwanted packets away from services: denied prefixes, and limits per source address.
 *
 * Denied prefixes are in two LPM tries, which are what is true and what tools read. A trie costs 40 ns to ask, and two
 * microseconds when it holds a million prefixes: it goes down bit by bit, each a line from memory. So that packets need
 * not ask there are two things in front of it.
 *
 * `deny_cells` counts the prefixes of every part of the address space: of 2^18 parts of IPv4 by their first 18 bits, of
 * IPv6 by a hash of its first 32. Nearly all packets end here.
 *
 * `deny_index` is a hash table of prefixes, one look-up for each length in use (`hg_control.deny_lengths`). What is in it
 * decides without the trie. What is not, for there are more lengths or a line is full, is counted a second time in
 * its cells: there the trie has to be asked.
 *
 * Whoever adds a prefix raises both counts, puts it into the trie, then into the index, and takes the second count back.
 * Whoever removes one goes the other way. A writer that dies leaves a count too high and never one too low, and no
 * prefix in force that is not in the trie.
 *
 * Limits are kept by the theoretical arrival time of the next packet (GCRA), the same as a token bucket
 * and one word per source: a word whose time is past says no more than that its bucket is full.
 */
#ifndef HEADGATE_GUARD_H
#define HEADGATE_GUARD_H

#include <headgate/base.h>

/* --- denied prefixes ---------------------------------------------------------------------------- */

#define HG_DENY_MAX \
	(1 << 21) /* prefixes of one family; memory is taken one by one, some 100 bytes each */
#define HG_DENY_CELL_BITS 18
#define HG_DENY_CELLS	  (1 << HG_DENY_CELL_BITS) /* of one family, two bytes each: 1 MiB in all */
/* A prefix inside others whose time is over: so many of them are looked behind. */
#define HG_DENY_NESTED 8

/* Keys of `deny4` and `deny6`: bits that count, address in network order. */
struct hg_deny4_key {
	__u32 bits;
	__be32 addr;
};
HG_ASSERT_LAYOUT(struct hg_deny4_key, 8);

struct hg_deny6_key {
	__u32 bits;
	__be32 addr[4];
};
HG_ASSERT_LAYOUT(struct hg_deny6_key, 20);

/* Who wants it; of two that last as long the one that stands further down keeps the entry. */
#define HG_DENY_ORIGINS(X)                             \
	X(NONE, "-", "nobody: the entry is not valid") \
	X(FILE, "file", "'xdp deny-file'")             \
	X(RULE, "rule", "action 'xdp-drop'")           \
	X(TOOL, "tool", "'headgate deny add'")

enum hg_deny_origin {
#define X(name, text, help) HG_DENY_##name,
	HG_DENY_ORIGINS(X)
#undef X
	HG_DENY_ORIGIN_COUNT
};

enum hg_deny_flags {
	HG_DENY_RESETS = 1 << 0, /* TCP is answered by an RST, made by XDP */
};

struct hg_deny {
	__u64 expires_ns; /* CLOCK_MONOTONIC; 0: never */
	__u16 origin; /* enum hg_deny_origin */
	__u16 flags; /* enum hg_deny_flags */
	__u32 bits; /* of its own key, so that the next shorter one can be asked for */
};
HG_ASSERT_LAYOUT(struct hg_deny, 16);

/*
 * A line of `deny_cells`: first those of IPv4, then those of IPv6. A count that has reached its end stays for good. Of
 * each cell the upper bits count prefixes that are in the trie only.
 */
#define HG_DENY_LINE 32
#define HG_DENY_ALL  0x03ffu /* all prefixes that reach into this part */
#define HG_DENY_REST 0xfc00u /* those that the index does not have */
struct hg_deny_cells {
	__u16 n[HG_DENY_LINE];
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_deny_cells, 64);
#define HG_DENY_LINES (2 * HG_DENY_CELLS / HG_DENY_LINE)

/* Cell of an address, by its first 32 bits in host order. */
static inline __attribute__((always_inline)) __u32 hg_deny_cell(__u32 first, __u32 v6)
{
	if (v6)
		return HG_DENY_CELLS + (first * 0x9e3779b1u >> (32 - HG_DENY_CELL_BITS));
	return first >> (32 - HG_DENY_CELL_BITS);
}

/* Lengths in `deny_index`, of each family: [length:8][prefixes of it:24], in no order. */
#define HG_DENY_LENGTHS	 4
#define HG_DENY_LENGTH	 24
#define HG_DENY_PREFIXES ((1u << HG_DENY_LENGTH) - 1)

/*
 * A line of `deny_index`, of both families. A word: [prefix:41][RST:1][until:22], 0: free. IPv4: 0, length (8), address
 * (32). IPv6: 1 and 40 bits of the hash; 19 others choose the line, so an address of nobody's list is taken for one of a million
 * prefixes once in 2^39 times. `until`: denied for certain before that time of CLOCK_MONOTONIC, in units of 8.6 s; later the trie
 * knows. 0: for good. Whose line is full lives next door, in one of the lines whose numbers differ in the last bits only.
 */
#define HG_DENY_WAYS  7
#define HG_DENY_DOORS 8
struct hg_deny_line {
	__u64 word[HG_DENY_WAYS];
	__u64 next_door; /* byte n: how many of this line's prefixes live in the line of this number ^ n */
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_deny_line, 64);

#define HG_DENY_INDEX_MIN (1 << 13) /* lines: 512 KiB, for 30 thousand prefixes */
#define HG_DENY_INDEX_MAX (1 << 19) /* 32 MiB */
#define HG_DENY_PER_LINE  4 /* prefixes that lines are made for; then 1 of 100,000 finds no room */

#define HG_DENY_UNTIL	   ((1ull << 22) - 1)
#define HG_DENY_UNTIL_UNIT 33 /* 2^33 ns */
#define HG_DENY_RST	   (1ull << 22)
#define HG_DENY_PREFIX	   (~0ull << 23)

/*
 * Where a prefix of `len` bits, 1 or more, is found that an address belongs to; both halves in host order, of IPv4 `lo` is all.
 * `seed` is the secret hg_control.source_seed: who knew it could have himself denied from an IPv6 address that was
 * chosen to look like somebody else's. hg_mix64() alone is no secret: its second word cancels its first.
 */
struct hg_deny_place {
	__u64 prefix; /* HG_DENY_PREFIX of its word */
	__u32 line; /* to be masked */
};

static inline __attribute__((always_inline)) struct hg_deny_place
hg_deny_place(__u64 hi, __u64 lo, __u32 v6, __u32 len, __u64 seed)
{
	struct hg_deny_place at;
	__u64 hash;

	if (!v6) {
		at.prefix = (lo & ~0ull << (32 - len)) | (__u64)len << 32;
		at.line = (__u32)hg_mix64(at.prefix ^ seed, seed);
		at.prefix <<= 23;
		return at;
	}
	if (len <= 64) {
		hi &= ~0ull << (64 - len);
		lo = 0;
	} else {
		lo &= ~0ull << (128 - len);
	}
	hash = hg_mix64(hg_mix64(hg_mix64(hi ^ seed, seed), lo), seed ^ len);
	at.prefix = 1ull << 63 | (hash & HG_DENY_PREFIX);
	at.line = (__u32)hash;
	return at;
}

/* --- limits per source --------------------------------------------------------------------------- */

#define HG_LIMITS(X)                                               \
	X(PACKETS, "packet-rate", "packets per source and second") \
	X(SYNS, "syn-rate", "TCP SYNs per source and second")

enum hg_limit_kind {
#define X(name, text, help) HG_LIMIT_##name,
	HG_LIMITS(X)
#undef X
	HG_LIMIT_COUNT
};

/* Times are jiffies with 20 binary digits behind the point. */
#define HG_LIMIT_FRACTION 20
struct hg_limit {
	__u64 window; /* how far ahead of now a source may be: (burst - 1) * step */
	__u32 step; /* that a packet costs: jiffies per second / rate; 0: no limit */
	__u32 pad;
};
HG_ASSERT_LAYOUT(struct hg_limit, 16);

/*
 * Sources share lines of eight by a seeded hash, every limit in lines of its own: a packet that is no SYN looks at one. A
 * word: [tag of the source:16][time:48], 0: free. Who finds no word of its own takes the one that is the least
 * ahead, and begins with a full bucket: a table that is too small is lenient. Two sources of one line have the same
 * tag once in 65536 times: they share a bucket.
 */
#define HG_SOURCE_WAYS	8
#define HG_SOURCE_LINES 16384 /* of each limit, 1 MiB: 131072 sources */
#define HG_SOURCE_TAG	48
#define HG_SOURCE_TIME	((1ull << HG_SOURCE_TAG) - 1)
struct hg_source_line {
	__u64 word[HG_SOURCE_WAYS];
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_source_line, 64);

/* Of a source with this hash; lines of a limit follow those of the limits before it. */
static inline __attribute__((always_inline)) __u32 hg_source_row(__u64 hash, __u32 kind)
{
	return kind * HG_SOURCE_LINES + ((__u32)hash & (HG_SOURCE_LINES - 1));
}

/*
 * In front of those lines, because 64 thousand sources in them do not fit into a CPU's caches: sources share groups,
 * and a group has one bucket of the same rate, but of a small part of the burst. As long as that has tokens no source of the
 * group can be near its limit, and nobody asks for the source itself. Every packet that passes takes from it, also beyond
 * empty: so a source that sends more than its limit keeps its group from recovering, and has its own
 * bucket's rate in the long run. What a source can gain is the group's burst, once.
 */
#define HG_GROUPS     8192 /* of each limit, 64 KiB */
#define HG_GROUP_PART 4 /* its burst is the window / 2^4, and a packet */
#define HG_GROUP_DEBT 2 /* it counts on until it is 2^2 windows ahead */
struct hg_source_group {
	__u64 time; /* when its bucket will be full again, 64 bits */
};
HG_ASSERT_LAYOUT(struct hg_source_group, 8);

/* Of a source with this hash, by other bits than hg_source_row() takes. */
static inline __attribute__((always_inline)) __u32 hg_source_group_row(__u64 hash, __u32 kind)
{
	return kind * HG_GROUPS + ((__u32)(hash >> 24) & (HG_GROUPS - 1));
}

/* How far `time` is ahead of `now`, negative: behind. Both 48 bits. */
static inline __attribute__((always_inline)) __s64 hg_source_ahead(__u64 time, __u64 now)
{
	return (__s64)((time - now) << (64 - HG_SOURCE_TAG)) >> (64 - HG_SOURCE_TAG);
}

/* --- limits per service --------------------------------------------------------------------------- */

enum hg_guard_flags {
	HG_GUARD_ALLOW = 1 << 0, /* only for sources in `allow4` and `allow6` */
	HG_GUARD_CONNS = 1 << 1, /* no more connections than `live_services` says */
};

/* By service id (map `service_guard`), read only for services with HG_SVC_GUARDED. */
struct hg_service_guard {
	__u64 due; /* when the next SYN would come at the full rate: jiffies, as in hg_limit but 64 bits of them */
	__u64 window;
	__u32 step; /* 0: any number of SYNs */
	__u32 flags; /* enum hg_guard_flags */
	__u64 pad;
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_service_guard, 32);

/* Keys of `allow4` and `allow6`: bits that count, those of the service's id (all 32) among them. */
#define HG_ALLOW_MAX (1 << 20) /* prefixes of a family, of all services together; memory as they come */
struct hg_allow4_key {
	__u32 bits;
	__be32 service, addr;
};
HG_ASSERT_LAYOUT(struct hg_allow4_key, 12);

struct hg_allow6_key {
	__u32 bits;
	__be32 service, addr[4];
};
HG_ASSERT_LAYOUT(struct hg_allow6_key, 24);

#endif
