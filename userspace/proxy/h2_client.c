/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HTTP/2 towards clients: the connection, who runs when, input and output, the end (overview:
 * h2_client.h). Memory is bounded: input windows of all exchanges together by H2_CONN_WINDOW, output by
 * one buffer; a peer that does not read is not read from.
 */
#include "proxy/h2_client.h"

#include <errno.h>
#include <stdio.h>

/* Rounds of reading, running and sending before other connections get their turn. */
#define WORK_TURNS 16
/* Between "no new streams, please" and the refusal of new ones (RFC 9113 6.8 asks for a round trip). */
#define DRAIN_GRACE_NS 200000000ull

/* --- who runs when ---------------------------------------------------------------------------------- */

void h2_work_later(struct h2_conn *hc)
{
	if (!hc->is_working)
		loop_defer(hc->cl->w->loop, &hc->work);
}

void h2_wake(struct h2_exchange *ex)
{
	if (list_is_empty(&ex->run_link))
		list_push_back(&ex->hc->runnable, &ex->run_link);
	h2_work_later(ex->hc);
}

void h2_wait_for_room(struct h2_exchange *ex)
{
	if (list_is_empty(&ex->block_link))
		list_push_back(&ex->hc->blocked, &ex->block_link);
}

void h2_wake_blocked(struct h2_conn *hc)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &hc->blocked) {
		struct h2_exchange *ex = list_entry(pos, struct h2_exchange, block_link);

		if (ex->h2.id && ex->h2.has_body && !h2_stream_has_window(&ex->h2))
			continue;
		list_del(&ex->block_link);
		h2_wake(ex);
	}
}

static void run_exchanges(struct h2_conn *hc)
{
	struct list *l, now;

	/* Those that wake up meanwhile have their turn after some output. */
	list_init(&now);
	while ((l = list_pop_front(&hc->runnable)))
		list_push_back(&now, l);
	while ((l = list_pop_front(&now))) {
		struct h2_exchange *ex = list_entry(l, struct h2_exchange, run_link);

		if (ex->cl.stream)
			stream_run(ex->cl.stream);
	}
}

/* --- input and output ------------------------------------------------------------------------------- */

bool h2_need_out(struct h2_conn *hc)
{
	struct worker *w = hc->cl->w;
	char *mem;

	if (hc->out.mem)
		return true;
	mem = pool_get(&w->big_pool);
	if (!mem) {
		ctr_add(&w->ctr->alloc_failures, 1);
		hc->is_dead = true;
		return false;
	}
	buf_init(&hc->out, mem, SIDE_BIG_WINDOW);
	return true;
}

static void put_out_back(struct h2_conn *hc)
{
	if (!hc->out.mem || buf_len(&hc->out))
		return;
	pool_put(&hc->cl->w->big_pool, hc->out.mem);
	buf_init(&hc->out, NULL, 0);
}

void h2_flush(struct h2_conn *hc)
{
	struct conn *c = hc->cl->conn;

	while (buf_len(&hc->out) && c->can_write && !hc->is_dead) {
		struct iovec iov = { buf_data(&hc->out), buf_len(&hc->out) };
		ssize_t n = conn_sendv(c, &iov, 1, false);

		if (n == -EAGAIN || n == 0)
			break;
		if (n < 0)
			hc->is_dead = true;
		else
			buf_consume(&hc->out, (uint32_t)n);
	}
}

static void send_all(struct h2_conn *hc)
{
	int r = -ENOBUFS;

	while (r == -ENOBUFS && !hc->is_dead && (h2_wants_output(hc->h2) || buf_len(&hc->out))) {
		if (!h2_need_out(hc))
			return;
		r = h2_produce(hc->h2, &hc->out);
		h2_flush(hc);
		if (buf_len(&hc->out))
			return;
	}
}

/* Only as long as answers find their way out: otherwise the peer could make us pile them up. */
static bool may_read(const struct h2_conn *hc)
{
	return hc->cl->conn->can_read && !hc->is_dead && buf_len(&hc->out) < SIDE_BIG_WINDOW / 2 &&
	       !h2_is_over(hc->h2);
}

static void read_some(struct h2_conn *hc)
{
	struct worker *w = hc->cl->w;
	ssize_t n = conn_recv(hc->cl->conn, w->scratch, SIDE_BIG_WINDOW);

	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		hc->is_dead = true;
		return;
	}
	if (h2_receive(hc->h2, str_make(w->scratch, (size_t)n), loop_now(w->loop)) == -ENOMEM) {
		ctr_add(&w->ctr->alloc_failures, 1);
		hc->is_dead = true;
	}
}

/* --- the end ---------------------------------------------------------------------------------------- */

static void end_exchanges(struct h2_conn *hc)
{
	while (!list_is_empty(&hc->exchanges)) {
		struct h2_exchange *ex = list_entry(hc->exchanges.next, struct h2_exchange, link);

		ex->conn.is_broken = true;
		stream_kill(ex->cl.stream, 'C');
	}
}

