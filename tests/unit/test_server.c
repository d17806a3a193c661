/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registry: names over reloads, states and their texts, statistics rows, memory failures.
 *
 * links: lb base ev
 */
#include "unit/lb_fixture.h"

#include <errno.h>
#include <time.h>

/* --- statistics ------------------------------------------------------------------------------------- */

static void test_stats_rows(void **state)
{
	struct hg_l7_counters *mem = aligned_alloc(64, 3 * 2 * sizeof(*mem)), sum;
	struct stats_area a;
	struct stats_row r[4];

	memset(mem, 0xff, 3 * 2 * sizeof(*mem)); /* left over from another process */
	stats_area_init(&a, mem, 3, 2);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(stats_row_take(&a, HG_L7_SERVER, &r[i]), 0);
		assert_int_equal(r[i].id, i);
		assert_ptr_equal(r[i].rows, &mem[i * 2]);
		assert_int_equal(r[i].rows[1].worker, 1);
		assert_int_equal(r[i].rows[1].sessions, 0);
	}
	assert_int_equal(stats_row_take(&a, HG_L7_SERVER, &r[3]), -ENOSPC);
	STATS_ADD(&r[1].rows[0].sessions, 3);
	STATS_ADD(&r[1].rows[1].sessions, 4);
	STATS_ADD(&r[1].rows[0].cur_sessions, 2);
	STATS_ADD(&r[1].rows[1].cur_sessions, -1);
	STATS_MAX(&r[1].rows[0].last_session_s, 50u);
	STATS_MAX(&r[1].rows[1].last_session_s, 40u);
	STATS_MAX(&r[1].rows[1].max_queue, 9u);
	STATS_MAX(&r[1].rows[1].max_queue, 5u);
	stats_row_sum(&a, &r[1], &sum);
	assert_int_equal(sum.sessions, 7);
	assert_int_equal(sum.cur_sessions, 1);
	assert_int_equal(sum.last_session_s, 50);
	assert_int_equal(sum.max_queue, 9);
	assert_int_equal(sum.kind, HG_L7_SERVER);
	/* given back, and taken by another name: from zero */
	stats_row_put(&a, &r[1]);
	assert_null(r[1].rows);
	stats_row_put(&a, &r[1]);
	stats_row_sum(&a, &r[1], &sum);
	assert_int_equal(sum.sessions, 0);
	assert_int_equal(stats_row_take(&a, HG_L7_BACKEND, &r[1]), 0);
	assert_int_equal(r[1].id, 1);
	assert_int_equal(r[1].rows[0].sessions, 0);
	assert_int_equal(stats_row_take(&a, HG_L7_SERVER, &r[3]), -ENOSPC);
	free(mem);
	stats_area_init(&a, NULL, 7, 2);
	assert_int_equal(stats_row_take(&a, HG_L7_SERVER, &r[0]), -ENOSPC);
}

/* --- limits per second ----------------------------------------------------------------------------- */

#define MS 1000000ull

/* Somebody who tries all the time: how many pass in each of the next `n` seconds. */
static void rush(struct rate_gate *g, uint64_t from_ms, unsigned n, unsigned *passed)
{
	for (uint64_t ms = 0; ms < n * 1000ull; ms++) {
		uint64_t now = (from_ms + ms) * MS, wait = 0;

		if (ms % 1000 == 0)
			passed[ms / 1000] = 0;
		while (rate_gate_is_open(g, now, &wait)) {
			rate_gate_count(g, now);
			passed[ms / 1000]++;
		}
		assert_true(wait >= MS && wait <= 2000 * MS);
	}
}

