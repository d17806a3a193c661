/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Error conventions. Functions return int: 0 or a negative errno. A text for a person goes through
 * `struct err`, filled by the lowest function that knows what went wrong and printed by the highest;
 * libraries never print. `bool` is only for predicates without side effects.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

#define HG_WUR __attribute__((warn_unused_result))
#define HG_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define HG_COLD __attribute__((cold, noinline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

/* One message for a person. Fixed size: making an error can never itself fail. */
struct err {
	char text[512];
};

/* Writes the message (truncating); returns `code`, so that `return err_set(e, -EINVAL, …)` reads well. `e` may be NULL. */
int err_set(struct err *e, int code, const char *fmt, ...) HG_PRINTF(3, 4);
/* Puts "context: " before the message that is there already; returns `code`. */
int err_prefix(struct err *e, int code, const char *fmt, ...) HG_PRINTF(3, 4);

/* A broken invariant of ours (never bad input, never a failed system call). On in all builds. */
#define BUG_ON(cond)                                                           \
	do {                                                                   \
		if (unlikely(cond))                                            \
			bug_on_failed(#cond, __FILE__, __LINE__, __func__);    \
	} while (0)
void bug_on_failed(const char *cond, const char *file, int line, const char *func)
	__attribute__((noreturn, cold));

#endif
