/* SPDX-License-Identifier: BSD-2-Clause */
/* Fetches about TLS on either side; the values come from subject_ops.tls. Workers. */
#include "expr/expr_priv.h"

#define BACK 0x100 /* in kw: the server's connection */

static bool side_is_tls(const struct eval *ev, unsigned kw)
{
	return kw & BACK ? ev->s->back.is_tls : ev->s->front.is_tls;
}

static int fetch_is_tls(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *ret)
{
	sample_set_bool(ret, side_is_tls(ev, kw));
	return 0;
}

static int fetch_tls(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	const struct subject *s = ev->s;

	if (!side_is_tls(ev, kw) || !s->ops || !s->ops->tls)
		return -ENOENT;
	return s->ops->tls(s, kw & BACK, (enum subject_tls_field)(kw & 0xff), ret);
}

/* Facts that are simply false on a connection without TLS. */
static int fetch_tls_bool(struct eval *ev, const struct expr_arg *args, unsigned kw,
			  struct sample *ret)
{
	int r = fetch_tls(ev, args, kw, ret);

	if (r && r != -ENOENT)
		return r;
	sample_set_bool(ret, r == 0 && ret->sint != 0);
	return 0;
}

static int fetch_has(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	int r = fetch_tls(ev, args, kw, ret);

	if (r && r != -ENOENT)
		return r;
	sample_set_bool(ret, r == 0 && ret->str.len != 0);
	return 0;
}

/*
 * "/C=FR/O=Example/CN=a": the value of one entry; occ > 0 from the first, < 0 from the last, default
 * the first. A '/' inside a value is only taken as a border when "KEY=" follows.
 */
static bool dn_next(struct str *dn, struct str *ret_key, struct str *ret_value)
{
	size_t eq, end;

	if (dn->len == 0 || dn->p[0] != '/')
		return false;
	eq = str_find_char(*dn, '=');
	if (eq == SIZE_MAX)
		return false;
	*ret_key = str_sub(*dn, 1, eq - 1);
	for (end = eq + 1; end < dn->len; end++) {
		struct str rest = str_from(*dn, end);
		size_t next_eq, slash;

		if (rest.p[0] != '/')
			continue;
		next_eq = str_find_char(rest, '=');
		slash = str_find_char(str_from(rest, 1), '/');
		if (next_eq != SIZE_MAX && (slash == SIZE_MAX || next_eq < slash + 1))
			break;
		if (next_eq == SIZE_MAX) {
			end = dn->len;
			break;
		}
	}
	*ret_value = str_sub(*dn, eq + 1, end - eq - 1);
	*dn = str_from(*dn, end);
	return true;
}

static int fetch_dn(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	int r = fetch_tls(ev, args, kw, ret);
	int64_t occ = args[1].type == ARG_INT ? args[1].num : 1, n = 0;
	struct str dn, key, value;

	if (r || args[0].type != ARG_STR)
		return r;
	if (occ < 0) {
		for (dn = ret->str; dn_next(&dn, &key, &value);)
			n += str_is_case_eq(key, args[0].str);
		occ = n + occ + 1;
	}
	for (dn = ret->str, n = 0; dn_next(&dn, &key, &value);) {
		if (str_is_case_eq(key, args[0].str) && ++n == occ) {
			ret->str = value;
			return 0;
		}
	}
	return -ENOENT;
}

static int check_filter(struct fn_check *c, struct err *err)
{
	if (c->n_args && c->args[0].type == ARG_INT && c->args[0].num != 0 && c->args[0].num != 1)
		return err_set(err, -EINVAL, "the filter is 0 (all) or 1 (without GREASE)");
	return 0;
}

static bool is_filtered(const struct expr_arg *args)
{
	return args[0].type == ARG_INT && args[0].num == 1;
}

/* A list of 16-bit codes as the client sent it, or without those that mean nothing (GREASE, RFC 8701). */
static int fetch_codes(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *ret)
{
	int r = fetch_tls(ev, args, kw, ret);
	char *out;
	size_t n = 0;

	if (r || !is_filtered(args) || ret->str.len == 0)
		return r;
	out = arena_alloc(ev->arena, ret->str.len);
	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i + 2 <= ret->str.len; i += 2) {
		const char *p = ret->str.p + i;

		if (p[0] == p[1] && (p[0] & 0xf) == 0xa)
			continue;
		memcpy(out + n, p, 2);
		n += 2;
	}
	ret->str = str_make(out, n);
	return 0;
}

static int fetch_codes_hex(struct eval *ev, const struct expr_arg *args, unsigned kw,
			   struct sample *ret)
{
	static const char digits[] = "0123456789ABCDEF";
	int r = fetch_codes(ev, args, kw, ret);
	struct str bin = ret->str;
	char *out = r ? NULL : arena_alloc(ev->arena, bin.len * 2 + 1);

	if (r)
		return r;
	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < bin.len; i++) {
		out[i * 2] = digits[(uint8_t)bin.p[i] >> 4];
		out[i * 2 + 1] = digits[bin.p[i] & 0xf];
	}
	*ret = (struct sample){ .type = SAMPLE_STR, .str = str_make(out, bin.len * 2) };
	return 0;
}

