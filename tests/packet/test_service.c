/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whose packet is it, and which backend gets it: the service table with its two generations, any-port
 * services, local ones, and the choice by flow hash.
 * links:
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "packet/edge.h"

#define TO4(a) IP4(.src = CLIENT4, .dst = a)
#define TO6(a) IP6(.src = CLIENT6, .dst = a)

static const uint16_t one[] = { 1 };

static int clear(void **state)
{
	edge_five_backends();
	return 0;
}

/* Last byte of the outer destination, minus 20: the id of the backend; 0 when it was not forwarded. */
static unsigned backend_of(const struct pktbuf *in)
{
	struct pktbuf out;

	if (prog_run(lb.prog, in, &out) != XDP_TX)
		return 0;
	assert_int_equal(out.len, in->len + 20);
	return out.data[14 + 19] - 20u;
}

#define PASSES(...)                                                                       \
	do {                                                                              \
		uint64_t before = lb_verdicts(&lb, HG_VERDICT_PASS_NOT_OURS);             \
		PKT(&in, __VA_ARGS__);                                                    \
		EXPECT(lb.prog, &in, XDP_PASS, &in);                                      \
		assert_int_equal(lb_verdicts(&lb, HG_VERDICT_PASS_NOT_OURS), before + 1); \
	} while (0)

static void test_empty_table(void **state)
{
	struct pktbuf in;

	PASSES(E, TO4(VIP4), TCP(.sport = 9, .dport = 80));
	PASSES(E, TO6(VIP6), UDP(.sport = 9, .dport = 53));
	/* The all-zero key looks like an empty bucket. */
	PASSES(E, TO6("::"), DATA(64));
	PASSES(E, TO6("::"), TCP(.sport = 0, .dport = 0));
	lb.control->generation_flags[0] = HG_CTL_ANY_PORT;
	PASSES(E, TO6("::"), IP4(.src = CLIENT4, .dst = VIP4), DATA(64));
	PASSES(E, TO6("::"), EXT(0, .proto = -1), DATA(64));
}

static void test_exact(void **state)
{
	struct pktbuf in;

	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 1, .slots = 13, .backends = one, .n = 1);
	LB_SERVICE(&lb, .addr = VIP6, .port = 53, .proto = 17, .id = 2, .slots = 13,
		   .backends = one, .n = 1);
	PKT(&in, E, TO4(VIP4), TCP(.sport = 9, .dport = 80));
	assert_int_equal(backend_of(&in), 1);
	PKT(&in, E, TO6(VIP6), UDP(.sport = 9, .dport = 53), DATA(3));
	assert_int_equal(backend_of(&in), 1);
	assert_int_equal(lb_service_counters(&lb, 1).packets, 1);
	assert_int_equal(lb_service_counters(&lb, 2).packets, 1);
	PASSES(E, TO4(VIP4), TCP(.sport = 9, .dport = 81));
	PASSES(E, TO4(VIP4), TCP(.sport = 80, .dport = 9));
	PASSES(E, TO4(VIP4), UDP(.sport = 9, .dport = 80), DATA(20));
	PASSES(E, TO4("192.0.2.11"), TCP(.sport = 9, .dport = 80));
	PASSES(E, IP4(.src = VIP4, .dst = CLIENT4), TCP(.sport = 80, .dport = 80));
	PASSES(E, TO4(VIP4), ICMP(.icmp_type = 8), DATA(20));
	PASSES(E, TO6(VIP6), TCP(.sport = 9, .dport = 53));
	PASSES(E, TO6("2001:db8::11"), UDP(.sport = 9, .dport = 53), DATA(20));
	PASSES(E, TO6("2001:db9::10"), UDP(.sport = 9, .dport = 53), DATA(20));
	/* An IPv4-mapped destination in an IPv6 packet is the same address to the contract. */
	PKT(&in, E, IP6(.src = CLIENT6, .dst = "::ffff:192.0.2.10"), TCP(.sport = 9, .dport = 80));
	assert_int_equal(backend_of(&in), 1);
}

static void test_local(void **state)
{
	struct pktbuf in;

	LB_SERVICE(&lb, .addr = VIP4, .port = 443, .id = 3, .mode = HG_MODE_LOCAL);
	PKT(&in, E, TO4(VIP4), TCP(.sport = 9, .dport = 443, .flags = TCP_SYN), DATA(4));
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_PASS_LOCAL), 1);
	assert_int_equal(lb_service_counters(&lb, 3).local, 1);
	assert_int_equal(lb_service_counters(&lb, 3).packets, 1);
	assert_int_equal(lb_service_counters(&lb, 3).syns, 1);
	assert_int_equal(lb_service_counters(&lb, 3).bytes, 44);
	/* The kernel judges faults and reassembles fragments of its own services. */
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .frag = 0x2000),
	    TCP(.sport = 9, .dport = 443));
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .length = 1500),
	    TCP(.sport = 9, .dport = 443));
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .ttl = 1), TCP(.sport = 9, .dport = 443));
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_PASS_LOCAL), 4);
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_DROP), 0);
}

