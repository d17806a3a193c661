/* SPDX-License-Identifier: BSD-2-Clause */
/* links: ctl lb net conf expr http ev base */
/*
 * Checks that speak SMTP, MySQL, PostgreSQL, Redis, LDAP and TLS: what they send, and what they make of answers: good ones, refusals,
 * pieces, and garbage. The functions under test see a buffer and nothing else.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctl/health_priv.h"

void ctl_server_changed(struct ctl *ctl, struct server *s)
{
}

void worker_shutdown_server(struct worker *w, struct server *s, char code)
{
}

static struct arena arena;
static struct check_step steps[CHECK_KIND_STEPS];
static struct check_prog prog;

static int setup(void **state)
{
	arena_init(&arena, 1024);
	return 0;
}

static int teardown(void **state)
{
	arena_free(&arena);
	return 0;
}

static void plan(enum conf_check_type type, const char *user, bool is_pre_41)
{
	struct conf_check c = { .type = (uint8_t)type,
				.user = (char *)(uintptr_t)user,
				.is_pre_41 = is_pre_41 };

	memset(steps, 0, sizeof(steps));
	prog = (struct check_prog){ .steps = steps, .cap_steps = CHECK_KIND_STEPS };
	assert_int_equal(check_plan_kind(&arena, &prog, &c), 0);
	assert_int_equal(steps[0].op, CHECK_OP_CONNECT);
}

/* In memory that ends where the text does. */
static enum check_verdict judge(unsigned step, const char *bytes, size_t n, bool is_last,
				struct check_result *res)
{
	char *copy = malloc(n + 1);
	enum check_verdict v;

	assert_true(step < prog.n_steps && steps[step].judge);
	memset(res, 0, sizeof(*res));
	memcpy(copy + 1, bytes, n);
	v = steps[step].judge(str_make(copy + 1, n), is_last, res);
	free(copy);
	return v;
}

struct reply_case {
	enum conf_check_type type;
	const char *user;
	unsigned step;
	const char *bytes;
	size_t n;
	enum check_verdict verdict;
	enum check_status status;
	unsigned code;
	const char *desc;
};
#define BYTES(s) s, sizeof(s) - 1
#define OK	 CHECK_MATCH
#define NO	 CHECK_MISMATCH

