/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From the request's departure to the last byte of the response: send, wait for the head, rules, pump.
 * The request's body goes on flowing in all these phases. Until something of a final response has
 * reached the client, trouble ends in a clean answer; afterwards only in a cut connection.
 */
#include <errno.h>

#include "proxy/track.h"
#include "proxy/worker_priv.h"

static void count_rsp_error(struct stream *st)
{
	ctr_add(&st->be_ctr->rsp_errors, 1);
	ctr_add(&st->srv_ctr->rsp_errors, 1);
	stream_observe(st, OBSERVE_L7, false);
}

/* --- the request ------------------------------------------------------------------------------------ */

enum flow_result stream_pump_request(struct stream *st)
{
	enum flow_result r;

	if (!st->req_flow.is_active || st->req_flow.is_done)
		return FLOW_DONE;
	r = likely(!st->compress_req) ? flow_pump(&st->req_flow)
				      : compress_pump(st, st->compress_req, &st->req_flow);
	/* The server may have answered before it stopped listening: that answer is still worth reading. */
	if (r == FLOW_DST_GONE) {
		st->req_flow.is_active = false;
		return FLOW_WAIT;
	}
	return r;
}

/* Trouble with the client's side of the request's body. STEP_GO: none. */
static enum step pump_request(struct stream *st)
{
	switch (stream_pump_request(st)) {
	case FLOW_SRC_GONE:
		ctr_add(&st->be_ctr->cli_aborts, 1);
		ctr_add(&st->srv_ctr->cli_aborts, 1);
		stream_blame(st, 'C');
		st->term[1] = 'D';
		return stream_fail(st, 'C', 400);
	case FLOW_SRC_BAD:
		STREAM_COUNT(st, req_errors, 1);
		stream_blame(st, 'P');
		return stream_fail(st, 'P', 400);
	case FLOW_NOMEM:
		return stream_fail(st, 'R', 503);
	default:
		return STEP_GO;
	}
}

/* http-send-name-header: the server of this attempt, and no other. */
static int put_name_header(struct stream *st)
{
	return http_msg_set(&st->req, str_from_cstr(st->be->name_header),
			    str_from_cstr(st->srv_conf->name));
}

enum step phase_send(struct stream *st)
{
	uint64_t opts = st->be->options | st->fe->options;
	enum h1_connection conn = H1_CONN_NONE;
	struct side *back = &st->back;
	struct conn *c = back->conn;

	if (st->flags & STREAM_UPGRADE)
		conn = H1_CONN_UPGRADE;
	else if (opts & (CONF_OPT(HTTP_SERVER_CLOSE) | CONF_OPT(HTTPCLOSE)) &&
		 !(opts & CONF_OPT(HTTP_PRETEND_KEEPALIVE)))
		conn = H1_CONN_CLOSE;
	else if (st->req.major == 1 && st->req.minor == 0)
		conn = H1_CONN_KEEP_ALIVE;
	if (unlikely(stream_compresses(st)))
		compress_outgoing(st);
	if (unlikely(st->be->name_header != NULL) && st->srv_conf && put_name_header(st))
		return stream_fail(st, 'R', 500);
	if (back->ops->write_head(back, &st->req, conn))
		return stream_fail(st, 'R', 500);
	c->uses++;
	c->doing = "exchange";
	if (st->be->options & CONF_OPT(ACCEPT_UNSAFE_RESPONSE))
		back->head.flags = H1_ALLOW_VIOLATIONS;
	flow_start(&st->req_flow, &st->front, back);
	st->req_flow.src_end = st->req.framing == HTTP_BODY_NONE;
	back->active_ns = loop_now(st->w->loop);
	st->phase = PHASE_RSP_HEAD;
	if (stream_pump_request(st) == FLOW_NOMEM)
		return stream_fail(st, 'R', 503);
	return STEP_GO;
}

/* --- the head --------------------------------------------------------------------------------------- */

