/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the program does with a packet, as a model in C on the writer's tables: bpf/stage_select.h and
 * bpf/stage_flow.h with tokens without limit. Packet tests hold those to the same rules.
 */
#ifndef UNIT_PROGRAM_MODEL_H
#define UNIT_PROGRAM_MODEL_H

#include "unit/dp_fixture.h"

#define VIP    "192.0.2.20"
#define WINDOW 16 /* seconds, the learn-window of the tests */

static inline bool usable(const struct fixture *f, uint32_t id)
{
	return id && (f->dp.t.backends[id].flags & HG_BE_USABLE) == HG_BE_USABLE;
}

static inline uint32_t tick(const struct fixture *f)
{
	return tick_of(dp_clock(&f->dp), f->dp.t.hz, f->dp.t.tick_shift);
}

static inline uint32_t line_find(struct hg_line *l, uint64_t hash, uint32_t now, bool is_new)
{
	for (unsigned i = 0; i < HG_LINE_WAYS; i++) {
		if (!l->word[i] || (l->word[i] ^ hash) >> 16)
			continue;
		l->meta[i] = (l->meta[i] & ~0xffffu) | now;
		if (!is_new)
			l->meta[i] = (l->meta[i] & 0x3fffffff) | (uint32_t)HG_FLOW_CONFIRMED << 30;
		return HG_WORD_BACKEND(l->word[i]);
	}
	return 0;
}

static inline uint32_t yields(uint64_t word, uint32_t meta, uint64_t hash, uint32_t now, uint32_t class)
{
	uint32_t age = (now - meta) & 0xffff;

	if ((word ^ hash) <= 0xffff)
		return 0x100000;
	if (!word)
		return 0x80000;
	if (age > HG_RODATA_DEFAULT_FLOW_IDLE)
		return 0x40000 + age;
	if (HG_META_CLASS(meta) == HG_FLOW_LEARNT)
		return 0x20000 + age;
	if (HG_META_CLASS(meta) == HG_FLOW_SYN && class >= HG_FLOW_SYN)
		return 0x10000 + age;
	return 0;
}

static inline bool flow_store(struct fixture *f, uint64_t hash, uint32_t id, uint32_t class, uint32_t svc)
{
	uint32_t index = hg_line_of(hash, f->dp.t.n_flow_lines - 1), best = 0, way = 0;
	uint32_t now = tick(f);
	struct hg_line *line = NULL;

	for (unsigned i = 0; i < 2 * HG_LINE_WAYS; i++) {
		struct hg_line *l = &f->dp.t.flows[index ^ (i >= HG_LINE_WAYS)];
		uint32_t w = i % HG_LINE_WAYS, y = yields(l->word[w], l->meta[w], hash, now, class);

		if (y > best) {
			best = y;
			way = w;
			line = l;
		}
	}
	if (!line)
		return false;
	line->meta[way] = HG_META_MAKE(class, svc, now);
	line->word[way] = HG_WORD_MAKE(hash, id);
	return true;
}

static inline uint32_t flow_miss(struct fixture *f, uint64_t hash, uint32_t current, uint32_t base,
			  bool is_new, uint32_t svc)
{
	uint32_t old = base ? base : current;

	if (is_new && flow_store(f, hash, current, HG_FLOW_SYN, svc))
		return current;
	if (!is_new)
		(void)flow_store(f, hash, old, HG_FLOW_LEARNT, svc);
	return old;
}

/* A packet of this service; the backend it is sent to, 0: dropped. */
static inline uint32_t packet(struct fixture *f, const struct hg_service *s, uint64_t hash, bool is_new)
{
	uint32_t word, current, base, id, index = hg_line_of(hash, f->dp.t.n_flow_lines - 1);

	if (!s->slots)
		return 0;
	word = slot_word(f, s, hg_flow_slot(hash, s->slots));
	current = HG_SLOT_CURRENT(word);
	base = HG_SLOT_BASE(word);
	if (!(word & HG_SLOT_TRACKED) && !(s->flags & HG_SVC_TRACK_ON))
		return current;
	if (!(word & HG_SLOT_TRACKED) || base == current || !usable(f, base))
		base = 0;
	id = line_find(&f->dp.t.flows[index], hash, tick(f), is_new);
	if (!id)
		id = line_find(&f->dp.t.flows[index ^ 1], hash, tick(f), is_new);
	if (id && (id == current || id == base || usable(f, id)))
		return id;
	if (current)
		return flow_miss(f, hash, current, base, is_new, s->id);
	return is_new ? 0 : base;
}

#endif
