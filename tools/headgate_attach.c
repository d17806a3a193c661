/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `headgate attach`: the programs on an interface, without a daemon. For role backend also the addresses to
 * which tunnels may be sent, and the keys of SYN cookies.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "dp/dp.h"
#include "tools_priv.h"

#define MAX_ADDRESSES HG_MAX_DECAP_ADDRS

struct attach_args {
	const char *ifname;
	enum hg_role role;
	enum dp_attach_mode mode;
	bool is_exclusive, has_addresses;
	bool is_agent_option; /* one that only the agent has was given */
	uint32_t accept; /* enum hg_decap_flags, 0: both tunnels */
	bool no_second_chance;
	struct conf_syn_keys syn_keys; /* none: no SYN cookies are taken */
	struct addr addrs[MAX_ADDRESSES];
	unsigned n_addrs;
};

static void notice(void *ctx, const char *text)
{
	fprintf(stderr, "headgate: %s\n", text);
}

static int bad(const char *option, const char *value, const char *wanted)
{
	fprintf(stderr, "headgate: attach: %s %s: %s\n", option, value, wanted);
	return -EINVAL;
}

/* --- the command line --------------------------------------------------------------------------------- */

static int add_address(struct attach_args *a, struct str text, const char *where)
{
	struct addr addr;

	if (addr_parse_ip(text, &addr) != 0) {
		fprintf(stderr, "headgate: attach: %s: '" STR_FMT "' is no IP address\n", where,
			STR_ARG(str_sub(text, 0, 64)));
		return -EINVAL;
	}
	for (unsigned i = 0; i < a->n_addrs; i++)
		if (addr_is_ip_eq(&a->addrs[i], &addr))
			return 0;
	if (a->n_addrs == MAX_ADDRESSES) {
		fprintf(stderr, "headgate: attach: %s: more than %d addresses\n", where,
			MAX_ADDRESSES);
		return -E2BIG;
	}
	a->addrs[a->n_addrs++] = addr;
	return 0;
}

/* One address a line; what follows a # is a remark. */
static int add_file(struct attach_args *a, const char *path)
{
	FILE *f = fopen(path, "re");
	char line[256], where[PATH_MAX + 16];
	unsigned n = 0;
	int rc = 0;

	if (!f)
		return bad("--address-file", path, strerror(errno));
	while (rc == 0 && fgets(line, sizeof(line), f)) {
		struct str s = str_make(line, strcspn(line, "#\n"));

		snprintf(where, sizeof(where), "%s:%u", path, ++n);
		s = str_trim(s);
		if (s.len)
			rc = add_address(a, s, where);
	}
	fclose(f);
	if (rc == 0 && a->n_addrs == 0)
		return bad("--address-file", path, "no address in it");
	return rc;
}

static int parse_accept(struct attach_args *a, const char *value)
{
	static const struct {
		const char *word;
		uint32_t flags;
	} tunnels[] = { { "ipip", HG_DECAP_IPIP },
			{ "gue", HG_DECAP_GUE },
			{ "ipip,gue", HG_DECAP_IPIP | HG_DECAP_GUE },
			{ "gue,ipip", HG_DECAP_IPIP | HG_DECAP_GUE } };

	for (unsigned i = 0; i < ARRAY_SIZE(tunnels); i++) {
		if (strcmp(value, tunnels[i].word) == 0) {
			a->accept = tunnels[i].flags;
			return 0;
		}
	}
	return bad("--accept", value, "expected ipip, gue, or ipip,gue");
}

static int parse_mode(struct attach_args *a, const char *value)
{
	static const struct {
		const char *word;
		enum dp_attach_mode mode;
	} modes[] = { { "auto", DP_MODE_AUTO },
		      { "native", DP_MODE_NATIVE },
		      { "generic", DP_MODE_GENERIC } };

	for (unsigned i = 0; i < ARRAY_SIZE(modes); i++) {
		if (strcmp(value, modes[i].word) == 0) {
			a->mode = modes[i].mode;
			return 0;
		}
	}
	return bad("--mode", value, "expected auto, native or generic");
}

static int parse_role(struct attach_args *a, const char *value)
{
	if (strcmp(value, "backend") != 0 && strcmp(value, "edge") != 0)
		return bad("--role", value, "expected edge or backend");
	a->role = strcmp(value, "backend") == 0 ? HG_ROLE_BACKEND : HG_ROLE_EDGE;
	return 0;
}

