/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TLS settings that `bind`, `server` and `global` share. Files are named here and read by net/ when a
 * snapshot is built. Control thread.
 */
#include <errno.h>

#include "conf/kw_action_priv.h"

#define AT(field) .offset = offsetof(struct conf_tls, field)
#define BS	  (SEC_BIND | SEC_SRV)

static const struct keyword_value verify_bind[] = { VALUE("none", CONF_VERIFY_NONE),
						    VALUE("optional", CONF_VERIFY_OPTIONAL),
						    VALUE("required", CONF_VERIFY_REQUIRED),
						    VALUES_END };
static const struct keyword_value verify_server[] = { VALUE("none", CONF_VERIFY_NONE),
						      VALUE("required", CONF_VERIFY_REQUIRED),
						      VALUES_END };

static const struct tls_version {
	struct str name;
	uint16_t version;
} versions[] = {
	{ NAME("SSLv3"), 0x0300 },   { NAME("TLSv1.0"), 0x0301 }, { NAME("TLSv1.1"), 0x0302 },
	{ NAME("TLSv1.2"), 0x0303 }, { NAME("TLSv1.3"), 0x0304 },
};

static int parse_version(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	uint16_t *field = (uint16_t *)((char *)obj + kw->offset);
	struct str w;
	int r = line_want(ps, l, "a version such as TLSv1.2", &w);

	if (r)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		if (str_is_eq(versions[i].name, w)) {
			*field = versions[i].version;
			return 0;
		}
	}
	return conf_fail(
		ps, l, l->at - 1,
		"'" STR_FMT
		"' expects SSLv3, TLSv1.0, TLSv1.1, TLSv1.2 or TLSv1.3 instead of '" STR_FMT "'",
		STR_ARG(kw->name), (int)(w.len > 64 ? 64 : w.len), w.p);
}

/* force-tlsvNN: exactly that one. */
static int parse_force(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_tls *t = obj;

	t->min_version = t->max_version = (uint16_t)kw->min;
	return 0;
}

/*
 * no-tlsvNN as a range: a version at the low end moves the minimum up, one at the high end the maximum
 * down. A hole in the middle is no range; newer OpenSSL has none either.
 */
static int parse_no_version(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_tls *t = obj;
	uint16_t v = (uint16_t)kw->min;

	if (v == 0x0304) {
		t->max_version = 0x0303;
		return 0;
	}
	if (t->max_version && t->max_version == v) {
		t->max_version = (uint16_t)(v - 1);
		return 0;
	}
	if (t->min_version < v + 1)
		t->min_version = (uint16_t)(v + 1);
	return 0;
}

/* "h2,http/1.1" into length-prefixed names (RFC 7301 3.1). */
static int alpn_list(struct parser *ps, struct line *l, bool leaves_out_h2, struct str *ret)
{
	bool has_h2 = false;
	struct str w, rest;
	size_t len = 0;
	char *out;
	int r = line_want(ps, l, "protocols such as h2,http/1.1", &w);

	if (r)
		return r;
	out = arena_alloc(&ps->conf->arena, w.len + 1);
	if (!out)
		return -ENOMEM;
	for (rest = w; rest.p;) {
		struct str name = str_cut(&rest, ',');

		if (name.len == 0 || name.len > 255)
			return conf_fail(ps, l, l->at - 1,
					 "names of ALPN protocols have 1 to 255 characters");
		if (leaves_out_h2 && str_is_eq(name, STR("h2"))) {
			has_h2 = true;
			continue;
		}
		out[len++] = (char)name.len;
		memcpy(out + len, name.p, name.len);
		len += name.len;
	}
	*ret = str_make(out, len);
	return has_h2 ? conf_warn(ps, l, l->at - 1,
				  "HTTP/2 is not spoken here: 'h2' is left out of the list")
		      : 0;
}

int arg_alpn(struct parser *ps, struct line *l, struct str *ret)
{
	return alpn_list(ps, l, !CONF_HAS_H2, ret);
}

static int parse_alpn(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_tls *t = obj;
	struct str list = STR_NULL;
	int r = kw->min ? 0 : alpn_list(ps, l, !CONF_HAS_H2, &list); /* min: no-alpn */

	t->has_alpn = true;
	t->alpn = (char *)list.p;
	t->alpn_len = list.len;
	return r;
}

