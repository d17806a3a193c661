/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `wait <delay> [srv-removable <be>/<srv>]`: between `disable server` and `del server`. What comes behind it on the
 * connection runs afterwards. Unlike HAProxy's it goes on when the client has closed its sending half, as
 * `echo … | socat` does. Control thread.
 */
#include <string.h>

#include "base/mem.h"
#include "ctl/admin_priv.h"

#define LOOK_AGAIN_NS 20000000ull

struct cmd_wait {
	struct ctl *ctl;
	struct admin_client *client;
	struct timer timer;
	uint64_t until_ns; /* loop clock */
	char path[]; /* "backend/server"; "": nothing but time */
};

/* NULL: it can be deleted. */
static const char *why_not(const struct cmd_wait *w, bool *ret_may_pass)
{
	struct str rest = str_from_cstr(w->path), be = str_cut(&rest, '/');
	const struct server *s = lb_find_server(&w->ctl->registry, be, rest);

	*ret_may_pass = false;
	if (!s || !s->conf)
		return "No such server.";
	return server_why_not_removable(w->ctl, s, ret_may_pass);
}

static void wait_end(struct cmd_wait *w, const char *text, const char *why)
{
	struct admin_client *ac = w->client;
	char answer[256];
	int n = snprintf(answer, sizeof(answer), "%s%s%s\n", text, why ? " " : "", why ? why : "");

	timer_start(w->ctl->loop, &ac->idle, ac->timeout_ns);
	ac->wait = NULL;
	cmd_wait_drop(w);
	admin_finish(ac, answer, (size_t)n);
}

static void wait_look(struct timer *t)
{
	struct cmd_wait *w = container_of(t, struct cmd_wait, timer);
	uint64_t now = loop_now(w->ctl->loop), left = w->until_ns > now ? w->until_ns - now : 0;
	bool may_pass = true;
	const char *why = *w->path ? why_not(w, &may_pass) : NULL;

	if (*w->path && !why)
		return wait_end(w, "Done.", NULL);
	if (!may_pass)
		return wait_end(w, "Failed.", why);
	if (!left)
		return wait_end(w, *w->path ? "Wait delay expired." : "Done.", why);
	timer_start(w->ctl->loop, &w->timer,
		    *w->path && left > LOOK_AGAIN_NS ? LOOK_AGAIN_NS : left);
}

void cmd_wait_drop(struct cmd_wait *w)
{
	timer_stop(w->ctl->loop, &w->timer);
	mem_free(w);
}

int cmd_wait(struct cmd *c)
{
	const char *delay = cmd_arg(c, 0), *what = cmd_arg(c, 1), *path = cmd_arg(c, 2);
	struct cmd_wait *w;
	uint64_t ns;

	if (!delay || str_to_duration(str_from_cstr(delay), 1000000, &ns) != 0 || !c->client ||
	    (what && (strcmp(what, "srv-removable") != 0 || !path || !strchr(path, '/')))) {
		cmd_say(c, "Usage: wait <delay> [srv-removable <backend>/<server>]");
		return 0;
	}
	path = path ? path : "";
	w = mem_zalloc(sizeof(*w) + strlen(path) + 1);
	if (!w) {
		cmd_say(c, "Out of memory.");
		return 0;
	}
	w->ctl = c->ctl;
	w->client = c->client;
	w->until_ns = loop_now(c->ctl->loop) + ns;
	memcpy(w->path, path, strlen(path));
	timer_init(&w->timer, wait_look);
	c->client->wait = w;
	timer_stop(c->ctl->loop, &c->client->idle); /* silence is what it waits for */
	timer_start(c->ctl->loop, &w->timer, 0);
	return CMD_PENDING;
}
