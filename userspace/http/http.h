/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HTTP messages and codecs. No sockets, no clock, no allocation outside the given arena: bytes in,
 * messages and body slices out, and back. RFC 9110 (semantics), RFC 9112 (HTTP/1.1).
 *
 * Lifetime rule: every slice of a message points into memory owned by the stream (its head buffer or
 * its arena), for every kind of request, until the stream ends.
 */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

/* --- names ------------------------------------------------------------------------------------- */

/* clang-format off */
#define HTTP_METHODS(X) \
	X(GET) X(HEAD) X(POST) X(PUT) X(DELETE) X(CONNECT) X(OPTIONS) X(TRACE) X(PATCH)
/* clang-format on */

enum http_method {
	HTTP_METHOD_OTHER = 0, /* method_text says which */
#define X(name) HTTP_METHOD_##name,
	HTTP_METHODS(X)
#undef X
};

/* Fields that the proxy itself looks at: found once by the reader, then looked up by number. */
/* clang-format off */
#define HTTP_FIELDS(X)                                                                             \
	X(CONNECTION, "connection")                                                                \
	X(CONTENT_LENGTH, "content-length") X(TRANSFER_ENCODING, "transfer-encoding") X(           \
		HOST, "host") X(EXPECT, "expect") X(UPGRADE, "upgrade")                            \
		X(KEEP_ALIVE, "keep-alive") X(TE, "te") X(TRAILER, "trailer") X(                   \
			PROXY_CONNECTION, "proxy-connection") X(COOKIE, "cookie") X(SET_COOKIE,    \
										    "set-cookie")  \
			X(CONTENT_TYPE, "content-type") X(CONTENT_ENCODING, "content-encoding") X( \
				ACCEPT_ENCODING, "accept-encoding") X(AUTHORIZATION,               \
								      "authorization")             \
				X(X_FORWARDED_FOR, "x-forwarded-for") X(CACHE_CONTROL,             \
									"cache-control")           \
					X(VARY, "vary") X(ETAG, "etag") X(LOCATION, "location")    \
						X(DATE, "date") X(MAX_FORWARDS, "max-forwards")    \
							X(HTTP2_SETTINGS,                          \
							  "http2-settings") X(REFERER, "referer")  \
								X(USER_AGENT, "user-agent")
/* clang-format on */

enum http_field_id {
	HTTP_FIELD_OTHER = 0,
#define X(name, text) HTTP_FIELD_##name,
	HTTP_FIELDS(X)
#undef X
	HTTP_FIELD_COUNT
};

enum http_method http_method_from_text(struct str s);
struct str http_method_text(enum http_method m);
enum http_field_id http_field_id(struct str name); /* any case */
struct str http_field_name(enum http_field_id id); /* lower case */
struct str http_status_reason(unsigned status); /* "OK", …; "" when unknown */

/* --- messages ---------------------------------------------------------------------------------- */

struct http_field {
	struct str name, value; /* value without surrounding white space */
	uint8_t id; /* enum http_field_id */
	bool is_removed; /* left out by the writers; keeps indexes stable */
	/*
	 * Codec's own: bytes of the line "name: value CRLF" in the head buffer, 0 when it is not there in
	 * that form. The writer copies neighbouring lines at once; a changed `name` or `value` slice is
	 * noticed by its address.
	 */
	uint32_t line_len;
};

enum http_framing {
	HTTP_BODY_NONE, /* no body can follow */
	HTTP_BODY_LENGTH, /* content_length bytes */
	HTTP_BODY_CHUNKED,
	HTTP_BODY_CLOSE, /* response that ends with the connection */
	HTTP_BODY_TUNNEL, /* 101, or 2xx to CONNECT: not HTTP any more */
};

