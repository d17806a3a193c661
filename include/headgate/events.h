/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looking at packets without stopping them: the last drops of every CPU, always recorded at a bounded
 * rate, and captures, switched on by a tool for as long as it lives.
 */
#ifndef HEADGATE_EVENTS_H
#define HEADGATE_EVENTS_H

#include <headgate/base.h>
#include <headgate/flow.h>
#include <headgate/limits.h>

/*
 * Row of map `drop_events`, key cpu * HG_DROP_EVENTS + n: a flight recorder, the newest writes over the
 * oldest. Writer: the program on that CPU. A reader takes a row whose seq is the same, and not zero, before
 * and after it was copied.
 */
#define HG_DROP_EVENTS		 256 /* per CPU, 32 KiB; a power of two */
#define HG_DROP_EVENTS_PER_JIFFY 1 /* and a burst of HG_BUCKET_JIFFIES */
struct hg_drop_event {
	__u64 seq; /* of this CPU, from 1; 0: being written, or never */
	__u64 time_ns; /* CLOCK_MONOTONIC */
	struct hg_flow_key flow; /* zero where the packet did not say */
	__u32 service; /* id */
	__u32 ifindex; /* it came in by */
	__u32 frame_len;
	__u8 drop; /* enum hg_drop */
	__u8 pad[3];
	__u64 scratch[7]; /* where the program parses */
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_drop_event, 128);

#define HG_SNAPLEN_MAX	    9216
#define HG_CAPTURE_RING	    (1 << 20) /* bytes of map `capture_ring` */
#define HG_CAPTURE_RENEW_MS 300 /* how often the tool renews its lease */

enum hg_capture_flags {
	HG_CAPTURE_IN = 1 << 0, /* as they came */
	HG_CAPTURE_OUT = 1 << 1, /* as they leave */
	HG_CAPTURE_DROPS = 1 << 2, /* dropped ones only, as they came */
};

/*
 * The one element of map `capture`: what the running capture wants. Read only while `control.capture` is
 * set. Writer: the capturing tool; the program writes `seen`, `deadline`, `lost` and, when the lease has
 * run out (one to four seconds after the last renewal), `control.capture` = 0.
 */
struct hg_capture {
	__u64 owner; /* process id of the tool, 0: free; taken by compare and swap */
	__u64 renewed; /* counts up while the tool lives */
	__u64 seen; /* `renewed` as the program knows it */
	__u64 deadline; /* jiffies */
	__u64 lost; /* frames that found the ring full */
	__u32 chance; /* a packet is taken when a random number is not above: 2^32 / N - 1 */
	__u32 snaplen; /* 1 to HG_SNAPLEN_MAX */
	__u32 flags; /* enum hg_capture_flags */
	__u32 drops; /* bit of enum hg_drop, with HG_CAPTURE_DROPS */
	__u64 all_backends; /* also packets that no backend was chosen for */
	__u64 services[HG_MAX_SERVICES / 64]; /* bit by id */
	__u64 backends[HG_MAX_BACKENDS / 64];
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_capture, 6208);

/* What goes through `capture_ring`: this, then `cap_len` bytes of the frame. */
struct hg_frame {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 id; /* the same for one packet before and after */
	__u32 frame_len, cap_len;
	__u32 ifindex; /* it came in by, or with HG_CAPTURE_OUT goes out of */
	__u16 service, backend; /* backend 0: none chosen */
	__u8 verdict; /* enum hg_verdict; HG_VERDICT_COUNT: not given yet, it goes to the backend */
	__u8 drop; /* enum hg_drop */
	__u8 point; /* HG_CAPTURE_IN or HG_CAPTURE_OUT */
	__u8 pad;
};
HG_ASSERT_LAYOUT(struct hg_frame, 32);

#endif
