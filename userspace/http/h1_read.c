/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HTTP/1 heads: start lines and the entry points (RFC 9112 2 to 5). One pass over the bytes; field lines
 * are read by the scanner that suits the CPU (h1_scan.h), framing is judged in fields.c. Called by the
 * proxy's streams and by health checks; any thread, no allocation but for "http://host?query" targets.
 */
#include <errno.h>

#include "http/h1_priv.h"

const struct h1_scanner *h1_scanners[4] = { &h1_scanner_swar };

/* Before main(): read-only afterwards, so that workers need no ordering. */
__attribute__((constructor)) static void choose_scanner(void)
{
	unsigned n = 0;

#ifdef __x86_64__
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi"))
		h1_scanners[n++] = &h1_scanner_avx2;
#endif
	h1_scanners[n++] = &h1_scanner_swar;
	h1_scanners[n] = NULL;
}

HG_COLD enum h1_result h1_refuse_line(struct h1_cursor *c, const char *line, const char *p)
{
	bool is_value = memchr(line, ':', (size_t)(p - line));

	if (p == line && http_is_ws(*p))
		return h1_refuse(c, HTTP_ERR_OBS_FOLD, p);
	if (*p == '\n')
		return h1_refuse(c, HTTP_ERR_BARE_LF, p);
	if (*p == '\r' && (is_value || (p + 1 < c->end && p[1] != '\n')))
		return h1_refuse(c, HTTP_ERR_BARE_CR, p);
	return h1_refuse(c, is_value ? HTTP_ERR_BAD_FIELD_VALUE : HTTP_ERR_BAD_FIELD_NAME, p);
}

const char *h1_scan_target_bytes(const char *p, const char *end)
{
	while (p < end && *p >= '!' && *p <= '~' && *p != '#')
		p++;
	return p;
}

/* Still no control byte, no space and no byte that ends the name elsewhere. */
HG_COLD const char *h1_scan_unsafe_name(const char *p, const char *end)
{
	while (p < end && *p != ':' && (uint8_t)*p > ' ' && (uint8_t)*p != 0x7f)
		p++;
	return p;
}

/* --- start lines ------------------------------------------------------------------------------- */

#define VERSION_LEN 8 /* "HTTP/1.1" */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Expects "HTTP/1." DIGIT at c->p. MORE only when all that is there fits. */
static inline enum h1_result read_version(struct h1_cursor *c)
{
	static const char text[] = "HTTP/";
	size_t n = (size_t)(c->end - c->p), have = n < 5 ? n : 5;
	const char *p = c->p;

	if (likely(n >= VERSION_LEN && memcmp(p, "HTTP/1.", 7) == 0 && is_digit(p[7]))) {
		c->msg->major = 1;
		c->msg->minor = (uint8_t)(p[7] - '0');
		c->p += VERSION_LEN;
		return H1_DONE;
	}
	if (memcmp(p, text, have) != 0 || (n > 5 && !is_digit(p[5])) || (n > 6 && p[6] != '.') ||
	    (n > 7 && !is_digit(p[7])))
		return h1_refuse(c, HTTP_ERR_BAD_START_LINE, p);
	if (n > 5 && p[5] != '1')
		return h1_refuse(c, HTTP_ERR_BAD_VERSION, p);
	return H1_MORE;
}

/* CRLF that ends the start line which began at `line`. */
static inline enum h1_result read_line_end(struct h1_cursor *c, const char *line)
{
	const char *p = c->p;

	if (unlikely(c->end - p < 2)) {
		if (p == c->end || *p == '\r')
			return H1_MORE;
	} else if (likely(p[0] == '\r' && p[1] == '\n')) {
		c->msg->start_line = str_make(line, (size_t)(p - line));
		c->p = p + 2;
		return H1_DONE;
	}
	if (*p == '\n')
		return h1_refuse(c, HTTP_ERR_BARE_LF, p);
	return h1_refuse(c, *p == '\r' ? HTTP_ERR_BARE_CR : HTTP_ERR_BAD_START_LINE, p);
}

static inline enum h1_result read_method(struct h1_cursor *c)
{
	const char *p = c->p, *end = c->end;
	struct http_msg *m = c->msg;

	if (likely(end - p >= 5)) {
		if (memcmp(p, "GET ", 4) == 0) {
			m->method = HTTP_METHOD_GET;
			m->method_text = str_make(p, 3);
			c->p = p + 4;
			return H1_DONE;
		}
		if (memcmp(p, "POST ", 5) == 0) {
			m->method = HTTP_METHOD_POST;
			m->method_text = str_make(p, 4);
			c->p = p + 5;
			return H1_DONE;
		}
	}
	while (p < end && http_is(*p, HTTP_CHAR_TOKEN))
		p++;
	if (p == end)
		return H1_MORE;
	if (p == c->p && (*p == '\r' || *p == '\n'))
		return h1_refuse(c, *p == '\n' ? HTTP_ERR_BARE_LF : HTTP_ERR_BAD_START_LINE, p);
	if (*p != ' ' || p == c->p)
		return h1_refuse(c, HTTP_ERR_BAD_METHOD, p);
	m->method_text = str_make(c->p, (size_t)(p - c->p));
	m->method = (uint8_t)http_method_from_text(m->method_text);
	c->p = p + 1;
	return H1_DONE;
}