static int parse_address(struct attach_args *a, const char *value)
{
	a->has_addresses = true;
	return add_address(a, str_from_cstr(value), "--address");
}

static int parse_file(struct attach_args *a, const char *value)
{
	a->has_addresses = true;
	return add_file(a, value);
}

static int parse_exclusive(struct attach_args *a, const char *value)
{
	a->is_exclusive = true;
	return 0;
}

static int parse_no_second_chance(struct attach_args *a, const char *value)
{
	a->no_second_chance = true;
	return 0;
}

static int parse_syn_keys(struct attach_args *a, const char *value)
{
	struct err err;
	int rc = conf_syn_keys_read(value, &a->syn_keys, &err);

	return rc == 0 ? 0 : bad("--syn-cookie-keys", value, err.text);
}

static const struct option_row {
	const char *name;
	int (*parse)(struct attach_args *a, const char *value);
	bool has_value, is_agents;
} options[] = {
	{ "--role", parse_role, true, false },
	{ "--mode", parse_mode, true, false },
	{ "--exclusive", parse_exclusive, false, false },
	{ "--address", parse_address, true, true },
	{ "--address-file", parse_file, true, true },
	{ "--accept", parse_accept, true, true },
	{ "--no-second-chance", parse_no_second_chance, false, true },
	{ "--syn-cookie-keys", parse_syn_keys, true, true },
};

static const struct option_row *find_option(const char *name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(options); i++)
		if (strcmp(options[i].name, name) == 0)
			return &options[i];
	return NULL;
}

static int attach_parse(struct attach_args *a, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const struct option_row *o;

		if (argv[i][0] != '-') {
			if (a->ifname)
				return bad("one interface at a time", argv[i], "a second one");
			a->ifname = argv[i];
			continue;
		}
		o = find_option(argv[i]);
		if (!o)
			return bad("unknown option", argv[i], "see 'headgate help'");
		if (o->has_value && i + 1 >= argc)
			return bad("option", argv[i], "needs a value");
		a->is_agent_option |= o->is_agents;
		if (o->parse(a, o->has_value ? argv[++i] : NULL) != 0)
			return -EINVAL;
	}
	if (!a->ifname) {
		fprintf(stderr, "headgate: attach: which interface?\n");
		return -EINVAL;
	}
	if (a->is_agent_option && a->role != HG_ROLE_BACKEND)
		return bad("--address, --address-file, --accept, --no-second-chance and "
			   "--syn-cookie-keys",
			   "", "are the agent's: add --role backend");
	return 0;
}

/* --- addresses -------------------------------------------------------------------------------------------- */

static bool has_agent(const struct dp_attachment *found, int n, const char *ifname)
{
	for (int i = 0; i < n; i++)
		if (!found[i].is_foreign && found[i].role == HG_ROLE_BACKEND &&
		    strcmp(found[i].ifname, ifname) == 0)
			return true;
	return false;
}

static void addr_of(const struct ifaddrs *i, struct addr *ret)
{
	*ret = (struct addr){ 0 };
	if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET)
		memcpy(&ret->in, i->ifa_addr, sizeof(ret->in));
	else if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET6)
		memcpy(&ret->in6, i->ifa_addr, sizeof(ret->in6));
}

/* Without --address: all of this interface, and of those that have the agent already: they share one set. */
static int own_addresses(struct attach_args *a, const char *bpffs)
{
	struct dp_attachment found[64];
	int n = dp_attachments(bpffs, found, ARRAY_SIZE(found)), rc = 0;
	struct ifaddrs *all, *i;

	if (getifaddrs(&all) != 0)
		return -errno;
	for (i = all; i && rc == 0; i = i->ifa_next) {
		char text[ADDR_TEXT_MAX];
		struct addr addr;

		addr_of(i, &addr);
		if (addr.sa.sa_family == AF_UNSPEC ||
		    (strcmp(i->ifa_name, a->ifname) != 0 && !has_agent(found, n, i->ifa_name)))
			continue;
		addr_format_ip(&addr, text, sizeof(text));
		rc = add_address(a, str_from_cstr(text), i->ifa_name);
	}
	freeifaddrs(all);
	if (rc == 0 && a->n_addrs == 0) {
		fprintf(stderr,
			"headgate: attach: %s has no address that tunnels could be sent to: give "
			"one "
			"with --address\n",
			a->ifname);
		return -EADDRNOTAVAIL;
	}
	return rc;
}

