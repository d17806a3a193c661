/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `add server`, `del server`: servers that come and go while the configuration stays. Every balancing method takes
 * them (HAProxy refuses static ones: its maps are made once, ours with every change of a state). A
 * reload returns to what the files say.
 */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "ctl/cmd.h"
#include "ctl/cmd_rows.h"
#include "ctl/dns.h"

/* --- add server ------------------------------------------------------------------------------------------ */

static void own_destroy(struct server_own *own)
{
	if (own->tls && !own->certs)
		tls_client_release(own->tls);
	cert_store_free(own->certs);
	conf_free(own->conf);
	mem_free(own);
}

static void say_finding(void *ctx, enum conf_severity sev, const struct conf_pos *pos,
			const char *text)
{
	if (sev == CONF_ERROR)
		cmd_say(ctx, "%s", text);
}

static bool is_id_free(const struct lb_backend *be, unsigned id)
{
	for (unsigned i = 0; i < be->n_servers; i++)
		if (be->servers[i]->id == id)
			return false;
	return true;
}

/* The line's, or the lowest that is free. */
static bool choose_id(struct cmd *c, const struct lb_backend *be, struct conf_server *line)
{
	bool is_given = false;

	for (unsigned i = 2; cmd_arg(c, i); i++)
		is_given |= strcmp(cmd_arg(c, i), "id") == 0;
	if (is_given && !is_id_free(be, line->id)) {
		cmd_say(c, "custom id %u is already used in backend '%s'", line->id, be->name);
		return false;
	}
	while (!is_given && !is_id_free(be, line->id))
		line->id++;
	return true;
}

/*
 * From the certificates that run, where the runtime API may change them later; files that those do not have are read
 * now, into a store of the server's own.
 */
static int build_tls(struct ctl *ctl, struct server_own *own, struct err *err)
{
	const struct conf_global *g = &ctl->current->conf->global;
	struct tls_client *tls;
	int rc;

	if (!own->line->needs_tls)
		return 0;
	rc = tls_client_new(ctl->current->certs, own->line, g, &tls, err);
	if (rc == 0) {
		tls_client_retire(tls); /* the server's: it may outlive the store */
	} else {
		rc = cert_store_new(ctl->current->certs, &own->certs, err);
		if (rc == 0)
			rc = tls_client_new(own->certs, own->line, g, &tls, err);
		if (rc != 0)
			return rc;
		cert_store_freeze(own->certs);
	}
	atomic_init(&own->tls, tls);
	return 0;
}

/* The line and what it needs; NULL: said why not. */
static struct server_own *own_new(struct cmd *c, const struct conf_proxy *px,
				  const struct lb_backend *be, const char *name)
{
	struct conf_source src = { .report = say_finding, .report_ctx = c };
	struct server_own *own = mem_zalloc(sizeof(*own));
	const char *words[CMD_MAX_ARGS];
	struct err err = { "" };
	unsigned n = 0;
	int rc = -ENOMEM;

	words[n++] = name;
	while (cmd_arg(c, n) && n < CMD_MAX_ARGS) {
		words[n] = cmd_arg(c, n);
		n++;
	}
	if (own) {
		own->destroy = own_destroy;
		rc = conf_load_server(c->ctl->current->conf, px, words, n, &src, &own->conf,
				      &own->line);
	}
	if (rc == -ENOMEM)
		cmd_say(c, "out of memory");
	if (rc == 0 && !choose_id(c, be, own->line))
		rc = -EINVAL;
	if (rc == 0 && (rc = build_tls(c->ctl, own, &err)) != 0)
		cmd_say(c, "%s", err.text);
	if (rc == 0)
		return own;
	if (own)
		own_destroy(own);
	return NULL;
}

/* "backend/server", the first argument, and an address behind it. NULL: said what is wrong. */
static const struct conf_proxy *read_place(struct cmd *c, const char **ret_name)
{
	const char *path = cmd_arg(c, 0), *slash = path ? strchr(path, '/') : NULL;
	const struct conf_proxy *px;
	const struct server *s;
	struct str name;

	if (!slash || !slash[1]) {
		cmd_say(c, "Require 'backend/server'.");
		return NULL;
	}
	name = str_from_cstr(slash + 1);
	px = conf_find_proxy(c->ctl->current->conf, str_make(path, (size_t)(slash - path)),
			     CONF_CAP_BACKEND);
	if (!px) {
		cmd_say(c, "No such backend.");
		return NULL;
	}
	if (!cmd_arg(c, 1)) {
		cmd_say(c, "'server' expects <name> and <addr>[:<port>] as arguments.");
		return NULL;
	}
	s = lb_find_server(&c->ctl->registry, str_from_cstr(px->name), name);
	if (s && s->conf) {
		cmd_say(c, "Already exists a server with the same name in backend.");
		return NULL;
	}
	*ret_name = slash + 1;
	return px;
}

