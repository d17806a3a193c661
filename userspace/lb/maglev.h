/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maglev consistent hashing: table population after Eisenbud et al., "Maglev: A Fast and Reliable
 * Software Network Load Balancer", NSDI 2016, section 3.4, with weights. Pure computation: used by
 * the datapath tables and by `balance maglev`. Any thread.
 */
#ifndef LB_MAGLEV_H
#define LB_MAGLEV_H

#include <stdint.h>

#include "base/err.h"

/* One backend. `key` identifies it for ever (a hash of its address, not its position). */
struct maglev_backend {
	uint64_t key;
	uint32_t weight; /* 0: gets no slot */
	uint16_t id; /* what is written into the table; not 0 */
};

/* The smallest table size that is at least 100 x n: 4093, 8191, 16381, 32749, 65537, 131071, 655373. */
uint32_t maglev_table_size(unsigned n_backends);

/*
 * Fills table[0..size) with backend ids. The result depends on keys and weights only, never on the
 * order of `backends`. With equal weights shares differ by at most one slot; with weights each share
 * is within one slot of the proportional one. No backend of weight > 0: all zero. Sizes should be
 * prime; others, which tables that have grown have, draw from fewer permutations.
 * 0, -ENOMEM, -EINVAL (fewer than three slots, fewer slots than backends with weight, or equal keys).
 */
HG_WUR int maglev_fill(const struct maglev_backend *backends, unsigned n, uint16_t *table,
		       uint32_t size);

#endif
