/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the files of `headgate tune`: the layout of a host, and what should be otherwise. */
#ifndef TOOLS_TOOL_TUNE_H
#define TOOLS_TOOL_TUNE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools_priv.h"

#define TUNE_CPUS   1024
#define TUNE_IFS    16
#define TUNE_IRQS   256 /* of an interface */
#define TUNE_TEXT   128 /* a value in /sys or /proc */
#define TUNE_PATH   192
#define TUNE_NO_CPU (~0u)

struct tune_cpus {
	uint64_t bits[TUNE_CPUS / 64];
};

struct tune_irq {
	unsigned number, queue;
	struct tune_cpus cpus;
	char name[48];
};

/* As ETHTOOL_GCHANNELS has it; all 0: the driver does not say. */
struct tune_channels {
	uint32_t rx, tx, combined, max_rx, max_tx, max_combined;
};

struct tune_if {
	char name[16], driver[32];
	int node; /* -1: none */
	unsigned n_rx, n_tx, n_irqs;
	struct tune_channels channels;
	struct tune_irq irqs[TUNE_IRQS]; /* by queue */
};

struct tune {
	const char *root; /* in front of /proc and /sys; "": the real ones */
	struct tune_cpus online, workers,
		nic; /* workers: cores that are theirs alone; nic: asked for, or none */
	int16_t node[TUNE_CPUS]; /* of a CPU, -1: none */
	uint16_t worker[TUNE_CPUS]; /* number of the worker that is pinned there, plus 1 */
	unsigned n_cpus, n_workers; /* highest online CPU plus 1 */
	bool has_daemon, has_irqbalance;
	char steering[24]; /* `sk-steer` of the daemon: off, cpu, least; empty: it has none */
	unsigned n_ifs;
	struct tune_if *ifs; /* [TUNE_IFS] */
};

enum tune_kind {
	TUNE_FILE, /* `path` of /proc or /sys gets `want` */
	TUNE_CHANNELS /* `path` is an interface, values are "rx tx combined" */
};

struct tune_setting {
	enum tune_kind kind;
	char path[TUNE_PATH], now[TUNE_TEXT], want[TUNE_TEXT];
	const char *why;
	bool is_fine;
};

struct tune_plan {
	struct tune_setting *rows;
	unsigned n, cap;
};

/* headgate_tune_read.c */
bool tune_cpus_has(const struct tune_cpus *c, unsigned cpu);
void tune_cpus_add(struct tune_cpus *c, unsigned cpu);
unsigned tune_cpus_count(const struct tune_cpus *c);
/* "0-3,8"; false: it is none. */
bool tune_cpus_parse(const char *text, struct tune_cpus *ret);
/* The first line of a file below the root; false: not there. */
bool tune_read_file(const struct tune *t, const char *path, char ret[TUNE_TEXT]);
/* Interfaces `names`, or with n = 0 those that XDP programs of ours are on, or all with a device behind them. */
int tune_read(struct tool *tool, struct tune *t, char **names, unsigned n);
bool tune_channels_read(const char *ifname, struct tune_channels *ret);
int tune_channels_write(const char *ifname, uint32_t rx, uint32_t tx, uint32_t combined);

/* headgate_tune_plan.c: 0 or -ENOMEM. */
int tune_plan(const struct tune *t, struct tune_plan *p);
void tune_plan_free(struct tune_plan *p);
/* headgate_tune_apply.c: exit status. */
int tune_apply(struct tool *tool, struct tune *t, char **names, unsigned n, const char *state);
int tune_undo(const struct tune *t, const char *state);

#endif
