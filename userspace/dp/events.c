/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Everything that comes out of the kernel tier packet by packet: the last drops of every CPU, which
 * anybody may read at any time, and captures, which one process at a time may run.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dp/dp_priv.h"

/* --- drops ----------------------------------------------------------------------------------------- */

/* False: never written, or overwritten while it was read. */
static bool event_read(const struct hg_drop_event *row, struct hg_drop_event *ret)
{
	uint64_t seq = __atomic_load_n(&row->seq, __ATOMIC_ACQUIRE);

	if (!seq)
		return false;
	*ret = *row;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&row->seq, __ATOMIC_RELAXED) == seq;
}

static int event_cmp(const void *a, const void *b)
{
	uint64_t x = ((const struct hg_drop_event *)a)->time_ns;
	uint64_t y = ((const struct hg_drop_event *)b)->time_ns;

	return x < y ? -1 : x > y;
}

int dp_drop_events(struct dp *dp, uint64_t after_ns, struct hg_drop_event **ret, unsigned *ret_n)
{
	const struct dp_map *m = &dp->maps[DP_MAP_DROP_EVENTS];
	const struct hg_drop_event *rows = m->mem;
	struct hg_drop_event *all;
	unsigned n = 0;

	*ret = NULL;
	*ret_n = 0;
	if (!rows)
		return -ENOENT;
	all = mem_alloc((size_t)m->max_entries * sizeof(*all));
	if (!all)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->max_entries; i++)
		if (event_read(&rows[i], &all[n]) && all[n].time_ns > after_ns)
			n++;
	qsort(all, n, sizeof(*all), event_cmp);
	*ret = all;
	*ret_n = n;
	return 0;
}

uint64_t dp_drop_events_skipped(struct dp *dp)
{
	const struct hg_cpu *rows = dp->maps[DP_MAP_XDP_CPUS].mem;
	uint64_t sum = 0;

	for (uint32_t cpu = 0; rows && cpu < dp->n_cpus; cpu++)
		sum += rows[cpu].events_skipped;
	return sum;
}

/* --- captures ---------------------------------------------------------------------------------------- */

struct dp_capture {
	struct hg_capture *row;
	uint32_t *word; /* control.capture */
	uint64_t owner, renewed_ns;
	struct ring_buffer *ring;
	void (*fn)(void *ctx, const struct hg_frame *f, const uint8_t *bytes);
	void *ctx;
	bool is_open; /* what was left in the ring by somebody else is not ours */
};

static int capture_on_frame(void *ctx, void *data, size_t size)
{
	struct dp_capture *c = ctx;
	const struct hg_frame *f = data;

	if (c->is_open && size >= sizeof(*f) && size - sizeof(*f) >= f->cap_len)
		c->fn(c->ctx, f, (const uint8_t *)(f + 1));
	return 0;
}

/* Another one's claim is void when its process is gone, or has not renewed it for a while. */
static bool capture_is_stale(const struct hg_capture *row, uint64_t owner)
{
	const struct timespec wait = { .tv_nsec = 4 * HG_CAPTURE_RENEW_MS * 1000000 % 1000000000,
				       .tv_sec = 4 * HG_CAPTURE_RENEW_MS / 1000 };
	uint64_t renewed = __atomic_load_n(&row->renewed, __ATOMIC_RELAXED);

	if (kill((pid_t)owner, 0) != 0 && errno == ESRCH)
		return true;
	(void)nanosleep(&wait, NULL);
	return __atomic_load_n(&row->renewed, __ATOMIC_RELAXED) == renewed;
}

