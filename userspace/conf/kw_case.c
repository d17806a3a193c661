/* SPDX-License-Identifier: BSD-2-Clause */
/* h1-case-adjust: how names of fields are written for HTTP/1 peers that look at their case. */
#include <errno.h>

#include "conf/kw_action_priv.h"

/* From "content-type" to "Content-Type"; 0, -ENOMEM, or why not. */
static int add_name(struct parser *ps, struct str from, struct str to, const char **ret_why)
{
	struct conf_global *g = &ps->conf->global;
	struct str *more;

	if (!str_is_case_eq(from, to) || !to.len) {
		*ret_why = "the two names may differ in case only";
		return -EINVAL;
	}
	for (size_t i = 0; i < from.len; i++) {
		if (from.p[i] != str_lower_char(from.p[i])) {
			*ret_why = "the first name has to be in lower case";
			return -EINVAL;
		}
	}
	for (unsigned i = 0; i < g->n_case_names; i++) {
		if (str_is_case_eq(g->case_names[i], to)) {
			*ret_why = "this name has been adjusted before";
			return -EINVAL;
		}
	}
	more = arena_alloc(&ps->conf->arena, (g->n_case_names + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	if (g->n_case_names)
		memcpy(more, g->case_names, g->n_case_names * sizeof(*more));
	more[g->n_case_names++] = to;
	g->case_names = more;
	return 0;
}

static int parse_case_adjust(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	const char *why = NULL;
	struct str from, to;
	int r = line_want(ps, l, "a name in lower case and how it is to be written", &from);

	if (r == 0)
		r = line_want(ps, l, "how the name is to be written", &to);
	if (r == 0)
		r = add_name(ps, from, to, &why);
	return why ? conf_fail(ps, l, l->at - 1, "'h1-case-adjust': %s", why) : r;
}

/* Lines of two words; what begins with '#' is a comment. */
static int parse_case_file(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct str text, line, to;
	unsigned number = 0;
	char *path;
	struct err err;
	int r = arg_string(ps, l, "a file", &path);

	if (r)
		return r;
	if (conf_read_path(ps, &ps->conf->arena, path, &text, &err))
		return conf_fail(ps, l, l->at - 1, "%s", err.text);
	while (r == 0 && text.p && text.len) {
		const char *why = NULL;
		size_t end = 0;

		line = str_trim(str_cut(&text, '\n'));
		number++;
		if (!line.len || line.p[0] == '#')
			continue;
		while (end < line.len && line.p[end] != ' ' && line.p[end] != '\t')
			end++;
		to = str_trim(str_from(line, end));
		r = add_name(ps, str_sub(line, 0, end), to, &why);
		if (why)
			r = conf_fail(ps, l, l->at - 1, "%s:%u: %s", path, number, why);
	}
	return r;
}

static const struct keyword rows[] = {
	{ NAME("h1-case-adjust"), SEC_GLOBAL, ARG_FUNC, .parse = parse_case_adjust, .grade = '2',
	  .args = "<name> <Name>",
	  .help = "how the name of a field is written where an option h1-case-adjust-bogus-… says "
		  "so" },
	{ NAME("h1-case-adjust-file"), SEC_GLOBAL, ARG_FUNC, .parse = parse_case_file, .grade = '2',
	  .args = "<file>", .help = "the same, one pair per line" },
};
const struct keyword_table conf_kw_case = KEYWORDS("keyword", rows);
