/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Methods, known field names, status reasons, error texts and character classes: constant tables and
 * their look-ups. The field-name hash is inlined into the reader (http_priv.h). Any thread.
 */
#include "http/http_priv.h"

#define T HTTP_CHAR_TOKEN
#define H HTTP_CHAR_HOST
#define I HTTP_CHAR_IP6
#define B HTTP_CHAR_BAD_VALUE

const uint8_t http_char[256] = {
	[0x00 ... 0x08] = B,
	[0x0a ... 0x1f] = B,
	[0x7f] = B,
	['!'] = T | H,
	['#'] = T,
	['$'] = T | H,
	['%'] = T,
	['&'] = T | H,
	['\''] = T | H,
	['('] = H,
	[')'] = H,
	['*'] = T | H,
	['+'] = T | H,
	[','] = H,
	['-'] = T | H,
	['.'] = T | H | I,
	['0' ... '9'] = T | H | I,
	[':'] = I,
	[';'] = H,
	['='] = H,
	['A' ... 'F'] = T | H | I,
	['G' ... 'Z'] = T | H,
	['^'] = T,
	['_'] = T | H,
	['`'] = T,
	['a' ... 'f'] = T | H | I,
	['g' ... 'z'] = T | H,
	['|'] = T,
	['~'] = T | H,
};

#undef T
#undef H
#undef I
#undef B

bool http_is_token(struct str s)
{
	for (size_t i = 0; i < s.len; i++)
		if (!http_is(s.p[i], HTTP_CHAR_TOKEN))
			return false;
	return s.len > 0;
}

bool http_is_value(struct str s)
{
	for (size_t i = 0; i < s.len; i++)
		if (http_is(s.p[i], HTTP_CHAR_BAD_VALUE))
			return false;
	return true;
}

/* --- methods ----------------------------------------------------------------------------------- */

static const struct str methods[] = { [HTTP_METHOD_OTHER] = { "", 0 },
#define X(name) [HTTP_METHOD_##name] = { #name, sizeof(#name) - 1 },
				      HTTP_METHODS(X)
#undef X
};

/* Methods are case-sensitive (RFC 9110 9.1). */
enum http_method http_method_from_text(struct str s)
{
	for (unsigned i = HTTP_METHOD_OTHER + 1; i < ARRAY_SIZE(methods); i++)
		if (methods[i].len == s.len && memcmp(methods[i].p, s.p, s.len) == 0)
			return (enum http_method)i;
	return HTTP_METHOD_OTHER;
}

struct str http_method_text(enum http_method m)
{
	return (unsigned)m < ARRAY_SIZE(methods) ? methods[m] : methods[HTTP_METHOD_OTHER];
}

/* --- fields ------------------------------------------------------------------------------------ */

