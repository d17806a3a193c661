/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the daemon ends: at once; or softly, after `grace`, when the open connections have ended or hard-stop-after is
 * over. Control thread.
 */
#include "ctl/ctl_priv.h"

static void on_drained(struct worker *w)
{
	struct ctl *ctl = worker_owner(w);

	if (++ctl->n_drained == ctl->n_workers)
		loop_stop(ctl->loop);
}

static void hard_stop_expired(struct timer *t)
{
	struct ctl *ctl = container_of(t, struct ctl, hard_stop);

	log_msg(LOG_LVL_WARNING, "hard-stop-after reached: ending the connections that are left");
	for (unsigned i = 0; i < ctl->n_workers; i++)
		worker_kill_all(ctl->workers[i]);
}

static void begin_draining(struct ctl *ctl)
{
	log_msg(LOG_LVL_NOTICE, "stopping: no new connections, waiting for the open ones");
	if (ctl->current->conf->global.hard_stop_after)
		timer_start(ctl->loop, &ctl->hard_stop, ctl->current->conf->global.hard_stop_after);
	for (unsigned i = 0; i < ctl->n_workers; i++)
		worker_drain(ctl->workers[i], on_drained);
	/* Nobody accepts any more: who connects now shall be refused, not wait for an answer. */
	quiesce_after(&ctl->registry, ctl_shut_listeners, ctl);
}

static void grace_expired(struct timer *t)
{
	begin_draining(container_of(t, struct ctl, grace));
}

void ctl_init_stop(struct ctl *ctl)
{
	timer_init(&ctl->hard_stop, hard_stop_expired);
	timer_init(&ctl->grace, grace_expired);
}

void ctl_soft_stop(struct ctl *ctl)
{
	uint64_t grace;

	if (ctl->phase != CTL_RUNNING)
		return;
	grace = ctl->current->conf->global.grace;
	ctl->phase = CTL_STOPPING;
	notify_send(ctl, "STOPPING=1\nSTATUS=Waiting for open connections.\n");
	atomic_store(&ctl->shared.is_stopping, true);
	if (!grace) {
		begin_draining(ctl);
		return;
	}
	/* Whoever asks (`stopping` in a rule) is told, and may send nobody any more. */
	log_msg(LOG_LVL_NOTICE, "stopping: in %llu ms", (unsigned long long)(grace / 1000000));
	timer_start(ctl->loop, &ctl->grace, grace);
}

void ctl_hard_stop(struct ctl *ctl)
{
	ctl->phase = CTL_STOPPED;
	loop_stop(ctl->loop);
}
