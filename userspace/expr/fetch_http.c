/* SPDX-License-Identifier: BSD-2-Clause */
/* Fetches of HTTP messages: start line, path, query, parameters, body, authentication. Workers. */
#include "expr/expr_priv.h"

/* Enough for any request head; parameters behind it are not looked for. */
#define BODY_SCAN_MAX 65536

struct str param_next(struct str *query, struct str seps, struct str *ret_value)
{
	size_t n = str_find_any(*query, seps), eq;
	struct str item = str_sub(*query, 0, n);

	*query = n < query->len ? str_from(*query, n + 1) : STR_NULL;
	eq = str_find_char(item, '=');
	*ret_value = eq == SIZE_MAX ? STR_NULL : str_from(item, eq + 1);
	return str_sub(item, 0, eq);
}

bool url_find_param(struct str query, struct str seps, struct str name, struct str *ret_value)
{
	while (query.p) {
		struct str n = param_next(&query, seps, ret_value);

		if (ret_value->p && str_is_eq(n, name))
			return true;
	}
	return false;
}

static struct str path_of(const struct http_msg *m)
{
	struct str p = m->path;

	if (p.len == 0 || p.p[0] != '/')
		return STR_NULL;
	p = str_sub(p, 0, str_find_char(p, '?'));
	return str_sub(p, 0, str_find_char(p, '#'));
}

static struct str query_of(const struct http_msg *m)
{
	size_t at = str_find_char(m->path, '?');

	return at == SIZE_MAX ? STR_NULL : str_from(m->path, at + 1);
}

/* http://authority/path for absolute forms and HTTP/2, the path alone otherwise. */
static int url_of(struct eval *ev, const struct http_msg *m, struct str *ret)
{
	size_t n = m->scheme.len + 3 + m->authority.len + m->path.len;
	char *p, *q;

	if (m->scheme.len == 0 || m->authority.len == 0) {
		*ret = m->path.len ? m->path : m->target;
		return 0;
	}
	p = q = eval_alloc(ev, n);
	if (!p)
		return -ENOMEM;
	memcpy(q, m->scheme.p, m->scheme.len);
	q += m->scheme.len;
	memcpy(q, "://", 3);
	q += 3;
	memcpy(q, m->authority.p, m->authority.len);
	q += m->authority.len;
	if (m->path.len)
		memcpy(q, m->path.p, m->path.len);
	*ret = str_make(p, n);
	return 0;
}

static int with_host(struct eval *ev, const struct http_msg *m, struct str path, struct str *ret)
{
	struct str host = http_msg_host(m);
	char *p = eval_alloc(ev, host.len + path.len);

	if (!p)
		return -ENOMEM;
	if (host.len)
		memcpy(p, host.p, host.len);
	if (path.len)
		memcpy(p + host.len, path.p, path.len);
	*ret = str_make(p, host.len + path.len);
	return 0;
}

static int base_of(struct eval *ev, const struct http_msg *m, struct str *ret)
{
	return with_host(ev, m, path_of(m), ret);
}

enum line_part {
	PART_METHOD,
	PART_PATH,
	PART_PATHQ,
	PART_QUERY,
	PART_URL,
	PART_BASE
};

static struct str method_of(const struct http_msg *m)
{
	return m->method_text.len ? m->method_text : http_method_text((enum http_method)m->method);
}

static int fetch_line(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	const struct http_msg *m = ev->s->req;
	struct str v = STR_NULL;
	int r = 0;

	if (!m)
		return -ENOENT;
	switch ((enum line_part)kw) {
	case PART_METHOD:
		sample_set_str(ret, SAMPLE_METH, method_of(m));
		return 0;
	case PART_PATH:
		v = path_of(m);
		break;
	case PART_PATHQ:
		v = path_of(m).p ? m->path : STR_NULL;
		break;
	case PART_QUERY:
		v = query_of(m);
		v = v.p ? v : STR("");
		break;
	case PART_URL:
		r = url_of(ev, m, &v);
		break;
	case PART_BASE:
		r = base_of(ev, m, &v);
		break;
	}
	if (r || !v.p)
		return r ? r : -ENOENT;
	sample_set_str(ret, SAMPLE_STR, v);
	return 0;
}

