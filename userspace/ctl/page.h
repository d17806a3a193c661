/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the statistics page share. Control thread; one struct page per request. */
#ifndef CTL_PAGE_H
#define CTL_PAGE_H

#include "ctl/stat_cols.h"
#include "ctl/web.h"

enum page_form {
	PAGE_HTML,
	PAGE_CSV,
	PAGE_JSON,
	PAGE_TYPED,
	PAGE_JSON_SCHEMA,
};

/* Results of an action, as codes in the URL: `;st=DONE`. */
#define PAGE_RESULTS(X)                                                              \
	X(DONE, "Done.")                                                             \
	X(NONE, "Nothing has changed.")                                              \
	X(PART, "Only a part was done: some server names are unknown.")              \
	X(ERRP, "Nothing was done: the action or the backend is unknown.")           \
	X(EXCD, "Nothing was done: too much at once. Try again with fewer servers.") \
	X(DENY, "Nothing was done: not allowed.")                                    \
	X(IVAL, "Nothing was done: the request cannot be understood.")

enum page_result {
#define X(code, text) PAGE_##code,
	PAGE_RESULTS(X)
#undef X
	PAGE_RESULT_COUNT
};
const char *page_result_code(enum page_result r);

struct page {
	struct ctl *ctl;
	struct service_call *c;
	struct service_text *t; /* c->body */
	enum page_form form;
	bool up_only, no_maint, no_refresh;
	struct str scope; /* part of a section's name; empty: all */
	enum page_result result; /* of the action before; PAGE_RESULT_COUNT: none */
	char nonce[33];
	/* while rows pass */
	uint32_t iid;
	bool is_open, has_form; /* a section, and its form */
	struct page_plots {
		const char *section;
		uint64_t rate, errors, time_ms; /* per second; errors since the start */
		bool has_time;
	} plots; /* of the section that is open */
	unsigned n_rows;
};

/* Is this section to be shown: `stats scope`, and what the visitor searches? */
bool page_shows(const struct page *p, const char *section);
/* page_rows.c: sections of the L7 tier, one table each. */
void page_rows(struct page *p);
/* page_l4.c: services, backends, verdicts and drop reasons; nothing without a kernel tier. */
void page_l4(struct page *p);
/* page_admin.c: what the form asks for. */
enum page_result page_act(struct ctl *ctl, struct service_call *c);
/* page_style.c */
extern const char page_css[], page_script[];

/*
 * A small plot over time, drawn by the page's script where the section's <span class=plots> is. `key` is the
 * plot's name over reloads of the page. `is_counter`: the script shows what was added per second.
 */
void page_plot(struct page *p, struct str key, const char *unit, uint64_t value, bool is_counter);
/* 12345 as it is, 1234567 as "1.23M". */
void page_count(struct service_text *t, uint64_t n);
void page_age(struct service_text *t, uint64_t seconds); /* "3h12m" */

#endif
