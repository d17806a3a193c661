/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The entries of stick tables: finding, making, holding, forgetting. Each stripe has its index, its part
 * of the entries and a queue from the youngest to the oldest; everything of a stripe is under its lock.
 * The number of entries is exact over all stripes: each has a few more than its share, because keys do
 * not spread quite evenly.
 *
 * The queue is in order of last use but for a small lag: a use writes a time in the entry, which is in the
 * cache already, and only one that comes long after the last move touches the neighbours.
 */
#include <errno.h>

#include "lb/stick_priv.h"

#define LAG_MS	    10000u /* of the queue's order, and at most expire / 16 */
#define EVICT_LOOK  16 /* entries at the old end that are compared */
#define EVICT_STEPS 256 /* including those that are held */
#define AHEAD_SLOTS 8 /* a line of the index: beyond it guessing costs more than it saves */

/* --- the queue --------------------------------------------------------------------------- */

static void queue_del(const struct stick_table *t, struct stick_stripe *s, struct stick_entry *e)
{
	if (e->newer)
		stick_entry_at(t, s, e->newer)->older = e->older;
	else
		s->youngest = e->older;
	if (e->older)
		stick_entry_at(t, s, e->older)->newer = e->newer;
	else
		s->oldest = e->newer;
}

static void queue_add(const struct stick_table *t, struct stick_stripe *s, struct stick_entry *e,
		      uint32_t now)
{
	uint32_t i = stick_entry_index(t, s, e);

	e->queued = now;
	e->newer = 0;
	e->older = s->youngest;
	if (s->youngest)
		stick_entry_at(t, s, s->youngest)->newer = i;
	else
		s->oldest = i;
	s->youngest = i;
}

static uint32_t queue_lag(const struct stick_table *t)
{
	uint32_t expire = atomic_load_explicit(&t->expire_ms, memory_order_relaxed);

	return expire && expire / 16 < LAG_MS ? expire / 16 : LAG_MS;
}

static void entry_touch(const struct stick_table *t, struct stick_stripe *s, struct stick_entry *e,
			uint32_t now)
{
	/* The clocks of two workers may differ by an iteration. */
	if ((int32_t)(now - e->touched) > 0)
		e->touched = now;
	if ((int32_t)(now - e->queued) < (int32_t)queue_lag(t))
		return;
	queue_del(t, s, e);
	queue_add(t, s, e, now);
}

bool stick_entry_is_expired(const struct stick_table *t, const struct stick_entry *e, uint32_t now)
{
	uint32_t expire = atomic_load_explicit(&t->expire_ms, memory_order_relaxed);

	return expire && !e->refs && (int32_t)(now - e->touched) >= (int32_t)expire;
}

/* --- the index ----------------------------------------------------------------------------------------- */

static struct stick_entry *entry_find(const struct stick_table *t, struct stick_stripe *s,
				      uint32_t hash, struct str key)
{
	for (uint32_t i = hash & t->slot_mask; s->slots[i]; i = (i + 1) & t->slot_mask) {
		struct stick_entry *e;

		if (s->slots[i] >> 32 != hash)
			continue;
		e = stick_entry_at(t, s, (uint32_t)s->slots[i]);
		/* Its words are mostly in the next line: fetch both at once. */
		__builtin_prefetch(stick_entry_words(t, e), 1);
		if (e->key_len == key.len && memcmp(stick_entry_key(e), key.p, key.len) == 0)
			return e;
	}
	return NULL;
}

/* Under the lock; stick_ahead_entry() reads without. */
static void slot_set(uint64_t *slot, uint64_t value)
{
	__atomic_store_n(slot, value, __ATOMIC_RELAXED);
}

static void index_add(const struct stick_table *t, struct stick_stripe *s, uint32_t hash,
		      uint32_t entry)
{
	uint32_t i = hash & t->slot_mask;

	while (s->slots[i])
		i = (i + 1) & t->slot_mask;
	slot_set(&s->slots[i], (uint64_t)hash << 32 | entry);
}

/* What stands behind the gap and would no longer be found moves into it. */
static void index_del(const struct stick_table *t, struct stick_stripe *s, uint32_t hash,
		      uint32_t entry)
{
	uint32_t mask = t->slot_mask, gap = hash & mask;

	while ((uint32_t)s->slots[gap] != entry)
		gap = (gap + 1) & mask;
	for (uint32_t i = (gap + 1) & mask; s->slots[i]; i = (i + 1) & mask) {
		uint32_t home = (uint32_t)(s->slots[i] >> 32) & mask;

		if (((i - home) & mask) < ((i - gap) & mask))
			continue;
		slot_set(&s->slots[gap], s->slots[i]);
		gap = i;
	}
	slot_set(&s->slots[gap], 0);
}

