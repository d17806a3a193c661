/* SPDX-License-Identifier: BSD-2-Clause */
/* `option X` and `no option X`, and the statistics page. One bit each in conf_proxy.options. */
#include <errno.h>

#include "conf/conf_priv.h"

#define LOG_BITS   (CONF_OPT(HTTPLOG) | CONF_OPT(TCPLOG) | CONF_OPT(HTTPSLOG))
#define CLOSE_BITS (CONF_OPT(HTTPCLOSE) | CONF_OPT(HTTP_SERVER_CLOSE) | CONF_OPT(HTTP_KEEP_ALIVE))

/* kw->min: the option's bit; kw->max: bits that it takes the place of. */
static int parse_option(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_proxy *px = &((struct proxy_build *)obj)->px;

	if (l->is_negated) {
		px->options &= ~kw->min;
		px->options_no |= kw->min;
		return 0;
	}
	px->options = (px->options & ~kw->max) | kw->min;
	px->options_no &= ~kw->min;
	return 0;
}

static int parse_log_option(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;
	int r = parse_option(ps, l, obj, kw);

	b->log_format = (struct format_text){ 0 };
	if (r == 0 && !l->is_negated && kw->min == CONF_OPT(HTTPLOG) && line_accept(l, "clf"))
		b->log_format.text = (char *)logfmt_clf;
	return r;
}

static int parse_restrict(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value values[] = { VALUE("preserve", RESTRICT_PRESERVE),
						       VALUE("delete", RESTRICT_DELETE),
						       VALUE("reject", RESTRICT_REJECT),
						       VALUES_END };

	return arg_value(ps, l, values, &((struct proxy_build *)obj)->px.restrict_names);
}

static int parse_redispatch(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_proxy *px = &((struct proxy_build *)obj)->px;
	int64_t n;
	int r = parse_option(ps, l, obj, kw);

	px->redispatch_interval = -1;
	if (r || l->is_negated || !line_has(l))
		return r;
	if (str_to_i64(line_peek(l), &n) || n < -100 || n > 100 || n == 0)
		return conf_fail(ps, l, l->at,
				 "'option redispatch' expects a number from -100 to 100, not 0, "
				 "instead of '" STR_FMT "'",
				 STR_ARG(str_sub(line_peek(l), 0, 64)));
	l->at++;
	px->redispatch_interval = (int32_t)n;
	return 0;
}

static int parse_tcp_check(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_check *c = &((struct proxy_build *)obj)->px.check;

	c->type = l->is_negated ? CHECK_TCP : CHECK_TCP_SCRIPT;
	return 0;
}

static int parse_old_violations(struct parser *ps, struct line *l, void *obj,
				const struct keyword *kw)
{
	int r = conf_warn(ps, l, l->kw, "'" STR_FMT "' is an old option: write '%s'",
			  STR_ARG(kw->name), kw->def);

	return r ? r : parse_option(ps, l, obj, kw);
}

#define OPTION(bit, text, sec, gr, what)                                                \
	{ NAME(text),		sec,	     ARG_FUNC,	  KW_NO, .parse = parse_option, \
	  .min = CONF_OPT(bit), .grade = gr, .help = what }
#define PENDING_OPTION(bit, text, sec, what) \
	{ NAME(text),                        \
	  sec,                               \
	  ARG_FUNC,                          \
	  KW_NO | KW_PENDING,                \
	  .parse = parse_option,             \
	  .min = CONF_OPT(bit),              \
	  .grade = '2',                      \
	  .help = what }
#define CHECK(text, type, a, what)                                                      \
	{ NAME(text),  SEC_DLB,	  ARG_FUNC,	KW_NO,	     .parse = parse_check_kind, \
	  .min = type, .args = a, .grade = '2', .help = what }
#define NOOP_OPTION(text, sec, what) \
	{ NAME(text), sec, ARG_NOOP, KW_NO, .grade = 'n', .help = "accepted: " what }
