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

/* What a stream has in common with a client that waits for the rest of a head. */
static void describe_client(const struct client *cl, enum stream_phase phase, uint64_t start_ns,
			    uint64_t active_ns, const struct timer *timer, struct stream_info *i)
{
	const struct conn *c = cl->conn;
	uint64_t now = loop_now(cl->w->loop);

	i->worker = cl->w->o.index;
	put(i->proto, sizeof(i->proto), c->is_unix ? "unix" : "tcpv4");
	if (c->peer.sa.sa_family == AF_INET6)
		put(i->proto, sizeof(i->proto), "tcpv6");
	addr_format(&c->peer, i->src, sizeof(i->src));
	put(i->phase, sizeof(i->phase), stream_phase_name(phase));
	put(i->doing, sizeof(i->doing), stream_phase_text(phase));
	i->age_ns = now - start_ns;
	i->idle_ns = now - active_ns;
	i->expires_ms = (uint32_t)(timer_left_ns(cl->w->loop, timer) / 1000000u);
	i->front_fd = c->ev.fd;
	put(i->front_state, sizeof(i->front_state), conn_state_name((enum conn_state)c->state));
}

static void describe(const struct stream *st, struct stream_info *i)
{
	uint64_t active = st->front.active_ns > st->back.active_ns ? st->front.active_ns
								   : st->back.active_ns;

	describe_client(st->cl, (enum stream_phase)st->phase, st->start_ns, active, &st->timer, i);
	i->id = st->id;
	put(i->frontend, sizeof(i->frontend), st->fe->name);
	put(i->backend, sizeof(i->backend), st->be ? st->be->name : "<NONE>");
	put(i->server, sizeof(i->server), st->srv ? st->srv->name : "<none>");
	i->calls = st->n_runs;
	i->bytes_in = st->front.rx;
	i->bytes_out = st->front.tx;
	i->back_fd = st->back.conn ? st->back.conn->ev.fd : -1;
	put(i->back_state, sizeof(i->back_state),
	    st->back.conn ? conn_state_name((enum conn_state)st->back.conn->state) : "INI");
	if (st->flags & STREAM_REQ_PARSED)
		snprintf(i->method_and_target, sizeof(i->method_and_target), STR_FMT " " STR_FMT,
			 STR_ARG(st->req.method_text), STR_ARG(st->req.target));
}

static void describe_head_part(const struct client *cl, struct stream_info *i)
{
	const struct head_part *p = cl->part;

	describe_client(cl, PHASE_REQ_HEAD, p->start_ns, p->active_ns, &cl->timer, i);
	i->id = p->id;
	put(i->frontend, sizeof(i->frontend), cl->fe->name);
	put(i->backend, sizeof(i->backend), "<NONE>");
	put(i->server, sizeof(i->server), "<none>");
	i->calls = p->n_runs;
	i->bytes_in = p->len;
	i->back_fd = -1;
	put(i->back_state, sizeof(i->back_state), "INI");
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
	unsigned n = w->n_streams + w->n_head_parts;
	struct list *pos;

	if (n)
		l->infos = mem_zalloc(n * sizeof(*l->infos));
	if (l->infos) {
		list_for_each(pos, &w->streams)
			describe(list_entry(pos, struct stream, link), &l->infos[l->n++]);
		list_for_each(pos, &w->clients) {
			const struct client *cl = list_entry(pos, struct client, link);

			if (cl->part)
				describe_head_part(cl, &l->infos[l->n++]);
		}
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
