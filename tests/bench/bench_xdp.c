/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the balancer costs per packet, as a ratio: X = net time / time of a bare program that swaps
 * MACs and returns TX. Programs run in turns (A B C A B C ...); X is computed in each round from that
 * round's times, because the machine's speed drifts, and the mean of the middle half of the rounds is
 * reported: the kernel reports whole nanoseconds, so a median alone would move in steps.
 * Usage: bench_xdp [--rounds N] [--repeat N] [--json FILE]. Needs root.
 */
#include <arpa/inet.h>
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

#include <headgate/backend.h>
#include <headgate/flow.h>
#include <headgate/limits.h>
#include <headgate/service.h>

#include "xdp_bench.skel.h"

#define SEED	   0x1234567
#define SLOTS	   65537
#define BACKENDS   100
#define BLOCKS	   ((SLOTS + 15) / 16)
#define BUCKETS	   1024
#define LINES	   HG_FLOW_LINES_DEFAULT /* 82 k entries for 64 k flows */
#define MAX_ROUNDS 101

enum which {
	EMPTY,
	BARE,
	PAIR,
	TWO_PAIRS,
	REWRITE,
	LB_V4,
	LB_FLOWS,
	LB_V6,
	LB_GUE,
	LB_L2,
	LB_TRACKED_1,
	LB_TRACKED,
	NOT_OURS,
	NOT_OURS_V6,
	N_PROGS
};

static const char *const names[N_PROGS] = {
	"empty",
	"bare MAC swap",
	"head pair + restore",
	"two head pairs + restore",
	"source rewrite",
	"ipip 1 flow, wrapped",
	"ipip 64k flows, wrapped",
	"ipv6 1 flow, wrapped",
	"gue 1 flow, wrapped",
	"l2 1 flow, wrapped",
	"tracked 1 flow, wrapped",
	"tracked 64k flows, wrapped",
	"not ours",
	"not ours, IPv6",
};

struct bench {
	struct xdp_bench_bpf *skel;
	int prog[N_PROGS];
	double ns[N_PROGS][MAX_ROUNDS];
	int rounds, repeat;
};

struct summary {
	double mid; /* mean of the middle half */
	double median, min, max;
};

static void die(const char *what, int err)
{
	fprintf(stderr, "bench_xdp: %s: %s\n", what, strerror(err < 0 ? -err : err));
	exit(1);
}

static void *map(const struct bpf_map *m)
{
	size_t bytes = (size_t)bpf_map__value_size(m) * bpf_map__max_entries(m);
	void *p = mmap(NULL, (bytes + 4095) & ~4095ul, PROT_READ | PROT_WRITE, MAP_SHARED,
		       bpf_map__fd(m), 0);

	if (p == MAP_FAILED)
		die(bpf_map__name(m), errno);
	return p;
}

/* 64-byte TCP packets: Ethernet, IP, TCP, nothing else. Checksums are not looked at. */
static size_t make_packet(uint8_t *p, bool v6, uint8_t last)
{
	static const uint8_t tcp[20] = { 0x9c, 0x40, 0x00, 0x50, [12] = 0x50, 0x10 };

	memset(p, 0, 128);
	p[0] = 2;
	p[12] = v6 ? 0x86 : 0x08;
	p[13] = v6 ? 0xdd : 0x00;
	if (v6) {
		p[14] = 0x60;
		p[19] = 20;
		p[20] = 6;
		p[21] = 64;
		p[22] = 0x20;
		p[37] = 7;
		p[38] = 0x20;
		p[53] = last;
		memcpy(p + 54, tcp, 20);
		return 74;
	}
	memcpy(p + 14, (uint8_t[]){ 0x45, 0, 0,	  40, 0,   0, 0,   0, 64, 6,
				    0,	  0, 203, 0,  113, 7, 192, 0, 2,  last },
	       20);
	memcpy(p + 34, tcp, 20);
	return 60;
}

/* Last byte of the service addresses, beside 10 for IP in IP. */
#define VIP	    10
#define VIP_GUE	    11
#define VIP_L2	    12
#define VIP_TRACKED 13

