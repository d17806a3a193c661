/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * links: http base
 * HTTP/1 against itself. First byte: bit 0 response, bit 1 violations allowed, bits 2-3 the request's method;
 * the rest is a head, a body and what follows.
 *  - every scanner gives the same message or the same refusal;
 *  - a head that trickles in gives the same as one that is there at once;
 *  - what is written from an accepted message is accepted again, with the same meaning, and written the same;
 *  - a body cut into pieces gives the same bytes and ends at the same place.
 */
#include <stdlib.h>

#include "http/h1_priv.h"

#define MAX_FIELDS 32
#define OUT_MAX	   (1 << 18)

#define CHECK(cond)              \
	do {                     \
		if (!(cond))     \
			abort(); \
	} while (0)

struct input {
	bool is_response;
	uint8_t flags;
	enum http_method req_method;
	struct str bytes;
};

static int read_head(const struct input *in, struct h1_head *h, struct str bytes,
		     struct http_msg *m)
{
	h->flags = in->flags;
	if (in->is_response)
		return h1_read_response(h, bytes, m, in->req_method);
	return h1_read_request(h, bytes, m);
}

static void check_same_slice(struct str a, struct str b)
{
	CHECK(a.len == b.len && (!a.len || memcmp(a.p, b.p, a.len) == 0));
}

static void check_same(const struct http_msg *a, const struct http_msg *b)
{
	CHECK(a->flags == b->flags && a->major == b->major && a->minor == b->minor);
	CHECK(a->method == b->method && a->status == b->status && a->framing == b->framing);
	CHECK(a->content_length == b->content_length && a->n_fields == b->n_fields);
	check_same_slice(a->target, b->target);
	check_same_slice(a->path, b->path);
	check_same_slice(a->authority, b->authority);
	check_same_slice(a->reason, b->reason);
	check_same_slice(a->start_line, b->start_line);
	for (unsigned i = 0; i < a->n_fields; i++) {
		check_same_slice(a->fields[i].name, b->fields[i].name);
		check_same_slice(a->fields[i].value, b->fields[i].value);
		CHECK(a->fields[i].id == b->fields[i].id);
		CHECK(a->fields[i].line_len == b->fields[i].line_len);
		CHECK(a->fields[i].id == http_field_id(a->fields[i].name));
		CHECK(http_is_value(a->fields[i].value));
	}
	CHECK(memcmp(a->first, b->first, sizeof(a->first)) == 0);
}

static void check_scanners(const struct input *in, struct arena *arena, const struct http_msg *m,
			   int ret, const struct h1_head *head)
{
	const struct h1_scanner *best = h1_scanners[0];
	struct http_msg other;

	CHECK(!http_msg_init(&other, arena, MAX_FIELDS));
	for (const struct h1_scanner **s = h1_scanners + 1; *s; s++) {
		struct h1_head h = { 0 };

		h1_scanners[0] = *s;
		CHECK(read_head(in, &h, in->bytes, &other) == ret);
		CHECK(h.error == head->error && h.error_at == head->error_at);
		if (ret > 0)
			check_same(m, &other);
		h1_scanners[0] = best;
	}
}

static void check_trickle(const struct input *in, struct arena *arena, const struct http_msg *m,
			  int ret)
{
	struct h1_head h = { 0 };
	struct http_msg other;
	int r = 0;

	CHECK(!http_msg_init(&other, arena, MAX_FIELDS));
	for (size_t n = 1; n <= in->bytes.len && r == 0; n++) {
		r = read_head(in, &h, str_make(in->bytes.p, n), &other);
		/* An accepted head is never accepted before it is all there. */
		CHECK(r <= 0 || (r == ret && (size_t)r == n));
	}
	if (ret > 0) {
		CHECK(r == ret);
		check_same(m, &other);
	}
	/* What is refused at once may be refused later when it trickles, but is never accepted. */
	CHECK(ret >= 0 || r <= 0);
}

static void write_head(const struct input *in, const struct http_msg *m, struct buf *out)
{
	enum h1_connection conn = m->flags & HTTP_MSG_KEEP_ALIVE ? H1_CONN_KEEP_ALIVE
								 : H1_CONN_CLOSE;

	if (m->flags & HTTP_MSG_UPGRADE)
		conn = H1_CONN_UPGRADE;
	CHECK(!(in->is_response ? h1_write_response(out, m, conn)
				: h1_write_request(out, m, conn)));
}

