/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Timeouts of a stream. One timer; its deadline is worked out when the stream goes to sleep, and again
 * when it fires: most of the time it then turns out that something moved meanwhile, and the timer moves
 * on. So a request pays one store.
 */
#include "proxy/worker_priv.h"

static uint64_t earlier(uint64_t a, uint64_t b)
{
	if (!a)
		return b;
	return b && b < a ? b : a;
}

static uint64_t after(uint64_t from, uint64_t timeout)
{
	return timeout ? from + timeout : 0;
}

/* The end of a connection whose other direction was closed may have a timeout of its own. */
static uint64_t side_timeout(const struct stream *st, const struct side *s)
{
	const struct conf_proxy *px = s == &st->front ? st->fe : st->be;
	const struct conf_timeouts *t = &px->timeout;
	uint64_t fin = s == &st->front ? t->client_fin : t->server_fin;

	if (fin && (s->is_write_shut || s->is_read_closed))
		return fin;
	if (st->phase == PHASE_TUNNEL && st->timeout_tunnel_ns)
		return st->timeout_tunnel_ns;
	return s == &st->front ? st->timeout_client_ns : st->timeout_server_ns;
}

/* Whom a direction waits for (NULL: for nobody, it is paused), and until when. */
static uint64_t flow_deadline(const struct stream *st, const struct flow *f,
			      const struct side **ret_side)
{
	const struct side *s;

	if (!f->is_active || f->is_done)
		return 0;
	/* A limit holds it back: nobody is late. */
	if (unlikely(f->paused_until_ns)) {
		*ret_side = NULL;
		return f->paused_until_ns;
	}
	s = f->waits_for_dst ? f->dst : f->src;
	*ret_side = s;
	/* In a tunnel one busy direction keeps the other one alive. */
	if (st->phase == PHASE_TUNNEL && !f->waits_for_dst) {
		uint64_t active = s->active_ns;

		if (!s->is_write_shut && st->front.active_ns > active)
			active = st->front.active_ns;
		if (!s->is_write_shut && st->back.active_ns > active)
			active = st->back.active_ns;
		return after(active, side_timeout(st, s));
	}
	return after(s->active_ns, side_timeout(st, s));
}

static uint64_t body_deadline(const struct stream *st, const struct side **ret_side)
{
	const struct side *req_side = NULL, *rsp_side = NULL;
	uint64_t req = flow_deadline(st, &st->req_flow, &req_side);
	uint64_t rsp = flow_deadline(st, &st->rsp_flow, &rsp_side);

	if (st->phase == PHASE_RSP_HEAD || st->phase == PHASE_SEND) {
		rsp_side = &st->back;
		/* Nobody owes an answer before the request is whole. */
		rsp = req ? 0 : after(st->back.active_ns, st->timeout_server_ns);
	}
	*ret_side = req && (!rsp || req <= rsp) ? req_side : rsp_side;
	return earlier(req, rsp);
}

static uint64_t phase_deadline(const struct stream *st, const struct side **ret_side)
{
	const struct conf_timeouts *t = &st->fe->timeout;

	*ret_side = &st->front;
	switch ((enum stream_phase)st->phase) {
	case PHASE_REQ_HEAD:
		return after(st->start_ns, t->http_request ? t->http_request : t->client);
	case PHASE_WAIT_BODY:
		/* In a backend that has the option, its own time, from the head on. */
		if (st->be && st->be->timeout.http_request)
			return after(st->req_ns, st->be->timeout.http_request);
		return after(st->start_ns, t->http_request ? t->http_request : t->client);
	case PHASE_FE_RULES:
	case PHASE_BE_RULES:
	case PHASE_RSP_RULES:
		return st->wait_until_ns;
	case PHASE_TCP_CONTENT:
	case PHASE_BE_CONTENT:
	case PHASE_TARPIT:
	case PHASE_QUEUE:
	case PHASE_RETRY_WAIT:
	case PHASE_CONNECT:
	case PHASE_SERVICE:
		return st->deadline_ns;
	case PHASE_SEND:
	case PHASE_RSP_HEAD:
	case PHASE_PUMP:
		return body_deadline(st, ret_side);
	case PHASE_TUNNEL:
		/* Answers that rules look at: their time first. */
		if (st->flags & STREAM_INSPECTS_RSP && st->deadline_ns)
			return st->deadline_ns;
		return body_deadline(st, ret_side);
	case PHASE_SERVICE_SEND:
	case PHASE_LOCAL:
		return after(st->front.active_ns, t->client);
	default:
		return 0;
	}
}

