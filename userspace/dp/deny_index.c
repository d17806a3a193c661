/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The index in front of the tries of denied prefixes (headgate/guard.h): words in mapped memory, which packets read while
 * one writer changes them. deny.c decides what is in it and when, and that there is one writer.
 */
#include <endian.h>
#include <string.h>

#include "dp/dp_priv.h"

uint32_t dp_deny_lines(uint32_t prefixes)
{
	uint32_t lines = HG_DENY_INDEX_MIN;

	while (lines * HG_DENY_PER_LINE < prefixes && lines < HG_DENY_INDEX_MAX)
		lines *= 2;
	return lines;
}

/* --- lengths ----------------------------------------------------------------------------------------- */

/* One more prefix of this length. False: packets look for as many lengths as they may already. */
static bool length_take(struct dp_tables *t, bool is_v6, uint8_t bits)
{
	uint32_t *n = t->control->deny_lengths[is_v6], *at = NULL;

	for (unsigned i = 0; i < HG_DENY_LENGTHS; i++) {
		if (n[i] >> HG_DENY_LENGTH == bits && (n[i] & HG_DENY_PREFIXES)) {
			__atomic_store_n(&n[i], n[i] + 1, __ATOMIC_RELEASE);
			return true;
		}
		if (!(n[i] & HG_DENY_PREFIXES))
			at = &n[i];
	}
	if (at)
		__atomic_store_n(at, (uint32_t)bits << HG_DENY_LENGTH | 1, __ATOMIC_RELEASE);
	return at;
}

static void length_give(struct dp_tables *t, bool is_v6, uint8_t bits)
{
	uint32_t *n = t->control->deny_lengths[is_v6];

	for (unsigned i = 0; i < HG_DENY_LENGTHS; i++)
		if (n[i] >> HG_DENY_LENGTH == bits && (n[i] & HG_DENY_PREFIXES))
			__atomic_store_n(&n[i], n[i] - 1, __ATOMIC_RELEASE);
}

/* --- words ------------------------------------------------------------------------------------------- */

static struct hg_deny_place place_of(const struct dp_tables *t, const struct conf_prefix *p)
{
	struct hg_deny_place at;
	uint64_t half[2];
	uint32_t v4;

	memcpy(half, p->addr, sizeof(half));
	memcpy(&v4, p->addr, sizeof(v4));
	at = hg_deny_place(be64toh(half[0]), p->is_v6 ? be64toh(half[1]) : be32toh(v4), p->is_v6,
			   p->bits, t->control->source_seed);
	at.line &= t->deny_mask;
	return at;
}

/* Denied for certain before this time. What no word can say is over at once: then the trie is asked. */
static uint64_t until_of(uint64_t expires_ns)
{
	uint64_t until = expires_ns >> HG_DENY_UNTIL_UNIT;

	if (!expires_ns)
		return 0;
	return until && until <= HG_DENY_UNTIL ? until : 1;
}

static uint64_t word_of(const struct hg_deny_place *at, const struct hg_deny *d)
{
	return at->prefix | (d->flags & HG_DENY_RESETS ? HG_DENY_RST : 0) | until_of(d->expires_ns);
}

/* Puts `new` in place of a word with these bits of `mask`. */
static bool line_swap(struct hg_deny_line *line, uint64_t want, uint64_t mask, uint64_t new)
{
	for (unsigned way = 0; way < HG_DENY_WAYS; way++) {
		if ((line->word[way] & mask) != want)
			continue;
		__atomic_store_n(&line->word[way], new, __ATOMIC_RELEASE);
		return true;
	}
	return false;
}

/* One prefix of the line more, or less, in the neighbour `step`. */
static void count_next_door(struct hg_deny_line *line, unsigned step, bool up)
{
	uint64_t one = 1ull << 8 * step;

	__atomic_store_n(&line->next_door, line->next_door + (up ? one : -one), __ATOMIC_RELEASE);
}

bool dp_deny_index_put(struct dp_tables *t, const struct conf_prefix *p, const struct hg_deny *d)
{
	struct hg_deny_place at;
	uint64_t word;

	if (!t->deny || !p->bits || !length_take(t, p->is_v6, p->bits))
		return false;
	dp_guard_seed(t->control);
	at = place_of(t, p);
	word = word_of(&at, d);
	for (unsigned step = 0; step < HG_DENY_DOORS; step++) {
		if (step) /* first: nobody looks where this says nothing */
			count_next_door(&t->deny[at.line], step, true);
		if (line_swap(&t->deny[at.line ^ step], 0, ~0ull, word))
			return true;
		if (step)
			count_next_door(&t->deny[at.line], step, false);
	}
	length_give(t, p->is_v6, p->bits);
	return false;
}

/* Puts `new` in place of the prefix's word. The step to the line that had it, HG_DENY_DOORS: none had. */
static unsigned replace(struct dp_tables *t, const struct hg_deny_place *at, uint64_t new)
{
	unsigned step = 0;

	while (step < HG_DENY_DOORS &&
	       !line_swap(&t->deny[at->line ^ step], at->prefix, HG_DENY_PREFIX, new))
		step++;
	return step;
}

bool dp_deny_index_set(struct dp_tables *t, const struct conf_prefix *p, const struct hg_deny *d)
{
	struct hg_deny_place at;

	if (!t->deny || !p->bits)
		return false;
	at = place_of(t, p);
	return replace(t, &at, word_of(&at, d)) < HG_DENY_DOORS;
}

bool dp_deny_index_del(struct dp_tables *t, const struct conf_prefix *p)
{
	struct hg_deny_place at;
	unsigned step;

	if (!t->deny || !p->bits)
		return false;
	at = place_of(t, p);
	step = replace(t, &at, 0);
	if (step == HG_DENY_DOORS)
		return false;
	if (step)
		count_next_door(&t->deny[at.line], step, false);
	length_give(t, p->is_v6, p->bits);
	return true;
}
