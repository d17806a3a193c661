/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `bind` and `stats socket`: addresses, then options out of tables. A line with several addresses or a
 * range of ports becomes as many binds. Control thread.
 */
#include <errno.h>

#include "conf/kw_action_priv.h"

#define AT(field) .offset = offsetof(struct conf_bind, field)

/* What both kinds of lines can say about a socket file, at these offsets of either. */
static int parse_mode(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct str w;
	unsigned mode = 0;
	int r = line_want(ps, l, "permissions such as 660", &w);

	if (r)
		return r;
	for (size_t i = 0; i < w.len; i++) {
		if (w.p[i] < '0' || w.p[i] > '7' || mode > 07777 / 8)
			return conf_fail(ps, l, l->at - 1,
					 "'mode' expects an octal number such as 660");
		mode = mode * 8 + (unsigned)(w.p[i] - '0');
	}
	*(int *)((char *)obj + kw->offset) = (int)mode;
	return 0;
}

static int parse_owner(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	int *id = (int *)((char *)obj + kw->offset);

	return kw->min ? arg_group(ps, l, id) : arg_user(ps, l, id);
}

static const struct keyword_value levels[] = { VALUE("user", CONF_LEVEL_USER),
					       VALUE("operator", CONF_LEVEL_OPERATOR),
					       VALUE("admin", CONF_LEVEL_ADMIN), VALUES_END };

#define SOCKET_RIGHTS_ROWS(sec, type)                   \
	{ NAME("mode"),                                 \
	  sec,                                          \
	  ARG_FUNC,                                     \
	  .offset = offsetof(struct type, mode),        \
	  .parse = parse_mode,                          \
	  .grade = '1',                                 \
	  .args = "<octal>",                            \
	  .help = "permissions of a socket file" },     \
		{ NAME("user"),                         \
		  sec,                                  \
		  ARG_FUNC,                             \
		  .offset = offsetof(struct type, uid), \
		  .parse = parse_owner,                 \
		  .grade = '1',                         \
		  .args = "<name>",                     \
		  .help = "owner of a socket file" },   \
		{ NAME("group"),                        \
		  sec,                                  \
		  ARG_FUNC,                             \
		  .offset = offsetof(struct type, gid), \
		  .min = 1,                             \
		  .parse = parse_owner,                 \
		  .grade = '1',                         \
		  .args = "<name>",                     \
		  .help = "group of a socket file" },   \
		{ NAME("uid"),                          \
		  sec,                                  \
		  ARG_INT,                              \
		  .offset = offsetof(struct type, uid), \
		  NUMBER(0, INT32_MAX),                 \
		  .grade = '1',                         \
		  .args = "<number>",                   \
		  .help = "owner by number" },          \
		{ NAME("gid"),                          \
		  sec,                                  \
		  ARG_INT,                              \
		  .offset = offsetof(struct type, gid), \
		  NUMBER(0, INT32_MAX),                 \
		  .grade = '1',                         \
		  .args = "<number>",                   \
		  .help = "group by number" }
#define SOCKET_FILE_ROWS(sec, type)                                              \
	SOCKET_RIGHTS_ROWS(sec, type), { NAME("level"),                          \
					 sec,                                    \
					 ARG_ENUM,                               \
					 .offset = offsetof(struct type, level), \
					 .values = levels,                       \
					 .grade = '1',                           \
					 .args = "user|operator|admin",          \
					 .def = "operator",                      \
					 .help = "what the runtime API allows there" }

/* unix-bind [prefix <text>] [mode <octal>] …: of Unix sockets in bind lines that do not say otherwise. */
static const struct keyword unix_rows[] = {
	{ NAME("prefix"), SEC_GLOBAL, ARG_STRING, .offset = offsetof(struct conf_unix_bind, prefix),
	  .grade = '2', .args = "<text>", .help = "stands before every path" },
	SOCKET_RIGHTS_ROWS(SEC_GLOBAL, conf_unix_bind),
};
static const struct keyword_table unix_table = KEYWORDS("unix-bind option", unix_rows);

int parse_unix_bind(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct scope scope = { .table = &unix_table,
			       .obj = &((struct conf_global *)obj)->unix_bind };

	if (!line_has(l))
		return conf_fail(ps, l, l->n,
				 "'unix-bind' expects prefix, mode, user, uid, group or gid");
	return keyword_options(ps, l, SEC_GLOBAL, &scope, 1);
}

