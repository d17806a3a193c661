/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Environment variables as a configuration sees them: what setenv & co. said, what is predefined, then
 * the process's own. The process's environment is only read, so that parsing a new configuration
 * beside running workers changes nothing. Control thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "conf/conf_priv.h"

static struct env_var *env_lookup(const struct parser *ps, struct str name)
{
	struct list *p;

	list_for_each(p, &ps->env) {
		struct env_var *v = list_entry(p, struct env_var, link);

		if (str_is_eq(v->name, name))
			return v;
	}
	return NULL;
}

static bool env_is_kept(const struct parser *ps, struct str name)
{
	if (!ps->is_env_reset)
		return true;
	for (unsigned i = 0; i < ps->n_env_keep; i++) {
		if (str_is_eq(ps->env_keep[i], name))
			return true;
	}
	return false;
}

/* ".LINE" and its kin say where the parser is. */
static struct str env_pseudo(struct parser *ps, struct str name)
{
	if (str_is_eq(name, STR(".FILE")))
		return str_from_cstr(ps->file);
	if (str_is_eq(name, STR(".LINE")))
		return arena_printf(&ps->arena, "%u", ps->line_no);
	if (str_is_eq(name, STR(".SECTION")))
		return str_from_cstr(ps->section_name ? ps->section_name : "");
	return STR_NULL;
}

struct str parser_getenv(void *parser, struct str name)
{
	struct parser *ps = parser;
	struct env_var *v;
	char text[256];

	if (name.len && name.p[0] == '.')
		return env_pseudo(ps, name);
	v = env_lookup(ps, name);
	if (v)
		return v->value;
	if (name.len >= sizeof(text) || !env_is_kept(ps, name))
		return STR_NULL;
	memcpy(text, name.p, name.len);
	text[name.len] = '\0';
	return str_from_cstr(getenv(text));
}

int parser_setenv(struct parser *ps, struct str name, struct str value)
{
	struct env_var *v = env_lookup(ps, name);

	if (!v) {
		v = arena_zalloc(&ps->arena, sizeof(*v));
		if (!v)
			return -ENOMEM;
		v->name = name;
		list_push_front(&ps->env, &v->link);
	}
	v->value = value;
	return 0;
}

static int want_name(struct parser *ps, struct line *l, struct str *ret)
{
	int r = line_want(ps, l, "the name of an environment variable", ret);

	if (r)
		return r;
	for (size_t i = 0; i < ret->len; i++) {
		char c = str_lower_char(ret->p[i]);

		if (!((c >= 'a' && c <= 'z') || c == '_' || (i && c >= '0' && c <= '9')))
			return conf_fail_off(ps, l, l->at - 1, i,
					     "an environment variable's name consists of letters, "
					     "digits and '_', not '%c'",
					     ret->p[i] >= ' ' && ret->p[i] < 127 ? ret->p[i] : '?');
	}
	if (!ret->len)
		return conf_fail(ps, l, l->at - 1, "empty name of an environment variable");
	return 0;
}

static int parse_setenv(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct str name, value;
	int r = want_name(ps, l, &name);

	if (r == 0)
		r = line_want(ps, l, "a value", &value);
	if (r)
		return r;
	if (kw->min && parser_getenv(ps, name).p) /* presetenv: only when there is none */
		return 0;
	return parser_setenv(ps, name, value);
}

static int parse_unsetenv(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	int r = 0;

	if (!line_has(l))
		return line_want(ps, l, "the names of environment variables", &(struct str){ 0 });
	while (r == 0 && line_has(l)) {
		struct str name;

		r = want_name(ps, l, &name);
		if (r == 0)
			r = parser_setenv(ps, name, STR_NULL);
	}
	return r;
}

/* Removes everything but the named variables. */
static int parse_resetenv(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	unsigned first = l->at;
	struct list *p, *tmp;

	for (; line_has(l); l->at++)
		;
	ps->is_env_reset = true;
	ps->env_keep = l->words + first;
	ps->n_env_keep = l->n - first;
	list_for_each_safe(p, tmp, &ps->env) {
		if (!env_is_kept(ps, list_entry(p, struct env_var, link)->name))
			list_del(p);
	}
	return 0;
}

static const struct keyword rows[] = {
	{ NAME("setenv"), SEC_GLOBAL, ARG_FUNC, .grade = '2', .parse = parse_setenv,
	  .args = "<name> <value>",
	  .help = "sets an environment variable for the rest of the files" },
	{ NAME("presetenv"), SEC_GLOBAL, ARG_FUNC, .grade = '2', .parse = parse_setenv, .min = 1,
	  .args = "<name> <value>", .help = "the same, unless it is set already" },
	{ NAME("unsetenv"), SEC_GLOBAL, ARG_FUNC, .grade = '2', .parse = parse_unsetenv,
	  .args = "<name>...", .help = "removes environment variables" },
	{ NAME("resetenv"), SEC_GLOBAL, ARG_FUNC, .grade = '2', .parse = parse_resetenv,
	  .args = "[<name>...]", .help = "removes all environment variables but these" },
};

const struct keyword_table conf_kw_env = KEYWORDS("keyword", rows);
