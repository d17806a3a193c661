/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Choosing a server. Runtime servers and backends live here, apart from their configuration: they
 * survive reloads by name, and hold what changes while traffic flows.
 *
 * Who writes: state, weights and tables: the control thread; connection counts: any worker, atomically;
 * idle lists, queues, counters: the worker that owns that part. No locks.
 */
#ifndef LB_LB_H
#define LB_LB_H

#include <headgate/counters.h>
#include <headgate/nat.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/err.h"
#include "base/list.h"
#include "base/mem.h"
#include "conf/conf.h"
#include "ev/loop.h"
#include "ev/mailbox.h"
#include "lb/waitlist.h"
#include "net/net.h"

#define LB_MAX_WORKERS 256

/* --- counters ---------------------------------------------------------------------------------- */

/*
 * Rows of hg_l7_counters, one per (id, worker). The memory is a mapped BPF array when the datapath
 * gave one, plain memory otherwise: whoever starts the process decides (stats_area_init()). Rows are handed out by
 * name and kept across reloads.
 */
struct stats_area {
	struct hg_l7_counters *rows;
	uint32_t n_ids, n_workers;
	uint32_t next_id;
	uint32_t n_free, scan; /* ids below next_id that were given back; where to look for one */
};
/* The rows of one service, backend or server; row of worker w: rows[w]. */
struct stats_row {
	struct hg_l7_counters *rows; /* n_workers of them, contiguous */
	uint32_t id;
};
void stats_area_init(struct stats_area *a, void *mem, uint32_t n_ids, uint32_t n_workers);
/* -ENOSPC when all ids are taken. Control thread. */
HG_WUR int stats_row_take(struct stats_area *a, enum hg_l7_kind kind, struct stats_row *ret_row);
/* Gives the rows back; another name may get them (zeroed). Control thread, when no worker counts there any more. */
void stats_row_put(struct stats_area *a, struct stats_row *r);
/*
 * What the owning worker counts with: a plain add for the processor, but one that other threads may
 * read at any time.
 */
#define STATS_ADD(ptr, n)                                                                \
	__atomic_store_n(ptr, __atomic_load_n(ptr, __ATOMIC_RELAXED) + (n), __ATOMIC_RELAXED)
#define STATS_MAX(ptr, n)                                                                \
	do {                                                                             \
		if (__atomic_load_n(ptr, __ATOMIC_RELAXED) < (n))                        \
			__atomic_store_n(ptr, (n), __ATOMIC_RELAXED);                    \
	} while (0)
/* Sum over workers (torn reads of single counters do not happen: aligned words). Any thread. */
void stats_row_sum(const struct stats_area *a, const struct stats_row *r, struct hg_l7_counters *ret_sum);

/*
 * A rate per second that workers can ask for at any moment: what came since control's last mark, and of
 * the second before it the part that a window of one second still covers (as HAProxy's counters do).
 * Two marks, so that a reader never sees half of a new one.
 */
struct rate_meter {
	struct {
		_Atomic uint64_t at_ns, count;
		_Atomic uint32_t per_s; /* in the second that ended here */
	} marks[2];
	_Atomic uint32_t cur;
};
void rate_meter_mark(struct rate_meter *m, uint64_t count, uint64_t now_ns); /* control */
uint64_t rate_meter_read(const struct rate_meter *m, uint64_t count, uint64_t now_ns);
/* One counter, by its offset in hg_l7_counters, over all workers. Any thread. */
uint64_t stats_row_count(const struct stats_row *r, unsigned n_workers, size_t offset);

/*
 * A limit of events per second that all workers share, as HAProxy's: of the second before, the part counts that
 * a window of one second still covers. Two workers that look at the same moment may exceed it by one.
 */
