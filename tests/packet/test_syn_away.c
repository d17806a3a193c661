/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SYN cookies of services whose listeners are on backends: the answer byte by byte, SYNs that get none and go on, the
 * packet that brings a cookie back to a slot that has moved, and the agent that it comes to.
 * links:
 */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <cmocka.h>

#include "packet/cookie.h"
#include "packet/edge.h"
#include "syn_tc.skel.h"
#include "xdp_decap.skel.h"
#include "xdp_lb.skel.h"

#define CPORT  40000
#define ISN    0xdeadbeefu
#define WINDOW 0xfa00
#define STAMP  (9 | 16) /* scale 9, SACK */
#define TUNNEL \
	UDP(.sport = (uint16_t)(0xc000 | (h & 0x3fff)), .dport = HG_GUE_PORT, .no_csum = true)
#define IPIP	80 /* ports by method */
#define GUE_	81
#define DIRECT	82
#define TRACKED 83
#define PLAIN	84 /* takes no part */

enum {
	OLD = 1,
	NEW = 2,
	OLD6 = 3,
	NEW6 = 4
};

static int setup(void **state)
{
	int rc = edge_setup(state);

	assert_int_equal(system("ip link set lo mtu 1500"), 0);
	return rc;
}

/* Slots have not moved; cookies always, though this host's sysctls allow nothing and its kernel no programs at tc. */
static int clear(void **state)
{
	static const uint16_t new4[] = { NEW };
	static const uint8_t modes[] = { HG_MODE_IPIP, HG_MODE_GUE, HG_MODE_L2, HG_MODE_IPIP,
					 HG_MODE_IPIP };

	lb_clear(&lb);
	lb_tokens(&lb, true);
	LB_BACKEND(&lb, .id = OLD, .addr = "10.0.0.21", .src = EDGE4);
	LB_BACKEND(&lb, .id = NEW, .addr = "10.0.0.22", .src = EDGE4);
	for (unsigned v6 = 0; v6 < 2; v6++)
		for (unsigned i = 0; i < 5; i++)
			LB_SERVICE(&lb, .addr = v6 ? VIP6 : VIP4, .port = (uint16_t)(IPIP + i),
				   .id = 2 * i + v6, .slots = 13, .mode = modes[i],
				   .flags = (uint8_t)((i < 4 ? HG_SVC_SYN_COOKIES : 0) |
						      (i == 3 ? HG_SVC_TRACK_ON : 0)),
				   .backends = new4, .n = 1);
	*lb.syn = (struct hg_syn_control){
		.mode = HG_SYN_ON,
		.flags = HG_SYN_FLEET,
		.valid = 100000,
		.hold = 100000,
		.tick = 1000,
		.rcv_wnd = WINDOW,
		.rcv_wscale = HG_SYN_FLEET_WSCALE,
	};
	cookie_secrets(lb.syn);
	return 0;
}

/* The word of every slot. */
static void set_slots(uint32_t word)
{
	for (uint32_t i = 0; i < lb.next_block * 16; i++)
		lb.slots[i / 16].slot[i % 16] = word;
}

/* --- packets ----------------------------------------------------------------------------------------------- */

static const uint8_t linux_options[20] = { 2, 4, 0x05, 0xb4, 4, 2, 8, 10, 1, 2,
					   3, 4, 0,    0,    0, 0, 1, 3,  3, 9 };
static const uint8_t stamps[12] = { 1, 1, 8, 10, 1, 2, 3, 4, 0, 0, 0x11, STAMP };

static uint32_t cookie(bool v6, uint16_t sport, uint16_t dport)
{
	struct cookie_flow f = { v6, v6 ? CLIENT6 : CLIENT4, v6 ? VIP6 : VIP4, sport, dport, ISN };

	return cookie_of_flow(&lb.syn->secrets[1], MINUTE, &f, 6, STAMP);
}

static void syn(struct pktbuf *p, bool v6, uint16_t sport, uint16_t dport)
{
	struct layer ip4 = IP4(.src = CLIENT4, .dst = VIP4);
	struct layer ip6 = IP6(.src = CLIENT6, .dst = VIP6);

	PKT(p, E, v6 ? ip6 : ip4,
	    TCP(.sport = sport, .dport = dport, .seq = ISN, .flags = TCP_SYN,
		.options = linux_options, .opt_words = 5));
}

