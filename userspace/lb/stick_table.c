/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stick tables as a whole: their memory, their names, reloads. A table belongs to every configuration
 * that names it; entries that somebody holds keep it alive after the last of them. Control thread.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/mem.h"
#include "lb/stick_priv.h"

#define STRIPE_BITS_MAX 6
#define STRIPE_ENTRIES	128 /* at least, where there are several */
#define HUGE_PAGE	(2ul << 20)
#define EXPIRE_AT_ONCE	200000u /* entries of one table, per tick */

/* --- birth and death -------------------------------------------------------------------------------------- */

static uint32_t square_root(uint32_t v)
{
	uint32_t r = 0;

	while ((uint64_t)(r + 1) * (r + 1) <= v)
		r++;
	return r;
}

static void table_layout(struct stick_table *t, const struct conf_stick_table *c)
{
	unsigned at = 0;

	for (unsigned i = 0; i < STICK_DATA_COUNT; i++) {
		enum conf_stick_kind k = conf_stick_data_kind((enum conf_stick_data)i);
		bool is_rate = k == STICK_KIND_RATE || k == STICK_KIND_RATES;

		t->cols[i].at = (uint16_t)at;
		t->cols[i].n = (uint16_t)c->store[i].n;
		t->cols[i].period_ms = is_rate ? (uint32_t)(c->store[i].period / 1000000) : 0;
		at += c->store[i].n * (is_rate ? 3 : 1);
		/* The hash of its name. */
		at += i == STICK_DATA_SERVER_ID && c->store[i].n;
	}
	t->n_words = at;
	t->words_at = (uint32_t)sizeof(struct stick_entry) + ((t->key_len + 7) & ~7u);
	t->stride = t->words_at + at * (uint32_t)sizeof(uint64_t);
}

