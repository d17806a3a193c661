/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `track on`: connections of every method are counted by backend from their SYN to the client's FIN or RST, exactly,
 * and no backend gets more than it may have.
 * links:
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "packet/edge.h"

enum {
	BE4 = 1,
	BE6 = 2,
	OTHER = 3
};

static const uint16_t be4[] = { BE4 }, be6[] = { BE6 };

/* Ports 80 to 82 by IP in IP, GUE and direct routing; 53 UDP. All tracked, one backend for each family. */
static int rows(void **state)
{
	static const uint8_t modes[] = { HG_MODE_IPIP, HG_MODE_GUE, HG_MODE_L2 };

	lb_clear(&lb);
	lb_tokens(&lb, true);
	LB_BACKEND(&lb, .id = BE4, .addr = "10.0.0.21", .src = EDGE4);
	LB_BACKEND(&lb, .id = BE6, .addr = "fd00::21", .src = EDGE6);
	LB_BACKEND(&lb, .id = OTHER, .addr = "10.0.0.23", .src = EDGE4);
	for (unsigned v6 = 0; v6 <= 1; v6++) {
		for (unsigned m = 0; m < 3; m++)
			LB_SERVICE(&lb, .addr = v6 ? VIP6 : VIP4, .port = (uint16_t)(80 + m),
				   .id = 2 * m + v6, .slots = 13, .mode = modes[m],
				   .flags = HG_SVC_TRACK_ON, .backends = v6 ? be6 : be4, .n = 1);
		LB_SERVICE(&lb, .addr = v6 ? VIP6 : VIP4, .port = 53, .proto = 17, .id = 6 + v6,
			   .slots = 13, .flags = HG_SVC_TRACK_ON, .backends = v6 ? be6 : be4,
			   .n = 1);
	}
	return 0;
}

/* --- packets ----------------------------------------------------------------------------------------------- */

static bool v6;
static uint16_t dport;

static void make(struct pktbuf *in, uint16_t sport, uint8_t flags)
{
	struct layer l4 = dport == 53 ? (struct layer)UDP(.sport = sport, .dport = 53)
				      : (struct layer)TCP(.sport = sport, .dport = dport,
							  .flags = flags);

	if (v6)
		PKT(in, E, IP6(.src = CLIENT6, .dst = VIP6), l4, DATA(9));
	else
		PKT(in, E, IP4(.src = CLIENT4, .dst = VIP4), l4, DATA(9));
}

static void passes(uint16_t sport, uint8_t flags)
{
	struct pktbuf in;

	make(&in, sport, flags);
	assert_int_equal(prog_run(lb.prog, &in, NULL), XDP_TX);
}

static void refused(uint16_t sport, uint8_t flags)
{
	struct pktbuf in;

	make(&in, sport, flags);
	EXPECT_DROP(&lb, &in, HG_DROP_MAXCONN);
}

static unsigned conns(void)
{
	return lb.live_backends[v6 ? BE6 : BE4].xdp;
}

static void limit(unsigned n)
{
	lb.live_backends[v6 ? BE6 : BE4].limit = n;
}

static void open_one(uint16_t sport)
{
	passes(sport, TCP_SYN);
	passes(sport, TCP_ACK);
}

/* What the words say, which is what userspace would take away one by one. */
static unsigned counted(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LB_LINES * HG_LINE_WAYS; i++)
		n += (lb.flows[i / HG_LINE_WAYS].word[i % HG_LINE_WAYS] & HG_WORD_COUNTED) != 0;
	return n;
}

/* --- tests -------------------------------------------------------------------------------------------------- */

static void each_method(void **state, void (*test)(void))
{
	for (v6 = false;; v6 = true) {
		for (dport = 80; dport <= 82; dport++) {
			rows(state);
			test();
			assert_int_equal(counted(), conns());
		}
		if (v6)
			break;
	}
}

static void life(void)
{
	open_one(1);
	passes(1, TCP_SYN); /* a SYN again is none more */
	passes(1, TCP_PSH | TCP_ACK);
	open_one(2);
	passes(3, TCP_ACK); /* began before us, and counts */
	assert_int_equal(conns(), 3);
	passes(1, TCP_FIN | TCP_ACK);
	assert_int_equal(conns(), 2);
	passes(1, TCP_FIN | TCP_ACK); /* once */
	passes(1, TCP_ACK);
	passes(2, TCP_RST);
	passes(2, TCP_RST | TCP_ACK);
	assert_int_equal(conns(), 1);
	passes(9, TCP_FIN | TCP_ACK); /* of nobody we know */
	passes(9, TCP_ACK);
	passes(10, TCP_RST);
	assert_int_equal(conns(), 1);
	open_one(1); /* the client uses its port again */
	assert_int_equal(conns(), 2);
	passes(1, TCP_FIN | TCP_ACK);
	passes(3, TCP_RST);
	assert_int_equal(conns(), 0);
}

static void test_life(void **state)
{
	each_method(state, life);
}

