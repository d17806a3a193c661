/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the balancer costs per packet, as a ratio: X = net time / time of a bare program that swaps
 * MACs and returns TX. Programs run in turns (A B C A B C ...); X is computed in each round from that
 * round's times, because the machine's speed drifts, and the mean of the middle half of the rounds is
 * reported: the kernel reports whole nanoseconds, so a median alone would move in steps.
 * Usage: bench_xdp [--rounds N] [--repeat N] [--json FILE] [--only TEXT]. Needs root. `--only`: the cases that have
 * this in their names.
 */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bench/bench_lb.h"
#include "bench/bench_nat.h"

#define MAX_ROUNDS 101

/* Programs that measure the wrapping, and the yardstick. */
enum base_prog {
	EMPTY,
	BARE,
	PAIR,
	TWO_PAIRS,
	REWRITE,
	REWRITE_NEW,
	WRITE_NAT,
	WRITE_ANSWER,
	DROP,
	REWRITE_DENIED,
	N_BASE
};

static const char *const base_names[N_BASE] = {
	[EMPTY] = "empty",
	[BARE] = "bare MAC swap",
	[PAIR] = "head pair + restore",
	[TWO_PAIRS] = "two head pairs + restore",
	[REWRITE] = "source rewrite",
	[REWRITE_NEW] = "new source",
	[WRITE_NAT] = "packet of NAT",
	[WRITE_ANSWER] = "answer of NAT",
	[DROP] = "bare drop",
	[REWRITE_DENIED] = "denied source",
};

/* What a case's program does beside the balancer's work, to be taken off. */
enum extra {
	ALONE, /* nothing: the program as it is */
	MACS = 1, /* restores MACs and TTL */
	HEAD = 2, /* and takes the outer header off */
	SOURCES = 4, /* writes one of many sources first */
	NEW_SOURCES = 8, /* writes a new source first */
	NAT_PACKET = 16, /* writes addresses, ports and MACs first */
	NAT_ANSWER = 64, /* likewise, to the client */
	DENIED = 32, /* writes a denied source first; X is to the bare drop */
};

/* What the guard has to do in a case. */
enum guard {
	OFF,
	LIMITS, /* per source, packets and SYNs, so high that nobody reaches them */
	LIMITS_NEAR, /* the same, but every source is in a group that is out of tokens, as when all are attackers */
	DENY, /* a million denied prefixes; only where cases say so they are the source's */
	DENY_TRIE /* the same without the index: the trie has to be asked */
};

struct bench_case {
	const char *name, *what;
	const char *prog;
	unsigned extra; /* enum extra */
	uint32_t flows; /* with SOURCES */
	uint8_t vip;
	bool v6, is_syn;
	enum guard guard;
	double goal;
};

