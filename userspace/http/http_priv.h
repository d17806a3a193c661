/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of http/ share: character classes, the field-name hash and the framing rules.
 * No state; any thread.
 */
#ifndef HTTP_HTTP_PRIV_H
#define HTTP_HTTP_PRIV_H

#include "http/http.h"

/* Character classes of RFC 9110 5.6.2 and RFC 3986. */
enum http_char_class {
	HTTP_CHAR_TOKEN = 1 << 0,
	HTTP_CHAR_HOST = 1 << 1, /* reg-name: unreserved, sub-delims; '%' has its own rule */
	HTTP_CHAR_IP6 = 1 << 2, /* inside [ ] */
	HTTP_CHAR_BAD_VALUE = 1 << 3, /* control bytes other than HT: never in a field value */
};
extern const uint8_t http_char[256];

static inline bool http_is(char c, unsigned char_class)
{
	return http_char[(uint8_t)c] & char_class;
}

static inline bool http_is_ws(char c)
{
	return c == ' ' || c == '\t';
}

bool http_is_token(struct str s);
bool http_is_value(struct str s); /* no control byte */

/* The name of a known field, padded so that whole words can be loaded. */
#define HTTP_NAME_MAX 24
struct http_name {
	uint8_t len;
	char text[HTTP_NAME_MAX];
};
extern const struct http_name http_names[HTTP_FIELD_COUNT];
/* enum http_field_id by http_name_hash(); a unit test looks up every name. */
extern const uint8_t http_name_slots[64];

static inline uint64_t http_load8(const char *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return v;
}

static inline uint32_t http_load4(const char *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return v;
}

/* Perfect over HTTP_FIELDS; the factors were found by trying. n >= 1. */
static inline unsigned http_name_hash(const char *p, size_t n)
{
	unsigned first = (uint8_t)p[0] | 0x20, last = (uint8_t)p[n - 1] | 0x20;

	return ((unsigned)n * 7 + first * 23 + last * 7) >> 2 & 63;
}

/*
 * `p` consists of token characters: then OR 0x20 folds case exactly, because no token character but
 * the capital of a letter maps to a letter, and none maps to '-' or a digit but itself.
 */
static inline bool http_name_is(const char *p, const char *lower, size_t n)
{
	const uint64_t fold8 = 0x2020202020202020u;
	const uint32_t fold4 = 0x20202020u;
	uint64_t diff;

	if (n >= 8) {
		diff = (http_load8(p) | fold8) ^ http_load8(lower);
		diff |= (http_load8(p + n - 8) | fold8) ^ http_load8(lower + n - 8);
		if (n > 16)
			diff |= (http_load8(p + 8) | fold8) ^ http_load8(lower + 8);
		return diff == 0;
	}
	if (n >= 4) {
		diff = (http_load4(p) | fold4) ^ http_load4(lower);
		diff |= (http_load4(p + n - 4) | fold4) ^ http_load4(lower + n - 4);
		return diff == 0;
	}
	for (size_t i = 0; i < n; i++)
		if ((p[i] | 0x20) != lower[i])
			return false;
	return true;
}

/* `p` consists of n >= 1 token characters. */
static inline enum http_field_id http_token_field_id(const char *p, size_t n)
{
	unsigned id = http_name_slots[http_name_hash(p, n)];

	if (http_names[id].len != n || !http_name_is(p, http_names[id].text, n))
		return HTTP_FIELD_OTHER;
	return (enum http_field_id)id;
}

/* Which known fields a head has, one bit for each enum http_field_id. */
_Static_assert(HTTP_FIELD_COUNT <= 32, "http_fields_seen has 32 bits");
struct http_fields_seen {
	uint32_t once, again;
};

static inline uint32_t http_bit(enum http_field_id id)
{
	return 1u << id;
}

/* A refusal and the byte that caused it. */
struct http_fault {
	enum http_error error;
	const char *at;
};

/*
 * After the fields of a head are read: checks them against RFC 9112 3.2 and 6 and RFC 9110 7.8 and 10.1.1,
 * sets framing, content_length and the flags. For heads read by HTTP/1: looks at bytes behind slices. `h1_flags`
 * as in struct h1_head. False: *ret_fault is set.
 */
HG_WUR bool http_check_request(struct http_msg *m, struct http_fields_seen seen, unsigned h1_flags,
			       struct http_fault *ret_fault);
HG_WUR bool http_check_response(struct http_msg *m, struct http_fields_seen seen, unsigned h1_flags,
				enum http_method req_method, struct http_fault *ret_fault);
/* uri-host [":" port]; `need_host`: the host may not be empty, `need_port`: nor the port. */
bool http_is_authority(struct str s, bool need_host, bool need_port);
/* May this field be a trailer (RFC 9110 6.5.1)? */
bool http_may_be_trailer(struct str name);

#endif
