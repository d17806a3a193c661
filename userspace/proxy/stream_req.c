/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The request's way to a backend: read the head, check it, frontend rules, choice of the backend,
 * backend rules. Phases in the order of stream.h. What is wrong with a request ends here with an
 * answer; nothing has been taken from a server yet.
 */
#include <errno.h>

#include "proxy/track.h"
#include "proxy/h2_client.h"

/* Nothing came but the end, or nothing at all: no request, no stream. */
static enum step req_nothing(struct stream *st, int why)
{
	struct client *cl = st->cl;
	bool is_first = cl->n_requests == 0;

	if (why == -EAGAIN) {
		/* A spurious event. Give everything back but the timer of the connection. */
		stream_free(st);
		cl->state = CLIENT_IDLE;
		/* Adopted while the stream was waiting: idle clients have moved on already. */
		if (cl->snap != cl->w->snap)
			client_rebind(cl);
		return STEP_GONE;
	}
	st->flags |= STREAM_NO_LOG;
	if (is_first && !(cl->fe->options & CONF_OPT(DONTLOGNULL))) {
		st->flags &= ~(uint32_t)STREAM_NO_LOG;
		stream_blame(st, 'C');
	}
	return stream_go(st, PHASE_END);
}

enum step stream_refuse_request(struct stream *st)
{
	unsigned status = http_error_status((enum http_error)st->front.head.error);

	STREAM_COUNT(st, req_errors, 1);
	st->term[0] = 'P';
	st->term[1] = 'R';
	return stream_answer_status(st, status ? status : 400);
}

static enum step req_incomplete(struct stream *st, int r)
{
	if (r == -EAGAIN && st->front.in.tail == 0)
		return req_nothing(st, r);
	if (r == -EAGAIN) {
		st->front.conn->doing = "reading the request";
		return head_part_keep(st) ? STEP_GONE : STEP_WAIT;
	}
	if (st->front.in.tail == 0 && r != -ENOMEM && r != -EBADMSG)
		return req_nothing(st, r);
	if (r == -EBADMSG && h2_client_is_preface(st))
		return h2_client_take_over(st);
	if (r == -EBADMSG) {
		invalid_note(&st->front);
		return stream_refuse_request(st);
	}
	if (r == -ENOMEM)
		return stream_fail(st, 'R', 503);
	STREAM_COUNT(st, req_errors, 1);
	stream_blame(st, 'C');
	return stream_answer_status(st, 400);
}

static void req_note_captures(struct stream *st)
{
	struct list *pos;

	if (st->fe->n_req_captures) {
		st->req_captures = arena_zalloc(&st->arena,
						st->fe->n_req_captures * sizeof(struct str));
		if (!st->req_captures)
			return;
	}
	list_for_each(pos, &st->fe->captures) {
		struct conf_capture *c = list_entry(pos, struct conf_capture, link);
		struct http_field *f;

		if (c->is_response || !c->name)
			continue;
		f = http_msg_find_name(&st->req, str_from_cstr(c->name), 0);
		if (f)
			st->req_captures[c->index] = arena_str(&st->arena,
							       str_sub(f->value, 0, c->len));
	}
}

/* option http-buffer-request: the rules of a section that has it see the body. */
static enum step req_go_rules(struct stream *st, const struct conf_proxy *px,
			      enum stream_phase rules)
{
	if (likely(!(px->options & CONF_OPT(HTTP_BUFFER_REQUEST))))
		return stream_go(st, rules);
	st->after_body = (uint8_t)rules;
	return stream_go(st, PHASE_WAIT_BODY);
}

enum step phase_req_head(struct stream *st)
{
	struct side *front = &st->front;
	int r;

	if (st->fe->options & CONF_OPT(ACCEPT_UNSAFE_REQUEST))
		front->head.flags = H1_ALLOW_VIOLATIONS;
	r = front->ops->read_head(front, &st->req);
	if (r <= 0)
		return req_incomplete(st, r);
	st->flags |= STREAM_REQ_PARSED;
	st->req_ns = loop_now(st->w->loop);
	ctr_add(&st->fe_ctr->requests, 1);
	ctr_add(&st->w->ctr->requests, 1);
	track_request(st);
	front->conn->doing = "request";
	if ((st->req.flags & HTTP_MSG_KEEP_ALIVE) && !(st->fe->options & CONF_OPT(HTTPCLOSE)) &&
	    !atomic_load_explicit(&st->w->o.shared->is_stopping, memory_order_relaxed) &&
	    !st->w->is_draining)
		st->flags |= STREAM_CLIENT_KEEP;
	if (st->req.flags & HTTP_MSG_UPGRADE)
		st->flags |= STREAM_UPGRADE;
	front->ops->start_body(front, &st->req);
	return req_go_rules(st, st->fe, PHASE_FE_RULES);
}

/* --- frontend --------------------------------------------------------------------------------------- */

static bool req_is_monitor(const struct stream *st)
{
	return st->fe->monitor_uri && str_is_eq(st->req.path, str_from_cstr(st->fe->monitor_uri));
}

