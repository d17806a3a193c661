/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The entries of pattern files and maps: reading them once per configuration, and what the runtime API
 * does to them. Versions let a list be replaced as a whole: entries of a version that was prepared are kept
 * aside until it is committed. Control thread.
 */
#include "expr/pat_priv.h"

/* --- making them --- */

struct pat_refs *pat_refs_new(struct arena *arena)
{
	struct pat_refs *r = arena_zalloc(arena, sizeof(*r));

	if (!r)
		return NULL;
	r->arena = arena;
	list_init(&r->refs);
	return r;
}

void pat_elem_free(struct pat_elem *e)
{
	if (!e->is_own)
		return;
	mem_free((char *)(uintptr_t)e->key.p);
	mem_free((char *)(uintptr_t)e->value.p);
	mem_free(e);
}

static void free_elems(struct list *elems)
{
	struct list *l;

	while ((l = list_pop_front(elems)))
		pat_elem_free(list_entry(l, struct pat_elem, link));
}

void pat_refs_free(struct pat_refs *refs)
{
	struct list *p, *q;

	if (!refs)
		return;
	list_for_each(p, &refs->refs) {
		struct pat_ref *r = list_entry(p, struct pat_ref, link);

		list_for_each(q, &r->users)
			pat_user_free(list_entry(q, struct pat_user, link));
		free_elems(&r->elems);
		free_elems(&r->dead);
		mem_free(r->buckets);
	}
}

static bool is_id_taken(const struct pat_refs *refs, unsigned id)
{
	struct list *p;

	/* By number, and most asked for are higher than all. */
	for (p = refs->refs.prev; p != &refs->refs; p = p->prev) {
		unsigned other = list_entry(p, struct pat_ref, link)->id;

		if (other <= id)
			return other == id;
	}
	return false;
}

/* Numbers for those without `-u`, in the order of the file, and the whole list by number. */
void pat_refs_number(struct pat_refs *refs)
{
	struct list todo, *p, *l;
	unsigned next = 0;

	list_init(&todo);
	list_splice_back(&todo, &refs->refs);
	/* Given ones first, so that the others keep clear of them. */
	for (unsigned pass = 0; pass < 2; pass++) {
		struct list rest;

		list_init(&rest);
		while ((l = list_pop_front(&todo))) {
			struct pat_ref *r = list_entry(l, struct pat_ref, link);

			if (pass == 0 && r->id == PAT_NO_ID) {
				list_push_back(&rest, l);
				continue;
			}
			while (pass && is_id_taken(refs, next))
				next++;
			if (pass)
				r->id = next++;
			for (p = refs->refs.prev; p != &refs->refs; p = p->prev) {
				if (list_entry(p, struct pat_ref, link)->id < r->id)
					break;
			}
			list_insert_between(l, p, p->next);
		}
		list_splice_back(&todo, &rest);
	}
}

static struct pat_ref *ref_new(struct pat_refs *refs, struct str name, unsigned id)
{
	struct pat_ref *r = arena_zalloc(refs->arena, sizeof(*r));

	if (!r)
		return NULL;
	r->name = arena_str(refs->arena, name);
	if (!r->name.p)
		return NULL;
	r->about = STR("");
	list_init(&r->elems);
	list_init(&r->users);
	list_init(&r->dead);
	r->id = id;
	list_push_back(&refs->refs, &r->link);
	return r;
}

static int add_entries(struct pat_refs *refs, struct pat_ref *ref, const struct pat_entry *entries,
		       const struct str *values, unsigned n)
{
	struct pat_elem *e = arena_zalloc(refs->arena, (n + 1) * sizeof(*e));

	if (!e)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		e[i].key = entries[i].text;
		e[i].value = values ? values[i] : STR_NULL;
		e[i].line = entries[i].line;
		e[i].op = entries[i].op;
		e[i].index = ref->n++;
		list_push_back(&ref->elems, &e[i].link);
	}
	ref->n_base = ref->n_curr = ref->n;
	return 0;
}

static struct pat_ref *find_file(struct pat_refs *refs, struct str name)
{
	struct list *p;

	list_for_each(p, &refs->refs) {
		struct pat_ref *r = list_entry(p, struct pat_ref, link);

		if (r->name.len && str_is_eq(r->name, name))
			return r;
	}
	return NULL;
}

/* Without a registry (tests, tools) every user gets a list of its own. */
static struct pat_refs *refs_of(struct expr_env *env)
{
	return env->refs ? env->refs : pat_refs_new(env->arena);
}

static int ref_of_file(struct expr_env *env, const struct pat_source *src, struct pat_ref **ret,
		       struct err *err)
{
	struct pat_refs *refs = refs_of(env);
	struct pat_ref *ref = refs ? find_file(refs, src->file) : NULL;
	struct pat_file f;
	int r;

