/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `add server`, `del server`: who is found and picked, and when memory is given back.
 *
 * links: lb base ev
 */
#include "unit/lb_fixture.h"

#include <errno.h>

struct added {
	struct server_own own;
	struct conf_server line;
	unsigned n_destroyed;
};

static void note_destroyed(struct server_own *own)
{
	container_of(own, struct added, own)->n_destroyed++;
}

static void added_init(struct added *a, struct fx *f, const char *name, unsigned id)
{
	memset(a, 0, sizeof(*a));
	a->line = f->s.cs[0];
	a->line.name = (char *)(uintptr_t)name;
	a->line.id = id;
	a->line.has_check = true;
	a->own.line = &a->line;
	a->own.destroy = note_destroyed;
}

static struct server *add(struct fx *f, struct added *a)
{
	struct err err = { "" };
	struct server *s = NULL;

	if (lb_add_server(&f->r, f->be, &a->own, &s, &err) != 0)
		fail_msg("%s", err.text);
	return s;
}

/* How often `s` is picked in 12 requests. */
static unsigned picks_of(struct fx *f, const struct server *s)
{
	struct lb_request rq = fx_rq(f);
	unsigned n = 0;

	for (unsigned i = 0; i < 12; i++) {
		struct server *got = NULL;

		if (lb_pick(f->be, &rq, &got) != LB_PICKED)
			continue;
		n += got == s;
		server_release(f->be, got, 0);
	}
	return n;
}

static void test_comes_and_goes(void **state)
{
	static const uint8_t algos[] = { BALANCE_ROUNDROBIN, BALANCE_STATIC_RR, BALANCE_LEASTCONN,
					 BALANCE_RANDOM };

	for (size_t i = 0; i < ARRAY_SIZE(algos); i++) {
		unsigned pos = 0, n_free;
		struct server *s;
		struct added a;
		struct fx f;

		fx_init(&f, 2, 2);
		f.s.px.balance.algo = algos[i];
		fx_commit(&f);
		n_free = f.backends_area.n_free;
		added_init(&a, &f, "d1", 7);
		s = add(&f, &a);
		fx_deliver(&f);
		/* in maintenance, unchecked, and known */
		assert_int_equal(s->admin, SERVER_FORCED_MAINT);
		assert_false(s->check.is_enabled);
		assert_int_equal(s->id, 7);
		assert_int_equal(picks_of(&f, s), 0);
		assert_ptr_equal(lb_find_server(&f.r, STR("be"), STR("d1")), s);
		assert_ptr_equal(lb_server_of(f.be, &a.line), s);
		assert_ptr_equal(lb_find_line(f.be, &a.line), s);
		assert_ptr_equal(lb_added_server(f.be, &pos), s);
		assert_int_equal(pos, 2);
		pos++;
		assert_null(lb_added_server(f.be, &pos));
		assert_ptr_equal(lb_server_at(f.be, 2), s);
		assert_null(lb_server_at(f.be, 3));
		server_set_admin(&f.r, s, 0, SERVER_FORCED_MAINT);
		fx_deliver(&f);
		assert_in_range(picks_of(&f, s), 1, 11);
		server_set_admin(&f.r, s, SERVER_FORCED_MAINT, 0);
		assert_int_equal(lb_remove_server(&f.r, s), 0);
		assert_int_equal(f.be->n_servers, 2);
		assert_int_equal(picks_of(&f, s), 0);
		assert_false(lb_has_server(f.be, s));
		assert_null(lb_find_server(&f.r, STR("be"), STR("d1")));
		assert_null(lb_server_of(f.be, &a.line));
		pos = 0;
		assert_null(lb_added_server(f.be, &pos));
		/* freed when every stream that is alive began after it was seen to be gone */
		lb_bury_removed(&f.r, 1000, 2000);
		fx_deliver(&f);
		lb_bury_removed(&f.r, 1500, 1000);
		fx_deliver(&f);
		assert_int_equal(a.n_destroyed, 0);
		lb_bury_removed(&f.r, 2000, 1001);
		assert_int_equal(a.n_destroyed,
				 0); /* workers are about to close its idle connections */
		fx_deliver(&f);
		assert_int_equal(a.n_destroyed, 1);
		assert_int_equal(f.backends_area.n_free, n_free + 1);
		fx_fini(&f);
	}
}

/* One of a file goes, another comes under its name; a reload returns to what the file says. */
static void test_name_is_taken_over(void **state)
{
	struct server *s, *old;
	struct fx_section again;
	struct lb_backend **first;
	struct conf conf;
	struct added a;
	struct fx f;

	fx_init(&f, 2, 2);
	fx_commit(&f);
	old = fx_srv(&f, 0);
	assert_int_equal(lb_remove_server(&f.r, old), 0);
	assert_null(lb_server_of(f.be, &f.s.cs[0]));
	assert_null(lb_find_line(f.be, &f.s.cs[0]));
	assert_ptr_equal(lb_server_of(f.be, &f.s.cs[1])->conf, &f.s.cs[1]);
	added_init(&a, &f, "s1", 1);
	s = add(&f, &a);
	assert_ptr_not_equal(s, old);
	/* the line of the file is not the one that was added, whatever its name */
	assert_null(lb_server_of(f.be, &f.s.cs[0]));
	assert_ptr_equal(lb_server_of(f.be, &a.line), s);
	assert_ptr_equal(lb_find_server(&f.r, STR("be"), STR("s1")), s);
	fx_deliver(&f);
	fx_conf_init(&conf);
	fx_section_init(&again, &conf, "be", 2);
	first = f.backends;
	f.conf.n_proxies = 1;
	{
		struct lb_backend **next;
		struct err err;

		assert_int_equal(lb_registry_prepare(&f.r, &conf, &f.arena, &next, &err), 0);
		lb_registry_commit(&f.r, &conf, next);
		f.backends = next;
	}
	assert_int_equal(f.be->n_servers, 2);
	assert_ptr_equal(lb_server_of(f.be, &again.cs[0])->conf, &again.cs[0]);
	assert_ptr_not_equal(fx_srv(&f, 0), s);
	assert_ptr_not_equal(fx_srv(&f, 0), old);
	assert_null(fx_srv(&f, 0)->own);
	assert_int_equal(fx_srv(&f, 0)->admin, 0);
	lb_registry_release(&f.r, first, 1);
	fx_deliver(&f);
	assert_int_equal(a.n_destroyed, 0); /* streams may know it */
	lb_bury_removed(&f.r, 1000, 1000);
	lb_bury_removed(&f.r, 1000, 2000);
	fx_deliver(&f);
	assert_int_equal(a.n_destroyed, 1);
	assert_int_equal(f.r.n_servers, 2);
	fx_fini(&f);
}

