/* SPDX-License-Identifier: BSD-2-Clause */
/* Between acl.c (lines and names) and cond.c (conditions made of them). */
#ifndef EXPR_ACL_PRIV_H
#define EXPR_ACL_PRIV_H

#include "expr/expr_priv.h"

/* One line, or one { … } of a condition. */
struct acl_test {
	struct acl_test *next; /* alternatives of the same name */
	struct expr *expr;
	struct pat_user **users; /* one per file, and one for the patterns on the line */
	unsigned n_users;
};

struct acl {
	struct acl *next;
	struct str name;
	const char *file;
	uint32_t line;
	bool is_used;
	bool is_sealed; /* another one refers to it: a line more could make a circle */
	struct acl_test *tests, *last;
};

struct acl_set {
	struct arena *arena;
	const struct acl_set *inherited;
	struct acl *first, *last;
	bool is_adding; /* a line is being compiled */
};

HG_WUR int acl_test_compile(struct expr_env *env, const struct str *words, unsigned n,
			    struct acl_test **ret, unsigned *ret_error_at, struct err *err);
/* 1, 0 or -EAGAIN */
int acl_test_eval(const struct acl_test *t, const struct subject *s);
struct acl *acl_find(const struct acl_set *set, struct str name);

#endif
