/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Texts of a check with %[expressions] in them: what is sent, and what is said about the result. An expression sees
 * the server, its backend, and the head of the answer when there is one. Memory is the run's. Control
 * thread.
 */
#include <errno.h>
#include <time.h>

#include "ctl/health_priv.h"

static struct str body_of(const struct subject *s, bool is_rsp)
{
	return is_rsp ? check_body(s->owner) : STR_NULL;
}

static const struct subject_ops check_ops = { .body = body_of };

const struct subject *check_subject(struct check_run *r)
{
	const struct conf_server *cs = r->target.conf;
	struct subject *s = &r->subject;
	struct timespec now;

	s->arena = s->sess_arena = &r->arena;
	s->owner = r;
	s->ops = &check_ops;
	clock_gettime(CLOCK_REALTIME, &now);
	s->wall_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	s->rsp = r->is_head_read ? &r->msg : NULL;
	s->payload = str_make(r->in, r->in_len);
	s->is_payload_final = true;
	if (cs) {
		s->backend_name = str_from_cstr(cs->proxy->name);
		s->backend_id = cs->proxy->id;
		s->server_name = str_from_cstr(cs->name);
		s->server_id = cs->id;
	}
	return s;
}

struct str check_format(struct check_run *r, const struct logfmt *fmt)
{
	return logfmt_eval_str(fmt, check_subject(r));
}

struct str check_text(struct check_run *r, const struct logfmt *fmt, struct str text)
{
	return fmt ? check_format(r, fmt) : text;
}

