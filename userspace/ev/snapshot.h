/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Snapshots: immutable generations published by the control thread and pinned by workers.
 *
 *   control: snapshot_publish()      stores the new current pointer (release)
 *   worker:  snapshot_adopt()        at the top of an iteration, after a mail said there is news
 *            snapshot_pin/unpin()    plain counts of this worker, once per stream
 *   worker → control: when a retired generation's count reaches 0 on a worker, it calls `on_done`
 *   control: snapshot_retire_done()  frees the generation when all workers said so
 *
 * No atomics on the request path; a stream may outlive any number of loop iterations.
 */
#ifndef EV_SNAPSHOT_H
#define EV_SNAPSHOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Alive at once; one publish more has to wait. An old generation costs the memory of its configuration, and a day of
 * reloads under streams that last for hours (WebSockets) keeps one alive for each.
 */
#define SNAPSHOT_GENERATIONS 64

/* Embedded in what is published. */
struct snapshot {
	uint64_t generation; /* 1, 2, … set by snapshot_publish() */
	unsigned slot; /* index in the hub's `alive` and the views' `gen` while it is alive */
	unsigned waiting; /* control: workers that have not said "done" */
	struct snapshot *older; /* published before; only valid for a worker that has not let it go */
	void (*destroy)(struct snapshot *s); /* control thread, when the last worker let go */
};

/* Control thread's side; one per process. */
struct snapshot_hub {
	_Atomic(struct snapshot *) current;
	struct snapshot *alive[SNAPSHOT_GENERATIONS];
	uint64_t last_generation;
	unsigned n_workers;
};

/* Worker's side. */
struct snapshot_view {
	struct snapshot_hub *hub;
	struct snapshot *current; /* adopted */
	struct {
		struct snapshot *snap;
		uint32_t pins;
		bool is_retired;
	} gen[SNAPSHOT_GENERATIONS];
	/* Called once per retired generation, when its pins are gone; sends the mail to control. */
	void (*on_done)(struct snapshot_view *v, struct snapshot *s);
};

void snapshot_hub_init(struct snapshot_hub *h, unsigned n_workers);
/* Control: 0, or -EBUSY when SNAPSHOT_GENERATIONS are alive (nothing published). */
HG_WUR int snapshot_publish(struct snapshot_hub *h, struct snapshot *s);
/* Control: one worker is done with `s`; destroys it when it was the last. */
void snapshot_retire_done(struct snapshot_hub *h, struct snapshot *s);
/* Control: all generations that are alive, for `show snapshots`; returns how many. */
unsigned snapshot_list(struct snapshot_hub *h, struct snapshot *ret[SNAPSHOT_GENERATIONS]);

void snapshot_view_init(struct snapshot_view *v, struct snapshot_hub *h,
			void (*on_done)(struct snapshot_view *v, struct snapshot *s));
/* Worker: takes over the hub's current generation, retires the one before. */
void snapshot_adopt(struct snapshot_view *v);
/* Worker, for good: adopts what is new and retires everything; the view only unpins afterwards. */
void snapshot_leave(struct snapshot_view *v);
struct snapshot *snapshot_pin(struct snapshot_view *v); /* the current one, never NULL after adopt */
/* One more pin on one that the caller's has pinned, current or not. */
void snapshot_pin_again(struct snapshot_view *v, struct snapshot *s);
void snapshot_unpin(struct snapshot_view *v, struct snapshot *s);

#endif
