/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Settings of an SSL_CTX that bind and server lines share: versions, ciphers, curves. Control
 * thread. A context is made once per line (or crt-list option set) and only read by workers.
 */
#include <errno.h>
#include <openssl/err.h>

#include "net/tls_priv.h"

const char *tls_reason(void)
{
	unsigned long e = ERR_peek_last_error();
	const char *text = e ? ERR_reason_error_string(e) : NULL;

	ERR_clear_error();
	return text ? text : "unknown reason";
}

/*
 * 128 bits first: both are far beyond reach, and SHA-256, which processors have instructions for, takes a sixth of the
 * time of SHA-384 in the two dozen derivations of a handshake. Clients that ask for ChaCha20 first get it.
 */
#define SERVER_SUITES "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"

SSL_CTX *tls_ctx_new(bool is_server)
{
	SSL_CTX *ctx = SSL_CTX_new_ex(NULL, TLS_PROPERTIES,
				      is_server ? TLS_server_method() : TLS_client_method());

	if (!ctx)
		return NULL;
	/* Peers that end without close_notify are the rule, not the exception: a plain end. */
	SSL_CTX_set_options(ctx, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
					 SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_PRIORITIZE_CHACHA);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_read_ahead(ctx, 1);
	/* A second one costs a twentieth of a handshake, for clients that come back with two connections at once. */
	SSL_CTX_set_num_tickets(ctx, 1);
	if (is_server && !SSL_CTX_set_ciphersuites(ctx, SERVER_SUITES)) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	return ctx;
}

static bool is_ignored(const struct conf_verify_errors *set, int code)
{
	return code > 0 && code <= CONF_VERIFY_ERROR_MAX &&
	       (set->bits[code / 64] >> (code % 64) & 1);
}

int tls_on_verify(int ok, X509_STORE_CTX *x)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(x, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct tls *t = ssl ? SSL_get_app_data(ssl) : NULL;
	const struct tls_profile *p;
	int code, depth;

	if (ok || !t)
		return ok;
	p = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
	code = X509_STORE_CTX_get_error(x);
	depth = X509_STORE_CTX_get_error_depth(x);
	if (depth == 0 && t->crt_err == 0) {
		t->crt_err = code;
	} else if (depth > 0 && t->ca_err == 0) {
		t->ca_err = code;
		t->ca_depth = depth;
	}
	return p && is_ignored(depth ? &p->ca_ignore : &p->crt_ignore, code);
}

void tls_ctx_set_verify(SSL_CTX *ctx, int mode)
{
	SSL_CTX_set_verify(ctx, mode, tls_on_verify);
}

static const char *version_name(unsigned v)
{
	static const char *const names[] = { "SSLv3", "TLSv1.0", "TLSv1.1", "TLSv1.2", "TLSv1.3" };

	return v >= SSL3_VERSION && v <= TLS1_3_VERSION ? names[v - SSL3_VERSION] : "?";
}

static int set_versions(SSL_CTX *ctx, const struct conf_tls *t, const struct conf_tls *d,
			struct err *err)
{
	unsigned min = t->min_version ? t->min_version : d->min_version;
	unsigned max = t->max_version ? t->max_version : d->max_version;

	/* As HAProxy: TLS 1.2 unless something older is asked for. */
	if (min == 0)
		min = max && max < TLS1_2_VERSION ? max : TLS1_2_VERSION;
	if (max && min > max)
		return err_set(err, -EINVAL, "ssl-min-ver %s is above ssl-max-ver %s",
			       version_name(min), version_name(max));
	if (!SSL_CTX_set_min_proto_version(ctx, (int)min) ||
	    !SSL_CTX_set_max_proto_version(ctx, (int)max))
		return err_set(err, -EINVAL, "this OpenSSL does not offer %s", version_name(min));
	return 0;
}

static const char *either(const char *a, const char *b)
{
	return a ? a : b;
}

int tls_ctx_configure(SSL_CTX *ctx, const struct conf_tls *t, const struct conf_tls *dflt,
		      struct err *err)
{
	const char *v;
	int r = set_versions(ctx, t, dflt, err);

	if (r)
		return r;
	v = either(t->ciphers, dflt->ciphers);
	if (v && !SSL_CTX_set_cipher_list(ctx, v))
		return err_set(err, -EINVAL, "ciphers '%.200s': %s", v, tls_reason());
	v = either(t->ciphersuites, dflt->ciphersuites);
	if (v && !SSL_CTX_set_ciphersuites(ctx, v))
		return err_set(err, -EINVAL, "ciphersuites '%.200s': %s", v, tls_reason());
	v = either(t->curves, dflt->curves);
	if (v && !SSL_CTX_set1_curves_list(ctx, v))
		return err_set(err, -EINVAL, "curves '%.200s': not known to OpenSSL", v);
	v = either(t->sigalgs, dflt->sigalgs);
	if (v && !SSL_CTX_set1_sigalgs_list(ctx, v))
		return err_set(err, -EINVAL, "sigalgs '%.200s': not known to OpenSSL", v);
	if (!t->prefer_client_ciphers && !dflt->prefer_client_ciphers)
		SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE);
	v = either(t->client_sigalgs, dflt->client_sigalgs);
	if (v && !SSL_CTX_set1_client_sigalgs_list(ctx, v))
		return err_set(err, -EINVAL, "client-sigalgs '%.200s': not known to OpenSSL", v);
	if (t->renegotiates)
		SSL_CTX_clear_options(ctx, SSL_OP_NO_RENEGOTIATION);
	if (t->no_tickets) {
		/* TLS 1.3 knows no other resumption: without tickets there are none to send. */
		SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
		SSL_CTX_set_num_tickets(ctx, 0);
	}
	ERR_clear_error();
	return 0;
}
