/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The L7 engine: workers, their listeners and their streams. This header is what the control thread
 * may use; streams and their phases are inside (stream.h).
 */
#ifndef PROXY_PROXY_H
#define PROXY_PROXY_H

#include <headgate/counters.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/err.h"
#include "conf/conf.h"
#include "ev/loop.h"
#include "ev/mailbox.h"
#include "ev/snapshot.h"
#include "lb/lb.h"
#include "lb/sources.h"
#include "net/net.h"

/* Run-time side of one `bind`. */
struct proxy_bind {
	const struct conf_bind *conf;
	struct listen_socket *socket;
	/* NULL: clear. Control replaces it when certificates change at run time. */
	struct tls_server *_Atomic tls;
	struct stats_row stats; /* option socket-stats; rows NULL otherwise */
};

/*
 * What workers pin: one configuration with everything built from it. Made and freed by control;
 * immutable in between.
 */
struct proxy_snapshot {
	struct snapshot snap; /* first */
	struct conf *conf;
	struct arena arena; /* of the members below */
	struct lb_backend **backends; /* by conf_proxy.index */
	struct proxy_bind *binds;
	unsigned n_binds;
	/* [proxy->index][server->pos_in_backend]; NULL: clear. Replaced like that of a bind. */
	struct tls_client *_Atomic **tls;
	struct cert_store *certs;
	int *netns; /* descriptors of conf->namespaces, in that order; -1: no server is there */
	unsigned n_netns; /* entries */
	void *owner; /* control's own */
	struct timer expiry; /* control's: hard-stop-after, once there is a newer one */
};

struct worker;
struct service_call;

/* What the process accepts per second: maxconnrate, maxsessrate, maxsslrate. */
enum proxy_rate { PROXY_RATE_CONNS, PROXY_RATE_SESSIONS, PROXY_RATE_TLS, PROXY_RATES };

/* State of the whole process that workers share: written reasons in docs/THREADS.md. */
struct proxy_shared {
	_Atomic uint32_t cur_conns; /* client connections, all workers: global maxconn */
	_Atomic uint32_t maxconn; /* 0: none; set maxconn global */
	_Atomic uint32_t cur_tls, max_tls; /* the same of TLS connections, those to servers, too: maxsslconn */
	_Atomic uint32_t n_paused; /* listeners waiting for a connection to end */
	struct rate_gate rates[PROXY_RATES];
	_Atomic uint64_t req_counter; /* %rt, taken in batches */
	_Atomic bool is_stopping; /* soft stop: no keep-alive */
	_Atomic uint32_t pattern_edits; /* changes of lists under way to control */
	_Atomic uint32_t bans; /* mails of xdp-drop under way to control */
	_Atomic uint64_t bans_lost; /* not sent: too many under way, or no memory */
	_Atomic bool is_wait_told; /* some stream waits for a server that XDP counts at, too, and control knows */
	_Atomic uint32_t n_removed; /* control: servers that are gone and not yet freed */
	_Atomic uint64_t n_invalid; /* messages that broke HTTP/1: ids of `show errors` */
	uint64_t start_wall_ns; /* of the process; set before the first worker starts */
	struct source_view sources; /* likewise: what the kernel tier knows of clients */
	_Atomic uint32_t comp_limit; /* KiB/s, 0: none; maxcomprate, set rate-limit http-compression */
	uint32_t comp_applied; /* control: what the newest configuration said of it */
	_Atomic uint64_t comp_rate; /* compress.c: bytes given to compression in this second */
	_Atomic uint64_t comp_in, comp_out; /* since the start: given to it, and what it gave; requests and responses */
	_Atomic uint64_t zlib_bytes; /* memory of all encoders */
	_Atomic uint64_t service_bytes; /* of bodies that control made and workers still send */
	/* Set by worker_start(); zero the struct before. How queues and paused listeners reach other workers. */
	struct lb_waker waker;
	_Atomic(struct worker *) workers[LB_MAX_WORKERS];
};

/* A rule changes a list of patterns: from a worker to control, which frees it and counts pattern_edits down. */
struct pattern_edit {
	struct mail mail;
	void *owner; /* worker_opts.owner */
	uint8_t kind; /* enum conf_pattern_kind */
	bool is_map;
	struct str file, key, value; /* in `text` */
	char text[];
};

/* xdp-drop, xdp-reset: from a worker to control, which frees it and counts `bans` down. */
struct ban {
	struct mail mail;
	void *owner; /* worker_opts.owner */
	struct conf_prefix prefix;
	uint64_t ttl_ns; /* 0: until it is lifted */
	bool is_told; /* xdp-reset */
};

