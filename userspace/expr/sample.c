/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Samples: the conversions between types that the language makes by itself, and fast integer
 * printing. Workers, on the request path; results live in the given arena.
 */
#include "expr/expr_priv.h"

#include <arpa/inet.h>

static const char digit_pairs[] =
	"00010203040506070809101112131415161718192021222324252627282930313233"
	"34353637383940414243444546474849505152535455565758596061626364656667"
	"6869707172737475767778798081828384858687888990919293949596979899";

size_t fmt_u64(char *out, uint64_t v)
{
	char tmp[20];
	char *p = tmp + sizeof(tmp);
	size_t n;

	while (v >= 100) {
		p -= 2;
		memcpy(p, digit_pairs + v % 100 * 2, 2);
		v /= 100;
	}
	if (v >= 10) {
		p -= 2;
		memcpy(p, digit_pairs + v * 2, 2);
	} else {
		*--p = (char)('0' + v);
	}
	n = (size_t)(tmp + sizeof(tmp) - p);
	memcpy(out, p, n);
	return n;
}

size_t fmt_i64(char *out, int64_t v)
{
	if (v >= 0)
		return fmt_u64(out, (uint64_t)v);
	*out = '-';
	return 1 + fmt_u64(out + 1, 0 - (uint64_t)v);
}

int64_t str_leading_int(struct str s)
{
	bool is_neg = s.len && s.p[0] == '-';
	size_t i = s.len && (s.p[0] == '-' || s.p[0] == '+');
	uint64_t v = 0, max = is_neg ? (uint64_t)INT64_MAX + 1 : INT64_MAX;

	for (; i < s.len && s.p[i] >= '0' && s.p[i] <= '9'; i++) {
		unsigned d = (unsigned)(s.p[i] - '0');

		if (v > (max - d) / 10) {
			v = max;
			break;
		}
		v = v * 10 + d;
	}
	return is_neg ? (int64_t)(0 - v) : (int64_t)v;
}

const char *sample_type_name(enum sample_type t)
{
	static const char *const names[] = {
		[SAMPLE_BOOL] = "boolean", [SAMPLE_SINT] = "integer", [SAMPLE_ADDR] = "address",
		[SAMPLE_STR] = "string",   [SAMPLE_BIN] = "binary",   [SAMPLE_METH] = "method",
	};

	return (unsigned)t < ARRAY_SIZE(names) ? names[t] : "any";
}

/* --- conversions: from (row) to (column); NULL: there is none --- */

typedef int (*cast_fn)(struct sample *s, struct arena *arena);

static int cast_none(struct sample *s, struct arena *arena)
{
	return 0;
}

static int cast_int_bool(struct sample *s, struct arena *arena)
{
	s->sint = s->sint != 0;
	return 0;
}

static int cast_int_str(struct sample *s, struct arena *arena)
{
	char tmp[NUM_TEXT_MAX];
	size_t n = fmt_i64(tmp, s->sint);
	char *p = arena_alloc(arena, n);

	if (!p)
		return -ENOMEM;
	memcpy(p, tmp, n);
	s->str = str_make(p, n);
	s->is_const = false;
	return 0;
}

static int cast_int_bin(struct sample *s, struct arena *arena)
{
	uint64_t v = (uint64_t)s->sint;
	char *p = arena_alloc(arena, 8);

	if (!p)
		return -ENOMEM;
	for (unsigned i = 0; i < 8; i++)
		p[i] = (char)(v >> (56 - 8 * i));
	s->str = str_make(p, 8);
	s->is_const = false;
	return 0;
}

static int cast_int_addr(struct sample *s, struct arena *arena)
{
	uint32_t ip = htonl((uint32_t)s->sint);

	memset(&s->addr, 0, sizeof(s->addr));
	s->addr.sa.sa_family = AF_INET;
	s->addr.in.sin_addr.s_addr = ip;
	return 0;
}

static int cast_addr_int(struct sample *s, struct arena *arena)
{
	if (s->addr.sa.sa_family != AF_INET)
		return -EINVAL;
	s->sint = ntohl(s->addr.in.sin_addr.s_addr);
	return 0;
}

