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
	  "each worker's life")

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

static const char *const verdict_names[] = {
#define X(name, help) #name,
	HG_VERDICTS(X)
#undef X
};

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
						.slots = s->row.slots };
		int rc;

		if (!s->is_used || s->row.mode == HG_MODE_ADDR)
			continue; /* an address row is no service */
		sum_service(dp, id, &info.sum);
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
						.neigh = row->neigh };
		int rc;

		if (!b->is_used)
			continue;
		if (!if_indextoname(row->ifindex, info.ifname))
			memcpy(info.ifname, "-", 2);
		sum_backend(dp, id, &info.sum);
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
