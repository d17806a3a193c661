/* SPDX-License-Identifier: BSD-2-Clause */
/* What the TLS files of net/ share. Included by nobody else: OpenSSL stays in these files. */
#ifndef NET_TLS_PRIV_H
#define NET_TLS_PRIV_H

#include <openssl/ssl.h>
#include <stdatomic.h>

#include "net/namemap.h"
#include "net/net_priv.h"

/* --- one connection (tls.c) --- */

/*
 * Ciphertext takes two steps: OpenSSL writes it to the worker's buffer, one send takes it from there,
 * and what the kernel refused is kept in `pending`. Counting both ends tells which plaintext has
 * left: only that is reported as taken, so nothing is ever lost behind the owner's back.
 */
struct tls {
	SSL *ssl;
	struct conn *c;
	struct tls_server *srv; /* accepted: a reference */
	struct tls_client *cli; /* dialled: a reference */
	char *sni; /* asked for by the client, or by us; NULL: none */
	char *pending;
	size_t pending_len;
	uint64_t n_out, n_sent; /* ciphertext bytes: produced, taken by the kernel */
	size_t early; /* plaintext encrypted already and not yet reported as taken */
	int io_err; /* errno of the socket, positive */
	unsigned long ssl_err; /* OpenSSL's code of the failure */
	struct deferred flush; /* dialled: end of the handshake when no request follows at once */
	bool is_held; /* output that may wait for the next write to join it */
	bool is_eof, is_failed, has_shut;
	bool has_been_idle;
	bool waits_to_write; /* a renegotiation is going on: nothing is taken before it is over */
	bool has_no_cert, has_alpn_failed; /* told by the callbacks */
	/* First objections to the peer's certificate, and to those above it and where. Ignored ones too. */
	int crt_err, ca_err, ca_depth;
	struct tls_hello *hello; /* accepted: captured; NULL: not, or no memory */
	struct tls_secrets *secrets; /* NULL: none are kept */
	const struct cert_set *set; /* accepted: what on_client_hello() chose, of `srv` */
};

/* --- between OpenSSL and the socket (tls_io.c) --- */

#define RECORD_MAX  16384 /* RFC 8446 5.1 */
#define RECORD_COST 320 /* SSL3_RT_MAX_ENCRYPTED_OVERHEAD: headers, padding, MAC of any version */
#define BATCH	    4 /* records per send, more when they are small */
#define BATCH_SMALL 48
#define OUT_SIZE    (BATCH * (RECORD_MAX + RECORD_COST))

struct tls_io {
	struct pool tls;
	size_t out_len;
	char out[OUT_SIZE];
	char plain[RECORD_MAX];
};

struct tls_io *tls_io_get(struct net_worker *nw); /* NULL: out of memory */
HG_WUR int tls_set_bio(struct tls *t);
/* One send of everything that waits. 0: all gone or kept (n_sent tells); -errno: broken. */
int tls_flush(struct tls *t, bool more);
/* Keeps the output for the next write instead of sending it alone. */
HG_WUR int tls_hold(struct tls *t);

/* --- contexts --- */

/* Settings of one bind line or crt-list entry that are not the certificate. */
struct tls_profile {
	struct list link;
	char *options; /* crt-list text; NULL: the bind line's own */
	SSL_CTX *ctx;
	int verify_mode;
	uint16_t min_version, max_version;
	char *curves;
	unsigned char *alpn;
	unsigned alpn_len;
	unsigned char sid[32];
	uint64_t ca_digest; /* of whom its clients' certificates may come from; 0: none */
	struct conf_verify_errors crt_ignore, ca_ignore;
};

struct cert;
#define CERT_TYPES 5 /* RSA, RSA-PSS, ECDSA, Ed25519, Ed448 */

/* Certificates of one name, at most one of each key type: OpenSSL picks by what the client can. */
struct cert_set {
	struct cert *certs[CERT_TYPES];
	EVP_PKEY *dh; /* parameters that one of them came with; NULL: none */
	struct tls_profile *profile;
};

