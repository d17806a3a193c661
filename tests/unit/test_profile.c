/* SPDX-License-Identifier: BSD-2-Clause */
/* What a loop's functions cost, and their names. links: ev base */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/symbol.h"
#include "ev/loop.h"

static struct loop *loop;

static const struct profile_row *row_of(const struct profile *p, uintptr_t fn)
{
	for (unsigned i = 0; i < PROFILE_ROWS; i++)
		if (p->rows[i].fn == fn && p->rows[i].calls)
			return &p->rows[i];
	return NULL;
}

static void spend(uint64_t ns)
{
	uint64_t begin;

	loop_update_clock(loop);
	begin = loop_now(loop);
	while (loop_now(loop) - begin < ns)
		loop_update_clock(loop);
}

static void on_deferred(struct deferred *d)
{
	spend(2000000);
	free(d); /* nothing looks at it again */
}

static void on_timer(struct timer *t)
{
	spend(1000000);
	free(t);
}

static void on_event(struct ev_fd *ev, uint32_t events)
{
	int fd = ev->fd;

	spend(3000000);
	loop_del_fd(loop, ev);
	close(fd);
	free(ev);
}

/* One of each kind. */
static void iteration(void)
{
	struct deferred *d = malloc(sizeof(*d));
	struct timer *t = malloc(sizeof(*t));
	struct ev_fd *ev = malloc(sizeof(*ev));

	assert_true(d && t && ev);
	deferred_init(d, on_deferred);
	loop_defer(loop, d);
	timer_init(t, on_timer);
	timer_start(loop, t, 0);
	ev->on_event = on_event;
	assert_int_equal(loop_add_fd(loop, ev, eventfd(1, EFD_CLOEXEC), LOOP_LEVEL), 0);
	/* The timer's tick may be the next one. */
	for (int i = 0; i < 2; i++)
		assert_int_equal(loop_run_once(loop, 5), 0);
}

static void assert_row(uintptr_t fn, uint64_t calls, uint64_t ns)
{
	const struct profile_row *row = row_of(loop_profile(loop), fn);

	assert_non_null(row);
	assert_int_equal(row->calls, calls);
	assert_true(row->busy_ns >= calls * ns);
}

static void test_functions(void **state)
{
	struct profile *p;

	assert_int_equal(loop_create(&loop), 0);
	p = loop_profile(loop);
	iteration();
	assert_null(row_of(p, (uintptr_t)on_event)); /* auto, and not slow for long */
	profile_set(p, PROFILE_ON);
	assert_int_equal(loop_run_once(loop, 0), 0);
	for (int i = 0; i < 3; i++)
		iteration();
	assert_row((uintptr_t)on_deferred, 3, 2000000);
	assert_row((uintptr_t)on_timer, 3, 1000000);
	assert_row((uintptr_t)on_event, 3, 3000000);
	/* Ready since the loop woke up, and the event's handler came first. */
	assert_true(row_of(p, (uintptr_t)on_timer)->wait_ns >= 3000000);
	assert_true(p->begin_ns && p->end_ns >= p->begin_ns);

	profile_set(p, PROFILE_OFF);
	iteration();
	iteration();
	assert_null(row_of(p, (uintptr_t)on_event)); /* all that was counted went */
	assert_int_equal(p->begin_ns, 0);
	loop_destroy(loop);
}

static void test_auto(void **state)
{
	struct profile p = { .mode = PROFILE_AUTO };
	uint64_t n = 0, busy = 0;

	/* Average of 1,024 iterations in us, and whether it is on then: it takes more to begin than to go on. */
	const struct {
		unsigned us;
		bool is_on;
	} rounds[] = {
		{ 999, false }, { 1000, true }, { 995, true }, { 989, false }, { 995, false }
	};

	for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
		for (unsigned k = 0; k < 1024; k++)
			profile_tick(&p, 1, ++n, busy += rounds[i].us * 1000);
		assert_int_equal(p.is_on, rounds[i].is_on);
	}
}

static void test_full(void **state)
{
	struct profile p = { .mode = PROFILE_ON };
	uint64_t calls = 0;

	for (uintptr_t fn = 1; fn <= 2 * PROFILE_ROWS; fn++)
		profile_add(&p, fn * 16, 1, 2);
	for (unsigned i = 0; i < PROFILE_ROWS; i++)
		calls += p.rows[i].calls;
	assert_int_equal(calls, PROFILE_ROWS);
	profile_add(&p, 16, 1, 2);
	assert_int_equal(row_of(&p, 16)->calls, 2);
	assert_int_equal(row_of(&p, 16)->wait_ns, 2);
	assert_int_equal(row_of(&p, 16)->busy_ns, 4);
}

static void test_names(void **state)
{
	struct symbols *s = symbols_open();
	char name[64], tiny[4];

	assert_non_null(s);
	symbols_name(s, (uintptr_t)test_names, name, sizeof(name));
	assert_string_equal(name, "test_names");
	symbols_name(s, (uintptr_t)profile_add, tiny, sizeof(tiny));
	assert_string_equal(tiny, "pro");
	symbols_name(s, (uintptr_t)test_names + 1, name, sizeof(name));
	assert_memory_equal(name, "0x", 2);
	symbols_name(NULL, (uintptr_t)test_names, name, sizeof(name));
	assert_memory_equal(name, "0x", 2);
	symbols_close(s);
	symbols_close(NULL);
	for (int i = 1; i < 5; i++) {
		mem_fail_at(i);
		symbols_close(symbols_open());
		mem_fail_at(0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_auto),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