/* "all", or codes as OpenSSL numbers them (X509_V_ERR_*, `openssl verify` prints them). */
static int parse_ignore(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_verify_errors *set = (void *)((char *)obj + kw->offset);
	struct str w, rest;
	int r = line_want(ps, l, "all, or error codes such as 10,12", &w);

	if (r)
		return r;
	if (str_is_eq(w, STR("all"))) {
		set->bits[0] = set->bits[1] = UINT64_MAX;
		return 0;
	}
	for (rest = w; rest.p;) {
		struct str word = str_cut(&rest, ',');
		uint64_t code;

		if (str_to_u64(word, &code) || code == 0 || code > CONF_VERIFY_ERROR_MAX)
			return conf_fail(ps, l, l->at - 1,
					 "'" STR_FMT "' expects 'all' or verification error codes "
					 "from 1 to %d, separated by commas",
					 STR_ARG(kw->name), CONF_VERIFY_ERROR_MAX);
		set->bits[code / 64] |= 1ull << (code % 64);
	}
	return 0;
}

static int parse_prefer_server(struct parser *ps, struct line *l, void *obj,
			       const struct keyword *kw)
{
	return 0; /* the server's order is the default */
}

#define FORCE(text, v)                                                \
	{                                                             \
		NAME("force-" text),	    BS,		ARG_FUNC,     \
		.parse = parse_force,	    .min = (v), .grade = '1', \
		.help = "only this version"                           \
	}
#define NO(text, v)                                            \
	{ NAME("no-" text),	     BS,	 ARG_FUNC,     \
	  .parse = parse_no_version, .min = (v), .grade = '1', \
	  .help = "not this version" }

static const struct keyword rows[] = {
	{ NAME("alpn"), BS, ARG_FUNC, .parse = parse_alpn, .grade = '1', .args = "<protocols>",
	  .help = "protocols offered in the handshake, in order" },
	{ NAME("no-alpn"), BS, ARG_FUNC, .parse = parse_alpn, .min = 1, .grade = '1',
	  .help = "none" },
	{ NAME("ciphers"), BS, ARG_STRING, AT(ciphers), .grade = '1', .args = "<list>",
	  .help = "ciphers up to TLS 1.2" },
	{ NAME("ciphersuites"), BS, ARG_STRING, AT(ciphersuites), .grade = '1', .args = "<list>",
	  .help = "cipher suites of TLS 1.3; `bind` lines prefer AES-128 without it" },
	{ NAME("curves"), BS, ARG_STRING, AT(curves), .grade = '1', .args = "<list>",
	  .help = "groups for the key exchange" },
	{ NAME("ecdhe"), SEC_BIND, ARG_STRING, AT(curves), .grade = '2', .args = "<list>",
	  .help = "the same as `curves`" },
	{ NAME("client-sigalgs"), BS, ARG_STRING, AT(client_sigalgs), .grade = '2',
	  .args = "<list>", .help = "signature algorithms that clients' certificates may use" },
	{ NAME("renegotiate"), SEC_SRV, ARG_FLAG, AT(renegotiates), .grade = '2',
	  .help = "the server may ask for another handshake, up to TLS 1.2" },
	{ NAME("no-renegotiate"), SEC_SRV, ARG_FLAG, AT(never_renegotiates), .grade = '2',
	  .help = "it may not, even if the defaults say otherwise" },
	{ NAME("sigalgs"), BS, ARG_STRING, AT(sigalgs), .grade = '2', .args = "<list>",
	  .help = "signature algorithms" },
	{ NAME("ca-file"), BS, ARG_STRING, AT(ca_file), .min = PATH_CA, .grade = '1',
	  .args = "<file>",
	  .help = "authorities that certificates of the other side may come from" },
	{ NAME("ca-verify-file"), SEC_BIND, ARG_STRING, AT(ca_verify_file), .min = PATH_CA,
	  .grade = '2', .args = "<file>",
	  .help = "the same, but not sent as a list to the client" },
	{ NAME("crl-file"), BS, ARG_STRING, AT(crl_file), .min = PATH_CA, .grade = '1',
	  .args = "<file>", .help = "revoked certificates" },
	{ NAME("verify"), SEC_BIND, ARG_ENUM, AT(verify), .values = verify_bind, .grade = '1',
	  .args = "none|optional|required", .def = "none", .help = "certificates of clients" },
	{ NAME("verify"), SEC_SRV, ARG_ENUM, AT(verify), .values = verify_server, .grade = '1',
	  .args = "none|required", .def = "required", .help = "the server's certificate" },
	{ NAME("crt-ignore-err"), SEC_BIND, ARG_FUNC, AT(crt_ignore), .parse = parse_ignore,
	  .grade = '1', .args = "all|<code>[,<code>]...",
	  .help = "faults of a client's own certificate that do not end the handshake" },
	{ NAME("ca-ignore-err"), SEC_BIND, ARG_FUNC, AT(ca_ignore), .parse = parse_ignore,
	  .grade = '1', .args = "all|<code>[,<code>]...",
	  .help = "the same for the authorities above it" },
	{ NAME("no-ca-names"), SEC_BIND, ARG_FLAG, AT(no_ca_names), .grade = '2',
	  .help = "do not tell clients which authorities are accepted" },
	{ NAME("ssl-min-ver"), BS, ARG_FUNC, AT(min_version), .parse = parse_version, .grade = '1',
	  .args = "<version>", .def = "TLSv1.2", .help = "oldest version" },
	{ NAME("ssl-max-ver"), BS, ARG_FUNC, AT(max_version), .parse = parse_version, .grade = '1',
	  .args = "<version>", .help = "newest version" },
	FORCE("tlsv10", 0x0301),
	FORCE("tlsv11", 0x0302),
	FORCE("tlsv12", 0x0303),
	FORCE("tlsv13", 0x0304),
	NO("sslv3", 0x0300),
	NO("tlsv10", 0x0301),
	NO("tlsv11", 0x0302),
	NO("tlsv12", 0x0303),
	NO("tlsv13", 0x0304),
	{ NAME("no-tls-tickets"), BS, ARG_FLAG, AT(no_tickets), .grade = '1',
	  .help = "no resumption without state" },
	{ NAME("tls-tickets"), BS, ARG_FLAG, AT(wants_tickets), .grade = '2',
	  .help = "resumption without state, even if the defaults say otherwise" },
	{ NAME("prefer-client-ciphers"), SEC_BIND, ARG_FLAG, AT(prefer_client_ciphers),
	  .grade = '1', .help = "the client's order of ciphers decides" },
	{ NAME("prefer-server-ciphers"), SEC_BIND, ARG_FUNC, .parse = parse_prefer_server,
	  .grade = 'n', .help = "accepted: it is the default" },
	{ NAME("strict-sni"), SEC_BIND, ARG_FLAG, KW_NO, AT(strict_sni), .grade = '1',
	  .help = "no certificate for this name: no handshake" },
	{ NAME("no-strict-sni"), SEC_BIND, ARG_FLAG, AT(wants_lax_sni), .grade = '2',
	  .help = "the default certificate for unknown names" },
};
const struct keyword_table conf_kw_tls = KEYWORDS("TLS option", rows);

