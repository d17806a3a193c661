/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NAT: limits of connections, ports and room; packets that cannot go on, and ICMP errors about those that
 * did.
 * links:
 */
#include "packet/nat_flow.h"

/* --- limits ------------------------------------------------------------------------------------------------------- */

static void test_maxconn(void **state)
{
	struct flow f[4];
	struct pktbuf in;

	for (unsigned i = 0; i < 4; i++)
		f[i] = (struct flow){ .port = (uint16_t)(100 + i) };
	lb.live_backends[1].limit = 2;
	establish(&f[0]);
	establish(&f[1]);
	to_vip(&in, &f[2], OPTS(.flags = TCP_SYN));
	EXPECT_DROP(&lb, &in, HG_DROP_MAXCONN);
	client_says(&f[0], OPTS(.flags = TCP_ACK, .size = 7)); /* the others do not notice */
	assert_int_equal(conns_of_backend(1), 2);
	assert_int_equal(lb.live_services[0].conns, 2);
	client_says(&f[0], OPTS(.flags = FIN_ACK));
	EXPECT_DROP(&lb, &in, HG_DROP_MAXCONN);
	backend_says(&f[0], OPTS(.flags = FIN_ACK));
	establish(&f[2]); /* the client's next SYN */
	assert_int_equal(conns_of_backend(1), 2);
	/* The section's. */
	lb.live_backends[1].limit = 0;
	lb.live_services[0].limit = 3;
	establish(&f[3]);
	f[0].edge_port = 0;
	to_vip(&in, &f[0], OPTS(.flags = TCP_SYN));
	EXPECT_DROP(&lb, &in, HG_DROP_MAXCONN);
	assert_int_equal(lb.live_services[0].conns, 3);
	assert_int_equal(conns_of_backend(1), 3);
}

/* What the L7 tier has counts, whichever process has it; who is refused leaves no trace. */
static void test_maxconn_of_both_tiers(void **state)
{
	struct flow f[3];
	struct pktbuf in;

	for (unsigned i = 0; i < 3; i++)
		f[i] = (struct flow){ .port = (uint16_t)(100 + i) };
	lb.live_backends[1].limit = 10;
	lb.live_backends[1].word = 5 * HG_LIVE_L7(0) + 3 * HG_LIVE_L7(1);
	establish(&f[0]);
	establish(&f[1]);
	to_vip(&in, &f[2], OPTS(.flags = TCP_SYN));
	EXPECT_DROP(&lb, &in, HG_DROP_MAXCONN);
	assert_int_equal(lb.live_backends[1].word,
			 5 * HG_LIVE_L7(0) + 3 * HG_LIVE_L7(1) + 2 * HG_LIVE_XDP);
	lb.live_backends[1].word -= HG_LIVE_L7(1);
	establish(&f[2]);
	assert_int_equal(hg_live_all(lb.live_backends[1].word), 10);
	/* As full as they can be, the parts do not run into each other. */
	lb.live_backends[1].limit = 0;
	lb.live_backends[1].word |= HG_LIVE_XDP - 1;
	client_says(&f[0], OPTS(.flags = FIN_ACK));
	backend_says(&f[0], OPTS(.flags = FIN_ACK));
	f[0].edge_port = 0;
	establish(&f[0]);
	assert_int_equal(lb.live_backends[1].xdp, 3);
	assert_int_equal(lb.live_backends[1].l7_a, HG_LIVE_L7_MAX);
	assert_int_equal(lb.live_backends[1].l7_b, HG_LIVE_L7_MAX);
	assert_int_equal(hg_live_l7(lb.live_backends[1].word, 0), HG_LIVE_L7_MAX);
	assert_int_equal(hg_live_all(lb.live_backends[1].word), 2 * HG_LIVE_L7_MAX + 3);
}

