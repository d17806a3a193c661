/* SPDX-License-Identifier: BSD-2-Clause */
/* ACLs, match methods, pattern files, conditions. links: expr http base */
#include "unit/expr_subject.h"

#define WORDS_MAX 40

/* Words are separated by single blanks; "\t" stands for a blank inside a word. */
static unsigned split(const char *text, struct str words[WORDS_MAX], char *buf, size_t size)
{
	struct str rest = str_from_cstr(text);
	unsigned n = 0;

	snprintf(buf, size, "%s", text);
	rest.p = buf;
	while (rest.p && rest.len) {
		words[n] = str_cut(&rest, ' ');
		for (size_t i = 0; i < words[n].len; i++) {
			if (words[n].p[i] == '\t')
				((char *)words[n].p)[i] = ' ';
		}
		n++;
	}
	return n;
}

static int pattern_file(struct expr_env *env, struct str path, struct str *ret, struct err *err)
{
	if (str_is_eq(path, STR("nets")))
		*ret = STR("# networks\n10.0.0.0/8\n  192.0.2.0/24 \r\n\n2001:db8::/32\n");
	else if (str_is_eq(path, STR("names")))
		*ret = STR("H.com:80\nother\n");
	else if (str_is_eq(path, STR("bad")))
		*ret = STR("10.0.0.0/8\n10.0.0.0/99\n");
	else
		return err_set(err, -ENOENT, "cannot open");
	return 0;
}

static void setup(struct fixture *f)
{
	fixture_init(f);
	f->env.read_file = pattern_file;
	f->env.acls = acl_set_new(&f->conf, NULL);
	assert_non_null(f->env.acls);
}

static int add(struct fixture *f, const char *name, const char *text, struct err *err, unsigned *at)
{
	struct str words[WORDS_MAX];
	char buf[1000];
	unsigned n = split(text, words, buf, sizeof(buf));

	return acl_add(f->env.acls, &f->env, str_from_cstr(name), words, n, at, err);
}

static int compile(struct fixture *f, const char *text, struct cond **c, struct err *err,
		   unsigned *at)
{
	struct str words[WORDS_MAX];
	char buf[1000];
	unsigned n = split(text, words, buf, sizeof(buf));

	return cond_compile(&f->env, words, n, false, c, at, err);
}

