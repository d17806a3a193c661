/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Arguments of fetches and converters: "(a,'b c',\"d\")". Quoting as in the language: single quotes
 * take everything literally; double quotes and bare text know the escapes \\ \" \' \r \n \t and
 * backslash-space; any other backslash stays, so that regular expressions need no doubling. A comma
 * or a closing parenthesis inside an argument needs quotes. Control thread.
 */
#include "expr/expr_priv.h"

#include <arpa/inet.h>

/*
 * One argument at text[i]: its unquoted bytes go to `out` (NULL: only counted). Returns the offset of
 * its end, or -1.
 */
static ssize_t arg_unquote(struct str text, size_t i, char *out, size_t *ret_len, bool *ret_quoted)
{
	char quote = 0;
	size_t n = 0;

	*ret_quoted = false;
	for (; i < text.len; i++) {
		char c = text.p[i];

		if (quote ? c == quote : c == '"' || c == '\'') {
			quote = quote ? 0 : c;
			*ret_quoted = true;
			continue;
		}
		if (!quote && (c == ',' || c == ')'))
			break;
		if (c == '\\' && quote != '\'' && i + 1 < text.len) {
			static const char from[] = "\\\"' rnt", to[] = "\\\"' \r\n\t";
			const char *e = text.p[i + 1] ? strchr(from, text.p[i + 1]) : NULL;

			if (e) {
				c = to[e - from];
				i++;
			}
		}
		if (out)
			out[n] = c;
		n++;
	}
	*ret_len = n;
	return quote ? -1 : (ssize_t)i;
}

int arg_parse_var(struct expr_arg *a, struct err *err)
{
	enum var_scope scope;
	int r = vars_intern(a->str, &scope, &a->var, err);

	if (r)
		return r;
	a->type = ARG_VAR;
	a->scope = (uint8_t)scope;
	return 0;
}

static int arg_parse_netmask(struct expr_arg *a, bool is_v6, struct err *err)
{
	uint64_t bits;

	a->type = ARG_ADDR;
	if (str_to_u64(a->str, &bits) == 0 && bits <= (is_v6 ? 128 : 32)) {
		uint8_t b[16] = { 0 };

		for (unsigned i = 0; i < bits; i++)
			b[i / 8] |= (uint8_t)(0x80 >> (i & 7));
		memset(&a->addr, 0, sizeof(a->addr));
		a->addr.sa.sa_family = is_v6 ? AF_INET6 : AF_INET;
		memcpy(is_v6 ? (void *)&a->addr.in6.sin6_addr : &a->addr.in.sin_addr, b,
		       is_v6 ? 16 : 4);
		return 0;
	}
	if (addr_parse_ip(a->str, &a->addr) == 0 &&
	    a->addr.sa.sa_family == (is_v6 ? AF_INET6 : AF_INET))
		return 0;
	return err_set(err, -EINVAL, "'" STR_FMT "' is not an %s netmask", STR_ARG(a->str),
		       is_v6 ? "IPv6" : "IPv4");
}

static int arg_parse_time(struct expr_arg *a, struct err *err)
{
	uint64_t ns;

	if (str_to_duration(a->str, 1000000, &ns))
		return err_set(err, -EINVAL, "'" STR_FMT "' is not a time", STR_ARG(a->str));
	a->type = ARG_INT;
	a->num = (int64_t)(ns / 1000000);
	return 0;
}

static int arg_parse_int(struct expr_arg *a, struct err *err)
{
	a->type = ARG_INT;
	if (str_to_i64(a->str, &a->num))
		return err_set(err, -EINVAL, "'" STR_FMT "' is not an integer",
			       STR_ARG(str_sub(a->str, 0, 100)));
	return 0;
}

static int arg_parse_typed(struct expr_arg *a, char kind, struct err *err)
{
	switch (kind) {
	case 's':
		a->type = ARG_STR;
		return 0;
	case 'i':
		return arg_parse_int(a, err);
	case 't':
		return arg_parse_time(a, err);
	case 'm':
	case 'n':
		return arg_parse_netmask(a, kind == 'n', err);
	case 'v':
		return arg_parse_var(a, err);
	case 'x':
		if (str_to_i64(a->str, &a->num) == 0) {
			a->type = ARG_INT;
			return 0;
		}
		if (str_find_char(a->str, '.') == SIZE_MAX)
			return err_set(err, -EINVAL,
				       "'" STR_FMT "' is neither an integer nor a variable",
				       STR_ARG(str_sub(a->str, 0, 100)));
		return arg_parse_var(a, err);
	default:
		BUG_ON(true);
	}
}

static unsigned sig_count(const char *sig, bool only_required)
{
	unsigned n = 0;

	for (; *sig; sig++) {
		if (*sig == '[' && only_required)
			break;
		n += *sig != '[';
	}
	return n;
}

