/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The second half of loading: what one section says about another. References, numbers, logs, rules that
 * cannot run in a section's mode. Servers, binds and `mode l4` have files of their own. After
 * this nothing writes the model. Control thread.
 */
#include <errno.h>

#include "conf/conf_priv.h"

static const char *mode_name(const struct conf_proxy *px)
{
	return px->mode == CONF_MODE_HTTP ? "http" : px->mode == CONF_MODE_TCP ? "tcp" : "l4";
}

/* --- numbers ----------------------------------------------------------------------------------- */

static int take_id(struct parser *ps, struct conf_names *taken, const unsigned *id,
		   bool *ret_is_new)
{
	int r = names_add(taken, str_make((const char *)id, sizeof(*id)), (void *)id);

	*ret_is_new = r == 0;
	return r == -ENOMEM ? r : 0;
}

int assign_id(struct parser *ps, struct conf_names *taken, unsigned *id, unsigned *next)
{
	bool is_new = false;
	int r = 0;

	while (r == 0 && !is_new) {
		*id = (*next)++;
		r = take_id(ps, taken, id, &is_new);
	}
	return r;
}

int claim_id(struct parser *ps, struct conf_names *taken, const unsigned *id,
	     const struct conf_pos *pos, const char *what)
{
	bool is_new;
	int r;

	if (!*id)
		return 0;
	r = take_id(ps, taken, id, &is_new);
	if (r || is_new)
		return r;
	r = conf_fail_pos(ps, pos, "%s id %u is taken already", what, *id);
	return r == -ENOMEM ? r : 0;
}

static int number_proxies(struct parser *ps)
{
	struct conf_names *taken = names_new(&ps->arena);
	/* The runtime API's own frontend is number 1. */
	unsigned next = list_is_empty(&ps->conf->global.stats_sockets) ? 1 : 2;
	struct list *p;
	int r = taken ? 0 : -ENOMEM;

	list_for_each(p, &ps->builds) {
		struct proxy_build *b = list_entry(p, struct proxy_build, link);

		if (r == 0)
			r = claim_id(ps, taken, &b->px.id, &b->px.pos, "proxy");
	}
	list_for_each(p, &ps->builds) {
		struct proxy_build *b = list_entry(p, struct proxy_build, link);

		if (r == 0 && !b->px.id)
			r = assign_id(ps, taken, &b->px.id, &next);
	}
	return r;
}

/* --- references -------------------------------------------------------------------------------- */

static int missing_backend(struct parser *ps, struct proxy_build *b, const struct conf_pos *pos,
			   const char *keyword, const char *name)
{
	struct conf *c = ps->conf;
	struct str want = str_from_cstr(name);
	struct nearest near;
	char hint[96];

	if (names_find(c->frontends, want))
		return conf_fail_pos(
			ps, pos,
			"%s '%.64s' of %s '%s' names a frontend: it needs a 'backend' or "
			"'listen' section",
			keyword, name, b->kind, b->px.name);
	nearest_init(&near, want);
	nearest_offer_names(&near, c->backends);
	return conf_fail_pos(
		ps, pos,
		"%s '%.64s' of %s '%s' does not exist: add a section 'backend %.64s' with at least "
		"one 'server' line%s",
		keyword, name, b->kind, b->px.name, name, nearest_hint(&near, hint));
}

static int check_modes(struct parser *ps, const struct proxy_build *b, const struct conf_pos *pos,
		       const struct conf_proxy *be)
{
	if (be->mode == b->px.mode || be == &b->px)
		return 0;
	if (b->px.mode == CONF_MODE_TCP && be->mode == CONF_MODE_HTTP)
		return conf_fail_pos(
			ps, pos,
			"%s '%s' has mode tcp and backend '%s' has mode http: a change of "
			"mode within a connection is not supported by this version",
			b->kind, b->px.name, be->name);
	return conf_fail_pos(
		ps, pos, "%s '%s' has mode %s, but backend '%s' has mode %s: both must be the same",
		b->kind, b->px.name, mode_name(&b->px), be->name, mode_name(be));
}

