/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NAT from the control thread's side, on plain memory: what the sweep ends and what it leaves, and what a
 * row's end does to counts and fingerprints.
 */
/* links: dp lb net conf expr http ev base */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "dp/dp_priv.h"

#define ROWS  128
#define LINES HG_NAT_LINES(ROWS)
#define IDLE  100
#define NOW   1000u

struct fixture {
	struct dp_nat n;
	struct hg_nat_conn conns[ROWS];
	struct hg_nat_addrs addrs[ROWS];
	struct hg_nat_line lines[LINES];
	struct hg_nat_ticket tickets[ROWS];
	struct hg_nat_hints hints[HG_NAT_HINT_LINES(ROWS)];
	struct hg_nat_path paths[HG_NAT_PATHS(ROWS)];
	struct hg_live_server backends[4];
	struct hg_live services[4];
};

static int setup(void **state)
{
	struct fixture *f = aligned_alloc(64, sizeof(*f));

	memset(f, 0, sizeof(*f));
	f->n = (struct dp_nat){ .conns = f->conns,
				.addrs = f->addrs,
				.lines = f->lines,
				.tickets = f->tickets,
				.hints = f->hints,
				.paths = f->paths,
				.live_backends = f->backends,
				.live_services = f->services,
				.mask = ROWS - 1,
				.line_mask = LINES - 1,
				.max_backends = 4,
				.max_services = 4,
				.hash_seed = 7,
				.tick_shift = 8,
				.hz = 250 };
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

static uint64_t hash_of(const struct fixture *f, const struct hg_nat_conn *c)
{
	struct hg_flow_key k = { .sport = c->client_port, .dport = c->vip_port, .proto = c->proto };

	memcpy(k.src, f->addrs[c - f->conns].addr[HG_NAT_CLIENT], 16);
	memcpy(k.dst, f->addrs[c - f->conns].addr[HG_NAT_VIP], 16);
	return hg_flow_hash(&k, f->n.hash_seed);
}

/* A connection as the program leaves it: row, fingerprint, counts. */
static void add(struct fixture *f, uint32_t row, unsigned st, unsigned age)
{
	struct hg_nat_conn *c = &f->conns[row];
	uint64_t hash;
	unsigned way = 0;

	*c = (struct hg_nat_conn){ .life = HG_NAT_LIFE(st, NOW - age),
				   .backend = 1 + row % 2,
				   .service = 3,
				   .client_port = htons((uint16_t)(1000 + row)),
				   .vip_port = htons(80),
				   .idle_ticks = IDLE,
				   .proto = st >= HG_NAT_UDP_NEW ? 17 : 6 };
	f->addrs[row].addr[HG_NAT_CLIENT][3] = htonl(0xcb007100 + row);
	hash = hash_of(f, c);
	while (f->lines[hg_line_of(hash, LINES - 1)].word[way])
		way++;
	f->lines[hg_line_of(hash, LINES - 1)].word[way] = HG_NAT_WORD(hash, row);
	f->backends[c->backend].xdp += (unsigned)hg_nat_is_counted(st);
	f->services[3].conns += (unsigned)hg_nat_is_counted(st);
}

static unsigned words(const struct fixture *f)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LINES * HG_NAT_WAYS; i++)
		n += f->lines[i / HG_NAT_WAYS].word[i % HG_NAT_WAYS] != 0;
	return n;
}

/* Each state at its limit with the sweep's grace, and one tick beyond. */
static void test_limits(void **state)
{
	struct fixture *f = *state;

	for (unsigned st = HG_NAT_SYN; st < HG_NAT_STATE_COUNT; st++) {
		unsigned limit = hg_nat_seconds(st) ? hg_nat_seconds(st) : IDLE + IDLE / 8;

		add(f, 2 * st, st, limit + 2);
		add(f, 2 * st + 1, st, limit + 3);
	}
	assert_int_equal(dp_nat_sweep(&f->n, ROWS, NOW), HG_NAT_STATE_COUNT - HG_NAT_SYN);
	for (unsigned st = HG_NAT_SYN; st < HG_NAT_STATE_COUNT; st++) {
		assert_int_equal(HG_NAT_STATE(f->conns[2 * st].life), st);
		assert_int_equal(f->conns[2 * st + 1].life, 0);
	}
	assert_int_equal(words(f), HG_NAT_STATE_COUNT - HG_NAT_SYN);
	/* Seven states count; rows that were left are those of backend 1. */
	assert_int_equal(f->backends[1].xdp, 7);
	assert_int_equal(f->backends[2].xdp, 0);
	assert_int_equal(f->services[3].conns, 7);
	assert_int_equal(dp_nat_sweep(&f->n, ROWS, NOW), 0);
}

