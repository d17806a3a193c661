/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections over loopback and socket pairs: readiness flags, ends, resets, dialling, PROXY headers, reuse. */
/* links: net ev base */
#include <netinet/tcp.h>
#include <sys/un.h>

#include "net_help.h"

struct watch {
	unsigned events;
	bool advance;
	int result;
};

static void on_event(struct conn *c)
{
	struct watch *w = c->owner;

	w->events++;
	if (w->advance)
		w->result = conn_advance(c);
}

static int listen_on(struct addr *ret)
{
	socklen_t len = sizeof(ret->in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*ret = loopback(0);
	assert_int_equal(bind(fd, &ret->sa, len), 0);
	assert_int_equal(getsockname(fd, &ret->sa, &len), 0);
	assert_int_equal(listen(fd, 8), 0);
	return fd;
}

/* A connection of ours and the plain socket at its other end. */
struct pair {
	struct conn *c;
	int peer, lfd;
	struct watch w;
};

static void pair_open(struct bench *b, struct pair *p, struct dial_opts o)
{
	struct addr a;

	memset(p, 0, sizeof(*p));
	p->lfd = listen_on(&a);
	o.to = &a;
	assert_int_equal(conn_dial(&b->nw, &o, &p->c), 0);
	p->c->owner = &p->w;
	p->c->on_event = on_event;
	p->w.advance = true;
	p->w.result = -EAGAIN;
	WAIT_FOR(b, p->w.result == 0);
	assert_int_equal(p->c->state, CONN_OPEN);
	p->peer = accept(p->lfd, NULL, NULL);
	assert_true(p->peer >= 0);
}

static void pair_close(struct pair *p)
{
	conn_close(p->c, false);
	if (p->peer >= 0)
		close(p->peer);
	close(p->lfd);
}

static int send_text(struct conn *c, const char *text)
{
	struct iovec iov = { (void *)(uintptr_t)text, strlen(text) };

	return (int)conn_sendv(c, &iov, 1, false);
}

static void test_dial_and_flags(void **state)
{
	struct bench b;
	struct pair p;
	char mem[64];
	int on;
	socklen_t len = sizeof(on);

	bench_init(&b);
	pair_open(&b, &p, (struct dial_opts){ .keepalive = true });
	assert_true(p.c->can_write);
	assert_int_equal(getsockopt(p.c->ev.fd, SOL_TCP, TCP_NODELAY, &on, &len), 0);
	assert_int_equal(on, 1);
	assert_int_equal(getsockopt(p.c->ev.fd, SOL_SOCKET, SO_KEEPALIVE, &on, &len), 0);
	assert_int_equal(on, 1);
	assert_int_equal(send_text(p.c, "hello"), 5);
	assert_int_equal(recv(p.peer, mem, sizeof(mem), 0), 5);
	/* A short read says: drained. */
	assert_int_equal(send(p.peer, "abc", 3, 0), 3);
	WAIT_FOR(&b, p.c->can_read);
	assert_int_equal(conn_recv(p.c, mem, 0), -EAGAIN);
	assert_true(p.c->can_read && !p.c->peer_closed);
	assert_int_equal(conn_recv(p.c, mem, 2), 2);
	assert_true(p.c->can_read);
	assert_int_equal(conn_recv(p.c, mem, sizeof(mem)), 1);
	assert_false(p.c->can_read);
	assert_int_equal(conn_recv(p.c, mem, sizeof(mem)), -EAGAIN);
	/* Local address on demand. */
	assert_int_equal(p.c->local.sa.sa_family, AF_UNSPEC);
	assert_int_not_equal(addr_port(conn_local_addr(p.c)), 0);
	assert_int_equal(p.c->local.sa.sa_family, AF_INET);
	pair_close(&p);
	bench_fini(&b);
}

/* Data and end in one event: the short read must not hide the end. */
static void test_end_is_not_lost(void **state)
{
	struct bench b;
	struct pair p;
	char mem[64];

	bench_init(&b);
	pair_open(&b, &p, (struct dial_opts){ 0 });
	send(p.peer, "bye", 3, 0);
	shutdown(p.peer, SHUT_WR);
	WAIT_FOR(&b, p.c->peer_closed);
	assert_int_equal(conn_recv(p.c, mem, sizeof(mem)), 3);
	assert_true(p.c->can_read);
	assert_int_equal(conn_recv(p.c, mem, sizeof(mem)), 0);
	assert_true(p.c->can_read);
	assert_int_equal(conn_recv(p.c, mem, sizeof(mem)), 0);
	/* Half-closed: our side still speaks. */
	assert_int_equal(send_text(p.c, "still"), 5);
	assert_int_equal(recv(p.peer, mem, sizeof(mem), 0), 5);
	conn_shut_write(p.c);
	assert_int_equal(recv(p.peer, mem, sizeof(mem), 0), 0);
	pair_close(&p);
	/* Read before the event of the end: a new event must come. */
	pair_open(&b, &p, (struct dial_opts){ 0 });
	send(p.peer, "x", 1, 0);
	WAIT_FOR(&b, p.c->can_read);
	assert_int_equal(conn_recv(p.c, mem, sizeof(mem)), 1);
	assert_false(p.c->can_read);
	shutdown(p.peer, SHUT_WR);
	WAIT_FOR(&b, p.c->can_read);
	assert_int_equal(conn_recv(p.c, mem, sizeof(mem)), 0);
	pair_close(&p);
	bench_fini(&b);
}

static void reset_by_peer(int fd)
{
	struct linger l = { 1, 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(fd);
}

static void test_reset(void **state)
{
	struct bench b;
	struct pair p;
	char mem[64];

	bench_init(&b);
	pair_open(&b, &p, (struct dial_opts){ 0 });
	reset_by_peer(p.peer);
	p.peer = -1;
	WAIT_FOR(&b, p.c->is_broken);
	assert_int_equal(conn_recv(p.c, mem, sizeof(mem)), -ECONNRESET);
	assert_int_equal(p.c->error, CONN_ERR_RESET);
	assert_true(send_text(p.c, "x") < 0);
	pair_close(&p);
	/* And ours. */
	pair_open(&b, &p, (struct dial_opts){ 0 });
	conn_close(p.c, true);
	assert_int_equal(recv(p.peer, mem, sizeof(mem), 0), -1);
	assert_int_equal(errno, ECONNRESET);
	close(p.peer);
	close(p.lfd);
	bench_fini(&b);
}

/* Unread bytes in our queue must not turn an orderly close into a reset. */
static void test_close_drains(void **state)
{
	struct bench b;
	struct pair p;
	char mem[64];

	bench_init(&b);
	pair_open(&b, &p, (struct dial_opts){ 0 });
	send(p.peer, "not read by anybody", 19, 0);
	WAIT_FOR(&b, p.c->can_read);
	assert_int_equal(send_text(p.c, "answer"), 6);
	conn_close(p.c, false);
	usleep(1000);
	assert_int_equal(recv(p.peer, mem, sizeof(mem), 0), 6);
	assert_int_equal(recv(p.peer, mem, sizeof(mem), 0), 0);
	close(p.peer);
	close(p.lfd);
	bench_fini(&b);
}

static void test_backpressure(void **state)
{
	static char big[1 << 20];
	struct iovec iov[3] = { { big, 100 }, { big, sizeof(big) - 100 }, { big, 0 } };
	struct bench b;
	struct pair p;
	size_t sent = 0, got = 0;
	ssize_t n;

	bench_init(&b);
	pair_open(&b, &p, (struct dial_opts){ 0 });
	while (p.c->can_write) {
		n = conn_sendv(p.c, iov, 3, false);
		assert_true(n > 0 || n == -EAGAIN);
		sent += n > 0 ? (size_t)n : 0;
	}
	assert_int_equal(conn_sendv(p.c, iov, 1, false), -EAGAIN);
	fcntl(p.peer, F_SETFL, O_NONBLOCK);
	while (got < sent) {
		n = recv(p.peer, big, sizeof(big), 0);
		if (n > 0)
			got += (size_t)n;
		else
			spin(&b, 1);
	}
	WAIT_FOR(&b, p.c->can_write);
	assert_int_equal(conn_sendv(p.c, iov, 0, false), 0);
	pair_close(&p);
	bench_fini(&b);
}

static void test_dial_failures(void **state)
{
	struct bench b;
	struct watch w = { .advance = true, .result = -EAGAIN };
	struct addr a = loopback(free_port()), from = loopback(0);
	struct dial_opts o = { .to = &a };
	struct conn *c;
	int r;

	bench_init(&b);
	r = conn_dial(&b.nw, &o, &c);
	if (r == 0) {
		c->owner = &w;
		c->on_event = on_event;
		WAIT_FOR(&b, w.result != -EAGAIN);
		assert_int_equal(w.result, -ECONNREFUSED);
		assert_int_equal(c->error, CONN_ERR_REFUSED);
		conn_close(c, false);
	} else {
		assert_int_equal(r, -ECONNREFUSED);
	}
	/* A source address that is not ours. */
	assert_int_equal(addr_parse_ip(STR("192.0.2.77"), &from), 0);
	o.from = &from;
	assert_int_equal(conn_dial(&b.nw, &o, &c), -EADDRNOTAVAIL);
	assert_int_equal(conn_error_from_errno(-EADDRNOTAVAIL), CONN_ERR_NO_PORTS);
	o = (struct dial_opts){ .to = &a, .interface = "no-such-if0" };
	assert_true(conn_dial(&b.nw, &o, &c) < 0);
	o = (struct dial_opts){ .unix_path = "/tmp/hg-no-such-socket" };
	assert_int_equal(conn_dial(&b.nw, &o, &c), -ENOENT);
	assert_int_equal(conn_error_from_errno(ENOENT), CONN_ERR_REFUSED);
	assert_int_equal(b.nw.n_open, 0);
	bench_fini(&b);
}

/* With a source address and no port; the connection says so. */
static void test_dial_from(void **state)
{
	struct addr from;
	struct bench b;
	struct pair p;

	bench_init(&b);
	assert_int_equal(addr_parse_ip(STR("127.0.0.9"), &from), 0);
	pair_open(&b, &p, (struct dial_opts){ .from = &from });
	assert_true(addr_is_ip_eq(conn_local_addr(p.c), &from));
	pair_close(&p);
	bench_fini(&b);
}

static void test_unix(void **state)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct temp_dir d;
	struct bench b;
	struct conn *c;
	struct watch w = { 0 };
	char mem[16];
	int lfd, peer;

	bench_init(&b);
	temp_dir_make(&d);
	strcpy(un.sun_path, in_dir(&d, "s"));
	lfd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(lfd, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(listen(lfd, 1), 0);
	assert_int_equal(conn_dial(&b.nw, &(struct dial_opts){ .unix_path = un.sun_path }, &c), 0);
	assert_int_equal(c->state, CONN_OPEN);
	assert_string_equal(c->ops->name, "unix");
	c->on_event = on_event;
	c->owner = &w;
	peer = accept(lfd, NULL, NULL);
	assert_int_equal(send_text(c, "hi"), 2);
	assert_int_equal(recv(peer, mem, sizeof(mem), 0), 2);
	close(peer);
	WAIT_FOR(&b, c->can_read);
	assert_int_equal(conn_recv(c, mem, sizeof(mem)), 0);
	conn_close(c, false);
	close(lfd);
	temp_dir_remove(&d);
	bench_fini(&b);
}

static void test_reusable(void **state)
{
	struct bench b;
	struct pair p;

	bench_init(&b);
	pair_open(&b, &p, (struct dial_opts){ 0 });
	assert_true(conn_is_reusable(p.c));
	/* An event without anything behind it: one look, then it is known. */
	p.c->can_read = p.c->raw_read = true;
	assert_true(conn_is_reusable(p.c));
	assert_false(p.c->can_read);
	send(p.peer, "surprise", 8, 0);
	WAIT_FOR(&b, p.c->can_read);
	assert_false(conn_is_reusable(p.c));
	pair_close(&p);
	pair_open(&b, &p, (struct dial_opts){ 0 });
	close(p.peer);
	p.peer = -1;
	/* Even when only the read flag is there and the end was not announced yet. */
	usleep(1000);
	p.c->can_read = p.c->raw_read = true;
	assert_false(conn_is_reusable(p.c));
	pair_close(&p);
	bench_fini(&b);
}

static void test_proxy_out(void **state)
{
	struct bench b;
	struct pair p;
	char mem[64];

	bench_init(&b);
	pair_open(&b, &p, (struct dial_opts){ .proxy_header = STR("PROXY UNKNOWN\r\n") });
	assert_null(p.c->setup);
	assert_int_equal(send_text(p.c, "x"), 1);
	usleep(1000);
	assert_int_equal(recv(p.peer, mem, sizeof(mem), 0), 16);
	assert_memory_equal(mem, "PROXY UNKNOWN\r\nx", 16);
	pair_close(&p);
	bench_fini(&b);
}

/* One byte at a time, then data that must not be touched. */
static void test_proxy_in(void **state)
{
	const char *header = "PROXY TCP4 192.0.2.9 192.0.2.10 1234 80\r\n";
	struct bench b;
	struct conn *c;
	struct watch w = { .advance = true, .result = -EAGAIN };
	char mem[64];
	int fds[2];

	bench_init(&b);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(conn_adopt(&b.nw, fds[0], &c), 0);
	c->owner = &w;
	c->on_event = on_event;
	conn_expect_proxy(c);
	assert_int_equal(c->state, CONN_HANDSHAKE);
	assert_int_equal(conn_advance(c), -EAGAIN);
	for (size_t i = 0; header[i]; i++) {
		assert_int_equal(w.result, -EAGAIN);
		send(fds[1], header + i, 1, 0);
		spin(&b, 1);
	}
	send(fds[1], "data", 4, 0);
	WAIT_FOR(&b, w.result == 0 && c->can_read);
	assert_int_equal(c->state, CONN_OPEN);
	assert_int_equal(addr_port(&c->peer), 1234);
	assert_int_equal(addr_port(&c->local), 80);
	assert_int_equal(conn_recv(c, mem, sizeof(mem)), 4);
	conn_close(c, false);
	close(fds[1]);
	bench_fini(&b);
}

static void test_proxy_in_bad(void **state)
{
	static const char *const bad[] = { "GET / HTTP/1.0\r\n", "PROXY TCP4 x", "" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct bench b;
		struct conn *c;
		struct watch w = { .advance = true, .result = -EAGAIN };
		int fds[2];

		bench_init(&b);
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
		assert_int_equal(conn_adopt(&b.nw, fds[0], &c), 0);
		c->owner = &w;
		c->on_event = on_event;
		conn_expect_proxy(c);
		send(fds[1], bad[i], strlen(bad[i]), 0);
		/* Truncated by the end of the connection. */
		close(fds[1]);
		WAIT_FOR(&b, w.result != -EAGAIN);
		assert_int_equal(w.result, -EBADMSG);
		assert_int_equal(c->error, CONN_ERR_PROXY_HEADER);
		conn_close(c, true);
		bench_fini(&b);
	}
}

/* Every allocation of a dial fails once; nothing leaks, nothing is left open. */
static void test_no_memory(void **state)
{
	struct addr a;
	struct bench b;
	int lfd = listen_on(&a), failures = 0;
	struct dial_opts o = { .to = &a, .proxy_header = STR("PROXY UNKNOWN\r\n") };

	for (uint64_t n = 1; n < 10; n++) {
		struct conn *c;
		int r;

		bench_init(&b);
		mem_fail_at(n);
		r = conn_dial(&b.nw, &o, &c);
		mem_fail_at(0);
		if (r == 0) {
			conn_close(c, false);
			bench_fini(&b);
			break;
		}
		assert_int_equal(r, -ENOMEM);
		failures++;
		bench_fini(&b);
	}
	assert_int_equal(failures, 2);
	close(lfd);
}

static void test_names(void **state)
{
	assert_string_equal(conn_state_name(CONN_HANDSHAKE), "HANDSHAKE");
	assert_string_equal(conn_state_name((enum conn_state)99), "?");
	assert_string_equal(conn_error_text(CONN_ERR_REFUSED), "connection refused");
	assert_int_equal(conn_error_from_errno(ETIMEDOUT), CONN_ERR_TIMEOUT);
	assert_int_equal(conn_error_from_errno(0), CONN_ERR_NONE);
	assert_int_equal(conn_error_from_errno(EHOSTUNREACH), CONN_ERR_UNREACHABLE);
	conn_close(NULL, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dial_and_flags), cmocka_unit_test(test_end_is_not_lost),
		cmocka_unit_test(test_reset),	       cmocka_unit_test(test_close_drains),
		cmocka_unit_test(test_backpressure),   cmocka_unit_test(test_dial_failures),
		cmocka_unit_test(test_dial_from),      cmocka_unit_test(test_unix),
		cmocka_unit_test(test_reusable),       cmocka_unit_test(test_proxy_out),
		cmocka_unit_test(test_proxy_in),       cmocka_unit_test(test_proxy_in_bad),
		cmocka_unit_test(test_no_memory),      cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
