/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SYN cookies: the answer byte by byte, what comes back, keys, switching on and off. Real listeners, in the
 * tests' own namespace, on addresses that it has not.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <cmocka.h>

#include "packet/cookie.h"
#include "packet/edge.h"
#include "syn_tc.skel.h"
#include "xdp_lb.skel.h"

#define LOCAL6 "2001:db8::20"
#define PORT   443
#define CPORT  40000
#define ISN    0xdeadbeefu
#define WINDOW 0xfa00
#define WSCALE 7
#define BACK4  IP4(.src = LOCAL4, .dst = CLIENT4, .frag = DF)
#define BACK6  IP6(.src = LOCAL6, .dst = CLIENT6)

static int listener4, listener6;

static int listen_on(int family, const char *addr)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };
	int on = 1, fd = socket(family, SOCK_STREAM, 0);
	bool v6 = family == AF_INET6;

	assert_true(fd >= 0);
	inet_pton(family, addr, v6 ? (void *)&a6.sin6_addr : (void *)&a4.sin_addr);
	assert_int_equal(setsockopt(fd, SOL_IP, IP_FREEBIND, &on, sizeof(on)), 0);
	assert_int_equal(bind(fd, v6 ? (void *)&a6 : (void *)&a4, v6 ? sizeof(a6) : sizeof(a4)), 0);
	assert_int_equal(listen(fd, 8), 0);
	return fd;
}

static int setup(void **state)
{
	int rc = edge_setup(state);

	assert_int_equal(system("ip link set lo mtu 1500"), 0);
	listener4 = listen_on(AF_INET, LOCAL4);
	listener6 = listen_on(AF_INET6, LOCAL6);
	return rc;
}

static int teardown(void **state)
{
	close(listener4);
	close(listener6);
	return edge_teardown(state);
}

/* Cookies always, with all options; 1: the service of IPv4, 2: of IPv6, 3: one that nobody listens for. */
static int clear(void **state)
{
	lb_clear(&lb);
	LB_SERVICE(&lb, .addr = LOCAL4, .port = PORT, .id = 1, .mode = HG_MODE_LOCAL);
	LB_SERVICE(&lb, .addr = LOCAL6, .port = PORT, .id = 2, .mode = HG_MODE_LOCAL);
	LB_SERVICE(&lb, .addr = LOCAL4, .port = 80, .id = 3, .mode = HG_MODE_LOCAL);
	*lb.syn = (struct hg_syn_control){
		.mode = HG_SYN_ON,
		.flags = HG_SYN_OWN | HG_SYN_TIMESTAMPS | HG_SYN_SACK | HG_SYN_WSCALE | HG_SYN_ECN,
		.valid = 100000,
		.hold = 100000,
		.tick = 1000,
		.rcv_wnd = WINDOW,
		.rcv_wscale = WSCALE,
	};
	cookie_secrets(lb.syn);
	return 0;
}

/* --- the cookie ------------------------------------------------------------------------------------------ */

/* The paper's own example, so that both can be trusted. */
static void test_siphash(void **state)
{
	static const __u64 key[2] = { 0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull };
	uint8_t m[15];

	for (uint8_t i = 0; i < sizeof(m); i++)
		m[i] = i;
	assert_int_equal(siphash(key, m, sizeof(m)), 0xa129ca6149be45e5ull);
}

/* --- the client's side --------------------------------------------------------------------------------------- */

struct client {
	bool v6;
	const uint8_t *options;
	uint8_t words;
	uint8_t flags; /* 0: SYN */
	const char *src; /* NULL: CLIENT4, CLIENT6 */
};

static void syn_of(struct pktbuf *p, const struct client *c)
{
	struct layer ip4 = IP4(.src = c->src ? c->src : CLIENT4, .dst = LOCAL4);
	struct layer ip6 = IP6(.src = c->src ? c->src : CLIENT6, .dst = LOCAL6);
	struct layer tcp = TCP(.sport = CPORT, .dport = PORT, .seq = ISN, .options = c->options,
			       .opt_words = c->words, .flags = c->flags ? c->flags : TCP_SYN);

	PKT(p, E, c->v6 ? ip6 : ip4, tcp);
}

