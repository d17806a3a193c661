/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One runtime server: making it, what a configuration says about it, its state. Everything here is the
 * control thread's, except server_is_eligible(), server_get_addr() and server_limit(), which workers call.
 */
#include <errno.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "lb/lb_priv.h"

/* --- memory -------------------------------------------------------------------------------------- */

void *lb_zalloc_aligned(size_t size)
{
	/* The pointer to the block lies in the word before what is handed out. */
	char *block = mem_zalloc(size + HG_CACHE_LINE + sizeof(void *));
	uintptr_t p;

	if (!block)
		return NULL;
	p = ((uintptr_t)block + sizeof(void *) + HG_CACHE_LINE - 1) &
	    ~(uintptr_t)(HG_CACHE_LINE - 1);
	memcpy((char *)p - sizeof(block), &block, sizeof(block));
	return (void *)p;
}

void lb_free_aligned(void *p)
{
	char *block;

	if (!p)
		return;
	memcpy(&block, (char *)p - sizeof(block), sizeof(block));
	mem_free(block);
}

/* --- making and freeing -------------------------------------------------------------------------- */

static void server_on_wake(struct mail *m)
{
	struct server_worker *w = container_of(m, struct server_worker, wake_mail);

	lb_serve_queue(w->self, w->worker);
}

static void server_init_workers(struct server *s, unsigned n_workers)
{
	for (unsigned i = 0; i < n_workers; i++) {
		struct server_worker *w = &s->w[i];

		list_init(&w->idle);
		list_init(&w->idle_keyed);
		list_init(&w->shared);
		waitlist_init(&w->queue);
		list_init(&w->streams);
		w->ctr = s->stats.rows ? &s->stats.rows[i] : NULL;
		w->wake_mail.deliver = server_on_wake;
		w->self = s;
		w->worker = i;
	}
}

/*
 * `cookie … dynamic`: key, address and port (32 bits, network order) hashed, so that several balancers make the
 * same of it; HAProxy ones, too.
 */
static uint64_t dynamic_cookie(const struct lb_backend *be, const struct conf_proxy *px,
			       const struct addr *a)
{
	const char *key = be->cookie_key ? be->cookie_key : px->dynamic_cookie_key;
	uint32_t port = htonl(addr_port(a));
	XXH64_state_t h;

	if (!be->is_cookie_dynamic || !key)
		return 0;
	XXH64_reset(&h, 0);
	XXH64_update(&h, key, strlen(key));
	if (a->sa.sa_family == AF_INET)
		XXH64_update(&h, &a->in.sin_addr, sizeof(a->in.sin_addr));
	else if (a->sa.sa_family == AF_INET6)
		XXH64_update(&h, &a->in6.sin6_addr, sizeof(a->in6.sin6_addr));
	else
		return 0;
	XXH64_update(&h, &port, sizeof(port));
	return XXH64_digest(&h);
}

static void server_make_cookie(struct server *s)
{
	if (s->conf)
		atomic_store(&s->dynamic_cookie,
			     s->conf->cookie ? 0 : dynamic_cookie(s->be, s->conf->proxy, &s->addr));
}

void lb_set_dynamic_cookie(struct lb_backend *be, bool is_on)
{
	be->is_cookie_dynamic = is_on;
	for (unsigned i = 0; i < be->n_servers; i++)
		server_make_cookie(be->servers[i]);
}

int lb_set_cookie_key(struct lb_backend *be, struct str key)
{
	char *copy = mem_alloc(key.len + 1);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, key.p, key.len);
	copy[key.len] = '\0';
	mem_free(be->cookie_key);
	be->cookie_key = copy;
	lb_set_dynamic_cookie(be, be->is_cookie_dynamic);
	return 0;
}

void server_store_addr(struct server *s, const struct addr *a)
{
	uint32_t words[ARRAY_SIZE(s->addr_words)];

	_Static_assert(sizeof(words) == sizeof(*a), "addr_words holds a struct addr");
	memcpy(words, a, sizeof(words));
	s->addr = *a;
	for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
		atomic_store(&s->addr_words[i], words[i]);
	server_make_cookie(s);
}

static struct addr conf_addr(const struct conf_server *cs)
{
	struct addr a = { .sa.sa_family = AF_UNSPEC };

