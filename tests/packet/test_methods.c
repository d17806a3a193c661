/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Forwarding by GUE and by direct routing: whole frames out, IPv4 and IPv6 inside and outside, and the
 * reasons not to forward.
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

#define BACKEND4 "10.0.0.21"
#define BACKEND6 "fd00::21"

enum {
	BE4 = 1,
	BE6 = 2,
	BE_OTHER_IF = 3,
	BE_ENTROPY = 4
};

/* TCP port 8000 + backend: GUE, 9000 + backend: L2; both addresses. */
static int rows(void **state)
{
	static const uint16_t ids[] = { BE4, BE6, BE_OTHER_IF, BE_ENTROPY };

	lb_clear(&lb);
	LB_BACKEND(&lb, .id = BE4, .addr = BACKEND4, .src = EDGE4);
	LB_BACKEND(&lb, .id = BE6, .addr = BACKEND6, .src = EDGE6);
	LB_BACKEND(&lb, .id = BE_OTHER_IF, .addr = BACKEND4, .src = EDGE4, .ifindex = IFINDEX_OUT);
	LB_BACKEND(&lb, .id = BE_ENTROPY, .addr = BACKEND4, .src = "10.255.0.0",
		   .entropy_mask = 0xffff);
	for (unsigned i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		for (unsigned l2 = 0; l2 <= 1; l2++)
			for (unsigned v6 = 0; v6 <= 1; v6++)
				LB_SERVICE(&lb, .addr = v6 ? VIP6 : VIP4,
					   .port = (uint16_t)(8000 + 1000 * l2 + ids[i]),
					   .mode = l2 ? HG_MODE_L2 : HG_MODE_GUE,
					   .id = 4 * i + 2 * l2 + v6, .slots = 13,
					   .backends = &ids[i], .n = 1);
	return 0;
}

/* Source port of the tunnel of a flow. */
static uint16_t tunnel_port(uint32_t hash)
{
	return (uint16_t)(0xc000 | (hash & 0x3fff));
}

#define GUE_UDP(h) UDP(.sport = tunnel_port(h), .dport = HG_GUE_PORT, .no_csum = true)

static void test_gue(void **state)
{
	struct pktbuf in, want;
	uint32_t h;

	h = (uint32_t)edge_hash(CLIENT4, VIP4, 40000, 8001, 6);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .tos = 0xb9),
	    TCP(.sport = 40000, .dport = 8001, .flags = TCP_SYN), DATA(11));
	PKT(&want, OUT, IP4(.src = EDGE4, .dst = BACKEND4, .frag = DF, .tos = 0xb9), GUE_UDP(h),
	    GUE(), IP4(.src = CLIENT4, .dst = VIP4, .tos = 0xb9, .ttl = 63),
	    TCP(.sport = 40000, .dport = 8001, .flags = TCP_SYN), DATA(11));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	assert_int_equal(lb_service_counters(&lb, 0).forwarded, 1);
	assert_int_equal(lb_service_counters(&lb, 0).bytes, 51);
	assert_int_equal(lb_backend_counters(&lb, BE4).syns, 1);

	h = (uint32_t)edge_hash(CLIENT6, VIP6, 40000, 8001, 6);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), TCP(.sport = 40000, .dport = 8001));
	PKT(&want, OUT, IP4(.src = EDGE4, .dst = BACKEND4, .frag = DF), GUE_UDP(h), GUE(),
	    IP6(.src = CLIENT6, .dst = VIP6, .ttl = 63), TCP(.sport = 40000, .dport = 8001));
	EXPECT(lb.prog, &in, XDP_TX, &want);

	h = (uint32_t)edge_hash(CLIENT4, VIP4, 40000, 8002, 6);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 40000, .dport = 8002));
	PKT(&want, OUT, IP6(.src = EDGE6, .dst = BACKEND6, .id = h & 0xfffff), GUE_UDP(h), GUE(),
	    IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63), TCP(.sport = 40000, .dport = 8002));
	EXPECT(lb.prog, &in, XDP_TX, &want);

	h = (uint32_t)edge_hash(CLIENT6, VIP6, 40000, 8002, 6);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6, .tos = 3), TCP(.sport = 40000, .dport = 8002));
	PKT(&want, OUT, IP6(.src = EDGE6, .dst = BACKEND6, .id = h & 0xfffff, .tos = 3), GUE_UDP(h),
	    GUE(), IP6(.src = CLIENT6, .dst = VIP6, .tos = 3, .ttl = 63),
	    TCP(.sport = 40000, .dport = 8002));
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

