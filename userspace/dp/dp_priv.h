/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of dp/ share. Control thread or command-line tool only. */
#ifndef DP_DP_PRIV_H
#define DP_DP_PRIV_H

#include <bpf/libbpf.h>
#include <limits.h>
#include <linux/netlink.h>

#include "base/jiffies.h"
#include "base/list.h"
#include "base/mem.h"
#include "dp/dp.h"

struct mnl_socket;

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
	DP_MAP_DENY4,
	DP_MAP_DENY6,
	DP_MAP_DENY_CELLS,
	DP_MAP_DENY_INDEX,
	DP_MAP_SOURCES,
	DP_MAP_LIVE_SOURCES,
	DP_MAP_SOURCE_GROUPS,
	DP_MAP_SOURCE_SEEN,
	DP_MAP_SERVICE_GUARD,
	DP_MAP_ALLOW4,
	DP_MAP_ALLOW6,
	DP_MAP_SYN_SERVICES,
	DP_MAP_STEER,
	DP_MAP_STEER_CPUS,
	DP_MAP_DROP_EVENTS,
	DP_MAP_CAPTURE,
	DP_MAP_CAPTURE_RING,
	DP_MAP_XDP_PORTS,
	DP_MAP_NAT_CONNS,
	DP_MAP_NAT_ADDRS,
	DP_MAP_NAT_LINES,
	DP_MAP_NAT_TICKETS,
	DP_MAP_NAT_TICKS,
	DP_MAP_NAT_HINTS,
	DP_MAP_NAT_PATHS,
	DP_MAP_NAT_FRAGMENTS,
	DP_MAP_NAT_SERVICES,
	DP_MAP_NAT_CONTROL,
	DP_MAP_LIVE_BACKENDS,
	DP_MAP_LIVE_SERVICES,
	DP_MAP_SYN_CONTROL, /* this and the next two: of the agent, too */
	DP_MAP_XDP_VERDICTS,
	DP_MAP_META,
	DP_MAP_DECAP_ADDRS,
	DP_MAP_STATS_SERVICES,
	DP_MAP_STATS_BACKENDS,
	DP_MAP_STATS_WORKERS,
	DP_MAP_SK_STEER,
	DP_MAP_SK_WORKERS,
	DP_MAP_LIVE_MARKS,
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
	struct hg_line *flows, *fragments;
	uint32_t n_flow_lines, n_fragment_lines;
	struct hg_quic_block *quic;
	uint32_t n_quic_blocks;
	struct hg_deny_line *deny; /* the index of denied prefixes */
	uint32_t deny_mask;
	uint32_t tick_shift, hz; /* of the program's clock, see hg_rodata */
};

/* --- the writer's own memory of what the tables hold ------------------------------------------------ */

struct dp_backend { /* by id */
	bool is_used, is_wanted;
	bool is_next; /* wanted by the sync that goes on; becomes is_wanted when that has succeeded */
	bool is_named; /* by a tracked slot or a connection id, as of the walk that goes on */
	bool is_releasing; /* nothing names it; the entries of `flows` and `fragments` are being looked through */
	uint32_t n_flows, n_flows_walk; /* entries that name it: last walk, this walk */
	uint32_t adopted_service; /* whose slots name it after adoption, id + 1; 0: none, or matched */
	uint64_t packets, heard_ns; /* counter when it last moved, and when that was */
	uint64_t unwanted_ns; /* since when the configuration has it no more */
	char *service_name, *server_name;
	struct addr addr;
	/* share.c, for the sync that goes on */
	const struct conf_proxy *px; /* whose connections at this server are counted; NULL: none are */
	uint16_t port; /* of the server's line; 0: the packet's */
	uint32_t limit; /* the strictest of all lines that count here */
	/* next hop */
	struct dp_hop *hop; /* NULL: no route, or not asked for yet */
	struct list of_hop;
	uint16_t tags; /* what frames leave with, as in hg_neigh.state */
	uint64_t asked_ns; /* last time the kernel was asked for the route */
};