static enum step req_monitor(struct stream *st)
{
	struct list *pos;

	st->flags |= STREAM_NO_LOG;
	st->term[0] = 'L';
	st->term[1] = 'R';
	list_for_each(pos, &st->fe->monitor_fail) {
		struct conf_rule *r = list_entry(pos, struct conf_rule, link);

		if (cond_eval(r->cond, stream_subject(st)) > 0)
			return stream_answer_status(st, 503);
	}
	return stream_answer_status(st, 200);
}

/*
 * Max-Forwards (RFC 9110 7.6.2): TRACE and OPTIONS go so many hops further; with none left they are answered
 * here. A value that is no number means nothing to us and is passed on. True: *ret_step is what follows.
 */
static bool req_last_hop(struct stream *st, enum step *ret_step)
{
	const struct http_field *f = http_msg_find(&st->req, HTTP_FIELD_MAX_FORWARDS, 0);
	bool is_options = st->req.method == HTTP_METHOD_OPTIONS;
	struct str left;
	uint64_t hops;

	if ((!is_options && st->req.method != HTTP_METHOD_TRACE) || !f ||
	    str_to_u64(f->value, &hops))
		return false;
	if (hops) {
		left = arena_printf(&st->arena, "%llu", (unsigned long long)hops - 1);
		if (left.p && !http_msg_set(&st->req, STR("Max-Forwards"), left))
			return false;
		*ret_step = stream_fail(st, 'R', 500);
		return true;
	}
	st->term[0] = 'L';
	st->term[1] = 'R';
	/* TRACE would show what rules have added for the servers' eyes. */
	if (!is_options)
		answer_of_status(st, 405);
	else
		answer_new(st, 200);
	answer_field(st, "allow", STR("GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS, CONNECT"));
	*ret_step = answer_send(st);
	return true;
}

