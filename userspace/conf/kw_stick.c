/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stick tables in the language: `stick-table`, `stick on|match|store-…`, the actions that track and count,
 * and the tables that expressions name. Tables are found when all sections are known
 * (finalize_stick.c). Control thread; all memory is the configuration's.
 */
#include <errno.h>

#include "conf/conf_priv.h"
#include "conf/kw_action_priv.h"

#define MS		 1000000ull
#define PERIOD_MAX	 (24ull * 86400 * 1000 * MS)
#define SIZE_MAX_ENTRIES (1ull << 28)

/* --- names ------------------------------------------------------------------------------------- */

static const struct data_info {
	struct str name;
	uint8_t kind;
} data_infos[STICK_DATA_COUNT] = {
#define X(id, text, k) [STICK_DATA_##id] = { NAME(text), STICK_KIND_##k },
	CONF_STICK_DATA(X)
#undef X
};

static const char *const type_names[] = { "ip", "ipv6", "integer", "string", "binary" };

struct str conf_stick_data_name(enum conf_stick_data d)
{
	return data_infos[d].name;
}

enum conf_stick_kind conf_stick_data_kind(enum conf_stick_data d)
{
	return (enum conf_stick_kind)data_infos[d].kind;
}

const char *conf_stick_type_name(enum conf_stick_type t)
{
	return type_names[t];
}

/* --- store ------------------------------------------------------------------------------------- */

struct store_item {
	struct str name;
	struct str args[2]; /* p NULL: not there */
	struct conf_stick_store *store;
};

static int item_period(struct parser *ps, struct line *l, const struct store_item *it,
		       struct str text)
{
	int r = text.p ? str_to_duration(text, MS, &it->store->period) : -EINVAL;

	if (r || it->store->period < MS || it->store->period > PERIOD_MAX)
		return conf_fail_off(ps, l, l->at - 1, (size_t)(it->name.p - l->words[l->at - 1].p),
				     "'" STR_FMT "' expects a period from 1ms to 24d, such as "
				     "'" STR_FMT "(10s)'",
				     STR_ARG(it->name), STR_ARG(it->name));
	return 0;
}

static int item_length(struct parser *ps, struct line *l, const struct store_item *it)
{
	uint64_t n;

	if (!it->args[0].p || str_to_u64(it->args[0], &n) || !n || n > CONF_STICK_ARRAY_MAX)
		return conf_fail_off(ps, l, l->at - 1, (size_t)(it->name.p - l->words[l->at - 1].p),
				     "'" STR_FMT "' expects a number of elements from 1 to %u",
				     STR_ARG(it->name), CONF_STICK_ARRAY_MAX);
	it->store->n = (uint32_t)n;
	return 0;
}

static int unknown_data(struct parser *ps, struct line *l, struct str name, size_t off)
{
	struct nearest near;
	char hint[96];

	name = str_sub(name, 0, 64);
	if (str_is_eq(name, STR("server_key")) || str_is_prefix(name, STR("glitch_")))
		return conf_fail_off(ps, l, l->at - 1, off,
				     "'" STR_FMT "' is not supported by this version",
				     STR_ARG(name));
	nearest_init(&near, name);
	for (unsigned i = 0; i < STICK_DATA_COUNT; i++)
		nearest_offer(&near, data_infos[i].name);
	return conf_fail_off(ps, l, l->at - 1, off, "unknown data type '" STR_FMT "'%s",
			     STR_ARG(name), nearest_hint(&near, hint));
}

/* One of "gpc0,conn_rate(3s),gpc_rate(4,10s)"; `text` without its comma. */
static int parse_store_item(struct parser *ps, struct line *l, struct conf_stick_table *t,
			    struct str text)
{
	struct store_item it = { .name = text };
	size_t off = (size_t)(text.p - l->words[l->at - 1].p), open = str_find_char(text, '(');
	unsigned d = 0, want;

