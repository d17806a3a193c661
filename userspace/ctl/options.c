/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The command line, in HAProxy's spelling: single-dash words, values in the next argument. One table
 * row per option; the usage text is printed from the same rows.
 */
#include <errno.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/str.h"
#include "conf/conf.h"
#include "ctl/ctl_priv.h"
#include "ctl/version.h"

struct option_parser {
	struct ctl_options *o;
	int argc;
	char **argv;
	int pos; /* next argument */
	int *ret_exit;
};

enum option_kind {
	OPTION_FLAG, /* bool at offset */
	OPTION_STRING, /* const char * at offset */
	OPTION_CALL, /* handler */
	OPTION_NOTHING, /* accepted: tunes internals that Headgate does not have */
};

struct option {
	const char *name; /* without the dash */
	enum option_kind kind;
	size_t offset;
	int (*handle)(struct option_parser *p, const char *value);
	const char *value, *help;
};

static int option_fail(struct option_parser *p, const char *fmt, const char *what)
{
	fprintf(stderr, "headgated: ");
	fprintf(stderr, fmt, what);
	fprintf(stderr, "\nheadgated: try 'headgated -h'\n");
	*p->ret_exit = 1;
	return -EINVAL;
}

static int option_add_file(struct option_parser *p, const char *value)
{
	const char **files = mem_realloc(p->o->files, (p->o->n_files + 1) * sizeof(*files));

	if (!files)
		return option_fail(p, "out of memory%s", "");
	files[p->o->n_files++] = value;
	p->o->files = files;
	return 0;
}

static int option_number(struct option_parser *p, const char *value, uint64_t *ret)
{
	if (str_to_u64(str_from_cstr(value), ret) != 0 || *ret > UINT32_MAX)
		return option_fail(p, "'%s' is not a number", value);
	return 0;
}

static int option_maxconn(struct option_parser *p, const char *value)
{
	uint64_t n = 0;
	int rc = option_number(p, value, &n);

	p->o->maxconn = (uint32_t)n;
	return rc;
}

static int option_memory(struct option_parser *p, const char *value)
{
	uint64_t mb = 0;
	int rc = option_number(p, value, &mb);

	p->o->memory_limit = mb << 20;
	return rc;
}

/* -sf and -st take all that follows, up to the next option. */
static int option_pids(struct option_parser *p, bool terminate)
{
	int *pids = mem_alloc(sizeof(int) * (size_t)p->argc);
	unsigned n = 0;

	if (!pids)
		return option_fail(p, "out of memory%s", "");
	for (; p->pos < p->argc && p->argv[p->pos][0] != '-'; p->pos++) {
		uint64_t pid;

		if (option_number(p, p->argv[p->pos], &pid) != 0) {
			mem_free(pids);
			return -EINVAL;
		}
		pids[n++] = (int)pid;
	}
	mem_free((void *)p->o->old_pids);
	p->o->old_pids = pids;
	p->o->n_old_pids = n;
	p->o->terminate_old = terminate;
	return 0;
}

static int option_finish(struct option_parser *p, const char *value)
{
	return option_pids(p, false);
}

static int option_terminate(struct option_parser *p, const char *value)
{
	return option_pids(p, true);
}

static int option_version(struct option_parser *p, const char *value)
{
	version_print(stdout, false);
	*p->ret_exit = 0;
	return 1;
}

static int option_version_long(struct option_parser *p, const char *value)
{
	version_print(stdout, true);
	*p->ret_exit = 0;
	return 1;
}

static int option_condition(struct option_parser *p, const char *value)
{
	struct err err;
	int rc = conf_eval_condition(str_from_cstr(value), &err);

	if (rc < 0)
		fprintf(stderr, "headgated: -cc: %s\n", err.text);
	*p->ret_exit = rc < 0 ? 2 : rc == 0 ? 1 : 0;
	return 1;
}

static int option_notify(struct option_parser *p, const char *value)
{
	p->o->is_master = true;
	p->o->is_master_notify = true;
	return 0;
}

static int option_help(struct option_parser *p, const char *value);

#define FLAG(name, member, help) \
	{ name, OPTION_FLAG, offsetof(struct ctl_options, member), NULL, NULL, help }
#define STRING(name, member, value, help) \
	{ name, OPTION_STRING, offsetof(struct ctl_options, member), NULL, value, help }
#define CALL(name, fn, value, help) { name, OPTION_CALL, 0, fn, value, help }
#define NOTHING(name)		    { name, OPTION_NOTHING, 0, NULL, NULL, NULL }

