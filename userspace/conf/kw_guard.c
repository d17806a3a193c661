/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the datapath keeps away: files of denied prefixes, limits per source, and the action that denies
 * a client from then on. Control thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <headgate/live.h>

#include "conf/kw_action_priv.h"

/* --- prefixes --------------------------------------------------------------------------------------- */

int conf_prefix_compare(const void *a, const void *b)
{
	const struct conf_prefix *x = a, *y = b;
	int d = (int)x->is_v6 - (int)y->is_v6;

	if (d == 0)
		d = memcmp(x->addr, y->addr, sizeof(x->addr));
	return d ? d : (int)x->bits - (int)y->bits;
}

struct conf_prefix conf_prefix_of(const struct addr_prefix *p)
{
	struct conf_prefix r = { .bits = p->bits, .is_v6 = p->addr.sa.sa_family == AF_INET6 };

	if (r.is_v6)
		memcpy(r.addr, &p->addr.in6.sin6_addr, 16);
	else
		memcpy(r.addr, &p->addr.in.sin_addr, 4);
	return r;
}

/* What has no effect without a program on some interface, until it is known whether there is one. */
struct guard_use {
	struct list link; /* parser.guards */
	struct line *line;
	unsigned word;
	const char *what;
};

int guard_note_use(struct parser *ps, struct line *l, unsigned word, const char *what)
{
	struct guard_use *u = arena_zalloc(&ps->arena, sizeof(*u));

	if (!u)
		return -ENOMEM;
	*u = (struct guard_use){ .line = l, .word = word, .what = what };
	list_push_back(&ps->guards, &u->link);
	return 0;
}

/* --- xdp deny-file ---------------------------------------------------------------------------------- */

#define MAX_BAD_LINES 20 /* that are shown of one file */

/* What stands in front of a comment, without the blanks around it. */
static struct str deny_text(struct str line)
{
	size_t end = str_find_char(line, '#');

	return str_trim(end == SIZE_MAX ? line : str_sub(line, 0, end));
}

/* The lines of the file behind the `n` prefixes that are there. */
static int deny_lines(struct parser *ps, const char *path, struct str text, struct conf_prefix *to,
		      unsigned *n)
{
	struct conf_pos pos = { .file = path };
	unsigned n_bad = 0;

	while (text.len) {
		struct str s = deny_text(str_cut(&text, '\n'));
		struct addr_prefix p;

		pos.line++;
		if (!s.len)
			continue;
		if (addr_prefix_parse(s, &p) == 0) {
			to[(*n)++] = conf_prefix_of(&p);
			continue;
		}
		pos.column = 1;
		if (conf_fail_pos(ps, &pos,
				  "'" STR_FMT "' is no address or prefix such as 192.0.2.0/24 or "
				  "2001:db8::/32",
				  STR_ARG(str_sub(s, 0, 64))) == -ENOMEM)
			return -ENOMEM;
		if (++n_bad == MAX_BAD_LINES)
			break;
	}
	return n_bad ? -EINVAL : 0;
}

static unsigned count_lines(struct str text)
{
	unsigned n = 0;

	while (text.len) {
		(void)str_cut(&text, '\n');
		n++;
	}
	return n;
}

/* Room for `more` prefixes behind those of the list, which are copied. NULL: out of memory. */
static struct conf_prefix *more_prefixes(struct parser *ps, const struct conf_prefix *list,
					 unsigned n, unsigned more)
{
	struct conf_prefix *all = arena_alloc(&ps->conf->arena, (n + more + 1) * sizeof(*all));

	if (all && n)
		memcpy(all, list, n * sizeof(*all));
	return all;
}

/* In order, each once; how many. */
static unsigned sort_prefixes(struct conf_prefix *all, unsigned n)
{
	unsigned kept = 0;

	qsort(all, n, sizeof(*all), conf_prefix_compare);
	for (unsigned i = 0; i < n; i++)
		if (!kept || conf_prefix_compare(&all[kept - 1], &all[i]) != 0)
			all[kept++] = all[i];
	return kept;
}

