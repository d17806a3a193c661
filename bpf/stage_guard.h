/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage guard: packets for a service that its operator does not want, before anything is done for
 * them: denied prefixes, then the limits per source. What is not for a service never gets here.
 */
#ifndef HG_BPF_STAGE_GUARD_H
#define HG_BPF_STAGE_GUARD_H

#include <headgate/guard.h>

#include "bpf/maps.h"
#include "bpf/maps_live.h"

#define GUARD_V6	 1u
#define GUARD_SYN	 2u
#define GUARD_SERVICE(w) ((w) >> 16) /* whose own guard is to be asked, + 1; 0: none */

#include "bpf/deny.h"
#include "bpf/guard_service.h"
#include "bpf/source_seen.h"

/* Sources with limits. Writer: this program; two CPUs at once may let a packet too many through. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_LIMIT_COUNT *HG_SOURCE_LINES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_source_line);
} sources SEC(".maps");

/* What groups of sources have used. Writer: this program; additions of two CPUs at once may count as one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_LIMIT_COUNT * HG_GROUPS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_source_group);
} source_groups SEC(".maps");

/* --- limits ------------------------------------------------------------------------------------------ */

/* The source's hash: an address of IPv4, a network of 64 bits of IPv6. */
INLINE u64 source_hash(u64 hi, u64 lo, bool v6, u64 seed)
{
	return hg_source_hash(hi, lo, v6, seed);
}

INLINE u64 limit_now(void)
{
	return bpf_jiffies64() << HG_LIMIT_FRACTION;
}

/*
 * One packet of the source's group. False: it has no tokens left, and this one was not counted. Arithmetic, and nothing
 * waits for the group but the store and a branch that nearly always goes one way: the packet goes on while it comes.
 */
INLINE bool group_takes(const struct hg_control *c, enum hg_limit_kind kind, u64 hash)
{
	u64 window = READ_ONCE(c->limits[kind].window), now = limit_now(), ahead;
	u32 row = hg_source_group_row(hash, kind);
	struct hg_source_group *g = bpf_map_lookup_elem(&source_groups, &row);

	if (unlikely(!g))
		return false;
	ahead = READ_ONCE(g->time) - now;
	ahead &= ~((__s64)ahead >> 63); /* behind: full */
	if (unlikely(ahead > window >> HG_GROUP_PART))
		return false;
	g->time = now + ahead + READ_ONCE(c->limits[kind].step);
	return true;
}

/* A packet that passes though its group has no tokens left. */
INLINE void group_owes(const struct hg_limit *l, u32 kind, u64 hash)
{
	u64 most = READ_ONCE(l->window) << HG_GROUP_DEBT, now = limit_now();
	u32 row = hg_source_group_row(hash, kind);
	struct hg_source_group *g = bpf_map_lookup_elem(&source_groups, &row);
	__s64 ahead;

	if (!g)
		return;
	ahead = READ_ONCE(g->time) - now;
	if (ahead < 0)
		ahead = 0;
	g->time = now + ((u64)ahead < most ? ahead : most) + READ_ONCE(l->step);
}

/*
 * One packet of the source with this hash, whose group has no tokens left. False: it is over its limit, which stays as it
 * was. Not inlined: rare, and long.
 */
GLOBAL u32 limit_takes(u64 hash, u32 kind)
{
	u32 zero = 0, row = hg_source_row(hash, kind), victim = 0, way;
	const struct hg_control *c = bpf_map_lookup_elem(&control, &zero);
	struct hg_source_line *line = bpf_map_lookup_elem(&sources, &row);
	u64 now = limit_now() & HG_SOURCE_TIME, tag = hash >> HG_SOURCE_TAG, w;
	__s64 window, step, least = 0, ahead;
	const struct hg_limit *l;

	if (unlikely(!line || !c || kind >= HG_LIMIT_COUNT))
		return true;
	l = &c->limits[kind];
	window = READ_ONCE(l->window);
	step = READ_ONCE(l->step);
	tag += !tag; /* no word of a source is 0 */
#pragma clang loop unroll(disable)
	for (way = 0; way < HG_SOURCE_WAYS; way++) {
		w = READ_ONCE(line->word[way]);
		ahead = hg_source_ahead(w, now);
		/* Behind: a full bucket. Further ahead than any limit lets get: of long ago, or of another limit. */
		if (ahead < 0 || ahead > window + step)
			ahead = 0;
		if (w >> HG_SOURCE_TAG == tag) {
			if (ahead > window)
				return false;
			victim = way;
			least = ahead;
			goto take;
		}
		if (!way || ahead < least) {
			victim = way;
			least = ahead;
		}
	}
	least = 0; /* a newcomer's bucket is full */
take:
	line->word[victim & (HG_SOURCE_WAYS - 1)] =
		tag << HG_SOURCE_TAG | ((now + least + step) & HG_SOURCE_TIME);
	group_owes(l, kind, hash);
	return true;
}

/* False: over a limit. */
INLINE bool guard_limit(const struct hg_control *c, enum hg_limit_kind kind, u64 hash)
{
	return likely(group_takes(c, kind, hash)) || limit_takes(hash, kind);
}

/* Not inlined: only SYNs ask. */
GLOBAL u32 guard_conns(u64 hash)
{
	return live_of_source(hash);
}