static int resolve_backends(struct parser *ps, struct proxy_build *b)
{
	struct list *p;
	int r = 0;

	if (b->px.default_backend_name && b->default_backend) {
		struct conf_pos pos = b->default_backend->pos;

		pos.column = line_column(b->default_backend, 1, 0);
		b->px.default_backend = names_find(ps->conf->backends,
						   str_from_cstr(b->px.default_backend_name));
		r = b->px.default_backend ? check_modes(ps, b, &pos, b->px.default_backend)
					  : missing_backend(ps, b, &pos, "default_backend",
							    b->px.default_backend_name);
	}
	list_for_each(p, &b->px.use_backends) {
		struct conf_use_backend *u = list_entry(p, struct conf_use_backend, link);

		if (r == -ENOMEM || u->name)
			continue;
		u->backend = names_find(ps->conf->backends, str_from_cstr(u->text));
		r = u->backend ? check_modes(ps, b, &u->pos, u->backend)
			       : missing_backend(ps, b, &u->pos, "use_backend", u->text);
	}
	return r == -ENOMEM ? r : 0;
}

static int resolve_use_servers(struct parser *ps, struct proxy_build *b)
{
	struct list *p;
	int r = 0;

	list_for_each(p, &b->px.use_servers) {
		struct conf_use_server *u = list_entry(p, struct conf_use_server, link);
		struct nearest near;
		char hint[96];

		if (u->name || r == -ENOMEM)
			continue;
		u->server = names_find(b->px.server_names, str_from_cstr(u->text));
		if (u->server)
			continue;
		nearest_init(&near, str_from_cstr(u->text));
		nearest_offer_names(&near, b->px.server_names);
		r = conf_fail_pos(ps, &u->pos,
				  "use-server names '%.64s', but %s '%s' has no such server%s",
				  u->text, b->kind, b->px.name, nearest_hint(&near, hint));
	}
	return r == -ENOMEM ? r : 0;
}

static int check_userlists(struct parser *ps)
{
	struct list *p;

	list_for_each(p, &ps->conf->userlists) {
		const struct conf_userlist *ul = list_entry(p, struct conf_userlist, link);

		if (!ul->is_defined &&
		    conf_fail_pos(ps, &ul->pos,
				  "there is no userlist '" STR_FMT
				  "': add a section 'userlist " STR_FMT "'",
				  STR_ARG(str_sub(ul->list.name, 0, 64)),
				  STR_ARG(str_sub(ul->list.name, 0, 64))) == -ENOMEM)
			return -ENOMEM;
	}
	return 0;
}

/* --- one section ------------------------------------------------------------------------------- */

static int join_logs(struct parser *ps, struct proxy_build *b)
{
	const struct conf_logs *g = &ps->conf->global.logs;
	struct conf_logs *own = &b->px.logs;
	struct log_target *all;

	if (b->has_log_global && g->n) {
		if (!own->n) {
			*own = *g;
		} else {
			all = arena_alloc(&ps->conf->arena, (own->n + g->n) * sizeof(*all));
			if (!all)
				return -ENOMEM;
			memcpy(all, g->targets, g->n * sizeof(*all));
			memcpy(all + g->n, own->targets, own->n * sizeof(*all));
			own->targets = all;
			own->n += g->n;
		}
	}
	b->px.has_log = own->n > 0;
	return 0;
}

/* What needs HTTP is left out, with a warning, as HAProxy does. */
static int drop_http_parts(struct parser *ps, struct proxy_build *b)
{
	static const struct {
		uint8_t set;
		const char *name;
	} sets[] = { { RULES_HTTP_REQUEST, "http-request" },
		     { RULES_HTTP_RESPONSE, "http-response" },
		     { RULES_HTTP_AFTER_RESPONSE, "http-after-response" } };
	int r = 0;

	if (b->px.mode == CONF_MODE_HTTP)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(sets) && r == 0; i++) {
		struct list *rules = &b->px.rules[sets[i].set];
		const struct conf_rule *rule = list_entry(rules->next, struct conf_rule, link);

		if (list_is_empty(rules))
			continue;
		r = report_at(ps, CONF_WARNING, &rule->pos,
			      "the HTTP rules of this section are left out: it has no 'mode http'");
		list_init(rules);
	}
	if (r == 0 && b->px.cookie.name && b->px.mode == CONF_MODE_TCP)
		r = conf_warn(ps, b->line, 0,
			      "the cookie of %s '%s' is left out: it has no 'mode http'", b->kind,
			      b->px.name);
	b->px.cookie.name = NULL;
	b->px.monitor_uri = NULL;
	b->px.stats.is_enabled = false;
	return r;
}

