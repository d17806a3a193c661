/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Section `resolvers`, and what a server line says about its name. A section may be used before it is
 * written; `default` need not be written at all, it is what /etc/resolv.conf says. Control thread.
 */
#include <errno.h>
#include <inttypes.h>

#include "conf/conf_priv.h"

#define NS_PER_S    1000000000ull
#define RESOLV_CONF "/etc/resolv.conf"

/* --- sections ---------------------------------------------------------------------------------- */

static struct conf_resolvers *resolvers_get(struct parser *ps, struct str name,
					    const struct conf_pos *pos)
{
	struct conf_resolvers *r = names_find(ps->resolvers_names, name);

	if (r)
		return r;
	r = arena_zalloc(&ps->conf->arena, sizeof(*r));
	if (!r)
		return NULL;
	*r = (struct conf_resolvers){ .pos = *pos,
				      .retries = 3,
				      .payload = 512,
				      .timeout_resolve = NS_PER_S,
				      .timeout_retry = NS_PER_S };
#define X(id, text, s) r->hold[HOLD_##id] = (s) * NS_PER_S;
	CONF_HOLDS(X)
#undef X
	list_init(&r->nameservers);
	r->name = arena_strdup(&ps->conf->arena, name);
	if (!r->name || names_add(ps->resolvers_names, str_from_cstr(r->name), r) != 0)
		return NULL;
	list_push_back(&ps->conf->resolvers, &r->link);
	return r;
}

int resolvers_open(struct parser *ps, struct line *l)
{
	struct conf_resolvers *r;
	struct str name;
	int rc = section_want_name(ps, l, &name);

	if (rc)
		return rc;
	r = resolvers_get(ps, name, &l->pos);
	if (!r)
		return -ENOMEM;
	ps->resolvers = r;
	if (r->is_defined)
		return conf_fail(ps, l, 1,
				 "resolvers '" STR_FMT "' has the same name as the one in %s:%u",
				 STR_ARG(str_sub(name, 0, 64)), r->pos.file, r->pos.line);
	r->is_defined = true;
	r->pos = l->pos;
	return 0;
}

static int add_nameserver(struct parser *ps, struct conf_resolvers *r, struct str id,
			  const struct addr *a, bool is_tcp)
{
	struct conf_nameserver *ns = arena_zalloc(&ps->conf->arena, sizeof(*ns));

	if (!ns)
		return -ENOMEM;
	ns->id = arena_strdup(&ps->conf->arena, id);
	if (!ns->id)
		return -ENOMEM;
	ns->addr = *a;
	ns->is_tcp = is_tcp;
	list_push_back(&r->nameservers, &ns->link);
	r->n_nameservers++;
	return 0;
}

static bool has_nameserver(const struct conf_resolvers *r, struct str id)
{
	struct list *p;

	list_for_each(p, &r->nameservers)
		if (str_is_eq(str_from_cstr(list_entry(p, struct conf_nameserver, link)->id), id))
			return true;
	return false;
}

static int parse_nameserver(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_resolvers *r = obj;
	struct endpoint ep;
	struct str id;
	bool is_tcp;
	int rc = line_want(ps, l, "a name and an address", &id);

	if (rc)
		return rc;
	if (has_nameserver(r, id))
		return conf_fail(ps, l, l->at - 1, "name server '" STR_FMT "' is there twice",
				 STR_ARG(str_sub(id, 0, 64)));
	is_tcp = str_is_prefix(line_peek(l), STR("tcp"));
	rc = arg_endpoint(ps, l, &ep);
	if (rc)
		return rc;
	if (ep.kind != ENDPOINT_IP || ep.has_any_host || ep.port != ep.port_last ||
	    ep.port_offset_sign)
		return conf_fail(ps, l, l->at - 1,
				 "a name server is an address and a port such as 192.0.2.53:53");
	if (!ep.port)
		addr_set_port(&ep.addr, 53);
	return add_nameserver(ps, r, id, &ep.addr, is_tcp);
}