struct rate_gate {
	_Atomic uint32_t limit; /* 0: none, and nothing is counted */
	uint32_t applied; /* control: what the newest configuration said */
	_Atomic uint64_t word; /* private */
};
/* May one more happen? If not, *ret_wait_ns (may be NULL) is how long it takes until one may. Any thread. */
bool rate_gate_is_open(const struct rate_gate *g, uint64_t now_ns, uint64_t *ret_wait_ns);
void rate_gate_count(struct rate_gate *g, uint64_t now_ns); /* one has happened. Any thread */
/* A configuration says so; what the runtime API said stays until the line changes. Control. */
void rate_gate_apply(struct rate_gate *g, uint32_t limit);

/* --- how times are spread ------------------------------------------------------------------------ */

/* Upper bounds of the buckets, in microseconds; a last bucket has what is above. */
#define LB_TIME_BOUNDS(X)                                                                \
	X(100) X(250) X(500) X(1000) X(2500) X(5000) X(10000) X(25000) X(50000) X(100000) \
	X(250000) X(500000) X(1000000) X(2500000) X(5000000) X(10000000) X(30000000)
#define X(us) +1
enum { LB_TIME_BUCKETS = 1 LB_TIME_BOUNDS(X) };
#undef X
extern const uint32_t lb_time_bounds_us[LB_TIME_BUCKETS - 1];

enum lb_time { /* connect, response, total: of a backend; handshake: of a frontend */
	LB_TIME_CONNECT,
	LB_TIME_RESPONSE,
	LB_TIME_TOTAL,
	LB_TIME_HANDSHAKE,
	LB_TIMES,
};
struct lb_histogram {
	uint64_t n[LB_TIME_BUCKETS]; /* each by itself, not cumulative */
	uint64_t sum_us;
};
struct lb_backend;
void lb_time_add(struct lb_backend *be, unsigned worker, enum lb_time what, uint64_t ns); /* that worker */
void lb_time_sum(const struct lb_backend *be, unsigned n_workers, enum lb_time what,
		 struct lb_histogram *ret); /* any thread */
/* The time below which the part `q` (0 to 1) of all lies, in microseconds, as far as buckets tell; 0: there are none. */
uint64_t lb_time_quantile(const struct lb_histogram *h, double q);

/* --- servers ----------------------------------------------------------------------------------- */

/* Operational state, numbers as in `show servers state` srv_op_state. */
enum server_op { SERVER_STOPPED, SERVER_STARTING, SERVER_RUNNING, SERVER_STOPPING };

/* Administrative state, bits as in srv_admin_state. */
enum server_admin {
	SERVER_FORCED_MAINT = 0x01,
	SERVER_INHERITED_MAINT = 0x02,
	SERVER_CONFIG_MAINT = 0x04,
	SERVER_FORCED_DRAIN = 0x08,
	SERVER_INHERITED_DRAIN = 0x10,
	SERVER_RESOLUTION_MAINT = 0x20,
	SERVER_FQDN_BY_CLI = 0x40,
	SERVER_MAINT_MASK = 0x27,
	SERVER_DRAIN_MASK = 0x18,
};

/* Results of checks, numbers as in srv_check_status; texts and short codes in one table. */
#define CHECK_STATUSES(X)                                                                \
	X(UNKNOWN, 0, "UNK", "Unknown") X(INI, 1, "INI", "Initializing")                 \
	X(START, 2, "", "Check started") X(CHECKED, 3, "CHECKED", "No status change")    \
	X(HANA, 4, "HANA", "Health analyze") X(SOCKERR, 5, "SOCKERR", "Socket error")    \
	X(L4OK, 6, "L4OK", "Layer4 check passed") X(L4TOUT, 7, "L4TOUT", "Layer4 timeout") \
	X(L4CON, 8, "L4CON", "Layer4 connection problem") X(L6OK, 9, "L6OK", "Layer6 check passed") \
	X(L6TOUT, 10, "L6TOUT", "Layer6 timeout") X(L6RSP, 11, "L6RSP", "Layer6 invalid response") \
	X(L7TOUT, 12, "L7TOUT", "Layer7 timeout") X(L7RSP, 13, "L7RSP", "Layer7 invalid response") \
	X(L7OK, 15, "L7OK", "Layer7 check passed")                                       \
	X(L7OKC, 16, "L7OKC", "Layer7 check conditionally passed")                       \
	X(L7STS, 17, "L7STS", "Layer7 wrong status")
