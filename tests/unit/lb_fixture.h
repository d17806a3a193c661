/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A backend made by hand, for the tests of lb/, and doubles of the few functions of net/ that lb/ calls.
 * Servers are s1, s2, … of backend "be".
 */
#ifndef TESTS_UNIT_LB_FIXTURE_H
#define TESTS_UNIT_LB_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "lb/lb.h"

#define FX_MAX_SERVERS 64

/* --- doubles of net/ --- */

static unsigned fx_closed, fx_idled;
static bool fx_is_reusable = true;

void conn_close(struct conn *c, bool reset)
{
	(void)reset;
	fx_closed++;
	c->state = CONN_CLOSED;
}

void conn_idle(struct conn *c)
{
	(void)c;
	fx_idled++;
}

bool conn_is_reusable(struct conn *c)
{
	return fx_is_reusable && !c->peer_closed;
}

/* --- configuration and registry --- */

/* One section with its servers; a configuration may have several. */
struct fx_section {
	struct conf_proxy px;
	struct conf_server cs[FX_MAX_SERVERS];
	char names[FX_MAX_SERVERS][16];
};

struct fx {
	struct conf conf;
	struct fx_section s;
	struct arena arena;
	struct lb_registry r;
	struct stats_area services, backends_area;
	struct lb_backend **backends;
	struct lb_backend *be; /* of s */
	struct lb_waker waker;
	/* wakes not delivered yet */
	struct {
		struct server *s;
		unsigned worker;
	} *wakes;
	unsigned max_wakes;
	unsigned n_wakes;
	/* calls that wait until every worker has passed an iteration: fx_deliver() */
	struct {
		void (*call)(void *arg);
		void *arg;
	} *calls;
	unsigned n_calls;
};

static inline void fx_conf_init(struct conf *c)
{
	memset(c, 0, sizeof(*c));
	list_init(&c->proxies);
}

static inline void fx_section_init(struct fx_section *s, struct conf *c, const char *name,
				   unsigned n)
{
	memset(s, 0, sizeof(*s));
	list_init(&s->px.servers);
	s->px.name = (char *)(uintptr_t)name;
	s->px.conf = c;
	s->px.caps = CONF_CAP_BACKEND;
	s->px.balance.random_draws = 2;
	s->px.index = c->n_proxies++;
	s->px.id = s->px.index + 2;
	list_push_back(&c->proxies, &s->px.link);
	for (unsigned i = 0; i < n; i++) {
		struct conf_server *cs = &s->cs[i];

		snprintf(s->names[i], sizeof(s->names[i]), "s%u", i + 1);
		cs->name = s->names[i];
		cs->proxy = &s->px;
		cs->id = i + 1;
		cs->pos_in_backend = i;
		cs->weight = 1;
		cs->rise = 2;
		cs->fall = 3;
		cs->pool_max_conn = UINT32_MAX;
		cs->ep.kind = ENDPOINT_IP;
		cs->ep.addr.in.sin_family = AF_INET;
		cs->ep.addr.in.sin_addr.s_addr = htonl(0x0a000001 + i);
		cs->ep.addr.in.sin_port = htons(80);
		list_push_back(&s->px.servers, &cs->link);
		s->px.n_servers++;
	}
}

static inline void fx_wake(struct lb_waker *wk, unsigned to, struct server *s)
{
	struct fx *f = container_of(wk, struct fx, waker);

	if (atomic_exchange(&s->w[to].wake_pending, true))
		return;
	if (f->n_wakes == f->max_wakes) {
		f->max_wakes = f->max_wakes ? 2 * f->max_wakes : 64;
		f->wakes = realloc(f->wakes, f->max_wakes * sizeof(f->wakes[0]));
		assert_non_null(f->wakes);
	}
	f->wakes[f->n_wakes].s = s;
	f->wakes[f->n_wakes++].worker = to;
}

static inline void fx_after_quiescence(struct lb_registry *r, void (*call)(void *arg), void *arg)
{
	struct fx *f = r->owner;

	f->calls = realloc(f->calls, (f->n_calls + 1) * sizeof(f->calls[0]));
	assert_non_null(f->calls);
	f->calls[f->n_calls].call = call;
	f->calls[f->n_calls++].arg = arg;
}

/* Delivers wakes until there are none, then what waited for that; returns how many wakes. */
static inline unsigned fx_deliver(struct fx *f)
{
	unsigned n = 0;

	/* Delivering may wake again: those come behind. */
	for (; n < f->n_wakes; n++) {
		lb_serve_queue(f->wakes[n].s, f->wakes[n].worker);
		assert_in_range(n, 0, 100000);
	}
	f->n_wakes = 0;
	for (unsigned i = 0; i < f->n_calls; i++)
		f->calls[i].call(f->calls[i].arg);
	f->n_calls = 0;
	return n;
}

static inline void fx_registry_init(struct fx *f, unsigned n_workers, unsigned n_ids)
{
	size_t size = (size_t)n_ids * n_workers * sizeof(struct hg_l7_counters);

	arena_init(&f->arena, 4096);
	stats_area_init(&f->services, aligned_alloc(64, size), 0, n_workers);
	f->services.n_ids = n_ids;
	memset(f->services.rows, 0, size);
	stats_area_init(&f->backends_area, aligned_alloc(64, size), 0, n_workers);
	f->backends_area.n_ids = n_ids;
	memset(f->backends_area.rows, 0, size);
	lb_registry_init(&f->r, n_workers, &f->services, &f->backends_area);
	f->r.owner = f;
	f->r.after_quiescence = fx_after_quiescence;
	f->waker.wake = fx_wake;
	lb_set_waker(&f->r, &f->waker);
}

static inline void fx_commit(struct fx *f)
{
	struct err err;

	assert_int_equal(lb_registry_prepare(&f->r, &f->conf, &f->arena, &f->backends, &err), 0);
	lb_registry_commit(&f->r, &f->conf, f->backends);
	f->be = f->backends[0];
}

/* One backend of n servers; change f->s, then fx_commit(). */
static inline void fx_init(struct fx *f, unsigned n_workers, unsigned n)
{
	memset(f, 0, sizeof(*f));
	fx_conf_init(&f->conf);
	fx_section_init(&f->s, &f->conf, "be", n);
	fx_registry_init(f, n_workers, n + 16);
}

static inline void fx_registry_fini(struct fx *f)
{
	fx_deliver(f);
	free(f->calls);
	free(f->wakes);
	lb_registry_fini(&f->r);
	free(f->services.rows);
	free(f->backends_area.rows);
	arena_free(&f->arena);
}

static inline void fx_fini(struct fx *f)
{
	fx_deliver(f);
	lb_registry_release(&f->r, f->backends, f->conf.n_proxies);
	fx_deliver(f);
	fx_registry_fini(f);
}

static inline struct server *fx_srv(struct fx *f, unsigned i)
{
	return f->be->servers[i];
}

static inline struct lb_request fx_rq(struct fx *f)
{
	return (struct lb_request){ .px = &f->s.px };
}

#endif
