/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TLS client for benchmarks: tls_load PORT MODE MILLISECONDS [CONNECTIONS] [NAME]
 *
 *   full     one TLS 1.3 handshake and one request per connection
 *   resumed  the same with the ticket of the connection before
 *   keep     CONNECTIONS kept connections, one request after the other on each; says when they stand, starts at a byte
 *   idle     opens CONNECTIONS, one request on each, then keeps still until it is told to end
 *
 * One thread, blocking sockets; `full` and `resumed` keep up to 8 connections under way so that the server finds
 * work for each of its wake-ups. P-256 or what the server has; X25519. Prints one JSON line. Any failure is fatal.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE 8

static const char *name = "bench.test";
static char request[256];
static uint16_t port;
static SSL_CTX *ctx;
static SSL_SESSION *session; /* newest ticket */
static bool is_resuming;
static uint64_t n_done, n_resumed;

static void fail(const char *what)
{
	fprintf(stderr, "tls_load: %s: %s\n", what, strerror(errno));
	ERR_print_errors_fp(stderr);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static int on_session(SSL *ssl, SSL_SESSION *s)
{
	(void)ssl;
	SSL_SESSION_free(session);
	session = s;
	return 1;
}

static SSL *dial(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	SSL *ssl = SSL_new(ctx);

	if (fd < 0 || !ssl || connect(fd, (struct sockaddr *)&in, sizeof(in)) != 0)
		fail("connect");
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	SSL_set_fd(ssl, fd);
	SSL_set_tlsext_host_name(ssl, name);
	if (is_resuming && session)
		SSL_set_session(ssl, session);
	SSL_set_connect_state(ssl);
	return ssl;
}

static void set_blocking(SSL *ssl, bool on)
{
	int off = !on;

	if (ioctl(SSL_get_fd(ssl), FIONBIO, &off) != 0)
		fail("FIONBIO");
}

static void hang_up(SSL *ssl, bool is_reset)
{
	struct linger l = { .l_onoff = 1 };
	int fd = SSL_get_fd(ssl);

	/* A reset leaves no TIME_WAIT behind: tens of thousands of connections from one address. */
	if (is_reset)
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
	SSL_free(ssl);
	close(fd);
}

static void ask(SSL *ssl)
{
	int len = (int)strlen(request);

	if (SSL_write(ssl, request, len) != len)
		fail("request");
}

/* One answer, told by its Content-Length; they are small. */
static void take_answer(SSL *ssl)
{
	char mem[8192], *end = NULL, *length;
	size_t have = 0, want = SIZE_MAX;

	while (have < want) {
		int n = SSL_read(ssl, mem + have, (int)(sizeof(mem) - 1 - have));

		if (n <= 0)
			fail("answer");
		have += (size_t)n;
		mem[have] = '\0';
		if (!end && (end = strstr(mem, "\r\n\r\n"))) {
			length = strcasestr(mem, "\r\ncontent-length:");
			if (strncmp(mem, "HTTP/1.1 200", 12) != 0 || !length)
				fail("not a 200 with a length");
			want = (size_t)(end + 4 - mem) + strtoul(length + 17, NULL, 10);
		}
	}
	n_done++;
}

static void run_handshakes(uint64_t until)
{
	SSL *ssl[AT_ONCE];

	while (now_ns() < until) {
		/* Every ClientHello is on its way before the first answer is waited for. */
		for (int i = 0; i < AT_ONCE; i++) {
			ssl[i] = dial();
			set_blocking(ssl[i], false);
			(void)SSL_do_handshake(ssl[i]);
			set_blocking(ssl[i], true);
		}
		for (int i = 0; i < AT_ONCE; i++) {
			if (SSL_connect(ssl[i]) != 1)
				fail("handshake");
			n_resumed += (uint64_t)SSL_session_reused(ssl[i]);
			ask(ssl[i]);
		}
		for (int i = 0; i < AT_ONCE; i++) {
			take_answer(ssl[i]);
			hang_up(ssl[i], true);
		}
	}
}

/* All connections stand: the caller takes its clock, and says so by a byte. */
static void wait_for_start(void)
{
	printf("{\"open\":true}\n");
	fflush(stdout);
	if (getchar() == EOF)
		fail("start");
}

static uint64_t run_kept(unsigned n, uint64_t ms)
{
	SSL **ssl = calloc(n, sizeof(SSL *));
	uint64_t start;

	for (unsigned i = 0; i < n; i++) {
		ssl[i] = dial();
		if (SSL_connect(ssl[i]) != 1)
			fail("handshake");
	}
	wait_for_start();
	start = now_ns();
	for (unsigned i = 0; i < n; i++)
		ask(ssl[i]);
	while (now_ns() < start + ms * 1000000ull) {
		for (unsigned i = 0; i < n; i++) {
			take_answer(ssl[i]);
			ask(ssl[i]);
		}
	}
	for (unsigned i = 0; i < n; i++)
		hang_up(ssl[i], true);
	return start;
}

static void run_idle(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		SSL *ssl = dial();

		if (SSL_connect(ssl) != 1)
			fail("handshake");
		ask(ssl);
		take_answer(ssl);
	}
	wait_for_start();
}

int main(int argc, char **argv)
{
	const char *mode;
	unsigned n;
	uint64_t start, ms;

	if (argc < 4) {
		fprintf(stderr, "usage: tls_load PORT full|resumed|keep|idle MILLISECONDS "
				"[CONNECTIONS] [NAME]\n");
		return 1;
	}
	port = (uint16_t)atoi(argv[1]);
	mode = argv[2];
	ms = strtoull(argv[3], NULL, 10);
	n = argc > 4 ? (unsigned)atoi(argv[4]) : 1;
	name = argc > 5 ? argv[5] : name;
	snprintf(request, sizeof(request),
		 "GET / HTTP/1.1\r\nHost: %s\r\nUser-Agent: tls_load\r\n\r\n", name);
	ctx = SSL_CTX_new(TLS_client_method());
	if (!ctx || !SSL_CTX_set1_groups_list(ctx, "X25519"))
		fail("start");
	is_resuming = strcmp(mode, "resumed") == 0;
	if (is_resuming) {
		SSL_CTX_set_session_cache_mode(ctx,
					       SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
		SSL_CTX_sess_set_new_cb(ctx, on_session);
	}
	start = now_ns();
	if (strcmp(mode, "idle") == 0)
		run_idle(n);
	else if (strcmp(mode, "keep") == 0)
		start = run_kept(n, ms);
	else
		run_handshakes(start + ms * 1000000ull);
	printf("{\"done\":%llu,\"resumed\":%llu,\"seconds\":%.6f}\n", (unsigned long long)n_done,
	       (unsigned long long)n_resumed, (double)(now_ns() - start) / 1e9);
	return 0;
}