/* Names that a filter "!name" takes away from a wildcard's certificate. */
struct sni_except {
	struct sni_except *next;
	const struct cert *cert;
};

struct sni_entry {
	struct cert_set set;
	bool has_cert;
	struct sni_except *excepts;
};

/* Of which files something was built: hashes of kind and path, sorted, so that the names need not be kept. */
struct tls_uses {
	uint64_t *ids;
	size_t n, cap;
};

struct tls_server {
	struct list link; /* of its store, until freed */
	struct tls_uses uses;
	_Atomic unsigned refs;
	struct list profiles;
	struct tls_profile *base;
	struct namemap exact, wild; /* sni_entry; wild by ".example.com" */
	struct cert_set dflt;
	bool has_default, is_strict;
	bool has_sct; /* some certificate comes with timestamps */
	struct tickets *tickets; /* a reference */
	unsigned record_max; /* tune.ssl.maxrecord, or RECORD_MAX */
	unsigned capture_size; /* tune.ssl.capture-buffer-size */
};
void tls_server_put(struct tls_server *s);
void tls_server_drop_names(struct tls_server *s);
/* Certificates for `name` (lower case): the set, or NULL (refuse). */
const struct cert_set *tls_server_find(const struct tls_server *s, struct str name);

#define TLS_MAX_WORKERS 257 /* 256 workers and the control thread */
struct tls_client {
	struct list link;
	struct tls_uses uses;
	_Atomic unsigned refs;
	SSL_CTX *ctx;
	bool is_verified;
	unsigned record_max; /* as a server's */
	char *verifyhost;
	SSL_SESSION *sessions[TLS_MAX_WORKERS]; /* each touched by its own worker only */
};
void tls_client_put(struct tls_client *cli);
/* Files or their uses have changed: contexts of server lines are built again when they are asked for. Control thread. */
void tls_client_ctxs_forget(struct cert_store *s);
/* A new SSL in connect state, with name checks and the worker's last session. NULL: out of memory. */
SSL *tls_client_ssl(struct tls_client *cli, struct tls *t, struct str sni);

/* --- settings of a context (tls_conf.c) --- */

SSL_CTX *tls_ctx_new(bool is_server);
/* `t` first, `dflt` where it says nothing. Texts name the setting. */
HG_WUR int tls_ctx_configure(SSL_CTX *ctx, const struct conf_tls *t, const struct conf_tls *dflt,
			     struct err *err);
/* SSL_VERIFY_* for a context; what the chain fails by is remembered in struct tls. */
void tls_ctx_set_verify(SSL_CTX *ctx, int mode);
int tls_on_verify(int ok, X509_STORE_CTX *x);
/* OpenSSL's last reason as text; empties its queue. Constant memory. */
const char *tls_reason(void);

/* --- what is kept for rules (tls_capture.c) --- */

#define TLS_SECRETS 7
void tls_ctx_capture(SSL_CTX *ctx, const struct conf_global *g, bool is_server);
void tls_capture_free(struct tls *t);
/* TLS_HELLO_*, TLS_SECRET_* and randoms. -ENOENT: not kept; -ENOMEM. */
HG_WUR int tls_capture_field(const struct tls *t, enum subject_tls_field f, struct arena *arena,
			     struct sample *ret);
/* RFC 8701 2. */
static inline bool tls_is_grease(unsigned v)
{
	return (v & 0x0f0f) == 0x0a0a && v >> 8 == (v & 0xff);
}

/* --- session tickets (tls_tickets.c) --- */

struct tickets;
int tls_on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
		  EVP_MAC_CTX *mac, int is_new);
/* A reference to the keys of `file`, NULL: those that we make ourselves. */
HG_WUR int tickets_get(struct cert_store *s, const char *file, struct tickets **ret,
		       struct err *err);
/* The first keys of a store: the previous store's own, or random ones. */
HG_WUR int tickets_begin(struct cert_store *s, const struct cert_store *previous, struct err *err);
void tickets_put(struct tickets *t); /* NULL is ignored */
void tickets_drop_all(struct cert_store *s);
HG_WUR int tickets_global_init(void);

