/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `stick on` and its kin: which server a client was on, and remembering it once a server was chosen and
 * answers. What is to be remembered waits in the stream's arena. Workers.
 */
#include "proxy/track.h"
#include "proxy/worker_priv.h"

#define STORES_MAX 8 /* tables that one stream may write to */

struct stick_store {
	unsigned n;
	struct {
		struct stick_table *t;
		struct str key;
	} at[STORES_MAX];
};

static uint64_t now_ms(const struct stream *st)
{
	return loop_now(st->w->loop) / 1000000;
}

/* Key of a rule whose condition holds; p NULL: it does not apply. */
static struct str rule_key(struct stream *st, const struct conf_stick_rule *r,
			   char mem[CONF_STICK_KEY_MAX])
{
	const struct subject *s;
	struct str key;

	if (!r->table->rt)
		return STR_NULL;
	s = stream_subject(st);
	if (r->cond && cond_eval(r->cond, s) <= 0)
		return STR_NULL;
	if (track_key_by_expr(r->expr, s, r->table->rt, mem, &key) || !key.len)
		return STR_NULL;
	return key;
}

static void store_later(struct stream *st, struct stick_table *t, struct str key)
{
	if (!st->stores)
		st->stores = arena_zalloc(&st->arena, sizeof(*st->stores));
	if (!st->stores || st->stores->n == STORES_MAX)
		return;
	/* One key per table: the first. */
	for (unsigned i = 0; i < st->stores->n; i++)
		if (st->stores->at[i].t == t)
			return;
	key = arena_str(&st->arena, key);
	if (!key.p)
		return;
	st->stores->at[st->stores->n].t = t;
	st->stores->at[st->stores->n++].key = key;
}

static uint64_t server_name_hash(const struct conf_server *cs)
{
	uint64_t h = str_hash(str_from_cstr(cs->name), 0);

	return h ? h : 1;
}

static const struct conf_server *find_by_name_hash(const struct conf_proxy *px, uint64_t name)
{
	struct list *pos;

	list_for_each(pos, &px->servers) {
		const struct conf_server *cs = list_entry(pos, struct conf_server, link);

		if (server_name_hash(cs) == name)
			return cs;
	}
	return NULL;
}

/* Of those that `add server` has made; `name` 0: by number. */
static struct server *find_added(struct stream *st, uint64_t id, uint64_t name)
{
	struct server *s;

	for (unsigned pos = 0; (s = lb_added_server(st->be_rt, &pos)); pos++)
		if (name ? server_name_hash(s->own->line) == name : s->own->line->id == id)
			return s;
	return NULL;
}

static struct server *find_server(struct stream *st, struct stick_table *t, struct str key)
{
	const struct conf_server *cs = NULL;
	struct stick_ref ref;
	struct server *srv;
	uint64_t id = 0, name = 0;

	if (stick_find(t, key, now_ms(st), &ref))
		return NULL;
	if (!stick_read_server(&ref, &id, &name))
		cs = conf_server_by_id(st->be, (unsigned)id);
	/* Servers were added or removed by a reload: the name counts. */
	if (name && (!cs || server_name_hash(cs) != name)) {
		cs = find_by_name_hash(st->be, name);
		if (cs)
			(void)!stick_write_server(&ref, cs->id, name, now_ms(st));
	}
	stick_close(&ref, NULL, now_ms(st));
	srv = cs ? lb_server_of(st->be_rt, cs) : NULL;
	if (!srv)
		srv = find_added(st, id, name);
	if (!srv || server_is_usable(srv) || stream_may_use_down(st))
		return srv;
	return NULL;
}

struct server *track_stick_pick(struct stream *st, struct server *forced)
{
	char mem[CONF_STICK_KEY_MAX];
	struct list *pos;

	if (st->flags & STREAM_STICK_DONE)
		return forced;
	st->flags |= STREAM_STICK_DONE;
	list_for_each(pos, &st->be->stick_rules) {
		const struct conf_stick_rule *r = list_entry(pos, struct conf_stick_rule, link);
		struct server *srv = NULL;
		struct str key;

		if (r->is_response)
			continue;
		key = rule_key(st, r, mem);
		if (!key.p)
			continue;
		if (r->is_match && !forced)
			srv = find_server(st, r->table->rt, key);
		if (srv) {
			forced = st->force = srv;
			st->flags |= STREAM_ASSIGNED;
		}
		if (r->is_store)
			store_later(st, r->table->rt, key);
	}
	return forced;
}

void track_stick_store(struct stream *st)
{
	char mem[CONF_STICK_KEY_MAX];
	struct list *pos;

	list_for_each(pos, &st->be->stick_rules) {
		const struct conf_stick_rule *r = list_entry(pos, struct conf_stick_rule, link);
		struct str key = r->is_response ? rule_key(st, r, mem) : STR_NULL;

		if (key.p)
			store_later(st, r->table->rt, key);
	}
	if (!st->stores || !st->srv_conf || st->srv_conf->is_non_stick)
		return;
	for (unsigned i = 0; i < st->stores->n; i++) {
		struct stick_ref ref;

		/* A table full of entries in use remembers nobody else. */
		if (stick_open(st->stores->at[i].t, st->stores->at[i].key, NULL, now_ms(st), &ref))
			continue;
		(void)!stick_write_server(&ref, st->srv_conf->id, server_name_hash(st->srv_conf),
					  now_ms(st));
		stick_close(&ref, NULL, now_ms(st));
	}
}
