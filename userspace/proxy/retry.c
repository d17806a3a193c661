/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Getting a connection to the chosen server, and what happens when that fails: again on the same
 * server after a pause, on another one (redispatch), or 503. Also the one retry after a kept
 * connection turned out to be dead: the server closed it while it was idle, which is nobody's fault.
 */
#include <errno.h>

#include "proxy/track.h"
#include "proxy/worker_priv.h"

#define RETRY_PAUSE_NS 1000000000ull /* or `timeout connect`, when that is shorter */

static void back_event(struct conn *c)
{
	struct stream *st = c->owner;

	if (st->phase == PHASE_RSP_HEAD) {
		st->back.ops->prefetch(&st->back);
		stream_resume_later(st);
		return;
	}
	stream_run(st);
}

static void stream_attach_conn(struct stream *st, struct conn *c)
{
	struct server_worker *sw = &st->srv->w[st->w->o.index];

	st->back.conn = c;
	c->owner = st;
	c->on_event = back_event;
	sw->n_used++;
	gauge_add(&sw->ctr->used_conns, 1);
}

/* RFC 9110 9.2.2. */
static bool is_idempotent(const struct http_msg *req)
{
	switch ((enum http_method)req->method) {
	case HTTP_METHOD_GET:
	case HTTP_METHOD_HEAD:
	case HTTP_METHOD_PUT:
	case HTTP_METHOD_DELETE:
	case HTTP_METHOD_OPTIONS:
	case HTTP_METHOD_TRACE:
		return true;
	default:
		return false;
	}
}

/*
 * A connection that waits may be used when the request can be sent again should it turn out dead.
 * `http-reuse safe`: otherwise only for a client that has seen an answer and so knows how to retry.
 */
static bool may_reuse(const struct stream *st)
{
	if (st->flags & (STREAM_IS_TCP | STREAM_RESENT | STREAM_UPGRADE) ||
	    st->req.method == HTTP_METHOD_CONNECT || !st->srv_conf)
		return false;
	if (st->be->http_reuse == REUSE_ALWAYS || st->be->http_reuse == REUSE_NEVER)
		return true;
	return is_idempotent(&st->req) || st->cl->n_requests > 0;
}

static struct conn *take_idle(struct stream *st)
{
	struct client *cl = st->cl;
	struct conn *c;

	if (!may_reuse(st))
		return NULL;
	if (st->be->http_reuse != REUSE_NEVER)
		return idle_get(st->srv, st->srv_conf, st->w->o.index);
	c = cl->own;
	if (!c || cl->own_srv != st->srv)
		return NULL;
	cl->own = NULL;
	if (conn_is_reusable(c))
		return c;
	conn_close(c, false);
	return NULL;
}

static struct str dial_proxy_header(struct stream *st)
{
	char text[256];
	size_t n;

	if (!st->srv_conf || !st->srv_conf->send_proxy)
		return STR_NULL;
	n = proxy_header_write(st->srv_conf->send_proxy, &st->front.conn->peer,
			       conn_local_addr(st->front.conn), text);
	return arena_str(&st->arena, str_make(text, n));
}

/* Where to, apart from TLS and source. False: nothing to connect to. */
static bool dial_target(struct stream *st, struct dial_opts *o, struct addr *to)
{
	const struct conf_server *cs = st->srv_conf;

	if (cs && (cs->ep.kind == ENDPOINT_UNIX || cs->ep.kind == ENDPOINT_ABNS)) {
		o->unix_path =
			cs->ep.kind == ENDPOINT_ABNS
				? arena_printf(&st->arena, "@" STR_FMT, STR_ARG(cs->ep.path)).p
				: arena_strdup(&st->arena, cs->ep.path);
		return o->unix_path;
	}
	server_get_addr(st->srv, to);
	if (to->sa.sa_family != AF_INET && to->sa.sa_family != AF_INET6)
		return false;
	/* `server s 10.0.0.1` and `:+100`: the port the client asked for. */
	if (cs && cs->ep.port_offset_sign)
		addr_set_port(to, (uint16_t)(addr_port(conn_local_addr(st->front.conn)) +
					     cs->ep.port_offset_sign * cs->ep.port));
	else if (addr_port(to) == 0)
		addr_set_port(to, addr_port(conn_local_addr(st->front.conn)));
	o->to = to;
	return true;
}

