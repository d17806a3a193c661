/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The walk: through all remembered flows and fragments, then the slots, then the backends. It forgets flows
 * that are over, finds which slots still need their memory and which backends nobody names any more.
 * The program goes on meanwhile and writes what it likes; a word is only ever cleared by compare and swap.
 *
 * A walk is cut into slices of SLICE_NS, so that the control thread does its other work between them, and
 * takes place only while there is something to find: with no slot tracked there is none.
 */
#include <netinet/in.h>
#include <string.h>

#include "dp/dp_priv.h"

#define SLICE_NS 400000ull
/* Between two looks at the clock; some ten microseconds of work each. */
#define LINES_AT_ONCE	 64
#define SLOTS_AT_ONCE	 2048
#define SERVICES_AT_ONCE 512
#define BACKENDS_AT_ONCE 2048
/* A walk begins after this part of the shortest window, and after so many times what the last one cost us. */
#define WALKS_PER_WINDOW 8
#define WALK_PAUSE_COSTS 50
#define WALK_PAUSE_MIN	 900000000ull
#define WALK_PAUSE_MAX	 10000000000ull
#define COUNT_PAUSE	 4000000000ull /* with `track on` */
/* Ages of so many ticks below zero are zero: see base/jiffies.h. */
#define TICK_SLACK 64

/* --- flows ------------------------------------------------------------------------------------------------- */

static bool is_idle(const struct dp *dp, uint32_t meta, uint32_t window_s)
{
	uint32_t age = (dp->walk.tick - meta) & 0xffff;

	return age < 0x10000 - TICK_SLACK &&
	       ((uint64_t)age << dp->t.tick_shift) > (uint64_t)(window_s + 1) * dp->t.hz;
}

static bool is_usable(const struct dp *dp, uint32_t id)
{
	return id < dp->t.max_backends && (dp->t.backends[id].flags & HG_BE_USABLE) == HG_BE_USABLE;
}

/* `track on`: a connection that its client has closed, some time ago. */
static bool flow_is_closed(const struct dp *dp, const struct dp_service *svc, uint64_t word,
			   uint32_t meta)
{
	return hg_service_counts(svc->row.flags) && svc->row.key.proto == IPPROTO_TCP &&
	       !(word & HG_WORD_COUNTED) && HG_META_CLASS(meta) == HG_FLOW_LEARNT &&
	       is_idle(dp, meta, HG_FLOW_CLOSED_S);
}

/* Nobody needs the entry: its flow is over, lost with its backend, or of a slot that is not looked up. */
static bool flow_is_over(const struct dp *dp, struct dp_service *svc, uint64_t word, uint32_t meta)
{
	uint32_t id = HG_WORD_BACKEND(word), slot, owner;

	if (!svc->is_used || !svc->row.slots || !is_usable(dp, id) ||
	    is_idle(dp, meta, svc->window_s))
		return true;
	slot = hg_flow_slot(word, svc->row.slots);
	owner = *dp_slot_at(dp, svc, slot);
	if (!(owner & HG_SLOT_TRACKED))
		return !(svc->row.flags & HG_SVC_TRACK_ON) || id != HG_SLOT_CURRENT(owner) ||
		       flow_is_closed(dp, svc, word, meta);
	if (id != HG_SLOT_CURRENT(owner))
		svc->marks[slot] |= DP_SLOT_SEEN;
	return false;
}

