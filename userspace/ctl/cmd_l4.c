/* SPDX-License-Identifier: BSD-2-Clause */
/* `show l4`, `show services`, `show backends`: the kernel tier, read from its maps. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <string.h>

#include "ctl/cmd_rows.h"
#include "ctl/l4_text.h"

struct l4_output {
	FILE *out;
	bool is_json;
	unsigned n;
};

const char *l4_mode_text(uint8_t mode)
{
	static const char *const names[] = {
#define X(name, text, help) text,
		HG_SERVICE_MODES(X)
#undef X
	};

	return mode < ARRAY_SIZE(names) ? names[mode] : "?";
}

void l4_key_text(const struct hg_service_key *k, char *out, size_t size)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
	const char *proto = k->proto == IPPROTO_TCP   ? "tcp"
			    : k->proto == IPPROTO_UDP ? "udp"
						      : "any";
	struct addr a = { 0 };
	char text[ADDR_TEXT_MAX];

	if (memcmp(k->addr, mapped, sizeof(mapped)) == 0) {
		a.in.sin_family = AF_INET;
		memcpy(&a.in.sin_addr, &k->addr[3], 4);
	} else {
		a.in6.sin6_family = AF_INET6;
		memcpy(&a.in6.sin6_addr, k->addr, 16);
	}
	addr_set_port(&a, ntohs(k->port));
	addr_format(&a, text, sizeof(text));
	snprintf(out, size, "%s@%s", proto, text);
}

/* Connections now, where they are counted: NAT and, by backend, `track on`. */
static void l4_live(struct l4_output *o, uint32_t conns, uint32_t maxconn)
{
	fprintf(o->out, o->is_json ? ",\"conns\":%u,\"maxconn\":%u" : " %7u %7u", conns, maxconn);
}

/* Of a counter's column. */
#define WIDTH(name) ((int)(sizeof(#name) > 11 ? sizeof(#name) - 1 : 10))

static int l4_service(void *ctx, const struct dp_service_info *i)
{
	struct l4_output *o = ctx;
	char key[ADDR_TEXT_MAX + 8];

	l4_key_text(&i->key, key, sizeof(key));
	if (o->is_json)
		fprintf(o->out,
			"%s{\"service\":\"%s\",\"name\":\"%s\",\"mode\":\"%s\",\"slots\":%u,"
			"\"tracked\":%u,\"flows\":%u",
			o->n ? "," : "", key, i->name, l4_mode_text(i->mode), i->slots, i->tracked,
			i->flows);
	else
		fprintf(o->out, "%-34s %-16s %-6s %7u %7u %8u", key, i->name, l4_mode_text(i->mode),
			i->slots, i->tracked, i->flows);
	l4_live(o, i->conns, i->maxconn);
	fprintf(o->out, o->is_json ? ",\"syn_cookies\":%s" : " %7s",
		i->are_cookies_on ? o->is_json ? "true" : "on"
		: o->is_json	  ? "false"
				  : "-");
#define X(name, help)                                                   \
	fprintf(o->out, o->is_json ? ",\"" #name "\":%*llu" : " %*llu", \
		o->is_json ? 0 : WIDTH(name), (unsigned long long)i->sum.name);
	HG_SERVICE_COUNTERS(X)
#undef X
	fputs(o->is_json ? "}" : "\n", o->out);
	o->n++;
	return 0;
}

static int l4_backend(void *ctx, const struct dp_backend_info *i)
{
	struct l4_output *o = ctx;
	char addr[ADDR_TEXT_MAX];
	const char *state = i->neigh.state & HG_NEIGH_OK ? "resolved" : "unresolved";
	const char *alive = i->is_draining ? "draining" : i->flags & HG_BE_ALIVE ? "up" : "down";

	addr_format_ip(&i->addr, addr, sizeof(addr));
	if (o->is_json)
		fprintf(o->out,
			"%s{\"id\":%u,\"service\":\"%s\",\"server\":\"%s\",\"addr\":\"%s\","
			"\"state\":\"%s\",\"neighbour\":"
			"\"%s\",\"interface\":\"%s\",\"flows\":%u",
			o->n ? "," : "", i->id, i->service_name, i->server_name, addr, alive, state,
			i->ifname, i->flows);
	else
		fprintf(o->out, "%5u %-16s %-16s %-26s %-8s %-10s %-8s %8u", i->id,
			*i->service_name ? i->service_name : "-",
			*i->server_name ? i->server_name : "-", addr, alive, state, i->ifname,
			i->flows);
	l4_live(o, i->conns, i->maxconn);
	fprintf(o->out, o->is_json ? ",\"l7_conns\":%u" : " %8u", i->l7_conns);
#define X(name, help)                                                   \
	fprintf(o->out, o->is_json ? ",\"" #name "\":%llu" : " %10llu", \
		(unsigned long long)i->sum.name);
	HG_BACKEND_COUNTERS(X)
#undef X
	fputs(o->is_json ? "}" : "\n", o->out);
	o->n++;
	return 0;
}

