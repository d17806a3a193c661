/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands that the daemon answers over its runtime socket. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/ctl.h"
#include "tools_priv.h"

static int connect_socket(const char *path, int quiet)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(un.sun_path)) {
		fprintf(stderr, "headgate: %s: path too long for a socket\n", path);
		return -1;
	}
	memcpy(un.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&un, sizeof(un)) == 0)
		return fd;
	if (!quiet)
		fprintf(stderr,
			"headgate: no daemon answers at %s: %s\n"
			"headgate: is headgated running with 'stats socket %s level admin' in its "
			"global section? (-s names another)\n",
			path, strerror(errno), path);
	if (fd >= 0)
		close(fd);
	return -1;
}

static char *read_answer(int fd)
{
	size_t len = 0, cap = 65536;
	char *text = mem_alloc(cap);
	ssize_t n;

	while (text && (n = read(fd, text + len, cap - len - 1)) > 0) {
		len += (size_t)n;
		if (cap - len < 4096) {
			char *more = mem_realloc(text, cap * 2);

			if (!more) {
				mem_free(text);
				return NULL;
			}
			text = more;
			cap *= 2;
		}
	}
	if (text)
		text[len] = '\0';
	/* The empty line that ends an answer is framing, not text. */
	if (text && len >= 2 && text[len - 1] == '\n' && text[len - 2] == '\n')
		text[len - 1] = '\0';
	else if (text && len == 1 && text[0] == '\n')
		text[0] = '\0';
	return text;
}

static bool send_command(int fd, const char *command)
{
	size_t len = strlen(command), sent = 0;

	while (sent < len) {
		ssize_t n = send(fd, command + sent, len - sent, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		sent += (size_t)n;
	}
	return send(fd, "\n", 1, MSG_NOSIGNAL) == 1;
}

char *tool_ask(struct tool *t, const char *command, int quiet)
{
	int fd = connect_socket(t->socket, quiet);
	char *answer = NULL;

	if (fd < 0)
		return NULL;
	if (send_command(fd, command))
		answer = read_answer(fd);
	if (!answer && !quiet)
		fprintf(stderr, "headgate: %s: %s\n", t->socket, strerror(errno));
	close(fd);
	return answer;
}

/* Words that mean that nothing was done. */
static int is_refusal(const char *answer)
{
	static const char *const starts[] = { "Unknown command", "Permission denied",
					      "No such ",	 "Require ",
					      "Can't find",	 "Invalid ",
					      "usage:",		 "Integer value expected" };

	for (unsigned i = 0; i < ARRAY_SIZE(starts); i++)
		if (strncmp(answer, starts[i], strlen(starts[i])) == 0)
			return 1;
	return 0;
}

static int print_answer(char *answer)
{
	int status;

	if (!answer)
		return 1;
	status = is_refusal(answer);
	fputs(answer, status ? stderr : stdout);
	mem_free(answer);
	return status;
}

/* The words as they are; --json becomes the API's own word for it. */
static void join_words(char command[4096], int argc, char **argv)
{
	const size_t size = 4096;
	size_t len = 0;

	for (int i = 0; i < argc; i++) {
		const char *word = strcmp(argv[i], "--json") == 0 ? "json" : argv[i];

		if (len && len < size - 1)
			command[len++] = ' ';
		for (; *word && len < size - 2; word++) {
			if (*word == ' ' || *word == ';' || *word == '\\')
				command[len++] = '\\';
			command[len++] = *word;
		}
	}
	command[len] = '\0';
}

int tool_api(struct tool *t, int argc, char **argv)
{
	char command[4096];

	join_words(command, argc, argv);
	return print_answer(tool_ask(t, command, 0));
}

int tool_api_stream(struct tool *t, int argc, char **argv)
{
	int fd = connect_socket(t->socket, 0), status = 1;
	char command[4096], text[8192];
	bool is_line_end = true, is_held = false, is_first = true;
	ssize_t n;

	if (fd < 0)
		return 1;
	join_words(command, argc, argv);
	if (!send_command(fd, command)) {
		fprintf(stderr, "headgate: %s: %s\n", t->socket, strerror(errno));
		close(fd);
		return 1;
	}
	while ((n = read(fd, text, sizeof(text) - 1)) > 0) {
		text[n] = '\0';
		if (is_first)
			status = is_refusal(text);
		is_first = false;
		for (ssize_t i = 0; i < n; i++) {
			/* The empty line that ends an answer is framing, not text; it is one when no more comes. */
			if (is_held)
				putc('\n', stdout);
			is_held = text[i] == '\n' && is_line_end;
			is_line_end = text[i] == '\n';
			if (!is_held)
				putc(text[i], status ? stderr : stdout);
		}
		fflush(stdout);
	}
	close(fd);
	return status;
}

int tool_drain(struct tool *t, int argc, char **argv)
{
	char command[512];

	if (argc != 2) {
		fprintf(stderr, "usage: headgate %s BACKEND/SERVER\n", argv[0]);
		return 1;
	}
	snprintf(command, sizeof(command), "set server %s state %s", argv[1],
		 argv[0][0] == 'd' ? "drain" : "ready");
	return print_answer(tool_ask(t, command, 0));
}

int tool_reload(struct tool *t, int argc, char **argv)
{
	char *answer = tool_ask(t, "reload", 0), *text;
	int ok;

	if (!answer)
		return 1;
	ok = strncmp(answer, "Success=1", 9) == 0;
	text = strstr(answer, "--\n");
	fputs(text ? text + 3 : answer, ok ? stdout : stderr);
	if (ok)
		printf("reloaded\n");
	mem_free(answer);
	return !ok;
}

int tool_check(struct tool *t, int argc, char **argv)
{
	struct ctl_options o = { .check = true, .is_verbose = true };
	const char *files[64];

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-V") == 0)
			continue;
		if (strcmp(argv[i], "--explain") == 0 || strcmp(argv[i], "--explain=json") == 0) {
			o.explain = argv[i][9] ? CTL_EXPLAIN_JSON : CTL_EXPLAIN_TEXT;
			o.is_verbose = false;
			continue;
		}
		if (o.n_files == ARRAY_SIZE(files)) {
			fprintf(stderr, "headgate: too many files\n");
			return 1;
		}
		files[o.n_files++] = argv[i];
	}
	if (o.n_files == 0)
		files[o.n_files++] = "/etc/headgate/headgate.cfg";
	o.files = files;
	return ctl_check(&o);
}
