/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Metrics under our own name: sums of times, from which averages over any period can be had, TLS and
 * HTTP/2 of frontends, workers, and everything that the kernel tier counts. Control thread.
 */
#include <stddef.h>

#include "ctl/l4_text.h"
#include "ctl/metrics.h"
#include "ctl/prometheus.h"

/* --- times of backends and servers --------------------------------------------------------------------- */

#define TIMES(X)                                                              \
	X(qtime_ms, "queue_time_seconds", "Time in queue.")                   \
	X(ctime_ms, "connect_time_seconds", "Time to connect.")               \
	X(rtime_ms, "response_time_seconds", "Time to the response headers.") \
	X(ttime_ms, "total_time_seconds", "Total time of requests.")

enum time_index {
#define X(field, name, help) TIME_##field,
	TIMES(X)
#undef X
	TIME_COUNT
};

static const struct {
	const char *name, *help;
	size_t offset;
} times[TIME_COUNT] = {
#define X(field, name, help) { name, help, offsetof(struct hg_l7_counters, field) },
	TIMES(X)
#undef X
};

/* Of backends also how they are spread. */
static const enum lb_time spread[TIME_COUNT] = {
	[TIME_ctime_ms] = LB_TIME_CONNECT,
	[TIME_rtime_ms] = LB_TIME_RESPONSE,
	[TIME_ttime_ms] = LB_TIME_TOTAL,
};

static uint64_t counter_at(const struct hg_l7_counters *c, size_t offset)
{
	return *(const uint64_t *)(const void *)((const char *)c + offset);
}

static void put_times(struct prom_metric *m, struct str labels, const struct hg_l7_counters *c)
{
	uint64_t n = c->requests ? c->requests : c->sessions;

	for (unsigned i = 0; i < TIME_COUNT; i++)
		prom_put_summary(&m[i], labels, counter_at(c, times[i].offset), n);
}

struct times_walk {
	struct ctl *ctl;
	const struct prom_query *q;
	struct prom_metric backend[TIME_COUNT], server[TIME_COUNT], server_queued, backend_queued;
};

static void times_of_servers(struct times_walk *w, const struct conf_proxy *px,
			     const struct lb_backend *be)
{
	for (unsigned i = 0; i < be->n_servers; i++) {
		const struct server *s = be->servers[i];
		struct hg_l7_counters c;
		struct buf labels;
		char mem[4096];

		if (w->q->no_maint && (atomic_load(&s->admin) & SERVER_MAINT_MASK))
			continue;
		buf_init(&labels, mem, sizeof(mem));
		if (!prom_label(&labels, "proxy", str_from_cstr(px->name)) ||
		    !prom_label(&labels, "server", str_from_cstr(s->name)))
			continue;
		metrics_backend_sum(w->ctl, &s->stats, &c);
		put_times(w->server, buf_str(&labels), &c);
		prom_put_u64(&w->server_queued, buf_str(&labels), STR_NULL, c.queued);
	}
}

static void times_of_proxy(struct times_walk *w, const struct conf_proxy *px)
{
	const struct lb_backend *be = w->ctl->current->backends[px->index];
	struct hg_l7_counters c;
	struct buf labels;
	char mem[4096];

	if (!(px->caps & CONF_CAP_BACKEND))
		return;
	if (w->q->scopes & 1u << PROM_SERVER)
		times_of_servers(w, px, be);
	if (!(w->q->scopes & 1u << PROM_BACKEND))
		return;
	buf_init(&labels, mem, sizeof(mem));
	if (!prom_label(&labels, "proxy", str_from_cstr(px->name)))
		return;
	metrics_backend_sum(w->ctl, &be->stats, &c);
	prom_put_summary(&w->backend[TIME_qtime_ms], buf_str(&labels), c.qtime_ms,
			 c.requests ? c.requests : c.sessions);
	for (unsigned i = TIME_ctime_ms; i < TIME_COUNT; i++) {
		struct lb_histogram h;

		lb_time_sum(be, w->ctl->n_workers, spread[i], &h);
		prom_put_histogram(&w->backend[i], buf_str(&labels), &h);
	}
	prom_put_u64(&w->backend_queued, buf_str(&labels), STR_NULL, c.queued);
}

