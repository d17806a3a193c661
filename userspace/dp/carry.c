/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * New maps beside the ones there are, because those are too small: what they hold goes along, so that a larger
 * configuration breaks no more than a reload does. Rows keep their ids and slots their blocks (the new maps
 * are no smaller); remembered flows get new lines when their number changed. The older program works until
 * dp_attach() replaces it, so flows are carried again after that: entries it has written meanwhile.
 */
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

#include "dp/dp_priv.h"

/* --- flows ------------------------------------------------------------------------------------------------- */

/* The entry's own line or its neighbour has it. */
static bool pair_has(const struct dp_tables *t, uint32_t line, uint64_t word)
{
	for (unsigned i = 0; i < 2 * HG_LINE_WAYS; i++)
		if ((t->flows[line ^ (i & 1)].word[i / 2] ^ word) <= 0xffff)
			return true;
	return false;
}

static void pair_put(const struct dp_tables *t, uint32_t line, uint64_t word, uint32_t meta)
{
	for (unsigned i = 0; i < 2 * HG_LINE_WAYS; i++) {
		struct hg_line *l = &t->flows[line ^ (i & 1)];
		uint64_t unused = 0;

		if (l->word[i / 2])
			continue;
		l->meta[i / 2] = meta;
		if (__atomic_compare_exchange_n(&l->word[i / 2], &unused, word, false,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return;
	}
}

/*
 * A word has lost the lower 16 bits of its hash; those of the line's number are known but the last, which does
 * not matter. Bits between are not: the entry goes to every line they could mean, where nothing but its own flow finds it.
 */
static void carry_entry(const struct dp_tables *from, const struct dp_tables *to, uint32_t line,
			uint64_t word, uint32_t meta)
{
	uint32_t known = from->n_flow_lines - 1, mask = to->n_flow_lines - 1;
	uint32_t unknown = mask & 0xffff & ~known, bits = unknown;

	do {
		uint32_t at = ((line & known) | ((uint32_t)word & ~0xffffu) | bits) & mask;

		/* Connections are counted anew, by their next packets: there may be several entries of one now. */
		if (!pair_has(to, at, word))
			pair_put(to, at, word & ~(uint64_t)HG_WORD_COUNTED, meta);
		bits = (bits - 1) & unknown;
	} while (bits != unknown);
}

/* More guesses than this would fill the table with them. */
#define GUESSES_MAX 64

void dp_carry_flows(const struct dp_tables *from, const struct dp_tables *to)
{
	uint32_t unknown = (to->n_flow_lines - 1) & 0xffff & ~(from->n_flow_lines - 1);

	if (1u << __builtin_popcount(unknown) > GUESSES_MAX)
		return;
	for (uint32_t i = 0; i < from->n_flow_lines; i++)
		for (unsigned way = 0; way < HG_LINE_WAYS; way++)
			if (from->flows[i].word[way])
				carry_entry(from, to, i, from->flows[i].word[way],
					    from->flows[i].meta[way]);
}

/* --- rows ------------------------------------------------------------------------------------------------------ */

int dp_carry_rows(struct dp *dp, const struct dp_tables *from)
{
	struct dp_tables to = dp->t;
	int rc;

	memcpy(to.backends, from->backends, from->max_backends * sizeof(*to.backends));
	memcpy(to.slots, from->slots, from->n_blocks * sizeof(*to.slots));
	memcpy(to.quic, from->quic, from->n_quic_blocks * sizeof(*to.quic));
	dp_carry_flows(from, &to);
	/* Services by the older table; the next sync writes all of them into the new one. */
	dp->t.services = from->services;
	dp->t.n_buckets = from->n_buckets;
	dp->t.control = from->control;
	rc = dp_tables_adopt(dp);
	dp->t = to;
	dp->are_services_dirty = true;
	if (to.control) /* `live_sources` is the same map still, and its sources have the same hashes */
		to.control->source_seed = from->control->source_seed;
	return rc == 0 && dp->before ? dp_deny_carry(dp) : rc;
}

/* --- the older maps ------------------------------------------------------------------------------------------ */

/*
 * Keeps what did not fit, when its rows mean the same as ours will: then the maps are dp->before's. The
 * program's descriptor is not needed: it lives as long as it is attached.
 */
bool dp_carry_begin(struct dp *dp, uint32_t hash_seed, uint32_t n_cpus)
{
	const struct hg_meta *meta = dp->maps[DP_MAP_META].mem;

	if (dp->role != HG_ROLE_EDGE || meta->abi != HG_ABI_VERSION ||
	    meta->ro.hash_seed != hash_seed || meta->ro.n_cpus != n_cpus)
		return false;
	dp->before = mem_zalloc(sizeof(*dp->before));
	if (!dp->before)
		return false;
	memcpy(dp->before->maps, dp->maps, sizeof(dp->maps));
	dp_tables_of(dp->before->maps, &dp->before->t);
	for (unsigned i = 0; i < DP_MAP_COUNT; i++)
		dp->maps[i] = (struct dp_map){ .fd = -1 };
	return true;
}

void dp_carry_sizes(const struct dp *dp, struct hg_rodata *ro, uint32_t *blocks, uint32_t *quic)
{
	const struct hg_meta *meta = dp->before ? dp->before->maps[DP_MAP_META].mem : NULL;

	if (!meta)
		return;
#define AT_LEAST(field, n) ((field) = (field) < (n) ? (n) : (field))
	AT_LEAST(ro->max_services, meta->ro.max_services);
	AT_LEAST(ro->max_backends, meta->ro.max_backends);
	AT_LEAST(ro->service_mask, meta->ro.service_mask);
	AT_LEAST(ro->deny_mask, meta->ro.deny_mask);
	AT_LEAST(*blocks, dp->before->t.n_blocks);
	AT_LEAST(*quic, dp->before->t.n_quic_blocks);
#undef AT_LEAST
}

void dp_carry_again(struct dp *dp)
{
	dp_syn_carry(dp);
	if (dp->before)
		dp_carry_flows(&dp->before->t, &dp->t);
}

void dp_carry_end(struct dp *dp)
{
	for (unsigned i = 0; dp->before && i < DP_MAP_COUNT; i++) {
		struct dp_map *m = &dp->before->maps[i];

		if (m->mem)
			munmap(m->mem, m->size);
		if (m->fd >= 0)
			close(m->fd);
	}
	mem_free(dp->before);
	dp->before = NULL;
}
