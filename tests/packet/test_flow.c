/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slots that changed owner: which flows stay, which go to the new owner, what is remembered and what may
 * push it out; several changes in one window; what the second chance is told.
 * links:
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "packet/edge.h"

enum {
	OLD = 1,
	NEW = 2,
	THIRD = 3,
	OLD6 = 4,
	NEW6 = 5,
	OTHER_FAMILY = 6
};

static const uint16_t new_owner[] = { NEW }, new6[] = { NEW6 };

/* Port 80: moved from OLD to NEW. 81: not moved. 82: UDP moved. 83: as 80 by GUE. */
static int rows(void **state)
{
	lb_clear(&lb);
	lb_tokens(&lb, true);
	LB_BACKEND(&lb, .id = OLD, .addr = "10.0.0.21", .src = EDGE4);
	LB_BACKEND(&lb, .id = NEW, .addr = "10.0.0.22", .src = EDGE4);
	LB_BACKEND(&lb, .id = THIRD, .addr = "10.0.0.23", .src = EDGE4);
	LB_BACKEND(&lb, .id = OLD6, .addr = "fd00::21", .src = EDGE6);
	LB_BACKEND(&lb, .id = NEW6, .addr = "fd00::22", .src = EDGE6);
	for (unsigned v6 = 0; v6 <= 1; v6++) {
		const char *vip = v6 ? VIP6 : VIP4;

		LB_SERVICE(&lb, .addr = vip, .port = 80, .id = v6, .slots = 13,
			   .backends = new_owner, .n = 1, .base = OLD);
		LB_SERVICE(&lb, .addr = vip, .port = 81, .id = 2 + v6, .slots = 13,
			   .backends = new_owner, .n = 1);
		LB_SERVICE(&lb, .addr = vip, .port = 82, .proto = 17, .id = 4 + v6, .slots = 13,
			   .backends = new_owner, .n = 1, .base = OLD);
		LB_SERVICE(&lb, .addr = vip, .port = 83, .id = 6 + v6, .slots = 13,
			   .mode = HG_MODE_GUE, .backends = new_owner, .n = 1, .base = OLD);
	}
	return 0;
}

static unsigned send(bool v6, uint16_t sport, uint16_t dport, uint8_t flags)
{
	struct pktbuf in;

	if (v6)
		PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6),
		    TCP(.sport = sport, .dport = dport, .flags = flags));
	else
		PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4),
		    TCP(.sport = sport, .dport = dport, .flags = flags));
	return lb_backend_of(&lb, &in, NULL);
}

static unsigned send_udp(uint16_t sport)
{
	struct pktbuf in;

	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), UDP(.sport = sport, .dport = 82), DATA(30));
	return lb_backend_of(&lb, &in, NULL);
}

/* The word of every slot of all services of the test. */
static void set_slots(uint32_t word)
{
	for (uint32_t i = 0; i < lb.next_block * 16; i++)
		lb.slots[i / 16].slot[i % 16] = word;
}

static void test_moved(void **state)
{
	for (unsigned v6 = 0; v6 <= 1; v6++) {
		/* Began before: stays. Begins now: new owner, and stays there. */
		assert_int_equal(send(v6, 1, 80, TCP_ACK), OLD);
		assert_int_equal(send(v6, 2, 80, TCP_SYN), NEW);
		assert_int_equal(send(v6, 2, 80, TCP_SYN), NEW);
		assert_int_equal(send(v6, 2, 80, TCP_ACK), NEW);
		assert_int_equal(send(v6, 2, 80, TCP_FIN | TCP_ACK), NEW);
		assert_int_equal(send(v6, 1, 80, TCP_PSH | TCP_ACK), OLD);
		assert_int_equal(send(v6, 3, 81, TCP_ACK), NEW);
		assert_int_equal(send(v6, 3, 81, TCP_SYN), NEW);
	}
	assert_int_equal(lb_flow_count(&lb, OLD, HG_FLOW_CONFIRMED), 2);
	assert_int_equal(lb_flow_count(&lb, NEW, HG_FLOW_CONFIRMED), 2);
	assert_int_equal(lb_flow_count(&lb, 0, -1), 4);
	assert_int_equal(lb_events(&lb, HG_EVENT_FLOW_NEW), 2);
	assert_int_equal(lb_events(&lb, HG_EVENT_FLOW_BASE), 2);
	assert_int_equal(lb_events(&lb, HG_EVENT_FLOW_HIT), 8);
	assert_int_equal(lb_events(&lb, HG_EVENT_FLOW_STORED), 4);
}

