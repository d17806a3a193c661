/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pattern sets: the match methods of ACLs and maps over the engines of pat_ranges.c, pat_tree.c and
 * regex.c. Built by the control thread, immutable afterwards; looked up on workers.
 */
#include "expr/expr_priv.h"

struct patset {
	uint8_t match; /* enum match */
	bool icase;
	unsigned n;
	int32_t bools[2]; /* MATCH_BOOL: entry for false and true, or -1 */
	union {
		struct pat_ranges *ranges;
		struct pat_tree *tree;
		struct pat_hash *hash;
		struct regex **regexes;
	};
};

static const struct {
	const char *name;
	uint8_t input;
} matches[MATCH_COUNT] = {
	[MATCH_FOUND] = { "found", TYPE_ANY }, [MATCH_BOOL] = { "bool", SAMPLE_BOOL },
	[MATCH_INT] = { "int", SAMPLE_SINT },  [MATCH_IP] = { "ip", SAMPLE_ADDR },
	[MATCH_BIN] = { "bin", SAMPLE_BIN },   [MATCH_LEN] = { "len", SAMPLE_STR },
	[MATCH_STR] = { "str", SAMPLE_STR },   [MATCH_BEG] = { "beg", SAMPLE_STR },
	[MATCH_SUB] = { "sub", SAMPLE_STR },   [MATCH_DIR] = { "dir", SAMPLE_STR },
	[MATCH_DOM] = { "dom", SAMPLE_STR },   [MATCH_END] = { "end", SAMPLE_STR },
	[MATCH_REG] = { "reg", SAMPLE_STR },   [MATCH_REGM] = { "regm", SAMPLE_STR },
};

#define DIR_DELIMS "/?"
#define DOM_DELIMS "/?.:"

const char *match_name(enum match m)
{
	return matches[m].name;
}

int match_from_name(struct str name)
{
	for (unsigned i = 0; i < MATCH_COUNT; i++) {
		if (str_is_eq(name, str_from_cstr(matches[i].name)))
			return (int)i;
	}
	return -1;
}

unsigned match_input(enum match m)
{
	return matches[m].input;
}

/* --- ranges --- */

#define BIAS ((uint64_t)1 << 63)

/* "5", "a:b", ":b", "a:"; "3.1" is 3 * 65536 + 1, as TLS versions are written. */
static int parse_bound(struct str s, int64_t open, int64_t *ret)
{
	struct str rest = s, major;
	int64_t hi;

	*ret = open;
	if (s.len == 0)
		return 0;
	if (str_find_char(s, '.') == SIZE_MAX)
		return str_to_i64(s, ret) ? -EINVAL : 0;
	major = str_cut(&rest, '.');
	if (str_to_i64(major, &hi) || str_to_i64(rest, ret) || hi < 0 || hi > 65535 || *ret < 0 ||
	    *ret > 65535)
		return -EINVAL;
	*ret += hi << 16;
	return 0;
}

static int parse_int_range(const struct pat_entry *e, int64_t *ret_lo, int64_t *ret_hi,
			   struct err *err)
{
	struct str hi = e->text, lo = str_cut(&hi, ':');
	int64_t v;

	if (e->text.len == 0 || parse_bound(lo, INT64_MIN, ret_lo) ||
	    (hi.p && parse_bound(hi, INT64_MAX, ret_hi)) || (!hi.p && lo.len == 0) ||
	    (hi.p && lo.len == 0 && hi.len == 0))
		return err_set(err, -EINVAL, "'" STR_FMT "' is neither an integer nor a range a:b",
			       STR_ARG(str_sub(e->text, 0, 60)));
	if (hi.p && e->op != OP_EQ)
		return err_set(err, -EINVAL, "a range cannot follow gt, ge, lt or le");
	if (!hi.p)
		*ret_hi = *ret_lo;
	v = *ret_lo;
	if ((e->op == OP_GT && v == INT64_MAX) || (e->op == OP_LT && v == INT64_MIN))
		return err_set(err, -EINVAL, "no number is beyond '" STR_FMT "'", STR_ARG(e->text));
	if (e->op == OP_GE || e->op == OP_GT) {
		*ret_lo = e->op == OP_GT ? v + 1 : v;
		*ret_hi = INT64_MAX;
	} else if (e->op == OP_LE || e->op == OP_LT) {
		*ret_lo = INT64_MIN;
		*ret_hi = e->op == OP_LT ? v - 1 : v;
	}
	if (*ret_lo > *ret_hi)
		return err_set(err, -EINVAL, "'" STR_FMT "' is an empty range",
			       STR_ARG(str_sub(e->text, 0, 60)));
	return 0;
}

static unsigned __int128 addr_key(const struct addr *a)
{
	unsigned __int128 k = 0;
	uint8_t b[16];

	addr_to_v6_mapped(a, b);
	for (unsigned i = 0; i < 16; i++)
		k = k << 8 | b[i];
	return k;
}

