/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Denied sources that are told so: every TCP packet is answered by the RST that RFC 9293 asks for, byte by byte.
 * links: dp lb net conf expr http ev base
 */
#include <arpa/inet.h>
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
static const uint16_t one[] = { 1 };

static int setup(void **state)
{
	int rc = edge_setup(state);

	for (unsigned i = 0; i < DP_MAP_COUNT; i++)
		dp.maps[i].fd = -1;
	dp.maps[DP_MAP_DENY4].fd = bpf_map__fd(lb.skel->maps.deny4);
	dp.maps[DP_MAP_DENY6].fd = bpf_map__fd(lb.skel->maps.deny6);
	dp.maps[DP_MAP_DENY_CELLS].mem = map_mmap(lb.skel->maps.deny_cells,
						  HG_DENY_LINES * sizeof(struct hg_deny_cells));
	dp.t.deny = map_mmap(lb.skel->maps.deny_index,
			     HG_DENY_INDEX_MIN * sizeof(struct hg_deny_line));
	dp.t.deny_mask = lb.skel->rodata->ro.deny_mask;
	dp.t.control = lb.control;
	return rc;
}

/* Numbers and window of the TCP header behind an IP header that lies at `l3`; its checksum anew. */
static void numbers(struct pktbuf *p, unsigned l3, uint32_t seq, uint32_t ack, uint16_t window)
{
	bool v6 = p->data[l3] >> 4 == 6;
	uint8_t *addrs = p->data + l3 + (v6 ? 8 : 12), *tcp = p->data + l3 + (v6 ? 40 : 20);
	size_t len = p->len - (size_t)(tcp - p->data);
	uint32_t words[2] = { htonl(seq), htonl(ack) }, sum = 6 + (uint32_t)len;
	uint16_t w = htons(window);

	memcpy(tcp + 4, words, sizeof(words));
	memcpy(tcp + 14, &w, sizeof(w));
	memset(tcp + 16, 0, 2);
	for (unsigned i = 0; i < (v6 ? 32 : 8); i += 2)
		sum += (uint32_t)addrs[i] << 8 | addrs[i + 1];
	w = htons(pkt_checksum(tcp, len, sum));
	memcpy(tcp + 16, &w, sizeof(w));
}

static void deny(const char *text)
{
	struct addr_prefix p;
	struct conf_prefix c;

	assert_int_equal(addr_prefix_parse(str_from_cstr(text), &p), 0);
	c = conf_prefix_of(&p);
	(void)dp_deny_del(&dp, &c); /* of the test before */
	assert_in_range(dp_deny_add(&dp, &c, 0, HG_DENY_RULE, true), 0, 1);
}

static int clear(void **state)
{
	edge_five_backends();
	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 1, .slots = 13, .backends = one, .n = 1);
	LB_SERVICE(&lb, .addr = VIP6, .port = 80, .id = 2, .slots = 13, .backends = one, .n = 1);
	LB_SERVICE(&lb, .addr = LOCAL4, .port = 443, .id = 3, .mode = HG_MODE_LOCAL);
	LB_SERVICE(&lb, .addr = VIP4, .port = 53, .proto = 17, .id = 4, .slots = 13,
		   .backends = one, .n = 1);
	lb.control->deny_entries[0] = lb.control->deny_entries[1] = 0;
	deny("203.0.113.0/24");
	deny("2001:db8:c::/48");
	lb.control->deny_entries[0] = lb.control->deny_entries[1] =
		1; /* whatever tests before have left */
	return 0;
}

