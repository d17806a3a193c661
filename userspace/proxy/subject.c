/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What expressions see of a stream or a client connection. Filled when a rule, a condition or a log line
 * asks, never for requests that have none; refreshed in place, because a stream's facts only grow. The
 * variables live in the subject; those of the session move to the client when the stream ends.
 */
#include <errno.h>

#include "proxy/facts.h"
#include "proxy/track.h"
#include "proxy/worker_priv.h"

static int ask_tls(const struct subject *s, bool is_back, enum subject_tls_field f,
		   struct sample *ret)
{
	const struct conn *c = is_back ? s->back.handle : s->front.handle;

	return c ? conn_tls_field(c, f, s->arena, ret) : -ENOENT;
}

static int ask_tcp(const struct subject *s, bool is_back, enum subject_tcp_fact f, int64_t *ret)
{
	const struct conn *c = is_back ? s->back.handle : s->front.handle;

	return c ? conn_tcp_fact(c, f, ret) : -ENOENT;
}

/* Put together when asked for: a body in chunks is copied. */
static struct str ask_body(const struct subject *s, bool is_rsp)
{
	struct stream *st = s->owner;
	struct side *side = is_rsp ? &st->back : &st->front;

	return st->flags & (is_rsp ? STREAM_RSP_PARSED : STREAM_REQ_PARSED)
		       ? side->ops->peek_body(side)
		       : STR_NULL;
}

/* --- counts ------------------------------------------------------------------------------------------- */

/* Who asks: a stream, or a connection whose rules run before there is one. */
struct count_asker {
	struct worker *w;
	const struct proxy_snapshot *snap;
	const struct conf_proxy *px; /* the section that handles it now */
	const struct lb_backend *fe_rt;
	struct server *srv; /* NULL: none yet */
};

struct count_target {
	const struct conf_proxy *px;
	struct lb_backend *be;
	struct server *srv; /* NULL: none named */
};

static bool is_of_server(enum subject_count c)
{
	switch (c) {
	case COUNT_SRV_CONN:
	case COUNT_SRV_CONN_FREE:
	case COUNT_SRV_IS_UP:
	case COUNT_SRV_IWEIGHT:
	case COUNT_SRV_QUEUE:
	case COUNT_SRV_SESS_RATE:
	case COUNT_SRV_WEIGHT:
		return true;
	default:
		return false;
	}
}

/* "backend", "backend/server", "server" of the asker's section, or empty for the asker's own. */
static bool count_find(const struct count_asker *a, enum subject_count c, struct str name,
		       struct count_target *t)
{
	struct str srv = name, be = str_cut(&srv, '/');

	if (name.len && !srv.p && is_of_server(c)) {
		srv = name;
		be = STR_NULL;
	}
	*t = (struct count_target){ .px = a->px };
	if (be.len)
		t->px = conf_find_proxy(a->snap->conf, be, CONF_CAP_BACKEND | CONF_CAP_FRONTEND);
	if (!t->px)
		return false;
	t->be = a->snap->backends[t->px->index];
	t->srv = name.len ? NULL : a->srv;
	if (srv.p)
		t->srv = server_named(t->be, t->px, srv);
	return true;
}

/* Of its queue; false: it has no limit. */
static bool free_places(const struct server *s, uint32_t *ret)
{
	uint32_t max = atomic_load_explicit(&s->maxqueue, memory_order_relaxed);
	uint32_t n = atomic_load_explicit(&s->n_waiting, memory_order_relaxed);

	*ret = max > n ? max - n : 0;
	return max != 0;
}

static int64_t count_servers(const struct count_target *t, enum subject_count c)
{
	struct server *s;
	int64_t n = 0;

	for (unsigned pos = 0; (s = lb_server_at(t->be, pos)); pos++) {
		uint32_t max, cur, places = 0;

		if (!server_is_usable(s))
			continue;
		max = atomic_load_explicit(&s->maxconn, memory_order_relaxed);
		cur = atomic_load_explicit(&s->cur, memory_order_relaxed);
		if (c == COUNT_QUEUE)
			n += atomic_load_explicit(&s->n_waiting, memory_order_relaxed);
		else if (c == COUNT_BE_WEIGHT)
			n += atomic_load_explicit(&s->uweight, memory_order_relaxed);
		else if (!max || (c == COUNT_CONNSLOTS && !free_places(s, &places)))
			return -1; /* without a limit there is no number of free places */
		else
			n += (max > cur ? max - cur : 0) + places;
	}
	return n;
}

