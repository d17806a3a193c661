/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/bench_lb.h"
#include "bench/bench_nat.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <headgate/backend.h>
#include <headgate/flow.h>
#include <headgate/guard.h>
#include <headgate/limits.h>
#include <headgate/nat.h>
#include <headgate/service.h>

#define SEED	   0x1234567
#define SLOTS	   65537
#define BACKENDS   100
#define BLOCKS	   ((SLOTS + 15) / 16)
#define BUCKETS	   1024
#define SERVICES   16
#define LINES	   HG_FLOW_LINES_DEFAULT /* 82 k entries for 64 k flows */
#define NAT_ROWS   HG_NAT_CONNS_DEFAULT
#define DENY_LINES (BENCH_DENIED_N / HG_DENY_PER_LINE)

static uint32_t denied_in_trie;

void bench_die(const char *what, int err)
{
	fprintf(stderr, "benchmark: %s: %s\n", what, strerror(err < 0 ? -err : err));
	exit(1);
}

static void *map(const struct bpf_map *m)
{
	size_t bytes = (size_t)bpf_map__value_size(m) * bpf_map__max_entries(m);
	void *p = mmap(NULL, (bytes + 4095) & ~4095ul, PROT_READ | PROT_WRITE, MAP_SHARED,
		       bpf_map__fd(m), 0);

	if (p == MAP_FAILED)
		bench_die(bpf_map__name(m), errno);
	return p;
}