static void test_gue_odd(void **state)
{
	struct pktbuf in, want;
	char src[16];
	uint8_t a[4];
	uint32_t h;

	/* Options stay, tags where they are to; another interface, source address with entropy. */
	h = (uint32_t)edge_hash(CLIENT4, VIP4, 7, 8003, 6);
	lb.backends[BE_OTHER_IF].neigh.state |= HG_NEIGH_KEEP_TAGS;
	PKT(&in, E, VLAN(.tci = 0x6064), VLAN(.tci = 9),
	    IP4(.src = CLIENT4, .dst = VIP4, .opt_words = 3), TCP(.sport = 7, .dport = 8003));
	PKT(&want, OUT, VLAN(.tci = 0x6064), VLAN(.tci = 9),
	    IP4(.src = EDGE4, .dst = BACKEND4, .frag = DF), GUE_UDP(h), GUE(),
	    IP4(.src = CLIENT4, .dst = VIP4, .opt_words = 3, .ttl = 63),
	    TCP(.sport = 7, .dport = 8003));
	EXPECT(lb.prog, &in, XDP_REDIRECT, &want);
	for (uint16_t i = 0; i < 500; i++) {
		h = (uint32_t)edge_hash(CLIENT4, VIP4, i, 8004, 6);
		memcpy(a, &h, 4);
		snprintf(src, sizeof(src), "10.255.%u.%u", a[2], a[3]);
		PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = i, .dport = 8004));
		PKT(&want, OUT, IP4(.src = src, .dst = BACKEND4, .frag = DF), GUE_UDP(h), GUE(),
		    IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63), TCP(.sport = i, .dport = 8004));
		EXPECT(lb.prog, &in, XDP_TX, &want);
	}
}

/* 32 bytes go to the tunnel over IPv4, 52 over IPv6. */
static void test_gue_limits(void **state)
{
	struct pktbuf in;

	lb_tokens(&lb, false);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 7, .dport = 8001), DATA(1428));
	EXPECT(lb.prog, &in, XDP_TX, NULL);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 7, .dport = 8001), DATA(1429));
	EXPECT_DROP(&lb, &in, HG_DROP_TOO_BIG);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 7, .dport = 8002), DATA(1408));
	EXPECT(lb.prog, &in, XDP_TX, NULL);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 7, .dport = 8002), DATA(1409));
	EXPECT_DROP(&lb, &in, HG_DROP_TOO_BIG);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .ttl = 1), TCP(.sport = 7, .dport = 8001));
	EXPECT_DROP(&lb, &in, HG_DROP_TTL);
	lb.backends[BE4].neigh.word = 0;
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 7, .dport = 8001));
	EXPECT_DROP(&lb, &in, HG_DROP_NO_NEIGHBOUR);
}