/* What follows the answer with `ack` - 1: an ACK alone, or the request at once. */
static void ack_of(struct pktbuf *p, bool v6, uint16_t sport, uint16_t dport, uint32_t ack,
		   unsigned data)
{
	struct layer ip4 = IP4(.src = CLIENT4, .dst = VIP4);
	struct layer ip6 = IP6(.src = CLIENT6, .dst = VIP6);

	PKT(p, E, v6 ? ip6 : ip4,
	    TCP(.sport = sport, .dport = dport, .seq = ISN + 1, .ack = ack,
		.flags = data ? TCP_ACK | TCP_PSH : TCP_ACK, .options = stamps, .opt_words = 3),
	    DATA(data));
}

/* --- the answer ---------------------------------------------------------------------------------------------- */

static void expect_answer(bool v6, uint16_t dport, uint16_t mss)
{
	uint8_t options[20] = {
		2, 4, (uint8_t)(mss >> 8), (uint8_t)mss, 4, 2, 8, 10, 0, 0, 0, 0, 1, 2, 3, 4, 1,
		3, 3, HG_SYN_FLEET_WSCALE
	};
	size_t stamp_at = v6 ? 82 : 62;
	struct layer ip4 = IP4(.src = VIP4, .dst = CLIENT4, .frag = DF);
	struct layer ip6 = IP6(.src = VIP6, .dst = CLIENT6);
	struct pktbuf in, out, want;

	syn(&in, v6, CPORT, dport);
	assert_int_equal(prog_run(lb.prog, &in, &out), XDP_TX);
	memcpy(options + 8, out.data + stamp_at, 4);
	assert_int_equal(options[11] & 63, STAMP);
	PKT(&want, BACK, v6 ? ip6 : ip4,
	    TCP(.sport = dport, .dport = CPORT, .seq = cookie(v6, CPORT, dport), .ack = ISN + 1,
		.window = WINDOW, .flags = TCP_SYN | TCP_ACK, .options = options, .opt_words = 5));
	if (out.len != want.len || memcmp(out.data, want.data, want.len)) {
		pkt_diff(want.data, want.len, out.data, out.len);
		fail_msg("frames differ");
	}
}

/* With room for the tunnel in the MSS, whatever the method; direct routing needs none. */
static void test_answers(void **state)
{
	for (unsigned v6 = 0; v6 < 2; v6++) {
		uint16_t heads = v6 ? 60 : 40;

		expect_answer(v6, IPIP, (uint16_t)(1500 - 72 - heads));
		expect_answer(v6, GUE_, (uint16_t)(1500 - 72 - heads));
		expect_answer(v6, DIRECT, (uint16_t)(1500 - heads));
		expect_answer(v6, TRACKED, (uint16_t)(1500 - 72 - heads));
		assert_int_equal(lb_service_counters(&lb, v6).cookies_sent, 1);
		assert_int_equal(lb_service_counters(&lb, v6).answered, 1);
		assert_int_equal(lb_service_counters(&lb, v6).forwarded, 0);
		assert_int_equal(lb_service_counters(&lb, v6).syns, 1);
	}
	/* Nothing is remembered. */
	assert_int_equal(lb_flow_count(&lb, 0, -1), 0);
	assert_int_equal(lb.live_backends[NEW].xdp, 0);
}

/* To its backend as ever, and counted once. */
static void expect_forwarded(const struct pktbuf *in, uint16_t dport)
{
	uint32_t id = dport - IPIP, before = (uint32_t)lb_service_counters(&lb, 2 * id).packets;
	uint32_t h = (uint32_t)edge_hash(CLIENT4, VIP4, CPORT, dport, 6);
	struct layer inner[] = { IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63),
				 TCP(.sport = CPORT, .dport = dport, .seq = ISN, .flags = TCP_SYN,
				     .options = linux_options, .opt_words = 5) };
	struct hg_service_counters after;
	struct pktbuf want;

	if (dport == GUE_)
		PKT(&want, OUT, IP4(.src = EDGE4, .dst = "10.0.0.22", .frag = DF), TUNNEL, GUE(),
		    inner[0], inner[1]);
	else if (dport == DIRECT)
		PKT(&want, OUT, inner[0], inner[1]);
	else
		PKT(&want, OUT, IP4(.src = EDGE4, .dst = "10.0.0.22", .frag = DF), inner[0],
		    inner[1]);
	EXPECT(lb.prog, in, XDP_TX, &want);
	after = lb_service_counters(&lb, 2 * id);
	assert_int_equal(after.packets, before + 1);
	assert_int_equal(after.syns, after.packets);
	assert_int_equal(after.forwarded, after.packets);
	assert_int_equal(after.cookies_sent, 0);
}

