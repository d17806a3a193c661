/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * "No broken connection" (docs/DATAPATH.md) as a property: thousands of simulated flows while servers come, go,
 * drain, change weight, die and come back, windows end and the daemon is killed.
 */
/* links: dp lb net conf expr http ev base */
#include "unit/program_model.h"

/* --- the world ------------------------------------------------------------------------------------------------ */

#define N_SERVERS 8
#define N_FLOWS	  2000

struct flow {
	uint64_t hash, spoke_ns;
	uint32_t server, deaths; /* where it began, and how often that one had died then */
	bool is_open;
};

struct world {
	struct fixture *f;
	uint64_t seed;
	bool is_configured[N_SERVERS], is_dead[N_SERVERS];
	unsigned address[N_SERVERS]; /* last byte; a new one is another backend */
	uint32_t weight[N_SERVERS], deaths[256];
	struct flow flows[N_FLOWS];
	unsigned n_packets, n_lost, n_refused, n_restarts;
	const char *options;
};

static uint64_t rnd(uint64_t *s)
{
	*s = *s * 6364136223846793005ull + 1442695040888963407ull;
	return hg_mix64(*s, 7);
}

static void world_conf(struct world *w)
{
	char text[4096];
	int n = snprintf(text, sizeof(text),
			 DEFAULTS "listen web\n mode l4\n bind tcp@" VIP ":80\n forward ipip\n"
				  " maglev-table-size 251\n learn-window %us\n%s",
			 WINDOW, w->options);

	for (unsigned i = 0; i < N_SERVERS; i++)
		if (w->is_configured[i])
			n += snprintf(text + n, sizeof(text) - (size_t)n,
				      " server s%u 10.0.0.%u weight %u\n", i, w->address[i],
				      w->weight[i]);
	fixture_conf(w->f, text);
	fixture_sync(w->f);
}

static struct server *world_server(const struct world *w, unsigned i)
{
	char name[8];
	struct lb_backend *be = w->f->backends[0];

	snprintf(name, sizeof(name), "s%u", i);
	for (unsigned k = 0; k < be->n_servers; k++)
		if (strcmp(be->servers[k]->name, name) == 0)
			return be->servers[k];
	return NULL;
}

static const struct hg_service *world_service(const struct world *w)
{
	return find(w->f, VIP, 80);
}

/* Last byte of the address behind an id. */
static uint32_t address_of(const struct world *w, uint32_t id)
{
	return ntohl(w->f->dp.t.backends[id].addr[3]) & 0xff;
}

static void flow_open(struct world *w, struct flow *fl)
{
	uint32_t id;

	/* Clients use their ports again. */
	if (!fl->hash || rnd(&w->seed) % 4)
		fl->hash = rnd(&w->seed);
	id = packet(w->f, world_service(w), fl->hash, true);
	if (!id) {
		w->n_refused++;
		return;
	}
	fl->server = address_of(w, id);
	fl->deaths = w->deaths[fl->server];
	fl->is_open = true;
	fl->spoke_ns = dp_clock(&w->f->dp);
	/* The client's ACK. */
	assert_int_equal(packet(w->f, world_service(w), fl->hash, false), id);
}

static void flow_speak(struct world *w, struct flow *fl)
{
	uint32_t id;

	w->n_packets++;
	fl->spoke_ns = dp_clock(&w->f->dp);
	id = packet(w->f, world_service(w), fl->hash, false);
	if (w->deaths[fl->server] != fl->deaths) {
		fl->is_open = false; /* whoever got it has sent a reset */
		w->n_lost++;
	} else if (!id || address_of(w, id) != fl->server) {
		fail_msg("a flow of 10.0.0.%u went to 10.0.0.%u (id %u), slot %08x", fl->server,
			 id ? address_of(w, id) : 0, id,
			 slot_word(w->f, world_service(w),
				   hg_flow_slot(fl->hash, world_service(w)->slots)));
	}
}

static void world_flows(struct world *w)
{
	for (unsigned i = 0; i < N_FLOWS; i++) {
		struct flow *fl = &w->flows[i];
		uint64_t silent = dp_clock(&w->f->dp) - fl->spoke_ns;

		if (!fl->is_open)
			flow_open(w, fl);
		else if (rnd(&w->seed) % 3 == 0 || silent > WINDOW / 2 * 1000000000ull)
			flow_speak(w, fl);
		if (fl->is_open && rnd(&w->seed) % 40 == 0)
			fl->is_open = false;
	}
}

static void world_kill(struct world *w, unsigned i, bool is_dead)
{
	struct server *s = world_server(w, i);

	w->is_dead[i] = is_dead;
	if (!s)
		return;
	if (is_dead)
		w->deaths[w->address[i]]++;
	server_set_op(&w->f->registry, s, is_dead ? SERVER_STOPPED : SERVER_RUNNING);
	fixture_sync(w->f);
}

static void world_admin(struct world *w, unsigned i, unsigned set, unsigned clear)
{
	if (!world_server(w, i))
		return;
	server_set_admin(&w->f->registry, world_server(w, i), set, clear);
	fixture_sync(w->f);
}

