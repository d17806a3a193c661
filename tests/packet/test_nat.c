/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NAT: whole frames in both directions, TCP's states and the counts that follow them, what is silent, what is
 * not ours.
 * links:
 */
#include "packet/nat_flow.h"

/* --- translation --------------------------------------------------------------------------------------------- */

static void test_both_ways(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		struct flow f = { .v6 = i & 1, .udp = i & 2, .port = 40000 };

		if (f.udp) {
			client_says(&f, OPTS(.size = 11));
			backend_says(&f, OPTS(.size = 700));
		} else {
			establish(&f);
		}
		/* All lengths near each other: odd and even, none at all. */
		for (size_t size = 0; size < 40; size++) {
			client_says(&f, OPTS(.flags = TCP_ACK | TCP_PSH, .size = size));
			backend_says(&f, OPTS(.flags = TCP_ACK, .size = size, .ttl = 2));
		}
		assert_int_equal(state_of(&f), f.udp ? HG_NAT_UDP : HG_NAT_OPEN);
		assert_int_equal(conns_of_backend(be_id(&f)), 1);
		assert_int_equal(lb.live_services[service_of(&f)].conns, 1);
		assert_int_equal(lb_backend_counters(&lb, be_id(&f)).begun, 1);
		assert_int_equal(lb_backend_counters(&lb, be_id(&f)).packets, f.udp ? 41 : 42);
		assert_int_equal(lb_backend_counters(&lb, be_id(&f)).rsp_packets, 41);
		assert_int_equal(lb_service_counters(&lb, service_of(&f)).forwarded,
				 f.udp ? 41 : 42);
		assert_int_equal(lb_service_counters(&lb, service_of(&f)).returned, 41);
	}
	assert_int_equal(lb_events(&lb, HG_EVENT_NAT_NEW), 4);
	assert_int_equal(words_used(), 4);
}

/* Sums over random data, ports and addresses: as good as recomputed. */
static void test_sums(void **state)
{
	uint64_t r = 1;

	for (unsigned i = 0; i < 2000; i++) {
		struct flow f = { .v6 = rnd(&r) & 1,
				  .udp = rnd(&r) & 1,
				  .port = (uint16_t)(1 + rnd(&r) % 65000) };

		if (i % 50 == 0)
			rows(state);
		client_says(&f, OPTS(.flags = TCP_SYN, .size = rnd(&r) % 100));
		backend_says(&f, OPTS(.flags = SYN_ACK, .size = rnd(&r) % 100));
	}
}

static void test_udp_without_sum(void **state)
{
	struct flow f4 = { .udp = true, .port = 40000 },
		    f6 = { .v6 = true, .udp = true, .port = 40000 };

	client_says(&f4, OPTS(.size = 5, .no_csum = true));
	backend_says(&f4, OPTS(.size = 5, .no_csum = true));
	client_says(&f6, OPTS(.size = 5, .no_csum = true));
	backend_says(&f6, OPTS(.size = 5, .no_csum = true));
}

