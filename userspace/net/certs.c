/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The certificate store of a snapshot: files by path, shared with the generation before while they
 * have not changed, plus everything that is built from them and must go with them. Control thread;
 * a `struct cert` is counted atomically because connections may outlive the store.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/log.h"
#include "net/tls_priv.h"

void cert_put(struct cert *c)
{
	if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
		return;
	X509_free(c->x509);
	X509_free(c->issuer);
	EVP_PKEY_free(c->key);
	sk_X509_pop_free(c->chain, X509_free);
	for (unsigned i = 0; i < c->n_names; i++)
		mem_free(c->names[i]);
	mem_free(c->names);
	EVP_PKEY_free(c->dh);
	ocsp_free(c->ocsp);
	mem_free(c->sctl);
	mem_free(c->file.path);
	for (unsigned i = 0; i < CRT_PARTS; i++)
		mem_free(c->paths[i]);
	mem_free(c);
}

/* The whole set of a name, and nothing else: the context's own certificates are cleared first. */
int cert_use(SSL *ssl, const struct cert_set *set)
{
	SSL_certs_clear(ssl);
	for (unsigned i = 0; i < CERT_TYPES; i++) {
		const struct cert *c = set->certs[i];

		if (c && !SSL_use_cert_and_key(ssl, c->x509, c->key, c->chain, 1))
			return -EINVAL;
	}
	return 0;
}

int cert_use_ctx(SSL_CTX *ctx, const struct cert *c)
{
	return SSL_CTX_use_cert_and_key(ctx, c->x509, c->key, c->chain, 1) ? 0 : -EINVAL;
}

/* --- the store --- */

static void warn_by_log(void *ctx, const char *text)
{
	(void)ctx;
	log_msg(LOG_LVL_WARNING, "%s", text);
}

static void drop_cert(void *value)
{
	cert_put(value);
}

static void drop_ca_file(void *value)
{
	ca_file_free(value);
}

/* What the previous generation used; older ones are forgotten. */
static int inherit(struct cert_store *s, const struct cert_store *previous)
{
	for (size_t i = 0; i < previous->files[TLS_CERT].cap; i++) {
		const struct namemap_slot *old = &previous->files[TLS_CERT].slots[i];
		struct cert *c = old->key ? old->value : NULL;
		void **slot;

		if (!c || !c->file.is_used)
			continue;
		slot = namemap_put(&s->files[TLS_CERT], str_make(old->key, old->len));
		if (!slot)
			return -ENOMEM;
		atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
		*slot = c;
	}
	/* One may have been dropped from the configuration: it is used again when the new one says so. */
	cert_store_recount(s);
	return 0;
}

int cert_store_new(struct cert_store *previous, struct cert_store **ret_store, struct err *err)
{
	struct cert_store *s = mem_zalloc(sizeof(*s));
	int r;

	if (!s)
		return err_set(err, -ENOMEM, "out of memory");
	list_init(&s->servers);
	list_init(&s->clients);
	list_init(&s->issuers);
	s->warn = warn_by_log;
	list_init(&s->tickets);
	r = tickets_begin(s, previous, err);
	if (r == 0 && previous && inherit(s, previous))
		r = err_set(err, -ENOMEM, "out of memory");
	if (r) {
		cert_store_free(s);
		return r;
	}
	*ret_store = s;
	return 0;
}

void cert_store_free(struct cert_store *s)
{
	struct list *l;

	if (!s)
		return;
	while ((l = list_pop_front(&s->servers)))
		tls_server_put(list_entry(l, struct tls_server, link));
	while ((l = list_pop_front(&s->clients)))
		tls_client_put(list_entry(l, struct tls_client, link));
	namemap_free(&s->files[TLS_CERT], drop_cert);
	namemap_free(&s->lists, mem_free);
	namemap_free(&s->files[TLS_CA], drop_ca_file);
	namemap_free(&s->files[TLS_CRL], drop_ca_file);
	tls_client_ctxs_forget(s);
	ca_stores_forget(s);
	tickets_drop_all(s);
	cert_files_free(s);
	mem_free(s);
}

void cert_store_on_warning(struct cert_store *s, void (*warn)(void *ctx, const char *text),
			   void *ctx)
{
	s->warn = warn;
	s->warn_ctx = ctx;
}

void cert_store_warn(struct cert_store *s, const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	int n = 0;

	if (s->pos && s->pos->file)
		n = snprintf(text, sizeof(text), "%s:%u:%u: ", s->pos->file, s->pos->line,
			     s->pos->column);
	if (n < 0 || (size_t)n >= sizeof(text) / 2)
		n = 0;
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	s->warn(s->warn_ctx, text);
}

