/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the HTTP/2 adapter share. The only users of nghttp2 are h2*.c; nothing of it shows in
 * h2.h. A session belongs to one thread.
 */
#ifndef HTTP_H2_PRIV_H
#define HTTP_H2_PRIV_H

#include <nghttp2/nghttp2.h>

#include "http/h2.h"
#include "http/http_priv.h"

/* One field of the head that is being received; name and value lie one behind the other. */
struct h2_raw_field {
	uint32_t at, name_len, value_len;
};

/* Header blocks are never interleaved (RFC 9113 4.3), so one place for them is enough. */
struct h2_head {
	char *text; /* NULL: none received since h2_trim() */
	uint32_t cap, len;
	uint32_t list_size; /* as RFC 9113 6.5.2 counts it */
	struct h2_raw_field *fields;
	unsigned cap_fields, n_fields;
	unsigned n_continuations;
	uint32_t n_encoded; /* bytes of the block so far */
	uint8_t error; /* enum http_error */
	bool has_status;
};

struct h2_guard {
	int32_t left[H2_ABUSE_COUNT];
	int32_t reset_burst;
	uint64_t refilled_ns;
	uint8_t abuse; /* enum h2_abuse: what ended the connection */
	uint32_t n_glitches; /* of limits.max_glitches */
};

/* Streams that we reset and that the peer may not know about yet. */
#define H2_RESETS 128

struct h2_session {
	nghttp2_session *ng;
	const struct h2_ops *ops;
	void *owner;
	struct h2_limits limits;
	bool is_server;
	bool is_over; /* broken beyond GOAWAY, or no memory */
	bool is_leaving; /* we said GOAWAY, or heard it */
	bool has_settings; /* the peer's first SETTINGS came */
	struct buf *out; /* during h2_produce() */
	bool is_paused; /* stopped because `out` is full */
	unsigned n_open; /* client: streams we opened */
	struct h2_head head;
	struct h2_guard guard;
	int32_t resets[H2_RESETS]; /* the latest; ring */
	unsigned n_resets;
};

/* h2_guard.c */
void h2_guard_init(struct h2_guard *g, uint32_t max_streams, uint64_t now_ns);
void h2_guard_refill(struct h2_guard *g, uint64_t now_ns);
/* One more of `kind`. False: too many, the connection is being ended. */
bool h2_guard_spend(struct h2_session *h, enum h2_abuse kind);
void h2_guard_earn(struct h2_guard *g, enum h2_abuse kind, int32_t n);
/* Something that no healthy peer does, whether it costs us anything or not. */
void h2_guard_glitch(struct h2_session *h);
void h2_guard_end(struct h2_session *h, enum h2_abuse kind);
/* Judges a frame by its header. */
void h2_guard_frame(struct h2_session *h, const nghttp2_frame_hd *hd);

/* h2_head.c */
HG_WUR int h2_head_begin(struct h2_session *h);
/* 0 or -ENOMEM never: what does not fit is noted as an error of the head. */
void h2_head_add(struct h2_session *h, struct str name, struct str value);

static inline struct h2_stream *h2_find(struct h2_session *h, int32_t id)
{
	return nghttp2_session_get_stream_user_data(h->ng, id);
}

#endif
