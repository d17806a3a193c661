/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The walk over remembered flows: entries per second, and how long its slices keep the control thread. All slots of
 * one service are tracked and the table is filled to the given number of entries.
 *
 * usage: bench_walk [entries] [lines]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dp/dp_priv.h"

#define SLOTS 65537

static void *zeroed(size_t size)
{
	void *p = aligned_alloc(64, (size + 63) & ~(size_t)63);

	if (!p)
		exit(1);
	return memset(p, 0, size);
}

static void fill(struct dp *dp, uint64_t entries)
{
	uint32_t tick = tick_of(dp_clock(dp), dp->t.hz, dp->t.tick_shift);
	uint64_t n = 0;

	for (uint64_t i = 0; n < entries; i++) {
		uint64_t hash = hg_mix64(i, 1);
		struct hg_line *l = &dp->t.flows[hg_line_of(hash, dp->t.n_flow_lines - 1)];

		for (unsigned way = 0; way < HG_LINE_WAYS; way++) {
			if (l->word[way])
				continue;
			l->word[way] = HG_WORD_MAKE(hash, 1 + n % 100);
			l->meta[way] = HG_META_MAKE(HG_FLOW_CONFIRMED, 0, tick);
			n++;
			break;
		}
	}
}

static void prepare(struct dp *dp, uint32_t lines)
{
	dp->t = (struct dp_tables){
		.services = zeroed(128 * sizeof(struct hg_service)),
		.n_buckets = 64,
		.slots = zeroed(dp_blocks_of(SLOTS) * sizeof(struct hg_slot_block)),
		.n_blocks = dp_blocks_of(SLOTS),
		.backends = zeroed(128 * sizeof(struct hg_backend)),
		.max_backends = 128,
		.control = zeroed(sizeof(struct hg_control)),
		.max_services = 64,
		.flows = zeroed((size_t)lines * sizeof(struct hg_line)),
		.n_flow_lines = lines,
		.fragments = zeroed(64 * sizeof(struct hg_line)),
		.n_fragment_lines = 64,
		.tick_shift = 8,
		.hz = 250,
	};
	list_init(&dp->free_ranges);
	list_init(&dp->free_quic);
	for (uint32_t i = 0; i < SLOTS; i++)
		dp->t.slots[i / HG_SLOTS_PER_BLOCK].slot[i % HG_SLOTS_PER_BLOCK] =
			HG_SLOT_TRACKED | HG_SLOT_MAKE(1 + i % 99, 2 + i % 99);
	for (uint32_t id = 1; id <= 100; id++)
		dp->t.backends[id].flags = HG_BE_USABLE;
	dp->t.services[0] = (struct hg_service){ .mode = HG_MODE_IPIP, .slots = SLOTS };
	if (dp_tables_adopt(dp) != 0)
		exit(1);
	dp->services[0].window_s = 3600;
	dp->is_synced = true;
	for (uint32_t id = 1; id <= 100; id++)
		dp->backends[id].is_wanted = true;
}

/* Of this thread: others on the machine do not count. */
static uint64_t own_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

int main(int argc, char **argv)
{
	uint64_t entries = argc > 1 ? strtoull(argv[1], NULL, 0) : 4000000;
	uint32_t lines = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : HG_FLOW_LINES_MAX / 2;
	static struct dp dp;

	if (!lines || lines & (lines - 1) || entries > (uint64_t)lines * 3) {
		fprintf(stderr, "lines: a power of two, and at most three entries in each\n");
		return 1;
	}
	prepare(&dp, lines);
	fill(&dp, entries);
	for (unsigned round = 0; round < 5; round++) {
		uint64_t longest = 0, sum = 0, n = 0;
		bool goes_on = true;

		dp.skew_ns += 3600ull * 1000000000 / 8;
		while (goes_on) {
			uint64_t began = own_ns(), took;

			goes_on = dp_work(&dp);
			took = own_ns() - began;
			longest = took > longest ? took : longest;
			sum += took;
			n++;
		}
		printf("%" PRIu64 " entries, %u lines: %.1f ms in %" PRIu64
		       " slices, longest %.0f us, %.1f ns per entry (%u found)\n",
		       entries, lines, (double)sum / 1e6, n, (double)longest / 1e3,
		       (double)sum / (double)entries, dp.services[0].n_flows);
	}
	return 0;
}
