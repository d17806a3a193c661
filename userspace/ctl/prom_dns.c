/* SPDX-License-Identifier: BSD-2-Clause */
/* Metrics of name servers, under HAProxy's names. Control thread. */
#include "ctl/dns.h"
#include "ctl/prometheus.h"

enum dns_metric {
#define X(field, text, metric) DNS_METRIC_##field,
	DNS_COUNTERS(X)
#undef X
	DNS_METRICS
};

struct dns_walk {
	struct prom_metric metrics[DNS_METRICS];
};

static void put_server(void *ctx, const char *section, const char *server,
		       const struct dns_counters *c)
{
	struct dns_walk *w = ctx;
	struct buf labels;
	char mem[1024];

	buf_init(&labels, mem, sizeof(mem));
	if (!prom_label(&labels, "resolver", str_from_cstr(section)) ||
	    !prom_label(&labels, "nameserver", str_from_cstr(server)))
		return;
#define X(field, text, metric) \
	prom_put_u64(&w->metrics[DNS_METRIC_##field], buf_str(&labels), STR_NULL, c->field);
	DNS_COUNTERS(X)
#undef X
}

void prom_dns(struct ctl *ctl, const struct prom_query *q, struct service_text *out)
{
	struct dns_walk w;

	if (!ctl->dns)
		return;
#define X(field, text, metric)                                                           \
	prom_metric_init(&w.metrics[DNS_METRIC_##field], q, "haproxy_resolver_", metric, \
			 "Counter of a name server: " metric ".", PROM_COUNTER);
	DNS_COUNTERS(X)
#undef X
	dns_each_server(ctl->dns, put_server, &w);
	for (unsigned i = 0; i < DNS_METRICS; i++)
		service_text_join(out, &w.metrics[i].text);
}
