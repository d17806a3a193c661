/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The inside of the HTTP/1 reader: the cursor over one head, and the variants of the scanning code that
 * one of is chosen when the program starts. Included by h1_*.c and by their tests.
 */
#ifndef HTTP_H1_PRIV_H
#define HTTP_H1_PRIV_H

#include "http/http_priv.h"

struct h1_cursor {
	const char *start, *p, *end; /* input; p: next byte to read */
	struct http_msg *msg;
	struct http_fields_seen seen;
	struct http_fault fault;
	unsigned flags; /* enum h1_flags */
};

enum h1_result {
	H1_DONE,
	H1_MORE, /* ends in the middle of something that is well-formed so far */
	H1_REFUSED, /* cursor->fault says why */
};

struct h1_scanner {
	const char *name;
	/* First byte that may not be in a request target ('!' to '~' but '#'), or `end`. */
	const char *(*scan_target)(const char *p, const char *end);
	/* Field lines and the empty line behind them, into c->msg. */
	enum h1_result (*read_fields)(struct h1_cursor *c);
};

/* Best first; what this CPU can't run is left out. Ends with NULL. At least one. */
extern const struct h1_scanner *h1_scanners[4];

extern const struct h1_scanner h1_scanner_swar; /* any CPU */
#ifdef __x86_64__
extern const struct h1_scanner h1_scanner_sse2;
extern const struct h1_scanner h1_scanner_avx2;
#endif

static inline enum h1_result h1_refuse(struct h1_cursor *c, enum http_error error, const char *at)
{
	c->fault.error = error;
	c->fault.at = at;
	return H1_REFUSED;
}

/* Why a byte that ended a name or a value is wrong; cold. `p` < c->end. */
enum h1_result h1_refuse_line(struct h1_cursor *c, const char *line, const char *p);
/* scan_target() byte by byte: the end of the input. */
const char *h1_scan_target_bytes(const char *p, const char *end);
/* A name with a byte that is no token character, once more with H1_ALLOW_VIOLATIONS; cold. */
const char *h1_scan_unsafe_name(const char *p, const char *end);

#endif
