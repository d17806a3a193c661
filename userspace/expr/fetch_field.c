/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fetches of header fields and cookies. Without an occurrence an ACL looks at every value and an
 * expression gets the last one; hdr() sees the items of comma lists, fhdr() whole fields. Workers.
 */
#include "expr/expr_priv.h"

#define RSP 0x100 /* in kw: of the response */

static const struct http_msg *msg_of(const struct eval *ev, unsigned kw)
{
	return kw & RSP ? ev->s->rsp : ev->s->req;
}

/* Walks over values: fields of a name, or list items in them. */
struct walk {
	const struct http_msg *msg;
	struct http_header_name name; /* p NULL: every field */
	unsigned field; /* index of the field we are in */
	size_t off; /* of the next item; 0 at the start of a field */
	bool is_list;
};

/* End of a list item: a comma outside quoted strings (RFC 9110 5.6.4). */
static size_t item_end(struct str s, size_t i)
{
	bool is_quoted = false;

	for (; i < s.len; i++) {
		if (s.p[i] == '"')
			is_quoted = !is_quoted;
		else if (s.p[i] == '\\' && is_quoted)
			i++;
		else if (s.p[i] == ',' && !is_quoted)
			break;
	}
	return i < s.len ? i : s.len;
}

static const struct http_field *walk_field(const struct walk *w)
{
	if (w->name.text.p)
		return http_msg_find_named(w->msg, &w->name, w->field);
	for (unsigned i = w->field; i < w->msg->n_fields; i++)
		if (!w->msg->fields[i].is_removed)
			return &w->msg->fields[i];
	return NULL;
}

static bool walk_next(struct walk *w, struct str *ret)
{
	const struct http_field *f = walk_field(w);
	unsigned i;
	size_t end;

	if (!f)
		return false;
	i = (unsigned)(f - w->msg->fields);
	if (i != w->field)
		w->off = 0;
	if (!w->is_list) {
		*ret = f->value;
		w->field = i + 1;
		w->off = 0;
		return true;
	}
	end = item_end(f->value, w->off);
	*ret = str_trim(str_sub(f->value, w->off, end - w->off));
	w->field = end < f->value.len ? i : i + 1;
	w->off = end < f->value.len ? end + 1 : 0;
	return true;
}

static unsigned walk_count(struct walk w)
{
	struct str v;
	unsigned n = 0;

	while (walk_next(&w, &v))
		n++;
	return n;
}

/* occ > 0: from the first, < 0: from the last, 0: the last. */
static int walk_pick(struct walk w, int64_t occ, struct str *ret)
{
	struct str v;
	int64_t n;

	if (occ <= 0) {
		n = walk_count(w);
		occ = occ ? n + occ + 1 : n;
		if (occ < 1)
			return -ENOENT;
	}
	for (n = 0; walk_next(&w, &v);) {
		if (++n == occ) {
			*ret = v;
			return 0;
		}
	}
	return -ENOENT;
}

enum field_kind {
	FIELD_ITEMS,
	FIELD_WHOLE
};

static int walk_init(const struct eval *ev, const struct expr_arg *args, unsigned kw,
		     struct walk *w)
{
	memset(w, 0, sizeof(*w));
	w->msg = msg_of(ev, kw);
	w->is_list = (kw & 0xff) == FIELD_ITEMS;
	if (!w->msg)
		return -ENOENT;
	if (args[0].type == ARG_STR)
		w->name = (struct http_header_name){ args[0].str, (enum http_field_id)args[0].num };
	return 0;
}

/* The name of a field is looked up once. */
static int check_field(struct fn_check *c, struct err *err)
{
	if (c->args[0].type == ARG_STR)
		c->args[0].num = http_field_id(c->args[0].str);
	return 0;
}

static int fetch_hdr(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	struct walk w;
	struct str v = STR_NULL;
	int r = walk_init(ev, args, kw, &w);

	if (r)
		return r;
	if (!ev->is_iterating || args[1].type == ARG_INT) {
		r = walk_pick(w, args[1].type == ARG_INT ? args[1].num : 0, &v);
		if (r)
			return r;
	} else {
		w.field = ev->it[0];
		w.off = ev->it[1];
		if (!walk_next(&w, &v))
			return -ENOENT;
		ev->it[0] = w.field;
		ev->it[1] = (uint32_t)w.off;
		ev->has_more = walk_field(&w) != NULL;
	}
	sample_set_str(ret, SAMPLE_STR, v.p ? v : STR(""));
	return 0;
}