#define CLOSE(bit, text, what)         \
	{                              \
		NAME(text),            \
		SEC_DFLB,              \
		ARG_FUNC,              \
		KW_NO,                 \
		.parse = parse_option, \
		.min = CONF_OPT(bit),  \
		.max = CLOSE_BITS,     \
		.grade = '1',          \
		.help = what           \
	}
#define LOGGING(bit, text, a, what)        \
	{                                  \
		NAME(text),                \
		SEC_DFLB,                  \
		ARG_FUNC,                  \
		KW_NO,                     \
		.parse = parse_log_option, \
		.min = CONF_OPT(bit),      \
		.max = LOG_BITS,           \
		.grade = '1',              \
		.args = a,                 \
		.help = what               \
	}

static const struct keyword rows[] = {
	LOGGING(HTTPLOG, "httplog", "[clf]", "log lines with everything about a request"),
	LOGGING(TCPLOG, "tcplog", NULL, "log lines about a connection"),
	LOGGING(HTTPSLOG, "httpslog", NULL, "httplog and the TLS handshake"),
	OPTION(DONTLOGNULL, "dontlognull", SEC_DFL, '1',
	       "no log line for connections without data"),
	OPTION(DONTLOG_NORMAL, "dontlog-normal", SEC_DFL, '1', "no log line for what went well"),
	OPTION(LOG_SEPARATE_ERRORS, "log-separate-errors", SEC_DFL, '1',
	       "errors are logged as errors"),
	OPTION(LOGASAP, "logasap", SEC_DFL, '1', "log when the answer begins"),
	OPTION(LOG_HEALTH_CHECKS, "log-health-checks", SEC_DLB, '1', "log every change of a check"),
	{ NAME("forwardfor"), SEC_DFLB, ARG_FUNC, KW_NO, .parse = parse_forwardfor,
	  .min = CONF_OPT(FORWARDFOR), .grade = '1',
	  .args = "[except <net>] [header <name>] [if-none]",
	  .help = "the client's address in a header" },
	{ NAME("originalto"), SEC_DFLB, ARG_FUNC, KW_NO, .parse = parse_originalto,
	  .min = CONF_OPT(ORIGINALTO), .grade = '1', .args = "[except <net>] [header <name>]",
	  .help = "the original destination in a header" },
	{ NAME("redispatch"), SEC_DLB, ARG_FUNC, KW_NO, .parse = parse_redispatch,
	  .min = CONF_OPT(REDISPATCH), .grade = '1', .args = "[<interval>]",
	  .help = "another server when one cannot be reached" },
	{ NAME("httpchk"), SEC_DLB, ARG_FUNC, KW_NO, .parse = parse_httpchk, .grade = '1',
	  .args = "[[<method>] <uri> [<version>]]", .help = "health checks by HTTP" },
	{ NAME("tcp-check"), SEC_DLB, ARG_FUNC, KW_NO, .parse = parse_tcp_check, .grade = '1',
	  .help = "health checks by connecting, and a script" },
	CHECK("ssl-hello-chk", CHECK_SSL_HELLO, NULL, "health checks by a TLS hello"),
	CHECK("smtpchk", CHECK_SMTP, "[HELO|EHLO <name>]", "health checks by SMTP"),
	CHECK("mysql-check", CHECK_MYSQL, "[user <name> [post-41|pre-41]]",
	      "health checks by MySQL's greeting, and a login"),
	CHECK("pgsql-check", CHECK_PGSQL, "user <name>", "health checks by PostgreSQL's startup"),
	CHECK("redis-check", CHECK_REDIS, NULL, "health checks by Redis' PING"),
	CHECK("ldap-check", CHECK_LDAP, NULL, "health checks by an anonymous LDAP bind"),
	CLOSE(HTTP_KEEP_ALIVE, "http-keep-alive", "connections stay on both sides (default)"),
	CLOSE(HTTP_SERVER_CLOSE, "http-server-close", "they stay on the client's side only"),
	CLOSE(HTTPCLOSE, "httpclose", "one request per connection"),
	OPTION(HTTP_BUFFER_REQUEST, "http-buffer-request", SEC_DFLB, '1', "wait for the body"),
	OPTION(ABORTONCLOSE, "abortonclose", SEC_DFLB, '1',
	       "a client that closes gives up its request"),
	OPTION(ALLBACKUPS, "allbackups", SEC_DLB, '1', "all backup servers at once"),
	OPTION(TCPKA, "tcpka", SEC_DFLB, '1', "TCP keep-alive on both sides"),
	OPTION(CLITCPKA, "clitcpka", SEC_DFL, '1', "TCP keep-alive of clients"),
	OPTION(SRVTCPKA, "srvtcpka", SEC_DLB, '1', "TCP keep-alive of servers"),
	OPTION(CONTSTATS, "contstats", SEC_DFL, '1', "counters move during long transfers"),
	OPTION(SOCKET_STATS, "socket-stats", SEC_DFL, '1', "counters per listener"),
	OPTION(NOLINGER, "nolinger", SEC_DFLB, '1', "connections are reset, not closed"),
	OPTION(HTTP_IGNORE_PROBES, "http-ignore-probes", SEC_DFL, '1',
	       "no answer to empty connections"),
	OPTION(PREFER_LAST_SERVER, "prefer-last-server", SEC_DLB, '1',
	       "stay with the connection's server"),
	PENDING_OPTION(TRANSPARENT, "transparent", SEC_DLB, "connect to the original destination"),
	OPTION(PERSIST, "persist", SEC_DLB, '2', "persistence also to servers that are down"),
	OPTION(CHECKCACHE, "checkcache", SEC_DLB, '2', "refuse cacheable cookies"),
	PENDING_OPTION(HTTP_USE_PROXY_HEADER, "http-use-proxy-header", SEC_DFL, "Proxy-Connection"),
	OPTION(IDLE_CLOSE_ON_RESPONSE, "idle-close-on-response", SEC_DFL, '2',
	       "a soft stop lets idle connections have one more answer"),
	{ NAME("forwarded"), SEC_DLB, ARG_FUNC, KW_NO, .parse = parse_forwarded,
	  .min = CONF_OPT(FORWARDED), .grade = '2',
	  .args = "[proto] [host] [by] [by_port] [for] [for_port] [<part>-expr <expression>]...",
	  .help = "the client's connection in a header of RFC 7239; without words: proto for" },
	OPTION(ACCEPT_UNSAFE_REQUEST, "accept-unsafe-violations-in-http-request", SEC_DFL, '2',
	       "requests that break the rules"),
	OPTION(ACCEPT_UNSAFE_RESPONSE, "accept-unsafe-violations-in-http-response", SEC_DLB, '2',
	       "responses that break the rules"),
	{ NAME("accept-invalid-http-request"), SEC_DFL, ARG_FUNC, KW_NO,
	  .parse = parse_old_violations, .min = CONF_OPT(ACCEPT_UNSAFE_REQUEST),
	  .def = "accept-unsafe-violations-in-http-request", .grade = 'n',
	  .help = "old name, with a warning" },
	{ NAME("accept-invalid-http-response"), SEC_DLB, ARG_FUNC, KW_NO,
	  .parse = parse_old_violations, .min = CONF_OPT(ACCEPT_UNSAFE_RESPONSE),
	  .def = "accept-unsafe-violations-in-http-response", .grade = 'n',
	  .help = "old name, with a warning" },
	OPTION(CASE_ADJUST_CLIENT, "h1-case-adjust-bogus-client", SEC_DFL, '2',
	       "names of fields for HTTP/1 clients as h1-case-adjust in global says"),
	OPTION(CASE_ADJUST_SERVER, "h1-case-adjust-bogus-server", SEC_DLB, '2',
	       "the same towards HTTP/1 servers"),
	OPTION(DISABLE_H2_UPGRADE, "disable-h2-upgrade", SEC_DFL, '2',
	       "no HTTP/2 without negotiation"),
	{ NAME("http-restrict-req-hdr-names"), SEC_DFLB, ARG_FUNC, .parse = parse_restrict,
	  .grade = '2', .args = "preserve|delete|reject", .def = "preserve",
	  .help = "fields whose name has more than letters, digits and '-'" },
	OPTION(DROP_REQUEST_TRAILERS, "http-drop-request-trailers", SEC_DLB, '2',
	       "no trailers to servers"),
	OPTION(DROP_RESPONSE_TRAILERS, "http-drop-response-trailers", SEC_DFL, '2',
	       "no trailers to clients"),
	NOOP_OPTION("http-no-delay", SEC_DFLB, "messages are never held back"),
	OPTION(HTTP_PRETEND_KEEPALIVE, "http-pretend-keepalive", SEC_DLB, '2',
	       "servers are asked to keep the connection, even when it will be closed"),
	NOOP_OPTION("independent-streams", SEC_DFLB, "each direction has its own timer"),
	NOOP_OPTION("tcp-smart-accept", SEC_DFL, "a matter of the kernel"),
	NOOP_OPTION("tcp-smart-connect", SEC_DLB, "a matter of the kernel"),
	NOOP_OPTION("splice-auto", SEC_DFLB, "whether data is spliced is decided at run time"),
	NOOP_OPTION("splice-request", SEC_DFLB, "whether data is spliced is decided at run time"),
	NOOP_OPTION("splice-response", SEC_DFLB, "whether data is spliced is decided at run time"),
};
static const char *const pending[] = {
	NULL,
};
static const char *const refused[] = {
	"external-check", "spop-check", "use-small-buffers", "tcp-reset-on-close", "rdp-cookie",
	"use-htx",	  NULL
};
static const struct keyword_removed removed[] = {
	{ "forceclose", "'option httpclose'" },
	{ "http-tunnel", "'option http-keep-alive'" },
	{ "http-use-htx", "nothing: it is the only way now" },
	{ "dontlognul", "'option dontlognull'" },
	{ NULL, NULL },
};
const struct keyword_table conf_kw_option = KEYWORDS("option", rows, .pending = pending,
						     .refused = refused, .removed = removed);

