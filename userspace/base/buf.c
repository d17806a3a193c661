/* SPDX-License-Identifier: BSD-2-Clause */
/* Byte queue: the parts that copy. One thread; the memory is the caller's. */
#include "base/buf.h"

#include <stdio.h>

void buf_compact(struct buf *b)
{
	uint32_t n = buf_len(b);

	if (b->head == 0)
		return;
	if (n)
		memmove(b->mem, b->mem + b->head, n);
	b->head = 0;
	b->tail = n;
}

bool buf_put(struct buf *b, struct str s)
{
	if (s.len > buf_room(b)) {
		if (s.len > b->cap - buf_len(b))
			return false;
		buf_compact(b);
	}
	if (s.len)
		memcpy(buf_tail(b), s.p, s.len);
	b->tail += (uint32_t)s.len;
	return true;
}

bool buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(buf_tail(b), buf_room(b), fmt, ap);
	va_end(ap);
	if (n < 0)
		return false;
	if ((uint32_t)n < buf_room(b)) {
		b->tail += (uint32_t)n;
		return true;
	}
	if ((uint32_t)n >= b->cap - buf_len(b))
		return false;
	buf_compact(b);
	va_start(ap, fmt);
	n = vsnprintf(buf_tail(b), buf_room(b), fmt, ap);
	va_end(ap);
	/* An argument may point into this queue and have moved: then the text may differ. */
	if (n < 0 || (uint32_t)n >= buf_room(b))
		return false;
	b->tail += (uint32_t)n;
	return true;
}