/* A neighbour: a gateway, or a backend itself; see hop.c. */
struct dp_hop {
	bool is_used;
	bool is_asked; /* the kernel was, since all routes were looked at */
	bool is_resolved;
	struct addr via;
	unsigned ifindex; /* of the route; that of a backend's row is what carries a VLAN interface */
	uint8_t mac[6];
	struct list link; /* dp.hops_in_use */
	struct list backends; /* dp_backend.of_hop */
	struct addr src; /* ours on that link; family 0: none */
	uint8_t src_mac[6];
	uint64_t poked_ns; /* the kernel was last told to resolve */
	uint64_t probed_ns; /* we last asked the neighbour; 0: not since its MAC changed */
	unsigned n_unanswered; /* questions in a row */
};

struct dp_service { /* by id */
	bool is_used, is_wanted;
	char *name;
	struct hg_service row;
	uint64_t signature; /* of backends, weights and states that the table was filled from */
	/* slots.c */
	bool is_tracking; /* moved slots are tracked */
	bool is_size_told; /* that the table is of another size than configured */
	uint32_t deaths; /* dp.deaths when the bases were last looked at */
	unsigned adopted_px; /* index of the section that has it after adoption, + 1 */
	uint32_t window_s, drain_s; /* drain_s 0: as long as flows live */
	uint32_t idle_s; /* `track on`: a connection that is silent for longer does not count */
	uint32_t *changed_s; /* [row.slots] CLOCK_MONOTONIC of the last new owner */
	uint8_t *marks; /* [row.slots] enum dp_slot_mark */
	uint32_t n_tracked; /* slots */
	bool is_unsettled; /* has tracked slots or marks: worth a walk */
	bool is_still_unsettled; /* the same as found by the walk that goes on */
	uint32_t n_flows, n_flows_walk;
	/* guard.c: what is in force */
	uint64_t guard_epoch; /* dp.guard_epoch when it was last configured, + 1 */
	struct conf_xdp_limit syn_rate;
	uint32_t max_conn;
	bool has_allow, is_allow_known; /* known: `allow` is what the tries have */
	struct conf_prefix *allow; /* in order */
	unsigned n_allow;
};

enum dp_slot_mark {
	/* Changed since the walk began, or an entry was met that names another backend than the owner. */
	DP_SLOT_SEEN = 1 << 0,
	/* Not tracked, but there may be entries of the time when it was. */
	DP_SLOT_STALE = 1 << 1,
};

/* Where the walk over `flows`, `fragments`, slots and backends is; see flows.c. */
enum dp_walk_phase { DP_WALK_IDLE, DP_WALK_FLOWS, DP_WALK_FRAGMENTS, DP_WALK_SLOTS, DP_WALK_BACKENDS };
struct dp_walk {
	enum dp_walk_phase phase;
	uint32_t at, slot; /* next line, or service and slot, or backend */
	uint32_t tick; /* the program's clock now */
	uint64_t began_ns;
	uint64_t busy_ns, busy_walk_ns; /* our own time: last walk, this walk */
	uint32_t n_walks;
	uint64_t n_full; /* HG_EVENT_FLOW_FULL when it was last told */
	bool has_released; /* an id came free: a sync that found none may try again */
};

/* Where the walk over denied prefixes is; see deny.c. */
struct dp_deny_walk {
	bool is_on, is_v6, has_at;
	struct conf_prefix at; /* the last one that stays */
	uint64_t ended_ns, busy_ns; /* end of the last slice; our own time in this walk, or the last */
};

/* An interface as rtnetlink describes it. */
struct dp_link {
	unsigned ifindex, lower; /* lower: what a VLAN is on */
	uint32_t mtu;
	uint8_t mac[6];
	uint16_t vlan; /* id, with is_vlan */
	bool is_vlan, is_ad; /* is_ad: 802.1ad */
	bool is_lower_elsewhere; /* in another namespace */
};

/* How packets of a route leave this host. */
struct dp_egress {
	unsigned ifindex; /* of the device, below a VLAN interface */
	uint32_t mtu;
	uint8_t mac[6];
	uint16_t tags; /* as in hg_neigh.state, without HG_NEIGH_OK */
};

struct dp_port { /* interface that packets leave by */
	unsigned ifindex;
	uint16_t tags; /* configured, as above */
	bool is_configured; /* an `xdp interface` */
	bool is_egress; /* of some backend, now or earlier */
	bool is_told; /* the operator knows that it takes no redirected frames */
};

