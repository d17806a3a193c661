/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tables the balancer reads, from the writer's side. They are plain memory (mapped BPF arrays, or
 * a test's own), so nothing here makes a system call but for a short sleep.
 *
 * What a reader may still hold is not reused before GRACE_NS: a packet is done with a table within
 * microseconds, a preempted softirq within milliseconds.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dp/dp_priv.h"

#define GRACE_NS 20000000ull
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

static void wait_until(uint64_t ns)
{
	uint64_t now = dp_now_ns();

	if (now < ns) {
		struct timespec ts = { .tv_nsec = (long)(ns - now) };

		nanosleep(&ts, NULL);
	}
}

/* --- ranges of slot blocks --------------------------------------------------------------------------- */

static int range_add(struct dp *dp, uint32_t start, uint32_t n, uint64_t free_at_ns)
{
	struct dp_range *r = mem_alloc(sizeof(*r));

	if (!r)
		return -ENOMEM;
	*r = (struct dp_range){ .start = start, .n = n, .free_at_ns = free_at_ns };
	list_push_back(&dp->free_ranges, &r->link);
	return 0;
}

/* Joins neighbours among the ranges that are free; few ranges, so simply each with each. */
static void range_merge(struct dp *dp)
{
	struct list *a, *b, *next;

	list_for_each(a, &dp->free_ranges) {
		struct dp_range *ra = list_entry(a, struct dp_range, link);

		list_for_each_safe(b, next, &dp->free_ranges) {
			struct dp_range *rb = list_entry(b, struct dp_range, link);

			if (ra == rb || ra->start + ra->n != rb->start ||
			    ra->free_at_ns == AFTER_FLIP || rb->free_at_ns == AFTER_FLIP)
				continue;
			ra->n += rb->n;
			if (rb->free_at_ns > ra->free_at_ns)
				ra->free_at_ns = rb->free_at_ns;
			list_del(&rb->link);
			mem_free(rb);
			next = dp->free_ranges.next;
		}
	}
}

static struct dp_range *range_find(struct dp *dp, uint32_t n)
{
	struct dp_range *best = NULL;
	struct list *l;

	list_for_each(l, &dp->free_ranges) {
		struct dp_range *r = list_entry(l, struct dp_range, link);

		if (r->n >= n && r->free_at_ns != AFTER_FLIP &&
		    (!best || r->free_at_ns < best->free_at_ns))
			best = r;
	}
	return best;
}

int dp_range_take(struct dp *dp, uint32_t n, uint32_t *ret_start)
{
	struct dp_range *r = range_find(dp, n);

	if (!r) {
		range_merge(dp);
		r = range_find(dp, n);
	}
	if (!r)
		return -ENOSPC;
	wait_until(r->free_at_ns);
	*ret_start = r->start;
	r->start += n;
	r->n -= n;
	if (r->n == 0) {
		list_del(&r->link);
		mem_free(r);
	}
	return 0;
}

void dp_range_give(struct dp *dp, uint32_t start, uint32_t n)
{
	if (n && range_add(dp, start, n, AFTER_FLIP) != 0)
		dp_notice(dp, "out of memory: %u slot blocks are lost until the next start", n);
}

/* --- services -------------------------------------------------------------------------------------------- */

struct dp_service *dp_service_find(struct dp *dp, const struct hg_service_key *k)
{
	for (uint32_t i = 0; i < dp->t.max_services; i++)
		if (dp->services[i].is_used && memcmp(&dp->services[i].row.key, k, sizeof(*k)) == 0)
			return &dp->services[i];
	return NULL;
}

int dp_service_take(struct dp *dp, const struct hg_service_key *k, struct dp_service **ret_svc)
{
	for (uint32_t i = 0; i < dp->t.max_services; i++) {
		struct dp_service *s = &dp->services[i];

		if (s->is_used)
			continue;
		*s = (struct dp_service){ .is_used = true, .row = { .key = *k, .id = i } };
		*ret_svc = s;
		return 0;
	}
	return -ENOSPC;
}

