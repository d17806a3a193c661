/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of ctl/ share: the state of the control thread. Nothing here is seen by workers. */
#ifndef CTL_CTL_PRIV_H
#define CTL_CTL_PRIV_H

#include <stdio.h>

#include "conf/conf.h"
#include "ctl/ctl.h"
#include "dp/dp.h"
#include "ev/loop.h"
#include "ev/mailbox.h"
#include "ev/snapshot.h"
#include "lb/lb.h"
#include "lb/stick.h"
#include "proxy/proxy.h"

enum ctl_phase {
	CTL_STARTING,
	CTL_RUNNING,
	CTL_STOPPING, /* soft stop: waiting for streams to end */
	CTL_STOPPED,
};

struct health; /* health.c */
struct dns; /* dns.c */
struct admin; /* admin.c */
struct metrics; /* metrics.c */
struct quiesce; /* quiesce.c */
struct web; /* web.c */
struct rings; /* rings.c */
struct server_states; /* server_state.c */
struct admin_client; /* admin_client.c */
struct take_over; /* take_over.c */
struct master; /* master.h */

struct ctl {
	const struct ctl_options *opts;
	enum ctl_phase phase;
	int exit_status;
	struct loop *loop;
	struct mailbox mailbox;
	struct ev_fd signals; /* signalfd */
	struct timer netlink_again; /* routes changed faster than they are asked for */
	struct timer tick; /* once a second: rates, slowstart, neighbours, idle pools */

	struct snapshot_hub hub;
	struct proxy_snapshot *current; /* also hub.current */
	struct lb_registry registry;
	struct stick_registry stick;
	struct lb_waker waker;
	struct stats_area services_area, backends_area;
	struct proxy_shared shared;
	struct worker **workers;
	unsigned n_workers, n_drained;
	int worker_cpu[LB_MAX_WORKERS]; /* that it is pinned to, -1: none; never changes */
	struct hg_worker_counters *worker_counters; /* [n_workers] */
	struct list listen_sockets; /* listen_socket */
	struct list bind_stats; /* bind_stats.c */

	bool has_plain_memory; /* statistics are ours, not the datapath's */
	struct take_over *take_over; /* -x: until we run; NULL: from nobody */
	const struct admin_client *taker; /* has the datapath's lock for now: hands off; NULL: nobody */
	bool is_handed_over; /* and for good */
	struct dp *dp; /* NULL: no XDP interface and no privileges for the maps */
	struct ev_fd netlink;
	bool is_dp_sync_wanted; /* the last one failed */
	bool is_nat_log_told; /* that there is no memory for it */
	struct timer dp_work; /* runs while dp_work() has more to do */
	struct timer share_poll; /* runs while streams wait for servers that XDP counts at, too */
	struct timer dp_probe; /* dp_probe(), as often as it wants */
	struct timer steering_again; /* sockets that an older array still has */
	uint64_t steering_wait_ns;
	uint64_t n_bans, n_bans_failed; /* by xdp-drop: new prefixes; those that found no room */
	uint64_t n_bad_patterns; /* of rules, refused: see show activity */
	struct deferred pattern_sync; /* coalesces changes of lists by rules */
	struct deferred dp_sync; /* coalesces state changes of one iteration into one dp_sync() */

	struct health *health;
	struct dns *dns;
	struct admin *admin;
	struct metrics *metrics;
	struct quiesce *quiesce;
	struct web *web;
	struct rings *rings;
	struct tls_change *tls_changes[TLS_FILE_KINDS]; /* of `set ssl cert` and its like; NULL: none */
	struct timer hard_stop, grace;
	bool is_trim_wanted; /* configurations came since memory was given back */
	bool is_attached_here; /* we loaded and pinned: a failed start takes it away again */
	struct master *master; /* we are one: no workers, and commands of its own; NULL: we are not */
	int inherited_link; /* the same, until the loop runs */
	struct ev_fd master_link; /* to our master; fd -1: none */
	bool is_worker; /* child of a master: that has the pid file and the terminal */
	char *bpffs; /* of the configuration we started with; NULL: the usual place */
	int notify_fd; /* service manager's socket, -1: none */
	int ready_fd; /* -D: tells the waiting parent that we run; -1 */
	uint64_t start_wall_ns, start_mono_ns;
	uint32_t boot_ms; /* from the start of the process to READY */
	struct server_states *server_states; /* of the start only */
	char *startup_log; /* text of findings while loading, for `show startup-logs` */
};

