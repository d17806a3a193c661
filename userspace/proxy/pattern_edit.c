/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * add-acl, del-acl, set-map, del-map. The worker makes the texts and mails them; control changes the list, for
 * all workers, a moment later: rules of the same request still see the old one. Workers.
 */
#include <errno.h>

#include "proxy/worker_priv.h"

/* Under way from all workers. A flood of requests must not fill the memory with changes. */
#define PATTERN_EDITS_MAX 16384

static int send_edit(struct stream *st, const struct conf_pattern_edit *e, struct str key,
		     struct str value)
{
	struct proxy_shared *sh = st->w->o.shared;
	struct pattern_edit *m;
	char *text;

	if (atomic_load_explicit(&sh->pattern_edits, memory_order_relaxed) >= PATTERN_EDITS_MAX)
		return -EAGAIN;
	m = mem_alloc(sizeof(*m) + e->file.len + key.len + value.len);
	if (!m)
		return -ENOMEM;
	text = m->text;
	*m = (struct pattern_edit){ .owner = st->w->o.owner, .kind = e->kind, .is_map = e->is_map };
	m->file = str_make(memcpy(text, e->file.p, e->file.len), e->file.len);
	text += e->file.len;
	m->key = str_make(memcpy(text, key.p, key.len), key.len);
	text += key.len;
	m->value = str_make(text, value.len);
	if (value.len)
		memcpy(text, value.p, value.len);
	m->mail.deliver = st->w->o.on_pattern;
	atomic_fetch_add_explicit(&sh->pattern_edits, 1, memory_order_relaxed);
	mailbox_send(st->w->o.control, &m->mail);
	return 0;
}

enum rule_verdict rule_pattern(struct stream *st, const struct conf_proxy *px,
			       const struct conf_rule *r, struct http_msg *m, enum step *ret_step)
{
	const struct conf_pattern_edit *e = r->pattern;
	struct str key = logfmt_eval_str(e->key, stream_subject(st)), value = STR("");
	int rc;

	if (e->value)
		value = logfmt_eval_str(e->value, stream_subject(st));
	if (!key.p || !value.p)
		rc = -ENOMEM;
	else if (!key.len || !st->w->o.on_pattern)
		return RULE_NEXT; /* nothing to name the entry by */
	else
		rc = send_edit(st, e, key, value);
	if (rc)
		STREAM_COUNT(st, failed_rewrites, 1);
	if (rc == -ENOMEM)
		ctr_add(&st->w->ctr->alloc_failures, 1);
	return RULE_NEXT;
}
