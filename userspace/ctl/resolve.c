/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * First addresses of servers that are written by name, by the methods of `init-addr`: what the server had before
 * a reload, the system's resolver, an address of the line, or none (then it is in maintenance until
 * ctl/dns.c finds one). A name without an address stops the load: a server that can never answer is a
 * mistake.
 */
#include "ctl/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "ctl/server_state.h"
#include "lb/lb.h"

struct resolve {
	const struct lb_registry *running;
	const struct server_states *states;
	conf_report_fn *report;
	void *ctx;
	/* The name that was asked for last: the servers of a template all have one. */
	struct str host;
	int family, rc;
	struct addr addr;
	const char *why;
};

static int ask_libc(struct str host, int family, struct addr *ret_addr, const char **ret_why)
{
	struct addrinfo hints = { .ai_family = family, .ai_socktype = SOCK_STREAM };
	struct addrinfo *all, *best;
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
	freeaddrinfo(all);
	return 0;
}

static bool resolve_libc(struct resolve *r, struct conf_server *cs)
{
	if (cs->resolve.is_srv)
		return false; /* it knows addresses only */
	if (!r->host.p || r->family != cs->ep.family || !str_is_eq(r->host, cs->ep.host)) {
		r->host = cs->ep.host;
		r->family = cs->ep.family;
		memset(&r->addr, 0, sizeof(r->addr));
		r->rc = ask_libc(r->host, r->family, &r->addr, &r->why);
	}
	if (r->rc == 0)
		cs->ep.addr = r->addr;
	return r->rc == 0;
}

/* What the process before had. */
static bool resolve_state(const struct resolve *r, struct conf_server *cs, uint16_t *ret_port)
{
	if (!r->states || !server_states_addr(r->states, cs, &cs->ep.addr))
		return false;
	if (cs->resolve.is_srv)
		*ret_port = addr_port(&cs->ep.addr);
	return true;
}

/* What it has now, if it was the same name already. */
static bool resolve_last(struct resolve *r, struct conf_server *cs, uint16_t *ret_port)
{
	const struct server *s = r->running ? lb_find_server(r->running,
							     str_from_cstr(cs->proxy->name),
							     str_from_cstr(cs->name))
					    : NULL;

	if (!s)
		return resolve_state(r, cs, ret_port);
	if (!s->conf || s->conf->ep.kind != ENDPOINT_NAME ||
	    !str_is_eq(s->conf->ep.host, cs->ep.host) ||
	    (s->addr.sa.sa_family != AF_INET && s->addr.sa.sa_family != AF_INET6) ||
	    atomic_load(&s->admin) & SERVER_RESOLUTION_MAINT)
		return false;
	cs->ep.addr = s->addr;
	if (cs->resolve.is_srv) /* the records say which */
		*ret_port = addr_port(&s->addr);
	return true;
}

/* True: the question is settled, if only by `none`. */
static bool resolve_by(struct resolve *r, struct conf_server *cs, enum conf_init_addr method,
		       uint16_t *ret_port)
{
	switch (method) {
	case INIT_ADDR_LAST:
		return resolve_last(r, cs, ret_port);
	case INIT_ADDR_LIBC:
		return resolve_libc(r, cs);
	case INIT_ADDR_IP:
		cs->ep.addr = cs->resolve.init_ip;
		return true;
	case INIT_ADDR_NONE:
		break;
	}
	return true;
}

static unsigned methods_of(const struct resolve *r, const struct conf_server *cs,
			   uint8_t out[CONF_INIT_ADDRS])
{
	unsigned n = 0;

	if (cs->resolve.n_init) {
		memcpy(out, cs->resolve.init, sizeof(cs->resolve.init));
		return cs->resolve.n_init;
	}
	/* Without `resolvers` a reload is what looks a name up again. */
	if (cs->resolve.resolvers || r->states)
		out[n++] = INIT_ADDR_LAST;
	out[n++] = cs->resolve.is_srv ? INIT_ADDR_NONE : INIT_ADDR_LIBC;
	return n;
}

static int resolve_server(struct resolve *r, struct conf_server *cs)
{
	uint8_t methods[CONF_INIT_ADDRS];
	unsigned n = methods_of(r, cs, methods);
	uint16_t port = cs->ep.port;
	char text[384];

	if (cs->ep.kind != ENDPOINT_NAME)
		return 0;
	r->why = "no method of 'init-addr' has an address";
	for (unsigned i = 0; i < n; i++) {
		if (!resolve_by(r, cs, methods[i], &port))
			continue;
		if (cs->ep.addr.sa.sa_family)
			addr_set_port(&cs->ep.addr, port);
		return 0;
	}
	snprintf(text, sizeof(text), "server %s: cannot resolve '" STR_FMT "': %s", cs->name,
		 STR_ARG(cs->ep.host), r->why);
	r->report(r->ctx, CONF_ERROR, &cs->pos, text);
	return -ENOENT;
}

int resolve_servers(struct conf *conf, const struct lb_registry *running,
		    const struct server_states *states, conf_report_fn *report, void *ctx)
{
	struct resolve r = { .running = running, .states = states, .report = report, .ctx = ctx };
	struct list *p, *l;
	int rc = 0;

	list_for_each(p, &conf->proxies) {
		list_for_each(l, &list_entry(p, struct conf_proxy, link)->servers)
			if (resolve_server(&r, list_entry(l, struct conf_server, link)) != 0)
				rc = -ENOENT;
	}
	return rc;
}
