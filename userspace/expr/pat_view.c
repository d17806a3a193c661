/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What workers see of a list of patterns: building it, swapping it, looking up. Lookups take no lock and
 * write nothing; everything else is the control thread's.
 */
#include "expr/pat_priv.h"

struct pat_elem pat_gone;
static struct pat_elem
	pat_anonymous; /* matched, but no entry did: "found", "bool" without values */

/* --- layers --- */

static void layer_free(struct pat_layer *l)
{
	if (!l)
		return;
	mem_free(atomic_load_explicit(&l->over, memory_order_relaxed));
	atomic_store_explicit(&l->over, NULL, memory_order_relaxed);
	if (!l->is_own)
		return;
	expr_owned_free(&l->owned);
	arena_free(&l->own);
	mem_free(l);
}

static bool is_seen(const struct pat_ref *ref, const struct pat_elem *e)
{
	return e->gen == ref->curr;
}

/* Entries of the current version, all of them or those that are not in the base. */
static int layer_fill(struct arena *arena, const struct pat_ref *ref, bool is_delta,
		      struct pat_layer *l, struct pat_entry **ret_entries)
{
	unsigned n = is_delta ? ref->n_curr - ref->n_base : ref->n_curr;
	struct pat_entry *e = mem_alloc((n + 1) * sizeof(*e));
	struct list *p;

	l->elems = arena_alloc(arena, (n + 1) * sizeof(struct pat_elem *));
	*ret_entries = e;
	if (!e || !l->elems)
		return -ENOMEM;
	list_for_each(p, &ref->elems) {
		struct pat_elem *el = list_entry(p, struct pat_elem, link);

		if (!is_seen(ref, el) || (is_delta && el->index != NOT_IN_BASE))
			continue;
		BUG_ON(l->n >= n);
		e[l->n] = (struct pat_entry){ .text = el->key, .op = el->op, .line = el->line };
		l->elems[l->n++] = el;
	}
	return 0;
}

static int layer_build(struct expr_env *env, const struct pat_user *u, bool is_delta,
		       struct pat_layer *l, struct pat_elem **ret_bad, struct err *err)
{
	struct pat_entry *entries;
	unsigned bad = 0;
	int r = layer_fill(env->arena, u->ref, is_delta, l, &entries);

	if (r == 0)
		r = patset_build(env, (enum match)u->match, u->icase, entries, l->n, &l->set, &bad,
				 err);
	if (r && ret_bad)
		*ret_bad = l->elems && bad < l->n ? l->elems[bad] : NULL;
	mem_free(entries);
	return r;
}

/* A layer with memory of its own. */
static int layer_new(const struct pat_user *u, bool is_delta, struct pat_layer **ret,
		     struct err *err)
{
	struct pat_layer *l = mem_zalloc(sizeof(*l));
	struct expr_env env;
	int r;

	if (!l)
		return -ENOMEM;
	l->is_own = true;
	arena_init(&l->own, is_delta ? 4096 : 65536);
	env = (struct expr_env){ .arena = &l->own, .owned = &l->owned };
	r = layer_build(&env, u, is_delta, l, NULL, err);
	if (r)
		layer_free(l);
	else
		*ret = l;
	return r;
}

int pat_user_build(struct expr_env *env, struct pat_user *u, struct pat_elem **ret_bad,
		   struct err *err)
{
	struct pat_view *v = arena_zalloc(env->arena, sizeof(*v));
	struct pat_layer *l = arena_zalloc(env->arena, sizeof(*l));
	int r = v && l ? layer_build(env, u, false, l, ret_bad, err) : -ENOMEM;

	if (r)
		return r;
	v->base = l;
	atomic_store_explicit(&u->view, v, memory_order_release);
	return 0;
}

static void view_free(struct pat_view *v)
{
	if (v && v->is_own)
		mem_free(v);
}

