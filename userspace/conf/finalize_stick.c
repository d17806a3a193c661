/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the stick tables that rules and expressions name, now that all sections are known. What names
 * none means the table of its own section. Control thread.
 */
#include <errno.h>

#include "conf/kw_action_priv.h"

static int missing_table(struct parser *ps, const struct conf_pos *pos, const char *name,
			 const char *section)
{
	struct nearest near;
	char hint[96];

	if (!name)
		return conf_fail_pos(ps, pos,
				     "section '%.64s' has no 'stick-table': add one, or name "
				     "another section's with 'table <name>'",
				     section);
	nearest_init(&near, str_from_cstr(name));
	nearest_offer_names(&near, ps->stick_names);
	return conf_fail_pos(ps, pos,
			     "there is no stick table '%.64s': add a 'stick-table' line to a "
			     "section of that name%s",
			     name, nearest_hint(&near, hint));
}

int find_stick_table(struct parser *ps, const struct conf_proxy *px, const struct conf_pos *pos,
		     const char *name, struct conf_stick_table **ret)
{
	*ret = name ? names_find(ps->stick_names, str_from_cstr(name)) : px->stick_table;
	return *ret ? 0 : missing_table(ps, pos, name, px->name);
}

static int resolve_rule(struct parser *ps, const struct conf_proxy *px, struct conf_rule *rule)
{
	uint32_t n = ps->conf->global.stick_counters;

	if (rule->action != ACTION_TRACK_SC && rule->action != ACTION_SC_INC_GPC &&
	    rule->action != ACTION_SC_SET_GPT)
		return 0;
	if (rule->index >= n)
		return conf_fail_pos(ps, &rule->pos,
				     "counter %u does not exist: 'tune.stick-counters' is %u",
				     rule->index, n);
	if (rule->action != ACTION_TRACK_SC)
		return 0;
	return find_stick_table(ps, px, &rule->pos, rule->name, &rule->table);
}

static int resolve_stick(struct parser *ps, const struct conf_proxy *px,
			 struct conf_stick_rule *rule)
{
	int r = find_stick_table(ps, px, &rule->pos, rule->table_name, &rule->table);

	if (r == 0)
		rule->table->store[STICK_DATA_SERVER_ID].n = 1;
	if (r == 0 && px->mode == CONF_MODE_L4)
		r = conf_fail_pos(ps, &rule->pos, "'stick' is not possible in 'mode l4'");
	return r;
}

static int index_servers(struct parser *ps, struct conf_proxy *px)
{
	struct list *p;

	px->server_ids = names_new(&ps->conf->arena);
	if (!px->server_ids)
		return -ENOMEM;
	list_for_each(p, &px->servers) {
		struct conf_server *s = list_entry(p, struct conf_server, link);
		struct str key = str_make((const char *)&s->id, sizeof(s->id));

		/* Two of one number have been refused before. */
		if (names_add(px->server_ids, key, s) == -ENOMEM)
			return -ENOMEM;
	}
	return 0;
}

/* Which table workers look into ahead, because every request is about to. */
static void note_tracks_src(struct conf_proxy *px, int set, const struct conf_rule *rule)
{
	if ((set == RULES_HTTP_REQUEST || set == RULES_TCP_CONTENT) && !px->tracks_src &&
	    rule->action == ACTION_TRACK_SC && rule->table &&
	    (rule->table->type == STICK_IP || rule->table->type == STICK_IPV6) &&
	    str_is_eq(expr_text(rule->expr), STR("src")))
		px->tracks_src = rule->table;
}

static int finalize_proxy(struct parser *ps, struct conf_proxy *px)
{
	struct list *p;
	int r = 0;

	for (int i = 0; i < RULES_COUNT; i++) {
		list_for_each(p, &px->rules[i]) {
			struct conf_rule *rule = list_entry(p, struct conf_rule, link);

			r = resolve_rule(ps, px, rule);
			if (r == -ENOMEM)
				return r;
			note_tracks_src(px, i, rule);
		}
	}
	list_for_each(p, &px->stick_rules) {
		r = resolve_stick(ps, px, list_entry(p, struct conf_stick_rule, link));
		if (r == -ENOMEM)
			return r;
	}
	return list_is_empty(&px->stick_rules) ? 0 : index_servers(ps, px);
}

/*
 * The entry that is tracked knows its table; everything else needs one. What stands in a
 * defaults section is for the section that inherits it: the worker looks there.
 */
static int resolve_use(struct parser *ps, const struct stick_use *u)
{
	const char *name = u->op->table.len ? arena_strdup(&ps->arena, u->op->table) : NULL;
	struct conf_stick_table *t;
	int r;

	if (u->op->table.len && !name)
		return -ENOMEM;
	if (!name && (u->op->key == TABLE_KEY_TRACKED || u->b->section & SEC_DEFAULTS))
		return 0;
	r = find_stick_table(ps, &u->b->px, &u->line->pos, name, &t);
	u->op->ref = t;
	return r == -ENOMEM ? r : 0;
}

int finalize_stick(struct parser *ps)
{
	struct list *p;
	int r = 0;

	list_for_each(p, &ps->builds) {
		struct proxy_build *b = list_entry(p, struct proxy_build, link);

		if (r == 0)
			r = finalize_proxy(ps, &b->px);
		if (r == 0)
			r = finalize_filters(ps, b);
	}
	list_for_each(p, &ps->stick_uses) {
		if (r == 0)
			r = resolve_use(ps, list_entry(p, struct stick_use, link));
	}
	return r;
}

struct conf_server *conf_server_by_id(const struct conf_proxy *px, unsigned id)
{
	return px->server_ids ? names_find(px->server_ids, str_make((char *)&id, sizeof(id)))
			      : NULL;
}

struct conf_stick_table *conf_find_stick_table(const struct conf *c, struct str name)
{
	struct list *p;

	list_for_each(p, &c->stick_tables) {
		struct conf_stick_table *t = list_entry(p, struct conf_stick_table, link);

		if (str_is_eq(str_from_cstr(t->name), name))
			return t;
	}
	return NULL;
}