/* Every port of a range is found, none twice; then a named drop that leaves no trace. */
static void test_ports(void **state)
{
	bool seen[8] = { false };
	struct flow f[9];
	struct pktbuf in;

	lb.nat_services[0].n_ports = 8;
	for (unsigned i = 0; i < 9; i++)
		f[i] = (struct flow){ .port = (uint16_t)(100 + i) };
	for (unsigned i = 0; i < 8; i++) {
		establish(&f[i]);
		assert_in_range(f[i].edge_port, FIRST, FIRST + 7);
		assert_false(seen[f[i].edge_port - FIRST]);
		seen[f[i].edge_port - FIRST] = true;
	}
	to_vip(&in, &f[8], OPTS(.flags = TCP_SYN));
	EXPECT_DROP(&lb, &in, HG_DROP_NAT_FULL);
	assert_int_equal(conns_of_backend(1), 8);
	assert_int_equal(lb.live_services[0].conns, 8);
	for (unsigned i = 0; i < 8; i++)
		backend_says(&f[i], OPTS(.flags = TCP_ACK, .size = i));
	/* What is closed gives way when it must, not at once. */
	client_says(&f[3], OPTS(.flags = FIN_ACK));
	backend_says(&f[3], OPTS(.flags = FIN_ACK));
	EXPECT_DROP(&lb, &in, HG_DROP_NAT_FULL);
	age(row_of(&f[3]), 2);
	client_says(&f[8], OPTS(.flags = TCP_SYN));
	assert_int_equal(f[8].edge_port, f[3].edge_port);
	assert_int_equal(lb_events(&lb, HG_EVENT_NAT_EARLY), 1);
	assert_int_equal(conns_of_backend(1), 8);
	assert_int_equal(words_used(), 8);
	/* A half-open one too; an open one never. */
	age_all(5);
	f[3].edge_port = 0;
	client_says(&f[3], OPTS(.flags = TCP_SYN));
	assert_int_equal(f[3].edge_port, f[8].edge_port);
	assert_int_equal(conns_of_backend(1), 8);
	age_all(3);
	to_vip(&in, &f[8], OPTS(.flags = TCP_SYN));
	EXPECT_DROP(&lb, &in, HG_DROP_NAT_FULL);
	/* Silent for its whole time: free without being pressed. */
	age(row_of(&f[0]), IDLE + IDLE / 8 + 2);
	f[8].edge_port = 0;
	client_says(&f[8], OPTS(.flags = TCP_SYN));
	assert_int_equal(conns_of_backend(1), 8);
	assert_int_equal(words_used(), 8);
}

/* The same port towards two backends, and for TCP and UDP: the range is per backend. */
static void test_ports_are_per_backend(void **state)
{
	struct flow f = { .port = 9 }, g = { .port = 9, .udp = true };

	lb.nat_services[0].n_ports = lb.nat_services[2].n_ports = 1;
	establish(&f);
	client_says(&g, OPTS(.size = 1));
	assert_int_equal(f.edge_port, FIRST);
	assert_int_equal(g.edge_port, FIRST);
	backend_says(&g, OPTS(.size = 2));
	backend_says(&f, OPTS(.size = 2));
}

/* A port of the edge's address that is a service's is not used for NAT. */
static void test_port_of_service(void **state)
{
	struct flow f = { .port = 9 };
	struct pktbuf in;

	lb.nat_services[0].n_ports = 2;
	LB_SERVICE(&lb, .addr = EDGE4, .port = FIRST, .mode = HG_MODE_LOCAL, .id = 9);
	establish(&f);
	assert_int_equal(f.edge_port, FIRST + 1);
	f.port = 10;
	to_vip(&in, &f, OPTS(.flags = TCP_SYN));
	EXPECT_DROP(&lb, &in, HG_DROP_NAT_FULL);
}

static void test_sources(void **state)
{
	struct pktbuf in, out;
	bool seen[2] = { false };

	addr_of(lb.nat_services[0].source[0], "10.0.0.101");
	addr_of(lb.nat_services[0].source[1], "10.0.0.102");
	lb.nat_services[0].n_sources = 2;
	for (unsigned i = 0; i < 40; i++) {
		struct flow f = { .port = (uint16_t)(100 + i) };
		uint16_t port;

		to_vip(&in, &f, OPTS(.flags = TCP_SYN));
		assert_int_equal(prog_run(lb.prog, &in, &out), XDP_TX);
		assert_in_range(out.data[29], 101, 102);
		seen[out.data[29] - 101] = true;
		port = (uint16_t)(out.data[34] << 8 | out.data[35]);
		PKT(&in, FROM,
		    IP4(.src = backend[0], .dst = out.data[29] == 101 ? "10.0.0.101" : "10.0.0.102",
			.frag = DF, .id = 77),
		    TCP(.sport = BE_PORT, .dport = port, .flags = SYN_ACK));
		to_client(&out, &f, OPTS(.flags = SYN_ACK));
		EXPECT(lb.prog, &in, XDP_TX, &out);
	}
	assert_true(seen[0] && seen[1]);
}

/* Many at once, in random order: every answer finds its client. */
static void test_many(void **state)
{
	struct flow f[120] = { 0 };
	uint64_t r = 7;

	for (unsigned s = 0; s < 4; s++)
		lb.nat_services[s].n_ports = 64;
	for (unsigned i = 0; i < 120; i++) {
		f[i] = (struct flow){ .v6 = i & 1, .udp = i & 2, .port = (uint16_t)(1000 + i) };
		client_says(&f[i], OPTS(.flags = TCP_SYN, .size = i));
	}
	for (unsigned i = 0; i < 1000; i++) {
		struct flow *x = &f[rnd(&r) % 120];

		if (rnd(&r) & 1)
			backend_says(x, OPTS(.flags = SYN_ACK, .size = i % 60));
		else
			client_says(x, OPTS(.flags = TCP_ACK, .size = i % 60));
	}
	for (unsigned id = 1; id <= 4; id++)
		assert_int_equal(conns_of_backend(id), 30);
	assert_int_equal(rows_used(), 120);
	assert_int_equal(words_used(), 120);
}

