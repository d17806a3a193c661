/* SPDX-License-Identifier: BSD-2-Clause */
/* Servers after parsing: numbers, ports, limits, TLS, and who tracks whom. Control thread. */
#include <errno.h>

#include "conf/conf_priv.h"

static struct server_build *build_of(struct conf_server *s)
{
	return container_of(s, struct server_build, srv);
}

char *under_base(struct parser *ps, const char *base, char *path)
{
	struct str s;

	if (!path || !base || path[0] == '/' || path[0] == '@')
		return path;
	s = arena_printf(&ps->conf->arena, "%s/%s", base, path);
	return (char *)s.p;
}

int merge_tls(struct parser *ps, struct conf_tls *t, const struct conf_tls *def)
{
	const struct conf_global *g = &ps->conf->global;
	bool has_ca = t->ca_file, has_crl = t->crl_file, has_cv = t->ca_verify_file;

#define MERGE(field)   \
	if (!t->field) \
	t->field = def->field
	MERGE(ciphers);
	MERGE(ciphersuites);
	MERGE(curves);
	MERGE(sigalgs);
	MERGE(client_sigalgs);
	MERGE(ca_file);
	MERGE(crl_file);
	MERGE(verify);
	MERGE(max_version);
	MERGE(min_version);
#undef MERGE
	if (!t->has_alpn) {
		t->alpn = def->alpn;
		t->alpn_len = def->alpn_len;
		t->has_alpn = def->has_alpn;
	}
	t->renegotiates = (t->renegotiates || def->renegotiates) && !t->never_renegotiates;
	t->no_tickets = (t->no_tickets || def->no_tickets) && !t->wants_tickets;
	t->strict_sni = (t->strict_sni || def->strict_sni) && !t->wants_lax_sni;
	t->prefer_client_ciphers |= def->prefer_client_ciphers;
	t->no_ca_names |= def->no_ca_names;
	for (unsigned i = 0; i < ARRAY_SIZE(t->crt_ignore.bits); i++) {
		t->crt_ignore.bits[i] |= def->crt_ignore.bits[i];
		t->ca_ignore.bits[i] |= def->ca_ignore.bits[i];
	}
	if (!t->min_version) /* unless only older ones are wanted */
		t->min_version = t->max_version && t->max_version < 0x0303 ? t->max_version
									   : 0x0303;
	t->ca_file = under_base(ps, g->ca_base, t->ca_file);
	t->crl_file = under_base(ps, g->ca_base, t->crl_file);
	t->ca_verify_file = under_base(ps, g->ca_base, t->ca_verify_file);
	return (has_ca && !t->ca_file) || (has_crl && !t->crl_file) ||
			       (has_cv && !t->ca_verify_file)
		       ? -ENOMEM
		       : 0;
}

static int finalize_tls(struct parser *ps, struct conf_server *s)
{
	const struct conf_global *g = &ps->conf->global;
	struct line *l = build_of(s)->line;
	int r = merge_tls(ps, &s->tls, &g->server_tls);

	if (r)
		return r;
	if (s->tls.max_version && s->tls.min_version > s->tls.max_version)
		return conf_fail(ps, l, 0,
				 "no TLS version is left between 'ssl-min-ver' and 'ssl-max-ver'");
	if (!s->tls.verify)
		s->tls.verify = CONF_VERIFY_REQUIRED;
	if (s->crt) {
		s->crt = under_base(ps, g->crt_base, s->crt);
		if (!s->crt)
			return -ENOMEM;
		r = check_crt_name(ps, &s->pos, s->crt);
		if (r)
			return r;
	}
	if (s->tls.verify == CONF_VERIFY_REQUIRED && !s->tls.ca_file)
		return conf_fail(ps, l, 1,
				 "server '%.64s' uses TLS, but no 'ca-file' says which "
				 "certificates are good: add "
				 "'ca-file <file>' (or 'ca-file @system-ca'), or 'verify none' if "
				 "the network is "
				 "trusted",
				 s->name);
	return 0;
}

/* The one port that all binds of a `listen` section have, or 0. */
static uint16_t port_of_binds(const struct conf_proxy *px)
{
	uint16_t port = 0;
	struct list *p;

	list_for_each(p, &px->binds) {
		const struct conf_bind *b = list_entry(p, struct conf_bind, link);

		if (b->ep.kind != ENDPOINT_IP || (port && port != b->ep.port))
			return 0;
		port = b->ep.port;
	}
	return port;
}

