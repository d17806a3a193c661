/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which names are looked up, for whom: sections, users, and how both follow a new configuration. A section whose
 * name servers did not change keeps its channels, its names and its counters; a server keeps its place in the
 * answers. Control thread.
 */
#include "ctl/dns.h"

#include <errno.h>

#include "ctl/dns_priv.h"

/* --- sections ------------------------------------------------------------------------------------ */

static uint64_t section_signature(const struct conf_resolvers *c)
{
	uint64_t h = c->payload ^ c->timeout_retry;
	char text[ADDR_TEXT_MAX];
	struct list *l;

	list_for_each(l, &c->nameservers) {
		const struct conf_nameserver *ns = list_entry(l, struct conf_nameserver, link);
		size_t len = addr_format(&ns->addr, text, sizeof(text));

		h = str_hash(str_from_cstr(ns->id), str_hash(str_make(text, len), h + ns->is_tcp));
	}
	return h;
}

static void section_free(struct dns_section *sec)
{
	struct list *l, *next;

	list_for_each_safe(l, next, &sec->names)
		dns_name_free(list_entry(l, struct dns_name, link));
	for (unsigned i = 0; i < sec->n_ns; i++) {
		dns_ns_close(&sec->ns[i]);
		mem_free(sec->ns[i].id);
	}
	list_del(&sec->link);
	mem_free(sec->ns);
	mem_free(sec->name);
	mem_free(sec);
}

static int section_open(struct dns *d, const struct conf_resolvers *c, struct dns_section **ret_sec,
			struct err *err)
{
	struct dns_section *sec = mem_zalloc(sizeof(*sec));
	struct list *l;
	int rc = 0;

	if (!sec)
		return err_set(err, -ENOMEM, "out of memory");
	list_init(&sec->link);
	list_init(&sec->names);
	sec->dns = d;
	sec->conf = *c;
	sec->signature = section_signature(c);
	sec->name = mem_strdup(str_from_cstr(c->name));
	sec->ns = mem_zalloc((c->n_nameservers + 1) * sizeof(*sec->ns));
	if (!sec->name || !sec->ns)
		rc = err_set(err, -ENOMEM, "out of memory");
	list_for_each(l, &c->nameservers) {
		const struct conf_nameserver *cn = list_entry(l, struct conf_nameserver, link);
		struct dns_ns *ns = &sec->ns[sec->n_ns];

		if (rc != 0)
			break;
		ns->section = sec;
		ns->id = mem_strdup(str_from_cstr(cn->id));
		sec->n_ns++;
		rc = ns->id ? dns_ns_open(ns, cn, err) : err_set(err, -ENOMEM, "out of memory");
	}
	if (rc != 0) {
		section_free(sec);
		return rc;
	}
	list_push_back(&d->sections, &sec->link);
	*ret_sec = sec;
	return 0;
}

static struct dns_section *section_find(const struct dns *d, const char *name)
{
	struct list *l;

	list_for_each(l, &d->sections) {
		struct dns_section *sec = list_entry(l, struct dns_section, link);

		if (sec->is_wanted && strcmp(sec->name, name) == 0)
			return sec;
	}
	return NULL;
}

/* Times may change under a section that goes on; name servers may not: that is another section. */
static int section_want(struct dns *d, const struct conf_resolvers *c, struct err *err)
{
	uint64_t signature = section_signature(c);
	struct dns_section *sec = NULL;
	struct list *l;
	int rc;

	list_for_each(l, &d->sections) {
		sec = list_entry(l, struct dns_section, link);
		if (strcmp(sec->name, c->name) == 0 && sec->signature == signature) {
			sec->conf = *c;
			sec->is_wanted = true;
			return 0;
		}
	}
	rc = section_open(d, c, &sec, err);
	if (rc == 0)
		sec->is_wanted = true;
	return rc;
}

/* --- users --------------------------------------------------------------------------------------- */

static void user_free(struct dns_user *u)
{
	dns_user_release(u);
	u->srv->dns = NULL;
	list_del(&u->link);
	mem_free(u->fqdn);
	mem_free(u->fqdn_of);
	mem_free(u);
}

