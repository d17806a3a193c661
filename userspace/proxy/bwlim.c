/* SPDX-License-Identifier: BSD-2-Clause */
/* Bandwidth limits: which hold for a stream, and how much of a body may go now. See bwlim.h. */
#include "proxy/bwlim.h"

#include <errno.h>

#include "proxy/track.h"
#include "proxy/worker_priv.h"

#define MS 1000000ull
/* A limited stream wakes up about so often … */
#define STEPS_PER_S 50
/* … but for less than this it is not worth while. */
#define STEP_MIN 1460
/* Peers whose stream is paused for longer count as active at least so often. */
#define PAUSE_MAX_MS_AT_ONCE 1000

struct bwlim {
	struct bwlim *next;
	const struct conf_bwlim *filter;
	struct stick_limit limit;
	uint64_t credit; /* taken from the limit, not yet offered to the other side */
	uint64_t rate[STICK_RATE_WORDS]; /* of this stream */
	struct stick_ref ref; /* t NULL: not shared */
};

static uint64_t now_ms(const struct stream *st)
{
	return loop_now(st->w->loop) / MS;
}

/* --- which ------------------------------------------------------------------------------------ */

static struct bwlim **list_of(struct stream *st, const struct conf_bwlim *f)
{
	return f->is_in ? &st->bwlim_in : &st->bwlim_out;
}

/* A value of a rule's expression; false: it has none. */
static bool eval_number(struct stream *st, const struct expr *e, uint64_t max, uint64_t *ret)
{
	struct sample v;

	if (expr_eval(e, stream_subject(st), &v) || sample_cast(&v, SAMPLE_SINT, &st->arena) ||
	    v.sint <= 0)
		return false;
	*ret = (uint64_t)v.sint < max ? (uint64_t)v.sint : max;
	return true;
}

static void set_limit(struct bwlim *b, uint64_t limit, uint32_t period_ms)
{
	uint64_t step = (uint64_t)((unsigned __int128)limit * (1000 / STEPS_PER_S) / period_ms);
	uint64_t least = b->filter->min_size;

	if (step < STEP_MIN)
		step = STEP_MIN;
	b->limit = (struct stick_limit){ .limit = limit,
					 .period_ms = period_ms,
					 .least = least < limit ? least : limit,
					 .step = step < limit ? step : limit };
}

/* With the entry that its key stands for. False: there is none, nothing is limited. */
static bool open_shared(struct stream *st, struct bwlim *b)
{
	struct stick_table *t = b->filter->table->rt;
	char mem[CONF_STICK_KEY_MAX];
	struct str key;

	if (!t || track_key_by_expr(b->filter->key, stream_subject(st), t, mem, &key))
		return false;
	if (!stick_open(t, key, NULL, now_ms(st), &b->ref))
		return true;
	b->ref.t = NULL;
	return false;
}

/* What a former rule has said about this filter does not count any more. */
static void forget(struct stream *st, const struct conf_bwlim *f)
{
	struct bwlim **at = list_of(st, f);

	while (*at && (*at)->filter != f)
		at = &(*at)->next;
	if (!*at)
		return;
	if ((*at)->ref.t)
		stick_close(&(*at)->ref, NULL, now_ms(st));
	*at = (*at)->next;
}

static void enable(struct stream *st, struct bwlim *b)
{
	struct flow *f = b->filter->is_in ? &st->req_flow : &st->rsp_flow;
	struct bwlim **list = list_of(st, b->filter);

	b->next = *list;
	*list = b;
	if (f->is_active)
		f->limits = b;
}

enum rule_verdict rule_bandwidth(struct stream *st, const struct conf_proxy *px,
				 const struct conf_rule *r, struct http_msg *m, enum step *ret_step)
{
	const struct conf_bwlim_use *u = r->bwlim;
	uint64_t limit = u->limit ? u->limit : u->filter->limit;
	uint64_t period = u->period_ms ? u->period_ms : u->filter->period_ms;
	struct bwlim *b;

	forget(st, u->filter);
	/* An expression without a value leaves the filter's own. */
	if (u->limit_expr)
		(void)eval_number(st, u->limit_expr, INT64_MAX, &limit);
	if (u->period_expr)
		(void)eval_number(st, u->period_expr, BWLIM_PERIOD_MAX_MS, &period);
	b = arena_zalloc(&st->arena, sizeof(*b));
	if (!b) {
		ctr_add(&st->w->ctr->alloc_failures, 1);
		*ret_step = stream_fail(st, 'R', 500);
		return RULE_STEP;
	}
	b->filter = u->filter;
	set_limit(b, limit, (uint32_t)period);
	if (!u->filter->key || open_shared(st, b))
		enable(st, b);
	return RULE_NEXT;
}

