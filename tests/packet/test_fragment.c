/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fragments: later ones go where their first one went, in both address families; what comes before its
 * first one, too late, or belongs to nobody.
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

static int rows(void **state)
{
	edge_five_backends();
	for (unsigned v6 = 0; v6 <= 1; v6++)
		LB_SERVICE(&lb, .addr = v6 ? VIP6 : VIP4, .port = 53, .proto = 17, .id = v6,
			   .slots = 4093, .backends = edge_ids, .n = 5);
	return 0;
}

/* A datagram in three pieces; what a whole one of its flow does says where they must go. */
static void test_follow_v4(void **state)
{
	struct pktbuf in, want;
	unsigned id;

	for (uint16_t i = 0; i < 300; i++) {
		PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), UDP(.sport = i, .dport = 53),
		    DATA(30));
		id = lb_backend_of(&lb, &in, NULL);
		PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .id = i, .frag = 0x2000),
		    UDP(.sport = i, .dport = 53, .length = 100), DATA(40));
		PKT(&want, OUT, IP4(.src = EDGE4, .dst = edge_backend(id), .frag = DF),
		    IP4(.src = CLIENT4, .dst = VIP4, .id = i, .frag = 0x2000, .ttl = 63),
		    UDP(.sport = i, .dport = 53, .length = 100), DATA(40));
		EXPECT(lb.prog, &in, XDP_TX, &want);
		for (unsigned part = 0; part < 2; part++) {
			uint16_t frag = part ? 12 : 0x2006;

			PKT(&in, E,
			    IP4(.src = CLIENT4, .dst = VIP4, .id = i, .frag = frag, .proto = 17),
			    DATA(part ? 4 : 48));
			PKT(&want, OUT, IP4(.src = EDGE4, .dst = edge_backend(id), .frag = DF),
			    IP4(.src = CLIENT4, .dst = VIP4, .id = i, .frag = frag, .proto = 17,
				.ttl = 63),
			    DATA(part ? 4 : 48));
			EXPECT(lb.prog, &in, XDP_TX, &want);
		}
	}
	assert_int_equal(lb_service_counters(&lb, 0).forwarded, 1200);
	assert_int_equal(lb_events(&lb, HG_EVENT_FRAG_FIRST), 300);
	assert_int_equal(lb_events(&lb, HG_EVENT_FRAG_FOLLOWED), 600);
}

static void test_follow_v6(void **state)
{
	struct pktbuf in, want;
	unsigned id;

	for (uint32_t i = 1; i <= 300; i++) {
		PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6),
		    UDP(.sport = (uint16_t)i, .dport = 53), DATA(30));
		id = lb_backend_of(&lb, &in, NULL);
		PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), EXT(44, .frag = 1, .id = i),
		    UDP(.sport = (uint16_t)i, .dport = 53, .length = 100), DATA(40));
		PKT(&want, OUT, IP4(.src = EDGE4, .dst = edge_backend(id), .frag = DF),
		    IP6(.src = CLIENT6, .dst = VIP6, .ttl = 63), EXT(44, .frag = 1, .id = i),
		    UDP(.sport = (uint16_t)i, .dport = 53, .length = 100), DATA(40));
		EXPECT(lb.prog, &in, XDP_TX, &want);
		PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6),
		    EXT(44, .frag = 48, .id = i, .proto = 17), DATA(52));
		PKT(&want, OUT, IP4(.src = EDGE4, .dst = edge_backend(id), .frag = DF),
		    IP6(.src = CLIENT6, .dst = VIP6, .ttl = 63),
		    EXT(44, .frag = 48, .id = i, .proto = 17), DATA(52));
		EXPECT(lb.prog, &in, XDP_TX, &want);
	}
	assert_int_equal(lb_events(&lb, HG_EVENT_FRAG_FOLLOWED), 300);
}

static void send_first(const char *src, uint16_t id)
{
	struct pktbuf in;

	PKT(&in, E, IP4(.src = src, .dst = VIP4, .id = id, .frag = 0x2000),
	    UDP(.sport = 9, .dport = 53), DATA(40));
	EXPECT(lb.prog, &in, XDP_TX, NULL);
}

#define PASSES(...)                                  \
	do {                                         \
		PKT(&in, __VA_ARGS__);               \
		EXPECT(lb.prog, &in, XDP_PASS, &in); \
	} while (0)
#define LATER(...) IP4(.frag = 6, .proto = 17, __VA_ARGS__), DATA(20)

