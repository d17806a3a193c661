/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The runtime objects by name, and how they survive reloads. A configuration is prepared (objects found or
 * made, nothing visible), then committed or aborted; when the last worker let it go it is released. Control
 * thread. Objects are the registry's; they are freed when no configuration names them and every worker
 * has passed a loop iteration since.
 */
#include <errno.h>
#include <sys/random.h>

#include "lb/lb_priv.h"

/* What a snapshot holds: before the array that the caller sees, in the snapshot's arena. */
struct lb_holds {
	unsigned n_backends, n_servers;
	struct server **servers;
	struct lb_backend *backends[];
};

static struct lb_holds *holds_of(struct lb_backend **backends)
{
	return container_of(backends, struct lb_holds, backends);
}

/* --- names --------------------------------------------------------------------------------------- */

/* A frontend and a backend may share a name: they are two objects. */
static uint64_t backend_hash(struct str name, unsigned caps)
{
	return str_hash(name, caps & CONF_CAP_BACKEND ? 0 : 1);
}

static uint64_t server_hash(struct str backend, struct str name)
{
	return str_hash(name, str_hash(backend, 0));
}

static struct lb_backend *backend_find(const struct lb_registry *r, struct str name, uint64_t hash)
{
	struct lb_backend *be;

	if (!r->n_backend_buckets)
		return NULL;
	for (be = r->backend_buckets[hash & (r->n_backend_buckets - 1)]; be; be = be->hash_next)
		if (be->hash == hash && str_is_eq(str_from_cstr(be->name), name))
			return be;
	return NULL;
}

static struct server *server_find(const struct lb_registry *r, struct str backend, struct str name,
				  uint64_t hash)
{
	struct server *s;

	if (!r->n_server_buckets)
		return NULL;
	for (s = r->server_buckets[hash & (r->n_server_buckets - 1)]; s; s = s->hash_next)
		if (s->hash == hash && str_is_eq(str_from_cstr(s->name), name) &&
		    str_is_eq(str_from_cstr(s->backend_name), backend))
			return s;
	return NULL;
}

struct lb_backend *lb_find_backend(const struct lb_registry *r, struct str name)
{
	struct lb_backend *be = backend_find(r, name, backend_hash(name, CONF_CAP_BACKEND));

	if (!be)
		be = backend_find(r, name, backend_hash(name, CONF_CAP_FRONTEND));
	return be && !be->is_new ? be : NULL;
}

struct server *lb_find_server(const struct lb_registry *r, struct str backend, struct str name)
{
	struct server *s = server_find(r, backend, name, server_hash(backend, name));

	return s && !s->is_new ? s : NULL;
}

struct server *lb_find_line(const struct lb_backend *be, const struct conf_server *cs)
{
	uint32_t pos = cs->pos_in_backend;

	if (pos < be->n_servers && be->servers[pos]->conf == cs)
		return be->servers[pos];
	for (unsigned i = 0; i < be->n_servers; i++)
		if (be->servers[i]->conf == cs)
			return be->servers[i];
	return NULL;
}

/* Both tables are chains through hash_next; these are the same three functions for two types. */
#define NAMES(type, buckets, n_buckets)                                     \
	static int buckets##_grow(struct lb_registry *r, size_t want)       \
	{                                                                   \
		unsigned n = r->n_buckets ? r->n_buckets : 16;              \
		type **b;                                                   \
                                                                            \
		while (n < want)                                            \
			n *= 2;                                             \
		if (n == r->n_buckets)                                      \
			return 0;                                           \
		b = mem_zalloc(n * sizeof(*b));                             \
		if (!b)                                                     \
			return -ENOMEM;                                     \
		for (unsigned i = 0; i < r->n_buckets; i++) {               \
			for (type *o = r->buckets[i], *next; o; o = next) { \
				next = o->hash_next;                        \
				o->hash_next = b[o->hash & (n - 1)];        \
				b[o->hash & (n - 1)] = o;                   \
			}                                                   \
		}                                                           \
		mem_free(r->buckets);                                       \
		r->buckets = b;                                             \
		r->n_buckets = n;                                           \
		return 0;                                                   \
	}                                                                   \
	static void buckets##_add(struct lb_registry *r, type *o)           \
	{                                                                   \
		type **slot = &r->buckets[o->hash & (r->n_buckets - 1)];    \
                                                                            \
		o->hash_next = *slot;                                       \
		*slot = o;                                                  \
	}                                                                   \
	static void buckets##_del(struct lb_registry *r, type *o)           \
	{                                                                   \
		type **slot = &r->buckets[o->hash & (r->n_buckets - 1)];    \
                                                                            \
		while (*slot != o)                                          \
			slot = &(*slot)->hash_next;                         \
		*slot = o->hash_next;                                       \
	}