/* Lines `nameserver <address>`; all others are other programs' business. */
static int read_resolv_conf(struct parser *ps, struct conf_resolvers *r, struct err *err)
{
	struct str text, line, word;
	struct addr a;
	int rc = conf_read_file(&ps->arena, RESOLV_CONF, &text, err);

	while (rc == 0 && text.p && text.len) {
		line = str_trim(str_cut(&text, '\n'));
		if (!str_is_prefix(line, STR("nameserver")) || line.len < 11 ||
		    (line.p[10] != ' ' && line.p[10] != '\t'))
			continue;
		word = str_trim(str_from(line, 10));
		/* An interface behind a '%' has no place here. */
		if (addr_parse_ip(word, &a) != 0 || has_nameserver(r, word))
			continue;
		addr_set_port(&a, 53);
		rc = add_nameserver(ps, r, word, &a, false);
	}
	return rc;
}

static int parse_resolv_conf(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct err err;
	int rc = read_resolv_conf(ps, obj, &err);

	return rc == 0 || rc == -ENOMEM ? rc : conf_fail(ps, l, 0, "%s", err.text);
}

static int parse_hold(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value which[] = {
#define X(id, text, s) VALUE(text, HOLD_##id),
		CONF_HOLDS(X) VALUES_END
#undef X
	};
	uint8_t v;
	int rc = arg_value(ps, l, which, &v);

	return rc ? rc : arg_time(ps, l, 1000000, &((struct conf_resolvers *)obj)->hold[v]);
}

static int parse_timeout(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value which[] = { VALUE("resolve", 0), VALUE("retry", 1),
						      VALUES_END };
	struct conf_resolvers *r = obj;
	uint64_t ns;
	uint8_t v;
	int rc = arg_value(ps, l, which, &v);

	if (rc == 0)
		rc = arg_time(ps, l, 1000000, &ns);
	if (rc)
		return rc;
	if (ns < 1000000)
		return conf_fail(ps, l, l->at - 1, "a time of at least 1ms is expected");
	*(v ? &r->timeout_retry : &r->timeout_resolve) = ns;
	return 0;
}

#define AT(field) .offset = offsetof(struct conf_resolvers, field)
static const struct keyword section_rows[] = {
	{ NAME("nameserver"), SEC_RESOLVERS, ARG_FUNC, .parse = parse_nameserver, .grade = '2',
	  .args = "<id> [udp@|tcp@]<address>[:<port>]",
	  .help = "whom to ask; all of them at once" },
	{ NAME("parse-resolv-conf"), SEC_RESOLVERS, ARG_FUNC, .parse = parse_resolv_conf,
	  .grade = '2', .help = "the name servers of /etc/resolv.conf, too" },
	{ NAME("hold"), SEC_RESOLVERS, ARG_FUNC, .parse = parse_hold, .grade = '2',
	  .args = "valid|obsolete|nx|other|refused|timeout <time>",
	  .def = "valid 10s, obsolete 0s, others 30s",
	  .help = "valid: time between lookups that succeed; obsolete: an address that is no "
		  "longer "
		  "in the answer is used for so long; others: after such a failure the last good "
		  "answer is" },
	{ NAME("timeout"), SEC_RESOLVERS, ARG_FUNC, .parse = parse_timeout, .grade = '2',
	  .args = "resolve|retry <time>", .def = "1s",
	  .help = "resolve: between lookups that do not succeed; retry: until a question without "
		  "an "
		  "answer is asked again" },
	{ NAME("resolve_retries"), SEC_RESOLVERS, ARG_UINT, AT(retries), NUMBER(1, 1000),
	  .grade = '2', .args = "<number>", .def = "3", .help = "questions to each name server" },
	{ NAME("accepted_payload_size"), SEC_RESOLVERS, ARG_UINT, AT(payload), NUMBER(512, 65535),
	  .grade = '2', .args = "<bytes>", .def = "512",
	  .help = "of an answer over UDP; longer ones come over TCP" },
};
const struct keyword_table conf_kw_resolvers = KEYWORDS("keyword", section_rows);
#undef AT

/* --- options of a server ----------------------------------------------------------------------- */

static int parse_resolvers(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_server *s = obj;
	int rc = arg_string(ps, l, "a section's name", &s->resolve.resolvers_name);

	if (rc)
		return rc;
	s->resolve.resolvers = resolvers_get(ps, str_from_cstr(s->resolve.resolvers_name), &l->pos);
	return s->resolve.resolvers ? 0 : -ENOMEM;
}

