/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reconciliation of connection counts: NAT by the real program and slots of workers by the real queues, at the same servers, with
 * random ends: closes, resets, silence, packets after a reset, workers and daemons that are killed, upgrades. After every step
 * the words of `live_backends` are what the test itself has counted, at the end they are zero. HG_COUNT_CONNS and HG_COUNT_SEED
 * change the run.
 * links: dp lb net conf expr http ev base
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "packet/nat_flow.h"

#include "dp/dp_priv.h"
#include "unit/lb_fixture.h"
#include "xdp_lb.skel.h"

#define N_CONNS	    80 /* of NAT at once, at most */
#define N_PROCESSES 2
#define LIMIT	    30
#define HELD_MAX    40 /* slots of a process at a server */

static uint64_t random_state;
static char dir[] = "/tmp/hg-counts-XXXXXX";

static unsigned random_below(unsigned n)
{
	return (unsigned)(rnd(&random_state) >> 20) % n;
}

static unsigned long env_number(const char *name, unsigned long otherwise)
{
	const char *s = getenv(name);

	return s && *s ? strtoul(s, NULL, 0) : otherwise;
}

/* --- processes: their workers, and the daemon's hands in the tables ------------------------------------------ */

struct process {
	bool is_alive;
	struct dp dp;
	struct fx fx;
	unsigned held[2][2]; /* by server, by worker */
};

static struct process processes[N_PROCESSES];
static unsigned n_corrected;

static void notice(void *ctx, const char *text)
{
	n_corrected++;
}

/* Adopts the maps, as dp_open() does, and has two workers. */
static void process_begin(struct process *p)
{
	struct dp_service *services = calloc(LB_SERVICES, sizeof(*services));
	struct err err = { "" };

	*p = (struct process){ .is_alive = true };
	p->dp = (struct dp){ .is_adopted = true,
			     .n_cpus = lb.n_cpus,
			     .notice = notice,
			     .services = services,
			     .t = { .max_backends = LB_BACKENDS,
				    .max_services = LB_SERVICES,
				    .backends = lb.backends,
				    .flows = lb.flows,
				    .n_flow_lines = LB_LINES } };
	for (unsigned i = 0; i < 4; i++)
		services[i] = (struct dp_service){ .is_used = true, .row.mode = HG_MODE_NAT };
	p->dp.maps[DP_MAP_XDP_BACKENDS].mem = lb.be_counters;
	p->dp.nat = (struct dp_nat){ .conns = lb.nat_conns,
				     .addrs = map_mmap(lb.skel->maps.nat_addrs,
						       sizeof(struct hg_nat_addrs) * LB_NAT),
				     .lines = lb.nat_lines,
				     .tickets = lb.nat_tickets,
				     .hints = lb.nat_hints,
				     .paths = lb.nat_paths,
				     .live_backends = lb.live_backends,
				     .live_services = lb.live_services,
				     .mask = LB_NAT - 1,
				     .line_mask = HG_NAT_LINES(LB_NAT) - 1,
				     .max_backends = LB_BACKENDS,
				     .max_services = LB_SERVICES,
				     .hash_seed = LB_SEED,
				     .tick_shift = LB_SHIFT,
				     .hz = jiffies_hz() };
	snprintf(p->dp.dir, sizeof(p->dp.dir), "%s", dir);
	if (dp_share_open(&p->dp, &err) != 0)
		fail_msg("%s", err.text);
	fx_init(&p->fx, 2, 2);
	fx_commit(&p->fx);
	for (unsigned i = 0; i < 2; i++)
		server_share(fx_srv(&p->fx, i), &lb.live_backends[1 + i], p->dp.share.part);
	fx_deliver(&p->fx);
}

/* What the kernel takes away: memory, descriptors with their locks. Nothing is given back. */
static void process_gone(struct process *p)
{
	fx_fini(&p->fx);
	munmap(p->dp.nat.addrs, sizeof(struct hg_nat_addrs) * LB_NAT);
	free(p->dp.services);
	p->is_alive = false;
}