static void own_times(struct ctl *ctl, const struct prom_query *q, struct service_text *out)
{
	struct times_walk w = { .ctl = ctl, .q = q };
	struct list *l;

	for (unsigned i = 0; i < TIME_COUNT; i++) {
		prom_metric_init(&w.backend[i], q, "headgate_backend_", times[i].name,
				 times[i].help, i == TIME_qtime_ms ? PROM_SUMMARY : PROM_HISTOGRAM);
		prom_metric_init(&w.server[i], q, "headgate_server_", times[i].name, times[i].help,
				 PROM_SUMMARY);
	}
	prom_metric_init(&w.backend_queued, q, "headgate_backend_", "queued_total",
			 "Requests that had to wait in a queue.", PROM_COUNTER);
	prom_metric_init(&w.server_queued, q, "headgate_server_", "queued_total",
			 "Requests that had to wait in a queue.", PROM_COUNTER);
	list_for_each(l, &ctl->current->conf->proxies)
		times_of_proxy(&w, list_entry(l, struct conf_proxy, link));
	for (unsigned i = 0; i < TIME_COUNT; i++)
		service_text_join(out, &w.backend[i].text);
	service_text_join(out, &w.backend_queued.text);
	for (unsigned i = 0; i < TIME_COUNT; i++)
		service_text_join(out, &w.server[i].text);
	service_text_join(out, &w.server_queued.text);
}

/* --- frontends ---------------------------------------------------------------------------------------------- */

static const struct {
	const char *name, *help;
	size_t offset;
} fe_counters[] = {
#define FE(field, name, help) { name, help, offsetof(struct hg_l7_counters, field) }
	FE(ssl_sessions, "tls_handshakes_total", "TLS handshakes with clients."),
	FE(ssl_reused, "tls_resumed_total", "Of those, resumed."),
	FE(ssl_failed, "tls_failed_total", "TLS handshakes that failed."),
	FE(h2_sessions, "http2_connections_total", "HTTP/2 connections."),
	FE(h2_requests, "http2_requests_total", "HTTP/2 requests."),
#undef FE
};

static void own_frontends(struct ctl *ctl, const struct prom_query *q, struct service_text *out)
{
	struct prom_metric m[ARRAY_SIZE(fe_counters)], handshake;
	struct list *l;

	prom_metric_init(&handshake, q, "headgate_frontend_", "tls_handshake_seconds",
			 "Time of TLS handshakes with clients.", PROM_HISTOGRAM);
	for (unsigned i = 0; i < ARRAY_SIZE(m); i++)
		prom_metric_init(&m[i], q, "headgate_frontend_", fe_counters[i].name,
				 fe_counters[i].help, PROM_COUNTER);
	list_for_each(l, &ctl->current->conf->proxies) {
		const struct conf_proxy *px = list_entry(l, struct conf_proxy, link);
		struct hg_l7_counters c;
		struct lb_histogram h;
		struct buf labels;
		char mem[4096];

		buf_init(&labels, mem, sizeof(mem));
		if (!(px->caps & CONF_CAP_FRONTEND) ||
		    !prom_label(&labels, "proxy", str_from_cstr(px->name)))
			continue;
		metrics_service_sum(ctl, &ctl->current->backends[px->index]->fe_stats, &c);
		for (unsigned i = 0; i < ARRAY_SIZE(m); i++)
			prom_put_u64(&m[i], buf_str(&labels), STR_NULL,
				     counter_at(&c, fe_counters[i].offset));
		lb_time_sum(ctl->current->backends[px->index], ctl->n_workers, LB_TIME_HANDSHAKE,
			    &h);
		prom_put_histogram(&handshake, buf_str(&labels), &h);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(m); i++)
		service_text_join(out, &m[i].text);
	service_text_join(out, &handshake.text);
}

/* --- workers ------------------------------------------------------------------------------------------------ */

enum worker_counter {
#define X(name, help) WORKER_##name,
	HG_WORKER_COUNTERS(X)
#undef X
	WORKER_COUNT
};

