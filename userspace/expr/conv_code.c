/* SPDX-License-Identifier: BSD-2-Clause */
/* Converters between codings: hexadecimal, base64, URL, JSON. Workers; results in the arena. */
#include "expr/expr_priv.h"

static const char hex_upper[] = "0123456789ABCDEF";

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = str_lower_char(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int conv_hex(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	struct str s = smp->str;
	char *p = eval_alloc(ev, s.len * 2);

	if (!p)
		return -ENOMEM;
	for (size_t i = 0; i < s.len; i++) {
		p[2 * i] = hex_upper[(uint8_t)s.p[i] >> 4];
		p[2 * i + 1] = hex_upper[s.p[i] & 15];
	}
	sample_set_str(smp, SAMPLE_STR, str_make(p, s.len * 2));
	return 0;
}

static int conv_base2(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	struct str s = smp->str;
	char *p = eval_alloc(ev, s.len * 8);

	if (!p)
		return -ENOMEM;
	for (size_t i = 0; i < s.len * 8; i++)
		p[i] = (char)('0' + (s.p[i / 8] >> (7 - i % 8) & 1));
	sample_set_str(smp, SAMPLE_STR, str_make(p, s.len * 8));
	return 0;
}

static int conv_hex2i(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	uint64_t v = 0;

	if (smp->str.len == 0 || smp->str.len > 16)
		return -ENOENT;
	for (size_t i = 0; i < smp->str.len; i++) {
		int d = hex_value(smp->str.p[i]);

		if (d < 0)
			return -ENOENT;
		v = v << 4 | (uint64_t)d;
	}
	sample_set_int(smp, (int64_t)v);
	return 0;
}

/* --- chunks of bytes as numbers --- */

enum chunk_kind {
	CHUNK_BE_DEC,
	CHUNK_LE_DEC,
	CHUNK_BE_HEX
};

static int check_chunks(struct fn_check *c, struct err *err)
{
	int64_t max = c->kw == CHUNK_BE_HEX ? 64 : 8;

	if (c->args[1].type == ARG_NONE && c->kw == CHUNK_BE_HEX)
		c->args[1].num = 1;
	if ((c->args[1].type == ARG_INT && c->args[1].num < 1) || c->args[1].num > max)
		return err_set(err, -EINVAL, "a chunk has 1 to %d bytes", (int)max);
	return 0;
}

static size_t chunk_put(char *out, struct str chunk, enum chunk_kind kind)
{
	uint64_t v = 0;

	if (kind == CHUNK_BE_HEX) {
		for (size_t i = 0; i < chunk.len; i++) {
			out[2 * i] = hex_upper[(uint8_t)chunk.p[i] >> 4];
			out[2 * i + 1] = hex_upper[chunk.p[i] & 15];
		}
		return chunk.len * 2;
	}
	for (size_t i = 0; i < chunk.len; i++)
		v = v << 8 | (uint8_t)chunk.p[kind == CHUNK_BE_DEC ? i : chunk.len - 1 - i];
	return fmt_u64(out, v);
}

static int conv_chunks(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *smp)
{
	struct str s = smp->str, sep = args[0].type == ARG_STR ? args[0].str : STR("");
	size_t size = args[1].num ? (size_t)args[1].num : 1, n = 0;
	bool must_be_full = args[2].type == ARG_INT && args[2].num;
	char *p = eval_alloc(ev, (s.len / size + 1) * (sep.len + 2 * size + 20));

	if (!p)
		return -ENOMEM;
	for (size_t i = 0; i < s.len; i += size) {
		struct str chunk = str_sub(s, i, size);

		if (chunk.len < size && must_be_full)
			break;
		if (i && sep.len) {
			memcpy(p + n, sep.p, sep.len);
			n += sep.len;
		}
		n += chunk_put(p + n, chunk, (enum chunk_kind)kw);
	}
	sample_set_str(smp, SAMPLE_STR, str_make(p, n));
	return 0;
}

/* --- base64 (RFC 4648) --- */

static const char b64_std[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char b64_url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static int conv_b64enc(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *smp)
{
	const char *abc = kw ? b64_url : b64_std;
	struct str s = smp->str;
	char *p = eval_alloc(ev, (s.len + 2) / 3 * 4);
	size_t n = 0;

	if (!p)
		return -ENOMEM;
	for (size_t i = 0; i < s.len; i += 3) {
		size_t left = s.len - i;
		uint32_t v = (uint32_t)(uint8_t)s.p[i] << 16;

		v |= left > 1 ? (uint32_t)(uint8_t)s.p[i + 1] << 8 : 0;
		v |= left > 2 ? (uint8_t)s.p[i + 2] : 0;
		p[n++] = abc[v >> 18];
		p[n++] = abc[v >> 12 & 63];
		if (left > 1)
			p[n++] = abc[v >> 6 & 63];
		else if (!kw)
			p[n++] = '=';
		if (left > 2)
			p[n++] = abc[v & 63];
		else if (!kw)
			p[n++] = '=';
	}
	sample_set_str(smp, SAMPLE_STR, str_make(p, n));
	return 0;
}

static int b64_value(char c, bool is_url)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == (is_url ? '-' : '+'))
		return 62;
	return c == (is_url ? '_' : '/') ? 63 : -1;
}

