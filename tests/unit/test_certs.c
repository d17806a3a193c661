/* SPDX-License-Identifier: BSD-2-Clause */
/* Certificates from files, bundles, directories and crt-lists: what is found by which name, and every message. */
/* links: net ev base */
#include "net/tls_priv.h"
#include "net_help.h"

static struct temp_dir dir;
static struct made ca, a, b, rsa_b, expired;
static char warnings[1024];

static int make_files(void **state)
{
	net_tls_global_init();
	temp_dir_make(&dir);
	ca = make_cert(KEY_EC, "Test CA", NULL, NULL, 30);
	a = make_cert(KEY_EC, "a.test", "DNS:a.test,DNS:WWW.a.test,DNS:*.a.test", &ca, 30);
	b = make_cert(KEY_EC, "b.test", NULL, &ca, 30);
	rsa_b = make_cert(KEY_RSA, "b.test", "DNS:b.test", &ca, 30);
	expired = make_cert(KEY_EC, "old.test", "DNS:old.test", &ca, -1);
	write_pem(in_dir(&dir, "a.pem"), a.x, a.key, ca.x);
	write_pem(in_dir(&dir, "b.pem"), b.x, b.key, NULL);
	write_pem(in_dir(&dir, "ca.pem"), ca.x, NULL, NULL);
	return 0;
}

static int remove_files(void **state)
{
	made_free(&ca);
	made_free(&a);
	made_free(&b);
	made_free(&rsa_b);
	made_free(&expired);
	temp_dir_remove(&dir);
	return 0;
}

static void collect(void *ctx, const char *text)
{
	strncat(warnings, text, sizeof(warnings) - strlen(warnings) - 2);
	strcat(warnings, "\n");
}

static struct cert_store *store_new(struct cert_store *previous)
{
	struct cert_store *s;
	struct err err;

	warnings[0] = '\0';
	assert_int_equal(cert_store_new(previous, &s, &err), 0);
	cert_store_on_warning(s, collect, NULL);
	return s;
}

static int load(const char *path, struct cert **ret, struct err *err)
{
	struct cert_recipe how = { .name = path, .paths[CRT_PEM] = path, .extra = CONF_EXTRA_ALL };
	struct err unused;

	return cert_load(&how, ret, &unused, err);
}

static void load_fails(const char *path, int code, const char *part)
{
	struct cert *c;
	struct err err = { "" };

	assert_int_equal(load(path, &c, &err), code);
	if (!strstr(err.text, part) || !strstr(err.text, dir.path))
		fail_msg("'%s' is not in '%s'", part, err.text);
}

