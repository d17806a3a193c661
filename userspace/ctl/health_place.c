/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where checks and agents are asked: as the configuration says, until `set server … check-addr`, `agent-addr`
 * and their like say otherwise. A reload keeps what they said unless it changes that part of the server's
 * line, as it does with addresses and weights. Control thread.
 */
#include <errno.h>

#include "base/mem.h"
#include "ctl/health_priv.h"

static void place_follow(struct watch_place *p, struct check_place written)
{
	if (p->is_known && addr_is_eq(&p->written.addr, &written.addr) &&
	    p->written.port == written.port)
		return;
	p->is_known = true;
	p->written = p->now = written;
}

void health_place_configure(struct watch *w)
{
	const struct conf_server *cs = watch_conf(w);
	struct check_place check = { .port = cs->check_port }, agent = { .port = cs->agent_port };
	uint64_t text = str_hash(str_from_cstr(cs->agent_send), cs->agent_send != NULL);

	if (cs->has_check_addr)
		check.addr = cs->check_ep.addr;
	if (cs->has_agent_addr)
		agent.addr = cs->agent_ep.addr;
	place_follow(&w->check_at, check);
	place_follow(&w->agent_at, agent);
	if (text != w->agent_text_written)
		health_place_forget(w);
	w->agent_text_written = text;
}

void health_place_forget(struct watch *w)
{
	mem_free(w->agent_text);
	w->agent_text = NULL;
}

bool watch_place_addr(const struct watch *w, const struct check_place *p, struct addr *ret)
{
	uint16_t port;

	server_get_addr(w->srv, ret);
	/* The port is the server's as long as nobody says another. */
	port = p->port ? p->port : addr_port(ret) ? addr_port(ret) : watch_conf(w)->shared_port;
	if (p->addr.sa.sa_family != AF_UNSPEC)
		*ret = p->addr;
	if (ret->sa.sa_family != AF_INET && ret->sa.sa_family != AF_INET6)
		return false;
	addr_set_port(ret, port);
	return true;
}

/* --- the runtime API ------------------------------------------------------------------------------------ */

static struct watch_place *place_of(struct watch *w, bool is_agent)
{
	if (is_agent)
		return w->has_agent ? &w->agent_at : NULL;
	return w->prog ? &w->check_at : NULL;
}

int health_set_place(struct health *h, struct server *s, bool is_agent, const struct addr *a,
		     uint16_t port)
{
	struct watch *w = health_find(h, s);
	struct watch_place *p = w ? place_of(w, is_agent) : NULL;

	if (!p)
		return -ENOENT;
	if (a)
		p->now.addr = *a;
	if (port)
		p->now.port = port;
	return 0;
}

struct check_place health_get_place(const struct health *h, const struct server *s, bool is_agent)
{
	struct watch *w = health_find(h, s);
	const struct watch_place *p = w ? place_of(w, is_agent) : NULL;

	return p ? p->now : (struct check_place){ .port = 0 };
}

int health_set_agent_text(struct health *h, struct server *s, struct str text)
{
	struct watch *w = health_find(h, s);
	char *copy;

	if (!w || !w->has_agent)
		return -ENOENT;
	/* A question that is under way may be sending the old one. */
	copy = mem_strdup(text);
	if (!copy)
		return -ENOMEM;
	health_agent_stop(w);
	health_place_forget(w);
	w->agent_text = copy;
	health_agent_resume(w);
	return 0;
}

/* `usesrc client`: a check has no client. */
void check_target_from(struct check_target *t, const struct conf_outgoing *src)
{
	if (src->addr.sa.sa_family != AF_UNSPEC && !src->is_client)
		t->from = &src->addr;
	t->interface = src->interface;
}
