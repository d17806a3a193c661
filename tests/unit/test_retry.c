/* SPDX-License-Identifier: BSD-2-Clause */
/* links: proxy lb net conf expr http ev base */
/*
 * `retry-on`: what is sent again after which failure, what is not, how often, and to whom. Two servers: one that
 * fails as it is told, one that is well.
 */
#include "unit/proxy_env.h"

static struct env env;
static struct origin bad, good;
static uint16_t port;

#define HELLO "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

static void serve_text(struct origin *o, int fd)
{
	char buf[8192];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf) - 1, 0)) > 0) {
		buf[n] = '\0';
		origin_note(o, buf);
		if (o->answer)
			send_text(fd, o->answer);
	}
}

/* What it has to say, and the end. */
static void serve_and_close(struct origin *o, int fd)
{
	char buf[8192];

	if (recv(fd, buf, sizeof(buf), 0) <= 0)
		return;
	atomic_fetch_add(&o->n_requests, 1);
	if (o->answer)
		send_text(fd, o->answer);
}

static void serve_and_reset(struct origin *o, int fd)
{
	char buf[8192];

	if (recv(fd, buf, sizeof(buf), 0) <= 0)
		return;
	atomic_fetch_add(&o->n_requests, 1);
	tcp_reset(fd);
}

static void start(void (*serve)(struct origin *o, int fd), const char *answer, const char *lines)
{
	/* Short where it is waited for; the good server has to answer in that time, too. */
	bool is_mute = serve == serve_text && !answer;
	char text[2048];

	origin_start(&bad, serve);
	bad.answer = answer;
	origin_start(&good, serve_text);
	good.answer = HELLO;
	port = free_port();
	snprintf(text, sizeof(text),
		 "defaults\n mode http\n timeout client 20s\n timeout server %s\n timeout connect "
		 "2s\nlisten px\n bind 127.0.0.1:%u\n balance roundrobin\n%s"
		 " server bad 127.0.0.1:%u\n server good 127.0.0.1:%u\n",
		 is_mute ? "700ms" : "10s", port, lines, bad.port, good.port);
	env_start(&env, 1, text);
}

static void stop(void)
{
	env_stop(&env);
	origin_stop(&bad);
	origin_stop(&good);
}

#define GET "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
#define POST(body) \
	"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\n" body

static const struct failure {
	const char *word;
	void (*serve)(struct origin *o, int fd);
	const char *answer, *status; /* what the client gets without the word */
} failures[] = {
	{ "empty-response", serve_and_close, NULL, " 502 " },
	{ "empty-response", serve_and_reset, NULL, " 502 " },
	{ "junk-response", serve_and_close, "HTTP/1.1 200 OK\r\nConte", " 502 " },
	{ "junk-response", serve_and_close, "SSH-2.0 sorry\r\n\r\n", " 502 " },
	{ "response-timeout", serve_text, NULL, " 504 " },
	{ "429", serve_text, "HTTP/1.1 429 Later\r\nContent-Length: 0\r\n\r\n", " 429 " },
	{ "503", serve_text, "HTTP/1.1 503 Oh\r\nContent-Length: 0\r\n\r\n", " 503 " },
};

static unsigned count(const char *request, const char *needle, unsigned times)
{
	unsigned n = 0;

	for (unsigned i = 0; i < times; i++)
		n += strstr(ask_once(port, request), needle) != NULL;
	return n;
}

