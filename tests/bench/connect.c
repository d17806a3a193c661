/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections with one request each, as fast as one thread can: connect PORT AT_ONCE MILLISECONDS. As many
 * are made, asked and answered together, then reset, so that no state of them is left in the kernel. Prints one JSON line:
 * connections and this process's processor time.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 1024

static const char request[] = "GET / HTTP/1.1\r\nHost: bench.example\r\n\r\n";

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "connect: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int open_one(const struct sockaddr_in *to)
{
	struct linger reset = { .l_onoff = 1 };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) != 0 ||
	    connect(fd, (const struct sockaddr *)to, sizeof(*to)) != 0)
		die("connect");
	return fd;
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fds[MOST], at_once;
	uint64_t end, n = 0;
	struct rusage use;
	char answer[4096];

	if (argc != 4 || (at_once = atoi(argv[2])) < 1 || at_once > MOST) {
		fputs("usage: connect PORT AT_ONCE MILLISECONDS\n", stderr);
		return 1;
	}
	to.sin_port = htons((uint16_t)atoi(argv[1]));
	end = now_ns() + strtoull(argv[3], NULL, 10) * 1000000ull;
	while (now_ns() < end) {
		for (int i = 0; i < at_once; i++) {
			fds[i] = open_one(&to);
			if (send(fds[i], request, sizeof(request) - 1, MSG_NOSIGNAL) !=
			    (ssize_t)sizeof(request) - 1)
				die("send");
		}
		for (int i = 0; i < at_once; i++) {
			if (recv(fds[i], answer, sizeof(answer), 0) < 12 ||
			    memcmp(answer, "HTTP/1.1 200", 12) != 0)
				die("answer");
			close(fds[i]);
		}
		n += (uint64_t)at_once;
	}
	getrusage(RUSAGE_SELF, &use);
	printf("{\"connections\":%llu,\"cpu_us\":%lld}\n", (unsigned long long)n,
	       (long long)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000 +
		       use.ru_utime.tv_usec + use.ru_stime.tv_usec);
	return 0;
}
