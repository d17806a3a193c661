/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Health checks: which servers are watched, and when they are checked. Called by the start, by reloads and
 * by the runtime API, all on the control thread, whose loop runs the timers and connections.
 *
 * A reload ends the checks that are under way (they point into the old configuration) and begins them
 * anew; a server that stays keeps its counters, its health and the time of its next check.
 */
#include <errno.h>
#include <sys/random.h>

#include "base/mem.h"
#include "ctl/health_priv.h"

#define NS_PER_MS	  1000000ull
#define SHORTAGE_RETRY_NS (1000 * NS_PER_MS)

struct watch *health_find(const struct health *h, const struct server *s)
{
	return s->conf && h->n_backends ? s->watch : NULL;
}

/* --- one check ------------------------------------------------------------------------------------ */

static void watch_drop_run(struct watch *w)
{
	if (!w->run)
		return;
	check_run_cancel(w->run);
	pool_put(&w->h->runs, w->run);
	w->run = NULL;
	w->srv->check.is_running = false;
}

void watch_stop(struct watch *w)
{
	watch_drop_run(w);
	timer_stop(w->h->ctl->loop, &w->timer);
}

static bool watch_is_checkable(const struct watch *w)
{
	return w->prog && w->srv->check.is_enabled && !watch_is_in_maint(w);
}

void watch_start_now(struct watch *w)
{
	if (watch_is_checkable(w) && !w->run)
		timer_start(w->h->ctl->loop, &w->timer, 0);
}

void watch_hurry(struct watch *w, uint64_t delay_ns)
{
	struct loop *l = w->h->ctl->loop;

	if (!w->run && timer_is_running(&w->timer) && timer_left_ns(l, &w->timer) > delay_ns)
		timer_start(l, &w->timer, delay_ns);
}

/* The state decides how soon the server is looked at again. */
static uint64_t watch_interval(const struct watch *w)
{
	const struct server_health *c = &w->srv->check;
	uint64_t ns = w->fastinter;

	if (c->health == watch_rise(w) + watch_fall(w) - 1)
		ns = w->inter;
	else if (c->health == 0)
		ns = w->downinter;
	return ns ? ns : w->inter;
}

/* `spread-checks`: up to so many percent more or less, so that checks do not march in step. */
static uint64_t health_jitter(struct health *h, uint64_t ns, uint32_t percent)
{
	uint64_t range = ns / 100 * percent;

	h->prng ^= h->prng << 13;
	h->prng ^= h->prng >> 7;
	h->prng ^= h->prng << 17;
	return range ? ns - range + h->prng % (2 * range + 1) : ns;
}

static void watch_rearm(struct watch *w)
{
	struct health *h = w->h;
	uint32_t percent = h->snap->conf->global.spread_checks;

	if (watch_is_checkable(w))
		timer_start(h->ctl->loop, &w->timer,
			    health_jitter(h, watch_interval(w), percent > 100 ? 100 : percent));
}

static void watch_on_connected(struct check_run *r)
{
	struct watch *w = r->owner;
	uint64_t limit = w->hb->px->timeout.check;

	/* Without `timeout check` the interval is the limit of the whole. */
	if (limit)
		timer_start(w->h->ctl->loop, &w->timer, limit);
}

static void watch_on_done(struct check_run *r, const struct check_result *res)
{
	struct watch *w = r->owner;
	struct health *h = w->h;
	uint64_t took;

	loop_update_clock(h->ctl->loop);
	took = loop_now(h->ctl->loop) - r->began_ns;
	timer_stop(h->ctl->loop, &w->timer);
	w->run = NULL;
	w->srv->check.is_running = false;
	pool_put(&h->runs, r);
	health_take_result(w, res, took);
	watch_rearm(w);
}

static void fill_state(const struct watch *w, char *out, size_t size)
{
	const struct server *s = w->srv;
	const struct lb_backend *be = s->be;
	const char *node = w->hb->px->conf->global.node;
	uint32_t total = 0;
	char text[160];

	for (unsigned i = 0; i < be->n_servers; i++)
		total += server_is_eligible(be->servers[i]) ? atomic_load(&be->servers[i]->uweight)
							    : 0;
	server_status_text(s, text, sizeof(text));
	snprintf(out, size, "%s; name=%s/%s; node=%s; weight=%u/%u; scur=%u/%u; qcur=%u", text,
		 be->name, s->name, node ? node : "", atomic_load(&s->uweight), total,
		 atomic_load(&s->cur), atomic_load(&be->cur), atomic_load(&s->n_waiting));
}

