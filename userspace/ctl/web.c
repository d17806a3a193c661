/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests from workers, in the order they came. What is refused: more than MAX_WAITING at once, and
 * everything while bodies of MAX_HELD bytes are still on their way to slow readers.
 */
#include "ctl/web.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/types.h>

#include "base/mem.h"

#define MAX_WAITING 64
#define MAX_HELD    (128u << 20)

struct web {
	struct ctl *ctl;
	struct list waiting; /* service_call.link */
	unsigned n_waiting;
	struct deferred next;
	bool is_stopping;
};

void web_say(struct service_call *c, unsigned status, const char *text)
{
	service_text_free(&c->body);
	c->status = (uint16_t)status;
	c->n_fields = 0;
	service_add_field(c, "content-type", STR("text/plain"));
	service_add_field(c, "cache-control", STR("no-cache"));
	out_cstr(&c->body, text);
	OUT_LIT(&c->body, "\n");
}

static void web_answer(struct web *w, struct service_call *c)
{
	static void (*const answers[SERVICE_KINDS])(struct ctl *ctl, struct service_call *c) = {
		[SERVICE_STATS] = page_answer,
		[SERVICE_PROMETHEUS] = prom_answer,
	};

	if (w->is_stopping || atomic_load(&w->ctl->shared.service_bytes) > MAX_HELD)
		web_say(c, 503, "Busy.");
	else
		answers[c->kind](w->ctl, c);
	service_answer(c);
}

static void web_next(struct deferred *d)
{
	struct web *w = container_of(d, struct web, next);
	struct list *l = list_pop_front(&w->waiting);

	if (!l)
		return;
	w->n_waiting--;
	web_answer(w, list_entry(l, struct service_call, link));
	if (w->n_waiting)
		loop_defer(w->ctl->loop, &w->next);
}

void web_ask(struct service_call *c)
{
	struct ctl *ctl = worker_owner(c->w);
	struct web *w = ctl->web;

	if (w->is_stopping || w->n_waiting >= MAX_WAITING) {
		web_say(c, 503, "Busy.");
		service_answer(c);
		return;
	}
	list_push_back(&w->waiting, &c->link);
	w->n_waiting++;
	loop_defer(ctl->loop, &w->next);
}

int web_create(struct ctl *ctl, struct web **ret_web)
{
	struct web *w = mem_zalloc(sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->ctl = ctl;
	list_init(&w->waiting);
	deferred_init(&w->next, web_next);
	*ret_web = w;
	return 0;
}

void web_stop(struct web *w)
{
	struct list *l;

	if (!w)
		return;
	w->is_stopping = true;
	loop_undefer(&w->next);
	while ((l = list_pop_front(&w->waiting)))
		web_answer(w, list_entry(l, struct service_call, link));
	w->n_waiting = 0;
}

void web_destroy(struct web *w)
{
	mem_free(w);
}

/* --- text ------------------------------------------------------------------------------------------ */

void out_cstr(struct service_text *t, const char *s)
{
	service_text_put(t, str_from_cstr(s));
}

size_t out_digits(char *out, uint64_t v)
{
	size_t n = 1;

	if (v < 10) { /* most of them are 0 */
		*out = (char)('0' + v);
		return 1;
	}
	for (uint64_t w = v; w >= 10; w /= 10)
		n++;
	for (size_t i = n; i > 0; v /= 10)
		out[--i] = (char)('0' + v % 10);
	return n;
}

void out_u64(struct service_text *t, uint64_t v)
{
	char *p = service_text_reserve(t, 20);

	if (p)
		service_text_commit(t, out_digits(p, v));
}

void out_fmt(struct service_text *t, const char *fmt, ...)
{
	char *p = service_text_reserve(t, 512);
	va_list ap;
	int n;

	if (!p)
		return;
	va_start(ap, fmt);
	n = vsnprintf(p, 512, fmt, ap);
	va_end(ap);
	if (n > 0)
		service_text_commit(t, n < 512 ? (size_t)n : 511);
}

void out_html(struct service_text *t, struct str s)
{
	size_t from = 0;

	for (size_t i = 0; i < s.len; i++) {
		const char *as = s.p[i] == '&'	  ? "&amp;"
				 : s.p[i] == '<'  ? "&lt;"
				 : s.p[i] == '>'  ? "&gt;"
				 : s.p[i] == '"'  ? "&quot;"
				 : s.p[i] == '\'' ? "&#39;"
						  : NULL;

		if (!as)
			continue;
		service_text_put(t, str_sub(s, from, i - from));
		out_cstr(t, as);
		from = i + 1;
	}
	service_text_put(t, str_from(s, from));
}

static ssize_t out_write(void *cookie, const char *p, size_t n)
{
	struct service_text *t = cookie;

	service_text_put(t, str_make(p, n));
	return t->is_failed ? -1 : (ssize_t)n;
}

FILE *out_open(struct service_text *t)
{
	return fopencookie(t, "w", (cookie_io_functions_t){ .write = out_write });
}

/* --- parameters ------------------------------------------------------------------------------------ */

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = str_lower_char(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A '%' without two digits stays as it is. */
static struct str param_decode(struct str s, struct arena *a)
{
	char *out = arena_alloc(a, s.len + 1);
	size_t n = 0;

	if (!out)
		return STR_NULL;
	for (size_t i = 0; i < s.len; i++) {
		int hi = -1, lo = -1;

		if (s.p[i] == '%' && i + 2 < s.len) {
			hi = hex_value(s.p[i + 1]);
			lo = hex_value(s.p[i + 2]);
		}
		if (hi >= 0 && lo >= 0) {
			out[n++] = (char)(hi << 4 | lo);
			i += 2;
		} else {
			out[n++] = s.p[i] == '+' ? ' ' : s.p[i];
		}
	}
	out[n] = '\0';
	return str_make(out, n);
}

bool web_param_next(struct str *query, struct arena *arena, struct web_param *ret)
{
	*ret = (struct web_param){ .name = STR("") };
	while (query->p && query->len) {
		struct str item = str_cut(query, '&'), name;

		if (!item.len)
			continue;
		name = str_cut(&item, '=');
		ret->name = param_decode(name, arena);
		ret->value = item.p ? param_decode(item, arena) : STR_NULL;
		if (item.p && !ret->value.p)
			ret->name = STR_NULL;
		return ret->name.p != NULL;
	}
	return false;
}
