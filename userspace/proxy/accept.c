/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Listeners of a worker and the limits on client connections. At a limit nothing is refused: the
 * listener pauses and connections wait in the kernel's backlog until one of ours, here or on another
 * worker, has ended. Two workers that accept at the same moment may exceed a limit by one each.
 */
#include <errno.h>

#include "proxy/worker_priv.h"

static bool limit_reached(const struct worker_listener *wl)
{
	const struct proxy_shared *sh = wl->w->o.shared;
	const struct conf_proxy *px = wl->pb->conf->proxy;
	const struct lb_backend *be;
	uint32_t max = atomic_load(&sh->maxconn), own = wl->pb->conf->maxconn;

	if (own && atomic_load(&wl->socket->n_conns) >= own)
		return true;

	if (max && atomic_load(&sh->cur_conns) >= max)
		return true;
	max = wl->pb->conf->is_ssl ? atomic_load(&sh->max_tls) : 0;
	if (max && atomic_load(&sh->cur_tls) >= max)
		return true;
	be = wl->w->snap->backends[px->index];
	max = atomic_load(&be->fe_maxconn);
	return max && atomic_load(&be->fe_cur) >= max;
}

/* Is a limit per second used up? *wait_ns: until it may not be. */
static bool rate_reached(const struct worker_listener *wl, uint64_t *wait_ns)
{
	const struct proxy_shared *sh = wl->w->o.shared;
	const struct conf_bind *b = wl->pb->conf;
	const struct rate_gate *gates[] = {
		&sh->rates[PROXY_RATE_CONNS],
		&sh->rates[PROXY_RATE_SESSIONS],
		&wl->w->snap->backends[b->proxy->index]->fe_sess_gate,
		b->is_ssl ? &sh->rates[PROXY_RATE_TLS] : NULL,
	};

	for (unsigned i = 0; i < ARRAY_SIZE(gates); i++)
		if (gates[i] && !rate_gate_is_open(gates[i], loop_now(wl->w->loop), wait_ns))
			return true;
	return false;
}

/* Nobody will say when: look again then. */
static void wait_for_rate(struct worker_listener *wl, uint64_t wait_ns)
{
	struct worker *w = wl->w;

	if (!wl->is_limit_paused) {
		wl->is_limit_paused = true;
		atomic_fetch_add(&w->o.shared->n_paused, 1);
		ctr_add(&w->ctr->accept_paused, 1);
	}
	atomic_store(&w->has_limit_paused, true); /* `set rate-limit` reaches it, too */
	if (!timer_is_running(&w->rate_timer))
		timer_start(w->loop, &w->rate_timer, wait_ns);
}

void worker_rate_timer(struct timer *t)
{
	worker_resume_listeners(container_of(t, struct worker, rate_timer));
}

static bool may_accept(struct listener *l)
{
	struct worker_listener *wl = l->owner;
	struct proxy_shared *sh = wl->w->o.shared;
	uint64_t wait_ns;

	if (unlikely(rate_reached(wl, &wait_ns))) {
		wait_for_rate(wl, wait_ns);
		return false;
	}
	if (likely(!limit_reached(wl)))
		return true;
	/*
	 * Announce first, look again after: a connection that ends in between either sees the announcement
	 * or is seen here.
	 */
	if (!wl->is_limit_paused) {
		wl->is_limit_paused = true;
		atomic_store(&wl->w->has_limit_paused, true);
		atomic_fetch_add(&sh->n_paused, 1);
		ctr_add(&wl->w->ctr->accept_paused, 1);
	}
	return !limit_reached(wl);
}

static void on_accept(struct listener *l, struct conn *c)
{
	struct worker_listener *wl = l->owner;

	client_accepted(wl->w, wl->pb, c);
}

void worker_resume_listeners(struct worker *w)
{
	struct list *pos;

	atomic_store(&w->has_limit_paused, false);
	list_for_each(pos, &w->listeners) {
		struct worker_listener *wl = list_entry(pos, struct worker_listener, link);

		if (!wl->is_limit_paused)
			continue;
		wl->is_limit_paused = false;
		atomic_fetch_sub(&w->o.shared->n_paused, 1);
		if (!wl->is_admin_paused)
			listener_resume(&wl->l);
	}
}

