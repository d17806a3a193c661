/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * add-acl, del-acl, set-map, del-map: rules that change a list of patterns. The list must be used by
 * some ACL or map of the configuration. Control thread.
 */
#include <errno.h>

#include "conf/conf_priv.h"

struct pattern_edit_use {
	struct list link; /* parser.pattern_edits */
	struct line *line;
	unsigned word;
	const struct conf_pattern_edit *edit;
};

static const struct {
	struct str name;
	uint8_t kind;
	bool is_map;
} kinds[] = {
	{ NAME("add-acl"), PATTERN_ADD, false },
	{ NAME("del-acl"), PATTERN_DEL, false },
	{ NAME("set-map"), PATTERN_SET, true },
	{ NAME("del-map"), PATTERN_DEL, true },
};

int parse_pattern_edit(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
		       struct str file, struct conf_rule *rule)
{
	struct conf_pattern_edit *e = arena_zalloc(&ps->conf->arena, sizeof(*e));
	struct pattern_edit_use *u = arena_zalloc(&ps->arena, sizeof(*u));
	unsigned k = 0;
	int r;

	if (!e || !u)
		return -ENOMEM;
	while (k + 1 < ARRAY_SIZE(kinds) && !str_is_prefix(l->words[l->at - 1], kinds[k].name))
		k++;
	e->kind = kinds[k].kind;
	e->is_map = kinds[k].is_map;
	e->file = arena_str(&ps->conf->arena, file);
	if (!e->file.p)
		return -ENOMEM;
	*u = (struct pattern_edit_use){ .line = l, .word = l->at - 1, .edit = e };
	list_push_back(&ps->pattern_edits, &u->link);
	rule->pattern = e;
	r = compile_format(ps, b, l, place, &e->key);
	if (r == 0 && e->kind == PATTERN_SET)
		r = compile_format(ps, b, l, place, &e->value);
	return r;
}

int finalize_patterns(struct parser *ps)
{
	struct list *p;
	int ret = 0;

	list_for_each(p, &ps->pattern_edits) {
		const struct pattern_edit_use *u = list_entry(p, struct pattern_edit_use, link);
		const struct conf_pattern_edit *e = u->edit;
		int r;

		if (pat_ref_find(ps->conf->pat_refs, e->file, e->is_map))
			continue;
		r = conf_fail(ps, u->line, u->word,
			      "'" STR_FMT "' is not a file that %s of this configuration uses",
			      STR_ARG(str_sub(e->file, 0, 200)),
			      e->is_map ? "a map" : "an ACL ('-f')");
		if (r == -ENOMEM)
			return r;
		ret = r;
	}
	return ret;
}
