/* SPDX-License-Identifier: BSD-2-Clause */
/* `headgate show events`: the drops that the kernel tier remembers, read from its pinned maps. */
#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "dp/dp.h"
#include "tools_priv.h"

struct events_view {
	struct tool_names names;
	struct service_text {
		uint32_t id;
		char key[TOOL_KEY_MAX];
	} *services;
	unsigned n_services, cap;
	bool is_json, is_follow;
	int64_t clock_offset_ns;
};

static int on_service(void *ctx, const struct dp_service_info *i)
{
	struct events_view *v = ctx;

	if (v->n_services == v->cap) {
		unsigned cap = v->cap ? v->cap * 2 : 64;
		struct service_text *more = mem_realloc(v->services, cap * sizeof(*more));

		if (!more)
			return -1;
		v->services = more;
		v->cap = cap;
	}
	v->services[v->n_services].id = i->id;
	tool_service_key(&i->key, v->services[v->n_services].key, TOOL_KEY_MAX);
	v->n_services++;
	return 0;
}

static const char *service_key(const struct events_view *v, uint32_t id)
{
	for (unsigned i = 0; i < v->n_services; i++)
		if (v->services[i].id == id)
			return v->services[i].key;
	return "-";
}

static void end_text(const __be32 *addr, __be16 port, char *out, size_t size)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
	char ip[INET6_ADDRSTRLEN] = "-";

	if (memcmp(addr, mapped, sizeof(mapped)) == 0) {
		inet_ntop(AF_INET, &addr[3], ip, sizeof(ip));
		snprintf(out, size, "%s:%u", ip, ntohs(port));
		return;
	}
	inet_ntop(AF_INET6, addr, ip, sizeof(ip));
	snprintf(out, size, "[%s]:%u", ip, ntohs(port));
}

static void print_event(const struct events_view *v, const struct hg_drop_event *e, bool is_first)
{
	uint64_t at = e->time_ns + (uint64_t)v->clock_offset_ns;
	char src[64], dst[64], when[40], ifname[IF_NAMESIZE + 8];
	const char *key = service_key(v, e->service);
	const char *name = tool_service_name(&v->names, key);
	const char *reason = e->drop < HG_DROP_COUNT ? dp_drop_name(e->drop) : "?";
	time_t sec = (time_t)(at / 1000000000u);
	struct tm tm;

	end_text(e->flow.src, e->flow.sport, src, sizeof(src));
	end_text(e->flow.dst, e->flow.dport, dst, sizeof(dst));
	if (!if_indextoname(e->ifindex, ifname))
		snprintf(ifname, sizeof(ifname), "if%u", e->ifindex);
	gmtime_r(&sec, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	if (v->is_json)
		printf("%s{\"time\":\"%s.%06uZ\",\"drop\":\"%s\",\"service\":\"%s\",\"name\":\"%"
		       "s\","
		       "\"protocol\":%u,\"source\":\"%s\",\"destination\":\"%s\",\"interface\":"
		       "\"%s\",\"length\":%u}%s",
		       is_first || v->is_follow ? "" : ",", when,
		       (unsigned)(at % 1000000000u / 1000), reason, key, name, e->flow.proto, src,
		       dst, ifname, e->frame_len, v->is_follow ? "\n" : "");
	else
		printf("%s.%06uZ %-12s %-24s %-12s %3u %s > %s %s %u bytes\n", when,
		       (unsigned)(at % 1000000000u / 1000), reason, key, *name ? name : "-",
		       e->flow.proto, src, dst, ifname, e->frame_len);
}

/* Newest time in *after. */
static int print_new(struct events_view *v, struct dp *dp, uint64_t *after)
{
	struct hg_drop_event *events;
	unsigned n;
	int rc = dp_drop_events(dp, *after, &events, &n);

	if (rc != 0) {
		fprintf(stderr, "headgate: show events: %s\n", strerror(-rc));
		return 1;
	}
	for (unsigned i = 0; i < n; i++)
		print_event(v, &events[i], i == 0);
	if (n)
		*after = events[n - 1].time_ns;
	mem_free(events);
	return fflush(stdout) != 0;
}

static void print_skipped(const struct events_view *v, struct dp *dp)
{
	uint64_t skipped = dp_drop_events_skipped(dp);

	if (skipped && !v->is_json)
		printf("(%llu drops came too fast to be recorded)\n", (unsigned long long)skipped);
}

static int64_t clock_offset(void)
{
	struct timespec wall, mono;

	clock_gettime(CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_MONOTONIC, &mono);
	return (wall.tv_sec - mono.tv_sec) * 1000000000ll + wall.tv_nsec - mono.tv_nsec;
}

static int parse(struct events_view *v, int argc, char **argv)
{
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "json") == 0) {
			v->is_json = true;
		} else if (strcmp(argv[i], "--follow") == 0 || strcmp(argv[i], "-f") == 0) {
			v->is_follow = true;
		} else {
			fprintf(stderr, "usage: headgate show events [--json] [--follow]\n");
			return -1;
		}
	}
	return 0;
}

static int show(struct events_view *v, struct dp *dp)
{
	const struct timespec pause = { .tv_nsec = 200 * 1000000 };
	uint64_t after = 0;
	int status;

	if (v->is_json && !v->is_follow)
		printf("[");
	status = print_new(v, dp, &after);
	if (v->is_json && !v->is_follow)
		printf("]\n");
	else if (!v->is_follow)
		print_skipped(v, dp);
	while (v->is_follow && status == 0) {
		(void)nanosleep(&pause, NULL);
		status = print_new(v, dp, &after);
	}
	return status;
}

int tool_events(struct tool *t, int argc, char **argv)
{
	struct dp_opts o = { .bpffs = t->bpffs, .role = HG_ROLE_EDGE, .adopt_only = true };
	struct events_view v = { .clock_offset_ns = clock_offset() };
	struct err err;
	struct dp *dp;
	int status;

	if (parse(&v, argc, argv) != 0)
		return 1;
	if (dp_open(&o, &dp, &err) != 0) {
		fprintf(stderr, "headgate: show events: %s\n", err.text);
		return 1;
	}
	tool_names_load(t, &v.names);
	(void)dp_each_service(dp, on_service, &v);
	status = show(&v, dp);
	tool_names_free(&v.names);
	mem_free(v.services);
	dp_close(dp);
	return status;
}

int tool_show(struct tool *t, int argc, char **argv)
{
	/* With a name: a ring of the daemon's log. */
	if (argc > 2 && strcmp(argv[1], "events") == 0 && argv[2][0] != '-' &&
	    strcmp(argv[2], "json") != 0)
		return tool_api_stream(t, argc, argv);
	if (argc > 1 && strcmp(argv[1], "events") == 0)
		return tool_events(t, argc, argv);
	if (argc > 1 && strcmp(argv[1], "agent") == 0)
		return tool_agent(t, argc, argv);
	if (argc > 1 && strcmp(argv[1], "source") == 0)
		return tool_source(t, argc, argv);
	if (argc > 1 && strcmp(argv[1], "maps") == 0)
		return tool_maps(t, argc - 1, argv + 1);
	return tool_api(t, argc, argv);
}
