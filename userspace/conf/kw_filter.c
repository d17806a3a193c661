/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `filter bwlim-in|bwlim-out`: how fast bodies may go, and the action that says for which streams. What names a
 * filter or a table is looked up when all sections are known. Control thread, configuration's arena.
 */
#include <errno.h>

#include "conf/kw_action_priv.h"

#define MS 1000000ull

static int want_limit(struct parser *ps, struct line *l, uint64_t *ret)
{
	int r = arg_size(ps, l, ret);

	if (r == 0 && !*ret)
		return conf_fail(ps, l, l->at - 1, "expected a size from 1");
	return r;
}

static int want_period(struct parser *ps, struct line *l, uint32_t *ret_ms)
{
	uint64_t ns;
	int r = arg_time(ps, l, MS, &ns);

	if (r == 0 && (ns < MS || ns > BWLIM_PERIOD_MAX_MS * MS))
		return conf_fail(ps, l, l->at - 1, "expected a time from 1ms to 24d");
	if (r == 0)
		*ret_ms = (uint32_t)(ns / MS);
	return r;
}

/* --- filter ------------------------------------------------------------------------------------ */

struct filter_words { /* which of them were there */
	bool has_limit, has_default;
};

static int filter_word(struct parser *ps, struct line *l, struct proxy_build *b,
		       struct conf_bwlim *f, struct filter_words *w)
{
	uint64_t size;
	int r;

	if (line_accept(l, "default-limit")) {
		w->has_default = true;
		return want_limit(ps, l, &f->limit);
	}
	if (line_accept(l, "default-period")) {
		w->has_default = true;
		return want_period(ps, l, &f->period_ms);
	}
	if (line_accept(l, "limit")) {
		w->has_limit = true;
		return want_limit(ps, l, &f->limit);
	}
	if (line_accept(l, "key"))
		return compile_expr(ps, b, l, PLACE_REQ | PLACE_CONTENT, &f->key);
	if (line_accept(l, "table"))
		return arg_string(ps, l, "the name of a section with a table", &f->table_name);
	if (line_accept(l, "min-size")) {
		r = arg_size(ps, l, &size);
		if (r == 0 && size > UINT32_MAX)
			return conf_fail(ps, l, l->at - 1, "expected a size of at most %u",
					 UINT32_MAX);
		f->min_size = (uint32_t)size;
		return r;
	}
	return conf_fail(ps, l, l->at,
			 "a bandwidth limit expects default-limit, default-period, limit, key, "
			 "table or min-size instead of '" STR_FMT "'",
			 STR_ARG(str_sub(line_peek(l), 0, 64)));
}

static int check_words(struct parser *ps, struct line *l, const struct conf_bwlim *f,
		       const struct filter_words *w)
{
	if (f->key ? w->has_default || !w->has_limit
		   : w->has_limit || f->table_name || !f->limit || !f->period_ms)
		return conf_fail(ps, l, l->n,
				 f->key ? "a shared bandwidth limit is 'limit <size> key "
					  "<expression> [table <name>]'"
					: "a bandwidth limit is 'default-limit <size> "
					  "default-period <time>', or with 'limit' and 'key' one "
					  "that streams share");
	if (!f->key && f->min_size > f->limit)
		return conf_fail(ps, l, l->n, "'min-size' exceeds the limit");
	return 0;
}

static struct conf_bwlim *find_filter(const struct conf_proxy *px, const char *name)
{
	struct list *p;

	list_for_each(p, &px->bwlims) {
		struct conf_bwlim *f = list_entry(p, struct conf_bwlim, link);

		if (!strcmp(f->name, name))
			return f;
	}
	return NULL;
}

/* kw->min: of what the client sends. */
static int parse_bwlim(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_bwlim *f = arena_zalloc(&ps->conf->arena, sizeof(*f)), *other;
	struct filter_words w = { .has_limit = false };
	struct proxy_build *b = obj;
	int r;

	if (!f)
		return -ENOMEM;
	f->pos = l->pos;
	f->is_in = kw->min;
	r = arg_string(ps, l, "the name of the filter", &f->name);
	if (r)
		return r;
	other = find_filter(&b->px, f->name);
	if (other)
		return conf_fail(ps, l, l->at - 1,
				 "there is a filter '%.64s' in this section already, in line %u",
				 f->name, other->pos.line);
	while (r == 0 && line_has(l))
		r = filter_word(ps, l, b, f, &w);
	if (r == 0)
		r = check_words(ps, l, f, &w);
	if (r == 0)
		list_push_back(&b->px.bwlims, &f->link);
	return r;
}

#define BWLIM_ARGS                                                                            \
	"<name> default-limit <size> default-period <time> [min-size <size>] | <name> limit " \
	"<size> key <expression> [table <name>] [min-size <size>]"

