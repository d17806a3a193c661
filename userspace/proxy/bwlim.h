/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bandwidth limits of a stream's bodies (`filter bwlim-in|bwlim-out`, set-bandwidth-limit). A flow with limits asks
 * before it writes; while it may not, it is paused until `paused_until_ns`, reads nothing more than its window, and the
 * stream's timer wakes it. A flow without pays for one look at a pointer. Belongs to the stream's worker.
 */
#ifndef PROXY_BWLIM_H
#define PROXY_BWLIM_H

#include "proxy/stream.h"

extern rule_fn rule_bandwidth; /* set-bandwidth-limit */
/*
 * As f->dst->ops->write(), within the limits. Fewer bytes than there are: the rest waits for `dst`, or the flow is
 * paused. `is_end` is told with the last of them.
 */
ssize_t bwlim_write(struct flow *f, const struct str *slices, unsigned n, bool is_end);
void bwlim_end(struct stream *st); /* gives entries of stick tables back */

#endif
