/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers that make work without wanting anything: each kind of frame that costs us more than it costs
 * them has a budget, refilled by time and by useful work (data that flows, exchanges that come to a good
 * end). Who overdraws it gets GOAWAY(ENHANCE_YOUR_CALM) and is closed. On by default, whatever tune.h2.* says: the
 * budgets are far beyond what browsers, curl and gRPC need. Called from nghttp2's callbacks.
 */
#include "http/h2_priv.h"

#define SECOND 1000000000ull

static const struct h2_budget {
	int32_t burst, per_second;
	const char *text;
} budgets[H2_ABUSE_COUNT] = {
#define TEXT(name, t) [H2_ABUSE_##name].text = t,
	H2_ABUSES(TEXT)
#undef TEXT
		[H2_ABUSE_RESET]
			.per_second = 20,
	/* Each has to be acknowledged; honest peers send one or two in a connection's life. */
	[H2_ABUSE_CONTROL].burst = 32,
	[H2_ABUSE_CONTROL].per_second = 1,
	/* gRPC measures the round trip while data flows: data pays for it. */
	[H2_ABUSE_PING].burst = 200,
	[H2_ABUSE_PING].per_second = 10,
	[H2_ABUSE_EMPTY].burst = 64,
	[H2_ABUSE_EMPTY].per_second = 10,
	[H2_ABUSE_WINDOW].burst = 4096,
	[H2_ABUSE_WINDOW].per_second = 500,
	[H2_ABUSE_PRIORITY].burst = 1024,
	[H2_ABUSE_PRIORITY].per_second = 100,
	[H2_ABUSE_CONTINUATION].burst = 1,
	[H2_ABUSE_HEADERS].burst = 1,
};

/* Frames after a HEADERS frame; the whole list fits in a few of any sensible size. */
#define CONTINUATIONS_MAX 32

const char *h2_abuse_text(enum h2_abuse a)
{
	return (unsigned)a < H2_ABUSE_COUNT && budgets[a].text ? budgets[a].text : "";
}

static int32_t burst(const struct h2_guard *g, enum h2_abuse kind)
{
	return kind == H2_ABUSE_RESET ? g->reset_burst : budgets[kind].burst;
}

void h2_guard_init(struct h2_guard *g, uint32_t max_streams, uint64_t now_ns)
{
	/* A page left by its reader: all its streams at once. */
	g->reset_burst = 2 * (int32_t)(max_streams > H2_MAX_STREAMS ? max_streams : H2_MAX_STREAMS);
	for (unsigned i = 0; i < H2_ABUSE_COUNT; i++)
		g->left[i] = burst(g, (enum h2_abuse)i);
	g->n_glitches = 0;
	g->refilled_ns = now_ns;
	g->abuse = H2_ABUSE_NONE;
}

void h2_guard_refill(struct h2_guard *g, uint64_t now_ns)
{
	uint64_t seconds;

	if (now_ns - g->refilled_ns < SECOND || now_ns < g->refilled_ns)
		return;
	seconds = (now_ns - g->refilled_ns) / SECOND;
	g->refilled_ns += seconds * SECOND;
	if (seconds > 3600)
		seconds = 3600;
	for (unsigned i = 0; i < H2_ABUSE_COUNT; i++)
		h2_guard_earn(g, (enum h2_abuse)i, budgets[i].per_second * (int32_t)seconds);
}

void h2_guard_earn(struct h2_guard *g, enum h2_abuse kind, int32_t n)
{
	int32_t sum = g->left[kind] + n;

	g->left[kind] = sum < burst(g, kind) ? sum : burst(g, kind);
}

void h2_guard_glitch(struct h2_session *h)
{
	if (h->limits.max_glitches && ++h->guard.n_glitches > h->limits.max_glitches)
		h2_guard_end(h, H2_ABUSE_GLITCHES);
}

void h2_guard_end(struct h2_session *h, enum h2_abuse kind)
{
	if (h->guard.abuse)
		return;
	h->guard.abuse = (uint8_t)kind;
	h->is_leaving = true;
	h2_terminate(h, H2_CALM);
}

bool h2_guard_spend(struct h2_session *h, enum h2_abuse kind)
{
	if (kind == H2_ABUSE_EMPTY)
		h2_guard_glitch(h);
	if (likely(h->guard.left[kind] > 0)) {
		h->guard.left[kind]--;
		return true;
	}
	h2_guard_end(h, kind);
	return false;
}

static void guard_block(struct h2_session *h, const nghttp2_frame_hd *hd)
{
	struct h2_head *head = &h->head;

	if (hd->type == NGHTTP2_HEADERS) {
		head->n_continuations = 0;
		head->n_encoded = 0;
	} else {
		head->n_continuations++;
		h2_guard_glitch(h);
		if (!hd->length && !h2_guard_spend(h, H2_ABUSE_EMPTY))
			return;
	}
	head->n_encoded += (uint32_t)hd->length;
	if (head->n_continuations > CONTINUATIONS_MAX)
		h2_guard_end(h, H2_ABUSE_CONTINUATION);
	else if (head->n_encoded > 4 * h->limits.max_head)
		h2_guard_end(h, H2_ABUSE_HEADERS);
}

void h2_guard_frame(struct h2_session *h, const nghttp2_frame_hd *hd)
{
	bool is_ack = hd->flags & NGHTTP2_FLAG_ACK;

	switch (hd->type) {
	case NGHTTP2_DATA:
		if (hd->length)
			h2_guard_earn(&h->guard, H2_ABUSE_PING, 1);
		break;
	case NGHTTP2_HEADERS:
	case NGHTTP2_CONTINUATION:
		guard_block(h, hd);
		break;
	case NGHTTP2_RST_STREAM:
		h2_guard_spend(h, H2_ABUSE_RESET);
		break;
	case NGHTTP2_SETTINGS:
		if (!is_ack)
			h2_guard_spend(h, H2_ABUSE_CONTROL);
		break;
	case NGHTTP2_PING:
		if (!is_ack)
			h2_guard_spend(h, H2_ABUSE_PING);
		break;
	case NGHTTP2_WINDOW_UPDATE:
		h2_guard_spend(h, H2_ABUSE_WINDOW);
		break;
	case NGHTTP2_GOAWAY:
	case NGHTTP2_PUSH_PROMISE:
		break;
	default:
		h2_guard_spend(h, H2_ABUSE_PRIORITY);
	}
}