struct worker_opts {
	unsigned index, n_workers;
	int cpu; /* -1: not pinned */
	struct snapshot_hub *hub;
	struct proxy_shared *shared;
	struct hg_worker_counters *counters; /* this worker's row */
	/* Mailbox of the control thread, for "done with generation" and answers. */
	struct mailbox *control;
	void (*on_snapshot_done)(struct snapshot *s); /* runs on control */
	/* A request for control (proxy/service.h); runs on control. NULL: such requests get 501. */
	void (*on_service)(struct service_call *c);
	void (*on_pattern)(struct mail *m); /* a struct pattern_edit; runs on control. NULL: such rules do nothing */
	void (*on_ban)(struct mail *m); /* a struct ban; runs on control. NULL: clients are only dropped */
	void (*on_observed)(struct worker *w); /* `observe`: some server's error limit is reached; runs on control. May be NULL */
	void (*on_waiting)(struct worker *w); /* proxy_shared.is_wait_told became true; runs on control. May be NULL */
	void *owner; /* control's own, see worker_owner() */
};

/* Starts the thread; it adopts the hub's current snapshot and listens. Control. 0 or -errno. */
HG_WUR int worker_start(const struct worker_opts *o, struct worker **ret_worker);
struct mailbox *worker_mailbox(struct worker *w);
unsigned worker_index(const struct worker *w);
void *worker_owner(const struct worker *w);
/*
 * No stream of this worker began before (CLOCK_MONOTONIC), as of the worker's last second in which
 * shared->n_removed was not 0; 0: there was none.
 */
uint64_t worker_oldest_stream(const struct worker *w);
const struct loop_stats *worker_loop_stats(const struct worker *w); /* racy reads, for display */
struct profile *worker_profile(const struct worker *w); /* see ev/profile.h for what any thread may do */

/* Control asks; each is a mail to the worker. */
void worker_news(struct worker *w); /* a snapshot was published: adopt it, move listeners over */
/* Soft stop: close listeners, answer with Connection: close, end idle ones. `on_drained` runs on control when no stream is left. */
void worker_drain(struct worker *w, void (*on_drained)(struct worker *w));
void worker_kill_all(struct worker *w); /* hard-stop-after: ends every stream (log code K) */
/* The same after a reload: streams, and heads that are not whole, of this generation and of older ones. */
void worker_kill_older(struct worker *w, uint64_t generation);
/*
 * Ends the thread (streams are cut). Control; blocks until joined. The memory is freed when the control mailbox
 * has been emptied (mailbox_close() does that), so stop all workers before closing it.
 */
void worker_stop(struct worker *w);

/* Streams on `s` are ended: "shutdown sessions", on-marked-down. `code`: first termination character ('K', 'D', 'U'). */
void worker_shutdown_server(struct worker *w, struct server *s, char code);
void worker_resume(struct worker *w); /* a limit of connections may have risen */
/* Frontend listeners of `px` (by name): paused, resumed. `disable|enable frontend`. */
void worker_pause_frontend(struct worker *w, struct str name, bool pause);

/* --- show errors -------------------------------------------------------------------------------- */

#define INVALID_BYTES 16384 /* kept of a message */
enum { INVALID_REQUEST, INVALID_RESPONSE }; /* index of lb_backend.invalid */

/* The last message of a section that broke HTTP/1. */
struct invalid_msg {
	bool is_in_body, has_other;
	uint8_t error; /* enum http_error */
	uint64_t id; /* of the event, counted over the process */
	uint64_t wall_ns;
	uint64_t offset; /* of bytes[0] in what this exchange received */
	uint64_t chunk_left, body_len; /* of a body: bytes announced */
	uint32_t stream_flags;
	uint32_t len, error_at, room; /* bytes; offset in them, at most len; size of the buffer they were in */
	struct addr src; /* the client */
	uint32_t other_id, server_id; /* iid of the section at the other end, svid; 0: none */
	char other[128], server[128];
	char bytes[INVALID_BYTES];
};
/* A copy of the last one, to be given to mem_free(); NULL: there was none. 0 or -ENOMEM. Control. */
HG_WUR int invalid_get(struct lb_backend *be, unsigned which, struct invalid_msg **ret_copy);

/* --- show sess ---------------------------------------------------------------------------------- */

/* One stream as people see it; strings are copied. */
struct stream_info {
	uint64_t id; /* address-like, unique while it lives */
	char proto[8], src[ADDR_TEXT_MAX], frontend[64], backend[64], server[64];
	char phase[24], doing[40];
	uint64_t age_ns, idle_ns, calls;
	uint64_t bytes_in, bytes_out;
	uint32_t expires_ms; /* next timer; 0: none */
	int front_fd, back_fd;
	char front_state[12], back_state[12];
	char method_and_target[96];
	unsigned worker;
};
/*
 * Collects from one worker: `done` runs on control with an array it must mem_free() (n may be 0; NULL
 * and n 0 when out of memory).
 */
HG_WUR int worker_list_streams(struct worker *w, void *ctx,
			       void (*done)(void *ctx, struct stream_info *infos, unsigned n));
/* Kills one stream by id; `done` runs on control, with whether this worker had it. 0 or -ENOMEM. */
HG_WUR int worker_kill_stream(struct worker *w, uint64_t id, void *ctx,
			      void (*done)(void *ctx, bool is_found));

#endif
