/* SPDX-License-Identifier: BSD-2-Clause */
/* TLS end to end over loopback: our server side against our client side, and against bytes that are not TLS. */
/* links: net ev base */
#include <pthread.h>

#include "net/tls_priv.h"
#include "net_help.h"

static struct temp_dir dir;
static struct made ca, ec_a, rsa_a, ec_b, wild, client_cert;

static int make_files(void **state)
{
	char *p;

	net_tls_global_init();
	temp_dir_make(&dir);
	ca = make_cert(KEY_EC, "Test CA", NULL, NULL, 30);
	ec_a = make_cert(KEY_EC, "a.test", "DNS:a.test,DNS:www.a.test,IP:127.0.0.1", &ca, 30);
	rsa_a = make_cert(KEY_RSA, "a.test", "DNS:a.test", &ca, 30);
	ec_b = make_cert(KEY_EC, "b.test", "DNS:b.test", &ca, 30);
	wild = make_cert(KEY_EC, "wild", "DNS:*.w.test", &ca, 30);
	client_cert = make_cert(KEY_EC, "joe", NULL, &ca, 30);
	p = in_dir(&dir, "ca.pem");
	write_pem(p, ca.x, NULL, NULL);
	write_pem(in_dir(&dir, "a.pem"), ec_a.x, ec_a.key, ca.x);
	write_pem(in_dir(&dir, "a-rsa.pem"), rsa_a.x, rsa_a.key, NULL);
	write_pem(in_dir(&dir, "b.pem"), ec_b.x, ec_b.key, NULL);
	write_pem(in_dir(&dir, "w.pem"), wild.x, wild.key, NULL);
	write_pem(in_dir(&dir, "client.pem"), client_cert.x, client_cert.key, NULL);
	return 0;
}

static int remove_files(void **state)
{
	made_free(&ca);
	made_free(&ec_a);
	made_free(&rsa_a);
	made_free(&ec_b);
	made_free(&wild);
	made_free(&client_cert);
	temp_dir_remove(&dir);
	return 0;
}

/* One end: drives the handshake and remembers how it went. */
struct end {
	struct conn *c;
	int result;
	unsigned events;
};

struct world {
	struct bench b;
	struct cert_store *store;
	struct conf_global g;
	struct conf_proxy px;
	struct conf_bind bind;
	struct conf_server srv;
	char *crts[8];
	struct listen_socket *ls;
	struct listener l;
	struct tls_server *ts;
	struct tls_server *_Atomic ts_now;
	struct tls_client *tc;
	struct addr to;
	struct end server, client;
};

static void end_event(struct conn *c)
{
	struct end *e = c->owner;

	e->events++;
	if (e->result == -EAGAIN)
		e->result = conn_advance(c);
}

static void on_accept(struct listener *l, struct conn *c)
{
	struct world *w = l->owner;

	assert_null(w->server.c);
	w->server.c = c;
	w->server.result = -EAGAIN;
	c->owner = &w->server;
	c->on_event = end_event;
	end_event(c);
}

static void crt(struct world *w, const char *name)
{
	w->crts[w->bind.n_crts] = strdup(in_dir(&dir, name));
	w->bind.crts = w->crts;
	w->bind.n_crts++;
}

static void world_init(struct world *w)
{
	uint16_t port = free_port();

	memset(w, 0, sizeof(*w));
	bench_init(&w->b);
	w->bind = bind_line(port);
	w->bind.proxy = &w->px;
	w->bind.is_ssl = true;
	w->px.mode = CONF_MODE_HTTP;
	w->srv.name = (char *)"s1";
	w->srv.tls.ca_file = strdup(in_dir(&dir, "ca.pem"));
	w->to = loopback(port);
}

/* After the test has said what it wants. */
static void world_start(struct world *w)
{
	struct err err = { "" };

	assert_int_equal(cert_store_new(NULL, &w->store, &err), 0);
	if (tls_server_new(w->store, &w->bind, &w->g, &w->ts, &err))
		fail_msg("%s", err.text);
	if (tls_client_new(w->store, &w->srv, &w->g, &w->tc, &err))
		fail_msg("%s", err.text);
	assert_int_equal(listen_open(&w->bind, 1, NULL, &w->ls, &err), 0);
	atomic_store(&w->ts_now, w->ts);
	w->l = (struct listener){ .nw = &w->b.nw,
				  .bind = &w->bind,
				  .owner = w,
				  .on_accept = on_accept,
				  .tls = &w->ts_now };
	assert_int_equal(listener_start(&w->l, w->ls->fds[0]), 0);
}

static void dial(struct world *w, const char *sni)
{
	struct dial_opts o = { .to = &w->to, .tls = w->tc, .sni = str_from_cstr(sni) };

	w->client = (struct end){ .result = -EAGAIN };
	w->server = (struct end){ .result = -EAGAIN };
	assert_int_equal(conn_dial(&w->b.nw, &o, &w->client.c), 0);
	w->client.c->owner = &w->client;
	w->client.c->on_event = end_event;
	WAIT_FOR(&w->b, w->client.result != -EAGAIN && w->server.result != -EAGAIN);
}

static void hang_up(struct world *w)
{
	conn_close(w->client.c, false);
	conn_close(w->server.c, false);
	w->client.c = w->server.c = NULL;
}

static void world_fini(struct world *w)
{
	listener_stop(&w->l);
	listen_close(w->ls);
	cert_store_free(w->store);
	for (unsigned i = 0; i < w->bind.n_crts; i++)
		free(w->crts[i]);
	free(w->srv.tls.ca_file);
	bench_fini(&w->b);
}

static void connect_ok(struct world *w, const char *sni)
{
	dial(w, sni);
	if (w->client.result || w->server.result)
		fail_msg("client: %s, server: %s", conn_error_text(w->client.c->error),
			 conn_error_text(w->server.c->error));
}

