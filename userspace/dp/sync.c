/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Desired minus actual. From configuration and server states to services, Maglev tables and
 * backends, in the order that makes every intermediate state valid for a packet that comes right
 * then: backends first, then the table that names them, then the service that names the table;
 * removals after that, in reverse.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>

#include "dp/dp_priv.h"
#include "lb/maglev.h"

struct sync {
	struct dp *dp;
	const struct conf *conf;
	struct lb_backend *const *backends;
	struct err *err;
};

/* --- tables ------------------------------------------------------------------------------------------- */

int dp_table_fill(struct hg_slot_block *blocks, uint32_t slots, const struct dp_member *m,
		  unsigned n)
{
	struct maglev_backend *in = mem_alloc((n + 1) * sizeof(*in));
	uint16_t *table = mem_zalloc(slots * sizeof(*table));
	int rc = -ENOMEM;

	if (in && table) {
		for (unsigned i = 0; i < n; i++)
			in[i] = (struct maglev_backend){ .key = m[i].key,
							 .weight = m[i].weight,
							 .id = m[i].id };
		rc = maglev_fill(in, n, table, slots);
	}
	for (uint32_t i = 0; rc == 0 && i < slots; i++)
		blocks[i / HG_SLOTS_PER_BLOCK].slot[i % HG_SLOTS_PER_BLOCK] =
			HG_SLOT_MAKE(table[i], table[i]);
	mem_free(table);
	mem_free(in);
	return rc;
}

static uint64_t members_signature(const struct dp_member *m, unsigned n, uint32_t slots)
{
	uint64_t h = slots;

	for (unsigned i = 0; i < n; i++)
		h = hg_mix64(h ^ m[i].key, (uint64_t)m[i].weight << 16 | m[i].id);
	return h | 1; /* 0 means: never filled */
}

/* --- backends -------------------------------------------------------------------------------------------- */

static bool backend_is(const struct dp_backend *b, const struct conf_server *cs)
{
	return b->server_name && strcmp(b->server_name, cs->name) == 0 &&
	       strcmp(b->service_name, cs->proxy->name) == 0;
}

/* The id of this server: the one it had; else one that an earlier process gave that address; else a new one. */
static int backend_find(struct dp *dp, const struct conf_server *cs, const struct addr *a,
			uint32_t *ret_id)
{
	uint32_t adopted = 0, unused = 0;

	for (uint32_t id = 1; id < dp->t.max_backends; id++) {
		const struct dp_backend *b = &dp->backends[id];

		if (b->is_used && addr_is_ip_eq(&b->addr, a)) {
			if (backend_is(b, cs)) {
				*ret_id = id;
				return 0;
			}
			if (!b->server_name && !adopted)
				adopted = id;
		}
		if (!b->is_used && (!unused || b->free_at_ns < dp->backends[unused].free_at_ns))
			unused = id;
	}
	*ret_id = adopted ? adopted : unused;
	return *ret_id ? 0 : -ENOSPC;
}

/* Kept for the next process, which knows nothing of our health checks when it adopts. */
static void backend_set_alive(struct hg_backend *row, bool is_alive)
{
	uint8_t flags = is_alive ? row->flags | HG_BE_ALIVE : row->flags & (uint8_t)~HG_BE_ALIVE;

	__atomic_store_n(&row->flags, flags, __ATOMIC_RELEASE);
}

bool dp_was_down(struct dp *dp, const struct addr *a)
{
	for (uint32_t id = 1; dp->is_adopted && dp->backends && id < dp->t.max_backends; id++) {
		const struct dp_backend *b = &dp->backends[id];

		if (b->is_used && !b->server_name && addr_is_ip_eq(&b->addr, a))
			return !(dp->t.backends[id].flags & HG_BE_ALIVE);
	}
	return false;
}

static int backend_write(struct sync *s, const struct conf_server *cs, const struct addr *a,
			 uint32_t id)
{
	struct dp_backend *b = &s->dp->backends[id];
	struct hg_backend *row = &s->dp->t.backends[id];
	bool is_new = !b->is_used;

	if (!b->server_name) {
		b->service_name = mem_strdup(str_from_cstr(cs->proxy->name));
		b->server_name = mem_strdup(str_from_cstr(cs->name));
		if (!b->service_name || !b->server_name)
			return -ENOMEM;
	}
	b->addr = *a;
	addr_set_port(&b->addr, 0);
	b->is_used = true;
	b->is_wanted = true;
	if (!is_new)
		return 0;
	dp_backend_wait_free(s->dp, id);
	memset(row, 0, sizeof(*row));
	addr_to_v6_mapped(a, (uint8_t *)row->addr);
	row->id = id;
	row->flags = HG_BE_VALID | HG_BE_ALIVE | (a->sa.sa_family == AF_INET6 ? HG_BE_OUTER_V6 : 0);
	dp_backend_resolve(s->dp, id);
	return 0;
}

/* Which servers share the traffic: the usable ones, and backups only when no other is left. */
static bool takes_part(const struct lb_backend *be, const struct server *srv)
{
	bool has_active = atomic_load(&be->n_active) > 0;

	return server_is_eligible(srv) && srv->is_backup == !has_active;
}

