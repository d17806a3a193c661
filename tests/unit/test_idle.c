/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Idle server connections.
 *
 * links: lb base ev
 */
#include "unit/lb_fixture.h"

#include <time.h>

struct idle_fx {
	struct fx f;
	struct loop *loop;
	struct net_worker nw;
	struct conn conns[16];
	struct server *s;
	struct conf_server *cs;
};

static void idle_init(struct idle_fx *i)
{
	fx_init(&i->f, 2, 1);
	fx_commit(&i->f);
	assert_int_equal(loop_create(&i->loop), 0);
	loop_update_clock(i->loop);
	i->nw = (struct net_worker){ .loop = i->loop };
	for (unsigned n = 0; n < ARRAY_SIZE(i->conns); n++) {
		i->conns[n] = (struct conn){ .nw = &i->nw, .state = CONN_OPEN, .uses = 1 };
		i->conns[n].since_ns = loop_now(i->loop);
		list_init(&i->conns[n].link);
	}
	i->s = fx_srv(&i->f, 0);
	i->cs = &i->f.s.cs[0];
	fx_closed = 0;
	fx_idled = 0;
	fx_is_reusable = true;
}

static void idle_fini(struct idle_fx *i)
{
	idle_purge(i->s, 0, 0, true);
	idle_purge(i->s, 1, 0, true);
	assert_int_equal(i->s->w[0].n_idle, 0);
	assert_int_equal(i->s->w[0].ctr->idle_conns, 0);
	loop_destroy(i->loop);
	fx_fini(&i->f);
}

static void put(struct idle_fx *i, unsigned n)
{
	idle_put(i->s, i->cs, 0, &i->conns[n]);
}

static struct conn *get(struct idle_fx *i)
{
	return idle_get(i->s, i->cs, 0, 0);
}

static void test_last_in_first_out(void **state)
{
	struct idle_fx i;

	idle_init(&i);
	assert_null(get(&i));
	for (unsigned n = 0; n < 3; n++)
		put(&i, n);
	assert_int_equal(i.s->w[0].n_idle, 3);
	assert_int_equal(i.s->w[0].ctr->idle_conns, 3);
	assert_int_equal(fx_idled, 3);
	assert_string_equal(i.conns[0].doing, "idle");
	assert_null(idle_get(i.s, i.cs, 1, 0)); /* of the other worker */
	assert_ptr_equal(get(&i), &i.conns[2]);
	put(&i, 3);
	assert_ptr_equal(get(&i), &i.conns[3]);
	assert_ptr_equal(get(&i), &i.conns[1]);
	assert_ptr_equal(get(&i), &i.conns[0]);
	assert_null(get(&i));
	assert_int_equal(fx_closed, 0);
	idle_fini(&i);
}

static void test_dead_ones_are_skipped(void **state)
{
	struct idle_fx i;

	idle_init(&i);
	for (unsigned n = 0; n < 3; n++)
		put(&i, n);
	i.conns[2].peer_closed = true;
	i.conns[1].peer_closed = true;
	assert_ptr_equal(get(&i), &i.conns[0]);
	assert_int_equal(fx_closed, 2);
	assert_int_equal(i.s->w[0].n_idle, 0);
	idle_fini(&i);
}

static void test_what_is_not_kept(void **state)
{
	struct idle_fx i;

	idle_init(&i);
	i.conns[0].is_broken = true;
	i.conns[1].peer_closed = true;
	i.conns[2].state = CONN_HANDSHAKE;
	for (unsigned n = 0; n < 3; n++)
		put(&i, n);
	assert_int_equal(fx_closed, 3);
	server_set_admin(&i.f.r, i.s, SERVER_FORCED_MAINT, 0);
	put(&i, 3);
	assert_int_equal(fx_closed, 4);
	server_set_admin(&i.f.r, i.s, 0, SERVER_FORCED_MAINT);
	put(&i, 4);
	assert_int_equal(fx_closed, 4);
	/* removed by a reload: what is idle goes, nothing new comes */
	atomic_store(&i.s->is_removed, true);
	lb_serve_queue(i.s, 0);
	assert_int_equal(fx_closed, 5);
	put(&i, 5);
	assert_int_equal(fx_closed, 6);
	idle_fini(&i);
}

static void test_pool_max_conn(void **state)
{
	static const struct {
		uint32_t max, kept; /* by one of two workers */
	} t[] = { { UINT32_MAX, 9 }, { 0, 0 }, { 1, 1 }, { 2, 1 }, { 3, 2 }, { 10, 5 } };

	for (size_t v = 0; v < ARRAY_SIZE(t); v++) {
		struct idle_fx i;

		idle_init(&i);
		i.cs->pool_max_conn = t[v].max;
		for (unsigned n = 0; n < 9; n++)
			put(&i, n);
		assert_int_equal(i.s->w[0].n_idle, t[v].kept);
		assert_int_equal(fx_closed, 9 - t[v].kept);
		idle_fini(&i);
	}
}

static void test_max_reuse(void **state)
{
	struct idle_fx i;

	idle_init(&i);
	i.cs->max_reuse = 2;
	i.conns[0].uses = 2; /* reused once */
	i.conns[1].uses = 3; /* twice */
	put(&i, 0);
	put(&i, 1);
	assert_int_equal(i.s->w[0].n_idle, 1);
	assert_int_equal(fx_closed, 1);
	i.cs->max_reuse = 1; /* a reload lowered it */
	assert_null(get(&i));
	assert_int_equal(fx_closed, 2);
	idle_fini(&i);
}

