/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lists of patterns that can change while traffic flows. A `pat_ref` is one file (or the patterns of one acl
 * line): its entries, which only the control thread touches. Each ACL or map that uses it is a
 * `pat_user` with a view for the workers: a base built from all entries, immutable but for `over`, and a
 * small delta of what was added since. A change makes a new view and swaps one pointer; what no
 * worker can be looking at any more is freed after a grace period.
 */
#ifndef EXPR_PAT_PRIV_H
#define EXPR_PAT_PRIV_H

#include <stdatomic.h>

#include "base/list.h"
#include "expr/expr_priv.h"

struct pat_elem {
	struct list link; /* pat_ref.elems in their order, or .dead */
	struct pat_elem *hash_next;
	struct str key, value; /* never changes: `set` makes another entry */
	uint32_t gen; /* version that it belongs to */
	uint32_t line; /* of the file, from 1; 0: not from there */
	uint32_t index; /* in the base, or NOT_IN_BASE */
	uint8_t op; /* enum int_op */
	bool is_own; /* memory of its own; else the configuration's */
};
#define NOT_IN_BASE UINT32_MAX
#define PAT_NO_ID   UINT32_MAX

typedef _Atomic(struct pat_elem *) pat_slot; /* what replaces an entry of the base */

struct pat_layer {
	struct arena own; /* unless it is in the configuration's */
	struct expr_owned *owned;
	bool is_own;
	struct patset *set;
	struct pat_elem **elems;
	unsigned n;
	_Atomic(pat_slot *) over; /* [n], NULL until the first change */
};

struct pat_view {
	bool is_own; /* its memory; else the configuration's */
	struct pat_layer *base, *delta; /* delta: NULL when nothing was added */
};

struct pat_user {
	struct list link; /* pat_ref.users */
	struct pat_ref *ref;
	uint8_t match; /* enum match */
	uint8_t out; /* enum pat_out of a map */
	bool icase;
	_Atomic(struct pat_view *) view;
};

struct pat_ref {
	struct list link; /* pat_refs.refs, by id */
	struct str name; /* file; empty: patterns of an acl line */
	struct str about; /* "used by map at file 'x' line 3, …" */
	unsigned id; /* PAT_NO_ID until pat_refs_number() */
	bool is_map, is_acl;
	uint32_t curr, next; /* versions: what traffic sees, the highest one prepared */
	struct list elems, users, dead;
	unsigned n, n_curr, n_dead; /* entries, those of `curr`, in `dead` */
	unsigned n_base; /* of n_curr: in the base; the others are the delta */
	struct pat_elem **buckets; /* by key; NULL until a command needs it */
	unsigned n_buckets;
	bool wants_delta, wants_base; /* changed since the last publish */
};

struct pat_refs {
	struct arena *arena; /* the configuration's */
	struct list refs;
};

/* What a deleted entry of the base is replaced with. */
extern struct pat_elem pat_gone;

/* pat_view.c. Makes the first base, in the configuration's arena; *ret_bad: the entry that is wrong. */
HG_WUR int pat_user_build(struct expr_env *env, struct pat_user *u, struct pat_elem **ret_bad,
			  struct err *err);
/* Would every user of the ref take this entry? -EINVAL with `err`. */
HG_WUR int pat_elem_check(const struct pat_ref *ref, const struct pat_elem *e, struct err *err);
/* 0 or -ENOMEM: only then the old entry stays visible. */
HG_WUR int pat_user_replace(struct pat_user *u, uint32_t index, struct pat_elem *e);
void pat_user_free(struct pat_user *u); /* with its view; no reader any more */
void pat_elem_free(struct pat_elem *e);
bool pat_value_is_ok(enum pat_out out, struct str text, struct err *err);

#endif
