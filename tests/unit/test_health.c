/* SPDX-License-Identifier: BSD-2-Clause */
/* links: ctl dp lb net conf expr http ev base */
/*
 * Health checks against real listeners on the loopback interface: what they find, what they do to a server's state, and
 * the words they say it with. The worker and the datapath are doubles.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "ctl/health_priv.h"
#include "unit/net_help.h"

#undef WAIT_FOR /* ours knows the control thread */

/* --- doubles --------------------------------------------------------------------------------------- */

static unsigned n_changed, n_shut;
static char shut_code;
static struct server *shut_server;

void ctl_server_changed(struct ctl *ctl, struct server *s)
{
	n_changed++;
	assert_int_equal(lb_rebuild(&ctl->registry, s->be), 0);
}

void *worker_owner(const struct worker *w)
{
	return (void *)(uintptr_t)w;
}

void worker_shutdown_server(struct worker *w, struct server *s, char code)
{
	n_shut++;
	shut_code = code;
	shut_server = s;
}

/* --- a server of the test: accepts, perhaps answers -------------------------------------------------- */

#define MAX_PEERS 16

struct peer_server {
	struct ev_fd ev;
	struct peer {
		struct ev_fd ev;
		struct peer_server *ps;
	} peers[MAX_PEERS];
	struct loop *loop;
	uint16_t port;
	const char *banner, *reply; /* NULL: says nothing */
	bool keeps_open;
	unsigned n_accepted;
	char got[2048]; /* what the last client sent */
};

static void peer_end(struct peer *p)
{
	if (p->ev.fd >= 0)
		loop_close_fd(p->ps->loop, &p->ev);
	p->ev.fd = -1;
}

static void peer_say(struct peer *p, const char *text)
{
	if (send(p->ev.fd, text, strlen(text), MSG_NOSIGNAL) < 0)
		peer_end(p);
}

static void peer_on_event(struct ev_fd *ev, uint32_t events)
{
	struct peer *p = container_of(ev, struct peer, ev);
	struct peer_server *ps = p->ps;
	ssize_t n = recv(ev->fd, ps->got, sizeof(ps->got) - 1, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		peer_end(p);
		return;
	}
	ps->got[n] = '\0';
	if (ps->reply)
		peer_say(p, ps->reply);
	if (!ps->keeps_open)
		peer_end(p);
}

