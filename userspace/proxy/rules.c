/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs compiled rules. One function per kind of action, found in a table; a rule list is walked in
 * order until one of them is final. Final verdicts, redirects and authentication are here; edits are in
 * rules_edit.c, rules on connections in rules_conn.c.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "proxy/bwlim.h"
#include "proxy/h2_client.h"
#include "proxy/track.h"

static enum rule_verdict wait_at(struct stream *st, const struct conf_rule *r,
				 enum conf_ruleset set)
{
	st->rule = r;
	st->rule_set = (uint8_t)set;
	return RULE_WAIT;
}

static void count_denied(struct stream *st, bool is_rsp)
{
	if (is_rsp)
		STREAM_COUNT(st, rsp_denied, 1);
	else
		STREAM_COUNT(st, req_denied, 1);
	if (st->be_ctr && st->be_ctr != st->fe_ctr)
		ctr_add(is_rsp ? &st->be_ctr->rsp_denied : &st->be_ctr->req_denied, 1);
	if (is_rsp && st->srv_ctr)
		ctr_add(&st->srv_ctr->rsp_denied, 1);
}

static enum rule_verdict rule_allow(struct stream *st, const struct conf_proxy *px,
				    const struct conf_rule *r, struct http_msg *m,
				    enum step *ret_step)
{
	return RULE_ACCEPT;
}

static enum rule_verdict rule_deny(struct stream *st, const struct conf_proxy *px,
				   const struct conf_rule *r, struct http_msg *m,
				   enum step *ret_step)
{
	bool is_rsp = m && m->flags & HTTP_MSG_RESPONSE;

	count_denied(st, is_rsp);
	stream_blame(st, 'P');
	*ret_step = r->reply ? stream_answer_reply(st, r->reply, is_rsp ? 502 : 403)
			     : stream_answer_status(st, is_rsp ? 502 : 403);
	return RULE_STEP;
}

static enum rule_verdict rule_reject(struct stream *st, const struct conf_proxy *px,
				     const struct conf_rule *r, struct http_msg *m,
				     enum step *ret_step)
{
	count_denied(st, (m && m->flags & HTTP_MSG_RESPONSE) || st->phase == PHASE_TUNNEL);
	*ret_step = stream_fail(st, 'P', 0);
	return RULE_STEP;
}

/* The server has nothing more to say to us; what it said so far goes on its way. */
static enum rule_verdict rule_close(struct stream *st, const struct conf_proxy *px,
				    const struct conf_rule *r, struct http_msg *m,
				    enum step *ret_step)
{
	st->back.is_cut = true;
	st->req_flow.is_done = true;
	st->flags &= ~(uint32_t)STREAM_SERVER_KEEP;
	return RULE_ACCEPT;
}

static enum rule_verdict rule_tarpit(struct stream *st, const struct conf_proxy *px,
				     const struct conf_rule *r, struct http_msg *m,
				     enum step *ret_step)
{
	uint64_t t = px->timeout.tarpit ? px->timeout.tarpit : px->timeout.connect;

	count_denied(st, false);
	wait_at(st, r, RULES_HTTP_REQUEST);
	st->deadline_ns = loop_now(st->w->loop) + t;
	*ret_step = stream_go(st, PHASE_TARPIT);
	return RULE_STEP;
}

/* The peer learns nothing: the reset that ends our socket dies at the first router. */
static enum rule_verdict rule_silent_drop(struct stream *st, const struct conf_proxy *px,
					  const struct conf_rule *r, struct http_msg *m,
					  enum step *ret_step)
{
	struct client *cl = client_session(st->cl); /* HTTP/2: the whole connection goes */
	const int one = 1;

	setsockopt(cl->conn->ev.fd, SOL_IP, IP_TTL, &one, sizeof(one));
	setsockopt(cl->conn->ev.fd, SOL_IPV6, IPV6_UNICAST_HOPS, &one, sizeof(one));
	count_denied(st, false);
	if (cl->mux)
		h2_client_drop(cl);
	stream_kill(st, 'P');
	*ret_step = STEP_GONE;
	return RULE_STEP;
}

