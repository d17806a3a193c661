/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Expressions: `fetch(args),conv(args),…` compiled to a fetch and an array of converters, evaluated
 * on workers without allocation but the subject's arena. The tables of all fetches and converters are
 * gathered here, for compiling, for "did you mean" and for the generated documentation.
 */
#include "expr/expr_priv.h"

static const struct fetch_table *const fetch_tables[] = {
	&fetch_conn_table,  &fetch_internal_table, &fetch_http_table,
	&fetch_field_table, &fetch_tls_table,	   &fetch_payload_table,
	&fetch_stick_table, &fetch_stream_table,   &fetch_rdp_table,
};
static const struct conv_table *const conv_tables[] = {
	&conv_text_table, &conv_num_table,  &conv_code_table,	   &conv_hash_table,
	&conv_misc_table, &conv_web_table,  &conv_stick_table,	   &conv_map_table,
	&conv_json_table, &conv_sign_table, &conv_forwarded_table, &conv_stream_table,
};

const struct expr_doc *expr_fetch_doc(unsigned i)
{
	for (unsigned t = 0; t < ARRAY_SIZE(fetch_tables); i -= fetch_tables[t++]->n) {
		if (i < fetch_tables[t]->n)
			return &fetch_tables[t]->defs[i].doc;
	}
	return NULL;
}

const struct expr_doc *expr_conv_doc(unsigned i)
{
	for (unsigned t = 0; t < ARRAY_SIZE(conv_tables); i -= conv_tables[t++]->n) {
		if (i < conv_tables[t]->n)
			return &conv_tables[t]->defs[i].doc;
	}
	return NULL;
}

const struct fetch_def *fetch_find(struct str name)
{
	for (unsigned t = 0; t < ARRAY_SIZE(fetch_tables); t++) {
		for (unsigned i = 0; i < fetch_tables[t]->n; i++) {
			const struct fetch_def *d = &fetch_tables[t]->defs[i];

			if (str_is_eq(str_from_cstr(d->doc.name), name))
				return d;
		}
	}
	return NULL;
}

const struct conv_def *conv_find(struct str name)
{
	for (unsigned t = 0; t < ARRAY_SIZE(conv_tables); t++) {
		for (unsigned i = 0; i < conv_tables[t]->n; i++) {
			const struct conv_def *d = &conv_tables[t]->defs[i];

			if (str_is_eq(str_from_cstr(d->doc.name), name))
				return d;
		}
	}
	return NULL;
}

/* --- "did you mean" --- */

void near_add(struct near *n, struct str name)
{
	unsigned d = str_distance(n->want, name);

	if (!n->best.p || d < n->distance) {
		n->best = name;
		n->distance = d;
	}
}

const char *near_text(const struct near *n, char *out, size_t size)
{
	size_t limit = n->want.len < 4 ? 1 : n->want.len / 3 + 1;

	out[0] = '\0';
	if (n->best.p && n->distance <= limit)
		snprintf(out, size, ", did you mean '" STR_FMT "'?",
			 STR_ARG(str_sub(n->best, 0, 60)));
	return out;
}

/* path_beg, hdr_end …: spelled like a fetch, and known to ACLs only. */
static void near_add_aliases(struct near *n)
{
	static const char *const bases[] = { "base", "cook", "hdr",   "path",
					     "url",  "urlp", "scook", "shdr" };
	static const char *const ends[] = { "beg", "dir", "dom", "end", "len", "reg", "sub" };
	static char names[ARRAY_SIZE(bases)][ARRAY_SIZE(ends)][16]; /* control thread */

	if (str_find_char(n->want, '_') == SIZE_MAX)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(ends); k++) {
			snprintf(names[i][k], sizeof(names[i][k]), "%s_%s", bases[i], ends[k]);
			near_add(n, str_from_cstr(names[i][k]));
		}
	}
}