/* The authority of an absolute URL: address or port. */
static int fetch_url_addr(struct eval *ev, const struct expr_arg *args, unsigned kw,
			  struct sample *ret)
{
	const struct http_msg *m = ev->s->req;
	struct addr a;

	if (!m || m->authority.len == 0)
		return -ENOENT;
	if (kw == 0) {
		if (field_token_addr(m->authority, &a))
			return -ENOENT;
		ret->type = SAMPLE_ADDR;
		ret->addr = a;
		return 0;
	}
	if (host_without_port(m->authority).len < m->authority.len)
		sample_set_int(ret,
			       str_leading_int(str_from(m->authority,
							host_without_port(m->authority).len + 1)));
	else
		sample_set_int(ret, str_is_case_eq(m->scheme, STR("https")) ? 443 : 80);
	return 0;
}

/* kw: 1 the base instead of the URL, 2 with the source address behind it */
static int fetch_hash32(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *ret)
{
	const struct http_msg *m = ev->s->req;
	const struct addr *src = ev->s->src ? ev->s->src : ev->s->front.src;
	struct str v;
	uint32_t h;
	char *p;
	int r;

	if (!m)
		return -ENOENT;
	r = kw & 1 ? base_of(ev, m, &v) : url_of(ev, m, &v);
	if (r == 0 && !(kw & 1))
		r = with_host(ev, m, v, &v);
	if (r)
		return r;
	h = hash_avalanche(hash_sdbm(v));
	if (!(kw & 2)) {
		sample_set_int(ret, h);
		return 0;
	}
	p = eval_alloc(ev, 20);
	if (!p || !src)
		return p ? -ENOENT : -ENOMEM;
	put_be32(p, h);
	if (src->sa.sa_family == AF_INET)
		memcpy(p + 4, &src->in.sin_addr, 4);
	else if (src->sa.sa_family == AF_INET6)
		memcpy(p + 4, &src->in6.sin6_addr, 16);
	sample_set_str(ret, SAMPLE_BIN,
		       str_make(p, src->sa.sa_family == AF_INET	   ? 8
				   : src->sa.sa_family == AF_INET6 ? 20
								   : 4));
	return 0;
}

enum param_src {
	PARAM_URL,
	PARAM_BODY
};

static struct str subject_body(const struct subject *s, bool is_rsp)
{
	if (s->ops && s->ops->body)
		return s->ops->body(s, is_rsp);
	return is_rsp ? s->rsp_body : s->req_body;
}

static bool param_text(const struct subject *s, enum param_src from, struct str delim,
		       struct str *ret)
{
	size_t at;

	if (from == PARAM_BODY) {
		*ret = str_sub(subject_body(s, false), 0, BODY_SCAN_MAX);
		return ret->len != 0;
	}
	at = str_find_any(s->req->path, delim);
	if (at == SIZE_MAX)
		return false;
	*ret = str_from(s->req->path, at + 1);
	return true;
}

/* Without a name: each parameter in turn for ACLs, the first one otherwise. */
static int fetch_param(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *ret)
{
	struct str delim = kw == PARAM_URL && args[1].type == ARG_STR ? args[1].str : STR("?");
	struct str seps = STR("&;"), text, value;
	unsigned nth = ev->is_iterating ? ev->it[0]++ : 0;

	if (!ev->s->req || !param_text(ev->s, (enum param_src)kw, delim, &text))
		return -ENOENT;
	if (kw == PARAM_BODY)
		seps = STR("&");
	do {
		struct str name;

		if (!text.p)
			return -ENOENT;
		name = param_next(&text, seps, &value);
		if (args[0].type != ARG_NONE && !str_is_eq(name, args[0].str))
			value.p = NULL;
	} while (!value.p || nth-- > 0);
	/* Positions are counted again on each call, so that the number of tries must be bounded. */
	ev->has_more = ev->is_iterating && text.p && ev->it[0] < 64;
	sample_set_str(ret, SAMPLE_STR, value);
	return 0;
}

