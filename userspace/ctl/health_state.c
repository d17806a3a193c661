/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What check results mean: health counters, states, weights in slow start. Changes of one loop iteration are
 * collected and applied together, so that a rack of servers that dies at once costs one rebuild of its
 * backend's table, not one per server. Control thread.
 */
#include <errno.h>

#include "base/mem.h"
#include "ctl/health_priv.h"

#define WARM_STEPS 16 /* a slow start begins at one of so many parts of the weight */

/* --- results ---------------------------------------------------------------------------------------- */

static bool is_passed(enum check_status s)
{
	return s == CHECK_STATUS_L4OK || s == CHECK_STATUS_L6OK || s == CHECK_STATUS_L7OK ||
	       s == CHECK_STATUS_L7OKC;
}

/*
 * HAProxy's arithmetic: 0 .. rise-1 is down, rise .. rise+fall-1 up; crossing the border goes to the far end, so
 * `fall` failures in a row bring a server down and `rise` successes up. True when the number moved.
 */
static bool count_result(struct watch *w, bool passed)
{
	struct server_health *c = &w->srv->check;
	uint32_t rise = watch_rise(w), top = rise + watch_fall(w) - 1;

	if (!passed) {
		if (c->health == 0)
			return false;
		c->n_failed++;
		c->health--;
		if (c->health < rise)
			c->health = 0;
		return true;
	}
	atomic_store(&w->srv->observed_errors, 0);
	if (c->health >= top)
		return false;
	c->health++;
	if (c->health >= rise)
		c->health = top;
	return true;
}

void health_take_result(struct watch *w, const struct check_result *res, uint64_t duration_ns)
{
	struct server_health *c = &w->srv->check;
	bool passed = is_passed(res->status), is_conditional = res->status == CHECK_STATUS_L7OKC;
	bool is_news = c->status != res->status;

	c->status = (uint8_t)res->status;
	c->code = res->code;
	c->duration_ms = (uint32_t)(duration_ns / 1000000u);
	memcpy(c->desc, res->desc, sizeof(c->desc));
	is_news |= count_result(w, passed);
	if (is_news && w->hb->px->options & CONF_OPT(LOG_HEALTH_CHECKS))
		health_log_check(w, is_conditional, passed);
	if (!passed && c->health == 0)
		health_want(w, SERVER_STOPPED, CAUSE_CHECK);
	else if (passed && c->health >= watch_rise(w) && !health_agent_holds(w))
		health_want(w, is_conditional ? SERVER_STOPPING : SERVER_RUNNING, CAUSE_CHECK);
}

/* --- changes ---------------------------------------------------------------------------------------- */

static bool is_up(enum server_op op)
{
	return op == SERVER_RUNNING || op == SERVER_STARTING;
}

void health_want(struct watch *w, enum server_op op, enum health_cause cause)
{
	bool is_pending = !list_is_empty(&w->pending);
	enum server_op now = is_pending ? w->want : atomic_load(&w->srv->op);

	if (watch_is_in_maint(w) || now == op || (is_up(now) && is_up(op)))
		return;
	w->want = (uint8_t)op;
	w->cause = (uint8_t)cause;
	if (is_pending)
		return;
	list_push_back(&w->h->pending, &w->pending);
	loop_defer(w->h->ctl->loop, &w->h->flush);
}

/* Algorithms that cannot move a server's share without moving everybody's keys start it in full. */
static bool has_dynamic_weights(const struct conf_proxy *px)
{
	switch (px->balance.algo) {
	case BALANCE_ROUNDROBIN:
	case BALANCE_LEASTCONN:
	case BALANCE_RANDOM:
	case BALANCE_PEAK_EWMA:
		return true;
	case BALANCE_STATIC_RR:
	case BALANCE_FIRST:
	case BALANCE_MAGLEV:
		return false;
	default:
		return px->balance.hash_type == HASH_CONSISTENT;
	}
}

static void watch_set_warm_weight(struct watch *w, uint64_t elapsed_ns, uint64_t of_ns)
{
	uint64_t full = (uint64_t)atomic_load(&w->srv->uweight) * WARM_STEPS;
	uint64_t parts = of_ns ? WARM_STEPS * elapsed_ns / of_ns + 1 : WARM_STEPS;

	if (parts > WARM_STEPS)
		parts = WARM_STEPS;
	server_set_effective_weight(&w->h->ctl->registry, w->srv,
				    (uint32_t)(full * parts / WARM_STEPS));
}

