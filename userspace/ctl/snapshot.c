/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From a configuration to something workers can run: listening sockets, TLS contexts, runtime
 * servers. Building may fail and then leaves nothing; publishing cannot be seen half done. Runs on the
 * control thread only; a snapshot is freed here when the last worker let go of it.
 */
#include <errno.h>
#include <malloc.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/ctl_priv.h"

static unsigned snapshot_count_binds(const struct conf *conf)
{
	unsigned n = 0;
	struct list *p, *b;

	list_for_each(p, &conf->proxies) {
		struct conf_proxy *px = list_entry(p, struct conf_proxy, link);

		if (px->mode == CONF_MODE_L4 || px->is_disabled)
			continue;
		list_for_each(b, &px->binds)
			n++;
	}
	return n;
}

static void snapshot_drop_sockets(struct ctl *ctl, struct proxy_snapshot *snap)
{
	for (unsigned i = 0; i < snap->n_binds; i++) {
		if (snap->binds[i].socket)
			listen_close(snap->binds[i].socket); /* the last user closes it */
		bind_stats_close(ctl, &snap->binds[i]);
		snap->binds[i].socket = NULL;
	}
}

/* Everything but the runtime servers, whose references are dropped by the caller's way of ending. */
static void snapshot_free_parts(struct ctl *ctl, struct proxy_snapshot *snap)
{
	snapshot_drop_sockets(ctl, snap);
	cert_store_free(snap->certs);
	stick_registry_release(&ctl->stick, snap->conf);
	for (unsigned i = 0; i < snap->n_netns; i++)
		if (snap->netns[i] >= 0)
			close(snap->netns[i]);
	conf_free(snap->conf);
	arena_free(&snap->arena);
	mem_free(snap);
}

static void snapshot_destroy(struct snapshot *s)
{
	struct proxy_snapshot *snap = container_of(s, struct proxy_snapshot, snap);

	struct ctl *ctl = snap->owner;

	if (ctl->loop)
		timer_stop(ctl->loop, &snap->expiry);
	lb_registry_release(&ctl->registry, snap->backends, snap->conf->n_proxies);
	snapshot_free_parts(ctl, snap);
}

/* `hard-stop-after` counts for what a reload leaves behind, too: an old configuration does not live for ever. */
static void snapshot_expired(struct timer *t)
{
	struct proxy_snapshot *snap = container_of(t, struct proxy_snapshot, expiry);
	struct ctl *ctl = snap->owner;

	log_msg(LOG_LVL_WARNING,
		"hard-stop-after reached: ending what is left of configuration %llu",
		(unsigned long long)snap->snap.generation);
	for (unsigned i = 0; i < ctl->n_workers; i++)
		worker_kill_older(ctl->workers[i], snap->snap.generation);
}

static int snapshot_open_bind(struct ctl *ctl, struct proxy_snapshot *snap, struct conf_bind *b,
			      struct err *err)
{
	struct proxy_bind *pb = &snap->binds[snap->n_binds];
	struct tls_server *tls;
	int rc = listen_open(b, ctl->n_workers, &ctl->listen_sockets, &pb->socket, err);

	if (rc != 0)
		return err_prefix(err, rc, "%s:%u:%u: error", b->pos.file, b->pos.line,
				  b->pos.column);
	pb->conf = b;
	/* A socket found among the old ones is linked already. */
	if (pb->socket->users == 1)
		list_push_back(&ctl->listen_sockets, &pb->socket->link);
	snap->n_binds++;
	bind_stats_open(ctl, pb);
	if (!b->is_ssl)
		return 0;
	rc = tls_server_new(snap->certs, b, &snap->conf->global, &tls, err);
	if (rc != 0)
		return err_prefix(err, rc, "%s:%u:%u: error", b->pos.file, b->pos.line,
				  b->pos.column);
	atomic_init(&pb->tls, tls);
	return 0;
}

