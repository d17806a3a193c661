/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring's lines to its servers, over one TCP connection each: newline-ended or counted frames (RFC 6587 3.4). What
 * a server does not take waits in the ring; a connection that breaks is made again, and the line it broke in is
 * sent again whole. Control thread, never blocks.
 */
#include <errno.h>

#include "base/log_store.h"
#include "base/mem.h"
#include "ctl/rings.h"
#include "net/net.h"

#define AGAIN_NS  1000000000ull /* between attempts to connect */
#define BATCH	  64 /* lines in one write */
#define FRAME_MAX (UINT16_MAX + 8) /* a line with its count */
#define BUF_SIZE  (2 * FRAME_MAX)

struct ring_forward {
	struct list link;
	struct ring_forwards *all;
	bool is_wanted; /* of ring_forwards_configure() */
	/* copies of what the configuration says */
	char *ring, *name, *path;
	struct addr addr;
	bool is_counted;
	uint64_t timeout_connect, timeout_server;

	struct conn *conn; /* NULL: `timer` makes the next one */
	struct timer timer; /* connecting, the server's turn, or the pause between attempts */
	bool is_down; /* said so; once per outage */
	struct log_cursor at;
	/* frames that are being sent, and where each begins */
	unsigned n_frames, sent, len;
	unsigned begins[BATCH];
	char buf[BUF_SIZE];
};

/* --- frames ----------------------------------------------------------------------------------------------- */

/* What is left of the frames, from the one that was not sent whole. */
static void keep_unsent(struct ring_forward *f)
{
	unsigned first = f->n_frames, from = f->len;

	while (first > 0 && from > f->sent)
		from = f->begins[--first];
	if (f->sent == f->len) {
		f->n_frames = f->len = f->sent = 0;
		return;
	}
	memmove(f->buf, f->buf + from, f->len - from);
	for (unsigned i = first; i < f->n_frames; i++)
		f->begins[i - first] = f->begins[i] - from;
	f->n_frames -= first;
	f->len -= from;
	f->sent = 0;
}

/* More lines out of the ring, as far as there is room. */
static void fill(struct ring_forward *f)
{
	while (f->n_frames < BATCH && BUF_SIZE - f->len >= FRAME_MAX) {
		char *at = f->buf + f->len, count[8];
		int n = log_store_next(str_from_cstr(f->ring), &f->at, at, UINT16_MAX), head = 0;

		if (n < 0)
			return;
		if (f->is_counted) {
			head = snprintf(count, sizeof(count), "%d ", n);
			memmove(at + head, at, (size_t)n);
			memcpy(at, count, (size_t)head);
		} else {
			at[n++] = '\n';
		}
		f->begins[f->n_frames++] = f->len;
		f->len += (unsigned)(head + n);
	}
}

/* --- the connection --------------------------------------------------------------------------------------- */

static void set_timer(struct ring_forward *f, uint64_t ns)
{
	struct loop *l = f->all->ctl->loop;

	if (ns)
		timer_start(l, &f->timer, ns);
	else
		timer_stop(l, &f->timer);
}

static void disconnect(struct ring_forward *f, const char *why)
{
	if (!f->is_down)
		log_msg(LOG_LVL_WARNING, "ring %s: server %s: %s; its lines wait", f->ring, f->name,
			why);
	f->is_down = true;
	conn_close(f->conn, false);
	f->conn = NULL;
	keep_unsent(f);
	set_timer(f, AGAIN_NS);
}

/* Log servers say nothing; what they say is not looked at. False: disconnected. */
static bool drain(struct ring_forward *f)
{
	char scrap[4096];
	ssize_t n;

	while (f->conn->can_read) {
		n = conn_recv(f->conn, scrap, sizeof(scrap));
		if (n > 0)
			continue;
		if (n == -EAGAIN)
			break;
		disconnect(f, n == 0 ? "closed the connection" : "the connection broke");
		return false;
	}
	return true;
}

static void pump(struct ring_forward *f)
{
	bool has_progress = false;

	if (!f->conn || f->conn->state != CONN_OPEN)
		return;
	for (;;) {
		struct iovec iov;
		ssize_t n;

		if (f->sent == f->len) {
			keep_unsent(f);
			fill(f);
		}
		if (f->sent == f->len)
			break;
		iov = (struct iovec){ f->buf + f->sent, f->len - f->sent };
		n = conn_sendv(f->conn, &iov, 1, false);
		if (n == -EAGAIN || n == 0)
			break;
		if (n < 0) {
			disconnect(f, "the connection broke");
			return;
		}
		has_progress = true;
		f->sent += (unsigned)n;
	}
	/* `timeout server`: bytes are waiting, and none is taken. */
	if (f->sent == f->len)
		set_timer(f, 0);
	else if (has_progress || !timer_is_running(&f->timer))
		set_timer(f, f->timeout_server);
}