static int parse_prefer(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value which[] = { VALUE("ipv4", 1), VALUE("ipv6", 0),
						      VALUES_END };
	uint8_t v;
	int rc = arg_value(ps, l, which, &v);

	if (rc == 0)
		((struct conf_server *)obj)->resolve.prefer_v4 = v;
	return rc;
}

static int parse_opts(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_resolve *r = &((struct conf_server *)obj)->resolve;
	struct str list, word;
	int rc = line_want(ps, l, "allow-dup-ip, prevent-dup-ip or ignore-weight", &list);

	while (rc == 0 && list.p) {
		word = str_cut(&list, ',');
		if (str_is_eq(word, STR("allow-dup-ip")))
			r->allow_dup_ip = true;
		else if (str_is_eq(word, STR("prevent-dup-ip")))
			r->allow_dup_ip = false;
		else if (str_is_eq(word, STR("ignore-weight")))
			r->ignore_weight = true;
		else
			rc = conf_fail(ps, l, l->at - 1,
				       "'resolve-opts' expects allow-dup-ip, prevent-dup-ip or "
				       "ignore-weight instead of '" STR_FMT "'",
				       STR_ARG(str_sub(word, 0, 64)));
	}
	return rc;
}

static int parse_net(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_resolve *r = &((struct conf_server *)obj)->resolve;
	struct str list, word;
	int rc = line_want(ps, l, "prefixes such as 10.0.0.0/8,192.168.0.0/16", &list);

	r->n_nets = 0;
	while (rc == 0 && list.p) {
		word = str_cut(&list, ',');
		if (r->n_nets == CONF_RESOLVE_NETS)
			return conf_fail(ps, l, l->at - 1,
					 "'resolve-net' takes %d prefixes at most",
					 CONF_RESOLVE_NETS);
		if (addr_prefix_parse(word, &r->nets[r->n_nets]) != 0)
			return conf_fail(ps, l, l->at - 1, "'" STR_FMT "' is no prefix",
					 STR_ARG(str_sub(word, 0, 64)));
		r->n_nets++;
	}
	return rc;
}

static int parse_init_addr(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct {
		struct str name;
		uint8_t method;
	} methods[] = { { NAME("last"), INIT_ADDR_LAST },
			{ NAME("libc"), INIT_ADDR_LIBC },
			{ NAME("none"), INIT_ADDR_NONE } };
	struct conf_resolve *r = &((struct conf_server *)obj)->resolve;
	struct str list, word;
	unsigned i;
	int rc = line_want(ps, l, "a list of last, libc, none or an address", &list);

	r->n_init = 0;
	while (rc == 0 && list.p) {
		word = str_cut(&list, ',');
		if (r->n_init == CONF_INIT_ADDRS)
			return conf_fail(ps, l, l->at - 1, "'init-addr' takes %d methods at most",
					 CONF_INIT_ADDRS);
		for (i = 0; i < ARRAY_SIZE(methods); i++)
			if (str_is_eq(word, methods[i].name))
				break;
		if (i < ARRAY_SIZE(methods))
			r->init[r->n_init] = methods[i].method;
		else if (addr_parse_ip(word, &r->init_ip) == 0)
			r->init[r->n_init] = INIT_ADDR_IP;
		else
			return conf_fail(
				ps, l, l->at - 1,
				"'init-addr' expects last, libc, none or an address instead "
				"of '" STR_FMT "'",
				STR_ARG(str_sub(word, 0, 64)));
		r->n_init++;
	}
	return rc;
}

static const struct keyword server_rows[] = {
	{ NAME("resolvers"), SEC_SRV, ARG_FUNC, .parse = parse_resolvers, .grade = '2',
	  .args = "<section>", .help = "the name is looked up again while the process runs" },
	{ NAME("resolve-prefer"), SEC_SRV, ARG_FUNC, .parse = parse_prefer, .grade = '2',
	  .args = "ipv4|ipv6", .def = "ipv6", .help = "where the name has addresses of both" },
	{ NAME("resolve-opts"), SEC_SRV, ARG_FUNC, .parse = parse_opts, .grade = '2',
	  .args = "allow-dup-ip,ignore-weight", .def = "prevent-dup-ip",
	  .help = "two servers of a backend and a name may have one address; the weight of SRV "
		  "records does not count" },
	{ NAME("resolve-net"), SEC_SRV, ARG_FUNC, .parse = parse_net, .grade = '2',
	  .args = "<prefix>,...", .help = "addresses there are preferred" },
	{ NAME("init-addr"), SEC_SRV, ARG_FUNC, .parse = parse_init_addr, .grade = '2',
	  .args = "{last|libc|none|<address>},...", .def = "last,libc",
	  .help = "the first address; last: the one before a reload; none: in maintenance until "
		  "the "
		  "name resolves" },
};
const struct keyword_table conf_kw_server_resolve = KEYWORDS("server option", server_rows);

