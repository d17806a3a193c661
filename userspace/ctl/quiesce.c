/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Grace periods. What workers read without pinning it (server tables) may be freed when every worker
 * has passed one loop iteration: control mails each worker, each mails back, then the calls that
 * were waiting run. One round is in flight at a time; calls that come meanwhile wait for the next.
 */
#include <errno.h>

#include "base/mem.h"
#include "ctl/ctl_priv.h"

struct quiesce_call {
	struct list link;
	void (*call)(void *arg);
	void *arg;
};

struct quiesce_probe {
	struct mail mail; /* to the worker, and back */
	struct quiesce *q;
};

struct quiesce {
	struct ctl *ctl;
	struct list waiting; /* for the next round */
	struct list in_flight; /* run when `missing` is 0 */
	unsigned missing; /* workers that have not answered */
	struct quiesce_probe probes[]; /* one per worker */
};

int quiesce_create(struct ctl *ctl, struct quiesce **ret_q)
{
	struct quiesce *q = mem_zalloc(sizeof(*q) + ctl->n_workers * sizeof(q->probes[0]));

	if (!q)
		return -ENOMEM;
	q->ctl = ctl;
	list_init(&q->waiting);
	list_init(&q->in_flight);
	for (unsigned i = 0; i < ctl->n_workers; i++)
		q->probes[i].q = q;
	*ret_q = q;
	return 0;
}

static void quiesce_run(struct list *calls)
{
	struct list *l;

	while ((l = list_pop_front(calls))) {
		struct quiesce_call *c = list_entry(l, struct quiesce_call, link);

		c->call(c->arg);
		mem_free(c);
	}
}

static void quiesce_start_round(struct quiesce *q);

/* On control: one worker answered. */
static void quiesce_answered(struct mail *m)
{
	struct quiesce *q = container_of(m, struct quiesce_probe, mail)->q;
	struct list calls;

	if (--q->missing)
		return;
	/* What they ask for is of the next round. */
	list_init(&calls);
	list_splice_back(&calls, &q->in_flight);
	quiesce_run(&calls);
	quiesce_start_round(q);
}

/* On the worker: between two iterations' work by definition. */
static void quiesce_at_worker(struct mail *m)
{
	struct quiesce *q = container_of(m, struct quiesce_probe, mail)->q;

	m->deliver = quiesce_answered;
	mailbox_send(&q->ctl->mailbox, m);
}

static void quiesce_start_round(struct quiesce *q)
{
	struct ctl *ctl = q->ctl;

	if (q->missing || list_is_empty(&q->waiting))
		return;
	list_splice_back(&q->in_flight, &q->waiting);
	for (unsigned i = 0; i < ctl->n_workers; i++) {
		if (!ctl->workers || !ctl->workers[i])
			continue;
		q->missing++;
		q->probes[i].mail.deliver = quiesce_at_worker;
		mailbox_send(worker_mailbox(ctl->workers[i]), &q->probes[i].mail);
	}
	if (!q->missing)
		quiesce_run(&q->in_flight);
}

void quiesce_after(struct lb_registry *r, void (*call)(void *arg), void *arg)
{
	struct ctl *ctl = r->owner;
	struct quiesce_call *c = mem_alloc(sizeof(*c));

	if (!c) {
		/* Freeing now would be a use after free on a worker; losing the object is the lesser evil. */
		log_msg(LOG_LVL_ERR, "out of memory: an old server table could not be freed");
		return;
	}
	c->call = call;
	c->arg = arg;
	list_push_back(&ctl->quiesce->waiting, &c->link);
	quiesce_start_round(ctl->quiesce);
}

void quiesce_destroy(struct quiesce *q)
{
	if (!q)
		return;
	quiesce_run(&q->in_flight);
	quiesce_run(&q->waiting);
	mem_free(q);
}
