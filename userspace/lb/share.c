/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Servers that the kernel tier sends connections to, too: one word of the map `live_backends` counts those of both tiers
 * (struct hg_live_server), and a slot is taken there before it is taken here.
 *
 * Which row it is may change while slots are taken: with a reload, or with the server's address. Every worker therefore keeps the row
 * that its own slots are counted in, and how many these are; when control names another one, each worker moves its share over by
 * itself (share_move()). So what is given back is always what was taken, and no word is ever wrong by a change.
 *
 * Places that come free in the kernel wake nobody. While somebody waits for such a server, control looks every few
 * milliseconds (lb_poll_shared()); the first who waits tells it to begin (share_tell()).
 */
#include "lb/lb_priv.h"

static bool has_room(uint64_t word, uint32_t part, uint32_t limit)
{
	/* A full part would run over into its neighbour; nobody has half a million streams on one server. */
	return hg_live_l7(word, part) < HG_LIVE_L7_MAX && (!limit || hg_live_all(word) < limit);
}

bool share_has_room(const struct server *s, uint32_t limit)
{
	const struct hg_live_server *row = atomic_load(&s->live);

	return !row || has_room(__atomic_load_n(&row->word, __ATOMIC_SEQ_CST), s->live_part, limit);
}

uint32_t share_limit(const struct server *s, uint32_t limit)
{
	const struct hg_live_server *row = atomic_load(&s->live);
	uint32_t both = row ? __atomic_load_n(&row->limit, __ATOMIC_RELAXED) : 0;

	return both && (!limit || both < limit) ? both : limit;
}

bool share_take(struct hg_live_server *row, uint32_t part, uint32_t limit)
{
	__u64 word = __atomic_load_n(&row->word, __ATOMIC_SEQ_CST);

	do {
		if (!has_room(word, part, limit))
			return false;
	} while (!__atomic_compare_exchange_n(&row->word, &word, word + HG_LIVE_L7(part), true,
					      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	return true;
}

void share_move(struct server *s, unsigned worker)
{
	struct server_worker *w = &s->w[worker];
	struct hg_live_server *to = atomic_load(&s->live);
	__u64 slots;

	if (likely(to == w->live))
		return;
	slots = w->n_slots * HG_LIVE_L7(s->live_part);
	if (to)
		__atomic_add_fetch(&to->word, slots, __ATOMIC_SEQ_CST);
	if (w->live)
		__atomic_sub_fetch(&w->live->word, slots, __ATOMIC_SEQ_CST);
	w->live = to;
}

void server_share(struct server *s, struct hg_live_server *row, uint32_t part)
{
	if (atomic_load(&s->live) == row)
		return;
	/* The part is the process's: it changes once, with the first row, before anybody looks at it. */
	if (s->live_part != part)
		s->live_part = part;
	atomic_store(&s->live, row);
	lb_wake_all(s->be, s);
}

void share_tell(struct lb_backend *be, unsigned worker)
{
	struct lb_waker *wk = be->registry->waker;

	if (wk && wk->tell)
		wk->tell(wk, worker);
}

static bool poll_backend(struct lb_backend *be)
{
	bool has_waiting = atomic_load(&be->n_waiting), has_room = false;

	for (unsigned i = 0; i < be->n_servers; i++) {
		struct server *s = be->servers[i];
		bool is_waited_for = atomic_load(&s->n_waiting);

		if (!atomic_load(&s->live))
			continue;
		if (is_waited_for && server_has_slot(be, s))
			lb_wake_waiters(be, s);
		has_room |= server_has_slot(be, s);
		has_waiting |= is_waited_for;
	}
	if (has_room && atomic_load(&be->table))
		lb_wake_backend(be, atomic_load(&be->table));
	return has_waiting;
}

bool lb_poll_shared(struct lb_registry *r)
{
	bool has_waiting = false;
	struct list *l;

	list_for_each(l, &r->backends) {
		struct lb_backend *be = list_entry(l, struct lb_backend, link);

		if (atomic_load(&be->n_shared))
			has_waiting |= poll_backend(be);
	}
	return has_waiting;
}
