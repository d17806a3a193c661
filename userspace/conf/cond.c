/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The condition language of `.if` and of `headgated -cc`: integers, "!", "&&", "||", parentheses and
 * the predicates of the table below. Recursive descent, evaluated while parsing (both sides of an
 * operator are always parsed, so that an error on the right is never hidden). Control thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "conf/conf_priv.h"

#define INTERFACE_VERSION "3.5.0" /* HAProxy's, whose interface is offered */
#define MAX_DEPTH	  64
#define MAX_ARGS	  2

/* Debian 12's, the oldest that is supported, until start-up says what is really linked. */
static const char *tls_library = "OpenSSL 3.0.0";

void conf_set_tls_library(const char *name_and_version)
{
	tls_library = name_and_version;
}

struct cond_run {
	const struct cond_env *env;
	struct str text;
	size_t i;
	unsigned depth;
	size_t error_at;
	struct err *err;
};

#define cond_fail(c, at, ...) ((c)->error_at = (at), err_set((c)->err, -EINVAL, __VA_ARGS__))

/* --- predicates -------------------------------------------------------------------------------- */

static const char *const features_on[] = {
	"OPENSSL", "THREAD",	   "PCRE2",    "PCRE2_JIT", "PROMEX",	   "ZLIB",
	"TPROXY",  "LINUX_TPROXY", "EPOLL",    "NETFILTER", "GETADDRINFO", "ACCEPT4",
	"CRYPT_H", "CPU_AFFINITY", "TFO",      "NS",	    "SYSTEMD",	   "PRCTL",
	"RT",	   "POLL",	   "LIBCRYPT", "BACKTRACE", "XDP",	   "HEADGATE"
};

static int pred_feature(struct cond_run *c, const struct str *a)
{
	for (size_t i = 0; i < ARRAY_SIZE(features_on); i++) {
		if (str_is_eq(a[0], str_from_cstr(features_on[i])))
			return 1;
	}
	return 0;
}

static int pred_defined(struct cond_run *c, const struct str *a)
{
	return c->env->getenv(c->env->ctx, a[0]).p ? 1 : 0;
}

static int pred_streq(struct cond_run *c, const struct str *a)
{
	return str_is_eq(a[0], a[1]);
}

static int pred_strneq(struct cond_run *c, const struct str *a)
{
	return !str_is_eq(a[0], a[1]);
}

static int pred_strstr(struct cond_run *c, const struct str *a)
{
	return str_find(a[0], a[1]) != SIZE_MAX;
}

/* A global option that can be switched off on the command line: all of them are on here. */
static int pred_enabled(struct cond_run *c, const struct str *a)
{
	static const char *const known[] = { "POLL", "EPOLL", "GETADDRINFO", "REUSEPORT",
					     "FAST-FORWARD" };
	static const char *const off[] = { "KQUEUE", "EVPORTS", "SPLICE",
					   "SERVER-SSL-VERIFY-NONE" };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (str_is_eq(a[0], str_from_cstr(known[i])))
			return 1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(off); i++) {
		if (str_is_eq(a[0], str_from_cstr(off[i])))
			return 0;
	}
	return cond_fail(c, (size_t)(a[0].p - c->text.p),
			 "unknown option '" STR_FMT "' in enabled()", STR_ARG(a[0]));
}

/* "3.5", "3.5.1", "3.5-dev2" into a number that sorts as versions do. */
static int version_number(struct str s, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;

	for (unsigned part = 0; part < 3; part++) {
		uint64_t n = 0;
		size_t from = i;

		for (; i < s.len && s.p[i] >= '0' && s.p[i] <= '9' && n < 10000; i++)
			n = n * 10 + (uint64_t)(s.p[i] - '0');
		if (i == from && part == 0)
			return -EINVAL;
		v = v * 10000 + n;
		if (i < s.len && s.p[i] == '.')
			i++;
	}
	/* A development version comes before its release. */
	v = v * 2 + !str_is_prefix(str_from(s, i), STR("-dev"));
	if (i < s.len && s.p[i] != '-' &&
	    !(str_lower_char(s.p[i]) >= 'a' && str_lower_char(s.p[i]) <= 'z'))
		return -EINVAL;
	*ret = v;
	return 0;
}

