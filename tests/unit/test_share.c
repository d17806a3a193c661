/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slots of servers that XDP counts at, too: one limit for both, what is given back is what was taken whatever row control
 * names meanwhile, and who waits hears of places that XDP gives back. On one thread, then on several.
 *
 * links: lb base ev
 */
#include "unit/lb_fixture.h"

#include <pthread.h>
#include <sched.h>

#define PART 1
#define OURS HG_LIVE_L7(PART)

static struct hg_live_server rows[3];
static unsigned n_told;

static void tell(struct lb_waker *wk, unsigned worker)
{
	n_told++;
}

/* Two workers; `own` is the limit of the server's line, `both` that of the row. */
static struct server *shared(struct fx *f, uint32_t own, uint32_t both)
{
	memset(rows, 0, sizeof(rows));
	n_told = 0;
	fx_init(f, 2, 1);
	f->s.cs[0].maxconn = own;
	fx_commit(f);
	f->waker.tell = tell;
	rows[1].limit = both;
	server_share(fx_srv(f, 0), &rows[1], PART);
	atomic_store(&f->be->n_shared, 1);
	fx_deliver(f);
	return fx_srv(f, 0);
}

static bool take(struct fx *f, unsigned worker)
{
	struct server *s = fx_srv(f, 0);

	return server_try_take(s, server_limit(f->be, s, NULL), worker);
}

