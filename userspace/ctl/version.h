/* SPDX-License-Identifier: BSD-2-Clause */
/* Who we are, and whose interface we offer. */
#ifndef CTL_VERSION_H
#define CTL_VERSION_H

#include <stdbool.h>
#include <stdio.h>

#define CTL_DEFAULT_CONFIG "/etc/headgate/headgate.cfg"
#define CTL_DEFAULT_SOCKET "/run/headgate/admin.sock"
/* The HAProxy version whose interface is offered: configuration conditions, `show info`. */
#define CTL_HAPROXY_VERSION "3.5-dev0"
#define CTL_RELEASE_DATE    "2026/11/21"

/* -v and -vv */
void version_print(FILE *out, bool is_long);

#endif
