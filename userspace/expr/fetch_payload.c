/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fetches of bytes not understood yet: content rules of tcp sections, and the ClientHello for routing
 * by name without decrypting (RFC 8446 4.1.2, RFC 6066 3, RFC 7301 3.1). Every length comes from a
 * hostile peer; too few bytes are -EAGAIN as long as more may come. Workers.
 */
#include "expr/expr_priv.h"

static bool is_final(const struct subject *s)
{
	return s->is_payload_final || s->req;
}

static int more(const struct eval *ev)
{
	return is_final(ev->s) ? -ENOENT : -EAGAIN;
}

static int fetch_wait_end(struct eval *ev, const struct expr_arg *args, unsigned kw,
			  struct sample *ret)
{
	if (!is_final(ev->s))
		return -EAGAIN;
	sample_set_bool(ret, true);
	return 0;
}

static int fetch_len(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	sample_set_int(ret, (int64_t)ev->s->payload.len);
	ev->may_change = !is_final(ev->s);
	return 0;
}

static int check_payload(struct fn_check *c, struct err *err)
{
	for (unsigned i = 0; i < 2; i++) {
		if (c->args[i].num < 0 || c->args[i].num > INT32_MAX)
			return err_set(err, -EINVAL, "offset and length must not be negative");
	}
	if (c->kw && (c->args[1].num < 1 || c->args[1].num > 4))
		return err_set(err, -EINVAL, "the length field must have 1 to 4 bytes");
	return 0;
}

static int fetch_payload(struct eval *ev, const struct expr_arg *args, unsigned kw,
			 struct sample *ret)
{
	struct str p = ev->s->payload;
	size_t off = (size_t)args[0].num, len = (size_t)args[1].num;

	if (p.len < off || p.len - off < len || (len == 0 && p.len == off))
		return more(ev);
	if (len == 0)
		ev->may_change = !is_final(ev->s);
	sample_set_str(ret, SAMPLE_BIN, str_sub(p, off, len ? len : SIZE_MAX));
	return 0;
}

/* (offset of the length field, its bytes, offset of the data: behind it unless given) */
static int fetch_payload_lv(struct eval *ev, const struct expr_arg *args, unsigned kw,
			    struct sample *ret)
{
	struct str p = ev->s->payload;
	size_t off = (size_t)args[0].num, n = (size_t)args[1].num, len = 0, at = off + n;

	if (p.len < off + n)
		return more(ev);
	for (size_t i = 0; i < n; i++)
		len = len << 8 | (uint8_t)p.p[off + i];
	if (args[2].type == ARG_INT) {
		if (args[2].num < 0 || args[2].num > INT32_MAX)
			return -ENOENT;
		at = (size_t)args[2].num;
	}
	if (len == 0)
		return -ENOENT;
	if (p.len < at || p.len - at < len)
		return more(ev);
	sample_set_str(ret, SAMPLE_BIN, str_sub(p, at, len));
	return 0;
}

/* --- ClientHello --- */

#define RECORD_HANDSHAKE 22
#define HELLO_MAX	 16384

/* A cursor that refuses to read past its end. */
struct cur {
	const uint8_t *p;
	size_t len;
	bool is_bad;
};

static uint32_t cur_int(struct cur *c, unsigned n)
{
	uint32_t v = 0;

	if (c->len < n) {
		c->is_bad = true;
		c->len = 0;
		return 0;
	}
	for (unsigned i = 0; i < n; i++)
		v = v << 8 | c->p[i];
	c->p += n;
	c->len -= n;
	return v;
}

static struct cur cur_take(struct cur *c, size_t n)
{
	struct cur r = { .p = c->p, .len = n, .is_bad = c->is_bad || c->len < n };

	if (r.is_bad) {
		c->is_bad = true;
		c->len = 0;
		r.len = 0;
		return r;
	}
	c->p += n;
	c->len -= n;
	return r;
}

/*
 * The handshake message at the start of the payload. It may be cut into several records; only then
 * is it copied together.
 */
static int hello_body(struct eval *ev, struct cur *ret, unsigned *ret_type)
{
	struct str p = ev->s->payload;
	size_t need = 4, have = 0, at = 0;
	uint8_t *buf = NULL;
	const uint8_t *first = NULL;

	while (have < need) {
		const uint8_t *r = (const uint8_t *)p.p + at;
		size_t len;

		if (p.len - at < 1)
			return more(ev);
		if (r[0] != RECORD_HANDSHAKE || (p.len - at > 1 && r[1] != 3))
			return -ENOENT;
		if (p.len - at < 5)
			return more(ev);
		len = get_be16(r + 3);
		if (len == 0 || len > HELLO_MAX || have + len > HELLO_MAX + 4)
			return -ENOENT;
		if (p.len - at - 5 < len)
			return more(ev);
		if (have == 0) {
			first = r + 5;
		} else {
			if (!buf) {
				buf = (uint8_t *)eval_alloc(ev, HELLO_MAX + 4);
				if (!buf)
					return -ENOMEM;
				memcpy(buf, first, have);
			}
			memcpy(buf + have, r + 5, len);
		}
		have += len;
		at += 5 + len;
		if (have >= 4)
			need = 4 + (get_be32(buf ? buf : first) & 0xffffff);
		if (need > HELLO_MAX + 4)
			return -ENOENT;
	}
	*ret_type = (buf ? buf : first)[0];
	*ret = (struct cur){ .p = (buf ? buf : first) + 4, .len = need - 4 };
	return 0;
}

