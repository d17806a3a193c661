/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names to objects (open addressing, grown by doubling in an arena: what is left behind is less than
 * what is in use), and the search for the name somebody meant. Read by any thread after loading.
 */
#include <errno.h>
#include <stdio.h>

#include "conf/conf_priv.h"

struct names_slot {
	struct str key; /* p NULL: free */
	uint64_t hash;
	void *value;
};

struct conf_names *names_new(struct arena *arena)
{
	struct conf_names *t = arena_zalloc(arena, sizeof(*t));

	if (t)
		t->arena = arena;
	return t;
}

static struct names_slot *names_slot(const struct conf_names *t, struct str key, uint64_t hash)
{
	unsigned i = (unsigned)hash & t->mask;

	while (t->slots[i].key.p && !(t->slots[i].hash == hash && str_is_eq(t->slots[i].key, key)))
		i = (i + 1) & t->mask;
	return &t->slots[i];
}

static int names_grow(struct conf_names *t)
{
	struct conf_names bigger = { .arena = t->arena, .mask = t->mask ? t->mask * 2 + 1 : 15 };

	bigger.slots = arena_zalloc(t->arena, (bigger.mask + 1ull) * sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (unsigned i = 0; t->slots && i <= t->mask; i++) {
		if (t->slots[i].key.p)
			*names_slot(&bigger, t->slots[i].key, t->slots[i].hash) = t->slots[i];
	}
	t->slots = bigger.slots;
	t->mask = bigger.mask;
	return 0;
}

int names_add(struct conf_names *t, struct str key, void *value)
{
	uint64_t hash = str_hash(key, 0);
	struct names_slot *s;

	if (!t->slots || t->n >= t->mask / 2) {
		int r = names_grow(t);

		if (r)
			return r;
	}
	s = names_slot(t, key, hash);
	if (s->key.p)
		return -EEXIST;
	*s = (struct names_slot){ .key = key, .hash = hash, .value = value };
	t->n++;
	return 0;
}

void *names_find(const struct conf_names *t, struct str key)
{
	if (!t || !t->slots || !key.p)
		return NULL;
	return names_slot(t, key, str_hash(key, 0))->value;
}

void nearest_init(struct nearest *n, struct str wanted)
{
	/* One slip per three letters is a misspelling, more is another word. */
	*n = (struct nearest){ .wanted = wanted,
			       .distance = wanted.len < 4 ? 2 : (unsigned)(wanted.len / 3) + 1 };
	if (n->distance > 5)
		n->distance = 5;
}

void nearest_offer(struct nearest *n, struct str candidate)
{
	size_t gap = candidate.len > n->wanted.len ? candidate.len - n->wanted.len
						   : n->wanted.len - candidate.len;
	unsigned d;

	if (gap >= n->distance || n->wanted.len > 64)
		return;
	d = str_distance(n->wanted, candidate);
	if (d < n->distance) {
		n->distance = d;
		n->best = candidate;
	}
}

void nearest_offer_names(struct nearest *n, const struct conf_names *t)
{
	for (unsigned i = 0; t && t->slots && i <= t->mask; i++) {
		if (t->slots[i].key.p)
			nearest_offer(n, t->slots[i].key);
	}
}

const char *nearest_hint(const struct nearest *n, char out[96])
{
	out[0] = '\0';
	if (n->best.p)
		snprintf(out, 96, ", did you mean '%.*s'?",
			 n->best.len > 64 ? 64 : (int)n->best.len, n->best.p);
	return out;
}
