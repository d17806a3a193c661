/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Facts about a TLS connection for rules and logs, one small function per group. Worker's thread; text
 * is constant or in the caller's arena.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "net/tls_priv.h"

#define DN_MAX 1024

bool conn_is_tls(const struct conn *c)
{
	return c->tls != NULL;
}

struct str conn_alpn(const struct conn *c)
{
	const struct tls *t = c->tls;
	const unsigned char *p;
	unsigned len;

	if (!t || !t->ssl)
		return STR_NULL;
	SSL_get0_alpn_selected(t->ssl, &p, &len);
	return len ? str_make((const char *)p, len) : STR_NULL;
}

struct str conn_sni(const struct conn *c)
{
	const struct tls *t = c->tls;

	return t ? str_from_cstr(t->sni) : STR_NULL;
}

static int ret_str(struct sample *ret, struct str s)
{
	*ret = (struct sample){ .type = SAMPLE_STR, .is_const = true, .str = s };
	return s.p ? 0 : -ENOENT;
}

static int ret_sint(struct sample *ret, int type, int64_t v)
{
	*ret = (struct sample){ .type = (uint8_t)type, .sint = v };
	return 0;
}

/* A copy in the arena. */
static int ret_copy(struct sample *ret, int type, struct arena *arena, const void *p, size_t len)
{
	struct str s = arena_str(arena, str_make(p, len));

	if (len && !s.p)
		return -ENOMEM;
	*ret = (struct sample){ .type = (uint8_t)type, .str = s };
	return 0;
}

static int ret_der(struct sample *ret, struct arena *arena, X509 *x)
{
	int len = x ? i2d_X509(x, NULL) : 0;
	unsigned char *mem, *p;

	if (len <= 0)
		return -ENOENT;
	mem = p = arena_alloc(arena, (size_t)len);
	if (!mem)
		return -ENOMEM;
	i2d_X509(x, &p);
	*ret = (struct sample){ .type = SAMPLE_BIN, .str = str_make((char *)mem, (size_t)len) };
	return 0;
}

/* "/C=FR/O=…/CN=…" */
static int ret_dn(struct sample *ret, struct arena *arena, const X509_NAME *name)
{
	char text[DN_MAX];

	if (!X509_NAME_oneline(name, text, sizeof(text)))
		return -ENOENT;
	return ret_copy(ret, SAMPLE_STR, arena, text, strlen(text));
}

/* As in the certificate; a time: "YYMMDDhhmmssZ". */
static int ret_text(struct sample *ret, struct arena *arena, const ASN1_STRING *t)
{
	return ret_copy(ret, SAMPLE_STR, arena, ASN1_STRING_get0_data(t),
			(size_t)ASN1_STRING_length(t));
}

static int ret_sha1(struct sample *ret, struct arena *arena, X509 *x)
{
	unsigned char md[EVP_MAX_MD_SIZE];
	unsigned len;

	if (!X509_digest(x, EVP_sha1(), md, &len))
		return -ENOENT;
	return ret_copy(ret, SAMPLE_BIN, arena, md, len);
}

/* Certificates one behind the other, as they were sent. */
static int ret_chain(struct sample *ret, struct arena *arena, STACK_OF(X509) * chain)
{
	int n = chain ? sk_X509_num(chain) : 0, len;
	unsigned char *mem, *p;
	size_t size = 0;

	for (int i = 0; i < n; i++) {
		len = i2d_X509(sk_X509_value(chain, i), NULL);
		if (len <= 0)
			return -ENOENT;
		size += (size_t)len;
	}
	if (size == 0)
		return -ENOENT;
	mem = p = arena_alloc(arena, size);
	if (!mem)
		return -ENOMEM;
	for (int i = 0; i < n; i++)
		i2d_X509(sk_X509_value(chain, i), &p);
	*ret = (struct sample){ .type = SAMPLE_BIN, .str = str_make((char *)mem, size) };
	return 0;
}

static int ret_key_alg(struct sample *ret, X509 *x)
{
	ASN1_OBJECT *alg;

	if (!X509_PUBKEY_get0_param(&alg, NULL, NULL, NULL, X509_get_X509_PUBKEY(x)))
		return -ENOENT;
	return ret_str(ret, str_from_cstr(OBJ_nid2sn(OBJ_obj2nid(alg))));
}

