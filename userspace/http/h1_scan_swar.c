/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The HTTP/1 reader's scanning loops for any CPU: 8 bytes a step in a general register. A mask has the top
 * bit of each byte that matches. No state; any thread.
 */
#include <endian.h>

#include "http/h1_priv.h"

#define ONES 0x0101010101010101u
#define TOPS 0x8080808080808080u

/* Bytes below n, n <= 0x80. The top bits are set first, so no byte borrows from the next. */
static inline uint64_t below(uint64_t x, unsigned n)
{
	return ~((x | TOPS) - n * ONES) & ~x & TOPS;
}

static inline uint64_t equal(uint64_t x, unsigned c)
{
	uint64_t y = x ^ c * ONES;

	return ~(((y & ~TOPS) + ~TOPS) | y) & TOPS;
}

static inline uint64_t ctl_mask(const char *p)
{
	uint64_t x = le64toh(http_load8(p));

	return (below(x, 0x20) & ~equal(x, '\t')) | equal(x, 0x7f);
}

static inline uint64_t target_mask(const char *p)
{
	uint64_t x = le64toh(http_load8(p));

	return below(x, '!') | equal(x, '#') | equal(x, 0x7f) | (x & TOPS);
}

struct scan {
	const char *end;
};

static inline void scan_begin(struct scan *s, const char *start, const char *end)
{
	(void)start;
	s->end = end;
}

static inline const char *scan_name(struct scan *s, const char *p)
{
	while (p < s->end && http_is(*p, HTTP_CHAR_TOKEN))
		p++;
	return p;
}

static inline const char *scan_value(struct scan *s, const char *p)
{
	for (; s->end - p >= 8; p += 8) {
		uint64_t m = ctl_mask(p);

		if (m)
			return p + __builtin_ctzll(m) / 8;
	}
	while (p < s->end && !http_is(*p, HTTP_CHAR_BAD_VALUE))
		p++;
	return p;
}

static const char *scan_target(const char *p, const char *end)
{
	for (; end - p >= 8; p += 8) {
		uint64_t m = target_mask(p);

		if (m)
			return p + __builtin_ctzll(m) / 8;
	}
	return h1_scan_target_bytes(p, end);
}

#include "http/h1_scan.h"

const struct h1_scanner h1_scanner_swar = { "swar", scan_target, read_fields };
