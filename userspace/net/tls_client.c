/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a `server … ssl` line needs: a context, checks of the server's name, and the last session of each
 * worker for resumption. Contexts are built by the control thread; sessions[i] belongs to worker i.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "net/tls_priv.h"

/* The newest ticket replaces the one before: servers expect that (RFC 8446 C.4 asks for no reuse where it can be had). */
static int on_new_session(SSL *ssl, SSL_SESSION *session)
{
	struct tls *t = SSL_get_app_data(ssl);
	unsigned i = t->c->nw->index;

	if (i >= TLS_MAX_WORKERS)
		return 0;
	SSL_SESSION_free(t->cli->sessions[i]);
	t->cli->sessions[i] = session;
	return 1; /* the reference is ours now */
}

/* A session is for one name. */
static bool is_session_for(const SSL_SESSION *session, struct str sni)
{
	const char *name = SSL_SESSION_get0_hostname(session);

	return str_is_eq(str_from_cstr(name), sni);
}

static bool set_names(SSL *ssl, const struct tls_client *cli, const struct tls *t, bool is_ip)
{
	const char *name = cli->verifyhost ? cli->verifyhost : t->sni;
	struct addr unused;

	if (t->sni && !is_ip && !SSL_set_tlsext_host_name(ssl, t->sni))
		return false;
	if (!cli->is_verified || !name)
		return true;
	if (addr_parse_ip(str_from_cstr(name), &unused) == 0)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name);
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set1_host(ssl, name);
}

SSL *tls_client_ssl(struct tls_client *cli, struct tls *t, struct str sni)
{
	SSL *ssl = SSL_new(cli->ctx);
	unsigned i = t->c->nw->index;
	struct addr unused;
	bool is_ip = sni.len && addr_parse_ip(sni, &unused) == 0;

	if (!ssl)
		return NULL;
	SSL_set_app_data(ssl, t);
	SSL_set_connect_state(ssl);
	/* Addresses are not names (RFC 6066 3). */
	if (!set_names(ssl, cli, t, is_ip)) {
		ERR_clear_error();
		SSL_free(ssl);
		return NULL;
	}
	if (i < TLS_MAX_WORKERS && cli->sessions[i] &&
	    is_session_for(cli->sessions[i], is_ip ? STR_NULL : sni))
		SSL_set_session(ssl, cli->sessions[i]);
	return ssl;
}

/* What decides how a context of a server line is: the line's settings over those of the global section. */
struct client_settings {
	struct cert_store *store;
	const struct conf_server *srv;
	const struct conf_tls *dflt;
	const struct conf_global *global;
	unsigned verify; /* enum conf_verify */
	const char *ca, *crl;
};

static int settings_check(const struct client_settings *cs, struct err *err)
{
	if (cs->verify == CONF_VERIFY_NONE || cs->ca)
		return 0;
	return err_set(err, -EINVAL,
		       "servers are verified by default, and there is no 'ca-file' to do it "
		       "with: add 'ca-file @system-ca' or 'ca-file <file>', or 'verify none' "
		       "in a network where nobody can stand in between");
}

/* A text that is equal for two lines when, and only when, one context is right for both; length, or -ENAMETOOLONG. */
static int settings_key(const struct client_settings *cs, char *key, size_t size)
{
	const struct conf_tls *t = &cs->srv->tls, *d = cs->dflt;
	const char *const texts[] = {
		t->ciphers ? t->ciphers : d->ciphers,
		t->ciphersuites ? t->ciphersuites : d->ciphersuites,
		t->curves ? t->curves : d->curves,
		t->sigalgs ? t->sigalgs : d->sigalgs,
		t->client_sigalgs ? t->client_sigalgs : d->client_sigalgs,
		cs->verify == CONF_VERIFY_NONE ? NULL : cs->ca,
		cs->verify == CONF_VERIFY_NONE ? NULL : cs->crl,
		cs->srv->crt,
	};
	int n = snprintf(key, size, "%u.%u.%u.%d%d%d%d.%zu", cs->verify,
			 t->min_version ? t->min_version : d->min_version,
			 t->max_version ? t->max_version : d->max_version, t->no_tickets,
			 t->prefer_client_ciphers || d->prefer_client_ciphers,
			 cs->srv->has_full_handshakes, t->renegotiates, t->alpn_len);
	size_t at = (size_t)n;

	for (size_t i = 0; i <= ARRAY_SIZE(texts); i++) {
		bool is_alpn = i == ARRAY_SIZE(texts);
		const char *text = is_alpn ? t->alpn : texts[i];
		size_t len = is_alpn ? t->alpn_len : text ? strlen(text) : 0;

		if (size - at < len + 2)
			return -ENAMETOOLONG;
		/* None and empty differ. */
		key[at++] = text ? '=' : '-';
		if (len)
			memcpy(key + at, text, len);
		at += len;
		key[at++] = '\n';
	}
	return (int)at;
}

static int set_own_cert(SSL_CTX *ctx, struct cert_store *s, const char *path, struct err *err)
{
	struct cert *c;
	int r = cert_store_get(s, path, &c, err);

	if (r)
		return r;
	if (cert_use_ctx(ctx, c))
		return err_set(err, -EINVAL, "certificate '%s': %s", path, tls_reason());
	return 0;
}