/* One message each way. */
static void exchange(struct world *w)
{
	struct iovec iov[2] = { { (char *)"pi", 2 }, { (char *)"ng", 2 } };
	char mem[64];

	assert_int_equal(conn_sendv(w->client.c, iov, 2, false), 4);
	WAIT_FOR(&w->b, w->server.c->can_read);
	assert_int_equal(conn_recv(w->server.c, mem, sizeof(mem)), 4);
	assert_memory_equal(mem, "ping", 4);
	assert_false(w->server.c->can_read);
	assert_int_equal(conn_sendv(w->server.c, iov, 1, false), 2);
	for (int i = 0; i < 300; i++) {
		ssize_t n;

		spin(&w->b, 1);
		n = conn_recv(w->client.c, mem, sizeof(mem));
		if (n == -EAGAIN)
			continue;
		assert_int_equal(n, 2);
		return;
	}
	fail_msg("no answer");
}

static bool field_is(struct conn *c, enum subject_tls_field f, const char *text)
{
	struct arena a;
	struct sample s;
	bool ok;

	arena_init(&a, 512);
	ok = conn_tls_field(c, f, &a, &s) == 0 &&
	     (s.type == SAMPLE_STR ? str_is_eq(s.str, str_from_cstr(text)) : s.sint == atoll(text));
	arena_free(&a);
	return ok;
}

/* The server's certificate as the client saw it. */
static bool got_cert(struct world *w, const struct made *m)
{
	unsigned char *der = NULL;
	int len = i2d_X509(m->x, &der);
	struct arena a;
	struct sample s;
	bool ok;

	arena_init(&a, 512);
	ok = conn_tls_field(w->client.c, TLS_SERVER_CERT + CERT_DER, &a, &s) == 0 &&
	     str_is_eq(s.str, str_make((char *)der, (size_t)len));
	arena_free(&a);
	OPENSSL_free(der);
	return ok;
}

static void test_versions(void **state)
{
	const uint16_t versions[] = { TLS1_2_VERSION, TLS1_3_VERSION };

	for (size_t i = 0; i < 2; i++) {
		struct world w;

		world_init(&w);
		crt(&w, "a.pem");
		w.srv.tls.max_version = versions[i];
		w.srv.tls.min_version = versions[i];
		world_start(&w);
		connect_ok(&w, "a.test");
		assert_true(field_is(w.server.c, TLS_VERSION, i ? "TLSv1.3" : "TLSv1.2"));
		assert_true(field_is(w.server.c, TLS_SNI, "a.test"));
		assert_true(str_is_eq(conn_sni(w.client.c), STR("a.test")));
		assert_true(field_is(w.server.c, TLS_IS_RESUMED, "0"));
		assert_true(field_is(w.server.c, TLS_CLIENT_CERT_USED, "0"));
		assert_true(got_cert(&w, &ec_a));
		exchange(&w);
		exchange(&w);
		hang_up(&w);
		/* The second handshake resumes. */
		connect_ok(&w, "a.test");
		assert_true(field_is(w.server.c, TLS_IS_RESUMED, "1"));
		assert_true(field_is(w.client.c, TLS_IS_RESUMED, "1"));
		assert_true(field_is(w.server.c, TLS_SNI, "a.test"));
		exchange(&w);
		hang_up(&w);
		/* Not for another name. */
		connect_ok(&w, "www.a.test");
		assert_true(field_is(w.server.c, TLS_IS_RESUMED, "0"));
		exchange(&w);
		hang_up(&w);
		world_fini(&w);
	}
}

/* no-ssl-reuse */
static void test_full_handshakes(void **state)
{
	struct world w;

	world_init(&w);
	crt(&w, "a.pem");
	w.srv.has_full_handshakes = true;
	world_start(&w);
	for (int i = 0; i < 3; i++) {
		connect_ok(&w, "a.test");
		exchange(&w);
		assert_true(field_is(w.server.c, TLS_IS_RESUMED, "0"));
		hang_up(&w);
	}
	world_fini(&w);
}

/* Without tickets TLS 1.2 resumes by session id. */
static void test_session_cache(void **state)
{
	struct world w;

	world_init(&w);
	crt(&w, "a.pem");
	w.bind.tls.no_tickets = true;
	w.srv.tls.max_version = TLS1_2_VERSION;
	world_start(&w);
	for (int i = 0; i < 2; i++) {
		connect_ok(&w, "a.test");
		assert_true(field_is(w.server.c, TLS_IS_RESUMED, i ? "1" : "0"));
		exchange(&w);
		hang_up(&w);
	}
	world_fini(&w);
}

static void test_names(void **state)
{
	struct world w;

	world_init(&w);
	crt(&w, "a.pem");
	crt(&w, "b.pem");
	crt(&w, "w.pem");
	world_start(&w);
	connect_ok(&w, "B.Test");
	assert_true(got_cert(&w, &ec_b));
	hang_up(&w);
	connect_ok(&w, "x.w.test");
	assert_true(got_cert(&w, &wild));
	hang_up(&w);
	/* An address is checked as address; no SNI is sent: the default. */
	connect_ok(&w, "127.0.0.1");
	assert_true(got_cert(&w, &ec_a));
	assert_int_equal(conn_sni(w.server.c).len, 0);
	hang_up(&w);
	/* Two labels below the wildcard, and an unknown name: the default, which the client refuses. */
	dial(&w, "x.y.w.test");
	assert_int_equal(w.client.c->error, CONN_ERR_TLS_VERIFY);
	hang_up(&w);
	dial(&w, "nobody.test");
	assert_int_equal(w.client.c->error, CONN_ERR_TLS_VERIFY);
	assert_true(w.server.result < 0);
	hang_up(&w);
	world_fini(&w);
}

static void test_strict_sni(void **state)
{
	struct world w;

	world_init(&w);
	crt(&w, "a.pem");
	w.bind.tls.strict_sni = true;
	world_start(&w);
	connect_ok(&w, "a.test");
	hang_up(&w);
	dial(&w, "nobody.test");
	assert_int_equal(w.server.c->error, CONN_ERR_TLS_NO_CERT);
	assert_int_equal(w.client.c->error, CONN_ERR_TLS_NO_CERT);
	hang_up(&w);
	world_fini(&w);
}

