/* SPDX-License-Identifier: BSD-2-Clause */
/* Certificates, authorities and revocation lists as text, for `show ssl …`. Control thread. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ocsp.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <time.h>

#include "net/tls_priv.h"

static int compare_names(const void *a, const void *b)
{
	return strcmp((*(struct tls_file *const *)a)->path, (*(struct tls_file *const *)b)->path);
}

static struct tls_file_facts facts_of(enum tls_file_kind kind, const struct tls_file *f)
{
	struct tls_file_facts facts = { .path = f->path };

	if (kind == TLS_CERT) {
		const struct cert *c = (const struct cert *)f;

		facts.is_empty = !c->x509;
		facts.has_ocsp = c->ocsp != NULL;
		facts.n_certs = c->x509 != NULL;
	} else {
		const struct ca_file *ca = (const struct ca_file *)f;

		facts.is_empty = !ca->certs && !ca->crls;
		facts.n_certs = ca->certs ? (unsigned)sk_X509_num(ca->certs) : 0;
	}
	return facts;
}

int cert_store_each_file(const struct cert_store *s, enum tls_file_kind kind,
			 int (*fn)(void *ctx, const struct tls_file_facts *f), void *ctx)
{
	const struct namemap *m = &s->files[kind];
	struct tls_file **all = mem_alloc((m->n + 1) * sizeof(struct tls_file *));
	size_t n = 0;
	int r = 0;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < m->cap; i++) {
		if (m->slots[i].key && m->slots[i].value)
			all[n++] = m->slots[i].value;
	}
	qsort(all, n, sizeof(struct tls_file *), compare_names);
	for (size_t i = 0; i < n && r == 0; i++) {
		struct tls_file_facts f = facts_of(kind, all[i]);

		r = fn(ctx, &f);
	}
	mem_free(all);
	return r;
}

unsigned tls_change_n_certs(const struct tls_change *ch)
{
	return facts_of(TLS_CA, tls_change_file(ch)).n_certs;
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

static void put_x509(FILE *out, X509 *x, BIO *bio)
{
	unsigned char md[EVP_MAX_MD_SIZE];
	const ASN1_INTEGER *serial = X509_get0_serialNumber(x);
	unsigned len;

	put_hex(out, "Serial", ASN1_STRING_get0_data(serial), (size_t)ASN1_STRING_length(serial));
	put_time(out, "notBefore", X509_get0_notBefore(x), bio);
	put_time(out, "notAfter", X509_get0_notAfter(x), bio);
	put_alt_names(out, x, bio);
	put_algorithm(out, X509_get0_pubkey(x));
	if (X509_digest(x, EVP_sha1(), md, &len))
		put_hex(out, "SHA1 FingerPrint", md, len);
	put_name(out, "Subject", X509_get_subject_name(x));
	put_name(out, "Issuer", X509_get_issuer_name(x));
}

static void put_cert(FILE *out, const struct cert *c, BIO *bio)
{
	const struct ocsp_staple *o = c->ocsp;

	put_x509(out, c->x509, bio);
	for (int i = 0; i < sk_X509_num(c->chain); i++) {
		put_name(out, "Chain Subject", X509_get_subject_name(sk_X509_value(c->chain, i)));
		put_name(out, "Chain Issuer", X509_get_issuer_name(sk_X509_value(c->chain, i)));
	}
	fprintf(out, "OCSP Response: %s\n",
		!o			  ? "none"
		: o->expires < time(NULL) ? "expired"
					  : OCSP_cert_status_str(o->status));
}

static void put_revoked(FILE *out, const X509_REVOKED *one, BIO *bio)
{
	i2a_ASN1_INTEGER(bio, X509_REVOKED_get0_serialNumber(one));
	put_bio(out, "    Serial Number", bio);
	put_time(out, "        Revocation Date", X509_REVOKED_get0_revocationDate(one), bio);
}

static void put_crl(FILE *out, X509_CRL *crl, BIO *bio)
{
	STACK_OF(X509_REVOKED) *all = X509_CRL_get_REVOKED(crl);

	fprintf(out, "Version %ld\n", X509_CRL_get_version(crl) + 1);
	fprintf(out, "Signature Algorithm: %s\n", OBJ_nid2ln(X509_CRL_get_signature_nid(crl)));
	put_name(out, "Issuer", X509_CRL_get_issuer(crl));
	put_time(out, "Last Update", X509_CRL_get0_lastUpdate(crl), bio);
	if (X509_CRL_get0_nextUpdate(crl))
		put_time(out, "Next Update", X509_CRL_get0_nextUpdate(crl), bio);
	fputs(sk_X509_REVOKED_num(all) > 0 ? "Revoked Certificates:\n"
					   : "No Revoked Certificates.\n",
	      out);
	for (int i = 0; i < sk_X509_REVOKED_num(all); i++)
		put_revoked(out, sk_X509_REVOKED_value(all, i), bio);
}

static void put_ca_file(FILE *out, const struct ca_file *f, enum tls_file_kind kind,
			unsigned number, BIO *bio)
{
	int n = kind == TLS_CRL ? sk_X509_CRL_num(f->crls) : sk_X509_num(f->certs);

	for (int i = 0; i < n; i++) {
		if (number && number - 1 != (unsigned)i)
			continue;
		fprintf(out, "\n%s #%d:\n",
			kind == TLS_CRL ? "Certificate Revocation List" : "Certificate", i + 1);
		if (kind == TLS_CRL)
			put_crl(out, sk_X509_CRL_value(f->crls, i), bio);
		else
			put_x509(out, sk_X509_value(f->certs, i), bio);
	}
}

int cert_store_describe(const struct cert_store *s, enum tls_file_kind kind,
			const struct tls_change *ch, const char *path, unsigned number, FILE *out)
{
	const struct tls_file *f = ch ? tls_change_file(ch)
				      : namemap_get(&s->files[kind], str_from_cstr(path));
	bool is_empty;
	BIO *bio;

	if (!f)
		return -ENOENT;
	is_empty = facts_of(kind, f).is_empty;
	fprintf(out, "Filename: %s%s\n", ch ? "*" : "", f->path);
	fprintf(out, "Status: %s\n", is_empty ? "Empty" : f->is_used ? "Used" : "Unused");
	if (is_empty)
		return 0;
	bio = BIO_new(BIO_s_mem());
	if (!bio)
		return -ENOMEM;
	if (kind == TLS_CERT)
		put_cert(out, (const struct cert *)f, bio);
	else
		put_ca_file(out, (const struct ca_file *)f, kind, number, bio);
	BIO_free(bio);
	return 0;
}

/* --- OCSP responses --- */

