/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys of session tickets (RFC 5077, RFC 8446 4.6.1). Three of them stand in a ring, oldest first: the one before the
 * newest encrypts, all decrypt. The newest only decrypts, so that every host of a fleet knows a key before
 * any of them uses it. They come from a file that the fleet shares, or are random and replaced every hour.
 *
 * A set of keys is never changed: control publishes another one, and the caller frees the old one when no worker
 * can be reading it.
 */
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <string.h>

#include "net/tls_priv.h"

#define N_KEYS	    3
#define NAME_SIZE   16
#define KEY128_SIZE 48 /* name, AES-128 key, HMAC key of 16 bytes */
#define KEY256_SIZE 80 /* name, HMAC key of 32 bytes, AES-256 key */

struct ticket_key {
	unsigned char bytes[KEY256_SIZE];
	unsigned size; /* KEY128_SIZE or KEY256_SIZE */
};

struct ticket_keys {
	struct ticket_key keys[N_KEYS];
	unsigned n; /* of them in use: a file may hold more, but not fewer than three */
};

struct tickets {
	struct list link; /* of a store, but for our own, which stores share */
	_Atomic unsigned refs;
	char *file; /* NULL: random */
	struct ticket_keys *_Atomic now;
	uint64_t rotated_ns; /* random ones: when the last key was made, control's clock */
};

static EVP_CIPHER *aes128, *aes256; /* fetched once: a fetch per ticket takes a lock */

int tickets_global_init(void)
{
	if (aes256)
		return 0;
	aes128 = EVP_CIPHER_fetch(NULL, "AES-128-CBC", NULL);
	aes256 = EVP_CIPHER_fetch(NULL, "AES-256-CBC", NULL);
	return aes128 && aes256 ? 0 : -ENOSYS;
}

/* --- using them: workers --- */

static const unsigned char *aes_key(const struct ticket_key *k)
{
	return k->bytes + (k->size == KEY256_SIZE ? 48 : 16);
}

static bool set_mac_key(EVP_MAC_CTX *mac, struct ticket_key *k)
{
	bool is_256 = k->size == KEY256_SIZE;
	OSSL_PARAM params[] = {
		OSSL_PARAM_octet_string(OSSL_MAC_PARAM_KEY, k->bytes + (is_256 ? 16 : 32),
					is_256 ? 32 : 16),
		OSSL_PARAM_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){ "SHA256" }, 0),
		OSSL_PARAM_END,
	};

	return EVP_MAC_CTX_set_params(mac, params);
}

static int encrypt_with(struct ticket_key *k, unsigned char *name, unsigned char *iv,
			EVP_CIPHER_CTX *ctx, EVP_MAC_CTX *mac)
{
	const EVP_CIPHER *cipher = k->size == KEY256_SIZE ? aes256 : aes128;

	memcpy(name, k->bytes, NAME_SIZE);
	if (RAND_bytes(iv, EVP_CIPHER_get_iv_length(cipher)) != 1 ||
	    !EVP_EncryptInit_ex2(ctx, cipher, aes_key(k), iv, NULL) || !set_mac_key(mac, k))
		return -1;
	return 1;
}

/* SSL_CTX_set_tlsext_ticket_key_evp_cb(3). 0: full handshake; 1: go on; 2: go on, and give a new ticket; -1: error. */
int tls_on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *ctx,
		  EVP_MAC_CTX *mac, int is_new)
{
	const struct tls *t = SSL_get_app_data(ssl);
	struct ticket_keys *set = atomic_load_explicit(&t->srv->tickets->now, memory_order_acquire);
	unsigned encrypts = set->n - 2;

	if (is_new)
		return encrypt_with(&set->keys[encrypts], name, iv, ctx, mac);
	for (unsigned i = 0; i < set->n; i++) {
		struct ticket_key *k = &set->keys[i];

		if (memcmp(name, k->bytes, NAME_SIZE) != 0)
			continue;
		if (!set_mac_key(mac, k) ||
		    !EVP_DecryptInit_ex2(ctx, k->size == KEY256_SIZE ? aes256 : aes128, aes_key(k),
					 iv, NULL))
			return -1;
		/* In TLS 1.3 a ticket is used once: another comes with each connection (RFC 8446 C.4). */
		return i < encrypts || SSL_version(ssl) == TLS1_3_VERSION ? 2 : 1;
	}
	return 0;
}

/* --- keeping them: control --- */

static void keys_push(struct ticket_keys *set, const struct ticket_key *k)
{
	if (set->n == N_KEYS)
		memmove(&set->keys[0], &set->keys[1], (N_KEYS - 1) * sizeof(set->keys[0]));
	else
		set->n++;
	set->keys[set->n - 1] = *k;
}

