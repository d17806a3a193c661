/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers of our own: errors, deny and return, redirects, monitor pages. Built as a message in the
 * stream's arena, which http-after-response rules may still change, and sent like any response; the
 * client's connection lives on when the request was read to its end.
 */
#include <errno.h>

#include "proxy/worker_priv.h"

#define ANSWER_FIELDS 32 /* room for fields; edits may go beyond */

static const struct error_text {
	uint16_t status;
	const char *reason, *text;
} error_texts[] = {
	{ 200, "OK", "Service ready." },
	{ 400, "Bad request", "Your browser sent an invalid request." },
	{ 401, "Unauthorized", "You need a valid user and password to access this content." },
	{ 403, "Forbidden", "Request forbidden by administrative rules." },
	{ 404, "Not Found", "The resource could not be found." },
	{ 405, "Method Not Allowed",
	  "A request was made of a resource using a request method not supported by that "
	  "resource" },
	{ 407, "Unauthorized", "You need a valid user and password to access this content." },
	{ 408, "Request Time-out", "Your browser didn't send a complete request in time." },
	{ 410, "Gone", "The resource is no longer available and will not be available again." },
	{ 413, "Payload Too Large", "The request entity exceeds the maximum allowed." },
	{ 425, "Too Early", "Your browser sent early data." },
	{ 429, "Too Many Requests", "You have sent too many requests in a given amount of time." },
	{ 431, "Request Header Fields Too Large", "The header fields exceed the maximum allowed." },
	{ 500, "Internal Server Error", "An internal server error occurred." },
	{ 501, "Not Implemented", "The server does not support the functionality required." },
	{ 502, "Bad Gateway", "The server returned an invalid or incomplete response." },
	{ 503, "Service Unavailable", "No server is available to handle this request." },
	{ 504, "Gateway Time-out", "The server didn't respond in time." },
};

static struct str error_reason(unsigned status)
{
	for (size_t i = 0; i < ARRAY_SIZE(error_texts); i++)
		if (error_texts[i].status == status)
			return str_from_cstr(error_texts[i].reason);
	return http_status_reason(status);
}

/* --- making ------------------------------------------------------------------------------------------ */

static struct http_msg *answer_nomem(struct stream *st)
{
	ctr_add(&st->w->ctr->alloc_failures, 1);
	st->local = (struct local_answer){ 0 };
	return NULL;
}

struct http_msg *answer_new(struct stream *st, unsigned status)
{
	struct http_msg *m = arena_alloc(&st->arena, sizeof(*m));

	if (!m || http_msg_init(m, &st->arena, ANSWER_FIELDS))
		return answer_nomem(st);
	m->flags = HTTP_MSG_RESPONSE;
	m->major = 1;
	m->minor = 1;
	m->status = (uint16_t)status;
	m->reason = error_reason(status);
	st->local = (struct local_answer){ .msg = m, .body = STR("") };
	return m;
}

void answer_field(struct stream *st, const char *name, struct str value)
{
	struct http_msg *m = st->local.msg;
	int r = m ? http_msg_add(m, str_from_cstr(name), value) : 0;

	/* A value that would break out of its line is left out. */
	if (r == -EINVAL || r == -ENOSPC)
		STREAM_COUNT(st, failed_rewrites, 1);
	else if (r)
		answer_nomem(st);
}

static void answer_built_in(struct stream *st, unsigned status)
{
	const char *text = "";

	for (size_t i = 0; i < ARRAY_SIZE(error_texts); i++)
		if (error_texts[i].status == status)
			text = error_texts[i].text;
	if (!answer_new(st, status))
		return;
	st->local.body = arena_printf(&st->arena,
				      "<html><body><h1>%u " STR_FMT "</h1>\n%s\n</body></html>\n",
				      status, STR_ARG(st->local.msg->reason), text);
	answer_field(st, "cache-control", STR("no-cache"));
	answer_field(st, "content-type", STR("text/html"));
	if (!st->local.body.p)
		answer_nomem(st);
}

/* A file's head; the fields are copied, for rules may change them. */
static void answer_file(struct stream *st, const struct conf_reply *r)
{
	const struct http_msg *file = r->file;
	struct http_msg *m = answer_new(st, file->status);
	struct http_field *fields;

	if (!m)
		return;
	fields = arena_alloc(&st->arena, (file->n_fields + ANSWER_FIELDS) * sizeof(*fields));
	if (!fields) {
		answer_nomem(st);
		return;
	}
	memcpy(fields, file->fields, file->n_fields * sizeof(*fields));
	memcpy(m->first, file->first, sizeof(m->first));
	m->fields = fields;
	m->n_fields = file->n_fields;
	m->max_fields = m->cap_fields = (uint16_t)(file->n_fields + ANSWER_FIELDS);
	m->reason = file->reason;
	st->local.body = r->file_body;
}

static void answer_own(struct stream *st, const struct conf_reply *r, unsigned status)
{
	struct list *pos;

	if (!answer_new(st, status))
		return;
	list_for_each(pos, &r->headers) {
		const struct conf_reply_header *h = list_entry(pos, struct conf_reply_header, link);
		struct str value = logfmt_eval_str(h->value, stream_subject(st));

		if (value.p)
			answer_field(st, h->name, value);
		else
			answer_nomem(st);
	}
	if (r->body && st->local.msg) {
		struct str body = logfmt_eval_str(r->body, stream_subject(st));

		if (body.p)
			st->local.body = body;
		else
			answer_nomem(st);
	}
	if (st->local.body.len && r->content_type)
		answer_field(st, "content-type", str_from_cstr(r->content_type));
}

