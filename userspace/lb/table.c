/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Builds what picking reads. Control thread: a new table is made beside the old one, published by one
 * pointer, and the old one is freed when every worker has passed a loop iteration (workers use a table
 * only within one call). When memory is short the old table stays, and nothing else changes; picking
 * checks the state of what it finds, so a stale table costs balance, not correctness.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "lb/lb_priv.h"
#include "lb/maglev.h"

void lb_table_free(void *arg)
{
	struct lb_table *t = arg;

	if (!t)
		return;
	mem_free(t->entries);
	mem_free(t->places);
	mem_free(t->points);
	mem_free(t->slots);
	mem_free(t->all);
	mem_free(t->lines);
	mem_free(t);
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
	while (b) {
		uint32_t t = a % b;

		a = b;
		b = t;
	}
	return a;
}

static bool is_wanted(const struct server *s, bool backups)
{
	return s->is_backup == backups && server_is_eligible(s);
}

/* Active servers; without any the first backup, or all of them with `option allbackups`. */
static void table_elect(struct lb_table *t, const struct lb_backend *be, unsigned n_active)
{
	bool backups = n_active == 0;
	bool only_first = backups && !(be->conf->options & CONF_OPT(ALLBACKUPS));

	for (unsigned i = 0; i < be->n_servers; i++) {
		struct server *s = be->servers[i];

		if (!is_wanted(s, backups))
			continue;
		t->entries[t->n++] = (struct lb_entry){ .srv = s,
							.weight = atomic_load(&s->weight) };
		if (only_first)
			return;
	}
}

static void table_set_weights(struct lb_table *t)
{
	uint64_t total = 0;

	t->has_equal_weights = true;
	for (unsigned i = 0; i < t->n; i++) {
		struct lb_entry *e = &t->entries[i];

		e->before = (uint32_t)total;
		total += e->weight;
		t->has_equal_weights &= e->weight == t->entries[0].weight;
	}
	t->total = (uint32_t)total; /* at most 2^16 servers of 2^12 */
}

/* Divides by what all have in common, then rounds until the sequence is of a sane length. */
static void table_reduce_weights(struct lb_table *t)
{
	uint32_t limit = t->n > LB_MAX_PLACES / 16 ? 16 * t->n : LB_MAX_PLACES;
	uint32_t d = 0;

	for (unsigned i = 0; i < t->n; i++)
		d = gcd(t->entries[i].weight, d);
	for (unsigned i = 0; i < t->n; i++)
		t->entries[i].weight /= d;
	table_set_weights(t);
	if (t->total <= limit)
		return;
	for (unsigned i = 0; i < t->n; i++) {
		uint64_t w = (uint64_t)t->entries[i].weight * (limit - t->n) / t->total;

		t->entries[i].weight = w ? (uint32_t)w : 1;
	}
	table_set_weights(t);
}

/*
 * Weights of the map: the user's, divided by what those of all servers of the backend have in common,
 * usable or not, and rounded up. Only so does `hash % total` find the server that HAProxy finds.
 */
static void table_map_weights(struct lb_table *t, const struct lb_backend *be)
{
	uint32_t d = 0;

	for (unsigned i = 0; i < be->n_servers; i++)
		d = gcd(atomic_load(&be->servers[i]->iweight), d);
	for (unsigned i = 0; i < t->n; i++) {
		uint32_t w = t->entries[i].weight;

		w = (w + LB_WEIGHT_SCALE - 1) / LB_WEIGHT_SCALE;
		t->entries[i].weight = d > 1 ? (w + d - 1) / d : w;
	}
	table_set_weights(t);
}

static int table_places(struct lb_table *t, bool is_map)
{
	if (!t->n)
		return 0;
	t->places = mem_alloc((size_t)t->total * sizeof(t->places[0]));
	if (!t->places)
		return -ENOMEM;
	t->n_places = t->total;
	return is_map ? lb_order_map(t->entries, t->n, t->total, t->places)
		      : lb_order_smooth(t->entries, t->n, t->total, t->places);
}

static int compare_points(const void *pa, const void *pb)
{
	const struct lb_point *a = pa, *b = pb;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->entry < b->entry ? -1 : a->entry > b->entry;
}