/* After the window the slot says NEW only; flows learnt on OLD stay until the bit goes. */
static void test_window_ends(void **state)
{
	assert_int_equal(send(false, 1, 80, TCP_ACK), OLD);
	assert_int_equal(send(false, 2, 80, TCP_SYN), NEW);
	set_slots(HG_SLOT_TRACKED | HG_SLOT_MAKE(NEW, NEW));
	assert_int_equal(send(false, 1, 80, TCP_ACK), OLD);
	assert_int_equal(send(false, 2, 80, TCP_ACK), NEW);
	assert_int_equal(send(false, 3, 80, TCP_ACK), NEW);
	set_slots(HG_SLOT_MAKE(NEW, NEW));
	assert_int_equal(send(false, 1, 80, TCP_ACK), NEW);
}

/* A to B to C inside one window: each flow where it began. */
static void test_two_changes(void **state)
{
	assert_int_equal(send(false, 1, 80, TCP_ACK), OLD);
	assert_int_equal(send(false, 2, 80, TCP_SYN), NEW);
	set_slots(HG_SLOT_TRACKED | HG_SLOT_MAKE(OLD, THIRD));
	assert_int_equal(send(false, 3, 80, TCP_SYN), THIRD);
	assert_int_equal(send(false, 1, 80, TCP_ACK), OLD);
	assert_int_equal(send(false, 2, 80, TCP_ACK), NEW);
	assert_int_equal(send(false, 3, 80, TCP_ACK), THIRD);
	assert_int_equal(send(false, 4, 80, TCP_ACK), OLD); /* silent until now */
	/* And back again to OLD. */
	set_slots(HG_SLOT_TRACKED | HG_SLOT_MAKE(OLD, OLD));
	assert_int_equal(send(false, 5, 80, TCP_SYN), OLD);
	assert_int_equal(send(false, 2, 80, TCP_ACK), NEW);
	assert_int_equal(send(false, 3, 80, TCP_ACK), THIRD);
}

static void test_dead_backends(void **state)
{
	assert_int_equal(send(false, 1, 80, TCP_ACK), OLD);
	assert_int_equal(send(false, 2, 80, TCP_SYN), NEW);
	lb.backends[OLD].flags &= (uint8_t)~HG_BE_ALIVE;
	assert_int_equal(send(false, 1, 80, TCP_ACK), NEW);
	assert_int_equal(send(false, 9, 80, TCP_ACK), NEW);
	lb.backends[OLD].flags |= HG_BE_ALIVE;
	/* Has moved with its entry, and stays. */
	assert_int_equal(send(false, 1, 80, TCP_ACK), NEW);
	assert_int_equal(lb_flow_count(&lb, 0, -1), 3);
	/* A removed one counts as dead, whatever its bit says. */
	lb.backends[OLD].flags = HG_BE_ALIVE;
	assert_int_equal(send(false, 10, 80, TCP_ACK), NEW);
	lb.backends[OLD].flags = HG_BE_VALID | HG_BE_ALIVE;
	/* No current owner: new flows are refused, old ones go on. */
	set_slots(HG_SLOT_TRACKED | HG_SLOT_MAKE(OLD, 0));
	assert_int_equal(send(false, 11, 80, TCP_ACK), OLD);
	assert_int_equal(send(false, 12, 80, TCP_SYN), 0);
	assert_int_equal(lb_drops(&lb, HG_DROP_NO_BACKEND), 1);
}

static void test_udp(void **state)
{
	assert_int_equal(send_udp(1), OLD);
	assert_int_equal(send_udp(1), OLD);
	set_slots(HG_SLOT_TRACKED | HG_SLOT_MAKE(NEW, NEW));
	assert_int_equal(send_udp(1), OLD);
	assert_int_equal(send_udp(2), NEW);
}

static void find_service(uint32_t id, struct hg_service **ret)
{
	for (unsigned i = 0; i < 2 * LB_BUCKETS; i++)
		if (lb.services[i].mode && lb.services[i].id == id)
			*ret = &lb.services[i];
}

