/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What services do not get: denied prefixes, with the datapath's own writer in front of the tries, and
 * limits per source. Packets for nobody are never touched.
 * links: dp lb net conf expr http ev base
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "dp/dp_priv.h"
#include "packet/edge.h"
#include "xdp_lb.skel.h"

#define FOR_LONG 600000000000ull

static struct dp dp;
static struct hg_deny_cells *cells;
static struct hg_deny_line *index_lines;
static struct hg_source_line *sources;
static struct hg_source_group *groups;
static const uint16_t one[] = { 1 };

static int setup(void **state)
{
	int rc = edge_setup(state);

	for (unsigned i = 0; i < DP_MAP_COUNT; i++)
		dp.maps[i].fd = -1;
	cells = map_mmap(lb.skel->maps.deny_cells, HG_DENY_LINES * sizeof(*cells));
	sources = map_mmap(lb.skel->maps.sources,
			   HG_LIMIT_COUNT * HG_SOURCE_LINES * sizeof(*sources));
	groups = map_mmap(lb.skel->maps.source_groups,
			  HG_LIMIT_COUNT * HG_GROUPS * sizeof(*groups));
	dp.maps[DP_MAP_DENY4].fd = bpf_map__fd(lb.skel->maps.deny4);
	dp.maps[DP_MAP_DENY6].fd = bpf_map__fd(lb.skel->maps.deny6);
	dp.maps[DP_MAP_DENY_CELLS].mem = cells;
	dp.t.deny = index_lines = map_mmap(lb.skel->maps.deny_index,
					   HG_DENY_INDEX_MIN * sizeof(*index_lines));
	dp.t.deny_mask = lb.skel->rodata->ro.deny_mask;
	dp.t.control = lb.control;
	dp.t.hz = 1000000000u /
		  4000000u; /* the kernel's own does not matter: tests let no time pass by it */
	return rc;
}

static struct conf_prefix prefix(const char *text)
{
	struct addr_prefix p;

	assert_int_equal(addr_prefix_parse(str_from_cstr(text), &p), 0);
	return conf_prefix_of(&p);
}

static int add(const char *text, uint64_t ttl_ns, enum hg_deny_origin origin)
{
	struct conf_prefix p = prefix(text);

	return dp_deny_add(&dp, &p, ttl_ns ? dp_now_ns() + ttl_ns : 0, origin, false);
}

static int del(const char *text)
{
	struct conf_prefix p = prefix(text);

	return dp_deny_del(&dp, &p);
}

static void assert_counts_zero(void)
{
	for (unsigned i = 0; i < HG_DENY_LINES; i++)
		for (unsigned j = 0; j < HG_DENY_LINE; j++)
			assert_int_equal(cells[i].n[j], 0);
	for (unsigned i = 0; i < HG_DENY_INDEX_MIN; i++) {
		for (unsigned way = 0; way < HG_DENY_WAYS; way++)
			assert_int_equal(index_lines[i].word[way], 0);
		assert_int_equal(index_lines[i].next_door, 0);
	}
	for (unsigned i = 0; i < 2 * HG_DENY_LENGTHS; i++)
		assert_int_equal(lb.control->deny_lengths[i % 2][i / 2] & HG_DENY_PREFIXES, 0);
	assert_int_equal(lb.control->deny_entries[0], 0);
	assert_int_equal(lb.control->deny_entries[1], 0);
}

/* Services: IPv4 and IPv6 forwarded, LOCAL4 of the L7 tier. */
static int clear(void **state)
{
	edge_five_backends();
	LB_SERVICE(&lb, .addr = VIP4, .port = 80, .id = 1, .slots = 13, .backends = one, .n = 1);
	LB_SERVICE(&lb, .addr = VIP6, .port = 80, .id = 2, .slots = 13, .backends = one, .n = 1);
	LB_SERVICE(&lb, .addr = LOCAL4, .port = 443, .id = 3, .mode = HG_MODE_LOCAL);
	memset(sources, 0, HG_LIMIT_COUNT * HG_SOURCE_LINES * sizeof(*sources));
	memset(groups, 0, HG_LIMIT_COUNT * HG_GROUPS * sizeof(*groups));
	lb.control->source_seed = 0x1234567890abcdefull;
	return 0;
}

