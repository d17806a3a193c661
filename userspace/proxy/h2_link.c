/* SPDX-License-Identifier: BSD-2-Clause */
/* HTTP/2 towards servers: connections and exchanges (overview: h2_link.h). */
#include "proxy/h2_link.h"

#include <errno.h>

#include "proxy/h2_client.h"

/* Heads that arrived before the stream took the one before (1xx): a server that sends more breaks off. */
#define EARLY_HEADS 8

struct h2_link {
	struct h2_mux m;
	struct list link; /* server_worker.shared */
	struct server *srv;
	uint32_t addr_generation;
	bool is_private; /* nobody joins; closed when its exchanges are over */
	bool is_closed; /* the pool closed the connection while we were at work on it */
};

struct early_head {
	struct early_head *next;
	struct http_msg msg;
	uint8_t error; /* enum http_error */
};

struct h2_call { /* an exchange with a server */
	struct h2_exchange x;
	struct h2_link *l;
	bool has_head; /* st->rsp was read and not yet taken */
	unsigned n_early;
	struct early_head *first, **last;
};

/* One pool serves both kinds of exchanges. */
_Static_assert(sizeof(struct h2_call) <= sizeof(struct h2_request), "worker.exchange_pool");

static struct h2_call *call_of(struct h2_exchange *ex)
{
	return container_of(ex, struct h2_call, x);
}

/* --- WebSockets (RFC 8441) ------------------------------------------------------------------------------ */

#define KEY_LEN 24 /* 16 bytes in base64 (RFC 6455 4.1) */

static struct http_field *websocket_key(const struct http_msg *m)
{
	return http_msg_find_name((struct http_msg *)(uintptr_t)m, STR("sec-websocket-key"), 0);
}

static bool offers_only_h2(const struct conf_server *cs)
{
	return cs->is_ssl && str_is_eq(str_make(cs->tls.alpn, cs->tls.alpn_len), STR("\x02h2"));
}

bool h2_link_takes_websocket(const struct stream *st)
{
	const struct conf_server *cs = st->srv_conf;
	const struct http_msg *m = &st->req;
	const struct http_field *key;

	if (!(st->flags & STREAM_UPGRADE) || !cs || cs->ws == WS_H1)
		return false;
	if (cs->ws == WS_AUTO && cs->proto != SERVER_PROTO_H2 && !offers_only_h2(cs))
		return false;
	key = websocket_key(m);
	return m->method == HTTP_METHOD_GET && m->framing == HTTP_BODY_NONE &&
	       http_msg_list_has(m, HTTP_FIELD_UPGRADE, STR("websocket")) && key &&
	       key->value.len == KEY_LEN;
}

/* The answer that the client's upgrade waits for, in place of the server's 200. */
static int accept_websocket(struct http_msg *m, const struct http_msg *req)
{
	const struct http_field *key = websocket_key(req);
	char text[EXPR_WEBSOCKET_ACCEPT];
	int r;

	m->status = 101;
	m->framing = HTTP_BODY_TUNNEL;
	m->flags &= (uint16_t)~HTTP_MSG_KEEP_ALIVE;
	http_msg_del(m, STR("content-length"));
	expr_websocket_accept(key ? key->value : STR(""), text);
	r = http_msg_set(m, STR("Upgrade"), STR("websocket"));
	return r ? r : http_msg_set(m, STR("Sec-WebSocket-Accept"), str_make(text, sizeof(text)));
}

/* HTTP/2 has no key (RFC 8441 5.1); another attempt may need it. */
static int request_websocket(struct h2_exchange *ex, struct http_msg *m, struct str scheme)
{
	struct http_field *key = websocket_key(m);
	int r = h2_takes_protocols(ex->mux->h2);

	if (r <= 0)
		return r ? r : -EPROTONOSUPPORT;
	key->is_removed = true;
	r = h2_stream_request(ex->mux->h2, &ex->h2, m, scheme, STR("websocket"), true);
	key->is_removed = false;
	return r;
}

/* --- what the session reports ------------------------------------------------------------------------- */

static struct http_msg *place_for_head(struct h2_call *call, struct stream *st, uint8_t **ret_error)
{
	unsigned max = st->snap->conf->global.maxhdr;
	struct early_head *e;