struct hello {
	unsigned type; /* 1 ClientHello, 2 ServerHello */
	uint32_t version; /* the highest offered */
	struct str sni, alpn;
	struct str ciphers, groups, sigalgs; /* as sent: 2 bytes each */
	struct cur key_shares; /* p NULL: not sent */
};

/* A list of numbers behind its length. */
static struct str hello_list(struct cur ext)
{
	struct cur list = cur_take(&ext, cur_int(&ext, 2));

	return list.is_bad ? STR_NULL : str_make((const char *)list.p, list.len);
}

static void hello_sni(struct cur ext, struct hello *h)
{
	struct cur list = cur_take(&ext, cur_int(&ext, 2));

	while (list.len && !list.is_bad) {
		uint32_t type = cur_int(&list, 1);
		struct cur name = cur_take(&list, cur_int(&list, 2));

		if (type == 0 && !name.is_bad && !h->sni.p)
			h->sni = str_make((const char *)name.p, name.len);
	}
}

/* The first protocol offered. */
static void hello_alpn(struct cur ext, struct hello *h)
{
	struct cur list = cur_take(&ext, cur_int(&ext, 2));
	struct cur first = cur_take(&list, cur_int(&list, 1));

	if (!first.is_bad && first.len)
		h->alpn = str_make((const char *)first.p, first.len);
}

static bool is_grease(uint32_t v)
{
	return (v & 0x0f0f) == 0x0a0a; /* RFC 8701 */
}

static void hello_versions(struct cur ext, struct hello *h)
{
	struct cur list = cur_take(&ext, cur_int(&ext, 1));

	while (list.len && !list.is_bad) {
		uint32_t v = cur_int(&list, 2);

		if (!list.is_bad && !is_grease(v) && v > h->version)
			h->version = v;
	}
}

static int hello_read(struct eval *ev, struct hello *h)
{
	struct cur c, exts;
	int r;

	memset(h, 0, sizeof(*h));
	r = hello_body(ev, &c, &h->type);
	if (r || h->type != 1)
		return r;
	h->version = cur_int(&c, 2);
	cur_take(&c, 32); /* random */
	cur_take(&c, cur_int(&c, 1)); /* session id */
	h->ciphers = hello_list(c);
	cur_take(&c, cur_int(&c, 2));
	cur_take(&c, cur_int(&c, 1)); /* compression methods */
	if (c.is_bad)
		return -ENOENT;
	if (c.len == 0)
		return 0; /* no extensions: allowed up to TLS 1.2 */
	exts = cur_take(&c, cur_int(&c, 2));
	while (exts.len && !exts.is_bad) {
		uint32_t type = cur_int(&exts, 2);
		struct cur ext = cur_take(&exts, cur_int(&exts, 2));

		if (ext.is_bad)
			break;
		if (type == 0)
			hello_sni(ext, h);
		else if (type == 10)
			h->groups = hello_list(ext);
		else if (type == 13)
			h->sigalgs = hello_list(ext);
		else if (type == 16)
			hello_alpn(ext, h);
		else if (type == 43)
			hello_versions(ext, h);
		else if (type == 51)
			h->key_shares = cur_take(&ext, cur_int(&ext, 2));
	}
	return exts.is_bad ? -ENOENT : 0;
}

enum hello_part {
	HELLO_TYPE,
	HELLO_VERSION,
	HELLO_SNI,
	HELLO_ALPN,
	HELLO_CIPHERS,
	HELLO_GROUPS,
	HELLO_SIGALGS,
	HELLO_KEY_SHARES,
	HELLO_HAS_GROUPS
};

/* The groups of the keys that are offered, one after the other (RFC 8446 4.2.8). */
static int key_share_groups(struct eval *ev, struct cur list, struct str *ret)
{
	char *out = list.p ? eval_alloc(ev, list.len + 1) : NULL;
	size_t n = 0;

	if (list.p && !out)
		return -ENOMEM;
	while (out && list.len && !list.is_bad) {
		struct cur group = cur_take(&list, 2);

		cur_take(&list, cur_int(&list, 2));
		if (list.is_bad)
			break;
		memcpy(out + n, group.p, 2);
		n += 2;
	}
	*ret = n ? str_make(out, n) : STR_NULL;
	return 0;
}