/* scheme "://" authority path-abempty [ "?" query ] */
static enum h1_result split_absolute(struct h1_cursor *c, struct str t)
{
	struct http_msg *m = c->msg;
	size_t n = 0;

	/* Longer alphabets are possible in a scheme (RFC 3986 3.1), but nobody proxies those. */
	while (n < t.len && (t.p[n] | 0x20) >= 'a' && (t.p[n] | 0x20) <= 'z')
		n++;
	if (!n || t.len - n < 3 || memcmp(t.p + n, "://", 3) != 0)
		return h1_refuse(c, HTTP_ERR_BAD_TARGET, t.p + n);
	m->scheme = str_make(t.p, n);
	t = str_from(t, n + 3);
	for (n = 0; n < t.len && t.p[n] != '/' && t.p[n] != '?' && t.p[n] != '#'; n++)
		;
	m->authority = str_make(t.p, n);
	/* No user information (RFC 9110 4.2.4), no empty host (4.2.1). */
	if (!http_is_authority(m->authority, true, false))
		return h1_refuse(c, HTTP_ERR_BAD_TARGET, t.p);
	m->path = str_from(t, n);
	if (!m->path.len) {
		m->path = m->method == HTTP_METHOD_OPTIONS ? STR("*") : STR("/");
	} else if (m->path.p[0] != '/') {
		if (!m->arena)
			return h1_refuse(c, HTTP_ERR_BAD_TARGET, m->path.p);
		m->path = arena_printf(m->arena, "/" STR_FMT, STR_ARG(m->path));
		if (!m->path.p)
			return h1_refuse(c, HTTP_ERR_NO_MEMORY, t.p);
	}
	return H1_DONE;
}

/* The four forms of RFC 9112 3.2. */
static inline enum h1_result split_target(struct h1_cursor *c)
{
	struct http_msg *m = c->msg;
	struct str t = m->target;

	if (unlikely(m->method == HTTP_METHOD_CONNECT)) {
		if (!http_is_authority(t, true, true))
			return h1_refuse(c, HTTP_ERR_BAD_TARGET, t.p);
		m->authority = t;
		return H1_DONE;
	}
	if (likely(t.p[0] == '/')) {
		m->path = t;
		return H1_DONE;
	}
	if (t.len == 1 && t.p[0] == '*') {
		if (m->method != HTTP_METHOD_OPTIONS)
			return h1_refuse(c, HTTP_ERR_BAD_TARGET, t.p);
		m->path = t;
		return H1_DONE;
	}
	return split_absolute(c, t);
}

static inline enum h1_result read_target(struct h1_cursor *c, const struct h1_scanner *scanner)
{
	const char *p = scanner->scan_target(c->p, c->end);

	if (unlikely(c->flags & H1_ALLOW_VIOLATIONS))
		while (p < c->end && (*p == '#' || (uint8_t)*p >= 0x80))
			p = scanner->scan_target(p + 1, c->end);
	if (p == c->end)
		return H1_MORE;
	if (*p == '\n')
		return h1_refuse(c, HTTP_ERR_BARE_LF, p);
	if (*p == '\r') /* HTTP/0.9, or a stray CR */
		return h1_refuse(c, HTTP_ERR_BAD_START_LINE, p);
	if (*p != ' ' || p == c->p)
		return h1_refuse(c, HTTP_ERR_BAD_TARGET, p);
	c->msg->target = str_make(c->p, (size_t)(p - c->p));
	c->p = p + 1;
	return H1_DONE;
}

static enum h1_result read_request_line(struct h1_cursor *c, const struct h1_scanner *scanner)
{
	const char *line;
	enum h1_result r;

	/* RFC 9112 2.2: old clients send an empty line after a body. */
	for (unsigned i = 0; i < 2 && c->p < c->end && *c->p == '\r'; i++) {
		if (c->end - c->p < 2)
			return H1_MORE;
		if (c->p[1] != '\n')
			return h1_refuse(c, HTTP_ERR_BARE_CR, c->p);
		c->p += 2;
	}
	line = c->p;
	if ((r = read_method(c)) != H1_DONE || (r = read_target(c, scanner)) != H1_DONE ||
	    (r = read_version(c)) != H1_DONE || (r = read_line_end(c, line)) != H1_DONE)
		return r;
	return split_target(c);
}

/* HTTP-version SP 3DIGIT [ SP reason ]; some servers leave out the second space. */
static enum h1_result read_status_line(struct h1_cursor *c)
{
	struct http_msg *m = c->msg;
	const char *line = c->p, *p, *end = c->end;
	enum h1_result r = read_version(c);

