/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stream and its server: choosing one, waiting in its queue, taking an idle connection or dialling, giving
 * everything back. A slot of a server (STREAM_HAS_SLOT) is held from the choice to the release, over
 * retries on the same server.
 */
#include <errno.h>

#include "proxy/h2_link.h"
#include "proxy/track.h"
#include "proxy/worker_priv.h"

/* --- choosing --------------------------------------------------------------------------------------- */

struct server *server_named(struct lb_backend *be, const struct conf_proxy *px, struct str name)
{
	const struct conf_server *cs = conf_find_server(px, name);
	struct server *s = cs ? lb_server_of(be, cs) : NULL;
	unsigned pos = 0;

	for (; !s && (s = lb_added_server(be, &pos)); pos++)
		if (!str_is_eq(str_from_cstr(s->name), name))
			s = NULL;
	return s;
}

/* use-server rules: a server of this backend, whatever the algorithm says. */
static struct server *pick_use_server(struct stream *st)
{
	struct list *pos;

	list_for_each(pos, &st->be->use_servers) {
		struct conf_use_server *u = list_entry(pos, struct conf_use_server, link);
		const struct conf_server *cs = u->server;
		struct server *s;

		if (u->cond && cond_eval(u->cond, stream_subject(st)) <= 0)
			continue;
		if (u->name) {
			struct str name = logfmt_eval_str(u->name, stream_subject(st));

			if (name.p && (s = server_named(st->be_rt, st->be, name)))
				return s;
			continue;
		}
		if (cs)
			return lb_server_of(st->be_rt, cs);
	}
	return NULL;
}

/*
 * persist rdp-cookie: "3640205228.15629.0000", address and port as a little-endian host reads what is in network
 * order ([MS-RDPBCGR] 3.2.5.3.1, routing tokens). A server that is not of this backend, or down: as without.
 */
static struct server *pick_rdp(struct stream *st)
{
	struct str text = expr_eval_str(st->be->rdp_cookie, stream_subject(st));
	struct str ip = str_cut(&text, '.'), port = str_cut(&text, '.');
	struct server *s;
	uint64_t a, p;

	if (str_to_u64(ip, &a) || a > UINT32_MAX || str_to_u64(port, &p) || p > UINT16_MAX)
		return NULL;
	for (unsigned pos = 0; (s = lb_server_at(st->be_rt, pos)); pos++) {
		struct addr at;

		if (!server_is_usable(s))
			continue;
		server_get_addr(s, &at);
		if (at.sa.sa_family == AF_INET && le32toh(at.in.sin_addr.s_addr) == a &&
		    le16toh(at.in.sin_port) == p) {
			st->flags |= STREAM_ASSIGNED;
			return s;
		}
	}
	return NULL;
}

/* The value of parameter `name`; p NULL: it is not there. */
static struct str find_param(struct str params, struct str name)
{
	while (params.p) {
		struct str item = str_cut(&params, '&');

		if (str_is_prefix(item, name) && item.len > name.len && item.p[name.len] == '=')
			return str_from(item, name.len + 1);
	}
	return STR_NULL;
}

static struct str url_param(const struct stream *st)
{
	struct str query = str_from(st->req.path, str_find_char(st->req.path, '?'));

	return find_param(str_from(query, 1), str_from_cstr(st->be->balance.name));
}

bool pick_needs_body(const struct stream *st)
{
	return st->req.method == HTTP_METHOD_POST && !url_param(st).p;
}

