/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NAT: one row of `nat_conns` per connection holds both directions. A packet of a backend finds it by
 * arithmetic: row = (hash of edge address, backend address and port) + NAT port, so the row is also the
 * claim on the port, taken by compare and swap. A packet of a client finds it through a line of
 * fingerprints (`nat_lines`); the row has the whole key and decides.
 *
 * Who writes what: `life` changes by compare and swap only, from any CPU and the control thread. The one
 * who moves it between a counted state and one that is not changes the counts, so they are exact. The rest is
 * written by whoever holds the row in state CLAIMED, but `client`, `own` and `ifindex`, which follow the
 * client's packets. Packets of established connections of IPv4 go by copies of what they need ("Tickets").
 */
#ifndef HEADGATE_NAT_H
#define HEADGATE_NAT_H

#include <headgate/base.h>
#include <headgate/backend.h>
#include <headgate/flow.h>

/*
 * State, text, seconds without a packet until the row is free again (0: the service's idle time), does the
 * connection count, help. A newcomer that finds no free port takes a row early from those that are not open.
 */
#define HG_NAT_STATES(X)                                                                         \
	X(FREE, "free", 0, 0, "no connection")                                                   \
	X(CLAIMED, "claimed", 5, 0, "being written")                                             \
	X(SYN, "syn-sent", 30, 1, "the client's SYN was sent on")                                \
	X(REPLIED, "syn-received", 30, 1, "the server answered, the client did not confirm yet") \
	X(OPEN, "established", 0, 1, "packets went in both directions")                          \
	X(FIN_CLIENT, "client-closed", 300, 1, "the client sent FIN")                            \
	X(FIN_SERVER, "server-closed", 300, 1, "the server sent FIN")                            \
	X(CLOSED, "closed", 60, 0, "both sent FIN; the port rests")                              \
	X(RESET, "reset", 10, 0, "a side sent RST; a packet without RST opens it again")         \
	X(UDP_NEW, "udp-sent", 30, 1, "datagrams of the client only")                            \
	X(UDP, "udp", 0, 1, "datagrams in both directions")

enum hg_nat_state {
#define X(name, text, seconds, counted, help) HG_NAT_##name,
	HG_NAT_STATES(X)
#undef X
	HG_NAT_STATE_COUNT
};

/*
 * life: [state:8][unused:8][tick of the last packet:16], ticks as in flow.h. In a state with the service's idle
 * time the tick is renewed only once per eighth of that, so that most packets leave the row's line clean.
 */
#define HG_NAT_LIFE(state, tick) ((__u32)(state) << 24 | ((tick) & 0xffff))
#define HG_NAT_STATE(life)	 ((life) >> 24)
#define HG_NAT_TICK(life)	 ((life) & 0xffff)

enum hg_nat_who {
	HG_NAT_CLIENT,
	HG_NAT_EDGE,
	HG_NAT_VIP,
	HG_NAT_BACKEND
};

struct hg_nat_conn {
	__u32 life;
	__u16 backend; /* id */
	__u16 service; /* id */
	__be32 last[4]; /* by hg_nat_who: last word of the address: all there is to say in IPv4 */
	__be16 client_port, vip_port; /* as a client's packet has them side by side */
	__be16 backend_port, edge_port; /* as a backend's packet has them */
	union hg_neigh client; /* next hop towards the client: where its packets come from */
	union hg_neigh own; /* this host's MAC there */
	__u32 ifindex;
	/* What the way from client to backend adds to the sums; the way back adds the complement. */
	__u16 l4_delta, ip_delta;
	__u16 idle_ticks;
	__u8 proto;
	__u8 v6;
	__u32 row; /* its own, of `nat_addrs` too */
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_nat_conn, 64);

/* Map `nat_addrs`, by row: the whole addresses, which packets of IPv4 never look at. */
struct hg_nat_addrs {
	__be32 addr[4][4]; /* by hg_nat_who */
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_nat_addrs, 64);

/* Words: upper 40 bits of hg_flow_hash() of the client's packet, row + 1 in the lower 24; 0: free. */
#define HG_NAT_WAYS 8
struct hg_nat_line {
	__u64 word[HG_NAT_WAYS];
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_nat_line, 64);

#define HG_NAT_ROW_BITS	       24
#define HG_NAT_WORD(hash, row) (((hash) & ~0xffffffull) | (__u64)((row) + 1))

/*
 * Tickets: what the packets of an established connection of IPv4 need, so that they do not touch its row: one word by row, as few
 * bytes as can be, for the second-level cache is what NAT's packets wait for. Without a ticket a packet goes by the row, so one
 * may be missing at any time, but none may be there that is not its connection's:
 *  - a ticket and its path have the connection's whole key; the edge's port follows from the row's number;
 *  - who gives a ticket does so first and then looks at the row's life once more, who moves the row out of its established
 *    state does that first and then takes the ticket away: of two at once the last one sees what the other did.
 * A ticket is as old as its row (`nat_ticks`), and what is old goes by the row, which renews both.
 */