	if (open != SIZE_MAX) {
		struct str args = str_sub(text, open + 1, text.len - open - 2);

		if (text.p[text.len - 1] != ')')
			return conf_fail_off(ps, l, l->at - 1, off, "missing ')' in '" STR_FMT "'",
					     STR_ARG(str_sub(text, 0, 64)));
		it.name = str_sub(text, 0, open);
		it.args[0] = str_cut(&args, ',');
		it.args[1] = args;
	}
	while (d < STICK_DATA_COUNT && !str_is_eq(data_infos[d].name, it.name))
		d++;
	if (d == STICK_DATA_COUNT)
		return unknown_data(ps, l, it.name, off);
	it.store = &t->store[d];
	if (it.store->n)
		return conf_fail_off(ps, l, l->at - 1, off, "'" STR_FMT "' is stored twice",
				     STR_ARG(it.name));
	want = data_infos[d].kind == STICK_KIND_RATES ? 2 : data_infos[d].kind != STICK_KIND_VALUE;
	if ((it.args[0].p != NULL) + (it.args[1].p != NULL) > (int)want)
		return conf_fail_off(ps, l, l->at - 1, off, "too many arguments for '" STR_FMT "'",
				     STR_ARG(it.name));
	it.store->n = 1;
	switch ((enum conf_stick_kind)data_infos[d].kind) {
	case STICK_KIND_VALUE:
		return 0;
	case STICK_KIND_RATE:
		return item_period(ps, l, &it, it.args[0]);
	case STICK_KIND_VALUES:
		return item_length(ps, l, &it);
	case STICK_KIND_RATES:
		break;
	}
	want = item_length(ps, l, &it) != 0;
	return want ? -EINVAL : item_period(ps, l, &it, it.args[1]);
}

/* At commas outside of parentheses. */
static struct str cut_item(struct str *rest)
{
	struct str item = *rest;
	int depth = 0;

	for (size_t i = 0; i < rest->len; i++) {
		depth += (rest->p[i] == '(') - (rest->p[i] == ')');
		if (rest->p[i] != ',' || depth > 0)
			continue;
		item.len = i;
		*rest = str_from(*rest, i + 1);
		return item;
	}
	*rest = STR_NULL;
	return item;
}

static int parse_store(struct parser *ps, struct line *l, struct conf_stick_table *t)
{
	const struct conf_stick_store *s = t->store;
	struct str rest;
	int r = line_want(ps, l, "what to store, such as gpc0,http_req_rate(10s)", &rest);

	while (r == 0 && rest.p)
		r = parse_store_item(ps, l, t, cut_item(&rest));
	if (r)
		return r;
	if ((s[STICK_DATA_GPC].n && (s[STICK_DATA_GPC0].n || s[STICK_DATA_GPC1].n)) ||
	    (s[STICK_DATA_GPC_RATE].n &&
	     (s[STICK_DATA_GPC0_RATE].n || s[STICK_DATA_GPC1_RATE].n)) ||
	    (s[STICK_DATA_GPT].n && s[STICK_DATA_GPT0].n))
		return conf_fail(ps, l, l->at - 1,
				 "an array such as gpc(2) takes the place of gpc0 and gpc1: store "
				 "one or the other");
	return 0;
}

/* --- stick-table ------------------------------------------------------------------------------- */

static int parse_type(struct parser *ps, struct line *l, struct conf_stick_table *t)
{
	static const struct keyword_value types[] = { VALUE("ip", STICK_IP),
						      VALUE("ipv4", STICK_IP),
						      VALUE("ipv6", STICK_IPV6),
						      VALUE("integer", STICK_INTEGER),
						      VALUE("string", STICK_STRING),
						      VALUE("binary", STICK_BINARY),
						      VALUES_END };
	/* 31 characters and a NUL are 32 bytes in HAProxy, whose limit this is. */
	static const uint8_t lengths[] = { 4, 16, 4, 31, 32 };
	uint64_t len;
	int r = arg_value(ps, l, types, &t->type);

	if (r)
		return r;
	t->key_len = lengths[t->type];
	if ((t->type != STICK_STRING && t->type != STICK_BINARY) || !line_accept(l, "len"))
		return 0;
	r = arg_u64(ps, l, 1, CONF_STICK_KEY_MAX, &len);
	t->key_len = (uint32_t)len;
	return r;
}

