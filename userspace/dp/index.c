/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ids by what they stand for: services by key, backends and next hops by address. Chains of ids in two arrays
 * that are made once, so that finding one costs the same among ten and among ten thousand, and adding cannot fail.
 */
#include <errno.h>

#include "dp/dp_priv.h"

int dp_index_init(struct dp_index *x, uint32_t n_ids)
{
	uint32_t bits = 4;

	while (1u << bits < n_ids)
		bits++;
	x->first = mem_zalloc((1u << bits) * sizeof(*x->first));
	x->next = mem_zalloc((n_ids + 1) * sizeof(*x->next));
	x->shift = 64 - bits;
	if (x->first && x->next)
		return 0;
	dp_index_free(x);
	return -ENOMEM;
}

void dp_index_free(struct dp_index *x)
{
	mem_free(x->first);
	mem_free(x->next);
	*x = (struct dp_index){ 0 };
}

static uint32_t *first_of(const struct dp_index *x, uint64_t hash)
{
	return &x->first[DP_INDEX_AT(x, hash)];
}

void dp_index_add(struct dp_index *x, uint64_t hash, uint32_t id)
{
	uint32_t *first = first_of(x, hash);

	x->next[id + 1] = *first;
	*first = id + 1;
}

void dp_index_del(struct dp_index *x, uint64_t hash, uint32_t id)
{
	uint32_t *at = first_of(x, hash);

	while (*at && *at != id + 1)
		at = &x->next[*at];
	if (*at)
		*at = x->next[id + 1];
}