struct hg_nat_ticket {
	__u64 word; /* client's address:32, client's port:16, both as they lie, from the lowest bits; path + 1:16. 0: none */
};
HG_ASSERT_LAYOUT(struct hg_nat_ticket, 8);

#define HG_NAT_TICKET_CLIENT(addr, port) ((__u64)(addr) | (__u64)(port) << 32)
#define HG_NAT_TICKET(client, path)	 ((client) | (__u64)((path) + 1) << 48)
#define HG_NAT_TICKET_PATH(word)	 ((__u32)((word) >> 48) - 1)

/* Map `nat_ticks`: the ticks of the rows' lives, where there are tickets. */
#define HG_NAT_TICKS 32
struct hg_nat_ticks {
	__u16 tick[HG_NAT_TICKS];
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_nat_ticks, 64);

/*
 * Map `nat_hints`: rows by the client's side, in half a cache line or the other half. A word is a row, but never row 0, under as
 * many bits of hash as are left; 0: free. The ticket decides, so words may be wrong and are lost without harm.
 */
#define HG_NAT_HINTS 8
struct hg_nat_hints {
	__u32 word[HG_NAT_HINTS];
} __attribute__((aligned(32)));
HG_ASSERT_LAYOUT(struct hg_nat_hints, 32);

/* A path is written by the program that takes it, used as long as any ticket names it, and freed by the sweep. */
enum hg_nat_path_state {
	HG_NAT_PATH_FREE,
	HG_NAT_PATH_FILLING, /* program */
	HG_NAT_PATH_READY, /* program; the sweep, when a ticket names what it took for unused */
	HG_NAT_PATH_RETIRING, /* sweep: gets no new tickets; free if none names it after another pass */
};

/* What many connections have in common; `state` and `seen` apart, written once. */
struct hg_nat_path {
	__be32 vip; /* the key of a client's packet: one word */
	__be16 vip_port;
	__u8 proto;
	__u8 pad0;
	__be32 backend, edge; /* as a backend's packet has them: one word */
	__be16 backend_port;
	__u16 backend_id;
	__u16 service;
	__u16 idle_ticks;
	union hg_neigh client, own; /* as of hg_nat_conn */
	__u32 ifindex;
	/* What the way to the backend adds to the sums, but for client's address and port and the edge's port. */
	__u16 ip_base, l4_base;
	__u32 base; /* of its rows: hg_nat_row(base, port) */
	__u16 port_high; /* what the edge's ports, in host order, have beyond the bits of a row */
	__u16 pad1;
	__u32 state; /* enum hg_nat_path_state */
	__u32 seen; /* sweep: a ticket named it in this pass */
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_nat_path, 64);

#define HG_NAT_CONNS_MIN 64
#define HG_NAT_CONNS_DEFAULT \
	131072 /* 8 MiB, as much of addresses, 2 MiB of lines, 2.25 MiB of tickets */
#define HG_NAT_CONNS_MAX (1 << 22) /* 634 MiB */
/* Lines for so many rows: four words to a line of eight when all rows are taken. */
#define HG_NAT_LINES(conns) ((conns) / 4)
/* Halves of lines, as many words as rows. */
#define HG_NAT_HINT_LINES(conns) ((conns) / HG_NAT_HINTS)
#define HG_NAT_TICK_LINES(conns) ((conns) / HG_NAT_TICKS)
/* A power of two, of which a ticket names 2^16 - 1. */
#define HG_NAT_PATHS(conns) ((conns) / 16 < 32768 ? (conns) / 16 : 32768)

/* Below the kernel's ip_local_port_range (32768 to 60999 unless changed), above the well-known ports. */
#define HG_NAT_PORT_FIRST  10000
#define HG_NAT_PORT_LAST   32767
#define HG_NAT_SOURCES_MAX 7
#define HG_NAT_IDLE_TCP	   3600 /* seconds */
#define HG_NAT_IDLE_UDP	   60
#define HG_NAT_IDLE_MAX \
	28000 /* ticks; with an eighth more, less than the 32767 that 16 bits tell from the future */

/* By service id: what new connections need. Written before the service is published. */
struct hg_nat_service {
	__be32 source[HG_NAT_SOURCES_MAX]
		     [4]; /* of the service's family; none: the backend row's outer_src */
	__u16 n_sources;
	__u16 port_first, n_ports; /* host order; n_ports 0: no connections */
	__u16 idle_ticks;
	__u64 pad;
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_nat_service, 128);

