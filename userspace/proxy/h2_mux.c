/* SPDX-License-Identifier: BSD-2-Clause */
/* HTTP/2 connections: who runs when, input and output (overview: h2_mux.h). Worker's thread. */
#include "proxy/h2_mux.h"

#include <errno.h>

/* Rounds of reading, running and sending before other connections get their turn. */
#define WORK_TURNS 16

/* --- who runs when ---------------------------------------------------------------------------------- */

void h2_mux_work_later(struct h2_mux *m)
{
	if (!m->is_working)
		loop_defer(m->w->loop, &m->work);
}

void h2_wake(struct h2_exchange *ex)
{
	if (list_is_empty(&ex->run_link))
		list_push_back(&ex->mux->runnable, &ex->run_link);
	h2_mux_work_later(ex->mux);
}

void h2_wait_for_room(struct h2_exchange *ex)
{
	if (list_is_empty(&ex->block_link))
		list_push_back(&ex->mux->blocked, &ex->block_link);
}

/* Those whose windows are open. */
static void wake_blocked(struct h2_mux *m)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &m->blocked) {
		struct h2_exchange *ex = list_entry(pos, struct h2_exchange, block_link);

		if (ex->h2.id && ex->h2.has_body && !h2_stream_has_window(&ex->h2))
			continue;
		list_del(&ex->block_link);
		h2_wake(ex);
	}
}

void h2_mux_run(struct h2_mux *m)
{
	struct list *l, now;

	/* Those that wake up meanwhile have their turn after some output. */
	list_init(&now);
	while ((l = list_pop_front(&m->runnable)))
		list_push_back(&now, l);
	while ((l = list_pop_front(&now))) {
		struct h2_exchange *ex = list_entry(l, struct h2_exchange, run_link);

		if (ex->side)
			stream_run(ex->side->st);
	}
}

/* --- input and output ------------------------------------------------------------------------------- */

bool h2_mux_need_out(struct h2_mux *m)
{
	char *mem;

	if (m->out.mem)
		return true;
	mem = pool_get(&m->w->big_pool);
	if (!mem) {
		ctr_add(&m->w->ctr->alloc_failures, 1);
		m->is_dead = true;
		return false;
	}
	buf_init(&m->out, mem, SIDE_BIG_WINDOW);
	return true;
}

void h2_mux_put_out_back(struct h2_mux *m)
{
	if (!m->out.mem || buf_len(&m->out))
		return;
	pool_put(&m->w->big_pool, m->out.mem);
	buf_init(&m->out, NULL, 0);
}

void h2_mux_flush(struct h2_mux *m)
{
	while (!m->is_dead && buf_len(&m->out) && m->c->can_write) {
		struct iovec iov = { buf_data(&m->out), buf_len(&m->out) };
		ssize_t n = conn_sendv(m->c, &iov, 1, false);

		if (n == -EAGAIN || n == 0)
			break;
		if (n < 0)
			m->is_dead = true;
		else
			buf_consume(&m->out, (uint32_t)n);
	}
}

static void send_all(struct h2_mux *m)
{
	int r = -ENOBUFS;

	while (r == -ENOBUFS && !m->is_dead && (h2_wants_output(m->h2) || buf_len(&m->out))) {
		if (!h2_mux_need_out(m))
			return;
		r = h2_produce(m->h2, &m->out);
		h2_mux_flush(m);
		if (buf_len(&m->out))
			return;
	}
}

/* Only as long as answers find their way out: otherwise the peer could make us pile them up. */
static bool may_read(const struct h2_mux *m)
{
	return !m->is_dead && m->c->can_read && buf_len(&m->out) < SIDE_BIG_WINDOW / 2 &&
	       !h2_is_over(m->h2);
}

static void read_some(struct h2_mux *m)
{
	struct worker *w = m->w;
	ssize_t n = conn_recv(m->c, w->scratch, SIDE_BIG_WINDOW);

	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		m->is_dead = true;
		return;
	}
	if (h2_receive(m->h2, str_make(w->scratch, (size_t)n), loop_now(w->loop)) == -ENOMEM) {
		ctr_add(&w->ctr->alloc_failures, 1);
		m->is_dead = true;
	}
}

bool h2_mux_turns(struct h2_mux *m)
{
	unsigned turn;

	m->is_working = true;
	for (turn = 0; turn < WORK_TURNS; turn++) {
		bool has_read = may_read(m);

		if (has_read)
			read_some(m);
		h2_mux_run(m);
		send_all(m);
		if (!buf_len(&m->out) && !list_is_empty(&m->blocked))
			wake_blocked(m);
		if (list_is_empty(&m->runnable) && (!has_read || !may_read(m)))
			break;
	}
	m->is_working = false;
	if (turn < WORK_TURNS)
		return true;
	h2_mux_work_later(m);
	return false;
}

/* --- what sessions report ----------------------------------------------------------------------------- */

