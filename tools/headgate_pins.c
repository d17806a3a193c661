/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the pinned maps of a role say by themselves: for `headgate status` when no daemon answers, and for the
 * agent, which never has one.
 */
#include <stdio.h>
#include <string.h>

#include "dp/dp.h"
#include "tools_priv.h"

struct view {
	bool is_json;
	unsigned n;
};

static void json_counts(const char *name, const uint64_t *counts, unsigned first, unsigned n,
			const char *(*name_of)(unsigned))
{
	printf(",\"%s\":{", name);
	for (unsigned i = first; i < n; i++)
		printf("%s\"%s\":%llu", i > first ? "," : "", name_of(i),
		       (unsigned long long)counts[i]);
	printf("}");
}

static int show_address(void *ctx, const struct addr *a, uint32_t flags)
{
	struct view *v = ctx;
	char text[ADDR_TEXT_MAX];
	const char *first = flags & HG_DECAP_IPIP ? "ipip" : "";
	const char *gue = flags & HG_DECAP_GUE ? "gue" : "";
	bool second = flags & HG_DECAP_SECOND_CHANCE;

	addr_format_ip(a, text, sizeof(text));
	if (v->is_json)
		printf("%s{\"address\":\"%s\",\"ipip\":%s,\"gue\":%s,\"second_chance\":%s}",
		       v->n++ ? "," : "", text, *first ? "true" : "false", *gue ? "true" : "false",
		       second ? "true" : "false");
	else
		printf("takes tunnels to %s: %s%s%s%s\n", text, first, *first && *gue ? ", " : "",
		       gue, second ? ", second chance" : "");
	return 0;
}

static void show_json(struct dp *dp, enum hg_role role, const char *before,
		      const struct hg_verdict_counters *c)
{
	struct view v = { .is_json = true };

	printf("%s\"%s\":{", before, role == HG_ROLE_EDGE ? "verdicts" : "agent");
	for (unsigned i = 0; i < HG_VERDICT_COUNT; i++)
		printf("%s\"%s\":%llu", i ? "," : "", dp_verdict_name(i),
		       (unsigned long long)c->verdict[i]);
	/* The agent's are inside its object, the balancer's beside `verdicts`, as in `show l4`. */
	if (role == HG_ROLE_EDGE)
		printf("}");
	json_counts("drops", (const uint64_t *)c->drop, 1, HG_DROP_COUNT, dp_drop_name);
	json_counts("events", (const uint64_t *)c->event, 0, HG_EVENT_COUNT, dp_event_name);
	if (role == HG_ROLE_EDGE)
		return;
	printf(",\"syn_cookie_keys\":%u,\"addresses\":[", dp_agent_syn_keys(dp));
	(void)dp_each_decap_addr(dp, show_address, &v);
	printf("]}");
}

static void show_text(struct dp *dp, enum hg_role role, const char *before,
		      const struct hg_verdict_counters *c)
{
	struct view v = { .is_json = false };

	printf("%s# verdicts of the %s\n", before,
	       role == HG_ROLE_EDGE ? "balancer (no daemon answers)" : "agent");
	for (unsigned i = 0; i < HG_VERDICT_COUNT; i++)
		if (c->verdict[i])
			printf("%-14s %llu\n", dp_verdict_name(i),
			       (unsigned long long)c->verdict[i]);
	for (unsigned i = 1; i < HG_DROP_COUNT; i++)
		if (c->drop[i])
			printf("  %-12s %llu (%s)\n", dp_drop_name(i),
			       (unsigned long long)c->drop[i], dp_drop_help(i));
	for (unsigned i = 0; i < HG_EVENT_COUNT; i++)
		if (c->event[i])
			printf("%-14s %llu (%s)\n", dp_event_name(i),
			       (unsigned long long)c->event[i], dp_event_help(i));
	if (role != HG_ROLE_BACKEND)
		return;
	(void)dp_each_decap_addr(dp, show_address, &v);
	if (dp_agent_syn_keys(dp))
		printf("takes SYN cookies of the balancers (%u keys)\n", dp_agent_syn_keys(dp));
}

int tool_show_pins(struct tool *t, enum hg_role role, bool is_json, const char *before,
		   struct err *err)
{
	struct dp_opts o = { .bpffs = t->bpffs, .role = role, .adopt_only = true };
	struct hg_verdict_counters c;
	struct dp *dp;
	int rc = dp_open(&o, &dp, err);

	if (rc != 0)
		return rc;
	dp_verdicts(dp, &c);
	if (is_json)
		show_json(dp, role, before, &c);
	else
		show_text(dp, role, before, &c);
	dp_close(dp);
	return 0;
}

/* `headgate show agent`. */
int tool_agent(struct tool *t, int argc, char **argv)
{
	bool is_json = argc > 2 && strcmp(argv[2], "--json") == 0;
	struct err err;

	if (argc > 3 || (argc == 3 && !is_json)) {
		fprintf(stderr, "usage: headgate show agent [--json]\n");
		return 1;
	}
	if (tool_show_pins(t, HG_ROLE_BACKEND, is_json, is_json ? "{" : "", &err) != 0) {
		fprintf(stderr, "headgate: show agent: %s\n", err.text);
		return 1;
	}
	if (is_json)
		printf("}\n");
	return 0;
}
