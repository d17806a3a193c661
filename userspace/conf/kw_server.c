/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `server`, `server-template` and `default-server`: a server starts as a copy of what the default-server lines before it
 * said. Names are looked up in a hash table: a backend may have thousands. Control thread.
 */
#include <errno.h>
#include <inttypes.h>

#include "conf/kw_action_priv.h"

#define AT(field) .offset = offsetof(struct conf_server, field)

static int parse_sni(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	/* Evaluated per request, so that it can use fields of the request. */
	return compile_expr(ps, ps->px, l, PLACE_REQ | PLACE_CONTENT,
			    &((struct conf_server *)obj)->sni);
}

/* In the end `sni` counts, wherever it stands. no-sni-auto, by min: as if it had not been written. */
static int parse_sni_auto(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_server *s = obj;

	s->auto_sni = NULL;
	return kw->min ? 0
		       : compile_expr_text(ps, ps->px, l, STR("req.hdr(host),host_only"),
					   PLACE_REQ | PLACE_CONTENT, &s->auto_sni);
}

static int parse_check_sni_auto(struct parser *ps, struct line *l, void *obj,
				const struct keyword *kw)
{
	((struct conf_server *)obj)->has_auto_check_sni = !kw->min;
	return 0;
}

static int parse_no_verifyhost(struct parser *ps, struct line *l, void *obj,
			       const struct keyword *kw)
{
	((struct conf_server *)obj)->verifyhost = NULL;
	return 0;
}

static int parse_check_addr(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_server *s = obj;
	bool is_agent = kw->min;
	int r = arg_endpoint(ps, l, is_agent ? &s->agent_ep : &s->check_ep);

	if (r)
		return r;
	if ((is_agent ? s->agent_ep.kind : s->check_ep.kind) != ENDPOINT_IP)
		return conf_fail(ps, l, l->at - 1, "'%saddr' expects an IP address",
				 is_agent ? "agent-" : "");
	s->has_agent_addr |= is_agent;
	if (!is_agent) {
		s->has_check_addr = true;
		if (s->check_ep.port && !s->check_port)
			s->check_port = s->check_ep.port;
	}
	return 0;
}

static int parse_via(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value values[] = { VALUE("server", 0), VALUE("tunnel", 1),
						       VALUES_END };
	uint8_t v;
	int r = arg_value(ps, l, values, &v);

	if (r == 0)
		((struct conf_server *)obj)->check_via_tunnel = v;
	return r;
}

static int parse_observe(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value values[] = { VALUE("layer4", OBSERVE_L4),
						       VALUE("layer7", OBSERVE_L7),
						       VALUE("none", OBSERVE_NONE), VALUES_END };
	uint8_t v;
	int r = arg_value(ps, l, values, &v);

	if (r == 0)
		((struct conf_server *)obj)->observe = v;
	return r;
}

static const struct keyword_value on_errors[] = { VALUE("fastinter", ON_ERROR_FASTINTER),
						  VALUE("fail-check", ON_ERROR_FAIL_CHECK),
						  VALUE("sudden-death", ON_ERROR_SUDDEN_DEATH),
						  VALUE("mark-down", ON_ERROR_MARK_DOWN),
						  VALUES_END };

static const struct keyword_value ws_protocols[] = { VALUE("auto", WS_AUTO), VALUE("h1", WS_H1),
						     VALUE("h2", WS_H2), VALUES_END };

/* on-marked-down, on-marked-up: one thing each can be done. */
static int parse_on_marked(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value down[] = { VALUE("shutdown-sessions", 1), VALUES_END };
	static const struct keyword_value up[] = { VALUE("shutdown-backup-sessions", 1),
						   VALUES_END };
	uint8_t v;
	int r = arg_value(ps, l, kw->min ? up : down, &v);

	if (r == 0)
		*(bool *)((char *)obj + kw->offset) = true;
	return r;
}

