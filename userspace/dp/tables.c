/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tables the balancer reads, from the writer's side. They are plain memory (mapped BPF arrays, or
 * a test's own), so nothing here makes a system call but for a short sleep.
 *
 * What a reader may still hold is not reused before DP_GRACE_NS: a packet is done with a table within
 * microseconds, a preempted softirq within milliseconds.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dp/dp_priv.h"

/* free_at_ns of a range that the live services still name: free only after the next flip. */
#define AFTER_FLIP UINT64_MAX

uint64_t dp_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void dp_notice(const struct dp *dp, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	if (!dp->notice)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	dp->notice(dp->ctx, text);
}

static void wait_until(const struct dp *dp, uint64_t ns)
{
	uint64_t now = dp_clock(dp);

	if (now < ns) {
		struct timespec ts = { .tv_nsec = (long)(ns - now) };

		nanosleep(&ts, NULL);
	}
}

/* --- ranges of slot blocks --------------------------------------------------------------------------- */

/* Into its place by start; many are given in that order, so the search begins at the end. */
static int range_add(struct list *to, uint32_t start, uint32_t n, uint64_t free_at_ns)
{
	struct dp_range *r = mem_alloc(sizeof(*r));
	struct list *before = to->prev;

	if (!r)
		return -ENOMEM;
	*r = (struct dp_range){ .start = start, .n = n, .free_at_ns = free_at_ns };
	while (before != to && list_entry(before, struct dp_range, link)->start > start)
		before = before->prev;
	list_insert_between(&r->link, before, before->next);
	return 0;
}

/* Joins neighbours among the ranges that are free. */
static void range_merge(struct list *ranges)
{
	struct dp_range *a = NULL;
	struct list *l, *next;

	list_for_each_safe(l, next, ranges) {
		struct dp_range *b = list_entry(l, struct dp_range, link);

		if (!a || a->start + a->n != b->start || a->free_at_ns == AFTER_FLIP ||
		    b->free_at_ns == AFTER_FLIP) {
			a = b;
			continue;
		}
		a->n += b->n;
		if (b->free_at_ns > a->free_at_ns)
			a->free_at_ns = b->free_at_ns;
		list_del(&b->link);
		mem_free(b);
	}
}

static struct dp_range *range_find(struct list *ranges, uint32_t n)
{
	struct dp_range *best = NULL;
	struct list *l;

	list_for_each(l, ranges) {
		struct dp_range *r = list_entry(l, struct dp_range, link);

		if (r->n >= n && r->free_at_ns != AFTER_FLIP &&
		    (!best || r->free_at_ns < best->free_at_ns))
			best = r;
	}
	return best;
}

int dp_range_take(struct dp *dp, struct list *from, uint32_t n, uint32_t *ret_start)
{
	struct dp_range *r = range_find(from, n);

	if (!r) {
		range_merge(from);
		r = range_find(from, n);
	}
	if (!r)
		return -ENOSPC;
	wait_until(dp, r->free_at_ns);
	*ret_start = r->start;
	r->start += n;
	r->n -= n;
	if (r->n == 0) {
		list_del(&r->link);
		mem_free(r);
	}
	return 0;
}

void dp_range_give(struct dp *dp, struct list *to, uint32_t start, uint32_t n)
{
	if (n && range_add(to, start, n, AFTER_FLIP) != 0)
		dp_notice(dp, "out of memory: %u blocks of a table are lost until the next start",
			  n);
}

/* --- services -------------------------------------------------------------------------------------------- */

struct dp_service *dp_service_find(struct dp *dp, const struct hg_service_key *k)
{
	const struct dp_index *x = &dp->services_by_key;

	for (uint32_t at = dp_index_first(x, hg_service_hash(k)); at; at = x->next[at])
		if (memcmp(&dp->services[at - 1].row.key, k, sizeof(*k)) == 0)
			return &dp->services[at - 1];
	return NULL;
}

int dp_service_take(struct dp *dp, const struct hg_service_key *k, struct dp_service **ret_svc)
{
	uint32_t *hint = &dp->service_hint;

	while (*hint < dp->t.max_services && dp->services[*hint].is_used)
		++*hint;
	for (uint32_t i = *hint; i < dp->t.max_services; i++) {
		struct dp_service *s = &dp->services[i];

		if (s->is_used || dp_nat_is_live_service(dp, i))
			continue;
		*s = (struct dp_service){ .is_used = true, .row = { .key = *k, .id = i } };
		dp_index_add(&dp->services_by_key, hg_service_hash(k), i);
		*ret_svc = s;
		return 0;
	}
	return -ENOSPC;
}

void dp_service_drop(struct dp *dp, struct dp_service *s)
{
	dp_range_give(dp, &dp->free_ranges, s->row.slots_block, dp_blocks_of(s->row.slots));
	dp_quic_give(dp, s);
	dp_guard_drop(dp, s);
	dp_slots_free(s);
	mem_free(s->name);
	dp_index_del(&dp->services_by_key, hg_service_hash(&s->row.key), s->row.id);
	if (s->row.id < dp->service_hint)
		dp->service_hint = s->row.id;
	*s = (struct dp_service){ 0 };
}

