/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Event loop: the iteration described in loop.h. One thread; the loop owns nothing that is registered
 * with it. System calls in steady state: one epoll_wait per iteration and nothing else (clocks come
 * from the vDSO).
 */
#include "ev/loop.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "ev/loop_priv.h"

#define SCRATCH_CHUNK 16384
#define WAIT_MAX_MS   (1 << 30)

static uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	/* Cannot fail: both clocks exist on every kernel and `ts` is ours. */
	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

uint64_t loop_clock_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

void loop_update_clock(struct loop *l)
{
	l->clock.now = clock_ns(CLOCK_MONOTONIC);
	l->clock.wall = clock_ns(CLOCK_REALTIME);
}

int loop_create(struct loop **ret_loop)
{
	struct loop *l = mem_zalloc(sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd < 0) {
		int r = -errno;

		mem_free(l);
		return r;
	}
	list_init(&l->deferred);
	list_init(&l->hooks);
	arena_init(&l->scratch, SCRATCH_CHUNK);
	loop_update_clock(l);
	l->awake_since = l->clock.now;
	wheel_init(&l->wheel, l->clock.now / LOOP_TICK_NS);
	*ret_loop = l;
	return 0;
}

void loop_destroy(struct loop *l)
{
	if (!l)
		return;
	close(l->epoll_fd);
	arena_free(&l->scratch);
	mem_free(l);
}

int loop_add_fd(struct loop *l, struct ev_fd *ev, int fd, unsigned flags)
{
	struct epoll_event e = {
		.events = flags & LOOP_LEVEL ? EPOLLIN : EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
		.data.ptr = ev,
	};

	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0)
		return -errno;
	ev->fd = fd;
	ev->slot = 0;
	return 0;
}

/* Events of this batch that are still to be delivered must not reach an owner that is gone. */
static void forget_events(struct loop *l, struct ev_fd *ev)
{
	if (ev->slot) {
		BUG_ON(ev->slot > l->n_batch || l->batch[ev->slot - 1].data.ptr != ev);
		l->batch[ev->slot - 1].data.ptr = NULL;
		ev->slot = 0;
	}
	ev->fd = -1;
}

void loop_del_fd(struct loop *l, struct ev_fd *ev)
{
	if (ev->fd < 0)
		return;
	/* Explicit: a duplicate of the descriptor would keep the registration alive (epoll(7), Q6). */
	epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, ev->fd, NULL);
	forget_events(l, ev);
}

void loop_close_fd(struct loop *l, struct ev_fd *ev)
{
	int fd = ev->fd;

	if (fd < 0)
		return;
	forget_events(l, ev);
	close(fd);
}

void deferred_init(struct deferred *d, void (*call)(struct deferred *d))
{
	list_init(&d->link);
	d->call = call;
}

void loop_defer(struct loop *l, struct deferred *d)
{
	if (list_is_empty(&d->link))
		list_push_back(&l->deferred, &d->link);
}

void loop_undefer(struct deferred *d)
{
	list_del(&d->link);
}

void loop_add_hook(struct loop *l, struct loop_hook *h)
{
	list_push_back(&l->hooks, &h->link);
}

void loop_del_hook(struct loop_hook *h)
{
	list_del(&h->link);
}

struct arena *loop_scratch(struct loop *l)
{
	return &l->scratch;
}

const struct loop_stats *loop_stats(const struct loop *l)
{
	return &l->stats;
}

struct profile *loop_profile(struct loop *l)
{
	return &l->profile;
}

/* Since the loop woke up: what is called now may have been ready as long. The callee may free itself. */
static void call_measured(struct loop *l, struct deferred *d)
{
	uintptr_t fn = (uintptr_t)d->call;
	uint64_t begin = loop_clock_ns();

	d->call(d);
	profile_add(&l->profile, fn, begin - l->awake_since, loop_clock_ns() - begin);
}

static void handle_measured(struct loop *l, struct ev_fd *ev, uint32_t events)
{
	uintptr_t fn = (uintptr_t)ev->on_event;
	uint64_t begin = loop_clock_ns();

	ev->on_event(ev, events);
	profile_add(&l->profile, fn, begin - l->awake_since, loop_clock_ns() - begin);
}

static void run_deferred(struct loop *l)
{
	struct list queue = LIST_INIT(queue);
	struct list *link;

	list_splice_back(&queue, &l->deferred);
	while ((link = list_pop_front(&queue))) {
		struct deferred *d = list_entry(link, struct deferred, link);

		l->stats.deferred++;
		if (unlikely(l->profile.is_on))
			call_measured(l, d);
		else
			d->call(d);
	}
}

/* Milliseconds until the next timer, rounded up; -1 for ever. */
static int wait_ms(struct loop *l, uint64_t now)
{
	uint64_t next, ms;

	if (!list_is_empty(&l->deferred) || l->is_stopping)
		return 0;
	next = wheel_next(&l->wheel);
	if (next == UINT64_MAX)
		return -1;
	if (next > (now + (uint64_t)WAIT_MAX_MS * 1000000) / LOOP_TICK_NS)
		return WAIT_MAX_MS;
	if (next * LOOP_TICK_NS <= now)
		return 0;
	ms = (next * LOOP_TICK_NS - now + 999999) / 1000000;
	return (int)ms;
}

static int wait_events(struct loop *l, int max_wait_ms)
{
	uint64_t asleep = clock_ns(CLOCK_MONOTONIC);
	int ms = wait_ms(l, asleep);
	int n;

	if (max_wait_ms >= 0 && (ms < 0 || ms > max_wait_ms))
		ms = max_wait_ms;
	l->stats.busy_ns += asleep - l->awake_since;
	n = epoll_wait(l->epoll_fd, l->batch, LOOP_BATCH, ms);
	if (n < 0) {
		if (errno != EINTR)
			return -errno;
		n = 0;
	}
	loop_update_clock(l);
	l->stats.idle_ns += l->clock.now - asleep;
	l->awake_since = l->clock.now;
	l->n_batch = (unsigned)n;
	return 0;
}

static void run_events(struct loop *l)
{
	for (unsigned i = 0; i < l->n_batch; i++)
		((struct ev_fd *)l->batch[i].data.ptr)->slot = i + 1;
	for (unsigned i = 0; i < l->n_batch; i++) {
		struct ev_fd *ev = l->batch[i].data.ptr;

		if (!ev)
			continue;
		ev->slot = 0;
		l->stats.events++;
		if (unlikely(l->profile.is_on))
			handle_measured(l, ev, l->batch[i].events);
		else
			ev->on_event(ev, l->batch[i].events);
	}
	l->n_batch = 0;
}

static void run_hooks(struct loop *l)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &l->hooks) {
		struct loop_hook *h = list_entry(pos, struct loop_hook, link);

		h->call(h);
	}
}

int loop_run_once(struct loop *l, int max_wait_ms)
{
	int r;

	arena_reset(&l->scratch);
	run_deferred(l);
	r = wait_events(l, max_wait_ms);
	if (r)
		return r;
	run_events(l);
	l->stats.timers += wheel_advance(&l->wheel, l->clock.now / LOOP_TICK_NS, &l->profile);
	run_hooks(l);
	l->stats.iterations++;
	profile_tick(&l->profile, l->clock.now, l->stats.iterations, l->stats.busy_ns);
	return 0;
}

int loop_run(struct loop *l)
{
	int r = 0;

	while (!l->is_stopping && r == 0)
		r = loop_run_once(l, -1);
	l->is_stopping = false;
	return r;
}

void loop_stop(struct loop *l)
{
	l->is_stopping = true;
}
