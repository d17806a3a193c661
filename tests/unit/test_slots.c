/* SPDX-License-Identifier: BSD-2-Clause */
/* Slots, remembered flows and connection ids over time: the rules of docs/DATAPATH.md one by one. */
/* links: dp lb net conf expr http ev base */
#include "unit/program_model.h"

static uint32_t next(const struct fixture *f, uint32_t word, uint32_t want)
{
	return dp_slot_next(&f->dp, word, want);
}

#define T(base, current) (HG_SLOT_TRACKED | HG_SLOT_MAKE(base, current))
#define P(id)		 HG_SLOT_MAKE(id, id)

static void test_words(void **state)
{
	struct fixture *f = fixture_new();
	enum {
		A = 1,
		B,
		C,
		DEAD
	};

	for (unsigned id = A; id <= C; id++)
		f->dp.t.backends[id].flags = HG_BE_USABLE;
	f->dp.t.backends[DEAD].flags = HG_BE_VALID;
	assert_int_equal(next(f, P(A), A), P(A));
	assert_int_equal(next(f, P(A), B), T(A, B));
	assert_int_equal(next(f, T(A, B), C), T(A, C)); /* rule 6 */
	assert_int_equal(next(f, T(A, B), A), T(A, A));
	assert_int_equal(next(f, T(A, B), B), T(A, B));
	assert_int_equal(next(f, T(A, DEAD), C), T(A, C));
	assert_int_equal(next(f, P(DEAD), C), P(C)); /* rule 7 */
	assert_int_equal(next(f, T(DEAD, B), B), T(B, B));
	assert_int_equal(next(f, T(DEAD, B), C), T(B, C));
	assert_int_equal(next(f, T(DEAD, DEAD), C), T(C, C));
	assert_int_equal(next(f, T(A, B), 0), T(A, 0)); /* nobody is left, but A's flows */
	assert_int_equal(next(f, P(A), 0), T(A, 0));
	assert_int_equal(next(f, T(A, 0), C), T(A, C));
	assert_int_equal(next(f, 0, C), P(C));
	assert_int_equal(next(f, P(DEAD), 0), 0);
	fixture_conf(f, DEFAULTS "listen web\n mode l4\n bind tcp@" VIP
				 ":80\n forward ipip\n server a 10.0.0.1\n");
	fixture_free(f);
}

static unsigned count_slots_with(const struct fixture *f, uint32_t mask, uint32_t bits)
{
	const struct hg_service *s = find(f, VIP, 80);
	unsigned n = 0;

	for (uint32_t i = 0; i < s->slots; i++)
		n += (slot_word(f, s, i) & mask) == bits;
	return n;
}

#define TWO " server a 10.0.0.1\n server b 10.0.0.2\n"
#define L4(options, servers)                                                   \
	DEFAULTS "listen web\n mode l4\n bind tcp@" VIP ":80\n forward ipip\n" \
		 " maglev-table-size 251\n learn-window 16s\n" options servers

static uint64_t hash_nth(uint64_t hash, unsigned i)
{
	return hg_mix64(hash, i);
}

static void test_everybody_drained(void **state)
{
	struct fixture *f = fixture_new();
	unsigned a;

	fixture_conf(f, L4("", " server a 10.0.0.1\n"));
	fixture_sync(f);
	a = id_of(f, "a");
	server_set_admin(&f->registry, f->backends[0]->servers[0], SERVER_FORCED_DRAIN, 0);
	fixture_sync(f);
	assert_int_equal(packet(f, find(f, VIP, 80), 0x123456789abcdef0, false), a);
	assert_int_equal(packet(f, find(f, VIP, 80), 0x423456789abcdef0, true), 0);
	/* Nothing is learnt without an owner, so windows do not end. */
	fixture_wait(f, 100000);
	assert_int_equal(packet(f, find(f, VIP, 80), 0x123456789abcdef0, false), a);
	fixture_free(f);
}

static void set_op(struct fixture *f, unsigned server, enum server_op op)
{
	server_set_op(&f->registry, f->backends[0]->servers[server], op);
	fixture_sync(f);
}

static void set_drain(struct fixture *f, unsigned server, bool is_draining)
{
	server_set_admin(&f->registry, f->backends[0]->servers[server],
			 is_draining ? SERVER_FORCED_DRAIN : 0,
			 is_draining ? 0 : SERVER_FORCED_DRAIN);
	fixture_sync(f);
}

