/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocation with failure injection, arenas, pools. Under AddressSanitizer what is free in an arena
 * or on a pool's free list is poisoned, so that use after reset or put is found as with malloc.
 */
#include "base/mem.h"
#include "base/sanitize.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if HAS_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#define ARENA_ALIGN ((size_t)16)
#define MAP_UNIT \
	((size_t)4096) /* mmap() rounds up to the page itself; this keeps the rest of it in use */
#define CHUNK_MAX (1u << 20) /* of a mapped arena */

static _Thread_local uint64_t n_allocs;
static _Thread_local uint64_t fail_at;

static bool is_failure_wanted(void)
{
	return unlikely(++n_allocs == fail_at);
}

void mem_fail_at(uint64_t n)
{
	n_allocs = 0;
	fail_at = n;
}

uint64_t mem_alloc_count(void)
{
	return n_allocs;
}

void *mem_alloc(size_t size)
{
	return is_failure_wanted() ? NULL : malloc(size);
}

void *mem_zalloc(size_t size)
{
	return is_failure_wanted() ? NULL : calloc(1, size);
}

void *mem_realloc(void *p, size_t size)
{
	return is_failure_wanted() ? NULL : realloc(p, size);
}

char *mem_strdup(struct str s)
{
	char *p = s.len < SIZE_MAX ? mem_alloc(s.len + 1) : NULL;

	if (!p)
		return NULL;
	if (s.len)
		memcpy(p, s.p, s.len);
	p[s.len] = '\0';
	return p;
}

void mem_free(void *p)
{
	free(p);
}

/* --- arena --- */

struct arena_chunk {
	struct arena_chunk *next; /* the chunk made before */
	size_t size; /* usable bytes behind this header */
} __attribute__((aligned(16)));

static char *chunk_data(struct arena_chunk *c)
{
	return (char *)(c + 1);
}

void arena_init(struct arena *a, size_t chunk_size)
{
	a->chunk = NULL;
	a->pos = NULL;
	a->end = NULL;
	BUG_ON(chunk_size > UINT32_MAX - ARENA_ALIGN);
	a->chunk_size = (uint32_t)((chunk_size + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1));
	a->is_mapped = false;
}

void arena_init_mapped(struct arena *a, size_t chunk_size)
{
	arena_init(a, chunk_size);
	/* LeakSanitizer looks for pointers in the heap only, and what is mapped points into it. */
	a->is_mapped = !HAS_ASAN;
}

static void chunk_free(const struct arena *a, struct arena_chunk *c)
{
	UNPOISON(chunk_data(c), c->size);
	if (a->is_mapped)
		(void)munmap(c, sizeof(*c) + c->size);
	else
		mem_free(c);
}

void arena_free(struct arena *a)
{
	while (a->chunk) {
		struct arena_chunk *c = a->chunk;

		a->chunk = c->next;
		chunk_free(a, c);
	}
	a->pos = NULL;
	a->end = NULL;
}

void arena_reset(struct arena *a)
{
	if (!a->chunk)
		return;
	while (a->chunk->next) {
		struct arena_chunk *c = a->chunk;

		a->chunk = c->next;
		chunk_free(a, c);
	}
	a->pos = chunk_data(a->chunk);
	a->end = a->pos + a->chunk->size;
	POISON(a->pos, a->chunk->size);
}

static struct arena_chunk *chunk_map(struct arena *a, size_t *size)
{
	size_t all = (sizeof(struct arena_chunk) + *size + MAP_UNIT - 1) & ~(MAP_UNIT - 1);
	void *p;

	if (is_failure_wanted())
		return NULL;
	p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	*size = all - sizeof(struct arena_chunk);
	if (a->chunk_size < CHUNK_MAX)
		a->chunk_size *= 2;
	return p;
}

static struct arena_chunk *chunk_add(struct arena *a, size_t size)
{
	struct arena_chunk *c;

	if (size > SIZE_MAX - sizeof(*c) - MAP_UNIT)
		return NULL;
	c = a->is_mapped ? chunk_map(a, &size) : mem_alloc(sizeof(*c) + size);
	if (!c)
		return NULL;
	c->size = size;
	c->next = a->chunk;
	a->chunk = c;
	POISON(chunk_data(c), size);
	return c;
}

