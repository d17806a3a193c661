/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of name resolution share. A section has a c-ares channel per name server; a name is looked up
 * for all the servers that want it (users): every name server is asked at once, the first good answer
 * counts, as with HAProxy. Control thread only; nothing here blocks.
 */
#ifndef CTL_DNS_PRIV_H
#define CTL_DNS_PRIV_H

#include <ares.h>

#include "ctl/ctl_priv.h"
#include "ctl/dns.h"

#define DNS_MAX_RECORDS 1024 /* of one answer; what is beyond is not used */
#define DNS_HOST_MAX	256

enum dns_status { /* of a lookup; of several failures the last in this order is the one that counts */
	DNS_NONE, /* not asked yet */
	DNS_VALID,
	DNS_NODATA, /* the name exists, but has no such records */
	DNS_NX,
	DNS_OTHER,
	DNS_REFUSED,
	DNS_TIMEOUT,
};

struct dns_section;

struct dns_ns {
	struct dns_section *section;
	char *id;
	ares_channel channel;
	struct list socks; /* dns_sock */
	struct timer timer; /* c-ares' next timeout */
	struct dns_counters ctr;
};

struct dns_section {
	struct list link;
	struct dns *dns;
	char *name;
	uint64_t signature; /* of what the channels were made from */
	bool is_wanted;
	struct conf_resolvers conf; /* times and limits; its pointers are not ours */
	struct dns_ns *ns;
	unsigned n_ns;
	struct list names; /* dns_name */
};

struct dns_record {
	struct addr addr; /* A, AAAA; port 0 */
	char *target; /* SRV */
	uint16_t port, weight;
	uint64_t seen_ns;
	struct list claims; /* dns_user.claim: servers that have it */
};

/* One question of a lookup. */
struct dns_part {
	uint16_t type; /* ns_t_a, … */
	bool is_done;
	unsigned n_open; /* name servers that have not answered */
	enum dns_status status;
	struct dns_record *records; /* of the answer, until the lookup ends */
	unsigned n_records;
};

struct dns_name {
	struct list link; /* section.names */
	struct dns_section *section;
	char *host;
	bool is_srv;
	struct list users; /* dns_user.name_link or srv_link */
	struct list queries; /* under way */
	struct timer timer; /* the next lookup */
	unsigned round; /* of lookups; answers to older ones are late */
	struct dns_part parts[2];
	unsigned n_parts, n_parts_open;
	enum dns_status status;
	uint64_t valid_ns; /* when the last good answer came, or the name was first wanted */
	struct dns_ns *by; /* who gave it */
	struct dns_record *records;
	unsigned n_records;
};

/* A server whose address comes from names. */
struct dns_user {
	struct list link; /* dns.users */
	struct server *srv;
	const struct conf_server *conf;
	char *fqdn; /* by `set server fqdn`, instead of the configuration's; NULL */
	char *fqdn_of; /* what the configuration said when it was set */
	struct dns_name *name; /* of addresses; NULL: none (yet) */
	struct dns_name *srv_name; /* of SRV records; NULL: none */
	struct list name_link, srv_link;
	char target[DNS_HOST_MAX]; /* the SRV record it has; empty: none */
	uint16_t target_port;
	struct list claim; /* dns_record.claims, while a lookup is applied */
	bool is_claiming;
};

struct dns {
	struct ctl *ctl;
	struct list sections, users;
	bool wants_configure; /* memory was short: tried again by dns_tick() */
};

/* dns_query.c */
HG_WUR int dns_ns_open(struct dns_ns *ns, const struct conf_nameserver *conf, struct err *err);
void dns_ns_close(struct dns_ns *ns); /* ends its queries without answers */
void dns_ask(struct dns_ns *ns, struct dns_name *name, struct dns_part *part);
void dns_forget_queries(struct dns_name *name); /* answers that come later are nobody's */

/* dns_name.c */
/* Found or made, and looked up at once when new. NULL: out of memory. */
struct dns_name *dns_name_get(struct dns_section *sec, struct str host, bool is_srv);
void dns_name_put(struct dns_name *name); /* frees it when nobody uses it */
void dns_name_free(struct dns_name *name);
/* A name server's answer; `records` (mem_alloc) are taken. */
void dns_name_answer(struct dns_name *name, struct dns_part *part, struct dns_ns *ns,
		     enum dns_status status, struct dns_record *records, unsigned n);
void dns_records_free(struct dns_record *records, unsigned n);

/* dns_apply.c */
void dns_apply(struct dns_name *name); /* what the last lookup means for its users */
void dns_user_release(struct dns_user *u); /* its names */

#endif
