/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One line into words: quotes, escapes, comments, environment variables. As HAProxy does it: weak
 * quotes expand variables and know escapes, strong quotes know nothing, a backslash before any other
 * character stays (so that regular expressions need no doubling), '#' outside quotes ends the line.
 *
 * Every byte of every word remembers the column it came from, so that an error inside an
 * expression can point into the source. Control thread; memory in the two arenas of `struct lexer`.
 */
#include <errno.h>

#include "conf/conf_priv.h"

struct run {
	struct lexer *lx;
	struct str in;
	size_t i;
	char quote; /* 0, '\'' or '"' */
	size_t quote_at;
	bool in_word; /* a word has begun, perhaps still empty */
	bool is_split; /* "${VAR[*]}" in this word: an empty word is no word */
	unsigned *ret_column;
	struct err *err;
};

void lexer_free(struct lexer *lx)
{
	mem_free(lx->out);
	mem_free(lx->map);
	mem_free(lx->starts);
	mem_free(lx->columns);
	lx->out = NULL;
	lx->map = lx->starts = lx->columns = NULL;
	lx->cap_out = lx->cap_words = 0;
}

static int out_reserve(struct lexer *lx)
{
	size_t cap = lx->cap_out ? lx->cap_out * 2 : 512;
	char *out;
	uint32_t *map;

	if (lx->n_out < lx->cap_out)
		return 0;
	out = mem_realloc(lx->out, cap);
	if (!out)
		return -ENOMEM;
	lx->out = out;
	map = mem_realloc(lx->map, cap * sizeof(*map));
	if (!map)
		return -ENOMEM;
	lx->map = map;
	lx->cap_out = cap;
	return 0;
}

static int words_reserve(struct lexer *lx)
{
	unsigned cap = lx->cap_words ? lx->cap_words * 2 : 32;
	uint32_t *p;

	if (lx->n_words < lx->cap_words)
		return 0;
	p = mem_realloc(lx->starts, cap * sizeof(*p));
	if (!p)
		return -ENOMEM;
	lx->starts = p;
	p = mem_realloc(lx->columns, cap * sizeof(*p));
	if (!p)
		return -ENOMEM;
	lx->columns = p;
	lx->cap_words = cap;
	return 0;
}

static int run_fail(struct run *r, size_t at, const char *text)
{
	*r->ret_column = (unsigned)at + 1;
	return err_set(r->err, -EINVAL, "%s", text);
}

static int begin_word(struct run *r, size_t at)
{
	struct lexer *lx = r->lx;
	int ret;

	if (r->in_word)
		return 0;
	if (lx->n_words >= CONF_MAX_WORDS)
		return run_fail(r, at, "too many words in one line (max 2048)");
	ret = words_reserve(lx);
	if (ret)
		return ret;
	lx->starts[lx->n_words] = (uint32_t)lx->n_out;
	lx->columns[lx->n_words] = (uint32_t)at + 1;
	lx->n_words++;
	r->in_word = true;
	r->is_split = false;
	return 0;
}

static int put(struct run *r, char c, size_t at)
{
	struct lexer *lx = r->lx;
	int ret = begin_word(r, at);

	if (ret)
		return ret;
	if (c == '\0')
		return run_fail(r, at, "a NUL character cannot be part of a word");
	if (lx->n_out >= CONF_MAX_LINE)
		return run_fail(r, at, "line is too long after expansion (max 1 MiB)");
	ret = out_reserve(lx);
	if (ret)
		return ret;
	lx->out[lx->n_out] = c;
	lx->map[lx->n_out] = (uint32_t)at + 1;
	lx->n_out++;
	return 0;
}

