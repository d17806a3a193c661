/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slices: comparing, searching, cutting, hashing. Case folding and comparing work on eight bytes at a
 * time because field names of every request pass here. Any thread, no allocation.
 */
#include "base/str.h"

#include <endian.h>

#define ONES 0x0101010101010101ull

static inline uint64_t load_u64(const char *p)
{
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	return w;
}

/* ASCII lower case of eight bytes: bytes above 0x7f and everything but A-Z stay as they are. */
static inline uint64_t lower_u64(uint64_t w)
{
	uint64_t low7 = w & 0x7f * ONES;
	uint64_t ge_a = low7 + (0x80 - 'A') * ONES;
	uint64_t gt_z = low7 + (0x7f - 'Z') * ONES;
	uint64_t is_upper = (ge_a ^ gt_z) & ~w & 0x80 * ONES;

	return w | is_upper >> 2;
}

/* 1 to 7 bytes in one word, without a loop: loads may overlap, the same way for equal lengths. */
static inline uint64_t load_tail(const char *p, size_t n)
{
	const uint8_t *b = (const uint8_t *)p;
	uint32_t lo, hi;

	if (n >= 4) {
		memcpy(&lo, p, sizeof(lo));
		memcpy(&hi, p + n - 4, sizeof(hi));
		return (uint64_t)le32toh(lo) | (uint64_t)le32toh(hi) << 32;
	}
	return (uint64_t)b[0] | (uint64_t)b[n / 2] << 8 | (uint64_t)b[n - 1] << 16;
}

static inline bool is_mem_case_eq(const char *a, const char *b, size_t n)
{
	if (n < 8)
		return n == 0 || lower_u64(load_tail(a, n)) == lower_u64(load_tail(b, n));
	for (size_t i = 0; i + 8 <= n; i += 8) {
		if (lower_u64(load_u64(a + i)) != lower_u64(load_u64(b + i)))
			return false;
	}
	return lower_u64(load_u64(a + n - 8)) == lower_u64(load_u64(b + n - 8));
}

bool str_is_case_eq(struct str a, struct str b)
{
	return a.len == b.len && is_mem_case_eq(a.p, b.p, a.len);
}

bool str_is_prefix(struct str s, struct str prefix)
{
	return prefix.len <= s.len && str_is_eq(str_make(s.p, prefix.len), prefix);
}

bool str_is_case_prefix(struct str s, struct str prefix)
{
	return prefix.len <= s.len && is_mem_case_eq(s.p, prefix.p, prefix.len);
}

bool str_is_suffix(struct str s, struct str suffix)
{
	return suffix.len <= s.len && str_is_eq(str_from(s, s.len - suffix.len), suffix);
}

int str_cmp(struct str a, struct str b)
{
	size_t n = a.len < b.len ? a.len : b.len;
	int r = n ? memcmp(a.p, b.p, n) : 0;

	if (r)
		return r;
	return a.len < b.len ? -1 : a.len > b.len;
}

int str_case_cmp(struct str a, struct str b)
{
	size_t n = a.len < b.len ? a.len : b.len;

	for (size_t i = 0; i < n; i++) {
		int ca = (unsigned char)str_lower_char(a.p[i]);
		int cb = (unsigned char)str_lower_char(b.p[i]);

		if (ca != cb)
			return ca - cb;
	}
	return a.len < b.len ? -1 : a.len > b.len;
}

size_t str_find_char(struct str s, char c)
{
	const char *p = s.len ? memchr(s.p, c, s.len) : NULL;

	return p ? (size_t)(p - s.p) : SIZE_MAX;
}

size_t str_find_any(struct str s, struct str set)
{
	if (set.len == 1)
		return str_find_char(s, set.p[0]);
	for (size_t i = 0; i < s.len; i++)
		for (size_t k = 0; k < set.len; k++)
			if (s.p[i] == set.p[k])
				return i;
	return SIZE_MAX;
}

size_t str_find(struct str s, struct str needle)
{
	const char *p;

	if (needle.len == 0)
		return 0;
	if (needle.len > s.len)
		return SIZE_MAX;
	p = memmem(s.p, s.len, needle.p, needle.len);
	return p ? (size_t)(p - s.p) : SIZE_MAX;
}