/* A word becomes `to`; takes a connection from the count when it was one. False: the program was faster. */
static bool flow_change(struct dp *dp, uint64_t *at, uint64_t word, uint64_t to)
{
	uint32_t id = HG_WORD_BACKEND(word);

	if (!__atomic_compare_exchange_n(at, &word, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return false;
	if (word & HG_WORD_COUNTED && dp->nat.live_backends && id < dp->t.max_backends)
		__atomic_sub_fetch(&dp->nat.live_backends[id].word, HG_LIVE_XDP, __ATOMIC_SEQ_CST);
	return true;
}

/*
 * Silent for so long that it counts as over, though its flow stays known: if it speaks again, it counts again. A
 * client that never confirmed has less time.
 */
static bool count_is_over(const struct dp *dp, const struct dp_service *svc, uint32_t meta)
{
	bool is_half_open = HG_META_CLASS(meta) == HG_FLOW_SYN &&
			    svc->row.key.proto == IPPROTO_TCP && svc->idle_s > HG_FLOW_SYN_S;

	return is_idle(dp, meta, is_half_open ? HG_FLOW_SYN_S : svc->idle_s);
}

static void walk_line(struct dp *dp, struct hg_line *line)
{
	for (unsigned way = 0; way < HG_LINE_WAYS; way++) {
		uint64_t word = __atomic_load_n(&line->word[way], __ATOMIC_ACQUIRE);
		uint32_t meta = __atomic_load_n(&line->meta[way], __ATOMIC_RELAXED);
		uint32_t id = HG_META_SERVICE(meta);

		if (!word)
			continue;
		if (id >= dp->t.max_services || flow_is_over(dp, &dp->services[id], word, meta)) {
			/* Another flow may have taken the place just now: then it stays. */
			(void)flow_change(dp, (uint64_t *)&line->word[way], word, 0);
			continue;
		}
		if (word & HG_WORD_COUNTED && count_is_over(dp, &dp->services[id], meta))
			(void)flow_change(dp, (uint64_t *)&line->word[way], word,
					  word & ~(uint64_t)HG_WORD_COUNTED);
		dp->services[id].n_flows_walk++;
		dp->backends[HG_WORD_BACKEND(word)].n_flows_walk++;
	}
}

/* Only what names a backend whose id is to be given away; others age by themselves. */
static void walk_fragments_line(struct dp *dp, struct hg_line *line)
{
	for (unsigned way = 0; way < HG_LINE_WAYS; way++) {
		uint64_t word = __atomic_load_n(&line->word[way], __ATOMIC_ACQUIRE);
		uint32_t id = HG_WORD_BACKEND(word);

		/* 0: of NAT, which has its own memory of them. */
		if (word && id &&
		    (id >= dp->t.max_backends || dp->backends[id].is_releasing ||
		     !dp->backends[id].is_used))
			__atomic_compare_exchange_n(&line->word[way], &word, 0, false,
						    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	}
}

/* --- slots, backends ---------------------------------------------------------------------------------- */

/* Some slots of the service the walk is at, or the next services that have nothing to look at. */
static bool walk_slots(struct dp *dp)
{
	struct dp_walk *w = &dp->walk;
	uint32_t to;

	for (unsigned i = 0; i < SERVICES_AT_ONCE && w->at < dp->t.max_services; i++) {
		struct dp_service *svc = &dp->services[w->at];

		if (svc->is_used && svc->row.quic_ids && !w->slot)
			dp_quic_ripen(dp, svc);
		if (!svc->is_used || !svc->is_unsettled || w->slot >= svc->row.slots) {
			if (w->slot)
				svc->is_unsettled = svc->is_still_unsettled;
			w->slot = 0;
			w->at++;
			continue;
		}
		if (!w->slot)
			svc->is_still_unsettled = false;
		to = w->slot + SLOTS_AT_ONCE;
		if (to > svc->row.slots)
			to = svc->row.slots;
		dp_slots_ripen(dp, svc, w->slot, to);
		w->slot = to;
		break;
	}
	return w->at >= dp->t.max_services;
}

/*
 * The end of a backend that the configuration no longer has: when nothing names it, the program may not choose it
 * any more; a grace time and a walk later nothing can remember it, and its id is free.
 */
static void walk_backend(struct dp *dp, uint32_t id)
{
	struct dp_backend *b = &dp->backends[id];

	b->n_flows = b->n_flows_walk;
	b->n_flows_walk = 0;
	if (b->is_used && !b->is_wanted && !b->is_named && !b->n_flows && !dp_nat_is_live(dp, id)) {
		if (b->is_releasing) {
			dp_backend_drop(dp, id);
			dp->walk.has_released = true;
		} else {
			dp_backend_set_alive(dp, id, false);
			b->is_releasing = true;
		}
	}
	b->is_named = false;
}

static bool walk_backends(struct dp *dp)
{
	struct dp_walk *w = &dp->walk;

	for (unsigned i = 0; i < BACKENDS_AT_ONCE && w->at < dp->t.max_backends; i++, w->at++)
		walk_backend(dp, w->at);
	if (w->at < dp->t.max_backends)
		return false;
	for (uint32_t i = 0; i < dp->t.max_services; i++) {
		dp->services[i].n_flows = dp->services[i].n_flows_walk;
		dp->services[i].n_flows_walk = 0;
	}
	return true;
}

/* --- the walk as a whole ---------------------------------------------------------------------------------- */

static bool walk_lines(struct dp *dp, struct hg_line *lines, uint32_t n,
		       void (*look)(struct dp *dp, struct hg_line *line))
{
	uint32_t *at = &dp->walk.at;

	for (unsigned i = 0; i < LINES_AT_ONCE && *at < n; i++, ++*at)
		look(dp, &lines[*at]);
	return *at >= n;
}

/* One step; true: the phase is done. */
static bool walk_step(struct dp *dp)
{
	switch (dp->walk.phase) {
	case DP_WALK_FLOWS:
		return walk_lines(dp, dp->t.flows, dp->t.n_flow_lines, walk_line);
	case DP_WALK_FRAGMENTS:
		return walk_lines(dp, dp->t.fragments, dp->t.n_fragment_lines, walk_fragments_line);
	case DP_WALK_SLOTS:
		return walk_slots(dp);
	case DP_WALK_BACKENDS:
		return walk_backends(dp);
	case DP_WALK_IDLE:
		break;
	}
	return true;
}

/* Is there anything to find, and how long may it wait? */
static bool walk_is_wanted(const struct dp *dp, uint64_t *ret_pause_ns)
{
	uint64_t pause = WALK_PAUSE_MAX;
	bool is_wanted = false;

	for (uint32_t i = 0; i < dp->t.max_services; i++) {
		const struct dp_service *svc = &dp->services[i];
		uint64_t part = (uint64_t)svc->window_s * 1000000000ull / WALKS_PER_WINDOW;

		if (!svc->is_used ||
		    !(svc->is_unsettled || svc->n_flows || svc->row.flags & HG_SVC_TRACK_ON))
			continue;
		is_wanted = true;
		/* Connections that ended in silence hold places under `maxconn` until they are found. */
		if (svc->row.flags & HG_SVC_TRACK_ON && part > COUNT_PAUSE)
			part = COUNT_PAUSE;
		if (part < pause)
			pause = part;
	}
	for (uint32_t id = 1; id < dp->t.max_backends; id++)
		is_wanted |= dp->backends[id].is_used && !dp->backends[id].is_wanted;
	if (pause < WALK_PAUSE_MIN)
		pause = WALK_PAUSE_MIN;
	if (pause < dp->walk.busy_ns * WALK_PAUSE_COSTS)
		pause = dp->walk.busy_ns * WALK_PAUSE_COSTS;
	*ret_pause_ns = pause;
	return is_wanted;
}

/*
 * Never before the first sync, for then it is not known which backends are wanted; nor before all packets
 * have seen the last change, for they may still write what it forbids.
 */
static bool walk_begin(struct dp *dp)
{
	uint64_t now = dp_clock(dp), pause;

	if (!dp->is_synced || now < dp->slots_changed_ns + DP_GRACE_NS ||
	    now < dp->flipped_ns + DP_GRACE_NS || !walk_is_wanted(dp, &pause) ||
	    (dp->walk.n_walks && now < dp->walk.began_ns + pause))
		return false;
	dp->walk.phase = DP_WALK_FLOWS;
	dp->walk.at = dp->walk.slot = 0;
	dp->walk.began_ns = now;
	dp->walk.busy_walk_ns = 0;
	return true;
}

/* Flows for which there was no room break when their window ends. */
static void walk_tell_full(struct dp *dp)
{
	struct hg_verdict_counters v;
	uint64_t n;

	dp_verdicts(dp, &v);
	n = v.event[HG_EVENT_FLOW_FULL];
	if (n > dp->walk.n_full && dp->walk.n_walks)
		dp_notice(dp,
			  "%llu flows found no room among %u entries and are kept only until their "
			  "learn-window ends: raise 'xdp flow-entries' and restart",
			  (unsigned long long)(n - dp->walk.n_full),
			  dp->t.n_flow_lines * HG_LINE_WAYS);
	dp->walk.n_full = n;
}

static void walk_next_phase(struct dp *dp)
{
	struct dp_walk *w = &dp->walk;

	w->at = w->slot = 0;
	w->phase = w->phase == DP_WALK_BACKENDS ? DP_WALK_IDLE : w->phase + 1;
	if (w->phase != DP_WALK_IDLE)
		return;
	walk_tell_full(dp);
	w->n_walks++;
}

static bool walk_work(struct dp *dp)
{
	struct dp_walk *w = &dp->walk;
	uint64_t began = dp_now_ns();

	dp_carry_end(dp); /* attached long since */
	if (!dp->services || !dp->t.flows || (w->phase == DP_WALK_IDLE && !walk_begin(dp)))
		return false;
	w->tick = tick_of(dp_clock(dp), dp->t.hz, dp->t.tick_shift);
	do {
		if (walk_step(dp))
			walk_next_phase(dp);
	} while (w->phase != DP_WALK_IDLE && dp_now_ns() - began < SLICE_NS);
	w->busy_walk_ns += dp_now_ns() - began;
	if (w->phase == DP_WALK_IDLE)
		w->busy_ns = w->busy_walk_ns;
	return w->phase != DP_WALK_IDLE;
}

bool dp_work(struct dp *dp)
{
	bool has_more = dp_deny_sweep(dp);

	return walk_work(dp) || has_more;
}

bool dp_has_released(struct dp *dp)
{
	bool has = dp->walk.has_released;

	dp->walk.has_released = false;
	return has;
}
