/* SPDX-License-Identifier: BSD-2-Clause */
/* A request, its response and its log record for the tests of expressions. */
#ifndef UNIT_EXPR_SUBJECT_H
#define UNIT_EXPR_SUBJECT_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "expr/expr.h"

#define WALL_NS (1772352930042000000ull) /* 01/Mar/2026:08:15:30.042 UTC */

struct fixture {
	struct arena conf, run;
	struct subject s;
	struct subject_log log;
	struct http_msg req, rsp;
	struct addr src, dst;
	struct expr_env env;
	struct expr_owned *owned;
	char warning[400];
};

static inline void fixture_warn(struct expr_env *env, const char *text)
{
	struct fixture *f = env->owner;

	snprintf(f->warning, sizeof(f->warning), "%s", text);
}

static inline int fixture_tls(const struct subject *s, bool is_back, enum subject_tls_field f,
			      struct sample *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->type = SAMPLE_STR;
	switch ((unsigned)f) {
	case TLS_SNI:
		ret->str = STR("tls.example");
		return 0;
	case TLS_VERSION:
		ret->str = STR("TLSv1.3");
		return 0;
	case TLS_CIPHER:
		ret->str = STR("TLS_AES_128_GCM_SHA256");
		return 0;
	case TLS_CLIENT_CERT + CERT_S_DN:
		ret->str = STR("/C=FR/O=a/b/CN=one/CN=two");
		return 0;
	case TLS_SERVER_CERT + CERT_S_DN:
		ret->str = is_back ? STR("/CN=server") : STR("/CN=ours");
		return 0;
	case TLS_SERVER_CERT + CERT_SAN:
		ret->str = STR("DNS:a.example, DNS:b.example");
		return 0;
	case TLS_ERROR:
	case TLS_CLIENT_ERR:
	case TLS_CA_ERROR:
	case TLS_IS_RESUMED:
		ret->type = SAMPLE_SINT;
		ret->sint = 0;
		return 0;
	default:
		return -ENOENT;
	}
}

static inline int fixture_count(const struct subject *s, enum subject_count c, struct str name,
				int64_t *ret)
{
	if (str_is_eq(name, STR("none")))
		return -ENOENT;
	*ret = c == COUNT_NBSRV ? 2 : c == COUNT_SRV_IS_UP ? 1 : 40 + (int64_t)name.len;
	return 0;
}

/* Counter, index, tracked slot and key become one number, so that tests see all of them. */
static inline int fixture_table(const struct subject *s, const struct table_op *op,
				const struct sample *key, struct sample *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->type = op->counter == TABLE_IS_TRACKED ? SAMPLE_BOOL : SAMPLE_SINT;
	if (key && key->type == SAMPLE_STR && str_is_eq(key->str, STR("unknown")))
		return -ENOENT;
	ret->sint = op->counter == TABLE_IS_TRACKED
			    ? 1
			    : op->counter * 10000 + op->access * 1000 + op->index * 100 +
				      op->sc * 10 + op->key;
	return 0;
}

static inline int fixture_tcp(const struct subject *s, bool is_back, enum subject_tcp_fact f,
			      int64_t *ret)
{
	*ret = is_back ? 7000 : 12000 + (int64_t)f;
	return 0;
}

static inline int fixture_kernel(const struct subject *s, enum kernel_fact f, int64_t *ret)
{
	*ret = 5 + (int64_t)f;
	return 0;
}

/* The fact's number times 1,000, which is what makes `when` see a stream that went well to a server. */
static inline int fixture_fact(const struct subject *s, enum subject_fact f, struct sample *ret)
{
	ret->sint = f == FACT_IS_ERROR || f == FACT_IS_SERVICE ? 0 : (int64_t)f * 1000;
	return f == FACT_CUR_TARPIT_TIMEOUT ? -ENOENT : 0;
}

static inline int fixture_tlv(const struct subject *s, uint8_t type, struct str *ret)
{
	*ret = type == 0x02 ? STR("authority.example") : type == 0xe0 ? STR("own") : STR_NULL;
	return ret->p ? 0 : -ENOENT;
}

static struct str fixture_captured[2][2];

static inline int fixture_capture(const struct subject *s, bool is_rsp, unsigned slot,
				  struct str value)
{
	if (slot < 2)
		fixture_captured[is_rsp][slot] = value;
	return 0;
}

static const struct subject_ops fixture_ops = { .tls = fixture_tls,
						.count = fixture_count,
						.table = fixture_table,
						.fact = fixture_fact,
						.proxy_tlv = fixture_tlv,
						.capture = fixture_capture,
						.tcp = fixture_tcp,
						.kernel = fixture_kernel };

static inline void fixture_field(struct http_msg *m, const char *name, const char *value)
{
	assert_int_equal(http_msg_add(m, str_from_cstr(name), str_from_cstr(value)), 0);
}

static inline void fixture_log(struct fixture *f)
{
	f->log = (struct subject_log){
		.accept_wall_ns = WALL_NS,
		.t_request = 3000000,
		.t_connect = 1000000,
		.t_response = 18000000,
		.t_active = 22000000,
		.t_total = 22000000,
		.bytes_to_client = 5120,
		.bytes_from_client = 321,
		.status = 200,
		.term = { '-', '-', '-', '-' },
		.actconn = 12,
		.feconn = 9,
		.beconn = 4,
		.srv_conn = 2,
		.is_tls = true,
		.frontend = STR("web"),
		.backend = STR("app"),
		.server = STR("s2"),
		.start_line = STR("GET /cart HTTP/1.1"),
		.request_counter = 26,
	};
	f->s.log = &f->log;
}

