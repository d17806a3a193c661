/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Signatures of JSON Web Tokens (RFC 7515, RFC 7518 3) and names of what can be wrong with a certificate.
 * Keys are read with the configuration; libcrypto allocates while it verifies. Workers.
 */
#include "expr/expr_priv.h"

#include <openssl/bio.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>

/* What jwt_verify gives; the numbers are HAProxy's. */
enum verdict {
	JWT_BAD = 0,
	JWT_GOOD = 1,
	JWT_UNKNOWN_ALG = -1,
	JWT_UNMANAGED_ALG = -2,
	JWT_INVALID = -3,
	JWT_NO_MEMORY = -4,
	JWT_NO_KEY = -5
};

enum alg_kind {
	ALG_NONE,
	ALG_HMAC,
	ALG_RSA,
	ALG_PSS,
	ALG_EC
};

static const struct jwt_alg {
	const char *name;
	enum alg_kind kind;
	const EVP_MD *(*md)(void);
	int bits; /* ALG_EC: of the curve */
} algs[] = {
	{ "HS256", ALG_HMAC, EVP_sha256, 0 }, { "HS384", ALG_HMAC, EVP_sha384, 0 },
	{ "HS512", ALG_HMAC, EVP_sha512, 0 }, { "RS256", ALG_RSA, EVP_sha256, 0 },
	{ "RS384", ALG_RSA, EVP_sha384, 0 },  { "RS512", ALG_RSA, EVP_sha512, 0 },
	{ "PS256", ALG_PSS, EVP_sha256, 0 },  { "PS384", ALG_PSS, EVP_sha384, 0 },
	{ "PS512", ALG_PSS, EVP_sha512, 0 },  { "ES256", ALG_EC, EVP_sha256, 256 },
	{ "ES384", ALG_EC, EVP_sha384, 384 }, { "ES512", ALG_EC, EVP_sha512, 521 },
	{ "none", ALG_NONE, NULL, 0 }, /* known, and never accepted */
};

static const struct jwt_alg *alg_find(struct str name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(algs); i++) {
		if (str_is_eq(name, str_from_cstr(algs[i].name)))
			return &algs[i];
	}
	return NULL;
}

static bool key_fits(const struct jwt_alg *alg, const EVP_PKEY *key)
{
	return alg->kind == ALG_EC ? EVP_PKEY_get_base_id(key) == EVP_PKEY_EC &&
					     EVP_PKEY_get_bits(key) == alg->bits
				   : EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA;
}

/* --- compiling --- */

static void key_drop(void *key)
{
	EVP_PKEY_free(key);
}

/* A public key or a certificate in PEM; NULL: neither. */
static EVP_PKEY *key_parse(struct str text)
{
	BIO *bio = text.len <= INT_MAX ? BIO_new_mem_buf(text.p, (int)text.len) : NULL;
	EVP_PKEY *key = bio ? PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL) : NULL;
	X509 *x;

	if (bio && !key && BIO_reset(bio) == 1) {
		x = PEM_read_bio_X509(bio, NULL, NULL, NULL);
		key = x ? X509_get_pubkey(x) : NULL;
		X509_free(x);
	}
	BIO_free(bio);
	return key;
}

static int key_load(struct fn_check *c, struct err *err)
{
	struct expr_arg *a = &c->args[1];
	struct str text;
	int r = pat_file_text(c->env, a->str, &text, err);
	EVP_PKEY *key;

	if (r)
		return r;
	key = key_parse(text);
	if (!key)
		return err_set(err, -EINVAL,
			       STR_FMT ": neither a public key nor a certificate in PEM",
			       STR_ARG(str_sub(a->str, 0, 100)));
	r = expr_own(c->env, key, key_drop);
	if (r) {
		key_drop(key);
		return r;
	}
	a->type = ARG_PTR;
	a->ptr = key;
	return 0;
}

static bool looks_like_file(struct str s)
{
	return str_find_char(s, '/') != SIZE_MAX || str_is_suffix(s, STR(".pem")) ||
	       str_is_suffix(s, STR(".crt")) || str_is_suffix(s, STR(".key")) ||
	       str_is_suffix(s, STR(".pub"));
}

/*
 * A fixed algorithm says what the key is. With one from a variable, what looks like a file is one and
 * never a secret: somebody who can guess its name must not be able to sign with HS256.
 */
static int check_jwt_verify(struct fn_check *c, struct err *err)
{
	struct expr_arg *a = c->args;
	const struct jwt_alg *alg = alg_find(a[0].str);
	struct err ignored;
	bool is_file;
	int r;

	if (alg && alg->kind == ALG_NONE)
		return err_set(err, -EINVAL, "tokens of algorithm none are not signed");
	if (!alg && (str_find_char(a[0].str, '.') == SIZE_MAX || arg_parse_var(&a[0], &ignored)))
		return err_set(err, -EINVAL,
			       "'" STR_FMT "' is neither an algorithm of RFC 7518 nor a variable",
			       STR_ARG(str_sub(a[0].str, 0, 60)));
	if (alg) {
		a[0].type = ARG_PTR;
		a[0].ptr = (void *)(uintptr_t)alg;
	}
	c->error_at = a[1].at;
	is_file = alg ? alg->kind != ALG_HMAC : looks_like_file(a[1].str);
	if (!is_file && str_find_char(a[1].str, '.') != SIZE_MAX &&
	    arg_parse_var(&a[1], &ignored) == 0)
		return 0;
	if (!is_file && a[1].str.len == 0)
		return err_set(err, -EINVAL, "the key is empty");
	r = is_file ? key_load(c, err) : 0;
	if (r == 0 && alg && is_file && !key_fits(alg, a[1].ptr))
		return err_set(err, -EINVAL, STR_FMT ": not a key for %s", STR_ARG(a[1].str),
			       alg->name);
	return r;
}