void pat_user_free(struct pat_user *u)
{
	struct pat_view *v = atomic_load_explicit(&u->view, memory_order_relaxed);

	if (!v)
		return;
	layer_free(v->base);
	layer_free(v->delta);
	view_free(v);
	atomic_store_explicit(&u->view, NULL, memory_order_relaxed);
}

int pat_elem_check(const struct pat_ref *ref, const struct pat_elem *e, struct err *err)
{
	struct pat_entry entry = { .text = e->key, .op = e->op };
	struct expr_owned *owned = NULL;
	struct arena arena;
	struct list *p;
	int r = 0;

	arena_init(&arena, 4096);
	list_for_each(p, &ref->users) {
		const struct pat_user *u = list_entry(p, struct pat_user, link);
		struct expr_env env = { .arena = &arena, .owned = &owned };
		struct patset *set;
		unsigned bad;

		if (r == 0)
			r = patset_build(&env, (enum match)u->match, u->icase, &entry, 1, &set,
					 &bad, err);
		if (r == 0 && ref->is_map && !pat_value_is_ok((enum pat_out)u->out, e->value, err))
			r = -EINVAL;
	}
	expr_owned_free(&owned);
	arena_free(&arena);
	return r;
}

/* --- changing --- */

int pat_user_replace(struct pat_user *u, uint32_t index, struct pat_elem *e)
{
	struct pat_layer *l = atomic_load_explicit(&u->view, memory_order_relaxed)->base;
	pat_slot *over = atomic_load_explicit(&l->over, memory_order_relaxed);

	if (!over) {
		over = mem_zalloc(l->n * sizeof(*over));
		if (!over)
			return -ENOMEM;
		atomic_store_explicit(&l->over, over, memory_order_release);
	}
	atomic_store_explicit(&over[index], e, memory_order_release);
	return 0;
}

/* What a publish leaves behind; freed when no worker can be in it. */
struct garbage {
	struct list dead; /* pat_elem */
	unsigned n;
	struct old_view {
		struct pat_view *view;
		bool with_base, with_delta;
	} old[];
};

static void garbage_free(void *arg)
{
	struct garbage *g = arg;
	struct list *l;

	for (unsigned i = 0; i < g->n; i++) {
		if (!g->old[i].view)
			continue;
		if (g->old[i].with_base)
			layer_free(g->old[i].view->base);
		if (g->old[i].with_delta)
			layer_free(g->old[i].view->delta);
		view_free(g->old[i].view);
	}
	while ((l = list_pop_front(&g->dead)))
		pat_elem_free(list_entry(l, struct pat_elem, link));
	mem_free(g);
}

static int view_new(const struct pat_user *u, bool with_base, struct pat_view **ret,
		    struct err *err)
{
	const struct pat_view *old = atomic_load_explicit(&u->view, memory_order_relaxed);
	struct pat_view *v = mem_zalloc(sizeof(*v));
	int r = 0;

	if (!v)
		return -ENOMEM;
	v->is_own = true;
	if (with_base)
		r = layer_new(u, false, &v->base, err);
	else
		v->base = old->base;
	if (r == 0 && !with_base && u->ref->n_curr > u->ref->n_base)
		r = layer_new(u, true, &v->delta, err);
	if (r)
		mem_free(v);
	else
		*ret = v;
	return r;
}

static void swap_views(struct pat_ref *ref, struct pat_view **views, bool with_base,
		       struct garbage *g)
{
	struct list *p;

	list_for_each(p, &ref->users) {
		struct pat_user *u = list_entry(p, struct pat_user, link);
		struct pat_view *old = atomic_exchange_explicit(&u->view, *views++,
								memory_order_acq_rel);

		g->old[g->n++] = (struct old_view){ old, with_base, true };
	}
	ref->wants_delta = ref->wants_base = false;
	if (!with_base)
		return;
	ref->n_base = 0;
	list_for_each(p, &ref->elems) {
		struct pat_elem *e = list_entry(p, struct pat_elem, link);

		e->index = is_seen(ref, e) ? ref->n_base++ : NOT_IN_BASE;
	}
	/* Only a base refers to entries that are gone. */
	list_splice_back(&g->dead, &ref->dead);
	ref->n_dead = 0;
}

