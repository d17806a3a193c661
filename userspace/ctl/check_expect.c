/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a server answered against what was expected. Looks only at the run's buffer; every byte there is the
 * peer's. Short descriptions are HAProxy's, because people search for them. Control thread.
 */
#include <errno.h>

#include "ctl/health_priv.h"

void check_desc(struct check_result *res, enum check_status status, const char *fmt, ...)
{
	va_list ap;

	res->status = status;
	va_start(ap, fmt);
	(void)vsnprintf(res->desc, sizeof(res->desc), fmt, ap);
	va_end(ap);
}

/* --- where we are ------------------------------------------------------------------------------- */

static void where_expect(struct check_run *r, const struct conf_expect *e, struct buf *b)
{
	struct str text = check_pattern(r, e);
	bool fits = true;

	switch (e->what) {
	case EXPECT_STRING:
		fits = buf_printf(b, " (expect string '" STR_FMT "')", STR_ARG(text));
		break;
	case EXPECT_BINARY:
		fits = buf_put(b, STR(" (expect binary '"));
		for (size_t i = 0; fits && i < text.len; i++)
			fits = buf_printf(b, "%02X", (unsigned char)text.p[i]);
		fits = fits && buf_put(b, STR("')"));
		break;
	case EXPECT_RSTRING:
		fits = buf_put(b, STR(" (expect regex)"));
		break;
	case EXPECT_RBINARY:
		fits = buf_put(b, STR(" (expect binary regex)"));
		break;
	}
	/* It is a description: what does not fit is left out. */
	(void)fits;
}

void check_where(struct check_run *r, char *out, size_t size)
{
	const struct check_step *s;
	struct buf b;

	buf_init(&b, out, (uint32_t)size - 1);
	if (r->prog->kind == CHECK_KIND_SCRIPT && r->step < r->prog->n_steps) {
		s = &r->prog->steps[r->step];
		if (!s->number) {
			(void)!buf_put(&b, STR(" at initial connection step of tcp-check"));
		} else {
			(void)!buf_printf(&b, " at step %u of tcp-check", s->number);
			if (s->op == CHECK_OP_CONNECT && s->conf->port)
				(void)!buf_printf(&b, " (connect port %u)", s->conf->port);
			else if (s->op == CHECK_OP_CONNECT)
				(void)!buf_put(&b, STR(" (connect)"));
			else if (s->op == CHECK_OP_VAR)
				(void)!buf_put(&b, STR(" (set-var)"));
			else if (s->op == CHECK_OP_SEND)
				(void)!buf_put(&b, STR(" (send)"));
			else
				where_expect(r, s->expect, &b);
			if (s->conf->comment)
				(void)!buf_printf(&b, " comment: '%s'", s->conf->comment);
		}
	}
	out[b.tail] = '\0';
}

static void add_comment(struct check_result *res, const struct check_step *s)
{
	size_t n = strlen(res->desc);

	if (s->conf && s->conf->comment)
		(void)snprintf(res->desc + n, sizeof(res->desc) - n, " comment: '%s'",
			       s->conf->comment);
}

/* --- contents ------------------------------------------------------------------------------------ */

/* A format that gives nothing to look for is not found. */
static bool is_found(struct check_run *r, const struct check_step *s, struct str in)
{
	size_t pairs[REGEX_PAIRS * 2];
	struct str want;

	if (s->re)
		return regex_find(s->re, in, 0, pairs) > 0;
	want = check_pattern(r, s->expect);
	return want.p && str_find(in, want) != SIZE_MAX;
}

/*
 * As HAProxy: absence is known at the end of the answer, or when `min-recv` bytes are there; until then more
 * may come.
 */
static enum check_verdict judge(struct check_run *r, const struct check_step *s, struct str in,
				bool is_last)
{
	const struct conf_expect *e = s->expect;

	if (!is_last && e->min_recv >= 0 && in.len < (size_t)e->min_recv)
		return CHECK_MORE;
	if (is_found(r, s, in))
		return e->negate ? CHECK_MISMATCH : CHECK_MATCH;
	if (!is_last && e->min_recv < 0)
		return CHECK_MORE;
	return e->negate ? CHECK_MATCH : CHECK_MISMATCH;
}

static enum check_verdict expect_bytes(struct check_run *r, const struct check_step *s,
				       struct check_result *res)
{
	struct str in = str_make(r->in, r->in_len);
	bool is_last = r->is_eof || r->in_len == CHECK_BUF_SIZE;
	const char *what = s->expect->negate ? "TCPCHK matched unwanted content"
					     : "TCPCHK did not match content";
	enum check_verdict v;

