/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes that are not HTTP: mode tcp from the accept on, and HTTP connections after an upgrade or CONNECT.
 * Both directions are pumped independently; the end of one is passed on as a half-close, and the
 * stream ends when both have ended.
 */
#include "proxy/worker_priv.h"

/* Rules that look at the first bytes: more is read until they decide or the inspection time is over. */
enum step phase_tcp_content(struct stream *st)
{
	struct side *front = &st->front;
	struct str slices[SIDE_SLICES];
	enum step step = STEP_WAIT;
	unsigned n;

	front->conn->doing = "inspecting";
	if (!front->in_body) {
		front->ops->start_body(front, NULL);
		ctr_add(&st->w->ctr->requests, 1);
		st->deadline_ns = st->fe->inspect_delay ? st->start_ns + st->fe->inspect_delay : 0;
		if (!st->deadline_ns)
			st->flags |= STREAM_PAYLOAD_FINAL;
	}
	if (list_is_empty(&st->fe->rules[RULES_TCP_CONTENT]))
		return stream_go(st, PHASE_ROUTE);
	front->keeps = true;
	for (;;) {
		enum rule_verdict v = rules_run_tcp(st, st->fe, RULES_TCP_CONTENT, &step);
		enum side_event ev;

		if (v == RULE_STEP)
			return step;
		if (v != RULE_WAIT)
			break;
		ev = front->ops->read_body(front, slices, SIDE_SLICES, &n);
		if (ev == SIDE_MORE)
			return STEP_WAIT;
		if (ev == SIDE_GONE)
			return stream_fail(st, 'C', 0);
		if (ev == SIDE_NOMEM)
			return stream_fail(st, 'R', 0);
		/* The end, or a full window: no more will come. */
		if (ev != SIDE_DATA || front->in.tail == front->in.cap)
			st->flags |= STREAM_PAYLOAD_FINAL;
	}
	front->keeps = false;
	BUG_ON(!front->ops->rewind(front));
	return stream_go(st, PHASE_ROUTE);
}

void stream_enter_tunnel(struct stream *st)
{
	uint64_t now = loop_now(st->w->loop);

	st->front.ops->start_body(&st->front, NULL);
	st->back.ops->start_body(&st->back, NULL);
	st->front.out_framing = HTTP_BODY_TUNNEL;
	st->back.out_framing = HTTP_BODY_TUNNEL;
	st->front.active_ns = now;
	st->back.active_ns = now;
	flow_start(&st->req_flow, &st->front, &st->back);
	flow_start(&st->rsp_flow, &st->back, &st->front);
	st->front.conn->doing = "tunnel";
	st->back.conn->doing = "tunnel";
	st->flags &= ~(uint32_t)(STREAM_CLIENT_KEEP | STREAM_SERVER_KEEP);
	/* From now on only cutting is possible; mode tcp never had anything else. */
	st->flags |= STREAM_RSP_STARTED;
}

static void tunnel_count_abort(struct stream *st, bool is_client)
{
	ctr_add(is_client ? &st->be_ctr->cli_aborts : &st->be_ctr->srv_aborts, 1);
	ctr_add(is_client ? &st->srv_ctr->cli_aborts : &st->srv_ctr->srv_aborts, 1);
}

/* STEP_GO: fine so far. */
static enum step tunnel_pump(struct stream *st, struct flow *f)
{
	bool is_request = f == &st->req_flow, is_client;

	if (f->is_done)
		return STEP_GO;
	switch (flow_pump(f)) {
	case FLOW_WAIT:
		return STEP_GO;
	case FLOW_DONE:
		f->dst->ops->shut_write(f->dst);
		/* A half-closed direction has its own timeout, from now on. */
		f->dst->active_ns = loop_now(st->w->loop);
		return STEP_GO;
	case FLOW_NOMEM:
		stream_fail(st, 'R', 0);
		return STEP_GONE;
	case FLOW_DST_GONE:
		is_client = !is_request;
		break;
	default:
		is_client = is_request;
	}
	tunnel_count_abort(st, is_client);
	stream_fail(st, is_client ? 'C' : 'S', 0);
	return STEP_GONE;
}

enum step phase_tunnel(struct stream *st)
{
	/* The answer first: it carries the head of a 101. */
	if (tunnel_pump(st, &st->rsp_flow) == STEP_GONE ||
	    tunnel_pump(st, &st->req_flow) == STEP_GONE)
		return STEP_GONE;
	if (st->req_flow.is_done && st->rsp_flow.is_done)
		return stream_go(st, PHASE_END);
	return STEP_WAIT;
}
