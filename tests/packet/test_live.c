/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections by source: what the balancer does with the counts, and that the kernel's counts are the truth, for
 * real connections over loopback that end in every way there is.
 * links: dp lb net conf expr http ev base
 */
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <headgate/live.h>

#include "dp/dp_priv.h"
#include "packet/edge.h"
#include "xdp_lb.skel.h"

#define SEED 0x1234567890abcdefull
#define PORT 8080
#define SVC4 5
#define SVC6 6

static struct dp dp;
static struct hg_live_line *lines;
static const uint16_t one[] = { 1 };

static uint64_t hash4(const char *text)
{
	uint32_t a;

	assert_int_equal(inet_pton(AF_INET, text, &a), 1);
	return hg_source_hash(0, a, false, SEED);
}

static uint64_t hash6(const char *text)
{
	uint64_t a[2];

	assert_int_equal(inet_pton(AF_INET6, text, a), 1);
	return hg_source_hash(a[0], a[1], true, SEED);
}

/* What the contract says a source has, by a search of the whole table. */
static unsigned count(uint64_t hash)
{
	unsigned n = 0;

	for (unsigned i = 0; i < HG_LIVE_LINES; i++)
		for (unsigned j = 0; j < HG_LIVE_WAYS; j++)
			if (HG_LIVE_TAG(lines[i].word[j]) == HG_LIVE_TAG(hash) &&
			    (i ^ hg_live_row(hash)) <= 1)
				n += lines[i].word[j] & HG_LIVE_COUNT;
	return n;
}

static unsigned count_all(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < HG_LIVE_LINES; i++)
		for (unsigned j = 0; j < HG_LIVE_WAYS; j++)
			n += lines[i].word[j] & HG_LIVE_COUNT;
	return n;
}

/* Pins need a BPF file system: one of the test's own. */
static void make_pins(void)
{
	char dir[] = "/tmp/hg-live-XXXXXX";

	assert_non_null(mkdtemp(dir));
	assert_int_equal(unshare(CLONE_NEWNS), 0);
	(void)mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
	assert_int_equal(mount("bpf", dir, "bpf", 0, NULL), 0);
	snprintf(dp.dir, sizeof(dp.dir), "%s", dir);
}

static int setup(void **state)
{
	static const struct {
		enum dp_map_id id;
		const char *name;
	} maps[] = { { DP_MAP_SERVICES, "services" },
		     { DP_MAP_CONTROL, "control" },
		     { DP_MAP_LIVE_SOURCES, "live_sources" },
		     { DP_MAP_LIVE_SERVICES, "live_services" },
		     { DP_MAP_XDP_VERDICTS, "xdp_verdicts" } };
	int rc = edge_setup(state);

	for (unsigned i = 0; i < DP_MAP_COUNT; i++)
		dp.maps[i].fd = -1;
	for (unsigned i = 0; i < ARRAY_SIZE(maps); i++)
		dp.maps[maps[i].id].fd = bpf_object__find_map_fd_by_name(lb.skel->obj,
									 maps[i].name);
	lines = map_mmap(lb.skel->maps.live_sources, HG_LIVE_LINES * sizeof(*lines));
	dp.t.control = lb.control;
	dp.t.n_buckets = LB_BUCKETS;
	make_pins();
	return rc;
}

static int teardown(void **state)
{
	umount2(dp.dir, MNT_DETACH);
	rmdir(dp.dir);
	return edge_teardown(state);
}

static int clear(void **state)
{
	edge_five_backends();
	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 1, .slots = 13, .backends = one, .n = 1);
	LB_SERVICE(&lb, .addr = VIP6, .port = 80, .id = 2, .slots = 13, .backends = one, .n = 1);
	LB_SERVICE(&lb, .addr = LOCAL4, .port = 443, .id = 3, .mode = HG_MODE_LOCAL);
	LB_SERVICE(&lb, .addr = "127.0.0.1", .port = PORT, .id = SVC4, .mode = HG_MODE_LOCAL);
	LB_SERVICE(&lb, .addr = "::1", .port = PORT, .id = SVC6, .mode = HG_MODE_LOCAL);
	memset(lines, 0, HG_LIVE_LINES * sizeof(*lines));
	lb.control->source_seed = SEED;
	return 0;
}

