/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The configuration as it was understood, one fact per line, for `headgate check --explain` and tests.
 * Simple keywords are printed by walking their tables; what needs code to be read needs code here.
 * Only what differs from zero is printed. Any thread.
 */
#include "conf/kw_action_priv.h"

#include <inttypes.h>

static void dump_duration(FILE *f, uint64_t ns)
{
	if (ns % 1000000000 == 0)
		fprintf(f, "%" PRIu64 "s", ns / 1000000000);
	else if (ns % 1000000 == 0)
		fprintf(f, "%" PRIu64 "ms", ns / 1000000);
	else
		fprintf(f, "%" PRIu64 "us", ns / 1000);
}

static const char *value_name(const struct keyword_value *values, uint8_t v)
{
	for (; values->name.p; values++) {
		if (values->value == v)
			return values->name.p;
	}
	return "?";
}

void conf_dump_row(FILE *f, const char *prefix, const struct keyword *kw, const void *obj)
{
	const void *field = (const char *)obj + kw->offset;
	const char *name = kw->name.p;

	switch ((enum arg_type)kw->type) {
	case ARG_FLAG:
		if (*(const bool *)field)
			fprintf(f, "%s%s\n", prefix, name);
		break;
	case ARG_UINT:
	case ARG_SIZE:
		if (*(const uint32_t *)field)
			fprintf(f, "%s%s %" PRIu32 "\n", prefix, name, *(const uint32_t *)field);
		break;
	case ARG_U16:
		if (*(const uint16_t *)field)
			fprintf(f, "%s%s %u\n", prefix, name, *(const uint16_t *)field);
		break;
	case ARG_INT:
		break; /* uid, gid: printed as names where they matter */
	case ARG_TIME:
	case ARG_TIME_S:
		if (!*(const uint64_t *)field)
			break;
		fprintf(f, "%s%s ", prefix, name);
		dump_duration(f, *(const uint64_t *)field);
		fputc('\n', f);
		break;
	case ARG_STRING:
	case ARG_REST:
		if (*(char *const *)field)
			fprintf(f, "%s%s %s\n", prefix, name, *(char *const *)field);
		break;
	case ARG_ENUM:
		if (*(const uint8_t *)field)
			fprintf(f, "%s%s %s\n", prefix, name,
				value_name(kw->values, *(const uint8_t *)field));
		break;
	case ARG_FUNC:
	case ARG_SUB:
	case ARG_NOOP:
		break;
	}
}

static size_t row_size(const struct keyword *kw)
{
	switch ((enum arg_type)kw->type) {
	case ARG_FLAG:
	case ARG_ENUM:
		return 1;
	case ARG_U16:
		return 2;
	case ARG_UINT:
	case ARG_SIZE:
		return 4;
	case ARG_TIME:
	case ARG_TIME_S:
	case ARG_STRING:
	case ARG_REST:
		return 8;
	default:
		return 0;
	}
}

bool conf_row_is_same(const struct keyword *kw, const void *a, const void *b)
{
	static const char zero[8];
	size_t n = row_size(kw);
	const char *x = (const char *)a + kw->offset, *y = (const char *)b + kw->offset;

	/* An inherited text is the same piece of memory. */
	return n && memcmp(x, y, n) == 0 && memcmp(x, zero, n) != 0;
}

static void dump_table(FILE *f, const char *prefix, const struct keyword_table *t,
		       uint16_t sections, const void *obj)
{
	for (unsigned i = 0; i < t->n; i++) {
		if ((t->rows[i].sections & sections) && t->rows[i].grade != 'n')
			conf_dump_row(f, prefix, &t->rows[i], obj);
	}
}

static void dump_samples(FILE *f, const struct log_target *t)
{
	for (unsigned i = 0; i < t->n_samples; i++)
		fprintf(f, "%s%u-%u", i ? "," : " sample ", t->samples[i].lo, t->samples[i].hi);
	fprintf(f, ":%u", t->sample_of);
}

