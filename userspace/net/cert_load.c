/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One certificate from PEM: leaf, key and chain in any order in one file, or the key in a file of its own; and what may
 * stand beside: its OCSP response, its issuer.
 * Control thread; reads files, blocks. Errors name the file and, where there is one, the line.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/decoder.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/tls_priv.h"

#define FILE_MAX (16u << 20)

static int read_all(int fd, size_t size, char **ret_text, size_t *ret_len)
{
	char *text = mem_alloc(size + 1);
	size_t len = 0;
	ssize_t n;

	if (!text)
		return -ENOMEM;
	while (len < size && (n = read(fd, text + len, size - len)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int r = -errno;

			mem_free(text);
			return r;
		}
		len += (size_t)n;
	}
	text[len] = '\0';
	*ret_text = text;
	*ret_len = len;
	return 0;
}

int net_read_file(const char *path, char **ret_text, size_t *ret_len, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), r = 0;
	struct stat st;

	if (fd < 0)
		return err_set(err, -errno, "cannot open '%s': %s", path, strerror(errno));
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode))
		r = -EINVAL;
	else if (st.st_size > FILE_MAX)
		r = -EFBIG;
	else
		r = read_all(fd, (size_t)st.st_size, ret_text, ret_len);
	close(fd);
	return r ? err_set(err, r, "cannot read '%s': %s", path,
			   r == -EINVAL ? "not a regular file" : strerror(-r))
		 : 0;
}

uint64_t file_identity(const char *path)
{
	struct stat st;
	uint64_t v[4];

	if (!path || stat(path, &st) < 0)
		return 0;
	v[0] = (uint64_t)st.st_mtim.tv_sec;
	v[1] = (uint64_t)st.st_mtim.tv_nsec;
	v[2] = (uint64_t)st.st_size;
	v[3] = st.st_ino;
	return str_hash(str_make((const char *)v, sizeof(v)), 1) | 1;
}

/* --- PEM --- */

unsigned pem_line(const struct pem_block *b)
{
	size_t off = b->text.len - (size_t)BIO_pending(b->bio);
	unsigned line = 1;

	/* The end of the block's own last line does not count. */
	for (size_t i = 0; i + 1 < off; i++)
		line += b->text.p[i] == '\n';
	return line;
}

int pem_each(const char *path, struct str text, pem_fn *fn, void *ctx, struct err *err)
{
	struct pem_block b = { .path = path, .text = text };
	int r = 0;

	b.bio = BIO_new_mem_buf(text.p, (int)text.len);
	if (!b.bio)
		return err_set(err, -ENOMEM, "out of memory");
	while (r == 0) {
		unsigned char *der;
		char *name, *header;

		ERR_clear_error();
		if (!PEM_read_bio(b.bio, &name, &header, &der, &b.len)) {
			if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
				r = err_set(err, -EINVAL, "%s: bad PEM before line %u: %s", path,
					    pem_line(&b), tls_reason());
			break;
		}
		b.type = str_from_cstr(name);
		b.is_encrypted = strstr(header, "ENCRYPTED") ||
				 str_is_eq(b.type, STR("ENCRYPTED PRIVATE KEY"));
		b.der = der;
		r = fn(ctx, &b, err);
		OPENSSL_free(name);
		OPENSSL_free(header);
		OPENSSL_clear_free(der, (size_t)b.len);
	}
	ERR_clear_error();
	BIO_free(b.bio);
	return r;
}

int pem_bad_block(const struct pem_block *b, int code, struct err *err)
{
	return err_set(err, code, "%s: cannot read the " STR_FMT " that ends in line %u: %s",
		       b->path, STR_ARG(b->type), pem_line(b), tls_reason());
}

bool pem_is_cert(const struct pem_block *b)
{
	return str_is_eq(b->type, STR("CERTIFICATE")) ||
	       str_is_eq(b->type, STR("X509 CERTIFICATE"));
}

/* --- one certificate --- */

/*
 * The last intermediates that were read. Thousands of certificates come with the same few: they share one object, which
 * saves 160 µs and some KiB for each.
 */
#define RECENT 8

static struct recent {
	char *der;
	size_t len;
	X509 *x;
} recent[RECENT];

/* A reference, or NULL. */
static X509 *read_intermediate(const unsigned char *der, long len)
{
	static unsigned next;
	struct recent *r;
	X509 *x;

	for (unsigned i = 0; i < RECENT; i++) {
		r = &recent[i];
		if (r->len == (size_t)len && memcmp(r->der, der, r->len) == 0)
			return X509_up_ref(r->x) ? r->x : NULL;
	}
	r = &recent[next++ % RECENT];
	X509_free(r->x);
	mem_free(r->der);
	*r = (struct recent){ .len = 0 };
	r->der = mem_strdup(str_make((const char *)der, (size_t)len));
	x = d2i_X509(NULL, &der, len);
	if (x && r->der && X509_up_ref(x)) {
		r->x = x;
		r->len = (size_t)len;
	}
	return x;
}

