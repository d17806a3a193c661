/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SYN cookies of services that this host's L7 tier terminates. While more SYNs come than `xdp guard
 * syn-cookies` allows, XDP answers them itself and remembers nothing: the sequence number of the answer says
 * what the client wants, and proves with the next packet that the client got it.
 *
 * Cookie, in host order: [tag:28][key:1][mss:3]. `tag` is the upper part of SipHash-2-4 under one of the two
 * keys over addresses, ports, the client's sequence number, `mss` (an index) and the options. The options
 * travel as Linux does it, in the lowest bits of the timestamp, which the client sends back: window scale
 * (15: none), SACK, ECN. A client without timestamps gets its MSS and no other option.
 *
 * The control thread makes a new key once a minute over the older one of the two, so a cookie is good
 * for one minute at least and two at most.
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
};

#define HG_SYN_KEY_BIT	  8u
#define HG_SYN_MSS_MASK	  7u
#define HG_SYN_TAG_MASK	  (~15u)
#define HG_SYN_NO_WSCALE  15u
#define HG_SYN_STAMP_BITS 6
/* Seconds that a key makes cookies. It checks them for as long again. */
#define HG_SYN_KEY_S 60

/* Where syn_tc is on every `xdp interface`. */
#define HG_SYN_TC_PRIO	 0x6866u
#define HG_SYN_TC_HANDLE 0x6866u

struct hg_syn_key {
	__u64 k[2];
};

/* The one element of map `syn_control`. Times in jiffies. */
struct hg_syn_control {
	__u32 mode; /* enum hg_syn_mode */
	__u32 flags; /* enum hg_syn_flags */
	__u32 key; /* 0 or 1: which of `keys` makes cookies; the other one only checks */
	__u32 window_shift; /* SYNs are counted in windows of 1 << window_shift */
	__u32 on_syns,
		keep_syns; /* per window: so many switch a service's cookies on, or keep them on */
	__u32 hold; /* they stay on after the last window with keep_syns */
	__u32 valid; /* a cookie may come back for so long: two keys' time */
	__u32 tick; /* of `check_until`: it is not written for less */
	__u16 rcv_wnd; /* first window, unscaled */
	__u8 rcv_wscale;
	__u8 pad;
	__u64 check_until; /* cookies of some service may come back until then; writer: XDP */
	struct hg_syn_key keys[2];
	__u64 pad2[6];
} __attribute__((aligned(8)));
HG_ASSERT_LAYOUT(struct hg_syn_control, 128);

/* Map `syn_services`, by service id. Writer: XDP on all CPUs, only when SYNs come. */
struct hg_syn_service {
	__u64 window; /* [number of the window:32][SYNs in it:32] */
	__u64 on_until; /* jiffies; AUTO: SYNs are answered by cookies */
	__u64 check_until; /* jiffies; cookies may come back, so what is of no connection is looked at */
	__u64 pad[5];
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_syn_service, 64);

#endif
