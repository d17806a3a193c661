/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading the words of a line into fields, by the type that the keyword's row names. Every refusal says
 * what was expected at the column where it was not. Control thread; strings stay in the
 * configuration's arena, where the lexer put them.
 */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>

#include "conf/kw_action_priv.h"

#define MS 1000000ull

bool line_accept(struct line *l, const char *word)
{
	if (l->at >= l->n || !str_is_eq(l->words[l->at], str_from_cstr(word)))
		return false;
	l->at++;
	return true;
}

/* "timeout client", for messages; at most 60 characters. */
static const char *keyword_text(const struct line *l, char out[64])
{
	size_t len = 0;

	out[0] = '\0';
	for (unsigned i = l->kw; i < l->kw + l->kw_n && i < l->n && len < 60; i++)
		len += (size_t)snprintf(out + len, 62 - len, "%s%.*s", i == l->kw ? "" : " ",
					(int)(l->words[i].len > 30 ? 30 : l->words[i].len),
					l->words[i].p);
	return out;
}

int line_want(struct parser *ps, struct line *l, const char *what, struct str *ret)
{
	char kw[64];

	*ret = STR_NULL;
	if (!line_has(l))
		return conf_fail(ps, l, l->n, "'%s' expects %s", keyword_text(l, kw), what);
	*ret = l->words[l->at++];
	return 0;
}

int line_want_end(struct parser *ps, struct line *l)
{
	char kw[64];

	if (!line_has(l))
		return 0;
	return conf_fail(ps, l, l->at, "unexpected '" STR_FMT "' behind '%s'",
			 (int)(l->words[l->at].len > 64 ? 64 : l->words[l->at].len),
			 l->words[l->at].p, keyword_text(l, kw));
}

char *line_join(struct parser *ps, const struct line *l, unsigned from)
{
	size_t len = 1, at = 0;
	char *out;

	for (unsigned i = from; i < l->n; i++)
		len += l->words[i].len + 1;
	out = arena_alloc(&ps->conf->arena, len);
	if (!out)
		return NULL;
	for (unsigned i = from; i < l->n; i++) {
		if (i > from)
			out[at++] = ' ';
		memcpy(out + at, l->words[i].p, l->words[i].len);
		at += l->words[i].len;
	}
	out[at] = '\0';
	return out;
}

static int fail_value(struct parser *ps, struct line *l, const char *what)
{
	char kw[64];
	struct str w = l->words[l->at - 1];

	return conf_fail(ps, l, l->at - 1, "'%s' expects %s instead of '" STR_FMT "'",
			 keyword_text(l, kw), what, (int)(w.len > 64 ? 64 : w.len), w.p);
}

int arg_u64(struct parser *ps, struct line *l, uint64_t min, uint64_t max, uint64_t *ret)
{
	char what[80];
	struct str w;
	int r;

	if (max == UINT32_MAX && min == 0)
		snprintf(what, sizeof(what), "a number");
	else
		snprintf(what, sizeof(what), "a number from %llu to %llu", (unsigned long long)min,
			 (unsigned long long)max);
	r = line_want(ps, l, what, &w);
	if (r)
		return r;
	if (str_to_u64(w, ret) || *ret < min || *ret > max)
		return fail_value(ps, l, what);
	return 0;
}

int arg_time(struct parser *ps, struct line *l, uint64_t unit, uint64_t *ret)
{
	const char *what = unit == MS
				   ? "a time such as 5s or 500ms (plain numbers are milliseconds)"
				   : "a time such as 10s or 1m (plain numbers are seconds)";
	struct str w;
	int r = line_want(ps, l, what, &w);

	if (r)
		return r;
	r = str_to_duration(w, unit, ret);
	if (r == -ERANGE || (r == 0 && *ret > 100ull * 365 * 86400 * 1000 * MS))
		return fail_value(ps, l, "a time of less than 100 years");
	return r ? fail_value(ps, l, what) : 0;
}

int arg_size(struct parser *ps, struct line *l, uint64_t *ret)
{
	const char *what = "a size such as 16384, 16k or 1m";
	struct str w;
	int r = line_want(ps, l, what, &w);

	if (r)
		return r;
	return str_to_size(w, ret) ? fail_value(ps, l, what) : 0;
}

