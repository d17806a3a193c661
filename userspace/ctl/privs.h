/* SPDX-License-Identifier: BSD-2-Clause */
/* What the process gives up for good when it has started. */
#ifndef CTL_PRIVS_H
#define CTL_PRIVS_H

#include "base/err.h"
#include "conf/conf.h"

/*
 * Takes system calls away that are never made once the daemon runs, from this thread and those it makes later, and with
 * them the right to gain privileges. When root is not needed any more, before threads are made. 0 or -errno.
 */
HG_WUR int privs_deny_calls(enum conf_seccomp mode, struct err *err);

#endif
