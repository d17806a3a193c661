/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Event loop of one thread: epoll (edge-triggered, each descriptor registered once for both
 * directions), a timer wheel, deferred calls and a cached clock. Nothing here is shared: every
 * function belongs to the thread that runs the loop.
 *
 * One iteration:
 *   1. reset the scratch arena
 *   2. run deferred calls queued so far (those queued meanwhile run in the next iteration)
 *   3. compute how long to sleep: 0 when deferred calls wait, else until the next timer
 *   4. epoll_wait, read the clock once
 *   5. call the handler of every ready descriptor
 *   6. run the timers that are due
 *   7. call the `on_iteration` hooks
 */
#ifndef EV_LOOP_H
#define EV_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/list.h"
#include "base/mem.h"
#include "ev/profile.h"

struct loop;

/*
 * A descriptor. Embedded in its owner. The handler gets epoll's bits. After loop_del_fd() the
 * handler is not called again, not even for events of the batch that is being processed; the owner may be
 * freed at once.
 */
struct ev_fd {
	int fd; /* -1: not registered */
	uint32_t slot; /* 1 + index in the loop's batch while events are pending, private */
	void (*on_event)(struct ev_fd *ev, uint32_t events);
};

/* A timer. Embedded; not running after timer_init(). Resolution: LOOP_TICK_NS, never early. */
struct timer {
	struct list link;
	uint64_t expires; /* tick */
	void (*on_expire)(struct timer *t);
};

/* A call made from the top of the next iteration. Queuing twice is queuing once. */
struct deferred {
	struct list link;
	void (*call)(struct deferred *d);
};

#define LOOP_TICK_NS 1000000ull /* 1 ms */

HG_WUR int loop_create(struct loop **ret_loop); /* 0, -ENOMEM, or what epoll_create1 says */
void loop_destroy(struct loop *l); /* NULL is ignored; descriptors must be gone */
HG_WUR int loop_run(struct loop *l); /* until loop_stop(); 0 or -errno */
void loop_stop(struct loop *l);
/* One iteration; sleeps at most max_wait_ms (-1: no bound). For tests and the control thread. */
HG_WUR int loop_run_once(struct loop *l, int max_wait_ms);

/*
 * Registers `ev` for reading and writing, edge-triggered: the handler runs when something changed,
 * and must read (write) until it would block or remember that it did not. `flags`: LOOP_LEVEL for
 * level-triggered reading only (listeners, eventfds).
 */
enum loop_fd_flags { LOOP_LEVEL = 1 << 0 };
HG_WUR int loop_add_fd(struct loop *l, struct ev_fd *ev, int fd, unsigned flags);
void loop_del_fd(struct loop *l, struct ev_fd *ev); /* does not close; harmless when not registered */
/*
 * The same and closes the descriptor: one system call less, because closing the last reference takes it
 * out of epoll. Not for descriptors that were duplicated, inherited or passed on.
 */
void loop_close_fd(struct loop *l, struct ev_fd *ev);

void timer_init(struct timer *t, void (*on_expire)(struct timer *t));
/* (Re)starts: runs once, `delay_ns` from the cached clock. Moving a timer further away is O(1) and cheap. */
void timer_start(struct loop *l, struct timer *t, uint64_t delay_ns);
void timer_stop(struct loop *l, struct timer *t); /* harmless when not running */
static inline bool timer_is_running(const struct timer *t)
{
	return !list_is_empty(&t->link);
}
/* Nanoseconds left, 0 when due or not running. */
uint64_t timer_left_ns(const struct loop *l, const struct timer *t);

void deferred_init(struct deferred *d, void (*call)(struct deferred *d));
void loop_defer(struct loop *l, struct deferred *d);
void loop_undefer(struct deferred *d);

/* Runs at the end of every iteration (step 7), in order of registration. */
struct loop_hook {
	struct list link;
	void (*call)(struct loop_hook *h);
};
void loop_add_hook(struct loop *l, struct loop_hook *h);
void loop_del_hook(struct loop_hook *h);

/* Cached clocks, read once per iteration: CLOCK_MONOTONIC and CLOCK_REALTIME, nanoseconds. What a loop begins with. */
struct loop_clock {
	uint64_t now, wall;
};
static inline uint64_t loop_now(const struct loop *l)
{
	return ((const struct loop_clock *)(const void *)l)->now;
}
static inline uint64_t loop_wall(const struct loop *l)
{
	return ((const struct loop_clock *)(const void *)l)->wall;
}
/* Reads the clock again (after long work, before measuring). */
void loop_update_clock(struct loop *l);
/* Scratch memory, valid until the end of this iteration. */
struct arena *loop_scratch(struct loop *l);

/* What the loop did since its creation, for `show info` (Idle_pct) and `show activity`. */
struct loop_stats {
	uint64_t iterations, events, timers, deferred;
	uint64_t idle_ns, busy_ns; /* asleep in epoll_wait, and not */
};
const struct loop_stats *loop_stats(const struct loop *l);
/* What the functions called by it cost, for `show profiling`. Lives as long as the loop. */
struct profile *loop_profile(struct loop *l);

#endif