int arg_value(struct parser *ps, struct line *l, const struct keyword_value *values, uint8_t *ret)
{
	char what[400] = "one of: ";
	size_t len = strlen(what);
	struct nearest n;
	char hint[96], kw[64];
	struct str w;
	int r;

	for (const struct keyword_value *v = values; v->name.p && len < sizeof(what); v++)
		len += (size_t)snprintf(what + len, sizeof(what) - len, "%s" STR_FMT,
					v == values ? "" : ", ", STR_ARG(v->name));
	r = line_want(ps, l, what, &w);
	if (r)
		return r;
	nearest_init(&n, w);
	for (const struct keyword_value *v = values; v->name.p; v++) {
		if (str_is_eq(v->name, w)) {
			*ret = v->value;
			return 0;
		}
		nearest_offer(&n, v->name);
	}
	return conf_fail(ps, l, l->at - 1, "'%s' expects %s instead of '" STR_FMT "'%s",
			 keyword_text(l, kw), what, (int)(w.len > 64 ? 64 : w.len), w.p,
			 nearest_hint(&n, hint));
}

int arg_string(struct parser *ps, struct line *l, const char *what, char **ret)
{
	struct str w;
	int r = line_want(ps, l, what, &w);

	if (r)
		return r;
	if (!w.len)
		return fail_value(ps, l, what);
	*ret = (char *)w.p; /* NUL-terminated by the lexer */
	return 0;
}

int arg_endpoint(struct parser *ps, struct line *l, struct endpoint *ret)
{
	struct str w, text;
	struct err err;
	int r = line_want(ps, l, "an address", &w);

	if (r)
		return r;
	text = lex_expand(&ps->lexer, w, &err);
	if (text.p && endpoint_parse(text, ret, &err) == 0)
		return 0;
	return conf_fail(ps, l, l->at - 1, "%s", err.text);
}

int arg_user(struct parser *ps, struct line *l, int *ret_uid)
{
	struct passwd *pw;
	struct str w;
	int r = line_want(ps, l, "the name of a user", &w);

	if (r)
		return r;
	pw = getpwnam(w.p);
	if (!pw)
		return conf_fail(ps, l, l->at - 1, "there is no user '" STR_FMT "' on this system",
				 (int)(w.len > 64 ? 64 : w.len), w.p);
	*ret_uid = (int)pw->pw_uid;
	return 0;
}

int arg_group(struct parser *ps, struct line *l, int *ret_gid)
{
	struct group *gr;
	struct str w;
	int r = line_want(ps, l, "the name of a group", &w);

	if (r)
		return r;
	gr = getgrnam(w.p);
	if (!gr)
		return conf_fail(ps, l, l->at - 1, "there is no group '" STR_FMT "' on this system",
				 (int)(w.len > 64 ? 64 : w.len), w.p);
	*ret_gid = (int)gr->gr_gid;
	return 0;
}

static int apply_number(struct parser *ps, struct line *l, void *field, const struct keyword *kw)
{
	uint64_t v;
	int r = kw->type == ARG_SIZE ? arg_size(ps, l, &v)
				     : arg_u64(ps, l, kw->min, kw->max ? kw->max : UINT32_MAX, &v);

	if (r)
		return r;
	if (v > (kw->max ? kw->max : UINT32_MAX) || v < kw->min)
		return conf_fail(ps, l, l->at - 1,
				 "'" STR_FMT "' expects a value from %llu to %llu",
				 STR_ARG(kw->name), (unsigned long long)kw->min,
				 (unsigned long long)(kw->max ? kw->max : UINT32_MAX));
	if (kw->type == ARG_U16)
		*(uint16_t *)field = (uint16_t)v;
	else
		*(uint32_t *)field = (uint32_t)v;
	return 0;
}

static int apply_noop(struct line *l, const struct keyword *kw)
{
	if (!(kw->flags & KW_ONE_WORD))
		l->at = l->n;
	else if (line_has(l))
		l->at++;
	return 0;
}

int keyword_apply(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	void *field = (char *)obj + kw->offset;

	switch ((enum arg_type)kw->type) {
	case ARG_FLAG:
		*(bool *)field = !l->is_negated;
		return 0;
	case ARG_UINT:
	case ARG_INT:
	case ARG_U16:
	case ARG_SIZE:
		return apply_number(ps, l, field, kw);
	case ARG_TIME:
		return arg_time(ps, l, MS, field);
	case ARG_TIME_S:
		return arg_time(ps, l, 1000 * MS, field);
	case ARG_STRING:
		if (kw->min)
			return arg_path(ps, l, kw->args, (enum path_kind)kw->min, field);
		return arg_string(ps, l, kw->args ? kw->args : "a value", field);
	case ARG_REST:
		*(char **)field = line_join(ps, l, l->at);
		l->at = l->n;
		return *(char **)field ? 0 : -ENOMEM;
	case ARG_ENUM:
		return arg_value(ps, l, kw->values, field);
	case ARG_FUNC:
		return kw->parse(ps, l, obj, kw);
	case ARG_SUB:
		return keyword_dispatch(ps, l, ps->section,
					&(struct scope){ .table = kw->sub, .obj = obj }, 1);
	case ARG_NOOP:
		return apply_noop(l, kw);
	}
	return 0;
}