/* What the cookie has to be under that secret. `stamp`: its lowest bits, or -1 without timestamps. */
static uint32_t cookie_of(const struct client *c, unsigned secret, unsigned mss, int stamp)
{
	struct cookie_flow f = {
		c->v6, c->v6 ? CLIENT6 : CLIENT4, c->v6 ? LOCAL6 : LOCAL4, CPORT, PORT, ISN
	};

	return cookie_of_flow(&lb.syn->secrets[secret], MINUTE, &f, mss, stamp);
}

/*
 * Runs the SYN; every byte of the answer has to be that cookie with those options, and only its timestamp's
 * upper part is free: `options` have zeros there. Returns the cookie, and the timestamp as it lies.
 */
static uint32_t expect_answer(const struct client *c, unsigned mss, int stamp, uint8_t *options,
			      uint8_t words, uint8_t flags)
{
	size_t tcp_off = c->v6 ? 54 : 34;
	struct pktbuf in, out, want;
	uint32_t cookie = cookie_of(c, 1, mss, stamp);
	struct layer tcp = TCP(.sport = PORT, .dport = CPORT, .seq = cookie, .ack = ISN + 1,
			       .flags = flags, .window = WINDOW, .options = options,
			       .opt_words = words);
	struct layer ip4 = BACK4, ip6 = BACK6;

	syn_of(&in, c);
	assert_int_equal(prog_run(lb.prog, &in, &out), XDP_TX);
	if (stamp >= 0) {
		assert_true(out.len >= tcp_off + 32);
		memcpy(options + 8, out.data + tcp_off + 28, 4);
		assert_int_equal(options[11] & 63, stamp);
	}
	PKT(&want, BACK, c->v6 ? ip6 : ip4, tcp);
	if (want.len < 60)
		want.len = 60;
	if (out.len != want.len || memcmp(out.data, want.data, want.len)) {
		pkt_diff(want.data, want.len, out.data, out.len);
		fail_msg("frames differ");
	}
	return cookie;
}

/* A client's options as Linux, Windows and others send them; timestamps 0x01020304, scale 9. */
static const uint8_t linux_options[20] = { 2, 4, 0x05, 0xb4, 4, 2, 8, 10, 1, 2,
					   3, 4, 0,    0,    0, 0, 1, 3,  3, 9 };
static const uint8_t windows_options[12] = { 2, 4, 0x05, 0xb4, 1, 3, 3, 8, 1, 1, 4, 2 };
static const uint8_t no_sack_options[20] = { 1, 1, 8, 10, 1, 2, 3, 4, 0,    0,
					     0, 0, 3, 3,  9, 2, 4, 5, 0xb4, 0 };

#define MSS4 2, 4, 0x05, 0xb4
#define MSS6 2, 4, 0x05, 0xa0
#define ECHO 1, 2, 3, 4

static void test_answer_with_all_options(void **state)
{
	uint8_t v4[20] = { MSS4, 4, 2, 8, 10, 0, 0, 0, 0, ECHO, 1, 3, 3, WSCALE };
	uint8_t v6[20] = { MSS6, 4, 2, 8, 10, 0, 0, 0, 0, ECHO, 1, 3, 3, WSCALE };
	struct client c = { .options = linux_options, .words = 5 };

	expect_answer(&c, 6, 9 | 16, v4, 5, TCP_SYN | TCP_ACK);
	c.v6 = true;
	expect_answer(&c, 6, 9 | 16, v6, 5, TCP_SYN | TCP_ACK);
	/* Congestion notification is asked for with ECE and CWR, and granted with ECE. */
	c = (struct client){ .options = linux_options, .words = 5, .flags = TCP_SYN | 0xc0 };
	expect_answer(&c, 6, 9 | 16 | 32, v4, 5, TCP_SYN | TCP_ACK | 0x40);
	assert_int_equal(lb_service_counters(&lb, 1).cookies_sent, 2);
	assert_int_equal(lb_service_counters(&lb, 1).answered, 2);
	assert_int_equal(lb_service_counters(&lb, 1).syns, 2);
	assert_int_equal(lb_service_counters(&lb, 1).packets, 2);
	assert_int_equal(lb_service_counters(&lb, 2).cookies_sent, 1);
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_REPLY), 3);
}