static void test_every_failure(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
		const struct failure *f = &failures[i];
		char lines[128];

		/* Every request meets the bad server first, because the second attempt moves the turn on. */
		snprintf(lines, sizeof(lines), " retry-on %s\n", f->word);
		start(f->serve, f->answer, lines);
		if (count(GET, "hello", 4) != 4)
			fail_msg("%s (%zu): not retried", f->word, i);
		assert_int_equal(count(POST("body"), "hello", 2), 2);
		if (atomic_load(&bad.n_requests) != 6)
			fail_msg("%s (%zu): %u attempts at the bad server, %u at the good", f->word,
				 i, atomic_load(&bad.n_requests), atomic_load(&good.n_requests));
		assert_non_null(strstr(good.last, "POST / HTTP/1.1"));
		assert_non_null(strstr(good.last, "\r\n\r\nbody"));
		stop();
		/* Without it the failure is the client's to see. */
		start(f->serve, f->answer, "");
		assert_int_equal(count(GET, f->status, 2), 1);
		assert_int_equal(atomic_load(&bad.n_requests), 1);
		stop();
		/* disable-l7-retry takes it back for one request. */
		snprintf(lines, sizeof(lines),
			 " retry-on %s\n http-request disable-l7-retry if METH_POST\n", f->word);
		start(f->serve, f->answer, lines);
		assert_int_equal(count(GET, "hello", 2), 2);
		assert_int_equal(count(POST("body"), f->status, 2), 1);
		stop();
	}
}

/* Counters tell, and the number of attempts is what `retries` says. */
static void test_bounded(void **state)
{
	struct hg_l7_counters c;
	char text[1024];

	origin_start(&bad, serve_and_close);
	port = free_port();
	snprintf(text, sizeof(text),
		 "defaults\n mode http\n timeout client 5s\n timeout server 1s\n timeout connect "
		 "2s\n"
		 "listen px\n bind 127.0.0.1:%u\n retry-on empty-response\n retries 2\n"
		 " server bad 127.0.0.1:%u\n",
		 port, bad.port);
	env_start(&env, 1, text);
	assert_int_equal(count(GET, " 502 ", 1), 1);
	assert_int_equal(atomic_load(&bad.n_requests), 3);
	c = env_sum(&env, lb_find_backend(&env.registry, STR("px")), false);
	assert_int_equal(c.retries, 2);
	assert_int_equal(c.rsp_errors, 1);
	env_stop(&env);
	origin_stop(&bad);
}

/* A body that does not fit, or has not all come, was not kept: one attempt. */
static void test_only_whole_requests(void **state)
{
	static char big[200000];
	int fd;

	start(serve_and_close, NULL, " retry-on all-retryable-errors\n retries 5\n");
	for (unsigned i = 0; i < 2; i++) {
		size_t n = (size_t)snprintf(big, sizeof(big),
					    "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
					    "Content-Length: 100000\r\n\r\n");

		memset(big + n, 'x', 100000);
		fd = tcp_connect(port);
		send_all(fd, big, n + 100000);
		recv_until(fd, NULL, 0);
		close(fd);
	}
	assert_int_equal(atomic_load(&bad.n_requests), 1);
	stop();
	start(serve_and_close, NULL, " retry-on all-retryable-errors\n retries 5\n");
	for (unsigned i = 0; i < 2; i++) {
		fd = tcp_connect(port);
		send_text(fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\npart");
		recv_until(fd, "HTTP/1.1 ", 1);
		close(fd);
	}
	assert_int_equal(atomic_load(&bad.n_requests), 1);
	stop();
}

/* `retry-on none`: not even a refused connection. */
static void test_none(void **state)
{
	char text[1024];

	origin_start(&good, serve_text);
	good.answer = HELLO;
	port = free_port();
	snprintf(text, sizeof(text),
		 "defaults\n mode http\n timeout client 5s\n timeout server 1s\n timeout connect "
		 "2s\n"
		 "listen px\n bind 127.0.0.1:%u\n balance roundrobin\n retry-on none\n"
		 " server dead 127.0.0.1:%u\n server good 127.0.0.1:%u\n",
		 port, free_port(), good.port);
	env_start(&env, 1, text);
	assert_int_equal(count(GET, " 503 ", 4), 2);
	env_stop(&env);
	origin_stop(&good);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_failure),
		cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_only_whole_requests),
		cmocka_unit_test(test_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
