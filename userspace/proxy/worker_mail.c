/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What control asks of a worker, and what it hears back: each a mail. Requests without arguments have
 * their mail in the worker, so that they cannot fail; a flag keeps each in flight at most once.
 */
#include <errno.h>
#include <stdio.h>

#include "proxy/worker_priv.h"

/* --- snapshots: "done with generation" ---------------------------------------------------------------- */

static void deliver_done(struct mail *m)
{
	struct done_mail *d = container_of(m, struct done_mail, mail);

	d->w->o.on_snapshot_done(d->snap);
}

void worker_said_done(struct snapshot_view *v, struct snapshot *s)
{
	struct worker *w = container_of(v, struct worker, view);
	struct done_mail *d = &w->done[s->slot];

	d->mail.deliver = deliver_done;
	d->w = w;
	d->snap = s;
	mailbox_send(w->o.control, &d->mail);
}

/* --- without arguments ---------------------------------------------------------------------------------- */

static void deliver_news(struct mail *m)
{
	struct worker *w = container_of(m, struct worker, news_mail);

	atomic_store(&w->news_sent, false);
	worker_adopt(w);
}

void worker_news(struct worker *w)
{
	if (!atomic_exchange(&w->news_sent, true))
		mailbox_send(&w->mailbox, &w->news_mail);
}

/* --- queues of servers that XDP counts at, too ------------------------------------------------------------ */

static void deliver_waiting(struct mail *m)
{
	struct worker *w = container_of(m, struct worker, waiting_mail);

	w->o.on_waiting(w);
}

/* Control takes the flag back, when nobody waits any more: until then one mail is enough for all workers. */
void worker_tell_waiting(struct worker *w)
{
	if (w->o.on_waiting && !atomic_load(&w->o.shared->is_wait_told) &&
	    !atomic_exchange(&w->o.shared->is_wait_told, true))
		mailbox_send(w->o.control, &w->waiting_mail);
}

/* --- observe --------------------------------------------------------------------------------------------- */

static void deliver_observed(struct mail *m)
{
	struct worker *w = container_of(m, struct worker, observed_mail);

	/* Before control looks: an error behind this one mails again. */
	atomic_store(&w->observed_sent, false);
	w->o.on_observed(w);
}

void stream_observed_error(struct stream *st)
{
	struct worker *w = st->w;
	uint32_t n = atomic_fetch_add_explicit(&st->srv->observed_errors, 1, memory_order_relaxed);

	if (n + 1 >= st->srv_conf->error_limit && w->o.on_observed &&
	    !atomic_exchange(&w->observed_sent, true))
		mailbox_send(w->o.control, &w->observed_mail);
}

static void deliver_kill(struct mail *m)
{
	struct worker *w = container_of(m, struct worker, kill_mail);

	atomic_store(&w->kill_sent, false);
	worker_end_all(w, 'K');
}

void worker_kill_all(struct worker *w)
{
	if (!atomic_exchange(&w->kill_sent, true))
		mailbox_send(&w->mailbox, &w->kill_mail);
}

static void deliver_resume(struct mail *m)
{
	struct worker *w = container_of(m, struct worker, resume_mail);

	atomic_store(&w->resume_sent, false);
	worker_resume_listeners(w);
}

void worker_resume(struct worker *w)
{
	if (!atomic_exchange(&w->resume_sent, true))
		mailbox_send(&w->mailbox, &w->resume_mail);
}

static void deliver_stop(struct mail *m)
{
	loop_stop(container_of(m, struct worker, stop_mail)->loop);
}

/* --- drain ---------------------------------------------------------------------------------------------- */

static void deliver_drained(struct mail *m)
{
	struct worker *w = container_of(m, struct worker, drained_mail);

	w->on_drained(w);
}

void worker_check_drained(struct worker *w)
{
	void (*call)(struct worker *w) = w->on_drained;

	if (!call || w->n_clients || w->is_stopping)
		return;
	w->is_stopping = true; /* said once */
	mailbox_send(w->o.control, &w->drained_mail);
}

static void deliver_drain(struct mail *m)
{
	worker_begin_drain(container_of(m, struct worker, drain_mail));
}

void worker_drain(struct worker *w, void (*on_drained)(struct worker *w))
{
	if (w->on_drained)
		return;
	/* Written before the mail goes out: the mailbox orders it for the worker. */
	w->on_drained = on_drained;
	mailbox_send(&w->mailbox, &w->drain_mail);
}