static void put_id(FILE *out, const struct ocsp_staple *o)
{
	const unsigned char *p = o->id;
	OCSP_CERTID *id = d2i_OCSP_CERTID(NULL, &p, (long)o->id_len);
	ASN1_OCTET_STRING *name, *key;
	ASN1_INTEGER *serial;

	if (id && OCSP_id_get0_info(&name, NULL, &key, &serial, id)) {
		fputs("    Certificate ID:\n", out);
		put_hex(out, "      Issuer Name Hash", ASN1_STRING_get0_data(name),
			(size_t)ASN1_STRING_length(name));
		put_hex(out, "      Issuer Key Hash", ASN1_STRING_get0_data(key),
			(size_t)ASN1_STRING_length(key));
		put_hex(out, "      Serial Number", ASN1_STRING_get0_data(serial),
			(size_t)ASN1_STRING_length(serial));
	}
	OCSP_CERTID_free(id);
}

struct ocsp_list {
	const struct cert_store *s;
	FILE *out;
};

static int put_ocsp(void *ctx, const struct tls_file_facts *f)
{
	const struct ocsp_list *l = ctx;
	const struct cert *c = namemap_get(&l->s->files[TLS_CERT], str_from_cstr(f->path));
	const struct ocsp_staple *o = c ? c->ocsp : NULL;

	if (!o)
		return 0;
	fputs("  Certificate ID key : ", l->out);
	for (size_t i = 0; i < o->id_len; i++)
		fprintf(l->out, "%02x", o->id[i]);
	fprintf(l->out, "\n    Certificate path : %s\n", f->path);
	put_id(l->out, o);
	return 0;
}

