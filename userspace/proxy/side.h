/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One end of a stream: the client's or the server's half of an exchange, behind a small vtable, so that
 * the phases do not know which protocol version is spoken. side_h1.c is HTTP/1 and raw bytes (mode
 * tcp, tunnels); a multiplexing protocol puts its own object behind `mux` and shares `conn`.
 *
 * Input lives in one buffer: the head stays where it was read until the stream ends (the message
 * points into it), body bytes go through the window behind it. Slices handed out by read_body() stay
 * valid until release(). Output goes out by one sendv of everything there is; only what the kernel
 * did not take is copied (`pending`). Belongs to the stream's worker.
 */
#ifndef PROXY_SIDE_H
#define PROXY_SIDE_H

#include "base/buf.h"
#include "http/http.h"
#include "net/net.h"

struct stream;
struct side;
struct bwlim;

#define SIDE_SLICES	16
#define SIDE_BIG_WINDOW 65536

enum side_event {
	SIDE_MORE, /* nothing at the moment */
	SIDE_DATA, /* slices were handed out */
	SIDE_END, /* the message is complete, perhaps with slices */
	SIDE_BAD, /* breaks the protocol: side->body.error */
	SIDE_GONE, /* the peer ended or reset in the middle */
	SIDE_NOMEM,
};

struct side_ops {
	const char *name; /* "h1" */
	/*
	 * Reads what has arrived. > 0: `msg` is there; -EAGAIN; -EBADMSG: side->head.error; -EPIPE: the
	 * peer closed; -ENOMEM; other: broken. 1xx responses are heads of their own.
	 */
	int (*read_head)(struct side *s, struct http_msg *msg);
	/*
	 * Receives what there is, without looking at it. Called for every ready connection before any
	 * of their streams runs: the kernel's receive path stays in the processor's caches, then the send path.
	 */
	void (*prefetch)(struct side *s);
	/* Forgets the head read last (1xx), to read another. */
	void (*drop_head)(struct side *s);
	/* From here on the body of `msg` is read; framing TUNNEL: raw bytes, SIDE_END is their end. */
	void (*start_body)(struct side *s, struct http_msg *msg);
	enum side_event (*read_body)(struct side *s, struct str *slices, unsigned max,
				     unsigned *ret_n);
	/* All slices handed out were used; their memory may be filled again. */
	void (*release)(struct side *s);
	/*
	 * What is here of the body, without its framing; p NULL: nothing, or some of it has been thrown away. Valid until
	 * release().
	 */
	struct str (*peek_body)(struct side *s);
	/* Starts the body over from what was read together with the head. False: it is gone. */
	bool (*rewind)(struct side *s);
	/*
	 * Serialises the head; it leaves with the next write(), which must follow before control goes back
	 * to the loop. 0, -ENOBUFS.
	 */
	int (*write_head)(struct side *s, struct http_msg *msg, enum h1_connection conn);
	/*
	 * Sends head, slices, and with `is_end` the end of the message. Returns the bytes of the slices
	 * that were taken; the rest must be offered again, unchanged. -EPIPE and others: broken.
	 */
	ssize_t (*write)(struct side *s, const struct str *slices, unsigned n, bool is_end);
	/* Half-close after everything was flushed. */
	void (*shut_write)(struct side *s);
	/* Ends this exchange without a proper end. */
	void (*reset)(struct side *s);
};

struct window {
	char *mem;
	uint32_t cap;
	uint32_t base; /* the body begins here: end of the head */
	uint32_t head; /* first byte that slices still need */
	uint32_t parsed; /* end of what the body reader has seen */
	uint32_t tail; /* end of what was received */
};

struct side {
	const struct side_ops *ops;
	struct stream *st;
	struct conn *conn; /* NULL: not there (yet) */
	void *mux; /* a multiplexing codec's own; NULL for h1 */
	struct http_msg *msg; /* whose body is read */
	struct h1_peek *peek; /* side_h1.c: a chunked body that was looked at */
	/* reading */
	struct window in;
	char *head_mem; /* of the worker's head buffers; NULL: none */
	char *big_mem; /* of the worker's big buffers; in.mem points here when set */
	struct h1_head head;
	struct h1_body body;
	uint64_t rx, tx; /* bytes of this exchange on the wire side of the codec */
	uint64_t active_ns; /* last progress, loop clock */
	bool in_body; /* start_body() was called */
	bool was_refilled; /* body bytes have been overwritten: no rewind */
	bool was_filled_up; /* the last recv filled all the room */
	bool is_read_closed; /* end of stream seen */
	bool is_cut; /* what is not read yet is not wanted: the body ends here */
	bool is_noted; /* its fault is kept for `show errors`: the reader meets it again */
	bool keeps; /* body bytes stay in the window until a rewind */
	/* writing */
	struct str prefix; /* head, in the worker's scratch */
	const struct http_msg *out_msg; /* trailers */
	struct buf pending; /* what the kernel did not take; mem NULL: none */
	uint64_t chunk_left; /* bytes of the announced chunk not yet written */
	uint8_t out_framing; /* enum http_framing */
	bool is_first_chunk, is_end_sent, is_write_shut;
};

extern const struct side_ops side_h1;

void side_init(struct side *s, struct stream *st, struct conn *c);
/* Gives the buffers back; the connection is the caller's. */
void side_fini(struct side *s);
/* Makes room for input now; 0 or -ENOMEM. */
HG_WUR int side_need_buffer(struct side *s);

static inline bool side_is_flushed(const struct side *s)
{
	return s->prefix.len == 0 && buf_len(&s->pending) == 0;
}
/* Bytes received behind the message: the next request. */
static inline struct str side_leftover(const struct side *s)
{
	return str_make(s->in.mem + s->in.parsed, s->in.tail - s->in.parsed);
}

/* --- one direction ------------------------------------------------------------------------------ */

enum flow_result {
	FLOW_WAIT, /* see flow->waits_for_dst */
	FLOW_DONE, /* the end was written and flushed */
	FLOW_SRC_GONE,
	FLOW_SRC_BAD,
	FLOW_DST_GONE,
	FLOW_NOMEM,
};

/* Body bytes on their way from one side to the other. Bounded by the source's window. */
struct flow {
	struct side *src, *dst;
	uint64_t bytes; /* of body, taken by dst */
	bool is_active;
	bool src_end; /* the source's message is complete */
	bool is_done; /* and the destination has all of it */
	bool waits_for_dst;
	bool is_discarding; /* read, do not write */
	struct bwlim *limits; /* bwlim.h; NULL: none */
	uint64_t offered; /* with limits: to dst, which has not taken it yet */
	uint64_t paused_until_ns; /* by a limit; loop clock, 0: not */
	uint8_t i, n;
	struct str slices[SIDE_SLICES];
};

void flow_start(struct flow *f, struct side *src, struct side *dst);
/* The next slices, when the last ones were all taken. FLOW_DONE stands for "go on". For other pumps. */
enum flow_result flow_read(struct flow *f);
enum flow_result flow_pump(struct flow *f);
/* As dst->ops->write(); fewer bytes than there are: `dst` has no room, or f->paused_until_ns. For other pumps. */
ssize_t flow_write_some(struct flow *f, const struct str *slices, unsigned n, bool is_end);

#endif