static int fetch_param_val(struct eval *ev, const struct expr_arg *args, unsigned kw,
			   struct sample *ret)
{
	int r = fetch_param(ev, args, kw, ret);

	return r ? r : sample_cast(ret, SAMPLE_SINT, ev->arena);
}

enum msg_fact {
	MSG_VERSION,
	MSG_STATUS,
	MSG_IS_HTTP,
	MSG_BODY,
	MSG_BODY_LEN,
	MSG_BODY_SIZE
};
#define MSG_RSP 0x100

static int fetch_msg_version(const struct http_msg *m, struct eval *ev, struct sample *ret)
{
	static const struct str known[] = { { "1.0", 3 }, { "1.1", 3 }, { "2.0", 3 } };
	unsigned i = m->major == 2 ? 2 : m->minor != 0;

	sample_set_str(ret, SAMPLE_STR, known[i]);
	return 0;
}

static int fetch_msg(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	bool is_rsp = kw & MSG_RSP;
	const struct http_msg *m = is_rsp ? ev->s->rsp : ev->s->req;
	struct str body = STR_NULL;

	if (!m)
		return -ENOENT;
	if ((kw & 0xff) >= MSG_BODY)
		body = subject_body(ev->s, is_rsp);
	switch ((enum msg_fact)(kw & 0xff)) {
	case MSG_VERSION:
		return fetch_msg_version(m, ev, ret);
	case MSG_STATUS:
		sample_set_int(ret, m->status);
		return 0;
	case MSG_IS_HTTP:
		sample_set_bool(ret, true);
		return 0;
	case MSG_BODY:
		sample_set_str(ret, SAMPLE_BIN, body.p ? body : STR(""));
		return 0;
	case MSG_BODY_LEN:
		sample_set_int(ret, (int64_t)body.len);
		return 0;
	case MSG_BODY_SIZE:
		if (m->framing == HTTP_BODY_LENGTH && m->content_length <= INT64_MAX)
			sample_set_int(ret, (int64_t)m->content_length);
		else
			sample_set_int(ret, (int64_t)body.len);
		return 0;
	}
	return -ENOENT;
}

/* --- Authorization (RFC 7617, RFC 6750) --- */

struct auth {
	struct str scheme, token, user, pass;
};

static int auth_read(struct eval *ev, struct auth *a)
{
	const struct http_field *f =
		ev->s->req ? http_msg_find(ev->s->req, HTTP_FIELD_AUTHORIZATION, 0) : NULL;
	size_t sp = f ? str_find_char(f->value, ' ') : SIZE_MAX, colon;
	char *p;
	ssize_t n;

	memset(a, 0, sizeof(*a));
	if (sp == SIZE_MAX)
		return -ENOENT;
	a->scheme = str_sub(f->value, 0, sp);
	a->token = str_trim(str_from(f->value, sp));
	if (!str_is_case_eq(a->scheme, STR("Basic")))
		return 0;
	p = eval_alloc(ev, a->token.len / 4 * 3 + 6);
	if (!p)
		return -ENOMEM;
	n = b64_decode(a->token, p, false);
	if (n < 0)
		return -ENOENT;
	a->user = str_make(p, (size_t)n);
	colon = str_find_char(a->user, ':');
	if (colon == SIZE_MAX)
		return -ENOENT;
	a->pass = str_from(a->user, colon + 1);
	a->user = str_sub(a->user, 0, colon);
	return 0;
}

enum auth_part {
	AUTH_TYPE,
	AUTH_USER,
	AUTH_PASS,
	AUTH_BEARER,
	AUTH_OK,
	AUTH_GROUP
};

static int check_userlist(struct fn_check *c, struct err *err)
{
	const struct expr_userlist *l = NULL;

	if (c->env->find_userlist)
		l = c->env->find_userlist(c->env, c->args[0].str, err);
	else
		err_set(err, -EINVAL, "there are no userlists here");
	if (!l)
		return -EINVAL;
	c->args[0].type = ARG_PTR;
	c->args[0].ptr = (void *)l;
	return 0;
}