/* Whatever a test has left: out, by the same function as operators use. */
static int empty(void **state)
{
	struct dp_deny_info *list;
	size_t n;

	assert_int_equal(dp_deny_list(&dp, &list, &n), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(dp_deny_del(&dp, &list[i].prefix), 0);
	mem_free(list);
	assert_counts_zero();
	return 0;
}

static int from4(const char *src)
{
	struct pktbuf in, out;

	PKT(&in, E, IP4(.src = src, .dst = VIP4), TCP(.sport = 9, .dport = 80));
	return prog_run(lb.prog, &in, &out);
}

static int from6(const char *src)
{
	struct pktbuf in, out;

	PKT(&in, E, IP6(.src = src, .dst = VIP6), TCP(.sport = 9, .dport = 80));
	return prog_run(lb.prog, &in, &out);
}

/* --- denied prefixes ---------------------------------------------------------------------------------- */

static void test_denied(void **state)
{
	struct pktbuf in;

	assert_int_equal(from4(CLIENT4), XDP_TX);
	assert_int_equal(add("203.0.113.0/24", 0, HG_DENY_TOOL), 1);
	assert_int_equal(add("2001:db8:c::/48", 0, HG_DENY_TOOL), 1);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 9, .dport = 80));
	EXPECT_DROP(&lb, &in, HG_DROP_DENIED);
	PKT(&in, E, IP6(.src = CLIENT6, .dst = VIP6), TCP(.sport = 9, .dport = 80));
	EXPECT_DROP(&lb, &in, HG_DROP_DENIED);
	assert_int_equal(lb_service_counters(&lb, 1).denied, 1);
	assert_int_equal(lb_service_counters(&lb, 1).dropped, 1);
	assert_int_equal(lb_service_counters(&lb, 2).denied, 1);
	assert_int_equal(lb_service_counters(&lb, 1).limited, 0);
	/* A service of the L7 tier too; not what is nobody's, nor the neighbours. */
	PKT(&in, E, IP4(.src = CLIENT4, .dst = LOCAL4), TCP(.sport = 9, .dport = 443));
	EXPECT_DROP(&lb, &in, HG_DROP_DENIED);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = LOCAL4), TCP(.sport = 9, .dport = 22));
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	PKT(&in, E, IP4(.src = "203.0.114.7", .dst = LOCAL4), TCP(.sport = 9, .dport = 443));
	EXPECT(lb.prog, &in, XDP_PASS, &in);
	assert_int_equal(from4("203.0.112.255"), XDP_TX);
	assert_int_equal(from6("2001:db8:d::7"), XDP_TX);
	assert_int_equal(del("203.0.113.0/24"), 0);
	assert_int_equal(del("203.0.113.0/24"), -ENOENT);
	assert_int_equal(from4(CLIENT4), XDP_TX);
	assert_int_equal(from6(CLIENT6), XDP_DROP);
}

/* Tags, options, fragments, ICMP: the other ways through the program. */
static void test_denied_odd_packets(void **state)
{
	struct pktbuf in;

	LB_SERVICE(&lb, .addr = VIP4, .port = 0, .proto = 1, .id = 4, .mode = HG_MODE_ADDR);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), ICMP(.icmp_type = 8), DATA(20));
	assert_int_equal(prog_run(lb.prog, &in, &(struct pktbuf){ 0 }), XDP_TX);
	assert_int_equal(add(CLIENT4, 0, HG_DENY_TOOL), 1);
	EXPECT_DROP(&lb, &in, HG_DROP_DENIED);
	PKT(&in, E, VLAN(.tci = 7), IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 9, .dport = 80));
	EXPECT_DROP(&lb, &in, HG_DROP_DENIED);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .opt_words = 2), TCP(.sport = 9, .dport = 80));
	EXPECT_DROP(&lb, &in, HG_DROP_DENIED);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4, .frag = 0x2000), TCP(.sport = 9, .dport = 80));
	EXPECT_DROP(&lb, &in, HG_DROP_DENIED);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), ICMP(.icmp_type = 3, .icmp_code = 1),
	    IP4(.src = VIP4, .dst = "198.51.100.9"), TCP(.sport = 80, .dport = 9));
	EXPECT_DROP(&lb, &in, HG_DROP_DENIED);
}