size_t str_case_find(struct str s, struct str needle)
{
	char first;

	if (needle.len == 0)
		return 0;
	if (needle.len > s.len)
		return SIZE_MAX;
	first = str_lower_char(needle.p[0]);
	for (size_t i = 0; i <= s.len - needle.len; i++) {
		if (str_lower_char(s.p[i]) == first &&
		    is_mem_case_eq(s.p + i, needle.p, needle.len))
			return i;
	}
	return SIZE_MAX;
}

struct str str_from(struct str s, size_t off)
{
	if (off > s.len)
		off = s.len;
	/* NULL + 0 is undefined in C, so a null slice is passed through untouched. */
	return off ? str_make(s.p + off, s.len - off) : s;
}

struct str str_sub(struct str s, size_t off, size_t len)
{
	struct str r = str_from(s, off);

	if (len < r.len)
		r.len = len;
	return r;
}

static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

struct str str_trim(struct str s)
{
	while (s.len && is_blank(s.p[0])) {
		s.p++;
		s.len--;
	}
	while (s.len && is_blank(s.p[s.len - 1]))
		s.len--;
	return s;
}

struct str str_cut(struct str *s, char sep)
{
	size_t at = str_find_char(*s, sep);
	struct str item = *s;

	if (at == SIZE_MAX) {
		*s = STR_NULL;
		return item;
	}
	item.len = at;
	*s = str_make(s->p + at + 1, s->len - at - 1);
	return item;
}

#define DISTANCE_MAX 64

unsigned str_distance(struct str a, struct str b)
{
	/* Three rows of the matrix: a swap of neighbours looks two rows back. */
	uint8_t rows[3][DISTANCE_MAX + 1];
	uint8_t *before = rows[0], *prev = rows[1], *row = rows[2];
	size_t na = a.len < DISTANCE_MAX ? a.len : DISTANCE_MAX;
	size_t nb = b.len < DISTANCE_MAX ? b.len : DISTANCE_MAX;

	for (size_t j = 0; j <= nb; j++)
		prev[j] = (uint8_t)j;
	for (size_t i = 1; i <= na; i++) {
		char ca = str_lower_char(a.p[i - 1]);
		uint8_t *unused;

		row[0] = (uint8_t)i;
		for (size_t j = 1; j <= nb; j++) {
			char cb = str_lower_char(b.p[j - 1]);
			unsigned best = prev[j - 1] + (ca != cb);

			if (prev[j] + 1u < best)
				best = prev[j] + 1u;
			if (row[j - 1] + 1u < best)
				best = row[j - 1] + 1u;
			if (i > 1 && j > 1 && ca == str_lower_char(b.p[j - 2]) &&
			    cb == str_lower_char(a.p[i - 2]) && before[j - 2] + 1u < best)
				best = before[j - 2] + 1u;
			row[j] = (uint8_t)best;
		}
		unused = before;
		before = prev;
		prev = row;
		row = unused;
	}
	return prev[nb];
}

/* Folds a 128-bit product: every input bit reaches every output bit. */
static inline uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 m = (unsigned __int128)a * b;

	return (uint64_t)m ^ (uint64_t)(m >> 64);
}

uint64_t str_hash(struct str s, uint64_t seed)
{
	/* Odd constants with balanced bits: fractional parts of the square roots of 2, 3 and 5. */
	const uint64_t k0 = 0x6a09e667f3bcc909ull, k1 = 0xbb67ae8584caa73bull;
	const uint64_t k2 = 0x3c6ef372fe94f82bull;
	uint64_t h = seed ^ k0, w;
	const char *p = s.p;
	size_t n = s.len;

	while (n >= 8) {
		h = mix(h ^ le64toh(load_u64(p)), k1);
		p += 8;
		n -= 8;
	}
	w = n ? load_tail(p, n) : 0;
	h = mix(h ^ w, k2 ^ ((uint64_t)s.len << 3));
	return mix(h ^ k0, k1);
}
