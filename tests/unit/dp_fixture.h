/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel tier's tables in plain memory, with configurations and run-time servers in front of them. */
#ifndef UNIT_DP_FIXTURE_H
#define UNIT_DP_FIXTURE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "dp/dp_priv.h"

#define N_BLOCKS  4096
#define MAX_IDS	  64
#define N_LINES	  8192
#define N_FRAGMENT_LINES 64
#define N_QUIC_BLOCKS	 8

struct fixture {
	struct dp dp;
	struct conf *conf;
	struct arena arena;
	struct lb_registry registry;
	struct stats_area services_area, backends_area;
	struct lb_backend **backends;
};

static inline void at_once(struct lb_registry *r, void (*call)(void *arg), void *arg)
{
	call(arg);
}

static inline void ignore(void *ctx, enum conf_severity sev, const struct conf_pos *pos, const char *text)
{
	if (sev == CONF_ERROR)
		print_message("%s:%u: %s\n", pos->file, pos->line, text);
}

/* Tables of other sizes: `max_ids` services and as many backends, `n_blocks` of slots. */
static inline struct fixture *fixture_new_of(uint32_t max_ids, uint32_t n_blocks)
{
	struct fixture *f = calloc(1, sizeof(*f));
	uint32_t n_buckets = 4 * max_ids;

	f->dp.lock_fd = -1;
	f->dp.prog_fd = -1;
	for (unsigned i = 0; i < DP_MAP_COUNT; i++)
		f->dp.maps[i].fd = -1;
	list_init(&f->dp.free_ranges);
	list_init(&f->dp.free_quic);
	f->dp.t = (struct dp_tables){
		.services = calloc(2 * n_buckets, sizeof(struct hg_service)),
		.n_buckets = n_buckets,
		.slots = aligned_alloc(64, n_blocks * sizeof(struct hg_slot_block)),
		.n_blocks = n_blocks,
		.backends = calloc(max_ids, sizeof(struct hg_backend)),
		.max_backends = max_ids,
		.control = calloc(1, sizeof(struct hg_control)),
		.max_services = max_ids,
		.flows = aligned_alloc(64, N_LINES * sizeof(struct hg_line)),
		.n_flow_lines = N_LINES,
		.fragments = aligned_alloc(64, N_FRAGMENT_LINES * sizeof(struct hg_line)),
		.n_fragment_lines = N_FRAGMENT_LINES,
		.quic = calloc(N_QUIC_BLOCKS, sizeof(struct hg_quic_block)),
		.n_quic_blocks = N_QUIC_BLOCKS,
		.tick_shift = 8,
		.hz = 250,
	};
	memset(f->dp.t.slots, 0, n_blocks * sizeof(struct hg_slot_block));
	memset(f->dp.t.flows, 0, N_LINES * sizeof(struct hg_line));
	memset(f->dp.t.fragments, 0, N_FRAGMENT_LINES * sizeof(struct hg_line));
	assert_int_equal(dp_tables_adopt(&f->dp), 0);
	stats_area_init(&f->services_area,
			aligned_alloc(64, max_ids * sizeof(struct hg_l7_counters)), max_ids, 1);
	stats_area_init(&f->backends_area,
			aligned_alloc(64, 2 * max_ids * sizeof(struct hg_l7_counters)), 2 * max_ids, 1);
	memset(f->services_area.rows, 0, max_ids * sizeof(struct hg_l7_counters));
	memset(f->backends_area.rows, 0, 2 * max_ids * sizeof(struct hg_l7_counters));
	lb_registry_init(&f->registry, 1, &f->services_area, &f->backends_area);
	f->registry.after_quiescence = at_once;
	return f;
}

static inline struct fixture *fixture_new(void)
{
	return fixture_new_of(MAX_IDS, N_BLOCKS);
}

