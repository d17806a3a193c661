/* SPDX-License-Identifier: BSD-2-Clause */
/* Sections of the L7 tier on the statistics page: a table for each, with a form where actions are allowed. */
#include "ctl/page.h"

/* Answers of the form, in the order of the menu; page_admin.c knows them all. */
static const struct {
	const char *value, *text;
} menu[] = {
	{ "", "Action…" },
	{ "ready", "Ready" },
	{ "drain", "Drain" },
	{ "maint", "Maintenance" },
	{ "dhlth", "Health checks off" },
	{ "ehlth", "Health checks on" },
	{ "hrunn", "Health: up" },
	{ "hnolb", "Health: no new sessions" },
	{ "hdown", "Health: down" },
	{ "dagent", "Agent checks off" },
	{ "eagent", "Agent checks on" },
	{ "arunn", "Agent: up" },
	{ "adown", "Agent: down" },
	{ "shutdown", "End sessions" },
};

static uint64_t num(const struct stat_row *r, enum stat_col c)
{
	return r->v[c].kind == STAT_STR ? 0 : r->v[c].num;
}

static bool has(const struct stat_row *r, enum stat_col c)
{
	return r->v[c].kind != STAT_EMPTY;
}

static struct str text_of(const struct stat_row *r, enum stat_col c)
{
	return r->v[c].kind == STAT_STR ? str_from_cstr(r->v[c].str) : STR("");
}

/* Numbers with a slash between, a dash where there is none, nothing when all are missing. */
static void cell(struct service_text *t, const struct stat_row *r, const enum stat_col *cols,
		 unsigned n)
{
	bool is_empty = true;

	OUT_LIT(t, "<td>");
	for (unsigned i = 0; i < n; i++)
		is_empty &= !has(r, cols[i]);
	for (unsigned i = 0; i < n && !is_empty; i++) {
		if (i)
			OUT_LIT(t, "/");
		if (has(r, cols[i]))
			page_count(t, num(r, cols[i]));
		else
			OUT_LIT(t, "–");
	}
}
#define CELL(t, r, ...)                                               \
	do {                                                          \
		static const enum stat_col cols_[] = { __VA_ARGS__ }; \
		cell(t, r, cols_, ARRAY_SIZE(cols_));                 \
	} while (0)

static const char *row_class(const struct stat_row *r)
{
	struct str s = text_of(r, STAT_STATUS);

	if (str_is_eq(s, STR("UP")) || str_is_eq(s, STR("OPEN")) || str_is_eq(s, STR("no check")))
		return "up";
	if (str_is_prefix(s, STR("DOWN")) || str_is_eq(s, STR("STOP")))
		return "down";
	if (str_is_prefix(s, STR("MAINT")))
		return "maint";
	return "warn";
}

static void cell_name(struct page *p, const struct stat_row *r)
{
	struct service_text *t = p->t;
	struct str name = text_of(r, STAT_SVNAME);

	OUT_LIT(t, "<td");
	if (p->c->show_legends && r->type == STAT_TYPE_SERVER) {
		OUT_LIT(t, " title=\"");
		out_html(t, text_of(r, STAT_ADDR));
		if (has(r, STAT_COOKIE)) {
			OUT_LIT(t, ", cookie ");
			out_html(t, text_of(r, STAT_COOKIE));
		}
		OUT_LIT(t, "\"");
	}
	OUT_LIT(t, ">");
	if (r->type != STAT_TYPE_SERVER) {
		out_cstr(t, r->type == STAT_TYPE_FRONTEND  ? "Frontend"
			    : r->type == STAT_TYPE_BACKEND ? "Backend"
							   : "");
		if (r->type == STAT_TYPE_LISTENER)
			out_html(t, name);
		return;
	}
	if (p->has_form) {
		OUT_LIT(t, "<label><input type=checkbox name=s value=\"");
		out_html(t, name);
		OUT_LIT(t, "\">");
	}
	out_html(t, name);
	if (num(r, STAT_BCK))
		OUT_LIT(t, " <small>backup</small>");
	if (p->has_form)
		OUT_LIT(t, "</label>");
}

