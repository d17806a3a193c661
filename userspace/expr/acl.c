/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ACLs: an expression, a match method and patterns. Named ones are kept per proxy, several lines of
 * one name are alternatives; the suffix aliases (path_beg, hdr_end …) choose method and fetch at once.
 * Compiled by the control thread, evaluated on workers.
 */
#include "expr/acl_priv.h"

/* --- suffix aliases --- */

static const char *const alias_bases[] = { "base",  "cook",  "hdr",  "path",	  "url",
					   "urlp",  "scook", "shdr", "url_param", "capture.req.uri",
					   "method" };
static const enum match alias_matches[] = { MATCH_BEG, MATCH_DIR, MATCH_DOM, MATCH_END,
					    MATCH_LEN, MATCH_REG, MATCH_SUB };

static const struct fetch_def *find_alias(struct str name, int *ret_match)
{
	for (unsigned b = 0; b < ARRAY_SIZE(alias_bases); b++) {
		struct str base = str_from_cstr(alias_bases[b]);

		if (name.len != base.len + 4 || !str_is_prefix(name, base) ||
		    name.p[base.len] != '_')
			continue;
		for (unsigned m = 0; m < ARRAY_SIZE(alias_matches); m++) {
			if (!str_is_eq(str_from(name, base.len + 1),
				       str_from_cstr(match_name(alias_matches[m]))))
				continue;
			*ret_match = (int)alias_matches[m];
			return fetch_find(base);
		}
	}
	return NULL;
}

/* --- one line --- */

struct acl_line {
	struct expr_env *env;
	const struct str *words;
	unsigned n, i;
	struct acl_test *test;
	int match; /* enum match, or -1 */
	bool icase, had_dashes, is_map;
	struct pat_entry *entries;
	unsigned n_entries, cap_entries;
	struct err *err;
};

static int add_entries(struct acl_line *l, const struct pat_entry *e, unsigned n)
{
	if (n > l->cap_entries - l->n_entries) {
		unsigned cap = l->n_entries + n + 16;
		struct pat_entry *p = arena_alloc(l->env->arena, cap * sizeof(*p));

		if (!p)
			return -ENOMEM;
		if (l->n_entries)
			memcpy(p, l->entries, l->n_entries * sizeof(*p));
		l->entries = p;
		l->cap_entries = cap;
	}
	if (n)
		memcpy(l->entries + l->n_entries, e, n * sizeof(*e));
	l->n_entries += n;
	return 0;
}

static int flag_match(struct acl_line *l, struct str value)
{
	struct near near = { .want = value };
	char hint[96];

	l->match = match_from_name(value);
	if (l->match >= 0)
		return 0;
	for (unsigned m = 0; m < MATCH_COUNT; m++)
		near_add(&near, str_from_cstr(match_name((enum match)m)));
	return err_set(l->err, -EINVAL, "unknown match method '" STR_FMT "'%s", STR_ARG(value),
		       near_text(&near, hint, sizeof(hint)));
}

static int flag_file(struct acl_line *l, struct str path)
{
	struct pat_file f;
	int r = pat_file_read(l->env, path, l->is_map, &f, l->err);

	if (r)
		return r;
	l->test->file = arena_str(l->env->arena, path.p ? path : STR(""));
	if (!l->test->file.p)
		return -ENOMEM;
	return add_entries(l, f.entries, f.n);
}

/* -i -n -M -m method -f file -u id, until -- or the first word that is none of them. */
static int parse_flags(struct acl_line *l)
{
	for (; l->i < l->n; l->i++) {
		struct str w = l->words[l->i];
		int r = 0;

		if (w.len < 2 || w.p[0] != '-' || (w.p[1] >= '0' && w.p[1] <= '9'))
			return 0;
		if (str_is_eq(w, STR("--"))) {
			l->had_dashes = true;
			l->i++;
			return 0;
		}
		if (str_is_eq(w, STR("-i"))) {
			l->icase = true;
		} else if (str_is_eq(w, STR("-M"))) {
			l->is_map = true;
		} else if (str_is_eq(w, STR("-n"))) {
			continue; /* names are never resolved */
		} else if (str_is_eq(w, STR("-m")) || str_is_eq(w, STR("-f")) ||
			   str_is_eq(w, STR("-u"))) {
			if (l->i + 1 >= l->n)
				return err_set(l->err, -EINVAL, "'" STR_FMT "' needs a value",
					       STR_ARG(w));
			l->i++;
			if (w.p[1] == 'm')
				r = flag_match(l, l->words[l->i]);
			else if (w.p[1] == 'f')
				r = flag_file(l, l->words[l->i]);
		} else {
			return err_set(l->err, -EINVAL,
				       "unknown flag '" STR_FMT
				       "': expected -i, -m, -f, -M, -n, -u, "
				       "or -- before patterns that begin with a dash",
				       STR_ARG(str_sub(w, 0, 40)));
		}
		if (r)
			return r;
	}
	return 0;
}