static void test_rate_gate(void **state)
{
	struct rate_gate g = { 0 };
	uint64_t wait, now = 70000500 * MS;
	unsigned passed[4];

	/* no limit: open, and nothing is counted */
	rate_gate_count(&g, now);
	assert_true(rate_gate_is_open(&g, now, NULL));
	assert_int_equal(g.word, 0);
	rate_gate_apply(&g, 100);
	rush(&g, 70000000, 4, passed);
	assert_int_equal(passed[0], 100);
	for (unsigned i = 1; i < 4; i++)
		assert_in_range(passed[i], 95, 101);
	/* a window that slides: 100 at the end of a second leave little at the beginning of the next */
	g.word = 0;
	for (unsigned i = 0; i < 100; i++)
		rate_gate_count(&g, 80000990 * MS);
	assert_false(rate_gate_is_open(&g, 80000995 * MS, &wait));
	assert_in_range(wait, 5 * MS, 30 * MS);
	assert_false(rate_gate_is_open(&g, 80001000 * MS, &wait));
	assert_true(rate_gate_is_open(&g, 80001000 * MS + wait, NULL));
	for (unsigned i = 0; i < 50; i++)
		rate_gate_count(&g, 80001500 * MS);
	assert_false(rate_gate_is_open(&g, 80001500 * MS, &wait));
	assert_true(rate_gate_is_open(&g, 80001500 * MS + wait, NULL));
	/* a clock that is behind counts in the newest second */
	assert_false(rate_gate_is_open(&g, 80000999 * MS, NULL));
	/* long ago is over */
	assert_true(rate_gate_is_open(&g, 80004000 * MS, NULL));
	/* the file's limit again and again leaves alone what the runtime API said; a new one does not */
	atomic_store(&g.limit, 7);
	rate_gate_apply(&g, 100);
	assert_int_equal(g.limit, 7);
	rate_gate_apply(&g, 5);
	assert_int_equal(g.limit, 5);
	g.word = 0;
	rush(&g, 90000000, 4, passed);
	for (unsigned i = 0; i < 4; i++)
		assert_in_range(passed[i], 4, 6);
}

/* --- texts ------------------------------------------------------------------------------------------- */

static void test_status_text(void **state)
{
	static const struct {
		uint8_t op, admin;
		bool is_checked;
		uint32_t health; /* rise 2, fall 3 */
		const char *track, *text;
	} t[] = {
		{ SERVER_RUNNING, 0, false, 0, NULL, "no check" },
		{ SERVER_RUNNING, 0, true, 4, NULL, "UP" },
		{ SERVER_STARTING, 0, true, 4, NULL, "UP" },
		{ SERVER_RUNNING, 0, true, 3, NULL, "UP 2/3" },
		{ SERVER_RUNNING, 0, true, 2, NULL, "UP 1/3" },
		{ SERVER_STOPPED, 0, true, 0, NULL, "DOWN" },
		{ SERVER_STOPPED, 0, true, 1, NULL, "DOWN 1/2" },
		{ SERVER_STOPPED, 0, false, 1, NULL, "DOWN" },
		{ SERVER_STOPPING, 0, true, 4, NULL, "NOLB" },
		{ SERVER_STOPPING, 0, true, 3, NULL, "NOLB 2/3" },
		{ SERVER_STOPPING, 0, false, 0, NULL, "NOLB" },
		{ SERVER_RUNNING, SERVER_FORCED_DRAIN, true, 4, NULL, "DRAIN" },
		{ SERVER_RUNNING, SERVER_INHERITED_DRAIN, true, 2, NULL, "DRAIN 1/3" },
		{ SERVER_RUNNING, SERVER_FORCED_DRAIN, false, 0, NULL, "DRAIN" },
		{ SERVER_STOPPED, SERVER_FORCED_DRAIN, true, 1, NULL, "DOWN 1/2" },
		{ SERVER_RUNNING, SERVER_FORCED_MAINT, true, 4, NULL, "MAINT" },
		{ SERVER_STOPPED, SERVER_CONFIG_MAINT, true, 0, NULL, "MAINT" },
		{ SERVER_RUNNING, SERVER_FORCED_MAINT | SERVER_FORCED_DRAIN, true, 4, NULL,
		  "MAINT" },
		{ SERVER_RUNNING, SERVER_RESOLUTION_MAINT, true, 4, NULL, "MAINT (resolution)" },
		{ SERVER_RUNNING, SERVER_INHERITED_MAINT, true, 4, "b/x", "MAINT (via b/x)" },
		{ SERVER_RUNNING, SERVER_INHERITED_MAINT, true, 4, "x", "MAINT (via be/x)" },
	};
	struct fx f;
	char out[64], tiny[4];

	fx_init(&f, 1, 1);
	fx_commit(&f);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct server *s = fx_srv(&f, 0);

		atomic_store(&s->op, t[i].op);
		atomic_store(&s->admin, t[i].admin);
		s->check.is_enabled = t[i].is_checked;
		s->check.health = t[i].health;
		f.s.cs[0].track = (char *)(uintptr_t)t[i].track;
		assert_int_equal(server_status_text(s, out, sizeof(out)), strlen(t[i].text));
		assert_string_equal(out, t[i].text);
		assert_int_equal(server_status_text(s, tiny, sizeof(tiny)),
				 strlen(t[i].text) < 3 ? strlen(t[i].text) : 3);
	}
	assert_string_equal(check_status_code(CHECK_STATUS_L4OK), "L4OK");
	assert_string_equal(check_status_text(CHECK_STATUS_L7STS), "Layer7 wrong status");
	assert_string_equal(check_status_code((enum check_status)14), "UNK");
	fx_fini(&f);
}

