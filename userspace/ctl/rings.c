/* SPDX-License-Identifier: BSD-2-Clause */
/* `show events`: the lines of a ring, once or as they come. Control thread. */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log_store.h"
#include "base/mem.h"
#include "ctl/admin_priv.h"
#include "ctl/rings.h"

#define WATCH_AHEAD \
	(64u << 10) /* bytes that a slow client may owe us; then its lines wait in the ring */

struct rings {
	struct ctl *ctl;
	struct ev_fd news; /* eventfd, written by the log writer */
	struct deferred pump;
	struct list watches; /* ring_watch */
	struct ring_forwards forwards;
};

struct ring_watch {
	struct list link;
	struct rings *rings;
	struct admin_client *client;
	char name[LOG_STORE_NAME + 1];
	struct log_cursor at;
	char separator;
};

/* --- waiting for lines ---------------------------------------------------------------------------------- */

static void watch_pump(struct ring_watch *w)
{
	char line[UINT16_MAX + 1];
	int n = 0;

	while (admin_backlog(w->client) < WATCH_AHEAD) {
		n = log_store_next(str_from_cstr(w->name), &w->at, line, UINT16_MAX);
		if (n < 0)
			break;
		line[n] = w->separator;
		if (admin_append(w->client, line, (size_t)n + 1) != 0) {
			n = -ENOMEM;
			break;
		}
	}
	if (n == -ENOENT || n == -ENOMEM) /* no such ring any more */
		ring_watch_stop(w, false);
	else
		admin_flush(w->client); /* it may be gone */
}

static void rings_pump(struct deferred *d)
{
	struct rings *r = container_of(d, struct rings, pump);
	struct list *p, *next;

	list_for_each_safe(p, next, &r->watches)
		watch_pump(list_entry(p, struct ring_watch, link));
	ring_forwards_pump(&r->forwards);
}

static void rings_on_news(struct ev_fd *ev, uint32_t events)
{
	struct rings *r = container_of(ev, struct rings, news);
	uint64_t n;

	if (read(ev->fd, &n, sizeof(n)) > 0)
		loop_defer(r->ctl->loop, &r->pump);
}

void ring_watch_resume(struct ring_watch *w)
{
	loop_defer(w->rings->ctl->loop, &w->rings->pump);
}

void ring_watch_stop(struct ring_watch *w, bool is_gone)
{
	struct loop *l = w->rings->ctl->loop;
	struct admin_client *ac = w->client;

	list_del(&w->link);
	mem_free(w);
	ac->watch = NULL;
	if (is_gone)
		return;
	timer_start(l, &ac->idle, ac->timeout_ns);
	admin_finish(ac, "", 0);
}

static int watch_start(struct cmd *c, const char *name, struct log_cursor at, char separator)
{
	struct rings *r = c->ctl->rings;
	struct ring_watch *w = mem_zalloc(sizeof(*w));

	if (!w) {
		cmd_say(c, "Out of memory.");
		return 0;
	}
	*w = (struct ring_watch){
		.rings = r, .client = c->client, .at = at, .separator = separator
	};
	memcpy(w->name, name, strlen(name)); /* there is a ring of that name, so it fits */
	list_push_back(&r->watches, &w->link);
	c->client->watch = w;
	timer_stop(r->ctl->loop, &c->client->idle); /* silence is what it waits for */
	loop_defer(r->ctl->loop, &r->pump); /* what is there already follows this command */
	return CMD_PENDING;
}

/* --- the command ---------------------------------------------------------------------------------------- */

static int list_rings(struct cmd *c)
{
	struct log_store_spec s;
	uint64_t dropped;

	cmd_tell(c, "Supported events sinks are listed below. Add -0(zero), -w(wait), -n(new). Any "
		    "key to stop.");
	for (unsigned i = 0; log_store_info(i, &s, &dropped); i++)
		fprintf(c->out, "    %-10.*s : type=buffer, %llu dropped, " STR_FMT "\n",
			STR_ARG(s.name), (unsigned long long)dropped, STR_ARG(s.description));
	return 0;
}

