/* SPDX-License-Identifier: BSD-2-Clause */
/* What a stream's connection to its server is made with, and what makes it fit for other streams. Worker's thread. */
#ifndef PROXY_DIAL_PLAN_H
#define PROXY_DIAL_PLAN_H

#include "proxy/stream.h"

struct dial_plan {
	struct dial_opts opts;
	struct addr to, from;
};

/* Tunnels and upgrades are asked of servers in HTTP/1 only, but for WebSockets. */
bool dial_is_http1_only(const struct stream *st);
/* Nothing distinguishes a connection to this server from another: the usual case. */
bool dial_is_plain(const struct stream *st);
/* Everything but the address. 0, -ENOMEM, or -E2BIG: the PROXY header. */
HG_WUR int dial_plan_make(struct stream *st, struct dial_plan *p);
/* Where to; false: nothing to connect to. Points into `p`. */
bool dial_target(struct stream *st, struct dial_plan *p);
/* What connections with this plan have in common, and no others; never 0. */
uint64_t dial_key(struct stream *st, const struct dial_plan *p);

#endif