/* Each side has its own tags; options are stepped over. */
static void test_odd_packets(void **state)
{
	struct flow f = { .port = 40000 }, g = { .v6 = true, .port = 40001 };
	struct pktbuf in, want;

	establish(&f);
	establish(&g);
	PKT(&in, E, VLAN(.tci = 7), IP4(.src = client[0], .dst = vip[0]),
	    TCP(.sport = 40000, .dport = 80), DATA(9));
	PKT(&want, OUT, IP4(.src = edge[0], .dst = backend[0], .ttl = 63),
	    TCP(.sport = f.edge_port, .dport = BE_PORT), DATA(9));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	/* And back into the client's VLAN, whatever the backend is in. */
	PKT(&in, FROM, VLAN(.tci = 0x3008), IP4(.src = backend[0], .dst = edge[0]),
	    TCP(.sport = BE_PORT, .dport = f.edge_port), DATA(9));
	PKT(&want, BACK, VLAN(.tci = 0x3007), IP4(.src = vip[0], .dst = client[0], .ttl = 63),
	    TCP(.sport = 80, .dport = 40000), DATA(9));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, FROM, IP4(.src = backend[0], .dst = edge[0]),
	    TCP(.sport = BE_PORT, .dport = f.edge_port), DATA(9));
	PKT(&want, BACK, VLAN(.tci = 7), IP4(.src = vip[0], .dst = client[0], .ttl = 63),
	    TCP(.sport = 80, .dport = 40000), DATA(9));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, E, IP4(.src = client[0], .dst = vip[0], .opt_words = 3),
	    TCP(.sport = 40000, .dport = 80, .opt_words = 5), DATA(9));
	PKT(&want, OUT, IP4(.src = edge[0], .dst = backend[0], .ttl = 63, .opt_words = 3),
	    TCP(.sport = f.edge_port, .dport = BE_PORT, .opt_words = 5), DATA(9));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, FROM, VLAN(.tci = 7), VLAN(.tci = 8), IP6(.src = backend[1], .dst = edge[1]),
	    EXT(60), TCP(.sport = BE_PORT, .dport = g.edge_port), DATA(9));
	PKT(&want, BACK, IP6(.src = vip[1], .dst = client[1], .ttl = 63), EXT(60),
	    TCP(.sport = 80, .dport = 40001), DATA(9));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	/* An odd packet may be the first one, too. */
	PKT(&in, E, VLAN(.tci = 7), IP4(.src = client[0], .dst = vip[0]),
	    TCP(.sport = 40002, .dport = 80, .flags = TCP_SYN));
	assert_int_equal(prog_run(lb.prog, &in, NULL), XDP_TX);
	assert_int_equal(conns_of_backend(1), 2);
}

/* Other interfaces, and a client whose router changed. */
static void test_links(void **state)
{
	struct flow f = { .port = 40000 };
	struct pktbuf in, want;

	LB_BACKEND(&lb, .id = 1, .addr = backend[0], .src = edge[0], .port = BE_PORT,
		   .ifindex = IFINDEX_OUT);
	PKT(&in, E, IP4(.src = client[0], .dst = vip[0]),
	    TCP(.sport = 40000, .dport = 80, .flags = TCP_SYN));
	assert_int_equal(prog_run(lb.prog, &in, &want), XDP_REDIRECT);
	f.edge_port = (uint16_t)(want.data[34] << 8 | want.data[35]);
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_REDIRECT), 1);
	assert_int_equal(row_of(&f)->ifindex, IFINDEX_IN);
	PKT(&in, ETH(.dst = "02:00:00:00:00:77", .src = "02:00:00:00:00:78"),
	    IP4(.src = client[0], .dst = vip[0]),
	    TCP(.sport = 40000, .dport = 80, .flags = TCP_SYN));
	assert_int_equal(prog_run(lb.prog, &in, NULL), XDP_REDIRECT);
	from_backend(&in, &f, OPTS(.flags = SYN_ACK));
	build(&want, &f, (struct layer)ETH(.dst = "02:00:00:00:00:78", .src = "02:00:00:00:00:77"),
	      vip, client, 80, 40000, OPTS(.flags = SYN_ACK, .ttl = 63));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	row_of(&f)->ifindex = IFINDEX_OUT;
	assert_int_equal(prog_run(lb.prog, &in, NULL), XDP_REDIRECT);
	assert_int_equal(conns_of_backend(1), 1);
}

/* --- states ---------------------------------------------------------------------------------------------------- */

struct step {
	bool back;
	uint8_t flags;
	uint8_t state; /* after it */
};

static void run_steps(struct flow *f, const struct step *s, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (s[i].back)
			backend_says(f, OPTS(.flags = s[i].flags));
		else
			client_says(f, OPTS(.flags = s[i].flags));
		if (state_of(f) != s[i].state)
			fail_msg("step %u: state %u, wanted %u", i, state_of(f), s[i].state);
		assert_int_equal(conns_of_backend(be_id(f)), hg_nat_is_counted(s[i].state));
		assert_int_equal(lb.live_services[service_of(f)].conns,
				 hg_nat_is_counted(s[i].state));
	}
}