/* --- the limit ------------------------------------------------------------------------------------------ */

static void put(uint64_t hash, unsigned neighbour, unsigned way, unsigned n)
{
	lines[hg_live_row(hash) ^ neighbour].word[way] = HG_LIVE_TAG(hash) | n;
}

static void test_limit(void **state)
{
	struct pktbuf syn, ack, other, syn6, syn6b;

	PKT(&syn, E, IP4(.src = CLIENT4, .dst = LOCAL4),
	    TCP(.sport = 9, .dport = 443, .flags = TCP_SYN));
	PKT(&ack, E, IP4(.src = CLIENT4, .dst = LOCAL4), TCP(.sport = 9, .dport = 443));
	PKT(&other, E, IP4(.src = "203.0.113.8", .dst = LOCAL4),
	    TCP(.sport = 9, .dport = 443, .flags = TCP_SYN));
	PKT(&syn6, E, IP6(.src = CLIENT6, .dst = VIP6),
	    TCP(.sport = 9, .dport = 80, .flags = TCP_SYN));
	PKT(&syn6b, E, IP6(.src = "2001:db8:c:1::7", .dst = VIP6),
	    TCP(.sport = 9, .dport = 80, .flags = TCP_SYN));
	put(hash4(CLIENT4), 0, 3, 5);
	put(hash4(CLIENT4), 1, 7, 2); /* in the neighbour, too: the sum counts */
	put(hash6(CLIENT6), 1, 0, 7);
	EXPECT(lb.prog, &syn, XDP_PASS, &syn); /* without a limit */
	lb.control->source_conns = 8;
	EXPECT(lb.prog, &syn, XDP_PASS, &syn);
	lb.control->source_conns = 7;
	EXPECT_DROP(&lb, &syn, HG_DROP_SOURCE_CONNS);
	assert_int_equal(lb_service_counters(&lb, 3).limited, 1);
	EXPECT(lb.prog, &ack, XDP_PASS, &ack); /* connections that are open go on */
	EXPECT(lb.prog, &other, XDP_PASS, &other);
	/* Services of both tiers; a network of 64 bits is one source. */
	EXPECT_DROP(&lb, &syn6, HG_DROP_SOURCE_CONNS);
	assert_int_equal(prog_run(lb.prog, &syn6b, &(struct pktbuf){ 0 }), XDP_TX);
	/* The other way through the program. */
	PKT(&syn, E, VLAN(.tci = 7), IP4(.src = CLIENT4, .dst = LOCAL4),
	    TCP(.sport = 9, .dport = 443, .flags = TCP_SYN));
	EXPECT_DROP(&lb, &syn, HG_DROP_SOURCE_CONNS);
	PKT(&syn, E, IP4(.src = CLIENT4, .dst = LOCAL4),
	    TCP(.sport = 9, .dport = 22, .flags = TCP_SYN));
	EXPECT(lb.prog, &syn, XDP_PASS, &syn); /* nobody's */
	/* Words of others in the same lines are not counted. */
	put(hash4(CLIENT4) ^ 1ull << 63, 0, 0, 100);
	lb.control->source_conns = 8;
	PKT(&syn, E, IP4(.src = CLIENT4, .dst = LOCAL4),
	    TCP(.sport = 9, .dport = 443, .flags = TCP_SYN));
	EXPECT(lb.prog, &syn, XDP_PASS, &syn);
}

/* --- what was seen ------------------------------------------------------------------------------------- */

