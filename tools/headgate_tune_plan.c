/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `headgate tune`: what the host should have instead. Receive queues get cores of their own where the workers
 * leave some, one queue a core, and nothing moves a packet to another core once it is there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tool_tune.h"

/* Recommended sysctls. `least`: a larger value is fine, too. Those that the kernel or the namespace has not are left out. */
static const struct {
	const char *path;
	long want;
	bool is_least;
	const char *why;
} sysctls[] = {
	{ "/proc/sys/net/core/somaxconn", 65535, true, "backlogs of listeners are cut to this" },
	{ "/proc/sys/net/ipv4/tcp_max_syn_backlog", 65535, true,
	  "handshakes under way of a listener" },
	{ "/proc/sys/net/ipv4/tcp_syncookies", 1, true,
	  "without it no cookie is taken, and a full queue drops SYNs" },
	{ "/proc/sys/net/ipv4/tcp_tw_reuse", 1, false,
	  "ports of connections to servers are used again after a second" },
	{ "/proc/sys/net/ipv4/tcp_slow_start_after_idle", 0, false,
	  "kept connections would begin slowly after each pause" },
	{ "/proc/sys/net/core/bpf_jit_enable", 1, true, "XDP programs are compiled" },
};

static int add(struct tune_plan *p, enum tune_kind kind, const char *path, const char *now,
	       const char *want, const char *why)
{
	struct tune_setting *s;

	if (p->n == p->cap) {
		unsigned cap = p->cap ? p->cap * 2 : 64;
		struct tune_setting *more = mem_realloc(p->rows, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		p->rows = more;
		p->cap = cap;
	}
	s = &p->rows[p->n++];
	*s = (struct tune_setting){ .kind = kind, .why = why, .is_fine = strcmp(now, want) == 0 };
	snprintf(s->path, sizeof(s->path), "%s", path);
	snprintf(s->now, sizeof(s->now), "%s", now);
	snprintf(s->want, sizeof(s->want), "%s", want);
	return 0;
}

void tune_plan_free(struct tune_plan *p)
{
	mem_free(p->rows);
	*p = (struct tune_plan){ 0 };
}

/* --- CPUs of an interface ------------------------------------------------------------------------------ */

static void keep_if_any(struct tune_cpus *c, const struct tune_cpus *less)
{
	if (tune_cpus_count(less))
		*c = *less;
}

/* Those asked for; else online ones without a worker of their own, if any, near the interface, if any. */
static struct tune_cpus nic_cpus(const struct tune *t, const struct tune_if *i)
{
	struct tune_cpus all = t->online, part = t->online;

	if (tune_cpus_count(&t->nic))
		return t->nic;
	for (unsigned w = 0; w < TUNE_CPUS / 64; w++)
		part.bits[w] &= ~t->workers.bits[w];
	keep_if_any(&all, &part);
	if (i->node < 0)
		return all;
	memset(&part, 0, sizeof(part));
	for (unsigned cpu = 0; cpu < t->n_cpus; cpu++)
		if (tune_cpus_has(&all, cpu) && t->node[cpu] == i->node)
			tune_cpus_add(&part, cpu);
	keep_if_any(&all, &part);
	return all;
}

/* The n-th of the set, and round again. */
static unsigned nth_cpu(const struct tune_cpus *c, unsigned n)
{
	unsigned cpu = 0;

	n %= tune_cpus_count(c);
	while (!tune_cpus_has(c, cpu) || n--)
		cpu++;
	return cpu;
}

static int plan_irqs(const struct tune_if *i, const struct tune_cpus *cpus, struct tune_plan *p)
{
	int rc = 0;

	for (unsigned k = 0; k < i->n_irqs && rc == 0; k++) {
		const struct tune_irq *irq = &i->irqs[k];
		unsigned cpu = nth_cpu(cpus, irq->queue);
		char path[TUNE_PATH], want[16], now[16] = "several";

		snprintf(path, sizeof(path), "/proc/irq/%u/smp_affinity_list", irq->number);
		snprintf(want, sizeof(want), "%u", cpu);
		if (tune_cpus_count(&irq->cpus) == 1)
			snprintf(now, sizeof(now), "%u", nth_cpu(&irq->cpus, 0));
		rc = add(p, TUNE_FILE, path, now, want, "one queue, one core");
	}
	return rc;
}

static int plan_channels(const struct tune_if *i, const struct tune_cpus *cpus, struct tune_plan *p)
{
	const struct tune_channels *c = &i->channels;
	uint32_t want = tune_cpus_count(cpus), rx = c->rx, tx = c->tx, combined = c->combined;
	char now[64], text[64];

	if (c->max_combined) {
		combined = want < c->max_combined ? want : c->max_combined;
	} else if (c->max_rx) {
		rx = want < c->max_rx ? want : c->max_rx;
		tx = rx < c->max_tx ? rx : c->max_tx;
	} else {
		return 0;
	}
	snprintf(now, sizeof(now), "%u %u %u", c->rx, c->tx, c->combined);
	snprintf(text, sizeof(text), "%u %u %u", rx, tx, combined);
	return add(p, TUNE_CHANNELS, i->name, now, text,
		   "queues (receive, send, both): one for each core that receives");
}

/* All zeros, in groups or not. */
static bool is_zero_mask(const char *text)
{
	return text[strspn(text, "0,")] == '\0';
}

/* Packets stay on the core that received them. */
static int plan_steering(const struct tune *t, const struct tune_if *i, struct tune_plan *p)
{
	static const struct {
		const char *format, *why;
		bool is_tx;
	} rows[] = {
		{ "/sys/class/net/%s/queues/rx-%u/rps_cpus", "no packet is handed to another core",
		  false },
		{ "/sys/class/net/%s/queues/tx-%u/xps_cpus", "workers send by flow, not by core",
		  true },
	};
	char path[TUNE_PATH], now[TUNE_TEXT];
	int rc = 0;

	for (unsigned r = 0; r < 2; r++)
		for (unsigned q = 0; q < (rows[r].is_tx ? i->n_tx : i->n_rx) && rc == 0; q++) {
			snprintf(path, sizeof(path), rows[r].format, i->name, q);
			if (tune_read_file(t, path,
					   now)) /* a single send queue has no file to read */
				rc = add(p, TUNE_FILE, path, is_zero_mask(now) ? "0" : now, "0",
					 rows[r].why);
		}
	return rc;
}

static int plan_sysctls(const struct tune *t, struct tune_plan *p)
{
	int rc = 0;

	for (unsigned k = 0; k < sizeof(sysctls) / sizeof(sysctls[0]) && rc == 0; k++) {
		char now[TUNE_TEXT], want[TUNE_TEXT];

		if (!tune_read_file(t, sysctls[k].path, now))
			continue;
		snprintf(want, sizeof(want), "%ld", sysctls[k].want);
		if (sysctls[k].is_least && strtol(now, NULL, 10) > sysctls[k].want)
			snprintf(want, sizeof(want), "%s", now);
		rc = add(p, TUNE_FILE, sysctls[k].path, now, want, sysctls[k].why);
	}
	return rc;
}

int tune_plan(const struct tune *t, struct tune_plan *p)
{
	int rc = 0;

	for (unsigned k = 0; k < t->n_ifs && rc == 0; k++) {
		const struct tune_if *i = &t->ifs[k];
		struct tune_cpus cpus = nic_cpus(t, i);

		rc = plan_channels(i, &cpus, p);
		if (rc == 0)
			rc = plan_irqs(i, &cpus, p);
		if (rc == 0)
			rc = plan_steering(t, i, p);
	}
	return rc == 0 ? plan_sysctls(t, p) : rc;
}
