/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rules that decide where a message ends and whom it is for: Content-Length, Transfer-Encoding,
 * Host, Connection, Upgrade, Expect (RFC 9112 3.2, 6; RFC 9110 7.2, 7.8, 8.6, 10.1.1). Called by the
 * readers once per head. A request that two recipients could cut differently is refused, never mended:
 * request smuggling lives on mending. No memory; any thread.
 */
#include "http/http_priv.h"

static bool refuse(struct http_fault *fault, enum http_error error, const char *at)
{
	fault->error = error;
	fault->at = at;
	return false;
}

/* --- body framing ------------------------------------------------------------------------------ */

/* 1*DIGIT, at most 2^64 - 1. strtoull() would take signs and white space. */
static bool parse_length(struct str s, uint64_t *ret)
{
	uint64_t n = 0;

	for (size_t i = 0; i < s.len; i++) {
		unsigned digit = (unsigned)(uint8_t)s.p[i] - '0';

		if (digit > 9 || __builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, digit, &n))
			return false;
	}
	*ret = n;
	return s.len > 0;
}

/* "5, 5", and "5" on several lines: equal values count once (RFC 9110 8.6), for who asked for it. */
static bool parse_repeated_length(const struct http_msg *m, uint64_t *ret, struct http_fault *fault)
{
	const struct http_field *f;
	bool has_value = false;
	unsigned from = 0;
	uint64_t n;

	while ((f = http_msg_find(m, HTTP_FIELD_CONTENT_LENGTH, from))) {
		struct str list = f->value, item;

		from = (unsigned)(f - m->fields) + 1;
		while (http_list_next(&list, &item)) {
			if (!parse_length(item, &n))
				return refuse(fault, HTTP_ERR_BAD_LENGTH, f->value.p);
			if (has_value && n != *ret)
				return refuse(fault, HTTP_ERR_LENGTH_CONFLICT, f->value.p);
			*ret = n;
			has_value = true;
		}
	}
	return has_value || refuse(fault, HTTP_ERR_BAD_LENGTH, NULL);
}

/* HT behind the number is white space to us and part of it to others (llhttp). */
static bool is_tab_behind(const struct http_field *f)
{
	const char *p = f->value.p + f->value.len; /* in the head buffer: up to CR */

	while (*p == ' ')
		p++;
	return *p == '\t';
}

static bool check_length(const struct http_msg *m, struct http_fields_seen seen, unsigned h1_flags,
			 uint64_t *ret, struct http_fault *fault)
{
	const struct http_field *f = &m->fields[m->first[HTTP_FIELD_CONTENT_LENGTH] - 1];

	if (!(seen.again & http_bit(HTTP_FIELD_CONTENT_LENGTH)) && parse_length(f->value, ret) &&
	    likely(!is_tab_behind(f)))
		return true;
	if (h1_flags & H1_ALLOW_VIOLATIONS)
		return parse_repeated_length(m, ret, fault);
	if (seen.again & http_bit(HTTP_FIELD_CONTENT_LENGTH))
		return refuse(fault, HTTP_ERR_LENGTH_CONFLICT, f->value.p);
	return refuse(fault, HTTP_ERR_BAD_LENGTH, f->value.p);
}

/*
 * One field, saying "chunked" and nothing else: other codings would have to be undone by us. White space at
 * the end is refused too, because there are recipients (llhttp) that then do not see "chunked"; the byte
 * behind the value is in the head buffer, white space or CR.
 */
static bool check_coding(const struct http_msg *m, struct http_fields_seen seen,
			 struct http_fault *fault)
{
	const struct http_field *f = &m->fields[m->first[HTTP_FIELD_TRANSFER_ENCODING] - 1];

	if (m->minor == 0)
		return refuse(fault, HTTP_ERR_TRANSFER_ENCODING_1_0, f->name.p);
	if (seen.again & http_bit(HTTP_FIELD_TRANSFER_ENCODING) ||
	    !str_is_case_eq(f->value, STR("chunked")) || f->value.p[f->value.len] != '\r')
		return refuse(fault, HTTP_ERR_BAD_TRANSFER_ENCODING, f->value.p);
	return true;
}

/* --- host -------------------------------------------------------------------------------------- */

static bool is_port(struct str s)
{
	unsigned n = 0;

	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		n = n * 10 + (unsigned)(s.p[i] - '0');
		if (n > 65535)
			return false;
	}
	return true;
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

/* "[" IPv6 "]": the character set is enough here, the address is only compared. */
static size_t ip6_len(struct str s)
{
	size_t i = 1;

	while (i < s.len && http_is(s.p[i], HTTP_CHAR_IP6))
		i++;
	return i > 2 && i < s.len && s.p[i] == ']' ? i + 1 : 0;
}

