/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections of the runtime API: one line in, commands separated by ';', each answer followed by an
 * empty line (or the prompt). Slow readers cost memory, never time: an answer is made whole and
 * leaves as the socket takes it. Control thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/admin_priv.h"
#include "ctl/handover.h"
#include "ctl/rings.h"

/* --- connections --------------------------------------------------------------------------------------- */

static void client_free(struct admin_client *ac)
{
	struct loop *l = ac->admin->ctl->loop;

	if (ac->ev.fd >= 0) {
		int fd = ac->ev.fd;

		loop_del_fd(l, &ac->ev);
		close(fd);
		ac->ev.fd = -1;
	}
	timer_stop(l, &ac->idle);
	handover_client_gone(ac->admin->ctl, ac);
	if (ac->watch) {
		ring_watch_stop(ac->watch, true);
		ac->is_pending = false;
	}
	if (ac->wait) {
		cmd_wait_drop(ac->wait);
		ac->wait = NULL;
		ac->is_pending = false;
	}
	ac->is_dead = true;
	if (ac->is_pending)
		return; /* admin_finish() comes back to us */
	list_del(&ac->link);
	ac->admin->n_clients--;
	mem_free(ac->in);
	mem_free(ac->out);
	mem_free(ac);
}

int admin_append(struct admin_client *ac, const char *text, size_t len)
{
	if (ac->out_len + len > ac->out_cap && ac->out_pos && ac->out_pos >= ac->out_cap / 2) {
		ac->out_len -= ac->out_pos;
		memmove(ac->out, ac->out + ac->out_pos, ac->out_len);
		ac->out_pos = 0;
	}
	if (ac->out_len + len > ac->out_cap) {
		size_t cap = ac->out_cap ? ac->out_cap * 2 : 4096;
		char *p;

		while (cap < ac->out_len + len)
			cap *= 2;
		p = cap > ADMIN_OUT_MAX ? NULL : mem_realloc(ac->out, cap);
		if (!p)
			return -ENOMEM;
		ac->out = p;
		ac->out_cap = cap;
	}
	memcpy(ac->out + ac->out_len, text, len);
	ac->out_len += len;
	return 0;
}

size_t admin_backlog(const struct admin_client *ac)
{
	return ac->out_len - ac->out_pos;
}

/* Room for `len` more bytes of input. */
static int client_reserve(struct admin_client *ac, size_t len)
{
	size_t cap = ac->in_cap ? ac->in_cap : 4096;
	char *p;

	if (ac->in_len + len <= ac->in_cap)
		return 0;
	while (cap < ac->in_len + len)
		cap *= 2;
	p = cap > 4 * ADMIN_LINE_MAX ? NULL : mem_realloc(ac->in, cap);
	if (!p)
		return -ENOMEM;
	ac->in = p;
	ac->in_cap = cap;
	return 0;
}

/* Sends what the socket takes; false when the connection is gone. */
static bool client_flush(struct admin_client *ac)
{
	while (ac->out_pos < ac->out_len) {
		ssize_t n = send(ac->ev.fd, ac->out + ac->out_pos, ac->out_len - ac->out_pos,
				 MSG_NOSIGNAL);

		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return true;
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			client_free(ac);
			return false;
		}
		ac->out_pos += (size_t)n;
	}
	ac->out_len = 0;
	ac->out_pos = 0;
	if (ac->wants_close && !ac->is_pending) {
		client_free(ac);
		return false;
	}
	return true;
}

void admin_flush(struct admin_client *ac)
{
	(void)client_flush(ac);
}

/* An answer with what follows every answer. */
static void client_answer(struct admin_client *ac, const char *text, size_t len)
{
	int rc = len ? admin_append(ac, text, len) : 0;

	if (rc == 0 && len && text[len - 1] != '\n')
		rc = admin_append(ac, "\n", 1);
	if (rc == 0)
		rc = admin_append(ac, "\n", 1);
	if (rc == 0 && ac->is_prompt)
		rc = admin_append(ac, "> ", 2);
	if (rc != 0) {
		log_msg(LOG_LVL_ERR, "runtime API: out of memory for an answer of %zu bytes", len);
		ac->wants_close = true;
	}
}

static void client_run(struct admin_client *ac, char *line, const char *payload)
{
	struct cmd c = {
		.ctl = ac->admin->ctl, .client = ac, .payload = payload, .level = ac->level
	};
	char *text = NULL;
	size_t len = 0;

	c.out = open_memstream(&text, &len);
	if (!c.out) {
		client_answer(ac, "Out of memory.", 14);
		return;
	}
	ac->is_pending = cmd_run(&c, line) == CMD_PENDING;
	fclose(c.out);
	if (!ac->is_pending)
		client_answer(ac, text, len);
	free(text); /* lint: libc memory, open_memstream's */
}

