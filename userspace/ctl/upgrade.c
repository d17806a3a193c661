/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The master becomes the executable that has replaced its own on the disk: SIGUSR2 makes it ask the new one whether it
 * accepts the configuration and knows how to go on, and then execute it, so that the process id stays. Its child, the
 * worker process, serves meanwhile. The new master takes the listening sockets over from it (handover.h) through the
 * link that it inherits, and starts a worker process of its own; when that runs, the old one is told to finish. When it
 * does not, the old one goes on. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/master.h"

/* What a master leaves to the next: "LINK WORKER", a descriptor and a process. For `-c`: "?". */
#define UPGRADE_ENV "HEADGATED_UPGRADE"
/* What the new one says to that when it understands it. A later, incompatible way gets another number. */
#define UPGRADE_WORD "upgrade 1"
#define SAID_MAX     4096

static int executable_stat(const char *path, struct stat *st)
{
	return stat(path, st) != 0 ? -errno : S_ISREG(st->st_mode) ? 0 : -EACCES;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

void upgrade_init(struct upgrade *u)
{
	ssize_t n = readlink("/proc/self/exe", u->path, sizeof(u->path) - 1);
	const char *left = getenv(UPGRADE_ENV);
	int link, pid, end = 0;

	u->said_fd = -1;
	u->link = -1;
	u->path[n > 0 ? n : 0] = '\0';
	if (stat("/proc/self/exe", &u->running) != 0)
		u->path[0] = '\0';
	if (left && sscanf(left, "%d %d%n", &link, &pid, &end) == 2 && left[end] == '\0' &&
	    fcntl(link, F_SETFD, FD_CLOEXEC) == 0) {
		u->link = link;
		u->old_worker = pid;
	}
	(void)unsetenv(UPGRADE_ENV);
}

bool upgrade_asked(void)
{
	const char *left = getenv(UPGRADE_ENV);

	return left && strcmp(left, "?") == 0 && puts(UPGRADE_WORD) >= 0;
}

/* --- the old master ---------------------------------------------------------------------------------- */

/* What this start was about, and not the process: whom it replaced, where it was started. */
static unsigned words_to_leave_out(const struct ctl_options *o, int at)
{
	const char *arg = o->argv[at];
	unsigned n = 1;

	if (strcmp(arg, "-x") == 0 || strcmp(arg, "-C") == 0)
		return 2;
	if (strcmp(arg, "-sf") != 0 && strcmp(arg, "-st") != 0)
		return 0;
	while (at + (int)n < o->argc && o->argv[at + (int)n][0] != '-')
		n++;
	return n;
}

/* The command line again; `first` (may be NULL) comes first, because what follows "--" are files. */
static char **command_line(const struct ctl_options *o, char *first)
{
	char **argv = mem_zalloc(sizeof(*argv) * ((size_t)o->argc + 2));
	unsigned n = 0;

	if (!argv)
		return NULL;
	argv[n++] = o->argv[0];
	if (first)
		argv[n++] = first;
	for (int i = 1; i < o->argc; i++) {
		unsigned skip = words_to_leave_out(o, i);

		if (skip == 0)
			argv[n++] = o->argv[i];
		else
			i += (int)skip - 1;
	}
	return argv;
}

/* In the child: the new executable's `-c`. Does not return. */
static void run_check(const struct upgrade *u, char **argv)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	(void)dup2(u->said_fd, STDOUT_FILENO);
	(void)dup2(u->said_fd, STDERR_FILENO);
	if (setenv(UPGRADE_ENV, "?", 1) == 0)
		execv(u->path, argv);
	dprintf(STDERR_FILENO, "cannot execute %s: %s\n", u->path, strerror(errno));
	_exit(127);
}

bool upgrade_begin(struct master *m)
{
	struct upgrade *u = &m->upgrade;
	char check[] = "-c", **argv;
	struct stat now;

	if (!u->path[0] || executable_stat(u->path, &now) != 0 || is_same_file(&now, &u->running))
		return false; /* also while it is being replaced: there is nothing yet to become */
	if (u->checker || u->old_worker || m->link.fd < 0) {
		log_msg(LOG_LVL_WARNING,
			"%s was replaced, but a worker process is being started already: try again",
			u->path);
		return true;
	}
	argv = command_line(m->o, check);
	u->said_fd = memfd_create("headgated -c", MFD_CLOEXEC);
	u->checker = argv && u->said_fd >= 0 ? fork() : -1;
	if (u->checker == 0)
		run_check(u, argv);
	mem_free(argv);
	if (u->checker > 0) {
		log_msg(LOG_LVL_NOTICE, "%s was replaced: checking the configuration with it",
			u->path);
		return true;
	}
	log_msg(LOG_LVL_ERR, "cannot check the new executable: %m; nothing has changed");
	u->checker = 0;
	if (u->said_fd >= 0)
		close(u->said_fd);
	u->said_fd = -1;
	return true;
}

