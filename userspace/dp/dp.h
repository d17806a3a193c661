/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datapath control: the only code that sees libbpf and libxdp. Loads or adopts the programs and maps,
 * attaches them, and brings the maps to what configuration and server states demand. Control thread
 * (or the command-line tool) only; calls may block for milliseconds. No event loop here: descriptors
 * that want watching are handed out (dp_netlink_fd()).
 */
#ifndef DP_DP_H
#define DP_DP_H

#include <headgate/backend.h>
#include <headgate/counters.h>
#include <headgate/flow.h>
#include <headgate/limits.h>
#include <headgate/service.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/err.h"
#include "base/str.h"
#include "conf/conf.h"
#include "lb/lb.h"

#define DP_BPFFS "/sys/fs/bpf"

enum dp_attach_mode { DP_MODE_AUTO, DP_MODE_NATIVE, DP_MODE_GENERIC };

struct dp_opts {
	const char *bpffs; /* NULL: DP_BPFFS; mounted when it is not and we may */
	enum hg_role role;
	uint32_t hash_seed;
	uint32_t n_workers; /* rows of the L7 statistics maps */
	uint32_t n_services, n_backends; /* room wanted, rounded up by us with some to spare */
	uint32_t n_slots; /* Maglev slots of all services together, before doubling */
	uint32_t n_l7_services, n_l7_backends;
	bool stats_only; /* no kernel tier wanted: statistics maps alone */
	bool adopt_only; /* fail with -ENOENT when nothing is pinned */
	void (*notice)(void *ctx, const char *text); /* remarks for the operator; may be NULL */
	void *ctx;
};

struct dp;

/*
 * Opens the datapath: adopts what is pinned when the ABI matches and it is large enough, otherwise
 * loads beside it (dp_attach() then switches over atomically). Nothing is attached yet. Errors leave nothing pinned that
 * was not there before: -EPERM (no privileges), -ENOSYS (kernel without BTF or BPF), -ENOENT, -ENOMEM, …,
 * each with a text that says what to do.
 */
HG_WUR int dp_open(const struct dp_opts *o, struct dp **ret_dp, struct err *err);
/* Lets go; pins, programs and attachments stay. NULL is ignored. */
void dp_close(struct dp *dp);
bool dp_is_adopted(const struct dp *dp);
bool dp_has_kernel_tier(const struct dp *dp); /* not stats_only */

/* Attaches to an interface, or replaces our older program on it without a gap. -ENODEV, -EBUSY (somebody else's program), … */
HG_WUR int dp_attach(struct dp *dp, const char *ifname, enum dp_attach_mode mode, bool is_exclusive,
		     struct err *err);
/* Detaches ours from one interface (NULL: all) and, when none is left, removes all pins. */
HG_WUR int dp_detach(const char *bpffs, const char *ifname, struct err *err);

struct dp_attachment {
	char ifname[16];
	unsigned ifindex;
	char mode[12]; /* "native", "generic" */
	char via[16]; /* "dispatcher", "link" */
	uint32_t prog_id;
	enum hg_role role;
	bool is_foreign; /* an XDP program that is not ours */
};
/* All interfaces with an XDP program; returns how many were written, or -errno. */
int dp_attachments(const char *bpffs, struct dp_attachment *ret, unsigned n);

/* Mapped rows of `stats_services`, `stats_backends` (hg_l7_counters) and `stats_workers`. */
enum dp_stats { DP_STATS_SERVICES, DP_STATS_BACKENDS, DP_STATS_WORKERS };
void *dp_stats_memory(struct dp *dp, enum dp_stats which, uint32_t *ret_n_ids);

/*
 * Brings services, tables and backends to what `c` and the servers' present states demand: desired
 * minus actual, in the order backends, slots, services; deletions in reverse. Idempotent. A failure in the middle leaves a
 * consistent older or newer state per service and is reported.
 */
HG_WUR int dp_sync(struct dp *dp, const struct conf *c, struct lb_backend *const *backends,
		   struct err *err);

/*
 * After adoption and before the first dp_sync(): did the process before take this address for dead? The
 * new one should too, until its own checks say otherwise.
 */
bool dp_was_down(struct dp *dp, const struct addr *a);

/* Neighbours: readable when something changed; then dp_netlink_read(). */
int dp_netlink_fd(const struct dp *dp);
void dp_netlink_read(struct dp *dp);
/* Once a second: resolves what is missing, keeps neighbours fresh. */
void dp_tick(struct dp *dp);

/* Agent (role backend): tunnel end points of this host; replaces the set. */
HG_WUR int dp_decap_addrs(struct dp *dp, const struct addr *addrs, unsigned n, struct err *err);

/* --- reading ----------------------------------------------------------------------------------- */

struct dp_service_info {
	struct hg_service_key key;
	const char *name; /* of the section; "" when only the pins are known */
	uint32_t id;
	uint8_t mode; /* enum hg_mode */
	uint32_t slots;
	struct hg_service_counters sum;
};
struct dp_backend_info {
	uint32_t id;
	struct addr addr;
	const char *service_name, *server_name;
	uint8_t flags;
	union hg_neigh neigh;
	char ifname[16];
	struct hg_backend_counters sum;
};
/* Walks; a non-zero return of the callback stops the walk and is returned. */
int dp_each_service(struct dp *dp, int (*fn)(void *ctx, const struct dp_service_info *i), void *ctx);
int dp_each_backend(struct dp *dp, int (*fn)(void *ctx, const struct dp_backend_info *i), void *ctx);
void dp_verdicts(struct dp *dp, struct hg_verdict_counters *ret_sum);
/* Where would this flow go? Backend id, 0: nowhere, -ENOENT: no service. */
int dp_lookup_flow(struct dp *dp, const struct hg_flow_key *k);
/* Names and help of the tables in <headgate/counters.h>. */
const char *dp_drop_name(unsigned drop);
const char *dp_drop_help(unsigned drop);
const char *dp_verdict_name(unsigned verdict);

/* Maps and what each is for, for `headgate show maps` and the docs; NULL at the end. */
struct dp_map_doc { const char *name, *key, *value, *writer, *help; };
const struct dp_map_doc *dp_map_doc(unsigned i);

#endif