void cert_store_list_ocsp(const struct cert_store *s, FILE *out)
{
	struct ocsp_list l = { s, out };

	fputs("# Certificate IDs\n", out);
	(void)cert_store_each_file(s, TLS_CERT, put_ocsp, &l);
}

static bool is_id(const struct ocsp_staple *o, struct str hex)
{
	if (!o || hex.len != o->id_len * 2)
		return false;
	for (size_t i = 0; i < o->id_len; i++) {
		char text[3];

		snprintf(text, sizeof(text), "%02x", o->id[i]);
		if (!str_is_case_eq(str_sub(hex, i * 2, 2), str_make(text, 2)))
			return false;
	}
	return true;
}

static const struct ocsp_staple *find_response(const struct cert_store *s, struct str name)
{
	const struct cert *c = namemap_get(&s->files[TLS_CERT], name);

	if (c)
		return c->ocsp;
	for (size_t i = 0; i < s->files[TLS_CERT].cap; i++) {
		const struct namemap_slot *slot = &s->files[TLS_CERT].slots[i];

		c = slot->key ? slot->value : NULL;
		if (c && is_id(c->ocsp, name))
			return c->ocsp;
	}
	return NULL;
}

static int put_base64(FILE *out, const struct ocsp_staple *o)
{
	char *text = mem_alloc(o->len / 3 * 4 + 5);

	if (!text)
		return -ENOMEM;
	EVP_EncodeBlock((unsigned char *)text, o->der, (int)o->len);
	fprintf(out, "%s\n", text);
	mem_free(text);
	return 0;
}

static int put_response(FILE *out, const struct ocsp_staple *o)
{
	const unsigned char *p = o->der;
	OCSP_RESPONSE *rsp = d2i_OCSP_RESPONSE(NULL, &p, (long)o->len);
	BIO *bio = BIO_new(BIO_s_mem());
	char *text;
	long len;

	if (rsp && bio && OCSP_RESPONSE_print(bio, rsp, 0)) {
		len = BIO_get_mem_data(bio, &text);
		fwrite(text, 1, (size_t)len, out);
	}
	OCSP_RESPONSE_free(rsp);
	BIO_free(bio);
	ERR_clear_error();
	return 0;
}

int cert_store_describe_ocsp(const struct cert_store *s, const char *name, bool is_base64,
			     FILE *out)
{
	const struct ocsp_staple *o = find_response(s, str_from_cstr(name));

	if (!o)
		return -ENOENT;
	return is_base64 ? put_base64(out, o) : put_response(out, o);
}

/* --- parts of a certificate --- */

static int put_issuer(FILE *out, const struct cert *c)
{
	BIO *bio = c->issuer ? BIO_new(BIO_s_mem()) : NULL;

	if (!bio)
		return c->issuer ? -ENOMEM : -ENOENT;
	fprintf(out, "Filename: %s.issuer\n", c->file.path);
	put_x509(out, c->issuer, bio);
	BIO_free(bio);
	return 0;
}

int cert_store_describe_part(const struct cert_store *s, const struct tls_change *ch,
			     const char *name, FILE *out)
{
	static const struct str suffixes[] = { { ".ocsp", 5 }, { ".issuer", 7 } };
	struct str n = str_from_cstr(name);

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		struct str path = str_sub(n, 0, n.len - suffixes[i].len);
		const struct cert *c;

		if (!str_is_suffix(n, suffixes[i]))
			continue;
		c = ch ? (const struct cert *)tls_change_file(ch)
		       : namemap_get(&s->files[TLS_CERT], path);
		if (!c || !str_is_eq(str_from_cstr(c->file.path), path))
			continue;
		if (i)
			return put_issuer(out, c);
		return c->ocsp ? put_response(out, c->ocsp) : -ENOENT;
	}
	return -ENOENT;
}
