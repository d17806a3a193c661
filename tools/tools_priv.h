/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the files of the headgate command. argv[0] of each command is its own name. */
#ifndef TOOLS_TOOLS_PRIV_H
#define TOOLS_TOOLS_PRIV_H

#include <headgate/limits.h>
#include <headgate/service.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

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

int tool_ring(struct tool *t, int argc, char **argv); /* headgate_ring.c */
int tool_deny(struct tool *t, int argc, char **argv); /* headgate_deny.c: on the pinned maps */
int tool_capture(struct tool *t, int argc, char **argv); /* headgate_capture.c */
int tool_events(struct tool *t, int argc, char **argv); /* headgate_events.c */
int tool_tune(struct tool *t, int argc, char **argv); /* headgate_tune.c: /sys, /proc and ethtool */
int tool_source(struct tool *t, int argc, char **argv); /* headgate_source.c */
int tool_top(struct tool *t, int argc, char **argv); /* headgate_top.c */
int tool_show(struct tool *t, int argc, char **argv); /* events from the maps, all else from the daemon */

/* headgate_pins.c: `before`, verdicts, drops, events and, for the agent, addresses; nothing printed on failure. */
int tool_show_pins(struct tool *t, enum hg_role role, bool is_json, const char *before,
		   struct err *err);
int tool_agent(struct tool *t, int argc, char **argv);

/* headgate_names.c: names of sections and servers, as far as a daemon tells. */
#define TOOL_KEY_MAX  80
#define TOOL_NAME_MAX 128
struct tool_name {
	char key[TOOL_KEY_MAX]; /* a service's, "tcp@192.0.2.1:80" */
	uint32_t id; /* or a backend's */
	char section[TOOL_NAME_MAX], server[TOOL_NAME_MAX];
};
struct tool_names {
	struct tool_name *rows;
	unsigned n, cap;
	bool is_known; /* a daemon answered */
};
void tool_names_load(struct tool *t, struct tool_names *ret);
void tool_names_free(struct tool_names *n);
const char *tool_service_name(const struct tool_names *n, const char *key); /* "": not known */
const char *tool_backend_name(const struct tool_names *n, uint32_t id); /* likewise */
/* Is `text` this backend's server name, or SECTION/SERVER? */
bool tool_is_backend(const struct tool_names *n, uint32_t id, const char *text);
void tool_service_key(const struct hg_service_key *k, char *out, size_t size);

/* headgate_api.c: through the daemon. */
int tool_api(struct tool *t, int argc, char **argv);
int tool_api_stream(struct tool *t, int argc, char **argv); /* the same, printed as it comes */
int tool_check(struct tool *t, int argc, char **argv);
int tool_reload(struct tool *t, int argc, char **argv);
int tool_drain(struct tool *t, int argc, char **argv);
/* headgate_completion.c: `name_at` walks the tool's own commands, NULL at the end. */
int tool_completion(int argc, char **argv, const char *(*name_at)(unsigned i));
/* Sends one command; the answer (mem_free() it) or NULL with a message on stderr unless `quiet`. */
char *tool_ask(struct tool *t, const char *command, int quiet);

#endif