#define STEPS(f, ...)                                      \
	run_steps(f, (const struct step[]){ __VA_ARGS__ }, \
		  sizeof((const struct step[]){ __VA_ARGS__ }) / sizeof(struct step))

static void test_states(void **state)
{
	struct flow f = { .port = 1 };

	/* The usual life; repeated packets change nothing, late ones neither. */
	STEPS(&f, { 0, TCP_SYN, HG_NAT_SYN }, { 0, TCP_SYN, HG_NAT_SYN },
	      { 1, SYN_ACK, HG_NAT_REPLIED }, { 1, SYN_ACK, HG_NAT_REPLIED },
	      { 0, TCP_ACK, HG_NAT_OPEN }, { 1, TCP_ACK, HG_NAT_OPEN },
	      { 0, TCP_SYN, HG_NAT_OPEN }, /* an old duplicate: the server's affair */
	      { 0, FIN_ACK, HG_NAT_FIN_CLIENT }, { 0, FIN_ACK, HG_NAT_FIN_CLIENT },
	      { 1, TCP_ACK, HG_NAT_FIN_CLIENT }, { 1, FIN_ACK, HG_NAT_CLOSED },
	      { 0, TCP_ACK, HG_NAT_CLOSED }, { 1, FIN_ACK, HG_NAT_CLOSED });
	rows(state);
	f = (struct flow){ .port = 2, .v6 = true };
	STEPS(&f, { 0, TCP_SYN, HG_NAT_SYN }, { 1, SYN_ACK, HG_NAT_REPLIED },
	      { 0, TCP_ACK, HG_NAT_OPEN }, { 1, FIN_ACK, HG_NAT_FIN_SERVER },
	      { 0, TCP_ACK, HG_NAT_FIN_SERVER }, { 0, FIN_ACK, HG_NAT_CLOSED });
	rows(state);
	/* Refused. */
	f = (struct flow){ .port = 3 };
	STEPS(&f, { 0, TCP_SYN, HG_NAT_SYN }, { 1, RST_ACK, HG_NAT_RESET });
	rows(state);
	/* A forged RST does not end what goes on. */
	f = (struct flow){ .port = 4 };
	STEPS(&f, { 0, TCP_SYN, HG_NAT_SYN }, { 1, SYN_ACK, HG_NAT_REPLIED },
	      { 0, TCP_ACK, HG_NAT_OPEN }, { 0, TCP_RST, HG_NAT_RESET },
	      { 1, TCP_ACK, HG_NAT_OPEN }, { 1, TCP_RST, HG_NAT_RESET },
	      { 0, RST_ACK, HG_NAT_RESET });
}

/* The client uses its port again when the old connection is over: a new one, with a new port. */
static void test_client_port_again(void **state)
{
	struct flow f = { .port = 1 };
	uint16_t old;

	establish(&f);
	client_says(&f, OPTS(.flags = FIN_ACK));
	backend_says(&f, OPTS(.flags = FIN_ACK));
	assert_int_equal(conns_of_backend(1), 0);
	old = f.edge_port;
	f.edge_port = 0;
	establish(&f);
	assert_int_not_equal(f.edge_port, old);
	assert_int_equal(conns_of_backend(1), 1);
	assert_int_equal(rows_used(), 1);
	assert_int_equal(words_used(), 1);
}