static void cell_check(struct service_text *t, const struct stat_row *r)
{
	OUT_LIT(t, "<td");
	if (!has(r, STAT_CHECK_STATUS)) {
		OUT_LIT(t, ">");
		return;
	}
	OUT_LIT(t, " title=\"");
	out_html(t, text_of(r, STAT_CHECK_DESC));
	if (text_of(r, STAT_LAST_CHK).len) {
		OUT_LIT(t, ": ");
		out_html(t, text_of(r, STAT_LAST_CHK));
	}
	OUT_LIT(t, "\">");
	out_html(t, text_of(r, STAT_CHECK_STATUS));
	if (has(r, STAT_CHECK_CODE))
		out_fmt(t, "/%u", (unsigned)num(r, STAT_CHECK_CODE));
	if (has(r, STAT_CHECK_DURATION))
		out_fmt(t, " %ums", (unsigned)num(r, STAT_CHECK_DURATION));
}

/* How the times of all requests since the start are spread; the table has the averages of the last ones. */
static void section_percentiles(struct page *p, const struct conf_proxy *px)
{
	static const double parts[] = { 0.5, 0.95, 0.99 };
	struct lb_histogram h;

	if (!px || !(px->caps & CONF_CAP_BACKEND))
		return;
	lb_time_sum(p->ctl->current->backends[px->index], p->ctl->n_workers, LB_TIME_TOTAL, &h);
	if (!lb_time_quantile(&h, 1))
		return;
	OUT_LIT(p->t, "<small title=\"total time, ms: half, 95 %, 99 % took no longer\">");
	for (unsigned i = 0; i < ARRAY_SIZE(parts); i++) {
		uint64_t us = lb_time_quantile(&h, parts[i]);

		out_fmt(p->t, "%sp%.0f %.*f", i ? " " : "", parts[i] * 100, us < 10000 ? 1 : 0,
			(double)us / 1000);
	}
	OUT_LIT(p->t, "</small>");
}

static void row_cells(struct page *p, const struct stat_row *r)
{
	struct service_text *t = p->t;

	/* Nothing may stand between rows: it would belong to the last cell, and that would not be :empty. */
	out_fmt(t, "<tr\nclass=\"%s%s\">", row_class(r), r->type == STAT_TYPE_SERVER ? "" : " sum");
	cell_name(p, r);
	OUT_LIT(t, "<td>");
	out_html(t, text_of(r, STAT_STATUS));
	if (has(r, STAT_LASTCHG)) {
		OUT_LIT(t, " <small>");
		page_age(t, num(r, STAT_LASTCHG));
		OUT_LIT(t, "</small>");
	}
	CELL(t, r, STAT_QCUR, STAT_QMAX);
	CELL(t, r, STAT_SCUR, STAT_SMAX, STAT_SLIM);
	if (r->type == STAT_TYPE_FRONTEND && has(r, STAT_HRSP_2XX))
		CELL(t, r, STAT_REQ_RATE, STAT_REQ_RATE_MAX);
	else
		CELL(t, r, STAT_RATE, STAT_RATE_MAX);
	if (has(r, STAT_REQ_TOT))
		CELL(t, r, STAT_REQ_TOT);
	else
		CELL(t, r, STAT_STOT);
	CELL(t, r, STAT_BIN);
	CELL(t, r, STAT_BOUT);
	CELL(t, r, STAT_DREQ, STAT_DRESP);
	CELL(t, r, STAT_EREQ, STAT_ECON, STAT_ERESP);
	CELL(t, r, STAT_WRETR, STAT_WREDIS);
	CELL(t, r, STAT_HRSP_2XX, STAT_HRSP_3XX);
	CELL(t, r, STAT_HRSP_4XX, STAT_HRSP_5XX);
	CELL(t, r, STAT_QTIME, STAT_CTIME, STAT_RTIME, STAT_TTIME);
	CELL(t, r, STAT_WEIGHT);
	cell_check(t, r);
	CELL(t, r, STAT_CHKDOWN);
	if (has(r, STAT_DOWNTIME) && num(r, STAT_DOWNTIME)) {
		OUT_LIT(t, " ");
		page_age(t, num(r, STAT_DOWNTIME));
	}
}

