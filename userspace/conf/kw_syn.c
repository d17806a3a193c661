/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SYN cookies: when they are used, the file of secrets that hosts of a fleet and agents share, and the sections of
 * `mode l4` that take part. Control thread; the reader of files also in the command-line tool.
 */
#include <errno.h>
#include <string.h>

#include "conf/conf_priv.h"

/* --- the file ----------------------------------------------------------------------------------------- */

#define KEY_DIGITS (2 * sizeof(struct hg_syn_secret))

static int digit_of(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* Where it is no key, from 0; KEY_DIGITS: it is one. Bytes of a word come least significant first. */
static size_t read_key(struct str s, struct hg_syn_secret *ret)
{
	*ret = (struct hg_syn_secret){ { 0 } };
	for (size_t i = 0; i < KEY_DIGITS; i++) {
		int d = i < s.len ? digit_of(s.p[i]) : -1;
		size_t byte = i / 2;

		if (d < 0)
			return i;
		ret->k[byte / 8] |= (uint64_t)d << (byte % 8 * 8 + (i % 2 ? 0 : 4));
	}
	return s.len > KEY_DIGITS ? KEY_DIGITS + 1 : KEY_DIGITS;
}

static int read_keys(const char *path, struct str text, struct conf_syn_keys *ret, struct err *err)
{
	const char *begin;
	unsigned line = 0;

	*ret = (struct conf_syn_keys){ .n = 0 };
	while (text.len) {
		struct str s = str_cut(&text, '\n');
		struct hg_syn_secret key;
		size_t end, good;

		line++;
		begin = s.p;
		end = str_find_char(s, '#');
		s = str_trim(end == SIZE_MAX ? s : str_sub(s, 0, end));
		if (!s.len)
			continue;
		good = read_key(s, &key);
		if (good != KEY_DIGITS)
			return err_set(err, -EINVAL,
				       "%s:%u:%u: a key of SYN cookies is 64 hexadecimal digits, "
				       "such as 'openssl rand -hex 32' makes",
				       path, line,
				       (unsigned)((size_t)(s.p - begin) +
						  (good > KEY_DIGITS ? KEY_DIGITS : good) + 1));
		if (ret->n == HG_SYN_SECRETS)
			return err_set(err, -E2BIG, "%s:%u:1: more than %u keys of SYN cookies",
				       path, line, HG_SYN_SECRETS);
		ret->secrets[ret->n++] = key;
	}
	if (!ret->n)
		return err_set(err, -EINVAL,
			       "%s:1:1: no key of SYN cookies in it: one a line, of 64 hexadecimal "
			       "digits",
			       path);
	return 0;
}

int conf_syn_keys_read(const char *path, struct conf_syn_keys *ret, struct err *err)
{
	struct arena arena;
	struct str text;
	int r;

	arena_init(&arena, 4096);
	r = conf_read_file(&arena, path, &text, err);
	if (r == 0) {
		r = read_keys(path, text, ret, err);
		explicit_bzero((char *)(uintptr_t)text.p, text.len);
	}
	arena_free(&arena);
	return r;
}

/* --- xdp guard syn-cookies auto|on|off [above <number>/s] [keys <file>] --------------------------------- */

static const struct keyword_value syn_modes[] = { VALUE("auto", HG_SYN_AUTO),
						  VALUE("on", HG_SYN_ON), VALUE("off", HG_SYN_OFF),
						  VALUES_END };

/* Far more than clients open on most services; a flood sends that in milliseconds. */
#define SYN_COOKIES_ABOVE 5000

static int parse_keys(struct parser *ps, struct line *l, struct conf_syn_keys *ret)
{
	struct err err;
	char *path;
	int r = arg_string(ps, l, "a file with keys", &path);

	if (r)
		return r;
	r = conf_syn_keys_read(path, ret, &err);
	return r == 0 || r == -ENOMEM ? r : conf_fail(ps, l, l->at - 1, "%s", err.text);
}

int parse_syn_cookies(struct parser *ps, struct line *l, struct conf_xdp_syn *syn)
{
	struct conf_xdp_syn new = { .is_set = true, .rate = SYN_COOKIES_ABOVE };
	int r;

	if (syn->is_set)
		return conf_fail(ps, l, l->at - 1, "'xdp guard syn-cookies' is set twice");
	r = arg_value(ps, l, syn_modes, &new.mode);
	if (r == 0 && new.mode == HG_SYN_AUTO && line_accept(l, "above"))
		r = guard_read_rate(ps, l, &new.rate);
	if (r == 0 && line_accept(l, "keys"))
		r = parse_keys(ps, l, &new.keys);
	if (r)
		return r;
	if (line_has(l))
		return conf_fail(ps, l, l->at,
				 "'xdp guard syn-cookies' expects 'above <number>/s' behind "
				 "'auto', and then 'keys <file>' or nothing");
	*syn = new;
	return 0;
}

void dump_syn_cookies(FILE *f, const struct conf_xdp_syn *syn)
{
	if (syn->mode == HG_SYN_OFF)
		return;
	fputs(syn->mode == HG_SYN_ON ? "  xdp guard syn-cookies on"
				     : "  xdp guard syn-cookies auto",
	      f);
	if (syn->mode == HG_SYN_AUTO)
		fprintf(f, " above %u/s", syn->rate);
	if (syn->keys.n)
		fprintf(f, ", %u keys", syn->keys.n);
	fputc('\n', f);
}

/* --- xdp guard syn-cookies, in a section ------------------------------------------------------------------ */

int parse_section_cookies(struct parser *ps, struct line *l, struct conf_guard *g)
{
	if (line_has(l))
		return conf_fail(ps, l, l->at,
				 "'xdp guard syn-cookies' of a section expects nothing more: when "
				 "they are used is said in 'global'");
	g->has_cookies = true;
	g->cookies_pos = l->pos;
	return 0;
}

static bool has_tcp(const struct conf_proxy *px)
{
	struct list *p;

	list_for_each(p, &px->binds)
		if (!list_entry(p, struct conf_bind, link)->ep.is_dgram)
			return true;
	return false;
}

/* Why the section cannot have them; NULL: it can. */
static const char *why_not(const struct conf_global *g, const struct conf_proxy *px)
{
	if (px->forward == FORWARD_NAT)
		return "is not possible with 'forward nat': servers see the connection under other "
		       "addresses than the cookie was made for; use 'forward ipip', 'gue' or 'l2'";
	if (px->mode != CONF_MODE_L4)
		return "is for sections of 'mode l4': services of the L7 tier follow 'global' by "
		       "themselves";
	if (!has_tcp(px))
		return "needs a TCP service: this section has none";
	if (!g->xdp_syn.is_set || (g->xdp_syn.mode != HG_SYN_OFF && !g->xdp_syn.keys.n))
		return "needs 'xdp guard syn-cookies auto keys <file>' in 'global': the servers' "
		       "agents check cookies with the same keys";
	return NULL;
}

int finalize_syn_cookies(struct parser *ps)
{
	struct list *p;
	int r = 0;

	list_for_each(p, &ps->conf->proxies) {
		const struct conf_proxy *px = list_entry(p, struct conf_proxy, link);
		const char *why = px->guard.has_cookies ? why_not(&ps->conf->global, px) : NULL;

		if (!why)
			continue;
		r = conf_fail_pos(ps, &px->guard.cookies_pos, "'xdp guard syn-cookies' of '%s' %s",
				  px->name, why);
		if (r == -ENOMEM)
			return r;
	}
	return r;
}
