/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Master and worker process, and what they say to each other over a pair of sockets (SOCK_SEQPACKET), one
 * letter and what belongs to it per message:
 *
 *	master to worker	C LEVEL, one descriptor	a connection of the runtime API: a command that the master was given
 *	worker to master	B			the listening sockets of what runs now follow
 *				L LINE, descriptors	one of them (net/listen_pass.c)
 *				F, descriptors		more of the same, HANDOVER_BATCH at a time
 *				E			those were all: the worker runs
 *				R			a reload succeeded
 *				X			a reload failed
 *
 * So the master knows every address at any moment, and the next worker finds those that a reload added.
 */
#ifndef CTL_MASTER_H
#define CTL_MASTER_H

#include <sys/stat.h>
#include <sys/types.h>

#include "ctl/ctl_priv.h"
#include "ctl/handover.h"

struct cmd;

/* --- the pair (master_link.c) ---------------------------------------------------------------------- */

#define LINK_TEXT_MAX 512

struct link_message {
	char text[LINK_TEXT_MAX + 1]; /* NUL-terminated */
	size_t len;
	int fds[HANDOVER_BATCH];
	unsigned n_fds;
};
HG_WUR int link_send(int fd, const char *text, size_t len, const int *fds, unsigned n_fds,
		     bool waits);
/* 1, 0: nothing there, or -errno (-EPIPE: the other side has gone). Descriptors are the caller's. */
HG_WUR int link_receive(int fd, struct link_message *m);

/* The worker's side; `fd` is taken. */
HG_WUR int worker_link_open(struct ctl *ctl, int fd);
void worker_link_close(struct ctl *ctl);
void worker_link_sockets(
	struct ctl *ctl); /* what runs now listens there; nothing without a master */
void worker_link_reloaded(struct ctl *ctl, bool is_ok);

/* --- a new executable (upgrade.c) --------------------------------------------------------------------- */

struct upgrade {
	char path[4096]; /* of our executable when we started; "": not known */
	struct stat running;
	pid_t checker; /* the new executable's `-c`; 0: none */
	int said_fd; /* what that said; -1 */
	/* In the new master, until a worker process of its own runs: */
	int link; /* to the old one; -1 */
	pid_t old_worker; /* 0: none */
	unsigned n_leaving; /* old worker processes that finish */
};
struct master;
void upgrade_init(struct upgrade *u); /* before any child is made */
/* `-c`: says that we can do it when it is a master that asks. */
bool upgrade_asked(void);
/* SIGUSR2: false: our executable is the one on the disk. True: it is being seen to, and the log says what comes of it. */
HG_WUR bool upgrade_begin(struct master *m);
void upgrade_checked(struct master *m, int status);
/* Takes the old worker's sockets over to m->sockets; m->from stays open for the new worker. 0 or -errno. */
HG_WUR int upgrade_connect(struct master *m, struct err *err);
void upgrade_done(struct master *m); /* our worker runs */
/* Our worker does not run: the old one is ours again. 0 or -errno: there is none. */
HG_WUR int upgrade_fall_back(struct master *m);
/* false: it was the worker process that serves. */
HG_WUR bool upgrade_child_ended(struct master *m, pid_t pid, int status);

/* --- the master (master.c, master_cli.c) ------------------------------------------------------------- */

struct master {
	const struct ctl_options *o;
	struct ctl ctl; /* its loop, its runtime API; no workers, no configuration */
	struct list sockets;
	unsigned n_workers; /* threads: listening sockets of an address */
	pid_t worker; /* 0: none */
	struct ev_fd link; /* to the worker */
	struct ev_fd signals;
	struct timer restart; /* runs: a worker that did not live long is replaced after it */
	int ready_fd; /* of the parent that waits, until the first worker told it; -1 */
	bool is_stopping, is_terminating, is_interrupted;
	bool was_ever_ready;
	int exit_status; /* when the loop ends */
	struct take_over from; /* -x: until the first worker has it */
	uint64_t began_ns, worker_began_ns;
	struct upgrade upgrade;
	unsigned n_reloads, n_failed_reloads, n_starts;
	struct list relays; /* commands on their way to the worker and back */
	/* a list of sockets that is being received */
	struct list incoming;
	char incoming_line[LINK_TEXT_MAX + 1];
	int *incoming_fds;
	unsigned n_incoming_fds;
};

/* Listens to the worker process; `fd` is taken. 0 or -errno. */
HG_WUR int master_watch_link(struct master *m, int fd);
/* `-S ADDRESS[,option value]…` as a stats socket. 0 or -errno. */
HG_WUR int master_open_api(struct master *m, struct err *err);
/* In the child: closes what is the master's alone, and touches nothing that both share. */
void master_leave_api(struct master *m);
void master_close_api(struct master *m);
/* A line of the master's runtime API, before it is split: CMD_PENDING when it went to the worker; 1 when done; 0: ours. */
enum master_route {
	MASTER_OWN,
	MASTER_DONE,
	MASTER_FORWARDED
};
enum master_route master_route(struct cmd *c, char **line);

#endif