static uint64_t hash_of_slot_at(struct fixture *f, unsigned id)
{
	const struct hg_service *s = find(f, VIP, 80);
	uint64_t hash = 0x0012345678901234;

	while (HG_SLOT_CURRENT(slot_word(f, s, hg_flow_slot(hash, s->slots))) != id)
		hash += 1ull << 56;
	return hash;
}

/*
 * A slot is tracked no more, but an entry of a closed flow is still there when its backend dies and
 * comes back: the flow that has the same ports since then is not that backend's.
 */
static void test_stale_entry(void **state)
{
	struct fixture *f = fixture_new();
	const struct hg_service *s;
	uint64_t hash;
	unsigned a, b;

	fixture_conf(f, L4("", TWO));
	fixture_sync(f);
	a = id_of(f, "a");
	b = id_of(f, "b");
	s = find(f, VIP, 80);
	hash = hash_of_slot_at(f, a);
	set_drain(f, 0, true);
	set_drain(f, 0, false);
	assert_int_equal(slot_word(f, s, hg_flow_slot(hash, s->slots)), T(a, a));
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(packet(f, s, hash, true), a);
		if (!(slot_word(f, s, hg_flow_slot(hash, s->slots)) & HG_SLOT_TRACKED))
			break;
		fixture_wait(f, 500);
	}
	assert_int_equal(slot_word(f, s, hg_flow_slot(hash, s->slots)), P(a));
	set_op(f, 0, SERVER_STOPPED);
	assert_int_equal(packet(f, s, hash, true), b);
	set_op(f, 0, SERVER_RUNNING);
	assert_int_equal(packet(f, s, hash, false), b);
	fixture_free(f);
}

/* Entries of slots that are tracked no more go at once, not when they are idle. */
static void test_entries_end_with_tracking(void **state)
{
	struct fixture *f = fixture_new();
	const struct hg_service *s;
	uint64_t hash;

	fixture_conf(f, L4("", TWO));
	fixture_sync(f);
	s = find(f, VIP, 80);
	hash = hash_of_slot_at(f, id_of(f, "a"));
	set_drain(f, 0, true);
	set_drain(f, 0, false);
	for (unsigned i = 0;
	     i < 100 && slot_word(f, s, hg_flow_slot(hash, s->slots)) & HG_SLOT_TRACKED; i++) {
		(void)packet(f, s, hash, false);
		fixture_wait(f, 500);
	}
	assert_int_equal(f->dp.services[s->id].n_flows, 1);
	fixture_wait(f, 4 * (WINDOW / 8 + 1) * 1000);
	assert_int_equal(f->dp.services[s->id].n_flows, 0);
	assert_false(f->dp.services[s->id].is_unsettled);
	fixture_free(f);
}

/* Rule 7: who could not be remembered while the base was dead is not the base's when it lives again. */
static void test_dead_base(void **state)
{
	struct fixture *f = fixture_new();
	const struct hg_service *s;
	uint64_t hash;
	unsigned a, b;

	fixture_conf(f, L4("", TWO));
	fixture_sync(f);
	a = id_of(f, "a");
	b = id_of(f, "b");
	s = find(f, VIP, 80);
	hash = hash_of_slot_at(f, a);
	set_drain(f, 0, true);
	for (unsigned i = 0; i < N_LINES * HG_LINE_WAYS; i++) {
		f->dp.t.flows[i / HG_LINE_WAYS].word[i % HG_LINE_WAYS] =
			HG_WORD_MAKE(0xfedcba9876540000 ^ (uint64_t)i << 20, b);
		f->dp.t.flows[i / HG_LINE_WAYS].meta[i % HG_LINE_WAYS] =
			HG_META_MAKE(HG_FLOW_CONFIRMED, s->id, tick(f));
	}
	assert_int_equal(packet(f, s, hash ^ 1, true), a); /* no room: where its next packets go */
	set_op(f, 0, SERVER_STOPPED);
	assert_int_equal(packet(f, s, hash, true), b);
	set_op(f, 0, SERVER_RUNNING);
	assert_int_equal(packet(f, s, hash, false), b);
	fixture_free(f);
}

