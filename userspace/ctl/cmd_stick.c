/* SPDX-License-Identifier: BSD-2-Clause */
/* `show table`, `clear table`, `set table`: stick tables, in HAProxy's words. Control thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ctl/cmd_rows.h"
#include "lb/stick.h"

#define FILTERS_MAX 4

enum table_op_kind {
	OP_EQ,
	OP_NE,
	OP_LE,
	OP_GE,
	OP_LT,
	OP_GT,
	OP_COUNT
};
static const char *const op_names[OP_COUNT] = { "eq", "ne", "le", "ge", "lt", "gt" };

struct data_ref { /* "data.gpc0", "data.gpc3_rate" */
	enum conf_stick_data d;
	unsigned idx;
};

struct filter {
	struct data_ref data;
	enum table_op_kind op;
	int64_t value;
};

struct request {
	struct cmd *c;
	const char *usage;
	struct stick_table *t;
	const char *name;
	uint64_t now_ms;
	struct filter filters[FILTERS_MAX];
	unsigned n_filters;
	const char *key_text;
	char key[CONF_STICK_KEY_MAX];
	size_t key_len;
	struct stick_view *view;
};

/* --- words ------------------------------------------------------------------------------------------------ */

/* "gpc3_rate" of an array: "gpc_rate" and 3. */
static bool match_element(struct str word, struct str name, unsigned *ret_idx)
{
	size_t base = str_find_char(name, '_');
	struct str stem = base == SIZE_MAX ? name : str_sub(name, 0, base);
	struct str tail = base == SIZE_MAX ? STR("") : str_from(name, base);
	uint64_t n;

	if (!str_is_prefix(word, stem) || !str_is_suffix(word, tail) ||
	    word.len <= stem.len + tail.len)
		return false;
	if (str_to_u64(str_sub(word, stem.len, word.len - stem.len - tail.len), &n) ||
	    n >= CONF_STICK_ARRAY_MAX)
		return false;
	*ret_idx = (unsigned)n;
	return true;
}

/* Says what is wrong itself. */
static bool parse_data(const struct request *rq, const char *word, struct data_ref *ret)
{
	struct str name = str_from(str_from_cstr(word), 5);
	bool is_known = false;

	for (unsigned d = 0; d < STICK_DATA_COUNT; d++) {
		enum conf_stick_kind k = conf_stick_data_kind((enum conf_stick_data)d);
		bool is_array = k == STICK_KIND_VALUES || k == STICK_KIND_RATES;
		unsigned idx = 0;

		if (is_array ? !match_element(name, conf_stick_data_name(d), &idx)
			     : !str_is_eq(name, conf_stick_data_name(d)))
			continue;
		is_known = true;
		if (idx >= stick_count_of(rq->t, (enum conf_stick_data)d))
			continue;
		*ret = (struct data_ref){ .d = (enum conf_stick_data)d, .idx = idx };
		return true;
	}
	cmd_say(rq->c, is_known ? "Data type not stored in this table" : "Unknown data type");
	return false;
}

static bool parse_filters(struct request *rq, unsigned at)
{
	for (; cmd_arg(rq->c, at); at += 3) {
		const char *word = cmd_arg(rq->c, at), *op = cmd_arg(rq->c, at + 1);
		const char *value = op ? cmd_arg(rq->c, at + 2) : NULL;
		struct filter *f = &rq->filters[rq->n_filters];
		unsigned k = 0;

		if (strncmp(word, "data.", 5) != 0) {
			cmd_say(rq->c, "%s", rq->usage);
			return false;
		}
		if (rq->n_filters == FILTERS_MAX) {
			cmd_say(rq->c, "Too many filters");
			return false;
		}
		if (!parse_data(rq, word, &f->data))
			return false;
		while (k < OP_COUNT && (!op || strcmp(op, op_names[k]) != 0))
			k++;
		if (k == OP_COUNT) {
			cmd_say(rq->c, "Require and operator among \"eq\", \"ne\", \"le\", \"ge\", "
				       "\"lt\", \"gt\"");
			return false;
		}
		f->op = (enum table_op_kind)k;
		if (!value || str_to_i64(str_from_cstr(value), &f->value)) {
			cmd_say(rq->c, "Require a valid integer value to compare against");
			return false;
		}
		rq->n_filters++;
	}
	return true;
}