static const struct bench_case cases[] = {
	{ "x_ipip_1", "ipip, 1 flow", "bench_lb_v4", MACS | HEAD, 0, VIP, .goal = 2.2 },
	{ "x_ipip_64k", "ipip, 65,536 flows", "bench_lb_v4_flows", MACS | HEAD | SOURCES, 1 << 16,
	  VIP, .goal = 2.6 },
	{ "x_ipip_1m", "ipip, 1,048,576 flows", "bench_lb_v4_flows", MACS | HEAD | SOURCES, 1 << 20,
	  VIP, .goal = 2.6 },
	{ "x_ipip_4m", "ipip, 4,194,304 flows", "bench_lb_v4_flows", MACS | HEAD | SOURCES, 1 << 22,
	  VIP, .goal = 2.6 },
	{ "x_ipip_new", "ipip, each packet a new flow", "bench_lb_v4_new",
	  MACS | HEAD | NEW_SOURCES, 0, VIP, .is_syn = true, .goal = 2.6 },
	{ "x_gue", "gue, 1 flow", "bench_lb_gue", MACS | HEAD, 0, VIP_GUE, .goal = 2.6 },
	{ "x_l2", "l2, 1 flow", "bench_lb_l2", MACS, 0, VIP_L2, .goal = 1.9 },
	{ "x_ipv6", "ipip, IPv6 in IPv6, 1 flow", "bench_lb_v6", MACS | HEAD, 0, VIP, .v6 = true,
	  .goal = 2.4 },
	{ "x_not_ours", "not ours", "xdp_lb", ALONE, 0, NOBODYS, .goal = 1.4 },
	{ "x_not_ours_ipv6", "not ours, IPv6", "xdp_lb", ALONE, 0, NOBODYS, .v6 = true,
	  .goal = 1.4 },
	{ "x_tracked_1", "moved slots, 1 flow", "bench_lb_v4", MACS | HEAD, 0, VIP_TRACKED,
	  .goal = 0 },
	{ "x_tracked_64k", "moved slots, 65,536 known flows", "bench_lb_v4_flows",
	  MACS | HEAD | SOURCES, 1 << 16, VIP_TRACKED, .goal = 5 },
	{ "x_limits_1", "limits per source, 1 flow", "bench_lb_v4", MACS | HEAD, 0, VIP,
	  .guard = LIMITS, .goal = 0 },
	{ "x_limits_64k", "limits per source, 65,536 sources", "bench_lb_v4_flows",
	  MACS | HEAD | SOURCES, 1 << 16, VIP, .guard = LIMITS, .goal = 3.2 },
	{ "x_limits_syn_64k", "limits, SYNs of 65,536 sources", "bench_lb_v4_flows",
	  MACS | HEAD | SOURCES, 1 << 16, VIP, .is_syn = true, .guard = LIMITS, .goal = 3.2 },
	{ "x_limits_near_64k", "limits, 65,536 crowded sources", "bench_lb_v4_flows",
	  MACS | HEAD | SOURCES, 1 << 16, VIP, .guard = LIMITS_NEAR, .goal = 0 },
	{ "x_deny_64k", "denied prefix, 65,536 others", "bench_lb_v4_flows", MACS | HEAD | SOURCES,
	  1 << 16, VIP, .guard = DENY, .goal = 3.2 },
	{ "x_nat_out_1", "nat, to the server, 1 flow", "bench_lb_nat_out", NAT_PACKET, 1, VIP_NAT,
	  .goal = 0 },
	{ "x_nat_back_1", "nat, to the client, 1 flow", "bench_lb_nat_back", NAT_ANSWER, 1, VIP_NAT,
	  .goal = 0 },
	{ "x_nat_out_64k", "nat, to the server, 65,536 flows", "bench_lb_nat_out", NAT_PACKET,
	  BENCH_NAT_FLOWS, VIP_NAT, .goal = 6 },
	{ "x_nat_back_64k", "nat, to the client, 65,536 flows", "bench_lb_nat_back", NAT_ANSWER,
	  BENCH_NAT_FLOWS, VIP_NAT, .goal = 6 },
	{ "x_denied_1", "denied, 1 of 1,048,576 prefixes", "bench_lb_v4_denied", DENIED, 1, VIP,
	  .guard = DENY, .goal = 3 },
	{ "x_denied_1m", "denied, all 1,048,576 prefixes", "bench_lb_v4_denied", DENIED,
	  BENCH_DENIED_N, VIP, .guard = DENY, .goal = 3 },
	{ "x_denied_trie_1", "denied, 1 prefix, by the trie", "bench_lb_v4_denied", DENIED, 1, VIP,
	  .guard = DENY_TRIE, .goal = 0 },
	{ "x_denied_trie_1m", "denied, all prefixes, by the trie", "bench_lb_v4_denied", DENIED,
	  BENCH_DENIED_N, VIP, .guard = DENY_TRIE, .goal = 0 },
};

#define N_CASES (sizeof(cases) / sizeof(cases[0]))

struct bench {
	struct xdp_bench_bpf *skel;
	struct hg_control *control;
	struct hg_source_group *groups;
	struct hg_deny_cells *cells, as_filled[HG_DENY_LINES];
	int base[N_BASE], prog[N_CASES];
	double base_ns[N_BASE][MAX_ROUNDS], ns[N_CASES][MAX_ROUNDS];
	int rounds, repeat;
	const char *only; /* NULL: all cases */
};

struct summary {
	double mid; /* mean of the middle half */
	double median, min, max;
};

