/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel tier's writer on plain memory: what dp_sync() makes of configurations and server
 * states, and that every intermediate state is one a packet could meet.
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

#define N_BUCKETS 256
#define N_BLOCKS  4096
#define MAX_IDS	  64

struct fixture {
	struct dp dp;
	struct conf *conf;
	struct arena arena;
	struct lb_registry registry;
	struct stats_area services_area, backends_area;
	struct lb_backend **backends;
};

static void at_once(struct lb_registry *r, void (*call)(void *arg), void *arg)
{
	call(arg);
}

static void ignore(void *ctx, enum conf_severity sev, const struct conf_pos *pos, const char *text)
{
	if (sev == CONF_ERROR)
		print_message("%s:%u: %s\n", pos->file, pos->line, text);
}

static struct fixture *fixture_new(void)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->dp.lock_fd = -1;
	f->dp.prog_fd = -1;
	for (unsigned i = 0; i < DP_MAP_COUNT; i++)
		f->dp.maps[i].fd = -1;
	list_init(&f->dp.free_ranges);
	f->dp.t = (struct dp_tables){
		.services = calloc(2 * N_BUCKETS, sizeof(struct hg_service)),
		.n_buckets = N_BUCKETS,
		.slots = aligned_alloc(64, N_BLOCKS * sizeof(struct hg_slot_block)),
		.n_blocks = N_BLOCKS,
		.backends = calloc(MAX_IDS, sizeof(struct hg_backend)),
		.max_backends = MAX_IDS,
		.control = calloc(1, sizeof(struct hg_control)),
		.max_services = MAX_IDS,
	};
	memset(f->dp.t.slots, 0, N_BLOCKS * sizeof(struct hg_slot_block));
	assert_int_equal(dp_tables_adopt(&f->dp), 0);
	stats_area_init(&f->services_area, aligned_alloc(64, 64 * sizeof(struct hg_l7_counters)),
			64, 1);
	stats_area_init(&f->backends_area, aligned_alloc(64, 64 * sizeof(struct hg_l7_counters)),
			64, 1);
	memset(f->services_area.rows, 0, 64 * sizeof(struct hg_l7_counters));
	memset(f->backends_area.rows, 0, 64 * sizeof(struct hg_l7_counters));
	lb_registry_init(&f->registry, 1, &f->services_area, &f->backends_area);
	f->registry.after_quiescence = at_once;
	return f;
}

static void fixture_conf(struct fixture *f, const char *text)
{
	struct conf_source src = { .report = ignore };
	struct lb_backend **backends;
	struct conf *conf;
	struct arena arena;
	struct err err;

	arena_init(&arena, 4096);
	assert_int_equal(conf_load_text(str_from_cstr(text), "test", &src, &conf), 0);
	assert_int_equal(lb_registry_prepare(&f->registry, conf, &arena, &backends, &err), 0);
	lb_registry_commit(&f->registry, conf, backends);
	if (f->conf) {
		lb_registry_release(&f->registry, f->backends, f->conf->n_proxies);
		conf_free(f->conf);
		arena_free(&f->arena);
	}
	f->conf = conf;
	f->backends = backends;
	f->arena = arena;
}

static void fixture_sync(struct fixture *f)
{
	struct err err = { "" };

	if (dp_sync(&f->dp, f->conf, f->backends, &err) != 0)
		fail_msg("%s", err.text);
}

static void fixture_free(struct fixture *f)
{
	struct dp *dp = &f->dp;
	struct list *l;

	lb_registry_release(&f->registry, f->backends, f->conf->n_proxies);
	conf_free(f->conf);
	arena_free(&f->arena);
	lb_registry_fini(&f->registry);
	for (unsigned i = 0; i < MAX_IDS; i++) {
		mem_free(dp->services[i].name);
		mem_free(dp->backends[i].service_name);
		mem_free(dp->backends[i].server_name);
	}
	while ((l = list_pop_front(&dp->free_ranges)))
		mem_free(list_entry(l, struct dp_range, link));
	mem_free(dp->services);
	mem_free(dp->backends);
	free(dp->t.services);
	free(dp->t.slots);
	free(dp->t.backends);
	free(dp->t.control);
	free(f->services_area.rows);
	free(f->backends_area.rows);
	free(f);
}