/* RSA and ECDSA under one name: whatever the client can. */
static void test_two_key_types(void **state)
{
	static const struct {
		const char *ciphers;
		const struct made *cert;
	} cases[] = { { "ECDHE-RSA-AES128-GCM-SHA256", &rsa_a },
		      { "ECDHE-ECDSA-AES128-GCM-SHA256", &ec_a } };

	for (size_t i = 0; i < 2; i++) {
		struct world w;

		world_init(&w);
		crt(&w, "b.pem");
		crt(&w, "a.pem");
		crt(&w, "a-rsa.pem");
		w.srv.tls.max_version = TLS1_2_VERSION;
		w.srv.tls.ciphers = (char *)(uintptr_t)cases[i].ciphers;
		world_start(&w);
		connect_ok(&w, "a.test");
		assert_true(got_cert(&w, cases[i].cert));
		assert_true(field_is(w.server.c, TLS_CIPHER, cases[i].ciphers));
		hang_up(&w);
		/* b has only ECDSA: the default's or a's RSA certificate must not step in. */
		if (i == 0) {
			dial(&w, "b.test");
			assert_int_equal(w.client.result < 0, 1);
			hang_up(&w);
		}
		world_fini(&w);
	}
}

static void test_alpn(void **state)
{
	struct world w;

	world_init(&w);
	crt(&w, "a.pem");
	w.srv.tls.alpn = (char *)"\x02h2\x08http/1.1";
	w.srv.tls.alpn_len = 12;
	world_start(&w);
	connect_ok(&w, "a.test");
	assert_true(str_is_eq(conn_alpn(w.server.c), STR("http/1.1")));
	assert_true(str_is_eq(conn_alpn(w.client.c), STR("http/1.1")));
	assert_true(field_is(w.server.c, TLS_ALPN, "http/1.1"));
	hang_up(&w);
	world_fini(&w);
	/* Nothing in common. */
	world_init(&w);
	crt(&w, "a.pem");
	w.srv.tls.alpn = (char *)"\x02h2";
	w.srv.tls.alpn_len = 3;
	world_start(&w);
	dial(&w, "a.test");
	assert_int_equal(w.server.c->error, CONN_ERR_TLS_ALPN);
	assert_int_equal(w.client.c->error, CONN_ERR_TLS_ALPN);
	hang_up(&w);
	world_fini(&w);
}

static void test_client_certificate(void **state)
{
	struct world w;
	struct arena a;
	struct sample s;
	int64_t us;

	world_init(&w);
	crt(&w, "a.pem");
	w.bind.tls.verify = CONF_VERIFY_REQUIRED;
	w.bind.tls.ca_file = w.srv.tls.ca_file;
	w.srv.crt = strdup(in_dir(&dir, "client.pem"));
	world_start(&w);
	for (int i = 0; i < 2; i++) {
		connect_ok(&w, "a.test");
		assert_true(field_is(w.server.c, TLS_CLIENT_CERT + CERT_S_DN, "/CN=joe"));
		assert_true(field_is(w.server.c, TLS_CLIENT_CERT + CERT_I_DN, "/CN=Test CA"));
		assert_true(field_is(w.server.c, TLS_CLIENT_CERT_USED, "1"));
		assert_true(field_is(w.server.c, TLS_HAS_CLIENT_CERT, i ? "0" : "1"));
		assert_true(field_is(w.server.c, TLS_VERIFY_RESULT, "0"));
		arena_init(&a, 512);
		assert_int_equal(conn_tls_field(w.server.c, TLS_CLIENT_CERT + CERT_SHA1, &a, &s),
				 0);
		assert_int_equal(s.str.len, 20);
		assert_int_equal(
			conn_tls_field(w.server.c, TLS_CLIENT_CERT + CERT_NOTAFTER, &a, &s), 0);
		assert_int_equal(s.str.len, 13);
		assert_int_equal(conn_tls_field(w.server.c, TLS_CLIENT_CERT + CERT_DER, &a, &s), 0);
		assert_int_equal(conn_tls_field(w.server.c, TLS_CLIENT_CERT + CERT_SERIAL, &a, &s),
				 0);
		assert_true(field_is(w.server.c, TLS_CLIENT_CERT + CERT_VERSION, "3"));
		assert_true(field_is(w.server.c, TLS_CLIENT_CERT + CERT_KEY_ALG, "id-ecPublicKey"));
		assert_true(
			field_is(w.server.c, TLS_CLIENT_CERT + CERT_SIG_ALG, "ecdsa-with-SHA256"));
		assert_true(field_is(w.server.c, TLS_SERVER_CERT + CERT_S_DN, "/CN=a.test"));
		assert_true(field_is(w.client.c, TLS_SERVER_CERT + CERT_SAN,
				     "DNS:a.test, DNS:www.a.test, IP Address:127.0.0.1"));
		assert_int_equal(conn_tls_field(w.server.c, TLS_CLIENT_CERT + CERT_SAN, &a, &s),
				 -ENOENT);
		assert_int_equal(
			conn_tls_field(w.server.c, TLS_SERVER_CERT + CERT_CHAIN_DER, &a, &s),
			-ENOENT);
		if (i == 0) {
			size_t one;

			assert_int_equal(
				conn_tls_field(w.client.c, TLS_SERVER_CERT + CERT_DER, &a, &s), 0);
			one = s.str.len;
			assert_int_equal(conn_tls_field(w.client.c,
							TLS_SERVER_CERT + CERT_CHAIN_DER, &a, &s),
					 0);
			assert_true(s.str.len > one); /* with the CA's, which a.pem has */
		}
		assert_int_equal(conn_tcp_fact(w.server.c, TCP_RTT, &us), 0);
		assert_true(us > 0);
		assert_true(field_is(w.client.c, TLS_CLIENT_CERT + CERT_S_DN, "/CN=joe"));
		assert_int_equal(conn_tls_field(w.server.c, TLS_ERROR_TEXT, &a, &s), -ENOENT);
		arena_free(&a);
		exchange(&w);
		hang_up(&w);
	}
	free(w.srv.crt);
	world_fini(&w);
	/* Without one. */
	world_init(&w);
	crt(&w, "a.pem");
	w.bind.tls.verify = CONF_VERIFY_REQUIRED;
	w.bind.tls.ca_file = w.srv.tls.ca_file;
	w.srv.tls.max_version = TLS1_2_VERSION;
	world_start(&w);
	dial(&w, "a.test");
	assert_int_equal(w.server.c->error, CONN_ERR_TLS_VERIFY);
	hang_up(&w);
	world_fini(&w);
}