/* Each state's time: alive until then, over afterwards. */
static void test_silence(void **state)
{
	struct pktbuf in;

	for (unsigned st = HG_NAT_SYN; st < HG_NAT_STATE_COUNT; st++) {
		struct flow f = { .port = 1, .udp = st >= HG_NAT_UDP_NEW };
		unsigned limit = hg_nat_seconds(st) ? hg_nat_seconds(st) : IDLE + IDLE / 8;
		const struct pkt_opts *o = OPTS(.flags = TCP_ACK);
		struct hg_nat_conn *c;

		rows(state);
		client_says(&f, OPTS(.flags = TCP_SYN));
		c = row_of(&f);
		if (!hg_nat_is_counted(st))
			lb.live_backends[1].xdp = lb.live_services[0].conns = 0;
		c->life = HG_NAT_LIFE(st, HG_NAT_TICK(c->life) - limit);
		backend_says(&f, o);
		c->life = HG_NAT_LIFE(st, HG_NAT_TICK(c->life));
		if (st != HG_NAT_OPEN && st != HG_NAT_UDP)
			without_ticket(c);
		lb.live_backends[be_id(&f)].xdp = lb.live_services[service_of(&f)].conns =
			(unsigned)hg_nat_is_counted(st);
		age_all(2 * limit + 2);
		/* Nobody's: the kernel answers the backend. */
		from_backend(&in, &f, o);
		EXPECT(lb.prog, &in, XDP_PASS, &in);
		to_vip(&in, &f, o);
		if (f.udp) {
			f.edge_port = 0;
			client_says(&f, o); /* begins anew */
			assert_int_equal(rows_used(), 1);
		} else {
			EXPECT_DROP(&lb, &in, HG_DROP_NAT_UNKNOWN);
			assert_int_equal(rows_used(), 0);
		}
		assert_int_equal(conns_of_backend(be_id(&f)), f.udp);
		assert_int_equal(lb.live_services[service_of(&f)].conns, f.udp);
		assert_int_equal(words_used(), f.udp);
	}
}

/* --- tickets --------------------------------------------------------------------------------------------------- */

/* The number of paths in a state. */
static unsigned paths_in(unsigned state)
{
	unsigned n = 0;

	for (unsigned i = 0; i < HG_NAT_PATHS(LB_NAT); i++)
		n += lb.nat_paths[i].state == state;
	return n;
}

/* Established connections of IPv4 have one, as old as the row; nobody else. */
static void test_tickets_follow_the_state(void **state)
{
	struct flow f = { .port = 1 }, g = { .port = 2, .v6 = true },
		    u = { .port = 3, .udp = true };

	client_says(&f, OPTS(.flags = TCP_SYN));
	backend_says(&f, OPTS(.flags = SYN_ACK));
	assert_false(has_ticket(row_of(&f)));
	client_says(&f, OPTS(.flags = TCP_ACK));
	assert_true(has_ticket(row_of(&f)));
	assert_int_equal(paths_in(HG_NAT_PATH_READY), 1);
	establish(&g);
	assert_false(has_ticket(row_of(&g)));
	client_says(&u, OPTS(.size = 1));
	assert_false(has_ticket(row_of(&u)));
	backend_says(&u, OPTS(.size = 1));
	assert_true(has_ticket(row_of(&u)));
	assert_int_equal(paths_in(HG_NAT_PATH_READY), 2);
	/* A reset that was none: the next packet gives them back. */
	client_says(&f, OPTS(.flags = TCP_RST));
	assert_false(has_ticket(row_of(&f)));
	backend_says(&f, OPTS(.flags = TCP_ACK));
	assert_true(has_ticket(row_of(&f)));
	assert_int_equal(paths_in(HG_NAT_PATH_READY), 2);
	/* The row is renewed through them, in both directions. */
	for (unsigned i = 0; i < 2; i++) {
		age(row_of(&f), IDLE / 8 + 1);
		if (i)
			backend_says(&f, OPTS(.flags = TCP_ACK));
		else
			client_says(&f, OPTS(.flags = TCP_ACK));
		assert_int_equal(*tick_of_ticket(row_of(&f)), HG_NAT_TICK(row_of(&f)->life));
		assert_int_equal(hints_at(row_of(&f)), 1);
		assert_true(has_ticket(row_of(&f)));
	}
	client_says(&f, OPTS(.flags = FIN_ACK));
	assert_false(has_ticket(row_of(&f)));
	assert_int_equal(hints_at(row_of(&f)), 0);
	/* Silent for too long: the row is given up, and they with it. */
	age(row_of(&u), IDLE + IDLE / 8 + 1);
	u.edge_port = 0;
	client_says(&u, OPTS(.size = 1));
	assert_false(has_ticket(row_of(&u)));
}