int arg_server_proto(struct parser *ps, struct line *l, uint8_t *ret)
{
	static const struct keyword_value values[] = { VALUE("h1", SERVER_PROTO_H1),
						       VALUE("h2", SERVER_PROTO_H2), VALUES_END };

	return arg_value(ps, l, values, ret);
}

static int parse_proto(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	uint8_t v;
	int r = arg_server_proto(ps, l, &v);

	if (r)
		return r;
	((struct conf_server *)obj)->proto = v;
	return 0;
}

static int parse_check_alpn(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	return arg_alpn(ps, l, &((struct conf_server *)obj)->check_alpn);
}

static int parse_check_proto(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	return arg_server_proto(ps, l, &((struct conf_server *)obj)->check_proto);
}

static int parse_init_state(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value values[] = { VALUE("up", INIT_STATE_UP),
						       VALUE("fully-up", INIT_STATE_FULLY_UP),
						       VALUE("down", INIT_STATE_DOWN),
						       VALUE("fully-down", INIT_STATE_FULLY_DOWN),
						       VALUES_END };
	uint8_t v;
	int r = arg_value(ps, l, values, &v);

	if (r == 0)
		((struct conf_server *)obj)->init_state = v;
	return r;
}

/* Idle connections belong to a worker, which never takes another one's. */
static int parse_pool_low(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	uint64_t ignored;

	return arg_u64(ps, l, 0, INT32_MAX, &ignored);
}

static int parse_pool_max(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	uint32_t *field = (uint32_t *)((char *)obj + kw->offset);
	uint64_t v;
	int r;

	if (line_accept(l, "-1")) {
		*field = UINT32_MAX;
		return 0;
	}
	r = arg_u64(ps, l, 0, UINT32_MAX - 1, &v);
	if (r == 0)
		*field = (uint32_t)v;
	return r;
}

/* The opposite of a flag with a name of its own. */
static int parse_clear(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	*(bool *)((char *)obj + kw->offset) = false;
	return 0;
}

#define FLAG(text, field, what) \
	{ NAME(text), SEC_SRV, ARG_FLAG, KW_NO, AT(field), .grade = '1', .help = what }
#define SET_TIME(text, field, d, what)                         \
	{ NAME(text),	SEC_SRV,	  ARG_TIME, AT(field), \
	  .grade = '1', .args = "<time>", .def = d, .help = what }
#define SET_UINT(text, field, lo, hi, d, what)                                                \
	{ NAME(text),	      SEC_SRV,	ARG_UINT,    AT(field), NUMBER(lo, hi), .grade = '1', \
	  .args = "<number>", .def = d, .help = what }

