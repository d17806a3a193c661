/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Content codings of responses (RFC 9110 8.4): which one a client wants, whether a response may be coded,
 * and the bytes. No sockets, no clock; an encoder belongs to one thread at a time.
 */
#ifndef HTTP_COMPRESS_H
#define HTTP_COMPRESS_H

#include "http/http.h"

/* Name in the configuration, and token on the wire. `identity` is framed like the others, for tests. */
#define HTTP_CODINGS(X)                     \
	X(IDENTITY, "identity", "identity") \
	X(GZIP, "gzip", "gzip")             \
	X(DEFLATE, "deflate", "deflate")    \
	X(RAW_DEFLATE, "raw-deflate", "deflate")

enum http_coding {
	HTTP_CODING_NONE, /* leave the body alone */
#define X(id, name, token) HTTP_CODING_##id,
	HTTP_CODINGS(X)
#undef X
	HTTP_CODING_COUNT
};

enum http_coding http_coding_from_name(struct str name); /* NONE: unknown */
const char *http_coding_name(enum http_coding c);

/*
 * The coding that the Accept-Encoding fields rate highest among the offered ones. As HAProxy decides:
 * between equal ratings the first in the field, for "*" the last one offered; old browsers that claim
 * a coding and cannot decode it get none; `identity`, when offered, is what is left.
 */
enum http_coding http_choose_coding(const struct http_msg *req, const uint8_t *offered, unsigned n);

/* What a response must be to be coded; empty `types`: any type. */
struct http_coding_rules {
	const struct str *types; /* beginnings of Content-Type */
	unsigned n_types;
	uint64_t min_size; /* bytes, where the length is known */
};
/* `framing`: of the body as it comes from the server. */
bool http_may_encode(const struct http_msg *req, const struct http_msg *rsp,
		     enum http_framing framing, const struct http_coding_rules *rules);
/* Content-Encoding, Vary, a weak ETag, chunks. 0, or what an edit returned: then do not encode. */
HG_WUR int http_set_coding(struct http_msg *rsp, enum http_coding c);
/* The same of requests: nobody has said what the server likes. `c` is not identity. */
bool http_may_encode_request(const struct http_msg *req, const struct http_coding_rules *rules);
HG_WUR int http_set_request_coding(struct http_msg *req, enum http_coding c);

/* --- bytes ------------------------------------------------------------------------------------- */

/* What zlib takes for one encoder: 2^(15+2) + 2^(8+9) and its state. */
#define HTTP_ENCODER_BYTES (270u * 1024)

struct http_encoder {
	struct http_encoder *next; /* the owner's, for a list of idle ones */
	void *z; /* z_stream */
	uint8_t coding; /* enum http_coding */
};

enum http_encode {
	HTTP_ENCODE_MORE, /* more will come: keep what compresses better together */
	HTTP_ENCODE_FLUSH, /* nothing more for the moment: the client shall see all of it */
	HTTP_ENCODE_END,
};

/* 0, -ENOMEM. Not for identity. */
HG_WUR int http_encoder_new(enum http_coding c, unsigned level, struct http_encoder **ret);
void http_encoder_reset(struct http_encoder *e); /* for another body */
void http_encoder_free(struct http_encoder *e); /* NULL is ignored */
/*
 * Takes from `*in` (what was taken is cut off) and writes at most `size` bytes. True: all of `in` was
 * taken and, for FLUSH and END, everything is out. False: there was no room; call again with the rest.
 */
bool http_encode(struct http_encoder *e, struct str *in, char *out, size_t size, size_t *ret_n,
		 enum http_encode how);

#endif
