/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits in the kernel: of sources (words of `control`) and of services (rows of `service_guard`, prefixes in
 * `allow4` and `allow6`). The configuration says them, the runtime API may change rates and counts until the next
 * reload. Control thread.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "dp/dp_priv.h"

/* Jiffies as the program counts them, for `rate` per second; 0: no limit. */
static uint32_t step_of(const struct dp *dp, const struct conf_xdp_limit *l)
{
	uint64_t step = l->rate ? ((uint64_t)dp->t.hz << HG_LIMIT_FRACTION) / l->rate : 0;

	return (uint32_t)(step + (l->rate && !step));
}

/* --- sources ------------------------------------------------------------------------------------------------ */

void dp_guard_seed(struct hg_control *c)
{
	/* Once for as long as the maps live: what is kept by source is found by it. */
	if (!c->source_seed && getrandom(&c->source_seed, sizeof(c->source_seed), 0) < 0)
		c->source_seed = dp_now_ns();
}

/* Words that a packet may read between two of our writes make a limit that is neither old nor new for a moment. */
void dp_guard_source_rate(struct dp *dp, enum hg_limit_kind kind, const struct conf_xdp_limit *l)
{
	struct hg_limit *to = &dp->t.control->limits[kind];
	uint32_t step = step_of(dp, l);

	dp->source_limits[kind] = *l;
	__atomic_store_n(&to->window, step ? (l->burst - 1) * step : 0, __ATOMIC_RELEASE);
	__atomic_store_n(&to->step, step, __ATOMIC_RELEASE);
}

int dp_guard_source_conns(struct dp *dp, uint32_t n, struct err *err)
{
	if (!dp_live_start(dp) && n)
		return err_set(err, -EOPNOTSUPP,
			       "'xdp guard max-conn': the kernel cannot count connections: %s",
			       dp->live.why_not);
	__atomic_store_n(&dp->t.control->source_conns, n, __ATOMIC_RELEASE);
	return 0;
}

static const char *limited_section(const struct conf *c)
{
	struct list *l;

	list_for_each(l, &c->proxies)
		if (list_entry(l, struct conf_proxy, link)->guard.max_conn)
			return list_entry(l, struct conf_proxy, link)->name;
	return NULL;
}

int dp_guard_limits(struct dp *dp, const struct conf *c, struct err *err)
{
	int rc;

	dp_guard_seed(dp->t.control);
	rc = dp_guard_source_conns(dp, c->global.xdp_max_conn, err);
	if (rc == 0 && !dp->live.is_on && limited_section(c))
		rc = err_set(
			err, -EOPNOTSUPP,
			"section %s: 'xdp guard max-conn': the kernel cannot count connections: %s",
			limited_section(c), dp->live.why_not);
	for (unsigned i = 0; i < HG_LIMIT_COUNT && rc == 0; i++)
		dp_guard_source_rate(dp, i, &c->global.xdp_limits[i]);
	__atomic_store_n(&dp->t.control->watch, c->global.xdp_watch, __ATOMIC_RELEASE);
	dp->guard_epoch++; /* services follow with the next dp_sync() */
	return rc;
}

/* --- prefixes that may use a service -------------------------------------------------------------------- */

union allow_key {
	struct hg_allow4_key v4;
	struct hg_allow6_key v6;
};

static int allow_fd(const struct dp *dp, bool is_v6)
{
	return dp->maps[is_v6 ? DP_MAP_ALLOW6 : DP_MAP_ALLOW4].fd;
}

static union allow_key allow_key(const struct dp_service *svc, const struct conf_prefix *p)
{
	union allow_key k = { .v6 = { .bits = 32u + p->bits, .service = hg_be32(svc->row.id) } };

	if (p->is_v6)
		memcpy(k.v6.addr, p->addr, 16);
	else
		memcpy(&k.v4.addr, p->addr, 4);
	return k;
}

static int allow_change(struct dp *dp, const struct dp_service *svc, const struct conf_prefix *p,
			bool is_in)
{
	union allow_key k = allow_key(svc, p);
	uint32_t one = 1;

	if (is_in)
		return bpf_map_update_elem(allow_fd(dp, p->is_v6), &k, &one, BPF_ANY);
	return bpf_map_delete_elem(allow_fd(dp, p->is_v6), &k);
}

/* What an earlier process had for this id. */
static void allow_forget(struct dp *dp, const struct dp_service *svc, bool is_v6)
{
	union allow_key k, next;
	bool has = false;

	while (bpf_map_get_next_key(allow_fd(dp, is_v6), has ? &k : NULL, &next) == 0) {
		has = next.v4.service != hg_be32(svc->row.id) ||
		      bpf_map_delete_elem(allow_fd(dp, is_v6), &next) != 0;
		k = next; /* after a deletion the walk begins again */
	}
}

/* Both lists are in order. What is new first: who may use the service before and after is never kept out. */
static int allow_diff(struct dp *dp, struct dp_service *svc, const struct conf_prefix *now,
		      unsigned n, bool is_adding)
{
	unsigned i = 0, j = 0;

	while (i < svc->n_allow || j < n) {
		int d = i == svc->n_allow ? 1
			: j == n	  ? -1
					  : conf_prefix_compare(&svc->allow[i], &now[j]);
		int rc = 0;

		if (d < 0 && !is_adding)
			(void)allow_change(dp, svc, &svc->allow[i], false);
		else if (d > 0 && is_adding)
			rc = allow_change(dp, svc, &now[j], true);
		if (rc != 0)
			return rc;
		i += d <= 0;
		j += d >= 0;
	}
	return 0;
}

