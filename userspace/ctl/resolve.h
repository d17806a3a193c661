/* SPDX-License-Identifier: BSD-2-Clause */
/* Server names to addresses, once, while a configuration is loaded. Control thread; blocks. */
#ifndef CTL_RESOLVE_H
#define CTL_RESOLVE_H

#include "conf/conf.h"

/*
 * Gives every server that is written by name an address, as the system resolves it. 0, or -ENOENT
 * after reporting each name that has none.
 */
HG_WUR int resolve_servers(struct conf *conf, conf_report_fn *report, void *ctx);

#endif
