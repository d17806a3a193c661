/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A worker's thread: pinned to its core, one loop, everything it serves. Started and joined by the
 * control thread; in between the two talk by mail only (worker_mail.c). Adopting a snapshot moves the
 * listeners over and lets idle clients follow; streams stay with the one they began with.
 */
#include <errno.h>
#include <sys/random.h>
#include <sched.h>
#include <stdio.h>

#include "proxy/track.h"
#include "proxy/h2_client.h"

#define TICK_NS		 1000000000ull
#define HEAD_POOL_MAX	 1024
#define BIG_POOL_MAX	 64
#define DEFAULT_BUFSIZE	 16384
#define REQUEST_ID_BATCH 1024
#define SUFFIX_CORNER	 16384 /* behind the scratch: last chunks, see side_h1.c */
#define MIN_HEAD_SIZE	 1024

uint64_t worker_next_request_id(struct worker *w)
{
	if (unlikely(w->req_ids == w->req_ids_end)) {
		w->req_ids = atomic_fetch_add_explicit(&w->o.shared->req_counter, REQUEST_ID_BATCH,
						       memory_order_relaxed);
		w->req_ids_end = w->req_ids + REQUEST_ID_BATCH;
	}
	return ++w->req_ids;
}

/* --- snapshots -------------------------------------------------------------------------------------- */

static void follow_snapshot(struct worker *w)
{
	struct list *pos, *tmp;
	int r = worker_listen(w);

	if (r)
		log_msg(LOG_LVL_ALERT, "worker %u: cannot listen: %s", w->o.index, strerror(-r));
	list_for_each_safe(pos, tmp, &w->clients) {
		struct client *cl = list_entry(pos, struct client, link);

		if ((cl->state == CLIENT_IDLE || cl->state == CLIENT_MUX) && cl->snap != w->snap)
			client_rebind(cl);
	}
}

void worker_adopt(struct worker *w)
{
	struct snapshot *before;

	if (w->is_over)
		return;
	/* Our listeners live on the old one's sockets until they have followed: control must not close them yet. */
	before = w->view.current ? snapshot_pin(&w->view) : NULL;
	snapshot_adopt(&w->view);
	w->snap = container_of(w->view.current, struct proxy_snapshot, snap);
	if (w->view.current != before && !w->is_draining)
		follow_snapshot(w);
	if (before)
		snapshot_unpin(&w->view, before);
}

/* --- time ------------------------------------------------------------------------------------------- */

static void tick_server(struct worker *w, struct server *s, const struct conf_server *cs)
{
	if (s && s->w[w->o.index].n_idle)
		idle_purge(s, w->o.index, cs->pool_purge_delay, false);
}

static void tick_backend(struct worker *w, const struct conf_proxy *px)
{
	struct lb_backend *be = w->snap->backends[px->index];
	unsigned added = 0;
	struct server *s;
	struct list *pos;

	list_for_each(pos, &px->servers) {
		struct conf_server *cs = list_entry(pos, struct conf_server, link);

		tick_server(w, lb_server_of(be, cs), cs);
	}
	for (; (s = lb_added_server(be, &added)); added++)
		tick_server(w, s, s->own->line);
}

/* For control, while servers that have gone are to be freed: who of us may know them. */
static void tell_oldest_stream(struct worker *w)
{
	uint64_t oldest = loop_now(w->loop);
	struct list *pos;

	if (likely(!atomic_load_explicit(&w->o.shared->n_removed, memory_order_relaxed)))
		return;
	list_for_each(pos, &w->streams) {
		const struct stream *st = list_entry(pos, struct stream, link);

		if (st->start_ns < oldest)
			oldest = st->start_ns;
	}
	atomic_store_explicit(&w->oldest_stream_ns, oldest, memory_order_release);
}

uint64_t worker_oldest_stream(const struct worker *w)
{
	return atomic_load_explicit(&w->oldest_stream_ns, memory_order_acquire);
}

static void on_tick(struct timer *t)
{
	struct worker *w = container_of(t, struct worker, tick);
	struct list *pos;

	list_for_each(pos, &w->snap->conf->proxies) {
		struct conf_proxy *px = list_entry(pos, struct conf_proxy, link);

		if (px->caps & CONF_CAP_BACKEND && px->mode != CONF_MODE_L4)
			tick_backend(w, px);
	}
	tell_oldest_stream(w);
	timer_start(w->loop, &w->tick, TICK_NS);
}

static void on_iteration(struct loop_hook *h)
{
	struct worker *w = container_of(h, struct worker, hook);
	const struct loop_stats *s = loop_stats(w->loop);
	struct hg_worker_counters *c = w->ctr;

	__atomic_store_n(&c->iterations, s->iterations, __ATOMIC_RELAXED);
	__atomic_store_n(&c->events, s->events, __ATOMIC_RELAXED);
	__atomic_store_n(&c->busy_ns, s->busy_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&c->idle_ns, s->idle_ns, __ATOMIC_RELAXED);
}