static void test_messages(void **state)
{
	char *p = in_dir(&dir, "bad.pem");
	FILE *f;

	load_fails(in_dir(&dir, "none.pem"), -ENOENT, "No such file");
	load_fails(dir.path, -EINVAL, "not a regular file");
	write_text(p, "");
	load_fails(p, -EINVAL, "no certificate in");
	write_text(p, "only text\n");
	load_fails(p, -EINVAL, "no certificate in");
	write_pem(p, a.x, NULL, NULL);
	load_fails(p, -EINVAL, "no private key in");
	write_pem(p, NULL, a.key, NULL);
	load_fails(p, -EINVAL, "no certificate in");
	write_pem(p, a.x, b.key, NULL);
	load_fails(p, -EINVAL, "does not match the certificate");
	write_text(p, "\n\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
	load_fails(p, -EINVAL, "CERTIFICATE that ends in line 5");
	write_text(p, "\n-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n");
	load_fails(p, -EINVAL, "bad PEM before line");
	write_text(p, "-----BEGIN CERTIFICATE-----\nAAAA\n");
	load_fails(p, -EINVAL, "bad PEM before line");
	f = fopen(p, "w");
	PEM_write_X509(f, a.x);
	PEM_write_PKCS8PrivateKey(f, a.key, EVP_aes_128_cbc(), "pw", 2, NULL, NULL);
	fclose(f);
	load_fails(p, -EINVAL, "is encrypted");
	unlink(p);
}

static void test_forms(void **state)
{
	struct cert *c;
	struct err err;
	char *p = in_dir(&dir, "form.crt"), *k = in_dir(&dir, "form.crt.key"),
	     *k2 = in_dir(&dir, "form.key");

	assert_int_equal(load(in_dir(&dir, "a.pem"), &c, &err), 0);
	assert_int_equal(sk_X509_num(c->chain), 1);
	assert_int_equal(c->n_names, 4); /* three and the common name */
	assert_string_equal(c->names[1], "www.a.test");
	assert_null(c->paths[CRT_KEY]);
	cert_put(c);
	/* The key beside, under both names, and first in the file. */
	write_pem(p, a.x, NULL, ca.x);
	write_pem(k, NULL, a.key, NULL);
	assert_int_equal(load(p, &c, &err), 0);
	assert_string_equal(c->paths[CRT_KEY], k);
	cert_put(c);
	rename(k, k2);
	assert_int_equal(load(p, &c, &err), 0);
	assert_string_equal(c->paths[CRT_KEY], k2);
	cert_put(c);
	unlink(k2);
	{
		FILE *f = fopen(p, "w");

		PEM_write_PrivateKey(f, a.key, NULL, NULL, 0, NULL, NULL);
		PEM_write_X509(f, a.x);
		fclose(f);
	}
	assert_int_equal(load(p, &c, &err), 0);
	cert_put(c);
	unlink(p);
}

static void test_no_memory(void **state)
{
	struct cert *c;
	struct err err;
	uint64_t n = 1;

	for (;; n++) {
		int r;

		mem_fail_at(n);
		r = load(in_dir(&dir, "a.pem"), &c, &err);
		mem_fail_at(0);
		if (r == 0)
			break;
		assert_int_equal(r, -ENOMEM);
	}
	assert_true(n > 5);
	cert_put(c);
}

/* A leaf without its issuer is told of, once and with its line; what is complete or its own issuer is not. */
static void test_missing_issuer(void **state)
{
	struct conf_pos pos = { .file = "x.cfg", .line = 7, .column = 5 };
	struct cert_store *s = store_new(NULL);
	char *alone = in_dir(&dir, "b.pem"), *whole = in_dir(&dir, "a.pem");
	struct cert *c;
	struct err err;

	s->pos = &pos;
	warnings[0] = '\0';
	assert_int_equal(cert_store_get(s, whole, &c, &err), 0);
	cert_warn_about_chain(s, c);
	assert_string_equal(warnings, "");
	assert_int_equal(cert_store_get(s, alone, &c, &err), 0);
	cert_warn_about_chain(s, c);
	assert_non_null(strstr(warnings, "x.cfg:7:5: certificate '"));
	assert_non_null(strstr(warnings, "b.pem' comes without that of its issuer '/CN=Test CA'"));
	warnings[0] = '\0';
	cert_warn_about_chain(s, c);
	assert_string_equal(warnings, "");
	cert_store_free(s);
}

/* Unchanged files are shared with the generation before; changed ones are read again; warnings repeat. */
static void test_store(void **state)
{
	struct cert_store *one = store_new(NULL), *two;
	char *p = in_dir(&dir, "old.pem");
	struct cert *c1, *c2;
	struct err err;
	struct timespec later[2] = { { 2000000000, 0 }, { 2000000000, 0 } };

	write_pem(p, expired.x, expired.key, NULL);
	assert_int_equal(cert_store_get(one, p, &c1, &err), 0);
	assert_non_null(strstr(warnings, "has expired"));
	assert_int_equal(cert_store_get(one, p, &c2, &err), 0);
	assert_ptr_equal(c1, c2);
	two = store_new(one);
	assert_int_equal(cert_store_get(two, p, &c2, &err), 0);
	assert_ptr_equal(c1, c2);
	assert_non_null(strstr(warnings, "has expired"));
	assert_ptr_equal(one->own_tickets, two->own_tickets);
	cert_store_free(one);
	assert_int_equal(utimensat(AT_FDCWD, p, later, 0), 0);
	one = store_new(two);
	assert_int_equal(cert_store_get(one, p, &c1, &err), 0);
	assert_ptr_not_equal(c1, c2);
	cert_store_free(two);
	cert_store_free(one);
	unlink(p);
}

/* --- what a bind line makes of it --- */

static struct conf_global global;

static int server_of(struct cert_store *s, struct conf_bind *bind, struct tls_server **ret,
		     struct err *err)
{
	err->text[0] = '\0';
	bind->text = (char *)":443";
	return tls_server_new(s, bind, &global, ret, err);
}

static const struct cert *found(const struct tls_server *t, const char *name)
{
	const struct cert_set *set = tls_server_find(t, str_from_cstr(name));

	if (!set)
		return NULL;
	for (unsigned i = 0; i < CERT_TYPES; i++) {
		if (set->certs[i])
			return set->certs[i];
	}
	return NULL;
}

static bool is_file(const struct cert *c, const char *name)
{
	return c && strcmp(strrchr(c->file.path, '/') + 1, name) == 0;
}

static void test_lookup(void **state)
{
	struct cert_store *s = store_new(NULL);
	char *crts[] = { strdup(in_dir(&dir, "b.pem")), strdup(in_dir(&dir, "a.pem")) };
	struct conf_bind bind = bind_line(1);
	struct tls_server *t;
	struct err err;

	bind.crts = crts;
	bind.n_crts = 2;
	assert_int_equal(server_of(s, &bind, &t, &err), 0);
	assert_true(is_file(found(t, "a.test"), "a.pem"));
	assert_true(is_file(found(t, "www.a.test"), "a.pem"));
	assert_true(is_file(found(t, "x.a.test"), "a.pem"));
	assert_true(is_file(found(t, "x.y.a.test"), "b.pem")); /* the default: the first */
	assert_true(is_file(found(t, "b.test"), "b.pem"));
	assert_true(is_file(found(t, ""), "b.pem"));
	assert_true(is_file(found(t, "."), "b.pem"));
	assert_true(is_file(found(t, ".a.test"), "b.pem"));
	bind.tls.strict_sni = true;
	assert_int_equal(server_of(s, &bind, &t, &err), 0);
	assert_null(found(t, ""));
	assert_null(found(t, "c.test"));
	assert_true(is_file(found(t, "b.test"), "b.pem"));
	free(crts[0]);
	free(crts[1]);
	cert_store_free(s);
}

static void test_directory(void **state)
{
	struct cert_store *s = store_new(NULL);
	char path[128], *name = path,
			*files[5] = { "1.pem", "2.pem.rsa", "2.pem.key", ".hidden", "x.ocsp" };
	struct conf_bind bind = bind_line(1);
	struct tls_server *t;
	struct err err;
	const struct cert_set *set;

	snprintf(path, sizeof(path), "%s", in_dir(&dir, "d"));
	bind.crts = &name;
	bind.n_crts = 1;
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(server_of(s, &bind, &t, &err), -ENOENT);
	assert_non_null(strstr(err.text, "no certificate in directory"));
	write_pem(in_dir(&dir, "d/1.pem"), b.x, b.key, NULL);
	write_pem(in_dir(&dir, "d/2.pem.rsa"), rsa_b.x, rsa_b.key, NULL);
	write_text(in_dir(&dir, "d/2.pem.key"), "not looked at");
	write_text(in_dir(&dir, "d/.hidden"), "not looked at");
	write_text(in_dir(&dir, "d/x.ocsp"), "not looked at");
	assert_int_equal(server_of(s, &bind, &t, &err), 0);
	/* Both key types under one name, in the default too. */
	set = tls_server_find(t, STR("b.test"));
	assert_non_null(set->certs[0]);
	assert_non_null(set->certs[2]);
	assert_non_null(t->dflt.certs[0]);
	assert_non_null(t->dflt.certs[2]);
	/* A name that is a bundle. */
	snprintf(path, sizeof(path), "%s", in_dir(&dir, "d/2.pem"));
	assert_int_equal(server_of(s, &bind, &t, &err), 0);
	assert_true(is_file(found(t, "b.test"), "2.pem.rsa"));
	for (int i = 0; i < 5; i++) {
		snprintf(path, sizeof(path), "%s/d/%s", dir.path, files[i]);
		unlink(path);
	}
	cert_store_free(s);
}

static int crt_list(struct cert_store *s, const char *text, struct tls_server **ret,
		    struct err *err)
{
	struct conf_bind bind = bind_line(1);
	char *path = in_dir(&dir, "list");

	write_text(path, text);
	bind.crt_list = path;
	return server_of(s, &bind, ret, err);
}

static void test_crt_list(void **state)
{
	struct cert_store *s = store_new(NULL);
	const struct cert_set *set;
	struct tls_server *t;
	struct err err;

	global.crt_base = dir.path;
	assert_int_equal(
		crt_list(s,
			 "# comment\n\n"
			 "  b.pem\r\n"
			 "a.pem [alpn h2,http/1.1 ssl-min-ver TLSv1.3] *.x.test !no.x.test y.test\n"
			 "a.pem [alpn h2,http/1.1 ssl-min-ver TLSv1.3] Z.test",
			 &t, &err),
		0);
	assert_true(is_file(found(t, "b.test"), "b.pem"));
	assert_true(is_file(found(t, ""), "b.pem"));
	assert_true(is_file(found(t, "one.x.test"), "a.pem"));
	assert_true(is_file(found(t, "no.x.test"), "b.pem"));
	assert_true(is_file(found(t, "z.test"), "a.pem"));
	/* Its own names do not count when there are filters. */
	assert_true(is_file(found(t, "a.test"), "b.pem"));
	set = tls_server_find(t, STR("y.test"));
	assert_ptr_not_equal(set->profile, t->base);
	assert_ptr_equal(set->profile, tls_server_find(t, STR("z.test"))->profile);
	assert_int_equal(set->profile->min_version, TLS1_3_VERSION);
	assert_int_equal(set->profile->alpn_len, 12);
	cert_store_free(s);
	global.crt_base = NULL;
}

static void test_crt_list_errors(void **state)
{
	static const struct {
		const char *text, *part;
	} cases[] = {
		{ "b.pem [alpn", "list:1: missing ']'" },
		{ "\nb.pem [nonsense 1]", "list:2: unknown crt-list option 'nonsense'" },
		{ "b.pem [alpn]", "'alpn' expects a value" },
		{ "b.pem [verify perhaps]", "none, optional or required" },
		{ "b.pem [verify required]", "needs a 'ca-file'" },
		{ "b.pem [ssl-min-ver TLSv9]", "unknown TLS version" },
		{ "b.pem [ssl-min-ver TLSv1.3 ssl-max-ver TLSv1.2]", "is above" },
		{ "b.pem [ciphers NO-SUCH]", "ciphers 'NO-SUCH'" },
		{ "b.pem [curves X9]", "curves 'X9'" },
		{ "b.pem a.test [alpn h2]", "before the SNI filters" },
		{ "b.pem !", "bad SNI filter" },
		{ "b.pem\nnone.pem", "list:2: cannot open certificate" },
		{ "# nothing\n", "no certificate" },
	};
	struct cert_store *s = store_new(NULL);
	struct tls_server *t;
	struct err err;

	global.crt_base = dir.path;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_true(crt_list(s, cases[i].text, &t, &err) < 0);
		if (!strstr(err.text, cases[i].part) || !strstr(err.text, "bind :443"))
			fail_msg("'%s' is not in '%s'", cases[i].part, err.text);
	}
	cert_store_free(s);
	global.crt_base = NULL;
}

