/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Certificates and crt-lists that change while we run, by the runtime API. A built store is frozen: it stands for what
 * was read then and never looks at the disk again, so that committing one certificate does not pick up another that
 * somebody is half way through copying. Control thread; what workers use was built from the store and is replaced as
 * a whole (ctl/tls_swap.c).
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ocsp.h>
#include <stdio.h>
#include <stdlib.h>

#include "net/tls_priv.h"

void cert_store_freeze(struct cert_store *s)
{
	s->is_frozen = true;
}

/* --- using a frozen store --- */

static struct cert *cert_at(const struct cert_store *s, const char *path)
{
	return namemap_get(&s->files[TLS_CERT], str_from_cstr(path));
}

static int compare_certs(const void *a, const void *b)
{
	return strcmp((*(struct cert *const *)a)->file.path, (*(struct cert *const *)b)->file.path);
}

static bool is_directly_in(const struct cert *c, const char *dir)
{
	size_t n = strlen(dir);

	return !c->file.is_live && c->x509 && strncmp(c->file.path, dir, n) == 0 &&
	       c->file.path[n] == '/' && !strchr(c->file.path + n + 1, '/');
}

/* In the order of their names, as they were read. */
static int use_frozen_dir(struct cert_store *s, const char *dir,
			  int (*use)(void *ctx, struct cert *cert, struct err *err), void *ctx,
			  struct err *err)
{
	struct cert **found = mem_alloc((s->files[TLS_CERT].n + 1) * sizeof(struct cert *));
	size_t n = 0;
	int r = 0;

	if (!found)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < s->files[TLS_CERT].cap; i++) {
		const struct namemap_slot *slot = &s->files[TLS_CERT].slots[i];
		struct cert *c = slot->key ? slot->value : NULL;

		if (c && is_directly_in(c, dir))
			found[n++] = c;
	}
	qsort(found, n, sizeof(struct cert *), compare_certs);
	for (size_t i = 0; i < n && r == 0; i++) {
		found[i]->file.is_used = true;
		r = tls_uses_add(s, TLS_USED_CERT, found[i]->file.path, err);
		if (r == 0)
			r = use(ctx, found[i], err);
	}
	mem_free(found);
	if (r == 0 && n == 0)
		return err_set(err, -ENOENT, "certificate '%s' is not loaded", dir);
	return r;
}

static int use_frozen_bundle(struct cert_store *s, const char *path,
			     int (*use)(void *ctx, struct cert *cert, struct err *err), void *ctx,
			     unsigned *ret_n, struct err *err)
{
	static const char *const types[] = { "rsa", "ecdsa", "dsa" };

	*ret_n = 0;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		char full[4096];
		int n = snprintf(full, sizeof(full), "%s.%s", path, types[i]), r;
		struct cert *c = n < 0 || (size_t)n >= sizeof(full) ? NULL : cert_at(s, full);

		if (!c || c->file.is_live)
			continue;
		r = cert_store_get(s, full, &c, err);
		if (r == 0)
			r = use(ctx, c, err);
		if (r)
			return r;
		(*ret_n)++;
	}
	return 0;
}

int cert_store_each_frozen(struct cert_store *s, const char *path,
			   int (*use)(void *ctx, struct cert *cert, struct err *err), void *ctx,
			   struct err *err)
{
	struct cert *c;
	unsigned n;
	int r;

	if (cert_at(s, path)) {
		r = cert_store_get(s, path, &c, err);
		return r ? r : use(ctx, c, err);
	}
	r = use_frozen_bundle(s, path, use, ctx, &n, err);
	return r || n ? r : use_frozen_dir(s, path, use, ctx, err);
}

/* --- one certificate --- */

static struct tls_file *make_cert(const char *path)
{
	struct cert *c = cert_new(path);

	return c ? &c->file : NULL;
}

static struct tls_file *copy_cert(const struct tls_file *file)
{
	const struct cert *old = (const struct cert *)file;
	struct cert *c = cert_new(file->path);

	if (!c)
		return NULL;
	c->file.is_live = file->is_live;
	if (old->x509 && X509_up_ref(old->x509))
		c->x509 = old->x509;
	if (old->key && EVP_PKEY_up_ref(old->key))
		c->key = old->key;
	if (old->issuer && X509_up_ref(old->issuer))
		c->issuer = old->issuer;
	if (old->dh && EVP_PKEY_up_ref(old->dh))
		c->dh = old->dh;
	c->chain = old->chain ? X509_chain_up_ref(old->chain) : NULL;
	c->ocsp = ocsp_dup(old->ocsp);
	c->sctl = old->sctl ? mem_strdup(str_make(old->sctl, old->sctl_len)) : NULL;
	c->sctl_len = old->sctl_len;
	if ((old->x509 && !c->x509) || (old->key && !c->key) || (old->chain && !c->chain) ||
	    (old->ocsp && !c->ocsp) || (old->sctl && !c->sctl)) {
		cert_put(c);
		return NULL;
	}
	return &c->file;
}