static int dial(struct stream *st)
{
	const struct conf_proxy *be = st->be;
	struct dial_opts o = { .nodelay = true };
	struct addr to, from = be->source;
	struct conn *c;
	int r;

	memset(&to, 0, sizeof(to));
	if (!dial_target(st, &o, &to))
		return -EHOSTUNREACH;
	o.keepalive = be->options & (CONF_OPT(TCPKA) | CONF_OPT(SRVTCPKA));
	o.interface = be->source_interface;
	if (be->source_client || (be->options & CONF_OPT(TRANSPARENT))) {
		from = st->src.sa.sa_family ? st->src : st->front.conn->peer;
		if (!be->source_client_port)
			addr_set_port(&from, 0);
		o.transparent = true;
	}
	o.from = from.sa.sa_family ? &from : NULL;
	if (st->srv_conf && st->snap->tls && st->snap->tls[be->index])
		o.tls = st->srv_conf->is_ssl
				? st->snap->tls[be->index][st->srv_conf->pos_in_backend]
				: NULL;
	if (o.tls && st->srv_conf->sni)
		o.sni = expr_eval_str(st->srv_conf->sni, stream_subject(st));
	o.proxy_header = dial_proxy_header(st);
	ctr_add(&st->srv_ctr->connects, 1);
	ctr_add(&st->be_ctr->connects, 1);
	r = conn_dial(&st->w->net, &o, &c);
	if (r)
		return r;
	c->uses = 0;
	stream_attach_conn(st, c);
	return 0;
}

enum step phase_connect(struct stream *st)
{
	struct conn *c = st->back.conn;
	int r;

	if (stream_is_client_gone(st)) {
		ctr_add(&st->be_ctr->cli_aborts, 1);
		return stream_fail(st, 'C', 0);
	}
	if (!c) {
		c = take_idle(st);
		if (c) {
			stream_attach_conn(st, c);
			st->flags |= STREAM_SRV_REUSED;
			ctr_add(&st->srv_ctr->reuses, 1);
			ctr_add(&st->be_ctr->reuses, 1);
			st->conn_ns = loop_now(st->w->loop);
			return stream_go(st, PHASE_SEND);
		}
		st->flags &= ~(uint32_t)STREAM_SRV_REUSED;
		st->deadline_ns = st->be->timeout.connect
					  ? loop_now(st->w->loop) + st->be->timeout.connect
					  : 0;
		r = dial(st);
		if (r)
			return stream_retry_connect(st);
		c = st->back.conn;
	}
	r = conn_advance(c);
	if (r == -EAGAIN)
		return STEP_WAIT;
	if (r)
		return stream_retry_connect(st);
	st->conn_ns = loop_now(st->w->loop);
	if (st->flags & STREAM_IS_TCP) {
		if (!list_is_empty(&st->be->stick_rules))
			track_stick_store(st);
		stream_enter_tunnel(st);
		return stream_go(st, PHASE_TUNNEL);
	}
	return stream_go(st, PHASE_SEND);
}

/* --- again ------------------------------------------------------------------------------------------ */

/*
 * Does this failure move the stream to another server? At once where the algorithm did not care which
 * one it took; otherwise as `option redispatch [n]` says.
 */
