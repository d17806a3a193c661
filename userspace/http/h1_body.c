/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HTTP/1 bodies: counted, chunked, up to the end of the connection (RFC 9112 6, 7.1). Gives slices of the
 * caller's bytes and keeps a few words of state, so input may be cut anywhere. Only trailers are
 * copied (to the message's arena). Called by streams for both directions; any thread.
 */
#include <errno.h>

#include "http/http_priv.h"

/* In the order in which a chunked body goes through them. */
enum body_state {
	BODY_DATA, /* not chunked, or within a chunk's data */
	BODY_DATA_CR, /* CRLF behind the data of a chunk */
	BODY_DATA_LF,
	BODY_SIZE_FIRST, /* chunk-size: at least one digit */
	BODY_SIZE,
	BODY_EXT_NAME_FIRST, /* behind ';' */
	BODY_EXT_NAME,
	BODY_EXT_VALUE_FIRST, /* behind '=' */
	BODY_EXT_TOKEN,
	BODY_EXT_QUOTED,
	BODY_EXT_ESCAPE, /* behind '\' in a quoted string */
	BODY_EXT_QUOTE_END, /* behind the closing quote */
	BODY_SIZE_LF, /* LF of the chunk-size line */
	BODY_TRAILER, /* start of a trailer line, or of the last line */
	BODY_END,
	BODY_FAILED,
};

#define SIZE_DIGITS_MAX 16 /* of 64 bits; leading zeros count */
#define SIZE_LINE_MAX	512 /* bytes of one chunk-size line with its extensions */
/*
 * Extension bytes that may be outstanding against data: one-byte chunks with long extensions would make a peer
 * send 500 bytes for each byte we forward, forever.
 */
#define EXT_DEBT_MAX 16384

void h1_body_init(struct h1_body *b, const struct http_msg *msg)
{
	*b = (struct h1_body){ .framing = msg->framing };
	switch (msg->framing) {
	case HTTP_BODY_CHUNKED:
		b->state = BODY_SIZE_FIRST;
		break;
	case HTTP_BODY_LENGTH:
		b->left = msg->content_length;
		b->state = b->left ? BODY_DATA : BODY_END;
		break;
	case HTTP_BODY_CLOSE:
	case HTTP_BODY_TUNNEL:
		b->left = UINT64_MAX;
		b->state = BODY_DATA;
		break;
	default:
		b->state = BODY_END;
	}
}

static enum h1_body_event fail(struct h1_body *b, enum http_error error)
{
	b->state = BODY_FAILED;
	b->error = (uint8_t)error;
	return H1_BODY_ERROR;
}

/* --- chunk-size lines -------------------------------------------------------------------------- */

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* ';' and CR end the size, a name and a value alike; other bytes end nothing. */
static uint8_t after_item(char c)
{
	if (c == ';')
		return BODY_EXT_NAME_FIRST;
	return c == '\r' ? BODY_SIZE_LF : BODY_FAILED;
}

/*
 * *( ";" token [ "=" ( token / quoted-string ) ] ), without the optional white space of RFC 9112 7.1.1:
 * recipients differ about it.
 */
static uint8_t next_ext_state(uint8_t state, char c)
{
	bool is_token = http_is(c, HTTP_CHAR_TOKEN);

	switch (state) {
	case BODY_EXT_NAME_FIRST:
		return is_token ? BODY_EXT_NAME : BODY_FAILED;
	case BODY_EXT_NAME:
		if (c == '=')
			return BODY_EXT_VALUE_FIRST;
		return is_token ? BODY_EXT_NAME : after_item(c);
	case BODY_EXT_VALUE_FIRST:
		if (c == '"')
			return BODY_EXT_QUOTED;
		return is_token ? BODY_EXT_TOKEN : BODY_FAILED;
	case BODY_EXT_TOKEN:
		return is_token ? BODY_EXT_TOKEN : after_item(c);
	case BODY_EXT_QUOTED:
		if (c == '"')
			return BODY_EXT_QUOTE_END;
		if (http_is(c, HTTP_CHAR_BAD_VALUE))
			return BODY_FAILED;
		return c == '\\' ? BODY_EXT_ESCAPE : BODY_EXT_QUOTED;
	case BODY_EXT_ESCAPE:
		return http_is(c, HTTP_CHAR_BAD_VALUE) ? BODY_FAILED : BODY_EXT_QUOTED;
	default: /* BODY_EXT_QUOTE_END */
		return after_item(c);
	}
}

/* The line is complete: `left` is the size. */
static bool begin_chunk(struct h1_body *b)
{
	/* Up to 32 bytes of any line are overhead that comes with honest chunks. */
	unsigned debt = b->ext_debt + (b->line_len > 32 ? b->line_len - 32u : 0);

	debt -= b->left < debt ? (unsigned)b->left : debt;
	if (debt > EXT_DEBT_MAX)
		return false;
	b->ext_debt = (uint16_t)debt;
	b->line_len = 0;
	b->state = b->left ? BODY_DATA : BODY_TRAILER;
	return true;
}

/* One byte of a chunk-size line, or of the CRLF before it. */
static bool step_size(struct h1_body *b, char c)
{
	int digit;

	switch (b->state) {
	case BODY_DATA_CR:
		b->state = BODY_DATA_LF;
		return c == '\r';
	case BODY_DATA_LF:
		b->state = BODY_SIZE_FIRST;
		return c == '\n';
	case BODY_SIZE_FIRST:
	case BODY_SIZE:
		digit = hex_value(c);
		if (digit >= 0) {
			b->left = b->left << 4 | (unsigned)digit;
			b->state = BODY_SIZE;
			return ++b->line_len <= SIZE_DIGITS_MAX;
		}
		if (b->state == BODY_SIZE_FIRST)
			return false;
		b->state = after_item(c);
		break;
	case BODY_SIZE_LF:
		return c == '\n' && begin_chunk(b);
	default:
		b->state = next_ext_state(b->state, c);
	}
	return b->state != BODY_FAILED && ++b->line_len <= SIZE_LINE_MAX;
}

/* --- trailers ---------------------------------------------------------------------------------- */

static int make_trailer_room(struct http_msg *m)
{
	struct http_field *trailers;
	unsigned cap = m->cap_trailers ? m->cap_trailers * 2u : 8;

	if (m->n_trailers < m->cap_trailers)
		return 0;
	if (m->n_trailers >= H1_TRAILER_FIELDS_MAX)
		return -ENOSPC;
	trailers = arena_alloc(m->arena, cap * sizeof(*trailers));
	if (!trailers)
		return -ENOMEM;
	if (m->n_trailers)
		memcpy(trailers, m->trailers, m->n_trailers * sizeof(*trailers));
	m->trailers = trailers;
	m->cap_trailers = (uint16_t)cap;
	return 0;
}

/* `line` without its CRLF. A message without an arena has its trailers checked and dropped. */
static enum http_error add_trailer(struct http_msg *m, struct str line)
{
	size_t n = str_find_char(line, ':');
	struct str name, value;
	struct http_field *f;
	int err;

	if (n == SIZE_MAX)
		return HTTP_ERR_BAD_TRAILER;
	name = str_make(line.p, n);
	value = str_from(line, n + 1);
	while (value.len && http_is_ws(value.p[0]))
		value = str_from(value, 1);
	while (value.len && http_is_ws(value.p[value.len - 1]))
		value.len--;
	if (!http_is_token(name) || !http_is_value(value) || !http_may_be_trailer(name))
		return HTTP_ERR_BAD_TRAILER;
	if (!m->arena)
		return HTTP_ERR_NONE;
	err = make_trailer_room(m);
	if (err)
		return err == -ENOMEM ? HTTP_ERR_NO_MEMORY : HTTP_ERR_BAD_TRAILER;
	name = arena_str(m->arena, name);
	value = value.len ? arena_str(m->arena, value) : STR("");
	if (!name.p || !value.p)
		return HTTP_ERR_NO_MEMORY;
	f = &m->trailers[m->n_trailers++];
	*f = (struct http_field){ .name = name,
				  .value = value,
				  .id = (uint8_t)http_field_id(name) };
	m->flags |= HTTP_MSG_HAS_TRAILERS;
	return HTTP_ERR_NONE;
}

/* Whole lines from `in`; a line that is not complete stays with the caller. */
static enum h1_body_event read_trailers(struct h1_body *b, struct http_msg *msg, struct str in,
					size_t *ret_used)
{
	for (;;) {
		struct str rest = str_from(in, *ret_used);
		size_t n = str_find_char(rest, '\n');
		enum http_error error;

		if (n == SIZE_MAX) {
			if (b->line_len + rest.len > H1_TRAILERS_MAX)
				return fail(b, HTTP_ERR_BAD_TRAILER);
			return H1_BODY_MORE;
		}
		if (n == 0 || rest.p[n - 1] != '\r' || b->line_len + n + 1 > H1_TRAILERS_MAX)
			return fail(b, HTTP_ERR_BAD_TRAILER);
		b->line_len = (uint16_t)(b->line_len + n + 1);
		*ret_used += n + 1;
		if (n == 1) {
			b->state = BODY_END;
			return H1_BODY_END;
		}
		error = add_trailer(msg, str_make(rest.p, n - 1));
		if (error != HTTP_ERR_NONE)
			return fail(b, error);
	}
}

/* --- the reader -------------------------------------------------------------------------------- */

static enum h1_body_event read_data(struct h1_body *b, struct str in, size_t *ret_used,
				    struct str *ret_data)
{
	size_t n = in.len - *ret_used;

	if (!n)
		return H1_BODY_MORE;
	if (n > b->left)
		n = (size_t)b->left;
	*ret_data = str_make(in.p + *ret_used, n);
	*ret_used += n;
	/* The end of the connection ends these, not a count. */
	if (b->framing == HTTP_BODY_CLOSE || b->framing == HTTP_BODY_TUNNEL)
		return H1_BODY_DATA;
	b->left -= n;
	if (!b->left)
		b->state = b->framing == HTTP_BODY_CHUNKED ? BODY_DATA_CR : BODY_END;
	return H1_BODY_DATA;
}

enum h1_body_event h1_body_next(struct h1_body *b, struct http_msg *msg, struct str in,
				size_t *ret_used, struct str *ret_data)
{
	*ret_used = 0;
	*ret_data = STR_NULL;
	for (;;) {
		switch (b->state) {
		case BODY_DATA:
			return read_data(b, in, ret_used, ret_data);
		case BODY_TRAILER:
			return read_trailers(b, msg, in, ret_used);
		case BODY_END:
			return H1_BODY_END;
		case BODY_FAILED:
			return H1_BODY_ERROR;
		default:
			if (*ret_used == in.len)
				return H1_BODY_MORE;
			if (!step_size(b, in.p[*ret_used]))
				return fail(b, HTTP_ERR_BAD_CHUNK);
			++*ret_used;
		}
	}
}

bool h1_body_eof(const struct h1_body *b)
{
	return b->state == BODY_END || (b->state == BODY_DATA && (b->framing == HTTP_BODY_CLOSE ||
								  b->framing == HTTP_BODY_TUNNEL));
}