static void peer_on_accept(struct ev_fd *ev, uint32_t events)
{
	struct peer_server *ps = container_of(ev, struct peer_server, ev);
	int fd = accept4(ev->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct peer *p = &ps->peers[ps->n_accepted % MAX_PEERS];

	if (fd < 0)
		return;
	ps->n_accepted++;
	peer_end(p);
	p->ps = ps;
	p->ev.on_event = peer_on_event;
	assert_int_equal(loop_add_fd(ps->loop, &p->ev, fd, LOOP_LEVEL), 0);
	if (ps->banner)
		peer_say(p, ps->banner);
}

/* Port 0: any. */
static void peer_open(struct peer_server *ps, struct loop *l, uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons(port) };
	socklen_t len = sizeof(in);
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(listen(fd, 512), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	for (unsigned i = 0; i < MAX_PEERS && !ps->loop; i++)
		ps->peers[i].ev.fd = -1;
	ps->loop = l;
	ps->port = ntohs(in.sin_port);
	ps->ev.on_event = peer_on_accept;
	assert_int_equal(loop_add_fd(l, &ps->ev, fd, LOOP_LEVEL), 0);
}

static void peer_close(struct peer_server *ps)
{
	for (unsigned i = 0; ps->loop && i < MAX_PEERS; i++)
		peer_end(&ps->peers[i]);
	if (ps->loop && ps->ev.fd >= 0)
		loop_close_fd(ps->loop, &ps->ev);
	ps->ev.fd = -1;
}

/* --- a control thread of the test ---------------------------------------------------------------------- */

struct env {
	struct ctl ctl;
	struct proxy_snapshot snaps[4];
	unsigned n_snaps;
	struct peer_server a, b;
	struct worker *workers[1];
	int log_fd, real_stderr;
	char log[1 << 20];
};

static void on_report(void *ctx, enum conf_severity sev, const struct conf_pos *pos,
		      const char *text)
{
	if (sev == CONF_ERROR)
		fprintf(stderr, "%s:%u:%u: %s\n", pos->file, pos->line, pos->column, text);
}

static const char *log_text(struct env *e)
{
	ssize_t n = pread(e->log_fd, e->log, sizeof(e->log) - 1, 0);

	e->log[n < 0 ? 0 : n] = '\0';
	return e->log;
}

static bool is_logged(struct env *e, const char *text)
{
	return strstr(log_text(e), text);
}

static void log_clear(struct env *e)
{
	assert_int_equal(ftruncate(e->log_fd, 0), 0);
	lseek(e->log_fd, 0, SEEK_SET);
}

static int setup(void **state)
{
	struct env *e = calloc(1, sizeof(*e));

	if (!e || loop_create(&e->ctl.loop))
		return -1;
	n_changed = n_shut = 0;
	shut_server = NULL;
	e->log_fd = memfd_create("log", MFD_CLOEXEC);
	e->real_stderr = dup(2);
	dup2(e->log_fd, 2);
	lseek(2, 0, SEEK_SET);
	e->a.ev.fd = e->b.ev.fd = -1;
	e->ctl.n_workers = 1;
	e->workers[0] = (struct worker *)e; /* only passed on */
	e->ctl.workers = e->workers;
	lb_registry_init(&e->ctl.registry, 1, NULL, NULL);
	*state = e;
	return 0;
}

static void release(struct env *e, unsigned i)
{
	struct proxy_snapshot *snap = &e->snaps[i];

	if (!snap->conf)
		return;
	lb_registry_release(&e->ctl.registry, snap->backends, snap->conf->n_proxies);
	cert_store_free(snap->certs);
	conf_free(snap->conf);
	arena_free(&snap->arena);
	snap->conf = NULL;
}

static int teardown(void **state)
{
	struct env *e = *state;

	health_destroy(e->ctl.health);
	peer_close(&e->a);
	peer_close(&e->b);
	for (unsigned i = 0; i < e->n_snaps; i++)
		release(e, i);
	lb_registry_fini(&e->ctl.registry);
	loop_destroy(e->ctl.loop);
	dup2(e->real_stderr, 2);
	close(e->real_stderr);
	if (is_logged(e, "test_health.c:"))
		fputs(e->log, stderr);
	close(e->log_fd);
	free(e);
	return 0;
}

/* From a text to a published snapshot, as control does it. */
static struct proxy_snapshot *publish(struct env *e, const char *fmt, ...)
{
	struct proxy_snapshot *snap = &e->snaps[e->n_snaps++];
	struct conf_source src = { .report = on_report };
	struct err err = { "" };
	struct list *p, *l;
	char *text;
	va_list ap;

	assert_true(e->n_snaps <= ARRAY_SIZE(e->snaps));
	va_start(ap, fmt);
	assert_true(vasprintf(&text, fmt, ap) >= 0);
	va_end(ap);
	assert_int_equal(conf_load_text(str_from_cstr(text), "test.cfg", &src, &snap->conf), 0);
	free(text);
	arena_init(&snap->arena, 4096);
	assert_int_equal(cert_store_new(NULL, &snap->certs, &err), 0);
	snap->tls = arena_zalloc(&snap->arena, (snap->conf->n_proxies + 1) * sizeof(*snap->tls));
	list_for_each(p, &snap->conf->proxies) {
		struct conf_proxy *px = list_entry(p, struct conf_proxy, link);

		snap->tls[px->index] = arena_zalloc(
			&snap->arena, (px->n_servers + 1) * sizeof(struct tls_client *));
		list_for_each(l, &px->servers) {
			struct conf_server *cs = list_entry(l, struct conf_server, link);
			struct tls_client *cli;

			if (!cs->needs_tls)
				continue;
			assert_int_equal(
				tls_client_new(snap->certs, cs, &snap->conf->global, &cli, &err),
				0);
			snap->tls[px->index][cs->pos_in_backend] = cli;
		}
	}
	assert_int_equal(lb_registry_prepare(&e->ctl.registry, snap->conf, &snap->arena,
					     &snap->backends, &err),
			 0);
	lb_registry_commit(&e->ctl.registry, snap->conf, snap->backends);
	e->ctl.current = snap;
	return snap;
}

/* Checks come often, and each has time: what waits for an answer that does not come says so by a time of its own. */
#define DEFAULTS                                                                  \
	"defaults\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n" \
	" timeout check 3s\n default-server inter 20 fastinter 10 downinter 15\n"

static void begin(struct env *e, struct proxy_snapshot *snap)
{
	if (!e->ctl.health)
		assert_int_equal(health_create(&e->ctl, &e->ctl.health), 0);
	assert_int_equal(health_configure(e->ctl.health, snap), 0);
}

static struct server *srv(struct env *e, const char *be, const char *name)
{
	struct server *s = lb_find_server(&e->ctl.registry, str_from_cstr(be), str_from_cstr(name));

	assert_non_null(s);
	return s;
}

/* At most ten seconds. */
#define WAIT_FOR(e, cond)                                                      \
	do {                                                                   \
		uint64_t until_ = loop_now((e)->ctl.loop) + 10000000000ull;    \
                                                                               \
		while (!(cond) && loop_now((e)->ctl.loop) < until_)            \
			assert_int_equal(loop_run_once((e)->ctl.loop, 10), 0); \
		assert_true(cond);                                             \
	} while (0)

static void run_for(struct env *e, unsigned ms)
{
	uint64_t until = loop_now(e->ctl.loop) + ms * 1000000ull;

	while (loop_now(e->ctl.loop) < until)
		assert_int_equal(loop_run_once(e->ctl.loop, 5), 0);
}

static uint16_t refused_port(struct env *e)
{
	struct peer_server ps = { .loop = NULL };

	peer_open(&ps, e->ctl.loop, 0);
	peer_close(&ps);
	return ps.port;
}

/* --- layer 4 ------------------------------------------------------------------------------------------ */

static void test_tcp_up_down_up(void **state)
{
	struct env *e = *state;
	struct server *s;

	peer_open(&e->a, e->ctl.loop, 0);
	begin(e, publish(e,
			 DEFAULTS "backend be\n option log-health-checks\n"
				  " server s1 127.0.0.1:%u check\n",
			 e->a.port));
	s = srv(e, "be", "s1");
	assert_int_equal(s->check.status, CHECK_STATUS_INI);
	WAIT_FOR(e, s->check.status == CHECK_STATUS_L4OK);
	assert_int_equal(s->check.health, 4);
	assert_string_equal(s->check.desc, "");
	assert_true(is_logged(e,
			      ") : Health check for server be/s1 succeeded, reason: Layer4 check "
			      "passed, check duration: "));
	assert_true(is_logged(e, "ms, status: 3/3 UP.\n"));

	log_clear(e);
	peer_close(&e->a);
	WAIT_FOR(e, s->check.health < 4);
	assert_int_equal(atomic_load(&s->op), SERVER_RUNNING);
	WAIT_FOR(e, atomic_load(&s->op) == SERVER_STOPPED);
	assert_int_equal(s->check.n_failed, 3);
	assert_int_equal(s->check.n_down, 1);
	assert_int_equal(s->check.status, CHECK_STATUS_L4CON);
	assert_string_equal(s->check.desc, "Connection refused");
	assert_int_equal(s->be->n_down_times, 1);
	assert_int_equal(n_changed, 1);
	assert_true(is_logged(e, "Health check for server be/s1 failed, reason: Layer4 connection "
				 "problem, info: \"Connection refused\", check duration: "));
	assert_true(is_logged(e, "ms, status: 2/3 UP.\n"));
	assert_true(is_logged(e, "ms, status: 0/2 DOWN.\n"));
	assert_true(is_logged(e, "[ALERT]    ("));
	assert_true(is_logged(e, ") : Server be/s1 is DOWN. 0 active and 0 backup servers left. 0 "
				 "sessions active, 0 requeued, 0 remaining in queue.\n"));
	assert_true(is_logged(e, "[EMERG]    ("));
	assert_true(is_logged(e, ") : backend be has no server available!\n"));
	/* Down for good counts once. */
	run_for(e, 60);
	assert_int_equal(s->check.n_failed, 3);

	log_clear(e);
	peer_open(&e->a, e->ctl.loop, e->a.port);
	WAIT_FOR(e, s->check.health == 1);
	assert_int_equal(atomic_load(&s->op), SERVER_STOPPED);
	WAIT_FOR(e, atomic_load(&s->op) == SERVER_RUNNING);
	assert_int_equal(s->check.health, 4);
	assert_true(is_logged(e, "ms, status: 1/2 DOWN.\n"));
	assert_true(is_logged(e, ") : Server be/s1 is UP. 1 active and 0 backup servers online. 0 "
				 "sessions requeued, 0 total in queue.\n"));
}

static void test_first_failure_is_enough(void **state)
{
	struct env *e = *state;
	struct server *s;

	peer_open(&e->a, e->ctl.loop, 0);
	begin(e, publish(e,
			 DEFAULTS "listen web\n bind 127.0.0.1:1\n"
				  " server s1 127.0.0.1:%u check on-marked-down shutdown-sessions\n"
				  " server s2 127.0.0.1:%u check backup\n",
			 refused_port(e), e->a.port));
	s = srv(e, "web", "s1");
	WAIT_FOR(e, atomic_load(&s->op) == SERVER_STOPPED);
	assert_int_equal(s->check.n_failed, 1);
	/* Without log-health-checks the reason is in the line of the change. */
	assert_true(is_logged(e,
			      ") : Server web/s1 is DOWN, reason: Layer4 connection problem, info: "
			      "\"Connection refused\", check duration: 0ms. 0 active and 1 backup "
			      "servers left. Running on backup. 0 sessions active"));
	assert_int_equal(n_shut, 1);
	assert_int_equal(shut_code, 'D');
	assert_ptr_equal(shut_server, s);
	peer_close(&e->a);
	WAIT_FOR(e, is_logged(e, ") : Backup Server web/s2 is DOWN, reason: "));
	assert_true(is_logged(e, ") : proxy web has no server available!\n"));
	assert_false(is_logged(e, "Health check"));
}

static void test_proxy_headers(void **state)
{
	static struct peer_server fresh, new_b;
	struct env *e = *state;

	peer_open(&e->a, e->ctl.loop, 0);
	peer_open(&e->b, e->ctl.loop, 0);
	begin(e, publish(e,
			 DEFAULTS "backend v1\n server s1 127.0.0.1:%u check send-proxy\n"
				  "backend v2\n server s1 127.0.0.1:1 check port %u send-proxy-v2 "
				  "check-send-proxy proxy-v2-options ssl,crc32c,authority inter "
				  "1s\n",
			 e->a.port, e->b.port));
	WAIT_FOR(e, srv(e, "v1", "s1")->check.status == CHECK_STATUS_L4OK && e->a.got[0]);
	assert_string_equal(e->a.got, "PROXY UNKNOWN\r\n");
	WAIT_FOR(e, srv(e, "v2", "s1")->check.status == CHECK_STATUS_L4OK && e->b.got[0]);
	/* version 2, LOCAL, no addresses; no TLS of a client, and a sum */
	assert_memory_equal(e->b.got,
			    "\r\n\r\n\0\r\nQUIT\n\x20\0\0\x0f"
			    "\x20\0\5\0\0\0\0\1\3\0\4",
			    27);
	/* Or PROXY without addresses, where somebody says so. */
	peer_open(&new_b, e->ctl.loop, 0);
	begin(e, publish(e,
			 "global\n pp2-never-send-local\n" DEFAULTS
			 "backend v2\n server s1 127.0.0.1:1 check port %u send-proxy-v2 "
			 "check-send-proxy inter 1s\n",
			 new_b.port));
	WAIT_FOR(e, new_b.got[0]);
	assert_memory_equal(new_b.got, "\r\n\r\n\0\r\nQUIT\n\x21\0\0\0", 16);
	peer_close(&new_b);
	/*
	 * Another address or port need not speak what the traffic does. On a port of its own: what the
	 * checks above have sent may still be on its way to theirs.
	 */
	peer_open(&fresh, e->ctl.loop, 0);
	begin(e,
	      publish(e,
		      DEFAULTS "backend none\n server s1 127.0.0.1:1 check addr 127.0.0.1 port %u "
			       "send-proxy\n",
		      fresh.port));
	WAIT_FOR(e, srv(e, "none", "s1")->check.status == CHECK_STATUS_L4OK && fresh.n_accepted);
	run_for(e, 30);
	assert_string_equal(fresh.got, "");
	peer_close(&fresh);
}

/* --- HTTP ---------------------------------------------------------------------------------------------- */

struct http_case {
	const char *conf, *reply;
	enum check_status status;
	unsigned code;
	const char *desc;
};

static void run_case(struct env *e, const struct http_case *c)
{
	struct server *s;

	e->a.reply = c->reply;
	e->n_snaps = 0;
	begin(e, publish(e, DEFAULTS "backend be\n %s\n server s1 127.0.0.1:%u check\n", c->conf,
			 e->a.port));
	s = srv(e, "be", "s1");
	s->check.status = CHECK_STATUS_INI;
	WAIT_FOR(e, s->check.status > CHECK_STATUS_START);
	if (s->check.status != c->status || s->check.code != c->code ||
	    strcmp(s->check.desc, c->desc) != 0)
		fail_msg("'%s' with '%s': %s %u '%s' instead of %s %u '%s'", c->conf,
			 c->reply ? c->reply : "nothing", check_status_code(s->check.status),
			 s->check.code, s->check.desc, check_status_code(c->status), c->code,
			 c->desc);
	/* Drops the watches: the snapshot can go. */
	health_destroy(e->ctl.health);
	e->ctl.health = NULL;
	release(e, 0);
}

#define OK_HELLO "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
#define FIELDS	 "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-A: a, b\r\nX-C: hello\r\n\r\n"
#define CHUNKED \
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"

static void test_http_answers(void **state)
{
	static const struct http_case cases[] = {
		{ "option httpchk", OK_HELLO, CHECK_STATUS_L7OK, 200, "" },
		{ "option httpchk", "HTTP/1.0 301 Moved\r\n\r\n", CHECK_STATUS_L7OK, 301, "" },
		{ "option httpchk", "HTTP/1.1 503 Service Unavailable\r\n\r\n", CHECK_STATUS_L7STS,
		  503, "Service Unavailable" },
		{ "option httpchk", "HTTP/1.1 404 Not Found\r\n\r\n", CHECK_STATUS_L7STS, 404,
		  "Not Found" },
		{ "option httpchk\n http-check disable-on-404", "HTTP/1.1 404 Not Found\r\n\r\n",
		  CHECK_STATUS_L7OKC, 404, "" },
		{ "option httpchk", "garbage\r\n\r\n", CHECK_STATUS_L7RSP, 0, "" },
		{ "option httpchk", "", CHECK_STATUS_L7RSP, 0, "" },
		{ "option httpchk", "HTTP/1.1 100 Continue\r\n\r\n" OK_HELLO, CHECK_STATUS_L7OK,
		  200, "" },
		{ "option httpchk\n http-check expect status 201,300-400", OK_HELLO,
		  CHECK_STATUS_L7STS, 200, "OK" },
		{ "option httpchk\n http-check expect ! status 201,300-400", OK_HELLO,
		  CHECK_STATUS_L7OK, 200, "" },
		{ "option httpchk\n http-check expect rstatus ^20[0-4]", OK_HELLO,
		  CHECK_STATUS_L7OK, 200, "" },
		{ "option httpchk\n http-check expect rstatus ^3", OK_HELLO, CHECK_STATUS_L7STS,
		  200, "OK" },
		{ "option httpchk\n http-check expect string hello", OK_HELLO, CHECK_STATUS_L7OK,
		  200, "" },
		{ "option httpchk\n http-check expect string hello", CHUNKED, CHECK_STATUS_L7OK,
		  200, "" },
		{ "option httpchk\n http-check expect string hello",
		  "HTTP/1.0 500 Bad\r\n\r\nsay hello", CHECK_STATUS_L7OK, 500, "" },
		{ "option httpchk\n http-check expect string OK", OK_HELLO, CHECK_STATUS_L7RSP, 200,
		  "HTTP content check did not match" },
		{ "option httpchk\n http-check expect comment why string helloo", OK_HELLO,
		  CHECK_STATUS_L7RSP, 200, "HTTP content check did not match comment: 'why'" },
		{ "option httpchk\n http-check expect ! rstring hel.o", CHUNKED, CHECK_STATUS_L7RSP,
		  200, "HTTP check matched unwanted content" },
		{ "option httpchk\n http-check expect ! string no", CHUNKED, CHECK_STATUS_L7OK, 200,
		  "" },
		{ "option httpchk\n http-check expect string hello\n http-check expect status 204",
		  OK_HELLO, CHECK_STATUS_L7STS, 200, "OK" },
		{ "option httpchk\n http-check expect string x",
		  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", CHECK_STATUS_L7RSP,
		  0, "" },
		{ "option httpchk\n http-check expect string hello",
		  "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhell", CHECK_STATUS_L7RSP, 0, "" },
		{ "option httpchk\n timeout check 30", NULL, CHECK_STATUS_L7TOUT, 0, "" },
		{ "option httpchk\n http-check expect hdr name x-a value b", FIELDS,
		  CHECK_STATUS_L7OK, 200, "" },
		{ "option httpchk\n http-check expect fhdr name x-a value b", FIELDS,
		  CHECK_STATUS_L7STS, 200, "HTTP header pattern did not match" },
		{ "option httpchk\n http-check expect fhdr name X-A value \"a, b\"", FIELDS,
		  CHECK_STATUS_L7OK, 200, "" },
		{ "option httpchk\n http-check expect ! hdr name -m beg X- value -m reg ^[bc]$",
		  FIELDS, CHECK_STATUS_L7STS, 200, "HTTP header pattern matched unwanted header" },
		{ "option httpchk\n http-check expect hdr name -m end -c value -m sub llo", FIELDS,
		  CHECK_STATUS_L7OK, 200, "" },
		{ "option httpchk\n http-check expect hdr name -m reg ^x-[a-b]$ value -m end lo",
		  FIELDS, CHECK_STATUS_L7STS, 200, "HTTP header pattern did not match" },
		{ "option httpchk\n http-check expect hdr name x-none", FIELDS, CHECK_STATUS_L7STS,
		  200, "HTTP header pattern did not match" },
		{ "option httpchk\n http-check expect error-status L7RSP on-error \"%[srv_name] "
		  "said "
		  "%[status]\" status 201",
		  FIELDS, CHECK_STATUS_L7RSP, 200, "s1 said 200" },
		{ "option httpchk\n http-check expect ok-status L7OKC on-success "
		  "%[res.hdr(x-c)] status 200",
		  FIELDS, CHECK_STATUS_L7OKC, 200, "hello" },
		{ "option httpchk\n timeout check 30\n http-check expect tout-status L6TOUT status "
		  "200",
		  NULL, CHECK_STATUS_L6TOUT, 0, "" },
		{ "option httpchk\n http-check expect status-code int(299) status 200", OK_HELLO,
		  CHECK_STATUS_L7OK, 299, "" },
		{ "option httpchk\n http-check expect status-code res.hdr(x-n) status 201",
		  "HTTP/1.1 200 OK\r\nX-N: 777\r\n\r\n", CHECK_STATUS_L7STS, 777, "OK" },
		{ "option httpchk\n http-check set-var(check.w) str(hel),concat(lo)\n"
		  " http-check expect string-lf \"y %[var(check.w)]\"",
		  "HTTP/1.0 200 OK\r\n\r\nsay hello", CHECK_STATUS_L7OK, 200, "" },
		{ "option httpchk\n http-check expect ! string-lf %[srv_name]",
		  "HTTP/1.0 200 OK\r\n\r\nI am s1", CHECK_STATUS_L7RSP, 200,
		  "HTTP check matched unwanted content" },
		{ "option httpchk\n http-check expect string-lf %[var(check.none)]",
		  "HTTP/1.0 200 OK\r\n\r\nx", CHECK_STATUS_L7OK, 200, "" },
		{ "option httpchk\n http-check set-var-fmt(check.n) \"%[srv_name]\"\n"
		  " http-check expect hdr name-lf \"x-%[var(check.n)]\" value-lf "
		  "%[var(check.n)]1",
		  "HTTP/1.0 200 OK\r\nX-S1: a, s11\r\n\r\n", CHECK_STATUS_L7OK, 200, "" },
		{ "option httpchk\n http-check connect\n http-check send uri /1\n"
		  " http-check expect status 200\n"
		  " http-check set-var(check.body) res.body\n http-check connect linger\n"
		  " http-check send meth GET uri /2\n"
		  " http-check expect string-lf %[var(check.body)]",
		  "HTTP/1.0 200 OK\r\n\r\nsame", CHECK_STATUS_L7OK, 200, "" },
		{ "option httpchk\n http-check connect\n http-check send uri /1\n"
		  " http-check expect status 200\n http-check connect port 1\n"
		  " http-check send uri /2",
		  OK_HELLO, CHECK_STATUS_L4CON, 0, "Connection refused" },
		{ "option httpchk\n http-check connect\n http-check send uri /1\n"
		  " http-check expect status 500\n http-check connect\n"
		  " http-check send uri /2",
		  "HTTP/1.0 500 Bad\r\n\r\n", CHECK_STATUS_L7STS, 500, "Bad" },
		{ "option httpchk\n http-check set-var(check.p) int(1)\n"
		  " http-check unset-var(check.none)\n http-check connect port var(check.p)",
		  OK_HELLO, CHECK_STATUS_L4CON, 0, "Connection refused" },
		{ "option httpchk\n http-check connect port 1", OK_HELLO, CHECK_STATUS_L4CON, 0,
		  "Connection refused" },
		{ "option httpchk\n http-check connect addr 127.0.0.2 linger proto h1", OK_HELLO,
		  CHECK_STATUS_L4CON, 0, "Connection refused" },
	};
	struct env *e = *state;

	peer_open(&e->a, e->ctl.loop, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		e->a.keeps_open = !cases[i].reply;
		run_case(e, &cases[i]);
	}
}

static void test_http_request(void **state)
{
	struct env *e = *state;

	peer_open(&e->a, e->ctl.loop, 0);
	e->a.reply = OK_HELLO;
	begin(e, publish(e,
			 DEFAULTS "backend be\n option httpchk GET /x HTTP/1.1 www.example\n"
				  " http-check send hdr X-A 1 hdr X-B \"2 3\" body abc\n "
				  "http-check send-state\n"
				  " server s1 127.0.0.1:%u check send-proxy weight 3\n",
			 e->a.port));
	WAIT_FOR(e, srv(e, "be", "s1")->check.status == CHECK_STATUS_L7OK);
	/* The header and the request may come in two pieces. */
	assert_non_null(strstr(e->a.got, "GET /x HTTP/1.1\r\nHost: www.example\r\nX-A: 1\r\nX-B: 2 "
					 "3\r\nContent-Length: 3\r\nConnection: close\r\n"
					 "X-Haproxy-Server-State: UP"));
	assert_non_null(
		strstr(e->a.got, "; name=be/s1; node=; weight=3/3; scur=0/0; qcur=0\r\n\r\nabc"));
	health_destroy(e->ctl.health);
	e->ctl.health = NULL;
	begin(e, publish(e, DEFAULTS "backend b2\n option httpchk\n server s1 127.0.0.1:%u check\n",
			 e->a.port));
	WAIT_FOR(e, srv(e, "b2", "s1")->check.status == CHECK_STATUS_L7OK);
	assert_string_equal(e->a.got, "OPTIONS / HTTP/1.0\r\nConnection: close\r\n\r\n");
}

/* Expressions in the request; one that would break it is not sent. */
static void test_request_formats(void **state)
{
	struct env *e = *state;

	peer_open(&e->a, e->ctl.loop, 0);
	e->a.reply = OK_HELLO;
	begin(e, publish(e,
			 DEFAULTS "backend be\n option httpchk\n http-check send meth POST uri-lf "
				  "/for/%%[srv_name] ver HTTP/1.1 hdr Host h hdr X-S "
				  "\"a %%[srv_name]%%[bin(0d0a),hex]%%[str(x)]\" body-lf "
				  "\"id=%%[srv_id]\"\n server s1 127.0.0.1:%u check\n",
			 e->a.port));
	WAIT_FOR(e, srv(e, "be", "s1")->check.status == CHECK_STATUS_L7OK);
	assert_string_equal(e->a.got, "POST /for/s1 HTTP/1.1\r\nHost: h\r\nX-S: a s10D0Ax\r\n"
				      "Content-Length: 4\r\n"
				      "Connection: close\r\n\r\nid=1");
	health_destroy(e->ctl.health);
	e->ctl.health = NULL;
	begin(e, publish(e,
			 DEFAULTS "backend b2\n option httpchk\n http-check send uri-lf "
				  "\"/x y\"\n server s1 127.0.0.1:%u check\n",
			 e->a.port));
	WAIT_FOR(e, srv(e, "b2", "s1")->check.status == CHECK_STATUS_SOCKERR);
	assert_string_equal(srv(e, "b2", "s1")->check.desc,
			    "the format gave no target for a request");
}

/* Where a server begins, and begins again after maintenance. */
static void test_init_state(void **state)
{
	static const struct {
		const char *name;
		uint32_t health;
		enum server_op op;
	} cases[] = {
		{ "up", 2, SERVER_RUNNING },
		{ "fully-up", 4, SERVER_RUNNING },
		{ "down", 1, SERVER_STOPPED },
		{ "fully-down", 0, SERVER_STOPPED },
	};
	struct env *e = *state;

	begin(e, publish(e, DEFAULTS "backend be\n default-server check inter 1h\n"
				     " server up 127.0.0.1:1\n"
				     " server fully-up 127.0.0.1:1 init-state fully-up\n"
				     " server down 127.0.0.1:1 init-state down\n"
				     " server fully-down 127.0.0.1:1 init-state fully-down\n"
				     " server plain 127.0.0.1:1 no-check init-state fully-down\n"));
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct server *s = srv(e, "be", cases[i].name);

		assert_int_equal(s->check.health, cases[i].health);
		assert_int_equal(atomic_load(&s->op), cases[i].op);
		server_set_admin(&e->ctl.registry, s, SERVER_FORCED_MAINT, 0);
		health_admin_changed(e->ctl.health, s);
		health_set_enabled(e->ctl.health, s, false);
		s->check.health = 3;
		server_set_admin(&e->ctl.registry, s, 0, SERVER_FORCED_MAINT);
		health_admin_changed(e->ctl.health, s);
		assert_int_equal(s->check.health, cases[i].health);
		assert_int_equal(atomic_load(&s->op), cases[i].op);
	}
	assert_true(is_logged(e, "Server be/down is DOWN/READY (leaving forced maintenance)."));
	assert_int_equal(atomic_load(&srv(e, "be", "plain")->op), SERVER_RUNNING);
}