/* With fast open the request was on its way before anybody had said that he is there. */
static bool is_refused(const struct stream *st)
{
	const struct conn *c = st->back.conn;

	return c && c->is_early && !st->back.rx && !(st->flags & STREAM_SRV_REUSED) &&
	       (c->error == CONN_ERR_REFUSED || c->error == CONN_ERR_UNREACHABLE ||
		c->error == CONN_ERR_TIMEOUT);
}

static enum step rsp_failed(struct stream *st, int r)
{
	uint32_t failure = r == -EBADMSG || st->back.rx ? RETRY_JUNK_RESPONSE
							: RETRY_EMPTY_RESPONSE;

	if (is_refused(st))
		failure = RETRY_CONN_FAILURE;
	if (r == -ENOMEM)
		return stream_fail(st, 'R', 503);
	if (r == -EBADMSG)
		invalid_note(&st->back);
	if (r != -EBADMSG && stream_may_resend(st))
		return stream_resend(st);
	if (stream_may_retry(st, failure)) {
		stream_observe(st, OBSERVE_L7, false);
		return stream_retry(st);
	}
	count_rsp_error(st);
	if (r == -EBADMSG)
		return stream_fail(st, 'P', 502);
	ctr_add(&st->be_ctr->srv_aborts, 1);
	ctr_add(&st->srv_ctr->srv_aborts, 1);
	return stream_fail(st, 'S', 502);
}

/* 1xx: on to the client, and the next head (RFC 9110 15.2). A 1.0 client does not know them. */
static int rsp_relay_interim(struct stream *st)
{
	struct side *front = &st->front;
	int r = 0;

	if (st->req.major > 1 || st->req.minor >= 1) {
		ctr_add(&st->fe_ctr->hrsp_1xx, 1);
		r = front->ops->write_head(front, &st->rsp, H1_CONN_NONE);
		if (!r && front->ops->write(front, NULL, 0, false) < 0)
			r = -EPIPE;
	}
	st->back.ops->drop_head(&st->back);
	return r;
}

static bool rsp_is_interim(const struct stream *st)
{
	return st->rsp.status < 200 && st->rsp.status != 101;
}

enum step phase_rsp_head(struct stream *st)
{
	struct side *back = &st->back;
	enum step s;
	int r;

	s = pump_request(st);
	if (s == STEP_GONE)
		return s;
	if (st->phase != PHASE_RSP_HEAD)
		return STEP_GO;
	if (stream_is_client_gone(st)) {
		ctr_add(&st->be_ctr->cli_aborts, 1);
		ctr_add(&st->srv_ctr->cli_aborts, 1);
		return stream_fail(st, 'C', 0);
	}
	/* No buffer before there is something to put in. */
	if (!back->conn->can_read && !back->in.mem)
		return STEP_WAIT;
	do {
		r = back->ops->read_head(back, &st->rsp);
		if (r == -EAGAIN)
			return STEP_WAIT;
		if (r <= 0)
			return rsp_failed(st, r);
		if (rsp_is_interim(st) && rsp_relay_interim(st))
			return stream_fail(st, 'C', 0);
	} while (rsp_is_interim(st));
	/* As HAProxy's health_adjust(): what the server could not do, not what the client should not. */
	stream_observe(st, OBSERVE_L7,
		       !conf_statuses_have(&st->snap->conf->global.http_fail, st->rsp.status));
	if (unlikely(st->be->retry_on & ~(uint32_t)RETRY_CONN_FAILURE) &&
	    stream_may_retry(st, conf_retry_status_bit(st->rsp.status)))
		return stream_retry(st);
	st->flags |= STREAM_RSP_PARSED;
	st->rsp_ns = loop_now(st->w->loop);
	track_response(st);
	if (st->srv_conf && st->be->balance.algo == BALANCE_PEAK_EWMA)
		server_observe_latency(st->srv, st->rsp_ns - st->conn_ns);
	/* Nobody asked for another protocol: what follows could be taken for anything. */
	if (st->rsp.status == 101 && !(st->flags & STREAM_UPGRADE)) {
		count_rsp_error(st);
		return stream_fail(st, 'P', 502);
	}
	return stream_go(st, PHASE_RSP_RULES);
}

