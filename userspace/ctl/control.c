/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control thread's life: start-up as a list of steps, the loop, signals, shutdown. A step that
 * fails stops the start; what the steps before it made is taken away again in reverse.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/ctl_priv.h"
#include "ctl/dns.h"
#include "ctl/findings.h"
#include "ctl/master.h"
#include "ctl/rings.h"
#include "ctl/server_state.h"
#include "ctl/version.h"
#include "ctl/web.h"

#define TICKET_KEY_NS (3600 * 1000000000ull) /* how long a session ticket key encrypts */

/* --- the second hand ------------------------------------------------------------------------------- */

/* A ticket that was given just before stays good for as long as sessions are kept. */
static void control_rotate_tickets(struct ctl *ctl)
{
	uint64_t life = ctl->current->conf->global.ssl_lifetime;
	void *old;
	int rc = cert_store_rotate_tickets(ctl->current->certs, loop_now(ctl->loop),
					   life > TICKET_KEY_NS ? life : TICKET_KEY_NS, &old);

	if (rc)
		log_msg(LOG_LVL_WARNING, "cannot make a new session ticket key: %s", strerror(-rc));
	if (old)
		quiesce_after(&ctl->registry, ticket_keys_free, old);
}

/* Slices of well below a millisecond, so that checks and runtime API go on between them. */
#define DP_WORK_PAUSE_NS 4000000ull

static void control_dp_work(struct timer *t)
{
	struct ctl *ctl = container_of(t, struct ctl, dp_work);

	if (!ctl_has_datapath(ctl))
		return;
	if (dp_work(ctl->dp))
		timer_start(ctl->loop, &ctl->dp_work, DP_WORK_PAUSE_NS);
	else if (dp_has_released(ctl->dp) && ctl->is_dp_sync_wanted)
		loop_defer(ctl->loop, &ctl->dp_sync);
}

static void control_tick(struct timer *t)
{
	struct ctl *ctl = container_of(t, struct ctl, tick);

	metrics_tick(ctl->metrics);
	stick_registry_tick(&ctl->stick, loop_now(ctl->loop) / 1000000);
	lb_registry_tick(&ctl->registry, loop_now(ctl->loop));
	health_tick(ctl->health);
	dns_tick(ctl->dns);
	lb_rebuild_stale(&ctl->registry);
	ctl_bury_servers(ctl);
	control_rotate_tickets(ctl);
	notify_alive(ctl);
	ctl_trim_memory(ctl);
	if (ctl_has_datapath(ctl)) {
		nat_log_tick(ctl);
		dp_tick(ctl->dp);
		if (!timer_is_running(&ctl->dp_work))
			control_dp_work(&ctl->dp_work);
	}
	timer_start(ctl->loop, &ctl->tick, 1000000000ull);
}

static void control_sync_datapath(struct deferred *d)
{
	struct ctl *ctl = container_of(d, struct ctl, dp_sync);
	struct err err;

	if (!ctl_has_datapath(ctl) || !ctl->current)
		return;
	ctl->is_dp_sync_wanted = dp_sync(ctl->dp, ctl->current->conf, ctl->current->backends,
					 &err) != 0;
	if (ctl->is_dp_sync_wanted)
		log_msg(LOG_LVL_ERR, "kernel tables: %s", err.text);
}

static void control_read_netlink(struct timer *t)
{
	struct ctl *ctl = container_of(t, struct ctl, netlink_again);
	uint64_t wait_ns = dp_netlink_read(ctl->dp);

	if (wait_ns)
		timer_start(ctl->loop, t, wait_ns);
}

static void control_on_netlink(struct ev_fd *ev, uint32_t events)
{
	control_read_netlink(&container_of(ev, struct ctl, netlink)->netlink_again);
}

static void control_probe(struct timer *t)
{
	struct ctl *ctl = container_of(t, struct ctl, dp_probe);
	uint64_t wait_ns = ctl_has_datapath(ctl) ? dp_probe(ctl->dp) : 1000000000ull;

	timer_start(ctl->loop, t, wait_ns);
}

