/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits and queues: on one thread step by step, then on several at once (under ThreadSanitizer too).
 *
 * links: lb base ev
 */
#include "unit/lb_fixture.h"

#include <pthread.h>

/* --- limits --------------------------------------------------------------------------------------- */

static void test_limit_formula(void **state)
{
	static const struct {
		uint32_t minconn, maxconn, fullconn, cur, limit;
	} t[] = {
		{ 0, 0, 0, 5, 0 }, /* none */
		{ 0, 10, 0, 5, 10 },
		{ 0, 10, 100, 5, 10 }, /* no minconn: fixed */
		{ 10, 10, 100, 5, 10 },
		{ 2, 10, 100, 0, 2 },
		{ 2, 10, 100, 30, 3 },
		{ 2, 10, 100, 55, 5 },
		{ 2, 10, 100, 99, 9 },
		{ 2, 10, 100, 100, 10 },
		{ 2, 10, 100, 1000, 10 },
		{ 2, 10, 0, 0, 10 }, /* no fullconn */
		{ 8, 0, 100, 0, 8 }, /* minconn alone is a maxconn */
		{ 8, 4, 100, 0, 8 },
		{ 1, UINT32_MAX, UINT32_MAX, UINT32_MAX - 1, UINT32_MAX - 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct fx f;

		fx_init(&f, 1, 1);
		f.s.cs[0].minconn = t[i].minconn;
		f.s.cs[0].maxconn = t[i].maxconn;
		f.s.px.fullconn = t[i].fullconn;
		fx_commit(&f);
		atomic_store(&f.be->cur, t[i].cur);
		assert_int_equal(server_limit(f.be, fx_srv(&f, 0), NULL), t[i].limit);
		assert_int_equal(server_limit(f.be, fx_srv(&f, 0), &f.s.cs[0]), t[i].limit);
		fx_fini(&f);
	}
}

static void test_limit_in_slow_start(void **state)
{
	struct fx f;

	fx_init(&f, 1, 1);
	f.s.cs[0].maxconn = 40;
	f.s.cs[0].weight = 10;
	fx_commit(&f);
	server_set_op(&f.r, fx_srv(&f, 0), SERVER_STARTING);
	server_set_effective_weight(&f.r, fx_srv(&f, 0), 40); /* a quarter */
	assert_int_equal(server_limit(f.be, fx_srv(&f, 0), NULL), 10);
	server_set_effective_weight(&f.r, fx_srv(&f, 0), 1);
	assert_int_equal(server_limit(f.be, fx_srv(&f, 0), NULL), 1);
	/* a new weight does not end it */
	server_set_effective_weight(&f.r, fx_srv(&f, 0), 80);
	assert_int_equal(server_set_weight(&f.r, fx_srv(&f, 0), 20, NULL), 0);
	assert_int_equal(fx_srv(&f, 0)->weight, 160);
	server_set_op(&f.r, fx_srv(&f, 0), SERVER_RUNNING);
	assert_int_equal(server_limit(f.be, fx_srv(&f, 0), NULL), 40);
	fx_fini(&f);
}

static void test_take(void **state)
{
	struct fx f;
	struct server *s;

	fx_init(&f, 1, 1);
	fx_commit(&f);
	s = fx_srv(&f, 0);
	assert_true(server_try_take(s, 2, 0));
	assert_true(server_try_take(s, 2, 0));
	assert_false(server_try_take(s, 2, 0));
	assert_true(server_try_take(s, 0, 0));
	assert_int_equal(s->cur, 3);
	for (int i = 0; i < 3; i++)
		server_release(f.be, s, 0);
	assert_int_equal(s->cur, 0);
	assert_int_equal(s->max_cur, 3);
	fx_fini(&f);
}

/* --- one thread ------------------------------------------------------------------------------------ */

/* A stream that waits, and what it was given. */
struct waiter {
	struct queue_entry q;
	struct fx *f;
	struct server *got;
	unsigned worker, turn;
	bool fails_at_once;
	struct server *gives_up; /* a slot of another server that its turn sets free */
};

static unsigned n_turns;

static void on_turn(struct queue_entry *q, struct server *srv)
{
	struct waiter *w = container_of(q, struct waiter, q);

	assert_null(w->got);
	w->got = srv;
	w->turn = ++n_turns;
	if (w->fails_at_once)
		server_release(w->f->be, srv, w->worker);
	if (w->gives_up)
		server_release(w->f->be, w->gives_up, w->worker);
}

static void wait_for(struct fx *f, struct waiter *w, struct server *s, unsigned worker,
		     uint64_t since)
{
	*w = (struct waiter){ .f = f, .worker = worker };
	w->q.on_turn = on_turn;
	w->q.since_ns = since;
	lb_enqueue(&w->q, f->be, s, worker);
}

static void one_slot(struct fx *f, unsigned n_workers, unsigned n_servers, uint8_t algo)
{
	n_turns = 0;
	fx_init(f, n_workers, n_servers);
	f->s.px.balance.algo = algo;
	for (unsigned i = 0; i < n_servers; i++)
		f->s.cs[i].maxconn = 1;
	fx_commit(f);
}

static void test_local_first(void **state)
{
	struct fx f;
	struct waiter a, b, c;
	struct server *s;

	one_slot(&f, 2, 1, BALANCE_ROUNDROBIN);
	s = fx_srv(&f, 0);
	assert_true(server_try_take(s, 1, 0));
	wait_for(&f, &a, s, 1, 1);
	wait_for(&f, &b, s, 0, 2);
	wait_for(&f, &c, NULL, 0, 3);
	assert_int_equal(f.n_wakes, 0); /* no slot: nothing to announce */
	assert_int_equal(s->n_waiting, 2);
	assert_int_equal(f.be->n_waiting, 1);
	assert_int_equal(s->w[0].ctr->cur_queue, 1);
	assert_int_equal(f.be->w[0].ctr->cur_queue, 1);

	server_release(f.be, s, 0);
	assert_ptr_equal(b.got, s); /* same worker, no message */
	assert_int_equal(f.n_wakes, 0);
	assert_int_equal(s->cur, 1);
	server_release(f.be, s, 0);
	assert_ptr_equal(c.got, s); /* the backend's queue is served too */
	server_release(f.be, s, 0);
	assert_int_equal(s->cur, 0); /* nobody here: the other worker is woken */
	assert_int_equal(f.n_wakes, 1);
	assert_null(a.got);
	fx_deliver(&f);
	assert_ptr_equal(a.got, s);
	server_release(f.be, s, 1);
	assert_int_equal(s->n_waiting + f.be->n_waiting, 0);
	assert_int_equal(
		s->w[0].ctr->cur_queue + s->w[1].ctr->cur_queue + f.be->w[0].ctr->cur_queue, 0);
	assert_int_equal(s->w[0].ctr->queued, 1);
	assert_int_equal(s->w[0].ctr->max_queue, 1);
	fx_fini(&f);
}

static void test_oldest_first(void **state)
{
	struct fx f;
	struct waiter w[4];
	struct server *s;

	one_slot(&f, 1, 1, BALANCE_ROUNDROBIN);
	s = fx_srv(&f, 0);
	assert_true(server_try_take(s, 1, 0));
	wait_for(&f, &w[0], s, 0, 10);
	wait_for(&f, &w[1], NULL, 0, 11);
	wait_for(&f, &w[2], s, 0, 12);
	wait_for(&f, &w[3], NULL, 0, 13);
	for (unsigned i = 0; i < 4; i++) {
		server_release(f.be, s, 0);
		assert_int_equal(w[i].turn, i + 1);
	}
	server_release(f.be, s, 0);
	fx_fini(&f);
}

/* Less than 0: `a` is served before `b`. */
static int64_t expected_order(const struct waiter *a, const struct waiter *b)
{
	if (a->q.prio_class != b->q.prio_class)
		return a->q.prio_class - b->q.prio_class;
	return (int64_t)(a->q.since_ns / 1000000) + a->q.prio_offset -
	       (int64_t)(b->q.since_ns / 1000000) - b->q.prio_offset;
}

/* Waiters of both kinds of queue, some of whom leave; then one slot goes from one to the next. */
static unsigned run_priorities(struct fx *f, struct waiter *w, unsigned n, uint32_t seed)
{
	struct server *s = fx_srv(f, 0);
	unsigned n_left = 0;

	for (unsigned i = 0; i < n; i++) {
		uint32_t a = seed = seed * 1664525 + 1013904223, b;

		b = seed = seed * 1664525 + 1013904223;
		w[i] = (struct waiter){ .f = f };
		w[i].q.on_turn = on_turn;
		w[i].q.since_ns = 1000000ull * (i / 3);
		w[i].q.prio_class = (int16_t)((int)(a >> 16) % 5 * 1023 - 2047);
		w[i].q.prio_offset = b & 1 << 20 ? (int)(b >> 24) - 128 : 0;
		lb_enqueue(&w[i].q, f->be, i % 2 ? s : NULL, 0);
	}
	for (unsigned i = 0; i < n; i++) {
		seed = seed * 1664525 + 1013904223;
		if (seed >> 16 & 3)
			continue;
		lb_dequeue(&w[i].q, 0);
		n_left++;
	}
	for (unsigned i = n_left; i < n; i++)
		server_release(f->be, s, 0);
	return n_left;
}

/* Classes, then dates plus offsets, then arrival. */
static void test_priorities(void **state)
{
	enum {
		N = 300
	};
	struct waiter *w = calloc(N, sizeof(*w));

	for (uint32_t seed = 1; seed <= 20; seed++) {
		struct fx f;
		unsigned n_left;

		one_slot(&f, 1, 1, BALANCE_ROUNDROBIN);
		assert_true(server_try_take(fx_srv(&f, 0), 1, 0));
		n_left = run_priorities(&f, w, N, seed);
		assert_int_equal(n_turns, N - n_left);
		for (unsigned i = 0; i < N; i++) {
			for (unsigned k = 0; k < i; k++) {
				int64_t order = expected_order(&w[k], &w[i]);

				if (!w[i].got || !w[k].got)
					continue;
				/* Equals: in the order they came, within a queue. */
				if (order || i % 2 == k % 2)
					assert_int_equal(order <= 0, w[k].turn < w[i].turn);
			}
		}
		assert_int_equal(fx_srv(&f, 0)->n_waiting + f.be->n_waiting, 0);
		server_release(f.be, fx_srv(&f, 0), 0);
		fx_fini(&f);
	}
	free(w);
}

/* The slot goes to the worker where the more urgent one waits, though somebody waits here too. */
static void test_priorities_between_workers(void **state)
{
	struct fx f;
	struct waiter here, there, late;
	struct server *s;

	one_slot(&f, 3, 1, BALANCE_ROUNDROBIN);
	s = fx_srv(&f, 0);
	assert_true(server_try_take(s, 1, 0));
	wait_for(&f, &here, s, 0, 1000000);
	wait_for(&f, &late, s, 2, 2000000);
	there = (struct waiter){ .f = &f, .worker = 1 };
	there.q.on_turn = on_turn;
	there.q.since_ns = 3000000;
	there.q.prio_class = -1;
	lb_enqueue(&there.q, f.be, NULL, 1);
	server_release(f.be, s, 0);
	fx_deliver(&f);
	assert_ptr_equal(there.got, s);
	assert_null(here.got);
	assert_null(late.got);
	server_release(f.be, s, 1);
	fx_deliver(&f);
	assert_ptr_equal(here.got, s);
	server_release(f.be, s, 0);
	fx_deliver(&f);
	assert_ptr_equal(late.got, s);
	server_release(f.be, s, 2);
	fx_fini(&f);
}

/* A slot came free between the pick and the queue: the waiter wakes itself. */
static void test_slot_free_at_enqueue(void **state)
{
	for (unsigned for_backend = 0; for_backend < 2; for_backend++) {
		struct fx f;
		struct waiter w;

		one_slot(&f, 2, 1, BALANCE_ROUNDROBIN);
		wait_for(&f, &w, for_backend ? NULL : fx_srv(&f, 0), 1, 1);
		assert_null(w.got); /* not from inside */
		assert_int_equal(f.n_wakes, 1);
		fx_deliver(&f);
		assert_ptr_equal(w.got, fx_srv(&f, 0));
		server_release(f.be, w.got, 1);
		fx_fini(&f);
	}
}

/* The wake goes to a worker whose waiter has left meanwhile. */
static void test_wake_is_passed_on(void **state)
{
	struct fx f;
	struct waiter a, b;
	struct server *s;

	one_slot(&f, 3, 1, BALANCE_ROUNDROBIN);
	s = fx_srv(&f, 0);
	assert_true(server_try_take(s, 1, 0));
	wait_for(&f, &a, s, 1, 1);
	wait_for(&f, &b, s, 2, 1);
	server_release(f.be, s, 0);
	assert_int_equal(f.n_wakes, 1);
	lb_dequeue(f.wakes[0].worker == 1 ? &a.q : &b.q, f.wakes[0].worker);
	fx_deliver(&f);
	assert_ptr_equal(a.got ? a.got : b.got, s);
	server_release(f.be, s, 0);
	assert_int_equal(s->n_waiting, 0);
	fx_fini(&f);
}

static void test_dequeue_is_harmless(void **state)
{
	struct fx f;
	struct waiter w;
	struct queue_entry zero = { 0 };

	one_slot(&f, 1, 1, BALANCE_ROUNDROBIN);
	lb_dequeue(&zero, 0);
	assert_true(server_try_take(fx_srv(&f, 0), 1, 0));
	wait_for(&f, &w, fx_srv(&f, 0), 0, 1);
	lb_dequeue(&w.q, 0);
	lb_dequeue(&w.q, 0);
	assert_int_equal(fx_srv(&f, 0)->n_waiting, 0);
	server_release(f.be, fx_srv(&f, 0), 0);
	assert_null(w.got);
	fx_fini(&f);
}

/* Everybody fails at once: no recursion, nobody is left behind. */
static void test_failing_turns(void **state)
{
	struct fx f;
	struct waiter *w = calloc(500, sizeof(*w));
	struct server *s;

	one_slot(&f, 2, 1, BALANCE_ROUNDROBIN);
	s = fx_srv(&f, 0);
	assert_true(server_try_take(s, 1, 0));
	for (unsigned i = 0; i < 500; i++) {
		wait_for(&f, &w[i], s, i % 2, i);
		w[i].fails_at_once = true;
	}
	server_release(f.be, s, 0);
	fx_deliver(&f);
	for (unsigned i = 0; i < 500; i++)
		assert_ptr_equal(w[i].got, s);
	assert_int_equal(s->cur, 0);
	free(w);
	fx_fini(&f);
}

/* A slot of another server comes free from inside a turn. */
static void test_release_inside_turn(void **state)
{
	struct fx f;
	struct waiter a, b;

	one_slot(&f, 1, 2, BALANCE_ROUNDROBIN);
	assert_true(server_try_take(fx_srv(&f, 0), 1, 0));
	assert_true(server_try_take(fx_srv(&f, 1), 1, 0));
	wait_for(&f, &a, fx_srv(&f, 0), 0, 1);
	a.gives_up = fx_srv(&f, 1);
	wait_for(&f, &b, fx_srv(&f, 1), 0, 1);
	server_release(f.be, fx_srv(&f, 0), 0);
	assert_ptr_equal(a.got, fx_srv(&f, 0));
	assert_null(b.got); /* not on top of it */
	fx_deliver(&f);
	assert_ptr_equal(b.got, fx_srv(&f, 1));
	server_release(f.be, a.got, 0);
	server_release(f.be, b.got, 0);
	fx_fini(&f);
}

/* Workers that hold no slot get some of the slots of one that has a long queue itself. */
static void test_other_workers_get_a_share(void **state)
{
	struct fx f;
	struct waiter w[20], other;
	struct server *s;
	unsigned releases = 0;

	one_slot(&f, 2, 1, BALANCE_ROUNDROBIN);
	s = fx_srv(&f, 0);
	assert_true(server_try_take(s, 1, 0));
	for (unsigned i = 0; i < 20; i++)
		wait_for(&f, &w[i], s, 0, i);
	wait_for(&f, &other, s, 1, 0);
	for (; !other.got && releases < 20; releases++) {
		server_release(f.be, s, 0);
		fx_deliver(&f);
	}
	assert_in_range(releases, 1, 5);
	for (unsigned i = 0; i < 20; i++)
		lb_dequeue(&w[i].q, 0);
	server_release(f.be, s, 1);
	fx_fini(&f);
}

static void test_maxconn_raised(void **state)
{
	struct fx f;
	struct waiter a, b;
	struct server *s;

	one_slot(&f, 2, 1, BALANCE_ROUNDROBIN);
	s = fx_srv(&f, 0);
	assert_true(server_try_take(s, 1, 0));
	wait_for(&f, &a, s, 0, 1);
	wait_for(&f, &b, NULL, 1, 1);
	server_set_maxconn(&f.r, s, 3);
	fx_deliver(&f);
	assert_ptr_equal(a.got, s);
	assert_ptr_equal(b.got, s);
	for (int i = 0; i < 3; i++)
		server_release(f.be, s, 0);
	fx_fini(&f);
}

/* Nobody can serve, then a server comes up. */
static void test_server_comes_up(void **state)
{
	struct fx f;
	struct waiter w[3];

	one_slot(&f, 2, 2, BALANCE_ROUNDROBIN);
	server_set_op(&f.r, fx_srv(&f, 0), SERVER_STOPPED);
	server_set_op(&f.r, fx_srv(&f, 1), SERVER_STOPPED);
	wait_for(&f, &w[0], NULL, 0, 1);
	wait_for(&f, &w[1], NULL, 1, 1);
	wait_for(&f, &w[2], fx_srv(&f, 1), 1, 1);
	fx_deliver(&f);
	server_set_op(&f.r, fx_srv(&f, 0), SERVER_RUNNING);
	fx_deliver(&f);
	assert_true((w[0].got == fx_srv(&f, 0)) ^ (w[1].got == fx_srv(&f, 0)));
	assert_null(w[2].got);
	server_set_op(&f.r, fx_srv(&f, 1), SERVER_RUNNING);
	fx_deliver(&f);
	assert_true(w[2].got == fx_srv(&f, 1) || (w[0].got && w[1].got));
	server_release(f.be, fx_srv(&f, 1), 1);
	fx_deliver(&f);
	server_release(f.be, fx_srv(&f, 0), 0);
	fx_deliver(&f);
	for (unsigned i = 0; i < 3; i++)
		assert_non_null(w[i].got);
	for (unsigned i = 0; i < 2; i++)
		while (atomic_load(&fx_srv(&f, i)->cur))
			server_release(f.be, fx_srv(&f, i), 0);
	fx_fini(&f);
}

/* A server goes: with option redispatch its queue moves to the backend's, without it waits. */
static void test_server_goes_down(void **state)
{
	for (unsigned redispatch = 0; redispatch < 2; redispatch++) {
		struct fx f;
		struct waiter w;

		one_slot(&f, 2, 2, BALANCE_ROUNDROBIN);
		f.s.px.options = redispatch ? CONF_OPT(REDISPATCH) : 0;
		atomic_store(&f.be->may_redispatch, redispatch);
		assert_true(server_try_take(fx_srv(&f, 0), 1, 0));
		wait_for(&f, &w, fx_srv(&f, 0), 1, 1);
		server_set_op(&f.r, fx_srv(&f, 0), SERVER_STOPPED);
		fx_deliver(&f);
		assert_ptr_equal(w.got, redispatch ? fx_srv(&f, 1) : NULL);
		server_release(f.be, fx_srv(&f, 0), 0);
		fx_deliver(&f);
		server_set_op(&f.r, fx_srv(&f, 0), SERVER_RUNNING);
		fx_deliver(&f);
		assert_ptr_equal(w.got, fx_srv(&f, redispatch));
		server_release(f.be, w.got, 1);
		assert_int_equal(f.be->n_waiting, 0);
		fx_fini(&f);
	}
}

/* A backup does not take the backend's queue while active servers live. */
static void test_backup_stays_out(void **state)
{
	struct fx f;
	struct waiter w;

	one_slot(&f, 1, 2, BALANCE_ROUNDROBIN);
	fx_srv(&f, 1)->is_backup = true;
	assert_int_equal(lb_rebuild(&f.r, f.be), 0);
	assert_true(server_try_take(fx_srv(&f, 0), 1, 0));
	assert_true(server_try_take(fx_srv(&f, 1), 1, 0)); /* a cookie led there */
	wait_for(&f, &w, NULL, 0, 1);
	server_release(f.be, fx_srv(&f, 1), 0);
	assert_null(w.got);
	server_release(f.be, fx_srv(&f, 0), 0);
	assert_ptr_equal(w.got, fx_srv(&f, 0));
	server_release(f.be, fx_srv(&f, 0), 0);
	fx_fini(&f);
}

/* Who comes later does not overtake. */
static void test_no_overtaking(void **state)
{
	static const uint8_t algos[] = { BALANCE_ROUNDROBIN, BALANCE_STATIC_RR, BALANCE_LEASTCONN,
					 BALANCE_FIRST, BALANCE_RANDOM };

	for (size_t a = 0; a < ARRAY_SIZE(algos); a++) {
		struct fx f;
		struct waiter w;
		struct lb_request rq;
		struct server *s;

		one_slot(&f, 1, 1, algos[a]);
		rq = fx_rq(&f);
		wait_for(&f, &w, NULL, 0, 1); /* its wake is on the way */
		assert_int_equal(lb_pick(f.be, &rq, &s), LB_QUEUE_BACKEND);
		lb_dequeue(&w.q, 0);
		wait_for(&f, &w, fx_srv(&f, 0), 0, 1);
		assert_int_equal(lb_pick(f.be, &rq, &s), LB_QUEUE_BACKEND);
		fx_deliver(&f);
		server_release(f.be, w.got, 0);
		assert_int_equal(lb_pick(f.be, &rq, &s), LB_PICKED);
		server_release(f.be, s, 0);
		fx_fini(&f);
	}
}

/* --- many threads ----------------------------------------------------------------------------------- */

#define MT_THREADS 4
#define MT_STREAMS 8 /* at once on each thread */

struct mt;
struct mt_stream {
	struct queue_entry q;
	struct mt_thread *t;
	struct server *on; /* holds a slot */
	struct deferred step;
	struct timer give_up;
	unsigned hold; /* iterations left */
};

struct mt_thread {
	struct mt *mt;
	pthread_t thread;
	unsigned index;
	struct loop *loop;
	struct mailbox box;
	struct mt_stream streams[MT_STREAMS];
	unsigned n_running;
	uint64_t rng;
	unsigned n_served, n_left, n_queued;
};

struct mt {
	struct fx f;
	struct lb_waker waker;
	struct mt_thread threads[MT_THREADS];
	_Atomic int budget; /* requests still to be started */
	_Atomic unsigned n_ready, n_done;
	_Atomic unsigned in_use[4]; /* counted by the test itself */
	uint32_t limit;
	_Atomic bool is_over;
};

static void mt_wake(struct lb_waker *wk, unsigned to, struct server *s)
{
	struct mt *mt = container_of(wk, struct mt, waker);

	server_wake_by_mail(s, to, &mt->threads[to].box);
}

static uint32_t mt_rand(struct mt_thread *t)
{
	t->rng = t->rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(t->rng >> 33);
}

static void mt_begin(struct mt_stream *st, struct server *s)
{
	struct mt *mt = st->t->mt;
	unsigned n = atomic_fetch_add(&mt->in_use[s->id - 1], 1) + 1;

	if (n > mt->limit) {
		fprintf(stderr, "%u streams at once on %s\n", n, s->name);
		abort();
	}
	st->on = s;
	st->hold = mt_rand(st->t) % 3;
	loop_defer(st->t->loop, &st->step);
}

static void mt_on_turn(struct queue_entry *q, struct server *s)
{
	struct mt_stream *st = container_of(q, struct mt_stream, q);

	timer_stop(st->t->loop, &st->give_up);
	mt_begin(st, s);
}

static void mt_start(struct mt_stream *st)
{
	struct mt_thread *t = st->t;
	struct mt *mt = t->mt;
	struct lb_request rq = {
		.worker = t->index,
		.px = &mt->f.s.px,
		.has_hash = true,
		.hash = mt_rand(t),
	};
	struct server *s;

	if (atomic_fetch_sub(&mt->budget, 1) <= 0) {
		if (--t->n_running == 0)
			atomic_fetch_add(&mt->n_done, 1);
		return;
	}
	switch (lb_pick(mt->f.be, &rq, &s)) {
	case LB_PICKED:
		mt_begin(st, s);
		return;
	case LB_NONE:
		abort();
	default:
		t->n_queued++;
		st->q.since_ns = loop_now(t->loop);
		/* some lose patience */
		if (mt_rand(t) % 50 == 0)
			timer_start(t->loop, &st->give_up, mt_rand(t) % 3000000);
		lb_enqueue(&st->q, mt->f.be, s, t->index);
	}
}

static void mt_step(struct deferred *d)
{
	struct mt_stream *st = container_of(d, struct mt_stream, step);
	struct server *s = st->on;

	if (s) {
		if (st->hold--) {
			loop_defer(st->t->loop, &st->step);
			return;
		}
		st->t->n_served++;
		st->on = NULL;
		atomic_fetch_sub(&st->t->mt->in_use[s->id - 1], 1);
		server_release(st->t->mt->f.be, s, st->t->index);
	}
	mt_start(st);
}

static void mt_give_up(struct timer *timer)
{
	struct mt_stream *st = container_of(timer, struct mt_stream, give_up);

	lb_dequeue(&st->q, st->t->index);
	st->t->n_left++;
	loop_defer(st->t->loop, &st->step);
}

static void *mt_thread(void *arg)
{
	struct mt_thread *t = arg;
	struct mt *mt = t->mt;

	assert_int_equal(loop_create(&t->loop), 0);
	assert_int_equal(mailbox_open(&t->box, t->loop), 0);
	t->n_running = MT_STREAMS;
	for (unsigned i = 0; i < MT_STREAMS; i++) {
		struct mt_stream *st = &t->streams[i];

		st->t = t;
		st->q.on_turn = mt_on_turn;
		deferred_init(&st->step, mt_step);
		timer_init(&st->give_up, mt_give_up);
		loop_defer(t->loop, &st->step);
	}
	atomic_fetch_add(&mt->n_ready, 1);
	while (atomic_load(&mt->n_ready) < MT_THREADS)
		sched_yield();
	while (!atomic_load(&mt->is_over))
		assert_true(loop_run_once(t->loop, 5) >= 0);
	mailbox_close(&t->box);
	loop_destroy(t->loop);
	return NULL;
}

/* Control changes state and limits meanwhile; two seconds without any end means that somebody is stuck. */
static void mt_control(struct mt *mt, bool is_restless)
{
	int last = -1;
	unsigned idle_ms = 0;

	for (unsigned n = 0; atomic_load(&mt->n_done) < MT_THREADS; n++) {
		struct timespec ms = { .tv_nsec = 1000000 };
		struct server *s = mt->f.be->servers[n % mt->f.be->n_servers];
		int now = atomic_load(&mt->budget) + (int)atomic_load(&mt->n_done);

		idle_ms = now == last ? idle_ms + 1 : 0;
		last = now;
		if (idle_ms > 20000)
			fail_msg("stuck: %u wait for the backend",
				 atomic_load(&mt->f.be->n_waiting));
		nanosleep(&ms, NULL);
		if (!is_restless)
			continue;
		if (n % 5 == 0)
			server_set_maxconn(&mt->f.r, s, 1 + n / 5 % mt->limit);
		if (n % 7 == 0)
			server_set_op(&mt->f.r, s, SERVER_STOPPED);
		/* never without a usable server for long: back up right away */
		server_set_op(&mt->f.r, s, SERVER_RUNNING);
	}
}

/* Tables are kept until the threads are gone. */
static void mt_run(uint8_t algo, unsigned n_servers, uint32_t limit, int requests, bool is_restless)
{
	struct mt *mt = aligned_alloc(64, (sizeof(*mt) + 63) / 64 * 64);
	unsigned served = 0, left = 0, queued = 0;

	memset(mt, 0, sizeof(*mt));
	fx_init(&mt->f, MT_THREADS, n_servers);
	mt->f.s.px.balance.algo = algo;
	mt->f.s.px.options = CONF_OPT(REDISPATCH);
	for (unsigned i = 0; i < n_servers; i++)
		mt->f.s.cs[i].maxconn = limit;
	mt->waker.wake = mt_wake;
	mt->limit = limit;
	fx_commit(&mt->f);
	lb_set_waker(&mt->f.r, &mt->waker);
	atomic_store(&mt->budget, requests);
	for (unsigned i = 0; i < MT_THREADS; i++) {
		struct mt_thread *t = &mt->threads[i];

		t->mt = mt;
		t->index = i;
		t->rng = i + 1;
		assert_int_equal(pthread_create(&t->thread, NULL, mt_thread, t), 0);
	}
	mt_control(mt, is_restless);
	atomic_store(&mt->is_over, true);
	for (unsigned i = 0; i < MT_THREADS; i++) {
		struct mt_thread *t = &mt->threads[i];

		pthread_join(t->thread, NULL);
		served += t->n_served;
		left += t->n_left;
		queued += t->n_queued;
	}
	lb_set_waker(&mt->f.r, &mt->f.waker);
	assert_int_equal(served + left, requests);
	assert_in_range(queued, requests / 100, requests); /* it did queue */
	for (unsigned i = 0; i < n_servers; i++) {
		assert_int_equal(fx_srv(&mt->f, i)->cur, 0);
		assert_int_equal(fx_srv(&mt->f, i)->n_waiting, 0);
		assert_in_range(fx_srv(&mt->f, i)->max_cur, 1, limit);
		for (unsigned w = 0; w < 4; w++)
			assert_int_equal(fx_srv(&mt->f, i)->waiting[w], 0);
	}
	assert_int_equal(mt->f.be->n_waiting, 0);
	fx_fini(&mt->f);
	free(mt);
}

static void test_threads_one_server(void **state)
{
	mt_run(BALANCE_ROUNDROBIN, 1, 3, 100000, false);
}

static void test_threads_server_queue(void **state)
{
	mt_run(BALANCE_HASH, 3, 2, 30000, false);
}

static void test_threads_leastconn(void **state)
{
	/* Fewer slots than one thread has streams: on a busy machine the threads run one after the other. */
	mt_run(BALANCE_LEASTCONN, 4, 1, 30000, false);
}

static void test_threads_restless(void **state)
{
	mt_run(BALANCE_RANDOM, 4, 3, 30000, true);
}

static void test_threads_restless_hash(void **state)
{
	mt_run(BALANCE_HASH, 2, 3, 30000, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limit_formula),
		cmocka_unit_test(test_limit_in_slow_start),
		cmocka_unit_test(test_take),
		cmocka_unit_test(test_local_first),
		cmocka_unit_test(test_oldest_first),
		cmocka_unit_test(test_priorities),
		cmocka_unit_test(test_priorities_between_workers),
		cmocka_unit_test(test_slot_free_at_enqueue),
		cmocka_unit_test(test_wake_is_passed_on),
		cmocka_unit_test(test_dequeue_is_harmless),
		cmocka_unit_test(test_failing_turns),
		cmocka_unit_test(test_release_inside_turn),
		cmocka_unit_test(test_other_workers_get_a_share),
		cmocka_unit_test(test_maxconn_raised),
		cmocka_unit_test(test_server_comes_up),
		cmocka_unit_test(test_server_goes_down),
		cmocka_unit_test(test_backup_stays_out),
		cmocka_unit_test(test_no_overtaking),
		cmocka_unit_test(test_threads_one_server),
		cmocka_unit_test(test_threads_server_queue),
		cmocka_unit_test(test_threads_leastconn),
		cmocka_unit_test(test_threads_restless),
		cmocka_unit_test(test_threads_restless_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
