/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands that change servers, frontends, limits; answers in HAProxy's words. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/cmd_rows.h"
#include "ctl/dns.h"
#include "ctl/findings.h"
#include "ctl/master.h"

/* --- set server ------------------------------------------------------------------------------------ */

static void set_state(struct cmd *c, struct server *s, const char *value)
{
	if (value && strcmp(value, "ready") == 0)
		server_set_admin(&c->ctl->registry, s, 0,
				 SERVER_FORCED_MAINT | SERVER_CONFIG_MAINT | SERVER_FORCED_DRAIN);
	else if (value && strcmp(value, "drain") == 0)
		server_set_admin(&c->ctl->registry, s, SERVER_FORCED_DRAIN,
				 SERVER_FORCED_MAINT | SERVER_CONFIG_MAINT);
	else if (value && strcmp(value, "maint") == 0)
		server_set_admin(&c->ctl->registry, s, SERVER_FORCED_MAINT, SERVER_FORCED_DRAIN);
	else
		return cmd_say(c, "'set server <srv> state' expects 'ready', 'drain' and 'maint'.");
	health_admin_changed(c->ctl->health, s);
	ctl_server_changed(c->ctl, s);
}

/* A number, or a percentage of the initial weight. */
static void set_weight(struct cmd *c, struct server *s, const char *value)
{
	struct str v = str_from_cstr(value);
	bool is_percent = v.len && v.p[v.len - 1] == '%';
	struct err err;
	uint64_t n;

	if (!value)
		return cmd_say(c, "Require <weight> or <weight%%>.");
	if (is_percent)
		v.len--;
	if (str_to_u64(v, &n) != 0)
		return cmd_say(c, "Trailing garbage in weight string.");
	if (is_percent)
		n = n * atomic_load(&s->iweight) / 100;
	if (n > 256)
		return cmd_say(
			c, is_percent ? "Relative weight must be positive."
				      : "Absolute weight can only be between 0 and 256 inclusive.");
	if (server_set_weight(&c->ctl->registry, s, (uint32_t)n, &err) != 0)
		return cmd_say(c, "%s", err.text);
	ctl_server_changed(c->ctl, s);
}

static void set_health(struct cmd *c, struct server *s, const char *value)
{
	if (s->conf && s->conf->track_server)
		return cmd_say(c, "cannot change health on a tracking server.");
	if (value && strcmp(value, "up") == 0)
		health_force(c->ctl->health, s, true);
	else if (value && strcmp(value, "down") == 0)
		health_force(c->ctl->health, s, false);
	else if (value && strcmp(value, "stopping") == 0)
		health_force_stopping(c->ctl->health, s);
	else
		cmd_say(c, "'set server <srv> health' expects 'up', 'stopping', or 'down'.");
}

static void set_agent(struct cmd *c, struct server *s, const char *value)
{
	if (!s->agent.is_enabled)
		return cmd_say(c, "agent checks are not enabled on this server.");
	if (value && (strcmp(value, "up") == 0 || strcmp(value, "down") == 0))
		health_agent_force(c->ctl->health, s, value[0] == 'u');
	else
		cmd_say(c, "'set server <srv> agent' expects 'up' or 'down'.");
}

static void set_addr(struct cmd *c, struct server *s, const char *value)
{
	const char *word = cmd_arg(c, 3),
		   *port_text = word && strcmp(word, "port") == 0 ? cmd_arg(c, 4) : NULL;
	char before[ADDR_TEXT_MAX], after[ADDR_TEXT_MAX];
	uint64_t port = addr_port(&s->addr);
	struct addr a;

	if (!value || addr_parse_ip(str_from_cstr(value), &a) != 0)
		return cmd_say(c, "Invalid addr family.");
	if (port_text &&
	    (str_to_u64(str_from_cstr(port_text), &port) != 0 || port == 0 || port > 65535))
		return cmd_say(c, "provided port is not an integer");
	addr_set_port(&a, (uint16_t)port);
	if (addr_is_eq(&a, &s->addr))
		return cmd_tell(c, "no need to change the addr, no need to change the port");
	addr_format(&s->addr, before, sizeof(before));
	addr_format(&a, after, sizeof(after));
	server_set_addr(&c->ctl->registry, s, &a);
	ctl_server_changed(c->ctl, s);
	cmd_tell(c, "IP changed from '%s' to '%s' by 'stats socket command'", before, after);
}

