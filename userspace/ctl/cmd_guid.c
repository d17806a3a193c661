/* SPDX-License-Identifier: BSD-2-Clause */
/* `show guid`: what the configuration gave a name that machines know it by. Control thread. */
#include <string.h>

#include "ctl/cmd.h"
#include "ctl/cmd_rows.h"

/* "<guid> <kind> <section>[/<name>]", when it is the one that was asked for, or all were. */
static void show(struct cmd *c, const char *guid, const char *kind, const struct conf_proxy *px,
		 const char *name)
{
	const char *wanted = cmd_arg(c, 0);

	if (guid && (!wanted || strcmp(guid, wanted) == 0))
		fprintf(c->out, "%s %s %s%s%s\n", guid, kind, px->name, name ? "/" : "",
			name ? name : "");
}

int cmd_show_guid(struct cmd *c)
{
	const struct conf *conf = c->ctl->current->conf;
	struct list *p, *l;

	list_for_each(p, &conf->proxies) {
		const struct conf_proxy *px = list_entry(p, struct conf_proxy, link);

		show(c, px->guid,
		     px->caps == CONF_CAP_FRONTEND  ? "frontend"
		     : px->caps == CONF_CAP_BACKEND ? "backend"
						    : "listen",
		     px, NULL);
		list_for_each(l, &px->binds) {
			const struct conf_bind *b = list_entry(l, struct conf_bind, link);

			show(c, b->guid, "listener", px, b->name);
		}
		list_for_each(l, &px->servers) {
			const struct conf_server *s = list_entry(l, struct conf_server, link);

			show(c, s->guid, "server", px, s->name);
		}
	}
	return 0;
}