	if (!call->has_head && !call->first) {
		call->has_head = true;
		*ret_error = &call->x.head_error;
		return &st->rsp;
	}
	e = call->n_early < EARLY_HEADS ? arena_zalloc(&st->arena, sizeof(*e)) : NULL;
	if (!e || http_msg_init(&e->msg, &st->arena, max ? max : 101))
		return NULL;
	call->n_early++;
	*call->last = e;
	call->last = &e->next;
	*ret_error = &e->error;
	return &e->msg;
}

static void on_response(struct h2_stream *s, bool is_end)
{
	struct h2_exchange *ex = container_of(s, struct h2_exchange, h2);
	struct stream *st = ex->side->st;
	enum http_error error = HTTP_ERR_NONE;
	uint8_t *at;
	struct http_msg *m = place_for_head(call_of(ex), st, &at);

	if (!m) {
		ex->conn.is_broken = true;
	} else {
		if (h2_read_response(ex->mux->h2, m, is_end, st->req.method, &error) && !error)
			error = HTTP_ERR_NO_MEMORY;
		if (!error && ex->is_upgrade && m->status / 100 == 2 &&
		    accept_websocket(m, &st->req))
			error = HTTP_ERR_NO_MEMORY;
		*at = (uint8_t)error;
		ex->in_msg = m;
	}
	st->back.rx += h2_head_size(ex->mux->h2);
	st->back.active_ns = loop_now(st->w->loop);
	h2_wake(ex);
}

static struct h2_stream *on_request(void *owner, bool is_end)
{
	return NULL; /* pushes are switched off */
}

/* The session ends streams that were not processed with REFUSED_STREAM; the others go on. */
static void on_goaway(void *owner, int32_t last_id, uint32_t error)
{
	struct h2_link *l = container_of(owner, struct h2_link, m);

	l->is_private = true;
	list_del(&l->link);
}

/* SETTINGS, too: who waits for them has not sent its head. */
static void on_window(void *owner, struct h2_stream *s)
{
	struct h2_mux *m = owner;
	struct list *pos;

	h2_mux_on_window(owner, s);
	if (s)
		return;
	list_for_each(pos, &m->exchanges) {
		struct h2_exchange *ex = list_entry(pos, struct h2_exchange, link);

		if (ex->is_upgrade && ex->head)
			h2_wake(ex);
	}
}

static const struct h2_ops link_ops = {
	.on_request = on_request,
	.on_response = on_response,
	.on_data = h2_mux_on_data,
	.on_trailers = h2_mux_on_trailers,
	.on_end = h2_mux_on_end,
	.on_close = h2_mux_on_close,
	.on_window = on_window,
	.on_goaway = on_goaway,
};

/* --- the side ------------------------------------------------------------------------------------------- */

static int link_send_head(struct h2_exchange *ex, struct http_msg *m, bool has_body)
{
	struct str scheme = ex->mux->c->tls ? STR("https") : STR("http");
	int r;

	if (!ex->is_upgrade)
		r = h2_stream_request(ex->mux->h2, &ex->h2, m, scheme, STR_NULL, has_body);
	else
		r = request_websocket(ex, m, scheme);
	if (r == -EPROTONOSUPPORT) {
		ex->conn.is_broken = true;
	} else if (r && r != -EINPROGRESS) {
		/* The server was never told: another connection may. */
		ex->conn.is_broken = true;
		ex->h2.error = H2_REFUSED_STREAM;
	}
	return r;
}

/* The server says, or it is clear, that it did nothing about the request (RFC 9113 8.7): any method can go again. */
static void note_unprocessed(struct h2_exchange *ex, struct side *s)
{
	if (ex->h2.error != H2_REFUSED_STREAM || s->rx)
		return;
	s->tx = 0;
	s->st->flags |= STREAM_SRV_REUSED;
}

static int answer_head(struct side *s, uint8_t error)
{
	if (error == HTTP_ERR_NO_MEMORY)
		return -ENOMEM;
	s->head.error = error;
	return error ? -EBADMSG : 1;
}