/* Every length: the counts in front of the trie know where each prefix reaches. */
static void test_all_lengths(void **state)
{
	for (unsigned bits = 0; bits <= 32; bits++) {
		char text[32];

		snprintf(text, sizeof(text), "203.0.113.7/%u", bits);
		assert_int_equal(add(text, 0, HG_DENY_FILE), 1);
		assert_int_equal(from4(CLIENT4), XDP_DROP);
		/* The address whose last known bit differs is outside, the one behind it inside. */
		if (bits == 0)
			assert_int_equal(from4("1.2.3.4"), XDP_DROP);
		if (bits == 8)
			assert_int_equal(from4("203.255.255.255"), XDP_DROP);
		if (bits == 8)
			assert_int_equal(from4("202.255.255.255"), XDP_TX);
		if (bits == 32)
			assert_int_equal(from4("203.0.113.6"), XDP_TX);
		assert_int_equal(from6(CLIENT6), XDP_TX);
		assert_int_equal(del(text), 0);
		assert_int_equal(from4(CLIENT4), XDP_TX);
	}
	for (unsigned bits = 0; bits <= 128; bits += bits < 40 ? 1 : 11) {
		char text[64];

		snprintf(text, sizeof(text), CLIENT6 "/%u", bits);
		assert_int_equal(add(text, 0, HG_DENY_FILE), 1);
		assert_int_equal(from6(CLIENT6), XDP_DROP);
		if (bits == 16)
			assert_int_equal(from6("2001:ffff:ffff::"), XDP_DROP);
		if (bits == 16)
			assert_int_equal(from6("2002::1"), XDP_TX);
		if (bits == 128)
			assert_int_equal(from6("2001:db8:c::8"), XDP_TX);
		assert_int_equal(del(text), 0);
	}
	assert_counts_zero();
}

static void test_time_is_over(void **state)
{
	assert_int_equal(add(CLIENT4, FOR_LONG, HG_DENY_RULE), 1);
	assert_int_equal(from4(CLIENT4), XDP_DROP);
	assert_int_equal(del(CLIENT4), 0);
	assert_int_equal(add(CLIENT4, 30000000, HG_DENY_RULE), 1);
	assert_int_equal(from4(CLIENT4), XDP_DROP);
	usleep(60000);
	assert_int_equal(from4(CLIENT4), XDP_TX); /* nobody has swept yet */
	assert_int_equal(lb.control->deny_entries[0], 1);
	/* Over inside one that goes on: the one around it decides. */
	assert_int_equal(add("203.0.113.0/24", FOR_LONG, HG_DENY_TOOL), 1);
	assert_int_equal(from4(CLIENT4), XDP_DROP);
	dp.deny_walk.ended_ns = 0;
	while (dp_deny_sweep(&dp))
		;
	assert_int_equal(lb.control->deny_entries[0], 1);
	assert_int_equal(from4(CLIENT4), XDP_DROP);
	assert_int_equal(del(CLIENT4), -ENOENT);
	assert_int_equal(del("203.0.113.0/24"), 0);
}

