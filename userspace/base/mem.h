/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory with named lifetimes. All allocation of the daemon goes through mem_alloc() and its kin, so
 * that a test can make the n-th one fail. Arenas and pools belong to one thread at a time.
 */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* malloc, calloc, realloc, free: NULL when out of memory or when a test wants it. */
HG_WUR void *mem_alloc(size_t size);
HG_WUR void *mem_zalloc(size_t size);
HG_WUR void *mem_realloc(void *p, size_t size);
HG_WUR char *mem_strdup(struct str s); /* NUL-terminated copy */
void mem_free(void *p);

/* Tests: the n-th allocation from now (1 = the next) fails once; 0 turns it off. Per thread. */
void mem_fail_at(uint64_t n);
/* Allocations of this thread since the last mem_fail_at(). */
uint64_t mem_alloc_count(void);

/*
 * Arena: bump allocation in chunks, freed as a whole. Alignment 16. arena_reset() keeps the first
 * chunk, so a stream that fits in it allocates nothing in steady state.
 */
struct arena_chunk;
struct arena {
	struct arena_chunk *chunk; /* newest first */
	char *pos, *end; /* free part of the newest chunk */
	uint32_t chunk_size; /* of the next chunk, bytes */
	bool is_mapped; /* see arena_init_mapped() */
};

void arena_init(struct arena *a, size_t chunk_size);
/*
 * For what is large, made by a reload and freed by a later one: the chunks are mappings of their own, so that freeing
 * returns them to the system whatever was allocated meanwhile. In the heap each generation would leave holes between
 * what lives longer. Chunks double up to 1 MiB, so that their number stays small. Same failures as arena_init()'s.
 */
void arena_init_mapped(struct arena *a, size_t chunk_size);
void arena_free(struct arena *a); /* everything; may be used again */
void arena_reset(struct arena *a); /* everything but the first chunk */
HG_WUR void *arena_alloc(struct arena *a, size_t size); /* not zeroed; NULL: out of memory */
HG_WUR void *arena_zalloc(struct arena *a, size_t size);
HG_WUR char *arena_strdup(struct arena *a, struct str s); /* NUL-terminated */
/* Copy of `s` in the arena; `ret->p` is NULL when out of memory and `s` was not NULL. */
struct str arena_str(struct arena *a, struct str s);
/* printf into the arena; a slice with p == NULL when out of memory. NUL-terminated beyond its length. */
struct str arena_printf(struct arena *a, const char *fmt, ...) HG_PRINTF(2, 3);
size_t arena_size(const struct arena *a); /* bytes taken from the system */

/* Pool: fixed-size objects on a free list, one thread. Objects are not zeroed. */
struct pool {
	const char *name;
	size_t size;
	void *free; /* singly linked through the first word */
	unsigned n_free, n_used;
	unsigned max_free; /* above it pool_put() gives memory back to the system */
};

void pool_init(struct pool *p, const char *name, size_t size, unsigned max_free);
HG_WUR void *pool_get(struct pool *p); /* NULL: out of memory */
void pool_put(struct pool *p, void *obj); /* NULL is ignored */
void pool_trim(struct pool *p); /* frees everything on the free list */

#endif
