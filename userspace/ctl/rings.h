/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rings of the log: `show events` reads them (rings.c), `server` lines send them on (ring_forward.c). The lines
 * themselves are base/log_store.h's. Control thread.
 */
#ifndef CTL_RINGS_H
#define CTL_RINGS_H

#include "ctl/ctl_priv.h"

struct rings;

HG_WUR int rings_create(struct ctl *ctl, struct rings **ret_rings);
void rings_destroy(struct rings *r); /* NULL is ignored */
/* The rings are these from now on; servers that stay keep their connections. 0 or -ENOMEM. */
HG_WUR int rings_configure(struct rings *r, const struct conf *conf);

/* A client of the runtime API that waits for lines: its own memory, between `show events -w` and its end. */
struct ring_watch;
/* Input came, or the connection is gone: no more lines. Frees it. */
void ring_watch_stop(struct ring_watch *w, bool is_gone);
/* The client takes bytes again. */
void ring_watch_resume(struct ring_watch *w);

/* ring_forward.c: sending on to one server. */
struct ring_forward;
struct ring_forwards {
	struct ctl *ctl;
	struct net_worker nw;
	struct list all; /* ring_forward */
};
HG_WUR int ring_forwards_configure(struct ring_forwards *f, const struct conf *conf);
void ring_forwards_pump(struct ring_forwards *f); /* lines came */
void ring_forwards_close(struct ring_forwards *f);

#endif
