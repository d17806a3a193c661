/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Picking, algorithm by algorithm. The tables `oracle_*` are what HAProxy 2.6 answered with the same
 * weights and keys, server numbers as digits.
 *
 * links: lb base ev
 */
#include "unit/lb_fixture.h"

static char pick_name(struct fx *f, struct lb_request *rq)
{
	struct server *s = NULL;
	enum lb_result rc = lb_pick(f->be, rq, &s);

	switch (rc) {
	case LB_PICKED:
		server_release(f->be, s, rq->worker);
		return s->name[1];
	case LB_QUEUE_SERVER:
		return (char)(s->name[1] - '0' + 'A' - 1); /* s1: A */
	case LB_QUEUE_BACKEND:
		assert_null(s);
		return 'q';
	case LB_NONE:
		assert_null(s);
		return '-';
	}
	return '?';
}

/* n picks in a row, each released at once. */
static const char *picks(struct fx *f, struct lb_request *rq, unsigned n)
{
	static char out[256];

	assert_in_range(n, 0, sizeof(out) - 1);
	for (unsigned i = 0; i < n; i++)
		out[i] = pick_name(f, rq);
	out[n] = '\0';
	return out;
}

/* n picks that all stay. */
static const char *holds(struct fx *f, struct lb_request *rq, unsigned n)
{
	static char out[256];

	for (unsigned i = 0; i < n; i++) {
		struct server *s = NULL;
		enum lb_result rc = lb_pick(f->be, rq, &s);

		out[i] = rc == LB_PICKED	  ? s->name[1]
			 : rc == LB_QUEUE_BACKEND ? 'q'
			 : rc == LB_NONE	  ? '-'
						  : 'Q';
	}
	out[n] = '\0';
	return out;
}

static void let_go(struct fx *f, unsigned i)
{
	server_release(f->be, fx_srv(f, i), 0);
}

static void let_all_go(struct fx *f)
{
	for (unsigned i = 0; i < f->be->n_servers; i++)
		while (atomic_load(&fx_srv(f, i)->cur))
			let_go(f, i);
}

/* --- against HAProxy ------------------------------------------------------------------------------ */

enum keys {
	KEYS_HDR,
	KEYS_URI,
	KEYS_DOMAIN,
	KEYS_SOURCE
};

static const char *const keys_hdr[] = {
	"a",
	"foo",
	"/index.html",
	"user-12345",
	"The quick brown fox jumps over the lazy dog",
	"0",
	"99999",
	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
};
static const char *const keys_uri[] = {
	"/", "/a", "/a/b/c", "/a/b/d?x=1", "/img/1.png?q", "/x/y/z", "/deep/er/and/deeper",
};
/* The second one reads what the first gives: HAProxy 2.6 itself looks one byte beyond the value there. */
static const char *const keys_domain[] = {
	"www.example.com", "example.com", "a.b.test.org:80", "localhost", "1.2.3.4",
};
static const char *const keys_source[] = {
	"127.0.0.1", "127.0.0.2", "127.1.2.3", "127.200.7.9", "127.33.44.55", "127.9.9.9",
};

