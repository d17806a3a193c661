/* SPDX-License-Identifier: BSD-2-Clause */
/* links: proxy lb net conf expr http ev base */
/*
 * Requests whose head comes in pieces: while the rest is awaited there is no stream, and nobody notices but
 * the memory: listed, ended by number, timed, drained and served by the configuration they began with.
 */
#include "unit/proxy_env.h"

static struct env env;
static struct origin origin;
static uint16_t port;

#define HELLO "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
#define HEAD  "GET /piece HTTP/1.1\r\nHost: a\r\nX-Long: 0123456789\r\n\r\n"

static void serve(struct origin *o, int fd)
{
	char buf[32768];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf) - 1, 0)) > 0) {
		buf[n] = '\0';
		origin_note(o, buf);
		send_text(fd, HELLO);
	}
}

static void conf_of(char *text, size_t size, const char *lines)
{
	snprintf(text, size,
		 "defaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect "
		 "5s\n"
		 "listen px\n bind 127.0.0.1:%u\n%s server s1 127.0.0.1:%u\n",
		 port, lines, origin.port);
}

static void start(const char *lines)
{
	char text[2048];

	origin_start(&origin, serve);
	port = free_port();
	conf_of(text, sizeof(text), lines);
	env_start(&env, 1, text);
}

static void stop(void)
{
	env_stop(&env);
	origin_stop(&origin);
}

/* --- what the worker says about its streams --------------------------------------------------------- */

static struct stream_info seen;
static unsigned n_seen;
static bool has_answered;

static void on_list(void *ctx, struct stream_info *infos, unsigned n)
{
	n_seen = n;
	if (n)
		seen = infos[0];
	has_answered = true;
	mem_free(infos);
}

static unsigned n_listed(void)
{
	has_answered = false;
	assert_int_equal(worker_list_streams(env.workers[0], NULL, on_list), 0);
	for (int i = 0; i < 1000 && !has_answered; i++)
		env_spin(&env, 5);
	assert_true(has_answered);
	return n_seen;
}

/* Until the worker has taken in `bytes` of one head, or none is open any more. */
static void wait_listed(uint64_t bytes)
{
	for (int i = 0; i < 1000; i++) {
		if (bytes ? n_listed() == 1 && seen.bytes_in == bytes : n_listed() == 0) {
			/* The first time it may be between receiving and reading. */
			n_listed();
			return;
		}
		usleep(5000);
	}
	fail_msg("%u streams, the first with %llu bytes; expected %llu", n_seen,
		 (unsigned long long)seen.bytes_in, (unsigned long long)bytes);
}

static int send_half(size_t n)
{
	int fd = tcp_connect(port);

	send_all(fd, HEAD, n);
	wait_listed(n);
	return fd;
}

static void send_rest(int fd, size_t n)
{
	send_text(fd, HEAD + n);
	assert_non_null(strstr(recv_until(fd, "hello", 1), "200 OK"));
	assert_non_null(strstr(origin_last(&origin), "GET /piece HTTP/1.1\r\n"));
	assert_non_null(strstr(origin_last(&origin), "0123456789\r\n"));
}

/* --- tests ------------------------------------------------------------------------------------------- */

/* One stream's number for all pieces, one request, and no stream meanwhile. */
static void test_pieces(void **state)
{
	static const size_t cuts[] = { 1, 2, 10, 19, 21, 40, sizeof(HEAD) - 2 };
	uint64_t id = 0, age_ns = 0;
	int fd;

	start("");
	fd = tcp_connect(port);
	for (size_t i = 0, at = 0; i < ARRAY_SIZE(cuts); at = cuts[i++]) {
		send_all(fd, HEAD + at, cuts[i] - at);
		wait_listed(cuts[i]);
		assert_string_equal(seen.phase, "REQ_HEAD");
		assert_string_equal(seen.frontend, "px");
		assert_int_equal(__atomic_load_n(&env.counters[0].cur_streams, __ATOMIC_RELAXED),
				 0);
		assert_true(!id || seen.id == id);
		assert_true(seen.age_ns >= age_ns);
		assert_true(seen.expires_ms && seen.expires_ms <= 5010);
		id = seen.id;
		age_ns = seen.age_ns;
	}
	send_rest(fd, cuts[ARRAY_SIZE(cuts) - 1]);
	/* The next one's beginning comes with this one's end; so does its number. */
	send_text(fd, HEAD "GET /piece HT");
	assert_non_null(strstr(recv_until(fd, "hello", 1), "200 OK"));
	wait_listed(13);
	assert_int_equal(seen.id, id + 2);
	send_rest(fd, 13);
	close(fd);
	stop();
}