/* --- the key schedule (tls_kdf.c) --- */

/* For SSL_CTX_new_ex(): ours where OpenSSL's configuration does not insist on another. */
#define TLS_PROPERTIES "?provider=headgate"
HG_WUR int tls_kdf_global_init(void);

/* --- certificates (certs.c) --- */

/* An OCSP response to be stapled. */
struct ocsp_staple {
	unsigned char *der;
	size_t len;
	unsigned char *id; /* an OCSP_CERTID in DER */
	size_t id_len;
	int status; /* V_OCSP_CERTSTATUS_* */
	int64_t expires; /* seconds since 1970; INT64_MAX: never */
};
/* -EINVAL: malformed or about another certificate; -ETIME: not valid now; -ENOMEM. */
HG_WUR int ocsp_parse(const struct cert *c, struct str der, struct ocsp_staple **ret,
		      struct err *err);
/* From its file, 0 also when there is none. */
HG_WUR int ocsp_load(struct cert *c, struct err *err);
void ocsp_free(struct ocsp_staple *o); /* NULL is ignored */
int tls_on_status(SSL *ssl, void *arg);
/* Line breaks inside are good. mem_free() the result. -EINVAL, -ENOMEM. */
HG_WUR int cert_decode_base64(struct str text, char **ret, size_t *ret_len);
struct ocsp_staple *ocsp_dup(const struct ocsp_staple *o); /* NULL: out of memory, or `o` is */
/* Which certificate of the set is shown; NULL: none of them. */
const struct cert *cert_chosen(const struct cert_set *set, const X509 *x);

/* Signed certificate timestamps (tls_sct.c). From its file, 0 also when there is none. */
HG_WUR int sct_load(struct cert *c, struct err *err);
HG_WUR int sct_check(struct str list, struct err *err); /* as it stands in the extension */
HG_WUR int tls_ctx_add_sct(SSL_CTX *ctx);

/* What all files of a store have in common, first in each of them. The runtime API changes them (tls_change.c). */
struct tls_file {
	char *path;
	bool is_used; /* by the store it is in */
	bool is_live; /* made by the runtime API: on no disk, and of no directory */
};

/* The files that one certificate may come from. */
enum crt_part { CRT_PEM, CRT_KEY, CRT_OCSP, CRT_ISSUER, CRT_SCTL, CRT_PARTS };

/* What is to be read, as the configuration says. */
struct cert_recipe {
	const char *name; /* in the store and in messages */
	const char *paths[CRT_PARTS]; /* NULL: not given */
	unsigned extra; /* CONF_EXTRA_*: looked for beside */
	bool drops_ext;
};

struct cert {
	struct tls_file file;
	_Atomic unsigned refs;
	char *paths[CRT_PARTS]; /* NULL: no such file, or none that is looked for */
	uint64_t identity[CRT_PARTS]; /* of these files: mtime, size, inode folded; 0: not there */
	uint64_t recipe; /* of what the configuration said */
	X509 *x509;
	X509 *issuer; /* from a file of its own; only to know an OCSP response by */
	EVP_PKEY *key;
	STACK_OF(X509) * chain;
	struct ocsp_staple *_Atomic ocsp; /* NULL: none; `set ssl ocsp-response` replaces it under workers */
	char *sctl; /* timestamps, as they are sent; NULL: none */
	size_t sctl_len;
	EVP_PKEY *dh; /* parameters from its file; NULL: none */
	unsigned type; /* index in cert_set.certs */
	char **names; /* DNS names, lower case */
	unsigned n_names;
	bool is_incomplete_told; /* warned that its issuer is missing */
};

