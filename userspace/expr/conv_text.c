/* SPDX-License-Identifier: BSD-2-Clause */
/* Converters of text: case, cutting, joining, comparing. Workers; results in the evaluation's arena. */
#include "expr/expr_priv.h"

static int conv_case(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	struct str s = smp->str;
	char *p = eval_alloc(ev, s.len);

	if (!p)
		return -ENOMEM;
	for (size_t i = 0; i < s.len; i++) {
		char c = s.p[i];

		if (kw)
			p[i] = c >= 'a' && c <= 'z' ? (char)(c & ~0x20) : c;
		else
			p[i] = str_lower_char(c);
	}
	sample_set_str(smp, SAMPLE_STR, str_make(p, s.len));
	return 0;
}

static int conv_length(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *smp)
{
	sample_set_int(smp, (int64_t)smp->str.len);
	return 0;
}

static int conv_bytes(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	int64_t off, len = INT64_MAX;
	int r = arg_int(ev, &args[0], &off);

	if (r == 0 && args[1].type != ARG_NONE)
		r = arg_int(ev, &args[1], &len);
	if (r || off < 0 || len < 0 || (uint64_t)off > smp->str.len)
		return r ? r : -ENOENT;
	smp->str = str_sub(smp->str, (size_t)off, (size_t)len);
	return 0;
}

static int conv_trim(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	struct str s = smp->str;

	if (kw == 0) {
		while (s.len && str_find_char(args[0].str, s.p[0]) != SIZE_MAX)
			s = str_from(s, 1);
	} else {
		while (s.len && str_find_char(args[0].str, s.p[s.len - 1]) != SIZE_MAX)
			s.len--;
	}
	smp->str = s;
	return 0;
}

/* Pieces between delimiters; `word` sees a run of delimiters as one and none at the ends. */
struct pieces {
	struct str s, delims;
	bool is_word;
};

static bool is_delim(const struct pieces *p, size_t i)
{
	return str_find_char(p->delims, p->s.p[i]) != SIZE_MAX;
}

/* Start and end of the next piece at or behind *pos; *pos moves behind it. */
static bool piece_next(const struct pieces *p, size_t *pos, size_t *ret_start, size_t *ret_end)
{
	size_t i = *pos;

	if (p->is_word) {
		while (i < p->s.len && is_delim(p, i))
			i++;
		if (i >= p->s.len)
			return false;
	} else if (i > p->s.len) {
		return false;
	}
	*ret_start = i;
	while (i < p->s.len && !is_delim(p, i))
		i++;
	*ret_end = i;
	*pos = i + 1;
	return true;
}

/*
 * `count` pieces from number `from` on (from the end when negative: those that end there), together
 * with the delimiters between them; 0: all that follow (or precede).
 */
static int conv_pieces(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *smp)
{
	struct pieces p = { .s = smp->str, .delims = args[1].str, .is_word = kw };
	int64_t from = args[0].num, n = 0, i = 0;
	int64_t count = args[2].type == ARG_INT ? args[2].num : 1, last;
	size_t pos = 0, start, end, first = SIZE_MAX;

	if (from < 0) {
		while (piece_next(&p, &pos, &start, &end))
			n++;
		last = n + from + 1;
		from = count == 0 || count > last ? 1 : last - count + 1;
	} else {
		last = count == 0 || from > INT64_MAX - count ? INT64_MAX : from + count - 1;
	}
	if (last < 1)
		goto none;
	for (pos = 0; piece_next(&p, &pos, &start, &end);) {
		if (++i < from)
			continue;
		if (first == SIZE_MAX)
			first = start;
		smp->str = str_make(p.s.p ? p.s.p + first : "", end - first);
		if (i >= last)
			return 0;
	}
	if (first != SIZE_MAX)
		return 0;
none:
	/* field(9) of a short text is empty, word(9) does not exist. */
	if (kw)
		return -ENOENT;
	smp->str = STR("");
	return 0;
}

