/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HTTP/2 towards clients: birth and death of exchanges, and what the session reports about them
 * (overview: h2_client.h). The callbacks run while the connection reads or writes: they note what
 * happened and wake the stream, which runs later.
 */
#include <errno.h>
#include <sys/random.h>

#include "proxy/h2_client.h"

/* --- exchanges ------------------------------------------------------------------------------------ */

static const struct proxy_bind *find_bind(const struct worker *w, const struct client *cl)
{
	if (cl->snap == w->snap)
		return cl->pb;
	for (unsigned i = 0; i < w->snap->n_binds; i++)
		if (w->snap->binds[i].socket == cl->pb->socket)
			return &w->snap->binds[i];
	return NULL;
}

static void no_shut_write(struct conn *c)
{
}

/* Everything goes through the side; what may be called on any connection does nothing. */
const struct conn_ops h2_exchange_ops = {
	.name = "h2",
	.shut_write = no_shut_write,
	.idle = no_shut_write,
};

/* What rules and logs see of the connection; nothing is ever read or written through it. */
static void exchange_init_conn(struct h2_exchange *ex, const struct conn *real)
{
	ex->conn = (struct conn){
		.ops = &h2_exchange_ops,
		.nw = real->nw,
		.owner = &ex->cl,
		.doing = "request",
		.state = CONN_OPEN,
		.is_server_side = true,
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
}

static void exchange_init_client(struct h2_exchange *ex, const struct proxy_bind *pb)
{
	struct client *real = ex->hc->cl, *cl = &ex->cl;
	struct worker *w = real->w;

	*cl = (struct client){ .conn = &ex->conn, .w = w, .pb = pb, .parent = real };
	cl->snap = container_of(snapshot_pin(&w->view), struct proxy_snapshot, snap);
	cl->fe = pb->conf->proxy;
	cl->fe_rt = cl->snap->backends[cl->fe->index];
	cl->ctr = &cl->fe_rt->fe_stats.rows[w->o.index];
	cl->accept_ns = real->accept_ns;
	cl->accept_wall = real->accept_wall;
	cl->handshake_ns = real->n_requests ? 0 : real->handshake_ns;
	cl->n_requests = real->n_requests++;
	cl->idle_ns = loop_now(w->loop);
	cl->track = real->track; /* stays the real one's */
	list_init(&cl->link);
	ex->conn.bind = pb->conf;
}

static struct h2_exchange *exchange_new(struct h2_conn *hc)
{
	struct worker *w = hc->cl->w;
	const struct proxy_bind *pb = find_bind(w, hc->cl);
	struct h2_exchange *ex;

	/* What was listened for is gone from the configuration. */
	if (!pb || pb->conf->proxy->mode != hc->cl->fe->mode)
		return NULL;
	ex = pool_get(&w->exchange_pool);
	if (!ex) {
		ctr_add(&w->ctr->alloc_failures, 1);
		return NULL;
	}
	memset(ex, 0, sizeof(*ex));
	ex->hc = hc;
	exchange_init_conn(ex, hc->cl->conn);
	exchange_init_client(ex, pb);
	list_init(&ex->run_link);
	list_init(&ex->block_link);
	list_push_back(&hc->exchanges, &ex->link);
	if (hc->n_exchanges++ == 0)
		timer_stop(w->loop, &hc->cl->timer);
	return ex;
}

void h2_exchange_close(struct client *cl)
{
	struct h2_exchange *ex = container_of(cl, struct h2_exchange, cl);
	struct h2_conn *hc = ex->hc;
	struct worker *w = cl->w;

	h2_stream_leave(&ex->h2, H2_INTERNAL_ERROR, ex->unread);
	conn_close(cl->own, false);
	snapshot_unpin(&w->view, &cl->snap->snap);
	list_del(&ex->link);
	list_del(&ex->run_link);
	list_del(&ex->block_link);
	hc->n_exchanges--;
	pool_put(&w->exchange_pool, ex);
	h2_work_later(hc);
}

/* --- what the session reports ----------------------------------------------------------------------- */

/* RFC 8441: an HTTP/1 server is asked for the same by an upgrade. */
static int ask_for_websocket(struct h2_exchange *ex, struct http_msg *m)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				     "0123456789+/";
	uint8_t random[21] = { 0 };
	char key[24];
	int r;

	/* A nonce of 16 bytes in base64: 21 free characters, one with two bits, "==". */
	if (getrandom(random, sizeof(random), GRND_NONBLOCK) < 0)
		return -EAGAIN;
	for (unsigned i = 0; i < sizeof(random); i++)
		key[i] = digits[random[i] & 63];
	memcpy(key + 21, "A==", 3);
	m->method = HTTP_METHOD_GET;
	m->method_text = STR("GET");
	m->flags |= HTTP_MSG_UPGRADE;
	ex->is_websocket = true;
	r = http_msg_set(m, STR("Upgrade"), STR("websocket"));
	return r ? r : http_msg_set(m, STR("Sec-WebSocket-Key"), str_make(key, sizeof(key)));
}