/* One row: which packets may be a backend's answer. Only ever widened while packets flow. */
struct hg_nat_control {
	__u32 port_first, n_ports; /* all ranges in use lie in here; control thread */
	__u64 edges; /* bit hg_nat_edge_bit() of every edge address in use; the program sets them */
	__u64 pad[6];
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_nat_control, 64);

/* Map `live_services`, by id: connections now. */
struct hg_live {
	__u32 conns; /* atomic additions only */
	__u32 limit; /* 0: none; control thread */
};
HG_ASSERT_LAYOUT(struct hg_live, 8);

/*
 * Map `live_backends`, by id: connections of a server now, of both tiers in one word, so that whoever begins one sees
 * all and takes the place in one step. NAT and `track on` count in `xdp`. The workers of a process count in one of the other parts;
 * there are two, because a process and the one that it replaced may have connections at once. What a process leaves
 * behind that was killed can so be told from all the rest, and set to zero (dp/share.c).
 */
struct hg_live_server {
	union {
		__u64 word; /* atomic operations only */
		struct {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
			__u64 l7_a : 19, l7_b : 19, xdp : 26;
#else
			__u64 xdp : 26, l7_b : 19, l7_a : 19;
#endif
		};
	};
	__u32 limit; /* of all parts together, 0: none; control thread */
	__u32 newest; /* in row 0, which is no server's: the part that the newest process has */
};
HG_ASSERT_LAYOUT(struct hg_live_server, 16);

#define HG_LIVE_PARTS	 2
#define HG_LIVE_L7_BITS	 19
#define HG_LIVE_L7_MAX	 ((1ull << HG_LIVE_L7_BITS) - 1)
#define HG_LIVE_L7(part) (1ull << HG_LIVE_L7_BITS * (part)) /* one more of that part */
#define HG_LIVE_XDP	 (1ull << HG_LIVE_L7_BITS * HG_LIVE_PARTS)

static inline __attribute__((always_inline)) __u32 hg_live_l7(__u64 word, __u32 part)
{
	return (__u32)(word >> HG_LIVE_L7_BITS * part & HG_LIVE_L7_MAX);
}

static inline __attribute__((always_inline)) __u32 hg_live_all(__u64 word)
{
	return (__u32)(word / HG_LIVE_XDP) + hg_live_l7(word, 0) + hg_live_l7(word, 1);
}

/* `words`: the four words of an edge address, exclusive or. */
static inline __attribute__((always_inline)) __u32 hg_nat_edge_bit(__u32 words)
{
	return (words * 0x9e3779b1u) >> 26;
}

/* Where the connection's row is: `k` as the backend's packet has it, but dport 0. */
static inline __attribute__((always_inline)) __u32 hg_nat_base(const struct hg_flow_key *k,
							       __u32 seed)
{
	return (__u32)(hg_flow_hash(k, seed) >> 16);
}

/* Where a client's row is looked for: line of `nat_hints` in the upper half, its bits of hash in the lower. */
static inline __attribute__((always_inline)) __u64 hg_nat_hint(__u64 client, __be32 vip,
							       __be16 vip_port, __u8 proto,
							       __u32 seed)
{
	return hg_mix64(client | (__u64)vip_port << 48, vip ^ seed ^ (__u64)proto << 32);
}

/* `port`: the packet's destination port, in host order. */
static inline __attribute__((always_inline)) __u32 hg_nat_row(__u32 base, __u32 port, __u32 mask)
{
	return (base + port) & mask;
}

static inline __attribute__((always_inline)) int hg_nat_is_counted(__u32 state)
{
	const __u32 counted = 0
#define X(name, text, seconds, counted, help) | (counted) << HG_NAT_##name
		HG_NAT_STATES(X)
#undef X
		;

	return counted >> (state & 31) & 1;
}

/* Seconds of quiet after which a row in that state is free, 0: the connection's own idle_ticks. */
static inline __attribute__((always_inline)) __u32 hg_nat_seconds(__u32 state)
{
	switch (state) {
#define X(name, text, seconds, counted, help) \
	case HG_NAT_##name:                   \
		return seconds;
		HG_NAT_STATES(X)
#undef X
	}
	return 0;
}

/*
 * Has the row been silent for `grace` ticks more than it may? An age beyond half of what 16 bits hold is a
 * clock that was read a moment before the row was written.
 */
static inline __attribute__((always_inline)) int hg_nat_expired(__u32 life, __u32 idle_ticks,
								__u32 now, __u32 grace)
{
	__u32 limit = hg_nat_seconds(HG_NAT_STATE(life)), age = (now - life) & 0xffff;

	return age > (limit ? limit : idle_ticks + idle_ticks / 8) + grace && age < 0x8000;
}

#endif