/* More than is kept without a stream, and more than a buffer holds. */
static void test_long(void **state)
{
	static char line[20000];
	int fd;

	start("");
	memset(line, 'x', sizeof(line));
	for (size_t len = 4000; len <= 16200; len += 12200) {
		fd = tcp_connect(port);
		send_text(fd, "GET /piece HTTP/1.1\r\nHost: a\r\nX: ");
		send_all(fd, line, len);
		wait_listed(len + 33);
		send_text(fd, "\r\nY: 0123456789\r\n\r\n");
		assert_non_null(strstr(recv_until(fd, "hello", 1), "200 OK"));
		assert_non_null(strstr(origin_last(&origin), "0123456789\r\n"));
		close(fd);
	}
	fd = tcp_connect(port);
	send_text(fd, "GET /piece HTTP/1.1\r\nHost: a\r\nX: ");
	send_all(fd, line, 8000);
	wait_listed(8033);
	send_all(fd, line, 12000);
	assert_non_null(strstr(recv_until(fd, "\r\n\r\n", 1), "HTTP/1.1 431 "));
	close(fd);
	stop();
}

/* `timeout http-request` counts from the first byte, whatever comes later. */
static void test_timeout(void **state)
{
	uint64_t left;
	int fd;

	start(" timeout http-request 2s\n");
	fd = send_half(5);
	left = seen.expires_ms;
	assert_true(left && left <= 2010);
	usleep(200000);
	send_all(fd, HEAD + 5, 5);
	wait_listed(10);
	assert_true(seen.expires_ms <= left - 150);
	assert_non_null(strstr(recv_until(fd, NULL, 0), "HTTP/1.1 408 Request Time-out\r\n"));
	close(fd);
	wait_listed(0);
	stop();
}

static void test_gone(void **state)
{
	int fd;

	start("");
	fd = send_half(20);
	shutdown(fd, SHUT_WR);
	assert_non_null(strstr(recv_until(fd, NULL, 0), "HTTP/1.1 400 Bad request\r\n"));
	close(fd);
	tcp_reset(send_half(20));
	wait_listed(0);
	/* What cannot become a head is told as soon as it is here. */
	fd = send_half(20);
	send_text(fd, "\1\r\n\r\n");
	assert_non_null(strstr(recv_until(fd, NULL, 0), "HTTP/1.1 400 Bad request\r\n"));
	close(fd);
	stop();
}

static void on_kill(void *ctx, bool is_found)
{
	*(unsigned *)ctx += is_found ? 1 : 100;
}

static void test_kill(void **state)
{
	unsigned n = 0;
	int fd;

	start("");
	fd = send_half(20);
	assert_int_equal(worker_kill_stream(env.workers[0], seen.id + 1, &n, on_kill), 0);
	assert_int_equal(worker_kill_stream(env.workers[0], seen.id, &n, on_kill), 0);
	assert_string_equal(recv_until(fd, NULL, 0), "");
	close(fd);
	for (int i = 0; i < 1000 && n < 101; i++)
		env_spin(&env, 5);
	assert_int_equal(n, 101);
	/* All of them; and those that are open when the worker stops. */
	fd = send_half(20);
	worker_kill_all(env.workers[0]);
	assert_string_equal(recv_until(fd, NULL, 0), "");
	close(fd);
	fd = send_half(20);
	stop();
	close(fd);
}

/* The rest comes under another configuration, of which the address may be no part any more. */
static void test_reload(void **state)
{
	char text[2048];
	uint16_t first;
	int fd, moved;

	start(" http-request set-header X-Conf first\n");
	fd = send_half(20);
	conf_of(text, sizeof(text), " http-request set-header X-Conf second\n");
	env_reload(&env, text);
	env_spin(&env, 30);
	assert_int_equal(env.n_destroyed, 0);
	send_rest(fd, 20);
	assert_non_null(strstr(origin_last(&origin), "first\r\n"));
	send_text(fd, HEAD);
	assert_non_null(strstr(recv_until(fd, "hello", 1), "200 OK"));
	assert_non_null(strstr(origin_last(&origin), "second\r\n"));
	for (int i = 0; i < 1000 && !env.n_destroyed; i++)
		env_spin(&env, 5);
	assert_int_equal(env.n_destroyed, 1);
	close(fd);
	wait_listed(0);
	moved = send_half(20);
	first = port;
	port = free_port();
	conf_of(text, sizeof(text), "");
	env_reload(&env, text);
	env_spin(&env, 30);
	send_rest(moved, 20);
	assert_true(is_closed(moved));
	close(moved);
	port = first;
	stop();
}

static void on_drained(struct worker *w)
{
	((struct env *)worker_owner(w))->n_drained++;
}

static void test_drain(void **state)
{
	int fd;

	start("");
	fd = send_half(20);
	worker_drain(env.workers[0], on_drained);
	env_spin(&env, 30);
	assert_int_equal(env.n_drained, 0);
	send_text(fd, HEAD + 20);
	assert_non_null(strcasestr(recv_until(fd, "hello", 1), "connection: close\r\n"));
	assert_true(is_closed(fd));
	close(fd);
	for (int i = 0; i < 1000 && !env.n_drained; i++)
		env_spin(&env, 5);
	assert_int_equal(env.n_drained, 1);
	stop();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces),	cmocka_unit_test(test_long),
		cmocka_unit_test(test_timeout), cmocka_unit_test(test_gone),
		cmocka_unit_test(test_kill),	cmocka_unit_test(test_reload),
		cmocka_unit_test(test_drain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
