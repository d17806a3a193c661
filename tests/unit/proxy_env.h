/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A whole L7 tier inside a test: configuration text in, workers on real sockets, scripted servers, small
 * blocking clients. The test's thread plays the control thread.
 */
#ifndef TESTS_PROXY_ENV_H
#define TESTS_PROXY_ENV_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "lb/stick.h"
#include "proxy/proxy.h"

#define ENV_WORKERS 4
#define ENV_IDS	    256

struct env {
	unsigned n_workers;
	struct worker *workers[ENV_WORKERS];
	struct snapshot_hub hub;
	struct proxy_shared shared;
	struct hg_worker_counters counters[ENV_WORKERS];
	struct loop *loop;
	struct mailbox mailbox;
	struct lb_registry registry;
	struct stick_registry stick;
	struct stats_area services, backends;
	void *services_mem, *backends_mem;
	struct list sockets; /* listen_socket */
	unsigned n_destroyed;
	unsigned n_drained;
};

static void env_report(void *ctx, enum conf_severity sev, const struct conf_pos *pos,
		       const char *text)
{
	if (sev == CONF_ERROR || getenv("V"))
		fprintf(stderr, "%s:%u:%u: %s\n", pos ? pos->file : "?", pos ? pos->line : 0,
			pos ? pos->column : 0, text);
}

static void env_destroy(struct snapshot *s)
{
	struct proxy_snapshot *snap = container_of(s, struct proxy_snapshot, snap);
	struct env *e = snap->owner;

	lb_registry_release(&e->registry, snap->backends, snap->conf->n_proxies);
	for (unsigned i = 0; i < snap->n_binds; i++)
		listen_close(snap->binds[i].socket);
	cert_store_free(snap->certs);
	stick_registry_release(&e->stick, snap->conf);
	conf_free(snap->conf);
	arena_free(&snap->arena);
	mem_free(snap);
	e->n_destroyed++;
}

static inline struct proxy_snapshot *env_build(struct env *e, const char *text)
{
	struct conf_source src = { .report = env_report };
	struct proxy_snapshot *s = mem_zalloc(sizeof(*s));
	struct err err = { "" };
	struct list *p, *b;

	s->owner = e;
	s->snap.destroy = env_destroy;
	arena_init(&s->arena, 16384);
	if (conf_load_text(str_from_cstr(text), "test", &src, &s->conf))
		fail_msg("configuration refused:\n%s", text);
	assert_int_equal(cert_store_new(NULL, &s->certs, &err), 0);
	s->binds = arena_zalloc(&s->arena, 16 * sizeof(*s->binds));
	list_for_each(p, &s->conf->proxies) {
		struct conf_proxy *px = list_entry(p, struct conf_proxy, link);

		list_for_each(b, &px->binds) {
			struct proxy_bind *pb = &s->binds[s->n_binds];

			pb->conf = list_entry(b, struct conf_bind, link);
			if (listen_open(pb->conf, e->n_workers, &e->sockets, &pb->socket, &err))
				fail_msg("%s", err.text);
			if (list_is_empty(&pb->socket->link))
				list_push_back(&e->sockets, &pb->socket->link);
			s->n_binds++;
		}
	}
	assert_int_equal(stick_registry_prepare(&e->stick, s->conf, &err), 0);
	assert_int_equal(lb_registry_prepare(&e->registry, s->conf, &s->arena, &s->backends, &err),
			 0);
	return s;
}

static inline void env_publish(struct env *e, struct proxy_snapshot *s)
{
	assert_int_equal(snapshot_publish(&e->hub, &s->snap), 0);
	lb_registry_commit(&e->registry, s->conf, s->backends);
	stick_registry_commit(&e->stick, s->conf, loop_now(e->loop) / 1000000);
}

static void env_done(struct snapshot *s)
{
	struct env *e = container_of(s, struct proxy_snapshot, snap)->owner;

	snapshot_retire_done(&e->hub, s);
}

struct env_ping {
	struct mail mail;
	_Atomic bool done;
};

static void env_pong(struct mail *m)
{
	atomic_store(&container_of(m, struct env_ping, mail)->done, true);
}

/* Every worker has passed a loop iteration, and read all mail before this one, when it has read it. */
static void env_sync(struct env *e)
{
	for (unsigned i = 0; i < e->n_workers; i++) {
		struct env_ping p = { .mail.deliver = env_pong };

		if (!atomic_load(&e->shared.workers[i]))
			continue;
		mailbox_send(worker_mailbox(e->workers[i]), &p.mail);
		while (!atomic_load(&p.done))
			usleep(500);
	}
}

