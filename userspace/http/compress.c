/* SPDX-License-Identifier: BSD-2-Clause */
/* Content codings (contract: compress.h): negotiation as HAProxy does it, and zlib. Called by workers. */
#include <errno.h>
#define ZLIB_CONST
#include <zlib.h>

#include "http/compress.h"
#include "http/http_priv.h"

static const struct coding {
	const char *name;
	struct str token;
} codings[HTTP_CODING_COUNT] = {
#define X(id, n, t) [HTTP_CODING_##id] = { .name = n, .token = { t, sizeof(t) - 1 } },
	HTTP_CODINGS(X)
#undef X
};

#define MEM_LEVEL 8

static int window_bits(enum http_coding c)
{
	return c == HTTP_CODING_GZIP ? 15 + 16 : c == HTTP_CODING_RAW_DEFLATE ? -15 : 15;
}

enum http_coding http_coding_from_name(struct str name)
{
	for (unsigned i = 1; i < HTTP_CODING_COUNT; i++)
		if (str_is_eq(name, str_from_cstr(codings[i].name)))
			return (enum http_coding)i;
	return HTTP_CODING_NONE;
}

const char *http_coding_name(enum http_coding c)
{
	return codings[c].name ? codings[c].name : "none";
}

/* --- the request ------------------------------------------------------------------------------- */

/* Thousandths: "0.5" is 500. What is no number counts as 1 (RFC 9110 12.4.2 knows no other form). */
static unsigned parse_qvalue(struct str s)
{
	unsigned q, unit = 100;

	if (!s.len || s.p[0] < '0' || s.p[0] > '9')
		return 1000;
	q = (unsigned)(s.p[0] - '0') * 1000;
	if (s.len > 1 && s.p[1] == '.') {
		for (size_t i = 2; i < s.len && i < 5 && s.p[i] >= '0' && s.p[i] <= '9'; i++) {
			q += (unsigned)(s.p[i] - '0') * unit;
			unit /= 10;
		}
	}
	return q > 1000 ? 1000 : q;
}

/* "gzip;q=0.5": the token is cut off, its rating returned. */
static unsigned cut_rating(struct str *item)
{
	struct str rest = *item;

	*item = str_trim(str_cut(&rest, ';'));
	while (rest.p) {
		struct str param = str_trim(str_cut(&rest, ';'));

		if (str_is_case_prefix(param, STR("q=")))
			return parse_qvalue(str_from(param, 2));
	}
	return 1000;
}

/* Internet Explorer up to 6 without SP2, and what else says so (as HAProxy). */
static bool is_old_browser(const struct http_msg *req)
{
	const struct http_field *f = http_msg_find(req, HTTP_FIELD_USER_AGENT, 0);
	struct str ua = f ? f->value : STR_NULL;

	if (!str_is_prefix(ua, STR("Mozilla/4")))
		return false;
	if (!str_is_eq(str_sub(ua, 25, 5), STR("MSIE ")) || ua.len < 31 || ua.p[30] < '6')
		return true;
	return ua.p[30] == '6' && !str_is_eq(str_sub(ua, 51, 3), STR("SV1"));
}

enum http_coding http_choose_coding(const struct http_msg *req, const uint8_t *offered, unsigned n)
{
	enum http_coding best = HTTP_CODING_NONE;
	const struct http_field *f;
	unsigned best_q = 0, from = 0;

	if (is_old_browser(req))
		return HTTP_CODING_NONE;
	while ((f = http_msg_find(req, HTTP_FIELD_ACCEPT_ENCODING, from))) {
		struct str list = f->value, item;

		from = (unsigned)(f - req->fields) + 1;
		while (http_list_next(&list, &item)) {
			unsigned q = cut_rating(&item);

			for (unsigned i = n; i-- && q > best_q;) {
				if (!str_is_eq(item, STR("*")) &&
				    !str_is_case_eq(item, codings[offered[i]].token))
					continue;
				best = (enum http_coding)offered[i];
				best_q = q;
			}
		}
	}
	for (unsigned i = 0; i < n && best == HTTP_CODING_NONE; i++)
		if (offered[i] == HTTP_CODING_IDENTITY)
			best = HTTP_CODING_IDENTITY;
	return best;
}

/* --- the response ------------------------------------------------------------------------------ */

/* RFC 9110 8.8.3: "…" or W/"…". */
static bool is_etag(struct str s)
{
	if (str_is_prefix(s, STR("W/")))
		s = str_from(s, 2);
	if (s.len < 2 || s.p[0] != '"' || s.p[s.len - 1] != '"')
		return false;
	for (size_t i = 1; i + 1 < s.len; i++)
		if ((unsigned char)s.p[i] < 0x21 || s.p[i] == '"' || s.p[i] == 0x7f)
			return false;
	return true;
}

static bool is_type_wanted(const struct http_msg *rsp, const struct http_coding_rules *rules)
{
	const struct http_field *f = http_msg_find(rsp, HTTP_FIELD_CONTENT_TYPE, 0);

	if (!f)
		return rules->n_types == 0;
	if (str_is_case_prefix(f->value, STR("multipart")))
		return false;
	for (unsigned i = 0; i < rules->n_types; i++)
		if (str_is_case_prefix(f->value, rules->types[i]))
			return true;
	return rules->n_types == 0;
}

bool http_may_encode(const struct http_msg *req, const struct http_msg *rsp,
		     enum http_framing framing, const struct http_coding_rules *rules)
{
	const struct http_field *etag = http_msg_find(rsp, HTTP_FIELD_ETAG, 0);

