/* SPDX-License-Identifier: BSD-2-Clause */
/* Where certificates come from: lines of crt-stores, files beside, chains and parameters that global names. */
/* links: net ev base */
#include "net/tls_priv.h"
#include "net_help.h"

static struct temp_dir dir;
static struct made ca, a, b;
static struct conf conf;

static int make_files(void **state)
{
	net_tls_global_init();
	temp_dir_make(&dir);
	ca = make_cert(KEY_EC, "Test CA", NULL, NULL, 30);
	a = make_cert(KEY_EC, "a.test", "DNS:a.test", &ca, 30);
	b = make_cert(KEY_EC, "b.test", "DNS:b.test", &ca, 30);
	assert_int_equal(mkdir(in_dir(&dir, "chains"), 0700), 0);
	write_pem(in_dir(&dir, "chains/x.pem"), b.x, NULL, NULL);
	write_pem(in_dir(&dir, "chains/y.pem"), ca.x, NULL, NULL);
	write_pem(in_dir(&dir, "a.crt"), a.x, NULL, NULL);
	write_pem(in_dir(&dir, "elsewhere"), NULL, a.key, NULL);
	write_pem(in_dir(&dir, "both.pem"), a.x, b.key, NULL);
	write_pem(in_dir(&dir, "ca.crt"), ca.x, NULL, NULL);
	return 0;
}

static int remove_files(void **state)
{
	made_free(&ca);
	made_free(&a);
	made_free(&b);
	unlink(in_dir(&dir, "chains/x.pem"));
	unlink(in_dir(&dir, "chains/y.pem"));
	rmdir(in_dir(&dir, "chains"));
	temp_dir_remove(&dir);
	return 0;
}

static char *path_of(const char *name)
{
	return strdup(in_dir(&dir, name));
}

static void conf_begin(void)
{
	memset(&conf, 0, sizeof(conf));
	list_init(&conf.crts);
}

static struct conf_crt line(const char *name, char *crt, char *key)
{
	return (struct conf_crt){
		.pos = { "x.cfg", 3, 5 }, .name = str_from_cstr(name), .crt = crt, .key = key
	};
}

static struct cert_store *store_new(struct cert_store *previous, int code, struct err *err)
{
	struct cert_store *s;

	err->text[0] = '\0';
	assert_int_equal(cert_store_new(previous, &s, err), 0);
	assert_int_equal(cert_store_configure(s, &conf, err), code);
	return s;
}

/* The key is where the line says, whatever the certificate's file holds; the names are those of the section. */
static void test_load_lines(void **state)
{
	char *crt = path_of("a.crt"), *key = path_of("elsewhere"), *both = path_of("both.pem");
	struct conf_crt one = line("@web/a", crt, key), two = line("@/b", both, key);
	struct cert_store *s, *next;
	struct cert *c1, *c2;
	struct err err;

	conf_begin();
	list_push_back(&conf.crts, &one.link);
	list_push_back(&conf.crts, &two.link);
	s = store_new(NULL, 0, &err);
	assert_int_equal(cert_store_get(s, "@web/a", &c1, &err), 0);
	assert_string_equal(c1->file.path, "@web/a");
	assert_string_equal(c1->paths[CRT_KEY], key);
	assert_int_equal(cert_store_get(s, "@/b", &c2, &err), 0);
	/* Unchanged by a reload; read again when the line says something else. */
	next = store_new(s, 0, &err);
	assert_int_equal(cert_store_get(next, "@web/a", &c2, &err), 0);
	assert_ptr_equal(c1, c2);
	cert_store_free(next);
	one.crt = both;
	next = store_new(s, 0, &err);
	assert_int_equal(cert_store_get(next, "@web/a", &c2, &err), 0);
	assert_string_equal(c2->paths[CRT_PEM], both);
	cert_store_free(next);
	/* Faults are those of the line, also when nobody uses it. */
	two.key = NULL;
	next = store_new(NULL, -EINVAL, &err);
	assert_non_null(
		strstr(err.text, "x.cfg:3:5: error: '@/b': the private key does not match"));
	cert_store_free(next);
	two.key = key;
	two.ocsp = (char *)"/no/such.ocsp";
	next = store_new(NULL, -ENOENT, &err);
	assert_non_null(strstr(err.text, "cannot open '/no/such.ocsp'"));
	cert_store_free(next);
	cert_store_free(s);
	free(crt);
	free(key);
	free(both);
}

static int load_with(unsigned extra, bool drops_ext, const char *path, struct cert **ret)
{
	struct cert_recipe how = {
		.name = path, .paths[CRT_PEM] = path, .extra = extra, .drops_ext = drops_ext
	};
	struct err why, err;

	return cert_load(&how, ret, &why, &err);
}