NAMES(struct server, server_buckets, n_server_buckets)
NAMES(struct lb_backend, backend_buckets, n_backend_buckets)

/* --- backends ------------------------------------------------------------------------------------ */

static void backend_free(struct lb_registry *r, struct lb_backend *be)
{
	if (!be)
		return;
	lb_table_free(atomic_load(&be->table));
	if (r->backends_area)
		stats_row_put(r->backends_area, &be->stats);
	if (r->services_area)
		stats_row_put(r->services_area, &be->fe_stats);
	mem_free(be->servers);
	mem_free(be->next_servers);
	mem_free(be->cookie_key);
	mem_free(be->name);
	for (unsigned i = 0; i < ARRAY_SIZE(be->invalid); i++)
		mem_free(be->invalid[i]);
	lb_free_aligned(be->w);
	lb_free_aligned(be);
}

static void backend_init_workers(struct lb_backend *be, unsigned n_workers)
{
	for (unsigned i = 0; i < n_workers; i++) {
		struct lb_backend_worker *w = &be->w[i];

		waitlist_init(&w->queue);
		w->ctr = be->stats.rows ? &be->stats.rows[i] : NULL;
		/* Hosts and workers should not draw the same numbers; without entropy at least workers differ. */
		if (getrandom(&w->prng, sizeof(w->prng), GRND_NONBLOCK) != sizeof(w->prng) ||
		    !w->prng)
			w->prng = be->hash ^ (0x9e3779b97f4a7c15ull * (i + 1));
		if (!w->prng)
			w->prng = i + 1;
	}
}

static int backend_take_rows(struct lb_registry *r, struct lb_backend *be,
			     const struct conf_proxy *px)
{
	int rc = 0;

	if (px->caps & CONF_CAP_BACKEND && r->backends_area && !be->stats.rows)
		rc = stats_row_take(r->backends_area, HG_L7_BACKEND, &be->stats);
	if (rc == 0 && px->caps & CONF_CAP_FRONTEND && r->services_area && !be->fe_stats.rows)
		rc = stats_row_take(r->services_area, HG_L7_FRONTEND, &be->fe_stats);
	return rc;
}

static int backend_new(struct lb_registry *r, const struct conf_proxy *px, uint64_t hash,
		       struct lb_backend **ret_be)
{
	struct lb_backend *be = lb_zalloc_aligned(sizeof(*be));
	int rc = -ENOMEM;

	if (!be)
		return -ENOMEM;
	list_init(&be->link);
	be->registry = r;
	be->hash = hash;
	be->is_new = true;
	be->name = mem_strdup(str_from_cstr(px->name));
	be->w = lb_zalloc_aligned(r->n_workers * sizeof(be->w[0]));
	if (be->name && be->w)
		rc = backend_take_rows(r, be, px);
	if (rc != 0) {
		backend_free(r, be);
		return rc;
	}
	backend_init_workers(be, r->n_workers);
	backend_buckets_add(r, be);
	r->n_backends++;
	*ret_be = be;
	return 0;
}

/* --- prepare ------------------------------------------------------------------------------------- */