/* --- ends ------------------------------------------------------------------------------------------- */

void worker_end_all(struct worker *w, char code)
{
	struct list *pos, *tmp;

	/* Who has sent part of a request is logged like the others. */
	list_for_each(pos, &w->clients) {
		struct client *cl = list_entry(pos, struct client, link);

		if (cl->part)
			(void)stream_new(cl);
	}
	while (!list_is_empty(&w->streams))
		stream_kill(list_entry(w->streams.next, struct stream, link), code);
	list_for_each_safe(pos, tmp, &w->clients)
		client_close(list_entry(pos, struct client, link), false);
}

/* Streams are taken from a list of their own: the end of one may be the end of others. */
void worker_end_older(struct worker *w, uint64_t generation)
{
	struct list todo = LIST_INIT(todo), *pos;

	list_for_each(pos, &w->clients) {
		struct client *cl = list_entry(pos, struct client, link);

		if (cl->part && cl->snap->snap.generation <= generation)
			(void)stream_new(cl);
	}
	list_splice_back(&todo, &w->streams);
	while ((pos = list_pop_front(&todo))) {
		struct stream *st = list_entry(pos, struct stream, link);

		list_push_back(&w->streams, pos);
		if (st->snap->snap.generation <= generation)
			stream_kill(st, 'K');
	}
}

void worker_begin_drain(struct worker *w)
{
	struct list *pos, *tmp;

	w->is_draining = true;
	worker_unlisten(w);
	list_for_each_safe(pos, tmp, &w->clients) {
		struct client *cl = list_entry(pos, struct client, link);

		if (cl->state == CLIENT_IDLE)
			client_drain(cl);
		else if (cl->state == CLIENT_MUX)
			h2_client_drain(cl);
	}
	worker_check_drained(w);
}

static void close_idle_servers(struct worker *w)
{
	struct list *pos;

	list_for_each(pos, &w->snap->conf->proxies) {
		struct conf_proxy *px = list_entry(pos, struct conf_proxy, link);
		struct lb_backend *be = w->snap->backends[px->index];
		struct server *s;

		for (unsigned i = 0; (s = lb_server_at(be, i)); i++)
			idle_purge(s, w->o.index, 0, true);
	}
}

/* --- the thread ------------------------------------------------------------------------------------- */

static void worker_pin(const struct worker *w)
{
	cpu_set_t set;
	char name[16];

	snprintf(name, sizeof(name), "hg-worker-%u", w->o.index % 10000);
	pthread_setname_np(pthread_self(), name);
	if (w->o.cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned)w->o.cpu, &set);
	if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set))
		log_msg(LOG_LVL_WARNING, "worker %u: cannot run on cpu %d only", w->o.index,
			w->o.cpu);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	int r;

	if (log_thread_enter())
		log_msg(LOG_LVL_WARNING, "worker %u: no memory for a log ring", w->o.index);
	worker_pin(w);
	loop_update_clock(w->loop);
	worker_adopt(w);
	timer_start(w->loop, &w->tick, TICK_NS);
	r = loop_run(w->loop);
	if (r)
		log_msg(LOG_LVL_EMERG, "worker %u: event loop failed: %s", w->o.index,
			strerror(-r));
	worker_unlisten(w);
	worker_end_all(w, 'K');
	close_idle_servers(w);
	timer_stop(w->loop, &w->rate_timer);
	timer_stop(w->loop, &w->tick);
	w->is_over = true;
	snapshot_leave(&w->view);
	log_thread_leave();
	return NULL;
}

static void worker_free(struct worker *w)
{
	if (!w)
		return;
	mailbox_close(&w->mailbox);
	stream_pool_free(w);
	compress_worker_end(w);
	net_worker_fini(&w->net);
	pool_trim(&w->client_pool);
	pool_trim(&w->exchange_pool);
	pool_trim(&w->track_pool);
	pool_trim(&w->head_pool);
	pool_trim(&w->big_pool);
	loop_destroy(w->loop);
	mem_free(w->scratch);
	mem_free(w->log_line);
	mem_free(w);
}

static void worker_wake_server(struct lb_waker *wk, unsigned to, struct server *s)
{
	struct proxy_shared *sh = container_of(wk, struct proxy_shared, waker);
	struct worker *w = to < LB_MAX_WORKERS ? atomic_load(&sh->workers[to]) : NULL;

	if (w && !atomic_exchange(&s->w[to].wake_pending, true))
		mailbox_send(&w->mailbox, &s->w[to].wake_mail);
}

static void worker_tell_control(struct lb_waker *wk, unsigned worker)
{
	struct proxy_shared *sh = container_of(wk, struct proxy_shared, waker);

	worker_tell_waiting(atomic_load(&sh->workers[worker]));
}

