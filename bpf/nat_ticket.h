/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Giving tickets to established connections of IPv4 and taking them away; the rules are in include/headgate/nat.h. This
 * happens when a connection's state changes, when its row is renewed and when it ends: never per packet.
 */
#ifndef HG_BPF_NAT_TICKET_H
#define HG_BPF_NAT_TICKET_H

#include "bpf/csum.h"
#include "bpf/maps_nat.h"
#include "bpf/stage_flow.h"

#define NAT_PATH_NONE	(~0u)
#define NAT_PATH_PROBES 4
#define NO_PLACE	(~0u)

INLINE u64 nat_hint_of(const struct hg_nat_conn *c)
{
	return hg_nat_hint(HG_NAT_TICKET_CLIENT(c->last[HG_NAT_CLIENT], c->client_port),
			   c->last[HG_NAT_VIP], c->vip_port, c->proto, ro.hash_seed);
}

INLINE u32 nat_hint_line(u64 hint)
{
	return (u32)(hint >> 32) & (HG_NAT_HINT_LINES(ro.nat_mask + 1) - 1);
}

INLINE bool nat_is_established(u32 life)
{
	return HG_NAT_STATE(life) == HG_NAT_OPEN || HG_NAT_STATE(life) == HG_NAT_UDP;
}

/* --- paths -------------------------------------------------------------------------------------------- */

INLINE void path_of(const struct hg_nat_conn *c, u32 row, struct hg_nat_path *ret)
{
	u32 sum = csum_add32(0, c->last[HG_NAT_EDGE]), port = __builtin_bswap16(c->edge_port);

	__builtin_memset(ret, 0, sizeof(*ret));
	ret->vip = c->last[HG_NAT_VIP];
	ret->vip_port = c->vip_port;
	ret->proto = c->proto;
	ret->backend = c->last[HG_NAT_BACKEND];
	ret->edge = c->last[HG_NAT_EDGE];
	ret->backend_port = c->backend_port;
	ret->backend_id = c->backend;
	ret->service = c->service;
	ret->idle_ticks = c->idle_ticks;
	ret->client.word = READ_ONCE(c->client.word);
	ret->own.word = READ_ONCE(c->own.word);
	ret->ifindex = c->ifindex;
	sum = csum_add32(csum_add32(sum, ~ret->vip), ret->backend);
	ret->ip_base = csum_fold(sum);
	ret->l4_base = csum_fold(ret->ip_base + (u16)~ret->vip_port + ret->backend_port);
	ret->base = (row - port) & ro.nat_mask;
	ret->port_high = port & ~ro.nat_mask;
	ret->state = HG_NAT_PATH_READY;
}

/* All but `seen`; `state` takes part. */
INLINE bool path_is(const struct hg_nat_path *a, const struct hg_nat_path *b)
{
	const u64a *x = (const u64a *)a, *y = (const u64a *)b;

	return READ_ONCE(a->state) == b->state && x[0] == y[0] && x[1] == y[1] && x[2] == y[2] &&
	       x[3] == y[3] && x[4] == y[4] && x[5] == y[5] && x[6] == y[6];
}

/* Index of the path that `want` describes, made if there is room; NAT_PATH_NONE: there is none. */
INLINE u32 path_get(const struct hg_nat_path *want)
{
	const u64a *w = (const u64a *)want;
	u64 hash = hg_mix64(hg_mix64(w[0] ^ ro.hash_seed, w[1]), w[2] ^ w[3] ^ w[6]);
	u32 mask = HG_NAT_PATHS(ro.nat_mask + 1) - 1, index, i;
	struct hg_nat_path *p;

#pragma clang loop unroll(disable)
	for (i = 0; i < NAT_PATH_PROBES; i++) {
		index = ((u32)hash + i) & mask;
		p = bpf_map_lookup_elem(&nat_paths, &index);
		if (!p)
			break;
		if (path_is(p, want))
			return index;
		if (READ_ONCE(p->state) != HG_NAT_PATH_FREE ||
		    __sync_val_compare_and_swap(&p->state, HG_NAT_PATH_FREE, HG_NAT_PATH_FILLING) !=
			    HG_NAT_PATH_FREE)
			continue;
		((u64a *)p)[0] = w[0];
		((u64a *)p)[1] = w[1];
		((u64a *)p)[2] = w[2];
		((u64a *)p)[3] = w[3];
		((u64a *)p)[4] = w[4];
		((u64a *)p)[5] = w[5];
		((u64a *)p)[6] = w[6];
		*(volatile u32 *)&p->seen = 1; /* until the sweep has gone round once */
		__sync_lock_test_and_set(&p->state, HG_NAT_PATH_READY);
		return index;
	}
	return NAT_PATH_NONE;
}

/* Index of the path that the connection in `row` is on; NAT_PATH_NONE: it can have no ticket. */
GLOBAL u32 nat_path(u32 row)
{
	struct hg_nat_conn *c = bpf_map_lookup_elem(&nat_conns, &row);
	struct hg_nat_path want;

	if (!c || c->v6)
		return NAT_PATH_NONE;
	path_of(c, row, &want);
	return path_get(&want);
}

/* --- tickets ------------------------------------------------------------------------------------------ */

/* Is this a hint, in either half of `line`, at the connection that now has the row, and has it a ticket? */
INLINE bool hint_is_right(u32 line, u32 word)
{
	u32 row = word & ro.nat_mask;
	struct hg_nat_ticket *t = bpf_map_lookup_elem(&nat_tickets, &row);
	struct hg_nat_conn *c = bpf_map_lookup_elem(&nat_conns, &row);
	u64 hint;

	if (!c || !t || !READ_ONCE(t->word))
		return false;
	hint = nat_hint_of(c);
	return !(((u32)hint ^ word) & ~ro.nat_mask) && (nat_hint_line(hint) ^ line) < 2;
}

