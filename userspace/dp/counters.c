/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading the kernel tier: sums over CPUs, names of verdicts and drop reasons, what each map is. */
#include <errno.h>
#include <net/if.h>
#include <string.h>

#include "dp/dp_priv.h"

/* (id, name, key, value, writer, help) */
#define DP_MAPS(X)                                                                                \
	X(SERVICES, "services", "bucket, two generations", "hg_service", "control",               \
	  "what packets are for")                                                                 \
	X(SLOTS, "slots", "block of 16 slots", "hg_slot_block", "control", "Maglev tables")       \
	X(BACKENDS, "backends", "backend id", "hg_backend", "control",                            \
	  "where packets go, with the next hop")                                                  \
	X(CONTROL, "control", "0", "hg_control", "control",                                       \
	  "which generation of services is read")                                                 \
	X(XDP_SERVICES, "xdp_services", "service id * CPUs + CPU", "hg_service_counters", "XDP",  \
	  "packets per service")                                                                  \
	X(XDP_BACKENDS, "xdp_backends", "backend id * CPUs + CPU", "hg_backend_counters", "XDP",  \
	  "packets per backend")                                                                  \
	X(XDP_CPUS, "xdp_cpus", "CPU", "hg_cpu", "XDP", "tokens that bound rare work")            \
	X(FLOWS, "flows", "line of 5 flows", "hg_line", "XDP", "flows of slots that moved")       \
	X(FRAGMENTS, "fragments", "line of 5 datagrams", "hg_line", "XDP",                        \
	  "what later fragments follow")                                                          \
	X(QUIC_IDS, "quic_ids", "block of 32 server ids", "hg_quic_block", "control",             \
	  "backends by connection id")                                                            \
	X(DENY4, "deny4", "IPv4 prefix", "hg_deny", "control, tools", "denied prefixes of IPv4")  \
	X(DENY6, "deny6", "IPv6 prefix", "hg_deny", "control, tools", "denied prefixes of IPv6")  \
	X(DENY_CELLS, "deny_cells", "line of 32 counts", "hg_deny_cells", "control, tools",       \
	  "where it is worth to ask for a denied prefix")                                         \
	X(DENY_INDEX, "deny_index", "line of 7 prefixes", "hg_deny_line", "control, tools",       \
	  "denied prefixes once more, as packets look for them")                                  \
	X(SOURCES, "sources", "line of 8 sources", "hg_source_line", "XDP",                       \
	  "what sources with a limit have used")                                                  \
	X(LIVE_SOURCES, "live_sources", "line of 8 sources", "hg_live_line", "live_conns",        \
	  "connections now, by source")                                                           \
	X(SOURCE_GROUPS, "source_groups", "group of sources", "hg_source_group", "XDP",           \
	  "what sources with a limit have used together")                                         \
	X(SOURCE_SEEN, "source_seen", "line of 4 sources", "hg_seen_line", "XDP",                 \
	  "SYNs and drops by source, while a rule asks for them")                                 \
	X(SERVICE_GUARD, "service_guard", "service id", "hg_service_guard", "control, XDP",       \
	  "limits of a service")                                                                  \
	X(ALLOW4, "allow4", "service id, IPv4 prefix", "__u32", "control",                        \
	  "who may use a service, IPv4")                                                          \
	X(ALLOW6, "allow6", "service id, IPv6 prefix", "__u32", "control",                        \
	  "who may use a service, IPv6")                                                          \
	X(SYN_SERVICES, "syn_services", "service id", "hg_syn_service", "XDP",                    \
	  "whose SYNs are answered by cookies")                                                   \
	X(STEER, "steer", "0", "hg_steer", "control", "CPUs that packets for the L7 tier go to")  \
	X(STEER_CPUS, "steer_cpus", "CPU", "length of its queue", "control",                      \
	  "the same as the kernel wants it, with a thread each")                                  \
	X(DROP_EVENTS, "drop_events", "CPU * 256 + n", "hg_drop_event", "XDP",                    \
	  "the last drops of every CPU")                                                          \
	X(CAPTURE, "capture", "0", "hg_capture", "the capturing tool",                            \
	  "what the running capture wants")                                                       \
	X(CAPTURE_RING, "capture_ring", "-", "hg_frame", "XDP", "captured frames, a ring buffer") \
	X(XDP_PORTS, "xdp_ports", "interface index", "interface index", "control",                \
	  "interfaces that packets may be redirected to")                                         \
	X(NAT_CONNS, "nat_conns", "row", "hg_nat_conn", "XDP, control",                           \
	  "NAT connections, both directions in one row")                                          \
	X(NAT_ADDRS, "nat_addrs", "row", "hg_nat_addrs", "XDP", "their whole addresses")          \
	X(NAT_LINES, "nat_lines", "line of 8 fingerprints", "hg_nat_line", "XDP, control",        \
	  "from a client's packet to its row")                                                    \
	X(NAT_TICKETS, "nat_tickets", "row", "hg_nat_ticket", "XDP, control",                     \
	  "what packets of established connections need")                                         \
	X(NAT_TICKS, "nat_ticks", "row / 32", "hg_nat_ticks", "XDP", "how old tickets are")       \
	X(NAT_HINTS, "nat_hints", "half line of 8 rows", "hg_nat_hints", "XDP, control",          \
	  "from a client's packet to its ticket")                                                 \
	X(NAT_PATHS, "nat_paths", "path", "hg_nat_path", "XDP, control",                          \
	  "what many tickets have in common")                                                     \
	X(NAT_FRAGMENTS, "nat_fragments", "line of 5 datagrams", "hg_line", "XDP",                \
	  "what later fragments of NAT follow")                                                   \
	X(NAT_SERVICES, "nat_services", "service id", "hg_nat_service", "control",                \
	  "what new NAT connections need")                                                        \
	X(NAT_CONTROL, "nat_control", "0", "hg_nat_control", "control, XDP",                      \
	  "which packets may be answers to NAT")                                                  \
	X(LIVE_BACKENDS, "live_backends", "backend id", "hg_live_server", "both tiers",           \
	  "connections now, and their limit")                                                     \
	X(LIVE_SERVICES, "live_services", "service id", "hg_live", "XDP, live_conns, control",    \
	  "connections now, and their limit")                                                     \
	X(SYN_CONTROL, "syn_control", "0", "hg_syn_control", "control, XDP, syn_take",            \
	  "keys of SYN cookies, and when they are used")                                          \
	X(XDP_VERDICTS, "xdp_verdicts", "CPU", "hg_verdict_counters", "XDP",                      \
	  "verdicts, drop reasons, events")                                                       \
	X(META, "meta", "0", "hg_meta", "loader", "version and sizes of what is loaded")          \
	X(DECAP_ADDRS, "decap_addrs", "address", "hg_decap_addr", "loader",                       \
	  "tunnel end points of the agent")                                                       \
	X(STATS_SERVICES, "stats_services", "id * workers + worker", "hg_l7_counters", "workers", \
	  "traffic per frontend")                                                                 \
	X(STATS_BACKENDS, "stats_backends", "id * workers + worker", "hg_l7_counters", "workers", \
	  "traffic per backend and server")                                                       \
	X(STATS_WORKERS, "stats_workers", "worker", "hg_worker_counters", "workers",              \
	  "each worker's life")                                                                   \
	X(SK_STEER, "sk_steer", "0", "hg_sk_steer", "control",                                    \
	  "how new connections find their worker")                                                \
	X(SK_WORKERS, "sk_workers", "worker", "hg_sk_worker", "sk_steer",                         \
	  "new connections given to each worker")                                                 \
	X(LIVE_MARKS, "live_marks", "socket", "hg_live_mark", "live_conns",                       \
	  "what counted connections are counted as")

