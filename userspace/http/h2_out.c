/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HTTP/2 output and exchanges (contract: h2.h). nghttp2 decides the order of frames; body bytes are
 * offered by reference only for the time of one h2_stream_write(), so a stream that is scheduled at another
 * moment has nothing to say and is put off until it offers again.
 */
#include <errno.h>

#include "http/h2_priv.h"

static int fail(struct h2_session *h, int ng_error)
{
	h->is_over = true;
	return ng_error == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO;
}

int h2_produce(struct h2_session *h, struct buf *out)
{
	int r = 0;

	if (h->is_over)
		return -EPROTO;
	h->out = out;
	for (;;) {
		const uint8_t *p;
		ssize_t n;

		if (buf_room(out) < H2_PRODUCE_ROOM) {
			buf_compact(out);
			if (buf_room(out) < H2_PRODUCE_ROOM) {
				r = nghttp2_session_want_write(h->ng) ? -ENOBUFS : 0;
				break;
			}
		}
		h->is_paused = false;
		n = nghttp2_session_mem_send(h->ng, &p);
		if (n < 0) {
			r = fail(h, (int)n);
			break;
		}
		if (n == 0 && h->is_paused)
			continue;
		if (n == 0)
			break;
		/* At most one frame of the peer's size, which nghttp2 keeps at 16384. */
		if ((size_t)n > buf_room(out)) {
			r = fail(h, NGHTTP2_ERR_PROTO);
			break;
		}
		memcpy(buf_tail(out), p, (size_t)n);
		buf_commit(out, (uint32_t)n);
	}
	h->out = NULL;
	return r;
}

bool h2_wants_output(const struct h2_session *h)
{
	return !h->is_over && nghttp2_session_want_write(h->ng);
}

bool h2_is_over(const struct h2_session *h)
{
	return h->is_over ||
	       (!nghttp2_session_want_read(h->ng) && !nghttp2_session_want_write(h->ng));
}