/* A range of slot blocks that no reader uses any more after `free_at`. */
struct dp_range {
	struct list link;
	uint32_t start, n;
	uint64_t free_at_ns; /* CLOCK_MONOTONIC; 0: free; UINT64_MAX: after the next flip */
};

/* The NAT table, mapped; `conns` NULL: not there. Tests put plain memory here. */
struct dp_nat {
	struct hg_nat_conn *conns;
	struct hg_nat_addrs *addrs;
	struct hg_nat_line *lines;
	struct hg_nat_ticket *tickets;
	struct hg_nat_hints *hints;
	struct hg_nat_path *paths; /* HG_NAT_PATHS() */
	struct hg_nat_service *services;
	struct hg_nat_control *control;
	struct hg_live_server *live_backends;
	struct hg_live *live_services;
	uint32_t mask, line_mask, max_backends, max_services, hash_seed;
	uint32_t tick_shift, hz;
	uint32_t sweep_at; /* row */
	uint32_t warned_first; /* of the port range that overlaps the kernel's; 0: none */
	uint64_t n_ended;
	struct dp_nat_seen *seen; /* nat_watch.c; NULL: nobody watches */
	void *seen_memory;
};

/* Ids by a hash of what they stand for; see index.c. A position is an id + 1, 0 ends the chain. */
struct dp_index {
	uint32_t shift, *first, *next;
};

/* Our part of the words in `live_backends`; see share.c. */
struct dp_share {
	int fd; /* the directory of the pins, opened anew: locks of parts belong to it. 0: there are none */
	uint32_t part;
};

/* Counting of connections by the kernel; see live.c. */
struct dp_live {
	bool is_on, has_failed;
	char why_not[200];
};

/* Maps of an earlier process that were too small; see carry.c. */
struct dp_before {
	struct dp_map maps[DP_MAP_COUNT];
	struct dp_tables t;
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
	struct dp_nat nat;
	struct dp_service *services; /* [t.max_services] */
	struct dp_backend *backends; /* [t.max_backends] */
	struct dp_hop *hops; /* [t.max_backends] */
	struct list hops_in_use; /* asked in turns */
	uint32_t n_hops;
	struct dp_index services_by_key, backends_by_addr, hops_by_addr;
	uint32_t service_hint, backend_hint, hop_hint; /* no smaller id is unused */
	struct list free_ranges; /* dp_range, by start */
	struct list free_quic; /* dp_range, blocks of `quic_ids`, by start */
	uint64_t flipped_ns; /* last change of control.service_generation */
	uint64_t slots_changed_ns; /* last change of a slot word or of HG_BE_ALIVE */
	uint64_t skew_ns; /* tests let time pass */
	uint32_t deaths; /* how often a backend lost HG_BE_ALIVE */
	bool are_services_dirty;
	bool is_synced; /* dp_sync() went through at least once: is_wanted can be relied on */
	struct dp_walk walk;
	struct dp_before *before; /* NULL: none, or carried over */
	int deny_lock_fd; /* of who writes denied prefixes; 0 or less: nobody else does */
	struct dp_deny_walk deny_walk;
	struct conf_prefix *deny_files; /* what the configuration had, NULL: not yet read */
	unsigned n_deny_files;

	uint64_t guard_epoch; /* how often limits were configured */
	struct conf_xdp_limit source_limits[HG_LIMIT_COUNT]; /* in force */
	struct dp_live live;
	struct dp_share share;
	struct dp_recount *recount; /* recount.c; NULL: the counts are right */
	struct dp_syn *syn; /* syn_cookie.c; NULL: no program of it was loaded here */
	struct dp_checks *checks; /* check.c; NULL: no check goes through a tunnel */

	struct mnl_socket *nl_events; /* neighbour, link, route and rule changes */
	struct mnl_socket *nl_ask; /* requests and answers */
	struct mnl_socket *nl_genl; /* what devices can do; NULL: the kernel does not tell */
	int ask_fd; /* packet socket for questions to neighbours; -1: none */
	uint16_t netdev_family; /* generic netlink's number for it, 0: not asked yet */
	uint32_t nl_seq;
	bool are_routes_stale; /* some changed since all were asked for */
	uint64_t routes_next_ns; /* not asked for before */

