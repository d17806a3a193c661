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
	OPENSSL_free(o->id);
	mem_free(o);
}

struct ocsp_staple *ocsp_dup(const struct ocsp_staple *o)
{
	struct ocsp_staple *copy = o ? mem_zalloc(sizeof(*copy)) : NULL;

	if (!copy)
		return NULL;
	*copy = *o;
	copy->der = mem_alloc(o->len ? o->len : 1);
	copy->id = OPENSSL_memdup(o->id, o->id_len);
	if (copy->der && copy->id) {
		memcpy(copy->der, o->der, o->len);
		return copy;
	}
	ocsp_free(copy);
	return NULL;
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

/* As HAProxy names responses: by SHA-1 when the issuer is known, else as the responder does. */
static int set_id(struct ocsp_staple *o, const struct cert *c, OCSP_SINGLERESP *single,
		  struct err *err)
{
	X509 *issuer = issuer_of(c);
	OCSP_CERTID *mine = issuer ? OCSP_cert_to_id(NULL, c->x509, issuer) : NULL;
	int len = i2d_OCSP_CERTID(mine ? mine : OCSP_SINGLERESP_get0_id(single), &o->id);

	OCSP_CERTID_free(mine);
	if (len <= 0)
		return err_set(err, -ENOMEM, "out of memory");
	o->id_len = (size_t)len;
	return 0;
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
		return set_id(o, c, single, err);
	}
	return err_set(err, -EINVAL, "the OCSP response is about another certificate");
}

/* The answers in a response that is a good one; free it by OCSP_BASICRESP_free(). */
static int read_basic(struct str der, OCSP_BASICRESP **ret, struct err *err)
{
	const unsigned char *p = (const unsigned char *)der.p;
	OCSP_RESPONSE *rsp = d2i_OCSP_RESPONSE(NULL, &p, (long)der.len);
	int r = 0;

	*ret = NULL;
	if (!rsp)
		r = err_set(err, -EINVAL, "not an OCSP response in DER");
	else if (OCSP_response_status(rsp) != OCSP_RESPONSE_STATUS_SUCCESSFUL)
		r = err_set(err, -EINVAL, "the OCSP response says '%s'",
			    OCSP_response_status_str(OCSP_response_status(rsp)));
	else if (!(*ret = OCSP_response_get1_basic(rsp)))
		r = err_set(err, -EINVAL, "the OCSP response is not a basic one");
	OCSP_RESPONSE_free(rsp);
	ERR_clear_error();
	return r;
}

static int staple_new(const struct cert *c, OCSP_BASICRESP *basic, struct str der,
		      struct ocsp_staple **ret, struct err *err)
{
	struct ocsp_staple *o = mem_zalloc(sizeof(*o));
	int r;

	if (!o || !(o->der = mem_alloc(der.len ? der.len : 1)))
		r = err_set(err, -ENOMEM, "out of memory");
	else
		r = judge(basic, c, o, err);
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

int ocsp_parse(const struct cert *c, struct str der, struct ocsp_staple **ret, struct err *err)
{
	OCSP_BASICRESP *basic;
	int r = read_basic(der, &basic, err);

	if (r == 0)
		r = staple_new(c, basic, der, ret, err);
	OCSP_BASICRESP_free(basic);
	return r;
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

/* --- at run time: control --- */

void ocsp_response_free(void *old)
{
	ocsp_free(old);
}

/* A serial number alone means nothing: the issuer has to be known, or what is stapled already. */
static bool may_get(const struct cert *c)
{
	return c->x509 && (issuer_of(c) || c->ocsp);
}

static int set_for_all(struct cert_store *s, OCSP_BASICRESP *basic, struct str der,
		       void (*retire)(void *ctx, void *old), void *ctx, struct err *err)
{
	unsigned n_set = 0;

	for (size_t i = 0; i < s->files[TLS_CERT].cap; i++) {
		const struct namemap_slot *slot = &s->files[TLS_CERT].slots[i];
		struct cert *c = slot->key ? slot->value : NULL;
		struct ocsp_staple *o, *old;
		struct err why;
		int r;

		if (!c || !may_get(c))
			continue;
		r = staple_new(c, basic, der, &o, &why);
		if (r == -EINVAL) /* about another */
			continue;
		if (r)
			return err_set(err, r, "%s", why.text);
		old = atomic_exchange_explicit(&c->ocsp, o, memory_order_acq_rel);
		/* Files are the truth again after a reload: what was read of this one is not. */
		c->identity[CRT_OCSP] = 1;
		if (old)
			retire(ctx, old);
		n_set++;
	}
	return n_set ? 0
		     : err_set(err, -ENOENT,
			       "the OCSP response is about none of the certificates that are "
			       "loaded with their issuer");
}

int cert_store_set_ocsp(struct cert_store *s, struct str base64,
			void (*retire)(void *ctx, void *old), void *ctx, struct err *err)
{
	OCSP_BASICRESP *basic = NULL;
	char *der;
	size_t len;
	int r = cert_decode_base64(base64, &der, &len);

	if (r)
		return err_set(err, r, r == -ENOMEM ? "out of memory" : "not base64");
	r = read_basic(str_make(der, len), &basic, err);
	if (r == 0)
		r = set_for_all(s, basic, str_make(der, len), retire, ctx, err);
	OCSP_BASICRESP_free(basic);
	mem_free(der);
	return r;
}

/* --- in the handshake: workers --- */

const struct cert *cert_chosen(const struct cert_set *set, const X509 *x)
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
	const struct cert *c = cert_chosen(t->set, SSL_get_certificate(ssl));
	const struct ocsp_staple *o;
	unsigned char *copy;

	(void)arg;
	/* Of this call only: control may replace it (quiescence, docs/THREADS.md). */
	o = c ? atomic_load_explicit(&c->ocsp, memory_order_acquire) : NULL;
	if (!o || o->expires < time(NULL))
		return SSL_TLSEXT_ERR_NOACK;
	/* OpenSSL frees what it is given. */
	copy = OPENSSL_memdup(o->der, o->len);
	if (!copy)
		return SSL_TLSEXT_ERR_NOACK;
	SSL_set_tlsext_status_ocsp_resp(ssl, copy, (long)o->len);
	return SSL_TLSEXT_ERR_OK;
}
