/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ICMP: errors go to the backend of the flow they quote, echo requests to service addresses are answered,
 * and packets that do not fit are answered with what does.
 * links:
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "packet/edge.h"

#define ROUTER4 "198.51.100.9"
#define ROUTER6 "2001:db8:f::9"
#define MIXED4	"192.0.2.30"

/* Five backends behind 10.0.0.20 + id; TCP 80 and UDP 53 of both addresses; echo answered for VIPs. */
static int rows(void **state)
{
	edge_five_backends();
	for (unsigned v6 = 0; v6 <= 1; v6++) {
		const char *vip = v6 ? VIP6 : VIP4;

		LB_SERVICE(&lb, .addr = vip, .port = 80, .id = v6, .slots = 4093,
			   .backends = edge_ids, .n = 5);
		LB_SERVICE(&lb, .addr = vip, .port = 53, .proto = 17, .id = 2 + v6, .slots = 4093,
			   .backends = edge_ids, .n = 5);
		LB_SERVICE(&lb, .addr = vip, .proto = v6 ? 58 : 1, .mode = HG_MODE_ADDR,
			   .id = 4 + v6);
	}
	LB_SERVICE(&lb, .addr = LOCAL4, .port = 80, .mode = HG_MODE_LOCAL, .id = 6);
	return 0;
}

#define OUTER(id, ...) IP4(.src = EDGE4, .dst = edge_backend(id), .frag = DF, __VA_ARGS__)

/* For many flows: the error about the flow goes where the flow's packets go, whatever is quoted. */
static void test_errors_v4(void **state)
{
	static const uint8_t types[][2] = { { 3, 4 }, { 3, 1 }, { 11, 0 }, { 12, 0 } };
	struct pktbuf flow, in, want;

	for (unsigned i = 0; i < 200; i++) {
		uint16_t port = (uint16_t)(1000 + i);
		uint8_t type = types[i % 4][0], code = types[i % 4][1];
		size_t quoted = i % 3 ? 8 : 20; /* of the transport header */
		unsigned id;

		PKT(&flow, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = port, .dport = 80));
		id = lb_backend_of(&lb, &flow, NULL);
		/* What the backend had sent to the client. */
		PKT(&flow, E, IP4(.src = VIP4, .dst = CLIENT4, .length = 1500, .opt_words = i % 5),
		    TCP(.sport = 80, .dport = port));
		PKT(&in, E, IP4(.src = ROUTER4, .dst = VIP4),
		    ICMP(.icmp_type = type, .icmp_code = code, .icmp_rest = 1400),
		    RAW(flow.data + 14, 20 + 4 * (i % 5) + quoted));
		PKT(&want, OUT, OUTER(id), IP4(.src = ROUTER4, .dst = VIP4, .ttl = 63),
		    ICMP(.icmp_type = type, .icmp_code = code, .icmp_rest = 1400),
		    RAW(flow.data + 14, 20 + 4 * (i % 5) + quoted));
		EXPECT(lb.prog, &in, XDP_TX, &want);
	}
	assert_int_equal(lb_events(&lb, HG_EVENT_ICMP_ERROR), 200);
	assert_int_equal(lb_service_counters(&lb, 0).forwarded, 400);
}

static void test_errors_v6(void **state)
{
	struct pktbuf flow, in, want;

	for (unsigned i = 0; i < 200; i++) {
		uint16_t port = (uint16_t)(1000 + i);
		uint8_t type = (uint8_t)(1 + i % 4);
		unsigned id;

		PKT(&flow, E, IP6(.src = CLIENT6, .dst = VIP6), UDP(.sport = port, .dport = 53),
		    DATA(30));
		id = lb_backend_of(&lb, &flow, NULL);
		PKT(&flow, E, IP6(.src = VIP6, .dst = CLIENT6, .length = 1460), EXT(60),
		    UDP(.sport = 53, .dport = port), DATA(30));
		PKT(&in, E, IP6(.src = ROUTER6, .dst = VIP6),
		    ICMP6(.icmp_type = type, .icmp_rest = 1280), RAW(flow.data + 14, 40 + 8 + 8));
		PKT(&want, OUT, OUTER(id), IP6(.src = ROUTER6, .dst = VIP6, .ttl = 63),
		    ICMP6(.icmp_type = type, .icmp_rest = 1280), RAW(flow.data + 14, 40 + 8 + 8));
		EXPECT(lb.prog, &in, XDP_TX, &want);
	}
	assert_int_equal(lb_events(&lb, HG_EVENT_ICMP_ERROR), 200);
}

