/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `set-var` and `set-var-fmt` of the global section: values that variables of the process (proc.*) have when
 * the configuration takes effect. Compiled while parsing, evaluated by conf_set_proc_vars(). Control thread.
 */
#include <errno.h>

#include "conf/conf_priv.h"

static int no_table(struct expr_env *env, struct table_op *op, struct err *err)
{
	return err_set(err, -EINVAL, "stick tables have no value in the global section");
}

static struct str env_of_parser(struct expr_env *env, struct str name)
{
	return parser_getenv(env->owner, name);
}

static int compile_value(struct parser *ps, struct line *l, bool is_fmt, struct conf_proc_var *v)
{
	struct expr_env env = { .arena = &ps->conf->arena,
				.place = PLACE_INIT,
				.use_table = no_table,
				.getenv = env_of_parser,
				.owned = &ps->conf->expr_owned,
				.owner = ps };
	struct str text;
	struct err err;
	size_t at = 0;
	int r = line_want(ps, l, is_fmt ? "a format string" : "a sample expression such as int(1)",
			  &text);

	if (r)
		return r;
	r = is_fmt ? logfmt_compile(&env, text, &v->fmt, &at, &err)
		   : expr_compile(&env, text, &v->expr, &at, &err);
	if (r == 0 || r == -ENOMEM)
		return r;
	return conf_fail_off(ps, l, l->at - 1, at, "%s", err.text);
}

static int parse_set_var(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_proc_var *v = arena_zalloc(&ps->conf->arena, sizeof(*v));
	enum var_scope scope = VAR_PROC;
	struct str name;
	struct err err;
	int r;

	if (!v)
		return -ENOMEM;
	r = line_want(ps, l, "a variable such as proc.name", &name);
	if (r)
		return r;
	r = vars_intern(name, &scope, &v->id, &err);
	if (r == -ENOMEM)
		return r;
	if (r)
		return conf_fail(ps, l, l->at - 1, "%s", err.text);
	if (scope != VAR_PROC)
		return conf_fail(ps, l, l->at - 1,
				 "only variables of the process ('proc.…') can be set here");
	r = compile_value(ps, l, kw->min, v);
	if (r == 0)
		list_push_back(&ps->conf->global.proc_vars, &v->link);
	return r;
}

void conf_set_proc_vars(const struct conf *c, uint64_t wall_ns)
{
	struct arena arena;
	struct subject s = { .arena = &arena, .wall_ns = wall_ns, .start_wall_ns = wall_ns };
	struct list *p;

	arena_init(&arena, 4096);
	list_for_each(p, &c->global.proc_vars) {
		const struct conf_proc_var *v = list_entry(p, struct conf_proc_var, link);
		struct sample value = { .type = SAMPLE_STR };
		int r = 0;

		if (v->fmt)
			value.str = logfmt_eval_str(v->fmt, &s);
		else
			r = expr_eval(v->expr, &s, &value);
		if (r == 0 && (value.type < SAMPLE_STR || value.str.p))
			r = vars_proc_set(v->id, &value);
		if (r && r != -ENOENT)
			log_msg(LOG_LVL_WARNING,
				"a 'set-var' of the global section had no effect: %s",
				r == -EMSGSIZE ? "the value is too long" : "out of memory");
		arena_reset(&arena);
	}
	arena_free(&arena);
}

static const struct keyword rows[] = {
	{ NAME("set-var"), SEC_GLOBAL, ARG_FUNC, .parse = parse_set_var, .grade = '2',
	  .args = "<proc.name> <expression>",
	  .help = "value of a variable of the process when the configuration takes effect" },
	{ NAME("set-var-fmt"), SEC_GLOBAL, ARG_FUNC, .parse = parse_set_var, .min = 1, .grade = '2',
	  .args = "<proc.name> <format>", .help = "the same from a format string" },
};
const struct keyword_table conf_kw_vars = KEYWORDS("keyword", rows);
