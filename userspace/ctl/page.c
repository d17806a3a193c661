/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `stats uri`: the page and its other forms. What is wanted is written behind the URI (`;csv`, `;up`,
 * `?scope=x`); a POST is an action and is answered with a redirect. Everything that comes from outside
 * goes through out_html().
 */
#include "ctl/page.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "ctl/metrics.h"

static const struct {
	const char *code, *text;
} results[] = {
#define X(code, text) { #code, text },
	PAGE_RESULTS(X)
#undef X
};

const char *page_result_code(enum page_result r)
{
	return results[r].code;
}

/* --- request ----------------------------------------------------------------------------------------- */

static void parse_word(struct page *p, struct str word)
{
	static const struct {
		struct str word;
		enum page_form form;
	} forms[] = {
		{ STR("csv"), PAGE_CSV },
		{ STR("json"), PAGE_JSON },
		{ STR("typed"), PAGE_TYPED },
		{ STR("json-schema"), PAGE_JSON_SCHEMA },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(forms); i++)
		if (str_is_eq(word, forms[i].word))
			p->form = forms[i].form;
	p->up_only |= str_is_eq(word, STR("up"));
	p->no_maint |= str_is_eq(word, STR("no-maint"));
	p->no_refresh |= str_is_eq(word, STR("norefresh"));
	for (unsigned i = 0; i < PAGE_RESULT_COUNT; i++)
		if (str_is_prefix(word, STR("st=")) &&
		    str_is_eq(str_from(word, 3), str_from_cstr(results[i].code)))
			p->result = (enum page_result)i;
}

/* Behind the URI: ";word;word?name=value&name=value", in any mixture. */
static int parse_options(struct page *p)
{
	struct str rest = str_from(p->c->path, p->c->uri.len), words, query;
	size_t at = str_find_char(rest, '?');
	struct web_param param;

	/* A URI with a query of its own ("/haproxy?stats") goes on with '&'. */
	if (at == SIZE_MAX)
		at = str_find_char(rest, '&');
	words = at == SIZE_MAX ? rest : str_sub(rest, 0, at);
	query = at == SIZE_MAX ? STR_NULL : str_from(rest, at + 1);
	while (words.p)
		parse_word(p, str_cut(&words, ';'));
	while (web_param_next(&query, &p->c->arena, &param)) {
		size_t end;

		if (!str_is_eq(param.name, STR("scope")) || !param.value.p)
			continue;
		end = str_find_char(param.value, ';');
		p->scope = end == SIZE_MAX ? param.value : str_sub(param.value, 0, end);
		words = end == SIZE_MAX ? STR_NULL : str_from(param.value, end + 1);
		while (words.p)
			parse_word(p, str_cut(&words, ';'));
	}
	return param.name.p ? 0 : -ENOMEM;
}

/* --- texts for programs -------------------------------------------------------------------------------- */

bool page_shows(const struct page *p, const char *section)
{
	struct str name = str_from_cstr(section), rest = p->c->scopes;
	bool may_see = !rest.len;

	while (rest.p && !may_see)
		may_see = str_is_eq(str_cut(&rest, '\n'), name);
	return may_see && (!p->scope.len || str_find(name, p->scope) != SIZE_MAX);
}

struct text_walk {
	struct page *p;
	FILE *out;
	unsigned n;
};

static int text_row(void *ctx, const struct stat_row *row)
{
	struct text_walk *w = ctx;

	if (!page_shows(w->p, row->v[STAT_PXNAME].str))
		return 0;
	if (w->p->form == PAGE_CSV)
		stat_csv_row(w->out, row);
	else if (w->p->form == PAGE_TYPED)
		stat_typed_row(w->out, row);
	else
		stat_json_row(w->out, row, w->n == 0);
	w->n++;
	return 0;
}

static void page_text(struct page *p)
{
	struct stat_filter f = {
		.iid = -1, .sid = -1, .types = ~0u, .up_only = p->up_only, .no_maint = p->no_maint
	};
	struct text_walk w = { .p = p, .out = out_open(p->t) };

	if (!w.out) {
		p->t->is_failed = true;
		return;
	}
	if (p->form == PAGE_JSON_SCHEMA) {
		stat_schema(w.out);
		p->t->is_failed |= fclose(w.out) != 0;
		return;
	}
	if (p->form == PAGE_CSV)
		stat_csv_header(w.out);
	else if (p->form == PAGE_JSON)
		putc('[', w.out);
	(void)stat_each_row(p->ctl, &f, text_row, &w);
	if (p->form == PAGE_JSON)
		fputs("]\n", w.out);
	if (fclose(w.out) != 0)
		p->t->is_failed = true;
}

/* --- the page ------------------------------------------------------------------------------------------ */