static void test_drain_timeout(void **state)
{
	struct fixture *f = fixture_new();
	uint64_t hash;
	unsigned a;

	fixture_conf(f, L4(" drain-timeout 60s\n", TWO));
	fixture_sync(f);
	a = id_of(f, "a");
	for (hash = 0; packet(f, find(f, VIP, 80), hash, false) != a; hash += 1ull << 56)
		;
	fixture_conf(f, L4(" drain-timeout 60s\n", " server b 10.0.0.2\n"));
	fixture_sync(f);
	for (unsigned i = 0; i < 7; i++) {
		assert_int_equal(packet(f, find(f, VIP, 80), hash, false), a);
		fixture_wait(f, 8000);
	}
	assert_int_equal(id_of(f, "a"), a);
	fixture_wait(f, 20000);
	assert_int_equal(packet(f, find(f, VIP, 80), hash, false), id_of(f, "b"));
	assert_int_equal(id_of(f, "a"), 0);
	assert_int_equal(f->dp.t.backends[a].flags, 0);
	fixture_free(f);
}

static void test_track_off(void **state)
{
	struct fixture *f = fixture_new();

	fixture_conf(f, L4(" track off\n", TWO));
	fixture_sync(f);
	server_set_admin(&f->registry, f->backends[0]->servers[0], SERVER_FORCED_DRAIN, 0);
	fixture_sync(f);
	assert_int_equal(count_slots_with(f, ~0u, P(id_of(f, "b"))), 251);
	/* Tracking begins with the next change, and ends at once. */
	fixture_conf(f, L4(" track auto\n", TWO));
	server_set_admin(&f->registry, f->backends[0]->servers[0], 0, SERVER_FORCED_DRAIN);
	fixture_sync(f);
	assert_in_range(count_slots_with(f, ~0u, T(id_of(f, "b"), id_of(f, "a"))), 125, 126);
	fixture_conf(f, L4(" track off\n", TWO));
	fixture_sync(f);
	assert_int_equal(count_slots_with(f, HG_SLOT_TRACKED, HG_SLOT_TRACKED), 0);
	fixture_free(f);
}

/* The size of a live table stays, though a larger one is asked for. */
static void test_table_size(void **state)
{
	struct fixture *f = fixture_new();

	fixture_conf(f, L4("", TWO));
	fixture_sync(f);
	fixture_conf(f, DEFAULTS "listen web\n mode l4\n bind tcp@" VIP
				 ":80\n forward ipip\n maglev-table-size 509\n" TWO);
	fixture_sync(f);
	assert_int_equal(find(f, VIP, 80)->slots, 251);
	fixture_free(f);
}

/* A section with a table of so many slots when it is new, and so many servers. */
static void conf_servers(struct fixture *f, unsigned table_size, unsigned n_servers)
{
	char text[8192];
	int n = snprintf(text, sizeof(text),
			 DEFAULTS "listen web\n mode l4\n bind tcp@" VIP ":80\n forward ipip\n"
				  " learn-window 16s\n maglev-table-size %u\n",
			 table_size);

	for (unsigned i = 0; i < n_servers; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, " server s%u 10.0.0.%u\n", i,
			      i + 1);
	fixture_conf(f, text);
}

#define N_FLOWS 2000

/* Every flow is where it was: the first packet since, and those after it, when its window is over too. */
static void check_flows(struct fixture *f, const unsigned owner[N_FLOWS])
{
	for (unsigned i = 0; i < N_FLOWS; i++)
		assert_int_equal(packet(f, find(f, VIP, 80), hash_nth(0x5eed, i), false), owner[i]);
}

/*
 * More servers than slots: the table grows to a multiple of its slots, and no flow moves, whether it began before
 * the last change but one, before the last, or is remembered; new ones get to all servers.
 */
static void test_table_grows(void **state)
{
	struct fixture *f = fixture_new();
	unsigned owner[N_FLOWS], n_new = 0;
	const struct hg_service *s;
	bool has[MAX_IDS] = { false };

	conf_servers(f, 7, 4);
	fixture_sync(f);
	for (unsigned i = 0; i < N_FLOWS / 2; i++)
		owner[i] = packet(f, find(f, VIP, 80), hash_nth(0x5eed, i), true);
	conf_servers(f, 7, 6);
	fixture_sync(f);
	for (unsigned i = N_FLOWS / 2; i < N_FLOWS; i++)
		owner[i] = packet(f, find(f, VIP, 80), hash_nth(0x5eed, i), true);
	for (unsigned i = 0; i < N_FLOWS; i += 2) /* the others are silent until then */
		assert_int_equal(packet(f, find(f, VIP, 80), hash_nth(0x5eed, i), false), owner[i]);
	conf_servers(f, 251, 20);
	fixture_sync(f);
	s = find(f, VIP, 80);
	assert_int_equal(s->slots, 252);
	check_flows(f, owner);
	for (unsigned i = 0; i < N_FLOWS; i++) {
		unsigned id = packet(f, s, hash_nth(0xabcdef, i), true);

		n_new += !has[id];
		has[id] = true;
	}
	assert_int_equal(n_new, 20);
	for (unsigned s_ = 0; s_ < 4 * WINDOW; s_++) {
		fixture_wait(f, 1000);
		check_flows(f, owner);
	}
	fixture_free(f);
}

