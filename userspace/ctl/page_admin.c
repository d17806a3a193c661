/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Actions of the statistics page: a form with b=<backend>, s=<server> (repeated) and action=<word>, as
 * HAProxy's. The same changes as the runtime API's. Control thread.
 */
#include "ctl/page.h"

/* --- what can be done; true: something has changed -------------------------------------------------------- */

static bool act_admin(struct ctl *ctl, struct server *s, unsigned set, unsigned clear)
{
	unsigned old = atomic_load(&s->admin);

	if ((old & set) == set && !(old & clear))
		return false;
	server_set_admin(&ctl->registry, s, set, clear);
	health_admin_changed(ctl->health, s);
	ctl_server_changed(ctl, s);
	return true;
}

static bool act_ready(struct ctl *ctl, struct server *s)
{
	return act_admin(ctl, s, 0,
			 SERVER_FORCED_MAINT | SERVER_CONFIG_MAINT | SERVER_FORCED_DRAIN);
}

static bool act_drain(struct ctl *ctl, struct server *s)
{
	return act_admin(ctl, s, SERVER_FORCED_DRAIN, SERVER_FORCED_MAINT | SERVER_CONFIG_MAINT);
}

static bool act_maint(struct ctl *ctl, struct server *s)
{
	return act_admin(ctl, s, SERVER_FORCED_MAINT, SERVER_FORCED_DRAIN);
}

static bool act_enable(struct ctl *ctl, struct server *s)
{
	return act_admin(ctl, s, 0, SERVER_FORCED_MAINT | SERVER_CONFIG_MAINT);
}

static bool act_start(struct ctl *ctl, struct server *s)
{
	return act_admin(ctl, s, 0, SERVER_FORCED_DRAIN);
}

static bool act_stop(struct ctl *ctl, struct server *s)
{
	return act_admin(ctl, s, SERVER_FORCED_DRAIN, 0);
}

static bool act_shutdown(struct ctl *ctl, struct server *s)
{
	for (unsigned i = 0; i < ctl->n_workers; i++)
		worker_shutdown_server(ctl->workers[i], s, 'K');
	return true;
}

static bool has_check(const struct server *s)
{
	return s->conf && s->conf->has_check;
}

static bool act_health_off(struct ctl *ctl, struct server *s)
{
	if (!has_check(s) || !s->check.is_enabled)
		return false;
	health_set_enabled(ctl->health, s, false);
	return true;
}

static bool act_health_on(struct ctl *ctl, struct server *s)
{
	if (!has_check(s) || s->check.is_enabled)
		return false;
	health_set_enabled(ctl->health, s, true);
	return true;
}

static bool act_health_up(struct ctl *ctl, struct server *s)
{
	if (!has_check(s))
		return false;
	health_force(ctl->health, s, true);
	return true;
}

static bool act_health_stopping(struct ctl *ctl, struct server *s)
{
	if (!has_check(s))
		return false;
	health_force_stopping(ctl->health, s);
	return true;
}

static bool act_health_down(struct ctl *ctl, struct server *s)
{
	if (!has_check(s))
		return false;
	health_force(ctl->health, s, false);
	return true;
}

static bool agent_switch(struct ctl *ctl, struct server *s, bool on)
{
	if (!s->conf || !s->conf->has_agent || s->agent.is_enabled == on)
		return false;
	health_agent_set_enabled(ctl->health, s, on);
	return true;
}

static bool act_agent_off(struct ctl *ctl, struct server *s)
{
	return agent_switch(ctl, s, false);
}

static bool act_agent_on(struct ctl *ctl, struct server *s)
{
	return agent_switch(ctl, s, true);
}

static bool agent_force(struct ctl *ctl, struct server *s, bool up)
{
	if (!s->agent.is_enabled)
		return false;
	health_agent_force(ctl->health, s, up);
	return true;
}

static bool act_agent_up(struct ctl *ctl, struct server *s)
{
	return agent_force(ctl, s, true);
}

static bool act_agent_down(struct ctl *ctl, struct server *s)
{
	return agent_force(ctl, s, false);
}

typedef bool act_fn(struct ctl *ctl, struct server *s);