/* lb/ has rebuilt its table and woken who waits; the kernel tier follows. */
void ctl_server_changed(struct ctl *ctl, struct server *s)
{
	if (ctl->dp)
		loop_defer(ctl->loop, &ctl->dp_sync);
}

/* --- start-up ---------------------------------------------------------------------------------------- */

static void control_snapshot_done(struct snapshot *s)
{
	struct ctl *ctl = container_of(s, struct proxy_snapshot, snap)->owner;

	snapshot_retire_done(&ctl->hub, s);
}

static int start_workers(struct ctl *ctl, struct err *err)
{
	if (ctl->dp)
		dp_source_view(ctl->dp, &ctl->shared.sources);
	ctl->workers = mem_zalloc(ctl->n_workers * sizeof(*ctl->workers));
	if (!ctl->workers)
		return err_set(err, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < ctl->n_workers; i++) {
		struct worker_opts o = {
			.index = i,
			.n_workers = ctl->n_workers,
			.cpu = ctl->worker_cpu[i],
			.hub = &ctl->hub,
			.shared = &ctl->shared,
			.counters = &ctl->worker_counters[i],
			.control = &ctl->mailbox,
			.on_snapshot_done = control_snapshot_done,
			.on_service = web_ask,
			.on_pattern = ctl_edit_pattern,
			.on_ban = ctl_ban,
			.on_observed = health_on_observed,
			.on_waiting = ctl_on_waiting,
			.owner = ctl,
		};
		int rc = worker_start(&o, &ctl->workers[i]);

		if (rc != 0)
			return err_set(err, rc, "cannot start worker %u: %s", i, strerror(-rc));
	}
	return 0;
}

static int start_loop(struct ctl *ctl, struct err *err)
{
	int rc = loop_create(&ctl->loop);

	if (rc == 0)
		rc = mailbox_open(&ctl->mailbox, ctl->loop);
	if (rc != 0)
		return err_set(err, rc, "cannot make the event loop: %s", strerror(-rc));
	return ctl_watch_signals(ctl, err);
}

static int start_services(struct ctl *ctl, struct err *err)
{
	int rc = metrics_create(ctl, &ctl->metrics);

	if (rc == 0)
		rc = health_create(ctl, &ctl->health);
	if (rc == 0)
		rc = health_configure(ctl->health, ctl->current);
	if (rc != 0)
		return err_set(err, rc, "cannot start the health checks: %s", strerror(-rc));
	rc = dns_create(ctl, &ctl->dns);
	if (rc != 0)
		return err_set(err, rc, "cannot start name resolution: %s", strerror(-rc));
	rc = dns_configure(ctl->dns, ctl->current, err);
	if (rc != 0)
		return rc;
	if (ctl->dp && dp_has_kernel_tier(ctl->dp)) {
		ctl->netlink.on_event = control_on_netlink;
		rc = loop_add_fd(ctl->loop, &ctl->netlink, dp_netlink_fd(ctl->dp), LOOP_LEVEL);
		if (rc != 0)
			return err_set(err, rc, "cannot watch neighbours: %s", strerror(-rc));
		loop_defer(ctl->loop, &ctl->dp_sync);
		control_probe(&ctl->dp_probe);
	}
	timer_start(ctl->loop, &ctl->tick, 1000000000ull);
	return 0;
}

static int start_snapshot(struct ctl *ctl, struct conf *conf, struct err *err)
{
	struct proxy_snapshot *snap;
	int rc;

	lb_registry_init(&ctl->registry, ctl->n_workers, &ctl->services_area, &ctl->backends_area);
	ctl->registry.after_quiescence = quiesce_after;
	ctl->registry.owner = ctl;
	snapshot_hub_init(&ctl->hub, ctl->n_workers);
	rc = quiesce_create(ctl, &ctl->quiesce);
	if (rc != 0) {
		conf_free(conf);
		return err_set(err, rc, "out of memory");
	}
	rc = ctl_build_snapshot(ctl, conf, &snap, err);
	return rc != 0 ? rc : ctl_publish(ctl, snap, err);
}