static int unknown_name(const char *what, struct str name, bool is_fetch, struct err *err)
{
	struct near n = { .want = name };
	const struct expr_doc *d;
	char hint[96];

	for (unsigned i = 0; (d = is_fetch ? expr_fetch_doc(i) : expr_conv_doc(i)); i++)
		near_add(&n, str_from_cstr(d->name));
	if (is_fetch)
		near_add_aliases(&n);
	return err_set(err, -EINVAL, "unknown %s '" STR_FMT "'%s", what,
		       STR_ARG(str_sub(name, 0, 80)), near_text(&n, hint, sizeof(hint)));
}

/* --- compiling --- */

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '.' || c == '+' || c == '-';
}

struct str expr_name_at(struct str text)
{
	size_t n = 0;

	while (n < text.len && is_name_char(text.p[n]))
		n++;
	return str_sub(text, 0, n);
}

static const char *const place_names[] = {
	"tcp-request connection rules", "content rules", "HTTP request rules",
	"HTTP response rules",		"log lines",	 "health checks",
	"the global section",
};

static int check_place(const struct expr_env *env, const struct fetch_def *d, struct err *err)
{
	char where[200] = "";
	size_t n = 0;

	if (!env->place || (env->place & d->doc.places))
		return 0;
	for (unsigned i = 0; i < ARRAY_SIZE(place_names); i++) {
		if (env->place & (1u << i) && n < sizeof(where))
			n += (size_t)snprintf(where + n, sizeof(where) - n, "%s%s", n ? " or " : "",
					      place_names[i]);
	}
	return err_set(err, -EINVAL, "fetch '%s' has no value in %s", d->doc.name, where);
}

struct compile {
	struct expr_env *env;
	struct str text;
	size_t pos;
	size_t error_at;
	struct err *err;
};

static int compile_args(struct compile *c, const char *what, const struct expr_doc *doc,
			const char *sig, unsigned kw, check_fn check, struct expr_arg **ret_args)
{
	struct fn_check fc = { .env = c->env, .name = doc->name, .kw = kw };
	size_t used, at;
	int r = args_parse(c->env, what, doc->name, sig, str_from(c->text, c->pos), ret_args,
			   &fc.n_args, &used, &at, c->err);

	c->error_at = c->pos + at;
	if (r)
		return r;
	if (check) {
		fc.args = *ret_args;
		fc.error_at = fc.n_args ? fc.args[0].at : 0;
		r = check(&fc, c->err);
		c->error_at = c->pos + fc.error_at;
		if (r)
			return r == -EINVAL ? err_prefix(c->err, r, "%s '%s'", what, doc->name) : r;
	}
	c->pos += used;
	return 0;
}

static int compile_fetch(struct compile *c, const struct fetch_def *fetch, struct expr *e)
{
	struct str name = expr_name_at(c->text);
	int r;

	c->error_at = 0;
	if (name.len == 0)
		return err_set(c->err, -EINVAL, "expected the name of a sample fetch");
	e->fetch = fetch ? fetch : fetch_find(name);
	if (!e->fetch)
		return unknown_name("sample fetch", name, true, c->err);
	r = check_place(c->env, e->fetch, c->err);
	if (r)
		return r;
	c->pos = name.len;
	e->out = e->fetch->out;
	return compile_args(c, "fetch", &e->fetch->doc, e->fetch->sig, e->fetch->kw,
			    e->fetch->check, &e->args);
}