static int int_op(struct str w)
{
	static const struct str names[] = { [OP_EQ] = { "eq", 2 },
					    [OP_GE] = { "ge", 2 },
					    [OP_GT] = { "gt", 2 },
					    [OP_LE] = { "le", 2 },
					    [OP_LT] = { "lt", 2 } };

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		if (str_is_eq(w, names[i]))
			return (int)i;
	}
	return -1;
}

static int parse_patterns(struct acl_line *l)
{
	bool is_int = l->match == MATCH_INT || l->match == MATCH_LEN;
	int op = OP_EQ, o, r;

	for (; l->i < l->n; l->i++) {
		struct pat_entry e = { .text = l->words[l->i] };

		o = is_int ? int_op(e.text) : -1;
		if (o >= 0) {
			op = o;
			if (l->i + 1 >= l->n)
				return err_set(l->err, -EINVAL, "'" STR_FMT "' needs a number",
					       STR_ARG(e.text));
			continue;
		}
		e.op = (uint8_t)op;
		/* Words of the configuration live as long as its text only. */
		e.text = arena_str(l->env->arena, e.text.p ? e.text : STR(""));
		if (!e.text.p)
			return -ENOMEM;
		r = add_entries(l, &e, 1);
		if (r)
			return r;
	}
	return 0;
}

static int default_match(const struct expr *e)
{
	switch (e->out) {
	case SAMPLE_BOOL:
		return MATCH_BOOL;
	case SAMPLE_SINT:
		return MATCH_INT;
	case SAMPLE_ADDR:
		return MATCH_IP;
	case SAMPLE_BIN:
		return MATCH_BIN;
	default:
		return MATCH_STR;
	}
}

static void warn_no_pattern(struct acl_line *l)
{
	if (l->n_entries || l->had_dashes || l->test->file.p || l->match == MATCH_FOUND ||
	    l->match == MATCH_BOOL || !l->env->warn)
		return;
	l->env->warn(l->env,
		     "no pattern to match against was given, so that this ACL never matches: "
		     "use '-m found' to test for existence, '-m bool' to test a number, or "
		     "'--' to say that this is wanted");
}

static int build_set(struct acl_line *l, unsigned first_pattern)
{
	struct acl_test *t = l->test;
	unsigned bad;
	int r;

	if (!sample_is_castable(t->expr->out, match_input((enum match)l->match))) {
		l->i = 0;
		return err_set(l->err, -EINVAL, "'-m %s' wants %s, which %s cannot become",
			       match_name((enum match)l->match),
			       sample_type_name(match_input((enum match)l->match)),
			       sample_type_name(t->expr->out));
	}
	r = patset_build(l->env, (enum match)l->match, l->icase, l->entries, l->n_entries, &t->set,
			 &bad, l->err);
	if (r == -EINVAL && l->entries[bad].line)
		err_prefix(l->err, r, STR_FMT ":%u", STR_ARG(t->file), l->entries[bad].line);
	l->i = first_pattern;
	for (unsigned i = first_pattern; r && i < l->n; i++) {
		if (str_is_eq(l->words[i], l->entries[bad].text))
			l->i = i;
	}
	return r;
}

