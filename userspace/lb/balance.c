/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Picking a server. Workers; no locks, no memory: one read of the published table, then arithmetic. The
 * table may be older than a server's state by a moment, so whatever it says is checked before a slot is taken.
 */
#include "lb/lb_priv.h"

/* One call of lb_pick(). */
struct pick {
	struct lb_backend *be;
	const struct lb_request *rq;
	const struct lb_table *t;
};

/* A server that was added has a line of its own, and no other, even of its name. */
static bool is_of_line(const struct server *s, const struct conf_server *cs)
{
	return s->own ? s->own->line == cs : strcmp(s->name, cs->name) == 0;
}

/* The first server of a file whose line is not before `pos`. */
static unsigned find_line(const struct lb_table *t, uint32_t pos)
{
	unsigned lo = 0, hi = t->first_added;

	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if (t->lines[mid] < pos)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct server *lb_server_of(struct lb_backend *be, const struct conf_server *cs)
{
	const struct lb_table *t = atomic_load_explicit(&be->table, memory_order_acquire);
	uint32_t pos = cs->pos_in_backend;
	unsigned i = 0;

	if (!t)
		return NULL;
	if (likely(pos < t->n_all && is_of_line(t->all[pos], cs)))
		return t->all[pos];
	/* `del server`: lines behind moved up. */
	if (t->px == cs->proxy) {
		i = find_line(t, pos);
		if (i < t->first_added && t->lines[i] == pos && is_of_line(t->all[i], cs))
			return t->all[i];
		i = t->first_added;
	}
	/* A reload moved or removed it. */
	for (; i < t->n_all; i++)
		if (is_of_line(t->all[i], cs))
			return t->all[i];
	return NULL;
}

struct server *lb_server_at(struct lb_backend *be, unsigned pos)
{
	const struct lb_table *t = atomic_load_explicit(&be->table, memory_order_acquire);

	return t && pos < t->n_all ? t->all[pos] : NULL;
}

struct server *lb_added_server(struct lb_backend *be, unsigned *pos)
{
	const struct lb_table *t = atomic_load_explicit(&be->table, memory_order_acquire);

	if (!t)
		return NULL;
	if (*pos < t->first_added)
		*pos = t->first_added;
	return *pos < t->n_all ? t->all[*pos] : NULL;
}

bool lb_has_server(struct lb_backend *be, const struct server *s)
{
	const struct lb_table *t = atomic_load_explicit(&be->table, memory_order_acquire);

	for (unsigned i = 0; t && i < t->n_all; i++)
		if (t->all[i] == s)
			return true;
	return false;
}

/* xorshift64*: the high half of the product is good enough for dice. */
static uint32_t draw(const struct pick *p)
{
	uint64_t *state = &p->be->w[p->rq->worker].prng, x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return (uint32_t)(x * 0x2545f4914f6cdd1dull >> 32);
}

/* A slot, unless the server is full or somebody already waits for one. */
static bool take(const struct pick *p, struct server *s)
{
	uint32_t limit = server_limit(p->be, s, NULL);

	if (limit && atomic_load(&s->n_waiting))
		return false;
	return server_try_take(s, limit, p->rq->worker);
}

static bool is_candidate(const struct pick *p, const struct server *s)
{
	return s != p->rq->avoid && server_is_eligible(s);
}

static bool try_pick(const struct pick *p, struct server *s, struct server **ret_srv)
{
	if (!is_candidate(p, s) || !take(p, s))
		return false;
	*ret_srv = s;
	return true;
}

/* Last resort of those that may go anywhere: from `start` on, whoever has a slot. */
static enum lb_result pick_any(const struct pick *p, unsigned start, struct server **ret_srv)
{
	const struct lb_table *t = p->t;
	bool is_any_up = false;

	for (unsigned i = 0; i < t->n; i++) {
		struct server *s = t->entries[(start + i) % t->n].srv;

		if (try_pick(p, s, ret_srv))
			return LB_PICKED;
		is_any_up |= server_is_eligible(s);
	}
	if (!is_any_up)
		return LB_NONE;
	if (p->rq->avoid && server_may_serve_backend(p->rq->avoid) && take(p, p->rq->avoid)) {
		*ret_srv = p->rq->avoid;
		return LB_PICKED;
	}
	return LB_QUEUE_BACKEND;
}

/* roundrobin, static-rr, and hashes without a key. */
static enum lb_result pick_round_robin(const struct pick *p, struct server **ret_srv)
{
	const struct lb_table *t = p->t;
	uint32_t n = t->n_places ? t->n_places : t->n;
	uint32_t pos = atomic_fetch_add_explicit(&p->be->rr, 1, memory_order_relaxed) % n;

	for (uint32_t i = 0; i < n && i < 2 * t->n; i++) {
		uint32_t place = (pos + i) % n;
		struct server *s = t->entries[t->n_places ? t->places[place] : place].srv;

		if (!try_pick(p, s, ret_srv))
			continue;
		/* Those passed over have had their turn: else their neighbour would get it twice. */
		if (i)
			atomic_fetch_add_explicit(&p->be->rr, i, memory_order_relaxed);
		return LB_PICKED;
	}
	return pick_any(p, pos % t->n, ret_srv);
}

/* Fewest streams per weight; equal ones in turn. */
static enum lb_result pick_leastconn(const struct pick *p, struct server **ret_srv)
{
	const struct lb_table *t = p->t;
	uint32_t start = atomic_fetch_add_explicit(&p->be->rr, 1, memory_order_relaxed) % t->n;

	/* Another worker may fill the best one meanwhile: then the next best, and at last anyone. */
	for (int tries = 0; tries < 3; tries++) {
		const struct lb_entry *best = NULL;
		uint64_t best_cur = 0;

		for (unsigned i = 0; i < t->n; i++) {
			const struct lb_entry *e =
				&t->entries[start + i < t->n ? start + i : start + i - t->n];
			uint64_t cur = atomic_load_explicit(&e->srv->cur, memory_order_relaxed);
			uint32_t limit;

			if (best && cur * best->weight >= best_cur * e->weight)
				continue;
			limit = server_limit(p->be, e->srv, NULL);
			if (!is_candidate(p, e->srv) ||
			    (limit && (cur >= limit || atomic_load(&e->srv->n_waiting))))
				continue;
			best = e;
			best_cur = cur;
			if (cur == 0)
				break;
		}
		if (!best)
			break;
		if (try_pick(p, best->srv, ret_srv))
			return LB_PICKED;
	}
	return pick_any(p, start, ret_srv);
}

/* Proportional to weight. */
static const struct lb_entry *draw_entry(const struct pick *p)
{
	const struct lb_table *t = p->t;
	uint32_t r = draw(p), lo = 0, hi = t->n;

	if (t->has_equal_weights)
		return &t->entries[(uint64_t)r * t->n >> 32];
	r = (uint32_t)((uint64_t)r * t->total >> 32);
	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (t->entries[mid].before <= r)
			lo = mid;
		else
			hi = mid;
	}
	return &t->entries[lo];
}