static int auth_group(struct eval *ev, const struct expr_user *u, struct sample *ret)
{
	unsigned i = ev->is_iterating ? ev->it[0]++ : 0;

	if (!u || i >= u->n_groups)
		return -ENOENT;
	ev->has_more = i + 1 < u->n_groups;
	sample_set_str(ret, SAMPLE_STR, u->groups[i]);
	return 0;
}

static int fetch_auth(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	const struct expr_user *u = NULL;
	struct auth a;
	int r = auth_read(ev, &a);
	struct str v;

	if (kw >= AUTH_OK) {
		if (r == 0 && a.user.len)
			u = expr_userlist_check(args[0].ptr, a.user, a.pass);
		if (kw == AUTH_GROUP)
			return r == -ENOMEM ? r : auth_group(ev, u, ret);
		sample_set_bool(ret, u != NULL);
		return r == -ENOMEM ? r : 0;
	}
	if (r)
		return r;
	if (kw == AUTH_BEARER && !str_is_case_eq(a.scheme, STR("Bearer")))
		return -ENOENT;
	v = kw == AUTH_TYPE   ? a.scheme
	    : kw == AUTH_USER ? a.user
	    : kw == AUTH_PASS ? a.pass
			      : a.token;
	if (!v.p)
		return -ENOENT;
	sample_set_str(ret, SAMPLE_STR, v);
	return 0;
}

/* --- captures: taken from the log record, where the proxy keeps them --- */

static int fetch_capture_hdr(struct eval *ev, const struct expr_arg *args, unsigned kw,
			     struct sample *ret)
{
	const struct subject_log *l = ev->s->log;
	unsigned n = !l ? 0 : kw ? l->n_rsp_captures : l->n_req_captures;
	struct str v;

	if (args[0].num < 0 || args[0].num >= (int64_t)n)
		return -ENOENT;
	v = kw ? l->rsp_captures[args[0].num] : l->req_captures[args[0].num];
	if (!v.p)
		return -ENOENT;
	sample_set_str(ret, SAMPLE_STR, v);
	return 0;
}

static int fetch_capture_ver(struct eval *ev, const struct expr_arg *args, unsigned kw,
			     struct sample *ret)
{
	const struct http_msg *m = kw ? ev->s->rsp : ev->s->req;

	if (!m)
		return -ENOENT;
	sample_set_str(ret, SAMPLE_STR,
		       m->major == 2 ? STR("HTTP/2.0")
		       : m->minor    ? STR("HTTP/1.1")
				     : STR("HTTP/1.0"));
	return 0;
}

