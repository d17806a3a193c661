/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `headgate tune`: shows how receive queues, interrupts, CPUs, NUMA nodes and workers lie, and what should be
 * otherwise; --apply changes it, --undo takes that back.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "tool_tune.h"

#define STATE_FILE "/run/headgate/tune.state"
#define ACROSS	   16 /* CPUs in a line of the drawing */

/* --- as JSON -------------------------------------------------------------------------------------------------- */

static void json_text(const char *name, const char *value)
{
	printf("\"%s\":", name);
	json_put_str(stdout, str_from_cstr(value));
}

static void json_cpus(const struct tune *t)
{
	bool is_first = true;

	fputs("\"cpus\":[", stdout);
	for (unsigned cpu = 0; cpu < t->n_cpus; cpu++) {
		if (!tune_cpus_has(&t->online, cpu))
			continue;
		printf("%s{\"cpu\":%u,\"node\":%d,\"worker\":", is_first ? "" : ",", cpu,
		       t->node[cpu]);
		if (t->worker[cpu])
			printf("%d}", t->worker[cpu] - 1);
		else
			fputs("null}", stdout);
		is_first = false;
	}
	putchar(']');
}

static void json_irq(const struct tune *t, const struct tune_irq *irq, bool is_first)
{
	bool has_any = false;

	printf("%s{\"irq\":%u,\"queue\":%u,", is_first ? "" : ",", irq->number, irq->queue);
	json_text("name", irq->name);
	fputs(",\"cpus\":[", stdout);
	for (unsigned cpu = 0; cpu < t->n_cpus; cpu++) {
		if (!tune_cpus_has(&irq->cpus, cpu))
			continue;
		printf("%s%u", has_any ? "," : "", cpu);
		has_any = true;
	}
	fputs("]}", stdout);
}

static void json_interface(const struct tune *t, const struct tune_if *i, bool is_first)
{
	printf("%s{", is_first ? "" : ",");
	json_text("name", i->name);
	putchar(',');
	json_text("driver", i->driver);
	printf(",\"node\":%d,\"rx_queues\":%u,\"tx_queues\":%u,\"max_queues\":%u,\"interrupts\":[",
	       i->node, i->n_rx, i->n_tx,
	       i->channels.max_combined ? i->channels.max_combined : i->channels.max_rx);
	for (unsigned k = 0; k < i->n_irqs; k++)
		json_irq(t, &i->irqs[k], k == 0);
	fputs("]}", stdout);
}

static void show_json(const struct tune *t, const struct tune_plan *p)
{
	putchar('{');
	json_cpus(t);
	fputs(",\"interfaces\":[", stdout);
	for (unsigned k = 0; k < t->n_ifs; k++)
		json_interface(t, &t->ifs[k], k == 0);
	printf("],\"daemon\":%s,\"workers\":%u,", t->has_daemon ? "true" : "false", t->n_workers);
	if (t->steering[0])
		json_text("sk_steer", t->steering);
	else
		fputs("\"sk_steer\":null", stdout);
	printf(",\"irqbalance\":%s,\"settings\":[", t->has_irqbalance ? "true" : "false");
	for (unsigned k = 0; k < p->n; k++) {
		const struct tune_setting *s = &p->rows[k];

		fputs(k ? ",{" : "{", stdout);
		json_text("path", s->path);
		putchar(',');
		json_text("now", s->now);
		putchar(',');
		json_text("recommended", s->want);
		printf(",\"ok\":%s,", s->is_fine ? "true" : "false");
		json_text("why", s->why);
		putchar('}');
	}
	fputs("]}\n", stdout);
}

/* --- for people ------------------------------------------------------------------------------------------------ */