static void dump_logs(FILE *f, const char *prefix, const struct conf_logs *logs)
{
	static const char *const formats[] = { "local", "rfc3164", "rfc5424", "priority", "short",
					       "timed", "iso",	   "raw",     "local" };
	char text[ADDR_TEXT_MAX];

	for (unsigned i = 0; i < logs->n; i++) {
		const struct log_target *t = &logs->targets[i];

		fprintf(f, "%slog ", prefix);
		if (t->transport == LOG_TO_UDP) {
			addr_format(&t->udp, text, sizeof(text));
			fprintf(f, "udp %s", text);
		} else if (t->transport == LOG_TO_UNIX) {
			fprintf(f, "unix %s",
				t->un.sun_path[0] ? t->un.sun_path : t->un.sun_path + 1);
		} else if (t->transport == LOG_TO_STORE) {
			fprintf(f, "ring %s", t->store);
		} else {
			fprintf(f, "fd %d", t->fd);
		}
		fprintf(f, " len %u format %s facility %u levels %u-%u", t->max_len,
			formats[t->format], t->facility, t->min_level, t->max_level);
		if (t->sample_of)
			dump_samples(f, t);
		fputc('\n', f);
	}
}

static void dump_tls(FILE *f, const char *prefix, uint16_t section, const struct conf_tls *t)
{
	dump_table(f, prefix, &conf_kw_tls, section, t);
	if (t->min_version)
		fprintf(f, "%sssl-min-ver 0x%04x\n", prefix, t->min_version);
	if (t->max_version)
		fprintf(f, "%sssl-max-ver 0x%04x\n", prefix, t->max_version);
	for (size_t at = 0; at < t->alpn_len; at += 1 + (unsigned char)t->alpn[at])
		fprintf(f, "%salpn-name %.*s\n", prefix, (unsigned char)t->alpn[at],
			t->alpn + at + 1);
}

static void dump_endpoint(FILE *f, const struct endpoint *ep)
{
	char text[ADDR_TEXT_MAX];

	if (ep->is_dgram)
		fputs("udp ", f);
	switch (ep->kind) {
	case ENDPOINT_IP:
		addr_format(&ep->addr, text, sizeof(text));
		fputs(text, f);
		break;
	case ENDPOINT_NAME:
		fprintf(f, "name " STR_FMT " port %u", STR_ARG(ep->host), ep->port);
		break;
	case ENDPOINT_UNIX:
		fprintf(f, "unix " STR_FMT, STR_ARG(ep->path));
		break;
	case ENDPOINT_ABNS:
		fprintf(f, "abns " STR_FMT, STR_ARG(ep->path));
		break;
	case ENDPOINT_FD:
		fprintf(f, "fd %d", ep->fd);
		break;
	}
}

static void dump_h2(FILE *f, const struct conf_global *g)
{
	const struct {
		const char *name;
		uint32_t bytes;
	} windows[] = { { "", g->h2.window },
			{ "fe.", g->h2_fe.window },
			{ "be.", g->h2_be.window } };

	for (unsigned i = 0; i < ARRAY_SIZE(windows); i++)
		if (windows[i].bytes)
			fprintf(f, "  tune.h2.%sinitial-window-size %u\n", windows[i].name,
				windows[i].bytes);
	if (g->h2.table)
		fprintf(f, "  tune.h2.header-table-size %u\n", g->h2.table - 1);
}