	struct dp_port ports[HG_MAX_PORTS];
	unsigned n_ports;
	bool is_native; /* some interface runs the program in native mode */
	bool has_said_vlan, has_said_ports;
	struct addr_prefix sources[2]; /* of tunnels, IPv4 and IPv6; family 0: the route's */
};

void dp_notice(const struct dp *dp, const char *fmt, ...) HG_PRINTF(2, 3);
const char *dp_map_name(enum dp_map_id id);
uint64_t dp_now_ns(void);
/* The same for what tests want to hurry: windows, deadlines, grace times. */
static inline uint64_t dp_clock(const struct dp *dp)
{
	return dp_now_ns() + dp->skew_ns;
}

/* loader.c */
const char *dp_bpffs(const char *configured);
void dp_pin_path(const struct dp *dp, const char *name, char ret[PATH_MAX]);
/* Directory of the pins of a role. */
void dp_pin_dir(const char *bpffs, enum hg_role role, char ret[PATH_MAX]);
const char *dp_prog_name(enum hg_role role);
/* What may be missing when the kernel answers with this error: "" or the end of a sentence. */
const char *dp_hint(int err);
/* What maps of that size need of the constants in `ro`; *ret_blocks: of slots. */
void dp_size(const struct dp_opts *o, struct hg_rodata *ro, uint32_t *ret_blocks);
/* `fd` becomes the map's, which is mapped if it is an array. 0 or -errno. */
HG_WUR int dp_map_in(struct dp_map *m, int fd);
void dp_maps_close(struct dp *dp);
/* The tables in the edge's maps. */
void dp_tables_of(const struct dp_map *maps, struct dp_tables *ret);

/*
 * adopt.c: 0 adopted; -ENOENT nothing there, or nothing that fits; -EPERM or -EACCES: may not look; with adopt_only
 * -ESTALE: another version's. dp_adopt_only(), for those who only look: what is there, or `err` says why not.
 */
HG_WUR int dp_adopt(struct dp *dp, const struct dp_opts *o);
HG_WUR int dp_adopt_only(struct dp *dp, const struct dp_opts *o, struct err *err);

/* Blocks that hold a table of so many slots. */
static inline uint32_t dp_blocks_of(uint32_t slots)
{
	return (slots + HG_SLOTS_PER_BLOCK - 1) / HG_SLOTS_PER_BLOCK;
}

static inline uint32_t dp_quic_blocks_of(uint32_t ids)
{
	return (ids + HG_QUIC_IDS_PER_BLOCK - 1) / HG_QUIC_IDS_PER_BLOCK;
}

/* index.c: no id twice, none that is not below what dp_index_init() was told. */
HG_WUR int dp_index_init(struct dp_index *x, uint32_t n_ids);
void dp_index_free(struct dp_index *x);
void dp_index_add(struct dp_index *x, uint64_t hash, uint32_t id);
void dp_index_del(struct dp_index *x, uint64_t hash, uint32_t id);
#define DP_INDEX_AT(x, hash) ((hash) * 0x9e3779b97f4a7c15ull >> (x)->shift) /* Fibonacci hashing: keys are regular */
/* Those with equal hashes, and some others: `for (at = dp_index_first(x, h); at; at = x->next[at])`, id at - 1. */
static inline uint32_t dp_index_first(const struct dp_index *x, uint64_t hash)
{
	return x->first[DP_INDEX_AT(x, (uint64_t)(hash))];
}