static const struct keyword rows[] = {
	FLAG("check", has_check, "health checks"),
	FLAG("agent-check", has_agent, "an agent on the server is asked about it"),
	{ NAME("agent-port"), SEC_SRV, ARG_U16, AT(agent_port), NUMBER(1, 65535), .grade = '2',
	  .args = "<port>", .help = "port of the agent" },
	{ NAME("agent-addr"), SEC_SRV, ARG_FUNC, .parse = parse_check_addr, .min = 1, .grade = '2',
	  .args = "<address>", .help = "address of the agent, when it is not the server's" },
	{ NAME("agent-send"), SEC_SRV, ARG_STRING, AT(agent_send), .grade = '2', .args = "<text>",
	  .help = "what the agent is told first" },
	SET_TIME("agent-inter", agent_inter, "inter", "interval between questions to the agent"),
	FLAG("backup", is_backup, "used when no other server is up"),
	FLAG("disabled", is_disabled, "starts in maintenance"),
	{ NAME("enabled"), SEC_SRV, ARG_FUNC, AT(is_disabled), .parse = parse_clear, .grade = '1',
	  .help = "the opposite of 'disabled'" },
	{ NAME("non-stick"), SEC_SRV, ARG_FLAG, AT(is_non_stick), .grade = '2',
	  .help = "'stick store-request' and its kin do not remember this server" },
	{ NAME("stick"), SEC_SRV, ARG_FUNC, AT(is_non_stick), .parse = parse_clear, .grade = '2',
	  .help = "the opposite of 'non-stick'" },
	{ NAME("no-ssl-reuse"), SEC_SRV, ARG_FLAG, AT(has_full_handshakes), .grade = '2',
	  .help = "TLS sessions are not resumed" },
	{ NAME("ssl-reuse"), SEC_SRV, ARG_FUNC, AT(has_full_handshakes), .parse = parse_clear,
	  .grade = '2', .help = "the opposite of 'no-ssl-reuse'" },
	FLAG("ssl", is_ssl, "TLS to this server"),
	FLAG("check-ssl", check_ssl, "TLS in health checks"),
	FLAG("check-send-proxy", check_send_proxy, "PROXY header in health checks"),
	SET_TIME("inter", inter, "2s", "interval between health checks"),
	SET_TIME("fastinter", fastinter, "inter", "the same while the state changes"),
	SET_TIME("downinter", downinter, "inter", "the same while the server is down"),
	SET_TIME("slowstart", slowstart, NULL,
		 "a server that comes up gets its full weight after this"),
	SET_TIME("pool-purge-delay", pool_purge_delay, "5s",
		 "idle connections are looked through so often"),
	SET_UINT("rise", rise, 1, 65535, "2", "good checks until a server is up"),
	SET_UINT("fall", fall, 1, 65535, "3", "bad checks until a server is down"),
	SET_UINT("weight", weight, 0, 256, "1", "share of the load"),
	SET_UINT("maxconn", maxconn, 0, UINT32_MAX, NULL, "connections at a time; others wait"),
	SET_UINT("minconn", minconn, 0, UINT32_MAX, NULL, "the same while the backend is not full"),
	SET_UINT("maxqueue", maxqueue, 0, UINT32_MAX, NULL, "requests that wait for this server"),
	SET_UINT("error-limit", error_limit, 1, UINT32_MAX, "10", "errors until on-error acts"),
	SET_UINT("id", id, 1, INT32_MAX, NULL, "number in statistics"),
	{ NAME("port"), SEC_SRV, ARG_U16, AT(check_port), NUMBER(1, 65535), .grade = '1',
	  .args = "<port>", .help = "port for health checks" },
	{ NAME("addr"), SEC_SRV, ARG_FUNC, .parse = parse_check_addr, .grade = '1',
	  .args = "<address>", .help = "address for health checks" },
	{ NAME("via"), SEC_SRV, ARG_FUNC, .parse = parse_via, .grade = '1', .args = "tunnel|server",
	  .def = "server",
	  .help = "'mode l4': health checks go to the service address as the traffic does, or to "
		  "the server's own" },
	{ NAME("cookie"), SEC_SRV, ARG_STRING, AT(cookie), .grade = '1', .args = "<value>",
	  .help = "value that means this server" },
	{ NAME("track"), SEC_SRV, ARG_STRING, AT(track), .grade = '1',
	  .args = "[<backend>/]<server>", .help = "state follows that server's" },
	{ NAME("observe"), SEC_SRV, ARG_FUNC, .parse = parse_observe, .grade = '1',
	  .args = "layer4|layer7", .help = "live traffic counts as health check" },
	{ NAME("on-error"), SEC_SRV, ARG_ENUM, AT(on_error), .values = on_errors, .grade = '1',
	  .args = "fastinter|fail-check|sudden-death|mark-down", .def = "fail-check",
	  .help = "what error-limit does" },
	{ NAME("on-marked-down"), SEC_SRV, ARG_FUNC, AT(on_marked_down_shutdown),
	  .parse = parse_on_marked, .grade = '1', .args = "shutdown-sessions",
	  .help = "connections of a server that goes down are closed" },
	{ NAME("on-marked-up"), SEC_SRV, ARG_FUNC, AT(on_marked_up_shutdown_backup), .min = 1,
	  .parse = parse_on_marked, .grade = '1', .args = "shutdown-backup-sessions",
	  .help = "connections of backup servers are closed when this one is up" },
	{ NAME("crt"), SEC_SRV, ARG_STRING, AT(crt), .min = PATH_CRT, .grade = '1',
	  .args = "<file>", .help = "certificate shown to the server" },
	{ NAME("quic-id"), SEC_SERVER, ARG_FUNC, .parse = parse_quic_id, .grade = '1',
	  .args = "<number>", .help = "mode l4: this server in connection ids of QUIC" },
	{ NAME("verifyhost"), SEC_SRV, ARG_STRING, AT(verifyhost), .grade = '1', .args = "<name>",
	  .help = "name in the server's certificate" },
	{ NAME("no-verifyhost"), SEC_SRV, ARG_FUNC, .parse = parse_no_verifyhost, .grade = '2',
	  .help = "not the one that default-server says; with `sni` it has to be that name" },
	{ NAME("sni"), SEC_SRV, ARG_FUNC, .parse = parse_sni, .grade = '1', .args = "<expression>",
	  .help = "server name sent in the handshake" },
	{ NAME("sni-auto"), SEC_SRV, ARG_FUNC, .parse = parse_sni_auto, .grade = '2',
	  .help = "without `sni`, in mode http: the name in the request's Host field" },
	{ NAME("no-sni-auto"), SEC_SRV, ARG_FUNC, .parse = parse_sni_auto, .min = 1, .grade = '2',
	  .help = "the opposite, which is the default" },
	{ NAME("check-sni-auto"), SEC_SRV, ARG_FUNC, .parse = parse_check_sni_auto, .grade = '2',
	  .help = "without `check-sni`: the name in the Host field of HTTP health checks" },
	{ NAME("no-check-sni-auto"), SEC_SRV, ARG_FUNC, .parse = parse_check_sni_auto, .min = 1,
	  .grade = '2', .help = "the opposite, which is the default" },
	{ NAME("check-sni"), SEC_SRV, ARG_STRING, AT(check_sni), .grade = '1', .args = "<name>",
	  .help = "the same in health checks" },
	{ NAME("check-alpn"), SEC_SRV, ARG_FUNC, .parse = parse_check_alpn, .grade = '2',
	  .args = "<protocols>", .help = "what health checks offer in the handshake" },
	{ NAME("check-proto"), SEC_SRV, ARG_FUNC, .parse = parse_check_proto, .grade = '2',
	  .args = "h1|h2",
	  .help = "what HTTP health checks speak, without negotiation; else as `proto` says" },
	{ NAME("init-state"), SEC_SRV, ARG_FUNC, .parse = parse_init_state, .grade = '2',
	  .args = "up|fully-up|down|fully-down", .def = "up",
	  .help = "what a checked server is until its first checks, and after maintenance" },
	{ NAME("proto"), SEC_SRV, ARG_FUNC, .parse = parse_proto, .grade = '1', .args = "h1|h2",
	  .help = "the protocol, without negotiation" },
	{ NAME("ws"), SEC_SRV, ARG_ENUM, AT(ws), .values = ws_protocols, .grade = '2',
	  .args = "auto|h1|h2", .def = "auto",
	  .help = "how WebSockets are asked for: by an upgrade of HTTP/1 or by HTTP/2's extended "
		  "CONNECT (RFC 8441); auto: HTTP/2 when nothing else is spoken with the server" },
	{ NAME("pool-max-conn"), SEC_SRV, ARG_FUNC, AT(pool_max_conn), .parse = parse_pool_max,
	  .grade = '1', .args = "<number>|-1", .def = "-1", .help = "idle connections kept" },
	{ NAME("pool-low-conn"), SEC_SRV, ARG_FUNC, .parse = parse_pool_low, .grade = '1',
	  .args = "<number>",
	  .help = "accepted, without effect: workers do not take each other's" },
	{ NAME("source"), SEC_SRV, ARG_FUNC, AT(source), .parse = conf_parse_source, .grade = '2',
	  .args = CONF_SOURCE_ARGS,
	  .help = "source address of connections to this server, instead of the section's" },
	{ NAME("max-reuse"), SEC_SRV, ARG_FUNC, AT(max_reuse), .parse = parse_pool_max,
	  .grade = '2', .args = "<number>|-1", .def = "-1", .help = "requests per connection" },
};
static const char *const pending[] = {
	"check-reuse-pool",
	"check-pool-conn-name",
	"strict-maxconn",
	"ktls",
	"from",
	"idle-ping",
	NULL,
};
static const char *const refused[] = {
	"socks4",     "check-via-socks4", "allow-0rtt",	 "shard",	 "no-allow-0rtt",
	"tcp-md5sig", "log-proto",	  "log-bufsize", "quic-cc-algo", "npn",
	"no-npn",     "healthcheck",	  "force-sslv3", NULL,
};
const struct keyword_table conf_kw_server = KEYWORDS("server option", rows, .pending = pending,
						     .refused = refused);

