/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which listening socket gets a connection. BPF_PROG_TEST_RUN knows nothing of sk_reuseport, so real connections over
 * loopback are asked: the kernel handles a SYN on the CPU of the thread that connects.
 * links: dp lb net conf expr http ev base
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <cmocka.h>

#include "dp/dp_priv.h"
#include "packet/run.h"
#include "stats.skel.h"

#define PORT 8080
#define MOST 20 /* workers */

static struct stats_bpf *stats;
static struct hg_worker_counters *counters;
static struct hg_sk_worker *given;
static struct hg_sk_steer *steer;
static struct dp dp;
static int n_cpus, fds[MOST];
static unsigned n_fds;

static void take(enum dp_map_id id, struct bpf_map *map, size_t size)
{
	dp.maps[id].fd = bpf_map__fd(map);
	dp.maps[id].mem = map_mmap(map, size);
}

static int setup(void **state)
{
	(void)state;
	assert_int_equal(unshare(CLONE_NEWNET), 0);
	assert_int_equal(system("ip link set lo up"), 0);
	n_cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
	stats = stats_bpf__open();
	assert_non_null(stats);
	map_resize(stats->maps.stats_workers, MOST);
	map_resize(stats->maps.sk_workers, MOST);
	assert_int_equal(stats_bpf__load(stats), 0);
	take(DP_MAP_STATS_WORKERS, stats->maps.stats_workers, MOST * sizeof(*counters));
	take(DP_MAP_SK_WORKERS, stats->maps.sk_workers, MOST * sizeof(*given));
	take(DP_MAP_SK_STEER, stats->maps.sk_steer, sizeof(*steer));
	counters = dp.maps[DP_MAP_STATS_WORKERS].mem;
	given = dp.maps[DP_MAP_SK_WORKERS].mem;
	steer = dp.maps[DP_MAP_SK_STEER].mem;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stats_bpf__destroy(stats);
	return 0;
}

/* As after a start. */
static int clear(void **state)
{
	(void)state;
	memset(counters, 0, MOST * sizeof(*counters));
	memset(given, 0, MOST * sizeof(*given));
	memset(steer, 0, sizeof(*steer));
	return 0;
}

static int close_all(void **state)
{
	(void)state;
	for (unsigned i = 0; i < n_fds; i++)
		close(fds[i]);
	n_fds = 0;
	return 0;
}

static void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	assert_int_equal(sched_setaffinity(0, sizeof(set), &set), 0);
}

static struct sockaddr_storage place(int family)
{
	struct sockaddr_storage ss = { .ss_family = (sa_family_t)family };

	if (family == AF_INET) {
		((struct sockaddr_in *)&ss)->sin_port = htons(PORT);
		((struct sockaddr_in *)&ss)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	} else {
		((struct sockaddr_in6 *)&ss)->sin6_port = htons(PORT);
		((struct sockaddr_in6 *)&ss)->sin6_addr = in6addr_loopback;
	}
	return ss;
}

static int listener(int family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
	struct sockaddr_storage ss = place(family);

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, sizeof(ss)), 0);
	assert_int_equal(listen(fd, 1000), 0);
	return fd;
}

static void listeners(int family, unsigned n)
{
	for (n_fds = 0; n_fds < n; n_fds++)
		fds[n_fds] = listener(family);
}

/* -EBUSY for a while when another array had the sockets. */
static void fill(int map_fd, const int *of, unsigned n)
{
	unsigned at = 0;
	int rc;

	for (int ms = 0; (rc = dp_sk_steer_fill(map_fd, of, n, &at)) == -EBUSY; ms++) {
		assert_in_range(ms, 0, 5000);
		usleep(1000);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(at, n);
	close(map_fd);
}

static int attach(void)
{
	struct err err = { "" };
	int map_fd = -1;

	if (dp_sk_steer_attach(&dp, fds[0], n_fds, &map_fd, &err) != 0)
		fail_msg("%s", err.text);
	return map_fd;
}

static void begin(int family, enum hg_sk_mode mode, const int *cpus, unsigned n)
{
	listeners(family, n);
	dp_sk_steer_configure(&dp, mode, cpus, n);
	fill(attach(), fds, n);
}

static int dial(int family)
{
	struct sockaddr_storage ss = place(family);
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&ss, sizeof(ss)), 0);
	return fd;
}

/* Those waiting at each socket, taken; how many there were in all. */
static unsigned accept_all(unsigned got[MOST])
{
	unsigned all = 0;

	memset(got, 0, MOST * sizeof(*got));
	for (unsigned i = 0; i < n_fds; i++) {
		int c;

		while ((c = accept(fds[i], NULL, NULL)) >= 0) {
			got[i]++;
			all++;
			close(c);
		}
		assert_int_equal(errno, EAGAIN);
	}
	return all;
}