/* tables.c */
/* What a packet may still hold is not reused before: it is done within microseconds, a preempted softirq within milliseconds. */
#define DP_GRACE_NS 20000000ull
HG_WUR int dp_tables_adopt(struct dp *dp); /* fills services[], backends[], free ranges from the maps */
void dp_tables_free(struct dp *dp); /* what adoption and later calls have made, the maps excepted */
/* Range of n blocks from dp->free_ranges (slots) or dp->free_quic, 0 or -ENOSPC. */
HG_WUR int dp_range_take(struct dp *dp, struct list *from, uint32_t n, uint32_t *ret_start);
void dp_range_give(struct dp *dp, struct list *to, uint32_t start, uint32_t n);
/* Writes all used services into the idle generation and flips. -ENOSPC: probe sequence too long. */
HG_WUR int dp_services_write(struct dp *dp, struct err *err);
struct dp_service *dp_service_find(struct dp *dp, const struct hg_service_key *k);
HG_WUR int dp_service_take(struct dp *dp, const struct hg_service_key *k, struct dp_service **ret_svc);
void dp_service_drop(struct dp *dp, struct dp_service *s);
/* Kept for the next process, too, which knows nothing of our health checks when it adopts. */
void dp_backend_set_alive(struct dp *dp, uint32_t id, bool is_alive);
/* Gives the id, which is unused, to this address; its row is the caller's to write. */
void dp_backend_take(struct dp *dp, uint32_t id, const struct addr *a);
uint32_t dp_backend_unused(struct dp *dp); /* an id that nothing names and no connection has; 0: none */
/* Position of the first backend that may have this address, see dp_index_first(). */
uint32_t dp_backend_first(const struct dp *dp, const struct addr *a);
uint64_t dp_addr_hash(const struct addr *a); /* without the port; for dp_index */
void dp_backend_drop(struct dp *dp, uint32_t id); /* nothing names it, for longer than DP_GRACE_NS */

/* slots.c */
struct dp_member {
	uint64_t key;
	uint16_t id;
	uint32_t weight;
};
/*
 * Brings the table to these members: slots that change owner are tracked when the service is. `slots`: size of
 * a first table. -ENOMEM, -ENOSPC (no room for a table), -EINVAL (more members than slots): nothing changed.
 */
HG_WUR int dp_slots_want(struct dp *dp, struct dp_service *svc, const struct dp_member *m, unsigned n,
			 uint32_t slots);
/* The word of a slot whose owner shall be `want`; backends' HG_BE_ALIVE is what they are judged by. Pure. */
uint32_t dp_slot_next(const struct dp *dp, uint32_t word, uint32_t want);
uint32_t *dp_slot_at(const struct dp *dp, const struct dp_service *svc, uint32_t slot);
HG_WUR int dp_slots_adopt(struct dp *dp, struct dp_service *svc);
/* Takes backends that died since out of the slots' memory. */
void dp_slots_bury(struct dp *dp, struct dp_service *svc);
/* Entries that were written under other rules are not to be believed. */
void dp_slots_distrust(struct dp_service *svc);
/* At the end of a walk over `flows`: windows and deadlines that are over, slots that need no memory any more. */
void dp_slots_ripen(struct dp *dp, struct dp_service *svc, uint32_t from, uint32_t to);
void dp_slots_free(struct dp_service *svc);

/*
 * deny_index.c: prefixes as packets look for them; one writer at a time. `put`, of what is not there; false: no room, the trie has to be
 * asked. `set`: with the time and flags of now. False from `set` and `del`: not there.
 */
uint32_t dp_deny_lines(uint32_t prefixes); /* what the index should have for so many of both families */
HG_WUR bool dp_deny_index_put(struct dp_tables *t, const struct conf_prefix *p, const struct hg_deny *d);
bool dp_deny_index_set(struct dp_tables *t, const struct conf_prefix *p, const struct hg_deny *d);
bool dp_deny_index_del(struct dp_tables *t, const struct conf_prefix *p);

/* deny.c: removes entries whose time is over, a slice of well below a millisecond; true: there is more. */
bool dp_deny_sweep(struct dp *dp);
HG_WUR int dp_deny_carry(struct dp *dp); /* prefixes of dp->before into our maps, but those of files */

/* carry.c */
bool dp_carry_begin(struct dp *dp, uint32_t hash_seed, uint32_t n_cpus);
void dp_carry_sizes(const struct dp *dp, struct hg_rodata *ro, uint32_t *blocks, uint32_t *quic);
/* Instead of dp_tables_adopt(): rows, slots and flows of `from`, the writer's memory of them. */
HG_WUR int dp_carry_rows(struct dp *dp, const struct dp_tables *from);
void dp_carry_flows(const struct dp_tables *from, const struct dp_tables *to);
void dp_carry_again(struct dp *dp); /* after an interface has changed over */
void dp_carry_end(struct dp *dp);

