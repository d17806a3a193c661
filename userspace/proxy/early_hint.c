/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Early hints (RFC 8297): a 103 that tells the client what to fetch while the server thinks. Rules that stand one behind
 * the other make one of it; the first rule of another kind, or the end of the list, sends it.
 */
#include <errno.h>

#include "proxy/worker_priv.h"

enum rule_verdict rule_early_hint(struct stream *st, const struct conf_proxy *px,
				  const struct conf_rule *r, struct http_msg *m,
				  enum step *ret_step)
{
	struct str value;

	/* A 1.0 client would take it for the answer. */
	if (m->major == 1 && m->minor == 0)
		return RULE_NEXT;
	if (!st->hints) {
		st->hints = answer_new(st, 103);
		st->local = (struct local_answer){ 0 };
		if (!st->hints)
			return RULE_NEXT;
		st->hints->reason = STR("Early Hints");
	}
	value = logfmt_eval_str(r->fmt, stream_subject(st));
	/* It is a hint: without it everything works, too. */
	if (!value.p || http_msg_add(st->hints, str_from_cstr(r->name), value))
		STREAM_COUNT(st, failed_rewrites, 1);
	return RULE_NEXT;
}

bool early_hints_send(struct stream *st)
{
	struct side *f = &st->front;
	struct http_msg *m = st->hints;

	st->hints = NULL;
	if (!m->n_fields)
		return true;
	if (f->ops->write_head(f, m, H1_CONN_NONE)) {
		STREAM_COUNT(st, failed_rewrites, 1);
		return true;
	}
	ctr_add(&st->fe_ctr->hrsp_1xx, 1);
	return f->ops->write(f, NULL, 0, false) >= 0;
}
