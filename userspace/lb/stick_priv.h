/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the stick tables share: the form of entries and tables in memory. */
#ifndef LB_STICK_PRIV_H
#define LB_STICK_PRIV_H

#include <headgate/limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "lb/stick.h"

/*
 * Numbers of entries are within their stripe and from 1: 0 is "none", so that zeroed memory is an empty
 * table. Behind the entry come its key, padded to 8, and its words. Times are the low 32 bits.
 */
struct stick_entry {
	uint32_t next_free;
	uint32_t newer, older; /* queue of the stripe */
	uint32_t hash;
	uint32_t refs;
	uint32_t touched; /* last use */
	uint32_t queued; /* when it was put at the young end: not at every use */
	uint16_t key_len;
	bool is_live;
};

struct stick_stripe {
	pthread_mutex_t lock;
	char *entries;
	uint64_t *slots; /* hash << 32 | entry, 0: empty; open addressing, at most half full */
	uint32_t cap, n_fresh; /* entries above n_fresh have never been used */
	uint32_t free, youngest, oldest;
	uint32_t n_live;
} __attribute__((aligned(64)));

struct stick_column {
	uint16_t at; /* first word */
	uint16_t n; /* 0: not stored */
	uint32_t period_ms; /* of a rate: three words, running, last, start */
};

struct stick_table {
	struct list link; /* registry, control */
	char *name;
	unsigned refs; /* configurations that name it, control */
	struct stick_table *heir_of; /* moved over at commit, control */
	uint8_t type; /* enum conf_stick_type */
	uint32_t key_len, size;
	uint32_t stride, words_at; /* bytes: of an entry, of its words */
	uint32_t n_words;
	uint64_t seed;
	struct stick_column cols[STICK_DATA_COUNT];
	_Atomic uint32_t expire_ms; /* 0: never */
	_Atomic bool nopurge;
	unsigned stripe_bits;
	uint32_t slot_mask;
	struct stick_stripe *stripes;
	void *stripes_mem, *entries_mem, *slots_mem;
	char pad[64]; /* what follows is written at every new entry, what is above never */
	_Atomic uint32_t used;
};

static inline struct stick_entry *stick_entry_at(const struct stick_table *t,
						 const struct stick_stripe *s, uint32_t i)
{
	return (struct stick_entry *)(void *)(s->entries + (size_t)(i - 1) * t->stride);
}

static inline uint32_t stick_entry_index(const struct stick_table *t, const struct stick_stripe *s,
					 const struct stick_entry *e)
{
	return (uint32_t)((size_t)((const char *)e - s->entries) / t->stride) + 1;
}

static inline char *stick_entry_key(struct stick_entry *e)
{
	return (char *)(e + 1);
}

static inline uint64_t *stick_entry_words(const struct stick_table *t, struct stick_entry *e)
{
	return (uint64_t *)(void *)((char *)e + t->words_at);
}

static inline struct stick_stripe *stick_stripe_of(const struct stick_table *t, uint32_t hash)
{
	return &t->stripes[t->stripe_bits ? hash >> (32 - t->stripe_bits) : 0];
}

static inline unsigned stick_n_stripes(const struct stick_table *t)
{
	return 1u << t->stripe_bits;
}

/* stick.c; the stripe is locked. A new entry, or NULL: full; the lock may have been given up meanwhile. */
struct stick_entry *stick_entry_new(struct stick_table *t, struct stick_stripe *s, uint32_t hash,
				    struct str key, uint32_t now);
static inline uint32_t stick_hash(const struct stick_table *t, struct str key)
{
	return (uint32_t)(str_hash(key, t->seed) >> 32);
}
bool stick_entry_is_expired(const struct stick_table *t, const struct stick_entry *e, uint32_t now);

/* stick_data.c; the stripe is locked, or the words are a copy. */
int stick_word_of(const struct stick_table *t, unsigned what, unsigned idx, /* -1: not stored */
		  const struct stick_column **ret_col);
uint64_t stick_rate_get(const uint64_t *w, uint32_t period_ms, uint64_t now_ms);
void stick_rate_add(uint64_t *w, uint32_t period_ms, uint64_t n, uint64_t now_ms);
void stick_words_add(const struct stick_table *t, uint64_t *words, const struct stick_delta *d,
		     uint64_t now_ms);
int stick_words_get(const struct stick_table *t, const uint64_t *words, unsigned what, unsigned idx,
		    uint64_t now_ms, uint64_t *ret_value);
/* Columns that both tables have, except connections of now. */
void stick_words_move(const struct stick_table *to, uint64_t *dst, const struct stick_table *from,
		      const uint64_t *src);

/* stick_table.c: everything of `from` that fits; nobody uses `to` yet. */
void stick_move(struct stick_table *to, struct stick_table *from, uint64_t now_ms);

#endif