enum check_status {
#define X(name, number, code, text) CHECK_STATUS_##name = number,
	CHECK_STATUSES(X)
#undef X
};
const char *check_status_code(enum check_status s); /* "L4OK" */
const char *check_status_text(enum check_status s); /* "Layer4 check passed" */

struct lb_backend;
struct dns_user;
struct invalid_msg; /* proxy/proxy.h */

/* One waiting stream. Embedded in it; zeroed before first use. */
struct queue_entry {
	struct list link;
	struct wait_place place;
	struct lb_backend *be;
	struct server *srv; /* NULL: waits for any server of the backend */
	/* Set by the caller of lb_enqueue(): lower classes first, then who came first, by loop clock plus offset. */
	uint64_t since_ns;
	int32_t prio_offset; /* ms, within PRIO_OFFSET_MS_MAX */
	int16_t prio_class; /* within PRIO_CLASS_MAX */
	/*
	 * A slot came free and has been taken for this stream on `srv`; the entry is off the queue.
	 * Its worker's thread; never from inside lb_enqueue().
	 */
	void (*on_turn)(struct queue_entry *q, struct server *srv);
};

/* A worker's part of a server; nobody else touches it. */
struct server_worker {
	struct list idle; /* conn.link, most recently used first: those that any request may use */
	struct list idle_keyed; /* the same, of those with a pool_key */
	struct list shared; /* proxy's: connections that several streams use at once */
	struct waitlist queue;
	struct hg_live_server *live; /* where the slots of this worker are counted, too; NULL: nowhere */
	uint32_t n_slots; /* that this worker has taken */
	uint32_t n_idle, n_used;
	struct list streams; /* those on this server: shutdown sessions, on-marked-down */
	struct hg_l7_counters *ctr;
	uint32_t idle_generation; /* addr_generation the idle list belongs to */
	/* Proxy's: its line in the configuration, and of which snapshot (struct snapshot, generation). */
	const struct conf_server *conf;
	uint64_t conf_generation;
	uint32_t n_turns; /* slots handed on here, so that other workers' queues get their share */
	/* The message of server_wake_by_mail(); runs lb_serve_queue() on its worker. */
	struct mail wake_mail;
	_Atomic bool wake_pending;
	struct server *self; /* the server this is a part of */
	unsigned worker;
} __attribute__((aligned(HG_CACHE_LINE)));

/*
 * What a server has of its own that `add server` made; for the others a snapshot holds it. Made by control, read by
 * workers; goes with the server.
 */
struct server_own {
	struct conf *conf; /* of nothing but its line */
	struct conf_server *line;
	struct cert_store *certs; /* with files of its own; NULL: of those that run, which may change */
	struct tls_client *_Atomic tls; /* NULL: clear */
	void (*destroy)(struct server_own *own); /* when the server is freed. Control */
};
struct watch; /* ctl/health_priv.h */

