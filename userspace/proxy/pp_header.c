/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What servers are told about clients before the first byte: PROXY headers, of version 2 with the fields that
 * `proxy-v2-options` and `set-proxy-v2-tlv-fmt` ask for. Called for each connection that is made or looked for; all
 * memory is the stream's. Worker's thread.
 */
#include "proxy/pp_header.h"

#include <errno.h>

#include "proxy/worker_priv.h"

#define FIELDS_MAX     (3 + CONF_PP_TLVS)
#define SSL_FIELDS_MAX 5

struct pp_fields {
	struct proxy_tlv tlvs[FIELDS_MAX], ssl[SSL_FIELDS_MAX];
	struct proxy_extra x;
};

static void add(struct pp_fields *f, uint8_t type, struct str value)
{
	if (value.p)
		f->tlvs[f->x.n_tlvs++] = (struct proxy_tlv){ type, value };
}

/* What a receiver of ours is told of a client that came through another proxy is what that one said. */
static struct str authority(const struct conn *c)
{
	struct str name;

	return conn_proxy_tlv(c, PROXY_TLV_AUTHORITY, &name) == 0 ? name : conn_sni(c);
}

static struct str unique_id(struct stream *st)
{
	if (!st->unique_id.p && st->fe->unique_id_format)
		st->unique_id = logfmt_eval_str(st->fe->unique_id_format, stream_subject(st));
	return st->unique_id;
}

/* 0 also when there is no such fact: then nothing is said about it. */
static int add_ssl(struct stream *st, const struct conn *c, struct pp_fields *f, uint8_t type,
		   unsigned what)
{
	struct sample v;
	int r = conn_tls_field(c, (enum subject_tls_field)what, &st->arena, &v);

	if (r == 0)
		f->ssl[f->x.n_ssl_tlvs++] = (struct proxy_tlv){ type, v.str };
	return r == -ENOMEM ? r : 0;
}

static bool is_true(struct stream *st, const struct conn *c, enum subject_tls_field what)
{
	struct sample v;

	return conn_tls_field(c, what, &st->arena, &v) == 0 && v.sint;
}

static int fill_ssl(struct stream *st, const struct conn *c, struct pp_fields *f)
{
	static const struct {
		uint8_t option, type;
		unsigned what;
	} fields[] = {
		{ PP_SSL, PROXY_TLV_SSL_VERSION, TLS_VERSION },
		{ PP_CERT_CN, PROXY_TLV_SSL_CN, TLS_CLIENT_CERT + CERT_S_CN },
		{ PP_SSL_CIPHER, PROXY_TLV_SSL_CIPHER, TLS_CIPHER },
		{ PP_CERT_SIG, PROXY_TLV_SSL_SIG_ALG, TLS_SERVER_CERT + CERT_SIG_ALG },
		{ PP_CERT_KEY, PROXY_TLV_SSL_KEY_ALG, TLS_SERVER_CERT + CERT_KEY_NAME },
	};
	uint8_t options = st->srv_conf->pp_options;
	struct sample v;
	int r = 0;

	f->x.has_ssl = true;
	f->x.ssl_verify = 1; /* 2.2.6: zero is for those who showed a good one */
	if (!conn_is_tls(c))
		return 0;
	f->x.ssl_client = PROXY_CLIENT_SSL;
	if (is_true(st, c, TLS_CLIENT_CERT_USED)) {
		f->x.ssl_client |= PROXY_CLIENT_CERT_SESS;
		if (conn_tls_field(c, TLS_VERIFY_RESULT, &st->arena, &v) == 0)
			f->x.ssl_verify = (uint32_t)v.sint;
	}
	if (is_true(st, c, TLS_HAS_CLIENT_CERT))
		f->x.ssl_client |= PROXY_CLIENT_CERT_CONN;
	for (size_t i = 0; i < ARRAY_SIZE(fields) && r == 0; i++)
		if (options & fields[i].option)
			r = add_ssl(st, c, f, fields[i].type, fields[i].what);
	return r;
}

/* In the order in which they were written. */
static int fill_formats(struct stream *st, struct pp_fields *f)
{
	const struct conf_pp_tlv *list[CONF_PP_TLVS];
	unsigned n = 0;

	for (const struct conf_pp_tlv *t = st->srv_conf->pp_tlvs; t && n < CONF_PP_TLVS;
	     t = t->before)
		list[n++] = t;
	while (n) {
		const struct conf_pp_tlv *t = list[--n];
		struct str value = logfmt_eval_str(t->value, stream_subject(st));

		if (!value.p)
			return -ENOMEM;
		add(f, t->type, value);
	}
	return 0;
}

static int write_v2(struct stream *st, struct str *ret)
{
	const struct conn *c = client_session(st->cl)->conn;
	uint8_t options = st->srv_conf->pp_options;
	struct pp_fields f;
	int r = 0, n;
	char *mem;

	memset(&f.x, 0, sizeof(f.x));
	f.x.tlvs = f.tlvs;
	f.x.ssl_tlvs = f.ssl;
	f.x.has_crc32c = options & PP_CRC32C;
	if (conn_alpn(c).len)
		add(&f, PROXY_TLV_ALPN, conn_alpn(c));
	if (options & PP_AUTHORITY)
		add(&f, PROXY_TLV_AUTHORITY, authority(c));
	if (options & PP_UNIQUE_ID)
		add(&f, PROXY_TLV_UNIQUE_ID, unique_id(st));
	if (options & PP_SSL)
		r = fill_ssl(st, c, &f);
	if (r == 0)
		r = fill_formats(st, &f);
	if (r)
		return r;
	mem = arena_alloc(&st->arena, proxy_header_bound(&f.x));
	if (!mem)
		return -ENOMEM;
	n = proxy_header_write_more(&st->front.conn->peer, conn_local_addr(st->front.conn), &f.x,
				    mem);
	if (n < 0)
		return n;
	*ret = str_make(mem, (size_t)n);
	return 0;
}

int pp_header(struct stream *st, struct str *ret)
{
	unsigned version = st->srv_conf ? st->srv_conf->send_proxy : 0;
	char text[128];
	size_t n;

	*ret = STR_NULL;
	if (version == 2)
		return write_v2(st, ret);
	if (!version)
		return 0;
	n = proxy_header_write(version, &st->front.conn->peer, conn_local_addr(st->front.conn),
			       text);
	*ret = arena_str(&st->arena, str_make(text, n));
	return ret->p ? 0 : -ENOMEM;
}
