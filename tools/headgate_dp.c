/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands on the kernel tier itself: they work on pins, with or without a daemon. */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "dp/dp.h"
#include "tools_priv.h"

static int fail(const struct err *err)
{
	fprintf(stderr, "headgate: %s\n", err->text);
	return 1;
}

static void notice(void *ctx, const char *text)
{
	fprintf(stderr, "headgate: %s\n", text);
}

/* --- attach --------------------------------------------------------------------------------------- */

#define MAX_ADDRESSES 64

struct attach_args {
	const char *ifname;
	enum hg_role role;
	enum dp_attach_mode mode;
	bool is_exclusive;
	struct addr addrs[MAX_ADDRESSES];
	unsigned n_addrs;
};

static int attach_value(struct attach_args *a, const char *option, const char *value)
{
	static const struct {
		const char *word;
		enum dp_attach_mode mode;
	} modes[] = { { "auto", DP_MODE_AUTO },
		      { "native", DP_MODE_NATIVE },
		      { "generic", DP_MODE_GENERIC } };

	if (strcmp(option, "--role") == 0) {
		a->role = strcmp(value, "backend") == 0 ? HG_ROLE_BACKEND : HG_ROLE_EDGE;
		return strcmp(value, "backend") == 0 || strcmp(value, "edge") == 0 ? 0 : -EINVAL;
	}
	if (strcmp(option, "--mode") == 0) {
		for (unsigned i = 0; i < ARRAY_SIZE(modes); i++) {
			if (strcmp(value, modes[i].word) == 0) {
				a->mode = modes[i].mode;
				return 0;
			}
		}
		return -EINVAL;
	}
	if (strcmp(option, "--address") == 0 && a->n_addrs < MAX_ADDRESSES)
		return addr_parse_ip(str_from_cstr(value), &a->addrs[a->n_addrs++]);
	return -EINVAL;
}

static int attach_parse(struct attach_args *a, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--exclusive") == 0) {
			a->is_exclusive = true;
		} else if (argv[i][0] == '-') {
			if (i + 1 >= argc || attach_value(a, argv[i], argv[i + 1]) != 0) {
				fprintf(stderr, "headgate: attach: bad option or value: %s %s\n",
					argv[i], i + 1 < argc ? argv[i + 1] : "");
				return -EINVAL;
			}
			i++;
		} else if (!a->ifname) {
			a->ifname = argv[i];
		} else {
			fprintf(stderr, "headgate: attach: one interface at a time ('%s')\n",
				argv[i]);
			return -EINVAL;
		}
	}
	if (a->ifname)
		return 0;
	fprintf(stderr, "headgate: attach: which interface?\n");
	return -EINVAL;
}

/* Without --address the agent takes tunnels to every address of the interface. */
static void attach_own_addresses(struct attach_args *a)
{
	struct ifaddrs *all, *i;

	if (a->n_addrs || getifaddrs(&all) != 0)
		return;
	for (i = all; i && a->n_addrs < MAX_ADDRESSES; i = i->ifa_next) {
		if (!i->ifa_addr || strcmp(i->ifa_name, a->ifname) != 0)
			continue;
		if (i->ifa_addr->sa_family == AF_INET)
			memcpy(&a->addrs[a->n_addrs++].in, i->ifa_addr, sizeof(struct sockaddr_in));
		else if (i->ifa_addr->sa_family == AF_INET6)
			memcpy(&a->addrs[a->n_addrs++].in6, i->ifa_addr,
			       sizeof(struct sockaddr_in6));
	}
	freeifaddrs(all);
}

static int attach_open(struct tool *t, struct attach_args *a, bool *ret_is_new, struct err *err)
{
	struct dp_opts o = { .bpffs = t->bpffs, .role = a->role, .notice = notice };
	struct dp *dp;
	int rc = dp_open(&o, &dp, err);

	if (rc != 0)
		return rc;
	*ret_is_new = !dp_is_adopted(dp);
	if (a->role == HG_ROLE_BACKEND) {
		attach_own_addresses(a);
		rc = dp_decap_addrs(dp, a->addrs, a->n_addrs, err);
	}
	if (rc == 0)
		rc = dp_attach(dp, a->ifname, a->mode, a->is_exclusive, err);
	dp_close(dp);
	return rc;
}

int tool_attach(struct tool *t, int argc, char **argv)
{
	struct attach_args a = { .role = HG_ROLE_EDGE };
	struct dp_attachment found[64];
	bool is_new = false;
	struct err err, ignored;
	int n;

	if (attach_parse(&a, argc, argv) != 0)
		return 1;
	if (!if_nametoindex(a.ifname)) {
		fprintf(stderr, "headgate: there is no interface '%s' on this host\n", a.ifname);
		return 1;
	}
	if (attach_open(t, &a, &is_new, &err) != 0) {
		/* Nothing stays of a first attach that failed. */
		if (is_new && dp_detach(t->bpffs, NULL, &ignored) != 0)
			fprintf(stderr, "headgate: %s\n", ignored.text);
		return fail(&err);
	}
	n = dp_attachments(t->bpffs, found, ARRAY_SIZE(found));
	for (int i = 0; i < n; i++)
		if (!found[i].is_foreign && strcmp(found[i].ifname, a.ifname) == 0)
			printf("%s: %s attached (%s mode, %s)\n", a.ifname,
			       a.role == HG_ROLE_BACKEND ? "agent" : "balancer", found[i].mode,
			       found[i].via);
	return 0;
}