/* More than the socket takes: bytes arrive once, in order, and "taken" means that they left. */
/* `record_max`: tune.ssl.maxrecord. */
static void backpressure(uint32_t record_max)
{
	static char out[150000], in[70000];
	struct world w;
	size_t sent = 0, got = 0;
	unsigned seed = 1, blocked = 0;

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (char)(i * 7 + (i >> 9));
	world_init(&w);
	w.g.ssl_maxrecord = record_max;
	crt(&w, "a.pem");
	world_start(&w);
	connect_ok(&w, "a.test");
	setsockopt(w.server.c->ev.fd, SOL_SOCKET, SO_SNDBUF, &(int){ 16384 }, sizeof(int));
	setsockopt(w.client.c->ev.fd, SOL_SOCKET, SO_RCVBUF, &(int){ 16384 }, sizeof(int));
	while (got < sizeof(out)) {
		ssize_t n;

		/* Other pieces at every attempt, as a buffer that moves would give them. */
		for (int tries = 0; sent < sizeof(out) && tries < 4; tries++) {
			size_t left = sizeof(out) - sent, first = (size_t)rand_r(&seed) % 3000 + 1;
			struct iovec iov[3];

			first = first < left ? first : left;
			iov[0] = (struct iovec){ out + sent, first };
			iov[1] = (struct iovec){ out + sent + first, (left - first) / 2 };
			iov[2] = (struct iovec){ out + sent + first + (left - first) / 2,
						 left - first - (left - first) / 2 };
			n = conn_sendv(w.server.c, iov, 3, false);
			if (n == -EAGAIN) {
				blocked++;
				break;
			}
			assert_true(n > 0);
			sent += (size_t)n;
		}
		spin(&w.b, 1);
		n = conn_recv(w.client.c, in, (size_t)rand_r(&seed) % sizeof(in) + 1);
		if (n == -EAGAIN)
			continue;
		assert_true(n > 0);
		assert_memory_equal(in, out + got, (size_t)n);
		got += (size_t)n;
		assert_true(got <= sizeof(out));
	}
	/* A byte per record: too slow to fill anything. */
	assert_true(blocked > 0 || record_max == 1);
	/* The last bytes may be reported only now. */
	for (int i = 0; i < 50 && sent < sizeof(out); i++) {
		struct iovec iov = { out + sent, sizeof(out) - sent };
		ssize_t n = conn_sendv(w.server.c, &iov, 1, false);

		sent += n > 0 ? (size_t)n : 0;
		spin(&w.b, 1);
	}
	assert_int_equal(sent, sizeof(out));
	assert_int_equal(conn_recv(w.client.c, in, sizeof(in)), -EAGAIN);
	hang_up(&w);
	world_fini(&w);
}

static void test_backpressure(void **state)
{
	backpressure(0);
	backpressure(600);
	backpressure(1);
}

/* Ciphertext that one write of `n` bytes makes beyond them. */
static uint64_t overhead(struct world *w, size_t n)
{
	static char data[40000];
	const struct tls *t = w->server.c->tls;
	uint64_t before = t->n_out;
	/* In two pieces: they are put together. */
	struct iovec iov[] = { { data, n / 3 }, { data, n - n / 3 } };

	assert_int_equal(conn_sendv(w->server.c, iov, 2, false), n);
	assert_int_equal(t->n_out, t->n_sent);
	return t->n_out - before - n;
}

/* TLS 1.3: 5 bytes of head, the type and 16 of authentication for each record (RFC 8446 5.2). */
static void test_record_size(void **state)
{
	static const struct {
		uint32_t max;
		size_t n;
		unsigned records;
	} cases[] = { { 0, 16384, 1 },	 { 0, 16385, 2 },   { 0, 40000, 3 },
		      { 1000, 1000, 1 }, { 1000, 2001, 3 }, { 1400, 14000, 10 } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct world w;

		world_init(&w);
		w.g.ssl_maxrecord = cases[i].max;
		crt(&w, "a.pem");
		world_start(&w);
		connect_ok(&w, "a.test");
		exchange(&w);
		assert_int_equal(overhead(&w, cases[i].n), cases[i].records * 22);
		hang_up(&w);
		world_fini(&w);
	}
}

static int on_sct(SSL *ssl, unsigned type, unsigned context, const unsigned char *in, size_t len,
		  X509 *x, size_t chain_index, int *alert, void *arg)
{
	char *got = arg;

	assert_true(len < 16);
	got[0] = (char)len;
	memcpy(got + 1, in, len);
	return 1;
}

/* Signed certificate timestamps, to clients that ask for them, in both versions of TLS. */
static void test_timestamps(void **state)
{
	static const uint16_t versions[] = { TLS1_2_VERSION, TLS1_3_VERSION };
	static const char list[] = { 0, 6, 0, 4, 'a', 'b', 'c', 'd' };
	FILE *f = fopen(in_dir(&dir, "a.pem.sctl"), "w");

	assert_int_equal(fwrite(list, 1, sizeof(list), f), sizeof(list));
	fclose(f);
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		struct world w;
		char got[16] = { 0 };

		world_init(&w);
		w.srv.tls.min_version = w.srv.tls.max_version = versions[i];
		crt(&w, "b.pem");
		crt(&w, "a.pem");
		world_start(&w);
		assert_int_equal(
			SSL_CTX_add_custom_ext(w.tc->ctx, TLSEXT_TYPE_signed_certificate_timestamp,
					       SSL_EXT_CLIENT_HELLO | SSL_EXT_TLS1_2_SERVER_HELLO |
						       SSL_EXT_TLS1_3_CERTIFICATE,
					       NULL, NULL, NULL, on_sct, got),
			1);
		connect_ok(&w, "b.test");
		hang_up(&w);
		assert_int_equal(got[0], 0);
		connect_ok(&w, "a.test");
		assert_int_equal(got[0], sizeof(list));
		assert_memory_equal(got + 1, list, sizeof(list));
		hang_up(&w);
		world_fini(&w);
	}
	unlink(in_dir(&dir, "a.pem.sctl"));
}

