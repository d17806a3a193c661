/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sections whose packets are forwarded in the kernel: nothing there can look into a connection, so
 * whatever would need that is refused here, before anything is attached. Control thread.
 */
#include <errno.h>
#include <headgate/limits.h>

#include "conf/conf_priv.h"

static bool is_prime(uint32_t n)
{
	for (uint32_t d = 2; d * d <= n; d++) {
		if (n % d == 0)
			return false;
	}
	return n > 1;
}

static int check_bind(struct parser *ps, const struct conf_bind *b)
{
	const char *what = b->is_ssl	     ? "ssl"
			   : b->accept_proxy ? "accept-proxy"
			   : b->maxconn	     ? "maxconn"
					     : NULL;

	if (b->ep.kind != ENDPOINT_IP || addr_is_any(&b->ep.addr))
		return conf_fail_pos(
			ps, &b->pos,
			"'mode l4' needs a service address such as 192.0.2.10:80 instead "
			"of '%.64s'",
			b->text);
	if (what)
		return conf_fail_pos(ps, &b->pos,
				     "'%s' is not possible in 'mode l4': packets are forwarded, "
				     "connections are not ended here",
				     what);
	return 0;
}

static int check_server(struct parser *ps, struct conf_server *s)
{
	struct line *l = container_of(s, struct server_build, srv)->line;
	const char *what = s->is_ssl	   ? "ssl"
			   : s->send_proxy ? "send-proxy"
			   : s->maxconn	   ? "maxconn"
			   : s->cookie	   ? "cookie"
			   : s->slowstart  ? "slowstart"
					   : NULL;
	struct list *p;

	if (s->ep.kind != ENDPOINT_IP || addr_is_any(&s->ep.addr))
		return conf_fail(
			ps, l, 2,
			"'mode l4' needs the IP address of server '%.64s' instead of '%.64s'",
			s->name, s->text);
	if (what)
		return conf_fail(ps, l, 1, "'%s' of server '%.64s' is not possible in 'mode l4'",
				 what, s->name);
	list_for_each(p, &s->proxy->binds) {
		const struct conf_bind *b = list_entry(p, struct conf_bind, link);

		if (s->ep.port && b->ep.port != s->ep.port)
			return conf_fail(
				ps, l, 2,
				"server '%.64s' has port %u, but packets for '%.64s' arrive "
				"there with port %u: tunnels do not change ports, leave it out",
				s->name, s->ep.port, b->text, b->ep.port);
	}
	return 0;
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
				 "'%.64s' is not possible in 'mode l4' ('%s'): packets are "
				 "forwarded without a look inside",
				 rule, px->name);
	if (b->has_balance && px->balance.algo != BALANCE_MAGLEV)
		return conf_fail(ps, b->line, 0,
				 "'mode l4' of '%s' needs 'balance maglev' (or no 'balance')",
				 px->name);
	if (px->maglev_table_size && !is_prime(px->maglev_table_size))
		return conf_fail(ps, b->line, 0,
				 "'maglev-table-size' of '%s' is %u, which is no prime (65537 is)",
				 px->name, px->maglev_table_size);
	if (px->maglev_table_size && px->maglev_table_size < px->n_servers)
		return conf_fail(ps, b->line, 0,
				 "'maglev-table-size' of '%s' is smaller than its number of "
				 "servers",
				 px->name);
	if (px->n_servers >= HG_MAX_BACKENDS)
		return conf_fail(ps, b->line, 0, "'%s' has too many servers for 'mode l4' (max %d)",
				 px->name, HG_MAX_BACKENDS - 1);
	px->balance.algo = BALANCE_MAGLEV;
	return 0;
}

int finalize_l4(struct parser *ps, struct proxy_build *b)
{
	struct list *p;
	int r;

	if (b->px.mode != CONF_MODE_L4) {
		if (b->px.forward == FORWARD_NONE)
			return 0;
		return conf_fail(ps, b->line, 0, "'forward' of %s '%s' needs 'mode l4'", b->kind,
				 b->px.name);
	}
	r = check_section(ps, b);
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