static const struct {
	uint32_t weights[5];
	uint8_t algo, type, func;
	bool avalanche;
	uint8_t keys;
	const char *expected;
} oracle_hash[] = {
	{ { 1, 1, 1, 1, 1 },
	  BALANCE_HDR,
	  HASH_MAP_BASED,
	  HASH_SDBM,
	  false,
	  KEYS_HDR,
	  "31221422234512345151234512344512" },
	{ { 1, 1, 1, 1, 1 },
	  BALANCE_HDR,
	  HASH_MAP_BASED,
	  HASH_WT6,
	  false,
	  KEYS_HDR,
	  "35415543121345435122334253222233" },
	{ { 1, 1, 1, 1, 1 },
	  BALANCE_HDR,
	  HASH_MAP_BASED,
	  HASH_DJB2,
	  true,
	  KEYS_HDR,
	  "33212413352513452321121313415231" },
	{ { 1, 1, 1, 1, 1 },
	  BALANCE_HDR,
	  HASH_CONSISTENT,
	  HASH_SDBM,
	  true,
	  KEYS_HDR,
	  "35415314532312121431425515532443" },
	{ { 1, 1, 1, 1, 1 },
	  BALANCE_HDR,
	  HASH_CONSISTENT,
	  HASH_CRC32,
	  false,
	  KEYS_HDR,
	  "54532541124555452214131422331445" },
	{ { 1, 1, 1, 1, 1 }, BALANCE_URI, HASH_MAP_BASED, HASH_SDBM, false, KEYS_URI, "3122254" },
	{ { 1, 1, 1, 1, 1 }, BALANCE_HDR, HASH_MAP_BASED, HASH_SDBM, false, KEYS_DOMAIN, "11552" },
	{ { 1, 1, 1, 1, 1 },
	  BALANCE_SOURCE,
	  HASH_CONSISTENT,
	  HASH_SDBM,
	  true,
	  KEYS_SOURCE,
	  "443541" },
	{ { 1, 1, 1, 1, 1 },
	  BALANCE_SOURCE,
	  HASH_MAP_BASED,
	  HASH_SDBM,
	  false,
	  KEYS_SOURCE,
	  "454455" },
	{ { 10, 20, 30, 40, 5 },
	  BALANCE_HDR,
	  HASH_MAP_BASED,
	  HASH_SDBM,
	  false,
	  KEYS_HDR,
	  "44244222344512433443423445123412" },
	{ { 10, 20, 30, 40, 5 },
	  BALANCE_HDR,
	  HASH_MAP_BASED,
	  HASH_WT6,
	  false,
	  KEYS_HDR,
	  "34413334121243423335331443313144" },
	{ { 10, 20, 30, 40, 5 },
	  BALANCE_HDR,
	  HASH_MAP_BASED,
	  HASH_DJB2,
	  true,
	  KEYS_HDR,
	  "41323444444514444442342122324421" },
	{ { 10, 20, 30, 40, 5 },
	  BALANCE_HDR,
	  HASH_CONSISTENT,
	  HASH_SDBM,
	  true,
	  KEYS_HDR,
	  "13434353432212331334435452334423" },
	{ { 10, 20, 30, 40, 5 },
	  BALANCE_HDR,
	  HASH_CONSISTENT,
	  HASH_CRC32,
	  false,
	  KEYS_HDR,
	  "34431323441441314343143443544414" },
	{ { 10, 20, 30, 40, 5 },
	  BALANCE_URI,
	  HASH_MAP_BASED,
	  HASH_SDBM,
	  false,
	  KEYS_URI,
	  "4455424" },
	{ { 10, 20, 30, 40, 5 },
	  BALANCE_HDR,
	  HASH_MAP_BASED,
	  HASH_SDBM,
	  false,
	  KEYS_DOMAIN,
	  "44334" },
	{ { 10, 20, 30, 40, 5 },
	  BALANCE_SOURCE,
	  HASH_CONSISTENT,
	  HASH_SDBM,
	  true,
	  KEYS_SOURCE,
	  "434242" },
	{ { 10, 20, 30, 40, 5 },
	  BALANCE_SOURCE,
	  HASH_MAP_BASED,
	  HASH_SDBM,
	  false,
	  KEYS_SOURCE,
	  "434332" },
	{ { 2, 1, 1 },
	  BALANCE_HDR,
	  HASH_MAP_BASED,
	  HASH_SDBM,
	  false,
	  KEYS_HDR,
	  "12213111123112311223112311231231" },
	{ { 2, 1, 1 },
	  BALANCE_HDR,
	  HASH_MAP_BASED,
	  HASH_WT6,
	  false,
	  KEYS_HDR,
	  "12211111222222222222222222222222" },
	{ { 2, 1, 1 },
	  BALANCE_HDR,
	  HASH_MAP_BASED,
	  HASH_DJB2,
	  true,
	  KEYS_HDR,
	  "31133112223221113312232132211112" },
	{ { 2, 1, 1 },
	  BALANCE_HDR,
	  HASH_CONSISTENT,
	  HASH_SDBM,
	  true,
	  KEYS_HDR,
	  "31111111131312121131123312131311" },
	{ { 2, 1, 1 },
	  BALANCE_HDR,
	  HASH_CONSISTENT,
	  HASH_CRC32,
	  false,
	  KEYS_HDR,
	  "32331211121233112111131122111113" },
	{ { 2, 1, 1 }, BALANCE_URI, HASH_MAP_BASED, HASH_SDBM, false, KEYS_URI, "3211131" },
	{ { 2, 1, 1 }, BALANCE_HDR, HASH_MAP_BASED, HASH_SDBM, false, KEYS_DOMAIN, "22233" },
	{ { 2, 1, 1 }, BALANCE_SOURCE, HASH_CONSISTENT, HASH_SDBM, true, KEYS_SOURCE, "213311" },
	{ { 2, 1, 1 }, BALANCE_SOURCE, HASH_MAP_BASED, HASH_SDBM, false, KEYS_SOURCE, "123131" },
	{ { 100, 100, 50 },
	  BALANCE_HDR,
	  HASH_MAP_BASED,
	  HASH_SDBM,
	  false,
	  KEYS_HDR,
	  "11221222212312123131212312122312" },
	{ { 100, 100, 50 },
	  BALANCE_HDR,
	  HASH_MAP_BASED,
	  HASH_WT6,
	  false,
	  KEYS_HDR,
	  "13213321121123213122112231222211" },
	{ { 100, 100, 50 },
	  BALANCE_HDR,
	  HASH_MAP_BASED,
	  HASH_DJB2,
	  true,
	  KEYS_HDR,
	  "11212211132311232121121111213211" },
	{ { 100, 100, 50 },
	  BALANCE_HDR,
	  HASH_CONSISTENT,
	  HASH_SDBM,
	  true,
	  KEYS_HDR,
	  "12221332121112332131312332312123" },
	{ { 100, 100, 50 },
	  BALANCE_HDR,
	  HASH_CONSISTENT,
	  HASH_CRC32,
	  false,
	  KEYS_HDR,
	  "33331111121221322211111213312112" },
	{ { 100, 100, 50 }, BALANCE_URI, HASH_MAP_BASED, HASH_SDBM, false, KEYS_URI, "1122232" },
	{ { 100, 100, 50 }, BALANCE_HDR, HASH_MAP_BASED, HASH_SDBM, false, KEYS_DOMAIN, "11332" },
	{ { 100, 100, 50 },
	  BALANCE_SOURCE,
	  HASH_CONSISTENT,
	  HASH_SDBM,
	  true,
	  KEYS_SOURCE,
	  "312222" },
	{ { 100, 100, 50 },
	  BALANCE_SOURCE,
	  HASH_MAP_BASED,
	  HASH_SDBM,
	  false,
	  KEYS_SOURCE,
	  "232233" },
};

static unsigned set_weights(struct fx *f, const uint32_t *weights)
{
	unsigned n = 0;

	while (n < 5 && weights[n])
		n++;
	fx_init(f, 1, n);
	for (unsigned i = 0; i < n; i++)
		f->s.cs[i].weight = weights[i];
	return n;
}

