/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Binary upgrade: an old process hands its listening sockets and the lock of the datapath to a new one
 * (handover.c), which asks for them over the runtime socket (take_over.c). The conversation, one prompt each:
 *
 *	_getsocks		"listeners GENERATION", then one line per address (net/listen_pass.c)
 *	_getsocks N GENERATION	at most HANDOVER_BATCH descriptors, from number N on
 *	_getlock		the lock of the pin directory: flock() belongs to the open file, which both have then;
 *				the old process writes to no table any more
 *	_taken			the new process runs; before that the end of the connection gives everything back
 */
#ifndef CTL_HANDOVER_H
#define CTL_HANDOVER_H

#include "ctl/ctl_priv.h"

#define HANDOVER_BATCH 200 /* below the kernel's SCM_MAX_FD, 253 */

struct admin_client;

/* The old process: a connection of the runtime API ended. */
void handover_client_gone(struct ctl *ctl, const struct admin_client *ac);

/* The new process. Starting; blocking with a time limit. */
struct take_over {
	int fd; /* the conversation; -1: none */
	char *buf; /* the last answer */
	int *fds;
	unsigned n_fds;
};

/* Connects to `path` and puts the old process's listeners on `sockets`, each with one user. 0 or -errno. */
HG_WUR int take_over_sockets(struct take_over *t, const char *path, unsigned n_workers,
			     struct list *sockets, struct err *err);
/* The same over a connection that is there: t->fd. */
HG_WUR int take_over_ask(struct take_over *t, unsigned n_workers, struct list *sockets,
			 struct err *err);
/* The lock's descriptor, 0: the old process has none, or -errno. */
HG_WUR int take_over_lock(struct take_over *t, struct err *err);
/* We run: the old process may forget what it gave. */
void take_over_done(struct take_over *t);
/* Also after take_over_done(). Without it the old process takes everything back. */
void take_over_close(struct take_over *t);

#endif
