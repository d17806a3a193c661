/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands on the kernel tier itself: they work on pins, with or without a daemon. */
#include <errno.h>
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

int tool_status(struct tool *t, int argc, char **argv)
{
	bool is_json = argc > 1 && strcmp(argv[1], "--json") == 0;
	struct dp_attachment found[64];
	int n = dp_attachments(t->bpffs, found, ARRAY_SIZE(found));
	struct err err; /* a role that is not there is no news */
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
		(void)tool_show_pins(t, HG_ROLE_EDGE, is_json, is_json ? "," : "\n", &err);
	}
	(void)tool_show_pins(t, HG_ROLE_BACKEND, is_json, is_json ? "," : "\n", &err);
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