/* `set server … check-addr` and its kin, and what a reload makes of them. */
static void test_places(void **state)
{
	struct env *e = *state;
	struct server *s;
	struct check_place now;
	struct addr other;

	assert_int_equal(addr_parse_ip(STR("127.0.0.9"), &other), 0);
	peer_open(&e->a, e->ctl.loop, 0);
	peer_open(&e->b, e->ctl.loop, 0);
	begin(e,
	      publish(e,
		      DEFAULTS "backend be\n server s1 127.0.0.1:%u check agent-check agent-port "
			       "%u agent-inter 20 agent-send old\n server s2 127.0.0.1:1\n",
		      e->a.port, e->b.port));
	s = srv(e, "be", "s1");
	WAIT_FOR(e, s->check.status == CHECK_STATUS_L4OK && strcmp(e->b.got, "old") == 0);
	assert_int_equal(health_set_agent_text(e->ctl.health, s, STR("new")), 0);
	WAIT_FOR(e, strcmp(e->b.got, "new") == 0);
	assert_int_equal(health_set_place(e->ctl.health, s, false, NULL, 1), 0);
	WAIT_FOR(e, s->check.status == CHECK_STATUS_L4CON);
	assert_int_equal(health_set_place(e->ctl.health, s, false, NULL, e->b.port), 0);
	WAIT_FOR(e, s->check.status == CHECK_STATUS_L4OK);
	assert_int_equal(health_set_place(e->ctl.health, s, false, &other, 0), 0);
	WAIT_FOR(e, s->check.status == CHECK_STATUS_L4CON);
	assert_int_equal(health_get_place(e->ctl.health, s, false).port, e->b.port);
	s = srv(e, "be", "s2");
	assert_int_equal(health_set_place(e->ctl.health, s, false, NULL, 1), -ENOENT);
	assert_int_equal(health_set_place(e->ctl.health, s, true, NULL, 1), -ENOENT);
	assert_int_equal(health_set_agent_text(e->ctl.health, s, STR("x")), -ENOENT);
	/* The same line: what was said stays. */
	begin(e,
	      publish(e,
		      DEFAULTS "backend be\n server s1 127.0.0.1:%u check agent-check agent-port "
			       "%u agent-inter 20 agent-send old\n",
		      e->a.port, e->b.port));
	s = srv(e, "be", "s1");
	now = health_get_place(e->ctl.health, s, false);
	assert_true(addr_is_ip_eq(&now.addr, &other));
	e->b.got[0] = '\0';
	WAIT_FOR(e, strcmp(e->b.got, "new") == 0);
	/* Another one: it holds. */
	begin(e, publish(e,
			 DEFAULTS "backend be\n server s1 127.0.0.1:%u check port %u agent-check "
				  "agent-port %u agent-inter 20 agent-send now\n",
			 e->a.port, e->a.port, e->b.port));
	s = srv(e, "be", "s1");
	assert_int_equal(health_get_place(e->ctl.health, s, false).addr.sa.sa_family, AF_UNSPEC);
	WAIT_FOR(e, s->check.status == CHECK_STATUS_L4OK && strcmp(e->b.got, "now") == 0);
}

