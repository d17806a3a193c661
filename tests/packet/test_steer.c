/* SPDX-License-Identifier: BSD-2-Clause */
/* Steering: which packets leave the CPU that received them. Where to is for the end-to-end test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <cmocka.h>

#include <headgate/steer.h>

#include "packet/edge.h"
#include "xdp_lb.skel.h"

#define LOCAL6 "2001:db8::20"

static struct hg_steer *steer;
static const uint16_t one[] = { 1 };

static int setup(void **state)
{
	int rc = edge_setup(state);

	steer = map_mmap(lb.skel->maps.steer, sizeof(*steer));
	return rc;
}

static int clear(void **state)
{
	edge_five_backends();
	LB_SERVICE(&lb, .addr = LOCAL4, .port = 443, .id = 1, .mode = HG_MODE_LOCAL);
	LB_SERVICE(&lb, .addr = LOCAL6, .port = 443, .id = 2, .mode = HG_MODE_LOCAL);
	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 3, .slots = 13, .backends = one, .n = 1);
	*steer = (struct hg_steer){ .n = 0 };
	return 0;
}

static void take_cpu(bool on)
{
	uint32_t cpu = 0, size = HG_STEER_QUEUE;
	int fd = bpf_map__fd(lb.skel->maps.steer_cpus);

	assert_int_equal(on ? bpf_map_update_elem(fd, &cpu, &size, BPF_ANY)
			    : bpf_map_delete_elem(fd, &cpu),
			 0);
}

static void test_plain_packets_of_the_l7_tier(void **state)
{
	struct pktbuf v4, v6, udp, vip, tagged, other;

	PKT(&v4, E, IP4(.src = CLIENT4, .dst = LOCAL4), TCP(.sport = 9, .dport = 443));
	PKT(&v6, E, IP6(.src = CLIENT6, .dst = LOCAL6), TCP(.sport = 9, .dport = 443));
	PKT(&udp, E, IP4(.src = CLIENT4, .dst = LOCAL4), UDP(.sport = 9, .dport = 443), DATA(30));
	PKT(&vip, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 9, .dport = 80));
	PKT(&tagged, E, VLAN(.tci = 7), IP4(.src = CLIENT4, .dst = LOCAL4),
	    TCP(.sport = 9, .dport = 443));
	PKT(&other, E, IP4(.src = CLIENT4, .dst = LOCAL4), TCP(.sport = 9, .dport = 22));
	EXPECT(lb.prog, &v4, XDP_PASS, &v4);
	take_cpu(true);
	EXPECT(lb.prog, &v4, XDP_PASS, &v4);
	steer->n = 1;
	EXPECT(lb.prog, &v4, XDP_REDIRECT, &v4);
	EXPECT(lb.prog, &v6, XDP_REDIRECT, &v6);
	EXPECT(lb.prog, &udp, XDP_PASS, &udp);
	EXPECT(lb.prog, &tagged, XDP_PASS, &tagged);
	EXPECT(lb.prog, &other, XDP_PASS, &other);
	assert_int_equal(prog_run(lb.prog, &vip, &(struct pktbuf){ 0 }), XDP_TX);
	assert_int_equal(lb_service_counters(&lb, 1).local, 4);
	assert_int_equal(lb_service_counters(&lb, 2).local, 1);
	/* A CPU that has left the map takes nothing. */
	take_cpu(false);
	EXPECT(lb.prog, &v4, XDP_PASS, &v4);
}

/* Flows spread over the list, each on its place in it: all but one of the places have no CPU in the map. */
static void test_flows_spread(void **state)
{
	unsigned hits = 0;
	struct pktbuf p;

	take_cpu(true);
	*steer = (struct hg_steer){ .n = 4, .cpu = { 0, 1000, 1000, 1000 } };
	for (uint16_t port = 1000; port < 2000; port++) {
		int action;

		PKT(&p, E, IP4(.src = CLIENT4, .dst = LOCAL4), TCP(.sport = port, .dport = 443));
		action = prog_run(lb.prog, &p, NULL);
		assert_int_equal(action, prog_run(lb.prog, &p, NULL));
		hits += action == XDP_REDIRECT;
	}
	assert_in_range(hits, 180, 320);
	take_cpu(false);
}

/* What the guard drops is not steered, nor is what SYN cookies answer. */
static void test_drops_stay_drops(void **state)
{
	struct pktbuf p;

	take_cpu(true);
	steer->n = 1;
	lb.control->limits[HG_LIMIT_PACKETS] = (struct hg_limit){ .window = 0, .step = 1u << 31 };
	PKT(&p, E, IP4(.src = "203.0.113.99", .dst = LOCAL4), TCP(.sport = 9, .dport = 443));
	for (int i = 0; i < 200 && prog_run(lb.prog, &p, NULL) == XDP_REDIRECT; i++)
		;
	EXPECT_DROP(&lb, &p, HG_DROP_SOURCE_PACKETS);
	take_cpu(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_plain_packets_of_the_l7_tier, clear),
		cmocka_unit_test_setup(test_flows_spread, clear),
		cmocka_unit_test_setup(test_drops_stay_drops, clear),
	};

	return cmocka_run_group_tests(tests, setup, edge_teardown);
}
