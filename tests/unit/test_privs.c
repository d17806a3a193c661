/* SPDX-License-Identifier: BSD-2-Clause */
/* System calls that are denied once the daemon runs: what each mode does with them, and that others go on. links: ctl conf base */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sanitize.h"
#include "ctl/privs.h"

/* The other thread is there before the filter. */
static pthread_barrier_t barrier;

static int call_mount(void)
{
	return mount("none", "/nonexistent", "tmpfs", 0, NULL) == 0 || errno == ENOENT ||
			       errno == EPERM
		       ? 0
		       : 1;
}

static int call_setuid(void)
{
	return setuid(getuid()) == 0 ? 0 : 1;
}

static int call_exec(void)
{
	execl("/nonexistent", "x", NULL);
	return errno == ENOENT ? 0 : 1;
}

static int call_setns(void)
{
	int rc = setns(-1, CLONE_NEWNS);

	return rc != 0 && errno == EBADF ? 0 : 1;
}

/* For sockets of other network namespaces; never denied. */
static int call_setns_net(void)
{
	int rc = setns(-1, CLONE_NEWNET);

	return rc != 0 && errno == EBADF ? 0 : 1;
}

static int call_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return pid > 0 && waitpid(pid, NULL, 0) == pid ? 0 : 1;
}

static void *in_thread(void *arg)
{
	return getppid() > 0 ? arg : NULL;
}

static int call_thread(void)
{
	void *ret = NULL;
	pthread_t t;

	return pthread_create(&t, NULL, in_thread, &barrier) == 0 && pthread_join(t, &ret) == 0 &&
			       ret == &barrier
		       ? 0
		       : 1;
}

static void *in_older_thread(void *arg)
{
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return call_mount() == 0 ? arg : NULL;
}

static int child(enum conf_seccomp mode, int (*call)(void), bool is_older_thread)
{
	struct err err;
	pthread_t t;
	void *ret = NULL;

	prctl(PR_SET_DUMPABLE, 0); /* no core of what is meant to die */
	if (is_older_thread) {
		pthread_barrier_init(&barrier, NULL, 2);
		if (pthread_create(&t, NULL, in_older_thread, &barrier) != 0)
			return 2;
		pthread_barrier_wait(&barrier);
	}
	if (privs_deny_calls(mode, &err) != 0)
		return 3;
	if (!is_older_thread)
		return call();
	pthread_barrier_wait(&barrier);
	return pthread_join(t, &ret) == 0 && ret == &barrier ? 0 : 1;
}

/* Wait status of a child that did it. */
static int status_of(enum conf_seccomp mode, int (*call)(void), bool is_older_thread)
{
	pid_t pid = fork();
	int status = -1;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(child(mode, call, is_older_thread));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void test_denied(void **state)
{
	static int (*const calls[])(void) = { call_mount, call_setuid, call_setns, call_exec,
					      call_fork };
	/* A sanitizer makes processes itself. */
	size_t n = IS_SANITIZED ? 3 : 5;

	for (size_t i = 0; i < n; i++) {
		int status = status_of(CONF_SECCOMP_KILL, calls[i], false);

		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGSYS);
		assert_int_equal(status_of(CONF_SECCOMP_LOG, calls[i], false), 0);
		assert_int_equal(status_of(CONF_SECCOMP_OFF, calls[i], false), 0);
	}
}

static void test_network_namespaces(void **state)
{
	assert_int_equal(status_of(CONF_SECCOMP_KILL, call_setns_net, false), 0);
}

static void test_threads(void **state)
{
	int status = status_of(CONF_SECCOMP_KILL, NULL, true);

	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
	assert_int_equal(status_of(CONF_SECCOMP_KILL, call_thread, false), 0);
	assert_int_equal(status_of(CONF_SECCOMP_LOG, call_thread, false), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_denied),
		cmocka_unit_test(test_network_namespaces),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
