/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stick tables: what is remembered about clients, by key. Shared by all workers, one of the few mutable
 * things that are: the entries are spread over stripes, each with a lock that is held for a lookup and a
 * few additions, never over a call of anybody else's. All memory is taken when the table is made; when
 * it is full the entry that was used longest ago makes room.
 *
 * Keys are bytes in the form of the table's type: ip 4, ipv6 16 (network order), integer 4 (host
 * order), string as it is, binary exactly key_len. Times are milliseconds of CLOCK_MONOTONIC.
 */
#ifndef LB_STICK_H
#define LB_STICK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "base/str.h"
#include "conf/conf.h"

struct stick_table;

/* --- entries (any thread) ----------------------------------------------------------------------- */

/* Holds an entry: it stays, and its table too, until stick_close(). t NULL: none. */
struct stick_ref {
	struct stick_table *t;
	struct stick_entry *e;
};

/* What happened; each counts in <name>_cnt and <name>_rate, as far as the table stores them. */
enum stick_event {
	STICK_CONN,
	STICK_SESS,
	STICK_HTTP_REQ,
	STICK_HTTP_ERR,
	STICK_HTTP_FAIL,
	STICK_BYTES_IN,
	STICK_BYTES_OUT,
	STICK_EVENT_COUNT
};
struct stick_delta {
	uint64_t n[STICK_EVENT_COUNT];
	int32_t conn_cur;
};

/*
 * In a large table an entry is two lines of memory away, index and entry, and the first says where the second is. Who
 * knows its key early and has other work meanwhile asks for both ahead: stick_ahead(), other work, stick_ahead_entry(),
 * other work, stick_open(). Hints: no lock, nothing changes, nobody needs to come.
 */
struct stick_ahead {
	struct stick_table *t; /* NULL: nothing was asked for */
	uint32_t hash;
};
void stick_ahead(struct stick_table *t, struct str key, struct stick_ahead *ret);
void stick_ahead_entry(const struct stick_ahead *a);

/* Finds or makes the entry, holds it, counts `d` (may be NULL). 0 or -ENOSPC: full of entries in use. */
HG_WUR int stick_open(struct stick_table *t, struct str key, const struct stick_delta *d,
		      uint64_t now_ms, struct stick_ref *ret_ref);
/* The same, but only finds. -ENOENT. */
HG_WUR int stick_find(struct stick_table *t, struct str key, uint64_t now_ms,
		      struct stick_ref *ret_ref);
void stick_change(const struct stick_ref *r, const struct stick_delta *d, uint64_t now_ms);
/* Counts `d` (may be NULL), lets go; the entry expires from now on. r->t becomes NULL. */
void stick_close(struct stick_ref *r, const struct stick_delta *d, uint64_t now_ms);

/* Besides what is stored: facts about the entry. */
enum stick_fact {
	STICK_FACT_REFS = STICK_DATA_COUNT,
	STICK_FACT_EXPIRE_MS, /* left; 0: does not expire */
	STICK_FACT_IDLE_MS,
};
/*
 * One number: `what` is an enum conf_stick_data or stick_fact, `idx` the place in an array. GPC, GPC_RATE
 * and GPT also find gpc0, gpc1 and gpt0. 0, or -ENODATA when the table does not store it.
 */
HG_WUR int stick_read(const struct stick_ref *r, unsigned what, unsigned idx, uint64_t now_ms,
		      uint64_t *ret_value);
/* The same by key, without touching the entry; also -ENOENT. */
HG_WUR int stick_read_key(struct stick_table *t, struct str key, unsigned what, unsigned idx,
			  uint64_t now_ms, uint64_t *ret_value);
/* Adds to gpc<idx> and its rate; the new value. 0 or -ENODATA. */
HG_WUR int stick_gpc_add(const struct stick_ref *r, unsigned idx, uint64_t n, uint64_t now_ms,
			 uint64_t *ret_value);
/* Writes a value and returns the old one. A rate: as if `value` had come in the last period. 0 or -ENODATA. */
HG_WUR int stick_write(const struct stick_ref *r, unsigned what, unsigned idx, uint64_t value,
		       uint64_t now_ms, uint64_t *ret_old);
/*
 * Bandwidth limits: how much of `want` may go now, which counts as gone then. Never more
 * than the limit in a period, and evenly: at most `step` ahead. Less than `want` is at least `least`. 0: nothing, look
 * again after *ret_wait_ms. `w` is a rate by itself: three words, zeroed before its first use; whoever calls owns it.
 */
struct stick_limit {
	uint64_t limit; /* from 1 */
	uint32_t period_ms; /* from 1 */
	uint64_t least, step; /* neither exceeds the limit; step from 1 */
};
#define STICK_RATE_WORDS 3
uint64_t stick_rate_take(uint64_t w[STICK_RATE_WORDS], const struct stick_limit *l, uint64_t want,
			 uint64_t now_ms, uint32_t *ret_wait_ms);
