/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of dp/ share. Control thread or command-line tool only. */
#ifndef DP_DP_PRIV_H
#define DP_DP_PRIV_H

#include <limits.h>

#include "base/list.h"
#include "base/mem.h"
#include "dp/dp.h"

/* --- maps and pins ------------------------------------------------------------------------------- */

enum dp_map_id {
	DP_MAP_SERVICES,
	DP_MAP_SLOTS,
	DP_MAP_BACKENDS,
	DP_MAP_CONTROL,
	DP_MAP_XDP_SERVICES,
	DP_MAP_XDP_BACKENDS,
	DP_MAP_XDP_CPUS,
	DP_MAP_FLOWS,
	DP_MAP_FRAGMENTS,
	DP_MAP_QUIC_IDS,
	DP_MAP_XDP_VERDICTS,
	DP_MAP_META,
	DP_MAP_DECAP_ADDRS,
	DP_MAP_STATS_SERVICES,
	DP_MAP_STATS_BACKENDS,
	DP_MAP_STATS_WORKERS,
	DP_MAP_COUNT
};

struct dp_map {
	int fd; /* -1: not there */
	void *mem; /* mapped, NULL for hashes */
	size_t size; /* bytes mapped */
	uint32_t max_entries, value_size;
};

/* Maps whose memory the tables work on; tests put plain memory here. */
struct dp_tables {
	struct hg_service *services; /* 2 generations x n_buckets */
	uint32_t n_buckets;
	struct hg_slot_block *slots;
	uint32_t n_blocks;
	struct hg_backend *backends; /* by id */
	uint32_t max_backends;
	struct hg_control *control;
	uint32_t max_services;
};

/* --- the writer's own memory of what the tables hold ------------------------------------------------ */

struct dp_backend { /* by id */
	bool is_used, is_wanted;
	char *service_name, *server_name;
	struct addr addr;
	/* next hop */
	struct addr via; /* gateway, or the backend itself */
	unsigned ifindex;
	uint64_t asked_ns; /* last time the kernel was asked to resolve */
	uint64_t free_at_ns; /* of an unused id: not given out before */
};

struct dp_service { /* by id */
	bool is_used, is_wanted;
	char *name;
	struct hg_service row;
	uint64_t signature; /* of backends and weights that the table was filled from */
};

/* A range of slot blocks that no reader uses any more after `free_at`. */
struct dp_range {
	struct list link;
	uint32_t start, n;
	uint64_t free_at_ns; /* CLOCK_MONOTONIC; 0: free; UINT64_MAX: after the next flip */
};

struct dp {
	enum hg_role role;
	char dir[PATH_MAX]; /* of the pins */
	int lock_fd; /* flock on the directory; -1: not the owner */
	bool is_adopted;
	bool is_private; /* somebody else owns the pins: nothing of ours is pinned */
	struct dp_map maps[DP_MAP_COUNT];
	int prog_fd;
	uint32_t n_workers, n_cpus;
	void (*notice)(void *ctx, const char *text);
	void *ctx;

	struct dp_tables t;
	struct dp_service *services; /* [t.max_services] */
	struct dp_backend *backends; /* [t.max_backends] */
	struct list free_ranges; /* dp_range */
	uint64_t flipped_ns; /* last change of control.service_generation */
	bool are_services_dirty;

	struct mnl_socket *nl_events; /* neighbour, link and route changes */
	struct mnl_socket *nl_ask; /* requests and answers */
	uint32_t nl_seq;
};

void dp_notice(const struct dp *dp, const char *fmt, ...) HG_PRINTF(2, 3);
const char *dp_map_name(enum dp_map_id id);
uint64_t dp_now_ns(void);

/* loader.c */
const char *dp_bpffs(const char *configured);
void dp_pin_path(const struct dp *dp, const char *name, char ret[PATH_MAX]);
/* Directory of the pins of a role. */
void dp_pin_dir(const char *bpffs, enum hg_role role, char ret[PATH_MAX]);
const char *dp_prog_name(enum hg_role role);

/* Blocks that hold a table of so many slots. */
static inline uint32_t dp_blocks_of(uint32_t slots)
{
	return (slots + HG_SLOTS_PER_BLOCK - 1) / HG_SLOTS_PER_BLOCK;
}

/* tables.c */
HG_WUR int dp_tables_adopt(struct dp *dp); /* fills services[], backends[], free ranges from the maps */
/* Range of n blocks, 0 or -ENOSPC. */
HG_WUR int dp_range_take(struct dp *dp, uint32_t n, uint32_t *ret_start);
void dp_range_give(struct dp *dp, uint32_t start, uint32_t n);
/* Writes all used services into the idle generation and flips. -ENOSPC: probe sequence too long. */
HG_WUR int dp_services_write(struct dp *dp, struct err *err);
struct dp_service *dp_service_find(struct dp *dp, const struct hg_service_key *k);
HG_WUR int dp_service_take(struct dp *dp, const struct hg_service_key *k, struct dp_service **ret_svc);
void dp_service_drop(struct dp *dp, struct dp_service *s);
void dp_backend_drop(struct dp *dp, uint32_t id);
void dp_backend_wait_free(const struct dp *dp, uint32_t id); /* sleeps, milliseconds, rarely */

/* sync.c, pure part: fills blocks from backends. */
struct dp_member {
	uint64_t key;
	uint16_t id;
	uint32_t weight;
};
HG_WUR int dp_table_fill(struct hg_slot_block *blocks, uint32_t slots, const struct dp_member *m, unsigned n);

/* neigh.c */
HG_WUR int dp_netlink_open(struct dp *dp, struct err *err);
void dp_netlink_close(struct dp *dp);
/* Route, source address, MTU and neighbour of backend `id`; writes its row's next hop. */
void dp_backend_resolve(struct dp *dp, uint32_t id);

#endif
