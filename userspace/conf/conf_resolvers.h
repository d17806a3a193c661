/* SPDX-License-Identifier: BSD-2-Clause */
/* Part of conf/conf.h: where server names are looked up while the process runs. */
#ifndef CONF_CONF_RESOLVERS_H
#define CONF_CONF_RESOLVERS_H

struct conf_nameserver {
	struct list link;
	char *id;
	struct addr addr;
	bool is_tcp; /* never over UDP */
};

/* How long the last good answer is used while newer ones say something else. */
#define CONF_HOLDS(X)                                                                    \
	X(VALID, "valid", 10) X(OBSOLETE, "obsolete", 0) X(NX, "nx", 30) X(OTHER, "other", 30) \
	X(REFUSED, "refused", 30) X(TIMEOUT, "timeout", 30)
enum conf_hold {
#define X(name, text, s) HOLD_##name,
	CONF_HOLDS(X)
#undef X
	HOLD_COUNT
};

struct conf_resolvers {
	struct list link; /* conf.resolvers */
	struct conf_pos pos; /* of the section, or of its first use */
	char *name;
	bool is_defined;
	struct list nameservers; /* conf_nameserver */
	unsigned n_nameservers;
	uint32_t retries; /* 3: questions to one name server */
	uint32_t payload; /* 512: bytes of an answer over UDP */
	uint64_t timeout_resolve, timeout_retry; /* 1 s: between lookups; until a question is asked again */
	uint64_t hold[HOLD_COUNT];
};

/* `init-addr`: where the first address comes from, in that order. */
enum conf_init_addr { INIT_ADDR_LAST, INIT_ADDR_LIBC, INIT_ADDR_NONE, INIT_ADDR_IP };
#define CONF_INIT_ADDRS 4

#define CONF_RESOLVE_NETS 5
struct conf_resolve { /* of a server that is written by name */
	struct conf_resolvers *resolvers; /* NULL: looked up once, while loading */
	char *resolvers_name;
	bool prefer_v4; /* where a name has addresses of both families; else IPv6 */
	bool allow_dup_ip, ignore_weight;
	bool is_srv; /* the name is that of SRV records: _service._protocol.domain */
	struct addr_prefix nets[CONF_RESOLVE_NETS]; /* preferred */
	unsigned n_nets;
	uint8_t init[CONF_INIT_ADDRS]; /* enum conf_init_addr */
	unsigned n_init; /* 0: last, libc; and failing both is an error */
	struct addr init_ip;
};

#endif