static void dump_global(FILE *f, const struct conf_global *g)
{
	static const char *const levels[] = { "user", "operator", "admin" };
	static const char *const modes[] = { "auto", "native", "generic" };
	struct list *p;

	fputs("global\n", f);
	dump_table(f, "  ", &conf_kw_global, SEC_GLOBAL, g);
	dump_table(f, "  ", &conf_kw_global_tls, SEC_GLOBAL, g);
	dump_table(f, "  ", &conf_kw_crt_files, SEC_GLOBAL, g);
	if (g->crt_files.not_extra)
		fprintf(f, "  ssl-load-extra-files %u of %u\n",
			CONF_EXTRA_ALL & ~g->crt_files.not_extra, CONF_EXTRA_ALL);
	dump_table(f, "  ", &conf_kw_h2, SEC_GLOBAL, g);
	dump_table(f, "  ", &conf_kw_socket_global, SEC_GLOBAL, g);
	for (unsigned i = 0; i < g->n_case_names; i++)
		fprintf(f, "  h1-case-adjust " STR_FMT "\n", STR_ARG(g->case_names[i]));
	dump_h2(f, g);
	if (g->is_master_worker)
		fputs("  master-worker\n", f);
	if (g->user)
		fprintf(f, "  user %s\n", g->user);
	if (g->group)
		fprintf(f, "  group %s\n", g->group);
	if (g->log_send_hostname)
		fprintf(f, "  log-send-hostname %s\n", g->log_send_hostname);
	for (size_t i = 0; i < ARRAY_SIZE(g->cpu_map.cpu_of_thread); i++) {
		if (g->cpu_map.cpu_of_thread[i] >= 0)
			fprintf(f, "  cpu-of-thread %zu %d\n", i + 1, g->cpu_map.cpu_of_thread[i]);
	}
	dump_logs(f, "  ", &g->logs);
	fputs("  stats timeout ", f);
	dump_duration(f, g->stats_timeout);
	fputc('\n', f);
	list_for_each(p, &g->stats_sockets) {
		const struct conf_stats_socket *s = list_entry(p, struct conf_stats_socket, link);

		fputs("  stats socket ", f);
		dump_endpoint(f, &s->ep);
		fprintf(f, " level %s", levels[s->level]);
		if (s->mode >= 0)
			fprintf(f, " mode %o", (unsigned)s->mode);
		fputc('\n', f);
	}
	list_for_each(p, &g->xdp_interfaces) {
		const struct conf_xdp_interface *x = list_entry(p, struct conf_xdp_interface, link);

		fprintf(f, "  xdp interface %s mode %s", x->name, modes[x->mode]);
		if (x->vlan == CONF_VLAN_KEEP)
			fputs(" vlan keep", f);
		else if (x->vlan != CONF_VLAN_AUTO)
			fprintf(f, " vlan %u", x->vlan);
		fputs(x->is_exclusive ? " exclusive\n" : "\n", f);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(g->xdp_source); i++) {
		char text[ADDR_TEXT_MAX];

		if (!g->xdp_source[i].addr.sa.sa_family)
			continue;
		addr_format_ip(&g->xdp_source[i].addr, text, sizeof(text));
		fprintf(f, "  xdp source %s/%u\n", text, g->xdp_source[i].bits);
	}
	if (g->xdp_hash_seed)
		fprintf(f, "  xdp hash-seed %" PRIu64 "\n", g->xdp_hash_seed);
	if (g->xdp_flow_entries)
		fprintf(f, "  xdp flow-entries %u\n", g->xdp_flow_entries);
	dump_guard(f, g);
	dump_steer(f, g);
	if (g->xdp_bpffs)
		fprintf(f, "  xdp bpffs %s\n", g->xdp_bpffs);
	fputs("  bind-defaults\n", f);
	dump_tls(f, "    ", SEC_BIND, &g->bind_tls);
	fputs("  server-defaults\n", f);
	dump_tls(f, "    ", SEC_SERVER, &g->server_tls);
}

static void dump_bind(FILE *f, const struct conf_bind *b)
{
	fputs("  bind ", f);
	dump_endpoint(f, &b->ep);
	fputc('\n', f);
	dump_table(f, "    ", &conf_kw_bind, SEC_BIND, b);
	dump_table(f, "    ", &conf_kw_bind_link, SEC_BIND, b);
	if (b->mode >= 0)
		fprintf(f, "    mode %o\n", (unsigned)b->mode);
	conf_dump_socket(f, &b->sock);
	if (b->guid)
		fprintf(f, "    guid %s\n", b->guid);
	for (unsigned i = 0; i < b->n_crts; i++)
		fprintf(f, "    crt %s\n", b->crts[i]);
	if (b->is_ssl)
		dump_tls(f, "    ", SEC_BIND, &b->tls);
}

static void dump_server(FILE *f, const struct conf_server *s)
{
	fprintf(f, "  server %s ", s->name);
	dump_endpoint(f, &s->ep);
	fputc('\n', f);
	dump_table(f, "    ", &conf_kw_server, SEC_SERVER, s);
	dump_table(f, "    ", &conf_kw_server_link, SEC_SERVER, s);
	if (s->has_check_addr) {
		fputs("    addr ", f);
		dump_endpoint(f, &s->check_ep);
		fputc('\n', f);
	}
	if (s->init_state) {
		static const char *const states[] = { "up", "fully-up", "down", "fully-down" };

		fprintf(f, "    init-state %s\n", states[s->init_state]);
	}
	if (s->check_alpn.len)
		fprintf(f, "    check-alpn %zu bytes\n", s->check_alpn.len);
	if (s->has_quic_id)
		fprintf(f, "    quic-id %u\n", s->quic_id);
	conf_dump_server_link(f, s);
	if (s->track_server)
		fprintf(f, "    tracks %s/%s\n", s->track_server->proxy->name,
			s->track_server->name);
	if (s->sni)
		fprintf(f, "    sni " STR_FMT "\n", STR_ARG(expr_text(s->sni)));
	dump_resolve(f, &s->resolve);
	if (s->needs_tls)
		dump_tls(f, "    ", SEC_SERVER, &s->tls);
}

