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
	struct lb_backend *const *backends;
	struct err *err;
	bool is_marking; /* only says which services are wanted */
	/* of the section at hand */
	struct dp_member *members;
	unsigned n_members;
	uint16_t *quic; /* backend by server id in connection ids */
	uint32_t n_quic;
};

/* --- signatures ------------------------------------------------------------------------------------------ */

/* 0 means: never filled. */
static uint64_t members_signature(const struct dp_service *svc, const struct dp_member *m,
				  unsigned n)
{
	uint64_t h = svc->is_tracking;

	for (unsigned i = 0; i < n; i++)
		h = hg_mix64(h ^ m[i].key, (uint64_t)m[i].weight << 16 | m[i].id);
	return h | 1;
}

/* --- backends -------------------------------------------------------------------------------------------- */

static bool backend_is(const struct dp_backend *b, const struct conf_server *cs)
{
	return b->server_name && strcmp(b->server_name, cs->name) == 0 &&
	       strcmp(b->service_name, cs->proxy->name) == 0;
}

/* Does a service of this section name the id of an earlier process? One address may have several ids. */
static bool adopted_by(const struct dp *dp, uint32_t id, const struct conf_proxy *px)
{
	uint32_t service = dp->backends[id].adopted_service;

	return service && dp->services[service - 1].adopted_px == px->index + 1;
}

/* The id of this server: the one it had; else one that an earlier process gave that address; else a new one. */
static int backend_find(struct dp *dp, const struct conf_server *cs, const struct addr *a,
			uint32_t *ret_id)
{
	uint32_t adopted = 0;

	for (uint32_t at = dp_backend_first(dp, a); at; at = dp->backends_by_addr.next[at]) {
		uint32_t id = at - 1;
		const struct dp_backend *b = &dp->backends[id];

		if (!addr_is_ip_eq(&b->addr, a))
			continue;
		if (backend_is(b, cs)) {
			*ret_id = id;
			return 0;
		}
		if (!b->server_name && (!adopted || adopted_by(dp, id, cs->proxy)))
			adopted = id;
	}
	*ret_id = adopted ? adopted : dp_backend_unused(dp);
	return *ret_id ? 0 : -ENOSPC;
}