static void control_log_identity(struct ctl *ctl, const struct conf_global *g)
{
	char host[256] = "";

	/* log-send-hostname without a name: the system's. */
	if (g->log_send_hostname && !*g->log_send_hostname &&
	    gethostname(host, sizeof(host) - 1) != 0)
		host[0] = '\0';
	log_set_identity(str_from_cstr(g->log_tag ? g->log_tag : "headgated"), (int)getpid(),
			 str_from_cstr(*host ? host : g->log_send_hostname));
	if (log_set_global_targets(g->logs.targets, g->logs.n) != 0)
		log_msg(LOG_LVL_ERR, "out of memory: log targets stay as they were");
}

void ctl_apply_log_settings(struct ctl *ctl)
{
	int rc = rings_configure(ctl->rings, ctl->current->conf);

	if (rc != 0)
		log_msg(LOG_LVL_ERR, "rings of the log stay as they were: %s", strerror(-rc));
	control_log_identity(ctl, &ctl->current->conf->global);
}

static void drop_server_states(struct ctl *ctl)
{
	server_states_free(ctl->server_states);
	ctl->server_states = NULL;
}

/*
 * The order matters: what can fail because of the configuration comes before anything is visible
 * from outside; threads come after the last fork.
 */
static int control_start(struct ctl *ctl, struct conf *conf, struct err *err)
{
	int rc;

	ctl->n_workers = steering_count_workers(&conf->global);
	steering_place_workers(ctl, &conf->global);
	listen_share_with_others(ctl->opts->n_old_pids > 0 || ctl->take_over);
	net_tls_global_init();
	rc = start_limits(ctl, conf, err);
	if (rc == 0)
		rc = start_take_over(ctl, err);
	if (rc == 0)
		rc = start_datapath(ctl, conf, err);
	if (rc != 0) {
		conf_free(conf);
		return rc;
	}
	rc = start_snapshot(ctl, conf, err); /* takes conf */
	if (rc != 0)
		return rc;
	start_adopted_states(ctl);
	if (ctl->server_states)
		server_states_apply(ctl->server_states, &ctl->registry, ctl->current);
	drop_server_states(ctl);
	/* Tables before the program that reads them: the first packet finds its service. */
	if (ctl->dp && (rc = dp_sync(ctl->dp, conf, ctl->current->backends, err)) != 0)
		return rc;
	if ((rc = start_attach(ctl, conf, err)) != 0 ||
	    (rc = start_background(ctl, conf, err)) != 0 || (rc = start_loop(ctl, err)) != 0)
		return rc;
	if ((rc = admin_create(ctl, &ctl->admin)) != 0 || (rc = web_create(ctl, &ctl->web)) != 0)
		return err_set(err, rc, "cannot make the runtime API: %s", strerror(-rc));
	if (ctl->inherited_link >= 0 && (rc = worker_link_open(ctl, ctl->inherited_link)) != 0)
		return err_set(err, rc, "cannot listen to the master: %s", strerror(-rc));
	if ((rc = admin_configure(ctl->admin, conf, err)) != 0 ||
	    (rc = start_identity(ctl, conf, err)) != 0)
		return rc;
	control_log_identity(ctl, &conf->global);
	if ((rc = rings_create(ctl, &ctl->rings)) != 0 ||
	    (rc = rings_configure(ctl->rings, conf)) != 0)
		return err_set(err, rc, "cannot make the rings of the log: %s", strerror(-rc));
	if ((rc = log_thread_enter()) != 0 || (rc = log_writer_start()) != 0)
		return err_set(err, rc, "cannot start the log writer: %s", strerror(-rc));
	if ((rc = start_workers(ctl, err)) != 0)
		return rc;
	return start_services(ctl, err);
}

static void control_free_snapshots(struct ctl *ctl)
{
	struct snapshot *alive[SNAPSHOT_GENERATIONS];
	unsigned n = snapshot_list(&ctl->hub, alive);

	for (unsigned i = 0; i < n; i++)
		alive[i]->destroy(alive[i]);
	ctl->current = NULL;
}

