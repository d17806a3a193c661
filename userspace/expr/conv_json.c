/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Values inside JSON texts (RFC 8259) and inside the two JSON parts of a web token (RFC 7515 7.1).
 * One pass over the text up to the value, nothing is built. Workers; results in the arena.
 */
#include "expr/expr_priv.h"

#include <stdlib.h>

#define DEPTH_MAX    32 /* of what is skipped: recursion */
#define INT_MAX_JSON ((1ll << 53) - 1) /* integers that every JSON implementation agrees on */

enum json_type {
	JSON_STRING,
	JSON_NUMBER,
	JSON_TRUE,
	JSON_FALSE,
	JSON_NULL,
	JSON_ARRAY,
	JSON_OBJECT
};

struct scan {
	const char *p, *end;
};

static bool scan_is(const struct scan *c, char want)
{
	return c->p < c->end && *c->p == want;
}

static void skip_blanks(struct scan *c)
{
	while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
		c->p++;
}

/* Takes `want` with the blanks on both sides of it. */
static bool take(struct scan *c, char want)
{
	skip_blanks(c);
	if (!scan_is(c, want))
		return false;
	c->p++;
	skip_blanks(c);
	return true;
}

static bool skip_string(struct scan *c, struct str *ret_inner)
{
	const char *start;

	if (!scan_is(c, '"'))
		return false;
	for (start = ++c->p; c->p < c->end && *c->p != '"'; c->p++) {
		if ((uint8_t)*c->p < 0x20)
			return false;
		if (*c->p == '\\')
			c->p++;
	}
	if (c->p >= c->end)
		return false;
	*ret_inner = str_make(start, (size_t)(c->p - start));
	c->p++;
	return true;
}

static bool skip_word(struct scan *c, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0)
		return false;
	c->p += n;
	return true;
}

static bool skip_number(struct scan *c)
{
	const char *digits = c->p + (*c->p == '-');

	if (digits >= c->end || *digits < '0' || *digits > '9')
		return false;
	for (c->p = digits; c->p < c->end && *c->p && strchr("0123456789+-.eE", *c->p); c->p++)
		;
	return true;
}

static int skip_value(struct scan *c, unsigned depth);

/* Behind the opening bracket: members up to the closing one. */
static bool skip_members(struct scan *c, bool is_object, unsigned depth)
{
	char close = is_object ? '}' : ']';
	struct str name;

	if (take(c, close))
		return true;
	do {
		if (is_object && (!skip_string(c, &name) || !take(c, ':')))
			return false;
		if (skip_value(c, depth) < 0)
			return false;
	} while (take(c, ','));
	return take(c, close);
}

/* enum json_type, or -EINVAL: not JSON. */
static int skip_value(struct scan *c, unsigned depth)
{
	struct str inner;

	if (c->p >= c->end || depth == 0)
		return -EINVAL;
	switch (*c->p) {
	case '"':
		return skip_string(c, &inner) ? JSON_STRING : -EINVAL;
	case '{':
		c->p++;
		return skip_members(c, true, depth - 1) ? JSON_OBJECT : -EINVAL;
	case '[':
		c->p++;
		return skip_members(c, false, depth - 1) ? JSON_ARRAY : -EINVAL;
	case 't':
		return skip_word(c, "true") ? JSON_TRUE : -EINVAL;
	case 'f':
		return skip_word(c, "false") ? JSON_FALSE : -EINVAL;
	case 'n':
		return skip_word(c, "null") ? JSON_NULL : -EINVAL;
	default:
		return skip_number(c) ? JSON_NUMBER : -EINVAL;
	}
}

/*
 * Does the path go on with this member? A name may contain dots itself ("$.https://a.b/role"), so that
 * the member decides how long the step is.
 */
static bool is_step(struct str path, struct str name)
{
	struct str rest = str_from(path, 1 + name.len);

	return path.len > name.len && str_is_eq(str_sub(path, 1, name.len), name) &&
	       (rest.len == 0 || rest.p[0] == '.' || rest.p[0] == '[');
}