/* What the program would find: the live row of tcp@ip:port, or NULL. */
static const struct hg_service *find(const struct fixture *f, const char *ip, uint16_t port)
{
	uint32_t generation = f->dp.t.control->service_generation & 1;
	const struct hg_service *half = f->dp.t.services + (size_t)generation * N_BUCKETS;
	struct hg_service_key k = { .port = htons(port), .proto = IPPROTO_TCP };
	struct addr a;

	assert_int_equal(addr_parse_ip(str_from_cstr(ip), &a), 0);
	addr_to_v6_mapped(&a, (uint8_t *)k.addr);
	for (uint32_t i = 0, h = hg_service_hash(&k); i < HG_SERVICE_PROBES; i++) {
		const struct hg_service *s = &half[(h + i) & (N_BUCKETS - 1)];

		if (s->mode == HG_MODE_EMPTY)
			return NULL;
		if (memcmp(&s->key, &k, sizeof(k)) == 0)
			return s;
	}
	return NULL;
}

/* Slots of each backend id in a service's table; checks that every named id exists. */
static void count_slots(const struct fixture *f, const struct hg_service *s, unsigned n[MAX_IDS])
{
	memset(n, 0, MAX_IDS * sizeof(*n));
	for (uint32_t i = 0; i < s->slots; i++) {
		uint32_t w = f->dp.t.slots[s->slots_block + i / HG_SLOTS_PER_BLOCK]
				     .slot[i % HG_SLOTS_PER_BLOCK];

		assert_in_range(HG_SLOT_CURRENT(w), 1, MAX_IDS - 1);
		assert_true(f->dp.t.backends[HG_SLOT_CURRENT(w)].flags & HG_BE_VALID);
		assert_int_equal(HG_SLOT_BASE(w), HG_SLOT_CURRENT(w));
		n[HG_SLOT_CURRENT(w)]++;
	}
}

#define DEFAULTS "defaults\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n"
#define WEB                                                                                      \
	DEFAULTS "listen web\n mode l4\n bind tcp@192.0.2.20:80\n bind tcp@[2001:db8::20]:80\n " \
		 "forward ipip\n"                                                                \
		 " maglev-table-size 4093\n"

static const char three[] = WEB " server a 10.0.0.1\n server b 10.0.0.2\n server c 10.0.0.3\n";

static unsigned id_of(const struct fixture *f, const char *server)
{
	for (unsigned i = 1; i < MAX_IDS; i++)
		if (f->dp.backends[i].is_used && strcmp(f->dp.backends[i].server_name, server) == 0)
			return i;
	return 0;
}

static void test_first_sync(void **state)
{
	struct fixture *f = fixture_new();
	const struct hg_service *s4, *s6;
	unsigned n[MAX_IDS];

	fixture_conf(f, three);
	fixture_sync(f);
	s4 = find(f, "192.0.2.20", 80);
	s6 = find(f, "2001:db8::20", 80);
	assert_non_null(s4);
	assert_non_null(s6);
	assert_null(find(f, "192.0.2.20", 81));
	assert_int_equal(s4->mode, HG_MODE_IPIP);
	assert_int_equal(s4->slots, 4093);
	assert_int_not_equal(s4->slots_block, s6->slots_block);
	assert_int_not_equal(s4->id, s6->id);
	count_slots(f, s4, n);
	for (unsigned i = 0; i < MAX_IDS; i++)
		assert_true(n[i] == 0 || n[i] == 1364 || n[i] == 1365);
	assert_int_equal(n[id_of(f, "a")] + n[id_of(f, "b")] + n[id_of(f, "c")], 4093);
	fixture_free(f);
}

