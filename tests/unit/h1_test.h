/* SPDX-License-Identifier: BSD-2-Clause */
/* What the HTTP/1 unit tests share: cmocka, slices in assertions, a message with its arena. */
#ifndef TESTS_UNIT_H1_TEST_H
#define TESTS_UNIT_H1_TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "http/h1_priv.h"

#define assert_str(s, expected)                                                                   \
	do {                                                                                      \
		struct str got_ = (s), want_ = str_from_cstr(expected);                           \
		if (!str_is_eq(got_, want_))                                                      \
			fail_msg("got \"" STR_FMT "\", expected \"%s\"", STR_ARG(got_), want_.p); \
	} while (0)

struct fixture {
	struct arena arena;
	struct http_msg msg;
};

static inline void fixture_begin(struct fixture *f, unsigned max_fields)
{
	arena_init(&f->arena, 4096);
	assert_int_equal(http_msg_init(&f->msg, &f->arena, max_fields), 0);
}

static inline void fixture_end(struct fixture *f)
{
	arena_free(&f->arena);
}

/* A copy in a block of exactly that size, so that AddressSanitizer sees every byte read beyond it. */
static inline char *exact_copy(const char *p, size_t n)
{
	char *copy = malloc(n ? n : 1);

	assert_non_null(copy);
	memcpy(copy, p, n);
	return copy;
}

static inline int read_request(struct http_msg *m, struct str in, unsigned flags,
			       enum http_error *ret_error)
{
	struct h1_head h = { .flags = (uint8_t)flags };
	int n = h1_read_request(&h, in, m);

	*ret_error = (enum http_error)h.error;
	return n;
}

#endif
