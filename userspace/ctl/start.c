/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The steps of start-up that have to do with the operating system: descriptor limits, the datapath,
 * going to the background, giving up root. Called in order by control.c, before any thread exists.
 */
#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/ctl_priv.h"
#include "ctl/handover.h"
#include "ctl/privs.h"
#include "lb/maglev.h"

/* --- descriptors --------------------------------------------------------------------------------- */

/* Besides two per connection: listeners, maps, event descriptors, checks, runtime API. */
#define RESERVED_FDS 256u

/* fd-hard-limit: where the system would let us have more than is good for the host. */
static void limit_descriptors(struct rlimit *rl, rlim_t max)
{
	struct rlimit wish = *rl;

	if (wish.rlim_max > max)
		wish.rlim_max = max;
	if (wish.rlim_cur > max)
		wish.rlim_cur = max;
	if (setrlimit(RLIMIT_NOFILE, &wish) == 0)
		*rl = wish;
	else
		log_msg(LOG_LVL_WARNING, "fd-hard-limit: cannot set the descriptor limit: %m");
}

int start_limits(struct ctl *ctl, const struct conf *conf, struct err *err)
{
	const struct conf_global *g = &conf->global;
	uint32_t maxconn = ctl->opts->maxconn ? ctl->opts->maxconn : g->maxconn;
	uint32_t reserved = RESERVED_FDS + conf->n_proxies * (ctl->n_workers + 1);
	struct rlimit rl;
	rlim_t want;

	if (getrlimit(RLIMIT_NOFILE, &rl) != 0)
		return err_set(err, -errno, "cannot read the descriptor limit: %m");
	if (g->fd_hard_limit && !g->ulimit_n && !maxconn)
		limit_descriptors(&rl, g->fd_hard_limit);
	want = g->ulimit_n ? g->ulimit_n : maxconn ? maxconn * 2ull + reserved : rl.rlim_max;
	if (want > (1u << 20))
		want = 1u << 20;
	if (want > rl.rlim_cur) {
		struct rlimit wish = { .rlim_cur = want,
				       .rlim_max = want > rl.rlim_max ? want : rl.rlim_max };

		if (setrlimit(RLIMIT_NOFILE, &wish) != 0) {
			wish.rlim_cur = rl.rlim_max;
			wish.rlim_max = rl.rlim_max;
			if (setrlimit(RLIMIT_NOFILE, &wish) == 0)
				rl = wish;
			if (maxconn && rl.rlim_cur < maxconn * 2ull + reserved)
				log_msg(LOG_LVL_WARNING,
					"maxconn %u needs %llu descriptors, the limit is %llu; "
					"raise it (ulimit -n)",
					maxconn, maxconn * 2ull + reserved,
					(unsigned long long)rl.rlim_cur);
		} else {
			rl = wish;
		}
	}
	if (!maxconn)
		maxconn = rl.rlim_cur > reserved + 4 ? (uint32_t)((rl.rlim_cur - reserved) / 2) : 2;
	atomic_store(&ctl->shared.maxconn, maxconn);
	return 0;
}

/* --- taking over from an old process ---------------------------------------------------------------- */

/* A master has asked for the sockets itself; the datapath is the worker process's in any case. */
int start_take_over(struct ctl *ctl, struct err *err)
{
	if (!ctl->take_over || ctl->is_worker)
		return 0;
	return take_over_sockets(ctl->take_over, ctl->opts->take_over, ctl->n_workers,
				 &ctl->listen_sockets, err);
}

void start_end_take_over(struct ctl *ctl)
{
	struct list *l, *next;

	if (!ctl->take_over)
		return;
	list_for_each_safe(l, next, &ctl->listen_sockets)
		listen_drop_received(list_entry(l, struct listen_socket, link));
	take_over_close(ctl->take_over);
	ctl->take_over = NULL;
}

/* --- datapath -------------------------------------------------------------------------------------- */

static void start_notice(void *ctx, const char *text)
{
	log_msg(LOG_LVL_NOTICE, "%s", text);
}