static void dump_check(FILE *f, const struct conf_check *c)
{
	static const char *const kinds[] = { "connect", "send",	   "expect",
					     "comment", "set-var", "unset-var" };
	const struct conf_check_request *rq = &c->request;
	static const char *const types[] = { "tcp",   "http",  "ssl-hello", "smtp",	 "mysql",
					     "pgsql", "redis", "ldap",	    "tcp-script" };
	static const char *const whats[] = { "status", "rstatus", "string", "rstring",
					     "binary", "rbinary", "hdr",    "fhdr" };
	struct list *p;

	if (c->type != CHECK_TCP)
		fprintf(f, "  check %s\n", types[c->type]);
	if (c->user)
		fprintf(f, "  check user %s%s\n", c->user, c->is_pre_41 ? " pre-41" : "");
	if (c->type == CHECK_HTTP)
		fprintf(f, "  check request %s %s %s\n", rq->method ? rq->method : "OPTIONS",
			rq->uri ? rq->uri : "/", rq->version ? rq->version : "HTTP/1.0");
	for (const struct conf_check_header *h = rq->fields; h; h = h->next)
		fprintf(f, "  check header " STR_FMT ": " STR_FMT "\n", STR_ARG(h->name),
			STR_ARG(h->value));
	if (rq->body.len)
		fprintf(f, "  check body %zu bytes\n", rq->body.len);
	if (c->disable_on_404)
		fputs("  check disable-on-404\n", f);
	list_for_each(p, &c->steps) {
		const struct conf_check_step *s = list_entry(p, struct conf_check_step, link);

		fprintf(f, "  check step %s", kinds[s->kind]);
		if (s->kind == STEP_EXPECT)
			fprintf(f, "%s %s %s", s->expect.negate ? " !" : "", whats[s->expect.what],
				s->expect.text ? s->expect.text : "");
		for (unsigned i = 0; i < s->expect.n_status; i++)
			fprintf(f, "%u-%u ", s->expect.status[i].lo, s->expect.status[i].hi);
		fputc('\n', f);
	}
}

static void dump_l4(FILE *f, const struct conf_proxy *px)
{
	static const char *const forwards[] = { "none", "ipip", "gue", "l2", "nat" };
	static const char *const affinities[] = { "flow", "source", "none", "quic-cid" };
	static const char *const tracks[] = { "auto", "on", "off" };

	fprintf(f, "  forward %s affinity %s", forwards[px->forward], affinities[px->affinity]);
	if (px->affinity == AFFINITY_QUIC_CID)
		fprintf(f, " offset %u length %u", px->quic_offset, px->quic_length);
	fprintf(f, "\n  track %s learn-window %" PRIu64 "s drain-timeout %" PRIu64 "s\n",
		tracks[px->track], px->learn_window / 1000000000, px->drain_timeout / 1000000000);
}

static void dump_balance(FILE *f, const struct conf_proxy *px)
{
	static const char *const algos[] = { "roundrobin", "static-rr", "leastconn", "first",
					     "source",	   "uri",	"url_param", "hdr",
					     "random",	   "hash",	"maglev",    "peak-ewma",
					     "rdp-cookie" };
	static const char *const functions[] = { "sdbm", "djb2", "wt6", "crc32", "none" };
	const struct conf_balance_params *b = &px->balance;

	fprintf(f, "  balance %s %s%s\n", algos[b->algo], b->name ? b->name : "",
		b->check_post ? " check_post" : "");
	if (b->hash_type || b->hash_func || b->has_avalanche)
		fprintf(f, "  hash-type %s %s%s\n", b->hash_type ? "consistent" : "map-based",
			functions[b->hash_func], b->has_avalanche ? " avalanche" : "");
	if (px->mode == CONF_MODE_L4)
		dump_l4(f, px);
	for (unsigned i = 0; i < px->nat.n_sources; i++) {
		char text[ADDR_TEXT_MAX];

		addr_format_ip(&px->nat.sources[i], text, sizeof(text));
		fprintf(f, "  nat source %s\n", text);
	}
	if (px->nat.port_first)
		fprintf(f, "  nat ports %u-%u\n", px->nat.port_first, px->nat.port_last);
	if (px->nat.is_logged)
		fprintf(f, "  nat log\n");
}