static void test_one_limit(void **state)
{
	static const struct {
		uint32_t own, both, xdp, other, may;
	} t[] = {
		{ 0, 0, 1000, 1000, 20 }, /* none: 20 are tried */
		{ 5, 5, 0, 0, 5 },	  { 5, 5, 3, 0, 2 }, { 5, 5, 3, 1, 1 }, { 5, 5, 9, 0, 0 },
		{ 0, 5, 3, 0, 2 },	  { 9, 5, 3, 0, 2 }, { 5, 0, 3, 0, 2 }, { 5, 9, 3, 0, 2 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct fx f;
		struct server *s = shared(&f, t[i].own, t[i].both);
		uint64_t before = t[i].xdp * HG_LIVE_XDP + t[i].other * HG_LIVE_L7(!PART);
		unsigned n = 0;

		rows[1].word = before;
		while (n < 20 && take(&f, n % 2))
			n++;
		assert_int_equal(n, t[i].may);
		assert_int_equal(rows[1].word, before + n * OURS);
		assert_int_equal(s->cur, n);
		while (n--)
			server_release(f.be, s, n % 2);
		assert_int_equal(rows[1].word, before);
		fx_fini(&f);
	}
}

/* The next of a full part would count in its neighbour. */
static void test_part_is_full(void **state)
{
	struct fx f;

	shared(&f, 0, 0);
	rows[1].word = HG_LIVE_L7_MAX * OURS;
	assert_false(take(&f, 0));
	assert_int_equal(rows[1].word, HG_LIVE_L7_MAX * OURS);
	fx_fini(&f);
}

/* Each worker moves its own, when its wake comes; until then it counts where it did. */
static void test_moves(void **state)
{
	struct fx f;
	struct server *s = shared(&f, 0, 0);

	for (unsigned i = 0; i < 5; i++)
		assert_true(take(&f, i % 2));
	server_share(s, &rows[2], PART);
	assert_int_equal(rows[1].word, 5 * OURS);
	lb_serve_queue(s, 0);
	assert_int_equal(rows[1].word, 2 * OURS);
	assert_int_equal(rows[2].word, 3 * OURS);
	server_release(f.be, s, 1);
	assert_int_equal(rows[1].word, OURS);
	server_release(f.be, s, 0);
	assert_true(take(&f, 1));
	assert_int_equal(rows[1].word, 2 * OURS);
	assert_int_equal(rows[2].word, 2 * OURS);
	fx_deliver(&f);
	assert_int_equal(rows[1].word, 0);
	assert_int_equal(rows[2].word, 4 * OURS);
	/* Not shared any more, and again: what began meanwhile counts. */
	server_share(s, NULL, PART);
	fx_deliver(&f);
	assert_int_equal(rows[2].word, 0);
	assert_true(take(&f, 0));
	server_release(f.be, s, 1);
	server_share(s, &rows[1], PART);
	fx_deliver(&f);
	assert_int_equal(rows[1].word, 4 * OURS);
	for (unsigned i = 0; i < 4; i++)
		server_release(f.be, s, i == 0);
	assert_int_equal(rows[1].word, 0);
	assert_int_equal(s->cur, 0);
	fx_fini(&f);
}

struct waiter {
	struct queue_entry q;
	bool has_turn;
};

static void on_turn(struct queue_entry *q, struct server *s)
{
	container_of(q, struct waiter, q)->has_turn = true;
}

/* A place of XDP's comes free: nobody says so, the poll finds out. */
static void test_waits_for_xdp(void **state)
{
	for (unsigned of_server = 0; of_server < 2; of_server++) {
		struct fx f;
		struct server *s = shared(&f, 2, 2);
		struct waiter w = { .q.on_turn = on_turn };

		assert_false(lb_poll_shared(&f.r));
		rows[1].word = 2 * HG_LIVE_XDP;
		assert_false(take(&f, 1));
		assert_int_equal(n_told, 0);
		lb_enqueue(&w.q, f.be, of_server ? s : NULL, 1);
		assert_int_equal(n_told, 1);
		assert_true(lb_poll_shared(&f.r));
		assert_int_equal(fx_deliver(&f), 0);
		rows[1].word -= HG_LIVE_XDP;
		assert_true(lb_poll_shared(&f.r));
		fx_deliver(&f);
		assert_true(w.has_turn);
		assert_int_equal(rows[1].word, HG_LIVE_XDP + OURS);
		assert_false(lb_poll_shared(&f.r));
		server_release(f.be, s, 1);
		fx_fini(&f);
	}
}

/* A server that is the L7 tier's alone tells nobody. */
static void test_not_shared(void **state)
{
	struct waiter w = { .q.on_turn = on_turn };
	struct fx f;
	struct server *s = shared(&f, 1, 1);

	server_share(s, NULL, PART);
	atomic_store(&f.be->n_shared, 0);
	fx_deliver(&f);
	rows[1].word = HG_LIVE_XDP;
	assert_true(take(&f, 0));
	lb_enqueue(&w.q, f.be, s, 0);
	assert_int_equal(n_told, 0);
	assert_false(lb_poll_shared(&f.r));
	assert_int_equal(rows[1].word, HG_LIVE_XDP);
	server_release(f.be, s, 0);
	assert_true(w.has_turn);
	server_release(f.be, s, 0);
	fx_fini(&f);
}

/* --- many threads ------------------------------------------------------------------------------------- */

#define THREADS 3
#define ROUNDS	60000
#define LIMIT	7

struct race {
	struct fx f;
	struct lb_waker waker;
	_Atomic int in_use; /* by the test's own count */
	_Atomic unsigned n_done, n_taken, n_xdp;
	bool is_moving;
};
struct racer {
	struct race *r;
	unsigned worker;
};

/* The worker looks by itself. */
static void race_wake(struct lb_waker *wk, unsigned to, struct server *s)
{
	atomic_store(&s->w[to].wake_pending, true);
}

static void entered(struct race *r)
{
	if (atomic_fetch_add(&r->in_use, 1) + 1 > LIMIT && !r->is_moving) {
		fputs("more than the limit at once\n", stderr);
		abort();
	}
}

static void *race_worker(void *arg)
{
	struct racer *me = arg;
	struct race *r = me->r;
	struct server *s = fx_srv(&r->f, 0);
	uint64_t rnd = me->worker + 1;
	unsigned held = 0;

	/* Not before XDP is there: on few cores all would be over. */
	while (!atomic_load(&r->n_xdp))
		sched_yield();
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (i % 64 == 0)
			sched_yield();
		if (atomic_load(&s->w[me->worker].wake_pending))
			lb_serve_queue(s, me->worker);
		rnd = rnd * 6364136223846793005u + 1442695040888963407u;
		if (rnd >> 63 && held < 4) {
			if (!server_try_take(s, server_limit(r->f.be, s, NULL), me->worker))
				continue;
			entered(r);
			atomic_fetch_add(&r->n_taken, 1);
			held++;
		} else if (held) {
			atomic_fetch_sub(&r->in_use, 1);
			server_release(r->f.be, s, me->worker);
			held--;
		}
	}
	for (; held; held--) {
		atomic_fetch_sub(&r->in_use, 1);
		server_release(r->f.be, s, me->worker);
	}
	atomic_fetch_add(&r->n_done, 1);
	return NULL;
}