	/* A name has no address before it was resolved (then the endpoint holds it); a path is the configuration's to hold. */
	if (cs->ep.kind == ENDPOINT_IP ||
	    (cs->ep.kind == ENDPOINT_NAME && cs->ep.addr.sa.sa_family))
		a = cs->ep.addr;
	else if (cs->ep.kind == ENDPOINT_UNIX || cs->ep.kind == ENDPOINT_ABNS)
		a.sa.sa_family = AF_UNIX;
	return a;
}

/* minconn alone, or above maxconn, is a fixed limit; so says HAProxy. */
static uint32_t conf_maxconn(const struct conf_server *cs)
{
	return cs->minconn > cs->maxconn ? cs->minconn : cs->maxconn;
}

int server_new(struct lb_registry *r, struct lb_backend *be, const struct conf_server *cs,
	       uint64_t hash, struct server **ret_srv, struct err *err)
{
	struct server *s = lb_zalloc_aligned(sizeof(*s));

	if (!s)
		return err_set(err, -ENOMEM, "out of memory");
	list_init(&s->link);
	s->hash = hash;
	s->be = be;
	s->is_new = true;
	s->id = cs->id;
	s->name = mem_strdup(str_from_cstr(cs->name));
	s->backend_name = mem_strdup(str_from_cstr(be->name));
	s->w = lb_zalloc_aligned(r->n_workers * sizeof(s->w[0]));
	if (!s->name || !s->backend_name || !s->w) {
		server_free(r, s);
		return err_set(err, -ENOMEM, "out of memory");
	}
	if (r->backends_area && stats_row_take(r->backends_area, HG_L7_SERVER, &s->stats) != 0) {
		server_free(r, s);
		return err_set(err, -ENOSPC, "server %s/%s: no statistics row left, %u are in use",
			       be->name, cs->name, r->backends_area->n_ids);
	}
	server_init_workers(s, r->n_workers);
	s->applied.weight = UINT32_MAX; /* nothing applied yet */
	s->check.last_change_s = (uint64_t)time(NULL);
	server_apply_conf(s, cs);
	*ret_srv = s;
	return 0;
}

void server_free(struct lb_registry *r, struct server *s)
{
	if (!s)
		return;
	if (r->backends_area)
		stats_row_put(r->backends_area, &s->stats);
	if (s->own)
		s->own->destroy(s->own);
	mem_free(s->name);
	mem_free(s->backend_name);
	lb_free_aligned(s->w);
	lb_free_aligned(s);
}

static void server_apply_disabled(struct server *s, bool is_disabled)
{
	if (is_disabled == s->applied.is_disabled)
		return;
	if (is_disabled)
		atomic_fetch_or(&s->admin, SERVER_CONFIG_MAINT);
	else
		atomic_fetch_and(&s->admin, (uint8_t)~(SERVER_CONFIG_MAINT | SERVER_FORCED_MAINT));
}

uint32_t server_first_health(const struct conf_server *cs)
{
	uint32_t rise = cs->rise ? cs->rise : 2, fall = cs->fall ? cs->fall : 3;

	/* Without checks nothing would ever bring it up. */
	switch (cs->has_check ? cs->init_state : INIT_STATE_UP) {
	case INIT_STATE_FULLY_UP:
		return rise + fall - 1;
	case INIT_STATE_DOWN:
		return rise - 1;
	case INIT_STATE_FULLY_DOWN:
		return 0;
	default: /* down with the first failure */
		return rise;
	}
}

static void server_apply_check(struct server *s, const struct conf_server *cs, bool is_first)
{
	uint32_t rise = cs->rise ? cs->rise : 2, fall = cs->fall ? cs->fall : 3;

	if (is_first || cs->has_check != s->applied.has_check) {
		s->check.is_enabled = cs->has_check;
		s->check.status = cs->has_check ? CHECK_STATUS_INI : CHECK_STATUS_UNKNOWN;
		s->check.health = server_first_health(cs);
		atomic_store(&s->op, s->check.health >= rise ? SERVER_RUNNING : SERVER_STOPPED);
	}
	if (s->check.health > rise + fall - 1)
		s->check.health = rise + fall - 1;
	if (atomic_load(&s->op) == SERVER_STOPPED && s->check.health >= rise)
		s->check.health = rise - 1;
	if (atomic_load(&s->op) != SERVER_STOPPED && s->check.health < rise)
		s->check.health = rise;
}

