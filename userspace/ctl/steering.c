/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Workers and their CPUs, and which worker gets a new connection (`sk-steer`). The choice is made by a program of the
 * listening sockets' group, which sockets of other processes may be in, too: it is put there when this process runs, and
 * until then the one before goes on with its own. Control thread.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "ctl/ctl_priv.h"

/* Sockets that an older array still has: the first look after so long, then twice as long, at most once a second. */
#define AGAIN_NS      4000000ull
#define AGAIN_MOST_NS 1000000000ull

_Static_assert(LB_MAX_WORKERS <= HG_SK_WORKERS, "every worker has a place in hg_sk_steer.order");

/* --- workers ------------------------------------------------------------------------------------------- */

/* The CPUs we may run on, in order; workers are pinned to them in turn. */
static unsigned steering_cpus(int cpus[LB_MAX_WORKERS])
{
	cpu_set_t set;
	unsigned n = 0;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 0;
	for (int c = 0; c < CPU_SETSIZE && n < LB_MAX_WORKERS; c++)
		if (CPU_ISSET(c, &set))
			cpus[n++] = c;
	return n;
}

unsigned steering_count_workers(const struct conf_global *g)
{
	int cpus[LB_MAX_WORKERS];
	unsigned n = g->nbthread ? g->nbthread : steering_cpus(cpus);

	if (n == 0)
		n = 1;
	return n > LB_MAX_WORKERS ? LB_MAX_WORKERS : n;
}

void steering_place_workers(struct ctl *ctl, const struct conf_global *g)
{
	int cpus[LB_MAX_WORKERS];
	unsigned n = steering_cpus(cpus);

	for (unsigned i = 0; i < ctl->n_workers; i++) {
		if (g->cpu_map.is_set)
			ctl->worker_cpu[i] = i < ARRAY_SIZE(g->cpu_map.cpu_of_thread)
						     ? g->cpu_map.cpu_of_thread[i]
						     : -1;
		else /* More workers than cores: the scheduler knows better than a rule of ours. */
			ctl->worker_cpu[i] = ctl->n_workers <= n ? cpus[i] : -1;
	}
}

/* --- connections --------------------------------------------------------------------------------------- */

static int fail_at(const struct conf_sk_steer *s, int rc, struct err *err)
{
	return err_prefix(err, rc, "%s:%u:%u: error: 'sk-steer'", s->pos.file, s->pos.line,
			  s->pos.column);
}

int steering_check(struct ctl *ctl, const struct conf *conf, struct err *err)
{
	const struct conf_sk_steer *s = &conf->global.sk_steer;
	int rc;

	if (s->mode == HG_SK_OFF ||
	    (ctl->current && ctl->current->conf->global.sk_steer.mode != HG_SK_OFF))
		return 0;
	if (ctl->dp)
		rc = dp_sk_steer_check(ctl->dp, err);
	else if (ctl->current)
		rc = err_set(err, -EOPNOTSUPP, "this process started without BPF maps: restart it");
	else
		rc = -EPERM; /* dp_open() has said why */
	return rc == 0 ? 0 : fail_at(s, rc, err);
}

static bool may_steer(const struct listen_socket *ls)
{
	return !ls->is_shared && ls->fds[0] >= 0;
}

static int listen_steer_on(struct ctl *ctl, struct listen_socket *ls, struct err *err)
{
	int rc = dp_sk_steer_attach(ctl->dp, ls->fds[0], ls->n_fds, &ls->steer_map, err);

	if (rc != 0)
		return rc;
	ls->n_steered = 0;
	ls->steering = LISTEN_STEERED;
	return 0;
}

/* Also what another process may have left there. */
static int listen_steer_off(struct listen_socket *ls, struct err *err)
{
	int rc = dp_sk_steer_detach(ls->fds[0]);

	if (rc != 0)
		return err_set(err, rc, "cannot detach the program: %s", strerror(-rc));
	listen_end_steering(ls);
	ls->steering = LISTEN_UNSTEERED;
	return 0;
}

