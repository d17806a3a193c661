/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints reference documentation from the tables that the programs themselves use, so that it cannot say
 * anything else than they do: `gen-docs config|counters|runtime-api` on standard output. A build tool;
 * run by `make docs`, never installed.
 */
#include <headgate/counters.h>
#include <headgate/service.h>
#include <stdio.h>
#include <string.h>

#include "conf/conf.h"
#include "ctl/cmd.h"
#include "expr/expr.h"

static void notice(const char *what)
{
	printf("<!-- Printed by tools/gen-docs.c from %s. Do not edit: run `make docs`. -->\n\n",
	       what);
}

/* Text in a cell: what Markdown would take for its own is escaped. */
static void cell(const char *text)
{
	for (; text && *text; text++) {
		if (strchr("|<*_[", *text))
			putchar('\\');
		putchar(*text);
	}
}

static void code_cell(const char *text)
{
	if (!text || !*text)
		return;
	putchar('`');
	for (; *text; text++) {
		if (*text == '|')
			putchar('\\');
		putchar(*text);
	}
	putchar('`');
}

/* --- configuration ------------------------------------------------------------------------------- */

/* Every distinct list of sections is one table; the order is that of the keyword tables. */
static bool is_first_of_group(unsigned i, char grade)
{
	const struct conf_keyword_doc *d = conf_keyword_doc(i), *other;

	for (unsigned j = 0; j < i; j++) {
		other = conf_keyword_doc(j);
		if (other->grade == grade && strcmp(other->sections, d->sections) == 0)
			return false;
	}
	return true;
}

static void config_group(unsigned first)
{
	const struct conf_keyword_doc *head = conf_keyword_doc(first), *d;

	printf("### In %s\n\n| keyword | arguments | default | meaning |\n|---|---|---|---|\n",
	       head->sections);
	for (unsigned i = first; (d = conf_keyword_doc(i)); i++) {
		if (d->grade != '1' || strcmp(d->sections, head->sections) != 0)
			continue;
		printf("| ");
		code_cell(d->name);
		printf(" | ");
		code_cell(d->args);
		printf(" | ");
		cell(d->default_value);
		printf(" | ");
		cell(d->help);
		printf(" |\n");
	}
	printf("\n");
}

/* Names only, one paragraph per list of sections. */
static void config_names(char grade)
{
	const struct conf_keyword_doc *head, *d;

	for (unsigned i = 0; (head = conf_keyword_doc(i)); i++) {
		bool is_first = true;

		if (head->grade != grade || !is_first_of_group(i, grade))
			continue;
		printf("In %s: ", head->sections);
		for (unsigned j = i; (d = conf_keyword_doc(j)); j++) {
			if (d->grade != grade || strcmp(d->sections, head->sections) != 0)
				continue;
			printf("%s`%s`", is_first ? "" : ", ", d->name);
			is_first = false;
		}
		printf(".\n\n");
	}
}

static void expr_places(unsigned places)
{
	static const struct {
		unsigned bit;
		const char *name;
	} names[] = {
		{ PLACE_CONN, "connection" }, { PLACE_CONTENT, "content" },
		{ PLACE_REQ, "request" },     { PLACE_RSP, "response" },
		{ PLACE_LOG, "log" },	      { PLACE_CHECK, "check" },
	};
	unsigned all = 0;
	bool is_first = true;

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		all |= names[i].bit;
	if ((places & all) == all) {
		printf("anywhere");
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		if (!(places & names[i].bit))
			continue;
		printf("%s%s", is_first ? "" : ", ", names[i].name);
		is_first = false;
	}
}

static void expr_row(const struct expr_doc *d, bool has_places)
{
	char text[256];

	if (d->args && *d->args)
		snprintf(text, sizeof(text), "%s(%s)", d->name, d->args);
	else
		snprintf(text, sizeof(text), "%s", d->name);
	printf("| ");
	code_cell(text);
	printf(" | %s | ", d->type ? d->type : "");
	if (has_places) {
		expr_places(d->places);
		printf(" | ");
	}
	cell(d->help);
	printf(" |\n");
}

static void print_config(void)
{
	const struct conf_keyword_doc *d;
	const struct expr_doc *e;

	printf("# Configuration: keywords, fetches, converters\n\n");
	notice("the keyword and expression tables");
	printf("The language is HAProxy's: sections, quoting, environment variables, `.if` blocks, "
	       "times and sizes.\n"
	       "A name that ends in `*` stands for all keywords that begin with it. A keyword that "
	       "is in none of the\n"
	       "lists below is an error that names the nearest one that exists. headgate.cfg(5) "
	       "explains the rest.\n\n"
	       "## Keywords\n\n");
	for (unsigned i = 0; (d = conf_keyword_doc(i)); i++)
		if (d->grade == '1' && is_first_of_group(i, '1'))
			config_group(i);
	printf("## Accepted without effect\n\nThey tune what Headgate does not have, or ask for "
	       "what it does anyway.\n\n");
	config_names('n');
	printf("## Not in this version\n\nAn error that says so.\n\n");
	config_names('2');
	printf("## Known by HAProxy, not supported\n\nAn error that says so.\n\n");
	config_names('3');

	printf("## Sample fetches\n\n| fetch | type | where | meaning |\n|---|---|---|---|\n");
	for (unsigned i = 0; (e = expr_fetch_doc(i)); i++)
		expr_row(e, true);
	printf("\n## Converters\n\n| converter | type | meaning |\n|---|---|---|\n");
	for (unsigned i = 0; (e = expr_conv_doc(i)); i++)
		expr_row(e, false);
}

/* --- counters -------------------------------------------------------------------------------------- */

