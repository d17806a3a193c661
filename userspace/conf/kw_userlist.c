/* SPDX-License-Identifier: BSD-2-Clause */
/* Section `userlist`: what http_auth() compares with. A list may be used before it is written. */
#include <errno.h>

#include "conf/conf_priv.h"

static struct expr_user *find_user(const struct conf_userlist *ul, struct str name)
{
	for (unsigned i = 0; i < ul->list.n_users; i++) {
		if (str_is_eq(ul->list.users[i].name, name))
			return (struct expr_user *)&ul->list.users[i];
	}
	return NULL;
}

/* Room for one more is made by doubling: the list may be long. */
static struct expr_user *add_user(struct parser *ps, struct conf_userlist *ul, struct str name)
{
	unsigned n = ul->list.n_users;
	struct expr_user *users = (struct expr_user *)ul->list.users;

	if (n == 0 || (n >= 8 && (n & (n - 1)) == 0)) {
		users = arena_zalloc(&ps->conf->arena, (n ? n * 2 : 8) * sizeof(*users));
		if (!users)
			return NULL;
		if (n)
			memcpy(users, ul->list.users, n * sizeof(*users));
		ul->list.users = users;
	}
	users[n] = (struct expr_user){ .name = name };
	ul->list.n_users++;
	return &users[n];
}

static int join_group(struct parser *ps, struct expr_user *u, struct str group)
{
	struct str *more;

	for (unsigned i = 0; i < u->n_groups; i++) {
		if (str_is_eq(u->groups[i], group))
			return 0;
	}
	more = arena_alloc(&ps->conf->arena, (u->n_groups + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	if (u->n_groups)
		memcpy(more, u->groups, u->n_groups * sizeof(*more));
	more[u->n_groups++] = group;
	u->groups = more;
	return 0;
}

static int parse_user(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_userlist *ul = obj;
	struct expr_user *u;
	struct str name, list;
	int r = line_want(ps, l, "a user's name", &name);

	if (r)
		return r;
	u = find_user(ul, name);
	if (u && u->password.p)
		return conf_fail(ps, l, l->at - 1, "user '" STR_FMT "' is there twice",
				 STR_ARG(str_sub(name, 0, 64)));
	if (!u)
		u = add_user(ps, ul, name);
	if (!u)
		return -ENOMEM;
	while (r == 0 && line_has(l)) {
		if (line_accept(l, "password")) {
			r = line_want(ps, l, "an encrypted password", &u->password);
		} else if (line_accept(l, "insecure-password")) {
			r = line_want(ps, l, "a password", &u->password);
			u->is_plain = true;
		} else if (line_accept(l, "groups")) {
			r = line_want(ps, l, "groups such as a,b", &list);
			while (r == 0 && list.p)
				r = join_group(ps, u, str_cut(&list, ','));
		} else {
			r = conf_fail(ps, l, l->at,
				      "'user' expects password, insecure-password or groups "
				      "instead of '" STR_FMT "'",
				      STR_ARG(str_sub(line_peek(l), 0, 64)));
		}
	}
	return r;
}

static int parse_group(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_userlist *ul = obj;
	struct str group, list;
	int r = line_want(ps, l, "a group's name", &group);

	if (r == 0 && line_accept(l, "users")) {
		r = line_want(ps, l, "users such as a,b", &list);
		while (r == 0 && list.p) {
			struct str name = str_cut(&list, ',');
			struct expr_user *u = find_user(ul, name);

			if (!u)
				u = add_user(ps, ul, name);
			r = u ? join_group(ps, u, group) : -ENOMEM;
		}
	}
	return r;
}

static const struct keyword rows[] = {
	{ NAME("user"), SEC_USERLIST, ARG_FUNC, .parse = parse_user, .grade = '1',
	  .args = "<name> password|insecure-password <p> [groups <g>,...]", .help = "a user" },
	{ NAME("group"), SEC_USERLIST, ARG_FUNC, .parse = parse_group, .grade = '1',
	  .args = "<name> [users <u>,...]", .help = "a group" },
};
const struct keyword_table conf_kw_userlist = KEYWORDS("keyword", rows);