/* A delta is worth its while as long as building it is much cheaper than building the base. */
static bool is_worth_base(const struct pat_ref *ref)
{
	unsigned limit = 1024 + ref->n_curr / 64;

	return ref->wants_base || ref->n_curr - ref->n_base > limit || ref->n_dead > limit;
}

int pat_ref_publish(struct pat_ref *ref, const struct pat_defer *d, struct err *err)
{
	bool with_base = is_worth_base(ref);
	struct pat_view **views;
	struct garbage *g;
	unsigned n = 0, i = 0;
	struct list *p;
	int r = 0;

	if (!ref->wants_base && !ref->wants_delta && !with_base)
		return 0;
	list_for_each(p, &ref->users)
		n++;
	views = mem_zalloc((n + 1) * sizeof(struct pat_view *));
	g = mem_zalloc(sizeof(*g) + n * sizeof(g->old[0]));
	if (g)
		list_init(&g->dead);
	if (!g || !views)
		r = -ENOMEM;
	list_for_each(p, &ref->users) {
		if (r == 0)
			r = view_new(list_entry(p, struct pat_user, link), with_base, &views[i++],
				     err);
	}
	if (r == 0) {
		swap_views(ref, views, with_base, g);
		d->later(d->ctx, garbage_free, g);
	} else {
		for (i = 0; views && i < n; i++) {
			if (views[i] && with_base)
				layer_free(views[i]->base);
			if (views[i])
				layer_free(views[i]->delta);
			mem_free(views[i]);
		}
		mem_free(g);
	}
	mem_free(views);
	return r;
}

/* --- lookup (any thread) --- */

static const struct pat_elem *layer_find(const struct pat_layer *l, struct eval *ev,
					 struct sample *smp, int *ret_index)
{
	int i = patset_find(l->set, ev, smp);
	const struct pat_elem *e;
	pat_slot *over;

	*ret_index = i;
	if (i < 0)
		return NULL;
	if ((unsigned)i >= l->n)
		return &pat_anonymous;
	over = atomic_load_explicit(&l->over, memory_order_acquire);
	e = over ? atomic_load_explicit(&over[i], memory_order_acquire) : NULL;
	if (!e)
		return l->elems[i];
	if (e == &pat_gone)
		*ret_index = -ENOENT;
	return e == &pat_gone ? NULL : e;
}

/* Which of two that match: for prefixes the longer one, else the one that was there first. */
static bool is_delta_better(const struct pat_user *u, const struct pat_view *v, int base, int delta)
{
	if (u->match == MATCH_BEG || u->match == MATCH_IP)
		return patset_weight(v->delta->set, v->delta->elems[delta]->key) >
		       patset_weight(v->base->set, v->base->elems[base]->key);
	return false;
}

int pat_user_find(const struct pat_user *u, struct eval *ev, struct sample *smp,
		  const struct pat_elem **ret)
{
	const struct pat_view *v = atomic_load_explicit(&u->view, memory_order_acquire);
	const struct pat_elem *base = NULL, *delta;
	const struct regex *matched;
	struct sample copy;
	int b = -ENOENT, d;

	if (!v->delta) {
		*ret = layer_find(v->base, ev, smp, &b);
		return *ret ? 0 : b;
	}
	copy = *smp; /* a lookup casts what it is given */
	if (v->base->n)
		base = layer_find(v->base, ev, &copy, &b);
	if (b == -ENOMEM)
		return b;
	matched = ev->matched;
	delta = layer_find(v->delta, ev, smp, &d);
	if (d == -ENOMEM)
		return d;
	*ret = delta;
	if (base && !(delta && is_delta_better(u, v, b, d))) {
		*ret = base;
		ev->matched = matched;
	}
	return *ret ? 0 : -ENOENT;
}
