/* SPDX-License-Identifier: BSD-2-Clause */
/* Error texts and the end of the process when an invariant of ours is broken. Any thread. */
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return code;
	va_start(ap, fmt);
	if (vsnprintf(e->text, sizeof(e->text), fmt, ap) < 0)
		e->text[0] = '\0';
	va_end(ap);
	return code;
}

int err_prefix(struct err *e, int code, const char *fmt, ...)
{
	char text[sizeof(e->text)];
	size_t n, len;
	va_list ap;
	int r;

	if (!e)
		return code;
	va_start(ap, fmt);
	r = vsnprintf(text, sizeof(text) - 2, fmt, ap);
	va_end(ap);
	if (r < 0)
		return code;
	n = strlen(text);
	memcpy(text + n, ": ", 2);
	n += 2;
	len = strnlen(e->text, sizeof(e->text) - 1);
	if (len > sizeof(text) - 1 - n)
		len = sizeof(text) - 1 - n;
	memcpy(text + n, e->text, len);
	text[n + len] = '\0';
	memcpy(e->text, text, n + len + 1);
	return code;
}

void bug_on_failed(const char *cond, const char *file, int line, const char *func)
{
	fprintf(stderr, "headgate: internal error: %s (%s:%d, %s)\n", cond, file, line, func);
	abort();
}