static void put_cert(void *c)
{
	cert_put(c);
}

static int stage_pem(struct tls_file *f, struct str payload, bool adds, struct err *err)
{
	struct cert *c = (struct cert *)f;
	EVP_PKEY *key = c->key;
	int r;

	X509_free(c->x509);
	sk_X509_pop_free(c->chain, X509_free);
	c->x509 = NULL;
	c->chain = NULL;
	c->key = NULL;
	EVP_PKEY_free(c->dh);
	c->dh = NULL;
	/* They were about the one before. */
	ocsp_free(c->ocsp);
	c->ocsp = NULL;
	mem_free(c->sctl);
	c->sctl = NULL;
	r = cert_read_pem(c, c->file.path, payload, false, err);
	/* A text without key is the certificate of the key that is there. */
	if (c->key)
		EVP_PKEY_free(key);
	else
		c->key = key;
	if (r == 0 && !c->x509)
		r = err_set(err, -EINVAL, "no certificate in the payload for '%s'", c->file.path);
	return r;
}

static int stage_key(struct tls_file *f, struct str payload, bool adds, struct err *err)
{
	struct cert *c = (struct cert *)f;
	EVP_PKEY *old = c->key;
	int r;

	c->key = NULL;
	r = cert_read_pem(c, c->file.path, payload, true, err);
	if (r == 0 && !c->key)
		r = err_set(err, -EINVAL, "no private key in the payload for '%s'", c->file.path);
	if (c->key)
		EVP_PKEY_free(old);
	else
		c->key = old;
	return r;
}

int cert_decode_base64(struct str text, char **ret, size_t *ret_len)
{
	EVP_ENCODE_CTX *ctx = EVP_ENCODE_CTX_new();
	unsigned char *out = mem_alloc(text.len + 64);
	int n = 0, last = 0, r = 0;

	if (!ctx || !out || text.len > INT32_MAX / 2) {
		r = -ENOMEM;
	} else {
		EVP_DecodeInit(ctx);
		if (EVP_DecodeUpdate(ctx, out, &n, (const unsigned char *)text.p, (int)text.len) <
			    0 ||
		    EVP_DecodeFinal(ctx, out + n, &last) != 1)
			r = -EINVAL;
	}
	EVP_ENCODE_CTX_free(ctx);
	ERR_clear_error();
	if (r) {
		mem_free(out);
		return r;
	}
	*ret = (char *)out;
	*ret_len = (size_t)(n + last);
	return 0;
}

static int stage_ocsp(struct tls_file *f, struct str payload, bool adds, struct err *err)
{
	struct cert *c = (struct cert *)f;
	struct ocsp_staple *o;
	char *der;
	size_t len;
	int r;

	if (!c->x509)
		return err_set(err, -EINVAL, "'%s' has no certificate yet", c->file.path);
	r = cert_decode_base64(payload, &der, &len);
	if (r)
		return err_set(err, r, r == -ENOMEM ? "out of memory" : "not base64");
	r = ocsp_parse(c, str_make(der, len), &o, err);
	mem_free(der);
	if (r)
		return r;
	ocsp_free(c->ocsp);
	c->ocsp = o;
	return 0;
}

static int stage_issuer(struct tls_file *f, struct str payload, bool adds, struct err *err)
{
	struct cert *c = (struct cert *)f;
	struct ca_file *ca = ca_file_new(c->file.path);
	int r = ca ? ca_file_parse(ca, payload, err) : err_set(err, -ENOMEM, "out of memory");

	if (r == 0 && !ca->certs)
		r = err_set(err, -EINVAL, "no certificate in the payload for '%s'", c->file.path);
	if (r == 0 && c->x509 &&
	    X509_check_issued(sk_X509_value(ca->certs, 0), c->x509) != X509_V_OK)
		r = err_set(err, -EINVAL, "this is not the issuer of '%s'", c->file.path);
	if (r == 0 && X509_up_ref(sk_X509_value(ca->certs, 0))) {
		X509_free(c->issuer);
		c->issuer = sk_X509_value(ca->certs, 0);
	}
	ca_file_free(ca);
	return r;
}

static int stage_sctl(struct tls_file *f, struct str payload, bool adds, struct err *err)
{
	struct cert *c = (struct cert *)f;
	char *list;
	size_t len;
	int r = cert_decode_base64(payload, &list, &len);

	if (r)
		return err_set(err, r, r == -ENOMEM ? "out of memory" : "not base64");
	r = sct_check(str_make(list, len), err);
	if (r) {
		mem_free(list);
		return r;
	}
	mem_free(c->sctl);
	c->sctl = list;
	c->sctl_len = len;
	return 0;
}

