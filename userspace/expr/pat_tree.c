/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sets of texts: a hash table for equality, and a sorted array with links for prefixes. If Q is a
 * prefix of s, and P the greatest key <= s, then Q is P or one of the keys that are prefixes of P;
 * so one binary search and a walk along "longest key that is a prefix of me" finds all of them.
 * Substrings and words are prefixes at some position. Built once, in the snapshot's arena.
 */
#include "expr/expr_priv.h"

#include <stdlib.h>

struct pat_hash {
	const struct str *keys;
	uint32_t mask;
	uint32_t *slots; /* index + 1 */
};

int pat_hash_build(struct arena *arena, const struct str *keys, unsigned n, struct pat_hash **ret)
{
	struct pat_hash *h = arena_zalloc(arena, sizeof(*h));
	uint32_t size = 4;

	while (size < n + n / 2 + 1)
		size *= 2;
	if (!h)
		return -ENOMEM;
	h->keys = keys;
	h->mask = size - 1;
	h->slots = arena_zalloc(arena, size * sizeof(*h->slots));
	if (!h->slots)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		uint32_t at = (uint32_t)str_hash(keys[i], 0) & h->mask;

		while (h->slots[at] && !str_is_eq(keys[h->slots[at] - 1], keys[i]))
			at = (at + 1) & h->mask;
		if (!h->slots[at]) /* of equal keys the first counts */
			h->slots[at] = i + 1;
	}
	*ret = h;
	return 0;
}

int pat_hash_find(const struct pat_hash *h, struct str key)
{
	uint32_t at = (uint32_t)str_hash(key, 0) & h->mask;

	for (; h->slots[at]; at = (at + 1) & h->mask) {
		if (str_is_eq(h->keys[h->slots[at] - 1], key))
			return (int)(h->slots[at] - 1);
	}
	return -ENOENT;
}

/* --- prefixes --- */

struct tree_key {
	struct str text;
	int32_t index; /* as given */
	int32_t first; /* lowest index among this key and its prefixes */
	int32_t parent; /* longest other key that is a prefix; -1: none */
};

struct pat_tree {
	unsigned n;
	struct tree_key *keys;
	bool has_empty;
	uint64_t
		pairs[1024]; /* bit per first two bytes of a key: most positions are refused here */
};

static int cmp_key(const void *a, const void *b)
{
	const struct tree_key *x = a, *y = b;
	int r = str_cmp(x->text, y->text);

	return r ? r : x->index - y->index;
}

static void mark_pairs(struct pat_tree *t, struct str key)
{
	unsigned hi, lo = 0, end = 255;

	if (key.len == 0) {
		t->has_empty = true;
		return;
	}
	hi = (uint8_t)key.p[0];
	if (key.len > 1)
		lo = end = (uint8_t)key.p[1];
	for (; lo <= end; lo++)
		t->pairs[(hi << 8 | lo) >> 6] |= 1ull << (lo & 63);
}

int pat_tree_build(struct arena *arena, const struct str *keys, unsigned n, struct pat_tree **ret)
{
	struct pat_tree *t = arena_zalloc(arena, sizeof(*t));
	struct tree_key *k;
	unsigned m = 0;

	if (!t)
		return -ENOMEM;
	t->keys = k = arena_alloc(arena, (n + 1) * sizeof(*k));
	if (!k)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		k[i] = (struct tree_key){ .text = keys[i], .index = (int32_t)i };
	qsort(k, n, sizeof(*k), cmp_key);
	for (unsigned i = 0; i < n; i++) {
		int32_t parent = (int32_t)m - 1;

		if (m && str_is_eq(k[m - 1].text, k[i].text))
			continue;
		while (parent >= 0 && !str_is_prefix(k[i].text, k[parent].text))
			parent = k[parent].parent;
		k[m] = k[i];
		k[m].parent = parent;
		k[m].first = k[m].index;
		if (parent >= 0 && k[parent].first < k[m].first)
			k[m].first = k[parent].first;
		mark_pairs(t, k[m].text);
		m++;
	}
	t->n = m;
	*ret = t;
	return 0;
}

static size_t common_len(struct str a, struct str b)
{
	size_t n = a.len < b.len ? a.len : b.len, i = 0;

	while (i < n && a.p[i] == b.p[i])
		i++;
	return i;
}

/* The longest key that is a prefix of s, or -1. */
static int32_t tree_find(const struct pat_tree *t, struct str s)
{
	unsigned lo = 0, hi = t->n;
	size_t common;
	int32_t k;

	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if (str_cmp(t->keys[mid].text, s) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == 0)
		return -1;
	k = (int32_t)lo - 1;
	common = common_len(t->keys[k].text, s);
	while (k >= 0 && t->keys[k].text.len > common)
		k = t->keys[k].parent;
	return k;
}

int pat_tree_prefix(const struct pat_tree *t, struct str s, enum tree_want want)
{
	int32_t k = tree_find(t, s);

	if (k < 0)
		return -ENOENT;
	return want == TREE_LONGEST ? t->keys[k].index : t->keys[k].first;
}

static bool may_start(const struct pat_tree *t, struct str s)
{
	unsigned hi, lo;

	if (t->has_empty)
		return true;
	if (s.len == 0)
		return false;
	hi = (uint8_t)s.p[0];
	/* The last byte alone: only keys of one byte can begin here, and those set all 256 bits. */
	lo = s.len > 1 ? (uint8_t)s.p[1] : 0;
	return t->pairs[(hi << 8 | lo) >> 6] >> (lo & 63) & 1;
}

int pat_tree_sub(const struct pat_tree *t, struct str s)
{
	int best = -ENOENT;

	for (size_t i = 0; i <= s.len; i++) {
		struct str rest = str_from(s, i);
		int32_t k = may_start(t, rest) ? tree_find(t, rest) : -1;

		if (k >= 0 && (best < 0 || t->keys[k].first < best))
			best = t->keys[k].first;
		if (best == 0)
			break;
	}
	return best;
}

int pat_tree_word(const struct pat_tree *t, struct str s, const char *delims)
{
	struct str d = str_from_cstr(delims);
	int best = -ENOENT;

	for (size_t i = 0; i < s.len; i++) {
		struct str rest = str_from(s, i);
		bool is_start = str_find_char(d, s.p[i]) == SIZE_MAX &&
				(i == 0 || str_find_char(d, s.p[i - 1]) != SIZE_MAX);
		int32_t k = is_start && may_start(t, rest) ? tree_find(t, rest) : -1;

		for (; k >= 0; k = t->keys[k].parent) {
			size_t len = t->keys[k].text.len;

			if (len && (len == rest.len || str_find_char(d, rest.p[len]) != SIZE_MAX) &&
			    (best < 0 || t->keys[k].index < best))
				best = t->keys[k].index;
		}
	}
	return best;
}