static int version_compare(struct cond_run *c, struct str ours, struct str wanted)
{
	uint64_t a, b;

	if (version_number(wanted, &b))
		return cond_fail(c, (size_t)(wanted.p - c->text.p),
				 "expects a version such as 3.5 instead of '" STR_FMT "'",
				 STR_ARG(wanted));
	if (version_number(ours, &a))
		a = 0;
	return a >= b;
}

static int negate(int r)
{
	return r < 0 ? r : !r;
}

static int pred_version_atleast(struct cond_run *c, const struct str *a)
{
	return version_compare(c, STR(INTERFACE_VERSION), a[0]);
}

static int pred_version_before(struct cond_run *c, const struct str *a)
{
	return negate(pred_version_atleast(c, a));
}

static int pred_openssl_atleast(struct cond_run *c, const struct str *a)
{
	struct str ours = str_from_cstr(tls_library);

	str_cut(&ours, ' ');
	return version_compare(c, str_cut(&ours, ' '), a[0]);
}

static int pred_openssl_before(struct cond_run *c, const struct str *a)
{
	return negate(pred_openssl_atleast(c, a));
}

static int pred_ssllib(struct cond_run *c, const struct str *a)
{
	return str_is_prefix(str_from_cstr(tls_library), a[0]);
}

struct predicate {
	struct str name;
	unsigned n_args;
	int (*eval)(struct cond_run *c, const struct str *args);
};

static const struct predicate predicates[] = {
	{ NAME("defined"), 1, pred_defined },
	{ NAME("feature"), 1, pred_feature },
	{ NAME("enabled"), 1, pred_enabled },
	{ NAME("streq"), 2, pred_streq },
	{ NAME("strneq"), 2, pred_strneq },
	{ NAME("strstr"), 2, pred_strstr },
	{ NAME("version_atleast"), 1, pred_version_atleast },
	{ NAME("version_before"), 1, pred_version_before },
	{ NAME("openssl_version_atleast"), 1, pred_openssl_atleast },
	{ NAME("openssl_version_before"), 1, pred_openssl_before },
	{ NAME("ssllib_name_startswith"), 1, pred_ssllib },
};

/* --- grammar ----------------------------------------------------------------------------------- */

static void skip_space(struct cond_run *c)
{
	while (c->i < c->text.len && (c->text.p[c->i] == ' ' || c->text.p[c->i] == '\t'))
		c->i++;
}

static bool accept_token(struct cond_run *c, struct str token)
{
	skip_space(c);
	if (!str_is_prefix(str_from(c->text, c->i), token))
		return false;
	c->i += token.len;
	return true;
}

/* The text between the parentheses: up to the ',' or ')' that closes it, quotes understood. */
static int cond_arg(struct cond_run *c, struct str *ret)
{
	size_t from, end;
	char quote = 0;

	skip_space(c);
	from = c->i;
	if (c->i < c->text.len && (c->text.p[c->i] == '"' || c->text.p[c->i] == '\'')) {
		quote = c->text.p[c->i++];
		from = c->i;
		while (c->i < c->text.len && c->text.p[c->i] != quote)
			c->i++;
		if (c->i == c->text.len)
			return cond_fail(c, from - 1, "missing closing quote");
		*ret = str_sub(c->text, from, c->i - from);
		c->i++;
		return 0;
	}
	while (c->i < c->text.len && c->text.p[c->i] != ',' && c->text.p[c->i] != ')')
		c->i++;
	for (end = c->i; end > from && (c->text.p[end - 1] == ' ' || c->text.p[end - 1] == '\t');)
		end--;
	*ret = str_make(c->text.p + from, end - from);
	return 0;
}

