/* SPDX-License-Identifier: BSD-2-Clause */
/* Log: envelopes byte for byte, transports, sampling, full rings, threads. links: base */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log_priv.h"

static const struct log_target udp_default = {
	.transport = LOG_TO_UDP,
	.format = LOG_FMT_LOCAL,
	.facility = 16,
	.max_level = LOG_LVL_DEBUG,
	.max_len = 1024,
};

/* A UDP socket on loopback and the target that leads to it. */
static int open_udp(struct log_target *t)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), size = 4 << 20;
	socklen_t len = sizeof(t->udp.in);

	*t = udp_default;
	t->udp.in = (struct sockaddr_in){ .sin_family = AF_INET,
					  .sin_addr = { htonl(INADDR_LOOPBACK) } };
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	assert_int_equal(bind(fd, &t->udp.sa, len), 0);
	assert_int_equal(getsockname(fd, &t->udp.sa, &len), 0);
	return fd;
}

/* One datagram as text; "" when none comes for two seconds. */
static const char *receive(int fd)
{
	static char text[70000];
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	ssize_t n = 0;

	if (poll(&pfd, 1, 2000) > 0)
		n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

static bool is_silent(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 50) == 0;
}

static void emit(const struct log_target *t, unsigned n, const char *line)
{
	log_emit(t, n, LOG_LVL_INFO, STR_NULL, STR_NULL, str_from_cstr(line));
}

static int setup(void **state)
{
	if (log_init() || log_thread_enter() || log_writer_start())
		return -1;
	log_set_identity(STR("haproxy"), 4321, STR("edge1"));
	log_set_stderr(false);
	return 0;
}

static int teardown(void **state)
{
	log_thread_leave();
	log_writer_stop();
	return log_set_global_targets(NULL, 0);
}

static void assert_match(const char *text, const char *pattern)
{
	regex_t re;

	assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
	if (regexec(&re, text, 0, NULL, 0))
		fail_msg("'%s' is not '%s'", text, pattern);
	regfree(&re);
}

#define ISO                                                                                        \
	"20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{6}[+-][0-9]{2}:" \
	"[0-9]{2}"
#define SYSLOG "[A-Z][a-z]{2} [ 123][0-9] [0-2][0-9]:[0-5][0-9]:[0-6][0-9]"

static void envelopes(void **state)
{
	static const struct {
		enum log_format format;
		bool with_host;
		const char *sd, *pattern;
	} t[] = {
		{ LOG_FMT_LOCAL, false, "", "^<134>" SYSLOG " haproxy\\[4321\\]: GET /\n$" },
		{ LOG_FMT_LOCAL, true, "", "^<134>" SYSLOG " haproxy\\[4321\\]: GET /\n$" },
		{ LOG_FMT_DEFAULT, false, "", "^<134>" SYSLOG " haproxy\\[4321\\]: GET /\n$" },
		{ LOG_FMT_DEFAULT, true, "", "^<134>" SYSLOG " edge1 haproxy\\[4321\\]: GET /\n$" },
		{ LOG_FMT_RFC3164, false, "",
		  "^<134>" SYSLOG " localhost haproxy\\[4321\\]: GET /\n$" },
		{ LOG_FMT_RFC3164, true, "", "^<134>" SYSLOG " edge1 haproxy\\[4321\\]: GET /\n$" },
		{ LOG_FMT_RFC5424, false, "", "^<134>1 " ISO " - haproxy 4321 - - GET /\n$" },
		{ LOG_FMT_RFC5424, true, "[a b=\"c\"]",
		  "^<134>1 " ISO " edge1 haproxy 4321 - \\[a b=\"c\"\\] GET /\n$" },
		{ LOG_FMT_PRIORITY, true, "", "^<134>GET /\n$" },
		{ LOG_FMT_SHORT, true, "", "^<6>GET /\n$" },
		{ LOG_FMT_TIMED, true, "", "^<6>" ISO " GET /\n$" },
		{ LOG_FMT_ISO, true, "", "^" ISO " GET /\n$" },
		{ LOG_FMT_RAW, true, "", "^GET /\n$" },
	};
	struct log_target target;
	int fd = open_udp(&target);

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		target.format = t[i].format;
		log_set_identity(STR("haproxy"), 4321, t[i].with_host ? STR("edge1") : STR_NULL);
		log_emit(&target, 1, LOG_LVL_INFO, STR_NULL, str_from_cstr(t[i].sd), STR("GET /"));
		assert_match(receive(fd), t[i].pattern);
	}
	target.format = LOG_FMT_LOCAL;
	log_emit(&target, 1, LOG_LVL_INFO, STR("web-tag"), STR_NULL, STR("x"));
	assert_match(receive(fd), " web-tag\\[4321\\]: x\n$");
	log_set_identity(STR("other"), 99, STR_NULL);
	emit(&target, 1, "x");
	assert_match(receive(fd), " other\\[99\\]: x\n$");
	log_set_identity(STR("haproxy"), 4321, STR("edge1"));
	close(fd);
}