/* --- states ------------------------------------------------------------------------------------------ */

static void test_changes_are_noted(void **state)
{
	struct fx f;
	struct server *s;
	uint64_t now;

	fx_init(&f, 1, 2);
	f.s.cs[0].has_check = true;
	fx_commit(&f);
	s = fx_srv(&f, 0);
	assert_int_equal(s->check.health, 2);
	assert_int_equal(s->check.status, CHECK_STATUS_INI);
	assert_int_equal(fx_srv(&f, 1)->check.status, CHECK_STATUS_UNKNOWN);
	assert_int_equal(f.be->n_active, 2);
	now = (uint64_t)time(NULL);
	s->check.last_change_s = 0;
	server_set_op(&f.r, s, SERVER_STOPPED);
	assert_in_range(s->check.last_change_s, now, now + 5);
	assert_int_equal(s->check.n_down, 1);
	assert_int_equal(f.be->n_active, 1);
	assert_int_equal(f.be->n_down_times, 0);
	server_set_op(&f.r, s, SERVER_STOPPED); /* no news */
	assert_int_equal(s->check.n_down, 1);
	server_set_admin(&f.r, fx_srv(&f, 1), SERVER_FORCED_MAINT, 0);
	assert_int_equal(fx_srv(&f, 1)->check.n_down, 0); /* on purpose */
	assert_int_equal(f.be->n_active, 0);
	assert_int_equal(f.be->n_down_times, 1);
	assert_int_not_equal(f.be->down_since_s, 0);
	f.be->down_since_s -= 10;
	s->check.down_since_s -= 20;
	server_set_op(&f.r, s, SERVER_RUNNING);
	assert_in_range(f.be->downtime_s, 10, 15);
	assert_in_range(s->check.downtime_s, 20, 25);
	assert_int_equal(f.be->down_since_s, 0);
	fx_fini(&f);
}

static void test_weight_limits(void **state)
{
	struct fx f;
	struct err err;

	fx_init(&f, 1, 1);
	fx_commit(&f);
	assert_int_equal(server_set_weight(&f.r, fx_srv(&f, 0), 257, &err), -ERANGE);
	assert_string_equal(err.text, "weight 257: expected 0 to 256");
	assert_int_equal(fx_srv(&f, 0)->uweight, 1);
	assert_int_equal(server_set_weight(&f.r, fx_srv(&f, 0), 256, &err), 0);
	assert_int_equal(fx_srv(&f, 0)->weight, 4096);
	assert_int_equal(fx_srv(&f, 0)->iweight, 1);
	fx_fini(&f);
}

