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
#include <headgate/events.h>
#include <headgate/flow.h>
#include <headgate/limits.h>
#include <headgate/live.h>
#include <headgate/nat.h>
#include <headgate/service.h>
#include <headgate/steer.h>
#include <headgate/syn.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/err.h"
#include "base/str.h"
#include "conf/conf.h"
#include "lb/lb.h"
#include "lb/sources.h"

#define DP_BPFFS "/sys/fs/bpf"

enum dp_attach_mode { DP_MODE_AUTO, DP_MODE_NATIVE, DP_MODE_GENERIC };

struct dp_opts {
	const char *bpffs; /* NULL: DP_BPFFS; mounted when it is not and we may */
	enum hg_role role;
	uint32_t hash_seed;
	uint32_t n_workers; /* rows of the L7 statistics maps */
	uint32_t n_services, n_backends; /* room wanted, rounded up by us with some to spare */
	uint32_t n_slots; /* Maglev slots of all services together, in whole blocks */
	uint32_t n_l7_services, n_l7_backends;
	uint32_t n_flows; /* room for remembered flows; 0: HG_FLOW_LINES_DEFAULT lines */
	uint32_t n_deny; /* denied prefixes that packets should not have to ask the kernel's tries for */
	uint32_t n_quic_ids; /* server ids in connection ids, of all services together */
	uint32_t learn_window_s; /* the longest; entries idle for longer may be evicted */
	uint32_t n_nat; /* NAT connections at once; 0: no NAT */
	bool stats_only; /* no kernel tier wanted: statistics maps alone */
	bool adopt_only; /* fail with -ENOENT when nothing is pinned */
	void (*notice)(void *ctx, const char *text); /* remarks for the operator; may be NULL */
	void *ctx;
	int lock_fd; /* > 0: the lock, from the process before us; a copy is kept. 0: to be taken */
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
int dp_lock_fd(const struct dp *dp); /* a copy in another process holds the lock on; -1: not the owner */
bool dp_is_adopted(const struct dp *dp);
bool dp_has_kernel_tier(const struct dp *dp); /* not stats_only */
bool dp_has_nat(const struct dp *dp); /* the NAT table was made at the start */

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
 * Before the first dp_sync(): did the process before take this address for dead? The
 * new one should too, until its own checks say otherwise.
 */
bool dp_was_down(struct dp *dp, const struct addr *a);

/*
 * Looks for flows that are over, slots and backends that need not be remembered any more: one slice of well below a
 * millisecond. True: call again soon (milliseconds); else about once a second.
 */
bool dp_work(struct dp *dp);
/* Did ids of backends come free since the last call? A dp_sync() that found none may be tried again. */
bool dp_has_released(struct dp *dp);

/*
 * Health checks through the tunnel (check.c). dp_checks_open() loads what they need, so that a start can fail early;
 * dp_check_mark() gives the SO_MARK for a socket that will be connected to `server`: its packets then go to the
 * service address `vip` (same family) by `method` (IPIP, GUE, L2), and the answers come back to it.
 */
HG_WUR int dp_checks_open(struct dp *dp, struct err *err);
HG_WUR int dp_check_mark(struct dp *dp, const struct addr *server, const struct addr *vip,
			 enum hg_mode method, uint32_t *ret_mark, struct err *err);

/*
 * Neighbours, routes, links: readable when something changed; then dp_netlink_read(). It returns after how
 * many nanoseconds it wants to be called again, readable or not; 0: not.
 */
int dp_netlink_fd(const struct dp *dp);
uint64_t dp_netlink_read(struct dp *dp);
/* Once a second: resolves what is missing. */
void dp_tick(struct dp *dp);
/* Asks some next hops whether they are still there; to be called again after so many nanoseconds. */
uint64_t dp_probe(struct dp *dp);

/* Agent (role backend): tunnel end points of this host, with what they take (enum hg_decap_flags); replaces the set. */
HG_WUR int dp_decap_addrs(struct dp *dp, const struct addr *addrs, unsigned n, uint32_t flags,
			  struct err *err);
/* Walks them; a non-zero return of the callback stops the walk and is returned. */
int dp_each_decap_addr(struct dp *dp, int (*fn)(void *ctx, const struct addr *a, uint32_t flags),
		       void *ctx);

/*
 * Agent: answers to the balancers' SYN cookies become connections on this interface, checked with these keys; none: they do not
 * any more. -EOPNOTSUPP: the kernel is older than Linux 6.9; -ENOTSUP: sysctls are in the way; nothing has changed then.
 */
HG_WUR int dp_agent_syn(struct dp *dp, const char *ifname, const struct conf_syn_keys *keys,
			struct err *err);
uint32_t dp_agent_syn_keys(const struct dp *dp); /* how many there are; 0: no cookies are taken */

/* --- the guard (deny.c) -------------------------------------------------------------------------- */

/*
 * Limits and deny-files as the configuration has them; prefixes of others stay. Takes about a microsecond
 * per prefix that was not there at the last call. -ENOSPC, -ENOMEM, …: what was done until then stays.
 */
HG_WUR int dp_guard_configure(struct dp *dp, const struct conf *c, struct err *err);
/*
 * Until `expires_ns` (CLOCK_MONOTONIC; 0: for good). Never makes shorter what is there. 1 new, 0 it was there,
 * -ENOSPC, -ENOMEM, -ENOENT (no kernel tier). `is_told`: TCP gets an RST for every packet.
 */
HG_WUR int dp_deny_add(struct dp *dp, const struct conf_prefix *p, uint64_t expires_ns,
		       enum hg_deny_origin origin, bool is_told);
int dp_deny_del(struct dp *dp, const struct conf_prefix *p); /* -ENOENT: it is not there */
struct dp_deny_info {
	struct conf_prefix prefix;
	uint64_t expires_ns; /* CLOCK_MONOTONIC; 0: never */
	enum hg_deny_origin origin;
	bool is_told;
};
/* Those in force, in order; mem_free() the array. -ENOMEM, -ENOENT (no kernel tier). */
HG_WUR int dp_deny_list(struct dp *dp, struct dp_deny_info **ret, size_t *ret_n);
const char *dp_deny_origin_name(enum hg_deny_origin origin);

/*
 * Limits at run time (guard.c), until the next dp_guard_configure(). Rate 0, number 0: no limit. Of a section: all its
 * services; NULL stays as it is. -ENOENT: no such section, -EINVAL, -EOPNOTSUPP.
 */
void dp_guard_source_rate(struct dp *dp, enum hg_limit_kind kind, const struct conf_xdp_limit *l);
HG_WUR int dp_guard_source_conns(struct dp *dp, uint32_t n, struct err *err);
HG_WUR int dp_guard_section(struct dp *dp, const char *name, const struct conf_xdp_limit *syn_rate,
			    const uint32_t *max_conn, struct err *err);
struct dp_guard_info { /* of sources */
	struct conf_xdp_limit limits[HG_LIMIT_COUNT];
	uint32_t max_conn;
};
void dp_guard_show(const struct dp *dp, struct dp_guard_info *ret);

/* What the kernel counts by source (live.c). -ENOENT: no kernel tier. */
struct dp_source_info {
	uint32_t conns, max_conns; /* now; 0: no limit */
	uint32_t syn_rate, dropped; /* is_watched: of a second; since it is watched */
	bool is_watched; /* some rule asks */
};
void dp_source_view(const struct dp *dp, struct source_view *ret);
int dp_source(struct dp *dp, const struct addr *a, struct dp_source_info *ret);
struct dp_sources_summary {
	uint32_t sources, most, room, max_conns; /* with connections; of one; in the table; as above */
	uint64_t conns;
};
int dp_sources(struct dp *dp, struct dp_sources_summary *ret);
/*
 * SYN cookies as the configuration has them (syn_cookie.c). -ENOTSUP: the sysctls forbid them; else what loading and
 * attaching may say. A failure leaves them as they were.
 */
HG_WUR int dp_syn_configure(struct dp *dp, const struct conf *c, struct err *err);

/* CPUs that packets for the L7 tier go to (steer.c). -ENODEV, -E2BIG: one is not online; it is as it was then. */
HG_WUR int dp_steer_configure(struct dp *dp, const struct conf *c, struct err *err);

/*
 * Which worker gets a new connection (sk_steer.c). `cpus`: of each of `n` workers, -1: none; they count at the first call
 * only, because workers never change theirs.
 */
void dp_sk_steer_configure(struct dp *dp, enum hg_sk_mode mode, const int *cpus, unsigned n);
HG_WUR int dp_sk_steer_check(struct dp *dp, struct err *err); /* can it be loaded? A start should fail early */
/*
 * Attaches the program to all sockets that listen where `fd` does, `n` of ours, in place of whatever was. *ret_map_fd is
 * the array to fill and then to close. Errors leave the group as it was.
 */
HG_WUR int dp_sk_steer_attach(struct dp *dp, int fd, unsigned n, int *ret_map_fd, struct err *err);
/*
 * Sockets from number *at on into the array; *at is how far it came. -EBUSY: a socket is still in an older array, which
 * goes a few milliseconds after the last process has let go of it.
 */
HG_WUR int dp_sk_steer_fill(int map_fd, const int *fds, unsigned n, unsigned *at);
HG_WUR int dp_sk_steer_detach(int fd); /* 0 also when there was none */
const struct hg_sk_worker *dp_sk_steer_rows(const struct dp *dp); /* by worker */

/* --- reading ----------------------------------------------------------------------------------- */

struct dp_service_info {
	struct hg_service_key key;
	const char *name; /* of the section; "" when only the pins are known */
	uint32_t id;
	uint8_t mode; /* enum hg_mode */
	uint32_t slots, tracked; /* of the table; of them moved lately */
	uint32_t flows; /* remembered, as of the last walk */
	uint32_t conns, maxconn; /* NAT and L7 tier: now, and the limit or 0 */
	struct conf_xdp_limit syn_rate; /* rate 0: no limit */
	uint32_t n_allow; /* prefixes that may use it */
	bool has_allow;
	bool are_cookies_on; /* SYNs are answered by cookies now */
	struct hg_service_counters sum;
};
struct dp_backend_info {
	uint32_t id;
	struct addr addr;
	const char *service_name, *server_name;
	uint8_t flags;
	bool is_draining; /* the configuration has it no more; it stays until nothing names it */
	uint32_t flows; /* remembered, as of the last walk */
	union hg_neigh neigh;
	char ifname[16];
	uint32_t conns, maxconn; /* where they are counted: now, of both tiers, and the limit or 0 */
	uint32_t l7_conns; /* of them, those of the L7 tier */
	struct hg_backend_counters sum;
};
/* Walks; a non-zero return of the callback stops the walk and is returned. */
int dp_each_service(struct dp *dp, int (*fn)(void *ctx, const struct dp_service_info *i), void *ctx);
int dp_each_backend(struct dp *dp, int (*fn)(void *ctx, const struct dp_backend_info *i), void *ctx);
/* NAT connections; rows that change while they are read are left out. As dp_each_service(). */
struct dp_nat_info {
	struct addr client, vip, edge, backend;
	const char *service_name, *server_name; /* "" when only the pins are known */
	uint8_t proto, state; /* IPPROTO_*, enum hg_nat_state */
	uint32_t idle_s; /* seconds since the last packet, give or take two */
};
int dp_each_nat(struct dp *dp, int (*fn)(void *ctx, const struct dp_nat_info *i), void *ctx);
/*
 * Tells `fn` of NAT connections that began or ended since the last call; called once a second it misses none, because the
 * ports of closed ones rest for longer than that. The first call tells of none: it makes the copy (128 bytes a row) that the
 * others compare with. `fn` NULL: the copy goes. 0, -ENOENT (no table), -ENOMEM. Control thread.
 */
typedef void dp_nat_event_fn(void *ctx, const struct dp_nat_info *i, bool has_ended);
int dp_watch_nat(struct dp *dp, dp_nat_event_fn *fn, void *ctx);
struct dp_nat_summary {
	uint32_t rows; /* of the table */
	uint32_t by_state[HG_NAT_STATE_COUNT];
	uint64_t ended; /* by the sweep of this process */
};
int dp_nat_summary(struct dp *dp, struct dp_nat_summary *ret); /* 0, -ENOENT: no table */
const char *dp_nat_state_name(unsigned state);
void dp_verdicts(struct dp *dp, struct hg_verdict_counters *ret_sum);
/* Where would this flow go? Backend id, 0: nowhere, -ENOENT: no service. */
int dp_lookup_flow(struct dp *dp, const struct hg_flow_key *k);
/* Names and help of the tables in <headgate/counters.h>. */
const char *dp_drop_name(unsigned drop);
const char *dp_drop_help(unsigned drop);
const char *dp_event_name(unsigned event);
const char *dp_event_help(unsigned event);
const char *dp_verdict_name(unsigned verdict);

/* --- looking at packets (events.c) ---------------------------------------------------------------- */

/*
 * The last drops that the flight recorder holds and that are younger than `after_ns` (CLOCK_MONOTONIC), oldest first; mem_free()
 * the array. -ENOMEM, -ENOENT (no kernel tier).
 */
HG_WUR int dp_drop_events(struct dp *dp, uint64_t after_ns, struct hg_drop_event **ret, unsigned *ret_n);
/* Drops beyond the recorder's rate since the program was loaded. */
uint64_t dp_drop_events_skipped(struct dp *dp);

struct dp_capture_filter {
	uint32_t one_in; /* every n-th packet on average; 0 and 1: all */
	uint32_t snaplen; /* bytes of each frame; 0: HG_SNAPLEN_MAX */
	uint32_t flags; /* enum hg_capture_flags */
	uint32_t drops; /* bits by enum hg_drop, with HG_CAPTURE_DROPS */
	const uint32_t *services, *backends; /* ids; none: all */
	unsigned n_services, n_backends;
};
struct dp_capture;
/*
 * Switches a capture on; `fn` is called from dp_capture_poll() for every frame. -EBUSY: another process has one.
 * It ends with dp_capture_close(), or by itself a few seconds after the last dp_capture_poll().
 */
HG_WUR int dp_capture_open(struct dp *dp, const struct dp_capture_filter *f,
			   void (*fn)(void *ctx, const struct hg_frame *f, const uint8_t *bytes),
			   void *ctx, struct dp_capture **ret_c, struct err *err);
/* Waits for frames at most that long. How many there were, or -errno; -ESTALE: another process took over. */
int dp_capture_poll(struct dp_capture *c, int timeout_ms);
uint64_t dp_capture_lost(const struct dp_capture *c); /* frames that found the ring full */
void dp_capture_close(struct dp_capture *c); /* NULL is ignored */

/* Maps and what each is for, for `headgate show maps` and the docs; NULL at the end. */
struct dp_map_doc { const char *name, *key, *value, *writer, *help; };
const struct dp_map_doc *dp_map_doc(unsigned i);

#endif