static void test_disable_on_404(void **state)
{
	struct env *e = *state;
	struct server *s;

	peer_open(&e->a, e->ctl.loop, 0);
	e->a.reply = "HTTP/1.1 404 Not Found\r\n\r\n";
	begin(e, publish(e,
			 DEFAULTS "backend be\n option httpchk\n http-check disable-on-404\n"
				  " option log-health-checks\n server s1 127.0.0.1:%u check\n",
			 e->a.port));
	s = srv(e, "be", "s1");
	WAIT_FOR(e, atomic_load(&s->op) == SERVER_STOPPING);
	assert_true(is_logged(
		e, "Health check for server be/s1 conditionally succeeded, reason: Layer7 "
		   "check conditionally passed, code: 404, check duration: "));
	assert_true(is_logged(
		e, ") : Server be/s1 is stopping. 0 active and 0 backup servers online. 0 "
		   "sessions requeued, 0 total in queue.\n"));
	assert_true(is_logged(e, "backend be has no server available!"));
	e->a.reply = OK_HELLO;
	WAIT_FOR(e, atomic_load(&s->op) == SERVER_RUNNING);
	e->a.reply = "HTTP/1.1 500 Oops \"<\r\n\r\n";
	WAIT_FOR(e, atomic_load(&s->op) == SERVER_STOPPED);
	assert_true(
		is_logged(e, "reason: Layer7 wrong status, code: 500, info: \"Oops <22><3C>\""));
	/* From down, 404 is a failure like any other. */
	e->a.reply = "HTTP/1.1 404 Not Found\r\n\r\n";
	WAIT_FOR(e, s->check.status == CHECK_STATUS_L7STS && s->check.code == 404);
	run_for(e, 60);
	assert_int_equal(atomic_load(&s->op), SERVER_STOPPED);
}