/* In reverse order of the start; copes with a start that got only part of the way. */
static void control_shutdown(struct ctl *ctl, bool is_failed_start)
{
	if (ctl->loop) {
		timer_stop(ctl->loop, &ctl->tick);
		timer_stop(ctl->loop, &ctl->netlink_again);
		timer_stop(ctl->loop, &ctl->hard_stop);
		timer_stop(ctl->loop, &ctl->grace);
		timer_stop(ctl->loop, &ctl->dp_work);
		timer_stop(ctl->loop, &ctl->dp_probe);
		timer_stop(ctl->loop, &ctl->steering_again);
		loop_undefer(&ctl->dp_sync);
	}
	ctl_drop_tls_changes(ctl);
	drop_server_states(ctl);
	dns_destroy(ctl->dns);
	health_destroy(ctl->health);
	web_stop(ctl->web);
	for (unsigned i = 0; ctl->workers && i < ctl->n_workers; i++)
		if (ctl->workers[i])
			worker_stop(ctl->workers[i]);
	mem_free(ctl->workers);
	ctl->workers = NULL;
	if (ctl->mailbox.loop)
		mailbox_close(&ctl->mailbox); /* delivers "done with generation" and answers */
	worker_link_close(ctl);
	admin_destroy(ctl->admin);
	rings_destroy(ctl->rings);
	web_destroy(ctl->web);
	metrics_destroy(ctl->metrics);
	if (ctl->hub.last_generation)
		control_free_snapshots(ctl);
	if (ctl->quiesce)
		lb_registry_fini(&ctl->registry);
	stick_registry_fini(&ctl->stick);
	quiesce_destroy(ctl->quiesce);
	if (ctl->loop) {
		timer_stop(ctl->loop, &ctl->share_poll); /* workers' last mails may have begun it */
		if (ctl->dp)
			loop_del_fd(ctl->loop, &ctl->netlink);
		if (ctl->signals.fd >= 0) {
			int fd = ctl->signals.fd;

			loop_del_fd(ctl->loop, &ctl->signals);
			close(fd);
		}
	}
	stop_datapath(ctl, is_failed_start);
	start_end_take_over(ctl);
	log_thread_leave();
	log_writer_stop();
	loop_destroy(ctl->loop);
	mem_free(ctl->startup_log);
	mem_free(ctl->bpffs);
}

/* Reads the configuration; what was found is kept for `show startup-logs`. */
static int control_load(struct ctl *ctl, struct conf **ret_conf)
{
	struct findings f = { .is_quiet = ctl->opts->is_quiet };
	size_t size = 0;
	char *text = NULL;
	FILE *out = open_memstream(&text, &size);
	int rc;

	if (!out)
		return -ENOMEM;
	f.out = out;
	rc = findings_load(ctl->opts, &f, ret_conf);
	fclose(out);
	fputs(text, stderr);
	ctl->server_states = f.states;
	if (rc != 0)
		drop_server_states(ctl);
	if (rc == 0)
		ctl->startup_log = mem_strdup(str_from_cstr(text));
	free(text); /* lint: libc memory, open_memstream's */
	return rc;
}

/* Everything from a loaded configuration to the end; the exit status. `ctl` is fresh. */
static int control_run(struct ctl *ctl, struct conf *conf)
{
	struct err err = { "" };
	int rc = control_start(ctl, conf, &err);

	if (rc != 0) {
		fprintf(stderr, "headgated: %s\n", err.text);
		control_shutdown(ctl, true);
		return 1;
	}
	ctl->phase = CTL_RUNNING;
	loop_update_clock(ctl->loop);
	ctl->start_mono_ns = loop_now(ctl->loop);
	ctl->boot_ms = (uint32_t)((loop_wall(ctl->loop) - ctl->start_wall_ns) / 1000000u);
	log_msg(LOG_LVL_NOTICE, "Headgate %s started: %u worker%s", HG_VERSION, ctl->n_workers,
		ctl->n_workers == 1 ? "" : "s");
	start_ready(ctl);
	worker_link_sockets(ctl);
	if (steering_apply(ctl, &err) != 0)
		log_msg(LOG_LVL_ERR, "%s", err.text);
	rc = loop_run(ctl->loop);
	if (rc != 0)
		log_msg(LOG_LVL_CRIT, "event loop of the control thread: %s", strerror(-rc));
	log_msg(LOG_LVL_NOTICE, "stopping");
	control_shutdown(ctl, false);
	return rc != 0;
}