static const struct keyword rows[] = {
	{ NAME("bwlim-in"), SEC_FLB, ARG_FUNC, KW_LATE, .parse = parse_bwlim, .min = 1,
	  .grade = '2', .args = BWLIM_ARGS,
	  .help = "bytes per period that clients may send; with 'key' of all streams with the same "
		  "key together, by the table's bytes_in_rate" },
	{ NAME("bwlim-out"), SEC_FLB, ARG_FUNC, KW_LATE, .parse = parse_bwlim, .grade = '2',
	  .args = BWLIM_ARGS, .help = "the same of what clients get, by bytes_out_rate" },
};
static const char *const noop[] = { "compression", NULL };
static const char *const refused[] = { "trace",		"spoe",	       "cache",	   "fcgi-app",
				       "lua.*",		"opentracing", "comp-req", "comp-res",
				       "opentelemetry", NULL };
const struct keyword_table conf_kw_filter = KEYWORDS("filter", rows, .noop = noop,
						     .refused = refused);

/* --- the action -------------------------------------------------------------------------------- */

static bool is_number(const struct line *l)
{
	struct str w = line_peek(l);

	return w.len && w.p[0] >= '0' && w.p[0] <= '9';
}

/* set-bandwidth-limit <filter> [limit <size>|<expression>] [period <time>|<expression>] */
int action_bandwidth(struct parser *ps, struct line *l, struct action_ctx *c)
{
	struct conf_bwlim_use *u = arena_zalloc(&ps->conf->arena, sizeof(*u));
	int r;

	if (!u)
		return -ENOMEM;
	if (c->b->section & SEC_DEFAULTS)
		return conf_fail(ps, l, l->at - 1,
				 "'set-bandwidth-limit' is not possible in a defaults section, "
				 "which has no filters");
	c->rule->bwlim = u;
	r = arg_string(ps, l, "the name of a filter", &u->name);
	while (r == 0) {
		if (line_accept(l, "limit"))
			r = is_number(l) ? want_limit(ps, l, &u->limit)
					 : compile_expr(ps, c->b, l, c->place, &u->limit_expr);
		else if (line_accept(l, "period"))
			r = is_number(l) ? want_period(ps, l, &u->period_ms)
					 : compile_expr(ps, c->b, l, c->place, &u->period_expr);
		else
			break;
	}
	return r;
}

/* --- when all is known ------------------------------------------------------------------------- */

static int resolve_filter(struct parser *ps, struct conf_proxy *px, struct conf_bwlim *f)
{
	enum conf_stick_data rate = f->is_in ? STICK_DATA_BYTES_IN_RATE : STICK_DATA_BYTES_OUT_RATE;
	int r;

	if (!f->key)
		return 0;
	r = find_stick_table(ps, px, &f->pos, f->table_name, &f->table);
	if (r)
		return r;
	if (!f->table->store[rate].n)
		return conf_fail_pos(ps, &f->pos,
				     "stick table '%.64s' has to store " STR_FMT
				     "(<period>) for filter '%.64s'",
				     f->table->name, STR_ARG(conf_stick_data_name(rate)), f->name);
	f->period_ms = (uint32_t)(f->table->store[rate].period / MS);
	return 0;
}

static int resolve_use(struct parser *ps, struct conf_proxy *px, struct conf_rule *rule)
{
	struct conf_bwlim_use *u = rule->bwlim;
	struct nearest near;
	char hint[96];
	struct list *p;

	u->filter = find_filter(px, u->name);
	if (u->filter && u->filter->key &&
	    (u->limit || u->limit_expr || u->period_ms || u->period_expr))
		return conf_fail_pos(ps, &rule->pos,
				     "filter '%.64s' is shared: its limit and its period are the "
				     "same for all streams",
				     u->name);
	if (u->filter)
		return 0;
	nearest_init(&near, str_from_cstr(u->name));
	list_for_each(p, &px->bwlims)
		nearest_offer(&near, str_from_cstr(list_entry(p, struct conf_bwlim, link)->name));
	return conf_fail_pos(ps, &rule->pos,
			     "there is no filter '%.64s' in this section: add a 'filter bwlim-in' "
			     "or 'filter bwlim-out' line%s",
			     u->name, nearest_hint(&near, hint));
}

int finalize_filters(struct parser *ps, struct proxy_build *b)
{
	struct conf_proxy *px = &b->px;
	struct list *p;
	int r = 0;

	list_for_each(p, &px->bwlims) {
		if (r != -ENOMEM)
			r = resolve_filter(ps, px, list_entry(p, struct conf_bwlim, link));
	}
	for (int i = 0; i < RULES_COUNT; i++) {
		list_for_each(p, &px->rules[i]) {
			struct conf_rule *rule = list_entry(p, struct conf_rule, link);

			if (r != -ENOMEM && rule->bwlim)
				r = resolve_use(ps, px, rule);
		}
	}
	return r == -ENOMEM ? r : 0;
}

void dump_filters(FILE *f, const struct conf_proxy *px)
{
	struct list *p;

	list_for_each(p, &px->bwlims) {
		const struct conf_bwlim *b = list_entry(p, struct conf_bwlim, link);

		fprintf(f, "  filter bwlim-%s %s limit %llu period %ums min-size %u%s%s\n",
			b->is_in ? "in" : "out", b->name, (unsigned long long)b->limit,
			b->period_ms, b->min_size, b->table ? " table " : "",
			b->table ? b->table->name : "");
	}
}