/* The texts of a known instant, in a zone that is not UTC. */
static void dates(void **state)
{
	struct log_identity id = { .tag = "t", .tag_len = 1, .pid_text = "7", .pid_len = 1 };
	struct log_target t = { .format = LOG_FMT_ISO };
	struct log_dates d = { 0 };
	char text[100], want[40];
	struct timespec ts;
	struct tm tm;
	size_t n;

	setenv("TZ", "HGT+03:30", 1);
	tzset();
	n = log_format_line(text, sizeof(text) - 1, &t, LOG_LVL_INFO, &id, &d, STR_NULL, STR_NULL,
			    STR("m"));
	clock_gettime(CLOCK_REALTIME, &ts);
	text[n] = '\0';
	assert_match(text, "^" ISO " m\n$");
	assert_non_null(strstr(text, "-03:30 m\n"));
	/* The hour is local time's; a second may have passed since. */
	localtime_r(&ts.tv_sec, &tm);
	strftime(want, sizeof(want), "%Y-%m-%dT%H:", &tm);
	if (ts.tv_sec % 3600 > 2)
		assert_memory_equal(text, want, strlen(want));
	strftime(want, sizeof(want), "%b %e %H:", &tm);
	if (ts.tv_sec % 3600 > 2)
		assert_memory_equal(d.syslog, want, strlen(want));
	unsetenv("TZ");
	tzset();
}

static void levels_and_lengths(void **state)
{
	struct log_target t;
	char line[3000];
	int fd = open_udp(&t);

	t.format = LOG_FMT_SHORT;
	t.max_level = LOG_LVL_NOTICE;
	t.min_level = LOG_LVL_ERR;
	log_emit(&t, 1, LOG_LVL_INFO, STR_NULL, STR_NULL, STR("dropped"));
	log_emit(&t, 1, LOG_LVL_NOTICE, STR_NULL, STR_NULL, STR("a"));
	log_emit(&t, 1, LOG_LVL_EMERG, STR_NULL, STR_NULL, STR("b"));
	assert_string_equal(receive(fd), "<5>a\n");
	assert_string_equal(receive(fd), "<3>b\n");
	memset(line, 'x', sizeof(line));
	t.max_len = 80;
	log_emit(&t, 1, LOG_LVL_ERR, STR_NULL, STR_NULL, str_make(line, sizeof(line)));
	assert_int_equal(strlen(receive(fd)), 80);
	log_emit(&t, 1, LOG_LVL_ERR, STR_NULL, STR_NULL, str_make(line, 76));
	assert_int_equal(strlen(receive(fd)), 80);
	log_emit(&t, 1, LOG_LVL_ERR, STR_NULL, STR_NULL, str_make(line, 75));
	assert_int_equal(strlen(receive(fd)), 79);
	t.max_len = 1;
	log_emit(&t, 1, LOG_LVL_ERR, STR_NULL, STR_NULL, str_make(line, 75));
	assert_string_equal(receive(fd), "\n");
	t.max_len = 65535;
	for (int i = 0; i < 3; i++)
		log_emit(&t, 1, LOG_LVL_ERR, STR_NULL, STR_NULL, str_make(line, sizeof(line)));
	for (int i = 0; i < 3; i++)
		assert_int_equal(strlen(receive(fd)), 3 + sizeof(line) + 1);
	close(fd);
}

static void sampling_splits_exactly(void **state)
{
	struct log_target t[3];
	int fds[3], n[3] = { 0 };

	for (int i = 0; i < 3; i++) {
		fds[i] = open_udp(&t[i]);
		t[i].format = LOG_FMT_RAW;
		t[i].sample_of = 3;
		t[i].n_samples = 1;
	}
	t[0].samples[0] = (struct log_range){ 1, 1 };
	t[1].samples[0] = (struct log_range){ 2, 2 };
	t[1].samples[1] = (struct log_range){ 3, 3 };
	t[1].n_samples = 2;
	t[2].sample_of = 0;
	for (int i = 0; i < 30; i++) {
		char line[16];

		snprintf(line, sizeof(line), "%d", i);
		emit(t, 3, line);
	}
	for (int i = 0; i < 30; i++) {
		int to = i % 3 ? 1 : 0;

		assert_int_equal(atoi(receive(fds[to])), i);
		n[to]++;
		assert_int_equal(atoi(receive(fds[2])), i);
	}
	assert_int_equal(n[0], 10);
	assert_int_equal(n[1], 20);
	for (int i = 0; i < 3; i++) {
		assert_true(is_silent(fds[i]));
		close(fds[i]);
	}
}