#define PASSES(...)                                  \
	do {                                         \
		PKT(&in, __VA_ARGS__);               \
		EXPECT(lb.prog, &in, XDP_PASS, &in); \
	} while (0)

/* Errors about nobody's flow, about flows of this host, and what only looks like an error. */
static void test_errors_pass(void **state)
{
	struct pktbuf in;

	PASSES(E, IP4(.src = ROUTER4, .dst = VIP4), ICMP(.icmp_type = 3),
	       IP4(.src = VIP4, .dst = CLIENT4), TCP(.sport = 81, .dport = 9));
	PASSES(E, IP4(.src = ROUTER4, .dst = VIP4), ICMP(.icmp_type = 3),
	       IP4(.src = MIXED4, .dst = CLIENT4), TCP(.sport = 80, .dport = 9));
	PASSES(E, IP4(.src = ROUTER4, .dst = MIXED4), ICMP(.icmp_type = 3),
	       IP4(.src = VIP4, .dst = CLIENT4), TCP(.sport = 80, .dport = 9));
	PASSES(E, IP4(.src = ROUTER4, .dst = VIP4), ICMP(.icmp_type = 3), DATA(19));
	PASSES(E, IP4(.src = ROUTER4, .dst = VIP4), ICMP(.icmp_type = 3),
	       IP4(.src = VIP4, .dst = CLIENT4, .proto = 6), DATA(3));
	PASSES(E, IP4(.src = ROUTER4, .dst = VIP4), ICMP(.icmp_type = 3),
	       IP4(.src = VIP4, .dst = CLIENT4, .frag = 9), TCP(.sport = 80, .dport = 9));
	PASSES(E, IP4(.src = ROUTER4, .dst = VIP4), ICMP(.icmp_type = 5),
	       IP4(.src = VIP4, .dst = CLIENT4), TCP(.sport = 80, .dport = 9)); /* redirect */
	PASSES(E, IP4(.src = ROUTER4, .dst = VIP4), ICMP(.icmp_type = 3),
	       IP4(.src = VIP4, .dst = CLIENT4),
	       ICMP(.icmp_type = 0)); /* about an echo reply of ours */
	PASSES(E, IP6(.src = ROUTER6, .dst = VIP6), ICMP6(.icmp_type = 1),
	       IP6(.src = VIP6, .dst = CLIENT6), TCP(.sport = 81, .dport = 9));
	PASSES(E, IP6(.src = ROUTER6, .dst = VIP6), ICMP6(.icmp_type = 1), DATA(39));
	PASSES(E, IP4(.src = ROUTER4, .dst = LOCAL4), ICMP(.icmp_type = 3),
	       IP4(.src = LOCAL4, .dst = CLIENT4), TCP(.sport = 80, .dport = 9));
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_PASS_LOCAL), 1);
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_PASS_NOT_OURS), 10);
}

/* The error itself is refused like any packet: TTL, and never answered when too big. */
static void test_errors_limits(void **state)
{
	struct pktbuf in;

	PKT(&in, E, IP4(.src = ROUTER4, .dst = VIP4, .ttl = 1), ICMP(.icmp_type = 3),
	    IP4(.src = VIP4, .dst = CLIENT4), TCP(.sport = 80, .dport = 9));
	EXPECT_DROP(&lb, &in, HG_DROP_TTL);
	PKT(&in, E, IP4(.src = ROUTER4, .dst = VIP4, .frag = DF), ICMP(.icmp_type = 3),
	    IP4(.src = VIP4, .dst = CLIENT4), TCP(.sport = 80, .dport = 9), DATA(1420));
	EXPECT_DROP(&lb, &in, HG_DROP_TOO_BIG);
	assert_int_equal(lb_service_counters(&lb, 0).dropped, 2);
}