/* Its place in the table is the caller's now: to be used, or given back with place_put(). */
static void entry_take_out(struct stick_table *t, struct stick_stripe *s, struct stick_entry *e)
{
	uint32_t i = stick_entry_index(t, s, e);

	index_del(t, s, e->hash, i);
	queue_del(t, s, e);
	e->is_live = false;
	e->next_free = s->free;
	s->free = i;
	s->n_live--;
}

static void place_put(struct stick_table *t)
{
	atomic_fetch_sub_explicit(&t->used, 1, memory_order_relaxed);
}

static void entry_del(struct stick_table *t, struct stick_stripe *s, struct stick_entry *e)
{
	entry_take_out(t, s, e);
	place_put(t);
}

/* --- making room -------------------------------------------------------------------------------------- */

static unsigned expire_some(struct stick_table *t, struct stick_stripe *s, uint32_t now,
			    unsigned max)
{
	uint32_t expire = atomic_load_explicit(&t->expire_ms, memory_order_relaxed);
	unsigned n = 0;

	if (!expire)
		return 0;
	for (unsigned steps = 0; s->oldest && n < max && steps < max * 2; steps++) {
		struct stick_entry *e = stick_entry_at(t, s, s->oldest);

		if (stick_entry_is_expired(t, e, now)) {
			entry_del(t, s, e);
			n++;
			continue;
		}
		/* Those behind it are younger still, but for what is held: that goes out of the way. */
		if ((int32_t)(now - e->queued) < (int32_t)expire || !e->refs)
			break;
		queue_del(t, s, e);
		queue_add(t, s, e, now);
	}
	return n;
}

/* The entry of this stripe that was used longest ago gives its place to the caller. False: all are held. */
static bool evict_one(struct stick_table *t, struct stick_stripe *s, uint32_t now)
{
	struct stick_entry *victim = NULL;
	uint32_t i = s->oldest;
	unsigned looked = 0;

	for (unsigned steps = 0; i && steps < EVICT_STEPS && looked < EVICT_LOOK; steps++) {
		struct stick_entry *e = stick_entry_at(t, s, i);

		i = e->newer;
		if (e->refs) {
			queue_del(t, s, e);
			queue_add(t, s, e, now);
			continue;
		}
		looked++;
		if (!victim || (int32_t)(victim->touched - e->touched) > 0)
			victim = e;
	}
	if (!victim)
		return false;
	entry_take_out(t, s, victim);
	return true;
}

/* Nothing of our own to give up: another stripe has a place for us. Called and returns with `s` locked; it may have changed. */
static bool evict_elsewhere(struct stick_table *t, struct stick_stripe *s, uint32_t now)
{
	unsigned n = stick_n_stripes(t), own = (unsigned)(s - t->stripes);
	bool done = false;

	if (n == 1)
		return false;
	pthread_mutex_unlock(&s->lock);
	for (unsigned k = 1; k < n && !done; k++) {
		struct stick_stripe *other = &t->stripes[(own + k) & (n - 1)];

		pthread_mutex_lock(&other->lock);
		done = evict_one(t, other, now);
		pthread_mutex_unlock(&other->lock);
	}
	pthread_mutex_lock(&s->lock);
	return done;
}

/* One of the table's `size` places, if one is free. Never more than that are taken, not even for a moment. */
static bool place_get(struct stick_table *t)
{
	uint32_t used = atomic_load_explicit(&t->used, memory_order_relaxed);

	while (used < t->size)
		if (atomic_compare_exchange_weak_explicit(
			    &t->used, &used, used + 1, memory_order_relaxed, memory_order_relaxed))
			return true;
	return false;
}

/* A place in the table, and in this stripe an entry for it. */
static bool take_place(struct stick_table *t, struct stick_stripe *s, uint32_t now)
{
	bool may_evict = !atomic_load_explicit(&t->nopurge, memory_order_relaxed);

	(void)expire_some(t, s, now, 2);
	/* What is evicted hands its place over: given back, others who wait for one would take it first. */
	if (!place_get(t) && !(may_evict && (evict_one(t, s, now) || evict_elsewhere(t, s, now))))
		return false;
	if (s->free || s->n_fresh < s->cap)
		return true;
	/* The table has room, but this stripe has not. */
	place_put(t);
	return may_evict && evict_one(t, s, now);
}

struct stick_entry *stick_entry_new(struct stick_table *t, struct stick_stripe *s, uint32_t hash,
				    struct str key, uint32_t now)
{
	struct stick_entry *e;
	uint32_t i;

