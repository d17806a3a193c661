/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage flow: which backend a flow of a moved slot (or of a service with tracking) belongs to. Called only
 * for those; nobody else pays. All functions here take numbers, so that a caller's packet can stay in
 * registers, and none calls a helper that the kernel does not inline.
 */
#ifndef HG_BPF_STAGE_FLOW_H
#define HG_BPF_STAGE_FLOW_H

#include "bpf/maps.h"
#include "bpf/maps_common.h"

/* What flow_select() is told beside hash and slot, and what it answers. */
#define FLOW_NEW      1u /* a connection begins: SYN, or Initial of QUIC */
#define FLOW_TRACK    2u /* look up and remember though the slot has not moved */
#define FLOW_PEEK     4u /* remember nothing: the packet is about the flow, not of it */
#define FLOW_SVC(id)  ((id) << 16)
#define FLOW_ALT(ret) ((ret) >> 16)

INLINE u32 tick_now(void)
{
	return (u32)(bpf_jiffies64() >> ro.tick_shift) & 0xffff;
}

INLINE u32 tick_age(u32 meta, u32 now)
{
	return (now - meta) & 0xffff;
}

INLINE bool backend_usable(u32 id)
{
	struct hg_backend *b = bpf_map_lookup_elem(&backends, &id);

	return id && b && (READ_ONCE(b->flags) & HG_BE_USABLE) == HG_BE_USABLE;
}

/*
 * Backend id of the flow if it is in this line; refreshed, and confirmed unless it is a SYN again. The
 * search is arithmetic: in which of the five ways a flow lies no branch predictor can know.
 */
INLINE u32 line_find(struct hg_line *l, u64 hash, u32 now, u32 how)
{
	u32 meta, fresh, way = 0, i;
	u64 word, differs, id = 0;

#pragma clang loop unroll(full)
	for (i = 0; i < HG_LINE_WAYS; i++) {
		word = READ_ONCE(l->word[i]);
		differs = (word ^ hash) >> 16;
		differs = -differs >> 63; /* 1 or 0: neither number has 63 bits */
		id |= (differs - 1) & (word & 0xffff);
		way |= (u32)(differs - 1) & i;
	}
	if (unlikely(!id))
		return 0;
	if (way >= HG_LINE_WAYS) /* a flow twice in a line; for the verifier, else */
		way = 0;
	meta = READ_ONCE(l->meta[way]);
	fresh = (meta & ~0xffffu) | now;
	if (!(how & FLOW_NEW))
		fresh = (fresh & 0x3fffffff) | (u32)HG_FLOW_CONFIRMED << 30;
	/* Once per tick, not per packet: the line stays clean in other CPUs' caches. */
	if (unlikely(meta != fresh) && !(how & FLOW_PEEK))
		l->meta[way] = fresh;
	return (u32)id;
}

INLINE u32 flow_find(u64 hash, u32 now, u32 how)
{
	u32 index = hg_line_of(hash, ro.flow_mask), id;
	struct hg_line *l = bpf_map_lookup_elem(&flows, &index);

	if (!l)
		return 0;
	id = line_find(l, hash, now, how);
	if (likely(id))
		return id;
	index = HG_LINE_NEIGHBOUR(index);
	l = bpf_map_lookup_elem(&flows, &index);
	return l ? line_find(l, hash, now, how) : 0;
}

/*
 * How readily an entry gives way to a newcomer of `class`, 0: not at all. A flood of stray packets writes
 * only LEARNT entries, and a flood of SYNs only SYN ones: neither can wash out flows that are in use.
 */
INLINE u32 yields(u64 word, u32 meta, u64 hash, u32 now, u32 class)
{
	u32 age = tick_age(meta, now);

	if ((word ^ hash) <= 0xffff)
		return 0x100000;
	if (!word)
		return 0x80000;
	if (age > ro.flow_idle_ticks)
		return 0x40000 + age;
	if (HG_META_CLASS(meta) == HG_FLOW_LEARNT)
		return 0x20000 + age;
	if (HG_META_CLASS(meta) == HG_FLOW_SYN && class >= HG_FLOW_SYN)
		return 0x10000 + age;
	return 0;
}

