/* SPDX-License-Identifier: BSD-2-Clause */
/* Sample fetches: requests, responses, connections, TLS, payload, tables. links: expr http base */
#include "unit/expr_subject.h"

static const struct str captures[2] = { { "one", 3 }, { NULL, 0 } };
static const struct str groups[2] = { { "staff", 5 }, { "admin", 5 } };
static const struct expr_user users[] = {
	{ .name = { "u", 1 },
	  .password = { "pw", 2 },
	  .is_plain = true,
	  .groups = groups,
	  .n_groups = 2 },
	{ .name = { "c", 1 }, .password = { "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1", 34 } },
	{ .name = { "none", 4 } },
};
static const struct expr_userlist list = { { "l", 1 }, users, 3 };

static const struct expr_userlist *find_list(struct expr_env *env, struct str name, struct err *err)
{
	if (str_is_eq(name, STR("l")))
		return &list;
	err_set(err, -EINVAL, "no userlist '" STR_FMT "'", STR_ARG(name));
	return NULL;
}

static void prepare(struct fixture *f)
{
	f->env.find_userlist = find_list;
	fixture_log(f);
	f->log.unique_id = STR("id-1");
	f->log.req_captures = captures;
	f->log.n_req_captures = 2;
	f->s.server_name = STR("s2");
	f->s.server_id = 4;
	f->s.back.err_text = "timed out";
	f->s.start_wall_ns = WALL_NS - 5000000000ull;
	f->s.is_first_request = true;
	setenv("HG_TEST_ENV", "from env", 1);
}

static const struct expr_case http[] = {
	{ "method", "GET" },
	{ "path", "/a/12,34" },
	{ "pathq", "/a/12,34?x=1;z=3&y=2" },
	{ "query", "x=1;z=3&y=2" },
	{ "url", "/a/12,34?x=1;z=3&y=2" },
	{ "base", "h.com:80/a/12,34" },
	{ "url_param(x)", "1" },
	{ "urlp(y)", "2" },
	{ "urlp(x,;)", NULL },
	{ "urlp(z,;)", "3" },
	{ "urlp(nope)", NULL },
	{ "urlp", "1" },
	{ "urlp_val(y),add(1)", "3" },
	{ "url_ip", NULL },
	{ "req.ver", "1.1" },
	{ "req.hdr(x)", "a%0ab%41" },
	{ "hdr(X)", "a%0ab%41" },
	{ "req.hdr(m)", "9" },
	{ "req.hdr(m,1)", "5" },
	{ "req.hdr(m,3)", "\"c,d\"" },
	{ "req.hdr(m,-1)", "9" },
	{ "req.hdr(m,-2)", "7" },
	{ "req.hdr(m,-5)", "5" },
	{ "req.hdr(m,-6)", NULL },
	{ "req.hdr(m,9)", NULL },
	{ "req.hdr(nope)", NULL },
	{ "req.fhdr(m)", "7 , 9" },
	{ "req.fhdr(m,1)", "5, b b,\"c,d\"" },
	{ "req.hdr_cnt(m)", "5" },
	{ "req.fhdr_cnt(m)", "2" },
	{ "req.hdr_cnt(nope)", "0" },
	{ "req.hdr_val(m)", "9" },
	{ "req.hdr_ip(x-ip,1)", "1.2.3.4" },
	{ "req.hdr_ip(x-ip)", "2001:db8::1" },
	{ "req.hdr_ip(x-ip,2)", NULL },
	{ "req.hdr_names", "host,x,m,m,x-ip,authorization,cookie,accept-language" },
	{ "res.hdrs", "set-cookie: sid=q; path=/\r\nserver: t\r\n\r\n" },
	{ "req.cook(a)", "3" },
	{ "cook(b)", "22" },
	{ "cookie(nope)", NULL },
	{ "req.cook_cnt(a)", "2" },
	{ "req.cook_val(b)", "22" },
	{ "req.cook_names", "a,b,a" },
	{ "req.cook_names(--)", "a--b--a" },
	{ "res.cook_names", "sid" },
	{ "scook(sid)", "q" },
	{ "scook(path)", NULL },
	{ "http_auth_user", "u" },
	{ "http_auth_pass", "pw" },
	{ "http_auth_type", "Basic" },
	{ "http_auth_bearer", NULL },
	{ "http_auth(l)", "1" },
	{ "http_auth_group(l)", "staff" },
	{ "http_first_req", "1" },
	{ "req.body", "xyz" },
	{ "req.body_len", "3" },
	{ "req_proto_http", "1" },
	{ "status", "404" },
	{ "res.hdr(server)", "t" },
	{ "res.ver", "1.1" },
	{ "capture.req.hdr(0)", "one" },
	{ "capture.req.hdr(1)", NULL },
	{ "capture.req.hdr(2)", NULL },
	{ "capture.req.hdr(-1)", NULL },
	{ "capture.req.method", "GET" },
	{ "capture.req.uri", "/a/12,34?x=1;z=3&y=2" },
	{ "capture.req.ver", "HTTP/1.1" },
	{ "unique-id", "id-1" },
	{ NULL, NULL },
};

