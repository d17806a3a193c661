/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rules that change a message or a variable. An edit that fails (no memory or room, a byte that must not be in
 * a header) leaves the message as it was and is counted: failed_rewrites. Of a message it is an error of ours, too, unless
 * the rule stands behind `strict-mode off`.
 */
#include <errno.h>

#include "proxy/facts.h"
#include "proxy/worker_priv.h"

static enum rule_verdict edit_done(struct stream *st, int r)
{
	if (r) {
		STREAM_COUNT(st, failed_rewrites, 1);
		if (r == -ENOMEM)
			ctr_add(&st->w->ctr->alloc_failures, 1);
	}
	return RULE_NEXT;
}

static enum rule_verdict rewrite_done(struct stream *st, int r, enum step *ret_step)
{
	(void)edit_done(st, r);
	if (likely(!r) || !st->is_strict)
		return RULE_NEXT;
	/* The answer goes as far as it can: a rule that fails on it again is no reason for another. */
	st->has_failed_rewrite = true;
	STREAM_COUNT(st, internal_errors, 1);
	*ret_step = stream_fail(st, 'P', 500);
	return RULE_STEP;
}

/* No control bytes, no blanks: what may stand in a request line. */
static bool is_clean(struct str s)
{
	for (size_t i = 0; i < s.len; i++)
		if ((unsigned char)s.p[i] <= ' ' || s.p[i] == 0x7f)
			return false;
	return s.len > 0;
}

enum rule_verdict rule_header_edit(struct stream *st, const struct conf_proxy *px,
				   const struct conf_rule *r, struct http_msg *m,
				   enum step *ret_step)
{
	struct str value = logfmt_text(r->fmt);
	bool is_fixed = value.p;

	if (!is_fixed)
		value = logfmt_eval_str(r->fmt, stream_subject(st));
	if (!value.p)
		return rewrite_done(st, -ENOMEM, ret_step);
	return rewrite_done(st,
			    r->action == ACTION_SET_HEADER
				    ? http_msg_set_named(m, &r->header, value, is_fixed)
				    : http_msg_add_named(m, &r->header, value, is_fixed),
			    ret_step);
}

static bool name_matches(struct str name, struct str want, enum conf_match how)
{
	switch (how) {
	case MATCH_BEG:
		return str_is_case_prefix(name, want);
	case MATCH_END:
		return name.len >= want.len &&
		       str_is_case_eq(str_from(name, name.len - want.len), want);
	case MATCH_SUB:
		return str_case_find(name, want) != SIZE_MAX;
	default:
		return str_is_case_eq(name, want);
	}
}

/* Names are in lower case for the expression, as in HAProxy. */
static enum rule_verdict del_by_regex(struct stream *st, const struct conf_rule *r,
				      struct http_msg *m, enum step *ret_step)
{
	size_t pairs[REGEX_PAIRS * 2];

	for (unsigned i = 0; i < m->n_fields; i++) {
		struct http_field *f = &m->fields[i];
		struct str name;

		if (f->is_removed)
			continue;
		name = arena_str(&st->arena, f->name);
		if (!name.p)
			return rewrite_done(st, -ENOMEM, ret_step);
		for (size_t k = 0; k < name.len; k++)
			((char *)(uintptr_t)name.p)[k] = str_lower_char(name.p[k]);
		if (regex_find(r->re, name, 0, pairs))
			http_msg_del_field(m, f);
	}
	return RULE_NEXT;
}

enum rule_verdict rule_header_del(struct stream *st, const struct conf_proxy *px,
				  const struct conf_rule *r, struct http_msg *m,
				  enum step *ret_step)
{
	struct str want = str_from_cstr(r->name);