/*
 * `hash-key`: what the points of a server begin with; as HAProxy has it, words as they lie in memory. Without an address
 * (a name that is not resolved, a path) it is the number.
 */
static uint32_t ring_key(const struct server *s)
{
	const struct addr *a = &s->addr;
	unsigned what = s->conf ? s->conf->hash_key : HASH_KEY_ID;
	uint32_t seed = what == HASH_KEY_ADDR_PORT ? lb_hash_avalanche(addr_port(a)) : 0;

	if (what != HASH_KEY_ID && a->sa.sa_family == AF_INET)
		return lb_hash_avalanche(seed + a->in.sin_addr.s_addr);
	if (what != HASH_KEY_ID && a->sa.sa_family == AF_INET6)
		return XXH32(a->in6.sin6_addr.s6_addr, 16, seed);
	return s->id * 4096u;
}

/*
 * The ring: a server has 16 points per unit of weight, and the n-th point of server id is always at the same
 * place, avalanche(id * 4096 + n), or with its address in place of the number (`hash-key`). A server that warms up has fewer of them.
 */
static int table_points(struct lb_table *t)
{
	uint32_t n = 0;

	if (!t->n)
		return 0;
	t->points = mem_alloc((size_t)t->total * sizeof(t->points[0]));
	if (!t->points)
		return -ENOMEM;
	for (unsigned i = 0; i < t->n; i++) {
		uint32_t key = ring_key(t->entries[i].srv);

		for (uint32_t k = 0; k < t->entries[i].weight; k++)
			t->points[n++] = (struct lb_point){
				.key = lb_hash_avalanche(key + k),
				.entry = i,
			};
	}
	t->n_points = n;
	qsort(t->points, n, sizeof(t->points[0]), compare_points);
	return 0;
}

static int table_maglev(struct lb_table *t, const struct lb_backend *be)
{
	struct maglev_backend *b;
	uint32_t size = be->conf->maglev_table_size;
	int rc;

	if (!t->n)
		return 0;
	if (t->n > UINT16_MAX)
		return -E2BIG;
	if (!size)
		size = maglev_table_size(t->n);
	b = mem_alloc(t->n * sizeof(*b));
	t->slots = mem_alloc(size * sizeof(t->slots[0]));
	if (!b || !t->slots) {
		mem_free(b);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < t->n; i++)
		b[i] = (struct maglev_backend){
			/* Names, unlike positions and addresses, are the same on every host and for ever. */
			.key = str_hash(str_from_cstr(t->entries[i].srv->name), 0),
			.weight = t->entries[i].weight,
			.id = (uint16_t)(i + 1),
		};
	rc = maglev_fill(b, t->n, t->slots, size);
	mem_free(b);
	t->n_slots = size;
	return rc;
}

static int compare_ids(const void *pa, const void *pb)
{
	uint32_t a = ((const struct lb_entry *)pa)->srv->id,
		 b = ((const struct lb_entry *)pb)->srv->id;

	return a < b ? -1 : a > b;
}

static int table_fill(struct lb_table *t, const struct lb_backend *be)
{
	switch (t->algo) {
	case BALANCE_ROUNDROBIN:
		table_reduce_weights(t);
		return table_places(t, false);
	case BALANCE_STATIC_RR:
		table_map_weights(t, be);
		return table_places(t, true);
	case BALANCE_MAGLEV:
		table_reduce_weights(t);
		return table_maglev(t, be);
	case BALANCE_FIRST:
		table_set_weights(t);
		qsort(t->entries, t->n, sizeof(t->entries[0]), compare_ids);
		return 0;
	case BALANCE_LEASTCONN:
	case BALANCE_RANDOM:
	case BALANCE_PEAK_EWMA:
		table_set_weights(t);
		return 0;
	default: /* hashes */
		if (t->hash_type == HASH_CONSISTENT) {
			table_set_weights(t);
			return table_points(t);
		}
		table_map_weights(t, be);
		return table_places(t, true);
	}
}