static void test_answer_follows_client_and_host(void **state)
{
	uint8_t plain[4] = { MSS4 };
	uint8_t no_sack[20] = { MSS4, 1, 1, 8, 10, 0, 0, 0, 0, ECHO, 1, 3, 3, WSCALE };
	uint8_t no_scale[16] = { MSS4, 4, 2, 8, 10, 0, 0, 0, 0, ECHO };
	struct client c = { .options = windows_options, .words = 3 };

	/* Without timestamps there is no place for scale and SACK. The least Ethernet frame is longer. */
	expect_answer(&c, 6, -1, plain, 1, TCP_SYN | TCP_ACK);
	c = (struct client){ .options = no_sack_options, .words = 5 };
	expect_answer(&c, 6, 9, no_sack, 5, TCP_SYN | TCP_ACK);
	/* Shorter and longer than the SYN. */
	c = (struct client){ .words = 10 };
	expect_answer(&c, 0, -1, plain, 1, TCP_SYN | TCP_ACK);
	c = (struct client){ .words = 0 };
	expect_answer(&c, 0, -1, plain, 1, TCP_SYN | TCP_ACK);
	c = (struct client){ .options = linux_options, .words = 4 };
	expect_answer(&c, 6, 15 | 16, no_scale, 4, TCP_SYN | TCP_ACK);
	/* What the sysctls forbid. */
	c = (struct client){ .options = linux_options, .words = 5 };
	lb.syn->flags &= ~(uint32_t)HG_SYN_WSCALE;
	expect_answer(&c, 6, 15 | 16, no_scale, 4, TCP_SYN | TCP_ACK);
	lb.syn->flags = HG_SYN_OWN | HG_SYN_SACK | HG_SYN_WSCALE;
	expect_answer(&c, 6, -1, plain, 1, TCP_SYN | TCP_ACK);
}

/* The largest entry of the table that the client can take. */
static void test_mss(void **state)
{
	static const struct {
		uint16_t mss;
		uint8_t v4, v6;
	} rows[] = { { 0, 0, 0 },    { 200, 0, 0 },  { 536, 0, 0 },  { 1199, 0, 0 },
		     { 1200, 1, 0 }, { 1300, 2, 1 }, { 1359, 2, 2 }, { 1360, 3, 3 },
		     { 1400, 4, 4 }, { 1439, 4, 5 }, { 1440, 5, 6 }, { 1460, 6, 6 },
		     { 8939, 6, 6 }, { 8940, 6, 7 }, { 8960, 7, 7 }, { 65535, 7, 7 } };
	uint8_t v4[4] = { MSS4 }, v6[4] = { MSS6 };

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t options[4] = { 2, 4, (uint8_t)(rows[i].mss >> 8), (uint8_t)rows[i].mss };
		struct client c = { .options = options, .words = 1 };

		expect_answer(&c, rows[i].v4, -1, v4, 1, TCP_SYN | TCP_ACK);
		c.v6 = true;
		expect_answer(&c, rows[i].v6, -1, v6, 1, TCP_SYN | TCP_ACK);
	}
}

/* Options that are cut short, too long, or of length 0: what stands before them counts, and nothing is read beyond. */
static void test_broken_options(void **state)
{
	static const uint8_t broken[][8] = {
		{ 2, 4, 0x05, 0xb4, 8, 10, 0, 0 },    { 2, 4, 0x05, 0xb4, 3, 0, 0, 0 },
		{ 2, 4, 0x05, 0xb4, 4, 1, 0, 0 },     { 2, 4, 0x05, 0xb4, 0, 3, 3, 9 },
		{ 2, 4, 0x05, 0xb4, 254, 255, 3, 9 }, { 34, 4, 9, 9, 2, 4, 0x05, 0xb4 },
		{ 2, 4, 0x05, 0xb4, 1, 1, 1, 3 },
	};
	uint8_t plain[4] = { MSS4 };

	for (unsigned i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		struct client c = { .options = broken[i], .words = 2 };

		expect_answer(&c, 6, -1, plain, 1, TCP_SYN | TCP_ACK);
	}
}

