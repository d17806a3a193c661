/* SPDX-License-Identifier: BSD-2-Clause */
/* links: proxy lb net conf expr http ev base */
/* HTTP through real workers and sockets: forwarding, keep-alive, bodies, upgrades, limits. */
#include "unit/proxy_env.h"

#define DEFAULTS \
	"defaults\n mode http\n timeout client 3s\n timeout server 3s\n timeout connect 1s\n"

static struct env env;
static struct origin origin;
static char conf_text[4096];
static uint16_t port;

static void start(unsigned n_workers, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(conf_text, sizeof(conf_text), fmt, ap);
	va_end(ap);
	env_start(&env, n_workers, conf_text);
}

/* Frontend and one server, with further lines for the section. */
static void start_simple(const char *lines)
{
	port = free_port();
	start(1, DEFAULTS "listen px\n bind 127.0.0.1:%u\n server s1 127.0.0.1:%u\n%s", port,
	      origin.port, lines);
}

static void stop_all(void)
{
	env_stop(&env);
	origin_stop(&origin);
}

static bool origin_more(int fd, char *buf, size_t *len)
{
	ssize_t n = recv(fd, buf + *len, sizeof(origin.last) - 1 - *len, 0);

	if (n <= 0)
		return false;
	*len += (size_t)n;
	buf[*len] = '\0';
	return true;
}

/* Head and body into `buf`; false: closed. */
static bool origin_read_into(int fd, char *buf)
{
	char *end, *cl;
	size_t len = 0, want;

	buf[0] = '\0';
	while (!(end = strstr(buf, "\r\n\r\n")))
		if (!origin_more(fd, buf, &len))
			return false;
	want = (size_t)(end + 4 - buf);
	cl = strcasestr(buf, "\r\ncontent-length:");
	if (cl && cl < end)
		want += strtoul(cl + 17, NULL, 10);
	while (len < want)
		if (!origin_more(fd, buf, &len))
			return false;
	if (strcasestr(buf, "transfer-encoding: chunked"))
		while (!strstr(end + 2, "0\r\n\r\n"))
			if (!origin_more(fd, buf, &len))
				return false;
	return true;
}

/* A request; o->last keeps it for the test to look at. */
static bool origin_read(struct origin *o, int fd)
{
	char *buf = malloc(sizeof(o->last));
	bool ok = origin_read_into(fd, buf);

	if (ok)
		origin_note(o, buf);
	free(buf);
	return ok;
}

#define HELLO "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

/* The same answer to every request, for ever. */
static void serve_answer(struct origin *o, int fd)
{
	while (origin_read(o, fd))
		send_text(fd, o->answer ? o->answer : HELLO);
}

/* One answer, then the end of the connection. */
static void serve_once(struct origin *o, int fd)
{
	if (origin_read(o, fd))
		send_text(fd, o->answer);
}