/* Packets go by the tickets and not by the row, which could be anything. */
static void test_tickets_are_used(void **state)
{
	struct flow f = { .port = 1 }, u = { .port = 3, .udp = true };
	struct hg_nat_conn row[2];

	establish(&f);
	client_says(&u, OPTS(.size = 1));
	backend_says(&u, OPTS(.size = 1));
	row[0] = *row_of(&f);
	row[1] = *row_of(&u);
	memset(row_of(&u), 0, sizeof(row[1]));
	memset(row_of(&f), 0, sizeof(row[0]));
	client_says(&f, OPTS(.flags = TCP_ACK, .size = 7));
	backend_says(&f, OPTS(.flags = TCP_ACK, .size = 7));
	for (size_t size = 12; size < 20; size++) { /* less is no plain packet, see parse_fast() */
		client_says(&u, OPTS(.size = size));
		backend_says(&u, OPTS(.size = size));
		client_says(&u, OPTS(.size = size, .no_csum = true));
		backend_says(&u, OPTS(.size = size, .no_csum = true));
	}
}

/* A ticket is its connection's only: not of another port that has the same row, nor of another address, port or protocol. */
static void test_tickets_are_exact(void **state)
{
	struct flow f = { .port = 1 }, stray;
	struct pktbuf in;

	establish(&f);
	lb.nat_control->n_ports = 4 * LB_NAT;
	for (unsigned i = 1; i < 4; i++) {
		stray = f;
		stray.edge_port = (uint16_t)(f.edge_port + i * LB_NAT);
		from_backend(&in, &stray, OPTS(.flags = TCP_ACK));
		EXPECT(lb.prog, &in, XDP_PASS, &in);
	}
	/* Every hint says that it is this row. */
	for (unsigned port = 2; port < 200; port++) {
		uint32_t row = (uint32_t)(row_of(&f) - lb.nat_conns);
		uint64_t hint = hg_nat_hint(
			HG_NAT_TICKET_CLIENT(inet_addr(client[0]), htons((uint16_t)port)),
			inet_addr(vip[0]), htons(80), 6, LB_SEED);

		lb.nat_hints[(hint >> 32) & (HG_NAT_HINT_LINES(LB_NAT) - 1)].word[0] =
			((uint32_t)hint & ~(LB_NAT - 1u)) | row;
		stray = (struct flow){ .port = (uint16_t)port };
		to_vip(&in, &stray, OPTS(.flags = TCP_ACK));
		EXPECT_DROP(&lb, &in, HG_DROP_NAT_UNKNOWN);
	}
	client_says(&f, OPTS(.flags = TCP_ACK, .size = 9));
	backend_says(&f, OPTS(.flags = TCP_ACK, .size = 9));
}

/* The client's router changes: answers follow at once, tickets in two ticks, onto another path. */
static void test_tickets_relink(void **state)
{
	struct flow f = { .port = 1 };
	struct pktbuf in, want;

	establish(&f);
	build(&in, &f, (struct layer)ETH(.dst = "02:00:00:00:00:77", .src = "02:00:00:00:00:78"),
	      client, vip, f.port, 80, OPTS(.flags = TCP_ACK));
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(prog_run(lb.prog, &in, NULL), XDP_TX);
		assert_int_equal(has_ticket(row_of(&f)), i == 2);
		assert_int_equal(paths_in(HG_NAT_PATH_READY), i < 2 ? 1 : 2);
		from_backend(&want, &f, OPTS(.flags = TCP_ACK));
		if (i == 1)
			age(row_of(&f), 2);
	}
	from_backend(&in, &f, OPTS(.flags = TCP_ACK));
	build(&want, &f, (struct layer)ETH(.dst = "02:00:00:00:00:78", .src = "02:00:00:00:00:77"),
	      vip, client, 80, f.port, OPTS(.flags = TCP_ACK, .ttl = 63));
	EXPECT(lb.prog, &in, XDP_TX, &want);
	/* What is silent is no younger for it. */
	row_of(&f)->life = HG_NAT_LIFE(HG_NAT_OPEN, HG_NAT_TICK(row_of(&f)->life) - IDLE / 8);
	in = want;
	age(row_of(&f), IDLE + 2);
	from_backend(&in, &f, OPTS(.flags = TCP_ACK));
	EXPECT(lb.prog, &in, XDP_PASS, &in);
}