/* VLAN tags, IP options and extension headers; addresses that cannot have asked. */
static void test_odd_syns(void **state)
{
	uint8_t plain[4] = { MSS4 }, plain6[4] = { MSS6 };
	struct layer syn = TCP(.sport = CPORT, .dport = PORT, .seq = ISN, .flags = TCP_SYN);
	struct layer synack = TCP(.sport = PORT, .dport = CPORT, .ack = ISN + 1, .window = WINDOW,
				  .options = plain, .opt_words = 1, .flags = TCP_SYN | TCP_ACK);
	struct client c = { .v6 = false };
	struct pktbuf in, want;

	synack.seq = cookie_of(&c, 1, 0, -1);
	PKT(&in, E, VLAN(.tci = 7), IP4(.src = CLIENT4, .dst = LOCAL4), syn);
	PKT(&want, BACK, VLAN(.tci = 7), BACK4, synack);
	EXPECT(lb.prog, &in, XDP_TX, &want);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = LOCAL4, .opt_words = 3), syn);
	PKT(&want, BACK, BACK4, synack);
	want.len = 60;
	EXPECT(lb.prog, &in, XDP_TX, &want);
	c.v6 = true;
	synack.seq = cookie_of(&c, 1, 0, -1);
	synack.options = plain6;
	PKT(&in, E, IP6(.src = CLIENT6, .dst = LOCAL6), EXT(60), syn);
	PKT(&want, BACK, BACK6, synack);
	EXPECT(lb.prog, &in, XDP_TX, &want);
	/* To the kernel, as it is: */
	c = (struct client){ .src = "224.0.0.1" };
	syn_of(&in, &c);
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	c = (struct client){ .flags = TCP_SYN | TCP_FIN };
	syn_of(&in, &c);
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = LOCAL4, .frag = 0x2000), syn);
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = LOCAL4),
	    TCP(.sport = CPORT, .dport = 80, .flags = TCP_SYN)); /* nobody listens */
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = LOCAL4),
	    TCP(.sport = CPORT, .dport = 22, .flags = TCP_SYN)); /* no service */
	EXPECT(lb.prog, &in, XDP_PASS, &in);
}

/* --- what comes back --------------------------------------------------------------------------------------- */

static void ack_of(struct pktbuf *p, bool v6, uint32_t ack, const uint8_t *options, uint8_t words)
{
	struct layer ip4 = IP4(.src = CLIENT4, .dst = LOCAL4);
	struct layer ip6 = IP6(.src = CLIENT6, .dst = LOCAL6);

	PKT(p, E, v6 ? ip6 : ip4,
	    TCP(.sport = CPORT, .dport = PORT, .seq = ISN + 1, .ack = ack, .flags = TCP_ACK,
		.options = options, .opt_words = words));
}

static void expect_valid(const struct pktbuf *p, bool v6, bool is_valid)
{
	uint32_t id = v6 ? 2 : 1;
	struct hg_service_counters before = lb_service_counters(&lb, id), after;

	if (is_valid)
		EXPECT(lb.prog, p, XDP_PASS, p);
	else
		EXPECT_DROP(&lb, p, HG_DROP_SYN_COOKIE);
	after = lb_service_counters(&lb, id);
	assert_int_equal(after.cookies_valid - before.cookies_valid, is_valid);
	assert_int_equal(after.cookies_invalid - before.cookies_invalid, !is_valid);
	assert_int_equal(after.dropped - before.dropped, !is_valid);
}

