/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * map(file) and its family: the value behind the key that matches. And regsub(), whose work per
 * input is bounded by the match limit and by the size of its result.
 */
#include "expr/pat_priv.h"

struct map {
	struct pat_user *user;
	struct sample fallback;
	bool has_fallback;
};

static int map_value(enum pat_out out, struct str text, struct sample *ret, struct err *err)
{
	int64_t num;

	ret->is_const = true;
	switch (out) {
	case PAT_OUT_STR:
		sample_set_str(ret, SAMPLE_STR, text.p ? text : STR(""));
		return 0;
	case PAT_OUT_INT:
		if (str_to_i64(text, &num))
			return err_set(err, -EINVAL, "'" STR_FMT "' is not an integer",
				       STR_ARG(str_sub(text, 0, 60)));
		sample_set_int(ret, num);
		return 0;
	case PAT_OUT_IP:
		ret->type = SAMPLE_ADDR;
		if (addr_parse_ip(text, &ret->addr))
			return err_set(err, -EINVAL, "'" STR_FMT "' is not an address",
				       STR_ARG(str_sub(text, 0, 60)));
		return 0;
	}
	return -EINVAL;
}

bool pat_value_is_ok(enum pat_out out, struct str text, struct err *err)
{
	struct sample v;

	return map_value(out, text, &v, err) == 0;
}

/* kw: enum match | enum pat_out << 8 */
static int check_map(struct fn_check *c, struct err *err)
{
	struct pat_source src = { .file = c->args[0].str, .is_map = true, .id = UINT32_MAX };
	enum pat_out out = (enum pat_out)(c->kw >> 8);
	struct map *m = arena_zalloc(c->env->arena, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	r = pat_user_new(c->env, &src, (enum match)(c->kw & 0xff), false, out, &m->user, NULL, err);
	if (r)
		return r;
	if (c->args[1].type == ARG_STR) {
		c->error_at = c->args[1].at;
		r = map_value(out, c->args[1].str, &m->fallback, err);
		if (r)
			return r;
		m->has_fallback = true;
	}
	c->args[0].type = ARG_PTR;
	c->args[0].ptr = m;
	return 0;
}

/* What the runtime API added may be freed while the stream goes on: it is copied. */
static int conv_map(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	const struct map *m = args[0].ptr;
	const struct pat_elem *e;
	struct str value;
	int r = pat_user_find(m->user, ev, smp, &e);

	if (r == -ENOENT && m->has_fallback) {
		*smp = m->fallback;
		return 0;
	}
	if (r)
		return r;
	value = e->value;
	if (kw >> 8 != PAT_OUT_STR)
		return map_value((enum pat_out)(kw >> 8), value, smp, NULL);
	if (e->is_own && value.len) {
		value = arena_str(ev->arena, value);
		if (!value.p)
			return -ENOMEM;
	}
	return map_value(PAT_OUT_STR, value, smp, NULL);
}

/* --- regsub(regex,replacement,flags) --- */

#define REGSUB_GLOBAL 1
#define REGSUB_MAX    65536 /* bytes of a result */

static int check_regsub(struct fn_check *c, struct err *err)
{
	struct expr_arg *a = c->args;
	bool icase = false;
	int r;

	a[2].num = 0;
	for (size_t i = 0; a[2].type == ARG_STR && i < a[2].str.len; i++) {
		c->error_at = a[2].at;
		if (a[2].str.p[i] == 'g')
			a[2].num |= REGSUB_GLOBAL;
		else if (a[2].str.p[i] == 'i')
			icase = true;
		else
			return err_set(err, -EINVAL, "'%c' is not a flag of regsub: g, i",
				       a[2].str.p[i]);
	}
	r = regex_compile(c->env, a[0].str, icase, (struct regex **)&a[0].ptr, err);
	if (r == 0)
		a[0].type = ARG_PTR;
	return r;
}

struct out {
	char *p;
	size_t n, cap;
};

static int out_put(struct eval *ev, struct out *o, struct str s)
{
	if (s.len > REGSUB_MAX - o->n)
		return -ENOENT;
	if (s.len > o->cap - o->n) {
		size_t cap = (o->n + s.len) * 2;
		char *p = eval_alloc(ev, cap);

		if (!p)
			return -ENOMEM;
		if (o->n)
			memcpy(p, o->p, o->n);
		o->p = p;
		o->cap = cap;
	}
	if (s.len)
		memcpy(o->p + o->n, s.p, s.len);
	o->n += s.len;
	return 0;
}

/* The replacement with \0 … \9 filled in; any other escaped byte stands for itself. */
static int put_replacement(struct eval *ev, struct out *o, struct str rep, struct str in,
			   const size_t *pairs, unsigned n)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < rep.len; i++) {
		unsigned g;

		if (rep.p[i] != '\\' || i + 1 >= rep.len) {
			r = out_put(ev, o, str_sub(rep, i, 1));
			continue;
		}
		i++;
		g = (unsigned)(rep.p[i] - '0');
		if (g > 9)
			r = out_put(ev, o, str_sub(rep, i, 1));
		else if (g < n && pairs[2 * g] <= pairs[2 * g + 1] && pairs[2 * g + 1] <= in.len)
			r = out_put(ev, o,
				    str_sub(in, pairs[2 * g], pairs[2 * g + 1] - pairs[2 * g]));
	}
	return r;
}

