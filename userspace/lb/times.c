/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How times are spread: a histogram per backend and worker, written by its worker with plain adds, summed by control
 * for metrics and the statistics page.
 */
#include "lb/lb.h"

const uint32_t lb_time_bounds_us[] = {
#define X(us) us,
	LB_TIME_BOUNDS(X)
#undef X
};

/* How many bounds are below it. All are looked at: that is faster than a search, whose branches nobody can foretell. */
static unsigned bucket_of(uint64_t us)
{
#define X(bound) +(us > (bound))
	return 0u LB_TIME_BOUNDS(X);
#undef X
}

void lb_time_add(struct lb_backend *be, unsigned worker, enum lb_time what, uint64_t ns)
{
	struct lb_histogram *h = &be->w[worker].times[what];
	uint64_t us = ns / 1000;

	STATS_ADD(&h->n[bucket_of(us)], 1);
	STATS_ADD(&h->sum_us, us);
}

void lb_time_sum(const struct lb_backend *be, unsigned n_workers, enum lb_time what,
		 struct lb_histogram *ret)
{
	*ret = (struct lb_histogram){ 0 };
	for (unsigned w = 0; w < n_workers; w++) {
		const struct lb_histogram *h = &be->w[w].times[what];

		for (unsigned i = 0; i < LB_TIME_BUCKETS; i++)
			ret->n[i] += __atomic_load_n(&h->n[i], __ATOMIC_RELAXED);
		ret->sum_us += __atomic_load_n(&h->sum_us, __ATOMIC_RELAXED);
	}
}

uint64_t lb_time_quantile(const struct lb_histogram *h, double q)
{
	uint64_t all = 0, before = 0;
	double wanted;

	for (unsigned i = 0; i < LB_TIME_BUCKETS; i++)
		all += h->n[i];
	if (!all)
		return 0;
	wanted = q * (double)all;
	for (unsigned i = 0; i < LB_TIME_BUCKETS - 1; i++) {
		uint64_t from = i ? lb_time_bounds_us[i - 1] : 0;

		/* Within a bucket times are taken to be spread evenly. */
		if (h->n[i] && (double)(before + h->n[i]) >= wanted)
			return from + (uint64_t)((double)(lb_time_bounds_us[i] - from) *
						 (wanted - (double)before) / (double)h->n[i]);
		before += h->n[i];
	}
	return lb_time_bounds_us[LB_TIME_BUCKETS - 2];
}
