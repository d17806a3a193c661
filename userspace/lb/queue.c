/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slots of servers and the streams that wait for one. Queues are lists of one worker each, ordered by priority
 * (waitlist.h); what workers share is the slot count (server.cur) and, per server and per backend, how many wait
 * (n_waiting), on which workers (waiting), and how urgent the first of each is. No locks, no memory.
 *
 * No wake-up is lost. Invariant W: when a slot of `s` is free and somebody waits for it, then a wake of `s` is under
 * way, that is, some worker is inside lb_serve_queue(s), server_release(s) or lb_enqueue(), or will run
 * lb_serve_queue(s). All accesses below are sequentially consistent, but for the urgency: it chooses among those who
 * are marked, so a late value costs order only.
 *  1. A waiter first announces itself (waiting, then n_waiting), then looks whether a slot is free, and if so wakes
 *     its own worker. A releaser first gives the slot back (cur), then looks whether anybody waits. One of them
 *     must see the other (Dekker), so W holds when a slot or a waiter appears.
 *  2. A wake ends only after serving: either no slot is free any more, so somebody holds one, whose release comes later
 *     and looks for waiters again (1); or nobody waits here, and then it is passed on to the next worker
 *     that does. A waiter that left (timeout) therefore swallows no wake.
 *  3. A wake that finds wake_pending set is not sent again: the pending one clears the flag before it looks
 *     at anything, so it will see all that happened before.
 *  4. Limits that rise, servers that come up and tables that change are announced after the change by control
 *     (lb_wake_waiters(), lb_wake_backend()), like a release in (1).
 * A limit that rises with the number of streams (fullconn) needs no wake: it is at least 1, so a slot is held.
 *  5. Slots of servers that XDP counts at, too, come free without a word: there control looks while somebody waits (share.c).
 */
#include "lb/lb_priv.h"

/* Two that wait are equals when their due dates are no further apart: 20 ms in units of waitlist.urgency. */
#define LOCAL_FIRST (20000000u >> 10)

/* Handing slots on is not re-entered: on_turn() may fail at once and release its slot from inside. */
static _Thread_local bool is_serving;

/* --- slots --------------------------------------------------------------------------------------- */

static inline bool try_take(struct server *s, uint32_t limit, struct server_worker *w)
{
	uint32_t cur, max;

	if (!limit) {
		cur = atomic_fetch_add(&s->cur, 1) + 1;
	} else {
		cur = atomic_load(&s->cur);
		do {
			if (cur >= limit)
				return false;
		} while (!atomic_compare_exchange_weak(&s->cur, &cur, cur + 1));
		cur++;
	}
	w->n_slots++;
	max = atomic_load_explicit(&s->max_cur, memory_order_relaxed);
	while (unlikely(cur > max) && !atomic_compare_exchange_weak(&s->max_cur, &max, cur))
		;
	return true;
}

/* What XDP counts as well is asked first: it is what others take from at the same time. */
static HG_COLD bool try_take_shared(struct server *s, uint32_t limit, struct server_worker *w)
{
	if (!share_take(w->live, s->live_part, limit))
		return false;
	if (try_take(s, limit, w))
		return true;
	share_give(w->live, s->live_part);
	return false;
}

bool server_try_take(struct server *s, uint32_t limit, unsigned worker)
{
	struct server_worker *w = &s->w[worker];

	return unlikely(w->live) ? try_take_shared(s, limit, w) : try_take(s, limit, w);
}

/* As server_is_usable(), but ordered against n_waiting like everything here. */
static bool is_usable(const struct server *s)
{
	return atomic_load(&s->op) != SERVER_STOPPED &&
	       !(atomic_load(&s->admin) & SERVER_MAINT_MASK);
}

static bool may_serve_backend(const struct server *s)
{
	return atomic_load(&s->is_elected) && is_usable(s) && server_is_eligible(s);
}

bool server_has_slot(const struct lb_backend *be, const struct server *s)
{
	uint32_t limit = server_limit(be, s, NULL);

	return (!limit || atomic_load(&s->cur) < limit) && share_has_room(s, limit);
}

/* --- who waits ----------------------------------------------------------------------------------- */

static void mark(_Atomic uint64_t *bits, unsigned worker)
{
	atomic_fetch_or(&bits[worker / 64], 1ull << worker % 64);
}

static void unmark(_Atomic uint64_t *bits, unsigned worker)
{
	atomic_fetch_and(&bits[worker / 64], ~(1ull << worker % 64));
}

static bool is_marked(const _Atomic uint64_t *bits, unsigned worker)
{
	return atomic_load(&bits[worker / 64]) >> worker % 64 & 1;
}

static void count_queue(struct hg_l7_counters *ctr, uint32_t n_queue, int delta)
{
	if (!ctr)
		return;
	STATS_ADD(&ctr->cur_queue, delta);
	if (delta > 0) {
		STATS_ADD(&ctr->queued, 1);
		STATS_MAX(&ctr->max_queue, (uint64_t)n_queue);
	}
}

