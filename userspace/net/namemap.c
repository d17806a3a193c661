/* SPDX-License-Identifier: BSD-2-Clause */
/* Linear probing; see namemap.h. */
#include "net/namemap.h"

#define MIN_SLOTS 16

static struct namemap_slot *find(struct namemap_slot *slots, size_t cap, struct str key,
				 uint64_t hash)
{
	for (size_t i = hash & (cap - 1);; i = (i + 1) & (cap - 1)) {
		struct namemap_slot *s = &slots[i];

		if (!s->key || (s->hash == hash && str_is_eq(str_make(s->key, s->len), key)))
			return s;
	}
}

void *namemap_get(const struct namemap *m, struct str key)
{
	if (m->cap == 0)
		return NULL;
	return find(m->slots, m->cap, key, str_hash(key, 0))->value;
}

static int grow(struct namemap *m)
{
	size_t cap = m->cap ? m->cap * 2 : MIN_SLOTS;
	struct namemap_slot *slots = mem_zalloc(cap * sizeof(*slots));

	if (!slots)
		return -1;
	for (size_t i = 0; i < m->cap; i++) {
		struct namemap_slot *s = &m->slots[i];

		if (s->key)
			*find(slots, cap, str_make(s->key, s->len), s->hash) = *s;
	}
	mem_free(m->slots);
	m->slots = slots;
	m->cap = cap;
	return 0;
}

void **namemap_put(struct namemap *m, struct str key)
{
	uint64_t hash = str_hash(key, 0);
	struct namemap_slot *s;

	if ((m->n + 1) * 2 > m->cap && grow(m))
		return NULL;
	s = find(m->slots, m->cap, key, hash);
	if (!s->key) {
		s->key = mem_strdup(key);
		if (!s->key)
			return NULL;
		s->hash = hash;
		s->len = key.len;
		m->n++;
	}
	return &s->value;
}

void namemap_free(struct namemap *m, void (*drop)(void *value))
{
	for (size_t i = 0; i < m->cap; i++) {
		struct namemap_slot *s = &m->slots[i];

		if (s->key && s->value && drop)
			drop(s->value);
		mem_free(s->key);
	}
	mem_free(m->slots);
	*m = (struct namemap){ 0 };
}
