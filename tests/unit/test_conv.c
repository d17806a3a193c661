/* SPDX-License-Identifier: BSD-2-Clause */
/* Converters: results as HAProxy gives them, limits, errors. links: expr http base */
#include "unit/expr_subject.h"

static void set_q(struct fixture *f)
{
	enum var_scope scope;
	uint32_t id;
	struct sample v = { .type = SAMPLE_STR, .str = STR("abc") };

	setenv("TZ", "UTC", 1);
	assert_int_equal(vars_intern(STR("txn.q"), &scope, &id, NULL), 0);
	assert_int_equal(subject_var_set(&f->s, scope, id, &v), 0);
	v = (struct sample){ .type = SAMPLE_SINT, .sint = 7 };
	assert_int_equal(vars_intern(STR("txn.n"), &scope, &id, NULL), 0);
	assert_int_equal(subject_var_set(&f->s, scope, id, &v), 0);
}

static const struct expr_case text[] = {
	{ "path,regsub('(\\d+),?',\"[\\0]\",g)", "/a/[12,][34]" },
	{ "path,regsub('\\d','\\\\x\\n')", "/a/\\xn2,34" },
	{ "path,regsub(\\d,X)", "/a/X2,34" },
	{ "str(aaa),regsub(x*,-,g)", "-a-a-a-" },
	{ "str(AbA),regsub(a,.,gi)", ".b." },
	{ "str(\"a\\\\b\\\"c\\'d\\,e\\nf\")", "a\\b\"c'd\\,e\nf" },
	{ "str('a\\\\b\"c\\,')", "a\\\\b\"c\\," },
	{ "str(a\\\\b\\\"c\\'d e)", "a\\b\"c'd e" },
	{ "str(a.b.c.d),field(2,.,2)", "b.c" },
	{ "str(a.b.c.d),field(-1,.)", "d" },
	{ "str(a.b.c.d),field(-2,.,2)", "b.c" },
	{ "str(a.b..d),field(2,.,0)", "b..d" },
	{ "str(a.b..d),field(9,.)", "" },
	{ "str(a.b..d),field(-9,.)", "" },
	{ "str(a.b..d),word(-1,.,2)", "b..d" },
	{ "str(a.b..d),word(3,.)", "d" },
	{ "str(a.b..d),word(4,.)", NULL },
	{ "str(a.b..d),word(2,.,0)", "b..d" },
	{ "str(abc),bytes(1)", "bc" },
	{ "str(abc),bytes(1,1)", "b" },
	{ "str(abc),bytes(9)", NULL },
	{ "str(abc),bytes(-1)", NULL },
	{ "str(a),concat(x,,y)", "axy" },
	{ "str(a),concat(x)", "ax" },
	{ "str(a),concat(<,txn.q,>)", "a<abc>" },
	{ "str(a),concat(<,txn.n,>)", "a<7>" },
	{ "str(a),concat(<,txn.nope,>)", "a<>" },
	{ "str(a),add_item(-,,b)", "a-b" },
	{ "str(),add_item(-,,b)", "b" },
	{ "str(a),add_item(-,txn.q)", "a-abc" },
	{ "int(1),iif(yes,no)", "yes" },
	{ "int(0),iif(yes,no)", "no" },
	{ "str(),iif(yes,no)", NULL },
	{ "str(abc),strcmp(txn.q)", "0" },
	{ "str(abb),strcmp(txn.q)", "-1" },
	{ "str(abc),strcmp(txn.nope)", NULL },
	{ "str(abc),secure_memcmp(txn.q)", "1" },
	{ "str(abd),secure_memcmp(txn.q)", "0" },
	{ "str(h.com:80),host_only", "h.com" },
	{ "str(h.com:80),port_only", "80" },
	{ "str([::1]:80),host_only", "[::1]" },
	{ "str([::1]:80),port_only", "80" },
	{ "str([::1]),port_only", "0" },
	{ "str(::1),host_only", "::1" },
	{ "str(h),port_only", "0" },
	{ "str(AbZ),lower", "abz" },
	{ "str(AbZ),upper", "ABZ" },
	{ "str(xxab),ltrim(x)", "ab" },
	{ "str(abxx),rtrim(x)", "ab" },
	{ "str(xx),rtrim(x)", "" },
	{ "str(ab),length", "2" },
	{ "str(abc),reverse", "cba" },
	{ "str(\"a\\rb\"),cut_crlf", "a" },
	{ "str(a),set-var(txn.w),concat(:,txn.w)", "a:a" },
	{ "str(a),set-var(txn.w),unset-var(txn.w),concat(:,txn.w)", "a:" },
	{ "var(txn.none,dflt)", "dflt" },
	{ "var(txn.none)", NULL },
	{ "var(txn.n),add(1)", "8" },
	{ NULL, NULL },
};