	if (!take_place(t, s, now))
		return NULL;
	/* The lock may have been given up meanwhile. */
	e = entry_find(t, s, hash, key);
	if (e) {
		place_put(t);
		return e;
	}
	i = s->free;
	if (i)
		s->free = stick_entry_at(t, s, i)->next_free;
	else
		i = ++s->n_fresh;
	e = stick_entry_at(t, s, i);
	*e = (struct stick_entry){
		.hash = hash, .touched = now, .key_len = (uint16_t)key.len, .is_live = true
	};
	index_add(t, s, hash, i);
	memcpy(stick_entry_key(e), key.p, key.len);
	memset(stick_entry_words(t, e), 0, t->n_words * sizeof(uint64_t));
	queue_add(t, s, e, now);
	s->n_live++;
	return e;
}

/* --- by key --------------------------------------------------------------------------------------------- */

/* An expired entry is none. */
static struct stick_entry *find_live(struct stick_table *t, struct stick_stripe *s, uint32_t hash,
				     struct str key, uint32_t now)
{
	struct stick_entry *e = entry_find(t, s, hash, key);

	if (!e || !stick_entry_is_expired(t, e, now))
		return e;
	entry_del(t, s, e);
	return NULL;
}

void stick_ahead(struct stick_table *t, struct str key, struct stick_ahead *ret)
{
	uint32_t hash = stick_hash(t, key);

	*ret = (struct stick_ahead){ .t = t, .hash = hash };
	__builtin_prefetch(&stick_stripe_of(t, hash)->slots[hash & t->slot_mask]);
}

void stick_ahead_entry(const struct stick_ahead *a)
{
	const struct stick_table *t = a->t;
	struct stick_stripe *s = stick_stripe_of(t, a->hash);
	uint32_t i = a->hash & t->slot_mask;

	for (unsigned n = 0; n < AHEAD_SLOTS; n++, i = (i + 1) & t->slot_mask) {
		uint64_t slot = __atomic_load_n(&s->slots[i], __ATOMIC_RELAXED);

		if (!slot)
			return;
		if (slot >> 32 == a->hash) {
			struct stick_entry *e = stick_entry_at(t, s, (uint32_t)slot);

			__builtin_prefetch(e, 1);
			__builtin_prefetch(stick_entry_words(t, e), 1);
			return;
		}
	}
}

int stick_open(struct stick_table *t, struct str key, const struct stick_delta *d, uint64_t now_ms,
	       struct stick_ref *ret_ref)
{
	uint32_t hash = stick_hash(t, key), now = (uint32_t)now_ms;
	struct stick_stripe *s = stick_stripe_of(t, hash);
	struct stick_entry *e;

	*ret_ref = (struct stick_ref){ 0 };
	pthread_mutex_lock(&s->lock);
	e = find_live(t, s, hash, key, now);
	if (!e)
		e = stick_entry_new(t, s, hash, key, now);
	if (e) {
		entry_touch(t, s, e, now);
		e->refs++;
		if (d)
			stick_words_add(t, stick_entry_words(t, e), d, now_ms);
		*ret_ref = (struct stick_ref){ .t = t, .e = e };
	}
	pthread_mutex_unlock(&s->lock);
	return e ? 0 : -ENOSPC;
}

int stick_find(struct stick_table *t, struct str key, uint64_t now_ms, struct stick_ref *ret_ref)
{
	uint32_t hash = stick_hash(t, key);
	struct stick_stripe *s = stick_stripe_of(t, hash);
	struct stick_entry *e;

	*ret_ref = (struct stick_ref){ 0 };
	pthread_mutex_lock(&s->lock);
	e = find_live(t, s, hash, key, (uint32_t)now_ms);
	if (e) {
		e->refs++;
		*ret_ref = (struct stick_ref){ .t = t, .e = e };
	}
	pthread_mutex_unlock(&s->lock);
	return e ? 0 : -ENOENT;
}

void stick_close(struct stick_ref *r, const struct stick_delta *d, uint64_t now_ms)
{
	struct stick_table *t = r->t;
	struct stick_entry *e = r->e;
	struct stick_stripe *s;

	if (!t)
		return;
	s = stick_stripe_of(t, e->hash);
	pthread_mutex_lock(&s->lock);
	if (d)
		stick_words_add(t, stick_entry_words(t, e), d, now_ms);
	entry_touch(t, s, e, (uint32_t)now_ms);
	e->refs--;
	pthread_mutex_unlock(&s->lock);
	*r = (struct stick_ref){ 0 };
}

static uint32_t idle_of(const struct stick_entry *e, uint32_t now)
{
	return (int32_t)(now - e->touched) > 0 ? now - e->touched : 0;
}

