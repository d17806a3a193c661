/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a service asks for itself: who may use it, how fast connections may begin, how many there may be. With the
 * datapath's own writer.
 * links: dp lb net conf expr http ev base
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>

#include <cmocka.h>

#include "dp/dp_priv.h"
#include "packet/edge.h"
#include "xdp_lb.skel.h"

static struct dp dp;
static struct hg_service_guard *guards;
static const uint16_t one[] = { 1 };

static int setup(void **state)
{
	int rc = edge_setup(state);

	for (unsigned i = 0; i < DP_MAP_COUNT; i++)
		dp.maps[i].fd = -1;
	guards = map_mmap(lb.skel->maps.service_guard, 64 * sizeof(*guards));
	dp.maps[DP_MAP_SERVICE_GUARD].mem = guards;
	dp.maps[DP_MAP_ALLOW4].fd = bpf_map__fd(lb.skel->maps.allow4);
	dp.maps[DP_MAP_ALLOW6].fd = bpf_map__fd(lb.skel->maps.allow6);
	dp.t.control = lb.control;
	dp.t.hz = 250;
	dp.nat.live_services = lb.live_services;
	return rc;
}

static int clear(void **state)
{
	edge_five_backends();
	memset(guards, 0, 64 * sizeof(*guards));
	return 0;
}

/* Ids 1 and 2 forwarded, 3 of the L7 tier; `guarded` as the writer would say it. */
static void services(uint8_t guarded)
{
	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 1, .slots = 13, .backends = one, .n = 1,
		   .flags = guarded);
	LB_SERVICE(&lb, .addr = VIP6, .port = 80, .id = 2, .slots = 13, .backends = one, .n = 1,
		   .flags = guarded);
	LB_SERVICE(&lb, .addr = LOCAL4, .port = 443, .id = 3, .mode = HG_MODE_LOCAL,
		   .flags = guarded);
}

static struct conf_prefix prefix(const char *text)
{
	struct addr_prefix p;

	assert_int_equal(addr_prefix_parse(str_from_cstr(text), &p), 0);
	return conf_prefix_of(&p);
}

/* A new configuration of the service; true: it is guarded. */
static bool guard(struct dp_service *svc, const struct conf_guard *g)
{
	struct conf_proxy px = { .name = "s", .guard = *g };
	struct err err;

	dp.guard_epoch++;
	assert_int_equal(dp_guard_service(&dp, &px, svc, &err), 0);
	return svc->row.flags & HG_SVC_GUARDED;
}

static struct pktbuf packet(const char *src, const char *dst, uint16_t port, uint8_t flags)
{
	struct pktbuf p;

	if (strchr(src, ':'))
		PKT(&p, E, IP6(.src = src, .dst = dst),
		    TCP(.sport = 9, .dport = port, .flags = flags));
	else
		PKT(&p, E, IP4(.src = src, .dst = dst),
		    TCP(.sport = 9, .dport = port, .flags = flags));
	return p;
}

static int run(const char *src, const char *dst, uint16_t port, uint8_t flags)
{
	struct pktbuf p = packet(src, dst, port, flags), out;

	return prog_run(lb.prog, &p, &out);
}

static unsigned trie_size(bool is_v6)
{
	int fd = dp.maps[is_v6 ? DP_MAP_ALLOW6 : DP_MAP_ALLOW4].fd;
	struct hg_allow6_key k, next;
	unsigned n = 0;

	while (bpf_map_get_next_key(fd, n ? &k : NULL, &next) == 0) {
		k = next;
		n++;
	}
	return n;
}

static void test_allow(void **state)
{
	struct conf_prefix list[] = { prefix("203.0.113.0/25"), prefix("2001:db8:c::/48") };
	struct conf_prefix later[] = { prefix("203.0.113.128/25"), prefix("0.0.0.0/0") };
	struct conf_guard g = { .has_allow = true, .allow = list, .n_allow = 2 };
	struct dp_service s1 = { .row.id = 1 }, s2 = { .row.id = 2 };
	struct pktbuf p;

	assert_true(guard(&s1, &g));
	services(HG_SVC_GUARDED);
	/* Service 1 has a list; 2 and 3 have none, and nothing of it is theirs. */
	assert_int_equal(run("203.0.113.7", VIP4, 80, TCP_SYN), XDP_TX);
	assert_int_equal(run("203.0.113.7", VIP4, 80, 0), XDP_TX);
	p = packet("203.0.113.200", VIP4, 80, 0);
	EXPECT_DROP(&lb, &p, HG_DROP_NOT_ALLOWED);
	assert_int_equal(lb_service_counters(&lb, 1).denied, 1);
	assert_int_equal(run("203.0.113.200", LOCAL4, 443, TCP_SYN), XDP_PASS);
	assert_int_equal(run(CLIENT6, VIP6, 80, TCP_SYN), XDP_TX);
	PKT(&p, E, VLAN(.tci = 7), IP4(.src = "203.0.113.200", .dst = VIP4),
	    TCP(.sport = 9, .dport = 80));
	EXPECT_DROP(&lb, &p, HG_DROP_NOT_ALLOWED);
	assert_true(guard(&s2, &g));
	assert_int_equal(run(CLIENT6, VIP6, 80, TCP_SYN), XDP_TX);
	p = packet("2001:db8:d::7", VIP6, 80, TCP_SYN);
	EXPECT_DROP(&lb, &p, HG_DROP_NOT_ALLOWED);
	/* An ICMP error comes from a router that no list has. */
	PKT(&p, E, IP4(.src = "198.51.100.200", .dst = VIP4), ICMP(.icmp_type = 3, .icmp_code = 1),
	    IP4(.src = VIP4, .dst = "203.0.113.7"), TCP(.sport = 80, .dport = 9));
	assert_int_equal(prog_run(lb.prog, &p, &(struct pktbuf){ 0 }), XDP_TX);
	/* Another list: what is no longer there goes, the other service's stays. */
	g.allow = later;
	g.n_allow = 1;
	assert_true(guard(&s1, &g));
	assert_int_equal(run("203.0.113.7", VIP4, 80, 0), XDP_DROP);
	assert_int_equal(run("203.0.113.200", VIP4, 80, 0), XDP_TX);
	assert_int_equal(run(CLIENT6, VIP6, 80, TCP_SYN), XDP_TX);
	g.allow = later + 1;
	assert_true(guard(&s1, &g));
	assert_int_equal(run("1.2.3.4", VIP4, 80, 0), XDP_TX);
	/* An empty list allows nobody; none at all, everybody. */
	g.n_allow = 0;
	assert_true(guard(&s1, &g));
	assert_int_equal(run("1.2.3.4", VIP4, 80, 0), XDP_DROP);
	g.has_allow = false;
	assert_false(guard(&s1, &g));
	assert_int_equal(run("1.2.3.4", VIP4, 80, 0), XDP_TX);
	dp_guard_drop(&dp, &s2);
	assert_int_equal(trie_size(false) + trie_size(true), 0);
}