void health_warm_up(struct watch *w)
{
	struct health *h = w->h;
	uint64_t length = watch_conf(w)->slowstart;

	if (!length || !has_dynamic_weights(w->hb->px)) {
		server_set_op(&h->ctl->registry, w->srv, SERVER_RUNNING);
		return;
	}
	w->warm_since_ns = loop_now(h->ctl->loop);
	w->srv->slowstart_until_ns = w->warm_since_ns + length;
	if (list_is_empty(&w->warming))
		list_push_back(&h->warming, &w->warming);
	/* The small weight first: nobody may see the whole server for a moment. */
	watch_set_warm_weight(w, 0, length);
	server_set_op(&h->ctl->registry, w->srv, SERVER_STARTING);
}

static void watch_end_warming(struct watch *w)
{
	list_del(&w->warming);
	w->srv->slowstart_until_ns = 0;
	watch_set_warm_weight(w, 0, 0);
}

void health_end_sessions(struct health *h, struct server *s, char code)
{
	for (unsigned i = 0; h->ctl->workers && i < h->ctl->n_workers; i++)
		if (h->ctl->workers[i])
			worker_shutdown_server(h->ctl->workers[i], s, code);
}

static void end_backup_sessions(struct health *h, const struct health_backend *hb)
{
	for (unsigned i = 0; i < hb->be->n_servers; i++)
		if (hb->be->servers[i]->is_backup)
			health_end_sessions(h, hb->be->servers[i], 'U');
}

/* Counts of the backend as they will be when the batch ends: lines of this batch tell them. */
static void count_backend(struct health_backend *hb, struct list *touched, struct server *s)
{
	if (list_is_empty(&hb->touched)) {
		hb->n_active = atomic_load(&hb->be->n_active);
		hb->n_backup = atomic_load(&hb->be->n_backup_active);
		list_push_back(touched, &hb->touched);
	}
	hb->last_changed = s;
}

static void watch_apply(struct watch *w, struct list *touched)
{
	struct server *s = w->srv;
	struct health_backend *hb = w->hb;
	enum server_op was = atomic_load(&s->op);
	uint32_t n_before, *count = s->is_backup ? &hb->n_backup : &hb->n_active;
	const struct conf_server *cs = watch_conf(w);
	bool was_eligible;
	struct list *l;

	if (!cs || w->want == was || (is_up(w->want) && is_up(was)) || watch_is_in_maint(w))
		return;
	count_backend(hb, touched, s);
	n_before = hb->n_active + hb->n_backup;
	was_eligible = server_is_eligible(s);
	if (!list_is_empty(&w->warming))
		watch_end_warming(w);
	if (w->tracked) /* has no checks of its own: full or empty, for people */
		s->check.health = w->want == SERVER_STOPPED ? 0 : watch_rise(w) + watch_fall(w) - 1;
	if (w->want == SERVER_RUNNING)
		health_warm_up(w);
	else
		server_set_op(&w->h->ctl->registry, s, (enum server_op)w->want);
	if (was_eligible && !server_is_eligible(s) && *count)
		(*count)--;
	else if (!was_eligible && server_is_eligible(s))
		(*count)++;
	health_log_op(w, was, (enum health_cause)w->cause);
	if (n_before && !hb->n_active && !hb->n_backup)
		health_log_empty(hb);
	if (w->want == SERVER_STOPPED && cs->on_marked_down_shutdown)
		health_end_sessions(w->h, s, 'D');
	if (w->want == SERVER_RUNNING && cs->on_marked_up_shutdown_backup && !s->is_backup &&
	    server_is_eligible(s))
		end_backup_sessions(w->h, hb);
	list_for_each(l, &w->trackers)
		health_want(list_entry(l, struct watch, track_link), (enum server_op)w->want,
			    CAUSE_TRACK);
}