/* A burst of changes rebuilds once. */
static void test_batch(void **state)
{
	struct fx f;
	struct lb_table *t;

	fx_init(&f, 1, 3);
	fx_commit(&f);
	t = atomic_load(&f.be->table);
	lb_batch_begin(&f.r);
	lb_batch_begin(&f.r);
	server_set_op(&f.r, fx_srv(&f, 0), SERVER_STOPPED);
	server_set_op(&f.r, fx_srv(&f, 1), SERVER_STOPPED);
	lb_batch_end(&f.r);
	assert_ptr_equal(atomic_load(&f.be->table), t);
	assert_int_equal(f.be->n_active, 3);
	lb_batch_end(&f.r);
	assert_ptr_not_equal(atomic_load(&f.be->table), t);
	assert_int_equal(f.be->n_active, 1);
	assert_int_equal(f.n_calls, 1); /* one old table */
	fx_fini(&f);
}

/* --- reloads ----------------------------------------------------------------------------------------- */

/* A further configuration beside that of the fixture. */
struct gen {
	struct conf conf;
	struct fx_section s, s2;
	struct arena arena;
	struct lb_backend **backends;
};

static void gen_init(struct gen *g, unsigned n_servers)
{
	fx_conf_init(&g->conf);
	fx_section_init(&g->s, &g->conf, "be", n_servers);
	arena_init(&g->arena, 4096);
}

static int gen_prepare(struct fx *f, struct gen *g, struct err *err)
{
	return lb_registry_prepare(&f->r, &g->conf, &g->arena, &g->backends, err);
}

static void gen_commit(struct fx *f, struct gen *g)
{
	struct err err;

	assert_int_equal(gen_prepare(f, g, &err), 0);
	lb_registry_commit(&f->r, &g->conf, g->backends);
}

static void gen_release(struct fx *f, struct gen *g)
{
	lb_registry_release(&f->r, g->backends, g->conf.n_proxies);
	arena_free(&g->arena);
}

/* End of a fixture whose own configuration has been released. */
static void fx_end(struct fx *f)
{
	fx_deliver(f);
	assert_int_equal(f->r.n_servers, 0);
	assert_int_equal(f->r.n_backends, 0);
	assert_true(list_is_empty(&f->r.zombies));
	fx_registry_fini(f);
}

static void test_reload_keeps_state(void **state)
{
	struct fx f;
	struct gen g;
	struct server *s1, *s2;
	struct lb_backend *be;

	fx_init(&f, 2, 3);
	fx_commit(&f);
	be = f.be;
	s1 = fx_srv(&f, 0);
	s2 = fx_srv(&f, 1);
	server_set_op(&f.r, s1, SERVER_STOPPED);
	s1->check.health = 0;
	assert_int_equal(server_set_weight(&f.r, s2, 7, NULL), 0);
	server_set_maxconn(&f.r, s2, 55);
	STATS_ADD(&s1->w[1].ctr->sessions, 42);

	/* s1 and s2 change places, s3 is gone, s4 is new */
	gen_init(&g, 3);
	strcpy(g.s.names[0], "s2");
	strcpy(g.s.names[1], "s1");
	strcpy(g.s.names[2], "s4");
	g.s.cs[0].ep.addr = f.s.cs[1].ep.addr;
	g.s.cs[1].ep.addr = f.s.cs[0].ep.addr;
	gen_commit(&f, &g);
	assert_ptr_equal(g.backends[0], be);
	assert_ptr_equal(be->servers[0], s2);
	assert_ptr_equal(be->servers[1], s1);
	assert_ptr_equal(lb_find_server(&f.r, STR("be"), STR("s4")), be->servers[2]);
	assert_int_equal(s1->op, SERVER_STOPPED);
	assert_int_equal(s2->uweight, 7);
	assert_int_equal(s2->maxconn, 55);
	assert_int_equal(s1->w[1].ctr->sessions, 42);
	assert_ptr_equal(s1->conf, &g.s.cs[1]);
	assert_int_equal(s1->addr_generation, 0);
	assert_int_equal(be->n_active, 2);
	/* s3 still belongs to streams of the old configuration */
	assert_non_null(lb_find_server(&f.r, STR("be"), STR("s3")));
	assert_true(lb_find_server(&f.r, STR("be"), STR("s3"))->is_removed);
	assert_null(lb_server_of(be, &f.s.cs[2]));
	assert_ptr_equal(lb_server_of(be, &f.s.cs[0]), s1);
	lb_registry_release(&f.r, f.backends, 1);
	assert_null(lb_find_server(&f.r, STR("be"), STR("s3")));
	gen_release(&f, &g);
	fx_end(&f);
}

