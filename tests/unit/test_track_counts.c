/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `track on`: connections that end in silence leave the count, whose limit is the server's `maxconn`. What the program
 * does is in tests/packet/test_track.c.
 */
/* links: dp lb net conf expr http ev base */
#include "unit/program_model.h"

#define SERVICE(options)                                                              \
	"defaults\n timeout connect 1s\n timeout client 100s\n timeout server 200s\n" \
	"listen web\n mode l4\n bind tcp@" VIP                                        \
	":80\n forward ipip\n maglev-table-size 251\n learn-window"                   \
	" 1000s\n" options " server a 10.0.0.1"

static struct fixture *f;
static struct hg_live_server live[MAX_IDS];
static unsigned a;

static int set_up(void **state)
{
	memset(live, 0, sizeof(live));
	f = fixture_new();
	f->dp.nat.live_backends = live;
	fixture_conf(f, SERVICE(" track on\n") " maxconn 7\n");
	fixture_sync(f);
	a = id_of(f, "a");
	return 0;
}

static int tear_down(void **state)
{
	fixture_free(f);
	return 0;
}

/* An entry as the program writes it; one for each `n`. */
static struct hg_line *put(unsigned n, uint32_t class, bool is_counted)
{
	const uint64_t hash = hg_mix64(0xc0ffee, n);
	struct hg_line *l = &f->dp.t.flows[hg_line_of(hash, f->dp.t.n_flow_lines - 1)];

	l->word[0] = HG_WORD_MAKE(hash, a | (is_counted ? HG_WORD_COUNTED : 0));
	l->meta[0] = HG_META_MAKE(class, find(f, VIP, 80)->id, tick(f));
	live[a].xdp += is_counted;
	return l;
}

static void test_silence(void **state)
{
	struct hg_line *half_open, *open, *closed;

	half_open = put(1, HG_FLOW_SYN, true);
	open = put(2, HG_FLOW_CONFIRMED, true);
	closed = put(3, HG_FLOW_LEARNT, false);
	fixture_wait(f, 20000);
	assert_int_equal(live[a].xdp, 2);
	/* The client never confirmed. Its flow is still known. */
	fixture_wait(f, 25000);
	assert_int_equal(live[a].xdp, 1);
	assert_int_equal(HG_WORD_BACKEND(half_open->word[0]), a);
	assert_false(half_open->word[0] & HG_WORD_COUNTED);
	assert_true(closed->word[0]);
	fixture_wait(f, 30000);
	assert_int_equal(closed->word[0], 0);
	/* The shorter timeout of both sides. */
	fixture_wait(f, 40000);
	assert_int_equal(live[a].xdp, 0);
	assert_int_equal(HG_WORD_BACKEND(open->word[0]), a);
	/* And forgotten with the window. */
	fixture_wait(f, 1000000);
	assert_int_equal(open->word[0], 0);
	assert_int_equal(half_open->word[0], 0);
	assert_int_equal(live[a].xdp, 0);
}

static void test_limit(void **state)
{
	assert_int_equal(live[a].limit, 7);
	fixture_conf(f, SERVICE(" track on\n") " maxconn 9\n");
	fixture_sync(f);
	assert_int_equal(live[a].limit, 9);
	/* Nobody would end what is counted, so nothing may be refused. */
	fixture_conf(f, SERVICE("") "\n");
	fixture_sync(f);
	assert_int_equal(live[a].limit, 0);
}

/* The entries go with the tracking, and their places with them. */
static void test_off(void **state)
{
	struct hg_line *l = put(1, HG_FLOW_CONFIRMED, true);

	fixture_wait(f, 10000);
	assert_int_equal(live[a].xdp, 1);
	fixture_conf(f, SERVICE("") "\n");
	fixture_sync(f);
	fixture_wait(f, 30000);
	assert_int_equal(l->word[0], 0);
	assert_int_equal(live[a].xdp, 0);
}

/* Larger maps begin with no connections; the next packets count them. */
static void test_carried_over(void **state)
{
	struct fixture *g = fixture_new();
	struct hg_line *l = put(1, HG_FLOW_CONFIRMED, true);
	struct hg_line *at = &g->dp.t.flows[l - f->dp.t.flows];

	dp_carry_flows(&f->dp.t, &g->dp.t);
	assert_int_equal(HG_WORD_BACKEND(at->word[0]), a);
	assert_false(at->word[0] & HG_WORD_COUNTED);
	fixture_conf(g, SERVICE("") "\n");
	fixture_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_silence, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_limit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_off, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_carried_over, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("track counts", tests, NULL, NULL);
}