static const struct expr_case numbers[] = {
	{ "int(7),add(5),hex", "000000000000000C" },
	{ "str(-5abc),add(1)", "-4" },
	{ "str(abc),sub(1)", "-1" },
	{ "int(5),div(0)", "9223372036854775807" },
	{ "int(5),mod(0)", "0" },
	{ "int(-9223372036854775808),div(-1)", "9223372036854775807" },
	{ "int(-9223372036854775808),mod(-1)", "0" },
	{ "int(-9223372036854775808),neg", "9223372036854775807" },
	{ "int(-7),div(2)", "-3" },
	{ "int(-7),mod(2)", "-1" },
	{ "str(9223372036854775807),add(1)", "9223372036854775807" },
	{ "int(-9223372036854775808),sub(1)", "-9223372036854775808" },
	{ "int(-4611686018427387905),mul(4)", "-9223372036854775808" },
	{ "str(99999999999999999999),add(0)", "9223372036854775807" },
	{ "str(5),mul(3)", "15" },
	{ "int(1),add(txn.n)", "8" },
	{ "int(1),add(txn.nope)", NULL },
	{ "int(6),and(3)", "2" },
	{ "int(6),or(1)", "7" },
	{ "int(6),xor(3)", "5" },
	{ "int(6),not", "0" },
	{ "str(a),not", "1" },
	{ "int(0),bool", "0" },
	{ "int(2),neg", "-2" },
	{ "int(6),cpl", "-7" },
	{ "str(12),even", "1" },
	{ "str(12),odd", "0" },
	{ NULL, NULL },
};

static const struct expr_case codes[] = {
	{ "str(ab),hex", "6162" },
	{ "ipv4(1.2.3.4),hex", "01020304" },
	{ "bin(6162)", "ab" },
	{ "str(1F),hex2i", "31" },
	{ "str(0x1F),hex2i", NULL },
	{ "str(12345678901234567),hex2i", NULL },
	{ "str(ab),be2dec(-,1)", "97-98" },
	{ "bin(0102),le2dec(,2)", "513" },
	{ "str(abcd),be2hex(:,2)", "6162:6364" },
	{ "str(abc),be2hex(:,2,1)", "6162" },
	{ "str(a?>),base64", "YT8+" },
	{ "str(a),ub64enc", "YQ" },
	{ "str(YWI=),b64dec", "ab" },
	{ "str(YWI),b64dec", NULL },
	{ "str(Y=I=),b64dec", NULL },
	{ "str(YWI),ub64dec", "ab" },
	{ "str(a%20b+c),url_dec", "a b+c" },
	{ "str(a%20b+c?d+e),url_dec", "a b+c?d e" },
	{ "str(a%20b+c),url_dec(1)", "a b c" },
	{ "str(a%2),url_dec", NULL },
	{ "str(a%zz),url_dec", NULL },
	{ "str(é<> &),url_enc", "%C3%A9%3C%3E%20%26" },
	{ "str('a\"\\/é'),json", "a\\\"\\\\\\/\\u00C3\\u00A9" },
	{ "str(é😀),json(utf8)", "\\u00E9\\uD83D\\uDE00" },
	{ "bin(61ff62),json(utf8)", NULL },
	{ "bin(61ff62),json(utf8s)", "ab" },
	{ NULL, NULL },
};