static int prepare_servers(struct lb_registry *r, struct lb_holds *h, struct lb_backend *be,
			   const struct conf_proxy *px, struct err *err)
{
	struct str be_name = str_from_cstr(be->name);
	struct list *l;

	be->next_servers =
		mem_alloc((px->n_servers ? px->n_servers : 1) * sizeof(be->next_servers[0]));
	if (!be->next_servers)
		return err_set(err, -ENOMEM, "out of memory");
	be->n_next_servers = 0;
	list_for_each(l, &px->servers) {
		const struct conf_server *cs = list_entry(l, struct conf_server, link);
		struct str name = str_from_cstr(cs->name);
		uint64_t hash = server_hash(be_name, name);
		struct server *s = server_find(r, be_name, name, hash);
		int rc;

		BUG_ON(be->n_next_servers >= px->n_servers);
		/* One that was added leaves with this configuration. */
		if (s && s->own)
			s = NULL;
		if (s && s->is_new)
			return err_set(err, -EEXIST, "%s: there are two servers named %s", be->name,
				       cs->name);
		if (!s) {
			rc = server_new(r, be, cs, hash, &s, err);
			if (rc != 0)
				return rc;
			server_buckets_add(r, s);
			s->is_named = true;
			r->n_servers++;
		}
		be->next_servers[be->n_next_servers++] = s;
		h->servers[h->n_servers++] = s;
	}
	return 0;
}

static int prepare_backend(struct lb_registry *r, struct lb_holds *h, const struct conf_proxy *px,
			   struct err *err)
{
	struct str name = str_from_cstr(px->name);
	uint64_t hash = backend_hash(name, px->caps);
	struct lb_backend *be = backend_find(r, name, hash);
	int rc;

	if (be && be->next_servers)
		return err_set(err, -EEXIST, "%s: there are two sections of that name", px->name);
	rc = be ? backend_take_rows(r, be, px) : backend_new(r, px, hash, &be);
	if (rc == -ENOSPC)
		return err_set(err, rc, "%s: no statistics row left", px->name);
	if (rc != 0)
		return err_set(err, rc, "out of memory");
	BUG_ON(px->index >= h->n_backends || h->backends[px->index]);
	h->backends[px->index] = be;
	return prepare_servers(r, h, be, px, err);
}

static int holds_new(const struct conf *c, struct arena *arena, struct lb_holds **ret_holds)
{
	size_t n_servers = 0;
	struct lb_holds *h;
	struct list *l;

	list_for_each(l, &c->proxies)
		n_servers += list_entry(l, struct conf_proxy, link)->n_servers;
	h = arena_zalloc(arena, sizeof(*h) + c->n_proxies * sizeof(h->backends[0]));
	if (!h)
		return -ENOMEM;
	h->n_backends = c->n_proxies;
	h->servers = arena_zalloc(arena, n_servers * sizeof(h->servers[0]));
	if (!h->servers)
		return -ENOMEM;
	*ret_holds = h;
	return 0;
}

int lb_registry_prepare(struct lb_registry *r, const struct conf *c, struct arena *arena,
			struct lb_backend ***ret_backends, struct err *err)
{
	size_t n_servers = r->n_servers;
	struct lb_holds *h;
	struct list *l;
	int rc = holds_new(c, arena, &h);

	if (rc != 0)
		return err_set(err, rc, "out of memory");
	list_for_each(l, &c->proxies)
		n_servers += list_entry(l, struct conf_proxy, link)->n_servers;
	rc = server_buckets_grow(r, n_servers);
	if (rc == 0)
		rc = backend_buckets_grow(r, r->n_backends + c->n_proxies);
	if (rc != 0)
		return err_set(err, rc, "out of memory");
	list_for_each(l, &c->proxies) {
		rc = prepare_backend(r, h, list_entry(l, struct conf_proxy, link), err);
		if (rc != 0) {
			lb_registry_abort(r, c, h->backends);
			return rc;
		}
	}
	*ret_backends = h->backends;
	return 0;
}

