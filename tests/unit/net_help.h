/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of net/ share: a worker with its loop, waiting for a condition, certificates made on the spot. */
#ifndef UNIT_NET_HELP_H
#define UNIT_NET_HELP_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "net/net.h"

struct bench {
	struct loop *loop;
	struct net_worker nw;
};

static inline void bench_init(struct bench *b)
{
	assert_int_equal(loop_create(&b->loop), 0);
	net_worker_init(&b->nw, b->loop, 0);
}

static inline void bench_fini(struct bench *b)
{
	assert_int_equal(b->nw.n_open, 0);
	net_worker_fini(&b->nw);
	loop_destroy(b->loop);
}

/* Runs the loop until `cond`, at most ten seconds. */
#define WAIT_FOR(b, cond)                                                  \
	do {                                                               \
		uint64_t until_ = loop_now((b)->loop) + 10000000000ull;    \
                                                                           \
		while (!(cond) && loop_now((b)->loop) < until_)            \
			assert_int_equal(loop_run_once((b)->loop, 10), 0); \
		assert_true(cond);                                         \
	} while (0)

static inline void spin(struct bench *b, int n)
{
	for (int i = 0; i < n; i++)
		assert_int_equal(loop_run_once(b->loop, 1), 0);
}

static inline struct addr loopback(uint16_t port)
{
	struct addr a;

	memset(&a, 0, sizeof(a));
	a.in.sin_family = AF_INET;
	a.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	a.in.sin_port = htons(port);
	return a;
}

/* A port that nobody listens on just now. */
static inline uint16_t free_port(void)
{
	struct addr a = loopback(0);
	socklen_t len = sizeof(a.in);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, &a.sa, sizeof(a.in)), 0);
	assert_int_equal(getsockname(fd, &a.sa, &len), 0);
	close(fd);
	return ntohs(a.in.sin_port);
}

/* A bind line as the configuration would give it. */
static inline struct conf_bind bind_line(uint16_t port)
{
	struct conf_bind b;

	memset(&b, 0, sizeof(b));
	b.ep.kind = ENDPOINT_IP;
	b.ep.addr = loopback(port);
	b.ep.has_port = true;
	b.ep.port = b.ep.port_last = port;
	b.ep.fd = -1;
	b.text = (char *)"127.0.0.1:test";
	b.mode = b.uid = b.gid = -1;
	return b;
}

/* --- certificates --- */

enum key_kind {
	KEY_EC,
	KEY_RSA
};

struct made {
	X509 *x;
	EVP_PKEY *key;
};

static inline void made_free(struct made *m)
{
	X509_free(m->x);
	EVP_PKEY_free(m->key);
}

static inline void add_ext(X509 *x, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *e;

	X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
	e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	assert_non_null(e);
	X509_add_ext(x, e, -1);
	X509_EXTENSION_free(e);
}

/* `san`: "DNS:a,DNS:b" or NULL; `ca` NULL: self-signed, a CA itself. days < 0: expired. */
static inline struct made make_cert(enum key_kind kind, const char *cn, const char *san,
				    const struct made *ca, int days)
{
	static long serial = 1;
	struct made m = { X509_new(), kind == KEY_EC ? EVP_EC_gen("P-256") : EVP_RSA_gen(2048) };
	X509_NAME *name = X509_get_subject_name(m.x);
	const struct made *issuer = ca ? ca : &m;

	assert_non_null(m.key);
	X509_set_version(m.x, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(m.x), serial++);
	X509_gmtime_adj(X509_getm_notBefore(m.x), days < 0 ? -86400L * 10 : -3600);
	X509_gmtime_adj(X509_getm_notAfter(m.x), 86400L * days);
	X509_set_pubkey(m.x, m.key);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)cn, -1, -1, 0);
	X509_set_issuer_name(m.x, X509_get_subject_name(issuer->x));
	add_ext(m.x, issuer->x, NID_basic_constraints, ca ? "CA:FALSE" : "critical,CA:TRUE");
	if (san)
		add_ext(m.x, issuer->x, NID_subject_alt_name, san);
	assert_true(X509_sign(m.x, issuer->key, EVP_sha256()) > 0);
	return m;
}

/* What to write: certificate, key, further certificates. */
static inline void write_pem(const char *path, X509 *x, EVP_PKEY *key, X509 *chain)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	if (x)
		PEM_write_X509(f, x);
	if (key)
		PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL);
	if (chain)
		PEM_write_X509(f, chain);
	fclose(f);
}

static inline void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

struct temp_dir {
	char path[64];
	char full[8][160];
	unsigned n;
};

static inline void temp_dir_make(struct temp_dir *d)
{
	memset(d, 0, sizeof(*d));
	strcpy(d->path, "/tmp/hg-test-XXXXXX");
	assert_non_null(mkdtemp(d->path));
}

/* A path in it; good for the next seven calls. */
static inline char *in_dir(struct temp_dir *d, const char *name)
{
	char *p = d->full[d->n++ % 8];

	memcpy(p, d->path, strlen(d->path));
	p[strlen(d->path)] = '/';
	strcpy(p + strlen(d->path) + 1, name);
	return p;
}

static inline void temp_dir_remove(struct temp_dir *d)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", d->path);
	assert_int_equal(system(cmd), 0);
}

#endif