/* SYNs that get no cookie go on: too few of them, none that a kernel would answer, and of a service that takes no part. */
static void test_syns_that_go_on(void **state)
{
	struct pktbuf p;

	lb.syn->mode = HG_SYN_AUTO;
	lb.syn->window_shift = 31;
	lb.syn->on_syns = 5;
	lb.syn->keep_syns = 3;
	for (uint16_t port = IPIP; port <= TRACKED; port++) {
		for (unsigned i = 1; i < 5; i++) {
			syn(&p, false, CPORT, port);
			expect_forwarded(&p, port);
		}
		assert_int_equal(prog_run(lb.prog, &p, NULL), XDP_TX);
		assert_int_equal(lb_service_counters(&lb, 2u * (port - IPIP)).cookies_sent, 1);
	}
	lb.syn->mode = HG_SYN_ON;
	syn(&p, false, CPORT, PLAIN);
	expect_forwarded(&p, PLAIN);
	lb.syn->mode = HG_SYN_OFF;
	memset(lb.svc_counters, 0, sizeof(*lb.svc_counters) * lb.n_cpus * 10);
	syn(&p, false, CPORT, IPIP);
	expect_forwarded(&p, IPIP);
}

/* How many SYNs of the source the limit lets through. */
static unsigned passes(const char *src, uint16_t dport, bool is_tagged)
{
	struct layer ip = IP4(.src = src, .dst = VIP4);
	struct layer tcp = TCP(.sport = CPORT, .dport = dport, .flags = TCP_SYN);
	struct pktbuf p;
	unsigned n = 0;

	if (is_tagged)
		PKT(&p, E, VLAN(.tci = 7), ip, tcp);
	else
		PKT(&p, E, ip, tcp);
	while (n < 100 && lb_backend_of(&lb, &p, NULL) == NEW)
		n++;
	return n;
}

/* It begins again for its backend, but not for the guard. */
static void test_guarded_once(void **state)
{
	struct hg_limit *l = &lb.control->limits[HG_LIMIT_SYNS];
	unsigned n;

	lb.syn->mode = HG_SYN_AUTO;
	lb.syn->window_shift = 31;
	lb.syn->on_syns = 1000;
	*l = (struct hg_limit){ .step = 1u << 30, .window = 9ull << 30 };
	n = passes("203.0.113.20", PLAIN, false);
	assert_in_range(n, 10, 20);
	assert_int_equal(passes("203.0.113.21", IPIP, false), n);
	assert_int_equal(passes("203.0.113.22", IPIP, true), n);
}

/* Nobody could take the connection: no answer in its name. */
static void test_without_backends(void **state)
{
	struct pktbuf p;

	set_slots(0);
	for (unsigned v6 = 0; v6 < 2; v6++) {
		syn(&p, v6, CPORT, IPIP);
		EXPECT_DROP(&lb, &p, HG_DROP_NO_BACKEND);
	}
	assert_int_equal(lb_service_counters(&lb, 0).cookies_sent, 0);
}

/* --- what comes back to the balancer --------------------------------------------------------------------------- */

static unsigned answer(bool v6, uint16_t sport, uint16_t dport, uint32_t ack, unsigned data)
{
	struct pktbuf p;

	ack_of(&p, v6, sport, dport, ack, data);
	return lb_backend_of(&lb, &p, NULL);
}

