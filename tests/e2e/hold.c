/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Holds many TCP connections open and proves that each is whole. A client sends blocks that follow from
 * connection and number; the server answers each with its name and a hash over all that the connection has
 * brought so far, so an answer can only be right when every byte came to the same socket.
 *
 *	hold serve NAME PORT
 *	hold client ADDRESS PORT SOURCE...	commands on standard input, answers as JSON lines
 *
 * Commands of a client:
 *	open N		opens N more connections, from the sources in turns
 *	pace N		from now on, N blocks per second over all connections, in turns
 *	round S		each connection says one block more, S seconds at most
 *	report		what is known, nothing is sent
 *	quit
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_SOURCES  16
#define MAX_SERVERS  64
#define MAX_OPENING  200 /* connections on their way at once: below the listeners' backlog */
#define MAX_ASKED    32 /* blocks of a round on their way at once: see client_round() */
#define OPEN_SECONDS 60
#define EVENTS	     512

struct block {
	uint64_t word[4];
};

struct answer {
	uint32_t server; /* its name, a number */
	uint32_t count; /* blocks of this connection so far */
	uint64_t hash; /* of all of them */
};

static void die(const char *what)
{
	fprintf(stderr, "hold: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t z = (a ^ b) + 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint64_t hash_block(uint64_t hash, const struct block *b)
{
	for (unsigned i = 0; i < 4; i++)
		hash = mix(hash, b->word[i]);
	return hash;
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void raise_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &r);
	}
}

static void watch(int epoll, int fd, uint32_t events, void *ptr)
{
	struct epoll_event e = { .events = events, .data.ptr = ptr };

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) != 0)
		die("epoll_ctl");
}

/* --- server ------------------------------------------------------------------------------------- */

struct session {
	int fd;
	size_t have; /* bytes of the block on its way */
	struct block block;
	struct answer answer;
};

static void session_end(struct session *s)
{
	close(s->fd);
	free(s);
}

static void session_run(struct session *s)
{
	for (;;) {
		ssize_t n = recv(s->fd, (char *)&s->block + s->have, sizeof(s->block) - s->have, 0);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			session_end(s);
			return;
		}
		s->have += (size_t)n;
		if (s->have < sizeof(s->block))
			continue;
		s->have = 0;
		s->answer.count++;
		s->answer.hash = hash_block(s->answer.hash, &s->block);
		/* The client waits for it before it says more, so there is always room. */
		if (send(s->fd, &s->answer, sizeof(s->answer), MSG_NOSIGNAL) != sizeof(s->answer)) {
			session_end(s);
			return;
		}
	}
}

static void accept_all(int epoll, int listener, uint32_t name)
{
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		struct session *s = calloc(1, sizeof(*s));

		if (!s)
			die("calloc");
		s->fd = fd;
		s->answer.server = name;
		watch(epoll, fd, EPOLLIN | EPOLLRDHUP, s);
	}
	if (errno != EAGAIN && errno != ECONNABORTED)
		die("accept");
}

static _Noreturn void serve(uint32_t name, uint16_t port)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	int listener = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0), epoll = epoll_create1(0);
	int one = 1;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (listener < 0 || epoll < 0 || bind(listener, (struct sockaddr *)&a, sizeof(a)) != 0 ||
	    listen(listener, 4096) != 0)
		die("listen");
	watch(epoll, listener, EPOLLIN, NULL);
	for (;;) {
		struct epoll_event events[EVENTS];
		int n = epoll_wait(epoll, events, EVENTS, -1);

		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr)
				session_run(events[i].data.ptr);
			else
				accept_all(epoll, listener, name);
		}
	}
}

/* --- client ------------------------------------------------------------------------------------- */

enum state {
	OPENING,
	IDLE, /* nothing asked */
	ASKED, /* a block is sent, its answer has not come */
	BROKEN
};

enum fault {
	REFUSED, /* never opened */
	RESET, /* ended by the other side, or by the network */
	WRONG, /* an answer that is not of this connection */
	N_FAULTS
};

struct conn {
	int fd;
	enum state state;
	uint32_t server, count;
	uint64_t id, hash;
	size_t have;
	struct answer answer;
};

struct client {
	int epoll;
	struct sockaddr_storage to;
	struct sockaddr_storage sources[MAX_SOURCES];
	unsigned n_sources;
	struct conn *conns;
	size_t n, next; /* `next` in turn for the pace */
	size_t n_state[BROKEN + 1];
	size_t faults[N_FAULTS];
	size_t broken_of[MAX_SERVERS]; /* by server; 0: of none known */
	uint64_t answers, pace;
	double paced_to;
};