/* Who lasts longer stays, whoever comes last. */
static void test_idempotent(void **state)
{
	struct dp_deny_info *list;
	size_t n;

	assert_int_equal(add(CLIENT4, FOR_LONG, HG_DENY_RULE), 1);
	assert_int_equal(add(CLIENT4, FOR_LONG / 2, HG_DENY_TOOL), 0);
	assert_int_equal(add(CLIENT4, FOR_LONG * 2, HG_DENY_RULE), 0);
	assert_int_equal(dp_deny_list(&dp, &list, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(list[0].origin, HG_DENY_RULE);
	assert_true(list[0].expires_ns > dp_now_ns() + FOR_LONG);
	mem_free(list);
	assert_int_equal(add(CLIENT4, 0, HG_DENY_FILE), 0);
	assert_int_equal(add(CLIENT4, FOR_LONG, HG_DENY_RULE), 0);
	assert_int_equal(add(CLIENT4, 0, HG_DENY_TOOL), 0);
	assert_int_equal(dp_deny_list(&dp, &list, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(list[0].origin, HG_DENY_TOOL);
	assert_int_equal(list[0].expires_ns, 0);
	mem_free(list);
	assert_int_equal(lb.control->deny_entries[0], 1);
}

/* A reload's files: what they no longer have goes, what others want stays. */
static void test_files(void **state)
{
	struct conf_prefix first[] = { prefix("192.0.2.0/24"), prefix("203.0.113.0/24"),
				       prefix("2001:db8:c::/48") };
	struct conf_prefix second[] = { prefix("198.51.100.0/24"), prefix("2001:db8:c::/48") };
	struct conf c = { .global = { .xdp_deny = first, .n_xdp_deny = 3 } };
	struct dp_deny_info *list;
	struct err err;
	size_t n;

	list_init(&c.proxies);
	dp.is_adopted = true;
	assert_int_equal(add("100.64.0.0/10", 0, HG_DENY_FILE), 1); /* of an earlier process */
	assert_int_equal(dp_guard_configure(&dp, &c, &err), 0);
	assert_int_equal(from4("100.64.0.1"), XDP_TX);
	assert_int_equal(from4(CLIENT4), XDP_DROP);
	assert_int_equal(from6(CLIENT6), XDP_DROP);
	assert_int_equal(add("192.0.2.0/24", 0, HG_DENY_TOOL), 0);
	c.global.xdp_deny = second;
	c.global.n_xdp_deny = 2;
	assert_int_equal(dp_guard_configure(&dp, &c, &err), 0);
	assert_int_equal(from4(CLIENT4), XDP_TX);
	assert_int_equal(from4("198.51.100.1"), XDP_DROP);
	assert_int_equal(from4("192.0.2.1"), XDP_DROP); /* the tool wants it */
	assert_int_equal(from6(CLIENT6), XDP_DROP);
	c.global.n_xdp_deny = 0;
	assert_int_equal(dp_guard_configure(&dp, &c, &err), 0);
	assert_int_equal(dp_deny_list(&dp, &list, &n), 0);
	assert_int_equal(n, 1);
	mem_free(list);
	mem_free(dp.deny_files);
	dp.deny_files = NULL;
	dp.n_deny_files = 0;
	dp.is_adopted = false;
}

/* Against a list that is searched one by one. */
static void test_against_a_list(void **state)
{
	struct conf_prefix list[300];
	uint64_t seed = 42;

	for (unsigned i = 0; i < 300; i++) {
		struct conf_prefix p = { .bits = (uint8_t)(9 + rnd(&seed) % 24) };
		uint32_t a = (uint32_t)rnd(&seed) & 0x3fffffff &
			     ~(uint32_t)(0xffffffffull >> p.bits);

		a = htobe32(a);
		memcpy(p.addr, &a, 4);
		list[i] = p;
		assert_in_range(dp_deny_add(&dp, &p, 0, HG_DENY_FILE, false), 0, 1);
	}
	for (unsigned i = 0; i < 4000; i++) {
		uint32_t a = (uint32_t)rnd(&seed) & 0x3fffffff;
		bool is_denied = false;
		char text[16];

		if (i % 2) { /* near one of them */
			memcpy(&a, list[i % 300].addr, 4);
			a = be32toh(a) ^ 1u << rnd(&seed) % 32;
		}
		snprintf(text, sizeof(text), "%u.%u.%u.%u", a >> 24, a >> 16 & 255, a >> 8 & 255,
			 a & 255);
		for (unsigned k = 0; k < 300 && !is_denied; k++) {
			uint32_t b;

			memcpy(&b, list[k].addr, 4);
			is_denied = (a ^ be32toh(b)) >> (32 - list[k].bits) == 0;
		}
		assert_int_equal(from4(text), is_denied ? XDP_DROP : XDP_TX);
	}
}

/* --- the index ------------------------------------------------------------------------------------------ */

static unsigned lengths_in_use(bool is_v6, unsigned *ret_prefixes)
{
	unsigned n = 0;

	*ret_prefixes = 0;
	for (unsigned i = 0; i < HG_DENY_LENGTHS; i++) {
		unsigned prefixes = lb.control->deny_lengths[is_v6][i] & HG_DENY_PREFIXES;

		n += prefixes != 0;
		*ret_prefixes += prefixes;
	}
	return n;
}

/* More lengths than packets look for, and the time and answer of the longest prefix. */
static void test_lengths(void **state)
{
	struct conf_prefix p = prefix("203.0.113.7/29");
	unsigned prefixes;
	uint64_t silent;

	for (unsigned bits = 17; bits <= 26; bits++) {
		char text[32];

		snprintf(text, sizeof(text), "198.18.%u.0/%u", 128 + bits, bits);
		assert_int_equal(add(text, 0, HG_DENY_TOOL), 1);
		assert_int_equal(lengths_in_use(false, &prefixes), bits - 16 < 4 ? bits - 16 : 4);
		assert_int_equal(prefixes, bits - 16 < 4 ? bits - 16 : 4);
		snprintf(text, sizeof(text), "198.18.%u.9", 128 + bits);
		assert_int_equal(from4(text), XDP_DROP);
		assert_int_equal(from4(CLIENT4), XDP_TX);
	}
	for (unsigned bits = 17; bits <= 26; bits++) {
		char text[32];

		snprintf(text, sizeof(text), "198.18.%u.0/%u", 128 + bits, bits);
		assert_int_equal(del(text), 0);
	}
	assert_counts_zero();
	/* All three are in the index now; the one in the middle answers by RST. */
	assert_int_equal(add("203.0.113.0/24", 0, HG_DENY_TOOL), 1);
	assert_int_equal(add("203.0.113.7/30", 0, HG_DENY_TOOL), 1);
	assert_int_equal(dp_deny_add(&dp, &p, 0, HG_DENY_RULE, true), 1);
	silent = lb_drops(&lb, HG_DROP_DENIED);
	assert_int_equal(from4("203.0.113.7"), XDP_DROP);
	assert_int_equal(lb_drops(&lb, HG_DROP_DENIED), silent + 1);
	assert_int_equal(from4("203.0.113.1"), XDP_TX);
	assert_int_equal(lb_drops(&lb, HG_DROP_DENIED_RESET), 1);
	assert_int_equal(from4("203.0.113.9"), XDP_DROP);
	assert_int_equal(lb_drops(&lb, HG_DROP_DENIED), silent + 2);
}

/* More prefixes of one neighbourhood than it has room for: each is denied, nobody else is. */
static void test_crowded(void **state)
{
	const uint32_t mask = dp.t.deny_mask & ~(HG_DENY_DOORS - 1u);
	unsigned n = 0, n_others = 0, prefixes;
	uint32_t a;

	for (a = 0x0a000000; n < HG_DENY_DOORS * HG_DENY_WAYS + 9; a++) {
		struct hg_deny_place at = hg_deny_place(0, a, 0, 32, dp.t.control->source_seed);
		struct conf_prefix p = { .bits = 32 };
		uint32_t be = htobe32(a);

		if (at.line & mask)
			continue;
		memcpy(p.addr, &be, 4);
		assert_int_equal(dp_deny_add(&dp, &p, 0, HG_DENY_FILE, false), 1);
		n++;
	}
	assert_int_equal(lengths_in_use(false, &prefixes), 1);
	assert_int_equal(prefixes, HG_DENY_DOORS * HG_DENY_WAYS);
	for (uint32_t b = 0x0a000000; b < a + 20000; b++) {
		struct hg_deny_place at = hg_deny_place(0, b, 0, 32, dp.t.control->source_seed);
		char text[16];

		if (at.line & mask)
			continue;
		snprintf(text, sizeof(text), "%u.%u.%u.%u", b >> 24, b >> 16 & 255, b >> 8 & 255,
			 b & 255);
		assert_int_equal(from4(text), b < a ? XDP_DROP : XDP_TX);
		n_others += b >= a;
	}
	assert_true(n_others > 0);
}

/* What hg_mix64() makes of its first word before the second comes in. */
static uint64_t half_mixed(uint64_t a)
{
	uint64_t h = (a ^ 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;

	return h ^ h >> 32;
}

/* Who knows the hash but not the seed cannot be denied for somebody else, from an address of his own /64. */
static void test_chosen_address(void **state)
{
	const uint64_t hi = 0x20010db800010002ull, other = 0x20010db800030004ull;
	const uint64_t lo = 1 ^ half_mixed(hi) ^ half_mixed(other);
	uint64_t bytes[2] = { htobe64(other), htobe64(lo) };
	char text[INET6_ADDRSTRLEN];

	assert_true(hg_mix64(hi, 1) == hg_mix64(other, lo));
	assert_non_null(inet_ntop(AF_INET6, bytes, text, sizeof(text)));
	assert_int_equal(add(text, 0, HG_DENY_RULE), 1);
	assert_int_equal(from6(text), XDP_DROP);
	assert_int_equal(from6("2001:db8:1:2::1"), XDP_TX);
}

/* The daemon and the tool at once: afterwards the counts and the index are those of the tries. */
struct writer {
	struct dp dp;
	uint64_t seed;
	pthread_t thread;
};

static void *writer(void *arg)
{
	struct writer *w = arg;

	for (unsigned i = 0; i < 10000; i++) {
		uint64_t r = rnd(&w->seed), end = r >> 41 & 1 ? dp_now_ns() + (r >> 44) * 1000 : 0;
		struct conf_prefix p = { .addr = { 203, 0, 113, (uint8_t)(r % 4 << 4) },
					 .bits = (uint8_t)(28 + r / 4 % 5) };
		int rc = r >> 40 & 1 ? dp_deny_del(&w->dp, &p)
				     : dp_deny_add(&w->dp, &p, end, HG_DENY_TOOL, r >> 42 & 1);

		if (rc < 0 && rc != -ENOENT)
			return "an unexpected error";
	}
	return NULL;
}

static void test_two_writers(void **state)
{
	static struct writer writers[2];
	struct dp_deny_info *list;
	size_t n;

	for (unsigned i = 0; i < 2; i++) {
		writers[i].dp = dp;
		writers[i].seed = 3 + i;
		writers[i].dp.deny_lock_fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(writers[i].dp.deny_lock_fd > 0);
		assert_int_equal(pthread_create(&writers[i].thread, NULL, writer, &writers[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		void *error;

		assert_int_equal(pthread_join(writers[i].thread, &error), 0);
		assert_null(error);
		close(writers[i].dp.deny_lock_fd);
	}
	for (unsigned i = 0; i < 4 * 5; i++) { /* out with those whose time is over */
		struct conf_prefix p = { .addr = { 203, 0, 113, (uint8_t)(i % 4 << 4) },
					 .bits = (uint8_t)(28 + i / 4) };

		(void)dp_deny_del(&dp, &p);
	}
	assert_int_equal(dp_deny_list(&dp, &list, &n), 0);
	mem_free(list);
	assert_int_equal(n, 0);
	assert_counts_zero();
}

/* --- limits -------------------------------------------------------------------------------------------- */

/* What the first of a group may send before anybody counts for it alone. */
#define GROUP_BURST(burst) (((burst) - 1) / (1 << HG_GROUP_PART) + 1)

/* A rate so low that no time counts. */
static void set_limit(enum hg_limit_kind kind, uint64_t burst)
{
	uint32_t step = 1u << 31;

	lb.control->limits[kind] = (struct hg_limit){ .window = (burst - 1) * step, .step = step };
}

/* All groups are out of tokens and stay so: every source is counted alone. */
static void crowd(void)
{
	for (unsigned i = 0; i < HG_LIMIT_COUNT * HG_GROUPS; i++)
		groups[i].time = 1ull << 62;
}

static void test_packet_rate(void **state)
{
	struct pktbuf in;

	crowd();
	set_limit(HG_LIMIT_PACKETS, 5);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(from4(CLIENT4), XDP_TX);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), UDP(.sport = 9, .dport = 80), DATA(30));
	EXPECT(lb.prog, &in, XDP_PASS, &in); /* nobody's packet costs nothing */
	PKT(&in, E, IP4(.src = CLIENT4, .dst = VIP4), TCP(.sport = 10, .dport = 80));
	EXPECT_DROP(&lb, &in, HG_DROP_SOURCE_PACKETS);
	PKT(&in, E, IP4(.src = CLIENT4, .dst = LOCAL4), TCP(.sport = 9, .dport = 443));
	EXPECT_DROP(&lb, &in, HG_DROP_SOURCE_PACKETS);
	assert_int_equal(lb_service_counters(&lb, 1).limited, 1);
	assert_int_equal(lb_service_counters(&lb, 3).limited, 1);
	assert_int_equal(lb_service_counters(&lb, 1).denied, 0);
	assert_int_equal(from4("203.0.113.8"), XDP_TX); /* another source */
	/* IPv6: the /64 is one source. */
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(from6(i % 2 ? CLIENT6 : "2001:db8:c::1:2:3"), XDP_TX);
	assert_int_equal(from6("2001:db8:c::99"), XDP_DROP);
	assert_int_equal(from6("2001:db8:c:1::7"), XDP_TX);
	/* Without the limit, as a reload does it. */
	lb.control->limits[HG_LIMIT_PACKETS].step = 0;
	assert_int_equal(from4(CLIENT4), XDP_TX);
}

static void test_syn_rate(void **state)
{
	struct pktbuf syn, out;

	crowd();
	set_limit(HG_LIMIT_SYNS, 2);
	PKT(&syn, E, IP4(.src = CLIENT4, .dst = VIP4),
	    TCP(.sport = 9, .dport = 80, .flags = TCP_SYN));
	assert_int_equal(prog_run(lb.prog, &syn, &out), XDP_TX);
	assert_int_equal(prog_run(lb.prog, &syn, &out), XDP_TX);
	EXPECT_DROP(&lb, &syn, HG_DROP_SOURCE_SYNS);
	assert_int_equal(lb_service_counters(&lb, 1).limited, 1);
	/* Connections that are there go on. */
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(from4(CLIENT4), XDP_TX);
	/* Both limits: each has its own bucket. */
	set_limit(HG_LIMIT_PACKETS, 3);
	assert_int_equal(from4(CLIENT4), XDP_TX);
	EXPECT_DROP(&lb, &syn, HG_DROP_SOURCE_SYNS); /* took the second of three */
	assert_int_equal(from4(CLIENT4), XDP_TX);
	EXPECT_DROP(&lb, &syn, HG_DROP_SOURCE_PACKETS);
}

static uint32_t group_of(uint32_t addr)
{
	return hg_source_group_row(hg_mix64(addr ^ lb.control->source_seed, 4), HG_LIMIT_PACKETS);
}

/* Sources share what stands in front of them: one is held all the same, and takes nothing from the others. */
static void test_group(void **state)
{
	const unsigned burst = 100, most = burst + GROUP_BURST(burst);
	unsigned passed = 0, others = 0;
	uint32_t attacker, a;

	set_limit(HG_LIMIT_PACKETS, burst);
	inet_pton(AF_INET, CLIENT4, &attacker);
	for (unsigned i = 0; i < 2 * most; i++)
		passed += from4(CLIENT4) == XDP_TX;
	assert_int_equal(passed, most);
	assert_int_equal(lb_drops(&lb, HG_DROP_SOURCE_PACKETS), 2 * most - passed);
	for (unsigned i = 1; i < 1u << 20 && others < 5; i++) {
		char text[16];

		a = htobe32(0x0a000000 + i);
		if (group_of(a) != group_of(attacker))
			continue;
		others++;
		snprintf(text, sizeof(text), "10.%u.%u.%u", i >> 16, i >> 8 & 255, i & 255);
		for (unsigned k = 0; k < burst; k++)
			assert_int_equal(from4(text), XDP_TX);
		assert_int_equal(from4(text), XDP_DROP);
	}
	assert_int_equal(others, 5);
	assert_int_equal(from4(CLIENT4), XDP_DROP);
	/* What a limit of before has left ahead, beyond all bounds, comes back to them with the next packet. */
	groups[group_of(attacker)].time = 1ull << 62;
	sources[hg_source_row(hg_mix64(attacker ^ lb.control->source_seed, 4), 0)] =
		(struct hg_source_line){ 0 };
	assert_int_equal(from4(CLIENT4), XDP_TX);
	assert_true(groups[group_of(attacker)].time < 1ull << 61);
}

/* Packets of one source for `ms`, which is silent for `pause` after each `flood` of them; how many passed. */
static unsigned send_for(unsigned ms, unsigned flood, unsigned pause, uint64_t *ret_ns)
{
	uint64_t began = dp_now_ns(), now = began, turn = (uint64_t)(flood + pause) * 1000000;
	unsigned passed = 0;

	while ((now = dp_now_ns()) < began + ms * 1000000ull)
		if ((now - began) % turn < flood * 1000000ull)
			passed += from4(CLIENT4) == XDP_TX;
	*ret_ns = now - began;
	return passed;
}

/* The bucket fills again with time, at the rate that was asked for, also for those who know how it is counted. */
static void test_refill(void **state)
{
	static const struct {
		unsigned rate, burst, flood, pause;
	} rows[] = {
		{ 100, 10, 1, 0 }, { 1000, 40, 1, 0 }, { 1000, 40, 4, 12 }, { 1000, 40, 10, 30 }
	};
	struct timespec res;

	assert_int_equal(clock_getres(CLOCK_MONOTONIC_COARSE, &res), 0);
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct conf c = { .global.xdp_limits[HG_LIMIT_PACKETS] = {
					  .rate = rows[i].rate, .burst = rows[i].burst } };
		uint64_t drops = lb_drops(&lb, HG_DROP_SOURCE_PACKETS), ns;
		struct err err;
		unsigned passed;

		memset(sources, 0, HG_LIMIT_COUNT * HG_SOURCE_LINES * sizeof(*sources));
		memset(groups, 0, HG_LIMIT_COUNT * HG_GROUPS * sizeof(*groups));
		dp.t.hz = (uint32_t)(1000000000 / res.tv_nsec);
		list_init(&c.proxies);
		assert_int_equal(dp_guard_configure(&dp, &c, &err), 0);
		mem_free(dp.deny_files);
		dp.deny_files = NULL;
		passed = send_for(400, rows[i].flood, rows[i].pause, &ns);
		/* The machine may have been away for a while; a tick is up to 10 ms. */
		assert_in_range(passed, rows[i].burst + 1,
				rows[i].burst + GROUP_BURST(rows[i].burst) + 2 +
					(ns / 10000000 + 1) * rows[i].rate / 100);
		assert_true(lb_drops(&lb, HG_DROP_SOURCE_PACKETS) > drops);
	}
}

/* A table with far more sources than room: nobody is refused who is within the limit. */
static void test_full_table(void **state)
{
	uint64_t seed = 7;

	crowd();
	set_limit(HG_LIMIT_PACKETS, 2);
	for (unsigned i = 0; i < HG_SOURCE_LINES; i++)
		for (unsigned w = 0; w < HG_SOURCE_WAYS;
		     w++) /* other sources, all over their limit */
			sources[i].word[w] = (uint64_t)(0xfff0 + w) << HG_SOURCE_TAG;
	for (unsigned i = 0; i < 3000; i++) {
		char text[16];
		uint32_t a = (uint32_t)rnd(&seed);

		snprintf(text, sizeof(text), "%u.%u.%u.%u", 1 + a % 200, a >> 8 & 255,
			 a >> 16 & 255, a >> 24);
		assert_int_equal(from4(text), XDP_TX);
	}
	/* And one that sends too much is still held, when it is not alone in its line. */
	memset(sources, 0, HG_LIMIT_COUNT * HG_SOURCE_LINES * sizeof(*sources));
	assert_int_equal(from4(CLIENT4), XDP_TX);
	assert_int_equal(from4(CLIENT4), XDP_TX);
	for (unsigned i = 0; i < HG_SOURCE_LINES; i++)
		for (unsigned w = 0; w < HG_SOURCE_WAYS; w++)
			if (!sources[i].word[w])
				sources[i].word[w] = 0xfffeull << HG_SOURCE_TAG;
	assert_int_equal(from4(CLIENT4), XDP_DROP);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup_teardown(f, clear, empty)
	const struct CMUnitTest tests[] = {
		ROW(test_denied),	  ROW(test_denied_odd_packets),
		ROW(test_all_lengths),	  ROW(test_time_is_over),
		ROW(test_idempotent),	  ROW(test_files),
		ROW(test_against_a_list), ROW(test_packet_rate),
		ROW(test_syn_rate),	  ROW(test_lengths),
		ROW(test_crowded),	  ROW(test_two_writers),
		ROW(test_chosen_address), ROW(test_refill),
		ROW(test_full_table),	  ROW(test_group),
	};

	return cmocka_run_group_tests_name("guard", tests, setup, edge_teardown);
}