/* False: there is nothing to connect to yet (a name that was not resolved). */
static bool fill_target(const struct watch *w, struct check_target *t)
{
	const struct conf_server *cs = watch_conf(w);
	const struct conf_proxy *px = w->hb->px;
	const struct check_place *at = &w->check_at.now;
	bool has_addr = at->addr.sa.sa_family != AF_UNSPEC, is_elsewhere = has_addr || at->port;

	memset(t, 0, sizeof(*t));
	if (!has_addr && (cs->ep.kind == ENDPOINT_UNIX || cs->ep.kind == ENDPOINT_ABNS))
		snprintf(t->unix_path, sizeof(t->unix_path), "%s" STR_FMT,
			 cs->ep.kind == ENDPOINT_ABNS ? "@" : "", STR_ARG(cs->ep.path));
	else if (!watch_place_addr(w, at, &t->to))
		return false;
	check_target_from(t, conf_outgoing_of(px, cs));
	t->sock = &cs->sock;
	if (cs->sock.netns_number)
		t->netns = &w->h->snap->netns[cs->sock.netns_number - 1];
	t->tls = w->srv->own		      ? w->srv->own->tls
		 : w->h->snap->tls[px->index] ? w->h->snap->tls[px->index][cs->pos_in_backend]
					      : NULL;
	/* TLS and PROXY headers are the traffic's; another port need not speak them (check-ssl says so). */
	t->is_tls = t->tls && (cs->check_ssl || (cs->is_ssl && !is_elsewhere));
	t->has_h2 = cs->tls.alpn_len && memmem(cs->tls.alpn, cs->tls.alpn_len, "\2h2", 3);
	t->proto = cs->check_proto ? cs->check_proto : is_elsewhere ? 0 : (uint8_t)cs->proto;
	t->sni = cs->check_sni;
	t->alpn = cs->check_alpn;
	t->conf = cs;
	if (cs->check_send_proxy || (cs->send_proxy && !is_elsewhere))
		t->proxy_version = cs->send_proxy == 2 ? 2 : 1;
	t->never_says_local = px->conf->global.pp2_never_local;
	t->is_404_stopping = px->check.disable_on_404 && atomic_load(&w->srv->op) != SERVER_STOPPED;
	if (w->prog->sends_state)
		fill_state(w, t->state, sizeof(t->state));
	return true;
}

/* `via tunnel`: to the first service address of the server's family. */
static int fill_tunnel(const struct watch *w, struct check_target *t, struct err *err)
{
	static const uint8_t methods[] = { [FORWARD_IPIP] = HG_MODE_IPIP,
					   [FORWARD_GUE] = HG_MODE_GUE,
					   [FORWARD_L2] = HG_MODE_L2 };
	const struct conf_proxy *px = w->hb->px;
	struct dp *dp = w->h->ctl->dp;
	struct list *l;

	if (!watch_conf(w)->check_via_tunnel)
		return 0;
	if (!dp || !dp_has_kernel_tier(dp))
		return err_set(err, -ENODEV,
			       "'via tunnel' needs the kernel tier ('xdp interface')");
	list_for_each(l, &px->binds) {
		const struct conf_bind *b = list_entry(l, struct conf_bind, link);

		if (b->ep.addr.sa.sa_family == t->to.sa.sa_family)
			return dp_check_mark(dp, &t->to, &b->ep.addr, methods[px->forward],
					     &t->mark, err);
	}
	return err_set(err, -EAFNOSUPPORT, "no service address of the server's family");
}

static void watch_postpone(struct watch *w, const char *why)
{
	struct health *h = w->h;
	uint64_t now = loop_now(h->ctl->loop);

	/* Whatever is short is short for all of them: one line a second says it. */
	if (!h->warned_ns || now - h->warned_ns >= SHORTAGE_RETRY_NS) {
		log_msg(LOG_LVL_WARNING, "Health check for server %s/%s is postponed: %s",
			w->srv->backend_name, w->srv->name, why);
		h->warned_ns = now;
	}
	timer_start(h->ctl->loop, &w->timer,
		    w->inter < SHORTAGE_RETRY_NS ? SHORTAGE_RETRY_NS : w->inter);
}

