/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `show profiling`, `set profiling`: what the functions cost that event loops call, over all workers and the
 * control thread. HAProxy's layout; its tasks have other names.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/symbol.h"
#include "ctl/cmd.h"
#include "ctl/cmd_rows.h"

struct sum {
	uintptr_t fn;
	uint64_t calls, busy_ns, wait_ns;
};

enum order {
	ORDER_CALLS,
	ORDER_ADDRESS,
	ORDER_TIME
};

struct view {
	bool has_status, has_tasks, has_memory;
	enum order order;
	unsigned max; /* rows */
};

static struct profile *profile_of(const struct ctl *ctl, unsigned i)
{
	return i < ctl->n_workers ? worker_profile(ctl->workers[i]) : loop_profile(ctl->loop);
}

/* --- set ------------------------------------------------------------------------------------------------ */

static const struct {
	const char *name;
	enum profile_mode mode;
} modes[] = { { "auto", PROFILE_AUTO }, { "on", PROFILE_ON }, { "off", PROFILE_OFF } };

static const char *mode_name(enum profile_mode mode)
{
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
		if (modes[i].mode == mode)
			return modes[i].name;
	return "?";
}

int cmd_set_profiling(struct cmd *c)
{
	const char *what = cmd_arg(c, 0), *mode = what ? cmd_arg(c, 1) : NULL;

	if (what && strcmp(what, "memory") == 0) {
		cmd_say(c, "Memory profiling not compiled in.");
		return 0;
	}
	if (!what || strcmp(what, "tasks") != 0) {
		cmd_say(c, "Expects either 'tasks' or 'memory'.");
		return 0;
	}
	for (size_t i = 0; mode && i < ARRAY_SIZE(modes); i++) {
		if (strcmp(mode, modes[i].name) != 0)
			continue;
		for (unsigned k = 0; k <= c->ctl->n_workers; k++)
			profile_set(profile_of(c->ctl, k), modes[i].mode);
		return 0;
	}
	cmd_say(c, "Expects 'on', 'auto', or 'off'.");
	return 0;
}

/* --- show ----------------------------------------------------------------------------------------------- */

/* Four digits and a unit: "42.14us". */
static void print_time(FILE *f, uint64_t ns)
{
	static const struct {
		const char *unit;
		double of_next;
	} units[] = { { "ns", 1000 }, { "us", 1000 }, { "ms", 1000 }, { "s", 60 },
		      { "m", 60 },    { "h", 24 },    { "d", 0 } };
	double v = (double)ns;
	unsigned i = 0;
	char text[32];

	while (i + 1 < ARRAY_SIZE(units) && v >= units[i].of_next)
		v /= units[i++].of_next;
	snprintf(text, sizeof(text), "%.*f%s",
		 i == 0 || v >= 1000 ? 0
		 : v >= 100	     ? 1
		 : v >= 10	     ? 2
				     : 3,
		 v, units[i].unit);
	fprintf(f, "%10s", text);
}

static int by_calls(const void *a, const void *b)
{
	uint64_t x = ((const struct sum *)a)->calls, y = ((const struct sum *)b)->calls;

	return x < y ? 1 : -(x > y);
}

static int by_address(const void *a, const void *b)
{
	uintptr_t x = ((const struct sum *)a)->fn, y = ((const struct sum *)b)->fn;

	return x < y ? -1 : x > y;
}

static int by_time(const void *a, const void *b)
{
	uint64_t x = ((const struct sum *)a)->busy_ns, y = ((const struct sum *)b)->busy_ns;

	return x < y ? 1 : -(x > y);
}

static int (*const orders[])(const void *, const void *) = { by_calls, by_address, by_time };

static void sum_row(struct sum *sums, unsigned *n, const struct profile_row *row)
{
	uintptr_t fn = atomic_load_explicit(&row->fn, memory_order_relaxed);
	uint64_t calls = atomic_load_explicit(&row->calls, memory_order_relaxed);
	unsigned i = 0;

	if (!fn || !calls)
		return;
	while (i < *n && sums[i].fn != fn)
		i++;
	if (i == *n) {
		if (*n == PROFILE_ROWS)
			return;
		sums[(*n)++] = (struct sum){ .fn = fn };
	}
	sums[i].calls += calls;
	sums[i].busy_ns += atomic_load_explicit(&row->busy_ns, memory_order_relaxed);
	sums[i].wait_ns += atomic_load_explicit(&row->wait_ns, memory_order_relaxed);
}