	if (r->is_eof && !in.len) {
		check_desc(res, CHECK_STATUS_L7RSP, "TCPCHK got an empty response at step %u",
			   s->number);
		add_comment(res, s);
		return CHECK_MISMATCH;
	}
	if (!in.len)
		return CHECK_MORE;
	v = judge(r, s, in, is_last);
	if (v != CHECK_MISMATCH)
		return v;
	if (s->expect->what == EXPECT_STRING)
		check_desc(res, CHECK_STATUS_L7RSP, "%s '" STR_FMT "' at step %u", what,
			   STR_ARG(str_sub(check_pattern(r, s->expect), 0, 40)), s->number);
	else
		check_desc(res, CHECK_STATUS_L7RSP, "%s (%s) at step %u", what,
			   s->expect->what == EXPECT_BINARY    ? "binary"
			   : s->expect->what == EXPECT_RSTRING ? "regex"
							       : "binary regex",
			   s->number);
	add_comment(res, s);
	return CHECK_MISMATCH;
}

/* --- HTTP ------------------------------------------------------------------------------------------ */

/* The head; answers 1xx come before the one that counts. 0, -EAGAIN, -EBADMSG, -ENOMEM. */
static int read_head(struct check_run *r)
{
	while (!r->is_head_read) {
		int n;

		if (!r->msg.arena && http_msg_init(&r->msg, &r->arena, 101))
			return -ENOMEM;
		n = h1_read_response(&r->head, str_make(r->in, r->in_len), &r->msg,
				     (enum http_method)r->method);
		if (n < 0)
			return n;
		if (n == 0)
			return r->is_eof || r->in_len == CHECK_BUF_SIZE ? -EBADMSG : -EAGAIN;
		if (r->msg.status / 100 == 1 && r->msg.status != 101) {
			memmove(r->in, r->in + n, r->in_len - (uint32_t)n);
			r->in_len -= (uint32_t)n;
			r->head = (struct h1_head){ .scanned = 0 };
			continue;
		}
		r->is_head_read = true;
		r->body_at = r->raw_at = (uint32_t)n;
		h1_body_init(&r->body, &r->msg);
	}
	return 0;
}

/*
 * Decodes in place: what a chunk holds moves down over the chunk lines before it, so the body becomes
 * one piece. 0, or -EBADMSG.
 */
static int read_body(struct check_run *r)
{
	while (!r->is_body_complete) {
		struct str in = str_make(r->in + r->raw_at, r->in_len - r->raw_at), data;
		size_t used = 0;

		switch (h1_body_next(&r->body, &r->msg, in, &used, &data)) {
		case H1_BODY_DATA:
			memmove(r->in + r->body_at + r->body_len, data.p, data.len);
			r->body_len += (uint32_t)data.len;
			break;
		case H1_BODY_END:
			r->is_body_complete = true;
			break;
		case H1_BODY_ERROR:
			return -EBADMSG;
		case H1_BODY_MORE:
			r->raw_at += (uint32_t)used;
			if (r->is_eof && !h1_body_eof(&r->body))
				return -EBADMSG;
			r->is_body_complete = r->is_eof || r->in_len == CHECK_BUF_SIZE;
			return 0;
		}
		r->raw_at += (uint32_t)used;
	}
	return 0;
}

struct str check_body(struct check_run *r)
{
	if (!r->is_head_read || (!r->is_body_complete && read_body(r)))
		return STR_NULL;
	return str_make(r->in + r->body_at, r->body_len);
}

static bool is_status(struct check_run *r, const struct check_step *s, unsigned status)
{
	char text[8];

	if (s->expect->what == EXPECT_RSTATUS) {
		snprintf(text, sizeof(text), "%u", status);
		return is_found(r, s, str_from_cstr(text));
	}
	for (unsigned i = 0; i < s->expect->n_status; i++)
		if (status >= s->expect->status[i].lo && status <= s->expect->status[i].hi)
			return true;
	return false;
}

static bool is_field(const struct conf_expect *e)
{
	return e->what == EXPECT_HDR || e->what == EXPECT_FHDR;
}

static enum check_verdict expect_http(struct check_run *r, const struct check_step *s,
				      struct check_result *res)
{
	int rc = read_head(r);
	enum check_verdict v;