/* option http-restrict-req-hdr-names. False: the request is refused. */
static bool req_restrict_names(struct stream *st, const struct conf_proxy *px)
{
	for (unsigned i = 0; i < st->req.n_fields; i++) {
		struct http_field *f = &st->req.fields[i];
		bool is_plain = true;

		if (f->is_removed || f->id != HTTP_FIELD_OTHER)
			continue;
		for (size_t k = 0; k < f->name.len; k++) {
			char c = str_lower_char(f->name.p[k]);

			is_plain &= (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
		}
		if (is_plain)
			continue;
		if (px->restrict_names == RESTRICT_REJECT)
			return false;
		http_msg_del_field(&st->req, f);
	}
	return true;
}

static enum step req_rules(struct stream *st, const struct conf_proxy *px, enum stream_phase next)
{
	static const enum conf_ruleset sets[] = { RULES_TCP_CONTENT, RULES_HTTP_REQUEST };
	enum step step = STEP_WAIT;

	if (unlikely(px->restrict_names) && !req_restrict_names(st, px)) {
		STREAM_COUNT(st, req_errors, 1);
		stream_blame(st, 'P');
		return stream_answer_status(st, 403);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(sets); i++) {
		enum rule_verdict v;

		if (list_is_empty(&px->rules[sets[i]]))
			continue;
		v = sets[i] == RULES_TCP_CONTENT ? rules_run_tcp(st, px, sets[i], &step)
						 : rules_run_http(st, px, sets[i], &step);
		if (v == RULE_STEP)
			return step;
		if (v == RULE_WAIT)
			return STEP_WAIT;
		/* The whole head is here: what it does not decide, nothing will. */
	}
	/* Behind the rules, so that they guard the page too. */
	if (unlikely(px->stats.is_enabled) && service_is_stats(st, px))
		return service_start_stats(st, px);
	return stream_go(st, next);
}

enum step phase_fe_rules(struct stream *st)
{
	enum step s;

	/* A rule has waited: what follows was done before the rules. */
	if (unlikely(st->rule))
		return req_rules(st, st->fe, PHASE_ROUTE);
	if (st->fe->n_req_captures)
		req_note_captures(st);
	if (st->fe->capture_cookie || st->fe->unique_id_format)
		stream_subject(st);
	if (unlikely(req_is_monitor(st)))
		return req_monitor(st);
	if (unlikely(http_msg_has(&st->req, HTTP_FIELD_MAX_FORWARDS)) && req_last_hop(st, &s))
		return s;
	return req_rules(st, st->fe, PHASE_ROUTE);
}

/* --- route ------------------------------------------------------------------------------------------ */

static const struct conf_proxy *route_dynamic(struct stream *st, const struct conf_use_backend *u)
{
	struct str name = logfmt_eval_str(u->name, stream_subject(st));

	/* An unknown name is as if the rule did not match (as HAProxy). */
	return name.p ? conf_find_proxy(st->snap->conf, name, CONF_CAP_BACKEND) : NULL;
}

static const struct conf_proxy *route_find(struct stream *st)
{
	const struct subject *subject = NULL;
	struct list *pos;

	if (!list_is_empty(&st->fe->use_backends))
		subject = stream_subject(st);
	list_for_each(pos, &st->fe->use_backends) {
		struct conf_use_backend *u = list_entry(pos, struct conf_use_backend, link);
		const struct conf_proxy *be;

		if (u->cond && cond_eval(u->cond, subject) <= 0)
			continue;
		be = u->name ? route_dynamic(st, u) : u->backend;
		if (be)
			return be;
	}
	if (st->fe->default_backend)
		return st->fe->default_backend;
	return st->fe->caps & CONF_CAP_BACKEND ? st->fe : NULL;
}

enum step phase_route(struct stream *st)
{
	unsigned worker = st->w->o.index;

	st->be = route_find(st);
	if (!st->be || st->be->is_disabled) {
		st->be = NULL;
		return stream_fail(st, 'S', 503);
	}
	st->be_rt = st->snap->backends[st->be->index];
	st->be_ctr = &st->be_rt->stats.rows[worker];
	st->flags |= STREAM_IN_BACKEND;
	atomic_fetch_add_explicit(&st->be_rt->cur, 1, memory_order_relaxed);
	gauge_add(&st->be_ctr->cur_sessions, 1);
	ctr_max(&st->be_ctr->max_sessions, (uint64_t)st->be_ctr->cur_sessions);
	ctr_add(&st->be_ctr->sessions, 1);
	__atomic_store_n(&st->be_ctr->last_session_s, st->start_wall / 1000000000u,
			 __ATOMIC_RELAXED);
	if (!st->has_retries)
		st->retries = st->be->retries;
	st->retries_left = st->retries;
	if (!st->timeout_server_ns)
		st->timeout_server_ns = st->be->timeout.server;
	if (!st->timeout_tunnel_ns)
		st->timeout_tunnel_ns = st->be->timeout.tunnel;
	if (unlikely(!list_is_empty(&st->be->persist_rules)))
		persist_rules_run(st);
	if (st->flags & STREAM_IS_TCP)
		return stream_go(st, PHASE_BE_CONTENT);
	ctr_add(&st->be_ctr->requests, 1);
	return st->be == st->fe ? stream_go(st, PHASE_BE_RULES)
				: req_go_rules(st, st->be, PHASE_BE_RULES);
}

/* --- backend ---------------------------------------------------------------------------------------- */

static int req_add_unique_id(struct stream *st)
{
	if (!st->fe->unique_id_format)
		return 0;
	if (!st->unique_id.p)
		st->unique_id = logfmt_eval_str(st->fe->unique_id_format, stream_subject(st));
	if (!st->unique_id.p)
		return -ENOMEM;
	if (!st->fe->unique_id_header)
		return 0;
	return http_msg_add(&st->req, str_from_cstr(st->fe->unique_id_header), st->unique_id);
}

/* What every request gets before it leaves, after all rules. */
static int req_finish_head(struct stream *st)
{
	int r = 0;

	if (http_msg_has(&st->req, HTTP_FIELD_CONNECTION) ||
	    http_msg_has(&st->req, HTTP_FIELD_TE) || http_msg_has(&st->req, HTTP_FIELD_UPGRADE) ||
	    http_msg_has(&st->req, HTTP_FIELD_KEEP_ALIVE) ||
	    http_msg_has(&st->req, HTTP_FIELD_PROXY_CONNECTION))
		http_msg_strip_hop_by_hop(&st->req, st->flags & STREAM_UPGRADE);
	if (st->be->options & CONF_OPT(DROP_REQUEST_TRAILERS))
		st->req.flags |= HTTP_MSG_NO_TRAILERS;
	if ((st->fe->options | st->be->options) & FORWARD_OPTIONS)
		r = forward_headers(st);
	return r ? r : req_add_unique_id(st);
}

enum step phase_be_rules(struct stream *st)
{
	if (st->be != st->fe) {
		enum step s = req_rules(st, st->be, PHASE_BE_RULES);

		if (s != STEP_GO || st->phase != PHASE_BE_RULES)
			return s;
	}
	if (st->be->cookie.name && !(st->flags & STREAM_IGNORE_PERSIST))
		cookie_read_request(st);
	if (unlikely(stream_compresses(st)))
		compress_request(st);
	if (req_finish_head(st)) {
		STREAM_COUNT(st, failed_rewrites, 1);
		return stream_fail(st, 'R', 500);
	}
	if (unlikely(st->be->balance.check_post) && pick_needs_body(st)) {
		st->after_body = PHASE_PICK;
		return stream_go(st, PHASE_WAIT_BODY);
	}
	return stream_go(st, PHASE_PICK);
}

enum step phase_tarpit(struct stream *st)
{
	const struct conf_rule *r = st->rule;

	if (st->front.conn->is_broken || st->front.conn->peer_closed)
		return stream_fail(st, 'C', 0);
	if (loop_now(st->w->loop) < st->deadline_ns)
		return STEP_WAIT;
	st->term[0] = 'P';
	st->term[1] = 'T';
	if (r && r->reply)
		return stream_answer_reply(st, r->reply, 500);
	return stream_answer_status(st, 500);
}
