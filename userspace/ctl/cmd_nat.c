/* SPDX-License-Identifier: BSD-2-Clause */
/* `show nat`: connections that are translated in the kernel, read from their table. */
#include <netinet/in.h>
#include <string.h>

#include "ctl/cmd_rows.h"

struct nat_output {
	FILE *out;
	bool is_json;
	unsigned n;
};

static int nat_conn(void *ctx, const struct dp_nat_info *i)
{
	struct nat_output *o = ctx;
	const struct addr *const addrs[] = { &i->client, &i->vip, &i->edge, &i->backend };
	static const char *const keys[] = { "client", "service_addr", "edge", "server_addr" };
	const char *proto = i->proto == IPPROTO_TCP ? "tcp" : "udp";
	char text[ADDR_TEXT_MAX];

	if (o->is_json)
		fprintf(o->out,
			"%s{\"proto\":\"%s\",\"state\":\"%s\",\"idle\":%u,\"service\":\"%s\","
			"\"server\":\"%s\"",
			o->n ? "," : "", proto, dp_nat_state_name(i->state), i->idle_s,
			i->service_name, i->server_name);
	else
		fprintf(o->out, "%-5s %-14s %5u %-16s %-16s", proto, dp_nat_state_name(i->state),
			i->idle_s, i->service_name, i->server_name);
	for (unsigned k = 0; k < ARRAY_SIZE(addrs); k++) {
		addr_format(addrs[k], text, sizeof(text));
		if (o->is_json)
			fprintf(o->out, ",\"%s\":\"%s\"", keys[k], text);
		else
			fprintf(o->out, " %-28s", text);
	}
	fputs(o->is_json ? "}" : "\n", o->out);
	o->n++;
	return 0;
}

static void nat_table(struct nat_output *o, const struct dp_nat_summary *s)
{
	unsigned used = s->rows - s->by_state[HG_NAT_FREE];

	if (o->is_json)
		fprintf(o->out, "{\"rows\":%u,\"used\":%u,\"ended\":%llu,\"states\":{", s->rows,
			used, (unsigned long long)s->ended);
	else
		fprintf(o->out, "# %u of %u rows used; %llu connections ended for silence\n", used,
			s->rows, (unsigned long long)s->ended);
	for (unsigned i = HG_NAT_SYN; i < HG_NAT_STATE_COUNT; i++)
		if (o->is_json)
			fprintf(o->out, "%s\"%s\":%u", i > HG_NAT_SYN ? "," : "",
				dp_nat_state_name(i), s->by_state[i]);
		else if (s->by_state[i])
			fprintf(o->out, "# %s: %u\n", dp_nat_state_name(i), s->by_state[i]);
	if (o->is_json)
		fputs("},\"connections\":[", o->out);
	else
		fprintf(o->out, "# %-3s %-14s %5s %-16s %-16s %-28s %-28s %-28s %-28s\n", "proto",
			"state", "idle", "service", "server", "client", "service address", "edge",
			"server address");
}

int cmd_show_nat(struct cmd *c)
{
	const char *form = cmd_arg(c, 0);
	struct nat_output o = { .out = c->out, .is_json = form && strcmp(form, "json") == 0 };
	struct dp_nat_summary s;

	if (!c->ctl->dp || !dp_has_nat(c->ctl->dp) || dp_nat_summary(c->ctl->dp, &s) != 0) {
		cmd_data(c, o.is_json ? "{}" : "No section uses 'forward nat'.");
		return 0;
	}
	nat_table(&o, &s);
	(void)dp_each_nat(c->ctl->dp, nat_conn, &o);
	fputs(o.is_json ? "]}\n" : "", c->out);
	return 0;
}