static int parse_prefix(const struct pat_entry *e, struct pat_range *r, struct err *err)
{
	struct addr_prefix p;
	unsigned bits;

	if (addr_prefix_parse(e->text, &p))
		return err_set(err, -EINVAL, "'" STR_FMT "' is neither an address nor a network",
			       STR_ARG(str_sub(e->text, 0, 60)));
	bits = p.bits + (p.addr.sa.sa_family == AF_INET ? 96 : 0);
	r->lo = addr_key(&p.addr);
	r->hi = r->lo |
		(bits ? (((unsigned __int128)1 << (128 - bits)) - 1) : ~(unsigned __int128)0);
	r->rank = 128 - bits; /* the most specific network wins */
	return 0;
}

static int build_ranges(struct expr_env *env, struct patset *p, const struct pat_entry *e,
			unsigned *ret_bad, struct err *err)
{
	struct pat_range *r = mem_alloc((p->n + 1) * sizeof(*r));
	int64_t lo, hi;
	int ret = 0;

	if (!r)
		return -ENOMEM;
	for (unsigned i = 0; ret == 0 && i < p->n; i++) {
		*ret_bad = i;
		r[i].index = i;
		r[i].rank = 0;
		if (p->match == MATCH_IP) {
			ret = parse_prefix(&e[i], &r[i], err);
			continue;
		}
		ret = parse_int_range(&e[i], &lo, &hi, err);
		r[i].lo = (uint64_t)lo ^ BIAS;
		r[i].hi = (uint64_t)hi ^ BIAS;
	}
	if (ret == 0)
		ret = pat_ranges_build(env->arena, r, p->n, &p->ranges);
	mem_free(r);
	return ret;
}

/* --- texts --- */

static void fold(char *out, struct str s, bool icase, bool is_reversed)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = is_reversed ? s.p[s.len - 1 - i] : s.p[i];

		out[i] = icase ? str_lower_char(c) : c;
	}
}

static int hex_decode(struct str s, char *out)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = str_lower_char(s.p[i]);
		int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (d < 0)
			return -EINVAL;
		if (i % 2 == 0)
			out[i / 2] = (char)(d << 4);
		else
			out[i / 2] = (char)(out[i / 2] | d);
	}
	return s.len % 2 ? -EINVAL : 0;
}

static struct str strip(struct str s, const char *delims)
{
	struct str d = str_from_cstr(delims);

	while (s.len && str_find_char(d, s.p[0]) != SIZE_MAX)
		s = str_from(s, 1);
	while (s.len && str_find_char(d, s.p[s.len - 1]) != SIZE_MAX)
		s.len--;
	return s;
}

static int make_key(struct expr_env *env, const struct patset *p, struct str text, struct str *ret,
		    struct err *err)
{
	char *copy;

	if (p->match == MATCH_DIR)
		text = strip(text, DIR_DELIMS);
	else if (p->match == MATCH_DOM)
		text = strip(text, DOM_DELIMS);
	*ret = text;
	if (p->match != MATCH_BIN && p->match != MATCH_END && !p->icase)
		return 0;
	copy = arena_alloc(env->arena, text.len + 1);
	if (!copy)
		return -ENOMEM;
	*ret = str_make(copy, text.len);
	if (p->match != MATCH_BIN) {
		fold(copy, text, p->icase, p->match == MATCH_END);
		return 0;
	}
	ret->len = text.len / 2;
	if (hex_decode(text, copy))
		return err_set(err, -EINVAL, "'" STR_FMT "' is not pairs of hexadecimal digits",
			       STR_ARG(str_sub(text, 0, 60)));
	return 0;
}

static int build_texts(struct expr_env *env, struct patset *p, const struct pat_entry *e,
		       unsigned *ret_bad, struct err *err)
{
	struct str *keys = arena_alloc(env->arena, (p->n + 1) * sizeof(*keys));
	int r;

	if (!keys)
		return -ENOMEM;
	for (unsigned i = 0; i < p->n; i++) {
		*ret_bad = i;
		r = make_key(env, p, e[i].text, &keys[i], err);
		if (r)
			return r;
	}
	if (p->match == MATCH_STR || p->match == MATCH_BIN)
		return pat_hash_build(env->arena, keys, p->n, &p->hash);
	return pat_tree_build(env->arena, keys, p->n, &p->tree);
}

static int build_regexes(struct expr_env *env, struct patset *p, const struct pat_entry *e,
			 unsigned *ret_bad, struct err *err)
{
	int r = 0;

	p->regexes = arena_alloc(env->arena, (p->n + 1) * sizeof(struct regex *));
	if (!p->regexes)
		return -ENOMEM;
	for (unsigned i = 0; r == 0 && i < p->n; i++) {
		*ret_bad = i;
		r = regex_compile(env, e[i].text, p->icase, &p->regexes[i], err);
	}
	return r;
}