#define Q PLACES_REQ
#define R PLACES_RSP
static const struct fetch_def defs[] = {
	F("method", "", "", METH, Q, PART_METHOD, fetch_line, NULL, "request method"),
	F("path", "", "", STR, Q, PART_PATH, fetch_line, NULL, "path without the query"),
	F("pathq", "", "", STR, Q, PART_PATHQ, fetch_line, NULL, "path with the query"),
	F("query", "", "", STR, Q, PART_QUERY, fetch_line, NULL, "what follows the first '?'"),
	F("url", "", "", STR, Q, PART_URL, fetch_line, NULL, "request target"),
	F("base", "", "", STR, Q, PART_BASE, fetch_line, NULL, "host and path without the query"),
	F("capture.req.method", "", "", STR, Q, PART_METHOD, fetch_line, NULL, "request method"),
	F("capture.req.uri", "", "", STR, Q, PART_URL, fetch_line, NULL, "request target"),
	F("capture.req.ver", "", "", STR, Q, 0, fetch_capture_ver, NULL, "HTTP/1.0, 1.1 or 2.0"),
	F("capture.res.ver", "", "", STR, R, 1, fetch_capture_ver, NULL, "HTTP/1.0, 1.1 or 2.0"),
	F("capture.req.hdr", "idx", "i", STR, Q, 0, fetch_capture_hdr, NULL,
	  "captured request header number idx, from 0"),
	F("capture.res.hdr", "idx", "i", STR, R, 1, fetch_capture_hdr, NULL,
	  "captured response header number idx, from 0"),
	F("url_ip", "", "", ADDR, Q, 0, fetch_url_addr, NULL, "address in an absolute target"),
	F("url_port", "", "", SINT, Q, 1, fetch_url_addr, NULL, "port in an absolute target"),
	F("url32", "", "", SINT, Q, 0, fetch_hash32, NULL, "32-bit hash of host and url"),
	F("base32", "", "", SINT, Q, 1, fetch_hash32, NULL, "32-bit hash of base"),
	F("url32+src", "", "", BIN, Q, 2, fetch_hash32, NULL, "url32 and the source address"),
	F("base32+src", "", "", BIN, Q, 3, fetch_hash32, NULL, "base32 and the source address"),
	F("url_param", "[name],[delim]", "[ss", STR, Q, PARAM_URL, fetch_param, NULL,
	  "parameter of the query"),
	F("urlp", "[name],[delim]", "[ss", STR, Q, PARAM_URL, fetch_param, NULL,
	  "parameter of the query"),
	F("urlp_val", "[name],[delim]", "[ss", SINT, Q, PARAM_URL, fetch_param_val, NULL,
	  "parameter of the query as an integer"),
	F("req.body_param", "[name]", "[s", STR, Q, PARAM_BODY, fetch_param, NULL,
	  "parameter in a form body"),
	F("req.ver", "", "", STR, Q, MSG_VERSION, fetch_msg, NULL, "1.0, 1.1 or 2.0"),
	F("req_ver", "", "", STR, Q, MSG_VERSION, fetch_msg, NULL, "1.0, 1.1 or 2.0"),
	F("res.ver", "", "", STR, R, MSG_VERSION | MSG_RSP, fetch_msg, NULL, "1.0, 1.1 or 2.0"),
	F("resp_ver", "", "", STR, R, MSG_VERSION | MSG_RSP, fetch_msg, NULL, "1.0, 1.1 or 2.0"),
	F("status", "", "", SINT, R, MSG_STATUS | MSG_RSP, fetch_msg, NULL,
	  "status of the response"),
	F("req_proto_http", "", "", BOOL, Q, MSG_IS_HTTP, fetch_msg, NULL,
	  "is this an HTTP request"),
	F("req.proto_http", "", "", BOOL, Q, MSG_IS_HTTP, fetch_msg, NULL,
	  "is this an HTTP request"),
	F("req.body", "", "", BIN, Q, MSG_BODY, fetch_msg, NULL,
	  "request body, as far as buffered"),
	F("req.body_len", "", "", SINT, Q, MSG_BODY_LEN, fetch_msg, NULL, "its length"),
	F("req.body_size", "", "", SINT, Q, MSG_BODY_SIZE, fetch_msg, NULL,
	  "announced body length"),
	F("res.body", "", "", BIN, R, MSG_BODY | MSG_RSP, fetch_msg, NULL,
	  "response body, as far as buffered"),
	F("res.body_len", "", "", SINT, R, MSG_BODY_LEN | MSG_RSP, fetch_msg, NULL, "its length"),
	F("res.body_size", "", "", SINT, R, MSG_BODY_SIZE | MSG_RSP, fetch_msg, NULL,
	  "announced body length"),
	F("http_auth", "userlist", "s", BOOL, Q, AUTH_OK, fetch_auth, check_userlist,
	  "did the client give a valid name and password"),
	F("http_auth_group", "userlist", "s", STR, Q, AUTH_GROUP, fetch_auth, check_userlist,
	  "groups of the authenticated user"),
	F("http_auth_type", "", "", STR, Q, AUTH_TYPE, fetch_auth, NULL, "Basic, Bearer, …"),
	F("http_auth_user", "", "", STR, Q, AUTH_USER, fetch_auth, NULL, "name the client gave"),
	F("http_auth_pass", "", "", STR, Q, AUTH_PASS, fetch_auth, NULL,
	  "password the client gave"),
	F("http_auth_bearer", "", "", STR, Q, AUTH_BEARER, fetch_auth, NULL, "bearer token"),
};

const struct fetch_table fetch_http_table = { defs, ARRAY_SIZE(defs) };