static uint64_t recipe_digest(const struct cert_recipe *how)
{
	uint64_t d = how->extra * 2 + how->drops_ext + 1;

	for (unsigned i = 0; i < CRT_PARTS; i++)
		d = str_hash(str_from_cstr(how->paths[i] ? how->paths[i] : ""), d);
	return d;
}

static bool is_unchanged(const struct cert *c, uint64_t recipe)
{
	if (c->recipe != recipe || c->identity[CRT_PEM] == 0)
		return false;
	for (unsigned i = 0; i < CRT_PARTS; i++) {
		if (c->identity[i] != file_identity(c->paths[i]))
			return false;
	}
	return true;
}

static void warn_about_dates(struct cert_store *s, const struct cert *c)
{
	if (X509_cmp_current_time(X509_get0_notAfter(c->x509)) < 0)
		cert_store_warn(s, "certificate '%s' has expired", c->file.path);
	else if (X509_cmp_current_time(X509_get0_notBefore(c->x509)) > 0)
		cert_store_warn(s, "certificate '%s' is not valid yet", c->file.path);
}

/* Roots that come with the system: clients are taken to know them, too. Control thread. */
static bool find_issuer(const struct cert *c)
{
	static X509_STORE *system;
	X509_STORE_CTX *x = X509_STORE_CTX_new();
	X509 *issuer = NULL;
	bool is_known = false;

	if (!system) {
		system = X509_STORE_new();
		if (system && !X509_STORE_set_default_paths(system))
			ERR_clear_error();
	}
	if (x && system && X509_STORE_CTX_init(x, system, c->x509, NULL))
		is_known = X509_STORE_CTX_get1_issuer(&issuer, x, c->x509) == 1;
	X509_free(issuer);
	X509_STORE_CTX_free(x);
	ERR_clear_error();
	return is_known;
}

/* Many certificates have the same issuer: the one asked for last is remembered. */
static bool is_issuer_known(const struct cert *c)
{
	static X509 *last;
	static bool is_known;
	const ASN1_OCTET_STRING *id = X509_get0_authority_key_id(c->x509), *last_id;

	last_id = last ? X509_get0_authority_key_id(last) : NULL;
	if (last && X509_NAME_cmp(X509_get_issuer_name(last), X509_get_issuer_name(c->x509)) == 0 &&
	    (id && last_id ? ASN1_OCTET_STRING_cmp(id, last_id) == 0 : id == last_id))
		return is_known;
	X509_free(last);
	last = X509_up_ref(c->x509) ? c->x509 : NULL;
	is_known = find_issuer(c);
	return is_known;
}

void cert_warn_about_chain(struct cert_store *s, struct cert *c)
{
	char issuer[256];

	if (c->chain || c->is_incomplete_told || X509_check_issued(c->x509, c->x509) == X509_V_OK ||
	    is_issuer_known(c))
		return;
	c->is_incomplete_told = true;
	X509_NAME_oneline(X509_get_issuer_name(c->x509), issuer, sizeof(issuer));
	cert_store_warn(
		s,
		"certificate '%s' comes without that of its issuer '%s', which clients have to "
		"know by themselves: add intermediate certificates to the file",
		c->file.path, issuer);
}

static int get_frozen(const struct cert_store *s, const char *path, struct cert **ret_cert,
		      struct err *err)
{
	struct cert *c = namemap_get(&s->files[TLS_CERT], str_from_cstr(path));

	if (!c || !c->x509)
		return err_set(err, -ENOENT, "certificate '%s' is %s", path,
			       c ? "empty" : "not loaded");
	*ret_cert = c;
	return 0;
}

static int get(struct cert_store *s, const char *path, struct cert **ret_cert, struct err *err)
{
	struct cert_recipe how = cert_store_recipe(s, path);
	struct cert *c = namemap_get(&s->files[TLS_CERT], str_from_cstr(path));
	uint64_t recipe = recipe_digest(&how) + s->issuers_digest;
	struct err why = { "" };
	void **slot;
	int r;

	if (s->is_frozen)
		return get_frozen(s, path, ret_cert, err);
	if (c && is_unchanged(c, recipe)) {
		if (!c->file.is_used)
			warn_about_dates(s, c);
		*ret_cert = c;
		return 0;
	}
	r = cert_load(&how, &c, &why, err);
	if (r)
		return r;
	if (why.text[0])
		cert_store_warn(s, "certificate '%s' goes without OCSP response: %s", path,
				why.text);
	c->recipe = recipe;
	r = cert_complete_chain(s, c);
	slot = r ? NULL : namemap_put(&s->files[TLS_CERT], str_from_cstr(path));
	if (!slot) {
		cert_put(c);
		return err_set(err, -ENOMEM, "out of memory");
	}
	cert_put(*slot);
	*slot = c;
	warn_about_dates(s, c);
	*ret_cert = c;
	return 0;
}

