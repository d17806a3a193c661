/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SYN cookies. While more SYNs of a service come than `xdp guard syn-cookies` allows, XDP answers them itself
 * and remembers nothing: the sequence number of the answer says what the client wants, and proves with the
 * next packet that the client got it. That packet becomes a connection where the listener is: on this host for
 * services of its L7 tier, on the backend, by its agent, for those of `mode l4`.
 *
 * Cookie, in host order: [tag:27][minute:2][mss:3]. `tag` is the upper part of SipHash-2-4 under the minute's
 * key over addresses, ports, the client's sequence number, `mss` (an index), `minute` and the options. The options
 * travel as Linux does it, in the lowest bits of the timestamp, which the client sends back: window scale
 * (15: none), SACK, ECN. A client without timestamps gets its MSS and no other option.
 *
 * The key of a minute (the wall clock's seconds by 60): two SipHash-2-4 of its number, 8 bytes, least significant
 * first, one under each half of a secret. Whoever has the secret has the key, and nobody tells anybody
 * else: a fleet shares a file of secrets. Four minutes are good, from two ago to the next one: a cookie for two
 * minutes at least, one at least where clocks differ by as much. The programs derive keys themselves, when the
 * first packet of a minute needs one, so that they go on while no daemon runs.
 */
#ifndef HEADGATE_SYN_H
#define HEADGATE_SYN_H

#include <headgate/base.h>

enum hg_syn_mode {
	HG_SYN_OFF,
	HG_SYN_AUTO, /* a service gets them while its SYNs come too fast */
	HG_SYN_ON,
	HG_SYN_MODE_COUNT
};

enum hg_syn_flags {
	/* Our own cookies: the kernel takes connections from tc (Linux 6.9). Else those of the listener. */
	HG_SYN_OWN = 1 << 0,
	/* What this host's sysctls allow. */
	HG_SYN_TIMESTAMPS = 1 << 1,
	HG_SYN_SACK = 1 << 2,
	HG_SYN_WSCALE = 1 << 3,
	HG_SYN_ECN = 1 << 4,
	/* Secrets of a fleet: cookies that another host has made may come at any time. */
	HG_SYN_FLEET = 1 << 5,
	/* An agent's: what comes to a listener and is no answer to a cookie is dropped while cookies come. */
	HG_SYN_AGENT = 1 << 6,
};
/* Of services whose listeners are elsewhere: what agents demand of their hosts. */
#define HG_SYN_OPTIONS (HG_SYN_TIMESTAMPS | HG_SYN_SACK | HG_SYN_WSCALE | HG_SYN_ECN)

#define HG_SYN_MSS_MASK	  7u
#define HG_SYN_LOW_BITS	  5 /* minute and mss */
#define HG_SYN_TAG_MASK	  (~31u)
#define HG_SYN_NO_WSCALE  15u
#define HG_SYN_STAMP_BITS 6
#define HG_SYN_KEY_S	  60
#define HG_SYN_MINUTES	  4u /* whose keys are good */
#define HG_SYN_SECRETS	  3u
/* Window scale that hosts of a fleet announce: one of them promises what another one keeps. As Linux has it. */
#define HG_SYN_FLEET_WSCALE 7
/* What a tunnel may add to a packet: IPv6, UDP, GUE with an alternative. Services answer with an MSS that has room. */
#define HG_SYN_TUNNEL_ROOM 72u

/* Where syn_tc is on every `xdp interface`, and the agent's. */
#define HG_SYN_TC_PRIO	       0x6866u
#define HG_SYN_TC_HANDLE       0x6866u
#define HG_SYN_AGENT_TC_HANDLE 0x6867u

struct hg_syn_secret {
	__u64 k[4];
};

struct hg_syn_key {
	__u64 k[2];
};

/* The one element of map `syn_control`, in the balancer and in the agent. Times in jiffies. */
struct hg_syn_control {
	__u32 mode; /* enum hg_syn_mode */
	__u32 flags; /* enum hg_syn_flags */
	__u32 n_secrets; /* 0: no cookies */
	__u32 make; /* which of them makes cookies; all check */
	__u32 generation; /* of the secrets: keys of another one are derived again */
	__u32 window_shift; /* SYNs are counted in windows of 1 << window_shift */
	__u32 on_syns,
		keep_syns; /* per window: so many switch a service's cookies on, or keep them on */
	__u32 hold; /* they stay on after the last window with keep_syns */
	__u32 valid; /* a cookie may come back for so long */
	__u32 tick; /* a second; `check_until` is not written for less */
	__u16 rcv_wnd; /* first window, unscaled */
	__u8 rcv_wscale;
	__u8 pad;
	__s64 wall_ns; /* the wall clock less CLOCK_TAI */
	__u64 check_until; /* cookies of some service may come back until then; writer: the programs */
	/* Writers: the programs. */
	__u64 keys_until; /* then the minute is over */
	__u64 keys_of; /* [generation:32][minute:32] */
	struct hg_syn_secret secrets[HG_SYN_SECRETS];
	struct hg_syn_key keys[HG_SYN_SECRETS][HG_SYN_MINUTES]; /* by secret, and minute modulo 4 */
	__u64 pad2[2];
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_syn_control, 384);

/* Map `syn_services`, by service id. Writer: XDP on all CPUs, only when SYNs come. */
struct hg_syn_service {
	__u64 window; /* [number of the window:32][SYNs in it:32] */
	__u64 on_until; /* jiffies; AUTO: SYNs are answered by cookies */
	__u64 check_until; /* jiffies; cookies may come back, so what is of no connection is looked at */
	__u64 pad[5];
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_syn_service, 64);

#endif