/* The same of a rate that the entry stores (bytes_in_rate, bytes_out_rate), and of its period. -ENODATA. */
HG_WUR int stick_take(const struct stick_ref *r, unsigned what, const struct stick_limit *l,
		      uint64_t want, uint64_t now_ms, uint64_t *ret_n, uint32_t *ret_wait_ms);
/*
 * server_id with a hash of the server's name behind it, which is not shown: after a reload the number may
 * mean another server. stick_write() of a server_id forgets the name (0). -ENODATA: not stored.
 */
HG_WUR int stick_read_server(const struct stick_ref *r, uint64_t *ret_id, uint64_t *ret_name);
HG_WUR int stick_write_server(const struct stick_ref *r, uint64_t id, uint64_t name,
			      uint64_t now_ms);
/* The entry's key, copied; the length. `out` holds CONF_STICK_KEY_MAX. */
size_t stick_ref_key(const struct stick_ref *r, char out[CONF_STICK_KEY_MAX]);

/* --- the table (any thread) --------------------------------------------------------------------- */

enum conf_stick_type stick_type(const struct stick_table *t);
uint32_t stick_key_len(const struct stick_table *t);
uint32_t stick_size(const struct stick_table *t);
uint32_t stick_used(const struct stick_table *t);
bool stick_has(const struct stick_table *t, enum conf_stick_data d);

/* A copy of one entry, for people. */
#define STICK_WORDS_MAX (STICK_DATA_COUNT * 3 + CONF_STICK_ARRAY_MAX * 5 + 1)
struct stick_view {
	const void *id; /* address-like */
	uint32_t refs, expire_ms, idle_ms;
	uint32_t key_len;
	char key[CONF_STICK_KEY_MAX];
	uint64_t words[STICK_WORDS_MAX]; /* read with stick_view_get() */
};
struct stick_cursor { /* zeroed: from the start */
	uint32_t stripe, entry;
};
/* The next entry that has not expired; false: no more. */
bool stick_next(struct stick_table *t, struct stick_cursor *c, uint64_t now_ms,
		struct stick_view *ret_view);
/* -ENOENT. */
HG_WUR int stick_view_key(struct stick_table *t, struct str key, uint64_t now_ms,
			  struct stick_view *ret_view);
/* 0 or -ENODATA. */
HG_WUR int stick_view_get(const struct stick_table *t, const struct stick_view *v,
			  enum conf_stick_data d, unsigned idx, uint64_t now_ms,
			  uint64_t *ret_value);
/* Length of an array or 1; 0: not stored. And the period of a rate, ms. */
unsigned stick_count_of(const struct stick_table *t, enum conf_stick_data d);
uint32_t stick_period_ms(const struct stick_table *t, enum conf_stick_data d);
/* 0, -ENOENT, or -EBUSY: in use. */
HG_WUR int stick_remove(struct stick_table *t, struct str key);

/* Text of a key as a person types it, in the table's form. 0 or -EINVAL. `out` holds CONF_STICK_KEY_MAX. */
HG_WUR int stick_key_parse(const struct stick_table *t, struct str text, char *out, size_t *ret_len);
/* As `show table` prints it: binary in hexadecimal, odd characters of strings escaped. */
#define STICK_KEY_TEXT_MAX (CONF_STICK_KEY_MAX * 4 + 1)
size_t stick_key_format(const struct stick_table *t, struct str key, char out[STICK_KEY_TEXT_MAX]);

/* --- making them (control thread) --------------------------------------------------------------- */

/* Tables survive reloads by name; one that nobody's configuration names lives until its last reference ends. */
struct stick_registry {
	struct list tables;
};
void stick_registry_init(struct stick_registry *r);
/*
 * Sets conf_stick_table.rt of all tables of `c`: the running one of that name when type, size and data
 * are the same, else a new one. 0 or -ENOMEM with `err`; what was set stays for stick_registry_release().
 */
HG_WUR int stick_registry_prepare(struct stick_registry *r, struct conf *c, struct err *err);
/* `c` becomes current: new expiry times; entries of tables that were replaced move over as far as they fit. */
void stick_registry_commit(struct stick_registry *r, const struct conf *c, uint64_t now_ms);
/* A configuration goes. */
void stick_registry_release(struct stick_registry *r, struct conf *c);
/* Once a second: takes expired entries away, a bounded number per table. */
void stick_registry_tick(struct stick_registry *r, uint64_t now_ms);
/* Frees everything; no worker runs any more. */
void stick_registry_fini(struct stick_registry *r);

/* One table without a registry, for tests and benchmarks. */
HG_WUR int stick_table_new(const struct conf_stick_table *c, struct stick_table **ret_table);
void stick_table_free(struct stick_table *t);
/* Takes at most `max` expired entries away; how many it was. */
unsigned stick_expire(struct stick_table *t, uint64_t now_ms, unsigned max);
/* References held by anybody, now. */
uint64_t stick_n_refs(struct stick_table *t);

#endif