static const char *oracle_key(enum keys kind, unsigned i)
{
	static char text[16];

	switch (kind) {
	case KEYS_URI:
		return keys_uri[i];
	case KEYS_DOMAIN:
		return keys_domain[i];
	case KEYS_SOURCE:
		return keys_source[i];
	case KEYS_HDR:
		break;
	}
	if (i < ARRAY_SIZE(keys_hdr))
		return keys_hdr[i];
	snprintf(text, sizeof(text), "k%u", i - (unsigned)ARRAY_SIZE(keys_hdr));
	return text;
}

static void test_hashes_as_haproxy(void **state)
{
	for (size_t v = 0; v < ARRAY_SIZE(oracle_hash); v++) {
		struct fx f;

		set_weights(&f, oracle_hash[v].weights);
		f.s.px.balance.algo = oracle_hash[v].algo;
		f.s.px.balance.hash_type = oracle_hash[v].type;
		f.s.px.balance.hash_func = oracle_hash[v].func;
		f.s.px.balance.has_avalanche = oracle_hash[v].avalanche;
		f.s.px.balance.hdr_use_domain_only = oracle_hash[v].keys == KEYS_DOMAIN;
		f.s.px.balance.uri_depth = oracle_hash[v].keys == KEYS_URI ? 2 : 0;
		fx_commit(&f);
		for (unsigned i = 0; oracle_hash[v].expected[i]; i++) {
			struct lb_request rq = fx_rq(&f);
			const char *key = oracle_key(oracle_hash[v].keys, i);
			struct addr src;
			char got;

			rq.hdr = rq.uri = str_from_cstr(key);
			if (oracle_hash[v].keys == KEYS_SOURCE) {
				assert_int_equal(addr_parse_ip(rq.hdr, &src), 0);
				rq.src = &src;
			}
			got = pick_name(&f, &rq);
			if (got != oracle_hash[v].expected[i])
				fail_msg("vector %zu, key %s: s%c, expected s%c", v, key, got,
					 oracle_hash[v].expected[i]);
		}
		fx_fini(&f);
	}
}

static const struct {
	uint32_t weights[5];
	uint8_t algo;
	const char *expected;
} oracle_turns[] = {
	{ { 1, 1, 1, 1, 1 }, BALANCE_ROUNDROBIN, "1234512345" },
	{ { 1, 1, 1, 1, 1 }, BALANCE_STATIC_RR, "1234512345" },
	{ { 10, 20, 30, 40, 5 },
	  BALANCE_ROUNDROBIN,
	  "434234143243542341432434234143243542341432434234143243542341" },
	{ { 10, 20, 30, 40, 5 },
	  BALANCE_STATIC_RR,
	  "124334243412343423445124334243412343423445124334243412343423" },
	{ { 2, 1, 1 }, BALANCE_ROUNDROBIN, "12131213" },
	{ { 2, 1, 1 }, BALANCE_STATIC_RR, "11231123" },
	{ { 100, 100, 50 },
	  BALANCE_ROUNDROBIN,
	  "121231212312123121231212312123121231212312123121231212312123" },
	{ { 100, 100, 50 },
	  BALANCE_STATIC_RR,
	  "121231212312123121231212312123121231212312123121231212312123" },
};

static void test_turns_as_haproxy(void **state)
{
	for (size_t v = 0; v < ARRAY_SIZE(oracle_turns); v++) {
		struct fx f;
		struct lb_request rq;

		set_weights(&f, oracle_turns[v].weights);
		f.s.px.balance.algo = oracle_turns[v].algo;
		fx_commit(&f);
		rq = fx_rq(&f);
		assert_string_equal(picks(&f, &rq, (unsigned)strlen(oracle_turns[v].expected)),
				    oracle_turns[v].expected);
		fx_fini(&f);
	}
}

/* --- turns ---------------------------------------------------------------------------------------- */

/* Whatever the weights: in one cycle every server has exactly its share, and never stays away for long. */
static void test_turns_shares(void **state)
{
	static const uint8_t algos[] = { BALANCE_ROUNDROBIN, BALANCE_STATIC_RR };
	uint64_t seed = 1;

	for (unsigned round = 0; round < 200; round++) {
		struct fx f;
		uint32_t total = 0, got[9] = { 0 };
		struct lb_request rq;
		unsigned n;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		n = 1 + (seed >> 33) % 9;
		fx_init(&f, 1, n);
		f.s.px.balance.algo = algos[round % 2];
		for (unsigned i = 0; i < n; i++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			f.s.cs[i].weight = 1 + (seed >> 33) % (round % 3 ? 20 : 256);
			total += f.s.cs[i].weight;
		}
		fx_commit(&f);
		rq = fx_rq(&f);
		for (uint32_t i = 0; i < total; i++)
			got[pick_name(&f, &rq) - '1']++;
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(got[i], f.s.cs[i].weight);
		fx_fini(&f);
	}
}

/* All workers share one position. */
static void test_turns_across_workers(void **state)
{
	struct fx f;
	struct lb_request rq;

	fx_init(&f, 3, 3);
	fx_commit(&f);
	rq = fx_rq(&f);
	for (unsigned i = 0; i < 12; i++) {
		rq.worker = i * 7 % 3;
		assert_int_equal(pick_name(&f, &rq), '1' + i % 3);
	}
	fx_fini(&f);
}

static void test_turns_skip_full(void **state)
{
	struct fx f;
	struct lb_request rq;

	fx_init(&f, 1, 3);
	f.s.cs[0].maxconn = 1;
	fx_commit(&f);
	rq = fx_rq(&f);
	/* s1 is full after its first turn; the others share its turns evenly */
	assert_string_equal(holds(&f, &rq, 9), "123232323");
	let_all_go(&f);
	fx_fini(&f);
}

/* --- the others ----------------------------------------------------------------------------------- */

