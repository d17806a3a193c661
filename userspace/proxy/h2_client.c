/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HTTP/2 towards clients: the connection, who runs when, input and output, the end (overview:
 * h2_client.h). Memory is bounded: input windows of all exchanges together by H2_CONN_WINDOW, output by
 * one buffer; a peer that does not read is not read from.
 */
#include "proxy/h2_client.h"

#include <errno.h>
#include <stdio.h>

/* Between "no new streams, please" and the refusal of new ones (RFC 9113 6.8 asks for a round trip). */
#define DRAIN_GRACE_NS 200000000ull

/* --- the end ---------------------------------------------------------------------------------------- */

static void end_exchanges(struct h2_conn *hc)
{
	while (!list_is_empty(&hc->m.exchanges)) {
		struct h2_exchange *ex = list_entry(hc->m.exchanges.next, struct h2_exchange, link);

		ex->conn.is_broken = true;
		stream_kill(ex->side->st, 'C');
	}
}

/* Streams find out for themselves that their client is gone, and log it as such. */
static void break_exchanges(struct h2_conn *hc)
{
	struct list *pos;

	list_for_each(pos, &hc->m.exchanges) {
		struct h2_exchange *ex = list_entry(pos, struct h2_exchange, link);

		ex->conn.is_broken = true;
		h2_wake(ex);
	}
	h2_mux_run(&hc->m);
	end_exchanges(hc);
}

void h2_client_free(struct client *cl)
{
	struct h2_conn *hc = cl->mux;

	hc->m.is_working = true;
	end_exchanges(hc);
	h2_mux_fini(&hc->m);
	cl->mux = NULL;
	mem_free(hc);
}

static void log_abuse(struct h2_conn *hc)
{
	enum h2_abuse a = h2_abuse(hc->m.h2);
	char text[80];

	if (!a || hc->is_abuse_logged)
		return;
	hc->is_abuse_logged = true;
	snprintf(text, sizeof(text), "HTTP/2: %s", h2_abuse_text(a));
	client_log_error(hc->cl, text);
}

/* Is the connection over? Then it, and `hc`, are gone. */
static bool end_if_over(struct h2_conn *hc)
{
	struct client *cl = hc->cl;
	bool is_over = h2_is_over(hc->m.h2);
	bool is_drained = hc->drain == H2_DRAIN_LAST && !hc->m.n_exchanges;
	bool is_dead = hc->m.is_dead || cl->conn->is_broken;

	log_abuse(hc);
	if (!is_dead && !is_over && !is_drained)
		return false;
	if (!is_dead && buf_len(&hc->m.out)) {
		/* The last words have to leave first; not for ever. */
		if (is_over && hc->m.n_exchanges)
			break_exchanges(hc);
		if (!timer_is_running(&cl->timer))
			timer_start(cl->w->loop, &cl->timer, 1000000000ull);
		return false;
	}
	break_exchanges(hc);
	h2_client_free(cl);
	if (is_dead)
		client_close(cl, cl->conn->is_broken);
	else
		client_linger(cl);
	return true;
}

static void go_idle(struct h2_conn *hc)
{
	struct client *cl = hc->cl;
	uint64_t timeout = client_idle_timeout(cl);

	h2_mux_put_out_back(&hc->m);
	if (hc->m.n_exchanges || timer_is_running(&cl->timer))
		return;
	cl->conn->doing = "idle";
	h2_trim(hc->m.h2);
	if (timeout)
		timer_start(cl->w->loop, &cl->timer, timeout);
	if (cl->conn->tls && !cl->conn->can_read && !buf_len(&hc->m.out))
		conn_idle(cl->conn);
}

/* --- the driver --------------------------------------------------------------------------------------- */

static bool has_served_enough(const struct h2_conn *hc)
{
	return hc->max_requests && hc->n_requests >= hc->max_requests;
}

static void h2_client_work(struct h2_conn *hc)
{
	(void)h2_mux_turns(&hc->m);
	if ((hc->m.w->is_draining || has_served_enough(hc)) && hc->drain == H2_DRAIN_NO) {
		h2_client_drain(hc->cl);
		return;
	}
	if (!end_if_over(hc))
		go_idle(hc);
}