/* Nothing of ours could reach the client's kernel any more, for its acknowledgements do not reach us. */
static enum rule_verdict rule_xdp_drop(struct stream *st, const struct conf_proxy *px,
				       const struct conf_rule *r, struct http_msg *m,
				       enum step *ret_step)
{
	ban_client(client_session(st->cl), r->ban);
	return rule_silent_drop(st, px, r, m, ret_step);
}

/* Like every other connection of the client, whose next packet XDP answers. */
static enum rule_verdict rule_xdp_reset(struct stream *st, const struct conf_proxy *px,
					const struct conf_rule *r, struct http_msg *m,
					enum step *ret_step)
{
	struct client *cl = client_session(st->cl);

	ban_client(cl, r->ban);
	cl->conn->closes_hard = true;
	count_denied(st, false);
	if (cl->mux)
		h2_client_drop(cl);
	stream_kill(st, 'P');
	*ret_step = STEP_GONE;
	return RULE_STEP;
}

static enum rule_verdict rule_return(struct stream *st, const struct conf_proxy *px,
				     const struct conf_rule *r, struct http_msg *m,
				     enum step *ret_step)
{
	ctr_add(&st->fe_ctr->intercepted, 1);
	stream_blame(st, 'L');
	*ret_step = r->reply ? stream_answer_reply(st, r->reply, 200)
			     : stream_answer_status(st, 200);
	return RULE_STEP;
}

/* --- redirect ------------------------------------------------------------------------------------------- */

/* The request's path with what the rule says about its query and last slash. */
static struct str redirect_path(struct stream *st, const struct conf_redirect *rd)
{
	struct str path = st->req.path, query = STR("");
	size_t q = str_find_char(path, '?');

	if (q != SIZE_MAX) {
		query = str_from(path, q);
		path = str_sub(path, 0, q);
	}
	if (rd->drop_query)
		query = STR("");
	if (rd->append_slash && (!path.len || path.p[path.len - 1] != '/'))
		return arena_printf(&st->arena, STR_FMT "/" STR_FMT, STR_ARG(path), STR_ARG(query));
	return arena_printf(&st->arena, STR_FMT STR_FMT, STR_ARG(path), STR_ARG(query));
}

static struct str redirect_location(struct stream *st, const struct conf_redirect *rd)
{
	struct str to = logfmt_eval_str(rd->to, stream_subject(st)), path;

	if (!to.p || (rd->kind == REDIRECT_LOCATION && !rd->keep_query))
		return to;
	if (rd->kind == REDIRECT_LOCATION) {
		size_t q = str_find_char(st->req.path, '?');
		bool joins = str_find_char(to, '?') != SIZE_MAX;

		if (q == SIZE_MAX || q + 1 == st->req.path.len)
			return to;
		return arena_printf(&st->arena, STR_FMT "%s" STR_FMT, STR_ARG(to),
				    joins ? "&" : "?", STR_ARG(str_from(st->req.path, q + 1)));
	}
	path = redirect_path(st, rd);
	if (!path.p)
		return path;
	if (rd->kind == REDIRECT_SCHEME) {
		struct str host = http_msg_host(&st->req);

		return arena_printf(&st->arena, STR_FMT "://" STR_FMT STR_FMT, STR_ARG(to),
				    STR_ARG(host), STR_ARG(path));
	}
	/* "prefix /" would double the slash. */
	if (str_is_eq(to, STR("/")))
		to = STR("");
	return arena_printf(&st->arena, STR_FMT STR_FMT, STR_ARG(to), STR_ARG(path));
}

static bool is_clean_value(struct str s)
{
	for (size_t i = 0; i < s.len; i++)
		if ((unsigned char)s.p[i] < ' ' && s.p[i] != '\t')
			return false;
	return true;
}

static enum rule_verdict rule_redirect(struct stream *st, const struct conf_proxy *px,
				       const struct conf_rule *r, struct http_msg *m,
				       enum step *ret_step)
{
	const struct conf_redirect *rd = r->redirect;
	struct str location = redirect_location(st, rd);