/* --- lines ------------------------------------------------------------------------------------- */

static int parse_options(struct parser *ps, struct line *l, struct conf_server *s, uint16_t section)
{
	const struct scope scopes[4] = { { .table = &conf_kw_server, .obj = s },
					 { .table = &conf_kw_server_link, .obj = s },
					 { .table = &conf_kw_server_resolve, .obj = s },
					 { .table = &conf_kw_tls, .obj = &s->tls } };

	return keyword_options(ps, l, section, scopes, ARRAY_SIZE(scopes));
}

static int check_name(struct parser *ps, struct line *l, struct str name)
{
	for (size_t i = 0; i < name.len; i++) {
		char c = str_lower_char(name.p[i]);

		if (!c ||
		    (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) && !strchr("-_.:", c)))
			return conf_fail_off(ps, l, l->at - 1, i,
					     "character '%c' is not permitted in a server's name",
					     c > ' ' && c < 127 ? c : '?');
	}
	return name.len ? 0 : conf_fail(ps, l, l->at - 1, "empty name");
}

static int check_address(struct parser *ps, struct line *l, const struct conf_server *s)
{
	if (s->ep.is_dgram)
		return conf_fail(ps, l, 2,
				 "servers are reached over TCP; a 'mode l4' section forwards "
				 "whatever protocol its 'bind' names, so leave out 'udp@'");
	if (s->ep.kind == ENDPOINT_FD || s->ep.is_sockpair)
		return conf_fail(ps, l, 2, "a server cannot be a descriptor");
	if (s->ep.port != s->ep.port_last)
		return conf_fail(ps, l, 2, "a server has one port");
	return 0;
}

