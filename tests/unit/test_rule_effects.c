/* SPDX-License-Identifier: BSD-2-Clause */
/* links: proxy lb net conf expr http ev base */
/* What single rules do to an exchange: rewrites that fail, strict-mode; early hints. */
#include "unit/proxy_env.h"

static struct env env;
static struct origin origin;
static uint16_t port;

static void serve_hello(struct origin *o, int fd)
{
	char buf[8192];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf) - 1, 0)) > 0) {
		buf[n] = '\0';
		origin_note(o, buf);
		send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\n\r\nhello");
	}
}

static void start(const char *global, const char *lines)
{
	static char text[32768];

	origin_start(&origin, serve_hello);
	port = free_port();
	snprintf(text, sizeof(text),
		 "%sdefaults\n mode http\n timeout client 3s\n timeout server 3s\n timeout connect "
		 "1s\nlisten px\n bind 127.0.0.1:%u\n server s 127.0.0.1:%u\n%s",
		 global, port, origin.port, lines);
	env_start(&env, 1, text);
}

static void stop(void)
{
	env_stop(&env);
	origin_stop(&origin);
}

static char *get(const char *path)
{
	char text[256];

	snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		 path);
	return ask_once(port, text);
}

static struct hg_l7_counters sum(void)
{
	return env_sum(&env, lb_find_backend(&env.registry, STR("px")), true);
}

/* --- strict-mode -------------------------------------------------------------------------------- */

