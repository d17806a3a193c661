/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters of listeners (option socket-stats). A row belongs to a listener's name in its section, not to a
 * configuration, so that it survives reloads; it is given back when no configuration has it. Control thread.
 */
#include <string.h>

#include "base/mem.h"
#include "ctl/ctl_priv.h"

struct bind_stats {
	struct list link; /* ctl->bind_stats */
	char *section, *name;
	struct stats_row row;
	unsigned users; /* binds of live configurations */
};

static struct bind_stats *find(struct ctl *ctl, const struct conf_bind *b)
{
	struct list *pos;

	list_for_each(pos, &ctl->bind_stats) {
		struct bind_stats *bs = list_entry(pos, struct bind_stats, link);

		if (strcmp(bs->section, b->proxy->name) == 0 && strcmp(bs->name, b->name) == 0)
			return bs;
	}
	return NULL;
}

static void drop(struct ctl *ctl, struct bind_stats *bs)
{
	list_del(&bs->link);
	stats_row_put(&ctl->services_area, &bs->row);
	mem_free(bs->section);
	mem_free(bs->name);
	mem_free(bs);
}

static struct bind_stats *add(struct ctl *ctl, const struct conf_bind *b)
{
	struct bind_stats *bs = mem_zalloc(sizeof(*bs));

	if (!bs)
		return NULL;
	list_push_back(&ctl->bind_stats, &bs->link);
	bs->section = mem_strdup(str_from_cstr(b->proxy->name));
	bs->name = mem_strdup(str_from_cstr(b->name));
	if (bs->section && bs->name &&
	    stats_row_take(&ctl->services_area, HG_L7_LISTENER, &bs->row) == 0)
		return bs;
	drop(ctl, bs);
	return NULL;
}

void bind_stats_open(struct ctl *ctl, struct proxy_bind *pb)
{
	struct bind_stats *bs;

	if (!(pb->conf->proxy->options & CONF_OPT(SOCKET_STATS)))
		return;
	bs = find(ctl, pb->conf);
	if (!bs)
		bs = add(ctl, pb->conf);
	if (!bs) {
		log_msg(LOG_LVL_WARNING, "no room for the counters of listener %s/%s",
			pb->conf->proxy->name, pb->conf->name);
		return;
	}
	bs->users++;
	pb->stats = bs->row;
}

void bind_stats_close(struct ctl *ctl, struct proxy_bind *pb)
{
	struct list *pos, *tmp;

	if (!pb->stats.rows)
		return;
	list_for_each_safe(pos, tmp, &ctl->bind_stats) {
		struct bind_stats *bs = list_entry(pos, struct bind_stats, link);

		if (bs->row.rows == pb->stats.rows && --bs->users == 0)
			drop(ctl, bs);
	}
	pb->stats = (struct stats_row){ 0 };
}