static int parse_table_size(struct parser *ps, struct line *l, struct conf_stick_table *t)
{
	uint64_t n;
	int r = arg_size(ps, l, &n);

	if (r)
		return r;
	if (!n || n > SIZE_MAX_ENTRIES)
		return conf_fail(ps, l, l->at - 1, "'size' expects a number from 1 to %llu",
				 SIZE_MAX_ENTRIES);
	t->size = (uint32_t)n;
	return 0;
}

static int parse_expire(struct parser *ps, struct line *l, struct conf_stick_table *t)
{
	int r = arg_time(ps, l, MS, &t->expire);

	if (r == 0 && (t->expire < MS || t->expire > PERIOD_MAX))
		return conf_fail(ps, l, l->at - 1, "'expire' expects a time from 1ms to 24d");
	return r;
}

static int parse_table_option(struct parser *ps, struct line *l, struct conf_stick_table *t)
{
	static const char *const later[] = { "peers", "srvkey", "write-to", "recv-only" };

	if (line_accept(l, "type"))
		return parse_type(ps, l, t);
	if (line_accept(l, "size"))
		return parse_table_size(ps, l, t);
	if (line_accept(l, "expire"))
		return parse_expire(ps, l, t);
	if (line_accept(l, "store"))
		return parse_store(ps, l, t);
	if (line_accept(l, "nopurge")) {
		t->nopurge = true;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(later); i++) {
		if (str_is_eq(line_peek(l), str_from_cstr(later[i])))
			return conf_fail(ps, l, l->at, "'%s' is not supported by this version",
					 later[i]);
	}
	return conf_fail(ps, l, l->at,
			 "'stick-table' expects type, size, expire, nopurge or store instead of "
			 "'" STR_FMT "'",
			 STR_ARG(str_sub(line_peek(l), 0, 64)));
}

static int parse_stick_table(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct conf_stick_table *t = arena_zalloc(&ps->conf->arena, sizeof(*t)), *other;
	int r = 0;

	if (!t)
		return -ENOMEM;
	if (b->px.stick_table)
		return conf_fail(ps, l, 0, "this section has a 'stick-table' already, in line %u",
				 b->px.stick_table->pos.line);
	t->pos = l->pos;
	t->proxy = &b->px;
	t->name = b->px.name;
	t->type = UINT8_MAX;
	while (r == 0 && line_has(l))
		r = parse_table_option(ps, l, t);
	if (r)
		return r;
	if (t->type == UINT8_MAX || !t->size)
		return conf_fail(ps, l, l->n, "'stick-table' needs '%s'",
				 t->size ? "type ip|ipv6|integer|string|binary" : "size <number>");
	other = names_find(ps->stick_names, str_from_cstr(t->name));
	if (other)
		return conf_fail(ps, l, 0,
				 "there is a stick table '%.64s' already, in %s:%u: tables have "
				 "the names of their sections",
				 t->name, other->pos.file, other->pos.line);
	r = names_add(ps->stick_names, str_from_cstr(t->name), t);
	if (r)
		return r;
	b->px.stick_table = t;
	list_push_back(&ps->conf->stick_tables, &t->link);
	return 0;
}

/* --- stick ------------------------------------------------------------------------------------- */

