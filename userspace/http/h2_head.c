/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HTTP/2 heads become messages. nghttp2 has refused what RFC 9113 8.2 and 8.3 forbid (order and number of
 * pseudo fields, capitals, connection-specific fields, lengths unlike the data); what is checked here is
 * what HTTP/1's reader checks: bytes of target and values, authority against Host, methods, limits. All
 * that is kept is one copy in the message's arena.
 */
#include <errno.h>

#include "http/h1_priv.h"
#include "http/h2_priv.h"

/* Pseudo fields beside the counted ones. */
#define PSEUDO_MAX 6
/* A head this many times too large is no mistake any more. */
#define BOMB_FACTOR 4

int h2_head_begin(struct h2_session *h)
{
	struct h2_head *head = &h->head;
	unsigned n = h->limits.max_fields + PSEUDO_MAX;

	head->len = 0;
	head->list_size = 0;
	head->n_fields = 0;
	head->error = HTTP_ERR_NONE;
	head->has_status = false;
	if (head->text)
		return 0;
	head->cap = h->limits.max_head + n;
	head->text = mem_alloc(head->cap);
	head->fields = mem_alloc(n * sizeof(*head->fields));
	head->cap_fields = n;
	return head->text && head->fields ? 0 : -ENOMEM;
}

void h2_head_add(struct h2_session *h, struct str name, struct str value)
{
	struct h2_head *head = &h->head;
	size_t size = name.len + value.len + 32;

	head->list_size += (uint32_t)size;
	if (head->list_size > h->limits.max_head) {
		head->error = HTTP_ERR_TOO_LARGE;
		if (head->list_size / BOMB_FACTOR > h->limits.max_head)
			h2_guard_end(h, H2_ABUSE_HEADERS);
		return;
	}
	if (head->n_fields == head->cap_fields) {
		if (!head->error)
			head->error = HTTP_ERR_TOO_MANY_FIELDS;
		return;
	}
	/* The 32 bytes that each field counts are more than the one that is added here. */
	head->fields[head->n_fields++] = (struct h2_raw_field){
		.at = head->len,
		.name_len = (uint32_t)name.len,
		.value_len = (uint32_t)value.len,
	};
	memcpy(head->text + head->len, name.p, name.len);
	if (value.len)
		memcpy(head->text + head->len + name.len, value.p, value.len);
	head->len += (uint32_t)(name.len + value.len);
	/* The framing rules look at the byte behind a value, which in HTTP/1 is there. */
	head->text[head->len++] = '\r';
	if (name.len == 7 && memcmp(name.p, ":status", 7) == 0)
		head->has_status = true;
}

size_t h2_head_size(const struct h2_session *h)
{
	return h->head.len;
}

/* --- reading ------------------------------------------------------------------------------------- */

struct head_reader {
	const struct h2_session *h;
	struct http_msg *m;
	const char *text; /* in the message's arena */
	struct http_fields_seen seen;
	struct str protocol, cookies;
	unsigned n_cookies;
	size_t cookies_len;
};

static bool set_pseudo(struct head_reader *r, struct str name, struct str value)
{
	struct http_msg *m = r->m;

	if (str_is_eq(name, STR(":method"))) {
		m->method_text = value;
		m->method = (uint8_t)http_method_from_text(value);
	} else if (str_is_eq(name, STR(":scheme"))) {
		m->scheme = value;
	} else if (str_is_eq(name, STR(":authority"))) {
		m->authority = value;
	} else if (str_is_eq(name, STR(":path"))) {
		m->path = value;
	} else if (str_is_eq(name, STR(":protocol"))) {
		r->protocol = value;
	} else if (str_is_eq(name, STR(":status"))) {
		for (size_t i = 0; i < value.len; i++)
			m->status = (uint16_t)(m->status * 10 + (uint8_t)value.p[i] - '0');
		return value.len == 3;
	} else {
		return false;
	}
	return true;
}

