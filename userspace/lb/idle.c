/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Idle connections to servers, one list per server and worker, most recently used first: what is used
 * often stays warm, the rest grows old at the tail. A connection that was opened with something that not
 * every request wants (a name in TLS, a client's address) has a key; those have a list of their own and are
 * found through the worker's index. Worker that owns the list; no memory is allocated; a pooled connection
 * belongs to the pool until idle_get() or idle_forget().
 */
#include "lb/lb_priv.h"

static void idle_count(struct server_worker *w, int delta)
{
	w->n_idle += (uint32_t)delta;
	if (w->ctr)
		STATS_ADD(&w->ctr->idle_conns, delta);
}

/* --- the index ------------------------------------------------------------------------------------ */

/* Keys are hashes, and those of two servers differ. */
static struct conn **index_head(struct net_worker *nw, uint64_t key)
{
	return &nw->by_key[key & (NET_KEY_BUCKETS - 1)];
}

static void index_add(struct conn *c)
{
	struct conn **head = index_head(c->nw, c->pool_key);

	c->key_next = *head;
	c->key_prev = head;
	if (*head)
		(*head)->key_prev = &c->key_next;
	*head = c;
}

static void index_del(struct conn *c)
{
	*c->key_prev = c->key_next;
	if (c->key_next)
		c->key_next->key_prev = c->key_prev;
	c->key_next = NULL;
	c->key_prev = NULL;
}

static struct conn *index_find(struct net_worker *nw, uint64_t key)
{
	struct conn *c = *index_head(nw, key);

	while (c && c->pool_key != key)
		c = c->key_next;
	return c;
}

/* --- the lists -------------------------------------------------------------------------------------- */

static struct conn *idle_unlink(struct server_worker *w, struct conn *c)
{
	list_del(&c->link);
	if (c->pool_key)
		index_del(c);
	idle_count(w, -1);
	return c;
}

static void idle_close_list(struct server_worker *w, struct list *head)
{
	while (!list_is_empty(head))
		conn_close(idle_unlink(w, list_entry(head->prev, struct conn, link)), false);
}

static void idle_close_all(struct server_worker *w)
{
	idle_close_list(w, &w->idle);
	idle_close_list(w, &w->idle_keyed);
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
	if (likely(!c->pool_key)) {
		list_push_front(&w->idle, &c->link);
	} else {
		list_push_front(&w->idle_keyed, &c->link);
		index_add(c);
	}
	idle_count(w, 1);
}

static struct conn *idle_first(struct server_worker *w, uint64_t key)
{
	if (likely(!key))
		return list_is_empty(&w->idle) ? NULL : list_entry(w->idle.next, struct conn, link);
	if (list_is_empty(&w->idle_keyed))
		return NULL;
	return index_find(list_entry(w->idle_keyed.next, struct conn, link)->nw, key);
}

struct conn *idle_get(struct server *s, const struct conf_server *cs, unsigned worker, uint64_t key)
{
	struct server_worker *w = &s->w[worker];
	struct conn *c;

	idle_check_generation(s, w);
	while ((c = idle_first(w, key))) {
		idle_unlink(w, c);
		if (likely(!idle_is_worn_out(cs, c) && conn_is_reusable(c)))
			return c;
		conn_close(c, false);
	}
	return NULL;
}

void idle_forget(struct server *s, unsigned worker, struct conn *c)
{
	if (c->link.next && !list_is_empty(&c->link))
		idle_unlink(&s->w[worker], c);
}

static void idle_purge_list(struct server_worker *w, struct list *head, uint64_t older_than_ns)
{
	unsigned n_old = 0;
	struct list *l;

	/* Oldest at the tail: counting stops at the first that is young enough. */
	for (l = head->prev; l != head; l = l->prev) {
		struct conn *c = list_entry(l, struct conn, link);
		uint64_t now = loop_now(c->nw->loop);

		if (c->since_ns > now || now - c->since_ns < older_than_ns)
			break;
		n_old++;
	}
	for (n_old = (n_old + 1) / 2; n_old; n_old--)
		conn_close(idle_unlink(w, list_entry(head->prev, struct conn, link)), false);
}

void idle_purge(struct server *s, unsigned worker, uint64_t older_than_ns, bool all)
{
	struct server_worker *w = &s->w[worker];

	if (all) {
		idle_close_all(w);
		return;
	}
	idle_check_generation(s, w);
	idle_purge_list(w, &w->idle, older_than_ns);
	idle_purge_list(w, &w->idle_keyed, older_than_ns);
}
