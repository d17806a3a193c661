/* SPDX-License-Identifier: BSD-2-Clause */
/* `headgate deny`: the denied prefixes in the pinned maps, with or without a daemon. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "dp/dp.h"
#include "tools_priv.h"

static int usage(void)
{
	fprintf(stderr,
		"usage: headgate deny list [--json] | add PREFIX [for TIME] [reset] | del PREFIX | "
		"save FILE|-\n");
	return 1;
}

static int fail(const char *what, int rc)
{
	fprintf(stderr, "headgate: %s: %s\n", what, strerror(-rc));
	return 1;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void print_prefix(FILE *out, const struct conf_prefix *p)
{
	struct addr a = { .in.sin_family = p->is_v6 ? AF_INET6 : AF_INET };
	char text[ADDR_TEXT_MAX];

	if (p->is_v6)
		memcpy(&a.in6.sin6_addr, p->addr, 16);
	else
		memcpy(&a.in.sin_addr, p->addr, 4);
	addr_format_ip(&a, text, sizeof(text));
	fprintf(out, "%s/%u", text, p->bits);
}

static int read_prefix(const char *text, struct conf_prefix *ret)
{
	struct addr_prefix p;

	if (addr_prefix_parse(str_from_cstr(text), &p) != 0) {
		fprintf(stderr,
			"headgate: deny: '%s' is no address or prefix such as 192.0.2.0/24 or "
			"2001:db8::/32\n",
			text);
		return -EINVAL;
	}
	*ret = conf_prefix_of(&p);
	return 0;
}

/* --- list, save ------------------------------------------------------------------------------------- */

static void print_json(const struct dp_deny_info *list, size_t n, uint64_t now)
{
	putchar('[');
	for (size_t i = 0; i < n; i++) {
		printf("%s{\"prefix\":\"", i ? "," : "");
		print_prefix(stdout, &list[i].prefix);
		printf("\",\"origin\":\"%s\",\"reset\":%s,\"seconds_left\":",
		       dp_deny_origin_name(list[i].origin), list[i].is_told ? "true" : "false");
		if (list[i].expires_ns)
			printf("%.3f}", (double)(list[i].expires_ns - now) / 1e9);
		else
			printf("null}");
	}
	puts("]");
}

static void print_table(const struct dp_deny_info *list, size_t n, uint64_t now)
{
	for (size_t i = 0; i < n; i++) {
		print_prefix(stdout, &list[i].prefix);
		printf(" %s%s", dp_deny_origin_name(list[i].origin),
		       list[i].is_told ? " reset" : "");
		if (list[i].expires_ns)
			printf(" %.1fs", (double)(list[i].expires_ns - now) / 1e9);
		putchar('\n');
	}
}

static int deny_list(struct dp *dp, int argc, char **argv)
{
	bool is_json = argc == 1 && strcmp(argv[0], "--json") == 0;
	uint64_t now = now_ns(); /* before the walk: nothing it finds is over by this clock */
	struct dp_deny_info *list;
	size_t n;
	int rc;

	if (argc > is_json)
		return usage();
	rc = dp_deny_list(dp, &list, &n);
	if (rc != 0)
		return fail("deny list", rc);
	if (is_json)
		print_json(list, n, now);
	else
		print_table(list, n, now);
	mem_free(list);
	return fflush(stdout) == 0 ? 0 : fail("deny list", -errno);
}

static void save_lines(FILE *out, const struct dp_deny_info *list, size_t n)
{
	fputs("# denied prefixes, for 'xdp deny-file'; those that end by themselves are left out\n",
	      out);
	for (size_t i = 0; i < n; i++) {
		if (list[i].expires_ns)
			continue;
		print_prefix(out, &list[i].prefix);
		fputc('\n', out);
	}
}