/* Every line finds its server, and only it, whichever have gone. */
static void test_lines_after_deletions(void **state)
{
	static const unsigned gone[] = { 0, 5, 6, 19, 12 };
	struct added a;
	struct fx f;

	fx_init(&f, 1, 20);
	fx_commit(&f);
	added_init(&a, &f, "d1", 40);
	add(&f, &a);
	for (size_t i = 0; i < ARRAY_SIZE(gone); i++) {
		struct server *s = lb_server_of(f.be, &f.s.cs[gone[i]]);

		assert_int_equal(lb_remove_server(&f.r, s), 0);
		for (unsigned k = 0; k < 20; k++) {
			bool is_gone = false;

			for (size_t j = 0; j <= i; j++)
				is_gone |= gone[j] == k;
			s = lb_server_of(f.be, &f.s.cs[k]);
			assert_int_equal(s == NULL, is_gone);
			assert_ptr_equal(s, lb_find_line(f.be, &f.s.cs[k]));
			assert_true(!s || s->conf == &f.s.cs[k]);
		}
		assert_ptr_equal(lb_server_of(f.be, &a.line)->own, &a.own);
	}
	fx_fini(&f);
}

/* Its section leaves the configuration: old streams go on with both, then both are freed. */
static void test_section_goes(void **state)
{
	struct lb_request rq;
	struct lb_backend **first, **next;
	struct fx_section other;
	struct server *s, *got;
	struct conf conf;
	struct err err;
	struct added a;
	struct fx f;

	fx_init(&f, 1, 1);
	fx_commit(&f);
	added_init(&a, &f, "d1", 2);
	s = add(&f, &a);
	server_set_admin(&f.r, s, 0, SERVER_FORCED_MAINT);
	server_set_op(&f.r, fx_srv(&f, 0), SERVER_STOPPED);
	fx_deliver(&f);
	fx_conf_init(&conf);
	fx_section_init(&other, &conf, "other", 1);
	first = f.backends;
	assert_int_equal(lb_registry_prepare(&f.r, &conf, &f.arena, &next, &err), 0);
	lb_registry_commit(&f.r, &conf, next);
	rq = fx_rq(&f);
	assert_int_equal(lb_pick(f.be, &rq, &got), LB_PICKED);
	assert_ptr_equal(got, s);
	server_release(f.be, got, 0);
	/* a stream of the old configuration may still begin with it */
	lb_bury_removed(&f.r, 1000, 5000);
	lb_bury_removed(&f.r, 2000, 5000);
	fx_deliver(&f);
	assert_int_equal(a.n_destroyed, 0);
	lb_registry_release(&f.r, first, 1);
	fx_deliver(&f);
	assert_non_null(lb_find_backend(&f.r, STR("be")));
	lb_bury_removed(&f.r, 3000, 5000);
	lb_bury_removed(&f.r, 4000, 5000);
	fx_deliver(&f);
	assert_int_equal(a.n_destroyed, 1);
	assert_null(lb_find_backend(&f.r, STR("be")));
	assert_int_equal(f.r.n_backends, 1);
	f.backends = next;
	fx_fini(&f);
}

static void test_out_of_memory(void **state)
{
	bool is_through = false;

	for (uint64_t n = 1; !is_through; n++) {
		struct err err = { "" };
		struct server *s = NULL;
		struct added a;
		struct fx f;
		int rc;

		fx_init(&f, 2, 2);
		fx_commit(&f);
		added_init(&a, &f, "d1", 3);
		mem_fail_at(n);
		rc = lb_add_server(&f.r, f.be, &a.own, &s, &err);
		is_through = mem_alloc_count() < n;
		mem_fail_at(0);
		assert_true(rc == 0 || rc == -ENOMEM);
		assert_int_equal(f.be->n_servers, rc ? 2 : 3);
		assert_int_equal(f.r.n_servers, rc ? 2 : 3);
		assert_int_equal(a.n_destroyed, 0); /* still the caller's when it failed */
		assert_int_equal(lb_rebuild_stale(&f.r), 0);
		fx_deliver(&f);
		if (rc == 0) {
			mem_fail_at(n);
			rc = lb_remove_server(&f.r, s);
			mem_fail_at(0);
			assert_int_equal(f.be->n_servers, rc ? 3 : 2);
			assert_true(rc == 0 || lb_has_server(f.be, s));
		}
		lb_rebuild_stale(&f.r);
		fx_fini(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_comes_and_goes),
		cmocka_unit_test(test_name_is_taken_over),
		cmocka_unit_test(test_lines_after_deletions),
		cmocka_unit_test(test_section_goes),
		cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