/* A server that asks for another handshake (TLS 1.2) gets it where the line says so, and data goes on after it. */
static void test_renegotiation(void **state)
{
	for (int is_allowed = 0; is_allowed < 2; is_allowed++) {
		struct world w;
		struct tls *t;
		char buf[64];

		world_init(&w);
		crt(&w, "a.pem");
		w.srv.tls.max_version = TLS1_2_VERSION;
		w.srv.tls.renegotiates = is_allowed;
		world_start(&w);
		connect_ok(&w, "a.test");
		exchange(&w);
		t = w.server.c->tls;
		SSL_clear_options(t->ssl, SSL_OP_NO_RENEGOTIATION);
		assert_int_equal(SSL_renegotiate(t->ssl), 1);
		assert_int_equal(SSL_do_handshake(t->ssl), 1); /* HelloRequest */
		assert_int_equal(tls_flush(t, false), 0);
		WAIT_FOR(&w.b, w.client.c->can_read);
		assert_int_equal(conn_recv(w.client.c, buf, sizeof(buf)), -EAGAIN);
		if (is_allowed) {
			struct iovec iov = { buf, 1 };
			struct tls *ct = w.client.c->tls;

			/* Meanwhile nothing is taken, nor lost. */
			assert_false(SSL_is_init_finished(ct->ssl));
			assert_int_equal(conn_sendv(w.client.c, &iov, 1, false), -EAGAIN);
			assert_false(w.client.c->can_write);
			for (int tries = 0; tries < 100 && !SSL_is_init_finished(ct->ssl);
			     tries++) {
				spin(&w.b, 1);
				assert_int_equal(conn_recv(w.server.c, buf, sizeof(buf)), -EAGAIN);
				spin(&w.b, 1);
				assert_int_equal(conn_recv(w.client.c, buf, sizeof(buf)), -EAGAIN);
			}
			assert_true(SSL_is_init_finished(ct->ssl));
			assert_true(w.client.c->can_write);
			assert_int_equal(SSL_total_renegotiations(ct->ssl), 1);
			exchange(&w);
		} else {
			spin(&w.b, 2);
			assert_int_equal(conn_recv(w.server.c, buf, sizeof(buf)), -EPROTO);
		}
		hang_up(&w);
		world_fini(&w);
	}
}

static void test_half_close(void **state)
{
	struct world w;
	char mem[16];
	struct iovec iov = { (char *)"late", 4 };

	world_init(&w);
	crt(&w, "a.pem");
	world_start(&w);
	connect_ok(&w, "a.test");
	exchange(&w);
	conn_shut_write(w.client.c);
	WAIT_FOR(&w.b, w.server.c->can_read);
	assert_int_equal(conn_recv(w.server.c, mem, sizeof(mem)), 0);
	assert_true(w.server.c->can_read);
	assert_int_equal(conn_recv(w.server.c, mem, sizeof(mem)), 0);
	assert_int_equal(conn_sendv(w.server.c, &iov, 1, false), 4);
	conn_close(w.server.c, false);
	WAIT_FOR(&w.b, w.client.c->peer_closed);
	assert_int_equal(conn_recv(w.client.c, mem, sizeof(mem)), 4);
	assert_int_equal(conn_recv(w.client.c, mem, sizeof(mem)), 0);
	conn_close(w.client.c, false);
	world_fini(&w);
}

/* A peer that just goes away, in both ways. */
static void test_abrupt_end(void **state)
{
	struct world w;
	char mem[16];

	for (int reset = 0; reset < 2; reset++) {
		world_init(&w);
		crt(&w, "a.pem");
		world_start(&w);
		connect_ok(&w, "a.test");
		exchange(&w);
		if (reset)
			conn_close(w.client.c, true);
		else
			shutdown(w.client.c->ev.fd, SHUT_RDWR);
		WAIT_FOR(&w.b, w.server.c->peer_closed || w.server.c->is_broken);
		assert_int_equal(conn_recv(w.server.c, mem, sizeof(mem)), reset ? -ECONNRESET : 0);
		if (reset)
			assert_int_equal(conn_recv(w.server.c, mem, sizeof(mem)), -ECONNRESET);
		else
			conn_close(w.client.c, false);
		conn_close(w.server.c, false);
		world_fini(&w);
	}
}

/* Bytes that are no TLS; an end in the middle; silence is not an error. */
static void test_no_tls(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		enum conn_error error;
	} cases[] = {
		{ "GET / HTTP/1.1\r\n\r\n", 18, CONN_ERR_TLS_PROTOCOL },
		{ "\x16\x03\x01\x00\x50\x01\x00", 7, CONN_ERR_TLS_CLOSED },
		{ "", 0, CONN_ERR_TLS_CLOSED },
		{ "\x16\x03\x01\xff\xff\x01\x00\x00\x00\x00\x00\x00", 12, CONN_ERR_TLS_PROTOCOL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct world w;
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		world_init(&w);
		crt(&w, "a.pem");
		world_start(&w);
		assert_int_equal(connect(fd, &w.to.sa, sizeof(w.to.in)), 0);
		send(fd, cases[i].bytes, cases[i].len, 0);
		WAIT_FOR(&w.b, w.server.c);
		spin(&w.b, 2);
		shutdown(fd, SHUT_WR);
		WAIT_FOR(&w.b, w.server.result != -EAGAIN);
		if (w.server.c->error != cases[i].error)
			fail_msg("case %zu: %s", i, conn_error_text(w.server.c->error));
		conn_close(w.server.c, false);
		close(fd);
		world_fini(&w);
	}
}

