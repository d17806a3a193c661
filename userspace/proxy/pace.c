/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `min-rate`: clients that are awake, but only just. Inactivity timeouts start over with every byte, so
 * a peer that sends or takes one now and then could hold a stream for ever. Here only time is counted in which
 * the stream waits for its client and for nobody else; whenever that adds up to `after`, so many bytes must have
 * moved meanwhile, and counting begins anew.
 *
 * Not looked at: tunnels and mode tcp, where silence is normal; a request that still goes on when its response has
 * begun, because then the two sides talk.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "proxy/h2_client.h"

static bool waits_for_request(const struct stream *st)
{
	const struct flow *f = &st->req_flow;

	switch ((enum stream_phase)st->phase) {
	case PHASE_WAIT_BODY:
		return true;
	case PHASE_SEND:
	case PHASE_RSP_HEAD:
		return f->is_active && !f->is_done && !f->src_end && !f->waits_for_dst &&
		       !f->paused_until_ns;
	default:
		return false;
	}
}

static bool waits_for_reader(const struct stream *st)
{
	const struct flow *f = &st->rsp_flow;

	switch ((enum stream_phase)st->phase) {
	case PHASE_PUMP:
		return f->is_active && !f->is_done && f->waits_for_dst;
	case PHASE_LOCAL:
	case PHASE_SERVICE_SEND:
		return true;
	default:
		return false;
	}
}

static uint64_t needed(const struct conf_min_rate *r)
{
	return r->bytes_per_s * (r->after_ns / 1000000) / 1000;
}

/*
 * What the peer's kernel has acknowledged, of all streams of the connection. False: not known, or it says nothing
 * about this stream, whose own window is closed.
 */
static bool bytes_acked(const struct stream *st, uint64_t *ret)
{
	const struct conn *c = client_session(st->cl)->conn;
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	if (st->front.ops == &side_h2_client) {
		const struct h2_exchange *ex = h2_exchange_of(&st->front);

		if (ex->h2.id && ex->h2.has_body && !h2_stream_has_window(&ex->h2))
			return false;
	}
	if (getsockopt(c->ev.fd, IPPROTO_TCP, TCP_INFO, &info, &len) ||
	    len < offsetof(struct tcp_info, tcpi_bytes_acked) + sizeof(info.tcpi_bytes_acked))
		return false;
	*ret = info.tcpi_bytes_acked;
	return true;
}

static void window_begin(struct pace *p, uint64_t bytes)
{
	p->waited_ns = 0;
	p->bytes = bytes;
}

static void account(struct pace *p, bool waits, uint64_t bytes, uint64_t now)
{
	if (p->since_ns)
		p->waited_ns += now - p->since_ns;
	else if (likely(!waits))
		return;
	else if (!p->waited_ns)
		p->bytes = bytes;
	p->since_ns = waits ? now : 0;
}

/* A window is full: is there a reason to begin another? Without, it stays full. */
static void judge_request(struct stream *st, const struct conf_min_rate *r)
{
	struct pace *p = &st->pace_in;

	if (st->front.rx - p->bytes >= needed(r))
		window_begin(p, st->front.rx);
}

/*
 * What was written lies in the kernel's buffer, which announces room only when much of it has become free: a
 * slow reader looks like none. So in doubt the kernel is asked what the peer has acknowledged.
 */
static void judge_reader(struct stream *st, const struct conf_min_rate *r)
{
	struct pace *p = &st->pace_out;
	uint64_t acked = 0;

	if (st->front.tx - p->bytes >= needed(r)) {
		p->is_acked_known = false;
		window_begin(p, st->front.tx);
		return;
	}
	if (!bytes_acked(st, &acked))
		return;
	if (p->is_acked_known && acked - p->acked < needed(r))
		return;
	p->is_acked_known = true;
	p->acked = acked;
	window_begin(p, st->front.tx);
}

void pace_update(struct stream *st)
{
	const struct conf_min_rate *in = &st->fe->min_rate[MIN_RATE_REQUEST];
	const struct conf_min_rate *out = &st->fe->min_rate[MIN_RATE_RESPONSE];
	uint64_t now = loop_now(st->w->loop);

	account(&st->pace_in, in->bytes_per_s && waits_for_request(st), st->front.rx, now);
	account(&st->pace_out, out->bytes_per_s && waits_for_reader(st), st->front.tx, now);
	if (unlikely(st->pace_in.waited_ns >= in->after_ns && st->pace_in.since_ns))
		judge_request(st, in);
	if (unlikely(st->pace_out.waited_ns >= out->after_ns && st->pace_out.since_ns))
		judge_reader(st, out);
}

static uint64_t window_end(const struct pace *p, const struct conf_min_rate *r)
{
	if (!p->since_ns)
		return 0;
	return p->waited_ns < r->after_ns ? p->since_ns + (r->after_ns - p->waited_ns)
					  : p->since_ns;
}

uint64_t pace_deadline(const struct stream *st)
{
	uint64_t in = window_end(&st->pace_in, &st->fe->min_rate[MIN_RATE_REQUEST]);
	uint64_t out = window_end(&st->pace_out, &st->fe->min_rate[MIN_RATE_RESPONSE]);

	return !in || (out && out < in) ? out : in;
}