static void test_client_messages(void **state)
{
	struct cert_store *s = store_new(NULL);
	struct conf_server srv = { .name = (char *)"s1" };
	struct tls_client *t;
	struct err err;

	assert_int_equal(tls_client_new(s, &srv, &global, &t, &err), -EINVAL);
	assert_non_null(strstr(err.text, "server s1: servers are verified by default"));
	srv.tls.ca_file = (char *)"/no/such/file";
	assert_int_equal(tls_client_new(s, &srv, &global, &t, &err), -ENOENT);
	assert_non_null(strstr(err.text, "cannot open CA file '/no/such/file'"));
	srv.tls.ca_file = strdup(in_dir(&dir, "ca.pem"));
	assert_int_equal(tls_client_new(s, &srv, &global, &t, &err), 0);
	assert_int_equal(tls_client_new(s, &srv, &global, &t, &err), 0);
	assert_int_equal(s->cas.n, 1);
	free(srv.tls.ca_file);
	srv.tls.ca_file = NULL;
	srv.tls.verify = CONF_VERIFY_NONE;
	assert_int_equal(tls_client_new(s, &srv, &global, &t, &err), 0);
	cert_store_free(s);
}

static struct tls_client *client_of(struct cert_store *s, const struct conf_server *srv)
{
	struct tls_client *t;
	struct err err = { "" };

