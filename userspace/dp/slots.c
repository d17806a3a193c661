/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slot words over time: what becomes of a slot when its owner changes, when the time to learn its flows
 * is over, and when nobody needs the memory any more. docs/DATAPATH.md, "No broken connection", has the
 * rules; the numbers below are theirs.
 *
 * A word is changed in place by one store: the program sees the old owner or the new one, and both are
 * right. Beside the words the control thread keeps when a slot last changed owner and two marks
 * (dp_slot_mark). They need not survive the process: the next one takes every slot for changed just now,
 * which only makes it wait longer.
 */
#include <errno.h>
#include <string.h>

#include "dp/dp_priv.h"
#include "lb/maglev.h"

uint32_t *dp_slot_at(const struct dp *dp, const struct dp_service *svc, uint32_t slot)
{
	return &dp->t.slots[svc->row.slots_block + slot / HG_SLOTS_PER_BLOCK]
			.slot[slot % HG_SLOTS_PER_BLOCK];
}

static uint32_t slots_now_s(const struct dp *dp)
{
	return (uint32_t)(dp_clock(dp) / 1000000000ull);
}

static bool is_usable(const struct dp *dp, uint32_t id)
{
	return id && id < dp->t.max_backends &&
	       (dp->t.backends[id].flags & HG_BE_USABLE) == HG_BE_USABLE;
}

/* --- one word ---------------------------------------------------------------------------------------- */

/* Where a flow goes that began before the last change and that nobody remembers; 0: lost with its backend. */
static uint32_t owner_of_unknown(const struct dp *dp, uint32_t word)
{
	uint32_t base = HG_SLOT_BASE(word), current = HG_SLOT_CURRENT(word);

	if (word & HG_SLOT_TRACKED && is_usable(dp, base))
		return base;
	return is_usable(dp, current) ? current : 0;
}

uint32_t dp_slot_next(const struct dp *dp, uint32_t word, uint32_t want)
{
	uint32_t old = owner_of_unknown(dp, word), current = HG_SLOT_CURRENT(word);

	if (want == current) {
		if (!(word & HG_SLOT_TRACKED))
			return word;
		return HG_SLOT_TRACKED | HG_SLOT_MAKE(old ? old : current, current); /* rule 7 */
	}
	/* Rule 7: nothing to protect, but what other changes have left. */
	if (!old)
		return (word & HG_SLOT_TRACKED) | HG_SLOT_MAKE(want, want);
	return HG_SLOT_TRACKED | HG_SLOT_MAKE(old, want); /* rules 2 and 6 */
}

static void unsettle(struct dp_service *svc)
{
	svc->is_unsettled = svc->is_still_unsettled = true;
}

static void slot_store(struct dp *dp, struct dp_service *svc, uint32_t slot, uint32_t word)
{
	uint32_t *p = dp_slot_at(dp, svc, slot), old = *p;

	if (word == old)
		return;
	if (HG_SLOT_CURRENT(word) != HG_SLOT_CURRENT(old))
		svc->changed_s[slot] = slots_now_s(dp);
	svc->n_tracked += (word & HG_SLOT_TRACKED ? 1 : 0) - (old & HG_SLOT_TRACKED ? 1 : 0);
	svc->marks[slot] |= DP_SLOT_SEEN;
	if (!(word & HG_SLOT_TRACKED) && old & HG_SLOT_TRACKED)
		svc->marks[slot] |= DP_SLOT_STALE;
	unsettle(svc);
	dp->slots_changed_ns = dp_clock(dp);
	__atomic_store_n(p, word, __ATOMIC_RELEASE);
}

/* --- tables ---------------------------------------------------------------------------------------------- */

static int marks_alloc(struct dp *dp, uint32_t slots, uint32_t **ret_changed, uint8_t **ret_marks)
{
	uint32_t *changed = mem_alloc((slots + 1) * sizeof(*changed));
	uint8_t *marks = mem_alloc(slots + 1);
	uint32_t now = slots_now_s(dp);

	if (!changed || !marks) {
		mem_free(changed);
		mem_free(marks);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < slots; i++)
		changed[i] = now;
	/* There may be entries of an earlier table, or of an earlier process. */
	memset(marks, DP_SLOT_SEEN | DP_SLOT_STALE, slots + 1);
	*ret_changed = changed;
	*ret_marks = marks;
	return 0;
}

