/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control thread: start-up, reload, health checks, runtime API, metrics, privileges. It alone
 * changes server states, BPF maps and snapshots; workers never wait for it.
 *
 * Public is only what main() needs; the files of this module share ctl_priv.h.
 */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The command line, as parsed. */
struct ctl_options {
	const char **files; /* -f, --: files and directories */
	unsigned n_files;
	bool check; /* -c */
	bool is_daemon, is_foreground; /* -D, -d */
	bool is_master, is_master_notify; /* -W, -Ws */
	bool is_verbose, is_quiet; /* -V, -q */
	enum { CTL_EXPLAIN_NONE, CTL_EXPLAIN_TEXT, CTL_EXPLAIN_JSON } explain; /* with check */
	bool warnings_are_errors; /* -dW */
	const char *pidfile; /* -p */
	const char *directory; /* -C */
	const char *localpeer; /* -L */
	const char *master_socket; /* -S */
	const char *take_over; /* -x: socket to take listening sockets from */
	const int *old_pids; /* -sf, -st */
	unsigned n_old_pids;
	bool terminate_old; /* -st */
	uint32_t maxconn; /* -n */
	uint64_t memory_limit; /* -m, bytes */
	int argc;
	char **argv;
};

/* Prints usage or errors itself. 0: run; 1: finished, *ret_exit is the status. */
HG_WUR int ctl_parse_options(int argc, char **argv, struct ctl_options *ret_o, int *ret_exit);
void ctl_options_free(struct ctl_options *o);

/* -c: exit status 0 valid, 1 error, 2 no listener. */
HG_WUR int ctl_check(const struct ctl_options *o);
/* Runs until told to stop; the exit status of the process. */
HG_WUR int ctl_run(const struct ctl_options *o);

#endif