/* --- scripts, TLS ----------------------------------------------------------------------------------------- */

static void test_tcp_scripts(void **state)
{
	static const struct http_case cases[] = {
		{ "option tcp-check", NULL, CHECK_STATUS_L4OK, 0, "" },
		{ "option tcp-check\n tcp-check expect string 220", NULL, CHECK_STATUS_L7OK, 0,
		  "(tcp-check)" },
		{ "option tcp-check\n tcp-check connect\n tcp-check expect rstring ^22[0-5]", NULL,
		  CHECK_STATUS_L7OK, 0, "(tcp-check)" },
		{ "option tcp-check\n tcp-check connect\n tcp-check expect ! rstring ^22[0-5]",
		  NULL, CHECK_STATUS_L7RSP, 0,
		  "TCPCHK matched unwanted content (regex) at step 2" },
		{ "option tcp-check\n tcp-check expect string 220\n tcp-check send x\n"
		  " tcp-check expect binary 706f6e67",
		  "pong", CHECK_STATUS_L7OK, 0, "(tcp-check)" },
		{ "option tcp-check\n tcp-check expect string 220\n tcp-check send-binary 7879\n"
		  " tcp-check expect string pink comment abc",
		  "pong", CHECK_STATUS_L7RSP, 0,
		  "TCPCHK did not match content 'pink' at step 3 comment: 'abc'" },
		{ "option tcp-check\n tcp-check expect string 220\n tcp-check send x\n"
		  " tcp-check expect string x",
		  "", CHECK_STATUS_L7RSP, 0, "TCPCHK got an empty response at step 3" },
		{ "option tcp-check\n timeout check 30\n tcp-check expect string 250 comment abc",
		  NULL, CHECK_STATUS_L7TOUT, 0,
		  " at step 1 of tcp-check (expect string '250') comment: 'abc'" },
		{ "option tcp-check\n timeout check 30\n tcp-check connect\n"
		  " tcp-check expect binary 0a0b",
		  NULL, CHECK_STATUS_L7TOUT, 0, " at step 2 of tcp-check (expect binary '0A0B')" },
		{ "option tcp-check\n tcp-check expect min-recv 3 ! string 999", NULL,
		  CHECK_STATUS_L7OK, 0, "(tcp-check)" },
		{ "option tcp-check\n tcp-check connect\n tcp-check expect string 220\n"
		  " tcp-check connect linger\n tcp-check expect string 220",
		  NULL, CHECK_STATUS_L7OK, 0, "(tcp-check)" },
		{ "option tcp-check\n tcp-check connect addr 127.0.0.1 default proto h1\n"
		  " tcp-check expect string 220",
		  NULL, CHECK_STATUS_L7OK, 0, "(tcp-check)" },
		{ "option tcp-check\n tcp-check connect addr 127.0.0.2", NULL, CHECK_STATUS_L4CON,
		  0, "Connection refused at step 1 of tcp-check (connect)" },
		{ "option tcp-check\n tcp-check expect string 220\n"
		  " tcp-check send-lf \"%[srv_name]\"\n tcp-check expect on-error \"bad "
		  "%[srv_name]\" "
		  "error-status L7STS rbinary 706f",
		  "pong", CHECK_STATUS_L7STS, 0, "bad s1" },
		{ "option tcp-check\n tcp-check set-var(check.b) str(220)\n"
		  " tcp-check expect string-lf %[var(check.b)]\n"
		  " tcp-check send-binary-lf %[str(xy),hex]\n"
		  " tcp-check set-var(check.x,ifnotexists) str(pong),hex\n"
		  " tcp-check set-var(check.x,ifnotexists) str(ping)\n"
		  " tcp-check expect binary-lf %[var(check.x)]",
		  "pong", CHECK_STATUS_L7OK, 0, "(tcp-check)" },
		{ "option tcp-check\n tcp-check expect string 220\n tcp-check send-binary-lf abc",
		  NULL, CHECK_STATUS_SOCKERR, 0,
		  "the format gave no hexadecimal digits at step 2 of tcp-check (send)" },
		{ "option tcp-check\n tcp-check set-var-fmt(check.b) \"%[res.payload(0,3)]\"\n"
		  " tcp-check expect string 220\n"
		  " tcp-check set-var-fmt(check.b) \"%[res.payload(0,3)]\"\n"
		  " tcp-check expect status-code var(check.b) on-success "
		  "\"%[var(check.b)] %[res.payload(4,2)]\" string hi",
		  NULL, CHECK_STATUS_L7OK, 220, "220 hi" },
		{ "option tcp-check\n timeout check 30\n tcp-check set-var(check.w) str(no)\n"
		  " tcp-check expect string-lf %[var(check.w)]pe",
		  NULL, CHECK_STATUS_L7TOUT, 0, " at step 2 of tcp-check (expect string 'nope')" },
		{ "option tcp-check\n tcp-check expect ok-status L6OK on-success fine string 220",
		  NULL, CHECK_STATUS_L6OK, 0, "fine" },
		{ "option tcp-check\n tcp-check connect port 1", NULL, CHECK_STATUS_L4CON, 0,
		  "Connection refused at step 1 of tcp-check (connect port 1)" },
	};
	struct env *e = *state;

	peer_open(&e->a, e->ctl.loop, 0);
	e->a.banner = "220 hi\r\n";
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		e->a.keeps_open = !cases[i].reply;
		run_case(e, &cases[i]);
	}
	peer_close(&e->a);
	run_case(e, &(struct http_case){ "option tcp-check", NULL, CHECK_STATUS_L4CON, 0,
					 "Connection refused at initial connection step of "
					 "tcp-check" });
}