/* A fragment names a backend as a flow does: it is forgotten before the id is another's. */
static void test_fragments_are_forgotten(void **state)
{
	struct fixture *f = fixture_new();
	struct hg_line *line;
	unsigned a;

	fixture_conf(f, L4("", TWO));
	fixture_sync(f);
	a = id_of(f, "a");
	line = &f->dp.t.fragments[7];
	line->word[1] = HG_WORD_MAKE(0xabcdef0000000000, a);
	line->word[2] = HG_WORD_MAKE(0xabcde10000000000, id_of(f, "b"));
	fixture_conf(f, L4("", " server b 10.0.0.2\n"));
	fixture_sync(f);
	fixture_wait(f, 10000);
	assert_int_equal(id_of(f, "a"), a); /* base of its slots until the window is over */
	fixture_wait(f, 60000);
	assert_int_equal(id_of(f, "a"), 0);
	assert_int_equal(line->word[1], 0);
	assert_int_not_equal(line->word[2], 0);
	fixture_free(f);
}

/* Two sections with one server: after a restart each finds the id that its own slots name. */
static void test_shared_address(void **state)
{
	static const char one[] =
		L4("", " server a 10.0.0.1\n") "listen dns\n mode l4\n bind tcp@192.0.2.53:53\n"
					       " forward ipip\n server a 10.0.0.1\n";
	static const char two[] = DEFAULTS "listen dns\n mode l4\n bind tcp@192.0.2.53:53\n"
					   " forward ipip\n server a 10.0.0.1\n"
					   "listen web\n mode l4\n bind tcp@" VIP
					   ":80\n forward ipip\n"
					   " maglev-table-size 251\n server a 10.0.0.1\n";
	struct fixture *f = fixture_new();

	fixture_conf(f, one);
	fixture_sync(f);
	fixture_restart(f);
	fixture_conf(f, two);
	fixture_sync(f);
	assert_int_equal(count_slots_with(f, HG_SLOT_TRACKED, HG_SLOT_TRACKED), 0);
	fixture_free(f);
}

static void test_quic_ids(void **state)
{
	static const char udp[] = DEFAULTS "listen q\n mode l4\n bind udp@" VIP ":443\n"
					   " bind tcp@" VIP ":443\n forward ipip\n"
					   " learn-window 16s\n affinity quic-cid length 2\n";
	struct fixture *f = fixture_new();
	const struct hg_service *s;
	struct dp_service *svc;
	char text[2048];
	unsigned a, b;

	snprintf(text, sizeof(text),
		 "%s server a 10.0.0.1 quic-id 3\n server b 10.0.0.2 quic-id 0\n", udp);
	fixture_conf(f, text);
	fixture_sync(f);
	a = id_of(f, "a");
	b = id_of(f, "b");
	s = find(f, VIP, 443);
	svc = &f->dp.services[s->id];
	assert_int_equal(s->flags & HG_SVC_QUIC_CID, HG_SVC_QUIC_CID);
	assert_int_equal(s->cid_offset, 1);
	assert_int_equal(s->cid_len, 2);
	assert_int_equal(s->quic_ids, 4);
	assert_int_equal(f->dp.t.quic[s->quic_block].backend[3], a);
	assert_int_equal(f->dp.t.quic[s->quic_block].backend[0], b);
	assert_int_equal(f->dp.t.quic[s->quic_block].backend[1], 0);
	/* A larger id needs another range; a removed server keeps its own until it is silent. */
	snprintf(text, sizeof(text),
		 "%s server c 10.0.0.3 quic-id 40\n server b 10.0.0.2 quic-id 0\n", udp);
	fixture_conf(f, text);
	fixture_sync(f);
	s = find(f, VIP, 443);
	assert_int_equal(s->quic_ids, 41);
	assert_int_equal(f->dp.t.quic[s->quic_block].backend[3], a);
	assert_int_equal(f->dp.t.quic[s->quic_block + 1].backend[8], id_of(f, "c"));
	fixture_restart(f);
	fixture_conf(f, text);
	fixture_sync(f);
	assert_int_equal(f->dp.t.quic[s->quic_block].backend[3], a);
	fixture_wait(f, 100000);
	assert_int_equal(f->dp.t.quic[s->quic_block].backend[3], 0);
	assert_int_equal(f->dp.t.quic[s->quic_block].backend[0], b);
	assert_int_equal(f->dp.t.backends[a].flags, 0);
	svc = &f->dp.services[s->id];
	assert_int_equal(svc->n_tracked, 0);
	fixture_free(f);
}

