/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agent on backends: what it unwraps, with the whole inner frame, and what it must leave alone.
 * links:
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <bpf/bpf.h>
#include <cmocka.h>

#include "packet/run.h"
#include "xdp_decap.skel.h"

#define EDGE4	   "10.0.0.1"
#define EDGE6	   "fd00::1"
#define HERE4	   "10.0.0.21"
#define HERE6	   "fd00::21"
#define GUE_ONLY4  "10.0.0.22"
#define IPIP_ONLY6 "fd00::22"
#define OTHER4	   "10.0.0.99"
#define VIP4	   "192.0.2.10"
#define VIP6	   "2001:db8::10"
#define CLIENT4	   "203.0.113.7"
#define CLIENT6	   "2001:db8:c::7"

static struct xdp_decap_bpf *skel;
static struct hg_verdict_counters *verdicts;
static unsigned n_cpus;
static int prog;

static void allow(const char *text, uint32_t flags)
{
	struct hg_decap_addr value = { .flags = flags };
	struct hg_decap_key key;

	addr_of(key.addr, text);
	assert_int_equal(
		bpf_map_update_elem(bpf_map__fd(skel->maps.decap_addrs), &key, &value, BPF_ANY), 0);
}

static int setup(void **state)
{
	n_cpus = (unsigned)libbpf_num_possible_cpus();
	skel = xdp_decap_bpf__open();
	assert_non_null(skel);
	map_resize(skel->maps.xdp_verdicts, n_cpus);
	assert_int_equal(xdp_decap_bpf__load(skel), 0);
	verdicts = map_mmap(skel->maps.xdp_verdicts, sizeof(*verdicts) * n_cpus);
	prog = bpf_program__fd(skel->progs.xdp_decap);
	allow(HERE4, HG_DECAP_IPIP | HG_DECAP_GUE);
	allow(HERE6, HG_DECAP_IPIP | HG_DECAP_GUE);
	allow(GUE_ONLY4, HG_DECAP_GUE);
	allow(IPIP_ONLY6, HG_DECAP_IPIP);
	return 0;
}

static int teardown(void **state)
{
	xdp_decap_bpf__destroy(skel);
	return 0;
}

static int clear(void **state)
{
	memset(verdicts, 0, sizeof(*verdicts) * n_cpus);
	return 0;
}

static uint64_t verdict(enum hg_verdict v)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n_cpus; i++)
		sum += verdicts[i].verdict[v];
	return sum;
}

static uint64_t bad_headers(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n_cpus; i++)
		sum += verdicts[i].drop[HG_DROP_BAD_HEADER];
	return sum;
}

#define E	  ETH(.dst = BACKEND_MAC, .src = EGRESS_MAC)
#define OUT4(...) IP4(.src = EDGE4, .dst = HERE4, __VA_ARGS__)
#define OUT6(...) IP6(.src = EDGE6, .dst = HERE6, __VA_ARGS__)
#define IN4(...)                                                                                \
	IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63, __VA_ARGS__), TCP(.sport = 7, .dport = 80), \
		DATA(33)
#define IN6(...)                                                                                \
	IP6(.src = CLIENT6, .dst = VIP6, .ttl = 63, __VA_ARGS__), UDP(.sport = 7, .dport = 53), \
		DATA(33)
#define GUE_UDP UDP(.sport = 50000, .dport = HG_GUE_PORT)

#define DECAPS(in, want)                                                 \
	do {                                                             \
		EXPECT(prog, in, XDP_PASS, want);                        \
		assert_int_equal(verdict(HG_VERDICT_DECAP), ++decapped); \
	} while (0)

static void test_ipip(void **state)
{
	struct pktbuf in, want;
	uint64_t decapped = 0;

	PKT(&in, E, OUT4(), IN4());
	PKT(&want, E, IN4());
	DECAPS(&in, &want);
	PKT(&in, E, OUT4(.opt_words = 3), IN4(.opt_words = 2));
	PKT(&want, E, IN4(.opt_words = 2));
	DECAPS(&in, &want);
	PKT(&in, E, OUT4(), IN6());
	PKT(&want, E, IN6());
	DECAPS(&in, &want);
	PKT(&in, E, OUT6(.proto = 4), IN4());
	PKT(&want, E, IN4());
	DECAPS(&in, &want);
	PKT(&in, E, OUT6(), IN6());
	PKT(&want, E, IN6());
	DECAPS(&in, &want);
	/* Linux's own ip6_tunnel sends a tunnel encapsulation limit in a destination option. */
	PKT(&in, E, OUT6(), EXT(60, .proto = 41), IN6());
	DECAPS(&in, &want);
	PKT(&in, E, IP6(.src = EDGE6, .dst = IPIP_ONLY6), IN6());
	DECAPS(&in, &want);
}