/* In a slot that moves, a connection begins with it: it goes to the new owner, and what answers no cookie to the old one. */
static void test_moved_slot(void **state)
{
	for (unsigned v6 = 0; v6 < 2; v6++) {
		uint32_t good = cookie(v6, CPORT, IPIP) + 1;

		lb_clear(&lb);
		clear(NULL);
		set_slots(HG_SLOT_TRACKED | HG_SLOT_MAKE(OLD, NEW));
		/* Not while none were sent. */
		lb.syn->mode = HG_SYN_AUTO;
		assert_int_equal(answer(v6, CPORT, IPIP, good, 0), OLD);
		memset(lb.flows, 0, sizeof(*lb.flows) * LB_LINES);
		lb.syn->mode = HG_SYN_ON;
		assert_int_equal(answer(v6, CPORT, IPIP, good, 0), NEW);
		assert_int_equal(lb_flow_count(&lb, NEW, HG_FLOW_SYN), 1);
		assert_int_equal(answer(v6, CPORT, IPIP, good, 99), NEW);
		assert_int_equal(answer(v6, CPORT, IPIP, good + 500, 0), NEW);
		assert_int_equal(lb_flow_count(&lb, NEW, HG_FLOW_CONFIRMED), 1);
		assert_int_equal(answer(v6, CPORT + 1, IPIP, good, 0), OLD);
		assert_int_equal(answer(v6, CPORT + 2, IPIP, good ^ 64, 0), OLD);
	}
}

/* The first one was lost: data brings the cookie as well. And no second chance is spent on it. */
static void test_gue_names_no_alternative(void **state)
{
	uint32_t h = (uint32_t)edge_hash(CLIENT4, VIP4, CPORT, GUE_, 6);
	uint32_t good = cookie(false, CPORT, GUE_) + 1;
	struct pktbuf in, want;

	set_slots(HG_SLOT_TRACKED | HG_SLOT_MAKE(OLD, NEW));
	ack_of(&in, false, CPORT, GUE_, good, 40);
	PKT(&want, OUT, IP4(.src = EDGE4, .dst = "10.0.0.22", .frag = DF), TUNNEL, GUE(),
	    IP4(.src = CLIENT4, .dst = VIP4, .ttl = 63),
	    TCP(.sport = CPORT, .dport = GUE_, .seq = ISN + 1, .ack = good,
		.flags = TCP_ACK | TCP_PSH, .options = stamps, .opt_words = 3),
	    DATA(40));
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

/* `track on`: counted, and not more than the backend may have. */
static void test_tracked(void **state)
{
	struct pktbuf p;

	lb.live_backends[NEW].limit = 2;
	for (uint16_t i = 0; i < 2; i++) {
		assert_int_equal(
			answer(false, CPORT + i, TRACKED, cookie(false, CPORT + i, TRACKED) + 1, 0),
			NEW);
		assert_int_equal(
			answer(false, CPORT + i, TRACKED, cookie(false, CPORT + i, TRACKED) + 1, 9),
			NEW);
		assert_int_equal(lb.live_backends[NEW].xdp, i + 1);
	}
	ack_of(&p, false, CPORT + 2, TRACKED, cookie(false, CPORT + 2, TRACKED) + 1, 0);
	EXPECT_DROP(&lb, &p, HG_DROP_MAXCONN);
	/* The same packet ends it. */
	PKT(&p, E, IP4(.src = CLIENT4, .dst = VIP4),
	    TCP(.sport = CPORT, .dport = TRACKED, .seq = ISN + 1,
		.ack = cookie(false, CPORT, TRACKED) + 1, .flags = TCP_FIN | TCP_ACK,
		.options = stamps, .opt_words = 3));
	assert_int_equal(lb_backend_of(&lb, &p, NULL), NEW);
	assert_int_equal(lb.live_backends[NEW].xdp, 1);
	lb.live_backends[NEW].limit = 0;
}

/* --- the agent --------------------------------------------------------------------------------------------------- */

static int listen_on(bool v6, uint16_t port)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	int on = 1, fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	inet_pton(v6 ? AF_INET6 : AF_INET, v6 ? VIP6 : VIP4,
		  v6 ? (void *)&a6.sin6_addr : (void *)&a4.sin_addr);
	assert_int_equal(setsockopt(fd, SOL_IP, IP_FREEBIND, &on, sizeof(on)), 0);
	assert_int_equal(bind(fd, v6 ? (void *)&a6 : (void *)&a4, v6 ? sizeof(a6) : sizeof(a4)), 0);
	assert_int_equal(listen(fd, 8), 0);
	return fd;
}

/* The balancer's secrets, as `headgate attach --syn-cookie-keys` writes them. */
static void share(struct hg_syn_control *c)
{
	*c = *lb.syn;
	c->mode = HG_SYN_ON;
	c->flags = HG_SYN_OWN | HG_SYN_OPTIONS | HG_SYN_FLEET | HG_SYN_AGENT;
	c->keys_until = c->keys_of = c->check_until = 0;
	memset(c->keys, 0, sizeof(c->keys));
}