/* A file's prefixes into the list. */
static int parse_prefix_file(struct parser *ps, struct line *l, struct conf_prefix **list,
			     unsigned *ret_n)
{
	struct conf_prefix *all;
	struct str text;
	struct err err;
	unsigned n = *ret_n;
	char *path;
	int r = arg_string(ps, l, "a file with prefixes", &path);

	if (r)
		return r;
	r = conf_read_path(ps, &ps->arena, path, &text, &err);
	if (r == -ENOMEM)
		return r;
	if (r)
		return conf_fail(ps, l, l->at - 1, "%s", err.text);
	all = more_prefixes(ps, *list, n, count_lines(text));
	if (!all)
		return -ENOMEM;
	r = deny_lines(ps, path, text, all, &n);
	if (r)
		return r;
	*list = all;
	*ret_n = sort_prefixes(all, n);
	return 0;
}

int parse_deny_file(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_global *g = obj;
	int r = guard_note_use(ps, l, 0, "xdp deny-file");

	return r ? r : parse_prefix_file(ps, l, &g->xdp_deny, &g->n_xdp_deny);
}

int parse_allow_file(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_guard *g = &((struct proxy_build *)obj)->px.guard;
	int r = guard_note_use(ps, l, 0, "xdp allow-file");

	g->has_allow = true;
	return r ? r : parse_prefix_file(ps, l, &g->allow, &g->n_allow);
}

int parse_allow(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_guard *g = &((struct proxy_build *)obj)->px.guard;
	struct conf_prefix *all = more_prefixes(ps, g->allow, g->n_allow, l->n);
	int r = all ? guard_note_use(ps, l, 0, "xdp allow") : -ENOMEM;
	unsigned n = g->n_allow;

	if (r == 0 && !line_has(l))
		r = conf_fail(ps, l, l->at, "'xdp allow' expects addresses or prefixes");
	while (r == 0 && line_has(l)) {
		struct addr_prefix p;

		if (addr_prefix_parse(line_peek(l), &p) != 0)
			return conf_fail(ps, l, l->at,
					 "'" STR_FMT "' is no address or prefix such as "
					 "192.0.2.0/24 or 2001:db8::/32",
					 STR_ARG(str_sub(line_peek(l), 0, 64)));
		all[n++] = conf_prefix_of(&p);
		l->at++;
	}
	if (r)
		return r;
	g->has_allow = true;
	g->allow = all;
	g->n_allow = sort_prefixes(all, n);
	return 0;
}

/* --- xdp guard packet-rate|syn-rate <number>/s [burst <number>] per source, max-conn <number> per source --- */

/* A clock tick is at most a hundredth of a second: a burst shorter than that would be the limit itself. */
#define TICKS_MIN   100u
#define BURST_MAX_S 3600u
#define RATE_MAX    1000000u
#define BURST_MAX   (1ull << 40)

static const struct {
	struct str name;
} limits[] = {
#define X(id, text, help) [HG_LIMIT_##id] = { NAME(text) },
	HG_LIMITS(X)
#undef X
};

/* 200, 50k, 1m: decimal. */
static bool read_count(struct str s, uint64_t max, uint64_t *ret)
{
	uint64_t unit = 1;

	if (s.len && (s.p[s.len - 1] == 'k' || s.p[s.len - 1] == 'm')) {
		unit = s.p[s.len - 1] == 'k' ? 1000 : 1000000;
		s.len--;
	}
	if (str_to_u64(s, ret) || *ret == 0 || *ret > max / unit)
		return false;
	*ret *= unit;
	return true;
}

int guard_read_rate(struct parser *ps, struct line *l, uint32_t *ret)
{
	struct str w;
	uint64_t v;
	int r = line_want(ps, l, "a rate such as 200/s or 50k/s", &w);

	if (r)
		return r;
	if (w.len < 3 || !str_is_eq(str_from(w, w.len - 2), STR("/s")) ||
	    !read_count(str_sub(w, 0, w.len - 2), RATE_MAX, &v))
		return conf_fail(ps, l, l->at - 1,
				 "'xdp guard' expects a rate from 1/s to 1m/s, such as 200/s or "
				 "50k/s, instead of '" STR_FMT "'",
				 STR_ARG(str_sub(w, 0, 64)));
	*ret = (uint32_t)v;
	return 0;
}

static int parse_rate(struct parser *ps, struct line *l, struct conf_xdp_limit *limit)
{
	int r = guard_read_rate(ps, l, &limit->rate);

	limit->burst = limit->rate; /* of a second */
	return r;
}