	if (!refs)
		return -ENOMEM;
	if (ref && ref->is_map != src->is_map)
		return err_set(err, -EINVAL,
			       STR_FMT " is read as a map here and without values elsewhere",
			       STR_ARG(str_sub(src->file, 0, 200)));
	*ret = ref;
	if (ref)
		return 0;
	r = pat_file_read(env, src->file, src->is_map, &f, err);
	if (r)
		return r;
	*ret = ref = ref_new(refs, src->file, src->id);
	if (!ref)
		return -ENOMEM;
	ref->is_map = src->is_map;
	return add_entries(refs, ref, f.entries, f.values, f.n);
}

static int ref_of_words(struct expr_env *env, const struct pat_source *src, struct pat_ref **ret)
{
	struct pat_refs *refs = refs_of(env);

	*ret = refs ? ref_new(refs, STR(""), src->id) : NULL;
	return *ret ? add_entries(refs, *ret, src->entries, NULL, src->n) : -ENOMEM;
}

/* For `show map`: who uses it and where. */
static int note_user(struct expr_env *env, struct pat_ref *ref, const struct pat_source *src)
{
	const char *what = src->is_acl ? "acl" : "map", *file = env->file ? env->file : "";

	if (ref->name.len)
		ref->about = arena_printf(env->arena, STR_FMT "%s by %s at file '%s' line %u",
					  STR_ARG(ref->about), ref->about.len ? "," : " used", what,
					  file, env->line);
	else
		ref->about = arena_printf(env->arena, "acl '%s' file '%s' line %u", src->fetch,
					  file, env->line);
	ref->is_acl |= src->is_acl;
	return ref->about.p ? 0 : -ENOMEM;
}

static int bad_elem(struct expr_env *env, const struct pat_ref *ref, const struct pat_elem *e,
		    int r, unsigned *ret_bad, struct err *err)
{
	if (r != -EINVAL || !e)
		return r;
	if (e->line)
		return err_prefix(err, r, STR_FMT ":%u", STR_ARG(ref->name), e->line);
	if (ret_bad)
		*ret_bad = e->index;
	return r;
}

int pat_user_new(struct expr_env *env, const struct pat_source *src, enum match match, bool icase,
		 enum pat_out out, struct pat_user **ret, unsigned *ret_bad, struct err *err)
{
	struct pat_user *u = arena_zalloc(env->arena, sizeof(*u));
	struct pat_elem *bad = NULL;
	struct list *p;
	int r;

	if (!u)
		return -ENOMEM;
	r = src->file.p ? ref_of_file(env, src, &u->ref, err) : ref_of_words(env, src, &u->ref);
	if (r == 0)
		r = note_user(env, u->ref, src);
	if (r)
		return r;
	u->match = (uint8_t)match;
	u->icase = icase;
	u->out = (uint8_t)out;
	list_for_each(p, &u->ref->elems) {
		struct pat_elem *e = list_entry(p, struct pat_elem, link);

		if (out != PAT_OUT_STR && !pat_value_is_ok(out, e->value, err))
			return bad_elem(env, u->ref, e, -EINVAL, ret_bad, err);
	}
	list_push_back(&u->ref->users, &u->link);
	r = pat_user_build(env, u, &bad, err);
	if (r)
		list_del(&u->link);
	*ret = u;
	return bad_elem(env, u->ref, bad, r, ret_bad, err);
}

/* --- finding entries by key --- */

static unsigned bucket_of(const struct pat_ref *ref, struct str key)
{
	return (unsigned)str_hash(key, 0) & (ref->n_buckets - 1);
}

static void bucket_push(struct pat_ref *ref, struct pat_elem *e)
{
	struct pat_elem **at = &ref->buckets[bucket_of(ref, e->key)];

	e->hash_next = *at;
	*at = e;
}

static void bucket_remove(struct pat_ref *ref, struct pat_elem *e)
{
	struct pat_elem **at = &ref->buckets[bucket_of(ref, e->key)];

	while (*at != e)
		at = &(*at)->hash_next;
	*at = e->hash_next;
}

static int index_keys(struct pat_ref *ref)
{
	unsigned n = 64;
	struct pat_elem **b;
	struct list *p;

	if (ref->buckets && ref->n <= ref->n_buckets * 2)
		return 0;
	while (n < ref->n)
		n *= 2;
	b = mem_zalloc(n * sizeof(struct pat_elem *));
	if (!b)
		return -ENOMEM;
	mem_free(ref->buckets);
	ref->buckets = b;
	ref->n_buckets = n;
	list_for_each(p, &ref->elems)
		bucket_push(ref, list_entry(p, struct pat_elem, link));
	return 0;
}

