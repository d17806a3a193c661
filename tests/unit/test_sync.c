/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel tier's writer on plain memory: what dp_sync() makes of configurations and server
 * states, and that every intermediate state is one a packet could meet.
 */
/* links: dp lb net conf expr http ev base */
#include <time.h>

#include "unit/dp_fixture.h"

/* Slots of each backend id in a service's table; checks that every named id exists. */
static void count_slots(const struct fixture *f, const struct hg_service *s, unsigned n[MAX_IDS])
{
	memset(n, 0, MAX_IDS * sizeof(*n));
	for (uint32_t i = 0; i < s->slots; i++) {
		uint32_t w = f->dp.t.slots[s->slots_block + i / HG_SLOTS_PER_BLOCK]
				     .slot[i % HG_SLOTS_PER_BLOCK];

		assert_in_range(HG_SLOT_CURRENT(w), 1, MAX_IDS - 1);
		assert_true(f->dp.t.backends[HG_SLOT_CURRENT(w)].flags & HG_BE_VALID);
		assert_in_range(HG_SLOT_BASE(w), 1, MAX_IDS - 1);
		assert_true(f->dp.t.backends[HG_SLOT_BASE(w)].flags & HG_BE_VALID);
		n[HG_SLOT_CURRENT(w)]++;
	}
}

#define WEB                                                                                      \
	DEFAULTS "listen web\n mode l4\n bind tcp@192.0.2.20:80\n bind tcp@[2001:db8::20]:80\n " \
		 "forward ipip\n"                                                                \
		 " maglev-table-size 4093\n"

static const char three[] = WEB " server a 10.0.0.1\n server b 10.0.0.2\n server c 10.0.0.3\n";

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
	/* In place: no packet waits for a new generation. */
	assert_int_equal(find(f, "192.0.2.20", 80)->slots_block, before.slots_block);
	count_slots(f, find(f, "192.0.2.20", 80), n);
	assert_int_equal(n[b], 0);
	server_set_op(&f->registry, srv, SERVER_RUNNING);
	fixture_sync(f);
	assert_int_equal(id_of(f, "b"), b);
	count_slots(f, find(f, "192.0.2.20", 80), n);
	assert_in_range(n[b], 1364, 1365);
	fixture_free(f);
}

#define COOKIES(line)                                                         \
	"global\n xdp interface eth0\n xdp guard syn-cookies auto keys "      \
	"tests/conf/files/syn.keys\n" DEFAULTS                                \
	"listen web\n mode l4\n bind tcp@192.0.2.20:80\n forward ipip\n" line \
	" server a 10.0.0.1\n"

/* With a reload: packets see it, and the table stays as it is. */
static void test_cookies_come_and_go(void **state)
{
	static const char *const confs[] = { COOKIES(""), COOKIES(" xdp guard syn-cookies\n"),
					     COOKIES("") };
	struct fixture *f = fixture_new();
	uint32_t generation = 0, block = 0;

	for (unsigned i = 0; i < 3; i++) {
		fixture_conf(f, confs[i]);
		fixture_sync(f);
		assert_int_equal(find(f, "192.0.2.20", 80)->flags, i == 1 ? HG_SVC_SYN_COOKIES : 0);
		if (i) {
			assert_int_not_equal(f->dp.t.control->service_generation, generation);
			assert_int_equal(find(f, "192.0.2.20", 80)->slots_block, block);
		}
		generation = f->dp.t.control->service_generation;
		block = find(f, "192.0.2.20", 80)->slots_block;
	}
	fixture_free(f);
}

static void test_no_server_left(void **state)
{
	struct fixture *f = fixture_new();
	const struct hg_service *s;

	fixture_conf(f, three);
	fixture_sync(f);
	for (unsigned i = 0; i < 3; i++)
		server_set_op(&f->registry, f->backends[0]->servers[i], SERVER_STOPPED);
	fixture_sync(f);
	/* Still our service: its packets are dropped by name, not handed to the host's TCP. */
	s = find(f, "192.0.2.20", 80);
	assert_non_null(s);
	for (uint32_t i = 0; i < s->slots; i++)
		assert_int_equal(slot_word(f, s, i) & ~HG_SLOT_TRACKED, 0);
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
	assert_int_not_equal(id_of(f, "r"), 0);
	/* Nothing names the others any more; their ids come free when that is certain. */
	assert_int_not_equal(id_of(f, "a"), 0);
	fixture_wait(f, 30000);
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
		/* All three are dead once in a while. */
		if (HG_SLOT_CURRENT(slot_word(f, find(f, "192.0.2.20", 80), 0)))
			count_slots(f, find(f, "192.0.2.20", 80), n);
	}
	fixture_free(f);
}

