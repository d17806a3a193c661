/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers to servers. A server keeps its address while the answer has it; else it gets one that no other server of
 * its backend has by this name; without any it goes into maintenance. Of SRV records each server holds one,
 * and its address is that of the record's target. Failures count only when the last good answer is older than `hold`
 * says.
 */
#include <stdio.h>
#include <strings.h>

#include "ctl/dns_priv.h"

static struct ctl *ctl_of(const struct dns_name *n)
{
	return n->section->dns->ctl;
}

/* --- what happens to a server -------------------------------------------------------------------- */

static void server_leave(struct ctl *ctl, struct dns_user *u, const char *why)
{
	struct server *s = u->srv;

	if (atomic_load(&s->admin) & SERVER_RESOLUTION_MAINT)
		return;
	log_msg(LOG_LVL_WARNING, "Server %s/%s is going DOWN for maintenance (%s).",
		s->backend_name, s->name, why);
	server_set_admin(&ctl->registry, s, SERVER_RESOLUTION_MAINT, 0);
	health_admin_changed(ctl->health, s);
	ctl_server_changed(ctl, s);
}

static void server_come_back(struct ctl *ctl, struct dns_user *u)
{
	struct server *s = u->srv;

	if (!(atomic_load(&s->admin) & SERVER_RESOLUTION_MAINT))
		return;
	server_set_admin(&ctl->registry, s, 0, SERVER_RESOLUTION_MAINT);
	health_admin_changed(ctl->health, s);
	ctl_server_changed(ctl, s);
}

static uint16_t user_port(const struct dns_user *u)
{
	if (u->target[0])
		return u->target_port;
	return addr_port(&u->srv->addr) ? addr_port(&u->srv->addr) : u->conf->ep.port;
}

static void server_move(struct dns_name *n, struct dns_user *u, const struct dns_record *r)
{
	struct ctl *ctl = ctl_of(n);
	struct server *s = u->srv;
	char before[ADDR_TEXT_MAX] = "(none)", after[ADDR_TEXT_MAX];
	struct addr a = r->addr;

	addr_set_port(&a, user_port(u));
	if (!addr_is_eq(&a, &s->addr)) {
		if (s->addr.sa.sa_family)
			addr_format_ip(&s->addr, before, sizeof(before));
		addr_format_ip(&a, after, sizeof(after));
		if (!addr_is_ip_eq(&a, &s->addr))
			log_msg(LOG_LVL_NOTICE, "%s/%s changed its IP from %s to %s by %s/%s.",
				s->backend_name, s->name, before, after, n->section->name,
				n->by ? n->by->id : "?");
		if (n->by)
			n->by->ctr.update++;
		server_set_addr(&ctl->registry, s, &a);
		ctl_server_changed(ctl, s);
	}
	server_come_back(ctl, u);
}

/* --- claims: who has which record ---------------------------------------------------------------- */

static void claims_begin(struct dns_name *n)
{
	for (unsigned i = 0; i < n->n_records; i++)
		list_init(&n->records[i].claims);
}

static void claim(struct dns_user *u, struct dns_record *r)
{
	list_push_back(&r->claims, &u->claim);
	u->is_claiming = true;
}

/* By another server of the backend. Two ports of one address are two servers. */
static bool is_taken(const struct dns_record *r, const struct dns_user *u)
{
	struct list *l;

	list_for_each(l, &r->claims) {
		const struct dns_user *other = list_entry(l, struct dns_user, claim);

		if (other->srv->be == u->srv->be && (r->target || user_port(other) == user_port(u)))
			return true;
	}
	return false;
}

static void claims_end(struct dns_user *u)
{
	list_del(&u->claim);
	u->is_claiming = false;
}

/* --- addresses ----------------------------------------------------------------------------------- */

static bool may_have(const struct dns_user *u, const struct dns_record *r)
{
	int family = u->target[0] ? AF_UNSPEC : u->conf->ep.family;

	if (family != AF_UNSPEC && r->addr.sa.sa_family != family)
		return false;
	return u->conf->resolve.allow_dup_ip || !is_taken(r, u);
}

static unsigned score_of(const struct dns_user *u, const struct dns_record *r)
{
	const struct conf_resolve *c = &u->conf->resolve;
	unsigned score = 1;

	if ((r->addr.sa.sa_family == AF_INET) == c->prefer_v4)
		score += 8;
	for (unsigned i = 0; i < c->n_nets; i++) {
		if (addr_prefix_has(&c->nets[i], &r->addr)) {
			score += 4;
			break;
		}
	}
	return score + list_is_empty(&r->claims) * 2u;
}

static void keep_address(struct dns_name *n, struct dns_user *u)
{
	for (unsigned i = 0; i < n->n_records; i++) {
		struct dns_record *r = &n->records[i];

		if (!addr_is_ip_eq(&r->addr, &u->srv->addr))
			continue;
		if (may_have(u, r)) {
			claim(u, r);
			server_move(n, u, r);
		}
		return;
	}
}

static void find_address(struct dns_name *n, struct dns_user *u)
{
	struct dns_record *best = NULL;
	unsigned best_score = 0;

	for (unsigned i = 0; i < n->n_records; i++) {
		struct dns_record *r = &n->records[i];
		unsigned score = may_have(u, r) ? score_of(u, r) : 0;

		if (score > best_score) {
			best = r;
			best_score = score;
		}
	}
	if (!best)
		return server_leave(ctl_of(n), u, "No IP for server");
	claim(u, best);
	server_move(n, u, best);
}