static void test_tls(void **state)
{
	struct env *e = *state;
	struct server *s1, *s2, *s3;

	net_tls_global_init();
	peer_open(&e->a, e->ctl.loop, 0);
	peer_open(&e->b, e->ctl.loop, 0);
	e->a.reply = "this is not TLS\r\n";
	e->b.keeps_open = true;
	begin(e, publish(e,
			 DEFAULTS "backend be\n"
				  " server s1 127.0.0.1:%u check ssl verify none\n"
				  " server s3 127.0.0.1:1 check ssl verify none port %u\n"
				  "backend mute\n timeout check 30\n"
				  " server s2 127.0.0.1:%u check check-ssl verify none\n",
			 e->a.port, e->b.port, e->b.port));
	s1 = srv(e, "be", "s1");
	s2 = srv(e, "mute", "s2");
	s3 = srv(e, "be", "s3");
	WAIT_FOR(e, s1->check.status > CHECK_STATUS_START);
	assert_int_equal(s1->check.status, CHECK_STATUS_L6RSP);
	assert_string_equal(s1->check.desc, "SSL handshake failure");
	WAIT_FOR(e, s2->check.status > CHECK_STATUS_START);
	assert_int_equal(s2->check.status, CHECK_STATUS_L6TOUT);
	WAIT_FOR(e, s3->check.status > CHECK_STATUS_START);
	assert_int_equal(s3->check.status, CHECK_STATUS_L4OK);
}

/* A TLS server: handshakes, and waits for the end. */
struct tls_peer {
	struct listener listener;
	struct tls_server *_Atomic tls;
	struct net_worker nw;
};

static char tls_peer_saw[4096]; /* "[protocol name]" of each handshake */

static void tls_peer_on_event(struct conn *c)
{
	size_t len = strlen(tls_peer_saw);
	char byte;
	ssize_t n;

	if (conn_advance(c) == -EAGAIN)
		return;
	if (!c->owner && c->state == CONN_OPEN) {
		snprintf(tls_peer_saw + len, sizeof(tls_peer_saw) - len,
			 "[" STR_FMT " " STR_FMT "]", STR_ARG(conn_alpn(c)), STR_ARG(conn_sni(c)));
		c->owner = c; /* once */
	}
	n = c->state == CONN_OPEN ? conn_recv(c, &byte, 1) : 0;
	if (n == -EAGAIN)
		return;
	conn_close(c, false);
}

static void tls_peer_on_accept(struct listener *l, struct conn *c)
{
	c->owner = NULL;
	c->on_event = tls_peer_on_event;
	tls_peer_on_event(c);
}

static void test_tls_passes(void **state)
{
	struct env *e = *state;
	struct tls_peer tp = { .listener.fd = -1 };
	struct listen_socket *ls;
	struct tls_server *tls;
	struct cert_store *store;
	struct conf_global g;
	struct conf_bind b = bind_line(free_port());
	struct temp_dir dir;
	struct made cert = make_cert(KEY_EC, "localhost", "DNS:localhost", NULL, 1);
	char *pem, *crts[1];
	struct err err = { "" };
	struct server *s, *wrong, *none;

	net_tls_global_init();
	temp_dir_make(&dir);
	pem = crts[0] = in_dir(&dir, "cert.pem");
	write_pem(pem, cert.x, cert.key, NULL);
	made_free(&cert);
	memset(&g, 0, sizeof(g));
	b.is_ssl = true;
	b.tls.has_alpn = true;
	b.tls.alpn = (char[]){ "\x06"
			       "acme/1"
			       "\x08"
			       "http/1.1" };
	b.tls.alpn_len = 16;
	b.crts = crts;
	b.n_crts = 1;
	assert_int_equal(cert_store_new(NULL, &store, &err), 0);
	assert_int_equal(tls_server_new(store, &b, &g, &tls, &err), 0);
	atomic_init(&tp.tls, tls);
	tp.listener.tls = &tp.tls;
	assert_int_equal(listen_open(&b, 1, NULL, &ls, &err), 0);
	net_worker_init(&tp.nw, e->ctl.loop, 0);
	tp.listener.nw = &tp.nw;
	tp.listener.bind = &b;
	tp.listener.on_accept = tls_peer_on_accept;
	assert_int_equal(listener_start(&tp.listener, ls->fds[0]), 0);

	begin(e,
	      publish(e,
		      DEFAULTS
		      "backend be\n default-server ssl ca-file %s check inter 1s\n"
		      " server s 127.0.0.1:%u check-sni localhost\n"
		      " server wrong 127.0.0.1:%u check-sni example.org inter 50\n"
		      " server none 127.0.0.1:%u verify none inter 70\n"
		      "backend own\n option tcp-check\n tcp-check connect ssl linger\n"
		      " server s 127.0.0.1:%u check ssl verify none inter 70 check-alpn http/1.1\n"
		      "backend script\n option tcp-check\n tcp-check connect ssl sni x.example "
		      "alpn "
		      "acme/1,http/1.1 linger\n server s 127.0.0.1:%u check verify none inter 70\n",
		      pem, b.ep.port, b.ep.port, b.ep.port, b.ep.port, b.ep.port));
	s = srv(e, "be", "s");
	wrong = srv(e, "be", "wrong");
	none = srv(e, "be", "none");
	WAIT_FOR(e, s->check.status > CHECK_STATUS_START &&
			    wrong->check.status > CHECK_STATUS_START &&
			    none->check.status > CHECK_STATUS_START);
	WAIT_FOR(e, srv(e, "script", "s")->check.status == CHECK_STATUS_L6OK);
	/* Without `linger` the reset may overtake the end of the handshake. */
	WAIT_FOR(e, srv(e, "own", "s")->check.status == CHECK_STATUS_L6OK);
	WAIT_FOR(e,
		 strstr(tls_peer_saw, "[http/1.1 ]") && strstr(tls_peer_saw, "[acme/1 x.example]"));
	assert_int_equal(s->check.status, CHECK_STATUS_L6OK);
	assert_int_equal(none->check.status, CHECK_STATUS_L6OK);
	assert_int_equal(wrong->check.status, CHECK_STATUS_L6RSP);
	assert_string_equal(wrong->check.desc, "SSL handshake failure (certificate refused)");

	health_destroy(e->ctl.health);
	e->ctl.health = NULL;
	WAIT_FOR(e, tp.nw.n_open == 0);
	listener_stop(&tp.listener);
	listen_close(ls);
	net_worker_fini(&tp.nw);
	cert_store_free(store);
	temp_dir_remove(&dir);
}

/* A listener whose queue is full answers no SYN. */
static void test_connect_times_out(void **state)
{
	struct env *e = *state;
	struct addr a = loopback(0);
	socklen_t len = sizeof(a.in);
	int fd = socket(AF_INET, SOCK_STREAM, 0), fill[4];
	struct server *s;

	assert_int_equal(bind(fd, &a.sa, len), 0);
	assert_int_equal(listen(fd, 0), 0);
	assert_int_equal(getsockname(fd, &a.sa, &len), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(fill); i++) {
		fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		(void)!connect(fill[i], &a.sa, len);
	}
	begin(e, publish(e,
			 "defaults\n timeout connect 30\n timeout client 1s\n timeout server 1s\n"
			 " timeout check 1s\nbackend be\n server s1 127.0.0.1:%u check inter 2s\n",
			 ntohs(a.in.sin_port)));
	s = srv(e, "be", "s1");
	WAIT_FOR(e, s->check.status > CHECK_STATUS_START);
	assert_int_equal(s->check.status, CHECK_STATUS_L4TOUT);
	assert_in_range(s->check.duration_ms, 30, 5000);
	for (unsigned i = 0; i < ARRAY_SIZE(fill); i++)
		close(fill[i]);
	close(fd);
}

/* What this host is short of says nothing about the server. */
static void test_no_descriptors(void **state)
{
	struct env *e = *state;
	struct rlimit was, now;
	struct server *s;

	peer_open(&e->a, e->ctl.loop, 0);
	begin(e, publish(e, DEFAULTS "backend be\n server s1 127.0.0.1:%u check\n", e->a.port));
	s = srv(e, "be", "s1");
	WAIT_FOR(e, s->check.status == CHECK_STATUS_L4OK && !s->check.is_running);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	now = was;
	now.rlim_cur = 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
	WAIT_FOR(e,
		 is_logged(e, "Health check for server be/s1 is postponed: Too many open files"));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_int_equal(s->check.n_failed, 0);
	assert_int_equal(s->check.status, CHECK_STATUS_L4OK);
	s->check.status = CHECK_STATUS_INI;
	WAIT_FOR(e, s->check.status == CHECK_STATUS_L4OK);
}