/* A clock behind the rows' ends nothing; a row somebody died in while writing it becomes free. */
static void test_clock_and_claimed(void **state)
{
	struct fixture *f = *state;

	add(f, 1, HG_NAT_OPEN, 0);
	assert_int_equal(dp_nat_sweep(&f->n, ROWS, NOW - 1), 0);
	assert_int_equal(dp_nat_sweep(&f->n, ROWS, NOW - 5000), 0);
	assert_int_equal(f->backends[2].xdp, 1);
	f->conns[5].life = HG_NAT_LIFE(HG_NAT_CLAIMED, NOW);
	assert_int_equal(dp_nat_sweep(&f->n, ROWS, NOW + 7), 0);
	assert_int_equal(dp_nat_sweep(&f->n, ROWS, NOW + 8), 1);
	assert_int_equal(f->conns[5].life, 0);
	assert_int_equal(f->services[3].conns, 1);
	/* Ticks wrap. */
	f->conns[1].life = HG_NAT_LIFE(HG_NAT_OPEN, 0xfff0);
	assert_int_equal(dp_nat_sweep(&f->n, ROWS, 0x60), 0);
	assert_int_equal(dp_nat_sweep(&f->n, ROWS, 0x70), 1);
	assert_int_equal(f->services[3].conns, 0);
}

/* Slices follow each other through the table, round and round. */
static void test_slices(void **state)
{
	struct fixture *f = *state;
	unsigned ended = 0;

	for (uint32_t i = 0; i < ROWS; i++)
		add(f, i, HG_NAT_UDP, IDLE + 20);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(dp_nat_sweep(&f->n, ROWS / 4, NOW), ROWS / 4);
		ended += ROWS / 4;
		assert_int_equal(f->services[3].conns, ROWS - ended);
	}
	assert_int_equal(words(f), 0);
	add(f, 0, HG_NAT_UDP, IDLE + 20);
	assert_int_equal(dp_nat_sweep(&f->n, ROWS / 4, NOW), 1);
}

/* --- tickets and paths ------------------------------------------------------------------------------------------ */

static uint32_t *hint_of(struct fixture *f, uint32_t row)
{
	const struct hg_nat_conn *c = &f->conns[row];
	uint64_t hint = hg_nat_hint(HG_NAT_TICKET_CLIENT(c->last[HG_NAT_CLIENT], c->client_port),
				    c->last[HG_NAT_VIP], c->vip_port, c->proto, f->n.hash_seed);
	uint32_t line = (uint32_t)(hint >> 32) & (HG_NAT_HINT_LINES(ROWS) - 1), want;

	want = ((uint32_t)hint & ~(ROWS - 1u)) | row;
	for (unsigned i = 0; i < 2 * HG_NAT_HINTS; i++) {
		uint32_t *w = &f->hints[line ^ i / HG_NAT_HINTS].word[i % HG_NAT_HINTS];

		if (*w == want)
			return w;
	}
	f->hints[line ^ row % 2].word[row % HG_NAT_HINTS] = want;
	return NULL;
}

/* As the program gives them. */
static void give(struct fixture *f, uint32_t row, uint32_t path)
{
	f->tickets[row].word = HG_NAT_TICKET(HG_NAT_TICKET_CLIENT(1, 2), path);
	f->paths[path].state = HG_NAT_PATH_READY;
}

/* Whose row ends has none; others keep theirs. */
static void test_tickets_end(void **state)
{
	struct fixture *f = *state;

	for (uint32_t row = 0; row < 8; row++) {
		add(f, row, HG_NAT_OPEN, row % 2 ? IDLE + 20 : 0);
		f->conns[row].last[HG_NAT_CLIENT] = htonl(0xcb007100 + row);
		give(f, row, 0);
		assert_null(hint_of(f, row));
		assert_non_null(hint_of(f, row));
	}
	assert_int_equal(dp_nat_sweep(&f->n, ROWS, NOW), 4);
	for (uint32_t row = 0; row < 8; row++) {
		assert_int_equal(!f->tickets[row].word, row % 2);
		assert_int_equal(!hint_of(f, row), row % 2);
	}
}

