/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The master's runtime API (-S). What begins with @ is for somebody: `@1 cmd` and `@!<pid> cmd` go to the worker,
 * over a connection of its own for each command; `@1` alone says that all that follow do. The rest the master
 * answers itself. Runs in the master process, on its one thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/admin_priv.h"
#include "ctl/master.h"
#include "ctl/version.h"

/* --- relays ------------------------------------------------------------------------------------------ */

struct relay {
	struct list link;
	struct master *m;
	struct admin_client *ac;
	struct ev_fd ev;
	char *out; /* to the worker */
	size_t out_len, out_pos;
	char *in; /* its answer */
	size_t in_len, in_cap;
};

static void relay_free(struct relay *r)
{
	int fd = r->ev.fd;

	if (fd >= 0) {
		loop_del_fd(r->m->ctl.loop, &r->ev);
		close(fd);
	}
	list_del(&r->link);
	free(r->out); /* lint: libc memory, open_memstream's */
	mem_free(r->in);
	mem_free(r);
}

static void relay_finish(struct relay *r)
{
	struct admin_client *ac = r->ac;
	size_t len = r->in_len;
	char *in = r->in;

	/* The empty line behind an answer comes from our own side again. */
	if (len && in[len - 1] == '\n')
		len--;
	r->in = NULL;
	relay_free(r);
	admin_finish(ac, in ? in : "", len);
	mem_free(in);
}

