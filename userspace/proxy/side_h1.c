/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HTTP/1 and raw bytes on a connection of their own (contract: side.h). Per message and direction one
 * recv and one sendv in the usual case: the window takes head and body together, and head, chunk
 * framing and slices leave in one vector.
 */
#include <errno.h>

#include "proxy/worker_priv.h"

/* --- reading -------------------------------------------------------------------------------------- */

/* Longer bodies go through a bigger window, once the small one turned out to be the bottleneck. */
static void h1_grow(struct side *s)
{
	struct worker *w = s->st->w;

	if (s->big_mem || !s->in_body || !s->was_filled_up || s->body.framing == HTTP_BODY_CHUNKED)
		return;
	s->big_mem = pool_get(&w->big_pool);
	/* Out of memory: the small window still works. */
	if (s->big_mem)
		s->in = (struct window){ .mem = s->big_mem, .cap = SIDE_BIG_WINDOW };
}

/* Room behind tail; -ENOBUFS: slices must leave first, or a head is too large. */
static int h1_make_room(struct side *s)
{
	struct window *w = &s->in;

	if (!w->mem)
		return side_need_buffer(s);
	if (w->head == w->tail && s->in_body && !s->keeps) {
		h1_grow(s);
		if (w->tail != w->base)
			s->was_refilled = true;
		w->head = w->parsed = w->tail = w->base;
	}
	if (w->tail < w->cap)
		return 0;
	if (w->head != w->parsed || w->head == w->base)
		return -ENOBUFS;
	/* What the reader has not finished with (a piece of a trailer line) moves to the front. */
	memmove(w->mem + w->base, w->mem + w->head, w->tail - w->head);
	w->tail -= w->head - w->base;
	w->head = w->parsed = w->base;
	s->was_refilled = true;
	return 0;
}

/* > 0 bytes; 0 end; -EAGAIN; -ENOBUFS; -ENOMEM; other: broken. */
static ssize_t h1_fill(struct side *s)
{
	struct window *w = &s->in;
	size_t room;
	ssize_t n;
	int r;

	if (unlikely(s->is_cut))
		return 0;
	if (!s->conn->can_read)
		return -EAGAIN;
	r = h1_make_room(s);
	if (r)
		return r;
	room = w->cap - w->tail;
	/* A big window takes this body only: what follows must find room in a head buffer. */
	if (s->big_mem && s->body.framing == HTTP_BODY_LENGTH && room > s->body.left)
		room = s->body.left;
	n = conn_recv(s->conn, w->mem + w->tail, room);
	if (n > 0) {
		w->tail += (uint32_t)n;
		s->rx += (uint64_t)n;
		s->active_ns = loop_now(s->st->w->loop);
		s->was_filled_up = (size_t)n == room;
	}
	return n;
}

static int h1_side_read_head(struct side *s, struct http_msg *msg)
{
	bool is_response = s == &s->st->back;
	struct window *w = &s->in;

	for (;;) {
		ssize_t n;

		if (w->tail > w->base) {
			struct str in = str_make(w->mem + w->base, w->tail - w->base);
			int r = is_response ? h1_read_response(&s->head, in, msg, s->st->req.method)
					    : h1_read_request(&s->head, in, msg);

			if (r < 0)
				return r;
			if (r > 0) {
				w->base += (uint32_t)r;
				w->head = w->parsed = w->base;
				return r;
			}
		}
		n = h1_fill(s);
		if (n == 0) {
			s->is_read_closed = true;
			return -EPIPE;
		}
		if (n == -ENOBUFS) {
			s->head.error = HTTP_ERR_TOO_LARGE;
			s->head.error_at = w->tail - w->base;
			return -EBADMSG;
		}
		if (n < 0)
			return (int)n;
	}
}

static void h1_side_prefetch(struct side *s)
{
	/* End or error will be met again by the reader: recv keeps telling (conn->peer_closed, is_broken). */
	if (!s->in_body && s->conn->can_read && !s->conn->peer_closed && !s->conn->is_broken)
		(void)!h1_fill(s);
}

static void h1_side_drop_head(struct side *s)
{
	struct window *w = &s->in;

	memmove(w->mem, w->mem + w->base, w->tail - w->base);
	w->tail -= w->base;
	w->base = w->head = w->parsed = 0;
	s->head = (struct h1_head){ .flags = s->head.flags };
}

static void h1_side_start_body(struct side *s, struct http_msg *msg)
{
	s->msg = msg;
	s->in_body = true;
	if (msg)
		msg->n_trailers = 0;
	if (msg)
		h1_body_init(&s->body, msg);
	else
		s->body = (struct h1_body){ .framing = HTTP_BODY_TUNNEL };
}