static void test_syn(void **state)
{
	struct pktbuf in, want;

	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4),
	    TCP(.sport = 9, .dport = 80, .flags = TCP_SYN));
	numbers(&in, 14, 1000, 0, 0x4000);
	PKT(&want, BACK, IP4(.src = VIP4, .dst = CLIENT4, .ttl = 64, .frag = DF),
	    TCP(.sport = 80, .dport = 9, .flags = TCP_RST | TCP_ACK));
	numbers(&want, 14, 0, 1001, 0);
	EXPECT(lb.prog, &in, XDP_TX, &want);
	assert_int_equal(lb_drops(&lb, HG_DROP_DENIED_RESET), 1);
	assert_int_equal(lb_events(&lb, HG_EVENT_RESET_SENT), 1);
	assert_int_equal(lb_service_counters(&lb, 1).denied, 1);
	assert_int_equal(lb_service_counters(&lb, 1).dropped, 1);
	assert_int_equal(lb_service_counters(&lb, 1).forwarded, 0);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6),
	    TCP(.sport = 9, .dport = 80, .flags = TCP_SYN));
	numbers(&in, 14, 0xffffffff, 0, 0x4000);
	PKT(&want, BACK, IP6(.src = VIP6, .dst = CLIENT6, .ttl = 64),
	    TCP(.sport = 80, .dport = 9, .flags = TCP_RST | TCP_ACK));
	numbers(&want, 14, 0, 0, 0);
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

/* In an open connection: where the peer expects it. Data and options go. */
static void test_segments(void **state)
{
	struct pktbuf in, want;

	PKT(&in, E, IP4(.src = CLIENT4, .dst = LOCAL4),
	    TCP(.sport = 9, .dport = 443, .flags = TCP_ACK), DATA(700));
	numbers(&in, 14, 5, 77, 0x4000);
	PKT(&want, BACK, IP4(.src = LOCAL4, .dst = CLIENT4, .ttl = 64, .frag = DF),
	    TCP(.sport = 443, .dport = 9, .flags = TCP_RST));
	numbers(&want, 14, 77, 0, 0);
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6),
	    TCP(.sport = 9, .dport = 80, .flags = TCP_FIN), DATA(30));
	numbers(&in, 14, 5, 0, 0x4000);
	PKT(&want, BACK, IP6(.src = VIP6, .dst = CLIENT6, .ttl = 64),
	    TCP(.sport = 80, .dport = 9, .flags = TCP_RST | TCP_ACK));
	numbers(&want, 14, 0, 36, 0);
	EXPECT(lb.prog, &in, XDP_TX, &want);
	/* A tag stays where it is. */
	PKT(&in, E, VLAN(.tci = 7), IP4(.src = CLIENT4, .dst = LOCAL4),
	    TCP(.sport = 9, .dport = 443, .flags = TCP_ACK));
	numbers(&in, 18, 5, 77, 0x4000);
	PKT(&want, BACK, VLAN(.tci = 7), IP4(.src = LOCAL4, .dst = CLIENT4, .ttl = 64, .frag = DF),
	    TCP(.sport = 443, .dport = 9, .flags = TCP_RST));
	numbers(&want, 18, 77, 0, 0);
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

/* Never an answer to a reset; nor to what is no TCP, a fragment, or not ours. */
static void test_silence(void **state)
{
	struct pktbuf in;

	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4),
	    TCP(.sport = 9, .dport = 80, .flags = TCP_RST));
	EXPECT_DROP(&lb, &in, HG_DROP_DENIED_RESET);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4),
	    TCP(.sport = 9, .dport = 80, .flags = TCP_RST | TCP_ACK));
	EXPECT_DROP(&lb, &in, HG_DROP_DENIED_RESET);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), UDP(.sport = 9, .dport = 53), DATA(20));
	EXPECT_DROP(&lb, &in, HG_DROP_DENIED_RESET);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .frag = 0x2000), TCP(.sport = 9, .dport = 80));
	EXPECT_DROP(&lb, &in, HG_DROP_DENIED_RESET);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .opt_words = 2), TCP(.sport = 9, .dport = 80));
	EXPECT_DROP(&lb, &in, HG_DROP_DENIED_RESET);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = LOCAL4),
	    TCP(.sport = 9, .dport = 22, .flags = TCP_SYN));
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	assert_int_equal(lb_events(&lb, HG_EVENT_RESET_SENT), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_syn, clear),
		cmocka_unit_test_setup(test_segments, clear),
		cmocka_unit_test_setup(test_silence, clear),
	};

	return cmocka_run_group_tests(tests, setup, edge_teardown);
}