static void test_leastconn(void **state)
{
	struct fx f;
	struct lb_request rq;

	fx_init(&f, 1, 3);
	f.s.px.balance.algo = BALANCE_LEASTCONN;
	f.s.cs[2].weight = 2;
	fx_commit(&f);
	rq = fx_rq(&f);
	assert_string_equal(picks(&f, &rq, 6), "123123"); /* nothing to do: in turn */
	holds(&f, &rq, 12);
	assert_int_equal(fx_srv(&f, 0)->cur, 3);
	assert_int_equal(fx_srv(&f, 1)->cur, 3);
	assert_int_equal(fx_srv(&f, 2)->cur, 6);
	let_go(&f, 1);
	assert_int_equal(pick_name(&f, &rq), '2');
	let_all_go(&f);
	fx_fini(&f);
}

static void test_leastconn_limits(void **state)
{
	struct fx f;
	struct lb_request rq;

	fx_init(&f, 1, 2);
	f.s.px.balance.algo = BALANCE_LEASTCONN;
	f.s.cs[0].maxconn = 1;
	f.s.cs[1].maxconn = 2;
	fx_commit(&f);
	rq = fx_rq(&f);
	assert_string_equal(holds(&f, &rq, 5), "122qq");
	let_all_go(&f);
	fx_fini(&f);
}

static void test_first(void **state)
{
	struct fx f;
	struct lb_request rq;

	fx_init(&f, 1, 3);
	f.s.px.balance.algo = BALANCE_FIRST;
	for (unsigned i = 0; i < 3; i++)
		f.s.cs[i].maxconn = 2;
	f.s.cs[0].id = 9; /* order is by id */
	fx_commit(&f);
	rq = fx_rq(&f);
	assert_string_equal(holds(&f, &rq, 7), "223311q");
	let_go(&f, 1);
	assert_int_equal(pick_name(&f, &rq), '2');
	let_all_go(&f);
	fx_fini(&f);
}

static void test_random(void **state)
{
	struct fx f;
	struct lb_request rq;
	unsigned got[4] = { 0 };

	fx_init(&f, 2, 4);
	f.s.px.balance.algo = BALANCE_RANDOM;
	f.s.px.balance.random_draws = 1;
	f.s.cs[3].weight = 5;
	fx_commit(&f);
	f.be->w[0].prng = 12345;
	rq = fx_rq(&f);
	for (unsigned i = 0; i < 8000; i++)
		got[pick_name(&f, &rq) - '1']++;
	for (unsigned i = 0; i < 3; i++)
		assert_in_range(got[i], 900, 1100);
	assert_in_range(got[3], 4800, 5200);
	/* workers do not throw the same dice */
	assert_int_not_equal(f.be->w[0].prng, f.be->w[1].prng);
	fx_fini(&f);
}

static void test_random_of_two_is_even(void **state)
{
	struct fx f;
	struct lb_request rq;
	uint32_t min = UINT32_MAX, max = 0;

	fx_init(&f, 1, 10);
	f.s.px.balance.algo = BALANCE_RANDOM;
	fx_commit(&f);
	f.be->w[0].prng = 99;
	rq = fx_rq(&f);
	for (unsigned i = 0; i < 1000; i++)
		holds(&f, &rq, 1);
	for (unsigned i = 0; i < 10; i++) {
		uint32_t cur = fx_srv(&f, i)->cur;

		min = cur < min ? cur : min;
		max = cur > max ? cur : max;
	}
	assert_in_range(max - min, 0, 6); /* one draw would spread by about 50 */
	let_all_go(&f);
	fx_fini(&f);
}

static void test_random_full(void **state)
{
	struct fx f;
	struct lb_request rq;

	fx_init(&f, 1, 3);
	f.s.px.balance.algo = BALANCE_RANDOM;
	for (unsigned i = 0; i < 3; i++)
		f.s.cs[i].maxconn = 1;
	fx_commit(&f);
	rq = fx_rq(&f);
	/* every slot is found, whatever the dice say */
	assert_null(strchr(holds(&f, &rq, 3), 'q'));
	assert_string_equal(holds(&f, &rq, 1), "q");
	let_all_go(&f);
	fx_fini(&f);
}

static void test_peak_ewma(void **state)
{
	struct fx f;
	struct lb_request rq;
	unsigned got[2] = { 0 };

	fx_init(&f, 1, 2);
	f.s.px.balance.algo = BALANCE_PEAK_EWMA;
	fx_commit(&f);
	f.be->w[0].prng = 7;
	rq = fx_rq(&f);
	server_observe_latency(fx_srv(&f, 0), 1000000);
	server_observe_latency(fx_srv(&f, 1), 50000000);
	for (unsigned i = 0; i < 1000; i++)
		got[pick_name(&f, &rq) - '1']++;
	/* the slow one only when both dice show it */
	assert_in_range(got[1], 150, 350);
	/* up at once, down slowly, never back to "unknown" */
	server_observe_latency(fx_srv(&f, 0), 8000000);
	assert_int_equal(fx_srv(&f, 0)->ewma_ns, 8000000);
	server_observe_latency(fx_srv(&f, 0), 0);
	assert_int_equal(fx_srv(&f, 0)->ewma_ns, 7000000);
	for (unsigned i = 0; i < 500; i++)
		server_observe_latency(fx_srv(&f, 0), 0);
	assert_int_not_equal(fx_srv(&f, 0)->ewma_ns, 0);
	fx_fini(&f);
}

