/* SPDX-License-Identifier: BSD-2-Clause */
/* Timer wheel: properties against a plain array, and through the loop. links: ev base */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

#include "ev/loop_priv.h"

#define N 300

/* One timer of the model: the tick at which it must run, 0 when stopped. */
struct entry {
	struct timer t;
	uint64_t due;
	unsigned n_runs;
};

static struct entry entries[N];
static struct loop *loop;
static uint64_t now_tick, seed;
static bool is_chaos; /* handlers start and stop others */

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static uint64_t rnd_delay(void)
{
	/* Every magnitude alike: from 0 to days. */
	return rnd() % (1ull << (rnd() % 40));
}

/* What the header promises: rounded up to a tick, and never in a tick that has run. */
static void start(struct entry *e, uint64_t delay_ns)
{
	uint64_t tick = (loop->clock.now + delay_ns + LOOP_TICK_NS - 1) / LOOP_TICK_NS;

	if (tick <= loop->wheel.cur)
		tick = loop->wheel.cur + 1;
	timer_start(loop, &e->t, delay_ns);
	e->due = tick;
}

static void stop(struct entry *e)
{
	timer_stop(loop, &e->t);
	e->due = 0;
}

static void on_expire(struct timer *t)
{
	struct entry *e = container_of(t, struct entry, t);

	assert_false(timer_is_running(t));
	if (e->due == 0)
		fail_msg("stopped timer ran");
	if (e->due > now_tick)
		fail_msg("timer ran %llu ticks early", (unsigned long long)(e->due - now_tick));
	if (e->due != loop->wheel.cur)
		fail_msg("due %llu ran at %llu", (unsigned long long)e->due,
			 (unsigned long long)loop->wheel.cur);
	e->due = 0;
	e->n_runs++;
	if (!is_chaos)
		return;
	if (rnd() % 2)
		start(e, rnd_delay());
	if (rnd() % 4 == 0)
		stop(&entries[rnd() % N]);
	if (rnd() % 4 == 0)
		start(&entries[rnd() % N], rnd_delay());
}

static uint64_t model_next(void)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; i < N; i++) {
		if (entries[i].due && entries[i].due < next)
			next = entries[i].due;
	}
	return next;
}

static void set_now(uint64_t ns)
{
	loop->clock.now = ns;
	now_tick = ns / LOOP_TICK_NS;
}

static void check_model(void)
{
	uint64_t next = wheel_next(&loop->wheel);

	if (next > model_next())
		fail_msg("next expiry is too late");
	for (unsigned i = 0; i < N; i++) {
		struct entry *e = &entries[i];

		assert_int_equal(timer_is_running(&e->t), e->due != 0);
		if (e->due && e->due <= now_tick)
			fail_msg("timer %u did not run", i);
		assert_true(timer_left_ns(loop, &e->t) ==
			    (e->due ? e->due * LOOP_TICK_NS - loop->clock.now : 0));
	}
}

static void run_model(uint64_t first_seed, bool chaos, uint64_t origin_ns)
{
	seed = first_seed;
	is_chaos = chaos;
	assert_int_equal(loop_create(&loop), 0);
	set_now(origin_ns);
	wheel_init(&loop->wheel, now_tick);
	for (unsigned i = 0; i < N; i++) {
		timer_init(&entries[i].t, on_expire);
		entries[i].due = 0;
	}
	for (unsigned step = 0; step < 4000; step++) {
		for (unsigned k = rnd() % 8; k > 0; k--) {
			struct entry *e = &entries[rnd() % N];

			if (rnd() % 4)
				start(e, rnd_delay());
			else
				stop(e);
		}
		/* Jumps from nothing to hours, or exactly to the next expiry. */
		if (rnd() % 3 == 0 && model_next() != UINT64_MAX)
			set_now(model_next() * LOOP_TICK_NS);
		else
			set_now(loop->clock.now + rnd() % (1ull << (rnd() % 43)));
		wheel_advance(&loop->wheel, now_tick, &loop->profile);
		check_model();
	}
	loop_destroy(loop);
}

static void model_plain(void **state)
{
	for (uint64_t s = 1; s <= 10; s++)
		run_model(s * 0x9e3779b97f4a7c15ull, false, s * 1234567891ull);
}

static void model_chaos(void **state)
{
	for (uint64_t s = 1; s <= 10; s++)
		run_model(s * 0xda942042e4dd58b5ull, true, s * 777777777777ull);
}

/* Just below a carry into every digit of the wheel. */
static void model_at_carries(void **state)
{
	for (unsigned bits = 6; bits <= 42; bits += 6)
		run_model(bits, true, ((1ull << bits) - 2) * LOOP_TICK_NS);
}

static void extreme_delays(void **state)
{
	struct timer t;

	assert_int_equal(loop_create(&loop), 0);
	timer_init(&t, on_expire);
	timer_start(loop, &t, UINT64_MAX);
	assert_true(timer_is_running(&t));
	assert_true(timer_left_ns(loop, &t) > (1ull << 63));
	timer_start(loop, &t, 0); /* earlier again */
	assert_true(timer_left_ns(loop, &t) <= 2 * LOOP_TICK_NS);
	timer_stop(loop, &t);
	timer_stop(loop, &t);
	assert_int_equal(timer_left_ns(loop, &t), 0);
	assert_true(wheel_next(&loop->wheel) == UINT64_MAX);
	/* 30 days through the loop: must not wrap epoll_wait's int. */
	timer_start(loop, &t, 30ull * 86400 * 1000000000);
	assert_int_equal(loop_run_once(loop, 1), 0);
	assert_true(timer_is_running(&t));
	timer_stop(loop, &t);
	loop_destroy(loop);
}

/* Re-arming to a later time must not touch the wheel: that is what makes it cheap. */
static void moving_later_is_lazy(void **state)
{
	struct timer t;
	struct list *prev;

	assert_int_equal(loop_create(&loop), 0);
	timer_init(&t, on_expire);
	timer_start(loop, &t, 50 * LOOP_TICK_NS);
	prev = t.link.prev;
	timer_start(loop, &t, 5000000 * LOOP_TICK_NS);
	assert_ptr_equal(t.link.prev, prev);
	timer_stop(loop, &t);
	loop_destroy(loop);
}

static unsigned n_real;
static uint64_t real_at;

static void on_real(struct timer *t)
{
	n_real++;
	real_at = loop_now(loop);
}

static void real_time(void **state)
{
	uint64_t begin;
	struct timer t;

	assert_int_equal(loop_create(&loop), 0);
	timer_init(&t, on_real);
	begin = loop_now(loop);
	timer_start(loop, &t, 20000000);
	while (!n_real)
		assert_int_equal(loop_run_once(loop, -1), 0);
	assert_true(real_at - begin >= 20000000);
	assert_true(real_at - begin < 2000000000);
	/* Sleeping, not spinning. */
	assert_true(loop_stats(loop)->iterations < 10);
	assert_int_equal(loop_stats(loop)->timers, 1);
	assert_true(loop_stats(loop)->idle_ns >= 15000000);
	loop_destroy(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(model_plain),		cmocka_unit_test(model_chaos),
		cmocka_unit_test(model_at_carries),	cmocka_unit_test(extreme_delays),
		cmocka_unit_test(moving_later_is_lazy), cmocka_unit_test(real_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