/* Beside the file first, so that a reload never reads half of it. */
static int save_file(const char *path, const struct dp_deny_info *list, size_t n)
{
	size_t size = strlen(path) + sizeof(".new");
	char *temp = mem_alloc(size);
	FILE *out;
	int rc = 0;

	if (!temp)
		return -ENOMEM;
	snprintf(temp, size, "%s.new", path);
	out = fopen(temp, "we");
	if (!out) {
		rc = -errno;
		mem_free(temp);
		return rc;
	}
	save_lines(out, list, n);
	if (fflush(out) != 0 || fsync(fileno(out)) != 0)
		rc = -errno;
	if (fclose(out) != 0 && rc == 0)
		rc = -errno;
	if (rc == 0 && rename(temp, path) != 0)
		rc = -errno;
	if (rc != 0)
		(void)unlink(temp);
	mem_free(temp);
	return rc;
}

static int deny_save(struct dp *dp, int argc, char **argv)
{
	struct dp_deny_info *list;
	size_t n;
	int rc;

	if (argc != 1)
		return usage();
	rc = dp_deny_list(dp, &list, &n);
	if (rc != 0)
		return fail("deny save", rc);
	if (strcmp(argv[0], "-") == 0) {
		save_lines(stdout, list, n);
		rc = fflush(stdout) == 0 ? 0 : -errno;
	} else {
		rc = save_file(argv[0], list, n);
	}
	mem_free(list);
	return rc == 0 ? 0 : fail(argv[0], rc);
}

/* --- add, del --------------------------------------------------------------------------------------- */

static int deny_add(struct dp *dp, int argc, char **argv)
{
	bool is_told = argc > 1 && strcmp(argv[argc - 1], "reset") == 0;
	struct conf_prefix p;
	uint64_t ttl = 0;
	int rc;

	if (is_told)
		argc--;
	if ((argc != 1 && argc != 3) || (argc == 3 && strcmp(argv[1], "for") != 0))
		return usage();
	if (read_prefix(argv[0], &p) != 0)
		return 1;
	if (argc == 3 && (str_to_duration(str_from_cstr(argv[2]), 1000000000ull, &ttl) != 0 ||
			  !ttl || ttl > 100ull * 365 * 86400 * 1000000000ull)) {
		fprintf(stderr,
			"headgate: deny: '%s' is no time such as 60s, 10m or 1d (plain numbers "
			"are seconds)\n",
			argv[2]);
		return 1;
	}
	rc = dp_deny_add(dp, &p, ttl ? now_ns() + ttl : 0, HG_DENY_TOOL, is_told);
	if (rc < 0)
		return fail(argv[0], rc);
	if (rc == 0)
		printf("%s was denied already; the longer time counts\n", argv[0]);
	return 0;
}

static int deny_del(struct dp *dp, int argc, char **argv)
{
	struct conf_prefix p;
	int rc;

	if (argc != 1)
		return usage();
	if (read_prefix(argv[0], &p) != 0)
		return 1;
	rc = dp_deny_del(dp, &p);
	if (rc == -ENOENT) {
		fprintf(stderr,
			"headgate: %s is not in the list of denied prefixes ('headgate deny list'; "
			"a "
			"prefix is removed as it was added)\n",
			argv[0]);
		return 1;
	}
	return rc == 0 ? 0 : fail(argv[0], rc);
}

int tool_deny(struct tool *t, int argc, char **argv)
{
	static const struct {
		const char *word;
		int (*run)(struct dp *dp, int argc, char **argv);
	} words[] = { { "list", deny_list },
		      { "add", deny_add },
		      { "del", deny_del },
		      { "save", deny_save } };
	struct dp_opts o = { .bpffs = t->bpffs, .role = HG_ROLE_EDGE, .adopt_only = true };
	struct dp *dp;
	struct err err;
	int status;

	for (unsigned i = 0; i < ARRAY_SIZE(words) && argc > 1; i++) {
		if (strcmp(argv[1], words[i].word) != 0)
			continue;
		if (dp_open(&o, &dp, &err) != 0) {
			fprintf(stderr, "headgate: %s\n", err.text);
			return 1;
		}
		status = words[i].run(dp, argc - 2, argv + 2);
		dp_close(dp);
		return status;
	}
	return usage();
}
