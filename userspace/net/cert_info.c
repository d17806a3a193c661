/* SPDX-License-Identifier: BSD-2-Clause */
/* Certificates as text, for `show ssl cert` and `show ssl ocsp-response`. Control thread. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ocsp.h>
#include <openssl/x509v3.h>
#include <time.h>

#include "net/tls_priv.h"

static int compare_names(const void *a, const void *b)
{
	return strcmp((*(struct cert *const *)a)->path, (*(struct cert *const *)b)->path);
}

int cert_store_each_cert(const struct cert_store *s,
			 int (*fn)(void *ctx, const char *path, bool is_empty, bool has_ocsp),
			 void *ctx)
{
	struct cert **all = mem_alloc((s->certs.n + 1) * sizeof(struct cert *));
	size_t n = 0;
	int r = 0;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < s->certs.cap; i++) {
		if (s->certs.slots[i].key && s->certs.slots[i].value)
			all[n++] = s->certs.slots[i].value;
	}
	qsort(all, n, sizeof(struct cert *), compare_names);
	for (size_t i = 0; i < n && r == 0; i++)
		r = fn(ctx, all[i]->path, !all[i]->x509, all[i]->ocsp != NULL);
	mem_free(all);
	return r;
}

/* --- one --- */

static void put_hex(FILE *out, const char *label, const unsigned char *p, size_t len)
{
	fprintf(out, "%s: ", label);
	for (size_t i = 0; i < len; i++)
		fprintf(out, "%02X", p[i]);
	fputc('\n', out);
}

/* OpenSSL prints to BIOs: one over memory, emptied to `out`. */
static void put_bio(FILE *out, const char *label, BIO *bio)
{
	char *text;
	long len = BIO_get_mem_data(bio, &text);

	fprintf(out, "%s: %.*s\n", label, (int)len, text);
	(void)BIO_reset(bio);
}

static void put_time(FILE *out, const char *label, const ASN1_TIME *t, BIO *bio)
{
	if (ASN1_TIME_print(bio, t))
		put_bio(out, label, bio);
}

static void put_name(FILE *out, const char *label, const X509_NAME *name)
{
	char *text = X509_NAME_oneline(name, NULL, 0);

	fprintf(out, "%s: %s\n", label, text ? text : "");
	OPENSSL_free(text);
}

static void put_alt_names(FILE *out, X509 *x, BIO *bio)
{
	GENERAL_NAMES *all = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);

	for (int i = 0; i < sk_GENERAL_NAME_num(all); i++) {
		if (i)
			BIO_puts(bio, ", ");
		GENERAL_NAME_print(bio, sk_GENERAL_NAME_value(all, i));
	}
	GENERAL_NAMES_free(all);
	ERR_clear_error();
	put_bio(out, "Subject Alternative Name", bio);
}

static void put_algorithm(FILE *out, EVP_PKEY *key)
{
	int id = key ? EVP_PKEY_get_base_id(key) : 0;
	const char *name = id == EVP_PKEY_RSA ? "RSA" : id == EVP_PKEY_EC ? "EC" : OBJ_nid2sn(id);

	fprintf(out, "Algorithm: %s%d\n", name, key ? EVP_PKEY_get_bits(key) : 0);
}

static void put_cert(FILE *out, const struct cert *c, BIO *bio)
{
	unsigned char md[EVP_MAX_MD_SIZE];
	const ASN1_INTEGER *serial = X509_get0_serialNumber(c->x509);
	unsigned len;

	put_hex(out, "Serial", ASN1_STRING_get0_data(serial), (size_t)ASN1_STRING_length(serial));
	put_time(out, "notBefore", X509_get0_notBefore(c->x509), bio);
	put_time(out, "notAfter", X509_get0_notAfter(c->x509), bio);
	put_alt_names(out, c->x509, bio);
	put_algorithm(out, X509_get0_pubkey(c->x509));
	if (X509_digest(c->x509, EVP_sha1(), md, &len))
		put_hex(out, "SHA1 FingerPrint", md, len);
	put_name(out, "Subject", X509_get_subject_name(c->x509));
	put_name(out, "Issuer", X509_get_issuer_name(c->x509));
	for (int i = 0; i < sk_X509_num(c->chain); i++) {
		put_name(out, "Chain Subject", X509_get_subject_name(sk_X509_value(c->chain, i)));
		put_name(out, "Chain Issuer", X509_get_issuer_name(sk_X509_value(c->chain, i)));
	}
	fprintf(out, "OCSP Response: %s\n",
		!c->ocsp			? "none"
		: c->ocsp->expires < time(NULL) ? "expired"
						: OCSP_cert_status_str(c->ocsp->status));
}

int cert_store_describe(const struct cert_store *s, const struct cert_change *ch, const char *path,
			FILE *out)
{
	const struct cert *c = ch ? cert_change_cert(ch)
				  : namemap_get(&s->certs, str_from_cstr(path));
	BIO *bio;

	if (!c)
		return -ENOENT;
	fprintf(out, "Filename: %s%s\n", ch ? "*" : "", c->path);
	fprintf(out, "Status: %s\n", !c->x509 ? "Empty" : c->is_used ? "Used" : "Unused");
	if (!c->x509)
		return 0;
	bio = BIO_new(BIO_s_mem());
	if (!bio)
		return -ENOMEM;
	put_cert(out, c, bio);
	BIO_free(bio);
	return 0;
}

int cert_store_describe_ocsp(const struct cert_store *s, const char *path, FILE *out)
{
	const struct cert *c = namemap_get(&s->certs, str_from_cstr(path));
	const unsigned char *p;
	OCSP_RESPONSE *rsp;
	BIO *bio;
	char *text;
	long len;

	if (!c || !c->ocsp)
		return -ENOENT;
	p = c->ocsp->der;
	rsp = d2i_OCSP_RESPONSE(NULL, &p, (long)c->ocsp->len);
	bio = BIO_new(BIO_s_mem());
	if (rsp && bio && OCSP_RESPONSE_print(bio, rsp, 0)) {
		len = BIO_get_mem_data(bio, &text);
		fwrite(text, 1, (size_t)len, out);
	}
	OCSP_RESPONSE_free(rsp);
	BIO_free(bio);
	ERR_clear_error();
	return 0;
}
