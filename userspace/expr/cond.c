/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Conditions: `a b or !c { path /x }`: terms side by side are all needed, `or` and `||` separate
 * alternatives, `!` negates, braces hold an ACL without a name. Compiled by the control thread.
 */
#include "expr/acl_priv.h"

struct term {
	const struct acl_test *tests; /* alternatives */
	bool is_negated;
	bool is_last; /* of its alternative */
};

struct cond {
	bool is_negated;
	unsigned n;
	struct term terms[];
};

static const struct {
	const char *name;
	const char *words[5];
} predefined[] = {
	{ "TRUE", { "always_true" } },
	{ "FALSE", { "always_false" } },
	{ "HTTP", { "req_proto_http" } },
	{ "HTTP_1.0", { "req.ver", "1.0" } },
	{ "HTTP_1.1", { "req.ver", "1.1" } },
	{ "HTTP_2.0", { "req.ver", "2.0" } },
	{ "HTTP_CONTENT", { "req.hdr_val(content-length)", "gt", "0" } },
	{ "HTTP_URL_ABS", { "url_reg", "^[^/:]*://" } },
	{ "HTTP_URL_SLASH", { "url_beg", "/" } },
	{ "HTTP_URL_STAR", { "url", "*" } },
	{ "LOCALHOST", { "src", "127.0.0.1/8", "::1" } },
	{ "METH_CONNECT", { "method", "CONNECT" } },
	{ "METH_DELETE", { "method", "DELETE" } },
	{ "METH_GET", { "method", "GET", "HEAD" } },
	{ "METH_HEAD", { "method", "HEAD" } },
	{ "METH_OPTIONS", { "method", "OPTIONS" } },
	{ "METH_POST", { "method", "POST" } },
	{ "METH_PUT", { "method", "PUT" } },
	{ "METH_TRACE", { "method", "TRACE" } },
	{ "RDP_COOKIE", { "req.rdp_cookie_cnt", "gt", "0" } },
	{ "REQ_CONTENT", { "req.len", "gt", "0" } },
	{ "WAIT_END", { "wait_end" } },
};

struct parse {
	struct expr_env *env;
	const struct str *words;
	unsigned n, i;
	struct cond *cond;
	struct err *err;
};

static int compile_predefined(struct parse *p, unsigned which, const struct acl_test **ret)
{
	struct str words[5];
	struct acl_test *t;
	unsigned n = 0, at;
	int r;

	while (n < 5 && predefined[which].words[n]) {
		words[n] = str_from_cstr(predefined[which].words[n]);
		n++;
	}
	r = acl_test_compile(p->env, words, n, &t, &at, p->err);
	*ret = t;
	return r;
}

static int unknown_acl(struct parse *p, struct str name)
{
	struct near near = { .want = name };
	struct str known;
	char hint[96];

	for (unsigned i = 0; (known = acl_set_name(p->env->acls, i)).p; i++)
		near_add(&near, known);
	for (unsigned i = 0; i < ARRAY_SIZE(predefined); i++)
		near_add(&near, str_from_cstr(predefined[i].name));
	return err_set(p->err, -EINVAL, "no such ACL: '" STR_FMT "'%s",
		       STR_ARG(str_sub(name, 0, 80)), near_text(&near, hint, sizeof(hint)));
}

static int parse_named(struct parse *p, struct str name, const struct acl_test **ret)
{
	struct acl *a = acl_find(p->env->acls, name);

	if (a) {
		a->is_used = true;
		*ret = a->tests;
		return 0;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(predefined); i++) {
		if (str_is_eq(name, str_from_cstr(predefined[i].name)))
			return compile_predefined(p, i, ret);
	}
	return unknown_acl(p, name);
}

/* At the word behind "{"; afterwards at "}". */
static int parse_braces(struct parse *p, const struct acl_test **ret)
{
	unsigned start = p->i, end = p->i, at;
	struct acl_test *t;
	int r;

	while (end < p->n && !str_is_eq(p->words[end], STR("}")))
		end++;
	if (end >= p->n) {
		p->i = start ? start - 1 : 0;
		return err_set(p->err, -EINVAL, "missing closing '}' (as a word of its own)");
	}
	if (end == start)
		return err_set(p->err, -EINVAL, "expected a sample fetch between '{' and '}'");
	r = acl_test_compile(p->env, p->words + start, end - start, &t, &at, p->err);
	p->i = r ? start + at : end;
	*ret = t;
	return r;
}