/* `timeout connect` counts when `timeout check` covers the rest; else the interval covers all. */
static uint64_t watch_first_limit(const struct watch *w)
{
	const struct conf_timeouts *t = &w->hb->px->timeout;

	return t->check && t->connect && t->connect < w->inter ? t->connect : w->inter;
}

static void watch_check(struct watch *w)
{
	struct health *h = w->h;
	struct check_run *r;
	struct err err;
	int rc;

	if (!watch_is_checkable(w))
		return;
	r = pool_get(&h->runs);
	if (!r)
		return watch_postpone(w, "out of memory");
	if (!fill_target(w, &r->target)) {
		pool_put(&h->runs, r);
		return watch_rearm(w);
	}
	if (fill_tunnel(w, &r->target, &err) != 0) {
		pool_put(&h->runs, r);
		return watch_postpone(w, err.text);
	}
	r->prog = w->prog;
	r->nw = &h->nw;
	r->owner = w;
	r->on_connected = watch_on_connected;
	r->done = watch_on_done;
	r->began_ns = loop_now(h->ctl->loop);
	w->run = r;
	w->srv->check.is_running = true;
	timer_start(h->ctl->loop, &w->timer, watch_first_limit(w));
	rc = check_run_start(r);
	if (rc == 0)
		return;
	w->run = NULL;
	w->srv->check.is_running = false;
	pool_put(&h->runs, r);
	timer_stop(h->ctl->loop, &w->timer);
	watch_postpone(w, strerror(-rc));
}

static void watch_on_timer(struct timer *t)
{
	struct watch *w = container_of(t, struct watch, timer);

	if (w->run)
		check_run_timeout(w->run);
	else
		watch_check(w);
}

/* --- watches -------------------------------------------------------------------------------------- */

static struct watch *watch_new(struct health *h, struct server *s)
{
	struct watch *w = mem_zalloc(sizeof(*w));

	if (!w)
		return NULL;
	w->h = h;
	w->srv = s;
	s->watch = w;
	w->admin = atomic_load(&s->admin);
	list_init(&w->link);
	list_init(&w->pending);
	list_init(&w->trackers);
	list_init(&w->track_link);
	list_init(&w->warming);
	list_init(&w->observe_link);
	timer_init(&w->timer, watch_on_timer);
	timer_init(&w->agent_timer, health_agent_on_timer);
	return w;
}

static void watch_free(struct watch *w)
{
	watch_stop(w);
	health_agent_stop(w);
	list_del(&w->link);
	list_del(&w->pending);
	list_del(&w->track_link);
	list_del(&w->warming);
	list_del(&w->observe_link);
	/* Those behind may follow in this very walk: they must not point here. */
	list_del(&w->trackers);
	health_place_forget(w);
	w->srv->watch = NULL;
	mem_free(w);
}

static void health_drop_all(struct health *h)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &h->watches)
		watch_free(list_entry(l, struct watch, link));
	loop_undefer(&h->flush);
	check_plans_free(&h->plans);
	arena_free(&h->arena);
	h->backends = NULL;
	h->n_backends = 0;
	h->snap = NULL;
}

/* --- a new configuration ---------------------------------------------------------------------------- */

/* What health_configure() prepares; nothing is visible until it is complete. */
struct next {
	struct check_plans plans;
	struct arena arena;
	struct health_backend *backends;
	unsigned n_backends;
	struct list fresh; /* watch.link: made for servers that had none */
};

/* Servers that were watched before keep their watch. */
static int next_fill_watches(struct health *h, struct next *n, struct health_backend *hb)
{
	for (unsigned i = 0; hb->is_watched && i < hb->be->n_servers; i++) {
		struct watch *w;

		if (hb->be->servers[i]->watch)
			continue;
		w = watch_new(h, hb->be->servers[i]);
		if (!w)
			return -ENOMEM;
		w->is_fresh = true;
		list_push_back(&n->fresh, &w->link);
	}
	return 0;
}