static size_t reg_name_len(struct str s)
{
	size_t i;

	for (i = 0; i < s.len; i++) {
		if (likely(http_is(s.p[i], HTTP_CHAR_HOST)))
			continue;
		if (s.p[i] == ':')
			break;
		if (s.p[i] != '%' || s.len - i < 3 || !is_hex(s.p[i + 1]) || !is_hex(s.p[i + 2]))
			return SIZE_MAX;
	}
	return i;
}

/* Cuts "host:port"; false when it is none. */
static bool split_authority(struct str s, struct str *ret_host, struct str *ret_port)
{
	size_t n = s.len && s.p[0] == '[' ? ip6_len(s) : reg_name_len(s);

	if (n > s.len || (n == 0 && s.len && s.p[0] == '['))
		return false;
	*ret_host = str_make(s.p, n);
	*ret_port = STR_NULL;
	if (n == s.len)
		return true;
	if (s.p[n] != ':')
		return false;
	*ret_port = str_make(s.p + n + 1, s.len - n - 1);
	return is_port(*ret_port);
}

bool http_is_authority(struct str s, bool need_host, bool need_port)
{
	struct str host, port;

	return split_authority(s, &host, &port) && (host.len || !need_host) &&
	       (port.len || !need_port);
}

static bool is_default_port(struct str scheme, struct str port)
{
	if (!port.len)
		return true;
	/* CONNECT has no scheme: clients leave out either port in Host. */
	if (!scheme.len)
		return str_is_eq(port, STR("80")) || str_is_eq(port, STR("443"));
	if (str_is_case_eq(scheme, STR("https")) || str_is_case_eq(scheme, STR("wss")))
		return str_is_eq(port, STR("443"));
	return str_is_eq(port, STR("80"));
}

/* Is `host` the same place as the target's authority? Both were found well-formed. */
static bool is_same_place(const struct http_msg *m, struct str host)
{
	struct str a_host, a_port, b_host, b_port;

	if (!split_authority(m->authority, &a_host, &a_port) ||
	    !split_authority(host, &b_host, &b_port) || !str_is_case_eq(a_host, b_host))
		return false;
	return str_is_eq(a_port, b_port) || (!b_port.len && is_default_port(m->scheme, a_port)) ||
	       (!a_port.len && is_default_port(m->scheme, b_port));
}

static bool check_host(const struct http_msg *m, struct http_fields_seen seen, unsigned h1_flags,
		       struct http_fault *fault)
{
	const struct http_field *f;

	if (!m->first[HTTP_FIELD_HOST])
		return m->minor == 0 || refuse(fault, HTTP_ERR_NO_HOST, m->start_line.p);
	f = &m->fields[m->first[HTTP_FIELD_HOST] - 1];
	if (seen.again & http_bit(HTTP_FIELD_HOST) || !http_is_authority(f->value, false, false))
		return refuse(fault, HTTP_ERR_BAD_HOST, f->value.p);
	if (m->authority.len && !(h1_flags & H1_ALLOW_VIOLATIONS) && !is_same_place(m, f->value))
		return refuse(fault, HTTP_ERR_BAD_HOST, f->value.p);
	return true;
}

/* --- connection, upgrade, expect --------------------------------------------------------------- */

struct connection_options {
	bool close, keep_alive, upgrade;
};

static struct connection_options read_connection(const struct http_msg *m,
						 struct http_fields_seen seen)
{
	struct connection_options o = { false, false, false };
	const struct http_field *f;
	unsigned from = 0;

	while ((f = http_msg_find(m, HTTP_FIELD_CONNECTION, from))) {
		struct str list = f->value, item;

		/* What nearly every message says, without taking a list apart. */
		if (list.len == 10 && http_name_is(list.p, "keep-alive", 10)) {
			o.keep_alive = true;
			if (!(seen.again & http_bit(HTTP_FIELD_CONNECTION)))
				break;
		}
		from = (unsigned)(f - m->fields) + 1;
		while (http_list_next(&list, &item)) {
			o.close |= str_is_case_eq(item, STR("close"));
			o.keep_alive |= str_is_case_eq(item, STR("keep-alive"));
			o.upgrade |= str_is_case_eq(item, STR("upgrade"));
		}
	}
	return o;
}

static bool names_h2(const struct http_msg *m)
{
	return http_msg_list_has(m, HTTP_FIELD_UPGRADE, STR("h2c")) ||
	       http_msg_list_has(m, HTTP_FIELD_UPGRADE, STR("h2"));
}

static void set_connection_flags(struct http_msg *m, struct http_fields_seen seen)
{
	struct connection_options o = { false, false, false };

	if (m->first[HTTP_FIELD_CONNECTION])
		o = read_connection(m, seen);
	/* "close" wins over everything (RFC 9112 9.3). */
	if (!o.close && (m->minor > 0 || o.keep_alive))
		m->flags |= HTTP_MSG_KEEP_ALIVE;
	/*
	 * Not from HTTP/1.0 (RFC 9110 7.8), and not before a body: a server that switches at once would
	 * read the body as the new protocol. h2c would hide requests from us.
	 */
	if (o.upgrade && m->minor > 0 && m->first[HTTP_FIELD_UPGRADE] && !names_h2(m) &&
	    (m->framing == HTTP_BODY_NONE || m->framing == HTTP_BODY_TUNNEL ||
	     (m->framing == HTTP_BODY_LENGTH && m->content_length == 0)))
		m->flags |= HTTP_MSG_UPGRADE;
}

