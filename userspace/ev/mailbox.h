/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mailbox: the one way to talk to another thread. Many producers, one consumer; lock-free push, one
 * eventfd write per burst. The message is embedded in an object of the sender, and belongs to the
 * receiver from mailbox_send() on.
 */
#ifndef EV_MAILBOX_H
#define EV_MAILBOX_H

#include <stdatomic.h>

#include "ev/loop.h"

struct mail {
	struct mail *next;
	void (*deliver)(struct mail *m); /* runs on the receiver's thread, may free `m` */
};

struct mailbox {
	_Atomic(struct mail *) head;
	struct ev_fd ev; /* eventfd */
	struct loop *loop;
};

HG_WUR int mailbox_open(struct mailbox *b, struct loop *l); /* receiver's thread */
void mailbox_close(struct mailbox *b); /* delivers what is left, then closes; receiver's thread */
void mailbox_send(struct mailbox *b, struct mail *m); /* any thread; in order per sender */

#endif