static int fetch_hello(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *ret)
{
	struct hello h;
	struct str v;
	int r = hello_read(ev, &h);

	if (r)
		return r;
	if (kw == HELLO_TYPE) {
		sample_set_int(ret, h.type);
		return 0;
	}
	if (h.type != 1)
		return -ENOENT;
	if (kw == HELLO_VERSION) {
		sample_set_int(ret, (int64_t)(h.version >> 8) << 16 | (h.version & 0xff));
		return 0;
	}
	if (kw == HELLO_HAS_GROUPS) {
		sample_set_bool(ret, h.groups.p != NULL);
		return 0;
	}
	if (kw == HELLO_KEY_SHARES)
		r = key_share_groups(ev, h.key_shares, &v);
	else
		v = kw == HELLO_SNI	  ? h.sni
		    : kw == HELLO_ALPN	  ? h.alpn
		    : kw == HELLO_CIPHERS ? h.ciphers
		    : kw == HELLO_GROUPS  ? h.groups
					  : h.sigalgs;
	if (r || !v.p)
		return r ? r : -ENOENT;
	sample_set_str(ret, kw >= HELLO_CIPHERS ? SAMPLE_BIN : SAMPLE_STR, v);
	return 0;
}

#define P PLACES_CONTENT
static const struct fetch_def defs[] = {
	F("wait_end", "", "", BOOL, P, 0, fetch_wait_end, NULL,
	  "true at the end of the inspection time; before it waits"),
	F("req.len", "", "", SINT, P, 0, fetch_len, NULL, "bytes received"),
	F("req_len", "", "", SINT, P, 0, fetch_len, NULL, "bytes received"),
	F("res.len", "", "", SINT, P | PLACE_CHECK, 0, fetch_len, NULL, "bytes received"),
	F("req.payload", "offset,length", "ii", BIN, P, 0, fetch_payload, check_payload,
	  "bytes received, all of them when length is 0"),
	F("payload", "offset,length", "ii", BIN, P, 0, fetch_payload, check_payload,
	  "bytes received, all of them when length is 0"),
	F("res.payload", "offset,length", "ii", BIN, P | PLACE_CHECK, 0, fetch_payload,
	  check_payload, "bytes received, all of them when length is 0"),
	F("payload_lv", "offset,length,[offset2]", "ii[i", BIN, P, 1, fetch_payload_lv,
	  check_payload, "bytes announced by a length field"),
	F("req.payload_lv", "offset,length,[offset2]", "ii[i", BIN, P, 1, fetch_payload_lv,
	  check_payload, "bytes announced by a length field"),
	F("res.payload_lv", "offset,length,[offset2]", "ii[i", BIN, P | PLACE_CHECK, 1,
	  fetch_payload_lv, check_payload, "bytes announced by a length field"),
	F("req.ssl_hello_type", "", "", SINT, P, HELLO_TYPE, fetch_hello, NULL, "1: a ClientHello"),
	F("req_ssl_hello_type", "", "", SINT, P, HELLO_TYPE, fetch_hello, NULL, "1: a ClientHello"),
	F("res.ssl_hello_type", "", "", SINT, P, HELLO_TYPE, fetch_hello, NULL, "2: a ServerHello"),
	F("rep_ssl_hello_type", "", "", SINT, P, HELLO_TYPE, fetch_hello, NULL, "2: a ServerHello"),
	F("req.ssl_ver", "", "", SINT, P, HELLO_VERSION, fetch_hello, NULL,
	  "version offered, major * 65536 + minor; patterns such as 3.3 are understood"),
	F("req_ssl_ver", "", "", SINT, P, HELLO_VERSION, fetch_hello, NULL, "the same"),
	F("req.ssl_sni", "", "", STR, P, HELLO_SNI, fetch_hello, NULL,
	  "server name in an undecrypted ClientHello"),
	F("req_ssl_sni", "", "", STR, P, HELLO_SNI, fetch_hello, NULL, "the same"),
	F("req.ssl_alpn", "", "", STR, P, HELLO_ALPN, fetch_hello, NULL,
	  "first protocol offered in an undecrypted ClientHello"),
	F("req.ssl_cipherlist", "", "", BIN, P, HELLO_CIPHERS, fetch_hello, NULL,
	  "cipher suites offered in an undecrypted ClientHello, 2 bytes each"),
	F("req.ssl_supported_groups", "", "", BIN, P, HELLO_GROUPS, fetch_hello, NULL,
	  "its groups for the key exchange, 2 bytes each"),
	F("req.ssl_sigalgs", "", "", BIN, P, HELLO_SIGALGS, fetch_hello, NULL,
	  "its signature algorithms, 2 bytes each"),
	F("req.ssl_keyshare_groups", "", "", BIN, P, HELLO_KEY_SHARES, fetch_hello, NULL,
	  "the groups that it sends keys of, 2 bytes each"),
	F("req.ssl_ec_ext", "", "", BOOL, P, HELLO_HAS_GROUPS, fetch_hello, NULL,
	  "does it name groups for the key exchange"),
};

const struct fetch_table fetch_payload_table = { defs, ARRAY_SIZE(defs) };