/* What the configuration changes wins; what it leaves alone stays as people set it. */
static void test_reload_applies_changes(void **state)
{
	struct fx f;
	struct gen g;
	struct server *s;
	struct addr a;

	fx_init(&f, 1, 2);
	f.s.cs[1].is_disabled = true;
	f.s.cs[1].has_check = true;
	fx_commit(&f);
	s = fx_srv(&f, 0);
	assert_int_equal(fx_srv(&f, 1)->admin, SERVER_CONFIG_MAINT);
	assert_int_equal(server_set_weight(&f.r, s, 9, NULL), 0);
	server_set_op(&f.r, fx_srv(&f, 1), SERVER_STOPPED);
	gen_init(&g, 2);
	g.s.cs[0].weight = 3;
	g.s.cs[0].maxconn = 12;
	g.s.cs[0].is_backup = true;
	g.s.cs[0].is_disabled = true;
	assert_int_equal(addr_parse_ip(STR("192.0.2.9"), &g.s.cs[0].ep.addr), 0);
	gen_commit(&f, &g);
	assert_int_equal(s->uweight, 3);
	assert_int_equal(s->weight, 48);
	assert_int_equal(s->maxconn, 12);
	assert_true(s->is_backup);
	assert_int_equal(s->admin, SERVER_CONFIG_MAINT);
	assert_int_equal(server_get_addr(s, &a), 2);
	assert_int_equal(ntohl(a.in.sin_addr.s_addr), 0xc0000209);
	/* no longer disabled, no longer checked: nothing but us could bring it up */
	assert_int_equal(f.be->servers[1]->admin, 0);
	assert_int_equal(f.be->servers[1]->op, SERVER_RUNNING);
	/* enable server */
	server_set_admin(&f.r, s, 0, SERVER_FORCED_MAINT);
	assert_int_equal(s->admin, 0);
	lb_registry_release(&f.r, f.backends, 1);
	gen_release(&f, &g);
	fx_end(&f);
}

/* Gone and back while somebody still holds it: the same object. */
static void test_server_returns(void **state)
{
	struct fx f;
	struct gen g1, g2;
	struct server *s2;

	fx_init(&f, 1, 2);
	fx_commit(&f);
	s2 = fx_srv(&f, 1);
	gen_init(&g1, 1);
	gen_commit(&f, &g1);
	assert_true(s2->is_removed);
	assert_null(s2->conf);
	gen_init(&g2, 2);
	gen_commit(&f, &g2);
	assert_false(s2->is_removed);
	assert_ptr_equal(f.be->servers[1], s2);
	/* snapshots may die in any order */
	gen_release(&f, &g1);
	lb_registry_release(&f.r, f.backends, 1);
	fx_deliver(&f);
	assert_ptr_equal(lb_find_server(&f.r, STR("be"), STR("s2")), s2);
	gen_release(&f, &g2);
	fx_end(&f);
}

