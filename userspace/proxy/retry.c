/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Getting a connection to the chosen server, and what happens when that fails: again on the same
 * server after a pause, on another one (redispatch), or 503. Also the one retry after a kept
 * connection turned out to be dead: the server closed it while it was idle, which is nobody's fault.
 */
#include <errno.h>

#include "proxy/dial_plan.h"
#include "proxy/h2_link.h"
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

void stream_attach_conn(struct stream *st, struct conn *c)
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
	if (st->flags & (STREAM_IS_TCP | STREAM_RESENT) || dial_is_http1_only(st) || !st->srv_conf)
		return false;
	if (st->be->http_reuse == REUSE_ALWAYS || st->be->http_reuse == REUSE_NEVER)
		return true;
	return is_idempotent(&st->req) || st->cl->n_requests > 0;
}

/* --- a connection ------------------------------------------------------------------------------------- */

static struct conn *take_idle(struct stream *st, uint64_t key)
{
	struct client *cl = st->cl;
	struct conn *c;

	if (st->be->http_reuse != REUSE_NEVER)
		return idle_get(st->srv, st->srv_conf, st->w->o.index, key);
	c = cl->own;
	if (!c || cl->own_srv != st->srv)
		return NULL;
	cl->own = NULL;
	/* An older one was to a server that had this place in memory before. */
	if (c->pool_key == key && conn_is_reusable(c) &&
	    c->since_ns >= atomic_load_explicit(&st->srv->addr_changed_ns, memory_order_relaxed))
		return c;
	conn_close(c, false);
	return NULL;
}

/* A connection that has carried other requests, or a place on one that does. */
static bool take_kept(struct stream *st, uint64_t key)
{
	struct conn *c;

	if (st->be->http_reuse != REUSE_NEVER && h2_link_join(st, key))
		return true;
	c = take_idle(st, key);
	if (!c)
		return false;
	if (h2_link_is(c))
		return h2_link_use(st, c);
	stream_attach_conn(st, c);
	return true;
}

static int dial(struct stream *st, struct dial_plan *p, uint64_t key)
{
	struct conn *c;
	int r;

	if (!dial_target(st, p))
		return -EHOSTUNREACH;
	ctr_add(&st->srv_ctr->connects, 1);
	ctr_add(&st->be_ctr->connects, 1);
	r = conn_dial(&st->w->net, &p->opts, &c);
	if (r)
		return r;
	c->uses = 0;
	c->pool_key = key;
	c->closes_hard = st->be->options & CONF_OPT(NOLINGER);
	stream_attach_conn(st, c);
	return 0;
}

/* A kept connection (1), or a new one that is under way (0), or -errno. */
static int get_conn(struct stream *st)
{
	bool is_simple = dial_is_plain(st), may_keep = may_reuse(st);
	struct dial_plan p;
	uint64_t key = 0;
	int r;

	if (!is_simple) {
		r = dial_plan_make(st, &p);
		if (r)
			return r;
		key = dial_key(st, &p);
	}
	/* With `ws` they may speak something else than the server's other connections. */
	if (h2_link_takes_websocket(st))
		key = str_hash(STR("websocket"), key);
	if (may_keep && take_kept(st, key)) {
		st->flags |= STREAM_SRV_REUSED;
		ctr_add(&st->srv_ctr->reuses, 1);
		ctr_add(&st->be_ctr->reuses, 1);
		return 1;
	}
	r = is_simple ? dial_plan_make(st, &p) : 0;
	if (r)
		return r;
	st->flags &= ~(uint32_t)STREAM_SRV_REUSED;
	st->deadline_ns = st->be->timeout.connect ? loop_now(st->w->loop) + st->be->timeout.connect
						  : 0;
	return dial(st, &p, key);
}

/* `redir`: the client goes there by itself. */
static enum step redirect_to_server(struct stream *st)
{
	struct str path = st->req.path;
	struct str to = arena_printf(&st->arena, "%s" STR_FMT, st->srv_conf->redir, STR_ARG(path));

	stream_release_server(st);
	stream_blame(st, 'L');
	if (!to.p)
		return stream_answer_status(st, 500);
	answer_new(st, 302);
	answer_field(st, "location", to);
	answer_field(st, "cache-control", STR("no-cache"));
	return answer_send(st);
}