/* Streams find out for themselves that their client is gone, and log it as such. */
static void break_exchanges(struct h2_conn *hc)
{
	struct list *pos;

	list_for_each(pos, &hc->exchanges) {
		struct h2_exchange *ex = list_entry(pos, struct h2_exchange, link);

		ex->conn.is_broken = true;
		h2_wake(ex);
	}
	run_exchanges(hc);
	end_exchanges(hc);
}

void h2_client_free(struct client *cl)
{
	struct h2_conn *hc = cl->mux;

	hc->is_working = true;
	end_exchanges(hc);
	loop_undefer(&hc->work);
	h2_free(hc->h2);
	buf_clear(&hc->out);
	put_out_back(hc);
	cl->mux = NULL;
	mem_free(hc);
}

static void log_abuse(struct h2_conn *hc)
{
	enum h2_abuse a = h2_abuse(hc->h2);
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
	bool is_over = h2_is_over(hc->h2);
	bool is_drained = hc->drain == H2_DRAIN_LAST && !hc->n_exchanges;
	bool is_dead = hc->is_dead || cl->conn->is_broken;

	log_abuse(hc);
	if (!is_dead && !is_over && !is_drained)
		return false;
	if (!is_dead && buf_len(&hc->out)) {
		/* The last words have to leave first; not for ever. */
		if (is_over && hc->n_exchanges)
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

	put_out_back(hc);
	if (hc->n_exchanges || timer_is_running(&cl->timer))
		return;
	cl->conn->doing = "idle";
	h2_trim(hc->h2);
	if (timeout)
		timer_start(cl->w->loop, &cl->timer, timeout);
	if (cl->conn->tls && !cl->conn->can_read && !buf_len(&hc->out))
		conn_idle(cl->conn);
}

/* --- the driver --------------------------------------------------------------------------------------- */

static void h2_client_work(struct h2_conn *hc)
{
	unsigned turn;

	hc->is_working = true;
	for (turn = 0; turn < WORK_TURNS; turn++) {
		bool has_read = may_read(hc);

		if (has_read)
			read_some(hc);
		run_exchanges(hc);
		send_all(hc);
		if (!buf_len(&hc->out) && !list_is_empty(&hc->blocked))
			h2_wake_blocked(hc);
		if (list_is_empty(&hc->runnable) && (!has_read || !may_read(hc)))
			break;
	}
	hc->is_working = false;
	if (hc->cl->w->is_draining && hc->drain == H2_DRAIN_NO) {
		h2_client_drain(hc->cl);
		return;
	}
	if (end_if_over(hc))
		return;
	if (turn == WORK_TURNS)
		h2_work_later(hc);
	go_idle(hc);
}

static void on_work(struct deferred *d)
{
	h2_client_work(container_of(d, struct h2_conn, work));
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
		if (h2_goaway(hc->h2, H2_NO_ERROR))
			hc->is_dead = true;
	} else if (hc->n_exchanges && !h2_is_over(hc->h2)) {
		return;
	} else if (h2_is_over(hc->h2) || hc->drain == H2_DRAIN_LAST) {
		hc->is_dead = true; /* the last words did not leave in time */
	} else {
		h2_terminate(hc->h2, H2_NO_ERROR);
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
	hc->drain = hc->n_exchanges ? H2_DRAIN_TOLD : H2_DRAIN_LAST;
	r = hc->n_exchanges ? h2_shutdown_notice(hc->h2) : h2_goaway(hc->h2, H2_NO_ERROR);
	if (r)
		hc->is_dead = true;
	if (hc->drain == H2_DRAIN_TOLD)
		timer_start(cl->w->loop, &cl->timer, DRAIN_GRACE_NS);
	/* Not now: the caller may be walking the list of clients. */
	loop_defer(cl->w->loop, &hc->work);
}

void h2_client_drop(struct client *cl)
{
	cl->mux->is_dead = true;
	loop_defer(cl->w->loop, &cl->mux->work);
}

/* --- the beginning ------------------------------------------------------------------------------------ */

bool h2_client_start(struct client *cl, struct str first)
{
	const struct conf_global *g = &cl->snap->conf->global;
	struct h2_limits limits = {
		.max_head = cl->w->head_size,
		.max_fields = g->maxhdr ? g->maxhdr : 101,
		.allow_connect_protocol = true,
	};
	struct worker *w = cl->w;
	struct h2_conn *hc = mem_zalloc(sizeof(*hc));

	if (!hc || h2_server_new(&h2_client_ops, hc, &limits, loop_now(w->loop), &hc->h2)) {
		ctr_add(&w->ctr->alloc_failures, 1);
		mem_free(hc);
		return false;
	}
	hc->cl = cl;
	list_init(&hc->exchanges);
	list_init(&hc->runnable);
	list_init(&hc->blocked);
	deferred_init(&hc->work, on_work);
	cl->mux = hc;
	cl->state = CLIENT_MUX;
	cl->conn->doing = "HTTP/2";
	hc->is_working = true;
	if (first.len && h2_receive(hc->h2, first, loop_now(w->loop)) == -ENOMEM)
		hc->is_dead = true;
	hc->is_working = false;
	/* From the top of the next iteration: a stream may be on the stack. */
	h2_work_later(hc);
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
