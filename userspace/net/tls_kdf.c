/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The key schedule of TLS 1.3 (RFC 8446 7.1) as a provider of OpenSSL, inside this process. A handshake derives two dozen
 * secrets, and OpenSSL 3's own function spends 5 µs on each with looking digests up by name, allocating four
 * contexts and copying every input; what has to be computed are four to eight blocks of SHA-2, less than 1 µs.
 *
 * Contexts ask for it by the optional property "?provider=headgate", so a configuration of OpenSSL that insists
 * on something else (FIPS) gets what it insists on. Any thread; no state, no memory.
 */
#define OPENSSL_SUPPRESS_DEPRECATED /* the SHA functions: public, stable, and without look-ups */
#include <errno.h>
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <openssl/sha.h>
#include <string.h>
#include <strings.h>

#include "net/tls_priv.h"

#define HASH_MAX  SHA384_DIGEST_LENGTH
#define BLOCK_MAX SHA512_CBLOCK
#define INFO_MAX  (2 + 1 + 255 + 1 + 255) /* struct HkdfLabel */

union hash_ctx {
	SHA256_CTX sha256;
	SHA512_CTX sha512;
};

struct hash {
	const char *names[3];
	size_t size, block;
	int (*init)(union hash_ctx *c);
	int (*update)(union hash_ctx *c, const void *data, size_t len);
	int (*final)(unsigned char *out, union hash_ctx *c);
};

static int init_256(union hash_ctx *c)
{
	return SHA256_Init(&c->sha256);
}

static int update_256(union hash_ctx *c, const void *data, size_t len)
{
	return SHA256_Update(&c->sha256, data, len);
}

static int final_256(unsigned char *out, union hash_ctx *c)
{
	return SHA256_Final(out, &c->sha256);
}

static int init_384(union hash_ctx *c)
{
	return SHA384_Init(&c->sha512);
}

static int update_384(union hash_ctx *c, const void *data, size_t len)
{
	return SHA384_Update(&c->sha512, data, len);
}

static int final_384(unsigned char *out, union hash_ctx *c)
{
	return SHA384_Final(out, &c->sha512);
}

/* All that the cipher suites of RFC 8446 use. */
static const struct hash hashes[] = {
	{ { "SHA256", "SHA2-256", "SHA-256" },
	  SHA256_DIGEST_LENGTH,
	  SHA256_CBLOCK,
	  init_256,
	  update_256,
	  final_256 },
	{ { "SHA384", "SHA2-384", "SHA-384" },
	  SHA384_DIGEST_LENGTH,
	  SHA512_CBLOCK,
	  init_384,
	  update_384,
	  final_384 },
};

static const struct hash *hash_by_name(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(hashes) / sizeof(hashes[0]); i++) {
		for (size_t k = 0; k < 3; k++) {
			const char *n = hashes[i].names[k];

			if (strlen(n) == len && strncasecmp(n, name, len) == 0)
				return &hashes[i];
		}
	}
	return NULL;
}

/* --- HMAC (RFC 2104), a key at a time --- */

struct hmac {
	const struct hash *h;
	union hash_ctx keyed_in, keyed_out; /* the key is hashed in; copied for every message */
};

static void hmac_key(struct hmac *m, const struct hash *h, const void *key, size_t len)
{
	unsigned char pad[BLOCK_MAX] = { 0 };

	m->h = h;
	if (len > h->block) {
		h->init(&m->keyed_in);
		h->update(&m->keyed_in, key, len);
		h->final(pad, &m->keyed_in);
	} else if (len) {
		memcpy(pad, key, len);
	}
	for (size_t i = 0; i < h->block; i++)
		pad[i] ^= 0x36;
	h->init(&m->keyed_in);
	h->update(&m->keyed_in, pad, h->block);
	for (size_t i = 0; i < h->block; i++)
		pad[i] ^= 0x36 ^ 0x5c;
	h->init(&m->keyed_out);
	h->update(&m->keyed_out, pad, h->block);
	OPENSSL_cleanse(pad, sizeof(pad));
}