static inline void fixture_init(struct fixture *f)
{
	memset(f, 0, sizeof(*f));
	arena_init(&f->conf, 4096);
	arena_init(&f->run, 16384);
	f->env = (struct expr_env){ .arena = &f->conf,
				    .is_http = true,
				    .warn = fixture_warn,
				    .owner = f,
				    .owned = &f->owned };
	assert_int_equal(addr_parse_ip(STR("192.0.2.7"), &f->src), 0);
	addr_set_port(&f->src, 51544);
	assert_int_equal(addr_parse_ip(STR("198.51.100.1"), &f->dst), 0);
	addr_set_port(&f->dst, 443);
	f->s = (struct subject){ .arena = &f->run,
				 .sess_arena = &f->run,
				 .wall_ns = WALL_NS,
				 .front = { .src = &f->src, .dst = &f->dst },
				 .frontend_name = STR("web"),
				 .backend_name = STR("app"),
				 .frontend_id = 2,
				 .backend_id = 3,
				 .listener_id = 1,
				 .ops = &fixture_ops,
				 .req = &f->req,
				 .rsp = &f->rsp };
	assert_int_equal(http_msg_init(&f->req, &f->conf, 101), 0);
	assert_int_equal(http_msg_init(&f->rsp, &f->conf, 101), 0);
	f->req.method = HTTP_METHOD_GET;
	f->req.method_text = STR("GET");
	f->req.major = f->rsp.major = 1;
	f->req.minor = f->rsp.minor = 1;
	f->req.path = f->req.target = STR("/a/12,34?x=1;z=3&y=2");
	f->req.start_line = STR("GET /a/12,34?x=1;z=3&y=2 HTTP/1.1");
	f->rsp.status = 404;
	f->rsp.flags = HTTP_MSG_RESPONSE;
	f->s.req_body = STR("xyz");
	fixture_field(&f->req, "Host", "h.com:80");
	fixture_field(&f->req, "x", "a%0ab%41");
	fixture_field(&f->req, "m", "5, b b,\"c,d\"");
	fixture_field(&f->req, "M", "7 , 9");
	fixture_field(&f->req, "x-ip", "1.2.3.4, unknown, [2001:db8::1]:80");
	fixture_field(&f->req, "authorization", "Basic dTpwdw==");
	fixture_field(&f->req, "cookie", "a=1; b=22; a=3");
	fixture_field(&f->req, "accept-language", "da, en-GB;q=0.8, fr;q=0.9");
	fixture_field(&f->rsp, "Set-Cookie", "sid=q; path=/");
	fixture_field(&f->rsp, "Server", "t");
}

static inline void fixture_free(struct fixture *f)
{
	expr_owned_free(&f->owned);
	arena_free(&f->conf);
	arena_free(&f->run);
}

/* An expression and its text; NULL: no value. A list ends with an expr that is NULL. */
struct expr_case {
	const char *expr, *want;
};

static inline void check_exprs(const struct expr_case *c, void (*prepare)(struct fixture *))
{
	for (; c->expr; c++) {
		struct fixture f;
		struct expr *e = NULL;
		struct sample v;
		struct err err = { "" };
		size_t at;
		int r;

		fixture_init(&f);
		if (prepare)
			prepare(&f);
		r = expr_compile(&f.env, str_from_cstr(c->expr), &e, &at, &err);
		if (r)
			fail_msg("%s: %s (at %zu)", c->expr, err.text, at);
		r = expr_eval(e, &f.s, &v);
		if (r == 0)
			r = sample_cast(&v, SAMPLE_STR, &f.run);
		if (r && c->want)
			fail_msg("%s: no value (%d) instead of '%s'", c->expr, r, c->want);
		if (r == 0 && !c->want)
			fail_msg("%s: '" STR_FMT "' instead of no value", c->expr, STR_ARG(v.str));
		if (r == 0 && !str_is_eq(v.str, str_from_cstr(c->want)))
			fail_msg("%s: '" STR_FMT "' instead of '%s'", c->expr, STR_ARG(v.str),
				 c->want);
		fixture_free(&f);
	}
}

/* A bad expression, where its error is, and a part of the message. */
struct error_case {
	const char *expr;
	size_t at;
	const char *part;
};

static inline void check_errors(const struct error_case *c, unsigned place)
{
	for (; c->expr; c++) {
		struct fixture f;
		struct expr *e;
		struct err err = { "" };
		size_t at = 12345;
		int r;

		fixture_init(&f);
		f.env.place = place;
		r = expr_compile(&f.env, str_from_cstr(c->expr), &e, &at, &err);
		if (r != -EINVAL)
			fail_msg("%s: %d instead of an error", c->expr, r);
		if (at != c->at || !strstr(err.text, c->part))
			fail_msg("%s: at %zu '%s', wanted at %zu '%s'", c->expr, at, err.text,
				 c->at, c->part);
		fixture_free(&f);
	}
}

#endif