static void on_work(struct deferred *d)
{
	h2_client_work(container_of(d, struct h2_conn, m.work));
}

void h2_client_event(struct client *cl)
{
	h2_client_work(cl->mux);
}

void h2_client_timer(struct client *cl)
{
	struct h2_conn *hc = cl->mux;

	if (hc->drain == H2_DRAIN_TOLD) {
		hc->drain = H2_DRAIN_LAST;
		if (h2_goaway(hc->m.h2, H2_NO_ERROR))
			hc->m.is_dead = true;
	} else if (hc->m.n_exchanges && !h2_is_over(hc->m.h2)) {
		return;
	} else if (h2_is_over(hc->m.h2) || hc->drain == H2_DRAIN_LAST) {
		hc->m.is_dead = true; /* the last words did not leave in time */
	} else {
		h2_terminate(hc->m.h2, H2_NO_ERROR);
	}
	h2_client_work(hc);
}

void h2_client_drain(struct client *cl)
{
	struct h2_conn *hc = cl->mux;
	int r;

	if (hc->drain != H2_DRAIN_NO)
		return;
	/* Nothing is under way: what arrives now can be tried elsewhere, says GOAWAY. */
	hc->drain = hc->m.n_exchanges ? H2_DRAIN_TOLD : H2_DRAIN_LAST;
	r = hc->m.n_exchanges ? h2_shutdown_notice(hc->m.h2) : h2_goaway(hc->m.h2, H2_NO_ERROR);
	if (r)
		hc->m.is_dead = true;
	if (hc->drain == H2_DRAIN_TOLD)
		timer_start(cl->w->loop, &cl->timer, DRAIN_GRACE_NS);
	/* Not now: the caller may be walking the list of clients. */
	loop_defer(cl->w->loop, &hc->m.work);
}

void h2_client_drop(struct client *cl)
{
	cl->mux->m.is_dead = true;
	loop_defer(cl->w->loop, &cl->mux->m.work);
}

/* --- the beginning ------------------------------------------------------------------------------------ */

bool h2_client_start(struct client *cl, struct str first)
{
	const struct conf_global *g = &cl->snap->conf->global;
	struct h2_limits limits = h2_mux_limits(cl->w, g, false);
	struct worker *w = cl->w;
	struct h2_conn *hc = mem_zalloc(sizeof(*hc));

	if (!hc || h2_server_new(&h2_client_ops, &hc->m, &limits, loop_now(w->loop), &hc->m.h2)) {
		ctr_add(&w->ctr->alloc_failures, 1);
		mem_free(hc);
		return false;
	}
	hc->cl = cl;
	hc->max_requests = g->h2_fe.total;
	h2_mux_init(&hc->m, w, cl->conn, on_work);
	hc->m.send_head = h2_request_send_head;
	cl->mux = hc;
	cl->state = CLIENT_MUX;
	cl->conn->doing = "HTTP/2";
	hc->m.is_working = true;
	if (first.len && h2_receive(hc->m.h2, first, loop_now(w->loop)) == -ENOMEM)
		hc->m.is_dead = true;
	hc->m.is_working = false;
	/* From the top of the next iteration: a stream may be on the stack. */
	h2_mux_work_later(&hc->m);
	return true;
}

bool h2_client_is_preface(const struct stream *st)
{
	const struct window *w = &st->front.in;
	size_t n = w->tail < H2_PREFACE_LEN ? w->tail : H2_PREFACE_LEN;

	return st->front.ops == &side_h1 && !st->cl->n_requests && n >= 14 && !st->cl->conn->tls &&
	       st->cl->pb->conf->proto == BIND_PROTO_AUTO &&
	       !(st->fe->options & CONF_OPT(DISABLE_H2_UPGRADE)) &&
	       memcmp(w->mem, H2_PREFACE, n) == 0;
}

enum step h2_client_take_over(struct stream *st)
{
	struct client *cl = st->cl;
	struct worker *w = st->w;
	uint32_t n = st->front.in.tail;

	memcpy(w->scratch, st->front.in.mem, n);
	stream_free(st);
	if (!h2_client_start(cl, str_make(w->scratch, n)))
		client_close(cl, true);
	return STEP_GONE;
}
