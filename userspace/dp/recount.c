/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reconciliation: are the counts what rows and words say? The program cannot fail to count, and neither can a daemon
 * that lives. But one that is killed between ending a silent connection and taking it from the count (nat_end(), flow_change()) leaves
 * one too many for good. So whoever adopts the maps compares, once a second, until all is well.
 *
 * Packets go on meanwhile. A walk is believed for those servers and services whose count did not change during it and for
 * which nothing began: then nothing ended either. What is corrected had the same difference in two such walks, a
 * second apart. A server where connections begin or end in every walk (some milliseconds) waits for a quieter moment.
 */
#include <string.h>

#include "dp/dp_priv.h"

#define TRIES_MAX \
	60 /* walks; a server that is never quiet for some milliseconds is not worth more */

struct counted {
	uint32_t found; /* in this walk */
	uint32_t count; /* at its beginning */
	uint64_t begun;
	int32_t off; /* of the last walk that could be believed: count - found; 0: right */
};

struct dp_recount {
	unsigned n_tries;
	struct counted *backends, *services; /* by id; `services` lies behind `backends` */
};

/* --- one walk ------------------------------------------------------------------------------------------------- */

static uint32_t backend_count(const struct dp *dp, uint32_t id)
{
	return (uint32_t)(__atomic_load_n(&dp->nat.live_backends[id].word, __ATOMIC_SEQ_CST) /
			  HG_LIVE_XDP);
}

static uint32_t service_count(const struct dp *dp, uint32_t id)
{
	return __atomic_load_n(&dp->nat.live_services[id].conns, __ATOMIC_SEQ_CST);
}

static uint64_t backend_begun(const struct dp *dp, uint32_t id)
{
	const struct hg_backend_counters *rows = dp->maps[DP_MAP_XDP_BACKENDS].mem;
	uint64_t n = 0;

	for (uint32_t cpu = 0; rows && cpu < dp->n_cpus; cpu++)
		n += __atomic_load_n(&rows[(size_t)id * dp->n_cpus + cpu].begun, __ATOMIC_RELAXED);
	return n;
}

/* Those of the L7 tier count sockets, which the kernel does by itself. */
static bool is_ours(const struct dp *dp, uint32_t service)
{
	return dp->services[service].is_used && dp->services[service].row.mode == HG_MODE_NAT;
}

static void walk_begins(const struct dp *dp)
{
	struct dp_recount *r = dp->recount;

	for (uint32_t id = 0; id < dp->t.max_backends; id++) {
		r->backends[id].found = 0;
		r->backends[id].begun = backend_begun(dp, id);
		r->backends[id].count = backend_count(dp, id);
	}
	for (uint32_t id = 0; id < dp->t.max_services; id++) {
		r->services[id].found = 0;
		r->services[id].count = service_count(dp, id);
	}
}

static void walk_rows(const struct dp *dp)
{
	const struct dp_nat *n = &dp->nat;

	for (uint32_t i = 0; n->conns && i <= n->mask; i++) {
		const struct hg_nat_conn *c = &n->conns[i];
		uint32_t life = __atomic_load_n(&c->life, __ATOMIC_ACQUIRE);

		if (!hg_nat_is_counted(HG_NAT_STATE(life)))
			continue;
		if (c->backend < dp->t.max_backends)
			dp->recount->backends[c->backend].found++;
		if (c->service < dp->t.max_services)
			dp->recount->services[c->service].found++;
	}
}

static void walk_flows(const struct dp *dp)
{
	for (uint32_t i = 0; i < dp->t.n_flow_lines; i++)
		for (unsigned way = 0; way < HG_LINE_WAYS; way++) {
			uint64_t word = __atomic_load_n(&dp->t.flows[i].word[way],
							__ATOMIC_ACQUIRE);
			uint32_t id = HG_WORD_BACKEND(word);

			if (word & HG_WORD_COUNTED && id < dp->t.max_backends)
				dp->recount->backends[id].found++;
		}
}

/* How much the count is off for certain: as much as it was in the walk before. */
static int32_t judge(struct counted *c)
{
	int32_t off = (int32_t)(c->count - c->found), before = c->off;

	c->off = off;
	return off == before ? off : 0;
}

/* --- the whole ------------------------------------------------------------------------------------------------- */

/* True: no walk more is needed, as far as backends go. */
static bool correct_backends(struct dp *dp, unsigned *ret_n)
{
	bool is_done = true;

	for (uint32_t id = 1; id < dp->t.max_backends; id++) {
		struct counted *c = &dp->recount->backends[id];
		int32_t off;

		if (backend_count(dp, id) != c->count || backend_begun(dp, id) != c->begun) {
			is_done = false;
			continue;
		}
		off = judge(c);
		is_done &= !c->off;
		if (!off)
			continue;
		__atomic_sub_fetch(&dp->nat.live_backends[id].word,
				   (uint64_t)(int64_t)off * HG_LIVE_XDP, __ATOMIC_SEQ_CST);
		c->off = 0;
		++*ret_n;
	}
	return is_done;
}

static bool correct_services(struct dp *dp, unsigned *ret_n)
{
	bool is_done = true;

	for (uint32_t id = 0; id < dp->t.max_services; id++) {
		struct counted *c = &dp->recount->services[id];
		int32_t off;

		if (!is_ours(dp, id))
			continue;
		if (service_count(dp, id) != c->count) {
			is_done = false;
			continue;
		}
		off = judge(c);
		is_done &= !c->off;
		if (!off)
			continue;
		__atomic_sub_fetch(&dp->nat.live_services[id].conns, (uint32_t)off,
				   __ATOMIC_SEQ_CST);
		c->off = 0;
		++*ret_n;
	}
	return is_done;
}

void dp_recount_begin(struct dp *dp)
{
	struct dp_recount *r;

	if (!dp->nat.live_backends || !dp->nat.live_services)
		return;
	r = mem_zalloc(sizeof(*r) +
		       (dp->t.max_backends + dp->t.max_services) * sizeof(struct counted));
	if (!r) {
		dp_notice(dp, "out of memory: connection counts are not compared with the tables");
		return;
	}
	r->backends = (struct counted *)(r + 1);
	r->services = r->backends + dp->t.max_backends;
	dp->recount = r;
	dp_recount_tick(dp);
}

void dp_recount_tick(struct dp *dp)
{
	bool is_done;
	unsigned n = 0;

	if (!dp->recount)
		return;
	walk_begins(dp);
	walk_rows(dp);
	walk_flows(dp);
	is_done = correct_backends(dp, &n);
	is_done = correct_services(dp, &n) && is_done;
	if (n)
		dp_notice(dp,
			  "%u connection counts of servers and services were not what the tables "
			  "say: corrected",
			  n);
	if (is_done || ++dp->recount->n_tries == TRIES_MAX)
		dp_recount_end(dp);
}

void dp_recount_end(struct dp *dp)
{
	mem_free(dp->recount);
	dp->recount = NULL;
}