static int proxy_members(struct sync *s, const struct conf_proxy *px, struct dp_member *m,
			 unsigned *ret_n)
{
	const struct lb_backend *be = s->backends[px->index];
	struct list *l;

	*ret_n = 0;
	list_for_each(l, &px->servers) {
		const struct conf_server *cs = list_entry(l, struct conf_server, link);
		const struct server *srv = be->servers[cs->pos_in_backend];
		struct addr a = srv->addr.sa.sa_family ? srv->addr : cs->ep.addr;
		uint8_t raw[16];
		uint64_t w[2];
		uint32_t id;
		int rc;

		if (!a.sa.sa_family)
			continue; /* a name that is not resolved yet */
		rc = backend_find(s->dp, cs, &a, &id);
		if (rc == 0)
			rc = backend_write(s, cs, &a, id);
		if (rc != 0)
			return err_set(s->err, rc, "section %s, server %s: %s", px->name, cs->name,
				       rc == -ENOSPC ? "no room for more backends: restart to make "
						       "the tables larger"
						     : "out of memory");
		backend_set_alive(&s->dp->t.backends[id], server_is_usable(srv));
		if (!takes_part(be, srv))
			continue;
		addr_to_v6_mapped(&a, raw);
		memcpy(w, raw, sizeof(w));
		/* The address alone: the same table on every host of a fleet, whatever the names there. */
		m[*ret_n] = (struct dp_member){ .key = hg_mix64(w[0], w[1]),
						.id = (uint16_t)id,
						.weight = atomic_load(&srv->uweight) };
		for (unsigned i = 0; i < *ret_n; i++)
			if (m[i].key == m[*ret_n].key)
				m[*ret_n].key = hg_mix64(m[*ret_n].key, *ret_n);
		(*ret_n)++;
	}
	return 0;
}

/* --- services -------------------------------------------------------------------------------------------- */

static uint8_t mode_of(const struct conf_proxy *px)
{
	static const uint8_t modes[] = {
		[FORWARD_NONE] = HG_MODE_LOCAL, [FORWARD_IPIP] = HG_MODE_IPIP,
		[FORWARD_GUE] = HG_MODE_GUE,	[FORWARD_L2] = HG_MODE_L2,
		[FORWARD_NAT] = HG_MODE_NAT,
	};

	return px->mode == CONF_MODE_L4 ? modes[px->forward] : HG_MODE_LOCAL;
}

static uint8_t flags_of(const struct conf_proxy *px)
{
	static const uint8_t flags[] = {
		[AFFINITY_SOURCE] = HG_SVC_NO_PORT_HASH,
		[AFFINITY_NONE] = HG_SVC_NO_AFFINITY,
	};

	return px->affinity < ARRAY_SIZE(flags) ? flags[px->affinity] : 0;
}

static int service_want(struct sync *s, const struct conf_proxy *px, const struct hg_service_key *k,
			uint8_t mode, uint8_t flags, struct dp_service **ret_svc)
{
	struct dp_service *svc = dp_service_find(s->dp, k);
	int rc = 0;

	if (!svc) {
		rc = dp_service_take(s->dp, k, &svc);
		s->dp->are_services_dirty = true;
	}
	if (rc == 0 && (!svc->name || strcmp(svc->name, px->name) != 0)) {
		mem_free(svc->name);
		svc->name = mem_strdup(str_from_cstr(px->name));
		rc = svc->name ? 0 : -ENOMEM;
	}
	if (rc != 0)
		return err_set(
			s->err, rc, "section %s: %s", px->name,
			rc == -ENOSPC
				? "no room for more services: restart to make the tables larger"
				: "out of memory");
	if (svc->row.mode != mode || svc->row.flags != flags) {
		svc->row.mode = mode;
		svc->row.flags = flags;
		s->dp->are_services_dirty = true;
	}
	svc->is_wanted = true;
	*ret_svc = svc;
	return 0;
}

/* A new table beside the old one when members or weights changed; all services of a section share it in content, not in memory. */
static int service_table(struct sync *s, struct dp_service *svc, const struct conf_proxy *px,
			 const struct dp_member *m, unsigned n)
{
	uint32_t slots = px->maglev_table_size ? px->maglev_table_size
					       : maglev_table_size(px->n_servers);
	uint64_t signature = members_signature(m, n, slots);
	uint32_t start = 0;
	int rc;

	if (svc->signature == signature)
		return 0;
	if (n == 0)
		slots = 0;
	if (slots) {
		rc = dp_range_take(s->dp, dp_blocks_of(slots), &start);
		if (rc != 0)
			return err_set(s->err, rc,
				       "section %s: no room for a table of %u slots: restart to "
				       "make it larger",
				       px->name, slots);
		rc = dp_table_fill(s->dp->t.slots + start, slots, m, n);
		if (rc != 0) {
			dp_range_give(s->dp, start, dp_blocks_of(slots));
			return err_set(s->err, rc,
				       "section %s: cannot fill the table of %u slots: %s",
				       px->name, slots,
				       rc == -ENOMEM ? "out of memory" : "more servers than slots");
		}
	}
	dp_range_give(s->dp, svc->row.slots_block, dp_blocks_of(svc->row.slots));
	svc->row.slots_block = start;
	svc->row.slots = slots;
	svc->signature = signature;
	s->dp->are_services_dirty = true;
	return 0;
}

