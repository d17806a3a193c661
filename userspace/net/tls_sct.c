/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Signed certificate timestamps (RFC 6962 3.3): the list of logs' signatures that a certificate comes with in FILE.sctl,
 * sent to clients that ask for it: in the certificate message of TLS 1.3, in the ServerHello before.
 */
#include <errno.h>

#include "base/buf.h"
#include "net/tls_priv.h"

int sct_check(struct str list, struct err *err)
{
	const uint8_t *p = (const uint8_t *)list.p;
	size_t at = 2;

	if (list.len < 4 || list.len > 2 + (size_t)UINT16_MAX || get_be16(p) != list.len - 2)
		return err_set(err, -EINVAL, "not a list of signed certificate timestamps");
	while (at < list.len) {
		size_t len = list.len - at < 2 ? 0 : get_be16(p + at);

		if (len == 0 || len > list.len - at - 2)
			return err_set(err, -EINVAL,
				       "the list of signed certificate timestamps is "
				       "cut off");
		at += 2 + len;
	}
	return 0;
}

int sct_load(struct cert *c, struct err *err)
{
	char *text;
	size_t len;
	int r;

	if (c->identity[CRT_SCTL] == 0)
		return 0;
	r = net_read_file(c->paths[CRT_SCTL], &text, &len, err);
	if (r)
		return r;
	r = sct_check(str_make(text, len), err);
	if (r) {
		mem_free(text);
		return err_prefix(err, r, "'%s'", c->paths[CRT_SCTL]);
	}
	c->sctl = text;
	c->sctl_len = len;
	return 0;
}

/* --- in the handshake: workers --- */

/* OpenSSL calls it only when the client has asked (RFC 8446 4.2). */
static int on_add(SSL *ssl, unsigned type, unsigned context, const unsigned char **out,
		  size_t *out_len, X509 *x, size_t chain_index, int *alert, void *arg)
{
	const struct tls *t = SSL_get_app_data(ssl);
	const struct cert *c = cert_chosen(t->set, SSL_get_certificate(ssl));

	if (!c || !c->sctl || ((context & SSL_EXT_TLS1_3_CERTIFICATE) && chain_index != 0))
		return 0;
	*out = (const unsigned char *)c->sctl;
	*out_len = c->sctl_len;
	return 1;
}

int tls_ctx_add_sct(SSL_CTX *ctx)
{
	return SSL_CTX_add_custom_ext(ctx, TLSEXT_TYPE_signed_certificate_timestamp,
				      SSL_EXT_CLIENT_HELLO | SSL_EXT_TLS1_2_SERVER_HELLO |
					      SSL_EXT_TLS1_3_CERTIFICATE,
				      on_add, NULL, NULL, NULL, NULL)
		       ? 0
		       : -ENOMEM;
}