static char sig_at(const char *sig, unsigned i, bool *ret_optional)
{
	*ret_optional = false;
	for (; *sig; sig++) {
		if (*sig == '[')
			*ret_optional = true;
		else if (i-- == 0)
			return *sig;
	}
	return '\0';
}

struct args_state {
	struct expr_env *env;
	const char *what, *name, *sig;
	struct str text;
	struct expr_arg args[EXPR_ARGS_MAX];
	unsigned n;
	size_t pos;
};

static int args_parse_one(struct args_state *st, size_t *ret_error_at, struct err *err)
{
	unsigned max = sig_count(st->sig, false);
	bool is_optional, is_quoted;
	struct expr_arg *a;
	size_t len;
	ssize_t end;
	char kind, *out;
	int r;

	*ret_error_at = st->pos;
	if (st->n >= max)
		return err_set(err, -EINVAL, "%s '%s' takes at most %u argument%s", st->what,
			       st->name, max, max == 1 ? "" : "s");
	end = arg_unquote(st->text, st->pos, NULL, &len, &is_quoted);
	if (end < 0)
		return err_set(err, -EINVAL, "missing closing quote in the arguments of '%s'",
			       st->name);
	out = arena_alloc(st->env->arena, len + 1);
	if (!out)
		return -ENOMEM;
	arg_unquote(st->text, st->pos, out, &len, &is_quoted);
	out[len] = '\0';
	a = &st->args[st->n];
	memset(a, 0, sizeof(*a));
	a->at = (uint32_t)st->pos;
	a->str = str_make(out, len);
	kind = sig_at(st->sig, st->n, &is_optional);
	st->pos = (size_t)end;
	st->n++;
	if (len == 0 && is_optional && !is_quoted)
		return 0; /* ARG_NONE */
	if (len == 0 && is_optional && kind != 's')
		return 0;
	r = arg_parse_typed(a, kind, err);
	if (r == -EINVAL)
		err_prefix(err, r, "argument %u of %s '%s'", st->n, st->what, st->name);
	return r;
}

static int args_parse_list(struct args_state *st, size_t *ret_error_at, struct err *err)
{
	int r;

	for (st->pos = 1;; st->pos++) {
		/* "()" is no argument, unless one is required: str() is the empty text. */
		if (st->n == 0 && st->pos < st->text.len && st->text.p[st->pos] == ')' &&
		    sig_count(st->sig, true) == 0)
			return 0;
		r = args_parse_one(st, ret_error_at, err);
		if (r)
			return r;
		if (st->pos >= st->text.len) {
			*ret_error_at = st->text.len;
			return err_set(err, -EINVAL, "missing ')' behind the arguments of '%s'",
				       st->name);
		}
		if (st->text.p[st->pos] == ')')
			return 0;
	}
}

int args_parse(struct expr_env *env, const char *what, const char *name, const char *sig,
	       struct str text, struct expr_arg **ret_args, unsigned *ret_n, size_t *ret_used,
	       size_t *ret_error_at, struct err *err)
{
	struct args_state st = { .env = env, .what = what, .name = name, .sig = sig, .text = text };
	unsigned min = sig_count(sig, true), max = sig_count(sig, false);
	struct expr_arg *copy;
	int r;

	BUG_ON(max > EXPR_ARGS_MAX);
	*ret_used = 0;
	*ret_error_at = 0;
	if (text.len && text.p[0] == '(') {
		r = args_parse_list(&st, ret_error_at, err);
		if (r)
			return r;
		*ret_used = st.pos + 1;
	}
	if (st.n < min) {
		*ret_error_at = st.pos;
		return err_set(err, -EINVAL, "%s '%s' needs %u argument%s, %u given", what, name,
			       min, min == 1 ? "" : "s", st.n);
	}
	/* Always room for all: functions look at optional ones without knowing how many were given. */
	copy = arena_zalloc(env->arena, (max ? max : 1) * sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	if (st.n)
		memcpy(copy, st.args, st.n * sizeof(*copy));
	*ret_args = copy;
	*ret_n = st.n;
	return 0;
}

int arg_int(const struct eval *ev, const struct expr_arg *a, int64_t *ret)
{
	const struct sample *v;
	struct sample tmp;
	int r;

	if (a->type != ARG_VAR) {
		*ret = a->num;
		return 0;
	}
	v = subject_var_get(ev->s, (enum var_scope)a->scope, a->var);
	if (!v)
		return -ENOENT;
	tmp = *v;
	r = sample_cast(&tmp, SAMPLE_SINT, ev->arena);
	if (r)
		return r == -EINVAL ? -ENOENT : r;
	*ret = tmp.sint;
	return 0;
}