/* --- global ------------------------------------------------------------------------------------ */

/* ssl-default-bind-options, ssl-default-server-options: words of the table above. */
static int parse_default_options(struct parser *ps, struct line *l, void *obj,
				 const struct keyword *kw)
{
	const struct scope scope = { .table = &conf_kw_tls, .obj = (char *)obj + kw->offset };

	if (!line_has(l))
		return line_want(ps, l, "options such as ssl-min-ver TLSv1.2", &(struct str){ 0 });
	return keyword_options(ps, l, (uint16_t)kw->min, &scope, 1);
}

static const struct keyword_value on_off[] = { VALUE("off", 0), VALUE("on", 1), VALUES_END };
static const struct keyword_value verify_default[] = { VALUE("none", CONF_VERIFY_NONE),
						       VALUE("required", CONF_VERIFY_REQUIRED),
						       VALUES_END };

#define GT(field) .offset = offsetof(struct conf_global, field)
#define DEFAULT_STRING(text, f, what)                                      \
	{ NAME("ssl-default-bind-" text),                                  \
	  SEC_GLOBAL,                                                      \
	  ARG_STRING,                                                      \
	  GT(bind_tls.f),                                                  \
	  .grade = '1',                                                    \
	  .args = "<list>",                                                \
	  .help = what " of all `bind` lines that do not say otherwise" }, \
		{ NAME("ssl-default-server-" text),                        \
		  SEC_GLOBAL,                                              \
		  ARG_STRING,                                              \
		  GT(server_tls.f),                                        \
		  .grade = '1',                                            \
		  .args = "<list>",                                        \
		  .help = what " of all `server` lines that do not say otherwise" }