static int build_bools(struct patset *p, const struct pat_entry *e, unsigned *ret_bad,
		       struct err *err)
{
	static const struct str words[2][4] = {
		{ { "0", 1 }, { "false", 5 }, { "no", 2 }, { "off", 3 } },
		{ { "1", 1 }, { "true", 4 }, { "yes", 3 }, { "on", 2 } },
	};

	p->bools[0] = p->bools[1] = -1;
	for (unsigned i = 0; i < p->n; i++) {
		int v = -1;

		*ret_bad = i;
		for (unsigned k = 0; k < 8; k++) {
			if (str_is_case_eq(e[i].text, words[k / 4][k % 4]))
				v = (int)k / 4;
		}
		if (v < 0)
			return err_set(err, -EINVAL, "'" STR_FMT "' is neither true nor false",
				       STR_ARG(str_sub(e[i].text, 0, 60)));
		if (p->bools[v] < 0)
			p->bools[v] = (int32_t)i;
	}
	return 0;
}

int patset_build(struct expr_env *env, enum match m, bool icase, const struct pat_entry *e,
		 unsigned n, struct patset **ret, unsigned *ret_bad, struct err *err)
{
	struct patset *p = arena_zalloc(env->arena, sizeof(*p));

	*ret_bad = 0;
	if (!p)
		return -ENOMEM;
	p->match = (uint8_t)m;
	p->icase = icase;
	p->n = n;
	*ret = p;
	switch (m) {
	case MATCH_FOUND:
		return 0;
	case MATCH_BOOL:
		return build_bools(p, e, ret_bad, err);
	case MATCH_INT:
	case MATCH_LEN:
	case MATCH_IP:
		return build_ranges(env, p, e, ret_bad, err);
	case MATCH_REG:
	case MATCH_REGM:
		return build_regexes(env, p, e, ret_bad, err);
	default:
		return build_texts(env, p, e, ret_bad, err);
	}
}

unsigned patset_weight(const struct patset *p, struct str key)
{
	struct addr_prefix a;

	if (p->match != MATCH_IP)
		return (unsigned)key.len;
	if (addr_prefix_parse(key, &a))
		return 0;
	return a.bits + (a.addr.sa.sa_family == AF_INET ? 96 : 0);
}

/* --- lookup --- */

static int find_folded(const struct patset *p, struct eval *ev, struct str s)
{
	char buf[512], *copy = buf;

	if (p->icase || p->match == MATCH_END) {
		if (s.len > sizeof(buf))
			copy = eval_alloc(ev, s.len);
		if (!copy)
			return -ENOMEM;
		fold(copy, s, p->icase, p->match == MATCH_END);
		s.p = copy;
	}
	switch ((enum match)p->match) {
	case MATCH_STR:
	case MATCH_BIN:
		return pat_hash_find(p->hash, s);
	case MATCH_BEG:
		return pat_tree_prefix(p->tree, s, TREE_LONGEST);
	case MATCH_END:
		return pat_tree_prefix(p->tree, s, TREE_FIRST);
	case MATCH_SUB:
		return pat_tree_sub(p->tree, s);
	case MATCH_DIR:
		return pat_tree_word(p->tree, s, DIR_DELIMS);
	case MATCH_DOM:
		return pat_tree_word(p->tree, s, DOM_DELIMS);
	default:
		BUG_ON(true);
	}
}

int patset_find(const struct patset *p, struct eval *ev, struct sample *smp)
{
	unsigned input = matches[p->match].input;
	int r;

	if (input != TYPE_ANY) {
		r = sample_cast(smp, (enum sample_type)input, ev->arena);
		if (r)
			return r == -ENOMEM ? r : -ENOENT;
	}
	switch ((enum match)p->match) {
	case MATCH_FOUND:
		return 0;
	case MATCH_BOOL:
		if (p->n == 0)
			return smp->sint ? 0 : -ENOENT;
		return p->bools[smp->sint != 0] >= 0 ? p->bools[smp->sint != 0] : -ENOENT;
	case MATCH_INT:
		return pat_ranges_find(p->ranges, (uint64_t)smp->sint ^ BIAS);
	case MATCH_LEN:
		return pat_ranges_find(p->ranges, (uint64_t)smp->str.len ^ BIAS);
	case MATCH_IP:
		if (smp->addr.sa.sa_family != AF_INET && smp->addr.sa.sa_family != AF_INET6)
			return -ENOENT;
		return pat_ranges_find(p->ranges, addr_key(&smp->addr));
	case MATCH_REG:
	case MATCH_REGM:
		for (unsigned i = 0; i < p->n; i++) {
			ev->matched = p->regexes[i];
			if (regex_is_match(p->regexes[i], smp->str))
				return (int)i;
		}
		return -ENOENT;
	default:
		return p->n ? find_folded(p, ev, smp->str) : -ENOENT;
	}
}
