/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sockets in other network namespaces: a socket belongs to the one that its thread is in when it is made, so a
 * thread goes there for that one call and comes back. setns() needs CAP_SYS_ADMIN. netns_open(): control; the rest: any
 * thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "net/net_priv.h"

/* The process's own namespace. Written once by the main thread, before it publishes what sends a worker elsewhere. */
static int own_fd = -1;

int netns_open(const char *name, int *ret_fd, struct err *err)
{
	char path[sizeof("/run/netns/") + CONF_NETNS_MAX];
	int fd;

	if (own_fd < 0)
		own_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (own_fd < 0)
		return err_set(err, -errno, "cannot find this process's network namespace: %m");
	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(err, -errno, "no network namespace '%.64s': %s: %m", name, path);
	/* There and back: what workers will do later must be allowed now. */
	if (netns_enter(fd) != 0) {
		int rc = -errno;

		close(fd);
		return err_set(
			err, rc,
			"cannot use the network namespace '%.64s': %s (it needs CAP_SYS_ADMIN)",
			name, strerror(-rc));
	}
	netns_leave();
	*ret_fd = fd;
	return 0;
}

int netns_enter(int fd)
{
	return setns(fd, CLONE_NEWNET) != 0 ? -errno : 0;
}

void netns_leave(void)
{
	int saved = errno;

	/* A thread that stayed there would do everything else there, too. */
	BUG_ON(setns(own_fd, CLONE_NEWNET) != 0);
	errno = saved;
}

int netns_socket(const int *netns, int family)
{
	const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
	int fd, r;

	if (likely(!netns)) {
		fd = socket(family, type, 0);
		return fd < 0 ? -errno : fd;
	}
	r = netns_enter(*netns);
	if (r)
		return r;
	fd = socket(family, type, 0);
	r = fd < 0 ? -errno : fd;
	netns_leave();
	return r;
}

/* --- congestion control ---------------------------------------------------------------------------- */

int tcp_set_socket(int fd, const struct conf_socket *s)
{
	const unsigned ms = (unsigned)((s->user_timeout + 999999) / 1000000);

	if (s->user_timeout && setsockopt(fd, SOL_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms)) < 0)
		return -errno;
	if (s->congestion && setsockopt(fd, SOL_TCP, TCP_CONGESTION, s->congestion,
					(socklen_t)strlen(s->congestion)) < 0)
		return -errno;
	return 0;
}

int net_check_congestion(const char *name, struct err *err)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = 0;
	char list[256] = "";
	size_t n = 0;
	FILE *f;

	if (fd < 0)
		return err_set(err, -errno, "no socket to try 'cc %.16s' with: %m", name);
	if (setsockopt(fd, SOL_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) < 0)
		rc = -errno;
	close(fd);
	if (rc == 0)
		return 0;
	f = fopen("/proc/sys/net/ipv4/tcp_available_congestion_control", "re");
	if (f) {
		n = fread(list, 1, sizeof(list) - 1, f);
		fclose(f);
	}
	while (n && list[n - 1] == '\n')
		n--;
	list[n] = '\0';
	return err_set(err, rc, "'cc %.16s': %s (this kernel has: %s)", name,
		       rc == -ENOENT  ? "no such congestion control"
		       : rc == -EPERM ? "not allowed without CAP_NET_ADMIN"
				      : strerror(-rc),
		       n ? list : "nothing that it tells of");
}