/* Values from HAProxy 2.6 for the same inputs. */
static const struct expr_case hashes[] = {
	{ "base", "h.com:80/a/12,34" },
	{ "base32", "1669480990" },
	{ "base,crc32", "3939215834" },
	{ "base,xxh64", "3567276267460773179" },
	{ "base,djb2", "581251921" },
	{ "base,sdbm", "2374428934" },
	{ "base,wt6", "3801979674" },
	{ "base,xxh32", "1169865090" },
	{ "base,crc32c", "153592096" },
	{ "base,crc32(1)", "986792527" },
	{ "base,djb2(1)", "1299578862" },
	{ "base,sdbm(1)", "1669480990" },
	{ "base,wt6(1)", "3904363926" },
	{ "url32", "1150827334" },
	{ "base32+src,hex", "6382421EC0000207" },
	{ "str(zz),sha1,hex", "D7DACAE2C968388960BF8970080A980ED5C5DCB7" },
	{ "str(zz),sha2,hex", "4A60BF7D4BC1E485744CF7E8D0860524752FCA1CE42331BE7C439FD23043F151" },
	{ "str(zz),sha2(512),hex,length", "128" },
	{ "str(zz),digest(md5),hex", "25ED1BCB423B0B7200F485FC5FF71C8E" },
	{ "str(zz),hmac(sha256,a2V5),hex",
	  "50065500730B1B0E0DAF8476C0F18F4E9EAB42304D6D9D1A924D93AE421AF6A6" },
	/* xxHash's own reference values: empty, and long enough for the four lanes */
	{ "str(),xxh64", "-1205034819632174695" },
	{ "str(abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz),xxh32,bool", "1" },
	{ NULL, NULL },
};

static const struct expr_case others[] = {
	{ "int(0),http_date", "Thu, 01 Jan 1970 00:00:00 GMT" },
	{ "int(5000),http_date(0,ms)", "Thu, 01 Jan 1970 00:00:05 GMT" },
	{ "int(-5),http_date", NULL },
	{ "int(9223372036854775807),http_date", NULL },
	{ "int(9223372036854775807),http_date(1)", NULL },
	{ "int(1700000000),ltime(%Y-%m-%d)", "2023-11-14" },
	{ "int(1700000000),utime(%H:%M)", "22:13" },
	{ "int(1700000000123),ms_utime(%S.%N)", "20.123" },
	{ "int(9223372036854775807),utime(%Y)", NULL },
	{ "src,ipmask(24)", "192.0.2.0" },
	{ "src,ipmask(255.255.0.0)", "192.0.0.0" },
	{ "str(1.2.3.4),ipmask(8)", "1.0.0.0" },
	{ "str(bad),ipmask(8)", NULL },
	{ "ipv6(2001:db8::1),ipmask(24,32)", "2001:db8::" },
	{ "ipv6(::1),ipmask(24)", NULL },
	{ "str(a=1&b=2),param(b)", "2" },
	{ "str(a=1;b=2),param(b,;)", "2" },
	{ "str(a=1),param(b)", NULL },
	{ "req.hdr(none),language(fr;en)", NULL },
	{ "req.fhdr(accept-language),language(en;fr)", "fr" },
	{ "req.fhdr(accept-language),language(en;de)", "en" },
	{ "req.fhdr(accept-language),language(pl,pl)", "pl" },
	{ "str(app),nbsrv", "2" },
	{ "str(app/s),srv_is_up", "1" },
	{ "str(none),nbsrv", NULL },
	{ "str(k),in_table(t)", "1" },
	{ "str(unknown),in_table(t)", "0" },
	{ "str(unknown),table_gpc0(t)", "0" },
	{ "str(k),table_gpc1(t)", "150100" },
	{ NULL, NULL },
};

static void test_tables(void **state)
{
	check_exprs(text, set_q);
	check_exprs(numbers, set_q);
	check_exprs(codes, NULL);
	check_exprs(hashes, NULL);
	check_exprs(others, set_q);
}

static void test_errors(void **state)
{
	static const struct error_case cases[] = {
		{ "str(a),lowr", 7, "did you mean 'lower'?" },
		{ "str(a),", 7, "name of a converter" },
		{ "str(a),field(0,.)", 13, "numbered from 1" },
		{ "str(a),field(x,.)", 13, "not an integer" },
		{ "str(a),field(1)", 14, "needs 2 arguments" },
		{ "str(a),ipmask(33)", 14, "netmask" },
		{ "str(a),regsub(\"(\",x)", 14, "regular expression" },
		{ "str(a),regsub(a,b,q)", 18, "not a flag" },
		{ "str(a),sha2(100)", 12, "SHA-2" },
		{ "str(a),digest(md9)", 14, "md5" },
		{ "str(a),set-var(proc.x)", 15, "global section" },
		{ "str(a),set-var(nope.x)", 15, "not a variable" },
		{ "str(a),add(x)", 11, "neither an integer nor a variable" },
		{ "str(a),lower(1)", 13, "at most 0 arguments" },
		{ "str(a),json(x)", 12, "utf8" },
		{ "str(a),ipmask(8),lower,add", 26, "needs 1 argument" },
		{ "bin(00),sha1,add(1)", 13, "cannot become" },
		{ NULL, 0, NULL },
	};

	check_errors(cases, 0);
}

