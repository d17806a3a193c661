/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maxima with the memory they cost, and the constants the loader writes into .rodata before the
 * verifier sees the program (branches on them disappear).
 */
#ifndef HEADGATE_LIMITS_H
#define HEADGATE_LIMITS_H

#include <headgate/base.h>
#include <headgate/guard.h>

#define HG_MAX_BACKENDS 32768 /* ids 1..32767: 15 bits in a slot word; 64 B each = 2 MiB */
#define HG_MAX_SERVICES 16384 /* ids 0..16383 */
/*
 * Service table: open addressing, two generations; 2 x 65536 x 64 B = 8 MiB at most. It is at most a quarter full,
 * where the longest run of full buckets is about 20 long; the writer refuses what would need more probes.
 */
#define HG_SERVICE_BUCKETS_MAX 65536
#define HG_SERVICE_PROBES      32
/* Maglev slots are kept in blocks of one cache line. */
#define HG_SLOTS_PER_BLOCK 16
#define HG_SLOTS_SPARE	   524288 /* 2 MiB, and an eighth of what the configuration needs: for reloads */
#define HG_MAX_CPUS	   256

/* Interfaces that packets leave by: entries of the device map. */
#define HG_MAX_PORTS 64

/*
 * Flows of slots that changed owner: 64 bytes per line of five, so 12.8 bytes per flow; a line shares its
 * overflow with its neighbour. Filled to half, 1 flow in 200 finds no place; to a quarter, 1 in 30,000.
 * 2^20 lines (64 MiB) hold 1.3 million flows at a quarter.
 */
#define HG_FLOW_LINES_MIN     64
#define HG_FLOW_LINES_DEFAULT 16384 /* 1 MiB */
#define HG_FLOW_LINES_MAX     (1 << 22) /* 256 MiB */
/* First fragments that later ones follow: the same lines, 12.8 bytes per datagram on its way. */
#define HG_FRAGMENT_LINES_DEFAULT 4096 /* 256 KiB, 20,000 datagrams */
#define HG_QUIC_BLOCKS_DEFAULT	  64 /* 4 KiB, 2,048 server ids of all services together */

/*
 * Load-time constants, `.rodata` of xdp_lb, symbol `ro` (skel->rodata->ro). The maps must be sized
 * to match: `services` 2 x (service_mask + 1), `xdp_services` max_services x n_cpus, `backends`
 * max_backends, `xdp_backends` max_backends x n_cpus, `xdp_verdicts` and `xdp_cpus` n_cpus, `flows`
 * flow_mask + 1, `fragments` fragment_mask + 1, `deny_index` deny_mask + 1, `nat_conns` and `nat_addrs` nat_mask + 1, `nat_lines` nat_line_mask + 1,
 * `nat_tickets` nat_mask + 1, `nat_ticks`, `nat_hints` and `nat_paths` as HG_NAT_TICK_LINES(), HG_NAT_HINT_LINES() and HG_NAT_PATHS() of that, `nat_fragments` fragment_mask + 1,
 * `nat_services`, `live_services` and `syn_services` max_services, `live_backends` max_backends. A lookup beyond a map's end is a named drop, an uncounted
 * packet or a flow that is not remembered, never an access.
 */
struct hg_rodata {
	__u32 n_cpus; /* possible CPUs: stride of the per-CPU counter arrays */
	__u32 service_mask; /* buckets of one generation of the service table, minus 1 */
	__u32 hash_seed; /* per fleet, the same on every edge host */
	__u32 max_services; /* ids of the counter arrays */
	__u32 max_backends;
	__u32 role; /* enum hg_role */
	__u32 deny_mask; /* lines of `deny_index`, a power of two from 2, minus 1 */
	__u32 flow_mask; /* lines of `flows`, a power of two from 2, minus 1 */
	__u32 fragment_mask; /* lines of `fragments`, likewise */
	/*
	 * The clock of flows and fragments: jiffies >> tick_shift, 16 bits; hg_tick_shift() makes a tick
	 * one to two seconds long. It wraps after half a day: an entry idle for that long looks fresh.
	 */
	__u32 tick_shift;
	__u32 fragment_ticks; /* a first fragment is followed for so long; Linux reassembles for 30 s */
	__u32 flow_idle_ticks; /* confirmed flows idle for longer make room for new ones */
	__u32 learn_per_jiffy; /* flows learnt from packets that are no SYN, per CPU; 0: none */
	__u32 icmp_per_jiffy; /* packet-too-big messages sent, per CPU; 0: none */
	__u32 nat_mask; /* rows of `nat_conns`, a power of two, minus 1 */
	__u32 nat_line_mask; /* lines of `nat_lines`, likewise, at least 2 */
};
HG_ASSERT_LAYOUT(struct hg_rodata, 64);

/* Unused tokens add up to so many jiffies' worth. */
#define HG_BUCKET_JIFFIES 32