int h2_link_read_head(struct side *s, struct http_msg *msg)
{
	struct h2_exchange *ex = h2_exchange_of(s);
	struct h2_call *call = call_of(ex);
	struct early_head *e = call->first;

	if (call->has_head) {
		call->has_head = false;
		return answer_head(s, ex->head_error);
	}
	if (e) {
		call->first = e->next;
		if (!call->first)
			call->last = &call->first;
		if (ex->in_msg == &e->msg)
			ex->in_msg = msg;
		*msg = e->msg;
		return answer_head(s, e->error);
	}
	if (!ex->conn.is_broken && !ex->mux->is_dead)
		return -EAGAIN;
	note_unprocessed(ex, s);
	return -EPIPE;
}

/* --- the connection ----------------------------------------------------------------------------------- */

static void link_free(struct h2_link *l)
{
	list_del(&l->link);
	h2_mux_fini(&l->m);
	mem_free(l);
}

/* The connection is about to be closed, by the pool or by us; a word of farewell where it still can be heard. */
static void on_conn_free(struct conn *c)
{
	struct h2_link *l = c->owner;

	if (!l->m.is_dead && !c->is_broken && !h2_is_over(l->m.h2)) {
		h2_terminate(l->m.h2, H2_NO_ERROR);
		if (h2_mux_need_out(&l->m) && h2_produce(l->m.h2, &l->m.out) == 0)
			h2_mux_flush(&l->m);
	}
	l->m.is_dead = true;
	l->m.c = NULL;
	/* Inside h2_mux_turns(): it must find something when it comes back. */
	l->is_closed = true;
	if (!l->m.is_working)
		link_free(l);
}

static bool link_is_over(const struct h2_link *l)
{
	return l->m.is_dead || l->m.c->is_broken || h2_is_over(l->m.h2);
}

/* Streams find out for themselves; those that have all of their answer go on without us. */
static void break_calls(struct h2_link *l)
{
	struct list *pos;

	l->m.is_dead = true;
	l->is_private = true;
	list_del(&l->link);
	list_for_each(pos, &l->m.exchanges) {
		struct h2_exchange *ex = list_entry(pos, struct h2_exchange, link);

		if (!ex->h2.in_ended)
			ex->conn.is_broken = true;
		h2_wake(ex);
	}
	l->m.is_working = true;
	h2_mux_run(&l->m);
	l->m.is_working = false;
}

static void link_close(struct h2_link *l)
{
	struct conn *c = l->m.c;

	idle_forget(l->srv, c->nw->index, c);
	conn_close(c, c->is_broken); /* frees the link */
}

static void link_work(struct h2_link *l)
{
	(void)h2_mux_turns(&l->m);
	if (l->is_closed) {
		link_free(l);
		return;
	}
	if (link_is_over(l) && !l->m.is_dead)
		h2_mux_flush(&l->m);
	if (link_is_over(l) && l->m.n_exchanges)
		break_calls(l);
	if (l->is_closed) {
		link_free(l);
		return;
	}
	if (!l->m.n_exchanges && (link_is_over(l) || l->is_private))
		link_close(l);
	else
		h2_mux_put_out_back(&l->m);
}

static void on_work(struct deferred *d)
{
	link_work(container_of(d, struct h2_link, m.work));
}

static void link_event(struct conn *c)
{
	link_work(c->owner);
}

bool h2_link_is(const struct conn *c)
{
	return c->on_event == link_event;
}

/* --- exchanges ------------------------------------------------------------------------------------------ */

static bool has_room(const struct h2_link *l, const struct stream *st)
{
	const struct conf_server *cs = st->srv_conf;
	uint32_t generation = atomic_load_explicit(&l->srv->addr_generation, memory_order_acquire);

	return !l->is_private && !link_is_over(l) && l->addr_generation == generation &&
	       h2_can_open(l->m.h2) &&
	       (!cs->max_reuse || cs->max_reuse == UINT32_MAX || l->m.c->uses <= cs->max_reuse);
}