static void l4_verdicts(struct l4_output *o, struct dp *dp)
{
	struct hg_verdict_counters v;
	unsigned n = 0;

	dp_verdicts(dp, &v);
	for (unsigned i = 0; i < HG_VERDICT_COUNT; i++)
		fprintf(o->out, o->is_json ? "%s\"%s\":%llu" : "%s%-14s %llu\n",
			o->is_json && n++ ? "," : "", dp_verdict_name(i),
			(unsigned long long)v.verdict[i]);
	fputs(o->is_json ? "},\"drops\":{" : "", o->out);
	n = 0;
	for (unsigned i = 1; i < HG_DROP_COUNT; i++) {
		if (o->is_json)
			fprintf(o->out, "%s\"%s\":%llu", n++ ? "," : "", dp_drop_name(i),
				(unsigned long long)v.drop[i]);
		else if (v.drop[i])
			fprintf(o->out, "  %-12s %llu (%s)\n", dp_drop_name(i),
				(unsigned long long)v.drop[i], dp_drop_help(i));
	}
}

static void l4_services(struct l4_output *o, struct dp *dp)
{
	if (!o->is_json) {
		fprintf(o->out, "# %-32s %-16s %-6s %7s %7s %8s %7s %7s", "service", "name", "mode",
			"slots", "tracked", "flows", "conns", "maxconn");
		fprintf(o->out, " %7s", "cookies");
#define X(name, help) fprintf(o->out, " %*s", WIDTH(name), #name);
		HG_SERVICE_COUNTERS(X)
#undef X
		putc('\n', o->out);
	}
	o->n = 0;
	(void)dp_each_service(dp, l4_service, o);
}

static void l4_backends(struct l4_output *o, struct dp *dp)
{
	if (!o->is_json) {
		fprintf(o->out, "# %3s %-16s %-16s %-26s %-8s %-10s %-8s %8s %7s %7s %8s", "id",
			"service", "server", "address", "state", "neighbour", "out", "flows",
			"conns", "maxconn", "l7_conns");
#define X(name, help) fprintf(o->out, " %10s", #name);
		HG_BACKEND_COUNTERS(X)
#undef X
		putc('\n', o->out);
	}
	o->n = 0;
	(void)dp_each_backend(dp, l4_backend, o);
}

/* False: there is no kernel tier, and that was said. */
static bool l4_open(struct cmd *c, struct l4_output *ret)
{
	const char *form = cmd_arg(c, 0);

	*ret = (struct l4_output){ .out = c->out, .is_json = form && strcmp(form, "json") == 0 };
	if (!c->ctl->dp)
		cmd_data(c, ret->is_json ? "{}" : "The kernel tier is not loaded.");
	return c->ctl->dp;
}

int cmd_show_l4(struct cmd *c)
{
	struct l4_output o;

	if (!l4_open(c, &o))
		return 0;
	fputs(o.is_json ? "{\"services\":[" : "", c->out);
	l4_services(&o, c->ctl->dp);
	fputs(o.is_json ? "],\"backends\":[" : "", c->out);
	l4_backends(&o, c->ctl->dp);
	fputs(o.is_json ? "],\"verdicts\":{" : "# verdicts\n", c->out);
	l4_verdicts(&o, c->ctl->dp);
	fputs(o.is_json ? "}}\n" : "", c->out);
	return 0;
}

static int l4_list(struct cmd *c, void (*print)(struct l4_output *o, struct dp *dp))
{
	struct l4_output o;

	if (!l4_open(c, &o))
		return 0;
	fputs(o.is_json ? "[" : "", c->out);
	print(&o, c->ctl->dp);
	fputs(o.is_json ? "]\n" : "", c->out);
	return 0;
}

int cmd_show_services(struct cmd *c)
{
	return l4_list(c, l4_services);
}

int cmd_show_backends(struct cmd *c)
{
	return l4_list(c, l4_backends);
}