static struct str user_host(const struct dns_user *u)
{
	if (u->fqdn)
		return str_from_cstr(u->fqdn);
	return u->conf->ep.kind == ENDPOINT_NAME ? u->conf->ep.host : STR_NULL;
}

/* A name that the runtime API gave lasts until the line says another one than then. */
static void user_check_fqdn(struct dns_user *u)
{
	if (!u->fqdn || str_is_eq(str_from_cstr(u->fqdn_of),
				  u->conf->ep.kind == ENDPOINT_NAME ? u->conf->ep.host : STR("")))
		return;
	mem_free(u->fqdn);
	mem_free(u->fqdn_of);
	u->fqdn = u->fqdn_of = NULL;
	atomic_fetch_and(&u->srv->admin, (uint8_t)~SERVER_FQDN_BY_CLI);
}

/* Puts it on the list of its name, which may be the one it is on. */
static int user_bind(struct dns *d, struct dns_user *u)
{
	struct dns_section *sec = section_find(d, u->conf->resolve.resolvers->name);
	struct str host = user_host(u);
	bool is_srv = host.len && host.p[0] == '_';
	struct dns_name *n = is_srv ? u->srv_name : u->name;

	if (n && sec && n->section == sec && is_srv == (u->srv_name != NULL) &&
	    str_is_eq(str_from_cstr(n->host), host))
		return 0;
	dns_user_release(u);
	if (!sec || !host.len)
		return 0;
	n = dns_name_get(sec, host, is_srv);
	if (!n)
		return -ENOMEM;
	if (is_srv) {
		u->srv_name = n;
		list_push_back(&n->users, &u->srv_link);
	} else {
		u->name = n;
		list_push_back(&n->users, &u->name_link);
	}
	return 0;
}

static int user_new(struct dns *d, struct server *s, struct dns_user **ret_u)
{
	struct dns_user *u = mem_zalloc(sizeof(*u));

	if (!u)
		return -ENOMEM;
	u->srv = s;
	s->dns = u;
	list_init(&u->name_link);
	list_init(&u->srv_link);
	list_init(&u->claim);
	list_push_back(&d->users, &u->link);
	*ret_u = u;
	return 0;
}

/* --- a new configuration --------------------------------------------------------------------------- */

/* Servers that are gone, or want no name any more. */
static void drop_unwanted_users(struct dns *d)
{
	struct list *l, *next;

	list_for_each_safe(l, next, &d->users) {
		struct dns_user *u = list_entry(l, struct dns_user, link);

		if (!u->srv->conf || !u->srv->conf->resolve.resolvers)
			user_free(u);
	}
}

static int configure_server(struct dns *d, struct server *s, const struct conf_server *cs)
{
	struct dns_user *u = s->dns;
	int rc = 0;

	if (!cs->resolve.resolvers)
		return 0;
	if (!u)
		rc = user_new(d, s, &u);
	if (rc != 0)
		return rc;
	u->conf = cs;
	user_check_fqdn(u);
	return user_bind(d, u);
}

static int configure_proxy(struct dns *d, const struct lb_backend *be)
{
	int rc = 0;

	for (unsigned i = 0; i < be->n_servers && rc == 0; i++)
		rc = configure_server(d, be->servers[i], be->servers[i]->conf);
	return rc;
}

static void drop_unwanted_sections(struct dns *d)
{
	struct list *l, *next;

	list_for_each_safe(l, next, &d->sections)
		if (!list_entry(l, struct dns_section, link)->is_wanted)
			section_free(list_entry(l, struct dns_section, link));
}

static void drop_all(struct dns *d)
{
	struct list *l, *next;

	list_for_each_safe(l, next, &d->users)
		user_free(list_entry(l, struct dns_user, link));
	list_for_each_safe(l, next, &d->sections)
		section_free(list_entry(l, struct dns_section, link));
}

void dns_remove(struct dns *d, struct server *s)
{
	if (s->dns)
		user_free(s->dns);
}