static void load(struct bench *b)
{
	struct xdp_bench_bpf *skel = bench_load(1);

	bench_nat(skel);
	bench_deny(skel);
	b->skel = skel;
	b->control = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
			  bpf_map__fd(skel->maps.control), 0);
	if (b->control == MAP_FAILED)
		bench_die("control", errno);
	b->groups = mmap(NULL, HG_LIMIT_COUNT * HG_GROUPS * sizeof(*b->groups),
			 PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(skel->maps.source_groups),
			 0);
	if (b->groups == MAP_FAILED)
		bench_die("source_groups", errno);
	b->cells = mmap(NULL, HG_DENY_LINES * sizeof(*b->cells), PROT_READ | PROT_WRITE, MAP_SHARED,
			bpf_map__fd(skel->maps.deny_cells), 0);
	if (b->cells == MAP_FAILED)
		bench_die("deny_cells", errno);
	memcpy(b->as_filled, b->cells, sizeof(b->as_filled));
	b->base[EMPTY] = bpf_program__fd(skel->progs.bench_empty);
	b->base[BARE] = bpf_program__fd(skel->progs.bench_bare);
	b->base[PAIR] = bpf_program__fd(skel->progs.bench_pair);
	b->base[TWO_PAIRS] = bpf_program__fd(skel->progs.bench_two_pairs);
	b->base[REWRITE] = bpf_program__fd(skel->progs.bench_rewrite);
	b->base[WRITE_NAT] = bpf_program__fd(skel->progs.bench_write_nat);
	b->base[WRITE_ANSWER] = bpf_program__fd(skel->progs.bench_write_answer);
	b->base[DROP] = bpf_program__fd(skel->progs.bench_drop);
	b->base[REWRITE_DENIED] = bpf_program__fd(skel->progs.bench_rewrite_denied);
	b->base[REWRITE_NEW] = bpf_program__fd(skel->progs.bench_rewrite_new);
	for (unsigned i = 0; i < N_CASES; i++)
		b->prog[i] =
			bpf_program__fd(bpf_object__find_program_by_name(skel->obj, cases[i].prog));
}

/*
 * Counts in front of the index say where it is worth to ask: nowhere near the sources of other cases. Limits: 50,000 packets a
 * second and twice as many at once, by a clock of 250 Hz; for a source that sends all there is, none that it could reach.
 */
static void set_guard(const struct bench *b, enum guard guard, bool is_alone)
{
	const bool is_limited = guard == LIMITS || guard == LIMITS_NEAR;
	const uint32_t step = is_alone ? 1 : (250u << HG_LIMIT_FRACTION) / 50000;
	const struct hg_limit limit = { .window = is_alone ? 1ull << 40 : 99999ull * step,
					.step = is_limited ? step : 0 };

	for (unsigned i = 0; i < HG_LIMIT_COUNT; i++)
		b->control->limits[i] = limit;
	for (unsigned i = 0; is_limited && i < HG_LIMIT_COUNT * HG_GROUPS; i++)
		b->groups[i].time = guard == LIMITS_NEAR ? 1ull << 62 : 0;
	b->control->deny_entries[0] = guard == DENY || guard == DENY_TRIE;
	for (uint32_t i = 0; i < BENCH_DENIED_N; i += 64) {
		uint32_t cell = hg_deny_cell(BENCH_DENIED(i), 0);

		b->cells[cell / HG_DENY_LINE].n[cell % HG_DENY_LINE] =
			b->as_filled[cell / HG_DENY_LINE].n[cell % HG_DENY_LINE] |
			(guard == DENY_TRIE ? HG_DENY_REST : 0);
	}
}

/* Nanoseconds per run; the kernel rounds down, hence the half. */
static double run(const struct bench *b, int prog, const struct bench_case *c, uint32_t want)
{
	uint8_t packet[128], out[256];
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = packet, .data_out = out,
		    .data_size_out = sizeof(out), .repeat = b->repeat);
	int rc;

	o.data_size_in = (uint32_t)bench_packet(packet, c->v6, c->vip, c->is_syn);
	set_guard(b, c->guard, !c->flows);
	if (c->flows)
		b->skel->data->bench_flow_mask = c->flows - 1;
	rc = bpf_prog_test_run_opts(prog, &o);
	if (rc)
		bench_die("test run", rc);
	if (o.retval != want || b->skel->bss->bench_nat_other) {
		fprintf(stderr, "bench_xdp: %s returned %u\n", c->what, o.retval);
		exit(1);
	}
	return o.duration + 0.5;
}