static const struct dp_map_doc map_docs[] = {
#define X(id, name, key, value, writer, help) { name, key, value, writer, help },
	DP_MAPS(X)
#undef X
};

const struct dp_map_doc *dp_map_doc(unsigned i)
{
	return i < ARRAY_SIZE(map_docs) ? &map_docs[i] : NULL;
}

const char *dp_map_name(enum dp_map_id id)
{
	return map_docs[id].name;
}

static const char *const drop_names[] = {
#define X(name, help) #name,
	HG_DROPS(X)
#undef X
};

static const char *const drop_helps[] = {
#define X(name, help) help,
	HG_DROPS(X)
#undef X
};

static const char *const event_names[] = {
#define X(name, help) #name,
	HG_EVENTS(X)
#undef X
};

static const char *const event_helps[] = {
#define X(name, help) help,
	HG_EVENTS(X)
#undef X
};

static const char *const verdict_names[] = {
#define X(name, help) #name,
	HG_VERDICTS(X)
#undef X
};

const char *dp_event_name(unsigned event)
{
	return event < HG_EVENT_COUNT ? event_names[event] : "?";
}

const char *dp_event_help(unsigned event)
{
	return event < HG_EVENT_COUNT ? event_helps[event] : "";
}

const char *dp_drop_name(unsigned drop)
{
	return drop < HG_DROP_COUNT ? drop_names[drop] : "?";
}

const char *dp_drop_help(unsigned drop)
{
	return drop < HG_DROP_COUNT ? drop_helps[drop] : "?";
}

const char *dp_verdict_name(unsigned verdict)
{
	return verdict < HG_VERDICT_COUNT ? verdict_names[verdict] : "?";
}

void dp_verdicts(struct dp *dp, struct hg_verdict_counters *ret_sum)
{
	const struct hg_verdict_counters *rows = dp->maps[DP_MAP_XDP_VERDICTS].mem;

	memset(ret_sum, 0, sizeof(*ret_sum));
	for (uint32_t cpu = 0; rows && cpu < dp->n_cpus; cpu++) {
		for (unsigned v = 0; v < ARRAY_SIZE(ret_sum->verdict); v++)
			ret_sum->verdict[v] += rows[cpu].verdict[v];
		for (unsigned d = 0; d < ARRAY_SIZE(ret_sum->drop); d++)
			ret_sum->drop[d] += rows[cpu].drop[d];
		for (unsigned e = 0; e < ARRAY_SIZE(ret_sum->event); e++)
			ret_sum->event[e] += rows[cpu].event[e];
	}
}