/* --- rules and departure ---------------------------------------------------------------------------- */

static void rsp_note_captures(struct stream *st)
{
	struct list *pos;

	st->rsp_captures = arena_zalloc(&st->arena, st->fe->n_rsp_captures * sizeof(struct str));
	if (!st->rsp_captures)
		return;
	list_for_each(pos, &st->fe->captures) {
		struct conf_capture *c = list_entry(pos, struct conf_capture, link);
		struct http_field *f;

		if (!c->is_response || !c->name)
			continue;
		f = http_msg_find_name(&st->rsp, str_from_cstr(c->name), 0);
		if (f)
			st->rsp_captures[c->index] = arena_str(&st->arena,
							       str_sub(f->value, 0, c->len));
	}
}

enum rule_verdict rsp_rules(struct stream *st, enum conf_ruleset set, enum step *ret_step)
{
	enum rule_verdict v = RULE_NEXT;

	if (st->be && !list_is_empty(&st->be->rules[set]))
		v = rules_run_http(st, st->be, set, ret_step);
	if (v != RULE_STEP && v != RULE_WAIT && st->fe != st->be &&
	    !list_is_empty(&st->fe->rules[set]))
		v = rules_run_http(st, st->fe, set, ret_step);
	return v;
}

/* How the body travels to this client, and whether its connection can be used again. */
static enum h1_connection rsp_decide(struct stream *st)
{
	struct http_msg *rsp = &st->rsp;
	bool is_1_0 = st->req.major == 1 && st->req.minor == 0;

	if (rsp->framing == HTTP_BODY_TUNNEL) {
		st->flags &= ~(uint32_t)STREAM_CLIENT_KEEP;
		return rsp->status == 101 ? H1_CONN_UPGRADE : H1_CONN_NONE;
	}
	if ((rsp->flags & HTTP_MSG_KEEP_ALIVE) && rsp->framing != HTTP_BODY_CLOSE)
		st->flags |= STREAM_SERVER_KEEP;
	/* 1.1 clients get chunks, which show a truncated body as such; 1.0 clients get the end of the connection. */
	if (rsp->framing == HTTP_BODY_CLOSE && !is_1_0)
		rsp->framing = HTTP_BODY_CHUNKED;
	else if (rsp->framing == HTTP_BODY_CHUNKED && is_1_0)
		rsp->framing = HTTP_BODY_CLOSE;
	if (rsp->framing == HTTP_BODY_CLOSE || st->cl->must_close || st->w->is_draining)
		st->flags &= ~(uint32_t)STREAM_CLIENT_KEEP;
	/* An answer that came before the request was whole: the rest would be read for nothing. */
	if (st->req_flow.is_active == false && !st->req_flow.is_done)
		st->flags &= ~(uint32_t)STREAM_CLIENT_KEEP;
	if (!(st->flags & STREAM_CLIENT_KEEP))
		return H1_CONN_CLOSE;
	return is_1_0 ? H1_CONN_KEEP_ALIVE : H1_CONN_NONE;
}

/* Captures, and tcp-response rules. True: *ret_step says what happens now. */
static bool rsp_tcp_rules(struct stream *st, enum step *ret_step)
{
	if (st->fe->n_rsp_captures)
		rsp_note_captures(st);
	return unlikely(!list_is_empty(&st->be->rules[RULES_TCP_RESPONSE])) &&
	       rules_run_tcp(st, st->be, RULES_TCP_RESPONSE, ret_step) == RULE_STEP;
}

enum step phase_rsp_rules(struct stream *st)
{
	struct http_msg *rsp = &st->rsp;
	struct side *front = &st->front, *back = &st->back;
	enum h1_connection conn;
	enum step step = STEP_WAIT;