static const struct option options[] = {
	CALL("f", option_add_file, "FILE|DIR",
	     "configuration file, or directory of *.cfg; may repeat"),
	FLAG("c", check, "check the configuration: exit 0 valid, 1 errors, 2 no listener"),
	CALL("cc", option_condition, "EXPR",
	     "evaluate a condition: exit 0 true, 1 false, 2 malformed"),
	FLAG("d", is_foreground, "stay in the foreground"),
	FLAG("db", is_foreground, "the same"),
	FLAG("D", is_daemon, "go to the background"),
	FLAG("W", is_master, "master-worker: a master keeps the sockets and restarts the worker"),
	CALL("Ws", option_notify, NULL, "master-worker with sd_notify"),
	STRING("p", pidfile, "FILE", "write the process id there"),
	CALL("sf", option_finish, "PID…", "ask old processes to finish their connections"),
	CALL("st", option_terminate, "PID…", "tell old processes to end at once"),
	STRING("L", localpeer, "NAME", "name of this host among peers"),
	CALL("m", option_memory, "MB", "memory limit"),
	CALL("n", option_maxconn, "N", "limit of connections"),
	STRING("C", directory, "DIR", "change to this directory first"),
	STRING("S", master_socket, "ADDR[,OPT,VAL]…",
	       "with -W: runtime API of the master; options level, mode, uid, gid"),
	STRING("x", take_over, "SOCKET",
	       "take the listening sockets of the process with this stats socket over"),
	FLAG("V", is_verbose, "say more"),
	FLAG("q", is_quiet, "say nothing but errors"),
	FLAG("dW", warnings_are_errors, "a warning of the configuration is an error"),
	CALL("v", option_version, NULL, "version"),
	CALL("vv", option_version_long, NULL, "version, build options, features"),
	CALL("h", option_help, NULL, "this text"),
	CALL("-help", option_help, NULL, NULL),
	NOTHING("dM"),
	NOTHING("dI"),
	NOTHING("dr"),
	NOTHING("dp"),
	NOTHING("dG"),
	NOTHING("dS"),
	NOTHING("dR"),
	NOTHING("dL"),
	NOTHING("de"),
	NOTHING("dV"),
	NOTHING("dZ"),
};

static int option_help(struct option_parser *p, const char *value)
{
	printf("headgated %s: edge load balancer, XDP and TLS/HTTP\n"
	       "usage: headgated [options] [-f FILE|DIR]… [-- FILE…]\n\n",
	       HG_VERSION);
	for (unsigned i = 0; i < ARRAY_SIZE(options); i++) {
		char left[32];

		if (!options[i].help)
			continue;
		snprintf(left, sizeof(left), "-%s %s", options[i].name,
			 options[i].value ? options[i].value : "");
		printf("  %-16s %s\n", left, options[i].help);
	}
	printf("\nSignals: TERM, INT stop at once; USR1 stops when connections have ended; HUP, "
	       "USR2 reload.\n"
	       "See headgated(8), headgate.cfg(5), headgate(1).\n");
	*p->ret_exit = 0;
	return 1;
}

static const struct option *option_find(const char *name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(options); i++) {
		/* -dM may carry a byte to fill memory with. */
		if (strcmp(options[i].name, name) == 0 ||
		    (options[i].kind == OPTION_NOTHING && strncmp(options[i].name, name, 2) == 0))
			return &options[i];
	}
	return NULL;
}

static int option_apply(struct option_parser *p, const char *arg)
{
	const struct option *opt = option_find(arg + 1);
	const char *value = NULL;

	if (!opt)
		return option_fail(p, "unknown option '%s'", arg);
	if (opt->value && opt->handle != option_finish && opt->handle != option_terminate) {
		if (p->pos >= p->argc)
			return option_fail(p, "option '%s' needs a value", arg);
		value = p->argv[p->pos++];
	}
	switch (opt->kind) {
	case OPTION_FLAG:
		*(bool *)((char *)p->o + opt->offset) = true;
		return 0;
	case OPTION_STRING:
		*(const char **)((char *)p->o + opt->offset) = value;
		return 0;
	case OPTION_CALL:
		return opt->handle(p, value);
	case OPTION_NOTHING:
		return 0;
	}
	return 0;
}

int ctl_parse_options(int argc, char **argv, struct ctl_options *ret_o, int *ret_exit)
{
	struct option_parser p = {
		.o = ret_o, .argc = argc, .argv = argv, .pos = 1, .ret_exit = ret_exit
	};
	int rc = 0;

	memset(ret_o, 0, sizeof(*ret_o));
	ret_o->argc = argc;
	ret_o->argv = argv;
	*ret_exit = 0;
	while (rc == 0 && p.pos < argc) {
		const char *arg = argv[p.pos++];

		if (strcmp(arg, "--") == 0) {
			while (rc == 0 && p.pos < argc)
				rc = option_add_file(&p, argv[p.pos++]);
		} else if (arg[0] == '-' && arg[1]) {
			rc = option_apply(&p, arg);
		} else {
			rc = option_fail(&p, "unexpected argument '%s' (files come after -f or --)",
					 arg);
		}
	}
	if (rc == 0 && ret_o->n_files == 0)
		rc = option_add_file(&p, CTL_DEFAULT_CONFIG);
	if (rc != 0)
		ctl_options_free(ret_o);
	return rc;
}

void ctl_options_free(struct ctl_options *o)
{
	mem_free(o->files);
	mem_free((void *)o->old_pids);
	o->files = NULL;
	o->old_pids = NULL;
}