/* A packet with an alternative stays where a listener and the cookie are, else it goes on. */
static void test_second_chance(void **state)
{
	struct hg_syn_control *c;
	struct agent agent;
	struct pktbuf in, want, bare;

	agent_load(&agent);
	c = map_mmap(agent.skel->maps.syn_control, sizeof(*c));
	agent_allow(&agent, "10.0.0.21", HG_DECAP_GUE | HG_DECAP_SECOND_CHANCE);
	for (unsigned v6 = 0; v6 < 2; v6++) {
		int fd = listen_on(v6, GUE_);

		share(c);
		for (unsigned bad = 0; bad < 4; bad++) {
			uint32_t ack = cookie(v6, CPORT, GUE_) + 1;
			bool stays = bad == 0;

			if (bad == 1)
				ack ^= 32;
			if (bad == 2)
				c->n_secrets = 0;
			if (bad == 3) {
				share(c);
				close(fd); /* nobody listens: the cookie is not for here */
			}
			ack_of(&bare, v6, CPORT, GUE_, ack, 5);
			PKT(&in, E, IP4(.src = EDGE4, .dst = "10.0.0.21"),
			    UDP(.sport = 50000, .dport = HG_GUE_PORT, .no_csum = true),
			    GUE(.gue_alt = "10.0.0.22", .gue_hops = 1, .proto = v6 ? 41 : 4),
			    RAW(bare.data + 14, bare.len - 14));
			PKT(&want, BACK, IP4(.src = "10.0.0.21", .dst = "10.0.0.22"),
			    UDP(.sport = 50000, .dport = HG_GUE_PORT, .no_csum = true),
			    GUE(.gue_alt = "10.0.0.22", .gue_hops = 0, .proto = v6 ? 41 : 4),
			    RAW(bare.data + 14, bare.len - 14));
			EXPECT(agent.prog, &in, stays ? XDP_PASS : XDP_TX, stays ? &bare : &want);
		}
	}
	munmap(c, (size_t)sysconf(_SC_PAGESIZE));
	agent_unload(&agent);
}

static int tc_run(int prog, const struct pktbuf *p)
{
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = p->data, .data_size_in = (__u32)p->len,
		    .repeat = 1);

	assert_int_equal(bpf_prog_test_run_opts(prog, &o), 0);
	return (int)o.retval;
}

#define UNSPEC (-1)
#define SHOT   2

/* NULL: not on this kernel. */
static struct syn_tc_bpf *tc_load(int *ret_prog, struct hg_syn_control **ret_c)
{
	struct btf *btf = btf__load_vmlinux_btf();
	bool has = btf__find_by_name_kind(btf, "bpf_sk_assign_tcp_reqsk", BTF_KIND_FUNC) >= 0;
	struct syn_tc_bpf *skel;

	btf__free(btf);
	if (!has) {
		print_message("skipped: this kernel has no bpf_sk_assign_tcp_reqsk()\n");
		return NULL;
	}
	skel = syn_tc_bpf__open();
	assert_non_null(skel);
	assert_int_equal(
		bpf_map__reuse_fd(skel->maps.xdp_verdicts, bpf_map__fd(lb.skel->maps.xdp_verdicts)),
		0);
	assert_int_equal(syn_tc_bpf__load(skel), 0);
	*ret_prog = bpf_program__fd(skel->progs.syn_take);
	*ret_c = map_mmap(skel->maps.syn_control, sizeof(**ret_c));
	return skel;
}

/*
 * Cookies are looked for without having been sent from here; what comes to a listener and is no answer is dropped while they
 * come, and passes before and after. That a listener gets the connection is for the end-to-end tests: the kernel gives none
 * to a test run, and so shows that it was asked.
 */