void dp_slots_free(struct dp_service *svc)
{
	mem_free(svc->changed_s);
	mem_free(svc->marks);
	svc->changed_s = NULL;
	svc->marks = NULL;
}

int dp_slots_adopt(struct dp *dp, struct dp_service *svc)
{
	int rc = marks_alloc(dp, svc->row.slots, &svc->changed_s, &svc->marks);

	for (uint32_t i = 0; rc == 0 && i < svc->row.slots; i++) {
		uint32_t word = *dp_slot_at(dp, svc, i), id = HG_SLOT_CURRENT(word);

		svc->n_tracked += word & HG_SLOT_TRACKED ? 1 : 0;
		if (id < dp->t.max_backends && !dp->backends[id].adopted_service)
			dp->backends[id].adopted_service = svc->row.id + 1;
	}
	unsettle(svc);
	return rc;
}

static int owners_fill(const struct dp_member *m, unsigned n, uint32_t slots, uint16_t **ret)
{
	struct maglev_backend *in = mem_alloc((n + 1) * sizeof(*in));
	uint16_t *table = mem_zalloc((slots + 1) * sizeof(*table));
	int rc = -ENOMEM;

	if (in && table) {
		for (unsigned i = 0; i < n; i++)
			in[i] = (struct maglev_backend){ .key = m[i].key,
							 .weight = m[i].weight,
							 .id = m[i].id };
		rc = maglev_fill(in, n, table, slots);
	}
	mem_free(in);
	if (rc != 0) {
		mem_free(table);
		return rc;
	}
	*ret = table;
	return 0;
}

/*
 * A table beside the one there is, if any, of a multiple of its slots: slots are ranges of the hash, so each lies within
 * one of the older ones, and what is known of that one is known of it.
 */
static int slots_replace(struct dp *dp, struct dp_service *svc, const uint16_t *owners,
			 uint32_t slots)
{
	struct dp_service old = *svc;
	uint32_t start, *changed, parts = old.row.slots ? slots / old.row.slots : 1;
	uint8_t *marks;
	int rc = marks_alloc(dp, slots, &changed, &marks);

	if (rc != 0)
		return rc;
	rc = dp_range_take(dp, &dp->free_ranges, dp_blocks_of(slots), &start);
	if (rc != 0) {
		mem_free(changed);
		mem_free(marks);
		return rc;
	}
	svc->row.slots_block = start;
	svc->row.slots = slots;
	svc->n_tracked = 0;
	for (uint32_t i = 0; i < slots; i++) {
		uint32_t word = HG_SLOT_MAKE(owners[i], owners[i]);

		if (old.row.slots && svc->is_tracking)
			word = dp_slot_next(dp, HG_SLOT_TRACKED | *dp_slot_at(dp, &old, i / parts),
					    owners[i]);
		svc->n_tracked += word & HG_SLOT_TRACKED ? 1 : 0;
		*dp_slot_at(dp, svc, i) = word;
	}
	svc->changed_s = changed;
	svc->marks = marks;
	unsettle(svc);
	dp->are_services_dirty = true;
	if (old.row.slots)
		dp_range_give(dp, &dp->free_ranges, old.row.slots_block,
			      dp_blocks_of(old.row.slots));
	dp_slots_free(&old);
	return 0;
}

/* The smallest multiple that is as large as asked for, and has a slot for each of `n`. */
static uint32_t slots_grown(uint32_t slots, unsigned n, uint32_t want)
{
	uint32_t least = want > n ? want : n;

	return (least + slots - 1) / slots * slots;
}