static void process_killed(struct process *p)
{
	dp_recount_end(&p->dp);
	close(p->dp.share.fd);
	process_gone(p);
}

static void process_ends(struct process *p)
{
	dp_share_close(&p->dp);
	process_gone(p);
}

static struct process *any_process(bool is_alive)
{
	unsigned first = random_below(N_PROCESSES);

	for (unsigned i = 0; i < N_PROCESSES; i++) {
		struct process *p = &processes[(first + i) % N_PROCESSES];

		if (p->is_alive == is_alive)
			return p;
	}
	return NULL;
}

/* --- connections of NAT ------------------------------------------------------------------------------------------ */

enum stage {
	UNUSED,
	HALF,
	OPEN,
	CLIENT_CLOSED,
	SERVER_CLOSED,
	RESET
};

struct nat_conn {
	struct flow f;
	enum stage stage;
};

static struct nat_conn conns[N_CONNS];
static unsigned n_nat[2], n_begun, n_refused, n_full;
static uint16_t next_port;

static bool is_counted(const struct nat_conn *c)
{
	return c->stage != UNUSED && c->stage != RESET;
}

static void to_stage(struct nat_conn *c, enum stage stage)
{
	n_nat[c->f.v6] -= is_counted(c);
	c->stage = stage;
	n_nat[c->f.v6] += is_counted(c);
}

static unsigned total(unsigned server)
{
	unsigned n = n_nat[server];

	for (unsigned i = 0; i < N_PROCESSES; i++)
		n += processes[i].held[server][0] + processes[i].held[server][1];
	return n;
}

static uint32_t now(void)
{
	return tick_of(dp_now_ns(), jiffies_hz(), LB_SHIFT);
}

/* Long ago for its state; the daemon looks. */
static void sweep(struct nat_conn *c, unsigned ticks)
{
	struct process *p = any_process(true);

	age(row_of(&c->f), ticks);
	if (p)
		dp_nat_sweep(&p->dp.nat, LB_NAT, now());
}

/* The port rests for a minute, which nobody here has: mostly it is free at once. */
static void is_over(struct nat_conn *c)
{
	struct hg_nat_conn *row = row_of(&c->f);

	to_stage(c, UNUSED);
	if (row && random_below(4))
		age(row, 100);
}

/* Ports that rest may be had by who needs them, two seconds later. */
static void end_rest(void)
{
	for (unsigned i = 0; i < LB_NAT; i++)
		if (HG_NAT_STATE(lb.nat_conns[i].life) == HG_NAT_CLOSED ||
		    HG_NAT_STATE(lb.nat_conns[i].life) == HG_NAT_RESET)
			age(&lb.nat_conns[i], 3);
}

static void conn_begins(struct nat_conn *c)
{
	struct pktbuf in, out;
	uint64_t full = lb_drops(&lb, HG_DROP_NAT_FULL), refused = lb_drops(&lb, HG_DROP_MAXCONN);
	int action;

	c->f = (struct flow){ .v6 = random_below(2), .port = next_port };
	next_port = next_port == 60000 ? 1024 : next_port + 1;
	n_begun++;
	to_vip(&in, &c->f, OPTS(.flags = TCP_SYN));
	action = prog_run(lb.prog, &in, &out);
	if (total(c->f.v6) >= LIMIT) {
		assert_int_equal(action, XDP_DROP);
		assert_int_equal(lb_drops(&lb, HG_DROP_MAXCONN), refused + 1);
		n_refused++;
	} else if (action == XDP_DROP) {
		assert_int_equal(lb_drops(&lb, HG_DROP_NAT_FULL), full + 1);
		n_full++;
		end_rest();
	} else {
		assert_int_equal(action, XDP_TX);
		c->f.edge_port = (uint16_t)(out.data[c->f.v6 ? 54 : 34] << 8 |
					    out.data[c->f.v6 ? 55 : 35]);
		to_stage(c, HALF);
	}
}