static uint32_t expire_of(const struct stick_table *t, const struct stick_entry *e, uint32_t now)
{
	uint32_t expire = atomic_load_explicit(&t->expire_ms, memory_order_relaxed);
	uint32_t idle = idle_of(e, now);

	return expire > idle ? expire - idle : 0;
}

int stick_read_key(struct stick_table *t, struct str key, unsigned what, unsigned idx,
		   uint64_t now_ms, uint64_t *ret_value)
{
	uint32_t hash = stick_hash(t, key), now = (uint32_t)now_ms;
	struct stick_stripe *s = stick_stripe_of(t, hash);
	struct stick_entry *e;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	e = find_live(t, s, hash, key, now);
	if (!e)
		rc = -ENOENT;
	else if (what == STICK_FACT_REFS)
		*ret_value = e->refs;
	else if (what == STICK_FACT_IDLE_MS)
		*ret_value = idle_of(e, now);
	else if (what == STICK_FACT_EXPIRE_MS)
		*ret_value = expire_of(t, e, now);
	else
		rc = stick_words_get(t, stick_entry_words(t, e), what, idx, now_ms, ret_value);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int stick_remove(struct stick_table *t, struct str key)
{
	uint32_t hash = stick_hash(t, key);
	struct stick_stripe *s = stick_stripe_of(t, hash);
	struct stick_entry *e;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	e = entry_find(t, s, hash, key);
	if (!e)
		rc = -ENOENT;
	else if (e->refs)
		rc = -EBUSY;
	else
		entry_del(t, s, e);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* --- all of them ---------------------------------------------------------------------------------------- */

static void view_fill(const struct stick_table *t, struct stick_entry *e, uint32_t now,
		      struct stick_view *v)
{
	v->id = e;
	v->refs = e->refs;
	v->idle_ms = idle_of(e, now);
	v->expire_ms = expire_of(t, e, now);
	v->key_len = e->key_len;
	memcpy(v->key, stick_entry_key(e), e->key_len);
	memcpy(v->words, stick_entry_words(t, e), t->n_words * sizeof(uint64_t));
}

bool stick_next(struct stick_table *t, struct stick_cursor *c, uint64_t now_ms,
		struct stick_view *ret_view)
{
	uint32_t now = (uint32_t)now_ms;
	bool found = false;

	while (!found && c->stripe < stick_n_stripes(t)) {
		struct stick_stripe *s = &t->stripes[c->stripe];
		bool is_over;

		pthread_mutex_lock(&s->lock);
		while (!found && c->entry < s->n_fresh) {
			struct stick_entry *e = stick_entry_at(t, s, ++c->entry);

			if (!e->is_live || stick_entry_is_expired(t, e, now))
				continue;
			view_fill(t, e, now, ret_view);
			found = true;
		}
		is_over = c->entry >= s->n_fresh;
		pthread_mutex_unlock(&s->lock);
		if (is_over) {
			c->stripe++;
			c->entry = 0;
		}
	}
	return found;
}

int stick_view_key(struct stick_table *t, struct str key, uint64_t now_ms,
		   struct stick_view *ret_view)
{
	uint32_t hash = stick_hash(t, key), now = (uint32_t)now_ms;
	struct stick_stripe *s = stick_stripe_of(t, hash);
	struct stick_entry *e;

	pthread_mutex_lock(&s->lock);
	e = find_live(t, s, hash, key, now);
	if (e)
		view_fill(t, e, now, ret_view);
	pthread_mutex_unlock(&s->lock);
	return e ? 0 : -ENOENT;
}

unsigned stick_expire(struct stick_table *t, uint64_t now_ms, unsigned max)
{
	unsigned n = 0, each = max / stick_n_stripes(t) + 1;

	for (unsigned i = 0; i < stick_n_stripes(t); i++) {
		struct stick_stripe *s = &t->stripes[i];
		unsigned left = each, done = 1;

		/* In small steps: workers wait for this lock. */
		while (left && done) {
			pthread_mutex_lock(&s->lock);
			done = expire_some(t, s, (uint32_t)now_ms, left < 64 ? left : 64);
			pthread_mutex_unlock(&s->lock);
			n += done;
			left -= done;
		}
	}
	return n;
}

uint64_t stick_n_refs(struct stick_table *t)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < stick_n_stripes(t); i++) {
		struct stick_stripe *s = &t->stripes[i];

		pthread_mutex_lock(&s->lock);
		for (uint32_t k = 1; k <= s->n_fresh; k++) {
			const struct stick_entry *e = stick_entry_at(t, s, k);

			n += e->is_live ? e->refs : 0;
		}
		pthread_mutex_unlock(&s->lock);
	}
	return n;
}