/* A name that nobody has resolved: in maintenance until somebody does, unless it had an address before. */
static void server_apply_addr(struct server *s, const struct conf_server *cs, const struct addr *a,
			      bool is_first)
{
	bool is_unknown = cs->ep.kind == ENDPOINT_NAME && !a->sa.sa_family;

	if (is_first)
		server_store_addr(s, a);
	else if (!is_unknown && !addr_is_eq(a, &s->applied.addr))
		server_set_addr(s->be->registry, s, a);
	if (!s->addr.sa.sa_family && is_unknown)
		atomic_fetch_or(&s->admin, SERVER_RESOLUTION_MAINT);
	else if (!is_unknown)
		atomic_fetch_and(&s->admin, (uint8_t)~SERVER_RESOLUTION_MAINT);
}

void server_apply_conf(struct server *s, const struct conf_server *cs)
{
	bool is_first = s->applied.weight == UINT32_MAX;
	struct server_applied now = {
		.addr = conf_addr(cs),
		.weight = cs->weight,
		.maxconn = conf_maxconn(cs),
		.is_disabled = cs->is_disabled,
		.has_check = cs->has_check,
	};

	s->conf = cs;
	if (s->id != cs->id)
		s->id = cs->id;
	if (s->is_backup != cs->is_backup)
		s->is_backup = cs->is_backup;
	atomic_store(&s->minconn, cs->minconn);
	atomic_store(&s->maxqueue, cs->maxqueue);
	atomic_store(&s->iweight, cs->weight);
	atomic_store(&s->is_removed, false);
	if (is_first || now.weight != s->applied.weight) {
		atomic_store(&s->uweight, cs->weight);
		atomic_store(&s->weight, cs->weight * LB_WEIGHT_SCALE);
	}
	if (is_first || now.maxconn != s->applied.maxconn)
		atomic_store(&s->maxconn, now.maxconn);
	server_apply_disabled(s, now.is_disabled);
	server_apply_check(s, cs, is_first);
	server_apply_addr(s, cs, &now.addr, is_first);
	server_make_cookie(s);
	s->applied = now;
}

/* --- what workers ask ---------------------------------------------------------------------------- */

bool server_is_eligible(const struct server *s)
{
	return server_is_usable(s) &&
	       atomic_load_explicit(&s->op, memory_order_relaxed) != SERVER_STOPPING &&
	       !(atomic_load_explicit(&s->admin, memory_order_relaxed) & SERVER_DRAIN_MASK) &&
	       atomic_load_explicit(&s->weight, memory_order_relaxed) > 0;
}

uint32_t server_get_addr(const struct server *s, struct addr *ret_addr)
{
	uint32_t words[ARRAY_SIZE(s->addr_words)], before, after;

	/* A sequence lock: changes are rare and short, so trying again costs nothing. */
	do {
		before = atomic_load(&s->addr_generation);
		for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
			words[i] = atomic_load(&s->addr_words[i]);
		after = atomic_load(&s->addr_generation);
	} while (before != after || before & 1);
	memcpy(ret_addr, words, sizeof(words));
	return after;
}

/* `max`: of its line, above 0. */
static uint32_t own_limit(const struct lb_backend *be, const struct server *s,
			  const struct conf_server *cs, uint32_t max)
{
	uint32_t min, full, limit;

	min = cs ? cs->minconn : atomic_load(&s->minconn);
	full = atomic_load(&be->fullconn);
	limit = max;
	if (min && min < max && full) {
		uint32_t cur = atomic_load(&be->cur);

		/* Between minconn and maxconn, in proportion to how full the backend is. */
		if (cur < full)
			limit = (uint32_t)((uint64_t)cur * max / full);
		if (limit < min)
			limit = min;
	}
	if (unlikely(atomic_load(&s->op) == SERVER_STARTING)) {
		uint64_t whole = (uint64_t)atomic_load(&s->uweight) * LB_WEIGHT_SCALE;
		uint32_t now = atomic_load(&s->weight);

		if (whole && now < whole)
			limit = (uint32_t)(limit * now / whole);
	}
	return limit ? limit : 1;
}