static void test_any_port(void **state)
{
	static const uint16_t two[] = { 2 }, three[] = { 3 };
	struct pktbuf in;

	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 1, .slots = 13, .backends = one, .n = 1);
	LB_SERVICE(&lb, .addr = VIP4, .port = 0, .flags = HG_SVC_ANY_PORT, .id = 2, .slots = 13,
		   .backends = two, .n = 1);
	LB_SERVICE(&lb, .addr = VIP4, .port = 0, .proto = ANY_PROTO, .flags = HG_SVC_ANY_PORT,
		   .id = 3, .slots = 13, .backends = three, .n = 1);
	PKT(&in, E, TO4(VIP4), TCP(.sport = 9, .dport = 80));
	assert_int_equal(backend_of(&in), 1);
	PKT(&in, E, TO4(VIP4), TCP(.sport = 9, .dport = 81));
	assert_int_equal(backend_of(&in), 2);
	PKT(&in, E, TO4(VIP4), UDP(.sport = 9, .dport = 80), DATA(20));
	assert_int_equal(backend_of(&in), 3);
	PKT(&in, E, TO4(VIP4), ICMP(.icmp_type = 8), DATA(20));
	assert_int_equal(backend_of(&in), 3);
	/* Later fragments know no port, so only these services can claim them. */
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .frag = 10, .proto = 6), DATA(40));
	EXPECT_DROP(&lb, &in, HG_DROP_FRAGMENT);
	assert_int_equal(lb_service_counters(&lb, 2).dropped, 1);
	PASSES(E, TO4("192.0.2.11"), TCP(.sport = 9, .dport = 80));
	/* Without the word in `control` nobody looks twice. */
	lb.control->generation_flags[0] = 0;
	PASSES(E, TO4(VIP4), TCP(.sport = 9, .dport = 81));
}

static void test_generations(void **state)
{
	static const uint16_t two[] = { 2 };
	struct pktbuf in;

	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 1, .slots = 13, .backends = one, .n = 1);
	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 1, .slots = 13, .backends = two, .n = 1,
		   .generation = 1);
	LB_SERVICE(&lb, .addr = VIP4, .port = 0, .id = 2, .slots = 13, .backends = two, .n = 1,
		   .generation = 1);
	PKT(&in, E, TO4(VIP4), TCP(.sport = 9, .dport = 80));
	assert_int_equal(backend_of(&in), 1);
	PASSES(E, TO4(VIP4), TCP(.sport = 9, .dport = 81));
	lb.control->service_generation = 1;
	PKT(&in, E, TO4(VIP4), TCP(.sport = 9, .dport = 80));
	assert_int_equal(backend_of(&in), 2);
	PKT(&in, E, TO4(VIP4), TCP(.sport = 9, .dport = 81));
	assert_int_equal(backend_of(&in), 2);
	lb.control->service_generation = 0;
	PKT(&in, E, TO4(VIP4), TCP(.sport = 9, .dport = 80));
	assert_int_equal(backend_of(&in), 1);
}

/* A table half full, so that keys collide: each is found, and nothing else. */
static void test_probing(void **state)
{
	struct pktbuf in;

	for (unsigned i = 0; i < LB_BUCKETS / 2; i++) {
		uint16_t id = (uint16_t)(i % 5 + 1);

		LB_SERVICE(&lb, .addr = VIP4, .port = (uint16_t)(1000 + i), .id = i, .slots = 13,
			   .backends = &id, .n = 1);
	}
	for (unsigned i = 0; i < LB_BUCKETS / 2; i++) {
		PKT(&in, E, TO4(VIP4), TCP(.sport = 9, .dport = (uint16_t)(1000 + i)));
		assert_int_equal(backend_of(&in), i % 5 + 1);
		assert_int_equal(lb_service_counters(&lb, i).packets, 1);
	}
	for (unsigned i = 0; i < 3000; i++)
		PASSES(E, TO4(VIP4), TCP(.sport = 9, .dport = (uint16_t)(2000 + i)));
}

/* A full chain: the search ends after HG_SERVICE_PROBES buckets. */
static void test_probe_limit(void **state)
{
	struct hg_service_key k = { .port = hg_be16(80), .proto = 6 };
	struct hg_service mine;
	struct pktbuf in;
	uint32_t home;

	addr_of(k.addr, VIP4);
	home = hg_service_hash(&k);
	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 1, .slots = 13, .backends = one, .n = 1);
	mine = lb.services[home % LB_BUCKETS];
	for (unsigned distance = 0; distance < HG_SERVICE_PROBES + 2; distance++) {
		for (unsigned i = 0; i < LB_BUCKETS; i++) {
			lb.services[i] = mine;
			lb.services[i].key.port = hg_be16((uint16_t)(5000 + i));
		}
		lb.services[(home + distance) % LB_BUCKETS] = mine;
		PKT(&in, E, TO4(VIP4), TCP(.sport = 9, .dport = 80));
		assert_int_equal(backend_of(&in), distance < HG_SERVICE_PROBES ? 1 : 0);
	}
}

