/* SPDX-License-Identifier: BSD-2-Clause */
/* Slices to numbers, sizes and durations. Any thread, no allocation, never undefined on overflow. */
#include <errno.h>

#include "base/str.h"

/* Digits at the front of `*s`, cut off; 0, -EINVAL (none) or -ERANGE. */
static int cut_digits(struct str *s, uint64_t *ret_value)
{
	uint64_t v = 0;
	bool is_over = false;
	size_t i = 0;

	for (; i < s->len && s->p[i] >= '0' && s->p[i] <= '9'; i++) {
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(s->p[i] - '0'), &v))
			is_over = true;
	}
	if (i == 0)
		return -EINVAL;
	*s = str_from(*s, i);
	*ret_value = v;
	return is_over ? -ERANGE : 0;
}

int str_to_u64(struct str s, uint64_t *ret_value)
{
	uint64_t v = 0;
	int r = cut_digits(&s, &v);

	if (r == -EINVAL || s.len)
		return -EINVAL;
	if (r)
		return r;
	*ret_value = v;
	return 0;
}

int str_to_i64(struct str s, int64_t *ret_value)
{
	bool is_negative = s.len && s.p[0] == '-';
	uint64_t v = 0;
	int r;

	if (s.len && (s.p[0] == '-' || s.p[0] == '+'))
		s = str_from(s, 1);
	r = str_to_u64(s, &v);
	if (r)
		return r;
	if (v > (uint64_t)INT64_MAX + is_negative)
		return -ERANGE;
	*ret_value = is_negative ? (int64_t)(0 - v) : (int64_t)v;
	return 0;
}

struct unit {
	struct str suffix;
	uint64_t factor;
};

static int to_scaled(struct str s, const struct unit *units, size_t n, uint64_t *ret_value)
{
	uint64_t v = 0;
	int r = cut_digits(&s, &v);

	if (r == -EINVAL)
		return r;
	for (size_t i = 0; i < n; i++) {
		if (!str_is_eq(s, units[i].suffix))
			continue;
		if (r || __builtin_mul_overflow(v, units[i].factor, &v))
			return -ERANGE;
		*ret_value = v;
		return 0;
	}
	return -EINVAL;
}

int str_to_size(struct str s, uint64_t *ret_bytes)
{
	static const struct unit units[] = {
		{ { "", 0 }, 1 },	    { { "k", 1 }, 1ull << 10 }, { { "K", 1 }, 1ull << 10 },
		{ { "m", 1 }, 1ull << 20 }, { { "M", 1 }, 1ull << 20 }, { { "g", 1 }, 1ull << 30 },
		{ { "G", 1 }, 1ull << 30 },
	};

	return to_scaled(s, units, ARRAY_SIZE(units), ret_bytes);
}

int str_to_duration(struct str s, uint64_t default_unit_ns, uint64_t *ret_ns)
{
	const struct unit units[] = {
		{ { "", 0 }, default_unit_ns },
		{ { "us", 2 }, 1000ull },
		{ { "ms", 2 }, 1000ull * 1000 },
		{ { "s", 1 }, 1000ull * 1000 * 1000 },
		{ { "m", 1 }, 60ull * 1000 * 1000 * 1000 },
		{ { "h", 1 }, 3600ull * 1000 * 1000 * 1000 },
		{ { "d", 1 }, 86400ull * 1000 * 1000 * 1000 },
	};

	return to_scaled(s, units, ARRAY_SIZE(units), ret_ns);
}