struct events_options {
	bool waits, from_end;
	char separator;
};

/* "-w", "-n", "-0" and any of them together: false when it is nothing like it. */
static bool take_options(const char *arg, struct events_options *o)
{
	if (*arg++ != '-' || !*arg)
		return false;
	for (; *arg; arg++) {
		if (*arg == 'w')
			o->waits = true;
		else if (*arg == 'n')
			o->from_end = true;
		else if (*arg == '0')
			o->separator = '\0';
		else
			return false;
	}
	return true;
}

int cmd_show_events(struct cmd *c)
{
	struct events_options o = { .separator = '\n' };
	struct log_cursor at = { 0 }, end;
	const char *name = cmd_arg(c, 0);
	char line[UINT16_MAX];
	int n;

	if (!name)
		return list_rings(c);
	if (c->level < CONF_LEVEL_OPERATOR) {
		cmd_say(c, "Permission denied");
		return 0;
	}
	if (log_store_end(str_from_cstr(name), &end) != 0) {
		cmd_say(c, "No such event sink");
		return 0;
	}
	for (unsigned i = 1; cmd_arg(c, i); i++) {
		if (!take_options(cmd_arg(c, i), &o)) {
			cmd_say(c, "unknown option");
			return 0;
		}
	}
	if (o.from_end)
		at = end;
	if (o.waits && c->client)
		return watch_start(c, name, at, o.separator);
	while ((n = log_store_next(str_from_cstr(name), &at, line, sizeof(line))) >= 0) {
		fwrite(line, 1, (size_t)n, c->out);
		putc(o.separator, c->out);
	}
	return 0;
}

/* --- start, reload, end ---------------------------------------------------------------------------------- */

int rings_create(struct ctl *ctl, struct rings **ret_rings)
{
	struct rings *r = mem_zalloc(sizeof(*r));
	int rc, fd;

	if (!r)
		return -ENOMEM;
	r->ctl = ctl;
	list_init(&r->watches);
	list_init(&r->forwards.all);
	r->forwards.ctl = ctl;
	net_worker_init(&r->forwards.nw, ctl->loop, LB_MAX_WORKERS);
	deferred_init(&r->pump, rings_pump);
	r->news.on_event = rings_on_news;
	fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	rc = fd < 0 ? -errno : loop_add_fd(ctl->loop, &r->news, fd, LOOP_LEVEL);
	if (rc != 0) {
		if (fd >= 0)
			close(fd);
		net_worker_fini(&r->forwards.nw);
		mem_free(r);
		return rc;
	}
	log_stores_notify(fd);
	*ret_rings = r;
	return 0;
}

int rings_configure(struct rings *r, const struct conf *conf)
{
	struct log_store_spec *specs = NULL;
	struct list *p;
	unsigned n = 0;
	int rc;

	list_for_each(p, &conf->rings)
		n++;
	if (n && !(specs = mem_zalloc(n * sizeof(*specs))))
		return -ENOMEM;
	n = 0;
	list_for_each(p, &conf->rings) {
		const struct conf_ring *cr = list_entry(p, struct conf_ring, link);

		specs[n++] = (struct log_store_spec){
			.name = str_from_cstr(cr->name),
			.description = str_from_cstr(cr->description ? cr->description : cr->name),
			.size = cr->size,
			.path = str_from_cstr(cr->backing_file),
		};
	}
	rc = log_stores_set(specs, n);
	mem_free(specs);
	if (rc == 0)
		rc = ring_forwards_configure(&r->forwards, conf);
	loop_defer(r->ctl->loop, &r->pump); /* who waits for a ring that is gone is told */
	return rc;
}

void rings_destroy(struct rings *r)
{
	if (!r)
		return;
	log_stores_notify(-1);
	loop_undefer(&r->pump);
	ring_forwards_close(&r->forwards);
	net_worker_fini(&r->forwards.nw);
	loop_close_fd(r->ctl->loop, &r->news);
	mem_free(r);
}
