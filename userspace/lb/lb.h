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
};
/* The rows of one service, backend or server; row of worker w: rows[w]. */
struct stats_row {
	struct hg_l7_counters *rows; /* n_workers of them, contiguous */
	uint32_t id;
};
void stats_area_init(struct stats_area *a, void *mem, uint32_t n_ids, uint32_t n_workers);
/* -ENOSPC when all ids are taken. Control thread. */
HG_WUR int stats_row_take(struct stats_area *a, enum hg_l7_kind kind, struct stats_row *ret_row);
/* Sum over workers (torn reads of single counters do not happen: aligned words). Any thread. */
void stats_row_sum(const struct stats_area *a, const struct stats_row *r, struct hg_l7_counters *ret_sum);

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

/* One waiting stream. Embedded in it. */
struct queue_entry {
	struct list link;
	struct lb_backend *be;
	struct server *srv; /* NULL: waits for any server of the backend */
	uint64_t since_ns; /* loop clock */
	/* A slot came free and has been taken for this stream on `srv`. Its worker's thread. */
	void (*on_turn)(struct queue_entry *q, struct server *srv);
};

/* A worker's part of a server; nobody else touches it. */
struct server_worker {
	struct list idle; /* conn.link, most recently used first */
	struct list queue; /* queue_entry */
	uint32_t n_idle, n_queue, n_used;
	struct list streams; /* those on this server: shutdown sessions, on-marked-down */
	struct hg_l7_counters *ctr;
} __attribute__((aligned(HG_CACHE_LINE)));

struct server {
	/* --- set at creation or while no worker uses it: control ---------------------------------- */
	struct list link; /* registry */
	char *name, *backend_name;
	unsigned refs; /* snapshots that name it, control thread */
	uint32_t id; /* svid */
	struct stats_row stats;
	struct lb_backend *be; /* of the newest snapshot */
	const struct conf_server *conf; /* of the newest snapshot; workers use their snapshot's */
	/* --- written by control, read by workers --------------------------------------------------- */
	_Alignas(HG_CACHE_LINE) _Atomic uint8_t op; /* enum server_op */
	_Atomic uint8_t admin; /* enum server_admin bits */
	_Atomic uint32_t weight; /* effective, after set weight and slowstart: 0..256*16 (16ths) */
	_Atomic uint32_t uweight, iweight; /* user's and initial, 0..256 */
	_Atomic uint32_t maxconn; /* effective; 0: none */
	struct addr addr; /* changed only together with addr_generation */
	_Atomic uint32_t addr_generation; /* bumped on change: idle connections of older ones are closed */
	bool is_backup;
	/* --- written by workers -------------------------------------------------------------------- */
	_Alignas(HG_CACHE_LINE) _Atomic uint32_t cur; /* streams on it now, all workers (and NAT, through `shared_cur`) */
	_Atomic uint32_t max_cur;
	_Atomic uint32_t n_waiting; /* queue entries on all workers */
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
	} check;
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

/* --- backends ---------------------------------------------------------------------------------- */

/*
 * What picking reads: rebuilt by control after every change of state or weight, published by pointer. A worker
 * uses it only within one call, so it is freed after every worker passed one loop iteration.
 */
struct lb_table;

struct lb_backend_worker {
	struct list queue; /* streams waiting for any server */
	uint32_t n_queue;
	struct hg_l7_counters *ctr;
} __attribute__((aligned(HG_CACHE_LINE)));

struct lb_backend {
	struct list link;
	char *name;
	unsigned refs;
	const struct conf_proxy *conf; /* newest snapshot */
	struct stats_row stats, fe_stats; /* fe_stats: for sections with a frontend side */
	struct server **servers; /* by position */
	unsigned n_servers;
	_Atomic(struct lb_table *) table;
	_Atomic uint32_t rr; /* round-robin position, shared by all workers */
	_Atomic uint32_t cur; /* streams in the backend */
	_Atomic uint32_t fe_cur; /* connections of the frontend side, all workers: its maxconn */
	_Atomic uint32_t n_active, n_backup_active;
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
};
void lb_registry_init(struct lb_registry *r, unsigned n_workers, struct stats_area *services,
		      struct stats_area *backends);
