/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NAT from the control thread's side: what new connections need (addresses, ports, limits), the sweep that
 * ends silent connections, and reading the table. The program begins and closes connections by itself; rows that
 * nobody has touched for their state's time are ended here, a slice of the table in each tick. All of it works on
 * mapped memory. Rules of who writes what: include/headgate/nat.h.
 */
#include <arpa/inet.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dp/dp_priv.h"

/* One pass over the default table takes eight seconds; a second more or less of silence does not matter. */
#define SLICES 8

/* --- the program's clock ------------------------------------------------------------------------------- */

/* What tick_now() of the program says, give or take one. */
static uint32_t nat_tick_now(const struct dp_nat *n)
{
	return tick_of(dp_now_ns(), n->hz, n->tick_shift);
}

static uint16_t nat_ticks(const struct dp_nat *n, uint64_t ns)
{
	uint64_t ticks = ns / 1000000 * n->hz / 1000 >> n->tick_shift;

	return (uint16_t)(ticks < 1 ? 1 : ticks > HG_NAT_IDLE_MAX ? HG_NAT_IDLE_MAX : ticks);
}

/* --- connections end ------------------------------------------------------------------------------------ */

static void nat_line_clear(struct dp_nat *n, uint64_t hash, uint64_t word)
{
	uint32_t line = hg_line_of(hash, n->line_mask);

	for (unsigned i = 0; i < 2 * HG_NAT_WAYS; i++) {
		__u64 *w = &n->lines[i < HG_NAT_WAYS ? line : HG_LINE_NEIGHBOUR(line)]
				    .word[i % HG_NAT_WAYS];
		__u64 old = word;

		if (__atomic_compare_exchange_n(w, &old, 0, false, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST))
			return;
	}
}

