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
	enum conf_level level;
	bool is_wanted;
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
	bool is_prompt, is_pending, input_ended, wants_close, is_dead;
};

/* Takes `fd` over; on failure (0 or -errno) it stays the caller's. */
HG_WUR int admin_client_open(struct admin *a, int fd, enum conf_level level);
void admin_client_close(struct admin_client *ac);

#endif
