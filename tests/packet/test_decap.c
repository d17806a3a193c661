/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agent on backends: what it unwraps, with the whole inner frame, and what it must leave alone.
 * links:
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "packet/run.h"

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

static struct agent agent;

static int setup(void **state)
{
	agent_load(&agent);
	agent_allow(&agent, HERE4, HG_DECAP_IPIP | HG_DECAP_GUE | HG_DECAP_SECOND_CHANCE);
	agent_allow(&agent, HERE6, HG_DECAP_IPIP | HG_DECAP_GUE | HG_DECAP_SECOND_CHANCE);
	agent_allow(&agent, GUE_ONLY4, HG_DECAP_GUE);
	agent_allow(&agent, IPIP_ONLY6, HG_DECAP_IPIP);
	return 0;
}

static int teardown(void **state)
{
	agent_unload(&agent);
	return 0;
}

static int clear(void **state)
{
	memset(agent.verdicts, 0, sizeof(*agent.verdicts) * agent.n_cpus);
	return 0;
}

static uint64_t verdict(enum hg_verdict v)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < agent.n_cpus; i++)
		sum += agent.verdicts[i].verdict[v];
	return sum;
}

static uint64_t event(enum hg_event e)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < agent.n_cpus; i++)
		sum += agent.verdicts[i].event[e];
	return sum;
}

static uint64_t bad_headers(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < agent.n_cpus; i++)
		sum += agent.verdicts[i].drop[HG_DROP_BAD_HEADER];
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
		EXPECT(agent.prog, in, XDP_PASS, want);                  \
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
				EXPECT(agent.prog, &in, XDP_PASS, &want);
			}
			PKT(&in, E, OUT6(.tos = outer), IN6(.tos = tos));
			PKT(&want, E, IN6(.tos = out));
			EXPECT(agent.prog, &in, XDP_PASS, &want);
		}
}

#define ALT4	 "10.0.0.31"
#define ALT6	 "fd00::31"
#define GUE_ALT4 GUE(.gue_alt = ALT4, .gue_hops = 1)
#define GUE_ALT6 GUE(.gue_alt = ALT6, .gue_hops = 1)
#define BACK	 ETH(.dst = EGRESS_MAC, .src = BACKEND_MAC)
#define IN4_SYN	 IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 7, .dport = 80, .flags = TCP_SYN)
#define IN6_TCP	 IP6(.src = CLIENT6, .dst = VIP6), TCP(.sport = 7, .dport = 80), DATA(9)

/* A connection that nobody here knows goes on to the other backend, and no further from there. */
static void test_second_chance(void **state)
{
	struct pktbuf in, want;

	for (uint32_t id = 0; id < 300; id++) {
		PKT(&in, E, OUT4(.id = id * 219, .tos = id & 3), GUE_UDP, GUE_ALT4, IN4());
		PKT(&want, BACK, IP4(.src = HERE4, .dst = ALT4, .id = id * 219, .tos = id & 3),
		    UDP(.sport = 50000, .dport = HG_GUE_PORT, .no_csum = true),
		    GUE(.gue_alt = ALT4, .gue_hops = 0), IN4());
		EXPECT(agent.prog, &in, XDP_TX, &want);
	}
	PKT(&in, E, VLAN(.tci = 9), OUT4(), GUE_UDP, GUE_ALT4, IN6_TCP);
	PKT(&want, BACK, VLAN(.tci = 9), IP4(.src = HERE4, .dst = ALT4),
	    UDP(.sport = 50000, .dport = HG_GUE_PORT, .no_csum = true),
	    GUE(.gue_alt = ALT4, .gue_hops = 0), IN6_TCP);
	EXPECT(agent.prog, &in, XDP_TX, &want);
	PKT(&in, E, OUT6(), GUE_UDP, GUE_ALT6, IN6_TCP);
	PKT(&want, BACK, IP6(.src = HERE6, .dst = ALT6),
	    UDP(.sport = 50000, .dport = HG_GUE_PORT, .no_csum = true),
	    GUE(.gue_alt = ALT6, .gue_hops = 0), IN6_TCP);
	EXPECT(agent.prog, &in, XDP_TX, &want);
	assert_int_equal(event(HG_EVENT_SECOND_CHANCE), 302);
	assert_int_equal(verdict(HG_VERDICT_TX), 302);
	/* Two hops: the agent there hands it to its kernel, whoever's it is. */
	PKT(&in, E, OUT4(), GUE_UDP, GUE(.gue_alt = ALT4, .gue_hops = 0), IN4());
	PKT(&want, E, IN4());
	EXPECT(agent.prog, &in, XDP_PASS, &want);
}