static int next_build(struct health *h, const struct proxy_snapshot *snap, struct next *n,
		      struct err *err)
{
	struct list *l;
	int r = check_plans_build(&n->plans, snap->conf, err);

	if (r)
		return r;
	n->n_backends = snap->conf->n_proxies;
	n->backends = arena_zalloc(&n->arena, (n->n_backends + 1) * sizeof(n->backends[0]));
	if (!n->backends)
		return -ENOMEM;
	list_for_each(l, &snap->conf->proxies) {
		const struct conf_proxy *px = list_entry(l, struct conf_proxy, link);
		struct health_backend *hb = &n->backends[px->index];

		hb->be = snap->backends[px->index];
		hb->px = px;
		hb->is_watched = !px->is_disabled;
		list_init(&hb->touched);
	}
	for (unsigned i = 0; r == 0 && i < n->n_backends; i++)
		r = next_fill_watches(h, n, &n->backends[i]);
	return r;
}

static void next_free(struct next *n)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &n->fresh)
		watch_free(list_entry(l, struct watch, link));
	if (n->plans.progs)
		check_plans_free(&n->plans);
	arena_free(&n->arena);
}

/* A server without configuration has left. */
static void health_drop_gone(struct health *h)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &h->watches) {
		struct watch *w = list_entry(l, struct watch, link);

		if (!w->srv->conf || !h->backends[watch_conf(w)->proxy->index].is_watched)
			watch_free(w);
	}
}

/* Intervals and program of the new configuration; a running check ends, it is the old one's. */
static void watch_apply_conf(struct watch *w, struct health_backend *hb)
{
	const struct conf_server *cs = watch_conf(w);
	uint64_t inter = cs->inter ? cs->inter : 2000 * NS_PER_MS;
	bool was_running = w->run, was_checked = w->prog, was_tracking = w->tracked;

	watch_drop_run(w);
	w->hb = hb;
	w->prog = cs->has_check ? w->h->plans.progs[hb->px->index] : NULL;
	w->is_fresh |= was_running || !was_checked || w->inter != inter ||
		       w->fastinter != cs->fastinter || w->downinter != cs->downinter;
	w->inter = inter;
	w->fastinter = cs->fastinter;
	w->downinter = cs->downinter;
	if (!watch_is_checkable(w))
		watch_stop(w);
	health_place_configure(w);
	health_agent_configure(w);
	list_del(&w->observe_link);
	if (cs->observe != OBSERVE_NONE)
		list_push_back(&w->h->observers, &w->observe_link);
	list_del(&w->track_link);
	w->tracked = NULL;
	if (!cs->has_check)
		w->srv->check.is_enabled = false;
	/* Nobody would bring it up again. */
	if (was_tracking && !cs->track_server && !cs->has_check)
		server_set_op(&w->h->ctl->registry, w->srv, SERVER_RUNNING);
}

static void link_tracker(struct health *h, struct watch *w)
{
	const struct conf_server *to = watch_conf(w)->track_server;
	struct health_backend *hb = to ? &h->backends[to->proxy->index] : NULL;
	struct server *s = hb && hb->is_watched ? lb_find_line(hb->be, to) : NULL;

	if (!s || !s->watch)
		return;
	w->tracked = s->watch;
	list_push_back(&w->tracked->trackers, &w->track_link);
}

/*
 * First checks are spread over the interval (max-spread-checks at most) in the order of the configuration:
 * servers of one file are not all asked in the same millisecond.
 */
static void schedule_fresh(struct health *h)
{
	uint64_t limit = h->snap->conf->global.max_spread_checks, n = 0, i = 0;
	struct list *l;

	list_for_each(l, &h->watches) {
		struct watch *w = list_entry(l, struct watch, link);

		w->is_fresh &= watch_is_checkable(w);
		n += w->is_fresh;
	}
	list_for_each(l, &h->watches) {
		struct watch *w = list_entry(l, struct watch, link);
		uint64_t over = limit && w->inter > limit ? limit : w->inter;

		if (!w->is_fresh)
			continue;
		w->is_fresh = false;
		timer_stop(h->ctl->loop, &w->timer);
		timer_start(h->ctl->loop, &w->timer, over / n * i++);
	}
}