/* Slices of what is in the window; SIDE_MORE: all of it was looked at. */
static enum side_event h1_parse_body(struct side *s, struct str *slices, unsigned max, unsigned *n)
{
	struct window *w = &s->in;

	if (s->body.framing == HTTP_BODY_TUNNEL) {
		if (w->parsed < w->tail) {
			slices[(*n)++] = str_make(w->mem + w->parsed, w->tail - w->parsed);
			w->parsed = w->tail;
		}
		return SIDE_MORE;
	}
	while (*n < max) {
		struct str in = str_make(w->mem + w->parsed, w->tail - w->parsed), data;
		enum h1_body_event ev;
		size_t used = 0;

		ev = h1_body_next(&s->body, s->msg, in, &used, &data);
		w->parsed += (uint32_t)used;
		if (ev == H1_BODY_END)
			return SIDE_END;
		if (ev == H1_BODY_ERROR)
			return SIDE_BAD;
		if (ev == H1_BODY_MORE)
			return SIDE_MORE;
		slices[(*n)++] = data;
	}
	return SIDE_DATA;
}

static enum side_event h1_side_read_body(struct side *s, struct str *slices, unsigned max,
					 unsigned *ret_n)
{
	*ret_n = 0;
	for (;;) {
		enum side_event ev = h1_parse_body(s, slices, max, ret_n);
		ssize_t n;

		if (ev == SIDE_END)
			return ev;
		/* What was good leaves first; the reader will meet what is bad again. */
		if (*ret_n)
			return SIDE_DATA;
		if (ev == SIDE_BAD) {
			invalid_note(s);
			return ev;
		}
		/* No slices: framing bytes need not be kept. */
		if (!s->keeps)
			s->in.head = s->in.parsed;
		n = h1_fill(s);
		if (n > 0)
			continue;
		if (n == -EAGAIN)
			return SIDE_MORE;
		if (n == -ENOMEM)
			return SIDE_NOMEM;
		if (n == -ENOBUFS) {
			invalid_note(s);
			return SIDE_BAD;
		}
		s->is_read_closed = true;
		if (n < 0)
			return SIDE_GONE;
		return s->body.framing == HTTP_BODY_TUNNEL || h1_body_eof(&s->body) ? SIDE_END
										    : SIDE_GONE;
	}
}

static void h1_side_release(struct side *s)
{
	s->in.head = s->in.parsed;
}

/* A chunked body put together, as far as it was looked at. */
struct h1_peek {
	struct h1_body body;
	uint32_t at, len; /* in the window; of mem */
	char mem[]; /* as large as the window */
};

static struct str h1_peek_chunks(struct side *s)
{
	struct http_msg trailers = { 0 }; /* the reader keeps them */
	struct window *w = &s->in;
	struct h1_peek *p = s->peek;
	struct str data;
	size_t used;

	if (!p) {
		p = s->peek = arena_alloc(&s->st->arena, sizeof(*p) + w->cap - w->base);
		if (!p) {
			ctr_add(&s->st->w->ctr->alloc_failures, 1);
			return STR_NULL;
		}
		h1_body_init(&p->body, s->msg);
		p->at = w->base;
		p->len = 0;
	}
	while (h1_body_next(&p->body, &trailers, str_make(w->mem + p->at, w->tail - p->at), &used,
			    &data) == H1_BODY_DATA) {
		p->at += (uint32_t)used;
		memcpy(p->mem + p->len, data.p, data.len);
		p->len += (uint32_t)data.len;
	}
	p->at += (uint32_t)used;
	return str_make(p->mem, p->len);
}

static struct str h1_side_peek_body(struct side *s)
{
	const struct window *w = &s->in;
	uint32_t len = w->tail - w->base;

	if (!s->in_body || !s->msg || !w->mem || s->was_refilled || s->big_mem)
		return STR_NULL;
	switch ((enum http_framing)s->body.framing) {
	case HTTP_BODY_LENGTH:
		if (len > s->msg->content_length)
			len = (uint32_t)s->msg->content_length;
		return str_make(w->mem + w->base, len);
	case HTTP_BODY_CHUNKED:
		return h1_peek_chunks(s);
	case HTTP_BODY_CLOSE:
		return str_make(w->mem + w->base, len);
	default:
		return STR_NULL;
	}
}