static void test_ack(void **state)
{
	uint8_t stamps[12] = { 1, 1, 8, 10, 1, 2, 3, 4, 0, 0, 0x11, 9 | 16 };

	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct client c = { .v6 = v6 };
		struct pktbuf p;
		uint32_t plain = cookie_of(&c, 1, 6, -1), full = cookie_of(&c, 1, 6, 9 | 16);

		ack_of(&p, v6, plain + 1, NULL, 0);
		expect_valid(&p, v6, true);
		ack_of(&p, v6, full + 1, stamps, 3);
		expect_valid(&p, v6, true);
		/* Every bit of it counts, and what the options say. */
		for (unsigned bit = 0; bit < 32; bit++) {
			ack_of(&p, v6, (full ^ 1u << bit) + 1, stamps, 3);
			expect_valid(&p, v6, false);
		}
		for (unsigned bit = 0; bit < 6; bit++) {
			stamps[11] ^= 1u << bit;
			ack_of(&p, v6, full + 1, stamps, 3);
			expect_valid(&p, v6, false);
			stamps[11] ^= 1u << bit;
		}
		ack_of(&p, v6, full + 1, NULL, 0);
		expect_valid(&p, v6, false);
		/* Another connection's. */
		ack_of(&p, v6, full + 1, stamps, 3);
		p.data[v6 ? 55 : 35] ^= 1;
		expect_valid(&p, v6, false);
		ack_of(&p, v6, full + 1, stamps, 3);
		p.data[v6 ? 61 : 41] ^= 1; /* sequence number */
		expect_valid(&p, v6, false);
	}
}

/* From two minutes ago to the next one: hosts' clocks differ, and clients take their time. */
static void test_minutes(void **state)
{
	struct client c = { .v6 = false };
	uint8_t plain[4] = { MSS4 };
	struct pktbuf p;
	uint32_t cookie = expect_answer(&c, 0, -1, plain, 1, TCP_SYN | TCP_ACK);

	ack_of(&p, false, cookie + 1, NULL, 0);
	for (int later = -4; later <= 6; later++) {
		cookie_clock(lb.syn, (uint64_t)(MINUTE + later));
		expect_valid(&p, false, later >= -1 && later <= 2);
	}
	/* Keys are as good as their minute is long. */
	cookie_clock(lb.syn, MINUTE);
	expect_valid(&p, false, true);
	assert_in_range(lb.syn->keys_until, lb.syn->check_until - lb.syn->valid + 50000,
			lb.syn->check_until - lb.syn->valid + 80000);
	assert_int_equal(lb.syn->keys_of, (uint64_t)lb.syn->generation << 32 | MINUTE);
}

/* Those that make none check, too; unknown ones do not, also where they are but zeros. */
static void test_secrets(void **state)
{
	struct client c = { .v6 = false };
	struct pktbuf p;

	for (unsigned n = 0; n < 4; n++) {
		lb.syn->n_secrets = n;
		for (unsigned i = 0; i < 3; i++) {
			ack_of(&p, false, cookie_of(&c, i, 6, -1) + 1, NULL, 0);
			expect_valid(&p, false, i < n);
		}
	}
	/* A new set of them is in force at once. */
	ack_of(&p, false, cookie_of(&c, 0, 6, -1) + 1, NULL, 0);
	lb.syn->secrets[0].k[3]++;
	lb.syn->generation++;
	expect_valid(&p, false, false);
	ack_of(&p, false, cookie_of(&c, 0, 6, -1) + 1, NULL, 0);
	expect_valid(&p, false, true);
	/* None: the SYN is the kernel's. */
	lb.syn->n_secrets = 0;
	syn_of(&p, &c);
	EXPECT(lb.prog, &p, XDP_PASS, &p);
}

static void test_other_flags(void **state)
{
	static const struct {
		uint8_t flags;
		bool is_dropped;
	} rows[] = { { TCP_RST, false },	  { TCP_RST | TCP_ACK, false },
		     { TCP_FIN, false },	  { TCP_FIN | TCP_ACK, true },
		     { TCP_SYN | TCP_ACK, true }, { TCP_PSH | TCP_ACK, true },
		     { TCP_PSH, false } };
	struct pktbuf p;

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		PKT(&p, E, IP4(.src = CLIENT4, .dst = LOCAL4),
		    TCP(.sport = CPORT, .dport = PORT, .flags = rows[i].flags), DATA(10));
		if (rows[i].is_dropped)
			EXPECT_DROP(&lb, &p, HG_DROP_SYN_COOKIE);
		else
			EXPECT(lb.prog, &p, XDP_PASS, &p);
	}
	/* Nobody listens: the kernel says so. */
	PKT(&p, E, IP4(.src = CLIENT4, .dst = LOCAL4), TCP(.sport = CPORT, .dport = 80));
	EXPECT(lb.prog, &p, XDP_PASS, &p);
}

