/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `headgate tune --apply` and `--undo`. What a setting was before is in the state file before it is changed: a line
 * "file|channels<TAB>path<TAB>value". A second --apply keeps what the first one found.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "tool_tune.h"

static const char *const kinds[] = { [TUNE_FILE] = "file", [TUNE_CHANNELS] = "channels" };

static int write_value(const struct tune *t, const char *path, const char *value)
{
	char full[PATH_MAX];
	int fd, rc = 0;

	if (snprintf(full, sizeof(full), "%s%s", t->root, path) >= PATH_MAX)
		return -ENAMETOOLONG;
	fd = open(full, O_WRONLY | O_CLOEXEC | (t->root[0] ? O_TRUNC : 0));
	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

static int set_value(const struct tune *t, enum tune_kind kind, const char *path, const char *value)
{
	uint32_t rx, tx, combined;

	if (kind == TUNE_FILE)
		return write_value(t, path, value);
	if (sscanf(value, "%u %u %u", &rx, &tx, &combined) != 3)
		return -EINVAL;
	return tune_channels_write(path, rx, tx, combined);
}

/* --- the state file --------------------------------------------------------------------------------------- */

struct state_row {
	enum tune_kind kind;
	char path[TUNE_PATH], value[TUNE_TEXT];
};

/* False: no line of ours. */
static bool state_parse(char *line, struct state_row *ret)
{
	char *kind, *path, *value, *rest = line;

	line[strcspn(line, "\n")] = '\0';
	kind = strsep(&rest, "\t");
	path = strsep(&rest, "\t");
	value = strsep(&rest, "\t");
	if (!kind || !path || !value || rest)
		return false;
	ret->kind = strcmp(kind, kinds[TUNE_CHANNELS]) == 0 ? TUNE_CHANNELS : TUNE_FILE;
	if (strcmp(kind, kinds[ret->kind]) != 0)
		return false;
	return snprintf(ret->path, sizeof(ret->path), "%s", path) < TUNE_PATH &&
	       snprintf(ret->value, sizeof(ret->value), "%s", value) < TUNE_TEXT;
}

/* All rows (mem_free() them), 0 when there is no file; -EBADMSG: it is not ours. */
static int state_read(const char *state, struct state_row **ret)
{
	FILE *f = fopen(state, "re");
	struct state_row *rows = NULL;
	char *line = NULL;
	size_t cap = 0;
	int n = 0;

	*ret = NULL;
	if (!f)
		return errno == ENOENT ? 0 : -errno;
	while (getline(&line, &cap, f) > 0) {
		struct state_row *more = mem_realloc(rows, (size_t)(n + 1) * sizeof(*rows));

		if (!more || !state_parse(line, &more[n])) {
			mem_free(more ? more : rows);
			rows = NULL;
			n = more ? -EBADMSG : -ENOMEM;
			break;
		}
		rows = more;
		n++;
	}
	free(line);
	fclose(f);
	*ret = rows;
	return n;
}

/* What it reads now, and not what the plan shows of it. */
static bool value_now(const struct tune *t, const struct tune_setting *s, char ret[TUNE_TEXT])
{
	if (s->kind == TUNE_FILE)
		return tune_read_file(t, s->path, ret);
	snprintf(ret, TUNE_TEXT, "%s", s->now);
	return true;
}

static int state_add(const struct tune *t, const char *state, const struct tune_setting *s)
{
	struct state_row *rows;
	char value[TUNE_TEXT];
	int n = state_read(state, &rows), rc = 0;
	bool is_known = false;
	FILE *f;

	for (int i = 0; i < n; i++)
		is_known |= rows[i].kind == s->kind && strcmp(rows[i].path, s->path) == 0;
	mem_free(rows);
	if (n < 0 || is_known)
		return n < 0 ? n : 0;
	if (!value_now(t, s, value))
		return -ENODATA;
	f = fopen(state, "ae");
	if (!f)
		return -errno;
	fprintf(f, "%s\t%s\t%s\n", kinds[s->kind], s->path, value);
	if (fflush(f) != 0 || fsync(fileno(f)) != 0)
		rc = -errno;
	return fclose(f) == 0 || rc ? rc : -errno;
}

/* --- both ways ---------------------------------------------------------------------------------------------- */

static int say(const char *path, const char *from, const char *to, const char *why, int rc)
{
	if (rc != 0)
		fprintf(stderr, "headgate: tune: %s: cannot set to '%s': %s\n", path, to,
			strerror(-rc));
	else
		printf("%s: %s -> %s%s%s\n", path, from, to, why ? "  # " : "", why ? why : "");
	return rc;
}

static int apply_one(const struct tune *t, const char *state, const struct tune_setting *s)
{
	int rc = state_add(t, state, s);

	if (rc == -ENODATA)
		fprintf(stderr, "headgate: tune: %s: cannot be read, and so is left alone\n",
			s->path);
	else if (rc != 0)
		fprintf(stderr, "headgate: tune: %s: %s; what could not be undone is left alone\n",
			state, rc == -EBADMSG ? "not a state file of ours" : strerror(-rc));
	if (rc != 0)
		return rc;
	return say(s->path, s->now, s->want, s->why, set_value(t, s->kind, s->path, s->want));
}

/* One round; `kind`: what of the plan. How many were changed, or -1: some could not be. */
static int apply_kind(struct tune *t, const struct tune_plan *p, enum tune_kind kind,
		      const char *state)
{
	int n = 0, failed = 0;

	for (unsigned i = 0; i < p->n; i++) {
		if (p->rows[i].kind != kind || p->rows[i].is_fine)
			continue;
		if (apply_one(t, state, &p->rows[i]) == 0)
			n++;
		else
			failed++;
	}
	return failed ? -1 : n;
}

/* Queues first: other numbers of them have other interrupts, so the host is read again behind that. */
int tune_apply(struct tool *tool, struct tune *t, char **names, unsigned n, const char *state)
{
	struct tune_plan p = { 0 };
	int rc = tune_plan(t, &p), queues, files;

	if (strncmp(state, "/run/headgate/", 14) == 0)
		(void)mkdir("/run/headgate", 0755);
	queues = rc == 0 ? apply_kind(t, &p, TUNE_CHANNELS, state) : -1;
	tune_plan_free(&p);
	if (rc == 0)
		rc = tune_read(tool, t, names, n);
	if (rc == 0)
		rc = tune_plan(t, &p);
	files = rc == 0 ? apply_kind(t, &p, TUNE_FILE, state) : -1;
	tune_plan_free(&p);
	if (rc != 0 || queues < 0 || files < 0)
		return 1;
	if (queues + files == 0)
		puts("all is as recommended");
	else
		printf("%d changes; 'headgate tune --undo' takes them back (%s)\n", queues + files,
		       state);
	return 0;
}

/* Interrupts that came with queues go with them: a file that is not there any more is no failure. */
int tune_undo(const struct tune *t, const char *state)
{
	struct state_row *rows;
	int n = state_read(state, &rows), failed = 0;

	if (n <= 0) {
		fprintf(stderr, "headgate: tune: %s: %s\n", state,
			n == 0		? "nothing to undo"
			: n == -EBADMSG ? "not a state file of ours"
					: strerror(-n));
		mem_free(rows);
		return 1;
	}
	while (n--) {
		const struct state_row *r = &rows[n];
		char now[TUNE_TEXT] = "?";
		struct tune_channels c;
		int rc;

		if (r->kind == TUNE_FILE)
			(void)tune_read_file(t, r->path, now);
		else if (tune_channels_read(r->path, &c))
			snprintf(now, sizeof(now), "%u %u %u", c.rx, c.tx, c.combined);
		rc = set_value(t, r->kind, r->path, r->value);
		if (rc == -ENOENT)
			printf("%s: is gone\n", r->path);
		else
			failed += say(r->path, now, r->value, NULL, rc) != 0;
	}
	mem_free(rows);
	if (failed)
		return 1; /* the file stays: try again */
	if (unlink(state) != 0) {
		fprintf(stderr, "headgate: tune: %s: %s\n", state, strerror(errno));
		return 1;
	}
	return 0;
}
