/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs compiled rules. One function per kind of action, found in a table; a rule list is walked in
 * order until one of them is final. Final verdicts, redirects and authentication are here; edits are in
 * rules_edit.c, rules on connections and content in rules_tcp.c.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "proxy/track.h"
#include "proxy/h2_client.h"

static void count_denied(struct stream *st, bool is_rsp)
{
	ctr_add(is_rsp ? &st->fe_ctr->rsp_denied : &st->fe_ctr->req_denied, 1);
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
	count_denied(st, m && m->flags & HTTP_MSG_RESPONSE);
	*ret_step = stream_fail(st, 'P', 0);
	return RULE_STEP;
}

static enum rule_verdict rule_tarpit(struct stream *st, const struct conf_proxy *px,
				     const struct conf_rule *r, struct http_msg *m,
				     enum step *ret_step)
{
	uint64_t t = px->timeout.tarpit ? px->timeout.tarpit : px->timeout.connect;

	count_denied(st, false);
	st->rule = r;
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

	if (!to.p || rd->kind == REDIRECT_LOCATION)
		return to;
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
	struct str location = redirect_location(st, rd), headers;

	if (rd->ignore_empty && location.p && !location.len)
		return RULE_NEXT;
	stream_blame(st, 'L');
	ctr_add(&st->fe_ctr->intercepted, 1);
	if (!location.p || !is_clean_value(location)) {
		ctr_add(&st->fe_ctr->failed_rewrites, 1);
		*ret_step = stream_answer_status(st, 500);
		return RULE_STEP;
	}
	headers = arena_printf(&st->arena, "location: " STR_FMT "\r\n%s%s%s%s", STR_ARG(location),
			       rd->code == 302 || rd->code == 303 || rd->code == 307
				       ? "cache-control: no-cache\r\n"
				       : "",
			       rd->set_cookie ? "set-cookie: " : "",
			       rd->set_cookie ? rd->set_cookie : "", rd->set_cookie ? "\r\n" : "");
	if (!headers.p) {
		*ret_step = stream_fail(st, 'R', 500);
		return RULE_STEP;
	}
	*ret_step = stream_answer_text(st, rd->code ? rd->code : 302, headers, STR(""), STR(""));
	return RULE_STEP;
}

static enum rule_verdict rule_auth(struct stream *st, const struct conf_proxy *px,
				   const struct conf_rule *r, struct http_msg *m,
				   enum step *ret_step)
{
	bool is_proxy = st->req.scheme.len > 0;
	struct str headers, body;
	const char *realm = r->name ? r->name : px->name;

	stream_blame(st, 'P');
	headers = arena_printf(&st->arena, "%s: Basic realm=\"%s\"\r\ncache-control: no-cache\r\n",
			       is_proxy ? "proxy-authenticate" : "www-authenticate", realm);
	body = STR("<html><body><h1>401 Unauthorized</h1>\nYou need a valid user and password to "
		   "access "
		   "this content.\n</body></html>\n");
	if (!headers.p)
		*ret_step = stream_fail(st, 'R', 500);
	else
		*ret_step = stream_answer_text(st, is_proxy ? 407 : 401, headers, STR("text/html"),
					       body);
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

/* prometheus-exporter is the only service there is. */
static enum rule_verdict rule_use_service(struct stream *st, const struct conf_proxy *px,
					  const struct conf_rule *r, struct http_msg *m,
					  enum step *ret_step)
{
	*ret_step = service_start_prometheus(st);
	return RULE_STEP;
}

static rule_fn *const actions[ACTION_COUNT] = {
	[ACTION_ACCEPT] = rule_allow,
	[ACTION_ALLOW] = rule_allow,
	[ACTION_DENY] = rule_deny,
	[ACTION_REJECT] = rule_reject,
	[ACTION_TARPIT] = rule_tarpit,
	[ACTION_SILENT_DROP] = rule_silent_drop,
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
	[ACTION_SET_LOG_LEVEL] = rule_set_log_level,
	[ACTION_SET_TIMEOUT] = rule_set_timeout,
	[ACTION_USE_SERVICE] = rule_use_service,
};

static enum rule_verdict run_rules(struct stream *st, const struct conf_proxy *px,
				   enum conf_ruleset set, struct http_msg *m, bool may_wait,
				   enum step *ret_step)
{
	/* Where it stopped to wait: what stands before has had its effect. */
	const struct conf_rule *resume = set == RULES_TCP_CONTENT ? st->rule : NULL;
	struct list *pos;

	list_for_each(pos, &px->rules[set]) {
		const struct conf_rule *r = list_entry(pos, struct conf_rule, link);
		enum rule_verdict v;
		rule_fn *run = r->action < ACTION_COUNT ? actions[r->action] : NULL;
		int c;

		if (resume && r != resume)
			continue;
		if (resume)
			resume = st->rule = NULL;
		c = r->cond ? cond_eval(r->cond, stream_subject(st)) : 1;
		if (c == -EAGAIN && may_wait) {
			st->rule = r;
			return RULE_WAIT;
		}
		if (c <= 0 || !run)
			continue;
		v = run(st, px, r, m, ret_step);
		if (v != RULE_NEXT)
			return v;
	}
	return RULE_NEXT;
}

enum rule_verdict rules_run_http(struct stream *st, const struct conf_proxy *px,
				 enum conf_ruleset set, enum step *ret_step)
{
	struct http_msg *m = set == RULES_HTTP_REQUEST ? &st->req : &st->rsp;

	return run_rules(st, px, set, m, false, ret_step);
}

enum rule_verdict rules_run_tcp(struct stream *st, const struct conf_proxy *px,
				enum conf_ruleset set, enum step *ret_step)
{
	struct http_msg *m = st->flags & STREAM_REQ_PARSED ? &st->req : NULL;
	bool may_wait = !(st->flags & STREAM_PAYLOAD_FINAL) && !m;

	return run_rules(st, px, set, m, may_wait, ret_step);
}

/* Connection and session rules know no stream: only verdicts and variables make sense there. */
bool rules_admit(struct client *cl, enum conf_ruleset set)
{
	struct subject s;
	struct list *pos;
	bool ok = true;

	subject_of_client(cl, loop_scratch(cl->w->loop), &s);
	list_for_each(pos, &cl->fe->rules[set]) {
		const struct conf_rule *r = list_entry(pos, struct conf_rule, link);
		struct sample v;

		if (r->cond && cond_eval(r->cond, &s) <= 0)
			continue;
		if (r->action == ACTION_ACCEPT || r->action == ACTION_ALLOW)
			break;
		track_client_rule(cl, r, &s);
		if (r->action == ACTION_EXPECT_PROXY)
			conn_expect_proxy(cl->conn);
		if (r->action == ACTION_SET_VAR && !expr_eval(r->expr, &s, &v) &&
		    subject_var_set(&s, (enum var_scope)r->var_scope, r->var_id, &v))
			ctr_add(&cl->w->ctr->alloc_failures, 1);
		if (r->action == ACTION_REJECT || r->action == ACTION_SILENT_DROP) {
			ok = false;
			break;
		}
	}
	cl->vars = s.vars[VAR_SESS];
	return ok;
}