static int64_t count_usable(const struct lb_backend *be)
{
	uint32_t n = atomic_load_explicit(&be->n_active, memory_order_relaxed);

	return n ? n : atomic_load_explicit(&be->n_backup_active, memory_order_relaxed);
}

static int count_server(const struct count_asker *a, const struct server *s, enum subject_count c,
			int64_t *ret)
{
	switch (c) {
	case COUNT_SRV_CONN:
		*ret = atomic_load_explicit(&s->cur, memory_order_relaxed);
		return 0;
	case COUNT_SRV_QUEUE:
		*ret = atomic_load_explicit(&s->n_waiting, memory_order_relaxed);
		return 0;
	case COUNT_SRV_IS_UP:
		*ret = server_is_usable(s);
		return 0;
	case COUNT_SRV_WEIGHT:
		*ret = atomic_load_explicit(&s->uweight, memory_order_relaxed);
		return 0;
	case COUNT_SRV_IWEIGHT:
		*ret = atomic_load_explicit(&s->iweight, memory_order_relaxed);
		return 0;
	case COUNT_SRV_CONN_FREE:
		*ret = atomic_load_explicit(&s->maxconn, memory_order_relaxed);
		if (*ret)
			*ret -= atomic_load_explicit(&s->cur, memory_order_relaxed);
		else
			*ret = -1; /* without a limit there is no number of free places */
		return 0;
	case COUNT_SRV_SESS_RATE:
		*ret = (int64_t)server_session_rate(s, a->w->o.n_workers, loop_now(a->w->loop));
		return 0;
	default:
		return -ENOENT;
	}
}

static int64_t count_rate(const struct count_asker *a, const struct lb_backend *be, enum lb_rate r)
{
	return (int64_t)lb_backend_rate(be, r, loop_now(a->w->loop));
}

static int count_ask(const struct count_asker *a, enum subject_count c, struct str name,
		     int64_t *ret)
{
	const struct lb_backend *fe;
	struct count_target t;

	if (c == COUNT_FE_EXISTS) {
		*ret = conf_find_proxy(a->snap->conf, name, CONF_CAP_FRONTEND) != NULL;
		return 0;
	}
	if (!count_find(a, c, name, &t))
		return -ENOENT;
	fe = name.len ? t.be : a->fe_rt;
	switch (c) {
	case COUNT_FE_CONN:
	case COUNT_DST_CONN:
		*ret = atomic_load_explicit(&fe->fe_cur, memory_order_relaxed);
		return 0;
	case COUNT_FE_REQ_RATE:
		*ret = count_rate(a, fe, LB_RATE_FE_REQUESTS);
		return 0;
	case COUNT_FE_SESS_RATE:
		*ret = count_rate(a, fe, LB_RATE_FE_SESSIONS);
		return 0;
	case COUNT_BE_SESS_RATE:
		*ret = count_rate(a, t.be, LB_RATE_BE_SESSIONS);
		return 0;
	case COUNT_BE_CONN:
		*ret = atomic_load_explicit(&t.be->cur, memory_order_relaxed);
		return 0;
	case COUNT_NBSRV:
		*ret = count_usable(t.be);
		return 0;
	case COUNT_ACT_CONN:
		*ret = atomic_load_explicit(&a->w->o.shared->cur_conns, memory_order_relaxed);
		return 0;
	case COUNT_STOPPING:
		*ret = atomic_load_explicit(&a->w->o.shared->is_stopping, memory_order_relaxed);
		return 0;
	case COUNT_QUEUE:
	case COUNT_AVG_QUEUE:
		*ret = count_servers(&t, COUNT_QUEUE) +
		       atomic_load_explicit(&t.be->n_waiting, memory_order_relaxed);
		if (c == COUNT_AVG_QUEUE && count_usable(t.be))
			*ret = (*ret + count_usable(t.be) - 1) / count_usable(t.be);
		return 0;
	case COUNT_CONNSLOTS:
	case COUNT_BE_CONN_FREE:
	case COUNT_BE_WEIGHT:
		*ret = count_servers(&t, c);
		return 0;
	default:
		return t.srv ? count_server(a, t.srv, c, ret) : -ENOENT;
	}
}