static const struct {
	const char *acl; /* between { and } */
	int want;
} matches[] = {
	{ "path_beg /a/", 1 },
	{ "path_beg /A/", 0 },
	{ "path_beg -i /A/", 1 },
	{ "path_beg /b /a /c", 1 },
	{ "path_end 34", 1 },
	{ "path_end 3", 0 },
	{ "path_end -i X 4", 1 },
	{ "path_sub 2,3", 1 },
	{ "path_sub 3,2", 0 },
	{ "path_dir a", 1 },
	{ "path_dir /a/", 1 },
	{ "path_dir 12", 0 },
	{ "path_len 8", 1 },
	{ "path_len gt 8", 0 },
	{ "path_len ge 8", 1 },
	{ "path_reg ^/a/[0-9]+,", 1 },
	{ "path_reg -i ^/A", 1 },
	{ "path_reg ^/A", 0 },
	{ "path -m beg /a", 1 },
	{ "path,lower -m str /a/12,34", 1 },
	{ "path -m found", 1 },
	{ "var(txn.nope) -m found", 0 },
	{ "hdr(host) H.com:80", 0 },
	{ "hdr(host) -i H.com:80", 1 },
	{ "hdr(host) -i -f names", 1 },
	{ "hdr(host) -f names", 0 },
	{ "hdr_dom(host) -i com", 1 },
	{ "hdr_dom(host) om", 0 },
	{ "hdr_beg(host) h.", 1 },
	{ "hdr_end(host) :80", 1 },
	/* every item of a list, in every field of the name */
	{ "hdr(m) 5", 1 },
	{ "hdr(m) 7", 1 },
	{ "hdr(m,2) -m str b\tb", 1 },
	{ "hdr(m) \"c,d\"", 1 },
	{ "hdr(m) c", 0 },
	{ "hdr_val(m) eq 9", 1 },
	{ "hdr_cnt(m) 5", 1 },
	{ "hdr_cnt(nope) 0", 1 },
	{ "hdr_ip(x-ip) 1.2.3.4", 1 },
	{ "hdr_ip(x-ip) 2001:db8::/32", 1 },
	{ "hdr_ip(x-ip) 5.6.7.8", 0 },
	{ "cook(a) 1", 1 },
	{ "cook(a) 3", 1 },
	{ "cook(a) 2", 0 },
	{ "cook_beg(b) 2", 1 },
	{ "urlp(y) 2", 1 },
	{ "urlp_reg(y) ^[0-9]$", 1 },
	{ "url_param(z) 3", 1 },
	{ "url_param 2", 1 },
	{ "url_param 9", 0 },
	{ "src 192.0.2.0/24", 1 },
	{ "src 10.0.0.0/8 192.0.2.7", 1 },
	{ "src 10.0.0.0/8 ::/0", 1 },
	{ "src 0.0.0.0/0", 1 },
	{ "src -f nets", 1 },
	{ "src -f virt@none", 0 },
	{ "src -f opt@none", 0 },
	{ "src -f opt@none 192.0.2.7", 1 },
	{ "dst_port 443", 1 },
	{ "dst_port 400:500", 1 },
	{ "dst_port :443", 1 },
	{ "dst_port 444:", 0 },
	{ "dst_port gt 442 lt 100", 1 },
	{ "dst_port lt 443", 0 },
	{ "dst_port le 443", 1 },
	{ "dst_port -m bool", 1 },
	{ "dst_port -1", 0 },
	{ "method GET HEAD", 1 },
	{ "method POST", 0 },
	{ "method -m reg ^G", 1 },
	{ "status 404", 1 },
	{ "status 400:499 503", 1 },
	{ "ssl_fc", 0 },
	{ "always_true", 1 },
	{ "always_true false", 0 },
	{ "ssl_fc 0", 1 },
	{ "bin(0a1b) -m bin 0a1b 00", 1 },
	{ "bin(0a1b) 0A1B", 1 },
	{ "str(-x) -- -x", 1 },
	{ "str(-x) -m str -- -i", 0 },
	{ "str() -m len 0", 1 },
	{ "str(ab) -m len 1:3", 1 },
	{ "nbsrv(app) gt 1", 1 },
	{ "nbsrv(none) ge 0", 0 },
	{ "src,table_gpc0(t) gt 0", 1 },
	{ "res.hdr(server) t", 1 },
	{ "scook(sid) q", 1 },
	{ "req.body_len 3", 1 },
	{ "req.body -m sub y", 1 },
};

static void test_matches(void **state)
{
	for (unsigned i = 0; i < ARRAY_SIZE(matches); i++) {
		struct fixture f;
		struct cond *c;
		struct err err = { "" };
		char text[300];
		unsigned at;

		setup(&f);
		snprintf(text, sizeof(text), "{ %s }", matches[i].acl);
		if (compile(&f, text, &c, &err, &at))
			fail_msg("%s: %s (word %u)", text, err.text, at);
		if (cond_eval(c, &f.s) != matches[i].want)
			fail_msg("%s: not %d", text, matches[i].want);
		fixture_free(&f);
	}
}

static const struct {
	const char *cond;
	int want;
} conditions[] = {
	{ "TRUE", 1 },
	{ "FALSE", 0 },
	{ "!TRUE", 0 },
	{ "! FALSE", 1 },
	{ "!!TRUE", 1 },
	{ "yes no", 0 },
	{ "yes !no", 1 },
	{ "no or yes", 1 },
	{ "no || yes no", 0 },
	{ "no yes || yes", 1 },
	{ "yes { path_beg /a }", 1 },
	{ "!{ path_beg /a } or no", 0 },
	{ "! { path_beg /b } yes", 1 },
	{ "two", 1 },
	{ "METH_GET HTTP_1.1 !METH_POST", 1 },
	{ "HTTP_URL_SLASH !HTTP_URL_ABS !HTTP_URL_STAR !HTTP_CONTENT !LOCALHOST", 1 },
	{ "missing", 0 },
	{ "!missing", 1 },
	{ "WAIT_END", 1 }, /* a request is there: nothing more to wait for */
};

