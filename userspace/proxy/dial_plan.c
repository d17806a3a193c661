/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections to servers: with which options, where to, and who may share them. Worker's thread. */
#include "proxy/dial_plan.h"

#include "proxy/h2_link.h"
#include "proxy/pp_header.h"
#include "proxy/worker_priv.h"

static const struct str alpn_http1 = { "\x08http/1.1", 9 }, alpn_h2 = { "\x02h2", 3 };

bool dial_is_http1_only(const struct stream *st)
{
	return (st->flags & STREAM_UPGRADE && !h2_link_takes_websocket(st)) ||
	       st->req.method == HTTP_METHOD_CONNECT;
}

/* The address that the client connected to, as rules may have changed it. */
static const struct addr *client_dst(struct stream *st)
{
	return st->dst.sa.sa_family ? &st->dst : conn_local_addr(st->front.conn);
}

/* `server s *` and `:+100`: the address and the port that the client asked for. */
static bool as_client(struct stream *st, struct addr *to)
{
	const struct addr *dst = client_dst(st);
	int32_t port = addr_port(to);

	if (dst->sa.sa_family != AF_INET && dst->sa.sa_family != AF_INET6)
		return false;
	if (!port)
		port = (int32_t)addr_port(dst) + (st->srv_conf ? st->srv_conf->port_offset : 0);
	if (addr_is_any(to))
		*to = *dst;
	addr_set_port(to, (uint16_t)port);
	return port >= 1 && port <= UINT16_MAX;
}

bool dial_target(struct stream *st, struct dial_plan *p)
{
	const struct conf_server *cs = st->srv_conf;
	struct dial_opts *o = &p->opts;
	struct addr *to = &p->to;

	if (cs && (cs->ep.kind == ENDPOINT_UNIX || cs->ep.kind == ENDPOINT_ABNS)) {
		o->unix_path =
			cs->ep.kind == ENDPOINT_ABNS
				? arena_printf(&st->arena, "@" STR_FMT, STR_ARG(cs->ep.path)).p
				: arena_strdup(&st->arena, cs->ep.path);
		return o->unix_path;
	}
	server_get_addr(st->srv, to);
	if (to->sa.sa_family != AF_INET && to->sa.sa_family != AF_INET6)
		return false;
	if (unlikely(!addr_port(to) || addr_is_any(to)) && !as_client(st, to))
		return false;
	o->to = to;
	return true;
}

static void dial_source(struct stream *st, struct dial_plan *p)
{
	const struct conf_outgoing *src = conf_outgoing_of(st->be, st->srv_conf);

	p->from = src->addr;
	p->opts.interface = src->interface;
	if (src->is_client || (st->be->options & CONF_OPT(TRANSPARENT))) {
		p->from = st->src.sa.sa_family ? st->src : st->front.conn->peer;
		if (!src->is_client_port)
			addr_set_port(&p->from, 0);
		p->opts.transparent = true;
	}
	p->opts.from = p->from.sa.sa_family ? &p->from : NULL;
}

/*
 * What goes with a SYN may arrive twice (RFC 7413 6.1), or nobody may be there. No harm is done when it is the
 * beginning of a handshake or a PROXY header, or a request that can be sent again.
 */
static bool may_be_early(const struct stream *st, const struct dial_opts *o)
{
	if (!st->srv_conf->tfo || st->n_retries || st->flags & STREAM_RESENT)
		return false;
	return o->tls || o->proxy_header.len || stream_is_repeatable(st);
}

static void dial_socket(struct stream *st, struct dial_opts *o)
{
	const struct conf_server *cs = st->srv_conf;

	if (!cs)
		return;
	o->sock = &cs->sock;
	if (unlikely(cs->sock.netns_number))
		o->netns = &st->snap->netns[cs->sock.netns_number - 1];
	o->fastopen = may_be_early(st, o);
}

static struct tls_client *tls_of(const struct stream *st)
{
	const struct proxy_snapshot *snap = st->snap;

	if (unlikely(st->srv->own))
		return st->srv->own->tls;
	return snap->tls && snap->tls[st->be->index]
		       ? snap->tls[st->be->index][st->srv_conf->pos_in_backend]
		       : NULL;
}

int dial_plan_make(struct stream *st, struct dial_plan *p)
{
	const struct conf_proxy *be = st->be;
	struct dial_opts *o = &p->opts;
	int r;

	memset(p, 0, sizeof(*p));
	o->nodelay = true;
	o->keepalive = be->options & (CONF_OPT(TCPKA) | CONF_OPT(SRVTCPKA));
	o->ka = &be->ka_server;
	o->rcvbuf = be->conf->global.rcvbuf_server;
	o->sndbuf = be->conf->global.sndbuf_server;
	dial_source(st, p);
	if (st->srv_conf && st->srv_conf->is_ssl)
		o->tls = tls_of(st);
	if (o->tls && st->srv_conf->sni)
		o->sni = expr_eval_str(st->srv_conf->sni, stream_subject(st));
	if (o->tls && !(st->flags & STREAM_IS_TCP) && dial_is_http1_only(st) &&
	    st->srv_conf->tls.alpn_len)
		o->alpn = alpn_http1;
	else if (o->tls && st->srv_conf->ws == WS_H2 && h2_link_takes_websocket(st))
		o->alpn = alpn_h2;
	r = pp_header(st, &o->proxy_header);
	dial_socket(st, o);
	return r;
}

/* Are address or port those that the client asked for? Paths have neither, and SRV records have ports. */
static bool is_relative(const struct conf_server *cs)
{
	if (cs->ep.kind == ENDPOINT_IP && addr_is_any(&cs->ep.addr))
		return true;
	return !cs->ep.port && !cs->resolve.is_srv &&
	       (cs->ep.kind == ENDPOINT_IP || cs->ep.kind == ENDPOINT_NAME);
}

bool dial_is_plain(const struct stream *st)
{
	const struct conf_server *cs = st->srv_conf;
	const struct conf_proxy *be = st->be;

	return cs && !cs->is_ssl && !cs->send_proxy && !cs->sock.netns && !cs->pool_name &&
	       !is_relative(cs) && !conf_outgoing_of(be, cs)->addr.sa.sa_family &&
	       !(be->options & CONF_OPT(TRANSPARENT));
}

static uint64_t hash_addr(const struct addr *a, uint64_t seed)
{
	uint8_t bytes[16];

	addr_to_v6_mapped(a, bytes);
	return str_hash(str_make((const char *)bytes, sizeof(bytes)), seed + addr_port(a));
}

/*
 * What makes a connection fit for those only who want the same: TLS by which settings and with which name,
 * whose address it carries in a PROXY header or as its source, which port was asked for. The seed is the
 * worker's secret, because clients choose names.
 */
uint64_t dial_key(struct stream *st, const struct dial_plan *p)
{
	const struct conf_server *cs = st->srv_conf;
	const struct dial_opts *o = &p->opts;
	const void *what[] = { st->srv, o->tls };
	uint64_t h = str_hash(str_make((const char *)what, sizeof(what)), st->w->pool_seed);

	h = str_hash(
		cs && cs->pool_name ? expr_eval_str(cs->pool_name, stream_subject(st)) : o->sni, h);
	h = str_hash(o->proxy_header, h);
	h = str_hash(o->interface ? str_from_cstr(o->interface) : STR_NULL, h);
	if (cs && cs->sock.netns)
		h = str_hash(str_from_cstr(cs->sock.netns), h);
	if (o->from)
		h = hash_addr(o->from, h);
	if (!cs || is_relative(cs))
		h = hash_addr(client_dst(st), h);
	return h ? h : 1;
}
