/* SPDX-License-Identifier: BSD-2-Clause */
#include "packet/fuzz.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ICMP_PROTO(v6) ((v6) ? 58 : 1)

/* Ids of backends: outer family, interface, MTU, entropy. */
enum {
	BE_V4 = 1,
	BE_V6_OUT,
	BE_V4_ENTROPY,
	BE_V6_SMALL,
	BE_DEAD,
	BE_NO_NEIGH,
	BE_INVALID,
	BE_V4_OTHER,
	BE_V4_SMALL,
	BE_NO_PORT,
};

static void add_backends(struct lb *lb)
{
	LB_BACKEND(lb, .id = BE_V4, .addr = "10.0.0.21", .src = FUZZ_EDGE4);
	LB_BACKEND(lb, .id = BE_V6_OUT, .addr = "fd00::22", .src = FUZZ_EDGE6,
		   .ifindex = IFINDEX_OUT);
	LB_BACKEND(lb, .id = BE_V4_ENTROPY, .addr = "10.0.0.23", .src = "10.255.0.0",
		   .entropy_mask = 0xffff, .state = HG_NEIGH_OK | HG_NEIGH_KEEP_TAGS);
	LB_BACKEND(lb, .id = BE_V6_SMALL, .addr = "fd00::24", .src = FUZZ_EDGE6, .mtu = 1300,
		   .entropy_mask = 0xff, .state = HG_NEIGH_TAGGED(7));
	LB_BACKEND(lb, .id = BE_DEAD, .addr = "10.0.0.25", .src = FUZZ_EDGE4, .dead = true);
	LB_BACKEND(lb, .id = BE_NO_NEIGH, .addr = "10.0.0.26", .src = FUZZ_EDGE4, .no_neigh = true);
	LB_BACKEND(lb, .id = BE_NO_PORT, .addr = "10.0.0.30", .src = FUZZ_EDGE4,
		   .ifindex = IFINDEX_NONE);
	LB_BACKEND(lb, .id = BE_INVALID, .addr = "10.0.0.27", .src = FUZZ_EDGE4, .invalid = true);
	LB_BACKEND(lb, .id = BE_V4_OTHER, .addr = "10.0.0.28", .src = FUZZ_EDGE4);
	LB_BACKEND(lb, .id = BE_V4_SMALL, .addr = "10.0.0.29", .src = FUZZ_EDGE4, .mtu = 1280,
		   .ifindex = IFINDEX_OUT, .state = HG_NEIGH_TAGGED(4000) | HG_NEIGH_TAG_AD);
}

static const uint16_t mixed[] = { BE_V4, BE_V6_OUT, BE_V4_ENTROPY, BE_V6_SMALL, BE_V4_SMALL };
static const uint16_t v4_only[] = { BE_V4, BE_V4_OTHER };
static const uint16_t broken[] = { BE_INVALID, BE_NO_NEIGH, BE_DEAD, BE_NO_PORT, BE_V4 };
static const uint16_t empty[] = { 0 };

#define SET(list) .backends = (list), .n = sizeof(list) / sizeof((list)[0])

/* Ports of the service addresses; what each is for. Every row exists for both address families. */
static const struct service_args rows[] = {
	{ .port = 80, .slots = 251, SET(mixed) },
	{ .port = 81, .slots = 251, .mode = HG_MODE_GUE, SET(mixed) },
	{ .port = 82, .slots = 251, .mode = HG_MODE_L2, SET(mixed) },
	{ .port = 83, .slots = 251, .base = BE_V4_ENTROPY, SET(mixed) },
	{ .port = 84, .slots = 251, .mode = HG_MODE_GUE, .base = BE_V4_ENTROPY, SET(v4_only) },
	{ .port = 85, .slots = 251, .mode = HG_MODE_L2, .flags = HG_SVC_TRACK_ON, SET(mixed) },
	{ .port = 86 },
	{ .port = 87, .slots = 13, SET(broken) },
	{ .port = 88, .slots = 13, .mode = HG_MODE_GUE, SET(broken) },
	{ .port = 89, .slots = 13, SET(empty) },
	{ .port = 90, .slots = 251, .flags = HG_SVC_NO_PORT_HASH, SET(mixed) },
	{ .port = 91, .slots = 13, .base = BE_DEAD, SET(v4_only) },
	{ .port = 53, .proto = 17, .slots = 251, .flags = HG_SVC_NO_AFFINITY, SET(mixed) },
	{ .port = 443,
	  .proto = 17,
	  .slots = 251,
	  .mode = HG_MODE_GUE,
	  .flags = HG_SVC_QUIC_CID,
	  .cid_offset = 1,
	  .cid_len = 2,
	  .quic_ids = 5,
	  SET(mixed) },
};

