/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands that change servers, frontends, limits; answers in HAProxy's words. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/cmd_rows.h"
#include "ctl/findings.h"

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
		return cmd_say(c, "no need to change the addr, no need to change the port");
	addr_format(&s->addr, before, sizeof(before));
	addr_format(&a, after, sizeof(after));
	server_set_addr(&c->ctl->registry, s, &a);
	ctl_server_changed(c->ctl, s);
	cmd_say(c, "IP changed from '%s' to '%s' by 'stats socket command'", before, after);
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
	cmd_say(c, "usage: set server <backend>/<server> addr | health | state | weight");
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

/* --- frontends and limits ---------------------------------------------------------------------------- */

static int pause_frontend(struct cmd *c, bool pause)
{
	const char *name = cmd_arg(c, 0);
	struct conf_proxy *px = NULL;

	if (name)
		px = conf_find_proxy(c->ctl->current->conf, str_from_cstr(name), CONF_CAP_FRONTEND);
	if (!px) {
		cmd_say(c, name ? "No such frontend." : "A frontend name is expected.");
		return 0;
	}
	c->ctl->current->backends[px->index]->is_fe_paused = pause;
	for (unsigned i = 0; i < c->ctl->n_workers; i++)
		worker_pause_frontend(c->ctl->workers[i], str_from_cstr(px->name), pause);
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

int cmd_set_maxconn_global(struct cmd *c)
{
	uint64_t n;

	if (arg_number(c, cmd_arg(c, 0), &n))
		atomic_store(&c->ctl->shared.maxconn, (uint32_t)n);
	return 0;
}

/* --- sessions ------------------------------------------------------------------------------------------ */

int cmd_shutdown_session(struct cmd *c)
{
	const char *text = cmd_arg(c, 0);
	char *end;
	uint64_t id = text ? strtoull(text, &end, 16) : 0;

	if (!id) {
		cmd_say(c, "Session pointer expected (use 'show sess').");
		return 0;
	}
	for (unsigned i = 0; i < c->ctl->n_workers; i++)
		if (worker_kill_stream(c->ctl->workers[i], id) != 0)
			cmd_say(c, "Out of memory.");
	return 0;
}

int cmd_shutdown_sessions_server(struct cmd *c)
{
	struct server *s = cmd_find_server(c, cmd_arg(c, 0), NULL);

	for (unsigned i = 0; s && i < c->ctl->n_workers; i++)
		worker_shutdown_server(c->ctl->workers[i], s, 'K');
	return 0;
}

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
