/* SPDX-License-Identifier: BSD-2-Clause */
/* Rates, which need a clock: sampled once a second by the control thread, one entry per statistics row. */
#ifndef CTL_METRICS_H
#define CTL_METRICS_H

#include <stdint.h>

#include "ctl/ctl_priv.h"

struct rate {
	uint64_t last; /* counter at the last tick */
	uint32_t now, max; /* per second */
};

/* Averages over about the last 1024 requests, as HAProxy shows them; milliseconds. */
enum row_time {
	ROW_TIME_QUEUE,
	ROW_TIME_CONNECT,
	ROW_TIME_RESPONSE,
	ROW_TIME_TOTAL,
	ROW_TIME_COUNT
};
struct row_average {
	uint64_t last_sum;
	double ms;
};

struct row_rates {
	struct rate sessions, requests, connections;
	struct row_average times[ROW_TIME_COUNT];
};

/* Of a row of the services or backends area; zeros when the id is out of range. */
const struct row_rates *metrics_service_rates(const struct metrics *m, uint32_t id);
const struct row_rates *metrics_backend_rates(const struct metrics *m, uint32_t id);

struct process_rates {
	struct rate connections, sessions, tls, bytes_out, comp_in, comp_out;
	uint32_t idle_percent; /* of the workers, last second */
};
const struct process_rates *metrics_process(const struct metrics *m);
void metrics_worker_sum(const struct ctl *ctl, struct hg_worker_counters *ret_sum);
uint64_t metrics_tls_sessions(const struct ctl *ctl); /* of all frontends, since start */
void metrics_clear_maxima(struct metrics *m);

/* show_info.c: every row of `show info` by its name; `text` NULL: a number. */
typedef void info_sink(void *ctx, const char *name, const char *text, uint64_t value);
void info_each(struct ctl *ctl, info_sink *sink, void *ctx);

/*
 * Sums as people see them: since start or since `clear counters all`. Workers are never written to: clearing
 * remembers where the counters stood.
 */
void metrics_service_sum(const struct ctl *ctl, const struct stats_row *r,
			 struct hg_l7_counters *ret);
void metrics_backend_sum(const struct ctl *ctl, const struct stats_row *r,
			 struct hg_l7_counters *ret);
HG_WUR int metrics_clear_counters(struct metrics *m);
/* `clear counters server`: one row. */
HG_WUR int metrics_clear_backend_row(struct metrics *m, const struct stats_row *r);

#endif