static void test_affinity(void **state)
{
	struct hg_service *s = NULL;

	find_service(4, &s);
	s->flags = HG_SVC_NO_AFFINITY;
	assert_int_equal(send_udp(1), NEW);
	assert_int_equal(send_udp(2), NEW);
	assert_int_equal(lb_flow_count(&lb, 0, -1), 0);
	/* Source: one entry for all its ports, and it holds for SYNs too. */
	find_service(0, &s);
	s->flags = HG_SVC_NO_PORT_HASH;
	assert_int_equal(send(false, 1, 80, TCP_ACK), OLD);
	for (uint16_t port = 2; port < 30; port++)
		assert_int_equal(send(false, port, 80, port % 2 ? TCP_SYN : TCP_ACK), OLD);
	assert_int_equal(lb_flow_count(&lb, 0, -1), 1);
}

static void test_track_on(void **state)
{
	struct hg_service *s = NULL;

	find_service(2, &s);
	s->flags = HG_SVC_TRACK_ON;
	assert_int_equal(send(false, 1, 81, TCP_SYN), NEW);
	assert_int_equal(send(false, 2, 81, TCP_ACK), NEW);
	assert_int_equal(lb_flow_count(&lb, NEW, -1), 2);
	set_slots(HG_SLOT_MAKE(THIRD, THIRD));
	assert_int_equal(send(false, 1, 81, TCP_ACK), NEW);
	assert_int_equal(send(false, 2, 81, TCP_ACK), NEW);
	assert_int_equal(send(false, 3, 81, TCP_ACK), THIRD);
}

/* Where the entries say they belong: userspace counts them by service and slot. */
static void test_entries(void **state)
{
	unsigned found = 0;

	for (uint16_t port = 1; port <= 60; port++) {
		uint64_t hash = edge_hash(CLIENT4, VIP4, port, 80, 6);

		send(false, port, 80, TCP_SYN);
		for (unsigned i = 0; i < LB_LINES * HG_LINE_WAYS; i++) {
			const struct hg_line *l = &lb.flows[i / HG_LINE_WAYS];
			uint64_t word = l->word[i % HG_LINE_WAYS];
			uint32_t meta = l->meta[i % HG_LINE_WAYS];

			if (word != HG_WORD_MAKE(hash, NEW))
				continue;
			assert_int_equal(i / HG_LINE_WAYS, hg_line_of(hash, LB_LINES - 1));
			assert_int_equal(HG_META_SERVICE(meta), 0);
			assert_int_equal(HG_META_CLASS(meta), HG_FLOW_SYN);
			assert_int_equal(hg_flow_slot(word, 13), hg_flow_slot(hash, 13));
			found++;
		}
	}
	assert_int_equal(found, 60);
}

static void test_learning_rate(void **state)
{
	unsigned learnt, limited;

	lb_tokens(&lb, false);
	for (uint16_t port = 1; port <= 50; port++)
		assert_int_equal(send(false, port, 80, TCP_ACK), OLD);
	assert_int_equal(lb_flow_count(&lb, 0, -1), 0);
	assert_int_equal(lb_events(&lb, HG_EVENT_FLOW_LIMITED), 50);
	/* SYNs are not limited. */
	for (uint16_t port = 100; port < 150; port++)
		assert_int_equal(send(false, port, 80, TCP_SYN), NEW);
	assert_int_equal(lb_flow_count(&lb, NEW, HG_FLOW_SYN), 50);
	lb_tokens(&lb, true);
	for (uint16_t port = 1; port <= 3000; port++)
		send(true, port, 80, TCP_ACK);
	learnt = (unsigned)lb_events(&lb, HG_EVENT_FLOW_STORED) - 50;
	limited = (unsigned)lb_events(&lb, HG_EVENT_FLOW_LIMITED) - 50;
	assert_true(learnt >= HG_BUCKET_JIFFIES * HG_RODATA_DEFAULT_LEARN / 2);
	assert_true(learnt + limited <= 3000);
}

