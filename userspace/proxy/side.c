/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What every kind of side shares: buffers, and the pump that moves a body from one side to the other.
 * The pump reads only when everything read before was taken by the other side: that is the
 * backpressure, and the kernel's socket buffers keep the pipe full meanwhile.
 */
#include "proxy/side.h"

#include <errno.h>

#include "proxy/bwlim.h"
#include "proxy/h2_mux.h"

void side_init(struct side *s, struct stream *st, struct conn *c)
{
	memset(s, 0, sizeof(*s));
	s->ops = &side_h1;
	s->st = st;
	s->conn = c;
	s->is_first_chunk = true;
	s->active_ns = loop_now(st->w->loop);
	if (c && h2_is_exchange(c)) {
		s->ops = c->is_server_side ? &side_h2_client : &side_h2_server;
		s->in.cap = H2_STREAM_WINDOW;
	}
}

void side_fini(struct side *s)
{
	struct worker *w = s->st->w;

	pool_put(&w->head_pool, s->head_mem);
	pool_put(&w->big_pool, s->big_mem);
	pool_put(&w->big_pool, s->pending.mem);
	s->head_mem = NULL;
	s->big_mem = NULL;
	s->in = (struct window){ 0 };
	buf_init(&s->pending, NULL, 0);
	s->prefix = STR_NULL;
}

int side_need_buffer(struct side *s)
{
	struct worker *w = s->st->w;

	if (s->in.mem)
		return 0;
	s->head_mem = pool_get(&w->head_pool);
	if (!s->head_mem) {
		ctr_add(&w->ctr->alloc_failures, 1);
		return -ENOMEM;
	}
	s->in = (struct window){ .mem = s->head_mem, .cap = w->head_size };
	return 0;
}

void flow_start(struct flow *f, struct side *src, struct side *dst)
{
	f->src = src;
	f->dst = dst;
	f->bytes = 0;
	f->is_active = true;
	f->src_end = false;
	f->is_done = false;
	f->waits_for_dst = false;
	f->is_discarding = false;
	f->limits = src == &src->st->front ? src->st->bwlim_in : src->st->bwlim_out;
	f->offered = 0;
	f->paused_until_ns = 0;
	f->i = 0;
	f->n = 0;
}

enum flow_result flow_read(struct flow *f)
{
	unsigned n = 0;

	if (f->n)
		f->src->ops->release(f->src);
	f->i = 0;
	f->n = 0;
	switch (f->src->ops->read_body(f->src, f->slices, SIDE_SLICES, &n)) {
	case SIDE_END:
		f->src_end = true;
		break;
	case SIDE_BAD:
		return FLOW_SRC_BAD;
	case SIDE_GONE:
		return FLOW_SRC_GONE;
	case SIDE_NOMEM:
		return FLOW_NOMEM;
	case SIDE_MORE:
	case SIDE_DATA:
		break;
	}
	f->n = (uint8_t)n;
	return FLOW_DONE;
}

static void flow_advance(struct flow *f, size_t taken)
{
	f->bytes += taken;
	while (taken) {
		struct str *s = &f->slices[f->i];

		if (taken < s->len) {
			*s = str_from(*s, taken);
			return;
		}
		taken -= s->len;
		f->i++;
	}
}

ssize_t flow_write_some(struct flow *f, const struct str *slices, unsigned n, bool is_end)
{
	if (likely(!f->limits))
		return f->dst->ops->write(f->dst, slices, n, is_end);
	return bwlim_write(f, slices, n, is_end);
}

/* One write; FLOW_DONE: everything given so far is gone. */
static enum flow_result flow_write(struct flow *f)
{
	ssize_t taken;

	if (f->is_discarding) {
		f->i = f->n;
		f->is_done = f->src_end;
		return FLOW_DONE;
	}
	taken = flow_write_some(f, f->slices + f->i, (unsigned)(f->n - f->i), f->src_end);
	if (taken < 0)
		return taken == -ENOMEM ? FLOW_NOMEM : FLOW_DST_GONE;
	flow_advance(f, (size_t)taken);
	if (f->i < f->n || !side_is_flushed(f->dst)) {
		f->waits_for_dst = !f->paused_until_ns;
		return FLOW_WAIT;
	}
	f->waits_for_dst = false;
	f->is_done = f->src_end;
	return FLOW_DONE;
}

#define FLOW_TURNS 16 /* windows moved before other streams get their turn */

enum flow_result flow_pump(struct flow *f)
{
	enum flow_result r;

	for (unsigned turn = 0; turn < FLOW_TURNS; turn++) {
		if (f->is_done)
			return FLOW_DONE;
		if (f->i == f->n && !f->src_end) {
			r = flow_read(f);
			if (r != FLOW_DONE)
				return r;
			if (!f->n && !f->src_end && (f->is_discarding || side_is_flushed(f->dst))) {
				f->waits_for_dst = false;
				return FLOW_WAIT;
			}
		}
		r = flow_write(f);
		if (r != FLOW_DONE)
			return r;
	}
	/* The end is told once, to whoever pumps when it is reached. */
	if (f->is_done)
		return FLOW_DONE;
	stream_resume_later(f->src->st);
	return FLOW_WAIT;
}
