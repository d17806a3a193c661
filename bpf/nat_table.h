/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of NAT connections: finding, claiming and ending rows, TCP's states, counts. Functions take
 * numbers. Atomic operations happen where a connection begins, changes its state or has been silent for a
 * tick; packets in between only read.
 */
#ifndef HG_BPF_NAT_TABLE_H
#define HG_BPF_NAT_TABLE_H

#include "bpf/conn_count.h"
#include "bpf/maps_common.h"
#include "bpf/nat_ticket.h"
#include "bpf/stage_flow.h"
#include "bpf/stage_service.h"

#define NAT_NONE (~0u)

/* --- finding ------------------------------------------------------------------------------------------ */

/* Row of the fingerprint in this line; NAT_NONE: not here. Arithmetic, as in line_find(). */
INLINE u32 nat_line_find(u32 line, u64 hash)
{
	struct hg_nat_line *l = bpf_map_lookup_elem(&nat_lines, &line);
	u64 word, differs;
	u32 id = 0, i;

	if (!l)
		return NAT_NONE;
#pragma clang loop unroll(full)
	for (i = 0; i < HG_NAT_WAYS; i++) {
		word = READ_ONCE(l->word[i]);
		differs = (word ^ hash) >> HG_NAT_ROW_BITS;
		differs = -differs >> 63;
		id ^= (id ^ ((u32)word & ((1u << HG_NAT_ROW_BITS) - 1))) & (u32)(differs - 1);
	}
	return id - 1;
}

INLINE u32 nat_row_of(u64 hash)
{
	u32 line = hg_line_of(hash, ro.nat_line_mask), row = nat_line_find(line, hash);

	return row != NAT_NONE ? row : nat_line_find(HG_LINE_NEIGHBOUR(line), hash);
}

INLINE struct hg_nat_addrs *nat_addrs_of(const struct hg_nat_conn *c)
{
	u32 row = c->row;

	return bpf_map_lookup_elem(&nat_addrs, &row);
}

/* The key of the row's client side. */
INLINE void nat_client_key(const struct hg_nat_conn *c, const struct hg_nat_addrs *a,
			   struct hg_flow_key *k)
{
	__builtin_memset(k, 0, sizeof(*k));
	__builtin_memcpy(k->src, a->addr[HG_NAT_CLIENT], sizeof(k->src));
	__builtin_memcpy(k->dst, a->addr[HG_NAT_VIP], sizeof(k->dst));
	k->sport = c->client_port;
	k->dport = c->vip_port;
	k->proto = c->proto;
}