	if (unlikely(st->rule)) {
		/* A rule has waited, and the request may still have come meanwhile. */
		step = pump_request(st);
		if (step == STEP_GONE || st->phase != PHASE_RSP_RULES)
			return step;
	} else if (rsp_tcp_rules(st, &step)) {
		return step;
	}
	switch (rsp_rules(st, RULES_HTTP_RESPONSE, &step)) {
	case RULE_STEP:
		return step;
	case RULE_WAIT:
		return STEP_WAIT;
	default:
		break;
	}
	if (unlikely(st->be->options & CONF_OPT(CHECKCACHE)) && rsp_leaks_cookie(st)) {
		STREAM_COUNT(st, rsp_denied, 1);
		ctr_add(&st->be_ctr->rsp_denied, 1);
		ctr_add(&st->srv_ctr->rsp_denied, 1);
		return stream_fail(st, 'P', 502);
	}
	if (unlikely(st->fe->options & CONF_OPT(DROP_RESPONSE_TRAILERS)))
		rsp->flags |= HTTP_MSG_NO_TRAILERS;
	if (http_msg_has(rsp, HTTP_FIELD_CONNECTION) || http_msg_has(rsp, HTTP_FIELD_UPGRADE) ||
	    http_msg_has(rsp, HTTP_FIELD_KEEP_ALIVE))
		http_msg_strip_hop_by_hop(rsp, rsp->status == 101);
	if (unlikely(!list_is_empty(&st->be->stick_rules)))
		track_stick_store(st);
	if (st->be->cookie.name && cookie_edit_response(st))
		return stream_fail(st, 'R', 500);
	/* Before the framing towards the client is decided: the reader follows what the server said. */
	back->ops->start_body(back, rsp);
	conn = rsp_decide(st);
	if (rsp_rules(st, RULES_HTTP_AFTER_RESPONSE, &step) == RULE_STEP)
		return step;
	st->status = rsp->status;
	if (unlikely(st->coding))
		compress_response(st);
	if (front->ops->write_head(front, rsp, conn)) {
		STREAM_COUNT(st, failed_rewrites, 1);
		return stream_fail(st, 'R', 500);
	}
	st->flags |= STREAM_RSP_STARTED;
	if (unlikely(st->fe->options & CONF_OPT(LOGASAP)))
		stream_log_asap(st);
	if (rsp->framing == HTTP_BODY_TUNNEL) {
		stream_enter_tunnel(st);
		return stream_go(st, PHASE_TUNNEL);
	}
	flow_start(&st->rsp_flow, back, front);
	st->rsp_flow.src_end = rsp->framing == HTTP_BODY_NONE;
	return stream_go(st, PHASE_PUMP);
}

enum step phase_pump(struct stream *st)
{
	enum flow_result r = likely(!st->compress) ? flow_pump(&st->rsp_flow)
						   : compress_pump(st, st->compress, &st->rsp_flow);

	if (r == FLOW_DONE)
		return stream_go(st, PHASE_END);
	if (r == FLOW_WAIT) {
		enum step s = st->front.conn->is_broken ? STEP_GO : pump_request(st);

		if (s == STEP_GONE || st->phase != PHASE_PUMP)
			return s == STEP_GONE ? s : STEP_GO;
		if (!st->front.conn->is_broken)
			return STEP_WAIT;
		r = FLOW_DST_GONE;
	}
	switch (r) {
	case FLOW_DST_GONE:
		ctr_add(&st->be_ctr->cli_aborts, 1);
		ctr_add(&st->srv_ctr->cli_aborts, 1);
		return stream_fail(st, 'C', 0);
	case FLOW_SRC_BAD:
		count_rsp_error(st);
		return stream_fail(st, 'P', 0);
	case FLOW_NOMEM:
		return stream_fail(st, 'R', 0);
	default:
		count_rsp_error(st);
		ctr_add(&st->be_ctr->srv_aborts, 1);
		ctr_add(&st->srv_ctr->srv_aborts, 1);
		return stream_fail(st, 'S', 0);
	}
}