	if (tls_client_new(s, srv, &global, &t, &err))
		fail_msg("%s", err.text);
	return t;
}

/* What is built again when a file changes: only what is made of it. */
static void test_uses(void **state)
{
	struct cert_store *s = store_new(NULL);
	struct conf_server srv = { .name = (char *)"s1" };
	char *authority = strdup(in_dir(&dir, "ca.pem"));
	struct tls_server *bind;
	struct tls_client *with, *without;
	const struct tls_file *f;
	struct err err;

	srv.tls.verify = CONF_VERIFY_NONE;
	assert_int_equal(tls_client_new(s, &srv, &global, &without, &err), 0);
	srv.tls.verify = CONF_VERIFY_REQUIRED;
	srv.tls.ca_file = authority;
	assert_int_equal(tls_client_new(s, &srv, &global, &with, &err), 0);
	assert_true(tls_client_uses(with, TLS_USED_CA, authority));
	assert_false(tls_client_uses(with, TLS_USED_CERT, authority));
	assert_false(tls_client_uses(with, TLS_USED_CRL, authority));
	assert_false(tls_client_uses(without, TLS_USED_CA, authority));
	global.crt_base = dir.path;
	assert_int_equal(crt_list(s, "a.pem\n", &bind, &err), 0);
	global.crt_base = NULL;
	assert_true(tls_server_uses(bind, TLS_USED_LIST, in_dir(&dir, "list")));
	assert_true(tls_server_uses(bind, TLS_USED_CERT, in_dir(&dir, "a.pem")));
	assert_false(tls_server_uses(bind, TLS_USED_CERT, in_dir(&dir, "b.pem")));
	/* Whoever is gone uses nothing any more; whoever is not in the store is marked apart. */
	f = namemap_get(&s->files[TLS_CA], str_from_cstr(authority));
	assert_true(f->is_used);
	tls_client_retire(with);
	cert_store_recount(s);
	assert_false(f->is_used);
	tls_client_mark(s, without);
	assert_false(f->is_used);
	tls_client_mark(s, with);
	assert_true(f->is_used);
	tls_client_release(with);
	cert_store_free(s);
	free(authority);
}

