/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mailbox: senders push on a lock-free stack, the receiver takes all of it at once and turns it round.
 * Only the sender that finds the stack empty wakes the receiver. The eventfd is registered
 * edge-triggered and never read: every write is a new edge, so waking costs the receiver no call.
 */
#include "ev/mailbox.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* All that is there, oldest first. */
static struct mail *take_all(struct mailbox *b)
{
	struct mail *m = atomic_exchange_explicit(&b->head, NULL, memory_order_acquire);
	struct mail *first = NULL;

	while (m) {
		struct mail *next = m->next;

		m->next = first;
		first = m;
		m = next;
	}
	return first;
}

static bool deliver_all(struct mailbox *b)
{
	struct mail *m = take_all(b);
	bool is_any = m != NULL;

	while (m) {
		struct mail *next = m->next;

		m->deliver(m);
		m = next;
	}
	return is_any;
}

static void on_event(struct ev_fd *ev, uint32_t events)
{
	deliver_all(container_of(ev, struct mailbox, ev));
}

int mailbox_open(struct mailbox *b, struct loop *l)
{
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	atomic_init(&b->head, NULL);
	b->loop = l;
	b->ev = (struct ev_fd){ .fd = -1, .on_event = on_event };
	r = loop_add_fd(l, &b->ev, fd, 0);
	if (r)
		close(fd);
	return r;
}

void mailbox_close(struct mailbox *b)
{
	if (b->ev.fd < 0)
		return;
	/* A delivery may send to this mailbox again. */
	while (deliver_all(b))
		;
	loop_close_fd(b->loop, &b->ev);
}

void mailbox_send(struct mailbox *b, struct mail *m)
{
	struct mail *head = atomic_load_explicit(&b->head, memory_order_relaxed);
	const uint64_t one = 1;

	do {
		m->next = head;
	} while (!atomic_compare_exchange_weak_explicit(&b->head, &head, m, memory_order_release,
							memory_order_relaxed));
	/* From here on `m` is the receiver's. EAGAIN means the counter is full, so it is awake anyway. */
	if (!head && write(b->ev.fd, &one, sizeof(one)) < 0)
		BUG_ON(errno != EAGAIN);
}