struct server {
	/* --- set at creation or while no worker uses it: control ---------------------------------- */
	struct list link; /* registry */
	char *name, *backend_name;
	unsigned refs; /* snapshots that name it, control thread */
	uint32_t id; /* svid */
	struct stats_row stats;
	struct rate_meter sess_rate;
	struct lb_backend *be; /* of the newest snapshot */
	const struct conf_server *conf; /* of the newest snapshot (NULL: not in it); workers use their snapshot's */
	struct server *hash_next; /* registry, by name */
	struct server_own *own; /* NULL: it is in a file; never changes */
	struct watch *watch; /* control's, ctl/health.c; NULL: nobody looks after it */
	uint64_t removed_ns; /* added.c: when it was seen to be in no table any more; 0: it may be */
	bool is_named; /* found by its name */
	struct dns_user *dns; /* control's, ctl/dns.c: its address comes from names; NULL: it does not */
	uint64_t hash;
	bool is_new; /* between lb_registry_prepare() and commit or abort */
	struct server_applied { /* what the newest configuration said, to see what a reload changes */
		struct addr addr;
		uint32_t weight, maxconn;
		bool is_disabled, has_check;
	} applied;
	/* --- written by control, read by workers --------------------------------------------------- */
	_Alignas(HG_CACHE_LINE) _Atomic uint8_t op; /* enum server_op */
	_Atomic uint8_t admin; /* enum server_admin bits */
	_Atomic uint32_t weight; /* effective, after set weight and slowstart: 0..256*16 (16ths) */
	_Atomic uint32_t uweight, iweight; /* user's and initial, 0..256 */
	_Atomic uint32_t maxconn; /* effective; 0: none; change with server_set_maxconn() */
	_Atomic uint32_t minconn, maxqueue; /* newest configuration */
	_Atomic uint64_t dynamic_cookie; /* `cookie … dynamic`; 0: none */
	/* The row of `live_backends` for connections of both tiers, NULL: the kernel tier counts none; see server_share(). */
	struct hg_live_server *_Atomic live;
	uint32_t live_part; /* ours in that row */
	_Atomic bool is_elected; /* is in the published table: may serve the backend's queue */
	_Atomic bool is_removed; /* not in the newest configuration: no new idle connections */
	struct addr addr; /* changed only by server_set_addr(); workers read it with server_get_addr() */
	_Atomic uint32_t addr_words[7]; /* the same, for readers of other threads */
	_Atomic uint32_t addr_generation; /* even; odd while it changes. Idle connections of older ones are closed */
	_Atomic uint64_t addr_changed_ns; /* CLOCK_MONOTONIC: connections opened before are not kept */
	bool is_backup;
	/* --- written by workers -------------------------------------------------------------------- */
	_Alignas(HG_CACHE_LINE) _Atomic uint32_t cur; /* streams on it now, all workers; NAT counts by itself */
	_Atomic uint32_t max_cur;
	_Atomic uint32_t n_waiting; /* queue entries on all workers: qcur */
	_Atomic uint64_t waiting[LB_MAX_WORKERS / 64]; /* bit w: worker w has queue entries */
	_Atomic uint32_t observed_errors; /* observe layer4/7, consecutive; read by control */
	_Atomic uint64_t ewma_ns; /* peak-ewma */
	/* --- control only: health -------------------------------------------------------------------- */
	_Alignas(HG_CACHE_LINE) struct server_health {
		uint32_t health; /* 0 .. rise+fall-1: >= rise is up */
		uint8_t status; /* enum check_status */
		uint16_t code; /* HTTP status, errno */
		uint32_t duration_ms;
		char desc[80];
		bool is_enabled, is_running;
		uint64_t n_failed, n_down; /* chkfail, chkdown */
		uint64_t last_change_s; /* CLOCK_REALTIME */
		uint64_t down_since_s, downtime_s;
	} check, agent; /* of the agent: health is 0 or 1, times and n_down are unused */
	uint64_t slowstart_until_ns;
	/* --- per worker ------------------------------------------------------------------------------ */
	struct server_worker *w; /* [n_workers] */
};

static inline bool server_is_usable(const struct server *s)
{
	return atomic_load_explicit(&s->op, memory_order_relaxed) != SERVER_STOPPED &&
	       !(atomic_load_explicit(&s->admin, memory_order_relaxed) & SERVER_MAINT_MASK);
}
/* May it get new sessions by load balancing (not draining, weight above 0)? */
bool server_is_eligible(const struct server *s);
/* "UP", "DOWN 1/2", "MAINT", "DRAIN", "no check", … as in show stat. */
size_t server_status_text(const struct server *s, char *out, size_t size);
/* Its health before anything is known about it, and after maintenance: `init-state`. */
uint32_t server_first_health(const struct conf_server *cs);
/* Where to connect now, and the generation of that address. Any thread. */
uint32_t server_get_addr(const struct server *s, struct addr *ret_addr);