/* Logs what the check has said, line by line; true: the word was among it. */
static bool read_said(struct upgrade *u, bool is_logged)
{
	char text[SAID_MAX];
	ssize_t n = pread(u->said_fd, text, sizeof(text), 0);
	struct str rest = str_make(text, n > 0 ? (size_t)n : 0), line;
	bool is_understood = false;

	close(u->said_fd);
	u->said_fd = -1;
	while (rest.len) {
		line = str_cut(&rest, '\n');
		if (str_is_eq(line, STR(UPGRADE_WORD)))
			is_understood = true;
		else if (is_logged && line.len)
			log_msg(LOG_LVL_ERR, "new executable: " STR_FMT, STR_ARG(line));
	}
	return is_understood;
}

/* Returns only when it failed, and then nothing has changed. */
static void become(struct master *m)
{
	char **argv = command_line(m->o, NULL), left[32];
	const struct upgrade *u = &m->upgrade;

	snprintf(left, sizeof(left), "%d %d", m->link.fd, (int)m->worker);
	if (argv && setenv(UPGRADE_ENV, left, 1) == 0 && fcntl(m->link.fd, F_SETFD, 0) == 0)
		execv(u->path, argv);
	log_msg(LOG_LVL_ERR, "cannot execute %s: %m; nothing has changed", u->path);
	(void)fcntl(m->link.fd, F_SETFD, FD_CLOEXEC);
	(void)unsetenv(UPGRADE_ENV);
	mem_free(argv);
}

void upgrade_checked(struct master *m, int status)
{
	struct upgrade *u = &m->upgrade;
	bool is_valid = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	bool is_understood = read_said(u, !is_valid);

	u->checker = 0;
	if (m->is_stopping)
		return;
	if (!is_valid && WIFSIGNALED(status))
		log_msg(LOG_LVL_ERR,
			"the new executable died of signal %d (%s); nothing has changed",
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (!is_valid)
		log_msg(LOG_LVL_ERR,
			"the new executable refuses the configuration (status %d); nothing has "
			"changed",
			WEXITSTATUS(status));
	else if (!is_understood)
		log_msg(LOG_LVL_ERR,
			"%s cannot take over from a running master; nothing has changed", u->path);
	else if (!m->worker || m->link.fd < 0)
		log_msg(LOG_LVL_ERR, "the worker process has ended meanwhile; nothing has changed");
	else
		become(m);
}

/* --- the new master ---------------------------------------------------------------------------------- */

int upgrade_connect(struct master *m, struct err *err)
{
	char hello[2] = { 'C', (char)('0' + CONF_LEVEL_ADMIN) };
	int pair[2], rc;

	/* Its end is one of a loop's, ours waits. */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return err_set(err, -errno, "cannot talk to the old worker process: %m");
	(void)fcntl(pair[1], F_SETFL, O_NONBLOCK);
	rc = link_send(m->upgrade.link, hello, sizeof(hello), &pair[1], 1, true);
	close(pair[1]);
	m->from.fd = pair[0];
	if (rc != 0)
		return err_set(err, rc, "cannot talk to the old worker process: %s", strerror(-rc));
	return take_over_ask(&m->from, m->n_workers, &m->sockets, err);
}

void upgrade_done(struct master *m)
{
	struct upgrade *u = &m->upgrade;

	if (!u->old_worker)
		return;
	log_msg(LOG_LVL_NOTICE, "the new executable runs; the old worker process %d finishes",
		(int)u->old_worker);
	(void)kill(u->old_worker, SIGUSR1);
	close(u->link);
	u->link = -1;
	u->old_worker = 0;
	u->n_leaving++;
}

int upgrade_fall_back(struct master *m)
{
	struct upgrade *u = &m->upgrade;
	struct err err = { "" };
	struct list *l, *next;
	int link = u->link;

	if (!u->old_worker)
		return -ESRCH;
	/* Addresses of a configuration that nobody serves must not take connections. */
	take_over_close(&m->from);
	listen_give_up_paths(&m->sockets);
	list_for_each_safe(l, next, &m->sockets)
		listen_close(list_entry(l, struct listen_socket, link));
	if (upgrade_connect(m, &err) != 0)
		log_msg(LOG_LVL_ERR, "%s; its addresses would not outlive it", err.text);
	listen_keep_received(&m->sockets);
	take_over_close(&m->from);
	log_msg(LOG_LVL_ALERT, "the upgrade has failed: the old worker process %d goes on",
		(int)u->old_worker);
	m->worker = u->old_worker;
	m->was_ever_ready = true;
	u->old_worker = 0;
	u->link = -1;
	return master_watch_link(m, link);
}

bool upgrade_child_ended(struct master *m, pid_t pid, int status)
{
	struct upgrade *u = &m->upgrade;

	if (pid == u->checker) {
		upgrade_checked(m, status);
		return true;
	}
	if (pid == m->worker)
		return false;
	if (pid == u->old_worker) {
		log_msg(LOG_LVL_ALERT, "the old worker process ended before the new one ran");
		close(u->link);
		u->link = -1;
		u->old_worker = 0;
	} else if (u->n_leaving) {
		u->n_leaving--;
	}
	return true;
}
