/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Forwarding by IP in IP: every row with the whole frame that must come out, and every reason not to
 * forward with its counter.
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
	BE_NO_NEIGH = 4,
	BE_INVALID = 5,
	BE_ENTROPY4 = 6,
	BE_ENTROPY6 = 7,
	BE_MISSING = 200
};

/* TCP port p of either VIP leads to backend p - 8000. */
static int rows(void **state)
{
	static const uint16_t ids[] = { BE4,	    BE6,	 BE_OTHER_IF, BE_NO_NEIGH,
					BE_INVALID, BE_ENTROPY4, BE_ENTROPY6, BE_MISSING };

	lb_clear(&lb);
	LB_BACKEND(&lb, .id = BE4, .addr = BACKEND4, .src = EDGE4);
	LB_BACKEND(&lb, .id = BE6, .addr = BACKEND6, .src = EDGE6);
	LB_BACKEND(&lb, .id = BE_OTHER_IF, .addr = BACKEND4, .src = EDGE4, .ifindex = IFINDEX_OUT);
	LB_BACKEND(&lb, .id = BE_NO_NEIGH, .addr = BACKEND4, .src = EDGE4, .no_neigh = true);
	LB_BACKEND(&lb, .id = BE_INVALID, .addr = BACKEND4, .src = EDGE4, .invalid = true);
	LB_BACKEND(&lb, .id = BE_ENTROPY4, .addr = BACKEND4, .src = "10.255.255.255",
		   .entropy_mask = 0xffff);
	LB_BACKEND(&lb, .id = BE_ENTROPY6, .addr = BACKEND6, .src = EDGE6,
		   .entropy_mask = 0xffff0000);
	for (unsigned i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		LB_SERVICE(&lb, .addr = VIP4, .port = (uint16_t)(8000 + ids[i]), .id = i,
			   .slots = 13, .backends = &ids[i], .n = 1);
		LB_SERVICE(&lb, .addr = VIP6, .port = (uint16_t)(8000 + ids[i]), .id = 10 + i,
			   .slots = 13, .backends = &ids[i], .n = 1);
	}
	return 0;
}

#define OUTER4(...) IP4(.src = EDGE4, .dst = BACKEND4, .frag = DF, __VA_ARGS__)

static void test_4in4(void **state)
{
	struct pktbuf in, want;

	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .id = 0x1234, .frag = DF),
	    TCP(.sport = 40000, .dport = 8001, .flags = TCP_SYN), DATA(10));
	PKT(&want, OUT, OUTER4(),
	    IP4(.src = CLIENT4, .dst = VIP4, .id = 0x1234, .frag = DF, .ttl = 63),
	    TCP(.sport = 40000, .dport = 8001, .flags = TCP_SYN), DATA(10));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_TX), 1);
	assert_int_equal(lb_service_counters(&lb, 0).packets, 1);
	assert_int_equal(lb_service_counters(&lb, 0).bytes, 50);
	assert_int_equal(lb_service_counters(&lb, 0).forwarded, 1);
	assert_int_equal(lb_service_counters(&lb, 0).syns, 1);
	assert_int_equal(lb_service_counters(&lb, 0).dropped, 0);
	assert_int_equal(lb_service_counters(&lb, 0).local, 0);
	assert_int_equal(lb_backend_counters(&lb, BE4).packets, 1);
	assert_int_equal(lb_backend_counters(&lb, BE4).bytes, 50);
	assert_int_equal(lb_backend_counters(&lb, BE4).syns, 1);
	assert_int_equal(lb_backend_counters(&lb, BE6).packets, 0);

	/* SYN+ACK is not a new connection. */
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4),
	    TCP(.sport = 40000, .dport = 8001, .flags = TCP_SYN | TCP_ACK));
	PKT(&want, OUT, OUTER4(), IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63),
	    TCP(.sport = 40000, .dport = 8001, .flags = TCP_SYN | TCP_ACK));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	assert_int_equal(lb_service_counters(&lb, 0).syns, 1);
}

static void test_4in4_options_and_tos(void **state)
{
	struct pktbuf in, want;

	for (int words = 0; words <= 10; words++) {
		PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .opt_words = words, .tos = 0xb9),
		    TCP(.sport = 1, .dport = 8001, .opt_words = 3), DATA(7));
		PKT(&want, OUT, OUTER4(.tos = 0xb9),
		    IP4(.src = CLIENT4, .dst = VIP4, .opt_words = words, .tos = 0xb9, .ttl = 63),
		    TCP(.sport = 1, .dport = 8001, .opt_words = 3), DATA(7));
		EXPECT(lb.prog, &in, XDP_TX, &want);
	}
}

