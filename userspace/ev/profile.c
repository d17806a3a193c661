/* SPDX-License-Identifier: BSD-2-Clause */
#include "ev/profile.h"

#define AUTO_ITERATIONS 1024
#define AUTO_ON_NS	1000000u
#define AUTO_OFF_NS	990000u

static void add(_Atomic uint64_t *to, uint64_t n)
{
	/* One writer: no locked instruction is needed. */
	atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

void profile_set(struct profile *p, enum profile_mode mode)
{
	atomic_store_explicit(&p->mode, (uint8_t)mode, memory_order_relaxed);
	atomic_fetch_add_explicit(&p->wanted_epoch, 1, memory_order_release);
}

static void begin_anew(struct profile *p, uint32_t epoch)
{
	for (unsigned i = 0; i < PROFILE_ROWS; i++) {
		struct profile_row *row = &p->rows[i];

		atomic_store_explicit(&row->calls, 0, memory_order_relaxed);
		atomic_store_explicit(&row->busy_ns, 0, memory_order_relaxed);
		atomic_store_explicit(&row->wait_ns, 0, memory_order_relaxed);
	}
	atomic_store_explicit(&p->begin_ns, 0, memory_order_relaxed);
	p->epoch = epoch;
	p->is_on = false;
}

/* `set profiling tasks auto`: by the average of the last iterations. */
static bool is_slow(struct profile *p, uint64_t iterations, uint64_t busy_ns)
{
	uint64_t n = iterations - p->iterations;
	bool ret = p->is_on;

	if (n < AUTO_ITERATIONS)
		return ret;
	ret = (busy_ns - p->busy_ns) / n >= (p->is_on ? AUTO_OFF_NS : AUTO_ON_NS);
	p->iterations = iterations;
	p->busy_ns = busy_ns;
	return ret;
}

void profile_tick(struct profile *p, uint64_t now_ns, uint64_t iterations, uint64_t busy_ns)
{
	uint32_t epoch = atomic_load_explicit(&p->wanted_epoch, memory_order_acquire);

	if (unlikely(epoch != p->epoch))
		begin_anew(p, epoch);
	switch ((enum profile_mode)atomic_load_explicit(&p->mode, memory_order_relaxed)) {
	case PROFILE_AUTO:
		p->is_on = is_slow(p, iterations, busy_ns);
		break;
	case PROFILE_OFF:
		p->is_on = false;
		break;
	case PROFILE_ON:
		p->is_on = true;
		break;
	}
	if (likely(!p->is_on))
		return;
	if (!atomic_load_explicit(&p->begin_ns, memory_order_relaxed))
		atomic_store_explicit(&p->begin_ns, now_ns, memory_order_relaxed);
	atomic_store_explicit(&p->end_ns, now_ns, memory_order_relaxed);
}

void profile_add(struct profile *p, uintptr_t fn, uint64_t wait_ns, uint64_t busy_ns)
{
	unsigned at = (unsigned)((fn * 0x9e3779b97f4a7c15ull) >> 32);

	for (unsigned i = 0; i < PROFILE_ROWS; i++) {
		struct profile_row *row = &p->rows[(at + i) % PROFILE_ROWS];
		uintptr_t there = atomic_load_explicit(&row->fn, memory_order_relaxed);

		if (!there)
			atomic_store_explicit(&row->fn, fn, memory_order_relaxed);
		else if (there != fn)
			continue;
		add(&row->calls, 1);
		add(&row->busy_ns, busy_ns);
		add(&row->wait_ns, wait_ns);
		return;
	}
}
