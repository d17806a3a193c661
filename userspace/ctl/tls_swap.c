/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What workers use of TLS, built again from the current snapshot's certificate store and put in place of what was
 * there, while they go on: they read one pointer per connection. The old ones are let go when no worker
 * can be about to take a reference; connections keep theirs. Control thread.
 */
#include <errno.h>

#include "base/mem.h"
#include "ctl/ctl_priv.h"

struct swap {
	enum tls_used_kind
		kind; /* the file that has changed: what is not made of it stays as it is */
	const char *path;
	struct tls_server **servers; /* by bind; NULL: clear, or stays */
	struct tls_client **clients; /* of servers, in order; NULL: stays */
	unsigned n_clients;
};

typedef int client_fn(struct ctl *ctl, struct conf_proxy *px, struct conf_server *srv,
		      struct swap *sw, struct err *err);

/* Those of `add server`, but for files that nobody can change. */
static int each_added(struct ctl *ctl, struct conf_proxy *px, client_fn *fn, struct swap *sw,
		      struct err *err)
{
	const struct lb_backend *be = ctl->current->backends[px->index];
	int rc = 0;

	for (unsigned i = 0; i < be->n_servers && rc == 0; i++) {
		const struct server_own *own = be->servers[i]->own;

		if (own && own->line->needs_tls && !own->certs)
			rc = fn(ctl, px, own->line, sw, err);
	}
	return rc;
}

/* Calls `fn` for every server line that speaks TLS. */
static int each_client(struct ctl *ctl, client_fn *fn, struct swap *sw, struct err *err)
{
	struct list *p, *l;
	int rc;

	list_for_each(p, &ctl->current->conf->proxies) {
		struct conf_proxy *px = list_entry(p, struct conf_proxy, link);

		list_for_each(l, &px->servers) {
			struct conf_server *srv = list_entry(l, struct conf_server, link);

			if (!srv->needs_tls)
				continue;
			rc = fn(ctl, px, srv, sw, err);
			if (rc)
				return rc;
		}
		rc = each_added(ctl, px, fn, sw, err);
		if (rc)
			return rc;
	}
	return 0;
}

static int count_client(struct ctl *ctl, struct conf_proxy *px, struct conf_server *srv,
			struct swap *sw, struct err *err)
{
	sw->n_clients++;
	return 0;
}

/* Where the server's context is. */
static struct tls_client *_Atomic *client_of(struct ctl *ctl, const struct conf_proxy *px,
					     const struct conf_server *srv)
{
	struct server *s = lb_find_line(ctl->current->backends[px->index], srv);

	return s && s->own ? &s->own->tls : &ctl->current->tls[px->index][srv->pos_in_backend];
}

static int build_client(struct ctl *ctl, struct conf_proxy *px, struct conf_server *srv,
			struct swap *sw, struct err *err)
{
	struct tls_client **at = &sw->clients[sw->n_clients++];

	if (!tls_client_uses(atomic_load_explicit(client_of(ctl, px, srv), memory_order_relaxed),
			     sw->kind, sw->path))
		return 0;
	return tls_client_new(ctl->current->certs, srv, &ctl->current->conf->global, at, err);
}

static int put_client(struct ctl *ctl, struct conf_proxy *px, struct conf_server *srv,
		      struct swap *sw, struct err *err)
{
	struct server *s = lb_find_line(ctl->current->backends[px->index], srv);
	struct tls_client *new = sw->clients[sw->n_clients++], *old;

	if (!new)
		return 0;
	old = atomic_exchange_explicit(client_of(ctl, px, srv), new, memory_order_acq_rel);
	if (s && s->own)
		tls_client_retire(new); /* the server's, not the store's */
	tls_client_retire(old);
	quiesce_after(&ctl->registry, tls_client_release, old);
	return 0;
}

static void swap_free(struct ctl *ctl, struct swap *sw, bool is_failed)
{
	for (unsigned i = 0; is_failed && sw->servers && i < ctl->current->n_binds; i++) {
		if (sw->servers[i]) {
			tls_server_retire(sw->servers[i]);
			tls_server_release(sw->servers[i]);
		}
	}
	for (unsigned i = 0; is_failed && sw->clients && i < sw->n_clients; i++) {
		if (sw->clients[i]) {
			tls_client_retire(sw->clients[i]);
			tls_client_release(sw->clients[i]);
		}
	}
	mem_free(sw->servers);
	mem_free(sw->clients);
}

static int swap_build(struct ctl *ctl, struct swap *sw, struct err *err)
{
	struct proxy_snapshot *snap = ctl->current;
	int rc = each_client(ctl, count_client, sw, err);

	sw->servers = mem_zalloc((snap->n_binds + 1) * sizeof(struct tls_server *));
	sw->clients = mem_zalloc((sw->n_clients + 1) * sizeof(struct tls_client *));
	sw->n_clients = 0;
	if (!sw->servers || !sw->clients)
		return err_set(err, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < snap->n_binds && rc == 0; i++) {
		if (snap->binds[i].conf->is_ssl &&
		    tls_server_uses(atomic_load_explicit(&snap->binds[i].tls, memory_order_relaxed),
				    sw->kind, sw->path))
			rc = tls_server_new(snap->certs, snap->binds[i].conf, &snap->conf->global,
					    &sw->servers[i], err);
	}
	return rc ? rc : each_client(ctl, build_client, sw, err);
}

int ctl_rebuild_tls(struct ctl *ctl, enum tls_used_kind kind, const char *path, struct err *err)
{
	struct proxy_snapshot *snap = ctl->current;
	struct swap sw = { .kind = kind, .path = path };
	int rc = swap_build(ctl, &sw, err);

	if (rc) {
		swap_free(ctl, &sw, true);
		return rc;
	}
	for (unsigned i = 0; i < snap->n_binds; i++) {
		struct tls_server *old;

		if (!sw.servers[i])
			continue;
		old = atomic_exchange_explicit(&snap->binds[i].tls, sw.servers[i],
					       memory_order_acq_rel);
		tls_server_retire(old);
		quiesce_after(&ctl->registry, tls_server_release, old);
	}
	sw.n_clients = 0;
	(void)each_client(ctl, put_client, &sw, err);
	swap_free(ctl, &sw, false);
	ctl_recount_certs(ctl);
	return 0;
}

static int mark_client(struct ctl *ctl, struct conf_proxy *px, struct conf_server *srv,
		       struct swap *sw, struct err *err)
{
	tls_client_mark(ctl->current->certs,
			atomic_load_explicit(client_of(ctl, px, srv), memory_order_relaxed));
	return 0;
}

void ctl_recount_certs(struct ctl *ctl)
{
	struct list *p;

	cert_store_recount(ctl->current->certs);
	list_for_each(p, &ctl->current->conf->proxies)
		(void)each_added(ctl, list_entry(p, struct conf_proxy, link), mark_client, NULL,
				 NULL);
}