static int64_t ask(const char *text, enum source_fact f, uint64_t later_ns)
{
	struct source_view v = { .control = lb.control,
				 .live = lines,
				 .seen = map_mmap(lb.skel->maps.source_seen,
						  HG_SEEN_LINES * sizeof(struct hg_seen_line)),
				 .tick_shift = LB_SHIFT };
	struct timespec res;
	int64_t n = -1;
	struct addr a;

	assert_int_equal(clock_getres(CLOCK_MONOTONIC_COARSE, &res), 0);
	v.hz = (uint32_t)(1000000000 / res.tv_nsec);
	assert_int_equal(addr_parse_ip(str_from_cstr(text), &a), 0);
	assert_int_equal(source_ask(&v, &a, dp_now_ns() + later_ns, f, &n), 0);
	munmap((void *)v.seen, HG_SEEN_LINES * sizeof(struct hg_seen_line));
	return n;
}

static void test_seen(void **state)
{
	struct pktbuf syn, syn6, ack, out;

	PKT(&syn, E, IP4(.src = CLIENT4, .dst = LOCAL4),
	    TCP(.sport = 9, .dport = 443, .flags = TCP_SYN));
	PKT(&ack, E, IP4(.src = CLIENT4, .dst = LOCAL4), TCP(.sport = 9, .dport = 443));
	PKT(&syn6, E, IP6(.src = CLIENT6, .dst = VIP6),
	    TCP(.sport = 9, .dport = 80, .flags = TCP_SYN));
	prog_run(lb.prog, &syn, &out);
	assert_int_equal(ask(CLIENT4, SOURCE_SYN_RATE, 0), 0); /* nobody has asked */
	lb.control->watch = 1;
	for (unsigned i = 0; i < 1000; i++)
		prog_run(lb.prog, &syn, &out);
	prog_run(lb.prog, &syn6, &out);
	/* Ticks are 256 jiffies; the 1,000 may lie in two of them. */
	assert_true(ask(CLIENT4, SOURCE_SYN_RATE, 0) > 100);
	assert_true(ask(CLIENT4, SOURCE_SYN_RATE, 0) <= 1000);
	assert_int_equal(ask("203.0.113.8", SOURCE_SYN_RATE, 0), 0);
	assert_int_equal(ask(CLIENT4, SOURCE_SYN_RATE, 10000000000ull), 0); /* ten seconds later */
	assert_int_equal(ask(CLIENT4, SOURCE_DROPPED, 0), 0);
	lb.control->source_conns = 7;
	put(hash4(CLIENT4), 0, 3, 7);
	prog_run(lb.prog, &syn, &out);
	prog_run(lb.prog, &syn, &out);
	prog_run(lb.prog, &ack, &out);
	assert_int_equal(ask(CLIENT4, SOURCE_DROPPED, 0), 2);
	assert_int_equal(ask(CLIENT4, SOURCE_CONNS, 0), 7);
	assert_int_equal(ask("::ffff:" CLIENT4, SOURCE_CONNS, 0), 7);
	assert_int_equal(ask(CLIENT6, SOURCE_DROPPED, 0), 0);
}

/* --- real connections -------------------------------------------------------------------------------------- */

static void start_counting(void)
{
	static uint64_t cookie;

	if (!dp_live_start(&dp))
		fail_msg("connections are not counted: %s", dp.live.why_not);
	if (lb.control->netns_cookie)
		cookie = lb.control->netns_cookie;
	lb.control->netns_cookie = cookie; /* which lb_clear() has cleared */
}

static int listen_on(int family, const char *addr)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int fd = socket(family, SOCK_STREAM, 0), yes = 1;

	assert_true(fd >= 0);
	inet_pton(family, addr, family == AF_INET ? (void *)&a4.sin_addr : &a6.sin6_addr);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	assert_int_equal(bind(fd, family == AF_INET ? (void *)&a4 : (void *)&a6,
			      family == AF_INET ? sizeof(a4) : sizeof(a6)),
			 0);
	assert_int_equal(listen(fd, 512), 0);
	return fd;
}

static int dial4(const char *from)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct sockaddr_in own = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
	inet_pton(AF_INET, from, &own.sin_addr);
	assert_int_equal(bind(fd, (void *)&own, sizeof(own)), 0);
	/* A server that is quick resets it before we are told that it was there. */
	if (connect(fd, (void *)&to, sizeof(to)) != 0 && errno != ECONNRESET)
		fail_msg("connect from %s: %s", from, strerror(errno));
	return fd;
}

