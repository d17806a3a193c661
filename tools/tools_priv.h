/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the files of the headgate command. argv[0] of each command is its own name. */
#ifndef TOOLS_TOOLS_PRIV_H
#define TOOLS_TOOLS_PRIV_H

#define TOOL_DEFAULT_SOCKET "/run/headgate/admin.sock"

struct tool {
	const char *socket;
	const char *bpffs; /* NULL: the usual place */
};

/* headgate_dp.c: on the pinned maps. Exit status. */
int tool_attach(struct tool *t, int argc, char **argv);
int tool_detach(struct tool *t, int argc, char **argv);
int tool_status(struct tool *t, int argc, char **argv);
int tool_maps(struct tool *t, int argc, char **argv);

/* headgate_api.c: through the daemon. */
int tool_api(struct tool *t, int argc, char **argv);
int tool_check(struct tool *t, int argc, char **argv);
int tool_reload(struct tool *t, int argc, char **argv);
int tool_drain(struct tool *t, int argc, char **argv);
/* Sends one command; the answer (mem_free() it) or NULL with a message on stderr unless `quiet`. */
char *tool_ask(struct tool *t, const char *command, int quiet);

#endif
