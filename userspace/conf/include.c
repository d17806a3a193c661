/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `include <pattern>`: the lines of other files, as if they stood here. A pattern without a leading slash is
 * relative to the directory of the file that includes; its matches are read in the order of their names. One
 * without wildcards must exist. A section goes on over the border of a file, a `.if` block does not.
 */
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "conf/conf_priv.h"

#define DEPTH_MAX 16
#define FILES_MAX 10000 /* of one configuration: two files that include each other twice */

struct include {
	const struct include *outer;
	const char *file; /* that includes */
	unsigned line;
	dev_t dev; /* of what is included */
	ino_t ino;
};

static unsigned depth_of(const struct include *i)
{
	unsigned n = 0;

	for (; i; i = i->outer)
		n++;
	return n;
}

static bool is_open(const struct include *i, const struct stat *st)
{
	for (; i; i = i->outer) {
		if (i->dev == st->st_dev && i->ino == st->st_ino)
			return true;
	}
	return false;
}

static int read_included(struct parser *ps, struct line *l, const char *path, const struct stat *st)
{
	struct include inc = { .outer = ps->include,
			       .file = ps->file,
			       .line = ps->line_no,
			       .dev = st->st_dev,
			       .ino = st->st_ino };
	unsigned n_outer_ifs = ps->n_outer_ifs;
	struct str text;
	struct err err;
	int r = conf_read_file(&ps->arena, path, &text, &err);

	if (r == -ENOMEM)
		return r;
	if (r)
		return conf_fail(ps, l, 1, "%s", err.text);
	ps->file = arena_strdup(&ps->conf->arena, str_from_cstr(path));
	if (!ps->file) {
		ps->file = inc.file;
		return -ENOMEM;
	}
	ps->file_no++;
	ps->n_included++;
	ps->include = &inc;
	ps->n_outer_ifs = ps->n_ifs;
	r = parser_lines(ps, text);
	ps->n_outer_ifs = n_outer_ifs;
	ps->include = (struct include *)(uintptr_t)inc.outer;
	ps->file = inc.file;
	ps->line_no = inc.line;
	return r;
}

static int include_file(struct parser *ps, struct line *l, const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return conf_fail(ps, l, 1, "cannot read '%s': %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return conf_fail(ps, l, 1, "'%s' is not a plain file ('%s/*.cfg' means its files)",
				 path, path);
	if (is_open(ps->include, &st))
		return conf_fail(ps, l, 1, "'%s' includes itself", path);
	if (depth_of(ps->include) >= DEPTH_MAX)
		return conf_fail(ps, l, 1, "files are included more than %d deep", DEPTH_MAX);
	if (ps->n_included >= FILES_MAX)
		return conf_fail(ps, l, 1, "more than %d files are included", FILES_MAX);
	return read_included(ps, l, path, &st);
}

/* Relative to the file that says so. */
static struct str full_pattern(struct parser *ps, struct str pattern)
{
	const char *slash = strrchr(ps->file, '/');

	if (pattern.p[0] == '/' || !slash)
		return pattern;
	return arena_printf(&ps->arena, "%.*s/" STR_FMT, (int)(slash - ps->file), ps->file,
			    STR_ARG(pattern));
}

int include_line(struct parser *ps, struct line *l)
{
	struct str pattern;
	glob_t g;
	int r;

	l->at = 1;
	l->kw_n = 1;
	r = line_want(ps, l, "a file or a pattern such as 'conf.d/*.cfg'", &pattern);
	if (r == 0)
		r = line_want_end(ps, l);
	if (r)
		return r;
	if (!pattern.len)
		return conf_fail(ps, l, 1, "'include' expects a file");
	pattern = full_pattern(ps, pattern);
	if (!pattern.p)
		return -ENOMEM;
	if (!strpbrk(pattern.p, "*?["))
		return include_file(ps, l, pattern.p);
	/* glob() sorts by the locale's order, which is that of the bytes here. */
	r = glob(pattern.p, 0, NULL, &g);
	if (r == GLOB_NOMATCH)
		return 0;
	if (r)
		return r == GLOB_NOSPACE
			       ? -ENOMEM
			       : conf_fail(ps, l, 1, "cannot read what '%s' means", pattern.p);
	for (size_t i = 0; i < g.gl_pathc && r != -ENOMEM; i++)
		r = include_file(ps, l, g.gl_pathv[i]);
	globfree(&g);
	return r;
}
