/* SPDX-License-Identifier: BSD-2-Clause */
/* Health checks that speak a protocol: `option smtpchk` and its like. Control thread. */
#include <errno.h>

#include "conf/conf_priv.h"

/* Texts go into packets of the check: no line may be slipped in, no length exceeded. */
static int want_word(struct parser *ps, struct line *l, const char *what, struct str *ret)
{
	int r = line_want(ps, l, what, ret);

	if (r)
		return r;
	if (!ret->len || ret->len > 200)
		return conf_fail(ps, l, l->at - 1, "expects %s of 1 to 200 bytes", what);
	for (size_t i = 0; i < ret->len; i++)
		if ((unsigned char)ret->p[i] <= ' ' || ret->p[i] == 127)
			return conf_fail_off(ps, l, l->at - 1, i,
					     "this character is not permitted here");
	return 0;
}

static int parse_smtp(struct parser *ps, struct line *l, struct conf_check *c)
{
	struct str name, text;
	const char *verb;
	int r;

	if (!line_has(l))
		return 0;
	verb = line_accept(l, "EHLO") ? "EHLO" : line_accept(l, "HELO") ? "HELO" : NULL;
	if (!verb)
		return conf_fail(ps, l, l->at,
				 "'option smtpchk' expects HELO or EHLO and a name instead of "
				 "'" STR_FMT "'",
				 STR_ARG(str_sub(line_peek(l), 0, 64)));
	r = want_word(ps, l, "a host name", &name);
	if (r)
		return r;
	text = arena_printf(&ps->conf->arena, "%s " STR_FMT, verb, STR_ARG(name));
	c->user = (char *)text.p;
	return text.p ? 0 : -ENOMEM;
}

static int parse_user(struct parser *ps, struct line *l, struct conf_check *c)
{
	struct str name;
	int r = want_word(ps, l, "a user's name", &name);

	if (r)
		return r;
	c->user = arena_strdup(&ps->conf->arena, name);
	return c->user ? 0 : -ENOMEM;
}

static int parse_mysql(struct parser *ps, struct line *l, struct conf_check *c)
{
	int r;

	if (!line_has(l))
		return 0;
	if (!line_accept(l, "user"))
		return conf_fail(ps, l, l->at, "'option mysql-check' expects 'user' and a name");
	r = parse_user(ps, l, c);
	if (r || !line_has(l))
		return r;
	if (line_accept(l, "pre-41"))
		c->is_pre_41 = true;
	else if (!line_accept(l, "post-41"))
		return conf_fail(ps, l, l->at, "'option mysql-check' knows 'post-41' and 'pre-41'");
	return 0;
}

static int parse_pgsql(struct parser *ps, struct line *l, struct conf_check *c)
{
	if (!line_accept(l, "user"))
		return conf_fail(ps, l, line_has(l) ? l->at : l->n,
				 "'option pgsql-check' expects 'user' and a name");
	return parse_user(ps, l, c);
}

int parse_check_kind(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_check *c = &((struct proxy_build *)obj)->px.check;

	if (l->is_negated) {
		if (c->type == kw->min)
			c->type = CHECK_TCP;
		return 0;
	}
	c->type = (uint8_t)kw->min;
	c->user = NULL;
	c->is_pre_41 = false;
	switch ((enum conf_check_type)c->type) {
	case CHECK_SMTP:
		return parse_smtp(ps, l, c);
	case CHECK_MYSQL:
		return parse_mysql(ps, l, c);
	case CHECK_PGSQL:
		return parse_pgsql(ps, l, c);
	default:
		return 0;
	}
}
