/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `nat log`: who was behind an address and port of ours, and when. A line when a connection begins, one when it ends, to
 * the log targets of its section, each at most about a second late. Control thread.
 */
#include <errno.h>
#include <netinet/in.h>

#include "ctl/ctl_priv.h"

static bool is_logged(const struct conf *conf)
{
	struct list *l;

	list_for_each(l, &conf->proxies)
		if (list_entry(l, struct conf_proxy, link)->nat.is_logged)
			return true;
	return false;
}

static void nat_log_line(void *ctx, const struct dp_nat_info *i, bool has_ended)
{
	struct ctl *ctl = ctx;
	const struct conf_proxy *px = conf_find_proxy(
		ctl->current->conf, str_from_cstr(i->service_name), CONF_CAP_BACKEND);
	char client[ADDR_TEXT_MAX], vip[ADDR_TEXT_MAX], edge[ADDR_TEXT_MAX], backend[ADDR_TEXT_MAX],
		line[512];
	int n;

	if (!px || !px->nat.is_logged)
		return;
	addr_format(&i->client, client, sizeof(client));
	addr_format(&i->vip, vip, sizeof(vip));
	addr_format(&i->edge, edge, sizeof(edge));
	addr_format(&i->backend, backend, sizeof(backend));
	n = snprintf(line, sizeof(line),
		     "nat %s proto=%s client=%s service=%s from=%s to=%s %s/%s%s%s",
		     has_ended ? "end" : "begin", i->proto == IPPROTO_TCP ? "tcp" : "udp", client,
		     vip, edge, backend, px->name, *i->server_name ? i->server_name : "-",
		     has_ended ? " last=" : "", has_ended ? dp_nat_state_name(i->state) : "");
	if (n > 0 && (size_t)n < sizeof(line))
		log_emit(px->logs.targets, px->logs.n, LOG_LVL_INFO, str_from_cstr(px->log_tag),
			 STR_NULL, str_make(line, (size_t)n));
}

void nat_log_tick(struct ctl *ctl)
{
	bool is_wanted = ctl->current && is_logged(ctl->current->conf);

	if (dp_watch_nat(ctl->dp, is_wanted ? nat_log_line : NULL, ctl) == -ENOMEM &&
	    !ctl->is_nat_log_told) {
		log_msg(LOG_LVL_WARNING, "no memory for 'nat log': NAT connections are not logged");
		ctl->is_nat_log_told = true;
	}
}