int dp_slots_want(struct dp *dp, struct dp_service *svc, const struct dp_member *m, unsigned n,
		  uint32_t slots)
{
	bool is_new = !svc->row.slots, is_too_small = svc->row.slots < n;
	uint16_t *owners;
	int rc;

	if (is_new && n == 0)
		return 0;
	/* The size stays as long as it can: nearly all slots of another table have other owners. */
	if (!is_new)
		slots = is_too_small ? slots_grown(svc->row.slots, n, slots) : svc->row.slots;
	rc = owners_fill(m, n, slots, &owners);
	if (rc != 0)
		return rc;
	if (is_new || is_too_small)
		rc = slots_replace(dp, svc, owners, slots);
	for (uint32_t i = 0; rc == 0 && !is_new && !is_too_small && i < slots; i++) {
		uint32_t word = *dp_slot_at(dp, svc, i);

		if (svc->marks[i] & DP_SLOT_STALE)
			word |= HG_SLOT_TRACKED; /* as if it had never ceased to be */
		word = svc->is_tracking ? dp_slot_next(dp, word, owners[i])
					: HG_SLOT_MAKE(owners[i], owners[i]);
		if (HG_SLOT_CURRENT(word) != HG_SLOT_CURRENT(*dp_slot_at(dp, svc, i)) ||
		    *dp_slot_at(dp, svc, i) & HG_SLOT_TRACKED)
			slot_store(dp, svc, i, word);
	}
	mem_free(owners);
	return rc;
}

/* Rule 7: a base that died has no flows left, and must have none when it comes back. */
void dp_slots_bury(struct dp *dp, struct dp_service *svc)
{
	if (svc->deaths == dp->deaths)
		return;
	svc->deaths = dp->deaths;
	for (uint32_t i = 0; svc->n_tracked && i < svc->row.slots; i++) {
		uint32_t word = *dp_slot_at(dp, svc, i);

		if (word & HG_SLOT_TRACKED)
			slot_store(dp, svc, i, dp_slot_next(dp, word, HG_SLOT_CURRENT(word)));
	}
}

void dp_slots_distrust(struct dp_service *svc)
{
	if (svc->marks)
		memset(svc->marks, DP_SLOT_SEEN | DP_SLOT_STALE, svc->row.slots);
	unsettle(svc);
}

/* --- time passes ------------------------------------------------------------------------------------------- */

/* A tracked slot at the end of a walk over `flows`; the word it shall have. */
static uint32_t slot_ripen(const struct dp_service *svc, uint32_t slot, uint32_t word,
			   uint8_t marks, uint32_t now_s)
{
	uint32_t current = HG_SLOT_CURRENT(word), age = now_s - svc->changed_s[slot];

	if (svc->drain_s && age > svc->drain_s)
		return HG_SLOT_MAKE(current, current); /* rule 8, the deadline */
	if (HG_SLOT_BASE(word) != current) {
		/* Rule 5. Without an owner nothing is learnt, so the old one stays. */
		if (current && age > svc->window_s)
			return HG_SLOT_TRACKED | HG_SLOT_MAKE(current, current);
		return word;
	}
	return marks & DP_SLOT_SEEN ? word : HG_SLOT_MAKE(current, current); /* rule 8 */
}

/* By the word before this walk changes it: entries of that time are met by the next walk only. */
static void slots_name(struct dp *dp, uint32_t id)
{
	if (id < dp->t.max_backends)
		dp->backends[id].is_named = true;
}

void dp_slots_ripen(struct dp *dp, struct dp_service *svc, uint32_t from, uint32_t to)
{
	uint32_t now_s = slots_now_s(dp);

	for (uint32_t i = from; i < to; i++) {
		uint32_t word = *dp_slot_at(dp, svc, i);
		uint8_t marks = svc->marks[i];

		/* From here on marks are of the next walk. A tracked slot gets STALE when it ceases to be. */
		if (word & HG_SLOT_TRACKED || marks == DP_SLOT_STALE)
			svc->marks[i] = 0;
		else
			svc->marks[i] = marks & DP_SLOT_STALE;
		if (word & HG_SLOT_TRACKED) {
			slots_name(dp, HG_SLOT_BASE(word));
			slots_name(dp, HG_SLOT_CURRENT(word));
			slot_store(dp, svc, i, slot_ripen(svc, i, word, marks, now_s));
		}
		if (*dp_slot_at(dp, svc, i) & HG_SLOT_TRACKED || svc->marks[i])
			svc->is_still_unsettled = true;
	}
}