/*
 * The free part has no `need` bytes (a multiple of ARENA_ALIGN). A request larger than a quarter chunk
 * gets a chunk of its own and what is left of the current one stays in use; the very first chunk
 * always becomes the current one.
 */
static HG_COLD void *arena_alloc_slow(struct arena *a, size_t size, size_t need)
{
	bool is_own = a->chunk && need > a->chunk_size / 4;
	size_t chunk_size = is_own || need > a->chunk_size ? need : a->chunk_size;
	struct arena_chunk *c = chunk_add(a, chunk_size);
	char *p;

	if (!c)
		return NULL;
	p = chunk_data(c);
	if (!is_own) {
		a->pos = p + need;
		a->end = p + c->size;
	}
	UNPOISON(p, size);
	return p;
}

void *arena_alloc(struct arena *a, size_t size)
{
	size_t need;
	void *p;

	if (unlikely(size > SIZE_MAX / 2))
		return NULL;
	/* At least one unit, so that two allocations never share an address. */
	need = size ? (size + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1) : ARENA_ALIGN;
	if (unlikely(need > (size_t)(a->end - a->pos)))
		return arena_alloc_slow(a, size, need);
	p = a->pos;
	a->pos += need;
	UNPOISON(p, size);
	return p;
}

void *arena_zalloc(struct arena *a, size_t size)
{
	void *p = arena_alloc(a, size);

	if (p)
		memset(p, 0, size);
	return p;
}

char *arena_strdup(struct arena *a, struct str s)
{
	char *p = s.len < SIZE_MAX ? arena_alloc(a, s.len + 1) : NULL;

	if (!p)
		return NULL;
	if (s.len)
		memcpy(p, s.p, s.len);
	p[s.len] = '\0';
	return p;
}

struct str arena_str(struct arena *a, struct str s)
{
	char *p;

	if (!s.p)
		return STR_NULL;
	p = arena_alloc(a, s.len);
	if (!p)
		return STR_NULL;
	memcpy(p, s.p, s.len);
	return str_make(p, s.len);
}

struct str arena_printf(struct arena *a, const char *fmt, ...)
{
	size_t room = (size_t)(a->end - a->pos);
	va_list ap;
	char *p;
	int n;

	/* Straight into the free part; only a text that does not fit is formatted twice. */
	UNPOISON(a->pos, room);
	va_start(ap, fmt);
	n = vsnprintf(a->pos, room, fmt, ap);
	va_end(ap);
	POISON(a->pos, room);
	if (n < 0)
		return STR_NULL;
	p = arena_alloc(a, (size_t)n + 1);
	if (!p)
		return STR_NULL;
	if ((size_t)n < room)
		return str_make(p, (size_t)n);
	va_start(ap, fmt);
	n = vsnprintf(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return n < 0 ? STR_NULL : str_make(p, (size_t)n);
}

size_t arena_size(const struct arena *a)
{
	size_t n = 0;

	for (const struct arena_chunk *c = a->chunk; c; c = c->next)
		n += sizeof(*c) + c->size;
	return n;
}

/* --- pool --- */

void pool_init(struct pool *p, const char *name, size_t size, unsigned max_free)
{
	p->name = name;
	p->size = size < sizeof(void *) ? sizeof(void *) : size;
	p->free = NULL;
	p->n_free = 0;
	p->n_used = 0;
	p->max_free = max_free;
}

void *pool_get(struct pool *p)
{
	void *obj = p->free;

	if (likely(obj)) {
		UNPOISON(obj, p->size);
		memcpy(&p->free, obj, sizeof(p->free));
		p->n_free--;
	} else {
		obj = mem_alloc(p->size);
		if (!obj)
			return NULL;
	}
	p->n_used++;
	return obj;
}

void pool_put(struct pool *p, void *obj)
{
	if (!obj)
		return;
	BUG_ON(p->n_used == 0);
	p->n_used--;
	if (p->n_free >= p->max_free) {
		mem_free(obj);
		return;
	}
	memcpy(obj, &p->free, sizeof(p->free));
	p->free = obj;
	p->n_free++;
	POISON(obj, p->size);
}

void pool_trim(struct pool *p)
{
	while (p->free) {
		void *obj = p->free;

		UNPOISON(obj, p->size);
		memcpy(&p->free, obj, sizeof(p->free));
		mem_free(obj);
	}
	p->n_free = 0;
}
