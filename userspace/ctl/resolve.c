/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Resolves the names in `server` lines by the system's resolver, as HAProxy does at start ("init-addr
 * libc"). A name without an address stops the load: a server that can never answer is a mistake.
 */
#include "ctl/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

static int resolve_name(struct str host, int family, struct addr *ret_addr, const char **ret_why)
{
	struct addrinfo hints = { .ai_family = family, .ai_socktype = SOCK_STREAM };
	struct addrinfo *all, *best;
	uint16_t port = addr_port(ret_addr);
	char name[256];
	int rc;

	if (host.len >= sizeof(name)) {
		*ret_why = "name too long";
		return -EINVAL;
	}
	memcpy(name, host.p, host.len);
	name[host.len] = '\0';
	rc = getaddrinfo(name, NULL, &hints, &all);
	if (rc != 0) {
		*ret_why = gai_strerror(rc);
		return -ENOENT;
	}
	/* IPv4 where there is a choice: reachable from everywhere a server usually is. */
	for (best = all; best && best->ai_family != AF_INET; best = best->ai_next)
		;
	if (!best)
		best = all;
	if (best->ai_family == AF_INET)
		memcpy(&ret_addr->in, best->ai_addr, sizeof(ret_addr->in));
	else
		memcpy(&ret_addr->in6, best->ai_addr, sizeof(ret_addr->in6));
	addr_set_port(ret_addr, port);
	freeaddrinfo(all);
	return 0;
}

static int resolve_server(struct conf_server *cs, conf_report_fn *report, void *ctx)
{
	struct addr a = { .in.sin_family = AF_INET };
	const char *why = "";
	char text[384];

	if (cs->ep.kind != ENDPOINT_NAME)
		return 0;
	addr_set_port(&a, cs->ep.port);
	if (resolve_name(cs->ep.host, cs->ep.family, &a, &why) != 0) {
		snprintf(text, sizeof(text), "server %s: cannot resolve '" STR_FMT "': %s",
			 cs->name, STR_ARG(cs->ep.host), why);
		report(ctx, CONF_ERROR, &cs->pos, text);
		return -ENOENT;
	}
	cs->ep.addr = a;
	return 0;
}

int resolve_servers(struct conf *conf, conf_report_fn *report, void *ctx)
{
	struct list *p, *l;
	int rc = 0;

	list_for_each(p, &conf->proxies) {
		list_for_each(l, &list_entry(p, struct conf_proxy, link)->servers)
			if (resolve_server(list_entry(l, struct conf_server, link), report, ctx) !=
			    0)
				rc = -ENOENT;
	}
	return rc;
}
