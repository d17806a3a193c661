/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What rules may look at besides what was negotiated, and what costs memory per connection, so only where the
 * configuration asks for it: what the client offered (tune.ssl.capture-buffer-size), and the secrets that make a capture
 * of the connection readable (tune.ssl.keylog). Worker's thread.
 */
#define XXH_INLINE_ALL
#include <errno.h>
#include <stdio.h>
#include <xxhash.h>

#include "base/buf.h"
#include "net/tls_priv.h"

/* --- the ClientHello --- */

enum hello_part {
	HELLO_CIPHERS,
	HELLO_EXTENSIONS,
	HELLO_GROUPS,
	HELLO_FORMATS,
	HELLO_PARTS
};

struct tls_hello {
	uint16_t version; /* as the message begins, whatever extensions say */
	uint64_t hash; /* XXH64 of all cipher suites */
	size_t len[HELLO_PARTS]; /* in `data`, one behind the other */
	size_t used, size;
	uint8_t data[];
};

/* What is left of a message from a hostile peer; p NULL: it was shorter than it said. */
struct rest {
	const uint8_t *p;
	size_t len;
};

static struct rest take(struct rest *r, size_t n)
{
	struct rest part = { r->p, n };

	if (!r->p || n > r->len) {
		r->p = NULL;
		return (struct rest){ NULL, 0 };
	}
	r->p += n;
	r->len -= n;
	return part;
}

/* A vector with a length of `n` bytes before it (RFC 8446 3.4). */
static struct rest take_vector(struct rest *r, size_t n)
{
	struct rest head = take(r, n);

	if (!head.p)
		return head;
	return take(r, n == 1 ? head.p[0] : get_be16(head.p));
}

/* As much as there is room for. Parts come in their order; one of them in pieces. */
static void add(struct tls_hello *h, enum hello_part part, struct rest bytes)
{
	size_t n = h->size - h->used;

	n = bytes.len < n ? bytes.len : n;
	if (part != HELLO_FORMATS) /* whole codes */
		n &= ~(size_t)1;
	if (!bytes.p || n == 0)
		return;
	memcpy(h->data + h->used, bytes.p, n);
	h->used += n;
	h->len[part] += n;
}

static void add_extensions(struct tls_hello *h, struct rest exts)
{
	struct rest groups = { NULL, 0 }, formats = { NULL, 0 };

	while (exts.len) {
		struct rest type = take(&exts, 2), body = take_vector(&exts, 2);

		if (!body.p)
			break;
		add(h, HELLO_EXTENSIONS, type);
		if (get_be16(type.p) == TLSEXT_TYPE_supported_groups)
			groups = take_vector(&body, 2);
		else if (get_be16(type.p) == TLSEXT_TYPE_ec_point_formats)
			formats = take_vector(&body, 1);
	}
	add(h, HELLO_GROUPS, groups);
	add(h, HELLO_FORMATS, formats);
}

static struct tls_hello *read_hello(struct rest msg, size_t size)
{
	struct rest version = take(&msg, 2), ciphers;
	struct tls_hello *h;

	take(&msg, 32); /* random */
	take_vector(&msg, 1); /* session id */
	ciphers = take_vector(&msg, 2);
	take_vector(&msg, 1); /* compression */
	if (!msg.p)
		return NULL;
	h = mem_zalloc(sizeof(*h) + size);
	if (!h)
		return NULL;
	h->size = size;
	h->version = get_be16(version.p);
	h->hash = XXH64(ciphers.p, ciphers.len, 0);
	add(h, HELLO_CIPHERS, ciphers);
	add_extensions(h, take_vector(&msg, 2));
	return h;
}

/* The first one counts: the second, after a HelloRetryRequest, is our doing in part. */
static void on_message(int is_sent, int version, int type, const void *buf, size_t len, SSL *ssl,
		       void *arg)
{
	struct tls *t = SSL_get_app_data(ssl);
	struct rest msg = { buf, len };
	struct rest head;

	if (is_sent || type != SSL3_RT_HANDSHAKE || !t || !t->srv || t->hello)
		return;
	head = take(&msg, SSL3_HM_HEADER_LENGTH);
	if (head.p && head.p[0] == SSL3_MT_CLIENT_HELLO)
		t->hello = read_hello(msg, t->srv->capture_size);
}

/* --- secrets --- */

static const struct {
	const char *label; /* SSLKEYLOGFILE's */
	uint8_t field;
} secrets[TLS_SECRETS] = {
	{ "CLIENT_EARLY_TRAFFIC_SECRET", TLS_SECRET_CLIENT_EARLY },
	{ "CLIENT_HANDSHAKE_TRAFFIC_SECRET", TLS_SECRET_CLIENT_HANDSHAKE },
	{ "SERVER_HANDSHAKE_TRAFFIC_SECRET", TLS_SECRET_SERVER_HANDSHAKE },
	{ "CLIENT_TRAFFIC_SECRET_0", TLS_SECRET_CLIENT },
	{ "SERVER_TRAFFIC_SECRET_0", TLS_SECRET_SERVER },
	{ "EXPORTER_SECRET", TLS_SECRET_EXPORTER },
	{ "EARLY_EXPORTER_SECRET", TLS_SECRET_EARLY_EXPORTER },
};

struct tls_secrets {
	char *hex[TLS_SECRETS];
};