static uint32_t count_l4_slots(const struct conf *conf)
{
	struct list *l, *b;
	uint64_t n = 0;

	list_for_each(l, &conf->proxies) {
		const struct conf_proxy *px = list_entry(l, struct conf_proxy, link);
		uint32_t slots = px->maglev_table_size ? px->maglev_table_size
						       : maglev_table_size(px->n_servers);

		/* Each address and port has a table of its own. */
		if (px->mode == CONF_MODE_L4)
			list_for_each(b, &px->binds)
				n += (slots + HG_SLOTS_PER_BLOCK - 1) & ~(HG_SLOTS_PER_BLOCK - 1u);
	}
	return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/* Every service of the section has a range up to the largest id. */
static void count_quic_ids(const struct conf_proxy *px, struct dp_opts *o)
{
	struct list *l;
	uint32_t n = 0;

	list_for_each(l, &px->servers) {
		const struct conf_server *cs = list_entry(l, struct conf_server, link);

		if (cs->has_quic_id && cs->quic_id >= n)
			n = cs->quic_id + 32u; /* rounded up to whole blocks */
	}
	list_for_each(l, &px->binds)
		o->n_quic_ids += n;
}

static void count_rows(const struct conf *conf, struct dp_opts *o)
{
	struct list *l, *b;

	list_for_each(l, &conf->proxies) {
		const struct conf_proxy *px = list_entry(l, struct conf_proxy, link);

		o->n_l7_services++;
		o->n_l7_backends += 1 + px->n_servers;
		list_for_each(b, &px->binds)
			o->n_services++;
		o->n_backends += px->n_servers;
		count_quic_ids(px, o);
		if (px->mode == CONF_MODE_L4 && px->learn_window / 1000000000 > o->learn_window_s)
			o->learn_window_s = (uint32_t)(px->learn_window / 1000000000);
		if (px->mode == CONF_MODE_L4 && px->forward == FORWARD_NAT && !px->is_disabled)
			o->n_nat = conf->global.xdp_nat_connections
					   ? conf->global.xdp_nat_connections
					   : HG_NAT_CONNS_DEFAULT;
	}
	o->n_flows = conf->global.xdp_flow_entries;
	o->n_deny = conf->global.n_xdp_deny;
	/* Room for what a reload may add before rows of the old configuration are given back. */
	o->n_l7_services = o->n_l7_services * 4 + 64;
	o->n_l7_backends = o->n_l7_backends * 4 + 256;
}

/* Statistics in plain memory: all works, only bpftool sees nothing. */
static int start_plain_memory(struct ctl *ctl, const struct dp_opts *o, struct err *err)
{
	void *services =
		mem_zalloc((size_t)o->n_l7_services * o->n_workers * sizeof(struct hg_l7_counters));
	void *backends =
		mem_zalloc((size_t)o->n_l7_backends * o->n_workers * sizeof(struct hg_l7_counters));

	ctl->worker_counters = mem_zalloc(o->n_workers * sizeof(*ctl->worker_counters));
	if (!services || !backends || !ctl->worker_counters) {
		mem_free(services);
		mem_free(backends);
		mem_free(ctl->worker_counters);
		return err_set(err, -ENOMEM, "out of memory for statistics");
	}
	ctl->has_plain_memory = true;
	stats_area_init(&ctl->services_area, services, o->n_l7_services, o->n_workers);
	stats_area_init(&ctl->backends_area, backends, o->n_l7_backends, o->n_workers);
	return 0;
}

/* Before anything is loaded: a name that is mistyped is told at once. */
static int check_interfaces(const struct conf *conf, struct err *err)
{
	struct list *l;

	list_for_each(l, &conf->global.xdp_interfaces) {
		const struct conf_xdp_interface *i = list_entry(l, struct conf_xdp_interface, link);

		if (if_nametoindex(i->name) == 0)
			return err_set(err, -ENODEV,
				       "%s:%u:%u: error: no interface '%s' on this host "
				       "('ip link' lists them)",
				       i->pos.file, i->pos.line, i->pos.column, i->name);
	}
	return 0;
}

int start_datapath(struct ctl *ctl, const struct conf *conf, struct err *err)
{
	bool is_needed = !list_is_empty(&conf->global.xdp_interfaces);
	struct dp_opts o = {
		.bpffs = ctl->bpffs,
		.role = HG_ROLE_EDGE,
		.hash_seed = (uint32_t)conf->global.xdp_hash_seed,
		.n_workers = ctl->n_workers,
		.n_slots = count_l4_slots(conf),
		.stats_only = !is_needed,
		.notice = start_notice,
		.ctx = ctl,
	};
	uint32_t n = 0;
	void *mem;
	int lock, rc = check_interfaces(conf, err);

	if (rc != 0)
		return rc;
	if (conf->global.xdp_bpffs) {
		ctl->bpffs = mem_strdup(str_from_cstr(conf->global.xdp_bpffs));
		if (!ctl->bpffs)
			return err_set(err, -ENOMEM, "out of memory");
		o.bpffs = ctl->bpffs;
	}
	count_rows(conf, &o);
	lock = ctl->take_over ? take_over_lock(ctl->take_over, err) : 0;
	if (lock < 0)
		return lock;
	o.lock_fd = lock;
	rc = dp_open(&o, &ctl->dp, err);
	if (lock)
		close(lock);
	if (rc != 0) {
		ctl->dp = NULL;
		if (is_needed)
			return rc;
		rc = steering_check(ctl, conf, err);
		if (rc != 0)
			return rc;
		if (ctl->opts->is_verbose)
			log_msg(LOG_LVL_NOTICE, "statistics are not in BPF maps: %s", err->text);
		return start_plain_memory(ctl, &o, err);
	}
	ctl->is_attached_here = !dp_is_adopted(ctl->dp);
	mem = dp_stats_memory(ctl->dp, DP_STATS_SERVICES, &n);
	stats_area_init(&ctl->services_area, mem, n, ctl->n_workers);
	mem = dp_stats_memory(ctl->dp, DP_STATS_BACKENDS, &n);
	stats_area_init(&ctl->backends_area, mem, n, ctl->n_workers);
	ctl->worker_counters = dp_stats_memory(ctl->dp, DP_STATS_WORKERS, &n);
	return steering_check(ctl, conf, err);
}

/* Servers of L4 services that the process before us took for dead stay so until a check passes. */
void start_adopted_states(struct ctl *ctl)
{
	struct list *p, *l;

	if (!ctl->dp)
		return;
	list_for_each(p, &ctl->current->conf->proxies) {
		const struct conf_proxy *px = list_entry(p, struct conf_proxy, link);

		if (px->mode != CONF_MODE_L4)
			continue;
		list_for_each(l, &px->servers) {
			const struct conf_server *cs = list_entry(l, struct conf_server, link);
			struct server *s =
				ctl->current->backends[px->index]->servers[cs->pos_in_backend];

			if (!cs->has_check || !dp_was_down(ctl->dp, &s->addr))
				continue;
			s->check.health = 0;
			server_set_op(&ctl->registry, s, SERVER_STOPPED);
		}
	}
}

static bool has_tunnelled_check(const struct conf *conf)
{
	struct list *p, *s;

	list_for_each(p, &conf->proxies)
		list_for_each(s, &list_entry(p, struct conf_proxy, link)->servers)
			if (list_entry(s, struct conf_server, link)->check_via_tunnel)
				return true;
	return false;
}

int start_attach(struct ctl *ctl, const struct conf *conf, struct err *err)
{
	struct list *l;
	int rc = ctl->dp ? dp_guard_configure(ctl->dp, conf, err) : 0;

	if (rc != 0)
		return rc;
	list_for_each(l, &conf->global.xdp_interfaces) {
		const struct conf_xdp_interface *i = list_entry(l, struct conf_xdp_interface, link);

		rc = dp_attach(ctl->dp, i->name, (enum dp_attach_mode)i->mode, i->is_exclusive,
			       err);
		if (rc != 0)
			return err_prefix(err, rc, "%s:%u:%u: error", i->pos.file, i->pos.line,
					  i->pos.column);
	}
	rc = ctl->dp ? dp_syn_configure(ctl->dp, conf, err) : 0;
	if (rc == 0 && ctl->dp)
		rc = dp_steer_configure(ctl->dp, conf, err);
	if (rc != 0)
		return rc;
	/* A host that cannot do it should say so now, not at the first check. */
	return ctl->dp && has_tunnelled_check(conf) ? dp_checks_open(ctl->dp, err) : 0;
}

/*
 * A failed start leaves the host as it was. A stop leaves attached programs in place: packets of L4 services
 * go on, and the next start adopts them (`headgate detach` takes them away).
 */
void stop_datapath(struct ctl *ctl, bool is_failed_start)
{
	struct dp_attachment found[64];
	bool has_ours = false;
	struct err err;
	int n;

	if (ctl->has_plain_memory) {
		mem_free(ctl->services_area.rows);
		mem_free(ctl->backends_area.rows);
		mem_free(ctl->worker_counters);
	}
	if (!ctl->dp)
		return;
	n = dp_attachments(ctl->bpffs, found, ARRAY_SIZE(found));
	for (int i = 0; i < n; i++)
		has_ours |= !found[i].is_foreign;
	dp_close(ctl->dp);
	ctl->dp = NULL;
	if (ctl->is_handed_over || ctl->taker)
		return; /* all of it is the new process's */
	if ((is_failed_start && ctl->is_attached_here) || !has_ours) {
		if (dp_detach(ctl->bpffs, NULL, &err) != 0 && has_ours)
			log_msg(LOG_LVL_ERR, "%s", err.text);
	} else if (!is_failed_start) {
		log_msg(LOG_LVL_NOTICE, "XDP programs stay attached and forward on; 'headgate "
					"detach' removes them");
	}
}

/* --- background, pid file, identity -------------------------------------------------------------- */

int start_write_pid(const char *path, struct err *err)
{
	FILE *f = fopen(path, "we");

	if (!f)
		return err_set(err, -errno, "cannot write the pid file %s: %m", path);
	fprintf(f, "%d\n", (int)getpid());
	if (fclose(f) != 0)
		return err_set(err, -errno, "cannot write the pid file %s: %m", path);
	return 0;
}

/* The parent stays until the child runs or has failed, so that its exit status means something. */
int start_fork(int *ret_ready_fd, struct err *err)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return err_set(err, -errno, "cannot make a pipe: %m");
	pid = fork();
	if (pid < 0) {
		close(fds[0]);
		close(fds[1]);
		return err_set(err, -errno, "cannot fork: %m");
	}
	if (pid > 0) {
		char ok = 0;

		close(fds[1]);
		while (read(fds[0], &ok, 1) < 0 && errno == EINTR)
			;
		_exit(ok == 'R' ? 0 : 1);
	}
	close(fds[0]);
	*ret_ready_fd = fds[1];
	setsid();
	return 0;
}

