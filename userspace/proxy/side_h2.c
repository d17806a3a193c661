/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A side that speaks HTTP/2, the client's or the server's (contract: side.h; connection: h2_mux.h). Input
 * is put into the side's window by the connection; it is linear: what was used is thrown out when slices
 * are released, and only then is the peer's window opened again. Output goes through the session into
 * the connection's buffer; `prefix` is a mark that something of this exchange has not got that far.
 */
#include <errno.h>

#include "proxy/h2_link.h"

static const struct str not_out_yet = { "h2", 2 };

/* on_request() has read it. */
static int read_request_head(struct side *s, struct http_msg *msg)
{
	struct h2_exchange *ex = h2_exchange_of(s);

	if (ex->head_error == HTTP_ERR_NO_MEMORY)
		return -ENOMEM;
	if (ex->head_error) {
		s->head.error = ex->head_error;
		return -EBADMSG;
	}
	return 1;
}

/* The connection has read all there is before any stream runs. */
static void h2_side_prefetch(struct side *s)
{
}

static void h2_side_drop_head(struct side *s)
{
}

static void h2_side_start_body(struct side *s, struct http_msg *msg)
{
	s->msg = msg;
	s->in_body = true;
	s->body = (struct h1_body){ .framing = msg ? msg->framing : HTTP_BODY_TUNNEL };
}

static enum side_event h2_side_read_body(struct side *s, struct str *slices, unsigned max,
					 unsigned *ret_n)
{
	struct h2_exchange *ex = h2_exchange_of(s);
	struct window *w = &s->in;

	*ret_n = 0;
	if (w->parsed < w->tail) {
		slices[(*ret_n)++] = str_make(w->mem + w->parsed, w->tail - w->parsed);
		w->parsed = w->tail;
	}
	if (ex->h2.in_ended) {
		if (s->body.error)
			return SIDE_BAD;
		s->is_read_closed = true;
		return SIDE_END;
	}
	if (ex->conn.is_broken)
		return SIDE_GONE;
	return *ret_n ? SIDE_DATA : SIDE_MORE;
}

static void h2_side_release(struct side *s)
{
	struct h2_exchange *ex = h2_exchange_of(s);
	struct window *w = &s->in;
	uint32_t used = w->parsed;

	if (s->keeps || !used)
		return;
	if (w->tail > used)
		memmove(w->mem, w->mem + used, w->tail - used);
	w->tail -= used;
	w->head = w->parsed = 0;
	s->was_refilled = true;
	ex->unread -= used;
	h2_stream_consumed(&ex->h2, used);
	h2_mux_work_later(ex->mux);
}

static struct str h2_side_peek_body(struct side *s)
{
	return s->was_refilled || !s->in.mem ? STR_NULL : str_make(s->in.mem, s->in.tail);
}

static bool h2_side_rewind(struct side *s)
{
	if (s->was_refilled)
		return false;
	s->in.head = s->in.parsed = 0;
	return true;
}

/* --- writing -------------------------------------------------------------------------------------- */

static int h2_side_write_head(struct side *s, struct http_msg *msg, enum h1_connection conn)
{
	h2_exchange_of(s)->head = msg;
	s->prefix = not_out_yet;
	s->out_framing = msg->framing;
	s->out_msg = msg;
	return 0;
}

static bool head_has_body(const struct http_msg *m)
{
	return m->framing != HTTP_BODY_NONE &&
	       !(m->framing == HTTP_BODY_LENGTH && m->content_length == 0);
}

static int send_head(struct side *s, struct h2_exchange *ex)
{
	struct http_msg *m = ex->head;
	int r;

	if (!m)
		return 0;
	r = ex->mux->send_head(ex, m, head_has_body(m));
	if (r)
		return r;
	ex->head = NULL;
	s->tx += 9 + 3 + m->n_fields;
	if (ex->conn.is_server_side && m->status < 200 && m->status != 101)
		s->prefix = STR_NULL;
	return 0;
}