/* A peer that vanishes without a word holds its connection for ever. */
static int check_timeouts(struct parser *ps, struct proxy_build *b)
{
	const struct conf_timeouts *t = &b->px.timeout;
	bool is_fe = b->px.caps & CONF_CAP_FRONTEND;
	bool is_be = (b->px.caps & CONF_CAP_BACKEND) && b->px.n_servers;
	bool c = is_fe && !t->client, n = is_be && !t->connect, s = is_be && !t->server;

	if (b->px.mode == CONF_MODE_L4 || b->px.is_disabled || !(c || n || s))
		return 0;
	return conf_warn(ps, b->line, 0,
			 "missing timeouts in %s '%s': add%s%s%s or connections of peers that "
			 "vanish stay for "
			 "ever",
			 b->kind, b->px.name, c ? " 'timeout client'," : "",
			 n ? " 'timeout connect'," : "", s ? " 'timeout server'," : "");
}

/* The minimum may only be exceeded up to the maximum; the backend is full at a tenth of its frontends. */
static void set_fullconn(struct parser *ps)
{
	struct list *p;

	list_for_each(p, &ps->builds) {
		struct proxy_build *b = list_entry(p, struct proxy_build, link);
		struct conf_proxy *be = b->px.default_backend ? b->px.default_backend : &b->px;

		if ((b->px.caps & CONF_CAP_FRONTEND) && (be->caps & CONF_CAP_BACKEND) &&
		    !be->fullconn && b->px.maxconn >= 10)
			be->fullconn = b->px.maxconn / 10;
	}
}

static int limit_cookie(struct parser *ps, struct proxy_build *b)
{
	uint32_t max = ps->conf->global.cookie_len;

	if (!max || b->px.capture_cookie_len <= max)
		return 0;
	b->px.capture_cookie_len = max;
	return conf_warn(ps, b->line, 0,
			 "'capture cookie' of %s '%s' takes %u characters: 'tune.http.cookielen'",
			 b->kind, b->px.name, max);
}

static int finalize_proxy(struct parser *ps, struct proxy_build *b)
{
	static int (*const steps[])(struct parser *ps, struct proxy_build *b) = {
		join_logs,	 resolve_backends, resolve_use_servers, finalize_persist,
		finalize_moved,	 finalize_servers, finalize_binds,	finalize_l4,
		drop_http_parts, finalize_formats, check_timeouts,	limit_cookie,
	};
	int r = 0;

	list_splice_back(&b->px.rules[RULES_HTTP_REQUEST], &b->redirects);
	for (size_t i = 0; i < ARRAY_SIZE(steps) && r != -ENOMEM; i++)
		r = steps[i](ps, b);
	return r == -ENOMEM ? r : 0;
}

int conf_finalize(struct parser *ps)
{
	struct list *p;
	int r = number_proxies(ps);

	if (r == 0)
		r = finalize_crt_stores(ps);
	list_for_each(p, &ps->builds) {
		struct proxy_build *b = list_entry(p, struct proxy_build, link);

		if (r == 0)
			r = finalize_proxy(ps, b);
	}
	if (r == 0)
		r = finalize_tracks(ps);
	if (r == 0)
		r = finalize_stick(ps);
	if (r == 0)
		r = finalize_patterns(ps);
	if (r == 0)
		r = finalize_guard(ps);
	if (r == 0)
		r = finalize_errors(ps);
	if (r == 0)
		r = finalize_resolvers(ps);
	if (r == 0)
		r = finalize_rings(ps);
	if (r == 0)
		r = finalize_duplicates(ps);
	if (r == 0)
		r = check_userlists(ps);
	set_fullconn(ps);
	return r;
}

struct conf_proxy *conf_find_proxy(const struct conf *c, struct str name, unsigned caps)
{
	struct conf_proxy *px = NULL;

	if (caps & CONF_CAP_FRONTEND)
		px = names_find(c->frontends, name);
	if (!px && (caps & CONF_CAP_BACKEND))
		px = names_find(c->backends, name);
	return px;
}

struct conf_server *conf_find_server(const struct conf_proxy *px, struct str name)
{
	return names_find(px->server_names, name);
}