static void test_backend_goes(void **state)
{
	struct fx f;
	struct gen g;
	struct lb_request rq;
	struct server *s;

	fx_init(&f, 1, 2);
	fx_commit(&f);
	gen_init(&g, 1);
	g.s.px.name = (char[]){ "other" };
	gen_commit(&f, &g);
	/* streams of the old configuration go on, state changes included */
	rq = fx_rq(&f);
	assert_int_equal(lb_pick(f.be, &rq, &s), LB_PICKED);
	server_release(f.be, s, 0);
	server_set_op(&f.r, s, SERVER_STOPPED);
	assert_int_equal(lb_pick(f.be, &rq, &s), LB_PICKED);
	server_release(f.be, s, 0);
	assert_int_equal(s->op, SERVER_RUNNING);
	lb_registry_release(&f.r, f.backends, 1);
	fx_deliver(&f);
	assert_null(lb_find_backend(&f.r, STR("be")));
	gen_release(&f, &g);
	fx_end(&f);
}

static void test_abort_leaves_nothing(void **state)
{
	struct fx f;
	struct gen g;
	struct err err;
	struct lb_table *t;

	fx_init(&f, 1, 2);
	fx_commit(&f);
	t = atomic_load(&f.be->table);
	gen_init(&g, 5);
	fx_section_init(&g.s2, &g.conf, "second", 3);
	assert_int_equal(gen_prepare(&f, &g, &err), 0);
	assert_null(lb_find_backend(&f.r, STR("second")));
	assert_null(lb_find_server(&f.r, STR("be"), STR("s5")));
	assert_int_equal(f.be->n_servers, 2);
	lb_registry_abort(&f.r, &g.conf, g.backends);
	arena_free(&g.arena);
	assert_int_equal(f.r.n_servers, 2);
	assert_int_equal(f.r.n_backends, 1);
	assert_int_equal(f.be->n_servers, 2);
	assert_ptr_equal(atomic_load(&f.be->table), t);
	assert_int_equal(f.backends_area.n_free, 7); /* rows came back */
	lb_registry_release(&f.r, f.backends, 1);
	fx_end(&f);
}

static void test_names_must_differ(void **state)
{
	struct fx f;
	struct gen g;
	struct err err;

	fx_init(&f, 1, 1);
	fx_commit(&f);
	gen_init(&g, 3);
	strcpy(g.s.names[2], "s2");
	assert_int_equal(gen_prepare(&f, &g, &err), -EEXIST);
	arena_free(&g.arena);
	gen_init(&g, 1);
	fx_section_init(&g.s2, &g.conf, "be", 1);
	assert_int_equal(gen_prepare(&f, &g, &err), -EEXIST);
	arena_free(&g.arena);
	/* a frontend may share the name of a backend */
	gen_init(&g, 1);
	fx_section_init(&g.s2, &g.conf, "be", 0);
	g.s2.px.caps = CONF_CAP_FRONTEND;
	gen_commit(&f, &g);
	assert_ptr_equal(g.backends[0], f.be);
	assert_ptr_not_equal(g.backends[1], f.be);
	assert_null(g.backends[1]->stats.rows);
	assert_non_null(g.backends[1]->fe_stats.rows);
	assert_ptr_equal(lb_find_backend(&f.r, STR("be")), f.be);
	lb_registry_release(&f.r, f.backends, 1);
	gen_release(&f, &g);
	fx_end(&f);
}

static void test_rows_run_out(void **state)
{
	struct fx f;
	struct gen g;
	struct err err;

	fx_init(&f, 1, 2); /* 18 rows, 3 taken */
	fx_commit(&f);
	gen_init(&g, 20);
	assert_int_equal(gen_prepare(&f, &g, &err), -ENOSPC);
	assert_string_equal(err.text, "server be/s18: no statistics row left, 18 are in use");
	arena_free(&g.arena);
	assert_int_equal(f.r.n_servers, 2);
	lb_registry_release(&f.r, f.backends, 1);
	fx_end(&f);
}