/* "#0x55…" names one entry, as `show` prints it; else all with this key. */
static bool is_meant(const struct pat_ref *ref, const struct pat_elem *e, struct str key)
{
	char text[32];
	int n;

	if (e->gen != ref->curr)
		return false;
	if (str_is_eq(e->key, key))
		return true;
	if (!str_is_prefix(key, STR("#0x")))
		return false;
	n = snprintf(text, sizeof(text), "#%p", (const void *)e);
	return str_is_eq(key, str_make(text, (size_t)n));
}

static struct pat_elem *find_from(struct pat_ref *ref, struct pat_elem *prev, struct str key)
{
	struct pat_elem *e;
	struct list *p;

	if (!str_is_prefix(key, STR("#0x"))) {
		e = prev ? prev->hash_next : ref->buckets[bucket_of(ref, key)];
		while (e && !is_meant(ref, e, key))
			e = e->hash_next;
		return e;
	}
	for (p = prev ? prev->link.next : ref->elems.next; p != &ref->elems; p = p->next) {
		e = list_entry(p, struct pat_elem, link);
		if (is_meant(ref, e, key))
			return e;
	}
	return NULL;
}

/* --- changes --- */

static struct pat_elem *elem_new(struct str key, struct str value, uint32_t gen)
{
	struct pat_elem *e = mem_zalloc(sizeof(*e));

	if (!e)
		return NULL;
	*e = (struct pat_elem){ .gen = gen, .index = NOT_IN_BASE, .op = OP_EQ, .is_own = true };
	e->key = str_make(mem_strdup(key), key.len);
	e->value = value.p ? str_make(mem_strdup(value), value.len) : STR_NULL;
	if (e->key.p && (!value.p || e->value.p))
		return e;
	pat_elem_free(e);
	return NULL;
}

/* Out of the list; the memory stays until no view can refer to it. */
static void elem_bury(struct pat_ref *ref, struct pat_elem *e)
{
	bucket_remove(ref, e);
	list_del(&e->link);
	list_push_back(&ref->dead, &e->link);
	ref->n--;
	ref->n_dead++;
	if (e->gen != ref->curr)
		return;
	ref->n_curr--;
	if (e->index == NOT_IN_BASE) {
		ref->wants_delta = true;
		return;
	}
	ref->n_base--;
}

/*
 * Equal texts can be masked. Elsewhere another entry might match in place of the one that goes: a shorter
 * prefix, a wider network, the same text in other letters.
 */
static bool mask_in_base(struct pat_ref *ref, uint32_t index, struct pat_elem *by)
{
	struct list *p;

	list_for_each(p, &ref->users) {
		struct pat_user *u = list_entry(p, struct pat_user, link);

		if (by == &pat_gone && (u->match != MATCH_STR || u->icase))
			return false;
		if (pat_user_replace(u, index, by))
			return false;
	}
	return true;
}

int pat_ref_add(struct pat_ref *ref, uint32_t gen, struct str key, struct str value,
		struct err *err)
{
	struct pat_elem *e;
	int r = index_keys(ref);

	if (r == 0 && gen - ref->curr > ref->next - ref->curr)
		return err_set(err, -EINVAL, "Version number out of range.");
	e = r ? NULL : elem_new(key, ref->is_map ? value : STR_NULL, gen);
	if (!e)
		return err_set(err, -ENOMEM, "Out of memory.");
	r = pat_elem_check(ref, e, err);
	if (r) {
		pat_elem_free(e);
		return r;
	}
	list_push_back(&ref->elems, &e->link);
	bucket_push(ref, e);
	ref->n++;
	if (gen == ref->curr) {
		ref->n_curr++;
		ref->wants_delta = true;
	}
	return 0;
}

bool pat_ref_has(struct pat_ref *ref, struct str key)
{
	return index_keys(ref) == 0 && find_from(ref, NULL, key);
}

int pat_ref_del(struct pat_ref *ref, struct str key)
{
	struct pat_elem *e, *next;
	int r = index_keys(ref), n = 0;

	if (r)
		return r;
	/* Of several with one key the others would be masked too. */
	ref->wants_base |= str_is_prefix(key, STR("#0x"));
	for (e = find_from(ref, NULL, key); e; e = next, n++) {
		next = find_from(ref, e, key);
		if (e->index != NOT_IN_BASE && !mask_in_base(ref, e->index, &pat_gone))
			ref->wants_base = true;
		elem_bury(ref, e);
	}
	return n;
}

