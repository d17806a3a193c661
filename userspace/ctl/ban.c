/* SPDX-License-Identifier: BSD-2-Clause */
/* Bans that rules ask for (`xdp-drop`, `xdp-reset`): mails of workers become denied prefixes. Control thread. */
#include <errno.h>
#include <string.h>

#include "ctl/ctl_priv.h"

void ctl_ban(struct mail *m)
{
	struct ban *b = container_of(m, struct ban, mail);
	struct ctl *ctl = b->owner;
	struct timespec ts;
	uint64_t now;
	int rc = -ENOENT;

	/* The loop's clock may be a while old; the kernel looks at this one. */
	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
	if (ctl->dp)
		rc = dp_deny_add(ctl->dp, &b->prefix, b->ttl_ns ? now + b->ttl_ns : 0, HG_DENY_RULE,
				 b->is_told);
	if (rc > 0)
		ctl->n_bans++;
	/* Once, and then the counter tells: whoever causes bans must not fill the log. */
	if (rc < 0 && !ctl->n_bans_failed++)
		log_msg(LOG_LVL_WARNING, "xdp-drop: a prefix cannot be denied: %s", strerror(-rc));
	atomic_fetch_sub_explicit(&ctl->shared.bans, 1, memory_order_relaxed);
	mem_free(b);
}