static int table_build(const struct lb_backend *be, unsigned n_active, struct lb_table **ret_table)
{
	struct lb_table *t = mem_zalloc(sizeof(*t));
	size_t n = be->n_servers ? be->n_servers : 1;
	int rc = -ENOMEM;

	if (!t)
		return -ENOMEM;
	t->algo = be->conf->balance.algo;
	t->hash_type = be->conf->balance.hash_type;
	t->entries = mem_alloc(n * sizeof(t->entries[0]));
	t->all = mem_alloc(n * sizeof(t->all[0]));
	t->lines = mem_alloc(n * sizeof(t->lines[0]));
	t->px = be->conf;
	if (t->entries && t->all && t->lines) {
		t->first_added = be->n_servers;
		for (unsigned i = 0; i < be->n_servers; i++) {
			t->all[i] = be->servers[i];
			t->lines[i] = be->servers[i]->conf->pos_in_backend;
			if (t->all[i]->own && i < t->first_added)
				t->first_added = i;
		}
		t->n_all = be->n_servers;
		table_elect(t, be, n_active);
		rc = table_fill(t, be);
	}
	if (rc != 0) {
		lb_table_free(t);
		return rc;
	}
	*ret_table = t;
	return 0;
}

/* UP to DOWN and back, of the whole backend. */
static void backend_note_state(struct lb_backend *be, bool was_up, bool is_up)
{
	uint64_t now = (uint64_t)time(NULL);

	if (was_up == is_up)
		return;
	if (is_up && be->down_since_s) {
		be->downtime_s += now > be->down_since_s ? now - be->down_since_s : 0;
		be->down_since_s = 0;
	} else if (!is_up) {
		be->down_since_s = now;
		be->n_down_times++;
	}
	be->last_change_s = now;
}

static void backend_publish(struct lb_registry *r, struct lb_backend *be, struct lb_table *t)
{
	struct lb_table *old = atomic_load(&be->table);

	/* Whoever looks meanwhile and serves nothing is woken again by lb_rebuild(). */
	for (unsigned i = 0; old && i < old->n; i++)
		atomic_store(&old->entries[i].srv->is_elected, false);
	for (unsigned i = 0; i < t->n; i++)
		atomic_store(&t->entries[i].srv->is_elected, true);
	atomic_store(&be->table, t);
	if (!old)
		return;
	if (r->after_quiescence)
		r->after_quiescence(r, lb_table_free, old);
	else
		lb_table_free(old);
}

int lb_rebuild(struct lb_registry *r, struct lb_backend *be)
{
	bool was_up = atomic_load(&be->n_active) || atomic_load(&be->n_backup_active);
	unsigned n_active = 0, n_backup = 0;
	struct lb_table *t;
	int rc;

	/* Not in the newest configuration: old streams go on with the table of their time. */
	if (!be->conf) {
		be->is_dirty = false;
		return 0;
	}
	for (unsigned i = 0; i < be->n_servers; i++) {
		n_active += is_wanted(be->servers[i], false);
		n_backup += is_wanted(be->servers[i], true);
	}
	rc = table_build(be, n_active, &t);
	be->is_stale = rc != 0;
	if (rc != 0)
		return rc;
	be->is_dirty = false;
	atomic_store(&be->n_active, n_active);
	atomic_store(&be->n_backup_active, n_backup);
	if (be->n_servers)
		backend_note_state(be, was_up, n_active || n_backup);
	backend_publish(r, be, t);
	lb_wake_backend(be, t);
	return 0;
}

void lb_changed(struct lb_registry *r, struct lb_backend *be)
{
	if (r->batch)
		be->is_dirty = true;
	else if (lb_rebuild(r, be) != 0)
		be->is_stale = true;
}

void lb_batch_begin(struct lb_registry *r)
{
	r->batch++;
}

void lb_batch_end(struct lb_registry *r)
{
	struct list *l;

	BUG_ON(!r->batch);
	if (--r->batch)
		return;
	list_for_each(l, &r->backends) {
		struct lb_backend *be = list_entry(l, struct lb_backend, link);

		if (be->is_dirty)
			lb_changed(r, be);
	}
}

unsigned lb_rebuild_stale(struct lb_registry *r)
{
	unsigned n = 0;
	struct list *l;

	list_for_each(l, &r->backends) {
		struct lb_backend *be = list_entry(l, struct lb_backend, link);

		if (be->is_stale)
			n += lb_rebuild(r, be) != 0;
	}
	lb_reap(r);
	return n;
}