/* master.c: takes `conf`; the exit status of the process. */
HG_WUR int master_run(const struct ctl_options *o, struct conf *conf, unsigned n_workers);
/*
 * control.c: the worker process. `sockets`: listening already, taken over. `ready_fd`: gets an 'R', or -1. `link`: to
 * the master. `t`: what is being taken over, or NULL.
 */
HG_WUR int ctl_run_worker(const struct ctl_options *o, struct list *sockets, int ready_fd,
			  int link, struct take_over *t);

/* The kernel tables are ours to write, and not a new process's. */
static inline bool ctl_has_datapath(const struct ctl *ctl)
{
	return ctl->dp && !ctl->taker && !ctl->is_handed_over;
}

/* bind_stats.c: option socket-stats; pb->stats stays empty without it, and when there is no room */
void bind_stats_open(struct ctl *ctl, struct proxy_bind *pb);
void bind_stats_close(struct ctl *ctl, struct proxy_bind *pb);
/* snapshot.c: builds everything a configuration needs; on failure nothing is left. */
HG_WUR int ctl_build_snapshot(struct ctl *ctl, struct conf *conf, struct proxy_snapshot **ret_snap,
			      struct err *err);
/* Makes it current: commits the registry, publishes, tells workers, health, datapath. */
HG_WUR int ctl_publish(struct ctl *ctl, struct proxy_snapshot *snap, struct err *err);
/* Gives memory back to the system when there were reloads and one configuration is left. Once a second. */
void ctl_trim_memory(struct ctl *ctl);
/*
 * Closes the listening sockets that the current configuration has no more, even while a stream of an older
 * one goes on; while stopping: all. `ctl`: struct ctl. When no worker listens on them.
 */
void ctl_shut_listeners(void *ctl);
/* tls_swap.c: what was built from one file of the certificate store is built again and replaced; on failure all stays. */
HG_WUR int ctl_rebuild_tls(struct ctl *ctl, enum tls_used_kind kind, const char *path,
			   struct err *err);
void ctl_recount_certs(struct ctl *ctl); /* which files are in use */
void ctl_drop_tls_changes(struct ctl *ctl); /* cmd_ssl_file.c */
/* Certificates and keys of a configuration that is only checked; says each fault on stderr. */
HG_WUR int ctl_check_tls(struct conf *conf);
/* reload.c: the whole of SIGHUP / `reload`; a failure changes nothing. Findings go to `out`. */
HG_WUR int ctl_reload(struct ctl *ctl, FILE *out);
void ctl_apply_log_settings(struct ctl *ctl); /* tag, host, targets of the current configuration */
/* signals.c: blocks them in all threads to come, and acts on them. 0 or -errno with `err`. */
HG_WUR int ctl_watch_signals(struct ctl *ctl, struct err *err);
void ctl_soft_stop(struct ctl *ctl);
void ctl_hard_stop(struct ctl *ctl);
void ctl_init_stop(struct ctl *ctl); /* its timers */
/* After any change of a server's state: table, queues, datapath (deferred), log lines. */
void ctl_server_changed(struct ctl *ctl, struct server *s);

/* quiesce.c: calls `call` on control after every worker passed a loop iteration. */
HG_WUR int quiesce_create(struct ctl *ctl, struct quiesce **ret_q);
void quiesce_destroy(struct quiesce *q); /* calls what is left: workers are gone */
void quiesce_after(struct lb_registry *r, void (*call)(void *arg),
		   void *arg); /* registry.after_quiescence */

/* cmd_pattern.c: what was changed in a map or ACL becomes visible to workers. 0 or -ENOMEM. */
/* The same by rules of workers: applied at once, visible at the end of control's iteration. */
void ctl_edit_pattern(struct mail *m);
void ctl_sync_patterns(struct deferred *d);
/* share_poll.c: some stream waits for a server that XDP counts at, too; and every few milliseconds while one does. */
void ctl_on_waiting(struct worker *w);
void ctl_poll_shared(struct timer *t);
HG_WUR int ctl_publish_patterns(struct ctl *ctl, struct pat_ref *ref, struct err *err);

/* cmd_server.c: once a second, servers that have gone are freed when no stream can know them. */
void ctl_bury_servers(struct ctl *ctl);

/* ban.c: a rule's xdp-drop becomes a denied prefix, at once. */
void ctl_ban(struct mail *m);

