/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HTTP/2 sessions without I/O (RFC 9113): bytes in, heads, body slices and events out, and back. One
 * session is one connection, as server (towards clients) or as client (towards servers). Called by
 * proxy/; a session belongs to the connection's worker. The caller embeds a struct h2_stream in its own
 * object for every exchange; the session only refers to it until h2_stream_leave() or on_close.
 *
 * Nothing is sent from inside: h2_produce() fills a buffer when the caller has room for it. Callbacks
 * run inside h2_receive() and h2_produce() and must not call either.
 */
#ifndef HTTP_H2_H
#define HTTP_H2_H

#include "http/http.h"

/*
 * Advertised to the peer; what it may cost: streams times H2_STREAM_WINDOW, all together H2_CONN_WINDOW. Towards
 * servers all streams may be full: they belong to different clients, and a slow one must not stop the others.
 */
#define H2_MAX_STREAMS	 100
#define H2_STREAM_WINDOW 65535
#define H2_FRAME	 16384 /* RFC 9113 4.2 */
#define H2_CONN_WINDOW	 (1u << 20)
/* Room that h2_produce() wants in its buffer before it adds to it: a frame and then some. */
#define H2_PRODUCE_ROOM 17408

#define H2_PREFACE     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define H2_PREFACE_LEN 24

enum h2_error {
	H2_NO_ERROR = 0,
	H2_PROTOCOL_ERROR = 1,
	H2_INTERNAL_ERROR = 2,
	H2_STREAM_CLOSED = 5,
	H2_REFUSED_STREAM = 7,
	H2_CANCEL = 8,
	H2_CALM = 11, /* ENHANCE_YOUR_CALM */
	H2_HTTP_1_1_REQUIRED = 13,
};

/* What a peer may do too often; each kind has a budget that time and useful work refill (h2_guard.c). */
/* clang-format off */
#define H2_ABUSES(X)                                       \
	X(RESET, "streams reset too often")                \
	X(CONTROL, "SETTINGS flood")                       \
	X(PING, "PING flood")                              \
	X(EMPTY, "empty frames")                           \
	X(WINDOW, "WINDOW_UPDATE flood")                   \
	X(PRIORITY, "PRIORITY or unknown frames")          \
	X(CONTINUATION, "CONTINUATION flood")              \
	X(HEADERS, "header fields far beyond the limit")   \
	X(GLITCHES, "more glitches than allowed")
/* clang-format on */

enum h2_abuse {
	H2_ABUSE_NONE,
#define X(name, text) H2_ABUSE_##name,
	H2_ABUSES(X)
#undef X
	H2_ABUSE_COUNT
};
const char *h2_abuse_text(enum h2_abuse a);

struct h2_session;

struct h2_stream {
	struct h2_session *h2;
	int32_t id; /* 0: closed, or never opened */
	uint32_t error; /* enum h2_error of on_close */
	bool in_ended; /* the peer's END_STREAM was received */
	bool out_started; /* our head was handed over */
	bool out_ended; /* our END_STREAM was produced */
	/* Private: what h2_stream_write() offers at this moment. */
	const struct str *slices;
	unsigned n_slices;
	size_t offset, taken; /* into slices[0]; of this offer */
	bool offers_end, has_trailers_sent, has_body;
	const struct http_msg *trailers;
};

/* What the session tells its owner. */
struct h2_ops {
	/*
	 * Server: the head of a request is whole; read it with h2_read_request() before returning. The
	 * object to go on with, or NULL: refused (REFUSED_STREAM). `id` is set by the session afterwards.
	 */
	struct h2_stream *(*on_request)(void *owner, bool is_end);
	/* Client: the head of a response (1xx included) is whole: h2_read_response() before returning. */
	void (*on_response)(struct h2_stream *s, bool is_end);
	/* Body. The bytes must be copied; h2_stream_consumed() when their memory is free again. < 0: no room. */
	int (*on_data)(struct h2_stream *s, struct str data);
	/* Trailers are whole: h2_read_trailers() before returning. */
	void (*on_trailers)(struct h2_stream *s);
	void (*on_end)(struct h2_stream *s); /* END_STREAM */
	/* The stream is over and forgotten; s->error says how. */
	void (*on_close)(struct h2_stream *s);
	/* The peer opened a window: NULL stands for the connection's. */
	void (*on_window)(void *owner, struct h2_stream *s);
	/* GOAWAY: streams above `last_id` were not processed. */
	void (*on_goaway)(void *owner, int32_t last_id, uint32_t error);
};

struct h2_limits {
	uint32_t max_head; /* bytes of names and values and 32 each (RFC 9113 6.5.2) */
	unsigned max_fields;
	bool allow_connect_protocol; /* RFC 8441, servers */
	/* 0: H2_MAX_STREAMS, H2_STREAM_WINDOW, 16384, 4096. */
	uint32_t max_streams, window, max_frame;
	uint32_t header_table;
	bool has_header_table; /* 0 is a size, too */
	uint32_t max_glitches; /* oddities until the connection ends; 0: no limit */
};