static int parse_crt(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_bind *b = obj;
	char **more, *name;
	int r = arg_path(ps, l, "a file or directory", PATH_CRT, &name);

	if (r)
		return r;
	more = arena_alloc(&ps->conf->arena, (b->n_crts + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	if (b->n_crts)
		memcpy(more, b->crts, b->n_crts * sizeof(*more));
	more[b->n_crts++] = name;
	b->crts = more;
	return 0;
}

static int parse_proto(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value values[] = { VALUE("h1", BIND_PROTO_H1),
						       VALUE("h2", BIND_PROTO_H2), VALUES_END };
	struct conf_bind *b = obj;
	uint8_t v;
	int r = arg_value(ps, l, values, &v);

	if (r)
		return r;
	if (v == BIND_PROTO_H2 && !CONF_HAS_H2)
		return conf_fail(ps, l, l->at - 1, "HTTP/2 is not supported by this version");
	b->proto = v;
	return 0;
}

static const struct keyword rows[] = {
	{ NAME("ssl"), SEC_BIND, ARG_FLAG, AT(is_ssl), .grade = '1', .help = "TLS" },
	{ NAME("crt"), SEC_BIND, ARG_FUNC, .parse = parse_crt, .grade = '1',
	  .args = "<file|directory>",
	  .help = "certificate, key and chain; may be given several times" },
	{ NAME("crt-list"), SEC_BIND, ARG_STRING, AT(crt_list), .min = PATH_CRT, .grade = '1',
	  .args = "<file>", .help = "file that lists certificates with options and names" },
	{ NAME("default-crt"), SEC_BIND, ARG_STRING, AT(default_crt), .min = PATH_CRT, .grade = '2',
	  .args = "<file>", .help = "certificate for clients that name none of the others" },
	{ NAME("tls-ticket-keys"), SEC_BIND, ARG_STRING, AT(ticket_keys), .min = PATH_FILE,
	  .grade = '2', .args = "<file>",
	  .help = "keys of session tickets, in base64, one per line; the last but one encrypts" },
	{ NAME("accept-proxy"), SEC_BIND, ARG_FLAG, AT(accept_proxy), .grade = '1',
	  .help = "connections begin with a PROXY header" },
	{ NAME("proto"), SEC_BIND, ARG_FUNC, .parse = parse_proto, .grade = '1', .args = "h1|h2",
	  .help = "the protocol, without negotiation" },
	{ NAME("name"), SEC_BIND, ARG_STRING, AT(name), .grade = '1', .args = "<name>",
	  .def = "sock-<id>", .help = "name in statistics" },
	{ NAME("id"), SEC_BIND, ARG_UINT, AT(id), NUMBER(1, INT32_MAX), .grade = '1',
	  .args = "<number>", .help = "number in statistics" },
	{ NAME("interface"), SEC_BIND, ARG_STRING, AT(interface), .grade = '1', .args = "<name>",
	  .help = "only connections of this interface" },
	{ NAME("maxconn"), SEC_BIND, ARG_UINT, AT(maxconn), .grade = '1', .args = "<number>",
	  .help = "connections of this listener" },
	{ NAME("backlog"), SEC_BIND, ARG_UINT, AT(backlog), .grade = '1', .args = "<number>",
	  .help = "connections that the kernel may keep waiting" },
	{ NAME("v4v6"), SEC_BIND, ARG_FLAG, AT(v4v6), .grade = '1',
	  .help = "'::' takes IPv4, too" },
	{ NAME("v6only"), SEC_BIND, ARG_FLAG, AT(v6only), .grade = '1',
	  .help = "'::' takes IPv6 only" },
	{ NAME("transparent"), SEC_BIND, ARG_FLAG, AT(transparent), .grade = '1',
	  .help = "the address need not be one of this host's" },
	{ NAME("defer-accept"), SEC_BIND, ARG_FLAG, AT(defer_accept), .grade = '1',
	  .help = "wake up when data is there" },
	{ NAME("mss"), SEC_BIND, ARG_U16, AT(mss), NUMBER(1, 65535), .grade = '2',
	  .args = "<bytes>", .help = "TCP segments of at most so many bytes" },
	{ NAME("tfo"), SEC_BIND, ARG_FLAG, AT(tfo), .grade = '1', .help = "TCP fast open" },
	SOCKET_FILE_ROWS(SEC_BIND, conf_bind),
	{ NAME("thread"), SEC_BIND, ARG_NOOP, KW_ONE_WORD, .grade = 'n', .args = "<threads>",
	  .help = "accepted: every worker serves every listener" },
	{ NAME("process"), SEC_BIND, ARG_NOOP, KW_ONE_WORD, .grade = 'n', .args = "<threads>",
	  .help = "the same" },
	{ NAME("shards"), SEC_BIND, ARG_NOOP, KW_ONE_WORD, .grade = 'n', .args = "<number>",
	  .help = "accepted: every worker has its own socket" },
	{ NAME("severity-output"), SEC_BIND, ARG_NOOP, KW_ONE_WORD, .grade = 'n',
	  .args = "none|number|string", .help = "accepted: of `stats socket` lines only" },
	{ NAME("nice"), SEC_BIND, ARG_NOOP, KW_ONE_WORD, .grade = 'n', .args = "<number>",
	  .help = "accepted: streams are served in turn" },
	{ NAME("expose-fd"), SEC_BIND, ARG_NOOP, KW_ONE_WORD, .grade = 'n', .args = "listeners",
	  .help = "accepted" },
};
static const char *const pending[] = {
	"ktls",
	"idle-ping",
	NULL,
	NULL,
};
static const char *const refused[] = {
	"quic-*",
	"generate-certificates",
	"ca-sign-file",
	"ca-sign-pass",
	"ecdh",
	"ech",
	"tcp-md5sig",
	"tcp-ss",
	"accept-netscaler-cip",
	"npn",
	"nbconn",
	"label",
	"allow-0rtt",
	"force-sslv3",
	NULL,
};
const struct keyword_table conf_kw_bind = KEYWORDS("bind option", rows, .pending = pending,
						   .refused = refused);

static const struct keyword_value severities[] = { VALUE("none", CONF_SEVERITY_NONE),
						   VALUE("number", CONF_SEVERITY_NUMBER),
						   VALUE("string", CONF_SEVERITY_STRING),
						   VALUES_END };

static const struct keyword socket_rows[] = {
	SOCKET_FILE_ROWS(SEC_STATS_SOCKET, conf_stats_socket),
	{ NAME("severity-output"), SEC_STATS_SOCKET, ARG_ENUM,
	  .offset = offsetof(struct conf_stats_socket, severity), .values = severities,
	  .grade = '2', .args = "none|number|string", .def = "none",
	  .help = "severity of messages, in front of them" },
	{ NAME("expose-fd"), SEC_STATS_SOCKET, ARG_NOOP, KW_ONE_WORD, .grade = '1',
	  .args = "listeners",
	  .help = "a new process may take the listening sockets over here (headgated -x)" },
	{ NAME("process"), SEC_STATS_SOCKET, ARG_NOOP, KW_ONE_WORD, .grade = 'n',
	  .args = "<threads>", .help = "accepted" },
	{ NAME("thread"), SEC_STATS_SOCKET, ARG_NOOP, KW_ONE_WORD, .grade = 'n',
	  .args = "<threads>", .help = "accepted" },
};
static const char *const socket_pending[] = { "ssl",	   "crt",	   "name",	"id",
					      "interface", "maxconn",	   "backlog",	"v4v6",
					      "v6only",	   "accept-proxy", "namespace", NULL };
static const struct keyword_table socket_table = KEYWORDS("option", socket_rows,
							  .pending = socket_pending);

int parse_stats_socket(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_stats_socket *s = arena_zalloc(&ps->conf->arena, sizeof(*s));
	struct scope scope = { .table = &socket_table, .obj = s };
	int r;

	if (!s)
		return -ENOMEM;
	*s = (struct conf_stats_socket){ .pos = l->pos,
					 .level = CONF_LEVEL_OPERATOR,
					 .mode = -1,
					 .uid = -1,
					 .gid = -1,
					 .text = (char *)line_peek(l).p };
	r = arg_endpoint(ps, l, &s->ep);
	if (r)
		return r;
	if (s->ep.is_dgram || s->ep.kind == ENDPOINT_NAME || s->ep.is_sockpair)
		return conf_fail(ps, l, l->at - 1,
				 "'stats socket' expects a path, an IP address and port, "
				 "or fd@<n>");
	if (s->ep.kind == ENDPOINT_IP && (!s->ep.port || s->ep.port != s->ep.port_last))
		return conf_fail(ps, l, l->at - 1,
				 "'stats socket' expects one port behind the address");
	for (unsigned i = l->at; i < l->n; i++)
		s->expose_fd |= str_is_eq(l->words[i], STR("expose-fd"));
	r = keyword_options(ps, l, SEC_STATS_SOCKET, &scope, 1);
	if (r)
		return r;
	list_push_back(&((struct conf_global *)obj)->stats_sockets, &s->link);
	return 0;
}

/* --- bind -------------------------------------------------------------------------------------- */

static int check_address(struct parser *ps, struct line *l, const struct endpoint *ep)
{
	if (ep->kind == ENDPOINT_NAME)
		return conf_fail(ps, l, 1, "'bind' expects an address, not the name '" STR_FMT "'",
				 (int)(ep->host.len > 64 ? 64 : ep->host.len), ep->host.p);
	if (ep->is_sockpair)
		return conf_fail(ps, l, 1,
				 "'bind' with 'sockpair@' is not supported by this version");
	if (ep->port_offset_sign)
		return conf_fail(ps, l, 1, "'bind' expects a port, not an offset");
	if (ep->kind == ENDPOINT_IP && (!ep->has_port || !ep->port))
		return conf_fail(ps, l, 1, "missing port number: 'bind' expects <address>:<port>");
	return 0;
}

static int push_binds(struct parser *ps, struct proxy_build *b, struct line *l,
		      struct conf_bind *model, const struct endpoint *ep, char *text)
{
	unsigned last = ep->kind == ENDPOINT_IP ? ep->port_last : ep->port;

	for (unsigned port = ep->port; port <= last; port++) {
		struct conf_bind *n = arena_alloc(&ps->conf->arena, sizeof(*n));

		if (!n)
			return -ENOMEM;
		*n = *model;
		n->ep = *ep;
		n->text = text;
		if (ep->kind == ENDPOINT_IP) {
			n->ep.port = n->ep.port_last = (uint16_t)port;
			addr_set_port(&n->ep.addr, (uint16_t)port);
		}
		if (port != ep->port)
			n->id = 0;
		list_push_back(&b->px.binds, &n->link);
		if (model->guid) {
			int r = guid_of_bind(ps, l, model, n);

			if (r)
				return r;
		}
	}
	return 0;
}

/* The addresses of a line: separated by commas. */
static int push_addresses(struct parser *ps, struct proxy_build *b, struct line *l, struct str all,
			  struct conf_bind *model)
{
	struct str rest = all;
	int r = 0;

	while (r == 0 && rest.p) {
		struct str one = str_cut(&rest, ','), text;
		struct endpoint ep;
		struct err err;

		text = lex_expand(&ps->lexer, one, &err);
		if (!text.p || endpoint_parse(text, &ep, &err))
			return conf_fail_off(ps, l, 1, (size_t)(one.p - all.p), "%s", err.text);
		r = check_address(ps, l, &ep);
		if (r == 0) {
			char *copy = arena_strdup(&ps->conf->arena, one);

			r = copy ? push_binds(ps, b, l, model, &ep, copy) : -ENOMEM;
		}
	}
	return r;
}

int parse_bind_line(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct conf_bind *model = arena_zalloc(&ps->arena, sizeof(*model));
	struct scope scopes[3] = { { .table = &conf_kw_bind },
				   { .table = &conf_kw_tls },
				   { .table = &conf_kw_bind_link } };
	struct str addresses;
	int r;

	if (!model)
		return -ENOMEM;
	*model = (struct conf_bind){ .proxy = &b->px,
				     .pos = l->pos,
				     .mode = -1,
				     .uid = -1,
				     .gid = -1,
				     .level = CONF_LEVEL_OPERATOR };
	scopes[0].obj = scopes[2].obj = model;
	scopes[1].obj = &model->tls;
	r = line_want(ps, l, "an address such as :80 or 192.0.2.1:443", &addresses);
	if (r == 0)
		r = keyword_options(ps, l, SEC_BIND, scopes, ARRAY_SIZE(scopes));
	if (r)
		return r;
	if ((model->n_crts || model->crt_list) && !model->is_ssl) {
		r = conf_warn(ps, l, 0,
			      "certificates without 'ssl': this listener will not speak TLS");
		if (r)
			return r;
	}
	if (model->is_ssl && !model->n_crts && !model->crt_list && !model->default_crt)
		return conf_fail(ps, l, 0, "'ssl' expects a certificate: add 'crt <file>'");
	if (model->v4v6 && model->v6only)
		return conf_fail(ps, l, 0, "'v4v6' and 'v6only' contradict each other");
	return push_addresses(ps, b, l, addresses, model);
}
