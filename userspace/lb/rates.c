/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rates that expressions ask for (fe_req_rate and its kin). The counters are the workers' own; control
 * marks once a second where they stood, and readers add what came since.
 */
#include "lb/lb.h"

#define SECOND 1000000000ull

uint64_t stats_row_count(const struct stats_row *r, unsigned n_workers, size_t offset)
{
	uint64_t n = 0;

	for (unsigned w = 0; r->rows && w < n_workers; w++) {
		const char *row = (const char *)&r->rows[w];

		n += __atomic_load_n((const uint64_t *)(const void *)(row + offset),
				     __ATOMIC_RELAXED);
	}
	return n;
}

void rate_meter_mark(struct rate_meter *m, uint64_t count, uint64_t now_ns)
{
	uint32_t old = atomic_load_explicit(&m->cur, memory_order_relaxed), next = !old;
	uint64_t rate = rate_meter_read(m, count, now_ns);

	atomic_store_explicit(&m->marks[next].at_ns, now_ns, memory_order_relaxed);
	atomic_store_explicit(&m->marks[next].count, count, memory_order_relaxed);
	atomic_store_explicit(&m->marks[next].per_s,
			      rate < UINT32_MAX ? (uint32_t)rate : UINT32_MAX,
			      memory_order_relaxed);
	atomic_store_explicit(&m->cur, next, memory_order_release);
}

uint64_t rate_meter_read(const struct rate_meter *m, uint64_t count, uint64_t now_ns)
{
	uint32_t i = atomic_load_explicit(&m->cur, memory_order_acquire);
	uint64_t at = atomic_load_explicit(&m->marks[i].at_ns, memory_order_relaxed);
	uint64_t base = atomic_load_explicit(&m->marks[i].count, memory_order_relaxed);
	uint64_t last = atomic_load_explicit(&m->marks[i].per_s, memory_order_relaxed);
	uint64_t since = now_ns > at ? now_ns - at : 0;
	uint64_t n = count >= base ? count - base : count; /* a row may begin anew */

	if (since < SECOND)
		return n + last * (SECOND - since) / SECOND;
	return at ? (uint64_t)((unsigned __int128)n * SECOND / since) : n;
}

static uint64_t count_of(const struct lb_backend *be, enum lb_rate which)
{
	const struct stats_row *row = which == LB_RATE_BE_SESSIONS ? &be->stats : &be->fe_stats;

	return stats_row_count(row, be->registry->n_workers,
			       which == LB_RATE_FE_REQUESTS
				       ? offsetof(struct hg_l7_counters, requests)
				       : offsetof(struct hg_l7_counters, sessions));
}

static const struct rate_meter *meter_of(const struct lb_backend *be, enum lb_rate which)
{
	return which == LB_RATE_BE_SESSIONS   ? &be->sess_rate
	       : which == LB_RATE_FE_SESSIONS ? &be->fe_sess_rate
					      : &be->fe_req_rate;
}

uint64_t lb_backend_rate(const struct lb_backend *be, enum lb_rate which, uint64_t now_ns)
{
	return rate_meter_read(meter_of(be, which), count_of(be, which), now_ns);
}

static uint64_t server_sessions(const struct server *s, unsigned n_workers)
{
	return stats_row_count(&s->stats, n_workers, offsetof(struct hg_l7_counters, sessions));
}

uint64_t server_session_rate(const struct server *s, unsigned n_workers, uint64_t now_ns)
{
	return rate_meter_read(&s->sess_rate, server_sessions(s, n_workers), now_ns);
}

void lb_registry_tick(struct lb_registry *r, uint64_t now_ns)
{
	struct list *pos;

	list_for_each(pos, &r->backends) {
		struct lb_backend *be = list_entry(pos, struct lb_backend, link);

		rate_meter_mark(&be->sess_rate, count_of(be, LB_RATE_BE_SESSIONS), now_ns);
		rate_meter_mark(&be->fe_sess_rate, count_of(be, LB_RATE_FE_SESSIONS), now_ns);
		rate_meter_mark(&be->fe_req_rate, count_of(be, LB_RATE_FE_REQUESTS), now_ns);
	}
	list_for_each(pos, &r->servers) {
		struct server *s = list_entry(pos, struct server, link);

		rate_meter_mark(&s->sess_rate, server_sessions(s, r->n_workers), now_ns);
	}
}
