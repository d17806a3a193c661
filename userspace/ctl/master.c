/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Master-worker: the master opens the listening sockets, starts the worker process and keeps the
 * sockets, also those that a reload adds (master_link.c). When the worker crashes, connections wait in the backlog
 * until the next one has started. Signals that the master gets are passed on; a reload happens inside the worker.
 * The master has one thread, no BPF and no TLS: it has nothing to crash with.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/master.h"

#define RESTART_PAUSE_NS 1000000000ull /* after a worker that did not live as long */

static int master_open_sockets(struct master *m, const struct conf *conf, unsigned n_workers,
			       struct err *err)
{
	struct list *p, *b;

	list_for_each(p, &conf->proxies) {
		const struct conf_proxy *px = list_entry(p, struct conf_proxy, link);

		if (px->mode == CONF_MODE_L4 || px->is_disabled)
			continue;
		list_for_each(b, &px->binds) {
			const struct conf_bind *cb = list_entry(b, struct conf_bind, link);
			struct listen_socket *ls;
			int rc = listen_open(cb, n_workers, &m->sockets, &ls, err);

			if (rc != 0)
				return err_prefix(err, rc, "%s:%u:%u: error", cb->pos.file,
						  cb->pos.line, cb->pos.column);
			/* Our own use of it is never given back: the worker's snapshots come and go beside it. */
			if (ls->users == 1)
				list_push_back(&m->sockets, &ls->link);
		}
	}
	return 0;
}

/* --- what the worker says ---------------------------------------------------------------------------- */

static void incoming_drop_fds(struct master *m)
{
	for (unsigned i = 0; i < m->n_incoming_fds; i++)
		close(m->incoming_fds[i]);
	mem_free(m->incoming_fds);
	m->incoming_fds = NULL;
	m->n_incoming_fds = 0;
	m->incoming_line[0] = '\0';
}

static void incoming_drop(struct master *m)
{
	struct list *l, *next;

	incoming_drop_fds(m);
	listen_give_up_paths(&m->incoming);
	list_for_each_safe(l, next, &m->incoming)
		listen_close(list_entry(l, struct listen_socket, link));
}

/* The socket whose line and descriptors have come is whole. */
static void incoming_finish_one(struct master *m)
{
	struct str line = str_trim(str_from_cstr(m->incoming_line));
	struct listen_socket *ls;
	struct err err = { "" };

	if (!line.len)
		return;
	if (listen_receive(line, m->incoming_fds, m->n_incoming_fds, m->n_workers, &ls, &err) !=
	    0) {
		log_msg(LOG_LVL_ERR, "a listening socket of the worker: %s", err.text);
		return incoming_drop_fds(m);
	}
	ls->is_received = false; /* ours for good, as if we had opened it */
	list_push_back(&m->incoming, &ls->link);
	m->n_incoming_fds = 0; /* they are its now */
	incoming_drop_fds(m);
}

static void incoming_add_fds(struct master *m, const struct link_message *lm)
{
	int *fds = mem_realloc(m->incoming_fds, (m->n_incoming_fds + lm->n_fds + 1) * sizeof(*fds));

	for (unsigned i = 0; !fds && i < lm->n_fds; i++)
		close(lm->fds[i]);
	if (!fds)
		return;
	memcpy(fds + m->n_incoming_fds, lm->fds, lm->n_fds * sizeof(*fds));
	m->incoming_fds = fds;
	m->n_incoming_fds += lm->n_fds;
}

/* A Unix socket is the last one's to remove: who closes it while nobody listens there. */
static void remember_path(struct listen_socket *ls)
{
	struct stat st;

	if (ls->ep.kind != ENDPOINT_UNIX || lstat(ls->text, &st) != 0 || !S_ISSOCK(st.st_mode))
		return;
	ls->path_dev = st.st_dev;
	ls->path_ino = st.st_ino;
}