static void test_address_change(void **state)
{
	struct idle_fx i;
	struct addr a;
	struct timespec ms = { .tv_nsec = 3000000 };
	uint32_t before;

	idle_init(&i);
	before = server_get_addr(i.s, &a);
	put(&i, 0);
	put(&i, 1);
	assert_int_equal(addr_parse_ip(STR("192.0.2.77"), &a), 0);
	addr_set_port(&a, 81);
	nanosleep(&ms, NULL);
	server_set_addr(&i.f.r, i.s, &a);
	nanosleep(&ms, NULL);
	/* the same again changes nothing */
	server_set_addr(&i.f.r, i.s, &a);
	assert_null(get(&i));
	assert_int_equal(fx_closed, 2);
	/* was in use during the change: opened before it, put back after it */
	put(&i, 2);
	assert_int_equal(fx_closed, 3);
	/* opened after it */
	loop_update_clock(i.loop);
	i.conns[3].since_ns = loop_now(i.loop);
	put(&i, 3);
	assert_ptr_equal(get(&i), &i.conns[3]);
	memset(&a, 0, sizeof(a));
	assert_int_equal(server_get_addr(i.s, &a), before + 2);
	assert_int_equal(ntohl(a.in.sin_addr.s_addr), 0xc000024d);
	assert_int_equal(addr_port(&a), 81);
	idle_fini(&i);
}

/* A request gets what was opened with the same, the latest first; the others stay. */
static void test_keys(void **state)
{
	const uint64_t keys[] = { 0, 7, 9, 7, 7 + NET_KEY_BUCKETS, 0, 9 };
	struct idle_fx i;

	idle_init(&i);
	for (unsigned n = 0; n < ARRAY_SIZE(keys); n++) {
		i.conns[n].pool_key = keys[n];
		put(&i, n);
	}
	assert_int_equal(i.s->w[0].n_idle, 7);
	assert_null(idle_get(i.s, i.cs, 0, 8));
	assert_ptr_equal(idle_get(i.s, i.cs, 0, 7), &i.conns[3]);
	assert_ptr_equal(idle_get(i.s, i.cs, 0, 7), &i.conns[1]);
	assert_null(idle_get(i.s, i.cs, 0, 7));
	assert_ptr_equal(idle_get(i.s, i.cs, 0, 7 + NET_KEY_BUCKETS), &i.conns[4]);
	assert_ptr_equal(get(&i), &i.conns[5]);
	idle_forget(i.s, 0, &i.conns[6]);
	assert_ptr_equal(idle_get(i.s, i.cs, 0, 9), &i.conns[2]);
	assert_null(idle_get(i.s, i.cs, 0, 9));
	put(&i, 3);
	put(&i, 1);
	i.conns[1].peer_closed = true;
	assert_ptr_equal(idle_get(i.s, i.cs, 0, 7), &i.conns[3]);
	assert_int_equal(fx_closed, 1);
	/* Old ones with and without a key; then all. */
	put(&i, 3);
	put(&i, 4);
	i.conns[0].since_ns = i.conns[3].since_ns = 1;
	idle_purge(i.s, 0, 1, false);
	assert_int_equal(fx_closed, 3);
	assert_int_equal(i.s->w[0].n_idle, 1);
	idle_fini(&i);
	assert_int_equal(fx_closed, 4);
}

static void test_forget(void **state)
{
	struct idle_fx i;

	idle_init(&i);
	for (unsigned n = 0; n < 3; n++)
		put(&i, n);
	idle_forget(i.s, 0, &i.conns[1]);
	idle_forget(i.s, 0, &i.conns[1]); /* harmless */
	idle_forget(i.s, 0, &i.conns[7]); /* was never there */
	assert_int_equal(fx_closed, 0); /* the caller's */
	assert_int_equal(i.s->w[0].n_idle, 2);
	assert_ptr_equal(get(&i), &i.conns[2]);
	assert_ptr_equal(get(&i), &i.conns[0]);
	idle_fini(&i);
}

static void test_purge(void **state)
{
	struct idle_fx i;
	uint64_t now;

	idle_init(&i);
	now = loop_now(i.loop);
	for (unsigned n = 0; n < 8; n++)
		put(&i, n);
	for (unsigned n = 0; n < 5; n++)
		i.conns[n].since_ns = now - 1000 + n; /* five are old */
	idle_purge(i.s, 0, 900, false);
	assert_int_equal(fx_closed, 3); /* half of five */
	assert_int_equal(i.conns[0].state, CONN_CLOSED);
	assert_int_equal(i.conns[2].state, CONN_CLOSED);
	assert_int_equal(i.conns[3].state, CONN_OPEN);
	idle_purge(i.s, 0, 900, false);
	assert_int_equal(fx_closed, 4);
	idle_purge(i.s, 0, 900, false);
	assert_int_equal(fx_closed, 5);
	idle_purge(i.s, 0, 900, false);
	assert_int_equal(fx_closed, 5);
	idle_purge(i.s, 0, 0, true);
	assert_int_equal(fx_closed, 8);
	idle_purge(i.s, 0, 0, true);
	assert_int_equal(fx_closed, 8);
	idle_fini(&i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_last_in_first_out),
		cmocka_unit_test(test_dead_ones_are_skipped),
		cmocka_unit_test(test_what_is_not_kept),
		cmocka_unit_test(test_pool_max_conn),
		cmocka_unit_test(test_max_reuse),
		cmocka_unit_test(test_address_change),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_forget),
		cmocka_unit_test(test_purge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
