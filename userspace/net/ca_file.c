/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Authorities that a peer's certificate may come from, and what they have revoked: files (or directories) of the
 * store, and the X509_STOREs that contexts verify with, one per pair of both. Control thread; contexts keep
 * references to the X509_STOREs, which nobody writes once they are built.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <sys/stat.h>

#include "net/tls_priv.h"

static const char *const nouns[] = { [TLS_CA] = "CA file", [TLS_CRL] = "CRL file" };

struct ca_file *ca_file_new(const char *path)
{
	struct ca_file *f = mem_zalloc(sizeof(*f));

	if (!f)
		return NULL;
	f->file.path = mem_strdup(str_from_cstr(path));
	if (f->file.path)
		return f;
	mem_free(f);
	return NULL;
}

void ca_file_free(struct ca_file *f)
{
	if (!f)
		return;
	sk_X509_pop_free(f->certs, X509_free);
	sk_X509_CRL_pop_free(f->crls, X509_CRL_free);
	mem_free(f->file.path);
	mem_free(f);
}

/* --- reading --- */

static int add_cert(struct ca_file *f, const struct pem_block *b, bool has_trust)
{
	const unsigned char *p = b->der;
	X509 *x = has_trust ? d2i_X509_AUX(NULL, &p, b->len) : d2i_X509(NULL, &p, b->len);

	if (!x)
		return -EINVAL;
	if (!f->certs)
		f->certs = sk_X509_new_null();
	if (f->certs && sk_X509_push(f->certs, x))
		return 0;
	X509_free(x);
	return -ENOMEM;
}

static int add_crl(struct ca_file *f, const struct pem_block *b)
{
	const unsigned char *p = b->der;
	X509_CRL *crl = d2i_X509_CRL(NULL, &p, b->len);

	if (!crl)
		return -EINVAL;
	if (!f->crls)
		f->crls = sk_X509_CRL_new_null();
	if (f->crls && sk_X509_CRL_push(f->crls, crl))
		return 0;
	X509_CRL_free(crl);
	return -ENOMEM;
}

/* Keys and comments that stand beside are skipped. */
static int add_block(void *ctx, const struct pem_block *b, struct err *err)
{
	struct ca_file *f = ctx;
	bool has_trust = str_is_eq(b->type, STR("TRUSTED CERTIFICATE"));
	int r;

	if (has_trust || pem_is_cert(b))
		r = add_cert(f, b, has_trust);
	else if (str_is_eq(b->type, STR("X509 CRL")))
		r = add_crl(f, b);
	else
		return 0;
	if (r)
		return pem_bad_block(b, r, err);
	f->digest = str_hash(str_make((const char *)b->der, (size_t)b->len), f->digest);
	return 0;
}

static bool is_empty(const struct ca_file *f, enum tls_file_kind kind)
{
	return kind == TLS_CRL ? !f->crls : !f->certs;
}

int ca_file_parse(struct ca_file *f, struct str text, struct err *err)
{
	return pem_each(f->file.path, text, add_block, f, err);
}

int ca_file_read(struct ca_file *f, const char *path, struct err *err)
{
	char *text;
	size_t len;
	int r = net_read_file(path, &text, &len, err);

	if (r)
		return r;
	r = pem_each(path, str_make(text, len), add_block, f, err);
	mem_free(text);
	return r;
}

static bool is_ca_name(struct str name)
{
	static const char *const suffixes[] = { ".pem", ".crt", ".cer", ".crl" };

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		if (str_is_suffix(name, str_from_cstr(suffixes[i])))
			return true;
	}
	return false;
}

static int read_dir(struct ca_file *f, const char *dir, struct err *err)
{
	struct name_list l = { 0 };
	int r = name_list_read(&l, dir, is_ca_name, err);

	for (size_t i = 0; i < l.n && r == 0; i++) {
		char path[4096];
		int n = snprintf(path, sizeof(path), "%s/%s", dir, l.names[i]);

		if (n < 0 || (size_t)n >= sizeof(path))
			r = err_set(err, -ENAMETOOLONG, "path of '%s' in '%s' is too long",
				    l.names[i], dir);
		else
			r = ca_file_read(f, path, err);
	}
	name_list_free(&l);
	return r;
}