static bool parse_key(struct request *rq, const char *text)
{
	if (!text) {
		cmd_say(rq->c, "Key value expected");
		return false;
	}
	if (stick_key_parse(rq->t, str_from_cstr(text), rq->key, &rq->key_len)) {
		cmd_say(rq->c, "Invalid key");
		return false;
	}
	rq->key_text = text;
	return true;
}

/* The table and what follows its name. False: answered. */
static bool parse_request(struct cmd *c, struct request *rq, const char *usage)
{
	const struct conf_stick_table *ct;

	*rq = (struct request){ .c = c, .usage = usage, .name = cmd_arg(c, 0) };
	rq->now_ms = loop_now(c->ctl->loop) / 1000000;
	if (!rq->name) {
		cmd_say(c, "%s", usage);
		return false;
	}
	ct = conf_find_stick_table(c->ctl->current->conf, str_from_cstr(rq->name));
	if (!ct) {
		cmd_say(c, "No such table");
		return false;
	}
	rq->t = ct->rt;
	rq->view = mem_alloc(sizeof(*rq->view));
	if (!rq->view) {
		cmd_say(c, "out of memory");
		return false;
	}
	return true;
}

/* --- show ------------------------------------------------------------------------------------------------- */

static void print_head(FILE *out, const char *name, const struct stick_table *t)
{
	fprintf(out, "# table: %s, type: %s, size:%u, used:%u\n", name,
		conf_stick_type_name(stick_type(t)), stick_size(t), stick_used(t));
}

static void print_column(const struct request *rq, enum conf_stick_data d)
{
	struct str name = conf_stick_data_name(d), tail = STR("");
	enum conf_stick_kind k = conf_stick_data_kind(d);
	size_t base = str_find_char(name, '_');
	uint64_t v = 0;

	if (k == STICK_KIND_VALUE || k == STICK_KIND_RATE) {
		base = SIZE_MAX;
	} else if (base != SIZE_MAX) {
		tail = str_from(name, base);
		name = str_sub(name, 0, base);
	}
	for (unsigned i = 0; i < stick_count_of(rq->t, d); i++) {
		if (stick_view_get(rq->t, rq->view, d, i, rq->now_ms, &v))
			return;
		fprintf(rq->c->out, " " STR_FMT, STR_ARG(name));
		if (k == STICK_KIND_VALUES || k == STICK_KIND_RATES)
			fprintf(rq->c->out, "%u" STR_FMT, i, STR_ARG(tail));
		if (stick_period_ms(rq->t, d))
			fprintf(rq->c->out, "(%u)", stick_period_ms(rq->t, d));
		fprintf(rq->c->out, "=%llu", (unsigned long long)v);
	}
}

static void print_entry(const struct request *rq)
{
	const struct stick_view *v = rq->view;
	char key[STICK_KEY_TEXT_MAX];

	stick_key_format(rq->t, str_make(v->key, v->key_len), key);
	fprintf(rq->c->out, "%p: key=%s use=%u exp=%u shard=0", v->id, key, v->refs, v->expire_ms);
	for (unsigned d = 0; d < STICK_DATA_COUNT; d++)
		print_column(rq, (enum conf_stick_data)d);
	putc('\n', rq->c->out);
}

static bool is_wanted(const struct request *rq)
{
	for (unsigned i = 0; i < rq->n_filters; i++) {
		const struct filter *f = &rq->filters[i];
		uint64_t u = 0;
		int64_t v;
		bool ok[OP_COUNT];

		if (stick_view_get(rq->t, rq->view, f->data.d, f->data.idx, rq->now_ms, &u))
			return false;
		v = u > INT64_MAX ? INT64_MAX : (int64_t)u;
		ok[OP_EQ] = v == f->value;
		ok[OP_NE] = v != f->value;
		ok[OP_LE] = v <= f->value;
		ok[OP_GE] = v >= f->value;
		ok[OP_LT] = v < f->value;
		ok[OP_GT] = v > f->value;
		if (!ok[f->op])
			return false;
	}
	return true;
}