int tool_detach(struct tool *t, int argc, char **argv)
{
	const char *ifname = argc > 1 && strcmp(argv[1], "--all") != 0 ? argv[1] : NULL;
	struct dp_attachment found[64];
	struct err err;
	int n;

	if (argc > 2) {
		fprintf(stderr, "usage: headgate detach [IFACE | --all]\n");
		return 1;
	}
	if (dp_detach(t->bpffs, ifname, &err) != 0)
		return fail(&err);
	n = dp_attachments(t->bpffs, found, ARRAY_SIZE(found));
	for (int i = 0; i < n; i++)
		if (found[i].is_foreign && (!ifname || strcmp(ifname, found[i].ifname) == 0))
			printf("%s: an XDP program that is not Headgate's stays attached (id %u, "
			       "%s mode)\n",
			       found[i].ifname, found[i].prog_id, found[i].mode);
	return 0;
}

/* --- status ------------------------------------------------------------------------------------------ */

static const char *role_name(const struct dp_attachment *a)
{
	return a->is_foreign ? "foreign" : a->role == HG_ROLE_BACKEND ? "agent" : "balancer";
}

static void status_attachments(const struct dp_attachment *a, int n, bool is_json)
{
	if (is_json)
		printf("{\"interfaces\":[");
	else
		printf("%-16s %-10s %-8s %-10s %s\n", "interface", "program", "mode", "via", "id");
	for (int i = 0; i < n; i++) {
		if (is_json)
			printf("%s{\"interface\":\"%s\",\"program\":\"%s\",\"mode\":\"%s\",\"via\":"
			       "\"%s\",\"id\":%u}",
			       i ? "," : "", a[i].ifname, role_name(&a[i]), a[i].mode, a[i].via,
			       a[i].prog_id);
		else
			printf("%-16s %-10s %-8s %-10s %u\n", a[i].ifname, role_name(&a[i]),
			       a[i].mode, a[i].via, a[i].prog_id);
	}
	if (is_json)
		printf("]");
	else if (n == 0)
		printf("(no interface has an XDP program)\n");
}

/* Without a daemon the pins still count: verdicts of whichever role is there. */
static void status_from_pins(struct tool *t, bool is_json)
{
	static const enum hg_role roles[] = { HG_ROLE_EDGE, HG_ROLE_BACKEND };
	bool is_first = true;

	for (unsigned r = 0; r < ARRAY_SIZE(roles); r++) {
		struct dp_opts o = { .bpffs = t->bpffs, .role = roles[r], .adopt_only = true };
		struct hg_verdict_counters v;
		struct dp *dp;
		struct err err;

		if (dp_open(&o, &dp, &err) != 0)
			continue;
		dp_verdicts(dp, &v);
		if (is_json)
			printf(",\"%s\":{", roles[r] == HG_ROLE_EDGE ? "verdicts" : "agent");
		else
			printf("\n# verdicts of the %s\n",
			       roles[r] == HG_ROLE_EDGE ? "balancer (no daemon answers)" : "agent");
		is_first = true;
		for (unsigned i = 0; i < HG_VERDICT_COUNT; i++) {
			if (is_json)
				printf("%s\"%s\":%llu", is_first ? "" : ",", dp_verdict_name(i),
				       (unsigned long long)v.verdict[i]);
			else if (v.verdict[i])
				printf("%-14s %llu\n", dp_verdict_name(i),
				       (unsigned long long)v.verdict[i]);
			is_first = false;
		}
		for (unsigned i = 1; i < HG_DROP_COUNT && !is_json; i++)
			if (v.drop[i])
				printf("  %-12s %llu (%s)\n", dp_drop_name(i),
				       (unsigned long long)v.drop[i], dp_drop_help(i));
		if (is_json)
			printf("}");
		dp_close(dp);
	}
}

int tool_status(struct tool *t, int argc, char **argv)
{
	bool is_json = argc > 1 && strcmp(argv[1], "--json") == 0;
	struct dp_attachment found[64];
	int n = dp_attachments(t->bpffs, found, ARRAY_SIZE(found));
	char *l4;

	if (argc > 1 && !is_json) {
		fprintf(stderr, "usage: headgate status [--json]\n");
		return 1;
	}
	if (n < 0) {
		fprintf(stderr, "headgate: cannot list interfaces: %s\n", strerror(-n));
		return 1;
	}
	status_attachments(found, n, is_json);
	l4 = tool_ask(t, is_json ? "show l4 json" : "show l4", 1);
	if (l4 && strncmp(l4, "Unknown", 7) != 0) {
		if (is_json) {
			l4[strcspn(l4, "\n")] = '\0';
			printf(",\"l4\":%s", l4);
		} else {
			printf("\n%s", l4);
		}
	} else {
		status_from_pins(t, is_json);
	}
	mem_free(l4);
	if (is_json)
		printf("}\n");
	return 0;
}

int tool_maps(struct tool *t, int argc, char **argv)
{
	bool is_json = argc > 1 && strcmp(argv[1], "--json") == 0;
	const char *bpffs = t->bpffs ? t->bpffs : DP_BPFFS;
	const struct dp_map_doc *d;

	for (unsigned i = 0; (d = dp_map_doc(i)); i++) {
		if (is_json)
			printf("%s{\"name\":\"%s\",\"key\":\"%s\",\"value\":\"%s\",\"writer\":\"%"
			       "s\",\"help\":\"%s\"}",
			       i ? "," : "[", d->name, d->key, d->value, d->writer, d->help);
		else
			printf("%-15s %s\n%-15s key: %s; value: struct %s; writer: %s\n", d->name,
			       d->help, "", d->key, d->value, d->writer);
	}
	if (is_json)
		printf("]\n");
	else
		printf("\nbpftool map dump pinned %s/" HG_PIN_DIR "/NAME\n", bpffs);
	return 0;
}
