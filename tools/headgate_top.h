/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the files of `headgate top`: what the daemon said (headgate_top_data.c), how it looks (headgate_top.c). */
#ifndef TOOLS_HEADGATE_TOP_H
#define TOOLS_HEADGATE_TOP_H

#include <stdio.h>

#include "base/str.h"
#include "tools_priv.h"

/* --- samples ------------------------------------------------------------------------------------- */

/* Columns of `show stat` that are looked at: index, name there. */
#define TOP_FIELDS(X)                                                                    \
	X(PX, "pxname") X(SV, "svname") X(STATUS, "status") X(TYPE, "type") X(MODE, "mode") \
	X(SCUR, "scur") X(SLIM, "slim") X(STOT, "stot") X(BIN, "bin") X(BOUT, "bout")    \
	X(QCUR, "qcur") X(QMAX, "qmax") X(REQ_RATE, "req_rate") X(RATE, "rate")          \
	X(H4XX, "hrsp_4xx") X(H5XX, "hrsp_5xx") X(EREQ, "ereq") X(ECON, "econ")          \
	X(ERESP, "eresp") X(WRETR, "wretr") X(WEIGHT, "weight") X(CHECK, "check_status") \
	X(LASTCHG, "lastchg") X(QTIME, "qtime") X(RTIME, "rtime") X(TTIME, "ttime")
enum top_field {
#define X(id, name) TOP_##id,
	TOP_FIELDS(X)
#undef X
	TOP_FIELD_COUNT
};

struct top_stat { /* a row of `show stat`; into the sample's text */
	const char *v[TOP_FIELD_COUNT]; /* "" when empty */
	char **all; /* every column */
};

struct top_sample {
	uint64_t ns; /* CLOCK_MONOTONIC; 0: none */
	char *text;
	struct top_stat *stats;
	unsigned n_stats;
	char **cells, **names; /* of all rows; of the columns */
	unsigned n_names;
	struct str info, threads, l4; /* the other answers */
};

/* Asks the daemon. 0, -EIO (nobody answers), -ENOMEM; the old content is freed. */
HG_WUR int top_take(struct tool *t, struct top_sample *s);
void top_free(struct top_sample *s);
/* "Uptime: 0d 0h00m01s" of `show info`; p NULL: not there. */
struct str top_info(const struct top_sample *s, const char *name);

/* --- tables -------------------------------------------------------------------------------------- */

#define TOP_COLS 12
struct top_cell {
	char text[48];
	double sort; /* texts are sorted by themselves */
};
struct top_line {
	char name[160]; /* section/server where there are such: what actions are about */
	bool is_server, is_bad, is_off;
	const struct top_stat *stat; /* NULL: not from `show stat` */
	struct top_cell cells[TOP_COLS];
};
struct top_col {
	const char *title;
	int width; /* negative: left-aligned text */
};
enum top_view { VIEW_SERVICES, VIEW_SERVERS, VIEW_QUEUES, VIEW_WORKERS, VIEW_DROPS, VIEW_COUNT };
extern const char *const top_view_names[VIEW_COUNT];
const struct top_col *top_columns(enum top_view v, unsigned *ret_n);

struct top_table {
	struct top_line *lines;
	unsigned n, cap;
};
/* Rates are of `now` against `before`, which may be empty. 0 or -ENOMEM. */
HG_WUR int top_fill(struct top_table *t, enum top_view v, const struct top_sample *now,
		    const struct top_sample *before);
void top_sort(struct top_table *t, enum top_view v, unsigned col, bool is_reverse);
/* All views, or `only` one, as a JSON object (headgate_top_json.c). 0 or -ENOMEM. */
HG_WUR int top_put_json(FILE *out, const struct top_sample *now, const struct top_sample *before,
			const enum top_view *only);

#endif
