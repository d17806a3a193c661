/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Scanning by bitmaps, for instruction sets with a byte-wise comparison. 64 bytes are classified at once,
 * before anybody asks where a line ends: finding the next byte of a class is then a shift and a count of
 * zeros, and the loads do not wait for the end of the field before. The including file defines
 *
 *   classify(p, *ret_ctl, *ret_not_token)    two bitmaps of the 64 bytes at p
 */
struct scan {
	const char *base; /* of the bitmaps */
	const char *start, *end;
	uint64_t ctl; /* bytes that may not be in a value */
	uint64_t not_token;
};

/*
 * Bitmaps for a block that has p in it. The last one ends with the input, so it overlaps the one before;
 * an input shorter than a block is copied first.
 */
static inline void scan_load(struct scan *s, const char *p)
{
	if (likely(s->end - p >= 64)) {
		s->base = p;
	} else if (likely(s->end - s->start >= 64)) {
		s->base = s->end - 64;
	} else {
		size_t n = (size_t)(s->end - s->start);
		char copy[64] = { 0 };

		memcpy(copy, s->start, n);
		classify(copy, &s->ctl, &s->not_token);
		s->base = s->start;
		s->ctl &= (UINT64_C(1) << n) - 1;
		s->not_token &= (UINT64_C(1) << n) - 1;
		return;
	}
	classify(s->base, &s->ctl, &s->not_token);
}

static inline void scan_begin(struct scan *s, const char *start, const char *end)
{
	s->start = start;
	s->end = end;
	scan_load(s, start);
}

#define DEFINE_SCAN(func, map)                                         \
	static inline const char *func(struct scan *s, const char *p)  \
	{                                                              \
		for (;;) {                                             \
			size_t off = (size_t)(p - s->base);            \
                                                                       \
			if (likely(off < 64)) {                        \
				uint64_t m = s->map >> off;            \
                                                                       \
				if (likely(m))                         \
					return p + __builtin_ctzll(m); \
				p = s->base + 64;                      \
			}                                              \
			if (p >= s->end)                               \
				return s->end;                         \
			scan_load(s, p);                               \
		}                                                      \
	}

DEFINE_SCAN(scan_value, ctl)
DEFINE_SCAN(scan_name, not_token)
#undef DEFINE_SCAN