static void env_quiesced(struct lb_registry *r, void (*call)(void *arg), void *arg)
{
	env_sync(container_of(r, struct env, registry));
	call(arg);
}

static inline void env_start(struct env *e, unsigned n_workers, const char *text)
{
	size_t size = ENV_IDS * ENV_WORKERS * sizeof(struct hg_l7_counters);

	memset(e, 0, sizeof(*e));
	e->n_workers = n_workers;
	list_init(&e->sockets);
	stick_registry_init(&e->stick);
	assert_int_equal(loop_create(&e->loop), 0);
	assert_int_equal(mailbox_open(&e->mailbox, e->loop), 0);
	e->services_mem = aligned_alloc(64, size);
	e->backends_mem = aligned_alloc(64, size);
	memset(e->services_mem, 0, size);
	memset(e->backends_mem, 0, size);
	stats_area_init(&e->services, e->services_mem, ENV_IDS, n_workers);
	stats_area_init(&e->backends, e->backends_mem, ENV_IDS, n_workers);
	lb_registry_init(&e->registry, n_workers, &e->services, &e->backends);
	e->registry.after_quiescence = env_quiesced;
	snapshot_hub_init(&e->hub, n_workers);
	env_publish(e, env_build(e, text));
	for (unsigned i = 0; i < n_workers; i++) {
		struct worker_opts o = { .index = i,
					 .n_workers = n_workers,
					 .cpu = -1,
					 .hub = &e->hub,
					 .shared = &e->shared,
					 .counters = &e->counters[i],
					 .control = &e->mailbox,
					 .on_snapshot_done = env_done,
					 .owner = e };

		assert_int_equal(worker_start(&o, &e->workers[i]), 0);
	}
}

/* Lets control's mail arrive. */
static inline void env_spin(struct env *e, unsigned ms)
{
	for (unsigned i = 0; i < ms; i += 5)
		assert_int_equal(loop_run_once(e->loop, 5), 0);
}

/* Lets control's mail arrive until `cond`, ten seconds at most. */
#define ENV_WAIT(e, cond)                                                  \
	do {                                                               \
		for (int wait_i_ = 0; wait_i_ < 2000 && !(cond); wait_i_++) \
			env_spin((e), 5);                                  \
		assert_true(cond);                                         \
	} while (0)

static inline void env_reload(struct env *e, const char *text)
{
	env_publish(e, env_build(e, text));
	for (unsigned i = 0; i < e->n_workers; i++)
		worker_news(e->workers[i]);
	env_sync(e);
}

static inline void env_stop(struct env *e)
{
	for (unsigned i = 0; i < e->n_workers; i++)
		worker_stop(e->workers[i]);
	for (int i = 0; atomic_load(&e->hub.current); i++) {
		assert_true(i < 100);
		assert_int_equal(loop_run_once(e->loop, 100), 0);
	}
	mailbox_close(&e->mailbox);
	loop_destroy(e->loop);
	lb_registry_fini(&e->registry);
	stick_registry_fini(&e->stick);
	free(e->services_mem);
	free(e->backends_mem);
	assert_int_equal(atomic_load(&e->shared.cur_conns), 0);
}

static inline struct hg_l7_counters env_sum(struct env *e, struct lb_backend *be, bool is_frontend)
{
	struct hg_l7_counters sum;

	if (is_frontend)
		stats_row_sum(&e->services, &be->fe_stats, &sum);
	else
		stats_row_sum(&e->backends, &be->stats, &sum);
	return sum;
}

/* --- sockets ------------------------------------------------------------------------------------------ */

static inline int tcp_listen(uint16_t *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	a.sin_port = htons(*port);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 128), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	*port = ntohs(a.sin_port);
	return fd;
}

static inline uint16_t free_port(void)
{
	uint16_t port = 0;

	close(tcp_listen(&port));
	return port;
}

static inline int tcp_connect(uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval tv = { .tv_sec = 5 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	for (int i = 0; i < 200; i++) {
		if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
			return fd;
		usleep(10000);
	}
	fail_msg("cannot connect to %u: %s", port, strerror(errno));
	return -1;
}

static inline void send_all(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

		if (k <= 0)
			return;
		p += k;
		n -= (size_t)k;
	}
}

static inline void send_text(int fd, const char *text)
{
	send_all(fd, text, strlen(text));
}