static int check_pieces(struct fn_check *c, struct err *err)
{
	if (c->args[0].num == 0 || c->args[0].num < -INT32_MAX || c->args[0].num > INT32_MAX)
		return err_set(err, -EINVAL, "pieces are numbered from 1, or from -1 at the end");
	if (c->args[2].type == ARG_INT && (c->args[2].num < 0 || c->args[2].num > INT32_MAX))
		return err_set(err, -EINVAL, "the count must not be negative");
	return 0;
}

static int check_optional_vars(struct fn_check *c, struct err *err)
{
	if (c->args[1].type != ARG_STR)
		return 0;
	return arg_parse_var(&c->args[1], err);
}

/* Text of a variable, empty when it is not set. */
static int var_text(struct eval *ev, const struct expr_arg *a, struct str *ret)
{
	const struct sample *v = NULL;
	struct sample tmp;
	int r;

	*ret = STR("");
	if (a->type == ARG_VAR)
		v = subject_var_get(ev->s, (enum var_scope)a->scope, a->var);
	if (!v)
		return 0;
	tmp = *v;
	r = sample_cast(&tmp, SAMPLE_STR, ev->arena);
	if (r == 0)
		*ret = tmp.str;
	return r == -ENOMEM ? r : 0;
}

static int join(struct eval *ev, struct sample *smp, const struct str *parts, unsigned n)
{
	size_t len = 0, at = 0;
	char *p;

	for (unsigned i = 0; i < n; i++)
		len += parts[i].len;
	p = eval_alloc(ev, len);
	if (!p)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		if (parts[i].len)
			memcpy(p + at, parts[i].p, parts[i].len);
		at += parts[i].len;
	}
	sample_set_str(smp, SAMPLE_STR, str_make(p, len));
	return 0;
}

static struct str opt_text(const struct expr_arg *a)
{
	return a->type == ARG_STR ? a->str : STR("");
}

static int conv_concat(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *smp)
{
	struct str parts[4] = { smp->str, opt_text(&args[0]), STR(""), opt_text(&args[2]) };
	int r = var_text(ev, &args[1], &parts[2]);

	return r ? r : join(ev, smp, parts, 4);
}

/* add_item(delim,[var],[suffix]): the delimiter only when there is something on both sides. */
static int conv_add_item(struct eval *ev, const struct expr_arg *args, unsigned kw,
			 struct sample *smp)
{
	struct str parts[4] = { smp->str, STR(""), STR(""), opt_text(&args[2]) };
	int r = var_text(ev, &args[1], &parts[2]);

	if (r)
		return r;
	if (parts[2].len == 0 && parts[3].len == 0)
		return 0;
	if (smp->str.len)
		parts[1] = args[0].str;
	return join(ev, smp, parts, 4);
}

static int conv_iif(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	sample_set_str(smp, SAMPLE_STR, smp->sint ? args[0].str : args[1].str);
	return 0;
}

/* kw 0: sign of the comparison with a variable; 1: equal, in a time that tells nothing */
static int conv_compare(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *smp)
{
	const struct sample *v = subject_var_get(ev->s, (enum var_scope)args[0].scope, args[0].var);
	struct sample tmp;
	unsigned diff = 0;
	int r;

	if (!v)
		return -ENOENT;
	tmp = *v;
	r = sample_cast(&tmp, SAMPLE_STR, ev->arena);
	if (r)
		return r;
	if (kw == 0) {
		r = str_cmp(smp->str, tmp.str);
		sample_set_int(smp, (r > 0) - (r < 0));
		return 0;
	}
	if (smp->str.len == tmp.str.len) {
		for (size_t i = 0; i < tmp.str.len; i++)
			diff |= (uint8_t)(smp->str.p[i] ^ tmp.str.p[i]);
	}
	sample_set_bool(smp, smp->str.len == tmp.str.len && diff == 0);
	return 0;
}

static int conv_host(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	struct str host = host_without_port(smp->str);

	if (kw == 0)
		smp->str = host;
	else
		sample_set_int(smp, host.len < smp->str.len
					    ? str_leading_int(str_from(smp->str, host.len + 1))
					    : 0);
	return 0;
}