/* --- switching ------------------------------------------------------------------------------------------------ */

/* Windows that do not end in a test: the count alone decides. */
static void test_auto(void **state)
{
	struct client c = { .v6 = false };
	struct pktbuf syn, ack;

	lb.syn->mode = HG_SYN_AUTO;
	lb.syn->window_shift = 31;
	lb.syn->on_syns = 10;
	lb.syn->keep_syns = 5;
	syn_of(&syn, &c);
	ack_of(&ack, false, 12345, NULL, 0);
	for (unsigned i = 1; i < 10; i++) {
		EXPECT(lb.prog, &syn, XDP_PASS, &syn);
		EXPECT(lb.prog, &ack, XDP_PASS, &ack); /* the listener's reset, as ever */
	}
	assert_int_equal(lb_service_counters(&lb, 1).local, 18);
	assert_int_equal(lb.syn->check_until, 0);
	assert_int_equal(prog_run(lb.prog, &syn, NULL), XDP_TX);
	assert_true(lb.syn_services[1].on_until && lb.syn->check_until);
	EXPECT_DROP(&lb, &ack, HG_DROP_SYN_COOKIE);
	/* Not the other service. */
	c.v6 = true;
	syn_of(&syn, &c);
	EXPECT(lb.prog, &syn, XDP_PASS, &syn);
	ack_of(&ack, true, 12345, NULL, 0);
	EXPECT(lb.prog, &ack, XDP_PASS, &ack);
	/* A new window with few SYNs: on until the hold is over; with half of what it takes, longer. */
	c.v6 = false;
	syn_of(&syn, &c);
	lb.syn_services[1].window = 0xffffffff00000000ull;
	lb.syn_services[1].on_until -= 50000;
	assert_int_equal(prog_run(lb.prog, &syn, NULL), XDP_TX);
	for (uint64_t held = lb.syn_services[1].on_until; lb.syn_services[1].on_until == held;)
		assert_int_equal(prog_run(lb.prog, &syn, NULL), XDP_TX);
	assert_int_equal((uint32_t)lb.syn_services[1].window, 5);
	lb.syn_services[1].on_until = 1;
	lb.syn_services[1].window = 0xffffffff00000000ull;
	EXPECT(lb.prog, &syn, XDP_PASS, &syn);
	/* Cookies that are on their way are still taken, and when that is over nothing is looked at. */
	ack_of(&ack, false, cookie_of(&c, 1, 0, -1) + 1, NULL, 0);
	expect_valid(&ack, false, true);
	lb.syn_services[1].check_until = 1;
	ack_of(&ack, false, 12345, NULL, 0);
	EXPECT(lb.prog, &ack, XDP_PASS, &ack);
	lb.syn->mode = HG_SYN_OFF;
	lb.syn_services[1].on_until = ~0ull;
	EXPECT(lb.prog, &syn, XDP_PASS, &syn);
}

/* A connection that the kernel has, also in its other states, is the kernel's: a real one over loopback. */
static void test_connections_of_the_kernel(void **state)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(PORT) }, own;
	socklen_t len = sizeof(own);
	struct pktbuf p;
	int fd = socket(AF_INET, SOCK_STREAM, 0), peer;

	assert_int_equal(system("ip addr add " LOCAL4 "/32 dev lo"), 0);
	inet_pton(AF_INET, LOCAL4, &a.sin_addr);
	assert_int_equal(connect(fd, (void *)&a, sizeof(a)), 0);
	peer = accept(listener4, NULL, NULL);
	assert_true(peer >= 0);
	assert_int_equal(getsockname(fd, (void *)&own, &len), 0);
	for (unsigned i = 0; i < 2; i++) {
		PKT(&p, E, IP4(.src = LOCAL4, .dst = LOCAL4),
		    TCP(.sport = ntohs(own.sin_port), .dport = PORT));
		EXPECT(lb.prog, &p, XDP_PASS, &p);
		PKT(&p, E, IP4(.src = LOCAL4, .dst = LOCAL4),
		    TCP(.sport = ntohs(own.sin_port), .dport = PORT, .flags = TCP_SYN));
		EXPECT(lb.prog, &p, XDP_PASS, &p);
		close(peer); /* the server's end waits in TIME_WAIT now */
		close(fd);
		usleep(10000);
	}
	assert_int_equal(lb_service_counters(&lb, 1).cookies_invalid, 0);
	assert_int_equal(system("ip addr del " LOCAL4 "/32 dev lo"), 0);
}

