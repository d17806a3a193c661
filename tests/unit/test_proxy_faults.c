/* SPDX-License-Identifier: BSD-2-Clause */
/* links: proxy lb net conf expr http ev base */
/*
 * What goes wrong: servers that refuse, hang, lie and vanish; clients that do; limits, queues,
 * timeouts; with the log's termination codes. And mode tcp, reload and drain.
 */
#include <sys/un.h>

#include "base/log_priv.h"
#include "unit/proxy_env.h"

static struct env env;
static struct origin origin;
static char conf_text[4096];
static uint16_t port;
static int log_fd;
static char log_path[64];

static void log_open(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct timeval tv = { .tv_sec = 3 };

	snprintf(log_path, sizeof(log_path), "/tmp/hg-test-log.%d", (int)getpid());
	unlink(log_path);
	snprintf(un.sun_path, sizeof(un.sun_path), "%s", log_path);
	log_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	setsockopt(log_fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	assert_int_equal(bind(log_fd, (struct sockaddr *)&un, sizeof(un)), 0);
}

/* The next line, without its envelope. */
static char *log_line(void)
{
	static char line[4096];
	ssize_t n = recv(log_fd, line, sizeof(line) - 1, 0);

	line[n > 0 ? n : 0] = '\0';
	return line;
}

static void expect_log(const char *what)
{
	char *l = log_line();

	if (!strstr(l, what))
		fail_msg("log line: '%s', expected '%s'", l, what);
}

static void start(unsigned n_workers, const char *fmt, ...)
{
	char body[3072];
	char line[2048];
	va_list ap;

	/* What an earlier test left behind. */
	do {
		usleep(20000);
	} while (log_is_pending());
	while (recv(log_fd, line, sizeof(line), MSG_DONTWAIT) > 0)
		;
	va_start(ap, fmt);
	vsnprintf(body, sizeof(body), fmt, ap);
	va_end(ap);
	snprintf(conf_text, sizeof(conf_text),
		 "defaults\n mode http\n log %s format raw local0\n option httplog\n timeout "
		 "client 400ms\n"
		 " timeout server 400ms\n timeout connect 300ms\n%s",
		 log_path, body);
	env_start(&env, n_workers, conf_text);
}

static void start_simple(const char *lines)
{
	port = free_port();
	start(1, "listen px\n bind 127.0.0.1:%u\n%s server s1 127.0.0.1:%u\n", port, lines,
	      origin.port);
}

static void stop_all(void)
{
	env_stop(&env);
	origin_stop(&origin);
}

/* --- streams as the worker lists them ------------------------------------------------------------------ */

static struct stream_info info_seen;
static unsigned info_n;

static void on_list(void *ctx, struct stream_info *infos, unsigned n)
{
	info_n = n;
	if (n)
		info_seen = infos[0];
	mem_free(infos);
}

/* Until worker 0 has one stream, which is in that phase; it is in info_seen then. */
static void wait_stream(const char *phase)
{
	for (int i = 0; i < 2000; i++) {
		info_n = UINT_MAX;
		assert_int_equal(worker_list_streams(env.workers[0], NULL, on_list), 0);
		ENV_WAIT(&env, info_n != UINT_MAX);
		if (info_n == 1 && strcmp(info_seen.phase, phase) == 0)
			return;
		usleep(2000);
	}
	fail_msg("%u streams, the last one seen in %s instead of %s", info_n, info_seen.phase,
		 phase);
}

/* --- origins --------------------------------------------------------------------------------------------- */

#define GET   "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
#define CLOSE "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

static void serve_text(struct origin *o, int fd)
{
	char buf[8192];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0) {
		atomic_fetch_add(&o->n_requests, 1);
		if (o->answer)
			send_text(fd, o->answer);
	}
}

static void serve_text_and_close(struct origin *o, int fd)
{
	char buf[8192];

	if (recv(fd, buf, sizeof(buf), 0) > 0 && o->answer)
		send_text(fd, o->answer);
}

static void serve_reset(struct origin *o, int fd)
{
	char buf[8192];

	if (recv(fd, buf, sizeof(buf), 0) > 0 && o->answer)
		send_text(fd, o->answer);
	usleep(20000);
	tcp_reset(fd);
}