static bool is_less_loaded(const struct lb_entry *a, const struct lb_entry *b)
{
	uint64_t cur_a = atomic_load_explicit(&a->srv->cur, memory_order_relaxed);
	uint64_t cur_b = atomic_load_explicit(&b->srv->cur, memory_order_relaxed);

	return cur_a * b->weight < cur_b * a->weight;
}

/*
 * Expected wait: peak latency times those in line. A server without a measurement is as good as the best
 * until it has work, then as bad as the worst until it answered once.
 */
static double ewma_cost(const struct lb_entry *e)
{
	uint64_t ns = atomic_load_explicit(&e->srv->ewma_ns, memory_order_relaxed);
	uint32_t cur = atomic_load_explicit(&e->srv->cur, memory_order_relaxed);

	if (!ns)
		return cur ? 1e18 * cur : 0;
	return (double)ns * (cur + 1.0) / e->weight;
}

static bool is_cheaper(const struct lb_entry *a, const struct lb_entry *b)
{
	return ewma_cost(a) < ewma_cost(b);
}

/* The best of `random_draws` dice. */
static enum lb_result pick_random(const struct pick *p, struct server **ret_srv)
{
	unsigned draws = p->rq->px->balance.random_draws;
	bool (*is_better)(const struct lb_entry *, const struct lb_entry *) = is_less_loaded;
	const struct lb_entry *best = NULL;

	if (p->t->algo == BALANCE_PEAK_EWMA) {
		is_better = is_cheaper;
		draws = draws < 2 ? 2 : draws;
	}
	do {
		const struct lb_entry *e = draw_entry(p);

		if (is_candidate(p, e->srv) && (!best || is_better(e, best)))
			best = e;
	} while (draws-- > 1);
	if (best && try_pick(p, best->srv, ret_srv))
		return LB_PICKED;
	return pick_any(p, draw(p) % p->t->n, ret_srv);
}

