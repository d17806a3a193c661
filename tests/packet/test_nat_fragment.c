/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fragments through NAT in both directions: later ones follow their first one, whole frames compared; those whose
 * first one was not seen, is another datagram's or too long ago.
 * links:
 */
#include "packet/nat_flow.h"

#define MORE 0x2000

/* Part `n` of a datagram of three, of 48 bytes each but the last, between these two. */
static void part(struct pktbuf *p, const struct flow *f, struct layer eth, const char *const *src,
		 const char *const *dst, uint16_t sport, uint16_t dport, uint32_t id, unsigned n,
		 uint8_t ttl)
{
	uint16_t off = (uint16_t)(n * 6 | (n < 2 ? MORE : 0)), off6 = (uint16_t)(n * 48 | (n < 2));
	struct layer udp = UDP(.sport = sport, .dport = dport, .length = 109),
		     rest = DATA(n < 2 ? 48 : 13);

	if (n == 0 && f->v6)
		PKT(p, eth, IP6(.src = src[1], .dst = dst[1], .ttl = ttl),
		    EXT(44, .frag = off6, .id = id), udp, DATA(40));
	else if (n == 0)
		PKT(p, eth, IP4(.src = src[0], .dst = dst[0], .ttl = ttl, .id = id, .frag = off),
		    udp, DATA(40));
	else if (f->v6)
		PKT(p, eth, IP6(.src = src[1], .dst = dst[1], .ttl = ttl),
		    EXT(44, .frag = off6, .id = id, .proto = 17), rest);
	else
		PKT(p, eth,
		    IP4(.src = src[0], .dst = dst[0], .ttl = ttl, .id = id, .frag = off,
			.proto = 17),
		    rest);
}

static void in_part(struct pktbuf *p, const struct flow *f, uint32_t id, unsigned n)
{
	part(p, f, (struct layer)E, client, vip, f->port, 53, id, n, 0);
}

static void back_part(struct pktbuf *p, const struct flow *f, uint32_t id, unsigned n)
{
	part(p, f, (struct layer)FROM, backend, edge, 53, f->edge_port, id, n, 0);
}

