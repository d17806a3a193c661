/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams: birth, the driver that runs phases, death. The order of phases is the X-macro in stream.h;
 * each phase is one function that says whether to go on, to wait, or that the stream is over. Streams
 * are recycled with their arena: in steady state a request allocates nothing.
 */
#include "proxy/stream.h"

#include "proxy/bwlim.h"
#include "proxy/track.h"
#include "proxy/worker_priv.h"

#define ARENA_CHUNK	 16384
#define FREE_STREAMS_MAX 256
/* Exchanges of one client (pipelined) that are run before others get their turn. */
#define STREAM_BURST 8

static const struct phase_info {
	const char *name, *text;
	char code;
} phases[PHASE_COUNT] = {
#define X(id, c, t) [PHASE_##id] = { .name = #id, .text = t, .code = c },
	STREAM_PHASES(X)
#undef X
};

static enum step (*const phase_run[PHASE_COUNT])(struct stream *st) = {
	[PHASE_TCP_CONTENT] = phase_tcp_content,
	[PHASE_REQ_HEAD] = phase_req_head,
	[PHASE_FE_RULES] = phase_fe_rules,
	[PHASE_ROUTE] = phase_route,
	[PHASE_BE_RULES] = phase_be_rules,
	[PHASE_BE_CONTENT] = phase_be_content,
	[PHASE_TARPIT] = phase_tarpit,
	[PHASE_WAIT_BODY] = phase_wait_body,
	[PHASE_PICK] = phase_pick,
	[PHASE_QUEUE] = phase_queue,
	[PHASE_RETRY_WAIT] = phase_retry_wait,
	[PHASE_CONNECT] = phase_connect,
	[PHASE_SEND] = phase_send,
	[PHASE_RSP_HEAD] = phase_rsp_head,
	[PHASE_RSP_RULES] = phase_rsp_rules,
	[PHASE_PUMP] = phase_pump,
	[PHASE_TUNNEL] = phase_tunnel,
	[PHASE_SERVICE] = phase_service,
	[PHASE_SERVICE_SEND] = phase_service_send,
	[PHASE_LOCAL] = phase_local,
	[PHASE_END] = phase_end,
};

const char *stream_phase_name(enum stream_phase p)
{
	return (unsigned)p < PHASE_COUNT ? phases[p].name : "?";
}

const char *stream_phase_text(enum stream_phase p)
{
	return (unsigned)p < PHASE_COUNT ? phases[p].text : "?";
}

char stream_phase_code(enum stream_phase p)
{
	return (unsigned)p < PHASE_COUNT ? phases[p].code : '-';
}

/* --- birth ---------------------------------------------------------------------------------------- */

static void stream_on_resume(struct deferred *d)
{
	struct stream *st = container_of(d, struct stream, resume);

	if (!st->is_free)
		stream_run(st);
}

static struct stream *stream_alloc(struct worker *w)
{
	struct list *l = list_pop_front(&w->free_streams);
	struct stream *st;

	if (l) {
		w->n_free_streams--;
		return list_entry(l, struct stream, link);
	}
	st = mem_alloc(sizeof(*st));
	if (!st)
		return NULL;
	list_init(&st->link);
	st->w = w;
	arena_init(&st->arena, ARENA_CHUNK);
	timer_init(&st->timer, stream_on_timer);
	deferred_init(&st->resume, stream_on_resume);
	return st;
}

static void stream_put_back(struct stream *st)
{
	struct worker *w = st->w;

	st->is_free = true;
	if (w->n_free_streams < FREE_STREAMS_MAX) {
		arena_reset(&st->arena);
		w->n_free_streams++;
		list_push_front(&w->free_streams, &st->link);
		return;
	}
	timer_stop(w->loop, &st->timer);
	arena_free(&st->arena);
	mem_free(st);
}

void stream_pool_free(struct worker *w)
{
	struct list *l;

	while ((l = list_pop_front(&w->free_streams))) {
		struct stream *st = list_entry(l, struct stream, link);

		timer_stop(w->loop, &st->timer);
		arena_free(&st->arena);
		mem_free(st);
	}
	w->n_free_streams = 0;
}