static const struct expr_case connection[] = {
	{ "src", "192.0.2.7" },
	{ "src_port", "51544" },
	{ "src_xdp_conn_cur", "5" },
	{ "src_xdp_syn_rate", "6" },
	{ "src_xdp_dropped", "7" },
	{ "dst", "198.51.100.1" },
	{ "dst_port", "443" },
	{ "fc_src", "192.0.2.7" },
	{ "src_is_local", "0" },
	{ "dst_is_local", "1" },
	{ "bc_src", NULL },
	{ "fe_name", "web" },
	{ "be_name", "app" },
	{ "srv_name", "s2" },
	{ "srv_id", "4" },
	{ "fe_id", "2" },
	{ "so_id", "1" },
	{ "so_name", NULL },
	{ "nbsrv(app)", "2" },
	{ "nbsrv", "2" },
	{ "be_conn(app)", "43" },
	{ "be_conn(none)", NULL },
	{ "srv_is_up(b/s)", "1" },
	{ "srv_conn(b/s)", "43" },
	{ "fc_rtt", "12" },
	{ "fc_rtt(us)", "12000" },
	{ "fc_rttvar(us)", "12001" },
	{ "fc_reordering", "12006" },
	{ "bc_rtt(ms)", "7" },
	{ "fc_err_str", NULL },
	{ "bc_err_str", "timed out" },
	{ "src_conn_cur", "10000" },
	{ "src_get_gpc0(t)", "150000" },
	{ "src_inc_gpc1", "151100" },
	{ "sc0_http_req_rate", "60001" },
	{ "sc2_conn_cnt", "21" },
	{ "sc_conn_rate(1)", "20011" },
	{ "sc_get_gpc(3,1)", "150311" },
	{ "sc1_tracked", "1" },
	{ "table_cnt(t)", "240002" },
	{ "ssl_fc", "0" },
	{ "ssl_fc_sni", NULL },
	{ "ssl_c_used", "0" },
	{ "ssl_fc_is_resumed", "0" },
	{ "txn.sess_term_state", "----" },
	{ "bytes_out", "5120" },
	{ "txn.timer.total", "22" },
	{ "res.timer.hdr", "18" },
	{ "str()", "" },
	{ "bool(true)", "1" },
	{ "int(-1)", "-1" },
	{ "ipv6(::1)", "::1" },
	{ "meth(GET)", "GET" },
	{ "env(HG_TEST_ENV)", "from env" },
	{ "env(HG_TEST_NONE)", NULL },
	{ "date", "1772352930" },
	{ "date(-30)", "1772352900" },
	{ "date(0,ms)", "1772352930042" },
	{ "date_us", "42000" },
	{ "rand(1)", "0" },
	{ "uuid,length", "36" },
	{ "uuid(7),bytes(14,1)", "7" },
	{ "nbproc", "1" },
	{ "stopping", "0" },
	{ "uptime", "5" },
	{ "pid,bool", "1" },
	{ NULL, NULL },
};

static void with_tls(struct fixture *f)
{
	f->s.front.is_tls = f->s.back.is_tls = true;
}

static const struct expr_case tls[] = {
	{ "ssl_fc", "1" },
	{ "ssl_bc", "1" },
	{ "ssl_f_s_dn", "/CN=ours" },
	{ "ssl_f_s_dn(CN)", "ours" },
	{ "ssl_s_s_dn(CN)", "server" },
	{ "ssl_f_san", "DNS:a.example, DNS:b.example" },
	{ "ssl_c_san", NULL },
	{ "ssl_fc_sni", "tls.example" },
	{ "ssl_fc_has_sni", "1" },
	{ "ssl_fc_protocol", "TLSv1.3" },
	{ "ssl_c_s_dn", "/C=FR/O=a/b/CN=one/CN=two" },
	{ "ssl_c_s_dn(CN)", "one" },
	{ "ssl_c_s_dn(cn,2)", "two" },
	{ "ssl_c_s_dn(CN,-1)", "two" },
	{ "ssl_c_s_dn(CN,3)", NULL },
	{ "ssl_c_s_dn(O)", "a/b" },
	{ "ssl_c_i_dn(O)", NULL },
	{ NULL, NULL },
};

