/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sections whose packets are forwarded in the kernel: nothing there can look into a connection, so
 * whatever would need that is refused here, before anything is attached. Control thread.
 */
#include <errno.h>
#include <headgate/limits.h>

#include "base/prime.h"
#include "conf/conf_priv.h"

/* What the section says that makes it one of the kernel's. */
static const char *because_of(const struct conf_proxy *px)
{
	return px->forward == FORWARD_NAT ? "forward nat" : "mode l4";
}

static int check_bind(struct parser *ps, const struct conf_bind *b)
{
	bool is_nat = b->proxy->forward == FORWARD_NAT;
	const char *what = b->is_ssl		  ? "ssl"
			   : b->accept_proxy	  ? "accept-proxy"
			   : b->maxconn		  ? "maxconn"
			   : b->sock.netns	  ? "namespace"
			   : b->sock.congestion	  ? "cc"
			   : b->sock.user_timeout ? "tcp-ut"
						  : NULL;

	if (b->ep.kind != ENDPOINT_IP || (addr_is_any(&b->ep.addr) && !is_nat))
		return conf_fail_pos(ps, &b->pos,
				     "'%s' needs a service address such as 192.0.2.10:80 instead "
				     "of '%.64s'",
				     because_of(b->proxy), b->text);
	if (what)
		return conf_fail_pos(ps, &b->pos,
				     "'%s' is not possible with '%s': packets are forwarded, "
				     "connections are not ended here",
				     what, because_of(b->proxy));
	return 0;
}

/* A tunnelled check goes to a service address of the server's own family, as XDP would send it. */
static int check_via(struct parser *ps, struct conf_server *s)
{
	struct line *l = container_of(s, struct server_build, srv)->line;
	struct list *p;

	if (!s->check_via_tunnel)
		return 0;
	if (!s->has_check)
		return conf_fail(ps, l, 1, "'via tunnel' of server '%.64s' needs 'check'", s->name);
	if (s->proxy->forward == FORWARD_NAT)
		return conf_fail(
			ps, l, 1,
			"'via tunnel' of server '%.64s' needs 'forward ipip', 'gue' or 'l2'",
			s->name);
	if (s->has_check_addr)
		return conf_fail(
			ps, l, 1,
			"server '%.64s' has 'via tunnel' and 'addr': the check goes to the "
			"service address, leave one out",
			s->name);
	list_for_each(p, &s->proxy->binds)
		if (list_entry(p, struct conf_bind, link)->ep.addr.sa.sa_family ==
		    s->ep.addr.sa.sa_family)
			return 0;
	return conf_fail(ps, l, 1,
			 "'via tunnel' of server '%.64s' needs a 'bind' with a service address of "
			 "its own family (%s)",
			 s->name, s->ep.addr.sa.sa_family == AF_INET6 ? "IPv6" : "IPv4");
}

/* Other modes end connections themselves: there is no tunnel. */
static int refuse_via(struct parser *ps, struct proxy_build *b)
{
	struct list *p;
	int r = 0;

	list_for_each(p, &b->px.servers) {
		struct conf_server *s = list_entry(p, struct conf_server, link);

		if (s->check_via_tunnel && r != -ENOMEM)
			r = conf_fail(ps, container_of(s, struct server_build, srv)->line, 1,
				      "'via tunnel' of server '%.64s' needs 'mode l4'", s->name);
	}
	return r;
}