static const struct {
	struct str word;
	act_fn *run;
} actions[] = {
	{ STR("ready"), act_ready },
	{ STR("drain"), act_drain },
	{ STR("maint"), act_maint },
	{ STR("shutdown"), act_shutdown },
	{ STR("dhlth"), act_health_off },
	{ STR("ehlth"), act_health_on },
	{ STR("hrunn"), act_health_up },
	{ STR("hnolb"), act_health_stopping },
	{ STR("hdown"), act_health_down },
	{ STR("dagent"), act_agent_off },
	{ STR("eagent"), act_agent_on },
	{ STR("arunn"), act_agent_up },
	{ STR("adown"), act_agent_down },
	/* the words of older pages */
	{ STR("disable"), act_maint },
	{ STR("enable"), act_enable },
	{ STR("stop"), act_stop },
	{ STR("start"), act_start },
};

static act_fn *act_find(struct str word)
{
	for (unsigned i = 0; i < ARRAY_SIZE(actions); i++)
		if (str_is_eq(actions[i].word, word))
			return actions[i].run;
	return NULL;
}

/* --- the form --------------------------------------------------------------------------------------------- */

/* "http://host:port" of another page: a form there must not act here with this user's password. */
static bool is_foreign(const struct service_call *c)
{
	struct str origin = c->origin;
	size_t at;

	if (!origin.p)
		return false;
	at = str_find(origin, STR("://"));
	return at == SIZE_MAX || !str_is_case_eq(str_from(origin, at + 3), c->host);
}

/* By name, or "#<id>" as HAProxy's own page writes it. */
static struct lb_backend *find_backend(struct ctl *ctl, struct str name)
{
	const struct conf *conf = ctl->current->conf;
	const struct conf_proxy *px = NULL;
	struct list *l;
	uint64_t id;

	if (!str_is_prefix(name, STR("#"))) {
		px = conf_find_proxy(conf, name, CONF_CAP_BACKEND);
		return px ? ctl->current->backends[px->index] : NULL;
	}
	if (str_to_u64(str_from(name, 1), &id) != 0)
		return NULL;
	list_for_each(l, &conf->proxies) {
		px = list_entry(l, struct conf_proxy, link);
		if (px->id == id && px->caps & CONF_CAP_BACKEND)
			return ctl->current->backends[px->index];
	}
	return NULL;
}

static struct server *find_server(struct lb_backend *be, struct str name)
{
	for (unsigned i = 0; i < be->n_servers; i++)
		if (str_is_eq(str_from_cstr(be->servers[i]->name), name))
			return be->servers[i];
	return NULL;
}

static enum page_result act_on_all(struct ctl *ctl, struct service_call *c, struct lb_backend *be,
				   act_fn *run)
{
	unsigned n_changed = 0, n_unknown = 0;
	struct str form = c->form;
	struct web_param p;

	while (web_param_next(&form, &c->arena, &p)) {
		struct server *s;

		if (!str_is_eq(p.name, STR("s")) || !p.value.p)
			continue;
		s = find_server(be, p.value);
		if (!s)
			n_unknown++;
		else
			n_changed += run(ctl, s);
	}
	if (n_unknown || !p.name.p)
		return n_changed ? PAGE_PART : PAGE_ERRP;
	return n_changed ? PAGE_DONE : PAGE_NONE;
}

enum page_result page_act(struct ctl *ctl, struct service_call *c)
{
	struct lb_backend *be = NULL;
	struct str form = c->form;
	enum page_result result;
	act_fn *run = NULL;
	struct web_param p;

	if (!c->is_admin || is_foreign(c))
		return PAGE_DENY;
	if (c->is_form_too_long)
		return PAGE_EXCD;
	if (!form.p)
		return PAGE_IVAL;
	while (web_param_next(&form, &c->arena, &p)) {
		if (!p.value.p)
			continue;
		if (str_is_eq(p.name, STR("b")))
			be = find_backend(ctl, p.value);
		else if (str_is_eq(p.name, STR("action")))
			run = act_find(p.value);
	}
	if (!be || !run || !p.name.p)
		return PAGE_ERRP;
	lb_batch_begin(&ctl->registry);
	result = act_on_all(ctl, c, be, run);
	lb_batch_end(&ctl->registry);
	return result;
}