/* Floods of stray packets and of SYNs: flows in use stay known, and none is sent astray. */
static void test_flood(void **state)
{
	unsigned n = LB_LINES * HG_LINE_WAYS, lost = 0;

	for (uint16_t port = 1; port <= 300; port++) {
		assert_int_equal(send(false, port, 80, TCP_SYN), NEW);
		if (port % 2)
			assert_int_equal(send(false, port, 80, TCP_ACK), NEW);
	}
	for (unsigned i = 0; i < 4 * n; i++) {
		lb_tokens(&lb, true);
		assert_int_equal(send(true, (uint16_t)i, 80, TCP_ACK), OLD);
	}
	/* Strays have not pushed out what a SYN wrote. */
	for (uint16_t port = 1; port <= 300; port++)
		if (port % 2)
			assert_int_equal(send(false, port, 80, TCP_ACK), NEW);
	assert_int_equal(lb_flow_count(&lb, NEW, HG_FLOW_SYN), 150);
	assert_true(lb_events(&lb, HG_EVENT_FLOW_FULL) == 0 || lb_flow_count(&lb, 0, -1) > n / 2);
	/* SYNs push out strays and SYNs, not flows in use; each gets an owner it will keep having. */
	for (unsigned i = 0; i < 4 * n; i++) {
		unsigned id = send(true, (uint16_t)(i + 20000), 80, TCP_SYN);

		assert_true(id == NEW || id == OLD);
		if (id == OLD)
			lost++;
	}
	assert_true(lost < n / 4);
	for (uint16_t port = 1; port <= 300; port += 2)
		assert_int_equal(send(false, port, 80, TCP_ACK), NEW);
}

/* Hashes that no flow of the test has, in every place. */
static void fill_flows(uint32_t tick)
{
	for (unsigned i = 0; i < LB_LINES; i++)
		for (unsigned w = 0; w < HG_LINE_WAYS; w++) {
			lb.flows[i].word[w] = HG_WORD_MAKE(
				0xfeed000000000000ull + i * 0x50000 + w * 0x10000, THIRD);
			lb.flows[i].meta[w] = HG_META_MAKE(HG_FLOW_CONFIRMED, 0, tick);
		}
}

/* Every place taken by flows in use: a new one goes where its later packets will be sent. */
static void test_full(void **state)
{
	uint32_t tick = 0;

	/* What time is it? As an entry says that the program has just written. */
	send(true, 1, 80, TCP_SYN);
	for (unsigned i = 0; i < LB_LINES * HG_LINE_WAYS; i++)
		if (lb.flows[i / HG_LINE_WAYS].word[i % HG_LINE_WAYS])
			tick = HG_META_TICK(lb.flows[i / HG_LINE_WAYS].meta[i % HG_LINE_WAYS]);
	fill_flows(tick);
	for (uint16_t port = 1; port < 200; port++) {
		assert_int_equal(send(false, port, 80, TCP_SYN), OLD);
		assert_int_equal(send(false, port, 80, TCP_ACK), OLD);
	}
	assert_int_equal(lb_flow_count(&lb, THIRD, -1), LB_LINES * HG_LINE_WAYS);
	/* Idle for long, they make room. */
	lb_age(&lb, HG_RODATA_DEFAULT_FLOW_IDLE + 1);
	for (uint16_t port = 200; port < 400; port++) {
		assert_int_equal(send(false, port, 80, TCP_SYN), NEW);
		assert_int_equal(send(false, port, 80, TCP_ACK), NEW);
	}
}