static bool enter_member(struct scan *c, struct str *path)
{
	struct str name;

	if (!take(c, '{'))
		return false;
	do {
		if (!skip_string(c, &name) || !take(c, ':'))
			return false;
		if (is_step(*path, name)) {
			*path = str_from(*path, 1 + name.len);
			return true;
		}
	} while (skip_value(c, DEPTH_MAX) >= 0 && take(c, ','));
	return false;
}

static bool enter_item(struct scan *c, struct str *path)
{
	size_t close = str_find_char(*path, ']');
	uint64_t want;

	if (close == SIZE_MAX || str_to_u64(str_sub(*path, 1, close - 1), &want) || !take(c, '['))
		return false;
	*path = str_from(*path, close + 1);
	for (; want; want--) {
		if (skip_value(c, DEPTH_MAX) < 0 || !take(c, ','))
			return false;
	}
	return true;
}

/* enum json_type and the bytes of the value, or -ENOENT. */
static int json_find(struct str text, struct str path, struct str *ret)
{
	struct scan c = { text.p, text.p + text.len };
	const char *start;
	int type;

	for (path = str_from(path, 1); path.len;) {
		if (path.p[0] == '.' ? !enter_member(&c, &path) : !enter_item(&c, &path))
			return -ENOENT;
	}
	skip_blanks(&c);
	start = c.p;
	type = skip_value(&c, DEPTH_MAX);
	*ret = str_make(start, (size_t)(c.p - start));
	return type < 0 ? -ENOENT : type;
}

/* --- strings --- */

static bool hex4(struct str s, uint32_t *ret)
{
	*ret = 0;
	if (s.len < 4)
		return false;
	for (unsigned i = 0; i < 4; i++) {
		char c = str_lower_char(s.p[i]);
		bool is_digit = c >= '0' && c <= '9';

		if (!is_digit && (c < 'a' || c > 'f'))
			return false;
		*ret = *ret << 4 | (uint32_t)(is_digit ? c - '0' : c - 'a' + 10);
	}
	return true;
}

static size_t utf8_put(char *out, uint32_t v)
{
	unsigned n = v < 0x80 ? 1 : v < 0x800 ? 2 : v < 0x10000 ? 3 : 4;
	static const uint8_t lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };

	for (unsigned i = n; i > 1; i--, v >>= 6)
		out[i - 1] = (char)(0x80 | (v & 0x3f));
	out[0] = (char)(lead[n] | v);
	return n;
}

/* "\u00e9", or a pair of surrogates, at s; returns the bytes of text used, 0: malformed. */
static size_t unicode_escape(struct str s, char *out, size_t *n)
{
	uint32_t hi, lo;

	if (!hex4(str_from(s, 2), &hi) || (hi & 0xfc00) == 0xdc00)
		return 0;
	if ((hi & 0xfc00) != 0xd800) {
		*n += utf8_put(out + *n, hi);
		return 6;
	}
	if (!str_is_eq(str_sub(s, 6, 2), STR("\\u")) || !hex4(str_from(s, 8), &lo) ||
	    (lo & 0xfc00) != 0xdc00)
		return 0;
	*n += utf8_put(out + *n, 0x10000 + ((hi & 0x3ff) << 10 | (lo & 0x3ff)));
	return 12;
}

static int json_unescape(struct eval *ev, struct str s, struct sample *ret)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	char *out = eval_alloc(ev, s.len);
	size_t n = 0, used;

	if (!out)
		return -ENOMEM;
	for (; s.len; s = str_from(s, used)) {
		const char *e;

		used = 1;
		if (s.p[0] != '\\') {
			out[n++] = s.p[0];
			continue;
		}
		e = s.len > 1 && s.p[1] ? strchr(from, s.p[1]) : NULL;
		used = e ? 2 : s.len > 1 && s.p[1] == 'u' ? unicode_escape(s, out, &n) : 0;
		if (used == 0)
			return -ENOENT;
		if (e)
			out[n++] = to[e - from];
	}
	sample_set_str(ret, SAMPLE_STR, str_make(out, n));
	return 0;
}

/* --- samples --- */