/* quic.c */
/* Server ids of the section to `ids` (backend by server id, n of them); 0, -ENOMEM, -ENOSPC. */
HG_WUR int dp_quic_want(struct dp *dp, struct dp_service *svc, const uint16_t *ids, uint32_t n);
/* Marks backends that connection ids name; clears the words of those that were silent for long. */
void dp_quic_ripen(struct dp *dp, struct dp_service *svc);
void dp_quic_give(struct dp *dp, struct dp_service *svc);

/* nat.c */
struct bpf_object;
void dp_nat_size(const struct dp_opts *o, struct hg_rodata *ro);
bool dp_nat_resize(struct bpf_object *obj, const struct hg_rodata *ro); /* of an object that is not loaded yet */
void dp_nat_open(struct dp *dp, const struct hg_rodata *ro);
/* The service's row of `nat_services` and its limit, before the service is published. -ENOSPC: no table. */
HG_WUR int dp_nat_service(struct dp *dp, const struct conf_proxy *px, const struct hg_service *svc,
			  struct err *err);
void dp_nat_backend(struct dp *dp, uint32_t id, uint16_t port);
/* How many connections a backend may have where they are counted (NAT, `track on`); 0: any number. */
void dp_backend_limit(struct dp *dp, uint32_t id, uint32_t maxconn);
/* Nanoseconds of silence after which a connection of the section is taken for over. */
uint64_t dp_idle_ns(const struct conf_proxy *px, uint8_t proto);
/* An id with connections is not given to another backend or service, and a backend's row stays. */
bool dp_nat_is_live(const struct dp *dp, uint32_t backend);
bool dp_nat_is_live_service(const struct dp *dp, uint32_t service);
/* Ends what is silent among the next `count` rows; how many that were. `now`: tick. */
unsigned dp_nat_sweep(struct dp_nat *n, uint32_t count, uint32_t now);
void dp_nat_tick(struct dp *dp);
/* What the row `c`, with addresses `a`, is about; names are the dp's. */
void dp_nat_describe(const struct dp *dp, const struct hg_nat_conn *c, const struct hg_nat_addrs *a,
		     struct dp_nat_info *ret);

/* share.c */
HG_WUR int dp_share_open(struct dp *dp, struct err *err); /* takes a part; clears those that nobody has */
void dp_share_close(struct dp *dp); /* no worker runs any more */
void dp_share_tick(struct dp *dp);
/* After the sections: which servers of the L7 tier count in which row, and the limits of rows. */
void dp_share_sync(struct dp *dp, const struct conf *c, struct lb_backend *const *backends);

/* recount.c: counts of adopted maps are compared with rows and flows, until they agree */
void dp_recount_begin(struct dp *dp);
void dp_recount_tick(struct dp *dp);
void dp_recount_end(struct dp *dp);

/* guard.c */
/* Limits of sources; those of services follow with the next dp_sync(). */
void dp_guard_seed(struct hg_control *c); /* the secret of hashes of sources, where there is none yet */
HG_WUR int dp_guard_limits(struct dp *dp, const struct conf *c, struct err *err);
/* Brings the service's own limits to what the section has, once per configuration; may make the services dirty. */
HG_WUR int dp_guard_service(struct dp *dp, const struct conf_proxy *px, struct dp_service *svc,
			    struct err *err);
void dp_guard_drop(struct dp *dp, struct dp_service *svc);

/* live.c */
/* Sees to it that the kernel counts; after the first dp_sync(). Why not: dp->live.why_not. */
bool dp_live_start(struct dp *dp);
/* tc.c: a place for one of our programs on every interface */
struct dp_tc_slot {
	uint32_t prio, handle;
	const char *prefix; /* of our programs' names: another's at the same place is left alone */
};
/* Id of our program there, 0: none. */
uint32_t dp_tc_prog(const struct dp_tc_slot *slot, unsigned ifindex,
		    enum bpf_tc_attach_point point);
HG_WUR int dp_tc_attach(const struct dp_tc_slot *slot, unsigned ifindex,
			enum bpf_tc_attach_point point, const struct bpf_program *prog,
			struct err *err);
void dp_tc_detach(const struct dp_tc_slot *slot, unsigned ifindex, enum bpf_tc_attach_point point);

