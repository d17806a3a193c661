/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TLS handshakes per second of net/, server side: bench_tls <seconds> [full|resumed] [ecdsa|rsa] [names].
 * One worker thread accepts; a second thread is a bare OpenSSL client over loopback. What counts is the server
 * thread's CPU time per handshake. "names" certificates are loaded beside the one that is asked for. The
 * yardstick is OpenSSL by itself: the server's half of the same handshake through memory, no sockets.
 */
/* links: net ev base */
#include <errno.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "net/net.h"

static struct {
	struct loop *loop;
	struct net_worker nw;
	struct addr to;
	bool is_resumed, is_rsa;
	double seconds;
	_Atomic uint64_t done;
	uint64_t resumed, accepted;
} w;

static double clock_s(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* --- server --- */

static void on_event(struct conn *c)
{
	static const char answer[] = "ok";
	struct iovec iov = { (void *)(uintptr_t)answer, 2 };
	struct sample s;
	struct arena *a = loop_scratch(w.loop);
	char mem[64];
	int r = conn_advance(c);

	if (r == -EAGAIN)
		return;
	if (r == 0) {
		ssize_t n = conn_recv(c, mem, sizeof(mem));

		if (n == -EAGAIN)
			return;
		if (n > 0 && conn_sendv(c, &iov, 1, false) == 2) {
			w.accepted++;
			w.resumed += conn_tls_field(c, TLS_IS_RESUMED, a, &s) == 0 && s.sint;
			return;
		}
	}
	conn_close(c, false);
}

static void on_accept(struct listener *l, struct conn *c)
{
	(void)l;
	c->on_event = on_event;
	on_event(c);
}

/* --- client --- */

static bool one_handshake(SSL_CTX *ctx, SSL_SESSION **session)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	SSL *ssl = SSL_new(ctx);
	char mem[16];
	bool ok = false;

	if (fd >= 0 && ssl && connect(fd, &w.to.sa, sizeof(w.to.in)) == 0) {
		SSL_set_fd(ssl, fd);
		SSL_set_tlsext_host_name(ssl, "bench.test");
		if (*session)
			SSL_set_session(ssl, *session);
		ok = SSL_connect(ssl) == 1 && SSL_write(ssl, "hi", 2) == 2 &&
		     SSL_read(ssl, mem, sizeof(mem)) == 2;
		if (ok && w.is_resumed && !*session)
			*session = SSL_get1_session(ssl);
	}
	SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
	SSL_free(ssl);
	close(fd);
	return ok;
}

static void *client(void *arg)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	SSL_SESSION *session = NULL;
	double end = clock_s(CLOCK_MONOTONIC) + w.seconds;

	(void)arg;
	while (clock_s(CLOCK_MONOTONIC) < end) {
		if (!one_handshake(ctx, &session)) {
			fprintf(stderr, "handshake failed\n");
			exit(1);
		}
	}
	SSL_SESSION_free(session);
	SSL_CTX_free(ctx);
	atomic_store(&w.done, 1);
	return NULL;
}

/* --- yardstick --- */

static SSL_CTX *bare_ctx(const char *pem)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

	if (!ctx || SSL_CTX_use_certificate_chain_file(ctx, pem) != 1 ||
	    SSL_CTX_use_PrivateKey_file(ctx, pem, SSL_FILETYPE_PEM) != 1)
		exit(1);
	SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"b", 1);
	return ctx;
}

