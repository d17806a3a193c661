/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maintenance and drain: what an operator, or a reload, changed is said, and passed on to the servers that
 * track this one. Checks rest in maintenance; a server that leaves it is up until a check says
 * otherwise, as with HAProxy. Control thread.
 */
#include "ctl/health_priv.h"

/* Was it in use with these bits? The state itself has not changed meanwhile. */
static bool was_eligible_with(const struct server *s, unsigned admin)
{
	enum server_op op = atomic_load(&s->op);

	return (op == SERVER_RUNNING || op == SERVER_STARTING) &&
	       !(admin & (SERVER_MAINT_MASK | SERVER_DRAIN_MASK)) && atomic_load(&s->weight);
}

static void enter_maint(struct watch *w)
{
	bool was_down = atomic_load(&w->srv->op) == SERVER_STOPPED;

	watch_stop(w);
	list_del(&w->pending);
	health_log_admin(w, was_down ? ADMIN_WAS_DOWN : ADMIN_GOING_DOWN);
	if (!was_down && watch_conf(w)->on_marked_down_shutdown)
		health_end_sessions(w->h, w->srv, 'D');
}

static void leave_maint(struct watch *w, unsigned was)
{
	struct server *s = w->srv;
	enum server_op leader = w->tracked ? atomic_load(&w->tracked->srv->op) : SERVER_RUNNING;

	/* A tracker waits for its leader's. */
	s->check.health = server_first_health(watch_conf(w));
	if (!w->tracked && s->check.health < watch_rise(w))
		leader = SERVER_STOPPED;
	if (w->tracked)
		s->check.health = leader == SERVER_STOPPED ? 0 : watch_rise(w) + watch_fall(w) - 1;
	if (leader == SERVER_STOPPED || leader == SERVER_STOPPING)
		server_set_op(&w->h->ctl->registry, s, leader);
	else
		health_warm_up(w);
	health_log_admin(w, was & SERVER_FORCED_MAINT || !(was & SERVER_INHERITED_MAINT)
				    ? ADMIN_LEAVES_FORCED
				    : ADMIN_LEAVES);
	watch_start_now(w);
}

static void follow_maint(struct watch *w, unsigned was, unsigned now)
{
	bool was_in = was & SERVER_MAINT_MASK, is_in = now & SERVER_MAINT_MASK;

	if (is_in && !was_in)
		enter_maint(w);
	else if (was_in && !is_in)
		leave_maint(w, was);
	else if (is_in && was & SERVER_FORCED_MAINT && !(now & SERVER_FORCED_MAINT))
		health_log_admin(w, ADMIN_REMAINS);
}

static void follow_drain(struct watch *w, unsigned was, unsigned now)
{
	bool was_in = was & SERVER_DRAIN_MASK, is_in = now & SERVER_DRAIN_MASK;

	/* In maintenance nobody can tell the difference; leaving it says READY or DRAIN. */
	if ((was | now) & SERVER_MAINT_MASK || was_in == is_in)
		return;
	if (is_in)
		health_log_admin(w, ADMIN_DRAINS);
	else
		health_log_admin(w, was & SERVER_FORCED_DRAIN ? ADMIN_LEAVES_FORCED_DRAIN
							      : ADMIN_LEAVES_DRAIN);
}

/* `admin`: of those that are tracked. */
static void pass_on(unsigned admin, struct watch *to)
{
	unsigned set = 0, clear = 0;

	*(admin & SERVER_MAINT_MASK ? &set : &clear) |= SERVER_INHERITED_MAINT;
	*(admin & SERVER_DRAIN_MASK ? &set : &clear) |= SERVER_INHERITED_DRAIN;
	server_set_admin(&to->h->ctl->registry, to->srv, set, clear);
}

void health_follow_admin(struct watch *w)
{
	struct server *s = w->srv;
	unsigned was = w->admin, now = atomic_load(&s->admin);
	struct health_backend *hb = w->hb;
	struct list *l;

	if (was == now)
		return;
	w->admin = (uint8_t)now;
	hb->n_active = atomic_load(&hb->be->n_active);
	hb->n_backup = atomic_load(&hb->be->n_backup_active);
	follow_maint(w, was, now);
	follow_drain(w, was, now);
	if (was_eligible_with(s, was) && !server_is_eligible(s) && !hb->n_active && !hb->n_backup)
		health_log_empty(hb);
	/* A chain of trackers has an end: the configuration refuses circles. */
	list_for_each(l, &w->trackers) {
		struct watch *t = list_entry(l, struct watch, track_link);

		pass_on(now, t);
		health_follow_admin(t);
		ctl_server_changed(w->h->ctl, t->srv);
	}
}

void health_admin_changed(struct health *h, struct server *s)
{
	struct watch *w = health_find(h, s);

	if (!w)
		return;
	/* Results of this iteration came before the command. */
	health_flush(h);
	health_follow_admin(w);
}

/* Without a server to track, what came from one is over. */
static void inherit_nothing(struct watch *w)
{
	unsigned inherited = SERVER_INHERITED_MAINT | SERVER_INHERITED_DRAIN;

	if (!(atomic_load(&w->srv->admin) & inherited))
		return;
	server_set_admin(&w->h->ctl->registry, w->srv, 0, inherited);
	w->admin = (uint8_t)(w->admin & ~inherited);
}

void health_inherit(struct watch *w)
{
	struct server *s = w->srv;
	const struct watch *root = w;
	enum server_op op, now = atomic_load(&s->op);
	unsigned admin = 0;

	if (!w->tracked)
		return inherit_nothing(w);
	for (; root->tracked; root = root->tracked)
		admin |= atomic_load(&root->tracked->srv->admin);
	op = atomic_load(&root->srv->op);
	if (op == SERVER_STARTING)
		op = SERVER_RUNNING;
	if (now != op && !(op == SERVER_RUNNING && now == SERVER_STARTING))
		server_set_op(&w->h->ctl->registry, s, op);
	pass_on(admin, w);
	w->admin = atomic_load(&s->admin);
	/* Shown as a checked server, because in effect it is one. */
	s->check.is_enabled = root->srv->check.is_enabled;
	s->check.health = op == SERVER_STOPPED ? 0 : watch_rise(w) + watch_fall(w) - 1;
}