#define HELLO "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

static void test_refused(void **state)
{
	char *a;

	origin_start(&origin, serve_text);
	origin.answer = HELLO;
	port = free_port();
	start(1, "listen px\n bind 127.0.0.1:%u\n retries 1\n server s1 127.0.0.1:%u\n", port,
	      free_port());
	a = ask_once(port, CLOSE);
	assert_non_null(strstr(a, "HTTP/1.1 503 Service Unavailable\r\n"));
	assert_non_null(strstr(a, "No server is available to handle this request."));
	expect_log(" px/s1 0/0/-1/-1/");
	env_stop(&env);
	/* One dead, one alive: nobody notices. */
	port = free_port();
	start(1,
	      "listen px\n bind 127.0.0.1:%u\n balance roundrobin\n option redispatch 1\n server "
	      "s1 127.0.0.1:%u\n"
	      " server s2 127.0.0.1:%u\n",
	      port, free_port(), origin.port);
	for (int i = 0; i < 4; i++) {
		a = ask_once(port, CLOSE);
		assert_non_null(strstr(a, "hello"));
		expect_log(" px/s2 ");
	}
	/* No server at all. */
	env_stop(&env);
	port = free_port();
	start(1,
	      "frontend px\n bind 127.0.0.1:%u\n default_backend b\nbackend b\n server s1 "
	      "127.0.0.1:%u disabled\n",
	      port, origin.port);
	a = ask_once(port, CLOSE);
	assert_non_null(strstr(a, "HTTP/1.1 503 "));
	expect_log(" b/<NOSRV> 0/-1/-1/-1/0 503 ");
	stop_all();
}

static void test_server_lies(void **state)
{
	static const struct {
		void (*serve)(struct origin *o, int fd);
		const char *answer, *want, *log;
	} cases[] = {
		{ serve_text_and_close, NULL, "HTTP/1.1 502 Bad Gateway", " - - SH-- " },
		{ serve_text_and_close, "HTTP/1.1 200 OK\r\nContent", "HTTP/1.1 502 ",
		  " - - SH-- " },
		{ serve_text_and_close, "garbage\r\n\r\n", "HTTP/1.1 502 ", " - - PH-- " },
		{ serve_text_and_close,
		  "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
		  "HTTP/1.1 502 ", " - - PH-- " },
		{ serve_text_and_close, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel", "hel",
		  " - - SD-- " },
		{ serve_reset, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel", "hel",
		  " - - SD-- " },
		{ serve_text_and_close,
		  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nxx\r\n", "abc",
		  " - - PD-- " },
		{ serve_text, NULL, "HTTP/1.1 504 Gateway Time-out", " 504 " },
		{ serve_text, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel", "hel",
		  " - - sD-- " },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char *a;

		origin_start(&origin, cases[i].serve);
		origin.answer = cases[i].answer;
		start_simple("");
		a = ask_once(port, GET);
		if (!strstr(a, cases[i].want))
			fail_msg("case %zu: answer '%s'", i, a);
		expect_log(cases[i].log);
		stop_all();
	}
}

/* What `show errors` says of the one section, NULL: nothing. */
static struct invalid_msg *invalid_of(unsigned which)
{
	struct proxy_snapshot *s = container_of(atomic_load(&env.hub.current),
						struct proxy_snapshot, snap);
	struct invalid_msg *m;

	assert_int_equal(invalid_get(s->backends[0], which, &m), 0);
	return m;
}