/* Two lines have one context when all that it is made of is the same, and as long as the files are. */
static void test_client_contexts(void **state)
{
	struct cert_store *s = store_new(NULL);
	char *authority = strdup(in_dir(&dir, "ca.pem"));
	const struct conf_server plain = { .name = (char *)"s1",
					   .tls = { .ca_file = authority,
						    .verify = CONF_VERIFY_REQUIRED } };
	struct conf_server other[13];
	struct tls_client *first = client_of(s, &plain), *t;

	for (size_t i = 0; i < ARRAY_SIZE(other); i++)
		other[i] = plain;
	other[0].tls.verify = CONF_VERIFY_NONE;
	other[1].tls.min_version = 0x0304;
	other[2].tls.max_version = 0x0303;
	other[3].tls.no_tickets = true;
	other[4].tls.prefer_client_ciphers = true;
	other[5].tls.alpn = (char *)"\2h2";
	other[5].tls.alpn_len = 3;
	other[6].tls.ciphers = (char *)"ECDHE-RSA-AES128-GCM-SHA256";
	other[7].tls.ciphersuites = (char *)"TLS_AES_128_GCM_SHA256";
	other[8].tls.curves = (char *)"P-256";
	other[9].tls.sigalgs = (char *)"ECDSA+SHA256";
	other[10].tls.client_sigalgs = (char *)"ECDSA+SHA256";
	other[11].has_full_handshakes = true;
	other[12].tls.renegotiates = true;
	for (size_t i = 0; i < ARRAY_SIZE(other); i++) {
		t = client_of(s, &other[i]);
		assert_ptr_not_equal(t->ctx, first->ctx);
		assert_ptr_equal(t->ctx, client_of(s, &other[i])->ctx);
		assert_int_equal(t->is_verified, i != 0);
	}
	assert_int_equal(s->client_ctxs.n, 1 + ARRAY_SIZE(other));
	other[0] = plain;
	other[0].verifyhost = (char *)"a.test";
	t = client_of(s, &other[0]);
	assert_ptr_equal(t->ctx, first->ctx);
	assert_null(first->verifyhost);
	assert_string_equal(t->verifyhost, "a.test");
	tls_client_ctxs_forget(s); /* a file has changed */
	assert_ptr_not_equal(client_of(s, &plain)->ctx, first->ctx);
	cert_store_free(s);
	free(authority);
}