static int parse_burst(struct parser *ps, struct line *l, struct conf_xdp_limit *limit)
{
	uint64_t least = limit->rate / TICKS_MIN + 1, most = (uint64_t)limit->rate * BURST_MAX_S;
	struct str w;
	int r = line_want(ps, l, "a number of packets", &w);

	if (r)
		return r;
	if (!read_count(w, BURST_MAX, &limit->burst) || limit->burst < least || limit->burst > most)
		return conf_fail(ps, l, l->at - 1,
				 "'burst' expects a number from %llu (a hundredth of a second's "
				 "worth) to %llu (an hour's)",
				 (unsigned long long)least, (unsigned long long)most);
	return 0;
}

static int parse_limit(struct parser *ps, struct line *l, struct conf_xdp_limit *limit)
{
	int r = parse_rate(ps, l, limit);

	return r == 0 && line_accept(l, "burst") ? parse_burst(ps, l, limit) : r;
}

static int parse_max_conn(struct parser *ps, struct line *l, uint32_t *ret)
{
	uint64_t n;
	int r;

	if (*ret)
		return conf_fail(ps, l, l->at - 1, "'xdp guard max-conn' is set twice");
	r = arg_u64(ps, l, 1, HG_LIVE_COUNT_MAX, &n);
	if (r == 0)
		*ret = (uint32_t)n;
	return r;
}

int conf_limit_parse(struct str rate, struct str burst, struct conf_xdp_limit *ret)
{
	struct conf_xdp_limit l = { 0 };
	uint64_t v;

	if (rate.len < 3 || !str_is_eq(str_from(rate, rate.len - 2), STR("/s")) ||
	    !read_count(str_sub(rate, 0, rate.len - 2), RATE_MAX, &v))
		return -EINVAL;
	l.rate = (uint32_t)v;
	l.burst = v;
	if (burst.p && (!read_count(burst, BURST_MAX, &l.burst) || l.burst < v / TICKS_MIN + 1 ||
			l.burst > v * BURST_MAX_S))
		return -ERANGE;
	*ret = l;
	return 0;
}

/* xdp guard syn-rate <number>/s [burst <number>] | max-conn <number> | syn-cookies, in a section: of each of its services. */
int parse_section_guard(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_guard *g = &((struct proxy_build *)obj)->px.guard;
	struct str w;
	int r = guard_note_use(ps, l, 0, "xdp guard");

	if (r == 0)
		r = line_want(ps, l, "'syn-rate', 'max-conn' or 'syn-cookies'", &w);
	if (r)
		return r;
	if (str_is_eq(w, STR("syn-cookies")))
		return parse_section_cookies(ps, l, g);
	if (str_is_eq(w, STR("max-conn")))
		return parse_max_conn(ps, l, &g->max_conn);
	if (!str_is_eq(w, STR("syn-rate")))
		return conf_fail(ps, l, l->at - 1,
				 "'xdp guard' of a section expects 'syn-rate', 'max-conn' or "
				 "'syn-cookies' instead of '" STR_FMT "'",
				 STR_ARG(str_sub(w, 0, 64)));
	if (g->syn_rate.rate)
		return conf_fail(ps, l, l->at - 1, "'xdp guard syn-rate' is set twice");
	return parse_limit(ps, l, &g->syn_rate);
}

void dump_section_guard(FILE *f, const struct conf_guard *g)
{
	if (g->syn_rate.rate)
		fprintf(f, "  xdp guard syn-rate %u/s burst %llu\n", g->syn_rate.rate,
			(unsigned long long)g->syn_rate.burst);
	if (g->max_conn)
		fprintf(f, "  xdp guard max-conn %u\n", g->max_conn);
	if (g->has_cookies)
		fputs("  xdp guard syn-cookies\n", f);
	if (g->has_allow)
		fprintf(f, "  xdp allow: %u prefixes\n", g->n_allow);
}

static int parse_per_source(struct parser *ps, struct line *l)
{
	if (!line_accept(l, "per") || !line_accept(l, "source"))
		return conf_fail(ps, l, l->at, "'xdp guard' expects 'per source' at the end");
	return 0;
}