uint32_t server_limit(const struct lb_backend *be, const struct server *s,
		      const struct conf_server *cs)
{
	uint32_t max = atomic_load(&s->maxconn), limit = 0;

	if (unlikely(max))
		limit = own_limit(be, s, cs, max);
	return unlikely(atomic_load(&s->live)) ? share_limit(s, limit) : limit;
}

/* --- state changes (control) --------------------------------------------------------------------- */

static bool server_is_down(const struct server *s)
{
	return !server_is_usable(s);
}

static void server_note_change(struct server *s, bool was_down, bool by_maintenance)
{
	uint64_t now = (uint64_t)time(NULL);
	bool is_down = server_is_down(s);

	s->check.last_change_s = now;
	if (is_down == was_down)
		return;
	if (is_down) {
		s->check.down_since_s = now;
		s->check.n_down += !by_maintenance;
	} else if (s->check.down_since_s) {
		s->check.downtime_s += now > s->check.down_since_s ? now - s->check.down_since_s
								   : 0;
		s->check.down_since_s = 0;
	}
}

/* The server's own queue looks again: it may be served now, or has to move to the backend's queue. */
static void server_changed(struct lb_registry *r, struct server *s)
{
	lb_changed(r, s->be);
	lb_wake_waiters(s->be, s);
}

void server_set_op(struct lb_registry *r, struct server *s, enum server_op op)
{
	bool was_down = server_is_down(s);

	if (atomic_load(&s->op) == op)
		return;
	atomic_store(&s->op, (uint8_t)op);
	server_note_change(s, was_down, false);
	server_changed(r, s);
}

void server_set_admin(struct lb_registry *r, struct server *s, unsigned set, unsigned clear)
{
	bool was_down = server_is_down(s);
	unsigned old = atomic_load(&s->admin), now;

	if (clear & SERVER_FORCED_MAINT)
		clear |= SERVER_CONFIG_MAINT;
	now = (old & ~clear) | set;
	if (now == old)
		return;
	atomic_store(&s->admin, (uint8_t)now);
	server_note_change(s, was_down, true);
	server_changed(r, s);
}

int server_set_weight(struct lb_registry *r, struct server *s, uint32_t uweight, struct err *err)
{
	uint64_t old = (uint64_t)atomic_load(&s->uweight) * LB_WEIGHT_SCALE;
	uint64_t now = (uint64_t)uweight * LB_WEIGHT_SCALE;

	if (uweight > LB_WEIGHT_MAX)
		return err_set(err, -ERANGE, "weight %u: expected 0 to %u", uweight, LB_WEIGHT_MAX);
	/* In slow start it stays as far along as it was. */
	if (atomic_load(&s->op) == SERVER_STARTING && old) {
		now = now * atomic_load(&s->weight) / old;
		if (!now && uweight)
			now = 1;
	}
	atomic_store(&s->uweight, uweight);
	server_set_effective_weight(r, s, (uint32_t)now);
	return 0;
}

void server_set_effective_weight(struct lb_registry *r, struct server *s, uint32_t weight)
{
	if (weight > LB_WEIGHT_MAX * LB_WEIGHT_SCALE)
		weight = LB_WEIGHT_MAX * LB_WEIGHT_SCALE;
	if (atomic_load(&s->weight) == weight)
		return;
	atomic_store(&s->weight, weight);
	server_changed(r, s);
}

void server_set_maxconn(struct lb_registry *r, struct server *s, uint32_t maxconn)
{
	atomic_store(&s->maxconn, maxconn);
	lb_wake_waiters(s->be, s);
	if (atomic_load(&s->be->n_waiting) && atomic_load(&s->be->table))
		lb_wake_backend(s->be, atomic_load(&s->be->table));
}

void server_set_addr(struct lb_registry *r, struct server *s, const struct addr *a)
{
	struct timespec ts;

	if (addr_is_eq(&s->addr, a))
		return;
	atomic_fetch_add(&s->addr_generation, 1);
	server_store_addr(s, a);
	/* The time is taken after the change: no connection to the old address is opened later. */
	clock_gettime(CLOCK_MONOTONIC, &ts);
	atomic_store(&s->addr_changed_ns,
		     (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec);
	atomic_fetch_add(&s->addr_generation, 1);
	/* Its places on the ring may be made from it. */
	if (s->conf && s->conf->hash_key != HASH_KEY_ID && s->be)
		lb_changed(r, s->be);
}