static void control_init(struct ctl *ctl, const struct ctl_options *o)
{
	struct timespec began;

	net_tls_memory_init();
	*ctl = (struct ctl){ .opts = o,
			     .ready_fd = -1,
			     .notify_fd = notify_open(),
			     .signals.fd = -1,
			     .netlink.fd = -1,
			     .master_link.fd = -1,
			     .inherited_link = -1 };
	clock_gettime(CLOCK_REALTIME, &began);
	ctl->start_wall_ns = (uint64_t)began.tv_sec * 1000000000ull + (uint64_t)began.tv_nsec;
	ctl->shared.start_wall_ns = ctl->start_wall_ns;
	list_init(&ctl->listen_sockets);
	list_init(&ctl->bind_stats);
	stick_registry_init(&ctl->stick);
	timer_init(&ctl->tick, control_tick);
	timer_init(&ctl->netlink_again, control_read_netlink);
	ctl_init_stop(ctl);
	timer_init(&ctl->dp_work, control_dp_work);
	timer_init(&ctl->dp_probe, control_probe);
	timer_init(&ctl->share_poll, ctl_poll_shared);
	timer_init(&ctl->steering_again, steering_again);
	deferred_init(&ctl->dp_sync, control_sync_datapath);
	deferred_init(&ctl->pattern_sync, ctl_sync_patterns);
}

int ctl_run_worker(const struct ctl_options *o, struct list *sockets, int ready_fd, int link,
		   struct take_over *t)
{
	struct ctl ctl;
	struct list *l;
	struct conf *conf;

	control_init(&ctl, o);
	ctl.is_worker = true;
	ctl.ready_fd = ready_fd;
	ctl.take_over = t;
	ctl.inherited_link = link;
	/* Held until we run, as what another process gives; what we do not use then is the master's alone. */
	list_for_each(l, sockets)
		list_entry(l, struct listen_socket, link)->is_received = true;
	list_splice_back(&ctl.listen_sockets, sockets);
	if (control_load(&ctl, &conf) != 0)
		return 1;
	return control_run(&ctl, conf);
}

int ctl_run(const struct ctl_options *o)
{
	struct take_over from = { .fd = -1 };
	struct ctl ctl;
	struct conf *conf;

	control_init(&ctl, o);
	ctl.take_over = o->take_over ? &from : NULL;
	if (o->directory && chdir(o->directory) != 0) {
		fprintf(stderr, "headgated: cannot change to %s: %m\n", o->directory);
		return 1;
	}
	if (log_init() != 0 || control_load(&ctl, &conf) != 0)
		return 1;
	if (!conf->has_listener) {
		fprintf(stderr, "headgated: the configuration has no listener: nothing to do\n");
		conf_free(conf);
		return 2;
	}
	if (o->master_socket && !o->is_master && !conf->global.is_master_worker)
		fputs("headgated: warning: -S has an effect with -W only\n", stderr);
	if (o->is_master || (conf->global.is_master_worker && !o->is_foreground)) {
		mem_free(ctl.startup_log);
		drop_server_states(&ctl);
		return master_run(o, conf, steering_count_workers(&conf->global));
	}
	return control_run(&ctl, conf);
}

int ctl_check(const struct ctl_options *o)
{
	struct findings f = { .out = stderr, .is_quiet = o->is_quiet };
	struct conf *conf;
	bool has_listener;
	int rc;

	if (o->directory && chdir(o->directory) != 0) {
		fprintf(stderr, "headgated: cannot change to %s: %m\n", o->directory);
		return 1;
	}
	if (findings_load(o, &f, &conf) != 0)
		return 1;
	has_listener = conf->has_listener;
	server_states_free(f.states);
	rc = ctl_check_tls(conf);
	if (o->explain)
		conf_explain(conf, o->explain == CTL_EXPLAIN_JSON, stdout);
	conf_free(conf);
	if (rc != 0)
		return 1;
	if (!has_listener) {
		fprintf(stderr,
			"headgated: the configuration has no listener: nothing would be served\n");
		return 2;
	}
	if (o->is_verbose)
		printf("Configuration file is valid\n");
	(void)upgrade_asked();
	return 0;
}