static socklen_t parse_address(const char *text, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;
	struct sockaddr_in *in = (struct sockaddr_in *)ret;

	memset(ret, 0, sizeof(*ret));
	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
	} else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
	} else {
		errno = EINVAL;
		die(text);
	}
	return sizeof(*in6);
}

static socklen_t address_len(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void set_state(struct client *c, struct conn *k, enum state state)
{
	c->n_state[k->state]--;
	k->state = state;
	c->n_state[state]++;
}

static void conn_break(struct client *c, struct conn *k, enum fault fault)
{
	set_state(c, k, BROKEN);
	c->faults[fault]++;
	c->broken_of[k->server < MAX_SERVERS ? k->server : 0]++;
	close(k->fd);
	k->fd = -1;
}

/* Sends the next block, which is one segment. */
static void conn_ask(struct client *c, struct conn *k)
{
	struct block b;

	for (unsigned i = 0; i < 4; i++)
		b.word[i] = mix(k->id, (uint64_t)k->count << 8 | i);
	k->hash = hash_block(k->hash, &b);
	k->count++;
	k->have = 0;
	set_state(c, k, ASKED);
	if (send(k->fd, &b, sizeof(b), MSG_NOSIGNAL) != sizeof(b))
		conn_break(c, k, RESET);
}

static void conn_read(struct client *c, struct conn *k)
{
	while (k->have < sizeof(k->answer)) {
		ssize_t n = recv(k->fd, (char *)&k->answer + k->have, sizeof(k->answer) - k->have,
				 0);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			conn_break(c, k, RESET);
			return;
		}
		k->have += (size_t)n;
	}
	if (k->state != ASKED || k->answer.count != k->count || k->answer.hash != k->hash ||
	    (k->count > 1 && k->answer.server != k->server)) {
		conn_break(c, k, WRONG);
		return;
	}
	k->server = k->answer.server;
	k->have = 0;
	c->answers++;
	set_state(c, k, IDLE);
}

static void conn_event(struct client *c, struct conn *k, uint32_t events)
{
	int error = 0;
	socklen_t len = sizeof(error);

	if (k->state == BROKEN)
		return;
	if (k->state == OPENING) {
		if (!(events & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
			return;
		getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &error, &len);
		if (error || events & (EPOLLERR | EPOLLHUP)) {
			conn_break(c, k, REFUSED);
			return;
		}
		set_state(c, k, IDLE);
		conn_ask(c, k); /* so that the server is known */
		return;
	}
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP))
		conn_read(c, k);
}

