/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Client and server for benchmarks, in one thread of one process and as light as can be, so that the
 * proxy between them is what limits: load PROXY_PORT SERVER_PORT CONNECTIONS MILLISECONDS [RATE]
 *
 * The client keeps CONNECTIONS keep-alive connections busy with one request each (or paces RATE
 * requests per second over them); the server answers every request with the same bytes. The size
 * of an answer is learnt from the first one; each is checked for its status and size. Prints one JSON line.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char request[] =
	"GET /some/page?x=1 HTTP/1.1\r\nHost: bench.example\r\nUser-Agent: load/1.0\r\n"
	"Accept: */*\r\nAccept-Encoding: gzip\r\n\r\n";
static const char response[] =
	"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 33\r\n"
	"Cache-Control: no-cache\r\n\r\nhello, here is a small answer....";

enum role {
	ROLE_LISTENER,
	ROLE_SERVER,
	ROLE_CLIENT
};

struct peer {
	int fd;
	enum role role;
	bool is_idle; /* client without a request under way */
	uint32_t got; /* bytes of the answer (client) or of the request's end (server) */
	uint64_t sent_ns, due_ns;
};

/* Latencies in buckets of 1/64 of a power of two: an error below 1.6 %. */
#define BUCKETS (64 * 40)
static uint64_t histogram[BUCKETS];
static uint64_t n_done, n_errors, answer_size;
static int ep;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static unsigned bucket_of(uint64_t v)
{
	unsigned log = v < 64 ? 6 : 63 - (unsigned)__builtin_clzll(v);
	unsigned b = (log - 6) * 64 + (unsigned)((v >> (log - 6)) & 63);

	return b < BUCKETS ? b : BUCKETS - 1;
}

static uint64_t bucket_value(unsigned b)
{
	return (64ull + b % 64) << (b / 64);
}

static uint64_t percentile(double p)
{
	uint64_t want = (uint64_t)((double)n_done * p), seen = 0;

	for (unsigned b = 0; b < BUCKETS; b++) {
		seen += histogram[b];
		if (seen > want)
			return bucket_value(b);
	}
	return 0;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void watch(struct peer *p)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.ptr = p };
	int one = 1;

	(void)setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (epoll_ctl(ep, EPOLL_CTL_ADD, p->fd, &ev) != 0)
		fail("epoll_ctl");
}

static struct peer *peer_new(int fd, enum role role)
{
	struct peer *p = calloc(1, sizeof(*p));

	if (!p)
		fail("calloc");
	p->fd = fd;
	p->role = role;
	watch(p);
	return p;
}

static void client_send(struct peer *p, uint64_t due)
{
	p->sent_ns = due;
	p->got = 0;
	p->is_idle = false;
	if (send(p->fd, request, sizeof(request) - 1, MSG_NOSIGNAL) != (ssize_t)sizeof(request) - 1)
		n_errors++;
}

/* The first answer tells how long all of them are. */
static void learn_size(const char *buf, ssize_t n)
{
	const char *end = memmem(buf, (size_t)n, "\r\n\r\n", 4);

	if (end)
		answer_size = (uint64_t)(end + 4 - buf) + 33;
}

/* True when the answer is whole. */
static bool client_read(struct peer *p)
{
	char buf[4096];
	ssize_t n = recv(p->fd, buf, sizeof(buf), 0);

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) {
		n_errors++;
		return false;
	}
	if (p->got == 0 && (n < 12 || memcmp(buf + 8, " 200", 4) != 0))
		n_errors++;
	if (!answer_size)
		learn_size(buf, n);
	p->got += (uint32_t)n;
	if (p->got < answer_size)
		return false;
	if (p->got > answer_size)
		n_errors++;
	histogram[bucket_of(now_ns() - p->sent_ns)]++;
	n_done++;
	return true;
}

static void server_read(struct peer *p)
{
	char buf[4096];
	ssize_t n = recv(p->fd, buf, sizeof(buf), 0);

	if (n <= 0) {
		if (n == 0 || errno != EAGAIN) {
			close(p->fd);
			free(p);
		}
		return;
	}
	/* A request ends with an empty line, and there is one at a time: one answer per end seen. */
	if (n >= 4 && memcmp(buf + n - 4, "\r\n\r\n", 4) == 0 &&
	    send(p->fd, response, sizeof(response) - 1, MSG_NOSIGNAL) !=
		    (ssize_t)sizeof(response) - 1)
		n_errors++;
}