static void add_service(struct hg_service *table, bool v6, uint8_t last, uint8_t mode)
{
	struct hg_service s = { .mode = mode,
				.id = (uint32_t)(last - VIP) * 2 + v6,
				.slots = SLOTS };
	uint8_t *a = (uint8_t *)s.key.addr;
	uint32_t i;

	if (v6)
		a[0] = 0x20;
	else
		memcpy(a + 10, (uint8_t[]){ 0xff, 0xff, 192, 0, 2 }, 5);
	a[15] = last;
	s.key.port = htons(80);
	s.key.proto = 6;
	s.slots_block = v6 ? BLOCKS : last == VIP_TRACKED ? 2 * BLOCKS : 0;
	for (i = hg_service_hash(&s.key) % BUCKETS; table[i].mode; i = (i + 1) % BUCKETS)
		;
	table[i] = s;
}

static void add_backend(struct hg_backend *table, uint32_t id, bool v6)
{
	struct hg_backend b = { .ifindex = 1,
				.mtu = 1500,
				.id = id,
				.flags = HG_BE_VALID | HG_BE_ALIVE | (v6 ? HG_BE_OUTER_V6 : 0) };

	b.addr[2] = b.outer_src[2] = htonl(v6 ? 0 : 0xffff);
	b.addr[3] = htonl(0x0a000100 + id);
	b.outer_src[3] = htonl(0x0aff0000);
	b.entropy_mask = htonl(v6 ? 0 : 0xffff);
	b.neigh.mac[0] = 2;
	b.neigh.mac[5] = (uint8_t)id;
	b.neigh.state = HG_NEIGH_OK;
	hg_backend_seal(&b);
	table[id] = b;
}

/* The flows of the wrapper, all remembered, as they are after some time in moved slots. */
static void fill_flows(struct hg_line *lines)
{
	struct hg_flow_key k = { .dport = htons(80), .proto = 6 };

	k.src[2] = k.dst[2] = htonl(0xffff);
	k.dst[3] = htonl(0xc0000200 | VIP_TRACKED);
	for (uint32_t i = 0; i < 65536; i++) {
		struct hg_line *l;
		uint64_t hash;
		uint32_t at, w;

		k.src[3] = 0x0a000000u | i;
		k.sport = (uint16_t)(i * 7);
		hash = hg_flow_hash(&k, SEED);
		at = hg_line_of(hash, LINES - 1);
		for (w = 0; w < 2 * HG_LINE_WAYS; w++) {
			l = &lines[w < HG_LINE_WAYS ? at : HG_LINE_NEIGHBOUR(at)];
			if (!l->word[w % HG_LINE_WAYS])
				break;
		}
		if (w == 2 * HG_LINE_WAYS)
			continue;
		l->word[w % HG_LINE_WAYS] = HG_WORD_MAKE(hash, i % BACKENDS + 1);
		l->meta[w % HG_LINE_WAYS] = HG_META_MAKE(HG_FLOW_CONFIRMED, 6, 0);
	}
}

static void fill_maps(struct xdp_bench_bpf *skel)
{
	struct hg_service *services = map(skel->maps.services);
	struct hg_slot_block *slots = map(skel->maps.slots);
	struct hg_backend *backends = map(skel->maps.backends);

	for (uint32_t i = 1; i <= BACKENDS; i++) {
		add_backend(backends, i, false);
		add_backend(backends, BACKENDS + i, true);
	}
	for (uint32_t i = 0; i < SLOTS; i++) {
		uint32_t id = i % BACKENDS + 1, other = (i + 1) % BACKENDS + 1;

		slots[i / 16].slot[i % 16] = HG_SLOT_MAKE(id, id);
		slots[2 * BLOCKS + i / 16].slot[i % 16] = HG_SLOT_TRACKED | HG_SLOT_MAKE(other, id);
		slots[BLOCKS + i / 16].slot[i % 16] = HG_SLOT_MAKE(BACKENDS + id, BACKENDS + id);
	}
	add_service(services, false, VIP, HG_MODE_IPIP);
	add_service(services, true, VIP, HG_MODE_IPIP);
	add_service(services, false, VIP_GUE, HG_MODE_GUE);
	add_service(services, false, VIP_L2, HG_MODE_L2);
	add_service(services, false, VIP_TRACKED, HG_MODE_IPIP);
	fill_flows(map(skel->maps.flows));
}