ssize_t b64_decode(struct str in, char *out, bool is_url)
{
	size_t n = 0, pad = 0;
	uint32_t v = 0;
	unsigned bits = 0;

	if (!is_url && in.len % 4)
		return -EINVAL;
	while (in.len && pad < 2 && in.p[in.len - 1] == '=') {
		in.len--;
		pad++;
	}
	if (in.len % 4 == 1)
		return -EINVAL;
	for (size_t i = 0; i < in.len; i++) {
		int d = b64_value(in.p[i], is_url);

		if (d < 0)
			return -EINVAL;
		v = v << 6 | (uint32_t)d;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			out[n++] = (char)(v >> bits);
		}
	}
	return (ssize_t)n;
}

static int conv_b64dec(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *smp)
{
	char *p = eval_alloc(ev, smp->str.len / 4 * 3 + 6);
	ssize_t n;

	if (!p)
		return -ENOMEM;
	n = b64_decode(smp->str, p, kw);
	if (n < 0)
		return -ENOENT;
	sample_set_str(smp, SAMPLE_BIN, str_make(p, (size_t)n));
	return 0;
}

/* --- URL (RFC 3986 2.1) --- */

ssize_t url_decode(struct str in, char *out, bool plus_is_space)
{
	size_t n = 0;

	for (size_t i = 0; i < in.len; i++) {
		char c = in.p[i];

		if (c == '+' && plus_is_space) {
			c = ' ';
		} else if (c == '%') {
			int hi = i + 2 < in.len ? hex_value(in.p[i + 1]) : -1;
			int lo = i + 2 < in.len ? hex_value(in.p[i + 2]) : -1;

			if (hi < 0 || lo < 0)
				return -EINVAL;
			c = (char)(hi << 4 | lo);
			i += 2;
		}
		out[n++] = c;
		/* '+' means a space only in the query. */
	}
	return (ssize_t)n;
}

static int conv_url_dec(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *smp)
{
	bool is_form = args[0].type == ARG_INT && args[0].num;
	size_t q = is_form ? 0 : str_find_char(smp->str, '?');
	struct str path = str_sub(smp->str, 0, q == SIZE_MAX ? smp->str.len : q);
	struct str query = str_from(smp->str, path.len);
	char *p = eval_alloc(ev, smp->str.len);
	ssize_t a, b;

	if (!p)
		return -ENOMEM;
	a = url_decode(path, p, false);
	b = a < 0 ? a : url_decode(query, p + a, true);
	if (b < 0)
		return -ENOENT;
	sample_set_str(smp, SAMPLE_STR, str_make(p, (size_t)(a + b)));
	return 0;
}

static bool is_unreserved(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

static int conv_url_enc(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *smp)
{
	struct str s = smp->str;
	char *p = eval_alloc(ev, s.len * 3);
	size_t n = 0;

	if (!p)
		return -ENOMEM;
	for (size_t i = 0; i < s.len; i++) {
		if (is_unreserved(s.p[i])) {
			p[n++] = s.p[i];
			continue;
		}
		p[n++] = '%';
		p[n++] = hex_upper[(uint8_t)s.p[i] >> 4];
		p[n++] = hex_upper[s.p[i] & 15];
	}
	sample_set_str(smp, SAMPLE_STR, str_make(p, n));
	return 0;
}

/* --- JSON (RFC 8259 7) --- */

enum json_charset {
	JSON_ASCII,
	JSON_UTF8,
	JSON_UTF8S,
	JSON_UTF8P,
	JSON_UTF8PS
};

static int check_json(struct fn_check *c, struct err *err)
{
	static const char *const names[] = { "ascii", "utf8", "utf8s", "utf8p", "utf8ps" };

	c->args[0].num = JSON_ASCII;
	if (c->args[0].type == ARG_NONE)
		return 0;
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		if (str_is_eq(c->args[0].str, str_from_cstr(names[i]))) {
			c->args[0].num = i;
			return 0;
		}
	}
	return err_set(err, -EINVAL, "expected ascii, utf8, utf8s, utf8p or utf8ps");
}