bool h2_can_open(const struct h2_session *h)
{
	uint32_t max;

	if (h->is_over || h->is_leaving)
		return false;
	if (h->is_server)
		return true;
	max = nghttp2_session_get_remote_settings(h->ng, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
	return h->n_open < (max < h->limits.max_streams ? max : h->limits.max_streams) &&
	       nghttp2_session_check_request_allowed(h->ng);
}

int h2_takes_protocols(const struct h2_session *h)
{
	if (!h->has_settings)
		return -EINPROGRESS;
	return nghttp2_session_get_remote_settings(h->ng,
						   NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL) == 1;
}

enum h2_abuse h2_abuse(const struct h2_session *h)
{
	return (enum h2_abuse)h->guard.abuse;
}

/* --- the end of a connection --------------------------------------------------------------------- */

int h2_shutdown_notice(struct h2_session *h)
{
	int r = h->is_over ? NGHTTP2_ERR_PROTO : nghttp2_submit_shutdown_notice(h->ng);

	return r == 0 ? 0 : r == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO;
}

int h2_goaway(struct h2_session *h, enum h2_error why)
{
	int r;

	if (h->is_over)
		return -EPROTO;
	h->is_leaving = true;
	r = nghttp2_submit_goaway(h->ng, NGHTTP2_FLAG_NONE,
				  nghttp2_session_get_last_proc_stream_id(h->ng), why, NULL, 0);
	return r ? -ENOMEM : 0;
}

void h2_terminate(struct h2_session *h, enum h2_error why)
{
	h->is_leaving = true;
	if (!h->is_over && nghttp2_session_terminate_session(h->ng, why))
		h->is_over = true;
}

/* --- exchanges ----------------------------------------------------------------------------------- */

static size_t offered(const struct h2_stream *s)
{
	size_t n = 0;

	for (unsigned i = 0; i < s->n_slices; i++)
		n += s->slices[i].len;
	return n - s->offset;
}

#define TRAILERS_MAX 64

static bool is_trailer(const struct http_field *f)
{
	return !f->is_removed && http_is_token(f->name) && http_may_be_trailer(f->name);
}

/* False: none worth sending. */
static bool send_trailers(struct h2_session *h, struct h2_stream *s)
{
	const struct http_msg *m = s->trailers;
	nghttp2_nv nv[TRAILERS_MAX];
	char names[2048];
	size_t n = 0, used = 0;

	if (!m || !(m->flags & HTTP_MSG_HAS_TRAILERS) || m->flags & HTTP_MSG_NO_TRAILERS)
		return false;
	for (unsigned i = 0; i < m->n_trailers && n < TRAILERS_MAX; i++) {
		const struct http_field *f = &m->trailers[i];

		if (!is_trailer(f) || f->name.len > sizeof(names) - used)
			continue;
		for (size_t k = 0; k < f->name.len; k++)
			names[used + k] = str_lower_char(f->name.p[k]);
		nv[n++] = (nghttp2_nv){ (uint8_t *)names + used, (uint8_t *)(uintptr_t)f->value.p,
					f->name.len, f->value.len, NGHTTP2_NV_FLAG_NONE };
		used += f->name.len;
	}
	return n && nghttp2_submit_trailer(h->ng, s->id, nv, n) == 0;
}

/* How much of a DATA frame there is; the bytes follow in on_send_data(). */
static ssize_t read_data(nghttp2_session *ng, int32_t id, uint8_t *buf, size_t length,
			 uint32_t *flags, nghttp2_data_source *source, void *user)
{
	struct h2_session *h = user;
	struct h2_stream *s = h2_find(h, id);
	size_t n;

	if (!s)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	n = offered(s);
	if (!n && !s->offers_end)
		return NGHTTP2_ERR_DEFERRED;
	*flags |= NGHTTP2_DATA_FLAG_NO_COPY;
	if (n > length)
		return (ssize_t)length;
	if (s->offers_end) {
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		if (send_trailers(h, s))
			*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
	}
	return (ssize_t)n;
}

static const nghttp2_data_provider provider = { .read_callback = read_data };

/* Fields that HTTP/2 does not have, or that are written from the message's framing. */
#define SKIPPED                                                                                 \
	(1u << HTTP_FIELD_CONNECTION | 1u << HTTP_FIELD_CONTENT_LENGTH |                        \
	 1u << HTTP_FIELD_TRANSFER_ENCODING | 1u << HTTP_FIELD_KEEP_ALIVE |                     \
	 1u << HTTP_FIELD_PROXY_CONNECTION | 1u << HTTP_FIELD_UPGRADE | 1u << HTTP_FIELD_HOST | \
	 1u << HTTP_FIELD_HTTP2_SETTINGS)
/* Secrets stay out of the compression's memory: it is shared by all requests of a connection (RFC 7541 7.1). */
#define SECRET \
	(1u << HTTP_FIELD_AUTHORIZATION | 1u << HTTP_FIELD_COOKIE | 1u << HTTP_FIELD_SET_COOKIE)

struct nv_list {
	nghttp2_nv *nv;
	size_t n, cap;
	struct arena *arena;
	char length[24];
};

static void nv_put(struct nv_list *l, struct str name, struct str value, uint8_t flags)
{
	BUG_ON(l->n == l->cap);
	l->nv[l->n++] = (nghttp2_nv){ (uint8_t *)(uintptr_t)name.p, (uint8_t *)(uintptr_t)value.p,
				      name.len, value.len, flags };
}

/* Lower case, as HTTP/2 wants it; p NULL: out of memory, or no token (from a lenient reader). */
static struct str lower_name(struct nv_list *l, const struct http_field *f)
{
	size_t i = 0;
	char *p;

	if (f->id != HTTP_FIELD_OTHER)
		return http_field_name((enum http_field_id)f->id);
	while (i < f->name.len && !(f->name.p[i] >= 'A' && f->name.p[i] <= 'Z'))
		i++;
	if (i == f->name.len)
		return f->name;
	p = l->arena ? arena_alloc(l->arena, f->name.len) : NULL;
	for (i = 0; p && i < f->name.len; i++)
		p[i] = str_lower_char(f->name.p[i]);
	return str_make(p, f->name.len);
}

static int nv_fields(struct nv_list *l, const struct http_msg *m)
{
	bool has_length = m->framing == HTTP_BODY_LENGTH ||
			  (m->framing == HTTP_BODY_NONE && m->flags & HTTP_MSG_LENGTH_ONLY);

	for (unsigned i = 0; i < m->n_fields; i++) {
		const struct http_field *f = &m->fields[i];
		struct str name;

		if (f->is_removed || SKIPPED >> f->id & 1 ||
		    (f->id == HTTP_FIELD_OTHER && !http_is_token(f->name)))
			continue;
		if (f->id == HTTP_FIELD_TE && !str_is_case_eq(f->value, STR("trailers")))
			continue;
		name = lower_name(l, f);
		if (!name.p)
			return -ENOMEM;
		nv_put(l, name, f->value,
		       SECRET >> f->id & 1 ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE);
	}
	if (has_length) {
		struct buf b;

		buf_init(&b, l->length, sizeof(l->length));
		if (!buf_printf(&b, "%llu", (unsigned long long)m->content_length))
			return -EINVAL;
		nv_put(l, STR("content-length"), buf_str(&b), NGHTTP2_NV_FLAG_NONE);
	}
	return 0;
}

/* Pseudo fields and content-length beside the message's own. */
#define NV_EXTRA 8

static int nv_init(struct nv_list *l, const struct http_msg *m)
{
	if (!m->arena)
		return -ENOMEM;
	l->n = 0;
	l->cap = m->n_fields + NV_EXTRA;
	l->arena = m->arena;
	l->nv = arena_alloc(m->arena, l->cap * sizeof(*l->nv));
	return l->nv ? 0 : -ENOMEM;
}

static int from_ng(int r)
{
	switch (r) {
	case 0:
		return 0;
	case NGHTTP2_ERR_NOMEM:
		return -ENOMEM;
	case NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE:
		return -EAGAIN;
	default:
		return -EPIPE;
	}
}

int h2_stream_respond(struct h2_stream *s, const struct http_msg *m, bool has_body)
{
	unsigned status = m->status == 101 ? 200 : m->status;
	char text[3] = { (char)('0' + status / 100 % 10), (char)('0' + status / 10 % 10),
			 (char)('0' + status % 10) };
	struct nv_list l;
	int r;

	if (!s->id || s->h2->is_over)
		return -EPIPE;
	r = nv_init(&l, m);
	if (r)
		return r;
	nv_put(&l, STR(":status"), str_make(text, sizeof(text)), NGHTTP2_NV_FLAG_NONE);
	r = nv_fields(&l, m);
	if (r)
		return r;
	if (status < 200)
		return from_ng(nghttp2_submit_headers(s->h2->ng, NGHTTP2_FLAG_NONE, s->id, NULL,
						      l.nv, l.n, NULL));
	s->out_started = true;
	s->has_body = has_body;
	return from_ng(
		nghttp2_submit_response(s->h2->ng, s->id, l.nv, l.n, has_body ? &provider : NULL));
}

int h2_stream_request(struct h2_session *h, struct h2_stream *s, const struct http_msg *m,
		      struct str scheme, struct str protocol, bool has_body)
{
	bool is_connect = m->method == HTTP_METHOD_CONNECT;
	struct nv_list l;
	struct str host;
	int32_t id;
	int r;

	if (!h2_can_open(h))
		return -EAGAIN;
	r = nv_init(&l, m);
	if (r)
		return r;
	/* A rule may have changed the Host field: it is what HTTP/1 would send. */
	host = is_connect ? m->authority : STR_NULL;
	if (!is_connect) {
		const struct http_field *f = http_msg_find(m, HTTP_FIELD_HOST, 0);

		host = f ? f->value : m->authority;
	}
	nv_put(&l, STR(":method"), protocol.len ? STR("CONNECT") : m->method_text, 0);
	if (protocol.len)
		nv_put(&l, STR(":protocol"), protocol, 0);
	if (!is_connect) {
		nv_put(&l, STR(":scheme"), scheme, 0);
		nv_put(&l, STR(":path"), m->path, 0);
	}
	if (host.len)
		nv_put(&l, STR(":authority"), host, 0);
	r = nv_fields(&l, m);
	if (r)
		return r;
	*s = (struct h2_stream){ .h2 = h, .out_started = true, .has_body = has_body };
	id = nghttp2_submit_request(h->ng, NULL, l.nv, l.n, has_body ? &provider : NULL, s);
	if (id < 0)
		return from_ng(id);
	s->id = id;
	h->n_open++;
	return 0;
}

ssize_t h2_stream_write(struct h2_stream *s, struct buf *out, const struct str *slices, unsigned n,
			bool is_end, const struct http_msg *trailers)
{
	size_t taken;
	int r;

	if (!s->id)
		return s->out_ended && !n ? 0 : -EPIPE;
	s->slices = slices;
	s->n_slices = n;
	s->offset = 0;
	s->taken = 0;
	s->offers_end = is_end;
	s->trailers = trailers;
	/* Complains when the stream was not put off: nothing to do then. */
	if (s->has_body && s->out_started && (n || is_end) &&
	    nghttp2_session_resume_data(s->h2->ng, s->id) == NGHTTP2_ERR_NOMEM)
		return fail(s->h2, NGHTTP2_ERR_NOMEM);
	r = h2_produce(s->h2, out);
	taken = s->taken;
	s->slices = NULL;
	s->n_slices = 0;
	s->offset = 0;
	s->offers_end = false;
	s->trailers = NULL;
	if (r && r != -ENOBUFS)
		return r;
	/* Reset while it was being written. */
	if (!s->id && !s->out_ended)
		return -EPIPE;
	return (ssize_t)taken;
}

bool h2_stream_has_window(const struct h2_stream *s)
{
	return s->id && !s->h2->is_over &&
	       nghttp2_session_get_stream_remote_window_size(s->h2->ng, s->id) > 0 &&
	       nghttp2_session_get_remote_window_size(s->h2->ng) > 0;
}

void h2_stream_consumed(struct h2_stream *s, size_t n)
{
	int r;

	if (s->h2->is_over || !n)
		return;
	r = nghttp2_session_consume_connection(s->h2->ng, n);
	/* The stream may be closed while its bytes were still here. */
	if (!r && s->id && !s->in_ended)
		r = nghttp2_session_consume_stream(s->h2->ng, s->id, n);
	if (r == NGHTTP2_ERR_NOMEM)
		s->h2->is_over = true;
}

void h2_stream_leave(struct h2_stream *s, enum h2_error why, size_t unread)
{
	struct h2_session *h = s->h2;
	int r = 0;

	if (!h || h->is_over)
		return;
	if (unread)
		r = nghttp2_session_consume_connection(h->ng, unread);
	if (!r && s->id) {
		/* Fails only for streams that nghttp2 has not opened yet: resetting them cancels them. */
		nghttp2_session_set_stream_user_data(h->ng, s->id, NULL);
		/* The answer is complete and the rest of the request is not needed (RFC 9113 8.1). */
		if (s->out_ended && h->is_server)
			why = H2_NO_ERROR;
		r = nghttp2_submit_rst_stream(h->ng, NGHTTP2_FLAG_NONE, s->id, why);
	}
	s->id = 0;
	if (r == NGHTTP2_ERR_NOMEM)
		h->is_over = true;
}