static void test_maglev(void **state)
{
	struct fx f;
	struct lb_request rq;
	char before[256], after[256];
	unsigned moved = 0;

	fx_init(&f, 1, 9);
	f.s.px.balance.algo = BALANCE_MAGLEV;
	fx_commit(&f);
	rq = fx_rq(&f);
	rq.has_hash = true;
	for (unsigned i = 0; i < 255; i++) {
		rq.hash = lb_hash_avalanche(i);
		before[i] = pick_name(&f, &rq);
	}
	server_set_op(&f.r, fx_srv(&f, 4), SERVER_STOPPED);
	for (unsigned i = 0; i < 255; i++) {
		rq.hash = lb_hash_avalanche(i);
		after[i] = pick_name(&f, &rq);
		assert_int_not_equal(after[i], '5');
		moved += before[i] != '5' && before[i] != after[i];
	}
	assert_in_range(moved, 0, 12);
	/* without a computed hash the address decides; without an address they take turns */
	rq.has_hash = false;
	assert_int_not_equal(pick_name(&f, &rq), pick_name(&f, &rq));
	fx_fini(&f);
}

static void test_hash_without_key(void **state)
{
	struct fx f;
	struct lb_request rq;

	fx_init(&f, 1, 3);
	f.s.px.balance.algo = BALANCE_HDR;
	fx_commit(&f);
	rq = fx_rq(&f);
	assert_string_equal(picks(&f, &rq, 6), "123123");
	f.s.px.balance.algo = BALANCE_SOURCE;
	assert_int_equal(lb_rebuild(&f.r, f.be), 0);
	rq.src = &(struct addr){ .sa.sa_family = AF_UNIX };
	assert_string_equal(picks(&f, &rq, 3), "123");
	fx_fini(&f);
}

static void test_hash_computed_by_caller(void **state)
{
	struct fx f;
	struct lb_request rq;

	fx_init(&f, 1, 3);
	f.s.px.balance.algo = BALANCE_HASH;
	fx_commit(&f);
	rq = fx_rq(&f);
	rq.has_hash = true;
	for (unsigned i = 0; i < 9; i++) {
		rq.hash = i;
		assert_int_equal(pick_name(&f, &rq), '1' + i % 3);
	}
	fx_fini(&f);
}

/* hash-preserve-affinity: whether the others take what belongs to a full server, and always the same one first. */
static void test_hash_affinity(void **state)
{
	static const uint8_t types[] = { HASH_MAP_BASED, HASH_CONSISTENT };

	for (unsigned t = 0; t < 4; t++) {
		bool is_maxconn = t & 1;
		struct fx f;
		struct lb_request rq;
		struct queue_entry q = { 0 };
		struct server *s, *home, *next;

		fx_init(&f, 1, 3);
		f.s.px.balance.algo = BALANCE_HASH;
		f.s.px.balance.hash_type = types[t / 2];
		f.s.px.balance.hash_affinity = is_maxconn ? HASH_AFFINITY_MAXCONN
							  : HASH_AFFINITY_MAXQUEUE;
		for (unsigned i = 0; i < 3; i++) {
			f.s.cs[i].maxconn = 1;
			f.s.cs[i].maxqueue = 1;
		}
		fx_commit(&f);
		rq = fx_rq(&f);
		rq.has_hash = true;
		rq.hash = 1;
		assert_int_equal(lb_pick(f.be, &rq, &home), LB_PICKED);
		if (!is_maxconn) {
			assert_int_equal(lb_pick(f.be, &rq, &s), LB_QUEUE_SERVER);
			assert_ptr_equal(s, home);
			lb_enqueue(&q, f.be, s, 0);
		}
		assert_int_equal(lb_pick(f.be, &rq, &next), LB_PICKED);
		assert_ptr_not_equal(next, home);
		server_release(f.be, next, 0);
		assert_int_equal(lb_pick(f.be, &rq, &s), LB_PICKED);
		assert_ptr_equal(s, next);
		assert_int_equal(lb_pick(f.be, &rq, &s), LB_PICKED);
		assert_true(s != next && s != home);
		/* All are full: its own, if that still has room in its queue. */
		assert_int_equal(lb_pick(f.be, &rq, &s), is_maxconn ? LB_QUEUE_SERVER : LB_NONE);
		assert_ptr_equal(s, is_maxconn ? home : NULL);
		if (!is_maxconn)
			lb_dequeue(&q, 0);
		fx_fini(&f);
	}
}

/* A full server of a hash keeps its keys: they wait for it, up to maxqueue. */
static void test_hash_full(void **state)
{
	static const uint8_t types[] = { HASH_MAP_BASED, HASH_CONSISTENT };

	for (unsigned t = 0; t < 2; t++) {
		struct fx f;
		struct lb_request rq;
		struct queue_entry q = { 0 };
		struct server *s, *home;

		fx_init(&f, 1, 3);
		f.s.px.balance.algo = BALANCE_HASH;
		f.s.px.balance.hash_type = types[t];
		for (unsigned i = 0; i < 3; i++) {
			f.s.cs[i].maxconn = 1;
			f.s.cs[i].maxqueue = 1;
		}
		fx_commit(&f);
		rq = fx_rq(&f);
		rq.has_hash = true;
		rq.hash = 1;
		assert_int_equal(lb_pick(f.be, &rq, &home), LB_PICKED);
		assert_int_equal(lb_pick(f.be, &rq, &s), LB_QUEUE_SERVER);
		assert_ptr_equal(s, home);
		lb_enqueue(&q, f.be, s, 0);
		assert_int_equal(lb_pick(f.be, &rq, &s), LB_NONE);
		/* a slot alone is not enough while somebody waits */
		atomic_fetch_sub(&home->cur, 1);
		lb_dequeue(&q, 0);
		lb_enqueue(&q, f.be, home, 0);
		assert_int_equal(lb_pick(f.be, &rq, &s), LB_NONE);
		lb_dequeue(&q, 0);
		assert_int_equal(lb_pick(f.be, &rq, &s), LB_PICKED);
		server_release(f.be, s, 0);
		fx_fini(&f);
	}
}