static void on_event(struct conn *c)
{
	struct ring_forward *f = c->owner;

	if (c->state != CONN_OPEN) {
		int rc = conn_advance(c);

		if (rc == -EAGAIN)
			return;
		if (rc != 0) {
			disconnect(f, "cannot connect");
			return;
		}
		set_timer(f, 0);
		if (f->is_down)
			log_msg(LOG_LVL_NOTICE, "ring %s: server %s: connected again", f->ring,
				f->name);
		f->is_down = false;
	}
	if (drain(f))
		pump(f);
}

static void connect_now(struct ring_forward *f)
{
	const struct dial_opts o = { .to = &f->addr, .unix_path = f->path, .keepalive = true };
	int rc = conn_dial(&f->all->nw, &o, &f->conn);

	if (rc != 0) {
		f->conn = NULL;
		disconnect(f, "cannot connect");
		return;
	}
	f->conn->owner = f;
	f->conn->on_event = on_event;
	set_timer(f, f->timeout_connect);
	if (f->conn->state == CONN_OPEN)
		on_event(f->conn);
}

static void on_timer(struct timer *t)
{
	struct ring_forward *f = container_of(t, struct ring_forward, timer);

	if (!f->conn)
		connect_now(f);
	else
		disconnect(f, f->conn->state == CONN_OPEN ? "takes no lines" : "cannot connect");
}

/* --- configuration ---------------------------------------------------------------------------------------- */

static void forward_free(struct ring_forward *f)
{
	timer_stop(f->all->ctl->loop, &f->timer);
	conn_close(f->conn, false);
	if (f->link.next)
		list_del(&f->link);
	mem_free(f->ring);
	mem_free(f->name);
	mem_free(f->path);
	mem_free(f);
}

static bool is_same(const struct ring_forward *f, const struct conf_ring *r,
		    const struct conf_ring_server *s)
{
	return strcmp(f->ring, r->name) == 0 && strcmp(f->name, s->name) == 0 &&
	       f->is_counted == s->is_counted && !f->path == !s->path &&
	       (s->path ? strcmp(f->path, s->path) == 0 : addr_is_eq(&f->addr, &s->addr));
}

static struct ring_forward *forward_get(struct ring_forwards *all, const struct conf_ring *r,
					const struct conf_ring_server *s)
{
	struct ring_forward *f;
	struct list *p;

	list_for_each(p, &all->all) {
		f = list_entry(p, struct ring_forward, link);
		if (is_same(f, r, s))
			return f;
	}
	f = mem_zalloc(sizeof(*f));
	if (!f)
		return NULL;
	f->all = all;
	f->addr = s->addr;
	f->is_counted = s->is_counted;
	timer_init(&f->timer, on_timer);
	f->ring = mem_strdup(str_from_cstr(r->name));
	f->name = mem_strdup(str_from_cstr(s->name));
	f->path = s->path ? mem_strdup(str_from_cstr(s->path)) : NULL;
	if (!f->ring || !f->name || (s->path && !f->path)) {
		forward_free(f);
		return NULL;
	}
	list_push_back(&all->all, &f->link);
	timer_start(all->ctl->loop, &f->timer, 0);
	return f;
}

int ring_forwards_configure(struct ring_forwards *all, const struct conf *conf)
{
	struct list *p, *next;
	int rc = 0;

	list_for_each(p, &all->all)
		list_entry(p, struct ring_forward, link)->is_wanted = false;
	list_for_each(p, &conf->rings) {
		const struct conf_ring *r = list_entry(p, struct conf_ring, link);

		for (unsigned i = 0; i < r->n_servers; i++) {
			struct ring_forward *f = forward_get(all, r, &r->servers[i]);

			if (!f) {
				rc = -ENOMEM;
				continue;
			}
			f->is_wanted = true;
			f->timeout_connect = r->timeout_connect;
			f->timeout_server = r->timeout_server;
		}
	}
	list_for_each_safe(p, next, &all->all) {
		struct ring_forward *f = list_entry(p, struct ring_forward, link);

		if (!f->is_wanted)
			forward_free(f);
	}
	return rc;
}

void ring_forwards_pump(struct ring_forwards *all)
{
	struct list *p;

	list_for_each(p, &all->all)
		pump(list_entry(p, struct ring_forward, link));
}

void ring_forwards_close(struct ring_forwards *all)
{
	struct list *p, *next;

	list_for_each_safe(p, next, &all->all)
		forward_free(list_entry(p, struct ring_forward, link));
}
