/* SPDX-License-Identifier: BSD-2-Clause */
/* Splits a command line into words, finds the command in the tables, checks the level, runs it. */
#include "ctl/cmd.h"
#include "ctl/cmd_rows.h"
#include "ctl/master.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

/* What the socket's `severity-output`, or the client, wants in front of what is not data. */
static void say(struct cmd *c, unsigned severity, const char *fmt, va_list ap)
{
	/* RFC 5424, table 2, as syslog(3) and HAProxy abbreviate them. */
	static const char *const names[] = { "emerg",	"alert",  "crit", "err",
					     "warning", "notice", "info", "debug" };
	uint8_t form = c->client ? admin_severity(c->client) : CONF_SEVERITY_NONE;

	if (form == CONF_SEVERITY_NUMBER)
		fprintf(c->out, "[%u]: ", severity);
	else if (form == CONF_SEVERITY_STRING)
		fprintf(c->out, "[%s]: ", names[severity]);
	vfprintf(c->out, fmt, ap);
	putc('\n', c->out);
}

void cmd_say(struct cmd *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(c, 3, fmt, ap);
	va_end(ap);
}

void cmd_tell(struct cmd *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(c, 6, fmt, ap);
	va_end(ap);
}

void cmd_data(struct cmd *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(c->out, fmt, ap);
	va_end(ap);
	putc('\n', c->out);
}

const char *cmd_arg(const struct cmd *c, unsigned i)
{
	return c->n_words + i < c->argc ? c->argv[c->n_words + i] : NULL;
}

/* In place; a backslash takes the next character as it is. Returns the count, at most CMD_MAX_ARGS. */
static unsigned cmd_split(char *line, const char **argv)
{
	unsigned n = 0;

	while (n < CMD_MAX_ARGS) {
		char *to;

		while (*line == ' ' || *line == '\t' || *line == '\r')
			line++;
		if (!*line)
			break;
		argv[n++] = to = line;
		while (*line && *line != ' ' && *line != '\t' && *line != '\r') {
			if (*line == '\\' && line[1])
				line++;
			*to++ = *line++;
		}
		if (*line)
			line++;
		*to = '\0';
	}
	argv[n] = NULL;
	return n;
}

/* How many words of `row` the arguments start with; 0 unless all of them. */
static unsigned cmd_match(const struct cmd_row *row, const char *const *argv, unsigned argc)
{
	const char *w = row->words;
	unsigned n = 0;

	while (*w) {
		size_t len = strcspn(w, " ");

		if (n >= argc || strlen(argv[n]) != len || memcmp(argv[n], w, len) != 0)
			return 0;
		n++;
		w += len;
		while (*w == ' ')
			w++;
	}
	return n;
}

static const struct cmd_row *const *tables_of(const struct cmd *c)
{
	return c->ctl->master ? cmd_master_tables : cmd_tables;
}

static const struct cmd_row *cmd_find(const struct cmd_row *const *tables, const char *const *argv,
				      unsigned argc, unsigned *ret_words)
{
	const struct cmd_row *best = NULL;

	*ret_words = 0;
	for (unsigned t = 0; tables[t]; t++) {
		for (const struct cmd_row *row = tables[t]; row->words; row++) {
			unsigned n = cmd_match(row, argv, argc);

			if (n > *ret_words) {
				*ret_words = n;
				best = row;
			}
		}
	}
	return best;
}

/* Commands that start like what was typed, or all of them. */
static void cmd_list(struct cmd *c, const char *first_word)
{
	const struct cmd_row *const *tables = tables_of(c);
	unsigned shown = 0;

	for (unsigned pass = 0; pass < 2 && !shown; pass++) {
		for (unsigned t = 0; tables[t]; t++) {
			for (const struct cmd_row *row = tables[t]; row->words; row++) {
				size_t len = strcspn(row->words, " ");
				char left[80];

				if (!row->help || row->level > c->level)
					continue;
				if (pass == 0 && first_word &&
				    (strlen(first_word) != len ||
				     memcmp(first_word, row->words, len) != 0))
					continue;
				snprintf(left, sizeof(left), "%s %s", row->words,
					 row->args ? row->args : "");
				fprintf(c->out, "  %-40s : %s\n", left, row->help);
				shown++;
			}
		}
		if (!first_word)
			break;
	}
}

int cmd_help(struct cmd *c)
{
	fputs("The following commands are valid at this level:\n", c->out);
	cmd_list(c, cmd_arg(c, 0));
	return 0;
}

int cmd_run(struct cmd *c, char *line)
{
	const char *argv[CMD_MAX_ARGS + 1];
	const struct cmd_row *row;

	if (c->ctl->master) {
		enum master_route route = master_route(c, &line);

		if (route != MASTER_OWN)
			return route == MASTER_FORWARDED ? CMD_PENDING : 0;
	}
	c->argv = argv;
	c->argc = cmd_split(line, argv);
	if (c->argc == 0)
		return 0;
	row = cmd_find(tables_of(c), argv, c->argc, &c->n_words);
	if (!row) {
		fprintf(c->out,
			"Unknown command: '%s', but maybe one of the following ones is a better "
			"match:\n",
			argv[0]);
		cmd_list(c, argv[0]);
		return 0;
	}
	if (row->level > c->level) {
		cmd_say(c, "Permission denied");
		return 0;
	}
	return row->run(c);
}

struct server *cmd_find_server(struct cmd *c, const char *path, struct lb_backend **ret_be)
{
	struct str rest = str_from_cstr(path), name;
	struct conf_proxy *px;
	struct server *s;

	if (!path || str_find_char(rest, '/') == SIZE_MAX) {
		cmd_say(c, "Require 'backend/server'.");
		return NULL;
	}
	name = str_cut(&rest, '/');
	px = conf_find_proxy(c->ctl->current->conf, name, CONF_CAP_BACKEND);
	if (!px) {
		cmd_say(c, "No such backend.");
		return NULL;
	}
	s = lb_find_server(&c->ctl->registry, name, rest);
	if (!s || !s->conf) {
		cmd_say(c, "No such server.");
		return NULL;
	}
	if (ret_be)
		*ret_be = c->ctl->current->backends[px->index];
	return s;
}