/* Rewrites that fail: what would not be a request or a response any more, and more fields than there is room for. */
static void test_strict(void **state)
{
	static const struct {
		const char *set, *rule;
		unsigned times;
	} cases[] = {
		{ "http-request", "set-path %[req.hdr(none)]", 1 },
		{ "http-request", "replace-path .* %[req.hdr(none)]", 1 },
		{ "http-request", "set-method CONNECT", 1 },
		{ "http-request", "add-header X 1", 270 },
		{ "http-response", "add-header X 1", 270 },
		{ "http-response", "set-status 204", 1 },
		{ "http-after-response", "add-header X 1", 270 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		static char text[32768];
		const char *set = cases[i].set;
		struct hg_l7_counters c;
		int len;

		/* Every list begins strict, and is so up to `off`. */
		len = snprintf(text, sizeof(text), " %s strict-mode off if { path /off }\n", set);
		for (unsigned k = 0; k < cases[i].times; k++)
			len += snprintf(text + len, sizeof(text) - (size_t)len, " %s %s\n", set,
					cases[i].rule);
		start("global\n tune.http.maxhdr 4\n", text);
		for (int round = 0; round < 2; round++) {
			if (!strstr(get("/on"), "HTTP/1.1 500 "))
				fail_msg("%s %s", set, cases[i].rule);
			assert_non_null(strstr(get("/off"), "HTTP/1.1 200 OK\r\n"));
		}
		c = sum();
		assert_true(c.failed_rewrites >= 4);
		assert_int_equal(c.internal_errors, 2);
		assert_int_equal(c.hrsp_5xx, 2);
		assert_int_equal(c.hrsp_2xx, 2);
		stop();
	}
}

/* What is no rewrite of a message does not fail it. */
static void test_not_strict(void **state)
{
	start("", " http-request return status 200 if { path /own }\n"
		  " http-request set-var(txn.none) req.hdr(none)\n"
		  " http-request del-header none\n"
		  " http-request replace-header none a b\n");
	assert_non_null(strstr(get("/"), "200 OK"));
	assert_non_null(strstr(get("/own"), "200 OK"));
	assert_int_equal(sum().failed_rewrites, 0);
	stop();
}

/* --- early hints -------------------------------------------------------------------------------- */

static unsigned count(const char *text, const char *needle)
{
	unsigned n = 0;

	for (const char *p = text; (p = strcasestr(p, needle)); p++)
		n++;
	return n;
}

static void test_hints(void **state)
{
	const char *a, *second;

	start("", " http-request early-hint Link \"</a.css>; rel=preload\"\n"
		  " http-request early-hint Link \"<%[path].js>; rel=preload\"\n"
		  " http-request early-hint X-Enc %[str(a%0ab),url_dec]\n"
		  " http-request early-hint X-Not no if { path /never }\n"
		  " http-request set-header X-Q 1\n"
		  " http-request early-hint Link </b.css> if { path /two }\n"
		  " http-request deny if { path /no }\n"
		  " http-request early-hint Link </c.css> if { path /three }\n");
	a = get("/one");
	assert_int_equal(strncmp(a, "HTTP/1.1 103 Early Hints\r\n", 26), 0);
	assert_int_equal(count(a, "HTTP/1.1 "), 2);
	assert_non_null(strcasestr(a, "link: </a.css>; rel=preload\r\n"));
	assert_non_null(strcasestr(a, "link: </one.js>; rel=preload\r\n"));
	assert_int_equal(count(a, "x-not"), 0);
	assert_non_null(strcasestr(a, "x-enc: a%0Ab\r\n"));
	assert_int_equal(count(a, "content-length"), 1);
	assert_non_null(strstr(a, "\r\n\r\nhello"));
	/* What is no hint, also a rule that does not apply, ends the group. */
	a = get("/two");
	assert_int_equal(count(a, "HTTP/1.1 103 "), 2);
	second = strstr(a + 1, "HTTP/1.1 103 ");
	assert_int_equal(strncmp(second, "HTTP/1.1 103 Early Hints\r\n", 26), 0);
	assert_non_null(strcasestr(second, "link: </b.css>\r\n\r\nHTTP/1.1 200 OK"));
	assert_int_equal(count(get("/three"), "HTTP/1.1 103 "), 2);
	a = get("/no");
	assert_int_equal(count(a, "HTTP/1.1 103 "), 1);
	assert_int_equal(count(a, "HTTP/1.1 403 "), 1);
	/* HTTP/1.0 does not know them. */
	a = ask_once(port, "GET /two HTTP/1.0\r\nConnection: close\r\n\r\n");
	assert_int_equal(count(a, "HTTP/1.1 "), 1);
	assert_int_equal(count(a, "early"), 0);
	assert_int_equal(sum().hrsp_1xx, 6);
	assert_int_equal(sum().hrsp_2xx, 4);
	stop();
}

/* --- balance url_param … check_post --------------------------------------------------------------- */

static unsigned who_answers(struct origin *o, unsigned n, const char *first, const char *rest)
{
	unsigned before[4], who = n;
	int fd = tcp_connect(port);

	for (unsigned i = 0; i < n; i++)
		before[i] = (unsigned)atomic_load(&o[i].n_requests);
	send_text(fd, first);
	if (rest) {
		env_spin(&env, 20);
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(atomic_load(&o[i].n_requests), before[i]);
		send_text(fd, rest);
	}
	assert_non_null(strstr(recv_until(fd, "hello", 1), "200 OK"));
	close(fd);
	for (unsigned i = 0; i < n; i++)
		if ((unsigned)atomic_load(&o[i].n_requests) != before[i])
			who = i;
	assert_true(who < n);
	return who;
}

/* Who has the parameter in the body goes where it goes with the same in the URL; the body is waited for. */
static void test_check_post(void **state)
{
	struct origin *o = calloc(4, sizeof(*o));
	unsigned seen = 0;
	char text[2048];

	for (unsigned i = 0; i < 4; i++)
		origin_start(&o[i], serve_hello);
	port = free_port();
	snprintf(
		text, sizeof(text),
		"defaults\n mode http\n timeout client 3s\n timeout server 3s\n timeout connect "
		"1s\nlisten px\n bind 127.0.0.1:%u\n balance url_param id check_post 64\n server a "
		"127.0.0.1:%u\n server b 127.0.0.1:%u\n server c 127.0.0.1:%u\n server d "
		"127.0.0.1:%u\n",
		port, o[0].port, o[1].port, o[2].port, o[3].port);
	env_start(&env, 1, text);
	for (unsigned i = 0; i < 12; i++) {
		char url[128], post[256], rest[64], body[64];
		unsigned who;

		snprintf(url, sizeof(url), "GET /?id=v%u HTTP/1.1\r\nHost: a\r\n\r\n", i * 7);
		who = who_answers(o, 4, url, NULL);
		seen |= 1u << who;
		snprintf(body, sizeof(body), "uid=1&id=v%u&x=y", i * 7);
		snprintf(post, sizeof(post),
			 "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n%.8s",
			 strlen(body), body);
		assert_int_equal(who_answers(o, 4, post, body + 8), who);
		snprintf(
			post, sizeof(post),
			"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%zx\r\n%s",
			strlen(body), body);
		snprintf(rest, sizeof(rest), "\r\n0\r\n\r\n");
		assert_int_equal(who_answers(o, 4, post, rest), who);
		/* What the URL says counts first; its body need not be there. */
		snprintf(post, sizeof(post),
			 "POST /?id=v%u HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n", i * 7);
		strcat(post, "id=abc");
		assert_int_equal(who_answers(o, 4, post, NULL), who);
	}
	/* Without a parameter, or in what is no form: in turn. */
	assert_true(seen & (seen - 1));
	seen = 0;
	for (unsigned i = 0; i < 8; i++)
		seen |= 1u << who_answers(o, 4,
					  i & 1 ? "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: "
						  "5\r\n\r\nid=/x"
						: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: "
						  "0\r\n\r\n",
					  NULL);
	assert_int_equal(seen, 15);
	env_stop(&env);
	for (unsigned i = 0; i < 4; i++)
		origin_stop(&o[i]);
	free(o);
}

/* --- http-err-codes, http-fail-codes; stats http-request ------------------------------------------- */

static void serve_status(struct origin *o, int fd)
{
	char buf[8192], answer[128];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf) - 1, 0)) > 0) {
		buf[n] = '\0';
		snprintf(answer, sizeof(answer), "HTTP/1.1 %.3s X\r\nContent-Length: 0\r\n\r\n",
			 strchr(buf, '/') + 1);
		send_text(fd, answer);
	}
}