/* Entered even when the rest is wrong: references to it should not fail, too. */
static int enter_server(struct parser *ps, struct line *l, struct proxy_build *b,
			struct server_build *sb)
{
	struct str name = str_from_cstr(sb->srv.name);
	struct server_build *other = names_find(b->px.server_names, name);

	if (other)
		return conf_fail(
			ps, l, 1, "server '" STR_FMT "' has the same name as the one in %s:%u",
			STR_ARG(str_sub(name, 0, 64)), other->srv.pos.file, other->srv.pos.line);
	return names_add(b->px.server_names, name, sb);
}

static void list_server(struct proxy_build *b, struct server_build *sb)
{
	sb->srv.pos_in_backend = b->px.n_servers++;
	list_push_back(&b->px.servers, &sb->srv.link);
}

/* "5" is 1 to 5. */
static int want_range(struct parser *ps, struct line *l, uint64_t *ret_first, uint64_t *ret_last)
{
	struct str text, last;
	int r = line_want(ps, l, "a number of servers such as 5, or a range such as 1-5", &text);

	if (r)
		return r;
	*ret_first = 1;
	last = text;
	if (str_find_char(text, '-') != SIZE_MAX && str_to_u64(str_cut(&last, '-'), ret_first) != 0)
		*ret_first = UINT64_MAX;
	if (str_to_u64(last, ret_last) != 0 || *ret_first > *ret_last || *ret_last > UINT32_MAX)
		return conf_fail(
			ps, l, l->at - 1,
			"'server-template' expects a number of servers such as 5, or a range "
			"such as 1-5, instead of '" STR_FMT "'",
			STR_ARG(str_sub(text, 0, 64)));
	if (*ret_last - *ret_first >= CONF_MAX_TEMPLATE)
		return conf_fail(ps, l, l->at - 1, "a template makes %d servers at most",
				 CONF_MAX_TEMPLATE);
	return 0;
}