/* --- stats ------------------------------------------------------------------------------------- */

#define ST(field) .offset = offsetof(struct conf_proxy, stats.field)

static void enable(void *obj)
{
	((struct proxy_build *)obj)->px.stats.is_enabled = true;
}

static int parse_stats_enable(struct parser *ps, struct line *l, void *obj,
			      const struct keyword *kw)
{
	enable(obj);
	return 0;
}

static int parse_stats_string(struct parser *ps, struct line *l, void *obj,
			      const struct keyword *kw)
{
	enable(obj);
	return arg_string(ps, l, kw->args, (char **)((char *)obj + kw->offset));
}

static int parse_stats_flag(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	enable(obj);
	*(bool *)((char *)obj + kw->offset) = true;
	return 0;
}

static int parse_stats_refresh(struct parser *ps, struct line *l, void *obj,
			       const struct keyword *kw)
{
	enable(obj);
	return arg_time(ps, l, 1000000000, &((struct proxy_build *)obj)->px.stats.refresh);
}

static int parse_stats_auth(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_stats_auth *a = arena_zalloc(&ps->conf->arena, sizeof(*a));
	struct str w, user;
	int r = line_want(ps, l, "<user>:<password>", &w);

	if (!a)
		return -ENOMEM;
	if (r)
		return r;
	user = str_cut(&w, ':');
	if (!w.p || !user.len)
		return conf_fail(ps, l, l->at - 1, "'stats auth' expects <user>:<password>");
	enable(obj);
	a->user = arena_strdup(&ps->conf->arena, user);
	a->password = arena_strdup(&ps->conf->arena, w);
	if (!a->user || !a->password)
		return -ENOMEM;
	list_push_back(&((struct proxy_build *)obj)->px.stats.auths, &a->link);
	return 0;
}