static void show_interfaces(const struct tune *t)
{
	printf("%-15s %-12s %4s %8s %8s %6s %10s\n", "interface", "driver", "node", "receive",
	       "send", "of", "interrupts");
	for (unsigned k = 0; k < t->n_ifs; k++) {
		const struct tune_if *i = &t->ifs[k];
		uint32_t most = i->channels.max_combined ? i->channels.max_combined
							 : i->channels.max_rx;
		char node[12] = "-", of[16] = "-";

		if (i->node >= 0)
			snprintf(node, sizeof(node), "%d", i->node);
		if (most)
			snprintf(of, sizeof(of), "%u", most);
		printf("%-15s %-12s %4s %8u %8u %6s %10u\n", i->name,
		       i->driver[0] ? i->driver : "-", node, i->n_rx, i->n_tx, of, i->n_irqs);
	}
}

/* A cell of the drawing: the queue whose interrupt this CPU alone takes; *: one of several that may take it. */
static void cell(const struct tune_if *i, unsigned cpu)
{
	char text[16] = ".";
	unsigned n = 0;

	for (unsigned k = 0; k < i->n_irqs; k++) {
		if (!tune_cpus_has(&i->irqs[k].cpus, cpu))
			continue;
		if (tune_cpus_count(&i->irqs[k].cpus) > 1)
			snprintf(text, sizeof(text), "*");
		else if (n++ == 0)
			snprintf(text, sizeof(text), "q%u", i->irqs[k].queue);
		else
			snprintf(text, sizeof(text), "q..");
	}
	printf(" %4s", text);
}

/* One line of the drawing, `label` and a cell for each CPU from `first`. */
static void line_of(const struct tune *t, const char *label, unsigned first,
		    const struct tune_if *i, bool is_node)
{
	printf("  %-12s", label);
	for (unsigned cpu = first; cpu < first + ACROSS && cpu < t->n_cpus; cpu++) {
		if (i)
			cell(i, cpu);
		else if (!tune_cpus_has(&t->online, cpu))
			fputs("  off", stdout);
		else if (is_node && t->node[cpu] >= 0)
			printf(" %4d", t->node[cpu]);
		else if (!is_node && t->worker[cpu])
			printf(" %*sw%d", t->worker[cpu] > 10 ? 1 : 2, "", t->worker[cpu] - 1);
		else
			fputs("    .", stdout);
	}
	putchar('\n');
}

static void show_drawing(const struct tune *t)
{
	for (unsigned first = 0; first < t->n_cpus; first += ACROSS) {
		printf("\n  %-12s", "CPU");
		for (unsigned cpu = first; cpu < first + ACROSS && cpu < t->n_cpus; cpu++)
			printf(" %4u", cpu);
		putchar('\n');
		line_of(t, "NUMA node", first, NULL, true);
		for (unsigned k = 0; k < t->n_ifs; k++)
			line_of(t, t->ifs[k].name, first, &t->ifs[k], false);
		line_of(t, "workers", first, NULL, false);
	}
	puts("\n  qN: receives queue N; q..: several; *: one of several that may; wN: worker N is "
	     "pinned to it");
}

static void show_notes(const struct tune *t)
{
	if (!t->n_ifs)
		puts("No interface has a program of Headgate or a device behind it: name some.");
	if (!t->has_daemon)
		puts("No daemon answers: workers are not known, so all CPUs may receive.");
	else if (!tune_cpus_count(&t->workers))
		puts("The workers are not pinned to CPUs (cpu-map).");
	if (strcmp(t->steering, "off") == 0)
		puts("New connections go to workers by a hash, not to the one on the CPU of their "
		     "packets ('sk-steer cpu').");
	else if (t->steering[0])
		printf("New connections go to the worker %s (sk-steer %s).\n",
		       strcmp(t->steering, "cpu") == 0 ? "on the CPU that took their SYN"
						       : "with the fewest",
		       t->steering);
	if (t->has_irqbalance)
		puts("irqbalance is running and will move interrupts again: stop it, or ban them "
		     "there.");
}

static void show_text(const struct tune *t, const struct tune_plan *p)
{
	unsigned n = 0;

	show_interfaces(t);
	show_drawing(t);
	putchar('\n');
	show_notes(t);
	for (unsigned k = 0; k < p->n; k++) {
		const struct tune_setting *s = &p->rows[k];

		if (s->is_fine)
			continue;
		if (!n++)
			printf("%-50s %10s %12s\n", "setting", "is", "recommended");
		printf("%-50s %10s %12s  %s\n", s->path, s->now, s->want, s->why);
	}
	if (n)
		printf("%u of %u settings should be otherwise: 'headgate tune --apply'\n", n, p->n);
	else
		printf("All of %u settings are as recommended.\n", p->n);
}