int pat_ref_set(struct pat_ref *ref, struct str key, struct str value, struct err *err)
{
	struct pat_elem *e, *next, *to;
	int r = index_keys(ref), n = 0;

	if (r)
		return r;
	for (e = find_from(ref, NULL, key); e; e = next, n++) {
		next = find_from(ref, e, key);
		to = elem_new(e->key, value, e->gen);
		if (!to)
			return -ENOMEM;
		r = pat_elem_check(ref, to, err);
		if (r) {
			pat_elem_free(to);
			return r;
		}
		to->op = e->op;
		to->line = e->line;
		to->index = e->index;
		list_insert_between(&to->link, e->link.prev, &e->link);
		if (e->index != NOT_IN_BASE && !mask_in_base(ref, e->index, to))
			ref->wants_base = true;
		elem_bury(ref, e);
		bucket_push(ref, to);
		ref->n++;
		ref->n_curr++;
		if (to->index != NOT_IN_BASE)
			ref->n_base++;
	}
	return n;
}

void pat_ref_clear(struct pat_ref *ref, uint32_t gen)
{
	struct list *p, *tmp;

	if (index_keys(ref))
		return;
	list_for_each_safe(p, tmp, &ref->elems) {
		struct pat_elem *e = list_entry(p, struct pat_elem, link);

		if (e->gen == gen)
			elem_bury(ref, e);
	}
	ref->wants_base |= gen == ref->curr;
}

uint32_t pat_ref_prepare(struct pat_ref *ref)
{
	return ++ref->next;
}

int pat_ref_commit(struct pat_ref *ref, uint32_t gen, struct err *err)
{
	struct list *p, *tmp;
	uint32_t old = ref->curr;

	if (gen - ref->curr > ref->next - ref->curr)
		return err_set(err, -EINVAL, "Version number out of range.");
	if (index_keys(ref))
		return err_set(err, -ENOMEM, "Out of memory.");
	list_for_each_safe(p, tmp, &ref->elems) {
		struct pat_elem *e = list_entry(p, struct pat_elem, link);

		if (e->gen - old < gen - old)
			elem_bury(ref, e);
	}
	ref->curr = gen;
	ref->n_curr = ref->n_base = 0;
	list_for_each(p, &ref->elems)
		ref->n_curr += list_entry(p, struct pat_elem, link)->gen == gen;
	ref->wants_base = true;
	return 0;
}

/* --- looking --- */

struct pat_ref *pat_ref_next(const struct pat_refs *refs, const struct pat_ref *prev)
{
	struct list *p;

	if (!refs)
		return NULL;
	p = prev ? prev->link.next : refs->refs.next;
	return p == &refs->refs ? NULL : list_entry(p, struct pat_ref, link);
}

struct pat_ref *pat_ref_find(const struct pat_refs *refs, struct str name, bool is_map)
{
	struct pat_ref *r = NULL;
	uint64_t id = UINT64_MAX;

	if (str_is_prefix(name, STR("#")) && str_to_u64(str_from(name, 1), &id))
		return NULL;
	while ((r = pat_ref_next(refs, r))) {
		bool is_it = id != UINT64_MAX ? r->id == id
					      : r->name.len && str_is_eq(r->name, name);

		if (is_it && (is_map ? r->is_map : r->is_acl))
			return r;
	}
	return NULL;
}

struct pat_ref_info pat_ref_info(const struct pat_ref *ref)
{
	return (struct pat_ref_info){ .name = ref->name,
				      .about = ref->about,
				      .id = ref->id,
				      .n = ref->n,
				      .curr = ref->curr,
				      .next = ref->next,
				      .is_map = ref->is_map,
				      .is_acl = ref->is_acl };
}

void pat_ref_each(const struct pat_ref *ref, uint32_t gen, pat_entry_fn *fn, void *ctx)
{
	struct list *p;

	list_for_each(p, &ref->elems) {
		const struct pat_elem *e = list_entry(p, struct pat_elem, link);

		if (e->gen == gen)
			fn(ctx, e, e->key, e->value);
	}
}

void pat_ref_lookup(const struct pat_ref *ref, struct str key, pat_lookup_fn *fn, void *ctx)
{
	struct subject s = { .ops = NULL };
	struct arena arena;
	struct list *p;

	arena_init(&arena, 4096);
	s.arena = &arena;
	list_for_each(p, &ref->users) {
		const struct pat_user *u = list_entry(p, struct pat_user, link);
		struct eval ev = { .s = &s, .arena = &arena };
		struct sample smp = { .type = SAMPLE_STR, .is_const = true, .str = key };
		const struct pat_elem *e = NULL;
		struct pat_lookup found = { .match = match_name((enum match)u->match),
					    .is_tree = u->match != MATCH_REG &&
						       u->match != MATCH_REGM,
					    .icase = u->icase };

		if (pat_user_find(u, &ev, &smp, &e) == 0) {
			found.is_found = true;
			found.key = e->key;
			found.value = e->value;
		}
		fn(ctx, &found);
	}
	arena_free(&arena);
}
