/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets per second over a veth pair: frames are made by a program (BPF_F_TEST_XDP_LIVE_FRAMES), redirected into
 * one end, meet the balancer or the bare program at the other, are sent back by XDP_TX and counted. All on one
 * CPU, in a network namespace of its own; the programs take turns.
 * Usage: bench_veth [--rounds N] [--frames N] [--json FILE]. Needs root.
 */
#include <errno.h>
#include <getopt.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>

#include "bench/bench_lb.h"

#define MAX_ROUNDS 101
#define GOAL	   0.85

enum target {
	BARE,
	IPIP,
	IPIP_64K,
	L2,
	BARE_64K,
	N_TARGETS
};

static const struct {
	const char *name;
	const char *prog;
	uint32_t flows;
	uint8_t vip;
} targets[N_TARGETS] = {
	[BARE] = { "bare", "bench_bare", 1, VIP },
	[IPIP] = { "ipip_1", "xdp_lb", 1, VIP },
	[IPIP_64K] = { "ipip_64k", "xdp_lb", 1 << 16, VIP },
	[L2] = { "l2_64k", "xdp_lb", 1 << 16, VIP_L2 },
	[BARE_64K] = { "bare_64k", "bench_bare", 1 << 16, VIP },
};

struct bench {
	struct xdp_bench_bpf *skel;
	uint32_t near, far; /* interfaces: the generator's end and the target's */
	int rounds, frames;
	double pps[N_TARGETS][MAX_ROUNDS];
};

static void run_command(const char *command)
{
	if (system(command) != 0) {
		fprintf(stderr, "bench_veth: failed: %s\n", command);
		exit(1);
	}
}

static void one_cpu(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		bench_die("sched_setaffinity", errno);
}

static void make_network(struct bench *b)
{
	if (unshare(CLONE_NEWNET) != 0)
		bench_die("network namespace (root?)", errno);
	run_command("ip link set lo up && ip link add near type veth peer name far && "
		    "ip link set near up && ip link set far up");
	b->near = if_nametoindex("near");
	b->far = if_nametoindex("far");
}

static void attach(uint32_t ifindex, const struct bpf_program *prog)
{
	int rc = bpf_xdp_attach((int)ifindex, bpf_program__fd(prog), XDP_FLAGS_DRV_MODE, NULL);

	if (rc)
		bench_die("attach", rc);
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Frames that came back per second. */
static double run(struct bench *b, enum target t)
{
	uint8_t packet[BENCH_PACKET_MAX];
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = packet, .repeat = b->frames, .batch_size = 64,
		    .flags = BPF_F_TEST_XDP_LIVE_FRAMES);
	double start, seconds;
	uint64_t before;
	int rc;

	attach(b->far, bpf_object__find_program_by_name(b->skel->obj, targets[t].prog));
	o.data_size_in = (uint32_t)bench_packet(packet, false, targets[t].vip, false);
	b->skel->data->bench_flow_mask = targets[t].flows - 1;
	before = b->skel->bss->bench_sunk;
	start = now_s();
	rc = bpf_prog_test_run_opts(bpf_program__fd(b->skel->progs.bench_gen), &o);
	seconds = now_s() - start;
	if (rc)
		bench_die("live frames", rc);
	return (double)(b->skel->bss->bench_sunk - before) / seconds;
}

static int cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const double *v, int n)
{
	double s[MAX_ROUNDS];

	memcpy(s, v, sizeof(double) * (size_t)n);
	qsort(s, (size_t)n, sizeof(double), cmp);
	return s[n / 2];
}

/* Ratio to the bare program with as many flows, round by round. */
static double ratio(const struct bench *b, enum target t)
{
	enum target bare = targets[t].flows == 1 ? BARE : BARE_64K;
	double r[MAX_ROUNDS];

	for (int i = 0; i < b->rounds; i++)
		r[i] = b->pps[t][i] / b->pps[bare][i];
	return median(r, b->rounds);
}

static void report(const struct bench *b, const char *json)
{
	FILE *f = json ? fopen(json, "w") : NULL;

	if (json && !f)
		bench_die(json, errno);
	printf("%-12s %14s %10s   (%d rounds of %d frames)\n", "over veth", "packets/s", "of bare",
	       b->rounds, b->frames);
	for (enum target t = 0; t < N_TARGETS; t++) {
		printf("%-12s %14.0f %10.3f", targets[t].name, median(b->pps[t], b->rounds),
		       ratio(b, t));
		if (t == IPIP || t == IPIP_64K || t == L2)
			printf("   >= %.2f %s", GOAL,
			       ratio(b, t) >= GOAL ? "reached" : "NOT REACHED");
		putchar('\n');
		if (f)
			fprintf(f, "%s\"veth_%s_pps\": %.0f, \"veth_%s\": %.3f", t ? ", " : "{",
				targets[t].name, median(b->pps[t], b->rounds), targets[t].name,
				ratio(b, t));
	}
	if (f) {
		fprintf(f, "}\n");
		if (fclose(f))
			bench_die(json, errno);
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "rounds", 1, 0, 'r' }, { "frames", 1, 0, 'n' }, { "json", 1, 0, 'j' }, { 0 }
	};
	static struct bench b = { .rounds = 15, .frames = 400000 };
	const char *json = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'r')
			b.rounds = atoi(optarg);
		else if (c == 'n')
			b.frames = atoi(optarg);
		else if (c == 'j')
			json = optarg;
		else
			return 2;
	}
	if (b.rounds < 1 || b.rounds > MAX_ROUNDS || b.frames < 1) {
		fprintf(stderr, "bench_veth: rounds 1 to %d, frames from 1\n", MAX_ROUNDS);
		return 2;
	}
	one_cpu();
	make_network(&b);
	b.skel = bench_load(b.far);
	b.skel->data->bench_gen_ifindex = b.near;
	attach(b.near, b.skel->progs.bench_sink);
	for (enum target t = 0; t < N_TARGETS; t++)
		run(&b, t); /* warm */
	for (int r = 0; r < b.rounds; r++)
		for (enum target t = 0; t < N_TARGETS; t++)
			b.pps[t][r] = run(&b, t);
	report(&b, json);
	xdp_bench_bpf__destroy(b.skel);
	return 0;
}