enum http_msg_flags {
	HTTP_MSG_RESPONSE = 1 << 0,
	HTTP_MSG_KEEP_ALIVE = 1 << 1, /* the sender is ready to reuse the connection */
	HTTP_MSG_EXPECT_100 = 1 << 2,
	HTTP_MSG_UPGRADE = 1 << 3, /* Connection: upgrade and an Upgrade field */
	HTTP_MSG_HAS_TRAILERS = 1 << 4, /* `trailers` are filled */
	/*
	 * No body, yet content_length says what it would have been (response to HEAD, 304): the writer
	 * sends it on.
	 */
	HTTP_MSG_LENGTH_ONLY = 1 << 5,
	HTTP_MSG_NO_TRAILERS = 1 << 6, /* the writers leave trailers out */
};

/* Fields that edits may add to a message beyond max_fields. */
#define HTTP_MAX_EDITS 256

struct http_msg {
	struct arena *arena; /* for edits; NULL: the message is read-only */
	uint16_t flags; /* enum http_msg_flags */
	uint8_t major, minor; /* version as received: 1.0, 1.1, 2.0 */
	uint8_t method; /* enum http_method */
	uint8_t framing; /* enum http_framing */
	uint16_t status; /* responses */
	uint64_t content_length; /* HTTP_BODY_LENGTH */

	struct str method_text;
	struct str target; /* request target as received */
	struct str scheme, authority; /* of an absolute-form target or HTTP/2; else empty */
	struct str path; /* origin form with query: what goes to the server; "*" for OPTIONS * */
	struct str reason;
	struct str start_line; /* HTTP/1: the whole first line as received, for the log */

	struct http_field *fields;
	uint16_t n_fields, cap_fields;
	uint16_t max_fields; /* the reader's limit; edits may go HTTP_MAX_EDITS beyond */
	struct http_field *trailers;
	uint16_t n_trailers, cap_trailers;
	uint16_t first[HTTP_FIELD_COUNT]; /* index + 1 of the first field with this id; 0: none */
};

/*
 * Empties the message; `fields` keeps its capacity. Room for max_fields (tune.http.maxhdr, 101) is
 * taken from `arena`. 0 or -ENOMEM.
 */
HG_WUR int http_msg_init(struct http_msg *m, struct arena *arena, unsigned max_fields);
void http_msg_reset(struct http_msg *m);

/* First live field with that id at or after `from`, or NULL. Walk on with `from` = index + 1. */
struct http_field *http_msg_find(const struct http_msg *m, enum http_field_id id, unsigned from);
/* The same by name, any case. */
struct http_field *http_msg_find_name(const struct http_msg *m, struct str name, unsigned from);
/* A name looked up once, where rules are read. */
struct http_header_name {
	struct str text;
	enum http_field_id id; /* http_field_id(text) */
};
struct http_field *http_msg_find_named(const struct http_msg *m,
				       const struct http_header_name *name, unsigned from);
static inline bool http_msg_has(const struct http_msg *m, enum http_field_id id)
{
	return m->first[id] && http_msg_find(m, id, 0);
}
/*
 * Edits. Strings are copied into the arena, values without surrounding white space. 0, -ENOMEM (also:
 * no arena), -ENOSPC (too many fields), -EINVAL (bad byte). Adding may move `fields`: pointers to
 * fields do not live across it, indexes do.
 */
HG_WUR int http_msg_add(struct http_msg *m, struct str name, struct str value);
HG_WUR int http_msg_set(struct http_msg *m, struct str name,
			struct str value); /* replaces all of that name */
/* The same without copies: the name is a token and outlives the message; `is_lasting`: so does the value. */
HG_WUR int http_msg_add_named(struct http_msg *m, const struct http_header_name *name,
			      struct str value, bool is_lasting);
HG_WUR int http_msg_set_named(struct http_msg *m, const struct http_header_name *name,
			      struct str value, bool is_lasting);