/* The frontend's row and the backend's speak for their section. */
static void plots_take(struct page *p, const struct stat_row *r)
{
	struct page_plots *s = &p->plots;

	if (r->type != STAT_TYPE_FRONTEND && r->type != STAT_TYPE_BACKEND)
		return;
	if (r->type == STAT_TYPE_FRONTEND || !s->rate)
		s->rate = has(r, STAT_REQ_RATE) && has(r, STAT_HRSP_2XX) ? num(r, STAT_REQ_RATE)
									 : num(r, STAT_RATE);
	s->errors = num(r, STAT_HRSP_5XX) + num(r, STAT_EREQ) + num(r, STAT_ECON);
	if (r->type == STAT_TYPE_BACKEND) {
		s->has_time = has(r, STAT_TTIME);
		s->time_ms = num(r, STAT_TTIME);
	}
}

static void section_plots(struct page *p)
{
	struct str key = str_from_cstr(p->plots.section);

	page_plot(p, key, "per second", p->plots.rate, false);
	if (p->plots.has_time)
		page_plot(p, key, "ms", p->plots.time_ms, false);
	page_plot(p, key, "errors/s", p->plots.errors, true);
}

static void section_close(struct page *p)
{
	struct service_text *t = p->t;

	if (!p->is_open)
		return;
	p->is_open = false;
	OUT_LIT(t, "</table></div>");
	section_plots(p);
	if (p->has_form) {
		OUT_LIT(t, "<div class=bar><select name=action aria-label=Action>");
		for (unsigned i = 0; i < ARRAY_SIZE(menu); i++)
			out_fmt(t, "<option value=\"%s\">%s</option>", menu[i].value, menu[i].text);
		OUT_LIT(t, "</select> <button>Apply to the servers chosen</button></div></form>");
	}
	OUT_LIT(t, "</section>\n");
}

static void section_open(struct page *p, const struct stat_row *r)
{
	const struct conf_proxy *px;
	struct service_text *t = p->t;
	struct str name = text_of(r, STAT_PXNAME);

	p->is_open = true;
	p->iid = r->iid;
	p->plots = (struct page_plots){ .section = r->v[STAT_PXNAME].str };
	px = conf_find_proxy(p->ctl->current->conf, name,
			     r->type == STAT_TYPE_FRONTEND ? CONF_CAP_FRONTEND : CONF_CAP_BACKEND);
	p->has_form = p->c->is_admin && px && p->ctl->current->backends[px->index]->n_servers;
	OUT_LIT(t, "<section><div class=head><h2>");
	out_html(t, name);
	OUT_LIT(t, " <small>");
	out_html(t, text_of(r, STAT_MODE));
	if (px && px->description) {
		OUT_LIT(t, ", ");
		out_html(t, str_from_cstr(px->description));
	}
	OUT_LIT(t, "</small></h2>");
	section_percentiles(p, px);
	OUT_LIT(t, "<span class=plots></span></div>");
	if (p->has_form) {
		OUT_LIT(t, "<form method=post><input type=hidden name=b value=\"");
		out_html(t, name);
		OUT_LIT(t, "\">");
	}
	OUT_LIT(t, "<div class=t><table class=l7><thead><tr><th>Name<th>State"
		   "<th>Queue<br>now/max<th>Sessions<br>now/max/limit<th>Per second<br>now/max"
		   "<th>Total<th>Bytes in<th>Bytes out<th>Denied<br>req/resp"
		   "<th>Errors<br>req/conn/resp<th>Retries<br>redispatches<th>2xx/3xx"
		   "<th>4xx/5xx<th>Times, ms<br>queue/conn/resp/all<th>Weight<th>Check"
		   "<th>Downs</thead>\n");
}

static int page_row(void *ctx, const struct stat_row *r)
{
	struct page *p = ctx;

	if (!page_shows(p, r->v[STAT_PXNAME].str))
		return 0;
	if (!p->is_open || p->iid != r->iid) {
		section_close(p);
		section_open(p, r);
	}
	row_cells(p, r);
	plots_take(p, r);
	p->n_rows++;
	return 0;
}

void page_rows(struct page *p)
{
	struct stat_filter f = {
		.iid = -1, .sid = -1, .types = ~0u, .up_only = p->up_only, .no_maint = p->no_maint
	};

	(void)stat_each_row(p->ctl, &f, page_row, p);
	section_close(p);
	if (!p->n_rows)
		OUT_LIT(p->t, "<section class=dim>No section has that in its name.</section>\n");
}
