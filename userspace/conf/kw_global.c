/* SPDX-License-Identifier: BSD-2-Clause */
/* Keywords of `global`: process, limits, statistics socket. Rows; the few that need code are below. */
#include <errno.h>
#include <headgate/limits.h>

#include "conf/kw_action_priv.h"

#define AT(field) .offset = offsetof(struct conf_global, field)
#define G	  SEC_GLOBAL

static int parse_user(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_global *g = obj;
	bool is_group = kw->min;
	char **name = is_group ? &g->group : &g->user;
	int *id = is_group ? &g->gid : &g->uid;

	*name = (char *)line_peek(l).p;
	return is_group ? arg_group(ps, l, id) : arg_user(ps, l, id);
}

static int parse_nbproc(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	uint64_t n;
	int r = arg_u64(ps, l, 1, 4096, &n);

	if (r)
		return r;
	return conf_warn(ps, l, l->kw,
			 "'nbproc' no longer exists: workers are threads here, one per usable core "
			 "('nbthread %llu' gives this many)",
			 (unsigned long long)(n > HG_MAX_CPUS ? HG_MAX_CPUS : n));
}

static int parse_master_worker(struct parser *ps, struct line *l, void *obj,
			       const struct keyword *kw)
{
	struct conf_global *g = obj;

	g->is_master_worker = !l->is_negated;
	line_accept(l, "no-exit-on-failure");
	return 0;
}

static int parse_log_send_hostname(struct parser *ps, struct line *l, void *obj,
				   const struct keyword *kw)
{
	struct conf_global *g = obj;

	/* Without a name: the system's, which start-up knows. */
	g->log_send_hostname = line_has(l) ? (char *)l->words[l->at++].p : (char *)"";
	return 0;
}

static int parse_zero_warning(struct parser *ps, struct line *l, void *obj,
			      const struct keyword *kw)
{
	ps->is_zero_warning = true;
	return 0;
}

/* --- cpu-map ----------------------------------------------------------------------------------- */

#define CPU_SET_MAX 1024

struct number_set {
	unsigned n;
	uint16_t at[CPU_SET_MAX]; /* ascending within each word */
};

/* "3", "0-7", "0-3,8", "all", "odd", "even"; numbers from lo to hi. 0 or -EINVAL. */
static int add_numbers(struct number_set *set, struct str text, unsigned lo, unsigned hi)
{
	bool is_all = str_is_eq(text, STR("all")), is_odd = str_is_eq(text, STR("odd"));

	if (is_all || is_odd || str_is_eq(text, STR("even"))) {
		for (unsigned i = lo; i <= hi && set->n < CPU_SET_MAX; i++) {
			if (is_all || (i & 1) == is_odd)
				set->at[set->n++] = (uint16_t)i;
		}
		return 0;
	}
	while (text.p) {
		struct str item = str_cut(&text, ',');
		uint64_t from, to;

		if (str_to_u64(str_cut(&item, '-'), &from))
			return -EINVAL;
		to = from;
		if ((item.p && str_to_u64(item, &to)) || from < lo || to > hi || to < from)
			return -EINVAL;
		for (uint64_t i = from; i <= to && set->n < CPU_SET_MAX; i++)
			set->at[set->n++] = (uint16_t)i;
	}
	return 0;
}

/*
 * cpu-map [auto:]<group>[/<threads>] <cpus>…: without a slash the first field is the old form, one
 * process after the other: process n was what thread n is now, unless it is the one group there is.
 */