static void goes_in(const struct flow *f, uint32_t id, unsigned n)
{
	struct pktbuf in, want;

	in_part(&in, f, id, n);
	part(&want, f, (struct layer)OUT, edge, backend, f->edge_port, 53, id, n, 63);
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

static void goes_back(const struct flow *f, uint32_t id, unsigned n)
{
	struct pktbuf in, want;

	back_part(&in, f, id, n);
	part(&want, f, (struct layer)BACK, vip, client, 53, f->port, id, n, 63);
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

static void test_both_ways(void **state)
{
	for (unsigned v6 = 0; v6 <= 1; v6++) {
		struct flow f = { .v6 = v6, .udp = true, .port = 40000 },
			    g = { .v6 = v6, .udp = true, .port = 40001 };

		client_says(&f, OPTS(.size = 11));
		client_says(&g, OPTS(.size = 11));
		assert_int_not_equal(f.edge_port, g.edge_port);
		for (uint32_t id = 1; id <= 40; id++) {
			const struct flow *h = id % 2 ? &f : &g;

			for (unsigned n = 0; n < 3; n++) {
				goes_in(h, id, n);
				goes_back(h, id, n);
			}
		}
		assert_int_equal(conns_of_backend(be_id(&f)), 2);
		assert_int_equal(lb_service_counters(&lb, service_of(&f)).forwarded, 122);
		assert_int_equal(lb_service_counters(&lb, service_of(&f)).returned, 120);
		assert_int_equal(lb_backend_counters(&lb, be_id(&f)).packets, 122);
		assert_int_equal(lb_backend_counters(&lb, be_id(&f)).rsp_packets, 120);
	}
	assert_int_equal(lb_events(&lb, HG_EVENT_FRAG_FOLLOWED), 2 * 2 * 80);
}

/* A datagram in fragments may be the first of its connection. */
static void test_begins_a_connection(void **state)
{
	struct flow f = { .udp = true, .port = 40000 };
	struct pktbuf in, out;

	in_part(&in, &f, 7, 0);
	assert_int_equal(prog_run(lb.prog, &in, &out), XDP_TX);
	f.edge_port = (uint16_t)(out.data[34] << 8 | out.data[35]);
	goes_in(&f, 7, 1);
	goes_in(&f, 7, 2);
	assert_int_equal(state_of(&f), HG_NAT_UDP_NEW);
	goes_back(&f, 8, 0);
	assert_int_equal(state_of(&f), HG_NAT_UDP);
	goes_back(&f, 8, 2);
	goes_back(&f, 8, 1);
}

/* Without its first one: towards a service it is dropped or the kernel's as with other methods; back it is not ours. */
static void test_strangers(void **state)
{
	for (unsigned v6 = 0; v6 <= 1; v6++) {
		struct flow f = { .v6 = v6, .udp = true, .port = 40000 };
		struct pktbuf in;

		client_says(&f, OPTS(.size = 11));
		in_part(&in, &f, 1, 1);
		EXPECT(lb.prog, &in, XDP_PASS, &in);
		back_part(&in, &f, 1, 1);
		EXPECT(lb.prog, &in, XDP_PASS, &in);
		goes_in(&f, 1, 0);
		goes_back(&f, 3, 0);
		in_part(&in, &f, 2, 1);
		EXPECT(lb.prog, &in, XDP_PASS, &in);
		back_part(&in, &f, 1, 1); /* that id is one of the other direction */
		EXPECT(lb.prog, &in, XDP_PASS, &in);
		goes_in(&f, 1, 1);
		goes_back(&f, 3, 1);
		/* The connection is over, and its row another's or nobody's. */
		row_of(&f)->life = 0;
		in_part(&in, &f, 1, 1);
		EXPECT_DROP(&lb, &in, HG_DROP_FRAGMENT);
		back_part(&in, &f, 3, 1);
		EXPECT(lb.prog, &in, XDP_PASS, &in);
	}
}

static void test_age(void **state)
{
	struct flow f = { .udp = true, .port = 40000 };
	struct pktbuf in;

	client_says(&f, OPTS(.size = 11));
	goes_back(&f, 3, 0);
	for (unsigned i = 0; i < LB_LINES * HG_LINE_WAYS; i++) {
		struct hg_line *l = &lb.nat_fragments[i / HG_LINE_WAYS];

		l->meta[i % HG_LINE_WAYS] -= HG_RODATA_DEFAULT_FRAGMENT_TICKS - 1;
	}
	goes_back(&f, 3, 1);
	for (unsigned i = 0; i < LB_LINES * HG_LINE_WAYS; i++)
		lb.nat_fragments[i / HG_LINE_WAYS].meta[i % HG_LINE_WAYS] -= 3;
	back_part(&in, &f, 3, 1);
	EXPECT(lb.prog, &in, XDP_PASS, &in);
}

static void test_cannot_go_on(void **state)
{
	struct flow f = { .udp = true, .port = 40000 };
	struct pktbuf in;

	client_says(&f, OPTS(.size = 11));
	goes_in(&f, 1, 0);
	part(&in, &f, (struct layer)E, client, vip, f.port, 53, 1, 1, 1);
	EXPECT_DROP(&lb, &in, HG_DROP_TTL);
	lb.backends[be_id(&f)].mtu = 60;
	in_part(&in, &f, 1, 1);
	EXPECT_DROP(&lb, &in, HG_DROP_TOO_BIG);
	lb.backends[be_id(&f)].neigh.state = HG_NEIGH_NONE;
	EXPECT_DROP(&lb, &in, HG_DROP_NO_NEIGHBOUR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_both_ways, rows),
		cmocka_unit_test_setup(test_begins_a_connection, rows),
		cmocka_unit_test_setup(test_strangers, rows),
		cmocka_unit_test_setup(test_age, rows),
		cmocka_unit_test_setup(test_cannot_go_on, rows),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