/* --- verifying --- */

static enum verdict verify_hmac(const struct jwt_alg *alg, struct str key, struct str data,
				struct str sig)
{
	uint8_t md[EVP_MAX_MD_SIZE];
	unsigned len;

	if (key.len > INT_MAX ||
	    !HMAC(alg->md(), key.p, (int)key.len, (const uint8_t *)data.p, data.len, md, &len))
		return JWT_NO_MEMORY;
	return sig.len == len && CRYPTO_memcmp(md, sig.p, len) == 0 ? JWT_GOOD : JWT_BAD;
}

/* RFC 7518 3.4: r and s, each as long as the curve, one behind the other; libcrypto wants DER. */
static int ec_to_der(const struct jwt_alg *alg, struct str sig, uint8_t **ret)
{
	int half = (alg->bits + 7) / 8, len = -1;
	ECDSA_SIG *es = ECDSA_SIG_new();
	BIGNUM *r, *s;

	if (es && sig.len == 2 * (size_t)half) {
		r = BN_bin2bn((const uint8_t *)sig.p, half, NULL);
		s = BN_bin2bn((const uint8_t *)sig.p + half, half, NULL);
		if (r && s && ECDSA_SIG_set0(es, r, s)) {
			len = i2d_ECDSA_SIG(es, ret);
		} else {
			BN_free(r);
			BN_free(s);
		}
	}
	ECDSA_SIG_free(es);
	return len;
}

static enum verdict verify_key(const struct jwt_alg *alg, EVP_PKEY *key, struct str data,
			       struct str sig)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	uint8_t *der = NULL;
	EVP_PKEY_CTX *pctx;
	enum verdict v = JWT_BAD;

	if (!ctx || EVP_DigestVerifyInit(ctx, &pctx, alg->md(), NULL, key) != 1) {
		EVP_MD_CTX_free(ctx);
		return JWT_NO_MEMORY;
	}
	if (alg->kind == ALG_EC) {
		int len = ec_to_der(alg, sig, &der);

		sig = str_make((char *)der, len > 0 ? (size_t)len : 0);
	}
	if (alg->kind != ALG_PSS ||
	    (EVP_PKEY_CTX_set_rsa_padding(pctx, RSA_PKCS1_PSS_PADDING) == 1 &&
	     EVP_PKEY_CTX_set_rsa_pss_saltlen(pctx, RSA_PSS_SALTLEN_DIGEST) == 1))
		v = sig.len && EVP_DigestVerify(ctx, (const uint8_t *)sig.p, sig.len,
						(const uint8_t *)data.p, data.len) == 1
			    ? JWT_GOOD
			    : JWT_BAD;
	OPENSSL_free(der);
	EVP_MD_CTX_free(ctx);
	return v;
}

/* Text of a variable; p NULL: not set or no text. */
static struct str arg_text(const struct eval *ev, const struct expr_arg *a)
{
	const struct sample *v;

	if (a->type != ARG_VAR)
		return a->str;
	v = subject_var_get(ev->s, (enum var_scope)a->scope, a->var);
	return v && v->type >= SAMPLE_STR ? v->str : STR_NULL;
}

static enum verdict jwt_verify(struct eval *ev, const struct expr_arg *args, struct str token)
{
	const struct jwt_alg *alg = args[0].type == ARG_PTR ? args[0].ptr
							    : alg_find(arg_text(ev, &args[0]));
	struct str rest = token, part[3], sig, data;
	char *out;
	ssize_t n;

	if (!alg || alg->kind == ALG_NONE)
		return alg ? JWT_UNMANAGED_ALG : JWT_UNKNOWN_ALG;
	for (unsigned i = 0; i < 3; i++) {
		if (!rest.p)
			return JWT_INVALID;
		part[i] = str_cut(&rest, '.');
	}
	out = eval_alloc(ev, part[2].len / 4 * 3 + 6);
	if (!out)
		return JWT_NO_MEMORY;
	n = b64_decode(part[2], out, true);
	if (rest.p || n <= 0)
		return JWT_INVALID;
	sig = str_make(out, (size_t)n);
	data = str_sub(token, 0, part[0].len + 1 + part[1].len);
	if (alg->kind == ALG_HMAC) {
		struct str key = args[1].type == ARG_PTR ? STR_NULL : arg_text(ev, &args[1]);

		return key.len ? verify_hmac(alg, key, data, sig) : JWT_NO_KEY;
	}
	if (args[1].type != ARG_PTR || !key_fits(alg, args[1].ptr))
		return JWT_NO_KEY;
	return verify_key(alg, args[1].ptr, data, sig);
}

