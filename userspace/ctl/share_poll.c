/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams that wait for servers that XDP counts at, too (lb/share.c): a place that comes free there wakes nobody, so
 * control looks as long as somebody waits. Control thread.
 */
#include "ctl/ctl_priv.h"

/* How late a stream may notice that XDP has given a place back. */
#define SHARE_POLL_NS 10000000ull

void ctl_poll_shared(struct timer *t)
{
	struct ctl *ctl = container_of(t, struct ctl, share_poll);

	if (!lb_poll_shared(&ctl->registry)) {
		/* The flag goes down before the last look: who comes later tells again, who came before is seen. */
		atomic_store(&ctl->shared.is_wait_told, false);
		if (!lb_poll_shared(&ctl->registry) ||
		    atomic_exchange(&ctl->shared.is_wait_told, true))
			return;
	}
	timer_start(ctl->loop, t, SHARE_POLL_NS);
}

void ctl_on_waiting(struct worker *w)
{
	struct ctl *ctl = worker_owner(w);

	ctl_poll_shared(&ctl->share_poll);
}
