/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who waits on one worker, and in which order they are served: by class, then by due date (when they came, plus their
 * offset), then as they came. Entries are linked through themselves: no memory. Most come in order and are
 * appended to a list; the others stand in a pairing heap beside it. One thread, but for `urgency`.
 */
#ifndef LB_WAITLIST_H
#define LB_WAITLIST_H

#include <stdatomic.h>

#include "base/list.h"

/* As HAProxy's set-priority-class and set-priority-offset; what lies outside is the nearest of these. */
#define PRIO_CLASS_MAX	   2047
#define PRIO_OFFSET_MS_MAX 524287

struct queue_entry;

struct waitlist {
	struct list in_order; /* queue_entry.link */
	struct queue_entry *heap; /* those that came out of order; NULL: none */
	uint64_t n_ever;
	uint32_t n;
	/*
	 * Of the first entry, UINT64_MAX without one; less is more urgent. Other workers read it to choose whom to wake: a
	 * late value costs order, never a wake-up.
	 */
	_Atomic uint64_t urgency;
};

/* A list's place in that order. Embedded in queue_entry; private to waitlist.c. */
struct wait_place {
	struct waitlist *in; /* NULL: on none */
	struct queue_entry *child, *next, *prev; /* heap; prev: left sibling, or parent of a first child */
	uint64_t due; /* in units of 1,024 ns */
	uint64_t number;
};

void waitlist_init(struct waitlist *l);
void waitlist_add(struct waitlist *l, struct queue_entry *q); /* on no list so far */
void waitlist_remove(struct waitlist *l, struct queue_entry *q); /* on this list */
struct queue_entry *waitlist_first(const struct waitlist *l); /* NULL: nobody waits */
/* Does `a` come before `b`, whose list may be another one? Equals: yes. */
bool waitlist_is_before(const struct queue_entry *a, const struct queue_entry *b);

#endif
