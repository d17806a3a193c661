/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client connection that speaks HTTP/2 (h2_mux.h). Each of its requests has a stream, and a client and a
 * connection of its own. Belongs to the worker.
 */
#ifndef PROXY_H2_CLIENT_H
#define PROXY_H2_CLIENT_H

#include "proxy/h2_mux.h"

struct h2_conn {
	struct h2_mux m;
	struct client *cl; /* the real one */
	uint64_t n_requests;
	bool is_abuse_logged;
	uint8_t drain; /* enum h2_drain */
	uint32_t max_requests; /* 0: no limit */
};

enum h2_drain {
	H2_DRAIN_NO,
	H2_DRAIN_TOLD,
	H2_DRAIN_LAST
};

struct h2_request { /* an exchange with a client */
	struct h2_exchange x;
	struct client cl;
	struct h2_conn *hc;
	bool is_websocket; /* RFC 8441: HTTP/1's upgrade towards the server */
};

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

/* h2_exchange.c */
extern const struct h2_ops h2_client_ops; /* owner: struct h2_mux */
int h2_request_send_head(struct h2_exchange *ex, struct http_msg *m, bool has_body);

#endif