static void add_services(struct fuzz *f, bool v6)
{
	const char *vip = v6 ? FUZZ_VIP6 : FUZZ_VIP4, *local = v6 ? FUZZ_LOCAL6 : FUZZ_LOCAL4;
	const char *any = v6 ? FUZZ_ANY6 : FUZZ_ANY4;
	const unsigned n = sizeof(rows) / sizeof(rows[0]);
	uint32_t id = v6 ? n + 5 : 0;

	for (unsigned i = 0; i < n; i++) {
		struct service_args row = rows[i];

		row.addr = vip;
		row.id = id++;
		lb_service(&f->lb, &row);
	}
	LB_SERVICE(&f->lb, .addr = vip, .proto = ICMP_PROTO(v6), .mode = HG_MODE_ADDR, .id = id++);
	LB_SERVICE(&f->lb, .addr = local, .port = 80, .mode = HG_MODE_LOCAL, .id = id++);
	LB_SERVICE(&f->lb, .addr = any, .id = id++, .slots = 251, SET(mixed));
	LB_SERVICE(&f->lb, .addr = any, .proto = ANY_PROTO, .id = id++, .slots = 251,
		   .mode = HG_MODE_GUE, SET(mixed));
	LB_SERVICE(&f->lb, .addr = any, .proto = ICMP_PROTO(v6), .mode = HG_MODE_ADDR,
		   .flags = HG_SVC_NOT_LOCAL, .id = id++);
}

/* One CPU, so that its rows of the counters are all there is to look at. */
static unsigned bind_to_cpu(void)
{
	cpu_set_t set;
	int cpu = sched_getcpu();

	assert_true(cpu >= 0);
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	assert_int_equal(sched_setaffinity(0, sizeof(set), &set), 0);
	return (unsigned)cpu;
}

void fuzz_open(struct fuzz *f)
{
	memset(f, 0, sizeof(*f));
	f->cpu = bind_to_cpu();
	lb_load(&f->lb);
	add_backends(&f->lb);
	add_services(f, false);
	add_services(f, true);
	for (unsigned i = 0; i < 5; i++)
		f->lb.quic[0].backend[i] = (uint16_t[]){ 0, BE_V4, BE_V6_OUT, BE_DEAD,
							 BE_V4_OTHER }[i];
	for (unsigned i = 0; i < LB_BUCKETS; i++)
		if (f->lb.services[i].mode != HG_MODE_EMPTY)
			f->services[f->lb.services[i].id] = &f->lb.services[i];
	agent_load(&f->agent);
	agent_allow(&f->agent, FUZZ_HERE4, HG_DECAP_IPIP | HG_DECAP_GUE | HG_DECAP_SECOND_CHANCE);
	agent_allow(&f->agent, FUZZ_HERE6, HG_DECAP_IPIP | HG_DECAP_GUE | HG_DECAP_SECOND_CHANCE);
	agent_allow(&f->agent, FUZZ_GUE_ONLY4, HG_DECAP_GUE);
	agent_allow(&f->agent, FUZZ_IPIP_ONLY6, HG_DECAP_IPIP);
	fuzz_forget(f);
}

void fuzz_close(struct fuzz *f)
{
	lb_unload(&f->lb);
	agent_unload(&f->agent);
}

void fuzz_forget(struct fuzz *f)
{
	memset(f->lb.flows, 0, sizeof(*f->lb.flows) * LB_LINES);
	memset(f->lb.fragments, 0, sizeof(*f->lb.fragments) * LB_LINES);
	lb_tokens(&f->lb, true);
}

/* --- one packet --------------------------------------------------------------------------------- */

static void read_counters(const struct fuzz *f, struct deltas *d)
{
	d->all = f->lb.verdicts[f->cpu];
	for (unsigned i = 0; i < FUZZ_SERVICES; i++)
		d->svc[i] = f->lb.svc_counters[i * f->lb.n_cpus + f->cpu];
	for (unsigned i = 0; i < FUZZ_BACKENDS; i++)
		d->be[i] = f->lb.be_counters[i * f->lb.n_cpus + f->cpu];
}

/* All counters are 64 bits wide. */
static void subtract(void *to, const void *from, size_t bytes)
{
	const uint64_t *b = from;
	uint64_t *a = to;

	for (size_t i = 0; i < bytes / sizeof(*a); i++)
		a[i] -= b[i];
}

static const char *blame(const char *what, const struct pktbuf *in, int action,
			 const struct pktbuf *out)
{
	if (!what)
		return NULL;
	fprintf(stderr, "%s: action %d\n", what, action);
	pkt_diff(in->data, in->len, out->data, out->len);
	return what;
}

const char *fuzz_balancer(struct fuzz *f, const struct pktbuf *in, struct deltas *ret)
{
	static struct deltas before, after;
	struct pktbuf out;
	int action;

	/* Learning and ICMP are limited by time: not the matter here, but for now and then. */
	if (f->packets++ % 16 == 0)
		lb_tokens(&f->lb, f->packets % 256 > 16);
	read_counters(f, &before);
	action = prog_run(f->lb.prog, in, &out);
	read_counters(f, &after);
	subtract(&after, &before, sizeof(after));
	if (ret)
		*ret = after;
	return blame(judge_balancer(f, in, action, &out, &after), in, action, &out);
}

const char *fuzz_agent(struct fuzz *f, const struct pktbuf *in, struct deltas *ret)
{
	struct hg_verdict_counters before = f->agent.verdicts[f->cpu], after;
	struct pktbuf out;
	int action = prog_run(f->agent.prog, in, &out);

	after = f->agent.verdicts[f->cpu];
	subtract(&after, &before, sizeof(after));
	if (ret) {
		memset(ret, 0, sizeof(*ret));
		ret->all = after;
	}
	return blame(judge_agent(in, action, &out, &after), in, action, &out);
}