static void add_names(struct fixture *f)
{
	struct err err = { "" };
	unsigned at;

	assert_int_equal(add(f, "yes", "always_true", &err, &at), 0);
	assert_int_equal(add(f, "no", "always_false", &err, &at), 0);
	assert_int_equal(add(f, "two", "path /x", &err, &at), 0);
	assert_int_equal(add(f, "two", "dst_port 443", &err, &at), 0);
	assert_int_equal(add(f, "missing", "req.hdr(nope) x", &err, &at), 0);
	assert_int_equal(add(f, "late", "req.len gt 10", &err, &at), 0);
}

static void test_conditions(void **state)
{
	struct fixture f;
	struct cond *c;
	struct err err;
	unsigned at;

	setup(&f);
	add_names(&f);
	for (unsigned i = 0; i < ARRAY_SIZE(conditions); i++) {
		if (compile(&f, conditions[i].cond, &c, &err, &at))
			fail_msg("%s: %s", conditions[i].cond, err.text);
		if (cond_eval(c, &f.s) != conditions[i].want)
			fail_msg("%s: not %d", conditions[i].cond, conditions[i].want);
	}
	assert_int_equal(cond_eval(NULL, &f.s), 1);
	fixture_free(&f);
}

/* While bytes may still come: false decides at once, true only with all of them. */
static void test_waiting(void **state)
{
	static const struct {
		const char *cond;
		int want;
	} cases[] = {
		{ "late", -EAGAIN },
		{ "!late", -EAGAIN },
		{ "late no", 0 },
		{ "no late", 0 },
		{ "late or yes", 1 },
		{ "late or no", -EAGAIN },
		{ "WAIT_END", -EAGAIN },
		{ "{ req.len gt 2 }", 1 },
		{ "{ req.payload(0,9) -m found }", -EAGAIN },
		{ "yes late", -EAGAIN },
	};
	struct fixture f;
	struct cond *c;
	struct err err;
	unsigned at;

	setup(&f);
	add_names(&f);
	f.s.req = NULL;
	f.s.payload = STR("abcd");
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(compile(&f, cases[i].cond, &c, &err, &at), 0);
		if (cond_eval(c, &f.s) != cases[i].want)
			fail_msg("%s: not %d", cases[i].cond, cases[i].want);
	}
	f.s.is_payload_final = true;
	assert_int_equal(compile(&f, "late or { req.payload(0,9) -m found }", &c, &err, &at), 0);
	assert_int_equal(cond_eval(c, &f.s), 0);
	fixture_free(&f);
}

static void test_inherited(void **state)
{
	struct fixture f;
	struct acl_set *own;
	struct cond *c;
	struct err err;
	unsigned at;

	setup(&f);
	add_names(&f);
	own = acl_set_new(&f.conf, f.env.acls);
	f.env.acls = own;
	assert_int_equal(add(&f, "no", "always_true", &err, &at), 0);
	assert_int_equal(compile(&f, "yes no", &c, &err, &at), 0);
	assert_int_equal(cond_eval(c, &f.s), 1);
	assert_true(str_is_eq(acl_set_name(own, 0), STR("no")));
	fixture_free(&f);
}

/* acl(): part of another ACL; no circle can come of it. */
static void test_acl_in_acl(void **state)
{
	struct fixture f;
	struct cond *c;
	struct err err = { "" };
	unsigned at;

	setup(&f);
	add_names(&f);
	assert_int_equal(add(&f, "both", "acl(yes,!no)", &err, &at), 0);
	assert_int_equal(add(&f, "more", "acl(both)", &err, &at), 0);
	assert_int_equal(compile(&f, "more", &c, &err, &at), 0);
	assert_int_equal(cond_eval(c, &f.s), 1);
	assert_int_equal(compile(&f, "{ acl(more,no) }", &c, &err, &at), 0);
	assert_int_equal(cond_eval(c, &f.s), 0);
	/* An alternative more: not to what others are made of, nor to itself. */
	assert_int_equal(add(&f, "more", "always_false", &err, &at), 0);
	assert_int_equal(add(&f, "both", "acl(more)", &err, &at), -EINVAL);
	assert_non_null(strstr(err.text, "before that"));
	assert_int_equal(add(&f, "more", "acl(more)", &err, &at), -EINVAL);
	assert_int_equal(add(&f, "new", "acl(new)", &err, &at), -EINVAL);
	fixture_free(&f);
}