/* --- set server: where checks and agents are asked ------------------------------------------------------- */

static bool place_says(struct cmd *c, int rc, bool is_agent)
{
	if (rc != 0)
		cmd_say(c, "%s checks are not enabled on this server",
			is_agent ? "agent" : "health");
	return rc == 0;
}

static bool place_port(struct cmd *c, const char *text, uint16_t *ret)
{
	uint64_t port;

	if (str_to_u64(str_from_cstr(text), &port) != 0)
		cmd_say(c, "provided port is not an integer");
	else if (port == 0 || port > 65535)
		cmd_say(c, "provided port is invalid");
	else
		*ret = (uint16_t)port;
	return *ret;
}

static void set_place_addr(struct cmd *c, struct server *s, const char *value, bool is_agent)
{
	const char *word = value ? cmd_arg(c, 3) : NULL, *text = NULL;
	uint16_t port = 0;
	struct addr a;

	if (!value)
		return cmd_say(c,
			       "set server <b>/<s> %s-addr requires an address and optionally a "
			       "port.",
			       is_agent ? "agent" : "check");
	if (word && strcmp(word, "port") == 0)
		text = cmd_arg(c, 4) ? cmd_arg(c, 4) : "";
	else if (word)
		return cmd_say(c, "'port' expected instead of '%s'", word);
	if (addr_parse_ip(str_from_cstr(value), &a) != 0)
		return cmd_say(c, "invalid addr '%s'", value);
	if (!text || place_port(c, text, &port))
		(void)place_says(c, health_set_place(c->ctl->health, s, is_agent, &a, port),
				 is_agent);
}

static void set_place_port(struct cmd *c, struct server *s, const char *value, bool is_agent)
{
	uint16_t port;

	if (!value)
		return cmd_say(c, "set server <b>/<s> %s-port requires a port.",
			       is_agent ? "agent" : "check");
	if (place_port(c, value, &port))
		(void)place_says(c, health_set_place(c->ctl->health, s, is_agent, NULL, port),
				 is_agent);
}

static void set_check_addr(struct cmd *c, struct server *s, const char *value)
{
	set_place_addr(c, s, value, false);
}

static void set_agent_addr(struct cmd *c, struct server *s, const char *value)
{
	set_place_addr(c, s, value, true);
}

static void set_check_port(struct cmd *c, struct server *s, const char *value)
{
	set_place_port(c, s, value, false);
}

static void set_agent_port(struct cmd *c, struct server *s, const char *value)
{
	set_place_port(c, s, value, true);
}

static void set_agent_send(struct cmd *c, struct server *s, const char *value)
{
	int rc = health_set_agent_text(c->ctl->health, s, str_from_cstr(value ? value : ""));

	if (rc == -ENOMEM)
		cmd_say(c, "cannot allocate memory for new string.");
	else if (rc)
		cmd_say(c, "agent checks are not enabled on this server.");
}

static void set_fqdn(struct cmd *c, struct server *s, const char *value)
{
	const char *now = dns_fqdn_of(s);
	char before[256];
	int rc;

	if (!value || !value[0] || strlen(value) > 253)
		return cmd_say(c, "set server <b>/<s> fqdn requires a FQDN.");
	if (now && strcmp(now, value) == 0)
		return cmd_tell(c, "no need to change the FQDN");
	snprintf(before, sizeof(before), "%s", now ? now : "(null)");
	rc = dns_set_fqdn(c->ctl->dns, s, str_from_cstr(value));
	if (rc == -ENOENT)
		return cmd_say(c, "set server <b>/<s> fqdn failed because no resolution is "
				  "configured.");
	if (rc != 0)
		return cmd_say(c, "could not update %s/%s FQDN", s->backend_name, s->name);
	cmd_say(c, "%s/%s changed its FQDN from %s to %s by 'stats socket command'",
		s->backend_name, s->name, before, value);
}