int h2_mux_on_data(struct h2_stream *s, struct str data)
{
	struct h2_exchange *ex = container_of(s, struct h2_exchange, h2);
	struct worker *w = ex->mux->w;
	struct side *side = ex->side;
	struct window *in = &side->in;

	if (!in->mem) {
		side->big_mem = pool_get(&w->big_pool);
		if (!side->big_mem) {
			ctr_add(&w->ctr->alloc_failures, 1);
			return -ENOMEM;
		}
		in->mem = side->big_mem;
	}
	/* The stream's window admits no more than what was given back. */
	if (data.len > in->cap - in->tail)
		return -ENOBUFS;
	memcpy(in->mem + in->tail, data.p, data.len);
	in->tail += (uint32_t)data.len;
	ex->unread += (uint32_t)data.len;
	side->rx += data.len;
	side->active_ns = loop_now(w->loop);
	h2_wake(ex);
	return 0;
}

void h2_mux_on_trailers(struct h2_stream *s)
{
	struct h2_exchange *ex = container_of(s, struct h2_exchange, h2);

	/* What may not be a trailer is a message that cannot be passed on (as in HTTP/1). */
	if (!ex->in_msg || h2_read_trailers(ex->mux->h2, ex->in_msg))
		ex->side->body.error = HTTP_ERR_BAD_TRAILER;
	ex->side->rx += h2_head_size(ex->mux->h2);
}

void h2_mux_on_end(struct h2_stream *s)
{
	h2_wake(container_of(s, struct h2_exchange, h2));
}

void h2_mux_on_close(struct h2_stream *s)
{
	struct h2_exchange *ex = container_of(s, struct h2_exchange, h2);

	if (!(s->in_ended && s->out_ended) || s->error)
		ex->conn.is_broken = true;
	h2_wake(ex);
}

void h2_mux_on_window(void *owner, struct h2_stream *s)
{
	struct h2_exchange *ex = s ? container_of(s, struct h2_exchange, h2) : NULL;

	if (!ex) {
		wake_blocked(owner);
		return;
	}
	if (!list_is_empty(&ex->block_link)) {
		list_del(&ex->block_link);
		h2_wake(ex);
	}
}

/* --- birth and death ---------------------------------------------------------------------------------- */

struct h2_limits h2_mux_limits(const struct worker *w, const struct conf_global *g,
			       bool is_towards_servers)
{
	struct conf_h2 c = conf_h2_of(g, is_towards_servers);

	return (struct h2_limits){
		.max_head = w->head_size,
		.max_fields = g->maxhdr ? g->maxhdr : 101,
		.allow_connect_protocol = !is_towards_servers && !g->h2_no_websockets,
		.max_streams = c.streams,
		.window = c.window,
		.max_frame = c.frame,
		.header_table = c.table ? c.table - 1 : 0,
		.has_header_table = c.table,
		.max_glitches = c.glitches,
	};
}

void h2_mux_init(struct h2_mux *m, struct worker *w, struct conn *c,
		 void (*on_work)(struct deferred *d))
{
	m->w = w;
	m->c = c;
	list_init(&m->exchanges);
	list_init(&m->runnable);
	list_init(&m->blocked);
	deferred_init(&m->work, on_work);
}

void h2_mux_fini(struct h2_mux *m)
{
	loop_undefer(&m->work);
	h2_free(m->h2);
	buf_clear(&m->out);
	h2_mux_put_out_back(m);
}

static void do_nothing(struct conn *c)
{
}

/* Everything goes through the side; what may be called on any connection does nothing. */
const struct conn_ops h2_exchange_ops = {
	.name = "h2",
	.shut_write = do_nothing,
	.idle = do_nothing,
};

/* What rules and logs see of the connection; nothing is ever read or written through it. */
void h2_exchange_init(struct h2_exchange *ex, struct h2_mux *m, bool is_server_side)
{
	const struct conn *real = m->c;

	ex->mux = m;
	ex->conn = (struct conn){
		.ops = &h2_exchange_ops,
		.nw = real->nw,
		.doing = "request",
		.state = CONN_OPEN,
		.is_server_side = is_server_side,
		.can_read = true,
		.can_write = true,
		.tls = real->tls,
		.peer = real->peer,
		.local = real->local,
		.is_unix = real->is_unix,
		.since_ns = real->since_ns,
	};
	ex->conn.ev.fd = -1;
	list_init(&ex->conn.link);
	list_init(&ex->run_link);
	list_init(&ex->block_link);
	list_push_back(&m->exchanges, &ex->link);
	m->n_exchanges++;
}

void h2_exchange_fini(struct h2_exchange *ex, enum h2_error why)
{
	h2_stream_leave(&ex->h2, why, ex->unread);
	list_del(&ex->link);
	list_del(&ex->run_link);
	list_del(&ex->block_link);
	ex->mux->n_exchanges--;
}