void server_observe_latency(struct server *s, uint64_t ns)
{
	uint64_t old = atomic_load_explicit(&s->ewma_ns, memory_order_relaxed);
	/* Up at once, down by an eighth: a slow answer is news, a fast one is not. */
	uint64_t now = ns >= old ? ns : old - (old - ns) / 8;

	/* A concurrent sample may win; the next one comes soon. */
	atomic_store_explicit(&s->ewma_ns, now ? now : 1, memory_order_relaxed);
}

/* --- hashing ------------------------------------------------------------------------------------- */

static bool request_hash(const struct pick *p, uint32_t *ret_hash)
{
	const struct lb_request *rq = p->rq;
	const struct conf_balance_params *b = &rq->px->balance;
	struct str key = STR_NULL;

	if (rq->has_hash) {
		*ret_hash = (uint32_t)rq->hash;
		return true;
	}
	switch (b->algo) {
	case BALANCE_SOURCE:
	case BALANCE_MAGLEV: /* unless the caller computed something better */
		if (!rq->src ||
		    (rq->src->sa.sa_family != AF_INET && rq->src->sa.sa_family != AF_INET6))
			return false;
		*ret_hash = lb_hash_addr(rq->src);
		if (b->has_avalanche || b->algo == BALANCE_MAGLEV)
			*ret_hash = lb_hash_avalanche(*ret_hash);
		return true;
	case BALANCE_URI:
		key = rq->uri.p ? lb_uri_key(b, rq->uri) : STR_NULL;
		break;
	case BALANCE_HDR:
		/* An absent or empty field hashes nothing. */
		if (rq->hdr.len)
			key = b->hdr_use_domain_only ? lb_domain_key(rq->hdr) : rq->hdr;
		break;
	default:
		key = rq->hdr;
		break;
	}
	if (!key.p)
		return false;
	*ret_hash = lb_hash_key(b->hash_func, b->has_avalanche, key);
	return true;
}

/* Index of the point nearest to `h`: the one before wins a tie. */
static uint32_t nearest_point(const struct lb_table *t, uint32_t h)
{
	uint32_t lo = 0, hi = t->n_points, next, prev;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (t->points[mid].key < h)
			lo = mid + 1;
		else
			hi = mid;
	}
	next = lo < t->n_points ? lo : 0;
	prev = next ? next - 1 : t->n_points - 1;
	/* Distances go round the ring, as unsigned arithmetic does. */
	return h - t->points[prev].key <= t->points[next].key - h ? prev : next;
}

/* hash-balance-factor: at most that many percent of the average load (Mirrokni et al., arXiv:1608.01350). */
static bool is_within_factor(const struct pick *p, const struct lb_entry *e)
{
	uint64_t factor = p->rq->px->balance.hash_balance_factor;
	uint64_t slots, own, rest, total = p->t->total;

	if (!factor)
		return true;
	slots = ((atomic_load_explicit(&p->be->cur, memory_order_relaxed) + 1ull) * factor + 99) /
		100;
	rest = slots % total;
	own = e->weight * (slots / total);
	/* What does not divide is spread in proportion too. */
	own += (e->before + e->weight) * rest / total - e->before * rest / total;
	return atomic_load_explicit(&e->srv->cur, memory_order_relaxed) < (own ? own : 1);
}

/* The i-th choice for `h`: the server it belongs to, then its neighbours. */
static const struct lb_entry *hash_entry(const struct lb_table *t, uint32_t h, uint32_t first,
					 uint32_t i)
{
	if (t->n_points)
		return &t->entries[t->points[(first + i) % t->n_points].entry];
	if (t->n_slots)
		return &t->entries[t->slots[(h % t->n_slots + i) % t->n_slots] - 1];
	return &t->entries[t->places[(h % t->n_places + i) % t->n_places]];
}

/* hash-preserve-affinity: the server that the key belongs to is full. */
static enum lb_result wait_or_next(const struct pick *p, uint32_t h, uint32_t first, uint32_t n,
				   struct server *full, struct server **ret_srv)
{
	uint32_t maxqueue = atomic_load_explicit(&full->maxqueue, memory_order_relaxed);
	bool has_room = !maxqueue || atomic_load(&full->n_waiting) < maxqueue;
	uint8_t affinity = p->rq->px->balance.hash_affinity;

	if (affinity == HASH_AFFINITY_MAXCONN ||
	    (affinity == HASH_AFFINITY_MAXQUEUE && !has_room)) {
		/* In the order of the hash, so that keys of a full server stay together as far as they can. */
		for (uint32_t i = 0; i < n; i++) {
			struct server *s = hash_entry(p->t, h, first, i)->srv;

			if (s != full && try_pick(p, s, ret_srv))
				return LB_PICKED;
		}
	}
	*ret_srv = full;
	return has_room ? LB_QUEUE_SERVER : LB_NONE;
}