static int load(struct ca_file *f, enum tls_file_kind kind, struct err *err)
{
	const char *path = f->file.path;
	struct stat st;
	int r;

	if (stat(path, &st) < 0)
		return err_set(err, -errno, "cannot open %s '%s': %s", nouns[kind], path,
			       strerror(errno));
	r = S_ISDIR(st.st_mode) ? read_dir(f, path, err) : ca_file_read(f, path, err);
	if (r == 0 && is_empty(f, kind))
		r = err_set(err, -EINVAL, "no %s in '%s'%s",
			    kind == TLS_CRL ? "revocation list" : "CA certificate", path,
			    S_ISDIR(st.st_mode) ? " (files .pem, .crt, .cer and .crl)" : "");
	return r;
}

/* The store's, read now unless it was before. */
static int ca_file_get(struct cert_store *s, enum tls_file_kind kind, const char *path,
		       struct ca_file **ret, struct err *err)
{
	struct ca_file *f = namemap_get(&s->files[kind], str_from_cstr(path));
	void **slot;
	int r;

	if (!f && s->is_frozen)
		return err_set(err, -ENOENT, "%s '%s' is not loaded", nouns[kind], path);
	if (f && is_empty(f, kind))
		return err_set(err, -ENOENT, "%s '%s' is empty", nouns[kind], path);
	if (!f) {
		f = ca_file_new(path);
		r = f ? load(f, kind, err) : err_set(err, -ENOMEM, "out of memory");
		slot = r ? NULL : namemap_put(&s->files[kind], str_from_cstr(path));
		if (!slot) {
			ca_file_free(f);
			return r ? r : err_set(err, -ENOMEM, "out of memory");
		}
		*slot = f;
	}
	f->file.is_used = true;
	*ret = f;
	return tls_uses_add(s, kind == TLS_CRL ? TLS_USED_CRL : TLS_USED_CA, path, err);
}

/* --- verifying with it --- */

static bool is_system(const char *path)
{
	return strcmp(path, "@system-ca") == 0;
}

static bool add_crls(X509_STORE *to, const struct ca_file *f)
{
	for (int i = 0; f && i < sk_X509_CRL_num(f->crls); i++) {
		if (!X509_STORE_add_crl(to, sk_X509_CRL_value(f->crls, i)))
			return false;
	}
	return true;
}