static void test_errors_moved_slot(void **state)
{
	static const uint16_t two[] = { 2 };
	struct pktbuf in, want;

	/* Nothing known of the flow, so it began before the change. The error is not remembered. */
	LB_SERVICE(&lb, .addr = MIXED4, .port = 80, .id = 9, .slots = 13, .backends = two, .n = 1,
		   .base = 1);
	PKT(&in, E, IP4(.src = ROUTER4, .dst = MIXED4), ICMP(.icmp_type = 3),
	    IP4(.src = MIXED4, .dst = CLIENT4), TCP(.sport = 80, .dport = 9));
	PKT(&want, OUT, OUTER(1), IP4(.src = ROUTER4, .dst = MIXED4, .ttl = 63),
	    ICMP(.icmp_type = 3), IP4(.src = MIXED4, .dst = CLIENT4), TCP(.sport = 80, .dport = 9));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	assert_int_equal(lb_flow_count(&lb, 0, -1), 0);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = MIXED4),
	    TCP(.sport = 9, .dport = 80, .flags = TCP_SYN));
	assert_int_equal(lb_backend_of(&lb, &in, NULL), 2);
	PKT(&in, E, IP4(.src = ROUTER4, .dst = MIXED4), ICMP(.icmp_type = 3),
	    IP4(.src = MIXED4, .dst = CLIENT4), TCP(.sport = 80, .dport = 9));
	PKT(&want, OUT, OUTER(2), IP4(.src = ROUTER4, .dst = MIXED4, .ttl = 63),
	    ICMP(.icmp_type = 3), IP4(.src = MIXED4, .dst = CLIENT4), TCP(.sport = 80, .dport = 9));
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

static void test_echo(void **state)
{
	struct pktbuf in, want;

	for (uint32_t i = 0; i < 600; i++) {
		uint32_t rest = i * 2654435761u;

		PKT(&in, E,
		    IP4(.src = CLIENT4, .dst = VIP4, .ttl = (uint8_t)(1 + i % 255), .id = i),
		    ICMP(.icmp_type = 8, .icmp_rest = rest), DATA(i));
		PKT(&want, BACK, IP4(.src = VIP4, .dst = CLIENT4, .id = i),
		    ICMP(.icmp_type = 0, .icmp_rest = rest), DATA(i));
		EXPECT(lb.prog, &in, XDP_TX, &want);
		PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6, .ttl = (uint8_t)(1 + i % 255)),
		    ICMP6(.icmp_type = 128, .icmp_rest = rest), DATA(i));
		PKT(&want, BACK, IP6(.src = VIP6, .dst = CLIENT6),
		    ICMP6(.icmp_type = 129, .icmp_rest = rest), DATA(i));
		EXPECT(lb.prog, &in, XDP_TX, &want);
	}
	PKT(&in, E, VLAN(.tci = 77), IP4(.src = CLIENT4, .dst = VIP4, .opt_words = 2),
	    ICMP(.icmp_type = 8), DATA(9));
	PKT(&want, BACK, VLAN(.tci = 77), IP4(.src = VIP4, .dst = CLIENT4, .opt_words = 2),
	    ICMP(.icmp_type = 0), DATA(9));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), EXT(60), ICMP6(.icmp_type = 128), DATA(9));
	PKT(&want, BACK, IP6(.src = VIP6, .dst = CLIENT6), EXT(60), ICMP6(.icmp_type = 129),
	    DATA(9));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_REPLY), 1202);
	assert_int_equal(lb_events(&lb, HG_EVENT_ECHO), 1202);
	assert_int_equal(lb_service_counters(&lb, 4).answered, 601);
	assert_int_equal(lb_service_counters(&lb, 5).packets, 601);
	/* A damaged request stays damaged. */
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), ICMP(.icmp_type = 8, .bad_csum = true),
	    DATA(9));
	PKT(&want, BACK, IP4(.src = VIP4, .dst = CLIENT4), ICMP(.icmp_type = 0, .bad_csum = true),
	    DATA(9));
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

