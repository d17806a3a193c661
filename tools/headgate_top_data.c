/* SPDX-License-Identifier: BSD-2-Clause */
/* `headgate top`: a sample of the daemon as tables of texts that can be sorted. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "headgate_top.h"

const char *const top_view_names[VIEW_COUNT] = { "services", "servers", "queues", "workers",
						 "drops" };

/* --- cells --------------------------------------------------------------------------------------- */

static struct top_line *add_line(struct top_table *t)
{
	if (t->n == t->cap) {
		unsigned cap = t->cap ? t->cap * 2 : 64;
		struct top_line *more = mem_realloc(t->lines, cap * sizeof(*more));

		if (!more)
			return NULL;
		t->lines = more;
		t->cap = cap;
	}
	t->lines[t->n] = (struct top_line){ 0 };
	return &t->lines[t->n++];
}

static void put_text(struct top_cell *c, const char *text)
{
	size_t len = strlen(text);

	/* Of what is too long the end tells more. */
	if (len >= sizeof(c->text))
		text += len - sizeof(c->text) + 1;
	memcpy(c->text, text, strlen(text) + 1);
}

/* 12345 as it is, 1234567 as 1.23M. */
static void put_number(struct top_cell *c, double v)
{
	static const char units[] = " kMGTPE";
	unsigned u = 0;

	c->sort = v;
	while (v >= 99999.5 && u < sizeof(units) - 2) {
		v /= 1000;
		u++;
	}
	snprintf(c->text, sizeof(c->text), u ? "%.*f%c" : "%.*f",
		 u == 0	   ? 0
		 : v < 10  ? 2
		 : v < 100 ? 1
			   : 0,
		 v, units[u]);
}

static double number(const struct top_stat *s, enum top_field f)
{
	return strtod(s->v[f], NULL);
}

static const struct top_stat *find_before(const struct top_sample *before, unsigned hint,
					  const struct top_stat *s)
{
	for (unsigned n = 0; n < before->n_stats; n++) {
		const struct top_stat *b = &before->stats[(hint + n) % before->n_stats];

		if (strcmp(b->v[TOP_PX], s->v[TOP_PX]) == 0 &&
		    strcmp(b->v[TOP_SV], s->v[TOP_SV]) == 0)
			return b;
	}
	return NULL;
}

struct fill {
	struct top_table *t;
	const struct top_sample *now, *before;
	double seconds; /* between them; 0: no rates yet */
};

/* Growth per second; counters that went back have been cleared. */
static double growth(const struct fill *f, double now, double before)
{
	return f->seconds > 0 && now > before ? (now - before) / f->seconds : 0;
}

static double rate(const struct fill *f, const struct top_stat *now, const struct top_stat *before,
		   enum top_field field)
{
	return before ? growth(f, number(now, field), number(before, field)) : 0;
}

/* --- views --------------------------------------------------------------------------------------- */

static const struct top_col service_cols[] = {
	{ "SERVICE", -26 }, { "TYPE", -9 }, { "STATUS", -8 }, { "CONNS", 7 },
	{ "REQ/S", 7 },	    { "IN/S", 8 },  { "OUT/S", 8 },   { "QUEUE", 6 },
	{ "4XX/S", 6 },	    { "5XX/S", 6 }, { "ERR/S", 6 },   { "TIME ms", 8 },
};
static const struct top_col server_cols[] = {
	{ "SERVER", -30 }, { "STATUS", -18 }, { "CHECK", -7 }, { "WEIGHT", 6 },
	{ "CONNS", 6 },	   { "QUEUE", 6 },    { "REQ/S", 7 },  { "IN/S", 8 },
	{ "OUT/S", 8 },	   { "5XX/S", 6 },    { "ERR/S", 6 },  { "TIME ms", 8 },
};
static const struct top_col queue_cols[] = {
	{ "WAITING FOR", -30 }, { "STATUS", -18 }, { "NOW", 7 },     { "MOST", 7 },
	{ "CONNS", 7 },		{ "LIMIT", 7 },	   { "WAIT ms", 8 }, { "RETRY/S", 8 },
};
static const struct top_col worker_cols[] = {
	{ "THREAD", -14 }, { "BUSY %", 7 }, { "CONNS", 8 },    { "TLS", 8 },
	{ "STREAMS", 8 },  { "REQ/S", 9 },  { "EVENTS/S", 9 }, { "LOOPS/S", 9 },
};
static const struct top_col drop_cols[] = {
	{ "VERDICT OR REASON", -18 },
	{ "PER S", 10 },
	{ "ALL", 12 },
	{ "", -60 },
};

