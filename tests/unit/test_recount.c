/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts that a killed daemon left wrong are put right from rows and flows, whatever goes on meanwhile; right ones are left
 * alone.
 */
/* links: dp lb net conf expr http ev base */
#include "unit/program_model.h"

#define ROWS  128
#define SVC   3
#define LOCAL 4

static struct fixture *f;
static struct hg_live_server backends[MAX_IDS];
static struct hg_live services[MAX_IDS];
static struct hg_nat_conn *conns;
static struct hg_backend_counters begun[MAX_IDS];
static unsigned n_notices;

static void notice(void *ctx, const char *text)
{
	n_notices++;
}

static int set_up(void **state)
{
	memset(backends, 0, sizeof(backends));
	memset(services, 0, sizeof(services));
	memset(begun, 0, sizeof(begun));
	n_notices = 0;
	f = fixture_new();
	conns = aligned_alloc(64, ROWS * sizeof(*conns));
	memset(conns, 0, ROWS * sizeof(*conns));
	f->dp.nat = (struct dp_nat){ .conns = conns,
				     .live_backends = backends,
				     .live_services = services,
				     .mask = ROWS - 1,
				     .max_backends = MAX_IDS,
				     .max_services = MAX_IDS };
	f->dp.n_cpus = 1;
	f->dp.maps[DP_MAP_XDP_BACKENDS].mem = begun;
	f->dp.services[SVC] = (struct dp_service){ .is_used = true, .row.mode = HG_MODE_NAT };
	f->dp.services[LOCAL] = (struct dp_service){ .is_used = true, .row.mode = HG_MODE_LOCAL };
	f->dp.notice = notice;
	return 0;
}

static int tear_down(void **state)
{
	dp_recount_end(&f->dp);
	memset(&f->dp.services[SVC], 0, 2 * sizeof(f->dp.services[SVC]));
	f->dp.maps[DP_MAP_XDP_BACKENDS].mem = NULL;
	f->dp.nat = (struct dp_nat){ 0 };
	fixture_conf(f, "defaults\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n"
			"listen a\n mode tcp\n bind 127.0.0.1:1\n server a 127.0.0.1:2\n");
	fixture_free(f);
	free(conns);
	return 0;
}

static void nat(uint32_t row, uint16_t backend, unsigned st)
{
	conns[row] = (struct hg_nat_conn){ .life = HG_NAT_LIFE(st, 1),
					   .backend = backend,
					   .service = SVC };
	if (!hg_nat_is_counted(st))
		return;
	backends[backend].xdp++;
	services[SVC].conns++;
	begun[backend].begun++;
}

static void flow(uint32_t line, uint16_t backend)
{
	f->dp.t.flows[line].word[line % HG_LINE_WAYS] = 1ull << 40 | backend | HG_WORD_COUNTED;
	backends[backend].xdp++;
}

static void fill(void)
{
	nat(1, 1, HG_NAT_SYN);
	nat(2, 1, HG_NAT_OPEN);
	nat(3, 1, HG_NAT_CLOSED);
	nat(4, 2, HG_NAT_UDP);
	nat(5, 2, HG_NAT_CLAIMED);
	flow(1, 2);
	flow(2, 5);
	backends[1].word += 7 * HG_LIVE_L7(0) + 9 * HG_LIVE_L7(1);
	services[LOCAL].conns = 11;
}

static void test_right(void **state)
{
	struct hg_live_server before[MAX_IDS];

	fill();
	memcpy(before, backends, sizeof(before));
	dp_recount_begin(&f->dp);
	assert_null(f->dp.recount); /* one look was enough */
	assert_memory_equal(before, backends, sizeof(before));
	assert_int_equal(services[SVC].conns, 3);
	assert_int_equal(services[LOCAL].conns, 11);
	assert_int_equal(n_notices, 0);
}

/* Too many and too few, of a server in use and of an id that nobody has. */
static void test_wrong(void **state)
{
	fill();
	backends[1].word += 2 * HG_LIVE_XDP;
	backends[2].word -= HG_LIVE_XDP;
	backends[40].word = HG_LIVE_XDP;
	services[SVC].conns += 3;
	dp_recount_begin(&f->dp);
	assert_int_equal(backends[1].xdp, 4); /* not by one look */
	dp_recount_tick(&f->dp);
	assert_int_equal(n_notices, 1);
	dp_recount_tick(&f->dp);
	assert_null(f->dp.recount);
	assert_int_equal(backends[1].word, 2 * HG_LIVE_XDP + 7 * HG_LIVE_L7(0) + 9 * HG_LIVE_L7(1));
	assert_int_equal(backends[2].xdp, 2);
	assert_int_equal(backends[40].word, 0);
	assert_int_equal(services[SVC].conns, 3);
	assert_int_equal(services[LOCAL].conns, 11);
	assert_int_equal(n_notices, 1);
}

/* The difference of one look may be a packet under way: another look, another difference. */
static void test_not_the_same_twice(void **state)
{
	fill();
	backends[1].word += HG_LIVE_XDP;
	dp_recount_begin(&f->dp);
	backends[1].word -= HG_LIVE_XDP;
	dp_recount_tick(&f->dp);
	assert_null(f->dp.recount);
	assert_int_equal(backends[1].xdp, 2);
	assert_int_equal(n_notices, 0);
}

/* Connections begin and end between the looks: what was lost before is found all the same. */
static void test_meanwhile(void **state)
{
	fill();
	backends[1].word += HG_LIVE_XDP;
	dp_recount_begin(&f->dp);
	nat(6, 1, HG_NAT_OPEN);
	dp_recount_tick(&f->dp);
	assert_int_equal(backends[1].xdp, 3);
	dp_recount_tick(&f->dp);
	assert_null(f->dp.recount);
	assert_int_equal(n_notices, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_right, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_wrong, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_not_the_same_twice, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_meanwhile, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("recount", tests, NULL, NULL);
}
