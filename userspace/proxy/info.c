/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `show sess`: the worker writes down its streams when asked by mail and sends the list back to the
 * control thread, which owns it from then on.
 */
#include <errno.h>
#include <stdio.h>

#include "proxy/worker_priv.h"

struct listing {
	struct mail mail;
	struct worker *w;
	void *ctx;
	void (*done)(void *ctx, struct stream_info *infos, unsigned n);
	struct stream_info *infos;
	unsigned n;
};

static void put(char *out, size_t size, const char *text)
{
	snprintf(out, size, "%s", text ? text : "");
}

static void describe(struct stream *st, struct stream_info *i)
{
	uint64_t now = loop_now(st->w->loop);
	uint64_t active = st->front.active_ns > st->back.active_ns ? st->front.active_ns
								   : st->back.active_ns;

	i->id = st->id;
	i->worker = st->w->o.index;
	put(i->proto, sizeof(i->proto), st->front.conn->is_unix ? "unix" : "tcpv4");
	if (st->front.conn->peer.sa.sa_family == AF_INET6)
		put(i->proto, sizeof(i->proto), "tcpv6");
	addr_format(&st->front.conn->peer, i->src, sizeof(i->src));
	put(i->frontend, sizeof(i->frontend), st->fe->name);
	put(i->backend, sizeof(i->backend), st->be ? st->be->name : "<NONE>");
	put(i->server, sizeof(i->server), st->srv ? st->srv->name : "<none>");
	put(i->phase, sizeof(i->phase), stream_phase_name((enum stream_phase)st->phase));
	put(i->doing, sizeof(i->doing), stream_phase_text((enum stream_phase)st->phase));
	i->age_ns = now - st->start_ns;
	i->idle_ns = now - active;
	i->calls = st->n_runs;
	i->bytes_in = st->front.rx;
	i->bytes_out = st->front.tx;
	i->expires_ms = (uint32_t)(timer_left_ns(st->w->loop, &st->timer) / 1000000u);
	i->front_fd = st->front.conn->ev.fd;
	put(i->front_state, sizeof(i->front_state),
	    conn_state_name((enum conn_state)st->front.conn->state));
	i->back_fd = st->back.conn ? st->back.conn->ev.fd : -1;
	put(i->back_state, sizeof(i->back_state),
	    st->back.conn ? conn_state_name((enum conn_state)st->back.conn->state) : "INI");
	if (st->flags & STREAM_REQ_PARSED)
		snprintf(i->method_and_target, sizeof(i->method_and_target), STR_FMT " " STR_FMT,
			 STR_ARG(st->req.method_text), STR_ARG(st->req.target));
}

static void deliver_answer(struct mail *m)
{
	struct listing *l = container_of(m, struct listing, mail);

	l->done(l->ctx, l->infos, l->n);
	mem_free(l);
}

static void deliver_question(struct mail *m)
{
	struct listing *l = container_of(m, struct listing, mail);
	struct worker *w = l->w;
	struct list *pos;

	if (w->n_streams)
		l->infos = mem_zalloc(w->n_streams * sizeof(*l->infos));
	if (l->infos) {
		list_for_each(pos, &w->streams)
			describe(list_entry(pos, struct stream, link), &l->infos[l->n++]);
	}
	m->deliver = deliver_answer;
	mailbox_send(w->o.control, m);
}

int worker_list_streams(struct worker *w, void *ctx,
			void (*done)(void *ctx, struct stream_info *infos, unsigned n))
{
	struct listing *l = mem_zalloc(sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->mail.deliver = deliver_question;
	l->w = w;
	l->ctx = ctx;
	l->done = done;
	mailbox_send(&w->mailbox, &l->mail);
	return 0;
}
