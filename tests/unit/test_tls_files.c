/* SPDX-License-Identifier: BSD-2-Clause */
/* Authorities and revocation lists from files and directories, and transactions of the runtime API about any file. */
/* links: net ev base */
#include "net/tls_priv.h"
#include "net_help.h"

static struct temp_dir dir;
static struct made ca, other, leaf;

static int make_files(void **state)
{
	net_tls_global_init();
	temp_dir_make(&dir);
	ca = make_cert(KEY_EC, "Test CA", NULL, NULL, 30);
	other = make_cert(KEY_EC, "Other CA", NULL, NULL, 30);
	leaf = make_cert(KEY_EC, "leaf.test", "DNS:leaf.test", &ca, 30);
	write_pem(in_dir(&dir, "ca.pem"), ca.x, NULL, other.x);
	write_pem(in_dir(&dir, "leaf.pem"), leaf.x, leaf.key, NULL);
	return 0;
}

static int remove_files(void **state)
{
	made_free(&ca);
	made_free(&other);
	made_free(&leaf);
	temp_dir_remove(&dir);
	return 0;
}

/* As a payload; free() it. */
static char *pem_of(X509 *x, EVP_PKEY *key)
{
	char *text, *p = in_dir(&dir, "payload");
	struct err err;
	size_t len;

	write_pem(p, x, key, NULL);
	assert_int_equal(net_read_file(p, &text, &len, &err), 0);
	unlink(p);
	return text;
}

static void write_crl(const char *path, X509 *revoked)
{
	X509_CRL *crl = X509_CRL_new();
	ASN1_TIME *now = X509_gmtime_adj(NULL, -60), *next = X509_gmtime_adj(NULL, 86400);
	X509_REVOKED *one = X509_REVOKED_new();
	FILE *f = fopen(path, "w");

	X509_CRL_set_version(crl, 1);
	X509_CRL_set_issuer_name(crl, X509_get_subject_name(ca.x));
	X509_CRL_set1_lastUpdate(crl, now);
	X509_CRL_set1_nextUpdate(crl, next);
	if (revoked) {
		X509_REVOKED_set_serialNumber(one, X509_get_serialNumber(revoked));
		X509_REVOKED_set_revocationDate(one, now);
		X509_CRL_add0_revoked(crl, one);
	} else {
		X509_REVOKED_free(one);
	}
	assert_true(X509_CRL_sign(crl, ca.key, EVP_sha256()) > 0);
	assert_int_equal(PEM_write_X509_CRL(f, crl), 1);
	fclose(f);
	ASN1_TIME_free(now);
	ASN1_TIME_free(next);
	X509_CRL_free(crl);
}

static struct cert_store *store_new(void)
{
	struct cert_store *s;
	struct err err;

	assert_int_equal(cert_store_new(NULL, &s, &err), 0);
	return s;
}

/* What verification of the leaf ends with; tls_ctx_set_ca()'s own code when that fails. */
static int verify_with(struct cert_store *s, const struct tls_ca *names, uint64_t *ret_digest,
		       struct err *err)
{
	SSL_CTX *ctx = tls_ctx_new(true);
	int r = tls_ctx_set_ca(ctx, s, names, ret_digest, err);
	X509_STORE_CTX *x = X509_STORE_CTX_new();

	if (r == 0) {
		assert_int_equal(X509_STORE_CTX_init(x, SSL_CTX_get_cert_store(ctx), leaf.x, NULL),
				 1);
		X509_verify_cert(x);
		r = X509_STORE_CTX_get_error(x);
	}
	X509_STORE_CTX_free(x);
	SSL_CTX_free(ctx);
	return r;
}

static void load_fails(const char *ca_path, const char *crl_path, int code, const char *part)
{
	struct cert_store *s = store_new();
	struct err err = { "" };

	assert_int_equal(
		verify_with(s, &(struct tls_ca){ .ca = ca_path, .crl = crl_path }, NULL, &err),
		code);
	if (!strstr(err.text, part))
		fail_msg("'%s' is not in '%s'", part, err.text);
	cert_store_free(s);
}

