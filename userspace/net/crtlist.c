/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * crt-list files: "<pem> [options in brackets] [filters…]" per line, '#' comments. Control thread. The parser
 * hands lines to a callback; errors carry file and line.
 */
#include <errno.h>
#include <openssl/ssl.h>

#include "net/tls_priv.h"

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static struct str skip_blanks(struct str s)
{
	while (s.len && is_blank(s.p[0]))
		s = str_from(s, 1);
	return s;
}

static struct str take_word(struct str *s)
{
	struct str word;
	size_t n = 0;

	*s = skip_blanks(*s);
	while (n < s->len && !is_blank(s->p[n]))
		n++;
	word = str_sub(*s, 0, n);
	*s = skip_blanks(str_from(*s, n));
	return word;
}

static int parse_line(struct str s, struct crtlist_line *line, struct err *err)
{
	line->path = take_word(&s);
	line->options = STR_NULL;
	if (s.len && s.p[0] == '[') {
		size_t end = str_find_char(s, ']');

		if (end == SIZE_MAX)
			return err_set(err, -EINVAL, "missing ']'");
		line->options = str_trim(str_sub(s, 1, end - 1));
		s = skip_blanks(str_from(s, end + 1));
	}
	line->filters = str_trim(s);
	if (str_find_char(line->filters, '[') != SIZE_MAX)
		return err_set(err, -EINVAL, "options in brackets come before the SNI filters");
	return 0;
}

int crtlist_parse(struct str text, const char *file, crtlist_fn *use, void *ctx, struct err *err)
{
	unsigned number = 0;

	while (text.p) {
		struct crtlist_line line = { .number = ++number };
		struct str s = str_cut(&text, '\n');
		int r;

		s = str_trim(s);
		if (s.len == 0 || s.p[0] == '#')
			continue;
		if (memchr(s.p, '\0', s.len))
			return err_set(err, -EINVAL, "%s:%u: NUL character", file, number);
		r = parse_line(s, &line, err);
		if (r == 0)
			r = use(ctx, &line, err);
		if (r)
			return err_prefix(err, r, "%s:%u", file, number);
	}
	return 0;
}

/* --- options --- */

static int parse_version(struct str s, uint16_t *ret, struct err *err)
{
	static const struct {
		const char *name;
		uint16_t v;
	} versions[] = {
		{ "SSLv3", SSL3_VERSION },     { "TLSv1.0", TLS1_VERSION },
		{ "TLSv1.1", TLS1_1_VERSION }, { "TLSv1.2", TLS1_2_VERSION },
		{ "TLSv1.3", TLS1_3_VERSION },
	};

	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		if (str_is_eq(s, str_from_cstr(versions[i].name))) {
			*ret = versions[i].v;
			return 0;
		}
	}
	return err_set(err, -EINVAL, "unknown TLS version '" STR_FMT "'", STR_ARG(s));
}

static int parse_verify(struct str s, uint8_t *ret, struct err *err)
{
	if (str_is_eq(s, STR("none")))
		*ret = CONF_VERIFY_NONE;
	else if (str_is_eq(s, STR("optional")))
		*ret = CONF_VERIFY_OPTIONAL;
	else if (str_is_eq(s, STR("required")))
		*ret = CONF_VERIFY_REQUIRED;
	else
		return err_set(err, -EINVAL,
			       "'verify' expects none, optional or required, not '" STR_FMT "'",
			       STR_ARG(s));
	return 0;
}

/* "h2,http/1.1" to length-prefixed names. */
static int parse_alpn(struct str s, struct arena *arena, struct conf_tls *t, struct err *err)
{
	char *p = arena_alloc(arena, s.len + 1), *start = p;

	if (!p)
		return err_set(err, -ENOMEM, "out of memory");
	while (s.p) {
		struct str name = str_cut(&s, ',');

		if (name.len == 0 || name.len > 255)
			return err_set(err, -EINVAL, "bad protocol name in 'alpn'");
		*p++ = (char)name.len;
		memcpy(p, name.p, name.len);
		p += name.len;
	}
	t->alpn = start;
	t->alpn_len = (size_t)(p - start);
	t->has_alpn = true;
	return 0;
}

static int parse_text(struct str value, struct arena *arena, char **ret, struct err *err)
{
	*ret = arena_strdup(arena, value);
	return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* Options whose value is a text of struct conf_tls. */
static const struct {
	const char *name;
	size_t offset;
} text_options[] = {
	{ "ca-file", offsetof(struct conf_tls, ca_file) },
	{ "ca-verify-file", offsetof(struct conf_tls, ca_verify_file) },
	{ "crl-file", offsetof(struct conf_tls, crl_file) },
	{ "ciphers", offsetof(struct conf_tls, ciphers) },
	{ "ciphersuites", offsetof(struct conf_tls, ciphersuites) },
	{ "curves", offsetof(struct conf_tls, curves) },
	{ "ecdhe", offsetof(struct conf_tls, curves) },
	{ "sigalgs", offsetof(struct conf_tls, sigalgs) },
};

static int parse_option(struct str name, struct str *rest, struct arena *arena, struct conf_tls *t,
			struct err *err)
{
	struct str value;

	if (str_is_eq(name, STR("no-alpn"))) {
		t->has_alpn = true;
		t->alpn_len = 0;
		return 0;
	}
	value = take_word(rest);
	if (value.len == 0)
		return err_set(err, -EINVAL, "'" STR_FMT "' expects a value", STR_ARG(name));
	for (size_t i = 0; i < ARRAY_SIZE(text_options); i++) {
		if (str_is_eq(name, str_from_cstr(text_options[i].name)))
			return parse_text(value, arena,
					  (char **)((char *)t + text_options[i].offset), err);
	}
	if (str_is_eq(name, STR("alpn")))
		return parse_alpn(value, arena, t, err);
	if (str_is_eq(name, STR("verify")))
		return parse_verify(value, &t->verify, err);
	if (str_is_eq(name, STR("ssl-min-ver")))
		return parse_version(value, &t->min_version, err);
	if (str_is_eq(name, STR("ssl-max-ver")))
		return parse_version(value, &t->max_version, err);
	return err_set(err, -EINVAL, "unknown crt-list option '" STR_FMT "'", STR_ARG(name));
}

int crtlist_options(struct str options, const struct conf_tls *base, struct arena *arena,
		    struct conf_tls *ret, struct err *err)
{
	struct conf_tls t = *base;

	while (options.len) {
		struct str name = take_word(&options);
		int r = name.len ? parse_option(name, &options, arena, &t, err) : 0;

		if (r)
			return r;
	}
	*ret = t;
	return 0;
}