#define COUNTER_ROW(name, help)     \
	printf("| `" #name "` | "); \
	cell(help);                 \
	printf(" |\n");
#define REASON_ROW(name, help)                  \
	printf("| %u | `" #name "` | ", row++); \
	cell(help);                             \
	printf(" |\n");
#define COUNTER_HEAD "| counter | meaning |\n|---|---|\n"

static void print_kernel_counters(void)
{
	unsigned row = 0;

	printf("## Kernel tier\n\nWritten by the XDP programs, one row per CPU: sum over CPUs.\n\n"
	       "### Services: `xdp_services`, row = id * CPUs + CPU\n\n" COUNTER_HEAD);
	HG_SERVICE_COUNTERS(COUNTER_ROW)
	printf("\n### Backends: `xdp_backends`, row = id * CPUs + CPU\n\n" COUNTER_HEAD);
	HG_BACKEND_COUNTERS(COUNTER_ROW)
	printf("\n### Verdicts: `xdp_verdicts`, row = CPU, array `verdict`\n\nEvery packet counts "
	       "in exactly one.\n\n"
	       "| index | verdict | meaning |\n|---|---|---|\n");
	HG_VERDICTS(REASON_ROW)
	row = 0;
	printf("\n### Drop reasons: `xdp_verdicts`, array `drop`\n\nOnly packets for a service are "
	       "ever dropped.\n\n"
	       "| index | reason | meaning |\n|---|---|---|\n");
	HG_DROPS(REASON_ROW)
}

#define MODE_ROW(name, text, help)             \
	printf("| %u | `" text "` | ", row++); \
	cell(help);                            \
	printf(" |\n");

static void print_counters(void)
{
	unsigned row = 0;

	printf("# Counters\n\n");
	notice("include/headgate/counters.h and service.h");
	printf("All are 64 bits, start at 0 and only grow, but for the gauges. They are BPF maps "
	       "below\n"
	       "`/sys/fs/bpf/headgate/`; `bpftool map dump pinned` prints them with these "
	       "names.\n\n");
	print_kernel_counters();
	printf("\n## L7 tier\n\nWritten by the workers, one row per worker: sum over workers.\n\n"
	       "### Services, backends, servers: `stats_services`, `stats_backends`, row = id * "
	       "workers + worker\n\n"
	       "`stats_services` has a row per frontend or listen section, `stats_backends` one "
	       "per backend section and\n"
	       "one per server. `kind` is 1 frontend, 2 backend, 3 server, 4 listener; "
	       "`last_session_s` is the time of\n"
	       "the last session in seconds since 1970. Names ending in `_ms` are sums of "
	       "milliseconds.\n\n" COUNTER_HEAD);
	HG_L7_COUNTERS(COUNTER_ROW)
	printf("\nMaxima of one worker; what is shown for all workers is their sum, an upper "
	       "bound:\n\n" COUNTER_HEAD);
	HG_L7_MAXIMA(COUNTER_ROW)
	printf("\nGauges, signed; the sum over workers is the level:\n\n" COUNTER_HEAD);
	HG_L7_GAUGES(COUNTER_ROW)
	printf("\n### Workers: `stats_workers`, row = worker\n\n" COUNTER_HEAD);
	HG_WORKER_COUNTERS(COUNTER_ROW)
	printf("| `cur_conns` | client connections now |\n| `cur_ssl_conns` | of those, TLS |\n"
	       "| `cur_streams` | streams now |\n");
	printf("\n## Modes of a service\n\nField `mode` of a row of map `services`.\n\n"
	       "| value | mode | meaning |\n|---|---|---|\n");
	HG_SERVICE_MODES(MODE_ROW)
}

/* --- runtime API ------------------------------------------------------------------------------------- */

static const char *level_name(enum conf_level level)
{
	switch (level) {
	case CONF_LEVEL_USER:
		return "user";
	case CONF_LEVEL_OPERATOR:
		return "operator";
	case CONF_LEVEL_ADMIN:
		return "admin";
	}
	return "";
}

static void print_commands(const struct cmd_row *const *tables)
{
	for (; *tables; tables++) {
		for (const struct cmd_row *r = *tables; r->words; r++) {
			if (!r->help)
				continue;
			printf("| ");
			code_cell(r->words);
			printf(" | ");
			code_cell(r->args);
			printf(" | %s | ", level_name(r->level));
			cell(r->help);
			printf(" |\n");
		}
	}
}

static void print_runtime_api(void)
{
	printf("# Runtime API\n\n");
	notice("the command table");
	printf("Commands of the socket that `stats socket` opens, in HAProxy's words and formats. "
	       "One command per line,\n"
	       "or several with `;` between them; an empty line ends every answer. `level` is the "
	       "least that the\n"
	       "`stats socket` line must give.\n\n"
	       "| command | arguments | level | meaning |\n|---|---|---|---|\n");
	print_commands(cmd_tables);
	printf("\n## The master's\n\n"
	       "Commands of the socket that `-S` opens, beside those above that concern the "
	       "connection itself. "
	       "`@1 <command>`\n"
	       "or `@!<pid> <command>` goes to the worker process; `@1` alone sends all that "
	       "follow "
	       "there, `@master` ends that.\n\n"
	       "| command | arguments | level | meaning |\n|---|---|---|---|\n");
	/* The first table is the connection's, and above. */
	print_commands(cmd_master_tables + 1);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*print)(void);
	} pages[] = {
		{ "config", print_config },
		{ "counters", print_counters },
		{ "runtime-api", print_runtime_api },
	};

	for (unsigned i = 0; argc == 2 && i < ARRAY_SIZE(pages); i++) {
		if (strcmp(argv[1], pages[i].name) == 0) {
			pages[i].print();
			return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
		}
	}
	fprintf(stderr, "usage: gen-docs config|counters|runtime-api\n");
	return 1;
}
