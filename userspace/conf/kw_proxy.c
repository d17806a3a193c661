/* SPDX-License-Identifier: BSD-2-Clause */
/* Keywords of defaults, frontend, listen and backend: mostly rows. Rules, balancing, checks and options have files of their own. */
#include <errno.h>

#include "conf/conf_priv.h"

#define AT(field) .offset = offsetof(struct conf_proxy, field)
#define T(field)  AT(timeout.field)

static int parse_mode(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value modes[] = { VALUE("tcp", CONF_MODE_TCP),
						      VALUE("http", CONF_MODE_HTTP),
						      VALUE("l4", CONF_MODE_L4), VALUES_END };
	struct proxy_build *b = obj;
	struct str w = line_peek(l);

	if (str_is_eq(w, STR("health")))
		return conf_fail(ps, l, l->at,
				 "'mode health' no longer exists in HAProxy: use 'monitor-uri' "
				 "or 'http-request return status 200'");
	if (str_is_eq(w, STR("log")) || str_is_eq(w, STR("spop")) || str_is_eq(w, STR("haterm")))
		return conf_fail(ps, l, l->at,
				 "'mode " STR_FMT "' is known by HAProxy but not supported by "
				 "Headgate",
				 STR_ARG(w));
	return arg_value(ps, l, modes, &b->px.mode);
}

static int parse_default_backend(struct parser *ps, struct line *l, void *obj,
				 const struct keyword *kw)
{
	struct proxy_build *b = obj;

	b->default_backend = l;
	return arg_string(ps, l, "the name of a backend", &b->px.default_backend_name);
}

static int parse_disabled(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	((struct proxy_build *)obj)->px.is_disabled = kw->min;
	return 0;
}

static int parse_cookie(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_cookie *c = &((struct proxy_build *)obj)->px.cookie;
	static const struct flag {
		const char *name;
		size_t offset;
	} flags[] = {
#define COOKIE_FLAG(name) { #name, offsetof(struct conf_cookie, name) }
		COOKIE_FLAG(insert),   COOKIE_FLAG(prefix),   COOKIE_FLAG(rewrite),
		COOKIE_FLAG(indirect), COOKIE_FLAG(nocache),  COOKIE_FLAG(postonly),
		COOKIE_FLAG(preserve), COOKIE_FLAG(httponly), COOKIE_FLAG(secure),
		COOKIE_FLAG(dynamic),
	};
	int r;

	if (l->is_negated) {
		*c = (struct conf_cookie){ 0 };
		return 0;
	}
	*c = (struct conf_cookie){ 0 };
	r = arg_string(ps, l, "the name of a cookie", &c->name);
	while (r == 0 && line_has(l)) {
		const struct flag *f = flags, *end = flags + ARRAY_SIZE(flags);

		for (; f < end && !line_accept(l, f->name); f++)
			;
		if (f < end)
			*(bool *)((char *)c + f->offset) = true;
		else if (line_accept(l, "domain"))
			r = arg_string(ps, l, "a domain", &c->domain);
		else if (line_accept(l, "maxidle"))
			r = arg_time(ps, l, 1000000000, &c->maxidle);
		else if (line_accept(l, "maxlife"))
			r = arg_time(ps, l, 1000000000, &c->maxlife);
		else if (line_accept(l, "attr")) {
			char *attr;

			r = arg_string(ps, l, "an attribute such as SameSite=Lax", &attr);
			if (r == 0)
				c->attr = (char *)arena_printf(&ps->conf->arena, "%s; %s",
							       c->attr ? c->attr : "", attr)
						  .p;
			if (r == 0 && !c->attr)
				r = -ENOMEM;
		} else
			r = conf_fail(
				ps, l, l->at,
				"'cookie' expects insert, prefix, rewrite, indirect, "
				"nocache, postonly, "
				"preserve, httponly, secure, dynamic, domain, maxidle, maxlife or "
				"attr instead "
				"of '" STR_FMT "'",
				STR_ARG(str_sub(line_peek(l), 0, 64)));
	}
	if (r == 0 && c->insert + c->prefix + c->rewrite > 1)
		r = conf_fail(ps, l, 0, "'insert', 'prefix' and 'rewrite' exclude each other");
	return r;
}

