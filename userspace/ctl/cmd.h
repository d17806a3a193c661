/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands of the runtime API. A command writes its whole answer to `out`; the socket's side adds the
 * empty line, the prompt, and waits for slow readers.
 */
#ifndef CTL_CMD_H
#define CTL_CMD_H

#include <stdio.h>

#include "ctl/ctl_priv.h"

#define CMD_MAX_ARGS 64

struct admin_client;

struct cmd {
	struct ctl *ctl;
	struct admin_client *client; /* NULL: not from a socket */
	FILE *out;
	const char **argv; /* words, without escapes; argv[argc] is NULL */
	unsigned argc;
	unsigned n_words; /* of the command itself; arguments follow */
	const char *payload; /* behind "<<", or NULL */
	enum conf_level level;
};

/* Returned by a command that answers later by admin_finish(). */
#define CMD_PENDING 1

struct cmd_row {
	const char *words; /* "show stat" */
	enum conf_level level; /* least that is needed */
	int (*run)(struct cmd *c); /* 0 or CMD_PENDING */
	const char *args, *help; /* help NULL: not listed */
};

/* All rows; the last has words == NULL. */
extern const struct cmd_row *const cmd_tables[];
extern const struct cmd_row *const cmd_master_tables[]; /* the same, of a master (-S) */

/* Parses and runs one command line (no ';'). 0 or CMD_PENDING. `line` is modified. */
int cmd_run(struct cmd *c, char *line);
/* Argument i behind the command's words, or NULL. */
const char *cmd_arg(const struct cmd *c, unsigned i);
/* "backend/server" or two arguments; writes the message and returns NULL when there is none such. */
struct server *cmd_find_server(struct cmd *c, const char *path, struct lb_backend **ret_be);
/* One line of answer, with its newline: why it was not done; */
void cmd_say(struct cmd *c, const char *fmt, ...) HG_PRINTF(2, 3);
/* what was done; */
void cmd_tell(struct cmd *c, const char *fmt, ...) HG_PRINTF(2, 3);
/* what was asked for: never with a severity. */
void cmd_data(struct cmd *c, const char *fmt, ...) HG_PRINTF(2, 3);
/* admin_client.c: enum conf_severity_output of a client. */
uint8_t admin_severity(const struct admin_client *ac);

/* admin.c: the connection behind a command. */
void admin_finish(struct admin_client *ac, const char *text,
		  size_t len); /* answer of a pending command */
void admin_list_sockets(struct admin *a, FILE *out);

#endif