static void load(struct bench *b)
{
	struct xdp_bench_bpf *skel = xdp_bench_bpf__open();
	uint32_t cpus = (uint32_t)libbpf_num_possible_cpus();
	int rc;

	if (!skel)
		die("open", errno);
	skel->rodata->ro = (struct hg_rodata){
		.n_cpus = cpus,
		.service_mask = BUCKETS - 1,
		.hash_seed = SEED,
		.max_services = 8,
		.max_backends = 2 * BACKENDS + 1,
		.flow_mask = LINES - 1,
		.tick_shift = 8,
		.fragment_ticks = HG_RODATA_DEFAULT_FRAGMENT_TICKS,
		.flow_idle_ticks = HG_RODATA_DEFAULT_FLOW_IDLE,
		.learn_per_jiffy = HG_RODATA_DEFAULT_LEARN,
		.icmp_per_jiffy = HG_RODATA_DEFAULT_ICMP,
	};
	bpf_map__set_max_entries(skel->maps.services, 2 * BUCKETS);
	bpf_map__set_max_entries(skel->maps.slots, 3 * BLOCKS);
	bpf_map__set_max_entries(skel->maps.flows, LINES);
	bpf_map__set_max_entries(skel->maps.xdp_cpus, cpus);
	bpf_map__set_max_entries(skel->maps.backends, 2 * BACKENDS + 1);
	bpf_map__set_max_entries(skel->maps.xdp_services, 8 * cpus);
	bpf_map__set_max_entries(skel->maps.xdp_backends, (2 * BACKENDS + 1) * cpus);
	bpf_map__set_max_entries(skel->maps.xdp_verdicts, cpus);
	rc = xdp_bench_bpf__load(skel);
	if (rc)
		die("load (root?)", rc);
	fill_maps(skel);
	b->skel = skel;
	b->prog[EMPTY] = bpf_program__fd(skel->progs.bench_empty);
	b->prog[BARE] = bpf_program__fd(skel->progs.bench_bare);
	b->prog[PAIR] = bpf_program__fd(skel->progs.bench_pair);
	b->prog[TWO_PAIRS] = bpf_program__fd(skel->progs.bench_two_pairs);
	b->prog[REWRITE] = bpf_program__fd(skel->progs.bench_rewrite);
	b->prog[LB_V4] = bpf_program__fd(skel->progs.bench_lb_v4);
	b->prog[LB_FLOWS] = bpf_program__fd(skel->progs.bench_lb_v4_flows);
	b->prog[LB_GUE] = bpf_program__fd(skel->progs.bench_lb_gue);
	b->prog[LB_L2] = bpf_program__fd(skel->progs.bench_lb_l2);
	b->prog[LB_TRACKED_1] = bpf_program__fd(skel->progs.bench_lb_v4);
	b->prog[LB_TRACKED] = b->prog[LB_FLOWS];
	b->prog[LB_V6] = bpf_program__fd(skel->progs.bench_lb_v6);
	b->prog[NOT_OURS] = b->prog[NOT_OURS_V6] = bpf_program__fd(skel->progs.xdp_lb);
}

/* Nanoseconds per run; the kernel rounds down, hence the half. */
static double run(const struct bench *b, enum which w)
{
	bool v6 = w == LB_V6 || w == NOT_OURS_V6, ours = w != NOT_OURS && w != NOT_OURS_V6;
	uint8_t packet[128], out[256];
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = packet, .data_out = out,
		    .data_size_out = sizeof(out), .repeat = b->repeat);
	int rc;

	o.data_size_in = (uint32_t)make_packet(packet, v6,
					       !ours				      ? 99
					       : w == LB_GUE			      ? VIP_GUE
					       : w == LB_L2			      ? VIP_L2
					       : w == LB_TRACKED || w == LB_TRACKED_1 ? VIP_TRACKED
										      : VIP);
	rc = bpf_prog_test_run_opts(b->prog[w], &o);
	if (rc)
		die("test run", rc);
	if (o.retval != (ours ? XDP_TX : XDP_PASS)) {
		fprintf(stderr, "bench_xdp: %s returned %u\n", names[w], o.retval);
		exit(1);
	}
	return o.duration + 0.5;
}