/* All values of TTL, TOS and length, so that every carry of the checksums is met. */
static void test_4in4_checksums(void **state)
{
	struct pktbuf in, want;

	for (unsigned i = 0; i < 3000; i++) {
		uint8_t ttl = (uint8_t)(i % 254 + 2), tos = (uint8_t)(i * 7);
		size_t n = i % 1440;

		PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .ttl = ttl, .tos = tos, .id = i * 77),
		    TCP(.sport = (uint16_t)i, .dport = 8001), DATA(n));
		PKT(&want, OUT, OUTER4(.tos = tos),
		    IP4(.src = CLIENT4, .dst = VIP4, .ttl = ttl - 1, .tos = tos, .id = i * 77),
		    TCP(.sport = (uint16_t)i, .dport = 8001), DATA(n));
		EXPECT(lb.prog, &in, XDP_TX, &want);
	}
}

static void test_6in6(void **state)
{
	uint32_t label = edge_hash(CLIENT6, VIP6, 40000, 8002, 6) & 0xfffff;
	struct pktbuf in, want;

	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6, .tos = 0x2e, .id = 0xabcde),
	    TCP(.sport = 40000, .dport = 8002), DATA(100));
	PKT(&want, OUT, IP6(.src = EDGE6, .dst = BACKEND6, .tos = 0x2e, .id = label),
	    IP6(.src = CLIENT6, .dst = VIP6, .tos = 0x2e, .id = 0xabcde, .ttl = 63),
	    TCP(.sport = 40000, .dport = 8002), DATA(100));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	assert_int_equal(lb_service_counters(&lb, 11).bytes, 160);
}

static void test_crossed(void **state)
{
	uint32_t label = edge_hash(CLIENT4, VIP4, 40000, 8002, 6) & 0xfffff;
	struct pktbuf in, want;

	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .tos = 1), TCP(.sport = 40000, .dport = 8002));
	PKT(&want, OUT, IP6(.src = EDGE6, .dst = BACKEND6, .id = label, .tos = 1, .proto = 4),
	    IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63, .tos = 1),
	    TCP(.sport = 40000, .dport = 8002));
	EXPECT(lb.prog, &in, XDP_TX, &want);

	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6, .tos = 0xff),
	    TCP(.sport = 40000, .dport = 8001));
	PKT(&want, OUT, OUTER4(.tos = 0xff),
	    IP6(.src = CLIENT6, .dst = VIP6, .ttl = 63, .tos = 0xff),
	    TCP(.sport = 40000, .dport = 8001));
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

static void test_extension_headers(void **state)
{
	static const uint8_t ext[] = { 0, 43, 60, 51 };
	uint32_t label = edge_hash(CLIENT6, VIP6, 5, 8002, 6) & 0xfffff;
	struct pktbuf in, want;

	for (unsigned i = 0; i < sizeof(ext); i++) {
		PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6, .proto = ext[i] ? ext[i] : -1),
		    EXT(ext[i], .opt_words = 2), EXT(60), TCP(.sport = 5, .dport = 8002));
		PKT(&want, OUT, IP6(.src = EDGE6, .dst = BACKEND6, .id = label),
		    IP6(.src = CLIENT6, .dst = VIP6, .ttl = 63, .proto = ext[i] ? ext[i] : -1),
		    EXT(ext[i], .opt_words = 2), EXT(60), TCP(.sport = 5, .dport = 8002));
		EXPECT(lb.prog, &in, XDP_TX, &want);
	}
}

static void test_entropy(void **state)
{
	uint32_t h4 = (uint32_t)edge_hash(CLIENT4, VIP4, 40000, 8006, 6);
	uint32_t h6 = (uint32_t)edge_hash(CLIENT6, VIP6, 40000, 8007, 6);
	struct pktbuf in, want;
	uint8_t a[4];
	char src4[16], src6[48];

	/* The mask is applied in network order, so the bytes of the hash go out as they lie. */
	memcpy(a, &h4, 4);
	snprintf(src4, sizeof(src4), "10.255.%u.%u", a[2], a[3]);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 40000, .dport = 8006));
	PKT(&want, OUT, IP4(.src = src4, .dst = BACKEND4, .frag = DF),
	    IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63), TCP(.sport = 40000, .dport = 8006));
	EXPECT(lb.prog, &in, XDP_TX, &want);

	memcpy(a, &h6, 4);
	snprintf(src6, sizeof(src6), "fd00::%02x%02x:0001", a[0], a[1]);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), TCP(.sport = 40000, .dport = 8007));
	PKT(&want, OUT, IP6(.src = src6, .dst = BACKEND6, .id = h6 & 0xfffff),
	    IP6(.src = CLIENT6, .dst = VIP6, .ttl = 63), TCP(.sport = 40000, .dport = 8007));
	EXPECT(lb.prog, &in, XDP_TX, &want);

	/* Checksums over many flows: the entropy takes part in them. */
	for (unsigned i = 0; i < 2000; i++) {
		uint32_t h = (uint32_t)edge_hash(CLIENT4, VIP4, (uint16_t)i, 8006, 6);

		memcpy(a, &h, 4);
		snprintf(src4, sizeof(src4), "10.255.%u.%u", a[2], a[3]);
		PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4),
		    TCP(.sport = (uint16_t)i, .dport = 8006));
		PKT(&want, OUT, IP4(.src = src4, .dst = BACKEND4, .frag = DF),
		    IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63),
		    TCP(.sport = (uint16_t)i, .dport = 8006));
		EXPECT(lb.prog, &in, XDP_TX, &want);
	}
}