static bool should_redispatch(const struct stream *st)
{
	const struct conf_proxy *be = st->be;
	uint32_t done = be->retries - st->retries_left; /* this one included */
	int64_t every = be->redispatch_interval;

	switch ((enum conf_balance)be->balance.algo) {
	case BALANCE_ROUNDROBIN:
	case BALANCE_STATIC_RR:
	case BALANCE_LEASTCONN:
	case BALANCE_RANDOM:
	case BALANCE_PEAK_EWMA:
		if (!(st->flags & STREAM_ASSIGNED) && !st->force &&
		    atomic_load_explicit(&st->be_rt->n_active, memory_order_relaxed) > 1)
			return true;
		break;
	default:
		break;
	}
	if (!(be->options & CONF_OPT(REDISPATCH)))
		return false;
	/* Negative: counted from the last attempt back, -1 being the last. */
	if (every < 0)
		every += (int64_t)be->retries + 1;
	return every > 0 ? done % (uint64_t)every == 0 : st->retries_left == 0;
}

static enum step redispatch(struct stream *st)
{
	st->avoid = st->srv;
	st->force = NULL;
	st->flags &= ~(uint32_t)STREAM_ASSIGNED;
	st->flags |= STREAM_REDISPATCHED;
	ctr_add(&st->srv_ctr->redispatches, 1);
	ctr_add(&st->be_ctr->redispatches, 1);
	stream_release_server(st);
	return stream_go(st, PHASE_PICK);
}

enum step stream_retry_connect(struct stream *st)
{
	uint64_t pause = RETRY_PAUSE_NS;
	bool timed_out = st->back.conn && st->back.conn->error == CONN_ERR_TIMEOUT;

	stream_drop_server_conn(st, true);
	if (st->retries_left == 0) {
		ctr_add(&st->srv_ctr->conn_errors, 1);
		ctr_add(&st->be_ctr->conn_errors, 1);
		atomic_fetch_add_explicit(&st->srv->observed_errors, 1, memory_order_relaxed);
		return stream_fail(st, timed_out ? 's' : 'S', 503);
	}
	st->retries_left--;
	st->n_retries++;
	ctr_add(&st->srv_ctr->retries, 1);
	ctr_add(&st->be_ctr->retries, 1);
	if (should_redispatch(st) || !server_is_usable(st->srv))
		return redispatch(st);
	if (timed_out)
		return stream_go(st, PHASE_CONNECT);
	/* A refusal comes at once: give the server time to restart. */
	if (st->be->timeout.connect && st->be->timeout.connect < pause)
		pause = st->be->timeout.connect;
	st->deadline_ns = loop_now(st->w->loop) + pause;
	return stream_go(st, PHASE_RETRY_WAIT);
}

enum step phase_retry_wait(struct stream *st)
{
	if (stream_is_client_gone(st)) {
		ctr_add(&st->be_ctr->cli_aborts, 1);
		return stream_fail(st, 'C', 0);
	}
	if (loop_now(st->w->loop) < st->deadline_ns)
		return STEP_WAIT;
	return stream_go(st, PHASE_CONNECT);
}

/*
 * The connection carried other requests, died, and said nothing about this one: the usual end of an
 * idle connection (RFC 9112 9.3.1). Sent again when that cannot do harm: the method is idempotent, or
 * the kernel took not a byte; and what was sent is still here.
 */
bool stream_may_resend(const struct stream *st)
{
	if (!(st->flags & STREAM_SRV_REUSED) || st->flags & STREAM_RESENT ||
	    st->flags & STREAM_RSP_STARTED || st->back.rx || st->front.was_refilled ||
	    st->front.big_mem)
		return false;
	return is_idempotent(&st->req) || st->back.tx == 0;
}

enum step stream_resend(struct stream *st)
{
	stream_drop_server_conn(st, true);
	side_fini(&st->back);
	side_init(&st->back, st, NULL);
	st->flags |= STREAM_RESENT;
	st->flags &= ~(uint32_t)STREAM_SRV_REUSED;
	st->req_flow.is_active = false;
	st->req_flow.is_done = false;
	BUG_ON(!st->front.ops->rewind(&st->front));
	return stream_go(st, PHASE_CONNECT);
}
