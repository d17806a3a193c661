/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that somebody looks at: drops go to the flight recorder, and while a capture is on, frames to
 * its ring. The steady path pays one word of `control`, in a line it has read anyway: when it is set, the
 * packet starts again on the path of odd packets, the only one that captures.
 *
 * A packet is chosen once. `tap`: 0 nobody looks; TAP_ASK on, not chosen yet; else the packet's number.
 */
#ifndef HG_BPF_CAPTURE_H
#define HG_BPF_CAPTURE_H

#include <headgate/events.h>

#include "bpf/maps.h"
#include "bpf/parse.h"
#include "bpf/stage_service.h"

#define TAP_ASK	   1u
#define TAP_CHOSEN 0x80000000u

/* Last drops, row = cpu * HG_DROP_EVENTS + n. Writer: this program; beyond the end: not recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_DROP_EVENTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_drop_event);
} drop_events SEC(".maps");

/* One row: what the running capture wants. Writer: the tool; this program its lease and losses. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_capture);
} capture SEC(".maps");

/* Frames on their way to the tool: struct hg_frame and bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, HG_CAPTURE_RING);
} capture_ring SEC(".maps");

struct capture_frame {
	struct hg_frame head;
	u8 data[HG_SNAPLEN_MAX];
};

/* Where a record is put together: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_frame);
} capture_scratch SEC(".maps");

/* All pages of it. */
INLINE u32 frame_len(struct xdp_md *ctx)
{
	return (u32)bpf_xdp_get_buff_len(ctx);
}

_Static_assert(sizeof(struct parsed) <= sizeof(((struct hg_drop_event *)0)->scratch), "scratch");