static int add_x509(struct cert *c, const unsigned char *der, long len)
{
	X509 *x = c->x509 ? read_intermediate(der, len) : d2i_X509(NULL, &der, len);

	if (!x)
		return -EINVAL;
	if (!c->x509) {
		c->x509 = x;
		return 0;
	}
	if (!c->chain)
		c->chain = sk_X509_new_null();
	if (!c->chain || !sk_X509_push(c->chain, x)) {
		X509_free(x);
		return -ENOMEM;
	}
	return 0;
}

/*
 * OpenSSL 3 decodes with a context that d2i_AutoPrivateKey() puts together out of all decoders there are, and throws
 * away: 600 µs where the decoding takes 35. Ours is kept. NULL: not decoded by it.
 */
static EVP_PKEY *decode_key(const unsigned char *der, long len)
{
	static OSSL_DECODER_CTX *decoder;
	static EVP_PKEY *key;
	size_t left = (size_t)len;

	if (!decoder)
		decoder = OSSL_DECODER_CTX_new_for_pkey(&key, "DER", NULL, NULL, EVP_PKEY_KEYPAIR,
							NULL, NULL);
	key = NULL;
	return decoder && OSSL_DECODER_from_data(decoder, &der, &left) && left == 0 ? key : NULL;
}

static int add_key(struct cert *c, const unsigned char *der, long len)
{
	/* Like HAProxy: the first key of a file counts. */
	if (c->key)
		return 0;
	c->key = decode_key(der, len);
	if (!c->key) /* it tells why */
		c->key = d2i_AutoPrivateKey(NULL, &der, len);
	return c->key ? 0 : -EINVAL;
}

/* OpenSSL refuses what is too short for its security level when it is used: better now. */
static bool is_dh_good(EVP_PKEY *dh)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	bool ok = ctx && EVP_PKEY_up_ref(dh);

	if (ok && !SSL_CTX_set0_tmp_dh_pkey(ctx, dh)) {
		EVP_PKEY_free(dh);
		ok = false;
	}
	SSL_CTX_free(ctx);
	return ok;
}

static int add_dh(struct cert *c, const unsigned char *der, long len)
{
	EVP_PKEY *dh = c->dh ? NULL : d2i_KeyParams(EVP_PKEY_DH, NULL, &der, len);

	if (c->dh)
		return 0;
	if (!dh)
		return -EINVAL;
	if (!is_dh_good(dh)) {
		EVP_PKEY_free(dh);
		return -EINVAL;
	}
	c->dh = dh;
	return 0;
}

struct cert_read {
	struct cert *cert;
	bool is_key_file;
};

static int add_block(void *ctx, const struct pem_block *b, struct err *err)
{
	const struct cert_read *rd = ctx;
	int r = 0;

	if (str_is_suffix(b->type, STR("PRIVATE KEY"))) {
		if (b->is_encrypted)
			return err_set(err, -EINVAL,
				       "%s: the private key that ends in line %u is encrypted; "
				       "store it without a passphrase",
				       b->path, pem_line(b));
		r = add_key(rd->cert, b->der, b->len);
	} else if (!rd->is_key_file && pem_is_cert(b)) {
		r = add_x509(rd->cert, b->der, b->len);
	} else if (!rd->is_key_file && str_is_eq(b->type, STR("DH PARAMETERS"))) {
		r = add_dh(rd->cert, b->der, b->len);
	}
	/* Everything else (EC parameters, comments) is not ours to judge. */
	return r ? pem_bad_block(b, r, err) : 0;
}

int cert_read_pem(struct cert *c, const char *path, struct str text, bool is_key_file,
		  struct err *err)
{
	struct cert_read rd = { c, is_key_file };

	return pem_each(path, text, add_block, &rd, err);
}

static int read_pem(struct cert *c, const char *path, bool is_key_file, struct err *err)
{
	char *text;
	size_t len;
	int r = net_read_file(path, &text, &len, err);

	if (r)
		return r;
	r = cert_read_pem(c, path, str_make(text, len), is_key_file, err);
	OPENSSL_cleanse(text, len);
	mem_free(text);
	return r;
}

/* --- what stands beside it --- */