/* Every allocation of a server line fails once; the context that was made is there or is not, and nothing leaks. */
static void test_client_no_memory(void **state)
{
	char *authority = strdup(in_dir(&dir, "ca.pem"));
	const struct conf_server srv = { .name = (char *)"s1",
					 .verifyhost = (char *)"a.test",
					 .tls = { .ca_file = authority } };
	struct cert_store *s = store_new(NULL);
	struct tls_client *t;
	struct err err;
	uint64_t n = 1;

	for (;; n++) {
		int r;

		mem_fail_at(n);
		r = tls_client_new(s, &srv, &global, &t, &err);
		mem_fail_at(0);
		if (r == 0)
			break;
		assert_int_equal(r, -ENOMEM);
	}
	assert_true(n > 5);
	cert_store_free(s);
	free(authority);
}

/* Every allocation of a bind line fails once. */
static void test_server_no_memory(void **state)
{
	struct conf_bind bind = bind_line(1);
	char *path = strdup(in_dir(&dir, "list2"));
	struct tls_server *t;
	struct err err;
	uint64_t n = 1;

	global.crt_base = dir.path;
	write_text(path, "a.pem [alpn h2] *.x.test !n.x.test\nb.pem\n");
	bind.crt_list = path;
	for (;; n++) {
		struct cert_store *s = store_new(NULL);
		int r;

		mem_fail_at(n);
		r = server_of(s, &bind, &t, &err);
		mem_fail_at(0);
		cert_store_free(s);
		if (r == 0)
			break;
		assert_int_equal(r, -ENOMEM);
	}
	assert_true(n > 20);
	global.crt_base = NULL;
	free(path);
}

/* Thousands of names: all found, and only they. */
static void test_many_names(void **state)
{
	struct namemap m = { 0 };
	char name[32];

	for (uintptr_t i = 1; i <= 10000; i++) {
		void **slot;

		snprintf(name, sizeof(name), "h%zu.test", (size_t)i);
		slot = namemap_put(&m, str_from_cstr(name));
		assert_non_null(slot);
		assert_null(*slot);
		*slot = (void *)i;
	}
	for (uintptr_t i = 1; i <= 10000; i++) {
		snprintf(name, sizeof(name), "h%zu.test", (size_t)i);
		assert_ptr_equal(namemap_get(&m, str_from_cstr(name)), (void *)i);
	}
	assert_null(namemap_get(&m, STR("h0.test")));
	assert_int_equal(m.n, 10000);
	namemap_free(&m, NULL);
	assert_null(namemap_get(&m, STR("h1.test")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_store),
		cmocka_unit_test(test_missing_issuer),
		cmocka_unit_test(test_lookup),
		cmocka_unit_test(test_directory),
		cmocka_unit_test(test_crt_list),
		cmocka_unit_test(test_crt_list_errors),
		cmocka_unit_test(test_client_messages),
		cmocka_unit_test(test_uses),
		cmocka_unit_test(test_client_contexts),
		cmocka_unit_test(test_client_no_memory),
		cmocka_unit_test(test_server_no_memory),
		cmocka_unit_test(test_many_names),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}