/* `out` may be one of the pieces. */
static void hmac_of(const struct hmac *m, struct str a, struct str b, struct str c,
		    unsigned char *out)
{
	union hash_ctx x = m->keyed_in;

	m->h->update(&x, a.p, a.len);
	m->h->update(&x, b.p, b.len);
	m->h->update(&x, c.p, c.len);
	m->h->final(out, &x);
	x = m->keyed_out;
	m->h->update(&x, out, m->h->size);
	m->h->final(out, &x);
}

/* --- RFC 5869 and RFC 8446 7.1 --- */

/* What a derivation is given. p NULL: absent. */
struct kdf_input {
	const struct hash *h;
	bool has_mode, is_extract;
	struct str key, salt, prefix, label, data;
};

static int expand(const struct hash *h, struct str secret, struct str info, unsigned char *out,
		  size_t len)
{
	unsigned char t[HASH_MAX];
	struct hmac m;
	char counter = 1;

	if (len > 255 * h->size)
		return 0;
	hmac_key(&m, h, secret.p, secret.len);
	for (size_t done = 0, n; done < len; done += n, counter++) {
		n = len - done < h->size ? len - done : h->size;
		hmac_of(&m, str_make((char *)t, done ? h->size : 0), info, str_make(&counter, 1),
			t);
		memcpy(out + done, t, n);
	}
	OPENSSL_cleanse(t, sizeof(t));
	OPENSSL_cleanse(&m, sizeof(m));
	return 1;
}

static size_t put_vector(char *p, struct str a, struct str b)
{
	*p++ = (char)(a.len + b.len);
	if (a.len)
		memcpy(p, a.p, a.len);
	if (b.len)
		memcpy(p + a.len, b.p, b.len);
	return 1 + a.len + b.len;
}

static int expand_label(const struct kdf_input *in, struct str secret, struct str data,
			unsigned char *out, size_t len)
{
	char info[INFO_MAX];
	size_t n = 2;

	if (len > UINT16_MAX || in->prefix.len + in->label.len > 255 || data.len > 255)
		return 0;
	info[0] = (char)(len >> 8);
	info[1] = (char)len;
	n += put_vector(info + n, in->prefix, in->label);
	n += put_vector(info + n, data, STR_NULL);
	return expand(in->h, secret, str_make(info, n), out, len);
}

/* The next secret of the schedule's left column: Derive-Secret(salt, "derived", ""), then HKDF-Extract. */
static int extract(const struct kdf_input *in, unsigned char *out, size_t len)
{
	static const char zeros[HASH_MAX];
	unsigned char derived[HASH_MAX], empty[HASH_MAX];
	struct str key = in->key.p ? in->key : str_make(zeros, in->h->size), salt = STR_NULL;
	union hash_ctx x;
	struct hmac m;

	if (len != in->h->size)
		return 0;
	if (in->salt.p) {
		salt = str_make((char *)derived, in->h->size);
		in->h->init(&x);
		in->h->final(empty, &x);
		if (!expand_label(in, in->salt, str_make((char *)empty, in->h->size), derived,
				  in->h->size))
			return 0;
	}
	hmac_key(&m, in->h, salt.p, salt.len);
	hmac_of(&m, key, STR_NULL, STR_NULL, out);
	OPENSSL_cleanse(derived, sizeof(derived));
	OPENSSL_cleanse(&m, sizeof(m));
	return 1;
}

/* --- the provider --- */

static bool take_mode(const OSSL_PARAM *p, struct kdf_input *in)
{
	int mode;

	in->has_mode = true;
	if (p->data_type == OSSL_PARAM_UTF8_STRING) {
		in->is_extract = strncmp(p->data, "EXTRACT_ONLY", p->data_size) == 0;
		return in->is_extract || strncmp(p->data, "EXPAND_ONLY", p->data_size) == 0;
	}
	if (!OSSL_PARAM_get_int(p, &mode))
		return false;
	in->is_extract = mode == EVP_KDF_HKDF_MODE_EXTRACT_ONLY;
	return in->is_extract || mode == EVP_KDF_HKDF_MODE_EXPAND_ONLY;
}

