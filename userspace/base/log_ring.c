/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ring of log records: single producer, single consumer, positions that only grow (modulo 2^32).
 * Records are contiguous; one that does not fit before the end is preceded by padding.
 */
#include "base/log_priv.h"

#define MASK (LOG_RING_SIZE - 1)

struct log_record *log_ring_reserve(struct log_ring *r, unsigned addr_len, uint32_t max_text)
{
	uint32_t need = (uint32_t)sizeof(struct log_record) + log_record_addr_size(addr_len) +
			((max_text + 7u) & ~7u);
	uint32_t to_end = LOG_RING_SIZE - (r->tail_local & MASK);
	uint32_t total = need <= to_end ? need : to_end + need;
	struct log_record *rec;

	if (total > LOG_RING_SIZE - (r->tail_local - r->head_seen)) {
		r->head_seen = atomic_load_explicit(&r->head, memory_order_acquire);
		if (total > LOG_RING_SIZE - (r->tail_local - r->head_seen))
			return NULL;
	}
	rec = (struct log_record *)(r->mem + (r->tail_local & MASK));
	if (need > to_end) {
		rec->size = to_end;
		rec->transport = LOG_RECORD_PAD;
		r->tail_local += to_end;
		rec = (struct log_record *)r->mem;
	}
	rec->addr_len = (uint8_t)addr_len;
	return rec;
}

void log_ring_commit(struct log_ring *r, struct log_record *rec, uint32_t text_len)
{
	rec->text_len = (uint16_t)text_len;
	rec->size = (uint32_t)sizeof(*rec) + log_record_addr_size(rec->addr_len) +
		    ((text_len + 7u) & ~7u);
	r->tail_local += rec->size;
}

void log_ring_publish(struct log_ring *r)
{
	/*
	 * Sequentially consistent, like the writer's "I sleep": either it sees this position before it
	 * sleeps, or the producer sees afterwards that it sleeps.
	 */
	atomic_store_explicit(&r->tail, r->tail_local, memory_order_seq_cst);
}

struct log_record *log_ring_next(struct log_ring *r, uint32_t *pos, uint32_t tail)
{
	while (*pos != tail) {
		struct log_record *rec = (struct log_record *)(r->mem + (*pos & MASK));

		*pos += rec->size;
		if (rec->transport != LOG_RECORD_PAD)
			return rec;
	}
	return NULL;
}