static bool check_expect(struct http_msg *m, struct http_fault *fault)
{
	const struct http_field *f;
	unsigned from = 0;

	while ((f = http_msg_find(m, HTTP_FIELD_EXPECT, from))) {
		from = (unsigned)(f - m->fields) + 1;
		if (!str_is_case_eq(f->value, STR("100-continue")))
			return refuse(fault, HTTP_ERR_BAD_EXPECT, f->value.p);
	}
	/* Ignored from HTTP/1.0 and where there is nothing to wait for (RFC 9110 10.1.1). */
	if (m->minor > 0 && (m->framing == HTTP_BODY_CHUNKED ||
			     (m->framing == HTTP_BODY_LENGTH && m->content_length)))
		m->flags |= HTTP_MSG_EXPECT_100;
	return true;
}

/* --- the two kinds of message ------------------------------------------------------------------ */

bool http_check_request(struct http_msg *m, struct http_fields_seen seen, unsigned h1_flags,
			struct http_fault *ret_fault)
{
	bool has_length = seen.once & http_bit(HTTP_FIELD_CONTENT_LENGTH);

	m->framing = HTTP_BODY_NONE;
	if (seen.once & http_bit(HTTP_FIELD_TRANSFER_ENCODING)) {
		if (!check_coding(m, seen, ret_fault))
			return false;
		if (has_length)
			return refuse(ret_fault, HTTP_ERR_LENGTH_CONFLICT,
				      m->fields[m->first[HTTP_FIELD_CONTENT_LENGTH] - 1].name.p);
		m->framing = HTTP_BODY_CHUNKED;
	} else if (has_length) {
		if (!check_length(m, seen, h1_flags, &m->content_length, ret_fault))
			return false;
		m->framing = HTTP_BODY_LENGTH;
	}
	/* What follows CONNECT is the tunnel: a body would be read as its first bytes (RFC 9110 9.3.6). */
	if (m->method == HTTP_METHOD_CONNECT &&
	    (m->framing == HTTP_BODY_CHUNKED || m->content_length))
		return refuse(ret_fault, HTTP_ERR_BAD_LENGTH, m->start_line.p);
	if (!check_host(m, seen, h1_flags, ret_fault))
		return false;
	set_connection_flags(m, seen);
	if (seen.once & http_bit(HTTP_FIELD_EXPECT))
		return check_expect(m, ret_fault);
	return true;
}

/* RFC 9112 6.3, in its order. */
static uint8_t response_framing(const struct http_msg *m, enum http_method req_method,
				bool is_chunked, bool has_length)
{
	if (m->status == 101)
		return HTTP_BODY_TUNNEL;
	if (req_method == HTTP_METHOD_CONNECT && m->status / 100 == 2)
		return HTTP_BODY_TUNNEL;
	if (req_method == HTTP_METHOD_HEAD || m->status / 100 == 1 || m->status == 204 ||
	    m->status == 304)
		return HTTP_BODY_NONE;
	if (is_chunked)
		return HTTP_BODY_CHUNKED;
	return has_length ? HTTP_BODY_LENGTH : HTTP_BODY_CLOSE;
}

bool http_check_response(struct http_msg *m, struct http_fields_seen seen, unsigned h1_flags,
			 enum http_method req_method, struct http_fault *ret_fault)
{
	bool is_chunked = seen.once & http_bit(HTTP_FIELD_TRANSFER_ENCODING);
	bool has_length = seen.once & http_bit(HTTP_FIELD_CONTENT_LENGTH);

	if (is_chunked && !check_coding(m, seen, ret_fault))
		return false;
	if (has_length && !check_length(m, seen, h1_flags, &m->content_length, ret_fault))
		return false;
	m->framing = response_framing(m, req_method, is_chunked, has_length);
	if (m->framing == HTTP_BODY_NONE && has_length && !is_chunked && m->status >= 200 &&
	    m->status != 204)
		m->flags |= HTTP_MSG_LENGTH_ONLY;
	else if (m->framing != HTTP_BODY_LENGTH)
		m->content_length = 0;
	set_connection_flags(m, seen);
	/* Both lengths: somebody before us may have cut it differently, so nothing may follow. */
	if (m->framing == HTTP_BODY_CLOSE || m->framing == HTTP_BODY_TUNNEL ||
	    (is_chunked && has_length))
		m->flags &= (uint16_t)~HTTP_MSG_KEEP_ALIVE;
	return true;
}
