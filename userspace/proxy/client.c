/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Client connections between streams: handshake, waiting for a request, the last moments after the
 * last answer. An idle one holds its struct client and struct conn, no buffer and no stream. Belongs to the
 * worker that accepted it; freed by client_close().
 */
#include "proxy/track.h"
#include "proxy/h2_client.h"

#include <errno.h>

/* After our last answer: how much and how long the peer may still send before it is cut off. */
#define LINGER_BYTES (256 * 1024)
#define LINGER_NS    1000000000ull

/* A worker that drains waits so long for the first request of a connection. */
#define DRAIN_FIRST_NS 1000000000ull

static void client_event(struct conn *c);

static bool client_is_http(const struct client *cl)
{
	return cl->fe->mode != CONF_MODE_TCP;
}

static void client_enter_listener(struct client *cl)
{
	struct hg_l7_counters *li = listener_ctr(cl);

	if (likely(!li))
		return;
	gauge_add(&li->cur_sessions, 1);
	ctr_max(&li->max_sessions, (uint64_t)li->cur_sessions);
}

static void client_leave_listener(struct client *cl)
{
	struct hg_l7_counters *li = listener_ctr(cl);

	if (unlikely(li))
		gauge_add(&li->cur_sessions, -1);
}

/* Nothing set: no limit. */
static void client_start_timer(struct client *cl, uint64_t ns)
{
	if (ns)
		timer_start(cl->w->loop, &cl->timer, ns);
	else
		timer_stop(cl->w->loop, &cl->timer);
}

uint64_t client_idle_timeout(const struct client *cl)
{
	const struct conf_timeouts *t = &cl->fe->timeout;

	if (cl->n_requests && t->http_keep_alive)
		return t->http_keep_alive;
	return t->http_request ? t->http_request : t->client;
}

void client_close(struct client *cl, bool reset)
{
	struct worker *w = cl->w;

	if (cl->parent) {
		h2_exchange_close(cl);
		return;
	}
	if (cl->mux)
		h2_client_free(cl);
	head_part_drop(cl);
	timer_stop(w->loop, &cl->timer);
	conn_close(cl->own, false);
	if (conn_is_tls(cl->conn))
		gauge_add(&w->ctr->cur_ssl_conns, -1);
	conn_close(cl->conn, reset);
	track_client_end(cl);
	arena_free(&cl->arena);
	list_del(&cl->link);
	w->n_clients--;
	gauge_add(&w->ctr->cur_conns, -1);
	gauge_add(&cl->ctr->cur_sessions, -1);
	client_leave_listener(cl);
	worker_conn_ended(w, cl);
	snapshot_unpin(&w->view, &cl->snap->snap);
	pool_put(&w->client_pool, cl);
	if (w->is_draining)
		worker_check_drained(w);
}

void client_linger(struct client *cl)
{
	struct worker *w = cl->w;

	if (cl->parent) {
		h2_exchange_close(cl);
		return;
	}
	if (cl->conn->closes_hard) {
		client_close(cl, true);
		return;
	}
	cl->state = CLIENT_LINGER;
	cl->conn->doing = "lingering";
	cl->linger_left = LINGER_BYTES;
	conn_shut_write(cl->conn);
	timer_start(w->loop, &cl->timer, LINGER_NS);
	/* The peer may have closed or sent meanwhile: no further edge would tell. */
	client_event(cl->conn);
}

static void client_linger_read(struct client *cl)
{
	while (cl->conn->can_read) {
		ssize_t n = conn_recv(cl->conn, cl->w->scratch, WORKER_SCRATCH);

		if (n == -EAGAIN)
			break;
		if (n <= 0 || (size_t)n >= cl->linger_left) {
			client_close(cl, n > 0);
			return;
		}
		cl->linger_left -= (uint32_t)n;
	}
	if (cl->conn->is_broken)
		client_close(cl, true);
}

/* Between two requests. Bytes that are there already start the next one. */
void client_set_idle(struct client *cl)
{
	struct worker *w = cl->w;

	cl->state = CLIENT_IDLE;
	cl->idle_ns = loop_now(w->loop);
	cl->conn->doing = "idle";
	if (cl->snap != w->snap) {
		client_rebind(cl);
		return;
	}
	client_start_timer(cl, client_idle_timeout(cl));
	if (unlikely(cl->conn->can_read || cl->conn->peer_closed)) {
		struct stream *st = stream_new(cl);

		if (!st) {
			client_close(cl, true);
			return;
		}
		/* From the top of the next iteration: whoever ended the last stream is still on the stack. */
		stream_resume_later(st);
		return;
	}
	if (cl->conn->tls)
		conn_idle(cl->conn);
}

void client_await_head(struct client *cl)
{
	const struct conf_timeouts *t = &cl->fe->timeout;
	uint64_t now = loop_now(cl->w->loop), limit = t->http_request ? t->http_request : t->client;
	uint64_t due = cl->part->start_ns + limit;

	cl->state = CLIENT_HEAD;
	if (limit)
		timer_start(cl->w->loop, &cl->timer, due > now ? due - now : 0);
	else
		timer_stop(cl->w->loop, &cl->timer);
	if (cl->conn->tls)
		conn_idle(cl->conn);
}

