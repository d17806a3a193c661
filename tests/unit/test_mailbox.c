/* SPDX-License-Identifier: BSD-2-Clause */
/* Mailboxes: order per sender, nothing lost, woken out of sleep. links: ev base */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "ev/mailbox.h"

#define SENDERS 4
#define MAILS	20000

struct letter {
	struct mail mail;
	unsigned sender, number;
};

static struct mailbox box;
static struct loop *loop;
static unsigned next_number[SENDERS], n_received;
static bool is_order_broken;

static void deliver(struct mail *m)
{
	struct letter *l = container_of(m, struct letter, mail);

	if (l->number != next_number[l->sender]++)
		is_order_broken = true;
	free(l);
	if (++n_received == SENDERS * MAILS)
		loop_stop(loop);
}

static void *sender_main(void *arg)
{
	unsigned sender = *(unsigned *)arg;

	for (unsigned i = 0; i < MAILS; i++) {
		struct letter *l = malloc(sizeof(*l));

		if (!l)
			abort();
		*l = (struct letter){ .mail.deliver = deliver, .sender = sender, .number = i };
		mailbox_send(&box, &l->mail);
		/* Let the receiver fall asleep now and then. */
		if (i % 1000 == 999)
			usleep(1000);
	}
	return NULL;
}

static void many_senders(void **state)
{
	pthread_t threads[SENDERS];
	unsigned ids[SENDERS];

	assert_int_equal(loop_create(&loop), 0);
	assert_int_equal(mailbox_open(&box, loop), 0);
	for (unsigned i = 0; i < SENDERS; i++) {
		ids[i] = i;
		assert_int_equal(pthread_create(&threads[i], NULL, sender_main, &ids[i]), 0);
	}
	assert_int_equal(loop_run(loop), 0);
	for (unsigned i = 0; i < SENDERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(n_received, SENDERS * MAILS);
	assert_false(is_order_broken);
	mailbox_close(&box);
	loop_destroy(loop);
}

static unsigned n_small;

static void deliver_small(struct mail *m)
{
	/* A delivery that sends again is delivered too, even while closing. */
	if (++n_small % 2)
		mailbox_send(&box, m);
}

static void close_delivers_the_rest(void **state)
{
	struct mail m = { .deliver = deliver_small };

	n_small = 0;
	assert_int_equal(loop_create(&loop), 0);
	assert_int_equal(mailbox_open(&box, loop), 0);
	mailbox_send(&box, &m);
	assert_int_equal(n_small, 0);
	mailbox_close(&box);
	assert_int_equal(n_small, 2);
	assert_int_equal(box.ev.fd, -1);
	mailbox_close(&box);
	loop_destroy(loop);
}

static void one_wakeup_per_burst(void **state)
{
	struct mail m[10];
	uint64_t count;

	n_small = 1; /* even from here: nobody sends again */
	assert_int_equal(loop_create(&loop), 0);
	assert_int_equal(mailbox_open(&box, loop), 0);
	assert_int_equal(loop_run_once(loop, 0), 0);
	for (unsigned i = 0; i < 10; i++) {
		m[i].deliver = deliver_small;
		mailbox_send(&box, &m[i]);
	}
	assert_int_equal(read(box.ev.fd, &count, sizeof(count)), sizeof(count));
	assert_int_equal(count, 1);
	mailbox_close(&box);
	loop_destroy(loop);
}

static void again_and_again(void **state)
{
	struct mail m = { .deliver = deliver_small };

	assert_int_equal(loop_create(&loop), 0);
	assert_int_equal(mailbox_open(&box, loop), 0);
	/* The eventfd is never read; every burst must still be an edge. */
	for (unsigned i = 0; i < 100; i++) {
		n_small = 1;
		mailbox_send(&box, &m);
		assert_int_equal(loop_run_once(loop, 1000), 0);
		assert_int_equal(n_small, 2);
	}
	mailbox_close(&box);
	loop_destroy(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_senders),
		cmocka_unit_test(close_delivers_the_rest),
		cmocka_unit_test(one_wakeup_per_burst),
		cmocka_unit_test(again_and_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