bool dp_was_down(struct dp *dp, const struct addr *a)
{
	uint32_t at = dp->is_synced || !dp->backends ? 0 : dp_backend_first(dp, a);

	for (; at; at = dp->backends_by_addr.next[at]) {
		const struct dp_backend *b = &dp->backends[at - 1];

		if (!b->server_name && addr_is_ip_eq(&b->addr, a))
			return !(dp->t.backends[at - 1].flags & HG_BE_ALIVE);
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
	if (is_new)
		dp_backend_take(s->dp, id, a);
	b->is_wanted = b->is_next = true;
	b->is_releasing = false;
	if (!is_new)
		return 0;
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

/* Does the program count the connections of the section's servers? Else nobody would end those of a limit. */
static bool are_counted(const struct conf_proxy *px)
{
	return px->forward == FORWARD_NAT ||
	       (px->track == CONF_TRACK_ON && px->affinity == AFFINITY_FLOW);
}

/*
 * What dp_share_sync() has to know of the server. A stricter limit holds at once: the table may name the server in a moment. A row that
 * was another's before may have had any.
 */
static void proxy_counts(struct dp *dp, uint32_t id, const struct conf_proxy *px, uint16_t port,
			 uint32_t maxconn)
{
	struct dp_backend *b = &dp->backends[id];
	uint32_t now = dp->nat.live_backends ? dp->nat.live_backends[id].limit : 0;

	b->px = px;
	b->port = port;
	b->limit = px ? maxconn : 0;
	if (!now || (b->limit && b->limit < now))
		dp_backend_limit(dp, id, b->limit);
}

static int proxy_members(struct sync *s, const struct conf_proxy *px)
{
	const struct lb_backend *be = s->backends[px->index];
	struct dp_member *m = s->members;

	for (unsigned pos = 0; pos < be->n_servers; pos++) {
		const struct server *srv = be->servers[pos];
		const struct conf_server *cs = srv->conf;
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
		/* Maintenance is no death: who is connected stays, as far as this host is concerned. */
		dp_backend_set_alive(s->dp, id, atomic_load(&srv->op) != SERVER_STOPPED);
		if (px->affinity == AFFINITY_QUIC_CID && cs->has_quic_id)
			s->quic[cs->quic_id] = (uint16_t)id;
		if (px->forward == FORWARD_NAT)
			dp_nat_backend(s->dp, id, addr_port(&a));
		proxy_counts(s->dp, id, are_counted(px) ? px : NULL, addr_port(&a),
			     atomic_load(&srv->maxconn));
		if (!takes_part(be, srv))
			continue;
		addr_to_v6_mapped(&a, raw);
		memcpy(w, raw, sizeof(w));
		/* The address alone: the same table on every host of a fleet, whatever the names there. */
		m[s->n_members] = (struct dp_member){ .key = hg_mix64(w[0], w[1]),
						      .id = (uint16_t)id,
						      .weight = atomic_load(&srv->uweight) };
		for (unsigned i = 0; i < s->n_members; i++)
			if (m[i].key == m[s->n_members].key)
				m[s->n_members].key = hg_mix64(m[s->n_members].key, s->n_members);
		s->n_members++;
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
		[AFFINITY_QUIC_CID] = HG_SVC_QUIC_CID,
	};

	return (px->affinity < ARRAY_SIZE(flags) ? flags[px->affinity] : 0) |
	       (px->track == CONF_TRACK_ON ? HG_SVC_TRACK_ON : 0) |
	       (px->guard.has_cookies ? HG_SVC_SYN_COOKIES : 0);
}

/* What of a row the configuration says. */
static struct hg_service row_of(const struct conf_proxy *px, const struct hg_service_key *k)
{
	struct hg_service row = { .key = *k, .mode = mode_of(px), .flags = flags_of(px) };

	if (px->affinity == AFFINITY_QUIC_CID) {
		row.cid_offset = px->quic_offset;
		row.cid_len = px->quic_length;
	}
	return row;
}

static int service_want(struct sync *s, const struct conf_proxy *px, const struct hg_service *want,
			struct dp_service **ret_svc)
{
	struct dp_service *svc = dp_service_find(s->dp, &want->key);
	int rc = 0;

	if (s->is_marking) {
		if (svc)
			svc->is_wanted = true;
		return 0;
	}
	if (!svc) {
		rc = dp_service_take(s->dp, &want->key, &svc);
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
	if ((svc->row.flags ^ want->flags) & HG_SVC_SYN_COOKIES) {
		svc->row.flags ^= HG_SVC_SYN_COOKIES;
		s->dp->are_services_dirty = true;
	}
	if (svc->row.mode != want->mode || (svc->row.flags ^ want->flags) & ~HG_SVC_GUARDED ||
	    svc->row.cid_offset != want->cid_offset || svc->row.cid_len != want->cid_len) {
		svc->row.mode = want->mode;
		svc->row.flags = want->flags | (svc->row.flags & HG_SVC_GUARDED);
		svc->row.cid_offset = want->cid_offset;
		svc->row.cid_len = want->cid_len;
		dp_slots_distrust(svc);
		s->dp->are_services_dirty = true;
	}
	svc->is_wanted = true;
	*ret_svc = svc;
	return 0;
}

/*
 * The table follows members and weights, in place. All services of a section share it in content, not in memory. What
 * the flags of the service say is in force only after the flip, so a slot may be tracked for a moment too long.
 */
static int service_table(struct sync *s, struct dp_service *svc, const struct conf_proxy *px)
{
	uint32_t slots = px->maglev_table_size ? px->maglev_table_size
					       : maglev_table_size(px->n_servers);
	uint64_t signature;
	int rc = 0;

	svc->is_tracking = px->track != CONF_TRACK_OFF && px->affinity != AFFINITY_NONE &&
			   px->forward != FORWARD_NAT; /* which remembers every connection anyway */
	svc->window_s = (uint32_t)(px->learn_window / 1000000000ull);
	svc->drain_s = (uint32_t)(px->drain_timeout / 1000000000ull);
	svc->idle_s = (uint32_t)(dp_idle_ns(px, svc->row.key.proto) / 1000000000ull);
	signature = members_signature(svc, s->members, s->n_members);
	dp_slots_bury(s->dp, svc);
	if (svc->signature != signature)
		rc = dp_slots_want(s->dp, svc, s->members, s->n_members, slots);
	if (rc != 0)
		return err_set(s->err, rc,
			       rc == -ENOSPC ? "section %s: no room for a table of %u slots: "
					       "restart to make it larger"
					     : "section %s: cannot fill the table of %u slots: %s",
			       px->name, slots,
			       rc == -ENOMEM ? "out of memory" : "more servers than slots");
	svc->signature = signature;
	rc = dp_quic_want(s->dp, svc, s->quic, s->n_quic);
	if (rc != 0)
		return err_set(s->err, rc,
			       "section %s: no room for %u server ids of connection ids: restart "
			       "to make it larger",
			       px->name, s->n_quic);
	if (svc->row.slots && px->maglev_table_size && svc->row.slots != px->maglev_table_size &&
	    !svc->is_size_told) {
		dp_notice(s->dp,
			  "section %s: the table keeps its %u slots while the service lives "
			  "(configured: %u), another size would move connections",
			  px->name, svc->row.slots, px->maglev_table_size);
		svc->is_size_told = true;
	}
	return 0;
}

static int sync_service(struct sync *s, const struct conf_proxy *px, const struct conf_bind *b,
			const struct addr *a)
{
	struct hg_service_key k = { .proto = b->ep.is_dgram ? IPPROTO_UDP : IPPROTO_TCP,
				    .port = htons(b->ep.port) };
	struct hg_service row;
	struct dp_service *svc = NULL;
	int rc;

	addr_to_v6_mapped(a, (uint8_t *)k.addr);
	row = row_of(px, &k);
	rc = service_want(s, px, &row, &svc);
	if (s->is_marking)
		return rc;
	if (rc == 0)
		rc = dp_guard_service(s->dp, px, svc, s->err);
	if (rc == 0 && px->mode == CONF_MODE_L4 && px->forward == FORWARD_NAT)
		rc = dp_nat_service(s->dp, px, &svc->row, s->err);
	if (rc == 0 && px->mode == CONF_MODE_L4)
		rc = service_table(s, svc, px);
	return rc;
}

/*
 * The address of an L4 service as such: XDP answers echo requests to it, because nobody on this host
 * would.
 */
static int sync_address(struct sync *s, const struct conf_proxy *px, const struct addr *a)
{
	struct hg_service row = {
		.key.proto = a->sa.sa_family == AF_INET6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP,
		.mode = HG_MODE_ADDR,
	};
	struct dp_service *svc = NULL;

	addr_to_v6_mapped(a, (uint8_t *)row.key.addr);
	return service_want(s, px, &row, &svc);
}

/* A wildcard bind, of the L7 tier or of NAT, is a service on each address this host has now. */
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
		rc = sync_service(s, px, b, &a);
	}
	freeifaddrs(all);
	return rc;
}

/* Server ids of the section's QUIC servers: how many words they need. */
static uint32_t count_quic_ids(const struct conf_proxy *px)
{
	struct list *l;
	uint32_t n = 0;

	list_for_each(l, &px->servers) {
		const struct conf_server *cs = list_entry(l, struct conf_server, link);

		if (px->affinity == AFFINITY_QUIC_CID && cs->has_quic_id && cs->quic_id >= n)
			n = cs->quic_id + 1;
	}
	return n;
}

static int sync_binds(struct sync *s, const struct conf_proxy *px)
{
	struct list *l;
	int rc = 0;

	list_for_each(l, &px->binds) {
		const struct conf_bind *b = list_entry(l, struct conf_bind, link);

		/* In another network namespace the address is another host's. */
		if (rc != 0 || b->ep.kind != ENDPOINT_IP || b->sock.netns)
			continue;
		if (addr_is_any(&b->ep.addr)) {
			rc = sync_wildcard(s, px, b);
			continue;
		}
		rc = sync_service(s, px, b, &b->ep.addr);
		if (rc == 0 && px->mode == CONF_MODE_L4)
			rc = sync_address(s, px, &b->ep.addr);
	}
	return rc;
}

static int sync_proxy(struct sync *s, const struct conf_proxy *px)
{
	int rc = 0;

	if (px->is_disabled || list_is_empty(&px->binds))
		return 0;
	s->n_members = 0;
	s->n_quic = 0;
	if (px->mode == CONF_MODE_L4 && !s->is_marking) {
		s->n_quic = count_quic_ids(px);
		s->members =
			mem_alloc((s->backends[px->index]->n_servers + 1) * sizeof(*s->members));
		s->quic = mem_zalloc((s->n_quic + 1) * sizeof(*s->quic));
		rc = s->members && s->quic ? proxy_members(s, px)
					   : err_set(s->err, -ENOMEM, "out of memory");
	}
	if (rc == 0)
		rc = sync_binds(s, px);
	mem_free(s->members);
	mem_free(s->quic);
	s->members = NULL;
	s->quic = NULL;
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

/* After adoption: which ids belong to which section, by the services that name them. */
static void sync_claims(struct dp *dp, const struct conf *c)
{
	struct list *p, *l;

	list_for_each(p, &c->proxies) {
		const struct conf_proxy *px = list_entry(p, struct conf_proxy, link);

		if (px->mode != CONF_MODE_L4)
			continue;
		list_for_each(l, &px->binds) {
			const struct conf_bind *b = list_entry(l, struct conf_bind, link);
			struct hg_service_key k = { .proto = b->ep.is_dgram ? IPPROTO_UDP
									    : IPPROTO_TCP,
						    .port = htons(b->ep.port) };
			struct dp_service *svc;

			if (b->ep.kind != ENDPOINT_IP)
				continue;
			addr_to_v6_mapped(&b->ep.addr, (uint8_t *)k.addr);
			svc = dp_service_find(dp, &k);
			if (svc)
				svc->adopted_px = px->index + 1;
		}
	}
}

/* A sync that failed leaves none unwanted that was not before. They stay as long as a slot, a connection id or a flow names them: see flows.c. */
static void sync_unwanted_backends(struct dp *dp)
{
	uint64_t now = dp_clock(dp);

	for (uint32_t id = 1; id < dp->t.max_backends; id++) {
		struct dp_backend *b = &dp->backends[id];

		b->is_wanted = b->is_next;
		if (!b->is_used || b->is_wanted) {
			b->unwanted_ns = 0;
			continue;
		}
		if (!b->unwanted_ns)
			b->unwanted_ns = b->heard_ns = now;
		b->is_named = true; /* for all that the walk knows which goes on */
	}
}

/* Of all sections, until one fails; services that are not met are left unwanted. */
static int sync_proxies(struct sync *s, const struct conf *c)
{
	struct dp *dp = s->dp;
	struct list *l;
	int rc = 0;

	for (uint32_t i = 0; i < dp->t.max_services; i++)
		dp->services[i].is_wanted = false;
	for (uint32_t i = 0; i < dp->t.max_backends; i++) {
		dp->backends[i].is_next = false;
		dp->backends[i].px = NULL;
	}
	list_for_each(l, &c->proxies) {
		rc = sync_proxy(s, list_entry(l, struct conf_proxy, link));
		if (rc != 0)
			break;
	}
	return rc;
}

/*
 * There is room for one configuration and somewhat more, so one that has little in common with the last finds
 * none beside it: then what it does not have goes first. False: nothing went.
 */
static bool sync_makes_room(struct sync *s, const struct conf *c)
{
	struct dp *dp = s->dp;
	bool was_dirty = dp->are_services_dirty;

	s->is_marking = true;
	(void)sync_proxies(s, c); /* cannot fail: nothing is made */
	s->is_marking = false;
	dp->are_services_dirty = false;
	sync_unwanted_services(dp);
	if (!dp->are_services_dirty) {
		dp->are_services_dirty = was_dirty;
		return false;
	}
	return dp_services_write(dp, s->err) == 0;
}

int dp_sync(struct dp *dp, const struct conf *c, struct lb_backend *const *backends,
	    struct err *err)
{
	struct sync s = { .dp = dp, .backends = backends, .err = err };
	int rc;

	if (!dp->services)
		return 0; /* stats_only */
	if (!dp->is_synced)
		sync_claims(dp, c);
	/* Maps that were made anew know no interfaces, whatever the rows that were carried over say. */
	if (dp_paths_configure(dp, c) || dp->before)
		dp_backends_resolve(dp);
	rc = sync_proxies(&s, c);
	if (rc == -ENOSPC && sync_makes_room(&s, c))
		rc = sync_proxies(&s, c);
	if (rc != 0)
		return rc; /* what was not flipped packets do not see */
	sync_unwanted_services(dp);
	if (dp->are_services_dirty) {
		rc = dp_services_write(dp, err);
		if (rc != 0)
			return rc;
	}
	sync_unwanted_backends(dp);
	dp_share_sync(dp, c, backends);
	dp->is_synced = true;
	return 0;
}