#define STAYS(inner, ...)                                 \
	do {                                              \
		PKT(&in, __VA_ARGS__, inner);             \
		PKT(&want, E, inner);                     \
		EXPECT(agent.prog, &in, XDP_PASS, &want); \
	} while (0)
#define PLAIN_IN4 IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 7, .dport = 80)

static void test_no_second_chance(void **state)
{
	struct pktbuf in, want;

	STAYS(IN4_SYN, E, OUT4(), GUE_UDP, GUE_ALT4);
	STAYS(IN6(), E, OUT6(), GUE_UDP, GUE_ALT6); /* UDP */
	STAYS(PLAIN_IN4, E, OUT4(), GUE_UDP, GUE());
	STAYS(PLAIN_IN4, E, OUT4(), GUE_UDP, GUE(.opt_words = 5)); /* private data of others */
	STAYS(PLAIN_IN4, E, OUT4(), GUE_UDP, GUE_ALT6); /* of the other family */
	STAYS(PLAIN_IN4, E, OUT6(), GUE_UDP, GUE_ALT4);
	STAYS(PLAIN_IN4, E, IP4(.src = EDGE4, .dst = GUE_ONLY4), GUE_UDP, GUE_ALT4);
	/* Flags say that fields come before: not private data there. */
	PKT(&in, E, OUT4(), GUE_UDP, GUE_ALT4, PLAIN_IN4);
	in.data[14 + 20 + 8 + 3] = 1;
	PKT(&want, E, PLAIN_IN4);
	EXPECT(agent.prog, &in, XDP_PASS, &want);
	assert_int_equal(event(HG_EVENT_SECOND_CHANCE), 0);
	assert_int_equal(verdict(HG_VERDICT_DECAP), 8);
}

static uint16_t port_of(int fd)
{
	struct sockaddr_in a;
	socklen_t len = sizeof(a);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	return ntohs(a.sin_port);
}

/* A real connection of this host is known; a listener alone knows no connection. */
static void test_known_connection(void **state)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	struct pktbuf in, want;
	uint16_t lport, cport;

	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(listener, 5), 0);
	lport = port_of(listener);
	a.sin_port = htons(lport);
	assert_int_equal(connect(client, (struct sockaddr *)&a, sizeof(a)), 0);
	cport = port_of(client);
#define LOOP(port) IP4(.src = "127.0.0.1", .dst = "127.0.0.1"), TCP(.sport = (port), .dport = lport)
	STAYS(LOOP(cport), E, OUT4(), GUE_UDP, GUE_ALT4);
	assert_int_equal(event(HG_EVENT_SECOND_KNOWN), 1);
	PKT(&in, E, OUT4(), GUE_UDP, GUE_ALT4, LOOP((uint16_t)(cport ^ 1)));
	EXPECT(agent.prog, &in, XDP_TX, NULL);
	assert_int_equal(event(HG_EVENT_SECOND_CHANCE), 1);
	close(client);
	close(listener);
}

#define UNTOUCHED(...)                                  \
	do {                                            \
		PKT(&in, __VA_ARGS__);                  \
		EXPECT(agent.prog, &in, XDP_PASS, &in); \
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
			EXPECT(agent.prog, &in, XDP_PASS, &in);
		if (first >= 0x80)
			EXPECT(agent.prog, &in, XDP_PASS, &in);
	}
	UNTOUCHED(ETH(.ethertype = 0x0806), DATA(46));
	assert_int_equal(verdict(HG_VERDICT_DECAP), 0);
	assert_int_equal(verdict(HG_VERDICT_DROP), 0);
}

#define BAD(...)                                         \
	do {                                             \
		PKT(&in, __VA_ARGS__);                   \
		EXPECT(agent.prog, &in, XDP_DROP, NULL); \
		assert_int_equal(bad_headers(), ++bad);  \
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
			action = prog_run(agent.prog, &in, &out);
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
		if (prog_run(agent.prog, &in, &out) == XDP_DROP)
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
		ROW(test_ipip),
		ROW(test_vlan),
		ROW(test_gue),
		ROW(test_ecn),
		ROW(test_second_chance),
		ROW(test_no_second_chance),
		ROW(test_known_connection),
		ROW(test_untouched),
		ROW(test_bad_inner),
		ROW(test_truncated),
		ROW(test_mutations),
	};

	return cmocka_run_group_tests_name("decap", tests, setup, teardown);
}