static void test_tc(void **state)
{
	struct hg_syn_control *c;
	struct pktbuf p;
	int prog;
	struct syn_tc_bpf *skel = tc_load(&prog, &c);

	if (!skel)
		skip();
	for (unsigned v6 = 0; v6 < 2; v6++) {
		int fd = listen_on(v6, IPIP);
		uint64_t strays = lb_events(&lb, HG_EVENT_COOKIE_STRAY);
		uint32_t good = cookie(v6, CPORT, IPIP) + 1;

		share(c);
		ack_of(&p, v6, CPORT, IPIP, good + 32, 0);
		assert_int_equal(tc_run(prog, &p), UNSPEC); /* none have come yet */
		for (unsigned data = 0; data < 20; data += 10) {
			uint64_t lost = lb_events(&lb, HG_EVENT_COOKIE_LOST);

			ack_of(&p, v6, CPORT, IPIP, good, data);
			assert_int_equal(tc_run(prog, &p), SHOT);
			assert_int_equal(lb_events(&lb, HG_EVENT_COOKIE_LOST), lost + 1);
		}
		assert_true(c->check_until);
		ack_of(&p, v6, CPORT, IPIP, good + 32, 0);
		assert_int_equal(tc_run(prog, &p), SHOT);
		/* What is behind the first one, which is late. */
		ack_of(&p, v6, CPORT, IPIP, good, 10);
		p.data[v6 ? 61 : 41]++;
		assert_int_equal(tc_run(prog, &p), SHOT);
		assert_int_equal(lb_events(&lb, HG_EVENT_COOKIE_STRAY), strays + 2);
		/* Nobody listens there, and a SYN. */
		ack_of(&p, v6, CPORT, DIRECT, good, 0);
		assert_int_equal(tc_run(prog, &p), UNSPEC);
		syn(&p, v6, CPORT, IPIP);
		assert_int_equal(tc_run(prog, &p), UNSPEC);
		c->check_until = 1;
		ack_of(&p, v6, CPORT, IPIP, good + 32, 0);
		assert_int_equal(tc_run(prog, &p), UNSPEC);
		close(fd);
	}
	munmap(c, (size_t)sysconf(_SC_PAGESIZE));
	syn_tc_bpf__destroy(skel);
}

/*
 * The server still waits after the client's connection before, from the same port: dropped, so that the client comes again,
 * and the kernel does not begin to wait anew. A connection that is established is the kernel's.
 */
static void test_tc_after_another_connection(void **state)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(IPIP) }, own;
	int listener = listen_on(false, IPIP), prog, fd = socket(AF_INET, SOCK_STREAM, 0), peer;
	struct cookie_flow f = { .src = VIP4, .dst = VIP4, .dport = IPIP, .isn = ISN };
	socklen_t len = sizeof(own);
	struct hg_syn_control *c;
	struct syn_tc_bpf *skel = tc_load(&prog, &c);
	struct pktbuf p;

	if (!skel)
		skip();
	share(c);
	assert_int_equal(system("ip addr add " VIP4 "/32 dev lo"), 0);
	inet_pton(AF_INET, VIP4, &a.sin_addr);
	assert_int_equal(connect(fd, (void *)&a, sizeof(a)), 0);
	peer = accept(listener, NULL, NULL);
	assert_true(peer >= 0);
	assert_int_equal(getsockname(fd, (void *)&own, &len), 0);
	f.sport = ntohs(own.sin_port);
	PKT(&p, E, IP4(.src = VIP4, .dst = VIP4),
	    TCP(.sport = f.sport, .dport = IPIP, .seq = ISN + 1,
		.ack = cookie_of_flow(&c->secrets[0], MINUTE, &f, 6, -1) + 1, .flags = TCP_ACK));
	assert_int_equal(tc_run(prog, &p), UNSPEC);
	close(peer);
	close(fd);
	usleep(10000);
	assert_int_equal(tc_run(prog, &p), SHOT);
	assert_int_equal(lb_events(&lb, HG_EVENT_COOKIE_LOST), 1);
	assert_int_equal(lb_events(&lb, HG_EVENT_COOKIE_TAKEN), 0);
	assert_int_equal(system("ip addr del " VIP4 "/32 dev lo"), 0);
	close(listener);
	munmap(c, (size_t)sysconf(_SC_PAGESIZE));
	syn_tc_bpf__destroy(skel);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup(f, clear)
	const struct CMUnitTest tests[] = {
		ROW(test_answers),	ROW(test_syns_that_go_on),
		ROW(test_guarded_once), ROW(test_without_backends),
		ROW(test_moved_slot),	ROW(test_gue_names_no_alternative),
		ROW(test_tracked),	ROW(test_second_chance),
		ROW(test_tc),		ROW(test_tc_after_another_connection),
	};

	return cmocka_run_group_tests_name("syn_away", tests, setup, edge_teardown);
}