static void test_hash_balance_factor(void **state)
{
	struct fx f;
	struct lb_request rq;

	fx_init(&f, 1, 4);
	f.s.px.balance.algo = BALANCE_HASH;
	f.s.px.balance.hash_type = HASH_CONSISTENT;
	f.s.px.balance.hash_balance_factor = 150;
	fx_commit(&f);
	rq = fx_rq(&f);
	rq.has_hash = true;
	rq.hash = 77;
	for (unsigned i = 0; i < 40; i++) {
		holds(&f, &rq, 1);
		atomic_fetch_add(&f.be->cur, 1);
	}
	/* one hot key: nobody has more than 1.5 times the average */
	for (unsigned i = 0; i < 4; i++)
		assert_in_range(fx_srv(&f, i)->cur, 0, 15);
	atomic_store(&f.be->cur, 0);
	let_all_go(&f);
	fx_fini(&f);
}

/* Losing one server moves its keys only. */
static void test_consistent_is_consistent(void **state)
{
	struct fx f;
	struct lb_request rq;
	char before[200];

	fx_init(&f, 1, 5);
	f.s.px.balance.algo = BALANCE_HASH;
	f.s.px.balance.hash_type = HASH_CONSISTENT;
	fx_commit(&f);
	rq = fx_rq(&f);
	rq.has_hash = true;
	for (unsigned i = 0; i < sizeof(before); i++) {
		rq.hash = lb_hash_avalanche(i);
		before[i] = pick_name(&f, &rq);
	}
	server_set_op(&f.r, fx_srv(&f, 2), SERVER_STOPPED);
	for (unsigned i = 0; i < sizeof(before); i++) {
		char now;

		rq.hash = lb_hash_avalanche(i);
		now = pick_name(&f, &rq);
		if (before[i] == '3')
			assert_int_not_equal(now, '3');
		else
			assert_int_equal(now, before[i]);
	}
	fx_fini(&f);
}

/* Whom each key reaches, by the last byte of the address and the port; servers stand in another order when `turned`. */
static void ring_picks(unsigned hash_key, bool turned, bool is_v6, uint32_t got[200])
{
	struct lb_request rq;
	struct fx f;

	fx_init(&f, 1, 4);
	f.s.px.balance.algo = BALANCE_HASH;
	f.s.px.balance.hash_type = HASH_CONSISTENT;
	for (unsigned i = 0; i < 4; i++) {
		struct addr *a = &f.s.cs[i].ep.addr;
		unsigned n = turned ? 3 - i : i;

		f.s.cs[i].hash_key = (uint8_t)hash_key;
		if (is_v6) {
			memset(a, 0, sizeof(*a));
			a->in6.sin6_family = AF_INET6;
			a->in6.sin6_addr.s6_addr[15] = (uint8_t)(n / 2 + 1);
		} else {
			a->in.sin_addr.s_addr = htonl(0x0a000001 + n / 2);
		}
		addr_set_port(a, (uint16_t)(80 + n % 2));
	}
	fx_commit(&f);
	rq = fx_rq(&f);
	rq.has_hash = true;
	for (unsigned i = 0; i < 200; i++) {
		struct server *s;

		rq.hash = lb_hash_avalanche(i);
		s = fx_srv(&f, (unsigned)(pick_name(&f, &rq) - '1'));
		got[i] = (is_v6 ? s->addr.in6.sin6_addr.s6_addr[15]
				: ntohl(s->addr.in.sin_addr.s_addr) & 0xff) *
				 1000 +
			 addr_port(&s->addr);
	}
	fx_fini(&f);
}

/* hash-key: what has addresses in it does not depend on the order of servers. */
static void test_ring_of_addresses(void **state)
{
	uint32_t a[200], b[200];

	for (int v6 = 0; v6 < 2; v6++) {
		unsigned n[2][2] = { { 0, 0 }, { 0, 0 } };

		ring_picks(HASH_KEY_ADDR_PORT, false, v6, a);
		ring_picks(HASH_KEY_ADDR_PORT, true, v6, b);
		assert_memory_equal(a, b, sizeof(a));
		for (unsigned i = 0; i < 200; i++)
			n[a[i] / 1000 - 1][a[i] % 1000 - 80]++;
		for (unsigned i = 0; i < 4; i++)
			assert_in_range(n[i / 2][i % 2], 10, 100);
		/* Two with one address have their places together. */
		ring_picks(HASH_KEY_ADDR, false, v6, a);
		ring_picks(HASH_KEY_ADDR, true, v6, b);
		for (unsigned i = 0; i < 200; i++)
			assert_int_equal(a[i] / 1000, b[i] / 1000);
		ring_picks(HASH_KEY_ID, false, v6, a);
		ring_picks(HASH_KEY_ID, true, v6, b);
		assert_memory_not_equal(a, b, sizeof(a));
	}
}

/* --- for every algorithm ---------------------------------------------------------------------------- */

static const uint8_t all_algos[] = {
	BALANCE_ROUNDROBIN, BALANCE_STATIC_RR, BALANCE_LEASTCONN, BALANCE_FIRST,
	BALANCE_SOURCE,	    BALANCE_URI,       BALANCE_URL_PARAM, BALANCE_HDR,
	BALANCE_RANDOM,	    BALANCE_HASH,      BALANCE_MAGLEV,	  BALANCE_PEAK_EWMA,
};

enum event {
	NOTHING,
	DOWN,
	UP,
	DRAIN,
	MAINT,
	READY,
	WEIGHT0,
	WEIGHT1,
	NOLB,
	ALLBACKUPS
};