int start_background(struct ctl *ctl, const struct conf *conf, struct err *err)
{
	const char *pidfile = ctl->opts->pidfile ? ctl->opts->pidfile : conf->global.pidfile;

	if (ctl->is_worker)
		return 0;
	if ((ctl->opts->is_daemon || conf->global.is_daemon) && !ctl->opts->is_foreground) {
		int rc = start_fork(&ctl->ready_fd, err);

		if (rc != 0)
			return rc;
	}
	if (!pidfile)
		return 0;
	return start_write_pid(pidfile, err);
}

static bool names_namespaces(const struct conf *c)
{
	struct list *p, *l;

	list_for_each(p, &c->proxies)
		list_for_each(l, &list_entry(p, struct conf_proxy, link)->binds)
			if (list_entry(l, struct conf_bind, link)->sock.netns)
				return true;
	return c->n_namespaces;
}

static int start_drop_root(const struct conf *c, struct err *err)
{
	const struct conf_global *g = &c->global;
	int uid = g->uid > 0 ? g->uid : -1, gid = g->gid > 0 ? g->gid : -1;

	/*
	 * What control needs later: privileged ports at a reload, transparent addresses and XDP
	 * attachment, map updates. Workers are threads and share it; a hardened unit narrows it further.
	 */
	capng_clear(CAPNG_SELECT_BOTH);
	capng_updatev(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, CAP_NET_BIND_SERVICE,
		      CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON, -1);
	if (names_namespaces(c)) /* setns(2) */
		capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, CAP_SYS_ADMIN);
	if (uid >= 0 || gid >= 0) {
		int rc = capng_change_id(uid, gid, CAPNG_DROP_SUPP_GRP | CAPNG_CLEAR_BOUNDING);

		if (rc != 0)
			return err_set(err, -EPERM, "cannot become uid %d gid %d (error %d)", uid,
				       gid, rc);
	}
	return 0;
}

