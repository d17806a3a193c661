/* SPDX-License-Identifier: BSD-2-Clause */
/* Listening sockets: opening, messages, taking over, Unix paths; accepting: budget, pause, shortage. */
/* links: net ev base */
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/un.h>

#include "net_help.h"

struct owner {
	struct conn *conns[64];
	unsigned n, limit;
	bool reads; /* tries to read at once */
	ssize_t first_read;
};

static void on_accept(struct listener *l, struct conn *c)
{
	struct owner *o = l->owner;
	char mem[16];

	assert_true(o->n < ARRAY_SIZE(o->conns));
	o->conns[o->n++] = c;
	assert_true(c->can_read && c->can_write && c->is_server_side);
	if (o->reads)
		o->first_read = conn_recv(c, mem, sizeof(mem));
}

static bool may_accept(struct listener *l)
{
	struct owner *o = l->owner;

	return o->n < o->limit;
}

static struct listener make_listener(struct bench *b, const struct conf_bind *bind, struct owner *o)
{
	return (struct listener){ .nw = &b->nw, .bind = bind, .owner = o, .on_accept = on_accept };
}

static void close_all(struct owner *o)
{
	while (o->n)
		conn_close(o->conns[--o->n], false);
}

static int dial_plain(const struct conf_bind *b)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(connect(fd, &b->ep.addr.sa, sizeof(b->ep.addr.in)), 0);
	return fd;
}

static int option_of(int fd, int level, int opt)
{
	int v = -1;
	socklen_t len = sizeof(v);

	assert_int_equal(getsockopt(fd, level, opt, &v, &len), 0);
	return v;
}

static void test_open_and_accept(void **state)
{
	struct conf_bind bind = bind_line(free_port());
	struct owner o = { .reads = true };
	struct listen_socket *ls;
	struct listener l[2];
	struct bench b;
	struct err err;
	int fd;

	bench_init(&b);
	assert_int_equal(listen_open(&bind, 2, NULL, &ls, &err), 0);
	assert_int_equal(ls->n_fds, 2);
	assert_false(ls->is_shared);
	assert_int_not_equal(ls->fds[0], ls->fds[1]);
	assert_int_equal(option_of(ls->fds[0], SOL_SOCKET, SO_REUSEPORT), 1);
	for (int i = 0; i < 2; i++) {
		l[i] = make_listener(&b, &bind, &o);
		assert_int_equal(listener_start(&l[i], ls->fds[i]), 0);
	}
	fd = dial_plain(&bind);
	assert_int_equal(send(fd, "early", 5, 0), 5);
	WAIT_FOR(&b, o.n == 1);
	/* Data that was there at accept is read at once. */
	assert_int_equal(o.first_read, 5);
	assert_int_equal(o.conns[0]->state, CONN_OPEN);
	assert_ptr_equal(o.conns[0]->bind, &bind);
	assert_true(addr_is_eq(&o.conns[0]->local, &bind.ep.addr));
	assert_int_equal(o.conns[0]->peer.sa.sa_family, AF_INET);
	assert_int_not_equal(addr_port(&o.conns[0]->peer), 0);
	assert_int_equal(option_of(o.conns[0]->ev.fd, SOL_TCP, TCP_NODELAY), 1);
	assert_true(fcntl(o.conns[0]->ev.fd, F_GETFL) & O_NONBLOCK);
	close_all(&o);
	close(fd);
	listener_stop(&l[0]);
	listener_stop(&l[1]);
	listen_close(ls);
	bench_fini(&b);
}

static void expect_error(const struct conf_bind *bind, int code, const char *part)
{
	struct listen_socket *ls;
	struct err err = { "" };

	assert_int_equal(listen_open(bind, 1, NULL, &ls, &err), code);
	if (!strstr(err.text, part))
		fail_msg("'%s' is not in '%s'", part, err.text);
}

static void test_errors(void **state)
{
	struct conf_bind bind = bind_line(free_port());
	struct listen_socket *ls;
	struct err err;

	bind.text = (char *)":8080";
	bind.interface = (char *)"no-such-if0";
	expect_error(&bind, -ENODEV, "cannot bind to :8080: no such interface");
	bind.interface = NULL;
	assert_int_equal(addr_parse_ip(STR("192.0.2.99"), &bind.ep.addr), 0);
	addr_set_port(&bind.ep.addr, 8080);
	expect_error(&bind, -EADDRNOTAVAIL, "no interface has this address");
	addr_set_port(&bind.ep.addr, 0);
	expect_error(&bind, -EINVAL, "missing port");
	bind.ep.kind = ENDPOINT_NAME;
	expect_error(&bind, -EINVAL, "not an address");
	bind.ep.kind = ENDPOINT_IP;
	bind.ep.is_dgram = true;
	expect_error(&bind, -EINVAL, "mode l4");
	bind.ep.is_dgram = false;
	bind.ep.kind = ENDPOINT_FD;
	bind.ep.fd = 999;
	expect_error(&bind, -EBADF, "inherited");
	/* Freeing is balanced when memory runs out. */
	bind = bind_line(free_port());
	bind.interface = (char *)"lo";
	for (uint64_t n = 1; n <= 4; n++) {
		mem_fail_at(n);
		assert_int_equal(listen_open(&bind, 3, NULL, &ls, &err), -ENOMEM);
		mem_fail_at(0);
	}
}