static void reset(int fd)
{
	struct linger now = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

/* The kernel ends a connection when the last segment has gone by: soon, not at once. */
static void wait_count(unsigned (*get)(void), unsigned want)
{
	struct timespec ts = { .tv_nsec = 10000000 };

	for (unsigned i = 0; i < 3000 && get() != want; i++)
		nanosleep(&ts, NULL);
	assert_int_equal(get(), want);
}

static void test_counts_real_connections(void **state)
{
	int listener = listen_on(AF_INET, "0.0.0.0"), c[4], s;

	start_counting();
	c[0] = dial4("127.0.0.5");
	wait_count(count_all, 1);
	c[1] = dial4("127.0.0.5");
	c[2] = dial4("127.0.0.6");
	wait_count(count_all, 3); /* nobody has accepted them yet */
	assert_int_equal(count(hash4("127.0.0.5")), 2);
	assert_int_equal(count(hash4("127.0.0.6")), 1);
	assert_int_equal(lb.live_services[SVC4].conns, 3);
	s = accept(listener, NULL, NULL);
	reset(s);
	wait_count(count_all, 2);
	close(c[0]);
	assert_int_equal(count(hash4("127.0.0.5")), 1);
	/* Half closed is open; then the other side closes too. */
	s = accept(listener, NULL, NULL);
	shutdown(c[1], SHUT_WR);
	assert_int_equal(count(hash4("127.0.0.5")), 1);
	close(s);
	close(c[1]);
	wait_count(count_all, 1);
	/* The listener goes with what it has not accepted. */
	c[3] = dial4("127.0.0.7");
	wait_count(count_all, 2);
	close(listener);
	wait_count(count_all, 0);
	assert_int_equal(lb.live_services[SVC4].conns, 0);
	close(c[2]);
	close(c[3]);
}

/* IPv4 clients of a socket for both families are the same sources as others; IPv6 by the network. */
static void test_both_families(void **state)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };
	int listener = listen_on(AF_INET6, "::"), a, b;

	start_counting();
	a = dial4("127.0.0.9");
	inet_pton(AF_INET6, "::1", &to.sin6_addr);
	b = socket(AF_INET6, SOCK_STREAM, 0);
	assert_int_equal(connect(b, (void *)&to, sizeof(to)), 0);
	wait_count(count_all, 2);
	assert_int_equal(count(hash4("127.0.0.9")), 1);
	assert_int_equal(count(hash6("::")), 1);
	assert_int_equal(lb.live_services[SVC4].conns, 1);
	assert_int_equal(lb.live_services[SVC6].conns, 1);
	close(a);
	close(b);
	close(listener);
	wait_count(count_all, 0);
}

/* Other sockets of this host are nobody's business. */
static void test_others_are_not_counted(void **state)
{
	int listener;

	start_counting();
	listener = listen_on(AF_INET, "127.0.0.1");
	lb.control->netns_cookie++;
	close(dial4("127.0.0.5"));
	lb.control->netns_cookie--;
	assert_int_equal(count_all(), 0);
	memset(lb.services, 0, sizeof(*lb.services) * 2 * LB_BUCKETS);
	close(dial4("127.0.0.5"));
	assert_int_equal(count_all(), 0);
	close(listener);
}

/* All words of a source's lines have others: it is served, told, and nobody's count is wrong. */
static void test_full_lines(void **state)
{
	int listener = listen_on(AF_INET, "127.0.0.1"), fd;
	uint64_t h = hash4("127.0.0.5");

	start_counting();
	for (unsigned i = 0; i < HG_LIVE_WAYS; i++)
		for (unsigned n = 0; n < 2; n++)
			put(h ^ (uint64_t)(i * 2 + n + 1) << 40, n, i, 1);
	fd = dial4("127.0.0.5");
	assert_int_equal(lb_events(&lb, HG_EVENT_LIVE_FULL), 1);
	assert_int_equal(lb.live_services[SVC4].conns, 1);
	close(fd);
	close(accept(listener, NULL, NULL));
	for (unsigned i = 0; i < 3000 && lb.live_services[SVC4].conns; i++)
		usleep(10000);
	assert_int_equal(lb.live_services[SVC4].conns, 0);
	assert_int_equal(count_all(), 2 * HG_LIVE_WAYS);
	/* One comes free: the next connection is counted. */
	lines[hg_live_row(h)].word[4] &= ~HG_LIVE_COUNT;
	fd = dial4("127.0.0.5");
	assert_int_equal(count(h), 1);
	close(fd);
	close(listener);
	memset(lines, 0, HG_LIVE_LINES * sizeof(*lines));
}