static const struct {
	const char *what;
	bool is_backup[4];
	struct {
		uint8_t event, server;
	} events[4];
	const char *allowed; /* every one of them must come, no other */
} states[] = {
	{ "all up", { 0 }, { { 0 } }, "1234" },
	{ "one down", { 0 }, { { DOWN, 1 } }, "134" },
	{ "down and up", { 0 }, { { DOWN, 1 }, { UP, 1 } }, "1234" },
	{ "drain", { 0 }, { { DRAIN, 0 } }, "234" },
	{ "maintenance", { 0 }, { { MAINT, 0 } }, "234" },
	{ "ready again", { 0 }, { { MAINT, 0 }, { READY, 0 } }, "1234" },
	{ "weight 0", { 0 }, { { WEIGHT0, 3 } }, "123" },
	{ "weight back", { 0 }, { { WEIGHT0, 3 }, { WEIGHT1, 3 } }, "1234" },
	{ "disable-on-404", { 0 }, { { NOLB, 2 } }, "124" },
	{ "backups idle", { 0, 0, 1, 1 }, { { 0 } }, "12" },
	{ "first backup only", { 0, 0, 1, 1 }, { { DOWN, 0 }, { DOWN, 1 } }, "3" },
	{ "second backup", { 0, 0, 1, 1 }, { { DOWN, 0 }, { DOWN, 1 }, { DOWN, 2 } }, "4" },
	{ "allbackups", { 0, 0, 1, 1 }, { { ALLBACKUPS, 0 }, { DOWN, 0 }, { DOWN, 1 } }, "34" },
	{ "active returns", { 0, 1, 1, 1 }, { { DOWN, 0 }, { UP, 0 } }, "1" },
	{ "drained: backup", { 0, 1, 1, 1 }, { { DRAIN, 0 } }, "2" },
	{ "nobody", { 0, 0, 1, 1 }, { { DOWN, 0 }, { DOWN, 1 }, { DOWN, 2 }, { MAINT, 3 } }, "-" },
};

static void apply_event(struct fx *f, uint8_t event, unsigned i)
{
	struct server *s = fx_srv(f, i);

	switch (event) {
	case DOWN:
		server_set_op(&f->r, s, SERVER_STOPPED);
		break;
	case UP:
		server_set_op(&f->r, s, SERVER_RUNNING);
		break;
	case NOLB:
		server_set_op(&f->r, s, SERVER_STOPPING);
		break;
	case DRAIN:
		server_set_admin(&f->r, s, SERVER_FORCED_DRAIN, 0);
		break;
	case MAINT:
		server_set_admin(&f->r, s, SERVER_FORCED_MAINT, 0);
		break;
	case READY:
		server_set_admin(&f->r, s, 0, SERVER_FORCED_MAINT | SERVER_FORCED_DRAIN);
		break;
	case WEIGHT0:
		assert_int_equal(server_set_weight(&f->r, s, 0, NULL), 0);
		break;
	case WEIGHT1:
		assert_int_equal(server_set_weight(&f->r, s, 1, NULL), 0);
		break;
	case ALLBACKUPS:
		f->s.px.options |= CONF_OPT(ALLBACKUPS);
		assert_int_equal(lb_rebuild(&f->r, f->be), 0);
		break;
	default:
		break;
	}
}

static void run_state(uint8_t algo, size_t v, const char *allowed, unsigned avoid,
		      uint8_t hash_type)
{
	struct fx f;
	struct lb_request rq;
	char seen[8] = "";
	struct addr src = { .in.sin_family = AF_INET };

	fx_init(&f, 1, 4);
	f.s.px.balance.algo = algo;
	f.s.px.balance.hash_type = hash_type;
	for (unsigned i = 0; i < 4; i++)
		f.s.cs[i].is_backup = states[v].is_backup[i];
	fx_commit(&f);
	for (unsigned i = 0; i < 4; i++)
		apply_event(&f, states[v].events[i].event, states[v].events[i].server);
	rq = fx_rq(&f);
	rq.src = &src;
	rq.avoid = avoid ? fx_srv(&f, avoid - 1) : NULL;
	for (unsigned i = 0; i < 400; i++) {
		char key[16], got;

		snprintf(key, sizeof(key), "/%u", i * 7919);
		src.in.sin_addr.s_addr = htonl(lb_hash_avalanche(i));
		rq.uri = rq.hdr = str_from_cstr(key);
		got = pick_name(&f, &rq);
		if (!strchr(allowed, got))
			fail_msg("algorithm %u, %s: got %c", algo, states[v].what, got);
		if (!strchr(seen, got))
			seen[strlen(seen)] = got;
	}
	if (algo != BALANCE_FIRST && strlen(seen) != strlen(allowed))
		fail_msg("algorithm %u, %s: only %s", algo, states[v].what, seen);
	fx_fini(&f);
}

static void test_states(void **state)
{
	for (size_t a = 0; a < ARRAY_SIZE(all_algos); a++)
		for (size_t v = 0; v < ARRAY_SIZE(states); v++)
			for (uint8_t type = 0; type < 2; type++)
				run_state(all_algos[a], v, states[v].allowed, 0, type);
}

static void test_avoid(void **state)
{
	for (size_t a = 0; a < ARRAY_SIZE(all_algos); a++) {
		for (uint8_t type = 0; type < 2; type++) {
			run_state(all_algos[a], 0, "134", 2, type); /* all up */
			run_state(all_algos[a], 1, "14", 3, type); /* one down */
			run_state(all_algos[a], 10, "3", 3, type); /* nothing else is left */
			run_state(all_algos[a], 15, "-", 1, type);
		}
	}
}

