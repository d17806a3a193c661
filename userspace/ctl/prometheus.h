/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the metrics exporter share: its query, scopes, one metric's text. Control thread. */
#ifndef CTL_PROMETHEUS_H
#define CTL_PROMETHEUS_H

#include "ctl/stat_cols.h"
#include "ctl/web.h"

/* In the order of the output. */
enum prom_scope {
	PROM_GLOBAL,
	PROM_FRONTEND,
	PROM_LISTENER,
	PROM_BACKEND,
	PROM_SERVER,
	PROM_STICKTABLE,
	PROM_RESOLVER,
	PROM_XDP, /* ours: the kernel tier */
	PROM_SCOPES
};

enum prom_type {
	PROM_GAUGE,
	PROM_COUNTER,
	PROM_SUMMARY,
	PROM_HISTOGRAM
};

struct prom_query {
	unsigned scopes; /* bit per enum prom_scope */
	bool no_maint, desc_labels;
	struct str metrics; /* ?metrics=, a list; p NULL: all */
};

/* One metric: head on first use, then a line per series. */
struct prom_metric {
	struct service_text text;
	char name[80]; /* whole, and the brace that follows: "haproxy_server_status{" */
	size_t name_len; /* without the brace */
	const char *help;
	uint8_t type; /* enum prom_type */
	bool is_wanted;
};

/* 0, -ENOMEM, or -EINVAL: an unknown scope, or one without '='. */
HG_WUR int prom_parse_query(struct str path, struct arena *arena, struct prom_query *ret);
/* Is this name wanted (`metrics` knows whole names, and those without their first two words)? */
bool prom_is_wanted(const struct prom_query *q, struct str name, struct str short_name);

void prom_metric_init(struct prom_metric *m, const struct prom_query *q, const char *prefix,
		      const char *name, const char *help, enum prom_type type);
/* `labels`: proxy="a",server="b" with values escaped, or empty; `more`: a further one, with its comma. */
void prom_put_u64(struct prom_metric *m, struct str labels, struct str more, uint64_t v);
void prom_put_value(struct prom_metric *m, struct str labels, struct str more, struct str value);
/* Of a summary: the lines _sum (milliseconds, shown in seconds) and _count. */
struct lb_histogram;
void prom_put_histogram(struct prom_metric *m, struct str labels, const struct lb_histogram *h);
void prom_put_summary(struct prom_metric *m, struct str labels, uint64_t sum_ms, uint64_t count);
/* Appends name="value", escaped, behind a comma when there is something; false: no room. */
bool prom_label(struct buf *labels, const char *name, struct str value);
struct str prom_ms(char out[28], uint64_t ms); /* as seconds */

/* prom_rows.c: frontends, backends, servers, from the rows of `show stat`. */
void prom_rows(struct ctl *ctl, const struct prom_query *q, struct service_text *out);
/* prom_own.c: what HAProxy has not: sums of times, workers, kernel tier. */
void prom_own(struct ctl *ctl, const struct prom_query *q, struct service_text *out);
/* prom_global.c */
void prom_dns(struct ctl *ctl, const struct prom_query *q,
	      struct service_text *out); /* prom_dns.c */
void prom_global(struct ctl *ctl, const struct prom_query *q, struct service_text *out);

#endif
