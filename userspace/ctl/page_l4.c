/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel tier on the statistics page, from its maps. */
#include "ctl/l4_text.h"
#include "ctl/page.h"

static void cell_count(struct service_text *t, uint64_t n)
{
	OUT_LIT(t, "<td>");
	page_count(t, n);
}

static int l4_service(void *ctx, const struct dp_service_info *i)
{
	struct page *p = ctx;
	char key[L4_KEY_MAX];

	l4_key_text(&i->key, key, sizeof(key));
	OUT_LIT(p->t, "<tr><td>");
	out_html(p->t, str_from_cstr(key));
	OUT_LIT(p->t, "<td>");
	out_html(p->t, str_from_cstr(i->name));
	out_fmt(p->t, "<td>%s", l4_mode_text(i->mode));
#define X(name, help) cell_count(p->t, i->sum.name);
	HG_SERVICE_COUNTERS(X)
#undef X
	OUT_LIT(p->t, "\n");
	return 0;
}

static int l4_backend(void *ctx, const struct dp_backend_info *i)
{
	struct page *p = ctx;
	char addr[ADDR_TEXT_MAX];
	bool is_up = i->flags & HG_BE_ALIVE, is_resolved = i->neigh.state & HG_NEIGH_OK;

	addr_format_ip(&i->addr, addr, sizeof(addr));
	out_fmt(p->t, "<tr class=%s><td>", is_up && is_resolved ? "up" : is_up ? "warn" : "down");
	out_html(p->t, str_from_cstr(i->service_name));
	OUT_LIT(p->t, "/");
	out_html(p->t, str_from_cstr(i->server_name));
	out_fmt(p->t, "<td>%s<td>%s<td>",
		!is_up		 ? "down"
		: !is_resolved	 ? "up, next hop unknown"
		: i->is_draining ? "draining"
				 : "up",
		addr);
	out_html(p->t, str_from_cstr(i->ifname));
#define X(name, help) cell_count(p->t, i->sum.name);
	HG_BACKEND_COUNTERS(X)
#undef X
	OUT_LIT(p->t, "\n");
	return 0;
}

/* Those that happened, or those that did not. */
static void l4_drops(struct page *p, const struct hg_verdict_counters *v, bool happened)
{
	OUT_LIT(p->t, "<div class=t><table class=\"plain narrow\"><thead><tr>"
		      "<th>Dropped because<th>Packets<th></thead>\n");
	for (unsigned i = 1; i < HG_DROP_COUNT; i++) {
		if (!v->drop[i] == happened)
			continue;
		out_fmt(p->t, "<tr><td>%s", dp_drop_name(i));
		cell_count(p->t, v->drop[i]);
		OUT_LIT(p->t, "<td class=help>");
		out_html(p->t, str_from_cstr(dp_drop_help(i)));
	}
	OUT_LIT(p->t, "</table></div>");
}

static void l4_verdicts(struct page *p)
{
	struct hg_verdict_counters v;
	unsigned n = 0;

	dp_verdicts(p->ctl->dp, &v);
	page_plot(p, STR("kernel tier"), "packets/s",
		  v.verdict[HG_VERDICT_TX] + v.verdict[HG_VERDICT_REDIRECT] +
			  v.verdict[HG_VERDICT_PASS_LOCAL],
		  true);
	page_plot(p, STR("kernel tier"), "drops/s", v.verdict[HG_VERDICT_DROP], true);
	OUT_LIT(p->t, "<div class=t><table class=\"plain narrow\"><thead><tr><th>Verdict<th>Packets"
		      "</thead>\n");
	for (unsigned i = 0; i < HG_VERDICT_COUNT; i++) {
		out_fmt(p->t, "<tr><td>%s", dp_verdict_name(i));
		cell_count(p->t, v.verdict[i]);
	}
	OUT_LIT(p->t, "</table></div>\n");
	for (unsigned i = 1; i < HG_DROP_COUNT; i++)
		n += v.drop[i] != 0;
	if (n)
		l4_drops(p, &v, true);
	out_fmt(p->t, "<details><summary>%u drop reasons that have not been met</summary>",
		HG_DROP_COUNT - 1 - n);
	l4_drops(p, &v, false);
	OUT_LIT(p->t, "</details>");
}

void page_l4(struct page *p)
{
	struct dp *dp = p->ctl->dp;

	if (!dp || !dp_has_kernel_tier(dp))
		return;
	OUT_LIT(p->t, "<section><h2>Kernel tier <small>services</small></h2><div class=t>"
		      "<table class=plain><thead><tr><th>Service<th>Section<th>Mode");
#define X(name, help) OUT_LIT(p->t, "<th>" #name);
	HG_SERVICE_COUNTERS(X)
#undef X
	OUT_LIT(p->t, "</thead>\n");
	(void)dp_each_service(dp, l4_service, p);
	OUT_LIT(p->t, "</table></div></section>\n<section><h2>Kernel tier <small>backends</small>"
		      "</h2><div class=t><table><thead><tr><th>Backend<th>State<th>Address"
		      "<th>Interface");
#define X(name, help) OUT_LIT(p->t, "<th>" #name);
	HG_BACKEND_COUNTERS(X)
#undef X
	OUT_LIT(p->t, "</thead>\n");
	(void)dp_each_backend(dp, l4_backend, p);
	OUT_LIT(p->t, "</table></div></section>\n<section><div class=head><h2>Kernel tier "
		      "<small>packets</small></h2><span class=plots></span></div>");
	l4_verdicts(p);
	OUT_LIT(p->t, "</section>\n");
}