/* "LABEL random secret". Without memory there is one secret less to look at. */
static void on_secret(const SSL *ssl, const char *text)
{
	struct tls *t = SSL_get_app_data(ssl);
	struct str rest = str_from_cstr(text), label = str_cut(&rest, ' '), random;

	random = str_cut(&rest, ' ');
	if (!t || !random.len || !rest.len)
		return;
	if (!t->secrets)
		t->secrets = mem_zalloc(sizeof(*t->secrets));
	for (size_t i = 0; t->secrets && i < TLS_SECRETS; i++) {
		if (!str_is_eq(label, str_from_cstr(secrets[i].label)))
			continue;
		mem_free(t->secrets->hex[i]);
		t->secrets->hex[i] = mem_strdup(rest);
	}
}

void tls_ctx_capture(SSL_CTX *ctx, const struct conf_global *g, bool is_server)
{
	if (is_server && g->ssl_capture_size)
		SSL_CTX_set_msg_callback(ctx, on_message);
	if (g->ssl_keylog)
		SSL_CTX_set_keylog_callback(ctx, on_secret);
}

void tls_capture_free(struct tls *t)
{
	mem_free(t->hello);
	for (size_t i = 0; t->secrets && i < TLS_SECRETS; i++) {
		if (t->secrets->hex[i])
			OPENSSL_cleanse(t->secrets->hex[i], strlen(t->secrets->hex[i]));
		mem_free(t->secrets->hex[i]);
	}
	mem_free(t->secrets);
}

/* --- as samples --- */

static int ret_copy(struct sample *ret, int type, struct arena *arena, const void *p, size_t len)
{
	struct str s = arena_str(arena, str_make(p, len));

	if (len && !s.p)
		return -ENOMEM;
	*ret = (struct sample){ .type = (uint8_t)type, .str = s };
	return 0;
}

static int ret_sint(struct sample *ret, int64_t v)
{
	*ret = (struct sample){ .type = SAMPLE_SINT, .sint = v };
	return 0;
}

static struct rest part_of(const struct tls_hello *h, enum hello_part part)
{
	struct rest r = { h->data, h->len[part] };

	for (unsigned i = 0; i < part; i++)
		r.p += h->len[i];
	return r;
}

/* "TLS_AES_128_GCM_SHA256,UNKNOWN(0a0a)". */
static int ret_names(struct sample *ret, struct arena *arena, SSL *ssl, struct rest list,
		     bool has_grease)
{
	size_t size = list.len / 2 * 64 + 1, at = 0;
	char *text = arena_alloc(arena, size);

	if (!text)
		return -ENOMEM;
	for (size_t i = 0; i + 2 <= list.len; i += 2) {
		const SSL_CIPHER *c = SSL_CIPHER_find(ssl, list.p + i);
		unsigned code = get_be16(list.p + i);
		int n;

		if (!has_grease && tls_is_grease(code))
			continue;
		if (c)
			n = snprintf(text + at, size - at, "%s%s", at ? "," : "",
				     SSL_CIPHER_get_name(c));
		else
			n = snprintf(text + at, size - at, "%sUNKNOWN(%04x)", at ? "," : "", code);
		if (n < 0 || (size_t)n >= size - at)
			break;
		at += (size_t)n;
	}
	*ret = (struct sample){ .type = SAMPLE_STR, .str = str_make(text, at) };
	return 0;
}

static int hello_field(const struct tls *t, enum subject_tls_field f, struct arena *arena,
		       struct sample *ret)
{
	const struct tls_hello *h = t->hello;
	struct rest part;

	if (!h)
		return -ENOENT;
	switch (f) {
	case TLS_HELLO_VERSION:
		return ret_sint(ret, h->version);
	case TLS_HELLO_CIPHER_HASH:
		return ret_sint(ret, (int64_t)h->hash);
	case TLS_HELLO_CIPHER_NAMES:
	case TLS_HELLO_CIPHER_NAMES_PLAIN:
		return ret_names(ret, arena, t->ssl, part_of(h, HELLO_CIPHERS),
				 f == TLS_HELLO_CIPHER_NAMES);
	default:
		part = part_of(h, (enum hello_part)(f - TLS_HELLO_CIPHERS));
		return ret_copy(ret, SAMPLE_BIN, arena, part.p, part.len);
	}
}

static int random_field(const struct tls *t, enum subject_tls_field f, struct arena *arena,
			struct sample *ret)
{
	unsigned char out[SSL_MAX_MASTER_KEY_LENGTH];
	const SSL_SESSION *session = SSL_get_session(t->ssl);
	size_t len = 0;

	if (f == TLS_CLIENT_RANDOM)
		len = SSL_get_client_random(t->ssl, out, sizeof(out));
	else if (f == TLS_SERVER_RANDOM)
		len = SSL_get_server_random(t->ssl, out, sizeof(out));
	else if (session)
		len = SSL_SESSION_get_master_key(session, out, sizeof(out));
	return len ? ret_copy(ret, SAMPLE_BIN, arena, out, len) : -ENOENT;
}

int tls_capture_field(const struct tls *t, enum subject_tls_field f, struct arena *arena,
		      struct sample *ret)
{
	if (f >= TLS_HELLO_CIPHERS && f <= TLS_HELLO_VERSION)
		return hello_field(t, f, arena, ret);
	if (f == TLS_CLIENT_RANDOM || f == TLS_SERVER_RANDOM || f == TLS_SESSION_KEY)
		return t->ssl ? random_field(t, f, arena, ret) : -ENOENT;
	for (size_t i = 0; t->secrets && i < TLS_SECRETS; i++) {
		const char *hex = t->secrets->hex[i];

		if (secrets[i].field == f && hex)
			return ret_copy(ret, SAMPLE_STR, arena, hex, strlen(hex));
	}
	return -ENOENT;
}
