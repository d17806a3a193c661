/* SPDX-License-Identifier: BSD-2-Clause */
/* `headgate top --json`: the tables of one look as one document, for scripts. Names follow from the titles on the screen. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "headgate_top.h"

/* "REQ/S" → "req_per_s", "TIME ms" → "time_ms", "BUSY %" → "busy_percent". */
static void put_key(FILE *out, const char *title, unsigned col)
{
	static const struct {
		const char *end, *text;
	} units[] = { { "/S", "_per_s" }, { " %", "_percent" } };
	size_t len = strlen(title);
	const char *unit = "";

	if (col == 0 || !len) {
		fputs(col ? "\"help\":" : "\"name\":", out);
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(units); i++) {
		size_t n = strlen(units[i].end);

		if (len > n && strcmp(title + len - n, units[i].end) == 0) {
			unit = units[i].text;
			len -= n;
			break;
		}
	}
	putc('"', out);
	for (size_t i = 0; i < len; i++)
		putc(title[i] == ' ' ? '_' : tolower((unsigned char)title[i]), out);
	fprintf(out, "%s\":", unit);
}

static void put_line(FILE *out, const struct top_line *l, const struct top_col *cols, unsigned n)
{
	for (unsigned c = 0; c < n; c++) {
		const struct top_cell *cell = &l->cells[c];

		putc(c ? ',' : '{', out);
		put_key(out, cols[c].title, c);
		if (cols[c].width < 0)
			json_put_str(out,
				     str_from_cstr(c == 0 && l->name[0] ? l->name : cell->text));
		else if (cell->sort == floor(cell->sort))
			fprintf(out, "%.0f", cell->sort);
		else
			fprintf(out, "%.3f", cell->sort);
	}
	putc('}', out);
}

int top_put_json(FILE *out, const struct top_sample *now, const struct top_sample *before,
		 const enum top_view *only)
{
	struct top_table table = { 0 };
	int rc = 0;

	fprintf(out, "{\"seconds\":%.3f", before->ns ? (double)(now->ns - before->ns) / 1e9 : 0.0);
	for (unsigned v = 0; v < VIEW_COUNT && rc == 0; v++) {
		const struct top_col *cols;
		unsigned n;

		if (only && *only != (enum top_view)v)
			continue;
		cols = top_columns((enum top_view)v, &n);
		rc = top_fill(&table, (enum top_view)v, now, before);
		if (rc != 0)
			break;
		top_sort(&table, (enum top_view)v, 0, false);
		fprintf(out, ",\"%s\":[", top_view_names[v]);
		for (unsigned i = 0; i < table.n; i++) {
			fputs(i ? ",\n" : "\n", out);
			put_line(out, &table.lines[i], cols, n);
		}
		putc(']', out);
	}
	fputs("}\n", out);
	mem_free(table.lines);
	return rc;
}
