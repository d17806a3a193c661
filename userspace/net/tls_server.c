/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a `bind … ssl` line needs: one context per distinct set of options, and certificates by name. Built by
 * the control thread; the callbacks run on workers during handshakes and only read.
 *
 * The ClientHello callback (before OpenSSL looks at versions, tickets or ciphers) finds the
 * certificates with one or two hash lookups, whatever their number, and gives them to the SSL object. A context per
 * certificate would cost 13 KiB and 100 µs each; SSL_use_cert_and_key() costs 2 µs in a handshake of 100.
 */
#include <errno.h>
#include <inttypes.h>
#include <openssl/err.h>
#include <stdio.h>

#include "base/buf.h"
#include "net/tls_priv.h"

#define NAME_MAX_LEN	 255
#define DEFAULT_CACHE	 20000 /* sessions without tickets, TLS 1.2 */
#define DEFAULT_LIFETIME 300 /* seconds */

static const unsigned char alpn_http1[] = "\x08http/1.1";

/* --- in the handshake --- */

/* The name of the server_name extension (RFC 6066 3), lower case; 0: none. What is malformed OpenSSL refuses itself. */
static size_t read_sni(SSL *ssl, char *out)
{
	const unsigned char *p;
	size_t len, n;

	if (!SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &p, &len) || len < 5)
		return 0;
	n = get_be16(p + 3);
	if (get_be16(p) != len - 2 || p[2] != TLSEXT_NAMETYPE_host_name || n > len - 5 ||
	    n > NAME_MAX_LEN)
		return 0;
	for (size_t i = 0; i < n; i++)
		out[i] = str_lower_char((char)p[5 + i]);
	return n;
}

/* SSL_set_SSL_CTX() brings ciphers, CAs and ALPN of the other context; the rest was copied by SSL_new() before. */
static bool use_profile(SSL *ssl, const struct tls_profile *p)
{
	if (!SSL_set_SSL_CTX(ssl, p->ctx))
		return false;
	SSL_set_verify(ssl, p->verify_mode, tls_on_verify);
	return SSL_set_min_proto_version(ssl, p->min_version) &&
	       SSL_set_max_proto_version(ssl, p->max_version) &&
	       (!p->curves || SSL_set1_curves_list(ssl, p->curves)) &&
	       SSL_set_session_id_context(ssl, p->sid, sizeof(p->sid));
}

/* The base context carries the default certificates itself, by whichever of their names they were found. */
static bool is_default(const struct tls_server *s, const struct cert_set *set)
{
	return set->profile == s->base &&
	       memcmp(set->certs, s->dflt.certs, sizeof(set->certs)) == 0;
}

/* Parameters that came with the certificate go before those of ssl-dh-param-file. */
static bool use_dh(SSL *ssl, EVP_PKEY *dh)
{
	SSL_set_dh_auto(ssl, 0);
	if (!EVP_PKEY_up_ref(dh))
		return false;
	if (SSL_set0_tmp_dh_pkey(ssl, dh))
		return true;
	EVP_PKEY_free(dh);
	return false;
}

static int on_client_hello(SSL *ssl, int *alert, void *arg)
{
	const struct tls_server *s = arg;
	struct tls *t = SSL_get_app_data(ssl);
	const struct cert_set *set;
	char name[NAME_MAX_LEN + 1];
	size_t len = read_sni(ssl, name);

	set = tls_server_find(s, str_make(name, len));
	if (!set) {
		t->has_no_cert = true;
		*alert = SSL_AD_UNRECOGNIZED_NAME;
		return SSL_CLIENT_HELLO_ERROR;
	}
	/* A second ClientHello (after HelloRetryRequest) comes here again. */
	mem_free(t->sni);
	t->sni = NULL;
	*alert = SSL_AD_INTERNAL_ERROR;
	if (len && memchr(name, '\0', len) == NULL) {
		t->sni = mem_strdup(str_make(name, len));
		if (!t->sni)
			return SSL_CLIENT_HELLO_ERROR;
	}
	t->set = set;
	if (set->profile != s->base && !use_profile(ssl, set->profile))
		return SSL_CLIENT_HELLO_ERROR;
	if (!is_default(s, set) && cert_use(ssl, set))
		return SSL_CLIENT_HELLO_ERROR;
	if (set->dh && !use_dh(ssl, set->dh))
		return SSL_CLIENT_HELLO_ERROR;
	return SSL_CLIENT_HELLO_SUCCESS;
}