static int map_file(struct expr_env *env, struct str path, struct str *ret, struct err *err)
{
	if (str_is_eq(path, STR("bad.map"))) {
		*ret = STR("1 a\nx b\n");
		return 0;
	}
	if (!str_is_eq(path, STR("m.map")))
		return err_set(err, -ENOENT, "no such file");
	*ret = STR(
		"# comment\n/a first value \n\n/a/12 second\n.com C\n10.0.0.0/8 net\n10.1.0.0/16 "
		"sub\n1 one\n2:5 few\n34 num\n");
	return 0;
}

static void use_maps(struct fixture *f)
{
	f->env.read_file = map_file;
}

static void test_map(void **state)
{
	struct expr_case cases[] = {
		{ "str(/a),map(m.map)", "first value" },
		{ "str(/x),map(m.map)", NULL },
		{ "str(/x),map(m.map,d)", "d" },
		{ "path,map_beg(m.map)", "second" },
		{ "str(www.x.com),map_end(m.map)", "C" },
		{ "str(x/a/12y),map_sub(m.map)", "first value" },
		{ "str(/b/34),map_dir(m.map)", "num" },
		{ "str(x),map(opt@none.map,e)", "e" },
		{ "str(x),map(virt@v,e)", "e" },
		{ NULL, NULL },
	};
	struct fixture f;
	struct expr *e;
	struct err err;
	size_t at;

	for (unsigned i = 0; cases[i].expr; i++) {
		struct expr_case one[2] = { cases[i], { NULL, NULL } };

		check_exprs(one, use_maps);
	}
	fixture_init(&f);
	f.env.read_file = map_file;
	assert_int_equal(expr_compile(&f.env, STR("int(1),map_int(bad.map)"), &e, &at, &err),
			 -EINVAL);
	assert_non_null(strstr(err.text, "bad.map:2"));
	assert_int_equal(at, 15);
	assert_int_equal(expr_compile(&f.env, STR("str(1),map_str_int(m.map)"), &e, &at, &err),
			 -EINVAL);
	assert_non_null(strstr(err.text, "m.map:2"));
	assert_int_equal(expr_compile(&f.env, STR("str(1),map(gone.map)"), &e, &at, &err), -EINVAL);
	assert_non_null(strstr(err.text, "no such file"));
	fixture_free(&f);
}

/* Doubling replacements must not grow without bound, and catastrophic patterns must end. */
static void test_bounds(void **state)
{
	static char longtext[20000];
	struct fixture f;
	struct expr *e;
	struct err err;
	struct sample v;
	size_t at;

	fixture_init(&f);
	memset(longtext, 'a', sizeof(longtext));
	f.req.path = str_make(longtext, sizeof(longtext));
	longtext[0] = '/';
	assert_int_equal(expr_compile(&f.env, STR("path,regsub(a,'\\0\\0\\0\\0\\0\\0\\0\\0',g)"),
				      &e, &at, &err),
			 0);
	assert_int_equal(expr_eval(e, &f.s, &v), -ENOENT);
	assert_int_equal(expr_compile(&f.env, STR("path,regsub('(a+)+$b',x)"), &e, &at, &err), 0);
	assert_int_equal(expr_eval(e, &f.s, &v), 0);
	assert_int_equal(v.str.len, sizeof(longtext));
	fixture_free(&f);
}

static void test_out_of_memory(void **state)
{
	const struct str text_of =
		STR("path,regsub('(\\d+),?','[\\0]',g),concat(a,txn.q,b),json,hex");
	bool done = false;

	for (uint64_t n = 1; !done && n < 200; n++) {
		struct fixture f;
		struct expr *e;
		struct err err;
		struct sample v;
		size_t at;
		int r;

		fixture_init(&f);
		/* One chunk per allocation, so that each arena allocation can fail. */
		arena_free(&f.run);
		arena_init(&f.run, 16);
		mem_fail_at(n);
		r = expr_compile(&f.env, text_of, &e, &at, &err);
		if (r == 0)
			r = expr_eval(e, &f.s, &v);
		done = mem_alloc_count() < n;
		mem_fail_at(0);
		assert_true(r == 0 || r == -ENOMEM || r == -ENOENT);
		fixture_free(&f);
	}
	assert_true(done);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables),	      cmocka_unit_test(test_errors),
		cmocka_unit_test(test_map),	      cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