static void test_errors(void **state)
{
	static const struct {
		const char *cond;
		unsigned at;
		const char *part;
	} cases[] = {
		{ "", 0, "expected a condition" },
		{ "yess", 0, "did you mean 'yes'?" },
		{ "yes METH_GE", 1, "did you mean 'METH_GET'?" },
		{ "yes or", 1, "behind 'or'" },
		{ "or yes", 0, "found 'or'" },
		{ "yes !", 1, "behind '!'" },
		{ "{ path_beg /a", 0, "closing '}'" },
		{ "yes { }", 2, "between '{' and '}'" },
		{ "{ path_begg /a }", 1, "unknown sample fetch 'path_begg'" },
		{ "{ path -m foo x }", 3, "unknown match method 'foo'" },
		{ "{ path -m }", 2, "needs a value" },
		{ "{ path -z x }", 2, "unknown flag '-z'" },
		{ "{ src 1.2.3.4/33 }", 2, "neither an address nor a network" },
		{ "{ src 1.2.3.4 1.2.3.400 }", 3, "'1.2.3.400'" },
		{ "{ dst_port 80 x }", 3, "neither an integer nor a range" },
		{ "{ dst_port gt }", 2, "needs a number" },
		{ "{ dst_port gt 1:2 }", 3, "range cannot follow" },
		{ "{ dst_port 9:2 }", 2, "empty range" },
		{ "{ path_reg ( }", 2, "regular expression" },
		{ "{ src -f bad }", 0, "bad:2" },
		{ "{ src -f nope }", 3, "cannot open" },
		{ "{ src -m sub x } { ssl_fc maybe }", 8, "neither true nor false" },
		{ "{ bin(00) -m bin 0g }", 4, "hexadecimal" },
		{ "{ src -m bool }", 1, "cannot become" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct fixture f;
		struct cond *c;
		struct err err = { "" };
		unsigned at = 99;

		setup(&f);
		add_names(&f);
		assert_int_equal(compile(&f, cases[i].cond, &c, &err, &at), -EINVAL);
		if (!strstr(err.text, cases[i].part) || (at != cases[i].at && cases[i].at))
			fail_msg("%s: word %u '%s', wanted %u '%s'", cases[i].cond, at, err.text,
				 cases[i].at, cases[i].part);
		fixture_free(&f);
	}
}

static void test_warnings(void **state)
{
	struct fixture f;
	struct cond *c;
	struct err err;
	unsigned at;

	setup(&f);
	assert_int_equal(add(&f, "a", "path", &err, &at), 0);
	assert_non_null(strstr(f.warning, "never matches"));
	f.warning[0] = '\0';
	assert_int_equal(add(&f, "b", "path --", &err, &at), 0);
	assert_int_equal(add(&f, "c", "status 200", &err, &at), 0);
	assert_string_equal(f.warning, "");
	f.env.place = PLACE_REQ;
	assert_int_equal(compile(&f, "c", &c, &err, &at), 0);
	assert_non_null(strstr(f.warning, "'c' never matches here: 'status'"));
	assert_int_equal(add(&f, "bad name", "path --", &err, &at), -EINVAL);
	fixture_free(&f);
}

/* Large sets against a plain search, with a fixed seed. */
#define N_BIG 3000

static unsigned next_random(unsigned *seed)
{
	*seed = *seed * 1103515245 + 12345;
	return *seed >> 8;
}

static char big_text[N_BIG * 32];
static int big_file(struct expr_env *env, struct str path, struct str *ret, struct err *err)
{
	*ret = str_from_cstr(big_text);
	return 0;
}

static void check_big_text(const char *acl, char keys[][12], unsigned n,
			   bool (*plain)(struct str s, struct str key))
{
	struct fixture f;
	struct cond *c;
	struct err err;
	unsigned at, seed = 7, hits = 0;

	setup(&f);
	f.env.read_file = big_file;
	assert_int_equal(compile(&f, acl, &c, &err, &at), 0);
	for (unsigned i = 0; i < 2000; i++) {
		char text[24];
		int len = snprintf(text, sizeof(text), "/%x%x", next_random(&seed) % 4096,
				   next_random(&seed) % 4096);
		bool want = false;

		f.req.path = str_make(text, (size_t)len);
		for (unsigned k = 0; k < n && !want; k++)
			want = plain(f.req.path, str_from_cstr(keys[k]));
		hits += want;
		assert_int_equal(cond_eval(c, &f.s), want);
		arena_reset(&f.run);
	}
	assert_true(hits > 20 && hits < 1980);
	fixture_free(&f);
}

static bool plain_sub(struct str s, struct str key)
{
	return str_find(s, key) != SIZE_MAX;
}

static void test_big_sets(void **state)
{
	static char keys[N_BIG][12];
	unsigned seed = 3, n = 300;
	size_t at = 0;

	for (unsigned i = 0; i < n; i++) {
		snprintf(keys[i], sizeof(keys[i]), "/%x", next_random(&seed) % 65536);
		at += (size_t)sprintf(big_text + at, "%s\n", keys[i]);
	}
	check_big_text("{ path_beg -f x }", keys, n, str_is_prefix);
	for (unsigned i = at = 0; i < n; i++) {
		snprintf(keys[i], sizeof(keys[i]), "%x", 256 + next_random(&seed) % 8192);
		at += (size_t)sprintf(big_text + at, "%s\n", keys[i]);
	}
	check_big_text("{ path_end -f x }", keys, n, str_is_suffix);
	check_big_text("{ path_sub -f x }", keys, n / 10 * 10, plain_sub);
}

static void test_big_networks(void **state)
{
	static struct addr_prefix nets[N_BIG];
	unsigned seed = 5, n = 1000, hits = 0, bad;
	struct fixture f;
	struct cond *c;
	struct err err;
	size_t at = 0;

	for (unsigned i = 0; i < n; i++) {
		char text[40];

		snprintf(text, sizeof(text), "%u.%u.%u.0/%u", 10 + next_random(&seed) % 8,
			 next_random(&seed) % 256, next_random(&seed) % 256,
			 12 + next_random(&seed) % 13);
		assert_int_equal(addr_prefix_parse(str_from_cstr(text), &nets[i]), 0);
		at += (size_t)sprintf(big_text + at, "%s\n", text);
	}
	setup(&f);
	f.env.read_file = big_file;
	assert_int_equal(compile(&f, "{ src -f x }", &c, &err, &bad), 0);
	for (unsigned i = 0; i < 5000; i++) {
		bool want = false;

		f.src.in.sin_addr.s_addr = htonl((10 + next_random(&seed) % 9) << 24 |
						 (next_random(&seed) & 0xffffff));
		for (unsigned k = 0; k < n && !want; k++)
			want = addr_prefix_has(&nets[k], &f.src);
		hits += want;
		assert_int_equal(cond_eval(c, &f.s), want);
	}
	assert_true(hits > 100 && hits < 4900);
	fixture_free(&f);
}

static void test_out_of_memory(void **state)
{
	bool done = false;

	for (uint64_t n = 1; !done && n < 400; n++) {
		struct fixture f;
		struct cond *c;
		struct err err;
		unsigned at;
		int r;

		setup(&f);
		arena_free(&f.run);
		arena_init(&f.run, 16);
		mem_fail_at(n);
		r = compile(&f,
			    "{ path_beg -i /a } { path_reg x$ } || { src -f nets } || { hdr(m) -f "
			    "names }",
			    &c, &err, &at);
		if (r == 0)
			r = cond_eval(c, &f.s) < 0 ? -ENOMEM : 0;
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
		cmocka_unit_test(test_matches),	     cmocka_unit_test(test_conditions),
		cmocka_unit_test(test_waiting),	     cmocka_unit_test(test_inherited),
		cmocka_unit_test(test_acl_in_acl),   cmocka_unit_test(test_errors),
		cmocka_unit_test(test_warnings),     cmocka_unit_test(test_big_sets),
		cmocka_unit_test(test_big_networks), cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
