/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HTTP/1 heads and chunks as bytes (RFC 9112). Field lines that came over HTTP/1 and were not changed are
 * still in the head buffer, mostly side by side: they are copied in runs, one memcpy each. Called by
 * streams and health checks; any thread, no allocation.
 */
#include <errno.h>

#include "http/http_priv.h"

/* Where the next byte goes; `is_full` once something did not fit, and then nothing is written any more. */
struct writer {
	char *p, *end;
	const char *run, *run_end; /* bytes of the head buffer that wait to be copied */
	bool is_full;
};

static inline void put(struct writer *w, const char *p, size_t n)
{
	if (unlikely(n > (size_t)(w->end - w->p))) {
		w->is_full = true;
		w->end = w->p;
		return;
	}
	if (n)
		memcpy(w->p, p, n);
	w->p += n;
}

#define PUT_LIT(w, lit) put(w, lit, sizeof(lit) - 1)

static inline void put_str(struct writer *w, struct str s)
{
	put(w, s.p, s.len);
}

static inline void flush_run(struct writer *w)
{
	if (w->run)
		put(w, w->run, (size_t)(w->run_end - w->run));
	w->run = NULL;
}

/* n bytes at p of the head buffer: joined to the run when they come right behind it. */
static inline void put_run(struct writer *w, const char *p, size_t n)
{
	if (!w->run || w->run_end != p) {
		flush_run(w);
		w->run = p;
	}
	w->run_end = p + n;
}

static void put_u64(struct writer *w, uint64_t v)
{
	char digits[20];
	unsigned n = sizeof(digits);

	do
		digits[--n] = (char)('0' + v % 10);
	while (v /= 10);
	put(w, digits + n, sizeof(digits) - n);
}

/* --- fields ------------------------------------------------------------------------------------ */

#define SKIPPED                                                             \
	(1u << HTTP_FIELD_CONNECTION | 1u << HTTP_FIELD_CONTENT_LENGTH |    \
	 1u << HTTP_FIELD_TRANSFER_ENCODING | 1u << HTTP_FIELD_KEEP_ALIVE | \
	 1u << HTTP_FIELD_PROXY_CONNECTION)

/* Is the line in the head buffer, just as we would write it? Exchanged slices point elsewhere. */
static inline bool is_as_received(const struct http_field *f)
{
	const char *line = f->name.p;

	return f->line_len && f->value.p == line + f->name.len + 2 &&
	       f->value.p + f->value.len + 2 == line + f->line_len;
}

static inline void put_fields(struct writer *w, const struct http_field *f, unsigned n,
			      uint32_t skipped)
{
	for (const struct http_field *end = f + n; f < end; f++) {
		if (f->is_removed || skipped >> f->id & 1)
			continue;
		if (likely(is_as_received(f))) {
			put_run(w, f->name.p, f->line_len);
			continue;
		}
		flush_run(w);
		put_str(w, f->name);
		PUT_LIT(w, ": ");
		put_str(w, f->value);
		PUT_LIT(w, "\r\n");
	}
	flush_run(w);
}

static void put_framing(struct writer *w, const struct http_msg *m)
{
	if (m->framing == HTTP_BODY_CHUNKED) {
		PUT_LIT(w, "Transfer-Encoding: chunked\r\n");
	} else if (m->framing == HTTP_BODY_LENGTH ||
		   (m->framing == HTTP_BODY_NONE && m->flags & HTTP_MSG_LENGTH_ONLY)) {
		PUT_LIT(w, "Content-Length: ");
		put_u64(w, m->content_length);
		PUT_LIT(w, "\r\n");
	}
}

/* A TE field has to be nominated (RFC 9110 10.1.4), whatever else is said. */
static void put_connection(struct writer *w, const struct http_msg *m, unsigned conn)
{
	static const struct str lines[2][4] = {
		{
			[H1_CONN_NONE] = { NULL, 0 },
#define LINE(text) { text, sizeof(text) - 1 }
			[H1_CONN_CLOSE] = LINE("Connection: close\r\n"),
			[H1_CONN_KEEP_ALIVE] = LINE("Connection: keep-alive\r\n"),
			[H1_CONN_UPGRADE] = LINE("Connection: Upgrade\r\n"),
		},
		{
			[H1_CONN_NONE] = LINE("Connection: TE\r\n"),
			[H1_CONN_CLOSE] = LINE("Connection: close, TE\r\n"),
			[H1_CONN_KEEP_ALIVE] = LINE("Connection: keep-alive, TE\r\n"),
			[H1_CONN_UPGRADE] = LINE("Connection: Upgrade, TE\r\n"),
#undef LINE
		},
	};

	put_str(w, lines[http_msg_has(m, HTTP_FIELD_TE)][conn]);
}