static void test_select(void **state)
{
	unsigned seen[6] = { 0 };
	struct pktbuf in;

	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 1, .slots = 4093, .backends = edge_ids,
		   .n = 5);
	for (unsigned i = 0; i < 2000; i++) {
		uint64_t hash = edge_hash(CLIENT4, VIP4, (uint16_t)i, 80, 6);
		unsigned id;

		PKT(&in, E, TO4(VIP4), TCP(.sport = (uint16_t)i, .dport = 80));
		id = backend_of(&in);
		assert_int_equal(id, edge_ids[hg_flow_slot(hash, 4093) % 5]);
		assert_int_equal(backend_of(&in), id);
		seen[id]++;
	}
	/* 400 each; six standard deviations are about 107. */
	for (unsigned i = 1; i <= 5; i++)
		assert_in_range(seen[i], 290, 510);
}

static void test_source_affinity(void **state)
{
	unsigned seen = 0;
	struct pktbuf in;
	char src[16];

	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 1, .slots = 4093, .backends = edge_ids,
		   .n = 5, .flags = HG_SVC_NO_PORT_HASH);
	LB_SERVICE(&lb, .addr = VIP4, .port = 443, .id = 2, .slots = 4093, .backends = edge_ids,
		   .n = 5, .flags = HG_SVC_NO_PORT_HASH);
	for (unsigned i = 1; i < 50; i++) {
		unsigned id;

		snprintf(src, sizeof(src), "203.0.113.%u", i);
		PKT(&in, E, IP4(.src = src, .dst = VIP4), TCP(.sport = 1, .dport = 80));
		id = backend_of(&in);
		seen |= 1u << id;
		for (unsigned port = 2; port < 20; port++) {
			PKT(&in, E, IP4(.src = src, .dst = VIP4),
			    TCP(.sport = port, .dport = port % 2 ? 80 : 443));
			assert_int_equal(backend_of(&in), id);
		}
	}
	assert_int_equal(seen, 0x3e);
}

static void test_no_backend(void **state)
{
	static const uint16_t none[] = { 0 };
	struct pktbuf in;

	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 1, .slots = 0);
	LB_SERVICE(&lb, .addr = VIP4, .port = 81, .id = 2, .slots = 13, .backends = none, .n = 1);
	PKT(&in, E, TO4(VIP4), TCP(.sport = 9, .dport = 80));
	EXPECT_DROP(&lb, &in, HG_DROP_NO_BACKEND);
	PKT(&in, E, TO4(VIP4), TCP(.sport = 9, .dport = 81));
	EXPECT_DROP(&lb, &in, HG_DROP_NO_BACKEND);
	assert_int_equal(lb_service_counters(&lb, 1).dropped, 1);
	assert_int_equal(lb_service_counters(&lb, 2).packets, 1);
}

/* Words a broken writer might store: named drops, and other services go on. */
static void test_broken_tables(void **state)
{
	struct hg_service *s = NULL;
	struct pktbuf in;

	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 1, .slots = 13, .backends = one, .n = 1);
	for (unsigned i = 0; i < LB_BUCKETS; i++)
		if (lb.services[i].mode)
			s = &lb.services[i];
	assert_non_null(s);
	PKT(&in, E, TO4(VIP4), TCP(.sport = 9, .dport = 80));
	s->slots_block = 0xfffffff0u;
	EXPECT_DROP(&lb, &in, HG_DROP_INTERNAL);
	s->slots_block = 0;
	s->slots = 0xffffffffu;
	EXPECT_DROP(&lb, &in, HG_DROP_INTERNAL);
	s->slots = 13;
	s->mode = HG_MODE_ADDR + 1;
	EXPECT_DROP(&lb, &in, HG_DROP_INTERNAL);
	s->mode = 200;
	EXPECT_DROP(&lb, &in, HG_DROP_INTERNAL);
	s->mode = HG_MODE_IPIP;
	s->id = 0x7fffffff; /* no row for it: forwarded, not counted */
	assert_int_equal(backend_of(&in), 1);
	lb.control->service_generation = 0xfffffffe; /* only the last bit counts */
	assert_int_equal(backend_of(&in), 1);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup(f, clear)
	const struct CMUnitTest tests[] = {
		ROW(test_empty_table), ROW(test_exact),		ROW(test_local),
		ROW(test_any_port),    ROW(test_generations),	ROW(test_probing),
		ROW(test_probe_limit), ROW(test_select),	ROW(test_source_affinity),
		ROW(test_no_backend),  ROW(test_broken_tables),
	};

	return cmocka_run_group_tests_name("service", tests, edge_setup, edge_teardown);
}