static int end_word(struct run *r, size_t at)
{
	struct lexer *lx = r->lx;
	int ret;

	if (!r->in_word)
		return 0;
	if (r->is_split && lx->starts[lx->n_words - 1] == lx->n_out) {
		lx->n_words--;
		r->in_word = false;
		return 0;
	}
	ret = out_reserve(lx);
	if (ret)
		return ret;
	lx->out[lx->n_out] = '\0';
	lx->map[lx->n_out] = (uint32_t)at + 1;
	lx->n_out++;
	r->in_word = false;
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = str_lower_char(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int lex_hex(struct run *r)
{
	int hi = r->i + 2 < r->in.len ? hex_digit(r->in.p[r->i + 2]) : -1;
	int lo = r->i + 3 < r->in.len ? hex_digit(r->in.p[r->i + 3]) : -1;
	int ret;

	if (hi < 0 || lo < 0)
		return run_fail(r, r->i, "'\\x' expects two hexadecimal digits");
	ret = put(r, (char)(hi << 4 | lo), r->i);
	r->i += 4;
	return ret;
}

/* At a backslash outside strong quotes. */
static int lex_escape(struct run *r)
{
	size_t at = r->i;
	char c, out;

	if (at + 1 >= r->in.len)
		return run_fail(r, at, "backslash at the end of the line");
	c = r->in.p[at + 1];
	switch (c) {
	case ' ':
	case '\\':
	case '#':
	case '"':
	case '\'':
		out = c;
		break;
	case 't':
		out = '\t';
		break;
	case 'r':
		out = '\r';
		break;
	case 'n':
		out = '\n';
		break;
	case 'x':
		return lex_hex(r);
	case '$':
		if (r->quote == '"') {
			out = c;
			break;
		}
		/* fall through */
	default:
		r->i++;
		return put(r, '\\', at);
	}
	r->i += 2;
	return put(r, out, at);
}

static bool is_name_char(char c, bool is_first)
{
	char l = str_lower_char(c);

	return (l >= 'a' && l <= 'z') || c == '_' || (is_first ? c == '.' : c >= '0' && c <= '9');
}

struct variable {
	struct str name, def;
	bool is_list;
	size_t end; /* offset behind it */
};

/* "$NAME" or "${NAME[*]-default}" at s.p[at]. NULL, or what is wrong. */
static const char *parse_variable(struct str s, size_t at, struct variable *ret)
{
	bool has_brace = at + 1 < s.len && s.p[at + 1] == '{';
	size_t begin = at + 1 + has_brace, i = begin;

	*ret = (struct variable){ .def = STR_NULL };
	if (i >= s.len || !is_name_char(s.p[i], true))
		return "expects the name of an environment variable after '$' (write '\\$', or use "
		       "single quotes, for a plain '$')";
	for (i++; i < s.len && is_name_char(s.p[i], false); i++)
		;
	ret->name = str_sub(s, begin, i - begin);
	if (has_brace) {
		if (str_is_prefix(str_from(s, i), STR("[*]"))) {
			ret->is_list = true;
			i += 3;
		}
		if (i < s.len && s.p[i] == '-') {
			size_t from = ++i;

			while (i < s.len && s.p[i] != '}')
				i++;
			ret->def = str_sub(s, from, i - from);
			if (!ret->def.p || !ret->def.len)
				ret->def = STR("");
		}
		if (i >= s.len)
			return "expects '}' at the end of the variable's name";
		if (s.p[i] != '}')
			return "unexpected character in the name of an environment variable";
		i++;
	}
	ret->end = i;
	return NULL;
}

/* At '$' within weak quotes. */
static int lex_variable(struct run *r)
{
	struct variable v;
	struct str value;
	const char *problem = parse_variable(r->in, r->i, &v);
	size_t at = r->i;
	int ret = 0;

	if (problem)
		return run_fail(r, at, problem);
	value = r->lx->getenv ? r->lx->getenv(r->lx->ctx, v.name) : STR_NULL;
	if (!value.p)
		value = v.def;
	r->i = v.end;
	if (v.is_list)
		r->is_split = true;
	for (size_t i = 0; i < value.len && ret == 0; i++) {
		if (v.is_list && (value.p[i] == ' ' || value.p[i] == '\t')) {
			ret = end_word(r, at);
			continue;
		}
		ret = put(r, value.p[i], at);
		r->is_split |= v.is_list;
	}
	if (ret == 0 && !r->in_word) {
		ret = begin_word(r, at);
		r->is_split = true;
	}
	return ret;
}

static int lex_quoted_char(struct run *r)
{
	char c = r->in.p[r->i];

	if (c == r->quote) {
		r->quote = 0;
		r->i++;
		return 0;
	}
	if (r->quote == '"' && c == '\\')
		return lex_escape(r);
	if (r->quote == '"' && c == '$')
		return lex_variable(r);
	return put(r, c, r->i++);
}

static int lex_plain_char(struct run *r)
{
	char c = r->in.p[r->i];
	int ret;

	switch (c) {
	case ' ':
	case '\t':
		ret = end_word(r, r->i);
		r->i++;
		return ret;
	case '#':
	case '\r':
		r->in.len = r->i;
		return 0;
	case '"':
	case '\'':
		r->quote = c;
		r->quote_at = r->i;
		ret = begin_word(r, r->i);
		r->i++;
		return ret;
	case '\\':
		return lex_escape(r);
	default:
		return put(r, c, r->i++);
	}
}

static int keep_line(struct lexer *lx, struct line *ret)
{
	char *text;

	*ret = (struct line){ .pos = ret->pos, .n = lx->n_words };
	if (!lx->n_words)
		return 0;
	text = arena_alloc(lx->text_arena, lx->n_out);
	ret->map = arena_alloc(lx->arena, lx->n_out * sizeof(*ret->map));
	ret->words = arena_alloc(lx->text_arena, lx->n_words * sizeof(*ret->words));
	ret->columns = arena_alloc(lx->arena, lx->n_words * sizeof(*ret->columns));
	if (!text || !ret->map || !ret->words || !ret->columns)
		return -ENOMEM;
	memcpy(text, lx->out, lx->n_out);
	memcpy(ret->map, lx->map, lx->n_out * sizeof(*ret->map));
	memcpy(ret->columns, lx->columns, lx->n_words * sizeof(*ret->columns));
	ret->text = text;
	for (unsigned i = 0; i < lx->n_words; i++) {
		size_t end = i + 1 < lx->n_words ? lx->starts[i + 1] : lx->n_out;

		ret->words[i] = str_make(text + lx->starts[i], end - lx->starts[i] - 1);
	}
	ret->pos.column = ret->columns[0];
	return 0;
}

int lex_line(struct lexer *lx, struct str raw, struct line *ret, unsigned *ret_column,
	     struct err *err)
{
	struct run r = { .lx = lx, .in = raw, .ret_column = ret_column, .err = err };
	int status = 0;

	lx->n_out = 0;
	lx->n_words = 0;
	*ret_column = 1;
	if (raw.len > CONF_MAX_LINE)
		return run_fail(&r, CONF_MAX_LINE, "line is too long (max 1 MiB)");
	while (status == 0 && r.i < r.in.len)
		status = r.quote ? lex_quoted_char(&r) : lex_plain_char(&r);
	if (status)
		return status;
	if (r.quote)
		return run_fail(&r, r.quote_at,
				r.quote == '"' ? "missing closing '\"'" : "missing closing \"'\"");
	status = end_word(&r, r.i);
	return status ? status : keep_line(lx, ret);
}

struct str lex_expand(struct lexer *lx, struct str text, struct err *err)
{
	struct run r = {
		.lx = lx, .in = text, .quote = '"', .ret_column = &(unsigned){ 0 }, .err = err
	};
	int status = 0;

	if (str_find_char(text, '$') == SIZE_MAX)
		return text;
	err_set(err, 0, "out of memory");
	lx->n_out = 0;
	lx->n_words = 0;
	status = begin_word(&r, 0);
	while (status == 0 && r.i < r.in.len) {
		size_t from = r.i;

		if (r.in.p[from] == '$')
			status = lex_variable(&r);
		else
			status = put(&r, r.in.p[r.i], r.i);
		if (r.i == from)
			r.i++;
	}
	if (status)
		return STR_NULL;
	if (lx->n_words > 1) {
		err_set(err, -EINVAL, "the variable expands to several words in an address");
		return STR_NULL;
	}
	r.in.p = arena_strdup(lx->text_arena, str_make(lx->out, lx->n_out));
	return str_make(r.in.p, r.in.p ? lx->n_out : 0);
}
