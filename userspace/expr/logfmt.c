/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Log formats: text, %tags and %[expressions] compiled to an array of operations and run once per
 * request on the worker, straight into the caller's buffer. The same templates make header values,
 * locations and bodies; there nothing is added for missing values and no blanks are merged.
 */
#include "expr/logfmt_priv.h"

const char *const logfmt_httplog =
	"%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc "
	"%sq/%bq %hr %hs %{+Q}r";
const char *const logfmt_tcplog =
	"%ci:%cp [%t] %ft %b/%s %Tw/%Tc/%Tt %B %ts %ac/%fc/%bc/%sc/%rc %sq/%bq";
const char *const logfmt_httpslog =
	"%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc "
	"%sq/%bq %hr %hs %{+Q}r "
	"%[fc_err]/%[ssl_fc_err,hex]/%[ssl_c_err]/%[ssl_c_ca_err]/%[ssl_fc_is_resumed] "
	"%[ssl_fc_sni]/%sslv/%sslc";
const char *const logfmt_clf =
	"%{+Q}o %{-Q}ci - - [%trg] %r %ST %B \"\" \"\" %cp %ms %ft %b %s %TR %Tw %Tc %Tr %Ta %tsc "
	"%ac %fc %bc %sc %rc %sq %bq %CC %CS %hrl %hsl";

enum lf_kind {
	LF_TEXT,
	LF_BLANK,
	LF_TAG,
	LF_EXPR
};

struct lf_op {
	uint8_t kind; /* enum lf_kind */
	uint8_t flags; /* enum lf_flags */
	union {
		struct str text;
		const struct lf_tag *tag;
		struct expr *expr;
	};
};

struct logfmt {
	unsigned n;
	struct lf_op *ops;
	size_t estimate; /* bytes of fixed text, to size buffers */
};

/* --- writing --- */

#define CTL (ENC_URI | ENC_HDR | ENC_CTL | ENC_HTTP)
static const uint8_t enc_table[256] = {
	[0 ... 8] = CTL,
	['\t'] = CTL & ~ENC_HTTP,
	[10 ... 31] = CTL,
	['"'] = ENC_URI | ENC_HDR,
	['#'] = ENC_URI | ENC_HDR,
	['{'] = ENC_HDR,
	['|'] = ENC_HDR,
	['}'] = ENC_HDR,
	[127] = CTL,
	[128 ... 255] = ENC_URI | ENC_HDR,
};

void lw_encoded(struct lw *w, struct str s, enum lf_enc enc, unsigned flags)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t start = 0;

	for (size_t i = 0; i < s.len; i++) {
		uint8_t c = (uint8_t)s.p[i];
		bool is_escaped = flags & LF_ESCAPE && (c == '"' || c == '\\' || c == ']');

		if (likely(!(enc_table[c] & enc) && !is_escaped))
			continue;
		lw_mem(w, s.p + start, i - start);
		start = i + 1;
		if (is_escaped) {
			lw_char(w, '\\');
			lw_char(w, (char)c);
			continue;
		}
		lw_char(w, enc == ENC_HTTP ? '%' : '#');
		lw_char(w, hex[c >> 4]);
		lw_char(w, hex[c & 15]);
	}
	if (s.len)
		lw_mem(w, s.p + start, s.len - start);
}

void lw_value(struct lw *w, struct str s, enum lf_enc enc, unsigned flags)
{
	if (flags & LF_QUOTE)
		lw_char(w, '"');
	if (s.len)
		lw_encoded(w, s, enc, flags);
	else if ((flags & (LF_LOG | LF_QUOTE)) == LF_LOG)
		lw_char(w, '-');
	if (flags & LF_QUOTE)
		lw_char(w, '"');
	w->is_blank = false;
}

void lw_addr(struct lw *w, const struct addr *a, unsigned flags)
{
	char text[ADDR_TEXT_MAX];
	size_t n = 0;

	if (!a || a->sa.sa_family == AF_UNSPEC) {
		lw_value(w, STR(""), ENC_CTL, flags);
		return;
	}
	if (a->sa.sa_family == AF_UNIX) {
		lw_value(w, STR("unix"), ENC_CTL, flags);
		return;
	}
	if (flags & LF_HEX) {
		static const char hex[] = "0123456789ABCDEF";
		bool is_v4 = a->sa.sa_family == AF_INET;
		const uint8_t *b = is_v4 ? (const uint8_t *)&a->in.sin_addr
					 : (const uint8_t *)&a->in6.sin6_addr;

		for (unsigned i = 0; i < (is_v4 ? 4u : 16u); i++) {
			text[n++] = hex[b[i] >> 4];
			text[n++] = hex[b[i] & 15];
		}
	} else {
		n = addr_format_ip(a, text, sizeof(text));
	}
	lw_value(w, str_make(text, n), ENC_CTL, flags);
}

/* --- compiling --- */

