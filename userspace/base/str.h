/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slices: a pointer and a length, never NUL-terminated, never owning. Any thread; no allocation.
 * A slice is valid as long as the memory it points into; a `struct str` is passed by value.
 */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"

struct str {
	const char *p;
	size_t len;
};

/* A slice over a string literal, and the two arguments of printf's "%.*s". */
#define STR(lit) ((struct str){ .p = (lit), .len = sizeof(lit) - 1 })
#define STR_NULL ((struct str){ .p = NULL, .len = 0 })
#define STR_FMT "%.*s"
#define STR_ARG(s) (int)(s).len, (s).p

static inline struct str str_make(const char *p, size_t len)
{
	return (struct str){ .p = p, .len = len };
}

static inline struct str str_from_cstr(const char *s)
{
	return (struct str){ .p = s, .len = s ? strlen(s) : 0 };
}

static inline char str_lower_char(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static inline bool str_is_eq(struct str a, struct str b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.p, b.p, a.len) == 0);
}

/* ASCII case folding only: HTTP field names and keywords are ASCII (RFC 9110 5.1). */
bool str_is_case_eq(struct str a, struct str b);
bool str_is_prefix(struct str s, struct str prefix);
bool str_is_case_prefix(struct str s, struct str prefix);
bool str_is_suffix(struct str s, struct str suffix);
int str_cmp(struct str a, struct str b);
int str_case_cmp(struct str a, struct str b);

/* Offset of the first match, or SIZE_MAX. */
size_t str_find_char(struct str s, char c);
size_t str_find_any(struct str s, struct str set); /* first byte that is one of `set` */
size_t str_find(struct str s, struct str needle);
size_t str_case_find(struct str s, struct str needle);

/* Sub-slices; out-of-range positions are clamped. */
struct str str_from(struct str s, size_t off);
struct str str_sub(struct str s, size_t off, size_t len);
struct str str_trim(struct str s);

/*
 * Cuts the first item off `*s` at `sep` and returns it; `*s` becomes what is behind the separator.
 * After the last item `s->p` is NULL. "a,,b" gives "a", "", "b".
 */
struct str str_cut(struct str *s, char sep);

/* Decimal integers, the whole slice. 0, -EINVAL (not a number) or -ERANGE. */
HG_WUR int str_to_u64(struct str s, uint64_t *ret_value);
HG_WUR int str_to_i64(struct str s, int64_t *ret_value);
/* Sizes in bytes: "16384", "16k", "2m", "1g" (powers of 1024). 0, -EINVAL, -ERANGE. */
HG_WUR int str_to_size(struct str s, uint64_t *ret_bytes);
/*
 * Durations in nanoseconds: a number and us, ms, s, m, h or d; without a suffix `default_unit_ns`
 * applies. 0, -EINVAL, -ERANGE.
 */
HG_WUR int str_to_duration(struct str s, uint64_t default_unit_ns, uint64_t *ret_ns);

/* Damerau-Levenshtein distance, ASCII case folded, at most 64 characters of each; for "did you mean". */
unsigned str_distance(struct str a, struct str b);

/* Stable 64-bit hash for hash tables and names (not for flows); `seed` may be 0. */
uint64_t str_hash(struct str s, uint64_t seed);

#endif
