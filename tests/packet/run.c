/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loads the balancer with small maps and gives the tests typed access to them.
 */
#include "packet/run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include <cmocka.h>

#include "xdp_decap.skel.h"
#include "xdp_lb.skel.h"

#define LB_BLOCKS 8192

static size_t page_round(size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (n + page - 1) / page * page;
}

void *map_mmap(const struct bpf_map *map, size_t bytes)
{
	void *p = mmap(NULL, page_round(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
		       bpf_map__fd(map), 0);

	if (p == MAP_FAILED)
		fail_msg("mmap of map %s: %s", bpf_map__name(map), strerror(errno));
	return p;
}

void map_resize(struct bpf_map *map, uint32_t entries)
{
	int rc = bpf_map__set_max_entries(map, entries);

	if (rc)
		fail_msg("resize of map %s: %s", bpf_map__name(map), strerror(-rc));
}

/* The kernel takes only devices that exist into the map, so the test has some, in a namespace of its own. */
static void make_port(struct lb *lb)
{
	uint32_t out = IFINDEX_OUT;
	static bool has_devices;

	if (!has_devices && (unshare(CLONE_NEWNET) != 0 ||
			     system("ip link set lo up && "
				    "ip link add out0 index 77 type veth peer name out1") != 0))
		fail_msg("cannot make a namespace with a veth pair: %s", strerror(errno));
	has_devices = true;
	if (bpf_map_update_elem(bpf_map__fd(lb->skel->maps.xdp_ports), &out, &out, BPF_ANY) != 0)
		fail_msg("device map: %s", strerror(errno));
}

void lb_load(struct lb *lb)
{
	struct xdp_lb_bpf *skel = xdp_lb_bpf__open();
	unsigned cpus = (unsigned)libbpf_num_possible_cpus();
	int rc;

	memset(lb, 0, sizeof(*lb));
	assert_non_null(skel);
	skel->rodata->ro = (struct hg_rodata){
		.n_cpus = cpus,
		.service_mask = LB_BUCKETS - 1,
		.hash_seed = LB_SEED,
		.max_services = LB_SERVICES,
		.max_backends = LB_BACKENDS,
		.flow_mask = LB_LINES - 1,
		.fragment_mask = LB_LINES - 1,
		.tick_shift = LB_SHIFT,
		.fragment_ticks = HG_RODATA_DEFAULT_FRAGMENT_TICKS,
		.flow_idle_ticks = HG_RODATA_DEFAULT_FLOW_IDLE,
		.learn_per_jiffy = HG_RODATA_DEFAULT_LEARN,
		.icmp_per_jiffy = HG_RODATA_DEFAULT_ICMP,
		.nat_mask = LB_NAT - 1,
		.nat_line_mask = HG_NAT_LINES(LB_NAT) - 1,
	};
	map_resize(skel->maps.services, 2 * LB_BUCKETS);
	map_resize(skel->maps.slots, LB_BLOCKS);
	map_resize(skel->maps.backends, LB_BACKENDS);
	map_resize(skel->maps.xdp_services, LB_SERVICES * cpus);
	map_resize(skel->maps.xdp_backends, LB_BACKENDS * cpus);
	map_resize(skel->maps.xdp_verdicts, cpus);
	map_resize(skel->maps.xdp_cpus, cpus);
	map_resize(skel->maps.flows, LB_LINES);
	map_resize(skel->maps.drop_events, cpus * HG_DROP_EVENTS);
	map_resize(skel->maps.fragments, LB_LINES);
	map_resize(skel->maps.quic_ids, LB_QUIC);
	map_resize(skel->maps.nat_conns, LB_NAT);
	map_resize(skel->maps.nat_addrs, LB_NAT);
	map_resize(skel->maps.nat_lines, HG_NAT_LINES(LB_NAT));
	map_resize(skel->maps.nat_tickets, LB_NAT);
	map_resize(skel->maps.nat_ticks, HG_NAT_TICK_LINES(LB_NAT));
	map_resize(skel->maps.nat_hints, HG_NAT_HINT_LINES(LB_NAT));
	map_resize(skel->maps.nat_paths, HG_NAT_PATHS(LB_NAT));
	map_resize(skel->maps.nat_fragments, LB_LINES);
	map_resize(skel->maps.nat_services, LB_SERVICES);
	map_resize(skel->maps.live_backends, LB_BACKENDS);
	map_resize(skel->maps.live_services, LB_SERVICES);
	map_resize(skel->maps.syn_services, LB_SERVICES);
	rc = xdp_lb_bpf__load(skel);
	if (rc)
		fail_msg("xdp_lb does not load: %s", strerror(-rc));
	lb->skel = skel;
	lb->n_cpus = cpus;
	lb->prog = bpf_program__fd(skel->progs.xdp_lb);
	make_port(lb);
	lb->control = map_mmap(skel->maps.control, sizeof(*lb->control));
	lb->services = map_mmap(skel->maps.services, sizeof(*lb->services) * 2 * LB_BUCKETS);
	lb->slots = map_mmap(skel->maps.slots, sizeof(*lb->slots) * LB_BLOCKS);
	lb->backends = map_mmap(skel->maps.backends, sizeof(*lb->backends) * LB_BACKENDS);
	lb->svc_counters = map_mmap(skel->maps.xdp_services,
				    sizeof(*lb->svc_counters) * LB_SERVICES * cpus);
	lb->be_counters = map_mmap(skel->maps.xdp_backends,
				   sizeof(*lb->be_counters) * LB_BACKENDS * cpus);
	lb->verdicts = map_mmap(skel->maps.xdp_verdicts, sizeof(*lb->verdicts) * cpus);
	lb->cpus = map_mmap(skel->maps.xdp_cpus, sizeof(*lb->cpus) * cpus);
	lb->flows = map_mmap(skel->maps.flows, sizeof(*lb->flows) * LB_LINES);
	lb->fragments = map_mmap(skel->maps.fragments, sizeof(*lb->fragments) * LB_LINES);
	lb->quic = map_mmap(skel->maps.quic_ids, sizeof(*lb->quic) * LB_QUIC);
	lb->drop_events = map_mmap(skel->maps.drop_events,
				   sizeof(*lb->drop_events) * HG_DROP_EVENTS * cpus);
	lb->capture = map_mmap(skel->maps.capture, sizeof(*lb->capture));
	lb->nat_conns = map_mmap(skel->maps.nat_conns, sizeof(*lb->nat_conns) * LB_NAT);
	lb->nat_lines = map_mmap(skel->maps.nat_lines,
				 sizeof(*lb->nat_lines) * HG_NAT_LINES(LB_NAT));
	lb->nat_tickets = map_mmap(skel->maps.nat_tickets, sizeof(*lb->nat_tickets) * LB_NAT);
	lb->nat_ticks = map_mmap(skel->maps.nat_ticks,
				 sizeof(*lb->nat_ticks) * HG_NAT_TICK_LINES(LB_NAT));
	lb->nat_hints = map_mmap(skel->maps.nat_hints,
				 sizeof(*lb->nat_hints) * HG_NAT_HINT_LINES(LB_NAT));
	lb->nat_paths = map_mmap(skel->maps.nat_paths,
				 sizeof(*lb->nat_paths) * HG_NAT_PATHS(LB_NAT));
	lb->nat_fragments = map_mmap(skel->maps.nat_fragments,
				     sizeof(*lb->nat_fragments) * LB_LINES);
	lb->nat_services = map_mmap(skel->maps.nat_services,
				    sizeof(*lb->nat_services) * LB_SERVICES);
	lb->nat_control = map_mmap(skel->maps.nat_control, sizeof(*lb->nat_control) * 1);
	lb->live_backends = map_mmap(skel->maps.live_backends,
				     sizeof(*lb->live_backends) * LB_BACKENDS);
	lb->live_services = map_mmap(skel->maps.live_services,
				     sizeof(*lb->live_services) * LB_SERVICES);
	lb->syn = map_mmap(skel->maps.syn_control, sizeof(*lb->syn));
	lb->syn_services = map_mmap(skel->maps.syn_services,
				    sizeof(*lb->syn_services) * LB_SERVICES);
}

void lb_clear(struct lb *lb)
{
	memset(lb->control, 0, sizeof(*lb->control));
	memset(lb->services, 0, sizeof(*lb->services) * 2 * LB_BUCKETS);
	memset(lb->slots, 0, sizeof(*lb->slots) * LB_BLOCKS);
	memset(lb->backends, 0, sizeof(*lb->backends) * LB_BACKENDS);
	memset(lb->svc_counters, 0, sizeof(*lb->svc_counters) * LB_SERVICES * lb->n_cpus);
	memset(lb->be_counters, 0, sizeof(*lb->be_counters) * LB_BACKENDS * lb->n_cpus);
	memset(lb->verdicts, 0, sizeof(*lb->verdicts) * lb->n_cpus);
	memset(lb->cpus, 0, sizeof(*lb->cpus) * lb->n_cpus);
	memset(lb->flows, 0, sizeof(*lb->flows) * LB_LINES);
	memset(lb->fragments, 0, sizeof(*lb->fragments) * LB_LINES);
	memset(lb->quic, 0, sizeof(*lb->quic) * LB_QUIC);
	memset(lb->drop_events, 0, sizeof(*lb->drop_events) * HG_DROP_EVENTS * lb->n_cpus);
	memset(lb->capture, 0, sizeof(*lb->capture));
	memset(lb->nat_conns, 0, sizeof(*lb->nat_conns) * LB_NAT);
	memset(lb->nat_lines, 0, sizeof(*lb->nat_lines) * HG_NAT_LINES(LB_NAT));
	memset(lb->nat_tickets, 0, sizeof(*lb->nat_tickets) * LB_NAT);
	memset(lb->nat_ticks, 0, sizeof(*lb->nat_ticks) * HG_NAT_TICK_LINES(LB_NAT));
	memset(lb->nat_hints, 0, sizeof(*lb->nat_hints) * HG_NAT_HINT_LINES(LB_NAT));
	memset(lb->nat_paths, 0, sizeof(*lb->nat_paths) * HG_NAT_PATHS(LB_NAT));
	memset(lb->nat_fragments, 0, sizeof(*lb->nat_fragments) * LB_LINES);
	memset(lb->nat_services, 0, sizeof(*lb->nat_services) * LB_SERVICES);
	memset(lb->nat_control, 0, sizeof(*lb->nat_control) * 1);
	memset(lb->live_backends, 0, sizeof(*lb->live_backends) * LB_BACKENDS);
	memset(lb->live_services, 0, sizeof(*lb->live_services) * LB_SERVICES);
	memset(lb->syn, 0, sizeof(*lb->syn));
	memset(lb->syn_services, 0, sizeof(*lb->syn_services) * LB_SERVICES);
	lb->next_block = 0;
}

void lb_unload(struct lb *lb)
{
	unsigned cpus = lb->n_cpus;

	if (!lb->skel)
		return;
	munmap(lb->control, page_round(sizeof(*lb->control)));
	munmap(lb->services, page_round(sizeof(*lb->services) * 2 * LB_BUCKETS));
	munmap(lb->slots, page_round(sizeof(*lb->slots) * LB_BLOCKS));
	munmap(lb->backends, page_round(sizeof(*lb->backends) * LB_BACKENDS));
	munmap(lb->svc_counters, page_round(sizeof(*lb->svc_counters) * LB_SERVICES * cpus));
	munmap(lb->be_counters, page_round(sizeof(*lb->be_counters) * LB_BACKENDS * cpus));
	munmap(lb->verdicts, page_round(sizeof(*lb->verdicts) * cpus));
	munmap(lb->cpus, page_round(sizeof(*lb->cpus) * cpus));
	munmap(lb->flows, page_round(sizeof(*lb->flows) * LB_LINES));
	munmap(lb->fragments, page_round(sizeof(*lb->fragments) * LB_LINES));
	munmap(lb->quic, page_round(sizeof(*lb->quic) * LB_QUIC));
	munmap(lb->drop_events, page_round(sizeof(*lb->drop_events) * HG_DROP_EVENTS * cpus));
	munmap(lb->capture, page_round(sizeof(*lb->capture)));
	munmap(lb->nat_conns, page_round(sizeof(*lb->nat_conns) * LB_NAT));
	munmap(lb->nat_lines, page_round(sizeof(*lb->nat_lines) * HG_NAT_LINES(LB_NAT)));
	munmap(lb->nat_tickets, page_round(sizeof(*lb->nat_tickets) * LB_NAT));
	munmap(lb->nat_ticks, page_round(sizeof(*lb->nat_ticks) * HG_NAT_TICK_LINES(LB_NAT)));
	munmap(lb->nat_hints, page_round(sizeof(*lb->nat_hints) * HG_NAT_HINT_LINES(LB_NAT)));
	munmap(lb->nat_paths, page_round(sizeof(*lb->nat_paths) * HG_NAT_PATHS(LB_NAT)));
	munmap(lb->nat_fragments, page_round(sizeof(*lb->nat_fragments) * LB_LINES));
	munmap(lb->nat_services, page_round(sizeof(*lb->nat_services) * LB_SERVICES));
	munmap(lb->nat_control, page_round(sizeof(*lb->nat_control) * 1));
	munmap(lb->live_backends, page_round(sizeof(*lb->live_backends) * LB_BACKENDS));
	munmap(lb->live_services, page_round(sizeof(*lb->live_services) * LB_SERVICES));
	munmap(lb->syn, page_round(sizeof(*lb->syn)));
	munmap(lb->syn_services, page_round(sizeof(*lb->syn_services) * LB_SERVICES));
	xdp_lb_bpf__destroy(lb->skel);
	lb->skel = NULL;
}

void addr_of(__be32 out[4], const char *text)
{
	if (strchr(text, ':')) {
		assert_int_equal(inet_pton(AF_INET6, text, out), 1);
		return;
	}
	out[0] = out[1] = 0;
	out[2] = htonl(0xffff);
	assert_int_equal(inet_pton(AF_INET, text, &out[3]), 1);
}

void mac_of(uint8_t out[6], const char *text)
{
	unsigned m[6];

	assert_int_equal(
		sscanf(text, "%x:%x:%x:%x:%x:%x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]), 6);
	for (int i = 0; i < 6; i++)
		out[i] = (uint8_t)m[i];
}

void lb_backend(struct lb *lb, const struct backend_args *args)
{
	struct hg_backend b = { .ifindex = args->ifindex ? args->ifindex : IFINDEX_IN,
				.mtu = args->mtu ? args->mtu : 1500,
				.id = (uint16_t)args->id,
				.port = htons(args->port) };

	assert_in_range(args->id, 1, LB_BACKENDS - 1);
	addr_of(b.addr, args->addr);
	addr_of(b.outer_src, args->src);
	b.entropy_mask = htonl(args->entropy_mask);
	b.flags = (args->dead ? 0 : HG_BE_ALIVE) | (args->invalid ? 0 : HG_BE_VALID);
	if (strchr(args->addr, ':'))
		b.flags |= HG_BE_OUTER_V6;
	mac_of(b.src_mac, EGRESS_MAC);
	if (!args->no_neigh) {
		mac_of(b.neigh.mac, args->mac ? args->mac : BACKEND_MAC);
		b.neigh.state = args->state ? args->state : HG_NEIGH_OK;
	}
	hg_backend_seal(&b);
	lb->backends[args->id] = b;
}

void lb_service(struct lb *lb, const struct service_args *args)
{
	struct hg_service s = { .mode = args->mode ? args->mode : HG_MODE_IPIP,
				.flags = args->flags,
				.id = args->id,
				.slots = args->slots,
				.cid_offset = args->cid_offset,
				.cid_len = args->cid_len,
				.quic_block = args->quic_block,
				.quic_ids = args->quic_ids,
				.slots_block = lb->next_block };
	uint32_t bucket, base = args->generation * LB_BUCKETS;

	addr_of(s.key.addr, args->addr);
	s.key.port = htons(args->port);
	s.key.proto = args->proto == ANY_PROTO ? 0 : args->proto ? args->proto : IPPROTO_TCP;
	for (uint32_t i = 0; i < args->slots && args->n; i++) {
		uint16_t id = args->backends[i % args->n];

		lb->slots[lb->next_block + i / 16].slot[i % 16] =
			args->base ? HG_SLOT_TRACKED | HG_SLOT_MAKE(args->base, id)
				   : HG_SLOT_MAKE(id & 0x7fff, id);
	}
	lb->next_block += (args->slots + 15) / 16;
	assert_in_range(lb->next_block, 0, LB_BLOCKS);
	if (!args->port && s.mode != HG_MODE_ADDR)
		lb->control->generation_flags[args->generation] |= HG_CTL_ANY_PORT;
	for (uint32_t i = 0; i < HG_SERVICE_PROBES; i++) {
		bucket = base + ((hg_service_hash(&s.key) + i) & (LB_BUCKETS - 1));
		if (lb->services[bucket].mode == HG_MODE_EMPTY) {
			lb->services[bucket] = s;
			return;
		}
	}
	fail_msg("service table of the test is full");
}

int prog_run(int prog, const struct pktbuf *in, struct pktbuf *out)
{
	uint8_t buf[PKT_MAX + 256];
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = in->data, .data_size_in = (__u32)in->len,
		    .data_out = buf, .data_size_out = sizeof(buf), .repeat = 1);
	int rc = bpf_prog_test_run_opts(prog, &o);

	if (rc)
		fail_msg("test run of %zu bytes: %s", in->len, strerror(-rc));
	if (out) {
		assert_in_range(o.data_size_out, 0, PKT_MAX);
		out->len = o.data_size_out;
		memcpy(out->data, buf, out->len);
	}
	return (int)o.retval;
}

static const char *action_name(int action)
{
	static const char *const names[] = { "ABORTED", "DROP", "PASS", "TX", "REDIRECT" };

	return action >= 0 && action <= 4 ? names[action] : "?";
}

void expect_run(int prog, const struct pktbuf *in, int action, const struct pktbuf *want,
		const char *file, int line)
{
	struct pktbuf out;
	int got = prog_run(prog, in, &out);

	if (got != action)
		fail_msg("%s:%d: action %s, wanted %s", file, line, action_name(got),
			 action_name(action));
	if (!want || action == XDP_DROP)
		return;
	if (out.len != want->len || memcmp(out.data, want->data, want->len)) {
		pkt_diff(want->data, want->len, out.data, out.len);
		fail_msg("%s:%d: frames differ", file, line);
	}
}

void expect_drop(struct lb *lb, const struct pktbuf *in, enum hg_drop reason, const char *file,
		 int line)
{
	uint64_t before = lb_drops(lb, reason), all = lb_verdicts(lb, HG_VERDICT_DROP);

	expect_run(lb->prog, in, XDP_DROP, NULL, file, line);
	if (lb_drops(lb, reason) != before + 1 || lb_verdicts(lb, HG_VERDICT_DROP) != all + 1)
		fail_msg("%s:%d: dropped, but not counted as reason %d", file, line, reason);
}

uint64_t lb_drops(const struct lb *lb, enum hg_drop reason)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < lb->n_cpus; i++)
		sum += lb->verdicts[i].drop[reason];
	return sum;
}