/* --- backends ---------------------------------------------------------------------------------- */

/*
 * What picking reads: rebuilt by control after every change of state or weight, published by pointer. A worker
 * uses it only within one call, so it is freed after every worker passed one loop iteration.
 */
struct lb_table;

struct lb_backend_worker {
	struct waitlist queue; /* streams waiting for any server */
	struct hg_l7_counters *ctr;
	struct lb_histogram times[LB_TIMES];
	uint64_t prng; /* xorshift64 state of this worker, not 0 */
} __attribute__((aligned(HG_CACHE_LINE)));

struct lb_backend {
	struct list link;
	struct lb_registry *registry;
	struct lb_backend *hash_next;
	uint64_t hash;
	bool is_new;
	bool is_stale; /* a rebuild of the table failed for lack of memory */
	bool is_dirty; /* wants a rebuild at lb_batch_end() */
	struct server **next_servers; /* prepared, not committed */
	unsigned n_next_servers;
	char *name;
	unsigned refs;
	const struct conf_proxy *conf; /* newest snapshot */
	struct stats_row stats, fe_stats; /* fe_stats: for sections with a frontend side */
	struct rate_meter sess_rate, fe_sess_rate, fe_req_rate;
	unsigned n_added; /* those of `add server`, also such that have gone and are not yet freed: each counts in refs */
	struct server **servers; /* by position, newest configuration; control only, workers: lb_server_of() */
	unsigned n_servers;
	_Atomic(struct lb_table *) table;
	_Atomic uint32_t rr; /* round-robin position, shared by all workers */
	_Atomic uint32_t cur; /* streams in the backend */
	bool is_fe_paused, is_fe_shut; /* control: `disable frontend`, `shutdown frontend` */
	bool is_cookie_dynamic; /* control: `cookie … dynamic` */
	char *cookie_key; /* control: in place of `dynamic-cookie-key`; NULL: none */
	uint32_t fe_applied_maxconn; /* control: what the newest configuration said */
	_Atomic uint32_t fe_maxconn; /* connections of the frontend side; 0: no limit of its own */
	struct rate_gate fe_sess_gate; /* rate-limit sessions */
	_Atomic uint32_t fe_cur; /* connections of the frontend side, all workers: its maxconn */
	_Atomic uint32_t n_active, n_backup_active;
	_Atomic uint32_t n_shared; /* control: servers that the kernel tier counts connections of, too */
	_Atomic uint32_t n_waiting; /* queue entries for any server, all workers */
	_Atomic uint64_t waiting[LB_MAX_WORKERS / 64];
	_Atomic uint32_t fullconn; /* newest configuration */
	_Atomic bool may_redispatch; /* option redispatch */
	struct invalid_msg *invalid[2]; /* proxy's: last invalid request, response; for mem_free() */
	_Atomic bool is_invalid_busy[2]; /* of each: a thread reads or writes it. The others give way */
	uint64_t last_change_s, downtime_s, down_since_s; /* control */
	uint32_t n_down_times;
	struct lb_backend_worker *w; /* [n_workers] */
};

