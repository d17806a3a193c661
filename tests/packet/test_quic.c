/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QUIC: short headers go to the backend whose server id the connection id carries, wherever the client has
 * moved; all else by flow.
 * links:
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "packet/edge.h"

static const uint16_t new_owner[] = { 2 };
static uint16_t next_port;

/* UDP 443: server id of two bytes behind the first octet; ids 0x100 + n are backend n. */
static int rows(void **state)
{
	edge_five_backends();
	lb_tokens(&lb, true);
	for (unsigned v6 = 0; v6 <= 1; v6++)
		LB_SERVICE(&lb, .addr = v6 ? VIP6 : VIP4, .port = 443, .proto = 17, .id = v6,
			   .slots = 4093, .backends = edge_ids, .n = 5, .flags = HG_SVC_QUIC_CID,
			   .cid_offset = 1, .cid_len = 2, .quic_block = 0, .quic_ids = 0x106);
	memset(lb.quic, 0, sizeof(*lb.quic) * LB_QUIC);
	return 0;
}

/* Server edge_ids need nine blocks in the rows above; the map has eight: beyond its end is unknown. */
static void give_ids(uint32_t first)
{
	for (uint32_t n = 1; n <= 5; n++) {
		uint32_t id = first + n;

		lb.quic[id / 32].backend[id % 32] = (uint16_t)n;
	}
}

static unsigned send(bool v6, uint16_t sport, const void *payload, size_t len)
{
	struct pktbuf in;

	if (v6)
		PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), UDP(.sport = sport, .dport = 443),
		    RAW(payload, len));
	else
		PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), UDP(.sport = sport, .dport = 443),
		    RAW(payload, len));
	return lb_backend_of(&lb, &in, NULL);
}

/* Short header, connection id 07 <server id> <nonce>, from a port never used before. */
static unsigned send_short(bool v6, uint32_t server)
{
	uint8_t p[40] = { 0x4a, 0x07, (uint8_t)(server >> 8), (uint8_t)server, 1, 2, 3, 4, 5 };

	return send(v6, ++next_port, p, sizeof(p));
}

static unsigned by_flow(bool v6, uint16_t sport)
{
	uint64_t hash = edge_hash(v6 ? CLIENT6 : CLIENT4, v6 ? VIP6 : VIP4, sport, 443, 17);

	return edge_ids[hg_flow_slot(hash, 4093) % 5];
}

static void test_short(void **state)
{
	unsigned id;

	give_ids(0x80);
	for (unsigned i = 0; i < 100; i++)
		for (unsigned v6 = 0; v6 <= 1; v6++)
			assert_int_equal(send_short(v6, 0x80 + 1 + i % 5), 1 + i % 5);
	assert_int_equal(lb_events(&lb, HG_EVENT_QUIC_BY_ID), 200);
	/* Unknown edge_ids, edge_ids beyond the service's and beyond the map's end. */
	for (unsigned i = 0; i < 100; i++) {
		static const uint32_t unknown[] = { 0, 0x80, 0x86, 0x105, 0x106, 0xffff };

		id = send_short(i % 2, unknown[i % 6]);
		assert_int_equal(id, by_flow(i % 2, next_port));
	}
	assert_int_equal(lb_events(&lb, HG_EVENT_QUIC_UNKNOWN_ID), 100);
	/* A dead backend's connections are by flow. */
	lb.backends[3].flags &= (uint8_t)~HG_BE_ALIVE;
	id = send_short(false, 0x83);
	assert_int_equal(id, by_flow(false, next_port));
}

/* Initial, 0-RTT, Handshake, Retry, version negotiation: by flow, though the bytes would match an id. */
static void test_long(void **state)
{
	give_ids(0x80);
	for (unsigned i = 0; i < 100; i++) {
		uint8_t p[60] = { (uint8_t)(0xc0 | i % 4 << 4), 0, 0x81, 0x81, 1, 8, 7, 0, 0x81 };

		next_port++;
		assert_int_equal(send(i % 2, next_port, p, sizeof(p)), by_flow(i % 2, next_port));
	}
	assert_int_equal(lb_events(&lb, HG_EVENT_QUIC_BY_ID), 0);
}