/* False: over. */
static bool relay_read(struct relay *r)
{
	for (;;) {
		ssize_t n;

		if (r->in_cap - r->in_len < 4096) {
			size_t cap = r->in_cap ? r->in_cap * 2 : 16384;
			char *p = cap > ADMIN_OUT_MAX ? NULL : mem_realloc(r->in, cap);

			if (!p)
				return false;
			r->in = p;
			r->in_cap = cap;
		}
		n = recv(r->ev.fd, r->in + r->in_len, r->in_cap - r->in_len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 && errno == EAGAIN;
		r->in_len += (size_t)n;
	}
}

static bool relay_write(struct relay *r)
{
	while (r->out_pos < r->out_len) {
		ssize_t n = send(r->ev.fd, r->out + r->out_pos, r->out_len - r->out_pos,
				 MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 && errno == EAGAIN;
		r->out_pos += (size_t)n;
		if (r->out_pos == r->out_len)
			shutdown(r->ev.fd, SHUT_WR);
	}
	return true;
}

static void relay_on_event(struct ev_fd *ev, uint32_t events)
{
	struct relay *r = container_of(ev, struct relay, ev);

	if (!relay_write(r) || !relay_read(r))
		relay_finish(r);
}

/* A payload ends with a line that is in no payload. */
static int relay_compose(struct relay *r, const char *line, const char *payload)
{
	FILE *out = open_memstream(&r->out, &r->out_len);
	char tag[24];

	if (!out)
		return -ENOMEM;
	for (unsigned i = 0; payload; i++) {
		snprintf(tag, sizeof(tag), "END-%u", i);
		if (!strstr(payload, tag))
			break;
	}
	if (payload)
		fprintf(out, "%s <<%s\n%s%s%s\n", line, tag, payload,
			payload[0] && payload[strlen(payload) - 1] != '\n' ? "\n" : "", tag);
	else
		fprintf(out, "%s\n", line);
	return fclose(out) == 0 ? 0 : -ENOMEM;
}

static int relay_start(struct master *m, struct cmd *c, const char *line)
{
	struct relay *r = mem_zalloc(sizeof(*r));
	char hello[2] = { 'C', (char)('0' + c->level) };
	int pair[2], rc;

	if (!r)
		return -ENOMEM;
	r->m = m;
	r->ac = c->client;
	r->ev.fd = -1;
	r->ev.on_event = relay_on_event;
	list_push_back(&m->relays, &r->link);
	rc = relay_compose(r, line, c->payload);
	if (rc == 0 &&
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
		rc = -errno;
	if (rc != 0) {
		relay_free(r);
		return rc;
	}
	rc = link_send(m->link.fd, hello, sizeof(hello), &pair[1], 1, false);
	close(pair[1]);
	if (rc == 0)
		rc = loop_add_fd(m->ctl.loop, &r->ev, pair[0], 0);
	if (rc != 0) {
		close(pair[0]);
		relay_free(r);
	}
	return rc;
}

static enum master_route forward(struct cmd *c, const char *line, const char *prefix)
{
	struct master *m = c->ctl->master;
	int rc = m->worker && m->link.fd >= 0 ? relay_start(m, c, line) : -ESRCH;

	if (rc == 0)
		return MASTER_FORWARDED;
	cmd_say(c, "Can't find the target PID matching the prefix '%s'", prefix);
	return MASTER_DONE;
}

/* --- whose command ----------------------------------------------------------------------------------- */

enum target {
	TARGET_MASTER,
	TARGET_WORKER,
	TARGET_NOBODY
};

static enum target target_of(const struct master *m, struct str word)
{
	uint64_t pid;

	if (str_is_eq(word, STR("@")) || str_is_eq(word, STR("@0")) ||
	    str_is_eq(word, STR("@master")))
		return TARGET_MASTER;
	if (str_is_eq(word, STR("@1")))
		return TARGET_WORKER;
	if (!str_is_prefix(word, STR("@!")) || str_to_u64(str_from(word, 2), &pid) != 0)
		return TARGET_NOBODY;
	return pid == (uint64_t)getpid()	   ? TARGET_MASTER
	       : pid == (uint64_t)m->worker && pid ? TARGET_WORKER
						   : TARGET_NOBODY;
}

/* What concerns the connection itself stays here, whoever answers the rest. */
static bool is_about_connection(const char *line)
{
	static const char *const words[] = { "prompt", "quit", "operator", "user", NULL };

	for (unsigned i = 0; words[i]; i++) {
		size_t len = strlen(words[i]);

		if (strncmp(line, words[i], len) == 0 && (!line[len] || line[len] == ' '))
			return true;
	}
	return false;
}

enum master_route master_route(struct cmd *c, char **line)
{
	struct master *m = c->ctl->master;
	char *p = *line, prefix[32];
	enum target to;
	size_t len;

	while (*p == ' ' || *p == '\t')
		p++;
	if (*p != '@')
		return !c->client->to_worker || is_about_connection(p) || !*p ? MASTER_OWN
									      : forward(c, p, "@1");
	len = strcspn(p, " \t\r");
	snprintf(prefix, sizeof(prefix), "%.*s", (int)(len < 31 ? len : 31), p);
	to = target_of(m, str_make(p, len));
	p += len;
	while (*p == ' ' || *p == '\t' || *p == '\r')
		p++;
	*line = p;
	if (to == TARGET_NOBODY) {
		cmd_say(c, "Can't find the target PID matching the prefix '%s'", prefix);
		return MASTER_DONE;
	}
	if (!*p) {
		c->client->to_worker = to == TARGET_WORKER;
		return MASTER_DONE;
	}
	return to == TARGET_WORKER ? forward(c, p, prefix) : MASTER_OWN;
}

/* --- commands of the master -------------------------------------------------------------------------- */

static void show_process(FILE *out, pid_t pid, const char *type, const char *reloads,
			 uint64_t since_ns, uint64_t now_ns)
{
	uint64_t up = now_ns > since_ns ? (now_ns - since_ns) / 1000000000u : 0;
	char text[40];

	snprintf(text, sizeof(text), "%" PRIu64 "d%02uh%02um%02us", up / 86400,
		 (unsigned)(up % 86400 / 3600), (unsigned)(up % 3600 / 60), (unsigned)(up % 60));
	fprintf(out, "%-15d %-15s %-15s %-15s %-15s\n", (int)pid, type, reloads, text, HG_VERSION);
}

int cmd_show_proc(struct cmd *c)
{
	const struct master *m = c->ctl->master;
	uint64_t now = loop_now(m->ctl.loop);
	char reloads[64];

	fprintf(c->out, "#%-14s %-15s %-15s %-15s %-15s\n", "<PID>", "<type>", "<reloads>",
		"<uptime>", "<version>");
	snprintf(reloads, sizeof(reloads), "%u [failed: %u]", m->n_reloads, m->n_failed_reloads);
	show_process(c->out, getpid(), "master", reloads, m->began_ns, now);
	fputs("# workers\n", c->out);
	/* It has taken over every configuration that was good: none of them is behind it. */
	if (m->worker)
		show_process(c->out, m->worker, "worker", "0", m->worker_began_ns, now);
	return 0;
}

int cmd_master_reload(struct cmd *c)
{
	if (c->ctl->master->worker && forward(c, "reload", "@1") == MASTER_FORWARDED)
		return CMD_PENDING;
	if (!c->ctl->master->worker)
		fputs("Success=0\n--\nthere is no worker process at the moment\n", c->out);
	return 0;
}

int cmd_master_startup_logs(struct cmd *c)
{
	return forward(c, "show startup-logs", "@1") == MASTER_FORWARDED ? CMD_PENDING : 0;
}

/* --- its socket -------------------------------------------------------------------------------------- */

static int parse_option(struct conf_stats_socket *s, struct str name, struct str value,
			struct err *err)
{
	static const char *const levels[] = { "user", "operator", "admin" };
	uint64_t n = 0;

	if (str_is_eq(name, STR("level"))) {
		for (unsigned i = 0; i < ARRAY_SIZE(levels); i++) {
			if (!str_is_eq(value, str_from_cstr(levels[i])))
				continue;
			s->level = (uint8_t)i;
			return 0;
		}
	} else if (str_is_eq(name, STR("mode"))) {
		size_t i = 0;

		while (i < value.len && i < 4 && value.p[i] >= '0' && value.p[i] <= '7')
			n = n * 8 + (uint64_t)(value.p[i++] - '0');
		if (i && i == value.len) {
			s->mode = (int)n;
			return 0;
		}
	} else if (str_is_eq(name, STR("uid")) || str_is_eq(name, STR("gid"))) {
		if (str_to_u64(value, &n) == 0 && n < INT32_MAX) {
			*(name.p[0] == 'u' ? &s->uid : &s->gid) = (int)n;
			return 0;
		}
	} else {
		return err_set(err, -EINVAL,
			       "-S: unknown option '" STR_FMT "' (level, mode, uid or gid)",
			       STR_ARG(name));
	}
	return err_set(err, -EINVAL, "-S: '" STR_FMT "' is no value of '" STR_FMT "'",
		       STR_ARG(value), STR_ARG(name));
}

int master_open_api(struct master *m, struct err *err)
{
	struct conf_stats_socket s = {
		.level = CONF_LEVEL_ADMIN, .mode = -1, .uid = -1, .gid = -1
	};
	struct str rest = str_from_cstr(m->o->master_socket), where, name;
	int rc = admin_create(&m->ctl, &m->ctl.admin);

	if (rc != 0)
		return err_set(err, rc, "out of memory");
	if (!m->o->master_socket)
		return 0;
	where = str_cut(&rest, ',');
	rc = endpoint_parse(where, &s.ep, err);
	while (rc == 0 && rest.p) {
		name = str_cut(&rest, ',');
		rc = parse_option(&s, name, str_cut(&rest, ','), err);
	}
	if (rc != 0)
		return rc;
	s.text = mem_strdup(where);
	rc = s.text ? admin_open_socket(m->ctl.admin, &s, err)
		    : err_set(err, -ENOMEM, "out of memory");
	mem_free(s.text);
	return rc;
}

void master_leave_api(struct master *m)
{
	struct list *l;

	list_for_each(l, &m->relays)
		close(list_entry(l, struct relay, link)->ev.fd);
	admin_leave(m->ctl.admin);
}

void master_close_api(struct master *m)
{
	struct list *l, *next;

	list_for_each_safe(l, next, &m->relays)
		relay_finish(list_entry(l, struct relay, link));
	admin_destroy(m->ctl.admin);
	m->ctl.admin = NULL;
}