/* The whole body of a request, as long as its client is still sending. */
static uint64_t body_total_deadline(const struct stream *st)
{
	const struct flow *f = &st->req_flow;

	if (!st->fe->timeout.http_body || st->flags & STREAM_IS_TCP ||
	    (st->phase != PHASE_SEND && st->phase != PHASE_RSP_HEAD) || !f->is_active ||
	    f->src_end || f->limits)
		return 0;
	return st->req_ns + st->fe->timeout.http_body;
}

static uint64_t stream_deadline(const struct stream *st, const struct side **ret_side)
{
	uint64_t phase = phase_deadline(st, ret_side);
	uint64_t client = earlier(pace_deadline(st), body_total_deadline(st));

	if (client && (!phase || client < phase)) {
		*ret_side = &st->front;
		return client;
	}
	return phase;
}

void stream_arm(struct stream *st)
{
	const struct side *side;
	uint64_t deadline, now = loop_now(st->w->loop);

	pace_update(st);
	deadline = stream_deadline(st, &side);
	/* Without one the timer may still run: it will find nothing due. */
	if (deadline)
		timer_start(st->w->loop, &st->timer, deadline > now ? deadline - now : 0);
}

static enum step stream_body_timeout(struct stream *st, const struct side *side)
{
	bool is_client = side == &st->front;

	if (!side)
		return STEP_GO; /* the pause is over */
	if (st->phase == PHASE_PUMP || st->phase == PHASE_TUNNEL)
		return stream_fail(st, is_client ? 'c' : 's', 0);
	if (is_client) {
		/* The body of the request did not come. */
		STREAM_COUNT(st, req_errors, 1);
		stream_blame(st, 'c');
		st->term[1] = 'D';
		return stream_fail(st, 'c', 408);
	}
	stream_observe(st, OBSERVE_L7, false);
	if (stream_may_retry(st, RETRY_RESPONSE_TIMEOUT))
		return stream_retry(st);
	ctr_add(&st->be_ctr->rsp_errors, 1);
	if (st->srv_ctr)
		ctr_add(&st->srv_ctr->rsp_errors, 1);
	return stream_fail(st, 's', 504);
}

static enum step stream_timeout(struct stream *st, const struct side *side)
{
	switch ((enum stream_phase)st->phase) {
	case PHASE_REQ_HEAD:
		STREAM_COUNT(st, req_errors, 1);
		return stream_fail(st, 'c', 408);
	case PHASE_WAIT_BODY:
		return wait_body_timeout(st);
	case PHASE_TCP_CONTENT:
	case PHASE_BE_CONTENT:
		st->flags |= STREAM_PAYLOAD_FINAL;
		return STEP_GO;
	case PHASE_TUNNEL:
		if (!(st->flags & STREAM_INSPECTS_RSP) || !st->deadline_ns)
			return stream_body_timeout(st, side);
		st->flags |= STREAM_RSP_FINAL;
		return STEP_GO;
	case PHASE_TARPIT:
	case PHASE_RETRY_WAIT:
	case PHASE_FE_RULES:
	case PHASE_BE_RULES:
	case PHASE_RSP_RULES:
		return STEP_GO;
	case PHASE_QUEUE:
		stream_leave_queue(st);
		return stream_fail(st, 's', 503);
	case PHASE_CONNECT:
		st->back.conn->error = CONN_ERR_TIMEOUT;
		return stream_retry_connect(st);
	case PHASE_SERVICE:
		return service_timeout(st);
	case PHASE_SERVICE_SEND:
	case PHASE_LOCAL:
		return stream_fail(st, 'c', 0);
	default:
		return stream_body_timeout(st, side);
	}
}

void stream_on_timer(struct timer *t)
{
	struct stream *st = container_of(t, struct stream, timer);
	struct worker *w = st->w;
	const struct side *side;
	uint64_t deadline;

	/* Left armed when its stream ended: see stream_put_back(). */
	if (st->is_free)
		return;
	pace_update(st);
	deadline = stream_deadline(st, &side);
	if (!deadline)
		return;
	if (deadline > loop_now(st->w->loop)) {
		stream_arm(st);
		return;
	}
	/* Behind this it may be freed. */
	if (stream_timeout(st, side) == STEP_GO)
		stream_run(st);
	else if (w->is_draining)
		worker_check_drained(w);
}
