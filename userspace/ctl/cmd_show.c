/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands that only read: process, configuration, servers. Statistics are in cmd_stat.c. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/cmd.h"
#include "ctl/cmd_rows.h"
#include "ctl/dns.h"
#include "ctl/metrics.h"
#include "ctl/version.h"

extern char **environ;

int cmd_show_version(struct cmd *c)
{
	cmd_data(c, "%s", CTL_HAPROXY_VERSION);
	return 0;
}

int cmd_show_env(struct cmd *c)
{
	const char *want = cmd_arg(c, 0);
	size_t len = want ? strlen(want) : 0;
	bool found = false;

	for (char **e = environ; *e; e++) {
		if (want && (strncmp(*e, want, len) != 0 || (*e)[len] != '='))
			continue;
		fprintf(c->out, "%s\n", *e);
		found = true;
	}
	if (want && !found)
		cmd_say(c, "Variable not found");
	return 0;
}

int cmd_show_startup_logs(struct cmd *c)
{
	fputs(c->ctl->startup_log && *c->ctl->startup_log ? c->ctl->startup_log : "", c->out);
	return 0;
}

int cmd_show_cli_sockets(struct cmd *c)
{
	fputs("# socket lvl processes\n", c->out);
	admin_list_sockets(c->ctl->admin, c->out);
	return 0;
}

int cmd_show_backend(struct cmd *c)
{
	struct list *l;

	fputs("# name\n", c->out);
	list_for_each(l, &c->ctl->current->conf->proxies) {
		const struct conf_proxy *px = list_entry(l, struct conf_proxy, link);

		if (px->caps & CONF_CAP_BACKEND)
			fprintf(c->out, "%s\n", px->name);
	}
	return 0;
}

int cmd_show_snapshots(struct cmd *c)
{
	struct snapshot *alive[SNAPSHOT_GENERATIONS];
	unsigned n = snapshot_list(&c->ctl->hub, alive);

	fputs("# generation current workers_left\n", c->out);
	for (unsigned i = 0; i < n; i++)
		fprintf(c->out, "%" PRIu64 " %s %u\n", alive[i]->generation,
			alive[i] == &c->ctl->current->snap ? "yes" : "no", alive[i]->waiting);
	return 0;
}

int cmd_show_activity(struct cmd *c)
{
	const struct ctl *ctl = c->ctl;

	fputs("# worker iterations events timers deferred busy_ms idle_ms conns requests "
	      "accept_errors"
	      " accept_paused\n",
	      c->out);
	for (unsigned i = 0; i < ctl->n_workers; i++) {
		const struct loop_stats *ls = worker_loop_stats(ctl->workers[i]);
		const struct hg_worker_counters *w = &ctl->worker_counters[i];

		fprintf(c->out,
			"%u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
			" %lld %llu %llu %llu\n",
			i, ls->iterations, ls->events, ls->timers, ls->deferred,
			ls->busy_ns / 1000000, ls->idle_ns / 1000000, (long long)w->cur_conns,
			(unsigned long long)w->requests, (unsigned long long)w->accept_errors,
			(unsigned long long)w->accept_paused);
	}
	fprintf(c->out, "refused_patterns: %" PRIu64 "\n", ctl->n_bad_patterns);
	fprintf(c->out, "bans: %" PRIu64 "\nbans_lost: %" PRIu64 "\n", ctl->n_bans,
		ctl->n_bans_failed + atomic_load(&ctl->shared.bans_lost));
	return 0;
}

/* --- show servers state ---------------------------------------------------------------------------- */

/* Numbers as in srv_check_result. */
static unsigned check_result(const struct server *s, const struct conf_server *cs)
{
	if (!cs->has_check || s->check.status <= CHECK_STATUS_START)
		return 0;
	if (s->check.status == CHECK_STATUS_L7OKC)
		return 4;
	return s->check.status == CHECK_STATUS_L4OK || s->check.status == CHECK_STATUS_L6OK ||
			       s->check.status == CHECK_STATUS_L7OK
		       ? 3
		       : 2;
}

static void place_ip(const struct check_place *p, char out[ADDR_TEXT_MAX])
{
	snprintf(out, ADDR_TEXT_MAX, "-");
	if (p->addr.sa.sa_family != AF_UNSPEC)
		addr_format_ip(&p->addr, out, ADDR_TEXT_MAX);
}