	if (r->match == MATCH_STR) {
		http_msg_del(m, want);
		return RULE_NEXT;
	}
	if (r->match == MATCH_REG)
		return del_by_regex(st, r, m, ret_step);
	for (unsigned i = 0; i < m->n_fields; i++)
		if (!m->fields[i].is_removed &&
		    name_matches(m->fields[i].name, want, (enum conf_match)r->match))
			http_msg_del_field(m, &m->fields[i]);
	return RULE_NEXT;
}

/* --- replace-* ------------------------------------------------------------------------------------------ */

/* `tmpl` with \0 … \9 put in; p NULL: out of memory. */
static struct str expand(struct stream *st, struct str tmpl, struct str subject,
			 const size_t *pairs, unsigned n)
{
	size_t size = tmpl.len, len = 0;
	char *out;

	for (unsigned i = 0; i < n; i++)
		if (pairs[2 * i] <= pairs[2 * i + 1] && pairs[2 * i + 1] <= subject.len)
			size += (pairs[2 * i + 1] - pairs[2 * i]) * (tmpl.len / 2 + 1);
	out = arena_alloc(&st->arena, size + 1);
	if (!out)
		return STR_NULL;
	for (size_t i = 0; i < tmpl.len; i++) {
		unsigned k;

		if (tmpl.p[i] != '\\' || i + 1 == tmpl.len) {
			out[len++] = tmpl.p[i];
			continue;
		}
		i++;
		k = (unsigned)(tmpl.p[i] - '0');
		if (k > 9) {
			out[len++] = tmpl.p[i];
			continue;
		}
		if (k < n && pairs[2 * k] <= pairs[2 * k + 1] && pairs[2 * k + 1] <= subject.len) {
			memcpy(out + len, subject.p + pairs[2 * k],
			       pairs[2 * k + 1] - pairs[2 * k]);
			len += pairs[2 * k + 1] - pairs[2 * k];
		}
	}
	return str_make(out, len);
}

/* 1: *ret is the subject's replacement (the whole of it, as HAProxy does); 0: no match; -ENOMEM. */
static int replace_whole(struct stream *st, const struct conf_rule *r, struct str subject,
			 struct str *ret)
{
	size_t pairs[REGEX_PAIRS * 2];
	unsigned n = r->re ? regex_find(r->re, subject, 0, pairs) : 0;
	struct str tmpl;

	if (!n)
		return 0;
	tmpl = logfmt_eval_str(r->fmt, stream_subject(st));
	if (!tmpl.p)
		return -ENOMEM;
	*ret = expand(st, tmpl, subject, pairs, n);
	return ret->p ? 1 : -ENOMEM;
}

static bool is_value(struct str s)
{
	for (size_t i = 0; i < s.len; i++)
		if (((unsigned char)s.p[i] < ' ' && s.p[i] != '\t') || s.p[i] == 0x7f)
			return false;
	return true;
}

/* replace-value: item by item of a comma list. */
static int replace_items(struct stream *st, const struct conf_rule *r, struct http_field *f)
{
	struct str rest = f->value, item, out = STR(""), new;
	bool changed = false;

	while (http_list_next(&rest, &item)) {
		int n = replace_whole(st, r, item, &new);

		if (n < 0)
			return n;
		changed |= n > 0;
		out = arena_printf(&st->arena, STR_FMT "%s" STR_FMT, STR_ARG(out),
				   out.len ? ", " : "", STR_ARG(n ? new : item));
		if (!out.p)
			return -ENOMEM;
	}
	if (!changed)
		return 0;
	if (!is_value(out))
		return -EINVAL;
	f->value = out;
	return 0;
}

enum rule_verdict rule_replace_header(struct stream *st, const struct conf_proxy *px,
				      const struct conf_rule *r, struct http_msg *m,
				      enum step *ret_step)
{
	struct str want = str_from_cstr(r->name), new;

