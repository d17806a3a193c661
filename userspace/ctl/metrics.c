/* SPDX-License-Identifier: BSD-2-Clause */
/* Second-by-second rates from counters that workers only ever add to. Control thread. */
#include "ctl/metrics.h"

#include <errno.h>

#include "base/mem.h"

struct rate_table {
	struct row_rates *rows;
	struct hg_l7_counters *cleared; /* what was counted at the last clear, by id; NULL: never */
	uint32_t n;
};

struct metrics {
	struct ctl *ctl;
	struct rate_table services, backends;
	struct process_rates process;
	uint64_t last_idle_ns, last_busy_ns;
	uint64_t last_tick_ns;
};

static const struct row_rates no_rates;

static int rate_table_init(struct rate_table *t, const struct stats_area *a)
{
	t->n = a->n_ids;
	t->rows = mem_zalloc((size_t)t->n * sizeof(*t->rows) + 1);
	return t->rows ? 0 : -ENOMEM;
}

int metrics_create(struct ctl *ctl, struct metrics **ret_m)
{
	struct metrics *m = mem_zalloc(sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->ctl = ctl;
	if (rate_table_init(&m->services, &ctl->services_area) != 0 ||
	    rate_table_init(&m->backends, &ctl->backends_area) != 0) {
		metrics_destroy(m);
		return -ENOMEM;
	}
	m->last_tick_ns = loop_now(ctl->loop);
	*ret_m = m;
	return 0;
}

void metrics_destroy(struct metrics *m)
{
	if (!m)
		return;
	mem_free(m->services.rows);
	mem_free(m->backends.rows);
	mem_free(m->services.cleared);
	mem_free(m->backends.cleared);
	mem_free(m);
}

static void rate_update(struct rate *r, uint64_t value, uint64_t elapsed_ns)
{
	/* A counter that was cleared starts over. */
	uint64_t d = value >= r->last ? value - r->last : value;

	r->last = value;
	r->now = (uint32_t)((d * 1000000000ull + elapsed_ns / 2) / elapsed_ns);
	if (r->now > r->max)
		r->max = r->now;
}

static void average_update(struct row_average *a, uint64_t sum_ms, uint64_t n_new, uint64_t n_all)
{
	uint64_t d = sum_ms >= a->last_sum ? sum_ms - a->last_sum : sum_ms;

	a->last_sum = sum_ms;
	if (!n_new)
		return;
	if (n_all <= 1024)
		a->ms = (double)sum_ms / (double)n_all;
	else if (n_new >= 1024)
		a->ms = (double)d / (double)n_new;
	else
		a->ms += ((double)d / (double)n_new - a->ms) * (double)n_new / 1024.0;
}

static void row_rates_tick(struct row_rates *r, const struct hg_l7_counters *sum,
			   uint64_t elapsed_ns)
{
	uint64_t n = sum->requests ? sum->requests : sum->sessions;
	uint64_t last = sum->requests ? r->requests.last : r->sessions.last;
	uint64_t n_new = n >= last ? n - last : n;

	average_update(&r->times[ROW_TIME_QUEUE], sum->qtime_ms, n_new, n);
	average_update(&r->times[ROW_TIME_CONNECT], sum->ctime_ms, n_new, n);
	average_update(&r->times[ROW_TIME_RESPONSE], sum->rtime_ms, n_new, n);
	average_update(&r->times[ROW_TIME_TOTAL], sum->ttime_ms, n_new, n);
	rate_update(&r->sessions, sum->sessions, elapsed_ns);
	rate_update(&r->requests, sum->requests, elapsed_ns);
	rate_update(&r->connections, sum->connects, elapsed_ns);
}

static void rate_table_tick(struct rate_table *t, const struct stats_area *a, uint64_t elapsed_ns)
{
	for (uint32_t id = 0; id < a->next_id && id < t->n; id++) {
		struct stats_row row = { .rows = &a->rows[(size_t)id * a->n_workers], .id = id };
		struct hg_l7_counters sum;

		stats_row_sum(a, &row, &sum);
		row_rates_tick(&t->rows[id], &sum, elapsed_ns);
	}
}

void metrics_worker_sum(const struct ctl *ctl, struct hg_worker_counters *ret_sum)
{
	*ret_sum = (struct hg_worker_counters){ 0 };
	for (unsigned i = 0; i < ctl->n_workers; i++) {
		const struct hg_worker_counters *w = &ctl->worker_counters[i];

#define LOAD(field)   __atomic_load_n(&w->field, __ATOMIC_RELAXED)
#define X(name, help) ret_sum->name += LOAD(name);
		HG_WORKER_COUNTERS(X)
#undef X
		ret_sum->cur_conns += LOAD(cur_conns);
		ret_sum->cur_ssl_conns += LOAD(cur_ssl_conns);
		ret_sum->cur_streams += LOAD(cur_streams);
#undef LOAD
	}
}

uint64_t metrics_tls_sessions(const struct ctl *ctl)
{
	const struct stats_area *a = &ctl->services_area;
	uint64_t n = 0;

	for (size_t i = 0; i < (size_t)a->next_id * a->n_workers; i++)
		if (a->rows[i].kind == HG_L7_FRONTEND)
			n += __atomic_load_n(&a->rows[i].ssl_sessions, __ATOMIC_RELAXED);
	return n;
}

static void metrics_idle(struct metrics *m)
{
	uint64_t idle = 0, busy = 0, d_idle, d_busy;

	for (unsigned i = 0; i < m->ctl->n_workers; i++) {
		const struct hg_worker_counters *w = &m->ctl->worker_counters[i];

		idle += __atomic_load_n(&w->idle_ns, __ATOMIC_RELAXED);
		busy += __atomic_load_n(&w->busy_ns, __ATOMIC_RELAXED);
	}
	d_idle = idle - m->last_idle_ns;
	d_busy = busy - m->last_busy_ns;
	m->last_idle_ns = idle;
	m->last_busy_ns = busy;
	/* A worker that slept through the second has not been able to tell yet. */
	m->process.idle_percent = d_idle + d_busy ? (uint32_t)(d_idle * 100 / (d_idle + d_busy))
						  : 100;
}

void metrics_tick(struct metrics *m)
{
	uint64_t now = loop_now(m->ctl->loop), elapsed = now - m->last_tick_ns;
	struct hg_worker_counters sum;

	if (elapsed < 500000000ull)
		return;
	m->last_tick_ns = now;
	rate_table_tick(&m->services, &m->ctl->services_area, elapsed);
	rate_table_tick(&m->backends, &m->ctl->backends_area, elapsed);
	metrics_worker_sum(m->ctl, &sum);
	rate_update(&m->process.connections, sum.connections, elapsed);
	rate_update(&m->process.sessions, sum.connections, elapsed);
	rate_update(&m->process.bytes_out, sum.bytes_out, elapsed);
	rate_update(&m->process.comp_in,
		    atomic_load_explicit(&m->ctl->shared.comp_in, memory_order_relaxed), elapsed);
	rate_update(&m->process.comp_out,
		    atomic_load_explicit(&m->ctl->shared.comp_out, memory_order_relaxed), elapsed);
	rate_update(&m->process.tls, metrics_tls_sessions(m->ctl), elapsed);
	metrics_idle(m);
}

const struct row_rates *metrics_service_rates(const struct metrics *m, uint32_t id)
{
	return id < m->services.n ? &m->services.rows[id] : &no_rates;
}

const struct row_rates *metrics_backend_rates(const struct metrics *m, uint32_t id)
{
	return id < m->backends.n ? &m->backends.rows[id] : &no_rates;
}

const struct process_rates *metrics_process(const struct metrics *m)
{
	return &m->process;
}

static void rate_table_clear_maxima(struct rate_table *t)
{
	for (uint32_t i = 0; i < t->n; i++) {
		t->rows[i].sessions.max = 0;
		t->rows[i].requests.max = 0;
		t->rows[i].connections.max = 0;
	}
}

void metrics_clear_maxima(struct metrics *m)
{
	rate_table_clear_maxima(&m->services);
	rate_table_clear_maxima(&m->backends);
	m->process.connections.max = 0;
	m->process.sessions.max = 0;
	m->process.tls.max = 0;
}

static void counters_subtract(struct hg_l7_counters *c, const struct hg_l7_counters *base)
{
#define X(name, help) c->name -= base->name;
	HG_L7_COUNTERS(X)
#undef X
}

static void rate_table_sum(const struct rate_table *t, const struct stats_area *a,
			   const struct stats_row *r, struct hg_l7_counters *ret)
{
	stats_row_sum(a, r, ret);
	if (t->cleared && r->id < t->n)
		counters_subtract(ret, &t->cleared[r->id]);
}

void metrics_service_sum(const struct ctl *ctl, const struct stats_row *r,
			 struct hg_l7_counters *ret)
{
	rate_table_sum(&ctl->metrics->services, &ctl->services_area, r, ret);
}

void metrics_backend_sum(const struct ctl *ctl, const struct stats_row *r,
			 struct hg_l7_counters *ret)
{
	rate_table_sum(&ctl->metrics->backends, &ctl->backends_area, r, ret);
}

static int rate_table_clear(struct rate_table *t, const struct stats_area *a, uint32_t from,
			    uint32_t to)
{
	if (!t->cleared)
		t->cleared = mem_zalloc((size_t)t->n * sizeof(*t->cleared));
	if (!t->cleared)
		return -ENOMEM;
	for (uint32_t id = from; id < to && id < a->next_id && id < t->n; id++) {
		struct stats_row row = { .rows = &a->rows[(size_t)id * a->n_workers], .id = id };

		stats_row_sum(a, &row, &t->cleared[id]);
	}
	return 0;
}

int metrics_clear_counters(struct metrics *m)
{
	int rc = rate_table_clear(&m->services, &m->ctl->services_area, 0, UINT32_MAX);

	if (rc == 0)
		rc = rate_table_clear(&m->backends, &m->ctl->backends_area, 0, UINT32_MAX);
	return rc;
}

int metrics_clear_backend_row(struct metrics *m, const struct stats_row *r)
{
	return rate_table_clear(&m->backends, &m->ctl->backends_area, r->id, r->id + 1);
}