struct cert_store {
	const struct conf *conf; /* NULL: none, in tests */
	struct namemap loads; /* name → struct conf_crt, a line of a crt-store */
	struct list issuers; /* issuer_chain: issuers-chain-path */
	uint64_t issuers_digest;
	EVP_PKEY *dh; /* ssl-dh-param-file; NULL: none */
	/* path → struct cert, a reference, or struct ca_file; NULL: deleted */
	struct namemap files[TLS_FILE_KINDS];
	struct namemap lists; /* path → text of a crt-list */
	/* Built: what is on disk is not looked at any more, only what was read and what the runtime API changed. */
	bool is_frozen;
	struct namemap cas; /* "ca\ncrl" → X509_STORE */
	struct namemap client_ctxs; /* settings of a server line → struct client_ctx */
	struct list servers, clients;
	struct list tickets; /* struct tickets, references: of files */
	struct tickets *own_tickets; /* random ones, handed on from store to store */
	void (*warn)(void *ctx, const char *text);
	void *warn_ctx;
	const struct conf_pos *pos; /* the line that is being built, for warnings; NULL: none */
	struct tls_uses *uses; /* of what is being built; NULL: nothing is */
};
/* A reference that the store keeps. */
HG_WUR int cert_store_get(struct cert_store *s, const char *path, struct cert **ret_cert,
			  struct err *err);
/* What makes `path`: a line of a crt-store, or the file of that name. (cert_files.c) */
struct cert_recipe cert_store_recipe(const struct cert_store *s, const char *path);
void cert_files_free(struct cert_store *s);
/* Gives a certificate without intermediates those of issuers-chain-path. */
HG_WUR int cert_complete_chain(const struct cert_store *s, struct cert *c);
/* 0 when there is no such file. */
uint64_t file_identity(const char *path);
void cert_store_warn(struct cert_store *s, const char *fmt, ...) HG_PRINTF(2, 3);
/* Shown to clients without the certificate of an issuer that they may not know. */
void cert_warn_about_chain(struct cert_store *s, struct cert *c);
/* Calls `use` for a file, for FILE.rsa/.ecdsa… when FILE does not exist, and for all files of a directory. */
HG_WUR int cert_store_each(struct cert_store *s, const char *path,
			   int (*use)(void *ctx, struct cert *cert, struct err *err), void *ctx,
			   struct err *err);
/* The text of a crt-list; the store keeps it. */
HG_WUR int cert_store_list(struct cert_store *s, const char *path, const char **ret_text,
			   struct err *err);
/* Frozen stores: what cert_store_each() does for `path`. (cert_live.c) */
HG_WUR int cert_store_each_frozen(struct cert_store *s, const char *path,
				  int (*use)(void *ctx, struct cert *cert, struct err *err),
				  void *ctx, struct err *err);
void cert_put(struct cert *c);
HG_WUR int cert_use(SSL *ssl, const struct cert_set *set);
HG_WUR int cert_use_ctx(SSL_CTX *ctx, const struct cert *c);

/* --- PEM (cert_load.c) --- */

/* Reads a whole file; NUL-terminated; mem_free() it. */
HG_WUR int net_read_file(const char *path, char **ret_text, size_t *ret_len, struct err *err);
/* One "-----BEGIN type-----". */
struct pem_block {
	const char *path;
	struct str text; /* the file's */
	BIO *bio; /* over it, behind this block */
	struct str type;
	bool is_encrypted;
	const unsigned char *der;
	long len;
};
typedef int pem_fn(void *ctx, const struct pem_block *b, struct err *err);
/* Calls `fn` for every block; `path` is for messages. */
HG_WUR int pem_each(const char *path, struct str text, pem_fn *fn, void *ctx, struct err *err);
unsigned pem_line(const struct pem_block *b); /* that it ends in; counts from the beginning */
/* "cannot read the CERTIFICATE that ends in line 7: why", from OpenSSL's queue. Returns `code`. */
int pem_bad_block(const struct pem_block *b, int code, struct err *err);
bool pem_is_cert(const struct pem_block *b);
/* An empty one; NULL: out of memory. */
struct cert *cert_new(const char *path);
/* Adds what a PEM text holds; `path` is for messages. A key file's certificates are left out. */
HG_WUR int cert_read_pem(struct cert *c, const char *path, struct str text, bool is_key_file,
			 struct err *err);