/* GUE names the owner that the flow might also live on. */
static void test_alternative(void **state)
{
	uint32_t h = (uint32_t)edge_hash(CLIENT4, VIP4, 7, 83, 6);
	struct pktbuf in, want;

#define TUNNEL \
	UDP(.sport = (uint16_t)(0xc000 | (h & 0x3fff)), .dport = HG_GUE_PORT, .no_csum = true)
	/* Unknown and no SYN: to OLD, perhaps NEW. */
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 7, .dport = 83));
	PKT(&want, OUT, IP4(.src = EDGE4, .dst = "10.0.0.21", .frag = DF), TUNNEL,
	    GUE(.gue_alt = "10.0.0.22", .gue_hops = 1), IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63),
	    TCP(.sport = 7, .dport = 83));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	EXPECT(lb.prog, &in, XDP_TX, &want); /* known now, from a guess */
	/* A SYN is NEW's. */
	h = (uint32_t)edge_hash(CLIENT4, VIP4, 8, 83, 6);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4),
	    TCP(.sport = 8, .dport = 83, .flags = TCP_SYN));
	PKT(&want, OUT, IP4(.src = EDGE4, .dst = "10.0.0.22", .frag = DF), TUNNEL, GUE(),
	    IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63),
	    TCP(.sport = 8, .dport = 83, .flags = TCP_SYN));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 8, .dport = 83));
	PKT(&want, OUT, IP4(.src = EDGE4, .dst = "10.0.0.22", .frag = DF), TUNNEL,
	    GUE(.gue_alt = "10.0.0.21", .gue_hops = 1), IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63),
	    TCP(.sport = 8, .dport = 83));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	/* No room for the name: sent without. */
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 8, .dport = 83), DATA(1424));
	PKT(&want, OUT, IP4(.src = EDGE4, .dst = "10.0.0.22", .frag = DF), TUNNEL, GUE(),
	    IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63), TCP(.sport = 8, .dport = 83), DATA(1424));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	/* Not over another family, and not to the dead. */
	lb.backends[OLD].flags |= HG_BE_OUTER_V6;
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 8, .dport = 83));
	PKT(&want, OUT, IP4(.src = EDGE4, .dst = "10.0.0.22", .frag = DF), TUNNEL, GUE(),
	    IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63), TCP(.sport = 8, .dport = 83));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	lb.backends[OLD].flags = HG_BE_VALID;
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

/* Backend that the GUE header names beside the one it is sent to, 0: none; *ret_to is that one. */
static unsigned alternative(uint16_t sport, unsigned *ret_to)
{
	struct pktbuf in, out;
	size_t gue = 14 + 20 + 8;

	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = sport, .dport = 83));
	*ret_to = lb_backend_of(&lb, &in, &out);
	return out.data[gue] ? out.data[gue + 11] - 20u : 0;
}

/*
 * A flow learnt from a packet that was no SYN is a guess: it may live on what was then the new owner. That
 * one stays its alternative when the window is over, and after the next change.
 */
static void test_alternative_of_a_guess(void **state)
{
	unsigned to;

	assert_int_equal(alternative(7, &to), NEW);
	assert_int_equal(to, OLD);
	set_slots(HG_SLOT_TRACKED | HG_SLOT_MAKE(NEW, NEW));
	assert_int_equal(alternative(7, &to), NEW);
	assert_int_equal(to, OLD);
	set_slots(HG_SLOT_TRACKED | HG_SLOT_MAKE(NEW, THIRD));
	assert_int_equal(alternative(7, &to), NEW);
	assert_int_equal(to, OLD);
	/* Unknown ones: the last owner, or the one before. */
	assert_int_equal(alternative(8, &to), THIRD);
	assert_int_equal(to, NEW);
	/* Nothing to choose from. */
	set_slots(HG_SLOT_TRACKED | HG_SLOT_MAKE(OLD, OLD));
	assert_int_equal(alternative(7, &to), 0);
	assert_int_equal(to, OLD);
}

static void test_alternative_v6(void **state)
{
	uint32_t h = (uint32_t)edge_hash(CLIENT6, VIP6, 7, 84, 6);
	struct pktbuf in, want;

	LB_SERVICE(&lb, .addr = VIP6, .port = 84, .id = 9, .slots = 13, .mode = HG_MODE_GUE,
		   .backends = new6, .n = 1, .base = OLD6);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), TCP(.sport = 7, .dport = 84));
	PKT(&want, OUT, IP6(.src = EDGE6, .dst = "fd00::21", .id = h & 0xfffff), TUNNEL,
	    GUE(.gue_alt = "fd00::22", .gue_hops = 1), IP6(.src = CLIENT6, .dst = VIP6, .ttl = 63),
	    TCP(.sport = 7, .dport = 84));
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup(f, rows)
	const struct CMUnitTest tests[] = {
		ROW(test_moved),
		ROW(test_window_ends),
		ROW(test_two_changes),
		ROW(test_dead_backends),
		ROW(test_udp),
		ROW(test_affinity),
		ROW(test_track_on),
		ROW(test_entries),
		ROW(test_learning_rate),
		ROW(test_flood),
		ROW(test_full),
		ROW(test_alternative),
		ROW(test_alternative_of_a_guess),
		ROW(test_alternative_v6),
	};

	return cmocka_run_group_tests_name("flow", tests, edge_setup, edge_teardown);
}