	for (unsigned i = 0; i < m->n_fields; i++) {
		struct http_field *f = &m->fields[i];
		int n;

		if (f->is_removed || !str_is_case_eq(f->name, want))
			continue;
		if (r->action == ACTION_REPLACE_VALUE) {
			n = replace_items(st, r, f);
		} else {
			n = replace_whole(st, r, f->value, &new);
			if (n > 0 && is_value(new))
				m->fields[i].value = new;
			n = n > 0 && !is_value(new) ? -EINVAL : n < 0 ? n : 0;
		}
		if (n && rewrite_done(st, n, ret_step) == RULE_STEP)
			return RULE_STEP;
	}
	return RULE_NEXT;
}

/* --- the request line ------------------------------------------------------------------------------------- */

static void split_path(struct str pathq, struct str *ret_path, struct str *ret_query)
{
	size_t q = str_find_char(pathq, '?');

	*ret_path = q == SIZE_MAX ? pathq : str_sub(pathq, 0, q);
	*ret_query = q == SIZE_MAX ? STR("") : str_from(pathq, q);
}

/* "http://host/path?query" or "/path?query". */
static int set_uri(struct stream *st, struct str uri)
{
	struct http_msg *m = &st->req;
	size_t colon = str_find(uri, STR("://"));
	struct str rest, host;
	size_t slash;

	if (colon == SIZE_MAX) {
		m->path = uri;
		return 0;
	}
	rest = str_from(uri, colon + 3);
	slash = str_find_char(rest, '/');
	host = slash == SIZE_MAX ? rest : str_sub(rest, 0, slash);
	m->path = slash == SIZE_MAX ? STR("/") : str_from(rest, slash);
	if (!host.len)
		return -EINVAL;
	m->scheme = str_sub(uri, 0, colon);
	m->authority = host;
	return http_msg_set(m, STR("host"), host);
}

static int set_method(struct stream *st, struct str v)
{
	if (!is_clean(v))
		return -EINVAL;
	/* The response's framing depends on it: HEAD and CONNECT stay what they are. */
	if (st->req.method == HTTP_METHOD_CONNECT ||
	    http_method_from_text(v) == HTTP_METHOD_CONNECT)
		return -EINVAL;
	st->req.method_text = v;
	st->req.method = (uint8_t)http_method_from_text(v);
	return 0;
}

static int uri_set(struct stream *st, const struct conf_rule *r, struct str v)
{
	struct http_msg *m = &st->req;
	struct str path, query, out;

	split_path(m->path, &path, &query);
	switch ((enum conf_action_kind)r->action) {
	case ACTION_SET_METHOD:
		return set_method(st, v);
	case ACTION_SET_URI:
		return is_clean(v) ? set_uri(st, v) : -EINVAL;
	case ACTION_SET_PATHQ:
		out = v;
		break;
	case ACTION_SET_PATH:
		out = arena_printf(&st->arena, STR_FMT STR_FMT, STR_ARG(v), STR_ARG(query));
		break;
	default: /* set-query */
		out = arena_printf(&st->arena, STR_FMT "%s" STR_FMT, STR_ARG(path),
				   v.len ? "?" : "", STR_ARG(v));
		break;
	}
	if (!out.p)
		return -ENOMEM;
	if (!is_clean(out))
		return -EINVAL;
	m->path = out;
	return 0;
}

static int uri_replace(struct stream *st, const struct conf_rule *r)
{
	struct http_msg *m = &st->req;
	struct str path, query, subject, new;
	int n;

	split_path(m->path, &path, &query);
	subject = r->action == ACTION_REPLACE_PATH ? path : m->path;
	if (r->action == ACTION_REPLACE_URI && m->scheme.len)
		subject = m->target;
	n = replace_whole(st, r, subject, &new);
	if (n <= 0)
		return n;
	if (!is_clean(new))
		return -EINVAL;
	if (r->action == ACTION_REPLACE_URI)
		return set_uri(st, new);
	if (r->action == ACTION_REPLACE_PATH && query.len)
		new = arena_printf(&st->arena, STR_FMT STR_FMT, STR_ARG(new), STR_ARG(query));
	if (!new.p)
		return -ENOMEM;
	m->path = new;
	return 0;
}