static void warn_place(struct parse *p, const struct acl_test *tests, struct str name)
{
	char text[300];

	if (!p->env->warn || !p->env->place)
		return;
	for (const struct acl_test *t = tests; t; t = t->next) {
		if (t->expr->fetch->doc.places & p->env->place)
			continue;
		snprintf(text, sizeof(text),
			 "'" STR_FMT "' never matches here: '%s' has no value in these rules",
			 STR_ARG(str_sub(name, 0, 80)), t->expr->fetch->doc.name);
		p->env->warn(p->env, text);
	}
}

static bool is_or(struct str w)
{
	return str_is_case_eq(w, STR("or")) || str_is_eq(w, STR("||"));
}

static int parse_term(struct parse *p)
{
	struct term *t = &p->cond->terms[p->cond->n];
	struct str w = p->words[p->i];
	int r;

	memset(t, 0, sizeof(*t));
	for (;;) {
		while (w.len && w.p[0] == '!') {
			t->is_negated = !t->is_negated;
			w = str_from(w, 1);
		}
		if (w.len)
			break;
		if (++p->i >= p->n) {
			p->i = p->n - 1;
			return err_set(p->err, -EINVAL, "expected an ACL behind '!'");
		}
		w = p->words[p->i];
		if (w.len == 0)
			return err_set(p->err, -EINVAL, "expected an ACL, found an empty word");
	}
	if (is_or(w))
		return err_set(p->err, -EINVAL, "expected an ACL, found '" STR_FMT "'", STR_ARG(w));
	if (str_is_eq(w, STR("{"))) {
		p->i++;
		r = parse_braces(p, &t->tests);
	} else {
		r = parse_named(p, w, &t->tests);
	}
	if (r)
		return r;
	warn_place(p, t->tests, w);
	p->cond->n++;
	p->i++;
	return 0;
}

static int parse_cond(struct parse *p)
{
	while (p->i < p->n) {
		int r;

		if (p->words[p->i].len == 0)
			return err_set(p->err, -EINVAL, "expected an ACL, found an empty word");
		r = parse_term(p);
		if (r)
			return r;
		if (p->i < p->n && !is_or(p->words[p->i]))
			continue;
		p->cond->terms[p->cond->n - 1].is_last = true;
		if (p->i >= p->n)
			return 0;
		if (++p->i >= p->n) {
			p->i--;
			return err_set(p->err, -EINVAL, "expected an ACL behind '" STR_FMT "'",
				       STR_ARG(p->words[p->i]));
		}
	}
	return err_set(p->err, -EINVAL, "expected a condition");
}

int cond_compile(struct expr_env *env, const struct str *words, unsigned n, bool negate,
		 struct cond **ret_cond, unsigned *ret_error_at, struct err *err)
{
	struct parse p = { .env = env, .words = words, .n = n, .err = err };
	int r;

	*ret_error_at = 0;
	p.cond = arena_zalloc(env->arena, sizeof(*p.cond) + (n + 1) * sizeof(struct term));
	if (!p.cond)
		return -ENOMEM;
	p.cond->is_negated = negate;
	r = parse_cond(&p);
	*ret_error_at = p.i;
	*ret_cond = p.cond;
	return r;
}

static int term_eval(const struct term *t, const struct subject *s)
{
	int result = 0;

	for (const struct acl_test *a = t->tests; a; a = a->next) {
		int r = acl_test_eval(a, s);

		if (r > 0) {
			result = 1;
			break;
		}
		if (r == -EAGAIN)
			result = r;
	}
	return result == -EAGAIN ? result : result != t->is_negated;
}

/* Three values: a false term decides its alternative whatever is still open, a true one the whole. */
int cond_eval(const struct cond *c, const struct subject *s)
{
	int whole = 0, part = 1;

	if (!c)
		return 1;
	for (unsigned i = 0; i < c->n; i++) {
		const struct term *t = &c->terms[i];

		if (part != 0) {
			int r = term_eval(t, s);

			if (r == 0 || part > 0)
				part = r;
		}
		if (!t->is_last)
			continue;
		if (part > 0)
			return !c->is_negated;
		if (part == -EAGAIN)
			whole = -EAGAIN;
		part = 1;
	}
	return whole == -EAGAIN ? whole : c->is_negated;
}