/* The process's runtime objects by name. Control thread. */
struct lb_registry {
	struct list backends, servers;
	struct stats_area *services_area, *backends_area;
	unsigned n_workers;
	/* Calls `call` after every worker passed an iteration (control's duty; tests may call at once). */
	void (*after_quiescence)(struct lb_registry *r, void (*call)(void *arg), void *arg);
	void *owner;
	/* private */
	struct lb_waker *waker;
	struct server **server_buckets;
	struct lb_backend **backend_buckets;
	unsigned n_server_buckets, n_backend_buckets; /* powers of two */
	unsigned n_servers, n_backends;
	unsigned batch;
	struct list removed; /* servers whose last streams may still be there: lb_bury_removed() */
	struct list zombies; /* servers without references that a stale table still holds */
};
/* Once a second: marks for the meters of all backends and servers. Control. */
void lb_registry_tick(struct lb_registry *r, uint64_t now_ns);
/* What the meters say now. Any thread. */
enum lb_rate { LB_RATE_BE_SESSIONS, LB_RATE_FE_SESSIONS, LB_RATE_FE_REQUESTS };
uint64_t lb_backend_rate(const struct lb_backend *be, enum lb_rate which, uint64_t now_ns);
uint64_t server_session_rate(const struct server *s, unsigned n_workers, uint64_t now_ns);
void lb_registry_init(struct lb_registry *r, unsigned n_workers, struct stats_area *services,
		      struct stats_area *backends);
/* Frees what is left; no worker runs any more. */
void lb_registry_fini(struct lb_registry *r);
/* By name; NULL when there is none (or only a prepared one). Control. */
struct lb_backend *lb_find_backend(const struct lb_registry *r, struct str name);
struct server *lb_find_server(const struct lb_registry *r, struct str backend, struct str name);
/* The server of a line of the newest configuration, NULL: it was deleted. Control. */
struct server *lb_find_line(const struct lb_backend *be, const struct conf_server *cs);
/*
 * Runtime objects for every proxy of `c`: found by name or made; state of existing servers is kept.
 * *ret_backends[proxy->index]. Nothing visible changes until lb_registry_commit(). 0, -ENOMEM, -ENOSPC.
 * The array is in `arena`, with the names of what the snapshot holds behind it: keep both until
 * lb_registry_release(). -EEXIST: two sections or servers of one name.
 */
HG_WUR int lb_registry_prepare(struct lb_registry *r, const struct conf *c, struct arena *arena,
			       struct lb_backend ***ret_backends, struct err *err);
void lb_registry_commit(struct lb_registry *r, const struct conf *c, struct lb_backend **backends);
void lb_registry_abort(struct lb_registry *r, const struct conf *c, struct lb_backend **backends);
/* A snapshot died: drops its references, frees what nobody names. */
void lb_registry_release(struct lb_registry *r, struct lb_backend **backends, unsigned n);

/*
 * Control: state changes. They rebuild the table and wake queues where that makes sense, and keep the
 * times and counts that follow from the change: check.last_change_s, check.down_since_s, check.downtime_s,
 * check.n_down (going down by itself, not by maintenance), and the backend's.
 * Clearing SERVER_FORCED_MAINT clears SERVER_CONFIG_MAINT too: "enable server" after `disabled`.
 */
void server_set_op(struct lb_registry *r, struct server *s, enum server_op op);
void server_set_admin(struct lb_registry *r, struct server *s, unsigned set, unsigned clear);
HG_WUR int server_set_weight(struct lb_registry *r, struct server *s, uint32_t uweight, struct err *err);
/* Slow start: the weight that counts, in 16ths, without changing the user's. */
void server_set_effective_weight(struct lb_registry *r, struct server *s, uint32_t weight);
void server_set_maxconn(struct lb_registry *r, struct server *s, uint32_t maxconn); /* 0: none */
/* Control, until a reload: are cookies of addresses made, and with which key. The servers' change at once. -ENOMEM: the key stays. */
void lb_set_dynamic_cookie(struct lb_backend *be, bool is_on);
HG_WUR int lb_set_cookie_key(struct lb_backend *be, struct str key);
void server_set_addr(struct lb_registry *r, struct server *s, const struct addr *a);
HG_WUR int lb_rebuild(struct lb_registry *r, struct lb_backend *be); /* -ENOMEM: the old table stays */
/* Many changes, one rebuild per backend: between begin and end tables are only marked. May nest. */
void lb_batch_begin(struct lb_registry *r);
void lb_batch_end(struct lb_registry *r);
/* Tries again where memory was short; returns how many tables are still stale. */
unsigned lb_rebuild_stale(struct lb_registry *r);

