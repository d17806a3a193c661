/* SPDX-License-Identifier: BSD-2-Clause */
/* Log lines and templates, compared with whole expected lines. links: expr http base */
#include "unit/expr_subject.h"

static const struct str req_caps[2] = { { "h;c#o\"m", 7 }, { "a{b|c\"d#\xc3\xa9]\\e", 13 } };
static const struct str one_cap[1] = { { "shop.example", 12 } };
static const struct str empty_cap[1] = { { NULL, 0 } };

static void check_line(struct fixture *f, unsigned place, const char *format, const char *want)
{
	struct logfmt *fmt;
	struct err err = { "" };
	char line[4096];
	size_t at, n;

	f->env.place = place;
	if (logfmt_compile(&f->env, str_from_cstr(format), &fmt, &at, &err))
		fail_msg("%s: %s (at %zu)", format, err.text, at);
	n = logfmt_eval(fmt, &f->s, line, sizeof(line));
	if (!str_is_eq(str_make(line, n), str_from_cstr(want)))
		fail_msg("%s\n got '%.*s'\nwant '%s'", format, (int)n, line, want);
	/* The same into the arena, and cut at every length. */
	assert_true(str_is_eq(logfmt_eval_str(fmt, &f->s), str_from_cstr(want)));
	for (size_t size = 0; size < n; size++) {
		memset(line, 'Z', sizeof(line));
		assert_true(logfmt_eval(fmt, &f->s, line, size) <= size);
		assert_int_equal(line[size], 'Z');
	}
}

static void setup(struct fixture *f)
{
	setenv("TZ", "UTC", 1);
	fixture_init(f);
	fixture_log(f);
}

static void test_httplog(void **state)
{
	struct fixture f;

	setup(&f);
	f.log.req_captures = one_cap;
	f.log.n_req_captures = 1;
	f.log.rsp_captures = empty_cap;
	f.log.n_rsp_captures = 1;
	check_line(&f, PLACE_LOG, logfmt_httplog,
		   "192.0.2.7:51544 [01/Mar/2026:08:15:30.042] web~ app/s2 3/0/1/18/22 200 5120 - "
		   "- ---- "
		   "12/9/4/2/0 0/0 {shop.example} {} \"GET /cart HTTP/1.1\"");
	f.log.n_req_captures = f.log.n_rsp_captures = 0;
	f.log.start_line = STR_NULL;
	f.log.server = STR("<NOSRV>");
	f.log.t_request = f.log.t_queue = f.log.t_connect = f.log.t_response = -1;
	f.log.is_tls = false;
	memcpy(f.log.term, "PR--", 4);
	f.log.status = 400;
	check_line(&f, PLACE_LOG, logfmt_httplog,
		   "192.0.2.7:51544 [01/Mar/2026:08:15:30.042] web app/<NOSRV> -1/-1/-1/-1/22 400 "
		   "5120 - "
		   "- PR-- 12/9/4/2/0 0/0 \"<BADREQ>\"");
	fixture_free(&f);
}

static void test_tcplog(void **state)
{
	struct fixture f;

	setup(&f);
	f.log.accept_wall_ns = 1772352931900000000ull;
	addr_set_port(&f.src, 51545);
	f.log.backend = STR("pool");
	f.log.frontend = STR("db");
	f.log.server = STR("pg1");
	f.log.is_tls = false;
	f.log.t_connect = 2000000;
	f.log.t_total = 8450000000;
	f.log.bytes_to_client = 9312;
	f.log.actconn = f.log.feconn = f.log.beconn = 3;
	f.log.srv_conn = 1;
	check_line(&f, PLACE_LOG, logfmt_tcplog,
		   "192.0.2.7:51545 [01/Mar/2026:08:15:31.900] db pool/pg1 0/2/8450 9312 -- "
		   "3/3/3/1/0 0/0");
	f.log.is_asap = true;
	f.log.is_redispatched = true;
	f.log.retries = 2;
	check_line(&f, PLACE_LOG, logfmt_tcplog,
		   "192.0.2.7:51545 [01/Mar/2026:08:15:31.900] db pool/pg1 0/2/+8450 +9312 -- "
		   "3/3/3/1/+2 0/0");
	fixture_free(&f);
}

