/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection that speaks HTTP/2, towards a client or a server: what both have in common. Its exchanges
 * are sides of ordinary `struct stream`s, each with a connection of its own that exists only here
 * (struct h2_exchange), so that nothing in the phases has to know about multiplexing. Belongs to the
 * worker; h2_client.c and h2_link.c are its two kinds.
 *
 * Order of work, always from the top of an event or a deferred call, never from inside a stream: read,
 * let the streams run that have news, send, let those run that waited for room. Memory is bounded: input
 * windows by the session, output by one buffer; a peer that does not read is not read from.
 */
#ifndef PROXY_H2_MUX_H
#define PROXY_H2_MUX_H

#include "http/h2.h"
#include "proxy/worker_priv.h"

struct h2_exchange;

struct h2_mux {
	struct worker *w;
	struct conn *c; /* the real one */
	struct h2_session *h2;
	struct buf out; /* of the worker's big buffers; mem NULL: nothing waits */
	struct list exchanges, runnable, blocked;
	struct deferred work;
	unsigned n_exchanges;
	bool is_working; /* inside h2_mux_turns(): whoever wakes is heard */
	bool is_dead; /* the connection is broken */
	/* Hands the head that the side was given to the session. 0 or -errno. */
	int (*send_head)(struct h2_exchange *ex, struct http_msg *m, bool has_body);
};

struct h2_exchange {
	struct conn conn; /* facts of the real one; is_broken when the exchange is over */
	struct h2_stream h2;
	struct h2_mux *mux;
	struct side *side; /* of its stream; NULL: no stream (any more) */
	struct http_msg *in_msg; /* the head that was read last: trailers are added to it */
	struct list link, run_link, block_link;
	struct http_msg *head; /* to be sent with the next write() */
	uint8_t head_error; /* enum http_error */
	bool is_upgrade; /* towards a server: what follows the head is a tunnel, when there is one */
	uint32_t unread; /* bytes received whose window was not given back */
};

extern const struct side_ops side_h2_client, side_h2_server;
/* Of an exchange's connection: how its side is known. */
extern const struct conn_ops h2_exchange_ops;

/* What the configuration allows connections of one kind. */
struct h2_limits h2_mux_limits(const struct worker *w, const struct conf_global *g,
			       bool is_towards_servers);
/* `m` and its lists; the session is the caller's to make. `on_work`: the deferred call that does the work. */
void h2_mux_init(struct h2_mux *m, struct worker *w, struct conn *c,
		 void (*on_work)(struct deferred *d));
void h2_mux_fini(struct h2_mux *m); /* session, buffers; no exchange is left */
void h2_exchange_init(struct h2_exchange *ex, struct h2_mux *m, bool is_server_side);
/* The session forgets it; off all lists. */
void h2_exchange_fini(struct h2_exchange *ex, enum h2_error why);

/* Reads, runs, sends for some rounds. False: there is more to do, and h2_mux_work_later() was called. */
bool h2_mux_turns(struct h2_mux *m);
void h2_mux_work_later(struct h2_mux *m);
bool h2_mux_need_out(struct h2_mux *m); /* false: no memory */
void h2_mux_put_out_back(struct h2_mux *m); /* unless something waits in it */
void h2_mux_flush(struct h2_mux *m);
void h2_mux_run(struct h2_mux *m); /* streams that have news */
void h2_wake(struct h2_exchange *ex); /* its stream has something to do */
void h2_wait_for_room(struct h2_exchange *ex); /* runs when output may go on */

/* What sessions of both kinds report alike. */
int h2_mux_on_data(struct h2_stream *s, struct str data);
void h2_mux_on_trailers(struct h2_stream *s);
void h2_mux_on_end(struct h2_stream *s);
void h2_mux_on_close(struct h2_stream *s);
void h2_mux_on_window(void *owner, struct h2_stream *s); /* owner: struct h2_mux */

static inline struct h2_exchange *h2_exchange_of(const struct side *s)
{
	return container_of(s->conn, struct h2_exchange, conn);
}

static inline bool h2_is_exchange(const struct conn *c)
{
	return c->ops == &h2_exchange_ops;
}

#endif