static void test_messages(void **state)
{
	char *good = strdup(in_dir(&dir, "ca.pem")), *bad = strdup(in_dir(&dir, "bad.pem"));

	load_fails("/no/such/file", NULL, -ENOENT, "cannot open CA file '/no/such/file'");
	load_fails(good, "/no/such/crl", -ENOENT, "cannot open CRL file '/no/such/crl'");
	load_fails(good, good, -EINVAL, "no revocation list in");
	write_text(bad, "nothing\n");
	load_fails(bad, NULL, -EINVAL, "no CA certificate in");
	write_text(bad, "\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
	load_fails(bad, NULL, -EINVAL, "bad.pem: cannot read the CERTIFICATE that ends in line 4");
	write_text(bad, "\n-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n");
	load_fails(good, bad, -EINVAL, "bad.pem: cannot read the X509 CRL that ends in line 4");
	unlink(bad);
	free(good);
	free(bad);
}

static void test_verify(void **state)
{
	struct tls_ca names = { .ca = strdup(in_dir(&dir, "ca.pem")) };
	char *crl = strdup(in_dir(&dir, "a.crl"));
	struct cert_store *s = store_new();
	uint64_t with, without;
	struct err err;

	assert_int_equal(verify_with(s, &names, &without, &err), X509_V_OK);
	write_crl(crl, NULL);
	names.crl = crl;
	assert_int_equal(verify_with(s, &names, &with, &err), X509_V_OK);
	assert_true(with != without && without != 0);
	cert_store_free(s);
	/* Another list is another set of authorities: nothing may be resumed that it would refuse. */
	s = store_new();
	write_crl(crl, leaf.x);
	assert_int_equal(verify_with(s, &names, &without, &err), X509_V_ERR_CERT_REVOKED);
	assert_true(with != without);
	cert_store_free(s);
	unlink(crl);
	free(crl);
	free((char *)names.ca);
}

/* Every file that looks like one, without the links that OpenSSL's own directories need. */
static void test_directory(void **state)
{
	char *d = strdup(in_dir(&dir, "cas")), *path;
	struct tls_ca names = { .ca = d };
	struct cert_store *s = store_new();
	struct err err;

	assert_int_equal(mkdir(d, 0700), 0);
	load_fails(d, NULL, -EINVAL, "(files .pem, .crt, .cer and .crl)");
	write_pem(in_dir(&dir, "cas/b.crt"), other.x, NULL, NULL);
	write_pem(in_dir(&dir, "cas/a.cer"), ca.x, NULL, NULL);
	write_text(in_dir(&dir, "cas/README"), "-----BEGIN CERTIFICATE-----\n");
	assert_int_equal(verify_with(s, &names, NULL, &err), X509_V_OK);
	assert_int_equal(
		sk_X509_num(((struct ca_file *)namemap_get(&s->files[TLS_CA], str_from_cstr(d)))
				    ->certs),
		2);
	cert_store_free(s);
	path = strdup(in_dir(&dir, "cas/README"));
	unlink(path);
	unlink(in_dir(&dir, "cas/a.cer"));
	unlink(in_dir(&dir, "cas/b.crt"));
	rmdir(d);
	free(path);
	free(d);
}

/* What the client is told to choose among is `names`; `ca` verifies. */
static void test_names(void **state)
{
	char *both = strdup(in_dir(&dir, "ca.pem"));
	struct cert_store *s = store_new();
	SSL_CTX *ctx = tls_ctx_new(true);
	struct err err;

	assert_int_equal(tls_ctx_set_ca(ctx, s, &(struct tls_ca){ .ca = both }, NULL, &err), 0);
	assert_true(sk_X509_NAME_num(SSL_CTX_get_client_CA_list(ctx)) <= 0);
	assert_int_equal(
		tls_ctx_set_ca(ctx, s, &(struct tls_ca){ .ca = both, .names = both }, NULL, &err),
		0);
	assert_int_equal(sk_X509_NAME_num(SSL_CTX_get_client_CA_list(ctx)), 2);
	SSL_CTX_free(ctx);
	cert_store_free(s);
	free(both);
}

/* Staged, put in place, taken back; what was built before is built again. */
static void test_transaction(void **state)
{
	char *path = strdup(in_dir(&dir, "ca.pem")), *pem = pem_of(other.x, NULL);
	struct tls_ca names = { .ca = path };
	struct cert_store *s = store_new();
	struct tls_change *ch = NULL;
	struct err err;

	assert_int_equal(verify_with(s, &names, NULL, &err), X509_V_OK);
	cert_store_freeze(s);
	assert_int_equal(
		tls_change_stage(s, TLS_CA, &ch, "/nowhere", str_from_cstr(pem), false, &err),
		-ENOENT);
	assert_null(ch);
	assert_int_equal(tls_change_stage(s, TLS_CA, &ch, path, STR("text"), false, &err), -EINVAL);
	assert_null(ch);
	assert_int_equal(tls_change_stage(s, TLS_CA, &ch, path, str_from_cstr(pem), false, &err),
			 0);
	assert_int_equal(tls_change_n_certs(ch), 1);
	assert_int_equal(verify_with(s, &names, NULL, &err), X509_V_OK);
	assert_int_equal(tls_change_apply(s, ch, &err), 0);
	assert_int_equal(verify_with(s, &names, NULL, &err),
			 X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
	tls_change_revert(s, ch);
	assert_int_equal(verify_with(s, &names, NULL, &err), X509_V_OK);
	assert_int_equal(tls_change_stage(s, TLS_CA, &ch, path, str_from_cstr(pem), true, &err), 0);
	assert_int_equal(tls_change_n_certs(ch), 2);
	tls_change_free(ch);
	/* An empty one is of no use before it is filled. */
	assert_int_equal(cert_store_new_file(s, TLS_CA, "/live", &err), 0);
	assert_int_equal(cert_store_new_file(s, TLS_CA, "/live", &err), -EEXIST);
	names.ca = "/live";
	assert_int_equal(verify_with(s, &names, NULL, &err), -ENOENT);
	assert_string_equal(err.text, "CA file '/live' is empty");
	assert_int_equal(cert_store_del_file(s, TLS_CA, path, &err), -EBUSY);
	assert_int_equal(cert_store_del_file(s, TLS_CA, "/live", &err), 0);
	cert_store_free(s);
	mem_free(pem);
	free(path);
}

/* Every allocation of a transaction fails once, and nothing has changed then. */
static void test_no_memory(void **state)
{
	static const enum tls_file_kind all[] = { TLS_CERT, TLS_CA };

	for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
		char *path = strdup(in_dir(&dir, all[i] == TLS_CA ? "ca.pem" : "leaf.pem"));
		char *pem = pem_of(leaf.x, leaf.key);
		struct cert_store *s = store_new();
		struct cert *c;
		struct err err;

		if (all[i] == TLS_CA)
			assert_int_equal(verify_with(s, &(struct tls_ca){ .ca = path }, NULL, &err),
					 X509_V_OK);
		else
			assert_int_equal(cert_store_get(s, path, &c, &err), 0);
		cert_store_freeze(s);
		for (uint64_t n = 1;; n++) {
			struct tls_change *ch = NULL;
			int r;

			mem_fail_at(n);
			r = tls_change_stage(s, all[i], &ch, path, str_from_cstr(pem), true, &err);
			if (r == 0)
				r = tls_change_apply(s, ch, &err);
			mem_fail_at(0);
			tls_change_free(ch);
			if (r == 0)
				break;
			assert_int_equal(r, -ENOMEM);
		}
		cert_store_free(s);
		mem_free(pem);
		free(path);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages),    cmocka_unit_test(test_verify),
		cmocka_unit_test(test_directory),   cmocka_unit_test(test_names),
		cmocka_unit_test(test_transaction), cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}