/* --- framing --------------------------------------------------------------------------------------------- */

/* Cuts the first command off a line at an unescaped ';'. */
static char *line_cut(char **line)
{
	char *start = *line, *p;

	for (p = start; *p && *p != ';'; p++)
		if (*p == '\\' && p[1])
			p++;
	*line = *p ? p + 1 : NULL;
	*p = '\0';
	return start;
}

/* The payload marker at the end of a command: "<<" or "<<TAG". Cuts it off; the tag goes to *ret_tag. */
static bool line_payload_tag(char *line, char ret_tag[64])
{
	char *mark = strstr(line, " <<");

	if (!mark || strlen(mark + 3) >= 64 || strchr(mark + 3, ' '))
		return false;
	memcpy(ret_tag, mark + 3, strlen(mark + 3) + 1);
	*mark = '\0';
	return true;
}

/*
 * Finds the end of the payload that starts at `from`: a line that is only the tag (an empty line
 * without one). Its start goes to *ret_end; returns the offset behind it, 0 when it has not come yet.
 */
static size_t payload_end(const struct admin_client *ac, size_t from, const char *tag,
			  size_t *ret_end)
{
	size_t len = strlen(tag);

	while (from < ac->in_len) {
		const char *nl = memchr(ac->in + from, '\n', ac->in_len - from);
		size_t line_len = nl ? (size_t)(nl - ac->in) - from : 0;

		if (!nl)
			return 0;
		if (line_len && ac->in[from + line_len - 1] == '\r')
			line_len--;
		if (line_len == len && memcmp(ac->in + from, tag, len) == 0) {
			*ret_end = from;
			return (size_t)(nl - ac->in) + 1;
		}
		from = (size_t)(nl - ac->in) + 1;
	}
	return 0;
}

/* Commands of one line, one after the other; stops at one that answers later. */
static void client_run_line(struct admin_client *ac, char *line, const char *payload)
{
	char *rest = line;

	/* `level` and `prompt` change while the line runs: that is meant. */
	while (rest && !ac->is_pending && !ac->is_dead && !ac->wants_close) {
		char *one = line_cut(&rest);

		while (*one == ' ')
			one++;
		if (*one || !rest)
			client_run(ac, one, payload);
	}
	if (rest && ac->is_pending) {
		/* What follows a pending command runs when its answer is there: put it back in front. */
		size_t len = strlen(rest) + 1;

		rest[len - 1] = '\n';
		if (client_reserve(ac, len) != 0) {
			ac->wants_close = true;
			return;
		}
		memmove(ac->in + len, ac->in, ac->in_len);
		memcpy(ac->in, rest, len);
		ac->in_len += len;
	}
}

/* One complete line (with its payload) from the input; false when there is none. */
static bool client_next_line(struct admin_client *ac)
{
	char *nl = memchr(ac->in, '\n', ac->in_len), tag[64];
	size_t used, payload_stop = 0;
	char *payload = NULL, *line;
	bool had_pending;

	if (!nl && !(ac->input_ended && ac->in_len))
		return false;
	used = nl ? (size_t)(nl - ac->in) + 1 : ac->in_len;
	line = mem_strdup(str_make(ac->in, nl ? used - 1 : used));
	if (!line) {
		ac->wants_close = true;
		return false;
	}
	if (line_payload_tag(line, tag)) {
		size_t end = payload_end(ac, used, tag, &payload_stop);

		if (!end && !ac->input_ended) {
			mem_free(line);
			return false;
		}
		if (!end)
			end = payload_stop = ac->in_len;
		payload = mem_strdup(str_make(ac->in + used, payload_stop - used));
		used = end;
	}
	ac->in_len -= used;
	memmove(ac->in, ac->in + used, ac->in_len);
	client_run_line(ac, line, payload);
	had_pending = ac->is_pending;
	mem_free(payload);
	mem_free(line);
	if (!ac->is_prompt && !had_pending)
		ac->wants_close = true;
	return true;
}

static void client_process(struct admin_client *ac)
{
	while (!ac->is_pending && !ac->wants_close && ac->in_len && client_next_line(ac))
		;
	if (ac->input_ended && !ac->is_pending && !ac->in_len)
		ac->wants_close = true;
	if (ac->in_len >= ADMIN_LINE_MAX)
		ac->wants_close = true;
	(void)client_flush(ac);
}

void admin_finish(struct admin_client *ac, const char *text, size_t len)
{
	ac->is_pending = false;
	if (ac->is_dead) {
		client_free(ac);
		return;
	}
	client_answer(ac, text, len);
	if (!ac->is_prompt && !ac->in_len)
		ac->wants_close = true;
	client_process(ac);
}