void page_count(struct service_text *t, uint64_t n)
{
	static const char units[] = "kMGTPE";
	unsigned u = 0;
	uint64_t whole = n, part = 0;

	if (n < 100000) {
		out_u64(t, n);
		return;
	}
	for (; whole >= 1000; u++) {
		part = whole % 1000;
		whole /= 1000;
	}
	if (whole >= 100)
		out_fmt(t, "%u%c", (unsigned)whole, units[u - 1]);
	else if (whole >= 10)
		out_fmt(t, "%u.%u%c", (unsigned)whole, (unsigned)part / 100, units[u - 1]);
	else
		out_fmt(t, "%u.%02u%c", (unsigned)whole, (unsigned)part / 10, units[u - 1]);
}

void page_age(struct service_text *t, uint64_t s)
{
	if (s >= 86400)
		out_fmt(t, "%llud%lluh", (unsigned long long)s / 86400,
			(unsigned long long)s / 3600 % 24);
	else if (s >= 3600)
		out_fmt(t, "%uh%um", (unsigned)s / 3600, (unsigned)s / 60 % 60);
	else if (s >= 60)
		out_fmt(t, "%um%us", (unsigned)s / 60, (unsigned)s % 60);
	else
		out_fmt(t, "%us", (unsigned)s);
}

void page_plot(struct page *p, struct str key, const char *unit, uint64_t value, bool is_counter)
{
	OUT_LIT(p->t, "<i hidden data-k=\"");
	out_html(p->t, key);
	out_fmt(p->t, " %s\" data-u=\"%s\"%s data-v=\"%llu\"></i>", unit, unit,
		is_counter ? " data-c=1" : "", (unsigned long long)value);
}

static void fact(struct service_text *t, const char *name, uint64_t n, const char *unit)
{
	out_fmt(t, "<div><dt>%s<dd>", name);
	page_count(t, n);
	out_fmt(t, "%s</div>", unit);
}

static void page_facts(struct page *p)
{
	const struct process_rates *r = metrics_process(p->ctl->metrics);
	struct service_text *t = p->t;
	struct hg_worker_counters sum;

	metrics_worker_sum(p->ctl, &sum);
	page_plot(p, STR("process"), "connections/s", r->connections.now, false);
	page_plot(p, STR("process"), "bytes/s", r->bytes_out.now, false);
	OUT_LIT(t, "<div class=head><dl><div><dt>up<dd>");
	page_age(t, (loop_now(p->ctl->loop) - p->ctl->start_mono_ns) / 1000000000ull);
	OUT_LIT(t, "</div>");
	fact(t, "process", (uint64_t)getpid(), "");
	fact(t, "workers", p->ctl->n_workers, "");
	fact(t, "connections", atomic_load(&p->ctl->shared.cur_conns), "");
	fact(t, "of at most", atomic_load(&p->ctl->shared.maxconn), "");
	fact(t, "accepted", r->connections.now, "/s");
	fact(t, "requests", sum.requests, "");
	fact(t, "sent", r->bytes_out.now, " B/s");
	fact(t, "idle", r->idle_percent, "%");
	OUT_LIT(t, "</dl><span class=plots></span></div>");
}

static void page_link(struct page *p, bool up_only, bool no_maint, const char *more,
		      const char *text)
{
	OUT_LIT(p->t, "<a href=\"");
	out_html(p->t, p->c->uri);
	if (up_only)
		OUT_LIT(p->t, ";up");
	if (no_maint)
		OUT_LIT(p->t, ";no-maint");
	out_fmt(p->t, "%s%s\">%s</a> ", p->no_refresh && !*more ? ";norefresh" : "", more, text);
}

static void page_nav(struct page *p)
{
	OUT_LIT(p->t, "<nav>");
	page_link(p, p->up_only, p->no_maint, "", "Refresh");
	page_link(p, !p->up_only, p->no_maint, "", p->up_only ? "All servers" : "Only servers up");
	page_link(p, p->up_only, !p->no_maint, "",
		  p->no_maint ? "With maintenance" : "Without maintenance");
	page_link(p, p->up_only, p->no_maint, ";csv", "CSV");
	page_link(p, p->up_only, p->no_maint, ";json", "JSON");
	/* A form would replace the query of a URI that has one. */
	if (str_find_char(p->c->uri, '?') == SIZE_MAX) {
		OUT_LIT(p->t, "<form method=get action=\"");
		out_html(p->t, p->c->uri);
		OUT_LIT(p->t, "\"><input name=scope size=12 aria-label=\"Part of a name\" "
			      "placeholder=\"name\" value=\"");
		out_html(p->t, p->scope);
		OUT_LIT(p->t, "\"> <button>Filter</button></form>");
	}
	OUT_LIT(p->t, "</nav>");
}

static void page_header(struct page *p)
{
	const struct conf_global *g = &p->ctl->current->conf->global;
	struct service_text *t = p->t;
	char host[256] = "";

	OUT_LIT(t, "<header><h1>Headgate");
	if (!p->c->hide_version)
		OUT_LIT(t, " <span>" HG_VERSION "</span>");
	if (p->c->show_node) {
		if (gethostname(host, sizeof(host) - 1) != 0)
			host[0] = '\0';
		OUT_LIT(t, " <span>on ");
		out_html(t, p->c->node.p ? p->c->node : str_from_cstr(g->node ? g->node : host));
		OUT_LIT(t, "</span>");
	}
	OUT_LIT(t, "</h1>");
	if (p->c->show_desc) {
		OUT_LIT(t, "<div class=dim>");
		out_html(t, p->c->desc.len ? p->c->desc : str_from_cstr(g->description));
		OUT_LIT(t, "</div>");
	}
	page_nav(p);
	OUT_LIT(t, "</header>\n");
}