/* Large tables in large pages: a lookup at random costs fewer misses of the TLB. */
static void advise_huge(void *mem, size_t size)
{
	uintptr_t from = ((uintptr_t)mem + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	uintptr_t to = ((uintptr_t)mem + size) & ~(HUGE_PAGE - 1);

	if (to > from)
		(void)madvise((void *)from, to - from, MADV_HUGEPAGE);
}

static int table_memory(struct stick_table *t)
{
	unsigned n = stick_n_stripes(t);
	uint32_t share = (t->size + n - 1) / n, slots = 8;
	uint32_t cap = n == 1 ? t->size : share + 6 * square_root(share) + 8;
	size_t entries = (size_t)cap * t->stride;

	while (slots < 2ull * cap)
		slots *= 2;
	t->slot_mask = slots - 1;
	t->stripes_mem = mem_zalloc((n + 1) * sizeof(struct stick_stripe));
	t->entries_mem = mem_zalloc(n * entries);
	t->slots_mem = mem_zalloc((size_t)n * slots * sizeof(uint64_t));
	if (!t->stripes_mem || !t->entries_mem || !t->slots_mem)
		return -ENOMEM;
	advise_huge(t->entries_mem, n * entries);
	advise_huge(t->slots_mem, (size_t)n * slots * sizeof(uint64_t));
	t->stripes = (void *)(((uintptr_t)t->stripes_mem + 63) & ~(uintptr_t)63);
	for (unsigned i = 0; i < n; i++) {
		t->stripes[i].entries = (char *)t->entries_mem + i * entries;
		t->stripes[i].slots = (uint64_t *)t->slots_mem + (size_t)i * slots;
		t->stripes[i].cap = cap;
		pthread_mutex_init(&t->stripes[i].lock, NULL);
	}
	return 0;
}

int stick_table_new(const struct conf_stick_table *c, struct stick_table **ret_table)
{
	struct stick_table *t = mem_zalloc(sizeof(*t));

	if (!t)
		return -ENOMEM;
	list_init(&t->link);
	t->name = mem_strdup(str_from_cstr(c->name));
	t->type = c->type;
	t->key_len = c->key_len;
	t->size = c->size;
	atomic_init(&t->expire_ms, (uint32_t)(c->expire / 1000000));
	atomic_init(&t->nopurge, c->nopurge);
	/* Clients choose keys; they must not be able to choose where they lie. */
	if (getrandom(&t->seed, sizeof(t->seed), 0) != (ssize_t)sizeof(t->seed))
		t->seed = (uintptr_t)t;
	while (t->stripe_bits < STRIPE_BITS_MAX &&
	       (c->size >> (t->stripe_bits + 1)) >= STRIPE_ENTRIES)
		t->stripe_bits++;
	table_layout(t, c);
	if (!t->name || table_memory(t)) {
		stick_table_free(t);
		return -ENOMEM;
	}
	*ret_table = t;
	return 0;
}

void stick_table_free(struct stick_table *t)
{
	if (!t)
		return;
	for (unsigned i = 0; t->stripes && i < stick_n_stripes(t); i++)
		pthread_mutex_destroy(&t->stripes[i].lock);
	mem_free(t->stripes_mem);
	mem_free(t->entries_mem);
	mem_free(t->slots_mem);
	mem_free(t->name);
	mem_free(t);
}

/* --- reloads ---------------------------------------------------------------------------------------------- */

void stick_move(struct stick_table *to, struct stick_table *from, uint64_t now_ms)
{
	uint32_t now = (uint32_t)now_ms;

	for (unsigned i = 0; i < stick_n_stripes(from); i++) {
		struct stick_stripe *s = &from->stripes[i];

		pthread_mutex_lock(&s->lock);
		/* From the oldest on, so that the youngest are those that stay when `to` is smaller. */
		for (uint32_t k = s->oldest; k;) {
			struct stick_entry *e = stick_entry_at(from, s, k), *copy = NULL;
			struct str key = str_make(stick_entry_key(e), e->key_len);
			uint32_t hash = stick_hash(to, key);
			struct stick_stripe *d = stick_stripe_of(to, hash);

			k = e->newer;
			if (stick_entry_is_expired(from, e, now))
				continue;
			/* The order of the two locks is that of the tables' ages: nobody does it the other way. */
			pthread_mutex_lock(&d->lock);
			copy = stick_entry_new(to, d, hash, key, e->queued);
			if (copy) {
				copy->touched = e->touched;
				stick_words_move(to, stick_entry_words(to, copy), from,
						 stick_entry_words(from, e));
			}
			pthread_mutex_unlock(&d->lock);
		}
		pthread_mutex_unlock(&s->lock);
	}
}

static bool table_is_like(const struct stick_table *t, const struct conf_stick_table *c)
{
	if (t->type != c->type || t->key_len != c->key_len || t->size != c->size)
		return false;
	for (unsigned i = 0; i < STICK_DATA_COUNT; i++) {
		if (t->cols[i].n != c->store[i].n ||
		    (t->cols[i].n && t->cols[i].period_ms != c->store[i].period / 1000000))
			return false;
	}
	return true;
}

static struct stick_table *registry_find(const struct stick_registry *r, const char *name)
{
	struct list *p;
	struct stick_table *found = NULL;

	/* The newest, should one of that name live on for its references. */
	list_for_each(p, &r->tables) {
		struct stick_table *t = list_entry(p, struct stick_table, link);

		if (t->refs && strcmp(t->name, name) == 0)
			found = t;
	}
	return found;
}

void stick_registry_init(struct stick_registry *r)
{
	list_init(&r->tables);
}

int stick_registry_prepare(struct stick_registry *r, struct conf *c, struct err *err)
{
	struct list *p;

	list_for_each(p, &c->stick_tables) {
		struct conf_stick_table *ct = list_entry(p, struct conf_stick_table, link);
		struct stick_table *old = registry_find(r, ct->name), *t = old;

		if (!old || !table_is_like(old, ct)) {
			if (stick_table_new(ct, &t))
				return err_set(
					err, -ENOMEM,
					"%s:%u: error: out of memory for stick table '%.64s' "
					"with %u entries",
					ct->pos.file, ct->pos.line, ct->name, ct->size);
			if (old && old->type == t->type && old->key_len <= t->key_len)
				t->heir_of = old;
			list_push_back(&r->tables, &t->link);
		}
		t->refs++;
		ct->rt = t;
	}
	return 0;
}

void stick_registry_commit(struct stick_registry *r, const struct conf *c, uint64_t now_ms)
{
	struct list *p;

	list_for_each(p, &c->stick_tables) {
		const struct conf_stick_table *ct = list_entry(p, struct conf_stick_table, link);
		struct stick_table *t = ct->rt;

		atomic_store_explicit(&t->expire_ms, (uint32_t)(ct->expire / 1000000),
				      memory_order_relaxed);
		atomic_store_explicit(&t->nopurge, ct->nopurge, memory_order_relaxed);
		if (t->heir_of)
			stick_move(t, t->heir_of, now_ms);
		t->heir_of = NULL;
	}
}

static void table_end(struct stick_table *t)
{
	list_del(&t->link);
	stick_table_free(t);
}

void stick_registry_release(struct stick_registry *r, struct conf *c)
{
	struct list *p;

	list_for_each(p, &c->stick_tables) {
		struct conf_stick_table *ct = list_entry(p, struct conf_stick_table, link);
		struct stick_table *t = ct->rt;

		ct->rt = NULL;
		/* A connection may still be tracked there; stick_registry_tick() comes back. */
		if (t && --t->refs == 0 && stick_n_refs(t) == 0)
			table_end(t);
	}
}

void stick_registry_tick(struct stick_registry *r, uint64_t now_ms)
{
	struct list *p, *tmp;

	list_for_each_safe(p, tmp, &r->tables) {
		struct stick_table *t = list_entry(p, struct stick_table, link);

		(void)stick_expire(t, now_ms, EXPIRE_AT_ONCE);
		if (!t->refs && stick_n_refs(t) == 0)
			table_end(t);
	}
}

void stick_registry_fini(struct stick_registry *r)
{
	while (!list_is_empty(&r->tables))
		table_end(list_entry(r->tables.next, struct stick_table, link));
}