/* "DNS:a.example, IP Address:192.0.2.1", as `openssl x509` prints them. */
static int ret_san(struct sample *ret, struct arena *arena, X509 *x)
{
	int at = X509_get_ext_by_NID(x, NID_subject_alt_name, -1), r = -ENOENT;
	BIO *bio = at < 0 ? NULL : BIO_new(BIO_s_mem());
	char *text;
	long len;

	if (!bio)
		return at < 0 ? -ENOENT : -ENOMEM;
	if (X509V3_EXT_print(bio, X509_get_ext(x, at), 0, 0)) {
		len = BIO_get_mem_data(bio, &text);
		r = len > 0 ? ret_copy(ret, SAMPLE_STR, arena, text, (size_t)len) : -ENOENT;
	}
	BIO_free(bio);
	return r;
}

/* The first one, as HAProxy says it. */
static int ret_cn(struct sample *ret, struct arena *arena, const X509_NAME *name)
{
	int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);

	if (at < 0)
		return -ENOENT;
	return ret_text(ret, arena, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
}

/* "RSA2048", "EC256". */
static int ret_key_name(struct sample *ret, struct arena *arena, X509 *x)
{
	EVP_PKEY *key = X509_get0_pubkey(x);
	int type = key ? EVP_PKEY_get_base_id(key) : NID_undef;
	const char *name = type == EVP_PKEY_RSA	  ? "RSA"
			   : type == EVP_PKEY_EC  ? "EC"
			   : type == EVP_PKEY_DSA ? "DSA"
						  : NULL;
	struct str s;

	if (!name)
		return key ? ret_str(ret, str_from_cstr(OBJ_nid2sn(type))) : -ENOENT;
	s = arena_printf(arena, "%s%d", name, EVP_PKEY_get_bits(key));
	*ret = (struct sample){ .type = SAMPLE_STR, .str = s };
	return s.p ? 0 : -ENOMEM;
}

static int cert_field(X509 *x, enum subject_cert_field f, struct arena *arena, struct sample *ret)
{
	switch (f) {
	case CERT_DER:
		return ret_der(ret, arena, x);
	case CERT_S_DN:
		return ret_dn(ret, arena, X509_get_subject_name(x));
	case CERT_I_DN:
		return ret_dn(ret, arena, X509_get_issuer_name(x));
	case CERT_SERIAL: {
		const ASN1_INTEGER *n = X509_get0_serialNumber(x);

		return ret_copy(ret, SAMPLE_BIN, arena, ASN1_STRING_get0_data(n),
				(size_t)ASN1_STRING_length(n));
	}
	case CERT_SHA1:
		return ret_sha1(ret, arena, x);
	case CERT_NOTBEFORE:
		return ret_text(ret, arena, X509_get0_notBefore(x));
	case CERT_NOTAFTER:
		return ret_text(ret, arena, X509_get0_notAfter(x));
	case CERT_KEY_ALG:
		return ret_key_alg(ret, x);
	case CERT_SIG_ALG:
		return ret_str(ret, str_from_cstr(OBJ_nid2sn(X509_get_signature_nid(x))));
	case CERT_VERSION:
		return ret_sint(ret, SAMPLE_SINT, X509_get_version(x) + 1);
	case CERT_SAN:
		return ret_san(ret, arena, x);
	case CERT_S_CN:
		return ret_cn(ret, arena, X509_get_subject_name(x));
	case CERT_KEY_NAME:
		return ret_key_name(ret, arena, x);
	default:
		return -ENOENT;
	}
}

static int cipher_field(SSL *ssl, enum subject_tls_field f, struct sample *ret)
{
	const SSL_CIPHER *cipher = SSL_get_current_cipher(ssl);
	int alg_bits, use_bits;

	if (!cipher)
		return -ENOENT;
	use_bits = SSL_CIPHER_get_bits(cipher, &alg_bits);
	switch (f) {
	case TLS_CIPHER:
		return ret_str(ret, str_from_cstr(SSL_CIPHER_get_name(cipher)));
	case TLS_ALG_KEYSIZE:
		return ret_sint(ret, SAMPLE_SINT, alg_bits);
	default:
		return ret_sint(ret, SAMPLE_SINT, use_bits);
	}
}

static int curve_field(SSL *ssl, struct sample *ret)
{
	int nid = (int)SSL_get_negotiated_group(ssl);

	if (nid == 0 || nid & TLSEXT_nid_unknown)
		return -ENOENT;
	return ret_str(ret, str_from_cstr(OBJ_nid2sn(nid)));
}