static void test_force(void **state)
{
	for (size_t a = 0; a < ARRAY_SIZE(all_algos); a++) {
		struct fx f;
		struct lb_request rq;
		struct queue_entry q = { 0 };
		struct server *s;

		fx_init(&f, 1, 4);
		f.s.px.balance.algo = all_algos[a];
		f.s.cs[1].maxconn = 1;
		f.s.cs[1].maxqueue = 1;
		f.s.cs[3].is_backup = true;
		fx_commit(&f);
		rq = fx_rq(&f);
		rq.force = fx_srv(&f, 2);
		assert_string_equal(picks(&f, &rq, 4), "3333");
		/* persistence reaches servers that get no new clients */
		server_set_admin(&f.r, fx_srv(&f, 2), SERVER_FORCED_DRAIN, 0);
		assert_string_equal(picks(&f, &rq, 2), "33");
		rq.force = fx_srv(&f, 3);
		assert_string_equal(picks(&f, &rq, 2), "44");
		/* not usable: as if nothing had been said */
		server_set_admin(&f.r, fx_srv(&f, 2), SERVER_FORCED_MAINT, 0);
		rq.force = fx_srv(&f, 2);
		assert_int_not_equal(pick_name(&f, &rq), '3');
		/* it just failed */
		rq.force = rq.avoid = fx_srv(&f, 0);
		assert_int_equal(pick_name(&f, &rq), '2');
		/* full: wait for it; its queue full too: 503, or elsewhere with redispatch */
		rq.avoid = NULL;
		rq.force = fx_srv(&f, 1);
		assert_int_equal(lb_pick(f.be, &rq, &s), LB_PICKED);
		assert_int_equal(pick_name(&f, &rq), 'B');
		lb_enqueue(&q, f.be, s, 0);
		assert_int_equal(pick_name(&f, &rq), '-');
		f.s.px.options |= CONF_OPT(REDISPATCH);
		assert_int_equal(pick_name(&f, &rq), '1');
		lb_dequeue(&q, 0);
		server_release(f.be, s, 0);
		fx_fini(&f);
	}
}

/* A table that could not be rebuilt must not send anybody to a dead server. */
static void test_stale_table(void **state)
{
	for (size_t a = 0; a < ARRAY_SIZE(all_algos); a++) {
		struct fx f;
		struct lb_request rq;

		fx_init(&f, 1, 3);
		f.s.px.balance.algo = all_algos[a];
		fx_commit(&f);
		rq = fx_rq(&f);
		rq.has_hash = true;
		mem_fail_at(1);
		server_set_op(&f.r, fx_srv(&f, 0), SERVER_STOPPED);
		mem_fail_at(0);
		assert_true(f.be->is_stale);
		for (unsigned i = 0; i < 60; i++) {
			rq.hash = lb_hash_avalanche(i);
			assert_non_null(strchr("23", pick_name(&f, &rq)));
		}
		mem_fail_at(1);
		server_set_op(&f.r, fx_srv(&f, 1), SERVER_STOPPED);
		mem_fail_at(1);
		server_set_op(&f.r, fx_srv(&f, 2), SERVER_STOPPED);
		mem_fail_at(0);
		assert_int_equal(pick_name(&f, &rq), '-');
		assert_int_equal(lb_rebuild_stale(&f.r), 0);
		assert_false(f.be->is_stale);
		assert_int_equal(f.be->n_active, 0);
		fx_fini(&f);
	}
}

static void test_counts_picked(void **state)
{
	struct fx f;
	struct lb_request rq;

	fx_init(&f, 2, 2);
	fx_commit(&f);
	rq = fx_rq(&f);
	rq.worker = 1;
	picks(&f, &rq, 5);
	rq.force = fx_srv(&f, 0);
	picks(&f, &rq, 5); /* nobody chose */
	assert_int_equal(fx_srv(&f, 0)->w[1].ctr->picked, 3);
	assert_int_equal(fx_srv(&f, 1)->w[1].ctr->picked, 2);
	assert_int_equal(f.be->w[1].ctr->picked, 5);
	assert_int_equal(f.be->w[0].ctr->picked, 0);
	fx_fini(&f);
}

static void test_server_of(void **state)
{
	struct fx f;
	struct conf_server gone = { .name = (char[]){ "s9" }, .pos_in_backend = 1 };
	struct conf_server moved = { .name = (char[]){ "s3" }, .pos_in_backend = 0 };

	fx_init(&f, 1, 3);
	fx_commit(&f);
	assert_ptr_equal(lb_server_of(f.be, &f.s.cs[1]), fx_srv(&f, 1));
	assert_ptr_equal(lb_server_of(f.be, &moved), fx_srv(&f, 2));
	assert_null(lb_server_of(f.be, &gone));
	fx_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hashes_as_haproxy),
		cmocka_unit_test(test_turns_as_haproxy),
		cmocka_unit_test(test_turns_shares),
		cmocka_unit_test(test_turns_across_workers),
		cmocka_unit_test(test_turns_skip_full),
		cmocka_unit_test(test_leastconn),
		cmocka_unit_test(test_leastconn_limits),
		cmocka_unit_test(test_first),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_random_of_two_is_even),
		cmocka_unit_test(test_random_full),
		cmocka_unit_test(test_peak_ewma),
		cmocka_unit_test(test_maglev),
		cmocka_unit_test(test_hash_without_key),
		cmocka_unit_test(test_hash_computed_by_caller),
		cmocka_unit_test(test_hash_affinity),
		cmocka_unit_test(test_hash_full),
		cmocka_unit_test(test_hash_balance_factor),
		cmocka_unit_test(test_consistent_is_consistent),
		cmocka_unit_test(test_ring_of_addresses),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_avoid),
		cmocka_unit_test(test_force),
		cmocka_unit_test(test_stale_table),
		cmocka_unit_test(test_counts_picked),
		cmocka_unit_test(test_server_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