static int listen_on(uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&in, sizeof(in)) != 0 || listen(fd, 4096) != 0)
		fail("listen");
	return fd;
}

static int dial(uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&in, sizeof(in)) != 0)
		fail("connect");
	return fd;
}

static void accept_all(int fd)
{
	int c;

	while ((c = accept4(fd, NULL, NULL, SOCK_NONBLOCK)) >= 0)
		peer_new(c, ROLE_SERVER);
}

/* Paced load: a request goes out when it is due, on a connection that is free; lateness counts as latency. */
struct pace {
	uint64_t step_ns, next_ns;
	struct peer **idle;
	unsigned n_idle;
};

static void pace_run(struct pace *pc, uint64_t now)
{
	while (pc->n_idle && pc->next_ns <= now) {
		client_send(pc->idle[--pc->n_idle], pc->next_ns);
		pc->next_ns += pc->step_ns;
	}
}

static void on_ready(struct peer *p, struct pace *pc)
{
	switch (p->role) {
	case ROLE_LISTENER:
		accept_all(p->fd);
		break;
	case ROLE_SERVER:
		server_read(p);
		break;
	case ROLE_CLIENT:
		if (!client_read(p))
			break;
		if (pc->step_ns)
			pc->idle[pc->n_idle++] = p;
		else
			client_send(p, now_ns());
		break;
	}
}

static void run(uint64_t until, struct pace *pc)
{
	struct epoll_event evs[256];
	uint64_t now;

	while ((now = now_ns()) < until) {
		int n = epoll_wait(ep, evs, 256, pc->step_ns && pc->n_idle ? 0 : 100);

		for (int i = 0; i < n; i++)
			on_ready(evs[i].data.ptr, pc);
		if (pc->step_ns)
			pace_run(pc, now_ns());
	}
}

int main(int argc, char **argv)
{
	struct pace pc = { 0 };
	unsigned connections;
	uint64_t start, seconds;
	double rate;

	if (argc < 5) {
		fprintf(stderr,
			"usage: load PROXY_PORT SERVER_PORT CONNECTIONS MILLISECONDS [RATE]\n");
		return 1;
	}
	connections = (unsigned)atoi(argv[3]);
	seconds = strtoull(argv[4], NULL, 10) * 1000000ull;
	rate = argc > 5 ? atof(argv[5]) : 0;
	ep = epoll_create1(0);
	pc.idle = calloc(connections, sizeof(*pc.idle));
	if (ep < 0 || !pc.idle)
		fail("start");
	peer_new(listen_on((uint16_t)atoi(argv[2])), ROLE_LISTENER);
	if (rate > 0)
		pc.step_ns = (uint64_t)(1e9 / rate);
	for (unsigned i = 0; i < connections; i++) {
		struct peer *p = peer_new(dial((uint16_t)atoi(argv[1])), ROLE_CLIENT);

		if (pc.step_ns)
			pc.idle[pc.n_idle++] = p;
		else
			client_send(p, now_ns());
	}
	/* Connections and caches settle before the clock starts. */
	pc.next_ns = now_ns();
	run(now_ns() + 300000000ull, &pc);
	memset(histogram, 0, sizeof(histogram));
	n_done = n_errors = 0;
	start = now_ns();
	run(start + seconds, &pc);
	printf("{\"rate\":%.1f,\"requests\":%llu,\"errors\":%llu,\"p50_us\":%.1f,\"p99_us\":%.1f,"
	       "\"p999_us\":%.1f,"
	       "\"p9999_us\":%.1f}\n",
	       (double)n_done / ((double)(now_ns() - start) / 1e9), (unsigned long long)n_done,
	       (unsigned long long)n_errors, (double)percentile(0.5) / 1e3,
	       (double)percentile(0.99) / 1e3, (double)percentile(0.999) / 1e3,
	       (double)percentile(0.9999) / 1e3);
	return 0;
}