static int parse_monitor_fail(struct parser *ps, struct line *l, void *obj,
			      const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct conf_rule *rule = arena_zalloc(&ps->conf->arena, sizeof(*rule));
	int r;

	if (!rule)
		return -ENOMEM;
	rule->pos = l->pos;
	rule->action = ACTION_DENY;
	if (!line_has(l))
		return conf_fail(ps, l, l->n,
				 "'monitor fail' expects 'if' or 'unless' and a condition");
	r = compile_condition(ps, b, l, PLACE_REQ, &rule->cond);
	if (r == 0)
		list_push_back(&b->px.monitor_fail, &rule->link);
	return r;
}

static int parse_log_format(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct format_text *f = (struct format_text *)((char *)obj + kw->offset);
	struct proxy_build *b = obj;
	int r;

	if (l->is_negated) {
		*f = (struct format_text){ 0 };
		return 0;
	}
	f->word = l->at;
	f->line = l;
	r = arg_string(ps, l, "a format string", &f->text);
	if (f == &b->log_format) /* it replaces what an option chose before */
		b->px.options &= ~(CONF_OPT(HTTPLOG) | CONF_OPT(TCPLOG) | CONF_OPT(HTTPSLOG));
	return r;
}

/* The old names of three timeouts. */
static int parse_old_timeout(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	int r = conf_warn(ps, l, l->kw, "'" STR_FMT "' is an old keyword: write '%s'",
			  STR_ARG(kw->name), kw->def);

	return r ? r : arg_time(ps, l, 1000000, (uint64_t *)((char *)obj + kw->offset));
}

#define TIMEOUT(text, field, sec, what) \
	{ NAME(text), sec, ARG_TIME, T(field), .grade = '1', .args = "<time>", .help = what }

static const struct keyword timeout_rows[] = {
	TIMEOUT("client", client, SEC_DFL, "a client that says nothing is let go"),
	TIMEOUT("server", server, SEC_DLB, "a server that says nothing is given up"),
	TIMEOUT("connect", connect, SEC_DLB, "for a connection to a server"),
	TIMEOUT("http-request", http_request, SEC_DFLB, "for the head of a request"),
	TIMEOUT("http-keep-alive", http_keep_alive, SEC_DFLB,
		"for the next request of a connection"),
	TIMEOUT("queue", queue, SEC_DLB, "a request waits so long for a server"),
	TIMEOUT("check", check, SEC_DLB, "for the answer to a health check"),
	TIMEOUT("tunnel", tunnel, SEC_DLB, "instead of client and server once a tunnel is open"),
	TIMEOUT("client-fin", client_fin, SEC_DFL, "a client whose other half is closed"),
	TIMEOUT("server-fin", server_fin, SEC_DLB, "a server whose other half is closed"),
	TIMEOUT("http-body", http_body, SEC_DFL, "for the whole body of a request"),
	TIMEOUT("tarpit", tarpit, SEC_DFLB, "how long tarpit holds a connection"),
	TIMEOUT("client-hs", client_hs, SEC_DFL, "for the TLS handshake of a client"),
};
const struct keyword_table conf_kw_timeout = KEYWORDS("timeout", timeout_rows);

static const struct keyword monitor_rows[] = {
	{ NAME("fail"), SEC_FL, ARG_FUNC, KW_LATE, .parse = parse_monitor_fail, .grade = '1',
	  .args = "if|unless <condition>", .help = "monitor-uri answers 503 then" },
};
static const struct keyword_table monitor_table = KEYWORDS("monitor keyword", monitor_rows);