static void test_vlan(void **state)
{
	struct pktbuf in, want;
	uint64_t decapped = 0;

	PKT(&in, E, VLAN(.tci = 0x6064), OUT4(), IN6());
	PKT(&want, E, VLAN(.tci = 0x6064), IN6());
	DECAPS(&in, &want);
	PKT(&in, ETH(.ethertype = 0x88a8), VLAN(.tci = 7), VLAN(.tci = 100), OUT6(.proto = 4),
	    IN4());
	PKT(&want, ETH(.ethertype = 0x88a8), VLAN(.tci = 7), VLAN(.tci = 100), IN4());
	DECAPS(&in, &want);
}

static void test_gue(void **state)
{
	struct pktbuf in, want;
	uint64_t decapped = 0;

	for (int variant = 0; variant <= 1; variant++) {
		PKT(&in, E, OUT4(), GUE_UDP, GUE(.gue_variant = variant), IN4());
		PKT(&want, E, IN4());
		DECAPS(&in, &want);
		PKT(&in, E, OUT6(), GUE_UDP, GUE(.gue_variant = variant), IN6());
		PKT(&want, E, IN6());
		DECAPS(&in, &want);
		PKT(&in, E, IP4(.src = EDGE4, .dst = GUE_ONLY4), GUE_UDP,
		    GUE(.gue_variant = variant), IN6());
		DECAPS(&in, &want);
	}
	for (int words = 1; words < 32; words += 3) {
		PKT(&in, E, OUT4(), GUE_UDP, GUE(.opt_words = words), IN6());
		DECAPS(&in, &want);
	}
}

static void test_ecn(void **state)
{
	static const uint8_t want_ecn[4] = { 0, 3, 3, 3 };
	struct pktbuf in, want;

	for (unsigned inner = 0; inner < 4; inner++)
		for (unsigned outer = 0; outer < 4; outer++) {
			uint8_t tos = 0xb8 | inner,
				out = 0xb8 | (outer == 3 ? want_ecn[inner] : inner);

			for (uint32_t id = 0; id < 300; id++) {
				PKT(&in, E, OUT4(.tos = outer), IN4(.tos = tos, .id = id * 217));
				PKT(&want, E, IN4(.tos = out, .id = id * 217));
				EXPECT(prog, &in, XDP_PASS, &want);
			}
			PKT(&in, E, OUT6(.tos = outer), IN6(.tos = tos));
			PKT(&want, E, IN6(.tos = out));
			EXPECT(prog, &in, XDP_PASS, &want);
		}
}

#define UNTOUCHED(...)                            \
	do {                                      \
		PKT(&in, __VA_ARGS__);            \
		EXPECT(prog, &in, XDP_PASS, &in); \
	} while (0)

static void test_untouched(void **state)
{
	struct pktbuf in;

	UNTOUCHED(E, IP4(.src = EDGE4, .dst = OTHER4), IN4());
	UNTOUCHED(E, IP6(.src = EDGE6, .dst = VIP6), IN6());
	UNTOUCHED(E, IP4(.src = EDGE4, .dst = OTHER4), GUE_UDP, GUE(), IN4());
	UNTOUCHED(E, IP4(.src = EDGE4, .dst = GUE_ONLY4), IN4());
	UNTOUCHED(E, IP6(.src = EDGE6, .dst = IPIP_ONLY6), GUE_UDP, GUE(), IN6());
	UNTOUCHED(E, OUT4(), TCP(.sport = 1, .dport = 22), DATA(5));
	UNTOUCHED(E, OUT4(), UDP(.sport = 1, .dport = 53), DATA(50));
	UNTOUCHED(E, OUT6(), UDP(.sport = HG_GUE_PORT, .dport = 53), DATA(50));
	UNTOUCHED(E, OUT4(), ICMP(.icmp_type = 8), DATA(50));
	/* Fragments of tunnels are for the kernel. */
	UNTOUCHED(E, OUT4(.frag = 0x2000), IN4());
	UNTOUCHED(E, OUT4(.frag = 100), IN4());
	UNTOUCHED(E, OUT6(), EXT(44, .proto = 41, .frag = 1), IN6());
	/* GUE control messages, unknown variants and payloads. */
	UNTOUCHED(E, OUT4(), GUE_UDP, GUE(.proto = 6), IN4());
	for (unsigned first = 0x20; first < 0x100; first++) {
		if (first >> 6 == 1)
			continue;
		PKT(&in, E, OUT4(), GUE_UDP, GUE(), IN4());
		in.data[14 + 20 + 8] = (uint8_t)first;
		if (first >= 0x20 && first < 0x40)
			EXPECT(prog, &in, XDP_PASS, &in);
		if (first >= 0x80)
			EXPECT(prog, &in, XDP_PASS, &in);
	}
	UNTOUCHED(ETH(.ethertype = 0x0806), DATA(46));
	assert_int_equal(verdict(HG_VERDICT_DECAP), 0);
	assert_int_equal(verdict(HG_VERDICT_DROP), 0);
}