/* What is offered, shrinking while rounds of producing and sending take it. */
struct offer {
	struct str slices[SIDE_SLICES + 1];
	unsigned i, n;
	bool is_end;
};

static void offer_taken(struct offer *o, size_t k)
{
	while (k) {
		struct str *t = &o->slices[o->i];

		if (k < t->len) {
			*t = str_from(*t, k);
			return;
		}
		k -= t->len;
		o->i++;
	}
}

static ssize_t write_offer(struct side *s, struct h2_exchange *ex, struct offer *o)
{
	struct h2_mux *m = ex->mux;
	size_t total = 0;

	for (;;) {
		ssize_t k;

		if (!h2_mux_need_out(m))
			return -ENOMEM;
		k = h2_stream_write(&ex->h2, &m->out, o->slices + o->i, o->n - o->i, o->is_end,
				    s->out_msg);
		if (k < 0)
			return k;
		offer_taken(o, (size_t)k);
		total += (size_t)k;
		if (o->i == o->n && (!o->is_end || ex->h2.out_ended))
			break;
		if (ex->h2.id && ex->h2.has_body && !h2_stream_has_window(&ex->h2))
			break;
		h2_mux_flush(m);
		if (m->is_dead)
			return -EPIPE;
		if (buf_room(&m->out) < H2_PRODUCE_ROOM &&
		    buf_len(&m->out) > m->out.cap - H2_PRODUCE_ROOM)
			break;
		if (!k && buf_len(&m->out))
			break;
	}
	return (ssize_t)total;
}

static ssize_t h2_side_write(struct side *s, const struct str *slices, unsigned n, bool is_end)
{
	struct h2_exchange *ex = h2_exchange_of(s);
	/* What ends before a tunnel begins is the request, and its stream is the tunnel. */
	bool is_early = ex->is_upgrade && s->out_framing != HTTP_BODY_TUNNEL;
	struct offer o = { .n = 0, .is_end = is_end && !is_early };
	ssize_t k;
	int r;

	if (ex->conn.is_broken || ex->mux->is_dead)
		return -EPIPE;
	r = send_head(s, ex);
	/* The prefix says that it was not sent; what comes before heads has to be. */
	if (r == -EINPROGRESS)
		h2_mux_work_later(ex->mux);
	if (r)
		return r == -EINPROGRESS ? 0 : r;
	for (unsigned i = 0; i < n; i++)
		if (slices[i].len)
			o.slices[o.n++] = slices[i];
	k = write_offer(s, ex, &o);
	h2_mux_work_later(ex->mux);
	if (k < 0)
		return k;
	if (k || ex->h2.out_ended)
		s->active_ns = loop_now(s->st->w->loop);
	s->tx += (uint64_t)k;
	if (o.is_end && !ex->h2.out_ended)
		s->prefix = not_out_yet;
	else
		s->prefix = STR_NULL;
	s->is_end_sent = ex->h2.out_ended;
	if (o.i < o.n || s->prefix.len)
		h2_wait_for_room(ex);
	return k;
}

/* The end of the tunnel was written as such. */
static void h2_side_shut_write(struct side *s)
{
	s->is_write_shut = true;
}

static void h2_side_reset(struct side *s)
{
	h2_exchange_of(s)->conn.is_broken = true;
}

/* clang-format off */
#define SIDE_H2(read_head_of_it)                \
	{                                       \
		.name = "h2",                   \
		.read_head = read_head_of_it,   \
		.prefetch = h2_side_prefetch,   \
		.drop_head = h2_side_drop_head, \
		.start_body = h2_side_start_body, \
		.read_body = h2_side_read_body, \
		.release = h2_side_release,     \
		.peek_body = h2_side_peek_body, \
		.rewind = h2_side_rewind,       \
		.write_head = h2_side_write_head, \
		.write = h2_side_write,         \
		.shut_write = h2_side_shut_write, \
		.reset = h2_side_reset,         \
	}
/* clang-format on */

const struct side_ops side_h2_client = SIDE_H2(read_request_head);
const struct side_ops side_h2_server = SIDE_H2(h2_link_read_head);