static int parse_cpu_map(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_cpu_map *map = &((struct conf_global *)obj)->cpu_map;
	struct number_set *threads = arena_zalloc(&ps->arena, sizeof(*threads));
	struct number_set *cpus = arena_zalloc(&ps->arena, sizeof(*cpus));
	struct str set, rest;
	bool is_auto;
	int r;

	if (!threads || !cpus)
		return -ENOMEM;
	r = line_want(ps, l, "a set of threads such as 1-4 or auto:1/1-4", &set);
	if (r)
		return r;
	is_auto = str_is_prefix(set, STR("auto:"));
	rest = is_auto ? str_from(set, 5) : set;
	if (str_find_char(rest, '/') != SIZE_MAX)
		str_cut(&rest, '/');
	if (add_numbers(threads, rest, 1, HG_MAX_CPUS) || !threads->n)
		return conf_fail(ps, l, l->at - 1,
				 "'cpu-map' expects threads from 1 to %d, such as 1-4 or "
				 "auto:1/1-4, instead "
				 "of '" STR_FMT "'",
				 HG_MAX_CPUS, (int)(set.len > 64 ? 64 : set.len), set.p);
	do {
		r = line_want(ps, l, "a set of CPUs such as 0-3", &set);
		if (r)
			return r;
		if (add_numbers(cpus, set, 0, CPU_SET_MAX - 1))
			return conf_fail(ps, l, l->at - 1,
					 "'cpu-map' expects CPUs such as 0-3 instead of '" STR_FMT
					 "'",
					 (int)(set.len > 64 ? 64 : set.len), set.p);
	} while (line_has(l));
	if (!is_auto && str_is_eq(rest, STR("1")) && rest.len == l->words[1].len && cpus->n > 1)
		(void)!add_numbers((threads->n = 0, threads), STR("all"), 1, HG_MAX_CPUS);
	if (is_auto && threads->n != cpus->n)
		return conf_fail(ps, l, 1,
				 "'auto:' expects as many threads as CPUs: these are %u and %u",
				 threads->n, cpus->n);
	map->is_set = true;
	for (unsigned i = 0; i < threads->n; i++)
		map->cpu_of_thread[threads->at[i] - 1] = cpus->at[i % cpus->n];
	return 0;
}

/* --- http-err-codes, http-fail-codes ------------------------------------------------------------- */

static int bad_statuses(struct parser *ps, struct line *l, struct str word)
{
	return conf_fail(ps, l, l->at - 1,
			 "expected statuses from 100 to 599 such as 404, 400-499, +501 or -505 "
			 "instead of '" STR_FMT "'",
			 STR_ARG(str_sub(word, 0, 64)));
}

/* Words without a sign take the place of what counted before; with one they add to it or take from it. */
static int parse_statuses(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_statuses *s = (struct conf_statuses *)((char *)obj + kw->offset);
	bool is_new = false;
	struct str word;
	int r;

	do {
		char sign = 0;

		r = line_want(ps, l, "statuses such as 400-499, +501 or -505", &word);
		if (r)
			return r;
		for (struct str rest = word; rest.p;) {
			struct str item = str_cut(&rest, ',');
			uint64_t from, to;

			if (item.len && (item.p[0] == '+' || item.p[0] == '-')) {
				sign = item.p[0];
				item = str_from(item, 1);
			}
			if (str_to_u64(str_cut(&item, '-'), &from))
				return bad_statuses(ps, l, word);
			to = from;
			if ((item.p && str_to_u64(item, &to)) || from < 100 || to > 599 ||
			    to < from)
				return bad_statuses(ps, l, word);
			if (!sign && !is_new)
				*s = (struct conf_statuses){ { 0 } };
			is_new |= !sign;
			for (uint64_t i = from - 100; i <= to - 100; i++) {
				if (sign == '-')
					s->bits[i / 64] &= ~(1ull << i % 64);
				else
					s->bits[i / 64] |= 1ull << i % 64;
			}
		}
	} while (line_has(l));
	return 0;
}

/* --- table ------------------------------------------------------------------------------------- */

static const struct keyword stats_rows[] = {
	{ NAME("socket"), G, ARG_FUNC, .grade = '1', .parse = parse_stats_socket,
	  .args = "<address> [level user|operator|admin] [mode <m>] [user <u>] [group <g>] ...",
	  .help = "where the runtime API listens" },
	{ NAME("timeout"), G, ARG_TIME, AT(stats_timeout), .grade = '1', .args = "<time>",
	  .def = "10s", .help = "idle connections to the runtime API are closed after this" },
	{ NAME("maxconn"), G, ARG_NOOP, .grade = 'n', .args = "<n>",
	  .help = "accepted: the runtime API has no such limit" },
};
static const struct keyword_table stats_table = KEYWORDS("statistics keyword", stats_rows);

static const struct keyword_value seccomps[] = { VALUE("off", CONF_SECCOMP_OFF),
						 VALUE("log", CONF_SECCOMP_LOG),
						 VALUE("kill", CONF_SECCOMP_KILL), VALUES_END };