static int cond_call(struct cond_run *c, const struct predicate *p, size_t at)
{
	struct str args[MAX_ARGS] = { STR_NULL, STR_NULL };

	if (!accept_token(c, STR("(")))
		return cond_fail(c, c->i, "expects '(' behind '" STR_FMT "'", STR_ARG(p->name));
	for (unsigned i = 0; i < p->n_args; i++) {
		int r = cond_arg(c, &args[i]);

		if (r)
			return r;
		if (i + 1 < p->n_args && !accept_token(c, STR(",")))
			return cond_fail(c, c->i, "'" STR_FMT "' expects %u arguments",
					 STR_ARG(p->name), p->n_args);
	}
	if (!accept_token(c, STR(")")))
		return cond_fail(c, c->i, "expects ')' at the end of '" STR_FMT "(…'",
				 STR_ARG(p->name));
	return p->eval(c, args);
}

static int cond_or(struct cond_run *c);

static int cond_word(struct cond_run *c)
{
	size_t from = c->i;
	struct nearest n;
	struct str word;
	char hint[96];
	int64_t number;

	while (c->i < c->text.len && !strchr("()!&|, \t", c->text.p[c->i]))
		c->i++;
	word = str_sub(c->text, from, c->i - from);
	if (word.len == 0)
		return cond_fail(c, from,
				 "expects a number, '!', '(' or a predicate such as "
				 "defined(NAME)");
	if (str_to_i64(word, &number) == 0)
		return number != 0;
	nearest_init(&n, word);
	for (size_t i = 0; i < ARRAY_SIZE(predicates); i++) {
		if (str_is_eq(predicates[i].name, word))
			return cond_call(c, &predicates[i], from);
		nearest_offer(&n, predicates[i].name);
	}
	return cond_fail(c, from, "unknown predicate '" STR_FMT "'%s",
			 (int)(word.len > 64 ? 64 : word.len), word.p, nearest_hint(&n, hint));
}

static int cond_term(struct cond_run *c)
{
	int r;

	if (++c->depth > MAX_DEPTH)
		return cond_fail(c, c->i, "condition is nested too deeply (max %d)", MAX_DEPTH);
	if (accept_token(c, STR("!"))) {
		r = negate(cond_term(c));
	} else if (accept_token(c, STR("("))) {
		size_t at = c->i - 1;

		r = cond_or(c);
		if (r >= 0 && !accept_token(c, STR(")")))
			r = cond_fail(c, at, "missing ')' for this '('");
	} else {
		r = cond_word(c);
	}
	c->depth--;
	return r;
}

static int cond_and(struct cond_run *c)
{
	int r = cond_term(c);

	while (r >= 0 && accept_token(c, STR("&&"))) {
		int right = cond_term(c);

		r = right < 0 ? right : r & right;
	}
	return r;
}

static int cond_or(struct cond_run *c)
{
	int r = cond_and(c);

	while (r >= 0 && accept_token(c, STR("||"))) {
		int right = cond_and(c);

		r = right < 0 ? right : r | right;
	}
	return r;
}

int cond_text_eval(const struct cond_env *env, struct str text, size_t *ret_error_at,
		   struct err *err)
{
	struct cond_run c = { .env = env, .text = text, .err = err };
	int r;

	*ret_error_at = 0;
	skip_space(&c);
	if (c.i == text.len) /* an empty string is false */
		return 0;
	r = cond_or(&c);
	skip_space(&c);
	if (r >= 0 && c.i < text.len)
		r = cond_fail(&c, c.i, "unexpected text behind the condition: '" STR_FMT "'",
			      (int)(text.len - c.i > 64 ? 64 : text.len - c.i), text.p + c.i);
	*ret_error_at = c.error_at;
	return r;
}

static struct str process_getenv(void *ctx, struct str name)
{
	char text[256];

	if (name.len >= sizeof(text) || memchr(name.p, '\0', name.len))
		return STR_NULL;
	memcpy(text, name.p, name.len);
	text[name.len] = '\0';
	return str_from_cstr(getenv(text));
}

int conf_eval_condition(struct str text, struct err *err)
{
	const struct cond_env env = { .getenv = process_getenv };
	size_t at;
	int r = cond_text_eval(&env, text, &at, err);

	if (r < 0)
		return err_prefix(err, -EINVAL, "at character %zu", at + 1);
	return r;
}