/* --- what cannot go on --------------------------------------------------------------------------------------------- */

static void test_drops(void **state)
{
	struct flow f = { .port = 9 }, g = { .port = 9, .v6 = true }, n = { .port = 10 };
	struct pktbuf in;

	establish(&f);
	establish(&g);
	to_vip(&in, &f, OPTS(.flags = TCP_ACK, .ttl = 1));
	EXPECT_DROP(&lb, &in, HG_DROP_TTL);
	from_backend(&in, &g, OPTS(.flags = TCP_ACK, .ttl = 1));
	EXPECT_DROP(&lb, &in, HG_DROP_TTL);
	lb.backends[1].neigh.state = HG_NEIGH_NONE;
	to_vip(&in, &f, OPTS(.flags = TCP_ACK));
	EXPECT_DROP(&lb, &in, HG_DROP_NO_NEIGHBOUR);
	to_vip(&in, &n, OPTS(.flags = TCP_SYN));
	EXPECT_DROP(&lb, &in, HG_DROP_NO_NEIGHBOUR);
	lb.backends[1].flags = HG_BE_OUTER_V6 | HG_BE_VALID;
	EXPECT_DROP(&lb, &in, HG_DROP_BAD_BACKEND);
	lb.slots[0] = (struct hg_slot_block){ 0 };
	EXPECT_DROP(&lb, &in, HG_DROP_NO_BACKEND);
	assert_int_equal(conns_of_backend(1), 1);
	assert_int_equal(lb.live_services[0].conns, 1);
}

static void test_too_big(void **state)
{
	struct flow f = { .port = 9 }, g = { .port = 9, .v6 = true };
	struct pktbuf in, want;

	establish(&f);
	establish(&g);
	lb.backends[1].mtu = lb.backends[2].mtu = 1400;
	client_says(&f, OPTS(.flags = TCP_ACK, .size = 1360));
	to_vip(&in, &f, OPTS(.flags = TCP_ACK, .size = 1361));
	PKT(&want, BACK, IP4(.src = vip[0], .dst = client[0], .frag = DF),
	    ICMP(.icmp_type = 3, .icmp_code = 4, .icmp_rest = 1400), RAW(in.data + 14, 548));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	to_vip(&in, &g, OPTS(.flags = TCP_ACK, .size = 1361));
	PKT(&want, BACK, IP6(.src = vip[1], .dst = client[1]),
	    ICMP6(.icmp_type = 2, .icmp_rest = 1400), RAW(in.data + 14, 1232));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	assert_int_equal(lb_service_counters(&lb, 0).answered, 1);
	/* Towards the client nothing is asked when the frame leaves where it came in. */
	backend_says(&f, OPTS(.flags = TCP_ACK, .size = 1460));
	/* Loopback's MTU is 64 KiB: it fits, by the kernel's word. Where there is no such interface, nobody says no. */
	row_of(&f)->ifindex = IFINDEX_OUT;
	without_ticket(row_of(&f));
	from_backend(&in, &f, OPTS(.flags = TCP_ACK, .size = 1460));
	assert_int_equal(prog_run(lb.prog, &in, NULL), XDP_REDIRECT);
}

/* --- ICMP -------------------------------------------------------------------------------------------------------------- */

#define ROUTER4 "198.51.100.9"
#define ROUTER6 "2001:db8:f::9"

/* An error with `size` bytes of transport quoted of the packet in `quoted`. */
static void error_about(struct pktbuf *p, bool v6, struct layer eth, const char *src,
			const char *dst, uint8_t ttl, const struct pktbuf *quoted, size_t size)
{
	if (v6)
		PKT(p, eth, IP6(.src = src, .dst = dst, .ttl = ttl),
		    ICMP6(.icmp_type = 2, .icmp_rest = 1300), RAW(quoted->data + 14, 40 + size));
	else
		PKT(p, eth, IP4(.src = src, .dst = dst, .ttl = ttl),
		    ICMP(.icmp_type = 3, .icmp_code = 4, .icmp_rest = 1300),
		    RAW(quoted->data + 14, 20 + size));
}