static unsigned count_entries(const struct fixture *f)
{
	unsigned n = 0;

	for (unsigned i = 0; i < f->dp.t.n_flow_lines * HG_LINE_WAYS; i++)
		n += f->dp.t.flows[i / HG_LINE_WAYS].word[i % HG_LINE_WAYS] != 0;
	return n;
}

/* Maps that are too small are replaced: ids, slots and flows go along, whatever the new sizes. */
static void test_carried_over(void **state)
{
	static const uint32_t lines[][2] = {
		{ 8192, 8192 }, { 2048, 8192 }, { 8192, 2048 }, { 1024, 8192 }
	};

	for (unsigned k = 0; k < ARRAY_SIZE(lines); k++) {
		struct fixture *f = fixture_new(), *g = fixture_new();
		struct hg_service before;
		uint64_t hash = 0x0123456789abcdef;
		unsigned owner[400], n;

		f->dp.t.n_flow_lines = lines[k][0];
		g->dp.t.n_flow_lines = lines[k][1];
		fixture_conf(f, L4("", TWO));
		fixture_sync(f);
		set_drain(f, 0, true);
		before = *find(f, VIP, 80);
		for (unsigned i = 0; i < 400; i++) {
			/* Half of them began before the drain. */
			owner[i] = packet(f, &before, hash_nth(hash, i), i % 2);
			assert_int_not_equal(owner[i], 0);
		}
		dp_tables_free(&g->dp);
		assert_int_equal(dp_carry_rows(&g->dp, &f->dp.t), 0);
		fixture_conf(g, L4("", TWO));
		fixture_sync(g);
		set_drain(g, 0, true);
		assert_int_equal(find(g, VIP, 80)->id, before.id);
		/* Base gone, so that only entries keep them. */
		fixture_wait(f, 1000);
		for (uint32_t i = 0; i < 251; i++) {
			uint32_t *p = dp_slot_at(&g->dp, &g->dp.services[before.id], i);

			*p = T(HG_SLOT_CURRENT(*p), HG_SLOT_CURRENT(*p));
		}
		for (unsigned i = 0; i < 400; i++)
			assert_int_equal(packet(g, find(g, VIP, 80), hash_nth(hash, i), false),
					 owner[i]);
		/* A second time changes nothing: what is there is not doubled. */
		n = count_entries(g);
		dp_carry_flows(&f->dp.t, &g->dp.t);
		assert_int_equal(count_entries(g), n);
		fixture_free(f);
		fixture_free(g);
	}
}

static void test_ticks(void **state)
{
	/* 250 Hz, five minutes before jiffies wrap in 32 bits. */
	assert_int_equal(tick_of(0, 250, 8), ((0u - 75000u) >> 8) & 0xffff);
	assert_int_equal(tick_of(301000000000ull, 250, 8), (0x100000000ull + 250) >> 8 & 0xffff);
	assert_int_equal(tick_of(3600000000000ull, 1000, 10),
			 ((0u - 300000u + 3600000ull) >> 10) & 0xffff);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_ticks),
		cmocka_unit_test(test_everybody_drained),
		cmocka_unit_test(test_stale_entry),
		cmocka_unit_test(test_entries_end_with_tracking),
		cmocka_unit_test(test_dead_base),
		cmocka_unit_test(test_drain_timeout),
		cmocka_unit_test(test_track_off),
		cmocka_unit_test(test_table_size),
		cmocka_unit_test(test_table_grows),
		cmocka_unit_test(test_fragments_are_forgotten),
		cmocka_unit_test(test_shared_address),
		cmocka_unit_test(test_quic_ids),
		cmocka_unit_test(test_carried_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