/* `now_ns`: the loop's clock, here and below: refills budgets. 0, -ENOMEM. The first SETTINGS are queued. */
HG_WUR int h2_server_new(const struct h2_ops *ops, void *owner, const struct h2_limits *limits,
			 uint64_t now_ns, struct h2_session **ret);
HG_WUR int h2_client_new(const struct h2_ops *ops, void *owner, const struct h2_limits *limits,
			 uint64_t now_ns, struct h2_session **ret);
void h2_free(struct h2_session *h); /* NULL is ignored; streams are not told */
void h2_trim(struct h2_session *h); /* gives memory back that an idle connection does not need */

/*
 * Takes all of `in`. 0; -ENOMEM; -EPROTO: the connection is over, a GOAWAY is queued where that is
 * possible: produce, send, close.
 */
HG_WUR int h2_receive(struct h2_session *h, struct str in, uint64_t now_ns);
/*
 * Appends frames to `out` while at least H2_PRODUCE_ROOM is free. 0; -ENOBUFS: more is waiting for
 * room; -ENOMEM and -EPROTO: the connection is over.
 */
HG_WUR int h2_produce(struct h2_session *h, struct buf *out);
/* Is something waiting that h2_produce() would write? */
bool h2_wants_output(const struct h2_session *h);
/* GOAWAY was decided or received in a way that ends the connection once output is flushed. */
bool h2_is_over(const struct h2_session *h);
/* May another exchange begin? Client: asks also for the peer's limit. */
bool h2_can_open(const struct h2_session *h);
/* Client: does the server take RFC 8441's CONNECT? 1, 0; -EINPROGRESS: its SETTINGS have not come yet. */
int h2_takes_protocols(const struct h2_session *h);
enum h2_abuse h2_abuse(const struct h2_session *h);

/* Graceful end, first step (RFC 9113 6.8): tells that nothing new is wanted, without refusing what is on its way. */
HG_WUR int h2_shutdown_notice(struct h2_session *h);
/* Second step: streams from here on are not processed. */
HG_WUR int h2_goaway(struct h2_session *h, enum h2_error why);
/* At once: GOAWAY, and nothing is read any more. */
void h2_terminate(struct h2_session *h, enum h2_error why);

/* --- heads --------------------------------------------------------------------------------------- */

/*
 * Only inside on_request, on_response and on_trailers: the head that was just received, copied to
 * m->arena and checked as strictly as HTTP/1's. 0; -EBADMSG with the reason in *ret_error; -ENOMEM.
 * The request comes in the form that streams know: host in a Host field, cookies joined, path in
 * origin form; *ret_protocol (may be NULL): RFC 8441's :protocol, empty when there is none.
 */
HG_WUR int h2_read_request(struct h2_session *h, struct http_msg *m, bool is_end,
			   struct str *ret_protocol, enum http_error *ret_error);
HG_WUR int h2_read_response(struct h2_session *h, struct http_msg *m, bool is_end,
			    enum http_method req_method, enum http_error *ret_error);
HG_WUR int h2_read_trailers(struct h2_session *h, struct http_msg *m);
/* Bytes of the head that was just received, names and values. */
size_t h2_head_size(const struct h2_session *h);

/* --- exchanges ----------------------------------------------------------------------------------- */

/*
 * Queues the head of a response. 1xx: others follow. `has_body` false: the stream ends with it. 101 leaves
 * as 200 (RFC 8441). 0, -ENOMEM, -EPIPE (the stream is closed), -EINVAL (cannot be expressed).
 */
HG_WUR int h2_stream_respond(struct h2_stream *s, const struct http_msg *m, bool has_body);
/*
 * Client: opens a stream with the head of `m`. `scheme`: "http" or "https"; `protocol`: RFC 8441, or empty. 0, -ENOMEM,
 * -EAGAIN (no stream id or the peer's limit), -EINVAL.
 */
HG_WUR int h2_stream_request(struct h2_session *h, struct h2_stream *s, const struct http_msg *m,
			     struct str scheme, struct str protocol, bool has_body);
/*
 * Produces into `out`, among whatever else waits, as much of the slices as windows and room allow, with
 * is_end the end of the stream (and `trailers`, when it has any). Returns the bytes taken; the rest must be offered
 * again. The end is out when s->out_ended. -EPIPE: the stream is closed; -ENOMEM, -EPROTO.
 */
HG_WUR ssize_t h2_stream_write(struct h2_stream *s, struct buf *out, const struct str *slices,
			       unsigned n, bool is_end, const struct http_msg *trailers);
/* Do the windows admit data at this moment? */
bool h2_stream_has_window(const struct h2_stream *s);
/* n bytes handed to on_data are no longer kept: the peer may send as many again. */
void h2_stream_consumed(struct h2_stream *s, size_t n);
/*
 * The owner's object goes away: s is not touched again. What is not complete is reset with `why`.
 * `unread`: bytes handed to on_data and not consumed.
 */
void h2_stream_leave(struct h2_stream *s, enum h2_error why, size_t unread);

#endif