static void read_request(struct h2_exchange *ex, struct stream *st, bool is_end)
{
	struct http_msg *m = &st->req;
	enum http_error error = HTTP_ERR_NONE;
	struct str protocol;
	int r;

	r = h2_read_request(ex->hc->h2, m, is_end, &protocol, &error);
	if (!r && protocol.len && !str_is_eq(protocol, STR("websocket")))
		error = HTTP_ERR_BAD_METHOD;
	else if (!r && protocol.len)
		r = ask_for_websocket(ex, m);
	if (r && !error)
		error = HTTP_ERR_NO_MEMORY;
	ex->head_error = (uint8_t)error;
	st->front.rx = h2_head_size(ex->hc->h2);
}

static struct h2_stream *on_request(void *owner, bool is_end)
{
	struct h2_conn *hc = owner;
	struct h2_exchange *ex = exchange_new(hc);
	struct stream *st;

	if (!ex)
		return NULL;
	st = stream_new(&ex->cl);
	if (!st) {
		h2_exchange_close(&ex->cl);
		return NULL;
	}
	read_request(ex, st, is_end);
	h2_wake(ex);
	return &ex->h2;
}

static int on_data(struct h2_stream *s, struct str data)
{
	struct h2_exchange *ex = container_of(s, struct h2_exchange, h2);
	struct worker *w = ex->cl.w;
	struct side *front = &ex->cl.stream->front;
	struct window *in = &front->in;

	if (!in->mem) {
		front->big_mem = pool_get(&w->big_pool);
		if (!front->big_mem) {
			ctr_add(&w->ctr->alloc_failures, 1);
			return -ENOMEM;
		}
		in->mem = front->big_mem;
	}
	/* The stream's window admits no more than what was given back. */
	if (data.len > in->cap - in->tail)
		return -ENOBUFS;
	memcpy(in->mem + in->tail, data.p, data.len);
	in->tail += (uint32_t)data.len;
	ex->unread += (uint32_t)data.len;
	front->rx += data.len;
	front->active_ns = loop_now(w->loop);
	h2_wake(ex);
	return 0;
}

static void on_trailers(struct h2_stream *s)
{
	struct h2_exchange *ex = container_of(s, struct h2_exchange, h2);
	struct stream *st = ex->cl.stream;

	/* What may not be a trailer is a message that cannot be passed on (as in HTTP/1). */
	if (h2_read_trailers(ex->hc->h2, &st->req))
		st->front.body.error = HTTP_ERR_BAD_TRAILER;
	st->front.rx += h2_head_size(ex->hc->h2);
}

static void on_end(struct h2_stream *s)
{
	h2_wake(container_of(s, struct h2_exchange, h2));
}

static void on_close(struct h2_stream *s)
{
	struct h2_exchange *ex = container_of(s, struct h2_exchange, h2);

	if (!(s->in_ended && s->out_ended) || s->error)
		ex->conn.is_broken = true;
	h2_wake(ex);
}

static void on_window(void *owner, struct h2_stream *s)
{
	struct h2_exchange *ex = s ? container_of(s, struct h2_exchange, h2) : NULL;

	if (!ex) {
		h2_wake_blocked(owner);
		return;
	}
	if (!list_is_empty(&ex->block_link)) {
		list_del(&ex->block_link);
		h2_wake(ex);
	}
}

static void on_response(struct h2_stream *s, bool is_end)
{
}

static void on_goaway(void *owner, int32_t last_id, uint32_t error)
{
}

const struct h2_ops h2_client_ops = {
	.on_request = on_request,
	.on_response = on_response,
	.on_data = on_data,
	.on_trailers = on_trailers,
	.on_end = on_end,
	.on_close = on_close,
	.on_window = on_window,
	.on_goaway = on_goaway,
};