static void test_other_interface(void **state)
{
	struct pktbuf in, want;

	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 9, .dport = 8003));
	PKT(&want, OUT, OUTER4(), IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63),
	    TCP(.sport = 9, .dport = 8003));
	EXPECT(lb.prog, &in, XDP_REDIRECT, &want);
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_REDIRECT), 1);
	assert_int_equal(lb_backend_counters(&lb, BE_OTHER_IF).packets, 1);
}

/* Padding after the datagram (short Ethernet frames) stays behind it and is not counted. */
static void test_padding(void **state)
{
	struct pktbuf in, want;

	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 9, .dport = 8001));
	PKT(&want, OUT, OUTER4(), IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63),
	    TCP(.sport = 9, .dport = 8001));
	in.len += 6;
	want.len += 6;
	EXPECT(lb.prog, &in, XDP_TX, &want);
	assert_int_equal(lb_service_counters(&lb, 0).bytes, 40);
}

static void test_mtu(void **state)
{
	struct pktbuf in, want;

	/* 1480 + 20 fits 1500, one byte more does not; the sender would be told (test_icmp). */
	lb_tokens(&lb, false);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 9, .dport = 8001), DATA(1440));
	PKT(&want, OUT, OUTER4(), IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63),
	    TCP(.sport = 9, .dport = 8001), DATA(1440));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 9, .dport = 8001), DATA(1441));
	EXPECT_DROP(&lb, &in, HG_DROP_TOO_BIG);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), TCP(.sport = 9, .dport = 8002), DATA(1401));
	EXPECT_DROP(&lb, &in, HG_DROP_TOO_BIG);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), TCP(.sport = 9, .dport = 8002), DATA(1400));
	EXPECT(lb.prog, &in, XDP_TX, NULL);
	assert_int_equal(lb_service_counters(&lb, 0).dropped, 1);
	assert_int_equal(lb_backend_counters(&lb, BE4).packets, 1);
}

static void test_ttl(void **state)
{
	struct pktbuf in, want;

	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .ttl = 1), TCP(.sport = 9, .dport = 8001));
	EXPECT_DROP(&lb, &in, HG_DROP_TTL);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6, .ttl = 1), TCP(.sport = 9, .dport = 8002));
	EXPECT_DROP(&lb, &in, HG_DROP_TTL);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .ttl = 2), TCP(.sport = 9, .dport = 8001));
	PKT(&want, OUT, OUTER4(), IP4(.src = CLIENT4, .dst = VIP4, .ttl = 1),
	    TCP(.sport = 9, .dport = 8001));
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

static void test_backend_faults(void **state)
{
	struct pktbuf in;

	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 9, .dport = 8004));
	EXPECT_DROP(&lb, &in, HG_DROP_NO_NEIGHBOUR);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 9, .dport = 8005));
	EXPECT_DROP(&lb, &in, HG_DROP_BAD_BACKEND);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), TCP(.sport = 9, .dport = 8200));
	EXPECT_DROP(&lb, &in, HG_DROP_BAD_BACKEND);
	assert_int_equal(lb_service_counters(&lb, 3).dropped, 1);
	assert_int_equal(lb_backend_counters(&lb, BE_NO_NEIGH).packets, 0);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup(f, rows)
	const struct CMUnitTest tests[] = {
		ROW(test_4in4),
		ROW(test_4in4_options_and_tos),
		ROW(test_4in4_checksums),
		ROW(test_6in6),
		ROW(test_crossed),
		ROW(test_extension_headers),
		ROW(test_entropy),
		ROW(test_other_interface),
		ROW(test_padding),
		ROW(test_mtu),
		ROW(test_ttl),
		ROW(test_backend_faults),
	};

	return cmocka_run_group_tests_name("forward", tests, edge_setup, edge_teardown);
}
