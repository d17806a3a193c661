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

#define ACL_FILES_MAX 16

struct acl_line {
	struct expr_env *env;
	const struct str *words;
	unsigned n, i;
	struct acl_test *test;
	int match; /* enum match, or -1 */
	bool icase, had_dashes, is_map;
	struct str files[ACL_FILES_MAX];
	unsigned file_words[ACL_FILES_MAX]; /* where they stand */
	unsigned n_files;
	uint32_t id; /* -u, or UINT32_MAX */
	struct pat_entry *entries; /* the patterns on the line */
	unsigned n_entries;
	unsigned bad; /* of `entries` */
	struct err *err;
};

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
	if (l->n_files == ACL_FILES_MAX)
		return err_set(l->err, -EINVAL, "at most %d files in one ACL", ACL_FILES_MAX);
	l->file_words[l->n_files] = l->i;
	l->files[l->n_files++] = path.p ? path : STR("");
	return 0;
}

static int flag_id(struct acl_line *l, struct str text)
{
	uint64_t id;

	if (str_to_u64(text, &id) || id >= INT32_MAX)
		return err_set(l->err, -EINVAL, "'-u' expects a number instead of '" STR_FMT "'",
			       STR_ARG(str_sub(text, 0, 40)));
	l->id = (uint32_t)id;
	return 0;
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
			else
				r = flag_id(l, l->words[l->i]);
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
	int op = OP_EQ, o;

	l->entries = arena_alloc(l->env->arena, (l->n - l->i + 1) * sizeof(*l->entries));
	if (!l->entries)
		return -ENOMEM;
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
		l->entries[l->n_entries++] = e;
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
	if (l->n_entries || l->had_dashes || l->n_files || l->match == MATCH_FOUND ||
	    l->match == MATCH_BOOL || !l->env->warn)
		return;
	l->env->warn(l->env,
		     "no pattern to match against was given, so that this ACL never matches: "
		     "use '-m found' to test for existence, '-m bool' to test a number, or "
		     "'--' to say that this is wanted");
}

static int add_user(struct acl_line *l, struct pat_source *src)
{
	struct acl_test *t = l->test;

	src->is_acl = true;
	src->fetch = t->expr->fetch->doc.name;
	return pat_user_new(l->env, src, (enum match)l->match, l->icase, PAT_OUT_STR,
			    &t->users[t->n_users++], &l->bad, l->err);
}

static int build_set(struct acl_line *l, unsigned first_pattern)
{
	struct acl_test *t = l->test;
	int r = 0;

	if (!sample_is_castable(t->expr->out, match_input((enum match)l->match))) {
		l->i = 0;
		return err_set(l->err, -EINVAL, "'-m %s' wants %s, which %s cannot become",
			       match_name((enum match)l->match),
			       sample_type_name(match_input((enum match)l->match)),
			       sample_type_name(t->expr->out));
	}
	for (unsigned i = 0; i < l->n_files; i++) {
		struct pat_source src = { .file = l->files[i],
					  .is_map = l->is_map,
					  .id = UINT32_MAX };

		l->i = l->file_words[i];
		r = add_user(l, &src);
		if (r)
			return r;
	}
	/* As HAProxy: also without patterns on the line there is a list that some may be added to. */
	if (l->n_entries || !l->n_files || (l->match != MATCH_FOUND && l->match != MATCH_BOOL)) {
		struct pat_source src = { .entries = l->entries, .n = l->n_entries, .id = l->id };

		r = add_user(l, &src);
	}
	l->i = first_pattern;
	for (unsigned i = first_pattern; r && i < l->n; i++) {
		if (l->bad < l->n_entries && str_is_eq(l->words[i], l->entries[l->bad].text))
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
	warn_no_pattern(l);
	l->test->users = arena_zalloc(l->env->arena, (l->n_files + 1) * sizeof(struct pat_user *));
	if (!l->test->users)
		return -ENOMEM;
	return build_set(l, first);
}

int acl_test_compile(struct expr_env *env, const struct str *words, unsigned n,
		     struct acl_test **ret, unsigned *ret_error_at, struct err *err)
{
	struct expr_env any = *env;
	struct acl_line l = { .env = &any, .words = words, .n = n, .id = UINT32_MAX, .err = err };
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
		for (unsigned u = 0; r == 0 && u < t->n_users; u++) {
			struct sample copy = v; /* a lookup casts what it is given */
			const struct pat_elem *e;

			if (pat_user_find(t->users[u], &ev, &copy, &e) == 0)
				return 1;
		}
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

bool acl_set_use(const struct acl_set *set, unsigned i, struct acl_use *ret)
{
	const struct acl *a = set ? set->first : NULL;

	while (a && i--)
		a = a->next;
	if (a)
		*ret = (struct acl_use){ a->name, a->file, a->line, a->is_used };
	return a;
}

void acl_set_seal(struct acl_set *set, const struct str *names, unsigned n)
{
	for (unsigned i = 0; set && set->is_adding && i < n; i++) {
		struct str name = names[i];
		struct acl *a;

		while (name.len && name.p[0] == '!')
			name = str_from(name, 1);
		a = acl_find(set, name);
		if (a)
			a->is_sealed = true;
	}
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
	set->is_adding = true;
	r = acl_test_compile(env, words, n, &t, ret_error_at, err);
	set->is_adding = false;
	if (r)
		return r;
	for (struct acl *i = set->first; i; i = i->next)
		a = str_is_eq(i->name, name) ? i : a;
	if (a && a->is_sealed)
		return err_set(err, -EINVAL,
			       "ACL '" STR_FMT "' is part of another one (by acl()) already: "
			       "put all of its lines before that",
			       STR_ARG(str_sub(name, 0, 60)));
	if (!a)
		a = acl_new(set, name);
	if (!a)
		return -ENOMEM;
	if (!a->file) {
		a->file = env->file;
		a->line = env->line;
	}
	if (a->last)
		a->last->next = t;
	else
		a->tests = t;
	a->last = t;
	return 0;
}