static unsigned connect_all(int family, unsigned n, unsigned got[MOST])
{
	int made[1024];

	assert_in_range(n, 1, ARRAY_SIZE(made));
	for (unsigned i = 0; i < n; i++)
		made[i] = dial(family);
	for (unsigned i = 0; i < n; i++)
		close(made[i]);
	return accept_all(got);
}

/* What was given lately is forgotten. */
static void let_windows_pass(void)
{
	struct timespec t = { .tv_nsec = 3l << HG_SK_SHIFT };

	(void)nanosleep(&t, NULL);
}

static void test_the_cpu_of_the_syn(void **state)
{
	unsigned got[MOST];
	int cpus[MOST];

	(void)state;
	for (int family = AF_INET; family; family = family == AF_INET ? AF_INET6 : 0) {
		/* Worker 0 has the last CPU, and so on: a number is not mistaken for the other. */
		for (int i = 0; i < n_cpus && i < MOST; i++)
			cpus[i] = n_cpus - 1 - i;
		begin(family, HG_SK_CPU, cpus, n_cpus < MOST ? (unsigned)n_cpus : MOST);
		for (unsigned i = 0; i < n_fds; i++) {
			uint64_t before = given[i].by_cpu;

			run_on(cpus[i]);
			assert_int_equal(connect_all(family, 50, got), 50);
			assert_int_equal(got[i], 50);
			assert_int_equal(given[i].by_cpu, before + 50);
			assert_int_equal(given[i].by_load, 0);
		}
		close_all(NULL);
	}
}

/* Several workers on one CPU share what comes there; a CPU without a worker gives to the least loaded. */
static void test_several_workers_and_none_on_a_cpu(void **state)
{
	const int cpus[] = { 0, 255, 0, -1, 0 };
	unsigned got[MOST];

	(void)state;
	run_on(0);
	begin(AF_INET, HG_SK_CPU, cpus, 5);
	assert_int_equal(connect_all(AF_INET, 300, got), 300);
	assert_in_range(got[0], 50, 150);
	assert_in_range(got[2], 50, 150);
	assert_in_range(got[4], 50, 150);
	if (n_cpus < 2)
		return;
	run_on(1);
	for (int i = 0; i < 5; i++)
		counters[i].cur_conns = i == 3 ? 0 : 1000;
	assert_int_equal(connect_all(AF_INET, 100, got), 100);
	assert_int_equal(got[3], 100);
	assert_int_equal(given[3].by_load, 100);
}

static void test_a_busy_worker_is_spared(void **state)
{
	const int cpus[] = { 0, 255 };
	unsigned got[MOST];

	(void)state;
	run_on(0);
	begin(AF_INET, HG_SK_CPU, cpus, 2);
	counters[0].cur_conns = HG_SK_SLACK;
	assert_int_equal(connect_all(AF_INET, 10, got), 10);
	assert_int_equal(got[0], 10); /* not beyond the slack */
	let_windows_pass();
	counters[0].cur_conns = HG_SK_SLACK + 5;
	assert_int_equal(connect_all(AF_INET, 1, got), 1);
	assert_int_equal(got[1], 1);
	/* What the other one was given and has not accepted counts for it at once: 4 more, then it has as many. */
	assert_int_equal(connect_all(AF_INET, 20, got), 20);
	assert_in_range(got[1], 3, 4);
	counters[0].cur_conns = 1000;
	counters[1].cur_conns = 900;
	let_windows_pass();
	assert_int_equal(connect_all(AF_INET, 10, got), 10);
	assert_int_equal(got[0], 10); /* a quarter more is not too many */
	counters[0].cur_conns = 1200;
	assert_int_equal(connect_all(AF_INET, 10, got), 10);
	assert_int_equal(got[1], 10);
	assert_true(given[1].by_load > 10);
}

static void test_the_least_loaded(void **state)
{
	const int cpus[] = { 0, 0, 0, 0 };
	unsigned got[MOST];

	(void)state;
	run_on(0);
	begin(AF_INET6, HG_SK_LEAST, cpus, 4);
	for (int i = 0; i < 4; i++)
		counters[i].cur_conns = i == 2 ? 100 : 200;
	assert_int_equal(connect_all(AF_INET6, 50, got), 50);
	assert_int_equal(got[2], 50);
	/* None has accepted: it levels out, instead of all going to one. */
	for (int i = 0; i < 4; i++)
		counters[i].cur_conns = 0;
	let_windows_pass();
	assert_int_equal(connect_all(AF_INET6, 200, got), 200);
	for (int i = 0; i < 4; i++)
		assert_in_range(got[i], 35, 65);
}

/* More workers than are looked at: some are compared, from another one on for each connection. */
static void test_many_workers(void **state)
{
	unsigned got[MOST];
	int cpus[MOST];

	(void)state;
	memset(cpus, -1, sizeof(cpus));
	run_on(0);
	begin(AF_INET, HG_SK_LEAST, cpus, MOST);
	for (int i = 0; i < MOST; i++)
		counters[i].cur_conns = i == 7 ? 0 : 5000;
	assert_int_equal(connect_all(AF_INET, 400, got), 400);
	assert_in_range(got[7], 400 * HG_SK_LOOKS / MOST - 70, 399);
	for (int i = 0; i < MOST; i++)
		counters[i].cur_conns = 0;
	let_windows_pass();
	assert_int_equal(connect_all(AF_INET, 400, got), 400);
	for (int i = 0; i < MOST; i++)
		assert_in_range(got[i], 5, 45);
}