static void test_l2(void **state)
{
	struct pktbuf in, want;

	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .tos = 0x10, .id = 77, .frag = DF),
	    TCP(.sport = 40000, .dport = 9001), DATA(100));
	PKT(&want, OUT,
	    IP4(.src = CLIENT4, .dst = VIP4, .tos = 0x10, .id = 77, .frag = DF, .ttl = 63),
	    TCP(.sport = 40000, .dport = 9001), DATA(100));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	assert_int_equal(lb_backend_counters(&lb, BE4).bytes, 140);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6, .id = 0x12345),
	    TCP(.sport = 1, .dport = 9002));
	PKT(&want, OUT, IP6(.src = CLIENT6, .dst = VIP6, .id = 0x12345, .ttl = 63),
	    TCP(.sport = 1, .dport = 9002));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, E, VLAN(.tci = 5), IP6(.src = CLIENT6, .dst = VIP6), EXT(60),
	    TCP(.sport = 1, .dport = 9003));
	PKT(&want, OUT, IP6(.src = CLIENT6, .dst = VIP6, .ttl = 63), EXT(60),
	    TCP(.sport = 1, .dport = 9003));
	EXPECT(lb.prog, &in, XDP_REDIRECT, &want);
	/* Padding stays. */
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 1, .dport = 9001));
	PKT(&want, OUT, IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63),
	    TCP(.sport = 1, .dport = 9001));
	in.len += 6;
	want.len += 6;
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

static void test_l2_limits(void **state)
{
	struct pktbuf in, want;

	lb_tokens(&lb, false);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .ttl = 1), TCP(.sport = 1, .dport = 9001));
	EXPECT_DROP(&lb, &in, HG_DROP_TTL);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6, .ttl = 1), TCP(.sport = 1, .dport = 9001));
	EXPECT_DROP(&lb, &in, HG_DROP_TTL);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .ttl = 2), TCP(.sport = 1, .dport = 9001),
	    DATA(1460));
	PKT(&want, OUT, IP4(.src = CLIENT4, .dst = VIP4, .ttl = 1), TCP(.sport = 1, .dport = 9001),
	    DATA(1460));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 1, .dport = 9001), DATA(1461));
	EXPECT_DROP(&lb, &in, HG_DROP_TOO_BIG);
	lb.backends[BE4].neigh.word = 0;
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 7, .dport = 9001));
	EXPECT_DROP(&lb, &in, HG_DROP_NO_NEIGHBOUR);
}

/* SCTP, GRE and whatever else, by the source alone; the inner packet is not looked into. */
static void test_any_protocol(void **state)
{
	static const uint16_t id[] = { BE4 };
	static const int protos[] = { 132, 47, 50, 99, 136 };
	struct pktbuf in, want;
	uint32_t h;

	LB_SERVICE(&lb, .addr = VIP4, .proto = ANY_PROTO, .id = 20, .slots = 13, .backends = id,
		   .n = 1);
	LB_SERVICE(&lb, .addr = VIP6, .proto = ANY_PROTO, .id = 21, .slots = 13, .backends = id,
		   .n = 1, .mode = HG_MODE_GUE);
	for (unsigned i = 0; i < sizeof(protos) / sizeof(protos[0]); i++) {
		PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .proto = protos[i]), DATA(40));
		PKT(&want, OUT, IP4(.src = EDGE4, .dst = BACKEND4, .frag = DF),
		    IP4(.src = CLIENT4, .dst = VIP4, .proto = protos[i], .ttl = 63), DATA(40));
		EXPECT(lb.prog, &in, XDP_TX, &want);
		h = (uint32_t)edge_hash(CLIENT6, VIP6, 0, 0, (uint8_t)protos[i]);
		PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6, .proto = protos[i]), DATA(40));
		PKT(&want, OUT, IP4(.src = EDGE4, .dst = BACKEND4, .frag = DF), GUE_UDP(h), GUE(),
		    IP6(.src = CLIENT6, .dst = VIP6, .proto = protos[i], .ttl = 63), DATA(40));
		/* 50 is ESP, 51 AH: the walk of extension headers ends at ESP. */
		EXPECT(lb.prog, &in, XDP_TX, &want);
	}
	assert_int_equal(lb_service_counters(&lb, 20).forwarded, 5);
	assert_int_equal(lb_service_counters(&lb, 21).forwarded, 5);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup(f, rows)
	const struct CMUnitTest tests[] = {
		ROW(test_gue), ROW(test_gue_odd),   ROW(test_gue_limits),
		ROW(test_l2),  ROW(test_l2_limits), ROW(test_any_protocol),
	};

	return cmocka_run_group_tests_name("methods", tests, edge_setup, edge_teardown);
}
