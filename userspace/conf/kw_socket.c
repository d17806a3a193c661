/* SPDX-License-Identifier: BSD-2-Clause */
/* What sockets are opened with: source address, TCP keep-alive, buffers of the kernel, rights of Unix sockets. */
#include <errno.h>

#include "conf/conf_priv.h"

#define AT(field) .offset = offsetof(struct conf_global, field)
#define BUFFER(text, field, what)                                           \
	{ NAME(text),		SEC_GLOBAL,   ARG_SIZE,		 AT(field), \
	  NUMBER(0, INT32_MAX), .grade = '2', .args = "<bytes>", .help = what }
static const struct keyword global_rows[] = {
	{ NAME("unix-bind"), SEC_GLOBAL, ARG_FUNC, .parse = parse_unix_bind, .grade = '2',
	  .args = "[prefix <text>] [mode <octal>] [user <name>] [uid <n>] [group <name>] [gid <n>]",
	  .help = "of Unix sockets in bind lines" },
	BUFFER("tune.rcvbuf.client", rcvbuf_client,
	       "kernel's receive buffer of client connections, instead of one that grows"),
	BUFFER("tune.rcvbuf.server", rcvbuf_server, "the same towards servers"),
	BUFFER("tune.sndbuf.client", sndbuf_client,
	       "kernel's send buffer of client connections, instead of one that grows"),
	BUFFER("tune.sndbuf.server", sndbuf_server, "the same towards servers"),
	{ NAME("tune.rcvbuf.frontend"), SEC_GLOBAL, ARG_NOOP, .grade = 'n', .args = "<bytes>",
	  .help = "accepted: of datagram sockets that are not there" },
	{ NAME("tune.rcvbuf.backend"), SEC_GLOBAL, ARG_NOOP, .grade = 'n', .args = "<bytes>",
	  .help = "the same" },
	{ NAME("tune.sndbuf.frontend"), SEC_GLOBAL, ARG_NOOP, .grade = 'n', .args = "<bytes>",
	  .help = "the same" },
	{ NAME("tune.sndbuf.backend"), SEC_GLOBAL, ARG_NOOP, .grade = 'n', .args = "<bytes>",
	  .help = "the same" },
};
const struct keyword_table conf_kw_socket_global = KEYWORDS("keyword", global_rows);
#undef AT

#define AT(side, field) .offset = offsetof(struct conf_proxy, side.field)
/* The kernel's own bounds: net/ipv4/tcp.c, MAX_TCP_KEEPIDLE and its kin. */
#define KEEPALIVE(text, sections, side)                                                           \
	{ NAME(text "-cnt"),  sections,                                                           \
	  ARG_UINT,	      AT(side, count),                                                    \
	  NUMBER(1, 127),     .grade = '2',                                                       \
	  .args = "<number>", .help = "TCP keep-alive: probes without an answer" },               \
		{ NAME(text "-idle"), sections,                                                   \
		  ARG_FUNC,	      .parse = parse_keepalive,                                   \
		  AT(side, idle_s),   .grade = '2',                                               \
		  .args = "<time>",   .help = "TCP keep-alive: silence before the first probe" }, \
		{ NAME(text "-intvl"),                                                            \
		  sections,                                                                       \
		  ARG_FUNC,                                                                       \
		  .parse = parse_keepalive,                                                       \
		  AT(side, interval_s),                                                           \
		  .grade = '2',                                                                   \
		  .args = "<time>",                                                               \
		  .help = "TCP keep-alive: between probes" }

static int parse_keepalive(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	const uint64_t second = 1000000000ull;
	uint64_t ns;
	int r = arg_time(ps, l, second, &ns);

	if (r)
		return r;
	if (ns < second || ns / second > INT16_MAX)
		return conf_fail(ps, l, l->at - 1, "'" STR_FMT "' expects a time from 1s to %ds",
				 STR_ARG(kw->name), INT16_MAX);
	*(uint32_t *)((char *)obj + kw->offset) = (uint32_t)(ns / second);
	return 0;
}

int conf_parse_source(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_outgoing *src = (struct conf_outgoing *)((char *)obj + kw->offset);
	struct endpoint ep;
	int r = arg_endpoint(ps, l, &ep);

	if (r)
		return r;
	if (ep.kind != ENDPOINT_IP)
		return conf_fail(ps, l, l->at - 1, "'source' expects an IP address");
	*src = (struct conf_outgoing){ .addr = ep.addr };
	while (r == 0 && line_has(l)) {
		if (line_accept(l, "interface")) {
			r = arg_string(ps, l, "the name of an interface", &src->interface);
		} else if (line_accept(l, "usesrc")) {
			src->is_client = true;
			if (line_accept(l, "client"))
				src->is_client_port = true;
			else if (!line_accept(l, "clientip"))
				return conf_fail(ps, l, l->at,
						 "'usesrc' expects 'client' or 'clientip' (other "
						 "forms are not supported by this version)");
		} else {
			break;
		}
	}
	return r;
}

static const struct keyword rows[] = {
	{ NAME("source"), SEC_DLB, ARG_FUNC, .offset = offsetof(struct conf_proxy, source),
	  .parse = conf_parse_source, .grade = '2', .args = CONF_SOURCE_ARGS,
	  .help = "source address of connections to servers" },
	KEEPALIVE("clitcpka", SEC_DFL, ka_client),
	KEEPALIVE("srvtcpka", SEC_DLB, ka_server),
};
#undef AT
const struct keyword_table conf_kw_socket = KEYWORDS("keyword", rows);

void dump_sockets(FILE *f, const struct conf_proxy *px)
{
	const struct {
		const char *name;
		const struct conf_keepalive *ka;
	} sides[] = { { "clitcpka", &px->ka_client }, { "srvtcpka", &px->ka_server } };

	for (size_t i = 0; i < ARRAY_SIZE(sides); i++) {
		const struct conf_keepalive *ka = sides[i].ka;

		if (ka->count | ka->idle_s | ka->interval_s)
			fprintf(f, "  %s count %u idle %us interval %us\n", sides[i].name,
				ka->count, ka->idle_s, ka->interval_s);
	}
}

int finalize_unix_bind(struct parser *ps, struct conf_bind *b)
{
	const struct conf_unix_bind *u = &ps->conf->global.unix_bind;
	struct str path;

	if (b->ep.kind != ENDPOINT_UNIX)
		return 0;
	b->mode = b->mode >= 0 ? b->mode : u->mode;
	b->uid = b->uid >= 0 ? b->uid : u->uid;
	b->gid = b->gid >= 0 ? b->gid : u->gid;
	if (!u->prefix)
		return 0;
	path = arena_printf(&ps->conf->arena, "%s" STR_FMT, u->prefix, STR_ARG(b->ep.path));
	if (!path.p)
		return -ENOMEM;
	if (path.len >= sizeof(((struct sockaddr_un *)0)->sun_path))
		return conf_fail_pos(ps, &b->pos,
				     "the path of this Unix socket is too long with "
				     "the prefix of 'unix-bind'");
	b->ep.path = path;
	return 0;
}