static int ask_count(const struct subject *s, enum subject_count c, struct str name, int64_t *ret)
{
	const struct stream *st = s->owner;
	struct count_asker a = { .w = st->w,
				 .snap = st->snap,
				 .px = st->be ? st->be : st->fe,
				 .fe_rt = st->fe_rt,
				 .srv = st->srv };

	return count_ask(&a, c, name, ret);
}

static int ask_count_client(const struct subject *s, enum subject_count c, struct str name,
			    int64_t *ret)
{
	const struct client *cl = s->owner;
	struct count_asker a = { .w = cl->w, .snap = cl->snap, .px = cl->fe, .fe_rt = cl->fe_rt };

	return count_ask(&a, c, name, ret);
}

/* Of the address that packets come from; behind a proxy that is not the client's. */
static int ask_kernel(const struct subject *s, struct worker *w, enum kernel_fact f, int64_t *ret)
{
	static const enum source_fact facts[] = { [KERNEL_CONNS] = SOURCE_CONNS,
						  [KERNEL_SYN_RATE] = SOURCE_SYN_RATE,
						  [KERNEL_DROPPED] = SOURCE_DROPPED };
	if (!s->front.src || s->front.has_proxy_header)
		return -ENOENT;
	return source_ask(&w->o.shared->sources, s->front.src, loop_now(w->loop), facts[f], ret);
}

static int ask_kernel_stream(const struct subject *s, enum kernel_fact f, int64_t *ret)
{
	return ask_kernel(s, ((const struct stream *)s->owner)->w, f, ret);
}

static int ask_kernel_client(const struct subject *s, enum kernel_fact f, int64_t *ret)
{
	return ask_kernel(s, ((const struct client *)s->owner)->w, f, ret);
}

static const struct subject_ops stream_ops = { .tls = ask_tls,
					       .count = ask_count,
					       .table = track_ask_stream,
					       .tcp = ask_tcp,
					       .body = ask_body,
					       .fact = facts_of_stream,
					       .proxy_tlv = facts_stream_tlv,
					       .capture = facts_capture,
					       .kernel = ask_kernel_stream };
static const struct subject_ops client_ops = { .tls = ask_tls,
					       .count = ask_count_client,
					       .table = track_ask_client,
					       .tcp = ask_tcp,
					       .fact = facts_of_client,
					       .proxy_tlv = facts_client_tlv,
					       .kernel = ask_kernel_client };

/* --- filling ------------------------------------------------------------------------------------------ */

static void fill_conn(struct subject_conn *sc, struct conn *c, uint8_t http_major)
{
	*sc = (struct subject_conn){ 0 };
	if (!c)
		return;
	sc->src = c->is_server_side ? &c->peer : conn_local_addr(c);
	sc->dst = c->is_server_side ? &c->local : &c->peer;
	sc->is_tls = conn_is_tls(c);
	sc->has_proxy_header = c->is_server_side && c->bind && c->bind->accept_proxy;
	sc->http_major = http_major;
	sc->err = c->error;
	sc->err_text = c->error ? conn_error_text(c->error) : NULL;
	sc->handle = c;
}