int parse_guard(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_global *g = obj;
	struct conf_xdp_limit *limit;
	struct str w;
	unsigned i = 0;
	int r = guard_note_use(ps, l, 0, "xdp guard");

	if (r == 0)
		r = line_want(ps, l, "'packet-rate', 'syn-rate', 'max-conn' or 'syn-cookies'", &w);
	if (r)
		return r;
	if (str_is_eq(w, STR("max-conn"))) {
		r = parse_max_conn(ps, l, &g->xdp_max_conn);
		return r ? r : parse_per_source(ps, l);
	}
	if (str_is_eq(w, STR("syn-cookies")))
		return parse_syn_cookies(ps, l, &g->xdp_syn);
	while (i < ARRAY_SIZE(limits) && !str_is_eq(limits[i].name, w))
		i++;
	if (i == ARRAY_SIZE(limits))
		return conf_fail(ps, l, l->at - 1,
				 "'xdp guard' expects 'packet-rate', 'syn-rate', 'max-conn' or "
				 "'syn-cookies' "
				 "instead of '" STR_FMT "'",
				 STR_ARG(str_sub(w, 0, 64)));
	limit = &g->xdp_limits[i];
	if (limit->rate)
		return conf_fail(ps, l, l->at - 1, "'xdp guard " STR_FMT "' is set twice",
				 STR_ARG(w));
	r = parse_limit(ps, l, limit);
	return r ? r : parse_per_source(ps, l);
}

void dump_guard(FILE *f, const struct conf_global *g)
{
	for (unsigned i = 0; i < HG_LIMIT_COUNT; i++)
		if (g->xdp_limits[i].rate)
			fprintf(f, "  xdp guard " STR_FMT " %u/s burst %llu per source\n",
				STR_ARG(limits[i].name), g->xdp_limits[i].rate,
				(unsigned long long)g->xdp_limits[i].burst);
	if (g->xdp_max_conn)
		fprintf(f, "  xdp guard max-conn %u per source\n", g->xdp_max_conn);
	dump_syn_cookies(f, &g->xdp_syn);
	if (g->n_xdp_deny)
		fprintf(f, "  xdp deny-file: %u prefixes\n", g->n_xdp_deny);
}

/* --- xdp-drop, xdp-reset [for <time>] [prefix <bits>[,<bits>]] ------------------------------------------------ */

static int parse_bits(struct parser *ps, struct line *l, struct conf_ban *ban, const char *name)
{
	struct str w, v4;
	uint64_t bits[2] = { ban->bits[0], ban->bits[1] };
	int r = line_want(ps, l, "a prefix length such as 24 or 24,56", &w);

	if (r)
		return r;
	v4 = str_cut(&w, ',');
	if (str_to_u64(v4, &bits[0]) || bits[0] < 8 || bits[0] > 32 ||
	    (w.p && (str_to_u64(w, &bits[1]) || bits[1] < 16 || bits[1] > 128)))
		return conf_fail(ps, l, l->at - 1,
				 "'%s prefix' expects a length from 8 to 32 for IPv4, and "
				 "behind a comma one from 16 to 128 for IPv6",
				 name);
	ban->bits[0] = (uint8_t)bits[0];
	ban->bits[1] = (uint8_t)bits[1];
	return 0;
}

int parse_ban(struct parser *ps, struct line *l, struct conf_rule *rule, bool is_told)
{
	const char *name = is_told ? "xdp-reset" : "xdp-drop";
	struct conf_ban *ban = arena_zalloc(&ps->conf->arena, sizeof(*ban));
	int r = ban ? guard_note_use(ps, l, l->at - 1, name) : -ENOMEM;

	if (r)
		return r;
	*ban = (struct conf_ban){ .bits = { 32, 64 }, .is_told = is_told };
	rule->ban = ban;
	while (r == 0) {
		if (line_accept(l, "for")) {
			r = arg_time(ps, l, 1000000000ull, &ban->ttl_ns);
			if (r == 0 && !ban->ttl_ns)
				r = conf_fail(ps, l, l->at - 1,
					      "'%s for' expects a time above 0; without "
					      "'for' it lasts until it is lifted",
					      name);
		} else if (line_accept(l, "prefix")) {
			r = parse_bits(ps, l, ban, name);
		} else {
			break;
		}
	}
	return r;
}

int finalize_guard(struct parser *ps)
{
	const struct conf_global *g = &ps->conf->global;
	struct list *p;
	int r = 0;

	if (!list_is_empty(&g->xdp_interfaces))
		return finalize_syn_cookies(ps);
	list_for_each(p, &ps->guards) {
		const struct guard_use *u = list_entry(p, struct guard_use, link);
		int e = conf_fail(
			ps, u->line, u->word,
			"'%s' needs an 'xdp interface' in 'global': without one no packet "
			"is dropped",
			u->what);

		if (e == -ENOMEM)
			return e;
		r = e;
	}
	return r;
}
