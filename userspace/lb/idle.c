/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Idle connections to servers, one list per server and worker, most recently used first: what is used
 * often stays warm, the rest grows old at the tail. Worker that owns the list; no memory is
 * allocated; a pooled connection belongs to the pool until idle_get() or idle_forget().
 */
#include "lb/lb_priv.h"

static void idle_count(struct server_worker *w, int delta)
{
	w->n_idle += (uint32_t)delta;
	if (w->ctr)
		STATS_ADD(&w->ctr->idle_conns, delta);
}

static struct conn *idle_unlink(struct server_worker *w, struct list *l)
{
	list_del(l);
	idle_count(w, -1);
	return list_entry(l, struct conn, link);
}

static void idle_close_all(struct server_worker *w)
{
	while (!list_is_empty(&w->idle))
		conn_close(idle_unlink(w, w->idle.prev), false);
}

/* The server moved: what is connected to its old address goes. */
static void idle_check_generation(struct server *s, struct server_worker *w)
{
	uint32_t now = atomic_load_explicit(&s->addr_generation, memory_order_acquire);

	if (likely(now == w->idle_generation))
		return;
	idle_close_all(w);
	w->idle_generation = now;
}

/* This worker's share of pool-max-conn. */
static uint32_t idle_limit(const struct server *s, const struct conf_server *cs)
{
	unsigned n = s->be->registry->n_workers;

	return cs->pool_max_conn == UINT32_MAX ? UINT32_MAX : (cs->pool_max_conn + n - 1) / n;
}

static bool idle_is_worn_out(const struct conf_server *cs, const struct conn *c)
{
	/* max-reuse n: n requests after the first. 0 and UINT32_MAX: not set. */
	return cs->max_reuse && cs->max_reuse != UINT32_MAX && c->uses > cs->max_reuse;
}

void idle_put(struct server *s, const struct conf_server *cs, unsigned worker, struct conn *c)
{
	struct server_worker *w = &s->w[worker];

	idle_check_generation(s, w);
	/*
	 * since_ns is when it was opened or last idle, never later than the truth: a connection from
	 * before a change of address cannot slip through.
	 */
	if (c->state != CONN_OPEN || c->is_broken || c->peer_closed || !server_is_usable(s) ||
	    atomic_load_explicit(&s->is_removed, memory_order_relaxed) ||
	    c->since_ns < atomic_load_explicit(&s->addr_changed_ns, memory_order_relaxed) ||
	    w->n_idle >= idle_limit(s, cs) || idle_is_worn_out(cs, c)) {
		conn_close(c, false);
		return;
	}
	c->since_ns = loop_now(c->nw->loop);
	c->doing = "idle";
	conn_idle(c);
	list_push_front(&w->idle, &c->link);
	idle_count(w, 1);
}

struct conn *idle_get(struct server *s, const struct conf_server *cs, unsigned worker)
{
	struct server_worker *w = &s->w[worker];

	idle_check_generation(s, w);
	while (!list_is_empty(&w->idle)) {
		struct conn *c = idle_unlink(w, w->idle.next);

		if (likely(!idle_is_worn_out(cs, c) && conn_is_reusable(c)))
			return c;
		conn_close(c, false);
	}
	return NULL;
}

void idle_forget(struct server *s, unsigned worker, struct conn *c)
{
	if (c->link.next && !list_is_empty(&c->link))
		idle_unlink(&s->w[worker], &c->link);
}

void idle_purge(struct server *s, unsigned worker, uint64_t older_than_ns, bool all)
{
	struct server_worker *w = &s->w[worker];
	unsigned n_old = 0;
	struct list *l;

	if (all) {
		idle_close_all(w);
		return;
	}
	idle_check_generation(s, w);
	/* Oldest at the tail: counting stops at the first that is young enough. */
	for (l = w->idle.prev; l != &w->idle; l = l->prev) {
		struct conn *c = list_entry(l, struct conn, link);
		uint64_t now = loop_now(c->nw->loop);

		if (c->since_ns > now || now - c->since_ns < older_than_ns)
			break;
		n_old++;
	}
	for (n_old = (n_old + 1) / 2; n_old; n_old--)
		conn_close(idle_unlink(w, w->idle.prev), false);
}