static const struct reply_case cases[] = {
	{ CHECK_SSL_HELLO, NULL, 2, BYTES("\x16\x03\x03\0\x31"), OK, CHECK_STATUS_L6OK, 0, "" },
	{ CHECK_SSL_HELLO, NULL, 2, BYTES("\x15\x03\x01\0\x02\x02\x28"), OK, CHECK_STATUS_L6OK, 0,
	  "" },
	{ CHECK_SSL_HELLO, NULL, 2, BYTES("HTTP/1.0 400"), NO, CHECK_STATUS_L6RSP, 0, "" },
	{ CHECK_SSL_HELLO, NULL, 2, BYTES("\x16\x03"), NO, CHECK_STATUS_L6RSP, 0, "" },
	{ CHECK_SMTP, NULL, 1, BYTES("220 mx ESMTP\r\n"), OK, CHECK_STATUS_L7OK, 220, "mx ESMTP" },
	{ CHECK_SMTP, NULL, 1, BYTES("220-mx\r\n220 ready\r\n"), OK, CHECK_STATUS_L7OK, 220,
	  "ready" },
	{ CHECK_SMTP, NULL, 1, BYTES("554 go away\r\n"), NO, CHECK_STATUS_L7STS, 554, "go away" },
	{ CHECK_SMTP, NULL, 1, BYTES("SSH-2.0-x\r\n"), NO, CHECK_STATUS_L7RSP, 0, "SSH-2.0-x" },
	{ CHECK_SMTP, NULL, 3, BYTES("250-mx\r\n250-SIZE\r\n250 HELP\r\n"), OK, CHECK_STATUS_L7OK,
	  250, "HELP" },
	{ CHECK_SMTP, NULL, 3, BYTES("250-mx\r\n550 HELP\r\n"), NO, CHECK_STATUS_L7STS, 550,
	  "HELP" },
	{ CHECK_SMTP, NULL, 3, BYTES("250-mx\r\n"), NO, CHECK_STATUS_L7RSP, 250, "" },
	{ CHECK_REDIS, NULL, 2, BYTES("+PONG\r\n"), OK, CHECK_STATUS_L7OK, 0,
	  "Redis server is ok" },
	{ CHECK_REDIS, NULL, 2, BYTES("-NOAUTH Authentication required.\r\n"), NO,
	  CHECK_STATUS_L7STS, 0, "-NOAUTH Authentication required." },
	{ CHECK_REDIS, NULL, 2, BYTES(""), NO, CHECK_STATUS_L7STS, 0, "" },
	{ CHECK_MYSQL, NULL, 1,
	  BYTES("\x0b\0\0\0\x0a"
		"8.0.36\0abc"),
	  OK, CHECK_STATUS_L7OK, 0, "8.0.36" },
	{ CHECK_MYSQL, NULL, 1, BYTES("\x0b\0\0\0\xff\x10\x04Too many"), NO, CHECK_STATUS_L7STS,
	  1040, "Too many" },
	{ CHECK_MYSQL, NULL, 1, BYTES("\xff\xff\xff\0garbage"), NO, CHECK_STATUS_L7RSP, 0,
	  "MySQL packet of invalid length" },
	{ CHECK_MYSQL, NULL, 1, BYTES("\0\0\0\0"), NO, CHECK_STATUS_L7RSP, 0,
	  "MySQL packet of invalid length" },
	{ CHECK_MYSQL, NULL, 1,
	  BYTES("\x0b\0\0\0\x0a"
		"8."),
	  NO, CHECK_STATUS_L7RSP, 0, "" },
	{ CHECK_MYSQL, "hg", 3, BYTES("\x07\0\0\x02\0\0\0\x02\0\0\0"), OK, CHECK_STATUS_L7OK, 0,
	  "MySQL server is ok" },
	{ CHECK_MYSQL, "hg", 3, BYTES("\x01\0\0\x02\xfe"), OK, CHECK_STATUS_L7OK, 0,
	  "MySQL server is ok" },
	{ CHECK_MYSQL, "hg", 3,
	  BYTES("\x09\0\0\x02\xff\x15\x04"
		"denied"),
	  NO, CHECK_STATUS_L7STS, 1045, "denied" },
	{ CHECK_MYSQL, "hg", 3, BYTES("\x01\0\0\x02\x55"), NO, CHECK_STATUS_L7RSP, 0,
	  "MySQL answer of unknown kind" },
	{ CHECK_PGSQL, "hg", 2, BYTES("R\0\0\0\x0c\0\0\0\x05salt"), OK, CHECK_STATUS_L7OK, 0,
	  "PostgreSQL server is ok" },
	{ CHECK_PGSQL, "hg", 2, BYTES("R\0\0\0\x08\0\0\0\0"), OK, CHECK_STATUS_L7OK, 0,
	  "PostgreSQL server is ok" },
	{ CHECK_PGSQL, "hg", 2, BYTES("E\0\0\0\x20SFATAL\n"), NO, CHECK_STATUS_L7RSP, 0, "FATAL" },
	{ CHECK_LDAP, NULL, 2, BYTES("\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00"),
	  OK, CHECK_STATUS_L7OK, 0, "Success" },
	/* Lengths in the long form, as some servers write them; what follows the result may still be on its way. */
	{ CHECK_LDAP, NULL, 2,
	  BYTES("\x30\x84\x00\x00\x00\x10\x02\x01\x01\x61\x84\x00\x00\x00\x07\x0a\x01\x00"), OK,
	  CHECK_STATUS_L7OK, 0, "Success" },
	{ CHECK_LDAP, NULL, 2, BYTES("\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x35\x04\x00\x04\x00"),
	  NO, CHECK_STATUS_L7STS, 53, "LDAP result is not success" },
	{ CHECK_LDAP, NULL, 2, BYTES("\x30\x0c\x02\x01\x02\x61\x07"), NO, CHECK_STATUS_L7RSP, 0,
	  "Not LDAPv3 protocol" },
	{ CHECK_LDAP, NULL, 2, BYTES("\x30\x85\x01\x01\x01\x01\x01"), NO, CHECK_STATUS_L7RSP, 0,
	  "Not LDAPv3 protocol" },
	{ CHECK_LDAP, NULL, 2, BYTES("HTTP/1.1 400"), NO, CHECK_STATUS_L7RSP, 0,
	  "Not LDAPv3 protocol" },
	{ CHECK_LDAP, NULL, 2, BYTES("\x30\x0c\x02\x01"), NO, CHECK_STATUS_L7RSP, 0, "" },
	{ CHECK_PGSQL, "hg", 2, BYTES("HTTP/1.1 400 Bad Request"), NO, CHECK_STATUS_L7STS, 0,
	  "PostgreSQL unknown error" },
};