static bool is_wanted(const struct bench *b, const struct bench_case *c)
{
	return !b->only || strstr(c->name, b->only);
}

static void run_all(struct bench *b, int round)
{
	for (unsigned i = 0; i < N_BASE; i++)
		b->base_ns[i][round] = run(b, b->base[i], &cases[0],
					   i == DROP || i == REWRITE_DENIED ? XDP_DROP : XDP_TX);
	for (unsigned i = 0; i < N_CASES; i++)
		if (is_wanted(b, &cases[i]))
			b->ns[i][round] = run(b, b->prog[i], &cases[i],
					      cases[i].vip == NOBODYS	? XDP_PASS
					      : cases[i].extra & DENIED ? XDP_DROP
									: XDP_TX);
}

static void measure(struct bench *b)
{
	run_all(b, 0); /* warm */
	for (int r = 0; r < b->rounds; r++)
		run_all(b, r);
}

static int cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts a copy of `v`. */
static struct summary summarise(const double *v, int n)
{
	double s[MAX_ROUNDS], sum = 0;
	int from = n / 4, to = n - n / 4;

	memcpy(s, v, sizeof(double) * (size_t)n);
	qsort(s, (size_t)n, sizeof(double), cmp);
	for (int i = from; i < to; i++)
		sum += s[i];
	return (struct summary){
		.mid = sum / (to - from), .median = s[n / 2], .min = s[0], .max = s[n - 1]
	};
}

struct result {
	double adjust, undo, rewrite[2], write_nat, write_answer, write_denied;
	struct summary base[N_BASE], prog[N_CASES], x[N_CASES];
};

/* Nanoseconds that are the wrapper's and not the balancer's. */
static double extra_ns(const struct result *r, const struct bench_case *c)
{
	double ns = 0;

	/* A pair is two moves of the head, one of them the balancer's own; the rest is restoring. */
	if (c->extra & MACS)
		ns += r->undo - r->adjust;
	if (c->extra & HEAD)
		ns += r->adjust;
	if (c->extra & SOURCES)
		ns += r->rewrite[0];
	if (c->extra & NEW_SOURCES)
		ns += r->rewrite[1];
	if (c->extra & NAT_PACKET)
		ns += r->write_nat;
	if (c->extra & NAT_ANSWER)
		ns += r->write_answer;
	if (c->extra & DENIED)
		ns += r->write_denied;
	return ns;
}

static void evaluate(const struct bench *b, struct result *r)
{
	double x[MAX_ROUNDS];

	for (unsigned i = 0; i < N_BASE; i++)
		r->base[i] = summarise(b->base_ns[i], b->rounds);
	r->adjust = (r->base[TWO_PAIRS].mid - r->base[PAIR].mid) / 2;
	r->undo = r->base[PAIR].mid - r->base[EMPTY].mid - r->adjust;
	r->write_nat = r->base[WRITE_NAT].mid - r->base[EMPTY].mid;
	r->write_answer = r->base[WRITE_ANSWER].mid - r->base[EMPTY].mid;
	r->write_denied = r->base[REWRITE_DENIED].mid - r->base[DROP].mid;
	r->rewrite[0] = r->base[REWRITE].mid - r->base[EMPTY].mid;
	r->rewrite[1] = r->base[REWRITE_NEW].mid - r->base[EMPTY].mid;
	for (unsigned i = 0; i < N_CASES; i++) {
		r->prog[i] = summarise(b->ns[i], b->rounds);
		for (int k = 0; k < b->rounds; k++) {
			enum base_prog unit = cases[i].extra & DENIED ? DROP : BARE;
			double bare = b->base_ns[unit][k], scale = bare / r->base[unit].mid;

			x[k] = (b->ns[i][k] - extra_ns(r, &cases[i]) * scale) / bare;
		}
		r->x[i] = summarise(x, b->rounds);
	}
}

static void print_row(const char *name, const struct summary *s)
{
	printf("%-32s %8.1f %8.1f %8.1f %8.1f\n", name, s->mid, s->median, s->min, s->max);
}

