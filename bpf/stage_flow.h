/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage flow: which backend a flow of a moved slot (or of a service with tracking) belongs to. Called only
 * for those; nobody else pays. All functions here take numbers, so that a caller's packet can stay in
 * registers, and none calls a helper that the kernel does not inline.
 */
#ifndef HG_BPF_STAGE_FLOW_H
#define HG_BPF_STAGE_FLOW_H

#include "bpf/conn_count.h"
#include "bpf/maps.h"
#include "bpf/maps_common.h"

/* What flow_select() is told beside hash and slot, and what it answers. */
#define FLOW_NEW      1u /* a connection begins: SYN, or Initial of QUIC */
#define FLOW_TRACK    2u /* look up and remember though the slot has not moved */
#define FLOW_PEEK     4u /* remember nothing: the packet is about the flow, not of it */
#define FLOW_COUNT    8u /* flows are connections that count (HG_WORD_COUNTED) */
#define FLOW_ADMIT    16u /* with FLOW_COUNT: SYN or datagram: what begins needs room under the backend's limit */
#define FLOW_END      32u /* with FLOW_COUNT: FIN or RST of the client */
#define FLOW_SVC(id)  ((id) << 16)
#define FLOW_ALT(ret) ((ret) >> 16)
#define FLOW_REFUSED  0x8000u /* answer: the backend has all the connections that it may have */

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

/* What is left of a TCP connection that its client has closed. */
INLINE bool flow_is_closed(u64 word, u32 meta, u32 how)
{
	return (how & (FLOW_COUNT | FLOW_ADMIT)) == FLOW_COUNT && !(word & HG_WORD_COUNTED) &&
	       HG_META_CLASS(meta) == HG_FLOW_LEARNT;
}

/*
 * Lower 16 bits of the flow's word if it is in this line; refreshed, and confirmed unless it is a SYN again. The
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
	if (!(how & FLOW_NEW) && !flow_is_closed(id, meta, how))
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

/* In place of `old`; false: somebody was faster. */
INLINE bool flow_replace(u64 *at, u64 old, u64 new)
{
	u32 id = HG_WORD_BACKEND(old);

	if (__sync_val_compare_and_swap(at, old, new) != old)
		return false;
	if (old & HG_WORD_COUNTED)
		server_end(bpf_map_lookup_elem(&live_backends, &id));
	return true;
}

/* One more on this backend; false: it has all that it may have, and `how` asks. */
INLINE bool flow_admit(struct hg_live_server *live, u32 how)
{
	if (how & FLOW_ADMIT)
		return server_begin(live);
	if (live)
		__sync_fetch_and_add(&live->word, HG_LIVE_XDP);
	return true;
}

/* A counted flow was closed, or one goes on that was silent and did not count any more. FLOW_REFUSED, or 0. */
INLINE u32 flow_recount_word(u64 *at, u64 word, u32 *meta, u32 how)
{
	u32 id = HG_WORD_BACKEND(word), old = READ_ONCE(*meta);
	struct hg_live_server *live = bpf_map_lookup_elem(&live_backends, &id);

	if (how & FLOW_END) {
		*(volatile u32 *)meta = old & 0x3fffffff; /* first, so that nobody counts it again */
		if (word & HG_WORD_COUNTED)
			flow_replace(at, word, word & ~(u64)HG_WORD_COUNTED);
		return 0;
	}
	if (word & HG_WORD_COUNTED || flow_is_closed(word, old, how))
		return 0;
	if (!flow_admit(live, how))
		return FLOW_REFUSED;
	if (!flow_replace(at, word, word | HG_WORD_COUNTED))
		server_end(live);
	return 0;
}

/* The same for the word of a flow, wherever it is. */
GLOBAL u32 flow_recount(u64 hash, u32 how)
{
	u32 index = hg_line_of(hash, ro.flow_mask), i;
	struct hg_line *l;
	u64 word;

#pragma clang loop unroll(disable)
	for (i = 0; i < 2 * HG_LINE_WAYS; i++) {
		u32 at = i < HG_LINE_WAYS ? index : HG_LINE_NEIGHBOUR(index);
		u32 w = i < HG_LINE_WAYS ? i : i - HG_LINE_WAYS;

		l = bpf_map_lookup_elem(&flows, &at);
		if (!l || w >= HG_LINE_WAYS)
			break;
		word = READ_ONCE(l->word[w]);
		if (word && (word ^ hash) <= 0xffff)
			return flow_recount_word(&l->word[w], word, &l->meta[w], how);
	}
	return 0;
}