/* Every allocation of a reload fails once: all or nothing, and nothing leaks. */
static void test_reload_out_of_memory(void **state)
{
	static const uint8_t algos[] = { BALANCE_ROUNDROBIN, BALANCE_STATIC_RR, BALANCE_HASH,
					 BALANCE_MAGLEV, BALANCE_LEASTCONN };
	bool is_through = false;

	for (uint64_t n = 1; !is_through; n++) {
		struct fx f;
		struct gen g;
		struct err err;
		struct lb_request rq;
		struct server *s;
		int rc;

		fx_init(&f, 2, 2);
		f.s.px.balance.algo = algos[n % ARRAY_SIZE(algos)];
		fx_commit(&f);
		gen_init(&g, 4);
		g.s.px.balance.algo = f.s.px.balance.algo;
		g.s.px.balance.hash_type = HASH_CONSISTENT;
		strcpy(g.s.names[1], "s9"); /* s2 goes */
		fx_section_init(&g.s2, &g.conf, "second", 2);
		mem_fail_at(n);
		rc = gen_prepare(&f, &g, &err);
		if (rc == 0)
			lb_registry_commit(&f.r, &g.conf, g.backends);
		is_through = mem_alloc_count() < n;
		mem_fail_at(0);
		assert_true(rc == 0 || rc == -ENOMEM);
		rq = fx_rq(&f);
		rq.has_hash = true;
		if (rc != 0) {
			assert_int_equal(f.r.n_servers, 2);
			assert_int_equal(f.be->n_servers, 2);
		} else {
			assert_int_equal(f.be->n_servers, 4);
			lb_registry_release(&f.r, f.backends, 1);
			fx_deliver(&f);
			/* a table that could not be made has been by now */
			assert_int_equal(lb_rebuild_stale(&f.r), 0);
			fx_deliver(&f);
			assert_true(list_is_empty(&f.r.zombies));
		}
		for (unsigned i = 0; i < 8; i++) {
			rq.hash = lb_hash_avalanche(i);
			assert_int_equal(lb_pick(f.be, &rq, &s), LB_PICKED);
			server_release(f.be, s, 0);
		}
		if (rc == 0) {
			gen_release(&f, &g);
		} else {
			arena_free(&g.arena);
			lb_registry_release(&f.r, f.backends, 1);
		}
		fx_end(&f);
		assert_in_range(n, 0, 500);
	}
}

/* Memory stays short when the old snapshot dies: its servers are kept as long as a table names them. */
static void test_release_out_of_memory(void **state)
{
	struct fx f;
	struct gen g;
	struct err err;
	struct lb_request rq;
	struct server *s;

	fx_init(&f, 1, 2);
	fx_commit(&f);
	gen_init(&g, 1);
	assert_int_equal(gen_prepare(&f, &g, &err), 0);
	mem_fail_at(1);
	lb_registry_commit(&f.r, &g.conf, g.backends);
	assert_true(f.be->is_stale);
	mem_fail_at(1);
	lb_registry_release(&f.r, f.backends, 1);
	mem_fail_at(0);
	fx_deliver(&f);
	assert_false(list_is_empty(&f.r.zombies));
	rq = (struct lb_request){ .px = &g.s.px };
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(lb_pick(f.be, &rq, &s), LB_PICKED);
		server_release(f.be, s, 0);
	}
	assert_int_equal(lb_rebuild_stale(&f.r), 0);
	fx_deliver(&f);
	assert_true(list_is_empty(&f.r.zombies));
	gen_release(&f, &g);
	fx_end(&f);
}