static bool has_path(const struct list *sockets, const struct listen_socket *ls)
{
	struct list *l;

	list_for_each(l, sockets)
		if (strcmp(list_entry(l, struct listen_socket, link)->text, ls->text) == 0)
			return true;
	return false;
}

static void incoming_commit(struct master *m)
{
	struct list *l, *next;

	incoming_finish_one(m);
	/* What the configuration has no more goes: nobody would take the connections. */
	list_for_each_safe(l, next, &m->sockets) {
		struct listen_socket *ls = list_entry(l, struct listen_socket, link);

		if (ls->path_ino && has_path(&m->incoming, ls))
			ls->path_ino = 0; /* it stays */
		listen_close(ls);
	}
	list_splice_back(&m->sockets, &m->incoming);
	list_for_each(l, &m->sockets)
		remember_path(list_entry(l, struct listen_socket, link));
	m->was_ever_ready = true;
	upgrade_done(m);
}

static void master_heard(struct master *m, const struct link_message *lm)
{
	switch (lm->text[0]) {
	case 'B':
		return incoming_drop(m);
	case 'L':
		incoming_finish_one(m);
		snprintf(m->incoming_line, sizeof(m->incoming_line), "%s", lm->text + 1);
		return incoming_add_fds(m, lm);
	case 'F':
		return incoming_add_fds(m, lm);
	case 'E':
		return incoming_commit(m);
	case 'R':
		m->n_reloads++;
		return;
	case 'X':
		m->n_reloads++;
		m->n_failed_reloads++;
		return;
	}
}

static void master_drop_link(struct master *m)
{
	int fd = m->link.fd;

	incoming_drop(m);
	if (fd < 0)
		return;
	loop_del_fd(m->ctl.loop, &m->link);
	close(fd);
	m->link.fd = -1;
}

static void master_on_link(struct ev_fd *ev, uint32_t events)
{
	struct master *m = container_of(ev, struct master, link);
	struct link_message lm;
	int rc;

	while ((rc = link_receive(ev->fd, &lm)) > 0)
		master_heard(m, &lm);
	if (rc < 0)
		master_drop_link(m);
}

/* --- the worker process ------------------------------------------------------------------------------ */

/* In the child: everything of the master but the sockets is left behind. Does not return. */
static void master_become_worker(struct master *m, int link)
{
	struct ctl_options o = *m->o;
	sigset_t none;

	/* Whom this start replaces has been told by the first one: the numbers may be others' by now. */
	if (m->was_ever_ready)
		o.n_old_pids = 0;
	prctl(PR_SET_PDEATHSIG, SIGTERM); /* a master that was killed leaves no worker behind */
	/* The loop's epoll instance is the master's, too: closed, never changed. */
	master_leave_api(m);
	loop_destroy(m->ctl.loop);
	close(m->signals.fd);
	if (m->upgrade.link >= 0)
		close(m->upgrade.link);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	exit(ctl_run_worker(&o, &m->sockets, m->ready_fd, link, m->from.fd >= 0 ? &m->from : NULL));
}

int master_watch_link(struct master *m, int fd)
{
	int rc;

	m->link.on_event = master_on_link;
	rc = loop_add_fd(m->ctl.loop, &m->link, fd, LOOP_LEVEL);
	if (rc != 0)
		close(fd);
	return rc;
}

static int master_start_worker(struct master *m)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
		log_msg(LOG_LVL_CRIT, "cannot start a worker process: %m");
		return -errno;
	}
	master_drop_link(m);
	pid = fork();
	if (pid < 0) {
		log_msg(LOG_LVL_CRIT, "cannot start a worker process: %m");
		close(pair[0]);
		close(pair[1]);
		return -errno;
	}
	if (pid == 0) {
		close(pair[0]);
		master_become_worker(m, pair[1]);
	}
	close(pair[1]);
	m->worker = pid;
	m->n_starts++;
	take_over_close(&m->from); /* the worker goes on with it */
	loop_update_clock(m->ctl.loop);
	m->worker_began_ns = loop_now(m->ctl.loop);
	if (m->ready_fd >= 0)
		close(m->ready_fd);
	m->ready_fd = -1;
	return master_watch_link(m, pair[0]);
}