static void test_in_use(void **state)
{
	struct conf_bind line = bind_line(free_port());
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, &line.ep.addr.sa, sizeof(line.ep.addr.in)), 0);
	assert_int_equal(listen(fd, 1), 0);
	line.text = (char *)"127.0.0.1:80";
	expect_error(&line, -EADDRINUSE, "cannot bind to 127.0.0.1:80: address already in use");
	close(fd);
}

/* A second configuration with the same address gets the same sockets, and what waits in them. */
static void test_take_over(void **state)
{
	struct conf_bind bind = bind_line(free_port()), other = bind_line(free_port());
	struct list old = LIST_INIT(old);
	struct listen_socket *a, *b, *c;
	struct err err;

	assert_int_equal(listen_open(&bind, 2, NULL, &a, &err), 0);
	list_push_back(&old, &a->link);
	assert_int_equal(listen_open(&bind, 2, &old, &b, &err), 0);
	assert_ptr_equal(a, b);
	assert_int_equal(a->users, 2);
	/* Another address, another number of workers, another property: new sockets. */
	assert_int_equal(listen_open(&other, 2, &old, &c, &err), 0);
	assert_ptr_not_equal(a, c);
	listen_close(c);
	assert_int_equal(listen_open(&bind, 3, &old, &c, &err), 0);
	assert_ptr_not_equal(a, c);
	listen_close(c);
	listen_close(a);
	assert_false(list_is_empty(&old));
	listen_close(b);
	assert_true(list_is_empty(&old));
}

static struct conf_bind unix_line(char *path)
{
	struct conf_bind b = bind_line(0);

	b.ep.kind = ENDPOINT_UNIX;
	b.ep.path = str_from_cstr(path);
	b.text = path;
	return b;
}