/* Place and length of the server id; packets too short for it; a broken configuration. */
static void test_layouts(void **state)
{
	uint8_t p[40] = { 0x40 };

	for (uint8_t len = 0; len <= 6; len++)
		for (uint8_t offset = 0; offset <= 18; offset++) {
			bool sane = len >= 1 && len <= 4 && offset <= 16;

			rows(state);
			give_ids(0);
			for (unsigned i = 0; i < 2 * LB_BUCKETS; i++)
				if (lb.services[i].mode) {
					lb.services[i].cid_offset = offset;
					lb.services[i].cid_len = len;
				}
			memset(p + 1, 0xee, sizeof(p) - 1);
			memset(p + 1 + offset, 0, len);
			if (len)
				p[offset + len] = 4;
			next_port++;
			assert_int_equal(send(offset % 2, next_port, p, sizeof(p)),
					 sane ? 4 : by_flow(offset % 2, next_port));
			for (size_t n = 0; n < 5u + offset; n++) {
				next_port++;
				assert_int_equal(send(false, next_port, p, n),
						 by_flow(false, next_port));
			}
		}
}

/* On moved slots an Initial begins a connection, in both versions of QUIC; all else began before. */
static void test_moved_slot(void **state)
{
	static const uint8_t initial1[60] = { 0xc3, 0, 0, 0, 1, 8 },
			     initial2[60] = { 0xd3, 0x6b, 0x33, 0x43, 0xcf, 8 },
			     handshake[60] = { 0xe3, 0, 0, 0, 1, 8 },
			     grease[60] = { 0xc3, 0x0a, 0x0a, 0x0a, 0x0a };

	rows(state);
	LB_SERVICE(&lb, .addr = "192.0.2.50", .port = 443, .proto = 17, .id = 3, .slots = 13,
		   .backends = new_owner, .n = 1, .base = 1, .flags = HG_SVC_QUIC_CID,
		   .cid_offset = 1, .cid_len = 1, .quic_ids = 32);
	const struct {
		const uint8_t *p;
		unsigned id;
	} t[] = { { initial1, 2 }, { initial2, 2 }, { handshake, 1 }, { grease, 1 } };

	for (unsigned i = 0; i < 4; i++) {
		struct pktbuf in;

		PKT(&in, E, IP4(.src = CLIENT4, .dst = "192.0.2.50"),
		    UDP(.sport = 100 + i, .dport = 443), RAW(t[i].p, 60));
		assert_int_equal(lb_backend_of(&lb, &in, NULL), t[i].id);
		PKT(&in, E, IP4(.src = CLIENT4, .dst = "192.0.2.50"),
		    UDP(.sport = 100 + i, .dport = 443), RAW(handshake, 60));
		assert_int_equal(lb_backend_of(&lb, &in, NULL), t[i].id);
	}
}

/* With tags and extension headers the payload is elsewhere. */
static void test_odd(void **state)
{
	uint8_t p[40] = { 0x4a, 0x07, 0, 0x83 };
	struct pktbuf in;

	give_ids(0x80);
	PKT(&in, E, VLAN(.tci = 5), IP6(.src = CLIENT6, .dst = VIP6), EXT(60, .opt_words = 3),
	    UDP(.sport = 5, .dport = 443), RAW(p, sizeof(p)));
	assert_int_equal(lb_backend_of(&lb, &in, NULL), 3);
	PKT(&in, E, VLAN(.tci = 5), VLAN(.tci = 6),
	    IP4(.src = CLIENT4, .dst = VIP4, .opt_words = 10), UDP(.sport = 5, .dport = 443),
	    RAW(p, sizeof(p)));
	assert_int_equal(lb_backend_of(&lb, &in, NULL), 3);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup(f, rows)
	const struct CMUnitTest tests[] = {
		ROW(test_short),      ROW(test_long), ROW(test_layouts),
		ROW(test_moved_slot), ROW(test_odd),
	};

	return cmocka_run_group_tests_name("quic", tests, edge_setup, edge_teardown);
}
