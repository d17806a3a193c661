/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests that workers hand to the control thread (proxy/service.h), and what building answers
 * needs: text helpers, queries. Control thread.
 */
#ifndef CTL_WEB_H
#define CTL_WEB_H

#include <stdio.h>

#include "ctl/ctl_priv.h"
#include "proxy/service.h"

/* One answer per loop iteration, so that checks and timers keep their turns. */
HG_WUR int web_create(struct ctl *ctl, struct web **ret_web);
/* Refuses what waits and whatever still comes. Before the workers are stopped. */
void web_stop(struct web *w);
void web_destroy(struct web *w);
/* worker_opts.on_service */
void web_ask(struct service_call *c);

/* --- text ------------------------------------------------------------------------------------------ */

#define OUT_LIT(t, lit) service_text_put(t, STR(lit))
void out_cstr(struct service_text *t, const char *s);
void out_u64(struct service_text *t, uint64_t v);
/* At most 512 bytes; longer is cut. */
void out_fmt(struct service_text *t, const char *fmt, ...) HG_PRINTF(2, 3);
void out_html(struct service_text *t, struct str s); /* & < > " ' escaped */
/* Decimal digits of `v` to `out` (20 bytes of room); how many. */
size_t out_digits(char *out, uint64_t v);
/* A stream that appends; NULL: out of memory. fclose() it. */
FILE *out_open(struct service_text *t);

/* --- application/x-www-form-urlencoded ---------------------------------------------------------------- */

struct web_param {
	struct str name, value; /* decoded; value.p NULL: there was no '=' */
};
/*
 * Cuts the next parameter off *query; false at the end. Strings are decoded into `arena`; when it has
 * no memory they end, and ret->name.p is NULL.
 */
bool web_param_next(struct str *query, struct arena *arena, struct web_param *ret);

/* --- answers --------------------------------------------------------------------------------------- */

/* Fill c->status, fields, body. */
void prom_answer(struct ctl *ctl, struct service_call *c);
void page_answer(struct ctl *ctl, struct service_call *c);
/* A short text as the whole answer. */
void web_say(struct service_call *c, unsigned status, const char *text);

#endif
