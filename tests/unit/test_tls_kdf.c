/* SPDX-License-Identifier: BSD-2-Clause */
/* The key schedule of TLS 1.3: RFC 8448's figures, and the same answers as OpenSSL's own function for everything else. */
/* links: net ev base */
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/provider.h>
#include <openssl/rand.h>

#include "net/tls_priv.h"
#include "net_help.h"

#define EXTRACT EVP_KDF_HKDF_MODE_EXTRACT_ONLY
#define EXPAND	EVP_KDF_HKDF_MODE_EXPAND_ONLY

/* What a derivation is given; NULL: left out. */
struct ask {
	int mode;
	const char *digest;
	const unsigned char *key, *salt, *data;
	size_t key_len, salt_len, data_len, label_len;
	const char *label;
};

static int derive(const char *properties, const struct ask *a, unsigned char *out, size_t len)
{
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS13-KDF", properties);
	EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf), *copy;
	OSSL_PARAM params[9], *p = params;
	int mode = a->mode, r;

	assert_non_null(ctx);
	if (mode >= 0)
		*p++ = OSSL_PARAM_construct_int("mode", &mode);
	if (a->digest)
		*p++ = OSSL_PARAM_construct_utf8_string("digest", (char *)(uintptr_t)a->digest, 0);
	if (a->key)
		*p++ = OSSL_PARAM_construct_octet_string("key", (void *)(uintptr_t)a->key,
							 a->key_len);
	if (a->salt)
		*p++ = OSSL_PARAM_construct_octet_string("salt", (void *)(uintptr_t)a->salt,
							 a->salt_len);
	*p++ = OSSL_PARAM_construct_octet_string("prefix", (char *)(uintptr_t)"tls13 ", 6);
	if (a->label)
		*p++ = OSSL_PARAM_construct_octet_string("label", (void *)(uintptr_t)a->label,
							 a->label_len);
	if (a->data)
		*p++ = OSSL_PARAM_construct_octet_string("data", (void *)(uintptr_t)a->data,
							 a->data_len);
	*p = OSSL_PARAM_construct_end();
	copy = EVP_KDF_CTX_dup(ctx); /* OpenSSL 3.0's own cannot */
	r = EVP_KDF_derive(copy ? copy : ctx, out, len, params);
	EVP_KDF_CTX_free(copy);
	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
	ERR_clear_error();
	return r > 0;
}

static void assert_hex(const unsigned char *have, const char *hex)
{
	long len;
	unsigned char *want = OPENSSL_hexstr2buf(hex, &len);

	assert_memory_equal(have, want, (size_t)len);
	OPENSSL_free(want);
}

/* RFC 8448 section 3: early, derived and handshake secret. */
static void test_rfc8448(void **state)
{
	long len;
	unsigned char early[32], hs[32], key[16];
	unsigned char *shared = OPENSSL_hexstr2buf(
		"8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d", &len);
	unsigned char *secret = OPENSSL_hexstr2buf(
		"b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38", &len);
	struct ask a = { .mode = EXTRACT, .digest = "SHA256", .label = "derived", .label_len = 7 };

	assert_true(derive(TLS_PROPERTIES, &a, early, 32));
	assert_hex(early, "33ad0a1c607ec03b09e6cd9893680ce210adf300aa1f2660e1b22e10f170f92a");
	a.salt = early;
	a.salt_len = 32;
	a.key = shared;
	a.key_len = 32;
	assert_true(derive(TLS_PROPERTIES, &a, hs, 32));
	assert_hex(hs, "1dc826e93606aa6fdc0aadc12f741b01046aa6b99f691ed221a9f0ca043fbeac");
	a = (struct ask){ .mode = EXPAND,
			  .digest = "SHA256",
			  .key = secret,
			  .key_len = 32,
			  .label = "key",
			  .label_len = 3 };
	assert_true(derive(TLS_PROPERTIES, &a, key, 16));
	assert_hex(key, "3fce516009c21727d0f2e4e86ee403bc");
	OPENSSL_free(shared);
	OPENSSL_free(secret);
}