/* --- operators ---------------------------------------------------------------------------------------------- */

static void set_admin(struct env *e, struct server *s, unsigned set, unsigned clear)
{
	server_set_admin(&e->ctl.registry, s, set, clear);
	health_admin_changed(e->ctl.health, s);
	ctl_server_changed(&e->ctl, s);
}

static void test_maintenance_and_trackers(void **state)
{
	struct env *e = *state;
	struct server *s, *t, *u;
	unsigned n;

	peer_open(&e->a, e->ctl.loop, 0);
	begin(e, publish(e,
			 DEFAULTS "backend be\n server s1 127.0.0.1:%u check\n"
				  "backend tr\n server t1 127.0.0.1:1 track be/s1\n"
				  "backend un\n server u1 127.0.0.1:1 track tr/t1\n",
			 e->a.port));
	s = srv(e, "be", "s1");
	t = srv(e, "tr", "t1");
	u = srv(e, "un", "u1");
	WAIT_FOR(e, s->check.status == CHECK_STATUS_L4OK);
	set_admin(e, s, SERVER_FORCED_MAINT, 0);
	assert_true(is_logged(
		e, ") : Server be/s1 is going DOWN for maintenance. 0 active and 0 backup "
		   "servers left. 0 sessions active, 0 requeued, 0 remaining in "
		   "queue.\n"));
	assert_true(is_logged(e, "backend be has no server available!"));
	assert_true(
		is_logged(e, ") : Server tr/t1 is going DOWN for maintenance via be/s1. 0 active"));
	assert_int_equal(atomic_load(&u->admin), SERVER_INHERITED_MAINT);
	run_for(e, 30);
	n = e->a.n_accepted;
	run_for(e, 60);
	assert_int_equal(e->a.n_accepted, n);

	log_clear(e);
	set_admin(e, s, 0, SERVER_FORCED_MAINT);
	assert_true(is_logged(e, ") : Server be/s1 is UP/READY (leaving forced maintenance).\n"));
	assert_true(is_logged(e, ") : Server un/u1 is UP/READY (leaving maintenance).\n"));
	assert_int_equal(s->check.health, 2);
	assert_int_equal(u->check.health, 4);
	WAIT_FOR(e, e->a.n_accepted > n && s->check.health == 4);

	set_admin(e, s, SERVER_FORCED_DRAIN, 0);
	assert_true(is_logged(e,
			      ") : Server be/s1 enters drain state. 0 active and 0 backup servers "
			      "online. 0 sessions requeued, 0 total in queue.\n"));
	assert_int_equal(atomic_load(&u->admin), SERVER_INHERITED_DRAIN);
	set_admin(e, s, 0, SERVER_FORCED_DRAIN);
	assert_true(is_logged(e, ") : Server be/s1 is UP (leaving forced drain).\n"));
	assert_int_equal(atomic_load(&u->admin), 0);

	log_clear(e);
	peer_close(&e->a);
	WAIT_FOR(e, atomic_load(&u->op) == SERVER_STOPPED);
	assert_int_equal(atomic_load(&t->op), SERVER_STOPPED);
	assert_true(
		is_logged(e, ") : Server tr/t1 is DOWN via be/s1. 0 active and 0 backup servers"));
	assert_true(
		is_logged(e, ") : Server un/u1 is DOWN via tr/t1. 0 active and 0 backup servers"));
	set_admin(e, s, SERVER_FORCED_MAINT, 0);
	assert_true(is_logged(e, ") : Server be/s1 was DOWN and now enters maintenance.\n"));
	assert_true(
		is_logged(e, ") : Server tr/t1 was DOWN and now enters maintenance via be/s1.\n"));
	set_admin(e, s, 0, SERVER_FORCED_MAINT);
	assert_int_equal(atomic_load(&s->op), SERVER_RUNNING);
	WAIT_FOR(e, atomic_load(&s->op) == SERVER_STOPPED);
}

static void test_forced_health(void **state)
{
	struct env *e = *state;
	struct server *s;
	unsigned n;

	peer_open(&e->a, e->ctl.loop, 0);
	begin(e, publish(e,
			 DEFAULTS "backend be\n server s1 127.0.0.1:%u check inter 1h\n"
				  " server s2 127.0.0.1:1 backup\n",
			 e->a.port));
	s = srv(e, "be", "s1");
	WAIT_FOR(e, s->check.status == CHECK_STATUS_L4OK);
	health_force(e->ctl.health, s, false);
	assert_int_equal(atomic_load(&s->op), SERVER_STOPPED);
	assert_int_equal(s->check.health, 0);
	assert_true(is_logged(e,
			      ") : Server be/s1 is DOWN, changed from CLI. 0 active and 1 backup "
			      "servers left. Running on backup. 0 sessions active, "));
	health_force(e->ctl.health, s, true);
	assert_true(is_logged(
		e, ") : Server be/s1 is UP, changed from CLI. 1 active and 1 backup servers "
		   "online. 0 sessions requeued"));
	health_force_stopping(e->ctl.health, s);
	assert_int_equal(atomic_load(&s->op), SERVER_STOPPING);
	assert_true(is_logged(
		e, ") : Server be/s1 is stopping, changed from CLI. 0 active and 1 backup"));
	/* A server without checks can be forced too. */
	health_force(e->ctl.health, srv(e, "be", "s2"), false);
	assert_int_equal(atomic_load(&srv(e, "be", "s2")->op), SERVER_STOPPED);
	health_force(e->ctl.health, s, true);

	health_set_enabled(e->ctl.health, s, false);
	assert_false(s->check.is_enabled);
	n = e->a.n_accepted;
	health_set_enabled(e->ctl.health, s, true);
	WAIT_FOR(e, e->a.n_accepted > n);
}

static void test_slowstart(void **state)
{
	struct env *e = *state;
	struct server *s;
	uint32_t w;

	peer_open(&e->a, e->ctl.loop, 0);
	begin(e, publish(e,
			 DEFAULTS "backend be\n balance roundrobin\n"
				  " server s1 127.0.0.1:%u check slowstart 300ms weight 10\n",
			 e->a.port));
	s = srv(e, "be", "s1");
	WAIT_FOR(e, s->check.status == CHECK_STATUS_L4OK);
	assert_int_equal(atomic_load(&s->weight), 160);
	health_force(e->ctl.health, s, false);
	health_force(e->ctl.health, s, true);
	assert_int_equal(atomic_load(&s->op), SERVER_STARTING);
	assert_int_equal(atomic_load(&s->weight), 10);
	run_for(e, 150);
	health_tick(e->ctl.health);
	w = atomic_load(&s->weight);
	assert_in_range(w, 70, 150);
	run_for(e, 200);
	health_tick(e->ctl.health);
	assert_int_equal(atomic_load(&s->weight), 160);
	assert_int_equal(atomic_load(&s->op), SERVER_RUNNING);
}

static void test_observe(void **state)
{
	struct env *e = *state;
	struct server *s, *m, *d;

	peer_open(&e->a, e->ctl.loop, 0);
	begin(e, publish(e,
			 "global\n max-spread-checks 30ms\n" DEFAULTS
			 "backend be\n default-server check inter 1h fastinter 1h observe "
			 "layer7 error-limit 5\n"
			 " server s1 127.0.0.1:%u on-error fail-check\n"
			 " server m1 127.0.0.1:%u on-error mark-down\n"
			 " server d1 127.0.0.1:%u on-error sudden-death\n",
			 e->a.port, e->a.port, e->a.port));
	s = srv(e, "be", "s1");
	m = srv(e, "be", "m1");
	d = srv(e, "be", "d1");
	WAIT_FOR(e, s->check.status == CHECK_STATUS_L4OK && m->check.status == CHECK_STATUS_L4OK &&
			    d->check.status == CHECK_STATUS_L4OK);
	atomic_store(&s->observed_errors, 4);
	health_observe(e->ctl.health);
	assert_int_equal(s->check.health, 4);
	atomic_store(&s->observed_errors, 5);
	atomic_store(&m->observed_errors, 6);
	atomic_store(&d->observed_errors, 7);
	health_on_observed((struct worker *)&e->ctl);
	assert_int_equal(s->check.health, 3);
	assert_int_equal(s->check.status, CHECK_STATUS_HANA);
	assert_string_equal(s->check.desc, "Detected 5 consecutive errors");
	assert_int_equal(atomic_load(&s->observed_errors), 0);
	assert_int_equal(atomic_load(&m->op), SERVER_STOPPED);
	assert_true(is_logged(e, "Server be/m1 is DOWN, reason: Health analyze, info: \"Detected 6 "
				 "consecutive errors\""));
	assert_int_equal(d->check.health, 2);
	assert_int_equal(atomic_load(&d->op), SERVER_RUNNING);
}

