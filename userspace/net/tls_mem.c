/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * OpenSSL's memory: a cache per thread in front of malloc(). A handshake makes and frees some 600 objects of the same few
 * dozen sizes, a kept connection a record buffer of 17 KiB for every read (SSL_MODE_RELEASE_BUFFERS); glibc's own cache
 * holds seven of each size up to 1 KiB, and what is larger is split and merged again every time. That was an eighth
 * of the processor time of a handshake.
 *
 * What is free waits in a list by size, in the thread that freed it, and goes back to malloc() beyond a limit per size,
 * so that a crowd that has left leaves no memory behind. There is no header: glibc tells the size of a block.
 * Not under sanitizers, which have to see every free().
 */
#include <malloc.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/sanitize.h"
#include "net/tls_priv.h"

/* Sizes as glibc cuts them (8 mod 16), then in steps of 512. */
#define SMALL_FIRST 24
#define SMALL_STEP  16
#define N_SMALL	    64
#define LARGE_FIRST (SMALL_FIRST + (N_SMALL - 1) * SMALL_STEP) /* 1,032, of the last small one */
#define LARGE_STEP  512
#define N_LARGE	    48
#define N_CLASSES   (N_SMALL + N_LARGE)
#define CLASS_BYTES 65536 /* kept of one size, at most */

struct free_block {
	struct free_block *next;
};

struct block_list {
	struct free_block *first;
	unsigned n;
};

static _Thread_local struct mem_cache {
	struct block_list lists[N_CLASSES];
	bool is_open, has_ended;
} cache;

static pthread_key_t at_thread_end;

static size_t class_size(unsigned c)
{
	return c < N_SMALL ? SMALL_FIRST + c * SMALL_STEP
			   : LARGE_FIRST + (size_t)(c - N_SMALL + 1) * LARGE_STEP;
}

/* The smallest class that holds `size`; N_CLASSES: none. */
static unsigned class_for(size_t size)
{
	size_t c;

	if (size <= SMALL_FIRST)
		return 0;
	if (size <= LARGE_FIRST)
		return (unsigned)((size - SMALL_FIRST + SMALL_STEP - 1) / SMALL_STEP);
	c = N_SMALL + (size - LARGE_FIRST - 1) / LARGE_STEP;
	return c < N_CLASSES ? (unsigned)c : N_CLASSES;
}

/* The largest class that a block of `usable` bytes can serve; N_CLASSES: too large to be kept. */
static unsigned class_of(size_t usable)
{
	size_t c;

	if (usable < LARGE_FIRST + LARGE_STEP)
		return usable >= LARGE_FIRST ? N_SMALL - 1
					     : (unsigned)((usable - SMALL_FIRST) / SMALL_STEP);
	c = N_SMALL + (usable - LARGE_FIRST) / LARGE_STEP - 1;
	return c < N_CLASSES ? (unsigned)c : N_CLASSES;
}

static unsigned class_limit(unsigned c)
{
	return (unsigned)(CLASS_BYTES / class_size(c));
}

static void empty_cache(struct mem_cache *k)
{
	for (unsigned c = 0; c < N_CLASSES; c++) {
		while (k->lists[c].first) {
			struct free_block *b = k->lists[c].first;

			k->lists[c].first = b->next;
			free(b); /* lint: libc memory */
		}
		k->lists[c].n = 0;
	}
}

/* OpenSSL's own thread-end handlers may run after this one: what they free is not kept any more. */
static void on_thread_end(void *arg)
{
	struct mem_cache *k = arg;

	k->has_ended = true;
	empty_cache(k);
}

void net_tls_memory_trim(void)
{
	empty_cache(&cache);
}

static bool open_cache(struct mem_cache *k)
{
	if (k->has_ended)
		return false;
	k->is_open = pthread_setspecific(at_thread_end, k) == 0;
	return k->is_open;
}

static void *tls_malloc(size_t size, const char *file, int line)
{
	struct mem_cache *k = &cache;
	unsigned c = class_for(size);
	struct free_block *b;

	(void)file;
	(void)line;
	if (size == 0)
		return NULL; /* as OpenSSL's own */
	if (c == N_CLASSES)
		return malloc(size); /* lint: libc memory */
	b = k->lists[c].first;
	if (!b)
		return malloc(class_size(c)); /* lint: libc memory */
	k->lists[c].first = b->next;
	k->lists[c].n--;
	return b;
}

static void tls_mem_free(void *p, const char *file, int line)
{
	struct mem_cache *k = &cache;
	struct block_list *l;
	unsigned c;

	(void)file;
	(void)line;
	if (!p)
		return;
	c = class_of(malloc_usable_size(p));
	if (c == N_CLASSES || k->has_ended || (!k->is_open && !open_cache(k)) ||
	    k->lists[c].n >= class_limit(c)) {
		free(p); /* lint: libc memory */
		return;
	}
	l = &k->lists[c];
	((struct free_block *)p)->next = l->first;
	l->first = p;
	l->n++;
}

static void *tls_realloc(void *p, size_t size, const char *file, int line)
{
	size_t have = p ? malloc_usable_size(p) : 0;
	void *q;

	if (p && size && size <= have && size >= have / 2)
		return p;
	q = tls_malloc(size, file, line);
	if (q && p)
		memcpy(q, p, have < size ? have : size);
	if (q || size == 0)
		tls_mem_free(p, file, line);
	return q;
}

void net_tls_memory_init(void)
{
	static bool is_done;

	if (is_done || IS_SANITIZED)
		return;
	is_done = true;
	if (pthread_key_create(&at_thread_end, on_thread_end) ||
	    !CRYPTO_set_mem_functions(tls_malloc, tls_realloc, tls_mem_free))
		log_msg(LOG_LVL_WARNING, "TLS: OpenSSL was in use before it could be given memory; "
					 "handshakes will be slower");
}
