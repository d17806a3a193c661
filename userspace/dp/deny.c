/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Denied prefixes: the tries `deny4` and `deny6`, and the counts and the index in front of them (headgate/guard.h). The
 * daemon and the command-line tool may write at the same time, in turns by a lock on the BPF file system's root; nothing is
 * remembered here but what the deny-files had: the tries are what is true.
 */
#include <bpf/bpf.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "dp/dp_priv.h"

/* A second of waiting for another writer. */
#define LOCK_TRIES    10000
#define LOCK_PAUSE_US 100

/* Slices of the walk for entries whose time is over. */
#define SLICE_NS    400000ull
#define PAUSE_NS    1000000000ull
#define PAUSE_COSTS 50

union deny_key {
	struct hg_deny4_key v4;
	struct hg_deny6_key v6;
};

static int trie_of(const struct dp_map *maps, bool is_v6)
{
	return maps[is_v6 ? DP_MAP_DENY6 : DP_MAP_DENY4].fd;
}

static int deny_fd(const struct dp *dp, bool is_v6)
{
	return trie_of(dp->maps, is_v6);
}

static union deny_key key_of(const struct conf_prefix *p)
{
	union deny_key k = { .v6.bits = p->bits };

	if (p->is_v6)
		memcpy(k.v6.addr, p->addr, 16);
	else
		memcpy(&k.v4.addr, p->addr, 4);
	return k;
}

static struct conf_prefix prefix_of(const union deny_key *k, bool is_v6)
{
	struct conf_prefix p = { .bits = (uint8_t)k->v6.bits, .is_v6 = is_v6 };

	memcpy(p.addr, is_v6 ? (const void *)k->v6.addr : &k->v4.addr, is_v6 ? 16 : 4);
	return p;
}

/* --- counts ------------------------------------------------------------------------------------------ */