static void test_tables(void **state)
{
	check_exprs(http, prepare);
	check_exprs(connection, prepare);
	check_exprs(tls, with_tls);
}

static void test_errors(void **state)
{
	static const struct error_case cases[] = {
		{ "", 0, "name of a sample fetch" },
		{ "pth", 0, "did you mean 'path'?" },
		{ "path lower", 4, "unexpected ' lower'" },
		{ "path)", 4, "unexpected ')'" },
		{ "req.hdr(a,1,c)", 12, "at most 2" },
		{ "req.hdr(a,b)", 10, "not an integer" },
		{ "req.hdr(a", 9, "missing ')'" },
		{ "req.hdr('a", 8, "closing quote" },
		{ "bool(x)", 5, "neither true nor false" },
		{ "bin(123)", 4, "even number" },
		{ "bin(zz)", 4, "not hexadecimal" },
		{ "ipv4(::1)", 5, "not an IPv4" },
		{ "int(9223372036854775808)", 4, "not an integer" },
		{ "srv_conn", 8, "needs 1 argument" },
		{ "fc_rtt(s)", 7, "ms or us" },
		{ "rand(0)", 5, "between 1" },
		{ "uuid(1)", 5, "versions 4 and 7" },
		{ "var(x)", 4, "not a variable" },
		{ "var(txn.)", 4, "lacks" },
		{ "var(txn.a b)", 4, "letters, digits" },
		{ "http_auth(l)", 10, "no userlists" },
		{ "req.payload(-1,2)", 12, "negative" },
		{ "sc_conn_cnt(-1)", 12, "numbered from 0" },
		{ "sc_get_gpc(100,0)", 11, "0 to 99" },
		{ NULL, 0, NULL },
	};
	static const struct error_case places[] = {
		{ "status", 0, "no value in HTTP request rules" },
		{ "res.hdr(x)", 0, "no value in HTTP request rules" },
		{ NULL, 0, NULL },
	};
	static const struct error_case init[] = {
		{ "path", 0, "no value in the global section" },
		{ "src", 0, "no value in the global section" },
		{ NULL, 0, NULL },
	};

	check_errors(cases, 0);
	check_errors(places, PLACE_REQ);
	check_errors(init, PLACE_INIT);
}

/* Each row says what it is; names are unique; an unknown name never matches. */
static void test_docs(void **state)
{
	unsigned n_fetches = 0, n_convs = 0;
	const struct expr_doc *d, *e;

	for (unsigned i = 0; (d = expr_fetch_doc(i)); i++, n_fetches++) {
		assert_true(d->name && d->args && d->type && d->help && d->places);
		for (unsigned k = 0; k < i; k++) {
			e = expr_fetch_doc(k);
			assert_string_not_equal(d->name, e->name);
		}
	}
	for (unsigned i = 0; (d = expr_conv_doc(i)); i++, n_convs++) {
		assert_true(d->name && d->args && d->type && d->help);
		for (unsigned k = 0; k < i; k++) {
			e = expr_conv_doc(k);
			assert_string_not_equal(d->name, e->name);
		}
	}
	assert_true(n_fetches > 250 && n_convs > 100);
}

/* --- ClientHello --- */

static size_t put_hello(uint8_t *p, size_t record_max)
{
	/* clang-format off */
	static const uint8_t body[] = {
		3, 3, /* version, random */
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
		17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
		0, 0, 2, 0x13, 1, 1, 0, /* session, ciphers, compression */
		0, 85,
		0, 0, 0, 14, 0, 12, 0, 0, 9, 'h', '.', 'e', 'x', 'a', 'm', 'p', 'l', 'e',
		0, 16, 0, 14, 0, 12, 2, 'h', '2', 8, 'h', 't', 't', 'p', '/', '1', '.', '1',
		0, 43, 0, 5, 4, 0x1a, 0x1a, 3, 4, /* versions */
		0, 10, 0, 8, 0, 6, 0x1a, 0x1a, 0, 29, 0, 23, /* groups */
		0, 13, 0, 6, 0, 4, 4, 3, 8, 4, /* signature algorithms */
		0, 51, 0, 14, 0, 12, 0x1a, 0x1a, 0, 1, 0, 0, 29, 0, 3, 1, 2, 3, /* keys */
	};
	/* clang-format on */
	uint8_t msg[sizeof(body) + 4] = { 1, 0, 0, sizeof(body) };
	size_t n = 0;

	memcpy(msg + 4, body, sizeof(body));
	for (size_t at = 0; at < sizeof(msg); at += record_max) {
		size_t len = sizeof(msg) - at < record_max ? sizeof(msg) - at : record_max;

		p[n++] = 22;
		p[n++] = 3;
		p[n++] = 1;
		p[n++] = (uint8_t)(len >> 8);
		p[n++] = (uint8_t)len;
		memcpy(p + n, msg + at, len);
		n += len;
	}
	return n;
}