/* --- the end ----------------------------------------------------------------------------------- */

static int finalize_section(struct parser *ps, struct conf_resolvers *r)
{
	struct err err;
	int rc;

	if (!r->is_defined && strcmp(r->name, "default") == 0) {
		rc = read_resolv_conf(ps, r, &err);
		if (rc)
			return rc == -ENOMEM ? rc : conf_fail_pos(ps, &r->pos, "%s", err.text);
		r->is_defined = true;
	}
	if (!r->is_defined)
		return conf_fail_pos(ps, &r->pos, "there is no 'resolvers %.64s' section", r->name);
	if (!r->n_nameservers)
		return conf_fail_pos(ps, &r->pos,
				     "resolvers '%.64s' has no name server: add 'nameserver <id> "
				     "<address>:<port>'",
				     r->name);
	return 0;
}

int finalize_resolvers(struct parser *ps)
{
	struct list *p;
	int rc;

	list_for_each(p, &ps->conf->resolvers) {
		rc = finalize_section(ps, list_entry(p, struct conf_resolvers, link));
		if (rc == -ENOMEM)
			return rc;
	}
	return 0;
}

int finalize_server_name(struct parser *ps, struct conf_server *s, struct line *l)
{
	bool is_name = s->ep.kind == ENDPOINT_NAME;

	s->resolve.is_srv = is_name && s->ep.host.len && s->ep.host.p[0] == '_';
	if (s->resolve.is_srv && !s->resolve.resolvers)
		return conf_fail(ps, l, 2,
				 "'" STR_FMT "' is a name of SRV records: server '%.64s' needs "
				 "'resolvers <section>'",
				 STR_ARG(str_sub(s->ep.host, 0, 64)), s->name);
	return 0;
}

/* --- text -------------------------------------------------------------------------------------- */

static const char *const method_names[] = { "last", "libc", "none", "ip" };

void dump_resolve(FILE *f, const struct conf_resolve *r)
{
	char text[ADDR_TEXT_MAX];

	if (r->n_init) {
		fputs("    init-addr", f);
		for (unsigned i = 0; i < r->n_init; i++)
			fprintf(f, " %s", method_names[r->init[i]]);
		fputc('\n', f);
	}
	if (!r->resolvers)
		return;
	fprintf(f, "    resolvers %s prefers %s%s%s%s\n", r->resolvers->name,
		r->prefer_v4 ? "ipv4" : "ipv6", r->allow_dup_ip ? " allow-dup-ip" : "",
		r->ignore_weight ? " ignore-weight" : "", r->is_srv ? " srv" : "");
	for (unsigned i = 0; i < r->n_nets; i++) {
		addr_format_ip(&r->nets[i].addr, text, sizeof(text));
		fprintf(f, "    resolve-net %s/%u\n", text, r->nets[i].bits);
	}
}

void dump_resolvers(FILE *f, const struct conf *c)
{
	struct list *p, *q;

	list_for_each(p, &c->resolvers) {
		const struct conf_resolvers *r = list_entry(p, struct conf_resolvers, link);

		fprintf(f, "resolvers %s\n  retries %u payload %u\n", r->name, r->retries,
			r->payload);
		fprintf(f, "  timeout resolve %" PRIu64 "ns retry %" PRIu64 "ns\n",
			r->timeout_resolve, r->timeout_retry);
#define X(id, text, s) fprintf(f, "  hold " text " %" PRIu64 "ns\n", r->hold[HOLD_##id]);
		CONF_HOLDS(X)
#undef X
		list_for_each(q, &r->nameservers) {
			const struct conf_nameserver *ns = list_entry(q, struct conf_nameserver,
								      link);
			char text[ADDR_TEXT_MAX];

			addr_format(&ns->addr, text, sizeof(text));
			fprintf(f, "  nameserver %s %s%s\n", ns->id, text,
				ns->is_tcp ? " tcp" : "");
		}
	}
}