/* One code point; returns its bytes, 0 when malformed (RFC 3629 4). */
static unsigned utf8_next(struct str s, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint8_t c = (uint8_t)s.p[0];
	unsigned n = c < 0x80 ? 1 : c >> 5 == 6 ? 2 : c >> 4 == 14 ? 3 : c >> 3 == 30 ? 4 : 0;

	if (n == 0 || s.len < n)
		return 0;
	*ret = n == 1 ? c : c & (0x7fu >> n);
	for (unsigned i = 1; i < n; i++) {
		if (((uint8_t)s.p[i] & 0xc0) != 0x80)
			return 0;
		*ret = *ret << 6 | ((uint8_t)s.p[i] & 0x3f);
	}
	if (*ret < least[n] || *ret > 0x10ffff || (*ret >= 0xd800 && *ret < 0xe000))
		return 0;
	return n;
}

static size_t json_put_u16(char *out, uint32_t v)
{
	out[0] = '\\';
	out[1] = 'u';
	for (unsigned i = 0; i < 4; i++)
		out[2 + i] = hex_upper[v >> (12 - 4 * i) & 15];
	return 6;
}

static size_t json_put(char *out, uint32_t v)
{
	static const char from[] = "\"\\/\b\f\n\r\t", to[] = "\"\\/bfnrt";
	const char *e = v && v < 0x80 ? strchr(from, (int)v) : NULL;

	if (e) {
		out[0] = '\\';
		out[1] = to[e - from];
		return 2;
	}
	if (v >= 0x20 && v < 0x7f) {
		out[0] = (char)v;
		return 1;
	}
	if (v < 0x10000)
		return json_put_u16(out, v);
	v -= 0x10000;
	return json_put_u16(out, 0xd800 | v >> 10) + json_put_u16(out + 6, 0xdc00 | (v & 0x3ff));
}

static int conv_json(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	struct str s = smp->str;
	char *p = eval_alloc(ev, s.len * 6 + 12);
	size_t n = 0;
	int64_t charset = args[0].num;

	if (!p)
		return -ENOMEM;
	while (s.len) {
		uint32_t v = (uint8_t)s.p[0];
		unsigned used = charset == JSON_ASCII ? 1 : utf8_next(s, &v);

		if (used == 0) {
			if (charset == JSON_UTF8)
				return -ENOENT;
			/* utf8s and utf8ps leave a broken byte out, utf8p writes it as it is. */
			if (charset == JSON_UTF8P)
				n += json_put(p + n, (uint8_t)s.p[0]);
			s = str_from(s, 1);
			continue;
		}
		n += json_put(p + n, v);
		s = str_from(s, used);
	}
	sample_set_str(smp, SAMPLE_STR, str_make(p, n));
	return 0;
}

static const struct conv_def convs[] = {
	C("hex", "", "", BIN, STR, 0, conv_hex, NULL, "bytes as hexadecimal digits"),
	C("base2", "", "", BIN, STR, 0, conv_base2, NULL, "bytes as binary digits"),
	C("hex2i", "", "", STR, SINT, 0, conv_hex2i, NULL, "hexadecimal digits as a number"),
	C("be2dec", "[separator],[chunk],[must_be_full]", "[sii", BIN, STR, CHUNK_BE_DEC,
	  conv_chunks, check_chunks, "big-endian chunks as decimal numbers"),
	C("le2dec", "[separator],[chunk],[must_be_full]", "[sii", BIN, STR, CHUNK_LE_DEC,
	  conv_chunks, check_chunks, "little-endian chunks as decimal numbers"),
	C("be2hex", "[separator],[chunk],[must_be_full]", "[sii", BIN, STR, CHUNK_BE_HEX,
	  conv_chunks, check_chunks, "chunks as hexadecimal digits"),
	C("base64", "", "", BIN, STR, 0, conv_b64enc, NULL, "to base64"),
	C("ub64enc", "", "", BIN, STR, 1, conv_b64enc, NULL, "to base64url without padding"),
	C("b64dec", "", "", STR, BIN, 0, conv_b64dec, NULL, "from base64"),
	C("ub64dec", "", "", STR, BIN, 1, conv_b64dec, NULL, "from base64url"),
	C("url_dec", "[in_form]", "[i", STR, STR, 0, conv_url_dec, NULL,
	  "%XX decoded, '+' in the query is a space (in_form: everywhere)"),
	C("url_enc", "[type]", "[s", STR, STR, 0, conv_url_enc, NULL, "%XX for reserved bytes"),
	C("json", "[charset]", "[s", STR, STR, 0, conv_json, check_json,
	  "escaped for a JSON string"),
};

const struct conv_table conv_code_table = { convs, ARRAY_SIZE(convs) };