uint64_t lb_verdicts(const struct lb *lb, enum hg_verdict verdict)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < lb->n_cpus; i++)
		sum += lb->verdicts[i].verdict[verdict];
	return sum;
}

struct hg_service_counters lb_service_counters(const struct lb *lb, uint32_t id)
{
	struct hg_service_counters sum = { 0 };

	for (unsigned i = 0; i < lb->n_cpus; i++) {
		const struct hg_service_counters *c = &lb->svc_counters[id * lb->n_cpus + i];
#define X(name, help) sum.name += c->name;
		HG_SERVICE_COUNTERS(X)
#undef X
	}
	return sum;
}

struct hg_backend_counters lb_backend_counters(const struct lb *lb, uint32_t id)
{
	struct hg_backend_counters sum = { 0 };

	for (unsigned i = 0; i < lb->n_cpus; i++) {
		const struct hg_backend_counters *c = &lb->be_counters[id * lb->n_cpus + i];
#define X(name, help) sum.name += c->name;
		HG_BACKEND_COUNTERS(X)
#undef X
	}
	return sum;
}

unsigned lb_backend_of(struct lb *lb, const struct pktbuf *in, struct pktbuf *out)
{
	uint64_t before[LB_BACKENDS];

	for (uint32_t id = 1; id < LB_BACKENDS; id++)
		before[id] = lb_backend_counters(lb, id).packets;
	prog_run(lb->prog, in, out);
	for (uint32_t id = 1; id < LB_BACKENDS; id++)
		if (lb_backend_counters(lb, id).packets != before[id])
			return id;
	return 0;
}