size_t bench_packet(uint8_t *p, bool v6, uint8_t last, bool is_syn)
{
	const uint8_t tcp[20] = { 0x9c, 0x40, 0x00, 0x50, [12] = 0x50, is_syn ? 0x02 : 0x10 };

	memset(p, 0, BENCH_PACKET_MAX);
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

static void add_backend(struct hg_backend *table, uint32_t id, bool v6, uint32_t ifindex)
{
	struct hg_backend b = { .ifindex = ifindex,
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

/* Runs `prog` on a packet that ends up in `out`. */
static void nat_run(const struct bpf_program *prog, uint8_t *packet, size_t len, int repeat,
		    uint8_t *out)
{
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = packet, .data_size_in = (uint32_t)len,
		    .data_out = out, .data_size_out = BENCH_PACKET_MAX, .repeat = repeat);
	int rc = bpf_prog_test_run_opts(bpf_program__fd(prog), &o);

	if (rc || o.retval != 3) /* XDP_TX */
		bench_die("a NAT connection does not begin", rc ? rc : EINVAL);
}

/* Sends the SYN of flow i; what the program makes of it says where the flow's answers come from. */
static void nat_begin(struct xdp_bench_bpf *skel, struct bench_nat_flow *f, uint32_t i)
{
	uint8_t packet[BENCH_PACKET_MAX], out[BENCH_PACKET_MAX];
	const uint32_t client = BENCH_NAT_CLIENT(i);
	const uint16_t port = BENCH_NAT_PORT(i);
	size_t len = bench_packet(packet, false, VIP_NAT, true);

	memcpy(packet + 26, &client, 4);
	memcpy(packet + 34, &port, 2);
	nat_run(skel->progs.xdp_lb, packet, len, 1, out);
	memcpy(&f->edge_port, out + 34, 2);
	f->backend = out[33]; /* as of BENCH_NAT_BACKEND() */
}

/* Answers and their ACKs: by the wrappers, which go through all flows. */
static void nat_establish(struct xdp_bench_bpf *skel)
{
	uint8_t packet[BENCH_PACKET_MAX], out[BENCH_PACKET_MAX];
	size_t len = bench_packet(packet, false, VIP_NAT, false);

	skel->data->bench_flow_mask = BENCH_NAT_FLOWS - 1;
	packet[47] = 0x12; /* SYN, ACK */
	nat_run(skel->progs.bench_lb_nat_back, packet, len, BENCH_NAT_FLOWS, out);
	packet[47] = 0x10;
	nat_run(skel->progs.bench_lb_nat_out, packet, len, BENCH_NAT_FLOWS, out);
	if (skel->bss->bench_nat_other)
		bench_die("a NAT connection is not established", EINVAL);
}

void bench_nat(struct xdp_bench_bpf *skel)
{
	static struct bench_nat_flow begun[BENCH_NAT_FLOWS];
	struct bench_nat_flow *flows = map(skel->maps.bench_nat_flows);
	struct hg_nat_service *services = map(skel->maps.nat_services);
	struct hg_nat_control *control = map(skel->maps.nat_control);
	const uint32_t n_ports = HG_NAT_PORT_LAST - HG_NAT_PORT_FIRST + 1;

	services[(VIP_NAT - VIP) * 2] = (struct hg_nat_service){ .port_first = HG_NAT_PORT_FIRST,
								 .n_ports = (uint16_t)n_ports,
								 .idle_ticks = HG_NAT_IDLE_MAX };
	control->port_first = HG_NAT_PORT_FIRST;
	control->n_ports = n_ports;
	for (uint32_t i = 0; i < BENCH_NAT_FLOWS; i++)
		nat_begin(skel, &begun[i], i);
	for (uint32_t i = 0; i < BENCH_NAT_FLOWS; i++)
		flows[i] = begun[BENCH_NAT_FLOW(i) & (BENCH_NAT_FLOWS - 1)];
	nat_establish(skel);
}

static void fill_maps(struct xdp_bench_bpf *skel, uint32_t ifindex)
{
	struct hg_service *services = map(skel->maps.services);
	struct hg_slot_block *slots = map(skel->maps.slots);
	struct hg_backend *backends = map(skel->maps.backends);

	for (uint32_t i = 1; i <= BACKENDS; i++) {
		add_backend(backends, i, false, ifindex);
		add_backend(backends, BACKENDS + i, true, ifindex);
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
	add_service(services, false, VIP_NAT, HG_MODE_NAT);
	fill_flows(map(skel->maps.flows));
}

struct xdp_bench_bpf *bench_load(uint32_t ifindex)
{
	struct xdp_bench_bpf *skel = xdp_bench_bpf__open();
	uint32_t cpus = (uint32_t)libbpf_num_possible_cpus();
	int rc;

	if (!skel)
		bench_die("open", errno);
	skel->rodata->ro = (struct hg_rodata){
		.n_cpus = cpus,
		.service_mask = BUCKETS - 1,
		.hash_seed = SEED,
		.max_services = SERVICES,
		.max_backends = 2 * BACKENDS + 1,
		.flow_mask = LINES - 1,
		.deny_mask = DENY_LINES - 1,
		.tick_shift = 8,
		.fragment_ticks = HG_RODATA_DEFAULT_FRAGMENT_TICKS,
		.flow_idle_ticks = HG_RODATA_DEFAULT_FLOW_IDLE,
		.learn_per_jiffy = HG_RODATA_DEFAULT_LEARN,
		.icmp_per_jiffy = HG_RODATA_DEFAULT_ICMP,
		.nat_mask = NAT_ROWS - 1,
		.nat_line_mask = HG_NAT_LINES(NAT_ROWS) - 1,
	};
	bpf_map__set_max_entries(skel->maps.services, 2 * BUCKETS);
	bpf_map__set_max_entries(skel->maps.slots, 3 * BLOCKS);
	bpf_map__set_max_entries(skel->maps.flows, LINES);
	bpf_map__set_max_entries(skel->maps.deny_index, DENY_LINES);
	bpf_map__set_max_entries(skel->maps.xdp_cpus, cpus);
	bpf_map__set_max_entries(skel->maps.backends, 2 * BACKENDS + 1);
	bpf_map__set_max_entries(skel->maps.xdp_services, SERVICES * cpus);
	bpf_map__set_max_entries(skel->maps.xdp_backends, (2 * BACKENDS + 1) * cpus);
	bpf_map__set_max_entries(skel->maps.xdp_verdicts, cpus);
	bpf_map__set_max_entries(skel->maps.nat_conns, NAT_ROWS);
	bpf_map__set_max_entries(skel->maps.nat_addrs, NAT_ROWS);
	bpf_map__set_max_entries(skel->maps.nat_lines, HG_NAT_LINES(NAT_ROWS));
	bpf_map__set_max_entries(skel->maps.nat_tickets, NAT_ROWS);
	bpf_map__set_max_entries(skel->maps.nat_ticks, HG_NAT_TICK_LINES(NAT_ROWS));
	bpf_map__set_max_entries(skel->maps.nat_hints, HG_NAT_HINT_LINES(NAT_ROWS));
	bpf_map__set_max_entries(skel->maps.nat_paths, HG_NAT_PATHS(NAT_ROWS));
	bpf_map__set_max_entries(skel->maps.nat_services, SERVICES);
	bpf_map__set_max_entries(skel->maps.live_services, SERVICES);
	bpf_map__set_max_entries(skel->maps.live_backends, 2 * BACKENDS + 1);
	rc = xdp_bench_bpf__load(skel);
	if (rc)
		bench_die("load (root?)", rc);
	fill_maps(skel, ifindex);
	return skel;
}

static void index_denied(struct hg_deny_line *lines, uint32_t addr)
{
	struct hg_deny_place at = hg_deny_place(0, addr, 0, BENCH_DENIED_BITS, 0);

	for (uint32_t step = 0; step < HG_DENY_DOORS; step++) {
		struct hg_deny_line *line = &lines[(at.line & (DENY_LINES - 1)) ^ step];

		for (uint32_t way = 0; way < HG_DENY_WAYS; way++) {
			if (line->word[way])
				continue;
			line->word[way] = at.prefix;
			lines[at.line & (DENY_LINES - 1)].next_door += step ? 1ull << 8 * step : 0;
			return;
		}
	}
	denied_in_trie++;
}

/* As the datapath's writer leaves them. */
void bench_deny(struct xdp_bench_bpf *skel)
{
	struct hg_deny_cells *cells = map(skel->maps.deny_cells);
	struct hg_deny_line *lines = map(skel->maps.deny_index);
	struct hg_control *control = map(skel->maps.control);
	struct hg_deny d = { .origin = HG_DENY_FILE, .bits = BENCH_DENIED_BITS };

	for (uint32_t i = 0; i < BENCH_DENIED_N; i++) {
		struct hg_deny4_key k = { .bits = BENCH_DENIED_BITS,
					  .addr = htonl(BENCH_DENIED(i)) };
		uint32_t cell = hg_deny_cell(BENCH_DENIED(i), 0), before = denied_in_trie;
		int rc = bpf_map_update_elem(bpf_map__fd(skel->maps.deny4), &k, &d, BPF_ANY);

		if (rc)
			bench_die("deny4", rc);
		index_denied(lines, BENCH_DENIED(i));
		cells[cell / HG_DENY_LINE].n[cell % HG_DENY_LINE] |= before == denied_in_trie
									     ? 1
									     : 1 | HG_DENY_REST;
	}
	control->deny_lengths[0][0] = BENCH_DENIED_BITS << HG_DENY_LENGTH | BENCH_DENIED_N;
	printf("%u denied prefixes, %u of them in the trie only\n", BENCH_DENIED_N, denied_in_trie);
}