static int conv_jwt_verify(struct eval *ev, const struct expr_arg *args, unsigned kw,
			   struct sample *smp)
{
	sample_set_int(smp, jwt_verify(ev, args, smp->str));
	return 0;
}

/* --- certificates --- */

#define ERR_NAME(n) { X509_V_##n, "X509_V_" #n }
static const struct {
	int code;
	const char *name;
} err_names[] = {
	ERR_NAME(OK),
	ERR_NAME(ERR_UNSPECIFIED),
	ERR_NAME(ERR_UNABLE_TO_GET_ISSUER_CERT),
	ERR_NAME(ERR_UNABLE_TO_GET_CRL),
	ERR_NAME(ERR_UNABLE_TO_DECRYPT_CERT_SIGNATURE),
	ERR_NAME(ERR_UNABLE_TO_DECRYPT_CRL_SIGNATURE),
	ERR_NAME(ERR_UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY),
	ERR_NAME(ERR_CERT_SIGNATURE_FAILURE),
	ERR_NAME(ERR_CRL_SIGNATURE_FAILURE),
	ERR_NAME(ERR_CERT_NOT_YET_VALID),
	ERR_NAME(ERR_CERT_HAS_EXPIRED),
	ERR_NAME(ERR_CRL_NOT_YET_VALID),
	ERR_NAME(ERR_CRL_HAS_EXPIRED),
	ERR_NAME(ERR_ERROR_IN_CERT_NOT_BEFORE_FIELD),
	ERR_NAME(ERR_ERROR_IN_CERT_NOT_AFTER_FIELD),
	ERR_NAME(ERR_ERROR_IN_CRL_LAST_UPDATE_FIELD),
	ERR_NAME(ERR_ERROR_IN_CRL_NEXT_UPDATE_FIELD),
	ERR_NAME(ERR_OUT_OF_MEM),
	ERR_NAME(ERR_DEPTH_ZERO_SELF_SIGNED_CERT),
	ERR_NAME(ERR_SELF_SIGNED_CERT_IN_CHAIN),
	ERR_NAME(ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY),
	ERR_NAME(ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE),
	ERR_NAME(ERR_CERT_CHAIN_TOO_LONG),
	ERR_NAME(ERR_CERT_REVOKED),
	ERR_NAME(ERR_PATH_LENGTH_EXCEEDED),
	ERR_NAME(ERR_INVALID_PURPOSE),
	ERR_NAME(ERR_CERT_UNTRUSTED),
	ERR_NAME(ERR_CERT_REJECTED),
	ERR_NAME(ERR_SUBJECT_ISSUER_MISMATCH),
	ERR_NAME(ERR_AKID_SKID_MISMATCH),
	ERR_NAME(ERR_AKID_ISSUER_SERIAL_MISMATCH),
	ERR_NAME(ERR_KEYUSAGE_NO_CERTSIGN),
	ERR_NAME(ERR_UNABLE_TO_GET_CRL_ISSUER),
	ERR_NAME(ERR_UNHANDLED_CRITICAL_EXTENSION),
	ERR_NAME(ERR_KEYUSAGE_NO_CRL_SIGN),
	ERR_NAME(ERR_INVALID_EXTENSION),
	ERR_NAME(ERR_HOSTNAME_MISMATCH),
	ERR_NAME(ERR_EMAIL_MISMATCH),
	ERR_NAME(ERR_IP_ADDRESS_MISMATCH),
	ERR_NAME(ERR_EE_KEY_TOO_SMALL),
	ERR_NAME(ERR_CA_KEY_TOO_SMALL),
	ERR_NAME(ERR_CA_MD_TOO_WEAK),
	ERR_NAME(ERR_INVALID_CALL),
};

/* Numbers without a name stay numbers. */
static int conv_verify_error(struct eval *ev, const struct expr_arg *args, unsigned kw,
			     struct sample *smp)
{
	for (unsigned i = 0; i < ARRAY_SIZE(err_names); i++) {
		if (smp->sint == err_names[i].code) {
			sample_set_str(smp, SAMPLE_STR, str_from_cstr(err_names[i].name));
			return 0;
		}
	}
	return sample_cast(smp, SAMPLE_STR, ev->arena);
}

static const struct conv_def convs[] = {
	C("jwt_verify", "algorithm,key", "ss", BIN, SINT, 0, conv_jwt_verify, check_jwt_verify,
	  "1: the token's signature is good, 0: it is not, -1: unknown algorithm, -2: unsigned, "
	  "-3: no "
	  "token, -5: no key of that kind; the key is a secret, a variable with one, or a file in "
	  "PEM"),
	C("x509_v_err_str", "", "", SINT, STR, 0, conv_verify_error, NULL,
	  "libcrypto's name of a verification error, X509_V_ERR_…"),
};

const struct conv_table conv_sign_table = { convs, ARRAY_SIZE(convs) };