static void put_rest(struct writer *w, const struct http_msg *m, unsigned conn)
{
	uint32_t skipped = SKIPPED;

	if (conn != H1_CONN_UPGRADE)
		skipped |= 1u << HTTP_FIELD_UPGRADE;
	put_fields(w, m->fields, m->n_fields, skipped);
	put_framing(w, m);
	put_connection(w, m, conn);
	PUT_LIT(w, "\r\n");
}

/* --- heads ------------------------------------------------------------------------------------- */

#define VERSION_LEN 8 /* "HTTP/1.1" */

static bool is_http10(const struct http_msg *m)
{
	return m->major == 1 && m->minor == 0;
}

static void put_request(struct writer *w, const struct http_msg *m, unsigned conn)
{
	struct str path = m->method == HTTP_METHOD_CONNECT ? m->authority : m->path;
	struct str line = m->start_line;

	/* Method and target are where they were read, and the version is one we write. */
	if (line.p && line.p == m->method_text.p && path.p == line.p + m->method_text.len + 1 &&
	    path.p + path.len + 1 + VERSION_LEN == line.p + line.len && m->minor <= 1) {
		put_run(w, line.p, line.len + 2);
	} else {
		put_str(w, m->method_text);
		PUT_LIT(w, " ");
		put_str(w, path);
		if (is_http10(m))
			PUT_LIT(w, " HTTP/1.0\r\n");
		else
			PUT_LIT(w, " HTTP/1.1\r\n");
	}
	put_rest(w, m, conn);
}

static void put_response(struct writer *w, const struct http_msg *m, unsigned conn)
{
	char status[4] = { (char)('0' + m->status / 100 % 10), (char)('0' + m->status / 10 % 10),
			   (char)('0' + m->status % 10), ' ' };
	struct str line = m->start_line, reason = m->reason;

	if (line.len > VERSION_LEN + 4 && m->major == 1 && m->minor == 1 &&
	    reason.p == line.p + VERSION_LEN + 5 && reason.p + reason.len == line.p + line.len &&
	    memcmp(line.p + VERSION_LEN + 1, status, 4) == 0) {
		put_run(w, line.p, line.len + 2);
	} else {
		PUT_LIT(w, "HTTP/1.1 ");
		put(w, status, 4);
		put_str(w, reason.p ? reason : http_status_reason(m->status));
		PUT_LIT(w, "\r\n");
	}
	put_rest(w, m, conn);
}

static void put_last_chunk(struct writer *w, const struct http_msg *m, unsigned is_first)
{
	if (!is_first)
		PUT_LIT(w, "\r\n");
	PUT_LIT(w, "0\r\n");
	if ((m->flags & (HTTP_MSG_HAS_TRAILERS | HTTP_MSG_NO_TRAILERS)) == HTTP_MSG_HAS_TRAILERS)
		put_fields(w, m->trailers, m->n_trailers, SKIPPED);
	PUT_LIT(w, "\r\n");
}

/* All or nothing: what `put_part` began is forgotten when it does not fit, even after compacting. */
static inline int write_part(struct buf *out, const struct http_msg *m, unsigned arg,
			     void (*put_part)(struct writer *, const struct http_msg *, unsigned))
{
	for (;;) {
		struct writer w = { .p = buf_tail(out), .end = out->mem + out->cap };

		put_part(&w, m, arg);
		if (likely(!w.is_full)) {
			buf_commit(out, (uint32_t)(w.p - buf_tail(out)));
			return 0;
		}
		if (!out->head)
			return -ENOBUFS;
		buf_compact(out);
	}
}

int h1_write_request(struct buf *out, const struct http_msg *msg, enum h1_connection conn)
{
	return write_part(out, msg, conn, put_request);
}

int h1_write_response(struct buf *out, const struct http_msg *msg, enum h1_connection conn)
{
	return write_part(out, msg, conn, put_response);
}

/* --- chunks ------------------------------------------------------------------------------------ */

size_t h1_write_chunk_size(char out[20], uint64_t size, bool is_first)
{
	unsigned n_digits = size ? (67 - (unsigned)__builtin_clzll(size)) / 4 : 1;
	size_t n = 0;

	if (!is_first) {
		out[n++] = '\r';
		out[n++] = '\n';
	}
	while (n_digits--)
		out[n++] = "0123456789abcdef"[size >> 4 * n_digits & 15];
	out[n++] = '\r';
	out[n++] = '\n';
	return n;
}

int h1_write_last_chunk(struct buf *out, const struct http_msg *msg, bool is_first)
{
	return write_part(out, msg, is_first, put_last_chunk);
}