void http_msg_del(struct http_msg *m, struct str name);
void http_msg_del_field(struct http_msg *m, struct http_field *f);
/* Next item of a comma list (RFC 9110 5.6.1), white space trimmed; false at the end. */
bool http_list_next(struct str *list, struct str *ret_item);
bool http_list_has(struct str list, struct str item); /* any case */
/* Is one of the comma lists in all fields of `id` naming `item`? */
bool http_msg_list_has(const struct http_msg *m, enum http_field_id id, struct str item);
/* Host: from :authority / absolute target when there is one, else the Host field; p NULL without both. */
struct str http_msg_host(const struct http_msg *m);
/* Removes Connection, Keep-Alive, Proxy-Connection, TE (but "trailers"), Upgrade (unless `keep_upgrade`) and all fields that
 * Connection nominates (RFC 9110 7.6.1), except Host: a message without it would be another message. */
void http_msg_strip_hop_by_hop(struct http_msg *m, bool keep_upgrade);

/* --- HTTP/1 reader ----------------------------------------------------------------------------- */

/* Why a message was refused; each has a text and the status for the client (requests). */
/* clang-format off */
#define HTTP_ERRORS(X)                                                                        \
	X(NONE, 0, "no error")                                                                \
	X(BAD_START_LINE, 400, "malformed start line")                                        \
	X(BAD_METHOD, 400, "method is not a token")                                           \
	X(BAD_TARGET, 400, "malformed request target")                                        \
	X(BAD_VERSION, 505, "HTTP version not supported")                                     \
	X(BAD_FIELD_NAME, 400, "field name is not a token, or white space before the colon")  \
	X(BAD_FIELD_VALUE, 400, "control byte in a field value")                              \
	X(BARE_LF, 400, "line feed without carriage return")                                  \
	X(BARE_CR, 400, "carriage return without line feed")                                  \
	X(OBS_FOLD, 400, "folded field line")                                                 \
	X(TOO_LARGE, 431, "head larger than the buffer")                                      \
	X(TOO_MANY_FIELDS, 431, "too many fields")                                            \
	X(BAD_LENGTH, 400, "malformed Content-Length")                                        \
	X(LENGTH_CONFLICT, 400, "different Content-Length fields, or with Transfer-Encoding") \
	X(BAD_TRANSFER_ENCODING, 400, "Transfer-Encoding is not exactly chunked")             \
	X(TRANSFER_ENCODING_1_0, 400, "Transfer-Encoding in HTTP/1.0")                        \
	X(NO_HOST, 400, "HTTP/1.1 request without Host")                                      \
	X(BAD_HOST, 400, "malformed or repeated Host, or Host unlike the target")             \
	X(BAD_CHUNK, 400, "malformed chunk size or chunk end")                                \
	X(BAD_TRAILER, 400, "malformed trailer, or a field that must not be a trailer")       \
	X(BAD_EXPECT, 417, "unknown expectation")                                             \
	X(NO_MEMORY, 503, "out of memory")
/* clang-format on */

enum http_error {
#define X(name, status, text) HTTP_ERR_##name,
	HTTP_ERRORS(X)
#undef X
	HTTP_ERR_COUNT
};
unsigned http_error_status(enum http_error e);
const char *http_error_text(enum http_error e);

/* What the reader tolerates: option accept-unsafe-violations-in-http-request/-response. */
enum h1_flags {
	H1_ALLOW_VIOLATIONS = 1 << 0,
};

struct h1_head {
	uint32_t
		scanned; /* bytes already searched for the end of the head: trickled heads cost linear time */
	uint32_t error_at; /* offset of the offending byte */
	uint32_t max_bytes; /* a longer head is TOO_LARGE; 0: the caller sees to it */
	uint8_t error; /* enum http_error */
	uint8_t flags; /* enum h1_flags */
};