void lb_registry_abort(struct lb_registry *r, const struct conf *c, struct lb_backend **backends)
{
	struct lb_holds *h = holds_of(backends);

	for (unsigned i = 0; i < h->n_servers; i++) {
		struct server *s = h->servers[i];

		if (!s->is_new)
			continue;
		registry_unname_server(r, s);
		server_free(r, s);
	}
	for (unsigned i = 0; i < h->n_backends; i++) {
		struct lb_backend *be = h->backends[i];

		if (!be)
			continue;
		mem_free(be->next_servers);
		be->next_servers = NULL;
		if (!be->is_new)
			continue;
		backend_buckets_del(r, be);
		r->n_backends--;
		backend_free(r, be);
	}
}

/* --- commit -------------------------------------------------------------------------------------- */

static void commit_backend(struct lb_registry *r, struct lb_backend *be,
			   const struct conf_proxy *px)
{
	struct server **old = be->servers;
	struct list *l = px->servers.next;

	mem_free(be->cookie_key);
	be->cookie_key = NULL;
	be->is_cookie_dynamic = px->cookie.dynamic;
	/* Who was here and is not named again serves what it has and gets nothing new. */
	for (unsigned i = 0; i < be->n_servers; i++) {
		atomic_store(&old[i]->is_removed, true);
		old[i]->conf = NULL;
		if (old[i]->own)
			added_retire(r, old[i]);
	}
	for (unsigned i = 0; i < be->n_next_servers; i++, l = l->next) {
		struct server *s = be->next_servers[i];

		s->refs++;
		if (s->is_new)
			list_push_back(&r->servers, &s->link);
		s->is_new = false;
		server_apply_conf(s, list_entry(l, struct conf_server, link));
	}
	be->servers = be->next_servers;
	be->n_servers = be->n_next_servers;
	be->next_servers = NULL;
	mem_free(old);
	be->conf = px;
	be->refs++;
	if (be->is_new)
		list_push_back(&r->backends, &be->link);
	be->is_new = false;
	atomic_store(&be->fullconn, px->fullconn);
	/* What the runtime API said stays until the line changes; what it shut is open again. */
	if (be->fe_applied_maxconn != px->maxconn)
		atomic_store(&be->fe_maxconn, px->maxconn);
	be->fe_applied_maxconn = px->maxconn;
	rate_gate_apply(&be->fe_sess_gate, px->rate_limit_sessions);
	be->is_fe_shut = false;
	atomic_store(&be->may_redispatch, (px->options & CONF_OPT(REDISPATCH)) != 0);
	lb_changed(r, be);
	/* Limits and states may have changed: everybody who waits looks again. */
	for (unsigned i = 0; i < be->n_servers; i++)
		lb_wake_waiters(be, be->servers[i]);
}

/* It is not in the newest configuration. */
static void backend_left(struct lb_registry *r, struct lb_backend *be)
{
	unsigned n = 0;

	for (unsigned i = 0; i < be->n_servers; i++) {
		struct server *s = be->servers[i];

		s->conf = NULL;
		atomic_store(&s->is_removed, true);
		if (s->own)
			added_retire(r, s);
		else
			be->servers[n++] = s;
	}
	be->n_servers = n;
}

void lb_registry_commit(struct lb_registry *r, const struct conf *c, struct lb_backend **backends)
{
	struct list *l;

	/* A backend that is gone must not point into a configuration that will be freed. */
	list_for_each(l, &r->backends)
		list_entry(l, struct lb_backend, link)->conf = NULL;
	list_for_each(l, &c->proxies) {
		struct conf_proxy *px = list_entry(l, struct conf_proxy, link);

		commit_backend(r, backends[px->index], px);
	}
	list_for_each(l, &r->backends) {
		struct lb_backend *be = list_entry(l, struct lb_backend, link);

		if (!be->conf)
			backend_left(r, be);
	}
}

/* --- release ------------------------------------------------------------------------------------- */

static void bury_backend(void *arg)
{
	struct lb_backend *be = arg;

	backend_free(be->registry, be);
}