static const struct keyword rate_limit_rows[] = {
	{ NAME("sessions"), SEC_DFL, ARG_UINT, AT(rate_limit_sessions), .grade = '2',
	  .args = "<number>",
	  .help = "sessions of this frontend per second; further ones wait in the backlog" },
};
const struct keyword_table conf_kw_rate_limit = KEYWORDS("limit", rate_limit_rows);

static const struct keyword_value state_loads[] = { VALUE("none", STATE_LOAD_NONE),
						    VALUE("local", STATE_LOAD_LOCAL),
						    VALUE("global", STATE_LOAD_GLOBAL),
						    VALUES_END };

/* Without a name, and with the word for it, the file is named after the section that is read, not after its defaults. */
static int parse_state_file(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct str name;
	int r;

	b->px.state_file = NULL;
	if (!line_has(l) || line_accept(l, "use-backend-name"))
		return 0;
	r = line_want(ps, l, "a file name", &name);
	if (r)
		return r;
	b->px.state_file = (char *)arena_strdup(&ps->conf->arena, name);
	return b->px.state_file ? 0 : -ENOMEM;
}

static const struct keyword rows[] = {
	{ NAME("mode"), SEC_DFLB, ARG_FUNC, .parse = parse_mode, .grade = '1',
	  .args = "tcp|http|l4", .def = "tcp",
	  .help = "what is done with connections; l4: forwarded in the kernel" },
	{ NAME("bind"), SEC_FL, ARG_FUNC, .parse = parse_bind_line, .grade = '1',
	  .args = "<address>[,...] [<option>...]", .help = "where connections are accepted" },
	{ NAME("server"), SEC_LB, ARG_FUNC, .parse = parse_server_line, .grade = '1',
	  .args = "<name> <address>[:[+|-]<port>] [<option>...]",
	  .help = "a server; `*` is the address that the client connected to, `+` and `-` count "
		  "from "
		  "the port that it connected to, which is also the port where none is given" },
	{ NAME("server-template"), SEC_LB, ARG_FUNC, .parse = parse_server_line,
	  .min = SERVER_LINE_TEMPLATE, .grade = '2',
	  .args = "<prefix> <number>|<first>-<last> <name>:<port> [<option>...]",
	  .help = "so many servers, which get addresses as the name resolves" },
	{ NAME("default-server"), SEC_DLB, ARG_FUNC, .parse = parse_server_line,
	  .min = SERVER_LINE_DEFAULT, .grade = '1', .args = "<option>...",
	  .help = "options of all servers that follow" },
	{ NAME("default_backend"), SEC_DFL, ARG_FUNC, .parse = parse_default_backend, .grade = '1',
	  .args = "<backend>", .help = "where everything goes that no use_backend takes" },
	{ NAME("maxconn"), SEC_DFL, ARG_UINT, AT(maxconn), .grade = '1', .args = "<number>",
	  .help = "connections of this frontend; further ones wait" },
	{ NAME("fullconn"), SEC_DLB, ARG_UINT, AT(fullconn), .grade = '2', .args = "<number>",
	  .help = "connections at which servers reach their maxconn" },
	{ NAME("backlog"), SEC_DFL, ARG_UINT, AT(backlog), .grade = '1', .args = "<number>",
	  .help = "connections that the kernel may keep waiting" },
	{ NAME("rate-limit"), SEC_DFL, ARG_SUB, .sub = &conf_kw_rate_limit, .grade = '2',
	  .help = "what a frontend takes per second" },
	{ NAME("timeout"), SEC_DFLB, ARG_SUB, .sub = &conf_kw_timeout, .grade = '1',
	  .help = "how long things may take" },
	{ NAME("contimeout"), SEC_DLB, ARG_FUNC, T(connect), .parse = parse_old_timeout,
	  .def = "timeout connect", .grade = 'n', .args = "<time>",
	  .help = "old name, with a warning" },
	{ NAME("clitimeout"), SEC_DFL, ARG_FUNC, T(client), .parse = parse_old_timeout,
	  .def = "timeout client", .grade = 'n', .args = "<time>",
	  .help = "old name, with a warning" },
	{ NAME("srvtimeout"), SEC_DLB, ARG_FUNC, T(server), .parse = parse_old_timeout,
	  .def = "timeout server", .grade = 'n', .args = "<time>",
	  .help = "old name, with a warning" },
	{ NAME("retries"), SEC_DLB, ARG_UINT, AT(retries), NUMBER(0, CONF_MAX_RETRIES),
	  .grade = '1', .args = "<number>", .def = "3",
	  .help = "further attempts to connect to a server" },
	{ NAME("min-rate"), SEC_DFL, ARG_FUNC, KW_NO, .parse = parse_min_rate, .grade = '1',
	  .args = "request|response <bytes>/s after <time>", .def = "128/s after 30s",
	  .help = "what a client that is waited for must send or take" },
	{ NAME("retry-on"), SEC_DLB, ARG_FUNC, .parse = parse_retry_on, .grade = '2',
	  .args = "none|conn-failure|empty-response|junk-response|response-timeout|<status>|"
		  "all-retryable-errors ...",
	  .def = "conn-failure", .help = "failures after which a request is sent again" },
	{ NAME("cookie"), SEC_DLB, ARG_FUNC, KW_NO, .parse = parse_cookie, .grade = '1',
	  .args = "<name> insert|prefix|rewrite [indirect] [nocache] ...", .help = "persistence" },
	{ NAME("option"), SEC_DFLB, ARG_SUB, .sub = &conf_kw_option, .grade = '1',
	  .help = "switches" },
	{ NAME("log-format"), SEC_DFL, ARG_FUNC, KW_NO,
	  .offset = offsetof(struct proxy_build, log_format), .parse = parse_log_format,
	  .grade = '1', .args = "<format>", .help = "log line of a request" },
	{ NAME("error-log-format"), SEC_DFL, ARG_FUNC, KW_NO,
	  .offset = offsetof(struct proxy_build, error_log_format), .parse = parse_log_format,
	  .grade = '1', .args = "<format>", .help = "log line of a failed connection" },
	{ NAME("log-format-sd"), SEC_DFL, ARG_FUNC, KW_NO,
	  .offset = offsetof(struct proxy_build, log_format_sd), .parse = parse_log_format,
	  .grade = '2', .args = "<format>",
	  .help = "structured data of log lines in format rfc5424" },
	{ NAME("log-tag"), SEC_DFLB, ARG_STRING, AT(log_tag), .grade = '1', .args = "<tag>",
	  .help = "tag of log lines" },
	{ NAME("unique-id-format"), SEC_DFL, ARG_FUNC, KW_NO,
	  .offset = offsetof(struct proxy_build, unique_id), .parse = parse_log_format,
	  .grade = '1', .args = "<format>", .help = "number of a request" },
	{ NAME("unique-id-header"), SEC_DFL, ARG_STRING, AT(unique_id_header), .grade = '1',
	  .args = "<header>", .help = "header that tells it to the server" },
	{ NAME("capture"), SEC_FL, ARG_FUNC, .parse = parse_capture, .grade = '1',
	  .args = "request|response header <name> len <n> | cookie <name> len <n>",
	  .help = "parts of messages for the log" },
	{ NAME("monitor-uri"), SEC_DFL, ARG_STRING, AT(monitor_uri), .grade = '1', .args = "<uri>",
	  .help = "path that is answered here, for checks by others" },
	{ NAME("monitor"), SEC_FL, ARG_SUB, .sub = &monitor_table, .grade = '1',
	  .help = "see monitor-uri" },
	{ NAME("filter"), SEC_FLB, ARG_SUB, .sub = &conf_kw_filter, .grade = '2',
	  .help = "what rules may apply to bodies" },
	{ NAME("compression"), SEC_DFLB, ARG_SUB, .sub = &conf_kw_compression, .grade = '2',
	  .help = "of responses" },
	{ NAME("stats"), SEC_DFLB, ARG_SUB, .sub = &conf_kw_stats, .grade = '1',
	  .help = "the statistics page" },
	{ NAME("load-server-state-from-file"), SEC_DLB, ARG_ENUM, AT(state_load),
	  .values = state_loads, .grade = '2', .args = "global|local|none", .def = "none",
	  .help = "servers begin as the state file says" },
	{ NAME("server-state-file-name"), SEC_DLB, ARG_FUNC, .parse = parse_state_file,
	  .grade = '2', .args = "[<file>|use-backend-name]",
	  .help = "the section's own state file" },
	{ NAME("description"), SEC_FLB, ARG_REST, AT(description), .grade = '1', .args = "<text>",
	  .help = "text for statistics" },
	{ NAME("id"), SEC_FLB, ARG_UINT, AT(id), NUMBER(1, INT32_MAX), .grade = '1',
	  .args = "<number>", .help = "number in statistics" },
	{ NAME("guid"), SEC_FLB, ARG_FUNC, AT(guid), .parse = parse_guid, .grade = '2',
	  .args = "<text>", .help = "name in `show guid` that nothing else has" },
	{ NAME("disabled"), SEC_DFLB, ARG_FUNC, .parse = parse_disabled, .min = 1, .grade = '1',
	  .help = "the section is checked, but does nothing" },
	{ NAME("enabled"), SEC_DFLB, ARG_FUNC, .parse = parse_disabled, .min = 0, .grade = '1',
	  .help = "the opposite" },
};
static const char *const noop[] = { "bind-process", NULL };
static const char *const refused[] = {
	"email-alert",	  "external-check",  "use-fcgi-app", "quic-initial",
	"be-unpublished", "force-be-switch", "ssl-f-use",    "crt",
	"log-steps",	  "log-profile",     "http-tunnel",  NULL,
};
static const struct keyword_removed removed[] = {
	{ "reqadd", "'http-request add-header'" },
	{ "reqdel", "'http-request del-header'" },
	{ "reqidel", "'http-request del-header'" },
	{ "reqrep", "'http-request replace-header' or '… replace-path'" },
	{ "reqirep", "'http-request replace-header' or '… replace-path'" },
	{ "reqdeny", "'http-request deny'" },
	{ "reqideny", "'http-request deny'" },
	{ "reqallow", "'http-request allow'" },
	{ "reqiallow", "'http-request allow'" },
	{ "reqtarpit", "'http-request tarpit'" },
	{ "reqitarpit", "'http-request tarpit'" },
	{ "reqpass", "'http-request allow'" },
	{ "reqipass", "'http-request allow'" },
	{ "reqset", "'http-request set-header'" },
	{ "rspadd", "'http-response add-header'" },
	{ "rspdel", "'http-response del-header'" },
	{ "rspidel", "'http-response del-header'" },
	{ "rsprep", "'http-response replace-header'" },
	{ "rspirep", "'http-response replace-header'" },
	{ "rspdeny", "'http-response deny'" },
	{ "rspideny", "'http-response deny'" },
	{ "block", "'http-request deny'" },
	{ "appsession", "'stick' or 'cookie'" },
	{ "redisp", "'option redispatch'" },
	{ "redispatch", "'option redispatch'" },
	{ "dispatch", "a 'server' line" },
	{ "grace", "'hard-stop-after' in global" },
	{ "srvexp", "'timeout server'" },
	{ "cliexp", "'timeout client'" },
	{ "monitor-net", "'http-request return status 200 if { src <network> }'" },
	{ "rspset", "'http-response set-header'" },
	{ NULL, NULL },
};
const struct keyword_table conf_kw_proxy = KEYWORDS("keyword", rows, .noop = noop,
						    .refused = refused, .removed = removed);