	if (rd->ignore_empty && location.p && !location.len)
		return RULE_NEXT;
	stream_blame(st, 'L');
	ctr_add(&st->fe_ctr->intercepted, 1);
	if (!location.p || !is_clean_value(location)) {
		STREAM_COUNT(st, failed_rewrites, 1);
		*ret_step = stream_answer_status(st, 500);
		return RULE_STEP;
	}
	answer_new(st, rd->code);
	answer_field(st, "location", location);
	if (rd->code == 302 || rd->code == 303 || rd->code == 307)
		answer_field(st, "cache-control", STR("no-cache"));
	if (rd->cookie_fmt)
		answer_field(st, "set-cookie", logfmt_eval_str(rd->cookie_fmt, stream_subject(st)));
	if (rd->set_cookie)
		answer_field(st, "set-cookie", str_from_cstr(rd->set_cookie));
	*ret_step = answer_send(st);
	return RULE_STEP;
}

static enum rule_verdict rule_auth(struct stream *st, const struct conf_proxy *px,
				   const struct conf_rule *r, struct http_msg *m,
				   enum step *ret_step)
{
	bool is_proxy = st->req.scheme.len > 0;
	struct str challenge = arena_printf(&st->arena, "Basic realm=\"%s\"",
					    r->name ? r->name : px->name);

	if (!challenge.p) {
		*ret_step = stream_fail(st, 'R', 500);
		return RULE_STEP;
	}
	answer_of_status(st, is_proxy ? 407 : 401);
	answer_field(st, is_proxy ? "proxy-authenticate" : "www-authenticate", challenge);
	*ret_step = answer_send(st);
	return RULE_STEP;
}

/* --- the rest ------------------------------------------------------------------------------------------- */

static enum rule_verdict rule_set_log_level(struct stream *st, const struct conf_proxy *px,
					    const struct conf_rule *r, struct http_msg *m,
					    enum step *ret_step)
{
	st->log_level = r->number > LOG_LVL_DEBUG ? 0xfe : (uint8_t)r->number;
	return RULE_NEXT;
}

static enum rule_verdict rule_set_timeout(struct stream *st, const struct conf_proxy *px,
					  const struct conf_rule *r, struct http_msg *m,
					  enum step *ret_step)
{
	struct str which = str_from_cstr(r->name);
	uint64_t ns = (uint64_t)r->number * 1000000u;
	struct sample s;

	if (r->expr) {
		if (expr_eval(r->expr, stream_subject(st), &s) ||
		    sample_cast(&s, SAMPLE_SINT, &st->arena) || s.sint <= 0)
			return RULE_NEXT;
		ns = (uint64_t)s.sint * 1000000u;
	}
	if (str_is_eq(which, STR("server")))
		st->timeout_server_ns = ns;
	else if (str_is_eq(which, STR("tunnel")))
		st->timeout_tunnel_ns = ns;
	else if (str_is_eq(which, STR("client")))
		st->timeout_client_ns = ns;
	return RULE_NEXT;
}

static enum rule_verdict rule_strict_mode(struct stream *st, const struct conf_proxy *px,
					  const struct conf_rule *r, struct http_msg *m,
					  enum step *ret_step)
{
	st->is_strict = r->number && !st->has_failed_rewrite;
	return RULE_NEXT;
}

/* prometheus-exporter is the only service there is. */
static enum rule_verdict rule_use_service(struct stream *st, const struct conf_proxy *px,
					  const struct conf_rule *r, struct http_msg *m,
					  enum step *ret_step)
{
	*ret_step = service_start_prometheus(st);
	return RULE_STEP;
}

static enum rule_verdict rule_disable_l7_retry(struct stream *st, const struct conf_proxy *px,
					       const struct conf_rule *r, struct http_msg *m,
					       enum step *ret_step)
{
	st->flags |= STREAM_NO_L7_RETRY;
	return RULE_NEXT;
}

static enum rule_verdict rule_set_retries(struct stream *st, const struct conf_proxy *px,
					  const struct conf_rule *r, struct http_msg *m,
					  enum step *ret_step)
{
	int64_t n = r->number;
	struct sample s;