	if (r != H1_DONE)
		return r;
	p = c->p;
	if (p < end && *p != ' ')
		return h1_refuse(c, HTTP_ERR_BAD_START_LINE, p);
	for (unsigned i = 1; i <= 3 && p + i < end; i++) {
		if (!is_digit(p[i]))
			return h1_refuse(c, HTTP_ERR_BAD_START_LINE, p + i);
		m->status = (uint16_t)(m->status * 10 + (p[i] - '0'));
	}
	if (end - p <= 4)
		return H1_MORE;
	if (m->status < 100)
		return h1_refuse(c, HTTP_ERR_BAD_START_LINE, p + 1);
	p += 4;
	if (*p == ' ') {
		const char *reason = ++p;

		while (p < end && !http_is(*p, HTTP_CHAR_BAD_VALUE))
			p++;
		m->reason = str_make(reason, (size_t)(p - reason));
	}
	c->p = p;
	return read_line_end(c, line);
}

/* --- entry points ------------------------------------------------------------------------------ */

/* Is there an empty line (with or without CR) that begins at or behind `from`? */
static bool has_head_end(struct str in, size_t from)
{
	const char *p = in.p + from, *end = in.p + in.len;

	while (p < end && (p = memchr(p, '\n', (size_t)(end - p)))) {
		p++;
		if (p < end && (*p == '\n' || (*p == '\r' && p + 1 < end && p[1] == '\n')))
			return true;
	}
	return false;
}

/*
 * A head that trickles in is read again only when its end is there, or when its length has passed a power
 * of two (so that a bad one is still noticed early): linear work in all.
 */
static bool is_worth_reading(struct h1_head *h, struct str in)
{
	size_t from = h->scanned;

	if (!from || (in.len ^ from) > (in.len & from))
		return true;
	h->scanned = (uint32_t)in.len;
	return has_head_end(in, from > 3 ? from - 3 : 0);
}

static inline void begin(struct h1_cursor *c, const struct h1_head *h, struct str in,
			 struct http_msg *m)
{
	*c = (struct h1_cursor){
		.start = in.p, .p = in.p, .end = in.p + in.len, .msg = m, .flags = h->flags
	};
	http_msg_reset(m);
}

static int refused(struct h1_head *h, struct str in, struct http_fault fault)
{
	bool is_inside = fault.at && fault.at >= in.p && fault.at <= in.p + in.len;

	h->error = (uint8_t)fault.error;
	h->error_at = is_inside ? (uint32_t)(fault.at - in.p) : 0;
	return -EBADMSG;
}

static int finish(struct h1_head *h, struct str in, struct h1_cursor *c, enum h1_result r)
{
	size_t len = r == H1_DONE ? (size_t)(c->p - in.p) : in.len;

	if (unlikely(r == H1_REFUSED))
		return refused(h, in, c->fault);
	/* An incomplete head of max_bytes can't become a complete one within them. */
	if (unlikely((h->max_bytes && (r == H1_MORE ? len >= h->max_bytes : len > h->max_bytes)) ||
		     len > INT32_MAX))
		return refused(h, in, (struct http_fault){ HTTP_ERR_TOO_LARGE, in.p });
	return r == H1_DONE ? (int)len : 0;
}

/* Not worth reading, or empty: what finish() would say of an incomplete head. */
static int still_incomplete(struct h1_head *h, struct str in)
{
	struct h1_cursor c = { .p = in.p };

	return finish(h, in, &c, H1_MORE);
}

int h1_read_request(struct h1_head *h, struct str in, struct http_msg *msg)
{
	const struct h1_scanner *scanner = h1_scanners[0];
	struct h1_cursor c;
	enum h1_result r;

	if (unlikely(!in.len || (h->scanned && !is_worth_reading(h, in))))
		return still_incomplete(h, in);
	begin(&c, h, in, msg);
	r = read_request_line(&c, scanner);
	if (likely(r == H1_DONE))
		r = scanner->read_fields(&c);
	if (likely(r == H1_DONE) && !http_check_request(msg, c.seen, c.flags, &c.fault))
		r = H1_REFUSED;
	if (r == H1_MORE)
		h->scanned = (uint32_t)in.len;
	return finish(h, in, &c, r);
}

int h1_read_response(struct h1_head *h, struct str in, struct http_msg *msg,
		     enum http_method req_method)
{
	struct h1_cursor c;
	enum h1_result r;

	if (unlikely(!in.len || (h->scanned && !is_worth_reading(h, in))))
		return still_incomplete(h, in);
	begin(&c, h, in, msg);
	msg->flags = HTTP_MSG_RESPONSE;
	r = read_status_line(&c);
	if (likely(r == H1_DONE))
		r = h1_scanners[0]->read_fields(&c);
	if (likely(r == H1_DONE) &&
	    !http_check_response(msg, c.seen, c.flags, req_method, &c.fault))
		r = H1_REFUSED;
	if (r == H1_MORE)
		h->scanned = (uint32_t)in.len;
	return finish(h, in, &c, r);
}
