/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hash table from names to pointers: built once by the control thread, read by any thread. Keys are copied,
 * values are the caller's. Open addressing, at most half full; nothing is ever removed.
 */
#ifndef NET_NAMEMAP_H
#define NET_NAMEMAP_H

#include "base/mem.h"

struct namemap_slot {
	uint64_t hash;
	char *key; /* NULL: free */
	size_t len;
	void *value;
};

struct namemap { /* all zero: empty */
	struct namemap_slot *slots;
	size_t cap, n; /* cap: power of two or 0 */
};

void *namemap_get(const struct namemap *m, struct str key); /* NULL: not there */
/* Where the value of `key` is kept (NULL when new); NULL: out of memory. Valid until the next call. */
HG_WUR void **namemap_put(struct namemap *m, struct str key);
/* Frees the table; `drop` (may be NULL) is called for every value that is not NULL. */
void namemap_free(struct namemap *m, void (*drop)(void *value));

#endif