static bool h1_side_rewind(struct side *s)
{
	if (s->was_refilled || s->big_mem)
		return false;
	s->in.head = s->in.parsed = s->in.base;
	if (s->in_body)
		h1_side_start_body(s, s->msg);
	return true;
}

/* --- writing -------------------------------------------------------------------------------------- */

/*
 * h1-case-adjust: names as a peer wants them that looks at their case. Framing and connection fields are written
 * by h1_write, capitalised as everybody does.
 */
static HG_COLD void h1_adjust_case(const struct conf_global *g, struct http_msg *m)
{
	for (unsigned i = 0; i < m->n_fields; i++) {
		struct http_field *f = &m->fields[i];

		for (unsigned k = 0; k < g->n_case_names; k++) {
			if (str_is_case_eq(f->name, g->case_names[k])) {
				f->name = g->case_names[k];
				break;
			}
		}
	}
}

static int h1_side_write_head(struct side *s, struct http_msg *msg, enum h1_connection conn)
{
	struct buf out;
	int r;

	if (unlikely(msg->flags & HTTP_MSG_RESPONSE
			     ? s->st->fe->options & CONF_OPT(CASE_ADJUST_CLIENT)
			     : s->st->be->options & CONF_OPT(CASE_ADJUST_SERVER)))
		h1_adjust_case(&s->st->snap->conf->global, msg);
	buf_init(&out, s->st->w->scratch, WORKER_SCRATCH);
	r = msg->flags & HTTP_MSG_RESPONSE ? h1_write_response(&out, msg, conn)
					   : h1_write_request(&out, msg, conn);
	if (r)
		return r;
	s->prefix = buf_str(&out);
	s->out_framing = msg->framing;
	s->out_msg = msg;
	s->is_first_chunk = true;
	s->is_end_sent = false;
	s->chunk_left = 0;
	return 0;
}

#define IOV_MAX_SIDE (SIDE_SLICES + 4)

/* What one sendv is made of: copies in order, then slices, then the suffix. */
struct h1_vector {
	struct iovec iov[IOV_MAX_SIDE];
	int n;
	size_t n_before, n_slices; /* bytes before the slices, and of them */
	char chunk[20];
	size_t chunk_len;
	struct str suffix;
};

static void h1_push(struct h1_vector *v, struct str s)
{
	if (!s.len)
		return;
	v->iov[v->n].iov_base = (void *)(uintptr_t)s.p;
	v->iov[v->n].iov_len = s.len;
	v->n++;
}

/* Behind what write_head() may have put there: the scratch has a corner for the last chunk. */
#define H1_SUFFIX_MAX 16384
/* Up to here copying costs less than a vector does in the kernel (send against sendmsg). */
#define H1_COALESCE_MAX 2048

static int h1_gather(struct side *s, const struct str *slices, unsigned n, bool is_end,
		     struct h1_vector *v)
{
	v->n = 0;
	v->n_slices = 0;
	v->chunk_len = 0;
	v->suffix = STR_NULL;
	h1_push(v, buf_str(&s->pending));
	h1_push(v, s->prefix);
	v->n_before = buf_len(&s->pending) + s->prefix.len;
	for (unsigned i = 0; i < n; i++)
		v->n_slices += slices[i].len;
	if (s->out_framing == HTTP_BODY_CHUNKED && v->n_slices && !s->chunk_left) {
		v->chunk_len = h1_write_chunk_size(v->chunk, v->n_slices, s->is_first_chunk);
		h1_push(v, str_make(v->chunk, v->chunk_len));
		v->n_before += v->chunk_len;
	}
	for (unsigned i = 0; i < n; i++)
		h1_push(v, slices[i]);
	if (s->out_framing == HTTP_BODY_CHUNKED && is_end && !s->is_end_sent) {
		struct buf b;
		int r;

		buf_init(&b, s->st->w->scratch + WORKER_SCRATCH, H1_SUFFIX_MAX);
		r = h1_write_last_chunk(&b, s->out_msg, s->is_first_chunk && !v->n_slices);
		if (r)
			return r;
		v->suffix = buf_str(&b);
		h1_push(v, v->suffix);
	}
	return 0;
}

/* A head in the scratch and little behind it: one piece. The order of the bytes stays, so does their booking. */
static void h1_coalesce(struct side *s, struct h1_vector *v)
{
	char *at = s->st->w->scratch + s->prefix.len;

	if (v->n < 2 || s->prefix.p != s->st->w->scratch || v->iov[0].iov_base != s->prefix.p ||
	    v->n_slices + v->suffix.len > H1_COALESCE_MAX ||
	    s->prefix.len > WORKER_SCRATCH - H1_COALESCE_MAX - sizeof(v->chunk))
		return;
	for (int i = 1; i < v->n; i++) {
		memcpy(at, v->iov[i].iov_base, v->iov[i].iov_len);
		at += v->iov[i].iov_len;
		v->iov[0].iov_len += v->iov[i].iov_len;
	}
	v->n = 1;
}

