/* SPDX-License-Identifier: BSD-2-Clause */
/* What signals mean to the daemon. Control thread; watched from before any other thread exists. */
#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "ctl/ctl_priv.h"

static void control_signal(struct ctl *ctl, int signo)
{
	switch (signo) {
	case SIGTERM:
	case SIGINT:
		ctl_hard_stop(ctl);
		break;
	case SIGUSR1:
		ctl_soft_stop(ctl);
		break;
	case SIGUSR2:
	case SIGHUP:
		/* What came of it is in the log. */
		if (ctl_reload(ctl, NULL) != 0)
			break;
		break;
	}
}

static void control_on_signal(struct ev_fd *ev, uint32_t events)
{
	struct ctl *ctl = container_of(ev, struct ctl, signals);
	struct signalfd_siginfo si;

	while (read(ev->fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		control_signal(ctl, (int)si.ssi_signo);
}

int ctl_watch_signals(struct ctl *ctl, struct err *err)
{
	sigset_t set;
	int fd, rc;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGHUP);
	/* Before any other thread exists, so that all inherit it. */
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (fd < 0)
		return err_set(err, -errno, "cannot watch signals: %m");
	ctl->signals.on_event = control_on_signal;
	rc = loop_add_fd(ctl->loop, &ctl->signals, fd, LOOP_LEVEL);
	if (rc != 0) {
		close(fd);
		return err_set(err, rc, "cannot watch signals");
	}
	return 0;
}