static void print_table(const struct bench *b, const struct result *r)
{
	printf("%-32s %8s %8s %8s %8s   (%d rounds of %d)\n", "ns per packet, wrapped", "mid",
	       "median", "min", "max", b->rounds, b->repeat);
	for (unsigned i = 0; i < N_BASE; i++)
		print_row(base_names[i], &r->base[i]);
	for (unsigned i = 0; i < N_CASES; i++)
		if (is_wanted(b, &cases[i]))
			print_row(cases[i].what, &r->prog[i]);
	printf("one adjust_head %.1f, undo %.1f\n\n", r->adjust, r->undo);
	printf("%-32s %8s %8s %8s %8s %8s\n", "X: times the bare program", "mid", "median", "min",
	       "max", "goal");
	for (unsigned i = 0; i < N_CASES; i++) {
		if (!is_wanted(b, &cases[i]))
			continue;
		printf("%-32s %8.2f %8.2f %8.2f %8.2f ", cases[i].what, r->x[i].mid, r->x[i].median,
		       r->x[i].min, r->x[i].max);
		if (cases[i].goal > 0)
			printf("%8.1f  %s\n", cases[i].goal,
			       r->x[i].mid <= cases[i].goal ? "reached" : "NOT REACHED");
		else
			printf("%8s\n", "");
	}
}

static void write_summary(FILE *f, const char *name, const struct summary *s, const char *sep)
{
	fprintf(f,
		"%s{\"name\": \"%s\", \"mid\": %.3f, \"median\": %.3f, \"min\": %.3f, \"max\": "
		"%.3f}",
		sep, name, s->mid, s->median, s->min, s->max);
}

static void write_json(const struct bench *b, const struct result *r, const char *path)
{
	FILE *f = fopen(path, "w");

	if (!f)
		bench_die(path, errno);
	fputc('{', f);
	for (unsigned i = 0; i < N_CASES; i++)
		fprintf(f, "\"%s\": %.3f, ", cases[i].name, r->x[i].mid);
	fprintf(f, "\"goals\": {");
	for (unsigned i = 0, n = 0; i < N_CASES; i++)
		if (cases[i].goal > 0)
			fprintf(f, "%s\"%s\": %.1f", n++ ? ", " : "", cases[i].name, cases[i].goal);
	fprintf(f,
		"}, \"details\": {\"rounds\": %d, \"repeat\": %d, \"adjust_head_ns\": %.2f, "
		"\"undo_ns\": %.2f, \"programs_ns\": [",
		b->rounds, b->repeat, r->adjust, r->undo);
	for (unsigned i = 0; i < N_BASE; i++)
		write_summary(f, base_names[i], &r->base[i], i ? ", " : "");
	for (unsigned i = 0; i < N_CASES; i++)
		write_summary(f, cases[i].what, &r->prog[i], ", ");
	fprintf(f, "], \"ratios\": [");
	for (unsigned i = 0; i < N_CASES; i++)
		write_summary(f, cases[i].name, &r->x[i], i ? ", " : "");
	fprintf(f, "]}}\n");
	if (fclose(f))
		bench_die(path, errno);
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "rounds", 1, 0, 'r' },
						 { "repeat", 1, 0, 'n' },
						 { "json", 1, 0, 'j' },
						 { "only", 1, 0, 'o' },
						 { 0 } };
	static struct bench b = { .rounds = 41, .repeat = 300000 };
	const char *json = NULL;
	static struct result r;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'r')
			b.rounds = atoi(optarg);
		else if (c == 'n')
			b.repeat = atoi(optarg);
		else if (c == 'j')
			json = optarg;
		else if (c == 'o')
			b.only = optarg;
		else
			return 2;
	}
	if (b.rounds < 1 || b.rounds > MAX_ROUNDS || b.repeat < 1) {
		fprintf(stderr, "bench_xdp: rounds 1 to %d, repeat from 1\n", MAX_ROUNDS);
		return 2;
	}
	load(&b);
	measure(&b);
	evaluate(&b, &r);
	print_table(&b, &r);
	if (json)
		write_json(&b, &r, json);
	xdp_bench_bpf__destroy(b.skel);
	return 0;
}