static enum http_error add_field(struct head_reader *r, struct str name, struct str value)
{
	struct http_msg *m = r->m;
	struct http_field *f;
	unsigned id;

	if (!http_is_token(name))
		return HTTP_ERR_BAD_FIELD_NAME;
	if (!http_is_value(value))
		return HTTP_ERR_BAD_FIELD_VALUE;
	if (m->n_fields >= m->max_fields)
		return HTTP_ERR_TOO_MANY_FIELDS;
	id = http_token_field_id(name.p, name.len);
	f = &m->fields[m->n_fields++];
	*f = (struct http_field){ .name = name, .value = value, .id = (uint8_t)id };
	if (id == HTTP_FIELD_OTHER)
		return HTTP_ERR_NONE;
	r->seen.again |= r->seen.once & http_bit((enum http_field_id)id);
	r->seen.once |= http_bit((enum http_field_id)id);
	if (!m->first[id])
		m->first[id] = m->n_fields;
	if (id == HTTP_FIELD_COOKIE) {
		r->n_cookies++;
		r->cookies_len += value.len + 2;
	}
	return HTTP_ERR_NONE;
}

/* Copies the head to the arena and takes it apart. */
static enum http_error read_fields(struct head_reader *r)
{
	const struct h2_head *head = &r->h->head;
	char *text = arena_alloc(r->m->arena, head->len ? head->len : 1);

	if (!text)
		return HTTP_ERR_NO_MEMORY;
	memcpy(text, head->text, head->len);
	r->text = text;
	if (head->error)
		return (enum http_error)head->error;
	for (unsigned i = 0; i < head->n_fields; i++) {
		const struct h2_raw_field *raw = &head->fields[i];
		struct str name = str_make(text + raw->at, raw->name_len);
		struct str value = str_make(name.p + raw->name_len, raw->value_len);
		enum http_error e = HTTP_ERR_NONE;

		if (name.len && name.p[0] == ':') {
			if (!set_pseudo(r, name, value))
				e = HTTP_ERR_BAD_START_LINE;
		} else {
			e = add_field(r, name, value);
		}
		if (e)
			return e;
	}
	return HTTP_ERR_NONE;
}

/* One Cookie field again, as everything but HTTP/2 wants it (RFC 9113 8.2.3). */
static enum http_error join_cookies(struct head_reader *r)
{
	struct http_msg *m = r->m;
	struct http_field *first = NULL;
	char *text, *p;

	if (r->n_cookies < 2)
		return HTTP_ERR_NONE;
	text = p = arena_alloc(m->arena, r->cookies_len);
	if (!text)
		return HTTP_ERR_NO_MEMORY;
	for (unsigned i = 0; i < m->n_fields; i++) {
		struct http_field *f = &m->fields[i];

		if (f->id != HTTP_FIELD_COOKIE)
			continue;
		if (first) {
			memcpy(p, "; ", 2);
			p += 2;
			f->is_removed = true;
		} else {
			first = f;
		}
		memcpy(p, f->value.p, f->value.len);
		p += f->value.len;
	}
	first->value = str_make(text, (size_t)(p - text));
	return HTTP_ERR_NONE;
}

static enum http_error check_path(const struct head_reader *r)
{
	const struct http_msg *m = r->m;
	struct str t = m->path;

	if (m->method == HTTP_METHOD_CONNECT && !r->protocol.len)
		return HTTP_ERR_NONE;
	if (!t.len || h1_scan_target_bytes(t.p, t.p + t.len) != t.p + t.len)
		return HTTP_ERR_BAD_TARGET;
	if (t.p[0] == '/' || (t.len == 1 && t.p[0] == '*' && m->method == HTTP_METHOD_OPTIONS))
		return HTTP_ERR_NONE;
	return HTTP_ERR_BAD_TARGET;
}

static enum http_error check_start(struct head_reader *r)
{
	struct http_msg *m = r->m;
	bool is_tunnel = m->method == HTTP_METHOD_CONNECT && !r->protocol.len;