static void test_replies(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct reply_case *c = &cases[i];
		struct check_result res;
		enum check_verdict v;

		plan(c->type, c->user, false);
		v = judge(c->step, c->bytes, c->n, true, &res);
		if (v != c->verdict || res.status != c->status || res.code != c->code ||
		    strcmp(res.desc, c->desc) != 0)
			fail_msg("case %zu: verdict %d status %d code %u desc '%s'", i, v,
				 res.status, res.code, res.desc);
		/* In pieces: a verdict that stands before the end is the one of the whole. */
		for (size_t n = 0; n < c->n; n++) {
			v = judge(c->step, c->bytes, n, false, &res);
			if (v != CHECK_MORE && v != c->verdict)
				fail_msg("case %zu: verdict %d after %zu bytes", i, v, n);
		}
	}
}

static void test_requests(void **state)
{
	static const char login[] = "\x24\0\0\x01\0\x82\0\0\0\0\x01\0\x21";

	plan(CHECK_SMTP, NULL, false);
	assert_true(str_is_eq(steps[2].bytes, STR("HELO localhost\r\n")));
	plan(CHECK_SMTP, "EHLO edge.example", false);
	assert_true(str_is_eq(steps[2].bytes, STR("EHLO edge.example\r\n")));
	plan(CHECK_PGSQL, "hg", false);
	assert_true(str_is_eq(steps[1].bytes, str_make(BYTES("\0\0\0\x11\0\3\0\0user\0hg\0\0"))));
	plan(CHECK_MYSQL, "hg", false);
	assert_memory_equal(steps[2].bytes.p, login, sizeof(login) - 1);
	/* Two packets, lengths as announced: login, quit. */
	assert_int_equal((unsigned char)steps[2].bytes.p[0] + 4 + 5, steps[2].bytes.len);
	assert_memory_equal(steps[2].bytes.p + steps[2].bytes.len - 5, "\1\0\0\0\1", 5);
	assert_memory_equal(steps[2].bytes.p + 4 + 32, "hg\0\0", 4);
	plan(CHECK_MYSQL, "hg", true);
	assert_memory_equal(steps[2].bytes.p, "\x09\0\0\x01\0\x80\0\0\x01hg\0\0", 13);
	plan(CHECK_LDAP, NULL, false);
	assert_true(
		str_is_eq(steps[1].bytes,
			  str_make("\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\0\x80\0", 14)));
	plan(CHECK_SSL_HELLO, NULL, false);
	assert_int_equal(steps[1].bytes.len, 5 + 0x79);
	assert_int_equal(prog.tout_status, CHECK_STATUS_L6TOUT);
}

/* Whatever comes: an end, and no byte read that did not come. */
static void test_garbage(void **state)
{
	uint64_t x = 88172645463325252ull;

	for (unsigned round = 0; round < 40000; round++) {
		const struct reply_case *c = &cases[round % ARRAY_SIZE(cases)];
		struct check_result res;
		char bytes[64];
		size_t n;

		for (size_t i = 0; i < sizeof(bytes); i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			bytes[i] = (char)(x >> 24);
		}
		n = (unsigned)(x >> 40) % sizeof(bytes);
		if (c->n < n && x & 1)
			memcpy(bytes, c->bytes, c->n);
		plan(c->type, c->user, false);
		assert_int_not_equal(judge(c->step, bytes, n, true, &res), CHECK_MORE);
		judge(c->step, bytes, n, false, &res);
		if (round % 256 == 0) {
			arena_free(&arena);
			arena_init(&arena, 1024);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_replies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_requests, setup, teardown),
		cmocka_unit_test_setup_teardown(test_garbage, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