static int h1_hold(struct side *s, struct str text)
{
	if (!text.len)
		return 0;
	if (!s->pending.mem) {
		char *mem = pool_get(&s->st->w->big_pool);

		if (!mem) {
			ctr_add(&s->st->w->ctr->alloc_failures, 1);
			return -ENOMEM;
		}
		buf_init(&s->pending, mem, SIDE_BIG_WINDOW);
	}
	return buf_put(&s->pending, text) ? 0 : -ENOBUFS;
}

/* Cuts `*sent` bytes off the front of `t`. */
static struct str h1_rest(struct str t, size_t *sent)
{
	size_t k = *sent < t.len ? *sent : t.len;

	*sent -= k;
	return str_from(t, k);
}

/* The kernel took everything, as nearly always. */
static ssize_t h1_settle_all(struct side *s, const struct h1_vector *v, bool is_end)
{
	buf_clear(&s->pending);
	s->prefix = STR_NULL;
	if (v->chunk_len)
		s->is_first_chunk = false;
	else if (s->chunk_left)
		s->chunk_left -= v->n_slices;
	s->is_end_sent |= is_end;
	return (ssize_t)v->n_slices;
}

/* Books what the kernel took; the rest of everything but slices is kept. Returns bytes of slices taken. */
static ssize_t h1_settle(struct side *s, struct h1_vector *v, size_t sent, bool is_end)
{
	size_t k, taken;
	struct str prefix, chunk;
	int r;

	if (likely(sent == v->n_before + v->n_slices + v->suffix.len))
		return h1_settle_all(s, v, is_end);
	k = sent < buf_len(&s->pending) ? sent : buf_len(&s->pending);
	chunk = str_make(v->chunk, v->chunk_len);
	if (k)
		buf_consume(&s->pending, (uint32_t)k);
	sent -= k;
	prefix = h1_rest(s->prefix, &sent);
	s->prefix = STR_NULL;
	chunk = h1_rest(chunk, &sent);
	r = h1_hold(s, prefix);
	if (!r)
		r = h1_hold(s, chunk);
	if (r)
		return r;
	if (v->chunk_len) {
		s->chunk_left = v->n_slices;
		s->is_first_chunk = false;
	}
	taken = sent < v->n_slices ? sent : v->n_slices;
	sent -= taken;
	if (s->chunk_left)
		s->chunk_left -= taken;
	if (!is_end || taken < v->n_slices)
		return (ssize_t)taken;
	s->is_end_sent = true;
	r = h1_hold(s, str_from(v->suffix, sent));
	return r ? r : (ssize_t)taken;
}

static ssize_t h1_side_write(struct side *s, const struct str *slices, unsigned n, bool is_end)
{
	struct h1_vector v;
	ssize_t sent = 0;
	int r = h1_gather(s, slices, n, is_end, &v);

	if (r)
		return r;
	if (v.n && s->conn->can_write) {
		h1_coalesce(s, &v);
		sent = conn_sendv(s->conn, v.iov, v.n, false);
		if (sent == -EAGAIN)
			sent = 0;
		if (sent < 0)
			return sent;
		if (sent) {
			s->tx += (uint64_t)sent;
			s->active_ns = loop_now(s->st->w->loop);
		}
	}
	return h1_settle(s, &v, (size_t)sent, is_end);
}

static void h1_side_shut_write(struct side *s)
{
	if (s->is_write_shut || !s->conn)
		return;
	s->is_write_shut = true;
	conn_shut_write(s->conn);
}

static void h1_side_reset(struct side *s)
{
	conn_close(s->conn, true);
	s->conn = NULL;
}

const struct side_ops side_h1 = {
	.name = "h1",
	.read_head = h1_side_read_head,
	.prefetch = h1_side_prefetch,
	.drop_head = h1_side_drop_head,
	.start_body = h1_side_start_body,
	.read_body = h1_side_read_body,
	.release = h1_side_release,
	.peek_body = h1_side_peek_body,
	.rewind = h1_side_rewind,
	.write_head = h1_side_write_head,
	.write = h1_side_write,
	.shut_write = h1_side_shut_write,
	.reset = h1_side_reset,
};
