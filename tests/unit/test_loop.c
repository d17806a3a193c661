/* SPDX-License-Identifier: BSD-2-Clause */
/* Event loop: descriptors, stale events, deferred calls, hooks. links: ev base */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ev/loop.h"

struct peer {
	struct ev_fd ev;
	int other; /* our end of the pair */
	unsigned n_events;
	uint32_t seen;
};

static struct loop *loop;
static struct peer peers[3];
static int victim; /* index deleted from within a handler, -1: none */
static bool is_readded;

static int setup(void **state)
{
	victim = -1;
	is_readded = false;
	return loop_create(&loop);
}

static int teardown(void **state)
{
	loop_destroy(loop);
	return 0;
}

static void on_event(struct ev_fd *ev, uint32_t events)
{
	struct peer *p = container_of(ev, struct peer, ev);

	p->n_events++;
	p->seen |= events;
	for (int i = 0; victim >= 0 && i < 3; i++) {
		struct peer *q = &peers[i];
		int fd = q->ev.fd;

		if (q == p || fd < 0)
			continue;
		loop_del_fd(loop, &q->ev);
		assert_int_equal(q->ev.fd, -1);
		/* As if the owner's memory was freed. */
		q->ev.on_event = NULL;
		if (is_readded) {
			q->ev.on_event = on_event;
			assert_int_equal(loop_add_fd(loop, &q->ev, fd, 0), 0);
		} else {
			close(fd);
		}
	}
}

static void open_peers(unsigned flags)
{
	for (int i = 0; i < 3; i++) {
		int fds[2];

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
		peers[i] = (struct peer){ .ev = { .fd = -1, .on_event = on_event },
					  .other = fds[1] };
		assert_int_equal(loop_add_fd(loop, &peers[i].ev, fds[0], flags), 0);
	}
}

static void close_peers(void)
{
	for (int i = 0; i < 3; i++) {
		loop_close_fd(loop, &peers[i].ev);
		loop_close_fd(loop, &peers[i].ev);
		loop_del_fd(loop, &peers[i].ev);
		close(peers[i].other);
	}
}

static void edges(void **state)
{
	open_peers(0);
	assert_int_equal(loop_run_once(loop, 100), 0);
	/* Writable from the start, reported once. */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(peers[i].n_events, 1);
		assert_int_equal(peers[i].seen, EPOLLOUT);
	}
	assert_int_equal(loop_run_once(loop, 0), 0);
	assert_int_equal(peers[0].n_events, 1);
	assert_int_equal(write(peers[1].other, "x", 1), 1);
	assert_int_equal(loop_run_once(loop, 100), 0);
	assert_true(peers[1].seen & EPOLLIN);
	assert_int_equal(peers[1].n_events, 2);
	assert_int_equal(loop_run_once(loop, 0), 0);
	assert_int_equal(peers[1].n_events, 2); /* unread, but no new edge */
	shutdown(peers[2].other, SHUT_WR);
	assert_int_equal(loop_run_once(loop, 100), 0);
	assert_true(peers[2].seen & EPOLLRDHUP);
	close_peers();
}

static void level_triggered(void **state)
{
	open_peers(LOOP_LEVEL);
	assert_int_equal(loop_run_once(loop, 0), 0);
	assert_int_equal(peers[0].n_events, 0);
	assert_int_equal(write(peers[0].other, "x", 1), 1);
	assert_int_equal(loop_run_once(loop, 100), 0);
	assert_int_equal(loop_run_once(loop, 100), 0);
	assert_int_equal(peers[0].n_events, 2);
	close_peers();
}

/* All three are ready in one batch; the first handler removes the others. */
static void no_stale_events(void **state)
{
	open_peers(0);
	victim = 0;
	assert_int_equal(loop_run_once(loop, 100), 0);
	assert_int_equal(peers[0].n_events + peers[1].n_events + peers[2].n_events, 1);
	assert_int_equal(loop_stats(loop)->events, 1);
	victim = -1;
	close_peers();
}

static void readded_in_handler(void **state)
{
	unsigned first;

	open_peers(0);
	victim = 0;
	is_readded = true;
	assert_int_equal(loop_run_once(loop, 100), 0);
	first = peers[0].n_events + peers[1].n_events + peers[2].n_events;
	assert_int_equal(first, 1);
	/* The new registrations get events of their own. */
	victim = -1;
	assert_int_equal(loop_run_once(loop, 100), 0);
	assert_int_equal(peers[0].n_events + peers[1].n_events + peers[2].n_events, 3);
	close_peers();
}