/* What this version cannot change while it runs, and why. */
static void set_ssl(struct cmd *c, struct server *s, const char *value)
{
	cmd_say(c, "'set server <srv> ssl' cannot be set: TLS settings are loaded with the "
		   "configuration; change 'ssl' there and reload.");
}

int cmd_set_server(struct cmd *c)
{
	static const struct {
		const char *word;
		void (*apply)(struct cmd *c, struct server *s, const char *value);
	} what[] = {
		{ "state", set_state },
		{ "weight", set_weight },
		{ "health", set_health },
		{ "addr", set_addr },
		{ "agent", set_agent },
		{ "agent-addr", set_agent_addr },
		{ "agent-port", set_agent_port },
		{ "agent-send", set_agent_send },
		{ "check-addr", set_check_addr },
		{ "check-port", set_check_port },
		{ "fqdn", set_fqdn },
		{ "ssl", set_ssl },
	};
	struct server *s = cmd_find_server(c, cmd_arg(c, 0), NULL);
	const char *word = cmd_arg(c, 1);

	if (!s)
		return 0;
	for (unsigned i = 0; word && i < ARRAY_SIZE(what); i++) {
		if (strcmp(word, what[i].word) == 0) {
			what[i].apply(c, s, cmd_arg(c, 2));
			return 0;
		}
	}
	cmd_say(c, "usage: set server <backend>/<server> addr | agent | agent-addr | agent-port | "
		   "agent-send | check-addr | check-port | fqdn | health | ssl | state | weight");
	return 0;
}

/* --- short forms ------------------------------------------------------------------------------------- */

int cmd_set_weight(struct cmd *c)
{
	struct server *s = cmd_find_server(c, cmd_arg(c, 0), NULL);

	if (s)
		set_weight(c, s, cmd_arg(c, 1));
	return 0;
}

int cmd_get_weight(struct cmd *c)
{
	struct server *s = cmd_find_server(c, cmd_arg(c, 0), NULL);

	if (s)
		cmd_say(c, "%u (initial %u)", atomic_load(&s->uweight), atomic_load(&s->iweight));
	return 0;
}

int cmd_enable_server(struct cmd *c)
{
	struct server *s = cmd_find_server(c, cmd_arg(c, 0), NULL);

	if (s)
		set_state(c, s, "ready");
	return 0;
}

int cmd_disable_server(struct cmd *c)
{
	struct server *s = cmd_find_server(c, cmd_arg(c, 0), NULL);

	if (s)
		set_state(c, s, "maint");
	return 0;
}

static int set_health_checks(struct cmd *c, bool on)
{
	struct server *s = cmd_find_server(c, cmd_arg(c, 0), NULL);

	if (!s)
		return 0;
	if (!s->conf || !s->conf->has_check)
		cmd_say(c, "Health checks are not configured on this server.");
	else
		health_set_enabled(c->ctl->health, s, on);
	return 0;
}

int cmd_enable_health(struct cmd *c)
{
	return set_health_checks(c, true);
}

int cmd_disable_health(struct cmd *c)
{
	return set_health_checks(c, false);
}

static int set_agent_checks(struct cmd *c, bool on)
{
	struct server *s = cmd_find_server(c, cmd_arg(c, 0), NULL);

	if (!s)
		return 0;
	if (on && (!s->conf || !s->conf->has_agent))
		cmd_say(c, "Agent was not configured on this server, cannot enable.");
	else
		health_agent_set_enabled(c->ctl->health, s, on);
	return 0;
}