/* Something that listeners may have waited for is over. */
static void resume_all(struct worker *w)
{
	struct proxy_shared *sh = w->o.shared;

	if (likely(!atomic_load(&sh->n_paused)))
		return;
	for (unsigned i = 0; i < w->o.n_workers && i < LB_MAX_WORKERS; i++) {
		struct worker *other = atomic_load(&sh->workers[i]);

		if (!other || !atomic_load(&other->has_limit_paused))
			continue;
		/* Also to ourselves by mail: the listener may be on the stack. */
		if (!atomic_exchange(&other->resume_sent, true))
			mailbox_send(&other->mailbox, &other->resume_mail);
	}
}

void worker_conn_ended(struct worker *w, const struct client *cl)
{
	atomic_fetch_sub(&w->o.shared->cur_conns, 1);
	atomic_fetch_sub(&cl->fe_rt->fe_cur, 1);
	atomic_fetch_sub(&cl->pb->socket->n_conns, 1);
	resume_all(w);
}

void worker_tls_ended(struct net_worker *nw)
{
	resume_all(container_of(nw, struct worker, net));
}

static void listener_end(struct worker_listener *wl)
{
	if (wl->is_limit_paused)
		atomic_fetch_sub(&wl->w->o.shared->n_paused, 1);
	listener_stop(&wl->l);
	list_del(&wl->link);
	mem_free(wl);
}

void worker_unlisten(struct worker *w)
{
	while (!list_is_empty(&w->listeners))
		listener_end(list_entry(w->listeners.next, struct worker_listener, link));
}

static const struct proxy_bind *find_bind(const struct worker *w, const struct listen_socket *ls)
{
	for (unsigned i = 0; i < w->snap->n_binds; i++)
		if (w->snap->binds[i].socket == ls)
			return &w->snap->binds[i];
	return NULL;
}

static struct worker_listener *find_listener(const struct worker *w, const struct listen_socket *ls)
{
	struct list *pos;

	list_for_each(pos, &w->listeners) {
		struct worker_listener *wl = list_entry(pos, struct worker_listener, link);

		if (wl->socket == ls)
			return wl;
	}
	return NULL;
}

static void listener_follow(struct worker_listener *wl, const struct proxy_bind *pb)
{
	wl->pb = pb;
	wl->l.bind = pb->conf;
	wl->l.tls = &pb->tls;
	wl->l.budget = wl->w->snap->conf->global.maxaccept;
}

static int listener_begin(struct worker *w, const struct proxy_bind *pb)
{
	struct worker_listener *wl = mem_zalloc(sizeof(*wl));
	int r;

	if (!wl)
		return -ENOMEM;
	wl->w = w;
	wl->socket = pb->socket;
	wl->l.nw = &w->net;
	wl->l.owner = wl;
	wl->l.on_accept = on_accept;
	wl->l.may_accept = may_accept;
	listener_follow(wl, pb);
	r = listener_start(&wl->l, pb->socket->fds[w->o.index % pb->socket->n_fds]);
	if (r) {
		mem_free(wl);
		return r;
	}
	list_push_back(&w->listeners, &wl->link);
	return 0;
}

int worker_listen(struct worker *w)
{
	struct list *pos, *tmp;
	int first = 0;

	list_for_each_safe(pos, tmp, &w->listeners) {
		struct worker_listener *wl = list_entry(pos, struct worker_listener, link);

		if (!find_bind(w, wl->socket))
			listener_end(wl);
	}
	for (unsigned i = 0; i < w->snap->n_binds; i++) {
		const struct proxy_bind *pb = &w->snap->binds[i];
		struct worker_listener *wl = find_listener(w, pb->socket);
		int r;

		if (wl) {
			listener_follow(wl, pb);
			continue;
		}
		r = listener_begin(w, pb);
		if (r && !first)
			first = r;
	}
	/* Limits may have risen. */
	worker_resume_listeners(w);
	return first;
}

void worker_set_paused(struct worker *w, struct str frontend, bool pause)
{
	struct list *pos;

	list_for_each(pos, &w->listeners) {
		struct worker_listener *wl = list_entry(pos, struct worker_listener, link);

		if (!str_is_eq(str_from_cstr(wl->pb->conf->proxy->name), frontend))
			continue;
		wl->is_admin_paused = pause;
		if (pause)
			listener_pause(&wl->l);
		else if (!wl->is_limit_paused)
			listener_resume(&wl->l);
	}
}