static int check_server(struct parser *ps, struct conf_server *s)
{
	struct line *l = container_of(s, struct server_build, srv)->line;
	bool is_nat = s->proxy->forward == FORWARD_NAT;
	const char *what = s->is_ssl			 ? "ssl"
			   : s->send_proxy		 ? "send-proxy"
			   : s->cookie			 ? "cookie"
			   : s->slowstart		 ? "slowstart"
			   : s->source.addr.sa.sa_family ? "source"
			   : s->sock.netns		 ? "namespace"
			   : s->sock.congestion		 ? "cc"
			   : s->sock.user_timeout	 ? "tcp-ut"
			   : s->tfo			 ? "tfo"
			   : s->redir			 ? "redir"
							 : NULL;
	struct list *p;

	if (s->ep.kind != ENDPOINT_IP || addr_is_any(&s->ep.addr))
		return conf_fail(ps, l, 2,
				 "'%s' needs the IP address of server '%.64s' instead of '%.64s'",
				 because_of(s->proxy), s->name, s->text);
	if (s->port_offset)
		return conf_fail(ps, l, 2,
				 "'%s' forwards packets: the port of server '%.64s' cannot be "
				 "relative to the client's",
				 because_of(s->proxy), s->name);
	if (what)
		return conf_fail(ps, l, 1, "'%s' of server '%.64s' is not possible with '%s'", what,
				 s->name, because_of(s->proxy));
	if (s->maxconn && !is_nat &&
	    !(s->proxy->track == CONF_TRACK_ON && s->proxy->affinity == AFFINITY_FLOW))
		return conf_fail(ps, l, 1,
				 "'maxconn' of server '%.64s' needs 'track on' and 'affinity flow' "
				 "(or 'forward nat'): else connections are not counted",
				 s->name);
	list_for_each(p, &s->proxy->binds) {
		const struct conf_bind *b = list_entry(p, struct conf_bind, link);

		if (is_nat && b->ep.kind == ENDPOINT_IP &&
		    b->ep.addr.sa.sa_family != s->ep.addr.sa.sa_family)
			return conf_fail(ps, l, 2,
					 "server '%.64s' and '%.64s' are of different address "
					 "families, which 'forward nat' does not cross: use a "
					 "section for each",
					 s->name, b->text);
		if (!is_nat && s->ep.port && b->ep.port != s->ep.port)
			return conf_fail(
				ps, l, 2,
				"server '%.64s' has port %u, but packets for '%.64s' arrive "
				"there with port %u: tunnels do not change ports, leave it out",
				s->name, s->ep.port, b->text, b->ep.port);
	}
	return check_via(ps, s);
}

/* Server ids of connection ids: each server its own, and short enough. */
static int check_quic_server(struct parser *ps, const struct conf_server *s)
{
	struct line *l = container_of(s, struct server_build, srv)->line;
	const struct conf_proxy *px = s->proxy;
	struct list *p;

	if (!s->has_quic_id)
		return 0;
	if (px->mode != CONF_MODE_L4 || px->affinity != AFFINITY_QUIC_CID)
		return conf_fail(ps, l, 1, "'quic-id' of server '%.64s' needs 'affinity quic-cid'",
				 s->name);
	if (px->quic_length < 2 && s->quic_id > 255)
		return conf_fail(ps, l, 1,
				 "'quic-id' %u of server '%.64s' does not fit into a server id of "
				 "one byte: 'affinity quic-cid length 2' makes room",
				 s->quic_id, s->name);
	list_for_each(p, &px->servers) {
		const struct conf_server *other = list_entry(p, struct conf_server, link);

		if (other == s)
			break;
		if (other->has_quic_id && other->quic_id == s->quic_id)
			return conf_fail(ps, l, 1,
					 "server '%.64s' has the same 'quic-id' %u as server "
					 "'%.64s'",
					 s->name, s->quic_id, other->name);
	}
	return 0;
}

static int check_quic(struct parser *ps, struct proxy_build *b)
{
	const struct conf_proxy *px = &b->px;
	struct list *p;

	if (px->affinity != AFFINITY_QUIC_CID)
		return 0;
	list_for_each(p, &px->binds)
		if (list_entry(p, struct conf_bind, link)->ep.is_dgram)
			return 0;
	return conf_fail(ps, b->line, 0,
			 "'affinity quic-cid' of '%s' needs a UDP address, such as 'bind "
			 "udp@192.0.2.10:443'",
			 px->name);
}

static const char *content_rule(const struct conf_proxy *px)
{
	for (int i = 0; i < RULES_COUNT; i++) {
		if (!list_is_empty(&px->rules[i]))
			return list_entry(px->rules[i].next, struct conf_rule, link)->text;
	}
	if (!list_is_empty(&px->use_backends))
		return "use_backend";
	if (!list_is_empty(&px->use_servers))
		return "use-server";
	return NULL;
}