static void link_server(struct queue_entry *q, struct server *s, unsigned worker)
{
	struct server_worker *w = &s->w[worker];

	waitlist_add(&w->queue, q);
	if (w->queue.n == 1)
		mark(s->waiting, worker);
	atomic_fetch_add(&s->n_waiting, 1);
	count_queue(w->ctr, w->queue.n, 1);
}

static void link_backend(struct queue_entry *q, struct lb_backend *be, unsigned worker)
{
	struct lb_backend_worker *w = &be->w[worker];

	waitlist_add(&w->queue, q);
	if (w->queue.n == 1)
		mark(be->waiting, worker);
	atomic_fetch_add(&be->n_waiting, 1);
	count_queue(w->ctr, w->queue.n, 1);
}

void lb_dequeue(struct queue_entry *q, unsigned worker)
{
	if (!q->place.in)
		return;
	waitlist_remove(q->place.in, q);
	if (q->srv) {
		struct server_worker *w = &q->srv->w[worker];

		if (!w->queue.n)
			unmark(q->srv->waiting, worker);
		atomic_fetch_sub(&q->srv->n_waiting, 1);
		count_queue(w->ctr, 0, -1);
	} else {
		struct lb_backend_worker *w = &q->be->w[worker];

		if (!w->queue.n)
			unmark(q->be->waiting, worker);
		atomic_fetch_sub(&q->be->n_waiting, 1);
		count_queue(w->ctr, 0, -1);
	}
}

/* --- waking -------------------------------------------------------------------------------------- */

void lb_set_waker(struct lb_registry *r, struct lb_waker *wk)
{
	r->waker = wk;
}

static void wake(struct lb_backend *be, struct server *s, unsigned worker)
{
	struct lb_waker *wk = be->registry->waker;

	if (wk)
		wk->wake(wk, worker, s);
}

void lb_wake_waiters(struct lb_backend *be, struct server *s)
{
	if (!atomic_load(&s->n_waiting))
		return;
	for (unsigned i = 0; i < be->registry->n_workers; i++)
		if (is_marked(s->waiting, i))
			wake(be, s, i);
}

void lb_wake_all(struct lb_backend *be, struct server *s)
{
	for (unsigned i = 0; i < be->registry->n_workers; i++) {
		if (be->registry->waker)
			wake(be, s, i);
		else
			lb_serve_queue(s, i);
	}
}

/*
 * One worker per server is enough: it passes on what it does not use. Server by server over the workers
 * that wait, so that they share the work.
 */
void lb_wake_backend(struct lb_backend *be, const struct lb_table *t)
{
	unsigned n = be->registry->n_workers, worker = 0;

	if (!atomic_load(&be->n_waiting))
		return;
	for (unsigned i = 0; i < t->n; i++) {
		if (!server_has_slot(be, t->entries[i].srv))
			continue;
		for (unsigned tries = 0; tries < n; tries++) {
			worker = worker + 1 < n ? worker + 1 : 0;
			if (is_marked(be->waiting, worker))
				break;
		}
		wake(be, t->entries[i].srv, worker);
	}
}

/* Less is more urgent; UINT64_MAX also while an entry is being added. */
static uint64_t urgency(const struct lb_backend *be, const struct server *s, bool is_elected,
			unsigned worker)
{
	const struct waitlist *sq = &s->w[worker].queue, *bq = &be->w[worker].queue;
	uint64_t a = atomic_load_explicit(&sq->urgency, memory_order_relaxed);
	uint64_t b = is_elected ? atomic_load_explicit(&bq->urgency, memory_order_relaxed)
				: UINT64_MAX;

	return a < b ? a : b;
}

/* The other worker with the most urgent of those who wait for a slot of `s`; -1: there is none. */
static int find_other(const struct lb_backend *be, const struct server *s, unsigned worker,
		      uint64_t *ret_urgency)
{
	unsigned n = be->registry->n_workers;
	bool is_elected = may_serve_backend(s);
	int best = -1;

	*ret_urgency = UINT64_MAX;
	for (unsigned i = 1; i < n; i++) {
		unsigned other = (worker + i) % n;
		uint64_t u;

		if (!is_marked(s->waiting, other) && !(is_elected && is_marked(be->waiting, other)))
			continue;
		u = urgency(be, s, is_elected, other);
		if (best < 0 || u < *ret_urgency) {
			best = (int)other;
			*ret_urgency = u;
		}
	}
	return best;
}

static bool wake_other(struct lb_backend *be, struct server *s, unsigned worker)
{
	uint64_t u;
	int other = find_other(be, s, worker, &u);

	if (other >= 0)
		wake(be, s, (unsigned)other);
	return other >= 0;
}

/* --- serving ------------------------------------------------------------------------------------- */