unsigned lb_flow_count(const struct lb *lb, unsigned backend, int class)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LB_LINES * HG_LINE_WAYS; i++) {
		const struct hg_line *l = &lb->flows[i / HG_LINE_WAYS];
		uint64_t word = l->word[i % HG_LINE_WAYS];
		uint32_t meta = l->meta[i % HG_LINE_WAYS];

		n += word && (!backend || HG_WORD_BACKEND(word) == backend) &&
		     (class < 0 || HG_META_CLASS(meta) == (uint32_t)class);
	}
	return n;
}

static void age_line(struct hg_line *l, unsigned ticks)
{
	for (unsigned i = 0; i < HG_LINE_WAYS; i++)
		if (l->word[i])
			l->meta[i] = (l->meta[i] & 0xffff0000) | ((l->meta[i] - ticks) & 0xffff);
}

void lb_age(struct lb *lb, unsigned ticks)
{
	for (unsigned i = 0; i < LB_LINES; i++) {
		age_line(&lb->flows[i], ticks);
		age_line(&lb->fragments[i], ticks);
	}
}

void lb_tokens(struct lb *lb, bool full)
{
	for (unsigned i = 0; i < lb->n_cpus; i++) {
		/* A time that never passes, or passed long ago. */
		uint64_t when = full ? 0 : UINT64_MAX / 2;

		lb->cpus[i] = (struct hg_cpu){ .learn = { .jiffies = when },
					       .icmp = { .jiffies = when },
					       .events = { .jiffies = when } };
	}
}

