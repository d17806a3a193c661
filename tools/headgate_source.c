/* SPDX-License-Identifier: BSD-2-Clause */
/* `headgate show source`: what the kernel tier knows of a client; from the pinned maps, with or without a daemon. */
#include <stdio.h>
#include <string.h>

#include "dp/dp.h"
#include "tools_priv.h"

static int show_one(struct dp *dp, const char *text, bool is_json)
{
	struct dp_source_info s;
	struct addr a;

	if (addr_parse_ip(str_from_cstr(text), &a) != 0) {
		fprintf(stderr, "headgate: show source: '%s' is no address\n", text);
		return 1;
	}
	if (dp_source(dp, &a, &s) != 0)
		return 1;
	if (is_json) {
		printf("{\"connections\":%u,\"max_conn\":%u", s.conns, s.max_conns);
		if (s.is_watched)
			printf(",\"syn_rate\":%u,\"dropped\":%u", s.syn_rate, s.dropped);
		printf("}\n");
	} else {
		printf("connections %u, may have %u (0: no limit)\n", s.conns, s.max_conns);
		if (s.is_watched)
			printf("SYNs per second %u, packets dropped %u\n", s.syn_rate, s.dropped);
	}
	return 0;
}

static int show_all(struct dp *dp, bool is_json)
{
	struct dp_sources_summary s;

	if (dp_sources(dp, &s) != 0)
		return 1;
	if (is_json)
		printf("{\"sources\":%u,\"connections\":%llu,\"most\":%u,\"room\":%u,\"max_conn\":%"
		       "u}\n",
		       s.sources, (unsigned long long)s.conns, s.most, s.room, s.max_conns);
	else
		printf("%u sources with connections, %llu connections, at most %u of one source; "
		       "room for %u sources\n",
		       s.sources, (unsigned long long)s.conns, s.most, s.room);
	return 0;
}

int tool_source(struct tool *t, int argc, char **argv)
{
	struct dp_opts o = { .bpffs = t->bpffs, .role = HG_ROLE_EDGE, .adopt_only = true };
	bool is_json = argc > 2 && strcmp(argv[argc - 1], "--json") == 0;
	bool has_addr = argc - is_json == 3;
	struct err err;
	struct dp *dp;
	int status;

	if (argc - is_json > 3) {
		fprintf(stderr, "usage: headgate show source [ADDRESS] [--json]\n");
		return 1;
	}
	if (dp_open(&o, &dp, &err) != 0) {
		fprintf(stderr, "headgate: show source: %s\n", err.text);
		return 1;
	}
	status = has_addr ? show_one(dp, argv[2], is_json) : show_all(dp, is_json);
	dp_close(dp);
	return status;
}
