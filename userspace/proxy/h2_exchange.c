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

static void request_init_client(struct h2_request *rq, const struct proxy_bind *pb)
{
	struct client *real = rq->hc->cl, *cl = &rq->cl;
	struct worker *w = real->w;

	*cl = (struct client){ .conn = &rq->x.conn, .w = w, .pb = pb, .parent = real };
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
	rq->x.conn.bind = pb->conf;
	rq->x.conn.owner = cl;
}

static struct h2_request *request_new(struct h2_conn *hc)
{
	struct worker *w = hc->cl->w;
	const struct proxy_bind *pb = find_bind(w, hc->cl);
	struct h2_request *rq;

	/* What was listened for is gone from the configuration. */
	if (!pb || pb->conf->proxy->mode != hc->cl->fe->mode)
		return NULL;
	rq = pool_get(&w->exchange_pool);
	if (!rq) {
		ctr_add(&w->ctr->alloc_failures, 1);
		return NULL;
	}
	memset(rq, 0, sizeof(*rq));
	rq->hc = hc;
	hc->n_requests++;
	if (hc->m.n_exchanges == 0)
		timer_stop(w->loop, &hc->cl->timer);
	h2_exchange_init(&rq->x, &hc->m, true);
	request_init_client(rq, pb);
	return rq;
}

void h2_exchange_close(struct client *cl)
{
	struct h2_request *rq = container_of(cl, struct h2_request, cl);
	struct h2_conn *hc = rq->hc;
	struct worker *w = cl->w;

	h2_exchange_fini(&rq->x, H2_INTERNAL_ERROR);
	conn_close(cl->own, false);
	snapshot_unpin(&w->view, &cl->snap->snap);
	pool_put(&w->exchange_pool, rq);
	h2_mux_work_later(&hc->m);
}

/* --- what the session reports ----------------------------------------------------------------------- */

/* RFC 8441: an HTTP/1 server is asked for the same by an upgrade. */
static int ask_for_websocket(struct h2_request *rq, struct http_msg *m)
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
	rq->is_websocket = true;
	r = http_msg_set(m, STR("Upgrade"), STR("websocket"));
	return r ? r : http_msg_set(m, STR("Sec-WebSocket-Key"), str_make(key, sizeof(key)));
}

static void read_request(struct h2_request *rq, struct stream *st, bool is_end)
{
	struct h2_session *h2 = rq->hc->m.h2;
	struct http_msg *m = &st->req;
	enum http_error error = HTTP_ERR_NONE;
	struct str protocol;
	int r;

	r = h2_read_request(h2, m, is_end, &protocol, &error);
	if (!r && protocol.len && !str_is_eq(protocol, STR("websocket")))
		error = HTTP_ERR_BAD_METHOD;
	else if (!r && protocol.len)
		r = ask_for_websocket(rq, m);
	if (r && !error)
		error = HTTP_ERR_NO_MEMORY;
	rq->x.head_error = (uint8_t)error;
	rq->x.in_msg = m;
	st->front.rx = h2_head_size(h2);
}

static struct h2_stream *on_request(void *owner, bool is_end)
{
	struct h2_request *rq = request_new(container_of(owner, struct h2_conn, m));
	struct stream *st;

	if (!rq)
		return NULL;
	st = stream_new(&rq->cl);
	if (!st) {
		h2_exchange_close(&rq->cl);
		return NULL;
	}
	rq->x.side = &st->front;
	read_request(rq, st, is_end);
	h2_wake(&rq->x);
	return &rq->x.h2;
}

/* A client never answers. */
static void on_response(struct h2_stream *s, bool is_end)
{
}

static void on_goaway(void *owner, int32_t last_id, uint32_t error)
{
}

const struct h2_ops h2_client_ops = {
	.on_request = on_request,
	.on_response = on_response,
	.on_data = h2_mux_on_data,
	.on_trailers = h2_mux_on_trailers,
	.on_end = h2_mux_on_end,
	.on_close = h2_mux_on_close,
	.on_window = h2_mux_on_window,
	.on_goaway = on_goaway,
};

/* --- what is sent ------------------------------------------------------------------------------------- */

int h2_request_send_head(struct h2_exchange *ex, struct http_msg *m, bool has_body)
{
	/* The answer to a key that our client did not send. */
	if (container_of(ex, struct h2_request, x)->is_websocket && m->status == 101)
		http_msg_del(m, STR("sec-websocket-accept"));
	return h2_stream_respond(&ex->h2, m, has_body);
}