#define BAD(...)                                        \
	do {                                            \
		PKT(&in, __VA_ARGS__);                  \
		EXPECT(prog, &in, XDP_DROP, NULL);      \
		assert_int_equal(bad_headers(), ++bad); \
	} while (0)

static void test_bad_inner(void **state)
{
	struct pktbuf in;
	uint64_t bad = 0;

	BAD(E, OUT4(.proto = 4), IN6());
	BAD(E, OUT4(.proto = 41), IN4());
	BAD(E, OUT4(), IN4(.version = 5));
	BAD(E, OUT4(), IN4(.ihl = 4));
	BAD(E, OUT4(), IN4(.length = 19));
	BAD(E, OUT4(), IN4(.length = 1000));
	BAD(E, OUT6(), IN6(.length = 1000));
	BAD(E, OUT4(.proto = 4), DATA(19));
	BAD(E, OUT4(.proto = 41), DATA(39));
	BAD(E, OUT4(.length = 2000), IN4());
	BAD(E, OUT4(.length = 30), IN4());
	BAD(E, OUT4(), GUE_UDP, GUE(.opt_words = 31, .proto = 4), DATA(5));
}

/* Any prefix of any tunnel: passes untouched, is unwrapped, or is dropped by name; never more. */
static void test_truncated(void **state)
{
	struct pktbuf packets[6], out;

	PKT(&packets[0], E, OUT4(), IN4());
	PKT(&packets[1], E, OUT6(), IN6());
	PKT(&packets[2], E, VLAN(.tci = 3), OUT4(.opt_words = 5), IN6());
	PKT(&packets[3], E, OUT4(), GUE_UDP, GUE(.opt_words = 2), IN4());
	PKT(&packets[4], E, OUT6(), EXT(0, .proto = 60), EXT(60, .opt_words = 3), GUE_UDP,
	    GUE(.gue_variant = 1), IN6());
	PKT(&packets[5], E, OUT6(.proto = 4), IN4());
	for (unsigned i = 0; i < 6; i++)
		for (size_t len = 14; len < packets[i].len; len++) {
			struct pktbuf in = packets[i];
			int action;

			in.len = len;
			action = prog_run(prog, &in, &out);
			assert_true(action == XDP_PASS || action == XDP_DROP);
			if (action == XDP_PASS) {
				assert_int_equal(out.len, in.len);
				assert_memory_equal(out.data, in.data, in.len);
			}
		}
	assert_int_equal(verdict(HG_VERDICT_DECAP), 0);
}

/* Mutated tunnels: passed untouched, dropped, or unwrapped to a suffix of what came, but for ECN. */
static void test_mutations(void **state)
{
	uint64_t seed = 7, r;
	struct pktbuf base[4], in, out;

	PKT(&base[0], E, OUT4(), IN4());
	PKT(&base[1], E, VLAN(.tci = 3), OUT6(), EXT(60, .proto = 41), IN6());
	PKT(&base[2], E, OUT4(), GUE_UDP, GUE(.opt_words = 2), IN4());
	PKT(&base[3], E, OUT6(), GUE_UDP, GUE(.gue_variant = 1), IN6());
	for (unsigned i = 0; i < 50000; i++) {
		in = base[i % 4];
		for (unsigned n = (unsigned)(rnd(&seed) % 4); n; n--) {
			r = rnd(&seed);
			in.data[12 + r % 80] = (uint8_t)(r >> 32);
		}
		r = rnd(&seed);
		if (r % 4 == 0)
			in.len = 14 + (r >> 8) % (in.len - 13);
		if (prog_run(prog, &in, &out) == XDP_DROP)
			continue;
		assert_true(out.len <= in.len);
		if (out.len == in.len)
			assert_memory_equal(out.data, in.data, in.len);
		else /* behind the inner fixed header, which ECN may touch */
			assert_memory_equal(out.data + 14 + 12,
					    in.data + in.len - out.len + 14 + 12,
					    out.len - 14 - 12);
	}
	assert_true(verdict(HG_VERDICT_DECAP) > 5000);
	assert_true(bad_headers() > 500);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup(f, clear)
	const struct CMUnitTest tests[] = {
		ROW(test_ipip),	     ROW(test_vlan),	  ROW(test_gue),       ROW(test_ecn),
		ROW(test_untouched), ROW(test_bad_inner), ROW(test_truncated), ROW(test_mutations),
	};

	return cmocka_run_group_tests_name("decap", tests, setup, teardown);
}
