/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client's side of a stream that came over HTTP/2 (contract: side.h; connection: h2_client.h). Input
 * is put into the side's window by the connection; it is linear: what was used is thrown out when slices
 * are released, and only then is the peer's window opened again. Output goes through the session into
 * the connection's buffer; `prefix` is a mark that something of this exchange has not got that far.
 */
#include <errno.h>

#include "proxy/h2_client.h"

static const struct str not_out_yet = { "h2", 2 };

static int h2_side_read_head(struct side *s, struct http_msg *msg)
{
	struct h2_exchange *ex = h2_exchange_of(s);

	if (ex->head_error == HTTP_ERR_NO_MEMORY)
		return -ENOMEM;
	if (ex->head_error) {
		s->head.error = ex->head_error;
		return -EBADMSG;
	}
	/* on_request() read it. */
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
	h2_work_later(ex->hc);
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

/* Answers of our own are HTTP/1 text: taken apart again. A file of the operator's may be anything. */
static void h2_side_write_raw(struct side *s, struct str text, enum http_framing framing)
{
	struct h2_exchange *ex = h2_exchange_of(s);
	struct stream *st = s->st;
	struct http_msg *m = &ex->raw_msg;
	struct h1_head head = { 0 };
	int n = http_msg_init(m, &st->arena, st->req.max_fields ? st->req.max_fields : 101);

	if (!n)
		n = h1_read_response(&head, text, m,
				     st->flags & STREAM_REQ_PARSED
					     ? (enum http_method)st->req.method
					     : HTTP_METHOD_GET);
	if (n <= 0) {
		http_msg_reset(m);
		m->flags = HTTP_MSG_RESPONSE;
		m->status = st->status ? st->status : 500;
		n = (int)text.len;
	}
	ex->raw = str_from(text, (size_t)n);
	ex->is_raw = m->status >= 200;
	if (m->framing == HTTP_BODY_LENGTH && m->content_length != ex->raw.len) {
		m->framing = HTTP_BODY_CHUNKED;
		m->content_length = 0;
	}
	if (m->framing == HTTP_BODY_NONE)
		ex->raw = STR("");
	ex->head = m;
	s->prefix = not_out_yet;
	s->out_framing = m->framing;
	s->out_msg = NULL;
}

static bool head_has_body(const struct http_msg *m)
{
	return m->framing != HTTP_BODY_NONE &&
	       !(m->framing == HTTP_BODY_LENGTH && m->content_length == 0);
}

static int send_head(struct side *s, struct h2_exchange *ex)
{
	const struct http_msg *m = ex->head;
	int r;

	if (!m)
		return 0;
	/* The answer to a key that our client did not send. */
	if (ex->is_websocket && m->status == 101)
		http_msg_del((struct http_msg *)(uintptr_t)m, STR("sec-websocket-accept"));
	r = h2_stream_respond(&ex->h2, m, head_has_body(m));
	if (r)
		return r;
	ex->head = NULL;
	s->tx += 9 + 3 + m->n_fields;
	if (m->status < 200 && m->status != 101)
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
	struct h2_conn *hc = ex->hc;
	size_t total = 0;

	for (;;) {
		ssize_t k;

		if (!h2_need_out(hc))
			return -ENOMEM;
		k = h2_stream_write(&ex->h2, &hc->out, o->slices + o->i, o->n - o->i, o->is_end,
				    s->out_msg);
		if (k < 0)
			return k;
		offer_taken(o, (size_t)k);
		total += (size_t)k;
		if (o->i == o->n && (!o->is_end || ex->h2.out_ended))
			break;
		if (ex->h2.id && ex->h2.has_body && !h2_stream_has_window(&ex->h2))
			break;
		h2_flush(hc);
		if (hc->is_dead)
			return -EPIPE;
		if (buf_room(&hc->out) < H2_PRODUCE_ROOM &&
		    buf_len(&hc->out) > hc->out.cap - H2_PRODUCE_ROOM)
			break;
		if (!k && buf_len(&hc->out))
			break;
	}
	return (ssize_t)total;
}

static ssize_t h2_side_write(struct side *s, const struct str *slices, unsigned n, bool is_end)
{
	struct h2_exchange *ex = h2_exchange_of(s);
	struct offer o = { .n = 0, .is_end = is_end };
	ssize_t k;
	int r;

	if (ex->conn.is_broken || ex->hc->is_dead)
		return -EPIPE;
	r = send_head(s, ex);
	if (r)
		return r;
	if (ex->is_raw) {
		o.is_end = true;
		if (ex->raw.len)
			o.slices[o.n++] = ex->raw;
	}
	for (unsigned i = 0; i < n; i++)
		if (slices[i].len)
			o.slices[o.n++] = slices[i];
	k = write_offer(s, ex, &o);
	h2_work_later(ex->hc);
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
	if (!ex->is_raw)
		return k;
	ex->raw = str_from(ex->raw, (size_t)k);
	return 0;
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

const struct side_ops side_h2 = {
	.name = "h2",
	.read_head = h2_side_read_head,
	.prefetch = h2_side_prefetch,
	.drop_head = h2_side_drop_head,
	.start_body = h2_side_start_body,
	.read_body = h2_side_read_body,
	.release = h2_side_release,
	.rewind = h2_side_rewind,
	.write_head = h2_side_write_head,
	.write_raw = h2_side_write_raw,
	.write = h2_side_write,
	.shut_write = h2_side_shut_write,
	.reset = h2_side_reset,
};