static int fetch_hdr_val(struct eval *ev, const struct expr_arg *args, unsigned kw,
			 struct sample *ret)
{
	int r = fetch_hdr(ev, args, kw, ret);

	if (r)
		return r;
	sample_set_int(ret, str_leading_int(ret->str));
	return 0;
}

struct str host_without_port(struct str host)
{
	size_t i = host.len;

	while (i && host.p[i - 1] >= '0' && host.p[i - 1] <= '9')
		i--;
	if (i == 0 || host.p[i - 1] != ':')
		return host;
	/* Several colons without brackets: an IPv6 address, not a port. */
	if (host.p[0] != '[' && str_find_char(host, ':') != i - 1)
		return host;
	if (host.p[0] == '[' && (i < 2 || host.p[i - 2] != ']'))
		return host;
	return str_sub(host, 0, i - 1);
}

int field_token_addr(struct str v, struct addr *ret)
{
	if (v.len >= 2 && v.p[0] == '"' && v.p[v.len - 1] == '"')
		v = str_sub(v, 1, v.len - 2);
	if (addr_parse_ip(v, ret) == 0)
		return 0;
	return addr_parse_ip(host_without_port(v), ret) ? -ENOENT : 0;
}

/* Values that are no addresses do not end the walk: a proxy in between may write "unknown". */
static int fetch_hdr_ip(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *ret)
{
	struct addr a;
	int r;

	do {
		ev->has_more = false;
		r = fetch_hdr(ev, args, kw, ret);
		if (r)
			return r;
		r = field_token_addr(ret->str, &a);
	} while (r && ev->has_more);
	if (r)
		return r;
	ret->type = SAMPLE_ADDR;
	ret->is_const = false;
	ret->addr = a;
	return 0;
}

static int fetch_hdr_cnt(struct eval *ev, const struct expr_arg *args, unsigned kw,
			 struct sample *ret)
{
	struct walk w;
	int r = walk_init(ev, args, kw, &w);

	if (r)
		return r;
	sample_set_int(ret, walk_count(w));
	return 0;
}

/* All names (kw 0), or all fields as they would be sent (kw 1). */
static int fetch_all(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	const struct http_msg *m = msg_of(ev, kw);
	bool is_full = kw & 1;
	struct str delim = args[0].type == ARG_STR ? args[0].str : STR(",");
	size_t n = 0, room = 0;
	char *p;

	if (!m)
		return -ENOENT;
	for (unsigned i = 0; i < m->n_fields; i++)
		room += m->fields[i].name.len + (is_full ? m->fields[i].value.len + 4 : delim.len);
	p = eval_alloc(ev, room + 2);
	if (!p)
		return -ENOMEM;
	for (unsigned i = 0; i < m->n_fields; i++) {
		const struct http_field *f = &m->fields[i];

		if (f->is_removed)
			continue;
		if (!is_full && n) {
			memcpy(p + n, delim.p, delim.len);
			n += delim.len;
		}
		for (size_t k = 0; k < f->name.len; k++)
			p[n++] = str_lower_char(f->name.p[k]);
		if (!is_full)
			continue;
		memcpy(p + n, ": ", 2);
		n += 2;
		if (f->value.len)
			memcpy(p + n, f->value.p, f->value.len);
		n += f->value.len;
		memcpy(p + n, "\r\n", 2);
		n += 2;
	}
	if (is_full) {
		memcpy(p + n, "\r\n", 2);
		n += 2;
	}
	sample_set_str(ret, SAMPLE_STR, str_make(p, n));
	return 0;
}

/* --- cookies (RFC 6265 4.1, 4.2) --- */

/* The next name=value in the text; white space and one pair of quotes are not part of the value. */
static bool cookie_next(struct str *text, struct str *ret_name, struct str *ret_value)
{
	while (text->p) {
		struct str item = str_cut(text, ';');
		size_t eq = str_find_char(item, '=');

		if (eq == SIZE_MAX)
			continue;
		*ret_name = str_trim(str_sub(item, 0, eq));
		*ret_value = str_trim(str_from(item, eq + 1));
		return true;
	}
	return false;
}