static int parse_stats_scope(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_stats_scope *s = arena_zalloc(&ps->conf->arena, sizeof(*s));
	int r = s ? arg_string(ps, l, "a section's name, or '.' for this one", &s->name) : -ENOMEM;

	if (r)
		return r;
	enable(obj);
	list_push_back(&((struct proxy_build *)obj)->px.stats.scopes, &s->link);
	return 0;
}

static int parse_stats_admin(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;

	if (!line_has(l))
		return conf_fail(ps, l, l->n,
				 "'stats admin' expects 'if' or 'unless' and a condition");
	enable(obj);
	b->px.stats.has_admin = true;
	return compile_condition(ps, b, l, PLACE_REQ, &b->px.stats.admin_if);
}

/* Rules on requests for the page, of which three actions are left. */
static int parse_stats_rule(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value actions[] = { VALUE("allow", 0), VALUE("deny", 0),
							VALUE("auth", 0), VALUES_END };
	struct proxy_build *b = obj;
	uint8_t ignored;
	int r = arg_value(ps, l, actions, &ignored);

	if (r)
		return r;
	l->at--;
	enable(obj);
	return parse_action(ps, b, l, RULES_HTTP_REQUEST, &b->px.stats.rules);
}

static int parse_show_node(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	int r = 0;

	if (line_has(l))
		r = arg_string(ps, l, kw->args, &((struct proxy_build *)obj)->px.stats.node);
	return r ? r : parse_stats_flag(ps, l, obj, kw);
}