static void maxconn(void)
{
	limit(2);
	open_one(1);
	open_one(2);
	refused(3, TCP_SYN);
	refused(3, TCP_SYN);
	passes(1, TCP_ACK);
	passes(2, TCP_SYN); /* a SYN again of one that has a place */
	assert_int_equal(conns(), 2);
	passes(4, TCP_ACK); /* began elsewhere: it is no newcomer */
	assert_int_equal(conns(), 3);
	passes(1, TCP_FIN | TCP_ACK);
	refused(3, TCP_SYN);
	passes(2, TCP_RST);
	open_one(3);
	refused(1, TCP_SYN);
	passes(1, TCP_ACK); /* what is closed may still say something */
	assert_int_equal(conns(), 2);
	limit(0);
	open_one(1);
	assert_int_equal(conns(), 3);
	assert_int_equal(lb_drops(&lb, HG_DROP_MAXCONN), 4);
}

static void test_maxconn(void **state)
{
	each_method(state, maxconn);
}

static void test_udp(void **state)
{
	dport = 53;
	for (v6 = false;; v6 = true) {
		rows(state);
		limit(2);
		passes(1, 0);
		passes(2, 0);
		passes(1, 0);
		assert_int_equal(conns(), 2);
		refused(3, 0);
		assert_int_equal(conns(), 2);
		/* Silent for too long, as the daemon finds it: the next datagram needs a place again. */
		for (unsigned i = 0; i < LB_LINES * HG_LINE_WAYS; i++)
			lb.flows[i / HG_LINE_WAYS].word[i % HG_LINE_WAYS] &=
				~(uint64_t)HG_WORD_COUNTED;
		lb.live_backends[v6 ? BE6 : BE4].xdp = 0;
		passes(3, 0);
		passes(1, 0);
		refused(2, 0);
		assert_int_equal(conns(), 2);
		assert_int_equal(counted(), 2);
		if (v6)
			break;
	}
}

/* Entries that give way to others take their connection out of the count. */
static void test_eviction(void **state)
{
	const unsigned n = LB_LINES * HG_LINE_WAYS;

	v6 = false;
	dport = 80;
	rows(state);
	for (unsigned i = 0; i < 2 * n; i++) {
		struct pktbuf in;

		make(&in, (uint16_t)i, TCP_SYN);
		assert_int_equal(prog_run(lb.prog, &in, NULL), XDP_TX);
	}
	assert_true(conns() > n / 2 && conns() <= n);
	assert_int_equal(counted(), conns());
}

/* Its backend died, so it is another's now; `track off` and ICMP errors count nothing. */
static void test_moves(void **state)
{
	v6 = false;
	dport = 80;
	open_one(1);
	lb.backends[BE4].flags &= (uint8_t)~HG_BE_ALIVE;
	for (uint32_t i = 0; i < lb.next_block * 16; i++)
		lb.slots[i / 16].slot[i % 16] = HG_SLOT_MAKE(OTHER, OTHER);
	passes(1, TCP_ACK);
	assert_int_equal(conns(), 0);
	assert_int_equal(lb.live_backends[OTHER].xdp, 1);
	for (unsigned i = 0; i < 2 * LB_BUCKETS; i++)
		lb.services[i].flags &= (uint8_t)~HG_SVC_TRACK_ON;
	open_one(2);
	passes(1, TCP_FIN | TCP_ACK);
	assert_int_equal(lb.live_backends[OTHER].xdp, 1);
}

/* Entries of a time when nothing was counted, or which came along to larger maps: the next packet counts them. */
static void test_begins_to_count(void **state)
{
	v6 = false;
	dport = 80;
	open_one(1);
	for (unsigned i = 0; i < LB_LINES * HG_LINE_WAYS; i++)
		lb.flows[i / HG_LINE_WAYS].word[i % HG_LINE_WAYS] &= ~(uint64_t)HG_WORD_COUNTED;
	lb.live_backends[BE4].xdp = 0;
	limit(1);
	passes(1, TCP_ACK);
	passes(1, TCP_ACK);
	assert_int_equal(conns(), 1);
	passes(1, TCP_FIN | TCP_ACK);
	assert_int_equal(conns(), 0);
}

#define RACERS	4
#define PACKETS 6000

/* Whatever the packet says, of one of few flows, so that several CPUs are at the same entries. */
static void *race(void *seed)
{
	static const uint8_t flags[] = { TCP_SYN, TCP_SYN,	     TCP_ACK,
					 TCP_ACK, TCP_FIN | TCP_ACK, TCP_RST };
	uint64_t rnd = (uintptr_t)seed;

	for (unsigned i = 0; i < PACKETS; i++) {
		struct pktbuf in;

		rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
		make(&in, (uint16_t)(1 + (rnd >> 40) % 24), flags[(rnd >> 33) % sizeof(flags)]);
		prog_run(lb.prog, &in, NULL);
	}
	return NULL;
}

/* The count is that of the words, whoever was faster. */
static void test_races(void **state)
{
	pthread_t threads[RACERS];

	v6 = false;
	dport = 80;
	for (uintptr_t i = 0; i < RACERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, race, (void *)(i + 1)), 0);
	for (unsigned i = 0; i < RACERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(counted(), conns());
	for (uint16_t port = 1; port <= 24; port++)
		passes(port, TCP_RST);
	assert_int_equal(counted(), conns());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_life, rows),
		cmocka_unit_test_setup(test_maxconn, rows),
		cmocka_unit_test_setup(test_udp, rows),
		cmocka_unit_test_setup(test_eviction, rows),
		cmocka_unit_test_setup(test_moves, rows),
		cmocka_unit_test_setup(test_begins_to_count, rows),
		cmocka_unit_test_setup(test_races, rows),
	};

	return cmocka_run_group_tests_name("track", tests, edge_setup, edge_teardown);
}