/* As nat_ticket_take() of the program. */
static void nat_ticket_take(struct dp_nat *n, uint32_t row)
{
	const struct hg_nat_conn *c = &n->conns[row];
	uint64_t hint = hg_nat_hint(HG_NAT_TICKET_CLIENT(c->last[HG_NAT_CLIENT], c->client_port),
				    c->last[HG_NAT_VIP], c->vip_port, c->proto, n->hash_seed);
	uint32_t line = (uint32_t)(hint >> 32) & (HG_NAT_HINT_LINES(n->mask + 1) - 1);

	if (!__atomic_exchange_n(&n->tickets[row].word, 0, __ATOMIC_SEQ_CST))
		return;
	for (unsigned i = 0; i < 2 * HG_NAT_HINTS; i++) {
		__u32 *w = &n->hints[line ^ i / HG_NAT_HINTS].word[i % HG_NAT_HINTS];
		__u32 old = ((__u32)hint & ~n->mask) | row;

		__atomic_compare_exchange_n(w, &old, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	}
}

/* Ends the connection of a row that is still as `life` says; as nat_take() of the program does. */
static bool nat_end(struct dp_nat *n, uint32_t row, uint32_t life)
{
	struct hg_nat_conn *c = &n->conns[row];
	struct hg_flow_key k = { .sport = c->client_port, .dport = c->vip_port, .proto = c->proto };
	uint32_t state = HG_NAT_STATE(life);
	uint64_t hash;

	if (!__atomic_compare_exchange_n(&c->life, &life,
					 HG_NAT_LIFE(HG_NAT_CLAIMED, nat_tick_now(n)), false,
					 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return false;
	if (state > HG_NAT_CLAIMED) {
		if (hg_nat_is_counted(state) && c->backend < n->max_backends)
			__atomic_sub_fetch(&n->live_backends[c->backend].word, HG_LIVE_XDP,
					   __ATOMIC_SEQ_CST);
		if (hg_nat_is_counted(state) && c->service < n->max_services)
			__atomic_sub_fetch(&n->live_services[c->service].conns, 1,
					   __ATOMIC_SEQ_CST);
		nat_ticket_take(n, row);
		memcpy(k.src, n->addrs[row].addr[HG_NAT_CLIENT], sizeof(k.src));
		memcpy(k.dst, n->addrs[row].addr[HG_NAT_VIP], sizeof(k.dst));
		hash = hg_flow_hash(&k, n->hash_seed);
		nat_line_clear(n, hash, HG_NAT_WORD(hash, row));
	}
	__atomic_store_n(&c->life, 0, __ATOMIC_SEQ_CST);
	return true;
}

/* --- paths ------------------------------------------------------------------------------------------------ */

static void path_seen(struct dp_nat *n, uint32_t row)
{
	__u64 word = __atomic_load_n(&n->tickets[row].word, __ATOMIC_ACQUIRE);
	uint32_t path = HG_NAT_TICKET_PATH(word);

	if (word && path < HG_NAT_PATHS(n->mask + 1) && !n->paths[path].seen)
		__atomic_store_n(&n->paths[path].seen, 1, __ATOMIC_RELAXED);
}

/* Every ticket has been looked at: what none names is retired, and free when nothing has named it since. */
static void paths_sweep(struct dp_nat *n)
{
	for (uint32_t i = 0; i < HG_NAT_PATHS(n->mask + 1); i++) {
		struct hg_nat_path *p = &n->paths[i];
		uint32_t state = __atomic_load_n(&p->state, __ATOMIC_ACQUIRE), next = state;

		if (state != HG_NAT_PATH_READY && state != HG_NAT_PATH_RETIRING)
			continue;
		if (__atomic_exchange_n(&p->seen, 0, __ATOMIC_SEQ_CST))
			next = HG_NAT_PATH_READY;
		else
			next = state == HG_NAT_PATH_READY ? HG_NAT_PATH_RETIRING : HG_NAT_PATH_FREE;
		/* Nobody else changes these states. */
		__atomic_store_n(&p->state, next, __ATOMIC_SEQ_CST);
	}
}

unsigned dp_nat_sweep(struct dp_nat *n, uint32_t count, uint32_t now)
{
	unsigned ended = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t row = n->sweep_at++ & n->mask;
		uint32_t life = __atomic_load_n(&n->conns[row].life, __ATOMIC_ACQUIRE);

		/* Two ticks of grace: one as the program has, one because our clock may be off by one. */
		if (life && hg_nat_expired(life, n->conns[row].idle_ticks, now, 2))
			ended += nat_end(n, row, life);
		path_seen(n, row);
		if (row == n->mask)
			paths_sweep(n);
	}
	return ended;
}

bool dp_nat_is_live(const struct dp *dp, uint32_t backend)
{
	return dp->nat.live_backends &&
	       __atomic_load_n(&dp->nat.live_backends[backend].word, __ATOMIC_ACQUIRE);
}

bool dp_nat_is_live_service(const struct dp *dp, uint32_t service)
{
	return dp->nat.live_services &&
	       __atomic_load_n(&dp->nat.live_services[service].conns, __ATOMIC_ACQUIRE);
}

void dp_nat_tick(struct dp *dp)
{
	struct dp_nat *n = &dp->nat;

	if (n->conns)
		n->n_ended += dp_nat_sweep(n, (n->mask + SLICES) / SLICES, nat_tick_now(n));
}

/* --- what new connections need --------------------------------------------------------------------------- */

/* HAProxy's rule for a connection that is silent both ways: the tunnel's timeout, else the shorter of the two. */
uint64_t dp_idle_ns(const struct conf_proxy *px, uint8_t proto)
{
	uint64_t c = px->timeout.client, s = px->timeout.server;

	if (px->timeout.tunnel)
		return px->timeout.tunnel;
	if (c && s)
		return c < s ? c : s;
	if (c || s)
		return c ? c : s;
	return (proto == IPPROTO_TCP ? HG_NAT_IDLE_TCP : HG_NAT_IDLE_UDP) * 1000000000ull;
}

/* Answers are looked for in the hull of all ranges since the program was loaded. */
static void nat_widen(struct hg_nat_control *c, uint32_t first, uint32_t last)
{
	uint32_t old_first = c->n_ports ? c->port_first : first;
	uint32_t old_last = c->n_ports ? c->port_first + c->n_ports - 1 : last;

	if (first > old_first)
		first = old_first;
	if (last < old_last)
		last = old_last;
	/* The longer range with the old beginning first: no moment is narrower than before. */
	__atomic_store_n(&c->n_ports, last - first + 1 + (old_first - first), __ATOMIC_SEQ_CST);
	__atomic_store_n(&c->port_first, first, __ATOMIC_SEQ_CST);
	__atomic_store_n(&c->n_ports, last - first + 1, __ATOMIC_SEQ_CST);
}

/* Once per process and range: a range that the kernel gives to sockets of this host, too. */
static void nat_warn_overlap(struct dp *dp, uint32_t first, uint32_t last)
{
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
	unsigned lo = 0, hi = 0;

	if (!f)
		return;
	if (fscanf(f, "%u %u", &lo, &hi) == 2 && first <= hi && last >= lo &&
	    dp->nat.warned_first != first) {
		dp_notice(
			dp,
			"NAT ports %u-%u overlap net.ipv4.ip_local_port_range (%u-%u): connections "
			"that this host opens to the same servers can collide with NAT's; change "
			"one of the two",
			first, last, lo, hi);
		dp->nat.warned_first = first;
	}
	fclose(f);
}

int dp_nat_service(struct dp *dp, const struct conf_proxy *px, const struct hg_service *svc,
		   struct err *err)
{
	uint32_t first = px->nat.port_first ? px->nat.port_first : HG_NAT_PORT_FIRST;
	uint32_t last = px->nat.port_first ? px->nat.port_last : HG_NAT_PORT_LAST;
	bool is_v6 = svc->key.addr[0] || svc->key.addr[1] || svc->key.addr[2] != hg_be32(0xffff);
	struct hg_nat_service row = { .port_first = (uint16_t)first,
				      .n_ports = (uint16_t)(last - first + 1) };
	struct dp_nat *n = &dp->nat;

	if (!dp_has_nat(dp))
		return err_set(err, -ENOSPC,
			       "section %s: 'forward nat' needs a table that is made at the start: "
			       "restart",
			       px->name);
	for (unsigned i = 0; i < px->nat.n_sources; i++)
		if ((px->nat.sources[i].sa.sa_family == AF_INET6) == is_v6)
			addr_to_v6_mapped(&px->nat.sources[i],
					  (uint8_t *)row.source[row.n_sources++]);
	row.idle_ticks = nat_ticks(n, dp_idle_ns(px, svc->key.proto));
	nat_warn_overlap(dp, first, last);
	nat_widen(n->control, first, last);
	memcpy(&n->services[svc->id], &row, sizeof(row));
	__atomic_store_n(&n->live_services[svc->id].limit, px->maxconn, __ATOMIC_RELEASE);
	return 0;
}

void dp_nat_backend(struct dp *dp, uint32_t id, uint16_t port)
{
	__atomic_store_n(&dp->t.backends[id].port, htons(port), __ATOMIC_RELEASE);
}

void dp_backend_limit(struct dp *dp, uint32_t id, uint32_t maxconn)
{
	if (dp->nat.live_backends)
		__atomic_store_n(&dp->nat.live_backends[id].limit, maxconn, __ATOMIC_RELEASE);
}

/* --- reading ----------------------------------------------------------------------------------------------- */

static void nat_addr(struct addr *ret, const __be32 *addr, uint16_t port, bool is_v6)
{
	*ret = (struct addr){ 0 };
	if (is_v6) {
		ret->in6.sin6_family = AF_INET6;
		memcpy(&ret->in6.sin6_addr, addr, 16);
	} else {
		ret->in.sin_family = AF_INET;
		memcpy(&ret->in.sin_addr, &addr[3], 4);
	}
	addr_set_port(ret, ntohs(port));
}

const char *dp_nat_state_name(unsigned state)
{
	static const char *const names[] = {
#define X(name, text, seconds, counted, help) text,
		HG_NAT_STATES(X)
#undef X
	};

	return state < ARRAY_SIZE(names) ? names[state] : "?";
}

int dp_nat_summary(struct dp *dp, struct dp_nat_summary *ret)
{
	const struct dp_nat *n = &dp->nat;

	*ret = (struct dp_nat_summary){ 0 };
	if (!n->conns)
		return -ENOENT;
	ret->rows = n->mask + 1;
	ret->ended = n->n_ended;
	for (uint32_t i = 0; i <= n->mask; i++)
		ret->by_state[HG_NAT_STATE(n->conns[i].life) % HG_NAT_STATE_COUNT]++;
	return 0;
}

void dp_nat_describe(const struct dp *dp, const struct hg_nat_conn *c, const struct hg_nat_addrs *a,
		     struct dp_nat_info *ret)
{
	const struct dp_nat *n = &dp->nat;
	const struct dp_service *s = &dp->services[c->service];
	const struct dp_backend *b = &dp->backends[c->backend];

	*ret = (struct dp_nat_info){ .state = (uint8_t)HG_NAT_STATE(c->life),
				     .proto = c->proto,
				     .service_name = s->name ? s->name : "",
				     .server_name = b->server_name ? b->server_name : "" };
	ret->idle_s = (uint32_t)((uint64_t)((nat_tick_now(n) - c->life) & 0xffff)
				 << n->tick_shift) /
		      n->hz;
	nat_addr(&ret->client, a->addr[HG_NAT_CLIENT], c->client_port, c->v6);
	nat_addr(&ret->vip, a->addr[HG_NAT_VIP], c->vip_port, c->v6);
	nat_addr(&ret->edge, a->addr[HG_NAT_EDGE], c->edge_port, c->v6);
	nat_addr(&ret->backend, a->addr[HG_NAT_BACKEND], c->backend_port, c->v6);
}

int dp_each_nat(struct dp *dp, int (*fn)(void *ctx, const struct dp_nat_info *i), void *ctx)
{
	const struct dp_nat *n = &dp->nat;

	for (uint32_t i = 0; n->conns && i <= n->mask; i++) {
		struct hg_nat_conn c = n->conns[i];
		struct hg_nat_addrs a = n->addrs[i];
		uint32_t state = HG_NAT_STATE(c.life);
		struct dp_nat_info info;
		int rc;

		/* Rows that changed while they were copied are left out rather than shown half and half. */
		if (state <= HG_NAT_CLAIMED || state >= HG_NAT_STATE_COUNT ||
		    c.backend >= dp->t.max_backends || c.service >= dp->t.max_services ||
		    HG_NAT_STATE(__atomic_load_n(&n->conns[i].life, __ATOMIC_ACQUIRE)) != state)
			continue;
		dp_nat_describe(dp, &c, &a, &info);
		if ((rc = fn(ctx, &info)) != 0)
			return rc;
	}
	return 0;
}

bool dp_has_nat(const struct dp *dp)
{
	return dp->nat.conns && dp->nat.mask + 1 > HG_NAT_CONNS_MIN;
}

/* --- set-up -------------------------------------------------------------------------------------------------- */

void dp_nat_size(const struct dp_opts *o, struct hg_rodata *ro)
{
	uint32_t rows = HG_NAT_CONNS_MIN;

	/* The smallest size is that of a process without NAT. */
	if (o->n_nat)
		rows *= 2;
	while (rows < o->n_nat && rows < HG_NAT_CONNS_MAX)
		rows *= 2;
	ro->nat_mask = rows - 1;
	ro->nat_line_mask = HG_NAT_LINES(rows) - 1;
}

bool dp_nat_resize(struct bpf_object *obj, const struct hg_rodata *ro)
{
	const struct {
		enum dp_map_id id;
		uint32_t entries;
	} sizes[] = {
		{ DP_MAP_NAT_CONNS, ro->nat_mask + 1 },
		{ DP_MAP_NAT_ADDRS, ro->nat_mask + 1 },
		{ DP_MAP_NAT_LINES, ro->nat_line_mask + 1 },
		{ DP_MAP_NAT_TICKETS, ro->nat_mask + 1 },
		{ DP_MAP_NAT_TICKS, HG_NAT_TICK_LINES(ro->nat_mask + 1) },
		{ DP_MAP_NAT_HINTS, HG_NAT_HINT_LINES(ro->nat_mask + 1) },
		{ DP_MAP_NAT_PATHS, HG_NAT_PATHS(ro->nat_mask + 1) },
		{ DP_MAP_NAT_FRAGMENTS,
		  ro->nat_mask >= HG_NAT_CONNS_MIN ? ro->fragment_mask + 1 : HG_FLOW_LINES_MIN },
		{ DP_MAP_NAT_SERVICES, ro->max_services },
		{ DP_MAP_LIVE_SERVICES, ro->max_services },
		{ DP_MAP_LIVE_BACKENDS, ro->max_backends },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct bpf_map *map = bpf_object__find_map_by_name(obj, dp_map_name(sizes[i].id));

		if (!map || bpf_map__set_max_entries(map, sizes[i].entries) != 0)
			return false;
	}
	return true;
}

void dp_nat_open(struct dp *dp, const struct hg_rodata *ro)
{
	dp->nat = (struct dp_nat){
		.conns = dp->maps[DP_MAP_NAT_CONNS].mem,
		.addrs = dp->maps[DP_MAP_NAT_ADDRS].mem,
		.lines = dp->maps[DP_MAP_NAT_LINES].mem,
		.tickets = dp->maps[DP_MAP_NAT_TICKETS].mem,
		.hints = dp->maps[DP_MAP_NAT_HINTS].mem,
		.paths = dp->maps[DP_MAP_NAT_PATHS].mem,
		.services = dp->maps[DP_MAP_NAT_SERVICES].mem,
		.control = dp->maps[DP_MAP_NAT_CONTROL].mem,
		.live_backends = dp->maps[DP_MAP_LIVE_BACKENDS].mem,
		.live_services = dp->maps[DP_MAP_LIVE_SERVICES].mem,
		.mask = ro->nat_mask,
		.line_mask = ro->nat_line_mask,
		.max_backends = ro->max_backends,
		.max_services = ro->max_services,
		.hash_seed = ro->hash_seed,
		.tick_shift = ro->tick_shift,
		.hz = dp->t.hz,
	};
}
