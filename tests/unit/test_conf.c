/* SPDX-License-Identifier: BSD-2-Clause */
/* links: conf expr http base */
/*
 * Whole configurations: every file of tests/conf/good with its dump, every file of tests/conf/bad with
 * its findings (HG_CONF_UPDATE=1 writes what is expected anew: read the difference before committing
 * it), and what needs code to be said. Runs in the root of the tree.
 */
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "conf/conf.h"

/* The users of this system are no part of the test: these take the place of libc's. */
struct passwd *getpwnam(const char *name)
{
	static struct passwd pw = { .pw_uid = 104 };

	return strcmp(name, "haproxy") == 0 || strcmp(name, "root") == 0 ? &pw : NULL;
}

struct group *getgrnam(const char *name)
{
	static struct group gr = { .gr_gid = 107 };

	return strcmp(name, "haproxy") == 0 || strcmp(name, "root") == 0 ? &gr : NULL;
}

/* --- findings ---------------------------------------------------------------------------------- */

struct findings {
	char text[65536];
	size_t len;
	unsigned n[3];
};

static void on_finding(void *ctx, enum conf_severity sev, const struct conf_pos *pos,
		       const char *text)
{
	static const char *const names[] = { "notice", "warning", "error" };
	struct findings *f = ctx;
	const char *base = strrchr(pos->file, '/');

	f->n[sev]++;
	if (f->len < sizeof(f->text) - 1024)
		f->len += (size_t)snprintf(f->text + f->len, 1024, "%s:%u:%u: %s: %s\n",
					   base ? base + 1 : pos->file, pos->line, pos->column,
					   names[sev], text);
}

static int load(const char *text, struct findings *f, struct conf **c)
{
	const struct conf_source src = { .report = on_finding, .report_ctx = f, .localpeer = "me" };

	memset(f, 0, sizeof(*f));
	*c = NULL;
	return conf_load_text(str_from_cstr(text), "t.cfg", &src, c);
}

static struct conf *load_good(const char *text)
{
	struct findings f;
	struct conf *c;

	if (load(text, &f, &c)) {
		print_error("%s", f.text);
		fail();
	}
	return c;
}

static void check_findings(const char *text, const char *want)
{
	struct findings f;
	struct conf *c;

	(void)!load(text, &f, &c);
	conf_free(c);
	assert_string_equal(f.text, want);
}

static void check_part(const char *text, const char *part)
{
	struct findings f;
	struct conf *c;

	(void)!load(text, &f, &c);
	conf_free(c);
	if (!strstr(f.text, part))
		assert_string_equal(f.text, part);
}

/* --- files ------------------------------------------------------------------------------------- */

static char *read_all(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = calloc(1, 1 << 20);

	assert_non_null(text);
	if (f) {
		assert_true(fread(text, 1, (1 << 20) - 1, f) < (1 << 20) - 1);
		fclose(f);
	}
	return text;
}

static void compare(const char *path, const char *got)
{
	char *want;

	if (getenv("HG_CONF_UPDATE")) {
		FILE *f = fopen(path, "w");

		assert_non_null(f);
		fputs(got, f);
		fclose(f);
	}
	want = read_all(path);
	if (strcmp(want, got))
		print_error("%s differs\n", path);
	assert_string_equal(got, want);
	free(want);
}

static void check_file(const char *dir, const char *name, bool is_good)
{
	struct findings f = { .len = 0 };
	struct conf_source src = {
		.report = on_finding, .report_ctx = &f, .n_paths = 1, .localpeer = "me"
	};
	char path[512], want[512], *dump = NULL;
	const char *paths[1] = { path };
	struct conf *c = NULL;
	size_t size;
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	snprintf(want, sizeof(want), "%s/%.*s.expect", dir, (int)strlen(name) - 4, name);
	src.paths = paths;
	if (conf_load(&src, &c) != (is_good ? 0 : -EINVAL)) {
		print_error("%s:\n%s", path, f.text);
		fail();
	}
	out = open_memstream(&dump, &size);
	assert_non_null(out);
	fputs(f.text, out);
	if (is_good)
		conf_dump(c, out);
	fclose(out);
	compare(want, dump);
	free(dump);
	conf_free(c);
}