static int parse_show_desc(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;

	enable(obj);
	b->px.stats.desc = line_has(l) ? line_join(ps, l, l->at) : (char *)"";
	l->at = l->n;
	return b->px.stats.desc ? 0 : -ENOMEM;
}

static const struct keyword stats_rows[] = {
	{ NAME("enable"), SEC_DFLB, ARG_FUNC, .parse = parse_stats_enable, .grade = '1',
	  .help = "the statistics page, with its defaults" },
	{ NAME("uri"), SEC_DFLB, ARG_FUNC, ST(uri), .parse = parse_stats_string, .grade = '1',
	  .args = "<prefix>", .def = "/haproxy?stats", .help = "its path" },
	{ NAME("realm"), SEC_DFLB, ARG_FUNC, ST(realm), .parse = parse_stats_string, .grade = '1',
	  .args = "<realm>", .def = "HAProxy Statistics",
	  .help = "what the browser shows when it asks" },
	{ NAME("auth"), SEC_DFLB, ARG_FUNC, .parse = parse_stats_auth, .grade = '1',
	  .args = "<user>:<password>", .help = "who may see it" },
	{ NAME("refresh"), SEC_DFLB, ARG_FUNC, .parse = parse_stats_refresh, .grade = '1',
	  .args = "<time>", .help = "it loads itself again" },
	{ NAME("hide-version"), SEC_DFLB, ARG_FUNC, ST(hide_version), .parse = parse_stats_flag,
	  .grade = '1', .help = "without our version" },
	{ NAME("show-legends"), SEC_DFLB, ARG_FUNC, ST(show_legends), .parse = parse_stats_flag,
	  .grade = '1', .help = "with tips about addresses, cookies" },
	{ NAME("show-node"), SEC_DFLB, ARG_FUNC, ST(show_node), .parse = parse_show_node,
	  .grade = '1', .args = "[<name>]", .help = "with the host's name" },
	{ NAME("show-desc"), SEC_DFLB, ARG_FUNC, .parse = parse_show_desc, .grade = '1',
	  .args = "[<text>]", .help = "with a description" },
	{ NAME("scope"), SEC_DFLB, ARG_FUNC, .parse = parse_stats_scope, .grade = '2',
	  .args = "<section>|.",
	  .help = "only this section is shown, and others that have such a line" },
	{ NAME("http-request"), SEC_DFLB, ARG_FUNC, KW_LATE, .parse = parse_stats_rule,
	  .grade = '2', .args = "allow|deny|auth [realm <realm>] [if|unless <condition>]",
	  .help = "who may see it; the first rule that applies decides" },
	{ NAME("admin"), SEC_FLB, ARG_FUNC, KW_LATE, .parse = parse_stats_admin, .grade = '1',
	  .args = "if|unless <condition>", .help = "with buttons" },
};
static const char *const stats_pending[] = { "show-modules", NULL };
const struct keyword_table conf_kw_stats = KEYWORDS("stats keyword", stats_rows,
						    .pending = stats_pending);