/* The next process finds the maps: same ids, same table, no change. */
static void test_adoption(void **state)
{
	struct fixture *f = fixture_new();
	struct hg_service before;
	unsigned n[MAX_IDS], a;

	fixture_conf(f, three);
	fixture_sync(f);
	before = *find(f, "192.0.2.20", 80);
	a = id_of(f, "a");
	fixture_restart(f);
	fixture_conf(f, three);
	fixture_sync(f);
	assert_memory_equal(find(f, "192.0.2.20", 80), &before, sizeof(before));
	assert_int_equal(id_of(f, "a"), a);
	assert_int_equal(f->dp.services[before.id].n_tracked, 0);
	count_slots(f, find(f, "192.0.2.20", 80), n);
	assert_in_range(n[a], 1364, 1365);
	fixture_free(f);
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

/* `n` services of one server each; the third byte of their addresses is `net`. */
static void conf_services(struct fixture *f, unsigned n, unsigned net, const char *options)
{
	size_t size = 300 * n + 300;
	char *text = malloc(size);
	int at = snprintf(text, size, DEFAULTS);

	for (unsigned i = 0; i < n; i++)
		at += snprintf(text + at, size - (size_t)at,
			       "listen s%u\n mode l4\n bind tcp@192.0.%u.1:%u\n forward ipip\n%s"
			       " server b 10.%u.%u.%u\n",
			       i, net, 1000 + i, options, net, i / 250, i % 250 + 1);
	fixture_conf(f, text);
	free(text);
}

/*
 * There is room for one configuration and a little more. One that has other services, as many, is taken all the same:
 * the old ones go first. One that is too large is refused.
 */
static void test_other_services_in_the_same_room(void **state)
{
	struct fixture *f = fixture_new();
	struct err err = { "" };

	f->dp.t.n_blocks = 0; /* 10 tables of 256 blocks, and one */
	dp_tables_free(&f->dp);
	f->dp.t.n_blocks = 11 * 256;
	assert_int_equal(dp_tables_adopt(&f->dp), 0);
	for (unsigned net = 2; net < 6; net++) {
		conf_services(f, 10, net, "");
		fixture_sync(f);
		for (unsigned i = 0; i < 10; i++) {
			char vip[32];

			snprintf(vip, sizeof(vip), "192.0.%u.1", net);
			assert_non_null(find(f, vip, (uint16_t)(1000 + i)));
			assert_int_equal(find(f, vip, (uint16_t)(1000 + i))->slots, 4093);
			assert_null(find(f, "192.0.2.1", (uint16_t)(net > 2 ? 1000 + i : 1)));
		}
	}
	conf_services(f, 12, 5, "");
	assert_int_equal(dp_sync(&f->dp, f->conf, f->backends, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "no room for a table of 4093 slots"));
	for (unsigned i = 0; i < 10; i++) /* nothing was in the way that could have gone */
		assert_non_null(find(f, "192.0.5.1", (uint16_t)(1000 + i)));
	fixture_free(f);
}

/* No id is free but that of a draining server: the sync fails, and succeeds when it has drained. */
static void test_ids_run_out(void **state)
{
	struct fixture *f = fixture_new();
	struct err err = { "" };
	unsigned n[MAX_IDS];

	f->dp.t.max_backends = 4; /* ids 1 to 3 */
	fixture_conf(f, WEB " learn-window 4s\n server a 10.0.0.1\n server b 10.0.0.2\n");
	fixture_sync(f);
	fixture_conf(f, WEB " learn-window 4s\n server b 10.0.0.2\n server c 10.0.0.3\n");
	fixture_sync(f);
	fixture_conf(f, WEB " learn-window 4s\n server c 10.0.0.3\n server d 10.0.0.4\n");
	assert_int_equal(dp_sync(&f->dp, f->conf, f->backends, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "no room for more backends"));
	count_slots(f, find(f, "192.0.2.20", 80), n);
	assert_int_not_equal(n[id_of(f, "b")], 0);
	assert_false(dp_has_released(&f->dp));
	fixture_wait(f, 60000);
	assert_int_equal(id_of(f, "a"), 0);
	assert_int_not_equal(id_of(f, "b"), 0);
	assert_true(dp_has_released(&f->dp));
	fixture_sync(f);
	count_slots(f, find(f, "192.0.2.20", 80), n);
	assert_int_equal(n[id_of(f, "b")], 0);
	assert_int_not_equal(n[id_of(f, "d")], 0);
	fixture_free(f);
}

/* As many services as there can be, on many addresses and on few: every one is found by its probes. */
static void test_many_services(void **state)
{
	struct dp dp = { .lock_fd = -1, .prog_fd = -1 };
	struct hg_control control = { 0 };
	struct err err;

	list_init(&dp.free_ranges);
	list_init(&dp.free_quic);
	dp.t = (struct dp_tables){ .services = calloc(2 * HG_SERVICE_BUCKETS_MAX,
						      sizeof(struct hg_service)),
				   .n_buckets = HG_SERVICE_BUCKETS_MAX,
				   .max_services = HG_MAX_SERVICES,
				   .control = &control };
	dp.services = calloc(HG_MAX_SERVICES, sizeof(*dp.services));
	for (uint32_t ports = 1; ports <= 4096; ports *= 8) {
		for (uint32_t i = 0; i < HG_MAX_SERVICES; i++)
			dp.services[i] = (struct dp_service){
				.is_used = true,
				.row = { .key = { .addr = { 0, 0, htonl(0xffff),
							    htonl(0xc0000201 + i / ports) },
						  .port = htons((uint16_t)(1000 + i % ports)),
						  .proto = 6 },
					 .mode = HG_MODE_IPIP,
					 .id = i }
			};
		assert_int_equal(dp_services_write(&dp, &err), 0);
		for (uint32_t i = 0; i < HG_MAX_SERVICES; i++) {
			const struct hg_service *half = dp.t.services +
							control.service_generation * dp.t.n_buckets;
			uint32_t h = hg_service_hash(&dp.services[i].row.key), probe = 0;

			while (half[(h + probe) % HG_SERVICE_BUCKETS_MAX].id != i ||
			       half[(h + probe) % HG_SERVICE_BUCKETS_MAX].mode == HG_MODE_EMPTY)
				assert_true(++probe < HG_SERVICE_PROBES);
		}
	}
	free(dp.services);
	free(dp.t.services);
}

/* Microseconds of our processor time for each of `n` services when they are new, and when nothing has changed. */
static void sync_cost(unsigned n, double *ret_first, double *ret_again)
{
	struct timespec t[3];
	double us[2];

	for (unsigned run = 0; run < 3; run++) {
		struct fixture *f = fixture_new_of(16384, 16384);

		conf_services(f, n, 2, " maglev-table-size 13\n");
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t[0]);
		fixture_sync(f);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t[1]);
		fixture_sync(f);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t[2]);
		for (unsigned i = 0; i < 2; i++)
			us[i] = (double)(t[i + 1].tv_sec - t[i].tv_sec) * 1e6 +
				(double)(t[i + 1].tv_nsec - t[i].tv_nsec) / 1e3;
		if (!run || us[0] / n < *ret_first)
			*ret_first = us[0] / n;
		if (!run || us[1] / n < *ret_again)
			*ret_again = us[1] / n;
		fixture_free(f);
	}
}

/* A service costs the same among many: nothing is searched for one by one. Eight times as many would make it eight times that. */
static void test_cost_of_many(void **state)
{
	double first[2], again[2];

	sync_cost(2000, &first[0], &again[0]);
	sync_cost(16000, &first[1], &again[1]);
	print_message("us per service: 2,000 new %.2f, again %.2f; 16,000 new %.2f, again %.2f\n",
		      first[0], again[0], first[1], again[1]);
	assert_true(first[1] < 3 * first[0]);
	assert_true(again[1] < 3 * again[0]);
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
		cmocka_unit_test(test_cookies_come_and_go),
		cmocka_unit_test(test_no_server_left),
		cmocka_unit_test(test_weights_and_backups),
		cmocka_unit_test(test_sections_come_and_go),
		cmocka_unit_test(test_space_is_reused),
		cmocka_unit_test(test_adoption),
		cmocka_unit_test(test_tables_too_small),
		cmocka_unit_test(test_ids_run_out),
		cmocka_unit_test(test_many_services),
		cmocka_unit_test(test_other_services_in_the_same_room),
		cmocka_unit_test(test_cost_of_many),
		cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
