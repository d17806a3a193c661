/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The log writer thread: drains all rings, naps while there is traffic, sleeps on a futex when there is
 * none. A producer makes a system call only for the first line after silence.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log_priv.h"

/* Lines wait this long at most while others flow: a quarter of a ring at 30 MB/s. */
#define NAP_NS 2000000

static struct {
	pthread_t thread;
	_Atomic bool is_running;
	_Atomic bool is_stopping;
	_Atomic uint32_t is_asleep; /* the futex */
} writer;

static void futex(_Atomic uint32_t *word, int op, uint32_t value)
{
	/* Wait: EAGAIN and EINTR just mean another look. Wake: cannot fail on our own word. */
	syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

void log_writer_wake(void)
{
	if (likely(!atomic_load_explicit(&writer.is_asleep, memory_order_seq_cst)))
		return;
	if (atomic_exchange_explicit(&writer.is_asleep, 0, memory_order_seq_cst))
		futex(&writer.is_asleep, FUTEX_WAKE_PRIVATE, 1);
}

bool log_writer_is_running(void)
{
	return atomic_load_explicit(&writer.is_running, memory_order_acquire);
}

static bool is_stopping(void)
{
	return atomic_load_explicit(&writer.is_stopping, memory_order_seq_cst);
}

static void sleep_until_woken(void)
{
	atomic_store_explicit(&writer.is_asleep, 1, memory_order_seq_cst);
	/* What was published before the flag was up woke nobody. */
	if (!log_is_pending() && !is_stopping())
		futex(&writer.is_asleep, FUTEX_WAIT_PRIVATE, 1);
	atomic_store_explicit(&writer.is_asleep, 0, memory_order_seq_cst);
}

static void *writer_main(void *arg)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };

	pthread_setname_np(pthread_self(), "log");
	while (!is_stopping()) {
		if (log_drain())
			nanosleep(&nap, NULL);
		else
			sleep_until_woken();
	}
	return NULL;
}

int log_writer_start(void)
{
	sigset_t all, old;
	int r;

	if (log_writer_is_running())
		return 0;
	atomic_store_explicit(&writer.is_stopping, false, memory_order_seq_cst);
	/* Signals are the control thread's; a broken pipe becomes EPIPE. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&writer.thread, NULL, writer_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r)
		return -r;
	atomic_store_explicit(&writer.is_running, true, memory_order_release);
	return 0;
}

void log_writer_stop(void)
{
	if (log_writer_is_running()) {
		atomic_store_explicit(&writer.is_stopping, true, memory_order_seq_cst);
		log_writer_wake();
		pthread_join(writer.thread, NULL);
		atomic_store_explicit(&writer.is_running, false, memory_order_release);
	}
	/* What is left, here: the caller must see it gone when this returns. */
	while (log_drain())
		;
	log_sink_close();
}