static int allow_follow(struct dp *dp, struct dp_service *svc, const struct conf_guard *g)
{
	struct conf_prefix *copy = NULL;
	int rc;

	if (!svc->is_allow_known) {
		allow_forget(dp, svc, false);
		allow_forget(dp, svc, true);
		svc->is_allow_known = true;
	}
	if (g->n_allow) {
		copy = mem_alloc(g->n_allow * sizeof(*copy));
		if (!copy)
			return -ENOMEM;
		memcpy(copy, g->allow, g->n_allow * sizeof(*copy));
	}
	rc = allow_diff(dp, svc, g->allow, g->n_allow, true);
	if (rc == 0)
		rc = allow_diff(dp, svc, g->allow, g->n_allow, false);
	if (rc != 0) {
		mem_free(copy);
		svc->is_allow_known = false; /* some are in, some are not */
		return rc;
	}
	mem_free(svc->allow);
	svc->allow = copy;
	svc->n_allow = g->n_allow;
	return 0;
}

void dp_guard_drop(struct dp *dp, struct dp_service *svc)
{
	for (unsigned i = 0; i < svc->n_allow; i++)
		(void)allow_change(dp, svc, &svc->allow[i], false);
	mem_free(svc->allow);
	svc->allow = NULL;
	svc->n_allow = 0;
}

/* --- services --------------------------------------------------------------------------------------------- */

/* The row says it before the service asks for it, and the service no longer asks before the row is empty. */
static void publish(struct dp *dp, struct dp_service *svc, uint32_t flags)
{
	struct hg_service_guard *g = dp->maps[DP_MAP_SERVICE_GUARD].mem;
	uint32_t step = step_of(dp, &svc->syn_rate);
	uint8_t wanted = flags || step ? svc->row.flags | HG_SVC_GUARDED
				       : svc->row.flags & (uint8_t)~HG_SVC_GUARDED;

	g += svc->row.id;
	__atomic_store_n(&g->window, step ? (svc->syn_rate.burst - 1) * step : 0, __ATOMIC_RELEASE);
	__atomic_store_n(&g->step, step, __ATOMIC_RELEASE);
	if (svc->row.mode == HG_MODE_LOCAL)
		__atomic_store_n(&dp->nat.live_services[svc->row.id].limit, svc->max_conn,
				 __ATOMIC_RELEASE);
	__atomic_store_n(&g->flags, flags, __ATOMIC_RELEASE);
	if (wanted != svc->row.flags)
		dp->are_services_dirty = true;
	svc->row.flags = wanted;
}

static uint32_t flags_of(const struct dp_service *svc)
{
	return (svc->has_allow ? HG_GUARD_ALLOW : 0) | (svc->max_conn ? HG_GUARD_CONNS : 0);
}

int dp_guard_service(struct dp *dp, const struct conf_proxy *px, struct dp_service *svc,
		     struct err *err)
{
	const struct conf_guard *g = &px->guard;
	int rc;

	/* Applied already, and perhaps changed by hand since. Tests have no such maps. */
	if (svc->guard_epoch == dp->guard_epoch + 1 || !dp->maps[DP_MAP_SERVICE_GUARD].mem)
		return 0;
	if (!g->has_allow && svc->has_allow)
		publish(dp, svc, flags_of(svc) & ~(uint32_t)HG_GUARD_ALLOW);
	rc = allow_follow(dp, svc, g);
	if (rc != 0)
		return err_set(err, rc, "section %s: 'xdp allow': %s", px->name,
			       rc == -ENOSPC ? "no room for more prefixes" : strerror(-rc));
	svc->has_allow = g->has_allow;
	svc->max_conn = g->max_conn;
	svc->syn_rate = g->syn_rate;
	publish(dp, svc, flags_of(svc));
	svc->guard_epoch = dp->guard_epoch + 1;
	return 0;
}

int dp_guard_section(struct dp *dp, const char *name, const struct conf_xdp_limit *syn_rate,
		     const uint32_t *max_conn, struct err *err)
{
	unsigned n = 0;

	if (max_conn && *max_conn && !dp_live_start(dp))
		return err_set(err, -EOPNOTSUPP, "the kernel cannot count connections: %s",
			       dp->live.why_not);
	for (uint32_t id = 0; dp->services && id < dp->t.max_services; id++) {
		struct dp_service *svc = &dp->services[id];

		if (!svc->is_used || !svc->name || strcmp(svc->name, name) != 0 ||
		    svc->row.mode == HG_MODE_ADDR)
			continue;
		if (max_conn && svc->row.mode != HG_MODE_LOCAL)
			return err_set(err, -EINVAL,
				       "connections of '%s' are not this host's: 'max-conn' is for "
				       "sections of the L7 tier",
				       name);
		if (syn_rate)
			svc->syn_rate = *syn_rate;
		if (max_conn)
			svc->max_conn = *max_conn;
		publish(dp, svc, flags_of(svc));
		n++;
	}
	if (!n)
		return err_set(err, -ENOENT, "no section '%s' has a service here", name);
	return dp->are_services_dirty ? dp_services_write(dp, err) : 0;
}

void dp_guard_show(const struct dp *dp, struct dp_guard_info *ret)
{
	*ret = (struct dp_guard_info){ .max_conn = dp->t.control ? dp->t.control->source_conns
								 : 0 };
	memcpy(ret->limits, dp->source_limits, sizeof(ret->limits));
}