/* Tunnels to an address of nobody here would pass by the agent unseen: say so, it is a typing error. */
static void warn_strangers(const struct attach_args *a)
{
	struct ifaddrs *all, *i;

	if (getifaddrs(&all) != 0)
		return;
	for (unsigned k = 0; k < a->n_addrs; k++) {
		char text[ADDR_TEXT_MAX];
		bool is_here = false;

		for (i = all; i && !is_here; i = i->ifa_next) {
			struct addr addr;

			addr_of(i, &addr);
			is_here = addr_is_ip_eq(&addr, &a->addrs[k]);
		}
		if (is_here)
			continue;
		addr_format_ip(&a->addrs[k], text, sizeof(text));
		fprintf(stderr, "headgate: %s is no address of this host (yet)\n", text);
	}
	freeifaddrs(all);
}

/* --- attach --------------------------------------------------------------------------------------------------- */

static int attach_addresses(struct attach_args *a, struct dp *dp, struct err *err)
{
	uint32_t flags = a->accept ? a->accept : HG_DECAP_IPIP | HG_DECAP_GUE;

	if (flags & HG_DECAP_GUE && !a->no_second_chance)
		flags |= HG_DECAP_SECOND_CHANCE;
	return dp_decap_addrs(dp, a->addrs, a->n_addrs, flags, err);
}

static int attach_open(struct tool *t, struct attach_args *a, bool *ret_is_new, struct err *err)
{
	struct dp_opts o = { .bpffs = t->bpffs, .role = a->role, .notice = notice };
	struct dp *dp;
	int rc = dp_open(&o, &dp, err);

	if (rc != 0)
		return rc;
	*ret_is_new = !dp_is_adopted(dp);
	if (a->role == HG_ROLE_BACKEND)
		rc = dp_agent_syn(dp, a->ifname, &a->syn_keys, err);
	if (rc == 0 && a->role == HG_ROLE_BACKEND)
		rc = attach_addresses(a, dp, err);
	if (rc == 0)
		rc = dp_attach(dp, a->ifname, a->mode, a->is_exclusive, err);
	dp_close(dp);
	return rc;
}

static void say_attached(struct tool *t, const struct attach_args *a)
{
	struct dp_attachment found[64];
	int n = dp_attachments(t->bpffs, found, ARRAY_SIZE(found));

	for (int i = 0; i < n; i++)
		if (!found[i].is_foreign && strcmp(found[i].ifname, a->ifname) == 0)
			printf("%s: %s attached (%s mode, %s)\n", a->ifname,
			       a->role == HG_ROLE_BACKEND ? "agent" : "balancer", found[i].mode,
			       found[i].via);
}

/* Nothing stays of a first attach that failed. */
static int attach_failed(struct tool *t, bool is_new, const struct err *err)
{
	struct dp_attachment found[64];
	int n = dp_attachments(t->bpffs, found, ARRAY_SIZE(found)), ours = 0;
	struct err ignored;

	fprintf(stderr, "headgate: %s\n", err->text);
	for (int i = 0; i < n; i++)
		ours += !found[i].is_foreign;
	/* An upgrade that failed on one interface leaves the others as they are. */
	if (is_new && ours == 0 && dp_detach(t->bpffs, NULL, &ignored) != 0)
		fprintf(stderr, "headgate: %s\n", ignored.text);
	return 1;
}

int tool_attach(struct tool *t, int argc, char **argv)
{
	struct attach_args *a = mem_zalloc(sizeof(*a));
	bool is_new = false;
	struct err err;
	int status = 1;

	if (!a)
		return 1;
	a->role = HG_ROLE_EDGE;
	if (attach_parse(a, argc, argv) != 0)
		goto out;
	if (!if_nametoindex(a->ifname)) {
		fprintf(stderr, "headgate: there is no interface '%s' on this host\n", a->ifname);
		goto out;
	}
	if (a->role == HG_ROLE_BACKEND && !a->has_addresses && own_addresses(a, t->bpffs) != 0)
		goto out;
	if (a->has_addresses)
		warn_strangers(a);
	if (attach_open(t, a, &is_new, &err) != 0) {
		status = attach_failed(t, is_new, &err);
		goto out;
	}
	say_attached(t, a);
	status = 0;
out:
	mem_free(a);
	return status;
}