int cmd_enable_agent(struct cmd *c)
{
	return set_agent_checks(c, true);
}

int cmd_disable_agent(struct cmd *c)
{
	return set_agent_checks(c, false);
}

/* --- frontends and limits ---------------------------------------------------------------------------- */

static struct conf_proxy *find_frontend(struct cmd *c)
{
	const char *name = cmd_arg(c, 0);
	struct conf_proxy *px = NULL;

	if (name)
		px = conf_find_proxy(c->ctl->current->conf, str_from_cstr(name), CONF_CAP_FRONTEND);
	if (!px)
		cmd_say(c, name ? "No such frontend." : "A frontend name is expected.");
	return px;
}

static void tell_pause(struct ctl *ctl, const struct conf_proxy *px, bool pause)
{
	for (unsigned i = 0; i < ctl->n_workers; i++)
		worker_pause_frontend(ctl->workers[i], str_from_cstr(px->name), pause);
}

static int pause_frontend(struct cmd *c, bool pause)
{
	struct conf_proxy *px = find_frontend(c);
	struct lb_backend *be = px ? c->ctl->current->backends[px->index] : NULL;

	if (!px)
		return 0;
	if (be->is_fe_shut) {
		cmd_say(c, "Frontend was previously shut down, cannot %s.",
			pause ? "disable" : "enable");
		return 0;
	}
	be->is_fe_paused = pause;
	tell_pause(c->ctl, px, pause);
	return 0;
}

/* Every worker has left the listeners. */
static void shut_frontend(void *arg)
{
	struct ctl *ctl = arg;
	struct proxy_snapshot *snap = ctl->current;

	for (unsigned i = 0; snap && i < snap->n_binds; i++) {
		const struct conf_proxy *px = snap->binds[i].conf->proxy;

		if (snap->backends[px->index]->is_fe_shut)
			listen_shut(snap->binds[i].socket);
	}
	worker_link_sockets(ctl);
}

int cmd_shutdown_frontend(struct cmd *c)
{
	struct conf_proxy *px = find_frontend(c);
	struct lb_backend *be = px ? c->ctl->current->backends[px->index] : NULL;

	if (!px)
		return 0;
	if (be->is_fe_shut) {
		cmd_say(c, "Frontend was already shut down.");
		return 0;
	}
	be->is_fe_shut = true;
	tell_pause(c->ctl, px, true);
	quiesce_after(&c->ctl->registry, shut_frontend, c->ctl);
	return 0;
}

int cmd_enable_frontend(struct cmd *c)
{
	return pause_frontend(c, false);
}

int cmd_disable_frontend(struct cmd *c)
{
	return pause_frontend(c, true);
}

static bool arg_number(struct cmd *c, const char *text, uint64_t *ret)
{
	if (text && str_to_u64(str_from_cstr(text), ret) == 0 && *ret <= UINT32_MAX)
		return true;
	cmd_say(c, "Integer value expected.");
	return false;
}

int cmd_set_maxconn_server(struct cmd *c)
{
	struct server *s = cmd_find_server(c, cmd_arg(c, 0), NULL);
	uint64_t n;

	if (!s || !arg_number(c, cmd_arg(c, 1), &n))
		return 0;
	server_set_maxconn(&c->ctl->registry, s, (uint32_t)n);
	ctl_server_changed(c->ctl, s);
	return 0;
}

int cmd_set_maxconn_frontend(struct cmd *c)
{
	struct conf_proxy *px = find_frontend(c);
	uint64_t n;

	if (!px || !arg_number(c, cmd_arg(c, 1), &n))
		return 0;
	atomic_store(&c->ctl->current->backends[px->index]->fe_maxconn, (uint32_t)n);
	/* Who waits at the old limit looks again. */
	for (unsigned i = 0; i < c->ctl->n_workers; i++)
		worker_resume(c->ctl->workers[i]);
	return 0;
}