static void test_extra_files(void **state)
{
	char *crt = path_of("a.crt"), *full = path_of("a.crt.key"), *bare = path_of("a.key"),
	     *issuer = path_of("a.issuer");
	struct cert *c;

	write_pem(full, NULL, b.key, NULL);
	write_pem(bare, NULL, a.key, NULL);
	write_pem(issuer, ca.x, NULL, NULL);
	assert_int_equal(load_with(CONF_EXTRA_ALL & ~CONF_EXTRA_KEY, false, crt, &c), -EINVAL);
	assert_int_equal(load_with(CONF_EXTRA_ALL, false, crt, &c), -EINVAL); /* a.crt.key */
	assert_int_equal(load_with(CONF_EXTRA_ALL, true, crt, &c), 0);
	assert_string_equal(c->paths[CRT_KEY], bare);
	assert_int_equal(X509_cmp(c->issuer, ca.x), 0);
	cert_put(c);
	assert_int_equal(load_with(CONF_EXTRA_KEY, true, crt, &c), 0);
	assert_null(c->issuer);
	cert_put(c);
	unlink(full);
	unlink(bare);
	unlink(issuer);
	free(crt);
	free(full);
	free(bare);
	free(issuer);
}

/* Certificates without intermediates get those of their issuer; others keep theirs. */
static void test_issuers(void **state)
{
	char *crt = path_of("a.crt"), *key = path_of("elsewhere"), *chains = path_of("chains"),
	     *root = path_of("ca.crt");
	struct conf_crt one = line("@/a", crt, key);
	struct cert_store *s, *next;
	struct cert *c;
	struct err err;

	conf_begin();
	list_push_back(&conf.crts, &one.link);
	s = store_new(NULL, 0, &err);
	assert_int_equal(cert_store_get(s, "@/a", &c, &err), 0);
	assert_null(c->chain);
	/* The same files, but something else beside them: not what the generation before had. */
	conf.global.crt_files.issuers = chains;
	next = store_new(s, 0, &err);
	assert_int_equal(cert_store_get(next, "@/a", &c, &err), 0);
	assert_int_equal(sk_X509_num(c->chain), 1);
	assert_int_equal(X509_cmp(sk_X509_value(c->chain, 0), ca.x), 0);
	cert_store_free(next);
	cert_store_free(s);
	conf.global.crt_files.issuers = (char *)"/no/such";
	s = store_new(NULL, -ENOENT, &err);
	assert_non_null(strstr(err.text, "issuers-chain-path: cannot read directory '/no/such'"));
	cert_store_free(s);
	free(crt);
	free(key);
	free(chains);
	free(root);
}

/* Intermediates that come again are one object; a decoder that has failed decodes the next key, of whatever kind. */
static void test_many(void **state)
{
	struct made rsa = make_cert(KEY_RSA, "r.test", "DNS:r.test", &ca, 30);
	char *one = path_of("one.pem"), *two = path_of("two.pem"), *bad = path_of("bad.pem");
	struct cert *c1, *c2;

	write_pem(one, a.x, a.key, ca.x);
	write_pem(two, rsa.x, rsa.key, ca.x);
	write_text(bad, "-----BEGIN PRIVATE KEY-----\nMAAA\n-----END PRIVATE KEY-----\n");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(load_with(CONF_EXTRA_ALL, false, one, &c1), 0);
		assert_int_equal(load_with(CONF_EXTRA_ALL, false, bad, &c2), -EINVAL);
		assert_int_equal(load_with(CONF_EXTRA_ALL, false, two, &c2), 0);
		assert_true(EVP_PKEY_is_a(c1->key, "EC") && EVP_PKEY_is_a(c2->key, "RSA"));
		assert_ptr_equal(sk_X509_value(c1->chain, 0), sk_X509_value(c2->chain, 0));
		assert_ptr_not_equal(c1->x509, c2->x509);
		cert_put(c1);
		cert_put(c2);
	}
	unlink(one);
	unlink(two);
	unlink(bad);
	made_free(&rsa);
	free(one);
	free(two);
	free(bad);
}

static void test_dh(void **state)
{
	char *path = path_of("dh.pem");
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "DH", NULL);
	OSSL_PARAM params[] = { OSSL_PARAM_utf8_string("group", (char *)"ffdhe2048", 0),
				OSSL_PARAM_END };
	EVP_PKEY *dh = NULL;
	struct cert_store *s;
	struct err err;
	BIO *out = BIO_new_file(path, "w");

	assert_int_equal(EVP_PKEY_paramgen_init(ctx), 1);
	assert_int_equal(EVP_PKEY_CTX_set_params(ctx, params), 1);
	assert_int_equal(EVP_PKEY_paramgen(ctx, &dh), 1);
	assert_int_equal(PEM_write_bio_Parameters(out, dh), 1);
	BIO_free(out);
	conf_begin();
	conf.global.crt_files.dh_params = path;
	s = store_new(NULL, 0, &err);
	assert_int_equal(EVP_PKEY_get_bits(s->dh), 2048);
	cert_store_free(s);
	write_text(path, "nothing\n");
	s = store_new(NULL, -EINVAL, &err);
	assert_non_null(strstr(err.text, "ssl-dh-param-file: no DH parameters in"));
	cert_store_free(s);
	unlink(path);
	EVP_PKEY_free(dh);
	EVP_PKEY_CTX_free(ctx);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_load_lines), cmocka_unit_test(test_extra_files),
		cmocka_unit_test(test_issuers),	   cmocka_unit_test(test_many),
		cmocka_unit_test(test_dh),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}