static void test_nothing_changes_without_reason(void **state)
{
	struct fixture *f = fixture_new();
	uint32_t generation;

	fixture_conf(f, three);
	fixture_sync(f);
	generation = f->dp.t.control->service_generation;
	fixture_sync(f);
	assert_int_equal(f->dp.t.control->service_generation, generation);
	fixture_conf(f, three);
	fixture_sync(f);
	assert_int_equal(f->dp.t.control->service_generation, generation);
	fixture_free(f);
}

static void test_a_server_goes_and_returns(void **state)
{
	struct fixture *f = fixture_new();
	unsigned n[MAX_IDS], b;
	struct hg_service before;
	struct server *srv;

	fixture_conf(f, three);
	fixture_sync(f);
	b = id_of(f, "b");
	before = *find(f, "192.0.2.20", 80);
	srv = f->backends[0]->servers[1];
	server_set_op(&f->registry, srv, SERVER_STOPPED);
	fixture_sync(f);
	assert_int_equal(find(f, "192.0.2.20", 80)->id, before.id);
	assert_int_not_equal(find(f, "192.0.2.20", 80)->slots_block, before.slots_block);
	count_slots(f, find(f, "192.0.2.20", 80), n);
	assert_int_equal(n[b], 0);
	server_set_op(&f->registry, srv, SERVER_RUNNING);
	fixture_sync(f);
	assert_int_equal(id_of(f, "b"), b);
	count_slots(f, find(f, "192.0.2.20", 80), n);
	assert_in_range(n[b], 1364, 1365);
	fixture_free(f);
}

static void test_no_server_left(void **state)
{
	struct fixture *f = fixture_new();

	fixture_conf(f, three);
	fixture_sync(f);
	for (unsigned i = 0; i < 3; i++)
		server_set_op(&f->registry, f->backends[0]->servers[i], SERVER_STOPPED);
	fixture_sync(f);
	/* Still our service: its packets are dropped by name, not handed to the host's TCP. */
	assert_non_null(find(f, "192.0.2.20", 80));
	assert_int_equal(find(f, "192.0.2.20", 80)->slots, 0);
	fixture_free(f);
}

static void test_weights_and_backups(void **state)
{
	struct fixture *f = fixture_new();
	unsigned n[MAX_IDS];

	fixture_conf(f, WEB " server a 10.0.0.1 weight 3\n server b 10.0.0.2 weight 1\n server c "
			    "10.0.0.3 backup\n");
	fixture_sync(f);
	count_slots(f, find(f, "192.0.2.20", 80), n);
	assert_in_range(n[id_of(f, "a")], 3068, 3071);
	assert_in_range(n[id_of(f, "b")], 1022, 1025);
	assert_int_equal(n[id_of(f, "c")], 0);
	server_set_op(&f->registry, f->backends[0]->servers[0], SERVER_STOPPED);
	server_set_op(&f->registry, f->backends[0]->servers[1], SERVER_STOPPED);
	fixture_sync(f);
	count_slots(f, find(f, "192.0.2.20", 80), n);
	assert_int_equal(n[id_of(f, "c")], 4093);
	fixture_free(f);
}

static void test_sections_come_and_go(void **state)
{
	static const char other[] = DEFAULTS
		"listen dns\n mode l4\n bind tcp@192.0.2.53:53\n forward ipip\n"
		" server r 10.0.0.9\n";
	struct fixture *f = fixture_new();

	fixture_conf(f, three);
	fixture_sync(f);
	fixture_conf(f, other);
	fixture_sync(f);
	assert_null(find(f, "192.0.2.20", 80));
	assert_non_null(find(f, "192.0.2.53", 53));
	assert_int_equal(id_of(f, "a"), 0);
	assert_int_not_equal(id_of(f, "r"), 0);
	fixture_free(f);
}