static int capture_claim(struct dp_capture *c, struct err *err)
{
	uint64_t owner = __atomic_load_n(&c->row->owner, __ATOMIC_ACQUIRE);

	if (owner && !capture_is_stale(c->row, owner))
		return err_set(err, -EBUSY,
			       "another capture is running (process %llu); one at a time",
			       (unsigned long long)owner);
	if (!__atomic_compare_exchange_n(&c->row->owner, &owner, c->owner, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return err_set(err, -EBUSY,
			       "another capture has just begun (process %llu); one at a time",
			       (unsigned long long)owner);
	return 0;
}

static void capture_fill(struct hg_capture *row, const struct dp_capture_filter *f)
{
	row->chance = (uint32_t)(0x100000000ull / (f->one_in ? f->one_in : 1) - 1);
	row->snaplen = f->snaplen && f->snaplen < HG_SNAPLEN_MAX ? f->snaplen : HG_SNAPLEN_MAX;
	row->flags = f->flags;
	row->drops = f->drops;
	row->all_backends = f->n_backends == 0;
	row->lost = 0;
	memset(row->services, f->n_services ? 0 : 0xff, sizeof(row->services));
	memset(row->backends, 0, sizeof(row->backends));
	for (unsigned i = 0; i < f->n_services; i++)
		row->services[f->services[i] / 64 % ARRAY_SIZE(row->services)] |=
			1ull << f->services[i] % 64;
	for (unsigned i = 0; i < f->n_backends; i++)
		row->backends[f->backends[i] / 64 % ARRAY_SIZE(row->backends)] |=
			1ull << f->backends[i] % 64;
}

static void capture_renew(struct dp_capture *c)
{
	__atomic_fetch_add(&c->row->renewed, 1, __ATOMIC_RELEASE);
	c->renewed_ns = dp_now_ns();
}

int dp_capture_open(struct dp *dp, const struct dp_capture_filter *f,
		    void (*fn)(void *ctx, const struct hg_frame *f, const uint8_t *bytes),
		    void *ctx, struct dp_capture **ret_c, struct err *err)
{
	struct dp_capture *c = mem_zalloc(sizeof(*c));
	int rc;

	if (!c)
		return err_set(err, -ENOMEM, "out of memory");
	*c = (struct dp_capture){ .row = dp->maps[DP_MAP_CAPTURE].mem,
				  .word = &dp->t.control->capture,
				  .owner = (uint64_t)getpid(),
				  .fn = fn,
				  .ctx = ctx };
	rc = capture_claim(c, err);
	if (rc != 0) {
		mem_free(c);
		return rc;
	}
	__atomic_store_n(c->word, 0, __ATOMIC_SEQ_CST);
	capture_fill(c->row, f);
	c->ring = ring_buffer__new(dp->maps[DP_MAP_CAPTURE_RING].fd, capture_on_frame, c, NULL);
	if (!c->ring) {
		rc = err_set(err, -errno, "cannot map the capture's ring buffer: %m");
		dp_capture_close(c);
		return rc;
	}
	(void)ring_buffer__consume(c->ring);
	c->is_open = true;
	capture_renew(c);
	__atomic_store_n(c->word, 1, __ATOMIC_SEQ_CST);
	*ret_c = c;
	return 0;
}

int dp_capture_poll(struct dp_capture *c, int timeout_ms)
{
	int n;

	/* The program switches itself off when it has not heard of us; then it is switched on again. */
	if (dp_now_ns() - c->renewed_ns >= HG_CAPTURE_RENEW_MS * 1000000ull) {
		if (__atomic_load_n(&c->row->owner, __ATOMIC_ACQUIRE) != c->owner)
			return -ESTALE;
		capture_renew(c);
		__atomic_store_n(c->word, 1, __ATOMIC_SEQ_CST);
	}
	if (timeout_ms > HG_CAPTURE_RENEW_MS)
		timeout_ms = HG_CAPTURE_RENEW_MS;
	n = ring_buffer__poll(c->ring, timeout_ms);
	return n == -EINTR ? 0 : n;
}

uint64_t dp_capture_lost(const struct dp_capture *c)
{
	return __atomic_load_n(&c->row->lost, __ATOMIC_RELAXED);
}

void dp_capture_close(struct dp_capture *c)
{
	uint64_t owner;

	if (!c)
		return;
	owner = c->owner;
	/* Taken over by another: the word is that one's now. */
	if (__atomic_load_n(&c->row->owner, __ATOMIC_ACQUIRE) == owner) {
		__atomic_store_n(c->word, 0, __ATOMIC_SEQ_CST);
		(void)__atomic_compare_exchange_n(&c->row->owner, &owner, 0, false,
						  __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	}
	ring_buffer__free(c->ring);
	mem_free(c);
}