static int service_put(struct hg_service *half, uint32_t mask, const struct hg_service *row)
{
	uint32_t h = hg_service_hash(&row->key);

	for (uint32_t i = 0; i < HG_SERVICE_PROBES; i++) {
		struct hg_service *b = &half[(h + i) & mask];

		if (b->mode != HG_MODE_EMPTY)
			continue;
		*b = *row;
		return 0;
	}
	return -ENOSPC;
}

static void ranges_flipped(struct list *ranges, uint64_t free_at_ns)
{
	struct list *l;

	list_for_each(l, ranges) {
		struct dp_range *r = list_entry(l, struct dp_range, link);

		if (r->free_at_ns == AFTER_FLIP)
			r->free_at_ns = free_at_ns;
	}
}

int dp_services_write(struct dp *dp, struct err *err)
{
	uint32_t idle = !(dp->t.control->service_generation & 1), flags = 0, n = 0;
	struct hg_service *half = dp->t.services + (size_t)idle * dp->t.n_buckets;

	wait_until(dp, dp->flipped_ns + DP_GRACE_NS);
	memset(half, 0, dp->t.n_buckets * sizeof(*half));
	for (uint32_t i = 0; i < dp->t.max_services; i++) {
		const struct hg_service *row = &dp->services[i].row;

		if (!dp->services[i].is_used)
			continue;
		if (row->key.port == 0 && row->mode != HG_MODE_ADDR)
			flags |= HG_CTL_ANY_PORT;
		n++;
		if (service_put(half, dp->t.n_buckets - 1, row) != 0)
			return err_set(err, -ENOSPC,
				       "the service table is too full for %u services: restart to "
				       "make it larger",
				       n);
	}
	dp->t.control->generation_flags[idle] = flags;
	__atomic_store_n(&dp->t.control->service_generation, idle, __ATOMIC_RELEASE);
	dp->flipped_ns = dp_clock(dp);
	dp->are_services_dirty = false;
	ranges_flipped(&dp->free_ranges, dp->flipped_ns + DP_GRACE_NS);
	ranges_flipped(&dp->free_quic, dp->flipped_ns + DP_GRACE_NS);
	return 0;
}

void dp_backend_set_alive(struct dp *dp, uint32_t id, bool is_alive)
{
	struct hg_backend *row = &dp->t.backends[id];
	uint8_t flags = is_alive ? row->flags | HG_BE_ALIVE : row->flags & (uint8_t)~HG_BE_ALIVE;

	if (flags == row->flags)
		return;
	dp->slots_changed_ns = dp_clock(dp);
	dp->deaths += !is_alive;
	__atomic_store_n(&row->flags, flags, __ATOMIC_RELEASE);
}

uint64_t dp_addr_hash(const struct addr *a)
{
	uint64_t w[2];

	addr_to_v6_mapped(a, (uint8_t *)w);
	return w[0] * 0xff51afd7ed558ccdull ^ w[1];
}

uint32_t dp_backend_first(const struct dp *dp, const struct addr *a)
{
	return dp_index_first(&dp->backends_by_addr, dp_addr_hash(a));
}

uint32_t dp_backend_unused(struct dp *dp)
{
	uint32_t *hint = &dp->backend_hint;

	if (*hint == 0)
		*hint = 1; /* 0 is nobody's */
	while (*hint < dp->t.max_backends && dp->backends[*hint].is_used)
		++*hint;
	for (uint32_t id = *hint; id < dp->t.max_backends; id++)
		if (!dp->backends[id].is_used && !dp_nat_is_live(dp, id))
			return id;
	return 0;
}

void dp_backend_take(struct dp *dp, uint32_t id, const struct addr *a)
{
	struct dp_backend *b = &dp->backends[id];

	b->is_used = true;
	b->addr = *a;
	addr_set_port(&b->addr, 0);
	dp_index_add(&dp->backends_by_addr, dp_addr_hash(a), id);
}

void dp_backend_drop(struct dp *dp, uint32_t id)
{
	struct dp_backend *b = &dp->backends[id];
	struct hg_backend *row = &dp->t.backends[id];

	__atomic_store_n(&row->flags, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&row->neigh.word, 0, __ATOMIC_RELEASE);
	mem_free(b->service_name);
	mem_free(b->server_name);
	dp_hop_leave(dp, id);
	dp_index_del(&dp->backends_by_addr, dp_addr_hash(&b->addr), id);
	if (id < dp->backend_hint)
		dp->backend_hint = id;
	*b = (struct dp_backend){ 0 };
}

/* --- adoption ------------------------------------------------------------------------------------------------ */