static int snapshot_open_binds(struct ctl *ctl, struct proxy_snapshot *snap, struct err *err)
{
	unsigned n = snapshot_count_binds(snap->conf);
	struct list *p, *b;

	snap->binds = arena_zalloc(&snap->arena, (n + 1) * sizeof(*snap->binds));
	if (!snap->binds)
		return err_set(err, -ENOMEM, "out of memory");
	list_for_each(p, &snap->conf->proxies) {
		struct conf_proxy *px = list_entry(p, struct conf_proxy, link);

		if (px->mode == CONF_MODE_L4 || px->is_disabled)
			continue;
		list_for_each(b, &px->binds) {
			int rc = snapshot_open_bind(ctl, snap,
						    list_entry(b, struct conf_bind, link), err);

			if (rc != 0)
				return rc;
		}
	}
	return 0;
}

static int snapshot_server_tls(struct proxy_snapshot *snap, struct conf_proxy *px, struct err *err)
{
	struct list *l;

	snap->tls[px->index] = arena_zalloc(&snap->arena,
					    (px->n_servers + 1) * sizeof(struct tls_client *));
	if (!snap->tls[px->index])
		return err_set(err, -ENOMEM, "out of memory");
	list_for_each(l, &px->servers) {
		struct conf_server *srv = list_entry(l, struct conf_server, link);
		struct tls_client *cli;
		int rc;

		if (!srv->needs_tls)
			continue;
		rc = tls_client_new(snap->certs, srv, &snap->conf->global, &cli, err);
		if (rc != 0)
			return err_prefix(err, rc, "%s:%u:%u: error", srv->pos.file, srv->pos.line,
					  srv->pos.column);
		atomic_init(&snap->tls[px->index][srv->pos_in_backend], cli);
	}
	return 0;
}

/* What sockets will be asked for: namespaces, congestion controls. */
static int check_socket(const struct conf_socket *s, const struct conf_pos *pos, struct err *err)
{
	int rc = s->congestion ? net_check_congestion(s->congestion, err) : 0;

	return rc ? err_prefix(err, rc, "%s:%u:%u: error", pos->file, pos->line, pos->column) : 0;
}

static int snapshot_check_sockets(const struct conf_proxy *px, struct err *err)
{
	struct list *l;
	int rc = 0;

	list_for_each(l, &px->binds) {
		const struct conf_bind *b = list_entry(l, struct conf_bind, link);

		if (rc == 0)
			rc = check_socket(&b->sock, &b->pos, err);
	}
	list_for_each(l, &px->servers) {
		const struct conf_server *s = list_entry(l, struct conf_server, link);

		if (rc == 0)
			rc = check_socket(&s->sock, &s->pos, err);
	}
	return rc;
}

/* The first line that names it. */
static const struct conf_pos *netns_pos(const struct conf *c, unsigned number)
{
	struct list *p, *l;

	list_for_each(p, &c->proxies)
		list_for_each(l, &list_entry(p, struct conf_proxy, link)->servers)
			if (list_entry(l, struct conf_server, link)->sock.netns_number == number)
				return &list_entry(l, struct conf_server, link)->pos;
	return NULL;
}

static int open_netns(struct proxy_snapshot *snap, unsigned i, struct err *err)
{
	const struct conf_pos *pos = netns_pos(snap->conf, i + 1);
	int rc;

	snap->netns[i] = -1;
	if (!pos) /* a default-server line that nobody followed */
		return 0;
	rc = netns_open(snap->conf->namespaces[i], &snap->netns[i], err);
	return rc ? err_prefix(err, rc, "%s:%u:%u: error", pos->file, pos->line, pos->column) : 0;
}

static int snapshot_sockets(struct proxy_snapshot *snap, struct err *err)
{
	const struct conf *c = snap->conf;
	struct list *p;
	int rc = 0;

	list_for_each(p, &c->proxies)
		if (rc == 0)
			rc = snapshot_check_sockets(list_entry(p, struct conf_proxy, link), err);
	if (rc || !c->n_namespaces)
		return rc;
	snap->netns = arena_alloc(&snap->arena, c->n_namespaces * sizeof(*snap->netns));
	if (!snap->netns)
		return err_set(err, -ENOMEM, "out of memory");
	while (rc == 0 && snap->n_netns < c->n_namespaces) {
		rc = open_netns(snap, snap->n_netns, err);
		snap->n_netns += rc == 0;
	}
	return rc;
}

