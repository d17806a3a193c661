/* SPDX-License-Identifier: BSD-2-Clause */
/* `headgate top`: asks the runtime API and takes its answers apart. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "headgate_top.h"

/* --- samples ------------------------------------------------------------------------------------- */

void top_free(struct top_sample *s)
{
	mem_free(s->text);
	mem_free(s->stats);
	mem_free(s->cells);
	mem_free(s->names);
	*s = (struct top_sample){ 0 };
}

/* In place: NUL behind each value. Quotes are taken off, doubled ones stay one. */
static unsigned csv_split(char *line, char **out, unsigned max)
{
	unsigned n = 0;

	while (n < max) {
		char *to = line;

		out[n++] = line;
		if (*line == '"') {
			for (line++; *line && !(line[0] == '"' && line[1] != '"'); line++) {
				line += line[0] == '"';
				*to++ = *line;
			}
			line += *line == '"';
		} else {
			line += strcspn(line, ",");
			to = line;
		}
		if (!*line) {
			*to = '\0';
			break;
		}
		line++;
		*to = '\0';
	}
	return n;
}

/* Cuts the next answer off: they are separated by empty lines. */
static char *next_answer(char **rest)
{
	char *start = *rest, *end = strstr(start, "\n\n");

	if (!end) {
		*rest = start + strlen(start);
		return start;
	}
	end[1] = '\0';
	*rest = end + 2;
	return start;
}

static char *next_line(char **rest)
{
	char *start = *rest, *end = strchr(start, '\n');

	if (!*start)
		return NULL;
	*rest = end ? end + 1 : start + strlen(start);
	if (end)
		*end = '\0';
	return start;
}

static void pick_fields(struct top_sample *s, struct top_stat *row)
{
	static const char *const names[] = {
#define X(id, name) name,
		TOP_FIELDS(X)
#undef X
	};

	for (unsigned f = 0; f < TOP_FIELD_COUNT; f++) {
		row->v[f] = "";
		for (unsigned i = 0; i < s->n_names; i++)
			if (strcmp(s->names[i], names[f]) == 0)
				row->v[f] = row->all[i];
	}
}

#define MAX_COLUMNS 256

static int parse_stats(struct top_sample *s, char *csv)
{
	unsigned n_rows = 0;
	char *line;

	for (const char *p = csv; *p; p++)
		n_rows += *p == '\n';
	line = next_line(&csv);
	s->names = mem_alloc(MAX_COLUMNS * sizeof(*s->names));
	if (!s->names || !line || strncmp(line, "# ", 2) != 0)
		return s->names ? -EIO : -ENOMEM;
	s->n_names = csv_split(line + 2, s->names, MAX_COLUMNS);
	s->stats = mem_zalloc((n_rows + 1) * sizeof(*s->stats));
	s->cells = mem_alloc((n_rows + 1) * (size_t)s->n_names * sizeof(*s->cells));
	if (!s->stats || !s->cells)
		return -ENOMEM;
	while ((line = next_line(&csv))) {
		struct top_stat *row = &s->stats[s->n_stats];

		row->all = s->cells + (size_t)s->n_stats * s->n_names;
		if (csv_split(line, row->all, s->n_names) != s->n_names)
			continue; /* not a row */
		pick_fields(s, row);
		s->n_stats++;
	}
	return 0;
}

int top_take(struct tool *t, struct top_sample *s)
{
	struct timespec ts;
	char *rest;
	int rc;

	top_free(s);
	s->text = tool_ask(t, "show info;show stat;show threads;show l4", 1);
	if (!s->text)
		return -EIO;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	s->ns = (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
	rest = s->text;
	s->info = str_from_cstr(next_answer(&rest));
	rc = parse_stats(s, next_answer(&rest));
	s->threads = str_from_cstr(next_answer(&rest));
	s->l4 = str_from_cstr(rest);
	if (rc != 0)
		top_free(s);
	return rc;
}

struct str top_info(const struct top_sample *s, const char *name)
{
	struct str rest = s->info, line, key;

	while (rest.p && rest.len) {
		line = str_cut(&rest, '\n');
		key = str_cut(&line, ':');
		if (str_is_eq(key, str_from_cstr(name)))
			return str_trim(line);
	}
	return STR_NULL;
}