static int fetch_cipher_names(struct eval *ev, const struct expr_arg *args, unsigned kw,
			      struct sample *ret)
{
	return fetch_tls(ev, args,
			 is_filtered(args) ? TLS_HELLO_CIPHER_NAMES_PLAIN : TLS_HELLO_CIPHER_NAMES,
			 ret);
}

#define P	       PLACES_CONN
#define B	       (PLACE_REQ | PLACE_RSP | PLACE_LOG | PLACE_CHECK)
#define T(n, o, k, h)  F(n, "", "", o, P, k, fetch_tls, NULL, h)
#define TB(n, o, k, h) F(n, "", "", o, B, (k) | BACK, fetch_tls, NULL, h)
/* Fields of one certificate; `pl` where, `k` whose. */
#define CERT(n, pl, k, h)                                                                     \
	F(n "s_dn", "[entry],[occ]", "[si", STR, pl, (k) + CERT_S_DN, fetch_dn, NULL,         \
	  "subject of " h ", or one entry of it"),                                            \
		F(n "i_dn", "[entry],[occ]", "[si", STR, pl, (k) + CERT_I_DN, fetch_dn, NULL, \
		  "issuer of " h ", or one entry of it"),                                     \
		CERT_ROW(n "serial", BIN, pl, (k) + CERT_SERIAL, "serial number of " h),      \
		CERT_ROW(n "sha1", BIN, pl, (k) + CERT_SHA1, "SHA-1 of " h),                  \
		CERT_ROW(n "notbefore", STR, pl, (k) + CERT_NOTBEFORE, "YYMMDDhhmmss[Z]"),    \
		CERT_ROW(n "notafter", STR, pl, (k) + CERT_NOTAFTER, "YYMMDDhhmmss[Z]"),      \
		CERT_ROW(n "key_alg", STR, pl, (k) + CERT_KEY_ALG, "kind of key of " h),      \
		CERT_ROW(n "sig_alg", STR, pl, (k) + CERT_SIG_ALG, "how " h " is signed"),    \
		CERT_ROW(n "version", SINT, pl, (k) + CERT_VERSION, "X.509 version of " h),   \
		CERT_ROW(n "san", STR, pl, (k) + CERT_SAN,                                    \
			 "alternative names of " h ": DNS:a, IP Address:b"),                  \
		CERT_ROW(n "der", BIN, pl, (k) + CERT_DER, h)