/* All are what the line says, but for their names. */
static int copy_template(struct parser *ps, struct line *l, struct proxy_build *b,
			 const struct server_build *of, uint64_t number)
{
	struct server_build *sb = arena_zalloc(&ps->conf->arena, sizeof(*sb));
	struct str name;
	int r;

	if (!sb)
		return -ENOMEM;
	*sb = *of;
	name = arena_printf(&ps->conf->arena, "%s%" PRIu64, of->srv.name, number);
	if (!name.p)
		return -ENOMEM;
	sb->srv.name = (char *)name.p;
	r = enter_server(ps, l, b, sb);
	if (r == 0)
		list_server(b, sb);
	return r;
}

static int begin_server(struct parser *ps, struct line *l, struct proxy_build *b,
			struct server_build **ret_sb)
{
	struct server_build *sb = arena_zalloc(&ps->conf->arena, sizeof(*sb));
	struct str name;
	int r;

	if (!sb)
		return -ENOMEM;
	sb->srv = b->default_server;
	sb->line = l;
	sb->srv.proxy = &b->px;
	sb->srv.pos = l->pos;
	sb->srv.id = 0;
	r = line_want(ps, l, "a name and an address", &name);
	if (r == 0)
		r = check_name(ps, l, name);
	if (r == 0)
		sb->srv.name = (char *)name.p;
	*ret_sb = sb;
	return r;
}

static int want_address(struct parser *ps, struct line *l, struct conf_server *s)
{
	int r;

	s->text = (char *)line_peek(l).p;
	r = arg_endpoint(ps, l, &s->ep);
	return r ? r : check_address(ps, l, s);
}

static int parse_template(struct parser *ps, struct line *l, struct proxy_build *b)
{
	uint64_t first, last;
	struct server_build *sb;
	int r = begin_server(ps, l, b, &sb);

	if (r == 0)
		r = want_range(ps, l, &first, &last);
	if (r == 0)
		r = want_address(ps, l, &sb->srv);
	if (r == 0)
		r = parse_options(ps, l, &sb->srv, SEC_SERVER);
	if (r == 0 && sb->srv.guid)
		r = conf_fail(ps, l, 0, "'guid' is of one server: a template cannot have it");
	for (; r == 0 && first <= last; first++)
		r = copy_template(ps, l, b, sb, first);
	return r;
}

int parse_server_line(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct server_build *sb;
	int r, ret;

	if (kw->min == SERVER_LINE_DEFAULT)
		return parse_options(ps, l, &b->default_server, SEC_DEFAULT_SERVER);
	if (kw->min == SERVER_LINE_TEMPLATE)
		return parse_template(ps, l, b);
	r = begin_server(ps, l, b, &sb);
	if (r)
		return r;
	r = want_address(ps, l, &sb->srv);
	if (r == -ENOMEM)
		return r;
	ret = enter_server(ps, l, b, sb);
	if (ret || r) /* without an address it is a name, not a server */
		return ret ? ret : r;
	list_server(b, sb);
	return parse_options(ps, l, &sb->srv, SEC_SERVER);
}