/* Addresses and ports again from the packet, parsed in the row itself: the stack is short this deep. */
INLINE void read_flow(struct xdp_md *ctx, struct hg_drop_event *e)
{
	struct parsed *s = (struct parsed *)e->scratch;
	struct hg_flow_key *k = &e->flow;
	struct pkt p;
	void *end;

	__builtin_memset(k, 0, sizeof(*k));
	__builtin_memset(e->scratch, 0, sizeof(e->scratch));
	parse_slow(ctx, s);
	p.l3 = (void *)(long)ctx->data + (s->type_off & 31) + 2;
	end = (void *)(long)ctx->data_end;
	if (s->found == PARSED_NO_IP || s->found == PARSED_CUT_SHORT ||
	    p.l3 + (s->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > end)
		return;
	if (s->v6)
		read_addrs(&p, true, k->src, k->dst);
	else
		read_addrs(&p, false, k->src, k->dst);
	k->sport = s->sport;
	k->dport = s->dport;
	k->proto = s->proto;
}

GLOBAL int record_drop(struct xdp_md *ctx, u32 service, u32 drop)
{
	u32 cpu = bpf_get_smp_processor_id(), key;
	struct hg_cpu *row = bpf_map_lookup_elem(&xdp_cpus, &cpu);
	struct hg_drop_event *e;
	u64 seq;

	if (!row)
		return 0;
	if (!bucket_take(&row->events, HG_DROP_EVENTS_PER_JIFFY)) {
		row->events_skipped++;
		return 0;
	}
	seq = ++row->events_written;
	key = cpu * HG_DROP_EVENTS + ((seq - 1) & (HG_DROP_EVENTS - 1));
	e = bpf_map_lookup_elem(&drop_events, &key);
	if (!e)
		return 0;
	__sync_lock_test_and_set(&e->seq, 0);
	e->time_ns = bpf_ktime_get_ns();
	read_flow(ctx, e);
	e->service = service;
	e->ifindex = ctx->ingress_ifindex;
	e->frame_len = frame_len(ctx);
	e->drop = drop;
	__sync_lock_test_and_set(&e->seq, seq);
	return 0;
}

/* What capture_packet() is told in one number. */
#define CAP_SERVICE(id)	    ((u64)(u16)(id))
#define CAP_BACKEND(id)	    ((u64)(u16)(id) << 16)
#define CAP_VERDICT(v)	    ((u64)(u8)(v) << 32)
#define CAP_DROP(d)	    ((u64)(u8)(d) << 40)
#define CAP_IS_DROP(what)   ((u8)((what) >> 32) == HG_VERDICT_DROP)
#define CAP_IS_UNSENT(what) ((u8)((what) >> 32) == HG_VERDICT_COUNT)

/* The tool has died, or is about to say that it lives: a dead one's capture ends here. */
INLINE bool lease_is_over(struct hg_capture *c)
{
	u64 renewed = READ_ONCE(c->renewed), now = bpf_jiffies64();
	struct hg_control *ctl;
	u32 zero = 0;

	if (renewed != c->seen) {
		c->seen = renewed;
		c->deadline = now + (2ull << ro.tick_shift);
		return false;
	}
	if ((__s64)(now - c->deadline) <= 0)
		return false;
	ctl = bpf_map_lookup_elem(&control, &zero);
	if (ctl)
		ctl->capture = 0;
	return true;
}

INLINE bool is_wanted(const struct hg_capture *c, u64 what)
{
	u32 service = (u16)what % HG_MAX_SERVICES, backend = (u16)(what >> 16) % HG_MAX_BACKENDS;

	if (!(c->services[service / 64] >> service % 64 & 1))
		return false;
	if (!c->all_backends && !(c->backends[backend / 64] >> backend % 64 & 1))
		return false;
	if (c->flags & HG_CAPTURE_DROPS &&
	    (!CAP_IS_DROP(what) || !(c->drops >> ((what >> 40) & 31) & 1)))
		return false;
	return bpf_get_prandom_u32() <= c->chance;
}

INLINE void write_frame(struct xdp_md *ctx, struct hg_capture *c, u64 what, u32 tap, u32 ifindex)
{
	u32 zero = 0, len = frame_len(ctx), snap = c->snaplen;
	struct capture_frame *f = bpf_map_lookup_elem(&capture_scratch, &zero);

	if (!f)
		return;
	f->head.time_ns = bpf_ktime_get_ns();
	f->head.id = tap & ~TAP_CHOSEN;
	f->head.frame_len = len;
	f->head.ifindex = ifindex ? ifindex : ctx->ingress_ifindex;
	f->head.service = (u16)what;
	f->head.backend = (u16)(what >> 16);
	f->head.verdict = (u8)(what >> 32);
	f->head.drop = (u8)(what >> 40);
	f->head.point = ifindex ? HG_CAPTURE_OUT : HG_CAPTURE_IN;
	if (len > snap)
		len = snap;
	/* From 1 to HG_SNAPLEN_MAX, said so that Linux 6.1 sees it: its verifier learns nothing from "is not 0". */
	len--;
	asm volatile("" : "+r"(len));
	if (len >= HG_SNAPLEN_MAX)
		return;
	len++;
	f->head.cap_len = len;
	if (bpf_xdp_load_bytes(ctx, 0, f->data, len))
		return;
	if (bpf_ringbuf_output(&capture_ring, f, sizeof(f->head) + len, 0))
		__sync_fetch_and_add(&c->lost, 1);
}

/*
 * A capture is on. Before rewriting (verdict HG_VERDICT_COUNT) and at the end; returns `tap` as it is from
 * here on. `ifindex`: interface the packet goes out of, 0: it is as it came.
 */
GLOBAL u32 capture_packet(struct xdp_md *ctx, u64 what, u32 tap, u32 ifindex)
{
	u32 zero = 0;
	struct hg_capture *c = bpf_map_lookup_elem(&capture, &zero);

	if (!c)
		return 0;
	if (tap == TAP_ASK) {
		if (lease_is_over(c))
			return 0;
		/* Whether it will be dropped is not known yet. */
		if (CAP_IS_UNSENT(what) && c->flags & HG_CAPTURE_DROPS)
			return TAP_ASK;
		if (!is_wanted(c, what))
			return 0;
		tap = TAP_CHOSEN | bpf_get_prandom_u32();
	}
	if (CAP_IS_DROP(what) || c->flags & (ifindex ? HG_CAPTURE_OUT : HG_CAPTURE_IN))
		write_frame(ctx, c, what, tap, ifindex);
	return tap;
}

/* For those who do not ask stage service. */
INLINE u32 capture_word(void)
{
	u32 zero = 0;
	struct hg_control *c = bpf_map_lookup_elem(&control, &zero);

	return c ? READ_ONCE(c->capture) : 0;
}

/* In front of what rewrites. */
INLINE void capture_before(struct pkt *p)
{
	if (!p->plain && p->tap)
		p->tap = capture_packet(p->ctx,
					CAP_SERVICE(p->svc->id) | CAP_BACKEND(p->be->id) |
						CAP_VERDICT(HG_VERDICT_COUNT),
					p->tap, 0);
}

/* With the verdict; p->svc is there. */
INLINE void capture_after(const struct pkt *p)
{
	u32 ifindex = 0;

	if (p->verdict == HG_VERDICT_REDIRECT)
		ifindex = p->be->ifindex;
	else if (p->verdict == HG_VERDICT_TX || p->verdict == HG_VERDICT_REPLY)
		ifindex = p->ctx->ingress_ifindex;
	capture_packet(p->ctx,
		       CAP_SERVICE(p->svc->id) | CAP_BACKEND(p->be ? p->be->id : 0) |
			       CAP_VERDICT(p->verdict) | CAP_DROP(p->drop),
		       p->tap, ifindex);
}

#endif