static void show_rows(FILE *f, const struct sum *sums, unsigned n)
{
	struct symbols *s = symbols_open();

	fputs("  function                      calls   cpu_tot   cpu_avg   lat_tot   lat_avg\n", f);
	for (unsigned i = 0; i < n; i++) {
		char name[64];

		symbols_name(s, sums[i].fn, name, sizeof(name));
		fprintf(f, "  %-25s %9" PRIu64, name, sums[i].calls);
		print_time(f, sums[i].busy_ns);
		print_time(f, sums[i].busy_ns / sums[i].calls);
		print_time(f, sums[i].wait_ns);
		print_time(f, sums[i].wait_ns / sums[i].calls);
		fputc('\n', f);
	}
	symbols_close(s);
}

static void show_tasks(const struct cmd *c, const struct view *v)
{
	uint64_t begin = UINT64_MAX, end = 0, now = loop_now(c->ctl->loop);
	struct sum *sums = mem_alloc(PROFILE_ROWS * sizeof(sums[0]));
	unsigned n = 0;

	for (unsigned i = 0; sums && i <= c->ctl->n_workers; i++) {
		const struct profile *p = profile_of(c->ctl, i);
		uint64_t from = atomic_load_explicit(&p->begin_ns, memory_order_relaxed);
		uint64_t till = atomic_load_explicit(&p->end_ns, memory_order_relaxed);

		if (!from)
			continue;
		begin = from < begin ? from : begin;
		end = till > end ? till : end;
		for (unsigned k = 0; k < PROFILE_ROWS; k++)
			sum_row(sums, &n, &p->rows[k]);
	}
	fputs("Tasks activity", c->out);
	if (end)
		fprintf(c->out, " over %.3f sec till %.3f sec ago",
			(double)(end > begin ? end - begin : 0) / 1e9,
			(double)(now > end ? now - end : 0) / 1e9);
	fputs(":\n", c->out);
	if (n)
		qsort(sums, n, sizeof(sums[0]), orders[v->order]);
	show_rows(c->out, sums, n < v->max ? n : v->max);
	fputc('\n', c->out);
	mem_free(sums);
}

/* False: said what is wrong. */
static bool read_view(struct cmd *c, struct view *v)
{
	const char *word;

	*v = (struct view){ .max = UINT32_MAX };
	for (unsigned i = 0; (word = cmd_arg(c, i)); i++) {
		uint64_t n;

		if (strcmp(word, "all") == 0)
			v->has_status = v->has_tasks = v->has_memory = true;
		else if (strcmp(word, "status") == 0)
			v->has_status = true;
		else if (strcmp(word, "tasks") == 0)
			v->has_tasks = true;
		else if (strcmp(word, "memory") == 0)
			v->has_memory = true;
		else if (strcmp(word, "byaddr") == 0)
			v->order = ORDER_ADDRESS;
		else if (strcmp(word, "bytime") == 0)
			v->order = ORDER_TIME;
		else if (str_to_u64(str_from_cstr(word), &n) == 0 && n > 0 && n <= UINT32_MAX)
			v->max = (unsigned)n;
		else if (strcmp(word, "aggr") != 0) { /* rows are aggregated by function anyway */
			cmd_say(c, "Expects either 'all', 'status', 'tasks', 'memory', 'byaddr', "
				   "'bytime', "
				   "'aggr' or a max number of output lines.");
			return false;
		}
	}
	if (!v->has_status && !v->has_tasks && !v->has_memory)
		v->has_status = v->has_tasks = v->has_memory = true;
	return true;
}

int cmd_show_profiling(struct cmd *c)
{
	const struct profile *p = loop_profile(c->ctl->loop);
	struct view v;

	if (!read_view(c, &v))
		return 0;
	if (v.has_status)
		fprintf(c->out,
			"Per-task CPU profiling              : %-8s"
			"\t# set profiling tasks {on|auto|off}\n"
			"Memory usage profiling              : %-8s"
			"\t# set profiling memory {on|off}\n",
			mode_name((enum profile_mode)atomic_load(&p->mode)), "off");
	if (v.has_tasks)
		show_tasks(c, &v);
	if (v.has_memory && !v.has_status && !v.has_tasks)
		cmd_say(c, "Memory profiling not compiled in.");
	return 0;
}