static void unix_datagrams(void **state)
{
	struct log_target t = udp_default;
	char dir[] = "/tmp/test_log.XXXXXX";
	uint64_t dropped = log_dropped();
	int fd;

	assert_non_null(mkdtemp(dir));
	t.transport = LOG_TO_UNIX;
	t.format = LOG_FMT_SHORT;
	t.un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(t.un.sun_path, sizeof(t.un.sun_path), "%s/log", dir);
	/* Nobody there: counted, not waited for. */
	emit(&t, 1, "lost");
	while (log_dropped() == dropped)
		usleep(1000);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&t.un, sizeof(t.un)), 0);
	/* Comes back after the back-off. */
	usleep(120000);
	for (int i = 0; i < 3; i++)
		emit(&t, 1, "here");
	for (int i = 0; i < 3; i++)
		assert_string_equal(receive(fd), "<6>here\n");
	assert_int_equal(log_dropped(), dropped + 1);
	close(fd);
	unlink(t.un.sun_path);
	rmdir(dir);
}

static void descriptors(void **state)
{
	struct log_target t = udp_default;
	char line[6000], got[13000];
	size_t n = 0;
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	t.transport = LOG_TO_FD;
	t.fd = fds[1];
	t.format = LOG_FMT_RAW;
	t.max_len = 65535;
	memset(line, 'y', sizeof(line));
	emit(&t, 1, "one");
	log_emit(&t, 1, LOG_LVL_INFO, STR_NULL, STR_NULL, str_make(line, sizeof(line)));
	emit(&t, 1, "two");
	while (n < 4 + sizeof(line) + 1 + 4) {
		ssize_t r = read(fds[0], got + n, sizeof(got) - n);

		assert_true(r > 0);
		n += (size_t)r;
	}
	assert_memory_equal(got, "one\nyyy", 7);
	assert_memory_equal(got + 4 + sizeof(line), "\ntwo\n", 5);
	close(fds[0]);
	close(fds[1]);
}

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* A pipe that nobody reads: this thread must not notice, and other targets must go on. */
static void stuck_pipe(void **state)
{
	struct log_target t[2];
	uint64_t dropped = log_dropped();
	double begin = seconds();
	int fds[2], udp;

	udp = open_udp(&t[1]);
	t[0] = t[1];
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	t[0].transport = LOG_TO_FD;
	t[0].fd = fds[1];
	for (int i = 0; i < 1500; i++)
		log_emit(t, 1, LOG_LVL_INFO, STR_NULL, STR_NULL,
			 STR("a line that is long enough to fill a pipe sooner or later"));
	assert_true(seconds() - begin < 1.0);
	emit(&t[1], 1, "alive");
	assert_match(receive(udp), "alive\n$");
	while (log_dropped() == dropped)
		usleep(1000);
	close(fds[0]);
	close(fds[1]);
	close(udp);
}

/* Without a writer the ring fills up: what does not fit is counted, nobody waits, order is kept. */
static void full_ring(void **state)
{
	struct log_target t;
	uint64_t dropped;
	unsigned n_sent = 5000, n_got = 0;
	char line[101];
	int fd = open_udp(&t);

	log_writer_stop();
	dropped = log_dropped();
	t.format = LOG_FMT_RAW;
	for (unsigned i = 0; i < n_sent; i++) {
		snprintf(line, sizeof(line), "%0100u", i);
		emit(&t, 1, line);
	}
	dropped = log_dropped() - dropped;
	assert_true(dropped > 0);
	/* At least 200 KiB of the ring were usable. */
	assert_true(n_sent - dropped > 200 * 1024 / 160);
	assert_int_equal(log_writer_start(), 0);
	for (; n_got < n_sent - dropped; n_got++)
		assert_int_equal(atoi(receive(fd) + 80), n_got);
	/* And it goes round: the wrap at the end of the ring included. */
	for (unsigned round = 0; round < 40; round++) {
		for (unsigned i = 0; i < 500; i++) {
			snprintf(line, sizeof(line), "%u:%0*u", i, (int)(i % 80) + 1, 0);
			emit(&t, 1, line);
		}
		for (unsigned i = 0; i < 500; i++)
			assert_int_equal(atoi(receive(fd)), i);
	}
	close(fd);
}