static int hex_digit(char c)
{
	c = str_lower_char(c);
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* p NULL: not pairs of digits, or out of memory. */
static struct str unhex(struct arena *a, struct str s)
{
	char *p = s.len % 2 ? NULL : arena_alloc(a, s.len / 2 + 1);

	for (size_t i = 0; p && i < s.len; i += 2) {
		int hi = hex_digit(s.p[i]), lo = hex_digit(s.p[i + 1]);

		if (hi < 0 || lo < 0)
			return STR_NULL;
		p[i / 2] = (char)(hi << 4 | lo);
	}
	return p ? str_make(p, s.len / 2) : STR_NULL;
}

struct str check_pattern(struct check_run *r, const struct conf_expect *e)
{
	struct str text = check_text(r, e->fmt, str_make(e->text, e->text_len));

	return e->fmt && e->what == EXPECT_BINARY && text.p ? unhex(&r->arena, text) : text;
}

int check_set_var(struct check_run *r, const struct conf_check_step *s)
{
	const struct subject *sub = check_subject(r);
	struct sample v = { .type = SAMPLE_STR };
	int rc;

	if (s->kind == STEP_UNSET_VAR) {
		subject_var_unset(&r->subject, (enum var_scope)s->var_scope, s->var_id);
		return 0;
	}
	if (s->value_fmt) {
		v.str = logfmt_eval_str(s->value_fmt, sub);
		if (!v.str.p)
			return -ENOMEM;
	} else {
		rc = expr_eval(s->value, sub, &v);
		if (rc) /* no value: the variable stays as it is */
			return rc == -ENOMEM ? rc : 0;
	}
	rc = subject_var_set_if(&r->subject, (enum var_scope)s->var_scope, s->var_id, s->var_conds,
				&v);
	return rc == -ENOMEM ? rc : 0;
}

/* --- requests ---------------------------------------------------------------------------------------- */

/* With blanks or line ends in it the request would be another one. */
static bool is_target(struct str s)
{
	for (size_t i = 0; i < s.len; i++)
		if ((unsigned char)s.p[i] <= ' ' || s.p[i] == 127)
			return false;
	return s.len;
}

bool check_has_formats(const struct conf_check_request *rq)
{
	const struct conf_check_header *h = rq->fields;

	while (h && !h->fmt)
		h = h->next;
	return rq->uri_fmt || rq->body_fmt || h;
}

/* What an expression gives cannot begin another field. */
static struct str field_value(struct check_run *r, const struct conf_check_header *h)
{
	struct str v = check_text(r, h->fmt, h->value);
	char *p = h->fmt && v.p ? arena_alloc(&r->arena, v.len + 1) : NULL;

	if (!h->fmt)
		return v;
	for (size_t i = 0; p && i < v.len; i++)
		p[i] = (unsigned char)v.p[i] < ' ' || v.p[i] == 127 ? ' ' : v.p[i];
	return p ? str_make(p, v.len) : STR_NULL;
}

int check_request(struct check_run *r, struct arena *a, const struct conf_check_request *rq,
		  struct str uri, struct str body, struct str *ret_head, struct str *ret_tail)
{
	const char *host = rq->host;
	struct str fields = rq->headers;
	char length[48] = "";

	for (const struct conf_check_header *h = rq->fields; h; h = h->next) {
		struct str v = field_value(r, h);

		if (v.p)
			fields = arena_printf(a, STR_FMT STR_FMT ": " STR_FMT "\r\n",
					      STR_ARG(fields), STR_ARG(h->name), STR_ARG(v));
		if (!v.p || !fields.p)
			return -ENOMEM;
	}
	if (body.len)
		snprintf(length, sizeof(length), "Content-Length: %zu\r\n", body.len);
	*ret_head = arena_printf(a, "%s " STR_FMT " %s\r\n%s%s%s" STR_FMT "%sConnection: close\r\n",
				 rq->method ? rq->method : "OPTIONS", STR_ARG(uri),
				 rq->version ? rq->version : "HTTP/1.0", host ? "Host: " : "",
				 host ? host : "", host ? "\r\n" : "", STR_ARG(fields), length);
	*ret_tail = arena_printf(a, "\r\n" STR_FMT, STR_ARG(body));
	return ret_head->p && ret_tail->p ? 0 : -ENOMEM;
}

int check_prepare_send(struct check_run *r, const struct check_step *s)
{
	const struct conf_check_request *rq = s->request;
	struct str uri, body;

	r->method = s->method;
	r->send = s->bytes.p ? s->bytes : r->target.send;
	r->tail = s->tail;
	if (s->conf && s->conf->send_fmt) {
		r->send = check_format(r, s->conf->send_fmt);
		if (!r->send.p)
			return -ENOMEM;
		if (s->conf->is_send_hex)
			r->send = unhex(&r->arena, r->send);
		return r->send.p ? 0 : -EILSEQ;
	}
	if (!rq)
		return 0;
	uri = check_text(r, rq->uri_fmt, str_from_cstr(rq->uri ? rq->uri : "/"));
	body = check_text(r, rq->body_fmt, rq->body);
	if ((rq->uri_fmt && !uri.p) || (rq->body_fmt && !body.p))
		return -ENOMEM;
	if (rq->uri_fmt && !is_target(uri))
		return -EINVAL;
	return check_request(r, &r->arena, rq, uri, body, &r->send, &r->tail);
}

/* --- the answer's fields ---------------------------------------------------------------------------- */

static bool is_text(struct check_run *r, const struct conf_check_text *t, const struct regex *re,
		    struct str in, bool icase)
{
	size_t pairs[REGEX_PAIRS * 2];
	struct str want = check_text(r, t->fmt, t->text);
	bool fits = in.len >= want.len;
	size_t at = 0;

	switch ((enum conf_check_match)t->how) {
	case CHECK_MATCH_REG:
		return regex_find(re, in, 0, pairs) > 0;
	case CHECK_MATCH_STR:
		fits = in.len == want.len;
		break;
	case CHECK_MATCH_BEG:
		break;
	case CHECK_MATCH_END:
		at = fits ? in.len - want.len : 0;
		break;
	case CHECK_MATCH_SUB:
		for (; fits && at + want.len <= in.len; at++)
			if (icase ? str_is_case_eq(str_sub(in, at, want.len), want)
				  : str_is_eq(str_sub(in, at, want.len), want))
				return true;
		return false;
	}
	in = str_sub(in, at, want.len);
	return fits && (icase ? str_is_case_eq(in, want) : str_is_eq(in, want));
}

/* hdr: each element of a list counts; fhdr: the line as it is. */
static bool is_value(struct check_run *r, const struct check_step *s, struct str value)
{
	const struct conf_expect *e = s->expect;

	if (!e->has_value)
		return true;
	if (e->what == EXPECT_FHDR)
		return is_text(r, &e->value, s->re_value, value, false);
	while (value.p) {
		struct str item = str_cut(&value, ',');

		if (is_text(r, &e->value, s->re_value, str_trim(item), false))
			return true;
	}
	return false;
}

bool check_has_field(struct check_run *r, const struct check_step *s)
{
	for (unsigned i = 0; i < r->msg.n_fields; i++) {
		const struct http_field *f = &r->msg.fields[i];

		/* Names have no case. */
		if (!f->is_removed && is_text(r, &s->expect->name, s->re, f->name, true) &&
		    is_value(r, s, f->value))
			return true;
	}
	return false;
}