/* Until the peer closes, `needle` was seen `times` times, or 5 s. Returns the text (static). */
static inline char *recv_until(int fd, const char *needle, unsigned times)
{
	static _Thread_local char buf[1 << 20];
	size_t len = 0;

	buf[0] = '\0';
	for (;;) {
		const char *at = buf;
		unsigned seen = 0;
		ssize_t n;

		while (needle && (at = strstr(at, needle))) {
			seen++;
			at += strlen(needle);
		}
		if (needle && seen >= times)
			return buf;
		if (len == sizeof(buf) - 1)
			return buf;
		n = recv(fd, buf + len, sizeof(buf) - 1 - len, 0);
		if (n <= 0)
			return buf;
		len += (size_t)n;
		buf[len] = '\0';
	}
}

/* True when the peer closes within 5 s without another byte. */
static inline bool is_closed(int fd)
{
	char c;

	return recv(fd, &c, 1, 0) == 0;
}

/* One request on a fresh connection; the answer up to the end of the connection. */
static inline char *ask_once(uint16_t port, const char *request)
{
	int fd = tcp_connect(port);
	char *answer;

	send_text(fd, request);
	answer = recv_until(fd, NULL, 0);
	close(fd);
	return answer;
}

/* --- scripted servers ---------------------------------------------------------------------------------- */

#define ORIGIN_CONNS 1024

struct origin;
struct origin_conn {
	struct origin *o;
	int fd;
	pthread_t thread;
};

struct origin {
	int fd;
	uint16_t port;
	pthread_t thread;
	void (*serve)(struct origin *o, int fd); /* one connection */
	_Atomic unsigned n_conns, n_requests;
	_Atomic bool stop;
	_Atomic(const char *) answer;
	pthread_mutex_t lock;
	char last[65536]; /* request seen last */
	struct origin_conn conns[ORIGIN_CONNS];
};

static void *origin_conn_main(void *arg)
{
	struct origin_conn *c = arg;

	c->o->serve(c->o, c->fd);
	shutdown(c->fd, SHUT_RDWR);
	return NULL;
}

static void *origin_main(void *arg)
{
	struct origin *o = arg;
	unsigned n = 0;

	while (!atomic_load(&o->stop)) {
		struct pollfd p = { .fd = o->fd, .events = POLLIN };
		struct origin_conn *c = &o->conns[n];
		struct timeval tv = { .tv_sec = 10 };
		int fd;

		if (n == ORIGIN_CONNS || poll(&p, 1, 20) <= 0)
			continue;
		fd = accept(o->fd, NULL, NULL);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
		atomic_fetch_add(&o->n_conns, 1);
		*c = (struct origin_conn){ .o = o, .fd = fd };
		if (pthread_create(&c->thread, NULL, origin_conn_main, c) == 0)
			n++;
	}
	/* A thread that closes its descriptor itself leaves a number that is somebody else's now: never. */
	for (unsigned i = 0; i < n; i++) {
		shutdown(o->conns[i].fd, SHUT_RDWR);
		pthread_join(o->conns[i].thread, NULL);
		close(o->conns[i].fd);
	}
	return NULL;
}

static inline void origin_start(struct origin *o, void (*serve)(struct origin *o, int fd))
{
	memset(o, 0, sizeof(*o));
	pthread_mutex_init(&o->lock, NULL);
	o->serve = serve;
	o->fd = tcp_listen(&o->port);
	/* What poll() announced may be reset before accept() takes it. */
	fcntl(o->fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(pthread_create(&o->thread, NULL, origin_main, o), 0);
}

static inline void origin_stop(struct origin *o)
{
	atomic_store(&o->stop, true);
	pthread_join(o->thread, NULL);
	close(o->fd);
	pthread_mutex_destroy(&o->lock);
}

/* RST, now; the descriptor stays open. */
static inline void tcp_reset(int fd)
{
	struct sockaddr sa = { .sa_family = AF_UNSPEC };

	connect(fd, &sa, sizeof(sa));
}

static inline void origin_note(struct origin *o, const char *text)
{
	pthread_mutex_lock(&o->lock);
	snprintf(o->last, sizeof(o->last), "%s", text);
	pthread_mutex_unlock(&o->lock);
	atomic_fetch_add(&o->n_requests, 1);
}

/* Copy of the request seen last. */
static inline const char *origin_last(struct origin *o)
{
	static char copy[65536];

	pthread_mutex_lock(&o->lock);
	memcpy(copy, o->last, sizeof(copy));
	pthread_mutex_unlock(&o->lock);
	return copy;
}

#endif