/* Limits per source; without them a packet pays for one look at three words. */
INLINE u32 guard_limits(const struct hg_control *c, u64 hi, u64 lo, bool v6, bool syn)
{
	u32 packets = c->limits[HG_LIMIT_PACKETS].step, syns = c->limits[HG_LIMIT_SYNS].step;
	u64 hash;

	if (likely(!(packets | syns | c->source_conns)))
		return HG_DROP_NONE;
	hash = source_hash(hi, lo, v6, c->source_seed);
	if (packets && unlikely(!guard_limit(c, HG_LIMIT_PACKETS, hash)))
		return HG_DROP_SOURCE_PACKETS;
	if (likely(!syn))
		return HG_DROP_NONE;
	if (syns && unlikely(!guard_limit(c, HG_LIMIT_SYNS, hash)))
		return HG_DROP_SOURCE_SYNS;
	if (c->source_conns && guard_conns(hash) >= c->source_conns)
		return HG_DROP_SOURCE_CONNS;
	return HG_DROP_NONE;
}

/* Why the source's packet is not wanted; HG_DROP_NONE: it is. */
INLINE u32 guard_source(const struct hg_control *c, u64 hi, u64 lo, bool v6, bool syn)
{
	u32 drop;

	if (unlikely(READ_ONCE(c->deny_entries[v6])) && (drop = is_denied(hi, lo, v6)))
		return drop;
	return guard_limits(c, hi, lo, v6, syn);
}

#define GUARD_TYPE(w) ((w) >> 2 & 31)
#define GUARD_DROP(w) ((w) >> 8 & 0xff)

/* Both words of the packet's source, at `type_off` as in struct pkt. False: no such packet. */
INLINE bool guard_read(struct xdp_md *ctx, u32 type_off, bool v6, u64 *hi, u64 *lo)
{
	const void *l3 = (void *)(long)ctx->data + (type_off & 31) + 2;
	const void *end = (void *)(long)ctx->data_end;

	*hi = 0;
	if (l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > end)
		return false;
	if (v6) {
		*hi = *(const u64a *)(l3 + 8);
		*lo = *(const u64a *)(l3 + 16);
	} else {
		*lo = *(const u32a *)(l3 + 12);
	}
	return true;
}

/*
 * What few packets need: the service's own guard, and what rules want to know. `what`: all of GUARD_*. The drop reason
 * from here on. A function of its own that reads the source again: on the steady path nothing has to be kept for it.
 */
GLOBAL u32 guard_more(struct xdp_md *ctx, u32 what)
{
	const struct hg_control *c = control_row();
	u32 drop = GUARD_DROP(what), seen;
	bool v6 = what & GUARD_V6;
	u64 hi, lo;

	if (!guard_read(ctx, GUARD_TYPE(what), v6, &hi, &lo))
		return drop;
	if (GUARD_SERVICE(what) && !drop)
		drop = guard_service(hi, lo, what & (GUARD_V6 | GUARD_SYN), GUARD_SERVICE(what) - 1);
	seen = (what & GUARD_SYN ? SEEN_SYN : 0) | (drop ? SEEN_DROP : 0);
	if (c && c->watch && seen)
		source_note(source_hash(hi, lo, v6, c->source_seed), seen);
	return drop;
}

/*
 * For packets that are rare anyway: a function of its own that reads the source again, for the callers' stacks are
 * nearly full.
 */
GLOBAL u32 guard_apart(struct xdp_md *ctx, u32 type_off, u32 what)
{
	const struct hg_control *c = control_row();
	bool v6 = what & GUARD_V6;
	u64 hi, lo;

	if (unlikely(!c) || !guard_read(ctx, type_off, v6, &hi, &lo))
		return HG_DROP_NONE;
	return v6 ? guard_source(c, hi, lo, true, what & GUARD_SYN) :
		    guard_source(c, 0, lo, false, what & GUARD_SYN);
}

INLINE bool is_watched(void)
{
	const struct hg_control *c = control_row();

	return c && c->watch;
}

INLINE u32 guard_rest(struct pkt *p, bool v6, u32 drop)
{
	bool is_guarded = p->svc->flags & HG_SVC_GUARDED;

	/* One word, one branch: the compiler would make three of each of these. */
	if (likely(!((p->svc->flags & HG_SVC_GUARDED) | drop | p->syn)))
		return HG_DROP_NONE;
	if (likely(!is_guarded && !is_watched()))
		return drop;
	return guard_more(p->ctx, (v6 ? GUARD_V6 : 0) | (p->syn ? GUARD_SYN : 0) |
					  (p->type_off & 31) << 2 | (drop & 0xff) << 8 |
					  (is_guarded ? (p->svc->id + 1) << 16 : 0));
}

INLINE bool guard_verdict(struct pkt *p, u32 drop)
{
	return likely(!drop) ? true : pkt_drop(p, drop);
}

INLINE bool stage_guard(struct pkt *p, bool v6)
{
	const u64a *w = p->l3;
	u32 drop = v6 ? guard_source(p->control, w[1], w[2], true, p->syn) :
			guard_source(p->control, 0, ((const u32a *)w)[3], false, p->syn);

	return guard_verdict(p, guard_rest(p, v6, drop));
}

/* The same for lb_odd_packet() and what it calls. */
INLINE bool stage_guard_odd(struct pkt *p, bool v6)
{
	u32 drop = guard_apart(p->ctx, p->type_off, (v6 ? GUARD_V6 : 0) | (p->syn ? GUARD_SYN : 0));

	return guard_verdict(p, guard_rest(p, v6, drop));
}

/* ICMP: errors come from routers, which no allow list has. */
INLINE bool stage_guard_icmp(struct pkt *p, bool v6)
{
	return guard_verdict(p, guard_apart(p->ctx, p->type_off, v6 ? GUARD_V6 : 0));
}

#endif
