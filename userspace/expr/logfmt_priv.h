/* SPDX-License-Identifier: BSD-2-Clause */
/* Between logfmt.c (compiling, running) and logfmt_tags.c (the %tags). */
#ifndef EXPR_LOGFMT_PRIV_H
#define EXPR_LOGFMT_PRIV_H

#include "expr/expr_priv.h"

enum lf_flags {
	LF_QUOTE = 1 << 0, /* +Q */
	LF_HEX = 1 << 1, /* +X */
	LF_ESCAPE = 1 << 2, /* +E */
	LF_LOG = 1 << 3, /* a log line: "-" for missing values, runs of blanks become one */
};

/* Which bytes are written as #XX (or %XX); bits, because one table serves all. */
enum lf_enc {
	ENC_URI = 1 << 0, /* " # and what is not printable ASCII */
	ENC_HDR = 1 << 1, /* { | } too */
	ENC_CTL = 1 << 2, /* control bytes only */
	ENC_HTTP = 1 << 3, /* control bytes but tab, as %XX: for header values */
};

/* The text being written; a full buffer cuts it. */
struct lw {
	char *p, *end;
	bool is_blank; /* the last thing written is a blank */
};

static inline void lw_char(struct lw *w, char c)
{
	if (likely(w->p < w->end))
		*w->p++ = c;
}

static inline void lw_mem(struct lw *w, const char *p, size_t n)
{
	size_t room = (size_t)(w->end - w->p);

	if (unlikely(n > room))
		n = room;
	/* Most pieces are a few bytes: two overlapping loads are cheaper than a call. */
	if (n >= 8 && n <= 16) {
		memcpy(w->p, p, 8);
		memcpy(w->p + n - 8, p + n - 8, 8);
	} else if (n >= 4 && n < 8) {
		memcpy(w->p, p, 4);
		memcpy(w->p + n - 4, p + n - 4, 4);
	} else if (n && n < 4) {
		w->p[0] = p[0];
		w->p[n / 2] = p[n / 2];
		w->p[n - 1] = p[n - 1];
	} else if (n) {
		memcpy(w->p, p, n);
	}
	w->p += n;
}

static inline void lw_int(struct lw *w, int64_t v)
{
	char tmp[NUM_TEXT_MAX];

	if (v >= 0 && v < 10) {
		lw_char(w, (char)('0' + v));
		return;
	}
	if (likely((size_t)(w->end - w->p) >= sizeof(tmp)))
		w->p += fmt_i64(w->p, v);
	else
		lw_mem(w, tmp, fmt_i64(tmp, v));
}

void lw_encoded(struct lw *w, struct str s, enum lf_enc enc, unsigned flags);
/* A value with its quotes; empty or missing: "-" in logs, "" when quoted, else nothing. */
void lw_value(struct lw *w, struct str s, enum lf_enc enc, unsigned flags);
void lw_addr(struct lw *w, const struct addr *a, unsigned flags);

struct lf_tag {
	const char *name;
	void (*fn)(struct lw *w, const struct subject *s, unsigned flags, unsigned arg);
	uint8_t arg;
	bool needs_log; /* missing without subject->log */
	const char *help;
};
const struct lf_tag *lf_tag_find(struct str name);
const struct lf_tag *lf_tag_at(unsigned i); /* NULL at the end */

#endif
