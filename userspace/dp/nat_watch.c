/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which NAT connections began, and which ended (`nat log`). The program tells nobody, for it has no time to; the table is
 * compared with a copy of what it was. A connection that begins and ends between two looks is still there, closed, as long
 * as its port rests. Control thread.
 */
#include <errno.h>
#include <string.h>

#include "dp/dp_priv.h"

/* A row as it was at the last look; state FREE: nobody's. */
struct dp_nat_seen {
	struct hg_nat_conn c;
	struct hg_nat_addrs a;
};

struct look {
	struct dp *dp;
	dp_nat_event_fn *fn; /* NULL: look only */
	void *ctx;
};

static void tell(const struct look *l, const struct dp_nat_seen *seen, bool has_ended)
{
	struct dp_nat_info info;

	if (!l->fn)
		return;
	dp_nat_describe(l->dp, &seen->c, &seen->a, &info);
	l->fn(l->ctx, &info, has_ended);
}

/* Began, and did not end yet. A reset one may still go on. */
static bool is_open(uint32_t life)
{
	return HG_NAT_STATE(life) > HG_NAT_CLAIMED && HG_NAT_STATE(life) != HG_NAT_CLOSED;
}

static bool is_same(const struct dp_nat_seen *seen, const struct hg_nat_conn *c,
		    const struct hg_nat_addrs *a)
{
	return seen->c.client_port == c->client_port && seen->c.vip_port == c->vip_port &&
	       seen->c.edge_port == c->edge_port && seen->c.backend == c->backend &&
	       seen->c.proto == c->proto && seen->c.v6 == c->v6 &&
	       memcmp(seen->c.last, c->last, sizeof(c->last)) == 0 &&
	       (!c->v6 || memcmp(&seen->a, a, sizeof(*a)) == 0);
}

/* Another connection than the one that was there: false when it changed while it was read. */
static bool take(const struct look *l, struct dp_nat_seen *seen, uint32_t row)
{
	const struct dp_nat *n = &l->dp->nat;
	uint32_t state;

	seen->c = n->conns[row];
	seen->a = n->addrs[row];
	state = HG_NAT_STATE(seen->c.life);
	return state > HG_NAT_CLAIMED && state < HG_NAT_STATE_COUNT &&
	       seen->c.backend < l->dp->t.max_backends && seen->c.service < l->dp->t.max_services &&
	       HG_NAT_STATE(__atomic_load_n(&n->conns[row].life, __ATOMIC_ACQUIRE)) == state;
}

static void look_at(const struct look *l, uint32_t row)
{
	const struct dp_nat *n = &l->dp->nat;
	struct dp_nat_seen *seen = &n->seen[row];
	uint32_t life = __atomic_load_n(&n->conns[row].life, __ATOMIC_ACQUIRE);
	bool was_open = is_open(seen->c.life), is_used = HG_NAT_STATE(life) > HG_NAT_CLAIMED;

	if (!is_used && !seen->c.life)
		return;
	if (is_used && seen->c.life && is_same(seen, &n->conns[row], &n->addrs[row]) &&
	    (was_open || !is_open(life))) {
		seen->c.life = life;
		if (was_open && !is_open(life))
			tell(l, seen, true);
		return;
	}
	if (was_open)
		tell(l, seen, true);
	seen->c.life = 0;
	if (!is_used)
		return;
	if (!take(l, seen, row)) {
		seen->c.life = 0; /* next time */
		return;
	}
	tell(l, seen, false);
	if (!is_open(seen->c.life))
		tell(l, seen, true);
}

/* A cache line's alignment, which rows have in the maps and the allocator does not give. */
static bool make_copy(struct dp_nat *n)
{
	n->seen_memory = mem_zalloc((n->mask + 1) * sizeof(*n->seen) + HG_CACHE_LINE);
	if (!n->seen_memory)
		return false;
	n->seen = (void *)(((uintptr_t)n->seen_memory + HG_CACHE_LINE - 1) &
			   ~(uintptr_t)(HG_CACHE_LINE - 1));
	return true;
}

int dp_watch_nat(struct dp *dp, dp_nat_event_fn *fn, void *ctx)
{
	struct dp_nat *n = &dp->nat;
	struct look l = { .dp = dp, .fn = n->seen ? fn : NULL, .ctx = ctx };

	if (!n->conns)
		return -ENOENT;
	if (!fn) {
		mem_free(n->seen_memory);
		n->seen_memory = n->seen = NULL;
		return 0;
	}
	if (!n->seen && !make_copy(n))
		return -ENOMEM;
	for (uint32_t row = 0; row <= n->mask; row++)
		look_at(&l, row);
	return 0;
}