/* A path is free after two passes in which no ticket named it, and stays when one does again. */
static void test_paths(void **state)
{
	struct fixture *f = *state;

	add(f, 1, HG_NAT_OPEN, 0);
	give(f, 1, 3);
	f->paths[4].state = f->paths[5].state = HG_NAT_PATH_READY;
	f->paths[5].seen = 1; /* just made */
	f->paths[6].state = HG_NAT_PATH_FILLING;
	dp_nat_sweep(&f->n, ROWS - 1, NOW);
	assert_int_equal(f->paths[4].state, HG_NAT_PATH_READY);
	dp_nat_sweep(&f->n, 1, NOW);
	assert_int_equal(f->paths[3].state, HG_NAT_PATH_READY);
	assert_int_equal(f->paths[4].state, HG_NAT_PATH_RETIRING);
	assert_int_equal(f->paths[5].state, HG_NAT_PATH_READY);
	assert_int_equal(f->paths[6].state, HG_NAT_PATH_FILLING);
	f->tickets[ROWS - 1].word = HG_NAT_TICKET(1, 4); /* of just before it was retired */
	dp_nat_sweep(&f->n, ROWS, NOW);
	assert_int_equal(f->paths[3].state, HG_NAT_PATH_READY);
	assert_int_equal(f->paths[4].state, HG_NAT_PATH_READY);
	assert_int_equal(f->paths[5].state, HG_NAT_PATH_RETIRING);
	dp_nat_sweep(&f->n, ROWS, NOW);
	assert_int_equal(f->paths[5].state, HG_NAT_PATH_FREE);
	assert_int_equal(f->paths[3].state, HG_NAT_PATH_READY);
	/* What is no path of the table is left alone. */
	f->tickets[2].word = ~0ull;
	dp_nat_sweep(&f->n, ROWS, NOW);
	assert_int_equal(f->paths[3].state, HG_NAT_PATH_READY);
}

/* --- nat log ---------------------------------------------------------------------------------------------------- */

struct events {
	char text[512];
};

static void note(void *ctx, const struct dp_nat_info *i, bool has_ended)
{
	struct events *e = ctx;
	size_t at = strlen(e->text);

	snprintf(e->text + at, sizeof(e->text) - at, "%s %u %s %s;", has_ended ? "end" : "begin",
		 addr_port(&i->client), i->server_name, dp_nat_state_name(i->state));
}

static void expect_events(struct dp *dp, const char *want)
{
	struct events e = { "" };

	assert_int_equal(dp_watch_nat(dp, note, &e), 0);
	assert_string_equal(e.text, want);
}

static void move_to(struct fixture *f, uint32_t row, unsigned st)
{
	f->conns[row].life = HG_NAT_LIFE(st, NOW);
}

static void test_watch(void **state)
{
	struct fixture *f = *state;
	struct dp_service services[4] = { 0 };
	struct dp_backend backends[4] = { [1].server_name = "a", [2].server_name = "b" };
	struct dp dp = { .nat = f->n,
			 .services = services,
			 .backends = backends,
			 .t = { .max_services = 4, .max_backends = 4 } };

	assert_int_equal(dp_watch_nat(&(struct dp){ 0 }, note, NULL), -ENOENT);
	/* What was there before is known, and nothing to tell of before it ends. */
	add(f, 1, HG_NAT_OPEN, 0);
	add(f, 2, HG_NAT_CLOSED, 0);
	expect_events(&dp, "");
	expect_events(&dp, "");
	add(f, 4, HG_NAT_SYN, 0);
	add(f, 7, HG_NAT_UDP, 0);
	expect_events(&dp, "begin 1004 a syn-sent;begin 1007 b udp;");
	move_to(f, 4, HG_NAT_OPEN);
	move_to(f, 1, HG_NAT_CLOSED);
	expect_events(&dp, "end 1001 b closed;");
	/* Reset: perhaps; the row says so when it is free, or another's. */
	move_to(f, 4, HG_NAT_RESET);
	expect_events(&dp, "");
	move_to(f, 4, HG_NAT_FREE);
	move_to(f, 1, HG_NAT_FREE);
	expect_events(&dp, "end 1004 a reset;");
	/* Began and ended between two looks; the same client again; another one in the same row. */
	add(f, 10, HG_NAT_CLOSED, 0);
	expect_events(&dp, "begin 1010 a closed;end 1010 a closed;");
	expect_events(&dp, "");
	move_to(f, 10, HG_NAT_SYN);
	expect_events(&dp, "begin 1010 a syn-sent;");
	f->conns[7].client_port = htons(4000);
	expect_events(&dp, "end 1007 b udp;begin 4000 b udp;");
	/* Being written. */
	move_to(f, 7, HG_NAT_CLAIMED);
	expect_events(&dp, "end 4000 b udp;");
	expect_events(&dp, "");
	assert_int_equal(dp_watch_nat(&dp, NULL, NULL), 0);
	assert_null(dp.nat.seen);
	mem_fail_at(1);
	assert_int_equal(dp_watch_nat(&dp, note, NULL), -ENOMEM);
	mem_fail_at(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_clock_and_claimed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_slices, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tickets_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_paths, setup, teardown),
		cmocka_unit_test_setup_teardown(test_watch, setup, teardown),
	};

	return cmocka_run_group_tests_name("nat", tests, NULL, NULL);
}