const struct http_name http_names[HTTP_FIELD_COUNT] = {
#define X(name, name_text) \
	[HTTP_FIELD_##name] = { .len = sizeof(name_text) - 1, .text = name_text },
	HTTP_FIELDS(X)
#undef X
};

#define X(name, name_text)                                                              \
	_Static_assert(sizeof(name_text) - 1 <= HTTP_NAME_MAX && sizeof(name_text) > 2, \
		       "name length");
HTTP_FIELDS(X)
#undef X

#define SLOT(len, first, last) [((len) * 7 + (first) * 23 + (last) * 7) >> 2 & 63]
const uint8_t http_name_slots[64] = {
	SLOT(10, 'c', 'n') = HTTP_FIELD_CONNECTION,
	SLOT(14, 'c', 'h') = HTTP_FIELD_CONTENT_LENGTH,
	SLOT(17, 't', 'g') = HTTP_FIELD_TRANSFER_ENCODING,
	SLOT(4, 'h', 't') = HTTP_FIELD_HOST,
	SLOT(6, 'e', 't') = HTTP_FIELD_EXPECT,
	SLOT(7, 'u', 'e') = HTTP_FIELD_UPGRADE,
	SLOT(10, 'k', 'e') = HTTP_FIELD_KEEP_ALIVE,
	SLOT(2, 't', 'e') = HTTP_FIELD_TE,
	SLOT(7, 't', 'r') = HTTP_FIELD_TRAILER,
	SLOT(16, 'p', 'n') = HTTP_FIELD_PROXY_CONNECTION,
	SLOT(6, 'c', 'e') = HTTP_FIELD_COOKIE,
	SLOT(10, 's', 'e') = HTTP_FIELD_SET_COOKIE,
	SLOT(12, 'c', 'e') = HTTP_FIELD_CONTENT_TYPE,
	SLOT(16, 'c', 'g') = HTTP_FIELD_CONTENT_ENCODING,
	SLOT(15, 'a', 'g') = HTTP_FIELD_ACCEPT_ENCODING,
	SLOT(13, 'a', 'n') = HTTP_FIELD_AUTHORIZATION,
	SLOT(15, 'x', 'r') = HTTP_FIELD_X_FORWARDED_FOR,
	SLOT(13, 'c', 'l') = HTTP_FIELD_CACHE_CONTROL,
	SLOT(4, 'v', 'y') = HTTP_FIELD_VARY,
	SLOT(4, 'e', 'g') = HTTP_FIELD_ETAG,
	SLOT(8, 'l', 'n') = HTTP_FIELD_LOCATION,
	SLOT(4, 'd', 'e') = HTTP_FIELD_DATE,
	SLOT(12, 'm', 's') = HTTP_FIELD_MAX_FORWARDS,
	SLOT(14, 'h', 's') = HTTP_FIELD_HTTP2_SETTINGS,
	SLOT(7, 'r', 'r') = HTTP_FIELD_REFERER,
	SLOT(10, 'u', 't') = HTTP_FIELD_USER_AGENT,
};

enum http_field_id http_field_id(struct str name)
{
	enum http_field_id id;

	if (!name.len)
		return HTTP_FIELD_OTHER;
	id = http_token_field_id(name.p, name.len);
	/* The fold is exact for token characters only, and this name comes from anywhere. */
	if (id && !str_is_case_eq(name, http_field_name(id)))
		return HTTP_FIELD_OTHER;
	return id;
}

struct str http_field_name(enum http_field_id id)
{
	if ((unsigned)id >= HTTP_FIELD_COUNT)
		return STR("");
	return str_make(http_names[id].text, http_names[id].len);
}

/*
 * What RFC 9110 6.5.1 keeps out of trailers: framing, routing, request modifiers, authentication, content
 * format, and what describes the connection. A recipient that merged them would read another message.
 */
static const struct str not_trailers[] = {
#define N(text) { text, sizeof(text) - 1 }
	N("age"),
	N("accept-ranges"),
	N("content-location"),
	N("content-range"),
	N("expires"),
	N("forwarded"),
	N("if-match"),
	N("if-modified-since"),
	N("if-none-match"),
	N("if-range"),
	N("if-unmodified-since"),
	N("pragma"),
	N("proxy-authenticate"),
	N("proxy-authorization"),
	N("range"),
	N("retry-after"),
	N("via"),
	N("www-authenticate"),
	N("x-forwarded-host"),
	N("x-forwarded-proto"),
	N("x-real-ip"),
#undef N
};

bool http_may_be_trailer(struct str name)
{
	enum http_field_id id = http_field_id(name);

	if (id != HTTP_FIELD_OTHER)
		return id == HTTP_FIELD_ETAG;
	for (unsigned i = 0; i < ARRAY_SIZE(not_trailers); i++)
		if (str_is_case_eq(name, not_trailers[i]))
			return false;
	return true;
}

/* --- status and errors ------------------------------------------------------------------------- */

static const char *const reasons[] = {
	[100] = "Continue",
	[101] = "Switching Protocols",
	[102] = "Processing",
	[103] = "Early Hints",
	[200] = "OK",
	[201] = "Created",
	[202] = "Accepted",
	[203] = "Non-Authoritative Information",
	[204] = "No Content",
	[205] = "Reset Content",
	[206] = "Partial Content",
	[207] = "Multi-Status",
	[208] = "Already Reported",
	[226] = "IM Used",
	[300] = "Multiple Choices",
	[301] = "Moved Permanently",
	[302] = "Found",
	[303] = "See Other",
	[304] = "Not Modified",
	[305] = "Use Proxy",
	[307] = "Temporary Redirect",
	[308] = "Permanent Redirect",
	[400] = "Bad Request",
	[401] = "Unauthorized",
	[402] = "Payment Required",
	[403] = "Forbidden",
	[404] = "Not Found",
	[405] = "Method Not Allowed",
	[406] = "Not Acceptable",
	[407] = "Proxy Authentication Required",
	[408] = "Request Timeout",
	[409] = "Conflict",
	[410] = "Gone",
	[411] = "Length Required",
	[412] = "Precondition Failed",
	[413] = "Content Too Large",
	[414] = "URI Too Long",
	[415] = "Unsupported Media Type",
	[416] = "Range Not Satisfiable",
	[417] = "Expectation Failed",
	[421] = "Misdirected Request",
	[422] = "Unprocessable Content",
	[423] = "Locked",
	[424] = "Failed Dependency",
	[425] = "Too Early",
	[426] = "Upgrade Required",
	[428] = "Precondition Required",
	[429] = "Too Many Requests",
	[431] = "Request Header Fields Too Large",
	[451] = "Unavailable For Legal Reasons",
	[500] = "Internal Server Error",
	[501] = "Not Implemented",
	[502] = "Bad Gateway",
	[503] = "Service Unavailable",
	[504] = "Gateway Timeout",
	[505] = "HTTP Version Not Supported",
	[506] = "Variant Also Negotiates",
	[507] = "Insufficient Storage",
	[508] = "Loop Detected",
	[511] = "Network Authentication Required",
};

unsigned http_error_status(enum http_error e)
{
	static const uint16_t status[] = {
#define X(name, code, text) [HTTP_ERR_##name] = code,
		HTTP_ERRORS(X)
#undef X
	};

	return (unsigned)e < ARRAY_SIZE(status) ? status[e] : 500;
}

const char *http_error_text(enum http_error e)
{
	static const char *const texts[] = {
#define X(name, code, text) [HTTP_ERR_##name] = text,
		HTTP_ERRORS(X)
#undef X
	};

	return (unsigned)e < ARRAY_SIZE(texts) ? texts[e] : "unknown error";
}

struct str http_status_reason(unsigned status)
{
	if (status >= ARRAY_SIZE(reasons) || !reasons[status])
		return STR("");
	return str_from_cstr(reasons[status]);
}