static int cast_addr_str(struct sample *s, struct arena *arena)
{
	char *p;

	if (s->addr.sa.sa_family != AF_INET && s->addr.sa.sa_family != AF_INET6)
		return -EINVAL;
	p = arena_alloc(arena, ADDR_TEXT_MAX);
	if (!p)
		return -ENOMEM;
	s->str = str_make(p, addr_format_ip(&s->addr, p, ADDR_TEXT_MAX));
	s->is_const = false;
	return 0;
}

static int cast_addr_bin(struct sample *s, struct arena *arena)
{
	size_t n = s->addr.sa.sa_family == AF_INET ? 4 : 16;
	const void *from = n == 4 ? (const void *)&s->addr.in.sin_addr : &s->addr.in6.sin6_addr;
	char *p;

	if (s->addr.sa.sa_family != AF_INET && s->addr.sa.sa_family != AF_INET6)
		return -EINVAL;
	p = arena_alloc(arena, n);
	if (!p)
		return -ENOMEM;
	memcpy(p, from, n);
	s->str = str_make(p, n);
	s->is_const = false;
	return 0;
}

static int cast_str_int(struct sample *s, struct arena *arena)
{
	if (s->str.len == 0)
		return -EINVAL;
	s->sint = str_leading_int(s->str);
	return 0;
}

static int cast_str_bool(struct sample *s, struct arena *arena)
{
	int r = cast_str_int(s, arena);

	return r ? r : cast_int_bool(s, arena);
}

static int cast_str_addr(struct sample *s, struct arena *arena)
{
	struct addr a;

	if (addr_parse_ip(s->str, &a))
		return -EINVAL;
	s->addr = a;
	return 0;
}

#define TYPE_COUNT (SAMPLE_METH + 1)

static const cast_fn casts[TYPE_COUNT][TYPE_COUNT] = {
	[SAMPLE_BOOL] = { [SAMPLE_BOOL] = cast_none,
			  [SAMPLE_SINT] = cast_none,
			  [SAMPLE_STR] = cast_int_str },
	[SAMPLE_SINT] = { [SAMPLE_BOOL] = cast_int_bool,
			  [SAMPLE_SINT] = cast_none,
			  [SAMPLE_ADDR] = cast_int_addr,
			  [SAMPLE_STR] = cast_int_str,
			  [SAMPLE_BIN] = cast_int_bin },
	[SAMPLE_ADDR] = { [SAMPLE_SINT] = cast_addr_int,
			  [SAMPLE_ADDR] = cast_none,
			  [SAMPLE_STR] = cast_addr_str,
			  [SAMPLE_BIN] = cast_addr_bin },
	[SAMPLE_STR] = { [SAMPLE_BOOL] = cast_str_bool,
			 [SAMPLE_SINT] = cast_str_int,
			 [SAMPLE_ADDR] = cast_str_addr,
			 [SAMPLE_STR] = cast_none,
			 [SAMPLE_BIN] = cast_none,
			 [SAMPLE_METH] = cast_none },
	[SAMPLE_BIN] = { [SAMPLE_STR] = cast_none, [SAMPLE_BIN] = cast_none },
	[SAMPLE_METH] = { [SAMPLE_STR] = cast_none,
			  [SAMPLE_BIN] = cast_none,
			  [SAMPLE_METH] = cast_none },
};

bool sample_is_castable(unsigned from, unsigned to)
{
	if (from >= TYPE_COUNT || to >= TYPE_COUNT)
		return true; /* only known at run time */
	return casts[from][to] != NULL;
}

int sample_cast(struct sample *s, enum sample_type to, struct arena *arena)
{
	cast_fn fn;
	int r;

	if (s->type == to)
		return 0;
	if (s->type >= TYPE_COUNT || (unsigned)to >= TYPE_COUNT)
		return -EINVAL;
	fn = casts[s->type][to];
	if (!fn)
		return -EINVAL;
	r = fn(s, arena);
	if (r == 0)
		s->type = (uint8_t)to;
	return r;
}