#define CHAIN(n, pl, k, h)	 CERT_ROW(n "chain_der", BIN, pl, (k) + CERT_CHAIN_DER, h)
#define CERT_ROW(n, o, pl, k, h) F(n, "", "", o, pl, k, fetch_tls, NULL, h)
/* What the client offered, with the filter as argument. */
#define LIST(n, o, k, fn, h) F(n, "[filter]", "[i", o, P, k, fn, check_filter, h)
/* Both sides. */
#define SECRET(n, o, k, h) T("ssl_fc_" n, o, k, h), TB("ssl_bc_" n, o, k, h)
static const struct fetch_def defs[] = {
	F("ssl_fc", "", "", BOOL, P, 0, fetch_is_tls, NULL, "does the client speak TLS"),
	F("ssl_bc", "", "", BOOL, B, BACK, fetch_is_tls, NULL, "do we speak TLS to the server"),
	T("ssl_fc_sni", STR, TLS_SNI, "server name the client asked for"),
	F("ssl_fc_has_sni", "", "", BOOL, P, TLS_SNI, fetch_has, NULL, "did it ask for a name"),
	T("ssl_fc_alpn", STR, TLS_ALPN, "negotiated application protocol"),
	T("ssl_fc_protocol", STR, TLS_VERSION, "TLSv1.2 or TLSv1.3"),
	T("ssl_fc_cipher", STR, TLS_CIPHER, "negotiated cipher"),
	T("ssl_fc_curve", STR, TLS_CURVE, "negotiated group"),
	T("ssl_fc_alg_keysize", SINT, TLS_ALG_KEYSIZE, "key bits of the cipher"),
	T("ssl_fc_use_keysize", SINT, TLS_USE_KEYSIZE, "key bits in use"),
	T("ssl_fc_err", SINT, TLS_ERROR, "error of the handshake, 0 for none"),
	T("ssl_fc_err_str", STR, TLS_ERROR_TEXT, "the same in words"),
	F("ssl_fc_is_resumed", "", "", BOOL, P, TLS_IS_RESUMED, fetch_tls_bool, NULL,
	  "was the session resumed"),
	F("ssl_fc_has_crt", "", "", BOOL, P, TLS_HAS_CLIENT_CERT, fetch_tls_bool, NULL,
	  "did the client send a certificate on this connection"),
	F("ssl_c_used", "", "", BOOL, P, TLS_CLIENT_CERT_USED, fetch_tls_bool, NULL,
	  "did the client send a certificate, now or in the resumed session"),
	T("ssl_c_verify", SINT, TLS_VERIFY_RESULT, "result of verifying the client's chain"),
	T("ssl_c_err", SINT, TLS_CLIENT_ERR, "error in the client's certificate, 0 for none"),
	T("ssl_c_ca_err", SINT, TLS_CA_ERROR, "error in the client's chain, 0 for none"),
	T("ssl_c_ca_err_depth", SINT, TLS_CLIENT_VERIFY_DEPTH, "depth of that error"),
	F("ssl_bc_is_resumed", "", "", BOOL, B, TLS_IS_RESUMED | BACK, fetch_tls_bool, NULL,
	  "was the session with the server resumed"),
	TB("ssl_bc_sni", STR, TLS_SNI, "server name we asked for"),
	TB("ssl_bc_alpn", STR, TLS_ALPN, "negotiated application protocol"),
	TB("ssl_bc_protocol", STR, TLS_VERSION, "TLSv1.2 or TLSv1.3"),
	TB("ssl_bc_cipher", STR, TLS_CIPHER, "negotiated cipher"),
	TB("ssl_bc_curve", STR, TLS_CURVE, "negotiated group"),
	TB("ssl_bc_alg_keysize", SINT, TLS_ALG_KEYSIZE, "key bits of the cipher"),
	TB("ssl_bc_use_keysize", SINT, TLS_USE_KEYSIZE, "key bits in use"),
	TB("ssl_bc_err", SINT, TLS_ERROR, "error of the handshake, 0 for none"),
	TB("ssl_bc_err_str", STR, TLS_ERROR_TEXT, "the same in words"),
	LIST("ssl_fc_cipherlist_bin", BIN, TLS_HELLO_CIPHERS, fetch_codes,
	     "cipher suites that the client offered, 2 bytes each; filter 1: without GREASE"),
	LIST("ssl_fc_cipherlist_hex", STR, TLS_HELLO_CIPHERS, fetch_codes_hex,
	     "the same in hexadecimal"),
	LIST("ssl_fc_cipherlist_str", STR, TLS_HELLO_CIPHER_NAMES, fetch_cipher_names,
	     "their names, separated by commas"),
	T("ssl_fc_cipherlist_xxh", SINT, TLS_HELLO_CIPHER_HASH, "xxh64 of all of them"),
	LIST("ssl_fc_extlist_bin", BIN, TLS_HELLO_EXTENSIONS, fetch_codes,
	     "extensions in the ClientHello, 2 bytes each, in order"),
	LIST("ssl_fc_eclist_bin", BIN, TLS_HELLO_GROUPS, fetch_codes,
	     "groups for the key exchange that it offered, 2 bytes each"),
	T("ssl_fc_ecformats_bin", BIN, TLS_HELLO_FORMATS, "forms of points that it offered"),
	T("ssl_fc_protocol_hello_id", SINT, TLS_HELLO_VERSION,
	  "version at the beginning of the ClientHello"),
	SECRET("client_random", BIN, TLS_CLIENT_RANDOM, "random number of who connects"),
	SECRET("server_random", BIN, TLS_SERVER_RANDOM, "random number of who accepts"),
	SECRET("session_key", BIN, TLS_SESSION_KEY, "master secret of the session"),
	SECRET("client_early_traffic_secret", STR, TLS_SECRET_CLIENT_EARLY,
	       "CLIENT_EARLY_TRAFFIC_SECRET of a key log (tune.ssl.keylog), in hexadecimal"),
	SECRET("client_handshake_traffic_secret", STR, TLS_SECRET_CLIENT_HANDSHAKE,
	       "CLIENT_HANDSHAKE_TRAFFIC_SECRET"),
	SECRET("server_handshake_traffic_secret", STR, TLS_SECRET_SERVER_HANDSHAKE,
	       "SERVER_HANDSHAKE_TRAFFIC_SECRET"),
	SECRET("client_traffic_secret_0", STR, TLS_SECRET_CLIENT, "CLIENT_TRAFFIC_SECRET_0"),
	SECRET("server_traffic_secret_0", STR, TLS_SECRET_SERVER, "SERVER_TRAFFIC_SECRET_0"),
	SECRET("exporter_secret", STR, TLS_SECRET_EXPORTER, "EXPORTER_SECRET"),
	SECRET("early_exporter_secret", STR, TLS_SECRET_EARLY_EXPORTER, "EARLY_EXPORTER_SECRET"),
	CERT("ssl_c_", P, TLS_CLIENT_CERT, "the client's certificate"),
	CHAIN("ssl_c_", P, TLS_CLIENT_CERT, "the chain behind the client's certificate"),
	CERT("ssl_f_", P, TLS_SERVER_CERT, "our certificate"),
	CERT("ssl_s_", B, TLS_SERVER_CERT | BACK, "the server's certificate"),
	CHAIN("ssl_s_", B, TLS_SERVER_CERT | BACK, "the server's chain, its certificate first"),
};

const struct fetch_table fetch_tls_table = { defs, ARRAY_SIZE(defs) };