/* Adds one to a part of the cell, or takes one off. A part that is full stays so: what it has missed nobody knows. */
static void count_change(uint16_t *n, uint16_t part, bool up)
{
	uint16_t old = __atomic_load_n(n, __ATOMIC_RELAXED), one = part & -part;

	do {
		if ((old & part) == part || (!up && !(old & part)))
			return;
	} while (!__atomic_compare_exchange_n(n, &old, (uint16_t)(up ? old + one : old - one),
					      false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
}

/* Every part of the address space that the prefix reaches into; short prefixes of IPv6: all parts. */
static void count_parts(struct dp *dp, const struct conf_prefix *p, uint16_t part, bool up)
{
	struct hg_deny_cells *cells = dp->maps[DP_MAP_DENY_CELLS].mem;
	unsigned known = p->is_v6 ? 32 : HG_DENY_CELL_BITS, n_bits = 0;
	uint32_t first, base = p->is_v6 ? HG_DENY_CELLS : 0;
	bool is_all;

	memcpy(&first, p->addr, sizeof(first));
	first = be32toh(first);
	if (p->bits < known)
		n_bits = known - p->bits;
	is_all = n_bits > HG_DENY_CELL_BITS;
	for (uint32_t i = 0; i < 1u << (is_all ? HG_DENY_CELL_BITS : n_bits); i++) {
		uint32_t c = is_all ? base + i
				    : hg_deny_cell(first + (i << (32 - known)), p->is_v6);

		count_change(&cells[c / HG_DENY_LINE].n[c % HG_DENY_LINE], part, up);
	}
}

/* A prefix that comes, or has gone: counted as one that is in the trie only. */
static void count_prefix(struct dp *dp, const struct conf_prefix *p, bool up)
{
	count_parts(dp, p, HG_DENY_ALL, up);
	count_parts(dp, p, HG_DENY_REST, up);
	__atomic_add_fetch(&dp->t.control->deny_entries[p->is_v6], up ? 1 : -1, __ATOMIC_ACQ_REL);
}

/* --- one prefix -------------------------------------------------------------------------------------- */

static bool is_over(const struct hg_deny *d, uint64_t now)
{
	return d->expires_ns && d->expires_ns <= now;
}

/* Shall `d` replace `old`? Who lasts longer stays; of two equal ones who is nearer to the operator. */
static bool is_stronger(const struct hg_deny *d, const struct hg_deny *old)
{
	uint64_t a = d->expires_ns - 1, b = old->expires_ns - 1; /* never: the longest */

	return a != b ? a > b : d->origin > old->origin;
}

/* What the trie has for exactly this prefix; it answers with the longest that fits, so that has to be asked for. */
static bool trie_has(struct dp *dp, const struct conf_prefix *p, struct hg_deny *ret)
{
	union deny_key k = key_of(p);

	return bpf_map_lookup_elem(deny_fd(dp, p->is_v6), &k, ret) == 0 && ret->bits == p->bits;
}

/* Writers take turns; whoever dies lets go. One that is stopped in the midst holds the others up for a second only. */
static bool deny_lock(const struct dp *dp)
{
	for (unsigned i = 0; i < LOCK_TRIES; i++) {
		if (dp->deny_lock_fd <= 0 || flock(dp->deny_lock_fd, LOCK_EX | LOCK_NB) == 0)
			return true;
		usleep(LOCK_PAUSE_US);
	}
	return false;
}

static void deny_unlock(const struct dp *dp)
{
	if (dp->deny_lock_fd > 0)
		(void)flock(dp->deny_lock_fd, LOCK_UN);
}

static int deny_change(struct dp *dp, const struct conf_prefix *p, const struct hg_deny *d,
		       const struct hg_deny *old)
{
	union deny_key k = key_of(p);
	int rc;

	if (!is_stronger(d, old) && !is_over(old, dp_now_ns()))
		return 0;
	rc = bpf_map_update_elem(deny_fd(dp, p->is_v6), &k, d, BPF_EXIST);
	if (rc == 0)
		(void)dp_deny_index_set(&dp->t, p, d);
	return rc;
}

static int deny_put(struct dp *dp, const struct conf_prefix *p, const struct hg_deny *d)
{
	union deny_key k = key_of(p);
	struct hg_deny old;
	int rc;

	if (trie_has(dp, p, &old))
		return deny_change(dp, p, d, &old);
	count_prefix(dp, p, true);
	rc = bpf_map_update_elem(deny_fd(dp, p->is_v6), &k, d, BPF_NOEXIST);
	if (rc != 0) {
		count_prefix(dp, p, false);
		return rc;
	}
	if (dp_deny_index_put(&dp->t, p, d)) /* packets need not ask the trie for it */
		count_parts(dp, p, HG_DENY_REST, false);
	return 1;
}

int dp_deny_add(struct dp *dp, const struct conf_prefix *p, uint64_t expires_ns,
		enum hg_deny_origin origin, bool is_told)
{
	struct hg_deny d = { .expires_ns = expires_ns,
			     .origin = (__u16)origin,
			     .flags = is_told ? HG_DENY_RESETS : 0,
			     .bits = p->bits };
	int rc;

	if (deny_fd(dp, p->is_v6) < 0)
		return -ENOENT;
	if (!deny_lock(dp))
		return -EBUSY;
	rc = deny_put(dp, p, &d);
	deny_unlock(dp);
	return rc;
}

static int deny_take(struct dp *dp, const struct conf_prefix *p)
{
	union deny_key k = key_of(p);
	struct hg_deny d;
	bool was_indexed;
	int rc;

	if (!trie_has(dp, p, &d))
		return -ENOENT;
	count_parts(dp, p, HG_DENY_REST, true); /* the trie decides from here on */
	was_indexed = dp_deny_index_del(&dp->t, p);
	rc = bpf_map_delete_elem(deny_fd(dp, p->is_v6), &k);
	if (rc != 0)
		return rc; /* so it stays */
	count_prefix(dp, p, false);
	if (!was_indexed) /* counted as that from the beginning */
		count_parts(dp, p, HG_DENY_REST, false);
	return 0;
}

int dp_deny_del(struct dp *dp, const struct conf_prefix *p)
{
	int rc;

	if (deny_fd(dp, p->is_v6) < 0)
		return -ENOENT;
	if (!deny_lock(dp))
		return -EBUSY;
	rc = deny_take(dp, p);
	deny_unlock(dp);
	return rc;
}

/* --- all of them -------------------------------------------------------------------------------------- */

static int compare_infos(const void *a, const void *b)
{
	const struct dp_deny_info *x = a, *y = b;

	return conf_prefix_compare(&x->prefix, &y->prefix);
}

static int collect(int fd, bool is_v6, struct dp_deny_info **list, size_t *n, size_t *cap)
{
	union deny_key k, next;
	bool has = false;
	size_t most = *n +
		      2 * HG_DENY_MAX; /* a key that goes meanwhile lets the walk begin again */

	while (*n < most && bpf_map_get_next_key(fd, has ? &k : NULL, &next) == 0) {
		struct dp_deny_info i = { .prefix = prefix_of(&next, is_v6) };
		struct hg_deny d;

		k = next;
		has = true;
		if (bpf_map_lookup_elem(fd, &k, &d) != 0 || d.bits != i.prefix.bits)
			continue;
		if (*n == *cap) {
			size_t want = *cap ? *cap * 2 : 256;
			struct dp_deny_info *more = mem_realloc(*list, want * sizeof(*more));

			if (!more)
				return -ENOMEM;
			*list = more;
			*cap = want;
		}
		i.expires_ns = d.expires_ns;
		i.is_told = d.flags & HG_DENY_RESETS;
		i.origin = d.origin < HG_DENY_ORIGIN_COUNT ? (enum hg_deny_origin)d.origin
							   : HG_DENY_NONE;
		(*list)[(*n)++] = i;
	}
	return 0;
}

static int list_of(const struct dp_map *maps, struct dp_deny_info **ret, size_t *ret_n)
{
	struct dp_deny_info *list = NULL;
	size_t n = 0, cap = 0, kept = 0;
	uint64_t now = dp_now_ns();
	int rc = 0;

	for (unsigned v6 = 0; v6 < 2 && rc == 0; v6++)
		rc = trie_of(maps, v6) < 0 ? -ENOENT
					   : collect(trie_of(maps, v6), v6, &list, &n, &cap);
	if (rc != 0) {
		mem_free(list);
		return rc;
	}
	if (n)
		qsort(list, n, sizeof(*list), compare_infos);
	for (size_t i = 0; i < n; i++)
		if ((!list[i].expires_ns || list[i].expires_ns > now) &&
		    (!kept || compare_infos(&list[kept - 1], &list[i]) != 0))
			list[kept++] = list[i];
	*ret = list;
	*ret_n = kept;
	return 0;
}

int dp_deny_list(struct dp *dp, struct dp_deny_info **ret, size_t *ret_n)
{
	return list_of(dp->maps, ret, ret_n);
}

/* What files had, the configuration brings. */
int dp_deny_carry(struct dp *dp)
{
	struct dp_deny_info *list;
	size_t n;
	int rc = list_of(dp->before->maps, &list, &n);

	if (rc != 0)
		return rc;
	for (size_t i = 0; i < n && rc >= 0; i++)
		if (list[i].origin != HG_DENY_FILE)
			rc = dp_deny_add(dp, &list[i].prefix, list[i].expires_ns, list[i].origin,
					 list[i].is_told);
	mem_free(list);
	return rc < 0 ? rc : 0;
}

const char *dp_deny_origin_name(enum hg_deny_origin origin)
{
	static const char *const names[] = {
#define X(name, text, help) text,
		HG_DENY_ORIGINS(X)
#undef X
	};

	return origin < ARRAY_SIZE(names) ? names[origin] : "?";
}

/* --- entries whose time is over ---------------------------------------------------------------------- */

/* Removes the one behind the cursor when it is over, else moves on. False: there is none. */
static bool sweep_step(struct dp *dp, uint64_t now)
{
	struct dp_deny_walk *w = &dp->deny_walk;
	union deny_key at = key_of(&w->at), next;
	int fd = deny_fd(dp, w->is_v6);
	struct conf_prefix p;
	struct hg_deny d;

	if (bpf_map_get_next_key(fd, w->has_at ? &at : NULL, &next) != 0)
		return false;
	p = prefix_of(&next, w->is_v6);
	if (bpf_map_lookup_elem(fd, &next, &d) == 0 && d.bits == p.bits && is_over(&d, now) &&
	    dp_deny_del(dp, &p) == 0)
		return true;
	w->at = p;
	w->has_at = true;
	return true;
}

static bool sweep_begin(struct dp *dp, uint64_t now)
{
	struct dp_deny_walk *w = &dp->deny_walk;
	const uint32_t *n = dp->t.control->deny_entries;
	uint64_t pause = w->busy_ns * PAUSE_COSTS > PAUSE_NS ? w->busy_ns * PAUSE_COSTS : PAUSE_NS;

	if (!(__atomic_load_n(&n[0], __ATOMIC_RELAXED) |
	      __atomic_load_n(&n[1], __ATOMIC_RELAXED)) ||
	    (w->ended_ns && now < w->ended_ns + pause))
		return false;
	*w = (struct dp_deny_walk){ .is_on = true, .ended_ns = w->ended_ns };
	return true;
}

bool dp_deny_sweep(struct dp *dp)
{
	struct dp_deny_walk *w = &dp->deny_walk;
	uint64_t began = dp_now_ns(), now = began;

	if (deny_fd(dp, false) < 0 || deny_fd(dp, true) < 0 || (!w->is_on && !sweep_begin(dp, now)))
		return false;
	while (w->is_on && now - began < SLICE_NS) {
		if (!sweep_step(dp, now)) {
			w->is_on = !w->is_v6; /* the other family, or the end */
			w->is_v6 = true;
			w->has_at = false;
		}
		now = dp_now_ns();
	}
	w->busy_ns += now - began;
	w->ended_ns = now;
	return w->is_on;
}

/* --- what the configuration says ---------------------------------------------------------------------- */

/* An earlier process may have left prefixes of files that no longer have them. */
static int forget_files(struct dp *dp, const struct conf_global *g)
{
	struct dp_deny_info *list;
	size_t n;
	int rc = dp_deny_list(dp, &list, &n);

	if (rc != 0)
		return rc;
	for (size_t i = 0; i < n; i++)
		if (list[i].origin == HG_DENY_FILE &&
		    (!g->n_xdp_deny || !bsearch(&list[i].prefix, g->xdp_deny, g->n_xdp_deny,
						sizeof(*g->xdp_deny), conf_prefix_compare)))
			(void)dp_deny_del(dp, &list[i].prefix); /* gone already: the same */
	mem_free(list);
	return 0;
}

/* Removes it unless somebody else wants it too. */
static void forget(struct dp *dp, const struct conf_prefix *p)
{
	union deny_key k = key_of(p);
	struct hg_deny d;

	if (bpf_map_lookup_elem(deny_fd(dp, p->is_v6), &k, &d) == 0 && d.bits == p->bits &&
	    d.origin == HG_DENY_FILE)
		(void)dp_deny_del(dp, p);
}

/* Which lengths of a family packets should look for: the most frequent ones, the others are asked for in the trie. */
static void common_lengths(const struct conf_prefix *p, unsigned n, bool ret[2][129])
{
	unsigned counts[2][129] = { 0 };

	for (unsigned i = 0; i < n; i++)
		counts[p[i].is_v6][p[i].bits]++;
	for (unsigned i = 0; i < 2 * HG_DENY_LENGTHS; i++) {
		unsigned *c = counts[i % 2], best = 0;

		for (unsigned bits = 1; bits <= 128; bits++)
			best = c[bits] > c[best] ? bits : best;
		ret[i % 2][best] = c[best] != 0;
		c[best] = 0;
	}
}

/*
 * From the files' prefixes of before to those of now; both in order. Twice: prefixes of common lengths first, for the index
 * takes lengths as they come.
 */
static int follow_files(struct dp *dp, const struct conf_prefix *now, unsigned n,
			bool is_common[2][129], bool is_first)
{
	unsigned i = 0, j = 0;

	while (i < dp->n_deny_files || j < n) {
		int d = i == dp->n_deny_files ? 1
			: j == n	      ? -1
					      : conf_prefix_compare(&dp->deny_files[i], &now[j]);
		int rc;

		if (d < 0 && is_first)
			forget(dp, &dp->deny_files[i]);
		i += d <= 0;
		if (d > 0 && is_common[now[j].is_v6][now[j].bits] == is_first &&
		    (rc = dp_deny_add(dp, &now[j], 0, HG_DENY_FILE, false)) < 0)
			return rc;
		j += d >= 0;
	}
	return 0;
}

static int configure_files(struct dp *dp, const struct conf_global *g)
{
	struct conf_prefix *copy = mem_alloc((g->n_xdp_deny + 1) * sizeof(*copy));
	bool is_common[2][129] = { 0 };
	int rc = copy ? 0 : -ENOMEM;

	if (rc == 0 && dp->is_adopted && !dp->deny_files)
		rc = forget_files(dp, g);
	common_lengths(g->xdp_deny, g->n_xdp_deny, is_common);
	for (unsigned pass = 0; pass < 2 && rc == 0; pass++)
		rc = follow_files(dp, g->xdp_deny, g->n_xdp_deny, is_common, pass == 0);
	if (rc < 0) {
		mem_free(copy);
		return rc;
	}
	if (g->n_xdp_deny)
		memcpy(copy, g->xdp_deny, g->n_xdp_deny * sizeof(*copy));
	mem_free(dp->deny_files);
	dp->deny_files = copy;
	dp->n_deny_files = g->n_xdp_deny;
	return 0;
}

int dp_guard_configure(struct dp *dp, const struct conf *c, struct err *err)
{
	int rc;

	if (!dp->t.control || deny_fd(dp, false) < 0)
		return 0; /* stats_only */
	rc = dp_guard_limits(dp, c, err);
	if (rc != 0)
		return rc;
	rc = configure_files(dp, &c->global);
	if (rc == -ENOSPC)
		return err_set(err, rc, "'xdp deny-file': more than %u prefixes of a family",
			       HG_DENY_MAX);
	if (rc < 0)
		return err_set(err, rc, "denied prefixes: %s", strerror(-rc));
	return 0;
}