/* The most urgent one of this worker that `s` may serve. */
static struct queue_entry *next_waiter(struct lb_backend *be, struct server *s, unsigned worker)
{
	struct queue_entry *a = waitlist_first(&s->w[worker].queue);
	struct queue_entry *b = waitlist_first(&be->w[worker].queue);

	if (!is_usable(s))
		return NULL;
	if (b && !may_serve_backend(s))
		b = NULL;
	return a && (!b || waitlist_is_before(a, b)) ? a : b;
}

/* At most those who wait now: whoever fails and queues again waits for another round. */
static void serve_local(struct lb_backend *be, struct server *s, unsigned worker)
{
	uint32_t n = s->w[worker].queue.n + be->w[worker].queue.n;
	struct queue_entry *q;

	for (; n && (q = next_waiter(be, s, worker)); n--) {
		if (!server_try_take(s, server_limit(be, s, NULL), worker))
			return;
		lb_dequeue(q, worker);
		s->w[worker].n_turns++;
		is_serving = true;
		q->on_turn(q, s);
		is_serving = false;
	}
}

/* What is left of a wake: to who still waits, if there still is a slot. */
static void pass_on(struct lb_backend *be, struct server *s, unsigned worker)
{
	if (!is_usable(s) || !server_has_slot(be, s))
		return;
	if (!wake_other(be, s, worker) && next_waiter(be, s, worker))
		wake(be, s, worker);
}

/*
 * Is a slot for another worker? When somebody there is markedly more urgent. Of equals local first, it costs no message;
 * but a worker that holds no slot gets one only from others: every fourth goes there.
 */
static bool is_for_others(const struct lb_backend *be, const struct server *s, unsigned worker)
{
	uint64_t theirs, ours = urgency(be, s, may_serve_backend(s), worker);

	if (find_other(be, s, worker, &theirs) < 0)
		return false;
	if (theirs > ours)
		return s->w[worker].n_turns % 4 == 3 && theirs - ours <= LOCAL_FIRST;
	return s->w[worker].n_turns % 4 == 3 || ours - theirs > LOCAL_FIRST;
}

static void hand_on(struct lb_backend *be, struct server *s, unsigned worker)
{
	if (is_serving) {
		wake(be, s, worker);
		return;
	}
	if (is_for_others(be, s, worker) && wake_other(be, s, worker)) {
		s->w[worker].n_turns++;
		return;
	}
	serve_local(be, s, worker);
	pass_on(be, s, worker);
}

void server_release(struct lb_backend *be, struct server *s, unsigned worker)
{
	struct server_worker *w = &s->w[worker];
	uint32_t was = atomic_fetch_sub(&s->cur, 1);

	BUG_ON(was == 0);
	w->n_slots--;
	if (unlikely(w->live))
		share_give(w->live, s->live_part);
	if (likely(!atomic_load(&s->n_waiting) && !atomic_load(&be->n_waiting)))
		return;
	hand_on(be, s, worker);
}

/* Any server that could serve the backend's queue now. */
static struct server *find_slot(struct lb_backend *be)
{
	const struct lb_table *t = atomic_load(&be->table);

	for (unsigned i = 0; t && i < t->n; i++) {
		struct server *s = t->entries[i].srv;

		if (may_serve_backend(s) && server_has_slot(be, s))
			return s;
	}
	return NULL;
}

/* With `option redispatch` those who wait for a server that is gone wait for any server instead. */
static void move_to_backend(struct lb_backend *be, struct server *s, unsigned worker)
{
	const struct waitlist *queue = &s->w[worker].queue;
	struct queue_entry *q;
	struct server *other;

	if (!atomic_load(&be->may_redispatch) || !queue->n)
		return;
	while ((q = waitlist_first(queue))) {
		lb_dequeue(q, worker);
		q->srv = NULL;
		link_backend(q, be, worker);
	}
	other = find_slot(be);
	if (other)
		wake(be, other, worker);
}

void lb_serve_queue(struct server *s, unsigned worker)
{
	struct lb_backend *be = s->be;

	atomic_store(&s->w[worker].wake_pending, false);
	share_move(s, worker);
	if (unlikely(atomic_load(&s->is_removed)))
		idle_purge(s, worker, 0, true);
	if (!is_usable(s)) {
		move_to_backend(be, s, worker);
		return;
	}
	if (is_serving) {
		wake(be, s, worker);
		return;
	}
	serve_local(be, s, worker);
	pass_on(be, s, worker);
}

void lb_enqueue(struct queue_entry *q, struct lb_backend *be, struct server *srv, unsigned worker)
{
	q->be = be;
	q->srv = srv;
	if (srv) {
		link_server(q, srv, worker);
		/* Not usable: to be moved, or to wait for its return. */
		if (!is_usable(srv) || server_has_slot(be, srv))
			wake(be, srv, worker);
	} else {
		link_backend(q, be, worker);
		srv = find_slot(be);
		if (srv)
			wake(be, srv, worker);
	}
	if (unlikely(atomic_load(&be->n_shared)))
		share_tell(be, worker);
}
