/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names: one lookup after the other. A lookup asks for A and AAAA records, or for SRV records; it ends when each
 * question has a good answer or none is left to come. Good answers replace what is known, after `hold
 * obsolete`; failures leave it alone, for dns_apply.c to judge.
 */
#include <arpa/nameser.h>
#include <strings.h>

#include "ctl/dns_priv.h"

static uint64_t now_of(const struct dns_name *n)
{
	return loop_now(n->section->dns->ctl->loop);
}

/* --- a lookup ------------------------------------------------------------------------------------ */

static void part_drop_records(struct dns_part *p)
{
	dns_records_free(p->records, p->n_records);
	p->records = NULL;
	p->n_records = 0;
}

static void name_begin(struct dns_name *n)
{
	static const uint16_t address_types[] = { ns_t_a, ns_t_aaaa };
	struct dns_section *sec = n->section;
	unsigned round = ++n->round;

	n->n_parts = n->n_parts_open = n->is_srv ? 1 : 2;
	for (unsigned i = 0; i < n->n_parts; i++) {
		part_drop_records(&n->parts[i]);
		n->parts[i] = (struct dns_part){
			.type = n->is_srv ? (uint16_t)ns_t_srv : address_types[i],
			.n_open = sec->n_ns,
		};
	}
	/* Answers may come while we ask: they may even end this lookup. */
	for (unsigned i = 0; i < n->n_parts; i++)
		for (unsigned j = 0; j < sec->n_ns && n->round == round; j++)
			if (!n->parts[i].is_done)
				dns_ask(&sec->ns[j], n, &n->parts[i]);
}

static void name_on_timer(struct timer *t)
{
	name_begin(container_of(t, struct dns_name, timer));
}

static bool record_is(const struct dns_record *a, const struct dns_record *b)
{
	if (a->target && b->target)
		return a->port == b->port && strcasecmp(a->target, b->target) == 0;
	return !a->target && !b->target && addr_is_ip_eq(&a->addr, &b->addr);
}

static bool record_is_of(const struct dns_record *r, const struct dns_part *p)
{
	return r->target != NULL || (r->addr.sa.sa_family == AF_INET) == (p->type == ns_t_a);
}

/* New ones in, old ones with a new date, those that were not seen for too long out. */
static void name_merge(struct dns_name *n, struct dns_part *p)
{
	uint64_t now = now_of(n), hold = n->section->conf.hold[HOLD_OBSOLETE];
	unsigned kept = 0;
	struct dns_record *all = mem_realloc(n->records,
					     (n->n_records + p->n_records + 1) * sizeof(*all));

	if (!all)
		return; /* what is known stays */
	n->records = all;
	for (unsigned i = 0; i < p->n_records; i++) {
		struct dns_record *r = &p->records[i], *old = NULL;

		for (unsigned j = 0; j < n->n_records && !old; j++)
			if (record_is(&all[j], r))
				old = &all[j];
		if (!old) {
			old = &all[n->n_records++];
			*old = *r;
			r->target = NULL; /* moved */
		}
		old->weight = r->weight;
		old->seen_ns = now;
	}
	for (unsigned i = 0; i < n->n_records; i++) {
		if (record_is_of(&all[i], p) && now - all[i].seen_ns >= hold &&
		    all[i].seen_ns != now)
			mem_free(all[i].target);
		else
			all[kept++] = all[i];
	}
	n->n_records = kept;
}

static void name_end(struct dns_name *n)
{
	const struct conf_resolvers *c = &n->section->conf;

	n->status = DNS_NONE;
	for (unsigned i = 0; i < n->n_parts; i++) {
		if (n->parts[i].status == DNS_VALID)
			n->status = DNS_VALID;
		else if (n->status != DNS_VALID && n->parts[i].status > n->status)
			n->status = n->parts[i].status;
	}
	if (n->status == DNS_VALID) {
		n->valid_ns = now_of(n);
		/* A question without an answer says nothing about the addresses it would have had. */
		for (unsigned i = 0; i < n->n_parts; i++)
			if (n->parts[i].status <= DNS_NX)
				name_merge(n, &n->parts[i]);
	}
	for (unsigned i = 0; i < n->n_parts; i++)
		part_drop_records(&n->parts[i]);
	timer_start(n->section->dns->ctl->loop, &n->timer,
		    n->status == DNS_VALID
			    ? c->hold[HOLD_VALID] > 1000000 ? c->hold[HOLD_VALID] : 1000000
			    : c->timeout_resolve);
	dns_apply(n);
}

void dns_name_answer(struct dns_name *n, struct dns_part *p, struct dns_ns *ns,
		     enum dns_status status, struct dns_record *records, unsigned n_records)
{
	p->n_open--;
	if (status > p->status || status == DNS_VALID)
		p->status = status;
	if (status == DNS_VALID) {
		p->records = records;
		p->n_records = n_records;
		n->by = ns;
	} else if (p->n_open) {
		return; /* another name server may know better */
	}
	p->is_done = true;
	if (--n->n_parts_open == 0)
		name_end(n);
}

/* --- life ---------------------------------------------------------------------------------------- */

struct dns_name *dns_name_get(struct dns_section *sec, struct str host, bool is_srv)
{
	struct dns_name *n;
	struct list *l;

	list_for_each(l, &sec->names) {
		n = list_entry(l, struct dns_name, link);
		if (n->is_srv == is_srv && strncasecmp(n->host, host.p, host.len) == 0 &&
		    !n->host[host.len])
			return n;
	}
	n = mem_zalloc(sizeof(*n));
	if (!n)
		return NULL;
	n->host = mem_strdup(host);
	if (!n->host) {
		mem_free(n);
		return NULL;
	}
	n->section = sec;
	n->is_srv = is_srv;
	list_init(&n->users);
	list_init(&n->queries);
	timer_init(&n->timer, name_on_timer);
	list_push_back(&sec->names, &n->link);
	n->valid_ns = now_of(n);
	/* Not at once: its first user is not on the list yet. */
	timer_start(sec->dns->ctl->loop, &n->timer, 0);
	return n;
}

void dns_name_free(struct dns_name *n)
{
	n->round++;
	dns_forget_queries(n);
	timer_stop(n->section->dns->ctl->loop, &n->timer);
	for (unsigned i = 0; i < ARRAY_SIZE(n->parts); i++)
		part_drop_records(&n->parts[i]);
	dns_records_free(n->records, n->n_records);
	list_del(&n->link);
	mem_free(n->host);
	mem_free(n);
}

void dns_name_put(struct dns_name *n)
{
	if (n && list_is_empty(&n->users))
		dns_name_free(n);
}