static int check_section(struct parser *ps, struct proxy_build *b)
{
	struct conf_proxy *px = &b->px;
	const char *rule = content_rule(px);

	if (b->section != SEC_LISTEN)
		return conf_fail(ps, b->line, 0,
				 "'mode l4' is for 'listen' sections, but '%s' is a %s", px->name,
				 b->kind);
	if (px->forward == FORWARD_NONE)
		return conf_fail(ps, b->line, 0,
				 "'mode l4' of '%s' needs to know how packets reach the servers: "
				 "add 'forward ipip'",
				 px->name);
	if (rule)
		return conf_fail(ps, b->line, 0,
				 "'%.64s' is not possible with '%s' ('%s'): packets are "
				 "forwarded without a look inside",
				 rule, because_of(px), px->name);
	if (b->has_balance && px->balance.algo != BALANCE_MAGLEV)
		return conf_fail(ps, b->line, 0,
				 "'%s' of '%s' needs 'balance maglev' (or no 'balance')",
				 because_of(px), px->name);
	if (px->maglev_table_size && !u32_is_prime(px->maglev_table_size))
		return conf_fail(ps, b->line, 0,
				 "'maglev-table-size' of '%s' is %u, which is no prime (65537 is)",
				 px->name, px->maglev_table_size);
	if (px->maglev_table_size && px->maglev_table_size < px->n_servers)
		return conf_fail(ps, b->line, 0,
				 "'maglev-table-size' of '%s' is smaller than its number of "
				 "servers",
				 px->name);
	if (px->n_servers >= HG_MAX_BACKENDS)
		return conf_fail(ps, b->line, 0, "'%s' has too many servers for '%s' (max %d)",
				 px->name, because_of(px), HG_MAX_BACKENDS - 1);
	if (px->source.addr.sa.sa_family)
		return conf_fail(ps, b->line, 0,
				 "'source' of '%s' is not used with '%s': write 'nat source'",
				 px->name, because_of(px));
	if (px->forward != FORWARD_NAT &&
	    (px->nat.n_sources || px->nat.port_first || px->nat.is_logged))
		return conf_fail(ps, b->line, 0, "'nat' of '%s' needs 'forward nat'", px->name);
	if (px->guard.max_conn)
		return conf_fail(ps, b->line, 0,
				 "'xdp guard max-conn' of '%s' is for sections of the L7 tier: %s",
				 px->name,
				 px->forward == FORWARD_NAT
					 ? "with 'forward nat', write 'maxconn'"
					 : "connections that are forwarded are not counted here");
	px->balance.algo = BALANCE_MAGLEV;
	if (px->maxconn && px->forward != FORWARD_NAT)
		return conf_warn(ps, b->line, 0,
				 "'maxconn' of '%s' has no effect: connections of a section are "
				 "counted with 'forward nat' only (those of servers with 'track "
				 "on', too)",
				 px->name);
	return 0;
}

/*
 * A `mode tcp` section with `forward nat` is the kernel's from here on. First of all steps: what a server
 * or a bind may be depends on it.
 */
int finalize_moved(struct parser *ps, struct proxy_build *b)
{
	struct conf_proxy *px = &b->px;

	if (px->forward == FORWARD_NAT && px->mode == CONF_MODE_TCP && b->section == SEC_LISTEN)
		px->mode = CONF_MODE_L4;
	return 0;
}

int finalize_l4(struct parser *ps, struct proxy_build *b)
{
	struct list *p;
	int r = 0;

	if (b->px.mode != CONF_MODE_L4 && b->px.forward == FORWARD_NAT)
		return conf_fail(
			ps, b->line, 0,
			"'forward nat' of %s '%s' needs a 'listen' section with 'mode tcp' "
			"or 'mode l4'",
			b->kind, b->px.name);
	list_for_each(p, &b->px.servers) {
		r = check_quic_server(ps, list_entry(p, struct conf_server, link));
		if (r == -ENOMEM)
			return r;
	}
	if (b->px.mode != CONF_MODE_L4) {
		r = refuse_via(ps, b);
		if (r == -ENOMEM)
			return r;
		if (b->px.forward == FORWARD_NONE)
			return 0;
		return conf_fail(ps, b->line, 0, "'forward' of %s '%s' needs 'mode l4'", b->kind,
				 b->px.name);
	}
	r = check_section(ps, b);
	if (r == 0)
		r = check_quic(ps, b);
	list_for_each(p, &b->px.binds) {
		if (r != -ENOMEM)
			r = check_bind(ps, list_entry(p, struct conf_bind, link));
	}
	list_for_each(p, &b->px.servers) {
		if (r != -ENOMEM)
			r = check_server(ps, list_entry(p, struct conf_server, link));
	}
	return r;
}