/* Another datagram, address or protocol is another datagram; and the kernel may have a use for it. */
static void test_strangers(void **state)
{
	struct pktbuf in;

	PASSES(E, LATER(.src = CLIENT4, .dst = VIP4, .id = 7));
	send_first(CLIENT4, 7);
	PASSES(E, LATER(.src = CLIENT4, .dst = VIP4, .id = 8));
	PASSES(E, LATER(.src = "203.0.113.8", .dst = VIP4, .id = 7));
	PASSES(E, LATER(.src = CLIENT4, .dst = "192.0.2.11", .id = 7));
	PASSES(E, IP4(.src = CLIENT4, .dst = VIP4, .id = 7, .frag = 6, .proto = 6), DATA(20));
	PKT(&in, E, LATER(.src = CLIENT4, .dst = VIP4, .id = 7));
	EXPECT(lb.prog, &in, XDP_TX, NULL);
	/* Known for a while only. */
	lb_age(&lb, HG_RODATA_DEFAULT_FRAGMENT_TICKS - 1);
	EXPECT(lb.prog, &in, XDP_TX, NULL);
	lb_age(&lb, 3);
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_DROP), 0);
}

/* On an address that only services use, a later fragment before its first is dropped by name. */
static void test_address_row(void **state)
{
	struct pktbuf in;

	LB_SERVICE(&lb, .addr = VIP4, .proto = 1, .mode = HG_MODE_ADDR, .flags = HG_SVC_NOT_LOCAL,
		   .id = 9);
	LB_SERVICE(&lb, .addr = VIP6, .proto = 58, .mode = HG_MODE_ADDR, .id = 10);
	PKT(&in, E, LATER(.src = CLIENT4, .dst = VIP4, .id = 7));
	EXPECT_DROP(&lb, &in, HG_DROP_FRAGMENT);
	assert_int_equal(lb_service_counters(&lb, 9).dropped, 1);
	send_first(CLIENT4, 7);
	EXPECT(lb.prog, &in, XDP_TX, NULL);
	PASSES(E, IP6(.src = CLIENT6, .dst = VIP6), EXT(44, .frag = 48, .proto = 17), DATA(20));
	/* Not for whole packets of unknown services. */
	PASSES(E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 9, .dport = 22));
}

/* Services on any port: by the first fragment; without ports in the hash also without it. */
static void test_any_port(void **state)
{
	static const uint16_t one[] = { 1 };
	unsigned id, other = 0;
	struct pktbuf in;
	char src[16];

	LB_SERVICE(&lb, .addr = "192.0.2.50", .proto = 17, .id = 3, .slots = 13, .backends = one,
		   .n = 1, .flags = HG_SVC_ANY_PORT);
	LB_SERVICE(&lb, .addr = "192.0.2.60", .proto = 17, .id = 4, .slots = 4093,
		   .backends = edge_ids, .n = 5, .flags = HG_SVC_ANY_PORT | HG_SVC_NO_PORT_HASH);
	LB_SERVICE(&lb, .addr = "192.0.2.70", .proto = ANY_PROTO, .id = 5, .slots = 4093,
		   .backends = edge_ids, .n = 5, .flags = HG_SVC_ANY_PORT);
	PKT(&in, E, LATER(.src = CLIENT4, .dst = "192.0.2.50", .id = 7));
	EXPECT_DROP(&lb, &in, HG_DROP_FRAGMENT);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = "192.0.2.50", .id = 7, .frag = 0x2000),
	    UDP(.sport = 9, .dport = 777), DATA(40));
	assert_int_equal(lb_backend_of(&lb, &in, NULL), 1);
	PKT(&in, E, LATER(.src = CLIENT4, .dst = "192.0.2.50", .id = 7));
	assert_int_equal(lb_backend_of(&lb, &in, NULL), 1);
	for (unsigned i = 1; i < 100; i++) {
		snprintf(src, sizeof(src), "203.0.113.%u", i);
		PKT(&in, E, LATER(.src = src, .dst = "192.0.2.60", .id = 7));
		id = lb_backend_of(&lb, &in, NULL);
		PKT(&in, E, IP4(.src = src, .dst = "192.0.2.60", .id = 7, .frag = 0x2000),
		    UDP(.sport = (uint16_t)i, .dport = 777), DATA(40));
		assert_int_equal(lb_backend_of(&lb, &in, NULL), id);
		assert_in_range(id, 1, 5);
		/* SCTP: no ports at all. */
		PKT(&in, E, IP4(.src = src, .dst = "192.0.2.70", .id = 7, .proto = 132, .frag = 6),
		    DATA(8));
		id = lb_backend_of(&lb, &in, NULL);
		PKT(&in, E,
		    IP4(.src = src, .dst = "192.0.2.70", .id = 7, .proto = 132, .frag = 0x2000),
		    DATA(8));
		assert_int_equal(lb_backend_of(&lb, &in, NULL), id);
		PKT(&in, E, IP4(.src = src, .dst = "192.0.2.70", .proto = 132), DATA(80));
		assert_int_equal(lb_backend_of(&lb, &in, NULL), id);
		other |= 1u << id;
	}
	assert_int_equal(other, 0x3e);
}