static void test_clf_and_https(void **state)
{
	struct fixture f;

	setup(&f);
	f.log.req_captures = req_caps;
	f.log.n_req_captures = 2;
	f.log.rsp_captures = empty_cap;
	f.log.n_rsp_captures = 1;
	f.log.accept_wall_ns = 1772352930099000000ull;
	check_line(&f, PLACE_LOG, logfmt_clf,
		   "192.0.2.7 - - [01/Mar/2026:08:15:30 +0000] \"GET /cart HTTP/1.1\" 200 5120 "
		   "\"\" \"\" "
		   "51544 099 \"web~\" \"app\" \"s2\" 3 0 1 18 22 ---- 12 9 4 2 0 0 0 \"\" \"\" "
		   "\"h;c#23o#22m\" \"a#7Bb#7Cc#22d#23#C3#A9]\\e\" \"\"");
	f.log.n_req_captures = f.log.n_rsp_captures = 0;
	check_line(&f, PLACE_LOG,
		   "%[fc_err]/%[ssl_fc_err,hex]/%[ssl_c_err]/%[ssl_c_ca_err]/"
		   "%[ssl_fc_is_resumed] %[ssl_fc_sni]/%sslv/%sslc",
		   "0/-/-/-/0 -/-/-");
	f.s.front.is_tls = true;
	check_line(&f, PLACE_LOG,
		   "%[fc_err]/%[ssl_fc_err,hex]/%[ssl_c_err]/%[ssl_c_ca_err]/"
		   "%[ssl_fc_is_resumed] %[ssl_fc_sni]/%sslv/%sslc",
		   "0/0000000000000000/0/0/0 tls.example/TLSv1.3/TLS_AES_128_GCM_SHA256");
	fixture_free(&f);
}

static void test_tags(void **state)
{
	struct fixture f;

	setup(&f);
	f.log.req_captures = req_caps;
	f.log.n_req_captures = 1;
	f.log.start_line = STR("GET /a/12,34?x=1&y=2%22\x01\" HTTP/1.1");
	check_line(&f, PLACE_LOG,
		   "%{+Q}o %ci %cp %bi %bp %fi %fp %si %sp %t %tr %T %Tl %Ts %ms %ft %f %b %s %ST "
		   "%B %U "
		   "%CC %CS %ts %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq",
		   "\"192.0.2.7\" 51544 \"\" \"\" \"198.51.100.1\" 443 \"\" \"\" "
		   "01/Mar/2026:08:15:30.042 01/Mar/2026:08:15:30.042 01/Mar/2026:08:15:30 +0000 "
		   "01/Mar/2026:08:15:30 +0000 1772352930 042 \"web~\" \"web\" \"app\" \"s2\" 200 "
		   "5120 321 "
		   "\"\" \"\" -- ---- 12/9/4/2/0 0/0");
	check_line(&f, PLACE_LOG, "%{+Q}o%hr %hs %hrl %hsl %r %HM %HP %HPO %HQ %HU %HV",
		   "\"{h;c#23o#22m}\" \"h;c#23o#22m\" \"GET /a/12,34?x=1&y=2%22#01#22 HTTP/1.1\" "
		   "\"GET\" \"/a/12,34\" \"/a/12,34\" \"?x=1&y=2%22#01#22\" "
		   "\"/a/12,34?x=1&y=2%22#01#22\" \"HTTP/1.1\"");
	check_line(&f, PLACE_LOG, "%TR/%Tw/%Tc/%Tr/%Ta/%Tt/%Tq/%Th/%Ti/%Td/%Tu %rt %lc %ID|%CC",
		   "3/0/1/18/22/22/3/0/0/0/22 26 26 -|-");
	check_line(&f, PLACE_LOG, "%{+X}ci %{+X}cp %{+X}Ts %{+X}rt %{+X}ms %{+X}Tt %{+X}B",
		   "C0000207 C958 69A3F5A2 001A 2A 22 5120");
	check_line(&f, PLACE_LOG, "a   b %hs  c%%", "a b c%");
	f.src.sa.sa_family = AF_UNIX;
	check_line(&f, PLACE_LOG, "%ci:%cp", "unix:1");
	fixture_free(&f);
}