/* What a hostile client offers: kept as far as there is room, and no further than its message goes. */
#define HELLO_HEAD 9 /* record, handshake */
static const char hello_bytes[] = "\x16\x03\x01\x00\x51\x01\x00\x00\x4d"
				  "\x03\x03"
				  "0123456789abcdef0123456789abcdef"
				  "\x00"
				  "\x00\x06\x2a\x2a\x13\x01\xc0\x2b"
				  "\x01\x00"
				  "\x00\x1e"
				  "\x0a\x0a\x00\x00"
				  "\x00\x0a\x00\x08\x00\x06\x1a\x1a\x00\x1d\x00\x17"
				  "\x00\x0b\x00\x02\x01\x00"
				  "\x00\x17\x00\x00"
				  "\x00\x23\x00\x00";

static bool has_part(const struct conn *c, enum subject_tls_field f, const char *bytes, size_t n)
{
	struct arena a;
	struct sample s;
	bool ok;

	arena_init(&a, 256);
	ok = conn_tls_field(c, f, &a, &s) == 0 && str_is_eq(s.str, str_make(bytes, n));
	arena_free(&a);
	return ok;
}

static void offer(struct world *w, uint32_t room, const char *bytes, size_t len)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	world_init(w);
	w->g.ssl_capture_size = room;
	crt(w, "a.pem");
	world_start(w);
	assert_int_equal(connect(fd, &w->to.sa, sizeof(w->to.in)), 0);
	assert_int_equal(send(fd, bytes, len, 0), len);
	WAIT_FOR(&w->b, w->server.c);
	spin(&w->b, 2);
	close(fd);
}

static void test_captured_hello(void **state)
{
	static const struct {
		uint32_t room;
		size_t n_ciphers, n_exts, n_groups, n_formats;
	} cases[] = { { 100, 6, 10, 6, 1 },
		      { 22, 6, 10, 6, 0 },
		      { 17, 6, 10, 0, 1 },
		      { 8, 6, 2, 0, 0 },
		      { 5, 4, 0, 0, 1 } };
	size_t len = sizeof(hello_bytes) - 1;
	struct world w;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct conn *c;

		offer(&w, cases[i].room, hello_bytes, len);
		c = w.server.c;
		assert_true(has_part(c, TLS_HELLO_CIPHERS, "\x2a\x2a\x13\x01\xc0\x2b",
				     cases[i].n_ciphers));
		assert_true(has_part(c, TLS_HELLO_EXTENSIONS,
				     "\x0a\x0a\x00\x0a\x00\x0b\x00\x17\x00\x23", cases[i].n_exts));
		assert_true(has_part(c, TLS_HELLO_GROUPS, "\x1a\x1a\x00\x1d\x00\x17",
				     cases[i].n_groups));
		assert_true(has_part(c, TLS_HELLO_FORMATS, "\x00", cases[i].n_formats));
		conn_close(c, false);
		world_fini(&w);
	}
	offer(&w, 100, hello_bytes, len);
	assert_true(has_part(w.server.c, TLS_HELLO_CIPHER_NAMES,
			     "UNKNOWN(2a2a),TLS_AES_128_GCM_SHA256,ECDHE-ECDSA-AES128-GCM-SHA256",
			     66));
	assert_true(has_part(w.server.c, TLS_HELLO_CIPHER_NAMES_PLAIN,
			     "TLS_AES_128_GCM_SHA256,ECDHE-ECDSA-AES128-GCM-SHA256", 52));
	conn_close(w.server.c, false);
	world_fini(&w);
}

/* Cut off everywhere. */
static void test_captured_hello_cut(void **state)
{
	for (size_t n = HELLO_HEAD; n < sizeof(hello_bytes) - 1; n++) {
		char cut[sizeof(hello_bytes)];
		struct world w;

		memcpy(cut, hello_bytes, n);
		cut[4] = (char)(n - 5);
		cut[8] = (char)(n - HELLO_HEAD);
		offer(&w, 100, cut, n);
		/* Whole up to the extensions: kept. */
		assert_true(has_part(w.server.c, TLS_HELLO_CIPHERS, "\x2a\x2a\x13\x01\xc0\x2b",
				     6) == (n >= HELLO_HEAD + 2 + 32 + 1 + 8 + 2));
		conn_close(w.server.c, false);
		world_fini(&w);
	}
}

/* PROXY header first, then TLS, in one segment or apart. */
static void test_proxy_then_tls(void **state)
{
	struct world w;
	struct dial_opts o;

	world_init(&w);
	crt(&w, "a.pem");
	w.bind.accept_proxy = true;
	world_start(&w);
	o = (struct dial_opts){ .to = &w.to,
				.tls = w.tc,
				.sni = STR("a.test"),
				.proxy_header = STR("PROXY TCP4 192.0.2.1 192.0.2.2 5 6\r\n") };
	w.client.result = -EAGAIN;
	w.server.result = -EAGAIN;
	assert_int_equal(conn_dial(&w.b.nw, &o, &w.client.c), 0);
	w.client.c->owner = &w.client;
	w.client.c->on_event = end_event;
	WAIT_FOR(&w.b, w.client.result != -EAGAIN && w.server.result != -EAGAIN);
	assert_int_equal(w.server.result, 0);
	assert_int_equal(addr_port(&w.server.c->peer), 5);
	exchange(&w);
	hang_up(&w);
	world_fini(&w);
}