static void test_echo_not_answered(void **state)
{
	static const char *const no_asker[] = { "224.0.0.5", "255.255.255.255", "127.0.0.1",
						"0.0.0.0" };
	struct pktbuf in;

	PASSES(E, IP4(.src = CLIENT4, .dst = LOCAL4), ICMP(.icmp_type = 8), DATA(9));
	PASSES(E, IP4(.src = CLIENT4, .dst = MIXED4), ICMP(.icmp_type = 8), DATA(9));
	PASSES(E, IP4(.src = CLIENT4, .dst = VIP4), ICMP(.icmp_type = 8, .icmp_code = 1), DATA(9));
	PASSES(E, IP4(.src = CLIENT4, .dst = VIP4), ICMP(.icmp_type = 0), DATA(9));
	PASSES(E, IP4(.src = CLIENT4, .dst = VIP4), ICMP(.icmp_type = 13), DATA(12));
	PASSES(E, IP4(.src = CLIENT4, .dst = VIP4, .frag = 0x2000), ICMP(.icmp_type = 8), DATA(9));
	PASSES(E, IP4(.src = CLIENT4, .dst = VIP4, .proto = 1), DATA(7));
	PASSES(E, IP6(.src = CLIENT6, .dst = VIP6, .proto = 1), ICMP(.icmp_type = 8), DATA(9));
	for (uint8_t type = 130; type <= 137; type++)
		PASSES(E, IP6(.src = CLIENT6, .dst = VIP6), ICMP6(.icmp_type = type), DATA(24));
	for (unsigned i = 0; i < 4; i++) {
		PKT(&in, E, IP4(.src = no_asker[i], .dst = VIP4), ICMP(.icmp_type = 8), DATA(9));
		EXPECT_DROP(&lb, &in, HG_DROP_BAD_HEADER);
	}
	PKT(&in, E, IP6(.src = "ff02::1", .dst = VIP6), ICMP6(.icmp_type = 128), DATA(9));
	EXPECT_DROP(&lb, &in, HG_DROP_BAD_HEADER);
	PKT(&in, E, IP6(.src = "::", .dst = VIP6), ICMP6(.icmp_type = 128), DATA(9));
	EXPECT_DROP(&lb, &in, HG_DROP_BAD_HEADER);
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_REPLY), 0);
}

/* Neighbour discovery is the kernel's even where a service takes every protocol. */
static void test_link_messages_of_any_service(void **state)
{
	struct pktbuf in;

	LB_SERVICE(&lb, .addr = VIP6, .proto = ANY_PROTO, .id = 9, .slots = 13,
		   .backends = edge_ids, .n = 1);
	for (uint8_t type = 130; type <= 137; type++)
		PASSES(E, IP6(.src = CLIENT6, .dst = VIP6), ICMP6(.icmp_type = type), DATA(24));
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), ICMP6(.icmp_type = 129), DATA(24));
	assert_int_equal(lb_backend_of(&lb, &in, NULL), 1);
}