INLINE bool addr_is(const __be32 *a, const __be32 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

INLINE bool nat_row_is(u32 row, const struct hg_flow_key *k, enum hg_nat_who src,
		       enum hg_nat_who dst)
{
	struct hg_nat_conn *c = bpf_map_lookup_elem(&nat_conns, &row);
	struct hg_nat_addrs *a = bpf_map_lookup_elem(&nat_addrs, &row);

	return c && a && HG_NAT_STATE(READ_ONCE(c->life)) > HG_NAT_CLAIMED &&
	       c->proto == k->proto && addr_is(k->src, a->addr[src]) &&
	       addr_is(k->dst, a->addr[dst]);
}

/* For rare callers: row of the flow as the client (or with `back` the backend) sends it; NAT_NONE. */
GLOBAL u32 nat_find(struct hg_flow_key *k, u32 back)
{
	struct hg_nat_conn *c;
	u16 dport;
	u32 row;

	if (!k)
		return NAT_NONE;
	if (!back) {
		row = nat_row_of(hg_flow_hash(k, ro.hash_seed));
		c = bpf_map_lookup_elem(&nat_conns, &row);
		return c && nat_row_is(row, k, HG_NAT_CLIENT, HG_NAT_VIP) &&
				       c->client_port == k->sport && c->vip_port == k->dport
			       ? row
			       : NAT_NONE;
	}
	dport = k->dport;
	k->dport = 0;
	row = hg_nat_row(hg_nat_base(k, ro.hash_seed), __builtin_bswap16(dport), ro.nat_mask);
	k->dport = dport;
	c = bpf_map_lookup_elem(&nat_conns, &row);
	return c && nat_row_is(row, k, HG_NAT_BACKEND, HG_NAT_EDGE) &&
			       c->backend_port == k->sport && c->edge_port == dport
		       ? row
		       : NAT_NONE;
}

/* --- counts ------------------------------------------------------------------------------------------- */

INLINE void nat_count(const struct hg_nat_conn *c, int change)
{
	u32 backend = c->backend, service = c->service;
	struct hg_live_server *s = bpf_map_lookup_elem(&live_backends, &backend);
	struct hg_live *l = bpf_map_lookup_elem(&live_services, &service);

	if (s)
		__sync_fetch_and_add(&s->word, (u64)(__s64)change * HG_LIVE_XDP);
	if (l)
		__sync_fetch_and_add(&l->conns, change);
}

/* --- beginning and end -------------------------------------------------------------------------------- */

/* Swaps a word of one of the two lines of `hash`; false: `old` is in neither. */
GLOBAL u32 nat_line_swap(u64 hash, u64 old, u64 new)
{
	u32 first = hg_line_of(hash, ro.nat_line_mask), line, way, i;
	struct hg_nat_line *l;

#pragma clang loop unroll(disable)
	for (i = 0; i < 2 * HG_NAT_WAYS; i++) {
		line = i < HG_NAT_WAYS ? first : HG_LINE_NEIGHBOUR(first);
		way = i & (HG_NAT_WAYS - 1);
		l = bpf_map_lookup_elem(&nat_lines, &line);
		if (!l)
			return false;
		if (READ_ONCE(l->word[way]) == old &&
		    __sync_val_compare_and_swap(&l->word[way], old, new) == old)
			return true;
	}
	return false;
}

/* From `life` to CLAIMED: the row is the caller's, its connection is over. False: somebody was faster. */
GLOBAL u32 nat_take(u32 row, u32 life, u32 now)
{
	struct hg_nat_conn *c = bpf_map_lookup_elem(&nat_conns, &row);
	struct hg_nat_addrs *a = bpf_map_lookup_elem(&nat_addrs, &row);
	struct hg_nat_ticket *t;
	struct hg_flow_key k;
	u64 hash;

	if (!c || !a ||
	    __sync_val_compare_and_swap(&c->life, life, HG_NAT_LIFE(HG_NAT_CLAIMED, now)) != life)
		return false;
	if (HG_NAT_STATE(life) <= HG_NAT_CLAIMED)
		return true;
	if (hg_nat_is_counted(HG_NAT_STATE(life)))
		nat_count(c, -1);
	/* Its hint stays: there is no stack for it here, and whoever needs the place sees that it is wrong. */
	t = bpf_map_lookup_elem(&nat_tickets, &row);
	if (t)
		__sync_lock_test_and_set(&t->word, 0);
	nat_client_key(c, a, &k);
	hash = hg_flow_hash(&k, ro.hash_seed);
	nat_line_swap(hash, HG_NAT_WORD(hash, row), 0);
	return true;
}

GLOBAL u32 nat_end(u32 row, u32 life)
{
	struct hg_nat_conn *c = bpf_map_lookup_elem(&nat_conns, &row);

	if (!c || !nat_take(row, life, tick_now()))
		return false;
	__sync_lock_test_and_set(&c->life, 0);
	return true;
}

/* --- TCP's states ------------------------------------------------------------------------------------- */

#define NAT_FIN	 0x01u
#define NAT_SYN	 0x02u
#define NAT_RST	 0x04u
#define NAT_ACK	 0x10u
#define NAT_BACK 0x100u /* from the backend */

INLINE u32 nat_next(u32 state, u32 flags)
{
	bool back = flags & NAT_BACK;

	if (state == HG_NAT_UDP_NEW)
		return back ? HG_NAT_UDP : state;
	if (state == HG_NAT_UDP || state == HG_NAT_CLOSED)
		return state;
	if (flags & NAT_RST)
		return HG_NAT_RESET;
	if (flags & NAT_SYN)
		return state == HG_NAT_SYN && back ? HG_NAT_REPLIED : state;
	if (state == HG_NAT_SYN)
		return state;
	if (flags & NAT_FIN) {
		if (state == (back ? HG_NAT_FIN_CLIENT : HG_NAT_FIN_SERVER))
			return HG_NAT_CLOSED;
		return back ? HG_NAT_FIN_SERVER : HG_NAT_FIN_CLIENT;
	}
	if (state == HG_NAT_RESET || (state == HG_NAT_REPLIED && !back))
		return HG_NAT_OPEN;
	return state;
}

/*
 * The state after a packet with these TCP flags (none for UDP); HG_NAT_FREE: the connection is over. With NAT_MOVED tickets
 * have to follow.
 */
#define NAT_MOVED 0x100u

GLOBAL u32 nat_step(u32 row, u32 flags)
{
	struct hg_nat_conn *c = bpf_map_lookup_elem(&nat_conns, &row);
	u32 now = tick_now(), life, state, next, i;
	int counts;

	if (!c)
		return HG_NAT_FREE;
#pragma clang loop unroll(disable)
	for (i = 0; i < 4; i++) {
		life = READ_ONCE(c->life);
		state = HG_NAT_STATE(life);
		if (state <= HG_NAT_CLAIMED || hg_nat_expired(life, c->idle_ticks, now, 0))
			return HG_NAT_FREE;
		next = nat_next(state, flags);
		/* The port of what is over rests: late packets do not make it younger. */
		if (next == state && (state == HG_NAT_CLOSED || state == HG_NAT_RESET))
			return state;
		if (HG_NAT_LIFE(next, now) == life)
			return state;
		if (__sync_val_compare_and_swap(&c->life, life, HG_NAT_LIFE(next, now)) != life)
			continue;
		counts = hg_nat_is_counted(next) - hg_nat_is_counted(state);
		if (counts)
			nat_count(c, counts);
		return nat_is_established(life) || nat_is_established(HG_NAT_LIFE(next, 0))
			       ? next | NAT_MOVED
			       : next;
	}
	return HG_NAT_STATE(life); /* others keep it young */
}

/* --- ports -------------------------------------------------------------------------------------------- */

#define NAT_PROBES_OWN	32 /* one after the other */
#define NAT_PROBES_REST 64 /* and anywhere: among rows that nobody has */
#define NAT_PROBES	128 /* then also among those that rest */
#define NAT_STRIDE	7919 /* a prime: visits every port of a smaller range */

/* May a newcomer have the row? `pressed`: ports are short. */
INLINE bool nat_may_take(u32 life, u32 idle_ticks, u32 now, bool pressed)
{
	u32 state = HG_NAT_STATE(life), age = tick_age(life, now);

	if (state == HG_NAT_FREE)
		return true;
	/* One tick later than packets believe: whoever has just seen it alive is done with it by now. */
	if (hg_nat_expired(life, idle_ticks, now, 1))
		return true;
	if (!pressed || age >= 0x8000)
		return false;
	if (state == HG_NAT_CLOSED || state == HG_NAT_RESET)
		return age >= 2;
	return (state == HG_NAT_SYN || state == HG_NAT_REPLIED || state == HG_NAT_UDP_NEW) &&
	       age >= 4;
}

/*
 * Is the edge's port a service's? Answers to it would never come back to us. As service_bucket(), but one
 * function deep: here the stack is short.
 */
GLOBAL u32 nat_port_taken(struct hg_flow_key *k, u32 port)
{
	struct hg_service_key s = {};
	u32 zero = 0, base, i;
	struct hg_control *c = bpf_map_lookup_elem(&control, &zero);

	if (!c || !k)
		return true;
	base = (READ_ONCE(c->service_generation) & 1) * (ro.service_mask + 1);
	__builtin_memcpy(s.addr, k->dst, sizeof(s.addr));
	s.port = hg_be16(port);
	s.proto = k->proto;
	/* The port, any port of the protocol, any protocol. */
#pragma clang loop unroll(disable)
	for (i = 0; i < 3; i++) {
		if (service_probe(&s, base, false) != NO_BUCKET)
			return true;
		if (s.port == 0)
			s.proto = 0;
		s.port = 0;
	}
	return false;
}

/*
 * A row, in state CLAIMED, for a connection that the backend answers as `k` but for dport, which is the port
 * found: in the lower half the row, above it the port; 0: none. Each CPU begins in its own part of the range
 * and goes round in it for each backend `id`, so CPUs do not meet, a port rests for as long as possible, and rows that are in
 * use lie side by side, four tickets to a cache line; then anywhere.
 */
GLOBAL u64 nat_claim(struct hg_flow_key *k, u32 first, u32 n, u32 id)
{
	u32 cpu = bpf_get_smp_processor_id(), now = tick_now(), part, base, off, row, life, i;
	u32 index = id * ro.n_cpus + cpu;
	struct hg_backend_counters *mine = bpf_map_lookup_elem(&xdp_backends, &index);
	struct hg_nat_conn *c;
	bool pressed;
	u64 cursor;

	if (!k || !mine || !n)
		return 0;
	part = n / (ro.n_cpus ? ro.n_cpus : 1);
	if (!part)
		part = 1;
	base = hg_nat_base(k, ro.hash_seed);
	cursor = mine->nat_cursor;
#pragma clang loop unroll(disable)
	for (i = 0; i < NAT_PROBES; i++) {
		pressed = i >= NAT_PROBES_REST;
		cursor++;
		if (i >= NAT_PROBES_OWN)
			off = (u32)(cursor * NAT_STRIDE) % n;
		else
			off = (part * cpu + (u32)cursor % part) % n;
		row = hg_nat_row(base, first + off, ro.nat_mask);
		c = bpf_map_lookup_elem(&nat_conns, &row);
		if (!c)
			break;
		life = READ_ONCE(c->life);
		if (!nat_may_take(life, c->idle_ticks, now, pressed) ||
		    nat_port_taken(k, first + off) || !nat_take(row, life, now))
			continue;
		if (HG_NAT_STATE(life) != HG_NAT_FREE &&
		    !hg_nat_expired(life, c->idle_ticks, now, 0))
			count_event(HG_EVENT_NAT_EARLY);
		mine->nat_cursor = cursor;
		return (u64)(first + off) << 32 | row;
	}
	mine->nat_cursor = cursor;
	return 0;
}

#endif