/* Hints that lead astray and lines of them that are full, and fewer paths than are wanted: those go by their rows. */
static void test_without_room(void **state)
{
	struct flow f[40];
	unsigned n = 0;

	for (unsigned i = 0; i < 40; i++) {
		f[i] = (struct flow){ .port = (uint16_t)(1000 + i) };
		establish(&f[i]);
		n += hints_at(row_of(&f[i]));
	}
	assert_in_range(n, 39, 40); /* row 0 has none */
	for (unsigned i = 0; i < LB_NAT; i++)
		lb.nat_hints[i / HG_NAT_HINTS].word[i % HG_NAT_HINTS] ^= i % 3 ? 1 : 0x100;
	for (unsigned i = 0; i < 40; i++) {
		client_says(&f[i], OPTS(.flags = TCP_ACK, .size = i));
		backend_says(&f[i], OPTS(.flags = TCP_ACK, .size = i));
	}
	for (unsigned i = 0; i < LB_NAT; i++) {
		lb.nat_tickets[i].word = i % 2 ? ~0ull : lb.nat_tickets[i].word;
		lb.nat_hints[i / HG_NAT_HINTS].word[i % HG_NAT_HINTS] = 0x100 | (i | 1);
	}
	for (unsigned i = 0; i < HG_NAT_PATHS(LB_NAT); i++)
		lb.nat_paths[i].state = HG_NAT_PATH_RETIRING;
	for (unsigned i = 0; i < 40; i++) {
		client_says(&f[i], OPTS(.flags = TCP_ACK, .size = i));
		backend_says(&f[i], OPTS(.flags = TCP_ACK, .size = i));
		client_says(&f[i], OPTS(.flags = TCP_RST));
		assert_false(has_ticket(row_of(&f[i])));
		/* No path for new tickets. */
		client_says(&f[i], OPTS(.flags = TCP_ACK, .size = i));
		backend_says(&f[i], OPTS(.flags = TCP_ACK, .size = i));
		assert_false(has_ticket(row_of(&f[i])));
	}
	/* And then no hint for them. */
	for (unsigned i = 0; i < HG_NAT_PATHS(LB_NAT); i++)
		lb.nat_paths[i].state = HG_NAT_PATH_READY;
	for (unsigned i = 0; i < LB_NAT; i++)
		lb.nat_tickets[i].word = ~0ull;
	for (unsigned i = 0; i < 40; i++) {
		client_says(&f[i], OPTS(.flags = TCP_RST));
		client_says(&f[i], OPTS(.flags = TCP_ACK, .size = i));
		assert_true(has_ticket(row_of(&f[i])));
		backend_says(&f[i], OPTS(.flags = TCP_ACK, .size = i));
	}
}

/* --- whose is it ------------------------------------------------------------------------------------------------- */

