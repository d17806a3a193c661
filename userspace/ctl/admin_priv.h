/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by admin.c (sockets) and admin_client.c (connections). */
#ifndef CTL_ADMIN_PRIV_H
#define CTL_ADMIN_PRIV_H

#include "ctl/cmd_rows.h"

#define ADMIN_LINE_MAX	  (1u << 20) /* a command line with its payload */
#define ADMIN_OUT_MAX	  (256u << 20) /* answers not yet read by the client */
#define ADMIN_CLIENTS_MAX 64

struct admin_socket {
	struct list link;
	struct ev_fd ev;
	struct admin *admin;
	char *text; /* as configured: identity across reloads */
	char *path; /* Unix socket to remove; NULL otherwise */
	uint64_t path_dev, path_ino; /* it, and no other of that name */
	enum conf_level level;
	uint8_t severity; /* enum conf_severity_output */
	bool is_wanted, exposes_fd;
};

struct admin {
	struct ctl *ctl;
	struct list sockets, clients;
	unsigned n_clients;
	uint64_t timeout_ns;
};

struct admin_client {
	struct list link;
	struct ev_fd ev;
	struct admin *admin;
	struct timer idle;
	char *in;
	size_t in_len, in_cap;
	char *out;
	size_t out_len, out_pos, out_cap;
	uint64_t timeout_ns;
	enum conf_level level;
	uint8_t severity; /* enum conf_severity_output */
	bool exposes_fd; /* listening sockets may be asked for */
	struct ring_watch *watch; /* `show events -w` runs; NULL: it does not */
	struct cmd_wait *wait; /* `wait` runs; NULL: it does not */
	bool to_worker; /* of a master: where commands without a prefix go */
	bool is_expert, is_experimental; /* said, and without effect */
	bool is_prompt, is_pending, input_ended, wants_close, is_dead;
};

void cmd_wait_drop(struct cmd_wait *w); /* cmd_wait.c: its client is gone */

/* Opens one more socket. admin.c */
HG_WUR int admin_open_socket(struct admin *a, const struct conf_stats_socket *cs, struct err *err);
/* In a child of the process that opened them: closes descriptors, and nothing else. */
void admin_leave(struct admin *a);
/* Takes `fd` over; on failure (0 or -errno) it stays the caller's. */
HG_WUR int admin_client_open(const struct admin_socket *as, int fd);
void admin_client_close(struct admin_client *ac);

/*
 * A pending command that answers bit by bit, before its admin_finish(): bytes for the client, 0 or -ENOMEM; send
 * what it takes, after which it may be gone; bytes that it has not taken yet.
 */
HG_WUR int admin_append(struct admin_client *ac, const char *text, size_t len);
void admin_flush(struct admin_client *ac);
size_t admin_backlog(const struct admin_client *ac);

#endif
