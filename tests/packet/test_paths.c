/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ways out: VLAN tags before and after, other interfaces, frames in several pages. Whole frames are
 * compared, for each method and family.
 * links:
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "packet/run.h"

#define VIP4	 "192.0.2.10"
#define VIP6	 "2001:db8::10"
#define CLIENT4	 "203.0.113.7"
#define CLIENT6	 "2001:db8:c::7"
#define EDGE4	 "10.0.0.1"
#define EDGE6	 "fd00::1"
#define BACKEND4 "10.0.0.21"
#define BACKEND6 "fd00::21"
#define E	 ETH(.dst = EDGE_MAC, .src = ROUTER_MAC)
#define OUT	 ETH(.dst = BACKEND_MAC, .src = EGRESS_MAC)
#define DF	 0x4000
#define DOT1Q	 0x8100
#define DOT1AD	 0x88a8

enum method {
	IPIP4,
	IPIP6,
	GUE4,
	GUE6,
	L2,
	N_METHODS
};
enum {
	BE4 = 1,
	BE6 = 2
};

static const uint8_t modes[N_METHODS] = { HG_MODE_IPIP, HG_MODE_IPIP, HG_MODE_GUE, HG_MODE_GUE,
					  HG_MODE_L2 };
static struct lb lb;

static int setup(void **state)
{
	lb_load(&lb);
	return 0;
}

static int teardown(void **state)
{
	lb_unload(&lb);
	return 0;
}

static void set_backends(uint32_t ifindex, uint16_t mtu, uint16_t neigh_state)
{
	LB_BACKEND(&lb, .id = BE4, .addr = BACKEND4, .src = EDGE4, .ifindex = ifindex, .mtu = mtu,
		   .state = neigh_state);
	LB_BACKEND(&lb, .id = BE6, .addr = BACKEND6, .src = EDGE6, .ifindex = ifindex, .mtu = mtu,
		   .state = neigh_state);
}

/* TCP port 8000 + method of either address. */
static int rows(void **state)
{
	static const uint16_t ids[] = { BE4, BE6 };

	lb_clear(&lb);
	lb_tokens(&lb, true);
	set_backends(IFINDEX_IN, 0, 0);
	for (unsigned m = 0; m < N_METHODS; m++) {
		const uint16_t *be = &ids[m == IPIP6 || m == GUE6];

		LB_SERVICE(&lb, .addr = VIP4, .port = (uint16_t)(8000 + m), .mode = modes[m],
			   .id = m, .slots = 13, .backends = be, .n = 1);
		LB_SERVICE(&lb, .addr = VIP6, .port = (uint16_t)(8000 + m), .mode = modes[m],
			   .id = 10 + m, .slots = 13, .backends = be, .n = 1);
	}
	return 0;
}

static uint32_t hash_of(const char *src, const char *dst, uint16_t dport)
{
	struct hg_flow_key k = { .sport = hg_be16(40000), .dport = hg_be16(dport), .proto = 6 };

	addr_of(k.src, src);
	addr_of(k.dst, dst);
	return (uint32_t)hg_flow_hash(&k, LB_SEED);
}

/* A packet of `size` bytes of data, and what comes out of it; neither has tags. */
static void build(struct pktbuf *in, struct pktbuf *want, enum method m, bool v6, size_t size)
{
	const char *src = v6 ? CLIENT6 : CLIENT4, *dst = v6 ? VIP6 : VIP4;
	uint16_t port = (uint16_t)(8000 + m);
	uint32_t h = hash_of(src, dst, port);
	const struct layer tcp = TCP(.sport = 40000, .dport = port), data = DATA(size);
	const struct layer udp = UDP(.sport = (uint16_t)(0xc000 | (h & 0x3fff)), .dport = 6080,
				     .no_csum = true);
	const struct layer old4 = IP4(.src = src, .dst = dst, .id = 7, .tos = 8);
	const struct layer old6 = IP6(.src = src, .dst = dst, .tos = 8);
	const struct layer new4 = IP4(.src = src, .dst = dst, .id = 7, .tos = 8, .ttl = 63);
	const struct layer new6 = IP6(.src = src, .dst = dst, .tos = 8, .ttl = 63);
	const struct layer old = v6 ? old6 : old4, new = v6 ? new6 : new4;
	const struct layer outer4 = IP4(.src = EDGE4, .dst = BACKEND4, .frag = DF, .tos = 8);
	const struct layer outer6 = IP6(.src = EDGE6, .dst = BACKEND6, .id = h & 0xfffff, .tos = 8);

	PKT(in, E, old, tcp, data);
	switch (m) {
	case IPIP4:
		PKT(want, OUT, outer4, new, tcp, data);
		break;
	case IPIP6:
		PKT(want, OUT, outer6, new, tcp, data);
		break;
	case GUE4:
		PKT(want, OUT, outer4, udp, GUE(), new, tcp, data);
		break;
	case GUE6:
		PKT(want, OUT, outer6, udp, GUE(), new, tcp, data);
		break;
	default:
		PKT(want, OUT, new, tcp, data);
	}
}