/* Place of the first wrong hint in the two halves; NO_PLACE: all are right. */
GLOBAL u32 nat_hint_wrong(u32 line)
{
	struct hg_nat_hints *l;
	u32 at, i;

#pragma clang loop unroll(disable)
	for (i = 0; i < 2 * HG_NAT_HINTS; i++) {
		at = line ^ (i / HG_NAT_HINTS);
		l = bpf_map_lookup_elem(&nat_hints, &at);
		if (!l)
			break;
		if (!hint_is_right(line, READ_ONCE(l->word[i & (HG_NAT_HINTS - 1)])))
			return i;
	}
	return NO_PLACE;
}

/* Puts a row where the client's side will look for it: where it is, else where nothing is, else in place of a wrong one. */
GLOBAL u32 nat_hint_put(u64 hint, u32 row)
{
	u32 word = ((u32)hint & ~ro.nat_mask) | row, line = nat_hint_line(hint);
	u32 place = NO_PLACE, at, old, i;
	struct hg_nat_hints *l;

	if (!row)
		return 0;
#pragma clang loop unroll(disable)
	for (i = 0; i < 2 * HG_NAT_HINTS; i++) {
		at = line ^ (i / HG_NAT_HINTS);
		l = bpf_map_lookup_elem(&nat_hints, &at);
		if (!l)
			return 0;
		old = READ_ONCE(l->word[i & (HG_NAT_HINTS - 1)]);
		if (old == word)
			return 0;
		if (!old && place == NO_PLACE)
			place = i;
	}
	if (place == NO_PLACE)
		place = nat_hint_wrong(line);
	at = line ^ (place / HG_NAT_HINTS);
	l = bpf_map_lookup_elem(&nat_hints, &at);
	if (place < 2 * HG_NAT_HINTS && l)
		*(volatile u32 *)&l->word[place & (HG_NAT_HINTS - 1)] = word;
	return 0;
}

/* Takes the row's ticket away, and its hint as far as that is still where it was put. */
GLOBAL u32 nat_ticket_take(u32 row)
{
	struct hg_nat_conn *c = bpf_map_lookup_elem(&nat_conns, &row);
	struct hg_nat_ticket *t = bpf_map_lookup_elem(&nat_tickets, &row);
	struct hg_nat_hints *l;
	u32 line, word, at, i;
	u64 hint;

	if (!c || !t || !READ_ONCE(t->word))
		return 0;
	__sync_lock_test_and_set(&t->word, 0);
	hint = nat_hint_of(c);
	line = nat_hint_line(hint);
	word = ((u32)hint & ~ro.nat_mask) | row;
#pragma clang loop unroll(disable)
	for (i = 0; i < 2 * HG_NAT_HINTS; i++) {
		at = line ^ (i / HG_NAT_HINTS);
		l = bpf_map_lookup_elem(&nat_hints, &at);
		if (!l)
			break;
		__sync_val_compare_and_swap(&l->word[i & (HG_NAT_HINTS - 1)], word, 0);
	}
	return 0;
}

/* The row's ticket, on this path, as old as the row. */
GLOBAL u32 nat_ticket_give(u32 row, u32 path)
{
	struct hg_nat_conn *c = bpf_map_lookup_elem(&nat_conns, &row);
	struct hg_nat_ticket *t = bpf_map_lookup_elem(&nat_tickets, &row);
	u32 life, line = row / HG_NAT_TICKS;
	struct hg_nat_ticks *ticks = bpf_map_lookup_elem(&nat_ticks, &line);

	if (!c || !t || !ticks)
		return 0;
	life = READ_ONCE(c->life);
	if (!nat_is_established(life))
		return 0;
	*(volatile u16 *)&ticks->tick[row & (HG_NAT_TICKS - 1)] = HG_NAT_TICK(life);
	__sync_lock_test_and_set(
		&t->word,
		HG_NAT_TICKET(HG_NAT_TICKET_CLIENT(c->last[HG_NAT_CLIENT], c->client_port), path));
	return 0;
}

/*
 * After the way to the client has changed: the ticket names the old one. A new one is given when the row is renewed, which is made
 * due in two ticks: at once would be too dear where packets of one connection take turns between two ways.
 */
GLOBAL u32 nat_ticket_relink(u32 row)
{
	struct hg_nat_conn *c = bpf_map_lookup_elem(&nat_conns, &row);
	u32 now = tick_now(), life, eighth;

	if (!c)
		return 0;
	eighth = c->idle_ticks / 8;
	life = READ_ONCE(c->life);
	if (nat_is_established(life) && tick_age(life, now) + 1 < eighth)
		__sync_val_compare_and_swap(&c->life, life,
					    HG_NAT_LIFE(HG_NAT_STATE(life), now + 1 - eighth));
	else
		__sync_fetch_and_add(&c->life,
				     0); /* the way is written before the ticket is looked at */
	return nat_ticket_take(row);
}

/* After the row's life has moved: its ticket follows. */
GLOBAL u32 nat_ticket_follow(u32 row)
{
	struct hg_nat_conn *c = bpf_map_lookup_elem(&nat_conns, &row);
	u32 path;

	if (!c)
		return 0;
	if (nat_is_established(READ_ONCE(c->life))) {
		path = nat_path(row);
		if (path == NAT_PATH_NONE)
			return 0;
		nat_ticket_give(row, path);
		nat_hint_put(nat_hint_of(c), row);
		/* Neither over nor on another path in the meantime. */
		if (nat_is_established(READ_ONCE(c->life)) && nat_path(row) == path)
			return 0;
	}
	return nat_ticket_take(row);
}

#endif