void bwlim_end(struct stream *st)
{
	struct bwlim *lists[2] = { st->bwlim_in, st->bwlim_out };

	for (unsigned i = 0; i < 2; i++) {
		for (struct bwlim *b = lists[i]; b; b = b->next)
			if (b->ref.t)
				stick_close(&b->ref, NULL, now_ms(st));
	}
	st->bwlim_in = NULL;
	st->bwlim_out = NULL;
}

/* --- how much --------------------------------------------------------------------------------- */

static uint64_t take(struct bwlim *b, uint64_t want, uint64_t now, uint32_t *ret_wait_ms)
{
	enum conf_stick_data what = b->filter->is_in ? STICK_DATA_BYTES_IN_RATE
						     : STICK_DATA_BYTES_OUT_RATE;
	uint64_t n;

	if (!b->ref.t)
		return stick_rate_take(b->rate, &b->limit, want, now, ret_wait_ms);
	/* A table that a reload gave another form has nothing to limit with. */
	return stick_take(&b->ref, what, &b->limit, want, now, &n, ret_wait_ms) ? want : n;
}

/* As much as every limit allows; 0: pauses. */
static uint64_t grant(struct flow *f, uint64_t want)
{
	uint64_t now = loop_now(f->src->st->w->loop);
	uint32_t wait_ms = 0, ms = 0;

	for (struct bwlim *b = f->limits; b && want; b = b->next) {
		if (b->credit < want)
			b->credit += take(b, want - b->credit, now / MS, &ms);
		if (b->credit < want)
			want = b->credit;
		if (!b->credit)
			wait_ms = ms;
	}
	if (!want) {
		if (wait_ms > PAUSE_MAX_MS_AT_ONCE)
			wait_ms = PAUSE_MAX_MS_AT_ONCE;
		f->paused_until_ns = now + (wait_ms ? wait_ms : 1) * MS;
		return 0;
	}
	for (struct bwlim *b = f->limits; b; b = b->next)
		b->credit -= want;
	return want;
}

/* The first `len` bytes behind the first `skip`. */
static unsigned cut(const struct str *slices, unsigned n, uint64_t skip, uint64_t len,
		    struct str *ret)
{
	unsigned k = 0;

	for (unsigned i = 0; i < n && len; i++) {
		struct str s = str_from(slices[i], skip < slices[i].len ? skip : slices[i].len);

		skip -= slices[i].len - s.len;
		if (!s.len)
			continue;
		s = str_sub(s, 0, len < s.len ? len : s.len);
		len -= s.len;
		ret[k++] = s;
	}
	return k;
}

/* Nothing of the body may go, but what stands before it must not wait. */
static ssize_t write_held_back(struct flow *f, ssize_t done)
{
	ssize_t r = side_is_flushed(f->dst) ? 0 : f->dst->ops->write(f->dst, NULL, 0, false);

	if (r < 0)
		return r;
	/* Then it waits for the other side first. */
	if (!side_is_flushed(f->dst))
		f->paused_until_ns = 0;
	return done;
}

ssize_t bwlim_write(struct flow *f, const struct str *slices, unsigned n, bool is_end)
{
	uint64_t now = loop_now(f->src->st->w->loop), total = 0, done = 0;
	struct str part[SIDE_SLICES];
	ssize_t r;

	for (unsigned i = 0; i < n; i++)
		total += slices[i].len;
	if (f->paused_until_ns > now)
		return write_held_back(f, 0);
	if (f->paused_until_ns) {
		f->paused_until_ns = 0;
		f->src->active_ns = now;
		f->dst->active_ns = now;
	}
	if (!total)
		return f->dst->ops->write(f->dst, slices, n, is_end);
	while (done < total) {
		/* What was offered and not taken is offered again, unchanged. */
		if (!f->offered)
			f->offered = grant(f, total - done);
		if (!f->offered)
			return write_held_back(f, (ssize_t)done);
		r = f->dst->ops->write(f->dst, part, cut(slices, n, done, f->offered, part),
				       is_end && done + f->offered == total);
		if (r < 0)
			return r;
		f->offered -= (uint64_t)r;
		done += (uint64_t)r;
		if (f->offered || !side_is_flushed(f->dst))
			break;
	}
	return (ssize_t)done;
}
