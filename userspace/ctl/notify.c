/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The service manager's socket (sd_notify(3), without its library): ready, reloading, stopping, and the watchdog. Everything
 * here does nothing when nobody asked for it. Control thread.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "ctl/ctl_priv.h"

int notify_open(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len;
	int fd;

	if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(un.sun_path))
		return -1;
	memcpy(un.sun_path, path, strlen(path) + 1);
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	if (un.sun_path[0] == '@')
		un.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&un, len) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

void notify_send(const struct ctl *ctl, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	int n;

	if (ctl->notify_fd < 0)
		return;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n > 0 && (size_t)n < sizeof(text))
		(void)!send(ctl->notify_fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void notify_ready(const struct ctl *ctl)
{
	notify_send(ctl, "READY=1\nMAINPID=%d\nSTATUS=Ready, configuration %llu.\n",
		    (int)(ctl->is_worker ? getppid() : getpid()),
		    (unsigned long long)ctl->current->snap.generation);
}

void notify_reloading(const struct ctl *ctl)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	notify_send(ctl, "RELOADING=1\nMONOTONIC_USEC=%llu\nSTATUS=Reading the configuration.\n",
		    (unsigned long long)now.tv_sec * 1000000 +
			    (unsigned long long)now.tv_nsec / 1000);
}

void notify_alive(const struct ctl *ctl)
{
	static int is_wanted = -1;

	if (is_wanted < 0) {
		const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
		uint64_t main_pid = (uint64_t)(ctl->is_worker ? getppid() : getpid()), v;

		is_wanted = usec &&
			    (!pid || (str_to_u64(str_from_cstr(pid), &v) == 0 && v == main_pid));
	}
	if (is_wanted)
		notify_send(ctl, "WATCHDOG=1\n");
}
