/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regular expressions by PCRE2, compiled to machine code when the platform allows. A compiled one is
 * shared by all expressions with the same text; it lives outside arenas and is freed when the last
 * snapshot that owns it goes (control thread). Match data and the JIT stack belong to the worker that
 * matches; both are made once per thread. Match limits bound the work on hostile subjects.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "expr/expr_priv.h"

#include <pcre2.h>
#include <pthread.h>
#include <stdlib.h>

#define MATCH_LIMIT   200000
#define DEPTH_LIMIT   10000
#define HEAP_LIMIT_KB 20000
#define SUBJECT_MAX   (1u << 20)
#define PATTERN_MAX   65536

struct regex {
	struct regex *next;
	pcre2_code *code;
	unsigned refs;
	bool icase;
	size_t len;
	char text[];
};

static struct regex *all; /* control thread */

struct expr_owned {
	struct expr_owned *next;
	void (*drop)(void *thing);
	void *thing;
};

static void regex_unref(void *thing)
{
	struct regex *re = thing, **p = &all;

	if (--re->refs)
		return;
	while (*p != re)
		p = &(*p)->next;
	*p = re->next;
	pcre2_code_free(re->code);
	mem_free(re);
}

void expr_owned_free(struct expr_owned **owned)
{
	while (*owned) {
		struct expr_owned *o = *owned;

		*owned = o->next;
		o->drop(o->thing);
		mem_free(o);
	}
}

int expr_own(struct expr_env *env, void *thing, void (*drop)(void *thing))
{
	struct expr_owned *o;

	if (!env->owned)
		return 0; /* the reference is never given back: it stays until the process ends */
	o = mem_alloc(sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->thing = thing;
	o->drop = drop;
	o->next = *env->owned;
	*env->owned = o;
	return 0;
}

static struct regex *regex_known(struct str pattern, bool icase)
{
	for (struct regex *re = all; re; re = re->next) {
		if (re->icase == icase && str_is_eq(str_make(re->text, re->len), pattern))
			return re;
	}
	return NULL;
}

static struct regex *regex_new(struct str pattern, bool icase, int *ret_error, struct err *err)
{
	struct regex *re = mem_alloc(sizeof(*re) + pattern.len);
	char text[160];
	PCRE2_SIZE at;
	int code;

	*ret_error = -ENOMEM;
	if (!re)
		return NULL;
	re->code = pcre2_compile((PCRE2_SPTR)(pattern.p ? pattern.p : ""), pattern.len,
				 icase ? PCRE2_CASELESS : 0, &code, &at, NULL);
	if (!re->code) {
		pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof(text));
		*ret_error = err_set(err, -EINVAL, "regular expression '" STR_FMT "', byte %zu: %s",
				     STR_ARG(str_sub(pattern, 0, 100)), (size_t)at, text);
		mem_free(re);
		return NULL;
	}
	/* Without JIT (forbidden by the platform) pcre2_match() interprets: slower, same result. */
	pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE);
	re->refs = 0;
	re->icase = icase;
	re->len = pattern.len;
	if (pattern.len)
		memcpy(re->text, pattern.p, pattern.len);
	re->next = all;
	all = re;
	return re;
}

int regex_compile(struct expr_env *env, struct str pattern, bool icase, struct regex **ret,
		  struct err *err)
{
	struct regex *re = regex_known(pattern, icase);
	int r = 0;

	if (pattern.len > PATTERN_MAX)
		return err_set(err, -EINVAL, "the regular expression is longer than %u bytes",
			       PATTERN_MAX);
	if (!re)
		re = regex_new(pattern, icase, &r, err);
	if (!re)
		return r;
	re->refs++;
	r = expr_own(env, re, regex_unref);
	if (r)
		regex_unref(re);
	*ret = re;
	return r;
}

/* --- matching --- */

struct matcher {
	pcre2_match_data *data;
	pcre2_match_context *ctx;
	pcre2_jit_stack *stack;
};

static pthread_key_t matcher_key;
static pthread_once_t matcher_once = PTHREAD_ONCE_INIT;
static _Thread_local struct matcher *my_matcher;

static void matcher_free(void *p)
{
	struct matcher *m = p;

	if (m->stack)
		pcre2_jit_stack_free(m->stack);
	if (m->ctx)
		pcre2_match_context_free(m->ctx);
	if (m->data)
		pcre2_match_data_free(m->data);
	mem_free(m);
	my_matcher = NULL;
}

static void matcher_exit(void)
{
	if (my_matcher)
		matcher_free(my_matcher);
}

/* The main thread returns from main() and runs no key destructors; hence atexit(). */
static void matcher_key_new(void)
{
	BUG_ON(pthread_key_create(&matcher_key, matcher_free));
	atexit(matcher_exit);
}

static HG_COLD struct matcher *matcher_new(void)
{
	struct matcher *m = mem_zalloc(sizeof(*m));

	if (!m)
		return NULL;
	pthread_once(&matcher_once, matcher_key_new);
	m->data = pcre2_match_data_create(REGEX_PAIRS, NULL);
	m->ctx = pcre2_match_context_create(NULL);
	m->stack = pcre2_jit_stack_create(32 * 1024, 512 * 1024, NULL);
	if (!m->data || !m->ctx || pthread_setspecific(matcher_key, m)) {
		matcher_free(m);
		return NULL;
	}
	pcre2_set_match_limit(m->ctx, MATCH_LIMIT);
	pcre2_set_depth_limit(m->ctx, DEPTH_LIMIT);
	pcre2_set_heap_limit(m->ctx, HEAP_LIMIT_KB);
	if (m->stack)
		pcre2_jit_stack_assign(m->ctx, NULL, m->stack);
	my_matcher = m;
	return m;
}

/* > 0 pairs, 0 more pairs than there is room for, < 0 no match or a limit reached. */
static int run(const struct regex *re, struct str s, size_t from)
{
	struct matcher *m = my_matcher ? my_matcher : matcher_new();

	if (!m || s.len > SUBJECT_MAX)
		return -1;
	return pcre2_match(re->code, (PCRE2_SPTR)(s.p ? s.p : ""), s.len, from, 0, m->data, m->ctx);
}

bool regex_is_match(const struct regex *re, struct str subject)
{
	return run(re, subject, 0) >= 0;
}

unsigned regex_find(const struct regex *re, struct str subject, size_t from,
		    size_t ret_pairs[REGEX_PAIRS * 2])
{
	int n = run(re, subject, from);
	const PCRE2_SIZE *v;

	if (n < 0)
		return 0;
	if (n == 0 || n > REGEX_PAIRS)
		n = REGEX_PAIRS;
	v = pcre2_get_ovector_pointer(my_matcher->data);
	if (v[0] > v[1] || v[1] > subject.len)
		return 0; /* \K in a lookaround can make the start lie behind the end */
	for (int i = 0; i < 2 * n; i++)
		ret_pairs[i] = v[i];
	return (unsigned)n;
}