bool client_follow(struct client *cl)
{
	struct worker *w = cl->w;
	const struct proxy_bind *pb = NULL;

	for (unsigned i = 0; i < w->snap->n_binds; i++)
		if (w->snap->binds[i].socket == cl->pb->socket)
			pb = &w->snap->binds[i];
	if (!pb || pb->conf->proxy->mode != cl->fe->mode ||
	    pb->conf->is_ssl != cl->pb->conf->is_ssl)
		return false;
	client_leave_listener(cl);
	snapshot_unpin(&w->view, &cl->snap->snap);
	cl->snap = container_of(snapshot_pin(&w->view), struct proxy_snapshot, snap);
	cl->pb = pb;
	client_enter_listener(cl);
	cl->conn->bind = pb->conf;
	cl->fe = pb->conf->proxy;
	if (cl->fe_rt != w->snap->backends[cl->fe->index]) {
		gauge_add(&cl->ctr->cur_sessions, -1);
		atomic_fetch_sub_explicit(&cl->fe_rt->fe_cur, 1, memory_order_relaxed);
		cl->fe_rt = w->snap->backends[cl->fe->index];
		cl->ctr = &cl->fe_rt->fe_stats.rows[w->o.index];
		gauge_add(&cl->ctr->cur_sessions, 1);
		atomic_fetch_add_explicit(&cl->fe_rt->fe_cur, 1, memory_order_relaxed);
	}
	return true;
}

bool client_rebind(struct client *cl)
{
	if (!client_follow(cl)) {
		/* The client comes back. */
		if (cl->mux)
			h2_client_drain(cl);
		else
			client_close(cl, false);
		return false;
	}
	if (cl->state == CLIENT_IDLE)
		client_set_idle(cl);
	return true;
}

/* One that was just accepted has sent its first request, or is about to. */
void client_drain(struct client *cl)
{
	if (cl->n_requests == 0 && client_is_http(cl))
		client_start_timer(cl, DRAIN_FIRST_NS);
	else if (!(cl->fe->options & CONF_OPT(IDLE_CLOSE_ON_RESPONSE)))
		client_close(cl, false);
}

static void client_begin_stream(struct client *cl)
{
	struct stream *st = stream_new(cl);
	struct stick_ahead ahead;

	if (!st) {
		client_close(cl, true);
		return;
	}
	if (st->phase == PHASE_REQ_HEAD) {
		track_ahead(cl, &ahead);
		st->front.ops->prefetch(&st->front);
		if (unlikely(ahead.t))
			stick_ahead_entry(&ahead);
		stream_resume_later(st);
		return;
	}
	stream_run(st);
}

static bool client_is_h2(const struct client *cl)
{
	return client_is_http(cl) &&
	       (cl->pb->conf->proto == BIND_PROTO_H2 || str_is_eq(conn_alpn(cl->conn), STR("h2")));
}

/* The transport is up. */
static void client_open(struct client *cl)
{
	struct worker *w = cl->w;

	if (conn_is_tls(cl->conn)) {
		ctr_add(&cl->ctr->ssl_sessions, 1);
		gauge_add(&w->ctr->cur_ssl_conns, 1);
	}
	cl->handshake_ns = loop_now(w->loop) - cl->accept_ns;
	if (conn_is_tls(cl->conn))
		lb_time_add(cl->fe_rt, w->o.index, LB_TIME_HANDSHAKE, cl->handshake_ns);
	/* The configuration changed during the handshake. */
	if (cl->snap != w->snap && !client_rebind(cl))
		return;
	if (!list_is_empty(&cl->fe->rules[RULES_TCP_SESSION]) &&
	    !rules_admit(cl, RULES_TCP_SESSION)) {
		CLIENT_COUNT(cl, sess_denied, 1);
		client_close(cl, true);
		return;
	}
	track_client_session(cl);
	if (cl->fe->has_log && !cl->fe->log_format)
		client_log_connect(cl);
	cl->state = CLIENT_IDLE;
	cl->idle_ns = loop_now(w->loop);
	client_start_timer(cl, client_idle_timeout(cl));
	if (client_is_h2(cl)) {
		if (!h2_client_start(cl, STR("")))
			client_close(cl, true);
		return;
	}
	/* Read right after accept: the request is mostly there. */
	if (!client_is_http(cl) || cl->conn->can_read)
		client_begin_stream(cl);
}

static void client_handshake(struct client *cl)
{
	int r = conn_advance(cl->conn);

	if (r == -EAGAIN)
		return;
	if (r == 0) {
		client_open(cl);
		return;
	}
	if (cl->conn->tls)
		ctr_add(&cl->ctr->ssl_failed, 1);
	client_log_error(cl, conn_error_text((enum conn_error)cl->conn->error));
	client_close(cl, false);
}