/* A client that speaks last in the handshake and then waits must not leave the server waiting too. */
static void test_server_speaks_first(void **state)
{
	struct world w;
	struct iovec iov = { (char *)"220 ready", 9 };
	char mem[32];

	for (int i = 0; i < 2; i++) {
		world_init(&w);
		crt(&w, "a.pem");
		w.srv.tls.max_version = i ? TLS1_2_VERSION : TLS1_3_VERSION;
		world_start(&w);
		for (int k = 0; k < 2; k++) {
			connect_ok(&w, "a.test");
			assert_int_equal(conn_sendv(w.server.c, &iov, 1, false), 9);
			for (int n = 0; n < 100 && conn_recv(w.client.c, mem, sizeof(mem)) != 9;
			     n++)
				spin(&w.b, 1);
			assert_memory_equal(mem, "220 ready", 9);
			hang_up(&w);
		}
		world_fini(&w);
	}
}

/* Options of one crt-list entry: its own client verification, versions and ALPN, and no way round by a ticket. */
static void test_crt_list_options(void **state)
{
	char *list = strdup(in_dir(&dir, "list")), text[512];
	struct world w;

	snprintf(text, sizeof(text),
		 "%s/b.pem\n%s/a.pem [verify required ca-file %s/ca.pem alpn x ssl-max-ver "
		 "TLSv1.2]\n",
		 dir.path, dir.path, dir.path);
	write_text(list, text);
	world_init(&w);
	w.bind.crt_list = list;
	w.srv.tls.alpn = (char *)"\x01x\x08http/1.1";
	w.srv.tls.alpn_len = 11;
	world_start(&w);
	connect_ok(&w, "b.test");
	assert_true(field_is(w.server.c, TLS_ALPN, "http/1.1"));
	assert_true(field_is(w.server.c, TLS_VERSION, "TLSv1.3"));
	exchange(&w);
	hang_up(&w);
	dial(&w, "a.test");
	assert_int_equal(w.server.c->error, CONN_ERR_TLS_VERIFY);
	hang_up(&w);
	connect_ok(&w, "b.test");
	assert_true(field_is(w.server.c, TLS_IS_RESUMED, "1"));
	hang_up(&w);
	world_fini(&w);
	world_init(&w);
	w.bind.crt_list = list;
	w.srv.crt = strdup(in_dir(&dir, "client.pem"));
	w.srv.tls.alpn = (char *)"\x01x\x08http/1.1";
	w.srv.tls.alpn_len = 11;
	world_start(&w);
	for (int i = 0; i < 2; i++) {
		connect_ok(&w, "a.test");
		assert_true(field_is(w.server.c, TLS_ALPN, "x"));
		assert_true(field_is(w.server.c, TLS_VERSION, "TLSv1.2"));
		assert_true(field_is(w.server.c, TLS_CLIENT_CERT_USED, "1"));
		assert_true(field_is(w.server.c, TLS_IS_RESUMED, i ? "1" : "0"));
		assert_true(got_cert(&w, &ec_a));
		exchange(&w);
		hang_up(&w);
	}
	free(w.srv.crt);
	world_fini(&w);
	free(list);
}

/* Sends as soon as the connection is open, as the proxy does: the request leaves with the client's Finished. */
static void send_at_once(struct conn *c)
{
	struct end *e = c->owner;
	struct iovec iov = { (char *)"ping", 4 };

	if (e->result != -EAGAIN)
		return;
	e->result = conn_advance(c);
	if (e->result == 0)
		assert_int_equal(conn_sendv(c, &iov, 1, false), 4);
}

static void test_request_with_finished(void **state)
{
	struct dial_opts o;
	struct world w;
	struct tls *t;

	world_init(&w);
	crt(&w, "a.pem");
	world_start(&w);
	for (int i = 0; i < 2; i++) {
		struct iovec iov = { (char *)"pong", 4 };
		char mem[16];

		o = (struct dial_opts){ .to = &w.to, .tls = w.tc, .sni = STR("a.test") };
		w.client = (struct end){ .result = -EAGAIN };
		w.server = (struct end){ .result = -EAGAIN };
		assert_int_equal(conn_dial(&w.b.nw, &o, &w.client.c), 0);
		w.client.c->owner = &w.client;
		w.client.c->on_event = send_at_once;
		WAIT_FOR(&w.b, w.client.result == 0 && w.server.result == 0);
		/* Both were in one segment, so the tickets wait for the answer. */
		t = w.server.c->tls;
		assert_true(t->is_held);
		assert_true(w.server.c->can_read);
		assert_int_equal(conn_recv(w.server.c, mem, sizeof(mem)), 4);
		assert_true(t->is_held);
		assert_int_equal(conn_sendv(w.server.c, &iov, 1, false), 4);
		assert_false(t->is_held);
		assert_int_equal(t->n_out, t->n_sent);
		WAIT_FOR(&w.b, w.client.c->can_read);
		assert_int_equal(conn_recv(w.client.c, mem, sizeof(mem)), 4);
		assert_true(field_is(w.client.c, TLS_IS_RESUMED, i ? "1" : "0"));
		hang_up(&w);
	}
	world_fini(&w);
}

static void test_idle_and_reuse(void **state)
{
	struct world w;

	world_init(&w);
	crt(&w, "a.pem");
	world_start(&w);
	connect_ok(&w, "a.test");
	exchange(&w);
	conn_idle(w.client.c);
	conn_idle(w.server.c);
	spin(&w.b, 2);
	/* Tickets that came with the answer are no surprise. */
	assert_true(conn_is_reusable(w.client.c));
	exchange(&w);
	conn_close(w.server.c, false);
	WAIT_FOR(&w.b, w.client.c->can_read);
	assert_false(conn_is_reusable(w.client.c));
	conn_close(w.client.c, false);
	world_fini(&w);
}

/* Connections outlive the store of their snapshot. */
static void test_store_goes_first(void **state)
{
	struct world w;

	world_init(&w);
	crt(&w, "a.pem");
	world_start(&w);
	connect_ok(&w, "a.test");
	cert_store_free(w.store);
	w.store = NULL;
	exchange(&w);
	hang_up(&w);
	world_fini(&w);
}

/*
 * Workers share contexts, certificates and ticket keys, and nothing else: two threads, each with its loop,
 * listening socket and connections, on one tls_server and tls_client. No cmocka in the threads.
 */