int start_identity(struct ctl *ctl, const struct conf *conf, struct err *err)
{
	const struct conf_global *g = &conf->global;

	if (g->chroot && (chroot(g->chroot) != 0 || chdir("/") != 0))
		return err_set(err, -errno, "cannot change root to %s: %m", g->chroot);
	if (geteuid() == 0 && (g->uid > 0 || g->gid > 0)) {
		int rc = start_drop_root(conf, err);

		if (rc != 0)
			return rc;
	}
	return privs_deny_calls(g->seccomp ? (enum conf_seccomp)g->seccomp : CONF_SECCOMP_KILL,
				err);
}

static void start_tell_old(const struct ctl_options *o)
{
	for (unsigned i = 0; i < o->n_old_pids; i++)
		if (kill(o->old_pids[i], o->terminate_old ? SIGTERM : SIGUSR1) != 0 &&
		    errno != ESRCH)
			log_msg(LOG_LVL_WARNING, "cannot signal process %d: %m", o->old_pids[i]);
}

void start_ready(struct ctl *ctl)
{
	if (ctl->take_over)
		take_over_done(ctl->take_over);
	/* Before the end of the take-over, which drops what was not kept. */
	listen_keep_received(&ctl->listen_sockets);
	if (ctl->take_over)
		start_end_take_over(ctl);
	start_tell_old(ctl->opts);
	if (ctl->ready_fd >= 0) {
		/* The parent has seen all messages it needs; from here on the terminal is not ours. */
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		if (write(ctl->ready_fd, "R", 1) != 1)
			log_msg(LOG_LVL_WARNING, "the starting process is gone");
		close(ctl->ready_fd);
		ctl->ready_fd = -1;
		if (null >= 0) {
			for (int i = 0; i <= 2; i++)
				(void)dup2(null, i);
			close(null);
		}
		log_set_stderr(false);
	}
	notify_ready(ctl);
}