static int set_path(struct cert *c, enum crt_part part, const char *path)
{
	mem_free(c->paths[part]);
	c->paths[part] = mem_strdup(str_from_cstr(path));
	c->identity[part] = file_identity(path);
	return c->paths[part] ? 0 : -ENOMEM;
}

/* "FILE.ext", or for site.crt "site.ext". False: too long. */
static bool path_beside(char out[4096], const char *path, bool drops_ext, const char *ext)
{
	struct str stem = str_from_cstr(path);
	int n;

	if (drops_ext && str_is_suffix(stem, STR(".crt")))
		stem.len -= 4;
	n = snprintf(out, 4096, STR_FMT ".%s", STR_ARG(stem), ext);
	return n > 0 && n < 4096;
}

/* A name that is given has to be there, one that is guessed need not. */
static int find_part(struct cert *c, const struct cert_recipe *how, enum crt_part part,
		     struct err *err)
{
	static const struct {
		const char *ext;
		unsigned extra;
	} parts[] = {
		[CRT_OCSP] = { "ocsp", CONF_EXTRA_OCSP },
		[CRT_ISSUER] = { "issuer", CONF_EXTRA_ISSUER },
		[CRT_SCTL] = { "sctl", CONF_EXTRA_SCTL },
	};
	char path[4096];

	if (how->paths[part] && access(how->paths[part], R_OK) < 0)
		return err_set(err, -errno, "cannot open '%s': %s", how->paths[part],
			       strerror(errno));
	if (how->paths[part])
		return set_path(c, part, how->paths[part]);
	if (!(how->extra & parts[part].extra) ||
	    !path_beside(path, c->paths[CRT_PEM], how->drops_ext, parts[part].ext))
		return 0;
	return set_path(c, part, path);
}

static int read_issuer(struct cert *c, struct err *err)
{
	struct ca_file *f;
	int r;

	if (c->identity[CRT_ISSUER] == 0)
		return 0;
	f = ca_file_new(c->paths[CRT_ISSUER]);
	r = f ? ca_file_read(f, c->paths[CRT_ISSUER], err) : err_set(err, -ENOMEM, "out of memory");
	if (r == 0 && !f->certs)
		r = err_set(err, -EINVAL, "no certificate in '%s'", c->paths[CRT_ISSUER]);
	if (r == 0 && X509_up_ref(sk_X509_value(f->certs, 0)))
		c->issuer = sk_X509_value(f->certs, 0);
	ca_file_free(f);
	return r;
}

/* FILE.key, or FILE with its extension replaced. */
static int read_key_beside(struct cert *c, const struct cert_recipe *how, struct err *err)
{
	const char *path = c->paths[CRT_PEM];
	const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
	size_t stem = dot && (!slash || dot > slash) ? (size_t)(dot - path) : strlen(path);
	size_t stems[2] = { how->drops_ext ? stem : strlen(path), stem };

	for (size_t i = 0; i < ARRAY_SIZE(stems) && !c->key && (how->extra & CONF_EXTRA_KEY); i++) {
		char full[4096];
		int n = snprintf(full, sizeof(full), "%.*s.key", (int)stems[i], path), r;

		if (n < 0 || (size_t)n >= sizeof(full) || access(full, F_OK) < 0)
			continue;
		r = read_pem(c, full, true, err);
		if (r)
			return r;
		if (set_path(c, CRT_KEY, full))
			return err_set(err, -ENOMEM, "out of memory");
	}
	if (!c->key)
		return err_set(err, -EINVAL, "no private key in '%s' (nor in '%s.key')", path,
			       path);
	return 0;
}

static int read_key(struct cert *c, const struct cert_recipe *how, struct err *err)
{
	const char *path = how->paths[CRT_KEY];
	int r;

	if (!path)
		return c->key ? 0 : read_key_beside(c, how, err);
	EVP_PKEY_free(c->key);
	c->key = NULL;
	r = read_pem(c, path, true, err);
	if (r == 0 && !c->key)
		r = err_set(err, -EINVAL, "no private key in '%s'", path);
	if (r == 0 && set_path(c, CRT_KEY, path))
		r = err_set(err, -ENOMEM, "out of memory");
	return r;
}

/* --- what is in it --- */

static int key_type(const EVP_PKEY *key)
{
	static const int types[CERT_TYPES] = { EVP_PKEY_RSA, EVP_PKEY_RSA_PSS, EVP_PKEY_EC,
					       EVP_PKEY_ED25519, EVP_PKEY_ED448 };

	for (int i = 0; i < CERT_TYPES; i++) {
		if (EVP_PKEY_get_base_id(key) == types[i])
			return i;
	}
	return -EINVAL;
}