/* Libssl gets ours by the optional property, and what insists on another provider gets that. */
static void test_who_answers(void **state)
{
	EVP_KDF *ours = EVP_KDF_fetch(NULL, "TLS13-KDF", TLS_PROPERTIES);
	EVP_KDF *theirs = EVP_KDF_fetch(NULL, "TLS13-KDF", "provider=default");
	EVP_MD *md = EVP_MD_fetch(NULL, "SHA256", TLS_PROPERTIES);

	assert_string_equal(OSSL_PROVIDER_get0_name(EVP_KDF_get0_provider(ours)), "headgate");
	assert_string_equal(OSSL_PROVIDER_get0_name(EVP_KDF_get0_provider(theirs)), "default");
	assert_string_equal(OSSL_PROVIDER_get0_name(EVP_MD_get0_provider(md)), "default");
	EVP_MD_free(md);
	EVP_KDF_free(ours);
	EVP_KDF_free(theirs);
}

static void compare(const struct ask *a, size_t len)
{
	unsigned char ours[512] = { 0 }, theirs[512] = { 1 };

	assert_true(len <= sizeof(ours));
	assert_true(derive("provider=default", a, theirs, len));
	assert_true(derive("provider=headgate", a, ours, len));
	assert_memory_equal(ours, theirs, len);
}

static void test_same_as_openssl(void **state)
{
	static const struct {
		const char *name;
		size_t size;
	} digests[] = {
		{ "SHA256", 32 }, { "SHA2-256", 32 }, { "SHA384", 48 }, { "SHA2-384", 48 }
	};
	static const size_t lengths[] = { 1, 12, 16, 31, 32, 33, 48, 49, 96, 97, 300 };
	unsigned char key[300], salt[48], data[48];
	char label[200];

	RAND_bytes(key, sizeof(key));
	RAND_bytes(salt, sizeof(salt));
	RAND_bytes(data, sizeof(data));
	RAND_bytes((unsigned char *)label, sizeof(label));
	for (size_t d = 0; d < 4; d++) {
		struct ask a = { .digest = digests[d].name, .label = label, .label_len = 7 };
		size_t size = digests[d].size;

		for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			a.mode = EXPAND;
			a.key = key;
			a.key_len = size;
			a.label_len = 1 + 19 * i;
			a.data = i % 3 ? data : NULL;
			a.data_len = i % 3 == 1 ? 0 : size;
			compare(&a, lengths[i]);
			a.mode = EXTRACT;
			a.data = NULL;
			a.key = i % 2 ? key : NULL;
			a.key_len = lengths[i];
			a.salt = i % 4 > 1 ? salt : NULL;
			a.salt_len = size;
			compare(&a, size);
			a.salt = NULL;
		}
	}
}

static void test_refused(void **state)
{
	static const unsigned char key[64] = { 7 };
	unsigned char out[64];
	struct ask good = { .mode = EXPAND,
			    .digest = "SHA256",
			    .key = key,
			    .key_len = 32,
			    .label = "x",
			    .label_len = 1 };
	struct ask a = good;

	assert_true(derive("provider=headgate", &a, out, 32));
	a.digest = "SHA512";
	assert_false(derive("provider=headgate", &a, out, 32));
	a.digest = NULL;
	assert_false(derive("provider=headgate", &a, out, 32));
	a = good;
	a.mode = -1; /* none */
	assert_false(derive("provider=headgate", &a, out, 32));
	a.mode = EVP_KDF_HKDF_MODE_EXTRACT_AND_EXPAND;
	assert_false(derive("provider=headgate", &a, out, 32));
	a = good;
	a.key = NULL;
	assert_false(derive("provider=headgate", &a, out, 32));
	a = good;
	a.label_len = 250; /* with the prefix more than a byte can say */
	assert_false(derive("provider=headgate", &a, out, 32));
	a = good;
	a.mode = EXTRACT;
	assert_false(derive("provider=headgate", &a, out, 31));
}

static int set_up(void **state)
{
	net_tls_global_init();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rfc8448),
		cmocka_unit_test(test_who_answers),
		cmocka_unit_test(test_same_as_openssl),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
