/* SPDX-License-Identifier: BSD-2-Clause */
/* Server names to first addresses (`init-addr`), while a configuration is loaded. Control thread; blocks. */
#ifndef CTL_RESOLVE_H
#define CTL_RESOLVE_H

#include "conf/conf.h"

struct lb_registry;
struct server_states;

/*
 * Gives every server that is written by name an address, by the methods of its line. For `last`: `running`, what
 * runs now, and `states`, what ran before; NULL: nothing. 0, or -ENOENT after reporting each server whose methods all failed.
 */
HG_WUR int resolve_servers(struct conf *conf, const struct lb_registry *running,
			   const struct server_states *states, conf_report_fn *report, void *ctx);

#endif