/* Lower case; a name with a NUL or without length names nothing. */
static int add_name(struct cert *c, struct str name)
{
	char **names;
	char *copy;

	if (name.len == 0 || name.len > 255 || memchr(name.p, '\0', name.len))
		return 0;
	copy = mem_strdup(name);
	names = copy ? mem_realloc(c->names, (c->n_names + 1) * sizeof(*names)) : NULL;
	if (!names) {
		mem_free(copy);
		return -ENOMEM;
	}
	for (char *p = copy; *p; p++)
		*p = str_lower_char(*p);
	c->names = names;
	c->names[c->n_names++] = copy;
	return 0;
}

static int add_common_names(struct cert *c)
{
	const X509_NAME *subject = X509_get_subject_name(c->x509);
	int i = -1, r = 0;

	while (r == 0 && (i = X509_NAME_get_index_by_NID(subject, NID_commonName, i)) >= 0) {
		ASN1_STRING *s = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, i));
		unsigned char *utf8;
		int len = ASN1_STRING_to_UTF8(&utf8, s);

		if (len < 0)
			continue;
		r = add_name(c, str_make((char *)utf8, (size_t)len));
		OPENSSL_free(utf8);
	}
	return r;
}

static int add_names(struct cert *c)
{
	GENERAL_NAMES *all = X509_get_ext_d2i(c->x509, NID_subject_alt_name, NULL, NULL);
	int r = 0;

	for (int i = 0; r == 0 && i < sk_GENERAL_NAME_num(all); i++) {
		const GENERAL_NAME *g = sk_GENERAL_NAME_value(all, i);

		if (g->type == GEN_DNS)
			r = add_name(c, str_make((const char *)ASN1_STRING_get0_data(g->d.dNSName),
						 (size_t)ASN1_STRING_length(g->d.dNSName)));
	}
	GENERAL_NAMES_free(all);
	ERR_clear_error();
	return r ? r : add_common_names(c);
}

int cert_finish(struct cert *c, struct err *err)
{
	const char *path = c->file.path;
	int r;

	if (!X509_check_private_key(c->x509, c->key)) {
		ERR_clear_error();
		return err_set(err, -EINVAL,
			       "'%s': the private key%s%s does not match the certificate", path,
			       c->paths[CRT_KEY] ? " of " : "",
			       c->paths[CRT_KEY] ? c->paths[CRT_KEY] : "");
	}
	r = key_type(c->key);
	if (r < 0)
		return err_set(err, r, "'%s': this kind of key (%s) is not supported", path,
			       OBJ_nid2sn(EVP_PKEY_get_base_id(c->key)));
	c->type = (unsigned)r;
	/* Fills OpenSSL's cache of extensions now: workers only read it. */
	X509_check_purpose(c->x509, -1, 0);
	ERR_clear_error();
	return add_names(c) ? err_set(err, -ENOMEM, "out of memory") : 0;
}

static int cert_fill(struct cert *c, const struct cert_recipe *how, struct err *why_no_ocsp,
		     struct err *err)
{
	const char *path = how->paths[CRT_PEM];
	int r;

	if (set_path(c, CRT_PEM, path))
		return err_set(err, -ENOMEM, "out of memory");
	r = read_pem(c, path, false, err);
	if (r == 0 && !c->x509)
		r = err_set(err, -EINVAL, "no certificate in '%s'", path);
	if (r == 0)
		r = read_key(c, how, err);
	if (r == 0)
		r = cert_finish(c, err);
	for (unsigned part = CRT_OCSP; part < CRT_PARTS && r == 0; part++)
		r = find_part(c, how, part, err);
	if (r == 0)
		r = read_issuer(c, err);
	if (r == 0)
		r = sct_load(c, err);
	if (r == 0 && ocsp_load(c, why_no_ocsp) == 0)
		why_no_ocsp->text[0] = '\0';
	return r;
}

struct cert *cert_new(const char *path)
{
	struct cert *c = mem_zalloc(sizeof(*c));

	if (!c)
		return NULL;
	atomic_init(&c->refs, 1);
	c->file.path = mem_strdup(str_from_cstr(path));
	if (c->file.path)
		return c;
	mem_free(c);
	return NULL;
}

int cert_load(const struct cert_recipe *how, struct cert **ret_cert, struct err *why_no_ocsp,
	      struct err *err)
{
	struct cert *c = cert_new(how->name);
	int r = c ? cert_fill(c, how, why_no_ocsp, err) : err_set(err, -ENOMEM, "out of memory");

	if (r) {
		cert_put(c);
		return r;
	}
	*ret_cert = c;
	return 0;
}