static const struct {
	const struct top_col *cols;
	unsigned n;
} views[VIEW_COUNT] = {
	[VIEW_SERVICES] = { service_cols, ARRAY_SIZE(service_cols) },
	[VIEW_SERVERS] = { server_cols, ARRAY_SIZE(server_cols) },
	[VIEW_QUEUES] = { queue_cols, ARRAY_SIZE(queue_cols) },
	[VIEW_WORKERS] = { worker_cols, ARRAY_SIZE(worker_cols) },
	[VIEW_DROPS] = { drop_cols, ARRAY_SIZE(drop_cols) },
};

const struct top_col *top_columns(enum top_view v, unsigned *ret_n)
{
	*ret_n = views[v].n;
	return views[v].cols;
}

static void line_state(struct top_line *l, const struct top_stat *s)
{
	const char *status = s->v[TOP_STATUS];

	l->stat = s;
	l->is_bad = strncmp(status, "DOWN", 4) == 0;
	l->is_off = strncmp(status, "MAINT", 5) == 0 || strncmp(status, "DRAIN", 5) == 0 ||
		    strcmp(status, "STOP") == 0;
}

static void service_line(const struct fill *f, struct top_line *l, const struct top_stat *s,
			 const struct top_stat *b)
{
	struct top_cell *c = l->cells;
	bool is_front = strcmp(s->v[TOP_SV], "FRONTEND") == 0;

	snprintf(l->name, sizeof(l->name), "%s", s->v[TOP_PX]);
	line_state(l, s);
	put_text(c++, s->v[TOP_PX]);
	put_text(c++, is_front ? "frontend" : "backend");
	put_text(c++, s->v[TOP_STATUS]);
	put_number(c++, number(s, TOP_SCUR));
	put_number(c++, number(s, s->v[TOP_REQ_RATE][0] ? TOP_REQ_RATE : TOP_RATE));
	put_number(c++, rate(f, s, b, TOP_BIN));
	put_number(c++, rate(f, s, b, TOP_BOUT));
	put_number(c++, number(s, TOP_QCUR));
	put_number(c++, rate(f, s, b, TOP_H4XX));
	put_number(c++, rate(f, s, b, TOP_H5XX));
	put_number(c++,
		   rate(f, s, b, TOP_EREQ) + rate(f, s, b, TOP_ECON) + rate(f, s, b, TOP_ERESP));
	put_number(c++, number(s, TOP_TTIME));
}

static void server_line(const struct fill *f, struct top_line *l, const struct top_stat *s,
			const struct top_stat *b)
{
	struct top_cell *c = l->cells;

	snprintf(l->name, sizeof(l->name), "%s/%s", s->v[TOP_PX], s->v[TOP_SV]);
	l->is_server = true;
	line_state(l, s);
	put_text(c++, l->name);
	put_text(c++, s->v[TOP_STATUS]);
	put_text(c++, s->v[TOP_CHECK]);
	put_number(c++, number(s, TOP_WEIGHT));
	put_number(c++, number(s, TOP_SCUR));
	put_number(c++, number(s, TOP_QCUR));
	put_number(c++, number(s, TOP_RATE));
	put_number(c++, rate(f, s, b, TOP_BIN));
	put_number(c++, rate(f, s, b, TOP_BOUT));
	put_number(c++, rate(f, s, b, TOP_H5XX));
	put_number(c++, rate(f, s, b, TOP_ECON) + rate(f, s, b, TOP_ERESP));
	put_number(c++, number(s, TOP_TTIME));
}

static void queue_line(const struct fill *f, struct top_line *l, const struct top_stat *s,
		       const struct top_stat *b)
{
	struct top_cell *c = l->cells;

	l->is_server = strcmp(s->v[TOP_SV], "BACKEND") != 0;
	snprintf(l->name, sizeof(l->name), "%s%s%s", s->v[TOP_PX], l->is_server ? "/" : "",
		 l->is_server ? s->v[TOP_SV] : "");
	line_state(l, s);
	l->is_bad |= number(s, TOP_QCUR) > 0;
	put_text(c++, l->name);
	put_text(c++, s->v[TOP_STATUS]);
	put_number(c++, number(s, TOP_QCUR));
	put_number(c++, number(s, TOP_QMAX));
	put_number(c++, number(s, TOP_SCUR));
	put_number(c++, number(s, TOP_SLIM));
	put_number(c++, number(s, TOP_QTIME));
	put_number(c++, rate(f, s, b, TOP_WRETR));
}

