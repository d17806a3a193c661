/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Byte queue over one block of memory: readable bytes are contiguous, so is the room behind them.
 * Does not own its memory: the caller gives it (from a pool, an arena, the stack). One thread.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct buf {
	char *mem;
	uint32_t cap; /* bytes at mem */
	uint32_t head, tail; /* readable: mem[head .. tail) */
};

static inline void buf_init(struct buf *b, void *mem, uint32_t cap)
{
	b->mem = mem;
	b->cap = cap;
	b->head = 0;
	b->tail = 0;
}

static inline uint32_t buf_len(const struct buf *b)
{
	return b->tail - b->head;
}

static inline uint32_t buf_room(const struct buf *b)
{
	return b->cap - b->tail;
}

static inline char *buf_data(const struct buf *b)
{
	return b->mem + b->head;
}

static inline char *buf_tail(const struct buf *b)
{
	return b->mem + b->tail;
}

static inline struct str buf_str(const struct buf *b)
{
	return str_make(b->mem + b->head, b->tail - b->head);
}

/* After n bytes were written at buf_tail(); n <= buf_room(). */
static inline void buf_commit(struct buf *b, uint32_t n)
{
	BUG_ON(n > b->cap - b->tail);
	b->tail += n;
}

/* Drops n readable bytes from the front; an empty queue starts over at 0. */
static inline void buf_consume(struct buf *b, uint32_t n)
{
	BUG_ON(n > b->tail - b->head);
	b->head += n;
	if (b->head == b->tail) {
		b->head = 0;
		b->tail = 0;
	}
}

static inline void buf_clear(struct buf *b)
{
	b->head = 0;
	b->tail = 0;
}

/* Moves the readable bytes to the start so that all room is behind them. */
void buf_compact(struct buf *b);
/* Appends; false and nothing written when there is no room for all of it (compacts if that helps). */
HG_WUR bool buf_put(struct buf *b, struct str s);
/* The same, formatted; needs room for one byte more than the text (printf's NUL). */
HG_WUR bool buf_printf(struct buf *b, const char *fmt, ...) HG_PRINTF(2, 3);

/* Big-endian integers at any alignment. */
static inline uint16_t get_be16(const void *p)
{
	const uint8_t *b = p;

	return (uint16_t)(b[0] << 8 | b[1]);
}

static inline uint32_t get_be32(const void *p)
{
	const uint8_t *b = p;

	return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static inline void put_be16(void *p, uint16_t v)
{
	uint8_t *b = p;

	b[0] = (uint8_t)(v >> 8);
	b[1] = (uint8_t)v;
}

static inline void put_be32(void *p, uint32_t v)
{
	uint8_t *b = p;

	b[0] = (uint8_t)(v >> 24);
	b[1] = (uint8_t)(v >> 16);
	b[2] = (uint8_t)(v >> 8);
	b[3] = (uint8_t)v;
}

#endif