/* Does every connection that checks make have what `has` looks for? Without a script there is one that has nothing. */
static bool script_says(const struct conf_server *s, bool (*has)(const struct conf_check_step *st))
{
	unsigned n = 0;
	struct list *p;

	list_for_each(p, &s->proxy->check.steps) {
		const struct conf_check_step *st = list_entry(p, struct conf_check_step, link);

		if (st->kind != STEP_CONNECT)
			continue;
		n++;
		if (!has(st))
			return false;
	}
	return n != 0;
}

static bool step_has_port(const struct conf_check_step *st)
{
	return st->port || st->port_expr;
}

static bool step_has_addr(const struct conf_check_step *st)
{
	return st->addr.sa.sa_family != AF_UNSPEC;
}

/* Nobody asks for a health check: there is no client whose address and port it could take. */
static int check_place(struct parser *ps, const struct conf_server *s, struct line *l)
{
	bool is_any = s->ep.kind == ENDPOINT_IP && addr_is_any(&s->ep.addr);

	if (s->has_check && !s->check_port && !s->shared_port && !s->ep.port &&
	    !s->resolve.is_srv && !script_says(s, step_has_port))
		return conf_fail(ps, l, 2,
				 "the health check of server '%.64s' needs a port: add "
				 "'port <number>'",
				 s->name);
	if (is_any && s->has_check && !s->has_check_addr && !script_says(s, step_has_addr))
		return conf_fail(
			ps, l, 2,
			"server '%.64s' is wherever its client wanted to go, so its health "
			"check needs an address: add 'addr <address>'",
			s->name);
	if (is_any && s->has_agent && !s->has_agent_addr)
		return conf_fail(ps, l, 2,
				 "server '%.64s' is wherever its client wanted to go, so its agent "
				 "needs an address: add 'agent-addr <address>'",
				 s->name);
	return 0;
}

/* What of the address is the client's to say. */
static int finalize_port(struct parser *ps, struct conf_server *s)
{
	struct line *l = build_of(s)->line;

	if (s->ep.kind != ENDPOINT_IP && s->ep.kind != ENDPOINT_NAME)
		return 0;
	if (s->ep.port_offset_sign) {
		s->port_offset = s->ep.port_offset_sign * (int32_t)s->ep.port;
		s->ep.port_offset_sign = 0;
		s->ep.port = s->ep.port_last = 0;
	}
	if (!s->ep.port && !s->resolve.is_srv)
		s->shared_port = port_of_binds(s->proxy);
	if (s->shared_port &&
	    (s->shared_port + s->port_offset < 1 || s->shared_port + s->port_offset > UINT16_MAX))
		return conf_fail(ps, l, 2, "port %u of the section and %+d give no port",
				 s->shared_port, s->port_offset);
	s->shared_port = s->shared_port ? (uint16_t)(s->shared_port + s->port_offset) : 0;
	return check_place(ps, s, l);
}

static bool script_wants_tls(const struct conf_server *s)
{
	struct list *p;

	list_for_each(p, &s->proxy->check.steps)
		if (s->has_check && list_entry(p, struct conf_check_step, link)->ssl)
			return true;
	return false;
}

/* The value of the Host field that HTTP checks send, as far as it is known now; p NULL: none. */
static struct str check_host(const struct conf_check_request *rq)
{
	struct str rest = rq->headers, none = STR_NULL;

	if (rq->host)
		return str_from_cstr(rq->host);
	for (const struct conf_check_header *h = rq->fields; h; h = h->next) {
		if (!h->fmt && str_is_case_eq(h->name, STR("host")))
			return h->value;
	}
	while (rest.len) {
		struct str value = str_trim(str_cut(&rest, '\n'));
		struct str name = str_cut(&value, ':');

		if (value.p && str_is_case_eq(str_trim(name), STR("host")))
			return str_trim(value);
	}
	return none;
}

/* check-sni-auto: that field's name, without the port. */
static int finalize_check_sni(struct parser *ps, struct conf_server *s)
{
	struct str host = check_host(&s->proxy->check.request);
	size_t colon;

	if (!s->has_auto_check_sni || s->check_sni || s->proxy->check.type != CHECK_HTTP ||
	    !host.len)
		return 0;
	colon = host.p[0] == '[' ? SIZE_MAX : str_find_char(host, ':');
	s->check_sni = arena_strdup(&ps->conf->arena,
				    colon == SIZE_MAX ? host : str_sub(host, 0, colon));
	return s->check_sni ? 0 : -ENOMEM;
}