/* A session that is resumed has the certificate of its first handshake. */
static X509 *client_cert(const struct conn *c, SSL *ssl)
{
	return c->is_server_side ? SSL_get0_peer_certificate(ssl) : SSL_get_certificate(ssl);
}

static X509 *server_cert(const struct conn *c, SSL *ssl)
{
	return c->is_server_side ? SSL_get_certificate(ssl) : SSL_get0_peer_certificate(ssl);
}

static int field_of_cert(const struct conn *c, SSL *ssl, enum subject_tls_field f,
			 struct arena *arena, struct sample *ret)
{
	enum subject_cert_field what = (enum subject_cert_field)(f & CERT_FIELD_MASK);
	bool is_client = f < TLS_SERVER_CERT;
	X509 *x = is_client ? client_cert(c, ssl) : server_cert(c, ssl);

	if (!x)
		return -ENOENT;
	if (what != CERT_CHAIN_DER)
		return cert_field(x, what, arena, ret);
	/* What the peer sent: libssl leaves a client's own certificate out of it (SSL_get_peer_cert_chain(3)). */
	return is_client == c->is_server_side ? ret_chain(ret, arena, SSL_get_peer_cert_chain(ssl))
					      : -ENOENT;
}

static int open_field(const struct conn *c, const struct tls *t, enum subject_tls_field f,
		      struct arena *arena, struct sample *ret)
{
	SSL *ssl = t->ssl;

	if (f >= TLS_CLIENT_CERT)
		return field_of_cert(c, ssl, f, arena, ret);
	switch (f) {
	case TLS_VERSION:
		return ret_str(ret, str_from_cstr(SSL_get_version(ssl)));
	case TLS_CIPHER:
	case TLS_ALG_KEYSIZE:
	case TLS_USE_KEYSIZE:
		return cipher_field(ssl, f, ret);
	case TLS_CURVE:
		return curve_field(ssl, ret);
	case TLS_IS_RESUMED:
		return ret_sint(ret, SAMPLE_BOOL, SSL_session_reused(ssl));
	case TLS_CLIENT_CERT_USED:
		return ret_sint(ret, SAMPLE_BOOL, client_cert(c, ssl) != NULL);
	case TLS_HAS_CLIENT_CERT:
		/* Sent over this very connection. */
		return ret_sint(ret, SAMPLE_BOOL,
				client_cert(c, ssl) != NULL && !SSL_session_reused(ssl));
	default:
		return -ENOENT;
	}
}

int conn_tls_field(const struct conn *c, enum subject_tls_field f, struct arena *arena,
		   struct sample *ret)
{
	const struct tls *t = c->tls;

	if (!t)
		return -ENOENT;
	if (f >= TLS_HELLO_CIPHERS && f <= TLS_SECRET_EARLY_EXPORTER)
		return tls_capture_field(t, f, arena, ret);
	switch (f) {
	case TLS_SNI:
		return t->sni ? ret_copy(ret, SAMPLE_STR, arena, t->sni, strlen(t->sni)) : -ENOENT;
	case TLS_ERROR:
		return ret_sint(ret, SAMPLE_SINT, (int64_t)t->ssl_err);
	case TLS_ERROR_TEXT: {
		char text[256];

		if (!t->ssl_err)
			return -ENOENT;
		ERR_error_string_n(t->ssl_err, text, sizeof(text));
		return ret_copy(ret, SAMPLE_STR, arena, text, strlen(text));
	}
	default:
		break;
	}
	if (!t->ssl)
		return -ENOENT;
	switch (f) {
	case TLS_VERIFY_RESULT:
		return ret_sint(ret, SAMPLE_SINT, SSL_get_verify_result(t->ssl));
	case TLS_CA_ERROR:
		return ret_sint(ret, SAMPLE_SINT, t->ca_err);
	case TLS_CLIENT_ERR:
		return ret_sint(ret, SAMPLE_SINT, t->crt_err);
	case TLS_CLIENT_VERIFY_DEPTH:
		return ret_sint(ret, SAMPLE_SINT, t->ca_depth);
	case TLS_ALPN: {
		struct str alpn = conn_alpn(c);

		return alpn.len ? ret_copy(ret, SAMPLE_STR, arena, alpn.p, alpn.len) : -ENOENT;
	}
	default:
		return SSL_is_init_finished(t->ssl) ? open_field(c, t, f, arena, ret) : -ENOENT;
	}
}
