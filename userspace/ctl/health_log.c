/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is said about checks and states, in HAProxy's words: alarms of the field match these lines. To the
 * process's log targets, and to those of the section where it has others. Control thread.
 */
#include "ctl/health_priv.h"

static void say(const struct conf_proxy *px, enum log_level level, struct buf *b)
{
	const struct conf_logs *own = &px->logs, *all = &px->conf->global.logs;
	struct str line = buf_str(b), tag = str_from_cstr(px->log_tag);

	log_msg(level, STR_FMT, STR_ARG(line));
	if (own->n && (own->n != all->n ||
		       memcmp(own->targets, all->targets, own->n * sizeof(own->targets[0])) != 0))
		log_emit(own->targets, own->n, level, tag, STR_NULL, line);
}

/* A line that is too long is cut, never dropped. */
static void add(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(buf_tail(b), buf_room(b), fmt, ap);
	va_end(ap);
	if (n > 0)
		buf_commit(b, (uint32_t)n < buf_room(b) ? (uint32_t)n
			      : buf_room(b)		? buf_room(b) - 1
							: 0);
}

/* Texts of peers: what could end the quotation or the line is written as <0A>. */
static void add_quoted(struct buf *b, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < 0x20 || c > 0x7e || c == '"' || c == '<' || c == '>')
			add(b, "<%02X>", c);
		else
			add(b, "%c", c);
	}
}

static void add_name(struct buf *b, const struct watch *w)
{
	add(b, "%s %s/%s", w->srv->is_backup ? "Backup Server" : "Server", w->srv->backend_name,
	    w->srv->name);
}

static void add_result(struct buf *b, const struct server_health *c)
{
	add(b, ", reason: %s", check_status_text((enum check_status)c->status));
	if (c->status >= CHECK_STATUS_L7OK)
		add(b, ", code: %u", c->code);
	if (c->desc[0]) {
		add(b, ", info: \"");
		add_quoted(b, c->desc);
		add(b, "\"");
	}
	add(b, ", check duration: %ums", c->duration_ms);
}

static void add_via(struct buf *b, const struct watch *w)
{
	if (w->tracked)
		add(b, " via %s/%s", w->tracked->srv->backend_name, w->tracked->srv->name);
}

/* The others that are left, and what happens to the sessions; `is_down` as HAProxy words it. */
static void add_rest(struct buf *b, const struct watch *w, bool is_down)
{
	const struct health_backend *hb = w->hb;
	const char *backup = !hb->n_active && hb->n_backup ? " Running on backup." : "";
	uint32_t n_waiting = atomic_load(&w->srv->n_waiting);

	add(b, ". %u active and %u backup servers %s.%s", hb->n_active, hb->n_backup,
	    is_down ? "left" : "online", backup);
	if (is_down)
		add(b, " %u sessions active, %u requeued, 0 remaining in queue",
		    atomic_load(&w->srv->cur), n_waiting);
	else
		add(b, " 0 sessions requeued, %u total in queue", n_waiting);
}

void health_log_check(const struct watch *w, bool is_conditional, bool is_passed)
{
	const struct server *s = w->srv;
	const struct server_health *c = &s->check;
	uint32_t rise = watch_rise(w), fall = watch_fall(w);
	bool is_up = c->health >= rise;
	char text[1024];
	struct buf b;

	buf_init(&b, text, sizeof(text));
	add(&b, "Health check for %sserver %s/%s %s%s", s->is_backup ? "backup " : "",
	    s->backend_name, s->name, is_conditional ? "conditionally " : "",
	    is_passed ? "succeeded" : "failed");
	add_result(&b, c);
	add(&b, ", status: %u/%u %s.", is_up ? c->health - rise + 1 : c->health,
	    is_up ? fall : rise,
	    !is_up		       ? "DOWN"
	    : atomic_load(&s->uweight) ? "UP"
				       : "DRAIN");
	say(w->hb->px, LOG_LVL_NOTICE, &b);
}