static void sum_service(const struct dp *dp, uint32_t id, struct hg_service_counters *ret)
{
	const struct hg_service_counters *rows = dp->maps[DP_MAP_XDP_SERVICES].mem;

	memset(ret, 0, sizeof(*ret));
	for (uint32_t cpu = 0; cpu < dp->n_cpus; cpu++) {
		const struct hg_service_counters *c = &rows[(size_t)id * dp->n_cpus + cpu];

#define X(name, help) ret->name += c->name;
		HG_SERVICE_COUNTERS(X)
#undef X
	}
}

static void sum_backend(const struct dp *dp, uint32_t id, struct hg_backend_counters *ret)
{
	const struct hg_backend_counters *rows = dp->maps[DP_MAP_XDP_BACKENDS].mem;

	memset(ret, 0, sizeof(*ret));
	for (uint32_t cpu = 0; cpu < dp->n_cpus; cpu++) {
		const struct hg_backend_counters *c = &rows[(size_t)id * dp->n_cpus + cpu];

#define X(name, help) ret->name += c->name;
		HG_BACKEND_COUNTERS(X)
#undef X
	}
}

int dp_each_service(struct dp *dp, int (*fn)(void *ctx, const struct dp_service_info *i), void *ctx)
{
	for (uint32_t id = 0; dp->services && id < dp->t.max_services; id++) {
		const struct dp_service *s = &dp->services[id];
		struct dp_service_info info = { .key = s->row.key,
						.name = s->name ? s->name : "",
						.id = id,
						.mode = s->row.mode,
						.slots = s->row.slots,
						.tracked = s->n_tracked,
						.flows = s->n_flows,
						.syn_rate = s->syn_rate,
						.n_allow = s->n_allow,
						.has_allow = s->has_allow };
		const struct hg_live *live = dp->nat.live_services;
		int rc;

		if (!s->is_used || s->row.mode == HG_MODE_ADDR)
			continue; /* an address row is no service */
		sum_service(dp, id, &info.sum);
		info.conns = live ? live[id].conns : 0;
		info.maxconn = live ? live[id].limit : 0;
		info.are_cookies_on = dp_syn_is_on(dp, id);
		if ((rc = fn(ctx, &info)) != 0)
			return rc;
	}
	return 0;
}

int dp_each_backend(struct dp *dp, int (*fn)(void *ctx, const struct dp_backend_info *i), void *ctx)
{
	for (uint32_t id = 1; dp->backends && id < dp->t.max_backends; id++) {
		const struct dp_backend *b = &dp->backends[id];
		const struct hg_backend *row = &dp->t.backends[id];
		struct dp_backend_info info = { .id = id,
						.addr = b->addr,
						.service_name = b->service_name ? b->service_name
										: "",
						.server_name = b->server_name ? b->server_name : "",
						.flags = row->flags,
						.is_draining = dp->is_synced && !b->is_wanted,
						.flows = b->n_flows,
						.neigh = row->neigh };
		const struct hg_live_server *live = dp->nat.live_backends;
		uint64_t word = live ? __atomic_load_n(&live[id].word, __ATOMIC_RELAXED) : 0;
		int rc;

		if (!b->is_used)
			continue;
		if (!if_indextoname(row->ifindex, info.ifname))
			memcpy(info.ifname, "-", 2);
		sum_backend(dp, id, &info.sum);
		info.conns = hg_live_all(word);
		info.l7_conns = hg_live_l7(word, 0) + hg_live_l7(word, 1);
		info.maxconn = live ? live[id].limit : 0;
		if ((rc = fn(ctx, &info)) != 0)
			return rc;
	}
	return 0;
}

int dp_lookup_flow(struct dp *dp, const struct hg_flow_key *k)
{
	struct hg_service_key sk = { .port = k->dport, .proto = k->proto };
	struct dp_service *s;
	uint32_t slot, word;

	if (!dp->services)
		return -ENOENT;
	memcpy(sk.addr, k->dst, sizeof(sk.addr));
	s = dp_service_find(dp, &sk);
	if (!s)
		return -ENOENT;
	if (!s->row.slots)
		return 0;
	slot = hg_flow_slot(
		hg_flow_hash(k, ((struct hg_meta *)dp->maps[DP_MAP_META].mem)->ro.hash_seed),
		s->row.slots);
	word = dp->t.slots[s->row.slots_block + slot / HG_SLOTS_PER_BLOCK]
		       .slot[slot % HG_SLOTS_PER_BLOCK];
	return (int)HG_SLOT_CURRENT(word);
}