/*
 * A server that no file has, at the end of its backend: in maintenance, checks off. Takes `own` when it returns 0. The
 * backend is in the newest configuration and has no server of that name. -ENOMEM, -ENOSPC: no row for its counters.
 */
HG_WUR int lb_add_server(struct lb_registry *r, struct lb_backend *be, struct server_own *own,
			 struct server **ret_srv, struct err *err);
/*
 * A server goes, whatever made it, until a reload: no name, no place in its backend, nothing new for it. Memory
 * stays for streams that know it. -ENOMEM: nothing has changed.
 */
HG_WUR int lb_remove_server(struct lb_registry *r, struct server *s);
/*
 * Now and then: frees those of `add server` that have gone and that no stream can know. Clocks of CLOCK_MONOTONIC;
 * all streams that are alive began at `since_ns` or later.
 */
void lb_bury_removed(struct lb_registry *r, uint64_t now_ns, uint64_t since_ns);

/* --- picking (workers) -------------------------------------------------------------------------- */

struct lb_request {
	unsigned worker;
	const struct conf_proxy *px; /* of the stream's snapshot */
	const struct addr *src;
	struct str uri, hdr; /* key material, as the algorithm wants it (path+query, header value) */
	uint64_t hash; /* when has_hash: already computed key (balance hash, url_param) */
	bool has_hash;
	struct server *avoid; /* redispatch: not this one, if there is another */
	struct server *force; /* cookie, use-server, stick: this one if usable */
	bool may_be_down; /* option persist, force-persist: `force` in any case */
};

enum lb_result {
	LB_PICKED, /* *ret_srv, one slot of it is taken: give back with server_release() */
	LB_QUEUE_SERVER, /* *ret_srv is full: wait for it (lb_enqueue) */
	LB_QUEUE_BACKEND, /* all are full: wait for any */
	LB_NONE, /* no server is usable: 503 */
};
/*
 * Counts `picked` where an algorithm chose. When the chosen server is full:
 *   roundrobin, static-rr, leastconn, first, random, peak-ewma   another one; all full: LB_QUEUE_BACKEND
 *   source, uri, url_param, hdr, hash, maglev, and `force`       LB_QUEUE_SERVER, as HAProxy: affinity counts more
 * A server whose queue holds `maxqueue` entries takes no more: with `force` and option redispatch the
 * algorithm chooses another, else LB_NONE. Nobody overtakes a queue that somebody already waits in.
 * `avoid` is taken all the same when nothing else is left.
 */
enum lb_result lb_pick(struct lb_backend *be, const struct lb_request *rq, struct server **ret_srv);
const char *lb_result_name(enum lb_result r);
/* The running server of a line of the stream's configuration, NULL when a reload removed it. Workers. */
struct server *lb_server_of(struct lb_backend *be, const struct conf_server *cs);
/*
 * Every server of the newest configuration, by position; NULL behind the last one. lb_added_server(): of those that
 * `add server` has made, the one at *pos or the next; NULL: no more. For this call of the worker only.
 */
