/* SPDX-License-Identifier: BSD-2-Clause */
/* Part of conf/conf.h: section `global`, and what its lines share with others. */
#ifndef CONF_CONF_GLOBAL_H
#define CONF_CONF_GLOBAL_H

struct conf_stats_socket {
	struct list link;
	struct conf_pos pos;
	struct endpoint ep;
	char *text; /* as written */
	uint8_t level; /* enum conf_level */
	uint8_t severity; /* enum conf_severity_output */
	bool expose_fd;
	int mode; /* permission bits, -1: default */
	int uid, gid; /* -1: unchanged */
};
enum conf_severity_output { CONF_SEVERITY_NONE, CONF_SEVERITY_NUMBER, CONF_SEVERITY_STRING };
enum conf_level { CONF_LEVEL_USER, CONF_LEVEL_OPERATOR, CONF_LEVEL_ADMIN };

struct conf_logs { /* a list of `log` lines, resolved */
	struct log_target *targets;
	unsigned n;
};

struct conf_cpu_map { /* cpu-map [auto:]<thread-set> <cpu-set>… */
	int cpu_of_thread[256]; /* -1: any; set when cpu-map gives one cpu */
	bool is_set;
};

/* `set-var proc.name …` of the global section. */
struct conf_proc_var {
	struct list link;
	uint32_t id;
	struct expr *expr; /* or */
	struct logfmt *fmt;
};

/* What HTTP/2 connections may cost (kw_h2.c); 0: not said. */
struct conf_h2 {
	uint32_t window, streams, frame, table; /* bytes of a stream; at a time; bytes; bytes and one more */
	uint32_t glitches, total; /* 0: no limit */
};

struct conf_unix_bind { /* unix-bind */
	char *prefix; /* NULL: none */
	int mode, uid, gid; /* -1: not said */
};

/* Statuses from 100 to 611, a bit each. */
struct conf_statuses {
	uint64_t bits[8];
};
static inline bool conf_statuses_have(const struct conf_statuses *s, unsigned status)
{
	unsigned i = status - 100;

	return i < 512 && s->bits[i / 64] >> i % 64 & 1;
}

/* Calls that the daemon never makes when it runs. */
enum conf_seccomp {
	CONF_SECCOMP_UNSET,
	CONF_SECCOMP_OFF,
	CONF_SECCOMP_LOG,
	CONF_SECCOMP_KILL
};

struct conf_global {
	struct conf_statuses http_err, http_fail; /* 400-499; 500-599 without 501 and 505 */
	uint32_t fd_hard_limit; /* 0: none */
	bool pp2_never_local; /* checks say PROXY in version 2, too */
	uint32_t cookie_len, log_uri_len; /* tune.http.cookielen, logurilen; 0: any length */
	struct conf_h2 h2, h2_fe, h2_be; /* both sides; towards clients, servers: conf_h2_of() */
	bool h2_no_websockets; /* clients are not told of RFC 8441 */
	bool is_daemon, is_master_worker;
	char *pidfile, *chroot, *user, *group, *node, *description, *localpeer;
	int uid, gid; /* -1: not set */
	uint8_t seccomp; /* enum conf_seccomp; unset: kill */
	unsigned nbthread; /* 0: one per usable core */
	struct conf_cpu_map cpu_map;
	uint32_t maxconn; /* 0: from the descriptor limit */
	uint32_t maxconnrate, maxsessrate, maxsslconn, maxsslrate;
	uint32_t ulimit_n;
	struct conf_logs logs;
	char *log_tag, *log_send_hostname;
	struct list stats_sockets; /* conf_stats_socket */
	struct list proc_vars; /* conf_proc_var, in their order */
	uint64_t stats_timeout;
	char *ca_base, *crt_base;
	struct conf_crt_files crt_files;
	struct conf_unix_bind unix_bind;
	uint32_t rcvbuf_client, rcvbuf_server, sndbuf_client, sndbuf_server; /* bytes; 0: the kernel's choice */
	struct str *case_names; /* h1-case-adjust: names of fields as they are to be written */
	unsigned n_case_names;
	struct conf_tls bind_tls, server_tls; /* ssl-default-bind-*, ssl-default-server-* */
	uint32_t dh_param, ssl_cachesize;
	uint32_t ssl_capture_size; /* bytes of a ClientHello that are kept; 0: none */
	uint8_t ssl_keylog; /* bool */
	uint32_t ssl_maxrecord; /* bytes; 0: as many as TLS has */
	uint64_t ssl_lifetime;
	uint32_t bufsize, maxrewrite, maxhdr, maxaccept; /* tune.*: 16384, 1024, 101, 64 when unset */
	uint32_t stick_counters; /* tune.stick-counters, 3: track-sc0 … track-sc2 */
	uint32_t comp_maxlevel; /* 1 … 9, 0: 1 */
	uint32_t maxcomprate, maxzlibmem, maxcompcpuusage; /* KiB/s, MiB, percent; 0: no limit */
	uint64_t hard_stop_after, grace;
	uint32_t spread_checks; /* percent */
	uint64_t max_spread_checks;
	char *server_state_file, *server_state_base;
	/* Headgate's own */
	struct list xdp_interfaces; /* conf_xdp_interface */
	struct addr_prefix xdp_source[2]; /* of tunnels over IPv4 and IPv6; family 0: not set */
	uint64_t xdp_hash_seed;
	uint32_t xdp_flow_entries; /* room for remembered flows; 0: by itself */
	uint32_t xdp_nat_connections; /* rows of the NAT table; 0: the default */
	struct conf_prefix *xdp_deny; /* of all deny-files, in order, each once */
	unsigned n_xdp_deny;
	struct conf_xdp_limit xdp_limits[HG_LIMIT_COUNT];
	uint32_t xdp_max_conn; /* of a source; 0: no limit */
	bool xdp_watch; /* a rule asks for a source's SYNs or drops */
	struct conf_xdp_syn xdp_syn;
	struct conf_xdp_steer xdp_steer;
	struct conf_sk_steer sk_steer;
	char *xdp_bpffs; /* where bpffs is, NULL: /sys/fs/bpf */
};
/* With defaults: what holds for one side. */
struct conf_h2 conf_h2_of(const struct conf_global *g, bool is_towards_servers);

#endif
