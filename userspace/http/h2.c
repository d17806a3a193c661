/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HTTP/2 sessions (contract: h2.h): life, input, and what nghttp2 reports while it reads. Memory comes
 * from base/mem, so that tests can make any allocation of nghttp2 fail. What a callback finds out is told to
 * the owner at once; nothing is sent here.
 */
#include "http/h2.h"

#include <errno.h>

#include "http/h2_priv.h"

/* --- memory -------------------------------------------------------------------------------------- */

static void *ng_malloc(size_t size, void *user)
{
	return mem_alloc(size);
}

static void ng_free(void *p, void *user)
{
	mem_free(p);
}

static void *ng_calloc(size_t n, size_t size, void *user)
{
	return size && n > SIZE_MAX / size ? NULL : mem_zalloc(n * size);
}

static void *ng_realloc(void *p, size_t size, void *user)
{
	return mem_realloc(p, size);
}

static nghttp2_mem ng_mem = { NULL, ng_malloc, ng_free, ng_calloc, ng_realloc };

/* --- input --------------------------------------------------------------------------------------- */

static bool was_reset_by_us(const struct h2_session *h, int32_t id)
{
	for (unsigned i = 0; i < H2_RESETS; i++)
		if (h->resets[i] == id)
			return true;
	return false;
}

/*
 * The peer goes on with a stream that it ended, or opens one below its last (RFC 9113 5.1, 5.1.1). nghttp2
 * would have to remember closed streams to notice.
 */
static bool is_for_closed_stream(const struct h2_session *h, const nghttp2_frame_hd *hd)
{
	if (!h->is_server || (hd->type != NGHTTP2_DATA && hd->type != NGHTTP2_HEADERS) ||
	    !(hd->stream_id & 1))
		return false;
	return hd->stream_id <= nghttp2_session_get_last_proc_stream_id(h->ng) &&
	       !nghttp2_session_find_stream(h->ng, hd->stream_id) &&
	       !was_reset_by_us(h, hd->stream_id);
}

static int on_begin_frame(nghttp2_session *ng, const nghttp2_frame_hd *hd, void *user)
{
	struct h2_session *h = user;

	h2_guard_frame(h, hd);
	if (unlikely(is_for_closed_stream(h, hd)))
		h2_terminate(h, H2_STREAM_CLOSED);
	return 0;
}

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
	struct h2_session *h = user;

	return h2_head_begin(h) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
		     void *user)
{
	struct h2_session *h = user;

	h2_head_add(h, str_make((const char *)name, name_len),
		    str_make((const char *)value, value_len));
	return 0;
}

/* nghttp2 would leave the field out and go on: two recipients would then see different messages. */
static int on_invalid_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
			     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
			     void *user)
{
	struct h2_session *h = user;

	h2_guard_glitch(h);
	if (!h->head.error)
		h->head.error = http_is_token(str_make((const char *)name, name_len))
					? HTTP_ERR_BAD_FIELD_VALUE
					: HTTP_ERR_BAD_FIELD_NAME;
	return 0;
}

static int refuse(struct h2_session *h, int32_t id, enum h2_error why)
{
	return nghttp2_submit_rst_stream(h->ng, NGHTTP2_FLAG_NONE, id, why)
		       ? NGHTTP2_ERR_CALLBACK_FAILURE
		       : 0;
}

static int request_received(struct h2_session *h, int32_t id, bool is_end)
{
	struct h2_stream *s = h->is_leaving ? NULL : h->ops->on_request(h->owner, is_end);

	if (!s)
		return refuse(h, id, H2_REFUSED_STREAM);
	*s = (struct h2_stream){ .h2 = h, .id = id, .in_ended = is_end };
	if (nghttp2_session_set_stream_user_data(h->ng, id, s)) {
		s->id = 0;
		return refuse(h, id, H2_INTERNAL_ERROR);
	}
	return 0;
}

static int head_received(struct h2_session *h, const nghttp2_frame *frame)
{
	bool is_end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
	struct h2_stream *s;

	if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
		return request_received(h, frame->hd.stream_id, is_end);
	s = h2_find(h, frame->hd.stream_id);
	if (!s)
		return 0;
	if (h->head.has_status) {
		s->in_ended = is_end;
		h->ops->on_response(s, is_end);
		return 0;
	}
	h->ops->on_trailers(s);
	return 0;
}