static int sync_service(struct sync *s, const struct conf_proxy *px, const struct conf_bind *b,
			const struct addr *a, const struct dp_member *m, unsigned n)
{
	struct hg_service_key k = { .proto = b->ep.is_dgram ? IPPROTO_UDP : IPPROTO_TCP,
				    .port = htons(b->ep.port) };
	struct dp_service *svc = NULL;
	int rc;

	addr_to_v6_mapped(a, (uint8_t *)k.addr);
	rc = service_want(s, px, &k, mode_of(px), flags_of(px), &svc);
	if (rc == 0 && px->mode == CONF_MODE_L4)
		rc = service_table(s, svc, px, m, n);
	return rc;
}

/*
 * The address of an L4 service as such: XDP answers echo requests to it, because nobody on this host
 * would.
 */
static int sync_address(struct sync *s, const struct conf_proxy *px, const struct addr *a)
{
	struct hg_service_key k = {
		.proto = a->sa.sa_family == AF_INET6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP,
	};
	struct dp_service *svc = NULL;

	addr_to_v6_mapped(a, (uint8_t *)k.addr);
	return service_want(s, px, &k, HG_MODE_ADDR, 0, &svc);
}

/* A wildcard bind of the L7 tier is a service on each address this host has now. */
static int sync_wildcard(struct sync *s, const struct conf_proxy *px, const struct conf_bind *b)
{
	struct ifaddrs *all, *i;
	int rc = 0;

	if (getifaddrs(&all) != 0)
		return 0; /* counted as "not ours" then, served all the same */
	for (i = all; i && rc == 0; i = i->ifa_next) {
		struct addr a = { 0 };

		if (!i->ifa_addr)
			continue;
		if (i->ifa_addr->sa_family == AF_INET)
			memcpy(&a.in, i->ifa_addr, sizeof(a.in));
		else if (i->ifa_addr->sa_family == AF_INET6 && b->ep.addr.sa.sa_family == AF_INET6)
			memcpy(&a.in6, i->ifa_addr, sizeof(a.in6));
		else
			continue;
		rc = sync_service(s, px, b, &a, NULL, 0);
	}
	freeifaddrs(all);
	return rc;
}

static int sync_proxy(struct sync *s, const struct conf_proxy *px)
{
	struct dp_member *m = NULL;
	unsigned n = 0;
	struct list *l;
	int rc = 0;

	if (px->is_disabled || list_is_empty(&px->binds))
		return 0;
	if (px->mode == CONF_MODE_L4) {
		m = mem_alloc((px->n_servers + 1) * sizeof(*m));
		rc = m ? proxy_members(s, px, m, &n) : err_set(s->err, -ENOMEM, "out of memory");
	}
	list_for_each(l, &px->binds) {
		const struct conf_bind *b = list_entry(l, struct conf_bind, link);

		if (rc != 0 || b->ep.kind != ENDPOINT_IP)
			continue;
		if (px->mode != CONF_MODE_L4 && addr_is_any(&b->ep.addr))
			rc = sync_wildcard(s, px, b);
		else
			rc = sync_service(s, px, b, &b->ep.addr, m, n);
		if (rc == 0 && px->mode == CONF_MODE_L4)
			rc = sync_address(s, px, &b->ep.addr);
	}
	mem_free(m);
	return rc;
}

static void sync_unwanted_services(struct dp *dp)
{
	for (uint32_t i = 0; i < dp->t.max_services; i++) {
		if (!dp->services[i].is_used || dp->services[i].is_wanted)
			continue;
		/* Off the list now; its table is free for others after the grace time that follows the flip. */
		dp_service_drop(dp, &dp->services[i]);
		dp->are_services_dirty = true;
	}
}

int dp_sync(struct dp *dp, const struct conf *c, struct lb_backend *const *backends,
	    struct err *err)
{
	struct sync s = { .dp = dp, .conf = c, .backends = backends, .err = err };
	struct list *l;
	int rc = 0;

	if (!dp->services)
		return 0; /* stats_only */
	for (uint32_t i = 0; i < dp->t.max_services; i++)
		dp->services[i].is_wanted = false;
	for (uint32_t i = 0; i < dp->t.max_backends; i++)
		dp->backends[i].is_wanted = false;
	list_for_each(l, &c->proxies) {
		rc = sync_proxy(&s, list_entry(l, struct conf_proxy, link));
		if (rc != 0)
			return rc; /* nothing was flipped: packets see the older state */
	}
	sync_unwanted_services(dp);
	if (dp->are_services_dirty) {
		rc = dp_services_write(dp, err);
		if (rc != 0)
			return rc;
	}
	for (uint32_t id = 1; id < dp->t.max_backends; id++)
		if (dp->backends[id].is_used && !dp->backends[id].is_wanted)
			dp_backend_drop(dp, id);
	return 0;
}