/* syn_cookie.c */
void dp_syn_tick(struct dp *dp);
bool dp_syn_is_on(const struct dp *dp, uint32_t service); /* its SYNs are answered by cookies now */
void dp_syn_carry(struct dp *dp); /* keys of dp->before: cookies on their way stay good */
void dp_syn_close(struct dp *dp);
void dp_syn_detach(unsigned ifindex); /* the program at tc, of whichever process */
void dp_agent_syn_detach(unsigned ifindex); /* the agent's (syn_agent.c) */
/* For both roles: */
struct syn_tc_bpf;
struct dp_syn_sysctls {
	long syncookies, timestamps, sack, window_scaling, ecn;
	long rmem, rmem_most; /* net.ipv4.tcp_rmem, second and last */
	long core_rmem_max;
};
HG_WUR int dp_syn_sysctls(struct dp_syn_sysctls *s, const char *what, struct err *err);
bool dp_syn_kernel_takes(void); /* programs at tc may give connections to listeners: Linux 6.9 */
HG_WUR int dp_syn_load(const struct dp *dp, struct syn_tc_bpf **ret, struct err *err);
/* Seconds that a cookie may come back. */
#define DP_SYN_VALID_S (3 * HG_SYN_KEY_S)
void dp_syn_set_secrets(struct hg_syn_control *c, const struct conf_syn_keys *keys);

/* check.c */
void dp_checks_close(struct dp *dp);
void dp_checks_detach(unsigned ifindex); /* programs of ours at tc, of whichever process */

/* neigh.c */
/* Interface by which packets to this address leave; -EHOSTUNREACH: none. */
HG_WUR int dp_route_ifindex(struct dp *dp, const struct addr *to, unsigned *ret_ifindex);
HG_WUR int dp_netlink_open(struct dp *dp, struct err *err);
void dp_netlink_close(struct dp *dp);
/* Route, source address, MTU and neighbour of backend `id`; writes its row's next hop. */
void dp_backend_resolve(struct dp *dp, uint32_t id);
void dp_backends_resolve(struct dp *dp); /* all of them */
/* Sends a request and feeds the answers to `cb` (mnl_cb_t). 0 or -errno. */
int dp_nl_ask(struct dp *dp, struct mnl_socket *nl, struct nlmsghdr *nlh,
	      int (*cb)(const struct nlmsghdr *nlh, void *arg), void *arg);

size_t dp_addr_bytes(const struct addr *a, const void **ret_p); /* of the IP address alone */
void dp_addr_from_attr(struct addr *a, int family, const struct nlattr *at); /* family 0: it is none */
/* Our address towards `to` by this interface; family 0: none. */
void dp_route_source(struct dp *dp, const struct addr *to, unsigned ifindex, struct addr *ret);

/* hop.c */
/* Packets to backend `id` leave to this neighbour from now on; writes MAC and tag into its row. */
void dp_hop_join(struct dp *dp, uint32_t id, const struct addr *via, unsigned ifindex,
		 const uint8_t src_mac[6]);
void dp_hop_leave(struct dp *dp, uint32_t id);
void dp_hops_ask_again(struct dp *dp); /* what the kernel knows, when a backend joins next */
void dp_hop_event(struct dp *dp, const struct nlmsghdr *nlh); /* RTM_NEWNEIGH, RTM_DELNEIGH */
void dp_hops_tick(struct dp *dp);

/* link.c */
bool dp_link_parse(const struct nlmsghdr *nlh, struct dp_link *ret); /* false: no RTM_NEWLINK */
/* False: the interface is gone, or of a kind that frames cannot be made for. */
HG_WUR bool dp_egress_find(struct dp *dp, unsigned ifindex, struct dp_egress *ret);
/* Packets leave by this device from now on: into the device map with it, if it can. */
void dp_port_use(struct dp *dp, unsigned ifindex);
/* Once a second and after attaching: what each can do may have changed. */
void dp_ports_check(struct dp *dp);
/* Takes tunnel sources and tags from the configuration; true: other than before. */
HG_WUR bool dp_paths_configure(struct dp *dp, const struct conf *c);

/* lock.c: the lock on dp->dir; `given`: the owner's descriptor, or 0. 0 owner, 1 somebody else is, or -errno. */
HG_WUR int dp_lock(struct dp *dp, int given, struct err *err);

#endif