/* --- tc ---------------------------------------------------------------------------------------------------------- */

static int tc_run(int prog, const struct pktbuf *p)
{
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = p->data, .data_size_in = (__u32)p->len,
		    .repeat = 1);

	assert_int_equal(bpf_prog_test_run_opts(prog, &o), 0);
	return (int)o.retval;
}

/*
 * That a listener gets the connection is for the end-to-end tests: the kernel gives none to a test run, and so shows
 * that what it does not take is dropped and counted.
 */
static void test_tc(void **state)
{
	struct btf *btf = btf__load_vmlinux_btf();
	bool has = btf__find_by_name_kind(btf, "bpf_sk_assign_tcp_reqsk", BTF_KIND_FUNC) >= 0;
	uint8_t stamps[12] = { 1, 1, 8, 10, 1, 2, 3, 4, 0, 0, 0x11, 9 | 16 };
	struct syn_tc_bpf *skel;
	struct pktbuf p;
	int prog;

	btf__free(btf);
	if (!has) {
		print_message("skipped: this kernel has no bpf_sk_assign_tcp_reqsk()\n");
		skip();
	}
	skel = syn_tc_bpf__open();
	assert_non_null(skel);
	assert_int_equal(
		bpf_map__reuse_fd(skel->maps.syn_control, bpf_map__fd(lb.skel->maps.syn_control)),
		0);
	assert_int_equal(
		bpf_map__reuse_fd(skel->maps.xdp_verdicts, bpf_map__fd(lb.skel->maps.xdp_verdicts)),
		0);
	assert_int_equal(syn_tc_bpf__load(skel), 0);
	prog = bpf_program__fd(skel->progs.syn_take);
	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct client c = { .v6 = v6 };
		uint32_t cookie = cookie_of(&c, 1, 6, 9 | 16);
		uint64_t lost = lb_events(&lb, HG_EVENT_COOKIE_LOST);

		lb.syn->check_until = 0;
		ack_of(&p, v6, cookie + 1, stamps, 3);
		assert_int_equal(tc_run(prog, &p), -1); /* TC_ACT_UNSPEC: no cookies are about */
		lb.syn->check_until = ~0ull;
		assert_int_equal(tc_run(prog, &p), 2); /* TC_ACT_SHOT */
		assert_int_equal(lb_events(&lb, HG_EVENT_COOKIE_LOST), lost + 1);
		ack_of(&p, v6, cookie + 2, stamps, 3);
		assert_int_equal(tc_run(prog, &p), -1);
		ack_of(&p, v6, cookie + 1, NULL, 0);
		assert_int_equal(tc_run(prog, &p), -1);
		assert_int_equal(lb_events(&lb, HG_EVENT_COOKIE_LOST), lost + 1);
	}
	syn_tc_bpf__destroy(skel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_siphash, clear),
		cmocka_unit_test_setup(test_answer_with_all_options, clear),
		cmocka_unit_test_setup(test_answer_follows_client_and_host, clear),
		cmocka_unit_test_setup(test_mss, clear),
		cmocka_unit_test_setup(test_broken_options, clear),
		cmocka_unit_test_setup(test_odd_syns, clear),
		cmocka_unit_test_setup(test_ack, clear),
		cmocka_unit_test_setup(test_minutes, clear),
		cmocka_unit_test_setup(test_secrets, clear),
		cmocka_unit_test_setup(test_other_flags, clear),
		cmocka_unit_test_setup(test_auto, clear),
		cmocka_unit_test_setup(test_connections_of_the_kernel, clear),
		cmocka_unit_test_setup(test_tc, clear),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