static unsigned check_directory(const char *dir, bool is_good)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		size_t len = strlen(e->d_name);

		if (len < 5 || strcmp(e->d_name + len - 4, ".cfg"))
			continue;
		check_file(dir, e->d_name, is_good);
		n++;
	}
	closedir(d);
	return n;
}

static void test_good(void **state)
{
	setenv("HG_LAB_DIR", "/lab", 1);
	unsetenv("LOGHOST");
	assert_true(check_directory("tests/conf/good", true) >= 6);
}

static void test_bad(void **state)
{
	assert_true(check_directory("tests/conf/bad", false) >= 3);
}

/* --- several files ----------------------------------------------------------------------------- */

static void write_file(const char *dir, const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void test_directory(void **state)
{
	char dir[] = "/tmp/hg-conf-XXXXXX", cmd[64];
	struct findings f = { .len = 0 };
	const char *paths[] = { dir, "/nonexistent/x.cfg" };
	struct conf_source src = {
		.paths = paths, .n_paths = 1, .report = on_finding, .report_ctx = &f
	};
	struct conf *c = NULL;
	struct conf_proxy *px;

	assert_non_null(mkdtemp(dir));
	write_file(dir, "2.cfg", "backend b\n server \"$S\" 10.0.0.1:80\n");
	write_file(dir, "1.cfg",
		   "global\n setenv S first\ndefaults\n timeout connect 1s\n timeout server 7s\n");
	write_file(dir, "0.txt", "garbage\n");
	write_file(dir, ".3.cfg", "garbage\n");
	assert_int_equal(conf_load(&src, &c), 0);
	assert_int_equal(f.n[CONF_WARNING], 0);
	px = conf_find_proxy(c, STR("b"), CONF_CAP_BACKEND);
	assert_non_null(px);
	assert_non_null(conf_find_server(px, STR("first")));
	assert_int_equal(px->timeout.server, 7000000000ull);
	conf_free(c);
	src.n_paths = 2;
	assert_int_equal(conf_load(&src, &c), -EINVAL);
	assert_non_null(strstr(f.text, "No such file"));
	/* A file cannot go on with the section of the one before. */
	write_file(dir, "3.cfg", " balance first\n.if 1\n");
	src.n_paths = 1;
	f = (struct findings){ .len = 0 };
	assert_int_equal(conf_load(&src, &c), -EINVAL);
	assert_non_null(strstr(f.text, "3.cfg:1:2: error: 'balance' stands outside"));
	assert_non_null(strstr(f.text, "3.cfg:2:1: error: '.if' without '.endif'"));
	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	assert_int_equal(system(cmd), 0);
}

/* --- language ---------------------------------------------------------------------------------- */

#define T " timeout client 1s\n timeout server 1s\n timeout connect 1s\n"

static void test_inheritance(void **state)
{
	struct conf *c = load_good(
		"defaults a\n mode http\n retries 7\n option httplog\n log 127.0.0.1 local0\n" T
		" http-request set-header X y\n default-server inter 9s weight 3\n"
		"defaults b from a\n retries 8\n no option httplog\n"
		"defaults\n" T "listen l1 from a\n bind :1\n server s 10.0.0.1:80 weight 5\n"
		"listen l2 from b\n bind :2\n default-server no-check rise 4\n"
		" server s 10.0.0.1:80\n default-server rise 5\n server t 10.0.0.1:80\n"
		"listen l3\n bind :3\n");
	struct conf_proxy *l1 = conf_find_proxy(c, STR("l1"), CONF_CAP_FRONTEND);
	struct conf_proxy *l2 = conf_find_proxy(c, STR("l2"), CONF_CAP_BACKEND);
	struct conf_proxy *l3 = conf_find_proxy(c, STR("l3"), CONF_CAP_BACKEND);

	assert_int_equal(l1->retries, 7);
	assert_int_equal(l2->retries, 8);
	assert_int_equal(l3->retries, 3);
	assert_int_equal(l1->mode, CONF_MODE_HTTP);
	assert_int_equal(l3->mode, CONF_MODE_TCP);
	assert_non_null(l1->log_format);
	assert_null(l2->log_format);
	assert_true(l2->options_no & CONF_OPT(HTTPLOG));
	assert_false(list_is_empty(&l1->rules[RULES_HTTP_REQUEST]));
	assert_false(list_is_empty(&l2->rules[RULES_HTTP_REQUEST]));
	assert_true(list_is_empty(&l3->rules[RULES_HTTP_REQUEST]));
	assert_int_equal(conf_find_server(l1, STR("s"))->weight, 5);
	assert_int_equal(conf_find_server(l1, STR("s"))->inter, 9000000000ull);
	assert_int_equal(conf_find_server(l2, STR("s"))->weight, 3);
	assert_int_equal(conf_find_server(l2, STR("s"))->rise, 4);
	assert_int_equal(conf_find_server(l2, STR("t"))->rise, 5);
	assert_int_equal(l3->balance.algo, BALANCE_RANDOM);
	assert_int_equal(l1->index, 0);
	assert_int_equal(l3->index, 2);
	conf_free(c);
}

static void test_conditions(void **state)
{
	struct conf *c = load_good(
		"global\n setenv A 1\n presetenv A 2\n.if streq(\"$A\",1)\n maxconn 1\n"
		".if 0\n bogus \"unterminated\n.elif 1\n nbthread 2\n.elif nosuch(\n"
		".else\n bogus\n.endif\n.else\n bogus\n.endif\n unsetenv A\n"
		".if defined(A)\n bogus\n.endif\n"
		" resetenv PATH\n.if defined(HAPROXY_LOCALPEER)\n bogus\n.endif\n");

	assert_int_equal(c->global.maxconn, 1);
	assert_int_equal(c->global.nbthread, 2);
	assert_false(c->has_listener);
	conf_free(c);
	check_findings(".if 1\n.notice \"a b\" c\n.warning w\n.alert x\n.diag d\n.endif\n.if "
		       "0\n.alert y\n.endif\n",
		       "t.cfg:2:1: notice: a b c\nt.cfg:3:1: warning: w\nt.cfg:4:1: error: x\n");
	check_findings(".if 1 &&\n.endif\n",
		       "t.cfg:1:9: error: expects a number, '!', '(' or a predicate "
		       "such as defined(NAME)\n");
	check_findings(".else\n.endif\n.elif 1\n",
		       "t.cfg:1:1: error: '.else' without '.if'\nt.cfg:2:1: error: '.endif' "
		       "without '.if'\n"
		       "t.cfg:3:1: error: '.elif' without '.if'\n");
	check_findings(".fi\n", "t.cfg:1:1: error: unknown directive '.fi', did you mean '.if'?\n");
}

static void test_environment(void **state)
{
	struct conf *c = load_good(
		"global\n description \"${HAPROXY_LOCALPEER}\" \"$HAPROXY_CFGFILES\" "
		"\"${.LINE}\"\n setenv P :81\n"
		"defaults\n mode http\n log 127.0.0.1 local0\n" T
		"frontend f\n bind $P\n bind \"${Q-:82}\"\n log-format "
		"\"$HAPROXY_HTTP_LOG_FMT\"\n");
	struct conf_proxy *f = conf_find_proxy(c, STR("f"), CONF_CAP_FRONTEND);

	assert_string_equal(c->global.description, "me t.cfg 2");
	assert_string_equal(f->log_format_text, logfmt_httplog);
	assert_int_equal(list_entry(f->binds.next, struct conf_bind, link)->ep.port, 81);
	assert_int_equal(list_entry(f->binds.prev, struct conf_bind, link)->ep.port, 82);
	conf_free(c);
	assert_null(getenv("P")); /* the process's environment is left alone */
}

static void test_numbers(void **state)
{
	struct conf *c = load_good(
		"global\n stats socket /tmp/x level admin\ndefaults\n" T
		"listen a\n bind :1\n bind :2 id 1\n server s 10.0.0.1:1\n"
		" server t 10.0.0.1:1 id 1\nlisten b\n id 2\n bind :3\nlisten c\n bind :4\n");

	assert_int_equal(conf_find_proxy(c, STR("a"), CONF_CAP_BACKEND)->id, 3);
	assert_int_equal(conf_find_proxy(c, STR("b"), CONF_CAP_BACKEND)->id, 2);
	assert_int_equal(conf_find_proxy(c, STR("c"), CONF_CAP_BACKEND)->id, 4);
	struct conf_proxy *a = conf_find_proxy(c, STR("a"), CONF_CAP_BACKEND);
	assert_int_equal(conf_find_server(a, STR("s"))->id, 2);
	assert_int_equal(conf_find_server(a, STR("t"))->id, 1);
	assert_string_equal(list_entry(a->binds.next, struct conf_bind, link)->name, "sock-2");
	assert_string_equal(list_entry(a->binds.prev, struct conf_bind, link)->name, "sock-1");
	conf_free(c);
	check_part("listen a\n id 5\nlisten b\n id 5\n", "t.cfg:3:1: error: proxy id 5 is taken");
}

static void test_ports(void **state)
{
	struct conf *c = load_good(
		"defaults\n" T "listen l\n bind 127.0.0.1:10-12,[::1]:9\n"
		" server s 10.0.0.1:80\nlisten m\n bind :99\n server s 10.0.0.1\n");
	struct conf_proxy *l = conf_find_proxy(c, STR("l"), CONF_CAP_FRONTEND);
	unsigned ports[4], n = 0;
	struct list *p;

	list_for_each(p, &l->binds)
		ports[n++] = addr_port(&list_entry(p, struct conf_bind, link)->ep.addr);
	assert_int_equal(n, 4);
	assert_int_equal(ports[0], 10);
	assert_int_equal(ports[2], 12);
	assert_int_equal(ports[3], 9);
	l = conf_find_proxy(c, STR("m"), CONF_CAP_BACKEND);
	/* The client's port; health checks have no client. */
	assert_int_equal(addr_port(&conf_find_server(l, STR("s"))->ep.addr), 0);
	assert_int_equal(conf_find_server(l, STR("s"))->shared_port, 99);
	conf_free(c);
	check_part("listen l\n bind :80\n bind *:80\n",
		   "t.cfg:3:2: error: '*:80' is already in use by 'l'");
}

static void test_order_of_rules(void **state)
{
	check_part(
		"listen l\n bind :1\n mode http\n" T " use_backend l if TRUE\n http-request deny\n",
		"t.cfg:8:2: warning: this 'http-request' rule stands behind a 'use_backend' rule");
	struct conf *c = load_good(
		"listen l\n bind :1\n http-request deny if { path /x }\n mode http\n" T
		" redirect prefix /y if { path /z }\n http-request set-path /a\n");
	struct conf_proxy *l = conf_find_proxy(c, STR("l"), CONF_CAP_FRONTEND);

	/* The old redirect runs last. */
	assert_int_equal(
		list_entry(l->rules[RULES_HTTP_REQUEST].prev, struct conf_rule, link)->action,
		ACTION_REDIRECT);
	conf_free(c);
}

static void test_cpu_map(void **state)
{
	struct conf *c = load_good("global\n cpu-map auto:1/1-3 2-4\n");

	assert_int_equal(c->global.cpu_map.cpu_of_thread[0], 2);
	assert_int_equal(c->global.cpu_map.cpu_of_thread[2], 4);
	assert_int_equal(c->global.cpu_map.cpu_of_thread[3], -1);
	conf_free(c);
	c = load_good("global\n cpu-map 1 0\n cpu-map 2 1\n");
	assert_int_equal(c->global.cpu_map.cpu_of_thread[0], 0);
	assert_int_equal(c->global.cpu_map.cpu_of_thread[1], 1);
	assert_int_equal(c->global.cpu_map.cpu_of_thread[2], -1);
	conf_free(c);
	c = load_good("global\n cpu-map 1/all 0-1\n");
	assert_int_equal(c->global.cpu_map.cpu_of_thread[7], 1);
	conf_free(c);
	check_part("global\n cpu-map auto:1-4 0-1\n", "these are 4 and 2");
	check_part("global\n cpu-map x 0\n", "t.cfg:2:10: error: 'cpu-map' expects threads");
	check_part("global\n cpu-map 1 5-2\n", "t.cfg:2:12: error: 'cpu-map' expects CPUs");
}

static void test_track(void **state)
{
	check_part(
		"listen l\n bind :1\n server a 10.0.0.1:1 track b\n server b 10.0.0.1:1 track a\n",
		"tracks itself in a circle");
	check_part("listen l\n bind :1\n server a 10.0.0.1:1 track b\n server b 10.0.0.1:1\n",
		   "has no health check");
	check_part("listen l\n bind :1\n server a 10.0.0.1:1 track x/b\n",
		   "there is no backend 'x'");
}

/* Which table workers look into ahead. */
static void test_tracks_src(void **state)
{
	static const struct {
		const char *rule, *table;
	} cases[] = {
		{ "http-request track-sc0 src table a", "a" },
		{ "http-request track-sc0 src table b if { path /x }", "b" },
		{ "tcp-request content track-sc1 src table a", "a" },
		{ "http-request track-sc0 src,ipmask(24) table a", NULL },
		{ "http-request track-sc0 src table s", NULL },
		{ "http-request track-sc0 hdr(x) table s\n http-request track-sc1 src table b",
		  "b" },
		{ "http-response track-sc0 src table a", NULL },
		{ "tcp-request connection track-sc0 src table a", NULL },
		{ "http-request deny", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct conf_stick_table *t;
		char text[512];
		struct conf *c;

		snprintf(text, sizeof(text),
			 "frontend f\n mode http\n bind :1\n %s\n"
			 "backend a\n stick-table type ip size 100 store conn_cnt\n"
			 "backend b\n stick-table type ipv6 size 100 store conn_cnt\n"
			 "backend s\n stick-table type string size 100 store conn_cnt\n",
			 cases[i].rule);
		c = load_good(text);
		t = conf_find_proxy(c, STR("f"), CONF_CAP_FRONTEND)->tracks_src;
		if (!cases[i].table)
			assert_null(t);
		else
			assert_string_equal(t ? t->name : "none", cases[i].table);
		conf_free(c);
	}
}

static void test_zero_warning(void **state)
{
	check_part("global\n zero-warning\nlisten l\n bind :1\n server s 10.0.0.1:1\n",
		   "error: there are warnings");
	check_part("global\n maxconn 1", "t.cfg:2:1: warning: the last line has no end");
}

static void test_garbage(void **state)
{
	struct findings f;
	struct conf *c;
	char *text = calloc(1, 200000);
	size_t n = 0;

	assert_non_null(text);
	while (n < 199000)
		n += (size_t)sprintf(text + n, "blurb %zu\n", n);
	assert_int_equal(load(text, &f, &c), -EINVAL);
	assert_int_equal(f.n[CONF_ERROR], 1000);
	assert_int_equal(f.n[CONF_NOTICE], 1); /* … too many findings */
	free(text);
}

/* --- resources --------------------------------------------------------------------------------- */

static void test_speed(void **state)
{
	char *text = malloc(4 << 20);
	struct timespec a, b;
	size_t n = 0;
	struct conf *c;
	double s;

	assert_non_null(text);
	n += (size_t)sprintf(text, "defaults\n mode http\n" T "frontend f\n bind :80\n");
	for (int i = 0; i < 1000; i++)
		n += (size_t)sprintf(text + n, " use_backend b%d if { path_beg /b%d }\n", i, i);
	for (int i = 0; i < 1000; i++) {
		n += (size_t)sprintf(text + n, "backend b%d\n balance roundrobin\n", i);
		for (int j = 0; j < 10; j++)
			n += (size_t)sprintf(text + n,
					     " server s%d 10.%d.%d.%d:80 check weight 10\n", j,
					     i / 250, i % 250, j);
	}
	clock_gettime(CLOCK_MONOTONIC, &a);
	c = load_good(text);
	clock_gettime(CLOCK_MONOTONIC, &b);
	s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
	print_message("10,000 servers in 1,000 backends: %.3f s\n", s);
	assert_int_equal(c->n_proxies, 1001);
	conf_free(c);
	/* Plain builds need 0.05 s; the bound leaves room for sanitizers and a busy machine. */
	assert_true(s < 1.0);
	free(text);
}

static const char many[] =
	"global\n stats socket /tmp/x level admin\n log 127.0.0.1 local0\n cpu-map 1 0\n"
	"userlist u\n user a insecure-password b groups g\n"
	"defaults d\n mode http\n" T " option httplog\n log global\n acl x path /x\n"
	" http-request set-header A \"%[path,lower] b\" if x\n"
	"frontend f from d\n bind :80,:81 name n\n bind :443 ssl crt /x crt /y\n"
	" http-request return status 200 content-type text/plain string 100%\n"
	" http-request replace-path ^/(.*)x /\\1\n http-request auth if { http_auth(u) }\n"
	" capture request header Host len 10\n use_backend b if { hdr(host) -i a b c }\n "
	"default_backend b\n"
	"backend b from d\n cookie C insert attr x=y\n option httpchk GET /\n"
	" http-check send hdr A b hdr C d\n http-check expect status 200,204-206\n"
	" server s 10.0.0.1:80 check ssl verify none\n server t name:80 track s\n";

/* Arenas ask for memory rarely: padding moves the points at which they do through all of the code. */
static void test_no_memory(void **state)
{
	static char text[sizeof(many) + 70000];
	unsigned failed = 0;

	for (size_t pad = 0; pad < 66000; pad += 509) {
		int len = snprintf(text, sizeof(text), "global\n description ");

		memset(text + len, 'x', pad);
		strcpy(text + len + pad, "\n");
		strcat(text, many);
		for (uint64_t n = 1;; n++) {
			struct findings f;
			struct conf *c;
			bool was_hit;
			int r;

			mem_fail_at(n);
			r = load(text, &f, &c);
			was_hit = mem_alloc_count() >= n;
			mem_fail_at(0);
			conf_free(c);
			if (!was_hit)
				break;
			assert_int_not_equal(r, 0);
			failed++;
		}
	}
	assert_true(failed >= 500);
}

/* Bytes of a good file changed at random: it loads or it does not, but nothing breaks. */
static void test_mutations(void **state)
{
	uint64_t seed = 42;

	for (unsigned round = 0; round < 2000; round++) {
		char text[sizeof(many)];
		struct findings f;
		struct conf *c;

		memcpy(text, many, sizeof(many));
		for (unsigned k = 0; k < 1 + round % 4; k++) {
			static const char bytes[] = " \n\t\"'\\$#{}()%[],!:/-0az\x01\xff";

			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			text[(seed >> 33) % (sizeof(many) - 1)] =
				bytes[(seed >> 20) % (sizeof(bytes) - 1)];
		}
		int r = load(text, &f, &c);

		assert_true(r == 0 ? c != NULL : c == NULL && f.n[CONF_ERROR] > 0);
		conf_free(c);
	}
}

static void test_docs(void **state)
{
	const struct conf_keyword_doc *d;
	unsigned n = 0, found = 0;

	for (; (d = conf_keyword_doc(n)); n++) {
		assert_true(d->name && d->name[0]);
		assert_true(d->help && d->help[0]);
		assert_non_null(strchr("123n", d->grade));
		found += strcmp(d->name, "timeout client") == 0 ||
			 strcmp(d->name, "xdp interface") == 0 ||
			 strcmp(d->name, "set-header") == 0;
	}
	assert_true(n > 300 && n < 1024);
	assert_int_equal(found, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),	       cmocka_unit_test(test_bad),
		cmocka_unit_test(test_directory),      cmocka_unit_test(test_inheritance),
		cmocka_unit_test(test_conditions),     cmocka_unit_test(test_environment),
		cmocka_unit_test(test_numbers),	       cmocka_unit_test(test_ports),
		cmocka_unit_test(test_order_of_rules), cmocka_unit_test(test_cpu_map),
		cmocka_unit_test(test_track),	       cmocka_unit_test(test_tracks_src),
		cmocka_unit_test(test_zero_warning),   cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_speed),	       cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_mutations),      cmocka_unit_test(test_docs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
