/* SPDX-License-Identifier: BSD-2-Clause */
/* Rings of the log: order, room for new lines, readers that are late, reloads. links: base */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log_priv.h"
#include "base/log_store.h"

static const struct str ring = { "r", 1 };

static void set_ring(uint32_t size)
{
	const struct log_store_spec spec = { ring, STR("text"), size, STR("") };

	assert_int_equal(log_stores_set(&spec, 1), 0);
}

static void put(unsigned from, unsigned to)
{
	char text[32];

	for (unsigned i = from; i < to; i++) {
		int n = snprintf(text, sizeof(text), "line %u", i);

		log_store_put(ring, str_make(text, (size_t)n));
	}
}

static const char *next(struct log_cursor *at)
{
	static char text[128];
	int n = log_store_next(ring, at, text, sizeof(text) - 1);

	if (n < 0)
		return n == -EAGAIN ? "nothing" : "no ring";
	text[n] = '\0';
	return text;
}

static uint64_t dropped(void)
{
	struct log_store_spec spec;
	uint64_t n = 0;

	assert_true(log_store_info(0, &spec, &n));
	return n;
}

/* --- in a file --- */

static const char *printed(const char *path)
{
	static char text[4096];
	FILE *f = fmemopen(text, sizeof(text), "w");
	int rc;

	text[0] = '\0'; /* fmemopen() leaves it alone when nothing is written */
	rc = log_store_file_print(path, f);
	fclose(f);
	return rc == -EBADMSG ? "no ring" : rc ? "error" : text;
}

static void in_a_file(void **state)
{
	char dir[] = "/tmp/hg-ring-XXXXXX", path[64], bak[80];
	struct log_store_spec spec = { ring, STR("text"), 64, STR("") };
	struct log_cursor at = { 0 };
	int fd;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/ring", dir);
	snprintf(bak, sizeof(bak), "%s.bak", path);
	spec.path = str_from_cstr(path);
	/* What is no ring is left alone. */
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_int_equal(write(fd, "precious", 8), 8);
	close(fd);
	assert_string_equal(printed(path), "no ring");
	assert_int_equal(log_stores_set(&spec, 1), -EEXIST);
	assert_int_equal(unlink(path), 0);
	/* Nobody has to close it for others to read it, before and after it has come round. */
	assert_int_equal(log_stores_set(&spec, 1), 0);
	assert_string_equal(printed(path), "");
	put(0, 3);
	assert_string_equal(printed(path), "line 0\nline 1\nline 2\n");
	put(3, 30);
	assert_string_equal(printed(path),
			    "line 23\nline 24\nline 25\nline 26\nline 27\nline 28\nline 29\n");
	/* A reload goes on with it, */
	assert_int_equal(log_stores_set(&spec, 1), 0);
	put(30, 31);
	assert_non_null(strstr(printed(path), "line 29\nline 30\n"));
	assert_int_equal(access(bak, F_OK), -1);
	/* or takes its lines into a larger one; the other is kept. */
	spec.size = 128;
	assert_int_equal(log_stores_set(&spec, 1), 0);
	assert_non_null(strstr(printed(path), "line 29\nline 30\n"));
	assert_non_null(strstr(printed(bak), "line 29\nline 30\n"));
	while (strcmp(next(&at), "line 30") != 0)
		assert_string_not_equal(next(&at), "nothing");
	assert_int_equal(log_stores_set(NULL, 0), 0);
	/* A next process begins anew, and keeps what it finds. */
	assert_int_equal(log_stores_set(&spec, 1), 0);
	assert_string_equal(printed(path), "");
	assert_non_null(strstr(printed(bak), "line 30\n"));
	/* Lengths that cannot be. */
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8, 24), 8);
	close(fd);
	assert_string_equal(printed(path), "no ring");
	assert_int_equal(log_stores_set(NULL, 0), 0);
	unlink(path);
	unlink(bak);
	rmdir(dir);
}

static void in_order(void **state)
{
	struct log_cursor at = { 0 };

	set_ring(1024);
	assert_string_equal(next(&at), "nothing");
	put(0, 3);
	assert_string_equal(next(&at), "line 0");
	assert_string_equal(next(&at), "line 1");
	put(3, 4);
	assert_string_equal(next(&at), "line 2");
	assert_string_equal(next(&at), "line 3");
	assert_string_equal(next(&at), "nothing");
	assert_int_equal(log_store_end(ring, &at), 0);
	put(4, 5);
	assert_string_equal(next(&at), "line 4");
}