/* Everything of a stream but what stream_alloc() made; the client's side keeps its buffer. */
static int stream_begin(struct stream *st, struct client *cl)
{
	struct worker *w = st->w;
	unsigned max_fields = cl->snap->conf->global.maxhdr;
	int r;

	memset(st->zero_begin, 0, (size_t)(st->zero_end - st->zero_begin));
	st->is_free = false;
	st->cl = cl;
	st->fe = cl->fe;
	st->fe_rt = cl->fe_rt;
	st->fe_ctr = cl->ctr;
	list_init(&st->srv_link);
	list_init(&st->queue_link);
	list_init(&st->q.link);
	memset(st->term, '-', sizeof(st->term));
	st->log_level = 0xff;
	st->phase = PHASE_REQ_HEAD;
	st->start_ns = loop_now(w->loop);
	st->start_wall = loop_wall(w->loop);
	st->timeout_client_ns = st->fe->timeout.client;
	st->id = likely(!cl->part) ? worker_next_request_id(w) : cl->part->id;
	st->req_flow.is_active = false;
	st->rsp_flow.is_active = false;
	st->req_flow.is_done = false;
	if (st->fe->mode == CONF_MODE_TCP) {
		st->flags |= STREAM_IS_TCP;
		st->phase = PHASE_TCP_CONTENT;
		st->start_ns = cl->accept_ns;
		st->start_wall = cl->accept_wall;
		return 0;
	}
	r = http_msg_init(&st->req, &st->arena, max_fields ? max_fields : 101);
	if (!r)
		r = http_msg_init(&st->rsp, &st->arena, max_fields ? max_fields : 101);
	return r;
}

struct stream *stream_new(struct client *cl)
{
	struct worker *w = cl->w;
	struct stream *st = stream_alloc(w);

	if (!st) {
		ctr_add(&w->ctr->alloc_failures, 1);
		return NULL;
	}
	side_init(&st->front, st, cl->conn);
	side_init(&st->back, st, NULL);
	if (stream_begin(st, cl) || (unlikely(cl->part) && head_part_restore(st))) {
		ctr_add(&w->ctr->alloc_failures, 1);
		stream_put_back(st);
		return NULL;
	}
	/* While it waited for the rest of a head the client has kept to the snapshot that it began with. */
	st->snap = cl->snap;
	snapshot_pin_again(&w->view, &st->snap->snap);
	list_push_back(&w->streams, &st->link);
	w->n_streams++;
	gauge_add(&w->ctr->cur_streams, 1);
	cl->stream = st;
	cl->state = CLIENT_BUSY;
	return st;
}

/* --- death ---------------------------------------------------------------------------------------- */

void stream_leave_backend(struct stream *st)
{
	if (!(st->flags & STREAM_IN_BACKEND))
		return;
	st->flags &= ~(uint32_t)STREAM_IN_BACKEND;
	atomic_fetch_sub_explicit(&st->be_rt->cur, 1, memory_order_relaxed);
	gauge_add(&st->be_ctr->cur_sessions, -1);
}

/* What a stream holds of others: server, queue, backend. Its own memory stays. */
static void stream_let_go(struct stream *st)
{
	struct worker *w = st->w;

	track_stream_end(st);
	compress_end(st);
	if (unlikely(st->bwlim_in || st->bwlim_out))
		bwlim_end(st);
	lb_dequeue(&st->q, w->o.index);
	list_del(&st->queue_link);
	stream_drop_server_conn(st, true);
	stream_release_server(st);
	stream_leave_backend(st);
	service_cancel(st);
	loop_undefer(&st->resume);
}

void stream_free(struct stream *st)
{
	struct worker *w = st->w;

	stream_let_go(st);
	side_fini(&st->front);
	side_fini(&st->back);
	if (st->flags & STREAM_HAS_SUBJECT)
		client_session(st->cl)->vars = st->subject.vars[VAR_SESS];
	st->cl->stream = NULL;
	list_del(&st->link);
	w->n_streams--;
	gauge_add(&w->ctr->cur_streams, -1);
	snapshot_unpin(&w->view, &st->snap->snap);
	stream_put_back(st);
}

/* The backend's histograms. Only connections that were made for the request have a time to connect. */
static void stream_spread_time(struct stream *st, uint64_t now)
{
	unsigned worker = st->w->o.index;

	if (!st->be_ctr || !st->be_rt)
		return;
	if (st->conn_ns && !(st->flags & STREAM_SRV_REUSED))
		lb_time_add(st->be_rt, worker, LB_TIME_CONNECT, st->conn_ns - st->queue_ns);
	if (st->rsp_ns)
		lb_time_add(st->be_rt, worker, LB_TIME_RESPONSE, st->rsp_ns - st->conn_ns);
	lb_time_add(st->be_rt, worker, LB_TIME_TOTAL, now - st->start_ns);
}

/* Milliseconds from `from` to `to`; 0 when that was never reached. */
static uint64_t ms_between(uint64_t from, uint64_t to)
{
	return to ? (to - from) / 1000000 : 0;
}