static int parse_stick(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_stick_rule *rule = arena_zalloc(&ps->conf->arena, sizeof(*rule));
	struct proxy_build *b = obj;
	unsigned place;
	int r;

	if (!rule)
		return -ENOMEM;
	rule->pos = l->pos;
	rule->text = line_join(ps, l, 0);
	if (!rule->text)
		return -ENOMEM;
	if (line_accept(l, "on"))
		rule->is_match = rule->is_store = true;
	else if (line_accept(l, "match"))
		rule->is_match = true;
	else if (line_accept(l, "store-request"))
		rule->is_store = true;
	else if (line_accept(l, "store-response"))
		rule->is_store = rule->is_response = true;
	else
		return conf_fail(ps, l, l->at,
				 "'stick' expects on, match, store-request or store-response");
	if (rule->is_response && b->px.mode != CONF_MODE_HTTP)
		return conf_fail(ps, l, l->at - 1,
				 "'stick store-response' is supported with 'mode http' only by "
				 "this version");
	place = rule->is_response ? PLACE_RSP : PLACE_REQ | PLACE_CONTENT;
	r = compile_expr(ps, b, l, place, &rule->expr);
	if (r == 0 && line_accept(l, "table"))
		r = arg_string(ps, l, "the name of a section with a table", &rule->table_name);
	if (r == 0)
		r = compile_condition(ps, b, l, place, &rule->cond);
	if (r == 0)
		list_push_back(&b->px.stick_rules, &rule->link);
	return r;
}

static const struct keyword rows[] = {
	{ NAME("stick-table"), SEC_FLB, ARG_FUNC, .parse = parse_stick_table, .grade = '1',
	  .args = "type ip|ipv6|integer|string [len <n>]|binary [len <n>] size <n> [expire <time>] "
		  "[nopurge] [store <data>,...]",
	  .help = "what is remembered about clients, by key" },
	{ NAME("stick"), SEC_LB, ARG_FUNC, KW_LATE, .parse = parse_stick, .grade = '1',
	  .args = "on|match|store-request|store-response <expression> [table <t>] [if|unless "
		  "<condition>]",
	  .help = "the same client goes to the same server" },
};
const struct keyword_table conf_kw_stick = KEYWORDS("keyword", rows);

/* --- actions ----------------------------------------------------------------------------------- */

int parse_track_sc(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
		   struct str number, struct conf_rule *rule)
{
	uint64_t n;
	int r;

	if (str_to_u64(number, &n) || n >= CONF_STICK_COUNTERS_MAX)
		return conf_fail(ps, l, l->at - 1, "'track-sc' goes from track-sc0 to track-sc%u",
				 CONF_STICK_COUNTERS_MAX - 1);
	rule->index = (uint32_t)n;
	r = compile_expr(ps, b, l, place, &rule->expr);
	if (r == 0 && line_accept(l, "table"))
		r = arg_string(ps, l, "the name of a section with a table", &rule->name);
	return r;
}

static int bad_counter(struct parser *ps, struct line *l, bool has_counter)
{
	return conf_fail(ps, l, l->at - 1, "expects '(%s<number of track-sc>)'",
			 has_counter ? "<index>," : "");
}

int parse_sc_change(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
		    struct str arg, int counter, enum sc_change change, struct conf_rule *rule)
{
	uint64_t sc, idx = counter < 0 ? 0 : (uint64_t)counter;
	struct str first = counter < 0 ? str_cut(&arg, ',') : STR_NULL;
	int64_t n;

	if ((first.p && (str_to_u64(first, &idx) || idx >= CONF_STICK_ARRAY_MAX)) || !arg.p ||
	    str_to_u64(arg, &sc) || sc >= CONF_STICK_COUNTERS_MAX)
		return bad_counter(ps, l, counter < 0);
	rule->index = (uint32_t)sc;
	rule->counter = (uint32_t)idx;
	rule->number = 1;
	if (change == SC_INC)
		return 0;
	if (!str_to_i64(line_peek(l), &n)) {
		if (n < 0 || n > UINT32_MAX)
			return conf_fail(ps, l, l->at, "expects a number from 0 to %u", UINT32_MAX);
		l->at++;
		rule->number = (uint32_t)n;
		return 0;
	}
	return compile_expr(ps, b, l, place, &rule->expr);
}

int stick_note_use(struct parser *ps, const struct proxy_build *b, struct line *l,
		   struct table_op *op)
{
	struct stick_use *u = arena_alloc(&ps->arena, sizeof(*u));

	if (!u)
		return -ENOMEM;
	*u = (struct stick_use){ .op = op, .b = b, .line = l };
	list_push_back(&ps->stick_uses, &u->link);
	return 0;
}
