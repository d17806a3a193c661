/* SPDX-License-Identifier: BSD-2-Clause */
/* Snapshots: life cycle, skipped generations, limits, and with real threads. links: ev base */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "ev/mailbox.h"
#include "ev/snapshot.h"

static struct snapshot_hub hub;
static unsigned n_destroyed, n_done;

static void on_destroy(struct snapshot *s)
{
	n_destroyed++;
	memset(s, 0xee, sizeof(*s)); /* nobody may look at it again */
}

static void on_done(struct snapshot_view *v, struct snapshot *s)
{
	n_done++;
	snapshot_retire_done(&hub, s);
}

static void begin(unsigned n_workers)
{
	n_destroyed = 0;
	n_done = 0;
	snapshot_hub_init(&hub, n_workers);
}

static void pins_keep_it_alive(void **state)
{
	struct snapshot s[3] = { { .destroy = on_destroy }, { .destroy = on_destroy } };
	struct snapshot_view a, b;
	struct snapshot *pinned;

	begin(2);
	snapshot_view_init(&a, &hub, on_done);
	snapshot_view_init(&b, &hub, on_done);
	snapshot_adopt(&a); /* nothing there yet */
	assert_null(a.current);
	assert_int_equal(snapshot_publish(&hub, &s[0]), 0);
	snapshot_adopt(&a);
	snapshot_adopt(&b);
	assert_int_equal(s[0].generation, 1);
	pinned = snapshot_pin(&a);
	assert_ptr_equal(pinned, &s[0]);
	assert_ptr_equal(snapshot_pin(&a), &s[0]);
	assert_int_equal(snapshot_publish(&hub, &s[1]), 0);
	snapshot_adopt(&a);
	snapshot_adopt(&a);
	assert_int_equal(n_done, 0);
	assert_ptr_equal(snapshot_pin(&a), &s[1]);
	snapshot_adopt(&b);
	assert_int_equal(n_done, 1);
	snapshot_unpin(&a, &s[0]);
	assert_int_equal(n_destroyed, 0);
	snapshot_unpin(&a, &s[0]);
	assert_int_equal(n_done, 2);
	assert_int_equal(n_destroyed, 1);
	/* Unpinning the current one ends nothing. */
	snapshot_unpin(&a, &s[1]);
	assert_int_equal(n_destroyed, 1);
	snapshot_leave(&a);
	snapshot_leave(&b);
	assert_int_equal(n_destroyed, 2);
	assert_null(atomic_load(&hub.current));
}

/* A worker that slept through publications gives back what it never saw. */
static void skipped_generations(void **state)
{
	struct snapshot s[4];
	struct snapshot *list[SNAPSHOT_GENERATIONS];
	struct snapshot_view a, b;

	for (int i = 0; i < 4; i++)
		s[i] = (struct snapshot){ .destroy = on_destroy };
	begin(2);
	snapshot_view_init(&a, &hub, on_done);
	snapshot_view_init(&b, &hub, on_done);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(snapshot_publish(&hub, &s[i]), 0);
		snapshot_adopt(&a);
	}
	assert_int_equal(snapshot_list(&hub, list), 4);
	assert_ptr_equal(list[0], &s[0]);
	assert_ptr_equal(list[3], &s[3]);
	assert_int_equal(n_destroyed, 0);
	snapshot_adopt(&b);
	assert_int_equal(n_destroyed, 3);
	assert_int_equal(snapshot_list(&hub, list), 1);
	assert_ptr_equal(list[0], &s[3]);
	snapshot_leave(&a);
	snapshot_leave(&b);
	assert_int_equal(n_destroyed, 4);
}