struct lf_compile {
	struct expr_env *env;
	struct str text;
	size_t pos;
	size_t error_at;
	struct logfmt *fmt;
	unsigned cap;
	unsigned defaults; /* flags set by %o */
	struct err *err;
};

static struct lf_op *add_op(struct lf_compile *c, enum lf_kind kind, unsigned flags)
{
	struct logfmt *f = c->fmt;

	if (f->n == c->cap) {
		unsigned cap = c->cap ? c->cap * 2 : 16;
		struct lf_op *ops = arena_alloc(c->env->arena, cap * sizeof(*ops));

		if (!ops)
			return NULL;
		if (f->n)
			memcpy(ops, f->ops, f->n * sizeof(*ops));
		f->ops = ops;
		c->cap = cap;
	}
	f->ops[f->n].kind = (uint8_t)kind;
	f->ops[f->n].flags = (uint8_t)flags;
	return &f->ops[f->n++];
}

static int add_text(struct lf_compile *c, struct str s)
{
	struct lf_op *op = add_op(c, LF_TEXT, 0);

	if (!op)
		return -ENOMEM;
	op->text = s;
	c->fmt->estimate += s.len;
	return 0;
}

/* Plain text up to the next '%' (and, in logs, up to the next blank). */
static int compile_text(struct lf_compile *c)
{
	bool is_log = c->defaults & LF_LOG;
	size_t start = c->pos;

	while (c->pos < c->text.len && c->text.p[c->pos] != '%' &&
	       !(is_log && c->text.p[c->pos] == ' '))
		c->pos++;
	return add_text(c, str_sub(c->text, start, c->pos - start));
}

static int compile_blank(struct lf_compile *c)
{
	while (c->pos < c->text.len && c->text.p[c->pos] == ' ')
		c->pos++;
	return add_op(c, LF_BLANK, 0) ? 0 : -ENOMEM;
}

/* "{+Q,-X}" */
static int compile_flags(struct lf_compile *c, unsigned *flags)
{
	size_t end = str_find_char(str_from(c->text, c->pos), '}');
	struct str list;

	c->error_at = c->pos;
	if (end == SIZE_MAX)
		return err_set(c->err, -EINVAL, "missing '}' behind the flags");
	for (list = str_sub(c->text, c->pos + 1, end - 1); list.p;) {
		struct str f = str_trim(str_cut(&list, ','));
		unsigned bit = 0;

		if (f.len == 2 && (f.p[0] == '+' || f.p[0] == '-'))
			bit = f.p[1] == 'Q'   ? LF_QUOTE
			      : f.p[1] == 'X' ? LF_HEX
			      : f.p[1] == 'E' ? LF_ESCAPE
					      : 0;
		if (!bit)
			return err_set(c->err, -EINVAL,
				       "unknown flag '" STR_FMT "': expected +Q, +X or +E (or -)",
				       STR_ARG(str_sub(f, 0, 40)));
		*flags = f.p[0] == '+' ? *flags | bit : *flags & ~bit;
	}
	c->pos += end + 1;
	return 0;
}

/* At "[": an expression and its "]". */
static int compile_expr(struct lf_compile *c, unsigned flags)
{
	struct lf_op *op;
	struct expr *e;
	size_t used, at;
	int r;

	c->pos++;
	while (c->pos < c->text.len && c->text.p[c->pos] == ' ')
		c->pos++;
	r = expr_compile_prefix(c->env, str_from(c->text, c->pos), NULL, &e, &used, &at, c->err);
	c->error_at = c->pos + at;
	if (r)
		return r;
	c->pos += used;
	while (c->pos < c->text.len && c->text.p[c->pos] == ' ')
		c->pos++;
	c->error_at = c->pos;
	if (c->pos >= c->text.len || c->text.p[c->pos] != ']')
		return err_set(c->err, -EINVAL, "expected ']' behind the expression");
	if (!sample_is_castable(e->out, SAMPLE_STR))
		return err_set(c->err, -EINVAL, "the expression has no text form");
	c->pos++;
	op = add_op(c, LF_EXPR, flags);
	if (!op)
		return -ENOMEM;
	op->expr = e;
	return 0;
}

static int unknown_tag(struct lf_compile *c, struct str name)
{
	struct near near = { .want = name };
	const struct lf_tag *t;
	char hint[96];

	for (unsigned i = 0; (t = lf_tag_at(i)); i++)
		near_add(&near, str_from_cstr(t->name));
	return err_set(c->err, -EINVAL, "unknown tag '%%" STR_FMT "'%s",
		       STR_ARG(str_sub(name, 0, 40)), near_text(&near, hint, sizeof(hint)));
}

