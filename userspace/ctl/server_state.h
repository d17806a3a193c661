/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * State files of servers: what `show servers state` printed before a process ended is what the next one begins with
 * (`server-state-file`, `load-server-state-from-file`). Read once, at the start: a reload keeps states by itself.
 */
#ifndef CTL_SERVER_STATE_H
#define CTL_SERVER_STATE_H

#include "conf/conf.h"

struct lb_registry;
struct proxy_snapshot;
struct server_states;

/*
 * Reads the files that `conf` names. Files that cannot be read and lines that cannot be understood are warnings, and
 * their servers begin as configured. 0 with *ret_states (NULL: no file is named), or -ENOMEM. Control thread; blocks.
 */
HG_WUR int server_states_load(const struct conf *conf, conf_report_fn *report, void *ctx,
			      struct server_states **ret_states);
void server_states_free(struct server_states *st); /* NULL is fine */

/* The address that a server had, for `init-addr last`: false when the files do not know one of this name. */
bool server_states_addr(const struct server_states *st, const struct conf_server *cs,
			struct addr *ret_addr);

/*
 * Administrative states, weights, and what checks had found. Before health checks and workers run. A weight that the
 * configuration has changed since, 'disabled' there, and states of servers without checks are the configuration's.
 */
void server_states_apply(const struct server_states *st, struct lb_registry *r,
			 const struct proxy_snapshot *snap);

#endif