static void on_self_delete(struct ev_fd *ev, uint32_t events)
{
	container_of(ev, struct peer, ev)->n_events++;
	loop_close_fd(loop, ev);
}

static void deletes_itself(void **state)
{
	open_peers(0);
	for (int i = 0; i < 3; i++)
		peers[i].ev.on_event = on_self_delete;
	assert_int_equal(loop_run_once(loop, 100), 0);
	assert_int_equal(loop_run_once(loop, 0), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(peers[i].n_events, 1);
	close_peers();
}

static void errors(void **state)
{
	struct ev_fd ev = { .fd = -1, .on_event = on_event };
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct loop *l;

	assert_int_equal(loop_add_fd(loop, &ev, -1, 0), -EBADF);
	assert_int_equal(loop_add_fd(loop, &ev, fd, 0), -EPERM);
	assert_int_equal(ev.fd, -1);
	loop_del_fd(loop, &ev);
	close(fd);
	mem_fail_at(1);
	assert_int_equal(loop_create(&l), -ENOMEM);
	mem_fail_at(0);
	loop_destroy(NULL);
}

static struct deferred d1, d2;
static unsigned n_calls;
static char order[16];

static void call1(struct deferred *d)
{
	order[n_calls++] = '1';
	/* Goes to the next iteration, not into this one. */
	if (n_calls < 3)
		loop_defer(loop, d);
	loop_undefer(&d2);
}

static void call2(struct deferred *d)
{
	order[n_calls++] = '2';
}

static void deferred_calls(void **state)
{
	n_calls = 0;
	deferred_init(&d1, call1);
	deferred_init(&d2, call2);
	loop_defer(loop, &d2);
	loop_defer(loop, &d1);
	loop_defer(loop, &d1);
	/* Must not sleep although nothing else happens. */
	assert_int_equal(loop_run_once(loop, -1), 0);
	assert_memory_equal(order, "21", 2);
	assert_int_equal(n_calls, 2);
	loop_defer(loop, &d2); /* behind d1, which takes it off the running queue */
	assert_int_equal(loop_run_once(loop, 0), 0);
	assert_memory_equal(order, "211", 3);
	assert_int_equal(n_calls, 3);
	assert_int_equal(loop_stats(loop)->deferred, 3);
	loop_undefer(&d1);
	loop_undefer(&d2);
}

static void call_stop(struct deferred *d)
{
	order[n_calls++] = 's';
	loop_stop(loop);
}

static struct loop_hook h1, h2;

static void hook1(struct loop_hook *h)
{
	order[n_calls++] = 'a';
	loop_del_hook(h);
}

static void hook2(struct loop_hook *h)
{
	order[n_calls++] = 'b';
	if (n_calls == 4)
		loop_stop(loop);
}

static void hooks_and_stop(void **state)
{
	char *p;

	n_calls = 0;
	h1.call = hook1;
	h2.call = hook2;
	loop_add_hook(loop, &h1);
	loop_add_hook(loop, &h2);
	p = arena_alloc(loop_scratch(loop), 100);
	assert_non_null(p);
	assert_int_equal(loop_run_once(loop, 0), 0);
	assert_int_equal(loop_run_once(loop, 0), 0);
	assert_ptr_equal(arena_alloc(loop_scratch(loop), 100), p);
	/* Stopped by a deferred call: no sleep; stopped by a hook: no further iteration. */
	deferred_init(&d2, call_stop);
	loop_defer(loop, &d2);
	n_calls = 2;
	assert_int_equal(loop_run(loop), 0);
	assert_memory_equal(order, "absb", 4);
	loop_del_hook(&h2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(edges, setup, teardown),
		cmocka_unit_test_setup_teardown(level_triggered, setup, teardown),
		cmocka_unit_test_setup_teardown(no_stale_events, setup, teardown),
		cmocka_unit_test_setup_teardown(readded_in_handler, setup, teardown),
		cmocka_unit_test_setup_teardown(deletes_itself, setup, teardown),
		cmocka_unit_test_setup_teardown(errors, setup, teardown),
		cmocka_unit_test_setup_teardown(deferred_calls, setup, teardown),
		cmocka_unit_test_setup_teardown(hooks_and_stop, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
