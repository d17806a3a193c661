/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers of our own: errors, deny and return, redirects, monitor pages. Built as text in the stream's
 * arena and sent like any response; the client's connection lives on when the request was read to its end.
 */
#include "proxy/worker_priv.h"

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

static struct str error_body(struct arena *a, unsigned status)
{
	struct str reason = error_reason(status);
	const char *text = "";

	for (size_t i = 0; i < ARRAY_SIZE(error_texts); i++)
		if (error_texts[i].status == status)
			text = error_texts[i].text;
	return arena_printf(a, "<html><body><h1>%u " STR_FMT "</h1>\n%s\n</body></html>\n", status,
			    STR_ARG(reason), text);
}

/*
 * Can the client go on after this answer? What is left of the request's body is read as far as it is
 * here; a request that is still arriving ends with the connection.
 */
static bool answer_may_keep(struct stream *st)
{
	if (!(st->flags & STREAM_CLIENT_KEEP) || !(st->flags & STREAM_REQ_PARSED))
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

/* Sends `text`, a whole answer. */
static enum step answer_send(struct stream *st, unsigned status, struct str text, bool keep)
{
	stream_drop_server_conn(st, true);
	if (!keep)
		st->flags &= ~(uint32_t)STREAM_CLIENT_KEEP;
	if (!text.p) {
		ctr_add(&st->w->ctr->alloc_failures, 1);
		stream_blame(st, 'R');
		st->flags &= ~(uint32_t)STREAM_CLIENT_KEEP;
		return stream_go(st, PHASE_END);
	}
	stream_blame(st, 'L');
	st->status = (uint16_t)status;
	st->flags |= STREAM_INTERCEPTED | STREAM_RSP_STARTED;
	st->front.ops->write_raw(&st->front, text, HTTP_BODY_NONE);
	st->front.active_ns = loop_now(st->w->loop);
	return stream_go(st, PHASE_LOCAL);
}

enum step phase_local(struct stream *st)
{
	struct side *front = &st->front;

	if (front->ops->write(front, NULL, 0, false) < 0)
		return stream_fail(st, 'C', 0);
	if (!side_is_flushed(front))
		return STEP_WAIT;
	return stream_go(st, PHASE_END);
}

enum step stream_answer_text(struct stream *st, unsigned status, struct str headers,
			     struct str type, struct str body)
{
	bool keep = answer_may_keep(st);
	bool is_head = (st->flags & STREAM_REQ_PARSED) && st->req.method == HTTP_METHOD_HEAD;
	bool is_1_0 = (st->flags & STREAM_REQ_PARSED) && st->req.major == 1 && st->req.minor == 0;
	struct str reason = error_reason(status), text;

	text = arena_printf(&st->arena,
			    "HTTP/1.1 %u " STR_FMT "\r\ncontent-length: %zu\r\n" STR_FMT
			    "%s" STR_FMT "%s%s\r\n" STR_FMT,
			    status, STR_ARG(reason), body.len, STR_ARG(headers),
			    type.len ? "content-type: " : "", STR_ARG(type), type.len ? "\r\n" : "",
			    !keep    ? "connection: close\r\n"
			    : is_1_0 ? "connection: keep-alive\r\n"
				     : "",
			    is_head ? 0 : (int)body.len, body.p ? body.p : "");
	return answer_send(st, status, text, keep);
}

static struct str reply_headers(struct stream *st, const struct conf_reply *r)
{
	struct str all = STR(""), value;
	struct list *pos;

	list_for_each(pos, &r->headers) {
		struct conf_reply_header *h = list_entry(pos, struct conf_reply_header, link);

		value = logfmt_eval_str(h->value, stream_subject(st));
		/* A value that would break out of its line is left out. */
		if (!value.p || str_find_char(value, '\r') != SIZE_MAX ||
		    str_find_char(value, '\n') != SIZE_MAX) {
			ctr_add(&st->fe_ctr->failed_rewrites, 1);
			continue;
		}
		all = arena_printf(&st->arena, STR_FMT "%s: " STR_FMT "\r\n", STR_ARG(all), h->name,
				   STR_ARG(value));
		if (!all.p)
			return STR_NULL;
	}
	return all;
}

enum step stream_answer_reply(struct stream *st, const struct conf_reply *r,
			      unsigned default_status)
{
	unsigned status = r->status ? r->status : default_status;
	struct str body, headers, type = STR("text/html");

	/* A file is sent as it is, and only its end is certain to be the end of the answer. */
	if (r->raw.p)
		return answer_send(st, status, r->raw, false);
	if (list_is_empty(&r->headers) && !r->body && !r->content_type)
		return stream_answer_status(st, status);
	headers = reply_headers(st, r);
	if (r->body) {
		body = logfmt_eval_str(r->body, stream_subject(st));
		type = r->content_type ? str_from_cstr(r->content_type) : STR("text/plain");
	} else if (r->content_type) {
		body = STR("");
		type = str_from_cstr(r->content_type);
	} else {
		body = status < 400 ? STR("") : error_body(&st->arena, status);
	}
	if (!headers.p || !body.p)
		return answer_send(st, status, STR_NULL, false);
	return stream_answer_text(st, status, headers, body.len ? type : STR(""), body);
}

enum step stream_answer_status(struct stream *st, unsigned status)
{
	const struct conf_proxy *px = st->be ? st->be : st->fe;
	int i = conf_error_index(status);
	struct str body;

	if (i >= 0 && !px->errors[i])
		px = st->fe;
	if (i >= 0 && px->errors[i]) {
		const struct conf_reply *r = px->errors[i];

		if (r->raw.p || r->body || r->content_type || !list_is_empty(&r->headers))
			return stream_answer_reply(st, r, status);
	}
	body = error_body(&st->arena, status);
	if (!body.p)
		return answer_send(st, status, STR_NULL, false);
	return stream_answer_text(st, status, STR("cache-control: no-cache\r\n"), STR("text/html"),
				  body);
}