	if (!http_is_token(m->method_text))
		return HTTP_ERR_BAD_METHOD;
	for (size_t i = 0; i < m->scheme.len; i++)
		if ((m->scheme.p[i] | 0x20) < 'a' || (m->scheme.p[i] | 0x20) > 'z')
			return HTTP_ERR_BAD_TARGET;
	/* No user information (RFC 9113 8.3.1). */
	if ((m->authority.len || is_tunnel) && !http_is_authority(m->authority, true, is_tunnel))
		return HTTP_ERR_BAD_TARGET;
	return check_path(r);
}

/* The first line as a person knows it, and the target in it: "https://host/path". */
static enum http_error make_start_line(struct head_reader *r)
{
	struct http_msg *m = r->m;
	bool is_tunnel = m->method == HTTP_METHOD_CONNECT && !r->protocol.len;
	bool has_origin = m->authority.len && m->scheme.len && m->path.len && m->path.p[0] == '/';
	struct str parts[7] = { m->method_text, STR(" ") };
	unsigned n = 2;
	size_t len = 0;
	char *p;

	if (has_origin) {
		parts[n++] = m->scheme;
		parts[n++] = STR("://");
	}
	if (has_origin || is_tunnel)
		parts[n++] = m->authority;
	if (!is_tunnel)
		parts[n++] = m->path;
	parts[n++] = STR(" HTTP/2.0");
	for (unsigned i = 0; i < n; i++)
		len += parts[i].len;
	p = arena_alloc(m->arena, len);
	if (!p)
		return HTTP_ERR_NO_MEMORY;
	m->start_line = str_make(p, len);
	for (unsigned i = 0; i < n; i++) {
		if (parts[i].len)
			memcpy(p, parts[i].p, parts[i].len);
		p += parts[i].len;
	}
	m->target = str_sub(m->start_line, m->method_text.len + 1, len - m->method_text.len - 10);
	return HTTP_ERR_NONE;
}

/* Where there is only :authority, HTTP/1 needs a Host field. */
static enum http_error make_host(struct head_reader *r)
{
	if (r->seen.once & http_bit(HTTP_FIELD_HOST) || !r->m->authority.len)
		return HTTP_ERR_NONE;
	return add_field(r, STR("host"), r->m->authority);
}

static bool may_have_body(const struct http_msg *m)
{
	return m->method == HTTP_METHOD_POST || m->method == HTTP_METHOD_PUT ||
	       m->method == HTTP_METHOD_PATCH;
}

static enum http_error request_framing(struct head_reader *r, bool is_end)
{
	struct http_fault fault = { HTTP_ERR_NONE, NULL };
	struct http_msg *m = r->m;
	bool is_tunnel = m->method == HTTP_METHOD_CONNECT;

	m->major = 2;
	m->minor = 1; /* for the rules, which know only HTTP/1: Host is required, and so on */
	if (r->protocol.len) /* its data is the tunnel, not a body */
		m->method = HTTP_METHOD_GET;
	if (!http_check_request(m, r->seen, 0, &fault))
		return fault.error;
	if (r->protocol.len)
		m->method = HTTP_METHOD_CONNECT;
	m->minor = 0;
	/* Both are matters of HTTP/1's connections. */
	m->flags &= (uint16_t)~(HTTP_MSG_UPGRADE | HTTP_MSG_KEEP_ALIVE);
	if (m->framing == HTTP_BODY_LENGTH && is_end && m->content_length)
		return HTTP_ERR_BAD_LENGTH;
	if (is_tunnel) {
		m->framing = HTTP_BODY_NONE;
		return HTTP_ERR_NONE;
	}
	if (m->framing == HTTP_BODY_NONE && !is_end) {
		m->framing = HTTP_BODY_CHUNKED;
		if (http_msg_has(m, HTTP_FIELD_EXPECT))
			m->flags |= HTTP_MSG_EXPECT_100;
	} else if (m->framing == HTTP_BODY_NONE && may_have_body(m)) {
		/* HTTP/1 servers want to be told that nothing follows. */
		m->framing = HTTP_BODY_LENGTH;
		m->content_length = 0;
	}
	return HTTP_ERR_NONE;
}