static int conv_regsub(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *smp)
{
	struct str in = smp->str.p ? smp->str : STR("");
	struct out o = { NULL, 0, 0 };
	size_t pairs[REGEX_PAIRS * 2], at = 0, from = 0;
	int r = 0;

	while (r == 0 && from <= in.len) {
		unsigned n = regex_find(args[0].ptr, in, from, pairs);

		if (n == 0)
			break;
		r = out_put(ev, &o, str_sub(in, at, pairs[0] - at));
		if (r == 0)
			r = put_replacement(ev, &o, args[1].str, in, pairs, n);
		at = pairs[1];
		/* An empty match: step over one byte, which is copied with the next piece. */
		from = pairs[1] > pairs[0] ? pairs[1] : pairs[1] + 1;
		if (!(args[2].num & REGSUB_GLOBAL))
			break;
	}
	if (r == 0)
		r = out_put(ev, &o, str_from(in, at));
	if (r)
		return r;
	sample_set_str(smp, SAMPLE_STR, o.p ? str_make(o.p, o.n) : STR(""));
	return 0;
}

/* The value with \0 … \9 filled in from what the key matched. */
static int conv_map_regm(struct eval *ev, const struct expr_arg *args, unsigned kw,
			 struct sample *smp)
{
	const struct map *m = args[0].ptr;
	struct str in = smp->str.p ? smp->str : STR("");
	struct out o = { NULL, 0, 0 };
	size_t pairs[REGEX_PAIRS * 2];
	const struct pat_elem *e;
	int r = pat_user_find(m->user, ev, smp, &e);

	if (r == -ENOENT && m->has_fallback) {
		*smp = m->fallback;
		return 0;
	}
	if (r)
		return r;
	r = put_replacement(ev, &o, e->value, in, pairs, regex_find(ev->matched, in, 0, pairs));
	if (r)
		return r;
	sample_set_str(smp, SAMPLE_STR, o.p ? str_make(o.p, o.n) : STR(""));
	return 0;
}

#define MAP(n, in, m, out, outkw)                                                       \
	C(n, "file,[default]", "s[s", in, out, (m) | (outkw) << 8, conv_map, check_map, \
	  "value of the key in the file that matches")
#define MAP4(n, in, m)                                                                         \
	MAP("map_" n, in, m, STR, PAT_OUT_STR), MAP("map_" n "_str", in, m, STR, PAT_OUT_STR), \
		MAP("map_" n "_int", in, m, SINT, PAT_OUT_INT),                                \
		MAP("map_" n "_ip", in, m, ADDR, PAT_OUT_IP)
static const struct conv_def convs[] = {
	MAP("map", STR, MATCH_STR, STR, PAT_OUT_STR),
	MAP4("str", STR, MATCH_STR),
	MAP4("beg", STR, MATCH_BEG),
	MAP4("sub", STR, MATCH_SUB),
	MAP4("dir", STR, MATCH_DIR),
	MAP4("dom", STR, MATCH_DOM),
	MAP4("end", STR, MATCH_END),
	MAP4("reg", STR, MATCH_REG),
	C("map_regm", "file,[default]", "s[s", STR, STR, MATCH_REGM | PAT_OUT_STR << 8,
	  conv_map_regm, check_map,
	  "value of the regular expression that matches, \\0 to \\9 filled in from the match"),
	MAP4("int", SINT, MATCH_INT),
	MAP4("ip", ADDR, MATCH_IP),
	C("regsub", "regex,replacement,[flags]", "ss[s", STR, STR, 0, conv_regsub, check_regsub,
	  "replaces the first match (flag g: all), flag i ignores case"),
};

const struct conv_table conv_map_table = { convs, ARRAY_SIZE(convs) };