/* A stream that lasts for ever must not stop reloads: only as many as there may be generations do. */
static void an_old_pin_blocks_nothing(void **state)
{
	struct snapshot old = { .destroy = on_destroy }, s[12], extra = { .destroy = on_destroy };
	struct snapshot more[SNAPSHOT_GENERATIONS - 2];
	struct snapshot *pins[SNAPSHOT_GENERATIONS - 1], *list[SNAPSHOT_GENERATIONS];
	struct snapshot_view a;

	begin(1);
	snapshot_view_init(&a, &hub, on_done);
	assert_int_equal(snapshot_publish(&hub, &old), 0);
	snapshot_adopt(&a);
	assert_ptr_equal(snapshot_pin(&a), &old);
	for (int i = 0; i < 12; i++) {
		s[i] = (struct snapshot){ .destroy = on_destroy };
		assert_int_equal(snapshot_publish(&hub, &s[i]), 0);
		assert_int_equal(s[i].generation, i + 2);
		snapshot_adopt(&a);
	}
	assert_int_equal(n_destroyed, 11);
	for (unsigned i = 0; i < ARRAY_SIZE(more); i++) {
		pins[i] = snapshot_pin(&a);
		more[i] = (struct snapshot){ .destroy = on_destroy };
		assert_int_equal(snapshot_publish(&hub, &more[i]), 0);
		snapshot_adopt(&a);
	}
	pins[ARRAY_SIZE(more)] = snapshot_pin(&a);
	assert_int_equal(snapshot_list(&hub, list), SNAPSHOT_GENERATIONS);
	assert_int_equal(snapshot_publish(&hub, &extra), -EBUSY);
	assert_ptr_equal(atomic_load(&hub.current), pins[ARRAY_SIZE(more)]);
	snapshot_unpin(&a, pins[0]);
	assert_int_equal(snapshot_publish(&hub, &extra), 0);
	snapshot_unpin(&a, &old);
	for (unsigned i = 1; i < ARRAY_SIZE(more); i++)
		snapshot_unpin(&a, pins[i]);
	snapshot_leave(&a);
	assert_int_equal(snapshot_list(&hub, list), 1); /* still pinned */
	snapshot_unpin(&a, pins[ARRAY_SIZE(more)]);
	assert_int_equal(snapshot_list(&hub, list), 0);
}

static void without_workers(void **state)
{
	struct snapshot a = { .destroy = on_destroy }, b = { .destroy = on_destroy };

	begin(0);
	assert_int_equal(snapshot_publish(&hub, &a), 0);
	assert_int_equal(snapshot_publish(&hub, &b), 0);
	assert_int_equal(n_destroyed, 1);
	assert_ptr_equal(atomic_load(&hub.current), &b);
}

/* --- threads: a control loop that publishes, workers that pin and unpin in a hurry --- */

#define WORKERS	  3
#define PUBLISHED 200

struct config {
	struct snapshot snap;
	int value; /* 42 while alive */
};

struct done_mail {
	struct mail mail;
	struct snapshot *snap;
};

static struct loop *control;
static struct mailbox control_box;
static _Atomic bool is_over;
static unsigned n_freed;

static void free_config(struct snapshot *s)
{
	struct config *c = container_of(s, struct config, snap);

	c->value = 0;
	free(c);
	n_freed++;
}

static void deliver_done(struct mail *m)
{
	struct done_mail *d = container_of(m, struct done_mail, mail);

	snapshot_retire_done(&hub, d->snap);
	free(d);
}

static void mail_done(struct snapshot_view *v, struct snapshot *s)
{
	struct done_mail *d = malloc(sizeof(*d));

	if (!d)
		abort();
	*d = (struct done_mail){ .mail.deliver = deliver_done, .snap = s };
	mailbox_send(&control_box, &d->mail);
}

static void *worker_main(void *arg)
{
	struct snapshot_view v;
	struct snapshot *pins[8] = { NULL };
	unsigned seed = (unsigned)(uintptr_t)arg;

	snapshot_view_init(&v, &hub, mail_done);
	while (!atomic_load(&is_over)) {
		struct snapshot **p = &pins[rand_r(&seed) % 8];

		snapshot_adopt(&v);
		if (*p) {
			if (container_of(*p, struct config, snap)->value != 42)
				abort();
			snapshot_unpin(&v, *p);
			*p = NULL;
		} else if (v.current) {
			*p = snapshot_pin(&v);
		}
	}
	for (unsigned i = 0; i < 8; i++) {
		if (pins[i])
			snapshot_unpin(&v, pins[i]);
	}
	snapshot_leave(&v);
	return NULL;
}

static void with_threads(void **state)
{
	pthread_t threads[WORKERS];
	unsigned n = 0;

	snapshot_hub_init(&hub, WORKERS);
	assert_int_equal(loop_create(&control), 0);
	assert_int_equal(mailbox_open(&control_box, control), 0);
	for (uintptr_t i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, worker_main, (void *)(i + 1)),
				 0);
	while (n < PUBLISHED) {
		struct config *c = malloc(sizeof(*c));

		assert_non_null(c);
		c->value = 42;
		c->snap.destroy = free_config;
		while (snapshot_publish(&hub, &c->snap) == -EBUSY)
			assert_int_equal(loop_run_once(control, 100), 0);
		n++;
		assert_int_equal(loop_run_once(control, 0), 0);
	}
	atomic_store(&is_over, true);
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	mailbox_close(&control_box);
	assert_int_equal(n_freed, PUBLISHED);
	loop_destroy(control);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pins_keep_it_alive),
		cmocka_unit_test(skipped_generations),
		cmocka_unit_test(an_old_pin_blocks_nothing),
		cmocka_unit_test(without_workers),
		cmocka_unit_test(with_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