static int keys_push_random(struct ticket_keys *set)
{
	struct ticket_key k = { .size = KEY256_SIZE };

	if (RAND_priv_bytes(k.bytes, sizeof(k.bytes)) != 1)
		return -EIO;
	keys_push(set, &k);
	OPENSSL_cleanse(&k, sizeof(k));
	return 0;
}

void ticket_keys_free(void *keys)
{
	if (!keys)
		return;
	OPENSSL_cleanse(keys, sizeof(struct ticket_keys));
	mem_free(keys);
}

void tickets_put(struct tickets *t)
{
	if (!t || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
		return;
	ticket_keys_free(atomic_load_explicit(&t->now, memory_order_relaxed));
	mem_free(t->file);
	mem_free(t);
}

static struct tickets *tickets_new(const char *file)
{
	struct tickets *t = mem_zalloc(sizeof(*t));
	struct ticket_keys *set = mem_zalloc(sizeof(*set));

	if (!t || !set || (file && !(t->file = mem_strdup(str_from_cstr(file))))) {
		mem_free(set);
		mem_free(t);
		return NULL;
	}
	list_init(&t->link);
	atomic_init(&t->refs, 1);
	atomic_init(&t->now, set);
	return t;
}

/* One line of a file, or what the runtime API was given. */
static int parse_key(struct str text, struct ticket_key *k, struct err *err)
{
	unsigned char raw[128];
	int n;

	text = str_trim(text);
	if (text.len == 0 || text.len % 4 || text.len > 108)
		return err_set(err, -EINVAL, "a ticket key is 48 or 80 bytes in base64");
	n = EVP_DecodeBlock(raw, (const unsigned char *)text.p, (int)text.len);
	for (size_t i = text.len; n > 0 && i && text.p[i - 1] == '='; i--)
		n--;
	ERR_clear_error();
	if (n != KEY128_SIZE && n != KEY256_SIZE)
		return err_set(err, -EINVAL, "a ticket key is 48 or 80 bytes in base64");
	memcpy(k->bytes, raw, (size_t)n);
	k->size = (unsigned)n;
	OPENSSL_cleanse(raw, sizeof(raw));
	return 0;
}

static int read_keys(struct tickets *t, struct err *err)
{
	struct ticket_keys *set = atomic_load_explicit(&t->now, memory_order_relaxed);
	unsigned line = 0, n = 0;
	struct str rest;
	char *text;
	size_t len;
	int r = net_read_file(t->file, &text, &len, err);

	if (r)
		return r;
	for (rest = str_make(text, len); rest.p && r == 0;) {
		struct str s = str_trim(str_cut(&rest, '\n'));
		struct ticket_key k;

		line++;
		if (s.len == 0)
			continue;
		r = parse_key(s, &k, err);
		if (r) {
			r = err_prefix(err, r, "tls-ticket-keys %s:%u", t->file, line);
		} else if (n && k.size != set->keys[0].size) {
			r = err_set(err, -EINVAL,
				    "tls-ticket-keys %s:%u: this key has %u bytes, those before %u",
				    t->file, line, k.size, set->keys[0].size);
		} else {
			keys_push(set, &k);
			n++;
		}
		OPENSSL_cleanse(&k, sizeof(k));
	}
	OPENSSL_cleanse(text, len);
	mem_free(text);
	if (r == 0 && n < N_KEYS)
		r = err_set(err, -EINVAL,
			    "tls-ticket-keys %s: %u keys found, at least %d are needed", t->file, n,
			    N_KEYS);
	return r;
}

int tickets_begin(struct cert_store *s, const struct cert_store *previous, struct err *err)
{
	struct tickets *t;

	if (tickets_global_init())
		return err_set(err, -ENOSYS, "OpenSSL has no AES-CBC: %s", tls_reason());
	if (previous) {
		atomic_fetch_add_explicit(&previous->own_tickets->refs, 1, memory_order_relaxed);
		s->own_tickets = previous->own_tickets;
		return 0;
	}
	t = tickets_new(NULL);
	if (!t)
		return err_set(err, -ENOMEM, "out of memory");
	s->own_tickets = t;
	for (unsigned i = 0; i < N_KEYS; i++) {
		if (keys_push_random(t->now))
			return err_set(err, -EIO, "no random numbers for ticket keys: %s",
				       tls_reason());
	}
	return 0;
}

void tickets_drop_all(struct cert_store *s)
{
	struct list *l;

	while ((l = list_pop_front(&s->tickets)))
		tickets_put(list_entry(l, struct tickets, link));
	tickets_put(s->own_tickets);
}

int tickets_get(struct cert_store *s, const char *file, struct tickets **ret, struct err *err)
{
	struct tickets *t = s->own_tickets;
	struct list *pos;

	if (file) {
		t = NULL;
		list_for_each(pos, &s->tickets) {
			struct tickets *other = list_entry(pos, struct tickets, link);

			if (strcmp(other->file, file) == 0)
				t = other;
		}
	}
	if (!t) {
		int r;

		t = tickets_new(file);
		if (!t)
			return err_set(err, -ENOMEM, "out of memory");
		r = read_keys(t, err);
		if (r) {
			tickets_put(t);
			return r;
		}
		list_push_back(&s->tickets, &t->link);
	}
	atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
	*ret = t;
	return 0;
}

/* Publishes `set`; the one before is the caller's to free in time. */
static struct ticket_keys *tickets_publish(struct tickets *t, struct ticket_keys *set)
{
	return atomic_exchange_explicit(&t->now, set, memory_order_acq_rel);
}

static struct ticket_keys *keys_copy(const struct tickets *t)
{
	struct ticket_keys *set = mem_alloc(sizeof(*set));

	if (set)
		*set = *atomic_load_explicit(&((struct tickets *)(uintptr_t)t)->now,
					     memory_order_relaxed);
	return set;
}

int cert_store_rotate_tickets(struct cert_store *s, uint64_t now_ns, uint64_t lifetime_ns,
			      void **ret_old)
{
	struct tickets *t = s->own_tickets;
	struct ticket_keys *set;

	*ret_old = NULL;
	if (t->rotated_ns == 0)
		t->rotated_ns = now_ns;
	if (now_ns - t->rotated_ns < lifetime_ns)
		return 0;
	set = keys_copy(t);
	if (!set)
		return -ENOMEM;
	if (keys_push_random(set)) {
		ticket_keys_free(set);
		return -EIO;
	}
	t->rotated_ns = now_ns;
	*ret_old = tickets_publish(t, set);
	return 0;
}

/* Files are numbered as they were first named. */
static struct tickets *tickets_by_id(const struct cert_store *s, struct str id)
{
	struct list *pos;
	uint64_t n = 0, want = UINT64_MAX;
	bool is_number = id.len && id.p[0] == '#' && str_to_u64(str_from(id, 1), &want) == 0;

	if (!is_number && str_to_u64(id, &want))
		want = UINT64_MAX;
	list_for_each(pos, &s->tickets) {
		struct tickets *t = list_entry(pos, struct tickets, link);

		if (n++ == want || str_is_eq(id, str_from_cstr(t->file)))
			return t;
	}
	return NULL;
}

int cert_store_push_ticket_key(struct cert_store *s, struct str id, struct str key, void **ret_old,
			       struct err *err)
{
	struct tickets *t = tickets_by_id(s, id);
	struct ticket_keys *set;
	struct ticket_key k;
	int r;

	if (!t)
		return err_set(err, -ENOENT, "unknown tls-ticket-keys file '" STR_FMT "'",
			       STR_ARG(id));
	r = parse_key(key, &k, err);
	if (r)
		return r;
	set = keys_copy(t);
	if (!set)
		return err_set(err, -ENOMEM, "out of memory");
	if (k.size != set->keys[0].size) {
		ticket_keys_free(set);
		return err_set(err, -EINVAL, "this key has %u bytes, those of the file have %u",
			       k.size, set->keys[0].size);
	}
	keys_push(set, &k);
	OPENSSL_cleanse(&k, sizeof(k));
	*ret_old = tickets_publish(t, set);
	return 0;
}

int cert_store_each_ticket_key(struct cert_store *s, struct str id,
			       void (*fn)(void *ctx, unsigned id, const char *file, unsigned index,
					  const char *base64),
			       void *ctx)
{
	struct tickets *only = id.len ? tickets_by_id(s, id) : NULL;
	struct list *pos;
	unsigned n = 0;

	if (id.len && !only)
		return -ENOENT;
	list_for_each(pos, &s->tickets) {
		struct tickets *t = list_entry(pos, struct tickets, link);
		struct ticket_keys *set = atomic_load_explicit(&t->now, memory_order_relaxed);

		for (unsigned i = 0; i < set->n && (!only || only == t); i++) {
			unsigned char text[KEY256_SIZE * 4 / 3 + 8];

			EVP_EncodeBlock(text, set->keys[i].bytes, (int)set->keys[i].size);
			fn(ctx, n, t->file, i, (char *)text);
			OPENSSL_cleanse(text, sizeof(text));
		}
		n++;
	}
	return 0;
}