static void check_counts(const char *codes, const char *want)
{
	static const char *const paths[] = { "/200", "/302", "/404", "/429",
					     "/500", "/501", "/503", "/505" };
	char text[2048];

	origin_start(&origin, serve_status);
	port = free_port();
	snprintf(
		text, sizeof(text),
		"global\n%sdefaults\n mode http\n timeout client 3s\n timeout server 3s\n timeout "
		"connect 1s\nlisten px\n bind 127.0.0.1:%u\n stick-table type ip size 10 expire 1m "
		"store http_err_cnt,http_fail_cnt\n http-request track-sc0 src\n http-request "
		"return "
		"status 200 content-type text/plain lf-string \"<%%[sc_http_err_cnt(0)] "
		"%%[sc_http_fail_cnt(0)]>\" if { path /counts }\n server s 127.0.0.1:%u\n",
		codes, port, origin.port);
	env_start(&env, 1, text);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		assert_non_null(strstr(get(paths[i]), paths[i] + 1));
	assert_non_null(strstr(get("/counts"), want));
	stop();
}

static void test_status_codes(void **state)
{
	check_counts("", "<2 2>");
	check_counts(" http-err-codes 404\n http-fail-codes 100-599\n", "<1 8>");
	check_counts(" http-err-codes +302,501 -429\n http-fail-codes -503 +505\n", "<3 2>");
}

/* Who is not let in; what is let in needs the control thread. */
static void test_stats_rules(void **state)
{
	start("", " stats enable\n stats uri /s\n stats realm Page\n"
		  " stats http-request deny if { path /s/no }\n"
		  " stats http-request auth realm \"For us\" if { path /s/us }\n"
		  " stats http-request auth unless { path /s/in }\n");
	assert_non_null(strstr(get("/s/no"), "HTTP/1.1 403 "));
	assert_non_null(strcasestr(get("/s/us"), "www-authenticate: Basic realm=\"For us\"\r\n"));
	assert_non_null(strcasestr(get("/s/x"), "www-authenticate: Basic realm=\"Page\"\r\n"));
	assert_non_null(strstr(get("/other"), "hello"));
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strict),	     cmocka_unit_test(test_not_strict),
		cmocka_unit_test(test_hints),	     cmocka_unit_test(test_check_post),
		cmocka_unit_test(test_status_codes), cmocka_unit_test(test_stats_rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