static int compile_tag(struct lf_compile *c, unsigned flags)
{
	size_t n = c->pos;
	struct str name;
	const struct lf_tag *t;
	struct lf_op *op;

	while (n < c->text.len && ((c->text.p[n] >= 'a' && c->text.p[n] <= 'z') ||
				   (c->text.p[n] >= 'A' && c->text.p[n] <= 'Z')))
		n++;
	name = str_sub(c->text, c->pos, n - c->pos);
	if (name.len == 0)
		return err_set(
			c->err, -EINVAL,
			"expected a tag, '[' or '%%' behind '%%' (write '%%%%' for a percent)");
	c->error_at = c->pos;
	if (str_is_eq(name, STR("o"))) {
		c->defaults = flags;
		c->pos = n;
		return 0;
	}
	t = lf_tag_find(name);
	if (!t)
		return unknown_tag(c, name);
	op = add_op(c, LF_TAG, flags);
	if (!op)
		return -ENOMEM;
	op->tag = t;
	c->pos = n;
	return 0;
}

/* At "%". */
static int compile_percent(struct lf_compile *c)
{
	unsigned flags = c->defaults;
	int r = 0;

	c->error_at = c->pos++;
	if (c->pos < c->text.len && c->text.p[c->pos] == '%') {
		c->pos++;
		return add_text(c, STR("%"));
	}
	if (c->pos < c->text.len && c->text.p[c->pos] == '{')
		r = compile_flags(c, &flags);
	if (r)
		return r;
	if (c->pos < c->text.len && c->text.p[c->pos] == '[')
		return compile_expr(c, flags);
	return compile_tag(c, flags);
}

int logfmt_compile(struct expr_env *env, struct str text, struct logfmt **ret_fmt,
		   size_t *ret_error_at, struct err *err)
{
	struct lf_compile c = { .env = env, .err = err };
	int r = 0;

	*ret_error_at = 0;
	c.text = arena_str(env->arena, text.p ? text : STR(""));
	c.fmt = arena_zalloc(env->arena, sizeof(*c.fmt));
	if (!c.text.p || !c.fmt)
		return -ENOMEM;
	c.defaults = env->place & PLACE_LOG ? LF_LOG : 0;
	while (r == 0 && c.pos < c.text.len) {
		if (c.text.p[c.pos] == '%')
			r = compile_percent(&c);
		else if (c.text.p[c.pos] == ' ' && c.defaults & LF_LOG)
			r = compile_blank(&c);
		else
			r = compile_text(&c);
	}
	*ret_error_at = c.error_at;
	*ret_fmt = c.fmt;
	return r;
}

/* --- running --- */

static void run_expr(struct lw *w, const struct lf_op *op, const struct subject *s)
{
	struct eval ev = { .s = s, .arena = s->arena };
	enum lf_enc enc = op->flags & LF_LOG ? ENC_CTL : ENC_HTTP;
	struct sample v;

	if (expr_run(&ev, op->expr, &v)) {
		lw_value(w, STR(""), enc, op->flags);
		return;
	}
	switch ((enum sample_type)v.type) {
	case SAMPLE_BOOL:
	case SAMPLE_SINT:
		if (op->flags & LF_QUOTE)
			lw_char(w, '"');
		lw_int(w, v.sint);
		if (op->flags & LF_QUOTE)
			lw_char(w, '"');
		w->is_blank = false;
		break;
	case SAMPLE_ADDR:
		lw_addr(w, &v.addr, op->flags & ~(unsigned)LF_HEX);
		break;
	default:
		lw_value(w, v.str, enc, op->flags);
		break;
	}
}

size_t logfmt_eval(const struct logfmt *f, const struct subject *s, char *out, size_t size)
{
	struct lw w = { .p = out, .end = out + size, .is_blank = true };

	for (unsigned i = 0; i < f->n; i++) {
		const struct lf_op *op = &f->ops[i];

		switch ((enum lf_kind)op->kind) {
		case LF_TEXT:
			lw_mem(&w, op->text.p, op->text.len);
			w.is_blank = false;
			break;
		case LF_BLANK:
			if (!w.is_blank)
				lw_char(&w, ' ');
			w.is_blank = true;
			break;
		case LF_TAG:
			if (op->tag->needs_log && !s->log)
				lw_value(&w, STR(""), ENC_CTL, op->flags);
			else
				op->tag->fn(&w, s, op->flags, op->tag->arg);
			break;
		case LF_EXPR:
			run_expr(&w, op, s);
			break;
		}
	}
	return (size_t)(w.p - out);
}

struct str logfmt_text(const struct logfmt *f)
{
	if (f->n == 0)
		return STR("");
	return f->n == 1 && f->ops[0].kind == LF_TEXT ? f->ops[0].text : STR_NULL;
}

#define STR_SIZE_MAX (1u << 20)

/* Tries growing buffers: a result that fills one may have been cut. */
struct str logfmt_eval_str(const struct logfmt *f, const struct subject *s)
{
	size_t size = f->estimate + (size_t)f->n * 32 + 64, n;

	for (;;) {
		char *p = arena_alloc(s->arena, size);

		if (!p)
			return STR_NULL;
		n = logfmt_eval(f, s, p, size);
		if (n < size || size >= STR_SIZE_MAX)
			return str_make(p, n);
		size *= 4;
	}
}