static void after_quiescence(struct lb_registry *r, void (*call)(void *arg), void *arg)
{
	if (r->after_quiescence)
		r->after_quiescence(r, call, arg);
	else
		call(arg);
}

static void release_backend(struct lb_registry *r, struct lb_backend *be)
{
	BUG_ON(!be->refs);
	if (--be->refs)
		return;
	backend_buckets_del(r, be);
	r->n_backends--;
	list_del(&be->link);
	be->n_servers = 0;
	after_quiescence(r, bury_backend, be);
}

static void bury_server(void *arg)
{
	struct server *s = arg;
	struct lb_backend *be = s->be;
	bool was_added = s->own;

	server_free(be->registry, s);
	if (was_added) {
		be->n_added--;
		release_backend(be->registry, be);
	}
}

void lb_reap(struct lb_registry *r)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &r->zombies) {
		struct server *s = list_entry(l, struct server, link);

		if (s->be->is_stale && lb_has_server(s->be, s))
			continue;
		list_del(&s->link);
		/* Its idle connections are closed by their workers, before they pass an iteration. */
		lb_wake_all(s->be, s);
		after_quiescence(r, bury_server, s);
	}
}

uint64_t registry_server_hash(const struct lb_backend *be, struct str name)
{
	return server_hash(str_from_cstr(be->name), name);
}

int registry_name_server(struct lb_registry *r, struct server *s)
{
	int rc = server_buckets_grow(r, r->n_servers + 1u);

	if (rc != 0)
		return rc;
	server_buckets_add(r, s);
	s->is_named = true;
	r->n_servers++;
	return 0;
}

void registry_unname_server(struct lb_registry *r, struct server *s)
{
	if (!s->is_named)
		return;
	server_buckets_del(r, s);
	s->is_named = false;
	r->n_servers--;
}

void registry_release_server(struct lb_registry *r, struct server *s)
{
	BUG_ON(!s->refs);
	if (--s->refs)
		return;
	registry_unname_server(r, s);
	list_del(&s->link);
	atomic_store(&s->is_removed, true);
	list_push_back(&r->zombies, &s->link);
}

void lb_registry_release(struct lb_registry *r, struct lb_backend **backends, unsigned n)
{
	struct lb_holds *h = holds_of(backends);

	BUG_ON(n != h->n_backends);
	for (unsigned i = 0; i < h->n_servers; i++)
		registry_release_server(r, h->servers[i]);
	for (unsigned i = 0; i < h->n_backends; i++) {
		struct lb_backend *be = h->backends[i];

		/* A table that holds dead servers has to go first, unless nobody will look at it again. */
		if (be->is_stale && (be->refs == 1 || lb_rebuild(r, be) == 0))
			be->is_stale = false;
	}
	lb_reap(r);
	for (unsigned i = 0; i < h->n_backends; i++)
		release_backend(r, h->backends[i]);
}

/* --- beginning and end --------------------------------------------------------------------------- */

void lb_registry_init(struct lb_registry *r, unsigned n_workers, struct stats_area *services,
		      struct stats_area *backends)
{
	BUG_ON(!n_workers || n_workers > LB_MAX_WORKERS);
	*r = (struct lb_registry){
		.services_area = services,
		.backends_area = backends,
		.n_workers = n_workers,
	};
	list_init(&r->backends);
	list_init(&r->servers);
	list_init(&r->removed);
	list_init(&r->zombies);
}

void lb_registry_fini(struct lb_registry *r)
{
	struct list *l;

	while ((l = list_pop_front(&r->removed)))
		server_free(r, list_entry(l, struct server, link));
	while ((l = list_pop_front(&r->zombies)))
		server_free(r, list_entry(l, struct server, link));
	while ((l = list_pop_front(&r->servers)))
		server_free(r, list_entry(l, struct server, link));
	while ((l = list_pop_front(&r->backends)))
		backend_free(r, list_entry(l, struct lb_backend, link));
	mem_free(r->server_buckets);
	mem_free(r->backend_buckets);
}