static int dial_unix(const char *path)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(un.sun_path, path);
	if (connect(fd, (struct sockaddr *)&un, sizeof(un)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static void test_unix(void **state)
{
	struct temp_dir d;
	struct conf_bind bind;
	struct listen_socket *a, *b;
	struct owner o = { 0 };
	struct listener l;
	struct bench be;
	struct err err;
	struct stat st;
	char *path;
	int fd;

	bench_init(&be);
	temp_dir_make(&d);
	path = in_dir(&d, "sock");
	bind = unix_line(path);
	bind.mode = 0600;
	assert_int_equal(listen_open(&bind, 2, NULL, &a, &err), 0);
	assert_true(a->is_shared);
	assert_int_equal(a->fds[0], a->fds[1]);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	/* A newer one replaces it; closing the older leaves the newer's path alone. */
	bind.mode = 0660;
	assert_int_equal(listen_open(&bind, 1, NULL, &b, &err), 0);
	listen_close(a);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0660);
	l = make_listener(&be, &bind, &o);
	assert_int_equal(listener_start(&l, b->fds[0]), 0);
	fd = dial_unix(path);
	assert_true(fd >= 0);
	WAIT_FOR(&be, o.n == 1);
	assert_string_equal(o.conns[0]->ops->name, "unix");
	assert_int_equal(o.conns[0]->peer.sa.sa_family, AF_UNIX);
	close_all(&o);
	close(fd);
	listener_stop(&l);
	listen_close(b);
	assert_int_equal(stat(path, &st), -1);
	/* Not over a file that is no socket; not where no directory is. */
	write_text(path, "precious");
	expect_error(&bind, -EEXIST, "not a socket");
	assert_int_equal(stat(path, &st), 0);
	bind = unix_line(in_dir(&d, "no/dir"));
	expect_error(&bind, -ENOENT, "no such directory");
	temp_dir_remove(&d);
	bench_fini(&be);
}

static void test_abns_and_fd(void **state)
{
	struct conf_bind bind = bind_line(0);
	struct listen_socket *a, *b;
	struct owner o = { 0 };
	struct listener l;
	struct bench be;
	struct err err;
	char name[32];

	bench_init(&be);
	snprintf(name, sizeof(name), "hg-test-%d", (int)getpid());
	bind.ep.kind = ENDPOINT_ABNS;
	bind.ep.path = str_from_cstr(name);
	assert_int_equal(listen_open(&bind, 1, NULL, &a, &err), 0);
	/* Inherited: here the socket above, made blocking again. */
	fcntl(a->fds[0], F_SETFL, 0);
	bind.ep.kind = ENDPOINT_FD;
	bind.ep.fd = a->fds[0];
	assert_int_equal(listen_open(&bind, 2, NULL, &b, &err), 0);
	assert_int_not_equal(b->fds[0], a->fds[0]);
	assert_true(fcntl(b->fds[0], F_GETFL) & O_NONBLOCK);
	l = make_listener(&be, &bind, &o);
	assert_int_equal(listener_start(&l, b->fds[0]), 0);
	{
		struct dial_opts d = { .unix_path = name };
		char at[34];
		struct conn *c;

		snprintf(at, sizeof(at), "@%s", name);
		d.unix_path = at;
		assert_int_equal(conn_dial(&be.nw, &d, &c), 0);
		WAIT_FOR(&be, o.n == 1);
		conn_close(c, false);
	}
	close_all(&o);
	listener_stop(&l);
	listen_close(b);
	listen_close(a);
	bench_fini(&be);
}

/* Full: connections wait in the backlog, and go on when there is room again. */
static void test_pause(void **state)
{
	struct conf_bind bind = bind_line(free_port());
	struct owner o = { .limit = 2 };
	struct listen_socket *ls;
	struct listener l;
	struct bench b;
	struct err err;
	int fds[5];

	bench_init(&b);
	assert_int_equal(listen_open(&bind, 1, NULL, &ls, &err), 0);
	l = make_listener(&b, &bind, &o);
	l.may_accept = may_accept;
	assert_int_equal(listener_start(&l, ls->fds[0]), 0);
	for (int i = 0; i < 5; i++)
		fds[i] = dial_plain(&bind);
	WAIT_FOR(&b, l.is_paused);
	assert_int_equal(o.n, 2);
	spin(&b, 5);
	assert_int_equal(o.n, 2);
	o.limit = 4;
	listener_resume(&l);
	WAIT_FOR(&b, o.n == 4);
	listener_pause(&l);
	o.limit = 64;
	spin(&b, 5);
	assert_int_equal(o.n, 4);
	listener_resume(&l);
	listener_resume(&l);
	WAIT_FOR(&b, o.n == 5);
	close_all(&o);
	for (int i = 0; i < 5; i++)
		close(fds[i]);
	listener_stop(&l);
	listen_close(ls);
	bench_fini(&b);
}

/* Never more than the budget per event; under a rush batches grow to it. */
static void test_budget(void **state)
{
	struct conf_bind bind = bind_line(free_port());
	struct owner o = { 0 };
	struct listen_socket *ls;
	struct listener l;
	struct bench b;
	struct err err;
	int fds[40];
	unsigned before = 0, most = 0;

	bench_init(&b);
	assert_int_equal(listen_open(&bind, 1, NULL, &ls, &err), 0);
	l = make_listener(&b, &bind, &o);
	l.budget = 8;
	assert_int_equal(listener_start(&l, ls->fds[0]), 0);
	for (int i = 0; i < 40; i++)
		fds[i] = dial_plain(&bind);
	for (int i = 0; i < 100 && o.n < 40; i++) {
		spin(&b, 1);
		most = o.n - before > most ? o.n - before : most;
		before = o.n;
	}
	assert_int_equal(o.n, 40);
	assert_int_equal(most, 8);
	close_all(&o);
	for (int i = 0; i < 40; i++)
		close(fds[i]);
	listener_stop(&l);
	listen_close(ls);
	bench_fini(&b);
}

/* No descriptors: the loop sleeps instead of spinning, and accepting resumes by itself. */
static void test_shortage(void **state)
{
	struct conf_bind bind = bind_line(free_port());
	struct rlimit lim, small;
	struct owner o = { 0 };
	struct listen_socket *ls;
	struct listener l;
	struct bench b;
	struct err err;
	uint64_t before, began, retries;
	unsigned n_errors;
	int fd;

	bench_init(&b);
	assert_int_equal(listen_open(&bind, 1, NULL, &ls, &err), 0);
	l = make_listener(&b, &bind, &o);
	assert_int_equal(listener_start(&l, ls->fds[0]), 0);
	fd = dial_plain(&bind);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
	small = lim;
	small.rlim_cur = (rlim_t)fd + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
	WAIT_FOR(&b, l.n_errors == 1);
	before = loop_stats(b.loop)->events;
	began = loop_now(b.loop);
	spin(&b, 20);
	/* One attempt each 100 ms, however long that took, and no spinning. */
	retries = (loop_now(b.loop) - began) / 100000000;
	assert_true(loop_stats(b.loop)->events - before < 3 + retries);
	assert_int_equal(o.n, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
	WAIT_FOR(&b, o.n == 1);
	/* The same for memory: the connection that could not be kept is lost, the next one is not. */
	close_all(&o);
	close(fd);
	pool_trim(&b.nw.conns);
	fd = dial_plain(&bind);
	n_errors = l.n_errors;
	mem_fail_at(1);
	WAIT_FOR(&b, l.n_errors > n_errors);
	mem_fail_at(0);
	close(fd);
	fd = dial_plain(&bind);
	WAIT_FOR(&b, o.n == 1);
	close_all(&o);
	close(fd);
	listener_stop(&l);
	listen_close(ls);
	bench_fini(&b);
}

/* What the listening socket was told is true of those that it accepts. */
static void check_inherited(int fd, const struct conf_bind *b)
{
	int client = socket(AF_INET, SOCK_STREAM, 0), got;
	char name[16] = "";
	socklen_t len = sizeof(name);

	assert_int_equal(connect(client, &b->ep.addr.sa, addr_len(&b->ep.addr)), 0);
	assert_int_equal(send(client, "x", 1, 0), 1); /* defer-accept waits for it */
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
	got = accept(fd, NULL, NULL);
	assert_true(got >= 0);
	assert_int_equal(option_of(got, SOL_TCP, TCP_USER_TIMEOUT), 1501);
	assert_int_equal(getsockopt(got, SOL_TCP, TCP_CONGESTION, name, &len), 0);
	assert_string_equal(name, "reno");
	close(got);
	close(client);
}

static void test_options(void **state)
{
	struct conf conf = { .global = { .rcvbuf_client = 65536, .sndbuf_client = 32768 } };
	struct conf_proxy px = { .conf = &conf,
				 .options = CONF_OPT(CLITCPKA),
				 .ka_client = { 3, 77, 9 },
				 .backlog = 7 };
	struct conf_bind bind = bind_line(free_port());
	struct listen_socket *ls;
	struct err err;

	bind.proxy = &px;
	bind.defer_accept = true;
	bind.tfo = true;
	bind.mss = 1000;
	bind.sock.user_timeout = 1500000001;
	bind.sock.congestion = "reno";
	assert_int_equal(listen_open(&bind, 1, NULL, &ls, &err), 0);
	assert_int_equal(option_of(ls->fds[0], SOL_SOCKET, SO_KEEPALIVE), 1);
	assert_int_equal(option_of(ls->fds[0], SOL_TCP, TCP_KEEPCNT), 3);
	assert_int_equal(option_of(ls->fds[0], SOL_TCP, TCP_KEEPIDLE), 77);
	assert_int_equal(option_of(ls->fds[0], SOL_TCP, TCP_KEEPINTVL), 9);
	assert_int_equal(option_of(ls->fds[0], SOL_TCP, TCP_MAXSEG), 1000);
	/* The kernel doubles what is asked for (socket(7)). */
	assert_int_equal(option_of(ls->fds[0], SOL_SOCKET, SO_RCVBUF), 2 * 65536);
	assert_int_equal(option_of(ls->fds[0], SOL_SOCKET, SO_SNDBUF), 2 * 32768);
	assert_true(option_of(ls->fds[0], SOL_TCP, TCP_DEFER_ACCEPT) > 0);
	assert_true(option_of(ls->fds[0], SOL_TCP, TCP_FASTOPEN) > 0);
	check_inherited(ls->fds[0], &bind);
	listen_close(ls);
	bind.sock.congestion = "nosuch";
	assert_int_equal(listen_open(&bind, 1, NULL, &ls, &err), -ENOENT);
	assert_int_equal(net_check_congestion("reno", &err), 0);
	assert_int_equal(net_check_congestion("nosuch", &err), -ENOENT);
	assert_non_null(strstr(err.text, "reno"));
	/* One port for both families, or for IPv6 alone. */
	bind = bind_line(0);
	memset(&bind.ep.addr, 0, sizeof(bind.ep.addr));
	bind.ep.addr.in6.sin6_family = AF_INET6;
	addr_set_port(&bind.ep.addr, free_port());
	bind.v6only = true;
	assert_int_equal(listen_open(&bind, 1, NULL, &ls, &err), 0);
	assert_int_equal(option_of(ls->fds[0], SOL_IPV6, IPV6_V6ONLY), 1);
	listen_close(ls);
	bind.v6only = false;
	bind.v4v6 = true;
	assert_int_equal(listen_open(&bind, 1, NULL, &ls, &err), 0);
	assert_int_equal(option_of(ls->fds[0], SOL_IPV6, IPV6_V6ONLY), 0);
	listen_close(ls);
	listen_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_and_accept),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_in_use),
		cmocka_unit_test(test_take_over),
		cmocka_unit_test(test_unix),
		cmocka_unit_test(test_abns_and_fd),
		cmocka_unit_test(test_pause),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_shortage),
		cmocka_unit_test(test_options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
