/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client connection that speaks HTTP/2. Its streams are ordinary `struct stream`s: each has a client and
 * a connection of its own, which exist only here (struct h2_exchange), so that nothing in the phases has
 * to know about multiplexing. Belongs to the worker; included by client.c, h2_client.c and side_h2.c.
 *
 * Order of work, always from the top of an event or a deferred call, never from inside a stream: read,
 * let the streams run that have news, send, let those run that waited for room.
 */
#ifndef PROXY_H2_CLIENT_H
#define PROXY_H2_CLIENT_H

#include "http/h2.h"
#include "proxy/worker_priv.h"

struct h2_conn {
	struct client *cl; /* the real one */
	struct h2_session *h2;
	struct buf out; /* of the worker's big buffers; mem NULL: nothing waits */
	struct list exchanges, runnable, blocked;
	struct deferred work;
	unsigned n_exchanges;
	uint64_t n_requests;
	bool is_working; /* inside h2_client_work(): whoever wakes is heard */
	bool is_dead; /* the connection is broken */
	bool is_abuse_logged;
	uint8_t drain; /* enum h2_drain */
};

enum h2_drain {
	H2_DRAIN_NO,
	H2_DRAIN_TOLD,
	H2_DRAIN_LAST
};

struct h2_exchange {
	struct conn conn; /* facts of the real one; is_broken when the exchange is over */
	struct client cl;
	struct h2_stream h2;
	struct h2_conn *hc;
	struct list link, run_link, block_link;
	const struct http_msg *head; /* to be sent with the next write() */
	struct http_msg raw_msg; /* of an answer that came as text */
	struct str raw; /* the rest of its body */
	bool is_raw;
	bool is_websocket; /* RFC 8441: HTTP/1's upgrade towards the server */
	bool has_new_data;
	uint8_t head_error; /* enum http_error */
	uint32_t unread; /* bytes received whose window was not given back */
};

extern const struct side_ops side_h2;
/* Of an exchange's connection: how its side is known. */
extern const struct conn_ops h2_exchange_ops;

/*
 * The client speaks HTTP/2 from here on; `first`: bytes already received, in no buffer that streams use. False: out
 * of memory, the caller closes.
 */
HG_WUR bool h2_client_start(struct client *cl, struct str first);
/* An HTTP/1 reader met HTTP/2's preface: the stream is freed and the client goes on in HTTP/2. */
bool h2_client_is_preface(const struct stream *st);
enum step h2_client_take_over(struct stream *st);
void h2_client_event(struct client *cl);
void h2_client_timer(struct client *cl);
/* Nothing new, please; ends when the last exchange has. */
void h2_client_drain(struct client *cl);
/* The connection ends without a word, its exchanges with it; soon, not now. */
void h2_client_drop(struct client *cl);
/* The real client is being closed. */
void h2_client_free(struct client *cl);
/* The exchange's client is being closed. */
void h2_exchange_close(struct client *cl);

/* Among the files of this protocol. */
extern const struct h2_ops h2_client_ops;
void h2_wake(struct h2_exchange *ex); /* its stream has something to do */
void h2_wait_for_room(struct h2_exchange *ex); /* runs when output may go on */
void h2_wake_blocked(struct h2_conn *hc); /* those whose windows are open */
void h2_work_later(struct h2_conn *hc);
bool h2_need_out(struct h2_conn *hc); /* false: no memory */
void h2_flush(struct h2_conn *hc);

static inline struct h2_exchange *h2_exchange_of(const struct side *s)
{
	return container_of(s->conn, struct h2_exchange, conn);
}

#endif