static void messages(void **state)
{
	struct log_target t;
	int fd = open_udp(&t);

	t.format = LOG_FMT_PRIORITY;
	t.facility = 3;
	assert_int_equal(log_set_global_targets(&t, 1), 0);
	mem_fail_at(1);
	assert_int_equal(log_set_global_targets(&t, 1), -12);
	mem_fail_at(0);
	log_msg(LOG_LVL_ALERT, "server %s is %s", "a\nb", "DOWN");
	assert_string_equal(receive(fd), "<25>server a b is DOWN\n");
	assert_int_equal(log_set_global_targets(NULL, 0), 0);
	log_msg(LOG_LVL_ALERT, "nowhere");
	assert_true(is_silent(fd));
	close(fd);
}

static void on_stderr(void **state)
{
	int saved = dup(STDERR_FILENO), fds[2];
	char got[200], want[200];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	dup2(fds[1], STDERR_FILENO);
	log_set_stderr(true);
	log_msg(LOG_LVL_NOTICE, "through the %s", "writer");
	snprintf(want, sizeof(want), "[NOTICE]   (%d) : through the writer\n", (int)getpid());
	assert_string_equal(receive(fds[0]), want);
	log_thread_leave();
	/* Without a ring at once, whether wanted or not. */
	log_set_stderr(false);
	log_msg(LOG_LVL_WARNING, "at once");
	dup2(saved, STDERR_FILENO);
	snprintf(want, sizeof(want), "[WARNING]  (%d) : at once\n", (int)getpid());
	snprintf(got, sizeof(got), "%s", receive(fds[0]));
	assert_string_equal(got, want);
	assert_int_equal(log_thread_enter(), 0);
	close(saved);
	close(fds[0]);
	close(fds[1]);
}

#define THREADS 4
#define LINES	2000

static void *thread_main(void *arg)
{
	if (log_thread_enter())
		abort();
	for (unsigned i = 0; i < LINES; i++) {
		emit(arg, 1, "line");
		if (i % 100 == 0) {
			log_msg(LOG_LVL_DEBUG, "message");
			usleep(500);
		}
	}
	log_thread_leave();
	return NULL;
}

static void many_threads(void **state)
{
	pthread_t threads[THREADS];
	uint64_t dropped = log_dropped();
	unsigned n = 0;
	struct log_target t, global;
	int fd = open_udp(&t), other = open_udp(&global);

	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, thread_main, &t), 0);
	/* Identity and targets change meanwhile. */
	for (unsigned i = 0; i < 20; i++) {
		log_set_identity(i % 2 ? STR("haproxy") : STR("long-haproxy"), 4321, STR("edge1"));
		assert_int_equal(log_set_global_targets(&global, i % 2), 0);
		usleep(500);
	}
	for (; n < THREADS * LINES; n++) {
		const char *text = receive(fd);

		if (!*text)
			break;
		assert_match(text, " (long-)?haproxy\\[4321\\]: line\n$");
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(n + (log_dropped() - dropped), THREADS * LINES);
	close(fd);
	close(other);
}

static void allocation_failures(void **state)
{
	log_thread_leave();
	for (unsigned i = 1; i <= 2; i++) {
		mem_fail_at(i);
		assert_int_equal(log_thread_enter(), -12);
	}
	mem_fail_at(0);
	assert_int_equal(log_thread_enter(), 0);
}

static void names(void **state)
{
	assert_int_equal(log_level_from_name(STR("emerg")), 0);
	assert_int_equal(log_level_from_name(STR("debug")), 7);
	assert_int_equal(log_level_from_name(STR("Debug")), -1);
	assert_int_equal(log_level_from_name(STR_NULL), -1);
	assert_int_equal(log_facility_from_name(STR("kern")), 0);
	assert_int_equal(log_facility_from_name(STR("local0")), 16);
	assert_int_equal(log_facility_from_name(STR("local7")), 23);
	assert_int_equal(log_facility_from_name(STR("local8")), -1);
	assert_string_equal(log_level_name(LOG_LVL_ERR), "err");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(envelopes),
		cmocka_unit_test(dates),
		cmocka_unit_test(levels_and_lengths),
		cmocka_unit_test(sampling_splits_exactly),
		cmocka_unit_test(unix_datagrams),
		cmocka_unit_test(descriptors),
		cmocka_unit_test(stuck_pipe),
		cmocka_unit_test(full_ring),
		cmocka_unit_test(messages),
		cmocka_unit_test(on_stderr),
		cmocka_unit_test(many_threads),
		cmocka_unit_test(allocation_failures),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
