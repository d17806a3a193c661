/* SPDX-License-Identifier: BSD-2-Clause */
/* headgated: reads the command line and hands over to the control thread. Nothing else, for ever. */
#include "ctl/ctl.h"

int main(int argc, char **argv)
{
	struct ctl_options opts;
	int status;

	if (ctl_parse_options(argc, argv, &opts, &status) != 0)
		return status;
	status = opts.check ? ctl_check(&opts) : ctl_run(&opts);
	ctl_options_free(&opts);
	return status;
}