static bool is_token_char(char c)
{
	char l = str_lower_char(c);

	return (l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* check_post: a body that is no form has no parameters. */
static struct str body_param(struct stream *st)
{
	struct str v = find_param(st->front.ops->peek_body(&st->front),
				  str_from_cstr(st->be->balance.name));

	return v.len && !is_token_char(v.p[0]) ? STR_NULL : v;
}

/* What the algorithm hashes. */
static void pick_key(struct stream *st, struct lb_request *rq)
{
	const struct conf_balance_params *b = &st->be->balance;
	struct sample key;

	switch ((enum conf_balance)b->algo) {
	case BALANCE_URI:
		rq->uri = b->uri_whole ? st->req.target : st->req.path;
		break;
	case BALANCE_HDR: {
		struct http_field *f = http_msg_find_name(&st->req, str_from_cstr(b->name), 0);

		rq->hdr = f ? f->value : STR_NULL;
		break;
	}
	case BALANCE_URL_PARAM:
		key.str = url_param(st);
		if (!key.str.p && b->check_post && st->req.method == HTTP_METHOD_POST)
			key.str = body_param(st);
		if (!key.str.p)
			break;
		rq->hash = lb_hash_key((enum conf_hash_func)b->hash_func, b->has_avalanche,
				       key.str);
		rq->has_hash = true;
		break;
	case BALANCE_HASH:
	case BALANCE_RDP_COOKIE:
		if (!b->hash_expr || expr_eval(b->hash_expr, stream_subject(st), &key) ||
		    sample_cast(&key, SAMPLE_BIN, &st->arena))
			break;
		rq->hash = lb_hash_key((enum conf_hash_func)b->hash_func, b->has_avalanche,
				       key.str);
		rq->has_hash = true;
		break;
	default:
		break;
	}
}

/* A server outlives configurations, so what a stream's one says about it is looked up by name: once per worker. */
static const struct conf_server *server_conf(const struct stream *st, const struct server *srv,
					     struct server_worker *sw)
{
	uint64_t generation = st->snap->snap.generation;

	if (unlikely(srv->own))
		return srv->own->line;
	if (unlikely(sw->conf_generation != generation)) {
		sw->conf = conf_find_server(st->be, str_from_cstr(srv->name));
		sw->conf_generation = generation;
	}
	return sw->conf;
}

static void stream_take_server(struct stream *st, struct server *srv)
{
	struct server_worker *sw = &srv->w[st->w->o.index];

	st->srv = srv;
	st->srv_conf = server_conf(st, srv, sw);
	st->srv_ctr = sw->ctr;
	st->flags |= STREAM_HAS_SLOT;
	list_push_back(&sw->streams, &st->srv_link);
	ctr_add(&st->srv_ctr->sessions, 1);
	gauge_add(&st->srv_ctr->cur_sessions, 1);
	ctr_max(&st->srv_ctr->max_sessions, (uint64_t)st->srv_ctr->cur_sessions);
	__atomic_store_n(&st->srv_ctr->last_session_s, loop_wall(st->w->loop) / 1000000000u,
			 __ATOMIC_RELAXED);
	if (!(st->flags & STREAM_IS_TCP))
		ctr_add(&st->srv_ctr->requests, 1);
}

/* The server of the connection's last request, where the algorithm is free to take it. */
static struct server *pick_last(const struct stream *st)
{
	const struct client *cl = client_session(st->cl);
	struct server *s = cl->last_snap == st->snap ? cl->last_srv : NULL;
	uint32_t max;

	switch ((enum conf_balance)st->be->balance.algo) {
	case BALANCE_ROUNDROBIN:
	case BALANCE_STATIC_RR:
	case BALANCE_LEASTCONN:
	case BALANCE_FIRST:
	case BALANCE_RANDOM:
	case BALANCE_PEAK_EWMA:
		break;
	default:
		return NULL;
	}
	if (!s || s == st->avoid || !lb_has_server(st->be_rt, s) || s->be != st->be_rt ||
	    !server_is_usable(s))
		return NULL;
	/* max-keep-alive-queue: how long a queue this is worth; none said, any. */
	max = atomic_load_explicit(&s->maxconn, memory_order_relaxed);
	if (!st->be->has_max_ka_queue || !max ||
	    atomic_load_explicit(&s->cur, memory_order_relaxed) < max)
		return s;
	return atomic_load_explicit(&s->n_waiting, memory_order_relaxed) < st->be->max_ka_queue
		       ? s
		       : NULL;
}

static enum step pick_queue(struct stream *st, struct server *srv)
{
	unsigned worker = st->w->o.index;
	uint64_t timeout = st->be->timeout.queue ? st->be->timeout.queue : st->be->timeout.connect;

	st->q.since_ns = loop_now(st->w->loop);
	st->q.on_turn = stream_on_turn;
	st->deadline_ns = timeout ? st->q.since_ns + timeout : 0;
	lb_enqueue(&st->q, st->be_rt, srv, worker);
	list_push_back(&st->w->queued, &st->queue_link);
	st->phase = PHASE_QUEUE;
	return STEP_WAIT;
}

enum step phase_pick(struct stream *st)
{
	struct lb_request rq = {
		.worker = st->w->o.index,
		.px = st->be,
		.src = st->src.sa.sa_family ? &st->src : &st->front.conn->peer,
		.avoid = st->avoid,
		.force = st->force,
		.may_be_down = stream_may_use_down(st),
	};
	struct server *srv = NULL;
	uint64_t now = loop_now(st->w->loop);

	if (!st->req_ns)
		st->req_ns = now;
	if (stream_is_client_gone(st))
		return stream_fail(st, 'C', 0);
	if (!rq.force && !list_is_empty(&st->be->use_servers) && !st->avoid)
		rq.force = pick_use_server(st);
	if (unlikely(!list_is_empty(&st->be->stick_rules)))
		rq.force = track_stick_pick(st, rq.force);
	if (!rq.force && !st->avoid && unlikely(st->be->rdp_cookie))
		rq.force = pick_rdp(st);
	if (!rq.force && unlikely(st->be->options & CONF_OPT(PREFER_LAST_SERVER)))
		rq.force = pick_last(st);
	pick_key(st, &rq);
	switch (lb_pick(st->be_rt, &rq, &srv)) {
	case LB_PICKED:
		stream_take_server(st, srv);
		st->queue_ns = now;
		return stream_go(st, PHASE_CONNECT);
	case LB_QUEUE_SERVER:
		return pick_queue(st, srv);
	case LB_QUEUE_BACKEND:
		return pick_queue(st, NULL);
	case LB_NONE:
		break;
	}
	return stream_fail(st, 'S', 503);
}

/* --- waiting ---------------------------------------------------------------------------------------- */

void stream_on_turn(struct queue_entry *q, struct server *srv)
{
	struct stream *st = container_of(q, struct stream, q);

	list_del(&st->queue_link);
	stream_take_server(st, srv);
	st->queue_ns = loop_now(st->w->loop);
	st->phase = PHASE_CONNECT;
	/* Not now: another stream, which gives its slot up, is on the stack. */
	stream_resume_later(st);
}

/* In vain: the log tells how long it waited. */
void stream_leave_queue(struct stream *st)
{
	lb_dequeue(&st->q, st->w->o.index);
	list_del(&st->queue_link);
	st->queue_ns = loop_now(st->w->loop);
}

enum step phase_queue(struct stream *st)
{
	if (!stream_is_client_gone(st))
		return STEP_WAIT;
	stream_leave_queue(st);
	ctr_add(&st->be_ctr->cli_aborts, 1);
	return stream_fail(st, 'C', 0);
}

/* --- giving back ------------------------------------------------------------------------------------ */

void stream_release_server(struct stream *st)
{
	struct server *srv = st->srv;

	if (!(st->flags & STREAM_HAS_SLOT))
		return;
	st->flags &= ~(uint32_t)STREAM_HAS_SLOT;
	list_del(&st->srv_link);
	gauge_add(&st->srv_ctr->cur_sessions, -1);
	/* May call on_turn() of other streams, which only queue themselves. */
	server_release(st->be_rt, srv, st->w->o.index);
}

void stream_detach_conn(struct stream *st)
{
	struct server_worker *sw = &st->srv->w[st->w->o.index];

	st->back.conn = NULL;
	sw->n_used--;
	gauge_add(&sw->ctr->used_conns, -1);
}

void stream_drop_server_conn(struct stream *st, bool reset)
{
	struct conn *c = st->back.conn;

	if (!c)
		return;
	if (h2_is_exchange(c)) {
		h2_link_leave(st, false);
		return;
	}
	stream_detach_conn(st);
	conn_close(c, reset);
}

/* An idle server connection spoke, ended or broke: nothing it says can be an answer to anything. */
void idle_conn_event(struct conn *c)
{
	struct server *srv = c->owner;

	if (!c->can_read && !c->peer_closed && !c->is_broken)
		return;
	idle_forget(srv, c->nw->index, c);
	conn_close(c, false);
}

/* Private to one client (http-reuse never): same rule, other place. */
static void own_conn_event(struct conn *c)
{
	struct client *cl = c->owner;

	if (!c->can_read && !c->peer_closed && !c->is_broken)
		return;
	cl->own = NULL;
	conn_close(c, false);
}

static bool stream_may_keep_server_conn(const struct stream *st)
{
	const struct conn *c = st->back.conn;
	uint64_t opts = st->be->options | st->fe->options;

	if (!(st->flags & STREAM_SERVER_KEEP) || !st->srv_conf || st->term[0] != '-')
		return false;
	if (opts & (CONF_OPT(HTTP_SERVER_CLOSE) | CONF_OPT(HTTPCLOSE)))
		return false;
	if (!st->rsp_flow.is_done || !st->req_flow.is_done || !side_is_flushed(&st->back))
		return false;
	if (side_leftover(&st->back).len || c->is_broken || c->peer_closed)
		return false;
	return !st->srv_conf->max_reuse || c->uses <= st->srv_conf->max_reuse;
}

void stream_keep_server_conn(struct stream *st)
{
	struct conn *c = st->back.conn;
	struct server *srv = st->srv;

	if (h2_is_exchange(c)) {
		h2_link_leave(st, st->rsp_flow.is_done);
		return;
	}
	if (!stream_may_keep_server_conn(st) ||
	    (st->be->http_reuse == REUSE_NEVER && st->fe->keeps_no_srv_conns)) {
		stream_drop_server_conn(st, false);
		return;
	}
	stream_detach_conn(st);
	if (unlikely(st->be->options & CONF_OPT(PREFER_LAST_SERVER))) {
		client_session(st->cl)->last_snap = st->snap;
		client_session(st->cl)->last_srv = srv;
	}
	c->doing = "idle";
	if (st->be->http_reuse == REUSE_NEVER) {
		struct client *cl = st->cl;

		conn_close(cl->own, false);
		cl->own = c;
		cl->own_srv = srv;
		c->owner = cl;
		c->on_event = own_conn_event;
		return;
	}
	c->owner = srv;
	c->on_event = idle_conn_event;
	idle_put(srv, st->srv_conf, st->w->o.index, c);
}