static int add_server(struct cmd *c)
{
	struct ctl *ctl = c->ctl;
	const char *name = NULL;
	const struct conf_proxy *px = read_place(c, &name);
	struct lb_backend *be = px ? ctl->current->backends[px->index] : NULL;
	struct server_own *own = px ? own_new(c, px, be, name) : NULL;
	struct err err = { "" };
	struct server *s;

	if (!own)
		return 0;
	if (lb_add_server(&ctl->registry, be, own, &s, &err) != 0) {
		own_destroy(own);
		cmd_say(c, "%s", err.text);
		return 0;
	}
	if (health_add(ctl->health, s) != 0) {
		(void)!lb_remove_server(&ctl->registry, s);
		cmd_say(c, "out of memory");
		return 0;
	}
	ctl_server_changed(ctl, s);
	log_msg(LOG_LVL_NOTICE, "Server %s/%s was added by the runtime API.", be->name, s->name);
	cmd_tell(c, "New server registered.");
	return 0;
}

static int add_server_help(struct cmd *c)
{
	const struct conf_keyword_doc *d;

	fputs("List of keywords supported for dynamic servers:\n", c->out);
	for (unsigned i = 0; (d = conf_keyword_doc(i)); i++)
		if (conf_is_option_of_added(d))
			fprintf(c->out, "  %s%s%s\n", d->name, d->args ? " " : "",
				d->args ? d->args : "");
	return 0;
}

int cmd_add_server(struct cmd *c)
{
	if (cmd_arg(c, 0) && strcmp(cmd_arg(c, 0), "help") == 0 && !cmd_arg(c, 1))
		return add_server_help(c);
	return add_server(c);
}

/* --- del server ------------------------------------------------------------------------------------------ */

/* Does a rule or another server name it? */
static bool is_referenced(const struct ctl *ctl, const struct conf_server *cs)
{
	struct list *p, *l;

	list_for_each(p, &ctl->current->conf->proxies) {
		const struct conf_proxy *px = list_entry(p, struct conf_proxy, link);
		const struct lb_backend *be = ctl->current->backends[px->index];

		list_for_each(l, &px->use_servers)
			if (list_entry(l, struct conf_use_server, link)->server == cs)
				return true;
		for (unsigned i = 0; i < be->n_servers; i++)
			if (be->servers[i]->conf->track_server == cs)
				return true;
	}
	return false;
}

static bool has_connections(const struct server *s)
{
	const struct stats_area *area = s->be->registry->backends_area;
	struct hg_l7_counters sum = { 0 };

	if (atomic_load(&s->cur) || atomic_load(&s->n_waiting))
		return true;
	if (area)
		stats_row_sum(area, &s->stats, &sum);
	return sum.used_conns > 0;
}

const char *server_why_not_removable(const struct ctl *ctl, const struct server *s,
				     bool *ret_may_pass)
{
	*ret_may_pass = false;
	if (is_referenced(ctl, s->conf))
		return "This server cannot be removed at runtime due to other configuration "
		       "elements pointing to it.";
	if (!(atomic_load(&s->admin) & SERVER_MAINT_MASK))
		return "Only servers in maintenance mode can be deleted.";
	*ret_may_pass = true;
	if (has_connections(s))
		return "Server still has connections attached to it, cannot remove it.";
	return NULL;
}

int cmd_del_server(struct cmd *c)
{
	struct server *s = cmd_find_server(c, cmd_arg(c, 0), NULL);
	struct ctl *ctl = c->ctl;
	bool may_pass;
	const char *why = s ? server_why_not_removable(ctl, s, &may_pass) : NULL;

	if (!s)
		return 0;
	if (why) {
		cmd_say(c, "%s", why);
		return 0;
	}
	health_remove(ctl->health, s);
	dns_remove(ctl->dns, s);
	if (lb_remove_server(&ctl->registry, s) != 0) {
		/* It stays in maintenance, and is looked after again. */
		if (health_add(ctl->health, s) != 0)
			log_msg(LOG_LVL_ERR, "Server %s/%s has no health checks: out of memory.",
				s->backend_name, s->name);
		cmd_say(c, "out of memory");
		return 0;
	}
	log_msg(LOG_LVL_NOTICE, "Server %s/%s was deleted by the runtime API.", s->backend_name,
		s->name);
	if (ctl->dp)
		loop_defer(ctl->loop, &ctl->dp_sync);
	cmd_tell(c, "Server deleted.");
	return 0;
}

void ctl_bury_servers(struct ctl *ctl)
{
	uint64_t now = loop_now(ctl->loop), since = now;

	atomic_store(&ctl->shared.n_removed, !list_is_empty(&ctl->registry.removed));
	if (list_is_empty(&ctl->registry.removed))
		return;
	for (unsigned i = 0; ctl->workers && i < ctl->n_workers; i++)
		if (ctl->workers[i] && worker_oldest_stream(ctl->workers[i]) < since)
			since = worker_oldest_stream(ctl->workers[i]);
	lb_bury_removed(&ctl->registry, now, since);
}