static void test_unknown(void **state)
{
	struct flow f = { .port = 1 }, stray;
	struct pktbuf in;

	to_vip(&in, &f, OPTS(.flags = TCP_ACK));
	EXPECT_DROP(&lb, &in, HG_DROP_NAT_UNKNOWN);
	to_vip(&in, &f, OPTS(.flags = TCP_RST));
	EXPECT_DROP(&lb, &in, HG_DROP_NAT_UNKNOWN);
	to_vip(&in, &f, OPTS(.flags = SYN_ACK));
	EXPECT_DROP(&lb, &in, HG_DROP_NAT_UNKNOWN);
	assert_int_equal(rows_used(), 0);
	establish(&f);
	/* Another port of the edge, inside and outside the range; another one of the backend; another protocol. */
	for (unsigned i = 0; i < 3; i++) {
		static const uint16_t ports[] = { FIRST + N_PORTS, 22, FIRST - 1 };

		stray = f;
		stray.edge_port = ports[i];
		from_backend(&in, &stray, OPTS(.flags = TCP_ACK));
		EXPECT(lb.prog, &in, XDP_PASS, &in);
	}
	stray = f;
	stray.edge_port = (uint16_t)(f.edge_port == FIRST ? FIRST + 1 : f.edge_port - 1);
	from_backend(&in, &stray, OPTS(.flags = TCP_ACK));
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	PKT(&in, FROM, IP4(.src = backend[0], .dst = edge[0]),
	    TCP(.sport = BE_PORT + 1, .dport = f.edge_port));
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	PKT(&in, FROM, IP4(.src = "10.0.0.22", .dst = edge[0]),
	    TCP(.sport = BE_PORT, .dport = f.edge_port));
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	PKT(&in, FROM, IP4(.src = backend[0], .dst = edge[0]),
	    UDP(.sport = BE_PORT, .dport = f.edge_port));
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	PKT(&in, FROM, IP4(.src = backend[0], .dst = "10.0.0.2"),
	    TCP(.sport = BE_PORT, .dport = f.edge_port));
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	backend_says(&f, OPTS(.flags = TCP_ACK)); /* and the right one still goes through */
}

/* The table's word may change, and its backend die: what has begun stays where it is. */
static void test_table_changes(void **state)
{
	struct flow f = { .port = 1 }, g = { .port = 2 };
	struct pktbuf in;

	establish(&f);
	LB_BACKEND(&lb, .id = 5, .addr = "10.0.0.99", .src = edge[0], .port = BE_PORT);
	for (unsigned i = 0; i < 13; i++)
		lb.slots[0].slot[i] = HG_SLOT_TRACKED | HG_SLOT_MAKE(1, 5);
	client_says(&f, OPTS(.flags = TCP_ACK, .size = 3));
	backend_says(&f, OPTS(.flags = TCP_ACK, .size = 3));
	to_vip(&in, &g, OPTS(.flags = TCP_SYN));
	assert_int_equal(lb_backend_of(&lb, &in, NULL), 5);
	assert_int_equal(conns_of_backend(1), 1);
	assert_int_equal(conns_of_backend(5), 1);
	lb.backends[1].flags &= (uint8_t)~HG_BE_ALIVE;
	client_says(&f, OPTS(.flags = TCP_ACK, .size = 4));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_both_ways, rows),
		cmocka_unit_test_setup(test_sums, rows),
		cmocka_unit_test_setup(test_udp_without_sum, rows),
		cmocka_unit_test_setup(test_odd_packets, rows),
		cmocka_unit_test_setup(test_links, rows),
		cmocka_unit_test_setup(test_states, rows),
		cmocka_unit_test_setup(test_client_port_again, rows),
		cmocka_unit_test_setup(test_silence, rows),
		cmocka_unit_test_setup(test_tickets_follow_the_state, rows),
		cmocka_unit_test_setup(test_tickets_are_used, rows),
		cmocka_unit_test_setup(test_tickets_are_exact, rows),
		cmocka_unit_test_setup(test_tickets_relink, rows),
		cmocka_unit_test_setup(test_without_room, rows),
		cmocka_unit_test_setup(test_unknown, rows),
		cmocka_unit_test_setup(test_table_changes, rows),
	};

	return cmocka_run_group_tests_name("nat", tests, setup, teardown);
}