static const struct keyword rows[] = {
	{ NAME("daemon"), G, ARG_FLAG, KW_NO, AT(is_daemon), .grade = '1',
	  .help = "run in the background" },
	{ NAME("master-worker"), G, ARG_FUNC, KW_NO, .parse = parse_master_worker, .grade = '1',
	  .help = "a master restarts a crashed worker process" },
	{ NAME("pidfile"), G, ARG_STRING, AT(pidfile), .grade = '1', .args = "<file>",
	  .help = "file that gets the process's number" },
	{ NAME("chroot"), G, ARG_STRING, AT(chroot), .grade = '1', .args = "<directory>",
	  .help = "root directory after start-up" },
	{ NAME("user"), G, ARG_FUNC, .parse = parse_user, .grade = '1', .args = "<name>",
	  .help = "user to become after start-up" },
	{ NAME("group"), G, ARG_FUNC, .parse = parse_user, .min = 1, .grade = '1', .args = "<name>",
	  .help = "group to become after start-up" },
	{ NAME("uid"), G, ARG_INT, AT(uid), NUMBER(0, INT32_MAX), .grade = '1', .args = "<number>",
	  .help = "the same by number" },
	{ NAME("gid"), G, ARG_INT, AT(gid), NUMBER(0, INT32_MAX), .grade = '1', .args = "<number>",
	  .help = "the same by number" },
	{ NAME("seccomp"), G, ARG_ENUM, AT(seccomp), .values = seccomps, .grade = '1',
	  .args = "off|log|kill", .def = "kill",
	  .help = "what a system call meets that the daemon never makes when it runs: nothing, a "
		  "line in the kernel's log, or the end of the process" },
	{ NAME("node"), G, ARG_STRING, AT(node), .grade = '1', .args = "<name>",
	  .help = "name of this host in statistics" },
	{ NAME("description"), G, ARG_REST, AT(description), .grade = '1', .args = "<text>",
	  .help = "text for statistics" },
	{ NAME("localpeer"), G, ARG_STRING, AT(localpeer), .grade = '2', .args = "<name>",
	  .help = "name of this host among its peers" },
	{ NAME("nbthread"), G, ARG_UINT, AT(nbthread), NUMBER(1, HG_MAX_CPUS), .grade = '1',
	  .args = "<number>", .def = "one per usable core", .help = "number of workers" },
	{ NAME("nbproc"), G, ARG_FUNC, .parse = parse_nbproc, .grade = 'n', .args = "<number>",
	  .help = "accepted with a warning: workers are threads" },
	{ NAME("cpu-map"), G, ARG_FUNC, .parse = parse_cpu_map, .grade = '1',
	  .args = "[auto:][<group>/]<threads> <cpus>...",
	  .help = "which core each worker runs on" },
	{ NAME("maxconn"), G, ARG_UINT, AT(maxconn), .grade = '1', .args = "<number>",
	  .def = "from the limit of descriptors", .help = "connections of all frontends together" },
	{ NAME("maxcomprate"), G, ARG_UINT, AT(maxcomprate), .grade = '2', .args = "<kB/s>",
	  .help = "bytes per second that are given to compression; what comes above is sent as it "
		  "is" },
	{ NAME("maxcompcpuusage"), G, ARG_UINT, AT(maxcompcpuusage), NUMBER(1, 100), .grade = '2',
	  .args = "<percent>", .def = "100",
	  .help = "workers that are awake for longer do not compress" },
	{ NAME("maxzlibmem"), G, ARG_UINT, AT(maxzlibmem), NUMBER(0, 65536), .grade = '2',
	  .args = "<MB>", .help = "memory of compression, about 270 kB for each response" },
	{ NAME("tune.comp.maxlevel"), G, ARG_UINT, AT(comp_maxlevel), NUMBER(1, 9), .grade = '2',
	  .args = "<number>", .def = "1", .help = "effort of compression, 1 to 9" },
	{ NAME("maxconnrate"), G, ARG_UINT, AT(maxconnrate), .grade = '2', .args = "<number>",
	  .help = "connections accepted per second; further ones wait in the backlog" },
	{ NAME("maxsessrate"), G, ARG_UINT, AT(maxsessrate), .grade = '2', .args = "<number>",
	  .help = "the same, of those that 'tcp-request connection' rules have admitted" },
	{ NAME("maxsslconn"), G, ARG_UINT, AT(maxsslconn), .grade = '2', .args = "<number>",
	  .help = "TLS connections, to clients and to servers together; when there are so many, "
		  "further clients of TLS listeners wait in the backlog" },
	{ NAME("maxsslrate"), G, ARG_UINT, AT(maxsslrate), .grade = '2', .args = "<number>",
	  .help = "the same, of TLS listeners" },
	{ NAME("ulimit-n"), G, ARG_UINT, AT(ulimit_n), .grade = '1', .args = "<number>",
	  .help = "limit of open descriptors" },
	{ NAME("log-tag"), G, ARG_STRING, AT(log_tag), .grade = '1', .args = "<tag>",
	  .def = "the program's name", .help = "tag of log lines" },
	{ NAME("log-send-hostname"), G, ARG_FUNC, .parse = parse_log_send_hostname, .grade = '1',
	  .args = "[<name>]", .help = "host name in log lines" },
	{ NAME("stats"), G, ARG_SUB, .sub = &stats_table, .grade = '1', .help = "the runtime API" },
	{ NAME("hard-stop-after"), G, ARG_TIME, AT(hard_stop_after), .grade = '1', .args = "<time>",
	  .help = "a soft stop, or the old state after a reload, ends after this at the latest" },
	{ NAME("grace"), G, ARG_TIME, AT(grace), .grade = '2', .args = "<time>",
	  .help = "a soft stop begins so much later; 'stopping' is true from the signal on" },
	{ NAME("fd-hard-limit"), G, ARG_UINT, AT(fd_hard_limit), NUMBER(64, INT32_MAX),
	  .grade = '2', .args = "<number>",
	  .help = "without 'maxconn' and 'ulimit-n': no more descriptors than this, whatever the "
		  "system allows" },
	{ NAME("pp2-never-send-local"), G, ARG_FLAG, AT(pp2_never_local), .grade = '2',
	  .help = "health checks with a PROXY header of version 2 say PROXY instead of LOCAL, for "
		  "servers that do not know that" },
	{ NAME("http-err-codes"), G, ARG_FUNC, .parse = parse_statuses,
	  .offset = offsetof(struct conf_global, http_err), .grade = '2',
	  .args = "[+|-]<status>[-<status>][,...] ...", .def = "400-499",
	  .help = "which answers of servers count in http_err_cnt of stick tables" },
	{ NAME("http-fail-codes"), G, ARG_FUNC, .parse = parse_statuses,
	  .offset = offsetof(struct conf_global, http_fail), .grade = '2',
	  .args = "[+|-]<status>[-<status>][,...] ...", .def = "500-599 -501,505",
	  .help = "which count in http_fail_cnt, and for 'observe layer7'" },
	{ NAME("tune.http.cookielen"), G, ARG_UINT, AT(cookie_len), NUMBER(1, 65535), .grade = '2',
	  .args = "<number>", .help = "longest value of 'capture cookie'" },
	{ NAME("tune.http.logurilen"), G, ARG_UINT, AT(log_uri_len), NUMBER(1, INT32_MAX),
	  .grade = '2', .args = "<number>", .help = "so much of a request's first line is logged" },
	{ NAME("spread-checks"), G, ARG_UINT, AT(spread_checks), NUMBER(0, 50), .grade = '2',
	  .args = "<percent>", .help = "variation of the interval between health checks" },
	{ NAME("max-spread-checks"), G, ARG_TIME, AT(max_spread_checks), .grade = '2',
	  .args = "<time>", .help = "longest delay of the first health checks" },
	{ NAME("server-state-file"), G, ARG_STRING, AT(server_state_file), .grade = '2',
	  .args = "<file>", .help = "what 'show servers state' printed: where servers begin" },
	{ NAME("server-state-base"), G, ARG_STRING, AT(server_state_base), .grade = '2',
	  .args = "<directory>", .help = "directory of such files, for relative names" },
	{ NAME("tune.bufsize"), G, ARG_SIZE, AT(bufsize), NUMBER(1024, 1 << 24), .grade = '1',
	  .args = "<size>", .def = "16384", .help = "buffer of each direction of a stream" },
	{ NAME("tune.maxrewrite"), G, ARG_SIZE, AT(maxrewrite), NUMBER(0, 1 << 20), .grade = '1',
	  .args = "<size>", .def = "1024", .help = "room kept for added header fields" },
	{ NAME("tune.http.maxhdr"), G, ARG_UINT, AT(maxhdr), NUMBER(1, 32767), .grade = '1',
	  .args = "<number>", .def = "101", .help = "header fields of one message" },
	{ NAME("tune.maxaccept"), G, ARG_UINT, AT(maxaccept), NUMBER(1, 65535), .grade = '2',
	  .args = "<number>", .def = "64", .help = "connections accepted in one go" },
	{ NAME("tune.stick-counters"), G, ARG_UINT, AT(stick_counters),
	  NUMBER(0, CONF_STICK_COUNTERS_MAX), .grade = '2', .args = "<number>", .def = "3",
	  .help = "entries that one stream may track: track-sc0 and so on" },
	{ NAME("h2-workaround-bogus-websocket-clients"), G, ARG_FLAG, AT(h2_no_websockets),
	  .grade = '2', .help = "clients are not told that HTTP/2 carries WebSockets" },
	{ NAME("default-path"), G, ARG_FUNC, .parse = parse_default_path, .grade = '2',
	  .args = "current|config|parent|origin <path>", .def = "current",
	  .help = "where relative names of files begin in the lines that follow: the process's "
		  "directory, that of the file they stand in, the one above that, <path>" },
	{ NAME("zero-warning"), G, ARG_FUNC, .parse = parse_zero_warning, .grade = '2',
	  .help = "any warning makes loading fail" },
};