static void test_icmp(void **state)
{
	static const size_t sizes[] = { 8, 20, 60 };

	for (unsigned i = 0; i < 12; i++) {
		struct flow f = { .v6 = i & 1, .udp = i & 2, .port = 40000 };
		size_t size = sizes[i / 4];
		struct pktbuf in, want, sent, known;
		const struct pkt_opts *o = OPTS(.flags = TCP_ACK, .size = 100),
				      *aged = OPTS(.flags = TCP_ACK, .size = 100, .ttl = 63);
		uint64_t before;

		rows(state);
		if (f.udp)
			client_says(&f, OPTS(.size = 1));
		else
			establish(&f);
		before = lb_backend_counters(&lb, be_id(&f)).packets;
		/* About what we sent to the backend: the client hears of what it sent. */
		to_backend(&sent, &f, o);
		build(&known, &f, (struct layer)E, client, vip, f.port, vport(&f), aged);
		error_about(&in, f.v6, (struct layer)FROM, f.v6 ? ROUTER6 : ROUTER4, edge[f.v6], 64,
			    &sent, size);
		error_about(&want, f.v6, (struct layer)BACK, vip[f.v6], client[f.v6], 63, &known,
			    size);
		EXPECT(lb.prog, &in, XDP_TX, &want);
		/* About what we sent to the client: the backend. */
		to_client(&sent, &f, o);
		build(&known, &f, (struct layer)FROM, backend, edge, bport(&f), f.edge_port, aged);
		error_about(&in, f.v6, (struct layer)E, f.v6 ? ROUTER6 : ROUTER4, vip[f.v6], 64,
			    &sent, size);
		error_about(&want, f.v6, (struct layer)OUT, edge[f.v6], backend[f.v6], 63, &known,
			    size);
		EXPECT(lb.prog, &in, XDP_TX, &want);
		assert_int_equal(lb_events(&lb, HG_EVENT_ICMP_ERROR), 2);
		assert_int_equal(lb_backend_counters(&lb, be_id(&f)).packets, before + 1);
		/* About a connection that does not exist: dropped for the service, the kernel's for the edge. */
		sent.data[f.v6 ? 54 + 3 : 34 + 3] ^= 1;
		error_about(&in, f.v6, (struct layer)E, f.v6 ? ROUTER6 : ROUTER4, vip[f.v6], 64,
			    &sent, size);
		EXPECT_DROP(&lb, &in, HG_DROP_NAT_UNKNOWN);
		to_backend(&sent, &f, o);
		sent.data[f.v6 ? 54 + 3 : 34 + 3] ^= 1;
		error_about(&in, f.v6, (struct layer)FROM, f.v6 ? ROUTER6 : ROUTER4, edge[f.v6], 64,
			    &sent, size);
		EXPECT(lb.prog, &in, XDP_PASS, &in);
	}
}

/* What a limit of sources says of an error's sender, and of what comes from a server nothing. */
static void test_icmp_is_guarded(void **state)
{
	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct flow f = { .v6 = v6, .port = 40000 };
		struct pktbuf in, sent, out;
		const struct pkt_opts *o = OPTS(.flags = TCP_ACK, .size = 100);
		unsigned passed = 0;

		rows(state);
		establish(&f);
		lb.control->source_seed = 77 + v6; /* nobody has sent anything yet */
		lb.control->limits[HG_LIMIT_PACKETS] = (struct hg_limit){ .window = 1ull << 32,
									  .step = 1u << 31 };
		to_client(&sent, &f, o);
		error_about(&in, v6, (struct layer)E, v6 ? ROUTER6 : ROUTER4, vip[v6], 64, &sent,
			    20);
		while (passed < 100 && prog_run(lb.prog, &in, &out) == XDP_TX)
			passed++;
		assert_in_range(passed, 3, 4); /* and one for its group */
		EXPECT_DROP(&lb, &in, HG_DROP_SOURCE_PACKETS);
		assert_int_equal(lb_service_counters(&lb, service_of(&f)).limited, 2);
		to_backend(&sent, &f, o);
		error_about(&in, v6, (struct layer)FROM, v6 ? ROUTER6 : ROUTER4, edge[v6], 64,
			    &sent, 20);
		for (unsigned i = 0; i < 10; i++)
			assert_int_equal(prog_run(lb.prog, &in, &out), XDP_TX);
		lb.control->limits[HG_LIMIT_PACKETS].step = 0;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_maxconn, rows),
		cmocka_unit_test_setup(test_maxconn_of_both_tiers, rows),
		cmocka_unit_test_setup(test_ports, rows),
		cmocka_unit_test_setup(test_ports_are_per_backend, rows),
		cmocka_unit_test_setup(test_port_of_service, rows),
		cmocka_unit_test_setup(test_sources, rows),
		cmocka_unit_test_setup(test_many, rows),
		cmocka_unit_test_setup(test_drops, rows),
		cmocka_unit_test_setup(test_too_big, rows),
		cmocka_unit_test_setup(test_icmp, rows),
		cmocka_unit_test_setup(test_icmp_is_guarded, rows),
	};

	return cmocka_run_group_tests_name("nat_limits", tests, setup, teardown);
}