static void dump_compression(FILE *f, const struct conf_compression *c)
{
	static const char *const directions[] = { "response", "response", "request", "both" };

	if (c->direction > COMPRESS_RESPONSE || c->req_algo)
		fprintf(f, "  compression direction %s, of requests %s, %u types, minsize %llu\n",
			directions[c->direction], http_coding_name((enum http_coding)c->req_algo),
			c->n_req_types, (unsigned long long)c->req_min_size);
	if (!c->n_algos)
		return;
	fputs("  compression", f);
	for (unsigned i = 0; i < c->n_algos; i++)
		fprintf(f, " %s", http_coding_name((enum http_coding)c->algos[i]));
	for (unsigned i = 0; i < c->n_types; i++)
		fprintf(f, " type " STR_FMT, STR_ARG(c->types[i]));
	fprintf(f, "%s minsize %llu\n", c->is_offload ? " offload" : "",
		(unsigned long long)c->min_size);
}

static void dump_errors(FILE *f, const struct conf_proxy *px)
{
	static const char *const kinds[] = { "own", "default", "file", "silent", "section" };

	for (unsigned status = 200; status < 600; status++) {
		int i = conf_error_index(status);
		const struct conf_reply *r = i >= 0 ? px->errors[i] : NULL;

		while (r && r->kind == REPLY_SECTION)
			r = r->otherwise;
		if (r)
			fprintf(f, "  error %u %s %u %zu bytes\n", status, kinds[r->kind],
				r->file ? r->file->status : r->status, r->file_body.len);
	}
}

static void dump_rules(FILE *f, const struct conf_proxy *px)
{
	struct list *p;

	for (int i = 0; i < RULES_COUNT; i++) {
		list_for_each(p, &px->rules[i])
			fprintf(f, "  rule %d %s\n", i,
				list_entry(p, struct conf_rule, link)->text);
	}
	list_for_each(p, &px->use_backends) {
		const struct conf_use_backend *u = list_entry(p, struct conf_use_backend, link);

		fprintf(f, "  use_backend %s%s\n", u->text, u->cond ? " conditionally" : "");
	}
	if (px->name_header)
		fprintf(f, "  http-send-name-header %s\n", px->name_header);
	list_for_each(p, &px->persist_rules)
		fprintf(f, "  %s\n", list_entry(p, struct conf_persist_rule, link)->text);
	list_for_each(p, &px->use_servers) {
		const struct conf_use_server *u = list_entry(p, struct conf_use_server, link);

		fprintf(f, "  use-server %s%s\n", u->text, u->cond ? " conditionally" : "");
	}
	list_for_each(p, &px->captures) {
		const struct conf_capture *c = list_entry(p, struct conf_capture, link);

		fprintf(f, "  capture %s %u %s len %u\n", c->is_response ? "response" : "request",
			c->index, c->name ? c->name : "-", c->len);
	}
}

static void dump_stick(FILE *f, const struct conf_proxy *px)
{
	const struct conf_stick_table *t = px->stick_table;
	struct list *p;

	if (t) {
		fprintf(f, "  stick-table type %s len %u size %u expire ",
			conf_stick_type_name((enum conf_stick_type)t->type), t->key_len, t->size);
		dump_duration(f, t->expire);
		fputs(t->nopurge ? " nopurge" : "", f);
		for (unsigned d = 0; d < STICK_DATA_COUNT; d++) {
			if (!t->store[d].n)
				continue;
			fprintf(f, " " STR_FMT "(%u", STR_ARG(conf_stick_data_name(d)),
				t->store[d].n);
			if (t->store[d].period)
				fputc(',', f);
			if (t->store[d].period)
				dump_duration(f, t->store[d].period);
			fputc(')', f);
		}
		fputc('\n', f);
	}
	list_for_each(p, &px->stick_rules) {
		const struct conf_stick_rule *r = list_entry(p, struct conf_stick_rule, link);

		fprintf(f, "  %s => %s\n", r->text, r->table->name);
	}
}

