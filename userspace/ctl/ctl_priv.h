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
struct admin; /* admin.c */
struct metrics; /* metrics.c */
struct quiesce; /* quiesce.c */
struct web; /* web.c */

struct ctl {
	const struct ctl_options *opts;
	enum ctl_phase phase;
	int exit_status;
	struct loop *loop;
	struct mailbox mailbox;
	struct ev_fd signals; /* signalfd */
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
	struct hg_worker_counters *worker_counters; /* [n_workers] */
	struct list listen_sockets; /* listen_socket */

	bool has_plain_memory; /* statistics are ours, not the datapath's */
	struct dp *dp; /* NULL: no XDP interface and no privileges for the maps */
	struct ev_fd netlink;
	bool is_dp_sync_wanted;
	struct deferred dp_sync; /* coalesces state changes of one iteration into one dp_sync() */

	struct health *health;
	struct admin *admin;
	struct metrics *metrics;
	struct quiesce *quiesce;
	struct web *web;
	struct timer hard_stop;
	bool is_attached_here; /* we loaded and pinned: a failed start takes it away again */
	bool is_worker; /* child of a master: that has the pid file and the terminal */
	char *bpffs; /* of the configuration we started with; NULL: the usual place */
	int ready_fd; /* -D: tells the waiting parent that we run; -1 */
	uint64_t start_wall_ns, start_mono_ns;
	uint32_t boot_ms; /* from the start of the process to READY */
	char *startup_log; /* text of findings while loading, for `show startup-logs` */
};

/* master.c: takes `conf`; the exit status of the process. */
HG_WUR int master_run(const struct ctl_options *o, struct conf *conf, unsigned n_workers);
/* control.c: the worker process. `sockets`: listening already, taken over. `ready_fd`: gets an 'R', or -1. */
HG_WUR int ctl_run_worker(const struct ctl_options *o, struct list *sockets, int ready_fd);

/* snapshot.c: builds everything a configuration needs; on failure nothing is left. */
HG_WUR int ctl_build_snapshot(struct ctl *ctl, struct conf *conf, struct proxy_snapshot **ret_snap,
			      struct err *err);
/* Makes it current: commits the registry, publishes, tells workers, health, datapath. */
HG_WUR int ctl_publish(struct ctl *ctl, struct proxy_snapshot *snap, struct err *err);
/*
 * Closes the listening sockets that the current configuration has no more, even while a stream of an older
 * one goes on; while stopping: all. `ctl`: struct ctl. When no worker listens on them.
 */
void ctl_shut_listeners(void *ctl);
/* Certificates and keys of a configuration that is only checked; says each fault on stderr. */
HG_WUR int ctl_check_tls(struct conf *conf);
/* reload.c: the whole of SIGHUP / `reload`; a failure changes nothing. Findings go to `out`. */
HG_WUR int ctl_reload(struct ctl *ctl, FILE *out);
void ctl_apply_log_settings(struct ctl *ctl); /* tag, host, targets of the current configuration */
void ctl_soft_stop(struct ctl *ctl);
void ctl_hard_stop(struct ctl *ctl);
/* After any change of a server's state: table, queues, datapath (deferred), log lines. */
void ctl_server_changed(struct ctl *ctl, struct server *s);

/* quiesce.c: calls `call` on control after every worker passed a loop iteration. */
HG_WUR int quiesce_create(struct ctl *ctl, struct quiesce **ret_q);
void quiesce_destroy(struct quiesce *q); /* calls what is left: workers are gone */
void quiesce_after(struct lb_registry *r, void (*call)(void *arg),
		   void *arg); /* registry.after_quiescence */

/* start.c: the steps of start-up that have to do with the operating system. */
HG_WUR int start_limits(struct ctl *ctl, const struct conf *conf, struct err *err);
HG_WUR int start_datapath(struct ctl *ctl, const struct conf *conf, struct err *err);
HG_WUR int start_attach(struct ctl *ctl, const struct conf *conf, struct err *err);
HG_WUR int start_background(struct ctl *ctl, const struct conf *conf, struct err *err);
/* Splits off a child that goes on; the parent stays until 'R' comes over *ret_ready_fd, and ends. */
HG_WUR int start_fork(int *ret_ready_fd, struct err *err);
HG_WUR int start_write_pid(const char *path, struct err *err);
HG_WUR int start_identity(struct ctl *ctl, const struct conf *conf, struct err *err);
void start_ready(struct ctl *ctl); /* READY=1, and the parent of -D may go */
void stop_datapath(struct ctl *ctl, bool is_failed_start);

/* metrics.c: rates and maxima that need a clock, once a second. */
HG_WUR int metrics_create(struct ctl *ctl, struct metrics **ret_m);
void metrics_destroy(struct metrics *m);
void metrics_tick(struct metrics *m);

/* health.c */
HG_WUR int health_create(struct ctl *ctl, struct health **ret_health);
void health_destroy(struct health *h);
/* New configuration: checks of servers that stay go on where they were, others start or end. */
HG_WUR int health_configure(struct health *h, const struct proxy_snapshot *snap);
/* CLI: set server … health, enable/disable health. */
void health_set_enabled(struct health *h, struct server *s, bool on);
void health_force(struct health *h, struct server *s, bool up);
void health_force_stopping(struct health *h, struct server *s);
/* Maintenance began or ended by the CLI: log line, checks stop or start over. */
void health_admin_changed(struct health *h, struct server *s);
/* Once a second: slowstart, agents' ageing. */
void health_tick(struct health *h);

/* admin.c: runtime API. */
HG_WUR int admin_create(struct ctl *ctl, struct admin **ret_admin);
void admin_destroy(struct admin *a);
/* Opens and closes sockets so that they are those of `conf`. */
HG_WUR int admin_configure(struct admin *a, const struct conf *conf, struct err *err);

#endif