static void test_expressions(void **state)
{
	struct fixture f;

	setup(&f);
	check_line(&f, PLACE_LOG,
		   "[%[var(txn.nope)]] %{+Q}[var(txn.nope)] %{+Q}[path] %{+Q}[int(-5)]",
		   "[-] \"\" \"/a/12,34\" \"-5\"");
	check_line(&f, PLACE_LOG, "%[bin(610a0062c3a9)] %[src] %{+Q}[src] %[always_true] %[str()]",
		   "a#0A#00b\xc3\xa9 192.0.2.7 \"192.0.2.7\" 1 -");
	check_line(&f, PLACE_LOG, "%{+E}[str('a\"b\\c]')] %{+E,+Q}[str('a]')]",
		   "a\\\"b\\\\c\\] \"a\\]\"");
	/* Not a log: nothing for missing values, blanks stay, %XX for control bytes. */
	check_line(&f, PLACE_REQ, "x  %[var(txn.nope)]y %[req.hdr(x),url_dec] %ID|",
		   "x  y a%0AbA |");
	check_line(&f, PLACE_REQ,
		   "https://%[req.hdr(host),host_only]%[path,regsub(\"^/a\",/b)]?%[query]",
		   "https://h.com/b/12,34?x=1;z=3&y=2");
	f.s.log = NULL;
	check_line(&f, PLACE_LOG, "%ST %tsc %hr %f", "- - - web");
	fixture_free(&f);
}

static void test_errors(void **state)
{
	static const struct error_case cases[] = {
		{ "a %zz", 3, "unknown tag '%zz'" },
		{ "%Tx", 1, "did you mean" },
		{ "%", 0, "expected a tag" },
		{ "50% off", 2, "expected a tag" },
		{ "%{+Qci", 1, "missing '}'" },
		{ "%{+Z}ci", 1, "unknown flag '+Z'" },
		{ "x%[src", 6, "expected ']'" },
		{ "x%[srcc]", 3, "did you mean 'src'?" },
		{ "x%[src,lowr]", 7, "did you mean 'lower'?" },
		{ "x%[]", 3, "name of a sample fetch" },
		{ "%[str(a]", 8, "missing ')'" },
		{ "%[str(\"a)]", 6, "closing quote" },
		{ NULL, 0, NULL },
	};

	for (const struct error_case *c = cases; c->expr; c++) {
		struct fixture f;
		struct logfmt *fmt;
		struct err err = { "" };
		size_t at;

		fixture_init(&f);
		f.env.place = PLACE_LOG;
		assert_int_equal(logfmt_compile(&f.env, str_from_cstr(c->expr), &fmt, &at, &err),
				 -EINVAL);
		if (at != c->at || !strstr(err.text, c->part))
			fail_msg("%s: at %zu '%s', wanted %zu '%s'", c->expr, at, err.text, c->at,
				 c->part);
		fixture_free(&f);
	}
}

static void test_out_of_memory(void **state)
{
	bool done = false;

	for (uint64_t n = 1; !done && n < 300; n++) {
		struct fixture f;
		struct logfmt *fmt;
		struct err err;
		char line[1000];
		size_t at;
		int r;

		setup(&f);
		arena_free(&f.run);
		arena_init(&f.run, 16);
		mem_fail_at(n);
		r = logfmt_compile(&f.env,
				   STR("%ci %[path,lower] %[src,lower] %[req.hdr(x),url_dec]"),
				   &fmt, &at, &err);
		if (r == 0) {
			logfmt_eval(fmt, &f.s, line, sizeof(line));
			(void)logfmt_eval_str(fmt, &f.s);
		}
		done = mem_alloc_count() < n;
		mem_fail_at(0);
		assert_true(r == 0 || r == -ENOMEM);
		fixture_free(&f);
	}
	assert_true(done);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_httplog),	      cmocka_unit_test(test_tcplog),
		cmocka_unit_test(test_clf_and_https), cmocka_unit_test(test_tags),
		cmocka_unit_test(test_expressions),   cmocka_unit_test(test_errors),
		cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
