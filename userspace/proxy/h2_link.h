/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server connection that speaks HTTP/2 (h2_mux.h), shared by the streams of one worker that were sent to
 * that server. While it carries exchanges it stands on server_worker.shared; between them it is an idle
 * connection like any other (lb/idle.c), which the pool may close. Worker's thread.
 */
#ifndef PROXY_H2_LINK_H
#define PROXY_H2_LINK_H

#include "proxy/h2_mux.h"

/* The stream's connection has just opened: is HTTP/2 spoken on it? */
bool h2_link_is_wanted(const struct stream *st);
/* Is the stream's upgrade a WebSocket that goes to its server as an extended CONNECT (RFC 8441)? */
bool h2_link_takes_websocket(const struct stream *st);
/* It becomes a link, and the stream its first exchange. 0 or -ENOMEM: the connection is as it was. */
HG_WUR int h2_link_begin(struct stream *st);
/* A place on a link that is there and has this pool_key. False: none has room. */
bool h2_link_join(struct stream *st, uint64_t key);
/* Is this idle connection a link? Then h2_link_use(); false from there: it was closed. */
bool h2_link_is(const struct conn *c);
bool h2_link_use(struct stream *st, struct conn *c);
/*
 * The stream gives up its exchange (st->back.conn), complete or not. `keep`: the connection may serve others.
 */
void h2_link_leave(struct stream *st, bool keep);

/* For side_h2.c. */
int h2_link_read_head(struct side *s, struct http_msg *msg);

#endif
