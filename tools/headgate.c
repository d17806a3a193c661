/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The command-line tool. Attaching, detaching and looking at the kernel tier work on the pinned maps,
 * with or without a daemon; everything else is a command of the daemon's runtime API.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "ctl/ctl.h"
#include "tools_priv.h"

static int complete(struct tool *t, int argc, char **argv);

static const struct command {
	const char *name;
	int (*run)(struct tool *t, int argc, char **argv);
	const char *args, *help;
} commands[] = {
	{ "attach", tool_attach,
	  "IFACE [--role edge|backend] [--address IP]… [--address-file FILE] [--accept ipip|gue] "
	  "[--no-second-chance] [--syn-cookie-keys FILE] [--mode auto|native|generic] "
	  "[--exclusive]",
	  "load the XDP programs, pin them, attach them to an interface" },
	{ "detach", tool_detach, "[IFACE | --all]",
	  "take them off again; the last one removes all pins" },
	{ "status", tool_status, "[--json]",
	  "what is attached, services, backends, verdicts and drops" },
	{ "maps", tool_maps, "[--json]", "the pinned maps and what each is for" },
	{ "deny", tool_deny,
	  "list [--json] | add PREFIX [for TIME] [reset] | del PREFIX | save FILE|-",
	  "prefixes whose packets services do not get" },
	{ "capture", tool_capture,
	  "-w FILE|- [--service S] [--backend B] [--rate 1/N] [--drops [REASON]] [-c N] [-s LEN] "
	  "[--duration T] [--point in|out|both] [--format pcap|pcapng]",
	  "sampled packets into a file, traffic goes on" },
	{ "tune", tool_tune,
	  "[IFACE…] [--json | --apply] [--nic-cpus LIST] [--state FILE] | --undo",
	  "queues, interrupts, CPUs and workers of this host, and what should be otherwise" },
	{ "check", tool_check, "[-V] [--explain[=json]] FILE|DIR…",
	  "check a configuration: exit 0 valid, 1 errors, 2 no listener" },
	{ "reload", tool_reload, "", "read the configuration again, break nothing" },
	{ "top", tool_top,
	  "[-d SECONDS] [-b [-n TIMES] | --json] [services|servers|queues|workers|drops]",
	  "a live view; keys sort, drain, inspect" },
	{ "show", tool_show, "events [--json] [--follow]", "the last drops of the kernel tier" },
	{ "show", tool_show, "events RING [-w] [-n]",
	  "lines of a ring of the log; -w waits for more" },
	{ "show", tool_show, "agent [--json]", "what the agent of this server has taken off" },
	{ "show", tool_show, "source [ADDRESS] [--json]",
	  "connections by source, as the kernel counts them" },
	{ "show", tool_show, "maps [--json]", "the pinned maps and what each is for" },
	{ "show", tool_show, "info | stat | sess | servers state | l4 | nat | … [--json]",
	  "runtime API" },
	{ "set", tool_api, "server B/S state ready|drain|maint | weight … | maxconn …",
	  "runtime API" },
	{ "get", tool_api, "weight B/S", "runtime API" },
	{ "enable", tool_api, "server B/S | health B/S | frontend F", "runtime API" },
	{ "disable", tool_api, "server B/S | health B/S | frontend F", "runtime API" },
	{ "ring", tool_ring, "FILE",
	  "the lines of a log ring's backing-file, also when its process is gone" },
	{ "clear", tool_api, "counters [all | server B/S]", "runtime API" },
	{ "shutdown", tool_api, "session ID | sessions server B/S", "runtime API" },
	{ "drain", tool_drain, "B/S", "no new sessions for a server, open ones go on" },
	{ "undrain", tool_drain, "B/S", "the server takes new sessions again" },
	{ "completion", complete, "bash", "a script that completes these commands in a shell" },
};

/* The names of the table, for tool_completion(). */
static const char *name_at(unsigned i)
{
	return i < ARRAY_SIZE(commands) ? commands[i].name : NULL;
}

static int complete(struct tool *t, int argc, char **argv)
{
	(void)t;
	return tool_completion(argc, argv, name_at);
}

static void usage(FILE *out)
{
	fprintf(out,
		"headgate %s: looks at and changes a Headgate host\n"
		"usage: headgate [-s SOCKET] [--bpffs DIR] COMMAND …\n\n",
		HG_VERSION);
	for (unsigned i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(out, "  %-9s %s\n            %s\n", commands[i].name, commands[i].args,
			commands[i].help);
	fprintf(out,
		"\nThe runtime API is looked for at %s (HEADGATE_SOCKET, or -s). See "
		"headgate(1).\n",
		TOOL_DEFAULT_SOCKET);
}

static const struct command *find_command(const char *name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int unknown_command(const char *name)
{
	const char *best = NULL;
	unsigned least = 4;

	for (unsigned i = 0; i < ARRAY_SIZE(commands); i++) {
		unsigned d = str_distance(str_from_cstr(name), str_from_cstr(commands[i].name));

		if (d < least) {
			least = d;
			best = commands[i].name;
		}
	}
	fprintf(stderr, "headgate: unknown command '%s'%s%s%s\n", name,
		best ? "; did you mean '" : "", best ? best : "", best ? "'?" : "");
	fprintf(stderr, "headgate: 'headgate help' lists the commands\n");
	return 1;
}

int main(int argc, char **argv)
{
	struct tool t = { .socket = getenv("HEADGATE_SOCKET"), .bpffs = getenv("HEADGATE_BPFFS") };
	const struct command *c;
	int i = 1;

	for (; i < argc && argv[i][0] == '-'; i++) {
		if (strcmp(argv[i], "-s") == 0 && i + 1 < argc) {
			t.socket = argv[++i];
		} else if (strcmp(argv[i], "--bpffs") == 0 && i + 1 < argc) {
			t.bpffs = argv[++i];
		} else if (strcmp(argv[i], "-v") == 0 || strcmp(argv[i], "--version") == 0) {
			printf("headgate %s\n", HG_VERSION);
			return 0;
		} else if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
			usage(stdout);
			return 0;
		} else {
			fprintf(stderr, "headgate: unknown option '%s'\n", argv[i]);
			usage(stderr);
			return 1;
		}
	}
	if (i >= argc) {
		usage(stderr);
		return 1;
	}
	if (strcmp(argv[i], "help") == 0) {
		usage(stdout);
		return 0;
	}
	if (!t.socket)
		t.socket = TOOL_DEFAULT_SOCKET;
	c = find_command(argv[i]);
	return c ? c->run(&t, argc - i, argv + i) : unknown_command(argv[i]);
}