static int eval_text(struct fixture *f, const char *expr, struct str *ret)
{
	struct expr *e;
	struct err err;
	struct sample v;
	size_t at;
	int r;

	assert_int_equal(expr_compile(&f->env, str_from_cstr(expr), &e, &at, &err), 0);
	r = expr_eval(e, &f->s, &v);
	if (r == 0)
		assert_int_equal(sample_cast(&v, SAMPLE_STR, &f->run), 0);
	*ret = v.str;
	return r;
}

static void test_hello(void **state)
{
	static const struct {
		const char *expr, *want;
	} lists[] = {
		{ "req.ssl_cipherlist,hex", "1301" },
		{ "req.ssl_supported_groups,hex", "1A1A001D0017" },
		{ "req.ssl_sigalgs,hex", "04030804" },
		{ "req.ssl_keyshare_groups,hex", "1A1A001D" },
		{ "req.ssl_ec_ext", "1" },
	};

	for (size_t record = 1; record < 160; record += 23) {
		static uint8_t buf[2048];
		size_t n = put_hello(buf, record);
		struct fixture f;
		struct str v;

		fixture_init(&f);
		f.s.req = NULL;
		f.s.payload = str_make((char *)buf, n);
		assert_int_equal(eval_text(&f, "req.ssl_hello_type", &v), 0);
		assert_true(str_is_eq(v, STR("1")));
		assert_int_equal(eval_text(&f, "req.ssl_sni", &v), 0);
		assert_true(str_is_eq(v, STR("h.example")));
		assert_int_equal(eval_text(&f, "req.ssl_alpn", &v), 0);
		assert_true(str_is_eq(v, STR("h2")));
		assert_int_equal(eval_text(&f, "req.ssl_ver", &v), 0);
		assert_true(str_is_eq(v, STR("196612")));
		for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
			assert_int_equal(eval_text(&f, lists[i].expr, &v), 0);
			assert_true(str_is_eq(v, str_from_cstr(lists[i].want)));
		}
		/* Every cut waits, and at the end has no value. */
		for (size_t cut = 0; cut < n; cut++) {
			char *copy = arena_alloc(&f.run, cut + 1);

			memcpy(copy, buf, cut);
			f.s.payload = str_make(copy, cut);
			f.s.is_payload_final = false;
			assert_int_equal(eval_text(&f, "req.ssl_sni", &v), -EAGAIN);
			f.s.is_payload_final = true;
			assert_int_equal(eval_text(&f, "req.ssl_sni", &v), -ENOENT);
		}
		fixture_free(&f);
	}
}

