/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * OCSP stapling (RFC 6066 8, RFC 6960): the answer of the certificate's authority, from a file in DER or from
 * the runtime API, sent to clients that ask for it while it is valid. Headgate does not fetch it by itself.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ocsp.h>
#include <time.h>

#include "net/tls_priv.h"

#define CLOCK_SKEW 300 /* seconds, as HAProxy */

void ocsp_free(struct ocsp_staple *o)
{
	if (!o)
		return;
	mem_free(o->der);
	mem_free(o);
}

static X509 *issuer_of(const struct cert *c)
{
	for (int i = 0; i < sk_X509_num(c->chain); i++) {
		X509 *x = sk_X509_value(c->chain, i);

		if (X509_check_issued(x, c->x509) == X509_V_OK)
			return x;
	}
	return c->issuer;
}

/* By serial number, and by the issuer's name and key when the chain has it. */
static bool is_about(OCSP_SINGLERESP *single, const struct cert *c)
{
	OCSP_CERTID *id = (OCSP_CERTID *)(uintptr_t)OCSP_SINGLERESP_get0_id(single), *mine;
	X509 *issuer = issuer_of(c);
	ASN1_OBJECT *hash;
	ASN1_INTEGER *serial;
	bool is_same;

	if (!OCSP_id_get0_info(NULL, &hash, NULL, &serial, id) ||
	    ASN1_INTEGER_cmp(serial, X509_get0_serialNumber(c->x509)) != 0)
		return false;
	if (!issuer)
		return true;
	mine = OCSP_cert_to_id(EVP_get_digestbyobj(hash), c->x509, issuer);
	is_same = mine && OCSP_id_cmp(mine, id) == 0;
	OCSP_CERTID_free(mine);
	return is_same;
}

static int64_t to_seconds(const ASN1_GENERALIZEDTIME *t)
{
	struct tm tm;

	return t && ASN1_TIME_to_tm(t, &tm) ? (int64_t)timegm(&tm) : INT64_MAX;
}

static int judge(OCSP_BASICRESP *basic, const struct cert *c, struct ocsp_staple *o,
		 struct err *err)
{
	ASN1_GENERALIZEDTIME *this_update, *next_update;

	for (int i = 0; i < OCSP_resp_count(basic); i++) {
		OCSP_SINGLERESP *single = OCSP_resp_get0(basic, i);

		if (!is_about(single, c))
			continue;
		o->status = OCSP_single_get0_status(single, NULL, NULL, &this_update, &next_update);
		if (!OCSP_check_validity(this_update, next_update, CLOCK_SKEW, -1))
			return err_set(err, -ETIME, "the OCSP response is not valid %s",
				       to_seconds(next_update) < time(NULL) ? "any more" : "yet");
		o->expires = to_seconds(next_update);
		return 0;
	}
	return err_set(err, -EINVAL, "the OCSP response is about another certificate");
}

int ocsp_parse(const struct cert *c, struct str der, struct ocsp_staple **ret, struct err *err)
{
	const unsigned char *p = (const unsigned char *)der.p;
	OCSP_RESPONSE *rsp = d2i_OCSP_RESPONSE(NULL, &p, (long)der.len);
	OCSP_BASICRESP *basic = NULL;
	struct ocsp_staple *o = mem_zalloc(sizeof(*o));
	int r;

	if (!o || !(o->der = mem_alloc(der.len ? der.len : 1)))
		r = err_set(err, -ENOMEM, "out of memory");
	else if (!rsp)
		r = err_set(err, -EINVAL, "not an OCSP response in DER");
	else if (OCSP_response_status(rsp) != OCSP_RESPONSE_STATUS_SUCCESSFUL)
		r = err_set(err, -EINVAL, "the OCSP response says '%s'",
			    OCSP_response_status_str(OCSP_response_status(rsp)));
	else if (!(basic = OCSP_response_get1_basic(rsp)))
		r = err_set(err, -EINVAL, "the OCSP response is not a basic one");
	else
		r = judge(basic, c, o, err);
	OCSP_BASICRESP_free(basic);
	OCSP_RESPONSE_free(rsp);
	ERR_clear_error();
	if (r) {
		ocsp_free(o);
		return r;
	}
	memcpy(o->der, der.p, der.len);
	o->len = der.len;
	*ret = o;
	return 0;
}

int ocsp_load(struct cert *c, struct err *err)
{
	const char *path = c->paths[CRT_OCSP];
	struct ocsp_staple *o;
	char *text;
	size_t len;
	int r;

	if (!path || c->identity[CRT_OCSP] == 0)
		return 0;
	r = net_read_file(path, &text, &len, err);
	if (r)
		return r;
	r = ocsp_parse(c, str_make(text, len), &o, err);
	mem_free(text);
	if (r)
		return err_prefix(err, r, "'%s'", path);
	c->ocsp = o;
	return 0;
}

/* --- in the handshake: workers --- */

static const struct cert *chosen(const struct cert_set *set, const X509 *x)
{
	for (unsigned i = 0; set && i < CERT_TYPES; i++) {
		if (set->certs[i] && set->certs[i]->x509 == x)
			return set->certs[i];
	}
	return NULL;
}

int tls_on_status(SSL *ssl, void *arg)
{
	const struct tls *t = SSL_get_app_data(ssl);
	const struct cert *c = chosen(t->set, SSL_get_certificate(ssl));
	unsigned char *copy;

	(void)arg;
	if (!c || !c->ocsp || c->ocsp->expires < time(NULL))
		return SSL_TLSEXT_ERR_NOACK;
	/* OpenSSL frees what it is given. */
	copy = OPENSSL_memdup(c->ocsp->der, c->ocsp->len);
	if (!copy)
		return SSL_TLSEXT_ERR_NOACK;
	SSL_set_tlsext_status_ocsp_resp(ssl, copy, (long)c->ocsp->len);
	return SSL_TLSEXT_ERR_OK;
}