/* A tag in front of what follows the MACs. */
static void tag(struct pktbuf *p, uint16_t type, uint16_t tci)
{
	assert_in_range(p->len, 12, PKT_MAX - 4);
	memmove(p->data + 16, p->data + 12, p->len - 12);
	p->data[12] = (uint8_t)(type >> 8);
	p->data[13] = (uint8_t)type;
	p->data[14] = (uint8_t)(tci >> 8);
	p->data[15] = (uint8_t)tci;
	p->len += 4;
}

struct tags {
	unsigned n; /* outermost last: so they are put on */
	uint16_t type[2], tci[2];
};

static void put_tags(struct pktbuf *p, const struct tags *t)
{
	for (unsigned i = 0; i < t->n; i++)
		tag(p, t->type[i], t->tci[i]);
}

static const struct tags none = { 0 };
static const struct tags one = { 1, { DOT1Q }, { 0x6064 } }; /* id 100, priority 3 */
static const struct tags two = { 2, { DOT1Q, DOT1AD }, { 9, 0xa007 } };

static void test_vlan(void **state)
{
	const struct {
		uint16_t state;
		const struct tags *in;
		struct tags out;
	} cases[] = {
		/* The next hop knows no tag: what came goes. */
		{ HG_NEIGH_OK, &none, none },
		{ HG_NEIGH_OK, &one, none },
		{ HG_NEIGH_OK, &two, none },
		/* A tag is put on, kept, or rewritten; the priority stays. */
		{ HG_NEIGH_TAGGED(100), &none, { 1, { DOT1Q }, { 100 } } },
		{ HG_NEIGH_TAGGED(100), &one, one },
		{ HG_NEIGH_TAGGED(4094), &one, { 1, { DOT1Q }, { 0x6ffe } } },
		{ HG_NEIGH_TAGGED(5), &two, { 1, { DOT1Q }, { 0xa005 } } },
		{ HG_NEIGH_TAGGED(5) | HG_NEIGH_TAG_AD, &none, { 1, { DOT1AD }, { 5 } } },
		{ HG_NEIGH_TAGGED(5) | HG_NEIGH_TAG_AD, &one, { 1, { DOT1AD }, { 0x6005 } } },
		{ HG_NEIGH_OK | HG_NEIGH_KEEP_TAGS, &none, none },
		{ HG_NEIGH_OK | HG_NEIGH_KEEP_TAGS, &one, one },
		{ HG_NEIGH_OK | HG_NEIGH_KEEP_TAGS, &two, two },
	};
	struct pktbuf in, want;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		set_backends(IFINDEX_IN, 0, cases[i].state);
		for (unsigned n = 0; n < N_METHODS * 2; n++) {
			build(&in, &want, n / 2, n % 2, 60);
			put_tags(&in, cases[i].in);
			put_tags(&want, &cases[i].out);
			EXPECT(lb.prog, &in, XDP_TX, &want);
		}
	}
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_DROP), 0);
}

/* Three tags are nobody's: the stack may know. */
static void test_three_tags(void **state)
{
	struct pktbuf in, want;

	build(&in, &want, IPIP4, false, 60);
	put_tags(&in, &two);
	tag(&in, DOT1Q, 3);
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_PASS_NOT_IP), 1);
}