static void test_too_big_v4(void **state)
{
	static const struct layer tags[3] = { VLAN(.tci = 5), VLAN(.tci = 6), { .type = L_DATA } };
	struct pktbuf in, want;

	for (unsigned n = 0; n <= 2; n++) {
		/* An empty layer where there is no tag. */
		const struct layer t1 = tags[n > 0 ? 0 : 2], t2 = tags[n > 1 ? 1 : 2];
		const struct layer eth_in = ETH(.dst = EDGE_MAC, .src = ROUTER_MAC,
						.ethertype = n ? 0x8100 : 0x0800);
		const struct layer eth_out = ETH(.dst = ROUTER_MAC, .src = EDGE_MAC,
						 .ethertype = n ? 0x8100 : 0x0800);
		struct layer v1 = t1, v2 = t2;

		if (n == 1)
			v1.ethertype = 0x0800;
		PKT(&in, eth_in, v1, v2, IP4(.src = CLIENT4, .dst = VIP4, .frag = DF, .tos = 4),
		    TCP(.sport = 9, .dport = 80), DATA(1441));
		PKT(&want, eth_out, v1, v2,
		    IP4(.src = VIP4, .dst = CLIENT4, .frag = DF, .proto = 1),
		    ICMP(.icmp_type = 3, .icmp_code = 4, .icmp_rest = 1480),
		    RAW(in.data + 14 + 4 * n, 548));
		EXPECT(lb.prog, &in, XDP_TX, &want);
	}
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_REPLY), 3);
	assert_int_equal(lb_service_counters(&lb, 0).answered, 3);
	assert_int_equal(lb_service_counters(&lb, 0).forwarded, 0);
	assert_int_equal(lb_events(&lb, HG_EVENT_TOO_BIG_SENT), 3);
	/* May be fragmented, but not by us: told all the same, also about the first of larger fragments. */
	for (uint16_t frag = 0; frag <= 0x2000; frag += 0x2000) {
		PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .frag = frag),
		    TCP(.sport = 9, .dport = 80), DATA(1441));
		PKT(&want, BACK, IP4(.src = VIP4, .dst = CLIENT4, .frag = DF, .proto = 1),
		    ICMP(.icmp_type = 3, .icmp_code = 4, .icmp_rest = 1480),
		    RAW(in.data + 14, 548));
		EXPECT(lb.prog, &in, XDP_TX, &want);
	}
	/* Its later ones are not worth a message. */
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .frag = 0x20b5, .proto = 6), DATA(1461));
	EXPECT_DROP(&lb, &in, HG_DROP_TOO_BIG);
}

static void test_too_big_v6(void **state)
{
	struct pktbuf in, want;

	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6, .id = 0x777), TCP(.sport = 9, .dport = 80),
	    DATA(1421));
	PKT(&want, BACK, IP6(.src = VIP6, .dst = CLIENT6), ICMP6(.icmp_type = 2, .icmp_rest = 1480),
	    RAW(in.data + 14, 1232));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, E, VLAN(.tci = 5), IP6(.src = CLIENT6, .dst = VIP6), EXT(60),
	    TCP(.sport = 9, .dport = 80), DATA(1900));
	PKT(&want, BACK, VLAN(.tci = 5), IP6(.src = VIP6, .dst = CLIENT6),
	    ICMP6(.icmp_type = 2, .icmp_rest = 1480), RAW(in.data + 18, 1232));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	assert_int_equal(lb_service_counters(&lb, 1).answered, 2);
	/* Below 1,280 no sender may be sent. */
	for (uint32_t id = 1; id <= 5; id++)
		lb.backends[id].mtu = 1290;
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), TCP(.sport = 9, .dport = 80), DATA(1221));
	PKT(&want, BACK, IP6(.src = VIP6, .dst = CLIENT6), ICMP6(.icmp_type = 2, .icmp_rest = 1280),
	    RAW(in.data + 14, 1232));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), TCP(.sport = 9, .dport = 80), DATA(1220));
	EXPECT_DROP(&lb, &in, HG_DROP_TOO_BIG);
}

/* The other methods say what fits them. */
static void test_too_big_methods(void **state)
{
	static const uint16_t one[] = { 1 };
	struct pktbuf in, want;

	LB_SERVICE(&lb, .addr = MIXED4, .port = 80, .mode = HG_MODE_GUE, .id = 8, .slots = 13,
		   .backends = one, .n = 1);
	LB_SERVICE(&lb, .addr = MIXED4, .port = 81, .mode = HG_MODE_L2, .id = 9, .slots = 13,
		   .backends = one, .n = 1);
	for (uint16_t l2 = 0; l2 <= 1; l2++) {
		PKT(&in, E, IP4(.src = CLIENT4, .dst = MIXED4, .frag = DF),
		    TCP(.sport = 9, .dport = 80 + l2), DATA(1461));
		PKT(&want, BACK, IP4(.src = MIXED4, .dst = CLIENT4, .frag = DF, .proto = 1),
		    ICMP(.icmp_type = 3, .icmp_code = 4, .icmp_rest = l2 ? 1500 : 1468),
		    RAW(in.data + 14, 548));
		EXPECT(lb.prog, &in, XDP_TX, &want);
		assert_int_equal(lb_service_counters(&lb, 8 + l2).answered, 1);
	}
}