static bool take_param(const OSSL_PARAM *p, struct kdf_input *in)
{
	const struct {
		const char *name;
		struct str *to;
	} octets[] = {
		{ OSSL_KDF_PARAM_KEY, &in->key },	{ OSSL_KDF_PARAM_SALT, &in->salt },
		{ OSSL_KDF_PARAM_PREFIX, &in->prefix }, { OSSL_KDF_PARAM_LABEL, &in->label },
		{ OSSL_KDF_PARAM_DATA, &in->data },
	};

	if (strcmp(p->key, OSSL_KDF_PARAM_MODE) == 0)
		return take_mode(p, in);
	if (strcmp(p->key, OSSL_KDF_PARAM_DIGEST) == 0) {
		if (p->data_type == OSSL_PARAM_UTF8_STRING)
			in->h = hash_by_name(p->data, strnlen(p->data, p->data_size));
		return in->h != NULL;
	}
	for (size_t i = 0; i < sizeof(octets) / sizeof(octets[0]); i++) {
		if (strcmp(p->key, octets[i].name) != 0)
			continue;
		if (p->data_type != OSSL_PARAM_OCTET_STRING)
			return false;
		*octets[i].to = str_make(p->data, p->data_size);
		return true;
	}
	return true; /* "properties": which digest to fetch; we fetch none */
}

/* Everything comes with the call, as libssl does it: the context holds nothing and is the provider itself. */
static int kdf_derive(void *ctx, unsigned char *out, size_t len, const OSSL_PARAM params[])
{
	struct kdf_input in = { 0 };

	(void)ctx;
	for (const OSSL_PARAM *p = params; p && p->key; p++) {
		if (!take_param(p, &in))
			return 0;
	}
	if (!in.h || !in.has_mode || (!in.is_extract && !in.key.p))
		return 0;
	return in.is_extract ? extract(&in, out, len)
			     : expand_label(&in, in.key, in.data, out, len);
}

static void *kdf_new(void *provider)
{
	return provider;
}

static void *kdf_dup(void *ctx)
{
	return ctx;
}

static void kdf_nothing(void *ctx)
{
	(void)ctx;
}

static const OSSL_DISPATCH kdf_functions[] = {
	{ OSSL_FUNC_KDF_NEWCTX, (void (*)(void))kdf_new },
	{ OSSL_FUNC_KDF_DUPCTX, (void (*)(void))kdf_dup },
	{ OSSL_FUNC_KDF_FREECTX, (void (*)(void))kdf_nothing },
	{ OSSL_FUNC_KDF_RESET, (void (*)(void))kdf_nothing },
	{ OSSL_FUNC_KDF_DERIVE, (void (*)(void))kdf_derive },
	{ 0, NULL },
};

static const OSSL_ALGORITHM kdfs[] = {
	{ OSSL_KDF_NAME_TLS1_3_KDF, "provider=headgate", kdf_functions, "key schedule of TLS 1.3" },
	{ NULL, NULL, NULL, NULL },
};

static const OSSL_ALGORITHM *query(void *provider, int operation, int *no_cache)
{
	(void)provider;
	*no_cache = 0;
	return operation == OSSL_OP_KDF ? kdfs : NULL;
}

static const OSSL_DISPATCH provider_functions[] = {
	{ OSSL_FUNC_PROVIDER_QUERY_OPERATION, (void (*)(void))query },
	{ 0, NULL },
};

static int provider_init(const OSSL_CORE_HANDLE *core, const OSSL_DISPATCH *in,
			 const OSSL_DISPATCH **out, void **ret)
{
	static char instance; /* what a context has to point to */

	(void)core;
	(void)in;
	*out = provider_functions;
	*ret = &instance;
	return 1;
}

int tls_kdf_global_init(void)
{
	/* For ever: OpenSSL takes providers down itself, but not this reference. */
	static OSSL_PROVIDER *ours;

	/* Beside whatever OpenSSL's configuration loads, or its default. */
	if (!ours && OSSL_PROVIDER_add_builtin(NULL, "headgate", provider_init))
		ours = OSSL_PROVIDER_try_load(NULL, "headgate", 1);
	return ours ? 0 : -ENOSYS;
}