/* Names are chosen above; this only makes OpenSSL acknowledge the extension. */
static int on_server_name(SSL *ssl, int *alert, void *arg)
{
	(void)ssl;
	(void)alert;
	(void)arg;
	return SSL_TLSEXT_ERR_OK;
}

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
		   const unsigned char *in, unsigned in_len, void *arg)
{
	const struct tls_profile *p = arg;
	struct tls *t = SSL_get_app_data(ssl);

	/* Our order counts; nothing in common is fatal (RFC 7301 3.2). */
	if (SSL_select_next_proto((unsigned char **)(uintptr_t)out, out_len, p->alpn, p->alpn_len,
				  in, in_len) == OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_OK;
	t->has_alpn_failed = true;
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* --- profiles --- */

static void profile_free(struct tls_profile *p)
{
	SSL_CTX_free(p->ctx);
	mem_free(p->options);
	mem_free(p->curves);
	mem_free(p->alpn);
	mem_free(p);
}

static int set_verify(struct tls_profile *p, struct cert_store *s, const struct conf_tls *t,
		      const struct conf_tls *d, struct err *err)
{
	unsigned verify = t->verify != CONF_VERIFY_UNSET ? t->verify : d->verify;
	const char *ca = t->ca_file ? t->ca_file : d->ca_file;
	struct tls_ca files = {
		.ca = t->ca_verify_file ? t->ca_verify_file : ca,
		.crl = t->crl_file ? t->crl_file : d->crl_file,
		.names = t->no_ca_names ? NULL : ca,
	};

	if (verify == CONF_VERIFY_UNSET || verify == CONF_VERIFY_NONE)
		return 0;
	if (!files.ca)
		return err_set(err, -EINVAL, "'verify %s' needs a 'ca-file'",
			       verify == CONF_VERIFY_REQUIRED ? "required" : "optional");
	p->verify_mode = SSL_VERIFY_PEER;
	if (verify == CONF_VERIFY_REQUIRED)
		p->verify_mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
	p->crt_ignore = t->crt_ignore;
	p->ca_ignore = t->ca_ignore;
	tls_ctx_set_verify(p->ctx, p->verify_mode);
	return tls_ctx_set_ca(p->ctx, s, &files, &p->ca_digest, err);
}

/* A session may only be resumed where the same client certificate would have been asked for, and accepted. */
static int set_session_id(struct tls_profile *p, const struct conf_bind *b,
			  const struct conf_tls *t)
{
	char text[4096];
	unsigned len;
	int n = snprintf(text, sizeof(text), "%s\n%u\n%016" PRIx64 "\n%s",
			 b->proxy ? b->proxy->name : "", p->verify_mode, p->ca_digest,
			 p->options ? p->options : "");

	if (n < 0 || (size_t)n >= sizeof(text))
		n = (int)sizeof(text) - 1;
	if (!EVP_Digest(text, (size_t)n, p->sid, &len, EVP_sha256(), NULL))
		return -ENOMEM;
	return SSL_CTX_set_session_id_context(p->ctx, p->sid, sizeof(p->sid)) ? 0 : -EINVAL;
}

static int set_alpn(struct tls_profile *p, const struct conf_bind *b, const struct conf_tls *t)
{
	const void *list = t->alpn;
	size_t len = t->alpn_len;

	/* What the bind line says, or its default, also for certificates with options of their own. */
	if (!t->has_alpn && b->tls.alpn_len) {
		list = b->tls.alpn;
		len = b->tls.alpn_len;
	} else if (!t->has_alpn && b->proxy && b->proxy->mode == CONF_MODE_HTTP) {
		list = alpn_http1;
		len = sizeof(alpn_http1) - 1;
	}
	if (len == 0)
		return 0;
	p->alpn = mem_alloc(len);
	if (!p->alpn)
		return -ENOMEM;
	memcpy(p->alpn, list, len);
	p->alpn_len = (unsigned)len;
	SSL_CTX_set_alpn_select_cb(p->ctx, on_alpn, p);
	return 0;
}

static int set_sessions(struct tls_profile *p, struct cert_store *s, const struct conf_bind *b,
			const struct conf_tls *t, const struct conf_global *g)
{
	uint64_t life = g->ssl_lifetime / 1000000000ull;

	SSL_CTX_set_session_cache_mode(p->ctx, SSL_SESS_CACHE_SERVER);
	SSL_CTX_sess_set_cache_size(p->ctx, g->ssl_cachesize ? g->ssl_cachesize : DEFAULT_CACHE);
	SSL_CTX_set_timeout(p->ctx, life ? (long)life : DEFAULT_LIFETIME);
	/* The same keys for all workers and generations. */
	if (!SSL_CTX_set_tlsext_ticket_key_evp_cb(p->ctx, tls_on_ticket))
		return -EINVAL;
	return set_session_id(p, b, t);
}

static int profile_fill(struct tls_profile *p, struct cert_store *s, const struct conf_bind *b,
			const struct conf_tls *t, const struct conf_global *g, struct err *err)
{
	const struct conf_tls *d = &g->bind_tls;
	const char *curves = t->curves ? t->curves : d->curves;
	int r = tls_ctx_configure(p->ctx, t, d, err);

	if (r == 0)
		r = set_verify(p, s, t, d, err);
	if (r)
		return r;
	if (set_alpn(p, b, t) || set_sessions(p, s, b, t, g))
		return err_set(err, -ENOMEM, "cannot set up TLS: %s", tls_reason());
	if (curves && !(p->curves = mem_strdup(str_from_cstr(curves))))
		return err_set(err, -ENOMEM, "out of memory");
	p->min_version = (uint16_t)SSL_CTX_get_min_proto_version(p->ctx);
	p->max_version = (uint16_t)SSL_CTX_get_max_proto_version(p->ctx);
	if (s->dh && (!EVP_PKEY_up_ref(s->dh) || !SSL_CTX_set0_tmp_dh_pkey(p->ctx, s->dh)))
		return err_set(err, -EINVAL, "parameters of '%s': %s", g->crt_files.dh_params,
			       tls_reason());
	if (g->dh_param && !s->dh)
		SSL_CTX_set_dh_auto(p->ctx, 1);
	SSL_CTX_set_tlsext_servername_callback(p->ctx, on_server_name);
	SSL_CTX_set_tlsext_status_cb(p->ctx, tls_on_status);
	return 0;
}

/* `options`: of a crt-list entry, p NULL for the line's own. */
static int profile_new(struct tls_server *srv, struct cert_store *s, const struct conf_bind *b,
		       const struct conf_tls *t, const struct conf_global *g, struct str options,
		       struct tls_profile **ret, struct err *err)
{
	struct tls_profile *p = mem_zalloc(sizeof(*p));
	int r;

	if (!p)
		return err_set(err, -ENOMEM, "out of memory");
	list_push_back(&srv->profiles, &p->link);
	if (options.p) {
		p->options = mem_strdup(options);
		if (!p->options)
			return err_set(err, -ENOMEM, "out of memory");
	}
	p->ctx = tls_ctx_new(true);
	if (!p->ctx)
		return err_set(err, -ENOMEM, "cannot make a TLS context: %s", tls_reason());
	SSL_CTX_set_app_data(p->ctx, p);
	tls_ctx_capture(p->ctx, g, true);
	r = profile_fill(p, s, b, t, g, err);
	if (r == 0)
		*ret = p;
	return r;
}

/* --- filling the tables --- */

struct builder {
	struct tls_server *srv;
	struct cert_store *store;
	const struct conf_bind *bind;
	const struct conf_global *global;
	struct arena arena; /* option texts of crt-list lines */
	const char *file; /* crt-list */
	struct tls_profile *profile; /* of the entry being added */
	struct str filters; /* p NULL: the certificate's own names */
};

static struct sni_entry *entry_of(struct namemap *m, struct str name)
{
	void **slot = namemap_put(m, name);

	if (!slot)
		return NULL;
	if (!*slot)
		*slot = mem_zalloc(sizeof(struct sni_entry));
	return *slot;
}

static void set_add(struct cert_set *set, struct cert *c, struct tls_profile *p)
{
	/* The first of a kind wins; another kind joins only under the same options. */
	if (set->profile && set->profile != p)
		return;
	set->profile = p;
	if (set->certs[c->type])
		return;
	atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
	set->certs[c->type] = c;
	if (!set->dh)
		set->dh = c->dh;
}

static int add_except(struct tls_server *srv, struct str name, const struct cert *c)
{
	struct sni_entry *e = entry_of(&srv->exact, name);
	struct sni_except *x = e ? mem_alloc(sizeof(*x)) : NULL;

	if (!x)
		return -ENOMEM;
	x->cert = c;
	x->next = e->excepts;
	e->excepts = x;
	return 0;
}

static int add_name(struct builder *b, struct str name, struct cert *c)
{
	bool is_wild = name.len > 2 && name.p[0] == '*' && name.p[1] == '.';
	struct sni_entry *e;

	e = is_wild ? entry_of(&b->srv->wild, str_from(name, 1)) : entry_of(&b->srv->exact, name);
	if (!e)
		return -ENOMEM;
	set_add(&e->set, c, b->profile);
	e->has_cert = true;
	return 0;
}

static int add_filters(struct builder *b, struct cert *c, struct err *err)
{
	struct str rest = str_trim(b->filters);

	while (rest.len) {
		char name[NAME_MAX_LEN + 1];
		size_t n = 0;
		struct str f;
		bool is_negative = rest.p[0] == '!';
		int r = 0;

		if (is_negative)
			rest = str_from(rest, 1);
		while (n < rest.len && rest.p[n] != ' ' && rest.p[n] != '\t')
			n++;
		if (n == 0 || n > NAME_MAX_LEN)
			return err_set(err, -EINVAL, "bad SNI filter");
		for (size_t i = 0; i < n; i++)
			name[i] = str_lower_char(rest.p[i]);
		f = str_make(name, n);
		rest = str_trim(str_from(rest, n));
		/* "*" names the default certificate and "!*" none: both say nothing about names. */
		if (str_is_eq(f, STR("*")))
			continue;
		r = is_negative ? add_except(b->srv, f, c) : add_name(b, f, c);
		if (r)
			return err_set(err, r, "out of memory");
	}
	return 0;
}

/* The names of a certificate, and the default when it is the first. */
static int add_cert(void *ctx, struct cert *c, struct err *err)
{
	struct builder *b = ctx;
	int r = 0;

	/* Authorities of clients' certificates complete our own chain, too (SSL_CTX_set_mode(3), NO_AUTO_CHAIN). */
	if (b->profile->verify_mode == SSL_VERIFY_NONE)
		cert_warn_about_chain(b->store, c);
	b->srv->has_sct |= c->sctl != NULL;
	if (!b->srv->has_default) {
		set_add(&b->srv->dflt, c, b->profile);
		b->srv->has_default = true;
	}
	if (b->filters.p)
		return add_filters(b, c, err);
	for (unsigned i = 0; i < c->n_names && r == 0; i++)
		r = add_name(b, str_from_cstr(c->names[i]), c);
	return r ? err_set(err, r, "out of memory") : 0;
}

static int add_line_profile(struct builder *b, struct str options, struct err *err)
{
	struct tls_server *srv = b->srv;
	struct conf_tls tls;
	struct list *pos;
	int r;

	b->profile = srv->base;
	if (!options.p)
		return 0;
	list_for_each(pos, &srv->profiles) {
		struct tls_profile *p = list_entry(pos, struct tls_profile, link);

		if (p->options && str_is_eq(str_from_cstr(p->options), options)) {
			b->profile = p;
			return 0;
		}
	}
	r = crtlist_options(options, &b->bind->tls, &b->arena, &tls, err);
	if (r)
		return r;
	return profile_new(srv, b->store, b->bind, &tls, b->global, options, &b->profile, err);
}

static int add_line(void *ctx, const struct crtlist_line *line, struct err *err)
{
	struct builder *b = ctx;
	const char *base = b->global->crt_base;
	char path[4096];
	int n, r;

	if (base && line->path.p[0] != '/' && line->path.p[0] != '@')
		n = snprintf(path, sizeof(path), "%s/" STR_FMT, base, STR_ARG(line->path));
	else
		n = snprintf(path, sizeof(path), STR_FMT, STR_ARG(line->path));
	if (n < 0 || (size_t)n >= sizeof(path))
		return err_set(err, -ENAMETOOLONG, "path is too long");
	b->filters = line->filters.len ? line->filters : STR_NULL;
	r = add_line_profile(b, line->options, err);
	return r ? r : cert_store_each(b->store, path, add_cert, b, err);
}

static int add_crt_list(struct builder *b, const char *file, struct err *err)
{
	const char *text;
	int r = cert_store_list(b->store, file, &text, err);

	if (r)
		return r;
	r = crtlist_parse(str_from_cstr(text), file, add_line, b, err);
	b->filters = STR_NULL;
	b->profile = b->srv->base;
	return r;
}

static int add_all(struct builder *b, struct err *err)
{
	const struct conf_bind *bind = b->bind;
	int r = 0;

	if (bind->default_crt)
		r = cert_store_each(b->store, bind->default_crt, add_cert, b, err);
	for (unsigned i = 0; i < bind->n_crts && r == 0; i++)
		r = cert_store_each(b->store, bind->crts[i], add_cert, b, err);
	if (r == 0 && bind->crt_list)
		r = add_crt_list(b, bind->crt_list, err);
	if (r == 0 && !b->srv->has_default && !b->srv->is_strict)
		r = err_set(err, -EINVAL, "no certificate: 'ssl' needs 'crt <file or directory>'");
	return r;
}

/* Certificates of other key types with the default's name stand beside it. */
static void complete_default(struct tls_server *srv)
{
	struct cert *first = NULL;
	const struct sni_entry *e = NULL;

	for (unsigned i = 0; i < CERT_TYPES; i++)
		first = first ? first : srv->dflt.certs[i];
	if (!first || first->n_names == 0)
		return;
	if (first->names[0][0] == '*')
		e = namemap_get(&srv->wild, str_from_cstr(first->names[0] + 1));
	else
		e = namemap_get(&srv->exact, str_from_cstr(first->names[0]));
	if (!e || e->set.profile != srv->dflt.profile)
		return;
	for (unsigned i = 0; i < CERT_TYPES; i++) {
		if (e->set.certs[i])
			set_add(&srv->dflt, e->set.certs[i], srv->dflt.profile);
	}
}

static int finish(struct tls_server *srv, struct err *err)
{
	struct list *l;

	complete_default(srv);
	for (unsigned i = 0; i < CERT_TYPES; i++) {
		const struct cert *c = srv->dflt.certs[i];

		if (c && cert_use_ctx(srv->base->ctx, c))
			return err_set(err, -EINVAL, "certificate '%s': %s", c->file.path,
				       tls_reason());
	}
	list_for_each(l, &srv->profiles) {
		struct tls_profile *p = list_entry(l, struct tls_profile, link);

		/* One extension more to look for in every handshake: only where there is something to send. */
		if (srv->has_sct && tls_ctx_add_sct(p->ctx))
			return err_set(err, -ENOMEM, "out of memory");
	}
	SSL_CTX_set_client_hello_cb(srv->base->ctx, on_client_hello, srv);
	return 0;
}

int tls_server_new(struct cert_store *s, const struct conf_bind *b, const struct conf_global *g,
		   struct tls_server **ret_tls, struct err *err)
{
	struct tls_server *srv = mem_zalloc(sizeof(*srv));
	struct builder builder = { .srv = srv, .store = s, .bind = b, .global = g };
	int r;

	if (!srv)
		return err_set(err, -ENOMEM, "out of memory");
	atomic_init(&srv->refs, 1);
	list_init(&srv->link);
	list_init(&srv->profiles);
	arena_init(&builder.arena, 1024);
	srv->is_strict = b->tls.strict_sni;
	srv->capture_size = g->ssl_capture_size;
	srv->record_max = g->ssl_maxrecord ? g->ssl_maxrecord : RECORD_MAX;
	s->pos = &b->pos;
	s->uses = &srv->uses;
	r = tickets_get(s, b->ticket_keys, &srv->tickets, err);
	if (r == 0)
		r = profile_new(srv, s, b, &b->tls, g, STR_NULL, &srv->base, err);
	builder.profile = srv->base;
	if (r == 0)
		r = add_all(&builder, err);
	if (r == 0)
		r = finish(srv, err);
	arena_free(&builder.arena);
	tls_uses_sort(&srv->uses);
	s->uses = NULL;
	s->pos = NULL;
	if (r) {
		tls_server_put(srv);
		return err_prefix(err, r, "bind %s", b->text ? b->text : "?");
	}
	list_push_back(&s->servers, &srv->link);
	*ret_tls = srv;
	return 0;
}

/* --- the end --- */

void tls_server_retire(struct tls_server *s)
{
	list_del(&s->link);
}

void tls_server_release(void *s)
{
	tls_server_put(s);
}

void tls_server_put(struct tls_server *s)
{
	struct list *l;

	if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	tls_server_drop_names(s);
	tickets_put(s->tickets);
	mem_free(s->uses.ids);
	while ((l = list_pop_front(&s->profiles)))
		profile_free(list_entry(l, struct tls_profile, link));
	mem_free(s);
}