static void conn_half(struct nat_conn *c, unsigned what)
{
	switch (what) {
	case 0:
		client_says(&c->f, OPTS(.flags = RST_ACK));
		to_stage(c, RESET);
		break;
	case 1:
		backend_says(&c->f, OPTS(.flags = RST_ACK));
		is_over(c);
		break;
	case 2:
		sweep(c, 40);
		to_stage(c, any_process(true) ? UNUSED : c->stage);
		break;
	default:
		backend_says(&c->f, OPTS(.flags = SYN_ACK));
		client_says(&c->f, OPTS(.flags = TCP_ACK));
		to_stage(c, OPEN);
	}
}

static void conn_open(struct nat_conn *c, unsigned what)
{
	switch (what) {
	case 0:
	case 1:
		client_says(&c->f, OPTS(.flags = FIN_ACK));
		to_stage(c, CLIENT_CLOSED);
		break;
	case 2:
		backend_says(&c->f, OPTS(.flags = FIN_ACK));
		to_stage(c, SERVER_CLOSED);
		break;
	case 3:
		client_says(&c->f, OPTS(.flags = TCP_RST));
		to_stage(c, RESET);
		break;
	case 4:
		backend_says(&c->f, OPTS(.flags = TCP_RST));
		to_stage(c, RESET);
		break;
	case 5:
		sweep(c, IDLE + IDLE / 8 + 5);
		to_stage(c, any_process(true) ? UNUSED : c->stage);
		break;
	default:
		client_says(&c->f, OPTS(.flags = TCP_ACK, .size = what));
		backend_says(&c->f, OPTS(.flags = TCP_ACK, .size = what));
	}
}

static void conn_closing(struct nat_conn *c, unsigned what)
{
	if (what == 0) {
		client_says(&c->f, OPTS(.flags = TCP_RST));
	} else if (what == 1) {
		backend_says(&c->f, OPTS(.flags = TCP_RST));
	} else if (what == 2 && any_process(true)) {
		sweep(c, 310);
	} else {
		client_says(&c->f, OPTS(.flags = FIN_ACK));
		backend_says(&c->f, OPTS(.flags = FIN_ACK));
	}
	is_over(c);
}

/* After a reset that was none, some of the window went by: then it lives. Not when somebody else has the row, or soon may. */
static bool may_go_on(const struct nat_conn *c)
{
	const struct hg_nat_conn *row = row_of(&c->f);

	return row && HG_NAT_STATE(row->life) == HG_NAT_RESET &&
	       ((now() - row->life) & 0xffff) <= 5;
}

static void conn_step(struct nat_conn *c)
{
	unsigned what = random_below(9);

	switch (c->stage) {
	case UNUSED:
		conn_begins(c);
		break;
	case HALF:
		conn_half(c, what);
		break;
	case OPEN:
		conn_open(c, what);
		break;
	case CLIENT_CLOSED:
	case SERVER_CLOSED:
		conn_closing(c, what);
		break;
	case RESET:
		if (what == 0 && may_go_on(c)) {
			client_says(&c->f, OPTS(.flags = TCP_ACK));
			to_stage(c, OPEN);
		} else {
			is_over(c);
		}
		break;
	}
}

/* --- slots of workers ------------------------------------------------------------------------------------------------ */

static void slot_step(struct process *p)
{
	unsigned server = random_below(2), worker = random_below(2);
	struct server *s = fx_srv(&p->fx, server);
	unsigned *held = &p->held[server][worker];
	bool may = total(server) < LIMIT;

	if (*held && (random_below(2) || p->held[server][0] + p->held[server][1] >= HELD_MAX)) {
		server_release(p->fx.be, s, worker);
		--*held;
		return;
	}
	n_begun++;
	assert_int_equal(server_try_take(s, server_limit(p->fx.be, s, NULL), worker), may);
	*held += may;
	n_refused += !may;
}

/* --- processes come and go ------------------------------------------------------------------------------------------- */

