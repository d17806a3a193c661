/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Variables. Names become numbers while compiling, in one process-wide list that only the control
 * thread touches and that is never freed (its size is bounded by the configurations loaded). A scope
 * is a short array: a stream sets few of them.
 */
#include "expr/expr_priv.h"

struct var {
	struct sample value;
	uint32_t id;
	uint32_t cap; /* bytes at value.str.p that are ours to write again */
	char *mem;
	bool is_set;
};

struct vars {
	uint32_t n, cap;
	struct var *v;
};

void vars_init(struct vars **v)
{
	*v = NULL;
}

static struct var *var_find(const struct vars *v, uint32_t id)
{
	for (uint32_t i = 0; v && i < v->n; i++) {
		if (v->v[i].id == id)
			return &v->v[i];
	}
	return NULL;
}

static struct var *var_add(struct vars **pv, struct arena *arena, uint32_t id)
{
	struct vars *v = *pv;

	if (!v) {
		v = arena_zalloc(arena, sizeof(*v));
		if (!v)
			return NULL;
		*pv = v;
	}
	if (v->n == v->cap) {
		uint32_t cap = v->cap ? v->cap * 2 : 4;
		struct var *a = arena_alloc(arena, cap * sizeof(*a));

		if (!a)
			return NULL;
		if (v->n)
			memcpy(a, v->v, v->n * sizeof(*a));
		v->v = a;
		v->cap = cap;
	}
	memset(&v->v[v->n], 0, sizeof(v->v[0]));
	v->v[v->n].id = id;
	return &v->v[v->n++];
}

/* Reuses the old value's memory: a session variable set by every request must not grow its arena. */
static int var_copy_text(struct var *var, struct arena *arena, struct str s)
{
	if (s.len > var->cap || !var->mem) {
		size_t cap = s.len < 16 ? 16 : s.len + s.len / 2;
		char *p = cap <= UINT32_MAX ? arena_alloc(arena, cap) : NULL;

		if (!p)
			return -ENOMEM;
		var->mem = p;
		var->cap = (uint32_t)cap;
	}
	if (s.len)
		memmove(var->mem, s.p, s.len);
	var->value.str = str_make(var->mem, s.len);
	return 0;
}

int vars_set(struct vars **v, struct arena *arena, uint32_t id, const struct sample *s)
{
	struct sample in = *s;
	struct var *var = var_find(*v, id);
	int r;

	if (!var)
		var = var_add(v, arena, id);
	if (!var)
		return -ENOMEM;
	if (in.type >= SAMPLE_STR) {
		r = var_copy_text(var, arena, in.str);
		if (r)
			return r;
	} else {
		var->value = in;
	}
	var->value.type = in.type;
	var->value.is_const = true;
	var->is_set = true;
	return 0;
}

const struct sample *vars_get(const struct vars *v, uint32_t id)
{
	const struct var *var = var_find(v, id);

	return var && var->is_set ? &var->value : NULL;
}

void vars_unset(struct vars *v, uint32_t id)
{
	struct var *var = var_find(v, id);

	if (var)
		var->is_set = false;
}

int subject_var_set(struct subject *s, enum var_scope scope, uint32_t id,
		    const struct sample *value)
{
	struct arena *arena = scope == VAR_SESS ? s->sess_arena : s->arena;

	if (scope == VAR_PROC)
		return vars_proc_set(id, value);
	if (!arena)
		return 0;
	return vars_set(&s->vars[scope], arena, id, value);
}

const struct sample *subject_var_get(const struct subject *s, enum var_scope scope, uint32_t id)
{
	struct sample *v;

	if (scope != VAR_PROC)
		return vars_get(s->vars[scope], id);
	v = arena_alloc(s->arena, sizeof(*v));
	return v && vars_proc_get(id, s->arena, v) == 0 ? v : NULL;
}

void subject_var_unset(struct subject *s, enum var_scope scope, uint32_t id)
{
	if (scope == VAR_PROC)
		vars_proc_unset(id);
	else
		vars_unset(s->vars[scope], id);
}

/* --- conditions --- */

enum var_cond {
	IF_EXISTS,
	IF_NOT_EXISTS,
	IF_EMPTY,
	IF_NOT_EMPTY,
	IF_SET,
	IF_NOT_SET,
	IF_GT,
	IF_LT,
	VAR_COND_COUNT
};
static const char *const cond_names[VAR_COND_COUNT] = {
	"ifexists", "ifnotexists", "ifempty", "ifnotempty", "ifset", "ifnotset", "ifgt", "iflt",
};

int var_cond_parse(struct str text, uint8_t *ret_conds, struct err *err)
{
	*ret_conds = 0;
	while (text.p) {
		struct str word = str_trim(str_cut(&text, ','));
		struct near near = { .want = word };
		char hint[96];
		unsigned i = 0;

		for (; i < VAR_COND_COUNT && !str_is_eq(word, str_from_cstr(cond_names[i])); i++)
			near_add(&near, str_from_cstr(cond_names[i]));
		if (i == VAR_COND_COUNT)
			return err_set(err, -EINVAL, "unknown condition '" STR_FMT "'%s",
				       STR_ARG(str_sub(word, 0, 60)),
				       near_text(&near, hint, sizeof(hint)));
		*ret_conds |= (uint8_t)(1u << i);
	}
	return 0;
}