static int show(const struct tune *t, bool is_json)
{
	struct tune_plan p = { 0 };

	if (tune_plan(t, &p) != 0) {
		fputs("headgate: tune: out of memory\n", stderr);
		tune_plan_free(&p);
		return 1;
	}
	if (is_json)
		show_json(t, &p);
	else
		show_text(t, &p);
	tune_plan_free(&p);
	return 0;
}

/* --- the command ------------------------------------------------------------------------------------------------ */

struct tune_args {
	bool is_json, is_apply, is_undo;
	const char *root, *state;
	char *names[TUNE_IFS];
	unsigned n;
};

static int usage(void)
{
	fputs("usage: headgate tune [IFACE…] [--json] [--nic-cpus LIST]\n"
	      "       headgate tune [IFACE…] --apply [--nic-cpus LIST] [--state FILE]\n"
	      "       headgate tune --undo [--state FILE]\n",
	      stderr);
	return 1;
}

/* The value behind an option, or NULL. */
static const char *value_of(int argc, char **argv, int *i)
{
	return *i + 1 < argc ? argv[++*i] : NULL;
}

static bool read_args(struct tune_args *a, struct tune *t, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *list;

		if (strcmp(argv[i], "--json") == 0) {
			a->is_json = true;
		} else if (strcmp(argv[i], "--apply") == 0) {
			a->is_apply = true;
		} else if (strcmp(argv[i], "--undo") == 0) {
			a->is_undo = true;
		} else if (strcmp(argv[i], "--state") == 0) {
			a->state = value_of(argc, argv, &i);
		} else if (strcmp(argv[i], "--root") == 0) {
			a->root = value_of(argc, argv, &i);
		} else if (strcmp(argv[i], "--nic-cpus") == 0) {
			list = value_of(argc, argv, &i);
			if (!list || !*list || !tune_cpus_parse(list, &t->nic)) {
				fprintf(stderr,
					"headgate: tune: '%s' is no list of CPUs such as 0-3,8\n",
					list ? list : "");
				return false;
			}
		} else if (argv[i][0] == '-' || a->n == TUNE_IFS) {
			return usage() == 0;
		} else {
			a->names[a->n++] = argv[i];
		}
	}
	if (!a->root || !a->state || a->is_apply + a->is_undo + a->is_json > 1 ||
	    (a->is_undo && a->n))
		return usage() == 0;
	return true;
}

/* CPUs that were asked for have to be there. */
static bool check_nic(const struct tune *t)
{
	for (unsigned cpu = 0; cpu < TUNE_CPUS; cpu++) {
		if (!tune_cpus_has(&t->nic, cpu) || tune_cpus_has(&t->online, cpu))
			continue;
		fprintf(stderr, "headgate: tune: CPU %u is not online\n", cpu);
		return false;
	}
	return true;
}

int tool_tune(struct tool *tool, int argc, char **argv)
{
	struct tune_args a = { .root = "", .state = STATE_FILE };
	struct tune *t = mem_zalloc(sizeof(*t));
	int rc = 1;

	if (t)
		t->ifs = mem_zalloc(TUNE_IFS * sizeof(*t->ifs));
	if (!t || !t->ifs) {
		fputs("headgate: tune: out of memory\n", stderr);
	} else if (read_args(&a, t, argc, argv)) {
		t->root = a.root;
		if (a.is_undo)
			rc = tune_undo(t, a.state);
		else if (tune_read(tool, t, a.names, a.n) == 0 && check_nic(t))
			rc = a.is_apply ? tune_apply(tool, t, a.names, a.n, a.state)
					: show(t, a.is_json);
	}
	if (t)
		mem_free(t->ifs);
	mem_free(t);
	return rc;
}