static void test_rdp(void **state)
{
	static const char head[] = "\x03\0\0\x2a\x25\xe0\0\0\0\0\0";
	static const struct {
		const char *line, *expr, *want; /* want NULL: no value */
	} cases[] = {
		{ "Cookie: mstshash=user\r\n", "req.rdp_cookie", "user" },
		{ "Cookie: mstshash=user\r\n", "rdp_cookie(MSTSHASH)", "user" },
		{ "cookie:msts=1.2.3\r\n", "req.rdp_cookie(msts)", "1.2.3" },
		{ "Cookie: msts=\r\n", "req.rdp_cookie(msts)", "" },
		{ "Cookie: mstshash=user\r\n", "req.rdp_cookie(msts)", NULL },
		{ "Cookie: nothing\r\n", "req.rdp_cookie", NULL },
		{ "Cookies: a=b\r\n", "req.rdp_cookie", NULL },
		{ "Cookie: a=b\rx", "req.rdp_cookie", NULL },
		{ "Cookie: a=b\r\n", "req.rdp_cookie_cnt", "1" },
		{ "Cookie: a=b\r\n", "rdp_cookie_cnt(c)", "0" },
	};
	struct fixture f;
	struct str v;

	fixture_init(&f);
	f.s.req = NULL;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t n = sizeof(head) - 1 + strlen(cases[i].line);
		char *p = arena_alloc(&f.run, n);
		int r;

		memcpy(p, head, sizeof(head) - 1);
		memcpy(p + sizeof(head) - 1, cases[i].line, strlen(cases[i].line));
		f.s.payload = str_make(p, n);
		f.s.is_payload_final = false;
		r = eval_text(&f, cases[i].expr, &v);
		if (r != (cases[i].want ? 0 : -ENOENT) ||
		    (cases[i].want && !str_is_eq(v, str_from_cstr(cases[i].want))))
			fail_msg("%s of %s: %d", cases[i].expr, cases[i].line, r);
		/* Cut anywhere it waits, as long as it looks like one. */
		for (size_t cut = 0; cut + 2 < n && i < 3; cut++) {
			char *copy = mem_alloc(cut + 1);

			memcpy(copy, p, cut);
			f.s.payload = str_make(copy, cut);
			f.s.is_payload_final = false;
			assert_int_equal(eval_text(&f, "req.rdp_cookie", &v), -EAGAIN);
			f.s.is_payload_final = true;
			assert_int_equal(eval_text(&f, "req.rdp_cookie", &v), -ENOENT);
			mem_free(copy);
		}
	}
	/* Something else altogether is told at its first byte. */
	f.s.is_payload_final = false;
	f.s.payload = STR("GET");
	assert_int_equal(eval_text(&f, "req.rdp_cookie", &v), -ENOENT);
	fixture_free(&f);
}

/* Any broken byte: no crash, no read outside (the sanitizers watch). */
static void test_hostile_hello(void **state)
{
	uint8_t buf[512];
	size_t n = put_hello(buf, 500);
	struct fixture f;
	struct str v;

	fixture_init(&f);
	f.s.req = NULL;
	f.s.is_payload_final = true;
	for (size_t i = 0; i < n; i++) {
		for (unsigned value = 0; value < 256; value += 15) {
			char *copy = mem_alloc(n);

			memcpy(copy, buf, n);
			copy[i] = (char)value;
			f.s.payload = str_make(copy, n);
			(void)!eval_text(&f, "req.ssl_sni", &v);
			(void)!eval_text(&f, "req.ssl_alpn", &v);
			(void)!eval_text(&f, "req.ssl_ver", &v);
			(void)!eval_text(&f, "req.payload_lv(3,2)", &v);
			mem_free(copy);
			arena_reset(&f.run);
		}
	}
	fixture_free(&f);
}

static void test_empty_subject(void **state)
{
	const struct expr_doc *d;

	/* Every fetch on a subject that has nothing at all. */
	for (unsigned i = 0; (d = expr_fetch_doc(i)); i++) {
		static const char *const args[] = { "",	     "(a)",	"(1)",	 "(b/s)",
						    "(1,1)", "(txn.x)", "(::1)", "(1.2.3.4)",
						    "(aa)",  "(true)",	"(GET)", "(1,2,3)" };

		for (unsigned k = 0; k < ARRAY_SIZE(args); k++) {
			struct fixture f;
			struct subject empty = { 0 };
			struct expr *e;
			struct err err;
			struct sample v;
			char text[100];
			size_t at;

			fixture_init(&f);
			empty.arena = &f.run;
			snprintf(text, sizeof(text), "%s%s", d->name, args[k]);
			if (expr_compile(&f.env, str_from_cstr(text), &e, &at, &err) == 0) {
				(void)!expr_eval(e, &empty, &v);
				(void)!expr_eval(e, &f.s, &v);
			}
			fixture_free(&f);
		}
	}
}

static void test_userlist(void **state)
{
	assert_ptr_equal(expr_userlist_check(&list, STR("u"), STR("pw")), &users[0]);
	assert_null(expr_userlist_check(&list, STR("u"), STR("pww")));
	assert_null(expr_userlist_check(&list, STR("u"), STR("")));
	assert_null(expr_userlist_check(&list, STR("none"), STR("")));
	assert_null(expr_userlist_check(&list, STR("nobody"), STR("")));
	assert_null(expr_userlist_check(&list, STR("c"), STR("wrong")));
	assert_ptr_equal(expr_userlist_check(&list, STR("c"), STR("secret")), &users[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables),	      cmocka_unit_test(test_errors),
		cmocka_unit_test(test_docs),	      cmocka_unit_test(test_hello),
		cmocka_unit_test(test_rdp),	      cmocka_unit_test(test_hostile_hello),
		cmocka_unit_test(test_empty_subject), cmocka_unit_test(test_userlist),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