static void show_server_state(struct cmd *c, const struct conf_proxy *px,
			      const struct conf_server *cs, const struct server *s)
{
	struct check_place check = health_get_place(c->ctl->health, s, false),
			   agent = health_get_place(c->ctl->health, s, true);
	char ip[ADDR_TEXT_MAX] = "-", check_ip[ADDR_TEXT_MAX], agent_ip[ADDR_TEXT_MAX];
	const char *fqdn = dns_fqdn_of(s), *srv = dns_srv_of(s);
	char host[256];
	uint64_t changed = s->check.last_change_s;
	/* In maintenance a server does not serve, whatever state it will come back with. */
	unsigned op = atomic_load(&s->admin) & SERVER_MAINT_MASK ? SERVER_STOPPED
								 : atomic_load(&s->op);
	unsigned check_state = cs->has_check ? 2u | (s->check.is_enabled ? 4u : 0) |
						       (s->check.is_running ? 1u : 0)
					     : 0;
	unsigned agent_state = cs->has_agent ? 0x12u | (s->agent.is_enabled ? 4u : 0) |
						       (s->agent.is_running ? 1u : 0)
					     : 0;

	place_ip(&check, check_ip);
	place_ip(&agent, agent_ip);
	snprintf(host, sizeof(host), STR_FMT, STR_ARG(str_sub(cs->ep.host, 0, 255)));
	if (!fqdn && !srv && cs->ep.kind == ENDPOINT_NAME)
		fqdn = host;
	if (s->addr.sa.sa_family)
		addr_format_ip(&s->addr, ip, sizeof(ip));
	fprintf(c->out,
		"%u %s %u %s %s %u %u %u %u %" PRIu64 " %u %u %u %u %u 0 0 %s %u %s %d %u %s %s "
		"%u\n",
		px->id, px->name, s->id, s->name, ip, op, atomic_load(&s->admin),
		atomic_load(&s->uweight), atomic_load(&s->iweight),
		changed ? (uint64_t)time(NULL) - changed : 0, s->check.status, check_result(s, cs),
		s->check.health, check_state, agent_state, fqdn ? fqdn : "-", addr_port(&s->addr),
		srv ? srv : "-", cs->is_ssl ? 1 : 0, check.port, check_ip, agent_ip, agent.port);
}

/* Both forms walk the same servers; NULL `name`: all backends. */
static int each_server(struct cmd *c, const char *name,
		       void (*fn)(struct cmd *c, const struct conf_proxy *px,
				  const struct conf_server *cs, const struct server *s))
{
	const struct lb_backend *be;
	bool found = !name;
	struct list *p;

	list_for_each(p, &c->ctl->current->conf->proxies) {
		const struct conf_proxy *px = list_entry(p, struct conf_proxy, link);

		if (!(px->caps & CONF_CAP_BACKEND) || (name && strcmp(name, px->name) != 0))
			continue;
		found = true;
		be = c->ctl->current->backends[px->index];
		for (unsigned i = 0; i < be->n_servers; i++)
			fn(c, px, be->servers[i]->conf, be->servers[i]);
	}
	return found ? 0 : -1;
}

int cmd_show_resolvers(struct cmd *c)
{
	if (!dns_show(c->ctl->dns, cmd_arg(c, 0), c->out))
		cmd_say(c, "Can't find resolvers section");
	return 0;
}

int cmd_show_servers_state(struct cmd *c)
{
	const char *name = cmd_arg(c, 0);

	if (name &&
	    !conf_find_proxy(c->ctl->current->conf, str_from_cstr(name), CONF_CAP_BACKEND)) {
		cmd_say(c, "Can't find backend.");
		return 0;
	}
	fputs("1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state "
	      "srv_uweight srv_iweight"
	      " srv_time_since_last_change srv_check_status srv_check_result srv_check_health "
	      "srv_check_state"
	      " srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord "
	      "srv_use_ssl"
	      " srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n",
	      c->out);
	(void)each_server(c, name, show_server_state);
	return 0;
}

static void show_server_conn(struct cmd *c, const struct conf_proxy *px,
			     const struct conf_server *cs, const struct server *s)
{
	char ip[ADDR_TEXT_MAX] = "-";

	if (s->addr.sa.sa_family)
		addr_format_ip(&s->addr, ip, sizeof(ip));
	fprintf(c->out, "%s/%s %u/%u %s %u - %u %u\n", px->name, s->name, px->id, s->id, ip,
		addr_port(&s->addr), atomic_load(&s->cur), atomic_load(&s->max_cur));
}

int cmd_show_servers_conn(struct cmd *c)
{
	const char *name = cmd_arg(c, 0);

	if (name &&
	    !conf_find_proxy(c->ctl->current->conf, str_from_cstr(name), CONF_CAP_BACKEND)) {
		cmd_say(c, "Can't find backend.");
		return 0;
	}
	fputs("# bkname/svname bkid/svid addr port - used_cur used_max\n", c->out);
	(void)each_server(c, name, show_server_conn);
	return 0;
}