static void client_event(struct conn *c)
{
	struct client *cl = c->owner;

	switch ((enum client_state)cl->state) {
	case CLIENT_HANDSHAKE:
		client_handshake(cl);
		break;
	case CLIENT_IDLE:
	case CLIENT_HEAD:
		if (c->can_read || c->peer_closed || c->is_broken)
			client_begin_stream(cl);
		break;
	case CLIENT_BUSY:
		stream_run(cl->stream);
		break;
	case CLIENT_MUX:
		h2_client_event(cl);
		break;
	case CLIENT_LINGER:
		client_linger_read(cl);
		break;
	}
}

/* The rest of its head has not come in time: what was here goes through the timeout of a stream. */
static void client_head_timer(struct client *cl)
{
	struct stream *st = stream_new(cl);

	if (st)
		stream_on_timer(&st->timer);
	else
		client_close(cl, true);
}

static void client_timer(struct timer *t)
{
	struct client *cl = container_of(t, struct client, timer);

	switch ((enum client_state)cl->state) {
	case CLIENT_BUSY:
		/* Left running on purpose; the stream has timers of its own. */
		return;
	case CLIENT_MUX:
		h2_client_timer(cl);
		return;
	case CLIENT_HEAD:
		client_head_timer(cl);
		return;
	case CLIENT_HANDSHAKE:
		client_log_error(cl, "Timeout during the handshake");
		client_close(cl, true);
		return;
	case CLIENT_LINGER:
		client_close(cl, true);
		return;
	case CLIENT_IDLE:
		break;
	}
	/* The first request never came: 408 unless the operator does not want it. Later: just close. */
	if (cl->n_requests == 0 && !cl->w->is_draining &&
	    !(cl->fe->options & CONF_OPT(HTTP_IGNORE_PROBES))) {
		struct stream *st = stream_new(cl);

		if (st) {
			st->start_ns = cl->idle_ns;
			CLIENT_COUNT(cl, req_errors, 1);
			if (cl->fe->options & CONF_OPT(DONTLOGNULL))
				st->flags |= STREAM_NO_LOG;
			if (stream_fail(st, 'c', 408) != STEP_GONE)
				stream_run(st);
			return;
		}
	}
	client_close(cl, false);
}

void client_accepted(struct worker *w, const struct proxy_bind *pb, struct conn *c)
{
	struct client *cl = pool_get(&w->client_pool);

	if (!cl) {
		ctr_add(&w->ctr->alloc_failures, 1);
		conn_close(c, true);
		return;
	}
	*cl = (struct client){ .conn = c, .w = w, .pb = pb };
	cl->snap = container_of(snapshot_pin(&w->view), struct proxy_snapshot, snap);
	cl->fe = pb->conf->proxy;
	cl->fe_rt = cl->snap->backends[cl->fe->index];
	cl->ctr = &cl->fe_rt->fe_stats.rows[w->o.index];
	cl->accept_ns = loop_now(w->loop);
	cl->accept_wall = loop_wall(w->loop);
	timer_init(&cl->timer, client_timer);
	arena_init(&cl->arena, 1024);
	vars_init(&cl->vars);
	list_push_back(&w->clients, &cl->link);
	w->n_clients++;
	c->owner = cl;
	c->on_event = client_event;
	c->bind = pb->conf;
	c->closes_hard = cl->fe->options & CONF_OPT(NOLINGER);
	atomic_fetch_add_explicit(&pb->socket->n_conns, 1, memory_order_relaxed);
	cl->state = CLIENT_HANDSHAKE;
	atomic_fetch_add_explicit(&w->o.shared->cur_conns, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&cl->fe_rt->fe_cur, 1, memory_order_relaxed);
	gauge_add(&w->ctr->cur_conns, 1);
	ctr_add(&w->ctr->connections, 1);
	rate_gate_count(&w->o.shared->rates[PROXY_RATE_CONNS], cl->accept_ns);
	if (pb->conf->is_ssl)
		rate_gate_count(&w->o.shared->rates[PROXY_RATE_TLS], cl->accept_ns);
	CLIENT_COUNT(cl, sessions, 1);
	gauge_add(&cl->ctr->cur_sessions, 1);
	ctr_max(&cl->ctr->max_sessions, (uint64_t)cl->ctr->cur_sessions);
	client_enter_listener(cl);
	__atomic_store_n(&cl->ctr->last_session_s, cl->accept_wall / 1000000000u, __ATOMIC_RELAXED);
	if (!list_is_empty(&cl->fe->rules[RULES_TCP_CONNECTION]) &&
	    !rules_admit(cl, RULES_TCP_CONNECTION)) {
		CLIENT_COUNT(cl, conn_denied, 1);
		client_close(cl, true);
		return;
	}
	rate_gate_count(&w->o.shared->rates[PROXY_RATE_SESSIONS], cl->accept_ns);
	rate_gate_count(&cl->fe_rt->fe_sess_gate, cl->accept_ns);
	client_start_timer(cl, cl->fe->timeout.client_hs ? cl->fe->timeout.client_hs
							 : cl->fe->timeout.client);
	client_handshake(cl);
}
