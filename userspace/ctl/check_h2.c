/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Health checks over HTTP/2. A check is written and judged as HTTP/1, in check_plan.c and check_expect.c; here its
 * request leaves as a stream of an HTTP/2 session, and the answer is put into the run's buffer as HTTP/1 would have
 * brought it, its end as the end of the connection. Control thread.
 */
#include <errno.h>

#include "ctl/health_priv.h"
#include "http/h2.h"

struct check_h2 {
	struct check_run *run;
	struct h2_session *session;
	struct h2_stream stream;
	struct http_msg req, rsp;
	struct str body; /* of the request, not taken yet */
	struct buf out;
	char out_mem[2 * H2_PRODUCE_ROOM];
};

static struct check_h2 *h2_of(struct h2_stream *s)
{
	return container_of(s, struct check_h2, stream);
}

/* --- what the session reports ------------------------------------------------------------------------ */

/* Whatever fails ends the answer: what is missing of it is what expectations see. */
static void on_response(struct h2_stream *s, bool is_end)
{
	struct check_h2 *h = h2_of(s);
	struct check_run *r = h->run;
	enum http_error error = HTTP_ERR_NONE;
	struct buf in;

	if (http_msg_init(&h->rsp, &r->arena, 101) ||
	    h2_read_response(h->session, &h->rsp, is_end, (enum http_method)r->method, &error)) {
		r->is_eof = true;
		return;
	}
	if (h->rsp.status / 100 == 1)
		return;
	/* A body without length ends where the stream does. */
	if (h->rsp.framing == HTTP_BODY_CHUNKED)
		h->rsp.framing = HTTP_BODY_CLOSE;
	buf_init(&in, r->in, CHECK_BUF_SIZE);
	if (h1_write_response(&in, &h->rsp, H1_CONN_NONE))
		r->is_eof = true;
	else
		r->in_len = in.tail;
}

/* As much as is looked at; the rest is let go. */
static int on_data(struct h2_stream *s, struct str data)
{
	struct check_run *r = h2_of(s)->run;
	size_t n = CHECK_BUF_SIZE - r->in_len;

	if (n > data.len)
		n = data.len;
	memcpy(r->in + r->in_len, data.p, n);
	r->in_len += (uint32_t)n;
	h2_stream_consumed(s, data.len);
	return 0;
}

static void on_trailers(struct h2_stream *s)
{
	struct check_h2 *h = h2_of(s);

	if (h2_read_trailers(h->session, &h->rsp))
		h->run->is_eof = true;
}

static void on_end(struct h2_stream *s)
{
	h2_of(s)->run->is_eof = true;
}

static void on_close(struct h2_stream *s)
{
	h2_of(s)->run->is_eof = true;
}

static void on_window(void *owner, struct h2_stream *s)
{
}

static void on_goaway(void *owner, int32_t last_id, uint32_t error)
{
}

static const struct h2_ops ops = {
	.on_response = on_response,
	.on_data = on_data,
	.on_trailers = on_trailers,
	.on_end = on_end,
	.on_close = on_close,
	.on_window = on_window,
	.on_goaway = on_goaway,
};

/* --- the connection ----------------------------------------------------------------------------------- */

static uint64_t now_of(const struct check_run *r)
{
	return loop_now(r->nw->loop);
}

/* Frames, and of the request what windows allow. 0, or -EAGAIN: the socket is full; -errno. */
static int flush(struct check_h2 *h)
{
	struct conn *c = h->run->conn;

	for (;;) {
		struct str out;
		ssize_t n = 0;
		int r = 0;

		buf_compact(&h->out);
		if (h->stream.id && h->stream.has_body && !h->stream.out_ended)
			n = h2_stream_write(&h->stream, &h->out, &h->body, 1, true, NULL);
		else
			r = h2_produce(h->session, &h->out);
		if (n > 0)
			h->body = str_from(h->body, (size_t)n);
		if (n < 0 || (r && r != -ENOBUFS))
			return n < 0 ? (int)n : r;
		out = buf_str(&h->out);
		if (!out.len)
			return 0;
		n = conn_sendv(c, &(struct iovec){ (void *)(uintptr_t)out.p, out.len }, 1, false);
		if (n <= 0)
			return n ? (int)n : -EAGAIN;
		buf_consume(&h->out, (uint32_t)n);
	}
}