/* Serves until it is killed: every way for a server to end a connection, or not to. */
static void serve(int listener, uint64_t seed)
{
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		char byte;

		switch (rnd(&seed) % 5) {
		case 0:
			close(fd);
			break;
		case 1:
			reset(fd);
			break;
		case 2:
			shutdown(fd, SHUT_WR);
			break; /* and keeps it */
		case 3:
			(void)!recv(fd, &byte, 1, MSG_DONTWAIT);
			(void)!send(fd, "x", 1, MSG_NOSIGNAL);
			break;
		}
	}
}

static unsigned service_conns(void)
{
	return lb.live_services[SVC4].conns;
}

/*
 * Random clients and servers, some of them killed with what they hold. At the end nothing is open, and every
 * word is 0. HG_LIVE_CONNS: how many.
 */
static void test_random_ends(void **state)
{
	const char *env = getenv("HG_LIVE_CONNS");
	unsigned total = env ? (unsigned)strtoul(env, NULL, 10) : 4000, n_open = 0, killed = 0;
	uint64_t seed = 4711;
	int fds[200], listener;
	pid_t server = 0;

	start_counting();
	listener = listen_on(AF_INET, "127.0.0.1");
	for (unsigned i = 0; i < total; i++) {
		char from[32];

		if (i % 500 == 0) {
			if (server) {
				kill(server, SIGKILL);
				waitpid(server, NULL, 0);
				killed++;
			}
			server = fork();
			if (!server)
				serve(listener, seed + i);
		}
		snprintf(from, sizeof(from), "127.0.%u.%u", (unsigned)(rnd(&seed) % 40),
			 (unsigned)(2 + rnd(&seed) % 20));
		if (n_open == ARRAY_SIZE(fds)) {
			unsigned k = (unsigned)(rnd(&seed) % n_open);

			if (rnd(&seed) % 2)
				reset(fds[k]);
			else
				close(fds[k]);
			fds[k] = fds[--n_open];
		}
		fds[n_open++] = dial4(from);
		if (rnd(&seed) % 3 == 0)
			(void)!send(fds[n_open - 1], "hello", 5, MSG_NOSIGNAL);
	}
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	while (n_open)
		close(fds[--n_open]);
	close(listener);
	wait_count(count_all, 0);
	wait_count(service_conns, 0);
	assert_int_equal(lb_events(&lb, HG_EVENT_LIVE_FULL), 0);
	print_message("%u connections, %u servers killed, difference 0\n", total, killed + 1);
}

/* The next process finds program and link, and goes on counting with what the first had counted. */
static void test_adoption(void **state)
{
	int listener = listen_on(AF_INET, "127.0.0.1"), a, b;

	start_counting();
	a = dial4("127.0.0.5");
	dp.live.is_on = false;
	dp.is_adopted = true;
	start_counting();
	b = dial4("127.0.0.5");
	assert_int_equal(count(hash4("127.0.0.5")), 2); /* not three: one program, one link */
	close(a);
	close(b);
	close(listener);
	wait_count(count_all, 0);
	dp.is_adopted = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_limit, clear),
		cmocka_unit_test_setup(test_seen, clear),
		cmocka_unit_test_setup(test_counts_real_connections, clear),
		cmocka_unit_test_setup(test_both_families, clear),
		cmocka_unit_test_setup(test_others_are_not_counted, clear),
		cmocka_unit_test_setup(test_full_lines, clear),
		cmocka_unit_test_setup(test_adoption, clear),
		cmocka_unit_test_setup(test_random_ends, clear),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