	if (r->expr) {
		if (expr_eval(r->expr, stream_subject(st), &s) ||
		    sample_cast(&s, SAMPLE_SINT, &st->arena) || s.sint < 0)
			return RULE_NEXT;
		n = s.sint;
	}
	st->retries = st->retries_left = (uint32_t)(n < CONF_MAX_RETRIES ? n : CONF_MAX_RETRIES);
	st->has_retries = true;
	return RULE_NEXT;
}

/* Its place in the queues; what is out of range is the nearest value that is not. */
static enum rule_verdict rule_priority(struct stream *st, const struct conf_proxy *px,
				       const struct conf_rule *r, struct http_msg *m,
				       enum step *ret_step)
{
	bool is_class = r->action == ACTION_SET_PRIORITY_CLASS;
	int64_t max = is_class ? PRIO_CLASS_MAX : PRIO_OFFSET_MS_MAX;
	struct sample s;

	if (expr_eval(r->expr, stream_subject(st), &s) || sample_cast(&s, SAMPLE_SINT, &st->arena))
		return RULE_NEXT;
	s.sint = s.sint > max ? max : s.sint < -max ? -max : s.sint;
	if (is_class)
		st->q.prio_class = (int16_t)s.sint;
	else
		st->q.prio_offset = (int32_t)s.sint;
	return RULE_NEXT;
}

static rule_fn *const actions[ACTION_COUNT] = {
	[ACTION_SET_MARK] = rule_mark,
	[ACTION_SET_TOS] = rule_mark,
	[ACTION_WAIT_FOR_BODY] = rule_wait_for_body,
	[ACTION_PAUSE] = rule_pause,
	[ACTION_SET_PRIORITY_CLASS] = rule_priority,
	[ACTION_SET_PRIORITY_OFFSET] = rule_priority,
	[ACTION_DISABLE_L7_RETRY] = rule_disable_l7_retry,
	[ACTION_SET_RETRIES] = rule_set_retries,
	[ACTION_ACCEPT] = rule_allow,
	[ACTION_ALLOW] = rule_allow,
	[ACTION_DENY] = rule_deny,
	[ACTION_REJECT] = rule_reject,
	[ACTION_CLOSE] = rule_close,
	[ACTION_TARPIT] = rule_tarpit,
	[ACTION_SILENT_DROP] = rule_silent_drop,
	[ACTION_XDP_DROP] = rule_xdp_drop,
	[ACTION_XDP_RESET] = rule_xdp_reset,
	[ACTION_RETURN] = rule_return,
	[ACTION_REDIRECT] = rule_redirect,
	[ACTION_AUTH] = rule_auth,
	[ACTION_SET_HEADER] = rule_header_edit,
	[ACTION_ADD_HEADER] = rule_header_edit,
	[ACTION_DEL_HEADER] = rule_header_del,
	[ACTION_REPLACE_HEADER] = rule_replace_header,
	[ACTION_REPLACE_VALUE] = rule_replace_header,
	[ACTION_SET_PATH] = rule_uri_edit,
	[ACTION_SET_PATHQ] = rule_uri_edit,
	[ACTION_SET_QUERY] = rule_uri_edit,
	[ACTION_SET_URI] = rule_uri_edit,
	[ACTION_SET_METHOD] = rule_uri_edit,
	[ACTION_REPLACE_PATH] = rule_uri_edit,
	[ACTION_REPLACE_PATHQ] = rule_uri_edit,
	[ACTION_REPLACE_URI] = rule_uri_edit,
	[ACTION_SET_STATUS] = rule_set_status,
	[ACTION_SET_VAR] = rule_var,
	[ACTION_SET_VAR_FMT] = rule_var,
	[ACTION_UNSET_VAR] = rule_var,
	[ACTION_SET_SRC] = rule_addr,
	[ACTION_SET_SRC_PORT] = rule_addr,
	[ACTION_SET_DST] = rule_addr,
	[ACTION_SET_DST_PORT] = rule_addr,
	[ACTION_CAPTURE] = rule_capture,
	[ACTION_TRACK_SC] = rule_track,
	[ACTION_SC_INC_GPC] = rule_sc_inc,
	[ACTION_SC_SET_GPT] = rule_sc_set,
	[ACTION_EDIT_PATTERN] = rule_pattern,
	[ACTION_SET_LOG_LEVEL] = rule_set_log_level,
	[ACTION_SET_TIMEOUT] = rule_set_timeout,
	[ACTION_USE_SERVICE] = rule_use_service,
	[ACTION_STRICT_MODE] = rule_strict_mode,
	[ACTION_EARLY_HINT] = rule_early_hint,
	[ACTION_SET_BANDWIDTH_LIMIT] = rule_bandwidth,
};

