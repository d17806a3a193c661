/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * links: http base
 * HTTP/1 codec: reads and writes what a browser and a server say, in a loop; ns per message for every
 * scanner this CPU can run. Each round uses another copy of the head with other lengths of its values, so
 * that the branch predictor does not learn one message by heart.
 *
 * usage: bench_h1 [rounds]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "http/h1_priv.h"

#define N_VARIANTS 64
#define HEAD_MAX   2048

struct corpus {
	const char *name;
	bool is_response;
	char head[N_VARIANTS][HEAD_MAX];
	size_t len[N_VARIANTS];
};

struct timing {
	double read_ns, write_ns;
};

static const char filler[] =
	"abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

static void make_request(struct corpus *c, unsigned i, unsigned a, unsigned b)
{
	c->len[i] = (size_t)snprintf(
		c->head[i], HEAD_MAX,
		"GET /static/%.*s/app.js?v=%.*s HTTP/1.1\r\n"
		"Host: www.example%.*s.com\r\n"
		"Connection: keep-alive\r\n"
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like "
		"Gecko) "
		"Chrome/126.0.0.0 Safari/537.36\r\n"
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,"
		"image/webp,*/*;q=0.8\r\n"
		"Accept-Encoding: gzip, deflate, br\r\n"
		"Accept-Language: en-US,en;q=0.9\r\n"
		"Referer: https://www.example.com/%.*s\r\n"
		"Cookie: session=%.*s; theme=dark\r\n"
		"Cache-Control: max-age=0\r\n"
		"If-None-Match: \"%.*s\"\r\n\r\n",
		(int)a, filler, (int)b, filler, (int)(a % 5), filler, (int)b, filler, (int)(16 + a),
		filler, (int)(8 + b % 16), filler);
}

static void make_small(struct corpus *c, unsigned i, unsigned a, unsigned b)
{
	c->len[i] = (size_t)snprintf(c->head[i], HEAD_MAX,
				     "GET /%.*s HTTP/1.1\r\nHost: 10.0.0.%u:8080\r\n"
				     "User-Agent: curl/7.88.%u\r\nAccept: */*\r\n\r\n",
				     (int)a, filler, b, a);
}

static void make_response(struct corpus *c, unsigned i, unsigned a, unsigned b)
{
	c->len[i] = (size_t)snprintf(
		c->head[i], HEAD_MAX,
		"HTTP/1.1 200 OK\r\nServer: nginx/1.22.%u\r\n"
		"Date: Sat, 21 Nov 2026 08:49:37 GMT\r\nContent-Type: text/html; charset=utf-8\r\n"
		"Content-Length: %u\r\nLast-Modified: Fri, 20 Nov 2026 19:43:31 GMT\r\n"
		"Connection: keep-alive\r\nETag: \"%.*s\"\r\nCache-Control: public, max-age=%u\r\n"
		"Vary: Accept-Encoding\r\nAccept-Ranges: bytes\r\n\r\n",
		a, a * b, (int)(8 + a), filler, b * 100);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int read_one(const struct corpus *c, unsigned i, struct http_msg *m)
{
	struct h1_head h = { 0 };
	struct str in = str_make(c->head[i], c->len[i]);

	if (c->is_response)
		return h1_read_response(&h, in, m, HTTP_METHOD_GET);
	return h1_read_request(&h, in, m);
}

static int write_one(const struct corpus *c, const struct http_msg *m, struct buf *out)
{
	buf_clear(out);
	return c->is_response ? h1_write_response(out, m, H1_CONN_NONE)
			      : h1_write_request(out, m, H1_CONN_NONE);
}

static void die(const char *what)
{
	fprintf(stderr, "bench_h1: %s\n", what);
	exit(1);
}

/* Reading alone, then reading and writing; best of five. */
static struct timing measure(const struct corpus *c, struct http_msg *m, unsigned rounds)
{
	static char out_mem[4096];
	double best_read = 1e9, best_both = 1e9;
	struct buf out;

	buf_init(&out, out_mem, sizeof(out_mem));
	for (unsigned try = 0; try < 10; try++) {
		uint64_t start = now_ns();
		bool with_write = try & 1;
		double ns;

		for (unsigned i = 0; i < rounds; i++) {
			if (read_one(c, i % N_VARIANTS, m) != (int)c->len[i % N_VARIANTS])
				die("a head was not read");
			if (with_write && write_one(c, m, &out))
				die("a head was not written");
		}
		ns = (double)(now_ns() - start) / rounds;
		if (with_write && ns < best_both)
			best_both = ns;
		else if (!with_write && ns < best_read)
			best_read = ns;
	}
	return (struct timing){ best_read, best_both - best_read };
}

int main(int argc, char **argv)
{
	static struct corpus corpora[] = { { .name = "browser request, 10 fields" },
					   { .name = "curl request, 3 fields" },
					   { .name = "response, 9 fields", .is_response = true } };
	unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1000000;
	struct arena arena;
	struct http_msg m;

	srandom(1);
	for (unsigned i = 0; i < N_VARIANTS; i++) {
		make_request(&corpora[0], i, (unsigned)random() % 40, (unsigned)random() % 40);
		make_small(&corpora[1], i, (unsigned)random() % 40, (unsigned)random() % 100);
		make_response(&corpora[2], i, (unsigned)random() % 40, (unsigned)random() % 1000);
	}
	arena_init(&arena, 16384);
	if (!rounds || http_msg_init(&m, &arena, 101))
		die("no memory, or no rounds");
	for (const struct h1_scanner **s = h1_scanners; *s; s++) {
		const struct h1_scanner *chosen = h1_scanners[0];

		h1_scanners[0] = *s;
		for (unsigned i = 0; i < ARRAY_SIZE(corpora); i++) {
			struct timing t = measure(&corpora[i], &m, rounds);

			printf("%-5s %-28s %4zu bytes  read %6.1f ns  write %6.1f ns  both %6.1f "
			       "ns\n",
			       h1_scanners[0]->name, corpora[i].name, corpora[i].len[0], t.read_ns,
			       t.write_ns, t.read_ns + t.write_ns);
		}
		if (s != h1_scanners)
			h1_scanners[0] = chosen;
	}
	arena_free(&arena);
	return 0;
}
