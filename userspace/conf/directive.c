/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lines that begin with a dot: conditional blocks and messages. A block that is not read is not looked
 * at but for its own dots, so it may hold what this version does not understand. Control thread.
 */
#include <errno.h>

#include "conf/conf_priv.h"

bool directive_is_active(const struct parser *ps)
{
	return ps->n_ifs == 0 || ps->ifs[ps->n_ifs - 1].is_active;
}

/* Of this file: a block does not go on in a file that is included. */
static struct if_level *level(struct parser *ps)
{
	return ps->n_ifs > ps->n_outer_ifs ? &ps->ifs[ps->n_ifs - 1] : NULL;
}

/* Words behind the directive as one text; 1, 0 or what conf_fail() returned. */
static int condition(struct parser *ps, struct line *l)
{
	const struct cond_env env = { .getenv = parser_getenv, .ctx = ps };
	char *text = line_join(ps, l, 1);
	unsigned word = 1;
	struct err err;
	size_t at;
	int r;

	if (!text)
		return -ENOMEM;
	r = cond_text_eval(&env, str_from_cstr(text), &at, &err);
	if (r >= 0)
		return r;
	if (l->n < 2)
		return conf_fail(ps, l, 0, "%s", err.text);
	while (word + 1 < l->n && at > l->words[word].len) {
		at -= l->words[word].len + 1;
		word++;
	}
	return conf_fail_off(ps, l, word, at, "%s", err.text);
}

static int on_if(struct parser *ps, struct line *l)
{
	bool is_outer = directive_is_active(ps);
	struct if_level *v;
	int r = 0;

	if (ps->n_ifs == CONF_MAX_NESTED_IF)
		return conf_fail(ps, l, 0, "'.if' is nested too deeply (max %d)",
				 CONF_MAX_NESTED_IF);
	if (is_outer)
		r = condition(ps, l);
	if (r == -ENOMEM)
		return r;
	v = &ps->ifs[ps->n_ifs++];
	/* A condition that is wrong counts as false and its other branches as not taken. */
	*v = (struct if_level){ .pos = l->pos,
				.is_active = is_outer && r > 0,
				.is_done = !is_outer || r != 0 };
	return r < 0 ? r : 0;
}

static int on_elif(struct parser *ps, struct line *l)
{
	struct if_level *v = level(ps);
	int r = 0;

	if (!v)
		return conf_fail(ps, l, 0, "'.elif' without '.if'");
	if (v->has_else)
		return conf_fail(ps, l, 0, "'.elif' behind '.else' (the '.if' is in line %u)",
				 v->pos.line);
	v->is_active = false;
	if (v->is_done)
		return 0;
	r = condition(ps, l);
	if (r == -ENOMEM)
		return r;
	v->is_active = r > 0;
	v->is_done = r != 0;
	return r < 0 ? r : 0;
}

static int on_else(struct parser *ps, struct line *l)
{
	struct if_level *v = level(ps);

	if (!v)
		return conf_fail(ps, l, 0, "'.else' without '.if'");
	if (v->has_else)
		return conf_fail(ps, l, 0, "second '.else' (the '.if' is in line %u)", v->pos.line);
	v->has_else = true;
	v->is_active = !v->is_done;
	v->is_done = true;
	return l->n > 1 ? conf_fail(ps, l, 1, "unexpected '" STR_FMT "' behind '.else'",
				    STR_ARG(l->words[1]))
			: 0;
}

static int on_endif(struct parser *ps, struct line *l)
{
	if (!level(ps))
		return conf_fail(ps, l, 0, "'.endif' without '.if'");
	ps->n_ifs--;
	return l->n > 1 ? conf_fail(ps, l, 1, "unexpected '" STR_FMT "' behind '.endif'",
				    STR_ARG(l->words[1]))
			: 0;
}

static int say(struct parser *ps, struct line *l, enum conf_severity sev)
{
	char *text = line_join(ps, l, 1);

	return text ? report_at(ps, sev, &l->pos, text) : -ENOMEM;
}

static int on_notice(struct parser *ps, struct line *l)
{
	return say(ps, l, CONF_NOTICE);
}

static int on_warning(struct parser *ps, struct line *l)
{
	return say(ps, l, CONF_WARNING);
}

static int on_alert(struct parser *ps, struct line *l)
{
	return say(ps, l, CONF_ERROR);
}

/* Diagnostics (-dD) are off. */
static int on_diag(struct parser *ps, struct line *l)
{
	return 0;
}

static const struct directive {
	struct str name;
	int (*run)(struct parser *ps, struct line *l);
	bool is_block; /* also looked at in a block that is not read */
} directives[] = {
	{ NAME(".if"), on_if, true },	       { NAME(".elif"), on_elif, true },
	{ NAME(".else"), on_else, true },      { NAME(".endif"), on_endif, true },
	{ NAME(".notice"), on_notice, false }, { NAME(".warning"), on_warning, false },
	{ NAME(".alert"), on_alert, false },   { NAME(".diag"), on_diag, false },
};

int directive_line(struct parser *ps, struct line *l)
{
	struct nearest n;
	char hint[96];

	nearest_init(&n, l->words[0]);
	for (size_t i = 0; i < ARRAY_SIZE(directives); i++) {
		const struct directive *d = &directives[i];

		if (str_is_eq(d->name, l->words[0]))
			return d->is_block || directive_is_active(ps) ? d->run(ps, l) : 0;
		nearest_offer(&n, d->name);
	}
	if (!directive_is_active(ps))
		return 0;
	return conf_fail(ps, l, 0, "unknown directive '" STR_FMT "'%s",
			 (int)(l->words[0].len > 64 ? 64 : l->words[0].len), l->words[0].p,
			 nearest_hint(&n, hint));
}

int directive_end_of_file(struct parser *ps)
{
	int r = 0;

	while (ps->n_ifs > ps->n_outer_ifs && r != -ENOMEM)
		r = conf_fail_pos(ps, &ps->ifs[--ps->n_ifs].pos,
				  "'.if' without '.endif' in this file");
	return r;
}