static int adopt_service(struct dp *dp, const struct hg_service *row, uint8_t *block_used,
			 uint8_t *quic_used)
{
	struct dp_service *svc = &dp->services[row->id];
	uint32_t n = dp_blocks_of(row->slots), n_quic = dp_quic_blocks_of(row->quic_ids);

	if (n > dp->t.n_blocks || row->slots_block > dp->t.n_blocks - n ||
	    n_quic > dp->t.n_quic_blocks || row->quic_block > dp->t.n_quic_blocks - n_quic)
		return 0;
	*svc = (struct dp_service){ .is_used = true, .row = *row };
	dp_index_add(&dp->services_by_key, hg_service_hash(&row->key), row->id);
	memset(block_used + row->slots_block, 1, n);
	memset(quic_used + row->quic_block, 1, n_quic);
	return dp_slots_adopt(dp, svc);
}

static int adopt_services(struct dp *dp, uint8_t *block_used, uint8_t *quic_used)
{
	uint32_t live = dp->t.control->service_generation & 1;
	const struct hg_service *half = dp->t.services + (size_t)live * dp->t.n_buckets;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < dp->t.n_buckets; i++)
		if (half[i].mode != HG_MODE_EMPTY && half[i].id < dp->t.max_services &&
		    !dp->services[half[i].id].is_used)
			rc = adopt_service(dp, &half[i], block_used, quic_used);
	return rc;
}

static void adopt_backends(struct dp *dp)
{
	for (uint32_t id = 1; id < dp->t.max_backends; id++) {
		const struct hg_backend *row = &dp->t.backends[id];
		static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
		struct addr a = { 0 };

		if (!(row->flags & HG_BE_VALID))
			continue;
		if (memcmp(row->addr, mapped, sizeof(mapped)) == 0) {
			a.in.sin_family = AF_INET;
			memcpy(&a.in.sin_addr, &row->addr[3], 4);
		} else {
			a.in6.sin6_family = AF_INET6;
			memcpy(&a.in6.sin6_addr, row->addr, 16);
		}
		dp_backend_take(dp, id, &a);
	}
}

/* Everything that no service uses is free at once: whoever read it is long gone. */
static int adopt_free_ranges(struct list *to, const uint8_t *block_used, uint32_t n_blocks)
{
	uint32_t start = 0;

	for (uint32_t i = 0; i <= n_blocks; i++) {
		if (i < n_blocks && !block_used[i])
			continue;
		if (i > start && range_add(to, start, i - start, 0) != 0)
			return -ENOMEM;
		start = i + 1;
	}
	return 0;
}

int dp_tables_adopt(struct dp *dp)
{
	uint8_t *block_used = mem_zalloc(dp->t.n_blocks + 1);
	uint8_t *quic_used = mem_zalloc(dp->t.n_quic_blocks + 1);
	int rc = -ENOMEM;

	dp->services = mem_zalloc(dp->t.max_services * sizeof(*dp->services));
	dp->backends = mem_zalloc(dp->t.max_backends * sizeof(*dp->backends));
	dp->hops = mem_zalloc(dp->t.max_backends * sizeof(*dp->hops));
	list_init(&dp->hops_in_use);
	if (block_used && quic_used && dp->services && dp->backends && dp->hops &&
	    dp_index_init(&dp->hops_by_addr, dp->t.max_backends) == 0 &&
	    dp_index_init(&dp->services_by_key, dp->t.max_services) == 0 &&
	    dp_index_init(&dp->backends_by_addr, dp->t.max_backends) == 0) {
		adopt_backends(dp);
		rc = adopt_services(dp, block_used, quic_used);
	}
	if (rc == 0)
		rc = adopt_free_ranges(&dp->free_ranges, block_used, dp->t.n_blocks);
	if (rc == 0)
		rc = adopt_free_ranges(&dp->free_quic, quic_used, dp->t.n_quic_blocks);
	mem_free(block_used);
	mem_free(quic_used);
	return rc;
}

void dp_tables_free(struct dp *dp)
{
	struct list *l;

	for (uint32_t i = 0; dp->services && i < dp->t.max_services; i++) {
		mem_free(dp->services[i].allow);
		mem_free(dp->services[i].name);
		dp_slots_free(&dp->services[i]);
	}
	for (uint32_t i = 0; dp->backends && i < dp->t.max_backends; i++) {
		mem_free(dp->backends[i].service_name);
		mem_free(dp->backends[i].server_name);
	}
	mem_free(dp->services);
	mem_free(dp->backends);
	dp->services = NULL;
	dp->backends = NULL;
	dp_index_free(&dp->services_by_key);
	dp_index_free(&dp->backends_by_addr);
	dp_index_free(&dp->hops_by_addr);
	mem_free(dp->hops);
	dp->hops = NULL;
	dp->n_hops = 0;
	dp->service_hint = dp->backend_hint = dp->hop_hint = 0;
	while ((l = list_pop_front(&dp->free_ranges)) || (l = list_pop_front(&dp->free_quic)))
		mem_free(list_entry(l, struct dp_range, link));
}