/* The first fragment of a moved slot's flow is looked up like any packet, and the others follow. */
static void test_moved_slot(void **state)
{
	static const uint16_t two[] = { 2 };
	struct pktbuf in;

	LB_SERVICE(&lb, .addr = "192.0.2.50", .port = 53, .proto = 17, .id = 3, .slots = 13,
		   .backends = two, .n = 1, .base = 1);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = "192.0.2.50", .id = 7, .frag = 0x2000),
	    UDP(.sport = 9, .dport = 53), DATA(40));
	assert_int_equal(lb_backend_of(&lb, &in, NULL), 1);
	lb.backends[1].flags &= (uint8_t)~HG_BE_ALIVE; /* too late for this datagram */
	PKT(&in, E, LATER(.src = CLIENT4, .dst = "192.0.2.50", .id = 7));
	assert_int_equal(lb_backend_of(&lb, &in, NULL), 1);
}

static void test_local(void **state)
{
	struct pktbuf in;

	LB_SERVICE(&lb, .addr = "192.0.2.20", .port = 53, .proto = 17, .mode = HG_MODE_LOCAL,
		   .id = 9);
	PASSES(E, IP4(.src = CLIENT4, .dst = "192.0.2.20", .id = 7, .frag = 0x2000),
	       UDP(.sport = 9, .dport = 53), DATA(40));
	PASSES(E, LATER(.src = CLIENT4, .dst = "192.0.2.20", .id = 7));
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_PASS_LOCAL), 1);
}

/* More datagrams than there is room for: the newest are known. */
static void test_full(void **state)
{
	unsigned known = 0, n = LB_LINES * HG_LINE_WAYS * 3;
	struct pktbuf in;

	for (unsigned i = 0; i < n; i++) {
		if (i % 1000 == 999)
			lb_age(&lb, 1);
		send_first(CLIENT4, (uint16_t)i);
	}
	for (unsigned i = n - 500; i < n; i++) {
		PKT(&in, E, LATER(.src = CLIENT4, .dst = VIP4, .id = i));
		known += prog_run(lb.prog, &in, NULL) == XDP_TX;
	}
	assert_in_range(known, 450, 500);
}

/* A large ping to a service of every protocol: its address row has the same key as a packet without ports. */
static void test_icmp_of_any_protocol(void **state)
{
	struct pktbuf in;

	for (unsigned v6 = 0; v6 <= 1; v6++) {
		const char *vip = v6 ? VIP6 : VIP4;

		LB_SERVICE(&lb, .addr = vip, .proto = ANY_PROTO, .id = 7 + v6, .slots = 13,
			   .backends = edge_ids, .n = 1);
		LB_SERVICE(&lb, .addr = vip, .proto = v6 ? 58 : 1, .mode = HG_MODE_ADDR,
			   .id = 9 + v6);
	}
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .id = 1, .frag = 0x2000), ICMP(.icmp_type = 8),
	    DATA(40));
	assert_int_equal(lb_backend_of(&lb, &in, NULL), 1);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .id = 1, .frag = 6, .proto = 1), DATA(40));
	assert_int_equal(lb_backend_of(&lb, &in, NULL), 1);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), EXT(44, .frag = 1, .id = 1),
	    ICMP6(.icmp_type = 128), DATA(40));
	assert_int_equal(lb_backend_of(&lb, &in, NULL), 1);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), EXT(44, .frag = 48, .id = 1, .proto = 58),
	    DATA(40));
	assert_int_equal(lb_backend_of(&lb, &in, NULL), 1);
	assert_int_equal(lb_events(&lb, HG_EVENT_FRAG_FOLLOWED), 2);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup(f, rows)
	const struct CMUnitTest tests[] = {
		ROW(test_follow_v4),   ROW(test_follow_v6), ROW(test_strangers),
		ROW(test_address_row), ROW(test_any_port),  ROW(test_moved_slot),
		ROW(test_local),       ROW(test_full),	    ROW(test_icmp_of_any_protocol),
	};

	return cmocka_run_group_tests_name("fragment", tests, edge_setup, edge_teardown);
}