/* Server CPU seconds of one handshake with its request and answer. */
static double bare_handshake(SSL_CTX *sctx, SSL_CTX *cctx, SSL_SESSION **session)
{
	SSL *s = SSL_new(sctx), *c = SSL_new(cctx);
	BIO *to_s = BIO_new(BIO_s_mem()), *to_c = BIO_new(BIO_s_mem());
	char mem[16];
	double cpu = 0;
	bool is_open = false;

	BIO_up_ref(to_s);
	BIO_up_ref(to_c);
	SSL_set_bio(s, to_s, to_c);
	SSL_set_bio(c, to_c, to_s);
	SSL_set_accept_state(s);
	SSL_set_connect_state(c);
	if (*session)
		SSL_set_session(c, *session);
	while (!is_open) {
		double t;

		if (SSL_do_handshake(c) == 1)
			SSL_write(c, "hi", 2);
		t = clock_s(CLOCK_THREAD_CPUTIME_ID);
		is_open = SSL_do_handshake(s) == 1 && SSL_read(s, mem, sizeof(mem)) == 2 &&
			  SSL_write(s, "ok", 2) == 2;
		cpu += clock_s(CLOCK_THREAD_CPUTIME_ID) - t;
	}
	if (SSL_read(c, mem, sizeof(mem)) != 2)
		exit(1);
	if (w.is_resumed && !*session)
		*session = SSL_get1_session(c);
	SSL_set_shutdown(c, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
	SSL_set_shutdown(s, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
	SSL_free(c);
	SSL_free(s);
	return cpu;
}

static double bare_run(const char *dir)
{
	char pem[128];
	SSL_CTX *sctx, *cctx = SSL_CTX_new(TLS_client_method());
	SSL_SESSION *session = NULL;
	double end = clock_s(CLOCK_MONOTONIC) + w.seconds, cpu = 0;
	uint64_t n = 0;

	snprintf(pem, sizeof(pem), "%s/z.pem", dir);
	sctx = bare_ctx(pem);
	for (; clock_s(CLOCK_MONOTONIC) < end; n++)
		cpu += bare_handshake(sctx, cctx, &session);
	SSL_SESSION_free(session);
	SSL_CTX_free(sctx);
	SSL_CTX_free(cctx);
	return cpu / (double)n * 1e6;
}

/* --- set-up --- */

static void write_cert(const char *path, const char *name)
{
	X509 *x = X509_new();
	EVP_PKEY *key = w.is_rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256");
	X509_NAME *n = X509_get_subject_name(x);
	FILE *f = fopen(path, "w");

	if (!f || !key)
		exit(1);
	X509_set_version(x, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
	X509_gmtime_adj(X509_getm_notBefore(x), -3600);
	X509_gmtime_adj(X509_getm_notAfter(x), 86400);
	X509_set_pubkey(x, key);
	X509_NAME_add_entry_by_txt(n, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1, -1, 0);
	X509_set_issuer_name(x, n);
	X509_sign(x, key, EVP_sha256());
	PEM_write_X509(f, x);
	PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL);
	fclose(f);
	X509_free(x);
	EVP_PKEY_free(key);
}

static void fill_dir(char *dir, unsigned names)
{
	char path[128], name[64];

	if (!mkdtemp(dir))
		exit(1);
	for (unsigned i = 0; i <= names; i++) {
		snprintf(name, sizeof(name), i ? "n%u.test" : "bench.test", i);
		/* Not the first of the directory, so not the default. */
		snprintf(path, sizeof(path), "%s/%s", dir, i == 0 ? "z.pem" : name);
		write_cert(path, name);
	}
}

static void check(int r, const struct err *err)
{
	if (r == 0)
		return;
	fprintf(stderr, "%s\n", err->text);
	exit(1);
}

int main(int argc, char **argv)
{
	struct conf_proxy px = { .mode = CONF_MODE_HTTP };
	struct conf_bind b = { .proxy = &px, .text = (char *)"127.0.0.1", .is_ssl = true };
	struct conf_global g = { 0 };
	struct cert_store *store;
	struct tls_server *tls;
	struct tls_server *_Atomic live;
	struct listen_socket *ls;
	struct listener l = { .nw = &w.nw, .bind = &b, .on_accept = on_accept };
	struct err err = { "" };
	unsigned names = argc > 4 ? (unsigned)atoi(argv[4]) : 0;
	char dir[] = "/tmp/hg-bench-tls-XXXXXX", *crt = dir, cmd[64];
	double wall, cpu, t0;
	pthread_t th;

	w.seconds = argc > 1 ? atof(argv[1]) : 3;
	w.is_resumed = argc > 2 && strcmp(argv[2], "resumed") == 0;
	w.is_rsa = argc > 3 && strcmp(argv[3], "rsa") == 0;
	net_tls_global_init();
	fill_dir(dir, names);
	w.to.in.sin_family = AF_INET;
	w.to.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	w.to.in.sin_port = htons((uint16_t)(20000 + getpid() % 10000));
	b.ep = (struct endpoint){ .kind = ENDPOINT_IP, .addr = w.to, .fd = -1 };
	b.crts = &crt;
	b.n_crts = 1;
	check(loop_create(&w.loop), &err);
	net_worker_init(&w.nw, w.loop, 0);
	check(cert_store_new(NULL, &store, &err), &err);
	t0 = clock_s(CLOCK_MONOTONIC);
	check(tls_server_new(store, &b, &g, &tls, &err), &err);
	printf("%u certificates loaded in %.1f ms\n", names + 1,
	       (clock_s(CLOCK_MONOTONIC) - t0) * 1e3);
	check(listen_open(&b, 1, NULL, &ls, &err), &err);
	atomic_init(&live, tls);
	l.tls = &live;
	check(listener_start(&l, ls->fds[0]), &err);
	wall = clock_s(CLOCK_MONOTONIC);
	cpu = clock_s(CLOCK_THREAD_CPUTIME_ID);
	if (pthread_create(&th, NULL, client, NULL))
		return 1;
	while (!atomic_load(&w.done) || w.nw.n_open)
		check(loop_run_once(w.loop, 100), &err);
	cpu = clock_s(CLOCK_THREAD_CPUTIME_ID) - cpu;
	wall = clock_s(CLOCK_MONOTONIC) - wall;
	pthread_join(th, NULL);
	printf("%s %s: %.0f/s by the clock, %.1f us of server CPU each (%.0f/s per core), %.0f %% "
	       "resumed\n",
	       w.is_resumed ? "resumed" : "full", w.is_rsa ? "rsa" : "ecdsa",
	       (double)w.accepted / wall, cpu / (double)w.accepted * 1e6, (double)w.accepted / cpu,
	       100.0 * (double)w.resumed / (double)w.accepted);
	printf("OpenSSL alone: %.1f us\n", bare_run(dir));
	listener_stop(&l);
	listen_close(ls);
	cert_store_free(store);
	net_worker_fini(&w.nw);
	loop_destroy(w.loop);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	return system(cmd) != 0;
}