static void end_received(struct h2_session *h, const nghttp2_frame *frame)
{
	struct h2_stream *s = h2_find(h, frame->hd.stream_id);

	if (!s || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return;
	s->in_ended = true;
	h->ops->on_end(s);
}

static int on_frame_recv(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
	struct h2_session *h = user;
	int r = 0;

	switch (frame->hd.type) {
	case NGHTTP2_HEADERS:
		r = head_received(h, frame);
		if (!r && frame->headers.cat != NGHTTP2_HCAT_REQUEST)
			end_received(h, frame);
		break;
	case NGHTTP2_DATA:
		/* A frame of nothing, or of nothing but padding. */
		if (frame->hd.length <= frame->data.padlen &&
		    !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
			h2_guard_spend(h, H2_ABUSE_EMPTY);
		end_received(h, frame);
		break;
	case NGHTTP2_WINDOW_UPDATE:
		h->ops->on_window(h->owner,
				  frame->hd.stream_id ? h2_find(h, frame->hd.stream_id) : NULL);
		break;
	case NGHTTP2_SETTINGS:
		/* A new initial window moves those of all streams (RFC 9113 6.9.2). */
		if (!(frame->hd.flags & NGHTTP2_FLAG_ACK)) {
			h->has_settings = true;
			h->ops->on_window(h->owner, NULL);
		}
		break;
	case NGHTTP2_GOAWAY:
		/* A client's concerns only pushed streams. */
		h->is_leaving |= !h->is_server;
		h->ops->on_goaway(h->owner, frame->goaway.last_stream_id, frame->goaway.error_code);
		break;
	default:
		break;
	}
	return r;
}

/* Broken frames that cost the peer only its stream would be a way to make us send resets for nothing. */
static int on_invalid_frame(nghttp2_session *ng, const nghttp2_frame *frame, int error, void *user)
{
	h2_guard_glitch(user);
	h2_guard_spend(user, H2_ABUSE_RESET);
	return 0;
}

static int on_data_chunk(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *data,
			 size_t len, void *user)
{
	struct h2_session *h = user;
	struct h2_stream *s = h2_find(h, id);

	if (s && h->ops->on_data(s, str_make((const char *)data, len)) == 0)
		return 0;
	if (nghttp2_session_consume_connection(ng, len))
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	return s ? refuse(h, id, H2_INTERNAL_ERROR) : 0;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t error, void *user)
{
	struct h2_session *h = user;
	struct h2_stream *s = h2_find(h, id);

	if (error == NGHTTP2_NO_ERROR)
		h2_guard_earn(&h->guard, H2_ABUSE_RESET, 1);
	if (!h->is_server && h->n_open)
		h->n_open--;
	if (!s)
		return 0;
	s->id = 0;
	s->error = error;
	h->ops->on_close(s);
	return 0;
}

/* --- output -------------------------------------------------------------------------------------- */

static int on_frame_send(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
	struct h2_session *h = user;
	struct h2_stream *s;

	if (frame->hd.type == NGHTTP2_DATA && frame->hd.length) {
		h2_guard_earn(&h->guard, H2_ABUSE_WINDOW, 4);
		h2_guard_earn(&h->guard, H2_ABUSE_PING, 1);
	}
	if (frame->hd.type == NGHTTP2_RST_STREAM)
		h->resets[h->n_resets++ % H2_RESETS] = frame->hd.stream_id;
	if (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	s = h2_find(h, frame->hd.stream_id);
	if (s && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
		s->out_ended = true;
	return 0;
}

/* A DATA frame goes straight from the slices to the buffer; h2_produce() made sure of the room. */
static int on_send_data(nghttp2_session *ng, nghttp2_frame *frame, const uint8_t *head, size_t len,
			nghttp2_data_source *source, void *user)
{
	struct h2_session *h = user;
	struct h2_stream *s = h2_find(h, frame->hd.stream_id);

	if (!s || buf_room(h->out) < len + 9)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	memcpy(buf_tail(h->out), head, 9);
	buf_commit(h->out, 9);
	s->taken += len;
	while (len) {
		size_t left = s->slices->len - s->offset, k = left < len ? left : len;

		memcpy(buf_tail(h->out), s->slices->p + s->offset, k);
		buf_commit(h->out, (uint32_t)k);
		len -= k;
		s->offset += k;
		if (s->offset == s->slices->len) {
			s->slices++;
			s->n_slices--;
			s->offset = 0;
		}
	}
	/* nghttp2 would go on with the next frame without asking for room. */
	h->is_paused = buf_room(h->out) < H2_PRODUCE_ROOM;
	return h->is_paused ? NGHTTP2_ERR_PAUSE : 0;
}

/* --- life ---------------------------------------------------------------------------------------- */

static int set_callbacks(nghttp2_session_callbacks **ret)
{
	nghttp2_session_callbacks *cb;

	if (nghttp2_session_callbacks_new(&cb))
		return -ENOMEM;
	nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
	nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
	nghttp2_session_callbacks_set_on_invalid_header_callback(cb, on_invalid_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
	nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
	nghttp2_session_callbacks_set_send_data_callback(cb, on_send_data);
	*ret = cb;
	return 0;
}

static int set_options(const struct h2_limits *limits, nghttp2_option **ret)
{
	nghttp2_option *o;

	if (nghttp2_option_new(&o))
		return -ENOMEM;
	nghttp2_option_set_no_auto_window_update(o, 1);
	/* h2_guard.c comes first: its GOAWAY names the reason. */
	nghttp2_option_set_stream_reset_rate_limit(o, 1u << 30, 1u << 30);
	nghttp2_option_set_max_continuations(o, 1u << 10);
	nghttp2_option_set_peer_max_concurrent_streams(o, limits->max_streams);
	*ret = o;
	return 0;
}

/* Towards servers all streams may be full; 2^31 - 1 is what a window can say (RFC 9113 6.9.1). */
static int32_t connection_window(const struct h2_limits *l)
{
	uint64_t all = (uint64_t)l->max_streams * l->window;

	if (all < NGHTTP2_INITIAL_CONNECTION_WINDOW_SIZE)
		all = NGHTTP2_INITIAL_CONNECTION_WINDOW_SIZE;
	return all < INT32_MAX ? (int32_t)all : INT32_MAX;
}

static void limits_complete(struct h2_limits *l)
{
	if (!l->max_streams)
		l->max_streams = H2_MAX_STREAMS;
	if (!l->window || l->window > H2_STREAM_WINDOW)
		l->window = H2_STREAM_WINDOW;
	if (l->max_frame < H2_FRAME)
		l->max_frame = H2_FRAME;
}

static int say_hello(struct h2_session *h)
{
	const struct h2_limits *l = &h->limits;
	nghttp2_settings_entry iv[7];
	size_t n = 0;
	int r;

	if (h->is_server) {
		iv[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
						    l->max_streams };
		if (h->limits.allow_connect_protocol)
			iv[n++] = (nghttp2_settings_entry){
				NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1
			};
	} else {
		iv[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 };
	}
	iv[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, l->max_head };
	if (l->window != H2_STREAM_WINDOW)
		iv[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
						    l->window };
	if (l->max_frame != H2_FRAME)
		iv[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_MAX_FRAME_SIZE, l->max_frame };
	if (l->has_header_table)
		iv[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_HEADER_TABLE_SIZE,
						    l->header_table };
	r = nghttp2_submit_settings(h->ng, NGHTTP2_FLAG_NONE, iv, n);
	if (!r)
		r = nghttp2_session_set_local_window_size(h->ng, NGHTTP2_FLAG_NONE, 0,
							  h->is_server ? (int32_t)H2_CONN_WINDOW
								       : connection_window(l));
	return r ? -ENOMEM : 0;
}

static int session_new(bool is_server, const struct h2_ops *ops, void *owner,
		       const struct h2_limits *limits, uint64_t now_ns, struct h2_session **ret)
{
	struct h2_session *h = mem_zalloc(sizeof(*h));
	nghttp2_session_callbacks *cb = NULL;
	nghttp2_option *opt = NULL;
	int r = -ENOMEM;

	if (!h)
		return -ENOMEM;
	h->ops = ops;
	h->owner = owner;
	h->limits = *limits;
	limits_complete(&h->limits);
	h->is_server = is_server;
	h2_guard_init(&h->guard, h->limits.max_streams, now_ns);
	if (set_callbacks(&cb) == 0 && set_options(&h->limits, &opt) == 0) {
		r = is_server ? nghttp2_session_server_new3(&h->ng, cb, h, opt, &ng_mem)
			      : nghttp2_session_client_new3(&h->ng, cb, h, opt, &ng_mem);
		r = r ? -ENOMEM : say_hello(h);
	}
	nghttp2_session_callbacks_del(cb);
	nghttp2_option_del(opt);
	if (r) {
		h2_free(h);
		return r;
	}
	*ret = h;
	return 0;
}

int h2_server_new(const struct h2_ops *ops, void *owner, const struct h2_limits *limits,
		  uint64_t now_ns, struct h2_session **ret)
{
	return session_new(true, ops, owner, limits, now_ns, ret);
}

int h2_client_new(const struct h2_ops *ops, void *owner, const struct h2_limits *limits,
		  uint64_t now_ns, struct h2_session **ret)
{
	return session_new(false, ops, owner, limits, now_ns, ret);
}

void h2_trim(struct h2_session *h)
{
	mem_free(h->head.text);
	mem_free(h->head.fields);
	h->head = (struct h2_head){ 0 };
}

void h2_free(struct h2_session *h)
{
	if (!h)
		return;
	nghttp2_session_del(h->ng);
	h2_trim(h);
	mem_free(h);
}

int h2_receive(struct h2_session *h, struct str in, uint64_t now_ns)
{
	ssize_t n;

	if (h->is_over)
		return -EPROTO;
	h2_guard_refill(&h->guard, now_ns);
	n = nghttp2_session_mem_recv(h->ng, (const uint8_t *)in.p, in.len);
	if (n >= 0 && !h->guard.abuse)
		return 0;
	if (n == NGHTTP2_ERR_NOMEM || n == NGHTTP2_ERR_CALLBACK_FAILURE) {
		h->is_over = true;
		return -ENOMEM;
	}
	if (n == NGHTTP2_ERR_FLOODED)
		h2_guard_end(h, H2_ABUSE_PING);
	else if (n < 0 && n != NGHTTP2_ERR_BAD_CLIENT_MAGIC)
		h2_terminate(h, H2_PROTOCOL_ERROR);
	else if (n < 0)
		h->is_over = true;
	h->is_leaving = true;
	return -EPROTO;
}