/* kw: RSP: only the first pair of each Set-Cookie is a cookie, the rest are attributes. */
static bool cookie_nth(const struct http_msg *m, unsigned kw, struct str name, unsigned nth,
		       unsigned *ret_count, struct str *ret)
{
	enum http_field_id id = kw & RSP ? HTTP_FIELD_SET_COOKIE : HTTP_FIELD_COOKIE;
	const struct http_field *f;
	unsigned n = 0;

	for (f = http_msg_find(m, id, 0); f;
	     f = http_msg_find(m, id, (unsigned)(f - m->fields) + 1)) {
		struct str text = f->value, cn, cv;

		while (cookie_next(&text, &cn, &cv)) {
			if (!name.p || str_is_eq(cn, name)) {
				*ret = cv;
				if (n++ == nth)
					return true;
			}
			if (kw & RSP)
				break;
		}
	}
	*ret_count = n;
	return false;
}

static int fetch_cookie(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *ret)
{
	const struct http_msg *m = msg_of(ev, kw);
	struct str name = args[0].type == ARG_STR ? args[0].str : STR_NULL, v = STR_NULL;
	unsigned n = 0;

	if (!m)
		return -ENOENT;
	if (ev->is_iterating) {
		if (!cookie_nth(m, kw, name, ev->it[0]++, &n, &v))
			return -ENOENT;
		/* Each step walks from the start: bounded so that thousands of cookies stay cheap. */
		ev->has_more = ev->it[0] < 128;
	} else if (!name.p) {
		if (!cookie_nth(m, kw, name, 0, &n, &v))
			return -ENOENT;
	} else {
		cookie_nth(m, kw, name, UINT32_MAX, &n, &v); /* leaves the last one */
		if (n == 0)
			return -ENOENT;
	}
	sample_set_str(ret, SAMPLE_STR, v);
	return 0;
}

static int fetch_cookie_val(struct eval *ev, const struct expr_arg *args, unsigned kw,
			    struct sample *ret)
{
	int r = fetch_cookie(ev, args, kw, ret);

	if (r)
		return r;
	sample_set_int(ret, str_leading_int(ret->str));
	return 0;
}

static int fetch_cookie_cnt(struct eval *ev, const struct expr_arg *args, unsigned kw,
			    struct sample *ret)
{
	const struct http_msg *m = msg_of(ev, kw);
	unsigned n = 0;
	struct str v;

	if (!m)
		return -ENOENT;
	cookie_nth(m, kw, args[0].type == ARG_STR ? args[0].str : STR_NULL, UINT32_MAX, &n, &v);
	sample_set_int(ret, n);
	return 0;
}

/* Names of all cookies, each as often as it is there. */
static int fetch_cookie_names(struct eval *ev, const struct expr_arg *args, unsigned kw,
			      struct sample *ret)
{
	enum http_field_id id = kw & RSP ? HTTP_FIELD_SET_COOKIE : HTTP_FIELD_COOKIE;
	struct str delim = args[0].type == ARG_STR ? args[0].str : STR(",");
	const struct http_msg *m = msg_of(ev, kw);
	struct str text = STR_NULL, name, value;
	size_t n = 0, room = 0;
	char *p;

	if (!m)
		return -ENOENT;
	/* A pair is "n=" at least: as many delimiters as half the bytes. */
	for (const struct http_field *f = http_msg_find(m, id, 0); f;
	     f = http_msg_find(m, id, (unsigned)(f - m->fields) + 1))
		room += f->value.len + (f->value.len / 2 + 1) * delim.len;
	p = eval_alloc(ev, room);
	if (!p)
		return -ENOMEM;
	for (const struct http_field *f = http_msg_find(m, id, 0); f;
	     f = http_msg_find(m, id, (unsigned)(f - m->fields) + 1)) {
		for (text = f->value; cookie_next(&text, &name, &value);) {
			if (name.len && n) {
				memcpy(p + n, delim.p, delim.len);
				n += delim.len;
			}
			if (name.len)
				memcpy(p + n, name.p, name.len);
			n += name.len;
			if (kw & RSP)
				break;
		}
	}
	sample_set_str(ret, SAMPLE_STR, str_make(p, n));
	return 0;
}

#define Q PLACES_REQ
#define R PLACES_RSP
#define HDR(n, pl, k, what)                                                             \
	F(n, "[name],[occ]", "[si", STR, pl, FIELD_ITEMS | (k), fetch_hdr, check_field, \
	  "item of a " what " header, the last or number occ")
