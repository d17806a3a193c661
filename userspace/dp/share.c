/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections of both tiers in one word of `live_backends` (struct hg_live_server): which servers of the L7 tier count in
 * which row, with which limit, and what becomes of the counts of a process that is gone.
 *
 * Parts: every process that has workers owns one part of all words, or shares one where three have connections at once (an upgrade
 * upon an upgrade). Owning is a lock on a byte of the pins' directory, which ends with the process however that ends. A part
 * that nobody owns belongs to the dead: it is set to zero. F_OFD locks, since they belong to a descriptor of ours
 * alone; the lock on the whole directory (lock.c) goes over to the next process. Control thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "dp/dp_priv.h"

/* --- parts ---------------------------------------------------------------------------------------------------- */

static struct flock part_lock(short type, uint32_t part)
{
	return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = part, .l_len = 1 };
}

/* Does another process own it? What cannot be known is taken for yes: then nothing is cleared. */
static bool is_others(const struct dp *dp, uint32_t part)
{
	/* A lock for reading is all that a directory can have; one for writing would meet those of all others. */
	struct flock l = part_lock(F_WRLCK, part);

	return fcntl(dp->share.fd, F_OFD_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

static void clear_part(struct dp *dp, uint32_t part)
{
	const uint64_t mask = HG_LIVE_L7_MAX * HG_LIVE_L7(part);
	struct hg_live_server *rows = dp->nat.live_backends;

	for (uint32_t id = 0; id < dp->t.max_backends; id++)
		if (__atomic_load_n(&rows[id].word, __ATOMIC_RELAXED) & mask)
			__atomic_and_fetch(&rows[id].word, ~mask, __ATOMIC_SEQ_CST);
}

/* One that is free; else the one that the process before us does not have: its other owner will be gone first. */
static uint32_t choose_part(const struct dp *dp)
{
	for (uint32_t part = 0; part < HG_LIVE_PARTS; part++)
		if (!is_others(dp, part))
			return part;
	return (dp->nat.live_backends[0].newest + 1) % HG_LIVE_PARTS;
}

int dp_share_open(struct dp *dp, struct err *err)
{
	struct flock l;
	int fd = open(dp->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_set(err, -errno, "cannot open %s: %m", dp->dir);
	dp->share.fd = fd;
	dp->share.part = choose_part(dp);
	l = part_lock(F_RDLCK, dp->share.part);
	if (fcntl(fd, F_OFD_SETLK, &l) != 0)
		return err_set(err, -errno, "cannot lock a part of %s: %m", dp->dir);
	dp->nat.live_backends[0].newest = dp->share.part;
	for (uint32_t part = 0; part < HG_LIVE_PARTS; part++)
		if (!is_others(dp, part))
			clear_part(dp, part);
	if (dp->is_adopted)
		dp_recount_begin(dp);
	return 0;
}

/* What our workers had was closed with them, whatever they still had counted. */
void dp_share_close(struct dp *dp)
{
	dp_recount_end(dp);
	if (dp->share.fd <= 0)
		return;
	if (!is_others(dp, dp->share.part))
		clear_part(dp, dp->share.part);
	close(dp->share.fd);
	dp->share.fd = 0;
}

void dp_share_tick(struct dp *dp)
{
	for (uint32_t part = 0; dp->share.fd > 0 && part < HG_LIVE_PARTS; part++)
		if (part != dp->share.part && !is_others(dp, part))
			clear_part(dp, part);
	dp_recount_tick(dp);
}

/* --- who counts where ------------------------------------------------------------------------------------------ */

/* Do connections to that port come in by the section? Of TCP: the L7 tier has no others. */
static bool has_bind(const struct conf_proxy *px, uint16_t port)
{
	struct list *l;

	list_for_each(l, &px->binds) {
		const struct endpoint *ep = &list_entry(l, struct conf_bind, link)->ep;

		if (ep->kind == ENDPOINT_IP && !ep->is_dgram && (!port || ep->port == port))
			return true;
	}
	return false;
}

/* Without a port in the server's line a connection keeps the one that it came to. */
static bool is_same(const struct dp_backend *b, const struct addr *a)
{
	return b->is_next && b->px && addr_is_ip_eq(&b->addr, a) &&
	       (!b->port || b->port == addr_port(a)) && has_bind(b->px, b->port ? 0 : addr_port(a));
}

/* The row of that address and port, of the first section that has it; 0: none. */
static uint32_t find_row(const struct dp *dp, const struct addr *a)
{
	uint32_t best = 0;

	for (uint32_t at = dp_backend_first(dp, a); at; at = dp->backends_by_addr.next[at]) {
		const struct dp_backend *b = &dp->backends[at - 1];

		if (is_same(b, a) && (!best || b->px->index < dp->backends[best].px->index))
			best = at - 1;
	}
	return best;
}

/* Else its port is the one that the client came to. */
static bool has_place(const struct server *srv)
{
	const sa_family_t family = srv->addr.sa.sa_family;

	return (family == AF_INET || family == AF_INET6) && addr_port(&srv->addr) && srv->conf &&
	       !srv->conf->ep.port_offset_sign;
}

/* Servers of one section of the L7 tier; how many are shared. */
static uint32_t share_section(struct dp *dp, struct lb_backend *be)
{
	uint32_t n = 0;

	for (unsigned pos = 0; pos < be->n_servers; pos++) {
		struct server *srv = be->servers[pos];
		uint32_t id = has_place(srv) ? find_row(dp, &srv->addr) : 0;
		uint32_t maxconn = atomic_load(&srv->maxconn);

		if (id && maxconn && (!dp->backends[id].limit || maxconn < dp->backends[id].limit))
			dp->backends[id].limit = maxconn;
		server_share(srv, id ? &dp->nat.live_backends[id] : NULL, dp->share.part);
		n += id != 0;
	}
	return n;
}

void dp_share_sync(struct dp *dp, const struct conf *c, struct lb_backend *const *backends)
{
	struct list *l;

	if (!dp->nat.live_backends)
		return;
	list_for_each(l, &c->proxies) {
		const struct conf_proxy *px = list_entry(l, struct conf_proxy, link);

		if (px->mode != CONF_MODE_L4)
			atomic_store(&backends[px->index]->n_shared,
				     share_section(dp, backends[px->index]));
	}
	for (uint32_t id = 1; id < dp->t.max_backends; id++)
		if (dp->backends[id].is_next)
			dp_backend_limit(dp, id, dp->backends[id].limit);
}