static void page_make_nonce(struct page *p)
{
	uint8_t raw[16];

	if (getrandom(raw, sizeof(raw), GRND_NONBLOCK) != (ssize_t)sizeof(raw)) {
		/* Then there is no script, and the page works without. */
		p->nonce[0] = '\0';
		return;
	}
	for (unsigned i = 0; i < sizeof(raw); i++)
		snprintf(p->nonce + 2 * i, 3, "%02x", raw[i]);
}

static void page_html(struct page *p)
{
	struct service_text *t = p->t;
	uint64_t refresh = p->c->refresh_ns / 1000000000ull;

	OUT_LIT(t, "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport "
		   "content=\"width=device-width,initial-scale=1\"><title>Statistics</title>");
	if (refresh && !p->no_refresh)
		out_fmt(t, "<noscript><meta http-equiv=refresh content=\"%llu\"></noscript>",
			(unsigned long long)refresh);
	OUT_LIT(t, "<style>\n");
	out_cstr(t, page_css);
	out_fmt(t, "</style></head>\n<body data-refresh=\"%llu\"%s>\n", (unsigned long long)refresh,
		p->no_refresh ? " data-still=1" : "");
	page_header(p);
	if (p->result < PAGE_RESULT_COUNT)
		out_fmt(t, "<aside class=\"note%s\" role=status>%s</aside>\n",
			p->result == PAGE_DONE ? "" : " err", results[p->result].text);
	OUT_LIT(t, "<main>\n<section>");
	page_facts(p);
	OUT_LIT(t, "</section>\n");
	page_rows(p);
	page_l4(p);
	OUT_LIT(t, "</main>\n");
	if (p->nonce[0]) {
		out_fmt(t, "<script nonce=\"%s\">", p->nonce);
		out_cstr(t, page_script);
		OUT_LIT(t, "</script>");
	}
	OUT_LIT(t, "</body></html>\n");
}

/* --- the answer ---------------------------------------------------------------------------------------- */

static void page_redirect(struct page *p, enum page_result r)
{
	struct service_call *c = p->c;
	struct str to = arena_printf(&c->arena, STR_FMT ";st=%s%s%s%s", STR_ARG(c->uri),
				     page_result_code(r), p->up_only ? ";up" : "",
				     p->no_maint ? ";no-maint" : "",
				     p->no_refresh ? ";norefresh" : "");

	if (!to.p) {
		p->t->is_failed = true;
		return;
	}
	c->status = 303;
	service_add_field(c, "location", to);
	service_add_field(c, "cache-control", STR("no-cache"));
	service_add_field(c, "content-type", STR("text/plain"));
}

static void page_fields(struct page *p)
{
	static const struct str types[] = {
		[PAGE_HTML] = STR("text/html; charset=utf-8"), [PAGE_CSV] = STR("text/plain"),
		[PAGE_JSON] = STR("application/json"),	       [PAGE_TYPED] = STR("text/plain"),
		[PAGE_JSON_SCHEMA] = STR("application/json"),
	};
	struct service_call *c = p->c;

	c->status = 200;
	service_add_field(c, "content-type", types[p->form]);
	service_add_field(c, "cache-control", STR("no-cache, no-store"));
	service_add_field(c, "x-content-type-options", STR("nosniff"));
	if (p->form != PAGE_HTML)
		return;
	service_add_field(c, "content-security-policy",
			  arena_printf(&c->arena,
				       "default-src 'none'; style-src 'unsafe-inline'; script-src "
				       "'nonce-%s'; connect-src 'self'; form-action 'self'; "
				       "base-uri 'none'; frame-ancestors 'none'",
				       p->nonce));
	service_add_field(c, "referrer-policy", STR("same-origin"));
}

void page_answer(struct ctl *ctl, struct service_call *c)
{
	struct page p = { .ctl = ctl, .c = c, .t = &c->body, .result = PAGE_RESULT_COUNT };

	if (parse_options(&p) != 0) {
		web_say(c, 503, "Out of memory.");
		return;
	}
	if (c->method == HTTP_METHOD_POST) {
		page_redirect(&p, page_act(ctl, c));
		return;
	}
	if (c->method != HTTP_METHOD_GET && c->method != HTTP_METHOD_HEAD) {
		web_say(c, 405, "Only GET, HEAD and POST.");
		service_add_field(c, "allow", STR("GET, HEAD, POST"));
		return;
	}
	page_make_nonce(&p);
	page_fields(&p);
	if (p.form == PAGE_HTML)
		page_html(&p);
	else
		page_text(&p);
}