/*
 * Runtime objects for every proxy of `c`: found by name or made; state of existing servers is kept.
 * *ret_backends[proxy->index]. Nothing visible changes until lb_registry_commit(). 0, -ENOMEM, -ENOSPC.
 */
HG_WUR int lb_registry_prepare(struct lb_registry *r, const struct conf *c, struct arena *arena,
			       struct lb_backend ***ret_backends, struct err *err);
void lb_registry_commit(struct lb_registry *r, const struct conf *c, struct lb_backend **backends);
void lb_registry_abort(struct lb_registry *r, const struct conf *c, struct lb_backend **backends);
/* A snapshot died: drops its references, frees what nobody names. */
void lb_registry_release(struct lb_registry *r, struct lb_backend **backends, unsigned n);

/* Control: state changes. They rebuild the table and wake queues where that makes sense. */
void server_set_op(struct lb_registry *r, struct server *s, enum server_op op);
void server_set_admin(struct lb_registry *r, struct server *s, unsigned set, unsigned clear);
HG_WUR int server_set_weight(struct lb_registry *r, struct server *s, uint32_t uweight, struct err *err);
HG_WUR int lb_rebuild(struct lb_registry *r, struct lb_backend *be); /* -ENOMEM: the old table stays */

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
};

enum lb_result {
	LB_PICKED, /* *ret_srv, one slot of it is taken: give back with server_release() */
	LB_QUEUE_SERVER, /* *ret_srv is full: wait for it (lb_enqueue) */
	LB_QUEUE_BACKEND, /* all are full: wait for any */
	LB_NONE, /* no server is usable: 503 */
};
enum lb_result lb_pick(struct lb_backend *be, const struct lb_request *rq, struct server **ret_srv);
/* Takes a slot if the limit allows. */
bool server_try_take(struct server *s, uint32_t limit);
/* Gives a slot back and passes it on to who waits: here first, else another worker is mailed. */
void server_release(struct lb_backend *be, struct server *s, unsigned worker);
void lb_enqueue(struct queue_entry *q, struct lb_backend *be, struct server *srv, unsigned worker);
void lb_dequeue(struct queue_entry *q, unsigned worker); /* harmless when not queued */
/* Effective connection limit now (minconn/maxconn/fullconn); 0: none. */
uint32_t server_limit(const struct lb_backend *be, const struct server *s, const struct conf_server *cs);
/* How a worker is woken for its queue: set per worker by the proxy. */
struct lb_waker {
	void (*wake)(struct lb_waker *wk, unsigned to_worker, struct server *s);
};
void lb_set_waker(struct lb_registry *r, struct lb_waker *wk);
/* Runs on the woken worker: serves its queue of `s` and of its backend as far as slots allow. */
void lb_serve_queue(struct server *s, unsigned worker);

/* Deterministic hashes of the language (hash-type), for tests and `balance hash`. */
uint32_t lb_hash_key(enum conf_hash_func f, bool avalanche, struct str key);

/* --- idle server connections (workers) ----------------------------------------------------------- */

/* Puts an open, clean connection away; closes it instead when the pool is full or the server unusable. */
void idle_put(struct server *s, const struct conf_server *cs, unsigned worker, struct conn *c);
/* The most recently used one that is still usable, or NULL. */
struct conn *idle_get(struct server *s, const struct conf_server *cs, unsigned worker);
/* Takes one off the pool because it died (its event handler does that); then close it. */
void idle_forget(struct server *s, unsigned worker, struct conn *c);
/* Closes those idle longer than pool-purge-delay allows (half per call), or all. */
void idle_purge(struct server *s, unsigned worker, uint64_t older_than_ns, bool all);

#endif