/* Queues must reach every worker: known to the registry before the first one runs. */
static void worker_register(struct worker *w, const struct proxy_snapshot *snap)
{
	struct proxy_shared *sh = w->o.shared;
	struct lb_registry *reg;

	sh->waker.wake = worker_wake_server;
	sh->waker.tell = worker_tell_control;
	if (snap->conf->n_proxies) {
		reg = snap->backends[0]->registry;
		if (!reg->waker)
			lb_set_waker(reg, &sh->waker);
	}
	atomic_store(&sh->workers[w->o.index], w);
}

static uint32_t worker_head_size(const struct proxy_snapshot *snap)
{
	uint32_t n = snap->conf->global.bufsize ? snap->conf->global.bufsize : DEFAULT_BUFSIZE;

	/* A head and what rules add to it must fit in the scratch. */
	if (n > WORKER_SCRATCH / 2)
		n = WORKER_SCRATCH / 2;
	return n < MIN_HEAD_SIZE ? MIN_HEAD_SIZE : n;
}

static int worker_init(struct worker *w, const struct worker_opts *o)
{
	struct snapshot *snap = atomic_load(&o->hub->current);
	int r;

	BUG_ON(!snap || o->index >= LB_MAX_WORKERS);
	w->o = *o;
	w->ctr = o->counters;
	w->mailbox.ev.fd = -1;
	if (getrandom(&w->pool_seed, sizeof(w->pool_seed), 0) != (ssize_t)sizeof(w->pool_seed))
		return -EIO;
	list_init(&w->listeners);
	list_init(&w->clients);
	list_init(&w->streams);
	list_init(&w->queued);
	list_init(&w->free_streams);
	w->head_size = worker_head_size(container_of(snap, struct proxy_snapshot, snap));
	w->scratch = mem_alloc(WORKER_SCRATCH + SUFFIX_CORNER);
	w->log_line = mem_alloc(WORKER_LOG_LINE);
	if (!w->scratch || !w->log_line)
		return -ENOMEM;
	r = loop_create(&w->loop);
	if (r)
		return r;
	net_worker_init(&w->net, w->loop, o->index);
	w->net.n_tls = &o->shared->cur_tls;
	w->net.on_tls_end = worker_tls_ended;
	pool_init(&w->client_pool, "client", sizeof(struct client), 4096);
	pool_init(&w->track_pool, "track", track_size(TRACK_POOLED), 4096);
	pool_init(&w->exchange_pool, "h2 exchange", sizeof(struct h2_request), 1024);
	pool_init(&w->head_pool, "head", w->head_size, HEAD_POOL_MAX);
	pool_init(&w->big_pool, "big", SIDE_BIG_WINDOW, BIG_POOL_MAX);
	snapshot_view_init(&w->view, o->hub, worker_said_done);
	timer_init(&w->rate_timer, worker_rate_timer);
	timer_init(&w->tick, on_tick);
	w->hook.call = on_iteration;
	loop_add_hook(w->loop, &w->hook);
	worker_init_mails(w);
	return mailbox_open(&w->mailbox, w->loop);
}

int worker_start(const struct worker_opts *o, struct worker **ret_worker)
{
	struct worker *w = mem_zalloc(sizeof(*w));
	struct snapshot *snap = atomic_load(&o->hub->current);
	int r;

	if (!w)
		return -ENOMEM;
	r = worker_init(w, o);
	if (!r) {
		worker_register(w, container_of(snap, struct proxy_snapshot, snap));
		r = -pthread_create(&w->thread, NULL, worker_main, w);
		if (r)
			atomic_store(&o->shared->workers[o->index], NULL);
	}
	if (r) {
		if (w->loop)
			worker_free(w);
		else {
			mem_free(w->scratch);
			mem_free(w->log_line);
			mem_free(w);
		}
		return r;
	}
	*ret_worker = w;
	return 0;
}

static void deliver_bury(struct mail *m)
{
	worker_free(container_of(m, struct worker, bury_mail));
}

void worker_stop(struct worker *w)
{
	if (!w)
		return;
	mailbox_send(&w->mailbox, &w->stop_mail);
	pthread_join(w->thread, NULL);
	atomic_store(&w->o.shared->workers[w->o.index], NULL);
	/*
	 * Its last mails to control are inside it, and another worker may just be looking at it: the
	 * memory goes when control has read its mail up to here.
	 */
	w->bury_mail.deliver = deliver_bury;
	mailbox_send(w->o.control, &w->bury_mail);
}

struct mailbox *worker_mailbox(struct worker *w)
{
	return &w->mailbox;
}

unsigned worker_index(const struct worker *w)
{
	return w->o.index;
}

const struct loop_stats *worker_loop_stats(const struct worker *w)
{
	return loop_stats(w->loop);
}

struct profile *worker_profile(const struct worker *w)
{
	return loop_profile(w->loop);
}

void *worker_owner(const struct worker *w)
{
	return w->o.owner;
}
