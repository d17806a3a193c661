/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Facts about a TLS connection for rules and logs, one small function per group. Worker's thread; text
 * is constant or in the caller's arena.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

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

/* As in the certificate: "YYMMDDhhmmssZ". */
static int ret_time(struct sample *ret, struct arena *arena, const ASN1_TIME *t)
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

static int client_field(X509 *x, enum subject_tls_field f, struct arena *arena, struct sample *ret)
{
	switch (f) {
	case TLS_CLIENT_DER:
		return ret_der(ret, arena, x);
	case TLS_CLIENT_S_DN:
		return ret_dn(ret, arena, X509_get_subject_name(x));
	case TLS_CLIENT_I_DN:
		return ret_dn(ret, arena, X509_get_issuer_name(x));
	case TLS_CLIENT_SERIAL: {
		const ASN1_INTEGER *n = X509_get0_serialNumber(x);

		return ret_copy(ret, SAMPLE_BIN, arena, ASN1_STRING_get0_data(n),
				(size_t)ASN1_STRING_length(n));
	}
	case TLS_CLIENT_SHA1:
		return ret_sha1(ret, arena, x);
	case TLS_CLIENT_NOTBEFORE:
		return ret_time(ret, arena, X509_get0_notBefore(x));
	case TLS_CLIENT_NOTAFTER:
		return ret_time(ret, arena, X509_get0_notAfter(x));
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

static int open_field(const struct conn *c, const struct tls *t, enum subject_tls_field f,
		      struct arena *arena, struct sample *ret)
{
	SSL *ssl = t->ssl;
	X509 *x;

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
	case TLS_SERVER_DER:
		return ret_der(ret, arena, server_cert(c, ssl));
	default:
		x = client_cert(c, ssl);
		return x ? client_field(x, f, arena, ret) : -ENOENT;
	}
}

int conn_tls_field(const struct conn *c, enum subject_tls_field f, struct arena *arena,
		   struct sample *ret)
{
	const struct tls *t = c->tls;

	if (!t)
		return -ENOENT;
	switch (f) {
	case TLS_SNI:
		return t->sni ? ret_copy(ret, SAMPLE_STR, arena, t->sni, strlen(t->sni)) : -ENOENT;
	case TLS_ERROR:
		return ret_sint(ret, SAMPLE_SINT, (int64_t)t->ssl_err);
	default:
		break;
	}
	if (!t->ssl)
		return -ENOENT;
	switch (f) {
	case TLS_VERIFY_RESULT:
		return ret_sint(ret, SAMPLE_SINT, SSL_get_verify_result(t->ssl));
	case TLS_CA_ERROR:
		return ret_sint(ret, SAMPLE_SINT, t->verify_depth > 0 ? t->verify_err : 0);
	case TLS_CLIENT_VERIFY_DEPTH:
		return ret_sint(ret, SAMPLE_SINT, t->verify_depth);
	case TLS_ALPN: {
		struct str alpn = conn_alpn(c);

		return alpn.len ? ret_copy(ret, SAMPLE_STR, arena, alpn.p, alpn.len) : -ENOENT;
	}
	default:
		return SSL_is_init_finished(t->ssl) ? open_field(c, t, f, arena, ret) : -ENOENT;
	}
}