/* A daemon dies between the two halves of nat_end(): the row is nobody's, the count still has it. */
static void die_in_the_sweep(struct process *p)
{
	for (unsigned i = 0; i < N_CONNS; i++) {
		struct nat_conn *c = &conns[i];
		struct hg_nat_conn *row = c->stage == OPEN ? row_of(&c->f) : NULL;

		if (!row)
			continue;
		row->life = HG_NAT_LIFE(HG_NAT_CLAIMED, now() - 20);
		to_stage(c, UNUSED);
		break;
	}
	process_killed(p);
}

static void check(void)
{
	for (unsigned server = 0; server < 2; server++) {
		uint64_t word = lb.live_backends[1 + server].word,
			 want = n_nat[server] * HG_LIVE_XDP;

		for (unsigned i = 0; i < N_PROCESSES; i++)
			want += (processes[i].held[server][0] + processes[i].held[server][1]) *
				HG_LIVE_L7(processes[i].dp.share.part);
		if (word != want)
			fail_msg("server %u after %u connections: NAT %llu, L7 %u + %u; counted: "
				 "%llu, %u + %u",
				 server, n_begun, (unsigned long long)(word / HG_LIVE_XDP),
				 hg_live_l7(word, 0), hg_live_l7(word, 1),
				 (unsigned long long)(want / HG_LIVE_XDP), hg_live_l7(want, 0),
				 hg_live_l7(want, 1));
		assert_int_equal(lb.live_services[server].conns, n_nat[server]);
	}
}

/* Whoever is alive looks after the others, as it does every second. */
static void seconds_pass(void)
{
	for (unsigned i = 0; i < 3 * N_PROCESSES; i++)
		if (processes[i % N_PROCESSES].is_alive)
			dp_share_tick(&processes[i % N_PROCESSES].dp);
}

static void process_step(void)
{
	struct process *p = any_process(true), *unused = any_process(false);
	unsigned what = random_below(4);

	if (unused && (what == 0 || !p)) {
		process_begin(unused);
	} else if (p && what == 1) {
		process_killed(p);
	} else if (p && what == 2) {
		process_ends(p);
	} else if (p) {
		/* Only the next start looks for what this one has left. */
		if (unused)
			unused = NULL;
		else
			process_ends(any_process(true));
		p = any_process(true);
		die_in_the_sweep(p);
		process_begin(p);
	}
	for (unsigned i = 0; i < N_PROCESSES; i++)
		if (!processes[i].is_alive)
			memset(processes[i].held, 0, sizeof(processes[i].held));
	if (!any_process(true)) /* nobody is there to clear it; the next is */
		process_begin(&processes[0]);
	seconds_pass();
	check();
}

static int make_dir(void **state)
{
	rows(state);
	lb.live_backends[1].limit = lb.live_backends[2].limit = LIMIT;
	memset(processes, 0, sizeof(processes));
	memset(conns, 0, sizeof(conns));
	memset(n_nat, 0, sizeof(n_nat));
	next_port = 1024;
	memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	return rmdir(dir);
}

static void test_random_ends(void **state)
{
	unsigned long n = env_number("HG_COUNT_CONNS", 4000);
	unsigned n_processes = 0, n_checks = 0;

	random_state = env_number("HG_COUNT_SEED", 1);
	n_begun = n_refused = n_full = n_corrected = 0;
	process_begin(&processes[0]);
	while (n_begun < n) {
		unsigned what = random_below(200);
		struct process *p = any_process(true);

		if (what == 0) {
			process_step();
			n_processes++;
		} else if (what < 60 && p) {
			slot_step(p);
		} else {
			conn_step(&conns[random_below(N_CONNS)]);
		}
		check();
		n_checks++;
	}
	for (unsigned i = 0; i < N_CONNS; i++)
		while (conns[i].stage != UNUSED)
			conn_step(&conns[i]);
	print_message("%u connections, %u refused, %u without a port, %u processes came or went, "
		      "%u corrections; %u comparisons, difference 0\n",
		      n_begun, n_refused, n_full, n_processes, n_corrected, n_checks);
	assert_true(n_refused > n / 100 && n_corrected > 0);
	for (unsigned i = 0; i < N_PROCESSES; i++) {
		struct process *p = &processes[i];

		for (unsigned at = 0; p->is_alive && at < 4; at++)
			while (p->held[at / 2][at % 2]) {
				server_release(p->fx.be, fx_srv(&p->fx, at / 2), at % 2);
				p->held[at / 2][at % 2]--;
			}
		check();
		if (p->is_alive)
			process_ends(p);
	}
	assert_int_equal(lb.live_backends[1].word, 0);
	assert_int_equal(lb.live_backends[2].word, 0);
	assert_int_equal(lb.live_services[0].conns + lb.live_services[1].conns, 0);
}