static int number_sample(struct eval *ev, struct str text, bool is_int, struct sample *ret)
{
	char copy[48], *p;
	long long v;
	int n;

	if (text.len >= sizeof(copy))
		return -ENOENT;
	memcpy(copy, text.p, text.len);
	copy[text.len] = '\0';
	if (is_int) {
		errno = 0;
		v = strtoll(copy, NULL, 10);
		if (errno || v > INT_MAX_JSON || v < -INT_MAX_JSON)
			return -ENOENT;
		sample_set_int(ret, v);
		return 0;
	}
	p = eval_alloc(ev, 32);
	if (!p)
		return -ENOMEM;
	n = snprintf(p, 32, "%g", strtod(copy, NULL));
	sample_set_str(ret, SAMPLE_STR, str_make(p, (size_t)n));
	return 0;
}

static int json_sample(struct eval *ev, struct str text, const struct expr_arg *args,
		       struct sample *ret)
{
	struct str v = STR_NULL;
	int type = json_find(text, args[0].str, &v);

	switch (type) {
	case JSON_STRING:
		return json_unescape(ev, str_sub(v, 1, v.len - 2), ret);
	case JSON_NUMBER:
		return number_sample(ev, v, args[1].type == ARG_STR, ret);
	case JSON_TRUE:
	case JSON_FALSE:
		sample_set_bool(ret, type == JSON_TRUE);
		return 0;
	case JSON_ARRAY:
	case JSON_OBJECT:
		sample_set_str(ret, SAMPLE_STR, v);
		return 0;
	default:
		return -ENOENT;
	}
}

static int check_query(struct fn_check *c, struct err *err)
{
	const struct expr_arg *a = c->args;

	if (a[0].type == ARG_STR &&
	    (a[0].str.len == 0 || a[0].str.p[0] != '$' ||
	     (a[0].str.len > 1 && a[0].str.p[1] != '.' && a[0].str.p[1] != '[')))
		return err_set(err, -EINVAL, "'" STR_FMT "' is not a path like $.name[0].other",
			       STR_ARG(str_sub(a[0].str, 0, 100)));
	if (a[1].type == ARG_STR && !str_is_eq(a[1].str, STR("int"))) {
		c->error_at = a[1].at;
		return err_set(err, -EINVAL, "'" STR_FMT "' is not int, the only type there is",
			       STR_ARG(str_sub(a[1].str, 0, 100)));
	}
	return 0;
}

static int conv_json_query(struct eval *ev, const struct expr_arg *args, unsigned kw,
			   struct sample *smp)
{
	return json_sample(ev, smp->str, args, smp);
}

/* kw: 0 the header, 1 the payload. Nothing here says that the token is genuine: jwt_verify does. */
static int conv_jwt_query(struct eval *ev, const struct expr_arg *args, unsigned kw,
			  struct sample *smp)
{
	struct str token = smp->str, part[3];
	char *out;
	ssize_t n;

	for (unsigned i = 0; i < 3; i++) {
		if (!token.p)
			return -ENOENT;
		part[i] = str_cut(&token, '.');
	}
	if (token.p)
		return -ENOENT;
	out = eval_alloc(ev, part[kw].len / 4 * 3 + 6);
	if (!out)
		return -ENOMEM;
	n = b64_decode(part[kw], out, true);
	if (n <= 0)
		return -ENOENT;
	if (args[0].type == ARG_STR)
		return json_sample(ev, str_make(out, (size_t)n), args, smp);
	sample_set_str(smp, SAMPLE_STR, str_make(out, (size_t)n));
	return 0;
}

static const struct conv_def convs[] = {
	C("json_query", "path,[int]", "s[s", STR, ANY, 0, conv_json_query, check_query,
	  "a value of a JSON text by its path, $.a.b[0]; numbers as %g prints them, or as "
	  "integers"),
	C("jwt_header_query", "[path],[int]", "[ss", BIN, ANY, 0, conv_jwt_query, check_query,
	  "a value of a JSON Web Token's header, or the whole header"),
	C("jwt_payload_query", "[path],[int]", "[ss", BIN, ANY, 1, conv_jwt_query, check_query,
	  "a value of a JSON Web Token's payload, or the whole payload; see jwt_verify"),
};

const struct conv_table conv_json_table = { convs, ARRAY_SIZE(convs) };