static bool client_read(struct admin_client *ac)
{
	for (;;) {
		ssize_t n;

		if (client_reserve(ac, 4096) != 0)
			return false;
		n = recv(ac->ev.fd, ac->in + ac->in_len, ac->in_cap - ac->in_len, 0);
		if (n > 0) {
			ac->in_len += (size_t)n;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return true;
		if (n < 0)
			return false;
		ac->input_ended = true;
		return true;
	}
}

/* Any key ends `show events -w`; the end of the input does not: `echo show events r -w | socat …` shall work. */
static void watching(struct admin_client *ac, uint32_t events)
{
	struct loop *l = ac->admin->ctl->loop;

	if (events & (EPOLLHUP | EPOLLERR)) {
		client_free(ac);
	} else if (ac->in_len) {
		ac->in_len = 0;
		ring_watch_stop(ac->watch, false);
	} else {
		timer_stop(l, &ac->idle); /* silence is what it waits for */
		ring_watch_resume(ac->watch);
	}
}

static void client_on_event(struct ev_fd *ev, uint32_t events)
{
	struct admin_client *ac = container_of(ev, struct admin_client, ev);

	timer_start(ac->admin->ctl->loop, &ac->idle, ac->timeout_ns);
	if (!ac->input_ended && !client_read(ac)) {
		client_free(ac);
		return;
	}
	if (ac->watch) {
		watching(ac, events);
		return;
	}
	client_process(ac);
}

static void client_on_idle(struct timer *t)
{
	client_free(container_of(t, struct admin_client, idle));
}

/* --- what commands may do to their connection -------------------------------------------------------------- */

int cmd_prompt(struct cmd *c)
{
	const char *mode = cmd_arg(c, 0);

	if (c->client)
		c->client->is_prompt = mode ? mode[0] != 'n' : !c->client->is_prompt;
	return 0;
}

int cmd_quit(struct cmd *c)
{
	if (c->client) {
		c->client->is_prompt = false;
		c->client->wants_close = true;
	}
	return 0;
}

int cmd_set_timeout(struct cmd *c)
{
	uint64_t ns;
	const char *text = cmd_arg(c, 0);

	if (!text || str_to_duration(str_from_cstr(text), 1000000000ull, &ns) != 0 || ns == 0)
		cmd_say(c, "Invalid timeout value.");
	else if (c->client)
		c->client->timeout_ns = ns;
	return 0;
}

static int lower_level(struct cmd *c, enum conf_level level)
{
	if (c->client && c->client->level > level)
		c->client->level = level;
	return 0;
}

uint8_t admin_severity(const struct admin_client *ac)
{
	return ac->severity;
}

int cmd_set_severity(struct cmd *c)
{
	const char *word = cmd_arg(c, 0);
	static const char *const forms[] = { [CONF_SEVERITY_NONE] = "none",
					     [CONF_SEVERITY_NUMBER] = "number",
					     [CONF_SEVERITY_STRING] = "string" };

	for (uint8_t i = 0; word && i < ARRAY_SIZE(forms); i++) {
		if (strcmp(word, forms[i]) != 0)
			continue;
		if (c->client)
			c->client->severity = i;
		return 0;
	}
	cmd_say(c, "'set severity-output' expects none, number or string.");
	return 0;
}

int cmd_operator(struct cmd *c)
{
	return lower_level(c, CONF_LEVEL_OPERATOR);
}

int cmd_user(struct cmd *c)
{
	return lower_level(c, CONF_LEVEL_USER);
}

int cmd_echo(struct cmd *c)
{
	for (unsigned i = 1; i < c->argc; i++)
		fprintf(c->out, "%s%s", i > 1 ? " " : "", c->argv[i]);
	putc('\n', c->out);
	return 0;
}

int admin_client_open(const struct admin_socket *as, int fd)
{
	struct admin *a = as->admin;
	struct admin_client *ac = a->n_clients < ADMIN_CLIENTS_MAX ? mem_zalloc(sizeof(*ac)) : NULL;
	int rc;

	if (!ac)
		return -ENOMEM;
	ac->admin = a;
	ac->level = as->level;
	ac->severity = as->severity;
	ac->exposes_fd = as->exposes_fd;
	ac->timeout_ns = a->timeout_ns;
	ac->ev.on_event = client_on_event;
	rc = loop_add_fd(a->ctl->loop, &ac->ev, fd, 0);
	if (rc != 0) {
		mem_free(ac);
		return rc;
	}
	timer_init(&ac->idle, client_on_idle);
	list_push_back(&a->clients, &ac->link);
	a->n_clients++;
	timer_start(a->ctl->loop, &ac->idle, ac->timeout_ns);
	return 0;
}

void admin_client_close(struct admin_client *ac)
{
	ac->is_pending = false;
	client_free(ac);
}