const char *conf_option_name(unsigned bit)
{
	static const char *const names[] = {
#define X(name, text) text,
		CONF_OPTIONS(X)
#undef X
	};

	return names[bit];
}

static void dump_options(FILE *f, const struct conf_proxy *px)
{
	for (unsigned i = 0; i < CONF_OPT_COUNT; i++) {
		if (px->options & (1ull << i))
			fprintf(f, "  option %s\n", conf_option_name(i));
		if (px->options_no & (1ull << i))
			fprintf(f, "  no option %s\n", conf_option_name(i));
	}
}

static void dump_proxy(FILE *f, const struct conf_proxy *px)
{
	static const char *const kinds[] = { "?", "frontend", "backend", "listen" };
	static const char *const modes[] = { "tcp", "http", "l4" };
	struct list *p;

	fprintf(f, "%s %s id %u\n", kinds[px->caps & 3], px->name, px->id);
	fprintf(f, "  mode %s%s\n", modes[px->mode], px->is_disabled ? " disabled" : "");
	dump_table(f, "  ", &conf_kw_proxy, SEC_DFLB, px);
	dump_table(f, "  timeout ", &conf_kw_timeout, SEC_DFLB, px);
	dump_table(f, "  rate-limit ", &conf_kw_rate_limit, SEC_DFLB, px);
	dump_options(f, px);
	dump_logs(f, "  ", &px->logs);
	if (px->log_format_text)
		fprintf(f, "  log-format %s\n", px->log_format_text);
	if (px->default_backend)
		fprintf(f, "  default_backend %s\n", px->default_backend->name);
	dump_section_guard(f, &px->guard);
	if (px->cookie.name)
		fprintf(f, "  cookie %s%s%s%s%s%s\n", px->cookie.name,
			px->cookie.insert ? " insert" : "", px->cookie.prefix ? " prefix" : "",
			px->cookie.rewrite ? " rewrite" : "",
			px->cookie.indirect ? " indirect" : "",
			px->cookie.nocache ? " nocache" : "");
	if (px->cookie.name && px->cookie.dynamic)
		fputs("  cookie dynamic\n", f);
	dump_table(f, "  ", &conf_kw_persist, SEC_LISTEN, px);
	dump_sockets(f, px);
	if (px->stats.is_enabled)
		fprintf(f, "  stats uri %s\n", px->stats.uri);
	list_for_each(p, &px->stats.scopes)
		fprintf(f, "  stats scope %s\n",
			list_entry(p, struct conf_stats_scope, link)->name);
	dump_compression(f, &px->compression);
	dump_errors(f, px);
	dump_filters(f, px);
	dump_rules(f, px);
	dump_stick(f, px);
	list_for_each(p, &px->binds)
		dump_bind(f, list_entry(p, struct conf_bind, link));
	if (px->caps & CONF_CAP_BACKEND) {
		dump_balance(f, px);
		dump_table(f, "  ", &conf_kw_balance, SEC_BACKEND, px);
		dump_check(f, &px->check);
	}
	list_for_each(p, &px->servers)
		dump_server(f, list_entry(p, struct conf_server, link));
}

void conf_dump(const struct conf *c, FILE *out)
{
	struct list *p;

	dump_global(out, &c->global);
	list_for_each(p, &c->proxies)
		dump_proxy(out, list_entry(p, struct conf_proxy, link));
	list_for_each(p, &c->userlists) {
		const struct conf_userlist *ul = list_entry(p, struct conf_userlist, link);

		fprintf(out, "userlist " STR_FMT " users %u\n", STR_ARG(ul->list.name),
			ul->list.n_users);
	}
	dump_resolvers(out, c);
	dump_rings(out, c);
	list_for_each(p, &c->crts) {
		const struct conf_crt *crt = list_entry(p, struct conf_crt, link);

		fprintf(out, "crt " STR_FMT "\n", STR_ARG(crt->name));
		dump_table(out, "  ", &conf_kw_crt_load, SEC_LOAD, crt);
	}
}
