/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Heads that come in pieces. While the rest of one is awaited its client holds the bytes that are here and
 * what the stream knew about them, and no stream: whoever opens many connections and never ends a head on any
 * (slowloris) costs us what he sent, not a stream and its buffers. A head that comes whole never gets here.
 * Belongs to the client's worker.
 */
#include "proxy/worker_priv.h"

/* Longer ones keep their stream: with every piece that comes all that came before is copied twice. */
#define HEAD_PART_MAX 16384

bool head_part_keep(struct stream *st)
{
	const struct window *in = &st->front.in;
	struct client *cl = st->cl;
	struct head_part *p;

	if (st->front.ops != &side_h1 || in->tail > HEAD_PART_MAX)
		return false;
	p = mem_alloc(sizeof(*p) + in->tail);
	if (!p)
		return false;
	p->id = st->id;
	p->n_runs = st->n_runs;
	p->start_ns = st->start_ns;
	p->start_wall = st->start_wall;
	p->active_ns = st->front.active_ns;
	p->head = st->front.head;
	p->len = in->tail;
	memcpy(p->bytes, in->mem, in->tail);
	stream_free(st);
	cl->part = p;
	cl->w->n_head_parts++;
	client_await_head(cl);
	return true;
}

int head_part_restore(struct stream *st)
{
	struct side *front = &st->front;
	struct head_part *p = st->cl->part;
	int r = side_need_buffer(front);

	if (r)
		return r;
	st->id = p->id;
	st->n_runs = p->n_runs;
	st->start_ns = p->start_ns;
	st->start_wall = p->start_wall;
	front->active_ns = p->active_ns;
	front->head = p->head;
	front->rx = p->len;
	front->in.tail = p->len;
	memcpy(front->in.mem, p->bytes, p->len);
	head_part_drop(st->cl);
	return 0;
}

void head_part_drop(struct client *cl)
{
	if (likely(!cl->part))
		return;
	mem_free(cl->part);
	cl->part = NULL;
	cl->w->n_head_parts--;
}