static int cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(struct bench *b)
{
	for (int w = 0; w < N_PROGS; w++)
		run(b, w); /* warm */
	for (int r = 0; r < b->rounds; r++)
		for (int w = 0; w < N_PROGS; w++)
			b->ns[w][r] = run(b, w);
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

enum {
	X_IPIP_1,
	X_IPIP_64K,
	X_NOT_OURS,
	X_IPV6,
	X_NOT_OURS_V6,
	X_GUE,
	X_L2,
	X_TRACKED_1,
	X_TRACKED_64K,
	N_X
};

static const char *const x_names[N_X] = { "x_ipip_1", "x_ipip_64k",	 "x_not_ours",
					  "x_ipv6",   "x_not_ours_ipv6", "x_gue",
					  "x_l2",     "x_tracked_1",	 "x_tracked_64k" };

struct result {
	double adjust, undo;
	struct summary prog[N_PROGS], x[N_X];
};

/*
 * A head pair and the restoring cost what "pair" takes beyond "empty"; half of a pair is the
 * balancer's own, the rest is undoing.
 */
static void evaluate(const struct bench *b, struct result *r)
{
	double x[N_X][MAX_ROUNDS], rewrite;

	for (int w = 0; w < N_PROGS; w++)
		r->prog[w] = summarise(b->ns[w], b->rounds);
	r->adjust = (r->prog[TWO_PAIRS].mid - r->prog[PAIR].mid) / 2;
	r->undo = r->prog[PAIR].mid - r->prog[EMPTY].mid - r->adjust;
	rewrite = r->prog[REWRITE].mid - r->prog[EMPTY].mid;
	for (int i = 0; i < b->rounds; i++) {
		double bare = b->ns[BARE][i], scale = bare / r->prog[BARE].mid;

		x[X_IPIP_1][i] = (b->ns[LB_V4][i] - r->undo * scale) / bare;
		x[X_IPIP_64K][i] = (b->ns[LB_FLOWS][i] - (r->undo + rewrite) * scale) / bare;
		x[X_NOT_OURS][i] = b->ns[NOT_OURS][i] / bare;
		x[X_IPV6][i] = (b->ns[LB_V6][i] - r->undo * scale) / bare;
		x[X_NOT_OURS_V6][i] = b->ns[NOT_OURS_V6][i] / bare;
		x[X_GUE][i] = (b->ns[LB_GUE][i] - r->undo * scale) / bare;
		/* No head was moved: only the restoring is undone. */
		x[X_L2][i] = (b->ns[LB_L2][i] - (r->undo - r->adjust) * scale) / bare;
		x[X_TRACKED_1][i] = (b->ns[LB_TRACKED_1][i] - r->undo * scale) / bare;
		x[X_TRACKED_64K][i] = (b->ns[LB_TRACKED][i] - (r->undo + rewrite) * scale) / bare;
	}
	for (int i = 0; i < N_X; i++)
		r->x[i] = summarise(x[i], b->rounds);
}

static void print_table(const struct bench *b, const struct result *r)
{
	printf("%-26s %8s %8s %8s %8s   (%d rounds of %d)\n", "ns per packet", "mid", "median",
	       "min", "max", b->rounds, b->repeat);
	for (int w = 0; w < N_PROGS; w++)
		printf("%-26s %8.1f %8.1f %8.1f %8.1f\n", names[w], r->prog[w].mid,
		       r->prog[w].median, r->prog[w].min, r->prog[w].max);
	printf("one adjust_head %.1f, undo %.1f\n\n", r->adjust, r->undo);
	for (int i = 0; i < N_X; i++)
		printf("%-26s %8.2f %8.2f %8.2f %8.2f\n", x_names[i], r->x[i].mid, r->x[i].median,
		       r->x[i].min, r->x[i].max);
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
		die(path, errno);
	fputc('{', f);
	for (int i = 0; i < N_X; i++)
		fprintf(f, "\"%s\": %.3f, ", x_names[i], r->x[i].mid);
	fprintf(f,
		"\"details\": {\"rounds\": %d, \"repeat\": %d, \"adjust_head_ns\": %.2f, "
		"\"undo_ns\": %.2f, "
		"\"programs_ns\": [",
		b->rounds, b->repeat, r->adjust, r->undo);
	for (int w = 0; w < N_PROGS; w++)
		write_summary(f, names[w], &r->prog[w], w ? ", " : "");
	fprintf(f, "], \"ratios\": [");
	for (int i = 0; i < N_X; i++)
		write_summary(f, x_names[i], &r->x[i], i ? ", " : "");
	fprintf(f, "]}}\n");
	if (fclose(f))
		die(path, errno);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "rounds", 1, 0, 'r' }, { "repeat", 1, 0, 'n' }, { "json", 1, 0, 'j' }, { 0 }
	};
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