/* An earlier process had other prefixes for this id. */
static void test_allow_adopted(void **state)
{
	struct conf_prefix list[] = { prefix("203.0.113.0/25"), prefix("203.0.113.128/25") };
	struct conf_guard g = { .has_allow = true, .allow = list, .n_allow = 2 };
	struct dp_service s1 = { .row.id = 1 }, s2 = { .row.id = 2 }, again = { .row.id = 1 };

	assert_true(guard(&s1, &g));
	assert_true(guard(&s2, &g));
	assert_int_equal(trie_size(false), 4);
	g.n_allow = 1;
	assert_true(guard(&again, &g));
	assert_int_equal(trie_size(false), 3);
	services(HG_SVC_GUARDED);
	assert_int_equal(run("203.0.113.7", VIP4, 80, 0), XDP_TX);
	assert_int_equal(run("203.0.113.200", VIP4, 80, 0), XDP_DROP);
	dp_guard_drop(&dp, &again);
	dp_guard_drop(&dp, &s2);
	assert_int_equal(trie_size(false), 0);
	mem_free(s1.allow);
}

static void test_syn_rate(void **state)
{
	struct conf_guard g = { .syn_rate = { .rate = 1, .burst = 3 } };
	struct dp_service s1 = { .row.id = 1 };
	struct pktbuf p = packet("203.0.113.9", VIP4, 80, TCP_SYN);

	assert_true(guard(&s1, &g));
	services(HG_SVC_GUARDED);
	/* Of all sources together; what is no SYN is not asked. */
	assert_int_equal(run("203.0.113.7", VIP4, 80, TCP_SYN), XDP_TX);
	assert_int_equal(run("203.0.113.8", VIP4, 80, TCP_SYN), XDP_TX);
	assert_int_equal(run("203.0.113.9", VIP4, 80, TCP_SYN), XDP_TX);
	EXPECT_DROP(&lb, &p, HG_DROP_SERVICE_SYNS);
	assert_int_equal(lb_service_counters(&lb, 1).limited, 1);
	assert_int_equal(run("203.0.113.9", VIP4, 80, 0), XDP_TX);
	assert_int_equal(run(CLIENT6, VIP6, 80, TCP_SYN), XDP_TX);
	/* Time passes: one more. */
	guards[1].due -= 1ull * guards[1].step;
	assert_int_equal(run("203.0.113.9", VIP4, 80, TCP_SYN), XDP_TX);
	EXPECT_DROP(&lb, &p, HG_DROP_SERVICE_SYNS);
	/* A word of another limit, or of long ago, is no debt. */
	guards[1].due += 1ull << 60;
	assert_int_equal(run("203.0.113.9", VIP4, 80, TCP_SYN), XDP_TX);
}

static void test_max_conn(void **state)
{
	struct conf_guard g = { .max_conn = 5 };
	struct dp_service s3 = { .row = { .id = 3, .mode = HG_MODE_LOCAL } };
	struct pktbuf p = packet("203.0.113.9", LOCAL4, 443, TCP_SYN);

	assert_true(guard(&s3, &g));
	services(HG_SVC_GUARDED);
	lb.live_services[3].conns = 4;
	EXPECT(lb.prog, &p, XDP_PASS, &p);
	lb.live_services[3].conns = 5;
	EXPECT_DROP(&lb, &p, HG_DROP_MAXCONN);
	assert_int_equal(run("203.0.113.9", LOCAL4, 443, 0), XDP_PASS);
	lb.live_services[3].conns = (uint32_t)-2; /* while larger maps take over */
	EXPECT(lb.prog, &p, XDP_PASS, &p);
	g.max_conn = 0;
	assert_false(guard(&s3, &g));
	lb.live_services[3].conns = 5;
	EXPECT(lb.prog, &p, XDP_PASS, &p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_allow, clear),
		cmocka_unit_test_setup(test_allow_adopted, clear),
		cmocka_unit_test_setup(test_syn_rate, clear),
		cmocka_unit_test_setup(test_max_conn, clear),
	};

	return cmocka_run_group_tests(tests, setup, edge_teardown);
}