void worker_init_mails(struct worker *w)
{
	w->news_mail.deliver = deliver_news;
	w->kill_mail.deliver = deliver_kill;
	w->resume_mail.deliver = deliver_resume;
	w->stop_mail.deliver = deliver_stop;
	w->drain_mail.deliver = deliver_drain;
	w->drained_mail.deliver = deliver_drained;
	w->observed_mail.deliver = deliver_observed;
	w->waiting_mail.deliver = deliver_waiting;
}

/* --- with arguments: one allocation each, freed by who delivers ------------------------------------------- */

struct order {
	struct mail mail;
	struct worker *w;
	struct server *srv;
	uint64_t id; /* of a stream; or a generation */
	char code;
	bool flag;
	void *ctx; /* of `done` */
	void (*done)(void *ctx, bool is_found);
	char name[128];
};

static struct order *order_new(struct worker *w, void (*deliver)(struct mail *m))
{
	struct order *o = mem_zalloc(sizeof(*o));

	if (!o) {
		log_msg(LOG_LVL_ALERT, "out of memory: a command could not reach worker %u",
			w->o.index);
		return NULL;
	}
	o->mail.deliver = deliver;
	o->w = w;
	return o;
}

static void deliver_shutdown_server(struct mail *m)
{
	struct order *o = container_of(m, struct order, mail);
	struct list *streams = &o->srv->w[o->w->o.index].streams;

	while (!o->w->is_over && !list_is_empty(streams))
		stream_kill(list_entry(streams->next, struct stream, srv_link), o->code);
	mem_free(o);
}

void worker_shutdown_server(struct worker *w, struct server *s, char code)
{
	struct order *o = order_new(w, deliver_shutdown_server);

	if (!o)
		return;
	o->srv = s;
	o->code = code;
	mailbox_send(&w->mailbox, &o->mail);
}

static void deliver_kill_older(struct mail *m)
{
	struct order *o = container_of(m, struct order, mail);

	if (!o->w->is_over)
		worker_end_older(o->w, o->id);
	mem_free(o);
}

void worker_kill_older(struct worker *w, uint64_t generation)
{
	struct order *o = order_new(w, deliver_kill_older);

	if (!o)
		return;
	o->id = generation;
	mailbox_send(&w->mailbox, &o->mail);
}

static void deliver_pause(struct mail *m)
{
	struct order *o = container_of(m, struct order, mail);

	worker_set_paused(o->w, str_from_cstr(o->name), o->flag);
	mem_free(o);
}

void worker_pause_frontend(struct worker *w, struct str name, bool pause)
{
	struct order *o = order_new(w, deliver_pause);

	if (!o)
		return;
	snprintf(o->name, sizeof(o->name), STR_FMT, STR_ARG(name));
	o->flag = pause;
	mailbox_send(&w->mailbox, &o->mail);
}

static void deliver_killed(struct mail *m)
{
	struct order *o = container_of(m, struct order, mail);

	o->done(o->ctx, o->flag);
	mem_free(o);
}

/* A stream by its number, also of a client that waits for the rest of a head. */
static struct stream *find_stream(struct worker *w, uint64_t id)
{
	struct list *pos;

	list_for_each(pos, &w->streams) {
		struct stream *st = list_entry(pos, struct stream, link);

		if (st->id == id)
			return st;
	}
	if (!w->n_head_parts)
		return NULL;
	list_for_each(pos, &w->clients) {
		struct client *cl = list_entry(pos, struct client, link);

		if (cl->part && cl->part->id == id)
			return stream_new(cl);
	}
	return NULL;
}

static void deliver_kill_stream(struct mail *m)
{
	struct order *o = container_of(m, struct order, mail);
	struct stream *st = find_stream(o->w, o->id);

	if (st) {
		stream_kill(st, 'K');
		o->flag = true;
	}
	m->deliver = deliver_killed;
	mailbox_send(o->w->o.control, m);
}

int worker_kill_stream(struct worker *w, uint64_t id, void *ctx,
		       void (*done)(void *ctx, bool is_found))
{
	struct order *o = order_new(w, deliver_kill_stream);

	if (!o)
		return -ENOMEM;
	o->id = id;
	o->ctx = ctx;
	o->done = done;
	mailbox_send(&w->mailbox, &o->mail);
	return 0;
}