int dns_configure(struct dns *d, const struct proxy_snapshot *snap, struct err *err)
{
	struct list *l;
	int rc = 0;

	list_for_each(l, &d->sections)
		list_entry(l, struct dns_section, link)->is_wanted = false;
	list_for_each(l, &snap->conf->resolvers)
		if (rc == 0)
			rc = section_want(d, list_entry(l, struct conf_resolvers, link), err);
	drop_unwanted_users(d);
	list_for_each(l, &snap->conf->proxies) {
		const struct conf_proxy *px = list_entry(l, struct conf_proxy, link);

		if (rc == 0 && configure_proxy(d, snap->backends[px->index]) != 0)
			rc = err_set(err, -ENOMEM, "out of memory");
	}
	if (rc == 0)
		drop_unwanted_sections(d);
	else /* nothing may point into what is on its way out */
		drop_all(d);
	d->wants_configure = rc != 0;
	return rc;
}

void dns_tick(struct dns *d)
{
	struct err err;

	if (d->wants_configure && dns_configure(d, d->ctl->current, &err) != 0)
		log_msg(LOG_LVL_ERR, "names of servers are not looked up: %s", err.text);
}

int dns_create(struct ctl *ctl, struct dns **ret_dns)
{
	struct dns *d;

	if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS)
		return -EIO;
	d = mem_zalloc(sizeof(*d));
	if (!d) {
		ares_library_cleanup();
		return -ENOMEM;
	}
	d->ctl = ctl;
	list_init(&d->sections);
	list_init(&d->users);
	*ret_dns = d;
	return 0;
}

void dns_destroy(struct dns *d)
{
	if (!d)
		return;
	drop_all(d);
	mem_free(d);
	ares_library_cleanup();
}

/* --- the runtime API ------------------------------------------------------------------------------- */

int dns_set_fqdn(struct dns *d, struct server *s, struct str host)
{
	struct dns_user *u = s->dns;
	char *fqdn, *of;

	if (!u)
		return -ENOENT;
	fqdn = mem_strdup(host);
	of = mem_strdup(u->conf->ep.kind == ENDPOINT_NAME ? u->conf->ep.host : STR(""));
	if (!fqdn || !of) {
		mem_free(fqdn);
		mem_free(of);
		return -ENOMEM;
	}
	mem_free(u->fqdn);
	mem_free(u->fqdn_of);
	u->fqdn = fqdn;
	u->fqdn_of = of;
	atomic_fetch_or(&s->admin, SERVER_FQDN_BY_CLI);
	return user_bind(d, u);
}

const char *dns_fqdn_of(const struct server *s)
{
	const struct dns_user *u = s->dns;

	return u && u->name ? u->name->host : NULL;
}

const char *dns_srv_of(const struct server *s)
{
	const struct dns_user *u = s->dns;

	return u && u->srv_name ? u->srv_name->host : NULL;
}

bool dns_show(const struct dns *d, const char *section, FILE *out)
{
	bool is_found = !section;
	struct list *l;

	list_for_each(l, &d->sections) {
		const struct dns_section *sec = list_entry(l, struct dns_section, link);

		if (section && strcmp(section, sec->name) != 0)
			continue;
		is_found = true;
		fprintf(out, "Resolvers section %s\n", sec->name);
		for (unsigned i = 0; i < sec->n_ns; i++) {
			const struct dns_ns *ns = &sec->ns[i];

			fprintf(out, " nameserver %s:\n", ns->id);
#define X(field, text, metric) \
	fprintf(out, "  %-12s %llu\n", text ":", (unsigned long long)ns->ctr.field);
			DNS_COUNTERS(X)
#undef X
		}
	}
	return is_found;
}

void dns_each_server(const struct dns *d,
		     void (*fn)(void *ctx, const char *section, const char *server,
				const struct dns_counters *c),
		     void *ctx)
{
	struct list *l;

	list_for_each(l, &d->sections) {
		const struct dns_section *sec = list_entry(l, struct dns_section, link);

		for (unsigned i = 0; i < sec->n_ns; i++)
			fn(ctx, sec->name, sec->ns[i].id, &sec->ns[i].ctr);
	}
}