static inline void fixture_conf(struct fixture *f, const char *text)
{
	struct conf_source src = { .report = ignore };
	struct lb_backend **backends;
	struct conf *conf;
	struct arena arena;
	struct err err;

	arena_init(&arena, 4096);
	assert_int_equal(conf_load_text(str_from_cstr(text), "test", &src, &conf), 0);
	assert_int_equal(lb_registry_prepare(&f->registry, conf, &arena, &backends, &err), 0);
	lb_registry_commit(&f->registry, conf, backends);
	if (f->conf) {
		lb_registry_release(&f->registry, f->backends, f->conf->n_proxies);
		conf_free(f->conf);
		arena_free(&f->arena);
	}
	f->conf = conf;
	f->backends = backends;
	f->arena = arena;
}

static inline void fixture_sync(struct fixture *f)
{
	struct err err = { "" };

	if (dp_sync(&f->dp, f->conf, f->backends, &err) != 0)
		fail_msg("%s", err.text);
}

/* Time passes; the walk looks as often as it likes. */
static inline void fixture_wait(struct fixture *f, unsigned ms)
{
	while (ms) {
		unsigned step = ms > 1000 ? 1000 : ms;

		f->dp.skew_ns += step * 1000000ull;
		while (dp_work(&f->dp))
			;
		ms -= step;
	}
}

/* kill -9 and a new process: the maps stay, all else is gone. */
static inline void fixture_restart(struct fixture *f)
{
	struct dp_tables maps = f->dp.t;
	uint64_t skew_ns = f->dp.skew_ns;

	dp_tables_free(&f->dp);
	memset(&f->dp, 0, sizeof(f->dp));
	f->dp.lock_fd = f->dp.prog_fd = -1;
	for (unsigned i = 0; i < DP_MAP_COUNT; i++)
		f->dp.maps[i].fd = -1;
	list_init(&f->dp.free_ranges);
	list_init(&f->dp.free_quic);
	f->dp.t = maps;
	f->dp.skew_ns = skew_ns;
	f->dp.is_adopted = true;
	assert_int_equal(dp_tables_adopt(&f->dp), 0);
}

static inline void fixture_free(struct fixture *f)
{
	struct dp *dp = &f->dp;

	lb_registry_release(&f->registry, f->backends, f->conf->n_proxies);
	conf_free(f->conf);
	arena_free(&f->arena);
	lb_registry_fini(&f->registry);
	dp_tables_free(dp);
	free(dp->t.services);
	free(dp->t.slots);
	free(dp->t.backends);
	free(dp->t.control);
	free(dp->t.flows);
	free(dp->t.fragments);
	free(dp->t.quic);
	free(f->services_area.rows);
	free(f->backends_area.rows);
	free(f);
}

/* What the program would find: the live row of tcp@ip:port, or NULL. */
static inline const struct hg_service *find(const struct fixture *f, const char *ip, uint16_t port)
{
	uint32_t generation = f->dp.t.control->service_generation & 1;
	const struct hg_service *half = f->dp.t.services + (size_t)generation * f->dp.t.n_buckets;
	struct hg_service_key k = { .port = htons(port), .proto = IPPROTO_TCP };
	struct addr a;

	assert_int_equal(addr_parse_ip(str_from_cstr(ip), &a), 0);
	addr_to_v6_mapped(&a, (uint8_t *)k.addr);
	for (uint32_t i = 0, h = hg_service_hash(&k); i < HG_SERVICE_PROBES; i++) {
		const struct hg_service *s = &half[(h + i) & (f->dp.t.n_buckets - 1)];

		if (s->mode == HG_MODE_EMPTY)
			return NULL;
		if (memcmp(&s->key, &k, sizeof(k)) == 0)
			return s;
	}
	return NULL;
}

static inline uint32_t slot_word(const struct fixture *f, const struct hg_service *s, uint32_t slot)
{
	return f->dp.t.slots[s->slots_block + slot / HG_SLOTS_PER_BLOCK]
		.slot[slot % HG_SLOTS_PER_BLOCK];
}

#define DEFAULTS "defaults\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n"

static inline unsigned id_of(const struct fixture *f, const char *server)
{
	for (unsigned i = 1; i < MAX_IDS; i++)
		if (f->dp.backends[i].is_used && f->dp.backends[i].server_name &&
		    strcmp(f->dp.backends[i].server_name, server) == 0)
			return i;
	return 0;
}

#endif