static enum lb_result pick_hash(const struct pick *p, struct server **ret_srv)
{
	const struct lb_table *t = p->t;
	uint32_t n = t->n_points ? t->n_points : t->n_slots ? t->n_slots : t->n_places;
	const struct lb_entry *chosen = NULL, *loaded = NULL;
	uint32_t h, first;

	if (!request_hash(p, &h))
		return pick_round_robin(p, ret_srv);
	first = t->n_points ? nearest_point(t, h) : 0;
	for (uint32_t i = 0; i < n && !chosen; i++) {
		const struct lb_entry *e = hash_entry(t, h, first, i);

		if (!server_is_eligible(e->srv))
			continue;
		if (e->srv != p->rq->avoid && is_within_factor(p, e))
			chosen = e;
		else if (!loaded || loaded->srv == p->rq->avoid)
			loaded = e;
	}
	if (!chosen)
		chosen = loaded;
	if (!chosen)
		return LB_NONE;
	*ret_srv = chosen->srv;
	if (take(p, chosen->srv))
		return LB_PICKED;
	return wait_or_next(p, h, first, n, chosen->srv, ret_srv);
}

/* --- the whole ----------------------------------------------------------------------------------- */

static enum lb_result wait_behind_others(const struct pick *p)
{
	for (unsigned i = 0; i < p->t->n; i++)
		if (server_is_eligible(p->t->entries[i].srv))
			return LB_QUEUE_BACKEND;
	return LB_NONE;
}

static bool is_hashing(uint8_t algo)
{
	return algo != BALANCE_ROUNDROBIN && algo != BALANCE_STATIC_RR &&
	       algo != BALANCE_LEASTCONN && algo != BALANCE_FIRST && algo != BALANCE_RANDOM &&
	       algo != BALANCE_PEAK_EWMA;
}

static enum lb_result pick_by_algorithm(const struct pick *p, struct server **ret_srv)
{
	if (!p->t || !p->t->n)
		return LB_NONE;
	/* Somebody waits for any server: all were full, and it was here before. */
	if (unlikely(atomic_load(&p->be->n_waiting)) && !is_hashing(p->t->algo))
		return wait_behind_others(p);
	switch (p->t->algo) {
	case BALANCE_ROUNDROBIN:
	case BALANCE_STATIC_RR:
		return pick_round_robin(p, ret_srv);
	case BALANCE_LEASTCONN:
		return pick_leastconn(p, ret_srv);
	case BALANCE_FIRST:
		return pick_any(p, 0, ret_srv);
	case BALANCE_RANDOM:
	case BALANCE_PEAK_EWMA:
		return pick_random(p, ret_srv);
	default:
		return pick_hash(p, ret_srv);
	}
}

/* LB_NONE: look for another. */
static enum lb_result pick_forced(const struct pick *p, struct server **ret_srv)
{
	struct server *s = p->rq->force;
	uint32_t maxqueue = atomic_load_explicit(&s->maxqueue, memory_order_relaxed);

	*ret_srv = s;
	if (take(p, s))
		return LB_PICKED;
	return maxqueue && atomic_load(&s->n_waiting) >= maxqueue ? LB_NONE : LB_QUEUE_SERVER;
}

static void count_picked(const struct pick *p, struct server *s)
{
	struct hg_l7_counters *ctr = s->w[p->rq->worker].ctr, *be_ctr = p->be->w[p->rq->worker].ctr;

	if (ctr)
		STATS_ADD(&ctr->picked, 1);
	if (be_ctr)
		STATS_ADD(&be_ctr->picked, 1);
}

enum lb_result lb_pick(struct lb_backend *be, const struct lb_request *rq, struct server **ret_srv)
{
	struct pick p = {
		.be = be,
		.rq = rq,
		.t = atomic_load_explicit(&be->table, memory_order_acquire),
	};
	struct lb_request again;
	enum lb_result rc;

	*ret_srv = NULL;
	if (rq->force && rq->force != rq->avoid &&
	    (server_is_usable(rq->force) || rq->may_be_down)) {
		rc = pick_forced(&p, ret_srv);
		if (rc != LB_NONE)
			return rc;
		*ret_srv = NULL;
		if (!(rq->px->options & CONF_OPT(REDISPATCH)))
			return LB_NONE;
		again = *rq;
		again.avoid = rq->force;
		p.rq = &again;
	}
	rc = pick_by_algorithm(&p, ret_srv);
	if (rc == LB_PICKED || rc == LB_QUEUE_SERVER)
		count_picked(&p, *ret_srv);
	else
		*ret_srv = NULL;
	return rc;
}