static int snapshot_tls(struct ctl *ctl, struct proxy_snapshot *snap, struct err *err)
{
	struct list *p;

	snap->tls = arena_zalloc(&snap->arena, (snap->conf->n_proxies + 1) * sizeof(*snap->tls));
	if (!snap->tls)
		return err_set(err, -ENOMEM, "out of memory");
	list_for_each(p, &snap->conf->proxies) {
		int rc = snapshot_server_tls(snap, list_entry(p, struct conf_proxy, link), err);

		if (rc != 0)
			return rc;
	}
	return 0;
}

int ctl_build_snapshot(struct ctl *ctl, struct conf *conf, struct proxy_snapshot **ret_snap,
		       struct err *err)
{
	struct proxy_snapshot *snap = mem_zalloc(sizeof(*snap));
	int rc;

	if (!snap) {
		conf_free(conf);
		return err_set(err, -ENOMEM, "out of memory");
	}
	snap->owner = ctl;
	arena_init_mapped(&snap->arena, 16384);
	snap->snap.destroy = snapshot_destroy;
	timer_init(&snap->expiry, snapshot_expired);
	snap->conf = conf;
	rc = cert_store_new(ctl->current ? ctl->current->certs : NULL, &snap->certs, err);
	if (rc == 0)
		rc = cert_store_configure(snap->certs, conf, err);
	if (rc == 0)
		rc = snapshot_sockets(snap, err);
	if (rc == 0)
		rc = snapshot_open_binds(ctl, snap, err);
	if (rc == 0)
		rc = snapshot_tls(ctl, snap, err);
	if (rc == 0)
		rc = stick_registry_prepare(&ctl->stick, conf, err);
	if (rc == 0)
		rc = lb_registry_prepare(&ctl->registry, conf, &snap->arena, &snap->backends, err);
	if (rc != 0) {
		snapshot_free_parts(ctl, snap);
		return rc;
	}
	cert_store_freeze(snap->certs);
	*ret_snap = snap;
	return 0;
}

/* Limits per second that workers share: those of the file, unless the runtime API has set them. */
static void apply_rates(struct proxy_shared *sh, const struct conf_global *g)
{
	rate_gate_apply(&sh->rates[PROXY_RATE_CONNS], g->maxconnrate);
	rate_gate_apply(&sh->rates[PROXY_RATE_SESSIONS], g->maxsessrate);
	rate_gate_apply(&sh->rates[PROXY_RATE_TLS], g->maxsslrate);
	atomic_store(&sh->max_tls, g->maxsslconn);
	if (sh->comp_applied != g->maxcomprate)
		atomic_store(&sh->comp_limit, g->maxcomprate);
	sh->comp_applied = g->maxcomprate;
}

/*
 * What a configuration held outside its arenas leaves holes in the heap, whose pages glibc keeps, and when many were alive
 * at once, as with reloads that come faster than workers let go, it keeps all of them. TLS contexts are made and freed by
 * this thread, more of them than its handshakes with checked servers need blocks. All this walks the heap: not for each
 * of many reloads.
 */
void ctl_trim_memory(struct ctl *ctl)
{
	struct snapshot *alive[SNAPSHOT_GENERATIONS];

	if (!ctl->is_trim_wanted || snapshot_list(&ctl->hub, alive) != 1)
		return;
	ctl->is_trim_wanted = false;
	net_tls_memory_trim();
	malloc_trim(0);
}