/* The client is answered in its own VLAN, whatever the next hop's is; the tag takes nothing from the MTU. */
static void test_too_big_keeps_the_clients_tag(void **state)
{
	struct pktbuf in, want;

	set_backends(IFINDEX_IN, 0, HG_NEIGH_TAGGED(200));
	build(&in, &want, IPIP4, false, 1440);
	put_tags(&in, &one);
	tag(&want, DOT1Q, 0x60c8);
	EXPECT(lb.prog, &in, XDP_TX, &want);
	build(&in, &want, IPIP4, false, 1441);
	PKT(&want, ETH(.dst = ROUTER_MAC, .src = EDGE_MAC),
	    IP4(.src = VIP4, .dst = CLIENT4, .frag = DF, .proto = 1),
	    ICMP(.icmp_type = 3, .icmp_code = 4, .icmp_rest = 1480), RAW(in.data + 14, 548));
	put_tags(&in, &one);
	put_tags(&want, &one);
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

static void test_other_interface(void **state)
{
	struct pktbuf in, want;

	for (unsigned tagged = 0; tagged <= 1; tagged++) {
		set_backends(IFINDEX_OUT, 0, tagged ? HG_NEIGH_TAGGED(7) : HG_NEIGH_OK);
		for (unsigned n = 0; n < N_METHODS * 2; n++) {
			build(&in, &want, n / 2, n % 2, 60);
			if (tagged)
				tag(&want, DOT1Q, 7);
			EXPECT(lb.prog, &in, XDP_REDIRECT, &want);
		}
	}
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_REDIRECT), N_METHODS * 4);
	assert_int_equal(lb_service_counters(&lb, IPIP4).forwarded, 2);
	/* A device that is not in the map: named, and not counted as sent. */
	set_backends(IFINDEX_NONE, 0, 0);
	for (unsigned n = 0; n < N_METHODS * 2; n++) {
		build(&in, &want, n / 2, n % 2, 60);
		EXPECT_DROP(&lb, &in, HG_DROP_NO_REDIRECT);
	}
	assert_int_equal(lb_service_counters(&lb, IPIP4).forwarded, 2);
	assert_int_equal(lb_service_counters(&lb, IPIP4).dropped, 1);
	assert_int_equal(lb_backend_counters(&lb, BE4).packets, 12);
}

/* test_run puts what is beyond the first page into fragments, as drivers do with jumbo frames. */
static void test_several_pages(void **state)
{
	struct pktbuf in, want;

	set_backends(IFINDEX_IN, 9000, 0);
	for (unsigned n = 0; n < N_METHODS * 2; n++) {
		for (size_t size = 3400; size <= 8800; size += 300) {
			build(&in, &want, n / 2, n % 2, size);
			EXPECT(lb.prog, &in, XDP_TX, &want);
		}
	}
	set_backends(IFINDEX_IN, 9000, HG_NEIGH_TAGGED(5));
	for (unsigned n = 0; n < N_METHODS * 2; n++) {
		build(&in, &want, n / 2, n % 2, 8000);
		put_tags(&in, &two);
		tag(&want, DOT1Q, 0xa005);
		EXPECT(lb.prog, &in, XDP_TX, &want);
	}
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_DROP), 0);
}

/* A length beyond all pages is a lie as before, and the answer to one too big is cut from several pages. */
static void test_several_pages_faults(void **state)
{
	struct pktbuf in, want;

	set_backends(IFINDEX_IN, 9000, 0);
	build(&in, &want, IPIP4, false, 6000);
	in.len -= 1;
	EXPECT_DROP(&lb, &in, HG_DROP_BAD_HEADER);
	set_backends(IFINDEX_IN, 6000, 0);
	build(&in, &want, IPIP4, false, 6000);
	PKT(&want, ETH(.dst = ROUTER_MAC, .src = EDGE_MAC),
	    IP4(.src = VIP4, .dst = CLIENT4, .frag = DF, .proto = 1),
	    ICMP(.icmp_type = 3, .icmp_code = 4, .icmp_rest = 5980), RAW(in.data + 14, 548));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	build(&in, &want, GUE6, true, 6000);
	PKT(&want, ETH(.dst = ROUTER_MAC, .src = EDGE_MAC), IP6(.src = VIP6, .dst = CLIENT6),
	    ICMP6(.icmp_type = 2, .icmp_rest = 5948), RAW(in.data + 14, 1232));
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup(f, rows)
	const struct CMUnitTest tests[] = {
		ROW(test_vlan),
		ROW(test_three_tags),
		ROW(test_too_big_keeps_the_clients_tag),
		ROW(test_other_interface),
		ROW(test_several_pages),
		ROW(test_several_pages_faults),
	};

	return cmocka_run_group_tests_name("paths", tests, setup, teardown);
}