/* Remembers the flow; false: no room that it may take. `meta` as of HG_META_MAKE(). */
GLOBAL u32 flow_store(u64 hash, u32 id, u32 meta)
{
	u32 index = hg_line_of(hash, ro.flow_mask), best = 0, way = 0, line = index, i, y;
	struct hg_line *l;

#pragma clang loop unroll(disable)
	for (i = 0; i < 2 * HG_LINE_WAYS; i++) {
		u32 at = i < HG_LINE_WAYS ? index : HG_LINE_NEIGHBOUR(index);
		u32 w = i < HG_LINE_WAYS ? i : i - HG_LINE_WAYS;

		l = bpf_map_lookup_elem(&flows, &at);
		if (!l || w >= HG_LINE_WAYS)
			break;
		/* `pad` is zero, which the verifier does not know: else it would try all orders of ten. */
		y = READ_ONCE(l->pad) + yields(READ_ONCE(l->word[w]), READ_ONCE(l->meta[w]), hash,
					       HG_META_TICK(meta), HG_META_CLASS(meta));
		if (y > best) {
			best = y;
			way = w;
			line = at;
		}
	}
	l = bpf_map_lookup_elem(&flows, &line);
	if (!best || !l || way >= HG_LINE_WAYS) {
		count_event(HG_EVENT_FLOW_FULL);
		return false;
	}
	l->meta[way] = meta;
	*(volatile u64 *)&l->word[way] = HG_WORD_MAKE(hash, id);
	count_event(HG_EVENT_FLOW_STORED);
	return true;
}

INLINE bool may_learn(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct hg_cpu *c = bpf_map_lookup_elem(&xdp_cpus, &cpu);

	if (c && bucket_take(&c->learn, ro.learn_per_jiffy))
		return true;
	count_event(HG_EVENT_FLOW_LIMITED);
	return false;
}

/* The flow is not known: choose, and remember when we may. */
INLINE u32 flow_miss(u64 hash, u32 current, u32 base, u32 how, u32 now)
{
	u32 old = base ? base : current, service = how >> 16;

	if (how & FLOW_NEW) {
		/*
		 * What cannot be remembered goes where its later packets will be sent, so that the
		 * connection stays whole.
		 */
		if (!(how & FLOW_PEEK) &&
		    flow_store(hash, current, HG_META_MAKE(HG_FLOW_SYN, service, now))) {
			count_event(HG_EVENT_FLOW_NEW);
			return current;
		}
	} else if (!(how & FLOW_PEEK) && may_learn()) {
		flow_store(hash, old, HG_META_MAKE(HG_FLOW_LEARNT, service, now));
	}
	count_event(base ? HG_EVENT_FLOW_BASE : HG_EVENT_FLOW_OTHER);
	return old;
}

/*
 * The other backend that a flow on `id` may live on. What was learnt from a packet that was no SYN is a guess:
 * the flow may have begun, at another host, on the owner that followed; after the window that one is `base`.
 */
INLINE u32 flow_alternative(u32 id, u32 current, u32 base)
{
	if (id == current)
		return base;
	return base && id != base ? base : current;
}

/*
 * Backend id for a flow in the slot `word`, 0: none; in the upper half the id of the other backend it may
 * live on, for the second chance.
 */
GLOBAL u32 flow_select(u64 hash, u32 word, u32 how)
{
	u32 current = HG_SLOT_CURRENT(word), base = HG_SLOT_BASE(word), now = tick_now(), id;

	/* `base` counts only where it differs and lives; a flow on a dead backend is lost anyway. */
	if (!(word & HG_SLOT_TRACKED) || base == current || !backend_usable(base))
		base = 0;
	id = flow_find(hash, now, how);
	if (id && (id == current || id == base || backend_usable(id)))
		count_event(HG_EVENT_FLOW_HIT);
	else if (current)
		id = flow_miss(hash, current, base, how, now);
	else
		id = how & FLOW_NEW ? 0 : base;
	if (how & FLOW_NEW || !id)
		return id;
	return id | flow_alternative(id, current, base) << 16;
}

#endif