/* `ca` NULL: those of the system. */
static X509_STORE *make_store(const struct ca_file *ca, const struct ca_file *crl)
{
	X509_STORE *to = X509_STORE_new();
	bool ok = to && (ca || X509_STORE_set_default_paths(to));

	for (int i = 0; ok && ca && i < sk_X509_num(ca->certs); i++)
		ok = X509_STORE_add_cert(to, sk_X509_value(ca->certs, i));
	ok = ok && add_crls(to, ca) && add_crls(to, crl);
	if (ok && crl)
		X509_STORE_set_flags(to, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
	if (ok)
		return to;
	X509_STORE_free(to);
	return NULL;
}

static int store_get(struct cert_store *s, const struct tls_ca *names, const struct ca_file *ca,
		     const struct ca_file *crl, X509_STORE **ret, struct err *err)
{
	char key[8192];
	void **slot;
	int n = snprintf(key, sizeof(key), "%s\n%s", names->ca, names->crl ? names->crl : "");

	if (n < 0 || (size_t)n >= sizeof(key))
		return err_set(err, -ENAMETOOLONG, "path of the CA file is too long");
	*ret = namemap_get(&s->cas, str_from_cstr(key));
	if (*ret)
		return 0;
	*ret = make_store(ca, crl);
	if (!*ret)
		return err_set(err, -EINVAL, "cannot use CA certificates of '%s': %s", names->ca,
			       tls_reason());
	slot = namemap_put(&s->cas, str_from_cstr(key));
	if (!slot) {
		X509_STORE_free(*ret);
		return err_set(err, -ENOMEM, "out of memory");
	}
	*slot = *ret;
	return 0;
}

static bool has_name(STACK_OF(X509_NAME) * names, const X509_NAME *name)
{
	for (int i = 0; i < sk_X509_NAME_num(names); i++) {
		if (X509_NAME_cmp(sk_X509_NAME_value(names, i), name) == 0)
			return true;
	}
	return false;
}

/* The names a server sends in its CertificateRequest. */
static int set_names(SSL_CTX *ctx, const struct ca_file *f, struct err *err)
{
	STACK_OF(X509_NAME) *names = sk_X509_NAME_new_null();
	bool ok = names != NULL;

	for (int i = 0; ok && i < sk_X509_num(f->certs); i++) {
		const X509_NAME *subject = X509_get_subject_name(sk_X509_value(f->certs, i));
		X509_NAME *copy;

		if (has_name(names, subject))
			continue;
		copy = X509_NAME_dup(subject);
		ok = copy && sk_X509_NAME_push(names, copy);
		if (!ok)
			X509_NAME_free(copy);
	}
	if (!ok) {
		sk_X509_NAME_pop_free(names, X509_NAME_free);
		return err_set(err, -ENOMEM, "out of memory");
	}
	SSL_CTX_set_client_CA_list(ctx, names);
	return 0;
}

int tls_ctx_set_ca(SSL_CTX *ctx, struct cert_store *s, const struct tls_ca *names,
		   uint64_t *ret_digest, struct err *err)
{
	struct ca_file *ca = NULL, *crl = NULL, *told = NULL;
	X509_STORE *store;
	int r = 0;

	if (!is_system(names->ca))
		r = ca_file_get(s, TLS_CA, names->ca, &ca, err);
	if (r == 0 && names->crl)
		r = ca_file_get(s, TLS_CRL, names->crl, &crl, err);
	if (r == 0 && names->names && !is_system(names->names))
		r = ca_file_get(s, TLS_CA, names->names, &told, err);
	if (r == 0)
		r = store_get(s, names, ca, crl, &store, err);
	if (r)
		return r;
	SSL_CTX_set1_cert_store(ctx, store);
	if (ret_digest)
		*ret_digest = (ca ? ca->digest : 0) * 31 + (crl ? crl->digest : 0);
	ERR_clear_error();
	return told ? set_names(ctx, told, err) : 0;
}

static void drop_store(void *value)
{
	X509_STORE_free(value);
}

void ca_stores_forget(struct cert_store *s)
{
	namemap_free(&s->cas, drop_store);
}

/* --- at run time --- */

static struct tls_file *make_file(const char *path)
{
	struct ca_file *f = ca_file_new(path);

	return f ? &f->file : NULL;
}

static struct tls_file *copy_file(const struct tls_file *file)
{
	const struct ca_file *old = (const struct ca_file *)file;
	struct ca_file *f = ca_file_new(file->path);

	if (!f)
		return NULL;
	f->file.is_live = file->is_live;
	f->digest = old->digest;
	f->certs = old->certs ? X509_chain_up_ref(old->certs) : NULL;
	f->crls = old->crls ? sk_X509_CRL_dup(old->crls) : NULL;
	for (int i = 0; i < sk_X509_CRL_num(f->crls); i++)
		X509_CRL_up_ref(sk_X509_CRL_value(f->crls, i));
	if (!f->certs == !old->certs && !f->crls == !old->crls)
		return &f->file;
	ca_file_free(f);
	return NULL;
}

static void put_file(void *f)
{
	ca_file_free(f);
}

static int stage(struct ca_file *f, enum tls_file_kind kind, struct str payload, bool adds,
		 struct err *err)
{
	int before = kind == TLS_CRL ? sk_X509_CRL_num(f->crls) : sk_X509_num(f->certs), r;

	if (!adds) {
		sk_X509_pop_free(f->certs, X509_free);
		sk_X509_CRL_pop_free(f->crls, X509_CRL_free);
		f->certs = NULL;
		f->crls = NULL;
		f->digest = 0;
		before = -1;
	}
	r = pem_each(f->file.path, payload, add_block, f, err);
	if (r)
		return r;
	if ((kind == TLS_CRL ? sk_X509_CRL_num(f->crls) : sk_X509_num(f->certs)) > before)
		return 0;
	return err_set(err, -EINVAL, "no %s in the payload",
		       kind == TLS_CRL ? "revocation list" : "CA certificate");
}

static int stage_ca(struct tls_file *f, struct str payload, bool adds, struct err *err)
{
	return stage((struct ca_file *)f, TLS_CA, payload, adds, err);
}

static int stage_crl(struct tls_file *f, struct str payload, bool adds, struct err *err)
{
	return stage((struct ca_file *)f, TLS_CRL, payload, adds, err);
}

/* Nothing that staging has not seen to. */
static int finish_file(struct tls_file *f, struct err *err)
{
	return 0;
}

static const struct tls_file_part ca_part = { .stage = stage_ca },
				  crl_part = { .stage = stage_crl };

const struct tls_file_ops ca_file_ops = {
	.noun = "CA file",
	.parts = &ca_part,
	.n_parts = 1,
	.make = make_file,
	.copy = copy_file,
	.put = put_file,
	.finish = finish_file,
};
const struct tls_file_ops crl_file_ops = {
	.noun = "CRL file",
	.parts = &crl_part,
	.n_parts = 1,
	.make = make_file,
	.copy = copy_file,
	.put = put_file,
	.finish = finish_file,
};