int ctl_publish(struct ctl *ctl, struct proxy_snapshot *snap, struct err *err)
{
	uint64_t hard_stop = snap->conf->global.hard_stop_after;
	int rc = snapshot_publish(&ctl->hub, &snap->snap);

	if (rc != 0) {
		lb_registry_abort(&ctl->registry, snap->conf, snap->backends);
		snapshot_free_parts(ctl, snap);
		return err_set(err, rc,
			       "%d configurations are still in use by old connections ('show "
			       "snapshots' tells which); "
			       "try again when one has ended",
			       SNAPSHOT_GENERATIONS);
	}
	lb_registry_commit(&ctl->registry, snap->conf, snap->backends);
	stick_registry_commit(&ctl->stick, snap->conf,
			      ctl->loop ? loop_now(ctl->loop) / 1000000 : 0);
	apply_rates(&ctl->shared, &snap->conf->global);
	conf_set_proc_vars(snap->conf, ctl->loop ? loop_wall(ctl->loop) : 0);
	ctl->is_trim_wanted = true;
	if (ctl->current && ctl->workers && hard_stop)
		timer_start(ctl->loop, &ctl->current->expiry, hard_stop);
	ctl->current = snap;
	ctl_drop_tls_changes(ctl); /* they were about a store that is on its way out */
	if (!ctl->workers)
		return 0;
	for (unsigned i = 0; i < ctl->n_workers; i++)
		if (ctl->workers[i])
			worker_news(ctl->workers[i]);
	/* In the same mailboxes behind the news: then the workers have left the old listeners. */
	quiesce_after(&ctl->registry, ctl_shut_listeners, ctl);
	return 0;
}

static bool snapshot_has_socket(const struct proxy_snapshot *snap, const struct listen_socket *ls)
{
	for (unsigned i = 0; i < snap->n_binds; i++)
		if (snap->binds[i].socket == ls)
			return true;
	return false;
}

void ctl_shut_listeners(void *arg)
{
	struct ctl *ctl = arg;
	struct list *pos, *tmp;

	if (!ctl->current)
		return;
	list_for_each_safe(pos, tmp, &ctl->listen_sockets) {
		struct listen_socket *ls = list_entry(pos, struct listen_socket, link);

		if (ctl->phase == CTL_STOPPING || !snapshot_has_socket(ctl->current, ls))
			listen_shut(ls);
	}
}

/* One finding; the check goes on. */
static int check_said(const struct conf_pos *pos, const struct err *err)
{
	fprintf(stderr, "%s:%u:%u: error: %s\n", pos->file, pos->line, pos->column, err->text);
	return -EINVAL;
}

static int check_proxy_tls(struct cert_store *certs, struct conf *conf, struct conf_proxy *px)
{
	struct tls_server *front;
	struct tls_client *back;
	struct err err = { "" };
	struct list *l;
	int rc = 0;

	list_for_each(l, &px->binds) {
		struct conf_bind *b = list_entry(l, struct conf_bind, link);

		if (b->is_ssl && tls_server_new(certs, b, &conf->global, &front, &err) != 0)
			rc = check_said(&b->pos, &err);
	}
	list_for_each(l, &px->servers) {
		struct conf_server *srv = list_entry(l, struct conf_server, link);

		if (srv->needs_tls && tls_client_new(certs, srv, &conf->global, &back, &err) != 0)
			rc = check_said(&srv->pos, &err);
	}
	return rc;
}

int ctl_check_tls(struct conf *conf)
{
	struct cert_store *certs;
	struct err err = { "" };
	struct list *p;
	int rc;

	net_tls_global_init();
	rc = cert_store_new(NULL, &certs, &err);
	if (rc != 0) {
		fprintf(stderr, "headgated: %s\n", err.text);
		return rc;
	}
	rc = cert_store_configure(certs, conf, &err);
	if (rc != 0)
		fprintf(stderr, "headgated: %s\n", err.text);
	list_for_each(p, &conf->proxies)
		if (check_proxy_tls(certs, conf, list_entry(p, struct conf_proxy, link)) != 0)
			rc = -EINVAL;
	cert_store_free(certs);
	return rc;
}