static void check_written(const struct input *in, struct arena *arena, struct http_msg *m)
{
	static char mem[2][OUT_MAX];
	struct input again = *in;
	struct h1_head h = { 0 };
	struct http_msg other;
	struct buf out[2];

	http_msg_strip_hop_by_hop(m, m->flags & HTTP_MSG_UPGRADE);
	buf_init(&out[0], mem[0], OUT_MAX);
	buf_init(&out[1], mem[1], OUT_MAX);
	write_head(in, m, &out[0]);
	CHECK(!http_msg_init(&other, arena, MAX_FIELDS + 4));
	again.bytes = buf_str(&out[0]);
	CHECK(read_head(&again, &h, again.bytes, &other) == (int)buf_len(&out[0]));
	CHECK(other.framing == m->framing && other.content_length == m->content_length);
	CHECK(other.method == m->method && other.status == m->status);
	CHECK((other.flags & HTTP_MSG_UPGRADE) == (m->flags & HTTP_MSG_UPGRADE));
	check_same_slice(other.path, m->path);
	http_msg_strip_hop_by_hop(&other, other.flags & HTTP_MSG_UPGRADE);
	write_head(in, &other, &out[1]);
	check_same_slice(buf_str(&out[0]), buf_str(&out[1]));
}

struct body_result {
	enum h1_body_event end;
	size_t used, n_data, n_trailers;
	uint64_t hash; /* of the data */
	uint8_t error;
};

/* Gives `piece` bytes at a time; what is not used comes again with the next piece. */
static struct body_result read_body(struct http_msg *m, struct str in, size_t piece)
{
	struct body_result r = { .hash = 1469598103934665603u };
	size_t given = piece < in.len ? piece : in.len;
	struct h1_body b;

	m->n_trailers = 0;
	h1_body_init(&b, m);
	for (;;) {
		struct str data;
		size_t used;

		r.end = h1_body_next(&b, m, str_make(in.p + r.used, given - r.used), &used, &data);
		CHECK(used <= given - r.used);
		if (data.len)
			CHECK(r.end == H1_BODY_DATA && data.p >= in.p + r.used &&
			      data.p + data.len <= in.p + r.used + used);
		r.used += used;
		r.n_data += data.len;
		for (size_t i = 0; i < data.len; i++)
			r.hash = (r.hash ^ (uint8_t)data.p[i]) * 1099511628211u;
		if (r.end == H1_BODY_DATA)
			continue;
		if (r.end != H1_BODY_MORE || given == in.len)
			break;
		given = given + piece < in.len ? given + piece : in.len;
	}
	r.n_trailers = m->n_trailers;
	r.error = b.error;
	return r;
}

static void check_body(struct http_msg *m, struct str in)
{
	struct body_result whole = read_body(m, in, in.len);

	for (size_t piece = 1; piece <= 9; piece += 2) {
		struct body_result r = read_body(m, in, piece);

		CHECK(r.end == whole.end && r.error == whole.error);
		CHECK(r.n_data == whole.n_data && r.hash == whole.hash);
		CHECK(r.end == H1_BODY_ERROR || r.used == whole.used);
		CHECK(r.n_trailers == whole.n_trailers);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum http_method methods[] = { HTTP_METHOD_GET, HTTP_METHOD_HEAD,
						    HTTP_METHOD_CONNECT, HTTP_METHOD_POST };
	struct h1_head h = { 0 };
	struct arena arena;
	struct http_msg m;
	struct input in;
	int ret;

	if (!size || size > 4096)
		return 0;
	in.is_response = data[0] & 1;
	in.flags = data[0] & 2 ? H1_ALLOW_VIOLATIONS : 0;
	in.req_method = methods[data[0] >> 2 & 3];
	in.bytes = str_make((const char *)data + 1, size - 1);
	arena_init(&arena, 16384);
	CHECK(!http_msg_init(&m, &arena, MAX_FIELDS));
	ret = read_head(&in, &h, in.bytes, &m);
	CHECK(ret <= (int)in.bytes.len);
	CHECK((ret < 0) == (h.error != HTTP_ERR_NONE));
	check_scanners(&in, &arena, &m, ret, &h);
	check_trickle(&in, &arena, &m, ret);
	if (ret > 0) {
		check_body(&m, str_from(in.bytes, (size_t)ret));
		check_written(&in, &arena, &m);
	}
	arena_free(&arena);
	return 0;
}