static void conn_open(struct client *c)
{
	const struct sockaddr_storage *from = &c->sources[c->n % c->n_sources];
	struct conn *k = &c->conns[c->n];
	int one = 1;

	*k = (struct conn){ .id = mix(c->n, (uint64_t)getpid() << 32), .state = OPENING };
	k->fd = socket(c->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (k->fd < 0)
		die("socket");
	c->n++;
	c->n_state[OPENING]++;
	/* Ports are shared out at connect(), by the whole flow. */
	setsockopt(k->fd, IPPROTO_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, &one, sizeof(one));
	setsockopt(k->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (bind(k->fd, (const struct sockaddr *)from, address_len(from)) != 0)
		die("bind");
	if (connect(k->fd, (struct sockaddr *)&c->to, address_len(&c->to)) != 0 &&
	    errno != EINPROGRESS) {
		conn_break(c, k, REFUSED);
		return;
	}
	watch(c->epoll, k->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, (void *)(c->n - 1));
}

/* One turn of the loop: what has come, and what the pace demands. Returns true when a command waits. */
static bool client_turn(struct client *c, int timeout_ms)
{
	struct epoll_event events[EVENTS];
	double now;
	int n = epoll_wait(c->epoll, events, EVENTS, c->pace && timeout_ms ? 1 : timeout_ms);
	bool has_command = false;

	for (int i = 0; i < n; i++) {
		if (events[i].data.u64 == UINT64_MAX)
			has_command = true;
		else
			conn_event(c, &c->conns[events[i].data.u64], events[i].events);
	}
	if (!c->pace)
		return has_command;
	now = now_s();
	/* No more than 50 ms' worth is made up for. */
	if (now - c->paced_to > 0.05)
		c->paced_to = now - 0.05;
	for (size_t seen = 0; c->paced_to < now && seen < c->n; seen++) {
		struct conn *k = &c->conns[c->next++ % c->n];

		if (k->state != IDLE)
			continue;
		conn_ask(c, k);
		c->paced_to += 1.0 / (double)c->pace;
	}
	return has_command;
}

static void client_open(struct client *c, size_t more)
{
	double end = now_s() + OPEN_SECONDS;
	struct conn *conns = realloc(c->conns, (c->n + more) * sizeof(*conns));

	if (!conns)
		die("realloc");
	c->conns = conns;
	for (size_t i = 0; i < more && now_s() < end; i++) {
		conn_open(c);
		while (c->n_state[OPENING] >= MAX_OPENING && now_s() < end)
			client_turn(c, 10);
	}
	while ((c->n_state[OPENING] || c->n_state[ASKED]) && now_s() < end)
		client_turn(c, 10);
}

/*
 * Every connection that lives answers once more. A few at a time: a veth device drops what does not fit its ring of 256 and says so, and the kernel gives a connection up with
 * ETIMEDOUT when that happens to it 15 times, half a second apart (tcp_send_probe0()), though nothing was ever sent.
 */
static void client_round(struct client *c, double seconds)
{
	double end = now_s() + seconds;
	uint64_t pace = c->pace;

	c->pace = 0;
	while (c->n_state[ASKED] && now_s() < end)
		client_turn(c, 10);
	for (size_t i = 0; i < c->n; i++) {
		while (c->n_state[ASKED] >= MAX_ASKED && now_s() < end)
			client_turn(c, 10);
		if (c->conns[i].state == IDLE)
			conn_ask(c, &c->conns[i]);
	}
	while (c->n_state[ASKED] && now_s() < end)
		client_turn(c, 10);
	c->pace = pace;
	c->paced_to = now_s();
}

static void print_by_server(const struct client *c)
{
	size_t live[MAX_SERVERS] = { 0 };
	const char *sep = "";

	for (size_t i = 0; i < c->n; i++)
		if (c->conns[i].state != BROKEN && c->conns[i].server < MAX_SERVERS)
			live[c->conns[i].server]++;
	printf("\"live\": {");
	for (unsigned i = 0; i < MAX_SERVERS; i++)
		if (live[i]) {
			printf("%s\"%u\": %zu", sep, i, live[i]);
			sep = ", ";
		}
	printf("}, \"broken\": {");
	sep = "";
	for (unsigned i = 0; i < MAX_SERVERS; i++)
		if (c->broken_of[i]) {
			printf("%s\"%u\": %zu", sep, i, c->broken_of[i]);
			sep = ", ";
		}
	printf("}");
}

static void client_report(const struct client *c)
{
	printf("{\"connections\": %zu, \"open\": %zu, \"silent\": %zu, \"refused\": %zu, "
	       "\"reset\": %zu, \"wrong\": %zu, \"answers\": %llu, ",
	       c->n, c->n_state[IDLE] + c->n_state[ASKED], c->n_state[ASKED] + c->n_state[OPENING],
	       c->faults[REFUSED], c->faults[RESET], c->faults[WRONG],
	       (unsigned long long)c->answers);
	print_by_server(c);
	printf("}\n");
	fflush(stdout);
}

static bool client_command(struct client *c)
{
	char line[128], word[16];
	double value = 0;

	if (!fgets(line, sizeof(line), stdin) || sscanf(line, "%15s %lf", word, &value) < 1 ||
	    strcmp(word, "quit") == 0)
		return false;
	if (strcmp(word, "open") == 0) {
		client_open(c, (size_t)value);
	} else if (strcmp(word, "round") == 0) {
		client_round(c, value);
	} else if (strcmp(word, "pace") == 0) {
		c->pace = (uint64_t)value;
		c->paced_to = now_s();
	}
	client_report(c);
	return true;
}

static int client(struct client *c)
{
	/* Line by line from the pipe, nothing kept back where epoll does not see it. */
	setvbuf(stdin, NULL, _IONBF, 0);
	c->epoll = epoll_create1(0);
	watch(c->epoll, 0, EPOLLIN, (void *)UINT64_MAX);
	for (;;)
		if (client_turn(c, -1) && !client_command(c))
			return 0;
}

int main(int argc, char **argv)
{
	static struct client c;

	raise_limit();
	if (argc == 4 && strcmp(argv[1], "serve") == 0)
		serve((uint32_t)atoi(argv[2]), (uint16_t)atoi(argv[3]));
	if (argc < 5 || argc > 4 + MAX_SOURCES || strcmp(argv[1], "client") != 0) {
		fprintf(stderr,
			"usage: hold serve NAME PORT | hold client ADDRESS PORT SOURCE...\n");
		return 2;
	}
	parse_address(argv[2], (uint16_t)atoi(argv[3]), &c.to);
	for (int i = 4; i < argc; i++)
		parse_address(argv[i], 0, &c.sources[c.n_sources++]);
	return client(&c);
}