static void show_entries(struct request *rq)
{
	struct stick_cursor cur = { 0 };

	if (rq->key_text) {
		if (!stick_view_key(rq->t, str_make(rq->key, rq->key_len), rq->now_ms, rq->view))
			print_entry(rq);
		return;
	}
	while (stick_next(rq->t, &cur, rq->now_ms, rq->view))
		if (is_wanted(rq))
			print_entry(rq);
}

int cmd_show_table(struct cmd *c)
{
	static const char usage[] = "Optional argument only supports \"data.<store_data_type>\" "
				    "<operator> <value> or key <key>";
	const char *word = cmd_arg(c, 0) ? cmd_arg(c, 1) : NULL;
	struct request rq;
	struct list *p;

	if (!cmd_arg(c, 0)) {
		list_for_each(p, &c->ctl->current->conf->stick_tables) {
			struct conf_stick_table *ct = list_entry(p, struct conf_stick_table, link);

			print_head(c->out, ct->name, ct->rt);
		}
		return 0;
	}
	if (!parse_request(c, &rq, usage))
		return 0;
	if (word && strcmp(word, "key") == 0 ? parse_key(&rq, cmd_arg(c, 2))
					     : parse_filters(&rq, 1)) {
		print_head(c->out, rq.name, rq.t);
		show_entries(&rq);
	}
	mem_free(rq.view);
	return 0;
}

/* --- clear ------------------------------------------------------------------------------------------------ */

static void clear_entries(struct request *rq)
{
	struct stick_cursor cur = { 0 };

	if (rq->key_text) {
		if (stick_remove(rq->t, str_make(rq->key, rq->key_len)) == -EBUSY)
			cmd_say(rq->c, "Entry currently in use, cannot remove");
		return;
	}
	/* What is in use stays. */
	while (stick_next(rq->t, &cur, rq->now_ms, rq->view))
		if (is_wanted(rq))
			(void)!stick_remove(rq->t, str_make(rq->view->key, rq->view->key_len));
}

int cmd_clear_table(struct cmd *c)
{
	static const char usage[] = "Required arguments: <table> \"data.<store_data_type>\" "
				    "<operator> <value> or <table> key <key>";
	const char *word = cmd_arg(c, 0) ? cmd_arg(c, 1) : NULL;
	struct request rq;

	if (!parse_request(c, &rq, usage))
		return 0;
	if (word && strcmp(word, "key") == 0 ? parse_key(&rq, cmd_arg(c, 2))
					     : parse_filters(&rq, 1))
		clear_entries(&rq);
	mem_free(rq.view);
	return 0;
}

/* --- set -------------------------------------------------------------------------------------------------- */

/* All pairs are read before any is written. */
static bool set_values(struct request *rq, const struct stick_ref *ref)
{
	for (unsigned i = 3; cmd_arg(rq->c, i); i += 2) {
		const char *word = cmd_arg(rq->c, i), *text = cmd_arg(rq->c, i + 1);
		struct data_ref data = { 0 };
		uint64_t v, old;

		if (strncmp(word, "data.", 5) != 0) {
			cmd_say(rq->c, "\"data.<type>\" followed by a value expected");
			return false;
		}
		if (!parse_data(rq, word, &data))
			return false;
		if (!text || str_to_u64(str_from_cstr(text), &v)) {
			cmd_say(rq->c, "Require a valid integer value to store");
			return false;
		}
		if (ref && stick_write(ref, data.d, data.idx, v, rq->now_ms, &old))
			return false;
	}
	return true;
}

int cmd_set_table(struct cmd *c)
{
	static const char usage[] =
		"Required arguments: <table> key <key> [data.<store_data_type> <value>]*";
	const char *word = cmd_arg(c, 0) ? cmd_arg(c, 1) : NULL;
	struct stick_ref ref;
	struct request rq;

	if (!parse_request(c, &rq, usage))
		return 0;
	if (!word || strcmp(word, "key") != 0)
		cmd_say(c, "%s", usage);
	else if (!parse_key(&rq, cmd_arg(c, 2)) || !set_values(&rq, NULL))
		(void)0; /* said */
	else if (stick_open(rq.t, str_make(rq.key, rq.key_len), NULL, rq.now_ms, &ref))
		cmd_say(c, "Unable to allocate a new entry");
	else {
		(void)set_values(&rq, &ref);
		stick_close(&ref, NULL, rq.now_ms);
	}
	mem_free(rq.view);
	return 0;
}