enum rule_verdict rule_uri_edit(struct stream *st, const struct conf_proxy *px,
				const struct conf_rule *r, struct http_msg *m, enum step *ret_step)
{
	struct str v;

	if (r->action == ACTION_REPLACE_PATH || r->action == ACTION_REPLACE_PATHQ ||
	    r->action == ACTION_REPLACE_URI)
		return rewrite_done(st, uri_replace(st, r), ret_step);
	v = logfmt_eval_str(r->fmt, stream_subject(st));
	return rewrite_done(st, v.p ? uri_set(st, r, v) : -ENOMEM, ret_step);
}

enum rule_verdict rule_set_status(struct stream *st, const struct conf_proxy *px,
				  const struct conf_rule *r, struct http_msg *m,
				  enum step *ret_step)
{
	/* 1xx, 204 and 304 have no body: becoming or leaving one of them would break the framing. */
	bool is_bare = r->number < 200 || r->number == 204 || r->number == 304;
	bool was_bare = m->status < 200 || m->status == 204 || m->status == 304;

	if (is_bare != was_bare)
		return rewrite_done(st, -EINVAL, ret_step);
	m->status = (uint16_t)r->number;
	m->reason = r->name ? str_from_cstr(r->name) : http_status_reason(r->number);
	return RULE_NEXT;
}

/* --- variables and captures -------------------------------------------------------------------------------- */

enum rule_verdict rule_var(struct stream *st, const struct conf_proxy *px,
			   const struct conf_rule *r, struct http_msg *m, enum step *ret_step)
{
	const struct subject *s = stream_subject(st);
	struct sample v = { .type = SAMPLE_STR };

	if (r->action == ACTION_UNSET_VAR) {
		subject_var_unset(&st->subject, (enum var_scope)r->var_scope, r->var_id);
		return RULE_NEXT;
	}
	if (r->action == ACTION_SET_VAR_FMT) {
		v.str = logfmt_eval_str(r->fmt, s);
		if (!v.str.p)
			return edit_done(st, -ENOMEM);
	} else if (expr_eval(r->expr, s, &v)) {
		return RULE_NEXT;
	}
	return edit_done(st, subject_var_set_if(&st->subject, (enum var_scope)r->var_scope,
						r->var_id, r->var_conds, &v));
}

/* `capture … id n` has no length: that of the slot. */
enum rule_verdict rule_capture(struct stream *st, const struct conf_proxy *px,
			       const struct conf_rule *r, struct http_msg *m, enum step *ret_step)
{
	bool is_rsp = m && m->flags & HTTP_MSG_RESPONSE;
	struct str v = expr_eval_str(r->expr, stream_subject(st));

	return edit_done(st, capture_put(st, is_rsp, r->index, v, r->number));
}

enum rule_verdict rule_addr(struct stream *st, const struct conf_proxy *px,
			    const struct conf_rule *r, struct http_msg *m, enum step *ret_step)
{
	bool is_src = r->action == ACTION_SET_SRC || r->action == ACTION_SET_SRC_PORT;
	bool is_port = r->action == ACTION_SET_SRC_PORT || r->action == ACTION_SET_DST_PORT;
	struct addr *a = is_src ? &st->src : &st->dst;
	struct sample v;
	uint16_t port;

	if (!a->sa.sa_family)
		*a = is_src ? st->front.conn->peer : *conn_local_addr(st->front.conn);
	if (expr_eval(r->expr, stream_subject(st), &v) ||
	    sample_cast(&v, is_port ? SAMPLE_SINT : SAMPLE_ADDR, &st->arena))
		return RULE_NEXT;
	port = addr_port(a);
	if (!is_port)
		*a = v.addr;
	addr_set_port(a, is_port ? (uint16_t)v.sint : port);
	return RULE_NEXT;
}