/* Many changes in a row: slot blocks come back, nothing leaks, ids stay in range. */
static void test_space_is_reused(void **state)
{
	struct fixture *f = fixture_new();
	unsigned n[MAX_IDS];

	fixture_conf(f, three);
	for (unsigned i = 0; i < 60; i++) {
		server_set_op(&f->registry, f->backends[0]->servers[i % 3],
			      (i / 3) % 2 ? SERVER_RUNNING : SERVER_STOPPED);
		fixture_sync(f);
		if (find(f, "192.0.2.20", 80)->slots)
			count_slots(f, find(f, "192.0.2.20", 80), n);
	}
	fixture_free(f);
}

/* The next process finds the maps: same ids, same table, no change. */
static void test_adoption(void **state)
{
	struct fixture *f = fixture_new(), *g = fixture_new();
	struct hg_service before;
	unsigned n[MAX_IDS], a;
	struct list *l;

	fixture_conf(f, three);
	fixture_sync(f);
	before = *find(f, "192.0.2.20", 80);
	a = id_of(f, "a");
	memcpy(g->dp.t.services, f->dp.t.services, 2 * N_BUCKETS * sizeof(struct hg_service));
	memcpy(g->dp.t.slots, f->dp.t.slots, N_BLOCKS * sizeof(struct hg_slot_block));
	memcpy(g->dp.t.backends, f->dp.t.backends, MAX_IDS * sizeof(struct hg_backend));
	*g->dp.t.control = *f->dp.t.control;
	while ((l = list_pop_front(&g->dp.free_ranges)))
		mem_free(list_entry(l, struct dp_range, link));
	mem_free(g->dp.services);
	mem_free(g->dp.backends);
	assert_int_equal(dp_tables_adopt(&g->dp), 0);
	fixture_conf(g, three);
	fixture_sync(g);
	assert_int_equal(find(g, "192.0.2.20", 80)->id, before.id);
	assert_int_equal(id_of(g, "a"), a);
	count_slots(g, find(g, "192.0.2.20", 80), n);
	assert_in_range(n[a], 1364, 1365);
	fixture_free(f);
	fixture_free(g);
}

static void test_tables_too_small(void **state)
{
	struct fixture *f = fixture_new();
	struct err err = { "" };

	fixture_conf(f, DEFAULTS "listen web\n mode l4\n bind tcp@192.0.2.20:80\n forward ipip\n"
				 " maglev-table-size 655373\n server a 10.0.0.1\n");
	assert_int_equal(dp_sync(&f->dp, f->conf, f->backends, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "no room for a table of 655373 slots"));
	assert_null(find(f, "192.0.2.20", 80));
	fixture_free(f);
}

static void test_out_of_memory(void **state)
{
	/* Whatever fails, what was live before is live afterwards, and the next try succeeds. */
	for (uint64_t at = 1; at < 12; at++) {
		struct fixture *f = fixture_new();
		struct err err = { "" };
		unsigned n[MAX_IDS];
		int rc;

		fixture_conf(f, three);
		fixture_sync(f);
		server_set_op(&f->registry, f->backends[0]->servers[0], SERVER_STOPPED);
		mem_fail_at(at);
		rc = dp_sync(&f->dp, f->conf, f->backends, &err);
		mem_fail_at(0);
		if (rc != 0)
			assert_int_equal(rc, -ENOMEM);
		count_slots(f, find(f, "192.0.2.20", 80), n);
		fixture_sync(f);
		count_slots(f, find(f, "192.0.2.20", 80), n);
		assert_int_equal(n[id_of(f, "a")], 0);
		fixture_free(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_sync),
		cmocka_unit_test(test_nothing_changes_without_reason),
		cmocka_unit_test(test_a_server_goes_and_returns),
		cmocka_unit_test(test_no_server_left),
		cmocka_unit_test(test_weights_and_backups),
		cmocka_unit_test(test_sections_come_and_go),
		cmocka_unit_test(test_space_is_reused),
		cmocka_unit_test(test_adoption),
		cmocka_unit_test(test_tables_too_small),
		cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