static int finish_cert(struct tls_file *f, struct err *err)
{
	struct cert *c = (struct cert *)f;

	if (!c->x509 || !c->key)
		return err_set(err, -EINVAL, "'%s' has no %s yet", c->file.path,
			       c->x509 ? "private key" : "certificate");
	return c->n_names ? 0 : cert_finish(c, err);
}

static const struct tls_file_part parts[] = {
	{ .stage = stage_pem },		{ { ".key", 4 }, stage_key },
	{ { ".ocsp", 5 }, stage_ocsp }, { { ".issuer", 7 }, stage_issuer },
	{ { ".sctl", 5 }, stage_sctl },
};

const struct tls_file_ops cert_file_ops = {
	.noun = "certificate",
	.parts = parts,
	.n_parts = ARRAY_SIZE(parts),
	.make = make_cert,
	.copy = copy_cert,
	.put = put_cert,
	.finish = finish_cert,
};

/* --- crt-lists --- */

static int put_list(struct cert_store *s, const char *path, char *text)
{
	void **slot = namemap_put(&s->lists, str_from_cstr(path));

	if (!slot) {
		mem_free(text);
		return -ENOMEM;
	}
	mem_free(*slot);
	*slot = text;
	return 0;
}

static const char *list_at(const struct cert_store *s, const char *path)
{
	return namemap_get(&s->lists, str_from_cstr(path));
}

int cert_store_list_add(struct cert_store *s, const char *path, struct str line, char **ret_old,
			struct err *err)
{
	const char *old = list_at(s, path);
	size_t n = old ? strlen(old) : 0;
	char *text;

	if (!old)
		return err_set(err, -ENOENT, "crt-list '%s' does not exist", path);
	*ret_old = mem_strdup(str_from_cstr(old));
	text = mem_alloc(n + line.len + 3);
	if (!text || !*ret_old) {
		mem_free(text);
		mem_free(*ret_old);
		return err_set(err, -ENOMEM, "out of memory");
	}
	snprintf(text, n + line.len + 3, "%s%s" STR_FMT "\n", old,
		 n && old[n - 1] != '\n' ? "\n" : "", STR_ARG(line));
	return put_list(s, path, text) ? err_set(err, -ENOMEM, "out of memory") : 0;
}

/* "cert[:line]" out of the text, its line left empty so that the others keep their numbers. */
static int cut_entry(char *text, struct str cert, unsigned number, struct err *err)
{
	unsigned line = 0, n_found = 0;
	char *begin = NULL;
	size_t len = 0;

	for (char *p = text; *p;) {
		size_t n = strcspn(p, "\n");
		struct str s = str_trim(str_make(p, n));
		size_t word = 0;

		line++;
		while (word < s.len && s.p[word] != ' ' && s.p[word] != '\t')
			word++;
		if (str_is_eq(str_sub(s, 0, word), cert) && (number == 0 || number == line)) {
			n_found++;
			begin = p;
			len = n;
		}
		p += n + (p[n] == '\n');
	}
	if (n_found == 0)
		return err_set(err, -ENOENT, "certificate '" STR_FMT "' not found in the crt-list",
			       STR_ARG(cert));
	if (n_found > 1)
		return err_set(err, -EINVAL,
			       "certificate '" STR_FMT "' is there %u times: add ':<line>', as "
			       "'show ssl crt-list -n' tells",
			       STR_ARG(cert), n_found);
	memmove(begin, begin + len, strlen(begin + len) + 1);
	return 0;
}

int cert_store_list_del(struct cert_store *s, const char *path, struct str cert, unsigned number,
			char **ret_old, struct err *err)
{
	const char *old = list_at(s, path);
	char *text;
	int r;

	if (!old)
		return err_set(err, -ENOENT, "crt-list '%s' does not exist", path);
	*ret_old = mem_strdup(str_from_cstr(old));
	text = mem_strdup(str_from_cstr(old));
	r = text && *ret_old ? cut_entry(text, cert, number, err)
			     : err_set(err, -ENOMEM, "out of memory");
	if (r) {
		mem_free(text);
		mem_free(*ret_old);
		return r;
	}
	return put_list(s, path, text) ? err_set(err, -ENOMEM, "out of memory") : 0;
}

int cert_store_list_restore(struct cert_store *s, const char *path, char *text)
{
	return put_list(s, path, text);
}

int cert_store_each_list(const struct cert_store *s,
			 int (*fn)(void *ctx, const char *path, const char *text), void *ctx)
{
	int r = 0;

	for (size_t i = 0; i < s->lists.cap && r == 0; i++) {
		if (s->lists.slots[i].key && s->lists.slots[i].value)
			r = fn(ctx, s->lists.slots[i].key, s->lists.slots[i].value);
	}
	return r;
}