/* A table that cannot be built leaves the old one, at every allocation of every algorithm. */
static void test_rebuild_out_of_memory(void **state)
{
	for (uint8_t algo = BALANCE_ROUNDROBIN; algo <= BALANCE_PEAK_EWMA; algo++) {
		struct fx f;
		struct lb_table *t;
		int rc = -ENOMEM;

		fx_init(&f, 1, 5);
		f.s.px.balance.algo = algo;
		f.s.px.balance.hash_type = algo % 2;
		fx_commit(&f);
		t = atomic_load(&f.be->table);
		for (uint64_t n = 1; rc != 0; n++) {
			mem_fail_at(n);
			rc = lb_rebuild(&f.r, f.be);
			mem_fail_at(0);
			assert_true(rc == 0 || rc == -ENOMEM);
			assert_int_equal(f.be->is_stale, rc != 0);
			if (rc != 0)
				assert_ptr_equal(atomic_load(&f.be->table), t);
			assert_in_range(n, 1, 20);
		}
		fx_fini(&f);
	}
}

/* Ten thousand servers: found by name in a moment, and reloaded as fast. */
#define MANY 10000

static void test_many_servers(void **state)
{
	struct fx f;
	struct conf_server *cs = calloc(MANY, sizeof(*cs));
	char(*names)[16] = calloc(MANY, sizeof(*names));
	struct timespec begin, end;
	struct server *first;
	double seconds;

	memset(&f, 0, sizeof(f));
	fx_conf_init(&f.conf);
	fx_section_init(&f.s, &f.conf, "be", 0);
	fx_registry_init(&f, 1, MANY + 10);
	f.s.px.n_servers = MANY;
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(names[i], sizeof(names[i]), "server%u", i);
		cs[i].proxy = &f.s.px;
		cs[i].name = names[i];
		cs[i].id = i + 1;
		cs[i].pos_in_backend = i;
		cs[i].weight = 1 + i % 3;
		list_push_back(&f.s.px.servers, &cs[i].link);
	}
	clock_gettime(CLOCK_MONOTONIC, &begin);
	fx_commit(&f);
	first = f.be->servers[0];
	for (unsigned i = 0; i < MANY; i++)
		assert_ptr_equal(lb_find_server(&f.r, STR("be"), str_from_cstr(names[i])),
				 f.be->servers[i]);
	for (unsigned i = 0; i < 5; i++) {
		struct lb_backend **old = f.backends;

		fx_commit(&f);
		lb_registry_release(&f.r, old, 1);
		fx_deliver(&f);
	}
	assert_ptr_equal(f.be->servers[0], first);
	lb_batch_begin(&f.r);
	for (unsigned i = 0; i < MANY; i += 2)
		server_set_op(&f.r, f.be->servers[i], SERVER_STOPPED);
	lb_batch_end(&f.r);
	assert_int_equal(f.be->n_active, MANY / 2);
	fx_fini(&f);
	clock_gettime(CLOCK_MONOTONIC, &end);
	seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
	/* well under a second; quadratic anything would be a minute, and sanitizers are slow */
	if (seconds > 20)
		fail_msg("%.1f s", seconds);
	free(cs);
	free(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stats_rows),
		cmocka_unit_test(test_rate_gate),
		cmocka_unit_test(test_status_text),
		cmocka_unit_test(test_changes_are_noted),
		cmocka_unit_test(test_weight_limits),
		cmocka_unit_test(test_batch),
		cmocka_unit_test(test_reload_keeps_state),
		cmocka_unit_test(test_reload_applies_changes),
		cmocka_unit_test(test_server_returns),
		cmocka_unit_test(test_backend_goes),
		cmocka_unit_test(test_abort_leaves_nothing),
		cmocka_unit_test(test_names_must_differ),
		cmocka_unit_test(test_rows_run_out),
		cmocka_unit_test(test_reload_out_of_memory),
		cmocka_unit_test(test_release_out_of_memory),
		cmocka_unit_test(test_rebuild_out_of_memory),
		cmocka_unit_test(test_many_servers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