/* Puts what is missing into the arrays. True: all of it is there. */
static bool fill_all(struct ctl *ctl, struct err *err)
{
	bool is_done = true;
	struct list *pos;

	list_for_each(pos, &ctl->listen_sockets) {
		struct listen_socket *ls = list_entry(pos, struct listen_socket, link);
		int rc;

		if (!may_steer(ls) || ls->steer_map < 0)
			continue;
		rc = dp_sk_steer_fill(ls->steer_map, ls->fds, ls->n_fds, &ls->n_steered);
		if (rc == -EBUSY) {
			is_done = false;
			continue;
		}
		if (rc != 0) {
			ls->steering = LISTEN_STEERING_UNKNOWN; /* the next reload tries again */
			err_set(err, rc, "connections to %s are not steered: %s", ls->text,
				strerror(-rc));
		}
		listen_end_steering(ls);
	}
	return is_done;
}

void steering_again(struct timer *t)
{
	struct ctl *ctl = container_of(t, struct ctl, steering_again);
	struct err err = { "" };

	if (ctl->phase != CTL_RUNNING)
		return;
	if (!fill_all(ctl, &err)) {
		if (ctl->steering_wait_ns < AGAIN_MOST_NS &&
		    ctl->steering_wait_ns * 2 >= AGAIN_MOST_NS)
			log_msg(LOG_LVL_WARNING, "sk-steer: listening sockets are still in another "
						 "process's array; until it lets go, their "
						 "connections go by the kernel's hash");
		ctl->steering_wait_ns *= 2;
		if (ctl->steering_wait_ns > AGAIN_MOST_NS)
			ctl->steering_wait_ns = AGAIN_MOST_NS;
		timer_start(ctl->loop, t, ctl->steering_wait_ns);
	}
	if (err.text[0])
		log_msg(LOG_LVL_ERR, "%s", err.text);
}

int steering_apply(struct ctl *ctl, struct err *err)
{
	const struct conf_sk_steer *s = &ctl->current->conf->global.sk_steer;
	struct err one = { "" };
	struct list *pos;
	int first = 0;

	if (s->mode != HG_SK_OFF && !ctl->dp)
		return 0; /* steering_check() has refused it */
	if (ctl->dp)
		dp_sk_steer_configure(ctl->dp, (enum hg_sk_mode)s->mode, ctl->worker_cpu,
				      ctl->n_workers);
	list_for_each(pos, &ctl->listen_sockets) {
		struct listen_socket *ls = list_entry(pos, struct listen_socket, link);
		int rc = 0;

		if (!may_steer(ls))
			continue;
		if (s->mode == HG_SK_OFF && ls->steering != LISTEN_UNSTEERED)
			rc = listen_steer_off(ls, &one);
		else if (s->mode != HG_SK_OFF && ls->steering != LISTEN_STEERED)
			rc = listen_steer_on(ctl, ls, &one);
		if (rc != 0 && first == 0)
			first = err_set(err, rc, "'sk-steer' at %s: %s", ls->text, one.text);
	}
	one.text[0] = '\0';
	if (!fill_all(ctl, &one)) {
		ctl->steering_wait_ns = AGAIN_NS;
		timer_start(ctl->loop, &ctl->steering_again, AGAIN_NS);
	}
	if (one.text[0] && first == 0)
		first = err_set(err, -EIO, "%s", one.text);
	return first;
}

void steering_count(const struct ctl *ctl, unsigned *ret_n, unsigned *ret_steered)
{
	struct list *pos;

	*ret_n = *ret_steered = 0;
	list_for_each(pos, &ctl->listen_sockets) {
		const struct listen_socket *ls = list_entry(pos, struct listen_socket, link);

		if (!may_steer(ls))
			continue;
		(*ret_n)++;
		*ret_steered += ls->steering == LISTEN_STEERED && ls->steer_map < 0;
	}
}
