/* SPDX-License-Identifier: BSD-2-Clause */
/* Server names that are looked up again while the process runs (`resolvers`). Control thread. */
#ifndef CTL_DNS_H
#define CTL_DNS_H

#include <stdio.h>

#include "base/err.h"
#include "base/str.h"

/* Of each name server: field, name in `show resolvers`, name in the metrics. */
#define DNS_COUNTERS(X)                                                                        \
	X(sent, "sent", "sent") X(snd_error, "snd_error", "send_error") X(valid, "valid", "valid") \
	X(update, "update", "update") X(cname, "cname", "cname")                               \
	X(cname_error, "cname_error", "cname_error") X(any_err, "any_err", "any_err")          \
	X(nx, "nx", "nx") X(timeout, "timeout", "timeout") X(refused, "refused", "refused")    \
	X(other, "other", "other") X(invalid, "invalid", "invalid")                            \
	X(too_big, "too_big", "too_big") X(truncated, "truncated", "truncated")                \
	X(outdated, "outdated", "outdated")
struct dns_counters {
#define X(field, text, metric) uint64_t field;
	DNS_COUNTERS(X)
#undef X
};

struct ctl;
struct dns;
struct proxy_snapshot;
struct server;

HG_WUR int dns_create(struct ctl *ctl, struct dns **ret_dns); /* 0, -ENOMEM, -EIO */
void dns_destroy(struct dns *d); /* NULL is ignored */
/*
 * A new configuration: names that are wanted again go on where they were, others begin or end. 0, or an error after
 * which nothing is looked up until dns_tick() has tried again.
 */
void dns_remove(struct dns *d, struct server *s); /* a server goes, before it has no configuration any more */
HG_WUR int dns_configure(struct dns *d, const struct proxy_snapshot *snap, struct err *err);
void dns_tick(struct dns *d); /* once a second */
/* `set server fqdn`. 0, -ENOENT (no `resolvers` on its line), -ENOMEM. */
HG_WUR int dns_set_fqdn(struct dns *d, struct server *s, struct str host);
/* The name a server's address comes from, and its SRV record's name; NULL: none. */
const char *dns_fqdn_of(const struct server *s);
const char *dns_srv_of(const struct server *s);
/* `show resolvers [section]`; false: no such section. */
bool dns_show(const struct dns *d, const char *section, FILE *out);
/* Every name server, for the metrics. */
void dns_each_server(const struct dns *d,
		     void (*fn)(void *ctx, const char *section, const char *server,
				const struct dns_counters *c),
		     void *ctx);

#endif