#define FHDR(n, pl, k, what)                                                            \
	F(n, "[name],[occ]", "[si", STR, pl, FIELD_WHOLE | (k), fetch_hdr, check_field, \
	  "whole " what " header, the last or number occ")
#define HDR_CNT(n, pl, k)                                                             \
	F(n, "[name]", "[s", SINT, pl, FIELD_ITEMS | (k), fetch_hdr_cnt, check_field, \
	  "number of items")
#define FHDR_CNT(n, pl, k)                                                            \
	F(n, "[name]", "[s", SINT, pl, FIELD_WHOLE | (k), fetch_hdr_cnt, check_field, \
	  "number of headers")
#define HDR_IP(n, pl, k)                                                                    \
	F(n, "[name],[occ]", "[si", ADDR, pl, FIELD_ITEMS | (k), fetch_hdr_ip, check_field, \
	  "header item as an address")
#define HDR_VAL(n, pl, k)                                                                    \
	F(n, "[name],[occ]", "[si", SINT, pl, FIELD_ITEMS | (k), fetch_hdr_val, check_field, \
	  "header item as an integer")
#define COOK(n, pl, k) F(n, "[name]", "[s", STR, pl, k, fetch_cookie, NULL, "value of a cookie")
#define COOK_CNT(n, pl, k) \
	F(n, "[name]", "[s", SINT, pl, k, fetch_cookie_cnt, NULL, "number of such cookies")
#define COOK_VAL(n, pl, k) \
	F(n, "[name]", "[s", SINT, pl, k, fetch_cookie_val, NULL, "value of a cookie as an integer")

static const struct fetch_def defs[] = {
	HDR("req.hdr", Q, 0, "request"),
	HDR("hdr", Q, 0, "request"),
	HDR("res.hdr", R, RSP, "response"),
	HDR("shdr", R, RSP, "response"),
	FHDR("req.fhdr", Q, 0, "request"),
	FHDR("res.fhdr", R, RSP, "response"),
	HDR_CNT("req.hdr_cnt", Q, 0),
	HDR_CNT("hdr_cnt", Q, 0),
	HDR_CNT("res.hdr_cnt", R, RSP),
	HDR_CNT("shdr_cnt", R, RSP),
	FHDR_CNT("req.fhdr_cnt", Q, 0),
	FHDR_CNT("res.fhdr_cnt", R, RSP),
	HDR_IP("req.hdr_ip", Q, 0),
	HDR_IP("hdr_ip", Q, 0),
	HDR_IP("res.hdr_ip", R, RSP),
	HDR_IP("shdr_ip", R, RSP),
	HDR_VAL("req.hdr_val", Q, 0),
	HDR_VAL("hdr_val", Q, 0),
	HDR_VAL("res.hdr_val", R, RSP),
	HDR_VAL("shdr_val", R, RSP),
	F("req.hdr_names", "[delim]", "[s", STR, Q, 0, fetch_all, NULL,
	  "names of all request headers"),
	F("hdr_names", "[delim]", "[s", STR, Q, 0, fetch_all, NULL, "names of all request headers"),
	F("res.hdr_names", "[delim]", "[s", STR, R, RSP, fetch_all, NULL,
	  "names of all response headers"),
	F("req.hdrs", "", "", STR, Q, 1, fetch_all, NULL, "all request headers"),
	F("res.hdrs", "", "", STR, R, 1 | RSP, fetch_all, NULL, "all response headers"),
	COOK("req.cook", Q, 0),
	COOK("cook", Q, 0),
	COOK("cookie", Q, 0),
	COOK("res.cook", R, RSP),
	COOK("scook", R, RSP),
	COOK_CNT("req.cook_cnt", Q, 0),
	COOK_CNT("cook_cnt", Q, 0),
	COOK_CNT("res.cook_cnt", R, RSP),
	COOK_CNT("scook_cnt", R, RSP),
	F("req.cook_names", "[delim]", "[s", STR, Q, 0, fetch_cookie_names, NULL,
	  "names of all cookies"),
	F("res.cook_names", "[delim]", "[s", STR, R, RSP, fetch_cookie_names, NULL,
	  "names of all cookies that are set"),
	COOK_VAL("req.cook_val", Q, 0),
	COOK_VAL("cook_val", Q, 0),
	COOK_VAL("res.cook_val", R, RSP),
	COOK_VAL("scook_val", R, RSP),
};

const struct fetch_table fetch_field_table = { defs, ARRAY_SIZE(defs) };
