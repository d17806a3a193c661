/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Master-worker: the master opens the listening sockets, starts the worker process and keeps the
 * sockets. When the worker crashes, connections wait in the backlog until the next one has started.
 * Signals that the master gets are passed on; a reload happens inside the worker. The master
 * has one thread, no BPF and no TLS: it has nothing to crash with.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/ctl_priv.h"

#define RESTART_PAUSE_S 1 /* after a worker that did not live as long */

struct master {
	const struct ctl_options *o;
	struct list sockets;
	pid_t worker; /* 0: none */
	int ready_fd; /* of the parent that waits, until the first worker told it; -1 */
	bool is_stopping;
	sigset_t signals;
	struct timespec started;
};

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

/* In the child: everything of the master but the sockets is left behind. Does not return. */
static void master_become_worker(struct master *m)
{
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGTERM); /* a master that was killed leaves no worker behind */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	exit(ctl_run_worker(m->o, &m->sockets, m->ready_fd));
}

static int master_start_worker(struct master *m)
{
	pid_t pid = fork();

	if (pid < 0) {
		log_msg(LOG_LVL_CRIT, "cannot start a worker process: %m");
		return -errno;
	}
	if (pid == 0)
		master_become_worker(m);
	m->worker = pid;
	clock_gettime(CLOCK_MONOTONIC, &m->started);
	if (m->ready_fd >= 0)
		close(m->ready_fd);
	m->ready_fd = -1;
	return 0;
}

static void master_pause_after_short_life(const struct master *m)
{
	struct timespec now, pause = { .tv_sec = RESTART_PAUSE_S };

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec - m->started.tv_sec <= RESTART_PAUSE_S)
		nanosleep(&pause, NULL);
}

/* The worker ended. >= 0: so does the master, with this status. */
static int master_worker_ended(struct master *m, int status, bool was_ever_ready)
{
	m->worker = 0;
	if (m->is_stopping || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
		return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	if (!was_ever_ready)
		return 1; /* it has said why */
	if (WIFSIGNALED(status))
		log_msg(LOG_LVL_ALERT,
			"the worker process died of signal %d (%s); starting another",
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		log_msg(LOG_LVL_ALERT, "the worker process ended with status %d; starting another",
			WEXITSTATUS(status));
	master_pause_after_short_life(m);
	return master_start_worker(m) == 0 ? -1 : 1;
}

static void master_pass_on(struct master *m, int signo)
{
	bool is_end = signo == SIGTERM || signo == SIGINT;

	if (is_end || signo == SIGUSR1)
		m->is_stopping = true;
	/* What reloads a master in HAProxy reloads the worker in place here. */
	if (m->worker)
		kill(m->worker, signo == SIGUSR2 ? SIGHUP : is_end ? SIGTERM : signo);
}

/* A worker that lives for a second has come up; one that fails to start ends before. */
static bool master_has_lived(const struct master *m)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - m->started.tv_sec >= 1;
}

static int master_loop(struct master *m)
{
	bool was_ever_ready = false;
	int interrupted = 0;

	for (;;) {
		int signo = sigwaitinfo(&m->signals, NULL), status, end = -1;

		if (signo < 0)
			continue;
		was_ever_ready |= master_has_lived(m);
		if (signo != SIGCHLD) {
			if (signo == SIGINT)
				interrupted = 130;
			master_pass_on(m, signo);
			continue;
		}
		while (waitpid(-1, &status, WNOHANG) > 0)
			end = master_worker_ended(m, status, was_ever_ready);
		if (end >= 0)
			return interrupted && m->o->is_master_notify ? interrupted : end;
	}
}

static int master_setup(struct master *m, const struct conf *conf, unsigned n_workers,
			struct err *err)
{
	static const int wanted[] = { SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGCHLD };
	const char *pidfile = m->o->pidfile ? m->o->pidfile : conf->global.pidfile;
	int rc;

	sigemptyset(&m->signals);
	for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++)
		sigaddset(&m->signals, wanted[i]);
	listen_share_with_others(m->o->n_old_pids > 0);
	rc = master_open_sockets(m, conf, n_workers, err);
	if (rc == 0 && (m->o->is_daemon || (conf->global.is_daemon && !m->o->is_foreground)))
		rc = start_fork(&m->ready_fd, err);
	if (rc == 0 && pidfile)
		rc = start_write_pid(pidfile, err);
	sigprocmask(SIG_BLOCK, &m->signals, NULL);
	return rc;
}

static void master_close_sockets(struct master *m)
{
	struct list *l, *next;

	list_for_each_safe(l, next, &m->sockets)
		listen_close(list_entry(l, struct listen_socket, link));
}

int master_run(const struct ctl_options *o, struct conf *conf, unsigned n_workers)
{
	struct master m = { .o = o, .ready_fd = -1 };
	struct err err = { "" };
	int rc;

	list_init(&m.sockets);
	rc = master_setup(&m, conf, n_workers, &err);
	conf_free(conf);
	if (rc != 0) {
		fprintf(stderr, "headgated: %s\n", err.text);
		master_close_sockets(&m);
		return 1;
	}
	rc = master_start_worker(&m) == 0 ? master_loop(&m) : 1;
	master_close_sockets(&m);
	return rc;
}
