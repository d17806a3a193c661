/* SPDX-License-Identifier: BSD-2-Clause */
/* The forms of `show stat`: CSV, typed, JSON. One row at a time. */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "ctl/stat_cols.h"

static const struct {
	const char *name, *tags;
} columns[] = {
#define X(id, name, tags) { name, tags },
	STAT_COLS(X)
#undef X
};

const char *stat_col_name(enum stat_col c)
{
	return columns[c].name;
}

const char *stat_col_tags(enum stat_col c)
{
	return columns[c].tags;
}

void stat_csv_header(FILE *out)
{
	fputs("# ", out);
	for (unsigned c = 0; c < STAT_COL_COUNT; c++)
		fprintf(out, "%s,", columns[c].name);
	/* Marks the end of the fixed part; modules may add columns behind it. */
	fputs("-,\n", out);
}

static void csv_string(FILE *out, const char *s)
{
	if (!strpbrk(s, "\",\n\r")) {
		fputs(s, out);
		return;
	}
	putc('"', out);
	for (; *s; s++) {
		if (*s == '"')
			putc('"', out);
		putc(*s, out);
	}
	putc('"', out);
}

static void value_number(FILE *out, const struct stat_value *v)
{
	if (v->kind == STAT_S32)
		fprintf(out, "%" PRId32, (int32_t)v->num);
	else
		fprintf(out, "%" PRIu64, v->num);
}

void stat_csv_row(FILE *out, const struct stat_row *row)
{
	for (unsigned c = 0; c < STAT_COL_COUNT; c++) {
		const struct stat_value *v = &row->v[c];

		if (v->kind == STAT_STR)
			csv_string(out, v->str);
		else if (v->kind != STAT_EMPTY)
			value_number(out, v);
		putc(',', out);
	}
	fputs("-,\n", out);
}

static const char *kind_name(uint8_t kind)
{
	static const char *const names[] = { "", "u32", "u64", "s32", "str" };

	return names[kind];
}

static char type_letter(enum stat_type t)
{
	return "FBSL"[t];
}

void stat_typed_row(FILE *out, const struct stat_row *row)
{
	for (unsigned c = 0; c < STAT_COL_COUNT; c++) {
		const struct stat_value *v = &row->v[c];

		if (v->kind == STAT_EMPTY)
			continue;
		/* Counters persist across restarts in principle, the rest does not. */
		fprintf(out, "%c.%u.%u.%u.%s.1:%s%c:%s:", type_letter(row->type), row->iid,
			row->sid, c, columns[c].name, columns[c].tags,
			columns[c].tags[1] == 'C' ? 'P' : 'V', kind_name(v->kind));
		if (v->kind == STAT_STR)
			fputs(v->str, out);
		else
			value_number(out, v);
		putc('\n', out);
	}
}

/* The words that HAProxy's JSON uses for the tag letters. */
static const char *tag_word(unsigned pos, char letter)
{
	static const struct {
		char letter;
		const char *word;
	} words[3][12] = {
		{ { 'M', "Metric" },
		  { 'S', "Status" },
		  { 'K', "Key" },
		  { 'C', "Config" },
		  { 'P', "Product" } },
		{ { 'G', "Gauge" },
		  { 'L', "Limit" },
		  { 'm', "Min" },
		  { 'M', "Max" },
		  { 'R', "Rate" },
		  { 'C', "Counter" },
		  { 'D', "Duration" },
		  { 'A', "Age" },
		  { 'T', "Time" },
		  { 'N', "Name" },
		  { 'O', "Output" },
		  { 'a', "Avg" } },
		{ { 'C', "Cluster" }, { 'P', "Process" }, { 'S', "Service" }, { 's', "System" } },
	};

	for (unsigned i = 0; i < 12; i++)
		if (words[pos][i].letter == letter)
			return words[pos][i].word;
	return "Unknown";
}

static const char *object_name(enum stat_type t)
{
	static const char *const names[] = { "Frontend", "Backend", "Server", "Listener" };

	return names[t];
}

void stat_json_row(FILE *out, const struct stat_row *row, bool is_first)
{
	bool need_comma = false;

	fputs(is_first ? "[" : ",[", out);
	for (unsigned c = 0; c < STAT_COL_COUNT; c++) {
		const struct stat_value *v = &row->v[c];

		if (v->kind == STAT_EMPTY)
			continue;
		fprintf(out,
			"%s{\"objType\":\"%s\",\"proxyId\":%u,\"id\":%u,\"field\":{\"pos\":%u,"
			"\"name\":\"%s\"},"
			"\"processNum\":1,\"tags\":{\"origin\":\"%s\",\"nature\":\"%s\",\"scope\":"
			"\"%s\"},"
			"\"value\":{\"type\":\"%s\",\"value\":",
			need_comma ? "," : "", object_name(row->type), row->iid, row->sid, c,
			columns[c].name, tag_word(0, columns[c].tags[0]),
			tag_word(1, columns[c].tags[1]), tag_word(2, columns[c].tags[2]),
			kind_name(v->kind));
		if (v->kind == STAT_STR)
			json_put_str(out, str_from_cstr(v->str));
		else
			value_number(out, v);
		fputs("}}", out);
		need_comma = true;
	}
	putc(']', out);
}