static void stream_count_time(struct stream *st, uint64_t now)
{
	struct hg_l7_counters *rows[2] = { st->be_ctr, st->srv_ctr };
	uint64_t q = ms_between(st->req_ns, st->queue_ns);
	uint64_t conn = ms_between(st->queue_ns, st->conn_ns);
	uint64_t rsp = ms_between(st->conn_ns, st->rsp_ns);
	uint64_t total = ms_between(st->start_ns, now);

	stream_spread_time(st, now);
	for (unsigned i = 0; i < 2 && (q | conn | rsp | total); i++) {
		struct hg_l7_counters *c = rows[i];

		if (!c)
			continue;
		ctr_add(&c->qtime_ms, q);
		ctr_add(&c->ctime_ms, conn);
		ctr_add(&c->rtime_ms, rsp);
		ctr_add(&c->ttime_ms, total);
		ctr_max(&c->max_qtime_ms, q);
		ctr_max(&c->max_ctime_ms, conn);
		ctr_max(&c->max_rtime_ms, rsp);
		ctr_max(&c->max_ttime_ms, total);
	}
}

static void stream_count_bytes(struct stream *st)
{
	struct hg_l7_counters *rows[4] = { st->fe_ctr, st->be_ctr, st->srv_ctr,
					   listener_ctr(st->cl) };

	st->bytes_in = st->front.rx - (st->front.in.tail - st->front.in.parsed);
	if (st->flags & STREAM_IS_TCP || st->bytes_in > st->front.rx)
		st->bytes_in = st->front.rx;
	st->bytes_out = st->front.tx;
	for (unsigned i = 0; i < 4; i++) {
		if (!rows[i])
			continue;
		ctr_add(&rows[i]->bytes_in, st->bytes_in);
		ctr_add(&rows[i]->bytes_out, st->bytes_out);
	}
	ctr_add(&st->w->ctr->bytes_out, st->bytes_out);
}

static void stream_count_status(struct stream *st)
{
#define CLASS(name) offsetof(struct hg_l7_counters, name)
	static const uint16_t classes[] = { CLASS(hrsp_other), CLASS(hrsp_1xx), CLASS(hrsp_2xx),
					    CLASS(hrsp_3xx),   CLASS(hrsp_4xx), CLASS(hrsp_5xx) };
#undef CLASS
	struct hg_l7_counters *rows[3] = { st->fe_ctr, st->be_ctr,
					   st->flags & STREAM_INTERCEPTED ? NULL : st->srv_ctr };
	unsigned class = st->status / 100;

	if (!st->status)
		return;
	if (class >= ARRAY_SIZE(classes))
		class = 0;
	for (unsigned i = 0; i < 3; i++)
		if (rows[i])
			ctr_add((__u64 *)((char *)rows[i] + classes[class]), 1);
}

static void stream_finish(struct stream *st)
{
	if (st->flags & STREAM_LOGGED)
		return;
	st->flags |= STREAM_LOGGED;
	st->data_ns = loop_now(st->w->loop);
	stream_count_bytes(st);
	stream_count_status(st);
	stream_count_time(st, st->data_ns);
	track_finish(st);
	/* Before the server and the slots are given back: the line names them. */
	if (!(st->flags & (STREAM_NO_LOG | STREAM_LOG_SENT)) &&
	    (st->fe->has_log || st->log_level != 0xff))
		stream_log(st);
}

/* Is everything of the request read, so that what follows on the connection is another one? */
static bool stream_is_request_done(const struct stream *st)
{
	return (st->flags & STREAM_REQ_PARSED) &&
	       (st->req_flow.is_done ||
		(!st->req_flow.is_active && st->req.framing == HTTP_BODY_NONE));
}

/* The next request is in the buffer already: the same stream serves it, its buffer's contents moved up. */
static void stream_again(struct stream *st, struct client *cl)
{
	struct worker *w = st->w;
	struct proxy_snapshot *before = st->snap;
	struct side kept = st->front;
	struct str left = side_leftover(&kept);

	stream_let_go(st);
	side_fini(&st->back);
	if (st->flags & STREAM_HAS_SUBJECT)
		cl->vars = st->subject.vars[VAR_SESS];
	memmove(kept.head_mem, left.p, left.len);
	arena_reset(&st->arena);
	side_init(&st->front, st, cl->conn);
	side_init(&st->back, st, NULL);
	st->front.head_mem = kept.head_mem;
	st->front.in = (struct window){ .mem = kept.head_mem,
					.cap = w->head_size,
					.tail = (uint32_t)left.len };
	st->front.rx = left.len;
	pool_put(&w->big_pool, kept.big_mem);
	pool_put(&w->big_pool, kept.pending.mem);
	/* Cannot fail for want of memory: the arena kept its first chunk, which held the same before. */
	if (stream_begin(st, cl))
		st->phase = PHASE_END;
	st->snap = cl->snap;
	if (st->snap != before) { /* our pin goes with us */
		(void)snapshot_pin(&w->view);
		snapshot_unpin(&w->view, &before->snap);
	}
}