/*
 * Reads one head at the start of `in`; up to two leading CRLF are skipped (RFC 9112 2.2).
 *   > 0         bytes of the head; `msg` is filled, its slices point into `in`, framing rules of
 *               RFC 9112 6 are checked and msg->framing is set
 *   0           incomplete: call again with more bytes at the same address
 *   -EBADMSG    refused, see h->error
 * Clear *h before the first call for a message. `msg` comes from http_msg_init() and is emptied here.
 *
 * Content-Length given twice is refused; with H1_ALLOW_VIOLATIONS equal values count once. The flag also
 * admits '#' and bytes from 0x80 in the target, bytes from 0x80 and punctuation in field names, and a
 * Host unlike the target. A request with Content-Length and Transfer-Encoding is always refused; in a
 * response Transfer-Encoding wins and the connection is not reusable (RFC 9112 6.3).
 * Upgrade to "h2c" is not reported: tunnelling it would hide requests from the rules.
 */
HG_WUR int h1_read_request(struct h1_head *h, struct str in, struct http_msg *msg);
/* `req_method` decides about HEAD, CONNECT. 1xx are returned as messages of their own. */
HG_WUR int h1_read_response(struct h1_head *h, struct str in, struct http_msg *msg,
			    enum http_method req_method);

/* Body reader. Trailers are read into msg->trailers (copied to its arena). */
struct h1_body {
	uint64_t left; /* of the length or the current chunk */
	uint8_t framing; /* enum http_framing */
	uint8_t state; /* private */
	uint8_t error; /* enum http_error */
	uint16_t line_len; /* bytes of the chunk-size line or trailers so far, bounded */
	uint16_t ext_debt; /* private: bytes of chunk extensions not yet paid for by data */
};

/* All trailer lines of a message together; one line has to fit in the caller's buffer. */
#define H1_TRAILERS_MAX	      8192
#define H1_TRAILER_FIELDS_MAX 64

enum h1_body_event {
	/*
	 * `in` is used up as far as *ret_used: give more. What is behind it (the beginning of a trailer
	 * line, never anything else) has to be presented again with more bytes.
	 */
	H1_BODY_MORE,
	H1_BODY_DATA, /* *ret_data is a slice of `in` */
	H1_BODY_END, /* the message is complete; bytes behind *ret_used belong to the next one */
	H1_BODY_ERROR, /* see ->error */
};

void h1_body_init(struct h1_body *b, const struct http_msg *msg);
/*
 * Looks at `in`, tells in *ret_used how many bytes are finished with. DATA: *ret_data lies within
 * them. Call in a loop with the rest. At the end of the connection a HTTP_BODY_CLOSE body ends with
 * h1_body_eof().
 */
enum h1_body_event h1_body_next(struct h1_body *b, struct http_msg *msg, struct str in,
				size_t *ret_used, struct str *ret_data);
/* The peer closed: true when that is a proper end of this body. */
bool h1_body_eof(const struct h1_body *b);

/* --- HTTP/1 writer ----------------------------------------------------------------------------- */

/*
 * Appends start line, live fields and the empty line. Framing fields (Content-Length,
 * Transfer-Encoding) and Connection are written from msg->framing and `connection`, never copied;
 * Keep-Alive and Proxy-Connection are left out, Upgrade unless `conn` is H1_CONN_UPGRADE.
 * A request goes out as HTTP/1.0 when it came as such, everything else as HTTP/1.1: a response to a
 * 1.0 client must not be HTTP_BODY_CHUNKED. Requests are written with msg->path, CONNECT with
 * msg->authority. 0, or -ENOBUFS (nothing written).
 */
enum h1_connection {
	H1_CONN_NONE, /* no Connection field */
	H1_CONN_CLOSE,
	H1_CONN_KEEP_ALIVE,
	H1_CONN_UPGRADE,
};
HG_WUR int h1_write_request(struct buf *out, const struct http_msg *msg, enum h1_connection conn);
HG_WUR int h1_write_response(struct buf *out, const struct http_msg *msg, enum h1_connection conn);
/* "1f4\r\n"; returns the length, at most 20. `first` false: with the CRLF that ends the chunk before. */
size_t h1_write_chunk_size(char out[20], uint64_t size, bool is_first);
/* Last chunk and trailers; 0 or -ENOBUFS. */
HG_WUR int h1_write_last_chunk(struct buf *out, const struct http_msg *msg, bool is_first);

#endif