static bool is_in_view(enum top_view v, const struct top_stat *s)
{
	bool is_front = strcmp(s->v[TOP_SV], "FRONTEND") == 0;
	bool is_back = strcmp(s->v[TOP_SV], "BACKEND") == 0;

	if (v == VIEW_SERVICES)
		return is_front || is_back;
	if (v == VIEW_SERVERS)
		return strcmp(s->v[TOP_TYPE], "2") == 0;
	return is_back || strcmp(s->v[TOP_TYPE], "2") == 0;
}

static int fill_stats(struct fill *f, enum top_view v)
{
	static void (*const lines[])(const struct fill *f, struct top_line *l,
				     const struct top_stat *s, const struct top_stat *b) = {
		[VIEW_SERVICES] = service_line,
		[VIEW_SERVERS] = server_line,
		[VIEW_QUEUES] = queue_line,
	};

	for (unsigned i = 0; i < f->now->n_stats; i++) {
		const struct top_stat *s = &f->now->stats[i];
		struct top_line *l;

		if (!is_in_view(v, s))
			continue;
		l = add_line(f->t);
		if (!l)
			return -ENOMEM;
		lines[v](f, l, s, find_before(f->before, i, s));
	}
	return 0;
}

/* The word at this place of a line, counted from 0. */
static struct str word_at(struct str line, unsigned n)
{
	struct str word = STR_NULL;

	for (unsigned i = 0; i <= n; i++) {
		line = str_trim(line);
		if (!line.len)
			return STR_NULL;
		word = str_cut(&line, ' ');
	}
	return word;
}

static double value_of(struct str word)
{
	uint64_t v;

	return word.len && str_to_u64(word, &v) == 0 ? (double)v : 0;
}

/* Services of the kernel tier, by the titles above their columns. */
struct l4_columns {
	unsigned conns, packets, bytes, dropped;
};

static struct l4_columns l4_columns(struct str title)
{
	struct l4_columns c = { 0 };

	for (unsigned i = 1;; i++) {
		struct str w = word_at(title, i);

		if (!w.len)
			return c;
		/* The title has a '#' before the first name. */
		if (str_is_eq(w, STR("conns")))
			c.conns = i - 1;
		else if (str_is_eq(w, STR("packets")))
			c.packets = i - 1;
		else if (str_is_eq(w, STR("bytes")))
			c.bytes = i - 1;
		else if (str_is_eq(w, STR("dropped")))
			c.dropped = i - 1;
	}
}

static struct str l4_line_of(const struct top_sample *s, struct str key)
{
	struct str rest = s->l4, line;

	while (rest.p && rest.len) {
		line = str_cut(&rest, '\n');
		if (str_is_eq(word_at(line, 0), key))
			return line;
	}
	return STR_NULL;
}

static int fill_l4_services(struct fill *f)
{
	struct str rest = f->now->l4, title = str_cut(&rest, '\n'), line, was;
	struct l4_columns at = l4_columns(title);

	if (!str_is_prefix(title, STR("# service")))
		return 0; /* no kernel tier */
	while (rest.p && rest.len) {
		struct top_line *l;
		struct top_cell *c;

		line = str_cut(&rest, '\n');
		if (str_is_prefix(line, STR("#")))
			break;
		/* Those of the L7 tier are shown above, by their sections. */
		if (str_is_eq(word_at(line, 2), STR("local")) ||
		    str_is_eq(word_at(line, 2), STR("addr")))
			continue;
		l = add_line(f->t);
		if (!l)
			return -ENOMEM;
		was = l4_line_of(f->before, word_at(line, 0));
		c = l->cells;
		snprintf(l->name, sizeof(l->name), STR_FMT, STR_ARG(word_at(line, 0)));
		snprintf(c[0].text, sizeof(c[0].text), STR_FMT, STR_ARG(word_at(line, 0)));
		snprintf(c[1].text, sizeof(c[1].text), STR_FMT, STR_ARG(word_at(line, 2)));
		put_text(&c[2], "L4");
		put_number(&c[3], value_of(word_at(line, at.conns)));
		put_number(&c[4], growth(f, value_of(word_at(line, at.packets)),
					 value_of(word_at(was, at.packets))));
		put_number(&c[5], growth(f, value_of(word_at(line, at.bytes)),
					 value_of(word_at(was, at.bytes))));
		put_number(&c[10], growth(f, value_of(word_at(line, at.dropped)),
					  value_of(word_at(was, at.dropped))));
	}
	return 0;
}

