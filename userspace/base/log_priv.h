/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the log files share: rings between the emitting threads and the writer, records in them, and
 * envelopes. A ring has one producer (its thread) and one consumer (whoever drains).
 */
#ifndef BASE_LOG_PRIV_H
#define BASE_LOG_PRIV_H

#include <stdatomic.h>
#include <time.h>

#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"

#define LOG_RING_SIZE (256u * 1024) /* bytes per emitting thread, a power of two */
#define LOG_TAG_MAX   64
#define LOG_HOST_MAX  256
#define LOG_ISO_MAX   40 /* "2026-03-01T08:15:30.042123+01:00" */

struct log_identity {
	char tag[LOG_TAG_MAX];
	char host[LOG_HOST_MAX];
	char pid_text[16];
	uint16_t tag_len, host_len, pid_len;
};

/* Texts of the current second, so that a line costs no calendar arithmetic. */
struct log_dates {
	time_t second; /* of both texts; 0: none yet */
	char syslog[24]; /* "Mar  1 08:15:30 " */
	char iso_head[24]; /* "2026-03-01T08:15:30." */
	char zone[8]; /* "+01:00" */
};

/* One finished message in a ring: this header, the address of the target, the text. */
struct log_record {
	uint32_t size; /* of all of it, a multiple of 8; the next record follows */
	uint16_t text_len;
	uint8_t transport; /* enum log_transport, or LOG_RECORD_PAD up to the end of the ring */
	uint8_t addr_len; /* padded to a multiple of 8 in the record */
};
#define LOG_RECORD_PAD 0xff

/* `sample`: lines counted per list of targets, so that 1:2 and 2:2 split a list's lines exactly. */
#define LOG_SAMPLE_SLOTS 64
struct log_sample {
	const struct log_target *targets;
	uint32_t count;
};

struct log_ring {
	struct list link; /* in the list of all rings, under its lock */
	uint8_t *mem;

	/* producer */
	_Atomic uint32_t tail; /* published; bytes ever written modulo 2^32 */
	uint32_t tail_local; /* including what is not published yet */
	uint32_t head_seen;
	_Atomic uint64_t dropped;
	unsigned identity_gen;
	struct log_identity identity;
	struct log_dates dates;
	struct log_sample samples[LOG_SAMPLE_SLOTS];

	char pad[64]; /* producer and consumer write different cache lines */
	_Atomic uint32_t head; /* consumer */
	_Atomic bool is_closed; /* the thread has left: free when empty */
};

/* Room for a record with `max_text` bytes of text, or NULL: the ring is full. Producer. */
struct log_record *log_ring_reserve(struct log_ring *r, unsigned addr_len, uint32_t max_text);
/* Ends the reserved record with its real text length; visible after log_ring_publish(). Producer. */
void log_ring_commit(struct log_ring *r, struct log_record *rec, uint32_t text_len);
void log_ring_publish(struct log_ring *r);
/* Record at *pos before `tail`, and *pos moved behind it; NULL at the end. Consumer. */
struct log_record *log_ring_next(struct log_ring *r, uint32_t *pos, uint32_t tail);

static inline uint32_t log_record_addr_size(unsigned addr_len)
{
	return (addr_len + 7u) & ~7u;
}

static inline void *log_record_addr(struct log_record *rec)
{
	return rec + 1;
}

static inline char *log_record_text(struct log_record *rec)
{
	return (char *)(rec + 1) + log_record_addr_size(rec->addr_len);
}

/* Upper bound of what log_format_line() writes, before `max_len` applies. */
size_t log_format_bound(const struct log_identity *id, struct str tag, struct str sd,
			struct str line);
/*
 * Writes envelope and line, at most `max` bytes, ending with a newline; returns the length. `max` at
 * least 1.
 */
size_t log_format_line(char *out, size_t max, const struct log_target *t, enum log_level level,
		       const struct log_identity *id, struct log_dates *dates, struct str tag,
		       struct str sd, struct str line);

/* Drains every ring once; returns the number of records taken. One caller at a time. */
unsigned log_drain(void);
/* Anything published that is not drained? */
bool log_is_pending(void);
/* Wakes the writer when it sleeps. Any thread. */
void log_writer_wake(void);
bool log_writer_is_running(void);

/* Sinks: used by whoever drains. Texts stay in the ring until log_sink_flush(). */
void log_sink_add(struct log_record *rec);
/* Sends what was added and counts what was lost. */
void log_sink_flush(void);
bool log_sink_is_full(void); /* flush before adding more */
void log_sink_close(void);
/* log_store.c: a line for the ring of that name; and the end of a batch: who waits for lines is told. Drainer. */
void log_store_put(struct str name, struct str line);
void log_store_flush(void);
uint64_t log_sink_dropped(void);

/* log_store_file.c: a ring in a mapped file; LOG_STORE_FILE_HEAD bytes, then `size` of the ring. */
#define LOG_STORE_FILE_HEAD 4096
struct log_store_file {
	char magic[8];
	uint64_t size;
	uint64_t head, tail; /* of the oldest line, behind the newest: bytes ever written. Written by the drainer */
};
HG_WUR int log_store_file_create(const char *path, uint32_t size, struct log_store_file **ret);
void log_store_file_close(struct log_store_file *f); /* NULL is ignored */

#endif