static void apply_addresses(struct dns_name *n)
{
	struct list *l;

	list_for_each(l, &n->users)
		keep_address(n, list_entry(l, struct dns_user, name_link));
	list_for_each(l, &n->users) {
		struct dns_user *u = list_entry(l, struct dns_user, name_link);

		if (!u->is_claiming)
			find_address(n, u);
	}
	list_for_each(l, &n->users)
		claims_end(list_entry(l, struct dns_user, name_link));
}

/* --- SRV records --------------------------------------------------------------------------------- */

static void user_leave_name(struct dns_user *u)
{
	struct dns_name *was = u->name;

	u->name = NULL;
	list_del(&u->name_link);
	dns_name_put(was);
}

void dns_user_release(struct dns_user *u)
{
	struct dns_name *was = u->srv_name;

	if (u->name)
		user_leave_name(u);
	u->target[0] = '\0';
	u->srv_name = NULL;
	list_del(&u->srv_link);
	if (was)
		dns_name_put(was);
}

/* 1 to 256 out of 0 to 65535. */
static void follow_weight(struct dns_name *n, struct dns_user *u, const struct dns_record *r)
{
	uint32_t weight = r->weight / 256u + 1;
	struct err err;

	if (u->conf->resolve.ignore_weight || atomic_load(&u->srv->uweight) == weight)
		return;
	if (server_set_weight(&ctl_of(n)->registry, u->srv, weight, &err) == 0)
		ctl_server_changed(ctl_of(n), u->srv);
}

static void keep_record(struct dns_name *n, struct dns_user *u)
{
	for (unsigned i = 0; u->target[0] && i < n->n_records; i++) {
		struct dns_record *r = &n->records[i];

		if (r->port != u->target_port || strcasecmp(r->target, u->target) != 0 ||
		    is_taken(r, u))
			continue;
		claim(u, r);
		follow_weight(n, u, r);
		return;
	}
}

static void find_record(struct dns_name *n, struct dns_user *u)
{
	struct dns_record *r = NULL;
	struct addr a;

	if (u->name)
		user_leave_name(u);
	u->target[0] = '\0';
	for (unsigned i = 0; i < n->n_records && !r; i++)
		if (!is_taken(&n->records[i], u))
			r = &n->records[i];
	if (!r)
		return server_leave(ctl_of(n), u, "entry removed from SRV record");
	claim(u, r);
	snprintf(u->target, sizeof(u->target), "%s", r->target);
	u->target_port = r->port;
	follow_weight(n, u, r);
	u->name = dns_name_get(n->section, str_from_cstr(u->target), false);
	if (!u->name) { /* tried again with the next answer */
		u->target[0] = '\0';
		return;
	}
	list_push_back(&u->name->users, &u->name_link);
	/* The address of another record until this one's is known: nothing may be sent there. */
	a = u->srv->addr;
	if (a.sa.sa_family && addr_port(&a) != r->port)
		server_leave(ctl_of(n), u, "another SRV record");
	if (u->name->status == DNS_VALID)
		dns_apply(u->name);
}

static void apply_records(struct dns_name *n)
{
	struct list *l;

	list_for_each(l, &n->users)
		keep_record(n, list_entry(l, struct dns_user, srv_link));
	list_for_each(l, &n->users) {
		struct dns_user *u = list_entry(l, struct dns_user, srv_link);

		if (!u->is_claiming)
			find_record(n, u);
	}
	list_for_each(l, &n->users)
		claims_end(list_entry(l, struct dns_user, srv_link));
}

/* --- a lookup ended ------------------------------------------------------------------------------ */

static const struct {
	uint8_t hold; /* enum conf_hold */
	const char *why;
} failures[] = {
	[DNS_NODATA] = { HOLD_OTHER, "No IP for server" },
	[DNS_NX] = { HOLD_NX, "DNS NX status" },
	[DNS_OTHER] = { HOLD_OTHER, "unspecified DNS error" },
	[DNS_REFUSED] = { HOLD_REFUSED, "DNS refused status" },
	[DNS_TIMEOUT] = { HOLD_TIMEOUT, "DNS timeout status" },
};

static void apply_failure(struct dns_name *n)
{
	uint64_t age = loop_now(ctl_of(n)->loop) - n->valid_ns;
	struct list *l;

	if (age < n->section->conf.hold[failures[n->status].hold])
		return;
	list_for_each(l, &n->users) {
		struct dns_user *u = n->is_srv ? list_entry(l, struct dns_user, srv_link)
					       : list_entry(l, struct dns_user, name_link);

		if (n->is_srv && u->name)
			user_leave_name(u);
		if (n->is_srv)
			u->target[0] = '\0';
		server_leave(ctl_of(n), u, failures[n->status].why);
	}
}

void dns_apply(struct dns_name *n)
{
	struct lb_registry *registry = &ctl_of(n)->registry;

	lb_batch_begin(registry);
	if (n->status == DNS_VALID) {
		claims_begin(n);
		if (n->is_srv)
			apply_records(n);
		else
			apply_addresses(n);
	} else if (n->status != DNS_NONE) {
		apply_failure(n);
	}
	lb_batch_end(registry);
}
