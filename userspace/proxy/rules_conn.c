/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rules about connections: whether one may stay (before there is a stream), and how its packets are marked.
 */
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "proxy/track.h"
#include "proxy/worker_priv.h"

/*
 * set-mark (SO_MARK, for routing and filters) and set-tos, from here on. The kernel asks for CAP_NET_ADMIN for marks; as in
 * HAProxy what it refuses changes nothing else.
 */
static void mark_conn(struct conn *c, const struct conf_rule *r, const struct subject *s)
{
	int v = (int)r->number, fd = c->ev.fd;
	struct sample x;

	if (r->expr) {
		if (expr_eval(r->expr, s, &x) || sample_cast(&x, SAMPLE_SINT, s->arena))
			return;
		v = (int)x.sint;
	}
	if (r->action == ACTION_SET_MARK) {
		setsockopt(fd, SOL_SOCKET, SO_MARK, &v, sizeof(v));
		return;
	}
	v &= 0xff;
	setsockopt(fd, SOL_IP, IP_TOS, &v, sizeof(v));
	if (c->peer.sa.sa_family == AF_INET6)
		setsockopt(fd, SOL_IPV6, IPV6_TCLASS, &v, sizeof(v));
}

/* The client's connection; of HTTP/2 the one that all its streams share. */
enum rule_verdict rule_mark(struct stream *st, const struct conf_proxy *px,
			    const struct conf_rule *r, struct http_msg *m, enum step *ret_step)
{
	mark_conn(client_session(st->cl)->conn, r, stream_subject(st));
	return RULE_NEXT;
}

/* --- admission ------------------------------------------------------------------------------------------ */

static void admit_var(struct client *cl, const struct conf_rule *r, struct subject *s)
{
	struct sample v = { .type = SAMPLE_STR };

	switch ((enum conf_action_kind)r->action) {
	case ACTION_UNSET_VAR:
		subject_var_unset(s, (enum var_scope)r->var_scope, r->var_id);
		return;
	case ACTION_SET_VAR:
		if (expr_eval(r->expr, s, &v))
			return;
		break;
	case ACTION_SET_VAR_FMT:
		v.str = logfmt_eval_str(r->fmt, s);
		break;
	default:
		return;
	}
	if ((v.type == SAMPLE_STR && !v.str.p) ||
	    subject_var_set_if(s, (enum var_scope)r->var_scope, r->var_id, r->var_conds, &v))
		ctr_add(&cl->w->ctr->alloc_failures, 1);
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

		if (r->cond && cond_eval(r->cond, &s) <= 0)
			continue;
		if (r->action == ACTION_ACCEPT || r->action == ACTION_ALLOW)
			break;
		track_client_rule(cl, r, &s);
		if (r->action == ACTION_EXPECT_PROXY)
			conn_expect_proxy(cl->conn);
		admit_var(cl, r, &s);
		if (r->action == ACTION_SET_MARK || r->action == ACTION_SET_TOS)
			mark_conn(cl->conn, r, &s);
		if (r->ban)
			ban_client(cl, r->ban);
		cl->conn->closes_hard |= r->action == ACTION_XDP_RESET;
		if (r->ban || r->action == ACTION_REJECT || r->action == ACTION_SILENT_DROP) {
			ok = false;
			break;
		}
	}
	cl->vars = s.vars[VAR_SESS];
	return ok;
}