static void oldest_make_room(void **state)
{
	struct log_cursor begin = { 0 }, late = { 0 };
	char text[32];

	set_ring(100); /* lines of 6 + 2 bytes: 12 of them */
	put(0, 1);
	assert_string_equal(next(&late), "line 0");
	/* Line by line around the end of the memory many times; the newest can always be read. */
	for (unsigned i = 1; i < 1000; i++) {
		struct log_cursor end;

		assert_int_equal(log_store_end(ring, &end), 0);
		put(i, i + 1);
		snprintf(text, sizeof(text), "line %u", i);
		assert_string_equal(next(&end), text);
	}
	/* Eight bytes and two: ten lines fit. Who begins has missed nothing, who was there 989 of them. */
	assert_string_equal(next(&begin), "line 990");
	assert_int_equal(dropped(), 0);
	assert_string_equal(next(&late), "line 990");
	assert_int_equal(dropped(), 989);
	for (unsigned i = 991; i < 1000; i++) {
		snprintf(text, sizeof(text), "line %u", i);
		assert_string_equal(next(&late), text);
	}
	assert_string_equal(next(&late), "nothing");
}

static void too_long_a_line(void **state)
{
	struct log_cursor at = { 0 };

	set_ring(10);
	log_store_put(ring, STR("12345678"));
	log_store_put(ring, STR("123456789"));
	assert_int_equal(dropped(), 1);
	assert_string_equal(next(&at), "12345678");
	assert_string_equal(next(&at), "nothing");
}

/* A reload keeps lines and readers' places, as far as the new size has room. */
static void sizes_change(void **state)
{
	struct log_cursor at = { 0 }, begin = { 0 };

	set_ring(64); /* 8 lines */
	put(0, 9);
	assert_string_equal(next(&at), "line 1");
	set_ring(640);
	put(9, 10);
	assert_string_equal(next(&at), "line 2");
	set_ring(24);
	assert_string_equal(next(&begin), "line 7");
	assert_string_equal(next(&at), "line 7");
	assert_string_equal(next(&at), "line 8");
	assert_string_equal(next(&at), "line 9");
	assert_string_equal(next(&at), "nothing");
	assert_int_equal(log_stores_set(NULL, 0), 0);
	assert_string_equal(next(&at), "no ring");
	assert_int_equal(log_store_end(ring, &at), -ENOENT);
	/* The name again, and a place in the ring that is gone. */
	set_ring(64);
	put(1, 2);
	assert_string_equal(next(&at), "line 1");
}

static void from_threads(void **state)
{
	struct log_target t = { .transport = LOG_TO_STORE,
				.store = "r",
				.format = LOG_FMT_PRIORITY,
				.facility = 16,
				.max_level = LOG_LVL_DEBUG,
				.max_len = 1024 };
	struct log_cursor at = { 0 };
	uint64_t n = 0;
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	set_ring(1024);
	log_stores_notify(fd);
	log_emit(&t, 1, LOG_LVL_INFO, STR_NULL, STR_NULL, STR("hello"));
	strcpy(t.store, "other"); /* no such ring: the line is nobody's */
	log_emit(&t, 1, LOG_LVL_INFO, STR_NULL, STR_NULL, STR("hello"));
	while (log_drain())
		;
	assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
	assert_string_equal(next(&at), "<134>hello");
	assert_string_equal(next(&at), "nothing");
	log_stores_notify(-1);
	close(fd);
}

static int teardown(void **state)
{
	return log_stores_set(NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(in_order, teardown),
		cmocka_unit_test_teardown(in_a_file, teardown),
		cmocka_unit_test_teardown(oldest_make_room, teardown),
		cmocka_unit_test_teardown(too_long_a_line, teardown),
		cmocka_unit_test_teardown(sizes_change, teardown),
		cmocka_unit_test_teardown(from_threads, teardown),
	};
	int r;

	if (log_init() || log_thread_enter())
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	log_thread_leave();
	log_writer_stop();
	return r;
}