/* Defaults for what the loader has no opinion on. */
#define HG_RODATA_DEFAULT_FRAGMENT_TICKS 30
#define HG_RODATA_DEFAULT_FLOW_IDLE	 3600
#define HG_RODATA_DEFAULT_LEARN		 16
#define HG_RODATA_DEFAULT_ICMP		 1

/* `hz` of the kernel: 10^9 / resolution of CLOCK_MONOTONIC_COARSE in ns (a tick of its timer). */
static inline __u32 hg_tick_shift(__u32 hz)
{
	__u32 shift = 0;

	while (shift < 16 && (1u << shift) < hz)
		shift++;
	return shift;
}

enum hg_role {
	HG_ROLE_EDGE = 0, /* xdp_lb */
	HG_ROLE_BACKEND = 1, /* xdp_decap */
};

/*
 * Key and value of map `decap_addrs` (xdp_decap): the host's addresses to which tunnels may be
 * addressed; IPv4 is ::ffff:a.b.c.d. Written at any time; a miss means "not our tunnel".
 */
struct hg_decap_key {
	__be32 addr[4];
};
HG_ASSERT_LAYOUT(struct hg_decap_key, 16);

enum hg_decap_flags {
	HG_DECAP_IPIP = 1 << 0, /* protocols 4 and 41 */
	HG_DECAP_GUE = 1 << 1, /* UDP port 6080, variants 0 and 1 */
	/* Packets of connections unknown here go on to the alternative backend that GUE names, once. */
	HG_DECAP_SECOND_CHANCE = 1 << 2,
};

struct hg_decap_addr {
	__u32 flags; /* enum hg_decap_flags: what is accepted */
	__u32 pad;
};
HG_ASSERT_LAYOUT(struct hg_decap_addr, 8);

#define HG_GUE_PORT	   6080 /* IANA; draft-ietf-intarea-gue */
#define HG_MAX_DECAP_ADDRS 256

/*
 * What the edge sends is GUE variant 0 without flags: four bytes, and for flows that may live on another
 * backend the private data below (whatever Hlen counts beyond the optional fields is private data), so
 * receivers that know none of it skip it. Of the address, IPv4 has the first word only.
 */
struct hg_gue_alt {
	__u8 magic; /* HG_GUE_ALT_MAGIC */
	__u8 version; /* 1 */
	__u8 hops; /* how often it may still go on: 1 from the edge */
	__u8 family; /* 4 or 6, the outer header's */
	__be32 addr[4]; /* of the alternative backend */
};
HG_ASSERT_LAYOUT(struct hg_gue_alt, 20);
#define HG_GUE_LEN	 4
#define HG_GUE_ALT_MAGIC 0x48
#define HG_GUE_ALT_V4	 8 /* bytes of hg_gue_alt with an IPv4 address */
#define HG_GUE_ALT_V6	 20

/* The one element of map `meta`. */
struct hg_meta {
	__u32 abi; /* HG_ABI_VERSION */
	__u32 role;
	__u64 started_ns; /* CLOCK_REALTIME of the load */
	struct hg_rodata ro; /* what the running program was loaded with */
	char version[16];
};
HG_ASSERT_LAYOUT(struct hg_meta, 96);

enum hg_control_flags {
	HG_CTL_ANY_PORT = 1 << 0,
};

/* The one element of map `control`: words that userspace changes while packets flow. */
struct hg_control {
	__u32 service_generation; /* 0 or 1: which half of `services` is read */
	/*
	 * Per generation: HG_CTL_ANY_PORT when that half holds a key with port 0. Without it the
	 * program looks only once. Set it before flipping service_generation.
	 */
	__u32 generation_flags[2]; /* enum hg_control_flags */
	__u32 capture; /* 1: a capture is on, see events.h; writer: the capturing tool */
	/* See guard.h. Prefixes in `deny4` and `deny6`, by atomic additions of all writers; never too low. */
	__u32 deny_entries[2];
	__u64 source_seed; /* of hashes of sources and of denied prefixes: secret, random, as old as the maps */
	struct hg_limit limits[HG_LIMIT_COUNT];
	__u32 source_conns; /* a source's connections at most, see live.h; 0: no limit */
	__u32 watch; /* 1: a rule asks what was seen of sources, see live.h */
	__u64 netns_cookie; /* of the network the services are in: sockets of others are not theirs */
	__u32 deny_lengths[2][HG_DENY_LENGTHS]; /* see guard.h; writers: as of deny_entries */
	__u64 pad[2];
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_control, 128);

/* Tokens of one CPU; one writer, the program on it. */
struct hg_bucket {
	__u64 jiffies; /* last time tokens were added */
	__u64 tokens;
};

/* Row of map `xdp_cpus`, by CPU: what bounds the rates of rare work. */
struct hg_cpu {
	struct hg_bucket learn, icmp, events;
	__u64 events_written, events_skipped; /* drops in `drop_events`, and those beyond the rate */
	__u64 nat_fragment; /* hash of the first fragment at hand */
	__u64 pad[7];
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_cpu, 128);

#endif