static void world_change(struct world *w)
{
	unsigned i = (unsigned)(rnd(&w->seed) % N_SERVERS), what = (unsigned)(rnd(&w->seed) % 16);
	struct err err;

	switch (what) {
	case 0 ... 3: /* added or removed by a reload; a dead one comes back alive under a new name */
		if (w->is_dead[i])
			world_kill(w, i, false);
		w->is_configured[i] = !w->is_configured[i];
		world_conf(w);
		break;
	case 4: /* another machine under the same name */
		if (w->is_dead[i])
			world_kill(w, i, false);
		w->address[i] = w->address[i] < 100 ? w->address[i] + 100 : w->address[i] - 100;
		world_conf(w);
		break;
	case 5 ... 6:
		world_admin(w, i, SERVER_FORCED_DRAIN, SERVER_FORCED_MAINT);
		break;
	case 7:
		world_admin(w, i, SERVER_FORCED_MAINT, 0);
		break;
	case 8 ... 9:
		world_admin(w, i, 0, SERVER_FORCED_DRAIN | SERVER_FORCED_MAINT);
		break;
	case 10 ... 11:
		if (world_server(w, i)) {
			w->weight[i] = (uint32_t)(rnd(&w->seed) % 4);
			assert_int_equal(server_set_weight(&w->f->registry, world_server(w, i),
							   w->weight[i], &err),
					 0);
			fixture_sync(w->f);
		}
		break;
	case 12 ... 13:
		world_kill(w, i, true);
		break;
	case 14:
		world_kill(w, i, false);
		break;
	case 15: /* what the runtime API had set is the next process's no more; here it is, which is harder to get right */
		w->n_restarts++;
		fixture_restart(w->f);
		fixture_sync(w->f);
		break;
	}
}

static struct world *world_new(uint64_t seed, const char *options)
{
	struct world *w = calloc(1, sizeof(*w));

	w->f = fixture_new();
	w->seed = seed;
	w->options = options;
	for (unsigned i = 0; i < N_SERVERS; i++) {
		w->is_configured[i] = i < 4;
		w->address[i] = i + 1;
		w->weight[i] = 1;
	}
	world_conf(w);
	return w;
}

static void world_free(struct world *w)
{
	fixture_free(w->f);
	free(w);
}

/* Dead servers in the way of a walk are brought to life by world_change() only. */
static void world_run(struct world *w, unsigned steps, bool has_windows)
{
	for (unsigned i = 0; i < steps; i++) {
		unsigned ms = (unsigned)(rnd(&w->seed) % (has_windows ? WINDOW * 1000 / 4 : 60));

		world_flows(w);
		/* Several changes at once, now and then. */
		do
			world_change(w);
		while (rnd(&w->seed) % 3 == 0);
		world_flows(w);
		fixture_wait(w->f, ms + 21);
	}
}
/* --- tests --------------------------------------------------------------------------------------------------- */

static void test_property(void **state)
{
	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct world *w = world_new(seed, seed % 4 ? "" : " track on\n");

		world_run(w, 120, true);
		assert_true(w->n_packets > 50000);
		assert_true(w->n_lost < w->n_packets / 10);
		world_free(w);
	}
}

/* A table that is much too small: while the window is open nothing breaks, remembered or not (rules 3, 4, 6). */
static void test_full_table(void **state)
{
	for (uint64_t seed = 100; seed < 108; seed++) {
		struct world *w = world_new(seed, "");

		w->f->dp.t.n_flow_lines = 64;
		world_run(w, 60, false);
		assert_true(w->n_packets > 20000);
		world_free(w);
	}
}

/* When all is quiet nothing is left: no slot tracked, no entry, no id taken that no server has. */
static void test_all_settles(void **state)
{
	for (uint64_t seed = 200; seed < 206; seed++) {
		struct world *w = world_new(seed, "");
		struct dp *dp = &w->f->dp;

		world_run(w, 60, true);
		for (unsigned i = 0; i < N_SERVERS; i++) {
			world_kill(w, i, false);
			world_admin(w, i, 0, SERVER_FORCED_DRAIN | SERVER_FORCED_MAINT);
		}
		fixture_wait(w->f, 20 * WINDOW * 1000);
		assert_int_equal(dp->services[world_service(w)->id].n_tracked, 0);
		for (uint32_t i = 0; i < world_service(w)->slots; i++)
			assert_int_equal(slot_word(w->f, world_service(w), i) & HG_SLOT_TRACKED, 0);
		for (unsigned i = 0; i < N_LINES * HG_LINE_WAYS; i++)
			assert_int_equal(dp->t.flows[i / HG_LINE_WAYS].word[i % HG_LINE_WAYS], 0);
		for (unsigned id = 1; id < MAX_IDS; id++) {
			assert_int_equal(dp->backends[id].is_used, dp->backends[id].is_wanted);
			assert_int_equal(dp->backends[id].is_used,
					 !!(dp->t.backends[id].flags & HG_BE_VALID));
		}
		world_free(w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_property),
		cmocka_unit_test(test_full_table),
		cmocka_unit_test(test_all_settles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