static const struct keyword global_rows[] = {
	DEFAULT_STRING("ciphers", ciphers, "ciphers"),
	DEFAULT_STRING("ciphersuites", ciphersuites, "cipher suites"),
	DEFAULT_STRING("curves", curves, "groups"),
	DEFAULT_STRING("sigalgs", sigalgs, "signature algorithms"),
	{ NAME("ssl-default-bind-client-sigalgs"), SEC_GLOBAL, ARG_STRING,
	  GT(bind_tls.client_sigalgs), .grade = '2', .args = "<list>",
	  .help = "signature algorithms of clients' certificates, for all `bind` lines" },
	{ NAME("ssl-default-server-client-sigalgs"), SEC_GLOBAL, ARG_STRING,
	  GT(server_tls.client_sigalgs), .grade = '2', .args = "<list>",
	  .help = "the same for all `server` lines" },
	{ NAME("ssl-default-bind-options"), SEC_GLOBAL, ARG_FUNC, GT(bind_tls), .min = SEC_BIND,
	  .parse = parse_default_options, .grade = '1', .args = "<option>...",
	  .help = "TLS options of all `bind` lines" },
	{ NAME("ssl-default-server-options"), SEC_GLOBAL, ARG_FUNC, GT(server_tls),
	  .min = SEC_SERVER, .parse = parse_default_options, .grade = '1', .args = "<option>...",
	  .help = "TLS options of all `server` lines" },
	{ NAME("ssl-server-verify"), SEC_GLOBAL, ARG_ENUM, GT(server_tls.verify),
	  .values = verify_default, .grade = '1', .args = "none|required", .def = "required",
	  .help = "are certificates of servers checked" },
	{ NAME("ca-base"), SEC_GLOBAL, ARG_STRING, GT(ca_base), .min = PATH_FILE, .grade = '1',
	  .args = "<directory>", .help = "where relative `ca-file` names start" },
	{ NAME("crt-base"), SEC_GLOBAL, ARG_STRING, GT(crt_base), .min = PATH_FILE, .grade = '1',
	  .args = "<directory>", .help = "where relative `crt` names start" },
	{ NAME("tune.ssl.default-dh-param"), SEC_GLOBAL, ARG_UINT, GT(dh_param), NUMBER(1024, 8192),
	  .grade = '1', .args = "<bits>", .def = "2048", .help = "size of ephemeral DH keys" },
	{ NAME("tune.ssl.cachesize"), SEC_GLOBAL, ARG_UINT, GT(ssl_cachesize), .grade = '1',
	  .args = "<number>", .def = "20000", .help = "TLS sessions kept for resumption" },
	{ NAME("tune.ssl.lifetime"), SEC_GLOBAL, ARG_TIME_S, GT(ssl_lifetime), .grade = '2',
	  .args = "<time>", .def = "300s", .help = "how long they are kept" },
	{ NAME("tune.ssl.maxrecord"), SEC_GLOBAL, ARG_UINT, GT(ssl_maxrecord), NUMBER(0, 16384),
	  .grade = '2', .args = "<bytes>", .def = "16384",
	  .help = "most bytes of data in one record that we send; 0: the default" },
	{ NAME("tune.ssl.capture-buffer-size"), SEC_GLOBAL, ARG_UINT, GT(ssl_capture_size),
	  NUMBER(0, 16384), .grade = '2', .args = "<bytes>", .def = "0",
	  .help = "room per connection for what clients offer: `ssl_fc_cipherlist_bin` and its "
		  "like" },
	{ NAME("tune.ssl.capture-cipherlist-size"), SEC_GLOBAL, ARG_UINT, GT(ssl_capture_size),
	  NUMBER(0, 16384), .grade = '2', .args = "<bytes>", .def = "0",
	  .help = "the older name of the same" },
	{ NAME("tune.ssl.keylog"), SEC_GLOBAL, ARG_ENUM, GT(ssl_keylog), .values = on_off,
	  .grade = '2', .args = "on|off", .def = "off",
	  .help = "keep secrets of connections for `ssl_fc_client_traffic_secret_0` and its like" },
	{ NAME("tune.ssl.ssl-ctx-cache-size"), SEC_GLOBAL, ARG_NOOP, .grade = 'n',
	  .args = "<number>", .help = "accepted, without effect: certificates are not generated" },
	{ NAME("tune.ssl.force-private-cache"), SEC_GLOBAL, ARG_NOOP, .grade = 'n',
	  .help = "accepted, without effect: no two processes share a cache" },
};
static const char *const global_refused[] = { "tune.ssl.ocsp-update.*",
					      "tune.ssl.certificate-compression", NULL };
const struct keyword_table conf_kw_global_tls = KEYWORDS("keyword", global_rows,
							 .refused = global_refused);