static int call_begin(struct stream *st, struct h2_link *l)
{
	struct server_worker *sw = &st->srv->w[st->w->o.index];
	struct h2_call *call = pool_get(&st->w->exchange_pool);

	if (!call) {
		ctr_add(&st->w->ctr->alloc_failures, 1);
		return -ENOMEM;
	}
	memset(call, 0, sizeof(*call));
	call->l = l;
	call->last = &call->first;
	h2_exchange_init(&call->x, &l->m, false);
	call->x.is_upgrade = h2_link_takes_websocket(st);
	side_init(&st->back, st, NULL);
	stream_attach_conn(st, &call->x.conn);
	side_init(&st->back, st, &call->x.conn);
	call->x.side = &st->back;
	l->m.c->doing = "HTTP/2";
	if (!l->is_private && list_is_empty(&l->link))
		list_push_front(&sw->shared, &l->link);
	return 0;
}

bool h2_link_is_wanted(const struct stream *st)
{
	const struct conf_server *cs = st->srv_conf;

	if (st->flags & STREAM_IS_TCP || !cs)
		return false;
	return cs->proto == SERVER_PROTO_H2 || str_is_eq(conn_alpn(st->back.conn), STR("h2")) ||
	       (cs->ws == WS_H2 && h2_link_takes_websocket(st));
}

int h2_link_begin(struct stream *st)
{
	const struct conf_global *g = &st->snap->conf->global;
	struct h2_limits limits = h2_mux_limits(st->w, g, true);
	uint64_t opts = st->be->options | st->fe->options;
	struct conn *c = st->back.conn;
	struct h2_link *l = mem_zalloc(sizeof(*l));

	if (!l || h2_client_new(&link_ops, &l->m, &limits, loop_now(st->w->loop), &l->m.h2)) {
		ctr_add(&st->w->ctr->alloc_failures, 1);
		mem_free(l);
		return -ENOMEM;
	}
	list_init(&l->link);
	l->srv = st->srv;
	l->addr_generation = atomic_load_explicit(&st->srv->addr_generation, memory_order_acquire);
	l->is_private = st->be->http_reuse == REUSE_NEVER ||
			opts & (CONF_OPT(HTTP_SERVER_CLOSE) | CONF_OPT(HTTPCLOSE));
	h2_mux_init(&l->m, st->w, c, on_work);
	l->m.send_head = link_send_head;
	stream_detach_conn(st);
	c->owner = l;
	c->on_event = link_event;
	c->on_free = on_conn_free;
	if (call_begin(st, l)) {
		conn_close(c, false); /* and the link */
		return -ENOMEM;
	}
	return 0;
}

bool h2_link_join(struct stream *st, uint64_t key)
{
	struct server_worker *sw = &st->srv->w[st->w->o.index];
	struct list *pos;

	list_for_each(pos, &sw->shared) {
		struct h2_link *l = list_entry(pos, struct h2_link, link);

		if (l->m.c->pool_key == key && has_room(l, st)) {
			l->m.c->uses++;
			return call_begin(st, l) == 0;
		}
	}
	return false;
}

bool h2_link_use(struct stream *st, struct conn *c)
{
	struct h2_link *l = c->owner;

	if (has_room(l, st) && call_begin(st, l) == 0) {
		c->uses++;
		return true;
	}
	conn_close(c, false);
	return false;
}

void h2_link_leave(struct stream *st, bool keep)
{
	struct h2_exchange *ex = h2_exchange_of(&st->back);
	struct h2_call *call = call_of(ex);
	struct h2_link *l = call->l;
	struct worker *w = st->w;

	stream_detach_conn(st);
	ex->side = NULL;
	h2_exchange_fini(ex, H2_CANCEL);
	pool_put(&w->exchange_pool, call);
	/* A server that was too slow for one stream would be for the next, while what waits is in the way. */
	if (!keep && buf_len(&l->m.out) && !l->m.is_working)
		l->is_private = true;
	if (l->is_private)
		list_del(&l->link);
	if (l->m.n_exchanges || l->is_private || link_is_over(l) || buf_len(&l->m.out) ||
	    !st->srv_conf) {
		h2_mux_work_later(&l->m);
		return;
	}
	list_del(&l->link);
	h2_trim(l->m.h2);
	h2_mux_work_later(&l->m);
	idle_put(st->srv, st->srv_conf, w->o.index, l->m.c);
}