static int ctx_fill(SSL_CTX *ctx, const struct client_settings *cs, struct err *err)
{
	const struct conf_tls *t = &cs->srv->tls;
	int r;

	tls_ctx_capture(ctx, cs->global, false);
	r = tls_ctx_configure(ctx, t, cs->dflt, err);
	if (r == 0 && cs->verify != CONF_VERIFY_NONE) {
		tls_ctx_set_verify(ctx, SSL_VERIFY_PEER);
		r = tls_ctx_set_ca(ctx, cs->store, &(struct tls_ca){ .ca = cs->ca, .crl = cs->crl },
				   NULL, err);
	}
	if (r == 0 && cs->srv->crt)
		r = set_own_cert(ctx, cs->store, cs->srv->crt, err);
	if (r)
		return r;
	if (t->alpn_len &&
	    SSL_CTX_set_alpn_protos(ctx, (unsigned char *)t->alpn, (unsigned)t->alpn_len))
		return err_set(err, -ENOMEM, "out of memory");
	if (cs->srv->has_full_handshakes)
		return 0;
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(ctx, on_new_session);
	return 0;
}

/* A context that lines share, and what it was made of. */
struct client_ctx {
	SSL_CTX *ctx;
	struct tls_uses uses;
};

static void drop_ctx(void *value)
{
	struct client_ctx *c = value;

	if (!c)
		return;
	SSL_CTX_free(c->ctx);
	mem_free(c->uses.ids);
	mem_free(c);
}

void tls_client_ctxs_forget(struct cert_store *s)
{
	namemap_free(&s->client_ctxs, drop_ctx);
}

static int ctx_make(const struct client_settings *cs, struct client_ctx **ret, struct err *err)
{
	struct client_ctx *c = mem_zalloc(sizeof(*c));
	int r;

	if (!c)
		return err_set(err, -ENOMEM, "out of memory");
	c->ctx = tls_ctx_new(false);
	cs->store->uses = &c->uses;
	r = c->ctx ? ctx_fill(c->ctx, cs, err)
		   : err_set(err, -ENOMEM, "cannot make a TLS context: %s", tls_reason());
	cs->store->uses = NULL;
	tls_uses_sort(&c->uses);
	if (r)
		drop_ctx(c);
	else
		*ret = c;
	return r;
}

/*
 * Lines with the same settings share one context: OpenSSL's is 30 KiB in hundreds of pieces, and there may be thousands
 * of servers. Names and sessions are a client's own. The store keeps what is returned.
 */
static int ctx_get(const struct client_settings *cs, const struct client_ctx **ret, struct err *err)
{
	struct cert_store *s = cs->store;
	struct client_ctx *c = NULL;
	char key[8192];
	int n = settings_key(cs, key, sizeof(key)), r;
	void **slot;

	if (n < 0)
		return err_set(err, n, "the TLS settings of the line are too long");
	*ret = namemap_get(&s->client_ctxs, str_make(key, (size_t)n));
	if (*ret)
		return 0;
	r = ctx_make(cs, &c, err);
	if (r)
		return r;
	slot = namemap_put(&s->client_ctxs, str_make(key, (size_t)n));
	if (!slot) {
		drop_ctx(c);
		return err_set(err, -ENOMEM, "out of memory");
	}
	*ret = *slot = c;
	return 0;
}

static int client_fill(struct tls_client *cli, struct cert_store *s, const struct conf_server *srv,
		       const struct conf_global *g, struct err *err)
{
	const struct conf_tls *t = &srv->tls, *d = &g->server_tls;
	struct client_settings cs = {
		.store = s,
		.srv = srv,
		.dflt = d,
		.global = g,
		.verify = t->verify != CONF_VERIFY_UNSET ? t->verify : d->verify,
		.ca = t->ca_file ? t->ca_file : d->ca_file,
		.crl = t->crl_file ? t->crl_file : d->crl_file,
	};
	const struct client_ctx *shared;
	int r = settings_check(&cs, err);

	if (r == 0)
		r = ctx_get(&cs, &shared, err);
	if (r)
		return r;
	SSL_CTX_up_ref(shared->ctx);
	cli->ctx = shared->ctx;
	if (tls_uses_copy(&cli->uses, &shared->uses))
		return err_set(err, -ENOMEM, "out of memory");
	cli->is_verified = cs.verify != CONF_VERIFY_NONE;
	if (srv->verifyhost && !(cli->verifyhost = mem_strdup(str_from_cstr(srv->verifyhost))))
		return err_set(err, -ENOMEM, "out of memory");
	return 0;
}

int tls_client_new(struct cert_store *s, const struct conf_server *srv, const struct conf_global *g,
		   struct tls_client **ret_tls, struct err *err)
{
	struct tls_client *cli = mem_zalloc(sizeof(*cli));
	int r;

	if (!cli)
		return err_set(err, -ENOMEM, "out of memory");
	atomic_init(&cli->refs, 1);
	list_init(&cli->link);
	cli->record_max = g->ssl_maxrecord ? g->ssl_maxrecord : RECORD_MAX;
	s->pos = &srv->pos;
	r = client_fill(cli, s, srv, g, err);
	s->pos = NULL;
	if (r) {
		tls_client_put(cli);
		return err_prefix(err, r, "server %s", srv->name ? srv->name : "?");
	}
	list_push_back(&s->clients, &cli->link);
	*ret_tls = cli;
	return 0;
}

void tls_client_retire(struct tls_client *cli)
{
	list_del(&cli->link);
}

void tls_client_release(void *cli)
{
	tls_client_put(cli);
}

void tls_client_put(struct tls_client *cli)
{
	if (atomic_fetch_sub_explicit(&cli->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (unsigned i = 0; i < TLS_MAX_WORKERS; i++)
		SSL_SESSION_free(cli->sessions[i]);
	SSL_CTX_free(cli->ctx);
	mem_free(cli->verifyhost);
	mem_free(cli->uses.ids);
	mem_free(cli);
}