void health_flush(struct health *h)
{
	struct list touched = LIST_INIT(touched), *l;

	if (list_is_empty(&h->pending))
		return;
	lb_batch_begin(&h->ctl->registry);
	/* Trackers join behind while we walk. */
	while ((l = list_pop_front(&h->pending)))
		watch_apply(list_entry(l, struct watch, pending), &touched);
	lb_batch_end(&h->ctl->registry);
	loop_undefer(&h->flush);
	while ((l = list_pop_front(&touched)))
		ctl_server_changed(h->ctl,
				   list_entry(l, struct health_backend, touched)->last_changed);
}

/* --- the runtime API ---------------------------------------------------------------------------------- */

static void force(struct health *h, struct server *s, enum server_op op)
{
	struct watch *w = health_find(h, s);

	if (!w || w->tracked)
		return;
	s->check.health = op == SERVER_STOPPED ? 0 : watch_rise(w) + watch_fall(w) - 1;
	health_want(w, op, CAUSE_CLI);
	health_flush(h);
}

void health_force(struct health *h, struct server *s, bool up)
{
	force(h, s, up ? SERVER_RUNNING : SERVER_STOPPED);
}

void health_force_stopping(struct health *h, struct server *s)
{
	force(h, s, SERVER_STOPPING);
}

void health_set_enabled(struct health *h, struct server *s, bool on)
{
	struct watch *w = health_find(h, s);

	if (!w || s->check.is_enabled == on)
		return;
	s->check.is_enabled = on;
	if (on)
		watch_start_now(w);
	else
		watch_stop(w);
}

/* --- slow start --------------------------------------------------------------------------------------- */

static void watch_warm(struct watch *w)
{
	struct server *s = w->srv;
	uint64_t now = loop_now(w->h->ctl->loop), changed = s->check.last_change_s;

	if (atomic_load(&s->op) == SERVER_STARTING && now < s->slowstart_until_ns) {
		watch_set_warm_weight(w, now - w->warm_since_ns,
				      s->slowstart_until_ns - w->warm_since_ns);
		return;
	}
	watch_end_warming(w);
	if (atomic_load(&s->op) != SERVER_STARTING)
		return;
	server_set_op(&w->h->ctl->registry, s, SERVER_RUNNING);
	/* It has been up all the time. */
	s->check.last_change_s = changed;
}

/* --- observe ------------------------------------------------------------------------------------------ */

/* What workers saw. They start over with every good answer, so a count is one of errors in a row. */
static void watch_observe(struct watch *w)
{
	const struct conf_server *cs = watch_conf(w);
	struct server_health *c = &w->srv->check;
	struct check_result res = { .code = 0 };
	uint32_t rise = watch_rise(w), n;

	n = atomic_load(&w->srv->observed_errors);
	if (!n || n < cs->error_limit)
		return;
	atomic_store(&w->srv->observed_errors, 0);
	if (!w->prog || !c->is_enabled || watch_is_in_maint(w) ||
	    atomic_load(&w->srv->op) == SERVER_STOPPED)
		return;
	if (w->fastinter)
		watch_hurry(w, w->fastinter);
	if (cs->on_error == ON_ERROR_FASTINTER)
		return;
	if (cs->on_error == ON_ERROR_SUDDEN_DEATH && c->health > rise)
		c->health = rise + 1; /* the next failure but one is the last */
	if (cs->on_error == ON_ERROR_MARK_DOWN)
		c->health = rise;
	check_desc(&res, CHECK_STATUS_HANA, "Detected %u consecutive errors", n);
	health_take_result(w, &res, (uint64_t)c->duration_ms * 1000000u);
}

void health_observe(struct health *h)
{
	struct list *l;

	list_for_each(l, &h->observers)
		watch_observe(list_entry(l, struct watch, observe_link));
	health_flush(h);
}

void health_on_observed(struct worker *w)
{
	struct ctl *ctl = worker_owner(w);

	if (ctl->health)
		health_observe(ctl->health);
}

/* --- once a second ------------------------------------------------------------------------------------ */

void health_tick(struct health *h)
{
	struct list *l, *tmp;

	if (h->wants_configure && health_configure(h, h->ctl->current) == 0)
		log_msg(LOG_LVL_NOTICE, "health checks go on");
	if (list_is_empty(&h->warming))
		return;
	lb_batch_begin(&h->ctl->registry);
	list_for_each_safe(l, tmp, &h->warming)
		watch_warm(list_entry(l, struct watch, warming));
	lb_batch_end(&h->ctl->registry);
}
