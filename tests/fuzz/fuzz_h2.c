/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * links: http base
 * A hostile HTTP/2 peer at frame level. First byte: bit 0 client session (the input is a server), bit 1 the
 * input is cut into small pieces, bit 2 answers are given, bit 3 exchanges are left early. What follows are
 * frames; each gets its length filled in, so that mutations stay frames: 2 bytes length, type, flags, stream,
 * payload. Nothing may crash, hang, leak, or deliver more than windows admit.
 */
#include <stdlib.h>

#include "http/h2.h"

#define STREAMS_MAX 128
#define ABORT_IF(cond)           \
	do {                     \
		if (cond)        \
			abort(); \
	} while (0)

struct fx {
	struct h2_stream h2;
	struct arena arena;
	struct http_msg m;
	size_t unread;
	bool is_used, is_left;
};

static struct fx fx[STREAMS_MAX];
static unsigned n_fx;
static struct h2_session *h2;

static struct h2_stream *on_request(void *owner, bool is_end)
{
	enum http_error e;
	struct str protocol;
	struct fx *x;

	if (n_fx == STREAMS_MAX)
		return NULL;
	x = &fx[n_fx++];
	memset(x, 0, sizeof(*x));
	arena_init(&x->arena, 1024);
	if (http_msg_init(&x->m, &x->arena, 20))
		abort();
	if (h2_read_request(h2, &x->m, is_end, &protocol, &e) == 0) {
		ABORT_IF(x->m.n_fields > 20);
		ABORT_IF(x->m.method != HTTP_METHOD_CONNECT && !x->m.path.len);
		ABORT_IF(!http_msg_has(&x->m, HTTP_FIELD_HOST));
	}
	return &x->h2;
}

static void on_response(struct h2_stream *s, bool is_end)
{
	struct fx *x = container_of(s, struct fx, h2);
	enum http_error e;

	if (h2_read_response(h2, &x->m, is_end, HTTP_METHOD_GET, &e) == 0)
		ABORT_IF(x->m.status < 100 || x->m.status > 999 || x->m.status == 101);
}

static int on_data(struct h2_stream *s, struct str data)
{
	struct fx *x = container_of(s, struct fx, h2);

	ABORT_IF(x->is_left);
	x->unread += data.len;
	ABORT_IF(x->unread > H2_STREAM_WINDOW + 16384);
	return 0;
}

static void on_trailers(struct h2_stream *s)
{
	struct fx *x = container_of(s, struct fx, h2);

	ABORT_IF(x->is_left);
	(void)!h2_read_trailers(h2, &x->m);
}

static void on_end(struct h2_stream *s)
{
	ABORT_IF(container_of(s, struct fx, h2)->is_left);
}

static void on_window(void *owner, struct h2_stream *s)
{
}

static void on_goaway(void *owner, int32_t last_id, uint32_t error)
{
}

static const struct h2_ops ops = {
	on_request, on_response, on_data, on_trailers, on_end, on_end, on_window, on_goaway,
};

static void answer(struct fx *x, struct buf *out, bool leaves)
{
	struct str body = STR("hello");
	struct http_msg m;
	struct h1_head head = { 0 };

	if (x->is_left || !x->h2.h2)
		return;
	if (x->unread) {
		h2_stream_consumed(&x->h2, x->unread);
		x->unread = 0;
	}
	if (!x->h2.out_started && x->h2.id && !http_msg_init(&m, &x->arena, 20) &&
	    h1_read_response(&head, STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), &m,
			     HTTP_METHOD_GET) > 0)
		(void)!h2_stream_respond(&x->h2, &m, true);
	if (x->h2.has_body && !x->h2.out_ended)
		ABORT_IF(h2_stream_write(&x->h2, out, &body, 1, true, NULL) > 5);
	if (leaves) {
		h2_stream_leave(&x->h2, H2_CANCEL, x->unread);
		x->is_left = true;
	}
}

static void feed(struct str s, bool in_pieces, uint64_t now)
{
	while (s.len) {
		size_t n = in_pieces && s.len > 3 ? 3 : s.len;

		if (h2_receive(h2, str_make(s.p, n), now))
			return;
		s = str_from(s, n);
	}
}

static void start_request(void)
{
	struct fx *x = &fx[n_fx++];
	struct h1_head head = { 0 };

	memset(x, 0, sizeof(*x));
	arena_init(&x->arena, 1024);
	if (http_msg_init(&x->m, &x->arena, 20) ||
	    h1_read_request(&head, STR("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), &x->m) <= 0 ||
	    h2_stream_request(h2, &x->h2, &x->m, STR("http"), STR(""), false))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct h2_limits limits = { .max_head = 4096,
						 .max_fields = 20,
						 .allow_connect_protocol = true };
	static char frame[70000], mem[65536];
	unsigned mode, turn = 0;
	struct buf out;
	int r;

	if (!size)
		return 0;
	mode = *data;
	n_fx = 0;
	buf_init(&out, mem, sizeof(mem));
	r = mode & 1 ? h2_client_new(&ops, NULL, &limits, 1, &h2)
		     : h2_server_new(&ops, NULL, &limits, 1, &h2);
	if (r)
		abort();
	if (mode & 1)
		start_request();
	else
		feed(STR(H2_PREFACE "\0\0\0\4\0\0\0\0\0"), false, 1);
	for (size_t at = 1; at + 5 <= size && turn < 2000; turn++) {
		size_t len = (size_t)data[at] << 8 | data[at + 1];

		if (len > size - at - 5)
			len = size - at - 5;
		memset(frame, 0, 9);
		frame[1] = (char)(len >> 8);
		frame[2] = (char)len;
		frame[3] = (char)data[at + 2];
		frame[4] = (char)data[at + 3];
		frame[8] = (char)data[at + 4];
		memcpy(frame + 9, data + at + 5, len);
		feed(str_make(frame, 9 + len), mode & 2, 1 + turn);
		at += 5 + len;
		for (unsigned i = 0; mode & 4 && i < n_fx; i++)
			answer(&fx[i], &out, mode & 8 && i % 3 == 0);
		r = h2_produce(h2, &out);
		buf_clear(&out);
	}
	h2_free(h2);
	for (unsigned i = 0; i < n_fx; i++)
		arena_free(&fx[i].arena);
	return 0;
}