/* What a section says about a status; NULL: nothing. */
static const struct conf_reply *section_reply(const struct conf_proxy *px, int i)
{
	const struct conf_reply *r = px ? px->errors[i] : NULL;

	while (r && r->kind == REPLY_SECTION)
		r = r->otherwise;
	return r;
}

static void answer_by_kind(struct stream *st, const struct conf_reply *r, unsigned status)
{
	switch ((enum conf_reply_kind)r->kind) {
	case REPLY_FILE:
		answer_file(st, r);
		return;
	case REPLY_SILENT:
		st->local = (struct local_answer){ .is_silent = true };
		return;
	case REPLY_OWN:
		answer_own(st, r, status);
		return;
	case REPLY_DEFAULT:
	case REPLY_SECTION:
		answer_of_status(st, status);
	}
}

void answer_of_status(struct stream *st, unsigned status)
{
	int i = conf_error_index(status);
	const struct conf_reply *r = NULL;

	if (i >= 0)
		r = section_reply(st->be, i);
	if (i >= 0 && !r)
		r = section_reply(st->fe, i);
	if (r)
		answer_by_kind(st, r, r->status);
	else
		answer_built_in(st, status);
}

/* --- sending ------------------------------------------------------------------------------------------ */

/*
 * Can the client go on after this answer? What is left of the request's body is read as far as it is
 * here; a request that is still arriving ends with the connection.
 */
static bool answer_may_keep(struct stream *st)
{
	if (!(st->flags & STREAM_CLIENT_KEEP) || !(st->flags & STREAM_REQ_PARSED))
		return false;
	if (st->cl->must_close || st->w->is_draining)
		return false;
	if (st->req_flow.is_done)
		return true;
	if (st->req.framing == HTTP_BODY_NONE)
		return true;
	if (st->req_flow.is_active && st->req_flow.bytes)
		return false;
	if (!st->front.ops->rewind(&st->front))
		return false;
	flow_start(&st->req_flow, &st->front, NULL);
	st->req_flow.is_discarding = true;
	return flow_pump(&st->req_flow) == FLOW_DONE;
}

/* Content-Length, but where the status or the method forbids a body (RFC 9110 6.4.1, 8.6). */
static void answer_frame(struct stream *st)
{
	struct local_answer *a = &st->local;
	struct http_msg *m = a->msg;
	bool is_head = (st->flags & STREAM_REQ_PARSED) && st->req.method == HTTP_METHOD_HEAD;

	m->framing = HTTP_BODY_LENGTH;
	m->content_length = a->body.len;
	if (m->status != 204 && m->status != 304 && !is_head)
		return;
	m->framing = HTTP_BODY_NONE;
	if (is_head && m->status != 204)
		m->flags |= HTTP_MSG_LENGTH_ONLY;
	a->body = STR("");
}

enum step answer_send(struct stream *st)
{
	struct local_answer *a = &st->local;
	bool is_1_0 = (st->flags & STREAM_REQ_PARSED) && st->req.major == 1 && st->req.minor == 0;
	enum step step = STEP_WAIT;

	stream_drop_server_conn(st, true);
	if (!a->msg || !answer_may_keep(st))
		st->flags &= ~(uint32_t)STREAM_CLIENT_KEEP;
	if (a->msg && st->flags & STREAM_REQ_PARSED) {
		st->flags |= STREAM_ANSWERS;
		if (rsp_rules(st, RULES_HTTP_AFTER_RESPONSE, &step) == RULE_STEP)
			return step;
	}
	if (a->msg) {
		answer_frame(st);
		if (st->front.ops->write_head(&st->front, a->msg,
					      !(st->flags & STREAM_CLIENT_KEEP) ? H1_CONN_CLOSE
					      : is_1_0				? H1_CONN_KEEP_ALIVE
										: H1_CONN_NONE))
			a->msg = NULL;
	}
	if (!a->msg) {
		stream_blame(st, a->is_silent ? 'L' : 'R');
		st->flags &= ~(uint32_t)STREAM_CLIENT_KEEP;
		return stream_go(st, PHASE_END);
	}
	stream_blame(st, 'L');
	st->status = a->msg->status;
	st->flags |= STREAM_INTERCEPTED | STREAM_RSP_STARTED;
	st->front.active_ns = loop_now(st->w->loop);
	return stream_go(st, PHASE_LOCAL);
}

enum step phase_local(struct stream *st)
{
	struct side *front = &st->front;
	struct str *rest = &st->local.body;
	ssize_t n = front->ops->write(front, rest, rest->len ? 1 : 0, true);

	if (n < 0)
		return stream_fail(st, n == -ENOMEM ? 'R' : 'C', 0);
	*rest = str_from(*rest, (size_t)n);
	if (rest->len || !side_is_flushed(front))
		return STEP_WAIT;
	return stream_go(st, PHASE_END);
}

enum step stream_answer_reply(struct stream *st, const struct conf_reply *r,
			      unsigned default_status)
{
	answer_by_kind(st, r, r->status ? r->status : default_status);
	return answer_send(st);
}

enum step stream_answer_status(struct stream *st, unsigned status)
{
	answer_of_status(st, status);
	return answer_send(st);
}
