/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes that are not HTTP: mode tcp from the accept on, and HTTP connections after an upgrade or CONNECT.
 * Both directions are pumped independently; the end of one is passed on as a half-close, and the
 * stream ends when both have ended.
 */
#include "proxy/worker_priv.h"

/* --- rules on the first bytes ------------------------------------------------------------------------ */

/*
 * Runs a list until it decides: reads more while it may, within the inspection time and the window. STEP_GO:
 * decided, and the bytes are still to be read; else what the phase returns.
 */
static enum step inspect(struct stream *st, struct side *s, const struct conf_proxy *px,
			 enum conf_ruleset set, uint32_t final_flag)
{
	struct str slices[SIDE_SLICES];
	enum step step = STEP_WAIT;
	unsigned n;

	s->keeps = true;
	for (;;) {
		enum rule_verdict v = rules_run_tcp(st, px, set, &step);
		enum side_event ev;

		if (v == RULE_STEP)
			return step;
		if (v != RULE_WAIT)
			break;
		ev = s->ops->read_body(s, slices, SIDE_SLICES, &n);
		if (ev == SIDE_MORE)
			return STEP_WAIT;
		if (ev == SIDE_GONE)
			return stream_fail(st, s == &st->front ? 'C' : 'S', 0);
		if (ev == SIDE_NOMEM)
			return stream_fail(st, 'R', 0);
		/* The end, or a full window: no more will come. */
		if (ev != SIDE_DATA || s->in.tail == s->in.cap)
			st->flags |= final_flag;
	}
	s->keeps = false;
	BUG_ON(!s->ops->rewind(s));
	return STEP_GO;
}

static enum step inspect_request(struct stream *st, const struct conf_proxy *px,
				 enum stream_phase next)
{
	enum step s;

	if (list_is_empty(&px->rules[RULES_TCP_CONTENT]))
		return stream_go(st, next);
	s = inspect(st, &st->front, px, RULES_TCP_CONTENT, STREAM_PAYLOAD_FINAL);
	return s == STEP_GO && (st->phase == PHASE_TCP_CONTENT || st->phase == PHASE_BE_CONTENT)
		       ? stream_go(st, next)
		       : s;
}

/* The time of a section's rules begins when they do. */
static void inspect_begin(struct stream *st, const struct conf_proxy *px)
{
	const struct side *front = &st->front;
	bool is_all = front->is_read_closed || (front->in.mem && front->in.tail == front->in.cap);

	st->deadline_ns = px->inspect_delay ? loop_now(st->w->loop) + px->inspect_delay : 0;
	st->flags &= ~(uint32_t)STREAM_PAYLOAD_FINAL;
	if (!st->deadline_ns || is_all)
		st->flags |= STREAM_PAYLOAD_FINAL;
}

enum step phase_tcp_content(struct stream *st)
{
	struct side *front = &st->front;

	front->conn->doing = "inspecting";
	if (!front->in_body) {
		front->ops->start_body(front, NULL);
		ctr_add(&st->w->ctr->requests, 1);
		inspect_begin(st, st->fe);
	}
	return inspect_request(st, st->fe, PHASE_ROUTE);
}

enum step phase_be_content(struct stream *st)
{
	/* A listen section's rules have run. */
	if (st->be == st->fe || list_is_empty(&st->be->rules[RULES_TCP_CONTENT]))
		return stream_go(st, PHASE_PICK);
	if (!(st->flags & STREAM_BE_INSPECTS)) {
		st->flags |= STREAM_BE_INSPECTS;
		inspect_begin(st, st->be);
	}
	return inspect_request(st, st->be, PHASE_PICK);
}

/* The server's first bytes wait for tcp-response rules. STEP_GO: nothing (more) holds them back. */
static enum step inspect_response(struct stream *st)
{
	enum step s;

	if (likely(!(st->flags & STREAM_INSPECTS_RSP)))
		return STEP_GO;
	s = inspect(st, &st->back, st->be, RULES_TCP_RESPONSE, STREAM_RSP_FINAL);
	if (s == STEP_GO) {
		st->flags &= ~(uint32_t)STREAM_INSPECTS_RSP;
		st->back.active_ns = loop_now(st->w->loop);
	}
	return s;
}

static void inspect_response_begin(struct stream *st)
{
	uint64_t delay = st->be->rsp_inspect_delay;

	if (!(st->flags & STREAM_IS_TCP) || list_is_empty(&st->be->rules[RULES_TCP_RESPONSE]))
		return;
	st->flags |= STREAM_INSPECTS_RSP;
	st->rule = NULL;
	st->deadline_ns = delay ? loop_now(st->w->loop) + delay : 0;
	if (!delay)
		st->flags |= STREAM_RSP_FINAL;
}

/* --- tunnels ------------------------------------------------------------------------------------------ */

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
	inspect_response_begin(st);
	if (st->flags & STREAM_IS_TCP && unlikely(st->fe->options & CONF_OPT(LOGASAP)))
		stream_log_asap(st);
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
	enum step s = inspect_response(st);

	if (s == STEP_GONE || st->phase != PHASE_TUNNEL)
		return s;
	/* The answer first: it carries the head of a 101. */
	if ((s == STEP_GO && tunnel_pump(st, &st->rsp_flow) == STEP_GONE) ||
	    tunnel_pump(st, &st->req_flow) == STEP_GONE)
		return STEP_GONE;
	if (st->req_flow.is_done && st->rsp_flow.is_done)
		return stream_go(st, PHASE_END);
	return STEP_WAIT;
}