/* "key=123" in a line of `show threads`. */
static double pair_of(struct str line, const char *key)
{
	size_t len = strlen(key);

	for (unsigned i = 0;; i++) {
		struct str w = word_at(line, i);

		if (!w.p)
			return 0;
		if (w.len > len && memcmp(w.p, key, len) == 0 && w.p[len] == '=')
			return value_of(str_from(w, len + 1));
	}
}

static int fill_workers(struct fill *f)
{
	static const char *const rates[] = { "requests", "events", "iterations" };
	struct str now = f->now->threads, was = f->before->threads;

	while (now.p && now.len) {
		struct str line = str_cut(&now, '\n'), old = was.p ? str_cut(&was, '\n') : STR_NULL;
		struct top_line *l = add_line(f->t);
		struct top_cell *c;
		double busy = pair_of(line, "busy_ms") - pair_of(old, "busy_ms");

		if (!l)
			return -ENOMEM;
		c = l->cells;
		line = str_from(line, str_find(line, STR("Thread ")) + 7);
		snprintf(l->name, sizeof(l->name), STR_FMT,
			 STR_ARG(str_trim(str_sub(line, 0, str_find_char(line, ':')))));
		put_text(c++, l->name);
		put_number(c++, f->seconds > 0 && old.p ? busy / 10 / f->seconds : 0);
		put_number(c++, pair_of(line, "conns"));
		put_number(c++, pair_of(line, "ssl_conns"));
		put_number(c++, pair_of(line, "streams"));
		for (unsigned i = 0; i < ARRAY_SIZE(rates); i++)
			put_number(c++, old.p ? growth(f, pair_of(line, rates[i]),
						       pair_of(old, rates[i]))
					      : 0);
		l->is_bad = l->cells[1].sort > 95;
	}
	return 0;
}

static int fill_drops(struct fill *f)
{
	size_t at = str_find(f->now->l4, STR("# verdicts\n"));
	struct str rest = str_from(f->now->l4, at == SIZE_MAX ? f->now->l4.len : at + 11);

	while (rest.p && rest.len) {
		struct str line = str_cut(&rest, '\n'), name = word_at(line, 0), was;
		size_t help = str_find_char(line, '(');
		struct top_line *l;

		if (!name.len)
			continue;
		l = add_line(f->t);
		if (!l)
			return -ENOMEM;
		was = l4_line_of(f->before, name);
		snprintf(l->name, sizeof(l->name), STR_FMT, STR_ARG(name));
		put_text(&l->cells[0], l->name);
		put_number(&l->cells[1],
			   was.p ? growth(f, value_of(word_at(line, 1)), value_of(word_at(was, 1)))
				 : 0);
		put_number(&l->cells[2], value_of(word_at(line, 1)));
		l->is_bad = str_is_prefix(line, STR(" ")) && l->cells[1].sort > 0;
		if (help != SIZE_MAX)
			snprintf(l->cells[3].text, sizeof(l->cells[3].text), STR_FMT,
				 STR_ARG(str_sub(line, help + 1, line.len - help - 2)));
	}
	return 0;
}

int top_fill(struct top_table *t, enum top_view v, const struct top_sample *now,
	     const struct top_sample *before)
{
	struct fill f = { .t = t, .now = now, .before = before };
	int rc;

	t->n = 0;
	if (before->ns && now->ns > before->ns)
		f.seconds = (double)(now->ns - before->ns) / 1e9;
	if (v == VIEW_WORKERS)
		return fill_workers(&f);
	if (v == VIEW_DROPS)
		return fill_drops(&f);
	rc = fill_stats(&f, v);
	return rc == 0 && v == VIEW_SERVICES ? fill_l4_services(&f) : rc;
}

/* --- order --------------------------------------------------------------------------------------- */

static struct {
	unsigned col;
	bool is_text, is_reverse;
} order;

static int compare(const void *pa, const void *pb)
{
	const struct top_line *a = pa, *b = pb;
	const struct top_cell *ca = &a->cells[order.col], *cb = &b->cells[order.col];
	int r = order.is_text	       ? strcmp(ca->text, cb->text)
		: ca->sort == cb->sort ? 0
		: ca->sort > cb->sort  ? -1 /* the largest first */
				       : 1;

	if (order.is_reverse)
		r = -r;
	return r ? r : strcmp(a->name, b->name);
}

void top_sort(struct top_table *t, enum top_view v, unsigned col, bool is_reverse)
{
	order.col = col;
	order.is_text = views[v].cols[col].width < 0;
	order.is_reverse = is_reverse;
	if (t->n)
		qsort(t->lines, t->n, sizeof(*t->lines), compare);
}