static int open_session(struct check_run *r)
{
	const struct h2_limits limits = { .max_head = CHECK_BUF_SIZE, .max_fields = 101 };
	struct check_h2 *h = mem_zalloc(sizeof(*h));
	int rc;

	if (!h)
		return -ENOMEM;
	h->run = r;
	buf_init(&h->out, h->out_mem, sizeof(h->out_mem));
	rc = h2_client_new(&ops, h, &limits, now_of(r), &h->session);
	if (rc) {
		mem_free(h);
		return rc;
	}
	r->h2 = h;
	return 0;
}

static void leave_stream(struct check_h2 *h)
{
	if (h->stream.id)
		h2_stream_leave(&h->stream, H2_CANCEL, 0);
	h->stream.id = 0;
}

/* Most servers want :authority, also where HTTP/1.0 may leave the host out: the name asked for, or the address. */
static int add_host(struct check_h2 *h)
{
	const struct check_run *r = h->run;
	char text[ADDR_TEXT_MAX];
	struct str host = str_from_cstr(r->connect && r->connect->sni ? r->connect->sni
								      : r->target.sni);

	if (!host.len && !r->target.unix_path[0])
		host = str_make(text, addr_format(&r->target.to, text, sizeof(text)));
	if (!host.len)
		host = STR("localhost");
	host.p = arena_strdup(&h->run->arena, host);
	return host.p ? http_msg_add(&h->req, STR("host"), host) : -ENOMEM;
}

/* The text of a request as a stream. */
static int begin_request(struct check_run *r, struct str text)
{
	struct check_h2 *h = r->h2;
	struct h1_head head = { .max_bytes = CHECK_BUF_SIZE };
	int n;

	leave_stream(h);
	if (http_msg_init(&h->req, &r->arena, 101))
		return -ENOMEM;
	n = h1_read_request(&head, text, &h->req);
	if (n <= 0)
		return -EINVAL;
	if (!http_msg_host(&h->req).len && add_host(h))
		return -ENOMEM;
	/* HTTP/2 has no fields about the connection (RFC 9113 8.2.2). */
	http_msg_strip_hop_by_hop(&h->req, false);
	h->body = str_from(text, (size_t)n);
	return h2_stream_request(h->session, &h->stream, &h->req,
				 conn_is_tls(r->conn) ? STR("https") : STR("http"), STR(""),
				 h->body.len != 0);
}

int check_h2_send(struct check_run *r, const struct str *parts, unsigned n)
{
	int rc = r->h2 ? 0 : open_session(r);

	if (rc == 0 && !r->sent) {
		struct str text = STR("");

		for (unsigned i = 0; i < n; i++)
			text = arena_printf(&r->arena, STR_FMT STR_FMT, STR_ARG(text),
					    STR_ARG(parts[i]));
		r->is_eof = false;
		rc = text.p ? begin_request(r, text) : -ENOMEM;
		r->sent = rc == 0;
	}
	return rc ? rc : flush(r->h2);
}

int check_h2_receive(struct check_run *r)
{
	struct check_h2 *h = r->h2;
	char mem[4096];

	while (!r->is_eof) {
		ssize_t n = conn_recv(r->conn, mem, sizeof(mem));

		if (n == -EAGAIN)
			break;
		if (n < 0)
			return (int)n;
		if (n == 0 || h2_receive(h->session, str_make(mem, (size_t)n), now_of(r)))
			r->is_eof = true;
	}
	/* What the server is owed: acknowledgements, windows, the rest of the request. */
	if (flush(h) && h2_is_over(h->session))
		r->is_eof = true;
	return 0;
}

void check_h2_close(struct check_run *r)
{
	struct check_h2 *h = r->h2;

	if (!h)
		return;
	r->h2 = NULL;
	leave_stream(h);
	h2_terminate(h->session, H2_NO_ERROR);
	/* A farewell: the server need not hear it. */
	(void)!flush(h);
	h2_free(h->session);
	mem_free(h);
}