enum step phase_end(struct stream *st)
{
	struct client *cl = st->cl;
	bool keep = (st->flags & STREAM_CLIENT_KEEP) && stream_is_request_done(st) &&
		    side_is_flushed(&st->front) && !st->front.is_read_closed &&
		    !cl->conn->is_broken && !cl->must_close && !st->w->is_draining;
	/* Unread input turns close() into a reset that may overtake the answer. */
	bool must_linger = st->front.tx && !stream_is_request_done(st);

	stream_finish(st);
	if (st->back.conn)
		stream_keep_server_conn(st);
	/* A new configuration was adopted meanwhile: the next request begins with it. */
	if (keep && side_leftover(&st->front).len && !st->front.big_mem &&
	    (cl->snap == st->w->snap || client_follow(cl))) {
		cl->n_requests++;
		stream_again(st, cl);
		return STEP_GO;
	}
	if (side_leftover(&st->front).len)
		keep = false;
	stream_free(st);
	cl->n_requests++;
	if (keep)
		client_set_idle(cl);
	else if (must_linger && !cl->conn->is_broken && !cl->conn->peer_closed)
		client_linger(cl);
	else
		client_close(cl, false);
	return STEP_GONE;
}

/* --- the driver ----------------------------------------------------------------------------------- */

void stream_resume_later(struct stream *st)
{
	loop_defer(st->w->loop, &st->resume);
}

void stream_run(struct stream *st)
{
	struct worker *w = st->w;
	unsigned n = 0;

	st->n_runs++;
	for (;;) {
		bool is_end = st->phase == PHASE_END;
		enum step s = phase_run[st->phase](st);

		if (s == STEP_WAIT) {
			stream_arm(st);
			return;
		}
		if (s == STEP_GONE)
			break;
		if (is_end && ++n >= STREAM_BURST) {
			stream_resume_later(st);
			return;
		}
	}
	if (w->is_draining)
		worker_check_drained(w);
}

bool stream_is_client_gone(const struct stream *st)
{
	const struct conn *c = st->front.conn;
	const struct conf_proxy *px;

	if (likely(!c->is_broken && !c->peer_closed))
		return false;
	px = st->be ? st->be : st->fe;
	return c->is_broken || px->options & CONF_OPT(ABORTONCLOSE);
}

void stream_blame(struct stream *st, char cause)
{
	if (st->term[0] != '-')
		return;
	st->term[0] = cause;
	st->term[1] = stream_phase_code(st->phase);
	/* The request is still being sent or the response not begun: HAProxy calls both H. */
	if (st->phase == PHASE_PUMP && !(st->flags & STREAM_RSP_STARTED))
		st->term[1] = 'H';
}

enum step stream_fail(struct stream *st, char cause, unsigned status)
{
	stream_blame(st, cause);
	/* A head that was written but has not left can still be replaced. */
	if (st->flags & STREAM_RSP_STARTED && !(st->flags & STREAM_IS_TCP) && !st->front.tx &&
	    !buf_len(&st->front.pending) && st->phase == PHASE_PUMP) {
		st->flags &= ~(uint32_t)STREAM_RSP_STARTED;
		st->front.prefix = STR_NULL;
		status = status ? status : 502;
	}
	if (status && !(st->flags & (STREAM_RSP_STARTED | STREAM_IS_TCP)) &&
	    !st->front.conn->is_broken)
		return stream_answer_status(st, status);
	st->flags &= ~(uint32_t)(STREAM_CLIENT_KEEP | STREAM_SERVER_KEEP);
	stream_drop_server_conn(st, true);
	if (st->flags & STREAM_RSP_STARTED || st->flags & STREAM_IS_TCP) {
		struct client *cl = st->cl;
		/* A truncated answer must not look complete, and here a FIN would be its end. */
		bool reset = cl->conn->is_broken || (!(st->flags & STREAM_IS_TCP) &&
						     st->front.out_framing == HTTP_BODY_CLOSE);

		/* It does not read: what is left would stay in the kernel's memory for as long as it likes. */
		reset |= cause == 'c' && st->rsp_flow.waits_for_dst;

		stream_finish(st);
		stream_free(st);
		client_close(cl, reset);
		return STEP_GONE;
	}
	return stream_go(st, PHASE_END);
}

void stream_kill(struct stream *st, char cause)
{
	struct client *cl = st->cl;

	stream_blame(st, cause);
	stream_drop_server_conn(st, true);
	stream_finish(st);
	stream_free(st);
	client_close(cl, false);
}