void health_log_agent(const struct watch *w)
{
	const struct server *s = w->srv;
	const struct server_health *c = &s->agent;
	char text[1024];
	struct buf b;

	buf_init(&b, text, sizeof(text));
	add(&b, "Agent check for %sserver %s/%s %s", s->is_backup ? "backup " : "", s->backend_name,
	    s->name,
	    c->status == CHECK_STATUS_L7OK || c->status == CHECK_STATUS_CHECKED ? "succeeded"
										: "failed");
	add_result(&b, c);
	add(&b, ", status: %u/1 %s.", c->health, c->health ? "UP" : "DOWN");
	say(w->hb->px, LOG_LVL_NOTICE, &b);
}

void health_log_op(const struct watch *w, enum server_op was, enum health_cause cause)
{
	static const char *const words[] = {
		[SERVER_STOPPED] = "DOWN",
		[SERVER_STARTING] = "UP",
		[SERVER_RUNNING] = "UP",
		[SERVER_STOPPING] = "stopping",
	};
	enum server_op op = atomic_load(&w->srv->op);
	bool is_down = op == SERVER_STOPPED;
	char text[1024];
	struct buf b;

	buf_init(&b, text, sizeof(text));
	add_name(&b, w);
	add(&b, " is %s", words[op]);
	add_via(&b, w);
	/* With `option log-health-checks` the line before has said why. */
	if ((cause == CAUSE_CHECK || cause == CAUSE_AGENT) &&
	    !(w->hb->px->options & CONF_OPT(LOG_HEALTH_CHECKS)))
		add_result(&b, cause == CAUSE_AGENT ? &w->srv->agent : &w->srv->check);
	else if (cause == CAUSE_CLI)
		add(&b, ", changed from CLI");
	add_rest(&b, w, is_down);
	add(&b, ".");
	say(w->hb->px, is_down && was != SERVER_STOPPING ? LOG_LVL_ALERT : LOG_LVL_NOTICE, &b);
}

void health_log_empty(const struct health_backend *hb)
{
	char text[512];
	struct buf b;

	buf_init(&b, text, sizeof(text));
	add(&b, "%s %s has no server available!",
	    hb->px->caps & CONF_CAP_FRONTEND ? "proxy" : "backend", hb->px->name);
	say(hb->px, LOG_LVL_EMERG, &b);
}

void health_log_admin(const struct watch *w, enum health_admin_text what)
{
	const struct server *s = w->srv;
	unsigned admin = atomic_load(&s->admin);
	const char *up = atomic_load(&s->op) == SERVER_STOPPED ? "DOWN" : "UP";
	const char *ready = admin & SERVER_DRAIN_MASK ? "DRAIN" : "READY";
	char text[1024];
	struct buf b;

	buf_init(&b, text, sizeof(text));
	add_name(&b, w);
	switch (what) {
	case ADMIN_GOING_DOWN:
		add(&b, " is going DOWN for maintenance");
		add_via(&b, w);
		add_rest(&b, w, true);
		break;
	case ADMIN_WAS_DOWN:
		add(&b, " was DOWN and now enters maintenance");
		add_via(&b, w);
		break;
	case ADMIN_LEAVES_FORCED:
		add(&b, " is %s/%s (leaving forced maintenance)", up, ready);
		break;
	case ADMIN_LEAVES:
		add(&b, " is %s/%s (leaving maintenance)", up, ready);
		break;
	case ADMIN_REMAINS:
		add(&b, " is leaving forced maintenance but remains in maintenance");
		break;
	case ADMIN_DRAINS:
		add(&b, " enters drain state");
		add_via(&b, w);
		add_rest(&b, w, false);
		break;
	case ADMIN_LEAVES_FORCED_DRAIN:
		add(&b, " is %s (leaving forced drain)", up);
		break;
	case ADMIN_LEAVES_DRAIN:
		add(&b, " is %s (leaving drain)", up);
		add_via(&b, w);
		break;
	}
	add(&b, ".");
	say(w->hb->px, what == ADMIN_GOING_DOWN ? LOG_LVL_ALERT : LOG_LVL_NOTICE, &b);
}