static int answer(enum http_error e, enum http_error *ret_error)
{
	*ret_error = e;
	if (e == HTTP_ERR_NONE)
		return 0;
	return e == HTTP_ERR_NO_MEMORY ? -ENOMEM : -EBADMSG;
}

int h2_read_request(struct h2_session *h, struct http_msg *m, bool is_end, struct str *ret_protocol,
		    enum http_error *ret_error)
{
	struct head_reader r = { .h = h, .m = m };
	enum http_error e;

	http_msg_reset(m);
	m->major = 2;
	e = read_fields(&r);
	if (!e)
		e = check_start(&r);
	if (!e)
		e = make_start_line(&r);
	if (!e)
		e = make_host(&r);
	if (!e)
		e = request_framing(&r, is_end);
	if (!e)
		e = join_cookies(&r);
	if (ret_protocol)
		*ret_protocol = r.protocol;
	return answer(e, ret_error);
}

static enum http_error response_framing(struct head_reader *r, bool is_end,
					enum http_method req_method)
{
	struct http_fault fault = { HTTP_ERR_NONE, NULL };
	struct http_msg *m = r->m;

	m->flags = HTTP_MSG_RESPONSE;
	m->major = 2;
	m->minor = 1;
	if (!http_check_response(m, r->seen, 0, req_method, &fault))
		return fault.error;
	m->minor = 0;
	m->flags |= HTTP_MSG_KEEP_ALIVE;
	if (m->framing == HTTP_BODY_CLOSE)
		m->framing = is_end ? HTTP_BODY_NONE : HTTP_BODY_CHUNKED;
	if (m->framing == HTTP_BODY_LENGTH && is_end && m->content_length)
		return HTTP_ERR_BAD_LENGTH;
	return HTTP_ERR_NONE;
}

int h2_read_response(struct h2_session *h, struct http_msg *m, bool is_end,
		     enum http_method req_method, enum http_error *ret_error)
{
	struct head_reader r = { .h = h, .m = m };
	enum http_error e;

	http_msg_reset(m);
	e = read_fields(&r);
	/* 101 does not exist in HTTP/2 (RFC 9113 8.6). */
	if (!e && (m->status < 100 || m->status == 101))
		e = HTTP_ERR_BAD_START_LINE;
	if (!e)
		e = response_framing(&r, is_end, req_method);
	return answer(e, ret_error);
}

int h2_read_trailers(struct h2_session *h, struct http_msg *m)
{
	const struct h2_head *head = &h->head;
	unsigned n = head->n_fields;
	char *text;

	m->n_trailers = 0;
	if (head->error || !m->arena)
		return -EBADMSG;
	if (n > H1_TRAILER_FIELDS_MAX)
		return -EBADMSG;
	text = arena_alloc(m->arena, head->len ? head->len : 1);
	m->trailers = arena_alloc(m->arena, (n ? n : 1) * sizeof(*m->trailers));
	m->cap_trailers = (uint16_t)(m->trailers ? n : 0);
	if (!text || !m->trailers)
		return -ENOMEM;
	memcpy(text, head->text, head->len);
	for (unsigned i = 0; i < n; i++) {
		const struct h2_raw_field *raw = &head->fields[i];
		struct str name = str_make(text + raw->at, raw->name_len);
		struct str value = str_make(name.p + raw->name_len, raw->value_len);

		if (!http_is_token(name) || !http_is_value(value) || !http_may_be_trailer(name))
			return -EBADMSG;
		m->trailers[m->n_trailers++] = (struct http_field){
			.name = name, .value = value, .id = (uint8_t)http_field_id(name)
		};
	}
	if (n)
		m->flags |= HTTP_MSG_HAS_TRAILERS;
	return 0;
}