static void test_keepalive(void **state)
{
	struct hg_l7_counters c;
	struct lb_backend *be;
	int fd;

	origin_start(&origin, serve_answer);
	start_simple("");
	fd = tcp_connect(port);
	for (int i = 0; i < 50; i++) {
		char *a;

		send_text(fd, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
		a = recv_until(fd, "hello", 1);
		assert_non_null(strstr(a, "HTTP/1.1 200 OK\r\n"));
		assert_null(strcasestr(a, "connection:"));
	}
	close(fd);
	/* One server connection carried them all. */
	assert_int_equal(atomic_load(&origin.n_conns), 1);
	assert_int_equal(atomic_load(&origin.n_requests), 50);
	be = lb_find_backend(&env.registry, STR("px"));
	ENV_WAIT(&env, env_sum(&env, be, true).cur_sessions == 0);
	c = env_sum(&env, be, true);
	assert_int_equal(c.requests, 50);
	assert_int_equal(c.hrsp_2xx, 50);
	assert_int_equal(c.sessions, 1);
	assert_int_equal(c.cur_sessions, 0);
	assert_true(c.bytes_in == 50 * 28 && c.bytes_out > 50 * 40);
	c = env_sum(&env, lb_find_backend(&env.registry, STR("px")), false);
	assert_int_equal(c.requests, 50);
	assert_int_equal(c.reuses, 49);
	assert_int_equal(c.connects, 1);
	stop_all();
}

static void test_pipelining(void **state)
{
	char *a;
	int fd;

	origin_start(&origin, serve_answer);
	start_simple("");
	fd = tcp_connect(port);
	send_text(
		fd,
		"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: "
		"3\r\n\r\nabcGET /3 HTTP/1.1\r\nHost: a\r\n\r\nPOST /4 HTTP/1.1\r\nHost: a\r\n"
		"Transfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n0\r\n\r\nGET /5 HTTP/1.1\r\nHost: "
		"a\r\nConnection: close\r\n\r\n");
	a = recv_until(fd, NULL, 0);
	for (int i = 0; i < 5; i++) {
		a = strstr(a, "hello");
		assert_non_null(a);
		a++;
	}
	assert_null(strstr(a, "hello"));
	assert_int_equal(atomic_load(&origin.n_requests), 5);
	assert_non_null(strstr(origin_last(&origin), "GET /5 "));
	close(fd);
	stop_all();
}

static void test_http_1_0_and_head(void **state)
{
	char *a;

	origin_start(&origin, serve_answer);
	origin.answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
			"chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
	start_simple("");
	a = ask_once(port, "GET / HTTP/1.0\r\n\r\n");
	assert_null(strcasestr(a, "transfer-encoding"));
	assert_non_null(strstr(a, "\r\n\r\nabcdefg"));
	a = ask_once(port, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
	assert_non_null(strcasestr(a, "transfer-encoding: chunked"));
	assert_non_null(strstr(a, "\r\n\r\n7\r\nabcdefg\r\n0\r\n\r\n"));
	origin.answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
	a = ask_once(port, "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
	assert_non_null(strcasestr(a, "content-length: 5\r\n"));
	origin.answer = "HTTP/1.1 204 No Content\r\n\r\n";
	a = ask_once(port, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
	assert_non_null(strstr(a, "HTTP/1.1 204 No Content\r\n"));
	origin.answer = "HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n";
	a = ask_once(port, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
	assert_non_null(strcasestr(a, "content-length: 77\r\n"));
	stop_all();
}

/* A response that ends with the connection is chunked for a 1.1 client, whose connection lives on. */
static void test_close_delimited(void **state)
{
	char *a;
	int fd;

	origin_start(&origin, serve_once);
	origin.answer = "HTTP/1.0 200 OK\r\n\r\nto the end";
	start_simple("");
	fd = tcp_connect(port);
	for (int i = 0; i < 3; i++) {
		send_text(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
		a = recv_until(fd, "0\r\n\r\n", 1);
		assert_non_null(strstr(a, "a\r\nto the end\r\n0\r\n\r\n"));
	}
	close(fd);
	assert_int_equal(atomic_load(&origin.n_conns), 3);
	stop_all();
}

static void test_trailers(void **state)
{
	char *a;

	origin_start(&origin, serve_answer);
	origin.answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
			"3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n";
	start_simple("");
	a = ask_once(port,
		     "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n");
	assert_non_null(strcasestr(a, "\r\n0\r\nx-sum: 42\r\n\r\n"));
	stop_all();
}

/* Echoes a body's length and sum, however it is framed. */
static void serve_sum(struct origin *o, int fd)
{
	char *buf = malloc(1 << 16), *end, text[128];
	unsigned long left = 0, total = 0, sum = 0;
	size_t len = 0;
	ssize_t n;

	while (!(end = memmem(buf, len, "\r\n\r\n", 4))) {
		n = recv(fd, buf + len, 65536 - len, 0);
		if (n <= 0)
			goto out;
		len += (size_t)n;
	}
	*end = '\0';
	left = strtoul(strcasestr(buf, "content-length:") + 15, NULL, 10);
	len -= (size_t)(end + 4 - buf);
	memmove(buf, end + 4, len);
	while (total < left) {
		for (size_t i = 0; i < len; i++)
			sum = sum * 31 + (unsigned char)buf[i];
		total += len;
		if (total == left)
			break;
		n = recv(fd, buf, 65536, 0);
		if (n <= 0)
			goto out;
		len = (size_t)n;
	}
	snprintf(text, sizeof(text),
		 "HTTP/1.1 200 OK\r\nX-Sum: %lu-%lu\r\nContent-Length: 0\r\n\r\n", total, sum);
	send_text(fd, text);
out:
	free(buf);
}

#define BIG (3 * 1024 * 1024 + 17)

static void test_big_upload(void **state)
{
	char *body = malloc(BIG), head[200], want[100], *a;
	unsigned long sum = 0;
	int fd;

	origin_start(&origin, serve_sum);
	start_simple("");
	for (size_t i = 0; i < BIG; i++) {
		body[i] = (char)(i * 7 + i / 1000);
		sum = sum * 31 + (unsigned char)body[i];
	}
	for (int round = 0; round < 3; round++) {
		fd = tcp_connect(port);
		snprintf(head, sizeof(head),
			 "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", BIG);
		send_text(fd, head);
		send_all(fd, body, BIG);
		snprintf(want, sizeof(want), "X-Sum: %d-%lu\r\n", BIG, sum);
		a = recv_until(fd, "\r\n\r\n", 1);
		assert_non_null(strstr(a, want));
		close(fd);
	}
	free(body);
	stop_all();
}

/* Sends a big chunked body; the test reads slowly. */
static void serve_big_chunked(struct origin *o, int fd)
{
	char chunk[5000];

	memset(chunk, 'z', sizeof(chunk));
	if (origin_read(o, fd)) {
		send_text(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
		for (int i = 0; i < 1000; i++) {
			send_text(fd, "1388\r\n");
			send_all(fd, chunk, sizeof(chunk));
			send_text(fd, "\r\n");
		}
		send_text(fd, "0\r\n\r\n");
	}
}

static void test_big_download_slow_reader(void **state)
{
	static char buf[4096];
	size_t zs = 0;
	int fd, small = 32768;

	origin_start(&origin, serve_big_chunked);
	start_simple("");
	fd = tcp_connect(port);
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	send_text(fd, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
	usleep(200000);
	for (;;) {
		ssize_t n = recv(fd, buf, sizeof(buf), 0);

		if (n <= 0)
			break;
		for (ssize_t i = 0; i < n; i++)
			zs += buf[i] == 'z';
	}
	assert_int_equal(zs, 5000 * 1000);
	close(fd);
	stop_all();
}

static void serve_100(struct origin *o, int fd)
{
	char body[4] = "", head[4000] = "";
	size_t got = 0;

	while (!strstr(head, "\r\n\r\n") && got < sizeof(head) - 1) {
		ssize_t n = recv(fd, head + got, 1, 0);

		if (n <= 0)
			break;
		head[++got] = '\0';
	}
	origin_note(o, head);
	send_text(fd,
		  "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
	if (recv(fd, body, 3, MSG_WAITALL) == 3 && !memcmp(body, "abc", 3))
		send_text(fd, HELLO);
}

static void test_expect_100(void **state)
{
	char *a;
	int fd;

	origin_start(&origin, serve_100);
	start_simple("");
	fd = tcp_connect(port);
	send_text(
		fd,
		"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
	a = recv_until(fd, "100 Continue\r\n\r\n", 1);
	assert_non_null(strstr(a, "HTTP/1.1 103 Early Hints\r\n"));
	send_text(fd, "abc");
	a = recv_until(fd, "hello", 1);
	assert_non_null(strstr(a, "HTTP/1.1 200 OK\r\n"));
	assert_non_null(strcasestr(origin_last(&origin), "expect: 100-continue"));
	close(fd);
	stop_all();
}

static void serve_websocket(struct origin *o, int fd)
{
	char buf[100];
	ssize_t n;

	if (!origin_read(o, fd))
		return;
	send_text(fd, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
		      "websocket\r\n\r\nfirst");
	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		send_all(fd, buf, (size_t)n);
	send_text(fd, "bye");
}

static void test_upgrade(void **state)
{
	char *a;
	int fd;

	origin_start(&origin, serve_websocket);
	start_simple("");
	fd = tcp_connect(port);
	send_text(fd, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: "
		      "websocket\r\n\r\n");
	a = recv_until(fd, "first", 1);
	assert_non_null(strstr(a, "HTTP/1.1 101 "));
	assert_non_null(strcasestr(a, "upgrade: websocket"));
	assert_non_null(strcasestr(origin_last(&origin), "connection: upgrade"));
	send_text(fd, "ping");
	assert_string_equal(recv_until(fd, "ping", 1), "ping");
	/* Half-close travels through, and what the server still says comes back. */
	shutdown(fd, SHUT_WR);
	assert_string_equal(recv_until(fd, NULL, 0), "bye");
	close(fd);
	stop_all();
}

static void test_bad_requests(void **state)
{
	static const char *const bad[] = {
		"GET / HTTP/1.1\r\n\r\n",
		"GET /\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: "
		"chunked\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nX y: 1\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 garbage\r\n\r\n",
	};

	origin_start(&origin, serve_answer);
	start_simple("");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char *a = ask_once(port, bad[i]);

		assert_non_null(strstr(a, "HTTP/1.1 400 Bad request\r\n"));
		assert_non_null(strcasestr(a, "\r\nconnection: close\r\n"));
		assert_non_null(strstr(a, "Your browser sent an invalid request."));
	}
	assert_int_equal(atomic_load(&origin.n_requests), 0);
	stop_all();
}

static void test_head_too_large(void **state)
{
	char *big = malloc(40000), *a;
	int fd;

	origin_start(&origin, serve_answer);
	start_simple("");
	fd = tcp_connect(port);
	memset(big, 'a', 40000);
	memcpy(big, "GET / HTTP/1.1\r\nHost: a\r\nX: ", 28);
	send_all(fd, big, 40000);
	a = recv_until(fd, NULL, 0);
	assert_non_null(strstr(a, "HTTP/1.1 431 "));
	close(fd);
	free(big);
	stop_all();
}

/* A bad chunk in a request that is on its way already. */
static void test_bad_chunk(void **state)
{
	char *a;
	int fd;

	origin_start(&origin, serve_answer);
	start_simple("");
	fd = tcp_connect(port);
	send_text(fd,
		  "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
	usleep(50000);
	send_text(fd, "zz\r\n");
	a = recv_until(fd, NULL, 0);
	assert_non_null(strstr(a, "HTTP/1.1 400 "));
	close(fd);
	stop_all();
}

static void test_rules(void **state)
{
	char *a;
	int fd;

	origin_start(&origin, serve_answer);
	start_simple(" monitor-uri /up\n option forwardfor\n"
		     " http-request deny if { path /no }\n"
		     " http-request return status 200 content-type text/plain string \"hi\" if { "
		     "path /hi }\n"
		     " http-request redirect location /new code 301 if { path /old }\n"
		     " http-request set-header X-Path %[path]\n"
		     " http-request set-path /moved if { path /from }\n"
		     " http-response set-header X-Seen yes\n http-response del-header Server\n");
	fd = tcp_connect(port);
	send_text(fd, "GET /no HTTP/1.1\r\nHost: a\r\n\r\n");
	a = recv_until(fd, "</html>\n", 1);
	assert_non_null(strstr(a, "HTTP/1.1 403 Forbidden\r\n"));
	send_text(fd, "POST /hi HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
	a = recv_until(fd, "\r\n\r\nhi", 1);
	assert_non_null(strstr(a, "HTTP/1.1 200 OK\r\n"));
	send_text(fd, "GET /old HTTP/1.1\r\nHost: a\r\n\r\n");
	a = recv_until(fd, "\r\n\r\n", 1);
	assert_non_null(strstr(a, "HTTP/1.1 301 Moved Permanently\r\n"));
	assert_non_null(strstr(a, "location: /new\r\n"));
	send_text(fd, "GET /up HTTP/1.1\r\nHost: a\r\n\r\n");
	a = recv_until(fd, "</html>\n", 1);
	assert_non_null(strstr(a, "200 OK"));
	assert_int_equal(atomic_load(&origin.n_requests), 0);
	send_text(fd, "GET /from?q=1 HTTP/1.1\r\nHost: a\r\n\r\n");
	a = recv_until(fd, "hello", 1);
	assert_non_null(strcasestr(a, "x-seen: yes\r\n"));
	assert_non_null(strstr(origin_last(&origin), "GET /moved?q=1 HTTP/1.1\r\n"));
	assert_non_null(strcasestr(origin_last(&origin), "x-path: /from\r\n"));
	assert_non_null(strcasestr(origin_last(&origin), "x-forwarded-for: 127.0.0.1\r\n"));
	close(fd);
	stop_all();
}

static void test_use_backend(void **state)
{
	struct origin other;
	char *a;

	origin_start(&origin, serve_answer);
	origin_start(&other, serve_answer);
	other.answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother";
	port = free_port();
	start(1,
	      DEFAULTS
	      "frontend fe\n bind 127.0.0.1:%u\n use_backend b2 if { path_beg /b2 }\n"
	      " use_backend %%[req.hdr(x-be)] if { req.hdr(x-be) -m found }\n default_backend b1\n"
	      "backend b1\n server s 127.0.0.1:%u\nbackend b2\n server s 127.0.0.1:%u\n",
	      port, origin.port, other.port);
	a = ask_once(port, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
	assert_non_null(strstr(a, "hello"));
	a = ask_once(port, "GET /b2/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
	assert_non_null(strstr(a, "other"));
	a = ask_once(port, "GET / HTTP/1.1\r\nHost: a\r\nX-Be: b2\r\nConnection: close\r\n\r\n");
	assert_non_null(strstr(a, "other"));
	env_stop(&env);
	origin_stop(&origin);
	origin_stop(&other);
}

static void test_cookie(void **state)
{
	char *a;

	origin_start(&origin, serve_answer);
	port = free_port();
	start(1,
	      DEFAULTS "listen px\n bind 127.0.0.1:%u\n balance roundrobin\n cookie SRV insert "
		       "indirect nocache\n"
		       " server s1 127.0.0.1:%u cookie one\n server s2 127.0.0.1:%u cookie two\n",
	      port, origin.port, origin.port);
	a = ask_once(port, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
	assert_non_null(strcasestr(a, "set-cookie: SRV="));
	assert_non_null(strcasestr(a, "cache-control: private"));
	for (int i = 0; i < 4; i++) {
		a = ask_once(port, "GET / HTTP/1.1\r\nHost: a\r\nCookie: x=1; SRV=two; y=2\r\n"
				   "Connection: close\r\n\r\n");
		assert_null(strcasestr(a, "set-cookie"));
		assert_non_null(strcasestr(origin_last(&origin), "cookie: x=1; y=2\r\n"));
	}
	a = ask_once(port,
		     "GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV=none\r\nConnection: close\r\n\r\n");
	assert_non_null(strcasestr(a, "set-cookie: SRV="));
	assert_null(strcasestr(origin_last(&origin), "cookie:"));
	stop_all();
}

/* option http-buffer-request: nothing is sent before the body is here, and then all of it. */
static void test_buffer_request(void **state)
{
	int fd;

	origin_start(&origin, serve_answer);
	start_simple(" option http-buffer-request\n http-request set-header X-Len %[req.body_len]\n"
		     " http-request replace-header X-Old ^(.)(.*)$ \\2-\\1\n");
	fd = tcp_connect(port);
	send_text(fd, "POST / HTTP/1.1\r\nHost: a\r\nX-Old: abc\r\nTransfer-Encoding: "
		      "chunked\r\n\r\n3\r\nab");
	usleep(50000);
	assert_int_equal(atomic_load(&origin.n_conns), 0);
	send_text(fd, "c\r\n2\r\nde\r\n0\r\n\r\n");
	assert_non_null(strstr(recv_until(fd, "hello", 1), "200 OK"));
	assert_non_null(strstr(origin_last(&origin), "abcde"));
	assert_non_null(strcasestr(origin_last(&origin), "x-old: bc-a\r\n"));
	close(fd);
	stop_all();
}

/* Closes every connection right after an answer that promised to keep it. */
static void serve_and_vanish(struct origin *o, int fd)
{
	if (origin_read(o, fd))
		send_text(fd, HELLO);
	usleep(1000);
}

static void test_dead_idle_connection(void **state)
{
	int fd;

	origin_start(&origin, serve_and_vanish);
	start_simple("");
	fd = tcp_connect(port);
	for (int i = 0; i < 60; i++) {
		char *a;

		send_text(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
		a = recv_until(fd, "hello", 1);
		assert_non_null(strstr(a, "HTTP/1.1 200 OK\r\n"));
		/* Hits before, at and after the moment of the close. */
		usleep((useconds_t)(i % 6) * 300);
	}
	close(fd);
	stop_all();
}

/* Answers once; reads the second request, and is gone. */
static void serve_die_on_second(struct origin *o, int fd)
{
	if (origin_read(o, fd))
		send_text(fd, HELLO);
	if (origin_read(o, fd))
		tcp_reset(fd);
}

static void test_resend_only_when_safe(void **state)
{
	char *a;
	int fd;

	origin_start(&origin, serve_die_on_second);
	start_simple("");
	fd = tcp_connect(port);
	for (int i = 0; i < 6; i++) {
		send_text(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
		a = recv_until(fd, "hello", 1);
		assert_non_null(strstr(a, "HTTP/1.1 200 OK\r\n"));
	}
	/* A POST was read by the server: nobody knows whether it acted. */
	send_text(fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
	a = recv_until(fd, "</html>\n", 1);
	assert_non_null(strstr(a, "HTTP/1.1 502 Bad Gateway\r\n"));
	close(fd);
	stop_all();
}

static void test_reuse_never_and_server_close(void **state)
{
	int a, b;

	origin_start(&origin, serve_answer);
	start_simple(" http-reuse never\n");
	a = tcp_connect(port);
	b = tcp_connect(port);
	for (int i = 0; i < 5; i++) {
		send_text(a, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
		recv_until(a, "hello", 1);
		send_text(b, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
		recv_until(b, "hello", 1);
	}
	assert_int_equal(atomic_load(&origin.n_conns), 2);
	close(a);
	close(b);
	env_stop(&env);
	start_simple(" option http-server-close\n");
	a = tcp_connect(port);
	for (int i = 0; i < 3; i++) {
		send_text(a, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
		recv_until(a, "hello", 1);
		assert_non_null(strcasestr(origin_last(&origin), "connection: close\r\n"));
	}
	assert_int_equal(atomic_load(&origin.n_conns), 5);
	close(a);
	stop_all();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keepalive),
		cmocka_unit_test(test_pipelining),
		cmocka_unit_test(test_http_1_0_and_head),
		cmocka_unit_test(test_close_delimited),
		cmocka_unit_test(test_trailers),
		cmocka_unit_test(test_big_upload),
		cmocka_unit_test(test_big_download_slow_reader),
		cmocka_unit_test(test_expect_100),
		cmocka_unit_test(test_upgrade),
		cmocka_unit_test(test_bad_requests),
		cmocka_unit_test(test_head_too_large),
		cmocka_unit_test(test_bad_chunk),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_use_backend),
		cmocka_unit_test(test_cookie),
		cmocka_unit_test(test_buffer_request),
		cmocka_unit_test(test_dead_idle_connection),
		cmocka_unit_test(test_resend_only_when_safe),
		cmocka_unit_test(test_reuse_never_and_server_close),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