static int conv_reverse(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *smp)
{
	struct str s = smp->str;
	char *p = eval_alloc(ev, s.len);

	if (!p)
		return -ENOMEM;
	for (size_t i = 0; i < s.len; i++)
		p[i] = s.p[s.len - 1 - i];
	smp->str = str_make(p, s.len);
	return 0;
}

/* www.example.com → com.example.www: names that a prefix map can sort by. A final dot stays at the end. */
static int conv_reverse_dom(struct eval *ev, const struct expr_arg *args, unsigned kw,
			    struct sample *smp)
{
	bool has_dot = smp->str.len && smp->str.p[smp->str.len - 1] == '.';
	struct str s = str_sub(smp->str, 0, smp->str.len - has_dot);
	char *p = eval_alloc(ev, smp->str.len), *at = p + s.len;

	if (!p)
		return -ENOMEM;
	if (has_dot)
		*at = '.';
	while (s.len) {
		size_t dot = str_find_char(s, '.'), n = dot == SIZE_MAX ? s.len : dot;

		at -= n;
		memcpy(at, s.p, n);
		s = str_from(s, n);
		if (s.len) {
			*--at = '.';
			s = str_from(s, 1);
		}
	}
	smp->str = str_make(p, smp->str.len);
	return 0;
}

static int conv_crlf(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	size_t i = 0;

	while (i < smp->str.len && smp->str.p[i] != '\r' && smp->str.p[i] != '\n')
		i++;
	smp->str = str_sub(smp->str, 0, i);
	return 0;
}

static int conv_has_ctl(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *smp)
{
	bool has = false;

	for (size_t i = 0; i < smp->str.len && !has; i++)
		has = (uint8_t)smp->str.p[i] < 0x20 || smp->str.p[i] == 0x7f;
	sample_set_bool(smp, has);
	return 0;
}

static const struct conv_def convs[] = {
	C("lower", "", "", STR, STR, 0, conv_case, NULL, "ASCII letters to lower case"),
	C("upper", "", "", STR, STR, 1, conv_case, NULL, "ASCII letters to upper case"),
	C("length", "", "", STR, SINT, 0, conv_length, NULL, "number of bytes"),
	C("bytes", "offset,[length]", "x[x", BIN, BIN, 0, conv_bytes, NULL, "part of the bytes"),
	C("ltrim", "chars", "s", STR, STR, 0, conv_trim, NULL, "without these bytes at the start"),
	C("rtrim", "chars", "s", STR, STR, 1, conv_trim, NULL, "without these bytes at the end"),
	C("field", "index,delimiters,[count]", "is[i", STR, STR, 0, conv_pieces, check_pieces,
	  "piece number index between delimiters"),
	C("word", "index,delimiters,[count]", "is[i", STR, STR, 1, conv_pieces, check_pieces,
	  "the same, empty pieces do not count"),
	C("concat", "[start],[var],[end]", "[sss", STR, STR, 0, conv_concat, check_optional_vars,
	  "appends start, the variable and end"),
	C("add_item", "delim,[var],[suffix]", "s[ss", STR, STR, 0, conv_add_item,
	  check_optional_vars, "appends to a list"),
	C("iif", "true,false", "ss", BOOL, STR, 0, conv_iif, NULL, "one of two texts"),
	C("strcmp", "var", "v", STR, SINT, 0, conv_compare, NULL, "-1, 0 or 1: order of the two"),
	C("secure_memcmp", "var", "v", BIN, BOOL, 1, conv_compare, NULL, "equal? In constant time"),
	C("host_only", "", "", STR, STR, 0, conv_host, NULL, "host:port without the port"),
	C("port_only", "", "", STR, SINT, 1, conv_host, NULL, "the port of host:port, or 0"),
	C("reverse", "", "", STR, STR, 0, conv_reverse, NULL, "bytes in reverse order"),
	C("reverse_dom", "", "", STR, STR, 0, conv_reverse_dom, NULL,
	  "a name with its labels in reverse order"),
	C("cut_crlf", "", "", STR, STR, 0, conv_crlf, NULL, "the first line"),
	C("has_ctl", "", "", STR, BOOL, 0, conv_has_ctl, NULL, "are there control bytes"),
};

const struct conv_table conv_text_table = { convs, ARRAY_SIZE(convs) };