static void master_end(struct master *m, int status)
{
	m->exit_status = status;
	loop_stop(m->ctl.loop);
}

static void master_on_restart(struct timer *t)
{
	struct master *m = container_of(t, struct master, restart);

	if (m->is_stopping || master_start_worker(m) != 0)
		master_end(m, m->is_stopping ? 0 : 1);
}

/* The worker ended: so does the master, or another one starts. */
static void master_worker_ended(struct master *m, int status)
{
	uint64_t lived = loop_now(m->ctl.loop) - m->worker_began_ns;

	/* What it said last counts: it may have been a new list of sockets. */
	if (m->link.fd >= 0)
		master_on_link(&m->link, EPOLLIN);
	m->worker = 0;
	if (m->is_stopping || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
		m->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		/* Connections of workers of before go on, and would end with us. */
		if (!m->upgrade.n_leaving || m->is_terminating)
			master_end(m, m->exit_status);
		return;
	}
	if (!m->was_ever_ready) {
		/* It has said why. */
		if (upgrade_fall_back(m) != 0)
			master_end(m, 1);
		return;
	}
	if (WIFSIGNALED(status))
		log_msg(LOG_LVL_ALERT,
			"the worker process died of signal %d (%s); starting another",
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		log_msg(LOG_LVL_ALERT, "the worker process ended with status %d; starting another",
			WEXITSTATUS(status));
	timer_start(m->ctl.loop, &m->restart, lived < RESTART_PAUSE_NS ? RESTART_PAUSE_NS : 0);
}

/* --- signals ----------------------------------------------------------------------------------------- */

static void master_pass_on(struct master *m, int signo)
{
	bool is_end = signo == SIGTERM || signo == SIGINT;

	/* What re-executes a master in HAProxy does so here when there is something new to execute. */
	if (signo == SIGUSR2 && !m->is_stopping && upgrade_begin(m))
		return;
	m->is_interrupted |= signo == SIGINT;
	m->is_terminating |= is_end;
	if (is_end || signo == SIGUSR1)
		m->is_stopping = true;
	/* Otherwise it reloads the worker in place. */
	if (m->worker)
		kill(m->worker, signo == SIGUSR2 ? SIGHUP : is_end ? SIGTERM : signo);
	else if (m->is_stopping && (is_end || !m->upgrade.n_leaving))
		master_end(m, 0);
}

static void master_on_signal(struct ev_fd *ev, uint32_t events)
{
	struct master *m = container_of(ev, struct master, signals);
	struct signalfd_siginfo si;
	int status;
	pid_t pid;

	while (read(ev->fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		if (si.ssi_signo != SIGCHLD)
			master_pass_on(m, (int)si.ssi_signo);
	}
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (!upgrade_child_ended(m, pid, status))
			master_worker_ended(m, status);
		else if (m->is_stopping && !m->worker && !m->upgrade.n_leaving)
			master_end(m, m->exit_status);
	}
}

static int master_watch_signals(struct master *m, struct err *err)
{
	static const int wanted[] = { SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGCHLD };
	sigset_t set;
	int fd, rc;

	sigemptyset(&set);
	for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++)
		sigaddset(&set, wanted[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	m->signals.on_event = master_on_signal;
	rc = fd < 0 ? -errno : loop_add_fd(m->ctl.loop, &m->signals, fd, LOOP_LEVEL);
	if (rc != 0 && fd >= 0)
		close(fd);
	return rc ? err_set(err, rc, "cannot watch signals: %s", strerror(-rc)) : 0;
}

/* --- start and end ----------------------------------------------------------------------------------- */

/* What the old process listens on and we do not: ours was a copy. */
static void master_drop_unclaimed(struct master *m)
{
	struct list *l, *next;

	list_for_each_safe(l, next, &m->sockets)
		listen_drop_received(list_entry(l, struct listen_socket, link));
}

static int master_setup(struct master *m, const struct conf *conf, struct err *err)
{
	const char *pidfile = m->o->pidfile ? m->o->pidfile : conf->global.pidfile;
	int rc;

	rc = loop_create(&m->ctl.loop);
	if (rc != 0)
		return err_set(err, rc, "cannot make the event loop: %s", strerror(-rc));
	listen_share_with_others(m->o->n_old_pids > 0 || m->o->take_over || m->upgrade.old_worker);
	if (m->upgrade.old_worker)
		rc = upgrade_connect(m, err);
	else if (m->o->take_over)
		rc = take_over_sockets(&m->from, m->o->take_over, m->n_workers, &m->sockets, err);
	if (rc == 0)
		rc = master_open_sockets(m, conf, m->n_workers, err);
	master_drop_unclaimed(m);
	if (rc == 0)
		rc = master_open_api(m, err);
	/* Who was upgraded has been forked already. */
	if (rc == 0 && !m->upgrade.old_worker &&
	    (m->o->is_daemon || (conf->global.is_daemon && !m->o->is_foreground)))
		rc = start_fork(&m->ready_fd, err);
	if (rc == 0 && pidfile)
		rc = start_write_pid(pidfile, err);
	return rc ? rc : master_watch_signals(m, err);
}

/* The setup of a new executable has failed; `why` tells what. The old worker process is ours, at least. */
static int master_go_on(struct master *m, const struct err *why)
{
	struct err err = { "" };

	if (!m->upgrade.old_worker) {
		fprintf(stderr, "headgated: %s\n", why->text);
		return -ESRCH;
	}
	log_msg(LOG_LVL_ERR, "%s", why->text);
	if (!m->ctl.loop || (m->signals.fd < 0 && master_watch_signals(m, &err) != 0))
		return -EINVAL;
	if (!m->ctl.admin && master_open_api(m, &err) != 0)
		log_msg(LOG_LVL_ERR, "%s", err.text);
	return upgrade_fall_back(m);
}

static void master_shutdown(struct master *m)
{
	struct list *l, *next;

	master_close_api(m);
	if (m->ctl.loop) {
		master_drop_link(m);
		timer_stop(m->ctl.loop, &m->restart);
		if (m->signals.fd >= 0) {
			int fd = m->signals.fd;

			loop_del_fd(m->ctl.loop, &m->signals);
			close(fd);
		}
	}
	list_for_each_safe(l, next, &m->sockets)
		listen_close(list_entry(l, struct listen_socket, link));
	loop_destroy(m->ctl.loop);
}

int master_run(const struct ctl_options *o, struct conf *conf, unsigned n_workers)
{
	struct master m = { .o = o,
			    .n_workers = n_workers,
			    .ready_fd = -1,
			    .from = { .fd = -1 },
			    .link.fd = -1,
			    .signals.fd = -1,
			    .upgrade.link = -1,
			    .ctl = { .opts = o, .notify_fd = -1, .ready_fd = -1 } };
	struct err err = { "" };
	int rc;

	m.ctl.master = &m;
	list_init(&m.sockets);
	list_init(&m.incoming);
	list_init(&m.relays);
	timer_init(&m.restart, master_on_restart);
	upgrade_init(&m.upgrade);
	rc = master_setup(&m, conf, &err);
	conf_free(conf);
	if (rc != 0 && master_go_on(&m, &err) != 0) {
		master_shutdown(&m);
		return 1;
	}
	loop_update_clock(m.ctl.loop);
	m.began_ns = loop_now(m.ctl.loop);
	if ((!m.worker && master_start_worker(&m) != 0) || loop_run(m.ctl.loop) != 0)
		m.exit_status = 1;
	master_shutdown(&m);
	return m.is_interrupted && o->is_master_notify ? 130 : m.exit_status;
}
