/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Server ids of QUIC connection ids: per service a range of `quic_ids`, indexed by the id. A word is changed in
 * place by one store; a range that has to grow is filled beside the old one and comes with the next generation.
 */
#include <errno.h>

#include "dp/dp_priv.h"

static uint16_t *quic_at(const struct dp *dp, uint32_t block, uint32_t id)
{
	return &dp->t.quic[block + id / HG_QUIC_IDS_PER_BLOCK].backend[id % HG_QUIC_IDS_PER_BLOCK];
}

void dp_quic_give(struct dp *dp, struct dp_service *svc)
{
	dp_range_give(dp, &dp->free_quic, svc->row.quic_block,
		      dp_quic_blocks_of(svc->row.quic_ids));
	svc->row.quic_block = 0;
	svc->row.quic_ids = 0;
}

/* Ids that nobody has now keep their backend: connections may carry them as long as it is there. */
static int quic_grow(struct dp *dp, struct dp_service *svc, uint32_t n)
{
	uint32_t blocks = dp_quic_blocks_of(n), old_block = svc->row.quic_block;
	uint32_t n_old = svc->row.quic_ids, start;
	int rc = dp_range_take(dp, &dp->free_quic, blocks, &start);

	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < blocks * HG_QUIC_IDS_PER_BLOCK; i++)
		*quic_at(dp, start, i) = i < n_old ? *quic_at(dp, old_block, i) : 0;
	dp_quic_give(dp, svc);
	svc->row.quic_block = start;
	return 0;
}

int dp_quic_want(struct dp *dp, struct dp_service *svc, const uint16_t *ids, uint32_t n)
{
	int rc;

	if (n == 0 && svc->row.quic_ids) {
		dp_quic_give(dp, svc);
		dp->are_services_dirty = true;
	}
	if (dp_quic_blocks_of(n) > dp_quic_blocks_of(svc->row.quic_ids)) {
		rc = quic_grow(dp, svc, n);
		if (rc != 0)
			return rc;
	}
	if (n > svc->row.quic_ids) {
		svc->row.quic_ids = n;
		dp->are_services_dirty = true;
	}
	for (uint32_t i = 0; i < n; i++)
		if (ids[i])
			__atomic_store_n(quic_at(dp, svc->row.quic_block, i), ids[i],
					 __ATOMIC_RELEASE);
	return 0;
}

static uint64_t packets_to(const struct dp *dp, uint32_t id)
{
	const struct hg_backend_counters *rows = dp->maps[DP_MAP_XDP_BACKENDS].mem;
	uint64_t n = 0;

	for (uint32_t cpu = 0; rows && cpu < dp->n_cpus; cpu++)
		n += rows[(size_t)id * dp->n_cpus + cpu].packets;
	return n;
}

/* Packets by connection id leave no entry; that they come at all shows in the backend's counter. */
static bool is_silent(struct dp *dp, const struct dp_service *svc, uint32_t id)
{
	struct dp_backend *b = &dp->backends[id];
	uint64_t packets = packets_to(dp, id), now = dp_clock(dp);

	if (packets != b->packets) {
		b->packets = packets;
		b->heard_ns = now;
	}
	return now - b->heard_ns > (uint64_t)svc->window_s * 1000000000ull ||
	       (svc->drain_s && now - b->unwanted_ns > (uint64_t)svc->drain_s * 1000000000ull);
}

void dp_quic_ripen(struct dp *dp, struct dp_service *svc)
{
	for (uint32_t i = 0; i < svc->row.quic_ids; i++) {
		uint16_t *p = quic_at(dp, svc->row.quic_block, i);
		uint32_t id = *p;

		if (!id || id >= dp->t.max_backends)
			continue;
		dp->backends[id].is_named = true;
		if (!dp->backends[id].is_wanted && is_silent(dp, svc, id)) {
			__atomic_store_n(p, 0, __ATOMIC_RELEASE);
			dp->slots_changed_ns = dp_clock(dp);
		}
	}
}