	if (rsp->status < 200 || rsp->status > 203 || req->method == HTTP_METHOD_HEAD)
		return false;
	/* Towards 1.0 there are no chunks, and what came without a length says nothing about its end. */
	if ((req->major == 1 && req->minor == 0) || (rsp->major == 1 && rsp->minor == 0))
		return false;
	if (framing != HTTP_BODY_CHUNKED && framing != HTTP_BODY_LENGTH)
		return false;
	if (framing == HTTP_BODY_LENGTH &&
	    (rsp->content_length == 0 || rsp->content_length < rules->min_size))
		return false;
	if (http_msg_has(rsp, HTTP_FIELD_CONTENT_ENCODING) ||
	    http_msg_list_has(rsp, HTTP_FIELD_CACHE_CONTROL, STR("no-transform")))
		return false;
	if (etag && (!is_etag(etag->value) ||
		     http_msg_find(rsp, HTTP_FIELD_ETAG, (unsigned)(etag - rsp->fields) + 1)))
		return false;
	return is_type_wanted(rsp, rules);
}

bool http_may_encode_request(const struct http_msg *req, const struct http_coding_rules *rules)
{
	/* Nothing says that an older server knows chunks. */
	if ((req->major == 1 && req->minor == 0) || http_msg_has(req, HTTP_FIELD_CONTENT_ENCODING))
		return false;
	if (req->framing != HTTP_BODY_CHUNKED && req->framing != HTTP_BODY_LENGTH)
		return false;
	if (req->framing == HTTP_BODY_LENGTH &&
	    (req->content_length == 0 || req->content_length < rules->min_size))
		return false;
	return !http_msg_list_has(req, HTTP_FIELD_CACHE_CONTROL, STR("no-transform")) &&
	       is_type_wanted(req, rules);
}

/* The same content in other bytes: not the same representation (RFC 9110 8.8.1). */
static int weaken_etag(struct http_msg *rsp)
{
	struct http_field *f = http_msg_find(rsp, HTTP_FIELD_ETAG, 0);
	struct str weak;

	if (!f || str_is_prefix(f->value, STR("W/")))
		return 0;
	weak = arena_printf(rsp->arena, "W/" STR_FMT, STR_ARG(f->value));
	if (!weak.p)
		return -ENOMEM;
	f->value = weak;
	return 0;
}

int http_set_coding(struct http_msg *rsp, enum http_coding c)
{
	int r = weaken_etag(rsp);

	if (!r)
		r = http_msg_add(rsp, STR("Vary"), STR("Accept-Encoding"));
	if (!r && c != HTTP_CODING_IDENTITY)
		r = http_msg_add(rsp, STR("Content-Encoding"), codings[c].token);
	if (r)
		return r;
	rsp->framing = HTTP_BODY_CHUNKED;
	rsp->content_length = 0;
	return 0;
}

int http_set_request_coding(struct http_msg *req, enum http_coding c)
{
	int r = http_msg_add(req, STR("Content-Encoding"), codings[c].token);

	if (r)
		return r;
	req->framing = HTTP_BODY_CHUNKED;
	req->content_length = 0;
	return 0;
}

/* --- bytes ------------------------------------------------------------------------------------- */

static voidpf z_alloc(voidpf opaque, uInt items, uInt size)
{
	return mem_alloc((size_t)items * size);
}

static void z_free(voidpf opaque, voidpf p)
{
	mem_free(p);
}

int http_encoder_new(enum http_coding c, unsigned level, struct http_encoder **ret)
{
	struct http_encoder *e = mem_zalloc(sizeof(*e));
	z_stream *z = mem_zalloc(sizeof(*z));

	if (!e || !z)
		goto fail;
	z->zalloc = z_alloc;
	z->zfree = z_free;
	if (deflateInit2(z, (int)level, Z_DEFLATED, window_bits(c), MEM_LEVEL,
			 Z_DEFAULT_STRATEGY) != Z_OK)
		goto fail;
	e->z = z;
	e->coding = (uint8_t)c;
	*ret = e;
	return 0;
fail:
	mem_free(z);
	mem_free(e);
	return -ENOMEM;
}

void http_encoder_reset(struct http_encoder *e)
{
	deflateReset(e->z);
	e->next = NULL;
}

void http_encoder_free(struct http_encoder *e)
{
	if (!e)
		return;
	deflateEnd(e->z);
	mem_free(e->z);
	mem_free(e);
}

bool http_encode(struct http_encoder *e, struct str *in, char *out, size_t size, size_t *ret_n,
		 enum http_encode how)
{
	static const int flush[] = { [HTTP_ENCODE_MORE] = Z_NO_FLUSH,
				     [HTTP_ENCODE_FLUSH] = Z_SYNC_FLUSH,
				     [HTTP_ENCODE_END] = Z_FINISH };
	z_stream *z = e->z;
	size_t given = in->len < UINT32_MAX ? in->len : UINT32_MAX;
	int r;

	z->next_in = (const Bytef *)in->p;
	z->avail_in = (uInt)given;
	z->next_out = (Bytef *)out;
	z->avail_out = (uInt)size;
	r = deflate(z, flush[how]);
	*ret_n = size - z->avail_out;
	*in = str_from(*in, given - z->avail_in);
	if (how == HTTP_ENCODE_END)
		return r == Z_STREAM_END;
	return !in->len && (how == HTTP_ENCODE_MORE || z->avail_out);
}