static const char *const noop[] = {
	"expose-experimental-directives",
	"expose-deprecated-directives",
	"thread-groups",
	"thread-group",
	"set-dumpable",
	"insecure-fork-wanted",
	"insecure-setuid-wanted",
	"tune.memory.*",
	"tune.pool*",
	"tune.fd.*",
	"tune.epoll*",
	"tune.sched*",
	"tune.idle-pool.shared",
	"tune.idletimer",
	"tune.runqueue-depth",
	"tune.maxpollevents",
	"tune.listener.*",
	"tune.pipesize",
	"tune.recv_enough",
	"tune.buffers.*",
	"tune.ssl.hard-maxrecord",
	"tune.applet.*",
	"tune.ring.*",
	"tune.cli.*",
	"tune.notsent-lowat.*",
	"tune.pattern.cache-size",
	"tune.vars.*",
	"tune.sample.*",
	"tune.max-checks-per-thread",
	"tune.renice.*",
	"tune.takeover-other-tg-connections",
	"tune.disable-zero-copy-forwarding",
	"tune.disable-fast-forward",
	"tune.pt.*",
	"tune.h1.*",
	"numa-cpu-mapping",
	"cpu-policy",
	"cpu-set",
	"quiet",
	"noepoll",
	"nopoll",
	"nokqueue",
	"noevports",
	"nosplice",
	"nogetaddrinfo",
	"busy-polling",
	"strict-limits",
	"mworker-max-reloads",
	"warn-blocked-traffic-after",
	"no-memory-trimming",
	"no-quic",
	"harden.*",
	"stress-level",
	"dns-accept-family",
	"force-cfg-parser-pause",
	"ssl-skip-self-issued-ca",
	"maxpipes",
	"h1-accept-payload-with-any-method",
	"tune.zlib.*",
	NULL,
};
static const char *const pending[] = {

	"close-spread-time", "noreuseport",

	"tune.peers.*",	     "tune.maxconn", "limited-quic", "tune.defaults.purge", NULL,
};
static const char *const refused[] = {
	"lua-*",	  "tune.lua.*",	   "tune.quic.*",	 "deviceatlas-*",
	"51degrees-*",	  "wurfl-*",	   "ocsp-update.*",	 "httpclient.*",
	"acme.*",	  "jwt.*",	   "external-check",	 "shm-stats-file*",
	"stats-file",	  "profiling.*",   "ssl-engine",	 "ssl-mode-async",
	"ssl-provider*",  "ssl-propquery", "ssl-security-level", "trace*",
	"cluster-secret", "anonkey",	   "ssl-passphrase-cmd", NULL,
};
static const struct keyword_removed removed[] = {
	{ "bind-process", "'cpu-map'" },
	{ "debug", "the option -d of the command line" },
	{ "tune.chksize", "'tune.bufsize'" },
	{ "noreuseaddr", "nothing: it had no effect" },
	{ "tune.fail-alloc", "nothing: it was for developers" },
	{ NULL, NULL },
};

const struct keyword_table conf_kw_global = KEYWORDS(
	"keyword", rows, .noop = noop, .pending = pending, .refused = refused, .removed = removed);
