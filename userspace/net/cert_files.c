/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where certificates come from: lines of crt-stores, what global says about files beside them, chains for those that
 * come without (issuers-chain-path), parameters for DHE (ssl-dh-param-file). Control thread.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#include "net/tls_priv.h"

struct cert_recipe cert_store_recipe(const struct cert_store *s, const char *path)
{
	struct cert_recipe how = { .name = path, .paths[CRT_PEM] = path, .extra = CONF_EXTRA_ALL };
	const struct conf_crt *c;

	if (!s->conf)
		return how;
	how.extra &= ~s->conf->global.crt_files.not_extra;
	how.drops_ext = s->conf->global.crt_files.drops_ext;
	c = namemap_get(&s->loads, str_from_cstr(path));
	if (c) {
		how.paths[CRT_PEM] = c->crt;
		how.paths[CRT_KEY] = c->key;
		how.paths[CRT_OCSP] = c->ocsp;
		how.paths[CRT_ISSUER] = c->issuer;
		how.paths[CRT_SCTL] = c->sctl;
	}
	return how;
}

/* --- issuers-chain-path --- */

struct issuer_chain {
	struct list link;
	struct ca_file *file;
};

static bool is_any(struct str name)
{
	return true;
}

static int add_chain(struct cert_store *s, const char *dir, const char *name, struct err *err)
{
	char path[4096];
	int n = snprintf(path, sizeof(path), "%s/%s", dir, name), r;
	struct issuer_chain *ic;

	if (n < 0 || (size_t)n >= sizeof(path))
		return err_set(err, -ENAMETOOLONG, "path of '%s' in '%s' is too long", name, dir);
	ic = mem_zalloc(sizeof(*ic));
	if (!ic)
		return err_set(err, -ENOMEM, "out of memory");
	list_push_back(&s->issuers, &ic->link);
	ic->file = ca_file_new(path);
	if (!ic->file)
		return err_set(err, -ENOMEM, "out of memory");
	r = ca_file_read(ic->file, path, err);
	s->issuers_digest = s->issuers_digest * 31 + ic->file->digest;
	return r;
}

static int load_chains(struct cert_store *s, const char *dir, struct err *err)
{
	struct name_list l = { 0 };
	int r = name_list_read(&l, dir, is_any, err);

	for (size_t i = 0; i < l.n && r == 0; i++)
		r = add_chain(s, dir, l.names[i], err);
	name_list_free(&l);
	return r;
}

int cert_complete_chain(const struct cert_store *s, struct cert *c)
{
	struct list *l;

	if (c->chain)
		return 0;
	list_for_each(l, &s->issuers) {
		STACK_OF(X509) *chain = list_entry(l, struct issuer_chain, link)->file->certs;

		/* A root that issued itself has nothing above it. */
		if (!chain || X509_check_issued(sk_X509_value(chain, 0), c->x509) != X509_V_OK ||
		    X509_cmp(sk_X509_value(chain, 0), c->x509) == 0)
			continue;
		c->chain = X509_chain_up_ref(chain);
		return c->chain ? 0 : -ENOMEM;
	}
	return 0;
}

/* --- ssl-dh-param-file --- */

static int load_dh(struct cert_store *s, const char *path, struct err *err)
{
	char *text;
	size_t len;
	BIO *bio;
	int r = net_read_file(path, &text, &len, err);

	if (r)
		return r;
	bio = BIO_new_mem_buf(text, (int)len);
	s->dh = bio ? PEM_read_bio_Parameters(bio, NULL) : NULL;
	BIO_free(bio);
	mem_free(text);
	if (!s->dh || !EVP_PKEY_is_a(s->dh, "DH"))
		r = err_set(err, -EINVAL, "no DH parameters in '%s'", path);
	ERR_clear_error();
	return r;
}

/* --- all of it --- */

static int name_loads(struct cert_store *s, struct err *err)
{
	struct list *l;

	list_for_each(l, &s->conf->crts) {
		struct conf_crt *line = list_entry(l, struct conf_crt, link);
		void **slot = namemap_put(&s->loads, line->name);

		if (!slot)
			return err_set(err, -ENOMEM, "out of memory");
		*slot = line;
	}
	return 0;
}

static int load_crts(struct cert_store *s, struct err *err)
{
	struct list *l;
	int r = 0;

	list_for_each(l, &s->conf->crts) {
		const struct conf_crt *line = list_entry(l, struct conf_crt, link);
		struct cert *c;

		s->pos = &line->pos;
		r = cert_store_get(s, line->name.p, &c, err);
		if (r) {
			r = err_prefix(err, r, "%s:%u:%u: error", line->pos.file, line->pos.line,
				       line->pos.column);
			break;
		}
	}
	s->pos = NULL;
	/* Only now it shows which are used. */
	cert_store_recount(s);
	return r;
}

int cert_store_configure(struct cert_store *s, const struct conf *conf, struct err *err)
{
	const struct conf_crt_files *f = &conf->global.crt_files;
	int r = 0;

	s->conf = conf;
	if (f->issuers)
		r = load_chains(s, f->issuers, err);
	if (r)
		return err_prefix(err, r, "issuers-chain-path");
	if (f->dh_params)
		r = load_dh(s, f->dh_params, err);
	if (r)
		return err_prefix(err, r, "ssl-dh-param-file");
	r = name_loads(s, err);
	return r ? r : load_crts(s, err);
}

void cert_files_free(struct cert_store *s)
{
	struct list *l;

	while ((l = list_pop_front(&s->issuers))) {
		struct issuer_chain *ic = list_entry(l, struct issuer_chain, link);

		ca_file_free(ic->file);
		mem_free(ic);
	}
	namemap_free(&s->loads, NULL);
	EVP_PKEY_free(s->dh);
}