/* start.c: the steps of start-up that have to do with the operating system. */
HG_WUR int start_limits(struct ctl *ctl, const struct conf *conf, struct err *err);
HG_WUR int start_datapath(struct ctl *ctl, const struct conf *conf, struct err *err);
void start_adopted_states(struct ctl *ctl);
HG_WUR int start_attach(struct ctl *ctl, const struct conf *conf, struct err *err);
HG_WUR int start_background(struct ctl *ctl, const struct conf *conf, struct err *err);
/* Splits off a child that goes on; the parent stays until 'R' comes over *ret_ready_fd, and ends. */
HG_WUR int start_fork(int *ret_ready_fd, struct err *err);
HG_WUR int start_write_pid(const char *path, struct err *err);
HG_WUR int start_identity(struct ctl *ctl, const struct conf *conf, struct err *err);
void start_ready(struct ctl *ctl); /* READY=1, and the parent of -D may go */
/* -x: the listeners of the old process; they are given back or become ours at the end. */
HG_WUR int start_take_over(struct ctl *ctl, struct err *err);
void start_end_take_over(struct ctl *ctl);
void stop_datapath(struct ctl *ctl, bool is_failed_start);

/* steering.c: workers and their CPUs, and which worker gets a new connection (`sk-steer`). */
unsigned steering_count_workers(const struct conf_global *g);
void steering_place_workers(struct ctl *ctl, const struct conf_global *g); /* fills worker_cpu */
/* Can it be done here? Before anything changes; for a start after dp_open(), whose message `err` is when that failed. */
HG_WUR int steering_check(struct ctl *ctl, const struct conf *conf, struct err *err);
/* Brings all listening sockets to what the current configuration says. When this process runs: see steering.c. */
HG_WUR int steering_apply(struct ctl *ctl, struct err *err);
void steering_again(struct timer *t);
/* Addresses that connections can be steered at, and how many of them are. */
void steering_count(const struct ctl *ctl, unsigned *ret_n, unsigned *ret_steered);

/* notify.c: what the service manager wants to know; nothing when there is none. */
int notify_open(void); /* before chroot; -1: nobody asked */
void notify_send(const struct ctl *ctl, const char *fmt, ...) HG_PRINTF(2, 3);
void notify_ready(const struct ctl *ctl);
void notify_reloading(const struct ctl *ctl); /* notify_ready() ends it */
void notify_alive(const struct ctl *ctl); /* watchdog: once a second */

/* nat_log.c: NAT connections that began or ended, for sections with `nat log`; once a second. */
void nat_log_tick(struct ctl *ctl);

/* metrics.c: rates and maxima that need a clock, once a second. */
HG_WUR int metrics_create(struct ctl *ctl, struct metrics **ret_m);
void metrics_destroy(struct metrics *m);
void metrics_tick(struct metrics *m);

/* health.c */
HG_WUR int health_create(struct ctl *ctl, struct health **ret_health);
void health_destroy(struct health *h);
/* New configuration: checks of servers that stay go on where they were, others start or end. */
HG_WUR int health_configure(struct health *h, const struct proxy_snapshot *snap);
/*
 * A server that `add server` has made: its checks, which somebody has to enable. 0 or -ENOMEM. One that goes,
 * before it has no configuration any more.
 */
HG_WUR int health_add(struct health *h, struct server *s);
void health_remove(struct health *h, struct server *s);
/* CLI: set server … health, enable/disable health. */
void health_set_enabled(struct health *h, struct server *s, bool on);
void health_force(struct health *h, struct server *s, bool up);
void health_agent_set_enabled(struct health *h, struct server *s, bool on);
void health_agent_force(struct health *h, struct server *s, bool up);
void health_force_stopping(struct health *h, struct server *s);
/* Maintenance began or ended by the CLI: log line, checks stop or start over. */
void health_admin_changed(struct health *h, struct server *s);
/* Workers counted a server's errors up to its limit (`observe`): on-error. Acts on all such servers at once. */
void health_observe(struct health *h);
void health_on_observed(struct worker *w); /* the same, as workers say it */
/* Where checks, or the agent's questions, go: `a` NULL and port 0 leave that part as it is. -ENOENT: no such check. */
HG_WUR int health_set_place(struct health *h, struct server *s, bool is_agent, const struct addr *a,
			    uint16_t port);
/* Family 0 and port 0: the server's own. */
struct check_place {
	struct addr addr;
	uint16_t port;
};
struct check_place health_get_place(const struct health *h, const struct server *s, bool is_agent);
HG_WUR int health_set_agent_text(struct health *h, struct server *s, struct str text); /* 0, -ENOENT, -ENOMEM */
/* Once a second: slowstart. */
void health_tick(struct health *h);

/* admin.c: runtime API. */
HG_WUR int admin_create(struct ctl *ctl, struct admin **ret_admin);
void admin_destroy(struct admin *a);
/* Opens and closes sockets so that they are those of `conf`. */
HG_WUR int admin_configure(struct admin *a, const struct conf *conf, struct err *err);

#endif