struct server *lb_server_at(struct lb_backend *be, unsigned pos);
struct server *lb_added_server(struct lb_backend *be, unsigned *pos);
/* Is it still one of the backend's? `s` may be gone: it is only compared. */
bool lb_has_server(struct lb_backend *be, const struct server *s);
/* peak-ewma: a response took that long. Any worker. */
void server_observe_latency(struct server *s, uint64_t ns);
/* Takes a slot if the limit allows. The worker that took it gives it back. */
bool server_try_take(struct server *s, uint32_t limit, unsigned worker);
/* Gives a slot back and passes it on to who waits: here first, else another worker is mailed. */
void server_release(struct lb_backend *be, struct server *s, unsigned worker);
/* Counts cur_queue, max_queue and queued of the server (srv given) and of the backend. */
void lb_enqueue(struct queue_entry *q, struct lb_backend *be, struct server *srv, unsigned worker);
void lb_dequeue(struct queue_entry *q, unsigned worker); /* harmless when not queued */
/* Effective connection limit now (minconn/maxconn/fullconn, slow start, that of both tiers); 0: none. `cs` NULL: newest configuration. */
uint32_t server_limit(const struct lb_backend *be, const struct server *s, const struct conf_server *cs);
/*
 * How a worker is woken for its queue. Called from any thread; must make lb_serve_queue(s, to_worker) run on
 * the woken worker, later (never inside the call), even when that is the calling worker itself. Must not fail:
 * server_wake_by_mail() does all of it without memory.
 */
struct lb_waker {
	void (*wake)(struct lb_waker *wk, unsigned to_worker, struct server *s);
	/*
	 * This worker has queued a stream for a server that XDP counts at, too: control is to call lb_poll_shared() now and then, until
	 * that says no. May be NULL.
	 */
	void (*tell)(struct lb_waker *wk, unsigned worker);
};
static inline void server_wake_by_mail(struct server *s, unsigned to_worker, struct mailbox *box)
{
	/* Already on its way: it has not read the server's state yet, so it will see what we did. */
	if (!atomic_exchange(&s->w[to_worker].wake_pending, true))
		mailbox_send(box, &s->w[to_worker].wake_mail);
}
void lb_set_waker(struct lb_registry *r, struct lb_waker *wk); /* before workers run */
/*
 * Connections of `s` are from now on counted in this row of `live_backends`, those that are open, too; `part` is the process's,
 * always the same. The row's limit counts beside the server's own. NULL: nowhere but here. The memory stays until
 * no worker runs. Control.
 */
void server_share(struct server *s, struct hg_live_server *row, uint32_t part);
/* Wakes who waits for shared servers that have a slot now; false: nobody waits for one. Control. */
bool lb_poll_shared(struct lb_registry *r);
/* Runs on the woken worker: serves its queue of `s` and of its backend as far as slots allow. */
void lb_serve_queue(struct server *s, unsigned worker);

/* Deterministic hashes of the language (hash-type), for tests and `balance hash` (lb_request.hash). */
uint32_t lb_hash_key(enum conf_hash_func f, bool avalanche, struct str key);
uint32_t lb_hash_avalanche(uint32_t h);
/* HAProxy's `balance source`: the 32-bit words of the address, XORed. AF_UNIX and AF_UNSPEC: 0. */
uint32_t lb_hash_addr(const struct addr *a);
/* The part of a URI (host name) that `balance uri` (`hdr … use_domain_only`) looks at. */
struct str lb_uri_key(const struct conf_balance_params *p, struct str uri);
struct str lb_domain_key(struct str host);

/* --- idle server connections (workers) ----------------------------------------------------------- */

/*
 * Puts an open, clean connection away; closes it instead when the pool is full or the server unusable.
 * pool-max-conn is shared out evenly between the workers. Counts idle_conns.
 */
void idle_put(struct server *s, const struct conf_server *cs, unsigned worker, struct conn *c);
/*
 * The most recently used one with this pool_key that is still usable, or NULL. A key other than 0 is a
 * well-mixed hash over the server, too.
 */
struct conn *idle_get(struct server *s, const struct conf_server *cs, unsigned worker, uint64_t key);
/* Takes one off the pool because it died (its event handler does that); the caller closes it then. */
void idle_forget(struct server *s, unsigned worker, struct conn *c);
/* Closes half (rounded up, oldest first, with and without key) of those idle for longer than `older_than_ns` (a duration), or all. */
void idle_purge(struct server *s, unsigned worker, uint64_t older_than_ns, bool all);

#endif