static int parse_line(struct acl_line *l)
{
	const struct fetch_def *alias = NULL;
	unsigned first;
	size_t used, at;
	int r;

	l->match = -1;
	if (l->n == 0)
		return err_set(l->err, -EINVAL, "expected a sample fetch");
	if (!fetch_find(expr_name_at(l->words[0])))
		alias = find_alias(expr_name_at(l->words[0]), &l->match);
	r = expr_compile_prefix(l->env, l->words[0], alias, &l->test->expr, &used, &at, l->err);
	if (r)
		return r;
	if (used != l->words[0].len)
		return err_set(l->err, -EINVAL, "unexpected '" STR_FMT "' behind the expression",
			       STR_ARG(str_sub(l->words[0], used, 40)));
	l->i = 1;
	r = parse_flags(l);
	if (r)
		return r;
	if (l->match < 0)
		l->match = default_match(l->test->expr);
	first = l->i;
	r = parse_patterns(l);
	if (r)
		return r;
	l->test->match = (uint8_t)l->match;
	l->test->icase = l->icase;
	warn_no_pattern(l);
	return build_set(l, first);
}

int acl_test_compile(struct expr_env *env, const struct str *words, unsigned n,
		     struct acl_test **ret, unsigned *ret_error_at, struct err *err)
{
	struct expr_env any = *env;
	struct acl_line l = { .env = &any, .words = words, .n = n, .err = err };
	int r;

	*ret_error_at = 0;
	any.place = 0; /* where it is used is checked by the condition */
	l.test = arena_zalloc(env->arena, sizeof(*l.test));
	if (!l.test)
		return -ENOMEM;
	r = parse_line(&l);
	*ret_error_at = l.i < n ? l.i : n ? n - 1 : 0;
	*ret = l.test;
	return r;
}

/* A hostile message has at most so many values per name that are looked at. */
#define VALUES_MAX 1000

int acl_test_eval(const struct acl_test *t, const struct subject *s)
{
	struct eval ev = { .s = s, .arena = s->arena, .is_iterating = true };
	struct sample v;

	for (unsigned i = 0; i < VALUES_MAX; i++) {
		int r;

		ev.has_more = false;
		r = expr_run(&ev, t->expr, &v);
		if (r == -EAGAIN)
			return r;
		if (r == 0)
			r = patset_find(t->set, &ev, &v);
		if (r >= 0)
			return 1;
		if (!ev.has_more)
			break;
	}
	return ev.may_change ? -EAGAIN : 0;
}

/* --- named ACLs --- */

struct acl_set *acl_set_new(struct arena *arena, const struct acl_set *inherited)
{
	struct acl_set *s = arena_zalloc(arena, sizeof(*s));

	if (!s)
		return NULL;
	s->arena = arena;
	s->inherited = inherited;
	return s;
}

struct acl *acl_find(const struct acl_set *set, struct str name)
{
	for (; set; set = set->inherited) {
		for (struct acl *a = set->first; a; a = a->next) {
			if (str_is_eq(a->name, name))
				return a;
		}
	}
	return NULL;
}

struct str acl_set_name(const struct acl_set *set, unsigned i)
{
	for (; set; set = set->inherited) {
		for (struct acl *a = set->first; a; a = a->next) {
			if (i-- == 0)
				return a->name;
		}
	}
	return STR_NULL;
}

static bool is_acl_name(struct str s)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = str_lower_char(s.p[i]);

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("-_.:", c)))
			return false;
	}
	return s.len != 0;
}

static struct acl *acl_new(struct acl_set *set, struct str name)
{
	struct acl *a = arena_zalloc(set->arena, sizeof(*a));

	if (!a)
		return NULL;
	a->name = arena_str(set->arena, name);
	if (!a->name.p)
		return NULL;
	if (set->last)
		set->last->next = a;
	else
		set->first = a;
	set->last = a;
	return a;
}

int acl_add(struct acl_set *set, struct expr_env *env, struct str name, const struct str *words,
	    unsigned n, unsigned *ret_error_at, struct err *err)
{
	struct acl *a = NULL;
	struct acl_test *t;
	int r;

	*ret_error_at = 0;
	if (!is_acl_name(name) || str_is_eq(name, STR("or")))
		return err_set(err, -EINVAL,
			       "'" STR_FMT
			       "' cannot name an ACL: letters, digits, '-', '_', '.', ':'",
			       STR_ARG(str_sub(name, 0, 60)));
	r = acl_test_compile(env, words, n, &t, ret_error_at, err);
	if (r)
		return r;
	for (struct acl *i = set->first; i; i = i->next)
		a = str_is_eq(i->name, name) ? i : a;
	if (!a)
		a = acl_new(set, name);
	if (!a)
		return -ENOMEM;
	if (a->last)
		a->last->next = t;
	else
		a->tests = t;
	a->last = t;
	return 0;
}
