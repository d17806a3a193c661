/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections, streams and stick tables: what track-sc holds and counts, what expressions read there, which
 * server a client is stuck to. Workers. What a connection tracks (tcp-request connection, session) lasts
 * until it closes; what a stream tracks (content, http-request) until the stream ends, and hides
 * the connection's of the same number meanwhile.
 */
#ifndef PROXY_TRACK_H
#define PROXY_TRACK_H

#include "lb/stick.h"
#include "proxy/stream.h"

/* The counters of most configurations; connections with more take their memory from the system. */
#define TRACK_POOLED 3
size_t track_size(unsigned n_counters); /* bytes of a struct track */

/* Connection and session rules: track-sc, sc-inc-gpc, sc-set-gpt. Others are ignored. */
void track_client_rule(struct client *cl, const struct conf_rule *r, struct subject *s);
void track_client_session(struct client *cl); /* the transport is up and admitted: sess_cnt */
void track_client_end(struct client *cl);

/* The client's next request will be counted by its source address: has that entry fetched meanwhile. */
void track_ahead(const struct client *cl, struct stick_ahead *ret);

/* Rules of streams. */
extern rule_fn rule_track, rule_sc_inc, rule_sc_set;
void track_request(struct stream *st); /* a head was read: http_req of what the connection tracks */
void track_response(struct stream *st); /* the server's head was read: http_err, http_fail */
void track_finish(struct stream *st); /* all is sent: bytes, errors of our own */
void track_stream_end(struct stream *st); /* lets everything go */

/* subject_ops.table of streams and of connections without one. */
int track_ask_stream(const struct subject *s, const struct table_op *op, const struct sample *key,
		     struct sample *ret);
int track_ask_client(const struct subject *s, const struct table_op *op, const struct sample *key,
		     struct sample *ret);

/* The value of `e` as a key of `t`; in `out` or where the sample lies. -ENOENT, -EINVAL: none. */
HG_WUR int track_key_by_expr(const struct expr *e, const struct subject *s,
			     const struct stick_table *t, char out[CONF_STICK_KEY_MAX],
			     struct str *ret);

/* track_stick.c: `stick` rules of the backend: the server to use, or `forced` (which has been chosen before, or NULL). */
struct server *track_stick_pick(struct stream *st, struct server *forced);
void track_stick_store(struct stream *st); /* the server is known and answers: remembers it */

#endif