int cert_store_get(struct cert_store *s, const char *path, struct cert **ret_cert, struct err *err)
{
	int r = get(s, path, ret_cert, err);

	if (r)
		return r;
	(*ret_cert)->file.is_used = true;
	return tls_uses_add(s, TLS_USED_CERT, path, err);
}

int cert_store_list(struct cert_store *s, const char *path, const char **ret_text, struct err *err)
{
	char *text = s->is_frozen ? namemap_get(&s->lists, str_from_cstr(path)) : NULL;
	void **slot;
	size_t len;
	int r;

	if (!text && s->is_frozen)
		return err_set(err, -ENOENT, "crt-list '%s' is not loaded", path);
	if (!text) {
		r = net_read_file(path, &text, &len, err);
		if (r)
			return r;
		slot = memchr(text, '\0', len) ? NULL : namemap_put(&s->lists, str_from_cstr(path));
		if (!slot) {
			r = memchr(text, '\0', len) ? -EINVAL : -ENOMEM;
			mem_free(text);
			return err_set(err, r, "'%s': %s", path,
				       r == -EINVAL ? "NUL character" : "out of memory");
		}
		mem_free(*slot);
		*slot = text;
	}
	*ret_text = text;
	return tls_uses_add(s, TLS_USED_LIST, path, err);
}

/* --- files, bundles, directories --- */

struct use_one {
	struct cert_store *s;
	int (*use)(void *ctx, struct cert *cert, struct err *err);
	void *ctx;
};

static int use_path(const struct use_one *u, const char *path, struct err *err)
{
	struct cert *c;
	int r = cert_store_get(u->s, path, &c, err);

	return r ? r : u->use(u->ctx, c, err);
}

/* Not certificates by themselves: keys, OCSP answers, issuers, timestamps, DH parameters. */
static bool is_cert_name(struct str name)
{
	static const char *const others[] = { ".key", ".ocsp", ".issuer", ".sctl", ".dh" };

	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		if (str_is_suffix(name, str_from_cstr(others[i])))
			return false;
	}
	return true;
}

static int use_dir_entry(const struct use_one *u, const char *dir, const char *name,
			 unsigned *n_used, struct err *err)
{
	char path[4096];
	struct stat st;
	int n = snprintf(path, sizeof(path), "%s/%s", dir, name), r;

	if (n < 0 || (size_t)n >= sizeof(path))
		return err_set(err, -ENAMETOOLONG, "path of '%s' in '%s' is too long", name, dir);
	if (stat(path, &st) < 0)
		return err_set(err, -errno, "cannot open '%s': %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return 0;
	r = use_path(u, path, err);
	if (r == 0)
		(*n_used)++;
	return r;
}

/* In alphabetical order: the first is the default certificate. */
static int use_dir(const struct use_one *u, const char *dir, struct err *err)
{
	struct name_list l = { 0 };
	unsigned n_used = 0;
	int r = name_list_read(&l, dir, is_cert_name, err);

	for (size_t i = 0; i < l.n && r == 0; i++)
		r = use_dir_entry(u, dir, l.names[i], &n_used, err);
	name_list_free(&l);
	if (r == 0 && n_used == 0)
		return err_set(err, -ENOENT, "no certificate in directory '%s'", dir);
	return r;
}

/* FILE is not there, but FILE.rsa or FILE.ecdsa is. */
static int use_bundle(const struct use_one *u, const char *path, struct err *err)
{
	static const char *const types[] = { "rsa", "ecdsa", "dsa" };
	unsigned n_used = 0;

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		char full[4096];
		struct stat st;
		int n = snprintf(full, sizeof(full), "%s.%s", path, types[i]), r;

		if (n < 0 || (size_t)n >= sizeof(full) || stat(full, &st) < 0)
			continue;
		r = use_path(u, full, err);
		if (r)
			return r;
		n_used++;
	}
	return n_used ? 0 : -ENOENT;
}

int cert_store_each(struct cert_store *s, const char *path,
		    int (*use)(void *ctx, struct cert *cert, struct err *err), void *ctx,
		    struct err *err)
{
	struct use_one u = { s, use, ctx };
	bool is_bundled = cert_store_recipe(s, path).extra & CONF_EXTRA_BUNDLE;
	struct stat st;
	int r;

	if (s->is_frozen)
		return cert_store_each_frozen(s, path, use, ctx, err);
	if (path[0] == '@')
		return use_path(&u, path, err);
	if (stat(path, &st) < 0) {
		int e = errno;

		r = e == ENOENT && is_bundled ? use_bundle(&u, path, err) : -ENOENT;
		if (r != -ENOENT)
			return r;
		return err_set(err, -e, "cannot open certificate '%s': %s", path, strerror(e));
	}
	return S_ISDIR(st.st_mode) ? use_dir(&u, path, err) : use_path(&u, path, err);
}