/* Without an array that has the socket, and switched off: the kernel's own hash, and no connection is refused. */
static void test_falls_back_to_the_hash(void **state)
{
	const int cpus[] = { 0, 255 };
	unsigned got[MOST];
	int map_fd;

	(void)state;
	run_on(0);
	listeners(AF_INET, 2);
	dp_sk_steer_configure(&dp, HG_SK_CPU, cpus, 2);
	map_fd = attach();
	assert_int_equal(connect_all(AF_INET, 100, got), 100);
	assert_in_range(got[0], 20, 80);
	assert_int_equal(given[0].by_cpu, 0);
	fill(map_fd, fds, 2);
	assert_int_equal(connect_all(AF_INET, 100, got), 100);
	assert_int_equal(got[0], 100);
	dp_sk_steer_configure(&dp, HG_SK_OFF, cpus, 2);
	assert_int_equal(connect_all(AF_INET, 100, got), 100);
	assert_in_range(got[0], 20, 80);
	dp_sk_steer_configure(&dp, HG_SK_CPU, cpus, 2);
	assert_int_equal(connect_all(AF_INET, 100, got), 100);
	assert_int_equal(got[0], 100);
	assert_int_equal(dp_sk_steer_detach(fds[1]), 0);
	assert_int_equal(dp_sk_steer_detach(fds[0]), 0); /* none any more */
	assert_int_equal(connect_all(AF_INET, 100, got), 100);
	assert_in_range(got[0], 20, 80);
}

/* The same sockets in another process: its program takes the place, and its array gets the sockets. */
static void test_taken_over(void **state)
{
	const int cpus[] = { 0, 255 };
	unsigned got[MOST], at = 0;
	int copies[2], map_fd;

	(void)state;
	run_on(0);
	begin(AF_INET, HG_SK_CPU, cpus, 2);
	/* Another order, so that it shows whose array is asked. */
	copies[0] = dup(fds[1]);
	copies[1] = dup(fds[0]);
	map_fd = attach();
	fill(map_fd, copies, 2);
	assert_int_equal(connect_all(AF_INET, 100, got), 100);
	assert_int_equal(got[1], 100);
	/* While somebody holds the array, the sockets stay in it: the hash, then. */
	map_fd = bpf_map_create(BPF_MAP_TYPE_REUSEPORT_SOCKARRAY, "other", 4, 8, 2, NULL);
	assert_true(map_fd >= 0);
	assert_int_equal(dp_sk_steer_fill(map_fd, copies, 2, &at), -EBUSY);
	assert_int_equal(at, 0);
	close(map_fd);
	close(copies[0]);
	close(copies[1]);
}

/* An older process's sockets in the same group: nothing new for them, and what waits in one that is closed moves on. */
static void test_beside_older_sockets(void **state)
{
	const int cpus[] = { 0, 255 };
	unsigned got[MOST];
	struct pollfd p = { .events = POLLIN | POLLHUP };
	char byte;
	int old, c;

	(void)state;
	run_on(0);
	old = listener(AF_INET);
	c = dial(AF_INET);
	begin(AF_INET, HG_SK_CPU, cpus, 2);
	assert_int_equal(connect_all(AF_INET, 200, got), 200);
	assert_int_equal(got[0], 200);
	close(old);
	p.fd = c;
	assert_int_equal(poll(&p, 1, 200), 0); /* no reset */
	assert_int_equal(send(c, "x", 1, 0), 1);
	for (unsigned i = 0; i < 2; i++) {
		int s = accept(fds[i], NULL, NULL);

		if (s < 0)
			continue;
		assert_int_equal(recv(s, &byte, 1, 0), 1);
		close(s);
		close(c);
		assert_int_equal(given[i].migrated, 1);
		return;
	}
	fail_msg("the connection is nobody's");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_the_cpu_of_the_syn, clear, close_all),
		cmocka_unit_test_setup_teardown(test_several_workers_and_none_on_a_cpu, clear,
						close_all),
		cmocka_unit_test_setup_teardown(test_a_busy_worker_is_spared, clear, close_all),
		cmocka_unit_test_setup_teardown(test_the_least_loaded, clear, close_all),
		cmocka_unit_test_setup_teardown(test_many_workers, clear, close_all),
		cmocka_unit_test_setup_teardown(test_falls_back_to_the_hash, clear, close_all),
		cmocka_unit_test_setup_teardown(test_taken_over, clear, close_all),
		cmocka_unit_test_setup_teardown(test_beside_older_sockets, clear, close_all),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
