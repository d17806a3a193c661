/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bodies that rules look at before they go on: option http-buffer-request, wait-for-body; and rules that just wait.
 * A body waits in the window of its side, as it came; once everybody has seen it, the side is rewound and the pump
 * reads it again. What does not fit the window is not waited for.
 */
#include <errno.h>

#include "proxy/worker_priv.h"

/*
 * A client that asked whether it may send the body (RFC 9110 10.1.1) would wait as long as we do. The server is not
 * asked any more. False: the client is gone, or there is no memory.
 */
static bool say_continue(struct stream *st)
{
	struct side *f = &st->front;
	struct http_msg *m;

	if (likely(!(st->req.flags & HTTP_MSG_EXPECT_100)))
		return true;
	st->req.flags &= ~(uint32_t)HTTP_MSG_EXPECT_100;
	http_msg_del(&st->req, STR("expect"));
	if ((st->req.major == 1 && st->req.minor == 0) || f->in.tail > f->in.base)
		return true;
	m = answer_new(st, 100);
	st->local = (struct local_answer){ 0 };
	if (!m)
		return false;
	ctr_add(&st->fe_ctr->hrsp_1xx, 1);
	return !f->ops->write_head(f, m, H1_CONN_NONE) && f->ops->write(f, NULL, 0, false) >= 0;
}

/*
 * Until the body is whole, `at_least` (0: no matter) bytes of it are here, or the window is full: SIDE_END or
 * SIDE_DATA, and the side is rewound. SIDE_MORE: not yet, it keeps what it has.
 */
static enum side_event gather(struct side *s, uint64_t at_least)
{
	struct str slices[SIDE_SLICES];
	enum side_event ev = SIDE_DATA;
	unsigned n;

	s->keeps = true;
	while (ev == SIDE_DATA && s->in.tail < s->in.cap) {
		if (at_least && s->ops->peek_body(s).len >= at_least)
			break;
		ev = s->ops->read_body(s, slices, SIDE_SLICES, &n);
	}
	if (ev == SIDE_MORE && at_least && s->ops->peek_body(s).len >= at_least)
		ev = SIDE_DATA;
	if (ev == SIDE_MORE)
		return ev;
	s->keeps = false;
	if (ev == SIDE_DATA || ev == SIDE_END)
		BUG_ON(!s->ops->rewind(s));
	return ev;
}

/* Too late. */
static enum step gather_timeout(struct stream *st, struct side *s)
{
	bool is_rsp = s == &st->back;

	s->keeps = false;
	if (!is_rsp) {
		STREAM_COUNT(st, req_errors, 1);
		return stream_fail(st, 'c', 408);
	}
	ctr_add(&st->be_ctr->rsp_errors, 1);
	ctr_add(&st->srv_ctr->rsp_errors, 1);
	return stream_fail(st, 's', 504);
}

static enum step gather_failed(struct stream *st, struct side *s, enum side_event ev)
{
	bool is_rsp = s == &st->back;

	if (ev == SIDE_NOMEM)
		return stream_fail(st, 'R', 503);
	if (!is_rsp) {
		if (ev == SIDE_GONE)
			return stream_fail(st, 'C', 400);
		s->head.error = s->body.error;
		return stream_refuse_request(st);
	}
	ctr_add(&st->be_ctr->rsp_errors, 1);
	ctr_add(&st->srv_ctr->rsp_errors, 1);
	if (ev == SIDE_BAD)
		return stream_fail(st, 'P', 502);
	ctr_add(&st->be_ctr->srv_aborts, 1);
	ctr_add(&st->srv_ctr->srv_aborts, 1);
	return stream_fail(st, 'S', 502);
}

/* option http-buffer-request: before the rules of the section that has it. */
enum step phase_wait_body(struct stream *st)
{
	enum side_event ev;

	if (!say_continue(st))
		return stream_fail(st, 'C', 0);
	st->front.conn->doing = "waiting for the body";
	ev = gather(&st->front, 0);
	if (ev == SIDE_MORE)
		return STEP_WAIT;
	if (ev != SIDE_DATA && ev != SIDE_END)
		return gather_failed(st, &st->front, ev);
	return stream_go(st, (enum stream_phase)st->after_body);
}

enum step wait_body_timeout(struct stream *st)
{
	return gather_timeout(st, &st->front);
}

/* --- rules that wait ---------------------------------------------------------------------------------- */

enum rule_verdict rule_wait_for_body(struct stream *st, const struct conf_proxy *px,
				     const struct conf_rule *r, struct http_msg *m,
				     enum step *ret_step)
{
	bool is_rsp = m->flags & HTTP_MSG_RESPONSE;
	struct side *s = is_rsp ? &st->back : &st->front;
	uint64_t now = loop_now(st->w->loop);
	enum side_event ev;

	if (m->framing == HTTP_BODY_NONE || m->framing == HTTP_BODY_TUNNEL || s->was_refilled)
		return RULE_NEXT;
	if (!s->in_body)
		s->ops->start_body(s, m);
	if (is_rsp ? st->front.conn->is_broken : !say_continue(st)) {
		*ret_step = stream_fail(st, 'C', 0);
		return RULE_STEP;
	}
	if (!st->wait_until_ns)
		st->wait_until_ns = now + r->wait_ns;
	ev = gather(s, r->number);
	if (ev == SIDE_MORE && now < st->wait_until_ns)
		return RULE_WAIT;
	st->wait_until_ns = 0;
	if (ev == SIDE_DATA || ev == SIDE_END)
		return RULE_NEXT;
	*ret_step = ev == SIDE_MORE ? gather_timeout(st, s) : gather_failed(st, s, ev);
	return RULE_STEP;
}

enum rule_verdict rule_pause(struct stream *st, const struct conf_proxy *px,
			     const struct conf_rule *r, struct http_msg *m, enum step *ret_step)
{
	uint64_t now = loop_now(st->w->loop), ns = r->wait_ns;
	struct sample v;

	if (st->front.conn->is_broken) {
		*ret_step = stream_fail(st, 'C', 0);
		return RULE_STEP;
	}
	if (!st->wait_until_ns) {
		if (r->expr) {
			if (expr_eval(r->expr, stream_subject(st), &v) ||
			    sample_cast(&v, SAMPLE_SINT, &st->arena) || v.sint <= 0)
				return RULE_NEXT;
			ns = (v.sint < PAUSE_MAX_MS ? (uint64_t)v.sint : PAUSE_MAX_MS) * 1000000;
		}
		st->wait_until_ns = now + ns;
	}
	if (now < st->wait_until_ns)
		return RULE_WAIT;
	st->wait_until_ns = 0;
	return RULE_NEXT;
}