/* --- all at once ------------------------------------------------------------------------------------------------------- */

#define ROUNDS 3000

static _Atomic bool is_done;

static void *nat_thread(void *arg)
{
	const unsigned base = 2000 + 1000 * (unsigned)(uintptr_t)arg;
	static const uint8_t flags[] = { TCP_SYN, TCP_ACK, FIN_ACK, TCP_RST };
	uint64_t r = base;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct flow f = { .v6 = rnd(&r) >> 40 & 1, .port = (uint16_t)(base + i % 20) };
		struct pktbuf in;

		to_vip(&in, &f, OPTS(.flags = flags[(rnd(&r) >> 33) % 4]));
		prog_run(lb.prog, &in, NULL);
	}
	return NULL;
}

static void *worker_thread(void *arg)
{
	struct process *p = arg;
	uint64_t r = 99;
	unsigned held[2] = { 0 };

	while (!atomic_load(&is_done)) {
		unsigned i = rnd(&r) >> 40 & 1;
		struct server *s = fx_srv(&p->fx, i);

		if (rnd(&r) >> 41 & 1 && held[i] < 10)
			held[i] += server_try_take(s, server_limit(p->fx.be, s, NULL), 1);
		else if (held[i])
			held[i]--, server_release(p->fx.be, s, 1);
	}
	for (unsigned i = 0; i < 2; i++)
		for (; held[i]; held[i]--)
			server_release(p->fx.be, fx_srv(&p->fx, i), 1);
	return NULL;
}

/* Packets on two CPUs, a worker, the sweep and one comparison after the other: nothing is lost, and nothing "corrected". */
static void test_at_once(void **state)
{
	struct process *p = &processes[0];
	unsigned counted[2] = { 0 };
	pthread_t threads[3];

	n_corrected = 0;
	process_begin(p);
	atomic_store(&is_done, false);
	for (uintptr_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, nat_thread, (void *)i), 0);
	assert_int_equal(pthread_create(&threads[2], NULL, worker_thread, p), 0);
	for (unsigned i = 0; i < 300; i++) {
		/* Looks are further apart than a packet may take that loses its CPU, which real ones do not. */
		if (i % 30 == 0 && !p->dp.recount)
			dp_recount_begin(&p->dp);
		else if (i % 30 == 0)
			dp_recount_tick(&p->dp);
		dp_nat_sweep(&p->dp.nat, LB_NAT, now());
		usleep(1000);
	}
	atomic_store(&is_done, true);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	for (unsigned i = 0; i < LB_NAT; i++)
		if (hg_nat_is_counted(HG_NAT_STATE(lb.nat_conns[i].life)))
			counted[lb.nat_conns[i].backend - 1]++;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(lb.live_backends[1 + i].word, counted[i] * HG_LIVE_XDP);
		assert_int_equal(lb.live_services[i].conns, counted[i]);
	}
	assert_int_equal(n_corrected, 0);
	process_ends(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_random_ends, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_at_once, make_dir, remove_dir),
	};

	return cmocka_run_group_tests_name("counts", tests, setup, teardown);
}