/* Behind a comma. */
static int compile_conv(struct compile *c, struct expr *e)
{
	struct str name = expr_name_at(str_from(c->text, c->pos));
	struct conv_step *steps, *step;
	const struct conv_def *d;

	c->error_at = c->pos;
	if (name.len == 0)
		return err_set(c->err, -EINVAL, "expected the name of a converter behind ','");
	d = conv_find(name);
	if (!d)
		return unknown_name("converter", name, false, c->err);
	if (!sample_is_castable(e->out, d->in))
		return err_set(c->err, -EINVAL, "converter '%s' wants %s, which %s cannot become",
			       d->doc.name, sample_type_name((enum sample_type)d->in),
			       sample_type_name((enum sample_type)e->out));
	if (e->n_convs % 8 == 0) {
		steps = arena_alloc(c->env->arena, (e->n_convs + 8) * sizeof(*steps));
		if (!steps)
			return -ENOMEM;
		if (e->n_convs)
			memcpy(steps, e->convs, e->n_convs * sizeof(*steps));
		e->convs = steps;
	}
	step = &e->convs[e->n_convs++];
	step->def = d;
	c->pos += name.len;
	if (d->out == TYPE_SAME)
		e->out = d->in == TYPE_ANY ? e->out : d->in;
	else
		e->out = d->out;
	return compile_args(c, "converter", &d->doc, d->sig, d->kw, d->check, &step->args);
}

static void skip_blanks(struct compile *c)
{
	while (c->pos < c->text.len && (c->text.p[c->pos] == ' ' || c->text.p[c->pos] == '\t'))
		c->pos++;
}

int expr_compile_prefix(struct expr_env *env, struct str text, const struct fetch_def *fetch,
			struct expr **ret_expr, size_t *ret_used, size_t *ret_error_at,
			struct err *err)
{
	struct compile c = { .env = env, .text = text, .err = err };
	struct expr *e = arena_zalloc(env->arena, sizeof(*e));
	int r;

	*ret_error_at = 0;
	if (!e)
		return -ENOMEM;
	r = compile_fetch(&c, fetch, e);
	while (r == 0 && c.pos < text.len && text.p[c.pos] == ',') {
		c.pos++;
		skip_blanks(&c);
		r = compile_conv(&c, e);
	}
	*ret_error_at = c.error_at;
	if (r)
		return r;
	e->text = arena_str(env->arena, str_sub(text, 0, c.pos));
	if (!e->text.p)
		return -ENOMEM;
	*ret_expr = e;
	*ret_used = c.pos;
	return 0;
}

int expr_compile(struct expr_env *env, struct str text, struct expr **ret_expr,
		 size_t *ret_error_at, struct err *err)
{
	size_t used;
	int r = expr_compile_prefix(env, text, NULL, ret_expr, &used, ret_error_at, err);

	if (r)
		return r;
	if (used != text.len) {
		*ret_error_at = used;
		return err_set(err, -EINVAL, "unexpected '" STR_FMT "' behind the expression",
			       STR_ARG(str_sub(text, used, 40)));
	}
	return 0;
}

enum sample_type expr_type(const struct expr *e)
{
	return e->out == TYPE_ANY ? SAMPLE_STR : (enum sample_type)e->out;
}

struct str expr_text(const struct expr *e)
{
	return e->text;
}

/* --- evaluating --- */

int expr_run(struct eval *ev, const struct expr *e, struct sample *ret)
{
	int r = e->fetch->fn(ev, e->args, e->fetch->kw, ret);

	for (unsigned i = 0; r == 0 && i < e->n_convs; i++) {
		const struct conv_def *d = e->convs[i].def;

		if (d->in != TYPE_ANY && ret->type != d->in)
			r = sample_cast(ret, (enum sample_type)d->in, ev->arena);
		if (r == 0)
			r = d->fn(ev, e->convs[i].args, d->kw, ret);
	}
	return r == 0 || r == -EAGAIN || r == -ENOMEM ? r : -ENOENT;
}

int expr_eval(const struct expr *e, const struct subject *s, struct sample *ret)
{
	struct eval ev = { .s = s, .arena = s->arena };

	return expr_run(&ev, e, ret);
}

struct str expr_eval_str(const struct expr *e, const struct subject *s)
{
	struct sample v;

	if (expr_eval(e, s, &v) || sample_cast(&v, SAMPLE_STR, s->arena))
		return STR("");
	return v.str.p ? v.str : STR("");
}