/* RFC 1122 3.2.2, RFC 4443 2.4 (e.6): no message where no single host has asked. */
static void test_too_big_to_nobody(void **state)
{
	static const char *const v4[] = { "0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255" };
	static const char *const v6[] = { "::", "ff02::1", "ff0e::7" };
	struct pktbuf in;

	for (unsigned i = 0; i < sizeof(v4) / sizeof(v4[0]); i++) {
		PKT(&in, E, IP4(.src = v4[i], .dst = VIP4, .frag = DF),
		    TCP(.sport = 9, .dport = 80), DATA(1441));
		EXPECT_DROP(&lb, &in, HG_DROP_TOO_BIG);
	}
	for (unsigned i = 0; i < sizeof(v6) / sizeof(v6[0]); i++) {
		PKT(&in, E, IP6(.src = v6[i], .dst = VIP6), TCP(.sport = 9, .dport = 80),
		    DATA(1441));
		EXPECT_DROP(&lb, &in, HG_DROP_TOO_BIG);
	}
	assert_int_equal(lb_events(&lb, HG_EVENT_TOO_BIG_SENT), 0);
}

/* IPv6 senders of fragments learn from any of them; about later ones of IPv4 nothing is said. */
static void test_too_big_fragments(void **state)
{
	struct pktbuf in, want;

	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), EXT(44, .frag = 1, .id = 7),
	    UDP(.sport = 9, .dport = 53, .length = 2000), DATA(1432));
	PKT(&want, BACK, IP6(.src = VIP6, .dst = CLIENT6), ICMP6(.icmp_type = 2, .icmp_rest = 1480),
	    RAW(in.data + 14, 1232));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), EXT(44, .frag = 1440, .id = 7, .proto = 17),
	    DATA(1440));
	PKT(&want, BACK, IP6(.src = VIP6, .dst = CLIENT6), ICMP6(.icmp_type = 2, .icmp_rest = 1480),
	    RAW(in.data + 14, 1232));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .id = 7, .frag = DF | 0x2000),
	    UDP(.sport = 9, .dport = 53, .length = 2000), DATA(1448));
	EXPECT(lb.prog, &in, XDP_TX, NULL);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .id = 7, .frag = DF | 182, .proto = 17),
	    DATA(1468));
	EXPECT_DROP(&lb, &in, HG_DROP_TOO_BIG);
}

static void test_too_big_rate(void **state)
{
	unsigned sent, limited;
	struct pktbuf in;

	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .frag = DF), TCP(.sport = 9, .dport = 80),
	    DATA(1441));
	for (unsigned i = 0; i < 2000; i++)
		prog_run(lb.prog, &in, NULL);
	sent = (unsigned)lb_events(&lb, HG_EVENT_TOO_BIG_SENT);
	limited = (unsigned)lb_events(&lb, HG_EVENT_TOO_BIG_LIMITED);
	assert_int_equal(sent + limited, 2000);
	assert_int_equal(lb_drops(&lb, HG_DROP_TOO_BIG), limited);
	assert_in_range(sent, HG_BUCKET_JIFFIES, 1000);
	lb_tokens(&lb, false);
	EXPECT_DROP(&lb, &in, HG_DROP_TOO_BIG);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup(f, rows)
	const struct CMUnitTest tests[] = {
		ROW(test_errors_v4),	     ROW(test_errors_v6),
		ROW(test_errors_pass),	     ROW(test_errors_limits),
		ROW(test_errors_moved_slot), ROW(test_echo),
		ROW(test_echo_not_answered), ROW(test_link_messages_of_any_service),
		ROW(test_too_big_v4),	     ROW(test_too_big_v6),
		ROW(test_too_big_methods),   ROW(test_too_big_to_nobody),
		ROW(test_too_big_fragments), ROW(test_too_big_rate),
	};

	return cmocka_run_group_tests_name("icmp", tests, edge_setup, edge_teardown);
}
