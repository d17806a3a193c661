/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of this module share: the table that picking reads, and the calls between registry,
 * tables and queues. Included by nobody else.
 */
#ifndef LB_LB_PRIV_H
#define LB_LB_PRIV_H

#include "lb/lb.h"

#define LB_WEIGHT_SCALE 16 /* server.weight is in 16ths of the user's weight */
#define LB_WEIGHT_MAX	256 /* of the user's */
/* No round-robin sequence is longer than this, or 16 places per server: weights are rounded then. */
#define LB_MAX_PLACES 65536u

/* --- table --------------------------------------------------------------------------------------- */

struct lb_entry {
	struct server *srv;
	uint32_t weight; /* effective, divided by the greatest common divisor of all */
	uint32_t before; /* sum of the weights of the entries before */
};

struct lb_point { /* a place on the ring of `hash-type consistent` */
	uint32_t key, entry;
};

/*
 * Immutable once published. `entries` are the servers that may be chosen: the active ones, or the backups
 * when there is none. Which of the arrays behind it exist depends on the algorithm.
 */
struct lb_table {
	uint8_t algo, hash_type; /* enum conf_balance, enum conf_hash_type */
	bool has_equal_weights;
	unsigned n; /* entries */
	uint32_t total; /* sum of weights */
	struct lb_entry *entries;
	uint32_t n_places; /* sequence of roundrobin, static-rr and the map of map-based hashing */
	uint32_t *places; /* index into entries */
	uint32_t n_points;
	struct lb_point *points; /* sorted by key */
	uint32_t n_slots;
	uint16_t *slots; /* maglev: 1 + index into entries */
	unsigned n_all;
	struct server **all; /* every server of the newest configuration, by position */
	unsigned first_added; /* there: behind those of files */
	const struct conf_proxy *px; /* of the newest configuration; only compared */
	uint32_t *lines; /* of all[] below first_added: pos_in_backend there, rising */
};

void lb_table_free(void *t); /* NULL is ignored */
/* The two orders; `n_places` of them, malloc'd. 0 or -ENOMEM. */
HG_WUR int lb_order_smooth(const struct lb_entry *e, unsigned n, uint32_t total, uint32_t *places);
HG_WUR int lb_order_map(const struct lb_entry *e, unsigned n, uint32_t total, uint32_t *places);

/* --- registry.c and added.c --- */

HG_WUR int registry_name_server(struct lb_registry *r, struct server *s); /* 0 or -ENOMEM */
void registry_unname_server(struct lb_registry *r, struct server *s);
void registry_release_server(struct lb_registry *r, struct server *s); /* one reference less */
uint64_t registry_server_hash(const struct lb_backend *be, struct str name);
/* A reload: those that were added leave with the old configuration. */
void added_retire(struct lb_registry *r, struct server *s);

/* --- between the files --------------------------------------------------------------------------- */

/* Rebuild now, or mark the backend while a batch is open. Failure leaves it stale. */
void lb_changed(struct lb_registry *r, struct lb_backend *be);
/* Frees servers that no configuration names and no table holds any more. */
void lb_reap(struct lb_registry *r);
/* Every worker that waits for `s` looks again. Any thread. */
void lb_wake_waiters(struct lb_backend *be, struct server *s);
/* Every worker looks after `s`; without a waker it is done at once. Control. */
void lb_wake_all(struct lb_backend *be, struct server *s);
/* Workers that wait for any server of `be` look again, on every server of `t`. Control. */
void lb_wake_backend(struct lb_backend *be, const struct lb_table *t);

/* May one more slot be taken? Ordered against n_waiting like everything of queue.c. */
bool server_has_slot(const struct lb_backend *be, const struct server *s);

/* share.c: words that XDP counts in, too */
bool share_has_room(const struct server *s, uint32_t limit);
uint32_t share_limit(const struct server *s, uint32_t limit); /* the stricter one; 0: none */
bool share_take(struct hg_live_server *row, uint32_t part, uint32_t limit);
static inline void share_give(struct hg_live_server *row, uint32_t part)
{
	__atomic_sub_fetch(&row->word, HG_LIVE_L7(part), __ATOMIC_SEQ_CST);
}
void share_move(struct server *s, unsigned worker); /* that worker: its slots to the row that control named */
void share_tell(struct lb_backend *be, unsigned worker); /* somebody waits; after it was counted */

static inline bool server_may_serve_backend(const struct server *s)
{
	return atomic_load(&s->is_elected) && server_is_eligible(s);
}

/* Memory aligned to a cache line, zeroed. */
HG_WUR void *lb_zalloc_aligned(size_t size);
void lb_free_aligned(void *p);

HG_WUR int server_new(struct lb_registry *r, struct lb_backend *be, const struct conf_server *cs,
		      uint64_t hash, struct server **ret_srv, struct err *err);
void server_free(struct lb_registry *r, struct server *s);
/* Takes over what the newest configuration says and the runtime has not changed itself. */
void server_apply_conf(struct server *s, const struct conf_server *cs);
void server_store_addr(struct server *s, const struct addr *a);

#endif