static void own_workers(struct ctl *ctl, const struct prom_query *q, struct service_text *out)
{
	struct prom_metric m[WORKER_COUNT];

#define X(name, help)                                                                    \
	prom_metric_init(&m[WORKER_##name], q, "headgate_worker_", #name "_total", help, \
			 PROM_COUNTER);
	HG_WORKER_COUNTERS(X)
#undef X
	for (unsigned i = 0; i < ctl->n_workers; i++) {
		const struct hg_worker_counters *w = &ctl->worker_counters[i];
		char mem[32];
		struct str labels =
			str_make(mem, (size_t)snprintf(mem, sizeof(mem), "worker=\"%u\"", i));

#define X(name, help)                                     \
	prom_put_u64(&m[WORKER_##name], labels, STR_NULL, \
		     __atomic_load_n(&w->name, __ATOMIC_RELAXED));
		HG_WORKER_COUNTERS(X)
#undef X
	}
	for (unsigned i = 0; i < WORKER_COUNT; i++)
		service_text_join(out, &m[i].text);
}

/* --- kernel tier -------------------------------------------------------------------------------------------- */

enum xdp_service_counter {
#define X(name, help) XDP_SVC_##name,
	HG_SERVICE_COUNTERS(X)
#undef X
	XDP_SVC_COUNT
};
enum xdp_backend_counter {
#define X(name, help) XDP_BE_##name,
	HG_BACKEND_COUNTERS(X)
#undef X
	XDP_BE_COUNT
};

struct xdp_services {
	struct prom_metric counter[XDP_SVC_COUNT], tracked, flows;
};

static int xdp_service(void *ctx, const struct dp_service_info *i)
{
	struct xdp_services *m = ctx;
	char mem[4096], key[L4_KEY_MAX];
	struct buf labels;

	buf_init(&labels, mem, sizeof(mem));
	l4_key_text(&i->key, key, sizeof(key));
	if (!prom_label(&labels, "proxy", str_from_cstr(i->name)) ||
	    !prom_label(&labels, "service", str_from_cstr(key)) ||
	    !prom_label(&labels, "mode", str_from_cstr(l4_mode_text(i->mode))))
		return 0;
#define X(name, help) \
	prom_put_u64(&m->counter[XDP_SVC_##name], buf_str(&labels), STR_NULL, i->sum.name);
	HG_SERVICE_COUNTERS(X)
#undef X
	prom_put_u64(&m->tracked, buf_str(&labels), STR_NULL, i->tracked);
	prom_put_u64(&m->flows, buf_str(&labels), STR_NULL, i->flows);
	return 0;
}

struct xdp_backends {
	struct prom_metric counter[XDP_BE_COUNT], alive, resolved, draining, flows;
};

static int xdp_backend(void *ctx, const struct dp_backend_info *i)
{
	struct xdp_backends *m = ctx;
	char mem[4096], addr[ADDR_TEXT_MAX];
	struct buf labels;

	if (!*i->server_name)
		return 0; /* of an earlier process, draining: two of one address would be one series */
	buf_init(&labels, mem, sizeof(mem));
	addr_format_ip(&i->addr, addr, sizeof(addr));
	if (!prom_label(&labels, "proxy", str_from_cstr(i->service_name)) ||
	    !prom_label(&labels, "server", str_from_cstr(i->server_name)) ||
	    !prom_label(&labels, "address", str_from_cstr(addr)))
		return 0;
#define X(name, help) \
	prom_put_u64(&m->counter[XDP_BE_##name], buf_str(&labels), STR_NULL, i->sum.name);
	HG_BACKEND_COUNTERS(X)
#undef X
	prom_put_u64(&m->alive, buf_str(&labels), STR_NULL, !!(i->flags & HG_BE_ALIVE));
	prom_put_u64(&m->resolved, buf_str(&labels), STR_NULL, i->neigh.state & HG_NEIGH_OK);
	prom_put_u64(&m->draining, buf_str(&labels), STR_NULL, i->is_draining);
	prom_put_u64(&m->flows, buf_str(&labels), STR_NULL, i->flows);
	return 0;
}

static void xdp_verdicts(struct dp *dp, const struct prom_query *q, struct service_text *out)
{
	struct prom_metric verdicts, drops;
	struct hg_verdict_counters v;
	char mem[128];

	prom_metric_init(&verdicts, q, "headgate_xdp_", "verdicts_total",
			 "Packets by what was done with them.", PROM_COUNTER);
	prom_metric_init(&drops, q, "headgate_xdp_", "drops_total", "Packets dropped by reason.",
			 PROM_COUNTER);
	dp_verdicts(dp, &v);
	for (unsigned i = 0; i < HG_VERDICT_COUNT; i++) {
		int n = snprintf(mem, sizeof(mem), "verdict=\"%s\"", dp_verdict_name(i));

		prom_put_u64(&verdicts, str_make(mem, (size_t)n), STR_NULL, v.verdict[i]);
	}
	for (unsigned i = 1; i < HG_DROP_COUNT; i++) {
		int n = snprintf(mem, sizeof(mem), "reason=\"%s\"", dp_drop_name(i));

		prom_put_u64(&drops, str_make(mem, (size_t)n), STR_NULL, v.drop[i]);
	}
	service_text_join(out, &verdicts.text);
	service_text_join(out, &drops.text);
}

static void own_xdp(struct dp *dp, const struct prom_query *q, struct service_text *out)
{
	struct xdp_services services;
	struct xdp_backends backends;

#define X(name, help)                                                                   \
	prom_metric_init(&services.counter[XDP_SVC_##name], q, "headgate_xdp_service_", \
			 #name "_total", help, PROM_COUNTER);
	HG_SERVICE_COUNTERS(X)
#undef X
	prom_metric_init(&services.tracked, q, "headgate_xdp_service_", "slots_tracked",
			 "Slots of the table that changed owner lately.", PROM_GAUGE);
	prom_metric_init(&services.flows, q, "headgate_xdp_service_", "flows",
			 "Flows remembered because their slot moved, or by 'track on'.",
			 PROM_GAUGE);
#define X(name, help)                                                                  \
	prom_metric_init(&backends.counter[XDP_BE_##name], q, "headgate_xdp_backend_", \
			 #name "_total", help, PROM_COUNTER);
	HG_BACKEND_COUNTERS(X)
#undef X
	prom_metric_init(&backends.alive, q, "headgate_xdp_backend_", "up",
			 "1 while its health checks pass.", PROM_GAUGE);
	prom_metric_init(&backends.resolved, q, "headgate_xdp_backend_", "neighbour_resolved",
			 "1 while its next hop is known.", PROM_GAUGE);
	prom_metric_init(&backends.draining, q, "headgate_xdp_backend_", "draining",
			 "1 while only connections of the time before its removal are left.",
			 PROM_GAUGE);
	prom_metric_init(&backends.flows, q, "headgate_xdp_backend_", "flows",
			 "Flows remembered for it.", PROM_GAUGE);
	(void)dp_each_service(dp, xdp_service, &services);
	(void)dp_each_backend(dp, xdp_backend, &backends);
	for (unsigned i = 0; i < XDP_SVC_COUNT; i++)
		service_text_join(out, &services.counter[i].text);
	service_text_join(out, &services.tracked.text);
	service_text_join(out, &services.flows.text);
	for (unsigned i = 0; i < XDP_BE_COUNT; i++)
		service_text_join(out, &backends.counter[i].text);
	service_text_join(out, &backends.alive.text);
	service_text_join(out, &backends.resolved.text);
	service_text_join(out, &backends.draining.text);
	service_text_join(out, &backends.flows.text);
	xdp_verdicts(dp, q, out);
}

void prom_own(struct ctl *ctl, const struct prom_query *q, struct service_text *out)
{
	if (q->scopes & 1u << PROM_GLOBAL)
		own_workers(ctl, q, out);
	if (q->scopes & 1u << PROM_FRONTEND)
		own_frontends(ctl, q, out);
	if (q->scopes & (1u << PROM_BACKEND | 1u << PROM_SERVER))
		own_times(ctl, q, out);
	if (q->scopes & 1u << PROM_XDP && ctl->dp && dp_has_kernel_tier(ctl->dp))
		own_xdp(ctl->dp, q, out);
}