static void fill_client(const struct client *cl, struct subject *s)
{
	const struct conf_bind *b = cl->pb->conf;

	s->wall_ns = loop_wall(cl->w->loop);
	s->frontend_name = str_from_cstr(cl->fe->name);
	s->frontend_id = cl->fe->id;
	s->listener_name = str_from_cstr(b->name);
	s->listener_id = b->id;
	s->is_first_request = cl->n_requests == 0;
	s->is_stopping = atomic_load_explicit(&cl->w->o.shared->is_stopping, memory_order_relaxed);
	s->thread_id = (uint16_t)cl->w->o.index;
	s->start_wall_ns = cl->w->o.shared->start_wall_ns;
}

void subject_of_client(struct client *cl, struct arena *arena, struct subject *ret_subject)
{
	*ret_subject = (struct subject){ .arena = arena, .ops = &client_ops, .owner = cl };
	ret_subject->sess_arena = &client_session(cl)->arena;
	ret_subject->vars[VAR_SESS] = client_session(cl)->vars;
	fill_conn(&ret_subject->front, cl->conn, 0);
	fill_client(cl, ret_subject);
}

static void fill_log_for_captures(struct stream *st)
{
	struct subject_log *l = st->log;

	if (!l) {
		l = arena_zalloc(&st->arena, sizeof(*l));
		if (!l)
			return;
		st->log = l;
	}
	l->req_captures = st->req_captures;
	l->rsp_captures = st->rsp_captures;
	l->n_req_captures = st->req_captures ? st->fe->n_req_captures : 0;
	l->n_rsp_captures = st->rsp_captures ? st->fe->n_rsp_captures : 0;
	l->unique_id = st->unique_id;
	st->subject.log = l;
}

const struct subject *stream_subject(struct stream *st)
{
	struct subject *s = &st->subject;
	uint8_t major = st->flags & STREAM_REQ_PARSED ? st->req.major : 0;

	if (!(st->flags & STREAM_HAS_SUBJECT)) {
		*s = (struct subject){ .arena = &st->arena, .ops = &stream_ops, .owner = st };
		s->sess_arena = &client_session(st->cl)->arena;
		s->vars[VAR_SESS] = client_session(st->cl)->vars;
		fill_conn(&s->front, st->front.conn, major);
		fill_client(st->cl, s);
		st->flags |= STREAM_HAS_SUBJECT;
	}
	s->wall_ns = loop_wall(st->w->loop);
	s->req = st->flags & STREAM_REQ_PARSED ? &st->req : NULL;
	s->rsp = st->flags & STREAM_ANSWERS	 ? st->local.msg
		 : st->flags & STREAM_RSP_PARSED ? &st->rsp
						 : NULL;
	s->front.http_major = major;
	if (st->src.sa.sa_family)
		s->src = &st->src;
	if (st->dst.sa.sa_family)
		s->dst = &st->dst;
	s->prio_class = st->q.prio_class;
	s->prio_offset = st->q.prio_offset;
	s->payload = STR_NULL;
	if (st->front.in.mem && st->front.in_body) {
		struct window *w = &st->front.in;

		s->payload = str_make(w->mem + w->base, w->tail - w->base);
		s->is_payload_final = st->flags & STREAM_PAYLOAD_FINAL;
		if (st->flags & STREAM_REQ_PARSED)
			s->is_payload_final = true;
	}
	if (unlikely(st->flags & STREAM_INSPECTS_RSP)) {
		struct window *w = &st->back.in;

		s->payload = w->mem ? str_make(w->mem + w->base, w->tail - w->base) : STR_NULL;
		s->is_payload_final = st->flags & STREAM_RSP_FINAL;
	}
	if (st->back.conn && s->back.handle != st->back.conn)
		fill_conn(&s->back, st->back.conn,
			  st->flags & STREAM_RSP_PARSED ? st->rsp.major : 0);
	if (st->be && s->backend_name.p != st->be->name) {
		s->backend_name = str_from_cstr(st->be->name);
		s->backend_id = st->be->id;
	}
	if (st->srv && s->server_name.p != st->srv->name) {
		s->server_name = str_from_cstr(st->srv->name);
		s->server_id = st->srv->id;
	}
	if (st->req_captures || st->rsp_captures || st->unique_id.p)
		fill_log_for_captures(st);
	return s;
}