static void test_invalid_messages_are_kept(void **state)
{
	static const struct {
		bool is_response;
		const char *text; /* from the client, or from the server */
		const char *kept;
		uint32_t error_at;
		uint8_t error;
		uint64_t offset;
	} cases[] = {
		{ false, "GET / HTTP/1.1\r\nHost: a\r\nbad name: x\r\n\r\n", "GET /", 28,
		  HTTP_ERR_BAD_FIELD_NAME, 0 },
		{ false, "GET /a\001b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a\001b", 6,
		  HTTP_ERR_BAD_TARGET, 0 },
		{ false,
		  "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
		  "chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
		  "3\r\nabc\r\nzz\r\n", 8, HTTP_ERR_BAD_CHUNK, 56 },
		{ true, "HTTP/1.1 200 OK\r\nA\001: b\r\n\r\n", "HTTP/1.1 200", 18,
		  HTTP_ERR_BAD_FIELD_NAME, 0 },
		{ true, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd",
		  "3\r\nabcd", 6, HTTP_ERR_BAD_CHUNK, 47 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct invalid_msg *m, *other;

		origin_start(&origin, serve_text_and_close);
		origin.answer = cases[i].is_response ? cases[i].text : HELLO;
		start_simple("");
		assert_null(invalid_of(INVALID_REQUEST));
		(void)ask_once(port, CLOSE); /* nothing wrong, or the server's fault */
		if (!cases[i].is_response) {
			assert_int_equal(env.shared.n_invalid, 0);
			(void)ask_once(port, cases[i].text);
		}
		expect_log(" px ");
		m = invalid_of(cases[i].is_response ? INVALID_RESPONSE : INVALID_REQUEST);
		other = invalid_of(cases[i].is_response ? INVALID_REQUEST : INVALID_RESPONSE);
		if (!m || other || m->error != cases[i].error || m->error_at != cases[i].error_at ||
		    m->offset != cases[i].offset || m->len >= m->room ||
		    strncmp(m->bytes, cases[i].kept, strlen(cases[i].kept)) != 0)
			fail_msg("case %zu: %s, error %u at %u of '%.*s' from %lu", i,
				 m ? "kept" : "lost", m ? m->error : 0, m ? m->error_at : 0,
				 m ? (int)m->len : 0, m ? m->bytes : "",
				 (unsigned long)(m ? m->offset : 0));
		assert_int_equal(env.shared.n_invalid, 1);
		assert_string_equal(m->server, cases[i].is_response || m->is_in_body ? "s1" : "");
		assert_int_equal(m->src.sa.sa_family, AF_INET);
		mem_free(m);
		stop_all();
	}
}

static void test_client_timeouts(void **state)
{
	char *a;
	int fd;

	origin_start(&origin, serve_text);
	origin.answer = HELLO;
	start_simple(" timeout http-request 200ms\n timeout http-keep-alive 100ms\n");
	a = ask_once(port, "GET / HTTP/1.1\r\nHo");
	assert_non_null(strstr(a, "HTTP/1.1 408 Request Time-out\r\n"));
	expect_log(" px/<NOSRV> -1/-1/-1/-1/");
	a = ask_once(port, "");
	assert_non_null(strstr(a, "HTTP/1.1 408 "));
	expect_log(" - - cR-- ");
	/* Between requests: closed, and no word about it. */
	fd = tcp_connect(port);
	send_text(fd, GET);
	recv_until(fd, "hello", 1);
	expect_log(" 200 ");
	assert_true(is_closed(fd));
	close(fd);
	/* A body that does not come. */
	a = ask_once(port, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
	/* This server answers at once; the timeout hits while the rest is awaited or not at all. */
	assert_non_null(strstr(a, "HTTP/1.1 "));
	log_line();
	origin.answer = NULL;
	a = ask_once(port, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
	assert_non_null(strstr(a, "HTTP/1.1 408 "));
	expect_log(" - - cD-- ");
	stop_all();
}

static void test_client_gone(void **state)
{
	struct linger hard = { 1, 0 };
	int fd;

	origin_start(&origin, serve_text);
	start_simple(" timeout server 20s\n");
	fd = tcp_connect(port);
	send_text(fd, "GET / HT");
	shutdown(fd, SHUT_WR);
	recv_until(fd, NULL, 0);
	expect_log(" px/<NOSRV> -1/-1/-1/-1/");
	close(fd);
	/* Reset while the server thinks. */
	fd = tcp_connect(port);
	send_text(fd, GET);
	wait_stream("RSP_HEAD");
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(fd);
	expect_log(" - - CH-- ");
	/* A half-closed client still gets its answer ... */
	origin.answer = HELLO;
	fd = tcp_connect(port);
	send_text(fd, GET);
	shutdown(fd, SHUT_WR);
	assert_non_null(strstr(recv_until(fd, "hello", 1), "200 OK"));
	expect_log(" - - ---- ");
	close(fd);
	env_stop(&env);
	/* ... unless the operator says otherwise. */
	origin.answer = NULL;
	start_simple(" option abortonclose\n timeout server 20s\n");
	fd = tcp_connect(port);
	send_text(fd, GET);
	wait_stream("RSP_HEAD");
	shutdown(fd, SHUT_WR);
	expect_log(" - - CH-- ");
	close(fd);
	stop_all();
}

static _Atomic bool is_held; /* serve_slow() answers nothing meanwhile */

static void serve_slow(struct origin *o, int fd)
{
	char buf[8192];

	while (recv(fd, buf, sizeof(buf), 0) > 0) {
		usleep(100000);
		while (atomic_load(&is_held))
			usleep(1000);
		atomic_fetch_add(&o->n_requests, 1);
		send_text(fd, HELLO);
	}
}

static void test_queue(void **state)
{
	int fds[4];

	origin_start(&origin, serve_slow);
	port = free_port();
	start(2,
	      "listen px\n bind 127.0.0.1:%u\n timeout queue 2s\n balance roundrobin\n server s1 "
	      "127.0.0.1:%u maxconn 1\n",
	      port, origin.port);
	for (int i = 0; i < 4; i++) {
		fds[i] = tcp_connect(port);
		send_text(fds[i], GET);
	}
	for (int i = 0; i < 4; i++)
		assert_non_null(strstr(recv_until(fds[i], "hello", 1), "200 OK"));
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	for (int i = 0; i < 4; i++)
		log_line();
	env_stop(&env);
	port = free_port();
	start(1,
	      "listen px\n bind 127.0.0.1:%u\n timeout queue 30ms\n timeout server 20s\n server s1 "
	      "127.0.0.1:%u maxconn 1\n",
	      port, origin.port);
	atomic_store(&is_held, true);
	fds[0] = tcp_connect(port);
	send_text(fds[0], GET);
	wait_stream("RSP_HEAD");
	assert_non_null(strstr(ask_once(port, CLOSE), "HTTP/1.1 503 "));
	expect_log(" - - sQ-- ");
	atomic_store(&is_held, false);
	close(fds[0]);
	stop_all();
}

static void test_maxconn(void **state)
{
	char text[512];
	int a, b, c;

	origin_start(&origin, serve_text);
	origin.answer = HELLO;
	port = free_port();
	snprintf(text, sizeof(text),
		 "defaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect "
		 "1s\nlisten px\n"
		 " bind 127.0.0.1:%u\n maxconn 2\n server s1 127.0.0.1:%u\n",
		 port, origin.port);
	env_start(&env, 1, text);
	a = tcp_connect(port);
	b = tcp_connect(port);
	send_text(a, GET);
	send_text(b, GET);
	recv_until(a, "hello", 1);
	recv_until(b, "hello", 1);
	/* The third is connected by the kernel, and waits. */
	c = tcp_connect(port);
	send_text(c, GET);
	usleep(100000);
	assert_int_equal(recv(c, text, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	close(a);
	assert_non_null(strstr(recv_until(c, "hello", 1), "200 OK"));
	close(b);
	close(c);
	env_stop(&env);
	/* The limit of the process, over two workers. */
	env_start(&env, 2, text);
	atomic_store(&env.shared.maxconn, 1);
	for (int i = 0; i < 20; i++) {
		a = tcp_connect(port);
		b = tcp_connect(port);
		send_text(a, CLOSE);
		send_text(b, CLOSE);
		assert_non_null(strstr(recv_until(a, NULL, 0), "hello"));
		assert_non_null(strstr(recv_until(b, NULL, 0), "hello"));
		close(a);
		close(b);
	}
	stop_all();
}

/* --- mode tcp ----------------------------------------------------------------------------------------------- */

static void serve_upper(struct origin *o, int fd)
{
	char buf[65536];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			buf[i] ^= 0x20;
		send_all(fd, buf, (size_t)n);
	}
	send_text(fd, "END");
	shutdown(fd, SHUT_WR);
}

static void *tcp_writer(void *arg)
{
	int fd = *(int *)arg;
	char buf[8192];

	memset(buf, 'a', sizeof(buf));
	for (int i = 0; i < 500; i++)
		send_all(fd, buf, sizeof(buf));
	shutdown(fd, SHUT_WR);
	return NULL;
}

static void test_tcp(void **state)
{
	static char buf[65536];
	size_t total = 0;
	pthread_t t;
	int fd;

	origin_start(&origin, serve_upper);
	port = free_port();
	start(1,
	      "listen px\n mode tcp\n option tcplog\n bind 127.0.0.1:%u\n server s1 127.0.0.1:%u\n",
	      port, origin.port);
	fd = tcp_connect(port);
	send_text(fd, "abc");
	assert_string_equal(recv_until(fd, "ABC", 1), "ABC");
	shutdown(fd, SHUT_WR);
	assert_string_equal(recv_until(fd, NULL, 0), "END");
	expect_log(" px px/s1 0/");
	close(fd);
	/* Both directions at once, 4 MB. */
	fd = tcp_connect(port);
	pthread_create(&t, NULL, tcp_writer, &fd);
	for (;;) {
		ssize_t n = recv(fd, buf, sizeof(buf), 0);

		if (n <= 0)
			break;
		for (ssize_t i = 0; i < n; i++)
			total += buf[i] == 'A';
	}
	pthread_join(t, NULL);
	assert_int_equal(total, 500 * 8192);
	close(fd);
	expect_log(" 4096003 -- ");
	/* An idle session ends by the client's timeout. */
	fd = tcp_connect(port);
	assert_string_equal(recv_until(fd, NULL, 0), "");
	expect_log(" 0 cD ");
	close(fd);
	env_stop(&env);
	port = free_port();
	start(1,
	      "listen px\n mode tcp\n option tcplog\n bind 127.0.0.1:%u\n retries 0\n server s1 "
	      "127.0.0.1:%u\n",
	      port, free_port());
	assert_string_equal(ask_once(port, "x"), "");
	expect_log(" SC ");
	stop_all();
}

static void test_tcp_rules(void **state)
{
	int fd;

	origin_start(&origin, serve_upper);
	port = free_port();
	start(1,
	      "listen px\n mode tcp\n option tcplog\n bind 127.0.0.1:%u\n tcp-request "
	      "inspect-delay 300ms\n"
	      " tcp-request content accept if { req.payload(0,3) -m str abc }\n tcp-request "
	      "content reject\n"
	      " server s1 127.0.0.1:%u\n",
	      port, origin.port);
	fd = tcp_connect(port);
	send_text(fd, "a");
	usleep(50000);
	send_text(fd, "bcd");
	assert_string_equal(recv_until(fd, "ABCD", 1), "ABCD");
	close(fd);
	log_line();
	assert_string_equal(ask_once(port, "xyz"), "");
	expect_log(" PR ");
	env_stop(&env);
	port = free_port();
	start(1,
	      "listen px\n bind 127.0.0.1:%u\n tcp-request connection reject if { src 127.0.0.0/8 "
	      "}\n"
	      " server s1 127.0.0.1:%u\n",
	      port, origin.port);
	assert_string_equal(ask_once(port, GET), "");
	stop_all();
}

/* --- reload, drain, commands -------------------------------------------------------------------------------- */

static void test_reload(void **state)
{
	struct origin second;
	char text[1024];
	int idle, busy;

	origin_start(&origin, serve_slow);
	origin_start(&second, serve_text);
	second.answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond";
	start_simple(" timeout client 20s\n timeout server 20s\n");
	idle = tcp_connect(port);
	send_text(idle, GET);
	recv_until(idle, "hello", 1);
	atomic_store(&is_held, true);
	busy = tcp_connect(port);
	send_text(busy, GET);
	wait_stream("RSP_HEAD");
	snprintf(text, sizeof(text),
		 "defaults\n mode http\n timeout client 20s\n timeout server 20s\n timeout connect "
		 "1s\n"
		 "listen px\n bind 127.0.0.1:%u\n server s2 127.0.0.1:%u\n",
		 port, second.port);
	env_reload(&env, text);
	env_spin(&env, 30);
	/* The idle one lives on with the new configuration, the busy one ends with the old one. */
	send_text(idle, GET);
	assert_non_null(strstr(recv_until(idle, "second", 1), "200 OK"));
	atomic_store(&is_held, false);
	assert_non_null(strstr(recv_until(busy, "hello", 1), "200 OK"));
	send_text(busy, GET);
	assert_non_null(strstr(recv_until(busy, "second", 1), "200 OK"));
	ENV_WAIT(&env, env.n_destroyed == 1);
	for (int i = 0; i < 10; i++) {
		env_reload(&env, text);
		env_spin(&env, 20);
		send_text(idle, GET);
		assert_non_null(strstr(recv_until(idle, "second", 1), "200 OK"));
	}
	ENV_WAIT(&env, env.n_destroyed == 11);
	close(idle);
	close(busy);
	log_line();
	log_line();
	env_stop(&env);
	origin_stop(&origin);
	origin_stop(&second);
}

/* A client in the middle of its handshake when the configuration changes. */
static void test_reload_in_handshake(void **state)
{
	char text[sizeof(conf_text)];
	int fd;

	origin_start(&origin, serve_text);
	origin.answer = HELLO;
	port = free_port();
	start(1,
	      "listen px\n bind 127.0.0.1:%u accept-proxy\n option forwardfor\n server s1 "
	      "127.0.0.1:%u\n",
	      port, origin.port);
	snprintf(text, sizeof(text), "%s", conf_text);
	fd = tcp_connect(port);
	send_text(fd, "PROXY TCP4 192.0.2.1 ");
	usleep(20000);
	env_reload(&env, text);
	env_spin(&env, 20);
	send_text(fd, "192.0.2.2 1000 80\r\n" GET);
	assert_non_null(strstr(recv_until(fd, "hello", 1), "200 OK"));
	expect_log("192.0.2.1:1000 ");
	ENV_WAIT(&env, env.n_destroyed == 1);
	close(fd);
	/* And one whose address is gone afterwards. */
	fd = tcp_connect(port);
	send_text(fd, "PROXY TCP4 192.0.2.1 ");
	usleep(20000);
	snprintf(text, sizeof(text),
		 "defaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect "
		 "1s\n"
		 "listen px\n bind 127.0.0.1:%u\n server s1 127.0.0.1:%u\n",
		 free_port(), origin.port);
	env_reload(&env, text);
	env_spin(&env, 20);
	send_text(fd, "192.0.2.2 1000 80\r\n" GET);
	assert_string_equal(recv_until(fd, NULL, 0), "");
	close(fd);
	stop_all();
}

static void on_drained(struct worker *w)
{
	((struct env *)worker_owner(w))->n_drained++;
}

static void test_drain_and_list(void **state)
{
	int busy, idle;

	origin_start(&origin, serve_slow);
	start_simple(" timeout client 20s\n timeout server 20s\n");
	idle = tcp_connect(port);
	send_text(idle, GET);
	recv_until(idle, "hello", 1);
	atomic_store(&is_held, true);
	busy = tcp_connect(port);
	send_text(busy, GET);
	wait_stream("RSP_HEAD");
	assert_string_equal(info_seen.frontend, "px");
	assert_string_equal(info_seen.server, "s1");
	assert_string_equal(info_seen.method_and_target, "GET /");
	worker_drain(env.workers[0], on_drained);
	assert_true(is_closed(idle));
	assert_int_equal(env.n_drained, 0);
	atomic_store(&is_held, false);
	assert_non_null(strcasestr(recv_until(busy, "hello", 1), "connection: close\r\n"));
	assert_true(is_closed(busy));
	ENV_WAIT(&env, env.n_drained == 1);
	close(idle);
	close(busy);
	log_line();
	log_line();
	stop_all();
}

struct kills {
	unsigned n_asked, n_found;
};

static void on_kill(void *ctx, bool is_found)
{
	struct kills *k = ctx;

	k->n_asked++;
	k->n_found += is_found;
}

static void test_kill(void **state)
{
	struct kills kills = { .n_asked = 0 };
	int fd;

	origin_start(&origin, serve_text);
	start_simple(" timeout client 20s\n timeout server 20s\n");
	fd = tcp_connect(port);
	send_text(fd, GET);
	wait_stream("RSP_HEAD");
	assert_int_equal(worker_kill_stream(env.workers[0], info_seen.id + 1, &kills, on_kill), 0);
	ENV_WAIT(&env, kills.n_asked == 1);
	assert_int_equal(kills.n_found, 0);
	assert_int_equal(worker_kill_stream(env.workers[0], info_seen.id, &kills, on_kill), 0);
	assert_string_equal(recv_until(fd, NULL, 0), "");
	expect_log(" - - KH-- ");
	ENV_WAIT(&env, kills.n_found == 1);
	close(fd);
	fd = tcp_connect(port);
	send_text(fd, GET);
	wait_stream("RSP_HEAD");
	worker_shutdown_server(env.workers[0], lb_find_server(&env.registry, STR("px"), STR("s1")),
			       'D');
	assert_string_equal(recv_until(fd, NULL, 0), "");
	expect_log(" - - DH-- ");
	close(fd);
	stop_all();
}

/* --- memory --------------------------------------------------------------------------------------------------- */

struct fail_order {
	struct mail mail;
	uint64_t n;
	uint64_t seen;
	_Atomic bool done;
};

static void deliver_fail(struct mail *m)
{
	struct fail_order *o = container_of(m, struct fail_order, mail);

	o->seen = mem_alloc_count();
	mem_fail_at(o->n);
	atomic_store(&o->done, true);
}

/* The n-th allocation of the worker from now fails; returns how many there were since the last order. */
static uint64_t worker_fail_at(uint64_t n)
{
	struct fail_order o = { .mail.deliver = deliver_fail, .n = n };

	mailbox_send(worker_mailbox(env.workers[0]), &o.mail);
	while (!atomic_load(&o.done))
		usleep(500);
	return o.seen;
}

#define POST \
	"POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"

/* Every allocation on the way of a request fails once: an answer or a close, never a crash, and the next request works. */
static void test_out_of_memory(void **state)
{
	uint64_t needed = 1;

	origin_start(&origin, serve_text);
	origin.answer = HELLO;
	for (uint64_t n = 1; n <= needed + 1; n++) {
		struct timeval tv = { .tv_sec = 1 };
		char *a;
		int fd;

		start_simple(" option forwardfor\n http-request set-header X-A %[path]\n"
			     " http-request wait-for-body time 1s\n"
			     " http-request set-header X-Body %[req.body]\n"
			     " http-response wait-for-body time 1s\n"
			     " http-response set-header X-Rsp %[res.body]\n"
			     " http-response add-header X-B \"%[res.hdr(server)] b\"\n");
		worker_fail_at(n);
		fd = tcp_connect(port);
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
		send_text(fd, GET);
		a = recv_until(fd, "hello", 1);
		if (strstr(a, "HTTP/1.1 200 OK")) {
			send_text(fd, POST);
			recv_until(fd, "hello", 1);
			/* In two pieces, mostly. */
			send_all(fd, GET, 20);
			usleep(2000);
			send_text(fd, GET + 20);
			recv_until(fd, "hello", 1);
		} else if (*a) {
			assert_non_null(strstr(a, "HTTP/1.1 50"));
		}
		close(fd);
		if (worker_fail_at(0) > needed)
			needed = n + 1;
		assert_true(n < 200);
		a = ask_once(port, CLOSE);
		assert_non_null(strstr(a, "hello"));
		env_stop(&env);
	}
	assert_true(needed > 5);
	origin_stop(&origin);
}

static int setup(void **state)
{
	assert_int_equal(log_init(), 0);
	assert_int_equal(log_thread_enter(), 0);
	log_open();
	return log_writer_start();
}

static int teardown(void **state)
{
	log_writer_stop();
	close(log_fd);
	unlink(log_path);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_server_lies),
		cmocka_unit_test(test_invalid_messages_are_kept),
		cmocka_unit_test(test_client_timeouts),
		cmocka_unit_test(test_client_gone),
		cmocka_unit_test(test_queue),
		cmocka_unit_test(test_maxconn),
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_tcp_rules),
		cmocka_unit_test(test_reload),
		cmocka_unit_test(test_reload_in_handshake),
		cmocka_unit_test(test_drain_and_list),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_out_of_memory),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, setup, teardown);
}