static void test_up_ends_backup_sessions(void **state)
{
	struct env *e = *state;
	struct server *s;

	begin(e, publish(e, DEFAULTS "backend be\n server s1 127.0.0.1:1 on-marked-up "
				     "shutdown-backup-sessions\n server b1 127.0.0.1:1 backup\n"));
	s = srv(e, "be", "s1");
	health_force(e->ctl.health, s, false);
	assert_int_equal(n_shut, 0);
	health_force(e->ctl.health, s, true);
	assert_int_equal(n_shut, 1);
	assert_int_equal(shut_code, 'U');
	assert_ptr_equal(shut_server, srv(e, "be", "b1"));
}

/* --- reloads, shortage, many ---------------------------------------------------------------------------------- */

static void test_reload(void **state)
{
	struct env *e = *state;
	struct proxy_snapshot *second;
	struct server *keep;

	peer_open(&e->a, e->ctl.loop, 0);
	e->a.keeps_open = true;
	begin(e, publish(e,
			 DEFAULTS "backend be\n option httpchk\n"
				  " server gone 127.0.0.1:%u check inter 10s\n"
				  " server keep 127.0.0.1:%u check inter 1s\n"
				  "backend old\n server o 127.0.0.1:1 track be/gone\n",
			 e->a.port, e->a.port));
	/* Both checks are under way, nobody answers. */
	WAIT_FOR(e, e->a.n_accepted == 2);
	keep = srv(e, "be", "keep");
	assert_true(keep->check.is_running);
	second = publish(e,
			 DEFAULTS "backend new\n server n 127.0.0.1:%u check\n"
				  "backend be\n server keep 127.0.0.1:%u check inter 20\n",
			 e->a.port, e->a.port);
	begin(e, second);
	assert_int_equal(e->ctl.health->nw.n_open, 0);
	/* The first configuration and its servers go: what is left must not look at them. */
	release(e, 0);
	assert_ptr_equal(srv(e, "be", "keep"), keep);
	WAIT_FOR(e, keep->check.status == CHECK_STATUS_L4OK);
	WAIT_FOR(e, srv(e, "new", "n")->check.status == CHECK_STATUS_L4OK);
	assert_null(lb_find_server(&e->ctl.registry, STR("be"), STR("gone")));
	health_tick(e->ctl.health);
	/* A state survives. */
	peer_close(&e->a);
	WAIT_FOR(e, atomic_load(&keep->op) == SERVER_STOPPED);
	begin(e,
	      publish(e, DEFAULTS "backend be\n server keep 127.0.0.1:%u check inter 20 disabled\n",
		      e->a.port));
	assert_int_equal(atomic_load(&keep->op), SERVER_STOPPED);
	assert_true(is_logged(e, "Server be/keep was DOWN and now enters maintenance."));
}

static void test_bad_regex(void **state)
{
	struct env *e = *state;
	struct proxy_snapshot *snap =
		publish(e, DEFAULTS "backend be\n option httpchk\n http-check expect rstring ab\n"
				    " server s1 127.0.0.1:1 check\n");
	struct conf_proxy *px = conf_find_proxy(snap->conf, STR("be"), CONF_CAP_BACKEND);
	struct conf_check_step *step = list_entry(px->check.steps.next, struct conf_check_step,
						  link);

	/* Reading the configuration would have found it. */
	step->expect.text = (char *)(uintptr_t)"a(b";
	step->expect.text_len = 3;
	assert_int_equal(health_create(&e->ctl, &e->ctl.health), 0);
	assert_int_equal(health_configure(e->ctl.health, snap), -EINVAL);
	assert_true(is_logged(e, "health checks are suspended: test.cfg:"));
	assert_true(is_logged(e, "regular expression 'a(b'"));
	/* Asking again does not help. */
	health_tick(e->ctl.health);
	health_admin_changed(e->ctl.health, srv(e, "be", "s1"));
}

#define ALLOC_CONF                                                                 \
	DEFAULTS "backend be\n option httpchk\n http-check expect rstring hel+o\n" \
		 " server s1 127.0.0.1:%u check\nbackend t\n server t1 127.0.0.1:1 track be/s1\n"

static void test_allocation_failures(void **state)
{
	struct env *e = *state;
	struct proxy_snapshot *snap;
	unsigned n_failed = 0;
	struct server *s;

	peer_open(&e->a, e->ctl.loop, 0);
	e->a.reply = OK_HELLO;
	snap = publish(e, ALLOC_CONF, e->a.port);
	s = srv(e, "be", "s1");
	for (uint64_t n = 1;; n++) {
		int rc;

		mem_fail_at(n);
		rc = health_create(&e->ctl, &e->ctl.health);
		if (rc == 0)
			rc = health_configure(e->ctl.health, snap);
		mem_fail_at(0);
		if (rc == 0)
			break;
		assert_int_equal(rc, -ENOMEM);
		n_failed++;
		/* The next second heals it. */
		if (e->ctl.health) {
			health_tick(e->ctl.health);
			assert_non_null(health_find(e->ctl.health, s));
			health_destroy(e->ctl.health);
			e->ctl.health = NULL;
		}
	}
	assert_true(n_failed > 5);
	/* A check that lacks memory is not the server's fault. */
	for (uint64_t n = 1; n < 12; n++) {
		s->check.status = CHECK_STATUS_INI;
		health_set_enabled(e->ctl.health, s, false);
		health_set_enabled(e->ctl.health, s, true);
		mem_fail_at(n);
		for (int i = 0; i < 5; i++)
			assert_int_equal(loop_run_once(e->ctl.loop, 5), 0);
		mem_fail_at(0);
		WAIT_FOR(e, s->check.status == CHECK_STATUS_L7OK);
		assert_int_equal(atomic_load(&s->op), SERVER_RUNNING);
	}
	assert_int_equal(s->check.n_down, 0);
}

#define MANY 1000

static void test_many_servers(void **state)
{
	struct env *e = *state;
	char *text = malloc(MANY * 64), *p = text;
	uint16_t port = refused_port(e);
	unsigned down = 0;

	p += sprintf(p, "backend be\n balance roundrobin\n");
	for (unsigned i = 0; i < MANY; i++)
		p += sprintf(p, " server s%u 127.0.0.1:%u check inter 1500\n", i, port);
	begin(e, publish(e, "%s", text));
	free(text);
	/* Spread over the interval: only a part of them has been asked after a third of it. */
	run_for(e, 500);
	for (unsigned i = 0; i < MANY; i++)
		down += atomic_load(&e->ctl.current->backends[0]->servers[i]->op) == SERVER_STOPPED;
	assert_in_range(down, MANY / 6, MANY / 2);
	WAIT_FOR(e, atomic_load(&e->ctl.current->backends[0]->n_active) == 0);
	assert_true(is_logged(e, "backend be has no server available!"));

	/* A rack dies: one rebuild for all that change in one iteration. */
	n_changed = 0;
	for (unsigned i = 0; i < MANY; i++) {
		struct watch *w = health_find(e->ctl.health,
					      e->ctl.current->backends[0]->servers[i]);

		health_want(w, SERVER_RUNNING, CAUSE_CHECK);
	}
	health_flush(e->ctl.health);
	assert_int_equal(n_changed, 1);
	assert_int_equal(atomic_load(&e->ctl.current->backends[0]->n_active), MANY);
	assert_true(is_logged(e, ". 1000 active and 0 backup servers online."));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_tcp_up_down_up),
		T(test_first_failure_is_enough),
		T(test_proxy_headers),
		T(test_http_answers),
		T(test_http_request),
		T(test_disable_on_404),
		T(test_request_formats),
		T(test_init_state),
		T(test_places),
		T(test_tcp_scripts),
		T(test_tls),
		T(test_tls_passes),
		T(test_connect_times_out),
		T(test_no_descriptors),
		T(test_maintenance_and_trackers),
		T(test_forced_health),
		T(test_slowstart),
		T(test_observe),
		T(test_up_ends_backup_sessions),
		T(test_reload),
		T(test_bad_regex),
		T(test_allocation_failures),
		T(test_many_servers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