static int finalize_server(struct parser *ps, struct conf_server *s)
{
	int r = finalize_server_name(ps, s, build_of(s)->line);

	if (r == 0)
		r = finalize_port(ps, s);
	if (r == 0)
		r = finalize_server_link(ps, s, build_of(s)->line);
	if (r == 0 && s->has_agent && !s->agent_port)
		r = conf_fail(ps, build_of(s)->line, 1,
			      "server '%.64s' has 'agent-check': add 'agent-port <port>'", s->name);

	s->needs_tls = s->is_ssl || s->check_ssl || script_wants_tls(s);
	if (r == 0 && s->needs_tls)
		r = finalize_tls(ps, s);
	if (r == 0)
		r = finalize_check_sni(ps, s);
	if (!s->sni && s->proxy->mode == CONF_MODE_HTTP)
		s->sni = s->auto_sni;
	/* Only a minimum, or one that is not below the maximum: a plain maximum. */
	if (s->minconn && s->minconn >= s->maxconn) {
		s->maxconn = s->minconn;
		s->minconn = 0;
	}
	return r;
}

int finalize_servers(struct parser *ps, struct proxy_build *b)
{
	struct conf_names *taken = names_new(&ps->arena);
	unsigned next = 1;
	struct list *p;
	int r = taken ? 0 : -ENOMEM;

	list_for_each(p, &b->px.servers) {
		struct conf_server *s = list_entry(p, struct conf_server, link);

		if (r != -ENOMEM)
			r = claim_id(ps, taken, &s->id, &s->pos, "server");
	}
	list_for_each(p, &b->px.servers) {
		struct conf_server *s = list_entry(p, struct conf_server, link);

		if (r != -ENOMEM && !s->id)
			r = assign_id(ps, taken, &s->id, &next);
		if (r != -ENOMEM)
			r = finalize_server(ps, s);
	}
	return r == -ENOMEM ? r : 0;
}

/* --- track ------------------------------------------------------------------------------------- */

static int resolve_track(struct parser *ps, struct conf_server *s)
{
	struct line *l = build_of(s)->line;
	struct str name = str_from_cstr(s->track), first = str_cut(&name, '/');
	const struct conf_proxy *px = s->proxy;

	if (name.p)
		px = names_find(ps->conf->backends, first);
	else
		name = first;
	if (!px)
		return conf_fail(ps, l, 1,
				 "server '%.64s' tracks '%.64s', but there is no backend '" STR_FMT
				 "'",
				 s->name, s->track, STR_ARG(str_sub(first, 0, 64)));
	s->track_server = names_find(px->server_names, name);
	if (!s->track_server)
		return conf_fail(ps, l, 1,
				 "server '%.64s' tracks '%.64s', but '%s' has no such server",
				 s->name, s->track, px->name);
	if (s->has_check)
		return conf_fail(ps, l, 1, "server '%.64s' has 'check' and 'track': leave one out",
				 s->name);
	return 0;
}

/* A chain must end at a server with a check; it cannot be longer than there are servers. */
static int check_chain(struct parser *ps, struct conf_server *s)
{
	const struct conf_server *slow = s, *end = s;

	while (end->track_server) {
		end = end->track_server;
		if (end->track_server)
			end = end->track_server;
		slow = slow->track_server;
		if (end == slow && end->track_server)
			return conf_fail(ps, build_of(s)->line, 1,
					 "server '%.64s' tracks itself in a circle", s->name);
	}
	if (!end->has_check && !end->has_agent)
		return conf_fail(ps, build_of(s)->line, 1,
				 "server '%.64s' tracks '%.64s', which has no health check: add "
				 "'check' there",
				 s->name, s->track);
	return 0;
}

static int for_tracking(struct parser *ps, int (*call)(struct parser *ps, struct conf_server *s))
{
	struct list *p, *q;
	int r = 0;

	list_for_each(p, &ps->builds) {
		struct proxy_build *b = list_entry(p, struct proxy_build, link);

		list_for_each(q, &b->px.servers) {
			struct conf_server *s = list_entry(q, struct conf_server, link);

			if (s->track && r != -ENOMEM)
				r = call(ps, s);
		}
	}
	return r == -ENOMEM ? r : 0;
}

static int check_resolved_chain(struct parser *ps, struct conf_server *s)
{
	return s->track_server ? check_chain(ps, s) : 0;
}

int finalize_tracks(struct parser *ps)
{
	int r = for_tracking(ps, resolve_track);

	return r ? r : for_tracking(ps, check_resolved_chain);
}