static bool cond_holds(enum var_cond c, bool exists, const struct sample *old,
		       const struct sample *value)
{
	bool is_empty = !old || (old->type >= SAMPLE_STR && old->str.len == 0);
	bool are_numbers = old && old->type <= SAMPLE_SINT && value->type <= SAMPLE_SINT;

	switch (c) {
	case IF_EXISTS:
		return exists;
	case IF_NOT_EXISTS:
		return !exists;
	case IF_EMPTY:
		return is_empty;
	case IF_NOT_EMPTY:
		return !is_empty;
	case IF_SET:
		return old != NULL;
	case IF_NOT_SET:
		return !old;
	case IF_GT:
		return are_numbers && old->sint > value->sint;
	case IF_LT:
		return are_numbers && old->sint < value->sint;
	case VAR_COND_COUNT:
		break;
	}
	return false;
}

int subject_var_set_if(struct subject *s, enum var_scope scope, uint32_t id, uint8_t conds,
		       const struct sample *value)
{
	const struct sample *old = conds ? subject_var_get(s, scope, id) : NULL;
	bool exists = false;

	if (conds)
		exists = scope == VAR_PROC ? vars_proc_exists(id)
					   : var_find(s->vars[scope], id) != NULL;
	for (unsigned i = 0; i < VAR_COND_COUNT; i++) {
		if (conds & 1u << i && !cond_holds((enum var_cond)i, exists, old, value))
			return 0;
	}
	return subject_var_set(s, scope, id, value);
}

/* --- names --- */

static const struct str scope_names[VAR_SCOPE_COUNT] = {
	[VAR_PROC] = { "proc", 4 }, [VAR_SESS] = { "sess", 4 }, [VAR_TXN] = { "txn", 3 },
	[VAR_REQ] = { "req", 3 },   [VAR_RES] = { "res", 3 },	[VAR_CHECK] = { "check", 5 },
};

static struct {
	struct str *names;
	uint32_t n, cap;
	uint32_t *slots; /* hash table of index + 1 */
	uint32_t mask;
} interned;

static int interned_grow(void)
{
	uint32_t cap = interned.cap ? interned.cap * 2 : 32;
	struct str *names = mem_realloc(interned.names, cap * sizeof(*names));
	uint32_t *slots;

	if (!names)
		return -ENOMEM;
	interned.names = names;
	slots = mem_zalloc(cap * 2 * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	mem_free(interned.slots);
	interned.slots = slots;
	interned.mask = cap * 2 - 1;
	interned.cap = cap;
	for (uint32_t i = 0; i < interned.n; i++) {
		uint32_t at = (uint32_t)str_hash(names[i], 0) & interned.mask;

		while (slots[at])
			at = (at + 1) & interned.mask;
		slots[at] = i + 1;
	}
	return 0;
}

static int intern(struct str name, uint32_t *ret_id)
{
	uint32_t at;
	char *copy;

	if (interned.n == interned.cap && interned_grow())
		return -ENOMEM;
	at = (uint32_t)str_hash(name, 0) & interned.mask;
	while (interned.slots[at]) {
		*ret_id = interned.slots[at] - 1;
		if (str_is_eq(interned.names[*ret_id], name))
			return 0;
		at = (at + 1) & interned.mask;
	}
	copy = mem_strdup(name);
	if (!copy)
		return -ENOMEM;
	*ret_id = interned.n;
	interned.names[interned.n++] = str_make(copy, name.len);
	interned.slots[at] = *ret_id + 1;
	return 0;
}

static bool is_var_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '.';
}

int vars_intern(struct str name, enum var_scope *ret_scope, uint32_t *ret_id, struct err *err)
{
	size_t dot = str_find_char(name, '.');
	struct str scope = str_sub(name, 0, dot == SIZE_MAX ? name.len : dot);
	struct str rest = str_from(name, dot == SIZE_MAX ? name.len : dot + 1);
	unsigned i = 0;

	while (i < VAR_SCOPE_COUNT && !str_is_eq(scope_names[i], scope))
		i++;
	if (dot == SIZE_MAX || i == VAR_SCOPE_COUNT)
		return err_set(err, -EINVAL,
			       "'" STR_FMT
			       "' is not a variable: expected proc., sess., txn., req., "
			       "res. or check. and a name",
			       STR_ARG(str_sub(name, 0, 100)));
	if (rest.len == 0)
		return err_set(err, -EINVAL,
			       "'" STR_FMT "' lacks the variable's name behind the dot",
			       STR_ARG(str_sub(name, 0, 100)));
	for (size_t k = 0; k < rest.len; k++) {
		if (!is_var_char(rest.p[k]))
			return err_set(err, -EINVAL,
				       "'" STR_FMT "': a variable's name has letters, digits, '_' "
				       "and '.' only",
				       STR_ARG(str_sub(name, 0, 100)));
	}
	*ret_scope = (enum var_scope)i;
	if (intern(rest, ret_id))
		return err_set(err, -ENOMEM, "out of memory");
	return i == VAR_PROC ? vars_proc_make(*ret_id, err) : 0;
}