/* As server_begin() and server_end() of the program. */
static void *race_kernel(void *arg)
{
	struct race *r = arg;
	struct hg_live_server *row = &rows[1];

	while (atomic_load(&r->n_done) < THREADS) {
		if (hg_live_all(__atomic_fetch_add(&row->word, HG_LIVE_XDP, __ATOMIC_SEQ_CST)) <
		    LIMIT) {
			entered(r);
			atomic_fetch_add(&r->n_xdp, 1);
			sched_yield();
			atomic_fetch_sub(&r->in_use, 1);
		}
		__atomic_sub_fetch(&row->word, HG_LIVE_XDP, __ATOMIC_SEQ_CST);
		sched_yield();
	}
	return NULL;
}

static void race(bool is_moving)
{
	struct race *r = aligned_alloc(64, (sizeof(*r) + 63) / 64 * 64);
	struct racer racers[THREADS];
	pthread_t threads[THREADS + 1];
	struct server *s;

	memset(r, 0, sizeof(*r));
	memset(rows, 0, sizeof(rows));
	r->is_moving = is_moving;
	fx_init(&r->f, THREADS, 1);
	fx_commit(&r->f);
	r->waker.wake = race_wake;
	lb_set_waker(&r->f.r, &r->waker);
	s = fx_srv(&r->f, 0);
	rows[1].limit = rows[2].limit = LIMIT;
	server_share(s, &rows[1], PART);
	for (unsigned i = 0; i < THREADS; i++) {
		lb_serve_queue(s, i);
		racers[i] = (struct racer){ r, i };
		assert_int_equal(pthread_create(&threads[i], NULL, race_worker, &racers[i]), 0);
	}
	assert_int_equal(pthread_create(&threads[THREADS], NULL, race_kernel, r), 0);
	for (unsigned n = 0; is_moving && atomic_load(&r->n_done) < THREADS; n++) {
		server_share(s, n % 3 ? &rows[n % 3] : NULL, PART);
		sched_yield();
	}
	for (unsigned i = 0; i <= THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_in_range(atomic_load(&r->n_taken), ROUNDS / 10, THREADS * ROUNDS);
	assert_int_equal(s->cur, 0);
	assert_int_equal(rows[1].word, 0);
	assert_int_equal(rows[2].word, 0);
	lb_set_waker(&r->f.r, &r->f.waker);
	fx_fini(&r->f);
	free(r);
}

static void test_threads(void **state)
{
	race(false);
}

static void test_threads_moving(void **state)
{
	race(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_limit),      cmocka_unit_test(test_part_is_full),
		cmocka_unit_test(test_moves),	       cmocka_unit_test(test_waits_for_xdp),
		cmocka_unit_test(test_not_shared),     cmocka_unit_test(test_threads),
		cmocka_unit_test(test_threads_moving),
	};

	return cmocka_run_group_tests_name("share", tests, NULL, NULL);
}