struct shared {
	struct tls_server *ts;
	struct tls_client *tc;
	struct listen_socket *ls;
	const struct conf_bind *bind;
	struct addr to;
	unsigned index, n_ok, n_resumed;
	struct end server;
	pthread_t thread;
};

static void shared_accept(struct listener *l, struct conn *c)
{
	struct shared *s = l->owner;

	conn_close(s->server.c, true);
	s->server = (struct end){ .c = c, .result = -EAGAIN };
	c->owner = &s->server;
	c->on_event = end_event;
	end_event(c);
}

static bool shared_round(struct shared *s, struct net_worker *nw)
{
	struct dial_opts o = { .to = &s->to, .tls = s->tc, .sni = STR("b.test") };
	struct end e = { .result = -EAGAIN };
	struct iovec iov = { (char *)"pong", 4 };
	char mem[8];
	bool ok = false;

	s->server.result = -EAGAIN;
	if (conn_dial(nw, &o, &e.c))
		return false;
	e.c->owner = &e;
	e.c->on_event = end_event;
	for (int i = 0; i < 1000 && (e.result == -EAGAIN || s->server.result == -EAGAIN); i++) {
		if (loop_run_once(nw->loop, 5))
			break;
	}
	if (e.result == 0 && s->server.result == 0 &&
	    conn_sendv(s->server.c, &iov, 1, false) == 4) {
		for (int i = 0; i < 1000 && !ok; i++)
			ok = loop_run_once(nw->loop, 5) == 0 &&
			     conn_recv(e.c, mem, sizeof(mem)) == 4;
		s->n_resumed += field_is(e.c, TLS_IS_RESUMED, "1");
	}
	conn_close(e.c, false);
	return ok;
}

static void *shared_run(void *arg)
{
	struct shared *s = arg;
	struct tls_server *_Atomic ts = s->ts;
	struct net_worker nw;
	struct loop *loop;
	struct listener l = {
		.nw = &nw, .bind = s->bind, .owner = s, .on_accept = shared_accept, .tls = &ts
	};

	if (loop_create(&loop))
		return NULL;
	net_worker_init(&nw, loop, s->index);
	if (listener_start(&l, s->ls->fds[0]) == 0) {
		for (int i = 0; i < 20; i++)
			s->n_ok += shared_round(s, &nw);
	}
	conn_close(s->server.c, false);
	listener_stop(&l);
	net_worker_fini(&nw);
	loop_destroy(loop);
	return NULL;
}

static void test_two_workers(void **state)
{
	struct conf_bind binds[2];
	struct shared s[2] = { 0 };
	struct world w;
	struct err err;

	world_init(&w);
	crt(&w, "a.pem");
	crt(&w, "b.pem");
	world_start(&w);
	for (unsigned i = 0; i < 2; i++) {
		binds[i] = bind_line(free_port());
		s[i] = (struct shared){ .ts = w.ts,
					.tc = w.tc,
					.bind = &binds[i],
					.to = binds[i].ep.addr,
					.index = i };
		assert_int_equal(listen_open(&binds[i], 1, NULL, &s[i].ls, &err), 0);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&s[i].thread, NULL, shared_run, &s[i]), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_join(s[i].thread, NULL), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(s[i].n_ok, 20);
		assert_int_equal(s[i].n_resumed, 19);
		listen_close(s[i].ls);
	}
	world_fini(&w);
}

/* Every allocation from dial to open fails once: an error, no crash, nothing left. */
static void test_no_memory(void **state)
{
	struct world w;
	int failures = 0;

	world_init(&w);
	crt(&w, "a.pem");
	world_start(&w);
	for (uint64_t n = 1; n < 40; n++) {
		struct dial_opts o = { .to = &w.to, .tls = w.tc, .sni = STR("a.test") };
		bool has_failed;
		int r;

		/* The worker's buffers are made anew each time, so that their failure is met too. */
		net_worker_fini(&w.b.nw);
		net_worker_init(&w.b.nw, w.b.loop, 0);
		w.client = (struct end){ .result = -EAGAIN };
		w.server = (struct end){ .result = -EAGAIN };
		mem_fail_at(n);
		r = conn_dial(&w.b.nw, &o, &w.client.c);
		if (r == 0) {
			w.client.c->owner = &w.client;
			w.client.c->on_event = end_event;
		}
		for (int i = 0; r == 0 && i < 40; i++) {
			assert_int_equal(loop_run_once(w.b.loop, 5), 0);
			if (w.client.result == 0 && w.server.result == 0)
				break;
		}
		has_failed = mem_alloc_count() >= n;
		mem_fail_at(0);
		failures += r || w.client.result || w.server.result;
		if (r == 0)
			conn_close(w.client.c, true);
		/* What was left in the backlog after a failed accept. */
		for (int i = 0; i < 2 && !w.server.c && r == 0; i++)
			spin(&w.b, 10);
		conn_close(w.server.c, true);
		w.server.c = NULL;
		if (!has_failed)
			break;
	}
	assert_true(failures > 3);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_full_handshakes),
		cmocka_unit_test(test_session_cache),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_strict_sni),
		cmocka_unit_test(test_two_key_types),
		cmocka_unit_test(test_alpn),
		cmocka_unit_test(test_client_certificate),
		cmocka_unit_test(test_record_size),
		cmocka_unit_test(test_timestamps),
		cmocka_unit_test(test_captured_hello),
		cmocka_unit_test(test_captured_hello_cut),
		cmocka_unit_test(test_renegotiation),
		cmocka_unit_test(test_backpressure),
		cmocka_unit_test(test_half_close),
		cmocka_unit_test(test_abrupt_end),
		cmocka_unit_test(test_no_tls),
		cmocka_unit_test(test_proxy_then_tls),
		cmocka_unit_test(test_server_speaks_first),
		cmocka_unit_test(test_crt_list_options),
		cmocka_unit_test(test_request_with_finished),
		cmocka_unit_test(test_idle_and_reuse),
		cmocka_unit_test(test_store_goes_first),
		cmocka_unit_test(test_two_workers),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}