uint64_t lb_events(const struct lb *lb, enum hg_event event)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < lb->n_cpus; i++)
		sum += lb->verdicts[i].event[event];
	return sum;
}

void agent_load(struct agent *a)
{
	unsigned cpus = (unsigned)libbpf_num_possible_cpus();

	*a = (struct agent){ .skel = xdp_decap_bpf__open(), .n_cpus = cpus };
	assert_non_null(a->skel);
	map_resize(a->skel->maps.xdp_verdicts, cpus);
	if (xdp_decap_bpf__load(a->skel))
		fail_msg("xdp_decap does not load: %s", strerror(errno));
	a->verdicts = map_mmap(a->skel->maps.xdp_verdicts, sizeof(*a->verdicts) * cpus);
	a->prog = bpf_program__fd(a->skel->progs.xdp_decap);
}

void agent_unload(struct agent *a)
{
	if (!a->skel)
		return;
	munmap(a->verdicts, page_round(sizeof(*a->verdicts) * a->n_cpus));
	xdp_decap_bpf__destroy(a->skel);
	a->skel = NULL;
}

void agent_allow(struct agent *a, const char *addr, uint32_t flags)
{
	struct hg_decap_addr value = { .flags = flags };
	struct hg_decap_key key;

	addr_of(key.addr, addr);
	assert_int_equal(
		bpf_map_update_elem(bpf_map__fd(a->skel->maps.decap_addrs), &key, &value, BPF_ANY),
		0);
}

uint64_t rnd(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}