/* Do key and certificate belong together; names and kind of key. */
HG_WUR int cert_finish(struct cert *c, struct err *err);
/*
 * Loads certificate, key, chain and what stands beside from files, without any store. An OCSP response that is of no use
 * keeps nobody from starting: *why_no_ocsp says why.
 */
HG_WUR int cert_load(const struct cert_recipe *how, struct cert **ret_cert,
		     struct err *why_no_ocsp, struct err *err);

/* Names in a directory, sorted, without hidden ones (name_list.c). Zeroed before, freed after, whatever is returned. */
struct name_list {
	char **names;
	size_t n, cap;
};
HG_WUR int name_list_read(struct name_list *l, const char *dir, bool (*is_wanted)(struct str name),
			  struct err *err);
void name_list_free(struct name_list *l);

/* --- authorities (ca_file.c) --- */

/* CA certificates, or revocation lists. */
struct ca_file {
	struct tls_file file;
	STACK_OF(X509) * certs; /* both NULL: empty */
	STACK_OF(X509_CRL) * crls;
	uint64_t digest; /* of the contents */
};
struct ca_file *ca_file_new(const char *path); /* empty; NULL: out of memory */
void ca_file_free(struct ca_file *f); /* NULL is ignored */
HG_WUR int ca_file_parse(struct ca_file *f, struct str text, struct err *err); /* adds what a text holds */
/* Adds what a file holds. */
HG_WUR int ca_file_read(struct ca_file *f, const char *path, struct err *err);
/* Whom to trust. The names of files; NULL: none. */
struct tls_ca {
	const char *ca, *crl;
	const char *names; /* whose subjects are told to the peer */
};
/*
 * Has `ctx` verify its peer. What was read is shared through the store. *ret_digest (may be NULL) tells one set of
 * authorities and revoked certificates from another.
 */
HG_WUR int tls_ctx_set_ca(SSL_CTX *ctx, struct cert_store *s, const struct tls_ca *ca,
			  uint64_t *ret_digest, struct err *err);
/* A file has changed: what was built from it is built again when it is asked for. */
void ca_stores_forget(struct cert_store *s);

/* --- changes at run time (tls_change.c) --- */

/* A file of the runtime API, or a part of one that has a name of its own: "site.pem.key". */
struct tls_file_part {
	struct str suffix; /* len 0: the file itself */
	/* Reads a payload into a copy of the file; adds: to what it holds. */
	int (*stage)(struct tls_file *f, struct str payload, bool adds, struct err *err);
};
/* What differs between kinds of files. */
struct tls_file_ops {
	const char *noun; /* in messages */
	const struct tls_file_part *parts;
	unsigned n_parts;
	struct tls_file *(*make)(const char *path); /* an empty one; NULL: out of memory */
	struct tls_file *(*copy)(const struct tls_file *old);
	void (*put)(void *f);
	/* Before it is put in place: is it whole? */
	int (*finish)(struct tls_file *f, struct err *err);
};
extern const struct tls_file_ops cert_file_ops, ca_file_ops, crl_file_ops;
/* What is being built uses this file. */
HG_WUR int tls_uses_add(struct cert_store *s, enum tls_used_kind kind, const char *path,
			struct err *err);
void tls_uses_sort(struct tls_uses *u); /* when all are there */
HG_WUR int tls_uses_copy(struct tls_uses *to, const struct tls_uses *from); /* 0 or -ENOMEM */
const struct tls_file *tls_change_file(const struct tls_change *ch);

/* --- crt-list (crtlist.c) --- */

/* One line. Slices into the text of the file. */
struct crtlist_line {
	unsigned number;
	struct str path, options; /* options without brackets; p NULL: none */
	struct str filters; /* what is left of the line */
};
typedef int crtlist_fn(void *ctx, const struct crtlist_line *line, struct err *err);
HG_WUR int crtlist_parse(struct str text, const char *file, crtlist_fn *use, void *ctx,
			 struct err *err);
/* Options in brackets, over what `base` says; strings in `arena`. */
HG_WUR int crtlist_options(struct str options, const struct conf_tls *base, struct arena *arena,
			   struct conf_tls *ret, struct err *err);

#endif