void dp_service_drop(struct dp *dp, struct dp_service *s)
{
	dp_range_give(dp, s->row.slots_block, dp_blocks_of(s->row.slots));
	mem_free(s->name);
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

int dp_services_write(struct dp *dp, struct err *err)
{
	uint32_t idle = !(dp->t.control->service_generation & 1), flags = 0, n = 0;
	struct hg_service *half = dp->t.services + (size_t)idle * dp->t.n_buckets;
	struct list *l;

	wait_until(dp->flipped_ns + GRACE_NS);
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
	dp->flipped_ns = dp_now_ns();
	dp->are_services_dirty = false;
	list_for_each(l, &dp->free_ranges) {
		struct dp_range *r = list_entry(l, struct dp_range, link);

		if (r->free_at_ns == AFTER_FLIP)
			r->free_at_ns = dp->flipped_ns + GRACE_NS;
	}
	return 0;
}

void dp_backend_drop(struct dp *dp, uint32_t id)
{
	struct dp_backend *b = &dp->backends[id];

	/* Readers of an older table may still come: a row without neighbour is a named drop, not a wild packet. */
	__atomic_store_n(&dp->t.backends[id].neigh.word, 0, __ATOMIC_RELEASE);
	mem_free(b->service_name);
	mem_free(b->server_name);
	*b = (struct dp_backend){ .free_at_ns = dp_now_ns() + GRACE_NS };
}

void dp_backend_wait_free(const struct dp *dp, uint32_t id)
{
	wait_until(dp->backends[id].free_at_ns);
}

/* --- adoption ------------------------------------------------------------------------------------------------ */

static void adopt_services(struct dp *dp, uint8_t *block_used)
{
	uint32_t live = dp->t.control->service_generation & 1;
	const struct hg_service *half = dp->t.services + (size_t)live * dp->t.n_buckets;

	for (uint32_t i = 0; i < dp->t.n_buckets; i++) {
		const struct hg_service *row = &half[i];
		uint32_t n = dp_blocks_of(row->slots);

		if (row->mode == HG_MODE_EMPTY || row->id >= dp->t.max_services)
			continue;
		if (n > dp->t.n_blocks || row->slots_block > dp->t.n_blocks - n)
			continue;
		dp->services[row->id] = (struct dp_service){ .is_used = true, .row = *row };
		memset(block_used + row->slots_block, 1, n);
	}
}

static void adopt_backends(struct dp *dp)
{
	for (uint32_t id = 1; id < dp->t.max_backends; id++) {
		const struct hg_backend *row = &dp->t.backends[id];
		struct dp_backend *b = &dp->backends[id];
		static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

		if (!(row->flags & HG_BE_VALID))
			continue;
		b->is_used = true;
		b->ifindex = row->ifindex;
		if (memcmp(row->addr, mapped, sizeof(mapped)) == 0) {
			b->addr.in.sin_family = AF_INET;
			memcpy(&b->addr.in.sin_addr, &row->addr[3], 4);
		} else {
			b->addr.in6.sin6_family = AF_INET6;
			memcpy(&b->addr.in6.sin6_addr, row->addr, 16);
		}
	}
}

/* Everything that no service uses is free at once: whoever read it is long gone. */
static int adopt_free_ranges(struct dp *dp, const uint8_t *block_used)
{
	uint32_t start = 0;

	for (uint32_t i = 0; i <= dp->t.n_blocks; i++) {
		if (i < dp->t.n_blocks && !block_used[i])
			continue;
		if (i > start && range_add(dp, start, i - start, 0) != 0)
			return -ENOMEM;
		start = i + 1;
	}
	return 0;
}

int dp_tables_adopt(struct dp *dp)
{
	uint8_t *block_used = mem_zalloc(dp->t.n_blocks + 1);
	int rc = -ENOMEM;

	dp->services = mem_zalloc(dp->t.max_services * sizeof(*dp->services));
	dp->backends = mem_zalloc(dp->t.max_backends * sizeof(*dp->backends));
	if (block_used && dp->services && dp->backends) {
		adopt_services(dp, block_used);
		adopt_backends(dp);
		rc = adopt_free_ranges(dp, block_used);
	}
	mem_free(block_used);
	return rc;
}