/*
 * Remembers the flow; false: no room that it may take. `id`: of the backend, with HG_WORD_COUNTED where the caller has
 * counted it. `meta` as of HG_META_MAKE().
 */
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
	if (!flow_replace(&l->word[way], READ_ONCE(l->word[way]), HG_WORD_MAKE(hash, id)))
		return false;
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

INLINE void count_begun(u32 backend)
{
	u32 row = backend * ro.n_cpus + bpf_get_smp_processor_id();
	struct hg_backend_counters *b = bpf_map_lookup_elem(&xdp_backends, &row);

	if (b)
		b->begun++;
}

/* Remembers the flow on backend `id`, and counts it when it is one that counts. FLOW_REFUSED, or was there room? */
INLINE u32 flow_begin(u64 hash, u32 id, u32 how, u32 now)
{
	u32 class = how & FLOW_NEW ? HG_FLOW_SYN : HG_FLOW_LEARNT, counted = 0;
	struct hg_live_server *live = NULL;

	if ((how & (FLOW_COUNT | FLOW_END)) == FLOW_COUNT) {
		counted = HG_WORD_COUNTED;
		live = bpf_map_lookup_elem(&live_backends, &id);
		if (!flow_admit(live, how))
			return FLOW_REFUSED;
	}
	if (flow_store(hash, id | counted, HG_META_MAKE(class, how >> 16, now))) {
		if (counted)
			count_begun(id);
		return true;
	}
	server_end(live);
	return false;
}

/* The flow is not known: choose, and remember when we may. */
INLINE u32 flow_miss(u64 hash, u32 current, u32 base, u32 how, u32 now)
{
	u32 old = base ? base : current, kept;

	if (!(how & FLOW_PEEK) && (how & FLOW_NEW || may_learn())) {
		kept = flow_begin(hash, how & FLOW_NEW ? current : old, how, now);
		if (kept == FLOW_REFUSED)
			return kept;
		if (kept && how & FLOW_NEW) {
			count_event(HG_EVENT_FLOW_NEW);
			return current;
		}
	}
	/* A SYN that cannot be remembered goes where its later packets will be sent, so that the connection stays whole. */
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

/* FLOW_END: TCP's header, `off` bytes into the frame, has FIN or RST; else 0. */
GLOBAL u32 flow_ends(struct xdp_md *ctx, u32 off)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const u8 *tcp;

	if (off > 2 * MAX_L4_OFF)
		return 0;
	tcp = data + off;
	if ((void *)(tcp + sizeof(struct tcphdr)) > end)
		return 0;
	return tcp[13] & 0x05 ? FLOW_END : 0;
}

/*
 * Backend id for a flow in the slot `word`, 0: none, or FLOW_REFUSED; in the upper half the id of the other backend it
 * may live on, for the second chance.
 */
GLOBAL u32 flow_select(u64 hash, u32 word, u32 how)
{
	u32 current = HG_SLOT_CURRENT(word), base = HG_SLOT_BASE(word), now = tick_now(), id;
	bool is_counted;

	/* `base` counts only where it differs and lives; a flow on a dead backend is lost anyway. */
	if (!(word & HG_SLOT_TRACKED) || base == current || !backend_usable(base))
		base = 0;
	id = flow_find(hash, now, how);
	is_counted = id & HG_WORD_COUNTED;
	id &= HG_WORD_COUNTED - 1;
	if (unlikely(how & FLOW_COUNT && how & FLOW_NEW && !is_counted))
		id = 0; /* the client uses its port again */
	if (id && (id == current || id == base || backend_usable(id))) {
		count_event(HG_EVENT_FLOW_HIT);
		if (unlikely(how & FLOW_COUNT && (!is_counted || how & FLOW_END)) &&
		    flow_recount(hash, how))
			return FLOW_REFUSED;
	} else if (current)
		id = flow_miss(hash, current, base, how, now);
	else
		id = how & FLOW_NEW ? 0 : base;
	if (how & FLOW_NEW || !id || id == FLOW_REFUSED)
		return id;
	return id | flow_alternative(id, current, base) << 16;
}

#endif