static enum rule_verdict run_rules(struct stream *st, const struct conf_proxy *px,
				   enum conf_ruleset set, struct http_msg *m, bool may_wait,
				   enum step *ret_step)
{
	/* Where it stopped to wait: what stands before has had its effect, the condition of an action too. */
	const struct conf_rule *resume = st->rule && st->rule_set == set ? st->rule : NULL;
	bool is_action = resume && st->wait_until_ns;
	const struct subject *subject = NULL; /* as fresh as the last action */
	struct list *pos;

	if (!resume)
		st->is_strict = !st->has_failed_rewrite;
	list_for_each(pos, &px->rules[set]) {
		const struct conf_rule *r = list_entry(pos, struct conf_rule, link);
		enum rule_verdict v;
		rule_fn *run = r->action < ACTION_COUNT ? actions[r->action] : NULL;
		int c;

		if (resume && r != resume)
			continue;
		if (resume)
			resume = st->rule = NULL;
		if (unlikely(st->hints) && r->action != ACTION_EARLY_HINT &&
		    !early_hints_send(st)) {
			*ret_step = stream_fail(st, 'C', 0);
			return RULE_STEP;
		}
		if (r->cond && !subject)
			subject = stream_subject(st);
		c = r->cond && !is_action ? cond_eval(r->cond, subject) : 1;
		is_action = false;
		if (c == -EAGAIN && may_wait)
			return wait_at(st, r, set);
		if (c <= 0 || !run)
			continue;
		v = run(st, px, r, m, ret_step);
		subject = NULL;
		if (v == RULE_NEXT)
			continue;
		if (v == RULE_WAIT)
			return wait_at(st, r, set);
		st->last_rule = r;
		return v;
	}
	if (likely(!st->hints) || early_hints_send(st))
		return RULE_NEXT;
	*ret_step = stream_fail(st, 'C', 0);
	return RULE_STEP;
}

enum rule_verdict rules_run_http(struct stream *st, const struct conf_proxy *px,
				 enum conf_ruleset set, enum step *ret_step)
{
	struct http_msg *m = set == RULES_HTTP_REQUEST ? &st->req : &st->rsp;

	if (set == RULES_HTTP_AFTER_RESPONSE && st->flags & STREAM_ANSWERS)
		m = st->local.msg;
	return run_rules(st, px, set, m, false, ret_step);
}

enum rule_verdict rules_run_tcp(struct stream *st, const struct conf_proxy *px,
				enum conf_ruleset set, enum step *ret_step)
{
	bool is_rsp = set == RULES_TCP_RESPONSE;
	struct http_msg *m = !(st->flags & STREAM_REQ_PARSED) ? NULL : is_rsp ? &st->rsp : &st->req;
	bool may_wait = !(st->flags & (is_rsp ? STREAM_RSP_FINAL : STREAM_PAYLOAD_FINAL)) && !m;

	return run_rules(st, px, set, m, may_wait, ret_step);
}

enum rule_verdict rules_run_stats(struct stream *st, const struct conf_proxy *px,
				  enum step *ret_step)
{
	struct list *pos;

	list_for_each(pos, &px->stats.rules) {
		const struct conf_rule *r = list_entry(pos, struct conf_rule, link);
		struct conf_rule auth = *r;

		if (r->cond && cond_eval(r->cond, stream_subject(st)) <= 0)
			continue;
		/* Without a realm of its own it asks for that of the page. */
		if (r->action == ACTION_AUTH && !r->name)
			auth.name = px->stats.realm;
		st->last_rule = r;
		return actions[r->action](st, px, &auth, &st->req, ret_step);
	}
	return RULE_NEXT;
}
