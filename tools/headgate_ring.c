/* SPDX-License-Identifier: BSD-2-Clause */
/* `headgate ring FILE`: what a log ring with a backing-file holds, with or without the process that writes it. */
#include <errno.h>
#include <string.h>

#include "base/log_store.h"
#include "tools_priv.h"

int tool_ring(struct tool *t, int argc, char **argv)
{
	int rc;

	(void)t;
	if (argc != 2) {
		fprintf(stderr, "usage: headgate ring FILE\n");
		return 2;
	}
	rc = log_store_file_print(argv[1], stdout);
	if (rc == 0)
		return 0;
	fprintf(stderr, "headgate: %s: %s\n", argv[1],
		rc == -EBADMSG ? "this is not a log ring" : strerror(-rc));
	return 1;
}