/* --- cookies of addresses -------------------------------------------------------------------------- */

static struct lb_backend *find_backend(struct cmd *c)
{
	const char *name = cmd_arg(c, 0);
	struct conf_proxy *px = NULL;

	if (name)
		px = conf_find_proxy(c->ctl->current->conf, str_from_cstr(name), CONF_CAP_BACKEND);
	if (!px)
		cmd_say(c, name ? "No such backend." : "A backend name is expected.");
	return px ? c->ctl->current->backends[px->index] : NULL;
}

static int set_dynamic_cookie(struct cmd *c, bool is_on)
{
	struct lb_backend *be = find_backend(c);

	if (be)
		lb_set_dynamic_cookie(be, is_on);
	return 0;
}

int cmd_enable_dynamic_cookie(struct cmd *c)
{
	return set_dynamic_cookie(c, true);
}

int cmd_disable_dynamic_cookie(struct cmd *c)
{
	return set_dynamic_cookie(c, false);
}

int cmd_set_dynamic_cookie_key(struct cmd *c)
{
	struct lb_backend *be = find_backend(c);
	const char *key = cmd_arg(c, 1);

	if (!be)
		return 0;
	if (!key || !*key)
		cmd_say(c, "A key is expected.");
	else if (lb_set_cookie_key(be, str_from_cstr(key)))
		cmd_say(c, "Out of memory.");
	return 0;
}

/* --- limits per second ----------------------------------------------------------------------------- */

static struct rate_gate *gate_of(struct proxy_shared *sh, const char *what)
{
	static const char *const names[] = {
		[PROXY_RATE_CONNS] = "connections",
		[PROXY_RATE_SESSIONS] = "sessions",
		[PROXY_RATE_TLS] = "ssl-sessions",
	};

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(what, names[i]) == 0)
			return &sh->rates[i];
	return NULL;
}

int cmd_set_rate_limit(struct cmd *c)
{
	const char *what = cmd_arg(c, 0) ? cmd_arg(c, 0) : "", *scope = cmd_arg(c, 1);
	struct rate_gate *gate = gate_of(&c->ctl->shared, what);
	uint64_t n;

	if (!gate && strcmp(what, "http-compression") != 0) {
		cmd_say(c,
			"'set rate-limit' supports 'connections', 'sessions', 'ssl-sessions', and "
			"'http-compression'.");
		return 0;
	}
	if (!scope || strcmp(scope, "global") != 0) {
		cmd_say(c, "'set rate-limit %s' only supports 'global'.", what);
		return 0;
	}
	if (!arg_number(c, cmd_arg(c, 2), &n))
		return 0;
	atomic_store(gate ? &gate->limit : &c->ctl->shared.comp_limit, (uint32_t)n);
	/* Who waits at the old limit looks again. */
	for (unsigned i = 0; i < c->ctl->n_workers; i++)
		worker_resume(c->ctl->workers[i]);
	return 0;
}

int cmd_set_maxconn_global(struct cmd *c)
{
	uint64_t n;

	if (arg_number(c, cmd_arg(c, 0), &n))
		atomic_store(&c->ctl->shared.maxconn, (uint32_t)n);
	for (unsigned i = 0; i < c->ctl->n_workers; i++)
		worker_resume(c->ctl->workers[i]);
	return 0;
}

/* --- reload ------------------------------------------------------------------------------------------- */

int cmd_reload(struct cmd *c)
{
	char *text = NULL;
	size_t size = 0;
	FILE *mem = open_memstream(&text, &size);
	int rc;

	if (!mem) {
		cmd_say(c, "Out of memory.");
		return 0;
	}
	rc = ctl_reload(c->ctl, mem);
	fclose(mem);
	/* The form of HAProxy's master: a line for programs, then the text for people. */
	fprintf(c->out, "Success=%d\n--\n%s", rc == 0, text);
	free(text); /* lint: libc memory, open_memstream's */
	return 0;
}