/* Cannot fail. */
static void health_adopt(struct health *h, struct next *n, const struct proxy_snapshot *snap)
{
	struct check_plans old_plans = h->plans;
	struct arena old_arena = h->arena;
	struct list *l;

	h->plans = n->plans;
	h->arena = n->arena;
	h->backends = n->backends;
	h->n_backends = n->n_backends;
	h->snap = snap;
	list_splice_back(&h->watches, &n->fresh);
	health_drop_gone(h);
	lb_batch_begin(&h->ctl->registry);
	list_for_each(l, &h->watches) {
		struct watch *w = list_entry(l, struct watch, link);

		watch_apply_conf(w, &h->backends[watch_conf(w)->proxy->index]);
	}
	list_for_each(l, &h->watches)
		link_tracker(h, list_entry(l, struct watch, link));
	list_for_each(l, &h->watches)
		health_inherit(list_entry(l, struct watch, link));
	lb_batch_end(&h->ctl->registry);
	list_for_each(l, &h->watches)
		health_follow_admin(list_entry(l, struct watch, link));
	schedule_fresh(h);
	if (old_plans.progs)
		check_plans_free(&old_plans);
	arena_free(&old_arena);
}

int health_configure(struct health *h, const struct proxy_snapshot *snap)
{
	struct next n = { .n_backends = 0 };
	struct err err = { "" };
	int r;

	/* What waits belongs to the servers as they are now. */
	loop_undefer(&h->flush);
	health_flush(h);
	arena_init_mapped(&n.arena, 16384);
	list_init(&n.fresh);
	r = next_build(h, snap, &n, &err);
	h->wants_configure = r == -ENOMEM;
	if (r == 0) {
		health_adopt(h, &n, snap);
		return 0;
	}
	/* Nothing of the old may stay: its servers and texts are going to be freed. */
	next_free(&n);
	health_drop_all(h);
	log_msg(LOG_LVL_ERR, "health checks are suspended: %s",
		err.text[0] ? err.text : "out of memory");
	return r;
}

/* `add server`, `del server`. */
int health_add(struct health *h, struct server *s)
{
	const struct conf_proxy *px = s->conf->proxy;
	struct health_backend *hb = h->n_backends ? &h->backends[px->index] : NULL;
	struct err err = { "" };
	struct watch *w;

	/* Suspended: health_tick() configures all of it again. */
	if (!hb || !hb->is_watched)
		return 0;
	if ((s->conf->has_check && check_plans_add(&h->plans, px, &err) != 0) ||
	    !(w = watch_new(h, s)))
		return -ENOMEM;
	list_push_back(&h->watches, &w->link);
	watch_apply_conf(w, hb);
	health_agent_stop(w);
	s->agent.is_enabled = false;
	link_tracker(h, w);
	health_inherit(w);
	return 0;
}

void health_remove(struct health *h, struct server *s)
{
	if (s->watch)
		watch_free(s->watch);
}

/* --- life ------------------------------------------------------------------------------------------- */

static void health_on_flush(struct deferred *d)
{
	health_flush(container_of(d, struct health, flush));
}

int health_create(struct ctl *ctl, struct health **ret_health)
{
	struct health *h = mem_zalloc(sizeof(*h));

	if (!h)
		return -ENOMEM;
	h->ctl = ctl;
	/* Not a worker: the index behind the last one, which has no sessions of TLS to resume. */
	net_worker_init(&h->nw, ctl->loop, LB_MAX_WORKERS);
	pool_init(&h->runs, "check", sizeof(struct check_run), 64);
	arena_init_mapped(&h->arena, 16384);
	list_init(&h->watches);
	list_init(&h->pending);
	list_init(&h->warming);
	list_init(&h->observers);
	deferred_init(&h->flush, health_on_flush);
	if (getrandom(&h->prng, sizeof(h->prng), GRND_NONBLOCK) != sizeof(h->prng) || !h->prng)
		h->prng = loop_now(ctl->loop) | 1;
	*ret_health = h;
	return 0;
}

void health_destroy(struct health *h)
{
	if (!h)
		return;
	health_drop_all(h);
	net_worker_fini(&h->nw);
	pool_trim(&h->runs);
	mem_free(h);
}