static bool is_redirected(const struct stream *st)
{
	return st->srv_conf && st->srv_conf->redir && !(st->flags & STREAM_IS_TCP) &&
	       (st->req.method == HTTP_METHOD_GET || st->req.method == HTTP_METHOD_HEAD);
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
		if (unlikely(is_redirected(st)))
			return redirect_to_server(st);
		r = get_conn(st);
		if (r < 0)
			return stream_retry_connect(st);
		if (r) {
			st->conn_ns = loop_now(st->w->loop);
			return stream_go(st, PHASE_SEND);
		}
		c = st->back.conn;
	}
	r = conn_advance(c);
	if (r == -EAGAIN)
		return STEP_WAIT;
	if (r)
		return stream_retry_connect(st);
	st->conn_ns = loop_now(st->w->loop);
	stream_observe(st, OBSERVE_L4, true);
	if (st->flags & STREAM_IS_TCP) {
		if (!list_is_empty(&st->be->stick_rules))
			track_stick_store(st);
		stream_enter_tunnel(st);
		return stream_go(st, PHASE_TUNNEL);
	}
	if (h2_link_is_wanted(st) && (dial_is_http1_only(st) || h2_link_begin(st)))
		return stream_fail(st, 'R', dial_is_http1_only(st) ? 502 : 503);
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
	uint32_t done = st->retries - st->retries_left; /* this one included */
	int64_t every = be->redispatch_interval;

	if (st->flags & STREAM_FORCE_PERSIST && st->force)
		return false;

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
		every += (int64_t)st->retries + 1;
	return every > 0 ? done % (uint64_t)every == 0 : st->retries_left == 0;
}

/* Down meanwhile, and not asked for in spite of that. */
static bool is_lost(const struct stream *st)
{
	return !server_is_usable(st->srv) && !(st->force && stream_may_use_down(st));
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

static void count_retry(struct stream *st)
{
	st->retries_left--;
	st->n_retries++;
	ctr_add(&st->srv_ctr->retries, 1);
	ctr_add(&st->be_ctr->retries, 1);
}

enum step stream_retry_connect(struct stream *st)
{
	uint64_t pause = RETRY_PAUSE_NS;
	bool timed_out = st->back.conn && st->back.conn->error == CONN_ERR_TIMEOUT;

	stream_drop_server_conn(st, true);
	stream_observe(st, OBSERVE_L4, false);
	if (st->retries_left == 0 || !(st->be->retry_on & RETRY_CONN_FAILURE)) {
		ctr_add(&st->srv_ctr->conn_errors, 1);
		ctr_add(&st->be_ctr->conn_errors, 1);
		return stream_fail(st, timed_out ? 's' : 'S', 503);
	}
	count_retry(st);
	if (should_redispatch(st) || is_lost(st))
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

/* Back to where nothing had been sent; the next connection is a new one. */
static void unsend(struct stream *st)
{
	stream_drop_server_conn(st, true);
	side_fini(&st->back);
	side_init(&st->back, st, NULL);
	st->flags |= STREAM_RESENT;
	st->flags &= ~(uint32_t)STREAM_SRV_REUSED;
	st->req_flow.is_active = false;
	st->req_flow.is_done = false;
	compress_rewind(st);
	BUG_ON(!st->front.ops->rewind(&st->front));
}

enum step stream_resend(struct stream *st)
{
	unsend(st);
	return stream_go(st, PHASE_CONNECT);
}

bool stream_is_repeatable(const struct stream *st)
{
	return !(st->flags & (STREAM_IS_TCP | STREAM_UPGRADE)) && is_idempotent(&st->req) &&
	       st->req.framing == HTTP_BODY_NONE && st->retries_left &&
	       st->be->retry_on & RETRY_CONN_FAILURE;
}

/*
 * `retry-on`: only what was received as a whole, and is still here as a whole, can be sent again. An
 * answer whose head has begun to leave cannot be taken back.
 */
bool stream_may_retry(const struct stream *st, uint32_t failure)
{
	bool is_whole = st->req.framing == HTTP_BODY_NONE || st->req_flow.src_end;

	return st->be->retry_on & failure && st->retries_left && is_whole &&
	       !(st->flags & (STREAM_NO_L7_RETRY | STREAM_RSP_STARTED | STREAM_UPGRADE)) &&
	       !st->front.was_refilled && !st->front.big_mem && !st->front.conn->is_broken;
}

enum step stream_retry(struct stream *st)
{
	count_retry(st);
	unsend(st);
	st->flags &= ~(uint32_t)STREAM_RSP_PARSED;
	if (should_redispatch(st) || is_lost(st))
		return redispatch(st);
	return stream_go(st, PHASE_CONNECT);
}
