/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Milliseconds to fill a Maglev table of 65,537 slots: the best of some runs, since what disturbs only adds.
 * Usage: bench_maglev [--json FILE].
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lb/maglev.h"

#define RUNS 15
#define SIZE 65537

static const unsigned counts[] = { 10, 100, 1000, 10000 };

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static double best_ms(unsigned n, bool weighted)
{
	struct maglev_backend *in = calloc(n, sizeof(*in));
	uint16_t *table = calloc(SIZE, sizeof(*table));
	double best = 1e9, ms;

	if (!in || !table)
		abort();
	for (unsigned i = 0; i < n; i++)
		in[i] = (struct maglev_backend){ .key = (i + 1) * 0x9e3779b97f4a7c15ull,
						 .weight = weighted ? 1 + i % 100 : 100,
						 .id = (uint16_t)(i + 1) };
	for (unsigned run = 0; run < RUNS; run++) {
		ms = now_ms();
		if (maglev_fill(in, n, table, SIZE) != 0)
			abort();
		ms = now_ms() - ms;
		best = ms < best ? ms : best;
	}
	free(table);
	free(in);
	return best;
}

int main(int argc, char **argv)
{
	FILE *f = argc == 3 && strcmp(argv[1], "--json") == 0 ? fopen(argv[2], "w") : NULL;
	const char *sep = "{";

	printf("%-32s %10s %10s\n", "Maglev table, 65,537 slots", "equal", "weighted");
	for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		double equal = best_ms(counts[i], false), weighted = best_ms(counts[i], true);

		printf("%-6u backends %17s %7.2f ms %7.2f ms\n", counts[i], "", equal, weighted);
		if (f)
			fprintf(f, "%s\"maglev_%u_ms\": %.3f, \"maglev_%u_weighted_ms\": %.3f", sep,
				counts[i], equal, counts[i], weighted);
		sep = ", ";
	}
	if (!f)
		return argc == 1 ? 0 : 2;
	fprintf(f, "}\n");
	return fclose(f) != 0;
}
