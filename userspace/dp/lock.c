/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who owns the pins: the holder of a lock on their directory. It ends with the process, however that ends, and
 * goes over to a new one with the descriptor (-x).
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dp/dp_priv.h"

/* flock() belongs to the open file: with a descriptor of the owner's we are the owner too. */
static bool is_lock_of(int fd, const char *dir)
{
	struct stat ours, theirs;

	return fstat(fd, &theirs) == 0 && stat(dir, &ours) == 0 && ours.st_dev == theirs.st_dev &&
	       ours.st_ino == theirs.st_ino && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

int dp_lock(struct dp *dp, int given, struct err *err)
{
	if (given > 0 && is_lock_of(given, dp->dir)) {
		dp->lock_fd = fcntl(given, F_DUPFD_CLOEXEC, 3);
		return dp->lock_fd < 0 ? err_set(err, -errno, "out of descriptors") : 0;
	}
	dp->lock_fd = open(dp->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dp->lock_fd < 0)
		return err_set(err, -errno, "cannot open %s: %m", dp->dir);
	if (flock(dp->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	close(dp->lock_fd);
	dp->lock_fd = -1;
	return 1;
}

int dp_lock_fd(const struct dp *dp)
{
	return dp->lock_fd;
}
