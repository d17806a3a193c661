/* SPDX-License-Identifier: BSD-2-Clause */
/* The datapath as `global` has it. Part of conf/conf.h, which includes it behind what it needs; nobody else does. */
#ifndef CONF_CONF_XDP_H
#define CONF_CONF_XDP_H

#include <headgate/guard.h>
#include <headgate/steer.h>
#include <headgate/syn.h>

/* An address prefix, as many of them are kept: IPv4 in the first four bytes. Host bits are 0. */
struct conf_prefix {
	uint8_t addr[16];
	uint8_t bits;
	bool is_v6;
};
/* The order of lists of prefixes; 0: equal. */
int conf_prefix_compare(const void *a, const void *b);
struct conf_prefix conf_prefix_of(const struct addr_prefix *p);

/* `xdp guard …`, by enum hg_limit_kind. */
struct conf_xdp_limit {
	uint32_t rate; /* per second; 0: no limit */
	uint64_t burst;
};

/* "50k/s" and "60k", or no burst (p NULL). -EINVAL: no rate, -ERANGE: no such burst. */
HG_WUR int conf_limit_parse(struct str rate, struct str burst, struct conf_xdp_limit *ret);

/* The same lines in a section: of each of its services. */
struct conf_guard {
	struct conf_xdp_limit syn_rate;
	uint32_t max_conn; /* 0: no limit */
	bool has_allow; /* only for these: */
	struct conf_prefix *allow; /* in order, each once */
	unsigned n_allow;
	bool has_cookies; /* `mode l4`: agents take SYN cookies; where that stands: */
	struct conf_pos cookies_pos;
};

/* Secrets of SYN cookies, in the order of their file. */
struct conf_syn_keys {
	struct hg_syn_secret secrets[HG_SYN_SECRETS];
	uint32_t n; /* 0: none */
};
/*
 * Reads a file of them (kw_syn.c): 1 to HG_SYN_SECRETS lines of 64 hexadecimal digits. Errors as conf_read_file(), and -EINVAL
 * with the file's line and column. Any thread.
 */
HG_WUR int conf_syn_keys_read(const char *path, struct conf_syn_keys *ret, struct err *err);

/* `xdp guard syn-cookies`. */
struct conf_xdp_syn {
	uint8_t mode; /* enum hg_syn_mode */
	bool is_set;
	uint32_t rate; /* SYNs per second of a service that switch its cookies on */
	struct conf_syn_keys keys; /* none: of this host alone */
};

/* `xdp steer`. */
enum conf_steer { CONF_STEER_OFF, CONF_STEER_AUTO, CONF_STEER_CPUS };
struct conf_xdp_steer {
	uint8_t mode; /* enum conf_steer */
	bool is_set;
	uint64_t cpus[HG_STEER_MAX / 64]; /* CONF_STEER_CPUS */
};
/* `sk-steer`. */
struct conf_sk_steer {
	uint8_t mode; /* enum hg_sk_mode */
	bool is_set;
	struct conf_pos pos;
};
/* "0-3,8" into ret->cpus; -EINVAL. */
int conf_cpus_parse(struct str text, struct conf_xdp_steer *ret);
const char *conf_sk_steer_name(enum hg_sk_mode mode);

enum conf_xdp_mode { CONF_XDP_AUTO, CONF_XDP_NATIVE, CONF_XDP_GENERIC };
enum { CONF_VLAN_AUTO = 0, CONF_VLAN_KEEP = 0xffff }; /* between them: a VLAN id */
struct conf_xdp_interface {
	struct list link;
	struct conf_pos pos;
	char *name;
	uint16_t vlan; /* that frames to its own next hops leave with; auto: none */
	uint8_t mode; /* enum conf_xdp_mode */
	bool is_exclusive;
};

#endif
