/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Servers that come and go while a configuration stays: `add server`, `del server`. One that was added is named by
 * no snapshot; the registry holds the one reference to it. When it goes, streams may still know it: as the
 * one to avoid, or for their log line. So it is freed when every stream that is alive began later, which
 * costs streams nothing. One of a file that goes is its snapshots' to free, as ever. Control thread.
 */
#include <errno.h>
#include <time.h>

#include "lb/lb_priv.h"

static uint64_t monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* With room for one more, or without `gone`; be->n_servers is the caller's. NULL: out of memory. */
static struct server **copy_servers(const struct lb_backend *be, const struct server *gone)
{
	struct server **to = mem_alloc((be->n_servers + 1u) * sizeof(to[0]));
	unsigned n = 0;

	for (unsigned i = 0; to && i < be->n_servers; i++)
		if (be->servers[i] != gone)
			to[n++] = be->servers[i];
	return to;
}

int lb_add_server(struct lb_registry *r, struct lb_backend *be, struct server_own *own,
		  struct server **ret_srv, struct err *err)
{
	struct server **servers = copy_servers(be, NULL), *s;
	uint64_t hash = registry_server_hash(be, str_from_cstr(own->line->name));
	int rc;

	if (!servers)
		return err_set(err, -ENOMEM, "out of memory");
	own->line->pos_in_backend = be->n_servers;
	rc = server_new(r, be, own->line, hash, &s, err);
	if (rc == 0 && registry_name_server(r, s) != 0) {
		server_free(r, s);
		rc = err_set(err, -ENOMEM, "out of memory");
	}
	if (rc != 0) {
		mem_free(servers);
		return rc;
	}
	s->own = own;
	s->refs = 1;
	be->refs++;
	be->n_added++;
	s->is_new = false;
	/* No connection of the server that may have had this memory before. */
	atomic_store(&s->addr_changed_ns, monotonic_ns());
	atomic_store(&s->admin, SERVER_FORCED_MAINT);
	s->check.is_enabled = s->agent.is_enabled = false;
	list_push_back(&r->servers, &s->link);
	servers[be->n_servers] = s;
	mem_free(be->servers);
	be->servers = servers;
	be->n_servers++;
	lb_changed(r, be);
	*ret_srv = s;
	return 0;
}

/* It has left its backend's array. */
static void take_away(struct lb_registry *r, struct server *s)
{
	registry_unname_server(r, s);
	atomic_store(&s->is_removed, true);
	s->conf = NULL;
}

void added_retire(struct lb_registry *r, struct server *s)
{
	take_away(r, s);
	list_del(&s->link);
	list_push_back(&r->removed, &s->link);
}

int lb_remove_server(struct lb_registry *r, struct server *s)
{
	struct lb_backend *be = s->be;
	struct server **servers = copy_servers(be, s), **old = be->servers;

	if (!servers)
		return -ENOMEM;
	be->servers = servers;
	be->n_servers--;
	if (lb_rebuild(r, be) != 0) {
		/* The table that workers have still names it. */
		be->servers = old;
		be->n_servers++;
		mem_free(servers);
		return -ENOMEM;
	}
	mem_free(old);
	if (s->own)
		added_retire(r, s);
	else
		take_away(r, s);
	/* Workers close its idle connections. */
	lb_wake_all(be, s);
	return 0;
}

/* Could a stream that begins now meet it? A backend that left the configuration keeps the table of its last one. */
static bool is_to_be_met(const struct server *s)
{
	struct lb_backend *be = s->be;

	return be->refs > be->n_added && lb_has_server(be, s);
}

void lb_bury_removed(struct lb_registry *r, uint64_t now_ns, uint64_t since_ns)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &r->removed) {
		struct server *s = list_entry(l, struct server, link);

		if (s->removed_ns && s->removed_ns < since_ns)
			registry_release_server(r, s);
		else if (!s->removed_ns && !is_to_be_met(s))
			s->removed_ns = now_ns;
	}
	lb_reap(r);
}
