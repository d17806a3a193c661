/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rows of counters: who has which id, and sums over workers. Control hands rows out; each row of a
 * worker is written by that worker only. The memory belongs to whoever called stats_area_init().
 */
#include "lb/lb.h"

#include <errno.h>

static struct hg_l7_counters *area_row(const struct stats_area *a, uint32_t id)
{
	return &a->rows[(size_t)id * a->n_workers];
}

static void row_clear(const struct stats_area *a, uint32_t id, uint16_t kind)
{
	struct hg_l7_counters *rows = area_row(a, id);

	memset(rows, 0, a->n_workers * sizeof(*rows));
	for (uint32_t w = 0; w < a->n_workers; w++) {
		rows[w].id = id;
		rows[w].worker = (uint16_t)w;
		rows[w].kind = kind;
	}
}

void stats_area_init(struct stats_area *a, void *mem, uint32_t n_ids, uint32_t n_workers)
{
	*a = (struct stats_area){
		.rows = mem,
		.n_ids = mem && n_workers ? n_ids : 0,
		.n_workers = n_workers,
	};
	/* A map may be left over from an earlier process: its rows mean nothing any more. */
	for (uint32_t id = 0; id < a->n_ids; id++)
		if (area_row(a, id)->kind != HG_L7_UNUSED)
			memset(area_row(a, id), 0, n_workers * sizeof(a->rows[0]));
}

int stats_row_take(struct stats_area *a, enum hg_l7_kind kind, struct stats_row *ret_row)
{
	uint32_t id;

	if (a->next_id < a->n_ids) {
		id = a->next_id++;
	} else if (a->n_free) {
		/* One of those given back; `scan` goes round, so that taking many is linear. */
		while (area_row(a, a->scan)->kind != HG_L7_UNUSED)
			a->scan = a->scan + 1 < a->n_ids ? a->scan + 1 : 0;
		id = a->scan;
		a->n_free--;
	} else {
		return -ENOSPC;
	}
	row_clear(a, id, (uint16_t)kind);
	*ret_row = (struct stats_row){ .rows = area_row(a, id), .id = id };
	return 0;
}

void stats_row_put(struct stats_area *a, struct stats_row *r)
{
	if (!r->rows)
		return;
	BUG_ON(r->id >= a->next_id || r->rows->kind == HG_L7_UNUSED);
	row_clear(a, r->id, HG_L7_UNUSED);
	a->n_free++;
	*r = (struct stats_row){ .rows = NULL };
}

void stats_row_sum(const struct stats_area *a, const struct stats_row *r,
		   struct hg_l7_counters *ret_sum)
{
	memset(ret_sum, 0, sizeof(*ret_sum));
	if (!r->rows)
		return;
	ret_sum->id = r->id;
	ret_sum->kind = r->rows->kind;
	for (uint32_t w = 0; w < a->n_workers; w++) {
		const struct hg_l7_counters *c = &r->rows[w];

#define X(name, help) ret_sum->name += __atomic_load_n(&c->name, __ATOMIC_RELAXED);
		HG_L7_COUNTERS(X)
		HG_L7_MAXIMA(X)
		HG_L7_GAUGES(X)
#undef X
		STATS_MAX(&ret_sum->last_session_s,
			  __atomic_load_n(&c->last_session_s, __ATOMIC_RELAXED));
	}
}