	if (rc == -EAGAIN)
		return CHECK_MORE;
	if (rc == 0 && !is_field(s->expect) && s->expect->what != EXPECT_STATUS &&
	    s->expect->what != EXPECT_RSTATUS)
		rc = read_body(r);
	if (rc) {
		check_desc(res, rc == -ENOMEM ? CHECK_STATUS_SOCKERR : CHECK_STATUS_L7RSP, "%s",
			   rc == -ENOMEM ? "out of memory" : "");
		return CHECK_MISMATCH;
	}
	res->code = r->msg.status;
	if (r->target.is_404_stopping && r->msg.status == 404) {
		check_desc(res, CHECK_STATUS_L7OKC, "%s", "");
		return CHECK_DECIDED;
	}
	if (is_field(s->expect)) {
		if (check_has_field(r, s) != s->expect->negate)
			return CHECK_MATCH;
		check_desc(res, CHECK_STATUS_L7STS, "%s",
			   s->expect->negate ? "HTTP header pattern matched unwanted header"
					     : "HTTP header pattern did not match");
		add_comment(res, s);
		return CHECK_MISMATCH;
	}
	if (s->expect->what == EXPECT_STATUS || s->expect->what == EXPECT_RSTATUS) {
		if (is_status(r, s, r->msg.status) != s->expect->negate)
			return CHECK_MATCH;
		check_desc(res, CHECK_STATUS_L7STS, STR_FMT, STR_ARG(r->msg.reason));
		add_comment(res, s);
		return CHECK_MISMATCH;
	}
	v = judge(r, s, str_make(r->in + r->body_at, r->body_len), r->is_body_complete);
	if (v == CHECK_MISMATCH) {
		check_desc(res, CHECK_STATUS_L7RSP, "%s",
			   s->expect->negate ? "HTTP check matched unwanted content"
					     : "HTTP content check did not match");
		add_comment(res, s);
	}
	return v;
}

enum check_status check_says(unsigned says)
{
	static const uint8_t statuses[CHECK_SAYS_COUNT] = {
		[CHECK_SAYS_L4OK] = CHECK_STATUS_L4OK,
		[CHECK_SAYS_L6OK] = CHECK_STATUS_L6OK,
		[CHECK_SAYS_L7OK] = CHECK_STATUS_L7OK,
		[CHECK_SAYS_L7OKC] = CHECK_STATUS_L7OKC,
		[CHECK_SAYS_L4CON] = CHECK_STATUS_L4CON,
		[CHECK_SAYS_L6RSP] = CHECK_STATUS_L6RSP,
		[CHECK_SAYS_L7RSP] = CHECK_STATUS_L7RSP,
		[CHECK_SAYS_L7STS] = CHECK_STATUS_L7STS,
		[CHECK_SAYS_L4TOUT] = CHECK_STATUS_L4TOUT,
		[CHECK_SAYS_L6TOUT] = CHECK_STATUS_L6TOUT,
		[CHECK_SAYS_L7TOUT] = CHECK_STATUS_L7TOUT,
	};

	return statuses[says];
}

/* `status-code`: what the configuration calls the code of the result. */
void check_code(struct check_run *r, const struct conf_expect *e, struct check_result *res)
{
	struct sample v;

	if (!e->status_code || expr_eval(e->status_code, check_subject(r), &v) ||
	    sample_cast(&v, SAMPLE_SINT, &r->arena) || v.sint < 0 || v.sint > UINT16_MAX)
		return;
	res->code = (uint16_t)v.sint;
}

/* A mismatch in the words of the configuration, where it has some. */
static void say_error(struct check_run *r, const struct conf_expect *e, struct check_result *res)
{
	struct str text = e->on_error ? check_format(r, e->on_error) : STR_NULL;

	if (e->error_says)
		res->status = check_says(e->error_says);
	check_code(r, e, res);
	if (text.p)
		check_desc(res, res->status, STR_FMT, STR_ARG(text));
}

enum check_verdict check_expect(struct check_run *r, const struct check_step *s,
				struct check_result *res)
{
	enum check_verdict v;

	if (s->judge)
		return s->judge(str_make(r->in, r->in_len),
				r->is_eof || r->in_len == CHECK_BUF_SIZE, res);
	v = r->prog->kind == CHECK_KIND_HTTP ? expect_http(r, s, res) : expect_bytes(r, s, res);
	if (v == CHECK_MISMATCH)
		say_error(r, s->expect, res);
	return v;
}
